//! Wires everything: starts the sources, runs the loop, carries out what the app asks for.
//!
//! The only module that knows both sources and screen. The loop runs on the caller's thread and waits
//! for nobody but the terminal; sources never wait for the loop. All that comes from outside is in
//! [`Inputs`], so that the whole program runs in a test on a terminal in memory.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::Backend;

use crate::app::{App, Cost, Effect, Event, Exit, Origin, Seen};
use crate::export::snapshot::{Mode, Snapshot, snapshot};
use crate::model::text::clean;
use crate::model::{Clock, Metric, Reading, SourceId, SourceState, Subject, Time, Why};
use crate::recording::{Header, Output, RecordError, Recorder, Summary};
use crate::sampler::replay::{Input as Recorded, Replay, ReplayError, load};
use crate::sampler::{Context, Options, SAMPLERS, Sink, Stop};
use crate::store::{Data, Retention, Store, Window};
use crate::term::input::Input;
use crate::ui::panes::PANES;
use crate::ui::screen::Screen;
use crate::ui::theme::Theme;

/// Time between two frames while nothing is pressed, ms.
const FRAME_MS: u64 = 250;

/// All that the program hears from outside, and how it lets go of the terminal.
pub struct Inputs {
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// Keys and signals.
    pub events: Receiver<Input>,
    /// Stops the program until it is continued, the terminal given back meanwhile.
    pub suspend: fn() -> io::Result<()>,
    /// Takes the terminal over again.
    pub resume: fn() -> io::Result<()>,
}

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
    store: Arc<Store>,
    sink: Sink,
    stop: Stop,
    origin: Origin,
    replay: Option<Replay>,
}

impl Session {
    /// Starts every live source, with period `interval` of the fast ones.
    pub fn live(clock: &Arc<dyn Clock>, options: &Options, interval: Duration) -> Self {
        Self::record(clock, options, interval, None)
    }

    fn record(clock: &Arc<dyn Clock>, options: &Options, interval: Duration, recorder: Option<&Recorder>) -> Self {
        let store = Arc::new(Store::new(Retention::HOUR));
        let sink = Sink::new(Arc::clone(&store), recorder.map(Recorder::tap));
        let stop = Stop::default();
        let context = Context { sink: sink.clone(), clock: Arc::clone(clock), stop: stop.clone(), interval };
        for sampler in SAMPLERS {
            (sampler.start)(&context, options);
        }
        Self { store, sink, stop, origin: Origin::Live, replay: None }
    }

    /// Starts to read a recording.
    ///
    /// # Errors
    /// When it cannot be opened or is no recording.
    pub fn replay(input: &Recorded) -> Result<Self, SessionError> {
        let reader = input.open()?;
        let store = Arc::new(Store::new(Retention::HOUR));
        let stop = Stop::default();
        let origin = match input {
            Recorded::Demo => Origin::Demo,
            Recorded::Stdin => Origin::Stream,
            Recorded::File(_) => Origin::Recording,
        };
        let replay = Replay::start(reader, Arc::clone(&store), stop.clone())?;
        let sink = Sink::new(Arc::clone(&store), None);
        Ok(Self { store, sink, stop, origin, replay: Some(replay) })
    }

    /// A session on a store that something else fills.
    pub fn on(store: Arc<Store>, origin: Origin) -> Self {
        let sink = Sink::new(Arc::clone(&store), None);
        Self { store, sink, stop: Stop::default(), origin, replay: None }
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

/// What the last frame showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shown {
    at: Time,
    version: u64,
}

/// A defect to provoke, for the tests of what happens then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Panic while drawing.
    Draw,
    /// Panic on another thread.
    Thread,
}

/// The program on a terminal.
pub struct Program<B: Backend> {
    terminal: Terminal<B>,
    inputs: Inputs,
    session: Session,
    app: App,
    screen: Screen,
    cost: Cost,
    /// Notices from outside the store.
    words: Vec<String>,
    shown: Option<Shown>,
    /// A key was pressed or the screen was lost: the next frame is due at once.
    dirty: bool,
    fault: Option<Fault>,
}

impl<B: Backend> Program<B> {
    /// The program, nothing drawn yet.
    pub fn new(terminal: Terminal<B>, inputs: Inputs, session: Session, theme: Theme) -> Self {
        let app = App::new(session.origin, inputs.clock.now(), PANES.len());
        let screen = Screen::new(theme, PANES);
        let (words, cost) = (Vec::new(), Cost::default());
        Self { terminal, inputs, session, app, screen, cost, words, shown: None, dirty: true, fault: None }
    }

    /// Provokes a defect.
    pub fn provoke(&mut self, fault: Option<Fault>) {
        self.fault = fault;
    }

    /// The terminal, to look at what was drawn.
    pub const fn terminal(&self) -> &Terminal<B> {
        &self.terminal
    }

    /// The terminal, to give it another size.
    pub const fn terminal_mut(&mut self) -> &mut Terminal<B> {
        &mut self.terminal
    }

