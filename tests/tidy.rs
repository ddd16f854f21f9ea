//! Architecture rules that the compiler does not check: module ranks, who may use which crate, who may
//! read a clock or print, file length and module docs.
//!
//! The table of modules in ARCHITECTURE.md is written here: `UPDATE_TIDY=1 cargo test --test tidy`.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};
use syn::{Attribute, ExprMethodCall, ImplItemFn, ItemFn, ItemMod, ItemUse, Macro, UseTree};

/// Modules from the lowest rank to the highest, and what each may import.
const ALLOWED: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("net", &["model"]),
    ("state", &["model"]),
    ("log", &["model", "state"]),
    ("store", &["model"]),
    ("engine", &["model"]),
    ("load", &["model", "net"]),
    ("probe", &["model", "net", "state", "load"]),
    ("derive", &["model", "store", "load"]),
    ("diagnosis", &["model", "store", "load", "engine", "derive"]),
    ("recording", &["model"]),
    ("sampler", &["model", "net", "log", "store", "engine", "recording"]),
    ("app", &["model", "store", "load", "probe", "derive", "diagnosis"]),
    ("ui", &["model", "log", "store", "engine", "load", "probe", "derive", "diagnosis", "app"]),
    ("export", &["model", "store", "engine", "derive", "diagnosis", "app", "ui"]),
    ("term", &["model", "app", "ui"]),
    (
        "runtime",
        &[
            "model",
            "net",
            "state",
            "log",
            "store",
            "load",
            "probe",
            "derive",
            "diagnosis",
            "recording",
            "sampler",
            "app",
            "ui",
            "export",
            "term",
        ],
    ),
    (
        "cli",
        &[
            "model",
            "net",
            "state",
            "log",
            "store",
            "engine",
            "load",
            "probe",
            "derive",
            "diagnosis",
            "recording",
            "sampler",
            "app",
            "ui",
            "export",
            "term",
            "runtime",
        ],
    ),
];

/// Crates with a reach of their own, and the modules that may name them.
const CRATES: &[(&str, &[&str])] = &[
    ("tokio", &["load", "sampler", "runtime", "cli", "term"]),
    ("ratatui", &["ui", "term", "export", "runtime"]),
    ("reqwest", &["net", "sampler"]),
    ("nvml_wrapper", &["sampler"]),
    ("nvml_wrapper_sys", &["sampler"]),
    ("procfs", &["sampler"]),
    ("sysinfo", &["sampler"]),
    ("clap", &["cli"]),
    ("cudarc", &["probe"]),
    ("libloading", &["probe"]),
    ("hyper", &["load", "sampler"]),
    ("hyper_util", &["load"]),
    ("http_body_util", &["load"]),
    ("tokio_rustls", &["load"]),
    ("hdrhistogram", &["load"]),
    ("fastrand", &["load"]),
];

/// Calls into NVML or CUDA that set something and are allowed all the same: the name, where, and what it sets and for
/// whom. All of these set what is this process' own and gone with it; nothing on a GPU that others see.
const ALLOWED_SETTERS: &[(&str, &str, &str)] = &[
    ("cuFuncSetAttribute", "src/probe/cuda/", SHARED_MEMORY),
    ("cublasLtMatmulDescSetAttribute", "src/probe/cuda/", DESCRIPTION),
    ("cublasLtMatmulPreferenceSetAttribute", "src/probe/cuda/", DESCRIPTION),
    ("cublasLtMatrixLayoutSetAttribute", "src/probe/cuda/", DESCRIPTION),
];
const SHARED_MEMORY: &str =
    "more than 48 KiB of shared memory for a kernel that this process has loaded, in its context";
const DESCRIPTION: &str = "a field of a description in this process' memory: the library's way to take an argument";
/// Where the calls of a GPU's libraries are: there nothing is even named as if it changed something.
const LIBRARY_CALLS: [&str; 2] = ["src/sampler/nvml", "src/probe/"];
/// Who may start a process: the one that makes sure that it is gone, and what that one is tested with.
const STARTERS: [&str; 3] = ["src/probe/child.rs", "src/probe/fake.rs", "src/sampler/nvml/trial.rs"];

