//! Inputs that users of other tools reported, made small, against what is right of each. `assets/cases/NN` holds the
//! bodies; which report each one is from, and what is right, stands at its test.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::float_cmp,
    reason = "in a test an error is a failure, and a figure is what it is"
)]

mod support;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use support::{ENGINE, PATIENT, Server, Session, fact, http, latest};
use warptop::derive::kv::{Basis, Buffers, kv};
use warptop::diagnosis::{Cause, Finding, Severity, Slo, diagnose};
use warptop::engine::promtext::{self, Exposition};
use warptop::engine::{self, Answers, Memory, dcgm};
use warptop::export::snapshot::{Mode, snapshot};
use warptop::model::{Batch, FactKey, Metric, Reading, SourceId, SourceState, Subject, Time, Why};
use warptop::store::{Data, HistogramWindow, Retention, Store, Window};

fn folder(case: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("assets/cases").join(case)
}

fn text(case: &str, file: &str) -> String {
    std::fs::read_to_string(folder(case).join(file)).unwrap()
}

/// Line by line between two bodies that differ in their numbers only.
fn between(a: &str, b: &str, share: f64) -> String {
    let line = |(a, b): (&str, &str)| {
        let numbers = a.rsplit_once(' ').zip(b.rsplit_once(' '));
        let moved = numbers.and_then(|((name, from), (other, to))| {
            let (from, to) = (from.parse::<f64>().ok()?, to.parse::<f64>().ok()?);
            (name == other).then(|| format!("{name} {}\n", from + (to - from) * share))
        });
        moved.unwrap_or_else(|| format!("{a}\n"))
    };
    a.lines().zip(b.lines()).map(line).collect()
}

const START: Time = Time(1_796_000_000_000);

/// The bodies of a folder, played as its `play.json` says.
struct Played {
    seconds: Vec<f64>,
    glide: bool,
    bodies: Vec<String>,
}

impl Played {
    fn of(case: &str) -> Self {
        let play: serde_json::Value = serde_json::from_str(&text(case, "play.json")).unwrap();
        let seconds: Vec<f64> = play["seconds"].as_array().unwrap().iter().map(|s| s.as_f64().unwrap()).collect();
        let bodies = (0..=seconds.len()).map(|n| text(case, &format!("body-{n}.prom"))).collect();
        Self { seconds, glide: play["glide"] == true, bodies }
    }

    fn at(&self, second: u64) -> String {
        let mut at = second as f64;
        for (pair, &time) in self.bodies.windows(2).zip(&self.seconds) {
            if at < time {
                return if self.glide { between(&pair[0], &pair[1], at / time) } else { pair[0].clone() };
            }
            at -= time;
        }
        self.bodies.last().unwrap().clone()
    }
}

/// Plays the bodies of a case once a second for so long, and gives the store and the end.
fn play(case: &str, path: &'static str, seconds: u64) -> (Store, Time) {
    let (store, mut memory, played) = (Store::new(Retention::HOUR), Memory::default(), Played::of(case));
    for second in 0..=seconds {
        let body = played.at(second);
        let adapter = engine::detect(path, &body).unwrap_or_else(|| panic!("case {case}: nobody reads {body}"));
        let mut batch = Batch::new(SourceId::Engine(0), START + second * 1000, 3500);
        batch.state = Some(SourceState::Ok).filter(|_| second == 0);
        batch.fact(ENGINE, FactKey::Url, "http://127.0.0.1:8000");
        batch.fact(ENGINE, FactKey::Pids, "77");
        batch.fact(ENGINE, FactKey::Kind, adapter.spec().id);
        let _ = adapter.translate(Answers::new(&[(path, &body)]), 0, &mut memory, &mut batch);
        store.push(&batch);
    }
    (store, START + seconds * 1000)
}

const GPU: Subject = Subject::Gpu(0);

/// The same of a DCGM exporter, into a store that may hold an engine.
fn play_dcgm(case: &str, store: &Store, seconds: u64) {
    let played = Played::of(&format!("{case}/dcgm"));
    for second in 0..=seconds {
        let body = played.at(second);
        let mut batch = Batch::new(SourceId::Dcgm, START + second * 1000, 3500);
        batch.state = Some(SourceState::Ok).filter(|_| second == 0);
        let (rows, _) = dcgm::rows(Exposition::new(&body));
        batch.fact(GPU, FactKey::Name, &rows[0].name);
        for (metric, reading) in &rows[0].values {
            batch.push(GPU, *metric, *reading);
        }
        store.push(&batch);
    }
}

