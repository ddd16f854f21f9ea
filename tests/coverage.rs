//! What a snapshot says around an outage and a restart, against sums over the raw readings written out here.

#![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

use serde_json::Value;
use warptop::diagnosis::{Slo, attainments};
use warptop::export::snapshot::{Mode, snapshot};
use warptop::model::{Batch, FactKey, HistogramSample, Metric, ProcessSample, SourceId, SourceState, Subject, Time};
use warptop::store::{Retention, Store, Window};

const START: Time = Time(1_795_960_600_000);
const ENGINE: Subject = Subject::Engine(0);
const GPU: Subject = Subject::Gpu(0);
/// The server is down from here …
const DOWN: u64 = 100;
/// … to here, and then counts from 0 again, s.
const UP: u64 = 160;
const END: u64 = 260;

/// What one scrape finds: totals since the server was started.
#[derive(Clone, Copy)]
struct Scrape {
    tokens: f64,
    requests: f64,
}

/// The scrapes of every second; `None` where the server was down. No token is made in the last 40 s.
fn scrapes() -> Vec<Option<Scrape>> {
    let mut now = Scrape { tokens: 0.0, requests: 0.0 };
    let mut all = Vec::new();
    for second in 0..=END {
        if second == UP {
            now = Scrape { tokens: 0.0, requests: 0.0 };
        }
        if second < END - 40 {
            now.tokens += 1000.0 + 100.0 * (second % 7) as f64;
            now.requests += if second < DOWN { 6.0 } else { 8.0 };
        }
        all.push((!(DOWN..UP).contains(&second)).then_some(now));
    }
    all
}

/// What the server's GPU took since the driver was loaded, J: 600 W at work, 120 W at rest.
fn joules(second: u64) -> f64 {
    (0..second).map(|s| if s < DOWN || (UP..END - 40).contains(&s) { 600.0 } else { 120.0 }).sum()
}

/// So many requests, half of them below 0.1 units and half above.
fn histogram(metric: Metric, requests: f64, unit: f64) -> HistogramSample {
    let (edges, cumulative) = ([0.1 * unit, unit].into(), vec![requests / 2.0, requests, requests]);
    HistogramSample { sets: 0, subject: ENGINE, metric, edges, cumulative, sum: Some(requests * 0.3 * unit) }
}

/// The readings up to `until`; the energy counter is read every `energy_s` seconds, from the third on.
fn store(until: u64, energy_s: u64) -> Store {
    let store = Store::new(Retention::HOUR);
    for (second, scrape) in (0..=until).zip(scrapes()) {
        let at = START + second * 1000;
        let mut batch = Batch::new(SourceId::Engine(0), at, 3500);
        batch.fact(ENGINE, FactKey::Url, "http://127.0.0.1:8000");
        batch.fact(ENGINE, FactKey::Kind, "vllm");
        batch.fact(ENGINE, FactKey::Pids, "7");
        batch.state = Some(SourceState::Failed("connection refused".into()));
        if let Some(scrape) = scrape {
            batch.state = Some(SourceState::Ok);
            batch.breaks = second == UP;
            batch.push(ENGINE, Metric::GenerationTokens, scrape.tokens);
            batch.push(ENGINE, Metric::PromptTokens, 4.0 * scrape.tokens);
            batch.push(ENGINE, Metric::RequestsFinished, scrape.requests);
            let all = [(Metric::Ttft, 1.0), (Metric::PromptLen, 1000.0), (Metric::GenerationLen, 1000.0)];
            batch.histograms.extend(all.map(|(metric, unit)| histogram(metric, scrape.requests, unit)));
        }
        store.push(&batch);
        let mut batch = Batch::new(SourceId::Process, at, 3500);
        let gpus = vec![(0, 4e10.into())];
        batch.processes = Some(vec![ProcessSample { pid: 7, gpus, ..ProcessSample::default() }]);
        store.push(&batch);
        let mut batch = Batch::new(SourceId::Nvml, at, 35_000);
        batch.fact(GPU, FactKey::Name, "NVIDIA H200");
        batch.push(GPU, Metric::SmActive, 50.0);
        if second % energy_s == 3 % energy_s {
            batch.push(GPU, Metric::Energy, joules(second));
        }
        store.push(&batch);
    }
    store
}

