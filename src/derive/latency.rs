//! The latency heat map's numbers: columns of time, log rows of latency, and quantiles for each column.
//!
//! Columns are slots of absolute time that are never shorter than the scrape interval, so that the picture scrolls by
//! whole cells instead of shimmering, and a slot never alternates between one scrape and two for want of room. Buckets
//! are uneven, so a pixel gets the share of its bucket's count that its part of the log axis has (density = count ÷
//! log-width): a wide bucket does not look hot. It must not know colours or characters. Invariant: what was not scraped
//! is never shown as no traffic.

mod memo;
pub mod summary;

use std::sync::Arc;

use crate::model::{Metric, Subject, Time};
use crate::store::{Data, HistogramSeries, HistogramWindow, Interval, Window};

pub use super::axis::LogAxis;
use super::lives::{self, Lives};
use super::quantile::{Quantile, enough, highest_allowed, quantile};
use memo::QuantileMemo;

/// What is known about a slot of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// No scrape covers it.
    #[default]
    NotScraped,
    /// Newer than the last scrape; the next one is due.
    Pending,
    /// Scraped, and nothing was observed.
    NoTraffic,
    /// Something was observed.
    Counts,
}

/// A slot of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Column {
    /// Start of the slot, not included.
    pub from: Time,
    /// End of the slot, included.
    pub to: Time,
    /// What is known about it.
    pub state: State,
    /// Observations in the scrapes that fall into it.
    pub n: u64,
    /// How long those scrapes cover, ms: longer than the slot where one scrape covers several slots.
    pub covered_ms: u64,
    /// P50, where enough was observed.
    pub p50: Option<Quantile>,
    /// The quantile [`Grid::high_q`], where enough was observed.
    pub high: Option<Quantile>,
    /// Whether the engine restarted in it.
    pub restart: bool,
}

/// A histogram over time, cut into the cells of a plot. Reused as a buffer.
#[derive(Debug, Default)]
pub struct Grid {
    edges: Arc<[f64]>,
    columns: Vec<Column>,
    /// Buckets of each column, one after the other.
    counts: Vec<u64>,
    /// Sums of each column, where the source gives them.
    sums: Vec<Option<f64>>,
    cell_ms: u64,
    cells: u64,
    first_cell: u64,
    cells_per_column: u64,
    high_q: Option<f64>,
    visible: HistogramWindow,
    lives: Lives,
    scratch: HistogramWindow,
    memo: QuantileMemo,
}

/// A quantile with its name's number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Headline {
    /// 0.99, 0.95 or 0.5: the highest that n allows.
    pub q: f64,
    /// The quantile.
    pub quantile: Quantile,
}

/// A slot may be this much shorter than the mean scrape interval: scrapes are never exactly on time.
const JITTER: f64 = 0.9;
/// A scrape may be this many intervals late before its time counts as not scraped.
const LATE: f64 = 2.5;

impl Grid {
    /// Fills the grid with what `metric` of `subject` was in `window`, for a plot `cells` wide.
    pub fn fill(&mut self, data: &Data, subject: Subject, metric: Metric, window: Window, cells: u16) {
        self.lives = lives::window(data, subject, metric, window, &mut self.visible);
        self.edges = Arc::clone(&self.visible.edges);
        let series = data.histogram(subject, metric);
        let scrape_ms = series.and_then(|s| scrape_interval(s, window)).unwrap_or(0.0);
        self.lay_out(window, cells, scrape_ms);
        if let Some(series) = series {
            self.collect(series, window, scrape_ms);
        }
        for (at, who) in data.resets(window) {
            if who == subject
                && let Some(i) = self.slot_of(at)
            {
                self.columns[i].restart = true;
            }
        }
        self.find_quantiles();
    }

