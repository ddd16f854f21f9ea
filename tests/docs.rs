//! What the documents claim and a machine can check: files they name, links, dependencies, the memory bound, what is
//! read of which engine.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use warptop::app::ACTIONS;
use warptop::diagnosis::Cause;
use warptop::engine::{self, ADAPTERS, Adapter, AdapterSpec, Answers, Memory, promtext};
use warptop::load::level::{
    Agreement, Bottleneck, Goodput, Knee, Latency, Level, Quantile, Rate, Server, Silicon, Slice, State,
};
use warptop::model::{Batch, Domain, Kind, Metric, SourceId, Subject, Time};
use warptop::probe::{Needs, ProbeSpec};
use warptop::sampler::SAMPLERS;
use warptop::store::Retention;

const DOCS: [&str; 5] = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/engines.md"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_default()
}

/// Texts in back quotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.lines().flat_map(|line| line.split('`').skip(1).step_by(2))
}

/// Targets of links inside the repository.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let targets = text.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0));
    targets.filter(|target| !target.contains("://") && !target.starts_with('#'))
}

/// Names of the dependencies in a section of Cargo.toml.
fn dependencies(section: &str) -> Vec<String> {
    let manifest = read("Cargo.toml");
    let lines = manifest.lines().skip_while(|line| *line != section).skip(1).take_while(|line| !line.starts_with('['));
    lines.filter_map(|line| Some(line.split_once('=')?.0.trim().to_owned())).collect()
}

#[test]
fn named_files_exist() {
    let mut seen = 0;
    for doc in DOCS {
        let text = read(doc);
        let files = quoted(&text).filter(|name| {
            ["src/", "tests/", "docs/", "assets/", "xtask/", ".ci/"].iter().any(|dir| name.starts_with(dir))
                && !name.contains("NAME")
        });
        for file in files.chain(links(&text)) {
            assert!(root().join(file).exists(), "{doc} names {file}, which is not there");
            seen += 1;
        }
    }
    assert!(seen > 40, "{seen}: files are no longer found in the documents");
}

#[test]
fn every_dependency_says_why() {
    let text = read("ARCHITECTURE.md");
    let table = text.split_once("## Dependencies").unwrap().1.split_once("\n## ").unwrap().0;
    let explained: Vec<&str> = quoted(table).collect();
    let needed = dependencies("[dependencies]");
    assert!(needed.len() > 10, "{needed:?}");
    for name in needed {
        assert!(explained.contains(&name.as_str()), "ARCHITECTURE.md does not say why {name} is needed");
    }
}

/// The keys as a table, from the table that the program itself uses.
fn key_table() -> String {
    let mut table = "| key | does |\n| --- | --- |\n".to_owned();
    for spec in ACTIONS {
        let keys: Vec<String> = spec.label.split(' ').map(|key| format!("`{key}`")).collect();
        let _ = writeln!(table, "| {} | {} |", keys.join(" "), spec.help.replace('|', "\\|"));
    }
    table
}

/// What is read and judged, from the tables that the program itself uses.
fn source_table() -> String {
    let samplers = SAMPLERS.iter().map(|s| ("reads", s.id, s.help));
    let engines = ADAPTERS.iter().map(|a| ("engine", a.spec().id, a.spec().help));
    let causes = Cause::ALL.iter().map(|cause| ("cause", cause.id(), cause.rule()));
    let mut table = "| | name | what, and how often or when |\n| --- | --- | --- |\n".to_owned();
    for (kind, name, help) in samplers.chain(engines).chain(causes) {
        let _ = writeln!(table, "| {kind} | `{name}` | {} |", help.replace('|', "\\|"));
    }
    table
}

#[cfg(test)]
mod tables {
    use super::*;

    /// Compares what a document holds between the marks of a table with what it should hold, or writes it anew.
    fn hold(doc: &str, tables: &[(&str, String)]) {
        let mut text = read(doc);
        for (name, table) in tables {
            let (start, end) =
                (format!("<!-- {name}: written by tests/docs.rs -->\n"), format!("<!-- end of {name} -->"));
            let (before, rest) = text.split_once(&start).unwrap_or_else(|| panic!("{doc} has no place for {name}"));
            let (held, after) = rest.split_once(&end).unwrap_or_else(|| panic!("{name} has no end in {doc}"));
            if held != table && std::env::var_os("UPDATE_TIDY").is_some() {
                text = [before, &start, table, &end, after].concat();
                fs::write(root().join(doc), &text).unwrap();
                continue;
            }
            assert_eq!(held, table, "{name}: write it anew with UPDATE_TIDY=1 cargo test --test docs");
        }
    }

