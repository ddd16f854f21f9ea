//! The kernels that are shipped: each PTX is what its source compiles to, old enough for the drivers that are
//! supported, and holds every kernel that a probe asks for.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};

/// Newest language that a kernel may be written in: what the drivers of CUDA 12.0 take, 525 and later.
const NEWEST: (u32, u32) = (8, 0);

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Files below `dir` with this ending, sorted.
fn files(dir: &Path, ending: &str) -> Vec<PathBuf> {
    let mut out = Vec::new();
    for path in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            out.extend(files(&path, ending));
        } else if path.extension().is_some_and(|e| e == ending) {
            out.push(path);
        }
    }
    out.sort();
    out
}

fn kernels() -> PathBuf {
    root().join("assets/kernels")
}

/// What stands behind `word` on the first line that begins with it.
fn after<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(word)).map(str::trim)
}

/// Names of the kernels in a PTX.
fn entries(ptx: &str) -> Vec<&str> {
    ptx.lines()
        .filter_map(|line| Some(line.trim_start().strip_prefix(".visible .entry ")?.split_once('(')?.0))
        .collect()
}

/// What is wrong with a PTX, given its source and the file that sources include.
fn faults(name: &str, ptx: &str, source: &str, common: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut crc = flate2::Crc::new();
    crc.update(source.as_bytes());
    crc.update(common.as_bytes());
    let stamp = format!("// written by regenerate.py from {name}.cu, crc32 {:08x}", crc.sum());
    if ptx.lines().next() != Some(&stamp) {
        found.push(format!(
            "is not of the source as it is now (wants '{stamp}'): run assets/kernels/regenerate.py {name}"
        ));
    }
    let version = after(ptx, ".version").and_then(|v| v.split_once('.')).map(|(a, b)| (a.parse(), b.parse()));
    match version {
        Some((Ok(major), Ok(minor))) if (major, minor) <= NEWEST => {}
        _ => found.push(format!("is of version {version:?}; drivers are only sure to take {NEWEST:?}")),
    }
    let target = after(source, "// ptx: compute_").unwrap_or("nothing");
    if after(ptx, ".target") != Some(&format!("sm_{target}")) {
        found.push(format!("is not for compute_{target}, as the first line of the source wants"));
    }
    if ptx.contains(".extern .func") {
        found.push("calls a function that nobody brings along".to_owned());
    }
    if source.lines().any(|line| line.starts_with("#include") && line != "#include \"common.cuh\"") {
        found.push("includes what the check sum does not cover".to_owned());
    }
    if entries(ptx).is_empty() {
        found.push("holds no kernel".to_owned());
    }
    found
}

#[test]
fn every_ptx_is_of_its_source_and_old_enough() {
    let common = read(&kernels().join("common.cuh"));
    let (sources, compiled) = (files(&kernels(), "cu"), files(&kernels(), "ptx"));
    assert!(sources.len() >= 3, "{sources:?}");
    let stems = |paths: &[PathBuf]| paths.iter().map(|path| path.with_extension("")).collect::<Vec<_>>();
    assert_eq!(stems(&sources), stems(&compiled), "each source has its PTX, and each PTX its source");
    let mut all = Vec::new();
    for (source, ptx) in sources.iter().zip(&compiled) {
        let name = source.file_stem().unwrap().to_string_lossy().into_owned();
        let found = faults(&name, &read(ptx), &read(source), &common);
        all.extend(found.into_iter().map(|fault| format!("{name}.ptx {fault}")));
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}

#[test]
fn each_fault_of_a_ptx_is_found() {
    let common = read(&kernels().join("common.cuh"));
    let (source, ptx) = (read(&kernels().join("random.cu")), read(&kernels().join("random.ptx")));
    let of = |ptx: &str, source: &str| faults("random", ptx, source, &common).join("\n");
    assert_eq!(of(&ptx, &source), "");
    assert!(of(&ptx, &source.replace("wrong", "right")).contains("not of the source"));
    assert!(faults("random", &ptx, &source, "//").join("").contains("not of the source"));
    assert!(of(&ptx.replace(".version 7.8", ".version 8.1"), &source).contains("is of version"));
    assert!(of(&ptx.replace(".version 7.8", ".version 10.0"), &source).contains("is of version"));
    assert!(of(&ptx.replace(".target sm_70", ".target sm_90"), &source).contains("is not for compute_70"));
    assert!(of(&ptx, &source.replace("compute_70", "compute_90a")).contains("is not for compute_90a"));
    assert!(of(&(ptx.clone() + ".extern .func vprintf"), &source).contains("nobody brings along"));
    assert!(of(&ptx, &(source + "#include <cuda_fp16.h>\n")).contains("does not cover"));
    assert!(
        of(&ptx.replace(".visible .entry", ".visible .func"), &read(&kernels().join("random.cu")))
            .contains("no kernel")
    );
}

/// What a source file says of kernels: the PTX files that it includes, and the names that it asks for, `*` standing for
/// what is only known when it runs.
#[derive(Default)]
struct Asks {
    includes: Vec<String>,
    names: Vec<String>,
}

impl<'ast> Visit<'ast> for Asks {
    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        if call.method == "kernel" {
            self.names.extend(call.args.first().and_then(pattern));
        }
        visit::visit_expr_method_call(self, call);
    }
    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        if item.path.is_ident("include_str")
            && let Ok(file) = item.parse_body::<syn::LitStr>()
        {
            let file = file.value();
            self.includes.extend(file.rsplit_once("assets/kernels/").map(|(_, name)| name.to_owned()));
        }
        visit::visit_macro(self, item);
    }
}

