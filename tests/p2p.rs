//! The probe of pairs on GPUs whose links are known: figures, names, advice and words are those of these links, and what
//! arrives wrong is found. A fake NVML shows idle GPUs; the run's process meets a driver whose clock is counted, and an NCCL
//! of the case or none.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

#[path = "fake-nvml/mod.rs"]
mod fake_nvml;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use warptop::probe::report::{Ending, Report};

/// Compiles one of the fakes.
fn compile(source: &str, library: &Path, definitions: &[&str], rest: &[&str]) {
    let output = Command::new("cc")
        .args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"])
        .arg(library)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake-cuda").join(source))
        .args(definitions.iter().map(|definition| format!("-D{definition}")))
        .args(rest)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// What NCCL is there.
enum Nccl<'a> {
    Broken,
    With(&'a [&'a str]),
}

/// The probe on so many H200 with these links: exit code, report, all that was shown.
fn run(gpus: usize, links: &[&str], nccl: &Nccl<'_>, args: &[&str]) -> (i32, Report, String) {
    let folder = tempfile::tempdir().unwrap();
    let count = format!("GPUS={gpus}");
    let at = |name: &str| folder.path().join(name);
    fake_nvml::compile(
        folder.path(),
        &["IDLE", "ALIKE=1", &count, "UUID=\"GPU-00010203-0405-0607-0809-0a0b0c0d0e0%d\""],
    );
    let cuda = at("libcuda.so.1");
    compile("peers.c", &cuda, &[&[count.as_str()], links].concat(), &["-Wl,-soname,libcuda.so.1"]);
    symlink(&cuda, at("libcuda.so")).unwrap();
    match nccl {
        // Under another name, so that the run of another test, which looks what processes have loaded, does not find it.
        Nccl::With(definitions) => {
            compile("nccl.c", &at("fake.so"), definitions, &[cuda.to_str().unwrap()]);
            symlink(at("fake.so"), at("libnccl.so.2")).unwrap();
        }
        // The loader finds these first, wherever a real one is.
        Nccl::Broken => {
            for name in ["libnccl.so.2", "libnccl.so"] {
                fs::write(at(name), "half a download").unwrap();
            }
        }
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_warptop"));
    command.args(["probe", "p2p", "--yes", "--json", "--no-discover", "--mib", "16", "--seconds", "0.01"]).args(args);
    // No Python's packages, which may have a real NCCL.
    command.env_clear().env("HOME", folder.path()).env("XDG_STATE_HOME", folder.path());
    command.env("LD_LIBRARY_PATH", folder.path()).stdin(Stdio::null());
    let Output { status, stdout, stderr } = command.output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    let report = serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}\n{stderr}"));
    (status.code().unwrap_or(-1), report, format!("{stdout}{stderr}"))
}

/// Likewise, where the run ends with a result.
fn done(gpus: usize, links: &[&str], nccl: &Nccl<'_>, args: &[&str]) -> (i32, Report) {
    let (code, report, shown) = run(gpus, links, nccl, args);
    assert_eq!(report.ending, Ending::Done, "{shown}");
    (code, report)
}

/// That a figure is what the links make it; nothing is rounded but the times of events, which are floats.
fn is(report: &Report, id: &str, right: f64) {
    let figure = report.figure(id).unwrap_or_else(|| panic!("no {id}"));
    assert!((figure.value / right - 1.0).abs() < 1e-4 && figure.lo >= figure.hi * 0.9999, "{figure:?}, not {right}");
}

fn method<'a>(report: &'a Report, id: &str) -> &'a str {
    &report.figure(id).unwrap_or_else(|| panic!("no {id}")).method
}

/// What failed of a run's checks, with why.
fn wrong(report: &Report) -> Vec<String> {
    let failed = report.checks.iter().filter(|check| !check.passed);
    failed.map(|check| format!("{} ({})", check.what, check.detail)).collect()
}

fn has(words: &[String], all: &[&str]) {
    assert!(words.iter().any(|said| all.iter().all(|part| said.contains(part))), "no {all:?} in {words:?}");
}

/// Every ordered pair.
fn pairs(gpus: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..gpus).flat_map(move |from| (0..gpus).filter(move |to| *to != from).map(move |to| (from, to)))
}