    /// Every cause as the program words it.
    fn cause_table() -> String {
        let mut table = "| cause | on screen | named when |\n| --- | --- | --- |\n".to_owned();
        for cause in Cause::ALL {
            let id = cause.id();
            let _ = writeln!(table, "| [`{id}`](#{id}) | {} | {} |", cause.label(), cause.rule().replace('|', "\\|"));
        }
        table
    }

    /// Constants of a file with the comments above them: name, value, and what it is.
    fn constants(text: &str) -> Vec<(String, String, String)> {
        let (mut found, mut comment) = (Vec::new(), String::new());
        for line in text.lines() {
            let code = line.trim_start_matches("pub(super) ").trim_start_matches("pub(in crate::diagnosis) ");
            if let Some(words) = line.strip_prefix("///") {
                comment.push_str(words);
            } else if let Some((name, value)) = code.strip_prefix("const ").and_then(|rest| rest.split_once(": ")) {
                let value = value.split_once(" = ").map_or("", |(_, value)| value.trim_end_matches(';'));
                let words = std::mem::take(&mut comment).trim().to_owned();
                if value.starts_with(|c: char| c.is_ascii_digit()) && !value.starts_with("0x") && !words.is_empty() {
                    found.push((name.to_owned(), value.to_owned(), words));
                }
            } else {
                comment.clear();
            }
        }
        found
    }

    /// Every constant that the diagnosis judges by.
    fn threshold_table() -> String {
        let mut files: Vec<_> = ["rules", "scene"]
            .iter()
            .flat_map(|dir| {
                fs::read_dir(root().join("src/diagnosis").join(dir)).unwrap().map(|entry| entry.unwrap().path())
            })
            .collect();
        files.extend(
            ["diagnosis/past.rs", "diagnosis/timeline.rs", "derive/busy.rs"].map(|file| root().join("src").join(file)),
        );
        files.sort();
        let mut table = "| in | constant | value | what it is |\n| --- | --- | ---: | --- |\n".to_owned();
        for file in files {
            for (name, value, words) in constants(&fs::read_to_string(&file).unwrap()) {
                let stem = file.file_stem().unwrap().to_string_lossy();
                let _ = writeln!(
                    table,
                    "| `{stem}` | `{name}` | {} | {} |",
                    value.replace('_', ""),
                    words.replace('|', "\\|")
                );
            }
        }
        table
    }

    #[test]
    fn the_document_of_the_diagnosis_has_every_cause_and_every_threshold() {
        hold("docs/diagnosis.md", &[("causes", cause_table()), ("thresholds", threshold_table())]);
        let text = read("docs/diagnosis.md");
        for cause in Cause::ALL {
            let head = format!("\n### `{}`\n", cause.id());
            let section = text.split_once(&head).unwrap_or_else(|| panic!("no section of {}", cause.id())).1;
            let section = section.split("\n#").next().unwrap();
            for word in ["Evidence: ", "Fixes: ", "Confused with: "] {
                assert!(section.contains(word), "{} has no {word}", cause.id());
            }
        }
        assert!(threshold_table().lines().count() > 50, "constants are no longer found");
    }

    #[test]
    fn tables_in_the_readme_are_those_of_the_program() {
        hold("README.md", &[("keys", key_table()), ("sources", source_table())]);
    }

    /// Bodies and answers of engines in `assets/metrics`: place, name and text.
    fn bodies() -> Vec<(bool, String, String)> {
        let mut found = Vec::new();
        for (assembled, dir) in [(false, "assets/metrics"), (true, "assets/metrics/assembled")] {
            for entry in fs::read_dir(root().join(dir)).unwrap().filter_map(Result::ok) {
                if let Ok(bytes) = fs::read(entry.path()) {
                    found.push((
                        assembled,
                        entry.file_name().into_string().unwrap(),
                        promtext::decode(&bytes).into_owned(),
                    ));
                }
            }
        }
        found.sort();
        found
    }

    /// What an engine's files show: metrics, and whether a real one is among them.
    #[derive(Default)]
    struct Shown {
        metrics: BTreeSet<Metric>,
        real: bool,
    }

    impl Shown {
        fn take(&mut self, batch: &Batch, assembled: bool) {
            self.metrics.extend(batch.samples.iter().filter(|s| s.reading.value().is_some()).map(|s| s.metric));
            self.metrics.extend(batch.histograms.iter().map(|h| h.metric));
            self.real |= !assembled;
        }
    }

