//! Engines that cannot be read: what is said of them, and that nothing else is.

use crate::diagnosis::tests::machine::{Machine, START};
use crate::diagnosis::{Cause, Diagnosis, Severity, Slo, diagnose};
use crate::model::{Batch, Metric, ProcessState, SourceId, SourceState, Subject, Time};
use crate::store::{Retention, Store};

/// What is first of a server whose queue was full when its state became this, ten seconds ago.
fn after(state: SourceState) -> Machine {
    let mut machine = Machine::serving();
    machine.engine(&[(Metric::RequestsWaiting, 9.0), (Metric::RequestsRunning, 16.0), (Metric::RequestsCap, 16.0)]);
    machine.run(20);
    machine.state = state;
    machine.run(10);
    machine
}

#[test]
fn each_way_of_not_being_read_has_its_cause_and_nothing_else_is_said_of_the_engine() {
    let refused = SourceState::Failed("connection refused: nothing listens there; is the engine running?".into());
    let silent = SourceState::Stalled("does not answer within 2 s: it is saturated, stuck or stopped".into());
    let no_way = SourceState::Failed("cannot connect in time: host down, or it does not answer in TLS".into());
    for (state, cause, severity) in [
        (refused, Cause::Down, Severity::Act),
        (no_way, Cause::Down, Severity::Act),
        (SourceState::Unauthorized("needs a key".into()), Cause::NeedsKey, Severity::Watch),
        (
            SourceState::NoMetrics("answers with a web page, not with metrics".into()),
            Cause::Unreadable,
            Severity::Watch,
        ),
        (silent, Cause::Stalled, Severity::Act),
    ] {
        let machine = after(state.clone());
        let diagnosis = machine.diagnosis();
        let said: Vec<_> = diagnosis.of(Subject::Engine(0)).map(|finding| (finding.cause, finding.severity)).collect();
        assert_eq!(said, [(cause, severity)], "{state:?}");
        let first = diagnosis.first().unwrap();
        assert_eq!(first.cause, cause, "{state:?}: {}", first.headline.full);
        assert!(first.since > machine.now() - 10_000, "it was read before");
        assert_eq!(first.headline.full.contains("answers"), cause == Cause::Unreadable, "{}", first.headline.full);
    }
}

#[test]
fn a_silent_server_whose_process_is_stopped_is_told_how_to_go_on() {
    let mut machine = Machine::serving();
    machine.run(10);
    machine.state = SourceState::Stalled("does not answer within 2 s".into());
    machine.processes[0].state = Some(ProcessState::Stopped);
    machine.work.clear();
    let found = machine.run(8).finds(Cause::Stalled).unwrap();
    assert!(found.headline.full.contains("is stopped (SIGSTOP)"), "{}", found.headline.full);
    assert_eq!(found.fixes[0].text.short, "kill -CONT 41");
}

#[test]
fn an_engine_that_loads_or_has_just_been_found_is_not_judged() {
    for state in [SourceState::Starting, SourceState::Loading("loading its model: it will be read when ready".into())] {
        let mut machine = Machine::serving();
        machine.state = state;
        let diagnosis = machine.run(10).diagnosis();
        assert_eq!(diagnosis.severity(), Severity::Ok, "{:?}", diagnosis.findings);
        let causes: Vec<_> = diagnosis.of(Subject::Engine(0)).map(|finding| finding.cause).collect();
        assert_eq!(causes, [Cause::Unknown]);
    }
}

#[test]
fn a_server_that_comes_back_is_judged_again_within_ten_seconds() {
    let mut machine = after(SourceState::Failed("connection refused".into()));
    machine.state = SourceState::Ok;
    assert_eq!(machine.run(10).first(), Some((Cause::AdmissionLimit, Severity::Act)));
    assert!(machine.finds(Cause::Down).is_none());
}

/// A machine of which nothing but the host is read, whose driver is in this state.
fn without_gpus(state: &SourceState) -> Diagnosis {
    let store = Store::new(Retention::HOUR);
    for second in 0..30 {
        let mut host = Batch::new(SourceId::Host, Time(START + second * 1000), 3500);
        host.push(Subject::Host, Metric::CpuBusy, 10.0);
        store.push(&host);
        let mut driver = Batch::new(SourceId::Nvml, Time(START + second * 1000), 3500);
        driver.state = Some(state.clone());
        store.push(&driver);
    }
    diagnose(&store.read(), Time(START + 29_000), &Slo::default())
}

/// Fault: driver: it answers nothing, and no engine is found either
/// Seen: the verdict says `GPUs cannot be read: the driver answers no question`, on screen and in a check
/// Works: the host's figures, and the search for engines
/// Recovers: with the driver's first answer
#[test]
fn a_driver_that_does_not_answer_is_not_called_no_gpu() {
    let found = without_gpus(&SourceState::Failed("the driver answers no question".into()));
    let first = &found.findings[0];
    assert_eq!((first.cause, first.severity), (Cause::Unknown, Severity::Watch));
    assert!(first.headline.full.starts_with("GPUs cannot be read: the driver answers no question"), "{first:?}");
    let slow = without_gpus(&SourceState::Starting);
    assert!(slow.findings[0].headline.full.starts_with("the GPU driver has not answered yet"), "{slow:?}");
    let none = without_gpus(&SourceState::Absent("no NVIDIA driver on this machine".into()));
    assert_eq!(none.findings[0].severity, Severity::Ok);
    assert!(none.findings[0].headline.full.starts_with("no GPU and no engine is found"), "{none:?}");
}
