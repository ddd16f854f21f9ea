//! Scales: from a value to its share of an axis.
//!
//! Where physics gives a domain it is fixed (0–100 %, up to the peak bandwidth, up to the power limit).
//! Else the upper end is the next of a coarse grid of round numbers above what is shown: it changes
//! seldom, and since it depends on nothing but the data, two frames of the same data are the same.

/// A linear axis. Its ends lie within `FARTHEST`, so that their difference is a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    lo: f64,
    hi: f64,
}

/// Farthest from 0 that an end of an axis lies. Nothing that is measured comes near it; a server may say it all the same.
const FARTHEST: f64 = 1e300;
/// Round upper ends within a decade; halves and quarters of each are round as well.
const NICE: [f64; 11] = [1.0, 1.2, 1.6, 2.0, 2.4, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0];

impl Scale {
    /// 0 to 100.
    pub const PERCENT: Self = Self { lo: 0.0, hi: 100.0 };

    /// From `lo` to `hi`; an empty or unusable range becomes one that starts at `lo`.
    pub fn fixed(lo: f64, hi: f64) -> Self {
        let lo = if lo.is_finite() { lo.clamp(-FARTHEST, FARTHEST) } else { 0.0 };
        let hi = if hi.is_finite() { hi.min(FARTHEST) } else { lo };
        if hi > lo { Self { lo, hi } } else { Self { lo, hi: lo + lo.abs().max(1.0) } }
    }

    /// From 0 to a round number that is no less than `max` and no less than `least`.
    pub fn zoom(max: f64, least: f64) -> Self {
        Self::fixed(0.0, nice_up(if max.is_finite() { max.max(least) } else { least }))
    }

    /// Upper end.
    pub const fn hi(self) -> f64 {
        self.hi
    }

    /// The value at the share `t` (0 to 1) of the axis.
    pub fn at(self, t: f64) -> f64 {
        self.lo + (self.hi - self.lo) * t
    }

    /// Where the value lies, 0 to 1; values off the axis lie at its ends. `None` for NaN.
    pub fn fraction(self, value: f64) -> Option<f64> {
        let t = (value - self.lo) / (self.hi - self.lo);
        (!t.is_nan()).then(|| t.clamp(0.0, 1.0))
    }
}

/// The smallest round number that is no less than `value`; 1 where that has no meaning.
pub fn nice_up(value: f64) -> f64 {
    if !value.is_finite() || value <= 0.0 {
        return 1.0;
    }
    let value = value.min(FARTHEST);
    let decade = 10f64.powf(value.log10().floor());
    // A hair of slack: 4.8 / 1.0 must not step over 4.8 for a rounding error.
    let nice = NICE.iter().find(|n| **n * decade >= value * (1.0 - 1e-9)).unwrap_or(&10.0) * decade;
    if nice.is_finite() && nice > 0.0 { nice } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_upper_end_is_round() {
        for (value, nice) in [(0.0, 1.0), (1.0, 1.0), (1.1, 1.2), (7.0, 8.0), (81.0, 100.0), (160.0, 160.0)] {
            assert!((nice_up(value) - nice).abs() < 1e-9, "{value}");
        }
        assert_eq!(Scale::zoom(3.0, 10.0), Scale::fixed(0.0, 10.0));
        assert_eq!(Scale::zoom(f64::NAN, 10.0), Scale::fixed(0.0, 10.0));
    }

    #[test]
    fn what_is_off_the_axis_lies_at_its_end() {
        assert_eq!(Scale::PERCENT.fraction(-5.0), Some(0.0));
        assert_eq!(Scale::PERCENT.fraction(f64::INFINITY), Some(1.0));
        assert_eq!(Scale::PERCENT.fraction(f64::NAN), None);
        assert_eq!(Scale::fixed(5.0, 5.0).fraction(5.0), Some(0.0));
    }

    proptest! {
        #[test]
        fn nothing_is_cut_off_and_little_is_wasted(value in 1e-6f64..1e15) {
            let nice = nice_up(value);
            prop_assert!(nice >= value * (1.0 - 1e-9) && nice <= value * 1.4, "{value} {nice}");
        }
    }
}
