//! The recording of a real H200 with vLLM against figures and client clocks that are known apart from it.
//!
//! Everything is asked through what `snapshot --replay FILE --at S --window W --json` uses.

#![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]
#![expect(clippy::panic, reason = "a test may fail by panicking")]

use std::io::Read;

use flate2::read::GzDecoder;
use serde_json::Value;
use warptop::diagnosis::Slo;
use warptop::export::snapshot::{Mode, snapshot};
use warptop::model::SourceId;
use warptop::recording::Reader;
use warptop::sampler::replay::load;
use warptop::store::{Retention, Store, Window};

static RECORDING: &[u8] = include_bytes!("../assets/recordings/h200-vllm-0.25.1.jsonl.gz");
static REQUESTS: &[u8] = include_bytes!("../assets/recordings/h200-vllm-0.25.1-requests.csv.gz");

/// The JSON at a moment, ms from the recording's start, and when that start was.
fn at(ms: u64, window_ms: u64) -> (Value, u64) {
    let store = Store::new(Retention::HOUR);
    let (start, _) = load(&mut Reader::new(RECORDING).unwrap(), &store, Some(ms)).unwrap();
    let window = Window::last(start + ms, window_ms);
    (serde_json::to_value(snapshot(&store.read(), Mode::Replay, window, &Slo::default())).unwrap(), start.0)
}

/// The value at a path, e.g. `/gpus/0/sm_active_pct`.
fn number(json: &Value, path: &str) -> f64 {
    json.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("no number at {path}"))
}

/// 2 % of the value or 0.5 points.
fn near(json: &Value, path: &str, want: f64) {
    let got = number(json, path);
    assert!((got - want).abs() <= (0.02 * want).max(0.5), "{path}: {got}, not {want}");
}

#[test]
fn decode_of_64_clients() {
    let (json, _) = at(52_000, 10_000);
    near(&json, "/gpus/0/sm_active_pct", 81.0);
    near(&json, "/gpus/0/dram_active_pct", 46.1);
    near(&json, "/gpus/0/tensor_active_pct", 41.0);
    near(&json, "/gpus/0/util_gpu_time_pct", 97.3);
    near(&json, "/engines/0/requests_running", 64.0);
    near(&json, "/engines/0/requests_waiting", 0.0);
    near(&json, "/engines/0/kv/usage_pct", 24.0);
    near(&json, "/engines/0/generation_tokens_per_s", 4076.0);
    near(&json, "/engines/0/prompt_tokens_per_s", 16_320.0);
}

#[test]
fn prefill_of_long_prompts() {
    let (json, _) = at(118_000, 16_000);
    near(&json, "/gpus/0/sm_active_pct", 93.8);
    near(&json, "/gpus/0/dram_active_pct", 31.7);
    near(&json, "/engines/0/kv/usage_pct", 89.1);
    near(&json, "/engines/0/requests_running", 9.0);
    near(&json, "/engines/0/requests_waiting", 6.0);
}

#[test]
fn overload_queues_preempts_and_is_held_by_power() {
    let (json, _) = at(170_000, 30_000);
    near(&json, "/engines/0/requests_running", 144.0);
    near(&json, "/engines/0/requests_waiting", 456.0);
    let preemptions = number(&json, "/engines/0/preemptions_per_s");
    assert!((preemptions - 2.9).abs() <= 0.06, "{preemptions}");
    let held = number(&json, "/gpus/0/throttled_ms_per_s");
    assert!((945.0..=1000.0).contains(&held), "{held}");
    assert_eq!(json["gpus"][0]["throttle_reasons"], serde_json::json!(["sw_power_cap"]));
    let level = |id: &str| json["signals"].as_array().unwrap().iter().find(|s| s["id"] == id).unwrap()["level"].clone();
    assert_eq!((level("queue"), level("throttled")), ("act".into(), "watch".into()), "{}", json["signals"]);
    let first = &json["diagnosis"][0];
    assert_eq!((&first["cause"], &first["level"]), (&"kv-capacity".into(), &"act".into()), "{first}");
    let fix = &first["fixes"][0];
    assert_eq!(
        (&fix["flag"], &fix["now"], &fix["try"]),
        (&"--gpu-memory-utilization".into(), &"0.25".into(), &"0.9".into())
    );
}

