//! What docs/probes.md says was measured is what the kept reports say: docs/evidence/probes holds them, two runs of each
//! probe and PyTorch's figures beside each; docs/evidence/beside.json holds what forced probes did to a serving engine.
//!
//! The tables are written by `UPDATE_TIDY=1 cargo test --test evidence`; tests/h200/keep_evidence.py brings new evidence.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use warptop::probe::page::utc;
use warptop::probe::report::{Ending, Judged, Report, SCHEMA, pct};
use warptop::probe::{self, Better, listed};

/// Largest file and all of them together, bytes.
const MOST: (u64, u64) = (60 << 10, 1 << 20);
/// What stands where nothing was measured yet.
const NOTHING: &str = "Nothing yet.\n";

/// What `tests/h200/torch_reference.py` prints.
#[derive(Deserialize)]
struct Torch {
    torch: String,
    figures: Vec<TorchFigure>,
}

#[derive(Clone, Deserialize)]
struct TorchFigure {
    probe: String,
    id: String,
    unit: String,
    value: f64,
}

/// Both runs of everything.
#[derive(Default)]
struct Evidence {
    reports: BTreeMap<String, Vec<Report>>,
    torch: Vec<TorchFigure>,
    versions: BTreeSet<String>,
}

impl Evidence {
    fn read() -> Self {
        let mut all = Self::default();
        for path in files() {
            let (name, text) = (path.file_name().unwrap().to_str().unwrap(), fs::read_to_string(&path).unwrap());
            if name.starts_with("torch-") {
                let torch: Torch = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
                all.torch.extend(torch.figures);
                all.versions.insert(torch.torch);
            } else {
                let report: Report = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
                all.reports.entry(report.probe.clone()).or_default().push(report);
            }
        }
        all
    }

    /// What PyTorch reached, once for each run.
    fn beside(&self, probe: &str, figure: &str, unit: &str) -> Vec<f64> {
        let id = match (probe, figure) {
            // Of each burst of PyTorch's the products before the power limit takes hold, as in the probe's bursts.
            ("gemm", _) => format!("{figure}_first"),
            // Of its first seconds, of which the probe takes the first 25 ms.
            ("soak", "first" | "loss") => return Vec::new(),
            // Of copies that the host waits for one by one.
            ("p2p", id) if id.starts_with("copy_") => return Vec::new(),
            _ => figure.to_owned(),
        };
        let same = |row: &&TorchFigure| row.probe == probe && row.id == id && row.unit == unit;
        self.torch.iter().filter(same).map(|row| row.value).collect()
    }

    /// The table of docs/probes.md.
    fn table(&self) -> String {
        if self.reports.is_empty() {
            return NOTHING.to_owned();
        }
        let mut out = self.where_and_when();
        out.push_str(
            "| probe | figure | warptop: median (least–most) | again | apart | PyTorch beside | of it | datasheet | of \
             it |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
        );
        // In the order of the pane.
        for probe in listed() {
            for line in self.reports.get(probe.spec.id).map(|runs| self.rows(probe, runs)).unwrap_or_default() {
                out.push_str(&line);
            }
        }
        out
    }

    fn where_and_when(&self) -> String {
        let mut machines: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for probe in listed() {
            for report in self.reports.get(probe.spec.id).into_iter().flatten() {
                let gpus: Vec<_> = report.target.gpus.iter().map(|gpu| gpu.name.as_str()).collect();
                let on = match gpus[..] {
                    [] => "the host".to_owned(),
                    [gpu] => format!("one {gpu}"),
                    [gpu, ..] => format!("{} × {gpu}", gpus.len()),
                };
                let driver = report.environment.driver.as_ref().map(|driver| format!(", driver {driver}"));
                let day = utc(report.started_unix_ms).chars().take(10).collect::<String>();
                let who = machines.entry(format!("{on}{}, {day}", driver.unwrap_or_default())).or_default();
                if who.last() != Some(&probe.spec.id) {
                    who.push(probe.spec.id);
                }
            }
        }
        let mut out = String::new();
        for (machine, probes) in machines {
            let _ = writeln!(out, "- {}: {machine}", probes.join(", "));
        }
        for version in &self.versions {
            let _ = writeln!(out, "- PyTorch {version}");
        }
        out.push('\n');
        out
    }

