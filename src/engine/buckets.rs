//! Buckets of one histogram over the ranks of an engine.
//!
//! Knows no metric's name. Invariant: what comes out has rising finite edges, cumulative counts that
//! never fall, and +Inf at the end; what cannot be brought into that shape is left out.

use crate::model::{HistogramSample, Metric, Subject};

/// One rank's histogram as its lines come.
#[derive(Debug, Default)]
pub struct Buckets {
    /// Upper edge and cumulative count.
    pub counts: Vec<(f64, f64)>,
    /// Sum of all observations, where exposed.
    pub sum: Option<f64>,
}

/// A histogram with rising edges; the last is +Inf.
#[derive(Debug)]
pub struct Merged {
    counts: Vec<(f64, f64)>,
    sum: Option<f64>,
}

impl Merged {
    /// Sorts the buckets; of one that comes twice the greater count stays. Nothing that is measured is below
    /// 0, so an edge at 0, which some engines have, says no more than the next one.
    pub fn of(mut buckets: Buckets) -> Self {
        buckets.counts.retain(|(edge, _)| *edge > 0.0);
        buckets.counts.sort_by(|a, b| a.0.total_cmp(&b.0));
        buckets.counts.dedup_by(|next, kept| {
            let same = next.0.total_cmp(&kept.0).is_eq();
            if same {
                kept.1 = kept.1.max(next.1);
            }
            same
        });
        Self { counts: buckets.counts, sum: buckets.sum }
    }

    /// Adds another rank. Cumulative counts add up exactly at the edges that both have; others are dropped.
    pub fn add(&mut self, other: Self) {
        let mut theirs = other.counts.into_iter().peekable();
        self.counts.retain_mut(|(edge, count)| {
            while theirs.next_if(|t| t.0 < *edge).is_some() {}
            let Some(same) = theirs.next_if(|t| t.0.total_cmp(edge).is_eq()) else { return false };
            *count += same.1;
            true
        });
        self.sum = self.sum.zip(other.sum).map(|(a, b)| a + b);
    }

    /// `sets` is the fingerprint of the label sets added up. `None` for what is no histogram: no +Inf, no finite edge, or counts that fall or are no numbers.
    pub fn sample(self, subject: Subject, metric: Metric, sets: u64) -> Option<HistogramSample> {
        let (last, finite) = self.counts.split_last()?;
        let sound = last.0 == f64::INFINITY
            && !finite.is_empty()
            && finite.iter().all(|c| c.0.is_finite())
            && self.counts.iter().all(|c| c.1.is_finite() && c.1 >= 0.0)
            && self.counts.is_sorted_by(|a, b| a.1 <= b.1);
        sound.then(|| HistogramSample {
            sets,
            subject,
            metric,
            edges: finite.iter().map(|c| c.0).collect(),
            cumulative: self.counts.iter().map(|c| c.1).collect(),
            sum: self.sum.filter(|s| s.is_finite()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edge_at_0_is_no_edge() {
        let counts = vec![(0.0, 2.0), (f64::INFINITY, 9.0), (0.5, 7.0)];
        let sample =
            Merged::of(Buckets { counts, sum: Some(1.0) }).sample(Subject::Engine(0), Metric::QueueTime, 1).unwrap();
        assert_eq!((&*sample.edges, &*sample.cumulative), (&[0.5][..], &[7.0, 9.0][..]));
        let only = vec![(0.0, 2.0), (f64::INFINITY, 9.0)];
        assert!(
            Merged::of(Buckets { counts: only, sum: None }).sample(Subject::Engine(0), Metric::QueueTime, 1).is_none()
        );
    }
}