    fn empty() -> Batch {
        Batch::new(SourceId::Engine(0), Time(0), 1)
    }

    /// What a file says: a main answer by itself, another one (`NAME.PATH.json`, slashes of the path as `_`) beside
    /// the main one that its name begins with.
    fn translated(name: &str, text: &str, all: &[(bool, String, String)]) -> Option<(&'static dyn Adapter, Batch)> {
        let (mut batch, mut memory) = (empty(), Memory::default());
        // As on the same host, where the command line can be seen.
        memory.launched(&["llama-server", "--parallel", "4"].map(ToOwned::to_owned));
        let main = |text: &str| engine::fingerprints().find_map(|path| Some((path, engine::detect(path, text)?)));
        if let Some((path, adapter)) = main(text) {
            adapter.translate(Answers::new(&[(path, text)]), 0, &mut memory, &mut batch);
            return Some((adapter, batch));
        }
        let (stem, path) = name.strip_suffix(".json")?.rsplit_once('.')?;
        let (_, _, first) =
            all.iter().find(|(_, other, _)| other.strip_suffix(".prom").is_some_and(|name| name.starts_with(stem)))?;
        let (first_path, adapter) = main(first)?;
        let named = |paths: &[&'static str]| {
            paths.iter().copied().find(|p| p.trim_start_matches('/').replace('/', "_") == path)
        };
        if let Some(path) = named(adapter.spec().beside) {
            let answers = [(first_path, first.as_str()), (path, text)];
            adapter.translate(Answers::new(&answers), 0, &mut memory, &mut batch);
        } else {
            adapter.extra(named(adapter.spec().extras)?, text.as_bytes(), 0, &mut batch);
        }
        Some((adapter, batch))
    }

