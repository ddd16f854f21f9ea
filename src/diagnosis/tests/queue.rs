//! Who waits, and for what: a limit on requests, KV blocks, KV from elsewhere; and drafts that are rejected.

use crate::diagnosis::tests::machine::Machine;
use crate::diagnosis::{Cause, Severity};
use crate::model::Metric;

fn with(figures: &[(Metric, f64)]) -> Machine {
    let mut machine = Machine::serving();
    machine.engine(figures).run(12);
    machine
}

const fn running(n: f64) -> (Metric, f64) {
    (Metric::RequestsRunning, n)
}

const fn waiting(n: f64) -> (Metric, f64) {
    (Metric::RequestsWaiting, n)
}

const fn cap(n: f64) -> (Metric, f64) {
    (Metric::RequestsCap, n)
}

const fn kv(pct: f64) -> (Metric, f64) {
    (Metric::KvUsage, pct)
}

#[test]
fn the_limit_on_requests_is_reached_at_it_and_one_below() {
    for at in [16.0, 15.0] {
        let machine = with(&[running(at), waiting(9.0), cap(16.0), kv(40.0)]);
        assert_eq!(machine.first(), Some((Cause::AdmissionLimit, Severity::Act)), "{at}");
        let found = machine.finds(Cause::AdmissionLimit).unwrap();
        let fix = &found.fixes[0];
        assert_eq!((fix.flag.as_deref(), fix.now.as_deref()), (Some("--max-num-seqs"), Some("16")));
        assert_eq!(fix.try_value.as_deref(), Some("32"), "{fix:?}");
    }
    for far in [&[running(13.0), waiting(9.0), cap(16.0)][..], &[running(16.0), waiting(0.0), cap(16.0)]] {
        assert!(with(far).finds(Cause::AdmissionLimit).is_none(), "{far:?}");
    }
}

#[test]
fn a_full_kv_cache_comes_before_the_limit_on_requests() {
    let full = with(&[running(16.0), waiting(9.0), cap(16.0), kv(96.0)]);
    assert_eq!(full.first(), Some((Cause::KvCapacity, Severity::Act)));
    assert!(full.finds(Cause::AdmissionLimit).is_none());
    // Preemptions without anybody waiting cost work, and nobody waits.
    let preempts = with(&[running(30.0), kv(93.0), (Metric::Preemptions, 1.0)]);
    assert_eq!(preempts.finds(Cause::KvCapacity).unwrap().severity, Severity::Watch);
    assert!(with(&[running(30.0), kv(99.0)]).finds(Cause::KvCapacity).is_none(), "nobody waits");
}

#[test]
fn a_queue_that_no_limit_explains_is_said_to_be_that() {
    let machine = with(&[running(64.0), waiting(9.0), cap(256.0), kv(30.0)]);
    let found = machine.finds(Cause::Unknown).unwrap();
    assert_eq!(found.severity, Severity::Watch);
    assert!(found.headline.full.contains("no limit that is measured is reached"), "{}", found.headline.full);
    assert!(machine.finds(Cause::Healthy).is_none());
}

#[test]
fn who_waits_for_kv_from_elsewhere_waits_for_no_place() {
    let machine = with(&[running(16.0), waiting(9.0), cap(16.0), (Metric::WaitingKvFetch, 7.0)]);
    assert_eq!(machine.first(), Some((Cause::WaitsForTransfer, Severity::Act)));
    assert!(machine.finds(Cause::AdmissionLimit).is_none());
    let few = with(&[running(16.0), waiting(9.0), cap(16.0), (Metric::WaitingKvFetch, 2.0)]);
    assert!(few.finds(Cause::WaitsForTransfer).is_none() && few.finds(Cause::AdmissionLimit).is_some());
}

#[test]
fn drafts_that_are_rejected_are_told() {
    let drafts = |drafted, accepted| {
        with(&[(Metric::SpecDraftTokens, drafted), (Metric::SpecAcceptedTokens, accepted)]).finds(Cause::Speculation)
    };
    let found = drafts(2_000.0, 300.0).unwrap();
    assert_eq!(found.severity, Severity::Watch);
    assert!(found.headline.full.starts_with("15 % of the drafted tokens are accepted"), "{}", found.headline.full);
    assert!(drafts(2_000.0, 1_200.0).is_none(), "most are accepted");
    assert!(drafts(100.0, 0.0).is_none(), "of 1600 tokens a second these are few");
}

/// Half of all lookups hit for a minute, then none does.
fn hits_that_end(looked_up: f64) -> Machine {
    let mut machine = Machine::serving();
    machine.observe(Metric::PromptLen, &[1024.0; 5]).observe(Metric::GenerationLen, &[128.0; 5]).engine(&[
        (Metric::PromptTokens, 5_000.0),
        (Metric::PrefixQueries, looked_up),
        (Metric::PrefixHits, looked_up / 2.0),
        (Metric::Preemptions, 2.0),
    ]);
    machine.run(60);
    let cold = [(Metric::PrefixQueries, 5_000.0), (Metric::PrefixHits, 0.0), (Metric::Preemptions, 0.0)];
    machine.engine(&cold).run(15);
    machine
}

#[test]
fn a_cache_in_which_preempted_requests_found_themselves_was_never_warm() {
    assert!(hits_that_end(5_000.0).finds(Cause::PrefixCold).is_some(), "hits of others are lost");
    assert!(hits_that_end(8_000.0).finds(Cause::PrefixCold).is_none());
}
