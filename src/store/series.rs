//! One metric of one subject over time: an hour of points, a day of minutes, and the gaps.
//!
//! A point stands for the interval that ends at its time. A counter is turned into its rate here:
//! the difference of two readings over the time that passed between them, never over a nominal
//! period; a reset or a missed reading leaves a gap and takes a new baseline.

mod measured;
mod peak;
mod point;
mod share;
mod total;

use std::collections::VecDeque;

use crate::model::{Batch, Kind, Metric, Reading, SourceId, Time, Why, plausible};

use point::{Point, decode, encode};

use super::minutes::{Minute, Minutes};
use super::{Retention, Window, grow, later_epoch};

/// What a column of a plot shows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bin {
    min: f32,
    max: f32,
    sum: f32,
    weight: f32,
}

impl Bin {
    /// Smallest value, or `None` where nothing was measured.
    pub fn min(&self) -> Option<f32> {
        (self.weight > 0.0).then_some(self.min)
    }
    /// Largest value, or `None` where nothing was measured.
    pub fn max(&self) -> Option<f32> {
        (self.weight > 0.0).then_some(self.max)
    }
    /// Mean over the measured part of the column, or `None` where nothing was measured.
    pub fn mean(&self) -> Option<f32> {
        (self.weight > 0.0).then(|| self.sum / self.weight)
    }

    fn add(&mut self, min: f32, max: f32, mean: f32, weight: f32) {
        if self.weight > 0.0 {
            self.min = self.min.min(min);
            self.max = self.max.max(max);
        } else {
            (self.min, self.max) = (min, max);
        }
        self.sum += mean * weight;
        self.weight += weight;
    }
}

/// A reading with the time it was taken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timed {
    /// When it was taken; `None` when there never was one.
    pub at: Option<Time>,
    /// The reading, stale when it is older than it may be.
    pub reading: Reading,
}

/// What a push did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// Kept.
    Kept,
    /// Kept as a new baseline: the counter went down, its source restarted.
    Reset,
    /// Dropped: older than what is already there.
    OutOfOrder,
}

/// The history of one metric of one subject.
#[derive(Debug)]
pub struct Series {
    metric: Metric,
    epoch: Time,
    points: VecDeque<Point>,
    minutes: Minutes,
    /// A counter's last total.
    total: Option<f64>,
    /// The newest reading in full precision (a counter's is its rate).
    newest: Option<(Time, Reading)>,
    valid_ms: u32,
    /// Who wrote last.
    pub(super) by: Option<SourceId>,
}

impl Series {
    /// An empty series whose times count from `epoch`.
    pub(super) fn new(metric: Metric, epoch: Time) -> Self {
        Self {
            metric,
            epoch,
            points: VecDeque::new(),
            minutes: Minutes::default(),
            total: None,
            newest: None,
            valid_ms: 0,
            by: None,
        }
    }

    /// Takes in a reading; a counter's is its running total.
    pub(super) fn push(&mut self, at: Time, reading: Reading, valid_ms: u32, keep: &Retention) -> Pushed {
        self.make_room(at);
        let Some(offset) = self.offset(at) else { return Pushed::OutOfOrder };
        if self.points.back().is_some_and(|last| offset < last.at) {
            return Pushed::OutOfOrder;
        }
        self.valid_ms = valid_ms;
        let (reading, pushed) = match self.metric.kind() {
            Kind::Counter => self.rate(offset, reading),
            Kind::Gauge | Kind::Histogram => (reading, Pushed::Kept),
        };
        let value = encode(reading);
        if reading.value().is_some() {
            self.roll_up(offset, value, keep);
        }
        self.newest = Some((at, reading));
        self.append(Point { at: offset, value }, keep);
        pushed
    }

    /// Notes that its source could not be read: a gap, unless the value never changes.
    pub(super) fn miss(&mut self, at: Time, keep: &Retention) {
        if self.valid_ms != Batch::FOREVER {
            self.push(at, Reading::Missing(Why::Failed), self.valid_ms, keep);
        }
    }

    /// Forgets a counter's last total: the next reading starts anew.
    pub(super) const fn break_off(&mut self) {
        self.total = None;
    }

