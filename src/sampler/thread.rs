//! Threads of blocking sources, and the clock they tick by.
//!
//! It must not know what is read. Invariants: a thread is never joined (a read may hang for ever), and
//! ticks keep their phase: a slow reading skips ticks, it does not shift those that follow.

use std::time::Duration;

use crate::model::{Batch, SourceId, SourceState, spawn};

use super::Context;

/// How long values read once a second may be called current, ms.
pub(super) const SECOND_VALID_MS: u32 = 3_500;

/// Runs `body` on a thread called `name`. When there can be no thread, the source says so.
pub(super) fn start(context: &Context, source: SourceId, name: &str, body: impl FnOnce(&Context) + Send + 'static) {
    let inner = context.clone();
    if let Err(error) = spawn(name, move || body(&inner)) {
        say(context, source, SourceState::Failed(error.to_string().into()));
    }
}

/// Does work that may wait on a thread of its own. `None` when there can be no thread, or the work panicked.
pub(super) async fn run_aside<T: Send + 'static>(name: &str, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (tell, done) = tokio::sync::oneshot::channel();
    // Whoever wanted it may be gone.
    spawn(name, move || drop(tell.send(work()))).ok()?;
    done.await.ok()
}

/// Hands on a change of state and nothing else.
pub(super) fn say(context: &Context, source: SourceId, state: SourceState) {
    let mut batch = Batch::new(source, context.clock.now(), 0);
    batch.state = Some(state);
    context.sink.send(&batch);
}

/// Something that is due at whole multiples of a period after its start.
pub(super) struct Due {
    period: u64,
    at: u64,
}

impl Due {
    /// Due for the first time at `now`, µs.
    pub(super) fn new(period: Duration, now: u64) -> Self {
        Self { period: micros(period), at: now }
    }

    /// Whether it is due at `now`, µs; then it is due again at the next multiple.
    pub(super) const fn is_over(&mut self, now: u64) -> bool {
        let over = now >= self.at;
        if over {
            self.at = next_due(self.at, self.period, now);
        }
        over
    }
}

/// Waits for what is due.
pub(super) struct Ticker<'a> {
    context: &'a Context,
    due: Due,
}

impl<'a> Ticker<'a> {
    /// The first tick is due at once.
    pub(super) fn new(context: &'a Context, period: Duration) -> Self {
        Self { context, due: Due::new(period, context.clock.micros()) }
    }

    /// Changes the period after the next tick.
    pub(super) fn every(&mut self, period: Duration) {
        self.due.period = micros(period);
    }

    /// Waits for the next tick; `false` when it is time to end.
    pub(super) fn wait(&mut self) -> bool {
        let clock = &self.context.clock;
        loop {
            let left = self.due.at.saturating_sub(clock.micros());
            if self.context.stop.wait(Duration::from_micros(left)) {
                return false;
            }
            // A wait may end a little early; a tick must not, or what is due with it would be missed.
            if self.due.is_over(clock.micros()) {
                return true;
            }
        }
    }
}

fn micros(period: Duration) -> u64 {
    u64::try_from(period.as_micros()).unwrap_or(u64::MAX).max(1)
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
