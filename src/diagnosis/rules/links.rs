//! Traffic on the links of a GPU: collectives that go over PCIe, copies that fill it, a link that came up slower than it can.

use super::super::scene::{EngineScene, GpuScene, Scene};
use super::super::words::gb;
use super::super::{Cause, Finding, Fix, Sentence, Severity};
use super::Rule;
use crate::model::Subject;

pub(super) const RULE: Rule = Rule { causes: &[Cause::Interconnect, Cause::PcieTransfer], judge };

/// PCIe traffic each way, on every GPU of a group, from which on it is a collective's, bytes/s: requests and tokens take
/// some 50 MB/s.
const COLLECTIVE: f64 = 3e8;
/// Share of the GPU links' traffic that goes over NVLink, from which on NVLink is in use.
const OVER_NVLINK: f64 = 0.2;
/// Share of the link's bandwidth from which on copies fill it.
const FULL: f64 = 0.5;
/// Traffic from which on the state of the link matters, bytes/s: an idle link saves power.
const CARRIES: f64 = 2e8;
/// Loss of token rate from which on clients are harmed.
const HARMS: f64 = 0.15;
/// What a collective over PCIe costs, for ranking: a quarter of ITL on two H200s (3.7 → 4.9 ms).
const INTERCONNECT_COST: f64 = 0.35;

fn judge(scene: &Scene<'_>, findings: &mut Vec<Finding>) {
    for engine in scene.engines.iter().filter(|engine| engine.is_read()) {
        let moves = !engine.is_still(6_000);
        findings.extend(Some(engine).filter(|_| moves).and_then(|engine| interconnect(scene, engine)));
        findings.extend(lanes_down(scene, engine));
    }
    findings.extend(scene.gpus.iter().filter_map(pcie));
}

fn interconnect(scene: &Scene<'_>, engine: &EngineScene) -> Option<Finding> {
    let gpus: Vec<&GpuScene> = scene.gpus_of(engine).collect();
    let each_way = |gpu: &&GpuScene| Some(gpu.pcie_rx?.min(gpu.pcie_tx?));
    let least = gpus.iter().map(each_way).collect::<Option<Vec<f64>>>()?.into_iter().reduce(f64::min)?;
    let nvlink = gpus.iter().filter_map(|gpu| gpu.nvlink).reduce(f64::max)?;
    if gpus.len() < 2 || least < COLLECTIVE || nvlink > least * OVER_NVLINK {
        return None;
    }
    let words = Sentence::new(
        format!(
            "the {} GPUs exchange {} each way over PCIe, and NVLink carries {}",
            gpus.len(),
            gb(least),
            if nvlink < 1e6 { "nothing".to_owned() } else { gb(nvlink) }
        ),
        format!("{} over PCIe, NVLink unused", gb(least)),
    );
    let severity =
        if engine.token_loss().is_some_and(|(loss, _)| loss >= HARMS) { Severity::Act } else { Severity::Watch };
    Some(
        Finding::new(Subject::Engine(engine.index), Cause::Interconnect, severity, INTERCONNECT_COST, words)
            .shows(("pcie_rx_bytes_per_s", "bytes/s", "nvml"), Some(least), |rate| format!("PCIe at least {} each way on every GPU", gb(rate)))
            .shows(("nvlink_rx_bytes_per_s", "bytes/s", "nvml"), Some(nvlink), |rate| format!("NVLink {}", gb(rate)))
            .shows(("p2p_peers_blocked", "GPUs", "nvml"), gpus.iter().filter_map(|gpu| gpu.blocked_peers).reduce(f64::max), |n| {
                match n {
                    n if n > 0.0 => format!("the memory of {n:.0} other GPUs cannot be read directly"),
                    _ => "every GPU can read the others' memory".to_owned(),
                }
            })
            .fix(Fix::todo(
                "Take NCCL_P2P_DISABLE and --disable-custom-all-reduce away if they are set; see `nvidia-smi topo -m` and NCCL_DEBUG=INFO for the path taken",
                "unset NCCL_P2P_DISABLE",
            ))
            .fix(Fix::todo("Measure what the pair of GPUs reaches", "measure it").probe("p2p")),
    )
}

/// A GPU of a group some of whose NVLinks are not up.
fn lanes_down(scene: &Scene<'_>, engine: &EngineScene) -> Option<Finding> {
    let gpus: Vec<&GpuScene> = scene.gpus_of(engine).collect();
    // Boards leave links unwired, so a GPU is compared with the others of its group.
    let all = gpus.iter().filter_map(|gpu| gpu.links_up).reduce(f64::max)?;
    let gpu = gpus.iter().find(|gpu| gpu.links_up.is_some_and(|up| up < all))?;
    let up = gpu.links_up?;
    let words = Sentence::new(
        format!("{up:.0} NVLinks of {} are up, {all:.0} of the others: collectives have less bandwidth", gpu.label()),
        format!("{up:.0} of {all:.0} NVLinks up"),
    );
    Some(
        Finding::new(Subject::Gpu(gpu.index), Cause::Interconnect, Severity::Watch, 1.0 - up / all, words)
            .shows(("nvlink_links_up", "links", "nvml"), Some(up), |n| {
                format!("{n:.0} links are up, {all:.0} on another GPU of the group")
            })
            .fix(Fix::todo("See `nvidia-smi nvlink -s` and the fabric manager's log", "see nvidia-smi nvlink -s")),
    )
}

/// Bytes a second of a lane of each PCIe generation, each way, after line coding (PCI-SIG: 2.5, 5, 8, 16, 32, 64 GT/s).
fn lane(generation: f64) -> Option<f64> {
    [0.25e9, 0.5e9, 0.985e9, 1.969e9, 3.938e9, 7.563e9].get((generation as usize).checked_sub(1)?).copied()
}

fn pcie(gpu: &GpuScene) -> Option<Finding> {
    let traffic = gpu.pcie_rx?.max(gpu.pcie_tx?);
    let [generation, generation_max, width, width_max] = gpu.pcie;
    let peak = lane(generation?)? * width?;
    let narrow = traffic >= CARRIES && (generation_max > generation || width_max > width);
    if traffic < peak * FULL && !narrow {
        return None;
    }
    let share = traffic / peak * 100.0;
    let full = if narrow {
        format!(
            "the PCIe link of {} runs at generation {} x{} of {} x{}, and carries {}",
            gpu.label(),
            generation?,
            width?,
            generation_max?,
            width_max?,
            gb(traffic)
        )
    } else {
        format!("copies fill {share:.0} % of the PCIe link of {}: {}", gpu.label(), gb(traffic))
    };
    // Where another process is there, the copies are probably its own.
    let cost = if gpu.others.is_empty() { (traffic / peak).min(0.8) } else { 0.1 };
    let words = Sentence::new(full, format!("PCIe of {} {share:.0} % full", gpu.label()));
    Some(
        Finding::new(Subject::Gpu(gpu.index), Cause::PcieTransfer, Severity::Watch, cost, words)
            .shows(("pcie_rx_bytes_per_s", "bytes/s", "nvml"), gpu.pcie_rx, |rate| format!("to the GPU {}", gb(rate)))
            .shows(("pcie_tx_bytes_per_s", "bytes/s", "nvml"), gpu.pcie_tx, |rate| format!("from the GPU {}", gb(rate)))
            .fix(Fix::todo("Measure what the link reaches", "measure it").probe("pcie")),
    )
}
