//! The levels of a load sweep as panes ask for them: where its latencies lie, which quantile their number allows, and
//! what the time × concurrency map is made of.
//!
//! The figures themselves are the client's and are taken as they are. It must not know how one is shown. Invariants: a
//! P95 is never given for a P99; every measurement of a slice is in one piece, at a row only where the load stood still.

use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::load::buckets::edges;
pub use crate::load::level::High;
use crate::load::level::{Knee, Latency, Level, Load, Silicon, Slice};
use crate::model::{Metric, Time};
use crate::store::Interval;

use super::concurrency::{self, Map, Piece, row_of};
use super::latency::{LogAxis, bucket_span, spread};

/// The latency of a sweep that is shown for a chosen one: a client sees no queue and no prefill, only their end.
pub const fn metric(chosen: Metric) -> Metric {
    match chosen {
        Metric::Ttft | Metric::Itl | Metric::Tpot => chosen,
        _ => Metric::E2e,
    }
}

/// That latency of a level.
pub const fn latency(level: &Level, chosen: Metric) -> &Latency {
    match metric(chosen) {
        Metric::Ttft => &level.ttft_s,
        Metric::Itl => &level.itl_s,
        Metric::Tpot => &level.tpot_s,
        _ => &level.e2e_s,
    }
}

/// The same of a slice: number of a bucket and what fell into it.
fn counts(slice: &Slice, chosen: Metric) -> &[(u16, u32)] {
    match metric(chosen) {
        Metric::Ttft => &slice.ttft,
        Metric::Itl => &slice.itl,
        Metric::Tpot => &slice.tpot,
        _ => &slice.e2e,
    }
}

/// The GPU that was busiest, of several the one with the lowest index: on a host with more GPUs than the engine uses
/// a mean would say little of any.
pub fn busiest(level: &Level) -> Option<&Silicon> {
    let busy = |gpu: &Silicon| gpu.sm_active_pct.unwrap_or(-1.0);
    level.gpus.iter().reduce(|most, gpu| if busy(gpu) > busy(most) { gpu } else { most })
}

/// Whether the knee lies between two levels that were measured one after the other.
pub fn is_between(knee: &Knee, one: &Level, next: &Level) -> bool {
    let (Some(a), Some(b)) = (one.load.amount(), next.load.amount()) else { return false };
    knee.lo < knee.hi && a.min(b) <= knee.lo && a.max(b) >= knee.hi
}

/// How many measurements of each level fell into each bucket. Reused as a buffer.
#[derive(Debug, Default)]
pub struct Spread {
    /// Level after level.
    counts: Vec<u64>,
    buckets: usize,
}

impl Spread {
    /// Adds up the slices of each level.
    pub fn fill(&mut self, levels: &[Level], chosen: Metric) {
        self.buckets = edges().len() + 1;
        self.counts.clear();
        self.counts.resize(levels.len() * self.buckets, 0);
        for (all, level) in self.counts.chunks_exact_mut(self.buckets).zip(levels) {
            for &(bucket, n) in level.slices.iter().flat_map(|slice| counts(slice, chosen)) {
                // What has no bucket is above the last edge.
                all[usize::from(bucket).min(self.buckets - 1)] += u64::from(n);
            }
        }
    }

    /// The log axis that holds all of them.
    pub fn axis(&self) -> LogAxis {
        let busy = |i: &usize| self.counts.iter().skip(*i).step_by(self.buckets.max(1)).any(|&n| n > 0);
        let used = (0..self.buckets).find(busy).zip((0..self.buckets).rev().find(busy));
        let Some((first, last)) = used else { return LogAxis::QUIET };
        LogAxis::around(bucket_span(&edges(), first).0, bucket_span(&edges(), last).1)
    }

