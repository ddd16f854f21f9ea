//! What the documents claim and a machine can check: files they name, links, dependencies, the memory bound.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use warptop::app::ACTIONS;
use warptop::engine::ADAPTERS;
use warptop::sampler::SAMPLERS;
use warptop::signal::SIGNALS;
use warptop::store::Retention;

const DOCS: [&str; 4] = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"];

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
    let signals = SIGNALS.iter().map(|s| ("signal", s.id, s.help));
    let mut table = "| | name | what, and how often or when |\n| --- | --- | --- |\n".to_owned();
    for (kind, name, help) in samplers.chain(engines).chain(signals) {
        let _ = writeln!(table, "| {kind} | `{name}` | {} |", help.replace('|', "\\|"));
    }
    table
}

#[test]
fn tables_in_the_readme_are_those_of_the_program() {
    let mut text = read("README.md");
    for (name, table) in [("keys", key_table()), ("sources", source_table())] {
        let (start, end) = (format!("<!-- {name}: written by tests/docs.rs -->\n"), format!("<!-- end of {name} -->"));
        let (before, rest) = text.split_once(&start).expect("README.md has no place for it");
        let (held, after) = rest.split_once(&end).expect("it has no end in README.md");
        if held != table && std::env::var_os("UPDATE_TIDY").is_some() {
            text = [before, &start, &table, &end, after].concat();
            fs::write(root().join("README.md"), &text).unwrap();
            continue;
        }
        assert_eq!(held, table, "{name}: write it anew with UPDATE_TIDY=1 cargo test --test docs");
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
    let output = program.args(command.split(' ')).current_dir(root()).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    // Line by line, in this order; "…" stands for lines left out.
    let mut lines = said.lines();
    for line in expected.lines().filter(|line| line.trim() != "…") {
        assert!(lines.any(|said| said == line), "`warptop {command}` does not say {line}");
    }
}
