//! The probes of this machine at a glance: where each stands, and what its last run said.
//!
//! Pure: events in, effects out, one [`Life`] a probe. It must not know how effects are carried out.
//! Invariant: at most one probe asks for consent, so that a "yes" has one meaning.

use std::fmt;
use std::sync::Arc;

use crate::load;
use crate::load::level::Knee;
use crate::model::Time;

use super::life::{Ask, Effect, Event, Life, Refusal, State};
use super::report::{Ending, Level, Report};
use super::spec::Target;
use super::{Cost, Needs, PROBES, Probe};

/// How long it is said what became of a key press, ms.
const HINT_MS: u64 = 5_000;
/// Targets of a probe whose last run is remembered.
const MAX_LASTS: usize = 64;

/// What the last run of a probe said, on a line and whole.
#[derive(Clone, Debug, PartialEq)]
pub struct Last {
    /// Name of the run.
    pub run: Arc<str>,
    /// The report, without its single measurements.
    pub report: Arc<Report>,
    /// When it ended.
    pub at: Time,
    /// How it ended.
    pub ending: Ending,
    /// How good it is.
    pub level: Level,
    /// Name of the figure that stands for the whole; empty where there is none.
    pub figure: Arc<str>,
    /// That figure, and its unit.
    pub headline: Option<(f64, Arc<str>)>,
    /// Its share of the reference, else of the baseline, %, and which of them.
    pub share: Option<(f64, &'static str)>,
    /// The verdict in a sentence, or why there is no result.
    pub summary: Arc<str>,
}

impl Last {
    /// The line for a report.
    pub fn of(report: &Report) -> Self {
        let headline = super::find(&report.probe).and_then(|probe| report.headline(&probe.spec));
        Self {
            run: report.run.as_str().into(),
            report: Arc::new(Report { samples: Vec::new(), ..report.clone() }),
            at: Time(report.ended_unix_ms),
            ending: report.ending,
            level: report.verdict.level,
            headline: headline.map(|judged| (judged.figure.value, judged.figure.unit.as_str().into())),
            figure: headline.map_or("", |judged| judged.figure.label.as_str()).into(),
            share: headline.and_then(super::report::Judged::share),
            summary: match report.ending {
                Ending::Done => report.verdict.summary.as_str().into(),
                _ => report.why.as_deref().unwrap_or("it is not known why").into(),
            },
        }
    }
}

/// A load sweep, running or over.
#[derive(Clone, Debug, PartialEq)]
pub struct Sweep {
    /// Name of the run.
    pub run: Arc<str>,
    /// The endpoint, for the screen.
    pub endpoint: Arc<str>,
    /// Its levels so far, in the order they are measured in.
    pub levels: Arc<Vec<load::Level>>,
    /// Where its throughput stops growing, once that is known.
    pub knee: Option<Knee>,
    /// Whether it runs.
    pub runs: bool,
}

impl Sweep {
    /// One that is over; `None` where the report is of another probe, or of a sweep that measured nothing.
    pub fn of(report: &Report) -> Option<Self> {
        let endpoint = report.target.endpoint.as_deref().filter(|_| !report.levels.is_empty())?;
        Some(Self {
            run: report.run.as_str().into(),
            endpoint: endpoint.into(),
            levels: Arc::new(report.levels.clone()),
            knee: report.knee.clone(),
            runs: false,
        })
    }
}

/// One probe.
#[derive(Clone, Debug)]
pub struct Row {
    /// Which.
    pub probe: &'static Probe,
    /// Where it stands.
    pub life: Life,
    /// Its last run on each target, also one of another warptop on this machine; the newest first.
    lasts: Vec<Last>,
}

impl Row {
    /// The last run of all.
    pub fn last(&self) -> Option<&Last> {
        self.lasts.first()
    }

    /// The last run on the GPU with this index and UUID, if the probe is about one GPU; else the last of all.
    pub fn last_on(&self, gpu: u8, uuid: Option<&str>) -> Option<&Last> {
        let is_it = |target: &Target| match target.gpus.as_slice() {
            [one] if one.uuid.is_empty() => one.index == gpu,
            [one] => Some(one.uuid.as_str()) == uuid,
            _ => false,
        };
        match self.probe.spec.needs {
            Needs::Gpu => self.lasts.iter().find(|last| is_it(&last.report.target)),
            Needs::Host | Needs::Gpus(_) | Needs::Endpoint => self.last(),
        }
    }

