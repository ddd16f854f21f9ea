//! Objectives, and tails without one.

use crate::diagnosis::tests::machine::Machine;
use crate::diagnosis::{Attainment, Cause, Severity, Slo, attainments};
use crate::model::Metric;

/// A server whose TTFT is this for each of eight requests a second.
fn with(ttft: &[f64]) -> Machine {
    let mut machine = Machine::serving();
    machine.observe(Metric::Ttft, ttft).run(70);
    machine
}

fn slo(text: &str) -> Slo {
    text.parse().unwrap()
}

#[test]
fn an_objective_that_is_missed_asks_for_action_and_one_that_is_kept_does_not() {
    let machine = with(&[0.3; 8]);
    let missed = machine.judged(&slo("ttft_p99=50ms"));
    let first = missed.first().unwrap();
    assert_eq!((first.cause, first.severity), (Cause::TailLatency, Severity::Act));
    assert!(first.headline.full.starts_with("TTFT P99 is "), "{}", first.headline.full);
    for kept in ["ttft_p99=500ms", "itl_p99=1ms", ""] {
        let diagnosis = machine.judged(&slo(kept));
        assert_eq!(diagnosis.severity(), Severity::Ok, "{kept}: {:?}", diagnosis.first());
    }
    let seen = attainments(&machine.store.read(), machine.now(), &slo("ttft_p99=50ms,ttft_p50=2s,itl_p99=1ms"));
    let missed: Vec<_> = seen.iter().map(Attainment::missed).collect();
    assert_eq!(missed, [Some(true), Some(false), None], "the engine shows no ITL");
}

#[test]
fn an_engine_that_rests_misses_nothing() {
    let mut machine = with(&[0.3; 8]);
    machine.freeze().engine(&[(Metric::RequestsRunning, 0.0)]).run(15);
    let objectives = slo("ttft_p99=50ms");
    assert_eq!(machine.judged(&objectives).severity(), Severity::Ok);
    assert_eq!(attainments(&machine.store.read(), machine.now(), &objectives)[0].missed(), None);
}

#[test]
fn a_p99_far_above_the_median_is_told_once_there_are_enough_requests() {
    let mut many = [0.03; 100];
    many[..4].fill(4.0);
    let found = with(&many).finds(Cause::TailLatency).unwrap();
    assert_eq!(found.severity, Severity::Watch);
    assert!(found.headline.full.contains("beside a median of"), "{}", found.headline.full);
    let mut few = [0.03; 8];
    few[0] = 4.0;
    assert!(with(&few).finds(Cause::TailLatency).is_none(), "a P99 of a hundred requests is none");
}
