//! Runs probes: one thread that carries out what their lives ask for and holds them to the guard.
//!
//! The screen and the command line only speak to the board, under a lock that is held for no longer than
//! an event takes; the thread here waits for processes, disk and readings. It ticks by itself, so that a
//! terminal that takes no output keeps no probe running. Invariants: what the thread owns while a run lasts
//! (lock, child, measurements) is in one [`Active`], which is dropped when the run is over; dropping it
//! kills the child and gives back the lock.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use crate::diagnosis::level::LevelJudge;
use crate::model::{Batch, Clock, Edge, Mark, SourceId, Time, lock, spawn};
use crate::probe::board::Board;
use crate::probe::child::{Child, Heard};
use crate::probe::files::{Files, FilesError, Lock, Locked};
use crate::probe::guard::{self, Admission, Verdict, Watch};
use crate::probe::life::{Ask, Effect, End, Ended, Event, Refusal};
use crate::probe::protocol::{MAX_SAMPLES, Message, Outcome, Request, Sample};
use crate::probe::report::{Level, Report};
use crate::probe::{self, Aim, Cost, PROBES, Params, Probe};
use crate::sampler::Sink;

use super::ceilings::Ceilings;
use super::endpoint::{self, Reach};
use super::same::{holder, recent, request};
use super::sweeps::Levels;
use super::{machine, made};

/// How often lives and guard are looked at, ms.
const TICK_MS: u64 = 100;
/// The same while nothing is under way: waking costs more than what is then done.
const IDLE_TICK_MS: u64 = 1_000;
/// How often a report that could not be kept is tried again, ms.
const TRY_AGAIN_MS: u64 = 10_000;
/// How often it is looked whether another process runs a probe, ms.
const LOOK_MS: u64 = 2_000;
/// Reports that wait for room on the disk, at most.
const MAX_UNSAVED: usize = 16;
/// Reports of each probe that are looked through for the last one on each target.
const MOST_READ: usize = 16;
/// How long the end of the program waits for a run to end, ms: its process is killed after 0.4 s.
const QUIT_MS: u64 = 1_500;

/// What probes need to run.
pub struct Setup {
    /// Where marks go and what is known of the machine.
    pub sink: Sink,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// Where reports are kept, or why nowhere.
    pub files: Result<Files, String>,
    /// The program that runs as a child: warptop itself.
    pub program: PathBuf,
    /// How endpoints may be reached.
    pub reach: Reach,
}

/// The probes of this machine, ready to run.
pub struct Probes {
    shared: Arc<Shared>,
    sink: Sink,
    clock: Arc<dyn Clock>,
    tell: Sender<Todo>,
}

#[derive(Default)]
struct Shared {
    board: Mutex<Board>,
    version: AtomicU64,
    /// The report of the last run.
    last: Mutex<Option<Report>>,
}

/// In which manner a probe is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Manner {
    /// Whether to overrule the guard where that is possible.
    pub forced: bool,
    /// Share of time that it may keep the target busy, %, where that was chosen.
    pub duty: Option<u8>,
    /// Whether its cost was agreed to already.
    pub agreed: bool,
}

enum Todo {
    Effects(Vec<(usize, Effect)>),
    Heard(Arc<str>, Box<Heard>),
    End,
}

impl Shared {
    fn board(&self) -> MutexGuard<'_, Board> {
        lock(&self.board)
    }

    fn changed(&self) {
        self.version.fetch_add(1, Ordering::Release);
    }
}

impl Probes {
    /// Starts the thread.
    pub fn start(setup: Setup) -> Self {
        let (tell, todo) = channel();
        let shared = Arc::new(Shared::default());
        let (sink, clock) = (setup.sink.clone(), Arc::clone(&setup.clock));
        let mut worker = Worker {
            setup,
            shared: Arc::clone(&shared),
            hear: tell.clone(),
            active: None,
            ceilings: Ceilings::default(),
            unsaved: VecDeque::new(),
            tried: Time(0),
            looked: Time(0),
        };
        let spawned = spawn("warptop-probes", move || worker.run(&todo));
        if let Err(error) = spawned {
            shared.board().notice = format!("no probe can run, there is no thread for it: {error}");
        }
        Self { shared, sink, clock, tell }
    }

