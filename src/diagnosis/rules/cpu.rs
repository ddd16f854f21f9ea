//! The server's own CPU: a thread that is always busy, or one that is ready and does not get to run.

use super::super::scene::{EngineScene, Role, Scene};
use super::super::words::{Secs, program};
use super::super::{Cause, Finding, Fix, Sentence, Severity};
use super::Rule;
use crate::model::Subject;

pub(super) const RULE: Rule = Rule { causes: &[Cause::HostCpu, Cause::Frontend, Cause::LaunchOverhead], judge };

/// A thread that uses so much of a core is the limit, %.
const WHOLE_CORE: f64 = 90.0;
/// SM activity, or its share of the time, below which a GPU is not filled, %.
const UNFILLED_SM: f64 = 55.0;
/// Utilisation by time below which gaps lie between the kernels, %.
const GAPS_UTIL: f64 = 80.0;
/// Time that an engine's thread is ready and waits for a CPU from which on it is kept off, %.
const WAITS_CPU: f64 = 15.0;
/// Time in which some task of the host waits for a CPU (PSI) from which on that is looked at, %.
const HOST_WAITS: f64 = 30.0;
/// Host CPU from which on all CPUs are taken, %.
const HOST_FULL: f64 = 92.0;
/// Throttled time of a cgroup from which on its quota is the limit, ms/s.
const QUOTA_MS: f64 = 50.0;
/// Share of lost time from which on clients are harmed.
const HARMS: f64 = 0.25;

fn judge(scene: &Scene<'_>, findings: &mut Vec<Finding>) {
    let readable = scene.engines.iter().filter(|engine| engine.is_read() && engine.is_local());
    for engine in readable.filter(|engine| !engine.is_still(5_000)) {
        let host_cpu = host_cpu(scene, engine);
        let kept_off = host_cpu.is_some();
        findings.extend(host_cpu);
        if !kept_off {
            let frontend = frontend(engine);
            let limited = frontend.is_some();
            findings.extend(frontend);
            if !limited {
                findings.extend(launch_overhead(scene, engine));
            }
        }
    }
}

fn host_cpu(scene: &Scene<'_>, engine: &EngineScene) -> Option<Finding> {
    let waits = engine.processes.iter().filter_map(|process| process.wait_pct).reduce(f64::max);
    let throttled = engine.processes.iter().filter_map(|process| process.throttled_ms).reduce(f64::max);
    let busiest = [Role::Server, Role::Core].into_iter().filter_map(|role| engine.busiest(role)).reduce(f64::max);
    let (host, stalled) = (&scene.host, scene.host.cpu_stalled.unwrap_or(0.0));
    let by_quota = throttled.is_some_and(|ms| ms >= QUOTA_MS);
    // Without the threads' own figures, the host's: tasks wait although nobody uses a whole core.
    let by_host = waits.is_none() && stalled >= HOST_WAITS && busiest.is_some_and(|pct| pct < WHOLE_CORE);
    if !by_quota && !by_host && waits.is_none_or(|pct| pct < WAITS_CPU) {
        return None;
    }
    let lost = waits.unwrap_or(stalled).max(throttled.unwrap_or(0.0) / 10.0).clamp(0.0, 100.0);
    let few = engine.processes.iter().filter_map(|process| process.cpus_allowed).reduce(f64::min);
    let confined = few.zip(host.cpus).is_some_and(|(few, all)| few < all);
    let full = !confined && host.cpu_busy.is_some_and(|pct| pct >= HOST_FULL);
    let (why, fix) = if by_quota {
        (
            "its cgroup's CPU quota is used up",
            Fix::todo(
                "Raise the CPU quota of the server's container (cpu.max, docker --cpus, limits.cpu)",
                "raise the CPU quota",
            ),
        )
    } else if full {
        (
            "all CPUs are taken",
            Fix::todo(
                "Move other programs off this machine, or give the server CPUs of its own",
                "free CPUs for the server",
            ),
        )
    } else {
        (
            if confined { "they may not use all CPUs" } else { "CPUs are free that they do not get" },
            Fix::todo(
                "Give the server more CPUs (taskset -cp, cpuset of its container), or keep others off its CPUs",
                "give the server more CPUs",
            ),
        )
    };
    let who = if waits.is_some() || by_quota { "the server's threads wait" } else { "threads on this host wait" };
    let words = Sentence::new(
        format!("{who} for a CPU {lost:.0} % of the time: {why}"),
        format!("threads wait for a CPU {lost:.0} %"),
    );
    let cost = (lost / 100.0).clamp(0.3, 0.9);
    let severity = if lost / 100.0 >= HARMS { Severity::Act } else { Severity::Watch };
    Some(
        Finding::new(Subject::Engine(engine.index), Cause::HostCpu, severity, cost, words)
            .shows(("wait_pct", "%", "process"), waits, |pct| {
                format!("a thread of the engine is ready and waits {pct:.0} % of the time")
            })
            .shows(("throttled_ms_per_s", "ms/s", "process"), throttled, |ms| {
                format!("its cgroup is held back {ms:.0} ms a second")
            })
            .shows(("cpus_allowed", "CPUs", "process"), few, |n| format!("it may use {n:.0} CPUs"))
            .shows(("psi_cpu_some_pct", "%", "host"), host.cpu_stalled, |pct| {
                format!("some task of the host waits for a CPU {pct:.0} % of the time")
            })
            .shows(("cpu_busy_pct", "%", "host"), host.cpu_busy, |pct| format!("the host's CPUs are {pct:.0} % busy"))
            .shows(("cpu_pct", "%", "process"), busiest, |pct| {
                format!("the engine's busiest thread gets {pct:.0} % of a core")
            })
            .shows(("cpu_pct", "%", "process"), host.other.as_ref().map(|other| other.2), |pct| {
                let (pid, command) = host.other.as_ref().map_or((0, ""), |other| (other.0, &*other.1));
                format!("{} (pid {pid}) takes {pct:.0} % of a core", program(command))
            })
            .fix(fix),
    )
}

