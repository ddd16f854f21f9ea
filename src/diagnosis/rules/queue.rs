//! Requests that wait for KV blocks, or for a place among the running.

use super::super::scene::{EngineScene, Scene};
use super::super::words::{Mem, Num, Secs, waits};
use super::super::{Cause, Finding, Fix, Sentence, Severity};
use super::Rule;
use crate::derive::kv::Layout;
use crate::engine::Setting;
use crate::model::Subject;

pub(super) const RULE: Rule =
    Rule { causes: &[Cause::KvCapacity, Cause::AdmissionLimit, Cause::WaitsForTransfer, Cause::KvMismatch], judge };

/// KV usage, with one more request of the mean size, from which on there is no room, %.
const KV_FULL: f64 = 97.0;
/// Schedulers that fill slots one step late leave one place free; of many places, one in fifty.
const CAP_SLACK: f64 = 0.02;
/// Who waits while nothing moves for so long, ms, waits for something else.
const STILL_MS: u64 = 3_000;
/// Memory of a GPU that vLLM is advised to take at most: what is above is the driver's and other libraries'.
const MOST_UTILISATION: f64 = 0.9;

fn judge(scene: &Scene<'_>, findings: &mut Vec<Finding>) {
    for engine in scene.engines.iter().filter(|engine| engine.is_read() && !engine.is_still(STILL_MS)) {
        let other_reason = engine.waits_for_transfer();
        if !other_reason && (engine.queues() || engine.preemptions.is_some_and(|rate| rate > 0.0)) {
            if no_room(engine) && !(has_slots(engine) && at_cap(engine)) {
                findings.push(kv_capacity(scene, engine));
            } else if at_cap(engine) && engine.queues() {
                findings.push(admission_limit(engine));
            }
        }
    }
}

/// Whether one more request does not fit into the KV cache.
fn no_room(engine: &EngineScene) -> bool {
    let preempts = engine.preemptions.is_some_and(|rate| rate > 0.0);
    engine.kv.is_some_and(|kv| {
        let one_more = kv * (1.0 + 1.0 / engine.running_mean.unwrap_or(1.0).max(1.0));
        one_more >= KV_FULL && (kv >= 80.0 || preempts) || preempts && kv >= 80.0
    })
}

/// Engines that give each request a slot call all of them held when all run.
fn has_slots(engine: &EngineScene) -> bool {
    engine.layout.is_some_and(|layout| layout != Layout::Paged)
}

fn at_cap(engine: &EngineScene) -> bool {
    let (Some(cap), Some(running)) = (engine.cap, engine.most_running) else { return false };
    running >= cap - (cap * CAP_SLACK).max(1.0) && engine.running_mean.is_some_and(|mean| mean >= cap * 0.8 - 1.0)
}

pub(super) fn counted(finding: Finding, engine: &EngineScene) -> Finding {
    finding
        .shows(("requests_waiting", "requests", "engine"), engine.waiting_mean, |n| {
            format!("{} requests wait on average", Num(n))
        })
        .shows(("requests_running", "requests", "engine"), engine.running_mean, |n| match engine.cap {
            Some(cap) => format!("{} of at most {} run", Num(n), Num(cap)),
            None => format!("{} run", Num(n)),
        })
        .shows(("kv.usage_pct", "%", "engine"), engine.kv, |pct| format!("KV cache {pct:.0} % used"))
        .shows(("preemptions_per_s", "1/s", "engine"), engine.preemptions.filter(|n| *n > 0.0), |n| {
            format!("{} requests a second lose their KV blocks and start again", Num(n))
        })
        .shows(("queue_mean_s", "s", "engine"), engine.split.map(|split| split.queue), |s| {
            format!("a request waits {} on average before it runs", Secs(s))
        })
}

/// What clients lose: the queue's share of their time. Never nothing, since somebody waits.
pub(super) fn cost(engine: &EngineScene) -> f64 {
    engine.queue_share().max(0.2)
}

fn kv_capacity(scene: &Scene<'_>, engine: &EngineScene) -> Finding {
    let (kv, waiting) = (engine.kv.unwrap_or(0.0), engine.waiting_mean.unwrap_or(0.0).round());
    let preempted = engine.preemptions.filter(|n| *n > 0.0);
    let lost = preempted.map_or_else(String::new, |n| format!(", {} preemptions/s", Num(n)));
    let words = Sentence::new(
        format!("KV cache is full ({kv:.0} %): {}{lost}", waits(waiting)),
        format!("KV cache {kv:.0} %, {} wait", Num(waiting)),
    );
    let severity = if engine.queues() { Severity::Act } else { Severity::Watch };
    let finding = Finding::new(Subject::Engine(engine.index), Cause::KvCapacity, severity, cost(engine), words);
    let mut finding = counted(finding, engine);
    finding.fixes.extend(more_memory(scene, engine));
    finding.fixes.extend(more_blocks(engine));
    let kv_type = engine.flag(Setting::KvType).filter(|_| engine.option(&["--kv-cache-dtype"]).is_none());
    if let Some(flag) = kv_type {
        let (flag, value) = flag.split_once(' ').unwrap_or((flag, "fp8"));
        finding.fixes.push(Fix {
            text: Sentence::new(
                format!("Store the KV cache in 8 bits ({flag} {value}): twice the tokens, at some loss of precision"),
                format!("{flag} {value}: twice the tokens"),
            ),
            flag: Some(flag.to_owned()),
            now: Some("auto".to_owned()),
            try_value: Some(value.to_owned()),
            gain: Some("2 times the tokens".to_owned()),
            probe: None,
        });
    }
    if finding.fixes.is_empty() {
        finding
            .fixes
            .push(Fix::todo("Give the KV cache more memory, or admit fewer or shorter requests", "more KV memory"));
    }
    finding
}

