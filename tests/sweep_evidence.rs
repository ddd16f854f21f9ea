//! What docs/sweep.md says was measured is what docs/evidence/sweep holds: the report of a whole sweep on an H200, from which a
//! table is made, and tables that benches and tests/compare printed.
//!
//! Written by `UPDATE_TIDY=1 cargo test --test sweep_evidence`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use warptop::diagnosis::Slo;
use warptop::load::level::{Latency, Quantile};
use warptop::load::{Level, level};
use warptop::probe::page::utc;
use warptop::probe::report::{Ending, Report, SCHEMA};
use warptop::runtime::snapshot_of;
use warptop::sampler::replay::Input as Recorded;

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn evidence(name: &str) -> String {
    fs::read_to_string(path("docs/evidence/sweep").join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// What stands between the marks of each block.
fn blocks() -> [(&'static str, String); 6] {
    [
        ("a full sweep of vLLM on an H200", sweep()),
        ("stamps against a scripted server", evidence("stamps.md")),
        ("the classic example", evidence("classic.md")),
        ("capacity of the client", evidence("capacity.md")),
        ("three clients on a CPU server", evidence("beside-cpu.md")),
        ("three clients on an H200", evidence("beside-h200.md")),
    ]
}

fn report() -> Report {
    serde_json::from_str(&evidence("h200-vllm-0.25.1.json")).unwrap()
}

/// The sweep of the H200, level by level.
fn sweep() -> String {
    let report = report();
    let knee = report.knee.as_ref().unwrap();
    let mut out = String::new();
    let _ = writeln!(
        out,
        "{}, one H200, vLLM 0.25.1 with at most 32 sequences, random weights in the shape of Llama-3.1-8B, prompts of {} tokens and \
         outputs of {} (`tests/h200/sweep.sh WARPTOP OUT sweep`; report and recording are in docs/evidence/sweep; `warptop replay` plays the latter):\n",
        utc(report.started_unix_ms),
        input(&report, "prompt"),
        input(&report, "output"),
    );
    out.push_str(
        "| users | n | TTFT P50, ms | TTFT P99, ms | E2E P50, ms | tokens/s | SM, % | DRAM, % | SM clock, % | waiting | held back by |\n\
         | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |\n",
    );
    for level in &report.levels {
        row(&mut out, level);
    }
    let _ = writeln!(
        out,
        "\nThe knee is at {:.0} users, between {:.0} and {:.0}: {}. The brackets hold 95 % intervals; a TTFT P99 of fewer than 368 \
         requests is none. SMs are full from the knee on; the queue begins above the 32 sequences that the server admits, where throughput is flat \
         already. What held 48 and 64 users back is named as the version that measured it did: the diagnosis of today calls it request limit \
         (`tests/level.rs`, on the recording of this run). With 32 and 48 users the client has 3 to 6 requests more in flight than the server counts: \
         it counts what its scheduler has, not what its front end still reads.",
        knee.at, knee.lo, knee.hi, knee.words
    );
    out.push_str("\n![The pane of this sweep](../screenshots/pane-sweep.png)\n");
    out
}

fn input(report: &Report, name: &str) -> String {
    report.inputs.iter().find(|(input, _)| *input == name).map(|(_, value)| value.to_string()).unwrap()
}

fn row(out: &mut String, level: &Level) {
    let level::Load::Users(users) = level.load else { panic!("{:?}", level.load) };
    let (gpu, server) = (&level.gpus[0], level.server.as_ref().unwrap());
    let clock = gpu.sm_clock_mhz.unwrap() / gpu.sm_clock_max_mhz.unwrap() * 100.0;
    let _ = writeln!(
        out,
        "| {users} | {} | {} | {} | {} | {:.0} | {:.0} | {:.0} | {clock:.0} | {:.1} | {} |",
        level.e2e_s.n,
        ms(&level.ttft_s, |latency| latency.p50),
        ms(&level.ttft_s, |latency| latency.p99),
        ms(&level.e2e_s, |latency| latency.p50),
        level.output_tokens_per_s.unwrap().value,
        gpu.sm_active_pct.unwrap(),
        gpu.dram_active_pct.unwrap(),
        server.waiting.unwrap(),
        level.bottleneck.as_ref().unwrap().word,
    );
}

fn ms(latency: &Latency, of: impl Fn(&Latency) -> Option<Quantile>) -> String {
    match of(latency).filter(|quantile| quantile.enough) {
        Some(Quantile { value, lo: Some(lo), hi: Some(hi), .. }) => {
            format!("{:.0} ({:.0}–{:.0})", value * 1e3, lo * 1e3, hi * 1e3)
        }
        _ => "–".to_owned(),
    }
}

#[test]
fn what_the_document_says_was_measured_is_what_is_kept() {
    let mut doc = fs::read_to_string(path("docs/sweep.md")).unwrap();
    for (name, text) in blocks() {
        let (start, end) = (format!("<!-- measured: {name} -->\n"), format!("<!-- end of measured: {name} -->"));
        let from = doc.find(&start).unwrap_or_else(|| panic!("no block '{name}'")) + start.len();
        let to = from + doc[from..].find(&end).unwrap();
        if std::env::var_os("UPDATE_TIDY").is_some() {
            doc.replace_range(from..to, &text);
        } else {
            assert_eq!(
                &doc[from..to],
                text,
                "'{name}' is not what is kept: UPDATE_TIDY=1 cargo test --test sweep_evidence"
            );
        }
    }
    if std::env::var_os("UPDATE_TIDY").is_some() {
        fs::write(path("docs/sweep.md"), doc).unwrap();
    }
}

#[test]
fn the_knee_of_the_kept_sweep_is_where_its_queue_begins_and_its_sms_are_full() {
    let report = report();
    assert_eq!((report.schema.as_str(), report.ending), (SCHEMA, Ending::Done));
    let knee = report.knee.as_ref().unwrap();
    let users = |level: &Level| match level.load {
        level::Load::Users(users) => f64::from(users),
        _ => panic!("{:?}", level.load),
    };
    let waiting = |level: &Level| level.server.as_ref().unwrap().waiting.unwrap();
    let sm = |level: &Level| level.gpus[0].sm_active_pct.unwrap();
    for level in &report.levels {
        if users(level) < knee.lo {
            assert!(waiting(level) < 1.0 && sm(level) < 80.0, "{} users", users(level));
        }
        if users(level) >= knee.hi {
            assert!(sm(level) > 80.0, "{} users", users(level));
        }
    }
    assert!(report.levels.iter().filter(|level| users(level) > 32.0).all(|level| waiting(level) > 5.0));
}

#[test]
fn the_recording_of_the_kept_sweep_shows_what_its_report_says_of_the_last_level() {
    /// When the recording began, ms since the Unix epoch: its first line.
    const BEGAN: u64 = 1_796_051_037_979;
    let report = report();
    let level = report.levels.last().unwrap();
    let at = Duration::from_millis(level.to_unix_ms - BEGAN);
    let window = Duration::from_millis(level.to_unix_ms - level.from_unix_ms);
    let file = path("docs/evidence/sweep/h200-vllm-0.25.1.jsonl.gz");
    let (reading, problems) = snapshot_of(&Recorded::File(file), Some(at), Some(window), &Slo::default()).unwrap();
    assert_eq!(problems, [""; 0]);
    let json = serde_json::to_value(&reading).unwrap();
    let sm = json["gpus"][0]["sm_active_pct"].as_f64().unwrap();
    assert!((sm - level.gpus[0].sm_active_pct.unwrap()).abs() < 1.0, "{sm}");
    let tokens = json["engines"][0]["generation_tokens_per_s"].as_f64().unwrap();
    let client = level.output_tokens_per_s.unwrap().value;
    assert!((tokens / client - 1.0).abs() < 0.05, "{tokens} {client}");
}