    /// The rate since the reading before, and whether the counter was reset.
    fn rate(&mut self, offset: u32, reading: Reading) -> (Reading, Pushed) {
        let before = self.total;
        self.total = reading.value();
        let Reading::Value(total) = reading else { return (reading, Pushed::Kept) };
        let (Some(before), Some(last)) = (before, self.points.back()) else {
            return (Reading::Missing(Why::NotYet), Pushed::Kept);
        };
        if total < before {
            return (Reading::Missing(Why::NotYet), Pushed::Reset);
        }
        if offset == last.at {
            // No time passed: nothing to divide by. Wait for the next reading from here.
            return (Reading::Missing(Why::NotYet), Pushed::Kept);
        }
        let rate = Reading::new((total - before) * 1000.0 / f64::from(offset - last.at));
        (plausible::judge_rate(self.metric, rate), Pushed::Kept)
    }

    fn append(&mut self, point: Point, keep: &Retention) {
        let oldest = point.at.saturating_sub(keep.full_ms);
        while self.points.front().is_some_and(|p| p.at < oldest) || self.points.len() >= keep.max_points {
            self.points.pop_front();
        }
        grow(&mut self.points);
        self.points.push_back(point);
    }

    fn roll_up(&mut self, offset: u32, value: f32, keep: &Retention) {
        let weight = match (self.metric.kind(), self.points.back()) {
            (Kind::Counter, Some(last)) => (offset - last.at) as f32,
            _ => 1.0,
        };
        self.minutes.add(offset, value, weight, keep);
    }

    /// Moves the epoch before offsets no longer fit.
    fn make_room(&mut self, at: Time) {
        let Some(by) = later_epoch(self.epoch, at) else { return };
        self.epoch = self.epoch + by;
        let Ok(by) = u32::try_from(by) else {
            // A clock that was set, or a recording with a hole of months: nothing of before is kept so long.
            self.points.clear();
            self.minutes = Minutes::default();
            return;
        };
        self.points.retain(|p| p.at >= by);
        self.points.iter_mut().for_each(|p| p.at -= by);
        self.minutes.shift(by);
    }

    fn offset(&self, at: Time) -> Option<u32> {
        at.0.checked_sub(self.epoch.0).map(|ms| u32::try_from(ms).unwrap_or(u32::MAX))
    }

    /// Offsets of a window's ends, in order; `None` when it ends before the epoch.
    fn offsets(&self, window: Window) -> Option<(u32, u32)> {
        let end = self.offset(window.end)?;
        Some((self.offset(window.start).unwrap_or(0).min(end), end))
    }

    /// Index of the first point later than `offset`.
    fn after(&self, offset: u32) -> usize {
        self.points.partition_point(|p| p.at <= offset)
    }

    /// Minutes that left the full-rate history whole.
    fn old_minutes(&self) -> impl Iterator<Item = &Minute> {
        let full_from = self.points.front().map_or(u32::MAX, |p| p.at);
        self.minutes.before(full_from)
    }

    /// What is left of a moment before the full-rate history: the mean of its minute.
    fn rolled_up(&self, offset: u32) -> Option<Timed> {
        let minute = self.old_minutes().find(|m| m.holds(offset))?;
        let at = Some(self.epoch + u64::from(minute.end().min(offset)));
        // A set of bits has no mean.
        let bits = self.metric == Metric::ThrottleReasons;
        let reading = if bits { Reading::Missing(Why::Stale) } else { Reading::new(f64::from(minute.mean())) };
        Some(Timed { at, reading })
    }

    /// The newest reading taken at or before `at`, of its minute where no more is kept; stale when it is
    /// older than it may be.
    pub fn latest(&self, at: Time) -> Timed {
        let never = Timed { at: None, reading: Reading::Missing(Why::NotYet) };
        let Some(offset) = self.offset(at) else { return never };
        let (taken, reading) = match self.newest {
            Some((taken, reading)) if taken <= at => (taken, reading),
            _ => {
                let Some(point) = self.after(offset).checked_sub(1).and_then(|i| self.points.get(i)) else {
                    return self.rolled_up(offset).unwrap_or(never);
                };
                (self.epoch + u64::from(point.at), decode(point.value))
            }
        };
        let fresh = self.valid_ms == Batch::FOREVER || at.since(taken) <= u64::from(self.valid_ms);
        let reading =
            if fresh || reading.why() == Some(Why::Unsupported) { reading } else { Reading::Missing(Why::Stale) };
        Timed { at: Some(taken), reading }
    }

