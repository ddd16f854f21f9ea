//! The host's memory and network.

use super::super::scene::Scene;
use super::super::words::{Mem, Num};
use super::super::{Cause, Finding, Fix, Sentence, Severity};
use super::Rule;
use crate::model::Subject;

pub(super) const RULE: Rule =
    Rule { causes: &[Cause::PageFaults, Cause::HostMemory, Cause::NetworkRetransmits], judge };

/// Major faults a second from which on they are told: each reads from a disk, some 0.1 ms of waiting.
const FAULTS: f64 = 100.0;
/// Major faults a second of the engine's own processes from which on they slow it.
const OWN_FAULTS: f64 = 50.0;
/// Share of the memory that has to be left.
const LEFT: f64 = 0.05;
/// Time in which some task waits for memory, %.
const STALLED: f64 = 10.0;
/// TCP segments sent again, a second.
const RETRANSMITS: f64 = 50.0;

fn judge(scene: &Scene<'_>, findings: &mut Vec<Finding>) {
    findings.extend(page_faults(scene));
    findings.extend(memory(scene));
    findings.extend(retransmits(scene));
}

fn page_faults(scene: &Scene<'_>) -> Option<Finding> {
    let faults = scene.host.major_faults.filter(|&rate| rate >= FAULTS)?;
    let own = scene
        .engines
        .iter()
        .flat_map(|engine| engine.processes.iter().map(|process| (engine.index, process.major_faults.unwrap_or(0.0))));
    let harmed = own.filter(|(_, rate)| *rate >= OWN_FAULTS).max_by(|a, b| a.1.total_cmp(&b.1));
    let (subject, severity, cost, whose) = match harmed {
        Some((engine, rate)) => (
            Subject::Engine(engine),
            Severity::Act,
            0.3,
            format!("{} of them in the engine's own processes", Num(rate)),
        ),
        None => (Subject::Host, Severity::Watch, 0.02, "none of them in the engine's processes".to_owned()),
    };
    let whose = if scene.engines.iter().any(|engine| !engine.processes.is_empty()) {
        format!(", {whose}")
    } else {
        String::new()
    };
    let words = Sentence::new(
        format!("{} major page faults a second{whose}", Num(faults)),
        format!("{} page faults/s", Num(faults)),
    );
    Some(
        Finding::new(subject, Cause::PageFaults, severity, cost, words)
            .shows(("pgmajfault_per_s", "1/s", "host"), Some(faults), |n| {
                format!("{} major faults a second on the host", Num(n))
            })
            .shows(("majflt_per_s", "1/s", "process"), harmed.map(|(_, rate)| rate), |n| {
                format!("{} a second in the engine's processes", Num(n))
            })
            .fix(Fix::todo(
                "See which program reads from disk or swap, and give it or the page cache more memory",
                "see who reads from disk",
            )),
    )
}

fn memory(scene: &Scene<'_>) -> Option<Finding> {
    let (used, total) = (scene.host.mem_used?, scene.host.mem_total.filter(|&total| total > 0.0)?);
    let stalled = scene.host.mem_stalled.filter(|&pct| pct >= STALLED);
    let left = 1.0 - used / total;
    if left >= LEFT && stalled.is_none() {
        return None;
    }
    let words = Sentence::new(
        format!("the host is short of memory: {} of {} are left", Mem(total - used), Mem(total)),
        format!("{} of host memory left", Mem(total - used)),
    );
    let severity = if stalled.is_some() { Severity::Act } else { Severity::Watch };
    Some(
        Finding::new(Subject::Host, Cause::HostMemory, severity, 0.15, words)
            .shows(("mem_used_bytes", "bytes", "host"), Some(used), |n| format!("{} in use", Mem(n)))
            .shows(("psi_mem_some_pct", "%", "host"), scene.host.mem_stalled, |pct| {
                format!("some task waits for memory {pct:.0} % of the time")
            })
            .fix(Fix::todo(
                "Stop what needs the memory, or lower --swap-space and CPU offload of the engine",
                "free host memory",
            )),
    )
}

fn retransmits(scene: &Scene<'_>) -> Option<Finding> {
    let rate = scene.host.retransmits.filter(|&rate| rate >= RETRANSMITS)?;
    let words = Sentence::new(
        format!("{} TCP segments a second are sent again: the network loses packets", Num(rate)),
        format!("{} TCP retransmits/s", Num(rate)),
    );
    Some(
        Finding::new(Subject::Host, Cause::NetworkRetransmits, Severity::Watch, 0.05, words)
            .shows(("tcp_retrans_per_s", "1/s", "host"), Some(rate), |n| format!("{} segments a second", Num(n)))
            .fix(Fix::todo("See errors and drops of the network card (ip -s link, ethtool -S)", "see ip -s link")),
    )
}
