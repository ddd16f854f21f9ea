//! Rates with the interval that their own fluctuation gives, and shares with Wilson's.
//!
//! What comes within a stretch of time is summed in bins of fixed width, so memory grows with time and not with requests.
//! The interval is that of batch means: requests that follow each other are not independent, but the means of long
//! pieces nearly are. It must not know what is counted. Invariant: a time too short for that has a rate, but no interval.

use super::level::{Goodput, Rate};

/// Width of a bin, µs.
const BIN: u64 = 100_000;
/// No level is longer than this many bins (a day); what a broken stamp puts beyond is not counted.
const MOST_BINS: usize = 864_000;
/// Pieces of equal length.
pub const BATCHES: usize = 10;
/// Student's t for 9 degrees of freedom, 2.5 % on each side.
pub const T_9: f64 = 2.262;
/// The normal distribution's, 2.5 % on each side.
const Z: f64 = 1.959_963_984_540_054;

/// Amounts by when they came.
#[derive(Debug, Default)]
pub struct Bins {
    from: u64,
    sums: Vec<f64>,
}

impl Bins {
    /// Nothing yet, from this moment on, µs.
    pub const fn from(micros: u64) -> Self {
        Self { from: micros, sums: Vec::new() }
    }

    /// When it starts, µs.
    pub const fn start(&self) -> u64 {
        self.from
    }

    /// So much came at this moment, µs; not counted before the start.
    pub fn add(&mut self, at: u64, amount: f64) {
        let Some(since) = at.checked_sub(self.from) else { return };
        let bin = (since / BIN) as usize;
        if bin < MOST_BINS {
            if bin >= self.sums.len() {
                self.sums.resize(bin + 1, 0.0);
            }
            self.sums[bin] += amount;
        }
    }

    /// The rate up to `end`, µs, with its interval where that may be `told`; `None` where no time has passed.
    pub fn rate(&self, end: u64, told: bool) -> Option<Rate> {
        let length = end.checked_sub(self.from).filter(|length| *length > 0)?;
        let seconds = length as f64 / 1e6;
        let mut before = Vec::with_capacity(self.sums.len() + 1);
        before.push(0.0);
        for sum in self.sums.iter().take(length.div_ceil(BIN) as usize) {
            before.push(before[before.len() - 1] + sum);
        }
        let value = before[before.len() - 1] / seconds;
        if !told {
            return Some(Rate { value, lo: None, hi: None });
        }
        let cuts: Vec<f64> = (0..=BATCHES).map(|i| up_to(&before, length, i as f64 / BATCHES as f64)).collect();
        let batch_s = seconds / BATCHES as f64;
        let half = T_9 * standard_error(cuts.windows(2).map(|pair| (pair[1] - pair[0]) / batch_s), value);
        Some(Rate { value, lo: Some((value - half).max(0.0)), hi: Some(value + half) })
    }
}

/// What came in the first `share` of a time of `length` µs: within a bin, evenly.
fn up_to(before: &[f64], length: u64, share: f64) -> f64 {
    let bins = before.len() - 1;
    let at = share * length as f64;
    let bin = (at / BIN as f64) as usize;
    if bin >= bins {
        return before[bins];
    }
    let start = bin as f64 * BIN as f64;
    // The last bin may be cut short.
    let width = (length as f64 - start).min(BIN as f64);
    before[bin] + (before[bin + 1] - before[bin]) * ((at - start) / width).min(1.0)
}

/// Of the mean of [`BATCHES`] values.
fn standard_error(values: impl Iterator<Item = f64>, mean: f64) -> f64 {
    let squares: f64 = values.map(|value| (value - mean).powi(2)).sum();
    (squares / (BATCHES - 1) as f64 / BATCHES as f64).sqrt()
}

/// Wilson's 95 % interval of a share (Wilson 1927), without continuity correction; `None` of nothing.
pub fn wilson(good: u64, n: u64) -> Option<(f64, f64)> {
    if n == 0 {
        return None;
    }
    let (n, share) = (n as f64, good as f64 / n as f64);
    let whole = 1.0 + Z * Z / n;
    let centre = (share + Z * Z / (2.0 * n)) / whole;
    let half = Z / whole * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt();
    Some(((centre - half).max(0.0), (centre + half).min(1.0)))
}

/// Newcombe's 95 % interval of the difference new − old of two independent shares, from their Wilson intervals
/// (Newcombe 1998, method 10).
pub fn newcombe(old: &Goodput, new: &Goodput) -> (f64, f64) {
    let difference = new.share - old.share;
    (
        difference - (new.share - new.lo).hypot(old.hi - old.share),
        difference + (new.hi - new.share).hypot(old.share - old.lo),
    )
}