#[test]
fn two_gpus_with_nvlink_are_as_fast_as_their_links() {
    let links =
        ["RATE=(from == 0 ? 390 : 385)", "PEER_NS=(from == 0 ? 900 : 950)", "COPY_NS=(from == 0 ? 2500 : 2600)"];
    let (code, report) = done(2, &links, &Nccl::With(&[]), &[]);
    assert_eq!((code, wrong(&report)), (0, vec![]), "{:?}", report.verdict);
    assert_eq!(report.checks.len(), 3, "{:?}", report.checks);
    for (id, right) in [
        ("bw_0_1", 390.0),
        ("bw_1_0", 385.0),
        // Until the slower of them is done.
        ("bi_0_1", 2.0 * 385.0),
        ("lat_0_1", 900.0),
        ("lat_1_0", 950.0),
        ("copy_0_1", 2.5),
        ("copy_1_0", 2.6),
        ("worst_pair", 385.0),
        ("ring_worst_hop", 385.0),
        // 20 µs and 300 GB/s; with two GPUs the bus carries what is summed.
        ("allreduce_1m", 20.0 + 1.048_576 / 0.3),
        ("allreduce_16m", 20.0 + 16.777_216 / 0.3),
        ("allreduce_16m_bus", 16_777.216 / (20.0 + 16.777_216 / 0.3)),
    ] {
        is(&report, id, right);
    }
    assert!(method(&report, "worst_pair").starts_with("GPU 1 → 0, by NVLink"), "{}", method(&report, "worst_pair"));
    let both = report.results.iter().find(|judged| judged.figure.id == "bi_0_1").unwrap();
    assert_eq!(both.datasheet, Some(900.0), "450 each way");
    assert!(report.environment.facts["GPU 0 → 1"].contains("carried by NVLink (inferred)"));
    assert!(report.environment.facts["NCCL"].starts_with("2.27.3 ("));
    has(&report.notes, &["all-reduce of 16 in place of 64 MiB: --mib allows no more"]);
    assert_eq!(report.verdict.advice, [""; 0]);
}

#[test]
fn a_slow_pair_is_named_and_a_ring_goes_round_it() {
    // Every pair has a rate of its own, so that none is taken for another.
    let rate = |from, to| if (from, to) == (2, 3) { 190.0 } else { 370.0 + 4.0 * from as f64 + to as f64 };
    let links = ["RATE=(from == 2 && to == 3 ? 190 : 370 + 4 * from + to)", "PEER_NS=(900 + 10 * from + to)"];
    let (code, report) = done(4, &links, &Nccl::With(&[]), &[]);
    assert_eq!((code, wrong(&report)), (3, vec![]), "half of what an H200 has been seen to do: {:?}", report.verdict);
    for (from, to) in pairs(4) {
        is(&report, &format!("bw_{from}_{to}"), rate(from, to));
        is(&report, &format!("lat_{from}_{to}"), 900.0 + 10.0 * from as f64 + to as f64);
        if from < to {
            is(&report, &format!("bi_{from}_{to}"), 2.0 * rate(from, to).min(rate(to, from)));
        }
    }
    is(&report, "worst_pair", 190.0);
    assert!(method(&report, "worst_pair").starts_with("GPU 2 → 3, by NVLink"), "{}", method(&report, "worst_pair"));
    let ring = method(&report, "ring_worst_hop");
    assert!(ring.contains("in the order 0 → ") && !ring[ring.find("order").unwrap()..].contains("2 → 3"), "{ring}");
    let (from, to) = pairs(4).find(|(from, to)| ring.starts_with(&format!("GPU {from} → {to},"))).unwrap();
    is(&report, "ring_worst_hop", rate(from, to));
    has(&report.notes, &["a ring in the order 0 → ", "in the order 0 → 1 → 2 → 3 190"]);
    has(&report.verdict.advice, &["GPU 2 → 3 at 190 GB/s, others like it at", "nvidia-smi nvlink -s"]);
    let of_pairs = report.verdict.advice.iter().filter(|words| words.contains(" → "));
    assert_eq!(of_pairs.count(), 1, "{:?}", report.verdict.advice);
    // Four GPUs: 2 (n − 1) / n.
    is(&report, "allreduce_16m_bus", 1.5 * 16_777.216 / (20.0 + 16.777_216 / 0.3));

    // So slow that it did not go over NVLink.
    let (_, report) = done(3, &["RATE=(from == 1 && to == 2 ? 24 : 390)"], &Nccl::Broken, &["--nccl", "off"]);
    has(&report.verdict.advice, &["GPU 1 → 2 at PCIe's pace where this model has NVLink"]);
    assert!(report.environment.facts["GPU 1 → 2"].contains("carried by PCIe (inferred)"));
    has(&report.notes, &["it was not asked for"]);
    is(&report, "ring_worst_hop", 390.0);
}

