//! The life of a probe, as a pure state machine: idle → confirm → preflight → running → cooling → done,
//! stopped, refused or failed.
//!
//! An event comes in with the time it happened; a state and the effects to carry out come out. It must
//! not know processes, files, GPUs or clocks. Invariants, each tested under every short sequence of
//! events: nothing starts without consent and an answer of the preflight; a run starts once and its
//! report is asked for once; no other run starts before the child of the last one is known to be gone;
//! whatever happens, stopping ends the run; events of another run change nothing.

use std::sync::Arc;

use crate::model::Time;

use super::protocol::{Failure, Message, Outcome};
use super::spec::{Params, Target};

/// How long the readings that the preflight needs may stay away, ms.
const PREFLIGHT_MS: u64 = 10_000;
/// How long a child may take to introduce itself, ms.
const HELLO_MS: u64 = 10_000;
/// How long a child may say nothing, ms. Loading the driver and compiling kernels take seconds where
/// persistence mode is off.
const SILENCE_MS: u64 = 30_000;
/// How long a child that was asked to stop may take, ms. What it holds has to be back within a second.
const GRACE_MS: u64 = 400;
/// After how long a kill is sent once more, ms: a process that hangs in the driver takes it when it comes back.
const KILL_AGAIN_MS: u64 = 1_000;
/// How long a child may take to end after its last word, ms.
const EXIT_MS: u64 = 3_000;
/// Cool-down after a run that did not go well, ms: enough to see its words, and for the target to settle.
const SHORT_COOL_MS: u64 = 2_000;

/// A request to run a probe.
#[derive(Clone, Debug, PartialEq)]
pub struct Ask {
    /// Name for the run, should it become one.
    pub run: Arc<str>,
    /// What it is aimed at.
    pub target: Target,
    /// The probe's own parameters.
    pub params: Params,
    /// Whether it shall run where the guard can be overruled.
    pub forced: bool,
    /// Share of time that it may keep the target busy, %, where that was chosen.
    pub duty: Option<u8>,
    /// Whether its cost was agreed to already.
    pub agreed: bool,
    /// How long it may take at most, ms.
    pub most_ms: u64,
}

impl Ask {
    /// Whether both want the same measurement.
    pub fn same(&self, other: &Self) -> bool {
        self.target == other.target && self.params == other.params && self.duty == other.duty
    }
}

/// Why a probe was not started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What stands against it, in words.
    pub why: String,
    /// Whether it may be forced.
    pub can_force: bool,
    /// What to do instead, or what forcing means.
    pub hint: String,
}

/// Who or what stopped a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stopper {
    /// A key or an interrupt.
    User,
    /// The end of warptop.
    Exit,
    /// The probe.
    Probe,
    /// What watches the machine: why, in words.
    Guard(String),
}

impl Stopper {
    /// What follows "stopped: ".
    pub fn words(&self) -> &str {
        match self {
            Self::User => "by the user",
            Self::Exit => "the program was left",
            Self::Probe => "by itself",
            Self::Guard(why) => why,
        }
    }
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
pub enum End {
    /// With a result.
    Done,
    /// Because it was told to.
    Stopped(Stopper),
    /// What it needs is not here: in words. Nothing was measured.
    Unavailable(String),
    /// Without a result, and why.
    Failed(String),
}

impl End {
    /// Its name in reports and marks.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Stopped(_) => "stopped",
            Self::Unavailable(_) => "refused",
            Self::Failed(_) => "failed",
        }
    }

    /// Why it is not a result; empty when it is one.
    pub fn why(&self) -> &str {
        match self {
            Self::Done => "",
            Self::Stopped(stopper) => stopper.words(),
            Self::Unavailable(why) | Self::Failed(why) => why,
        }
    }
}

/// A run while its child lives.
#[derive(Clone, Debug, PartialEq)]
pub struct Running {
    /// What was asked for.
    pub ask: Ask,
    /// Since when.
    pub since: Time,
    /// When the child was last heard.
    pub heard: Time,
    /// Whether the child has introduced itself.
    pub greeted: bool,
    /// Share that is done (0 to 1), time left in s, and what it is doing.
    pub progress: (f64, Option<f64>, String),
    /// What it found; the child only has to end.
    pub outcome: Option<Outcome>,
    /// Since when it is being ended, and as what.
    pub ending: Option<(Time, End)>,
    /// When it was last killed.
    killed: Option<Time>,
}

/// A run that is over.
#[derive(Clone, Debug, PartialEq)]
pub struct Ended {
    /// What was asked for.
    pub ask: Ask,
    /// From when to when it ran.
    pub span: (Time, Time),
    /// How it ended.
    pub end: End,
    /// Whether its report is on disk: where, or why not. `None` until the answer comes.
    pub kept: Option<Result<String, String>>,
}

