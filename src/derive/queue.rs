//! The queue of one engine: who runs and who waits, against which limits, since when, and for how long.
//!
//! | figure | formula | basis |
//! | --- | --- | --- |
//! | high-water mark | largest reading of the gauge, and when it was first reached | exact at the scrapes |
//! | rate of leaving | Δ requests finished ÷ Δt | exact |
//! | drain time | requests waiting ÷ rate of leaving | as long as that rate holds and nobody joins |
//!
//! Why finished requests: running requests change by those admitted less those finished less those
//! preempted, and who is preempted waits again. While somebody waits the batch stays as full as it can
//! be, so each request that finishes lets one in, and the net rate of leaving the queue is the rate of
//! finishing. It is the time that a request which joins now will wait under first come, first served. In the
//! overload of the H200 capture it is within a quarter of how long it then took (`tests/queue.rs`).
//! Refused and failed requests are not counted: most of them never waited. It must not know how the
//! figures are drawn. Invariant: where nothing finishes there is no drain time, rather than a long one.

use crate::model::{Metric, Reading, Subject, Time, Why};
use crate::store::{Data, Window};

use super::exposed::{level, rate};

/// A reason to wait: its gauge, its name in the snapshot, and its words after "waiting".
#[derive(Clone, Copy, Debug)]
pub struct Reason {
    /// The gauge that counts them.
    pub metric: Metric,
    /// Name in the snapshot.
    pub name: &'static str,
    /// Words after a number of waiting requests.
    pub words: &'static str,
}

/// Every reason that engines tell apart.
pub const REASONS: [Reason; 5] = [
    Reason { metric: Metric::WaitingCapacity, name: "capacity", words: "for capacity" },
    Reason { metric: Metric::WaitingDeferred, name: "deferred", words: "deferred" },
    Reason { metric: Metric::WaitingGrammar, name: "grammar", words: "for a grammar" },
    Reason { metric: Metric::WaitingKvFetch, name: "kv_fetch", words: "for KV from elsewhere" },
    Reason { metric: Metric::WaitingPaused, name: "paused", words: "paused" },
];

/// The largest reading of a gauge.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Peak {
    /// When it was first reached; to a minute where no more is kept.
    pub at: Time,
    /// The reading.
    pub value: f64,
}

/// High-water marks of one stretch of time; `None` where nothing was read.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HighWater {
    /// Of running requests.
    pub running: Option<Peak>,
    /// Of waiting requests.
    pub waiting: Option<Peak>,
}

/// How long those who wait now will wait.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Drain {
    /// Nobody waits.
    Empty,
    /// Seconds, at the present rate.
    In(f64),
    /// Some wait and nothing finished.
    Never,
    /// Not known.
    Unknown(Why),
}

impl Drain {
    /// Seconds; 0 where nobody waits. No number where it does not drain.
    pub const fn seconds(self) -> Reading {
        match self {
            Self::Empty => Reading::Value(0.0),
            Self::In(seconds) => Reading::Value(seconds),
            Self::Never => Reading::Missing(Why::NotYet),
            Self::Unknown(why) => Reading::Missing(why),
        }
    }
}

/// The queue at the end of a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Queue {
    /// Requests in the running batch.
    pub running: Reading,
    /// Most that the engine runs at once.
    pub running_cap: Reading,
    /// Requests that wait.
    pub waiting: Reading,
    /// Most that may wait.
    pub waiting_cap: Reading,
    /// Of those that wait, by [`REASONS`].
    pub reasons: [Reading; REASONS.len()],
    /// High-water marks of the window.
    pub window: HighWater,
    /// High-water marks of all that is kept, up to the window's end.
    pub ever: HighWater,
    /// Requests finished, a second, over the window.
    pub finished_per_s: Reading,
    /// Requests refused or failed, a second, over the window.
    pub failed_per_s: Reading,
    /// How long the queue takes to drain.
    pub drain: Drain,
}

