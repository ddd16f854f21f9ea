//! How an engine or a GPU does where nothing holds it back: idle, lightly used, healthy, or not to be told.

use super::super::scene::{EngineScene, GpuScene, Reach, Scene};
use super::super::words::{Num, Secs, waits};
use super::super::{Cause, Finding, Fix, Sentence, Severity};
use super::Rule;
use crate::engine::Setting;
use crate::model::{SourceId, SourceState, Subject};

pub(super) const RULE: Rule =
    Rule { causes: &[Cause::DemandLimited, Cause::Healthy, Cause::Idle, Cause::Unknown], judge };

/// Without a token or request for this long an engine is idle, ms.
const IDLE_MS: u64 = 5_000;
/// Share of the time with work below which demand is the limit.
const LITTLE: f64 = 0.3;

fn judge(scene: &Scene<'_>, findings: &mut Vec<Finding>) {
    for engine in &scene.engines {
        findings.extend(of_engine(scene, engine, findings));
    }
    for gpu in scene.gpus.iter().filter(|gpu| !scene.is_served(gpu)) {
        let subject = Subject::Gpu(gpu.index);
        if gpu.busy == Some(0.0) {
            let words = Sentence::new(format!("{} is idle", gpu.label()), format!("{} is idle", gpu.label()));
            findings.push(Finding::new(subject, Cause::Idle, Severity::Ok, 0.0, words));
        } else if findings.iter().all(|finding| finding.subject != subject) {
            let (full, short) = match gpu.busy {
                Some(busy) => (
                    format!(
                        "{} works {:.0} % of the time; no engine's figures tell for whom",
                        gpu.label(),
                        busy * 100.0
                    ),
                    format!("{} works {:.0} %", gpu.label(), busy * 100.0),
                ),
                None => (format!("{}: its activity is not read", gpu.label()), format!("{}: no activity", gpu.label())),
            };
            findings.push(Finding::new(subject, Cause::Unknown, Severity::Ok, 0.0, Sentence::new(full, short)));
        }
    }
    if scene.engines.is_empty() && scene.gpus.is_empty() && scene.host.cpu_busy.is_some() && findings.is_empty() {
        findings.push(nothing_found(scene));
    }
}

/// Neither a GPU nor an engine: there is none, or the driver does not say.
fn nothing_found(scene: &Scene<'_>) -> Finding {
    let driver = scene.data.source(SourceId::Nvml).map(|source| source.state_at(scene.at));
    let (severity, words) = match driver {
        Some(SourceState::Failed(why) | SourceState::Stalled(why) | SourceState::Degraded(why)) => (
            Severity::Watch,
            Sentence::new(format!("GPUs cannot be read: {why}; no engine is found"), "the GPU driver does not answer"),
        ),
        Some(SourceState::Starting | SourceState::Loading(_)) => (
            Severity::Ok,
            Sentence::new(
                "the GPU driver has not answered yet, and no engine is found: name one with --engine URL",
                "the GPU driver has not answered yet",
            ),
        ),
        _ => (
            Severity::Ok,
            Sentence::new("no GPU and no engine is found: name an engine with --engine URL", "no engine, no GPU found"),
        ),
    };
    Finding::new(Subject::Host, Cause::Unknown, severity, 0.0, words)
}

/// Requests wait, and neither the KV cache nor the limit on running requests is known to hold them back.
fn unexplained_queue(engine: &EngineScene, state: impl Fn(Cause, String, &str) -> Finding) -> Finding {
    let waiting = engine.waiting_mean.unwrap_or(0.0).round();
    let kv = engine
        .kv
        .map_or_else(|| "the KV cache's use is not known".to_owned(), |kv| format!("the KV cache is {kv:.0} % used"));
    let limit = engine.cap.map_or_else(
        || "the limit on running requests is not known".to_owned(),
        |cap| format!("{} of at most {} run", Num(engine.running_mean.unwrap_or(0.0).round()), Num(cap)),
    );
    let flag = engine.flag(Setting::StepTokens);
    let words = format!("{} and no limit that is measured is reached: {limit}, {kv}", waits(waiting));
    let finding = state(Cause::Unknown, words, &format!("{} wait, no limit reached", Num(waiting)));
    let fix = match flag {
        Some(flag) => Fix::todo(
            format!("Look at the tokens a step may hold ({flag}): prompts may wait for a place in it"),
            format!("look at {flag}"),
        ),
        None => Fix::todo("Look at the engine's log for what its scheduler waits for", "see the engine's log"),
    };
    Finding { severity: Severity::Watch, ..finding.fix(fix) }
}

fn of_engine(scene: &Scene<'_>, engine: &EngineScene, findings: &[Finding]) -> Option<Finding> {
    let subject = Subject::Engine(engine.index);
    let said = |cause| findings.iter().any(|finding| finding.subject == subject && finding.cause == cause);
    if engine.reach == Reach::Starting {
        let words = format!("{} is not read at this moment: starting, or loading its model", engine.name);
        let words = Sentence::new(words, format!("{} is not read yet", engine.name));
        return Some(Finding::new(subject, Cause::Unknown, Severity::Ok, 0.0, words));
    }
    if !engine.is_read() || said(Cause::Stalled) {
        return None;
    }
    let state = |cause, full: String, short: &str| {
        let finding = Finding::new(subject, cause, Severity::Ok, 0.0, Sentence::new(full, short));
        finding
            .shows(("requests_running", "requests", "engine"), engine.running, |n| format!("{} requests run", Num(n)))
            .shows(("requests_waiting", "requests", "engine"), engine.waiting, |n| format!("{} wait", Num(n)))
            .shows(("itl_mean_s", "s", "engine"), engine.itl, |s| format!("{} between tokens", Secs(s)))
    };
    let still = !engine.has_moved || engine.is_still(IDLE_MS);
    if !engine.has_requests() && still {
        if engine.running.is_none() {
            let words = "the engine does not tell how many requests run: nothing can be said of its load".to_owned();
            return Some(state(Cause::Unknown, words, "engine tells no load"));
        }
        return Some(state(Cause::Idle, "idle: nothing runs and nothing waits".to_owned(), "idle"));
    }
    let harmed = findings.iter().any(|finding| finding.severity > Severity::Ok && finding.cause != Cause::PageFaults);
    if harmed || engine.still_ms.is_none() && engine.running.is_none() {
        return None;
    }
    // The driver's share of time with a kernel is finer than pieces that hold any work.
    let of_gpu = |gpu: &GpuScene| gpu.util.map(|util| util / 100.0).or(gpu.busy);
    let busy = scene.gpus_of(engine).filter_map(of_gpu).reduce(f64::max).or(engine.active);
    if let Some(busy) = busy.filter(|&busy| busy < LITTLE) {
        let words = format!("little is asked: work runs {:.0} % of the time, and nothing waits", busy * 100.0);
        return Some(state(Cause::DemandLimited, words, "little is asked"));
    }
    if engine.queues() {
        return Some(unexplained_queue(engine, state));
    }
    Some(state(Cause::Healthy, "healthy: requests move, and nothing holds them back".to_owned(), "healthy"))
}