/// Where a probe stands.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum State {
    /// Nothing was asked for.
    #[default]
    Idle,
    /// The cost is shown; an answer is waited for.
    Confirm(Ask),
    /// The guard looks at the machine.
    Preflight(Ask, Time),
    /// The child lives.
    Running(Box<Running>),
    /// The child is gone; until then the same request means this run.
    Cooling(Ended, Time),
    /// Over, with a result.
    Done(Ended),
    /// Over, told to stop.
    Stopped(Ended),
    /// Did not run: the guard, or something that is not here.
    Refused(Ask, Refusal),
    /// Over, without a result.
    Failed(Ended),
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Somebody wants it.
    Ask(Ask),
    /// Somebody wants it, but it can never run here: there is nothing to agree to.
    Unable(Ask, Refusal),
    /// The cost is agreed to.
    Yes,
    /// It is not.
    No,
    /// The guard lets the run pass.
    Admitted(Arc<str>),
    /// The guard does not.
    Refused(Arc<str>, Refusal),
    /// The child of the run said something.
    Heard(Arc<str>, Message),
    /// The child of the run could not be started or broke the rules of its stream: in words.
    Broke(Arc<str>, String),
    /// The child of the run is gone, with its whole process group; what else is known of its end.
    Gone(Arc<str>, String),
    /// The guard wants the run to end: why.
    Abort(Arc<str>, String),
    /// Somebody wants it to end.
    Stop,
    /// What was said about the end of the last run, or why there was none, has been read.
    Seen,
    /// The program ends.
    Quit,
    /// The report of the run was written there, or could not be.
    Kept(Arc<str>, Result<String, String>),
    /// Time passed.
    Tick,
}

/// Something to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Let the guard look at the machine, until it answers.
    Preflight(Ask),
    /// Start the child.
    Start(Ask),
    /// Ask the child to end.
    AskToStop(Arc<str>),
    /// Kill the child with its process group.
    Kill(Arc<str>),
    /// Write the report.
    Report(Box<Ended>, Option<Outcome>),
    /// It did not come to a run: give back what the preflight took.
    Release(Arc<str>),
    /// The request is this run, which is there already.
    Same(Arc<str>),
    /// Another request is being carried out.
    Busy(Arc<str>),
}

/// The life of one probe.
#[derive(Clone, Debug, PartialEq)]
pub struct Life {
    state: State,
    cool_ms: u64,
}

impl Life {
    /// A probe that nobody asked for; after a good run it cools down for `cool_ms`.
    pub const fn new(cool_ms: u64) -> Self {
        Self { state: State::Idle, cool_ms }
    }

    /// Where it stands.
    pub const fn state(&self) -> &State {
        &self.state
    }

    /// Whether it holds the machine: from the preflight until its child is gone.
    pub const fn is_active(&self) -> bool {
        matches!(self.state, State::Preflight(..) | State::Running(_))
    }

    /// Whether nothing is under way and the report of the last run was written, or could not be.
    pub const fn is_settled(&self) -> bool {
        match &self.state {
            State::Idle | State::Confirm(_) | State::Refused(..) => true,
            State::Preflight(..) | State::Running(_) => false,
            State::Cooling(ended, _) | State::Done(ended) | State::Stopped(ended) | State::Failed(ended) => {
                ended.kept.is_some()
            }
        }
    }

    /// The run that is being prepared, runs, or is over.
    pub const fn run(&self) -> Option<&Arc<str>> {
        match &self.state {
            State::Idle => None,
            State::Confirm(ask) | State::Preflight(ask, _) | State::Refused(ask, _) => Some(&ask.run),
            State::Running(running) => Some(&running.ask.run),
            State::Cooling(ended, _) | State::Done(ended) | State::Stopped(ended) | State::Failed(ended) => {
                Some(&ended.ask.run)
            }
        }
    }