const CLOCK_FILE: &str = "src/model/clock.rs";
const MAX_LINES: usize = 600;
const TABLE_START: &str = "<!-- module table: written by tests/tidy.rs -->\n";
const TABLE_END: &str = "<!-- end of module table -->";

/// What is wrong with one file of `src/`.
struct Checker<'a> {
    file: &'a str,
    /// Path of the module being read, e.g. `["store", "series"]`.
    module: Vec<String>,
    found: Vec<String>,
}

impl Checker<'_> {
    fn complain(&mut self, what: &str) {
        self.found.push(format!("{}: {what}", self.file));
    }

    /// The top-level module this file belongs to; `None` for `lib.rs` and `main.rs`.
    fn top(&self) -> Option<&str> {
        self.module.first().map(String::as_str)
    }

    fn may_set(&self, name: &str) -> bool {
        ALLOWED_SETTERS.iter().any(|(allowed, place, _)| *allowed == name && self.file.starts_with(place))
    }

    fn library_name(&mut self, name: &str) {
        if is_setter(name) && !self.may_set(name) {
            self.complain(&format!("`{name}` changes a GPU; warptop only looks"));
        }
    }

    /// The name of a function or method that is called where a GPU's libraries are.
    fn called(&mut self, name: &str) {
        let sets = ["set_", "reset_", "clear_"].iter().any(|prefix| name.starts_with(prefix));
        let here = LIBRARY_CALLS.iter().any(|place| self.file.starts_with(place));
        if sets && here && !self.may_set(name) {
            self.complain(&format!("`{name}()` may change a GPU; warptop only looks"));
        }
    }

    fn path(&mut self, segments: &[String]) {
        let Some(first) = segments.first() else { return };
        if self.file != CLOCK_FILE && segments.iter().any(|s| s == "Instant" || s == "SystemTime") {
            self.complain("reads a clock; only model/clock.rs may, take a `Clock` instead");
        }
        for segment in segments {
            self.library_name(segment);
        }
        // What the system is asked to do for a process of ours is no call into a library of a GPU.
        if first != "rustix" {
            self.called(segments.last().map_or("", String::as_str));
        }
        if segments.windows(2).any(|pair| pair[0] == "process" && pair[1] == "Command")
            && !STARTERS.contains(&self.file)
        {
            self.complain(
                "starts a process; only probe/child.rs and sampler/nvml/trial.rs may, which make sure that it is gone",
            );
        }
        let Some(top) = self.top().map(ToOwned::to_owned) else { return };
        if let Some((name, by)) = CRATES.iter().find(|(name, _)| name == first)
            && !by.contains(&top.as_str())
        {
            self.complain(&format!("`{name}` is for {} only", by.join(", ")));
        }
        let supers = segments.iter().take_while(|s| *s == "super").count();
        let target = match first.as_str() {
            "crate" => segments.get(1),
            _ if supers > 0 && supers == self.module.len() => segments.get(supers),
            _ => None,
        };
        let Some(target) = target.filter(|t| **t != top && ALLOWED.iter().any(|(name, _)| name == *t)) else { return };
        if !allowed(&top).contains(&target.as_str()) {
            self.complain(&format!("`{top}` must not import `{target}`"));
        }
    }

    fn use_tree(&mut self, tree: &UseTree, prefix: &mut Vec<String>) {
        match tree {
            UseTree::Path(p) => {
                prefix.push(p.ident.to_string());
                self.use_tree(&p.tree, prefix);
                prefix.pop();
            }
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.use_tree(tree, prefix)),
            UseTree::Name(name) => self.leaf(prefix, name.ident.to_string()),
            UseTree::Rename(rename) => self.leaf(prefix, rename.ident.to_string()),
            UseTree::Glob(_) => self.leaf(prefix, "*".to_owned()),
        }
    }

    fn leaf(&mut self, prefix: &[String], last: String) {
        let mut segments = prefix.to_vec();
        segments.push(last);
        self.path(&segments);
    }

    /// Macro arguments are only tokens: finds the paths in them.
    fn tokens(&mut self, tokens: &str) {
        let words: Vec<&str> = tokens.split_whitespace().collect();
        let mut i = 0;
        while i < words.len() {
            let mut segments = vec![words[i].to_owned()];
            while words.get(i + 1) == Some(&"::") && i + 2 < words.len() {
                segments.push(words[i + 2].to_owned());
                i += 2;
            }
            self.library_name(words[i].trim_matches(['"', 'b']));
            if segments.len() > 1 {
                self.path(&segments);
            }
            i += 1;
        }
    }
}