    /// The share of a level's measurements in each pixel, `rows` for each level, lowest first. Returns the largest.
    pub fn raster(&self, axis: LogAxis, rows: usize, out: &mut Vec<f32>) -> f32 {
        out.clear();
        if rows == 0 || self.buckets == 0 {
            return 0.0;
        }
        out.resize(self.counts.len() / self.buckets * rows, 0.0);
        let edges = edges();
        for (pixels, counts) in out.chunks_exact_mut(rows).zip(self.counts.chunks_exact(self.buckets)) {
            let all = counts.iter().sum::<u64>() as f64;
            for (bucket, &n) in counts.iter().enumerate().filter(|(_, n)| **n > 0) {
                let (lo, hi) = bucket_span(&edges, bucket);
                spread(axis.place(lo) * rows as f64, axis.place(hi) * rows as f64, n as f64 / all, pixels);
            }
        }
        out.iter().copied().fold(0.0, f32::max)
    }
}

/// A sweep's measurements as pieces of the time × concurrency map, in the order of time.
#[derive(Clone, Debug, Default)]
pub struct Pieces {
    all: Vec<(Time, Time, concurrency::Level)>,
    /// Of each piece, bucket by bucket.
    counts: Vec<u32>,
}

impl Pieces {
    /// The pieces of these levels; none where the latency was not measured.
    pub fn of(levels: &[Level], chosen: Metric) -> Self {
        let mut slices: Vec<_> =
            levels.iter().flat_map(|level| level.slices.iter().map(move |slice| (row(level), slice))).collect();
        slices.retain(|(_, slice)| slice.to_unix_ms > slice.from_unix_ms);
        slices.sort_by_key(|(_, slice)| (slice.to_unix_ms, slice.from_unix_ms));
        if slices.iter().all(|(_, slice)| counts(slice, chosen).is_empty()) {
            return Self::default();
        }
        let buckets = edges().len() + 1;
        let mut dense = vec![0; slices.len() * buckets];
        for (dense, (_, slice)) in dense.chunks_exact_mut(buckets).zip(&slices) {
            for &(bucket, n) in counts(slice, chosen) {
                let count = &mut dense[usize::from(bucket).min(buckets - 1)];
                *count = u32::saturating_add(*count, n);
            }
        }
        let piece = |(row, slice): &(_, &Slice)| (Time(slice.from_unix_ms), Time(slice.to_unix_ms), *row);
        Self { all: slices.iter().map(piece).collect(), counts: dense }
    }

    /// How many of them were over at a moment.
    pub fn until(&self, end: Time) -> usize {
        self.all.partition_point(|(_, to, _)| *to <= end)
    }

    /// The map of these minutes, made of the first `n` pieces.
    pub fn map(&self, slots: RangeInclusive<u64>, n: usize) -> Map {
        let edges: Arc<[f64]> = edges();
        let dense = self.counts.chunks_exact(edges.len() + 1);
        let pieces = self
            .all
            .iter()
            .zip(dense)
            .take(n)
            .map(|(&(from, to, level), counts)| Piece { interval: Interval::whole(from, to, counts), level });
        Map::of(&edges, slots, pieces)
    }
}