    /// The mean of a gauge, or the rate of a counter over the intervals that end in the window
    /// (its first interval may begin before it: the difference of two readings is not cut). Where the
    /// full rate is gone, the minutes that end in the window stand in.
    pub fn mean(&self, window: Window) -> Reading {
        let Some((start, end)) = self.offsets(window) else { return Reading::Missing(Why::NotYet) };
        let (first, last) = (self.after(start), self.after(end));
        let (mut sum, mut weight, mut why) = (0.0_f64, 0.0_f64, None);
        for minute in self.old_minutes().filter(|m| m.ends_in(start, end)) {
            sum += f64::from(minute.sum);
            weight += f64::from(minute.weight);
        }
        for i in first..last {
            let point = self.points[i];
            match decode(point.value) {
                Reading::Missing(reason) => why = Some(reason),
                Reading::Value(value) => {
                    let w = match self.metric.kind() {
                        Kind::Counter => f64::from(point.at - self.points[i.saturating_sub(1)].at),
                        Kind::Gauge | Kind::Histogram => 1.0,
                    };
                    sum += value * w;
                    weight += w;
                }
            }
        }
        if weight > 0.0 {
            return Reading::new(sum / weight);
        }
        if let Some(why) = why {
            return Reading::Missing(why);
        }
        // Nothing was read in the window: what was never read is not yet, what was is stale;
        // a value that never changes still holds.
        let latest = self.latest(window.end);
        if self.metric.kind() == Kind::Gauge {
            return latest.reading;
        }
        match self.rolled_up(end).filter(|_| self.after(end) == 0) {
            Some(minute) => minute.reading,
            None => Reading::Missing(latest.at.map_or(Why::NotYet, |_| Why::Stale)),
        }
    }

    /// Time of the oldest point that is kept by itself and not as a part of its minute.
    pub fn full_rate_from(&self) -> Option<Time> {
        self.points.front().map(|p| self.epoch + u64::from(p.at))
    }

    /// When the newest value at or before `at` was read, among those that are kept one by one.
    pub fn last_value(&self, at: Time) -> Option<Time> {
        let kept = self.points.range(..self.after(self.offset(at)?));
        let newest = kept.rev().find(|point| decode(point.value).value().is_some());
        newest.map(|point| self.epoch + u64::from(point.at))
    }

    /// Smallest and largest value in the window.
    pub fn extremes(&self, window: Window) -> Option<(f64, f64)> {
        let (start, end) = self.offsets(window)?;
        let minutes = self.old_minutes().filter(|m| m.ends_in(start, end));
        let minutes = minutes.map(|m| (f64::from(m.min), f64::from(m.max)));
        let points = self.points.range(self.after(start)..self.after(end));
        let points = points.filter_map(|p| decode(p.value).value().map(|v| (v, v)));
        minutes.chain(points).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    }

    /// Cuts the window into `bins.len()` equal columns and says what each shows. A point fills the
    /// time since the point before it, but no more than the time it stays valid; what is missing
    /// stays empty. Times before the full-rate history come from the minutes.
    pub fn fill(&self, window: Window, bins: &mut [Bin]) {
        bins.fill(Bin::default());
        let span = window.ms();
        if bins.is_empty() || span == 0 {
            return;
        }
        let Some((_, end)) = self.offsets(window) else { return };
        // Offsets relative to the window's start may be negative: the window can begin before the epoch.
        let ms = |time: Time| i64::try_from(time.0).unwrap_or(i64::MAX);
        let origin = ms(window.start) - ms(self.epoch);
        let painter = Painter { origin, ms_per_bin: span as f64 / bins.len() as f64, end: i64::from(end) };
        for minute in self.old_minutes() {
            let (from, to) = (i64::from(minute.end() - Retention::MINUTE_MS), i64::from(minute.end()));
            painter.paint(from, to, (minute.min, minute.max, minute.mean()), bins);
        }
        let mut i = self.after(u32::try_from(origin.max(0)).unwrap_or(u32::MAX));
        let mut before = i.checked_sub(1).map(|p| self.points[p].at);
        while let Some(point) = self.points.get(i).filter(|p| before.is_none_or(|b| b <= end) || p.at <= end) {
            if let Reading::Value(value) = decode(point.value) {
                let value = value as f32;
                let reach = before.map_or(0, |b| point.at - b).min(self.hold_ms());
                painter.paint(i64::from(point.at) - i64::from(reach), i64::from(point.at), (value, value, value), bins);
            }
            before = Some(point.at);
            i += 1;
        }
    }