    /// Cuts time into slots of whole cells, aligned to time 0.
    fn lay_out(&mut self, window: Window, cells: u16, scrape_ms: f64) {
        self.cells = u64::from(cells);
        self.cell_ms = window.ms().div_ceil(self.cells.max(1)).max(1);
        self.cells_per_column = ((scrape_ms * JITTER / self.cell_ms as f64).ceil() as u64).max(1);
        let end_cell = window.end.0.div_ceil(self.cell_ms);
        self.first_cell = end_cell.saturating_sub(self.cells);
        self.columns.clear();
        self.counts.clear();
        self.sums.clear();
        if self.cells == 0 {
            return;
        }
        let slot_ms = self.column_ms();
        let slots = self.first_cell / self.cells_per_column..=end_cell.saturating_sub(1) / self.cells_per_column;
        self.columns.extend(slots.map(|slot| Column {
            from: Time(slot * slot_ms),
            to: Time(slot * slot_ms) + slot_ms,
            state: State::NotScraped,
            n: 0,
            covered_ms: 0,
            p50: None,
            high: None,
            restart: false,
        }));
        self.counts.resize(self.columns.len() * self.buckets(), 0);
        self.sums.resize(self.columns.len(), Some(0.0));
    }

    fn collect(&mut self, series: &HistogramSeries, window: Window, scrape_ms: f64) {
        let Some(first) = self.columns.first() else { return };
        let mut last = None;
        for interval in series.intervals(Window { start: first.from, end: window.end }) {
            last = interval.counts.is_some().then_some(interval.to);
            self.take(&interval);
        }
        let Some(last) = last.filter(|&at| window.end.since(at) as f64 <= scrape_ms * LATE) else { return };
        for column in self.columns.iter_mut().filter(|c| c.to > last && c.state == State::NotScraped) {
            column.state = State::Pending;
        }
    }

    /// Adds an interval to the slot it ends in; the slots before, whose middle it covers and which have no
    /// scrape of their own, show it too.
    fn take(&mut self, interval: &Interval<'_>) {
        let Some(counts) = interval.counts else { return };
        let Some(end) = self.slot_of(interval.to) else { return };
        self.add(end, interval, counts);
        for i in (0..end).rev() {
            let Column { from, to, state, .. } = self.columns[i];
            if from + to.since(from) / 2 <= interval.from || state != State::NotScraped {
                break;
            }
            self.add(i, interval, counts);
        }
    }

    fn add(&mut self, i: usize, interval: &Interval<'_>, counts: &[u32]) {
        let buckets = self.buckets();
        let mut n = 0;
        for (total, &count) in self.counts[i * buckets..].iter_mut().zip(counts) {
            *total += u64::from(count);
            n += u64::from(count);
        }
        self.sums[i] = self.sums[i].zip(interval.sum).map(|(a, b)| a + b);
        let column = &mut self.columns[i];
        column.n += n;
        column.covered_ms += interval.to.since(interval.from);
        column.state = if column.n > 0 { State::Counts } else { State::NoTraffic };
    }

    /// One high quantile for all columns (two would not make one line): the highest that at least half of
    /// those with traffic have enough observations for.
    fn find_quantiles(&mut self) {
        let busy = self.columns.iter().filter(|c| c.n > 0).count();
        let most = |q: f64| self.columns.iter().filter(|c| enough(q, c.n)).count() * 2 >= busy.max(1);
        self.high_q = [0.99, 0.95].into_iter().find(|&q| most(q));
        self.scratch.edges = Arc::clone(&self.edges);
        self.memo.keep_for(&self.edges, self.high_q);
        let columns = self.columns.iter_mut().zip(self.counts.chunks(self.edges.len() + 1)).zip(&self.sums);
        for ((column, counts), &sum) in columns.filter(|((column, _), _)| column.n > 0) {
            let known = self.memo.find(column, counts, sum);
            [column.p50, column.high] = known.unwrap_or_else(|| {
                counts.clone_into(&mut self.scratch.counts);
                (self.scratch.n, self.scratch.sum) = (column.n, sum);
                let at = |q| quantile(&self.scratch, q).filter(|q| q.enough);
                [at(0.5), self.high_q.and_then(at)]
            });
        }
        self.memo.remember(&self.columns, &self.counts, &self.sums);
    }

    fn buckets(&self) -> usize {
        self.edges.len() + 1
    }