    /// The figures of a probe that have something beside them, and the one that stands for the probe.
    fn rows(&self, probe: &probe::Probe, runs: &[Report]) -> Vec<String> {
        let id = probe.spec.id;
        let mut lines = Vec::new();
        for judged in &runs[0].results {
            let figure = &judged.figure;
            // Every shape of routing would fill pages: the largest stands for all.
            if id == "moe" && !figure.id.contains("_e256_k8_") {
                continue;
            }
            let torch = self.beside(id, &figure.id, &figure.unit);
            if torch.is_empty()
                && judged.datasheet.is_none()
                && judged.reference.is_none()
                && figure.id != probe.spec.headline
            {
                continue;
            }
            let all: Vec<&Judged> = runs.iter().filter_map(|run| of(run, &figure.id)).collect();
            lines.push(row(id, &all, &torch));
        }
        lines
    }
}

fn of<'a>(report: &'a Report, figure: &str) -> Option<&'a Judged> {
    report.results.iter().find(|judged| judged.figure.id == figure)
}

fn row(probe: &str, runs: &[&Judged], torch: &[f64]) -> String {
    let figure = &runs[0].figure;
    let cell = |judged: &&Judged| {
        let figure = &judged.figure;
        if figure.n == 1 {
            return number(figure.value);
        }
        format!("{} ({}–{})", number(figure.value), number(figure.lo), number(figure.hi))
    };
    let values: Vec<f64> = runs.iter().map(|judged| judged.figure.value).collect();
    let ours = mean(&values);
    let share =
        |whole: f64| pct(ours, whole, figure.better).map_or_else(|| "–".to_owned(), |pct| format!("{pct:.1} %"));
    let or_none = |text: String| if text.is_empty() { "–".to_owned() } else { text };
    let cells = [
        format!("`{probe}`"),
        format!("{}, {}", figure.label.replace('|', "\\|"), figure.unit),
        runs.first().map(cell).unwrap_or_default(),
        or_none(runs[1..].iter().map(cell).collect::<Vec<_>>().join("; ")),
        if runs.len() < 2 { "–".to_owned() } else { format!("{:.1} %", apart(&values)) },
        or_none(torch.iter().map(|value| number(*value)).collect::<Vec<_>>().join("; ")),
        if torch.is_empty() { "–".to_owned() } else { share(mean(torch)) },
        runs[0].datasheet.map_or_else(|| "–".to_owned(), number),
        runs[0].datasheet.map_or_else(|| "–".to_owned(), share),
    ];
    format!("| {} |\n", cells.join(" | "))
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// How far the runs are apart, % of their mean.
fn apart(values: &[f64]) -> f64 {
    let (least, most) = values.iter().fold((f64::MAX, f64::MIN), |(a, b), value| (a.min(*value), b.max(*value)));
    let mean = mean(values).abs();
    if mean > 0.0 { (most - least) / mean * 100.0 } else { 0.0 }
}

/// Three digits or more that say something.
fn number(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 1000.0 => 0,
        size if size >= 100.0 => 1,
        size if size >= 1.0 => 2,
        _ => 3,
    };
    format!("{value:.digits$}")
}

/// What `tests/h200/beside_vllm.py` keeps.
#[derive(Deserialize)]
struct Beside {
    settings: serde_json::Value,
    phases: Vec<Phase>,
    errors: u64,
}

#[derive(Deserialize)]
struct Phase {
    name: String,
    probe: Option<String>,
    duty: Option<u8>,
    tok_s: f64,
    itl_ms: Spread,
    ttft_ms: Spread,
    #[serde(default)]
    report: serde_json::Value,
}

#[derive(Deserialize)]
struct Spread {
    n: u64,
    p50: f64,
    p90: f64,
    p99: f64,
}

impl Beside {
    fn read() -> Option<Self> {
        let text = fs::read_to_string(root().join("docs/evidence/beside.json")).ok()?;
        Some(serde_json::from_str(&text).unwrap())
    }

