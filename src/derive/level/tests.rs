//! What is missing; tests/level.rs holds the figures against real runs.

use super::*;
use crate::load::level::{Rate, State};
use crate::model::{Batch, Reading, SourceId, Why};
use crate::store::{Retention, Store};

const FROM: u64 = 1_000_000;
const TO: u64 = 1_020_000;

/// A store in which these metrics stood still, or grew so much a second, for 30 s.
fn store(engine: &[(Metric, f64)], gpus: &[&[(Metric, f64)]]) -> Store {
    let store = Store::new(Retention::HOUR);
    for second in 0..30_u32 {
        let at = Time(FROM - 5_000 + u64::from(second) * 1000);
        let push = |source, subject, metrics: &[(Metric, f64)]| {
            let mut batch = Batch::new(source, at, 3500);
            for &(metric, value) in metrics {
                let total = metric.kind() == crate::model::Kind::Counter;
                batch.push(subject, metric, if total { value * f64::from(second) } else { value });
            }
            store.push(&batch);
        };
        if !engine.is_empty() {
            push(SourceId::Engine(0), Subject::Engine(0), engine);
        }
        for (gpu, metrics) in (0..).zip(gpus) {
            push(SourceId::Nvml, Subject::Gpu(gpu), metrics);
        }
    }
    store
}

fn level() -> Level {
    let mut level = Level { from_unix_ms: FROM, to_unix_ms: TO, state: State::Done, ..Level::default() };
    (level.requests.measured, level.requests.ok) = (500, 500);
    level
}

fn attached(store: &Store, gpus: &[u8], mut level: Level) -> Level {
    attach(&store.read(), 0, gpus, &mut level);
    level
}

const BUSY: [(Metric, f64); 3] =
    [(Metric::RequestsRunning, 8.0), (Metric::RequestsWaiting, 0.0), (Metric::KvUsage, 40.0)];
const DECODE: [(Metric, f64); 2] = [(Metric::SmActive, 65.0), (Metric::DramActive, 62.0)];

#[test]
fn before_the_measured_time_nothing_is_said() {
    let store = store(&BUSY, &[&DECODE]);
    for (from, to) in [(0, 0), (0, TO), (TO, TO), (TO, FROM)] {
        let level = attached(&store, &[0], Level { from_unix_ms: from, to_unix_ms: to, ..level() });
        assert_eq!((level.server, level.gpus), (None, Vec::new()), "{from} {to}");
    }
}

#[test]
fn what_was_not_read_is_missing_and_never_0() {
    let nothing = attached(&store(&[], &[]), &[0], level());
    assert_eq!(nothing.server, None);
    assert_eq!(nothing.gpus, [Silicon::default()], "the GPU is there, its figures are not");
    let some = attached(&store(&[(Metric::RequestsRunning, 8.0)], &[&[(Metric::Power, 300.0)]]), &[0], level());
    let server = some.server.unwrap();
    assert_eq!(server, Server { running: Some(8.0), ..Server::default() });
    assert_eq!(some.gpus, [Silicon { power_w: Some(300.0), ..Silicon::default() }]);
}

#[test]
fn only_the_measured_time_counts() {
    let store = Store::new(Retention::HOUR);
    for second in 0..60_u64 {
        let at = Time(FROM - 20_000 + second * 1000);
        let inside = at > Time(FROM) && at <= Time(TO);
        let mut batch = Batch::new(SourceId::Nvml, at, 3500);
        batch.push(Subject::Gpu(3), Metric::Temp, if inside { 60.0 } else { 90.0 });
        batch.push(Subject::Gpu(3), Metric::SmActive, if inside { 70.0 } else { 0.0 });
        batch.push(Subject::Gpu(3), Metric::TensorActive, Reading::Missing(Why::Unsupported));
        store.push(&batch);
    }
    let gpu = attached(&store, &[3], level()).gpus.remove(0);
    assert_eq!((gpu.index, gpu.sm_active_pct, gpu.most_temp_c), (3, Some(70.0), Some(60.0)));
    assert_eq!((gpu.tensor_active_pct, gpu.dram_active_pct), (None, None));
}

#[test]
fn energy_is_asked_before_power_and_throttled_time_has_its_reason() {
    let metrics = [
        (Metric::Power, 300.0),
        (Metric::Energy, 410.0),
        (Metric::ThrottledPowerCap, 600.0),
        (Metric::ThrottledSwThermal, 20.0),
    ];
    let gpu = attached(&store(&[], &[&metrics]), &[0], level()).gpus.remove(0);
    let throttled = (gpu.throttled_ms_per_s.unwrap().round(), gpu.throttled_by.as_deref());
    assert_eq!((gpu.power_w.unwrap().round(), throttled), (410.0, (600.0, Some("power cap"))));
    assert!(gpu.is_throttled() && !Silicon::default().is_throttled());
    let cool = attached(&store(&[], &[&[(Metric::ThrottledPowerCap, 0.0)]]), &[0], level()).gpus.remove(0);
    assert_eq!((cool.throttled_ms_per_s, cool.throttled_by), (Some(0.0), None));
}

#[test]
fn a_row_needs_both_sides() {
    let whats = |level: Level, engine: &[(Metric, f64)]| {
        let server = attached(&store(engine, &[]), &[], level).server.unwrap();
        server.agreement.iter().map(|row| (row.what.clone(), row.agrees)).collect::<Vec<_>>()
    };
    assert_eq!(whats(level(), &BUSY), [], "the client has no figures");
    let mut measured = level();
    measured.client.in_flight = Some(8.3);
    measured.output_tokens_per_s = Some(Rate { value: 1000.0, ..Rate::default() });
    assert_eq!(whats(measured.clone(), &BUSY[..1]), [], "nobody says how many wait");
    assert_eq!(whats(measured.clone(), &BUSY), [("in flight, mean".to_owned(), true)]);
    measured.client.in_flight = Some(8.6);
    let counted = [BUSY[0], BUSY[1], (Metric::GenerationTokens, 1300.0)];
    assert_eq!(whats(measured, &counted), [("in flight, mean".to_owned(), false), ("output tokens".to_owned(), false)]);
}

#[test]
fn counters_that_hold_trial_requests_are_not_compared() {
    let rows = |place, warmup_ms| {
        let mut level = Level { place, started_unix_ms: FROM - warmup_ms, ..level() };
        level.output_tokens_per_s = Some(Rate { value: 1000.0, ..Rate::default() });
        level.requests_per_s = Some(Rate { value: 8.0, ..Rate::default() });
        let counted = [(Metric::GenerationTokens, 1000.0), (Metric::RequestsFinished, 8.0)];
        attached(&store(&counted, &[]), &[], level).server.unwrap_or_default().agreement.len()
    };
    assert_eq!([rows(0, 0), rows(0, 1_999), rows(0, 2_000), rows(1, 0)], [0, 0, 2, 2]);
}