impl<'ast> Visit<'ast> for Checker<'_> {
    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if is_test(&item.attrs) {
            return;
        }
        self.module.push(item.ident.to_string());
        visit::visit_item_mod(self, item);
        self.module.pop();
    }
    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        if !is_test(&item.attrs) {
            visit::visit_item_fn(self, item);
        }
    }
    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        if !is_test(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }
    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        if !is_test(&item.attrs) {
            self.use_tree(&item.tree, &mut Vec::new());
        }
    }
    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<String> = path.segments.iter().map(|s| s.ident.to_string()).collect();
        self.path(&segments);
        visit::visit_path(self, path);
    }
    fn visit_macro(&mut self, item: &'ast Macro) {
        let name = item.path.segments.last().map(|s| s.ident.to_string()).unwrap_or_default();
        let prints = ["print", "println", "eprint", "eprintln"].contains(&name.as_str());
        if prints && !matches!(self.top(), None | Some("cli")) {
            self.complain(&format!("`{name}!` is for cli and main only"));
        }
        self.tokens(&item.tokens.to_string());
        visit::visit_macro(self, item);
    }
    fn visit_lit_str(&mut self, text: &'ast syn::LitStr) {
        self.library_name(&text.value());
    }
    fn visit_lit_byte_str(&mut self, text: &'ast syn::LitByteStr) {
        self.library_name(&String::from_utf8_lossy(&text.value()));
    }
    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        let name = call.method.to_string();
        if name == "elapsed" && self.file != CLOCK_FILE {
            self.complain("`.elapsed()` reads a clock; only model/clock.rs may, take a `Clock` instead");
        }
        self.library_name(&name);
        self.called(&name);
        visit::visit_expr_method_call(self, call);
    }
}

fn allowed(module: &str) -> &'static [&'static str] {
    ALLOWED.iter().find(|(name, _)| *name == module).map_or(&[], |row| row.1)
}

/// `#[test]`, `#[cfg(test)]`: tests may import upwards and read the time.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|a| {
        a.path().is_ident("test")
            || a.path().is_ident("cfg") && a.parse_args::<syn::Path>().is_ok_and(|p| p.is_ident("test"))
    })
}

/// Whether this is the name of a function of NVML, the CUDA driver, the CUDA runtime or cuBLAS that sets something.
fn is_setter(name: &str) -> bool {
    let of = ["cublasLt", "cublas", "cuda", "cu"].iter().find_map(|of| name.strip_prefix(of));
    let cuda = of.filter(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()));
    // `cuMemsetD8` fills memory: its "set" is no word of its own.
    if cuda.is_some_and(|rest| ["Set", "Reset"].iter().any(|verb| rest.contains(verb))) {
        return true;
    }
    ["nvmlDevice", "nvmlGpm", "nvmlSystem", "nvmlUnit", "nvmlGpuInstance"].iter().any(|of| {
        name.strip_prefix(of)
            .is_some_and(|verb| ["Set", "Reset", "Clear", "Modify", "Remove"].iter().any(|v| verb.starts_with(v)))
    })
}

/// Module path of a source file: `src/store/series.rs` is `["store", "series"]`.
fn module_of(file: &str) -> Vec<String> {
    let path = file.trim_start_matches("src/").trim_end_matches(".rs").trim_end_matches("/mod");
    path.split('/').filter(|part| !["lib", "main"].contains(part)).map(ToOwned::to_owned).collect()
}

/// Rules for a file of any package.
fn check_any(file: &str, source: &str) -> Vec<String> {
    let mut found = Vec::new();
    if !source.starts_with("//!") {
        found.push(format!("{file}: does not start with a module doc (//!)"));
    }
    let lines = source.lines().count();
    if lines > MAX_LINES {
        found.push(format!("{file}: {lines} lines, at most {MAX_LINES}"));
    }
    found
}