    fn shown() -> BTreeMap<&'static str, Shown> {
        let all = bodies();
        let mut shown: BTreeMap<&'static str, Shown> = BTreeMap::new();
        for (assembled, name, text) in &all {
            let (adapter, batch) = translated(name, text, &all).unwrap_or_else(|| panic!("no adapter reads {name}"));
            let known: Vec<_> = batch.samples.iter().filter(|s| s.subject == Subject::Engine(0)).collect();
            assert!(!known.is_empty() || !batch.facts.is_empty(), "{name} says nothing");
            shown.entry(adapter.spec().id).or_default().take(&batch, *assembled);
        }
        shown
    }

    /// Metrics of engines, each with the sum of seconds that stands in for its histogram. What warptop works out by
    /// itself is left out.
    fn engine_metrics() -> impl Iterator<Item = (Metric, Option<Metric>)> {
        const SUMS: [(Metric, Metric); 4] = [
            (Metric::E2e, Metric::E2eSum),
            (Metric::QueueTime, Metric::QueueSum),
            (Metric::PrefillTime, Metric::PrefillSum),
            (Metric::DecodeTime, Metric::DecodeSum),
        ];
        let of_engines = Metric::ALL.iter().copied().filter(|metric| metric.domain() == Domain::Engine);
        let own = |metric: &Metric| !matches!(metric, Metric::KvBytesPerToken | Metric::KvCopies);
        let sum = |metric: &Metric| !SUMS.iter().any(|(_, sum)| sum == metric);
        of_engines
            .filter(move |metric| own(metric) && sum(metric))
            .map(|metric| (metric, SUMS.iter().find(|(histogram, _)| *histogram == metric).map(|(_, sum)| *sum)))
    }

    /// Which engine shows which metric in any of the files.
    fn shown_table(shown: &BTreeMap<&'static str, Shown>) -> String {
        let mut table = "| |".to_owned();
        for adapter in ADAPTERS {
            let _ = write!(table, " {} |", adapter.spec().name);
        }
        let _ = writeln!(table, "\n| --- |{}", " --- |".repeat(ADAPTERS.len()));
        for (metric, sum) in engine_metrics() {
            let _ = write!(table, "| `{}` |", metric.key());
            for adapter in ADAPTERS {
                let has = |metric| shown.get(adapter.spec().id).is_some_and(|of| of.metrics.contains(&metric));
                let cell = match sum {
                    _ if has(metric) => "yes",
                    Some(sum) if metric.kind() == Kind::Histogram && has(sum) => "mean",
                    _ => "–",
                };
                let _ = write!(table, " {cell} |");
            }
            table.push('\n');
        }
        table
    }

    /// What is read of each engine, and what its files are.
    fn read_table(shown: &BTreeMap<&'static str, Shown>) -> String {
        let mut table =
            "| engine | what is read | bodies it is tested on | asked besides |\n| --- | --- | --- | --- |\n"
                .to_owned();
        for &AdapterSpec { id, name, main, beside, extras, help, .. } in ADAPTERS.iter().map(|adapter| adapter.spec()) {
            let real = shown.get(id).is_some_and(|of| of.real);
            let tested = if real { "of servers that were run" } else { "assembled from the source" };
            let mut besides: Vec<_> = beside.iter().chain(extras).filter(|path| !main.starts_with(&[**path])).collect();
            besides.dedup();
            let besides: Vec<_> = besides.iter().map(|path| format!("`{path}`")).collect();
            let _ = writeln!(table, "| {name} | {} | {tested} | {} |", help.replace('|', "\\|"), besides.join(" "));
        }
        table
    }

    /// What would help where a metric is missing, engine by engine.
    fn hint_table() -> String {
        let mut table = "| engine | metrics | what would help |\n| --- | --- | --- |\n".to_owned();
        for spec in ADAPTERS.iter().map(|adapter| adapter.spec()) {
            let mut hints: Vec<&str> = Vec::new();
            for (_, hint) in spec.hints {
                if !hints.contains(hint) {
                    hints.push(hint);
                }
            }
            for hint in hints {
                let of: Vec<_> = spec
                    .hints
                    .iter()
                    .filter(|h| h.1 == hint)
                    .map(|(metric, _)| format!("`{}`", metric.key()))
                    .collect();
                let _ = writeln!(table, "| {} | {} | {hint} |", spec.name, of.join(" "));
            }
        }
        table
    }

    /// The parameters of a probe.
    fn parameter_table(spec: &ProbeSpec) -> String {
        let cell = |text: String| if text.is_empty() { "–".to_owned() } else { text.replace('|', "\\|") };
        let mut table = "| parameter | default | may be | what |\n| --- | --- | --- | --- |\n".to_owned();
        for param in spec.params {
            let (default, allowed) = (cell(param.default().to_string()), cell(param.allowed()));
            let _ = writeln!(table, "| `--{}` | {default} | {allowed} | {} |", param.name, cell(param.help.to_owned()));
        }
        table
    }

    #[test]
    fn the_parameters_of_a_sweep_are_those_of_the_program() {
        if let Some(probe) = warptop::probe::find("sweep") {
            hold("docs/sweep.md", &[("parameters", parameter_table(&probe.spec))]);
        }
    }

    /// Files that may hold unsafe code, with the reason that each gives.
    fn unsafe_table() -> String {
        let mut files = Vec::new();
        rust_files(&root().join("src"), &mut files);
        let mut table = "| file | why |\n| --- | --- |\n".to_owned();
        for path in files {
            let text = fs::read_to_string(&path).unwrap();
            let name = path.strip_prefix(root()).unwrap().to_string_lossy();
            for (at, _) in text.match_indices("(unsafe_code, reason = \"") {
                let reason = text[at..].split('"').nth(1).unwrap();
                let _ = writeln!(table, "| `{name}` | {reason} |");
            }
        }
        table
    }

    fn rust_files(dir: &Path, into: &mut Vec<std::path::PathBuf>) {
        let mut entries: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
        entries.sort();
        for path in entries {
            if path.is_dir() {
                rust_files(&path, into);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                into.push(path);
            }
        }
    }

    #[test]
    fn the_security_page_lists_all_unsafe_code() {
        hold("docs/security.md", &[("unsafe code", unsafe_table())]);
    }

    #[test]
    fn the_tables_of_engines_are_what_the_adapters_make_of_the_bodies() {
        let shown = shown();
        for adapter in ADAPTERS {
            let spec = adapter.spec();
            assert!(shown.contains_key(spec.id), "no body of {} in assets/metrics", spec.name);
            assert!(
                spec.hints
                    .iter()
                    .all(|(_, hint)| !hint.is_empty() && !hint.contains("n/a") && !hint.starts_with("not exposed")),
                "{}: the screen says \"not exposed by\" before a hint",
                spec.name
            );
        }
        let tables = [("read", read_table(&shown)), ("shown", shown_table(&shown)), ("hints", hint_table())];
        hold("docs/engines.md", &tables);
    }
}

#[test]
fn the_memory_bound_is_the_stated_one() {
    let mib = Retention::HOUR.most_bytes(250, 8, 8) >> 20;
    for doc in ["README.md", "ARCHITECTURE.md"] {
        // Wherever the lines break.
        let text = read(doc).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(&format!("at most {mib} MiB for 8 GPUs and 8 engines")), "{doc}: it is {mib} MiB");
    }
}

