//! The rules: each judges the figures of one moment and names one cause, or none.

mod state;

use super::scene::Scene;
use super::{Cause, Finding, Severity};

/// A rule. A new one is a file in this folder and a line in [`RULES`].
#[derive(Clone, Copy)]
pub struct Rule {
    /// What it names.
    pub cause: Cause,
    judge: fn(&Scene<'_>, &mut Vec<Finding>),
}

/// Every rule. Those that look at what others found come last.
pub const RULES: &[Rule] = &[Rule { cause: Cause::Idle, judge: state::judge }];

/// What the rules say of a moment, most harmful first.
pub(super) fn judge(scene: &Scene<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    RULES.iter().for_each(|rule| (rule.judge)(scene, &mut findings));
    rank(&mut findings);
    findings
}

/// Most harmful first.
pub(super) fn rank(findings: &mut [Finding]) {
    findings.sort_by(|a, b| {
        let harm = (b.severity, b.cost).partial_cmp(&(a.severity, a.cost)).unwrap_or(std::cmp::Ordering::Equal);
        harm.then((a.cause, a.subject).cmp(&(b.cause, b.subject)))
    });
    let _ = Severity::Ok;
}
