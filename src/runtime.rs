//! Wires everything: starts the sources, runs the loop, carries out what the app asks for.
//!
//! The only module that knows both sources and screen. The loop runs on the caller's thread and waits
//! for nobody but the terminal; sources never wait for the loop. All that comes from outside is in
//! [`Inputs`], so that the whole program runs in a test on a terminal in memory.

mod ceilings;
mod check;
mod endpoint;
mod fault;
mod headless;
mod headless_probe;
mod machine;
mod made;
mod probes;
mod same;
mod session;
mod sweeps;

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::Backend;

use crate::app::{App, Cost, Effect, Event, Exit, Order, Seen};
use crate::diagnosis::Slo;
use crate::log::{EventLog, LogLevel};
use crate::model::text::Plural;
use crate::model::{Clock, Time};
use crate::probe::board::Board;
use crate::sampler::replay::{Input as Recorded, Replay};
use crate::term::input::Input;
use crate::ui::layout::drawn;
use crate::ui::panes::PANES;
use crate::ui::screen::Screen;
use crate::ui::theme::Theme;

pub use check::{check_now, check_of};
pub use endpoint::Reach;
pub use fault::Fault;
pub use headless::{RecordPlan, SnapshotError, record, snapshot_now, snapshot_of};
pub use headless_probe::{Interrupted, Prepared, Ran, Step, Wanted, wait};
pub use probes::{Manner, Probes, Setup};
pub use session::{Session, SessionError};

/// Time between two looks for something new while nothing is pressed, ms.
const FRAME_MS: u64 = 250;
/// New readings are drawn this often, ms: a column of a plot is a second or more, a key is answered at once, and frames
/// are half of what warptop costs.
const READINGS_MS: u64 = 500;

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

/// What the last frame showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shown {
    at: Time,
    version: u64,
}

/// The program on a terminal.
pub struct Program<B: Backend> {
    terminal: Terminal<B>,
    inputs: Inputs,
    session: Session,
    /// Where probes can be run: on the machine itself.
    probes: Option<Probes>,
    /// The state of the probes that the screen was shown last.
    probed: Option<u64>,
    /// The version of the log that the screen was given last.
    logged: Option<u64>,
    /// Readings that were lost, as far as that was noted.
    lost: u64,
    app: App,
    screen: Screen,
    cost: Cost,
    /// Notices from outside the store.
    words: Vec<String>,
    /// The probe that runs, in words.
    running: Vec<String>,
    /// Whether the demo was asked for while a probe runs.
    demo_waits: bool,
    shown: Option<Shown>,
    /// A key was pressed or the screen was lost: the next frame is due at once.
    dirty: bool,
    fault: Option<Fault>,
}

impl<B: Backend> Program<B> {
    /// The program, nothing drawn yet.
    pub fn new(terminal: Terminal<B>, inputs: Inputs, session: Session, theme: Theme) -> Self {
        let app = new_app(&session, inputs.clock.now());
        let screen = Screen::new(theme, PANES);
        let (words, cost) = (Vec::new(), Cost::default());
        Self {
            terminal,
            inputs,
            session,
            probes: None,
            probed: None,
            logged: None,
            lost: 0,
            app,
            screen,
            cost,
            words,
            running: Vec::new(),
            demo_waits: false,
            shown: None,
            dirty: true,
            fault: None,
        }
    }

    /// Lets probes be run.
    pub fn run_probes(&mut self, probes: Probes) {
        self.probes = Some(probes);
    }

    /// Judges by these objectives from now on.
    pub fn judge_by(&mut self, slo: Slo) {
        self.screen.judge_by(slo);
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
        self.dirty = true;
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
        let moving = self.app.playhead.moving();
        let played = moving && self.app.playhead.plays();
        let new_data = moving && self.session.store.version() != shown.version && now.since(shown.at) >= READINGS_MS;
        // Ages are shown to the second at least.
        let probed = self.probes.as_ref().map(Probes::version) != self.probed;
        self.dirty || played || new_data || probed || now.0 / 1000 != shown.at.0 / 1000
    }

    /// Takes in an event and does what follows from it; says when the program ends.
    ///
    /// # Errors
    /// When the terminal cannot be drawn on.
    pub fn take(&mut self, input: Input) -> Result<Option<Exit>, B::Error> {
        self.dirty = true;
        if input == Input::App(Event::Interrupt) {
            self.session.note(LogLevel::Info, "is asked to end, by a signal or because the terminal is gone");
        }
        let effect = match input {
            Input::App(event) => self.app.update(event),
            Input::Stop => Some(Effect::Suspend),
            Input::Continued => return self.after((self.inputs.resume)().is_ok()),
        };
        match effect {
            Some(Effect::Quit(exit)) => {
                self.end_probes();
                return Ok(Some(exit));
            }
            Some(Effect::Suspend) => {
                // A program that stands still watches over nothing.
                self.end_probes();
                self.session.note(LogLevel::Info, "is stopped (Ctrl-Z)");
                return self.after((self.inputs.suspend)().is_ok());
            }
            Some(Effect::Repaint) => self.repaint()?,
            Some(Effect::Demo) => self.demo(),
            Some(Effect::Probe(order)) => self.order(order),
            None => {}
        }
        Ok(None)
    }

    /// After the terminal was given away: paints it anew, or ends when it is gone.
    fn after(&mut self, regained: bool) -> Result<Option<Exit>, B::Error> {
        if !regained {
            return Ok(Some(Exit::Interrupted));
        }
        self.session.note(LogLevel::Info, "goes on");
        self.repaint().map(|()| None)
    }

