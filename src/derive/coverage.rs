//! Whether so little of a window was measured that its figures have to say so.
//!
//! It must not know how that is shown. Invariant: what is judged is the time of the very readings that a figure is of.

use crate::model::{Kind, Metric, Reading, SourceId, Subject, Why};
use crate::store::{Data, Window};

use super::exposed::rate;

/// What an engine's scrapes bring, one or the other of it: where one of them was read, the scrape was.
const OF_A_SCRAPE: [Metric; 5] = [
    Metric::GenerationTokens,
    Metric::PromptTokens,
    Metric::RequestsFinished,
    Metric::PromptLen,
    Metric::RequestsRunning,
];

/// Whether less than four fifths of `asked_ms` were measured.
pub const fn is_partial(measured_ms: u64, asked_ms: u64) -> bool {
    // A window may be as long as a number can say.
    (measured_ms as u128) * 5 < (asked_ms as u128) * 4
}

/// How long a figure is said to be of, ms: what was asked for, or what was measured where that is less than nine tenths.
pub const fn said_ms(measured_ms: u64, asked_ms: u64) -> u64 {
    if measured_ms > 0 && (measured_ms as u128) * 10 < (asked_ms as u128) * 9 { measured_ms } else { asked_ms }
}

/// Whether less than four fifths of the window were measured of `metric`. A level that was read a moment ago holds until
/// its next reading is due.
pub fn partial(data: &Data, subject: Subject, metric: Metric, window: Window) -> bool {
    let newest = data.latest(subject, metric, window.end);
    let holds = metric.kind() == Kind::Gauge && newest.reading.value().is_some();
    let held = newest.at.filter(|_| holds).map_or(0, |at| window.end.since(at.max(window.start)));
    is_partial(data.measured_ms(subject, metric, window).saturating_add(held), window.ms())
}

/// Whether less than four fifths of the window were scraped of an engine.
pub fn partial_scrapes(data: &Data, engine: u8, window: Window) -> bool {
    OF_A_SCRAPE.iter().all(|&metric| partial(data, Subject::Engine(engine), metric, window))
}

/// The rate of a counter as the present one: missing while the engine cannot be read, whatever the window still holds.
pub fn present_rate(data: &Data, engine: u8, metric: Metric, window: Window) -> Reading {
    let rate = rate(data, engine, metric, window);
    let down = data.source(SourceId::Engine(engine)).is_some_and(|source| source.state_at(window.end).is_down());
    if down && rate.value().is_some() { Reading::Missing(Why::Stale) } else { rate }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Batch, SourceState, Time};
    use crate::store::{Retention, Store};

    const ENGINE: Subject = Subject::Engine(0);

    /// A scrape a second for ten seconds, of which the last `failed` failed.
    fn store(failed: u64) -> Store {
        let store = Store::new(Retention::HOUR);
        for second in 0..=10 {
            let mut batch = Batch::new(SourceId::Engine(0), Time(100_000 + second * 1000), 3500);
            batch.state = Some(SourceState::Failed("connection refused".into()));
            if second + failed <= 10 {
                batch.state = Some(SourceState::Ok);
                batch.push(ENGINE, Metric::GenerationTokens, 500.0 * second as f64);
            }
            store.push(&batch);
        }
        store
    }

    const WINDOW: Window = Window { start: Time(100_000), end: Time(110_000) };

    #[test]
    fn four_fifths_are_enough() {
        let of = |failed| partial_scrapes(&store(failed).read(), 0, WINDOW);
        assert_eq!([0, 2, 3, 10].map(of), [false, false, true, true]);
        assert!(partial(&store(0).read(), ENGINE, Metric::PromptTokens, WINDOW), "never read");
    }

    #[test]
    fn a_level_holds_until_its_next_reading_is_due() {
        let store = Store::new(Retention::HOUR);
        for at in [100_000, 101_000, 102_000] {
            let mut batch = Batch::new(SourceId::Nvml, Time(at), 3500);
            batch.push(Subject::Gpu(0), Metric::SmActive, 50.0);
            store.push(&batch);
        }
        let of = |end| partial(&store.read(), Subject::Gpu(0), Metric::SmActive, Window::last(Time(end), 2000));
        assert_eq!([102_000, 102_900, 105_500, 106_000].map(of), [false, false, false, true]);
    }

    #[test]
    fn the_present_rate_ends_with_the_engine() {
        let of = |failed| present_rate(&store(failed).read(), 0, Metric::GenerationTokens, WINDOW);
        assert_eq!([0, 1].map(of), [Reading::Value(500.0), Reading::Missing(Why::Stale)]);
        assert_eq!(rate(&store(1).read(), 0, Metric::GenerationTokens, WINDOW), Reading::Value(500.0), "of the window");
    }
}
