//! A cumulative histogram over time, kept as the bucket counts of each scrape interval.
//!
//! Windows are sums of those intervals, so a quantile is always of a window and never of a lifetime.
//! A reset, a changed set of edges or a missed scrape leaves a gap; two different sets of edges are
//! never subtracted.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::model::{HistogramSample, Time};

use super::{Retention, Window, later_epoch};

/// One interval: what was observed after `from` and up to `to`.
#[derive(Clone, Copy, Debug)]
pub struct Interval<'a> {
    /// End of the interval before.
    pub from: Time,
    /// The scrape that closed this one.
    pub to: Time,
    /// Observations in each bucket, the last one above the last edge; `None` for a gap.
    pub counts: Option<&'a [u32]>,
    /// Sum of the observations, where the source gives it.
    pub sum: Option<f64>,
    /// How much of it was measured, ms: a minute may have a gap inside, and 0 is all a gap.
    pub measured_ms: u32,
}

impl<'a> Interval<'a> {
    /// An interval that was measured from end to end, without a sum.
    pub fn whole(from: Time, to: Time, counts: &'a [u32]) -> Self {
        let measured_ms = u32::try_from(to.since(from)).unwrap_or(u32::MAX);
        Self { from, to, counts: Some(counts), sum: None, measured_ms }
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    from: u32,
    to: u32,
    /// How much of it was measured, ms; 0: it is a gap.
    measured: u32,
    /// No finite number where the source gives none.
    sum: f64,
}

/// Intervals with their buckets, flat.
#[derive(Debug, Default)]
struct Track {
    entries: VecDeque<Entry>,
    counts: Vec<u32>,
}

impl Track {
    fn push(&mut self, entry: Entry, counts: impl Iterator<Item = u32>) {
        // Both grow by half instead of doubling: the stated bound counts on it.
        if self.entries.len() == self.entries.capacity() {
            let more = (self.entries.len() / 2).max(64);
            self.entries.reserve_exact(more);
            self.counts.reserve_exact(more * counts.size_hint().0);
        }
        self.entries.push_back(entry);
        self.counts.extend(counts);
    }

    /// Drops what is older than `oldest` and all above `most`, a sixteenth at a time: the buckets
    /// move down in memory, which is not done for every scrape.
    fn drop_before(&mut self, oldest: u32, most: usize, buckets: usize) {
        let slack = most / 16 + 1;
        if self.entries.len() < most + slack && self.entries.get(slack).is_none_or(|e| e.to >= oldest) {
            return;
        }
        let old = self.entries.partition_point(|e| e.to < oldest);
        let drop = old.max(self.entries.len().saturating_sub(most));
        self.entries.drain(..drop);
        self.counts.drain(..(drop * buckets).min(self.counts.len()));
    }

    /// Counts from an epoch that is `by` ms later; what lies before it goes.
    fn shift(&mut self, by: u32, buckets: usize) {
        let gone = self.entries.partition_point(|e| e.from < by);
        self.entries.drain(..gone);
        self.counts.drain(..(gone * buckets).min(self.counts.len()));
        for entry in &mut self.entries {
            (entry.from, entry.to) = (entry.from - by, entry.to - by);
        }
    }

    fn counts_of(&self, i: usize, buckets: usize) -> &[u32] {
        self.counts.get(i * buckets..(i + 1) * buckets).unwrap_or(&[])
    }
}

/// The most parts that a window is kept in.
pub const MOST_PARTS: usize = 64;

/// A window's intervals one by one, each with its buckets and its sum; where there are more than
/// [`MOST_PARTS`], so many neighbours are added up that they fit. Only intervals with observations are here.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parts {
    counts: Vec<u64>,
    sums: Vec<f64>,
    /// Number of the last one.
    last: Option<usize>,
}

impl Parts {
    fn clear(&mut self) {
        self.counts.clear();
        self.sums.clear();
        self.last = None;
    }

    /// Adds an interval to the last part, or to a new one if that has another number.
    fn add(&mut self, part: usize, counts: &[u32], sum: f64) {
        if self.last.replace(part) != Some(part) {
            self.counts.resize(self.counts.len() + counts.len(), 0);
            self.sums.push(0.0);
        }
        let last = self.counts.len() - counts.len().min(self.counts.len());
        for (total, &count) in self.counts[last..].iter_mut().zip(counts) {
            *total += u64::from(count);
        }
        if let Some(total) = self.sums.last_mut() {
            *total += sum;
        }
    }

