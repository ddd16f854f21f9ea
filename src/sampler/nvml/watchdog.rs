//! Sees when an NVML call does not come back, and says so: the thread that made it cannot.
//!
//! It makes no NVML call itself. Invariant: [`Heart::inside`] is around every call.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::model::{Clock, SourceId, SourceState};

use super::super::Context;
use super::super::thread::{Ticker, say, start as start_thread};

/// A call that takes longer than this does not answer, µs.
pub(super) const STALLED_US: u64 = 2_000_000;

/// What the NVML thread is about to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    /// Waits for the process that loads the library first.
    Loading,
    /// Loads and initialises the library, or reads what never changes.
    Opening,
    /// Lets go of the library.
    Closing,
    /// Reads the GPU with this index.
    Reading(u8),
}

/// Shared between the NVML thread and the watchdog.
#[derive(Debug, Default)]
pub(super) struct Heart {
    /// Since when the thread has been inside NVML, µs; 0 when it is not.
    since: AtomicU64,
    /// GPU being read plus three; 0: opening; 1: closing; 2: loading.
    what: AtomicU32,
    /// The watchdog has spoken since the NVML thread last said how it is.
    spoke: AtomicBool,
}

impl Heart {
    /// Runs a call into NVML; also returns how long it took, µs.
    pub(super) fn inside<T>(&self, clock: &dyn Clock, doing: Doing, call: impl FnOnce() -> T) -> (T, u64) {
        let what = match doing {
            Doing::Opening => 0,
            Doing::Closing => 1,
            Doing::Loading => 2,
            Doing::Reading(gpu) => u32::from(gpu) + 3,
        };
        let began = clock.micros();
        self.what.store(what, Ordering::Relaxed);
        self.since.store(began.max(1), Ordering::Release);
        let result = call();
        self.since.store(0, Ordering::Release);
        (result, clock.micros().saturating_sub(began))
    }

    /// Whether the watchdog has spoken since the last time this was asked.
    pub(super) fn take_spoke(&self) -> bool {
        self.spoke.swap(false, Ordering::AcqRel)
    }

    /// The state to show when a call has been out for too long.
    fn stalled(&self, now: u64) -> Option<SourceState> {
        let since = self.since.load(Ordering::Acquire);
        let out = now.saturating_sub(since);
        if since == 0 || out < STALLED_US {
            return None;
        }
        let seconds = coarse(out / 1_000_000);
        let hint = match self.what.load(Ordering::Relaxed) {
            0 => "while it initialises; without persistence mode that takes seconds a GPU".to_owned(),
            1 => "while it is closed after errors; look for NVRM and Xid in dmesg".to_owned(),
            2 => "while its library is loaded; look at the disk that libnvidia-ml.so.1 is on".to_owned(),
            gpu => format!("while GPU {} is read; look for NVRM and Xid in dmesg", gpu - 3),
        };
        Some(SourceState::Stalled(format!("NVML has not answered for {seconds} s, {hint}").into()))
    }
}

/// Whole seconds below ten, then tens, so that a long hang is not a new state every second.
const fn coarse(seconds: u64) -> u64 {
    if seconds < 10 { seconds } else { seconds - seconds % 10 }
}

/// Starts the thread that watches the NVML thread.
pub(super) fn start(context: &Context, heart: &Arc<Heart>) {
    let heart = Arc::clone(heart);
    start_thread(context, SourceId::Nvml, "warptop-watch", move |context| {
        let mut ticker = Ticker::new(context, Duration::from_secs(1));
        let mut last = context.clock.micros();
        while ticker.wait() {
            let (now, before) = (context.clock.micros(), last);
            last = now;
            // Neither has run meanwhile: the machine was suspended or warptop was stopped, and the call may come back.
            if now.saturating_sub(before) > STALLED_US {
                continue;
            }
            if let Some(state) = heart.stalled(now) {
                heart.spoke.store(true, Ordering::Release);
                say(context, SourceId::Nvml, state);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ManualClock, Time};

    #[test]
    fn only_a_call_that_is_out_for_long_is_stalled() {
        let (heart, clock) = (Heart::default(), ManualClock::at(Time(1_000)));
        assert_eq!(heart.stalled(u64::MAX), None, "no call is out");
        let (seen, took) = heart.inside(&clock, Doing::Reading(3), || {
            clock.set(Time(18_500));
            (heart.stalled(2_900_000), heart.stalled(clock.micros()))
        });
        assert_eq!((seen.0, took), (None, 17_500_000));
        let why = seen.1.unwrap();
        assert!(why.why().contains("for 10 s") && why.why().contains("GPU 3"), "{why:?}");
        assert_eq!(heart.stalled(u64::MAX), None, "it came back");
        heart.inside(&clock, Doing::Opening, || {
            assert!(heart.stalled(30_000_000).unwrap().why().contains("initialises"));
        });
        heart.inside(&clock, Doing::Loading, || {
            assert!(heart.stalled(30_000_000).unwrap().why().contains("while its library is loaded"));
        });
    }
}
