//! The time × concurrency map: for each minute and each number of running requests, the P99 of the
//! requests that were observed there, by merging histograms and never by averaging quantiles.
//!
//! Columns are minutes of absolute time. Row k holds more than 2ᵏ⁻¹ and up to 2ᵏ running requests
//! (1, 2, 3–4 … 33–64), the last one more than 64; nothing running is no row. A stretch between two
//! scrapes belongs to the column it ends in, and to a row only if the number running was in that row at
//! both ends and at every reading between; if it moved, its observations are counted as mixed and
//! never spread. Cells are gated: P99 from 368 observations on, else P95 from 72 on, else only n
//! ([`enough`]). What a histogram counts when a request ends (E2E, TPOT) was shaped by the concurrency
//! of the whole request: up to one E2E before.
//! Where clients march in step, requests end in the seconds in which the number running
//! dips: those are mixed, so a row with many mixed beside it knows only what was observed while it stood still.
//!
//! Between measured P99s a value may be interpolated, bilinear in log latency over time and log2
//! concurrency ([`Map::between`]). That is no measurement, and a blend of P99s is not the P99 of the
//! union: it must be drawn apart from data. It must not know colours or characters.
//!
//! The map does not care who measured: it takes [`Piece`]s, a histogram's counts with the level
//! they were observed at. [`Map::follow`] makes them from what was scraped; a load sweep, which sets
//! its level itself, hands its own to [`Map::of`]. Invariant: every observation is in one cell, mixed
//! or unplaced, and in no two of them.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::model::{Metric, Subject, Time};
use crate::store::{Data, HistogramSeries, HistogramWindow, Interval, MOST_PARTS, Series, Window};

use super::latency::LogAxis;
use super::quantile::{Quantile, enough, quantile};

/// Length of a column, ms.
pub const COLUMN_MS: u64 = 60_000;
/// Number of rows: 1, 2, 4 … 64 and more than 64.
pub const ROWS: usize = 8;
/// Columns and rows that two measured cells may lie apart for a value between them to mean anything.
const REACH: (usize, usize) = (5, 3);

/// The row of a number of running requests; `None` when nothing runs.
pub fn row_of(running: f64) -> Option<usize> {
    (running > 0.0).then(|| running.log2().ceil().clamp(0.0, ROWS as f64 - 1.0) as usize)
}

/// Fewest and most running requests of a row; the last one has no upper end.
pub const fn row_span(row: usize) -> (u32, Option<u32>) {
    match row {
        0 => (1, Some(1)),
        _ if row + 1 < ROWS => ((1 << (row - 1)) + 1, Some(1 << row)),
        _ => ((1 << (ROWS - 2)) + 1, None),
    }
}

/// How many requests ran during a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// As many as this row holds, all the time.
    Row(usize),
    /// None, at every reading.
    Idle,
    /// It moved from one row to another.
    Moved,
    /// It was not read at both ends, or the piece is longer than a column.
    Unknown,
}

/// A piece of evidence: what was observed between two moments, and at which level.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    /// When, and how many observations in each bucket; a gap has none.
    pub interval: Interval<'a>,
    /// At which level.
    pub level: Level,
}

/// What is known about a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Cell {
    /// Nothing was observed there.
    #[default]
    Empty,
    /// Too few observations for a quantile: this many.
    Few(u64),
    /// Enough for a P95, not for a P99.
    P95(Quantile),
    /// Enough for a P99.
    P99(Quantile),
}

impl Cell {
    /// The quantile it shows.
    pub const fn quantile(&self) -> Option<&Quantile> {
        match self {
            Self::P95(quantile) | Self::P99(quantile) => Some(quantile),
            Self::Empty | Self::Few(_) => None,
        }
    }

    /// Observations in it.
    pub const fn n(&self) -> u64 {
        match self {
            Self::Empty => 0,
            Self::Few(n) => *n,
            Self::P95(quantile) | Self::P99(quantile) => quantile.n,
        }
    }
}

/// What is known about a column as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// No scrape covers it.
    #[default]
    NotScraped,
    /// It was, but what is left of it are minutes, in which levels are mixed.
    NotKept,
    /// Scraped.
    Scraped,
}

