//! `warptop check`: verdicts on recordings whose cause is known, and their exit codes.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::process::{Command, Stdio};

use serde_json::Value;

/// Exit code, standard output and standard error.
fn check(args: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_warptop"));
    command.env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR"));
    let output = command.arg("check").args(args).stdin(Stdio::null()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn recording(name: &str) -> String {
    format!("{}/assets/recordings/diagnosis/{name}.jsonl.gz", env!("CARGO_MANIFEST_DIR"))
}

/// Seconds from the start of a recording to the end of one of its phases.
fn end_of(name: &str, phase: &str) -> String {
    use std::io::Read as _;
    let labels = std::fs::read_to_string(recording(name).replace(".jsonl.gz", ".labels.json")).unwrap();
    let labels: Value = serde_json::from_str(&labels).unwrap();
    let phase = labels.as_array().unwrap().iter().find(|label| label["phase"] == phase).unwrap();
    let mut text = String::new();
    let file = std::fs::File::open(recording(name)).unwrap();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
    let first: Value = serde_json::from_str(text.lines().nth(1).unwrap()).unwrap();
    format!("{}", (phase["to_ms"].as_u64().unwrap() - first["t"].as_u64().unwrap()) as f64 / 1000.0)
}

/// The verdict as JSON, which has to say the exit code too.
fn json(name: &str, phase: &str, more: &[&str]) -> (i32, Value) {
    let (file, at) = (recording(name), end_of(name, phase));
    let (code, stdout, stderr) = check(&[&["--json", "--replay", &file, "--at", &at], more].concat());
    assert_eq!(stderr, "");
    let document: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((&document["schema"], &document["exit_code"]), (&"warptop.check/1".into(), &code.into()));
    (code, document)
}

#[test]
fn a_full_kv_cache_asks_for_action() {
    let (code, document) = json("kvsmall", "kvsmall", &[]);
    assert_eq!((code, &document["verdict"]), (5, &"act".into()));
    let first = &document["diagnosis"][0];
    assert_eq!((&first["cause"], &first["level"]), (&"kv-capacity".into(), &"act".into()));
    assert!(document["events"].as_array().unwrap().iter().any(|event| event["cause"] == "kv-capacity"), "{document}");
    let (file, at) = (recording("kvsmall"), end_of("kvsmall", "kvsmall"));
    let (code, text, _) = check(&["--replay", &file, "--at", &at]);
    assert_eq!(code, 5);
    for line in ["ACT: ", "Clients of ", "Why: ", "Fix: "] {
        assert!(text.lines().any(|found| found.starts_with(line)), "no line '{line}' in:\n{text}");
    }
    assert!(text.lines().all(|line| line.ends_with('.')), "{text}");
}

#[test]
fn decode_at_the_memory_s_limit_asks_for_nothing() {
    let (code, document) = json("main", "decode8", &["--for", "10s"]);
    assert_eq!((code, &document["verdict"]), (0, &"ok".into()), "{document}");
    assert_eq!((&document["slo"], &document["earlier"]), (&Value::Array(Vec::new()), &Value::Array(Vec::new())));
}

#[test]
fn a_missed_objective_asks_for_action_and_one_that_is_kept_does_not() {
    let (code, document) = json("main", "decode8", &["--for", "10s", "--slo", "itl_p99=1ms,ttft_p50=60s"]);
    assert_eq!(code, 5);
    let rows = document["slo"].as_array().unwrap();
    let told: Vec<_> = rows.iter().map(|row| (row["objective"].as_str().unwrap(), row["missed"].as_bool())).collect();
    assert_eq!(told, [("itl_p99=1ms", Some(true)), ("ttft_p50=60s", Some(false))]);
    assert!(rows[0]["seen"]["value_s"].as_f64() > Some(0.001), "{document}");
    assert_eq!(json("main", "decode8", &["--for", "10s", "--slo", "itl_p99=1s"]).0, 0);
    let idle = json("main", "idle", &["--for", "3s", "--slo", "itl_p99=1ms"]);
    assert_eq!((idle.0, &idle.1["slo"][0]["missed"]), (0, &Value::Null), "nobody waits while nothing runs");
}

#[test]
fn what_is_over_counts_when_it_held_for_half_of_the_time() {
    let (file, end) = (recording("seqs4"), end_of("seqs4", "seqs4").parse::<f64>().unwrap());
    let document = |length: &str| {
        let (_, text, _) = check(&["--json", "--replay", &file, "--at", &(end + 9.0).to_string(), "--for", length]);
        serde_json::from_str::<Value>(&text).unwrap()
    };
    let (short, long) = (document("3s"), document("20s"));
    let act = |document: &Value| document["diagnosis"].as_array().unwrap().iter().any(|row| row["level"] == "act");
    assert!(!act(&short) && !act(&long), "{short}");
    assert_eq!((&short["verdict"], &long["verdict"]), (&"ok".into(), &"act".into()), "{long}");
    assert_eq!(long["earlier"][0]["cause"], "admission-limit");
}

#[test]
fn what_cannot_be_judged_is_neither_well_nor_ill() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("empty").to_str().unwrap().to_owned();
    std::fs::write(&file, "{\"format\":\"warptop.recording\",\"version\":1}\n").unwrap();
    let (code, stdout, stderr) = check(&["--json", "--replay", &file]);
    assert_eq!((code, stderr.contains("nothing was recorded")), (6, true), "{stderr}");
    let document: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((&document["verdict"], &document["meaning"]), (&"unknown".into(), &"nothing could be judged".into()));
    assert!(check(&["--replay", &file]).1.starts_with("UNKNOWN: "));
}

#[test]
fn an_engine_that_is_down_asks_for_action() {
    let args = ["--json", "--for", "5s", "--no-discover", "--engine", "http://127.0.0.1:1"];
    let (code, stdout, stderr) = check(&args);
    assert_eq!((code, stderr.as_str()), (5, ""), "{stdout}");
    let document: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(document["diagnosis"][0]["cause"], "down");
}

#[test]
fn a_check_that_cannot_be_is_refused() {
    for (args, words) in [
        (&["--for", "5h"][..], "1s to 1h"),
        (&["--at", "5"], "--replay"),
        (&["--slo", "ttft=5s"], "write ttft_p99=500ms"),
        (&["--replay", "x", "--engine", "http://127.0.0.1:1"], "leave it out"),
        (&["--replay", &recording("kvsmall"), "--at", "9999"], "ends after"),
    ] {
        let (code, stdout, stderr) = check(args);
        assert!(code == 2 && stdout.is_empty() && stderr.contains(words), "{args:?}: {code} {stderr}");
    }
}
