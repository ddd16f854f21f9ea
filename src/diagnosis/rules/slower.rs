//! Slower than this server was at the same load, for no reason that another rule found.

use super::super::scene::Scene;
use super::super::words::{Num, Secs};
use super::super::{Cause, Finding, Fix, Sentence, Severity};
use super::Rule;
use crate::model::Subject;

pub(super) const RULE: Rule = Rule { causes: &[Cause::ThroughputDrop], judge };

/// Mean gap between tokens against what is usual, from which on it is slower.
const SLOWER: f64 = 1.5;
/// Pieces of two seconds that the past has to have: fewer say little of what is usual.
const LEAST_PIECES: usize = 15;

fn judge(scene: &Scene<'_>, findings: &mut Vec<Finding>) {
    let explained = |cause: Cause| {
        !cause.is_state() && !matches!(cause, Cause::PageFaults | Cause::MemoryBandwidth | Cause::NetworkRetransmits)
    };
    if findings.iter().any(|finding| explained(finding.cause)) {
        return;
    }
    for engine in scene.engines.iter().filter(|engine| engine.is_read()) {
        let (Some(usual), Some(now)) = (engine.usual.itl, engine.itl) else { continue };
        let known = engine.usual.pieces >= LEAST_PIECES;
        if !known || now < usual * SLOWER || engine.running_mean.is_none_or(|running| running < 1.0) {
            continue;
        }
        let words = Sentence::new(
            format!("tokens come every {}, every {} at this load before: no cause is measured", Secs(now), Secs(usual)),
            format!("ITL {}, was {}", Secs(now), Secs(usual)),
        );
        findings.push(
            Finding::new(
                Subject::Engine(engine.index),
                Cause::ThroughputDrop,
                Severity::Watch,
                1.0 - usual / now,
                words,
            )
            .shows(("itl_mean_s", "s", "engine"), Some(now), |s| format!("{} between tokens", Secs(s)))
            .shows(("itl_mean_s", "s", "engine"), Some(usual), |s| format!("{} is usual at such a load", Secs(s)))
            .shows(("requests_running", "requests", "engine"), engine.running_mean, |n| {
                format!("{} requests run", Num(n))
            })
            .fix(Fix::todo("See what changed: the engine's log, other programs, prompt lengths", "see what changed")),
        );
    }
}