    /// Where every probe stands. Let go of it soon.
    pub fn board(&self) -> MutexGuard<'_, Board> {
        self.shared.board()
    }

    /// Grows whenever the board changes.
    pub fn version(&self) -> u64 {
        self.shared.version.load(Ordering::Acquire)
    }

    /// The report of that run, if it was the last one.
    pub fn report(&self, run: &str) -> Option<Report> {
        lock(&self.shared.last).clone().filter(|report| report.run == run)
    }

    /// Asks for the probe at `place` in [`PROBES`], on what it needs of `aim`, with these parameters or its own.
    pub fn ask(&self, place: usize, aim: Aim, params: Option<Params>, manner: Manner) {
        let Some(probe) = PROBES.get(place) else { return };
        let params = params.unwrap_or_else(|| Params::of(&probe.spec));
        let now = self.clock.now();
        let (target, unfit) = {
            let data = self.sink.store().read();
            let target = machine::target(&data, probe.spec.needs, aim, now);
            let cost = probe.spec.costs(&params, &target);
            let unfit = machine::unfit(&data, probe.spec.needs, &target, &cost, now);
            (target, unfit)
        };
        let ask = request(probe, target, params, manner, now);
        let effects = match unfit {
            Some(refusal) => self.board().unable(now, place, ask, refusal),
            None => self.board().ask(now, place, ask),
        };
        self.pass_on(effects);
    }

    /// Asks once more for what was refused, to be run in spite of it.
    pub fn force(&self) {
        let now = self.clock.now();
        let effects = {
            let mut board = self.board();
            let again = board.forcible().map(|(place, ask)| (place, ask.clone()));
            let Some((place, ask)) = again else {
                board.unforcible(now);
                self.shared.changed();
                return;
            };
            let run = probe::run_name(now, PROBES[place].spec.id, std::process::id()).into();
            board.ask(now, place, Ask { run, forced: true, agreed: false, ..ask })
        };
        self.pass_on(effects);
    }

    /// Yes or no to the question that is open.
    pub fn answer(&self, yes: bool) {
        self.on_all(if yes { &Event::Yes } else { &Event::No });
    }

    /// What is said about earlier runs has been read.
    pub fn seen(&self) {
        self.on_all(&Event::Seen);
    }

    /// Ends whatever runs.
    pub fn stop(&self) {
        self.on_all(&Event::Stop);
    }

    /// The program ends: so does whatever runs, with its report. Waits for that a moment.
    pub fn quit(&self) {
        self.on_all(&Event::Quit);
        let began = self.clock.micros();
        while !self.board().is_settled() && self.clock.micros().saturating_sub(began) < QUIT_MS * 1_000 {
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn on_all(&self, event: &Event) {
        let effects = self.board().on_all(self.clock.now(), event);
        self.pass_on(effects);
    }

    fn pass_on(&self, effects: Vec<(usize, Effect)>) {
        self.shared.changed();
        drop(self.tell.send(Todo::Effects(effects)));
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        drop(self.tell.send(Todo::End));
    }
}

/// All that belongs to one run, from its preflight to its report.
struct Active {
    place: usize,
    ask: Ask,
    cost: Cost,
    /// `None` where there is no place for a lock.
    _lock: Option<Lock>,
    admission: Option<Admission>,
    watch: Option<Watch>,
    child: Option<Child>,
    pid: Option<u32>,
    samples: Vec<Sample>,
    left_out: u64,
    /// Of a sweep.
    levels: Levels,
    judge: LevelJudge,
}

struct Worker {
    setup: Setup,
    shared: Arc<Shared>,
    hear: Sender<Todo>,
    active: Option<Active>,
    ceilings: Ceilings,
    unsaved: VecDeque<Report>,
    tried: Time,
    looked: Time,
}

impl Worker {
    fn run(&mut self, todo: &Receiver<Todo>) {
        if let Ok(files) = &self.setup.files {
            let reports: Vec<_> = probe::listed().flat_map(|probe| files.newest(probe.spec.id, MOST_READ)).collect();
            let host = machine::host_name();
            // A home that several machines share: a GPU has its own name, a host's memory goes by the host's.
            let is_ours =
                |report: &&Report| !report.target.gpus.is_empty() || report.host.is_empty() || report.host == host;
            self.shared.board().remember(reports.iter().filter(is_ours));
            self.shared.changed();
            for report in &reports {
                self.ceilings.add(report);
            }
        }
        let mut ticked = self.setup.clock.micros();
        loop {
            match todo.recv_timeout(Duration::from_millis(self.patience_ms())) {
                Ok(Todo::Effects(effects)) => self.carry_out(effects),
                Ok(Todo::Heard(run, heard)) => self.heard(&run, *heard),
                // What is active goes with the worker.
                Ok(Todo::End) | Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {}
            }
            let now = self.setup.clock.micros();
            if now.saturating_sub(ticked) >= TICK_MS * 1_000 {
                ticked = now;
                self.tick();
            }
        }
    }

    /// Time to the next look at the clock where nothing is heard, ms.
    fn patience_ms(&self) -> u64 {
        let board = self.shared.board();
        let rests = self.active.is_none() && board.is_settled() && !board.is_passing();
        if rests { IDLE_TICK_MS } else { TICK_MS }
    }

    fn tick(&mut self) {
        let now = self.setup.clock.now();
        let (passed, effects) = {
            let mut board = self.shared.board();
            // Before: the end of a cool-down is news as well.
            (board.is_passing(), board.on_all(now, &Event::Tick))
        };
        let moved = !effects.is_empty() || self.active.is_some() || passed;
        self.carry_out(effects);
        self.guard();
        self.ceilings.tell(&self.setup.sink, now);
        if moved {
            self.shared.changed();
        }
        if now.since(self.looked) >= LOOK_MS {
            self.looked = now;
            self.look_elsewhere();
        }
        if !self.unsaved.is_empty() && now.since(self.tried) >= TRY_AGAIN_MS {
            self.tried = now;
            self.save_again();
        }
    }

    /// Notes what another process runs, and what it has measured when that is over.
    fn look_elsewhere(&mut self) {
        let Ok(files) = &self.setup.files else { return };
        let holder = files.holder().filter(|holder| holder.pid != std::process::id());
        let now = holder.map(|holder| (holder.probe, holder.pid));
        let before = std::mem::replace(&mut self.shared.board().elsewhere, now.clone());
        if before == now {
            return;
        }
        if let Some((probe, _)) = before {
            for report in files.newest(&probe, 1) {
                self.shared.board().ended(&report);
                self.ceilings.add(&report);
            }
        }
        self.shared.changed();
    }

    /// Tells the life at `place`, and does what follows.
    fn tell(&mut self, place: usize, event: &Event) {
        let effects = self.shared.board().on(self.setup.clock.now(), place, event);
        self.shared.changed();
        self.carry_out(effects);
    }

    fn carry_out(&mut self, effects: Vec<(usize, Effect)>) {
        for (place, effect) in effects {
            match effect {
                Effect::Preflight(ask) => self.prepare(place, ask),
                Effect::Start(ask) => self.start(place, &ask),
                Effect::AskToStop(run) => self.with_child(&run, Child::stop),
                Effect::Kill(run) => self.with_child(&run, Child::kill),
                Effect::Report(ended, outcome) => self.finish(place, &ended, outcome),
                Effect::Release(run) => {
                    if self.active.as_ref().is_some_and(|active| active.ask.run == run) {
                        self.active = None;
                    }
                }
                Effect::Same(_) | Effect::Busy(_) => {}
            }
        }
    }

    fn with_child(&self, run: &Arc<str>, tell: impl FnOnce(&Child)) {
        if let Some(active) = self.active.as_ref().filter(|active| active.ask.run == *run)
            && let Some(child) = &active.child
        {
            tell(child);
        }
    }

    /// Takes the machine for a run, then lets the guard look.
    fn prepare(&mut self, place: usize, ask: Ask) {
        let probe = &PROBES[place];
        match self.take_machine(probe, &ask) {
            Err(refusal) => self.tell(place, &Event::Refused(Arc::clone(&ask.run), refusal)),
            Ok(lock) => {
                let cost = probe.spec.costs(&ask.params, &ask.target);
                let (samples, left_out, levels, judge) = (Vec::new(), 0, Levels::default(), LevelJudge::default());
                let (admission, watch, child, pid) = (None, None, None, None);
                let active = Active {
                    place,
                    ask,
                    cost,
                    _lock: lock,
                    admission,
                    watch,
                    child,
                    pid,
                    samples,
                    left_out,
                    levels,
                    judge,
                };
                self.active = Some(active);
                self.guard();
            }
        }
    }

    fn take_machine(&mut self, probe: &Probe, ask: &Ask) -> Result<Option<Lock>, Refusal> {
        let refused = |why: String, hint: &str| Refusal { why, can_force: false, hint: hint.to_owned() };
        if let Some(active) = &self.active {
            let why = format!("{} runs: one probe at a time on a machine", PROBES[active.place].spec.name);
            return Err(refused(why, "wait for it, or stop it"));
        }
        let Ok(files) = &self.setup.files else { return Ok(None) };
        let now = self.setup.clock.now();
        if let Some(report) = recent(files, probe, ask, now) {
            self.shared.board().ended(&report);
            self.ceilings.add(&report);
            let ago = now.0.saturating_sub(report.ended_unix_ms) / 1_000;
            let why = format!("run {} measured the same {ago} s ago", report.run);
            let hint =
                format!("ask again {} s after it: until then the machine cools down", probe.spec.cool_ms / 1_000);
            return Err(refused(why, &hint));
        }
        let holder = holder(probe, ask);
        match files.lock(&holder) {
            Ok(Locked::Ours(lock)) => Ok(Some(lock)),
            Ok(Locked::Theirs(who)) => {
                let why = who.map_or_else(
                    || "another warptop runs a probe on this machine".to_owned(),
                    |who| format!("another warptop (process {}) runs {} on {}", who.pid, who.probe, who.target),
                );
                Err(refused(why, "wait for it, or stop it there"))
            }
            // Where nothing can be written there is nobody to share with either.
            Err(error) => {
                self.shared.board().notice = error.to_string();
                Ok(None)
            }
        }
    }

    /// Lets the guard look at the machine: may the run begin, may it go on?
    fn guard(&mut self) {
        let Some(active) = &self.active else { return };
        let (place, run, now) = (active.place, Arc::clone(&active.ask.run), self.setup.clock.now());
        let machine = machine::machine(&self.setup.sink.store().read(), &active.ask.target, now);
        if let Some(watch) = &active.watch {
            if let Some(why) = watch.abort(&machine, active.pid) {
                self.tell(place, &Event::Abort(run, why));
            }
            return;
        }
        let needs = PROBES[place].spec.needs;
        match guard::preflight(&machine, &active.cost, needs, active.ask.forced, active.ask.duty) {
            Verdict::NotYet => {}
            Verdict::Refused(refusal) => self.tell(place, &Event::Refused(run, refusal)),
            Verdict::Admitted(admission) => {
                let watch = Watch::new(&machine, &active.cost, active.ask.forced);
                if let Some(active) = &mut self.active {
                    (active.admission, active.watch) = (Some(admission), Some(watch));
                }
                self.tell(place, &Event::Admitted(run));
            }
        }
    }

    fn start(&mut self, place: usize, ask: &Ask) {
        self.mark(place, ask, &Edge::Start(ask.most_ms));
        let Some(active) = &mut self.active else { return };
        let admission = active.admission.as_ref();
        let request = Request {
            run: ask.run.to_string(),
            probe: PROBES[place].spec.id.to_owned(),
            target: ask.target.clone(),
            params: ask.params.clone(),
            duty_pct: admission.map_or(guard::FORCED_DUTY_PCT, |admission| admission.duty_pct),
            most_bytes: admission.map_or(0, |admission| admission.most_bytes),
            most_ms: ask.most_ms,
            parent: std::process::id(),
            sealed: false,
        };
        let sealed = ask.target.endpoint.as_deref().and_then(|url| self.setup.reach.seal(url));
        let (to, run) = (self.hear.clone(), Arc::clone(&ask.run));
        let hear = move |heard| drop(to.send(Todo::Heard(Arc::clone(&run), Box::new(heard))));
        active.child = Some(Child::start(&self.setup.program, request, sealed, Arc::clone(&self.setup.clock), hear));
    }

    fn heard(&mut self, run: &Arc<str>, heard: Heard) {
        let Some(active) = self.active.as_mut().filter(|active| active.ask.run == *run) else { return };
        let place = active.place;
        match heard {
            Heard::Started(pid) => active.pid = Some(pid),
            Heard::Message(message) => {
                let message = *message;
                if let Message::Sample(sample) = &message {
                    if active.samples.len() < MAX_SAMPLES {
                        active.samples.push(sample.clone());
                    } else {
                        active.left_out += 1;
                    }
                } else if let Message::LeftOut { samples } = message {
                    active.left_out = active.left_out.saturating_add(samples);
                } else if let Message::Level(level) = message {
                    active.levels.take(*level);
                    return self.show_levels(run);
                }
                self.tell(place, &Event::Heard(Arc::clone(run), message));
            }
            Heard::Broke(why) => self.tell(place, &Event::Broke(Arc::clone(run), why)),
            Heard::Gone(how) => self.tell(place, &Event::Gone(Arc::clone(run), how)),
        }
    }

    /// A level grew: what was read meanwhile goes beside it, and the screen sees both.
    fn show_levels(&mut self, run: &Arc<str>) {
        let Some(mut active) = self.active.take() else { return };
        self.attach(&mut active);
        let (place, sweep) = (active.place, active.levels.sweep(&active.ask));
        self.active = Some(active);
        self.shared.board().sweep = sweep;
        // Its words are here already; that it speaks is what counts.
        self.tell(place, &Event::Heard(Arc::clone(run), Message::Level(Box::default())));
    }

    /// Adds to the levels what server and GPUs did.
    fn attach(&self, active: &mut Active) {
        let now = self.setup.clock.now();
        let data = self.setup.sink.store().read();
        let url = active.ask.target.endpoint.as_deref().unwrap_or_default();
        let Some(engine) = endpoint::engine(&data, url, now).filter(|_| !active.levels.is_empty()) else { return };
        let gpus = endpoint::gpus(&data, engine, now);
        let judge = &mut active.judge;
        active.levels.attach(now, |level| judge.attach(&data, engine, &gpus, level));
    }

    /// Writes the report of a run, and gives the machine back.
    fn finish(&mut self, place: usize, ended: &Ended, outcome: Option<Outcome>) {
        let Some(mut active) = self.active.take() else { return };
        self.mark(place, &ended.ask, &Edge::End(ended.end.name().into()));
        let mut environment = machine::environment(&self.setup.sink.store().read(), &ended.ask.target, ended.span);
        // Its process may use what this one may.
        let bound = probe::bound(PROBES[place].spec.needs);
        let Ask { target, params, .. } = &ended.ask;
        let files = self.setup.files.as_ref().ok();
        let baseline = files.and_then(|files| files.baseline(PROBES[place].spec.id, target, params, bound.as_deref()));
        environment.bound_to = bound;
        let mut report = made::report(&PROBES[place], ended, active.admission.as_ref(), environment);
        report.samples.append(&mut active.samples);
        report.samples_left_out = active.left_out;
        self.attach(&mut active);
        report.levels = std::mem::take(&mut active.levels).end(matches!(ended.end, End::Stopped(_)));
        made::take(&mut report, &ended.end, outcome, baseline.as_ref());
        if baseline.is_none() {
            self.keep_baseline(&mut report);
        }
        let kept = self.keep(&report);
        if let Err(why) = &kept {
            self.shared.board().notice.clone_from(why);
            self.unsaved.push_back(report.clone());
            self.unsaved.truncate(MAX_UNSAVED);
            self.tried = self.setup.clock.now();
        }
        {
            let mut board = self.shared.board();
            // One that measured nothing leaves nothing to look at.
            board.sweep.take_if(|sweep| *sweep.run == *report.run && report.levels.is_empty());
            board.ended(&report);
        }
        self.ceilings.add(&report);
        *lock(&self.shared.last) = Some(report);
        // Only now may the next run begin, here or in another process: it can read this one's report.
        drop(active);
        self.tell(place, &Event::Kept(Arc::clone(&ended.ask.run), kept));
    }

    /// The first good run becomes the baseline, which its report says.
    fn keep_baseline(&self, report: &mut Report) {
        let Ok(files) = &self.setup.files else { return };
        if report.verdict.level == Level::Failed || report.is_no_baseline().is_some() {
            return;
        }
        let mut baseline = report.clone();
        baseline.becomes_baseline();
        match files.keep_baseline(&baseline) {
            Ok(()) => *report = baseline,
            Err(error) => report.notes.push(error.to_string()),
        }
    }

    fn keep(&self, report: &Report) -> Result<String, String> {
        let files = self.setup.files.as_ref().map_err(Clone::clone)?;
        files.keep(report).map(|path| path.display().to_string()).map_err(|error| error.to_string())
    }

    fn save_again(&mut self) {
        let Ok(files) = &self.setup.files else { return };
        self.unsaved.retain(|report| !matches!(files.keep(report), Ok(_) | Err(FilesError::Exists(_))));
        if self.unsaved.is_empty() {
            self.shared.board().notice.clear();
        }
    }

    /// Notes on the time axis that a run began or ended.
    fn mark(&self, place: usize, ask: &Ask, edge: &Edge) {
        let mut batch = Batch::new(SourceId::Probe, self.setup.clock.now(), 0);
        let probe: Arc<str> = PROBES[place].spec.id.into();
        let subjects = machine::subjects(&self.setup.sink.store().read(), &ask.target, batch.at);
        for subject in subjects {
            let (probe, run, edge) = (Arc::clone(&probe), Arc::clone(&ask.run), edge.clone());
            batch.marks.push(Mark { subject, probe, run, edge });
        }
        self.setup.sink.send(&batch);
    }
}
