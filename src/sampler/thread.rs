//! Threads of blocking sources, and the clock they tick by.
//!
//! It must not know what is read. Invariants: a thread is never joined (a read may hang for ever), and
//! ticks keep their phase: a slow reading skips ticks, it does not shift those that follow.

use std::time::Duration;

use crate::model::{Batch, SourceId, SourceState};

use super::Context;

/// How long values read once a second may be called current, ms.
pub(super) const SECOND_VALID_MS: u32 = 3_500;

/// Runs `body` on a thread called `name`. When there can be no thread, the source says so.
pub(super) fn start(context: &Context, source: SourceId, name: &str, body: impl FnOnce(&Context) + Send + 'static) {
    let inner = context.clone();
    let spawned = std::thread::Builder::new().name(name.to_owned()).spawn(move || body(&inner));
    if let Err(error) = spawned {
        let why =
            format!("no thread for it: {error}; free some (limits: ulimit -u, the cgroup's pids.max) and start again");
        say(context, source, SourceState::Failed(why.into()));
    }
}

/// Hands on a change of state and nothing else.
pub(super) fn say(context: &Context, source: SourceId, state: SourceState) {
    let mut batch = Batch::new(source, context.clock.now(), 0);
    batch.state = Some(state);
    context.sink.send(&batch);
}

/// Ticks at whole multiples of a period after its start.
pub(super) struct Ticker<'a> {
    context: &'a Context,
    period: u64,
    due: u64,
}

impl<'a> Ticker<'a> {
    /// The first tick is due at once.
    pub(super) fn new(context: &'a Context, period: Duration) -> Self {
        let mut ticker = Self { context, period: 1, due: context.clock.micros() };
        ticker.set_period(period);
        ticker
    }

    /// Changes the period from the next tick on.
    pub(super) fn set_period(&mut self, period: Duration) {
        self.period = u64::try_from(period.as_micros()).unwrap_or(u64::MAX).max(1);
    }

    /// Waits for the next tick; `false` when it is time to end.
    pub(super) fn wait(&mut self) -> bool {
        let now = self.context.clock.micros();
        if self.context.stop.wait(Duration::from_micros(self.due.saturating_sub(now))) {
            return false;
        }
        self.due = next_due(self.due, self.period, self.context.clock.micros());
        true
    }
}

/// The first multiple of `period` after `due` that lies in the future.
const fn next_due(due: u64, period: u64, now: u64) -> u64 {
    let missed = now.saturating_sub(due) / period;
    due.saturating_add(period.saturating_mul(missed.saturating_add(1)))
}

#[cfg(test)]
mod tests {
    use super::next_due;

    #[test]
    fn ticks_keep_their_phase() {
        assert_eq!(next_due(1000, 250, 1000), 1250);
        assert_eq!(next_due(1000, 250, 1249), 1250);
        assert_eq!(next_due(1000, 250, 1900), 2000, "two ticks were missed, the phase stays");
        assert_eq!(next_due(1000, 250, 10), 1250, "woken early");
    }
}