/// The GPU in the snapshot of the last ten seconds.
fn gpu_json(store: &Store, second: u64) -> serde_json::Value {
    let window = Window::last(START + second * 1000, 10_000);
    let json = snapshot(&store.read(), Mode::Replay, window, &Slo::default());
    serde_json::to_value(json).unwrap()["gpus"][0].take()
}

/// What is found after so many seconds: cause, severity and words.
fn findings(store: &Store, second: u64) -> Vec<(Cause, Severity, String)> {
    let diagnosis = diagnose(&store.read(), START + second * 1000, &Slo::default());
    let of = |finding: &Finding| (finding.cause, finding.severity, finding.headline.full.clone());
    diagnosis.findings.iter().map(of).collect()
}

/// The newest level, or the mean rate of the last seconds.
fn level(data: &Data, metric: Metric, at: Time) -> f64 {
    data.latest(ENGINE, metric, at).reading.value().unwrap_or_else(|| panic!("no {metric:?}"))
}

fn rate(data: &Data, metric: Metric, at: Time) -> f64 {
    data.mean(ENGINE, metric, Window::last(at, 5000)).value().unwrap_or_else(|| panic!("no rate of {metric:?}"))
}

fn near(found: f64, right: f64, what: &str) {
    assert!((found - right).abs() <= 0.01 * right.abs().max(0.001), "{what}: {found} for {right}");
}

/// vllm#57336: 100 requests of 17 tokens in two blocks of 16 each. Two thirds of the pool are held, a third holds
/// something; the lengths say so where whole blocks do not.
#[test]
fn case_02_the_lengths_of_short_requests_tell_the_tail() {
    let (store, end) = play("02", "/metrics", 15);
    let data = store.read();
    let kv = kv(&data, 0, Window::last(end, 10_000), &mut Buffers::default());
    near(kv.usage_pct.value().unwrap(), 66.67, "usage");
    near(kv.held_tokens.value().unwrap(), 3200.0, "held");
    let (live, tail) = (kv.live_tokens.value().unwrap(), kv.tail_waste_pct.value().unwrap());
    assert!((1700.0..=1800.0).contains(&live) && (44.0..=47.0).contains(&tail), "{live} live, {tail} % tail");
    assert_eq!(kv.live_tokens_is, Basis::Estimate);
    let found = diagnose(&data, end, &Slo::default());
    let waste = found.findings.iter().find(|finding| finding.cause == Cause::KvMismatch).unwrap();
    assert_eq!(waste.severity, Severity::Watch, "two thirds of the pool are held: {waste:?}");
    assert!(waste.headline.full.starts_with("45 % of the KV memory that requests hold is empty"), "{waste:?}");
}

/// sglang#4244 and vllm#29928: the gauges stay as they were when all is over. What tells it is that no counter moves.
#[test]
fn cases_06_and_11_stale_gauges_stand_beside_counters_that_do_not_move() {
    for (case, running, waiting) in [("06", 17.0, 3.0), ("11", 106.0, 15.0)] {
        let (store, end) = play(case, "/metrics", 60);
        let data = store.read();
        assert_eq!(
            (level(&data, Metric::RequestsRunning, end), level(&data, Metric::RequestsWaiting, end)),
            (running, waiting)
        );
        for metric in [Metric::PromptTokens, Metric::GenerationTokens, Metric::RequestsFinished] {
            assert_eq!(level(&data, metric, end).to_bits(), 0.0_f64.to_bits(), "{case}: {metric:?}");
            assert!(level(&data, metric, START + 8000) > 0.0, "{case}: {metric:?} moved at first");
        }
        drop(data);
        if case == "11" {
            play_dcgm(case, &store, 60);
        }
        let found = findings(&store, 60);
        let (cause, severity, words) = &found[0];
        assert_eq!((*cause, *severity), (Cause::Stalled, Severity::Watch), "{found:?}");
        let start = format!("{running:.0} run, {waiting:.0} wait, and nothing has moved for ");
        assert!(
            words.starts_with(&start) && words.ends_with("these figures are old and all clients have left"),
            "{words}"
        );
        assert!(found[1..].iter().all(|(_, severity, _)| *severity == Severity::Ok), "no queue, no wall: {found:?}");
    }
    // Told within seconds where the GPU is seen to rest.
    let (store, _) = play("11", "/metrics", 30);
    play_dcgm("11", &store, 30);
    assert_eq!(findings(&store, 30)[0].0, Cause::Stalled);
}