    /// Buckets and sum of each part, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (&[u64], f64)> {
        let buckets = self.counts.len().checked_div(self.sums.len()).unwrap_or(0).max(1);
        self.counts.chunks_exact(buckets).zip(self.sums.iter().copied())
    }

    /// Whether nothing is known of the parts.
    pub const fn is_empty(&self) -> bool {
        self.sums.is_empty()
    }
}

/// The sum of a window's intervals. Reused as a buffer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HistogramWindow {
    /// Finite upper edges.
    pub edges: Arc<[f64]>,
    /// Observations in each bucket, the last one above the last edge.
    pub counts: Vec<u64>,
    /// Number of observations.
    pub n: u64,
    /// Sum of the observations, where every interval gives it.
    pub sum: Option<f64>,
    /// How much was measured, ms: the time between scrapes whose difference is known. The first interval is not cut, so that
    /// it may begin before the window.
    pub measured_ms: u64,
    /// The scrape that closed the newest interval; `None` where nothing was measured.
    pub last: Option<Time>,
    /// Whether a part of the window is missing.
    pub gaps: bool,
    /// What it was added up from; empty where an interval gives no sum.
    pub parts: Parts,
}

impl HistogramWindow {
    /// Empties it, for intervals on these edges.
    pub fn clear(&mut self, edges: &Arc<[f64]>) {
        self.edges = Arc::clone(edges);
        self.counts.clear();
        self.counts.resize(edges.len() + 1, 0);
        (self.n, self.sum, self.gaps) = (0, Some(0.0), false);
        (self.measured_ms, self.last) = (0, None);
        self.parts.clear();
    }

    /// The exact mean of the observations; `None` where there is none, or no sum of them.
    pub fn mean(&self) -> Option<f64> {
        self.sum.filter(|sum| self.n > 0 && sum.is_finite()).map(|sum| sum / self.n as f64)
    }

    /// Adds an interval. Neighbours with the same number of their `part` are kept as one; there should be no more than
    /// [`MOST_PARTS`] of them.
    pub fn add(&mut self, interval: &Interval<'_>, part: usize) {
        let Some(counts) = interval.counts else {
            self.gaps = true;
            return;
        };
        let before = self.n;
        for (total, &count) in self.counts.iter_mut().zip(counts) {
            *total += u64::from(count);
            self.n += u64::from(count);
        }
        self.measured_ms += u64::from(interval.measured_ms);
        self.last = Some(interval.to);
        self.sum = self.sum.zip(interval.sum).map(|(a, b)| a + b);
        match interval.sum.filter(|_| self.sum.is_some()) {
            Some(sum) if self.n > before => self.parts.add(part, counts, sum),
            Some(_) => {}
            None => self.parts.clear(),
        }
    }
}

/// The history of one histogram.
#[derive(Debug)]
pub struct HistogramSeries {
    epoch: Time,
    edges: Arc<[f64]>,
    before: Option<(u32, Vec<f64>, Option<f64>)>,
    /// Label sets of the scrape before.
    sets: u64,
    full: Track,
    minutes: Track,
}

impl HistogramSeries {
    pub(super) fn new(epoch: Time, edges: Arc<[f64]>) -> Self {
        Self { epoch, edges, before: None, sets: 0, full: Track::default(), minutes: Track::default() }
    }

    fn buckets(&self) -> usize {
        self.edges.len() + 1
    }

    /// Offset of the newest scrape, or of the end of what is missing.
    fn newest(&self) -> Option<u32> {
        let ends = [self.before.as_ref().map(|before| before.0), self.full.entries.back().map(|entry| entry.to)];
        ends.into_iter().flatten().max()
    }

