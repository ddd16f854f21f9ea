//! The command line: exit codes and words.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

use std::process::{Command, Output, Stdio};

fn run(args: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_warptop"))
        .args(args)
        .env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (status.code().unwrap(), text(stdout), text(stderr))
}

/// Checks the exit code, that nothing went to standard output, and that the message holds each word.
fn refused(args: &[&str], code: i32, words: &[&str]) {
    let (got, stdout, stderr) = run(args);
    assert_eq!((got, stdout.as_str()), (code, ""), "{args:?}: {stderr}");
    for word in words {
        assert!(stderr.contains(word), "{args:?}: no '{word}' in: {stderr}");
    }
}

#[test]
fn wrong_use_is_2_and_says_what_is_allowed() {
    for interval in ["99ms", "11s", "0s", "-1s", "5", "fast", "", "1e9h", "NaNs", "100"] {
        refused(&[&format!("--interval={interval}")], 2, &["--interval", "100ms to 10s"]);
    }
    for time in ["99ms", "61s", "5", ""] {
        refused(&[&format!("--engine-interval={time}")], 2, &["--engine-interval", "100ms to 60s"]);
        refused(&["snapshot", "--json", &format!("--engine-timeout={time}")], 2, &["--engine-timeout", "100ms to 60s"]);
    }
    refused(&["--frobnicate"], 2, &["--frobnicate"]);
    refused(&["dance"], 2, &["dance"]);
    refused(&["--color", "mauve"], 2, &["auto", "always", "never"]);
    refused(&["record"], 2, &["--output"]);
    refused(&["record", "-o", "x", "--duration", "5"], 2, &["ms, s, min or h"]);
    refused(
        &["record", "-o", "x", "--duration", &format!("{}h", "9".repeat(400))],
        2,
        &["give a time from 0 to 100 years"],
    );
    refused(&["record", "-o", "x", "--duration", "1e9h"], 2, &["ms, s, min or h"]);
}

#[test]
fn words_that_cannot_be_written_change_no_exit_code() {
    let home = tempfile::tempdir().unwrap();
    for (args, code) in [
        (&["probe", "fake", "--yes", "--no-discover", "--seconds", "0.1", "--json"][..], 0),
        (&["probe", "show", "no-such-run"], 1),
        (&["replay", "no-such-file"], 1),
        (&["--frobnicate"], 2),
        (&["probe", "fake"], 2),
    ] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_warptop"));
        command.args(args).env("XDG_STATE_HOME", home.path()).stdin(Stdio::null()).stderr(full);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}");
        let json = serde_json::from_slice::<serde_json::Value>(&output.stdout);
        assert_eq!(json.is_ok(), code == 0, "{args:?}");
    }
}