/// vllm#25780: random prompts, of which 30.8 % of the lookups hit: preempted requests find their own blocks again.
#[test]
fn case_14_hits_of_preempted_requests_are_no_warm_cache() {
    let (store, end) = play("14", "/metrics", 20);
    let data = store.read();
    let kv = kv(&data, 0, Window::last(end, 20_000), &mut Buffers::default());
    near(kv.prefix_hit_pct.value().unwrap(), 30.79, "hits");
    near(kv.repeated_max_pct.value().unwrap(), 36.95, "more is looked up than comes in");
    let words = kv.prefix_note.unwrap().to_string();
    assert_eq!(words, "up to 36.9 % are repeated lookups of preempted requests (2.0/s): no sign of a warm cache");
    drop(data);
    let json = snapshot(&store.read(), Mode::Replay, Window::last(end, 20_000), &Slo::default());
    let json = serde_json::to_value(json).unwrap()["engines"][0]["kv"].take();
    assert_eq!(json["prefix_note"], words);
    near(json["prefix_repeated_max_pct"].as_f64().unwrap(), 36.95, "in the snapshot");
}

/// llama.cpp#17384: builds of November 2025 sent the whole exposition as one JSON string.
#[test]
fn case_16_metrics_in_a_json_string_are_read() {
    let server = Server::start(|path, stream| {
        let answer = match path {
            "/metrics" => http("200 OK", "text/plain; version=0.0.4", text("16", "body.txt").as_bytes()),
            "/slots" => http("200 OK", "application/json", text("16", "get/slots.json").as_bytes()),
            "/props" => http("200 OK", "application/json", text("16", "get/props.json").as_bytes()),
            _ => http("404 Not Found", "application/json", b"{}"),
        };
        drop(stream.write_all(&answer));
    });
    let session = Session::named(&server.url(), PATIENT);
    session.wait("the version", |data| fact(data, FactKey::Version).filter(|&v| v == "b7100-case").map(|_| ()));
    let data = session.store.read();
    assert_eq!(support::state(&data), Some(SourceState::Ok));
    assert_eq!(fact(&data, FactKey::Kind), Some("llama.cpp"));
    let of = |metric| latest(&data, metric).value();
    assert_eq!((of(Metric::RequestsRunning), of(Metric::RequestsWaiting)), (Some(2.0), Some(0.0)));
    assert_eq!(of(Metric::KvLiveTokens), Some(3005.0 + 410.0), "from /slots");
}

/// llama.cpp#23096: of a router nothing is asked that loads or wakes a model, or keeps one awake.
#[test]
fn case_17_a_router_is_recognised_and_only_its_list_of_models_is_read() {
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = Arc::clone(&asked);
    let server = Server::start(move |path, stream| {
        log.lock().unwrap().push(path.to_owned());
        let json = |status, file| http(status, "application/json", text("17", file).as_bytes());
        let answer = match path {
            "/metrics" => json("400 Bad Request", "get/metrics.json"),
            "/slots" => json("400 Bad Request", "get/slots.json"),
            "/props" => json("200 OK", "get/props.json"),
            "/v1/models" => json("200 OK", "get/v1__models.json"),
            _ => http("404 Not Found", "application/json", b"{}"),
        };
        drop(stream.write_all(&answer));
    });
    let session = Session::named(&server.url(), PATIENT);
    session.wait("its models", |data| latest(data, Metric::ModelsKnown).value().filter(|&known| known == 3.0));
    let enough = || asked.lock().unwrap().iter().filter(|path| **path == "/v1/models").count() > 20;
    session.wait("more readings", |_| enough().then_some(()));
    let data = session.store.read();
    assert_eq!(support::state(&data), Some(SourceState::Ok));
    assert_eq!(latest(&data, Metric::ModelsLoaded), Reading::Value(1.0));
    assert!(fact(&data, FactKey::Name).is_some_and(|name| name.starts_with("llama.cpp router")));
    assert_eq!(latest(&data, Metric::RequestsRunning), Reading::Missing(Why::Unsupported));
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for path in asked.lock().unwrap().iter() {
        assert!(!path.contains("model="), "{path}");
        *counts.entry(path.clone()).or_default() += 1;
    }
    assert!(counts.iter().all(|(path, &n)| n == 1 || path == "/v1/models"), "{counts:?}");
}

