//! A running set of sources and the store they fill: live, recorded, or filled by a test.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::app::Origin;
use crate::log::{EventLog, LogLevel};
use crate::model::Clock;
use crate::probe::files::Files;
use crate::recording::Recorder;
use crate::sampler::replay::{Input as Recorded, Replay, ReplayError};
use crate::sampler::{Context, Options, SAMPLERS, Sink, Stop};
use crate::store::{Retention, Store};

use super::endpoint::Reach;
use super::probes::{Probes, Setup};

/// A recording cannot be played.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// It cannot be opened or is no recording.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// The system gave no thread.
    #[error("cannot start to read the recording: {0}")]
    Thread(#[from] io::Error),
}

/// A running set of sources and the store they fill.
pub struct Session {
    pub(super) store: Arc<Store>,
    pub(super) sink: Sink,
    stop: Stop,
    pub(super) origin: Origin,
    pub(super) replay: Option<Replay>,
    /// How endpoints may be reached.
    reach: Reach,
    /// Where what happens is noted.
    pub(super) log: Option<EventLog>,
}

impl Session {
    /// Starts every live source, with period `interval` of the fast ones.
    pub fn live(clock: &Arc<dyn Clock>, options: &Options, interval: Duration) -> Self {
        Self::record(clock, options, interval, None)
    }

    /// The same, every batch copied to the recorder.
    pub(super) fn record(
        clock: &Arc<dyn Clock>,
        options: &Options,
        interval: Duration,
        recorder: Option<&Recorder>,
    ) -> Self {
        let store = Arc::new(Store::new(Retention::HOUR));
        let sink = Sink::new(Arc::clone(&store), recorder.map(Recorder::tap)).with_log(options.log.clone());
        let stop = Stop::default();
        let context = Context { sink: sink.clone(), clock: Arc::clone(clock), stop: stop.clone(), interval };
        for sampler in SAMPLERS {
            (sampler.start)(&context, options);
        }
        Self {
            store,
            sink,
            stop,
            origin: Origin::Live,
            replay: None,
            reach: Reach::of(options),
            log: options.log.clone(),
        }
    }

    /// Starts to read a recording.
    ///
    /// # Errors
    /// When it cannot be opened or is no recording.
    pub fn replay(input: &Recorded) -> Result<Self, SessionError> {
        let reader = input.open()?;
        let stop = Stop::default();
        let (origin, store) = match input {
            Recorded::Demo => (Origin::Demo, Store::of_recording(Retention::HOUR)),
            Recorded::File(_) => (Origin::Recording, Store::of_recording(Retention::HOUR)),
            // What it lacks may come with the next line.
            Recorded::Stdin => (Origin::Stream, Store::new(Retention::HOUR)),
        };
        let store = Arc::new(store);
        let replay = Replay::start(reader, Arc::clone(&store), stop.clone())?;
        let sink = Sink::new(Arc::clone(&store), None);
        Ok(Self { store, sink, stop, origin, replay: Some(replay), reach: Reach::default(), log: None })
    }

    /// A session on a store that something else fills.
    pub fn on(store: Arc<Store>, origin: Origin) -> Self {
        let sink = Sink::new(Arc::clone(&store), None);
        Self { store, sink, stop: Stop::default(), origin, replay: None, reach: Reach::default(), log: None }
    }

    /// The same, with a log.
    #[must_use]
    pub fn with_log(mut self, log: EventLog) -> Self {
        self.log = Some(log);
        self
    }

    /// Notes something about the program in its log, if it has one.
    pub(super) fn note(&self, level: LogLevel, words: &str) {
        if let Some(log) = &self.log {
            log.say(level, "warptop", words);
        }
    }

    /// Makes the probes ready to run on what this session reads: children of `program`, reports in `files`.
    pub fn probes(&self, clock: &Arc<dyn Clock>, files: Result<Files, String>, program: PathBuf) -> Probes {
        let (sink, clock, reach) = (self.sink.clone(), Arc::clone(clock), self.reach.clone());
        Probes::start(Setup { sink, clock, files, program, reach })
    }

    /// The store that is filled.
    pub const fn store(&self) -> &Arc<Store> {
        &self.store
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.stop.stop();
    }
}
