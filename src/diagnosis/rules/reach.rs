//! Engines that cannot be read: down, in want of a key, or without metrics. Nothing else is said of them.

use super::super::scene::{Reach, Scene};
use super::super::{Cause, Finding, Fix, Sentence, Severity};
use super::Rule;
use crate::model::Subject;

pub(super) const RULE: Rule = Rule { causes: &[Cause::Down, Cause::NeedsKey, Cause::Unreadable], judge };

fn judge(scene: &Scene<'_>, findings: &mut Vec<Finding>) {
    for engine in &scene.engines {
        let (subject, name) = (Subject::Engine(engine.index), &engine.name);
        let found = match &engine.reach {
            Reach::Read | Reach::Starting | Reach::Silent(_) => continue,
            Reach::Down(why) => {
                let words = Sentence::new(format!("{name} cannot be reached: {why}"), format!("{name} is down"));
                Finding::new(subject, Cause::Down, Severity::Act, 1.0, words).fix(Fix::todo(
                    "See the engine's log, and start it again if its process is gone",
                    "see its log, start it again",
                ))
            }
            Reach::NeedsKey => {
                let words = Sentence::new(
                    format!("{name} is there and wants a key for its metrics: {}", "HTTP 401 or 403"),
                    format!("{name} wants a key"),
                );
                Finding::new(subject, Cause::NeedsKey, Severity::Watch, 0.0, words).fix(Fix::todo(
                    "Give the key in WARPTOP_ENGINE_TOKEN or in the file of --engine-auth",
                    "set WARPTOP_ENGINE_TOKEN",
                ))
            }
            Reach::NoMetrics(why) => {
                let words = Sentence::new(format!("{name} {why}"), format!("{name} has no metrics"));
                Finding::new(subject, Cause::Unreadable, Severity::Watch, 0.0, words).fix(Fix::todo(
                    "Start the engine with its metrics on (llama.cpp: --metrics; SGLang: --enable-metrics), or name the right port",
                    "start it with metrics on",
                ))
            }
        };
        findings.push(found);
    }
}
