//! A thread of its own for endpoints that keep the thread of the network busy while they answer nothing, as one does that
//! sends `100 Continue` without end: the library reads on and hands nothing out that could be counted.
//!
//! It must not know what is asked. Invariants: there only one request is under way at a time, so that what the thread
//! spends meanwhile is what that endpoint costs; who was there without cost goes back to the others.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::runtime::Handle;
use tokio::sync::{Mutex, OnceCell};

use crate::model::{Clock, spawn};

/// Share of the time of a request without an answer, %, from which on it is asked aside: several times what reading
/// dozens of engines takes.
const BUSY_PCT: u64 = 25;
/// Less than this says nothing, µs.
const BUSY_US: u64 = 200_000;
/// Most doublings of the requests without cost that bring an endpoint back.
const MOST_OFFENCES: u32 = 4;

/// Whether an endpoint is asked aside.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// Requests aside that are to come.
    left: AtomicU32,
    offences: AtomicU32,
}

impl Turns {
    pub(super) fn is_aside(&self) -> bool {
        self.left.load(Ordering::Relaxed) > 0
    }

    /// Notes a request: how long it took and what its thread spent meanwhile, µs. Whether it was without an answer and
    /// kept the thread busy.
    pub(super) fn note(&self, is_silent: bool, took: u64, spent: u64) -> bool {
        let busy = is_silent && spent > BUSY_US && spent.saturating_mul(100) > took.saturating_mul(BUSY_PCT);
        if busy {
            let offences = self.offences.fetch_add(1, Ordering::Relaxed).min(MOST_OFFENCES);
            self.left.store(1 << offences, Ordering::Relaxed);
        } else {
            let left = self.left.load(Ordering::Relaxed);
            self.left.store(left.saturating_sub(1), Ordering::Relaxed);
        }
        busy
    }
}

/// The thread; started when it is needed first.
#[derive(Debug, Default)]
pub(super) struct Aside {
    runtime: OnceCell<Option<Handle>>,
    turn: Mutex<()>,
}

impl Aside {
    /// Runs a request there when its turn comes; how long it took and what that cost, µs. `None` when there can be no
    /// thread.
    pub(super) async fn run<T>(
        &self,
        clock: &Arc<dyn Clock>,
        request: impl Future<Output = T>,
    ) -> Option<(T, u64, u64)> {
        let handle = self.runtime.get_or_init(|| async { start() }).await.as_ref()?;
        let turn = self.turn.lock().await;
        let (before, begun) = (spent_by(handle, clock).await?, clock.micros());
        let mut request = pin!(request);
        let done = std::future::poll_fn(|context| {
            // What it spawns runs there.
            let _there = handle.enter();
            request.as_mut().poll(context)
        });
        let done = done.await;
        let took = clock.micros().saturating_sub(begun);
        // Comes when the connection that was given up is gone.
        let spent = spent_by(handle, clock).await?.saturating_sub(before);
        drop(turn);
        Some((done, took, spent))
    }
}

/// CPU time that the thread has used, µs.
async fn spent_by(handle: &Handle, clock: &Arc<dyn Clock>) -> Option<u64> {
    let clock = Arc::clone(clock);
    handle.spawn(async move { clock.cpu_micros() }).await.ok()
}

fn start() -> Option<Handle> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    let handle = runtime.handle().clone();
    let work = move || runtime.block_on(std::future::pending::<()>());
    spawn("warptop-aside", work).ok().map(|_| handle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_keeps_the_thread_busy_goes_aside_for_ever_longer_and_comes_back() {
        let turns = Turns::default();
        assert!(!turns.note(false, 1_000_000, 900_000) && !turns.is_aside(), "what answers may cost");
        assert!(!turns.note(true, 2_000_000, 300_000) && !turns.is_aside(), "hangs beside others");
        for requests in [1, 2, 4, 8, 16, 16] {
            assert!(turns.note(true, 2_000_000, 1_400_000));
            for _ in 0..requests {
                assert!(turns.is_aside());
                turns.note(false, 1_000, 1_000);
            }
            assert!(!turns.is_aside(), "{requests}");
        }
    }
}