    /// Notes a run. One that did not end well replaces no result: where it stands now, its life says.
    fn note(&mut self, report: &Report) {
        let there = self.lasts.iter().position(|last| last.report.target.key() == report.target.key());
        if let Some(place) = there {
            let old = &self.lasts[place];
            if old.ending == Ending::Done && report.ending != Ending::Done {
                return;
            }
            self.lasts.remove(place);
        }
        let newer = |last: &Last| last.report.started_unix_ms > report.started_unix_ms;
        let place = self.lasts.iter().take_while(|last| newer(last)).count();
        self.lasts.insert(place, Last::of(report));
        self.lasts.truncate(MAX_LASTS);
    }
}

/// The time that a run has left, given in s: "75 s", "4 min".
#[derive(Clone, Copy, Debug)]
pub struct Left(pub f64);

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            eta if eta >= 120.0 => write!(f, "{:.0} min", eta / 60.0),
            eta => write!(f, "{eta:.0} s"),
        }
    }
}

/// Every probe.
#[derive(Clone, Debug)]
pub struct Board {
    rows: Vec<Row>,
    /// What there is to say besides, e.g. that a report could not be kept.
    pub notice: String,
    /// What became of a key press that did nothing, and until when that is worth reading.
    hint: Option<(String, Time)>,
    /// The probe that another process runs on this machine, and that process.
    pub elsewhere: Option<(String, u32)>,
    /// The load sweep that runs, else the last one that is known.
    pub sweep: Option<Sweep>,
}

impl Default for Board {
    fn default() -> Self {
        let row = |probe: &'static Probe| Row { probe, life: Life::new(probe.spec.cool_ms), lasts: Vec::new() };
        Self { rows: PROBES.iter().map(row).collect(), notice: String::new(), hint: None, elsewhere: None, sweep: None }
    }
}

impl Board {
    /// Every probe, hidden ones too.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Those that people are shown, and whatever else is being carried out.
    pub fn shown(&self) -> impl Iterator<Item = (usize, &Row)> {
        let shown = |row: &Row| !row.probe.spec.hidden || *row.life.state() != State::Idle;
        self.rows.iter().enumerate().filter(move |(_, row)| shown(row))
    }

