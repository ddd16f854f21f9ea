//! Quantiles of a histogram's window, with the interval that certainly holds the sample quantile.
//!
//! The sample quantile q of n observations is the observation of rank r = ⌈q·n⌉. Its bucket (l, u] is
//! known exactly, so l and u bound it for certain; above the last edge the sum of all observations
//! still gives a hard upper bound. Where it fell inside is an estimate: from the sums of the window's
//! scrape intervals (the module `estimate`), or, where the source gives no sums, linear in rank, as
//! Prometheus' `histogram_quantile` does. Invariants: the value is inside the bounds and never falls
//! as q grows.

use super::estimate::{Place, estimate};
use crate::store::HistogramWindow;

/// A quantile of a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantile {
    /// Best estimate, inside `lo..=hi`.
    pub value: f64,
    /// The sample quantile is certainly above this (the edge below its bucket, or 0).
    pub lo: f64,
    /// It is certainly not above this; `None` when nothing bounds it.
    pub hi: Option<f64>,
    /// Whether n suffices to call this a P95 or P99 (95 %, two-sided): see [`enough`].
    pub enough: bool,
    /// Number of observations.
    pub n: u64,
}

/// Whether `n` observations suffice for a two-sided 95 % interval of quantile `q` from order
/// statistics, 2.5 % on each side: the largest observation lies above the true quantile with
/// probability 1 − qⁿ ≥ 0.975. That takes n = 6 for P50, 72 for P95 and 368 for P99.
pub const fn enough(q: f64, n: u64) -> bool {
    n >= least(q)
}

/// The fewest observations that are [`enough`] for quantile `q`.
pub const fn least(q: f64) -> u64 {
    if q >= 0.99 {
        368
    } else if q >= 0.95 {
        72
    } else {
        6
    }
}

/// The highest of P99, P95 and P50 that `n` observations allow ([`enough`]); `None` below 6.
pub fn highest_allowed(n: u64) -> Option<f64> {
    [0.99, 0.95, 0.5].into_iter().find(|&q| enough(q, n))
}

/// The quantile `q` (0 < q ≤ 1) of the window, or `None` when nothing was observed.
pub fn quantile(window: &HistogramWindow, q: f64) -> Option<Quantile> {
    if window.n == 0 {
        return None;
    }
    let rank = ((q * window.n as f64).ceil() as u64).clamp(1, window.n);
    let mut below = 0;
    let bucket = window.counts.iter().position(|&count| {
        below += count;
        below >= rank
    })?;
    let inside = window.counts[bucket];
    below -= inside;
    let lo = bucket.checked_sub(1).map_or(0.0, |i| window.edges[i]);
    let hi = match window.edges.get(bucket) {
        Some(&edge) => Some(edge),
        None => top_bound(window, rank, below, lo),
    };
    let place = Place { bucket, rank: rank - below, lo, hi };
    let share = place.rank as f64 / inside as f64;
    let linear = || hi.map_or(lo, |hi| lo + (hi - lo) * share);
    // What a server sums up, and its edges, may be such that the estimate comes to no number.
    let value = estimate(window, place).filter(|value| value.is_finite()).unwrap_or_else(linear);
    Some(Quantile { value, lo, hi, enough: enough(q, window.n), n: window.n })
}

/// Upper bound of the observation of rank `rank` above the last edge `lo`, from the sum of all:
/// the m = n − r + 1 largest are each at least as large, and the others are at least their lower edges.
fn top_bound(window: &HistogramWindow, rank: u64, below: u64, lo: f64) -> Option<f64> {
    let lower_edges = std::iter::once(0.0).chain(window.edges.iter().copied());
    let least: f64 = window.counts.iter().zip(lower_edges).take(window.edges.len()).map(|(&n, l)| n as f64 * l).sum();
    let rest = window.sum? - least - (rank - 1 - below) as f64 * lo;
    let m = window.n - rank + 1;
    let bound = rest / m as f64;
    // A sum that contradicts its buckets bounds nothing.
    (bound >= lo && bound.is_finite()).then_some(bound)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn window(edges: &[f64], values: &[f64]) -> HistogramWindow {
        let mut counts = vec![0; edges.len() + 1];
        for v in values {
            counts[edges.partition_point(|e| e < v)] += 1;
        }
        HistogramWindow {
            edges: edges.into(),
            counts,
            n: values.len() as u64,
            sum: Some(values.iter().sum()),
            ..HistogramWindow::default()
        }
    }

    #[test]
    fn no_traffic_has_no_quantile() {
        assert_eq!(quantile(&window(&[1.0], &[]), 0.99), None);
    }

    #[test]
    fn few_requests_are_not_called_a_p99() {
        let q = quantile(&window(&[1.0, 2.0], &[0.5; 367]), 0.99).unwrap();
        assert!(!q.enough);
        assert!(quantile(&window(&[1.0, 2.0], &[0.5; 368]), 0.99).unwrap().enough);
        assert!(!enough(0.95, 71) && enough(0.95, 72));
    }

    #[test]
    fn a_sweep_calls_the_same_numbers_enough() {
        for q in [0.5, 0.95, 0.99] {
            let first = (0..1000).find(|n| crate::load::rank::enough(q, *n));
            assert_eq!(first, Some(least(q)));
        }
    }

    #[test]
    fn above_the_last_edge_without_a_sum_nothing_bounds_it() {
        let mut w = window(&[1.0], &[5.0, 6.0]);
        w.sum = None;
        let q = quantile(&w, 0.99).unwrap();
        assert_eq!((q.value, q.lo, q.hi), (1.0, 1.0, None));
    }

    proptest! {
        #[test]
        fn the_sample_quantile_is_inside(
            values in prop::collection::vec(0.001f64..30.0, 1..400), q in 0.01f64..1.0,
        ) {
            let edges = [0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
            let got = quantile(&window(&edges, &values), q).unwrap();
            let mut sorted = values.clone();
            sorted.sort_by(f64::total_cmp);
            let rank = ((q * values.len() as f64).ceil() as usize).clamp(1, values.len());
            let truth = sorted[rank - 1];
            prop_assert!(got.lo <= truth, "{truth} {got:?}");
            prop_assert!(got.hi.is_none_or(|hi| truth <= hi * (1.0 + 1e-9)), "{truth} {got:?}");
            prop_assert!(got.value >= got.lo && got.hi.is_none_or(|hi| got.value <= hi));
        }

        #[test]
        fn higher_quantiles_are_not_smaller(values in prop::collection::vec(0.001f64..30.0, 1..200), a in 0.01f64..1.0, b in 0.01f64..1.0) {
            let w = window(&[0.1, 0.5, 1.0, 5.0, 10.0], &values);
            let (low, high) = (quantile(&w, a.min(b)).unwrap(), quantile(&w, a.max(b)).unwrap());
            prop_assert!(low.value <= high.value + 1e-9);
        }
    }
}
