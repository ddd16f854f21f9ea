//! How much a counter grew. It must not know what is counted.

use crate::model::Kind;

use super::{Series, Window, decode};

impl Series {
    /// What a counter grew by over the intervals that end in the window and were measured; `None` where none was.
    /// Where the full rate is gone, the minutes that end in the window stand in.
    pub fn growth(&self, window: Window) -> Option<f64> {
        let (start, end) = self.offsets(window).filter(|_| self.metric.kind() == Kind::Counter)?;
        let minutes = self.old_minutes().filter(|m| m.ends_in(start, end)).map(|m| f64::from(m.sum));
        let points = (self.after(start)..self.after(end)).filter_map(|i| {
            let before = self.points.get(i.checked_sub(1)?)?;
            Some(decode(self.points[i].value).value()? * f64::from(self.points[i].at - before.at))
        });
        minutes.chain(points).reduce(|a, b| a + b).map(|sum| sum / 1000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Retention;
    use super::*;
    use crate::model::{Metric, Reading, Time, Why};

    #[test]
    fn it_is_the_difference_of_the_totals_without_gaps() {
        let mut series = Series::new(Metric::RequestsFinished, Time(0));
        let totals = [100.0, 103.0, 107.0, f64::NAN, 120.0, 125.0, 2.0, 6.0];
        for (second, total) in (0_u64..).zip(totals) {
            series.push(Time(second * 1000), Reading::new(total), 3500, &Retention::HOUR);
        }
        let growth = |from: u64, to: u64| series.growth(Window { start: Time(from * 1000), end: Time(to * 1000) });
        assert_eq!(growth(0, 2), Some(7.0));
        assert_eq!(growth(1, 2), Some(4.0));
        assert_eq!(growth(0, 7), Some(3.0 + 4.0 + 5.0 + 4.0), "neither over the gap nor over the restart");
        assert_eq!((growth(2, 3), growth(8, 9)), (None, None));
        let mut gauge = Series::new(Metric::RequestsRunning, Time(0));
        gauge.push(Time(0), Reading::Missing(Why::Failed), 3500, &Retention::HOUR);
        assert_eq!(gauge.growth(Window { start: Time(0), end: Time(9000) }), None);
    }

    #[test]
    fn minutes_stand_in_for_what_is_gone() {
        let keep = Retention { full_ms: 120_000, ..Retention::HOUR };
        let mut series = Series::new(Metric::RequestsFinished, Time(0));
        for second in 0..=600_u64 {
            series.push(Time(second * 1000), Reading::new(second as f64 * 2.0), 3500, &keep);
        }
        let all = series.growth(Window { start: Time(0), end: Time(600_000) });
        // The minute at the border between minutes and points may be missing.
        assert!(all.is_some_and(|n| (1080.0..=1200.5).contains(&n)), "{all:?}");
    }
}
