//! Requests that are there and do not move: hung, stuck, stopped, or gauges that are old.

use crate::diagnosis::tests::machine::{Machine, PID};
use crate::diagnosis::{Cause, Severity};
use crate::model::{Metric, ProcessState};

const IDLE_GPU: [(Metric, f64); 4] =
    [(Metric::SmActive, 0.0), (Metric::DramActive, 0.0), (Metric::TensorActive, 0.0), (Metric::UtilGpuTime, 0.0)];

/// A server with a queue, of which nothing moves any more.
fn frozen() -> Machine {
    let mut machine = Machine::serving();
    let figures = [
        (Metric::RequestsRunning, 106.0),
        (Metric::RequestsWaiting, 15.0),
        (Metric::RequestsCap, 106.0),
        (Metric::KvUsage, 90.0),
    ];
    machine.engine(&figures);
    machine.run(20).freeze();
    machine
}

#[test]
fn a_kernel_that_hangs_asks_for_action_once_a_long_prompt_is_ruled_out() {
    let mut machine = frozen();
    assert!(machine.run(20).finds(Cause::Stalled).is_none(), "a prompt may take that long");
    let found = machine.run(20).finds(Cause::Stalled).unwrap();
    assert_eq!(found.severity, Severity::Act);
    assert!(found.headline.full.contains("while the GPU works: a kernel or a collective hangs"), "{found:?}");
    assert_eq!(machine.first(), Some((Cause::Stalled, Severity::Act)));
}

#[test]
fn stale_gauges_after_all_clients_left_are_no_queue_and_ask_for_no_action() {
    // vllm#29928 and sglang#4244: the gauges keep the last step's values, and the GPU rests.
    let mut machine = frozen();
    machine.set(0, &IDLE_GPU).work.clear();
    let diagnosis = machine.run(10).diagnosis();
    let first = diagnosis.first().unwrap();
    assert_eq!((first.cause, first.severity), (Cause::Stalled, Severity::Watch), "{:?}", diagnosis.findings);
    assert!(first.headline.full.contains("106 run, 15 wait, and nothing has moved for 1"), "{}", first.headline.full);
    assert!(first.headline.full.contains("or these figures are old and all clients have left"));
    assert_eq!(diagnosis.severity(), Severity::Watch);
    let causes: Vec<_> = diagnosis.findings.iter().map(|finding| finding.cause).collect();
    assert!(!causes.contains(&Cause::KvCapacity) && !causes.contains(&Cause::AdmissionLimit), "{causes:?}");
    assert_eq!(diagnosis.client(0).unwrap().generated_per_s.value(), Some(0.0), "no tokens are made");
}

#[test]
fn a_stopped_process_behind_an_endpoint_that_answers_asks_for_action() {
    let mut machine = frozen();
    machine.set(0, &IDLE_GPU).work.clear();
    machine.processes[0].state = Some(ProcessState::Stopped);
    let found = machine.run(10).finds(Cause::Stalled).unwrap();
    assert_eq!(found.severity, Severity::Act);
    assert!(found.headline.full.contains(&format!("process {PID} is stopped (SIGSTOP)")), "{}", found.headline.full);
}

#[test]
fn an_engine_without_clients_is_idle_and_one_that_moves_is_not_stalled() {
    let mut machine = Machine::serving();
    assert!(machine.run(20).finds(Cause::Stalled).is_none());
    machine.freeze().engine(&[(Metric::RequestsRunning, 0.0)]);
    machine.set(0, &IDLE_GPU).work.clear();
    assert_eq!(machine.run(12).first(), Some((Cause::Idle, Severity::Ok)));
}