    /// Takes in a scrape. Returns whether it was a reset (or new edges).
    pub(super) fn push(&mut self, at: Time, sample: &HistogramSample, keep: &Retention) -> bool {
        self.make_room(at);
        let Some(offset) = self.offset(at) else { return false };
        if self.newest().is_some_and(|newest| offset < newest) {
            // Older than what is there: intervals are in order.
            return false;
        }
        if !sample.is_sound() {
            self.miss(at, keep);
            return false;
        }
        if *sample.edges != *self.edges {
            // History on other edges cannot be shown on the same rows: start again.
            *self = Self::new(self.epoch, Arc::clone(&sample.edges));
        }
        if self.sets != sample.sets && self.before.is_some() {
            // One that went away or joined in between brings its lifetime with it.
            self.miss(at, keep);
        }
        self.sets = sample.sets;
        let before = self.before.replace((offset, sample.cumulative.clone(), sample.sum));
        let Some((from, cumulative, sum)) = before else { return false };
        if offset <= from {
            return false;
        }
        let reset = sample.cumulative.iter().zip(&cumulative).any(|(new, old)| new < old);
        if reset {
            self.append(Entry { from, to: offset, measured: 0, sum: f64::NAN }, &[], keep);
            return true;
        }
        let mut counts = Vec::with_capacity(self.buckets());
        let mut below = 0.0;
        for (new, old) in sample.cumulative.iter().zip(&cumulative) {
            let grown = new - old;
            counts.push((grown - below).max(0.0).round() as u32);
            below = grown;
        }
        let sum = sample.sum.zip(sum).map_or(f64::NAN, |(new, old)| new - old);
        self.append(Entry { from, to: offset, measured: offset - from, sum }, &counts, keep);
        false
    }

    /// Notes that a scrape failed: the time since the last one is a gap.
    pub(super) fn miss(&mut self, at: Time, keep: &Retention) {
        self.make_room(at);
        let Some(offset) = self.offset(at) else { return };
        let from = self.before.take().map(|b| b.0).or_else(|| self.full.entries.back().map(|e| e.to));
        if let Some(from) = from.filter(|&from| from < offset) {
            self.append(Entry { from, to: offset, measured: 0, sum: f64::NAN }, &[], keep);
        }
    }

    fn append(&mut self, entry: Entry, counts: &[u32], keep: &Retention) {
        let buckets = self.buckets();
        let padded = |i: usize| counts.get(i).copied().unwrap_or(0);
        self.full.drop_before(entry.to.saturating_sub(keep.full_ms), keep.max_scrapes, buckets);
        self.full.push(entry, (0..buckets).map(padded));
        if entry.measured == 0 {
            return;
        }
        let minute = entry.to / Retention::MINUTE_MS;
        let n = self.minutes.entries.len();
        match self.minutes.entries.back_mut() {
            Some(last) if last.to / Retention::MINUTE_MS == minute => {
                last.to = entry.to;
                last.measured = last.measured.saturating_add(entry.measured);
                last.sum += entry.sum;
                let at = (n - 1) * buckets;
                for (i, count) in self.minutes.counts.iter_mut().skip(at).enumerate() {
                    *count = count.saturating_add(padded(i));
                }
            }
            _ => {
                let oldest = entry.to.saturating_sub(keep.minutes * Retention::MINUTE_MS);
                self.minutes.drop_before(oldest, keep.minutes as usize, buckets);
                self.minutes.push(entry, (0..buckets).map(padded));
            }
        }
    }

    /// Moves the epoch before offsets no longer fit.
    fn make_room(&mut self, at: Time) {
        let Some(by) = later_epoch(self.epoch, at) else { return };
        let buckets = self.buckets();
        self.epoch = self.epoch + by;
        let Ok(by) = u32::try_from(by) else {
            (self.full, self.minutes, self.before) = (Track::default(), Track::default(), None);
            return;
        };
        self.full.shift(by, buckets);
        self.minutes.shift(by, buckets);
        self.before = self.before.take().filter(|b| b.0 >= by).map(|b| (b.0 - by, b.1, b.2));
    }

    fn offset(&self, at: Time) -> Option<u32> {
        at.0.checked_sub(self.epoch.0).map(|ms| u32::try_from(ms).unwrap_or(u32::MAX))
    }

    /// Finite upper edges of the buckets.
    pub const fn edges(&self) -> &Arc<[f64]> {
        &self.edges
    }

    /// When the first interval begins of which anything is kept.
    pub fn oldest(&self) -> Option<Time> {
        let first = [&self.minutes, &self.full].into_iter().filter_map(|track| track.entries.front());
        first.map(|e| self.epoch + u64::from(e.from)).min()
    }

    /// When the first interval begins that is kept by itself and not as a part of its minute.
    pub fn full_rate_from(&self) -> Option<Time> {
        self.full.entries.front().map(|e| self.epoch + u64::from(e.from))
    }