/// The load begins at 6 s: half of the window is idle, and the mean over it describes neither half.
#[test]
fn means_of_the_busy_time_are_those_of_a_window_without_idle_time() {
    let (half, _) = at(10_000, 8_000);
    near(&half, "/gpus/0/busy/share_pct", 50.0);
    near(&half, "/gpus/0/sm_active_pct", 31.0);
    let (whole, _) = at(10_000, 4_000);
    near(&whole, "/gpus/0/busy/share_pct", 100.0);
    for figure in ["sm_active_pct", "dram_active_pct", "tensor_active_pct", "sm_clock_mhz", "power_w"] {
        let path = format!("/gpus/0/busy/{figure}");
        near(&half, &path, number(&whole, &path));
    }
    let (idle, _) = at(3_000, 3_000);
    near(&idle, "/gpus/0/busy/share_pct", 0.0);
    assert_eq!(idle["gpus"][0]["busy"]["sm_clock_mhz"], Value::Null, "{idle}");
}

#[test]
fn an_idle_server_has_no_latency() {
    let (json, _) = at(3_000, 3_000);
    near(&json, "/engines/0/requests_running", 0.0);
    for latency in ["ttft_s", "e2e_s", "itl_s", "queue_s", "tpot_s", "prefill_s", "decode_s"] {
        let latency = &json["engines"][0]["latency"][latency];
        assert_eq!((&latency["n"], &latency["p50"], &latency["p99"]), (&0.into(), &Value::Null, &Value::Null));
    }
    let signals = json["signals"].as_array().unwrap();
    assert!(signals.iter().all(|s| s["level"] == "ok"), "{signals:?}");
}

/// Every key that is `null` is in `missing`, and nothing else is.
#[test]
fn every_null_says_why() {
    fn nulls(value: &Value, path: &str, out: &mut Vec<String>) {
        match value {
            Value::Null => out.push(path.to_owned()),
            Value::Object(map) => map.iter().for_each(|(key, value)| {
                let dot = if path.is_empty() { "" } else { "." };
                nulls(value, &format!("{path}{dot}{key}"), out);
            }),
            Value::Array(list) => list.iter().enumerate().for_each(|(i, v)| nulls(v, &format!("{path}[{i}]"), out)),
            _ => {}
        }
    }
    for (ms, window_ms) in [(0, 1_000), (3_000, 3_000), (52_000, 10_000), (900_000, 10_000)] {
        let (json, _) = at(ms, window_ms);
        let mut missing: Vec<_> = json["missing"].as_array().unwrap().iter().collect();
        // A list that is empty has a row, too.
        missing.retain(|row| row["key"] != "processes" && row["key"] != "engines");
        let mut keys: Vec<_> = missing.iter().map(|row| row["key"].as_str().unwrap().to_owned()).collect();
        let mut found = Vec::new();
        nulls(&json, "", &mut found);
        // Nothing bounds the observations above the last edge of a histogram: that is no missing value.
        found.retain(|key| key.rsplit('.').next() != Some("hi"));
        // A fix that is no option has no value to try, and an event that lasts has no end.
        found.retain(|key| !key.starts_with("diagnosis[") && !key.starts_with("events["));
        keys.sort();
        found.sort();
        assert_eq!(keys, found, "{ms}");
    }
    let (json, _) = at(900_000, 10_000);
    assert_eq!(json["gpus"][0]["sm_active_pct"], Value::Null);
    let stale = |row: &Value| row["key"] == "gpus[0].sm_active_pct" && row["why"] == "stale";
    assert!(json["missing"].as_array().unwrap().iter().any(stale), "long after the end: {}", json["missing"]);
}

