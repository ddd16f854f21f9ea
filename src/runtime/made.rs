//! Reports of runs: what is known of a run put into one document.
//!
//! It must not wait, nor know where reports are kept. Invariant: what is not known is missing, never made up.

use std::collections::BTreeMap;

use crate::probe::Probe;
use crate::probe::guard::{self, Admission};
use crate::probe::life::{Ask, End, Ended};
use crate::probe::protocol::Outcome;
use crate::probe::report::{Ending, Environment, Report, SCHEMA};

use super::machine;

/// The report of a run that is over, with what the guard said before it; measurements are the caller's to add.
pub(super) fn report(probe: &Probe, ended: &Ended, admission: Option<&Admission>, environment: Environment) -> Report {
    let ending = match ended.end {
        End::Done => Ending::Done,
        End::Stopped(_) => Ending::Stopped,
        End::Unavailable(_) => Ending::Refused,
        End::Failed(_) => Ending::Failed,
    };
    let mut report = blank(probe, &ended.ask, ending, ended.end.why());
    report.host = machine::host_name();
    (report.started_unix_ms, report.ended_unix_ms) = (ended.span.0.0, ended.span.1.0);
    report.duty_pct = admission.map_or(guard::FORCED_DUTY_PCT, |admission| admission.duty_pct);
    report.environment = environment;
    report.environment.company = admission.map(|admission| admission.company.clone()).unwrap_or_default();
    report.notes.extend(admission.map(|admission| admission.note.clone()).filter(|note| !note.is_empty()));
    report
}

/// Takes in what a run found, if it ended with a result.
pub(super) fn take(report: &mut Report, end: &End, outcome: Option<Outcome>, baseline: Option<&Report>) {
    if let (End::Done, Some(outcome)) = (end, outcome) {
        report.take(outcome, baseline);
    }
}

/// A report of a run of which nothing is known but how it ended.
pub(super) fn blank(probe: &Probe, ask: &Ask, ending: Ending, why: &str) -> Report {
    Report {
        schema: SCHEMA.to_owned(),
        run: ask.run.to_string(),
        probe: probe.spec.id.to_owned(),
        warptop: env!("CARGO_PKG_VERSION").to_owned(),
        host: String::new(),
        target: ask.target.clone(),
        started_unix_ms: 0,
        ended_unix_ms: 0,
        ending,
        why: (!why.is_empty()).then(|| why.to_owned()),
        forced: ask.forced,
        duty_pct: 100,
        inputs: ask.params.clone(),
        environment: Environment::default(),
        results: Vec::new(),
        checks: Vec::new(),
        notes: Vec::new(),
        moments: BTreeMap::new(),
        verdict: Report::without_result(ending, why),
        samples: Vec::new(),
        samples_left_out: 0,
        levels: Vec::new(),
        knee: None,
        ended_early: None,
    }
}
