//! Tokens per joule on the H200 recording against figures that do not come from it: the driver's energy
//! counter as the capture has it, and the tokens that the clients counted by their own clocks.

#![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::io::Read;

use flate2::read::GzDecoder;
use serde_json::Value;
use warptop::diagnosis::Slo;
use warptop::export::snapshot::{Mode, snapshot};
use warptop::recording::Reader;
use warptop::sampler::replay::load;
use warptop::store::{Retention, Store, Window};

static RECORDING: &[u8] = include_bytes!("../assets/recordings/h200-vllm-0.25.1.jsonl.gz");
static DEMO: &[u8] = include_bytes!("../assets/recordings/demo.jsonl.gz");
static REQUESTS: &[u8] = include_bytes!("../assets/recordings/h200-vllm-0.25.1-requests.csv.gz");

/// The first engine at a moment, s from the recording's start.
fn engine(recording: &'static [u8], at_s: u64, window_s: u64) -> Value {
    let store = Store::new(Retention::HOUR);
    let (start, _) = load(&mut Reader::new(recording).unwrap(), &store, Some(at_s * 1000)).unwrap();
    let window = Window::last(start + at_s * 1000, window_s * 1000);
    serde_json::to_value(snapshot(&store.read(), Mode::Replay, window, &Slo::default())).unwrap()["engines"][0].clone()
}

/// Requests by their clients' clocks, Unix ms: first token, last token. Each has 512 prompt and 128
/// generated tokens.
fn requests() -> Vec<(f64, f64)> {
    let mut text = String::new();
    GzDecoder::new(REQUESTS).read_to_string(&mut text).unwrap();
    let request = |line: &str| {
        let fields: Vec<f64> = line.split(',').skip(1).map(|field| field.parse().unwrap()).collect();
        (fields[0] + fields[1], fields[0] + fields[2])
    };
    text.lines().skip(1).map(request).collect()
}

/// (prompt, generated) tokens between two moments: a prompt counts when its first token comes, and so
/// does that token; the other 127 come evenly until the last.
fn tokens(requests: &[(f64, f64)], from: f64, to: f64) -> (f64, f64) {
    let of_request = |&(first, last): &(f64, f64)| {
        let started = f64::from(u8::from(from < first && first <= to));
        let share = ((last.min(to) - first.max(from)) / (last - first)).max(0.0);
        (512.0 * started, started + 127.0 * share)
    };
    requests.iter().map(of_request).fold((0.0, 0.0), |sum, n| (sum.0 + n.0, sum.1 + n.1))
}

/// Moment and window, s, and the capture's energy readings (Unix ms, mJ) at or before the window's ends.
type Phase = (u64, u64, [(f64, f64); 2]);

const PHASES: [Phase; 4] = [
    (52, 10, [(1_795_960_477_840.0, 64_171_198.0), (1_795_960_487_862.0, 70_257_667.0)]),
    (16, 6, [(1_795_960_445_800.0, 48_530_599.0), (1_795_960_451_807.0, 51_206_715.0)]),
    (24, 6, [(1_795_960_453_809.0, 52_101_375.0), (1_795_960_459_816.0, 54_913_586.0)]),
    (35, 8, [(1_795_960_462_820.0, 56_325_449.0), (1_795_960_470_831.0, 60_348_067.0)]),
];

#[test]
fn tokens_per_joule_are_what_clients_and_counter_say() {
    let requests = requests();
    for (at, window, [(from, before), (to, after)]) in PHASES {
        let engine = engine(RECORDING, at, window);
        let joules = (after - before) / 1000.0;
        let (prompt, generated) = tokens(&requests, from, to);
        let near = |name: &str, value: &Value, want: f64, tolerance: f64| {
            let got = value.as_f64().unwrap();
            assert!((got / want - 1.0).abs() < tolerance, "{name} at {at} s: {got}, not {want}");
        };
        near("power", &engine["energy"]["watts"], joules * 1000.0 / (to - from), 1e-6);
        near("generated per J", &engine["tokens_per_joule"], generated / joules, 0.01);
        near("J per generated", &engine["joules_per_token"], joules / generated, 0.01);
        // A prompt of 512 counts at one moment, which the server and the client do not see as the same one.
        let edge = 0.01 + 512.0 / (prompt + generated);
        near("all per J", &engine["energy"]["all_tokens_per_joule"], (prompt + generated) / joules, edge);
        assert_eq!((&engine["energy"]["basis"], &engine["energy"]["gpus"]), (&"exclusive".into(), &[0].into()));
    }
}

/// The demo is played to everybody: its figures must be there, and plausible for one H200.
#[test]
fn the_demo_shows_tokens_per_joule() {
    let engine = engine(DEMO, 100, 30);
    let per_joule = engine["tokens_per_joule"].as_f64().unwrap();
    let watts = engine["energy"]["watts"].as_f64().unwrap();
    assert!((1.0..30.0).contains(&per_joule) && (300.0..=700.0).contains(&watts), "{engine}");
    assert_eq!(engine["requests_cap"], 256);
}