/// The share with its interval, and how many that is per second; `None` of nothing, or where no time has passed.
pub fn goodput(good: u64, n: u64, seconds: f64) -> Option<Goodput> {
    let (lo, hi) = wilson(good, n)?;
    (seconds > 0.0).then(|| Goodput { good, n, share: good as f64 / n as f64, lo, hi, per_s: good as f64 / seconds })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(got: f64, expected: f64) -> bool {
        (got - expected).abs() < 5.1e-5
    }

    /// Newcombe, "Two-sided confidence intervals for the single proportion", Statistics in Medicine 17 (1998), table I,
    /// method 3.
    #[test]
    fn wilson_as_published() {
        for (good, n, lo, hi) in
            [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)]
        {
            let got = wilson(good, n).unwrap();
            assert!(near(got.0, lo) && near(got.1, hi), "{good} of {n}: {got:?}");
            let (worst, best) = wilson(n - good, n).unwrap();
            assert!(near(worst, 1.0 - hi) && near(best, 1.0 - lo), "the bad ones are the others");
        }
        assert_eq!(wilson(0, 0), None);
    }

    /// Newcombe, "Interval estimation for the difference between independent proportions", Statistics in Medicine 17
    /// (1998), table II, method 10.
    #[test]
    fn the_difference_of_shares_as_published() {
        for (new, old, lo, hi) in [
            ((56, 70), (48, 80), 0.0524, 0.3339),
            ((9, 10), (3, 10), 0.1705, 0.8090),
            ((6, 7), (2, 7), 0.0582, 0.8062),
            ((5, 56), (0, 29), -0.0381, 0.1926),
            ((0, 10), (0, 20), -0.1611, 0.2775),
            ((10, 10), (0, 10), 0.6075, 1.0),
        ] {
            let got = newcombe(&goodput(old.0, old.1, 1.0).unwrap(), &goodput(new.0, new.1, 1.0).unwrap());
            assert!(near(got.0, lo) && near(got.1, hi), "{new:?} {old:?}: {got:?}");
        }
    }

    #[test]
    fn a_rate_counts_from_its_start_to_its_end() {
        let mut bins = Bins::from(1_000_000);
        bins.add(999_999, 50.0);
        bins.add(1_000_000, 3.0);
        bins.add(2_549_000, 4.0);
        // The end is within a bin.
        assert_eq!(bins.rate(2_550_000, false), Some(Rate { value: 7.0 / 1.55, lo: None, hi: None }));
        assert_eq!(bins.rate(1_500_000, false).map(|rate| rate.value), Some(6.0));
        assert_eq!((bins.rate(1_000_000, false), bins.rate(0, false)), (None, None));
        bins.add(u64::MAX, 1.0);
        assert!(bins.sums.len() < 20, "a broken stamp takes no memory");
    }

    /// Ten pieces of 1 s with 1 to 10: mean 5.5, standard deviation √(82.5 ÷ 9), as arithmetic has it.
    #[test]
    fn the_interval_is_that_of_ten_batches() {
        let mut bins = Bins::from(0);
        for i in 0..10 {
            bins.add(i * 1_000_000 + 500_000, (i + 1) as f64);
        }
        let got = bins.rate(10_000_000, true).unwrap();
        let half = 2.262 * (82.5_f64 / 9.0 / 10.0).sqrt();
        assert!((got.value - 5.5).abs() < 1e-12);
        assert!(
            (got.lo.unwrap() - (5.5 - half)).abs() < 1e-9 && (got.hi.unwrap() - (5.5 + half)).abs() < 1e-9,
            "{got:?}"
        );
    }

    #[test]
    fn an_even_flow_has_a_narrow_interval_wherever_the_bins_fall() {
        let mut bins = Bins::from(77);
        for i in 0..12_345 {
            bins.add(77 + i * 1000, 1.0);
        }
        let got = bins.rate(77 + 12_345_000, true).unwrap();
        assert!((got.value - 1000.0).abs() < 1e-9, "{got:?}");
        assert!(got.hi.unwrap() - got.lo.unwrap() < 2.0, "{got:?}");
    }

    /// Poisson arrivals: the interval holds the true rate in about 95 % of 2000 runs. Standard error: 0.5 %.
    #[test]
    fn the_interval_holds_the_true_rate_as_often_as_it_says() {
        let mut random = fastrand::Rng::with_seed(9);
        let mut held = 0;
        for _ in 0..2000 {
            let mut bins = Bins::from(0);
            let mut at = 0.0;
            loop {
                at -= (1.0 - random.f64()).ln() / 20.0;
                if at >= 20.0 {
                    break;
                }
                bins.add((at * 1e6) as u64, 1.0);
            }
            let got = bins.rate(20_000_000, true).unwrap();
            held += i32::from(got.lo.unwrap() <= 20.0 && 20.0 <= got.hi.unwrap());
        }
        assert!((1860..=1940).contains(&held), "{held} of 2000");
    }

    #[test]
    fn goodput_of_nothing_is_unknown() {
        assert_eq!((goodput(0, 0, 1.0), goodput(1, 2, 0.0)), (None, None));
        let got = goodput(9, 10, 3.0).unwrap();
        assert_eq!((got.share, got.per_s), (0.9, 3.0));
    }
}