/// The present, as far as a rate of requests is concerned, ms …
const PRESENT_MS: u64 = 10_000;
/// … as long as this many finished in it; else the whole window.
const ENOUGH: f64 = 8.0;

/// The queue of `engine` at the window's end.
pub fn queue(data: &Data, engine: u8, window: Window) -> Queue {
    let newest = |metric| level(data, engine, metric, window.end);
    let finished_per_s = rate(data, engine, Metric::RequestsFinished, window);
    let waiting = newest(Metric::RequestsWaiting);
    let ever = Window { start: data.oldest().map_or(Time(0), |oldest| oldest - 1), end: window.end };
    Queue {
        running: newest(Metric::RequestsRunning),
        running_cap: newest(Metric::RequestsCap),
        waiting,
        waiting_cap: newest(Metric::QueueCap),
        reasons: REASONS.map(|reason| newest(reason.metric)),
        window: high_water(data, engine, window),
        ever: high_water(data, engine, ever),
        finished_per_s,
        failed_per_s: rate(data, engine, Metric::RequestsFailed, window),
        drain: drain(waiting, leaving(data, engine, window, finished_per_s)),
    }
}

/// Requests that leave the queue at present, a second.
fn leaving(data: &Data, engine: u8, window: Window, over_window: Reading) -> Reading {
    let present = Window::last(window.end, PRESENT_MS.min(window.ms()));
    let rate = rate(data, engine, Metric::RequestsFinished, present);
    let enough = rate.value().is_some_and(|rate| rate * present.ms() as f64 / 1000.0 >= ENOUGH);
    if enough { rate } else { over_window }
}

fn drain(waiting: Reading, leaving: Reading) -> Drain {
    match (waiting, leaving) {
        (Reading::Value(waiting), _) if waiting <= 0.0 => Drain::Empty,
        (Reading::Missing(why), _) | (_, Reading::Missing(why)) => Drain::Unknown(why),
        (Reading::Value(_), Reading::Value(rate)) if rate <= 0.0 => Drain::Never,
        (Reading::Value(waiting), Reading::Value(rate)) => Drain::In(waiting / rate),
    }
}

fn high_water(data: &Data, engine: u8, window: Window) -> HighWater {
    let peak = |metric| {
        let (at, value) = data.series(Subject::Engine(engine), metric)?.peak(window)?;
        Some(Peak { at, value })
    };
    HighWater { running: peak(Metric::RequestsRunning), waiting: peak(Metric::RequestsWaiting) }
}

/// LoRA adapters of one engine; names are facts of the engine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lora {
    /// In GPU memory.
    pub loaded: Reading,
    /// Most in GPU memory at once.
    pub cap: Reading,
    /// That running requests use.
    pub running: Reading,
    /// That waiting requests want.
    pub waiting: Reading,
}

