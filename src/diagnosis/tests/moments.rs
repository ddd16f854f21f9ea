//! The same moment gives the same diagnosis, whichever moments were looked at before.

use proptest::prelude::*;

use crate::diagnosis::tests::machine::{Machine, START};
use crate::diagnosis::{Cause, Diagnosis, Severity, Slo, Timeline, diagnose};
use crate::model::{Metric, SourceState, Time};

/// Three minutes in which things happen.
fn eventful() -> Machine {
    let mut machine = Machine::serving();
    machine.observe(Metric::Itl, &[0.04; 20]).observe(Metric::Ttft, &[0.3; 8]).run(40);
    machine
        .engine(&[(Metric::RequestsWaiting, 9.0), (Metric::RequestsRunning, 16.0), (Metric::RequestsCap, 16.0)])
        .run(25);
    machine.engine(&[(Metric::RequestsWaiting, 0.0), (Metric::RequestsRunning, 8.0)]).run(15);
    machine.set(0, &[(Metric::ThrottledPowerCap, 900.0), (Metric::SmClock, 1500.0)]).run(20);
    machine.set(0, &[(Metric::ThrottledPowerCap, 0.0), (Metric::SmClock, 1980.0)]).run(20);
    machine.state = SourceState::Failed("connection refused".into());
    machine.run(20);
    machine.state = SourceState::Ok;
    machine.observe(Metric::Itl, &[0.2; 20]).run(40);
    machine
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn a_moment_is_judged_alike_from_wherever_it_is_come_to(
        steps in prop::collection::vec((1_000_u64..180_000, 0_u64..6), 1..6),
    ) {
        let machine = eventful();
        let data = machine.store.read();
        let mut timeline = Timeline::new(Slo::default());
        for (ms, forward) in steps {
            // A jump somewhere, then a few seconds on as a screen goes.
            for second in 0..=forward {
                let at = Time(START + ms + second * 1000);
                timeline.follow(&data, at);
                timeline.complete(&data);
                let fresh = diagnose(&data, at, &Slo::default());
                prop_assert_eq!(timeline.diagnosis(), &fresh);
            }
        }
    }
}

#[test]
fn following_every_second_and_looking_once_say_the_same() {
    let machine = eventful();
    let data = machine.store.read();
    let mut timeline = Timeline::new(Slo::default());
    let findings = |diagnosis: &Diagnosis| diagnosis.findings.clone();
    for second in 1..180 {
        let at = Time(START + second * 1000);
        timeline.follow(&data, at);
        if second % 9 == 0 {
            assert_eq!(
                findings(timeline.diagnosis()),
                findings(&diagnose(&data, at, &Slo::default())),
                "second {second}"
            );
        }
    }
    let mut spans = Timeline::new(Slo::default());
    spans.follow(&data, Time(START + 179_000));
    spans.complete(&data);
    let held = |timeline: &Timeline| {
        let mut held: Vec<_> =
            timeline.spans().iter().map(|span| (span.from, span.cause, span.subject, span.to)).collect();
        held.sort();
        held
    };
    assert_eq!(held(&spans), held(&timeline));
}

#[test]
fn one_odd_second_neither_makes_nor_ends_a_finding() {
    let (fast, slow) = ([(Metric::MajorFaults, 0.0)], [(Metric::MajorFaults, 500.0)]);
    let causes =
        |machine: &Machine| machine.diagnosis().findings.iter().map(|finding| finding.cause).collect::<Vec<_>>();
    let mut machine = Machine::serving();
    machine.run(20).host(&[(Metric::MajorFaults, 5_000.0)]).run(1).host(&fast).run(1);
    assert!(!causes(&machine).contains(&Cause::PageFaults), "{:?}", causes(&machine));
    machine.host(&slow).run(20);
    assert!(causes(&machine).contains(&Cause::PageFaults));
    machine.host(&fast).run(2);
    assert!(causes(&machine).contains(&Cause::PageFaults));
    machine.run(8);
    assert!(!causes(&machine).contains(&Cause::PageFaults), "gone within ten seconds");
}

#[test]
fn an_engine_that_has_requests_is_not_idle_any_more() {
    let mut machine = Machine::serving();
    let rests = [(Metric::SmActive, 0.0), (Metric::DramActive, 0.0), (Metric::UtilGpuTime, 0.0)];
    machine.freeze().engine(&[(Metric::RequestsRunning, 0.0)]).set(0, &rests).run(12);
    assert_eq!(machine.first(), Some((Cause::Idle, Severity::Ok)));
    machine.engine(&[
        (Metric::RequestsRunning, 13.0),
        (Metric::RequestsWaiting, 19.0),
        (Metric::GenerationTokens, 900.0),
    ]);
    assert!(machine.run(1).finds(Cause::Idle).is_none(), "{:?}", machine.diagnosis());
}

/// Fault: host: the machine is suspended for a minute, or warptop is stopped
/// Seen: no finding that begins or ends with it
/// Works: the findings before and after it
/// Recovers: 3 s after it
#[test]
fn nothing_is_concluded_from_a_pause() {
    let mut machine = Machine::serving();
    machine.observe(Metric::Itl, &[0.04; 20]).observe(Metric::Ttft, &[0.3; 8]).run(40).pause(61).run(40);
    let mut timeline = Timeline::new(Slo::default());
    let data = machine.store.read();
    for second in 1..=141 {
        timeline.follow(&data, Time(START + second * 1000));
    }
    let [paused, resumed] = [40, 104].map(|second| Time(START + second * 1000));
    let spans: Vec<_> = timeline.spans().iter().filter(|span| span.severity > Severity::Ok).collect();
    assert!(spans.is_empty(), "{spans:?}");
    let watched = timeline.spans().iter().filter(|span| span.from > paused + 4_000 && span.from <= resumed);
    assert_eq!(watched.count(), 0, "{:?}", timeline.spans());
    let after = diagnose(&data, Time(START + 125_000), &Slo::default());
    let mut steady = Machine::serving();
    steady.observe(Metric::Itl, &[0.04; 20]).observe(Metric::Ttft, &[0.3; 8]).run(125);
    let steady = diagnose(&steady.store.read(), Time(START + 125_000), &Slo::default());
    let words = |said: &Diagnosis| said.findings.iter().map(|f| f.headline.full.clone()).collect::<Vec<_>>();
    assert_eq!(words(&after), words(&steady), "as if nothing had been");
}
