//! Requests are there and nothing moves.
//!
//! A long prompt also moves nothing for a while, but then the GPU or the engine's processes compute: so there the rule
//! waits five times as long. An engine whose processes and GPU rest may be stuck, or its gauges are those of the last
//! step before all clients left (vllm#29928, sglang#4244): both are said, and only a process that is known to be stopped asks
//! for action.

use super::super::scene::{EngineScene, Reach, Role, Scene};
use super::super::words::{Num, Secs};
use super::super::{Cause, Finding, Fix, Sentence, Severity};
use super::Rule;
use crate::model::Subject;

pub(super) const RULE: Rule = Rule { causes: &[Cause::Stalled], judge };

/// Without progress for so long while nothing computes, ms: four scrapes.
const RESTING_MS: u64 = 4_000;
/// The same while something computes, ms: a prompt of 100,000 tokens takes some 10 s on an H200.
const COMPUTING_MS: u64 = 30_000;
/// A process that uses less than this computes nothing, % of a core. One that polls uses a whole one.
const RESTS_CPU: f64 = 20.0;
/// A GPU that works less of the time than this computes nothing.
const RESTS_GPU: f64 = 0.05;

fn judge(scene: &Scene<'_>, findings: &mut Vec<Finding>) {
    for engine in &scene.engines {
        if let Reach::Silent(why) = &engine.reach {
            findings.push(silent(engine, why));
        } else if engine.is_read() && engine.has_requests() {
            findings.extend(still(scene, engine));
        }
    }
}

fn silent(engine: &EngineScene, why: &str) -> Finding {
    let (stopped, name) = (stopped(engine), &engine.name);
    let short = format!("{name} does not answer");
    let full = match stopped {
        Some((pid, state)) => format!("{name} takes connections and does not answer: its process {pid} is {state}"),
        None => format!("{name} takes connections and does not answer: {why}"),
    };
    let finding =
        Finding::new(Subject::Engine(engine.index), Cause::Stalled, Severity::Act, 1.0, Sentence::new(full, short));
    finding.fix(continue_or_restart(stopped))
}

fn continue_or_restart(stopped: Option<(u32, &str)>) -> Fix {
    match stopped {
        Some((pid, _)) => Fix::todo(format!("Let the process go on: kill -CONT {pid}"), format!("kill -CONT {pid}")),
        None => Fix::todo(
            "See the engine's log; a stack of its main thread (py-spy dump) shows where it stands; then restart it",
            "see its log, restart it",
        ),
    }
}

/// The process of the engine that cannot run, and what it is.
fn stopped(engine: &EngineScene) -> Option<(u32, &'static str)> {
    engine.processes.iter().find_map(|process| Some((process.pid, process.stopped()?)))
}

fn still(scene: &Scene<'_>, engine: &EngineScene) -> Option<Finding> {
    let gpu_busy = scene.gpus_of(engine).filter_map(|gpu| gpu.busy_now).reduce(f64::max);
    let cpu = [Role::Server, Role::Core].into_iter().filter_map(|role| engine.busiest(role)).reduce(f64::max);
    let gpu_rests = gpu_busy.is_none_or(|busy| busy < RESTS_GPU);
    let rests = gpu_rests && cpu.is_none_or(|cpu| cpu < RESTS_CPU) && (gpu_busy.is_some() || cpu.is_some());
    if !engine.is_still(if rests { RESTING_MS } else { COMPUTING_MS }) {
        return None;
    }
    let stopped = stopped(engine);
    let still = engine.still_ms.unwrap_or(0) as f64 / 1000.0;
    let (running, waiting) = (engine.running.unwrap_or(0.0), engine.waiting.unwrap_or(0.0));
    let counts = format!("{} run, {} wait, and nothing has moved for {}", Num(running), Num(waiting), Secs(still));
    let full = match stopped {
        Some((pid, state)) => format!("{counts}: the engine's process {pid} is {state}"),
        None if gpu_rests && cpu.is_some_and(|cpu| cpu >= RESTS_CPU) => match gpu_busy {
            Some(_) => format!("{counts}: the engine computes on the CPU and the GPU rests"),
            None => format!("{counts}: the engine computes on the CPU"),
        },
        None if gpu_rests => {
            format!("{counts}: the engine is stuck, or these figures are old and all clients have left")
        }
        None => format!("{counts} while the GPU works: a kernel or a collective hangs"),
    };
    let short = format!("nothing has moved for {}", Secs(still));
    let severity = if stopped.is_some() || !gpu_rests { Severity::Act } else { Severity::Watch };
    let mut finding =
        Finding::new(Subject::Engine(engine.index), Cause::Stalled, severity, 1.0, Sentence::new(full, short))
            .shows(("requests_running", "requests", "engine"), engine.running, |n| format!("{} requests run", Num(n)))
            .shows(("requests_waiting", "requests", "engine"), engine.waiting, |n| format!("{} requests wait", Num(n)))
            .shows(("progress", "s", "engine"), Some(still), |s| format!("no token or request for {}", Secs(s)))
            .shows(("cpu_pct", "%", "process"), cpu, |pct| format!("busiest thread of the engine {pct:.0} %"));
    if let Some(gpu) = scene.gpus_of(engine).next() {
        finding = finding.shows(("gpu_busy_pct", "%", "nvml"), gpu.busy_now, |busy| {
            format!("{} works {:.0} % of the time", gpu.label(), busy * 100.0)
        });
    }
    Some(finding.fix(continue_or_restart(stopped)))
}
