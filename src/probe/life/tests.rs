//! The life of a probe under every short sequence of events, and under long random ones.

use proptest::prelude::*;

use super::*;

const COOL: u64 = 10_000;

fn ask(run: &str, size: f64) -> Ask {
    let mut params = Params::default();
    params.put("mib", super::super::spec::Value::Number(size));
    Ask {
        run: run.into(),
        target: Target::default(),
        params,
        forced: false,
        duty: None,
        agreed: false,
        most_ms: 60_000,
    }
}

fn refusal() -> Refusal {
    Refusal { why: "busy".to_owned(), can_force: true, hint: String::new() }
}

/// What a test does next: an event whose run is the current one unless it says otherwise.
#[derive(Clone, Debug)]
enum Step {
    Ask(f64),
    Unable(f64),
    AskAgreed(f64),
    Yes,
    No,
    Admit,
    Refuse,
    Hello,
    Progress,
    Result,
    Error,
    Broke,
    Gone,
    Abort,
    Stop,
    Quit,
    Seen,
    Kept,
    Stranger,
    Wait(u64),
}

const STEPS: [Step; 22] = [
    Step::Ask(1.0),
    Step::Unable(1.0),
    Step::AskAgreed(1.0),
    Step::AskAgreed(2.0),
    Step::Yes,
    Step::No,
    Step::Admit,
    Step::Refuse,
    Step::Hello,
    Step::Progress,
    Step::Result,
    Step::Error,
    Step::Broke,
    Step::Gone,
    Step::Abort,
    Step::Stop,
    Step::Quit,
    Step::Seen,
    Step::Kept,
    Step::Stranger,
    Step::Wait(500),
    Step::Wait(70_000),
];

/// The machine with all that its effects brought about.
#[derive(Clone)]
struct World {
    life: Life,
    now: Time,
    asked: u32,
    agreed: bool,
    admitted: bool,
    /// Runs whose child was started and is not gone.
    living: Vec<Arc<str>>,
    started: Vec<Arc<str>>,
    reported: Vec<Arc<str>>,
    /// What the preflight took and nobody gave back.
    held: Vec<Arc<str>>,
    killed: bool,
}

impl World {
    fn new() -> Self {
        Self {
            life: Life::new(COOL),
            now: Time(1_000_000),
            asked: 0,
            agreed: false,
            admitted: false,
            living: Vec::new(),
            started: Vec::new(),
            reported: Vec::new(),
            held: Vec::new(),
            killed: false,
        }
    }

    fn event(&mut self, step: &Step) -> Event {
        let run = self.life.run().cloned().unwrap_or_else(|| "none".into());
        match step {
            Step::Ask(size) | Step::AskAgreed(size) => {
                self.asked += 1;
                let agreed = matches!(step, Step::AskAgreed(_));
                Event::Ask(Ask { agreed, ..ask(&format!("r{}", self.asked), *size) })
            }
            Step::Unable(size) => Event::Unable(ask("unable", *size), refusal()),
            Step::Yes => Event::Yes,
            Step::No => Event::No,
            Step::Admit => Event::Admitted(run),
            Step::Refuse => Event::Refused(run, refusal()),
            Step::Hello => Event::Heard(run, Message::Hello { version: 1, run: String::new() }),
            Step::Progress => Event::Heard(run, Message::Progress { done: 0.5, eta_s: None, what: "x".to_owned() }),
            Step::Result => Event::Heard(run, Message::Result(Outcome::default())),
            Step::Error => Event::Heard(run, Message::Error(Failure::Failed("no".to_owned()))),
            Step::Broke => Event::Broke(run, "garbage".to_owned()),
            Step::Gone => Event::Gone(run, "exit code 1".to_owned()),
            Step::Abort => Event::Abort(run, "hot".to_owned()),
            Step::Stop => Event::Stop,
            Step::Quit => Event::Quit,
            Step::Seen => Event::Seen,
            Step::Kept => Event::Kept(run, Ok("there".to_owned())),
            Step::Stranger => Event::Gone("stranger".into(), String::new()),
            Step::Wait(ms) => {
                self.now = self.now + *ms;
                Event::Tick
            }
        }
    }

