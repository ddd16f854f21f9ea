//! The prefix cache that hit before does not any more, at prompts of the same length.

use super::super::scene::Scene;
use super::super::words::{Num, Secs};
use super::super::{Cause, Finding, Fix, Sentence, Severity};
use super::Rule;
use crate::model::Subject;

pub(super) const RULE: Rule = Rule { causes: &[Cause::PrefixCold], judge };

/// Share of the prompt tokens that has to be lost.
const LOST: f64 = 0.3;
/// Prompts below this many tokens cost nothing worth a word.
const LEAST_PROMPT: f64 = 256.0;
/// TTFT share of a request from which on clients are harmed.
const HARMS: f64 = 0.15;

fn judge(scene: &Scene<'_>, findings: &mut Vec<Finding>) {
    for engine in scene.engines.iter().filter(|engine| engine.is_read()) {
        let (Some(now), Some(before), Some(len)) = (engine.hit_share, engine.usual_hits, engine.prompt_len) else {
            continue;
        };
        if before - now < LOST || len < LEAST_PROMPT {
            continue;
        }
        let lost = before - now;
        let of_prompts = engine.split.filter(|s| s.total() > 0.0).map_or(0.3, |s| (s.queue + s.prefill) / s.total());
        let severity = if of_prompts >= HARMS { Severity::Act } else { Severity::Watch };
        let words = Sentence::new(
            format!(
                "the prefix cache hits {:.0} % of the prompt tokens, {:.0} % before at the same lengths: prompts are computed again",
                now * 100.0,
                before * 100.0
            ),
            format!("prefix hits {:.0} → {:.0} %", before * 100.0, now * 100.0),
        );
        let computed = engine.prompt.map(|rate| rate * (1.0 - now));
        let finding = Finding::new(Subject::Engine(engine.index), Cause::PrefixCold, severity, lost.max(0.3), words)
            .shows(("kv.prefix_hit_pct", "%", "engine"), Some(now * 100.0), |pct| format!("prefix hits {pct:.0} % now"))
            .shows(("kv.prefix_hit_pct", "%", "engine"), Some(before * 100.0), |pct| {
                format!("prefix hits {pct:.0} % at best in the last hour")
            })
            .shows(("prompt_tokens_per_s", "tokens/s", "engine"), computed, |n| {
                format!("{} prompt tokens a second are computed", Num(n))
            })
            .shows(("prompt_len", "tokens", "engine"), Some(len), |n| format!("prompts of {} tokens", Num(n)))
            .shows(("ttft_s", "s", "engine"), engine.ttft, |s| format!("TTFT {} on average", Secs(s)));
        findings.push(
            finding
                .fix(Fix::todo(
                    "See what changed at the start of the prompts (a date, an id, another order), or route requests that share a prefix to one replica",
                    "keep the start of prompts the same",
                ))
                .fix(Fix::todo("Give the KV cache more memory if the prefixes were pushed out of it", "more KV memory")),
        );
    }
}
