//! Requests for runs, and which of several processes' are one run: what each says of itself, and what was measured
//! just now.
//!
//! It must not wait, nor take the lock.

use crate::model::Time;
use crate::probe::files::{Files, Holder};
use crate::probe::life::Ask;
use crate::probe::report::{Ending, Report};
use crate::probe::{self, Params, Probe, Target, guard};

use super::probes::Manner;

/// A request for a probe, with a name for its run.
pub(super) fn request(probe: &Probe, target: Target, params: Params, manner: Manner, now: Time) -> Ask {
    let Manner { forced, duty, agreed } = manner;
    let most_ms = probe::most_ms(&probe.spec.costs(&params, &target));
    let run = probe::run_name(now, probe.spec.id, std::process::id()).into();
    // It may rest for most of the time.
    let most_ms = most_ms.saturating_mul(100) / u64::from(guard::duty_pct(probe.spec.needs, duty, forced).max(1));
    Ask { run, target, params, forced, duty, agreed, most_ms }
}

/// What a request says about itself to other processes.
pub(super) fn holder(probe: &Probe, ask: &Ask) -> Holder {
    Holder {
        run: ask.run.to_string(),
        probe: probe.spec.id.to_owned(),
        target: ask.target.clone(),
        params: ask.params.clone(),
        duty: ask.duty,
        pid: std::process::id(),
    }
}

/// The report of a run that measured the same and whose cool-down is not over.
pub(super) fn recent(files: &Files, probe: &Probe, ask: &Ask, now: Time) -> Option<Report> {
    let bound = probe::bound(probe.spec.needs);
    files.newest(probe.spec.id, 8).into_iter().filter(|report| report.bound() == bound.as_deref()).find(|report| {
        let duty_pct = guard::duty_pct(probe.spec.needs, ask.duty, !report.environment.company.is_empty());
        let same = report.target == ask.target && report.inputs == ask.params && report.duty_pct == duty_pct;
        let since = now.since(Time(report.ended_unix_ms));
        // A report from the future is one of a clock that was set back.
        same && report.ending == Ending::Done && report.ended_unix_ms <= now.0 && since < probe.spec.cool_ms
    })
}
