//! What a level is blamed on; tests/level.rs holds it against real runs.

use super::*;
use crate::diagnosis::tests::machine::{Machine, START};
use crate::model::Metric;

/// A level of twenty seconds of a machine.
fn level() -> Level {
    let (from_unix_ms, to_unix_ms) = (START + 5_000, START + 25_000);
    let mut level = Level { from_unix_ms, to_unix_ms, state: State::Done, ..Level::default() };
    (level.requests.measured, level.requests.ok) = (500, 500);
    level
}

fn named(machine: &mut Machine, gpus: &[u8], mut level: Level) -> (String, String) {
    LevelJudge::default().attach(&machine.run(25).store.read(), 0, gpus, &mut level);
    let Bottleneck { word, evidence } = level.bottleneck.unwrap_or_default();
    (word, evidence)
}

/// Sixteen run, which is all that may, and nine wait.
fn queued() -> Machine {
    let mut machine = Machine::serving();
    machine.engine(&[
        (Metric::RequestsRunning, 16.0),
        (Metric::RequestsWaiting, 9.0),
        (Metric::RequestsCap, 16.0),
        (Metric::KvUsage, 40.0),
    ]);
    machine
}

#[test]
fn the_client_is_asked_first_then_errors_then_the_rules() {
    let mut all = level();
    all.client.limits = vec!["CPU 100 % of a core".to_owned()];
    (all.requests.ok, all.requests.refused) = (450, 50);
    assert_eq!(named(&mut queued(), &[0], all.clone()), ("client".to_owned(), "CPU 100 % of a core".to_owned()));
    all.client.limits.clear();
    let (word, evidence) = named(&mut queued(), &[0], all.clone());
    assert_eq!(
        (word.as_str(), evidence.as_str()),
        ("errors", "50 of 500 requests came to nothing: 50 refused (client)")
    );
    // One in five hundred is not what held it back.
    (all.requests.ok, all.requests.refused) = (499, 1);
    let (word, evidence) = named(&mut queued(), &[0], all);
    assert_eq!(word, Cause::AdmissionLimit.label());
    assert!(evidence.starts_with("9 requests wait: the engine runs at most 16"), "{evidence}");
    assert!(evidence.contains("; then memory bandwidth: ") && evidence.ends_with("(in 18 of 18 s)"), "{evidence}");
    let (word, evidence) = named(&mut Machine::serving(), &[0], level());
    assert_eq!(word, Cause::MemoryBandwidth.label());
    assert!(evidence.contains("DRAM active 62 % of peak"), "{evidence}");
}

#[test]
fn a_queue_is_blamed_on_what_was_full_only() {
    let with = |figures: &[(Metric, f64)]| {
        let mut machine = queued();
        machine.engine(figures);
        named(&mut machine, &[0], level()).0
    };
    let (running, kv) = (|n| (Metric::RequestsRunning, n), |pct| (Metric::KvUsage, pct));
    let cap = (Metric::RequestsCap, 256.0);
    assert_eq!(with(&[running(9.0), kv(89.0), cap]), Cause::KvCapacity.label(), "a tenth one does not fit");
    assert_eq!(with(&[running(64.0), kv(89.0), cap]), Cause::Unknown.label(), "a 65th one does");
    let preempts = [running(64.0), kv(90.0), cap, (Metric::Preemptions, 2.0)];
    assert_eq!(with(&preempts), Cause::KvCapacity.label());
}

#[test]
fn what_holds_nothing_back_is_no_limit_and_another_host_s_gpus_tell_nothing() {
    let mut idle = Machine::serving();
    idle.freeze().engine(&[(Metric::RequestsRunning, 0.0)]);
    idle.set(0, &[(Metric::SmActive, 0.0), (Metric::DramActive, 0.0), (Metric::UtilGpuTime, 0.0)]);
    assert_eq!(named(&mut idle, &[0], level()), Default::default());
    assert_eq!(named(&mut Machine::bare(), &[0], level()), Default::default(), "nothing was read");
    let mut light = Machine::serving();
    light.set(0, &[(Metric::SmActive, 5.0), (Metric::DramActive, 5.0), (Metric::UtilGpuTime, 9.0)]);
    assert_eq!(named(&mut light, &[0], level()).0, Cause::DemandLimited.label());
    let mut far = Machine::serving();
    far.processes.clear();
    far.set(0, &[(Metric::Power, 690.0), (Metric::SmClock, 1400.0), (Metric::ThrottledPowerCap, 1000.0)]);
    assert_eq!(named(&mut far, &[], level()), Default::default(), "the GPU here is not theirs");
}

#[test]
fn a_level_that_grows_is_judged_as_one_that_is_over() {
    let mut machine = queued();
    machine.run(12).engine(&[(Metric::RequestsWaiting, 0.0), (Metric::RequestsRunning, 8.0)]).run(13);
    let data = machine.store.read();
    let mut at_once = level();
    LevelJudge::default().attach(&data, 0, &[0], &mut at_once);
    let (mut judge, mut grows) = (LevelJudge::default(), level());
    for to in (START + 6_000..=START + 25_000).step_by(500) {
        grows.to_unix_ms = to;
        judge.attach(&data, 0, &[0], &mut grows);
    }
    assert_eq!(at_once.bottleneck, grows.bottleneck);
    assert_eq!(at_once.bottleneck.unwrap().word, Cause::MemoryBandwidth.label());
}
