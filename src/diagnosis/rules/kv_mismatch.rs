//! KV memory that is short and not used: slots far longer than requests, places set aside, blocks half empty.
//!
//! A pool that is larger than needed harms nobody. So this is said only where another rule found that memory or slots are
//! short, or where so much of a paged pool is held that it soon will be.

use super::super::scene::{EngineScene, Scene};
use super::super::words::Num;
use super::super::{Cause, Finding, Fix, Sentence, Severity};
use super::Rule;
use crate::derive::exposed::level;
use crate::derive::kv::{Buffers, Kv, kv};
use crate::engine::Setting;
use crate::model::{Metric, Subject};
use crate::store::Window;

pub(super) const RULE: Rule = Rule { causes: &[Cause::KvMismatch], judge };

/// Lengths of requests are those of the last minute, ms.
const LENGTHS_MS: u64 = 60_000;
/// Share of what is held that is empty or reserved, from which on it matters, %.
const WASTED: f64 = 20.0;
/// Share of the pool that is held, from which on what is wasted of it is soon missed, %.
const MOSTLY_HELD: f64 = 60.0;
/// How many times the length of nearly all requests a slot has to be.
const OVERSIZED: f64 = 4.0;

fn judge(scene: &Scene<'_>, findings: &mut Vec<Finding>) {
    for engine in scene.engines.iter().filter(|engine| engine.is_read()) {
        let subject = Subject::Engine(engine.index);
        let short = |finding: &&Finding| {
            finding.subject == subject && matches!(finding.cause, Cause::KvCapacity | Cause::AdmissionLimit)
        };
        let cause = findings.iter().find(short).map(|finding| finding.cause);
        let held = level(scene.data, engine.index, Metric::KvUsage, scene.at).value();
        if cause.is_none() && held.is_none_or(|held| held < MOSTLY_HELD) {
            continue;
        }
        let pool = kv(scene.data, engine.index, Window::last(scene.at, LENGTHS_MS), &mut Buffers::default());
        let soon_short = !pool.has_slots() && pool.tail_waste_pct.value().is_some_and(|tail| tail >= WASTED);
        findings.extend(match cause {
            Some(Cause::AdmissionLimit) => slots(engine, &pool),
            None if !soon_short => None,
            _ => waste(engine, &pool),
        });
    }
}

/// Slots of a fixed length that requests hardly use: more and shorter ones fit into the same memory.
fn slots(engine: &EngineScene, pool: &Kv) -> Option<Finding> {
    let times = pool.overprovision_x.value().filter(|&times| pool.has_slots() && times >= OVERSIZED)?;
    let (slots, length) = (pool.slots.value()?, pool.max_model_len.value()?);
    let words = Sentence::new(
        format!(
            "a slot holds {} tokens, {times:.0} times what requests use: more slots fit into the same memory",
            Num(length)
        ),
        format!("slots {times:.0} times too long"),
    );
    let tried = slots * 2_f64.powf(times.log2().floor());
    let flag = engine.flag(Setting::Running).unwrap_or("the number of slots");
    Some(found(engine, words, pool).fix(Fix {
        text: Sentence::new(
            format!(
                "{flag} {} → {} with the context as it is: slots of {} tokens",
                Num(slots),
                Num(tried),
                Num(length * slots / tried)
            ),
            format!("{flag} {}", Num(tried)),
        ),
        flag: Some(flag.to_owned()),
        now: Some(Num(slots).to_string()),
        try_value: Some(Num(tried).to_string()),
        gain: Some(format!("{:.0} times the slots", tried / slots)),
        probe: None,
    }))
}

/// Blocks that live requests hold and do not use.
fn waste(engine: &EngineScene, pool: &Kv) -> Option<Finding> {
    let tail = pool.tail_waste_pct.value().unwrap_or(0.0);
    let reserved = pool.reserved_tokens.value().zip(pool.pool_tokens.value()).map_or(0.0, |(r, all)| r / all * 100.0);
    if tail.max(reserved) < WASTED {
        return None;
    }
    let what = if tail >= reserved { "empty" } else { "set aside for tokens that may never come" };
    let share = tail.max(reserved);
    let words = Sentence::new(
        format!("{share:.0} % of the KV memory that requests hold is {what}"),
        format!("{share:.0} % of held KV {}", if tail >= reserved { "empty" } else { "reserved" }),
    );
    Some(found(engine, words, pool).fix(Fix::todo(
        "Use smaller blocks, a lower max_tokens, or let the engine reserve less (SGLang: --schedule-conservativeness)",
        "smaller blocks or max_tokens",
    )))
}

fn found(engine: &EngineScene, words: Sentence, pool: &Kv) -> Finding {
    Finding::new(Subject::Engine(engine.index), Cause::KvMismatch, Severity::Watch, 0.1, words)
        .shows(("kv.max_model_len", "tokens", "engine"), pool.max_model_len.value(), |n| {
            format!("{} tokens are admitted", Num(n))
        })
        .shows(("kv.overprovision_x", "times", "engine"), pool.overprovision_x.value(), |x| {
            format!("{x:.1} times what requests use")
        })
        .shows(("kv.tail_waste_pct", "%", "engine"), pool.tail_waste_pct.value(), |pct| {
            format!("{pct:.0} % of the held places are empty")
        })
}
