//! docs/reliability.md, written from the tests that hold each row: a row is a few doc lines on a test function.
//!
//! ```text
//! /// Fault: engine: `/v1/models` hangs
//! /// Seen: the engine's row says `models: no answer for 20 s`
//! /// Works: its metrics, every second
//! /// Recovers: with the first answer
//! ```
//!
//! A text in back quotes in `Seen` is what the user reads: it has to be in the test's file, outside of comments, or in
//! one of that file's snapshots.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may fail by panicking")]

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

const DOC: &str = "docs/reliability.md";
const KEYS: [&str; 4] = ["Fault", "Seen", "Works", "Recovers"];
/// The areas, in the order of the document, with what belongs to each.
const AREAS: [(&str, &str); 7] = [
    ("driver", "NVIDIA's driver and NVML"),
    ("engine", "serving engines and exporters, and the network to them"),
    ("host", "the machine: `/proc`, time, limits, other processes"),
    ("terminal", "the terminal and its bytes, signals, and the end of the program"),
    ("disk", "files that are written and read beside recordings"),
    ("recording", "recordings that are written and replayed"),
    ("probe", "probes, the load sweep and their budgets"),
];

/// One row: what breaks, and what a test holds of it.
#[derive(Debug)]
struct FaultRow {
    area: String,
    /// Texts of [`KEYS`].
    cells: [String; 4],
    file: String,
    test: String,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn sources(dir: &Path, into: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("reliability.rs") {
            into.push(path);
        }
    }
}

/// The rows that doc lines hold, as keys and texts; a line without a key goes on with the text before it.
fn entries(docs: &[&str]) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    for line in docs {
        let key = KEYS.iter().position(|key| line.strip_prefix(key).is_some_and(|rest| rest.starts_with(": ")));
        match (key, found.last_mut()) {
            (Some(key), _) => found.push((key, line[KEYS[key].len() + 2..].trim().to_owned())),
            (None, Some((_, text))) if !line.is_empty() => {
                text.push(' ');
                text.push_str(line);
            }
            (None, _) => {}
        }
    }
    found
}

/// The rows on one function, which follows its doc lines and attributes.
fn rows(docs: &[&str], attributes: &[&str], function: &str, file: &str) -> Vec<FaultRow> {
    let found = entries(docs);
    if found.is_empty() {
        return Vec::new();
    }
    let at = format!("{file}: {function}");
    let is_test = attributes.iter().any(|line| line.contains("test]") || line.contains("test("));
    assert!(is_test, "{at} has a row of {DOC} and is no test");
    let ignored = attributes.iter().any(|line| line.starts_with("#[ignore"));
    assert!(!ignored, "{at} is ignored, so nothing holds its row of {DOC}");
    let whole = found.chunks(KEYS.len());
    whole
        .map(|chunk| {
            let order: Vec<usize> = chunk.iter().map(|(key, _)| *key).collect();
            assert_eq!(order, [0, 1, 2, 3], "{at}: a row is Fault, Seen, Works, Recovers");
            let mut cells: [String; 4] = std::array::from_fn(|key| chunk[key].1.clone());
            assert!(cells.iter().all(|cell| !cell.is_empty()), "{at}: a cell is empty");
            let (area, what) = cells[0].split_once(": ").unwrap_or_else(|| panic!("{at}: Fault: AREA: what breaks"));
            assert!(AREAS.iter().any(|(known, _)| *known == area), "{at}: {area} is none of the areas");
            let (area, what) = (area.to_owned(), what.to_owned());
            cells[0] = what;
            FaultRow { area, cells, file: file.to_owned(), test: function.to_owned() }
        })
        .collect()
}

/// The name of the function that a line begins.
fn function(line: &str) -> Option<&str> {
    let rest = line.split_once("fn ")?;
    let before = rest.0.split_whitespace().all(|word| ["pub", "pub(crate)", "pub(super)", "async"].contains(&word));
    before.then(|| rest.1.split(['(', '<']).next().unwrap_or_default())
}

fn rows_of(text: &str, file: &str) -> Vec<FaultRow> {
    let (mut docs, mut attributes, mut found) = (Vec::new(), Vec::new(), Vec::new());
    for line in text.lines().map(str::trim) {
        if let Some(words) = line.strip_prefix("///") {
            docs.push(words.trim());
        } else if line.starts_with("#[") {
            attributes.push(line);
        } else {
            if let Some(name) = function(line) {
                found.extend(rows(&docs, &attributes, name, file));
            } else if !docs.is_empty() && !entries(&docs).is_empty() {
                panic!("{file}: a row of {DOC} stands before `{line}`, which is no function");
            }
            docs.clear();
            attributes.clear();
        }
    }
    found
}

