//! One verdict for scripts, as text and as JSON: `warptop.check/1`.
//!
//! It judges nothing itself: it follows the diagnosis second by second through the time that is asked for. What asks for
//! action at the end counts, and what did so for at least half of that time. Invariant: names of the JSON are only ever
//! added.

mod page;

use serde::Serialize;

use super::snapshot::diagnosis::{EventRow, FindingRow, events, row, rows, short};
use crate::diagnosis::{self, Attainment, Cause, Diagnosis, Finding, Severity, Slo, Timeline};
use crate::model::{FactKey, Subject, Time};
use crate::store::{Data, Window};

pub use page::page;

/// What `schema` says.
pub const SCHEMA: &str = "warptop.check/1";

/// What a check comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckState {
    /// Nothing asks for action.
    Ok,
    /// Something does.
    Act,
    /// There was nothing to judge by.
    Unknown,
}

impl CheckState {
    /// The exit code that says so.
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Act => 5,
            Self::Unknown => 6,
        }
    }

    /// In words.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Ok => "nothing asks for action",
            Self::Act => "something asks for action",
            Self::Unknown => "nothing could be judged",
        }
    }
}

/// A verdict with what it rests on.
#[derive(Clone, Debug)]
pub struct Check {
    /// What it comes to.
    pub state: CheckState,
    window: Window,
    diagnosis: Diagnosis,
    /// What asked for action in at least half of the time and does not at its end, with the moment it did so last.
    earlier: Vec<(Finding, Time)>,
    attainments: Vec<Attainment>,
    /// Engines by the name that is shown for them.
    names: Vec<(u8, String)>,
    events: Vec<EventRow>,
}

/// Judges the seconds of `window` by the objectives of `slo`.
pub fn check(data: &Data, window: Window, slo: &Slo) -> Check {
    let mut timeline = Timeline::new(slo.clone());
    let mut acts: Vec<(Finding, Time, u64)> = Vec::new();
    let steps = (window.ms() / Timeline::STEP_MS).max(1);
    for back in (0..steps).rev() {
        let at = window.end - back * Timeline::STEP_MS;
        timeline.follow(data, at);
        count(&mut acts, timeline.diagnosis(), at);
    }
    timeline.complete(data);
    let diagnosis = timeline.diagnosis().clone();
    let acts_now = |finding: &Finding| {
        let same = |now: &&Finding| now.subject == finding.subject && now.cause == finding.cause;
        diagnosis.findings.iter().find(same).is_some_and(|now| now.severity == Severity::Act)
    };
    let long = acts.into_iter().filter(|(finding, _, held)| held * 2 >= steps && !acts_now(finding));
    let earlier: Vec<_> = long.map(|(finding, last, _)| (finding, last)).collect();
    let attainments = diagnosis::attainments(data, window.end, slo);
    let missed = attainments.iter().any(|one| one.missed() == Some(true));
    let state = if diagnosis.severity() == Severity::Act || !earlier.is_empty() || missed {
        CheckState::Act
    } else if is_judged(&diagnosis) {
        CheckState::Ok
    } else {
        CheckState::Unknown
    };
    let within = |span: &&diagnosis::Span| span.to >= window.start;
    let spans: Vec<_> = timeline.spans().iter().filter(within).cloned().collect();
    let events = events(&spans, diagnosis.at);
    Check { state, window, diagnosis, earlier, attainments, names: names(data, window.end), events }
}

/// Counts what asks for action in a second.
fn count(acts: &mut Vec<(Finding, Time, u64)>, diagnosis: &Diagnosis, at: Time) {
    for finding in diagnosis.findings.iter().filter(|finding| finding.severity == Severity::Act) {
        match acts.iter_mut().find(|(held, ..)| held.subject == finding.subject && held.cause == finding.cause) {
            Some((held, last, n)) => (*held, *last, *n) = (finding.clone(), at, *n + 1),
            None => acts.push((finding.clone(), at, 1)),
        }
    }
}

/// Whether an engine or a GPU could be judged.
fn is_judged(diagnosis: &Diagnosis) -> bool {
    let known = |finding: &&Finding| finding.subject != Subject::Host && finding.cause != Cause::Unknown;
    // An engine that is there and cannot be read is no engine that is well.
    let unread = |finding: &Finding| matches!(finding.cause, Cause::NeedsKey | Cause::Unreadable);
    diagnosis.findings.iter().any(|finding| known(&finding) && !unread(finding))
        && !diagnosis.findings.iter().any(unread)
}

/// What the engines are called.
fn names(data: &Data, at: Time) -> Vec<(u8, String)> {
    let name = |engine| {
        let fact = |key| data.fact(Subject::Engine(engine), key, at).unwrap_or_default();
        [fact(FactKey::Name), fact(FactKey::Url)]
            .iter()
            .filter(|text| !text.is_empty())
            .copied()
            .collect::<Vec<_>>()
            .join(" at ")
    };
    data.engines().map(|engine| (engine, name(engine))).collect()
}

#[derive(Serialize)]
struct CheckDocument {
    schema: &'static str,
    unix_ms: u64,
    /// Length of the time that was judged.
    judged_s: f64,
    verdict: CheckState,
    exit_code: u8,
    meaning: &'static str,
    diagnosis: Vec<FindingRow>,
    earlier: Vec<FindingRow>,
    events: Vec<EventRow>,
    slo: Vec<SloRow>,
}

/// An objective beside what was seen of it.
#[derive(Serialize)]
struct SloRow {
    engine: String,
    objective: String,
    seen: Option<SeenRow>,
    /// `null` where no request tells.
    missed: Option<bool>,
}

#[derive(Serialize)]
struct SeenRow {
    value_s: f64,
    lo_s: f64,
    hi_s: Option<f64>,
    n: u64,
    /// Restarts of the server between these requests, and whether those from before one were left out.
    restarts: u32,
    since_restart: bool,
}

impl Check {
    /// The verdict as JSON.
    ///
    /// # Errors
    /// When a figure cannot be written.
    pub fn json(&self) -> Result<String, serde_json::Error> {
        let slo = self.attainments.iter().map(|one| SloRow {
            engine: Subject::Engine(one.engine).to_string(),
            objective: one.objective.to_string(),
            seen: one.seen.map(|seen| SeenRow {
                value_s: short(seen.value),
                lo_s: short(seen.lo),
                hi_s: seen.hi.map(short),
                n: seen.n,
                restarts: one.lives.restarts,
                since_restart: one.lives.since_restart,
            }),
            missed: one.missed(),
        });
        serde_json::to_string_pretty(&CheckDocument {
            schema: SCHEMA,
            unix_ms: self.window.end.0,
            judged_s: self.window.ms() as f64 / 1000.0,
            verdict: self.state,
            exit_code: self.state.exit_code(),
            meaning: self.state.meaning(),
            diagnosis: rows(&self.diagnosis),
            earlier: self.earlier.iter().map(|(finding, last)| row(finding, *last)).collect(),
            events: self.events.clone(),
            slo: slo.collect(),
        })
    }
}