/// A minute.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Column {
    /// Number of the minute, counted from time 0.
    pub slot: u64,
    /// What is known about it.
    pub state: State,
    /// Its rows, lowest concurrency first.
    pub cells: [Cell; ROWS],
    /// Observations while the number running moved from row to row.
    pub mixed: u64,
    /// Observations at a level that was not read.
    pub unplaced: u64,
    /// Whether the engine restarted in it.
    pub restart: bool,
    /// Whether a scrape is missing.
    pub gap: bool,
    /// Whether nothing ran between two scrapes.
    pub idle: bool,
}

impl Column {
    /// Its start (not included) and its end (included).
    pub const fn window(&self) -> Window {
        let start = self.slot.saturating_mul(COLUMN_MS);
        Window { start: Time(start), end: Time(start.saturating_add(COLUMN_MS)) }
    }

    /// Whether a value may be carried across it: nothing in it broke the load off.
    const fn unbroken(&self) -> bool {
        matches!(self.state, State::Scraped) && !self.restart && !self.gap && !self.idle
    }
}

/// The slot that holds a moment: the end of a column belongs to it.
const fn slot_of(at: Time) -> u64 {
    at.0.saturating_sub(1) / COLUMN_MS
}

/// The `columns` minutes up to and including that of `end`.
pub const fn slots(end: Time, columns: u16) -> RangeInclusive<u64> {
    let last = slot_of(end);
    (last + 1).saturating_sub(columns as u64)..=last
}

/// What a map was made of: with another one nothing of it holds.
type Origin = (Subject, Metric, Option<Time>, Arc<[f64]>);

/// The map. Reused as a buffer: columns that are over are not worked out again.
#[derive(Debug, Default)]
pub struct Map {
    edges: Arc<[f64]>,
    columns: VecDeque<Column>,
    between: Vec<[Option<f64>; ROWS]>,
    origin: Option<Origin>,
    /// Newest scrape that is in it, and the moment it was made for.
    newest: Option<Time>,
    end: Time,
    /// The rows of the column that is being added up.
    rows: [HistogramWindow; ROWS],
}