    fn table(&self) -> String {
        let alone: Vec<_> = self.phases.iter().filter(|phase| phase.probe.is_none()).collect();
        let base = |of: fn(&Phase) -> f64| mean(&alone.iter().map(|phase| of(phase)).collect::<Vec<_>>());
        let mut out =
            "| beside | tokens/s | ITL median, ms | ITL P90, ms | ITL P99, ms | TTFT median, ms | TTFT P99, ms | \
                       tokens | requests |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n"
                .to_owned();
        let columns: [fn(&Phase) -> f64; 6] = [
            |phase| phase.tok_s,
            |phase| phase.itl_ms.p50,
            |phase| phase.itl_ms.p90,
            |phase| phase.itl_ms.p99,
            |phase| phase.ttft_ms.p50,
            |phase| phase.ttft_ms.p99,
        ];
        for phase in &self.phases {
            let _ = write!(out, "| {} |", phase.name);
            for of in columns {
                let _ = write!(out, " {}", number(of(phase)));
                if phase.probe.is_some() {
                    // No "-0".
                    let change = ((of(phase) / base(of) - 1.0) * 100.0).round() + 0.0;
                    let _ = write!(out, " ({change:+.0} %)");
                }
                out.push_str(" |");
            }
            let _ = writeln!(out, " {} | {} |", phase.itl_ms.n, phase.ttft_ms.n);
        }
        out
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The kept files, by name.
fn files() -> Vec<PathBuf> {
    let found = fs::read_dir(root().join("docs/evidence/probes")).into_iter().flatten();
    let mut files: Vec<_> = found.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// Compares what docs/probes.md holds between the marks of a table with what it should hold, or writes it anew.
fn hold(name: &str, table: &str) {
    let path = root().join("docs/probes.md");
    let text = fs::read_to_string(&path).unwrap();
    let (start, end) = (format!("<!-- {name}: written by tests/evidence.rs -->\n"), format!("<!-- end of {name} -->"));
    let (before, rest) = text.split_once(&start).unwrap_or_else(|| panic!("there is no place for {name}"));
    let (held, after) = rest.split_once(&end).unwrap_or_else(|| panic!("{name} has no end"));
    if held != table && std::env::var_os("UPDATE_TIDY").is_some() {
        fs::write(&path, [before, &start, table, &end, after].concat()).unwrap();
        return;
    }
    assert_eq!(held, table, "{name}: write it anew with UPDATE_TIDY=1 cargo test --test evidence");
}

#[test]
fn the_tables_say_what_the_reports_say() {
    hold("measured", &Evidence::read().table());
    hold("beside", &Beside::read().map_or_else(|| NOTHING.to_owned(), |beside| beside.table()));
}

#[test]
fn every_report_is_a_good_run_done_twice_and_small() {
    let all = Evidence::read();
    for (probe, runs) in &all.reports {
        assert!(probe::find(probe).is_some(), "there is no probe '{probe}' any more");
        assert_eq!(runs.len(), 2, "{probe}: two runs are kept");
        assert!(runs[0].run != runs[1].run && runs[0].inputs == runs[1].inputs, "{probe}: another run of the same");
        for report in runs {
            let run = &report.run;
            assert_eq!((report.schema.as_str(), report.ending, report.duty_pct), (SCHEMA, Ending::Done, 100), "{run}");
            assert!(report.environment.company.is_empty() && report.host.is_empty(), "{run}: in company, or named");
            assert!(report.checks.iter().all(|check| check.passed), "{run}: {:?}", report.checks);
            for judged in &report.results {
                held_by_its_samples(report, judged);
            }
        }
    }
    let sizes = files().into_iter().map(|path| (fs::metadata(&path).unwrap().len(), path)).collect::<Vec<_>>();
    assert!(sizes.iter().all(|(size, _)| *size <= MOST.0), "too large to keep: {sizes:?}");
    assert!(sizes.iter().map(|(size, _)| size).sum::<u64>() <= MOST.1, "too much to keep");
}

/// Where every measurement of a figure is there, its median is the figure.
fn held_by_its_samples(report: &Report, judged: &Judged) {
    let figure = &judged.figure;
    let same = |sample: &&probe::protocol::Sample| sample.series == figure.id && sample.unit == figure.unit;
    let values: Vec<f64> = report.samples.iter().filter(same).map(|sample| sample.value).collect();
    if values.len() as u64 == figure.n {
        let again = probe::Figure::median("", "", "", Better::Neither, &values).unwrap();
        assert!((again.value - figure.value).abs() <= figure.value.abs() * 1e-9, "{} {}", report.run, figure.id);
    }
}

#[test]
fn forced_probes_ran_beside_as_the_table_says() {
    let Some(beside) = Beside::read() else { return };
    assert_eq!((beside.settings["clients"].as_u64(), beside.errors), (Some(32), 0));
    for phase in &beside.phases {
        assert!(phase.itl_ms.n > 1_000, "{}: {} tokens", phase.name, phase.itl_ms.n);
        if phase.probe.is_some() {
            assert_eq!(phase.report["duty_pct"].as_u64(), phase.duty.map(u64::from), "{}", phase.name);
            assert!(!phase.report["company"].as_str().unwrap_or_default().is_empty(), "{}: nobody there", phase.name);
        }
    }
}

#[test]
fn numbers_and_shares() {
    assert_eq!([4374.4, 765.04, 53.333, 2.5, 0.98].map(number), ["4374", "765.0", "53.33", "2.50", "0.980"]);
    assert!((apart(&[99.0, 101.0]) - 2.0).abs() < 1e-9);
    assert!(apart(&[5.0]).abs() < 1e-9);
}