    /// Takes in what happened at `now`.
    pub fn on(&mut self, now: Time, event: Event) -> Vec<Effect> {
        // Not for us: the answer to something that is over.
        let run = match &event {
            Event::Admitted(run)
            | Event::Refused(run, _)
            | Event::Heard(run, _)
            | Event::Broke(run, _)
            | Event::Gone(run, _)
            | Event::Abort(run, _)
            | Event::Kept(run, _) => Some(run),
            Event::Ask(_)
            | Event::Unable(..)
            | Event::Yes
            | Event::No
            | Event::Stop
            | Event::Seen
            | Event::Quit
            | Event::Tick => None,
        };
        if run.is_some() && run != self.run() {
            return Vec::new();
        }
        let (state, effects) = match (std::mem::take(&mut self.state), event) {
            (state, Event::Ask(ask)) => asked(state, now, ask),
            (state, Event::Unable(ask, refusal)) => match asked(state, now, Ask { agreed: false, ..ask }) {
                (State::Confirm(ask), _) => (State::Refused(ask, refusal), Vec::new()),
                busy => busy,
            },
            (State::Running(running), event) => self.running(now, running, event),
            (State::Confirm(ask), Event::Yes) => begin(ask, now),
            (State::Confirm(_), Event::No | Event::Stop | Event::Quit) => (State::Idle, Vec::new()),
            (state, Event::Seen) if is_news(&state) => (State::Idle, Vec::new()),
            (State::Preflight(ask, since), event) => preflight(now, ask, since, event),
            (State::Cooling(ended, until), Event::Tick) if now >= until => (over(ended), Vec::new()),
            (State::Cooling(ended, until), Event::Kept(_, kept)) => (State::Cooling(keep(ended, kept), until), vec![]),
            (State::Done(ended), Event::Kept(_, kept)) => (State::Done(keep(ended, kept)), Vec::new()),
            (State::Stopped(ended), Event::Kept(_, kept)) => (State::Stopped(keep(ended, kept)), Vec::new()),
            (State::Failed(ended), Event::Kept(_, kept)) => (State::Failed(keep(ended, kept)), Vec::new()),
            (state, _) => (state, Vec::new()),
        };
        self.state = state;
        effects
    }

    fn running(&self, now: Time, mut run: Box<Running>, event: Event) -> (State, Vec<Effect>) {
        let id = Arc::clone(&run.ask.run);
        let effects = match event {
            Event::Heard(_, message) => {
                hear(&mut run, now, message);
                Vec::new()
            }
            Event::Broke(_, why) => kill(&mut run, now, End::Failed(why)),
            Event::Abort(_, why) => ask_to_stop(&mut run, now, End::Stopped(Stopper::Guard(why))),
            Event::Stop => ask_to_stop(&mut run, now, End::Stopped(Stopper::User)),
            Event::Quit => ask_to_stop(&mut run, now, End::Stopped(Stopper::Exit)),
            Event::Tick => watch(&mut run, now),
            Event::Gone(_, how) => return self.gone(now, *run, &how),
            Event::Ask(_)
            | Event::Unable(..)
            | Event::Seen
            | Event::Yes
            | Event::No
            | Event::Admitted(_)
            | Event::Refused(..)
            | Event::Kept(..) => Vec::new(),
        };
        debug_assert_eq!(id, run.ask.run);
        (State::Running(run), effects)
    }

    /// The child is gone: what that means, and the one report of it.
    fn gone(&self, now: Time, run: Running, how: &str) -> (State, Vec<Effect>) {
        let end = match (run.ending, &run.outcome) {
            // What it found is whole, even if it was told to stop in the same moment; unless it broke the rules.
            (None | Some((_, End::Stopped(_))), Some(_)) => End::Done,
            (Some((_, end)), _) => end,
            (None, None) => End::Failed(format!("the probe's process ended without a result ({how})")),
        };
        let cool = if end == End::Done { self.cool_ms } else { SHORT_COOL_MS.min(self.cool_ms) };
        let ended = Ended { ask: run.ask, span: (run.since, now), end, kept: None };
        let report = Effect::Report(Box::new(ended.clone()), run.outcome);
        (State::Cooling(ended, now + cool), vec![report])
    }
}

/// Whether it is only there to be read: how a run ended whose report is written, or why there was none.
const fn is_news(state: &State) -> bool {
    match state {
        State::Refused(..) => true,
        State::Stopped(ended) | State::Failed(ended) => ended.kept.is_some(),
        _ => false,
    }
}

fn asked(state: State, now: Time, ask: Ask) -> (State, Vec<Effect>) {
    let there = match &state {
        State::Preflight(there, _) => Some(there),
        State::Running(running) => Some(&running.ask),
        State::Cooling(ended, until) if now < *until && ended.ask.same(&ask) => Some(&ended.ask),
        _ => None,
    };
    if let Some(there) = there {
        let run = Arc::clone(&there.run);
        let effect = if there.same(&ask) { Effect::Same(run) } else { Effect::Busy(run) };
        return (state, vec![effect]);
    }
    if ask.agreed { begin(ask, now) } else { (State::Confirm(ask), Vec::new()) }
}

fn begin(ask: Ask, now: Time) -> (State, Vec<Effect>) {
    let effect = Effect::Preflight(ask.clone());
    (State::Preflight(ask, now), vec![effect])
}