fn read(store: &Store, end: u64, seconds: u64) -> Value {
    let window = Window::last(START + end * 1000, seconds * 1000);
    serde_json::to_value(snapshot(&store.read(), Mode::Replay, window, &Slo::default())).unwrap()
}

/// Seconds of `(end - seconds, end]` that two scrapes of one life bound.
fn measured(end: u64, seconds: u64) -> impl Iterator<Item = u64> {
    let up = |second: u64| !(DOWN..UP).contains(&second);
    (end.saturating_sub(seconds) + 1..=end).filter(move |&s| up(s) && up(s - 1))
}

fn moments() -> impl Iterator<Item = (u64, u64)> {
    (5..=END).step_by(9).flat_map(|end| [10, 60, 80, 400].map(|seconds| (end, seconds)))
}

fn near(seen: &Value, right: f64) -> bool {
    seen.as_f64().is_some_and(|seen| (seen - right).abs() <= 1e-5 * right.abs().max(1.0))
}

#[test]
fn every_rate_says_how_many_seconds_it_was_measured() {
    let (all, scrapes) = (store(END, 10), scrapes());
    for (end, seconds) in moments() {
        let read = read(&all, end, seconds);
        let engine = &read["engines"][0];
        let covered = measured(end, seconds).count() as f64;
        for (figure, per) in [("generation_tokens_per_s", 1.0), ("prompt_tokens_per_s", 4.0)] {
            assert!(near(&engine["measured_s"][figure], covered), "{figure} {end} {seconds}: {engine}");
            let total = |s: u64| scrapes[s as usize].unwrap().tokens;
            let grown: f64 = measured(end, seconds).map(|s| per * (total(s) - total(s - 1))).sum();
            let right = if covered > 0.0 { near(&engine[figure], grown / covered) } else { engine[figure].is_null() };
            assert!(right, "{figure} {end} {seconds}: {engine}");
        }
        let gpu = &read["gpus"][0]["measured_s"];
        assert!(near(&gpu["sm_active_pct"], seconds.min(end) as f64), "{gpu}");
    }
}

#[test]
fn quantiles_say_their_time_and_whose_requests_they_are() {
    let (all, scrapes) = (store(END, 10), scrapes());
    let (mut mixed, mut alone) = (0, 0);
    for (end, seconds) in moments() {
        let read = read(&all, end, seconds);
        let ttft = &read["engines"][0]["latency"]["ttft_s"];
        let requests = |of: &dyn Fn(u64) -> bool| {
            let total = |s: u64| scrapes[s as usize].unwrap().requests;
            measured(end, seconds).filter(|&s| of(s)).map(|s| total(s) - total(s - 1)).sum::<f64>()
        };
        let (old, new) = (requests(&|s| s < DOWN), requests(&|s| s > UP));
        let since = new >= 368.0 && old > 0.0;
        let of = measured(end, seconds).filter(|&s| !since || s > UP).count() as f64;
        if of == 0.0 {
            assert!(ttft["window_s"].is_null() && ttft["restarts"].is_null(), "{end} {seconds}: {ttft}");
            continue;
        }
        assert!(near(&ttft["window_s"], of), "{end} {seconds}: {ttft}");
        assert!(near(&ttft["n"], if since { new } else { old + new }), "{end} {seconds}: {ttft}");
        let both = old > 0.0 && new > 0.0 && !since;
        assert_eq!(
            (&ttft["restarts"], &ttft["since_restart"]),
            (&u64::from(both).into(), &since.into()),
            "{end} {seconds}"
        );
        let (kv, used) = (&read["engines"][0]["kv"], &read["engines"][0]["kv"]["used_length"]);
        if !used.is_null() {
            assert_eq!((&used["n"], &used["restarts"]), (&ttft["n"], &ttft["restarts"]), "{end} {seconds}");
            assert_eq!(used["since_restart"], ttft["since_restart"], "{end} {seconds}");
            assert!(near(&kv["measured_s"]["used_length"], of), "{end} {seconds}: {kv}");
        }
        mixed += u64::from(both);
        alone += u64::from(since);
    }
    assert!(mixed > 5 && alone > 5, "{mixed} {alone}");
}