#[test]
fn processes_are_joined_with_what_they_hold() {
    let (json, _) = at(52_000, 10_000);
    let rows = json["processes"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    let engine = rows.iter().find(|row| row["pid"] == 1696).unwrap();
    assert_eq!((&engine["gpu"], &engine["gpu_mem_bytes"]), (&0.into(), &40_638_611_456_u64.into()));
    assert!(number(engine, "/page_table_bytes") > 6e6);
}

/// One request by its client's clock, ms.
struct Request {
    phase: String,
    start: f64,
    ttft: f64,
    e2e: f64,
}

fn requests() -> Vec<Request> {
    let mut text = String::new();
    GzDecoder::new(REQUESTS).read_to_string(&mut text).unwrap();
    let parse = |line: &str| {
        let fields: Vec<_> = line.split(',').collect();
        let number = |i: usize| fields[i].parse().unwrap();
        Request { phase: fields[0].to_owned(), start: number(1), ttft: number(2), e2e: number(3) }
    };
    text.lines().skip(1).map(parse).collect()
}

/// The client's P99 of each phase lies between the bounds; a request counts where it was observed, at
/// its first token or its end. 5 % and 20 ms are allowed for what lies between client and server.
#[test]
fn the_clients_p99_is_inside_the_bounds() {
    let requests = requests();
    let start = at(0, 1).1 as f64;
    let batches = Reader::new(RECORDING).unwrap();
    let scrapes: Vec<_> = batches.filter(|b| b.source == SourceId::Engine(0)).map(|b| b.at.0 as f64).collect();
    let mut wide = Vec::new();
    for phase in ["c1", "c4", "c16", "c64"] {
        let of_phase: Vec<_> = requests.iter().filter(|r| r.phase == phase).collect();
        let from = of_phase.iter().map(|r| r.start).fold(f64::MAX, f64::min) - start;
        let to = of_phase.iter().map(|r| r.start + r.e2e).fold(0.0, f64::max) - start;
        // Cut to the scrapes inside the phase.
        let inside = || scrapes.iter().map(|&t| t - start).filter(|t| (from..=to).contains(t));
        let (from, to) = (inside().fold(f64::MAX, f64::min), inside().fold(0.0, f64::max));
        let (json, _) = at(to as u64, (to - from) as u64);
        for (name, value) in
            [("ttft_s", (|r| r.ttft) as fn(&Request) -> f64), ("e2e_s", (|r| r.e2e) as fn(&Request) -> f64)]
        {
            let latency = &json["engines"][0]["latency"][name];
            let observed = |r: &&&Request| (from..=to).contains(&(r.start + value(r) - start));
            let mut truth: Vec<_> = of_phase.iter().filter(observed).map(|r| value(r) / 1000.0).collect();
            truth.sort_by(f64::total_cmp);
            let p99 = truth[(truth.len() as f64 * 0.99).ceil() as usize - 1];
            let (lo, hi) = (number(latency, "/p99/lo"), number(latency, "/p99/hi"));
            assert!(lo <= p99 * 1.05 + 0.02 && p99 * 0.95 - 0.02 <= hi, "{phase} {name}: {p99} not in {lo}..{hi}");
            assert_eq!(latency["n"], truth.len(), "{phase} {name}");
            wide.push((hi - lo) / p99);
        }
    }
    assert!(wide.iter().all(|w| *w < 3.0), "bounds that hold everything prove nothing: {wide:?}");
}

/// What the client saw between the first token and the last, by request and by token, lies between the bounds. Every
/// request had 128 tokens; both are observed when it ends.
#[test]
fn the_clients_decode_time_is_inside_the_bounds() {
    let requests = requests();
    let start = at(0, 1).1 as f64;
    let (from, to) = (46_000.0, 62_000.0);
    let (json, _) = at(to as u64, (to - from) as u64);
    let scale: [(&str, f64); 2] = [("decode_s", 1.0), ("tpot_s", 127.0)];
    for (name, parts) in scale {
        let observed = requests.iter().filter(|r| (from..=to).contains(&(r.start + r.e2e - start)));
        let mut truth: Vec<_> = observed.map(|r| (r.e2e - r.ttft) / 1000.0 / parts).collect();
        truth.sort_by(f64::total_cmp);
        let latency = &json["engines"][0]["latency"][name];
        let n = latency["n"].as_u64().unwrap() as usize;
        assert!(n.abs_diff(truth.len()) <= truth.len() / 20 && n >= 368, "{name}: {n} of {}", truth.len());
        for (key, q) in [("p50", 0.5), ("p95", 0.95), ("p99", 0.99)] {
            let want = truth[(truth.len() as f64 * q).ceil() as usize - 1];
            let (lo, hi) = (number(latency, &format!("/{key}/lo")), number(latency, &format!("/{key}/hi")));
            let slack = 0.02 / parts;
            assert!(lo <= want * 1.05 + slack && want * 0.95 - slack <= hi, "{name} {key}: {want} not in {lo}..{hi}");
        }
    }
    let prefill = &json["engines"][0]["latency"]["prefill_s"];
    assert_eq!(prefill["n"], json["engines"][0]["latency"]["decode_s"]["n"], "{prefill}");
}
