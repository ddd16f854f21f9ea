//! One probe without a screen.
//!
//! Invariant: the same request in another process, running or just over, is one run: this one waits for it
//! and hands on its report. Not so for probes whose every request is a measurement of its own.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use super::made::blank;
use super::probes::Manner;
use super::same::{holder, recent, request};
use super::{Inputs, Session, endpoint, machine};
use crate::app::Event;
use crate::model::{SourceId, SourceState, Time};
use crate::probe::files::{Files, Holder, Locked};
use crate::probe::life::{Ask, End, Refusal, State, Stopper};
use crate::probe::report::{Ending, Report};
use crate::probe::{Aim, Cost, Needs, PROBES, Params, Probe};
use crate::sampler::Options;
use crate::store::Data;
use crate::term::input::Input;

/// How long sources may take until the guard has to make do with what is known, ms.
const SOURCES_MS: u64 = 5_000;
/// How often the board is looked at.
const EVERY: Duration = Duration::from_millis(50);

/// What is wanted.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Place of the probe in [`PROBES`].
    pub place: usize,
    /// The GPU or the engine, where it needs one.
    pub aim: Aim,
    /// Its parameters.
    pub params: Params,
    /// Whether to overrule the guard where that is possible.
    pub forced: bool,
    /// Share of time that it may keep the target busy, %, where that was chosen.
    pub duty: Option<u8>,
}

/// A run that only has to be agreed to.
pub struct Prepared {
    session: Session,
    wanted: Wanted,
    ask: Ask,
    files: Result<Files, String>,
    unfit: Option<Refusal>,
    /// What it will cost.
    pub cost: Cost,
    /// What it runs on, in words.
    pub target: String,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Ran {
    /// The report; of a refused run with nothing but the reason.
    pub report: Report,
    /// Where the report is kept, or why not. `None` for a run that did not begin.
    pub kept: Option<Result<String, String>>,
    /// What to do about a refusal.
    pub hint: String,
    /// Whether the guard can be overruled.
    pub can_force: bool,
    /// Whether it is the run of another process.
    pub joined: bool,
    /// Whether the user stopped it here.
    pub by_user: bool,
}

impl Ran {
    const fn of(report: Report) -> Self {
        Self { report, kept: None, hint: String::new(), can_force: false, joined: false, by_user: false }
    }
}

/// The user wants to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupted;

/// How far a run is.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Share that is done, 0 to 1.
    pub done: f64,
    /// Time left, s, where it can be told.
    pub eta_s: Option<f64>,
    /// What it is doing.
    pub what: String,
}

impl Prepared {
    /// Starts the sources and waits until the guard has something to look at.
    ///
    /// # Errors
    /// When the user leaves meanwhile.
    pub fn new(
        inputs: &Inputs,
        options: &Options,
        interval: Duration,
        files: Result<Files, String>,
        mut wanted: Wanted,
    ) -> Result<Self, Interrupted> {
        let session = Session::live(&inputs.clock, options, interval);
        let spec = &PROBES[wanted.place].spec;
        let began = inputs.clock.now();
        while !is_known(&session.store().read(), spec.needs, options, inputs.clock.now())
            && inputs.clock.now().since(began) < SOURCES_MS
        {
            wait(inputs)?;
        }
        let now = inputs.clock.now();
        let mut unfit = None;
        if spec.needs == Needs::Endpoint {
            match endpoint::chosen(&session.store().read(), &options.engine_urls, now) {
                Ok(engine) => wanted.aim.engine = engine,
                Err(refusal) => unfit = Some(refusal),
            }
        }
        let target = machine::target(&session.store().read(), spec.needs, wanted.aim, now);
        let words = target.to_string();
        let probe = &PROBES[wanted.place];
        let Wanted { params, forced, duty, .. } = wanted.clone();
        let ask = request(probe, target, params, Manner { forced, duty, agreed: true }, now);
        let cost = spec.costs(&ask.params, &ask.target);
        let unfit = unfit.or_else(|| machine::unfit(&session.store().read(), spec.needs, &ask.target, &cost, now));
        Ok(Self { session, wanted, ask, files, unfit, cost, target: words })
    }

    /// What becomes of it where it can never run: there is nothing to agree to.
    pub fn unfit(&self, inputs: &Inputs) -> Option<Ran> {
        let refusal = self.unfit.as_ref()?;
        Some(refused(inputs, &PROBES[self.wanted.place], &self.ask, refusal))
    }