impl Map {
    /// A map of these slots made of pieces in the order of time, whoever measured them.
    pub fn of<'a>(edges: &Arc<[f64]>, slots: RangeInclusive<u64>, pieces: impl Iterator<Item = Piece<'a>>) -> Self {
        let mut map = Self { edges: Arc::clone(edges), ..Self::default() };
        map.extend(slots, pieces);
        map.interpolate();
        map
    }

    /// Brings the map up to what `metric` of `subject` was in the `columns` minutes up to and including that of
    /// `end`, a whole second. Does nothing while no scrape up to then is new; makes only those columns anew that
    /// can have changed.
    pub fn follow(&mut self, data: &Data, subject: Subject, metric: Metric, end: Time, columns: u16) {
        let Some(series) = data.histogram(subject, metric).filter(|_| columns > 0) else {
            (self.edges, self.origin) = (Arc::default(), None);
            self.columns.clear();
            return;
        };
        let end = Time(end.0 - end.0 % 1000);
        let (first, last) = slots(end, columns).into_inner();
        let origin = (subject, metric, data.oldest(), Arc::clone(series.edges()));
        let newest = series.intervals(Window::last(end, COLUMN_MS)).last().map(|i| i.to);
        let same = self.origin.as_ref() == Some(&origin);
        let span = self.columns.front().map(|c| c.slot).zip(self.columns.back().map(|c| c.slot));
        if same && span == Some((first, last)) && newest == self.newest && end >= self.end {
            return;
        }
        let from = if same { self.keep(first, last) } else { self.start_again(series, first) };
        let levels = data.series(subject, Metric::RequestsRunning);
        let lost = lost(series, levels);
        let start = Time(from * COLUMN_MS).max(lost.map_or(Time(0), |lost| lost.end));
        let pieces = series
            .intervals(Window { start, end })
            .map(|interval| Piece { interval, level: levels.map_or(Level::Unknown, |l| level(l, &interval)) });
        self.extend(from..=last, pieces);
        self.mark(data, subject, lost);
        self.interpolate();
        (self.origin, self.newest, self.end) = (Some(origin), newest, end);
    }

    /// Drops the columns outside `first..=last` and those that may still grow; returns the first that is missing.
    fn keep(&mut self, first: u64, last: u64) -> u64 {
        let over = self.newest.map_or(0, slot_of).min(slot_of(self.end));
        while self.columns.back().is_some_and(|c| c.slot >= over.min(last)) {
            self.columns.pop_back();
        }
        while self.columns.front().is_some_and(|c| c.slot < first) {
            self.columns.pop_front();
        }
        if self.columns.front().is_some_and(|c| c.slot > first) {
            self.columns.clear();
        }
        self.columns.back().map_or(first, |c| c.slot + 1)
    }

    fn start_again(&mut self, series: &HistogramSeries, first: u64) -> u64 {
        self.edges = Arc::clone(series.edges());
        self.columns.clear();
        first
    }

    /// Adds the columns `slots`, which follow those there are, made of pieces in the order of time.
    fn extend<'a>(&mut self, slots: RangeInclusive<u64>, pieces: impl Iterator<Item = Piece<'a>>) {
        let mut pieces = pieces.skip_while(|p| slot_of(p.interval.to) < *slots.start()).peekable();
        for slot in slots.clone() {
            let mut column = Column { slot, ..Column::default() };
            self.rows.iter_mut().for_each(|row| row.clear(&self.edges));
            while let Some(piece) = pieces.next_if(|p| slot_of(p.interval.to) <= slot) {
                self.add(&mut column, &piece);
            }
            for (cell, row) in column.cells.iter_mut().zip(&self.rows) {
                *cell = gated(row);
            }
            self.columns.push_back(column);
        }
    }

    fn add(&mut self, column: &mut Column, piece: &Piece<'_>) {
        column.state = State::Scraped;
        let Some(counts) = piece.interval.counts else {
            column.gap = true;
            return;
        };
        let n: u64 = counts.iter().map(|&n| u64::from(n)).sum();
        match piece.level {
            Level::Row(row) if row < ROWS => self.rows[row].add(&piece.interval, part_of(piece.interval.to)),
            Level::Idle if n == 0 => column.idle = true,
            // What came and went between two idle readings did not run at none.
            Level::Idle | Level::Moved => column.mixed += n,
            Level::Row(_) | Level::Unknown => column.unplaced += n,
        }
    }

    /// Marks restarts, and columns of which the single scrapes are gone.
    fn mark(&mut self, data: &Data, subject: Subject, lost: Option<Window>) {
        for column in &mut self.columns {
            let window = column.window();
            column.restart = data.resets(window).any(|(_, who)| who == subject);
            if lost.is_some_and(|lost| window.end > lost.start && window.start < lost.end) {
                *column = Column { slot: column.slot, state: State::NotKept, ..Column::default() };
            }
        }
    }

    fn interpolate(&mut self) {
        self.between.clear();
        for c in 0..self.columns.len() {
            let row = |r| matches!(self.columns[c].cells[r], Cell::Empty).then(|| self.blend(c, r)).flatten();
            let cells = std::array::from_fn(row);
            self.between.push(cells);
        }
    }

    /// ln of the P99 that column `c` and row `r` measured, if it is one that can be a corner: inside the edges,
    /// beyond which the value is a guess, and not in the row without an upper end.
    fn corner(&self, c: usize, r: usize) -> Option<f64> {
        let Cell::P99(q) = self.columns.get(c)?.cells.get(r)? else { return None };
        let inside = q.lo > 0.0 && self.edges.last().is_some_and(|&last| q.lo < last);
        (inside && r + 1 < ROWS).then(|| q.value.ln())
    }

    /// The value between measured neighbours: those in the same minute, else those in the same row, else four
    /// corners around it.
    fn blend(&self, c: usize, r: usize) -> Option<f64> {
        if !self.columns[c].unbroken() {
            return None;
        }
        let rows = || pairs(r, REACH.1);
        let columns = || {
            let unbroken =
                |&(a, b): &(usize, usize)| b < self.columns.len() && self.columns.range(a..=b).all(Column::unbroken);
            pairs(c, REACH.0).filter(unbroken)
        };
        let upright = |c, (low, high)| Some(mix(self.corner(c, low)?, self.corner(c, high)?, part(r, low, high)));
        let along = |r, (a, b)| Some(mix(self.corner(a, r)?, self.corner(b, r)?, part(c, a, b)));
        let around = |(a, b)| rows().find_map(|pair| Some(mix(upright(a, pair)?, upright(b, pair)?, part(c, a, b))));
        let found = rows().find_map(|pair| upright(c, pair));
        let found = found.or_else(|| columns().find_map(|pair| along(r, pair)));
        found.or_else(|| columns().find_map(around)).map(f64::exp)
    }

    /// Finite upper edges of the buckets; empty when the histogram was never scraped.
    pub fn edges(&self) -> &[f64] {
        &self.edges
    }

    /// The minutes, oldest first.
    pub const fn columns(&self) -> &VecDeque<Column> {
        &self.columns
    }

    /// Seconds interpolated at a column and row, where nothing was observed and what lies around was.
    pub fn between(&self, column: usize, row: usize) -> Option<f64> {
        *self.between.get(column)?.get(row)?
    }

    /// The log axis that holds every quantile on the map: the scale of its colours.
    pub fn axis(&self) -> LogAxis {
        let values = self.columns.iter().flat_map(|c| &c.cells).filter_map(Cell::quantile).map(|q| q.value);
        let span = values
            .fold(None, |span: Option<(f64, f64)>, v| Some(span.map_or((v, v), |(lo, hi)| (lo.min(v), hi.max(v)))));
        span.map_or(LogAxis::QUIET, |(lo, hi)| LogAxis::around(lo, hi))
    }
}

