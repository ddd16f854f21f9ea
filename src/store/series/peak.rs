//! When a series was highest. It must not know what is measured.

use crate::model::Time;

use super::{Series, Window, decode};

impl Series {
    /// The largest value in the window and when it was first reached; to its minute where no more is kept.
    pub fn peak(&self, window: Window) -> Option<(Time, f64)> {
        let (start, end) = self.offsets(window)?;
        let minutes = self.old_minutes().filter(|m| m.ends_in(start, end)).map(|m| (m.end(), f64::from(m.max)));
        let points = self.points.range(self.after(start)..self.after(end));
        let points = points.filter_map(|p| Some((p.at, decode(p.value).value()?)));
        let highest = minutes.chain(points).reduce(|most, next| if next.1 > most.1 { next } else { most });
        highest.map(|(at, value)| (self.epoch + u64::from(at), value))
    }

    /// When a reading, or a counter's rate, was last above `least`, at or before `at` and at most `reach_ms` earlier; only
    /// of what is kept at full rate.
    pub fn last_above(&self, at: Time, reach_ms: u64, least: f64) -> Option<Time> {
        let (start, end) = self.offsets(Window::last(at, reach_ms))?;
        let points = self.points.range(self.after(start)..self.after(end));
        let above = points.rev().find(|p| decode(p.value).value().is_some_and(|value| value > least))?;
        Some(self.epoch + u64::from(above.at))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Retention;
    use super::*;
    use crate::model::{Metric, Reading};

    #[test]
    fn the_last_time_above_is_looked_for_only_so_far_back() {
        let mut series = Series::new(Metric::GenerationTokens, Time(0));
        for second in 0..=60_u64 {
            series.push(Time(second * 1000), Reading::Value(second.min(20) as f64), 3500, &Retention::HOUR);
        }
        assert_eq!(series.last_above(Time(60_000), 50_000, 0.0), Some(Time(20_000)));
        assert_eq!(series.last_above(Time(15_500), 50_000, 0.0), Some(Time(15_000)));
        assert_eq!(series.last_above(Time(60_000), 30_000, 0.0), None);
    }

    #[test]
    fn the_first_of_the_highest_also_among_minutes() {
        let keep = Retention { full_ms: 120_000, ..Retention::HOUR };
        let mut series = Series::new(Metric::RequestsWaiting, Time(0));
        for second in 0..=600_u64 {
            let value = match second {
                70 => 9.0,
                500 | 550 => 8.0,
                _ => 1.0,
            };
            series.push(Time(second * 1000), Reading::Value(value), 3500, &keep);
        }
        series.push(Time(601_000), Reading::Value(f64::NAN), 3500, &keep);
        let peak = |from: u64, to: u64| series.peak(Window { start: Time(from * 1000), end: Time(to * 1000) });
        assert_eq!(peak(490, 601), Some((Time(500_000), 8.0)));
        assert_eq!(peak(0, 601), Some((Time(120_000), 9.0)), "the end of its minute");
        assert_eq!(peak(700, 800), None);
    }
}
