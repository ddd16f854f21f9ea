//! Waiting for a moment of the run's clock, to the microsecond.
//!
//! tokio's own timer counts whole milliseconds, which is more than a request may be late. Invariant: never early.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::unix::AsyncFd;

use crate::model::Clock;

/// Waits for moments, one after the other.
#[derive(Debug)]
pub(super) enum Pacer {
    /// With a timer of the kernel.
    Kernel(AsyncFd<OwnedFd>),
    /// With tokio's timer: in tests, where tokio moves the time.
    #[cfg(test)]
    Tokio,
}

impl Pacer {
    /// With a timer of the kernel; needs a runtime with IO.
    ///
    /// # Errors
    /// When there are no more file descriptors.
    #[expect(
        deprecated,
        reason = "the new way is unsafe code, for file descriptors that may be closed; an owned one is not"
    )]
    pub(super) fn kernel() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        Ok(Self::Kernel(AsyncFd::new(timerfd_create(TimerfdClockId::Monotonic, flags)?)?))
    }

    /// Returns at `due`, µs of `clock`; at once where that is past.
    pub(super) async fn until(&self, clock: &dyn Clock, due: u64) {
        loop {
            let wait = due.saturating_sub(clock.micros());
            if wait == 0 {
                return;
            }
            let waited = match self {
                Self::Kernel(timer) => expire(timer, wait).await.is_ok(),
                #[cfg(test)]
                Self::Tokio => false,
            };
            if !waited {
                tokio::time::sleep(Duration::from_micros(wait)).await;
            }
        }
    }
}

/// Sets the timer to go off in so many µs (not 0, which would switch it off), and waits for that.
async fn expire(timer: &AsyncFd<OwnedFd>, micros: u64) -> io::Result<()> {
    let value =
        Timespec { tv_sec: (micros / 1_000_000).cast_signed(), tv_nsec: (micros % 1_000_000 * 1000).cast_signed() };
    let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
    timerfd_settime(timer.get_ref(), TimerfdTimerFlags::empty(), &once)?;
    loop {
        let mut guard = timer.readable().await?;
        let mut times = [0; 8];
        // What is left of an earlier wait that was given up reads as nothing, and is waited past.
        if let Ok(read) = guard.try_io(|fd| Ok(rustix::io::read(fd.get_ref(), &mut times)?)) {
            return read.map(drop);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::SystemClock;

    #[tokio::test]
    async fn a_kernel_timer_is_never_early() {
        let clock = SystemClock::start();
        let pacer = Pacer::kernel().unwrap();
        for wait in [1, 50, 700, 1_500, 12_345] {
            let due = clock.micros() + wait;
            pacer.until(&clock, due).await;
            assert!(clock.micros() >= due);
        }
    }

    #[tokio::test]
    async fn what_is_past_is_not_waited_for_and_a_wait_may_be_given_up() {
        let clock = SystemClock::start();
        let pacer = Pacer::kernel().unwrap();
        pacer.until(&clock, 0).await;
        let never = pacer.until(&clock, clock.micros() + 3_600_000_000);
        assert!(tokio::time::timeout(Duration::from_millis(1), never).await.is_err());
        let due = clock.micros() + 3_000;
        pacer.until(&clock, due).await;
        assert!(clock.micros() >= due);
    }
}