/// The level during an interval, by what was read at both of its ends and between.
fn level(running: &Series, interval: &Interval<'_>) -> Level {
    let (from, to) = (interval.from, interval.to);
    let read = |at| {
        let latest = running.latest(at);
        latest.at == Some(at) && latest.reading.value().is_some()
    };
    if to.since(from) > COLUMN_MS || !read(from) || !read(to) {
        return Level::Unknown;
    }
    // A window leaves its start out.
    match running.extremes(Window { start: from - 1, end: to }).map(|(least, most)| (row_of(least), row_of(most))) {
        None => Level::Unknown,
        Some((None, None)) => Level::Idle,
        Some((Some(least), Some(most))) if least == most => Level::Row(least),
        Some(_) => Level::Moved,
    }
}

/// The time of which only minutes are left, of the histogram or of the number running.
fn lost(series: &HistogramSeries, levels: Option<&Series>) -> Option<Window> {
    let start = series.oldest()?;
    let end = series.full_rate_from().max(levels.and_then(Series::full_rate_from))?;
    (start < end).then_some(Window { start, end })
}

/// Which of a column's parts of equal length holds a moment: as many as a window is kept in.
const fn part_of(at: Time) -> usize {
    ((at.0.saturating_sub(1) % COLUMN_MS) * MOST_PARTS as u64 / COLUMN_MS) as usize
}

/// The highest quantile that a row's observations allow.
fn gated(window: &HistogramWindow) -> Cell {
    let at = |q| if enough(q, window.n) { quantile(window, q) } else { None };
    match (window.n, at(0.99), at(0.95)) {
        (0, ..) => Cell::Empty,
        (_, Some(p99), _) => Cell::P99(p99),
        (_, None, Some(p95)) => Cell::P95(p95),
        (n, None, None) => Cell::Few(n),
    }
}

/// Places below and above `at` that lie at most `reach` apart, nearest pairs first.
fn pairs(at: usize, reach: usize) -> impl Iterator<Item = (usize, usize)> {
    let apart = (2..=reach).flat_map(move |apart| (1..apart).map(move |below| (below, apart - below)));
    apart.filter_map(move |(below, above)| Some((at.checked_sub(below)?, at + above)))
}

/// How far `at` lies on the way from `a` to `b`.
fn part(at: usize, a: usize, b: usize) -> f64 {
    (at - a) as f64 / (b - a) as f64
}

/// The value a part of the way from `a` to `b`.
fn mix(a: f64, b: f64, part: f64) -> f64 {
    a + (b - a) * part
}

#[cfg(test)]
mod tests;
