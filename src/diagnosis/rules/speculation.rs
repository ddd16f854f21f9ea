//! Speculative decoding whose drafts are rejected: work for nothing.

use super::super::scene::Scene;
use super::super::{Cause, Finding, Fix, Sentence, Severity};
use super::Rule;
use crate::model::Subject;

pub(super) const RULE: Rule = Rule { causes: &[Cause::Speculation], judge };

/// Share of accepted drafts below which they cost more than they bring.
const ACCEPTED: f64 = 0.3;
/// Drafted tokens for each generated one from which on they matter.
const MATTERS: f64 = 0.1;

fn judge(scene: &Scene<'_>, findings: &mut Vec<Finding>) {
    for engine in scene.engines.iter().filter(|engine| engine.is_read()) {
        let (Some(drafted), Some(accepted), Some(generated)) = (engine.drafted, engine.accepted, engine.generated)
        else {
            continue;
        };
        if drafted < generated * MATTERS || drafted <= 0.0 || accepted / drafted >= ACCEPTED {
            continue;
        }
        let share = accepted / drafted * 100.0;
        let words = Sentence::new(
            format!("{share:.0} % of the drafted tokens are accepted: drafts cost more than they bring"),
            format!("{share:.0} % of drafts accepted"),
        );
        let cost = (drafted / generated.max(1.0) * 0.1).min(0.3);
        findings.push(
            Finding::new(Subject::Engine(engine.index), Cause::Speculation, Severity::Watch, cost, words)
                .shows(("spec_draft_tokens", "tokens/s", "engine"), Some(drafted), |n| {
                    format!("{n:.0} tokens a second are drafted")
                })
                .shows(("spec_accepted_tokens", "tokens/s", "engine"), Some(accepted), |n| {
                    format!("{n:.0} of them are accepted")
                })
                .fix(Fix::todo(
                    "Draft fewer tokens, use another draft model, or switch speculation off",
                    "fewer or no drafts",
                )),
        );
    }
}
