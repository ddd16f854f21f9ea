//! How much of a window a series has values for. It must not know what is measured.

use crate::model::Kind;

use super::{Minute, Retention, Series, Window, decode};

impl Series {
    /// The part of the window that [`Series::mean`] is of, ms. A counter's is the time between readings whose difference is
    /// known, so that the rate times this time is what it grew by; its first interval may begin before the window. A
    /// reading of a gauge stands for the time since the one before it, but no longer than it stays valid. A minute of
    /// which no more is kept counts whole for a gauge.
    pub fn measured_ms(&self, window: Window) -> u64 {
        let Some((start, end)) = self.offsets(window) else { return 0 };
        let counter = self.metric.kind() == Kind::Counter;
        let minutes = self.old_minutes().filter(|m| m.ends_in(start, end));
        let minutes = minutes.map(|m| if counter { m.weight as u64 } else { u64::from(Retention::MINUTE_MS) });
        let points = (self.after(start).max(1)..self.after(end)).filter_map(|i| {
            let (before, point) = (self.points[i - 1].at, self.points[i]);
            decode(point.value).value()?;
            let since = if counter { before } else { before.max(point.at.saturating_sub(self.hold_ms())).max(start) };
            Some(u64::from(point.at - since))
        });
        let measured = minutes.chain(points).sum();
        // A gauge that was not read in a short window still holds.
        let holds = || !counter && self.latest(window.end).reading.value().is_some();
        if measured == 0 && holds() { window.ms() } else { measured }
    }

    /// The intervals of a counter that end in the window and were measured, oldest first. Where no more is kept, a minute of
    /// which nine tenths were measured stands for its intervals.
    pub fn spans(&self, window: Window) -> impl Iterator<Item = Window> {
        let counter = self.metric.kind() == Kind::Counter;
        let (start, end) = self.offsets(window).filter(|_| counter).unwrap_or_default();
        let span =
            move |from: u32, to: u32| Window { start: self.epoch + u64::from(from), end: self.epoch + u64::from(to) };
        let whole = move |m: &&Minute| m.ends_in(start, end) && m.weight >= 0.9 * Retention::MINUTE_MS as f32;
        let minutes = self.old_minutes().filter(whole);
        let minutes = minutes.map(move |m| span(m.end() - Retention::MINUTE_MS, m.end()));
        let points = (self.after(start).max(1)..self.after(end)).filter_map(move |i| {
            decode(self.points[i].value).value()?;
            Some(span(self.points[i - 1].at, self.points[i].at))
        });
        minutes.chain(points)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Retention;
    use super::*;
    use crate::model::{Metric, Reading, Time};
    use proptest::prelude::*;

    fn series(metric: Metric, readings: &[(u64, Option<f64>)]) -> Series {
        let mut series = Series::new(metric, Time(0));
        for &(ms, value) in readings {
            let reading = Reading::new(value.unwrap_or(f64::NAN));
            series.push(Time(ms), reading, 3500, &Retention::HOUR);
        }
        series
    }

    fn between(start: u64, end: u64) -> Window {
        Window { start: Time(start), end: Time(end) }
    }

    #[test]
    fn an_outage_is_not_measured() {
        let up = |s: u64| !(20..80).contains(&s);
        let readings: Vec<_> = (0..=100).map(|s| (s * 1000, up(s).then_some(s as f64))).collect();
        let counter = series(Metric::GenerationTokens, &readings);
        // Up to second 19, and from 80 on, of which the first reading is only where the next difference begins.
        assert_eq!(counter.measured_ms(between(0, 100_000)), 19_000 + 20_000);
        assert_eq!(counter.measured_ms(between(10_000, 79_000)), 9_000);
        assert_eq!(counter.measured_ms(between(30_000, 79_000)), 0);
        assert_eq!(counter.measured_ms(between(90_500, 95_500)), 5_000, "the first interval is not cut");
        let gauge = series(Metric::RequestsRunning, &readings);
        assert_eq!(gauge.measured_ms(between(0, 100_000)), 19_000 + 21_000);
        assert_eq!(
            gauge.measured_ms(between(90_500, 95_500)),
            4_500,
            "no later than the window's end, cut at its start"
        );
        assert_eq!(gauge.measured_ms(between(90_100, 90_600)), 500, "what was read before still holds");
        let silence = series(Metric::RequestsRunning, &[(0, Some(2.0)), (60_000, Some(2.0))]);
        assert_eq!(silence.measured_ms(between(0, 60_000)), 3_500);
    }

    #[test]
    fn minutes_count_where_no_more_is_kept() {
        let keep = Retention { full_ms: 120_000, ..Retention::HOUR };
        for metric in [Metric::RequestsFinished, Metric::RequestsRunning] {
            let mut series = Series::new(metric, Time(0));
            for second in 0..=600_u64 {
                series.push(Time(second * 1000), Reading::new(second as f64), 3500, &keep);
            }
            // The minute at the border between minutes and points may be missing.
            let measured = series.measured_ms(between(0, 600_000));
            assert!((540_000..=600_000).contains(&measured), "{measured}");
        }
    }

    proptest! {
        /// A rate times its measured time is the sum of the differences that a reader of the raw totals would take.
        #[test]
        fn rate_times_measured_time_is_what_was_counted(
            steps in prop::collection::vec((100_u64..3000, prop::option::weighted(0.8, 0_u32..500)), 2..60),
            cut in (0.0_f64..1.0, 0.0_f64..1.0),
        ) {
            let (mut at, mut total) = (0, 0.0);
            let mut readings = vec![(0, Some(0.0))];
            for (ms, grown) in steps {
                at += ms;
                total += f64::from(grown.unwrap_or(7));
                readings.push((at, grown.map(|_| total)));
            }
            let (a, b) = (cut.0.min(cut.1) * at as f64, cut.0.max(cut.1) * at as f64);
            let window = between(a as u64, b as u64);
            let (mut grown, mut ms) = (0.0, 0);
            for pair in readings.windows(2) {
                let [(from, Some(before)), (to, Some(after))] = [pair[0], pair[1]] else { continue };
                if to > window.start.0 && to <= window.end.0 {
                    grown += after - before;
                    ms += to - from;
                }
            }
            let series = series(Metric::GenerationTokens, &readings);
            prop_assert_eq!(series.measured_ms(window), ms);
            let rate = series.mean(window).value();
            prop_assert_eq!(rate.is_some(), ms > 0);
            let counted = rate.unwrap_or(0.0) * ms as f64 / 1000.0;
            prop_assert!((counted - grown).abs() <= 1e-3 * grown.max(1.0), "{counted} for {grown}");
        }
    }
}