/// The adapters of `engine` at `at`; `None` where it exposes nothing of them.
pub fn lora(data: &Data, engine: u8, at: Time) -> Option<Lora> {
    let all = [Metric::LoraLoaded, Metric::LoraCap, Metric::LoraRunning, Metric::LoraWaiting];
    let [loaded, cap, running, waiting] = all.map(|metric| level(data, engine, metric, at));
    let exposed = [loaded, cap, running, waiting].iter().any(|reading| reading.value().is_some());
    exposed.then_some(Lora { loaded, cap, running, waiting })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Batch, SourceId};
    use crate::store::{Retention, Store};

    /// A reading a second: (running, waiting, finished so far).
    fn store(readings: &[(f64, f64, f64)]) -> (Store, Time) {
        let store = Store::new(Retention::HOUR);
        let mut at = Time(100_000);
        for &(running, waiting, finished) in readings {
            at = at + 1000;
            let mut batch = Batch::new(SourceId::Engine(0), at, 3500);
            batch.push(Subject::Engine(0), Metric::RequestsRunning, running);
            batch.push(Subject::Engine(0), Metric::RequestsWaiting, waiting);
            batch.push(Subject::Engine(0), Metric::RequestsFinished, finished);
            store.push(&batch);
        }
        (store, at)
    }

    fn of(readings: &[(f64, f64, f64)], ms: u64) -> Queue {
        let (store, end) = store(readings);
        queue(&store.read(), 0, Window::last(end, ms))
    }

    #[test]
    fn the_queue_drains_at_the_rate_at_which_requests_finish() {
        // 20 finish a second and 100 wait: 5 s.
        let readings: Vec<_> = (0..30).map(|s| (64.0, 100.0, 20.0 * f64::from(s))).collect();
        let queue = of(&readings, 20_000);
        assert_eq!((queue.drain, queue.finished_per_s), (Drain::In(5.0), Reading::Value(20.0)));
    }

    #[test]
    fn the_present_rate_counts_unless_too_little_finished_in_it() {
        // 20 a second for 20 s, then 2 a second for 10 s: 20 finished in the last 10 s.
        let slow: Vec<_> = (0..=30)
            .map(|s| (64.0, 100.0, if s <= 20 { 20.0 * f64::from(s) } else { 360.0 + 2.0 * f64::from(s) }))
            .collect();
        assert_eq!(of(&slow, 30_000).drain, Drain::In(50.0));
        // One every 5 s: two in the last 10 s say little, six in 30 s a little more.
        let rare: Vec<_> = (0..=30).map(|s| (4.0, 3.0, f64::from(s / 5))).collect();
        assert_eq!(of(&rare, 30_000).drain, Drain::In(15.0));
    }

    #[test]
    fn what_does_not_drain_has_no_drain_time() {
        let stuck = of(&[(4.0, 7.0, 5.0); 12], 10_000);
        assert_eq!((stuck.drain, stuck.drain.seconds()), (Drain::Never, Reading::Missing(Why::NotYet)));
        let idle = of(&[(4.0, 0.0, 5.0); 12], 10_000);
        assert_eq!((idle.drain, idle.drain.seconds()), (Drain::Empty, Reading::Value(0.0)));
        assert_eq!(of(&[], 10_000).drain, Drain::Unknown(Why::NotYet));
    }

    #[test]
    fn high_water_marks_say_when_they_were_first_reached() {
        let mut readings = vec![(1.0, 0.0, 0.0); 20];
        readings[2] = (80.0, 9.0, 0.0);
        readings[12] = (64.0, 40.0, 0.0);
        readings[14] = (64.0, 40.0, 0.0);
        let queue = of(&readings, 10_000);
        let peak = |second: u64, value| Some(Peak { at: Time(101_000 + second * 1000), value });
        assert_eq!(queue.window, HighWater { running: peak(12, 64.0), waiting: peak(12, 40.0) });
        assert_eq!(queue.ever, HighWater { running: peak(2, 80.0), waiting: peak(12, 40.0) });
    }

    #[test]
    fn limits_reasons_and_adapters_that_are_not_exposed_are_not_there() {
        let (store, end) = store(&[(4.0, 7.0, 5.0)]);
        let unsupported = Reading::Missing(Why::Unsupported);
        let queue = queue(&store.read(), 0, Window::last(end, 5000));
        assert_eq!((queue.running_cap, queue.waiting_cap, queue.failed_per_s), (unsupported, unsupported, unsupported));
        assert_eq!(queue.reasons, [unsupported; 5]);
        assert_eq!(lora(&store.read(), 0, end), None);
        let mut batch = Batch::new(SourceId::Engine(0), end, 3500);
        batch.push(Subject::Engine(0), Metric::LoraRunning, 2.0);
        store.push(&batch);
        let lora = lora(&store.read(), 0, end).unwrap();
        assert_eq!((lora.running, lora.loaded), (Reading::Value(2.0), unsupported));
    }
}