    /// Runs it as a child of this process, from `program`, and says how far it is.
    ///
    /// # Errors
    /// When the user leaves while it waits for another process.
    pub fn run(&self, inputs: &Inputs, program: PathBuf, mut say: impl FnMut(&Step)) -> Result<Ran, Interrupted> {
        if let Some(ran) = self.join(inputs, &mut say)? {
            return Ok(ran);
        }
        let probes = self.session.probes(&inputs.clock, self.files.clone(), program);
        let place = self.wanted.place;
        let manner = Manner { forced: self.wanted.forced, duty: self.wanted.duty, agreed: true };
        probes.ask(place, self.wanted.aim, Some(self.wanted.params.clone()), manner);
        loop {
            if wait(inputs).is_err() {
                probes.stop();
            }
            let board = probes.board();
            let row = &board.rows()[place];
            match row.life.state() {
                State::Running(running) => {
                    let (done, eta_s, what) = running.progress.clone();
                    let what = if running.ending.is_some() { "stopping".to_owned() } else { what };
                    drop(board);
                    say(&Step { done, eta_s, what });
                }
                State::Idle => return Err(Interrupted),
                State::Refused(ask, refusal) => {
                    let ran = refused(inputs, &PROBES[place], ask, refusal);
                    drop(board);
                    // Two that begin in the same moment: one has the machine, the other waits for it after all.
                    return Ok(self.join(inputs, &mut say)?.unwrap_or(ran));
                }
                State::Cooling(ended, _) | State::Done(ended) | State::Stopped(ended) | State::Failed(ended) => {
                    let (run, kept) = (Arc::clone(&ended.ask.run), ended.kept.clone());
                    let by_user = ended.end == End::Stopped(Stopper::User);
                    drop(board);
                    if let (Some(report), Some(kept)) = (probes.report(&run), kept) {
                        return Ok(Ran { kept: Some(kept), by_user, ..Ran::of(report) });
                    }
                }
                State::Confirm(_) | State::Preflight(..) => {}
            }
        }
    }

    /// Waits for another process that does the same, and returns its report; `None` when there is none.
    fn join(&self, inputs: &Inputs, say: &mut impl FnMut(&Step)) -> Result<Option<Ran>, Interrupted> {
        let Ok(files) = &self.files else { return Ok(None) };
        let probe = &PROBES[self.wanted.place];
        if !probe.spec.stands_for_same() {
            return Ok(None);
        }
        let mut joined: Option<Holder> = None;
        loop {
            let report = recent(files, probe, &self.ask, inputs.clock.now());
            // It may have ended without a result: its report says so, whatever the cool-down.
            let report = report.or_else(|| joined.as_ref().and_then(|holder| files.load(&holder.run).ok()));
            if let Some(report) = report {
                return Ok(Some(Ran { joined: true, ..Ran::of(report) }));
            }
            match files.lock(&holder(probe, &self.ask)) {
                Ok(Locked::Theirs(Some(who))) if self.is_same(&who) => {
                    let what = format!("waits for process {}, which does the same", who.pid);
                    say(&Step { done: 0.0, eta_s: None, what });
                    joined = Some(who);
                }
                // Not ours to wait for, or over without a report: the guard has the word.
                _ => return Ok(None),
            }
            wait(inputs)?;
        }
    }

    fn is_same(&self, holder: &Holder) -> bool {
        holder.probe == PROBES[self.wanted.place].spec.id
            && holder.target == self.ask.target
            && holder.params == self.ask.params
            && holder.duty == self.ask.duty
    }
}

fn refused(inputs: &Inputs, probe: &Probe, ask: &Ask, refusal: &Refusal) -> Ran {
    let mut report = blank(probe, ask, Ending::Refused, &refusal.why);
    let now = inputs.clock.now().0;
    (report.started_unix_ms, report.ended_unix_ms) = (now, now);
    report.host = machine::host_name();
    Ran { hint: refusal.hint.clone(), can_force: refusal.can_force, ..Ran::of(report) }
}

/// Waits a moment, or until the user leaves.
///
/// # Errors
/// When the user leaves.
pub fn wait(inputs: &Inputs) -> Result<(), Interrupted> {
    match inputs.events.recv_timeout(EVERY) {
        Ok(Input::App(Event::Interrupt)) | Err(RecvTimeoutError::Disconnected) => Err(Interrupted),
        Ok(_) | Err(RecvTimeoutError::Timeout) => Ok(()),
    }
}

/// Whether every source that the guard asks has said how it is.
fn is_known(data: &Data, needs: Needs, options: &Options, now: Time) -> bool {
    let spoke = |id| data.source(id).is_some_and(|source| *source.state_at(now) != SourceState::Starting);
    let searched = || !options.discover || spoke(SourceId::Discovery);
    spoke(SourceId::Host)
        && match needs {
            Needs::Host => searched(),
            Needs::Gpu | Needs::Gpus(_) => spoke(SourceId::Nvml),
            Needs::Endpoint => endpoint::is_known(data, options, now),
        }
}