/// The row of a level: by its users, else by what was in flight if that stayed in one row.
fn row(level: &Level) -> concurrency::Level {
    if let Load::Users(users) = level.load {
        return row_of(f64::from(users)).map_or(concurrency::Level::Idle, concurrency::Level::Row);
    }
    let Some(mean) = level.client.in_flight else { return concurrency::Level::Unknown };
    match (row_of(mean), row_of(level.client.most_in_flight as f64)) {
        (Some(mean), Some(most)) if mean == most => concurrency::Level::Row(mean),
        _ => concurrency::Level::Moved,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::derive::concurrency::{COLUMN_MS, Cell};
    use crate::load::buckets::bucket;
    use crate::load::level::Client;

    fn slice(from: u64, to: u64, all: &[(f64, u32)]) -> Slice {
        let ttft = all.iter().map(|&(seconds, n)| (bucket(seconds), n)).collect();
        Slice { from_unix_ms: from, to_unix_ms: to, ttft, ..Slice::default() }
    }

    fn level(load: Load, slices: Vec<Slice>) -> Level {
        Level { load, slices, ..Level::default() }
    }

    #[test]
    fn every_level_weighs_the_same_in_its_column() {
        let levels = [
            level(Load::Users(1), vec![slice(0, 10, &[(0.1, 4)]), slice(10, 20, &[(0.1, 4)])]),
            level(Load::Users(64), vec![slice(20, 30, &[(1.0, 700), (10.0, 300)])]),
        ];
        let (mut all, mut pixels) = (Spread::default(), Vec::new());
        all.fill(&levels, Metric::Ttft);
        let axis = all.axis();
        assert!(axis.lo() <= 0.1 && axis.hi() >= 10.0, "{axis:?}");
        let most = all.raster(axis, 6, &mut pixels);
        let sums: Vec<f32> = pixels.chunks(6).map(|column| column.iter().sum()).collect();
        assert!(sums.iter().all(|sum| (0.9..1.001).contains(sum)) && (0.9..1.001).contains(&most), "{sums:?} {most}");
        all.fill(&levels, Metric::Itl);
        assert_eq!(all.axis(), LogAxis::QUIET, "nothing was measured of it");
    }

    #[test]
    fn the_map_is_filled_at_the_users_of_each_level() {
        let levels = [
            level(Load::Users(32), vec![slice(COLUMN_MS + 1, COLUMN_MS + 9_000, &[(2.0, 400)])]),
            level(Load::Users(4), vec![slice(10_000, 30_000, &[(0.2, 50)]), slice(30_000, COLUMN_MS, &[(0.2, 50)])]),
        ];
        let pieces = Pieces::of(&levels, Metric::Ttft);
        assert_eq!([9_999, 30_000, 99_000].map(|end| pieces.until(Time(end))), [0, 1, 3]);
        let map = pieces.map(0..=2, 3);
        let cell = |slot: usize, row: usize| map.columns()[slot].cells[row];
        assert!(
            matches!(cell(0, 2), Cell::P95(q) if q.n == 100 && (0.18..0.22).contains(&q.value)),
            "{:?}",
            cell(0, 2)
        );
        assert!(matches!(cell(1, 5), Cell::P99(q) if q.n == 400), "{:?}", cell(1, 5));
        assert_eq!(map.columns().iter().flat_map(|c| c.cells).map(|cell| cell.n()).sum::<u64>(), 500);
        assert_eq!(pieces.map(0..=2, 1).columns()[0].cells[2], Cell::Few(50), "what came later is not known yet");
        assert_eq!(Pieces::of(&levels, Metric::Tpot).until(Time(u64::MAX)), 0, "none was measured");
    }

    #[test]
    fn an_open_loop_has_a_row_only_while_it_stays_in_one() {
        let at = |in_flight, most_in_flight| {
            let client = Client { in_flight, most_in_flight, ..Client::default() };
            row(&Level { load: Load::RequestsPerS(3.0), client, ..Level::default() })
        };
        assert_eq!(at(Some(5.5), 8), concurrency::Level::Row(3));
        assert_eq!(at(Some(5.5), 9), concurrency::Level::Moved);
        assert_eq!(at(None, 9), concurrency::Level::Unknown);
    }

    #[test]
    fn the_knee_lies_between_neighbours_whichever_came_first() {
        let knee = Knee { at: 18.0, lo: 16.0, hi: 32.0, ..Knee::default() };
        let between = |a, b| is_between(&knee, &level(Load::Users(a), Vec::new()), &level(Load::Users(b), Vec::new()));
        assert!(between(16, 32) && between(32, 16) && between(8, 64));
        assert!(!between(8, 16) && !between(32, 64));
    }

    #[test]
    fn the_busiest_gpu_stands_for_the_level() {
        let gpu = |index, sm_active_pct| Silicon { index, sm_active_pct, ..Silicon::default() };
        let mut level = Level { gpus: vec![gpu(0, None), gpu(1, Some(3.0)), gpu(2, Some(93.0))], ..Level::default() };
        assert_eq!(busiest(&level).map(|gpu| gpu.index), Some(2));
        level.gpus.truncate(1);
        assert_eq!(busiest(&level).map(|gpu| gpu.index), Some(0), "none was read");
    }
}