    /// How far back a point may speak for: a little more than its period, at most its validity.
    fn hold_ms(&self) -> u32 {
        self.valid_ms.min(60_000)
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.points.len()
    }
}

/// Spreads an interval over the columns of a window.
struct Painter {
    origin: i64,
    ms_per_bin: f64,
    end: i64,
}

impl Painter {
    /// Adds the value (min, max, mean) of `from..to` (offsets from the epoch) to each column by its share.
    fn paint(&self, from: i64, to: i64, (min, max, mean): (f32, f32, f32), bins: &mut [Bin]) {
        let to = to.min(self.end);
        let place = |offset: i64| offset.saturating_sub(self.origin) as f64 / self.ms_per_bin;
        let (left, right) = (place(from).max(0.0), place(to));
        if right <= 0.0 || right < left {
            return;
        }
        let last = bins.len() - 1;
        // A point without extent still shows in its column (which it ends).
        let (first, stop) = ((left.floor() as usize).min(last), ((right.ceil() as usize).max(1) - 1).min(last));
        for (i, bin) in bins.iter_mut().enumerate().take(stop + 1).skip(first.min(stop)) {
            let overlap = (right.min((i + 1) as f64) - left.max(i as f64)).max(1e-3);
            bin.add(min, max, mean, overlap as f32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const EPOCH: Time = Time(1_000_000);
    const KEEP: Retention = Retention::HOUR;

    fn at(ms: u64) -> Time {
        EPOCH + ms
    }

    fn gauge(points: &[(u64, f64)]) -> Series {
        let mut series = Series::new(Metric::SmActive, EPOCH);
        for &(t, v) in points {
            series.push(at(t), Reading::new(v), 1500, &KEEP);
        }
        series
    }

    fn counter(points: &[(u64, Reading)]) -> Series {
        let mut series = Series::new(Metric::GenerationTokens, EPOCH);
        for &(t, v) in points {
            series.push(at(t), v, 3500, &KEEP);
        }
        series
    }

    #[test]
    fn the_last_value_is_older_than_failures_after_it() {
        let mut series = gauge(&[(0, 50.0), (1_000, 60.0)]);
        for ms in [2_000, 3_000] {
            series.push(at(ms), Reading::Missing(Why::Failed), 5_000, &KEEP);
        }
        assert_eq!(series.latest(at(3_500)).at, Some(at(3_000)), "of the last attempt");
        assert_eq!([500, 3_500].map(|ms| series.last_value(at(ms))), [Some(at(0)), Some(at(1_000))]);
        assert_eq!(gauge(&[]).last_value(at(9)), None);
    }

    #[test]
    fn latest_is_the_newest_at_that_time_or_stale() {
        let series = gauge(&[(0, 1.0), (250, 2.0), (500, 3.0)]);
        assert_eq!(series.latest(at(260)), Timed { at: Some(at(250)), reading: Reading::Value(2.0) });
        assert_eq!(series.latest(at(2000)).reading, Reading::Value(3.0));
        assert_eq!(series.latest(at(2001)), Timed { at: Some(at(500)), reading: Reading::Missing(Why::Stale) });
        assert_eq!(series.latest(Time(0)).reading, Reading::Missing(Why::NotYet));
    }

    #[test]
    fn a_rate_divides_by_the_time_that_passed() {
        let series = counter(&[(0, 100.0.into()), (1000, 200.0.into()), (3000, 300.0.into())]);
        assert_eq!(series.latest(at(3000)).reading, Reading::Value(50.0));
        // 200 tokens in 3 s, not the mean of 100/s and 50/s.
        let mean = series.mean(Window::last(at(3000), 3000)).value().unwrap();
        assert!((mean - 200.0 / 3.0).abs() < 1e-3, "{mean}");
    }

    #[test]
    fn a_reset_and_a_missed_reading_leave_a_gap() {
        let mut series = counter(&[(0, 100.0.into()), (1000, 200.0.into())]);
        assert_eq!(series.push(at(2000), 10.0.into(), 3500, &KEEP), Pushed::Reset);
        assert_eq!(series.latest(at(2000)).reading, Reading::Missing(Why::NotYet));
        series.push(at(3000), Reading::Missing(Why::Failed), 3500, &KEEP);
        series.push(at(4000), 500.0.into(), 3500, &KEEP);
        assert_eq!(series.latest(at(4000)).reading, Reading::Missing(Why::NotYet), "no baseline across a gap");
        series.push(at(5000), 600.0.into(), 3500, &KEEP);
        assert_eq!(series.latest(at(5000)).reading, Reading::Value(100.0));
        // Only the two measured seconds count.
        assert_eq!(series.mean(Window::last(at(5000), 5000)), Reading::Value(100.0));
    }

    #[test]
    fn an_empty_window_is_stale_and_never_a_number() {
        let series = counter(&[(0, 1.0.into()), (1000, 2.0.into())]);
        assert_eq!(series.mean(Window::last(at(60_000), 1000)), Reading::Missing(Why::Stale));
        let series = gauge(&[(0, 1.0)]);
        assert_eq!(series.mean(Window::last(at(60_000), 1000)), Reading::Missing(Why::Stale));
    }

    #[test]
    fn what_never_changes_stays_valid() {
        let mut series = Series::new(Metric::SmClockMax, EPOCH);
        series.push(at(0), 1980.0.into(), u32::MAX, &KEEP);
        assert_eq!(series.mean(Window::last(at(9_000_000), 1000)), Reading::Value(1980.0));
    }

    #[test]
    fn out_of_order_is_dropped() {
        let mut series = gauge(&[(1000, 1.0)]);
        assert_eq!(series.push(at(999), 2.0.into(), 1500, &KEEP), Pushed::OutOfOrder);
        assert_eq!(series.push(Time(0), 2.0.into(), 1500, &KEEP), Pushed::OutOfOrder);
        assert_eq!(series.len(), 1);
    }

    #[test]
    fn columns_show_gaps() {
        let mut series = gauge(&[(1000, 10.0), (2000, 20.0)]);
        series.push(at(3000), Reading::Missing(Why::Failed), 1500, &KEEP);
        series.push(at(4000), 40.0.into(), 1500, &KEEP);
        let mut bins = [Bin::default(); 4];
        series.fill(Window { start: at(0), end: at(4000) }, &mut bins);
        assert_eq!(bins.map(|b| b.mean().map(|v| v as i32)), [Some(10), Some(20), None, Some(40)]);
    }

    #[test]
    fn a_slow_source_fills_narrow_columns_without_holes() {
        let series = gauge(&[(0, 5.0), (1000, 5.0), (2000, 7.0)]);
        let mut bins = [Bin::default(); 20];
        series.fill(Window { start: at(0), end: at(2000) }, &mut bins);
        assert!(bins.iter().all(|b| b.weight > 0.0), "{bins:?}");
        assert_eq!(bins[19].max(), Some(7.0));
        assert_eq!(bins[9].max(), Some(5.0));
    }

    #[test]
    fn silence_longer_than_validity_is_a_hole() {
        let series = gauge(&[(0, 5.0), (10_000, 5.0)]);
        let mut bins = [Bin::default(); 10];
        series.fill(Window { start: at(0), end: at(10_000) }, &mut bins);
        let shown = bins.map(|b| b.mean().is_some());
        assert_eq!(shown, [false, false, false, false, false, false, false, false, true, true]);
    }

    #[test]
    fn a_day_stays_as_minutes() {
        let mut series = Series::new(Metric::SmActive, EPOCH);
        for minute in 0..120u64 {
            for quarter in 0..4u64 {
                let t = minute * 60_000 + quarter * 15_000;
                series.push(at(t), (minute as f64).into(), 20_000, &KEEP);
            }
        }
        assert!(series.len() <= 241, "{}", series.len());
        let mut bins = [Bin::default(); 120];
        series.fill(Window { start: at(0), end: at(120 * 60_000) }, &mut bins);
        assert_eq!(bins[5].mean(), Some(5.0));
        assert!((bins[110].mean().unwrap() - 110.0).abs() < 1.0);
    }

    #[test]
    fn it_runs_for_longer_than_offsets_last() {
        let mut series = Series::new(Metric::GenerationTokens, EPOCH);
        let mut fixed = Series::new(Metric::SmClockMax, EPOCH);
        fixed.push(EPOCH, 1980.0.into(), u32::MAX, &KEEP);
        let days = |n: u64| n * 86_400_000;
        for quarter in 0..120 * 4 {
            series.push(at(quarter * 21_600_000), 0.0.into(), 3500, &KEEP);
        }
        for s in 0..10 {
            series.push(at(days(120) + s * 1000), (s as f64 * 50.0).into(), 3500, &KEEP);
        }
        let end = at(days(120) + 9000);
        assert_eq!(series.latest(end).reading, Reading::Value(50.0));
        assert_eq!(series.mean(Window::last(end, 5000)), Reading::Value(50.0));
        assert_eq!(fixed.latest(end).reading, Reading::Value(1980.0));
        let mut bins = [Bin::default(); 4];
        series.fill(Window::last(end, 8000), &mut bins);
        assert!(bins.iter().all(|b| b.mean() == Some(50.0)), "{bins:?}");
    }

    #[test]
    fn what_left_the_full_rate_still_counts() {
        let mut series = Series::new(Metric::SmActive, EPOCH);
        let mut total = Series::new(Metric::ThrottledPowerCap, EPOCH);
        let mut reasons = Series::new(Metric::ThrottleReasons, EPOCH);
        // Three hours: busy in the first one, throttled half of the time in it.
        for s in 0..3 * 3600_u64 {
            let busy = s < 3600;
            series.push(at(s * 1000), if busy { 90.0 } else { 0.0 }.into(), 3500, &KEEP);
            total.push(at(s * 1000), (s.min(3600) as f64 * 500.0).into(), 3500, &KEEP);
            reasons.push(at(s * 1000), if busy { 4.0 } else { 0.0 }.into(), 3500, &KEEP);
        }
        let whole = Window::last(at(3 * 3_600_000), 3 * 3_600_000);
        let near = |reading: Reading, wanted: f64| (reading.value().unwrap() - wanted).abs() < 0.02 * wanted;
        assert!(near(series.mean(whole), 30.0), "{:?}", series.mean(whole));
        assert!(near(total.mean(whole), 500.0 / 3.0), "{:?}", total.mean(whole));
        assert_eq!(series.extremes(whole), Some((0.0, 90.0)));
        let then = at(1_800_500);
        assert_eq!(series.latest(then), Timed { at: Some(then), reading: Reading::Value(90.0) });
        assert_eq!(series.mean(Window::last(then, 2000)), Reading::Value(90.0));
        assert_eq!(total.mean(Window::last(then, 2000)), Reading::Value(500.0));
        assert_eq!(reasons.latest(then).reading, Reading::Missing(Why::Stale));
    }

    proptest! {
        #[test]
        fn columns_never_invent_values(
            points in prop::collection::vec((0u64..5000, prop::option::of(-100.0f64..100.0)), 1..60),
            columns in 1usize..50, start in 0u64..100_000, span in 1u64..200_000,
        ) {
            let mut series = Series::new(Metric::SmActive, EPOCH);
            let mut t = 0;
            for (step, value) in &points {
                t += step;
                series.push(at(t), value.map_or(Reading::Missing(Why::Failed), Reading::new), 1500, &KEEP);
            }
            let mut bins = vec![Bin::default(); columns];
            series.fill(Window { start: at(start), end: at(start + span) }, &mut bins);
            let (lo, hi) = points.iter().filter_map(|p| p.1).fold((f64::MAX, f64::MIN), |(l, h), v| (l.min(v), h.max(v)));
            for bin in bins {
                if let (Some(min), Some(max), Some(mean)) = (bin.min(), bin.max(), bin.mean()) {
                    prop_assert!(f64::from(min) >= lo - 1e-3 && f64::from(max) <= hi + 1e-3);
                    prop_assert!(mean >= min - 1e-2 && mean <= max + 1e-2);
                }
            }
        }

        #[test]
        fn rates_are_never_negative(totals in prop::collection::vec(prop::option::of(0.0f64..1e6), 1..50)) {
            let mut series = Series::new(Metric::GenerationTokens, EPOCH);
            for (i, total) in totals.iter().enumerate() {
                series.push(at(i as u64 * 1000), total.map_or(Reading::Missing(Why::Failed), Reading::new), 3500, &KEEP);
                if let Some(rate) = series.latest(at(i as u64 * 1000)).reading.value() {
                    prop_assert!(rate >= 0.0);
                }
            }
        }
    }
}