#[test]
fn without_peer_access_it_goes_through_the_host_and_says_so() {
    let (_, report) = done(2, &["ACCESS=0", "HOST_RATE=9"], &Nccl::Broken, &[]);
    assert_eq!((wrong(&report), report.checks.len()), (vec![], 1), "no loads to check");
    is(&report, "bw_0_1", 9.0);
    is(&report, "worst_pair", 9.0);
    assert!(report.figure("lat_0_1").is_none() && report.figure("copy_0_1").is_some());
    assert!(method(&report, "worst_pair").contains("by host"));
    assert!(report.environment.facts["GPU 1 → 0"].starts_with("no peer access, rank 0; carried by host;"));
    has(&report.notes, &["copies go through the host's memory, loads are not possible"]);
    has(&report.verdict.advice, &["no peer access GPU 0 → 1, GPU 1 → 0"]);
    has(&report.verdict.advice, &["is the fabric manager running"]);

    // The driver does not let one of the ways be opened, which it said was possible.
    let (_, report) = done(2, &["REFUSE=(from == 0)", "HOST_RATE=9"], &Nccl::Broken, &[]);
    is(&report, "bw_0_1", 9.0);
    is(&report, "bw_1_0", 380.0);
    assert!(report.figure("lat_0_1").is_none() && report.figure("lat_1_0").is_some());
    let said = &report.environment.facts["GPU 0 → 1"];
    assert!(said.contains("peer access refused (CUDA_ERROR_TOO_MANY_PEERS (text of the driver))"), "{said}");
}

/// Fault: driver: NCCL is broken, too old, or does not start
/// Seen: `no all-reduce: libnccl.so.2 will not do`, and why
/// Works: the pairs and rings of GPUs
/// Recovers: with a whole NCCL
#[test]
fn an_nccl_that_is_broken_or_does_not_work_leaves_the_rest_standing() {
    for (nccl, words) in [
        (Nccl::Broken, &["no all-reduce: libnccl.so.2 will not do: it cannot be loaded: ", "file too short"][..]),
        (Nccl::With(&["OLD"]), &["no all-reduce: libnccl.so.2 will not do", "it has no function ncclCommInitAll"]),
        (Nccl::With(&["FAILS=2"]), &["no all-reduce: NCCL: starting did not work: unhandled system error"]),
    ] {
        let (code, report) = done(2, &[], &nccl, &[]);
        assert_eq!((code, wrong(&report), report.checks.len()), (0, vec![], 2), "{:?}", report.verdict);
        has(&report.notes, words);
        is(&report, "worst_pair", 380.0);
        assert!(!report.results.iter().any(|judged| judged.figure.id.starts_with("allreduce")), "{words:?}");
        let broken = report.verdict.advice.iter().any(|words| words.contains("NCCL is here and does not work"));
        assert_eq!(broken, words[0].contains("starting"), "{:?}", report.verdict.advice);
    }
}

#[test]
fn sums_that_are_wrong_are_found_and_slow_ones_are_kept_short() {
    let (code, report) = done(2, &[], &Nccl::With(&["WRONG=1"]), &[]);
    assert_eq!(code, 3, "{:?}", report.verdict);
    assert!(report.verdict.summary.contains("the computation was wrong: all-reduce"), "{:?}", report.verdict);
    assert_eq!(wrong(&report).len(), 1, "{:?}", report.checks);
    has(&wrong(&report), &["1 MiB: 2 of 524288 are wrong", "16 MiB: 2 of 8388608 are wrong"]);

    // 16 MiB would take 8 ms; what takes longer than 5 ends the process.
    let (_, report) = done(2, &[], &Nccl::With(&["GB_PER_S=2"]), &[]);
    assert_eq!(wrong(&report), [""; 0]);
    is(&report, "allreduce_4m", 20.0 + 4.194_304 / 0.002);
    assert!(report.figure("allreduce_16m").is_none());
    has(&report.notes, &["all-reduce of 4 in place of 64 MiB: it would take longer"]);
}

/// Fault: driver: what one GPU sends to another arrives wrong
/// Seen: `the computation was wrong: copies`, and between which GPUs
/// Works: the rest of the report
/// Recovers: with another link
#[test]
fn what_arrives_wrong_is_found() {
    let off = ["--nccl", "off"];
    let (code, report) = done(2, &["LOSE=(from == 1)"], &Nccl::Broken, &off);
    assert_eq!(code, 3, "{:?}", report.verdict);
    assert!(report.verdict.summary.contains("the computation was wrong: copies"), "{:?}", report.verdict);
    assert_eq!(wrong(&report).len(), 1, "{:?}", report.checks);
    has(&wrong(&report), &["GPU 1 → 0: 1 of 2097152 words differ"]);
    assert!(!wrong(&report)[0].contains("GPU 0 → 1:"), "{:?}", report.checks);
    // The same over both ways at once.
    has(&wrong(&report), &["GPU 0 ↔ 1: 1 of "]);

    let (code, report) = done(2, &["MISREAD=(from == 0)"], &Nccl::Broken, &off);
    assert_eq!((code, wrong(&report).len()), (3, 1), "{:?}", report.verdict);
    has(&wrong(&report), &["loads: where each chain ended", "loads GPU 0 ← 1: ended at "]);
    assert!(!wrong(&report)[0].contains("GPU 1 ← 0"), "{:?}", report.checks);
}
