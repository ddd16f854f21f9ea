//! What requests really used of their context: means and a bounded tail of prompt plus output.
//!
//! It must not know the pool. Invariant: prompt and output come as two histograms, so nothing is said
//! of their sum that holds only for one pairing of the two.

use crate::derive::quantile::{highest_allowed, quantile};
use crate::model::{Reading, Why};
use crate::store::HistogramWindow;

/// Tokens (prompt and output) that requests of the window really used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UsedLength {
    /// Which quantile: the highest of 0.99, 0.95 and 0.5 that `n` allows.
    pub q: f64,
    /// Best estimate, tokens.
    pub tokens: f64,
    /// Certainly not less.
    pub lo: f64,
    /// Certainly not more, where anything bounds it.
    pub hi: Option<f64>,
    /// Finished requests it rests on.
    pub n: u64,
}

/// Mean of what finished requests used: a prompt, and this share of an output. `nothing`: why there may be
/// none.
fn mean(prompt: &HistogramWindow, output: &HistogramWindow, share: f64, nothing: Why) -> Reading {
    let length = prompt.mean().zip(output.mean()).map(|(prompt, output)| prompt + output * share);
    length.map_or(Reading::Missing(nothing), Reading::new)
}

/// Mean length of a finished request.
pub(super) fn mean_used(prompt: &HistogramWindow, output: &HistogramWindow, nothing: Why) -> Reading {
    mean(prompt, output, 1.0, nothing)
}

/// Mean length of a running request: its prompt and, on average, half of its output.
pub(super) fn mean_running(prompt: &HistogramWindow, output: &HistogramWindow, nothing: Why) -> Reading {
    mean(prompt, output, 0.5, nothing)
}

/// Quantile of prompt + output from their separate histograms.
///
/// Each histogram alone says nothing about which prompt went with which output, so the sum is bounded:
/// it is at least the quantile of the one plus the smallest of the other, and at most (1 − q) of the
/// requests can exceed the sum of the two quantiles at 1 − (1 − q)/2.
pub(super) fn used_length(prompt: &HistogramWindow, output: &HistogramWindow, most: Option<f64>) -> Option<UsedLength> {
    let n = prompt.n.min(output.n);
    let q = highest_allowed(n)?;
    let (p, o) = (quantile(prompt, q)?, quantile(output, q)?);
    let lo = (p.lo + smallest(output)).max(o.lo + smallest(prompt));
    let wide = 1.0 - (1.0 - q) / 2.0;
    let hi = quantile(prompt, wide)?.hi.zip(quantile(output, wide)?.hi).map(|(p, o)| p + o);
    // Bucket edges may lie above what the engine admits at all.
    let hi = [hi, most].into_iter().flatten().reduce(f64::min);
    let tokens = (p.value + o.value).min(hi.unwrap_or(f64::INFINITY)).max(lo);
    Some(UsedLength { q, tokens, lo, hi, n })
}

/// Lower edge of the lowest bucket that holds anything.
fn smallest(window: &HistogramWindow) -> f64 {
    let first = window.counts.iter().position(|&count| count > 0).unwrap_or(0);
    first.checked_sub(1).and_then(|below| window.edges.get(below)).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(edges: &[f64], values: &[f64]) -> HistogramWindow {
        let mut counts = vec![0; edges.len() + 1];
        for v in values {
            counts[edges.partition_point(|e| e < v)] += 1;
        }
        let (n, sum) = (values.len() as u64, Some(values.iter().sum()));
        HistogramWindow { edges: edges.into(), counts, n, sum, ..HistogramWindow::default() }
    }

    #[test]
    fn the_used_length_bounds_the_true_quantile_of_the_sum() {
        const EDGES: [f64; 9] = [10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0];
        for spread in 1..40_u32 {
            let prompt: Vec<_> = (0..500_u32).map(|i| f64::from(30 + i * spread % 1900)).collect();
            let output: Vec<_> = (0..500_u32).map(|i| f64::from(1 + (i * i * spread) % 400)).collect();
            let mut sums: Vec<_> = prompt.iter().zip(&output).map(|(p, o)| p + o).collect();
            sums.sort_by(f64::total_cmp);
            let truth = sums[494];
            let used = used_length(&lengths(&EDGES, &prompt), &lengths(&EDGES, &output), None).unwrap();
            assert!((used.q - 0.99).abs() < 1e-9);
            assert!(used.lo <= truth && truth <= used.hi.unwrap(), "{truth} {used:?}");
            assert!(used.lo <= used.tokens && used.tokens <= used.hi.unwrap());
        }
    }

    #[test]
    fn few_requests_get_a_lower_quantile_or_none() {
        let of = |n| used_length(&lengths(&[100.0], &vec![50.0; n]), &lengths(&[100.0], &vec![50.0; n]), Some(150.0));
        assert_eq!(of(5), None);
        assert_eq!(of(6).map(|u| (u.q, u.n)), Some((0.5, 6)));
        assert_eq!(of(72).map(|u| u.q), Some(0.95));
        let most = of(368).unwrap();
        assert_eq!((most.q, most.hi), (0.99, Some(150.0)), "not above the longest context");
    }

    #[test]
    fn means_are_of_finished_and_of_running_requests() {
        let (prompt, output) = (lengths(&[100.0], &[40.0, 60.0]), lengths(&[100.0], &[10.0, 30.0]));
        assert_eq!(mean_used(&prompt, &output, Why::NotYet), Reading::Value(70.0));
        assert_eq!(mean_running(&prompt, &output, Why::NotYet), Reading::Value(60.0));
        assert_eq!(mean_used(&lengths(&[1.0], &[]), &output, Why::Unsupported), Reading::Missing(Why::Unsupported));
    }
}