    /// Takes a step and checks every invariant.
    fn step(&mut self, step: &Step) {
        let before = self.life.clone();
        let event = self.event(step);
        // A child that does not live cannot go.
        if let Event::Gone(run, _) = &event
            && !self.living.contains(run)
            && run.as_ref() != "stranger"
        {
            return;
        }
        self.agreed = match (&event, before.state()) {
            (Event::Yes, State::Confirm(_)) => true,
            (Event::Ask(ask), _) if ask.agreed && !before.is_active() => true,
            (_, State::Preflight(..)) => self.agreed,
            _ => false,
        };
        self.admitted = matches!((&event, before.state()), (Event::Admitted(_), State::Preflight(..)));
        if let Event::Gone(run, _) = &event {
            self.living.retain(|r| r != run);
        }
        let effects = self.life.on(self.now, event.clone());
        if matches!(step, Step::Stranger) {
            assert!(effects.is_empty() && self.life == before, "another run's child is none of our business");
        }
        for effect in &effects {
            self.carry_out(effect, &event);
        }
        // The machine is held exactly while the life says so.
        assert_eq!(self.held.is_empty(), !self.life.is_active(), "{:?}", self.life.state());
        assert_eq!(self.living.is_empty(), !matches!(self.life.state(), State::Running(_)), "{:?}", self.life.state());
    }

    fn carry_out(&mut self, effect: &Effect, event: &Event) {
        match effect {
            Effect::Preflight(ask) => {
                assert!(self.agreed, "no preflight without consent");
                assert!(self.held.is_empty() && self.living.is_empty());
                self.held.push(Arc::clone(&ask.run));
            }
            Effect::Start(ask) => {
                assert!(self.admitted, "no start without the guard");
                assert!(self.living.is_empty(), "one child at a time");
                assert!(!self.started.contains(&ask.run), "a run starts once");
                self.started.push(Arc::clone(&ask.run));
                self.living.push(Arc::clone(&ask.run));
                self.killed = false;
            }
            Effect::AskToStop(run) => assert!(self.living.contains(run)),
            Effect::Kill(run) => {
                assert!(self.living.contains(run));
                self.killed = true;
            }
            Effect::Report(ended, _) => {
                let run = &ended.ask.run;
                assert!(self.started.contains(run) && !self.living.contains(run), "a report is of a run that is over");
                assert!(!self.reported.contains(run), "a report is written once");
                self.reported.push(Arc::clone(run));
                self.held.retain(|r| r != run);
            }
            Effect::Release(run) => {
                assert!(self.held.contains(run) && !self.started.contains(run));
                self.held.retain(|r| r != run);
            }
            Effect::Same(run) | Effect::Busy(run) => {
                assert!(matches!(event, Event::Ask(_) | Event::Unable(..)) && self.life.run() == Some(run));
            }
        }
    }

    /// From any state, stopping leads to rest, with a report of whatever ran.
    fn stop_and_rest(mut self) {
        self.step(&Step::Stop);
        self.step(&Step::Wait(GRACE_MS));
        if !self.living.is_empty() {
            assert!(self.killed, "a child that does not stop is killed: {:?}", self.life.state());
            self.step(&Step::Gone);
        }
        self.step(&Step::Wait(COOL));
        let at_rest = match self.life.state() {
            State::Idle | State::Done(_) | State::Stopped(_) | State::Refused(..) | State::Failed(_) => true,
            State::Confirm(_) | State::Preflight(..) | State::Running(_) | State::Cooling(..) => false,
        };
        assert!(at_rest, "{:?}", self.life.state());
        assert_eq!(self.started, self.reported, "every run has its report");
    }
}

#[test]
fn every_short_sequence_of_events_keeps_the_invariants() {
    fn go(world: &World, depth: usize, seen: &mut u64) {
        *seen += 1;
        world.clone().stop_and_rest();
        if depth == 0 {
            return;
        }
        for step in &STEPS {
            let mut next = world.clone();
            next.step(step);
            // What changes nothing leads nowhere new.
            if next.life != world.life || next.now != world.now {
                go(&next, depth - 1, seen);
            }
        }
    }
    let mut seen = 0;
    go(&World::new(), 7, &mut seen);
    assert!(seen > 10_000, "{seen} sequences");
}

proptest! {
    #[test]
    fn every_long_sequence_of_events_keeps_the_invariants(
        steps in proptest::collection::vec((proptest::sample::select(STEPS.to_vec()), any::<bool>()), 0..300),
    ) {
        let mut world = World::new();
        for (step, tick) in steps {
            world.step(&step);
            if tick {
                world.step(&Step::Wait(100));
            }
        }
        world.stop_and_rest();
    }
}

fn drive(steps: &[Step]) -> World {
    let mut world = World::new();
    for step in steps {
        world.step(step);
    }
    world
}

