//! The machine: memory, page faults, network, and one without GPU and engine.

use crate::diagnosis::tests::machine::Machine;
use crate::diagnosis::{Cause, Severity};
use crate::model::{Metric, Subject};

fn with(figures: &[(Metric, f64)]) -> Machine {
    let mut machine = Machine::serving();
    machine.host(figures).run(12);
    machine
}

#[test]
fn a_host_that_is_short_of_memory_is_told_and_asks_for_action_when_tasks_wait_for_it() {
    let (gib, total) = (1_073_741_824.0, (Metric::HostMemTotal, 100.0 * 1_073_741_824.0));
    let short = with(&[total, (Metric::HostMemUsed, 97.0 * gib)]).finds(Cause::HostMemory).unwrap();
    assert_eq!((short.severity, short.subject), (Severity::Watch, Subject::Host));
    assert!(short.headline.full.contains("3.0 GiB of 100 GiB are left"), "{}", short.headline.full);
    // 200 ms of each second.
    let waits = with(&[total, (Metric::HostMemUsed, 50.0 * gib), (Metric::PsiMem, 200_000.0)]);
    assert_eq!(waits.finds(Cause::HostMemory).unwrap().severity, Severity::Act);
    assert!(with(&[total, (Metric::HostMemUsed, 90.0 * gib)]).finds(Cause::HostMemory).is_none());
}

#[test]
fn retransmits_and_foreign_page_faults_harm_nobody_that_is_known() {
    assert_eq!(with(&[(Metric::TcpRetrans, 80.0)]).finds(Cause::NetworkRetransmits).unwrap().severity, Severity::Watch);
    assert!(with(&[(Metric::TcpRetrans, 20.0)]).finds(Cause::NetworkRetransmits).is_none());
    let faults = with(&[(Metric::MajorFaults, 500.0)]).finds(Cause::PageFaults).unwrap();
    assert_eq!(faults.severity, Severity::Watch);
    assert!(faults.headline.full.contains("none of them in the engine's processes"), "{}", faults.headline.full);
}

#[test]
fn without_gpu_and_engine_the_verdict_is_unknown() {
    let mut machine = Machine::bare();
    assert_eq!(machine.run(8).first(), Some((Cause::Unknown, Severity::Ok)));
    assert!(machine.diagnosis().findings[0].headline.full.contains("--engine URL"));
}