/// The readings of the energy counter that a window rests on: from the one at or before its start to its last one, or the
/// last 21 s where it has none.
fn energy_readings(end: u64, seconds: u64, energy_s: u64) -> Vec<u64> {
    let all = || (0..=end).filter(|s| s % energy_s == 3 % energy_s);
    let Some(last) = all().next_back() else { return Vec::new() };
    let start = if last > end.saturating_sub(seconds) { end.saturating_sub(seconds) } else { end.saturating_sub(21) };
    let first = all().rfind(|&s| s <= start).unwrap_or_else(|| all().next().unwrap());
    all().filter(|s| (first..=last).contains(s)).collect()
}

#[test]
fn tokens_and_joules_are_of_the_same_seconds() {
    let scrapes = scrapes();
    for energy_s in [1, 10] {
        let all = store(END, energy_s);
        let (mut around, mut none) = (0, 0);
        for (end, seconds) in moments() {
            let engine = &read(&all, end, seconds)["engines"][0];
            let up = |s: u64| !(DOWN..UP).contains(&s);
            // Whole intervals of the energy counter in which every second was scraped, in one life of the server.
            let (mut tokens, mut energy, mut time) = (0.0, 0.0, 0);
            for pair in energy_readings(end, seconds, energy_s).windows(2) {
                if (pair[0]..=pair[1]).all(up) {
                    tokens += scrapes[pair[1] as usize].unwrap().tokens - scrapes[pair[0] as usize].unwrap().tokens;
                    energy += joules(pair[1]) - joules(pair[0]);
                    time += pair[1] - pair[0];
                }
            }
            let made = engine["generation_tokens_per_s"].as_f64();
            let what = format!(
                "{end} {seconds} {energy_s}: {} {} {}",
                engine["tokens_per_joule"],
                engine["energy"],
                tokens / energy
            );
            if made.is_none() || time == 0 {
                assert!(engine["tokens_per_joule"].is_null() && engine["joules_per_token"].is_null(), "{what}");
                none += 1;
                continue;
            }
            let right = if made == Some(0.0) { 0.0 } else { tokens / energy };
            assert!(near(&engine["tokens_per_joule"], right), "{what}");
            assert_eq!(engine["joules_per_token"].is_null(), right == 0.0, "{what}");
            assert!(near(&engine["energy"]["window_s"], time as f64), "{what}");
            assert!(near(&engine["energy"]["watts"], energy / time as f64), "{what}");
            around += u64::from(end > DOWN && right > 0.0);
        }
        assert!(around > 20 && none > 5, "{around} {none}");
    }
}

/// A server that answered slowly, was started again and is fast now is held against what it is now.
#[test]
fn an_objective_is_judged_by_the_life_that_has_enough_requests() {
    let judged = |per_second: f64| {
        let store = Store::new(Retention::HOUR);
        for second in 0..=30_u32 {
            let since = f64::from(if second < 20 { second } else { second - 20 });
            let (fast, slow) = if second < 20 { (0.0, 40.0 * since) } else { (per_second * since, 0.0) };
            let mut batch = Batch::new(SourceId::Engine(0), START + u64::from(second) * 1000, 3500);
            batch.fact(ENGINE, FactKey::Url, "http://127.0.0.1:8000");
            batch.state = Some(SourceState::Ok);
            batch.breaks = second == 20;
            batch.push(ENGINE, Metric::RequestsRunning, 8.0);
            batch.push(ENGINE, Metric::RequestsWaiting, 0.0);
            batch.push(ENGINE, Metric::RequestsFinished, fast + slow);
            let (edges, cumulative) = ([0.1, 10.0].into(), vec![fast, fast + slow, fast + slow]);
            let sum = Some(0.05 * fast + 5.0 * slow);
            let (subject, metric) = (ENGINE, Metric::Ttft);
            batch.histograms.push(HistogramSample { sets: 0, subject, metric, edges, cumulative, sum });
            store.push(&batch);
        }
        let slo: Slo = "ttft_p99=1s".parse().unwrap();
        let one = attainments(&store.read(), START + 30_000, &slo)[0];
        (one.missed(), one.lives.restarts, one.lives.since_restart)
    };
    assert_eq!(judged(40.0), (Some(false), 0, true));
    assert_eq!(judged(30.0), (Some(true), 1, false), "300 are too few for a P99: both lives, and it says so");
}
