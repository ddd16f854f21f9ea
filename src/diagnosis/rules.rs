//! The rules: each judges the figures of one moment and names one cause, or none.

mod clocks;
mod cpu;
mod faults;
mod host;
mod kv_mismatch;
mod limits;
mod links;
mod long_prefill;
mod neighbour;
mod prefix_cold;
mod queue;
mod reach;
mod slower;
mod speculation;
mod stalled;
mod state;
mod tail;
mod transfer;

pub(super) use tail::attainments;

use super::scene::Scene;
use super::{Cause, Finding, Severity};

/// Rules that share their figures. New ones are a file in this folder and a line in [`RULES`].
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// What it can name.
    pub causes: &'static [Cause],
    judge: fn(&Scene<'_>, &mut Vec<Finding>),
}

/// Every rule. Those that look at what others found come last.
pub const RULES: &[Rule] = &[
    reach::RULE,
    stalled::RULE,
    faults::RULE,
    transfer::RULE,
    queue::RULE,
    kv_mismatch::RULE,
    prefix_cold::RULE,
    long_prefill::RULE,
    neighbour::RULE,
    links::RULE,
    cpu::RULE,
    speculation::RULE,
    clocks::RULE,
    host::RULE,
    limits::RULE,
    tail::RULE,
    slower::RULE,
    state::RULE,
];

/// What the rules say of a moment, most harmful first.
pub(super) fn judge(scene: &Scene<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for rule in RULES {
        (rule.judge)(scene, &mut findings);
    }
    place_consequences(&mut findings);
    rank(&mut findings);
    findings
}

/// What a lost prefix cache or a long prompt makes the GPU compute heats it up to the power cap: raising the cap would
/// not bring the cache back.
fn place_consequences(findings: &mut [Finding]) {
    let causes: Vec<(Severity, f64)> = findings
        .iter()
        .filter(|finding| matches!(finding.cause, Cause::PrefixCold | Cause::LongPrefill))
        .map(|finding| (finding.severity, finding.cost))
        .collect();
    let Some(&(severity, cost)) = causes.first() else { return };
    for finding in findings.iter_mut().filter(|finding| finding.cause == Cause::PowerCap) {
        finding.severity = finding.severity.min(severity);
        finding.cost = finding.cost.min(cost * 0.5);
    }
}

/// Among findings that ask for nothing: limits that every server has, then how it does, then what is merely true.
const fn place(finding: &Finding) -> u8 {
    match finding.cause {
        _ if !matches!(finding.severity, Severity::Ok) => 0,
        Cause::MemoryBandwidth | Cause::Compute => 0,
        cause if cause.is_state() => 1,
        _ => 2,
    }
}

/// Most harmful first; what harms nobody in the order of [`Cause`], states last.
pub(super) fn rank(findings: &mut [Finding]) {
    findings.sort_by(|a, b| {
        let harm = b.severity.cmp(&a.severity).then(b.cost.total_cmp(&a.cost));
        harm.then((place(a), a.cause, a.subject).cmp(&(place(b), b.cause, b.subject)))
    });
}
