//! Quantiles of the columns as they were found last time: of sixty columns one or two change from frame to frame, and an
//! estimate is the dearest figure of a frame (a quarter of its time, measured with 8 buckets in use).
//!
//! It must not know time or the store. Invariant: what it gives is what [`quantile`](super::quantile) gives for the
//! same buckets, since both are functions of nothing else.

use std::sync::Arc;

use super::{Column, Quantile};
use crate::model::Time;

/// A column that was seen before.
#[derive(Clone, Copy, Debug)]
struct KnownColumn {
    from: Time,
    n: u64,
    sum: Option<f64>,
    quantiles: [Option<Quantile>; 2],
}

/// The columns of the last grid and their quantiles.
#[derive(Debug, Default)]
pub(super) struct QuantileMemo {
    edges: Arc<[f64]>,
    high_q: Option<f64>,
    columns: Vec<KnownColumn>,
    counts: Vec<u64>,
}

impl QuantileMemo {
    /// The P50 and the high quantile of a column with these buckets, where they were found last time.
    pub(super) fn find(&self, column: &Column, counts: &[u64], sum: Option<f64>) -> Option<[Option<Quantile>; 2]> {
        let at = self.columns.binary_search_by_key(&column.from, |known| known.from).ok()?;
        let known = &self.columns[at];
        let same = known.n == column.n && known.sum == sum && self.counts.chunks(counts.len()).nth(at)? == counts;
        same.then_some(known.quantiles)
    }

    /// Forgets everything unless it holds for these edges and this high quantile.
    pub(super) fn keep_for(&mut self, edges: &Arc<[f64]>, high_q: Option<f64>) {
        if self.high_q != high_q || !(Arc::ptr_eq(&self.edges, edges) || self.edges == *edges) {
            self.columns.clear();
        }
        (self.edges, self.high_q) = (Arc::clone(edges), high_q);
    }

    /// Remembers a grid's columns, whose quantiles are found.
    pub(super) fn remember(&mut self, columns: &[Column], counts: &[u64], sums: &[Option<f64>]) {
        self.columns.clear();
        self.columns.extend(columns.iter().zip(sums).map(|(column, &sum)| KnownColumn {
            from: column.from,
            n: column.n,
            sum,
            quantiles: [column.p50, column.high],
        }));
        self.counts.clear();
        self.counts.extend_from_slice(counts);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Grid;
    use super::super::tests::{ENGINE, store};
    use super::*;
    use crate::model::Metric;
    use crate::store::Window;

    proptest! {
        /// A grid that saw other moments and sizes before is the grid that saw none.
        #[test]
        fn what_was_seen_before_changes_no_quantile(
            adds in prop::collection::vec([0u32..40, 0u32..40, 0u32..40, 0u32..40, 0u32..40, 0u32..3], 2..30),
            views in prop::collection::vec((0u64..30_000, 1_000u64..60_000, 1u16..90), 1..8),
        ) {
            let mut totals = [0; 6];
            let scrapes: Vec<(u64, [u32; 6])> = (1_u64..).zip(adds).map(|(i, add)| {
                totals = std::array::from_fn(|b| totals[b] + add[b]);
                (i * 1000, totals)
            }).collect();
            let store = store(&scrapes);
            let mut used = Grid::default();
            for (end, span, cells) in views {
                let (data, window) = (store.read(), Window::last(Time(end), span));
                let mut fresh = Grid::default();
                fresh.fill(&data, ENGINE, Metric::Ttft, window, cells);
                used.fill(&data, ENGINE, Metric::Ttft, window, cells);
                prop_assert_eq!(used.columns(), fresh.columns());
            }
        }
    }
}
