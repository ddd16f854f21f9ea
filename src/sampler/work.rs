//! Work on what an endpoint answered: done on the spot where it is little, else out of the way of all others, and
//! counted, so that an endpoint whose answers cost much is asked seldom.
//!
//! It must not know what the work is. Invariants: what is done on the thread of the network is bounded by [`SMALL`];
//! however many endpoints answer with what is expensive, it takes two threads at most, and those that are known to be
//! expensive do not hold up those that are not.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use super::thread::run_aside;
use crate::model::{Clock, SourceState};

/// Answers up to this size are worked on where they came in, bytes. vLLM has 80 KB, and 90 KB more for each rank of
/// data parallelism; this much costs less than a thread takes to wake on a busy machine.
const SMALL: usize = 256 << 10;

/// From here on an endpoint is asked more seldom, CPU time of one reading in µs. Ten times the most that an engine was
/// seen to need (vLLM with 16 ranks, 1.4 MB).
const COSTLY_US: u64 = 100_000;

/// So many times what a reading cost lies between two of them: 5 % of a core.
const REST: u64 = 20;

/// Longest time between two readings because of what they cost: whoever mends an endpoint wants to see it.
const LONGEST: Duration = Duration::from_mins(1);

/// What the answers of one endpoint cost.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spent {
    /// CPU time of the reading under way, µs.
    us: u64,
    /// That of the reading before, µs.
    before: u64,
}

impl Spent {
    /// Begins another reading.
    pub(super) const fn begin(&mut self) {
        *self = Self { us: 0, before: self.us };
    }

    /// Adds what was spent elsewhere.
    pub(super) const fn add(&mut self, other: Self) {
        self.us = self.us.saturating_add(other.us);
    }

    /// Adds what another thread spent, µs.
    pub(super) const fn add_us(&mut self, us: u64) {
        self.us = self.us.saturating_add(us);
    }

    /// For a request beside this reading: as costly as this one.
    pub(super) const fn beside(self) -> Self {
        Self { us: 0, before: if self.us > self.before { self.us } else { self.before } }
    }

    /// From this reading to the next one where a reading is due every `period`.
    pub(super) fn rest(self, period: Duration) -> Duration {
        let rest = Duration::from_micros(self.us.saturating_mul(REST)).min(LONGEST);
        if self.us > COSTLY_US { rest.max(period) } else { period }
    }

    /// Adds to a state that it is asked more seldom than every `period`, where it is.
    pub(super) fn tell(self, state: SourceState, period: Duration) -> SourceState {
        let Some(words) = self.words(period) else { return state };
        let and = |why: &str| format!("{why}; {words}").into();
        match state {
            SourceState::Ok | SourceState::Starting => SourceState::Degraded(words.into()),
            SourceState::Degraded(why) => SourceState::Degraded(and(&why)),
            SourceState::Failed(why) => SourceState::Failed(and(&why)),
            SourceState::Stalled(why) => SourceState::Stalled(and(&why)),
            SourceState::NoMetrics(why) => SourceState::NoMetrics(and(&why)),
            SourceState::Loading(_) | SourceState::Unauthorized(_) | SourceState::Absent(_) => state,
        }
    }

    /// Says so where it is asked more seldom than every `period`.
    fn words(self, period: Duration) -> Option<String> {
        let rest = self.rest(period);
        let ms = self.us / 10_000 * 10;
        (rest > period).then(|| format!("answers cost {ms} ms to read: asked every {:.0} s", rest.as_secs_f64().ceil()))
    }
}

/// How long values are current that are read every `period`, ms.
pub(super) fn valid_ms(period: Duration) -> u32 {
    u32::try_from(period.as_millis() * 7 / 2).unwrap_or(u32::MAX)
}

/// Where work is done.
pub(super) struct Desk {
    clock: Arc<dyn Clock>,
    /// One piece of large work at a time for endpoints that were cheap to read so far, and one for the others.
    lanes: [Arc<Semaphore>; 2],
}

impl Desk {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, lanes: [(); 2].map(|()| Arc::new(Semaphore::new(1))) }
    }

    /// The clock that counts what work costs.
    pub(super) const fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Does work on the spot.
    pub(super) fn here<T>(&self, spent: &mut Spent, work: impl FnOnce() -> T) -> T {
        let begun = self.clock.cpu_micros();
        let done = work();
        spent.us = spent.us.saturating_add(self.clock.cpu_micros().saturating_sub(begun));
        done
    }

    /// Does work on so many bytes. `None` when it did not come to its end: the program is about to.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        bytes: usize,
        spent: &mut Spent,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        if bytes <= SMALL {
            return Some(self.here(spent, work));
        }
        let costly = spent.us.max(spent.before) > COSTLY_US;
        let turn = Arc::clone(&self.lanes[usize::from(costly)]).acquire_owned().await.ok()?;
        let clock = Arc::clone(&self.clock);
        let work = move || {
            let begun = clock.cpu_micros();
            let done = work();
            drop(turn);
            (done, clock.cpu_micros().saturating_sub(begun))
        };
        let (done, us) = run_aside("warptop-work", work).await?;
        spent.us = spent.us.saturating_add(us);
        Some(done)
    }
}

