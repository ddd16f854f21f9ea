//! Whether a histogram from outside is one. It must not know what is counted.

use super::HistogramSample;

impl HistogramSample {
    /// Whether it is a histogram of what cannot be negative: edges that rise, and a count for each bucket. What comes from
    /// a server or a file is held to it before anything is worked out from it.
    pub fn is_sound(&self) -> bool {
        let is_measure = |number: &f64| number.is_finite() && *number >= 0.0;
        self.edges.iter().all(is_measure)
            && self.edges.is_sorted_by(|a, b| a < b)
            && self.cumulative.len() == self.edges.len() + 1
            && self.cumulative.iter().all(is_measure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Metric, Subject};

    #[test]
    fn what_is_no_histogram_is_told() {
        let is_sound = |edges: &[f64], cumulative: &[f64]| {
            let (subject, metric, sum) = (Subject::Engine(0), Metric::Ttft, None);
            let (edges, cumulative) = (edges.into(), cumulative.to_vec());
            HistogramSample { subject, metric, edges, cumulative, sum, sets: 0 }.is_sound()
        };
        assert!(is_sound(&[], &[3.0]) && is_sound(&[0.0, 0.1], &[0.0, 1.0, 1.0]) && is_sound(&[1e308], &[0.0, 5.0]));
        for edges in [[-1.0, 1.0], [1.0, 1.0], [2.0, 1.0], [1.0, f64::INFINITY], [f64::NAN, 1.0]] {
            assert!(!is_sound(&edges, &[0.0, 1.0, 2.0]), "{edges:?}");
        }
        for cumulative in [&[0.0, 1.0][..], &[-1.0, 0.0, 1.0], &[0.0, f64::NAN, 1.0], &[0.0, 1.0, f64::INFINITY]] {
            assert!(!is_sound(&[1.0, 2.0], cumulative), "{cumulative:?}");
        }
    }
}
