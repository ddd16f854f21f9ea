//! Every figure of `snapshot` against a computation that shares nothing with it: `audit/oracle.py` reads the captured files
//! themselves, the program a recording imported from them.
//!
//! The recording with a crash and a restart is in `audit/crash/` (made by `audit/compose.py`); the others are captures of an
//! H200, audited where they lie beside the checkout. Needs python3; where that is not there, the test says so.

#![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;
use serde_json::Value;
use warptop::diagnosis::Slo;
use warptop::export::snapshot::{Mode, snapshot};
use warptop::model::Time;
use warptop::recording::Reader;
use warptop::store::{Retention, Store, Window};

/// JSON has seven significant digits of a value, which are off by half a unit of the last, as are those of the 32-bit
/// floats that the store keeps.
const ROUNDING: f64 = 6e-7;
/// Moments of each capture, besides those around each turn of a server's life.
const MOMENTS: &str = "50";
/// Figures of a moment that are not `null`, at least.
const FIGURES: usize = 60;

/// What the oracle says of one moment.
#[derive(Deserialize)]
struct Moment {
    /// Unix ms.
    at: u64,
    window_ms: u64,
    /// By JSON pointer, each with how it is compared.
    want: BTreeMap<String, (How, Value)>,
}

#[derive(Clone, Copy, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
enum How {
    /// A text, a truth, or a number up to the rounding of JSON.
    Value,
    /// A number that is rounded to a whole one.
    Whole,
    /// An estimate: a number between two bounds, of which the upper one may be missing.
    Inside,
}

impl How {
    fn holds(self, got: &Value, want: &Value) -> bool {
        let half = if self == Self::Whole { 0.5 } else { 0.0 };
        let off = |want: f64| half + ROUNDING * want.abs();
        match (self, got.as_f64(), want.as_f64()) {
            (Self::Inside, Some(got), _) => {
                let bound = |i: usize| want[i].as_f64();
                bound(0).is_some_and(|low| got >= low - off(low)) && bound(1).is_none_or(|high| got <= high + off(high))
            }
            (Self::Inside, None, _) => false,
            (_, Some(got), Some(want)) => (got - want).abs() <= off(want),
            _ => got == want,
        }
    }
}

/// Whether python3 is there; says so where not.
fn has_python() -> bool {
    let found = Command::new("python3").arg("--version").output().is_ok_and(|out| out.status.success());
    assert!(found || std::env::var_os("CI").is_none(), "the audit needs python3");
    if !found {
        // Not by `eprintln`, which a passing test keeps to itself.
        let _ = std::io::stderr().write_all(b"SKIPPED: the audit of the snapshot's figures; it needs python3\n");
    }
    found
}

fn here() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/audit")
}

fn oracle(capture: &Path) -> Vec<Moment> {
    let out =
        Command::new("python3").arg("-B").arg(here().join("oracle.py")).arg(capture).arg(MOMENTS).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let mut moments: Vec<Moment> = serde_json::from_slice(&out.stdout).unwrap();
    moments.sort_by_key(|moment| moment.at);
    moments
}

/// What the oracle and the program say differently of a capture.
fn differences(capture: &Path) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    let recording = dir.path().join("recording.jsonl.gz");
    let import = Command::new(env!("CARGO_BIN_EXE_xtask")).arg("import").arg(capture).arg(&recording).output().unwrap();
    assert!(import.status.success(), "{}", String::from_utf8_lossy(&import.stderr));
    let mut batches = Reader::new(File::open(&recording).unwrap()).unwrap().peekable();
    let store = Store::of_recording(Retention::HOUR);
    let mut out = Vec::new();
    for moment in oracle(capture) {
        let end = Time(moment.at);
        while let Some(batch) = batches.next_if(|batch| batch.at <= end) {
            store.push(&batch);
        }
        let window = Window::last(end, moment.window_ms);
        let got = serde_json::to_value(snapshot(&store.read(), Mode::Replay, window, &Slo::default())).unwrap();
        let figures = moment.want.values().filter(|(_, want)| !want.is_null()).count();
        assert!(figures >= FIGURES, "only {figures} figures at {}", moment.at);
        for (key, (how, want)) in &moment.want {
            let got = got.pointer(key).unwrap_or(&Value::Null);
            if !how.holds(got, want) {
                out.push(format!("{} ms, {} ms before: {key} is {got}, not {want}", moment.at, moment.window_ms));
            }
        }
    }
    out
}

#[test]
fn every_figure_around_a_crash_and_a_restart_is_right() {
    if has_python() {
        assert_eq!(differences(&here().join("crash")), [""; 0]);
    }
}

/// Captures beside the checkout; none on a machine that has only the repository.
fn captures() -> Vec<PathBuf> {
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/captures");
    let runs = fs::read_dir(all.join("diagnosis-h200")).into_iter().flatten().map(|entry| entry.unwrap().path());
    runs.chain([all.join("h200-vllm-0.25.1")]).filter(|path| path.is_dir()).collect()
}

#[test]
fn every_figure_of_the_captures_is_right() {
    for capture in captures() {
        if has_python() {
            assert_eq!(differences(&capture), [""; 0], "{}", capture.display());
        }
    }
}

/// Enough requests after a restart for quantiles of the newer life alone.
#[test]
fn every_figure_of_a_busy_server_that_crashed_is_right() {
    let Some(busy) = captures().into_iter().find(|path| path.ends_with("main")) else { return };
    if has_python() {
        let out = tempfile::tempdir().unwrap();
        let mut compose = Command::new("python3");
        compose.arg("-B").arg(here().join("compose.py")).arg(busy).arg(out.path()).args(["50", "200", "206"]);
        assert!(compose.status().unwrap().success());
        assert_eq!(differences(out.path()), [""; 0]);
    }
}

#[test]
fn a_figure_that_is_a_little_off_is_found() {
    let of = |how: How, got: Value, want: Value| how.holds(&got, &want);
    assert!(of(How::Value, 1_234.567.into(), 1_234.567_4.into()) && !of(How::Value, 1_234.567.into(), 1_234.57.into()));
    assert!(of(How::Whole, 17.into(), 17.4.into()) && !of(How::Whole, 17.into(), 18.into()));
    assert!(!of(How::Value, Value::Null, 0.into()) && !of(How::Value, 0.into(), Value::Null));
    let bounds = || serde_json::json!([1.0, 2.0]);
    assert!(of(How::Inside, 1.5.into(), bounds()) && !of(How::Inside, 2.1.into(), bounds()));
    assert!(!of(How::Inside, 0.9.into(), bounds()) && !of(How::Inside, Value::Null, bounds()));
    assert!(of(How::Inside, 9.0.into(), serde_json::json!([1.0, null])));
}