/// docker/model-runner#78: all its servers' metrics in one answer, with labels; and one comment while there is none.
#[test]
fn case_18_models_with_labels_are_added_up_and_none_is_no_failure() {
    let comment = text("18", "body-0.prom");
    let adapter = engine::detect("/metrics", &comment).unwrap();
    assert_eq!(adapter.spec().id, "llama.cpp");
    let mut batch = Batch::new(SourceId::Engine(0), START, 3500);
    let _ = adapter.translate(Answers::new(&[("/metrics", &comment)]), 0, &mut Memory::default(), &mut batch);
    let of = |metric| batch.samples.iter().find(|sample| sample.metric == metric).map(|sample| sample.reading);
    assert_eq!([Metric::ModelsLoaded, Metric::RequestsRunning].map(of), [Some(Reading::Value(0.0)); 2]);
    assert_eq!(of(Metric::GenerationTokens), Some(Reading::Missing(Why::NotYet)));
    assert!(engine::detect("/metrics", "# something else\n").is_none());

    let (store, end) = play("18", "/metrics", 22);
    let data = store.read();
    let levels = [Metric::RequestsRunning, Metric::RequestsWaiting, Metric::ModelsLoaded].map(|m| level(&data, m, end));
    assert_eq!(levels, [3.0, 1.0, 2.0]);
    near(rate(&data, Metric::GenerationTokens, end), 60.0, "tokens/s");
    near(rate(&data, Metric::PromptTokens, end), 60.0, "prompt tokens/s");
    assert_eq!(data.fact(ENGINE, FactKey::Model, end), Some("ai/small, ai/coder"));
}

/// DCGM#199, dcgm-exporter#312 and #460, slurm-job-exporter#30, gpu-monitoring-tools#97: values that no GPU has, and
/// DCGM's marks where it has none. Both leave a gap with a reason: no plot, maximum or cause knows of them.
#[test]
fn case_19_what_no_gpu_has_and_what_dcgm_marks_as_blank_is_a_gap() {
    let store = Store::new(Retention::HOUR);
    play_dcgm("19", &store, 20);
    let at = |metric, second: u64| store.read().latest(GPU, metric, START + second * 1000).reading;
    for metric in [
        Metric::SmActive,
        Metric::DramActive,
        Metric::UtilGpuTime,
        Metric::Temp,
        Metric::MemTemp,
        Metric::Power,
        Metric::SmClock,
    ] {
        let truth = at(metric, 5).value().unwrap();
        let whole = Window { start: START, end: START + 20_000 };
        let (least, most) = store.read().series(GPU, metric).unwrap().extremes(whole).unwrap();
        assert!(least > 0.5 * truth && most < 1.5 * truth, "{metric:?}: {least} to {most} for {truth}");
        assert!(at(metric, 20).value().is_some(), "{metric:?} is back");
    }
    assert_eq!(at(Metric::Temp, 7), Reading::Missing(Why::Failed), "345 °C");
    assert_eq!(at(Metric::Temp, 10), Reading::Missing(Why::Failed), "82505 °C");
    assert_eq!(at(Metric::SmClock, 7), Reading::Missing(Why::Unsupported), "DCGM's mark of 32 bits");
    assert_eq!(at(Metric::MemTemp, 10), Reading::Missing(Why::Unsupported), "no sensor reads 0 °C");
    for second in 6..=20 {
        let found = findings(&store, second);
        assert!(found.iter().all(|(_, severity, _)| *severity == Severity::Ok), "{second}: {found:?}");
    }
}