#[test]
fn a_run_goes_through_its_states() {
    use Step::{Admit, Ask, Gone, Hello, Kept, Progress, Result, Wait, Yes};
    let mut world = World::new();
    let mut names = Vec::new();
    for step in [Ask(1.0), Yes, Admit, Hello, Progress, Result, Gone, Kept, Wait(COOL)] {
        world.step(&step);
        names.push(match world.life.state() {
            State::Idle => "idle",
            State::Confirm(_) => "confirm",
            State::Preflight(..) => "preflight",
            State::Running(_) => "running",
            State::Cooling(..) => "cooling",
            State::Done(_) => "done",
            State::Stopped(_) => "stopped",
            State::Refused(..) => "refused",
            State::Failed(_) => "failed",
        });
    }
    assert_eq!(
        names,
        ["confirm", "preflight", "running", "running", "running", "running", "cooling", "cooling", "done"]
    );
    let State::Done(ended) = world.life.state() else { panic!() };
    assert_eq!((ended.end.clone(), ended.kept.clone()), (End::Done, Some(Ok("there".to_owned()))));
}

#[test]
fn the_same_request_while_it_runs_or_cools_is_one_run() {
    use Step::{Admit, AskAgreed, Gone, Result, Wait};
    for steps in [
        &[AskAgreed(1.0)][..],
        &[AskAgreed(1.0), Admit],
        &[AskAgreed(1.0), Admit, Result],
        &[AskAgreed(1.0), Admit, Result, Gone],
        &[AskAgreed(1.0), Admit, Result, Gone, Wait(COOL - 1)],
    ] {
        let mut world = drive(steps);
        let again = world.life.on(world.now, Event::Ask(Ask { agreed: true, ..ask("again", 1.0) }));
        assert_eq!(again, [Effect::Same("r1".into())], "{steps:?}");
    }
    let mut world = drive(&[AskAgreed(1.0), Admit, Result, Gone, Wait(COOL)]);
    let again = world.life.on(world.now, Event::Ask(Ask { agreed: true, ..ask("again", 1.0) }));
    assert!(matches!(&again[..], [Effect::Preflight(_)]), "after the cool-down it is a new run: {again:?}");
    let mut world = drive(&[AskAgreed(1.0), Admit]);
    let other = world.life.on(world.now, Event::Ask(ask("other", 2.0)));
    assert_eq!(other, [Effect::Busy("r1".into())], "another size is another measurement");
}

/// How a run ended after these steps and the end of its child.
fn end(steps: &[Step]) -> End {
    let mut world = drive(&[Step::AskAgreed(1.0), Step::Admit]);
    for step in steps.iter().chain([&Step::Gone]) {
        world.step(step);
    }
    match world.life.state() {
        State::Cooling(ended, _) => ended.end.clone(),
        state => panic!("{state:?}"),
    }
}

#[test]
fn the_first_reason_of_an_end_is_the_one_that_counts() {
    use Step::{Abort, Broke, Error, Hello, Result, Stop, Wait};
    assert_eq!(end(&[Hello, Result]), End::Done);
    assert_eq!(end(&[Hello, Stop, Result]), End::Done, "the result was whole");
    assert_eq!(end(&[Hello, Result, Broke]), End::Failed("garbage".to_owned()), "not to be trusted");
    assert_eq!(end(&[Hello, Abort, Stop]), End::Stopped(Stopper::Guard("hot".to_owned())));
    assert_eq!(end(&[Hello, Stop, Error]), End::Stopped(Stopper::User));
    assert_eq!(end(&[Hello, Error, Stop]), End::Failed("no".to_owned()));
    assert!(matches!(end(&[Hello]), End::Failed(why) if why.contains("without a result (exit code 1)")));
    assert!(matches!(end(&[Wait(HELLO_MS)]), End::Failed(why) if why.contains("introduce itself")));
    assert!(matches!(end(&[Hello, Wait(SILENCE_MS)]), End::Failed(why) if why.contains("said nothing")));
    assert!(
        matches!(end(&[Hello, Wait(59_000), Hello, Wait(1_000)]), End::Failed(why) if why.contains("said nothing"))
    );
    let chatty: Vec<_> = (0..60).flat_map(|_| [Hello, Wait(1_000)]).collect();
    assert!(matches!(end(&chatty), End::Failed(why) if why.contains("longer than the 60 s")));
}

#[test]
fn a_child_that_cannot_be_killed_is_killed_again_and_the_run_stays_open() {
    use Step::{Admit, AskAgreed, Hello, Stop, Wait};
    let mut world = drive(&[AskAgreed(1.0), Admit, Hello, Stop]);
    let mut kills = 0;
    for _ in 0..50 {
        world.step(&Wait(100));
        kills += u32::from(std::mem::take(&mut world.killed));
    }
    assert!((4..=6).contains(&kills), "{kills} kills in 5 s");
    assert!(world.life.is_active());
}

#[test]
fn readings_that_do_not_come_refuse_the_run() {
    let world = drive(&[Step::AskAgreed(1.0), Step::Wait(PREFLIGHT_MS)]);
    assert!(matches!(world.life.state(), State::Refused(_, refusal) if refusal.why.contains("not known")));
}