#[cfg(test)]
pub(in crate::sampler) mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::mpsc;

    use crate::model::{SystemClock, Time};

    /// From one look at the CPU time used to the next it is so much more, µs.
    pub(in crate::sampler) struct CostlyClock {
        step: u64,
        used: AtomicU64,
    }

    impl CostlyClock {
        pub(in crate::sampler) const fn new(step: u64) -> Self {
            Self { step, used: AtomicU64::new(0) }
        }
    }

    impl Clock for CostlyClock {
        fn now(&self) -> Time {
            Time(0)
        }
        fn micros(&self) -> u64 {
            0
        }
        fn cpu_micros(&self) -> u64 {
            self.used.fetch_add(self.step, Ordering::Relaxed)
        }
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().build().unwrap()
    }

    #[test]
    fn what_costs_much_is_asked_for_seldom_and_what_costs_little_as_before() {
        const SECOND: Duration = Duration::from_secs(1);
        let of = |us| Spent { us, before: 0 };
        for cheap in [0, 1_000, 100_000] {
            assert_eq!((of(cheap).rest(SECOND), of(cheap).words(SECOND)), (SECOND, None), "{cheap}");
        }
        assert_eq!(of(800_000).rest(SECOND), 16 * SECOND);
        assert_eq!(of(u64::MAX).rest(SECOND), 60 * SECOND);
        let words = "answers cost 800 ms to read: asked every 16 s";
        assert_eq!(of(804_321).words(SECOND).as_deref(), Some("answers cost 800 ms to read: asked every 17 s"));
        assert_eq!(of(800_000).words(SECOND).as_deref(), Some(words));
        assert_eq!(of(800_000).words(30 * SECOND), None, "it is asked as seldom as that anyway");
        assert_eq!(of(800_000).rest(90 * SECOND), 90 * SECOND);
    }

    #[test]
    fn the_cost_of_a_reading_is_that_of_its_pieces() {
        let desk = Desk::new(Arc::new(CostlyClock::new(60_000)));
        let mut spent = Spent::default();
        runtime().block_on(async {
            for bytes in [0, SMALL, SMALL + 1] {
                desk.run(bytes, &mut spent, || ()).await.unwrap();
            }
        });
        assert_eq!(spent.us, 180_000);
        let mut beside = spent.beside();
        assert_eq!((beside.us, beside.before), (0, 180_000));
        beside.us = 5;
        spent.add(beside);
        spent.begin();
        assert_eq!((spent.us, spent.before), (0, 180_005));
    }

    /// Fault: engine: a body that takes seconds of CPU time to read
    /// Seen: its row says `answers cost 800 ms to read: asked every 16 s`
    /// Works: every other engine, on the second; all such bodies together take two threads at most
    /// Recovers: with its first cheap answer
    #[test]
    fn large_work_holds_up_no_small_work_and_costly_work_no_other() {
        let desk = Arc::new(Desk::new(Arc::new(SystemClock::start())));
        let runtime = runtime();
        // Gone before the runtime, which waits for its threads.
        let (release, wait) = mpsc::channel::<()>();
        let here = std::thread::current().id();
        let thread = || std::thread::current().id();
        runtime.block_on(async {
            let costly = Spent { us: 0, before: COSTLY_US + 1 };
            let blocked = Arc::clone(&desk);
            // Does not end before the last line.
            let hung = tokio::spawn(async move {
                let mut spent = costly;
                blocked.run(SMALL + 1, &mut spent, move || wait.recv().is_ok()).await
            });
            let next = Arc::clone(&desk);
            let queued = tokio::spawn(async move {
                let mut spent = costly;
                next.run(SMALL + 1, &mut spent, || true).await
            });
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            assert_eq!(desk.lanes[1].available_permits(), 0, "both are costly");
            let mut spent = Spent::default();
            assert_eq!(desk.run(SMALL, &mut spent, thread).await, Some(here), "little is done on the spot");
            let elsewhere = desk.run(SMALL + 1, &mut spent, thread).await;
            assert!(elsewhere.is_some_and(|id| id != here), "much is done elsewhere, and at once");
            assert!(!queued.is_finished(), "of costly work one piece at a time");
            release.send(()).unwrap();
            assert_eq!((hung.await.unwrap(), queued.await.unwrap()), (Some(true), Some(true)));
        });
        assert_eq!(
            Spent { us: 800_000, before: 0 }.words(Duration::from_secs(1)).as_deref(),
            Some("answers cost 800 ms to read: asked every 16 s")
        );
    }
}