fn preflight(now: Time, ask: Ask, since: Time, event: Event) -> (State, Vec<Effect>) {
    let release = |ask: &Ask| vec![Effect::Release(Arc::clone(&ask.run))];
    match event {
        Event::Admitted(_) => {
            let progress = (0.0, None, "starting".to_owned());
            let start = Effect::Start(ask.clone());
            let running = Running {
                ask,
                since: now,
                heard: now,
                greeted: false,
                progress,
                outcome: None,
                ending: None,
                killed: None,
            };
            (State::Running(Box::new(running)), vec![start])
        }
        Event::Refused(_, refusal) => {
            let effects = release(&ask);
            (State::Refused(ask, refusal), effects)
        }
        Event::Stop | Event::Quit | Event::No => (State::Idle, release(&ask)),
        Event::Tick if now.since(since) >= PREFLIGHT_MS => {
            let refusal = Refusal {
                why: "the state of the machine is not known: no readings came within 10 s".to_owned(),
                can_force: false,
                hint: "see the notices of the screen, or `warptop snapshot --json`, for what cannot be read".to_owned(),
            };
            let effects = release(&ask);
            (State::Refused(ask, refusal), effects)
        }
        _ => (State::Preflight(ask, since), Vec::new()),
    }
}

fn hear(run: &mut Running, now: Time, message: Message) {
    run.heard = now;
    match message {
        Message::Hello { .. } => run.greeted = true,
        Message::Progress { done, eta_s, what } => {
            // Never back: a bar that jumps tells nothing.
            run.progress = (done.max(run.progress.0), eta_s, what);
        }
        Message::Result(outcome) if run.outcome.is_none() => {
            run.progress = (1.0, Some(0.0), "done".to_owned());
            run.outcome = Some(outcome);
        }
        // The first word about the end counts.
        Message::Error(failure) if run.ending.is_none() && run.outcome.is_none() => {
            let end = match failure {
                Failure::Stopped => End::Stopped(Stopper::Probe),
                Failure::Unavailable(why) => End::Unavailable(why),
                Failure::Failed(why) => End::Failed(why),
            };
            run.ending = Some((now, end));
        }
        Message::Sample(_) | Message::Level(_) | Message::LeftOut { .. } | Message::Result(_) | Message::Error(_) => {}
    }
}

fn ask_to_stop(run: &mut Running, now: Time, end: End) -> Vec<Effect> {
    if run.ending.is_some() {
        return Vec::new();
    }
    run.ending = Some((now, end));
    vec![Effect::AskToStop(Arc::clone(&run.ask.run))]
}

fn kill(run: &mut Running, now: Time, end: End) -> Vec<Effect> {
    if run.killed.is_some() {
        return Vec::new();
    }
    // It broke the rules: that is the reason, unless somebody had stopped it before.
    if run.ending.is_none() {
        run.ending = Some((now, end));
        run.outcome = None;
    }
    run.killed = Some(now);
    vec![Effect::Kill(Arc::clone(&run.ask.run))]
}

/// Holds a child to its time.
fn watch(run: &mut Running, now: Time) -> Vec<Effect> {
    let silent = now.since(run.heard);
    if let Some(last) = run.killed {
        if now.since(last) < KILL_AGAIN_MS {
            return Vec::new();
        }
        run.killed = Some(now);
        return vec![Effect::Kill(Arc::clone(&run.ask.run))];
    }
    let overdue = match (&run.ending, &run.outcome) {
        (Some((since, _)), _) => now.since(*since) >= GRACE_MS,
        (None, Some(_)) => silent >= EXIT_MS,
        (None, None) => false,
    };
    if overdue {
        run.killed = Some(now);
        return vec![Effect::Kill(Arc::clone(&run.ask.run))];
    }
    let why = if run.ending.is_some() || run.outcome.is_some() {
        return Vec::new();
    } else if now.since(run.since) >= run.ask.most_ms {
        format!("it took longer than the {} s it may take", run.ask.most_ms / 1000)
    } else if !run.greeted && silent >= HELLO_MS {
        format!("the probe's process did not introduce itself within {} s", HELLO_MS / 1000)
    } else if silent >= SILENCE_MS {
        format!("the probe's process said nothing for {} s", SILENCE_MS / 1000)
    } else {
        return Vec::new();
    };
    // One that hangs does not hear a request.
    kill(run, now, End::Failed(why))
}

fn over(ended: Ended) -> State {
    match &ended.end {
        End::Done => State::Done(ended),
        End::Stopped(_) => State::Stopped(ended),
        End::Unavailable(why) => {
            let refusal = Refusal { why: why.clone(), can_force: false, hint: String::new() };
            State::Refused(ended.ask, refusal)
        }
        End::Failed(_) => State::Failed(ended),
    }
}

fn keep(mut ended: Ended, kept: Result<String, String>) -> Ended {
    ended.kept = Some(kept);
    ended
}

#[cfg(test)]
#[path = "life/tests.rs"]
mod tests;
