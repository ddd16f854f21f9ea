//! Another process computes on the engine's GPU.
//!
//! What it takes is read from the driver's share of each process; where that is not read, a process that holds device memory
//! and uses the CPU is taken for one that works. How much it harms shows in the gaps between tokens against those of this
//! server at such a load before.

use super::super::scene::{EngineScene, GpuProcessScene, GpuScene, Scene};
use super::super::words::{Mem, Secs, gb, program};
use super::super::{Cause, Finding, Fix, Sentence, Severity};
use super::Rule;
use crate::model::Subject;

pub(super) const RULE: Rule = Rule { causes: &[Cause::Neighbour, Cause::Straggler], judge };

/// The driver's share from which on a process works, %.
const WORKS_SHARE: f64 = 3.0;
/// CPU from which on a process on a GPU is believed to work there, % of a core.
const WORKS_CPU: f64 = 8.0;
/// Loss of token rate from which on clients are harmed.
const HARMS: f64 = 0.15;
/// Cost of a neighbour whose harm is not known: shared time of the GPU.
const UNKNOWN_COST: f64 = 0.4;
/// SM clocks of one group that differ by this share make the slower GPU a straggler.
const SLOWER: f64 = 0.1;

fn judge(scene: &Scene<'_>, findings: &mut Vec<Finding>) {
    for engine in &scene.engines {
        if !engine.is_read() {
            continue;
        }
        for gpu in scene.gpus_of(engine) {
            let works = |process: &&GpuProcessScene| match (process.share_pct, process.cpu_pct) {
                (Some(share), _) => share >= WORKS_SHARE,
                (None, Some(cpu)) => cpu >= WORKS_CPU,
                (None, None) => false,
            };
            let busiest = gpu.others.iter().filter(works).max_by(|a, b| {
                let load = |p: &GpuProcessScene| p.share_pct.or(p.cpu_pct).unwrap_or(0.0);
                load(a).total_cmp(&load(b))
            });
            if let Some(other) = busiest.filter(|_| gpu.busy.is_some_and(|busy| busy > 0.0)) {
                findings.push(neighbour(engine, gpu, other));
            }
        }
        findings.extend(straggler(scene, engine));
    }
}

fn neighbour(engine: &EngineScene, gpu: &GpuScene, other: &GpuProcessScene) -> Finding {
    let loss = engine.token_loss();
    let harmed = loss.is_some_and(|(loss, _)| loss >= HARMS);
    let severity = if harmed { Severity::Act } else { Severity::Watch };
    let name = program(&other.command);
    let slower = engine.itl.zip(loss).filter(|_| harmed);
    let effect = slower.map_or_else(String::new, |(now, (_, best))| {
        format!(": tokens come every {} instead of {}", Secs(now), Secs(best))
    });
    let words = Sentence::new(
        format!("another process computes on {}: {name} (pid {}){effect}", gpu.label(), other.pid),
        format!("{name} ({}) also uses {}", other.pid, gpu.label()),
    );
    let cost = loss.filter(|_| harmed).map_or(UNKNOWN_COST, |(loss, _)| loss.max(0.3));
    Finding::new(Subject::Gpu(gpu.index), Cause::Neighbour, severity, cost, words)
        .shows(("gpu_share_pct", "%", "nvml"), other.share_pct, |pct| format!("it has {pct:.0} % of the SMs' time"))
        .shows(("gpu_mem_bytes", "bytes", "nvml"), other.mem, |bytes| {
            format!("it holds {} of device memory", Mem(bytes))
        })
        .shows(("cpu_pct", "%", "process"), other.cpu_pct, |pct| format!("it uses {pct:.0} % of a core"))
        .shows(("itl_mean_s", "s", "engine"), engine.itl.filter(|_| engine.is_read()), |s| match loss {
            Some((_, best)) => {
                format!("{} between tokens, {} at best at such a load before", Secs(s), Secs(best))
            }
            None => format!("{} between tokens; no such load was seen before", Secs(s)),
        })
        .shows(("pcie_rx_bytes_per_s", "bytes/s", "nvml"), gpu.pcie_rx.filter(|rate| *rate > 1e9), |rate| {
            format!("{} come over PCIe", gb(rate))
        })
        .fix(Fix::todo(
            format!("Move pid {} to another GPU, or end it: kill {}", other.pid, other.pid),
            format!("move or end pid {}", other.pid),
        ))
}

/// The GPU of a group that runs at a clearly lower clock than the fastest.
fn straggler(scene: &Scene<'_>, engine: &EngineScene) -> Option<Finding> {
    let clocks = |gpu: &&GpuScene| gpu.clock.is_some() && gpu.busy.is_some_and(|busy| busy > 0.5);
    let gpus: Vec<&GpuScene> = scene.gpus_of(engine).filter(clocks).collect();
    let by_clock = |a: &&&GpuScene, b: &&&GpuScene| a.clock.unwrap_or(0.0).total_cmp(&b.clock.unwrap_or(0.0));
    let (slow, fast) = (gpus.iter().min_by(by_clock)?, gpus.iter().max_by(by_clock)?);
    let (low, high) = (slow.clock?, fast.clock?);
    let behind = 1.0 - low / high;
    if behind < SLOWER {
        return None;
    }
    let words = Sentence::new(
        format!(
            "{} runs at {low:.0} MHz and {} at {high:.0}: the group waits for the slower one",
            slow.label(),
            fast.label()
        ),
        format!("{} {:.0} % slower than others", slow.label(), behind * 100.0),
    );
    Some(
        Finding::new(Subject::Gpu(slow.index), Cause::Straggler, Severity::Watch, behind, words)
            .shows(("sm_clock_mhz", "MHz", "nvml"), Some(low), |mhz| format!("{} {mhz:.0} MHz", slow.label()))
            .shows(("sm_clock_mhz", "MHz", "nvml"), Some(high), |mhz| format!("{} {mhz:.0} MHz", fast.label()))
            .fix(Fix::todo(
                "See why that GPU is held down: temperature, power limit, or another process on it",
                "see its heat, power, processes",
            )),
    )
}