/// What a file's tests can assert: its text without comments, with the breaks and escapes of its literals undone, and its snapshots.
fn assertable(text: &str, file: &Path) -> String {
    let mut code = String::new();
    for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
        if let Some(open) = line.strip_suffix('\\') {
            code.push_str(open.trim_start());
        } else {
            code.push_str(line.trim_start());
            code.push('\n');
        }
    }
    let mut code = code.replace("\\\"", "\"");
    let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let snapshots = file.with_file_name("snapshots");
    for entry in fs::read_dir(snapshots).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().contains(&stem) {
            code.push_str(&fs::read_to_string(entry.path()).unwrap_or_default());
        }
    }
    code
}

fn all_rows() -> Vec<FaultRow> {
    let mut files = Vec::new();
    sources(&root().join("tests"), &mut files);
    sources(&root().join("src"), &mut files);
    let mut all = Vec::new();
    for path in files {
        let text = fs::read_to_string(&path).unwrap();
        let file = path.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
        let rows = rows_of(&text, &file);
        if !rows.is_empty() {
            let code = assertable(&text, &path);
            for row in &rows {
                for words in row.cells[1].split('`').skip(1).step_by(2) {
                    assert!(code.contains(words), "{file}: {}: no test there says {words:?}", row.test);
                }
            }
        }
        all.extend(rows);
    }
    all
}

fn tables(rows: &[FaultRow]) -> String {
    let mut out = String::new();
    for (area, what) in AREAS {
        let _ = write!(out, "\n## {}{}\n\n{what}\n\n", area[..1].to_uppercase(), &area[1..]);
        out.push_str("| what breaks | what the user sees | what keeps working | how it recovers | held by |\n");
        out.push_str("| --- | --- | --- | --- | --- |\n");
        let mut lines: Vec<String> = rows
            .iter()
            .filter(|row| row.area == area)
            .map(|row| {
                let cells = row.cells.each_ref().map(|cell| cell.replace('|', "\\|"));
                format!("| {} | `{}` in `{}` |\n", cells.join(" | "), row.test, row.file)
            })
            .collect();
        lines.sort();
        out.extend(lines);
    }
    out
}

#[test]
fn the_document_is_what_the_tests_hold() {
    let rows = all_rows();
    for (area, _) in AREAS {
        assert!(rows.iter().any(|row| row.area == area), "no test has a row for {area}");
    }
    let path = root().join(DOC);
    let text = fs::read_to_string(&path).unwrap_or_default();
    let mark = "<!-- rows: written by tests/reliability.rs -->\n";
    let (before, held) = text.split_once(mark).expect("the document has no place for the rows");
    let made = tables(&rows);
    if held != made && std::env::var_os("UPDATE_TIDY").is_some() {
        fs::write(&path, [before, mark, &made].concat()).unwrap();
        return;
    }
    assert_eq!(held, made, "write it anew with UPDATE_TIDY=1 cargo test --test reliability");
}

mod checks {
    use super::*;

    const ROW: &str =
        "/// Fault: disk: full\n/// Seen: `no space`\n/// Works: the screen,\n/// all of it\n/// Recovers: never\n";

    #[test]
    fn a_row_is_read_with_its_test() {
        let rows = rows_of(&format!("{ROW}#[test]\nfn holds_it() {{}}\n"), "a.rs");
        let [row] = &rows[..] else { panic!("{rows:?}") };
        assert_eq!((row.area.as_str(), row.test.as_str()), ("disk", "holds_it"));
        assert_eq!(row.cells, ["full", "`no space`", "the screen, all of it", "never"]);
    }

    #[test]
    #[should_panic(expected = "is no test")]
    fn a_row_needs_a_test() {
        rows_of(&format!("{ROW}fn holds_it() {{}}\n"), "a.rs");
    }

    #[test]
    #[should_panic(expected = "is ignored")]
    fn an_ignored_test_holds_nothing() {
        rows_of(&format!("{ROW}#[test]\n#[ignore]\nfn holds_it() {{}}\n"), "a.rs");
    }

    #[test]
    fn words_in_comments_are_not_asserted() {
        let code = assertable("// no space\nassert!(\"no \\\n   room\");\nx(\"a \\\"b\\\"\");\n", Path::new("x/a.rs"));
        assert!(!code.contains("no space") && code.contains("no room") && code.contains("a \"b\""), "{code}");
    }
}