    fn repaint(&mut self) -> Result<(), B::Error> {
        // Not `clear`: that asks the terminal for its cursor, and the answer goes to the key reader.
        let size = self.terminal.size()?;
        self.terminal.resize(drawn(size))
    }

    /// Takes the size that the terminal has now, as far as it is drawn.
    fn fit(&mut self) -> Result<(), B::Error> {
        let area = drawn(self.terminal.size()?);
        if area == self.terminal.get_frame().area() { Ok(()) } else { self.terminal.resize(area) }
    }

    /// Ends whatever runs, and waits a moment for its report.
    fn end_probes(&self) {
        if let Some(probes) = &self.probes {
            probes.quit();
        }
    }

    fn order(&self, order: Order) {
        let Some(probes) = &self.probes else { return };
        match order {
            Order::Ask(place, aim) => probes.ask(place, aim, None, Manner::default()),
            Order::Yes => probes.answer(true),
            Order::No => probes.answer(false),
            Order::Force => probes.force(),
            Order::Seen => probes.seen(),
            Order::Stop => probes.stop(),
        }
    }

    fn demo(&mut self) {
        // With the probes would go the run and its report.
        if self.probes.as_ref().is_some_and(|probes| !probes.board().is_settled()) {
            (self.demo_waits, self.probed) = (true, None);
            return;
        }
        match Session::replay(&Recorded::Demo) {
            Ok(session) => {
                // A recording is no machine to measure.
                (self.session, self.probes) = (session, None);
                let now = self.inputs.clock.now();
                let mut app = new_app(&self.session, now);
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
        self.look_at_probes();
        self.look_at_log();
        // A change of size is an event, which makes the screen dirty; to ask opens the terminal anew each time.
        if self.dirty || self.is_new_second(now) {
            self.fit()?;
        }
        let area = self.terminal.get_frame().area();
        self.cost.lost = self.session.sink.lost();
        if self.cost.lost > self.lost {
            let lost = Plural(self.cost.lost - self.lost, "batch", "batches");
            let words = format!("{lost} did not reach the recorder");
            self.session.note(LogLevel::Warning, &words);
            self.lost = self.cost.lost;
        }
        let version = self.session.store.version();
        let complete = self.session.replay.as_ref().is_some_and(Replay::ended);
        {
            let data = self.session.store.read();
            self.app.update(Event::Tick(now, Seen::of(&data, complete)));
            let words = [&self.words[..], &self.running[..]].concat();
            self.screen.prepare(&data, &self.app, area, self.cost, &words);
        }
        self.app.update(Event::CursorRange(self.screen.cursor_range()));
        if let Some(last) = self.screen.last_line() {
            self.app.update(Event::LastLine(last));
        }
        let (screen, app, fault) = (&self.screen, &self.app, self.fault);
        screen.draw(self.terminal.get_frame().buffer_mut(), app);
        fault.into_iter().for_each(fault::provoke);
        self.terminal.apply_buffer()?;
        self.app.update(Event::Readable(self.screen.asks()));
        (self.shown, self.dirty) = (Some(Shown { at: now, version }), false);
        self.cost.frame_us = self.inputs.clock.micros().saturating_sub(started);
        Ok(())
    }

    /// Gives the screen the lines of the log, while it is open and there are new ones.
    fn look_at_log(&mut self) {
        let log = self.session.log.as_ref().filter(|_| self.app.log.is_some());
        let version = self.app.log.map(|_| log.map_or(0, EventLog::version));
        // What is read in the middle of it holds still.
        let reads = self.logged.is_some() && self.app.log.is_some_and(|back| back > 0);
        if self.logged == version || reads {
            return;
        }
        self.logged = version;
        let lines = log.map(|log| (log.lines(), log.place()));
        self.screen.log(lines.as_ref().map(|(lines, place)| (lines.as_slice(), *place)));
    }

    /// Shows the screen where the probes stand, if that has changed; whatever runs is said outside their pane too.
    fn look_at_probes(&mut self) {
        let version = self.probes.as_ref().map(Probes::version);
        if version == self.probed && self.shown.is_some() {
            return;
        }
        self.probed = version;
        let board = self.probes.as_ref().map(|probes| probes.board().clone());
        self.app.update(Event::Asking(board.as_ref().and_then(|board| Some(board.confirming()?.0))));
        self.app.update(Event::Noted(board.as_ref().is_some_and(Board::has_notes)));
        self.running.clear();
        self.running.extend(board.as_ref().and_then(Board::running));
        self.demo_waits &= board.as_ref().is_some_and(|board| !board.is_settled());
        if self.demo_waits {
            self.running.push("the demo has to wait for the probe".to_owned());
        }
        self.screen.probes(board.as_ref());
    }

    /// Tells the reader of a recording where we are, and hears how it is doing.
    fn follow(&mut self, now: Time) {
        let Some(replay) = &self.session.replay else { return };
        replay.set_playhead(self.app.view.end);
        if self.is_new_second(now) {
            self.words = replay.problems();
        }
    }

    /// Whether no frame was drawn in this second yet.
    fn is_new_second(&self, now: Time) -> bool {
        self.shown.is_none_or(|shown| shown.at.0 / 1000 != now.0 / 1000)
    }
}

/// The state of a screen on this session.
fn new_app(session: &Session, now: Time) -> App {
    let place = |id| PANES.iter().position(|pane| pane.id == id);
    App::new(session.origin, now, PANES.len()).with_probes(place("probes")).without_gpu(place("latency"))
}