    /// Notes the last run of each probe: `reports`, in any order.
    pub fn remember<'a>(&mut self, reports: impl Iterator<Item = &'a Report>) {
        let mut reports: Vec<_> = reports.collect();
        reports.sort_by_key(|report| report.started_unix_ms);
        for report in reports {
            self.ended(report);
        }
    }

    /// Notes a run that is over.
    pub fn ended(&mut self, report: &Report) {
        if let Some(row) = self.rows.iter_mut().find(|row| row.probe.spec.id == report.probe) {
            row.note(report);
        }
        // Names of runs rise with time.
        let newer = |sweep: &Sweep| self.sweep.as_ref().is_none_or(|known| *known.run <= *sweep.run);
        if let Some(sweep) = Sweep::of(report).filter(newer) {
            self.sweep = Some(sweep);
        }
    }

    /// The probe that asks for consent, with what it would do and cost.
    pub fn confirming(&self) -> Option<(usize, &Ask, Cost)> {
        self.rows.iter().enumerate().find_map(|(place, row)| match row.life.state() {
            State::Confirm(ask) => Some((place, ask, row.probe.spec.costs(&ask.params, &ask.target))),
            _ => None,
        })
    }

    /// The probe that holds the machine.
    pub fn active(&self) -> Option<(usize, &Row)> {
        self.rows.iter().enumerate().find(|(_, row)| row.life.is_active())
    }

    /// Whether something on it changes with time alone.
    pub fn is_passing(&self) -> bool {
        self.hint.is_some() || self.rows.iter().any(|row| matches!(row.life.state(), State::Cooling(..)))
    }

    /// The probe that runs, how far it is, and how to stop it: for whoever looks elsewhere.
    pub fn running(&self) -> Option<String> {
        let (_, row) = self.active()?;
        let name = row.probe.spec.name;
        Some(match row.life.state() {
            State::Running(running) if running.ending.is_some() => format!("probe {name} is stopping"),
            State::Running(running) => {
                let eta = match running.progress.1 {
                    Some(eta) => format!(" ({} left)", Left(eta)),
                    None => String::new(),
                };
                // What may be cut off on a small screen comes last.
                format!("probe {name} runs, {:.0} %: x stops it{eta}", running.progress.0 * 100.0)
            }
            _ => format!("probe {name} begins: x stops it"),
        })
    }

    /// The probe that runs or asks, in parts as short as can be: for a screen that shows nothing else.
    pub fn in_short(&self) -> Vec<String> {
        if self.confirming().is_some() {
            return ["too small to ask", "n leave it"].map(ToOwned::to_owned).into();
        }
        let Some((_, row)) = self.active() else { return Vec::new() };
        let (done, end) = match row.life.state() {
            State::Running(running) if running.ending.is_some() => (running.progress.0, "stopping"),
            State::Running(running) => (running.progress.0, "x stop"),
            _ => (0.0, "x stop"),
        };
        vec![row.probe.spec.name.to_owned(), format!("{:.0} %", done * 100.0), end.to_owned()]
    }

    /// Whether nothing is under way, and every run has its report on disk or the word that it is not.
    pub fn is_settled(&self) -> bool {
        self.rows.iter().all(|row| row.life.is_settled())
    }

    /// What became of a key press that did nothing; empty when there is nothing to say.
    pub fn hint(&self) -> &str {
        self.hint.as_ref().map_or("", |(hint, _)| hint)
    }

    /// Whether there is something to read that goes when it has been read.
    pub fn has_notes(&self) -> bool {
        let noted = |row: &Row| matches!(row.life.state(), State::Refused(..) | State::Stopped(_) | State::Failed(_));
        !self.notice.is_empty() || self.hint.is_some() || self.rows.iter().any(noted)
    }

    /// Somebody wants to force what cannot be forced: says so.
    pub fn unforcible(&mut self, now: Time) {
        let refused = |row: &&Row| matches!(row.life.state(), State::Refused(..));
        let text = match self.rows.iter().find(refused) {
            Some(row) => format!(
                "{} cannot be forced: F overrules others and what cannot be read, nothing else",
                row.probe.spec.name
            ),
            None => "nothing was refused that could be forced".to_owned(),
        };
        self.hint = Some((text, now + HINT_MS));
    }

    /// The newest request that the guard refused and that may be forced.
    pub fn forcible(&self) -> Option<(usize, &Ask)> {
        self.rows.iter().enumerate().rev().find_map(|(place, row)| match row.life.state() {
            State::Refused(ask, refusal) if refusal.can_force => Some((place, ask)),
            _ => None,
        })
    }

    /// Somebody wants the probe at `place`, which cannot run here.
    pub fn unable(&mut self, now: Time, place: usize, ask: Ask, refusal: Refusal) -> Vec<(usize, Effect)> {
        self.asked(now, place, Event::Unable(ask, refusal))
    }

    /// Somebody wants the probe at `place`.
    pub fn ask(&mut self, now: Time, place: usize, ask: Ask) -> Vec<(usize, Effect)> {
        self.asked(now, place, Event::Ask(ask))
    }

    fn asked(&mut self, now: Time, place: usize, event: Event) -> Vec<(usize, Effect)> {
        self.notice.clear();
        self.hint = None;
        // The question is now another one, and what was said before has been read.
        let mut effects = self.tell(now, |other, row| {
            let clears = if matches!(row.life.state(), State::Confirm(_)) { Event::No } else { Event::Seen };
            (other != place).then_some(clears)
        });
        if let Some(row) = self.rows.get_mut(place) {
            effects.extend(row.life.on(now, event).into_iter().map(|effect| (place, effect)));
        }
        for (_, effect) in &effects {
            match effect {
                Effect::Same(_) => {
                    let row = &self.rows[place];
                    let name = row.probe.spec.name;
                    self.hint = Some(match row.life.state() {
                        State::Cooling(_, until) => {
                            let seconds = until.since(now).div_ceil(1_000);
                            (format!("{name} cools down for {seconds} s, then ask again"), *until)
                        }
                        _ => (format!("{name} runs already"), now + HINT_MS),
                    });
                }
                Effect::Busy(run) => {
                    self.hint = Some((format!("run {run} is not over: wait for it or stop it"), now + HINT_MS));
                }
                _ => {}
            }
        }
        effects
    }

    /// The answer to the question, the wish to stop, the end of the program, or the passing of time: for
    /// whichever probe it concerns.
    pub fn on_all(&mut self, now: Time, event: &Event) -> Vec<(usize, Effect)> {
        if *event == Event::Seen {
            self.notice.clear();
            self.hint = None;
        }
        self.hint.take_if(|(_, until)| now >= *until);
        self.tell(now, |_, _| Some(event.clone()))
    }

    /// Something of the run that the probe at `place` is carrying out.
    pub fn on(&mut self, now: Time, place: usize, event: &Event) -> Vec<(usize, Effect)> {
        self.tell(now, |other, _| (other == place).then(|| event.clone()))
    }

    fn tell(&mut self, now: Time, event: impl Fn(usize, &Row) -> Option<Event>) -> Vec<(usize, Effect)> {
        let mut effects = Vec::new();
        for (place, row) in self.rows.iter_mut().enumerate() {
            if let Some(event) = event(place, row) {
                effects.extend(row.life.on(now, event).into_iter().map(|effect| (place, effect)));
            }
        }
        effects
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::{Params, Target};

    fn ask(run: &str) -> Ask {
        Ask {
            run: run.into(),
            target: Target::default(),
            params: Params::default(),
            forced: false,
            duty: None,
            agreed: false,
            most_ms: 60_000,
        }
    }

    #[test]
    fn one_question_is_open_at_a_time() {
        let mut board = Board::default();
        assert!(board.rows().len() > 1);
        board.ask(Time(1), 0, ask("a"));
        board.ask(Time(2), 1, ask("b"));
        assert_eq!(board.confirming().map(|(place, ask, _)| (place, ask.run.as_ref())), Some((1, "b")));
        let effects = board.on_all(Time(3), &Event::Yes);
        assert!(matches!(&effects[..], [(1, Effect::Preflight(ask))] if ask.run.as_ref() == "b"), "{effects:?}");
        board.ask(Time(4), 1, ask("c"));
        assert!(board.hint().contains("runs already"), "{}", board.hint());
        assert!(board.notice.is_empty() && board.has_notes());
        board.on_all(Time(4 + HINT_MS), &Event::Tick);
        assert_eq!((board.hint(), board.has_notes()), ("", false), "its time is over");
    }

    #[test]
    fn the_last_sweep_that_measured_something_stays_to_be_looked_at() {
        let sweep = |run: &str, levels: usize| {
            let mut report = crate::probe::report::tests::report(run, 1.0);
            report.target = Target { endpoint: Some("http://a".to_owned()), ..Target::default() };
            report.levels = vec![load::Level::default(); levels];
            report
        };
        let mut board = Board::default();
        board.remember([sweep("20261130-b", 2), sweep("20261130-a", 1), sweep("20261130-c", 0)].iter());
        let known = |board: &Board| board.sweep.as_ref().map(|sweep| (sweep.run.to_string(), sweep.levels.len()));
        assert_eq!(known(&board), Some(("20261130-b".to_owned(), 2)));
        board.ended(&sweep("20261130-a", 3));
        assert_eq!(known(&board), Some(("20261130-b".to_owned(), 2)), "an older one");
        board.ended(&sweep("20261130-b", 3));
        assert_eq!(known(&board), Some(("20261130-b".to_owned(), 3)), "its own report");
    }

    #[test]
    fn what_was_said_goes_with_the_next_question_and_when_it_was_read() {
        let refusal = || Refusal { why: "no".to_owned(), can_force: false, hint: String::new() };
        let mut board = Board::default();
        board.unable(Time(1), 0, ask("a"), refusal());
        board.unable(Time(2), 1, ask("b"), refusal());
        let refused = |board: &Board| {
            let is = |row: &&Row| matches!(row.life.state(), State::Refused(..));
            board.rows().iter().filter(is).count()
        };
        assert_eq!(refused(&board), 1, "only the newest");
        board.unforcible(Time(3));
        assert!(board.hint().contains("cannot be forced"), "{}", board.hint());
        board.notice.push_str("the disk is full");
        board.on_all(Time(4), &Event::Seen);
        assert_eq!((refused(&board), board.has_notes()), (0, false));
    }

    #[test]
    fn each_gpu_has_its_last_result() {
        let report = |run: &str, uuid: &str, started, ending| {
            let mut report = crate::probe::report::tests::report(run, 4_000.0);
            report.target.gpus[0].uuid = uuid.to_owned();
            (report.started_unix_ms, report.ending) = (started, ending);
            report
        };
        let mut board = Board::default();
        let reports = [
            report("b2", "GPU-b", 20, Ending::Done),
            report("a1", "GPU-a", 10, Ending::Done),
            report("a0", "GPU-a", 5, Ending::Done),
            report("a3", "GPU-a", 30, Ending::Stopped),
        ];
        board.remember(reports.iter());
        let row = |board: &Board| board.rows().iter().find(|row| row.probe.spec.id == "hbm").unwrap().clone();
        let on = |board: &Board, gpu, uuid| row(board).last_on(gpu, uuid).map(|last| last.run.to_string());
        assert_eq!(on(&board, 7, Some("GPU-a")).as_deref(), Some("a1"), "a stopped run replaces no result");
        assert_eq!(on(&board, 0, Some("GPU-b")).as_deref(), Some("b2"));
        assert_eq!((on(&board, 0, Some("GPU-c")), on(&board, 0, None)), (None, None), "never run on this one");
        board.ended(&report("a4", "GPU-a", 40, Ending::Done));
        assert_eq!(row(&board).last().map(|last| last.run.to_string()).as_deref(), Some("a4"));
    }

    #[test]
    fn hidden_probes_are_shown_only_while_they_do_something() {
        let mut board = Board::default();
        let hidden = board.rows().iter().position(|row| row.probe.spec.hidden).unwrap();
        let shows = |board: &Board| board.shown().any(|(place, _)| place == hidden);
        assert!(!shows(&board));
        // So a place counts the same with and without them.
        assert!(board.rows()[hidden..].iter().all(|row| row.probe.spec.hidden));
        board.ask(Time(1), hidden, ask("a"));
        assert!(shows(&board));
    }
}
