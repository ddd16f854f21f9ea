//! How often the fast class is read: as asked for, unless that keeps the driver too busy.
//!
//! Every NVML call holds locks of the driver that the programs on the GPU need as well, so time inside
//! NVML is a cost to them, whatever it costs us.

use std::time::Duration;

/// Share of the time that the fast class may spend inside NVML.
const TOO_MUCH: f64 = 0.02;
/// Below this the period is halved again: after that it is at most half of what is too much.
const CHEAP: f64 = 0.005;
/// The share is taken over this long, µs.
const WINDOW_US: u64 = 5_000_000;
/// The slowest it gets by itself.
const SLOWEST: Duration = Duration::from_secs(1);
/// NVML's activity counters (GPM) are not refreshed faster than this.
const FASTEST: Duration = Duration::from_millis(100);

/// The period of the fast class.
#[derive(Debug)]
pub(super) struct Pace {
    asked: Duration,
    period: Duration,
    began: u64,
    spent: u64,
    share: f64,
}

impl Pace {
    /// The period asked for, in the range that makes sense; `now` in µs.
    pub(super) fn new(asked: Duration, now: u64) -> Self {
        let asked = asked.max(FASTEST);
        Self { asked, period: asked, began: now, spent: 0, share: 0.0 }
    }

    /// The period in use.
    pub(super) const fn period(&self) -> Duration {
        self.period
    }

    /// Takes in what a reading took, µs; at the end of a window decides on the period.
    pub(super) fn spent(&mut self, now: u64, us: u64) {
        self.spent += us;
        let passed = now.saturating_sub(self.began);
        if passed < WINDOW_US {
            return;
        }
        self.share = self.spent as f64 / passed as f64;
        (self.began, self.spent) = (now, 0);
        if self.share > TOO_MUCH && self.period < SLOWEST {
            self.period = (self.period * 2).min(SLOWEST);
        } else if self.share < CHEAP {
            self.period = (self.period / 2).max(self.asked);
        }
    }

    /// Forgets the window so far: a call that hung is no measure of what reading costs.
    pub(super) const fn forget(&mut self, now: u64) {
        (self.began, self.spent) = (now, 0);
    }

    /// What to say while it is slower than asked for.
    pub(super) fn slowed(&self) -> Option<String> {
        (self.period > self.asked).then(|| {
            format!(
                "NVML is slow here: fast values are read every {} ms instead of {} ms, so as not to hold up the driver",
                self.period.as_millis(),
                self.asked.as_millis()
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    /// Ticks for `seconds`, each taking `us`.
    fn tick(pace: &mut Pace, now: &mut u64, seconds: u64, us: u64) {
        let end = *now + seconds * 1_000_000;
        while *now < end {
            *now += u64::try_from(pace.period().as_micros()).unwrap();
            pace.spent(*now, us);
        }
    }

    #[test]
    fn it_backs_off_while_dear_and_returns_when_cheap() {
        let (mut pace, mut now) = (Pace::new(MS(250), 0), 0);
        tick(&mut pace, &mut now, 11, 1_000);
        assert_eq!((pace.period(), pace.slowed()), (MS(250), None), "0.4 % is fine");
        tick(&mut pace, &mut now, 6, 8_000);
        assert_eq!(pace.period(), MS(500), "3.2 % is too much");
        assert!(pace.slowed().unwrap().contains("500 ms instead of 250 ms"));
        tick(&mut pace, &mut now, 20, 8_000);
        assert_eq!(pace.period(), MS(500), "1.6 % at this period: stays");
        tick(&mut pace, &mut now, 60, 60_000);
        assert_eq!(pace.period(), MS(1_000), "no slower than this");
        tick(&mut pace, &mut now, 20, 500);
        assert_eq!((pace.period(), pace.slowed()), (MS(250), None));
    }

    #[test]
    fn the_period_has_a_lower_end_and_one_asked_for_slow_stays() {
        assert_eq!(Pace::new(MS(10), 0).period(), MS(100));
        let (mut pace, mut now) = (Pace::new(MS(2_000), 0), 0);
        tick(&mut pace, &mut now, 30, 500_000);
        assert_eq!((pace.period(), pace.slowed()), (MS(2_000), None));
    }

    #[test]
    fn a_hang_is_forgotten() {
        let mut pace = Pace::new(MS(250), 0);
        pace.forget(9_000_000);
        pace.spent(9_250_000, 1_000);
        assert_eq!(pace.period(), MS(250));
    }
}