    /// The state of the screen.
    pub const fn app(&self) -> &App {
        &self.app
    }

    /// Runs until it is told to end.
    ///
    /// # Errors
    /// When the terminal cannot be drawn on.
    pub fn run(&mut self) -> Result<Exit, B::Error> {
        self.frame()?;
        loop {
            let next = match self.inputs.events.recv_timeout(Duration::from_millis(FRAME_MS)) {
                Ok(input) => Some(input),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return Ok(Exit::Interrupted),
            };
            // All that has come in meanwhile, then at most one frame.
            let mut waiting = next;
            while let Some(input) = waiting {
                if let Some(exit) = self.take(input)? {
                    return Ok(exit);
                }
                waiting = self.inputs.events.try_recv().ok();
            }
            if self.due() {
                self.frame()?;
            }
        }
    }

    /// Whether a frame would show anything new.
    fn due(&self) -> bool {
        let Some(shown) = self.shown else { return true };
        let now = self.inputs.clock.now();
        let moving = self.app.timeline.moving();
        let played = moving && self.app.timeline.plays();
        let new_data = moving && self.session.store.version() != shown.version;
        // Ages are shown to the second at least.
        self.dirty || played || new_data || now.0 / 1000 != shown.at.0 / 1000
    }

    /// Takes in an event and does what follows from it; says when the program ends.
    ///
    /// # Errors
    /// When the terminal cannot be drawn on.
    pub fn take(&mut self, input: Input) -> Result<Option<Exit>, B::Error> {
        self.dirty = true;
        let effect = match input {
            Input::App(event) => self.app.update(event),
            Input::Continued => return self.after((self.inputs.resume)().is_ok()),
        };
        match effect {
            Some(Effect::Quit(exit)) => return Ok(Some(exit)),
            Some(Effect::Suspend) => return self.after((self.inputs.suspend)().is_ok()),
            Some(Effect::Repaint) => self.repaint()?,
            Some(Effect::Demo) => self.demo(),
            None => {}
        }
        Ok(None)
    }

    /// After the terminal was given away: paints it anew, or ends when it is gone.
    fn after(&mut self, regained: bool) -> Result<Option<Exit>, B::Error> {
        if !regained {
            return Ok(Some(Exit::Interrupted));
        }
        self.repaint().map(|()| None)
    }

    fn repaint(&mut self) -> Result<(), B::Error> {
        // Not `clear`: that asks the terminal for its cursor, and the answer goes to the key reader.
        let size = self.terminal.size()?;
        self.terminal.resize(size.into())
    }

    fn demo(&mut self) {
        match Session::replay(&Recorded::Demo) {
            Ok(session) => {
                self.session = session;
                let now = self.inputs.clock.now();
                let mut app = App::new(self.session.origin, now, PANES.len());
                (app.focus, app.zoomed) = (self.app.focus, self.app.zoomed);
                (self.app, self.shown) = (app, None);
            }
            Err(error) => self.words.push(error.to_string()),
        }
    }

    /// Draws a frame.
    ///
    /// # Errors
    /// When the terminal cannot be drawn on.
    pub fn frame(&mut self) -> Result<(), B::Error> {
        let started = self.inputs.clock.micros();
        let now = self.inputs.clock.now();
        self.follow(now);
        self.terminal.autoresize()?;
        let area = self.terminal.get_frame().area();
        self.cost.lost = self.session.sink.lost();
        let version = self.session.store.version();
        let complete = self.session.replay.as_ref().is_some_and(Replay::ended);
        {
            let data = self.session.store.read();
            self.app.update(Event::Tick(now, Seen::of(&data, complete)));
            self.screen.prepare(&data, &self.app, area, self.cost, &self.words);
        }
        if let Some((columns, rows)) = self.screen.cursor_range() {
            self.app.update(Event::CursorRange(columns, rows));
        }
        let (screen, app, fault) = (&self.screen, &self.app, self.fault);
        self.terminal.draw(|frame| {
            screen.draw(frame.buffer_mut(), app);
            fail_on_purpose(fault);
        })?;
        (self.shown, self.dirty) = (Some(Shown { at: now, version }), false);
        self.cost.frame_us = self.inputs.clock.micros().saturating_sub(started);
        Ok(())
    }

    /// Tells the reader of a recording where we are, and hears how it is doing.
    fn follow(&mut self, now: Time) {
        let Some(replay) = &self.session.replay else { return };
        replay.set_playhead(self.app.view.end);
        let new_second = self.shown.is_none_or(|shown| shown.at.0 / 1000 != now.0 / 1000);
        if new_second {
            self.words = replay.problems();
        }
    }
}

#[expect(clippy::panic, reason = "the tests of the panic hook ask for it")]
fn fail_on_purpose(fault: Option<Fault>) {
    match fault {
        Some(Fault::Draw) => panic!("asked to fail while drawing"),
        Some(Fault::Thread) => {
            let body = || panic!("asked to fail on a thread");
            drop(std::thread::Builder::new().name("failing".to_owned()).spawn(body));
        }
        None => {}
    }
}

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
