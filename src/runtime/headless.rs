//! What runs without a screen: recording, and one reading for scripts.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, TryRecvError};
use std::time::Duration;

use super::ceilings::Ceilings;
use super::{Inputs, Session};
use crate::app::Event;
use crate::diagnosis::{ChangeLog, Slo};
use crate::export::snapshot::{Mode, Snapshot, snapshot};
use crate::log::LogLevel;
use crate::model::text::Plural;
use crate::model::text::clean;
use crate::model::{Clock, Metric, Reading, SourceId, SourceState, Subject, Time, Why};
use crate::probe::files::Files;
use crate::recording::{Ended, Header, Output, RecordError, Recorder, Summary};
use crate::sampler::Options;
use crate::sampler::replay::{Input as Recorded, ReplayError, load};
use crate::store::{Data, Retention, Store, Window};
use crate::term::input::Input;

/// What is to be recorded, where and how long.
pub struct RecordPlan<'a> {
    /// Where it goes.
    pub output: &'a Output,
    /// How long; until an interrupt when `None`. It also holds while the output is being opened.
    pub duration: Option<Duration>,
    /// Period of the fast readings.
    pub interval: Duration,
    /// What probes measured here before.
    pub files: Option<&'a Files>,
    /// Objectives: what the diagnosis for them says is noted where it changes.
    pub slo: &'a Slo,
    /// Told once when the output has not opened within a second.
    pub waiting: fn(&Output),
}

/// Looks of a tenth of a second after which the user is told what is waited for.
const SILENT_LOOKS: u32 = 10;