    fn slot_of(&self, at: Time) -> Option<usize> {
        let first = self.columns.first()?;
        let ms = at.0.checked_sub(1)?.checked_sub(first.from.0)?;
        usize::try_from(ms / self.column_ms()).ok().filter(|&i| i < self.columns.len())
    }

    /// Length of a column's slot, ms.
    pub const fn column_ms(&self) -> u64 {
        self.cell_ms.saturating_mul(self.cells_per_column)
    }

    /// Finite upper edges of the buckets; empty when the histogram was never scraped.
    pub fn edges(&self) -> &[f64] {
        &self.edges
    }

    /// The slots of time, oldest first.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The column that the plot's cell `x` shows, counted from the left.
    pub fn column_at(&self, x: u16) -> Option<usize> {
        if u64::from(x) >= self.cells {
            return None;
        }
        let slot = (self.first_cell + u64::from(x)) / self.cells_per_column;
        let first = self.first_cell / self.cells_per_column;
        usize::try_from(slot - first).ok().filter(|&i| i < self.columns.len())
    }

    /// Number of a column's slot, counted from time 0.
    pub fn slot(&self, column: usize) -> u64 {
        self.columns.get(column).map_or(0, |c| c.from.0 / self.column_ms())
    }

    /// Buckets of a column: observations, the last one above the last edge.
    pub fn counts(&self, column: usize) -> &[u64] {
        self.counts.get(column * self.buckets()..(column + 1) * self.buckets()).unwrap_or(&[])
    }

    /// The high quantile that columns carry: 0.99, 0.95, or `None` when most have too few observations.
    pub const fn high_q(&self) -> Option<f64> {
        self.high_q
    }

    /// Whose requests [`Grid::visible`] is of.
    pub const fn lives(&self) -> Lives {
        self.lives
    }

    /// The whole visible window, or the server's newest life in it: n, gaps, and what quantiles are made of.
    pub const fn visible(&self) -> &HistogramWindow {
        &self.visible
    }

    /// The highest quantile of the whole window that may be called so.
    pub fn headline(&self) -> Option<Headline> {
        let q = highest_allowed(self.visible.n)?;
        Some(Headline { q, quantile: quantile(&self.visible, q)? })
    }

    /// P50 of the whole window.
    pub fn median(&self) -> Option<Quantile> {
        quantile(&self.visible, 0.5).filter(|q| q.enough)
    }

    /// The log axis that holds everything observed in the visible columns.
    pub fn axis(&self) -> LogAxis {
        let buckets = self.buckets();
        let busy = |i: &usize| self.counts.iter().skip(*i).step_by(buckets).any(|&n| n > 0);
        let used = (0..buckets).find(busy).zip((0..buckets).rev().find(busy));
        let Some((first, last)) = used.filter(|_| !self.edges.is_empty()) else { return LogAxis::QUIET };
        LogAxis::around(bucket_span(&self.edges, first).0, bucket_span(&self.edges, last).1)
    }

    /// Expected observations in each pixel: `rows` for each column, lowest first, scaled to a fully covered
    /// slot. Returns the largest.
    pub fn raster(&self, axis: LogAxis, rows: usize, out: &mut Vec<f32>) -> f32 {
        out.clear();
        out.resize(self.columns.len() * rows, 0.0);
        if rows == 0 {
            return 0.0;
        }
        for (i, pixels) in out.chunks_exact_mut(rows).enumerate() {
            let column = &self.columns[i];
            let scale = self.column_ms() as f64 / column.covered_ms.max(1) as f64;
            for (bucket, &count) in self.counts(i).iter().enumerate().filter(|(_, n)| **n > 0) {
                let (lo, hi) = bucket_span(&self.edges, bucket);
                spread(axis.place(lo) * rows as f64, axis.place(hi) * rows as f64, count as f64 * scale, pixels);
            }
        }
        out.iter().copied().fold(0.0, f32::max)
    }
}

/// A pixel of which a bucket covers less than this is not lit by it, nor by less than this share of a thin bucket.
const SLIVER: f64 = 0.02;
const THIN: f64 = 0.1;

