//! The queue on the H200 recording: high-water marks against the gauges in the captured bodies, and the drain
//! time against how long it then took until as many requests had been let in.

#![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

use serde_json::Value;
use warptop::diagnosis::Slo;
use warptop::export::snapshot::{Mode, snapshot};
use warptop::recording::Reader;
use warptop::sampler::replay::load;
use warptop::store::{Retention, Store, Window};

static RECORDING: &[u8] = include_bytes!("../assets/recordings/h200-vllm-0.25.1.jsonl.gz");

/// The engine at a moment, s from the recording's start, read with all that came before and nothing after.
fn engine(at_s: u64, window_s: u64) -> Value {
    let store = Store::new(Retention::HOUR);
    let (start, _) = load(&mut Reader::new(RECORDING).unwrap(), &store, Some(at_s * 1000)).unwrap();
    let window = Window::last(start + at_s * 1000, window_s * 1000);
    serde_json::to_value(snapshot(&store.read(), Mode::Replay, window, &Slo::default())).unwrap()["engines"][0].clone()
}

#[test]
fn high_water_marks_are_those_of_the_captured_gauges() {
    // Largest `vllm:num_requests_running` and `_waiting` of the bodies scraped in the window, and when first.
    for (at, window, running, waiting) in [
        (170, 30, (155, 1_795_960_582_363_u64), (556, 1_795_960_579_362_u64)),
        (52, 10, (64, 1_795_960_482_854), (21, 1_795_960_486_857)),
        (100, 40, (256, 1_795_960_503_942), (186, 1_795_960_506_947)),
    ] {
        let engine = engine(at, window);
        let marks = &engine["high_water"]["window"];
        let mark = |name: &str| (marks[name].as_u64().unwrap(), marks[format!("{name}_unix_ms")].as_u64().unwrap());
        assert_eq!((mark("running"), mark("waiting")), (running, waiting), "{at} s");
    }
    let kept = &engine(170, 30)["high_water"]["kept"];
    assert_eq!((&kept["running"], &kept["waiting"]), (&256.into(), &556.into()), "256 ran before the window");
}

/// Overload: 600 clients. The truth is when requests finished plus growth of the batch, by the later bodies,
/// reached the number that waited.
#[test]
fn the_drain_time_is_about_how_long_it_takes() {
    let truth = [(155, 25.0), (160, 22.0), (165, 23.0), (170, 24.0), (175, 19.0)];
    let errors = truth.map(|(at, seconds)| {
        let drain = engine(at, 10)["drain_s"].as_f64().unwrap();
        (drain / seconds - 1.0_f64).abs()
    });
    assert!(errors.iter().all(|error| *error < 0.25), "{errors:?}");
    let mut sorted = errors;
    sorted.sort_by(f64::total_cmp);
    assert!(sorted[2] < 0.2, "median of {errors:?}");
    assert_eq!(engine(52, 10)["drain_s"], 0.0, "nobody waits");
}

#[test]
fn limits_are_those_of_the_start_up_log() {
    let engine = engine(170, 30);
    assert_eq!(
        (&engine["requests_cap"], &engine["requests_cap_from"]),
        (&256.into(), &"start-up log: max_num_seqs".into())
    );
    let missing = engine["queue_cap"].is_null() && engine["waiting_by_reason"]["grammar"].is_null();
    assert!(missing, "vLLM 0.25 has neither: {engine}");
    // 20.26 GiB for 165 936 tokens; Llama-3.1-8B takes 128 KiB a token: 2 · 32 layers · 8 heads · 128 · 2 bytes.
    let bytes = engine["kv"]["bytes_per_token"].as_f64().unwrap();
    assert!((bytes / 131_072.0 - 1.0).abs() < 0.001, "{bytes}");
}
