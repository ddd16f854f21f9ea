//! The diagnosis against runs whose cause was injected and written down, second by second.
//!
//! The labels beside the recordings name the causes that are right and within which of the first findings. The tables of
//! docs/diagnosis.md are written here: `UPDATE_TIDY=1 cargo test --test diagnosis`.

#![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use warptop::diagnosis::{Cause, Diagnosis, Severity, Slo, Timeline};
use warptop::model::Time;
use warptop::recording::Reader;
use warptop::sampler::replay::load;
use warptop::store::{Retention, Store};

/// A stretch of a recording whose cause is known.
#[derive(Debug, Deserialize)]
#[expect(clippy::struct_field_names, reason = "the labels call it that")]
struct Phase {
    phase: String,
    injected: String,
    causes: Vec<String>,
    /// The cause is among so many of the first findings.
    within: usize,
    from_ms: u64,
    to_ms: u64,
}

/// From which second of a phase on every second counts.
const SETTLED_MS: u64 = 10_000;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/recordings/diagnosis")
}

/// Every recording with its labels.
fn recordings() -> Vec<(String, Store, Vec<Phase>)> {
    let mut names: Vec<PathBuf> = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.retain(|path| path.to_string_lossy().ends_with(".labels.json"));
    names.sort();
    let read = |labels: PathBuf| {
        let name = labels.file_name().unwrap().to_string_lossy().replace(".labels.json", "");
        let phases = serde_json::from_str(&fs::read_to_string(&labels).unwrap()).unwrap();
        let store = Store::new(Retention::HOUR);
        let file = File::open(folder().join(format!("{name}.jsonl.gz"))).unwrap();
        load(&mut Reader::new(file).unwrap(), &store, None).unwrap();
        (name, store, phases)
    };
    names.into_iter().map(read).collect()
}

/// What was found in one phase.
struct Outcome {
    recording: String,
    phase: Phase,
    at_end: Diagnosis,
    /// First findings of each second from the tenth on.
    seconds: Vec<Vec<Cause>>,
    /// How often the first finding changed in those seconds.
    changes: usize,
    /// Seconds from the start of the phase to the first that was right.
    up_after_s: Option<u64>,
}

impl Phase {
    fn is_right(&self, causes: &[Cause]) -> bool {
        causes.iter().take(self.within).any(|cause| self.causes.iter().any(|right| right == cause.id()))
    }
}

impl Outcome {
    fn is_right_at_end(&self) -> bool {
        let causes: Vec<Cause> = self.at_end.findings.iter().map(|finding| finding.cause).collect();
        self.phase.is_right(&causes)
    }

    fn right_seconds(&self) -> usize {
        self.seconds.iter().filter(|causes| self.phase.is_right(causes)).count()
    }

    /// Whether nothing may ask for action.
    fn is_harmless(&self) -> bool {
        ["none", "demand-limited", "memory-bound"].contains(&&*self.phase.injected)
    }
}

fn outcomes() -> Vec<Outcome> {
    let mut out = Vec::new();
    for (recording, store, phases) in recordings() {
        let data = store.read();
        for phase in phases {
            let mut timeline = Timeline::new(Slo::default());
            let (mut seconds, mut changes, mut up_after_s) = (Vec::new(), 0, None);
            let mut at = phase.from_ms;
            while at <= phase.to_ms {
                timeline.follow(&data, Time(at));
                let causes: Vec<Cause> = timeline.diagnosis().findings.iter().map(|f| f.cause).collect();
                if up_after_s.is_none() && phase.is_right(&causes) {
                    up_after_s = Some((at - phase.from_ms) / 1000);
                }
                if at >= phase.from_ms + SETTLED_MS {
                    let first = |causes: &Vec<Cause>| causes.first().copied();
                    changes += usize::from(seconds.last().is_some_and(|last| first(last) != first(&causes)));
                    seconds.push(causes);
                }
                at += 1000;
            }
            timeline.follow(&data, Time(phase.to_ms));
            let at_end = timeline.diagnosis().clone();
            out.push(Outcome { recording: recording.clone(), phase, at_end, seconds, changes, up_after_s });
        }
    }
    out
}

