//! Times of which there are too many to keep each: a histogram with three digits, of µs up to an hour.

use hdrhistogram::Histogram;

use crate::load::level::{Latency, Quantile};
use crate::load::rank::enough;

/// Longest that is told apart, µs.
const MOST: u64 = 3_600_000_000;
/// Digits: quantiles are within 0.1 %.
const DIGITS: u8 = 3;

/// Times, µs.
#[derive(Debug)]
pub(super) struct Gaps {
    /// `None`: these bounds make no histogram, which the tests rule out.
    counts: Option<Histogram<u64>>,
    n: u64,
    /// Requests that they are of. Gaps of the same request depend on each other, so that it takes as many requests for a
    /// quantile as it takes gaps that do not.
    pub(super) requests: u64,
    sum: u128,
    least: u64,
    most: u64,
}

impl Gaps {
    pub(super) fn new() -> Self {
        Self { counts: Histogram::new_with_max(MOST, DIGITS).ok(), n: 0, requests: 0, sum: 0, least: u64::MAX, most: 0 }
    }

    pub(super) fn push(&mut self, micros: u64) {
        if let Some(counts) = &mut self.counts {
            counts.saturating_record(micros);
        }
        self.n += 1;
        self.sum += u128::from(micros);
        self.least = self.least.min(micros);
        self.most = self.most.max(micros);
    }

    /// The quantile `q`, s.
    fn quantile(&self, q: f64) -> Option<f64> {
        let counts = self.counts.as_ref().filter(|_| self.n > 0)?;
        Some(counts.value_at_quantile(q).clamp(self.least, self.most) as f64 / 1e6)
    }

    /// With quantiles that have no interval: gaps of the same request are not independent.
    pub(super) fn latency(&self) -> Latency {
        let is_enough = |q: f64| enough(q, self.n.min(self.requests));
        let quantile = |q: f64| Some(Quantile { value: self.quantile(q)?, lo: None, hi: None, enough: is_enough(q) });
        let some = |value: f64| (self.n > 0).then_some(value / 1e6);
        Latency {
            n: self.n,
            mean: some(self.sum as f64 / self.n as f64),
            min: some(self.least as f64),
            max: some(self.most as f64),
            p50: quantile(0.5),
            p95: quantile(0.95),
            p99: quantile(0.99),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_a_thousandth_and_the_ends_exact() {
        let mut gaps = Gaps::new();
        // 0 to 9 999 000 µs, each 1 ms apart: the one of rank r is (r − 1) ms.
        for i in 0..10_000 {
            gaps.push(i * 7 % 10_000 * 1000);
        }
        gaps.requests = 368;
        let got = gaps.latency();
        assert_eq!((got.n, got.min, got.max, got.mean), (10_000, Some(0.0), Some(9.999), Some(4.9995)));
        for (quantile, expected) in [(got.p50, 4.999), (got.p95, 9.499), (got.p99, 9.899)] {
            let quantile = quantile.unwrap();
            assert!((quantile.value / expected - 1.0).abs() < 1e-3, "{quantile:?} {expected}");
            assert_eq!((quantile.lo, quantile.hi, quantile.enough), (None, None, true));
        }
        gaps.requests = 72;
        let enough = [got.p50, got.p95, got.p99].map(|quantile| quantile.unwrap().enough);
        let of = gaps.latency();
        assert_eq!(enough, [true; 3]);
        assert_eq!([of.p50, of.p95, of.p99].map(|quantile| quantile.unwrap().enough), [true, true, false]);
    }

    #[test]
    fn of_nothing_there_is_nothing_and_what_is_too_long_is_still_counted() {
        assert_eq!(Gaps::new().latency(), Latency::default());
        let mut gaps = Gaps::new();
        gaps.push(5_000_003);
        let got = gaps.latency();
        assert_eq!((got.n, got.p99.map(|p99| p99.value), got.max), (1, Some(5.000_003), Some(5.000_003)));
        let mut gaps = Gaps::new();
        gaps.push(MOST * 5);
        let got = gaps.latency();
        assert_eq!((got.n, got.max), (1, Some(18_000.0)));
        assert!(!got.p99.unwrap().enough);
    }
}