/// Rules for a file of `src/`.
fn check_src(file: &str, source: &str) -> Vec<String> {
    let mut checker = Checker { file, module: module_of(file), found: check_any(file, source) };
    if let Some(top) = checker.top().filter(|top| !ALLOWED.iter().any(|(name, _)| name == top)) {
        let what = format!("module `{top}` has no rank; add it to ALLOWED in tests/tidy.rs");
        checker.complain(&what);
    }
    match syn::parse_file(source) {
        // A file of tests is to tests what `#[cfg(test)]` is to a module.
        Ok(_) if file.ends_with("/tests.rs") || file.contains("/tests/") => {}
        Ok(parsed) => checker.visit_file(&parsed),
        Err(error) => checker.complain(&format!("cannot be parsed: {error}")),
    }
    checker.found
}

/// Traces of the machine a file was written on.
fn check_text(file: &str, text: &str) -> Vec<String> {
    // Put together here, so that this file does not name them.
    [["/wo", "rk/"], ["/ro", "ot/"], ["/tmp/", "bash"], ["/home/", "user"]]
        .map(|parts| parts.concat())
        .into_iter()
        .filter(|path| text.contains(path.as_str()))
        .map(|path| format!("{file}: names a path of the machine it was written on: {path}"))
        .collect()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every file below `dir` with one of these endings, sorted.
fn files(dir: &Path, endings: &[&str]) -> Vec<PathBuf> {
    let mut out = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let hidden = entry.file_name().to_string_lossy().starts_with('.') && entry.file_name() != ".ci";
        if path.is_dir() && !hidden && entry.file_name() != "target" {
            out.extend(files(&path, endings));
        } else if path.is_file() && endings.iter().any(|e| path.to_string_lossy().ends_with(e)) {
            out.push(path);
        }
    }
    out.sort();
    out
}

fn relative(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).to_string_lossy().replace('\\', "/")
}

/// First sentence of a module's doc.
fn first_sentence(source: &str) -> String {
    let doc: Vec<&str> = source.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim).collect();
    let paragraph = doc.split(|line| line.is_empty()).next().unwrap_or_default().join(" ");
    paragraph.split_once(". ").map_or(paragraph.as_str(), |(first, _)| first).trim_end_matches('.').to_owned()
}

/// The file of a top-level module.
fn module_source(name: &str) -> Option<String> {
    let files = [format!("src/{name}/mod.rs"), format!("src/{name}.rs")];
    files.into_iter().find_map(|file| fs::read_to_string(root().join(file)).ok())
}

fn module_table() -> String {
    let mut table = "| module | owns | may import |\n| --- | --- | --- |\n".to_owned();
    for (name, may) in ALLOWED {
        let source = module_source(name).unwrap_or_default();
        let may = if may.is_empty() { "nothing".to_owned() } else { may.join(", ") };
        let _ = writeln!(table, "| `{name}` | {} | {may} |", first_sentence(&source));
    }
    table
}

