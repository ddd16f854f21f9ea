//! Time: the only place that asks the operating system what time it is.
//!
//! Everything else is handed a [`Clock`], so that tests, replays and screenshots decide the time.

use std::fmt;
use std::ops::{Add, Sub};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// Milliseconds since the Unix epoch, counted monotonically from the start of the session: a step
/// of the wall clock while warptop runs moves nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Time(pub u64);

impl Time {
    /// Milliseconds from `earlier` to `self`; 0 when `earlier` is later.
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// Year, month and day of the Gregorian calendar, `days` after 1970-01-01. Counts in eras of 400 years that
/// begin in March, so that the leap day is the last of its year.
pub const fn date(days: u64) -> (u64, u64, u64) {
    const ERA: u64 = 146_097;
    let since_march = days + 719_468;
    let (era, day) = (since_march / ERA, since_march % ERA);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let month_of_year = if month < 10 { month + 3 } else { month - 9 };
    let january = if month_of_year <= 2 { 1 } else { 0 };
    (year + era * 400 + january, month_of_year, day_of_year - (153 * month + 2) / 5 + 1)
}

impl Add<u64> for Time {
    type Output = Self;
    /// `self` plus milliseconds.
    fn add(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }
}

impl Sub<u64> for Time {
    type Output = Self;
    /// `self` minus milliseconds, not below 0.
    fn sub(self, ms: u64) -> Self {
        Self(self.0.saturating_sub(ms))
    }
}

/// Longest time that anything here may last: 100 years. Sums of such times with a moment stay far from what overflows.
const LONGEST: Duration = Duration::from_hours(100 * 366 * 24);

/// So many seconds as a [`Duration`]; `None` for what is none: negative, not a number, or longer than 100 years. Whatever
/// is not a constant comes through here: `Duration::from_secs_f64` panics on all of these.
pub fn duration(seconds: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds).ok().filter(|duration| *duration <= LONGEST)
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.0)
    }
}

/// Tells the time.
pub trait Clock: Send + Sync {
    /// Now.
    fn now(&self) -> Time;
    /// Microseconds of a monotonic clock, for measuring how long something took.
    fn micros(&self) -> u64;
    /// Nanoseconds of the same clock, as finely as it counts.
    fn nanos(&self) -> u64 {
        self.micros() * 1000
    }
    /// CPU time that the calling thread has used, µs: what work costs, whatever else the machine does meanwhile. A
    /// clock that is not the machine's says 0.
    fn cpu_micros(&self) -> u64 {
        0
    }
}

/// The machine's clock. It counts while the machine is suspended, too (`CLOCK_BOOTTIME`), so that what was not watched
/// is a gap as long as it was.
#[derive(Debug)]
pub struct SystemClock {
    /// Since boot, ns.
    started: u64,
    started_unix_ms: u64,
    since_boot: fn() -> u64,
}

impl SystemClock {
    /// Reads the wall clock once; from then on only the time since boot counts.
    pub fn start() -> Self {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::of(u64::try_from(unix.as_millis()).unwrap_or(u64::MAX), since_boot)
    }

    /// One that began at this moment and counts by this.
    fn of(started_unix_ms: u64, since_boot: fn() -> u64) -> Self {
        Self { started: since_boot(), started_unix_ms, since_boot }
    }
}

/// Time since boot, suspension included, ns.
fn since_boot() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    let [seconds, nanos] = [time.tv_sec, time.tv_nsec].map(|part| u64::try_from(part).unwrap_or(0));
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}

impl Clock for SystemClock {
    fn now(&self) -> Time {
        Time(self.started_unix_ms) + self.nanos() / 1_000_000
    }
    fn micros(&self) -> u64 {
        self.nanos() / 1_000
    }
    fn nanos(&self) -> u64 {
        (self.since_boot)().saturating_sub(self.started)
    }
    fn cpu_micros(&self) -> u64 {
        let used = clock_gettime(ClockId::ThreadCPUTime);
        let whole = |part: i64| u64::try_from(part).unwrap_or(0);
        whole(used.tv_sec).saturating_mul(1_000_000).saturating_add(whole(used.tv_nsec) / 1000)
    }
}

/// A clock that stands still until it is set: tests, screenshots, `snapshot --replay`.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    /// A clock that says `now`.
    pub const fn at(now: Time) -> Self {
        Self(AtomicU64::new(now.0))
    }
    /// Sets the time.
    pub fn set(&self, now: Time) {
        self.0.store(now.0, Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Time {
        Time(self.0.load(Ordering::Relaxed))
    }
    fn micros(&self) -> u64 {
        self.now().0.saturating_mul(1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static BOOTED: AtomicU64 = AtomicU64::new(5_000_000_000);

    /// Fault: host: the wall clock is set an hour forward or back
    /// Seen: nothing: times on axes go on from the start of the session
    /// Works: everything
    /// Recovers: nothing to recover from
    #[test]
    fn only_the_time_since_boot_counts() {
        let clock = SystemClock::of(1_000, || BOOTED.load(Ordering::Relaxed));
        assert_eq!((clock.now(), clock.micros()), (Time(1_000), 0));
        // A suspension of an hour counts; nothing ever goes back.
        BOOTED.store(3_605_000_123_000, Ordering::Relaxed);
        assert_eq!((clock.now(), clock.nanos()), (Time(3_601_000), 3_600_000_123_000));
        BOOTED.store(1, Ordering::Relaxed);
        assert_eq!(clock.micros(), 0);
    }

    #[test]
    fn this_machine_has_been_up_for_a_while() {
        let (clock, uptime) = (SystemClock::start(), std::fs::read_to_string("/proc/uptime").unwrap());
        let uptime: f64 = uptime.split_whitespace().next().unwrap().parse().unwrap();
        assert!((since_boot() as f64 / 1e9 - uptime).abs() < 60.0, "{uptime}");
        assert!(clock.now() >= Time(1_700_000_000_000));
    }

    #[test]
    fn what_is_no_duration_is_none() {
        let most = LONGEST.as_secs_f64();
        for seconds in [-1.0, -1e-9, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e308, f64::MAX, most * 1.01] {
            assert_eq!(duration(seconds), None, "{seconds}");
        }
        for (seconds, expected) in [(0.0, 0), (-0.0, 0), (5e-324, 0), (1.5, 1_500), (most, LONGEST.as_millis())] {
            assert_eq!(duration(seconds).map(|duration| duration.as_millis()), Some(expected), "{seconds}");
        }
        // A moment at the end of time is not moved beyond it.
        assert_eq!((Time(u64::MAX) + u64::MAX, Time(0) - u64::MAX), (Time(u64::MAX), Time(0)));
        assert_eq!((Time(u64::MAX).since(Time(0)), Time(0).since(Time(u64::MAX))), (u64::MAX, 0));
    }
}