/// dcgm-exporter#317: the figures of one board come once for each of its MIG instances.
#[test]
fn case_20_instances_of_a_gpu_are_one_gpu() {
    let body = text("20", "dcgm/body.prom");
    let (rows, _) = dcgm::rows(Exposition::new(&body));
    let [gpu] = &rows[..] else { panic!("{rows:?}") };
    let of = |metric| gpu.values.iter().find(|(known, _)| *known == metric).and_then(|(_, reading)| reading.value());
    assert_eq!((of(Metric::Temp), of(Metric::Power)), (Some(51.0), Some(233.1)));
    near(of(Metric::SmActive).unwrap(), (0.9 * 3.0 + 0.1 * 2.0) / 7.0 * 100.0, "activity");
    near(of(Metric::GpuMemUsed).unwrap(), f64::from(31_000 + 4000 + 12) * 1_048_576.0, "memory");
    assert_eq!(of(Metric::DramActive), None);
    assert_eq!(gpu.instances, ["3g.40gb", "2g.20gb", "1g.10gb"]);
    let (store, mut batch) = (Store::new(Retention::HOUR), Batch::new(SourceId::Dcgm, START, 3500));
    batch.fact(GPU, FactKey::Name, &gpu.name);
    batch.fact(GPU, FactKey::Instances, &gpu.instances.join(", "));
    store.push(&batch);
    assert_eq!(gpu_json(&store, 0)["mig_instances"], serde_json::json!(gpu.instances));
}

/// ray#59071 and others: vLLM's metrics as Ray's agent hands them on, of two replicas.
#[test]
fn case_22_vllm_behind_ray_is_read_and_its_replicas_are_added_up() {
    let (store, end) = play("22", "/metrics", 8);
    let data = store.read();
    assert_eq!((level(&data, Metric::RequestsRunning, end), level(&data, Metric::RequestsWaiting, end)), (32.0, 2.0));
    near(rate(&data, Metric::GenerationTokens, end), 800.0, "tokens/s");
    near(level(&data, Metric::KvUsage, end), 35.0, "KV usage");
    let facts = [FactKey::Kind, FactKey::Behind, FactKey::Ranks, FactKey::Model].map(|key| data.fact(ENGINE, key, end));
    assert_eq!(facts, [Some("vllm"), Some("Ray"), Some("a/0,b/0"), Some("m")]);
    let body = text("22", "body-1.prom");
    let server = Server::start(move |path, stream| drop(stream.write_all(&support::vllm(path, &body, "0.25.1"))));
    let session = Session::named(&server.url(), PATIENT);
    session.wait("its name", |data| {
        fact(data, FactKey::Name).filter(|name| name.starts_with("vLLM behind Ray :")).map(|_| ())
    });
}

/// NVIDIA NIM: vLLM's early names without a prefix, at a path of its own.
#[test]
fn case_23_nim_is_read_at_its_own_path() {
    let (store, end) = play("23", "/v1/metrics", 8);
    let data = store.read();
    let levels = [Metric::RequestsRunning, Metric::RequestsCap, Metric::RequestsWaiting].map(|m| level(&data, m, end));
    assert_eq!(levels, [9.0, 256.0, 4.0]);
    near(level(&data, Metric::KvUsage, end), 27.0, "KV usage");
    near(rate(&data, Metric::GenerationTokens, end), 300.0, "tokens/s");
    let mut ttft = HistogramWindow::default();
    data.histogram_window(ENGINE, Metric::Ttft, Window::last(end, 6000), &mut ttft);
    let place = ttft.counts.iter().position(|&count| count > 0).unwrap();
    assert_eq!((ttft.edges[place - 1], ttft.edges[place], ttft.counts[place]), (0.1, 0.25, ttft.n));
    // Found though /metrics is not there.
    let server = Server::start(|path, stream| {
        let answer = match path {
            "/v1/metrics" => http("200 OK", "text/plain", text("23", "body-0.prom").as_bytes()),
            _ => http("404 Not Found", "application/json", b"{}"),
        };
        drop(stream.write_all(&answer));
    });
    let session = Session::named(&server.url(), PATIENT);
    session
        .wait("its name", |data| fact(data, FactKey::Name).filter(|name| name.starts_with("NVIDIA NIM :")).map(|_| ()));
}