/// Records this machine without a screen. Returns what was recorded and whether the plan's duration was cut short.
///
/// # Errors
/// When the output cannot be opened or written on.
pub fn record(inputs: &Inputs, options: &Options, plan: &RecordPlan<'_>) -> Result<(Summary, bool), RecordError> {
    let RecordPlan { output, duration, interval, files, slo, waiting } = *plan;
    let clock = &inputs.clock;
    let end = duration.map(|d| clock.now() + ms(d));
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let mut looks = 0;
    let wait = || {
        looks += 1;
        if looks == SILENT_LOOKS {
            waiting(output);
        }
        if matches!(inputs.events.try_recv(), Ok(Input::App(Event::Interrupt)) | Err(TryRecvError::Disconnected)) {
            return ControlFlow::Break(Ended::Interrupted);
        }
        if end.is_some_and(|end| clock.now() >= end) {
            ControlFlow::Break(Ended::Late)
        } else {
            ControlFlow::Continue(())
        }
    };
    let header = Header::new(clock.now(), &clean(host.trim()), ms(interval));
    let recorder = Recorder::start(output, &header, wait)?;
    let session = Session::record(clock, options, interval, Some(&recorder));
    let mut cut = false;
    let ceilings = files.map(Ceilings::load).unwrap_or_default();
    let mut changes = ChangeLog::new(slo.clone());
    while !recorder.is_over() && end.is_none_or(|end| clock.now() < end) {
        ceilings.tell(&session.sink, clock.now());
        let changed = changes.follow(&session.store().read(), clock.now());
        if let Some(batch) = changed {
            session.sink.send(&batch);
        }
        match inputs.events.recv_timeout(Duration::from_millis(100)) {
            Ok(Input::App(Event::Interrupt)) | Err(RecvTimeoutError::Disconnected) => {
                session.note(LogLevel::Info, "is asked to end, by a signal");
                cut = duration.is_some();
                break;
            }
            Ok(_) | Err(RecvTimeoutError::Timeout) => {}
        }
    }
    if session.sink.lost() > 0 {
        let lost = Plural(session.sink.lost(), "batch", "batches");
        session.note(LogLevel::Warning, &format!("{lost} did not reach the recorder"));
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
    #[error("nothing in the recording can be shown{}{}", if .0.is_empty() { ": nothing was recorded" } else { ": " }, .0.join("; "))]
    Empty(Vec<String>),
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
/// The least time that a live reading takes: the diagnosis judges whole seconds, and needs two scrapes in them.
const LIVE_LEAST: Duration = Duration::from_secs(3);
/// How much longer than its window a live reading waits for sources that are slow to start.
const LIVE_PATIENCE: Duration = Duration::from_secs(3);

pub(super) fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The reading of a recording `at` its start plus that long, or at its end, for the objectives of `slo`; and what is
/// missing in it.
///
/// # Errors
/// When there is no recording or it ends before that.
pub fn snapshot_of(
    input: &Recorded,
    at: Option<Duration>,
    window: Option<Duration>,
    slo: &Slo,
) -> Result<(Snapshot, Vec<String>), SnapshotError> {
    let Moment { store, at, problems, .. } = Moment::of(input, at)?;
    let window = Window::last(at, ms(window.unwrap_or(REPLAY_WINDOW)));
    Ok((snapshot(&store.read(), Mode::Replay, window, slo), problems))
}

/// A moment of a recording.
pub(super) struct Moment {
    /// All that was recorded up to it.
    pub(super) store: Store,
    /// When the recording starts.
    pub(super) start: Time,
    /// The moment.
    pub(super) at: Time,
    /// What is missing, in words.
    pub(super) problems: Vec<String>,
}

impl Moment {
    /// The moment `at` after the start of the recording, or its end.
    pub(super) fn of(input: &Recorded, at: Option<Duration>) -> Result<Self, SnapshotError> {
        let mut reader = input.open()?;
        let store = Store::of_recording(Retention::HOUR);
        let bounds = load(&mut reader, &store, at.map(ms));
        let mut problems = reader.problems().texts();
        let Some((start, end)) = bounds else { return Err(SnapshotError::Empty(problems)) };
        let wanted = at.map_or(end, |at| start + ms(at));
        if wanted > end + REPLAY_SLACK_MS {
            return Err(SnapshotError::TooLate { end_s: end.since(start) as f64 / 1000.0 });
        }
        let out_of_order = store.read().out_of_order();
        if out_of_order > 0 {
            let values = Plural(out_of_order, "value is older", "values are older");
            problems.push(format!("{values} than what was recorded before, and left out"));
        }
        Ok(Self { store, start, at: wanted, problems })
    }
}

/// Reads this machine for the length of the window, or a little longer when a source is slow to start; what probes
/// measured here before is in `files`, and the diagnosis is for the objectives of `slo`.
pub fn snapshot_now(
    clock: &Arc<dyn Clock>,
    options: &Options,
    interval: Duration,
    window: Option<Duration>,
    files: Option<&Files>,
    slo: &Slo,
) -> Snapshot {
    let window = window.unwrap_or(LIVE_WINDOW);
    let session = Session::live(clock, options, interval);
    let started = clock.now();
    let ceilings = files.map(Ceilings::load).unwrap_or_default();
    let least = started + ms(window.max(LIVE_LEAST));
    let now = wait_until_settled(&session, clock, least);
    ceilings.tell(&session.sink, now);
    snapshot(&session.store().read(), Mode::Live, Window::last(now, ms(window)), slo)
}

/// Waits until `least`, and a little longer where a source is slow to start; the moment then.
pub(super) fn wait_until_settled(session: &Session, clock: &Arc<dyn Clock>, least: Time) -> Time {
    let most = least + ms(LIVE_PATIENCE);
    loop {
        let now = clock.now();
        if now >= most || (now >= least && settled(&session.store().read(), now)) {
            return now;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Whether every source has said how it is, and each that can be read has given a rate: that takes two readings.
fn settled(data: &Data, now: Time) -> bool {
    let spoke = [SourceId::Nvml, SourceId::Host].into_iter().all(|id| data.source(id).is_some());
    let started = data.sources().all(|(_, source)| *source.state_at(now) != SourceState::Starting);
    let rated = |source, subject, metric| {
        let up = data.source(source).is_some_and(|s| !s.state_at(now).is_down());
        !up || data.latest(subject, metric, now).reading != Reading::Missing(Why::NotYet)
    };
    spoke
        && started
        && rated(SourceId::Host, Subject::Host, Metric::MajorFaults)
        && data.gpus().all(|i| rated(SourceId::Nvml, Subject::Gpu(i), Metric::SmActive))
        && data.engines().all(|i| rated(SourceId::Engine(i), Subject::Engine(i), Metric::GenerationTokens))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Batch, FactKey};

    const AT: Time = Time(100_000);

    fn say(store: &Store, source: SourceId, state: SourceState, values: &[(Subject, Metric, f64)], at: Time) {
        let mut batch = Batch::new(source, at, 3500);
        batch.state = Some(state);
        for &(subject, metric, value) in values {
            if let Subject::Gpu(_) = subject {
                batch.fact(subject, FactKey::Name, "GPU");
            }
            batch.push(subject, metric, value);
        }
        store.push(&batch);
    }

    #[test]
    fn a_live_reading_waits_for_a_rate_of_every_source_that_can_be_read() {
        let faults = [(Subject::Host, Metric::MajorFaults, 5.0)];
        let store = Store::new(Retention::HOUR);
        let settled = || settled(&store.read(), AT);
        say(&store, SourceId::Host, SourceState::Ok, &faults, AT - 1000);
        say(&store, SourceId::Host, SourceState::Ok, &faults, AT);
        assert!(!settled(), "the driver is still being opened");
        say(&store, SourceId::Nvml, SourceState::Absent("no driver".into()), &[], AT);
        assert!(settled(), "without a driver there is nothing to wait for");
        let temperature = [(Subject::Gpu(0), Metric::Temp, 40.0)];
        say(&store, SourceId::Nvml, SourceState::Ok, &temperature, AT);
        assert!(!settled(), "activity takes two samples");
        say(&store, SourceId::Nvml, SourceState::Ok, &[(Subject::Gpu(0), Metric::SmActive, 40.0)], AT);
        assert!(settled());
    }

    #[test]
    fn a_single_reading_of_the_host_is_no_rate() {
        let store = Store::new(Retention::HOUR);
        say(&store, SourceId::Nvml, SourceState::Absent("no driver".into()), &[], AT);
        say(&store, SourceId::Host, SourceState::Ok, &[(Subject::Host, Metric::MajorFaults, 5.0)], AT);
        assert!(!settled(&store.read(), AT));
    }
}