/// Adds `count`, spread evenly over `from..to` in pixels, to each pixel by its share.
/// What lies beyond an end of the axis is drawn at that end.
pub(super) fn spread(from: f64, to: f64, count: f64, pixels: &mut [f32]) {
    if from >= pixels.len() as f64 || to <= 0.0 {
        let end = if to <= 0.0 { pixels.first_mut() } else { pixels.last_mut() };
        if let Some(pixel) = end {
            *pixel += count as f32;
        }
        return;
    }
    let density = count / (to - from).max(1e-9);
    let least = SLIVER.min((to - from) * THIN);
    let first = from.max(0.0).floor() as usize;
    for (i, pixel) in pixels.iter_mut().enumerate().skip(first).take_while(|(i, _)| (*i as f64) < to) {
        let overlap = to.min((i + 1) as f64) - from.max(i as f64);
        if overlap < least {
            continue;
        }
        *pixel += (density * overlap) as f32;
    }
}

/// Mean time between the scrapes in the window, ms, rounded to quarters of its power of ten: the width of a
/// column must not follow the jitter of the scrapes.
fn scrape_interval(series: &HistogramSeries, window: Window) -> Option<f64> {
    let good = series.intervals(window).filter(|i| i.counts.is_some());
    let (n, ms) = good.fold((0_u32, 0), |(n, ms), i| (n + 1, ms + i.to.since(i.from)));
    let mean = (n > 0 && ms > 0).then(|| ms as f64 / f64::from(n))?;
    let quarter = 10_f64.powf(mean.log10().floor()) / 4.0;
    Some((mean / quarter).round() * quarter)
}

/// How far beyond its outer edge an open bucket (below the first edge, above the last) is drawn.
const OPEN: f64 = 2.0;

