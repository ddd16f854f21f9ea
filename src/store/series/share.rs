//! For how long a level was above zero. It must not know what is measured.

use super::{Series, Window, decode};

/// How much of a window was measured, and for how much of that the value was above zero, ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AboveZero {
    /// Above zero.
    pub above_ms: u64,
    /// Measured.
    pub measured_ms: u64,
}

impl AboveZero {
    /// One as a share of the other, 0 to 1; `None` where nothing was measured.
    pub fn share(self) -> Option<f64> {
        (self.measured_ms > 0).then(|| self.above_ms as f64 / self.measured_ms as f64)
    }
}

impl Series {
    /// The time in the window that its points stand for: each for the time since the one before it, but no longer
    /// than it stays valid. Minutes tell only the extremes of their points, so time of which no more is kept
    /// counts neither way.
    pub fn above_zero(&self, window: Window) -> AboveZero {
        let mut time = AboveZero::default();
        let Some((start, end)) = self.offsets(window) else { return time };
        let first = self.after(start).max(1);
        for i in first..self.points.len() {
            let (before, point) = (self.points[i - 1], self.points[i]);
            if before.at >= end {
                break;
            }
            let since = before.at.max(point.at.saturating_sub(self.hold_ms())).max(start);
            let ms = u64::from(point.at.min(end).saturating_sub(since));
            let Some(value) = decode(point.value).value() else { continue };
            time.measured_ms += ms;
            time.above_ms += if value > 0.0 { ms } else { 0 };
        }
        time
    }
}

#[cfg(test)]
mod tests {
    use super::super::Retention;
    use super::*;
    use crate::model::{Metric, Reading, Time};

    fn series(readings: &[(u64, f64)]) -> Series {
        let mut series = Series::new(Metric::RequestsWaiting, Time(0));
        for &(ms, value) in readings {
            series.push(Time(ms), Reading::new(value), 3500, &Retention::HOUR);
        }
        series
    }

    #[test]
    fn time_counts_and_not_readings() {
        let uneven =
            series(&[(0, 5.0), (3000, 5.0), (3500, 0.0), (4000, 0.0), (4500, 0.0), (5000, f64::NAN), (6000, 1.0)]);
        let of = |start, end| uneven.above_zero(Window { start: Time(start), end: Time(end) });
        let time = |above_ms, measured_ms| AboveZero { above_ms, measured_ms };
        assert_eq!(of(0, 6000), time(4000, 5500), "without the reading that failed");
        assert_eq!(of(0, 6000).share(), Some(4000.0 / 5500.0));
        assert_eq!(of(2000, 3250), time(1000, 1250), "cut to the window");
        assert_eq!(of(0, 600_000), of(0, 6000), "a window longer than the data");
        assert_eq!((of(3000, 3000), of(3000, 3000).share()), (time(0, 0), None));
        let silence = series(&[(0, 2.0), (60_000, 2.0)]);
        assert_eq!(silence.above_zero(Window { start: Time(0), end: Time(60_000) }), time(3500, 3500));
    }
}