#[test]
fn every_decision_is_listed() {
    let text = read("ARCHITECTURE.md");
    for entry in fs::read_dir(root().join("docs/adr")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(text.contains(&format!("(docs/adr/{name})")), "ARCHITECTURE.md does not list {name}");
    }
}

#[test]
fn the_example_in_the_readme_is_what_the_program_says() {
    let text = read("README.md");
    let example = text.split_once("```console\n$ warptop ").unwrap().1.split_once("```").unwrap().0;
    let (command, expected) = example.split_once('\n').unwrap();
    let mut program = Command::new(env!("CARGO_BIN_EXE_warptop"));
    program.env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR"));
    let output = program.args(command.split(' ')).current_dir(root()).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    // Line by line, in this order; "…" stands for lines left out.
    let mut lines = said.lines();
    for line in expected.lines().filter(|line| line.trim() != "…") {
        assert!(lines.any(|said| said == line), "`warptop {command}` does not say {line}");
    }
}

#[test]
fn every_probe_has_its_row_and_its_section() {
    let doc = read("docs/probes.md");
    for probe in warptop::probe::listed() {
        let spec = probe.spec;
        let needs = match spec.needs {
            Needs::Host => "",
            Needs::Gpu => "a GPU ",
            Needs::Gpus(_) => "2 GPUs ",
            Needs::Endpoint => "an engine ",
        };
        let row = doc.lines().find(|line| line.starts_with(&format!("| [`{0}`](#{0}) | `{1}` |", spec.id, spec.key)));
        let row = row.unwrap_or_else(|| panic!("docs/probes.md has no row of {} with its key", spec.id));
        assert!(row.ends_with(&format!("| {needs}|")), "what {} needs: {row}", spec.id);
        assert!(doc.contains(&format!("\n## {}\n", spec.id)), "docs/probes.md has no section on {}", spec.id);
    }
}

/// A level of which nothing is missing.
fn whole_level() -> Level {
    let quantile = Some(Quantile::default());
    let latency = Latency { p50: quantile, p95: quantile, p99: quantile, ..Latency::default() };
    Level {
        ttft_s: latency,
        scheduled_ttft_s: Some(latency),
        scheduled_e2e_s: Some(latency),
        requests_per_s: Some(Rate::default()),
        goodput: Some(Goodput::default()),
        slices: vec![Slice::default()],
        server: Some(Server { agreement: vec![Agreement::default()], ..Server::default() }),
        gpus: vec![Silicon::default()],
        bottleneck: Some(Bottleneck::default()),
        ..Level::default()
    }
}

/// Names of all fields within a value.
fn fields(value: &serde_json::Value, found: &mut BTreeSet<String>) {
    match value {
        serde_json::Value::Object(object) => {
            for (name, value) in object {
                found.insert(name.clone());
                fields(value, found);
            }
        }
        serde_json::Value::Array(all) => all.iter().for_each(|value| fields(value, found)),
        _ => {}
    }
}

#[test]
fn every_field_of_a_level_is_in_the_document_and_no_other() {
    let doc = read("docs/sweep.md");
    let (_, rest) = doc.split_once("<!-- fields of a level: checked by tests/docs.rs -->\n").unwrap();
    let table = rest.split_once("<!-- end of fields of a level -->").unwrap().0;
    let mut names = BTreeSet::new();
    fields(&serde_json::to_value(whole_level()).unwrap(), &mut names);
    let of_level = names.clone();
    fields(&serde_json::to_value(Knee::default()).unwrap(), &mut names);
    let states = [
        State::WarmingUp,
        State::Measuring,
        State::Ending,
        State::Done,
        State::Short,
        State::OverSaturated,
        State::Failing,
        State::OutOfBudget,
        State::Stopped,
    ];
    names.extend(states.map(|state| serde_json::to_value(state).unwrap().as_str().unwrap().to_owned()));
    assert!(names.len() > 90, "{}: fields are no longer found", names.len());
    // `users` stands in an example of JSON.
    let missing: Vec<_> = names.iter().filter(|name| *name != "users" && !quoted(table).any(|q| q == *name)).collect();
    assert!(missing.is_empty(), "docs/sweep.md does not name {missing:?}");
    for name in table.lines().skip(2).flat_map(|row| quoted(row.split('|').nth(1).unwrap_or_default())) {
        assert!(of_level.contains(name) || ["knee", "levels"].contains(&name), "a level has no {name}");
    }
}