    /// The intervals whose scrape lies in the window, oldest first; minutes where the full rate is gone.
    pub fn intervals(&self, window: Window) -> impl Iterator<Item = Interval<'_>> {
        let start = self.offset(window.start);
        let end = self.offset(window.end);
        let full_from = self.full.entries.front().map_or(u32::MAX, |e| e.from);
        let minutes =
            self.track(&self.minutes, start, end).take_while(move |i| i.to <= self.epoch + u64::from(full_from));
        minutes.chain(self.track(&self.full, start, end))
    }

    fn track<'a>(
        &'a self,
        track: &'a Track,
        start: Option<u32>,
        end: Option<u32>,
    ) -> impl Iterator<Item = Interval<'a>> {
        let first = start.map_or(0, |s| track.entries.partition_point(|e| e.to <= s));
        let stop = end.map_or(0, |end| track.entries.partition_point(|e| e.to <= end)).max(first);
        track.entries.range(first..stop).enumerate().map(move |(k, entry)| Interval {
            from: self.epoch + u64::from(entry.from),
            to: self.epoch + u64::from(entry.to),
            counts: (entry.measured > 0).then(|| track.counts_of(first + k, self.buckets())),
            sum: entry.sum.is_finite().then_some(entry.sum),
            measured_ms: entry.measured,
        })
    }

    /// How much of the window was measured, ms, as [`HistogramWindow::measured_ms`].
    pub fn measured_ms(&self, window: Window) -> u64 {
        self.intervals(window).map(|interval| u64::from(interval.measured_ms)).sum()
    }

    /// How many observations lie in the window.
    pub fn observations(&self, window: Window) -> u64 {
        self.intervals(window).flat_map(|interval| interval.counts.unwrap_or_default()).map(|&n| u64::from(n)).sum()
    }

    /// Adds up the window's intervals into `out`, whose buffers are reused.
    pub fn window(&self, window: Window, out: &mut HistogramWindow) {
        out.clear(&self.edges);
        let per_part = self.intervals(window).count().div_ceil(MOST_PARTS).max(1);
        for (i, interval) in self.intervals(window).enumerate() {
            out.add(&interval, i / per_part);
        }
        out.sum = out.sum.filter(|_| out.last.is_some());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Metric, Subject};

    const EPOCH: Time = Time(50);
    const KEEP: Retention = Retention::HOUR;

    fn scrape(cumulative: &[f64], sum: f64) -> HistogramSample {
        HistogramSample {
            sets: 0,
            subject: Subject::Engine(0),
            metric: Metric::Ttft,
            edges: [0.1, 1.0].into(),
            cumulative: cumulative.to_vec(),
            sum: Some(sum),
        }
    }

    fn series(scrapes: &[(u64, [f64; 3], f64)]) -> HistogramSeries {
        let mut series = HistogramSeries::new(EPOCH, [0.1, 1.0].into());
        for (t, cumulative, sum) in scrapes {
            series.push(EPOCH + *t, &scrape(cumulative, *sum), &KEEP);
        }
        series
    }

    fn sum(series: &HistogramSeries, from: u64, to: u64) -> HistogramWindow {
        let mut out = HistogramWindow::default();
        series.window(Window { start: EPOCH + from, end: EPOCH + to }, &mut out);
        out
    }

    #[test]
    fn a_window_is_a_difference_and_not_a_lifetime() {
        let s = series(&[
            (0, [100.0, 200.0, 300.0], 90.0),
            (1000, [101.0, 203.0, 304.0], 92.0),
            (2000, [101.0, 203.0, 304.0], 92.0),
        ]);
        let w = sum(&s, 0, 2000);
        assert_eq!((w.counts.as_slice(), w.n, w.sum), (&[1, 2, 1][..], 4, Some(2.0)));
        assert_eq!((w.measured_ms, w.last), (2000, Some(EPOCH + 2000)));
        let quiet = sum(&s, 1000, 2000);
        assert_eq!((quiet.n, quiet.measured_ms), (0, 1000), "scraped, but no traffic");
        let before = sum(&s, 3000, 4000);
        assert_eq!((before.n, before.measured_ms, before.last), (0, 0, None), "not scraped");
    }

    #[test]
    fn a_window_is_kept_in_parts_that_add_up_to_it() {
        let mut s = series(&[(0, [0.0; 3], 0.0)]);
        for t in 1..=150 {
            // Nothing was observed in each third interval.
            let n = f64::from(t - t / 3);
            s.push(EPOCH + u64::from(t as u32) * 1000, &scrape(&[0.0, n, 2.0 * n], n), &KEEP);
        }
        let few = sum(&s, 0, 6_000);
        let parts: Vec<_> = few.parts.iter().map(|(counts, sum)| (counts.to_vec(), sum)).collect();
        assert_eq!(parts, vec![(vec![0, 1, 1], 1.0); 4]);
        let many = sum(&s, 0, 150_000);
        assert!((MOST_PARTS / 2..=MOST_PARTS).contains(&many.parts.iter().count()));
        for bucket in 0..3 {
            assert_eq!(many.parts.iter().map(|(counts, _)| counts[bucket]).sum::<u64>(), many.counts[bucket]);
        }
        assert_eq!(Some(many.parts.iter().map(|(_, sum)| sum).sum()), many.sum);
    }

    #[test]
    fn it_runs_for_longer_than_offsets_last() {
        let mut s = series(&[(0, [1.0, 2.0, 3.0], 1.0)]);
        let quarters = 120 * 4;
        for quarter in 1..=quarters {
            s.push(EPOCH + quarter * 21_600_000, &scrape(&[1.0, 2.0, 3.0], 1.0), &KEEP);
        }
        let end = quarters * 21_600_000;
        s.push(EPOCH + end + 1000, &scrape(&[1.0, 3.0, 4.0], 2.0), &KEEP);
        let w = sum(&s, end, end + 1000);
        assert_eq!((w.counts.as_slice(), w.measured_ms, w.last), (&[0, 1, 0][..], 1000, Some(EPOCH + end + 1000)));
    }

    #[test]
    fn a_reset_is_a_gap() {
        let mut s = series(&[(0, [1.0, 2.0, 3.0], 1.0), (1000, [2.0, 3.0, 4.0], 2.0)]);
        assert!(s.push(EPOCH + 2000, &scrape(&[0.0, 1.0, 1.0], 0.5), &KEEP));
        s.push(EPOCH + 3000, &scrape(&[0.0, 2.0, 2.0], 1.0), &KEEP);
        let w = sum(&s, 0, 3000);
        assert_eq!((w.n, w.gaps), (2, true));
    }

    #[test]
    fn a_missed_scrape_is_a_gap() {
        let mut s = series(&[(0, [1.0, 2.0, 3.0], 1.0)]);
        s.miss(EPOCH + 1000, &KEEP);
        s.push(EPOCH + 2000, &scrape(&[9.0, 9.0, 9.0], 1.0), &KEEP);
        s.push(EPOCH + 3000, &scrape(&[9.0, 9.0, 10.0], 1.0), &KEEP);
        let w = sum(&s, 0, 3000);
        assert_eq!((w.n, w.gaps), (1, true), "what came in during the gap is not dated");
        assert_eq!(w.measured_ms, 1000, "neither the gap nor the time up to the next scrape");
    }

    #[test]
    fn other_label_sets_are_a_gap() {
        let mut s = series(&[(0, [1.0, 2.0, 3.0], 1.0), (1000, [2.0, 3.0, 4.0], 2.0)]);
        let joined = HistogramSample { sets: 7, ..scrape(&[50.0, 60.0, 70.0], 90.0) };
        s.push(EPOCH + 2000, &joined, &KEEP);
        s.push(EPOCH + 3000, &HistogramSample { cumulative: vec![50.0, 61.0, 71.0], ..joined }, &KEEP);
        let w = sum(&s, 0, 3000);
        assert_eq!((w.n, w.gaps), (2, true), "one before, one after; not the lifetime of what joined");
    }

    #[test]
    fn other_edges_start_again() {
        let mut s = series(&[(0, [1.0, 2.0, 3.0], 1.0), (1000, [2.0, 3.0, 4.0], 2.0)]);
        let mut other = scrape(&[5.0, 5.0], 3.0);
        other.edges = [0.5].into();
        s.push(EPOCH + 2000, &other, &KEEP);
        assert_eq!(sum(&s, 0, 2000).n, 0);
        assert_eq!(s.edges.as_ref(), &[0.5]);
    }

    #[test]
    fn an_hour_at_full_rate_then_minutes() {
        let mut s = HistogramSeries::new(EPOCH, [0.1, 1.0].into());
        for t in 0..10_000u64 {
            s.push(EPOCH + t * 1000, &scrape(&[t as f64, t as f64, t as f64], t as f64), &KEEP);
        }
        assert!(s.full.entries.len() < 4100, "{}", s.full.entries.len());
        let all = sum(&s, 0, 10_000_000);
        // The minute that straddles the border of the full-rate history may count at most once.
        assert!((9_900..=9_999).contains(&all.n), "{}", all.n);
    }
}