/// A fixed number of blocks is what holds the pool down.
fn more_blocks(engine: &EngineScene) -> Option<Fix> {
    let now = engine.option(&["--num-gpu-blocks-override"])?;
    Some(Fix {
        text: Sentence::new(
            format!("Take --num-gpu-blocks-override {now} away: it fixes the pool, whatever memory is free"),
            "drop --num-gpu-blocks-override",
        ),
        flag: Some("--num-gpu-blocks-override".to_owned()),
        now: Some(now.to_owned()),
        try_value: None,
        gain: None,
        probe: None,
    })
}

/// What a larger share of the GPU's memory would hold: the pool grows by the memory that is added.
fn more_memory(scene: &Scene<'_>, engine: &EngineScene) -> Option<Fix> {
    if engine.option(&["--num-gpu-blocks-override"]).is_some() {
        return None;
    }
    let flag = engine.flag(Setting::KvMemory)?;
    let gpus: Vec<_> = scene.gpus_of(engine).collect();
    let (total, free) = gpus.iter().try_fold((0.0, 0.0), |(total, free), gpu| {
        Some((total + gpu.mem_total?, free + (gpu.mem_total? - gpu.mem_used?)))
    })?;
    let now: Option<f64> = engine.option(&[flag]).and_then(|text| text.parse().ok());
    let Some(now) = now.filter(|_| flag == "--gpu-memory-utilization") else {
        return Some(Fix::todo(
            format!("Give the KV cache more memory ({flag}): {} of the GPU are unused", Mem(free)),
            format!("raise {flag}"),
        ));
    };
    if now >= MOST_UTILISATION - 0.01 || total <= 0.0 {
        return None;
    }
    let added = ((MOST_UTILISATION - now) * total).min(free);
    let bytes = engine.kv_bytes_per_token.filter(|bytes| *bytes > 0.0);
    let times =
        bytes.zip(engine.kv_pool).filter(|(_, pool)| *pool > 0.0).map(|(bytes, pool)| (pool + added / bytes) / pool);
    let gain = times.map(|times| format!("room for {times:.1} times the tokens"));
    let room = gain.as_ref().map_or_else(String::new, |gain| format!(", {gain}"));
    Some(Fix {
        text: Sentence::new(
            format!("{flag} {now} → {MOST_UTILISATION}: {} unused{room}", Mem(free)),
            format!("{flag} {MOST_UTILISATION}"),
        ),
        flag: Some(flag.to_owned()),
        now: Some(now.to_string()),
        try_value: Some(MOST_UTILISATION.to_string()),
        gain,
        probe: None,
    })
}

fn admission_limit(engine: &EngineScene) -> Finding {
    let (cap, waiting) = (engine.cap.unwrap_or(0.0), engine.waiting_mean.unwrap_or(0.0).round());
    let room = engine.kv.map_or_else(String::new, |kv| format!(" though the KV cache is {kv:.0} % used"));
    let room = if has_slots(engine) { String::new() } else { room };
    let words = Sentence::new(
        format!("{}: the engine runs at most {}{room}", waits(waiting), Num(cap)),
        format!("{} wait, at most {} run", Num(waiting), Num(cap)),
    );
    let finding =
        Finding::new(Subject::Engine(engine.index), Cause::AdmissionLimit, Severity::Act, cost(engine), words);
    counted(finding, engine)
        .fix(higher_cap(engine, cap))
        .fix(Fix::todo("Measure how many at once still pay off", "measure it: p, c").probe("sweep"))
}

/// The limit that would let all run that are there, rounded up to a power of two, as far as the KV cache has room.
fn higher_cap(engine: &EngineScene, cap: f64) -> Fix {
    let flag = engine.flag(Setting::Running);
    let all = engine.running_mean.unwrap_or(cap) + engine.waiting_mean.unwrap_or(0.0);
    let by_kv = engine.kv.filter(|kv| *kv > 0.5 && !has_slots(engine)).map(|kv| cap * 90.0 / kv);
    let wanted = 2_f64.powf(all.max(cap + 1.0).log2().ceil());
    let tried = by_kv.map_or(wanted, |most| wanted.min(most.floor())).max(cap + 1.0);
    let name = flag.unwrap_or("the limit on running requests");
    Fix {
        text: Sentence::new(
            format!("{name} {} → {}: those that wait would run at once", Num(cap), Num(tried)),
            format!("{name} {}", Num(tried)),
        ),
        flag: flag.map(ToOwned::to_owned),
        now: Some(Num(cap).to_string()),
        try_value: Some(Num(tried).to_string()),
        gain: Some(format!("no queue at {} requests", Num(all))),
        probe: None,
    }
}