fn frontend(engine: &EngineScene) -> Option<Finding> {
    let server = engine.busiest(Role::Server)?;
    let core = engine.busiest(Role::Core)?;
    if server < WHOLE_CORE || core >= server - 5.0 || engine.queues() {
        return None;
    }
    // What the engine does not account for of the time to the first token passes in the API server.
    let before = engine.ttft.zip(engine.split).map(|(ttft, split)| (ttft - split.queue - split.prefill).max(0.0));
    let share = before.zip(engine.ttft).map_or(0.5, |(before, ttft)| (before / ttft.max(1e-9)).clamp(0.0, 1.0));
    let words = Sentence::new(
        format!(
            "the API server uses a whole core ({server:.0} %) while the engine has room{}",
            before.map_or_else(String::new, |s| format!(": {} of the TTFT pass before its queue", Secs(s)))
        ),
        format!("API server at {server:.0} % of a core"),
    );
    let finding = Finding::new(Subject::Engine(engine.index), Cause::Frontend, Severity::Act, share.max(0.4), words)
        .shows(("cpu_pct", "%", "process"), Some(server), |pct| format!("busiest thread of the API server {pct:.0} %"))
        .shows(("cpu_pct", "%", "process"), Some(core), |pct| format!("busiest thread of the engine {pct:.0} %"))
        .shows(("ttft_s", "s", "engine"), engine.ttft, |s| format!("TTFT {} on average", Secs(s)))
        .shows(("requests_waiting", "requests", "engine"), engine.waiting_mean, |n| {
            format!("{n:.1} requests wait in the engine")
        });
    Some(if engine.kind == "vllm" {
        let now = engine.option(&["--api-server-count", "-asc"]).unwrap_or("1").to_owned();
        finding.fix(Fix {
            text: Sentence::new(
                format!("--api-server-count {now} → 4: more processes that parse, tokenise and stream"),
                "--api-server-count 4",
            ),
            flag: Some("--api-server-count".to_owned()),
            now: Some(now),
            try_value: Some("4".to_owned()),
            gain: Some("up to 4 times the requests a second".to_owned()),
            probe: None,
        })
    } else {
        finding
            .fix(Fix::todo("Run more API server processes or replicas behind a balancer", "more API server processes"))
    })
}

fn launch_overhead(scene: &Scene<'_>, engine: &EngineScene) -> Option<Finding> {
    let core = engine.busiest(Role::Core).filter(|&pct| pct >= WHOLE_CORE)?;
    let gpus: Vec<_> = scene.gpus_of(engine).collect();
    let eager = engine.has_word("--enforce-eager") || engine.has_word("--disable-cuda-graph");
    // The threads of a tensor-parallel group poll: busy alone proves nothing there.
    if gpus.is_empty() || gpus.len() > 1 && !eager {
        return None;
    }
    let most =
        |of: fn(&super::super::scene::GpuScene) -> Option<f64>| gpus.iter().filter_map(|gpu| of(gpu)).reduce(f64::max);
    let (sm, util) = (most(|gpu| gpu.sm), most(|gpu| gpu.util));
    if sm.is_some_and(|sm| sm >= UNFILLED_SM) || util.is_some_and(|util| util >= GAPS_UTIL) || sm.or(util).is_none() {
        return None;
    }
    // What the GPU rests between kernels, tokens could come faster.
    let lost = (1.0 - util.or(sm)? / 100.0).clamp(0.0, 1.0);
    let graphs = if eager { "CUDA graphs are off" } else { "CUDA graphs are not switched off on its command line" };
    let words = Sentence::new(
        format!(
            "one engine thread uses a whole core ({core:.0} %) and the GPU rests {:.0} % of the time; {graphs}",
            lost * 100.0
        ),
        format!("GPU waits for launches {:.0} %", lost * 100.0),
    );
    let severity = if lost >= HARMS { Severity::Act } else { Severity::Watch };
    let finding = Finding::new(
        Subject::Engine(engine.index),
        Cause::LaunchOverhead,
        severity,
        lost * engine.decode_share(),
        words,
    )
    .shows(("cpu_pct", "%", "process"), Some(core), |pct| format!("busiest thread of the engine {pct:.0} % of a core"))
    .shows(("sm_active_pct", "%", "nvml"), sm, |pct| format!("SM active {pct:.0} %"))
    .shows(("util_gpu_time_pct", "%", "nvml"), util, |pct| format!("kernels run {pct:.0} % of the time"))
    .shows(("itl_mean_s", "s", "engine"), engine.itl, |s| format!("{} between tokens", Secs(s)));
    Some(if eager {
        let flag = if engine.has_word("--enforce-eager") { "--enforce-eager" } else { "--disable-cuda-graph" };
        let times = 1.0 / (1.0 - lost).max(0.05);
        finding.fix(Fix {
            text: Sentence::new(
                format!("Start it without {flag}, so that CUDA graphs launch a step at once: tokens up to {times:.1} times as fast"),
                format!("remove {flag}"),
            ),
            flag: Some(flag.to_owned()),
            now: Some("set".to_owned()),
            try_value: Some("not set".to_owned()),
            gain: Some(format!("tokens up to {times:.1} times as fast")),
            probe: None,
        })
    } else {
        finding.fix(Fix::todo("Batch more requests, use a newer engine version, or a faster CPU core", "faster core, larger batch"))
    }
    .fix(Fix::todo("Measure what a launch costs on this host", "measure it").probe("launch")))
}
