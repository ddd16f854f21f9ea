//! Limits that every server has: memory bandwidth in decode, the SMs in prefill. They harm nobody and are said as such.

use super::super::scene::{GpuScene, Scene};
use super::super::{Cause, Finding, Fix, Sentence, Severity};
use super::Rule;
use crate::model::Subject;

pub(super) const RULE: Rule = Rule { causes: &[Cause::MemoryBandwidth, Cause::Compute], judge };

/// Share of the time that has to be work for a limit to be one.
const WORKS: f64 = 0.7;
fn judge(scene: &Scene<'_>, findings: &mut Vec<Finding>) {
    for engine in scene.engines.iter().filter(|engine| engine.is_read() && !engine.is_still(5_000)) {
        let gpus: Vec<&GpuScene> = scene.gpus_of(engine).collect();
        // What another process does on a GPU is no limit of this engine.
        let shared = |gpu: &GpuScene| {
            findings.iter().any(|f| f.cause == Cause::Neighbour && f.subject == Subject::Gpu(gpu.index))
        };
        if gpus.iter().any(|gpu| shared(gpu)) {
            continue;
        }
        let busiest = gpus.iter().max_by(|a, b| a.sm.unwrap_or(0.0).total_cmp(&b.sm.unwrap_or(0.0)));
        findings.extend(busiest.and_then(|gpu| limit(gpu, Subject::Engine(engine.index))));
    }
    // A GPU that serves no engine is judged by itself.
    let alone = scene.gpus.iter().filter(|gpu| !scene.is_served(gpu));
    findings.extend(alone.filter_map(|gpu| limit(gpu, Subject::Gpu(gpu.index))));
}

fn limit(gpu: &GpuScene, subject: Subject) -> Option<Finding> {
    let (sm, dram) = (gpu.sm?, gpu.dram?);
    let tensor = gpu.tensor.unwrap_or(0.0);
    if gpu.busy? < WORKS {
        return None;
    }
    let (cause, words) = if gpu.is_memory_bound() {
        (
            Cause::MemoryBandwidth,
            Sentence::new(
                format!("bound by memory bandwidth ({dram:.0} % of peak), as decode is"),
                format!("memory bandwidth {dram:.0} %, as decode is"),
            ),
        )
    } else if gpu.is_compute_bound() {
        (
            Cause::Compute,
            Sentence::new(
                format!("bound by compute (SM {sm:.0} %, tensor pipes {tensor:.0} %), as prefill is"),
                format!("compute, SM {sm:.0} %"),
            ),
        )
    } else {
        return None;
    };
    let finding = Finding::new(subject, cause, Severity::Ok, 0.0, words)
        .shows(("sm_active_pct", "%", "nvml"), Some(sm), |pct| format!("SM active {pct:.0} % while work runs"))
        .shows(("dram_active_pct", "%", "nvml"), Some(dram), |pct| format!("DRAM active {pct:.0} % of peak"))
        .shows(("tensor_active_pct", "%", "nvml"), gpu.tensor, |pct| format!("tensor pipes {pct:.0} %"));
    Some(finding.fix(if cause == Cause::MemoryBandwidth {
        Fix::todo("More requests at once give more tokens for the same traffic; fewer bytes a weight (FP8, INT4) give faster ones", "batch more, or fewer bytes a weight").probe("hbm")
    } else {
        Fix::todo("Fewer prompt tokens (prefix cache), lower precision, or more GPUs", "fewer prompt tokens").probe("gemm")
    }))
}
