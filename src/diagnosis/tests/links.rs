//! Links between GPUs and to the host, GPUs of one group that differ, another process on one, and a CPU quota.

use std::sync::Arc;

use crate::diagnosis::tests::machine::{Machine, PID, process};
use crate::diagnosis::{Cause, Severity};
use crate::model::{CpuLimits, Metric, Reading, Subject};

/// An engine on two GPUs, whose links carry this much each way, bytes/s.
fn pair(pcie: f64, nvlink: f64) -> Machine {
    let mut machine = Machine::serving();
    let busy = [
        (Metric::SmActive, 40.0),
        (Metric::DramActive, 30.0),
        (Metric::TensorActive, 4.0),
        (Metric::UtilGpuTime, 98.0),
        (Metric::SmClock, 1980.0),
        (Metric::SmClockMax, 1980.0),
    ];
    machine.gpu(&busy);
    machine.processes = vec![process(PID, "vllm serve model --tensor-parallel-size 2", &[0, 1])];
    for gpu in 0..2 {
        let links = [(Metric::PcieRx, pcie), (Metric::PcieTx, pcie), (Metric::NvlinkRx, nvlink)];
        let state = [
            (Metric::PcieGen, 5.0),
            (Metric::PcieGenMax, 5.0),
            (Metric::PcieWidth, 16.0),
            (Metric::PcieWidthMax, 16.0),
        ];
        machine.set(gpu, &busy).set(gpu, &links).set(gpu, &state).set(gpu, &[(Metric::NvlinkLinksUp, 18.0)]);
    }
    machine
}

#[test]
fn a_collective_over_pcie_is_named_where_nvlink_rests() {
    let found = pair(4.6e9, 0.0).run(12).finds(Cause::Interconnect).unwrap();
    assert!(
        found.headline.full.contains("exchange 4.6 GB/s each way over PCIe, and NVLink carries nothing"),
        "{found:?}"
    );
    assert!(pair(5e7, 3.5e9).run(12).finds(Cause::Interconnect).is_none(), "as it should be");
    assert!(pair(4.6e9, 3.5e9).run(12).finds(Cause::Interconnect).is_none(), "PCIe carries something else");
}

#[test]
fn links_of_one_gpu_that_are_down_are_seen_beside_the_other() {
    let mut machine = pair(5e7, 3.5e9);
    assert!(machine.run(12).finds(Cause::Interconnect).is_none());
    let found = machine.set(1, &[(Metric::NvlinkLinksUp, 12.0)]).run(12).finds(Cause::Interconnect).unwrap();
    assert_eq!(found.subject, Subject::Gpu(1));
    assert!(found.headline.full.starts_with("12 NVLinks of GPU 1 are up, 18 of the others"), "{found:?}");
}

#[test]
fn copies_that_fill_the_link_and_a_link_below_its_width_are_told_apart() {
    // PCIe 5 x16: 63 GB/s each way.
    let full = pair(40e9, 3.5e9).run(12).finds(Cause::PcieTransfer).unwrap();
    assert!(full.headline.full.contains("copies fill 63 %"), "{full:?}");
    assert!(pair(5e9, 3.5e9).run(12).finds(Cause::PcieTransfer).is_none(), "8 % of the link");
    let mut narrow = pair(1e9, 3.5e9);
    narrow.set(0, &[(Metric::PcieWidth, 4.0)]);
    let narrow = narrow.run(12).finds(Cause::PcieTransfer).unwrap();
    assert!(narrow.headline.full.contains("generation 5 x4 of 5 x16"), "{narrow:?}");
}

#[test]
fn the_slower_gpu_of_a_group_is_named() {
    let mut machine = pair(5e7, 3.5e9);
    machine.set(1, &[(Metric::SmClock, 1200.0)]);
    let found = machine.run(12).finds(Cause::Straggler).unwrap();
    assert_eq!(found.subject, Subject::Gpu(1));
    assert!(
        machine.set(1, &[(Metric::SmClock, 1900.0)]).run(12).finds(Cause::Straggler).is_none(),
        "4 % are no matter"
    );
}

#[test]
fn a_process_that_only_holds_memory_is_no_neighbour() {
    let with = |share: f64| {
        let mut machine = Machine::serving();
        let mut other = process(77, "python3 train.py", &[0]);
        other.shares = vec![(0, share.into())];
        machine.processes.push(other);
        machine.work.push((77, 100.0));
        machine.run(12).finds(Cause::Neighbour)
    };
    assert!(with(0.0).is_none(), "the driver says that it does not compute");
    let found = with(40.0).unwrap();
    assert!(found.headline.full.contains("python3 (pid 77)"), "{found:?}");
    assert_eq!(found.severity, Severity::Watch, "no such load was seen before: harm is not shown");
}

#[test]
fn a_quota_that_is_used_up_is_named_and_not_affinity() {
    let mut machine = Machine::serving();
    machine.processes[0].limits = Arc::new(CpuLimits { quota: 0.4.into(), ..CpuLimits::default() });
    machine.run(3);
    for second in 0..12_u32 {
        machine.processes[0].throttled_ms = Reading::new(f64::from(second) * 600.0);
        machine.run(1);
    }
    let found = machine.finds(Cause::HostCpu).unwrap();
    assert!(found.headline.full.contains("60 % of the time: its cgroup's CPU quota is used up"), "{found:?}");
    assert!(found.fixes[0].text.full.contains("quota"));
}
