//! A stored report of the probe of device memory, all the way: through the driver's names of GPUs into a reading, and
//! into a recording and what is read from that.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

#[path = "fake-nvml/mod.rs"]
mod fake_nvml;

use serde_json::{Value, json};
use warptop::diagnosis::Slo;
use warptop::model::{Clock, SystemClock};
use warptop::probe::files::Files;
use warptop::probe::report::Report;
use warptop::recording::Output;
use warptop::runtime::{Inputs, RecordPlan, record, snapshot_now, snapshot_of};
use warptop::sampler::Options;
use warptop::sampler::replay::Input as Recorded;

const FAST: Duration = Duration::from_millis(100);

/// A report of a good run on this GPU that found `triad` GB/s.
fn report(uuid: &str, run: &str, triad: f64) -> Report {
    let figure = json!({
        "id": "triad", "label": "Triad", "unit": "GB/s", "value": triad, "n": 5, "lo": triad, "hi": triad, "better": "higher",
        "datasheet": null, "pct_of_datasheet": null, "reference": null, "reference_source": null,
        "pct_of_reference": null, "baseline": null, "pct_of_baseline": null,
    });
    let document = json!({
        "schema": "warptop.probe/1", "run": run, "probe": "hbm", "warptop": env!("CARGO_PKG_VERSION"), "host": "elsewhere",
        "target": {"gpus": [{"index": 5, "uuid": uuid, "name": "NVIDIA H200"}]},
        "started_unix_ms": 1_795_960_000_000_u64, "ended_unix_ms": 1_795_960_010_000_u64,
        "ending": "done", "why": null, "forced": false, "duty_pct": 100,
        "inputs": {"mib": 512.0, "seconds": 0.3},
        "environment": {
            "driver": "570.86.15", "cuda_driver": null, "kernel": null, "gpus": [], "cpu_busy_before_pct": null,
            "company": "", "facts": {},
        },
        "results": [figure], "checks": [], "notes": [],
        "verdict": {"level": "ok", "summary": "", "advice": []}, "samples": [], "samples_left_out": 0,
    });
    serde_json::from_value(document).unwrap()
}

/// What a reading says of each of its GPUs.
fn gpus(reading: &impl serde::Serialize) -> Vec<Value> {
    serde_json::to_value(reading).unwrap()["gpus"].as_array().unwrap().clone()
}

/// GPU 0 has a ceiling and GPU 1 has none, since it was never measured.
fn hold(gpus: &[Value]) {
    let [measured, never] = gpus else { panic!("{gpus:?}") };
    assert!(never["dram_ceiling"].is_null() && never["dram_active_of_ceiling_pct"].is_null(), "{never}");
    let ceiling = &measured["dram_ceiling"];
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{value} in {measured}"));
    assert!((number(&ceiling["bytes_per_s"]) / 4.2e12 - 1.0).abs() < 1e-6, "{ceiling}");
    assert_eq!((&ceiling["figure"], &ceiling["run"]), (&json!("triad"), &json!("20261130-0002-hbm-1")));
    assert!(ceiling["doubts"].as_str().unwrap().contains("driver 570.86.15 then"), "{ceiling}");
    let moved = number(&measured["dram_active_pct"]) * number(&measured["dram_peak_bytes_per_s"]);
    let share = number(&measured["dram_active_of_ceiling_pct"]);
    assert!((share - moved / 4.2e12).abs() < 0.01 * share && share > 0.0, "{measured}");
}

#[test]
fn a_stored_report_is_the_ceiling_of_that_very_gpu_live_and_recorded() {
    let (folder, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let library = fake_nvml::compile(folder.path(), &["GPUS=2"]);
    let files = Files::at(home.path());
    for (uuid, run, triad) in [
        ("GPU-fake-0", "20261130-0001", 4_100.0),
        ("GPU-fake-0", "20261130-0002", 4_200.0),
        ("GPU-elsewhere", "20261130-0003", 9_000.0),
    ] {
        // The names of files tell which probe it was.
        let mut report = report(uuid, run, triad);
        report.started_unix_ms += u64::from(triad > 4_150.0);
        files.keep(&Report { run: format!("{run}-hbm-1"), ..report }).unwrap();
    }
    let options = Options { nvml_library: Some(library), ..Options::default() };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
    hold(&gpus(&snapshot_now(&clock, &options, FAST, None, Some(&files), &Slo::default())));
    let without = gpus(&snapshot_now(&clock, &options, FAST, None, None, &Slo::default()));
    assert!(without[0]["dram_ceiling"].is_null(), "{without:?}");

    let path = home.path().join("recording.jsonl.gz");
    let (_stay, events) = channel();
    let inputs = Inputs { clock, events, suspend: || Ok(()), resume: || Ok(()) };
    let second = Some(Duration::from_millis(1_500));
    let (output, slo) = (Output::File(path.clone()), Slo::default());
    let plan = RecordPlan {
        output: &output,
        duration: second,
        interval: FAST,
        files: Some(&files),
        slo: &slo,
        waiting: |_| {},
    };
    record(&inputs, &options, &plan).unwrap();
    let (reading, problems) = snapshot_of(&Recorded::File(path), None, None, &Slo::default()).unwrap();
    assert_eq!(problems, [""; 0]);
    hold(&gpus(&reading));
}
