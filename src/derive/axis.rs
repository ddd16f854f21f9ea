//! The log axis of latencies: from a number of seconds to its place, and back.
//!
//! It must not know what is drawn on it. Invariant: whatever it is made of, an axis lies within [`LEAST_S`] and
//! [`MOST_S`] and is a decade long at least, so that no place overflows and it never has more than a few dozen ticks. A
//! server names its own bucket edges, and 1e308 is one that it may name.

/// Below this no axis begins, s: no engine tells a nanosecond apart.
const LEAST_S: f64 = 1e-9;
/// Above this no axis ends, s: 31 years.
const MOST_S: f64 = 1e9;

/// A log axis of latencies, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogAxis {
    lo: f64,
    hi: f64,
}

impl LogAxis {
    /// Where nothing was observed.
    pub const QUIET: Self = Self { lo: 0.01, hi: 10.0 };

    /// From `lo` to `hi`, s, as far as an axis may reach and at least a decade long.
    pub(super) fn new(lo: f64, hi: f64) -> Self {
        let lo = held(lo).min(MOST_S / 10.0);
        Self { lo, hi: hi.max(lo * 10.0).min(MOST_S) }
    }

    /// The axis from `lo` to `hi`, widened to at least a decade and to 1, 2 or 5 times a power of ten, so that
    /// it seldom changes.
    pub(super) fn around(lo: f64, hi: f64) -> Self {
        let (lo, hi) = (held(lo), held(hi));
        let missing = (10.0 * lo / hi).max(1.0).sqrt();
        Self::new(nice_steps(lo / missing).0, nice_steps(hi * missing).1)
    }

    /// At the bottom, s.
    pub const fn lo(&self) -> f64 {
        self.lo
    }

    /// At the top, s.
    pub const fn hi(&self) -> f64 {
        self.hi
    }

    /// Place of a value: 0 at the bottom, 1 at the top, beyond for what is outside.
    pub fn place(&self, value: f64) -> f64 {
        (held(value) / self.lo).ln() / (self.hi / self.lo).ln()
    }

    /// The round values on an axis of so many rows: powers of ten, and where they lie far apart one or two between
    /// them after those.
    pub fn ticks(&self, rows: u16) -> impl Iterator<Item = f64> {
        let (lo, hi) = (self.lo, self.hi);
        let decades = (hi / lo).log10();
        let powers = lo.log10().floor() as i32..=hi.log10().ceil() as i32;
        let factors: &[f64] = match f64::from(rows) / decades.max(0.1) {
            rows if rows >= 6.0 => &[1.0, 2.0, 5.0],
            rows if rows >= 3.0 => &[1.0, 3.0],
            _ => &[1.0],
        };
        let all = factors.iter().flat_map(move |factor| powers.clone().map(move |power| factor * 10_f64.powi(power)));
        all.filter(move |value| *value >= lo * 0.999 && *value < hi * 0.999)
    }

    /// The value at a place.
    pub fn value(&self, place: f64) -> f64 {
        self.lo * (self.hi / self.lo).powf(place)
    }
}

/// A value as far as an axis may reach; what is no number is at its lower end.
const fn held(value: f64) -> f64 {
    if value > LEAST_S { value.min(MOST_S) } else { LEAST_S }
}

/// The next 1, 2 or 5 times a power of ten at or below, and at or above, a value.
fn nice_steps(value: f64) -> (f64, f64) {
    const TOLERANCE: f64 = 1.000_001;
    let value = held(value);
    let decade = 10_f64.powf((value * TOLERANCE).log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|m| m * decade);
    let below = steps.into_iter().rev().find(|&s| s <= value * TOLERANCE).unwrap_or(decade);
    let above = steps.into_iter().find(|&s| s * TOLERANCE >= value).unwrap_or(decade * 10.0);
    (below, above)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn steps_are_1_2_5() {
        let near = |got: (f64, f64), want: (f64, f64)| (got.0 - want.0).abs() < 1e-9 && (got.1 - want.1).abs() < 1e-9;
        assert!(near(nice_steps(0.03), (0.02, 0.05)));
        assert!(near(nice_steps(0.1), (0.1, 0.1)));
        assert!(near(nice_steps(7.0), (5.0, 10.0)));
        assert!(near(nice_steps(2000.0), (2000.0, 2000.0)));
    }

    proptest! {
        /// Any number that a server can name as an edge, and what is none.
        #[test]
        fn an_axis_is_bounded_whatever_it_is_made_of(lo in any::<f64>(), hi in any::<f64>(), value in any::<f64>(), rows in any::<u16>()) {
            for axis in [LogAxis::new(lo, hi), LogAxis::around(lo, hi), LogAxis::around(value, value * 2.0)] {
                prop_assert!(axis.lo >= LEAST_S && axis.hi <= MOST_S && axis.hi >= axis.lo * 9.999, "{:?}", axis);
                // 18 decades of at most 3 ticks, and those at the ends.
                prop_assert!(axis.ticks(rows).take(100).count() <= 60, "{:?}", axis);
                prop_assert!(axis.place(value).abs() <= 20.0, "{:?}", axis);
                prop_assert!(axis.value(axis.place(value)).is_finite());
            }
        }
    }
}
