//! What an engine gives, and what it does not give at all: the difference between "nothing yet" and
//! "never". It must not know which names an engine uses. Invariant: "not exposed" is said only of an
//! engine that has been read.

use crate::model::{Metric, Reading, SourceId, SourceState, Subject, Time, Why};
use crate::store::{Data, Window};

/// The newest reading of a level at `at`; [`Why::Unsupported`] where the engine was read and never gave it.
pub fn level(data: &Data, engine: u8, metric: Metric, at: Time) -> Reading {
    match data.series(Subject::Engine(engine), metric) {
        Some(series) => series.latest(at).reading,
        None => never(data, engine, at),
    }
}

/// The rate of a counter over the window, or the mean of a level; the same for what is not exposed.
pub fn rate(data: &Data, engine: u8, metric: Metric, window: Window) -> Reading {
    match data.series(Subject::Engine(engine), metric) {
        Some(series) => series.mean(window),
        None => never(data, engine, window.end),
    }
}

/// Why a window of a histogram holds nothing: no traffic, an engine that does not answer, or one without such a histogram.
pub fn empty(data: &Data, engine: u8, metric: Metric, at: Time) -> Why {
    let state = data.source(SourceId::Engine(engine)).map(|source| source.state_at(at));
    match data.histogram(Subject::Engine(engine), metric) {
        Some(_) => state.filter(|state| state.is_down()).map_or(Why::NotYet, why_of),
        None => never(data, engine, at).why().unwrap_or(Why::NotYet),
    }
}

/// Why a source in this state has nothing now.
pub const fn why_of(state: &SourceState) -> Why {
    match state {
        SourceState::Starting | SourceState::Loading(_) => Why::NotYet,
        SourceState::Unauthorized(_) => Why::NotPermitted,
        SourceState::Failed(_) | SourceState::NoMetrics(_) | SourceState::Stalled(_) => Why::Failed,
        SourceState::Ok | SourceState::Degraded(_) | SourceState::Absent(_) => Why::Unsupported,
    }
}

fn never(data: &Data, engine: u8, at: Time) -> Reading {
    let read = data.source(SourceId::Engine(engine)).and_then(|source| source.last_read(at)).is_some();
    Reading::Missing(if read { Why::Unsupported } else { Why::NotYet })
}

/// `a` where it is a number, else `b`. Without either, it is exposed if one of them is: the reason is then that one's.
pub(super) const fn or(a: Reading, b: Reading) -> Reading {
    match (a, b) {
        (Reading::Missing(Why::Unsupported), _) | (Reading::Missing(_), Reading::Value(_)) => b,
        _ => a,
    }
}

/// `f` of two readings, or why one is missing: what is never exposed says more than what is missing for now.
pub(super) fn both(a: Reading, b: Reading, f: impl FnOnce(f64, f64) -> f64) -> Reading {
    match (a, b) {
        (Reading::Value(a), Reading::Value(b)) => Reading::new(f(a, b)),
        (_, Reading::Missing(Why::Unsupported)) => b,
        (Reading::Missing(why), _) | (_, Reading::Missing(why)) => Reading::Missing(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Batch;
    use crate::store::{Retention, Store};

    const END: Time = Time(100_000);

    #[test]
    fn what_was_never_given_is_not_exposed_once_the_engine_was_read() {
        let store = Store::new(Retention::HOUR);
        let of = |store: &Store| level(&store.read(), 0, Metric::QueueCap, END);
        assert_eq!(of(&store), Reading::Missing(Why::NotYet));
        let mut batch = Batch::new(SourceId::Engine(0), END, 3500);
        batch.push(Subject::Engine(0), Metric::RequestsRunning, 5.0);
        store.push(&batch);
        assert_eq!(of(&store), Reading::Missing(Why::Unsupported));
        assert_eq!(
            rate(&store.read(), 0, Metric::Preemptions, Window::last(END, 5)),
            Reading::Missing(Why::Unsupported)
        );
        assert_eq!(level(&store.read(), 0, Metric::RequestsRunning, END), Reading::Value(5.0));
    }
}