/// vllm#55434: a decode worker whose KV transfers are mostly submission.
#[test]
fn case_24_kv_transfers_tell_time_bytes_and_pieces() {
    let (store, end) = play("24", "/metrics", 20);
    let data = store.read();
    let waiting = [Metric::RequestsWaiting, Metric::WaitingKvFetch, Metric::WaitingDeferred, Metric::WaitingCapacity];
    assert_eq!(waiting.map(|metric| level(&data, metric, end)), [3.0, 3.0, 3.0, 0.0]);
    let of = |metric| rate(&data, metric, end);
    near(of(Metric::KvTransfers), 10.0, "transfers/s");
    near(of(Metric::KvTransferTime) / of(Metric::KvTransfers), 0.14, "time of one");
    near(of(Metric::KvTransferPostTime) / of(Metric::KvTransferTime), 0.571, "share of submission");
    near(of(Metric::KvTransferBytes) / of(Metric::KvTransferTime), 35e9, "bytes/s");
    near(of(Metric::KvTransferBytes) / of(Metric::KvTransferDescriptors), 46_667.0, "bytes of a piece");
    near(of(Metric::PromptTokensExternal) / of(Metric::PromptTokens), 0.9875, "from another node");
    near(of(Metric::KvTransfersFailed), 0.0, "failures");
    drop(data);
    let diagnosis = diagnose(&store.read(), end, &Slo::default());
    let found = &diagnosis.findings[0];
    assert_eq!((found.cause, found.severity), (Cause::WaitsForTransfer, Severity::Act), "{:?}", diagnosis.findings);
    assert_eq!(
        found.headline.full,
        "3 requests wait for KV blocks from another node or from host memory; 57 % of a transfer goes into posting its \
         many small pieces, so the link is not what is slow"
    );
    let evidence: Vec<_> = found.evidence.iter().map(|evidence| &*evidence.text).collect();
    for words in ["35.0 GB/s", "in pieces of 47 kB", "98.8 % of the prompt tokens come from elsewhere"] {
        assert!(evidence.iter().any(|text| text.contains(words)), "{words}: {evidence:?}");
    }
    assert!(found.fixes.iter().all(|fix| fix.flag.is_none()), "no limit on requests helps: {:?}", found.fixes);
}

/// An A100 whose chassis holds it at 240 W of 400: what the bits of a DCGM exporter and its levels tell.
#[test]
fn case_26_throttle_bits_and_what_they_are_judged_by_are_read() {
    for (file, power, clock) in [("dcgm/body-0.prom", 240.0, 960.0), ("dcgm/body-1.prom", 398.0, 1290.0)] {
        let body = text("26", file);
        let (rows, _) = dcgm::rows(Exposition::new(&body));
        let of =
            |metric| rows[0].values.iter().find(|(known, _)| *known == metric).and_then(|(_, reading)| reading.value());
        let metrics = [
            Metric::ThrottleReasons,
            Metric::Power,
            Metric::PowerLimit,
            Metric::SmClock,
            Metric::SmClockMax,
            Metric::Temp,
        ];
        assert_eq!(metrics.map(of), [4.0, power, 400.0, clock, 1410.0, 58.0].map(Some));
    }
    let store = Store::new(Retention::HOUR);
    play_dcgm("26", &store, 58);
    let found = findings(&store, 28);
    let (cause, severity, words) = &found[0];
    assert_eq!((*cause, *severity), (Cause::PowerCap, Severity::Act), "{found:?}");
    assert!(words.contains("at 240 W, 60 % of the card's 400 W: another limit acts"), "{words}");
    let evidence = diagnose(&store.read(), START + 28_000, &Slo::default()).findings[0].evidence[0].text.clone();
    assert_eq!(evidence, "its bit is set in 100 % of the readings while work runs; the time is not counted here");
    let json = gpu_json(&store, 28);
    assert_eq!((&json["throttled_from"], &json["throttled_ms_per_s"]), (&"bits".into(), &serde_json::Value::Null));
    assert_eq!(json["throttle_reasons"], serde_json::json!(["sw_power_cap"]));
    let found = findings(&store, 58);
    assert!(found.iter().any(|(cause, ..)| *cause == Cause::PowerCap), "{found:?}");
    assert!(found.iter().all(|(_, severity, _)| *severity != Severity::Act), "{found:?}");
}

#[test]
fn a_json_string_is_undone_only_where_it_is_all_there_is() {
    assert_eq!(promtext::decode(text("16", "body.txt").as_bytes()).lines().count(), 12);
}