#[test]
fn every_file_keeps_the_rules() {
    let mut found = Vec::new();
    for dir in ["src", "tests", "benches", "xtask/src"] {
        for path in files(&root().join(dir), &[".rs"]) {
            let source = fs::read_to_string(&path).unwrap();
            let check = if dir == "src" { check_src } else { check_any };
            found.extend(check(&relative(&path), &source));
        }
    }
    for path in files(root(), &[".rs", ".md", ".toml", ".json", ".jsonl", ".prom", ".snap", ".svg", ".txt", "/run"]) {
        if let Ok(text) = fs::read_to_string(&path) {
            found.extend(check_text(&relative(&path), &text));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Where the tests start the program and leave it the log of whoever runs them.
fn unsheltered(text: &str) -> usize {
    // The window of the probes is only told where the program is.
    let starts = text.matches("CARGO_BIN_EXE_warptop").count() - text.matches("program: PathBuf::from").count();
    // What loads the driver's library keeps no log.
    let starts = starts - text.matches("loader = env!(").count();
    let sheltered = text.matches("XDG_STATE_HOME").count();
    // This one sets it for all that run in its terminal.
    if text.contains("Session::start(") { 0 } else { starts.saturating_sub(sheltered) }
}

#[test]
fn no_test_writes_into_the_state_of_whoever_runs_it() {
    for path in files(&root().join("tests"), &["rs"]).iter().filter(|path| !path.ends_with("tidy.rs")) {
        let text = fs::read_to_string(path).unwrap();
        let helper = path.ends_with("pty/session.rs") && text.contains(".env(\"XDG_STATE_HOME\"");
        let given = helper || !path.ends_with("pty/session.rs") && unsheltered(&text) == 0;
        assert!(given, "{}: set XDG_STATE_HOME for each start of the program", relative(path));
    }
    assert_eq!(unsheltered("Command::new(env!(\"CARGO_BIN_EXE_warptop\"))"), 1);
}

#[test]
fn ranks_only_fall() {
    for (i, (name, may)) in ALLOWED.iter().enumerate() {
        let lower: Vec<&str> = ALLOWED[..i].iter().map(|row| row.0).collect();
        assert!(may.iter().all(|m| lower.contains(m)), "{name} may import something of its own rank or above");
        assert!(module_source(name).is_some(), "there is no module {name}");
    }
}

#[test]
fn the_module_table_is_in_architecture_md() {
    let table = module_table();
    println!("{table}");
    let path = root().join("ARCHITECTURE.md");
    let doc = fs::read_to_string(&path).unwrap();
    let (before, rest) = doc.split_once(TABLE_START).expect("ARCHITECTURE.md has no place for the module table");
    let (held, after) = rest.split_once(TABLE_END).expect("the module table in ARCHITECTURE.md has no end");
    if held != table && std::env::var_os("UPDATE_TIDY").is_some() {
        fs::write(&path, [before, TABLE_START, &table, TABLE_END, after].concat()).unwrap();
        return;
    }
    assert_eq!(held, table, "write it anew: UPDATE_TIDY=1 cargo test --test tidy");
}

/// What the checker says about one line in a file of `src/`.
fn verdict(file: &str, code: &str) -> String {
    check_src(file, &format!("//! Doc.\n{code}\n")).join("\n")
}

#[test]
fn an_import_upwards_is_caught_however_it_is_written() {
    for code in [
        "use crate::ui::Theme;",
        "use crate::{model::Time, ui::{theme, pane::Pane}};",
        "use crate::ui as drawing;",
        "use super::super::ui;",
        "fn f() -> crate::ui::Theme { crate::ui::Theme::FULL }",
        "fn f() { assert!(crate::ui::ok()); }",
        "mod inner { use super::super::super::ui::Theme; }",
    ] {
        assert!(verdict("src/store/series.rs", code).contains("`store` must not import `ui`"), "{code}");
    }
    assert!(verdict("src/lamp/mod.rs", "").contains("has no rank"));
}

#[test]
fn what_is_allowed_passes() {
    for code in [
        "use crate::model::{Time, Metric};",
        "use super::Retention;",
        "use std::time::Duration;",
        "use crate::store::Window;",
        "#[cfg(test)] mod tests { use crate::ui::Theme; fn f() { println!(\"{:?}\", std::time::Instant::now()); } }",
    ] {
        assert_eq!(verdict("src/store/series.rs", code), "", "{code}");
    }
    assert_eq!(verdict("src/model/clock.rs", "use std::time::{Instant, SystemTime};"), "");
    assert_eq!(verdict("src/cli.rs", "fn f() { println!(\"x\"); }"), "");
    for code in [
        "fn f() { rustix::process::set_parent_process_death_signal(None); }",
        "fn f() { sys::cuMemsetD8_v2(1, 0, 1); sys::cublasLtMatmul(1); }",
        "fn f() { std::process::id(); setup(); reset(); }",
    ] {
        assert_eq!(verdict("src/probe/link.rs", code), "", "{code}");
    }
    assert_eq!(verdict("src/probe/child.rs", "use std::process::{Command, Stdio};"), "");
}

#[test]
fn what_may_be_set_may_be_set_there_and_nowhere_else() {
    for (name, place, why) in ALLOWED_SETTERS {
        assert!(is_setter(name) && why.len() > 40, "{name}");
        for code in [format!("fn f() {{ sys::{name}(1); }}"), format!("fn f() {{ load(\"{name}\"); }}")] {
            assert_eq!(verdict(&format!("{place}x.rs"), &code), "", "{name}");
            for elsewhere in ["src/probe/hbm.rs", "src/sampler/nvml/mod.rs", "src/runtime/probes.rs"] {
                assert!(verdict(elsewhere, &code).contains("changes a GPU"), "{name} in {elsewhere}");
            }
        }
        // Only by its whole name.
        let longer = format!("fn f() {{ load(\"{name}_v2\"); }}");
        assert!(verdict(&format!("{place}x.rs"), &longer).contains("changes a GPU"), "{name}_v2");
    }
}

#[test]
fn each_rule_is_caught() {
    for (file, code, rule) in [
        ("src/store/mod.rs", "use std::time::{Duration, Instant};", "reads a clock"),
        ("src/ui/mod.rs", "fn f() { std::time::SystemTime::now(); }", "reads a clock"),
        ("src/app/mod.rs", "fn f(t: T) { t.elapsed(); }", "reads a clock"),
        ("src/app/mod.rs", "use tokio::sync::mpsc;", "`tokio` is for"),
        ("src/engine/mod.rs", "fn f() { tokio::spawn(async {}); }", "`tokio` is for"),
        ("src/derive/mod.rs", "use ratatui::style::Color;", "`ratatui` is for"),
        ("src/ui/mod.rs", "fn f() { eprintln!(\"x\"); }", "`eprintln!` is for"),
        ("src/sampler/nvml.rs", "fn f(d: D) { d.set_power_limit(1); }", "may change a GPU"),
        ("src/sampler/nvml/mod.rs", "fn f(l: L) { l.nvmlDeviceResetGpuLockedClocks(); }", "changes a GPU"),
        ("src/sampler/nvml/mod.rs", "fn f() { load(b\"nvmlGpmSetStreamingEnabled\"); }", "changes a GPU"),
        ("src/sampler/nvml/mod.rs", "use sys::nvmlDeviceSetPersistenceMode;", "changes a GPU"),
        ("src/probe/hbm.rs", "fn f(c: C) { c.set_limit(1); }", "may change a GPU"),
        ("src/probe/hbm.rs", "fn f() { result::ctx::set_limit(1); }", "may change a GPU"),
        ("src/probe/hbm.rs", "use cudarc::driver::result::mem_pool::set_attribute;", "may change a GPU"),
        ("src/probe/cuda/raw.rs", "fn f() { sys::cuCtxSetLimit(1, 2); }", "changes a GPU"),
        ("src/probe/cuda/raw.rs", "fn f() { sys::cuDevicePrimaryCtxReset_v2(1); }", "changes a GPU"),
        ("src/probe/cuda/raw.rs", "fn f() { load(b\"cudaDeviceSetLimit\"); }", "changes a GPU"),
        ("src/probe/cuda/raw.rs", "fn f() { load(\"cublasSetMathMode\"); }", "changes a GPU"),
        ("src/probe/cuda/raw.rs", "fn f() { sys::cuFuncSetCacheConfig(1, 2); }", "changes a GPU"),
        ("src/probe/cuda/kernel.rs", "fn f(k: K) { k.set_attribute(1, 2); }", "may change a GPU"),
        ("src/probe/hbm.rs", "use std::process::Command;", "starts a process"),
        ("src/runtime.rs", "fn f() { std::process::Command::new(\"sh\"); }", "starts a process"),
        ("src/sampler/mod.rs", "use cudarc::driver::CudaContext;", "`cudarc` is for"),
    ] {
        assert!(verdict(file, code).contains(rule), "{file}: {code}");
    }
    assert!(check_any("x.rs", "use std::fmt;").join("").contains("module doc"));
    assert!(check_any("x.rs", &"//!\n".repeat(MAX_LINES + 1)).join("").contains("lines"));
    assert_eq!(check_text("x.md", &["see /wo", "rk/x"].concat()).len(), 1);
}
