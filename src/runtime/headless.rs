//! What runs without a screen: recording, and one reading for scripts.

use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use super::{Inputs, Session};
use crate::app::Event;
use crate::export::snapshot::{Mode, Snapshot, snapshot};
use crate::model::text::clean;
use crate::model::{Clock, Metric, Reading, SourceId, SourceState, Subject, Time, Why};
use crate::recording::{Header, Output, RecordError, Recorder, Summary};
use crate::sampler::Options;
use crate::sampler::replay::{Input as Recorded, ReplayError, load};
use crate::store::{Data, Retention, Store, Window};
use crate::term::input::Input;

/// Records this machine without a screen, for `duration` or until an interrupt. Returns what was
/// recorded and whether `duration` was cut short.
///
/// # Errors
/// When the output cannot be opened or written on.
pub fn record(
    inputs: &Inputs,
    options: &Options,
    interval: Duration,
    output: &Output,
    duration: Option<Duration>,
) -> Result<(Summary, bool), RecordError> {
    let clock = &inputs.clock;
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let recorder = Recorder::start(output, &Header::new(clock.now(), &clean(host.trim()), ms(interval)))?;
    let session = Session::record(clock, options, interval, Some(&recorder));
    let end = duration.map(|d| clock.now() + ms(d));
    let mut cut = false;
    while !recorder.is_over() && end.is_none_or(|end| clock.now() < end) {
        match inputs.events.recv_timeout(Duration::from_millis(100)) {
            Ok(Input::App(Event::Interrupt)) | Err(RecvTimeoutError::Disconnected) => {
                cut = duration.is_some();
                break;
            }
            Ok(_) | Err(RecvTimeoutError::Timeout) => {}
        }
    }
    drop(session);
    recorder.finish().map(|summary| (summary, cut))
}

/// A recording gives no reading.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// It cannot be opened or is no recording.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// Not one batch is in it.
    #[error("the recording is empty: nothing was recorded")]
    Empty,
    /// It was over by then.
    #[error("the recording ends after {end_s:.1} s: --at must not be later")]
    TooLate {
        /// Its length, s.
        end_s: f64,
    },
}

/// Length of a recorded reading's window.
const REPLAY_WINDOW: Duration = Duration::from_secs(10);
/// A recording's last batch may lie this long before the moment that is asked for.
const REPLAY_SLACK_MS: u64 = 5_000;
/// Length of a live reading's window: two scrapes of an engine.
const LIVE_WINDOW: Duration = Duration::from_millis(1500);
/// How much longer than its window a live reading waits for sources that are slow to start.
const LIVE_PATIENCE: Duration = Duration::from_secs(3);

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The reading of a recording `at` its start plus that long, or at its end; and what is missing in it.
///
/// # Errors
/// When there is no recording or it ends before that.
pub fn snapshot_of(
    input: &Recorded,
    at: Option<Duration>,
    window: Option<Duration>,
) -> Result<(Snapshot, Vec<String>), SnapshotError> {
    let mut reader = input.open()?;
    let store = Store::new(Retention::HOUR);
    let (start, end) = load(&mut reader, &store, at.map(ms)).ok_or(SnapshotError::Empty)?;
    let wanted = at.map_or(end, |at| start + ms(at));
    if wanted > end + REPLAY_SLACK_MS {
        return Err(SnapshotError::TooLate { end_s: end.since(start) as f64 / 1000.0 });
    }
    let window = Window::last(wanted, ms(window.unwrap_or(REPLAY_WINDOW)));
    Ok((snapshot(&store.read(), Mode::Replay, window), reader.problems().texts()))
}

/// Reads this machine for the length of the window, or a little longer when a source is slow to start.
pub fn snapshot_now(
    clock: &Arc<dyn Clock>,
    options: &Options,
    interval: Duration,
    window: Option<Duration>,
) -> Snapshot {
    let window = window.unwrap_or(LIVE_WINDOW);
    let session = Session::live(clock, options, interval);
    let started = clock.now();
    let least = started + ms(window.max(LIVE_WINDOW));
    let most = least + ms(LIVE_PATIENCE);
    loop {
        let now = clock.now();
        if now >= most || (now >= least && settled(&session.store().read(), now)) {
            let data = session.store().read();
            return snapshot(&data, Mode::Live, Window::last(now, ms(window)));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Whether every source has said how it is, and every engine that answers has given a rate.
fn settled(data: &Data, now: Time) -> bool {
    let started = data.sources().all(|(_, source)| *source.state_at(now) != SourceState::Starting);
    let rated = |engine| {
        let up = data.source(SourceId::Engine(engine)).is_some_and(|s| !s.state_at(now).is_down());
        let rate = data.latest(Subject::Engine(engine), Metric::GenerationTokens, now).reading;
        !up || rate != Reading::Missing(Why::NotYet)
    };
    started && data.engines().all(rated)
}