#[test]
fn a_reader_that_has_read_enough_is_no_error() {
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_warptop"));
    command.args(["probe", "fake", "--yes", "--no-discover", "--seconds", "0.1"]).env("XDG_STATE_HOME", home.path());
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop((child.stdout.take(), child.stderr.take()));
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn an_engine_url_that_cannot_be_asked_is_2_and_keeps_its_secrets() {
    let words = "write --engine http://HOST:PORT";
    for url in
        ["ftp://x", "foo:bar", "", "8000", "http://", "ftp://ann:hunter2@x/?key=hunter2", "http://ann:hunter2@x:y"]
    {
        for command in [&["snapshot", "--json"][..], &["record", "-o", "x"], &["probe", "fake", "--yes"], &[]] {
            let args = [command, &["--no-discover", "--engine", "127.0.0.1:1", "--engine", url]].concat();
            let (code, stdout, stderr) = run(&args);
            assert_eq!((code, stdout.as_str()), (2, ""), "{args:?}: {stderr}");
            assert!(stderr.contains(words) && !stderr.contains("hunter2") && !stderr.contains("ann"), "{stderr}");
        }
    }
    assert!(!std::path::Path::new("x").exists(), "nothing was begun");
}

#[test]
fn a_recording_is_not_read_from_the_machine() {
    let recording = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/recordings/demo.jsonl.gz");
    refused(&["--engine", "http://127.0.0.1:1", "demo"], 2, &["--engine", "leave it out"]);
    refused(&["--interval", "1s", "replay", "x"], 2, &["--interval", "leave it out"]);
    for option in ["--engine-interval", "--engine-timeout", "--interval"] {
        refused(&["snapshot", "--json", "--replay", recording, option, "1s"], 2, &[option, "leave it out"]);
        refused(&["demo", option, "1s"], 2, &[option]);
        assert!(!run(&["demo", "--help"]).1.contains(option) && run(&["record", "--help"]).1.contains(option));
    }
}

#[test]
fn no_terminal_is_2_and_points_to_the_snapshot() {
    refused(&[], 2, &["standard output is not a terminal", "warptop snapshot --json"]);
    refused(&["demo"], 2, &["standard output is not a terminal", "warptop snapshot --json"]);
}

#[test]
fn a_recording_that_is_none_is_1() {
    refused(&["replay", "/no/such/file"], 1, &["/no/such/file", "No such file"]);
    refused(&["replay", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")], 1, &["Cargo.toml"]);
    // Nothing comes through the pipe.
    refused(&["replay", "-"], 1, &["standard input"]);
}

/// The numbers of a reading of the demo.
fn demo(args: &[&str]) -> serde_json::Value {
    let recording = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/recordings/demo.jsonl.gz");
    let (code, stdout, stderr) = run(&[&["snapshot", "--json", "--replay", recording], args].concat());
    assert_eq!((code, stderr.as_str()), (0, ""));
    serde_json::from_str(&stdout).unwrap()
}

#[test]
fn a_snapshot_reads_a_recording_at_a_moment() {
    let reading = demo(&["--at", "52", "--window", "10"]);
    assert_eq!((&reading["schema"], &reading["mode"]), (&"warptop.snapshot/1".into(), &"replay".into()));
    assert_eq!(reading["window_s"], 10.0);
    let busy = reading["gpus"][0]["sm_active_pct"].as_f64().unwrap();
    assert!(busy > 1.0 && busy <= 100.0, "{busy}");
    assert!(demo(&[])["unix_ms"].as_u64() > reading["unix_ms"].as_u64(), "without --at the end");
}

#[test]
fn a_snapshot_of_this_machine_says_what_is_missing() {
    let (code, stdout, stderr) = run(&["snapshot", "--json", "--no-discover"]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    let reading: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(reading["mode"], "live");
    assert!(reading["host"]["pgmajfault_per_s"].is_number(), "{reading}");
    let row = reading["missing"].as_array().unwrap().iter().find(|row| row["key"] == "engines").unwrap();
    let words = "no engine named, and the search is off (--no-discover)";
    assert_eq!((&row["why"], &row["detail"]), (&"unsupported".into(), &words.into()), "it never looked");
}

#[test]
fn a_snapshot_that_cannot_be_is_refused() {
    let recording = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/recordings/demo.jsonl.gz");
    refused(&["snapshot"], 2, &["--json"]);
    refused(&["snapshot", "--json", "--at", "5"], 2, &["--replay"]);
    refused(&["snapshot", "--json", "--replay", recording, "--at", "999999"], 2, &["ends after", "--at"]);
    for seconds in ["-1", "NaN", "inf", "1e300", "soon"] {
        refused(&["snapshot", "--json", "--replay", recording, &format!("--at={seconds}")], 2, &["--at"]);
    }
    refused(&["snapshot", "--json", "--replay", "/no/such/file"], 1, &["/no/such/file"]);
}

#[test]
fn help_states_the_memory_bound_and_the_exit_codes() {
    let (code, help, _) = run(&["--help"]);
    assert_eq!(code, 0);
    for word in ["MiB for 8 and 8", "Exit codes", "100ms to 10s", "demo", "replay", "record", "snapshot"] {
        assert!(help.contains(word), "{word}: {help}");
    }
    assert!(!help.contains("test-panic"));
    let (code, version, _) = run(&["--version"]);
    assert_eq!((code, version.trim()), (0, concat!("warptop ", env!("CARGO_PKG_VERSION"))));
}

#[test]
fn a_recorder_says_nothing_beside_its_pipe() {
    // The terminal it would write to shows the screen that plays the recording.
    let (code, packed, stderr) = run(&["record", "--no-discover", "--duration", "300ms", "-o", "-"]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(!packed.is_empty());
}

#[test]
fn a_recording_of_this_machine_holds_this_machine() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("here.jsonl.gz");
    let args = ["record", "--no-discover", "--duration", "1200ms", "-o", file.to_str().unwrap()];
    let (code, stdout, stderr) = run(&args);
    assert_eq!((code, stdout.as_str()), (0, ""), "{stderr}");
    assert!(stderr.contains("recorded"), "{stderr}");
    let reader = warptop::sampler::replay::Input::File(file.clone()).open().unwrap();
    assert!(reader.into_iter().any(|batch| batch.source == warptop::model::SourceId::Host));
    refused(&args, 1, &["exists already", "another name"]);
}

#[test]
fn a_recording_notes_what_the_diagnosis_says_and_a_replay_judges_anew() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("down.jsonl.gz");
    let engine = ["--no-discover", "--engine", "http://127.0.0.1:1"];
    let (code, _, stderr) = run(&[&["record", "--duration", "3s", "-o", file.to_str().unwrap()], &engine[..]].concat());
    assert_eq!(code, 0, "{stderr}");
    let reader = warptop::sampler::replay::Input::File(file).open().unwrap();
    let store = warptop::store::Store::new(warptop::store::Retention::HOUR);
    let mut events = Vec::new();
    for batch in reader.into_iter().filter(|batch| batch.source == warptop::model::SourceId::Diagnosis) {
        store.push(&batch);
        events.extend(
            batch.events.into_iter().map(|event| (event.cause.to_string(), event.level.to_string(), event.edge)),
        );
    }
    let begins = warptop::model::EventEdge::Begin;
    assert!(events.contains(&("down".to_owned(), "act".to_owned(), begins)), "{events:?}");
    let data = store.read();
    assert_eq!((data.sources().count(), data.oldest()), (0, None), "the store passes them over");
}

#[test]
fn a_snapshot_says_what_is_wrong_with_an_engine() {
    let args = ["snapshot", "--json", "--no-discover", "--engine", "http://ann:hunter2@127.0.0.1:1"];
    let (code, stdout, stderr) = run(&args);
    assert_eq!((code, stderr.as_str()), (0, ""));
    let reading: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    let engine = &reading["engines"][0];
    assert_eq!(engine["state"], "unreachable");
    assert!(engine["state_why"].as_str().unwrap().contains("connection refused"), "{engine}");
    assert!(!stdout.contains("hunter2"), "{stdout}");
}

#[test]
fn a_snapshot_says_what_it_left_out_of_a_recording() {
    let folder = tempfile::tempdir().unwrap();
    let header = r#"{"format":"warptop.recording","version":1}"#;
    let batch = |t: u64| format!(r#"{{"t":{t},"src":"nvml","valid_ms":1500,"s":{{"gpu0":{{"temp_c":40}}}}}}"#);
    let write = |name: &str, lines: &[&str]| {
        let file = folder.path().join(name).to_str().unwrap().to_owned();
        std::fs::write(&file, lines.join("\n") + "\n").unwrap();
        file
    };
    let damaged = write("damaged", &[header, "{", "]"]);
    refused(&["snapshot", "--json", "--replay", &damaged], 1, &["nothing", "2 damaged or unknown lines"]);
    let empty = write("empty", &[header]);
    refused(&["snapshot", "--json", "--replay", &empty], 1, &["nothing was recorded"]);
    let disordered = write("disordered", &[header, &batch(900_000), &batch(800_000)]);
    let (code, _, stderr) = run(&["snapshot", "--json", "--replay", &disordered]);
    assert!(code == 0 && stderr.contains("1 value"), "{stderr}");
}

/// Fault: host: no thread can be started (`ulimit -u`, `-v` or `-d`, `RUST_MIN_STACK`)
/// Seen: `can be started`, with the limits to raise
/// Works: nothing: the program ends at once, with the terminal as it was
/// Recovers: with the next start
#[test]
fn without_threads_the_words_say_which_limit() {
    let Output { status, stderr, .. } = Command::new(env!("CARGO_BIN_EXE_warptop"))
        .args(["record", "-o", "-", "--duration", "1s"])
        .env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR"))
        .env("RUST_MIN_STACK", "99999999999999")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&stderr);
    assert_eq!(status.code(), Some(1), "{words}");
    assert!(words.contains("can be started") && words.contains("ulimit -u, -v and -d"), "{words}");
    assert!(!words.contains("panicked"), "{words}");
}

#[test]
fn standard_output_by_another_name_may_be_a_file() {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("by-another-name.jsonl.gz");
    let status = Command::new(env!("CARGO_BIN_EXE_warptop"))
        .args(["record", "-o", "/dev/stdout", "--duration", "300ms", "--no-discover"])
        .env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR"))
        .stdin(Stdio::null())
        .stdout(std::fs::File::create(&path).unwrap())
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(0));
    let (code, _, words) = run(&["snapshot", "--json", "--replay", path.to_str().unwrap()]);
    assert_eq!(code, 0, "{words}");
}
