//! Slower than this server was at the same load, for no reason that another rule found.

use super::super::scene::Scene;
use super::super::words::{Num, Secs};
use super::super::{Cause, Finding, Fix, Sentence, Severity};
use super::Rule;
use crate::model::Subject;

pub(super) const RULE: Rule = Rule { causes: &[Cause::ThroughputDrop], judge };

/// Gaps between tokens against the best quarter of the past, from which on it is slower.
const SLOWER: f64 = 1.5;

fn judge(scene: &Scene<'_>, findings: &mut Vec<Finding>) {
    let explained = |cause: Cause| {
        !cause.is_state() && !matches!(cause, Cause::PageFaults | Cause::MemoryBandwidth | Cause::NetworkRetransmits)
    };
    if findings.iter().any(|finding| explained(finding.cause)) {
        return;
    }
    for engine in scene.engines.iter().filter(|engine| engine.is_read()) {
        let (Some((loss, best)), Some(now)) = (engine.token_loss(), engine.itl) else { continue };
        if now < best * SLOWER || engine.running_mean.is_none_or(|running| running < 1.0) {
            continue;
        }
        let words = Sentence::new(
            format!("tokens come every {}, every {} at this load before: no cause is measured", Secs(now), Secs(best)),
            format!("ITL {}, was {}", Secs(now), Secs(best)),
        );
        findings.push(
            Finding::new(Subject::Engine(engine.index), Cause::ThroughputDrop, Severity::Watch, loss, words)
                .shows(("itl_mean_s", "s", "engine"), Some(now), |s| format!("{} between tokens", Secs(s)))
                .shows(("itl_mean_s", "s", "engine"), engine.usual.itl, |s| {
                    format!("{} is usual at such a load", Secs(s))
                })
                .shows(("requests_running", "requests", "engine"), engine.running_mean, |n| {
                    format!("{} requests run", Num(n))
                })
                .fix(Fix::todo(
                    "See what changed: the engine's log, other programs, prompt lengths",
                    "see what changed",
                )),
        );
    }
}