/// The name that an argument stands for; `None` when it is only known when it runs.
fn pattern(argument: &syn::Expr) -> Option<String> {
    match argument {
        syn::Expr::Reference(reference) => pattern(&reference.expr),
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
        syn::Expr::Macro(call) if call.mac.path.is_ident("format") => {
            let tokens = call.mac.tokens.clone().into_iter().next()?.to_string();
            let text = syn::parse_str::<syn::LitStr>(&tokens).ok()?.value();
            // `{}` or `{name}` becomes `*`.
            let mut parts = text.split('{');
            let mut out = parts.next()?.to_owned();
            for part in parts {
                out.push('*');
                out.push_str(part.split_once('}')?.1);
            }
            Some(out)
        }
        _ => None,
    }
}

/// Whether `name` is what `pattern` stands for.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, rest)) => name
            .strip_prefix(start)
            .is_some_and(|name| (1..=name.len()).any(|at| name.get(at..).is_some_and(|end| matches(rest, end)))),
    }
}

/// Kernels that a source file asks for and that no PTX which it includes holds.
fn missing(source: &str, held: &BTreeMap<String, Vec<String>>) -> (usize, Vec<String>) {
    let mut asks = Asks::default();
    asks.visit_file(&syn::parse_file(source).unwrap());
    // Part of a probe whose other file includes them: any will do.
    let here: Vec<&String> = if asks.includes.is_empty() {
        held.values().flatten().collect()
    } else {
        asks.includes.iter().filter_map(|file| held.get(file)).flatten().collect()
    };
    let absent = asks.names.iter().filter(|pattern| !here.iter().any(|name| matches(pattern, name)));
    let files = asks.includes.iter().filter(|file| !held.contains_key(*file));
    (asks.names.len(), absent.chain(files).cloned().collect())
}

fn held() -> BTreeMap<String, Vec<String>> {
    let name = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
    let of = |path: &PathBuf| entries(&read(path)).into_iter().map(ToOwned::to_owned).collect();
    files(&kernels(), "ptx").iter().map(|path| (name(path), of(path))).collect()
}

#[test]
fn every_kernel_that_is_asked_for_is_there() {
    let held = held();
    let mut asked = 0;
    for path in files(&root().join("src/probe"), "rs") {
        let (names, absent) = missing(&read(&path), &held);
        assert!(absent.is_empty(), "{} asks for what is not in its PTX: {absent:?}", path.display());
        asked += names;
    }
    assert!(asked >= 5, "{asked}: kernels are no longer found in the sources");
}

#[test]
fn a_kernel_that_is_not_there_is_found() {
    let held = held();
    let says = |code: &str| {
        let include = r#"const A: &str = include_str!("../../assets/kernels/hbm.ptx"); "#;
        missing(&format!("{include} fn f() {{ {code} }}"), &held).1
    };
    assert_eq!(says(r#"m.kernel("copy_u8_cs")"#), [""; 0]);
    assert_eq!(says(r#"m.kernel(&format!("{}_u{n}", op.name()))"#), [""; 0]);
    assert_eq!(says(r#"m.kernel("fill_words")"#), ["fill_words"], "it is in another file");
    assert_eq!(says(r#"m.kernel(&format!("{}_v{}", a, b))"#), ["*_v*"]);
    assert_eq!(says(r#"include_str!("../assets/kernels/none.ptx")"#), ["none.ptx"]);
    assert_eq!(missing(r#"fn f() { m.kernel("fill_words"); m.kernel("nothing") }"#, &held).1, ["nothing"]);
    assert!(matches("a*c", "abc") && !matches("a*c", "ac") && !matches("a*c", "abd") && matches("*", "x"));
}