/// What a bucket covers on the log axis. The lowest begins at 0 and the highest never ends: both are drawn
/// a stretch beyond their edge.
pub fn bucket_span(edges: &[f64], bucket: usize) -> (f64, f64) {
    let below = bucket.checked_sub(1).and_then(|i| edges.get(i)).copied();
    match (below, edges.get(bucket).copied()) {
        (Some(lo), Some(hi)) => (lo, hi),
        (None, Some(hi)) => (hi / OPEN, hi),
        (Some(lo), None) => (lo, lo * OPEN),
        (None, None) => (1.0, OPEN),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Batch, HistogramSample, SourceId, SourceState};
    use crate::store::{Retention, Store};
    use proptest::prelude::*;

    const EDGES: [f64; 5] = [0.1, 0.25, 0.5, 1.0, 2.5];
    pub(super) const ENGINE: Subject = Subject::Engine(0);

    /// A store scraped at these times with these totals per bucket.
    pub(super) fn store(scrapes: &[(u64, [u32; 6])]) -> Store {
        let store = Store::new(Retention::HOUR);
        for (at, totals) in scrapes {
            let mut batch = Batch::new(SourceId::Engine(0), Time(*at), 3500);
            let cumulative = totals.iter().scan(0, |sum, n| {
                *sum += n;
                Some(f64::from(*sum))
            });
            batch.histograms.push(HistogramSample {
                sets: 0,
                subject: ENGINE,
                metric: Metric::Ttft,
                edges: EDGES.into(),
                cumulative: cumulative.collect(),
                sum: None,
            });
            store.push(&batch);
        }
        store
    }

    fn grid(store: &Store, end: u64, span: u64, cells: u16) -> Grid {
        let mut grid = Grid::default();
        grid.fill(&store.read(), ENGINE, Metric::Ttft, Window::last(Time(end), span), cells);
        grid
    }

    fn states(grid: &Grid) -> Vec<State> {
        grid.columns().iter().map(|c| c.state).collect()
    }

    #[test]
    fn not_scraped_no_traffic_and_counts_differ() {
        let scrapes = [(103_000, [0; 6]), (104_000, [0, 3, 0, 0, 0, 0]), (105_000, [0, 3, 0, 0, 0, 0])];
        let grid = grid(&store(&scrapes), 106_000, 6_000, 6);
        assert_eq!(
            states(&grid),
            [State::NotScraped, State::NotScraped, State::NotScraped, State::Counts, State::NoTraffic, State::Pending]
        );
        assert_eq!((grid.columns()[3].n, grid.counts(3)), (3, &[0, 3, 0, 0, 0, 0][..]));
        assert_eq!(grid.visible().n, 3);
    }

    #[test]
    fn what_stays_away_is_not_scraped() {
        let grid = grid(&store(&[(100_000, [0; 6]), (101_000, [1; 6])]), 106_000, 6_000, 6);
        assert_eq!(states(&grid)[0], State::Counts);
        assert!(states(&grid)[1..].iter().all(|&s| s == State::NotScraped));
    }

    #[test]
    fn a_failed_scrape_is_not_no_traffic() {
        let store = store(&[(100_000, [0; 6]), (101_000, [1; 6])]);
        let mut failed = Batch::new(SourceId::Engine(0), Time(102_000), 3500);
        failed.state = Some(SourceState::Failed("refused".into()));
        store.push(&failed);
        assert_eq!(states(&grid(&store, 102_000, 2_000, 2)), [State::Counts, State::NotScraped]);
    }

    #[test]
    fn columns_are_not_narrower_than_a_scrape() {
        let scrapes: Vec<_> = (0..20).map(|i| (100_000 + u64::from(i) * 1000, [i, 0, 0, 0, 0, 0])).collect();
        let grid = grid(&store(&scrapes), 119_000, 15_000, 60);
        assert_eq!(grid.column_ms(), 1000);
        assert_eq!(grid.column_at(0), grid.column_at(3));
        assert_ne!(grid.column_at(3), grid.column_at(4));
        assert_eq!(grid.column_at(60), None);
        assert!(grid.columns().iter().all(|c| c.n == 1), "{:?}", grid.columns());
    }

    #[test]
    fn a_minute_shows_in_every_column_it_covers_and_counts_once() {
        let grid = grid(
            &store(&[(60_000, [0; 6]), (120_000, [60, 0, 0, 0, 0, 0]), (121_000, [61, 0, 0, 0, 0, 0])]),
            121_000,
            61_000,
            61,
        );
        assert!(grid.columns().iter().all(|c| c.state == State::Counts));
        assert_eq!(grid.visible().n, 61);
        // A minute of 60 is as bright as a second of 1.
        let mut pixels = Vec::new();
        grid.raster(LogAxis::new(0.04, 0.1), 1, &mut pixels);
        let per_ms = grid.column_ms() as f32 / 1000.0;
        assert!(pixels.iter().all(|&p| (p - per_ms).abs() < 0.01), "{pixels:?}");
    }

    #[test]
    fn a_restart_is_marked_where_it_was() {
        let grid = grid(
            &store(&[(100_000, [9; 6]), (101_000, [10; 6]), (102_000, [1; 6]), (103_000, [2; 6])]),
            103_000,
            3_000,
            3,
        );
        let marked: Vec<_> = grid.columns().iter().map(|c| c.restart).collect();
        assert_eq!(marked, [false, true, false]);
        assert_eq!(states(&grid), [State::Counts, State::NotScraped, State::Counts]);
    }

    #[test]
    fn one_high_quantile_for_all_columns_and_only_where_n_allows() {
        let scrapes =
            |n: u32| -> Vec<_> { (0..4).map(|i| (100_000 + u64::from(i) * 1000, [0, n * i, 0, 0, 0, 0])).collect() };
        let high = |n| {
            let grid = grid(&store(&scrapes(n)), 103_000, 3_000, 3);
            (grid.high_q(), grid.columns()[0].high.map(|q| (q.lo, q.hi)), grid.columns()[0].p50.is_some())
        };
        assert_eq!(high(368), (Some(0.99), Some((0.1, Some(0.25))), true));
        assert_eq!(high(100), (Some(0.95), Some((0.1, Some(0.25))), true));
        assert_eq!(high(10), (None, None, true));
        assert_eq!(high(5), (None, None, false));
    }

    #[test]
    fn the_headline_is_called_what_n_allows() {
        let of = |n| grid(&store(&[(100_000, [0; 6]), (101_000, [0, n, 0, 0, 0, 0])]), 101_000, 60_000, 60).headline();
        assert_eq!(of(368).map(|h| h.q), Some(0.99));
        assert_eq!(of(367).map(|h| h.q), Some(0.95));
        assert_eq!(of(71).map(|h| h.q), Some(0.5));
        assert_eq!(of(5), None);
        assert_eq!(of(0), None);
    }

    #[test]
    fn a_wide_bucket_is_not_hot() {
        // 10 in 0.1–0.25 and 10 in 1–2.5: same width on the log axis, same density; 0.25–0.5 is narrower.
        let grid = grid(&store(&[(100_000, [0; 6]), (101_000, [0, 10, 10, 0, 10, 0])]), 101_000, 1_000, 1);
        let mut pixels = Vec::new();
        grid.raster(LogAxis::new(0.1, 10.0), 200, &mut pixels);
        let at = |seconds: f64| pixels[(LogAxis::new(0.1, 10.0).place(seconds) * 200.0) as usize];
        assert!((at(0.15) - at(1.5)).abs() < 1e-4);
        let ratio = f64::from(at(0.35) / at(0.15));
        assert!((ratio - 2.5_f64.ln() / 2_f64.ln()).abs() < 1e-3, "{ratio}");
        assert!(at(0.7) < 1e-6);
        assert!((pixels.iter().sum::<f32>() - 30.0).abs() < 1e-2);
    }

    #[test]
    fn the_axis_holds_what_was_observed_and_the_open_buckets() {
        let axis = |totals| grid(&store(&[(100_000, [0; 6]), (101_000, totals)]), 101_000, 1_000, 1).axis();
        assert_eq!(axis([0; 6]), LogAxis::QUIET);
        let top = axis([0, 0, 0, 0, 0, 1]);
        assert!(top.hi() >= 2.5 * OPEN && top.lo() <= 2.5 && top.hi() / top.lo() >= 10.0, "{top:?}");
        let bottom = axis([1, 0, 0, 0, 0, 0]);
        assert!(bottom.lo() <= 0.04 && bottom.hi() >= 0.1, "{bottom:?}");
    }

    proptest! {
        #[test]
        fn the_picture_scrolls_and_does_not_shimmer(
            counts in prop::collection::vec(0u32..40, 30..40), jitter in 0u64..80, cells in 1u16..80, step in 1u64..4,
        ) {
            let mut total = 0;
            let scrapes: Vec<_> = counts.iter().enumerate().map(|(i, n)| {
                total += n;
                (100_000 + i as u64 * 1000 + jitter * (i as u64 % 3), [0, total, 0, 0, 0, 0])
            }).collect();
            let store = store(&scrapes);
            let before = grid(&store, 125_000, 15_000, cells);
            let after = grid(&store, 125_000 + step * 250, 15_000, cells);
            if before.column_ms() == after.column_ms() {
                let known = |c: &&Column| c.to.0 <= 125_000 && c.state != State::Pending;
                for old in before.columns().iter().filter(known) {
                    if let Some(new) = after.columns().iter().find(|c| c.from == old.from) {
                        prop_assert_eq!((new.n, new.state), (old.n, old.state));
                    }
                }
            }
        }

        #[test]
        fn any_size_and_time_is_total(end in 0u64..300_000, span in 0u64..200_000, cells in 0u16..300, rows in 0usize..50) {
            let grid = grid(&store(&[(100_000, [0; 6]), (101_000, [5; 6]), (102_000, [6; 6])]), end, span, cells);
            let mut pixels = Vec::new();
            grid.raster(grid.axis(), rows, &mut pixels);
            prop_assert!(pixels.iter().all(|p| p.is_finite() && *p >= 0.0));
            for x in 0..cells {
                prop_assert!(grid.column_at(x).is_none_or(|i| i < grid.columns().len()));
            }
        }
    }
}