/// What was found in each phase, and for each injected cause what stood in its place.
fn accuracy(outcomes: &[Outcome]) -> String {
    let mut table = "| recording | phase | injected | first at its end | level | right seconds | up after |\n\
                     | --- | --- | --- | --- | --- | ---: | ---: |\n"
        .to_owned();
    for o in outcomes {
        let first = o.at_end.first();
        let found = first.map_or("nothing", |finding| finding.cause.id());
        let mark = if o.is_right_at_end() { "" } else { " (wrong)" };
        let seconds = match o.seconds.len() {
            0 => "–".to_owned(),
            all => format!("{} of {all}", o.right_seconds()),
        };
        let up = o.up_after_s.map_or_else(|| "never".to_owned(), |s| format!("{s} s"));
        let level = first.map_or("–", |finding| finding.severity.name());
        let (phase, injected) = (&o.phase.phase, &o.phase.injected);
        let _ = writeln!(
            table,
            "| {} | {phase} | {injected} | `{found}`{mark} | {level} | {seconds} | {up} |",
            o.recording
        );
    }
    let mut confused: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for o in outcomes {
        let found = o.at_end.first().map_or("nothing", |finding| finding.cause.id());
        *confused.entry((&o.phase.injected, found)).or_default() += 1;
    }
    table.push_str("\nFirst at the end of a phase, by what was injected:\n\n| injected | found first | phases |\n| --- | --- | ---: |\n");
    for ((injected, found), phases) in confused {
        let _ = writeln!(table, "| {injected} | `{found}` | {phases} |");
    }
    let right = outcomes.iter().filter(|o| o.is_right_at_end()).count();
    let (seconds, all) = outcomes.iter().fold((0, 0), |(a, b), o| (a + o.right_seconds(), b + o.seconds.len()));
    let most = outcomes.iter().map(|o| o.changes).max().unwrap_or(0);
    let _ = writeln!(
        table,
        "\nRight at the end: {right} of {} phases; {seconds} of {all} seconds ({:.1} %). The first finding changes at most {most} times in the \
         seconds of a phase that count.",
        outcomes.len(),
        seconds as f64 / all as f64 * 100.0
    );
    table
}

/// Compares what the document says of the accuracy with what was measured, or writes it anew.
fn hold(measured: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/diagnosis.md");
    let text = fs::read_to_string(&path).unwrap();
    let (start, end) = ("<!-- accuracy: written by tests/diagnosis.rs -->\n", "<!-- end of accuracy -->");
    let (before, rest) = text.split_once(start).unwrap();
    let (held, after) = rest.split_once(end).unwrap();
    if held != measured && std::env::var_os("UPDATE_TIDY").is_some() {
        fs::write(path, [before, start, measured, end, after].concat()).unwrap();
    } else {
        assert_eq!(held, measured, "write it anew: UPDATE_TIDY=1 cargo test --test diagnosis");
    }
}

#[test]
fn injected_causes_are_found() {
    let outcomes = outcomes();
    hold(&accuracy(&outcomes));
    let mut report = String::new();
    for o in &outcomes {
        let ends = o.at_end.findings.iter().map(|f| format!("{}:{}", f.cause.id(), f.severity.name()));
        let ends: Vec<String> = ends.take(4).collect();
        let _ = writeln!(
            report,
            "{} {:12} {:14} {:28} {}/{} s, {} changes: {}",
            if o.is_right_at_end() { "ok  " } else { "MISS" },
            o.recording,
            o.phase.phase,
            o.phase.injected,
            o.right_seconds(),
            o.seconds.len(),
            o.changes,
            ends.join(", ")
        );
    }
    let right = outcomes.iter().filter(|o| o.is_right_at_end()).count();
    let (seconds, all) = outcomes.iter().fold((0, 0), |(a, b), o| (a + o.right_seconds(), b + o.seconds.len()));
    let _ = writeln!(report, "{right} of {} phases, {seconds} of {all} seconds", outcomes.len());
    println!("{report}");
    assert!(right * 100 >= outcomes.len() * 95, "{report}");
    assert!(seconds * 100 >= all * 90, "{report}");
    for o in &outcomes {
        let acts = o.at_end.findings.iter().filter(|f| f.severity == Severity::Act);
        let acts: BTreeMap<_, _> = acts.map(|f| (f.cause, &f.headline.full)).collect();
        assert!(!o.is_harmless() || acts.is_empty(), "{} {}: {acts:?}", o.recording, o.phase.phase);
        assert!(o.changes <= 2, "{} {} changes its mind {} times", o.recording, o.phase.phase, o.changes);
    }
}

/// First finding and its level at a moment of another recording, s from its start.
fn first(recording: &str, second: u64) -> (Cause, Severity) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/recordings").join(recording);
    let store = Store::new(Retention::HOUR);
    let (start, _) = load(&mut Reader::new(File::open(path).unwrap()).unwrap(), &store, None).unwrap();
    let diagnosis = warptop::diagnosis::diagnose(&store.read(), start + second * 1000, &Slo::default());
    diagnosis.first().map(|finding| (finding.cause, finding.severity)).unwrap()
}

#[test]
fn older_recordings_are_judged_too() {
    let file = "h200-vllm-0.25.1.jsonl.gz";
    assert_eq!(first(file, 4), (Cause::Idle, Severity::Ok));
    assert_eq!(first(file, 17), (Cause::MemoryBandwidth, Severity::Ok), "one client");
    assert_eq!(first(file, 29), (Cause::MemoryBandwidth, Severity::Ok), "four clients");
    let long = first(file, 118).0;
    assert!(matches!(long, Cause::Compute | Cause::PowerCap), "prompts of 16,384 tokens: {long:?}");
    assert_eq!(first(file, 170), (Cause::KvCapacity, Severity::Act), "600 clients");
}
