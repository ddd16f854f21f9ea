//! A GPU probe where the CUDA driver's library, or cuBLASLt, is missing, broken, incomplete, unwilling or hangs: clear
//! words, the exit code as documented, nothing left over. A fake NVML shows an idle GPU, so that the run is admitted; its process then
//! meets the library of the case.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

#[path = "fake-nvml/mod.rs"]
mod fake_nvml;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use warptop::probe::protocol::Request;
use warptop::probe::report::{Ending, Level, Report};
use warptop::probe::{GpuName, Needs, PROBES, Params, Target, Value};

/// Longest that anything here may take; a test that waits this long has failed.
const PATIENCE: Duration = Duration::from_mins(1);

/// Of the device in NVML, as device.c has it.
const UUID: &str = "UUID=\"GPU-00010203-0405-0607-0809-0a0b0c0d0e0%d\"";

/// A folder with the fake libraries and the state of warptop.
struct Machine(tempfile::TempDir);

impl Machine {
    /// With an idle GPU, and no CUDA.
    fn new() -> Self {
        Self::showing(&["IDLE"])
    }

    fn showing(nvml: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fake_nvml::compile(folder.path(), nvml);
        Self(folder)
    }

    /// With a CUDA library that does not get as far as a device.
    fn with_cuda(definitions: &[&str]) -> Self {
        Self::new().and("fake.c", definitions)
    }

    /// With a CUDA library whose device takes a known time for each launch.
    fn with_device(definitions: &[&str]) -> Self {
        Self::showing(&["IDLE", UUID]).and("device.c", definitions)
    }

    /// With one of a product that nothing is known about: no figure of it is too low.
    fn with_unheard_of(definitions: &[&str]) -> Self {
        Self::showing(&["IDLE", UUID, "NAME=\"NVIDIA Unheard Of\""]).and("device.c", definitions)
    }

    fn and(self, source: &str, definitions: &[&str]) -> Self {
        self.compile(source, definitions, "libcuda.so.1");
        // Under both names: where there is a real one, it must not be found first.
        fs::copy(self.0.path().join("libcuda.so.1"), self.0.path().join("libcuda.so")).unwrap();
        self
    }

    fn compile(&self, source: &str, definitions: &[&str], library: &str) {
        let output = Command::new("cc")
            .args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"])
            .arg(self.0.path().join(library))
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake-cuda").join(source))
            .args(definitions.iter().map(|definition| format!("-D{definition}")))
            .arg("-lm")
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    fn command(&self, probe: &str, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_warptop"));
        command.args(["probe", probe, "--yes", "--no-discover"]).args(args);
        command.env("XDG_STATE_HOME", self.0.path()).env("LD_LIBRARY_PATH", self.0.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// What it comes to: exit code, report, and all that was shown.
    fn run(&self) -> (i32, Report, String) {
        self.end(&mut self.command("hbm", &["--json"]))
    }

    fn end(&self, command: &mut Command) -> (i32, Report, String) {
        let Output { status, stdout, stderr } = command.output().unwrap();
        let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
        let report = serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}\n{stderr}"));
        self.is_left_alone();
        (status.code().unwrap_or(-1), report, format!("{stdout}{stderr}"))
    }

    fn processes(&self) -> Vec<u32> {
        let mine = self.0.path().to_str().unwrap().as_bytes().to_vec();
        let of = |pid: &u32| {
            let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let ended = state.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']));
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            !ended && environment.windows(mine.len()).any(|part| part == mine)
        };
        let all = fs::read_dir("/proc").unwrap().flatten();
        all.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(of).collect()
    }

    fn is_left_alone(&self) {
        assert_eq!(self.processes(), [0; 0], "a process is left");
    }
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < PATIENCE, "{what} does not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Words that belong to a developer's console, not to a user's screen.
fn is_clear(shown: &str) {
    for word in ["panicked", "RUST_BACKTRACE", "unwrap", "src/", ".rs:"] {
        assert!(!shown.contains(word), "'{word}' in: {shown}");
    }
}

/// Whether this machine's loader knows a library. Asked of the loader itself, by a program of one line.
fn is_known(names: &[&str]) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("has.c"), folder.path().join("has"));
    let missing: Vec<_> = names.iter().map(|name| format!("!dlopen(\"{name}\", RTLD_LAZY)")).collect();
    let code = format!("#include <dlfcn.h>\nint main(void) {{ return {}; }}\n", missing.join(" && "));
    fs::write(&source, code).unwrap();
    assert!(Command::new("cc").arg(&source).arg("-o").arg(&program).arg("-ldl").status().unwrap().success());
    Command::new(&program).status().unwrap().success()
}

/// Fault: driver: CUDA is not on this machine
/// Seen: `is not on this machine`, and what brings it
/// Works: all but GPU probes
/// Recovers: with the driver
#[test]
fn without_the_library_it_says_what_why_and_what_to_do() {
    if is_known(&["libcuda.so.1", "libcuda.so"]) {
        // The loader cannot be made to forget it. The broken library below is the same path through the program.
        return;
    }
    let machine = Machine::new();
    let (code, report, shown) = machine.run();
    assert_eq!((code, report.ending), (4, Ending::Refused), "{shown}");
    let why = report.why.unwrap();
    for words in ["libcuda.so.1) is not on this machine", "comes with NVIDIA's driver", "capability 'compute'"] {
        assert!(why.contains(words), "{why}");
    }
    is_clear(&shown);
    // And without JSON: the page and what stands beside it.
    let output = machine.command("hbm", &[]).output().unwrap();
    let page = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(4) && page.contains("is not on this machine"), "{page}");
    is_clear(&page);
}

/// Fault: driver: the CUDA library is broken
/// Seen: `cannot be loaded`, and what to do
/// Works: all but GPU probes
/// Recovers: with a whole one
#[test]
fn a_library_that_is_none_is_told_apart_from_a_missing_one() {
    let machine = Machine::new();
    for name in ["libcuda.so", "libcuda.so.1"] {
        fs::write(machine.0.path().join(name), "half a download").unwrap();
    }
    let (code, report, shown) = machine.run();
    let why = report.why.unwrap();
    assert_eq!((code, report.ending), (4, Ending::Refused), "{shown}");
    assert!(why.contains("cannot be loaded") && why.contains("libcuda.so.1") && why.contains("install"), "{why}");
    is_clear(&shown);
}

/// Fault: driver: CUDA does not start: no device, another version, no fabric manager, a crash
/// Seen: the name of the error, and what to do: `CUDA_ERROR_SYSTEM_DRIVER_MISMATCH`, `fabric manager`
/// Works: all but GPU probes
/// Recovers: once that is mended
#[test]
fn each_way_of_not_starting_has_its_words() {
    for (definitions, code, ending, words) in [
        (&["INIT=34"][..], 4, Ending::Refused, &["CUDA_ERROR_STUB_LIBRARY", "'stubs' out of LD_LIBRARY_PATH"][..]),
        (&["INIT=100"], 4, Ending::Refused, &["CUDA_ERROR_NO_DEVICE (text of the driver)", "MIG"]),
        (&["INIT=802"], 4, Ending::Refused, &["CUDA_ERROR_SYSTEM_NOT_READY", "fabric manager"]),
        (&["INIT=803"], 4, Ending::Refused, &["CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "without a restart"]),
        (&["INIT=999"], 4, Ending::Refused, &["CUDA_ERROR_UNKNOWN", "nvidia-uvm"]),
        // The driver has no text for its own error.
        (&["INIT=304"], 4, Ending::Refused, &["CUDA_ERROR_OPERATING_SYSTEM", "nvidia-smi"]),
        (&["NO_INIT"], 4, Ending::Refused, &["has no cuInit", "update the GPU driver"]),
        (&["NO_DEVICE"], 4, Ending::Refused, &["has no cuDeviceGetCount", "update the GPU driver"]),
        (&[], 4, Ending::Refused, &["has no cuDeviceGet", "update the GPU driver"]),
        (&["CRASH"], 1, Ending::Failed, &["without a result (killed by signal 11"]),
    ] {
        let machine = Machine::with_cuda(definitions);
        let (found, report, shown) = machine.run();
        assert_eq!((found, report.ending), (code, ending), "{definitions:?}: {shown}");
        let why = report.why.unwrap();
        assert!(words.iter().all(|words| why.contains(words)), "{definitions:?}: no {words:?} in '{why}'");
        is_clear(&shown);
    }
}

#[test]
fn every_gpu_probe_has_these_words() {
    let machine = Machine::with_cuda(&["INIT=803"]);
    let gpu = PROBES.iter().filter(|probe| matches!(probe.spec.needs, Needs::Gpu | Needs::Gpus(_)));
    let ids: Vec<_> = gpu.map(|probe| probe.spec.id).collect();
    assert!(ids.len() >= 2, "{ids:?}");
    for id in ids {
        let (code, report, shown) = machine.end(&mut machine.command(id, &["--json"]));
        assert_eq!((code, report.ending), (4, Ending::Refused), "{id}: {shown}");
        assert!(
            report.why.unwrap().contains("CUDA does not start: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"),
            "{id}: {shown}"
        );
        is_clear(&shown);
    }
}

/// A run whose process hangs in cuInit, and that process.
fn hanging(machine: &Machine) -> (Child, u32) {
    let parent = machine.command("hbm", &["--json"]).spawn().unwrap();
    let mut child = 0;
    until("a process that hangs in the library", || {
        // It sleeps in pause(), with the library loaded.
        let others = machine.processes().into_iter().filter(|&pid| pid != parent.id());
        child = others
            .into_iter()
            .find(|pid| {
                let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
                let call = fs::read_to_string(format!("/proc/{pid}/task/{pid}/wchan")).unwrap_or_default();
                maps.contains("libcuda.so") && (call.is_empty() || call == "0" || call.contains("pause"))
            })
            .unwrap_or(0);
        child != 0
    });
    (parent, child)
}

/// Fault: driver: a call of CUDA does not return
/// Seen: `by the user`
/// Works: Ctrl-C: the probe is killed
/// Recovers: with the next run, once the driver answers
#[test]
fn a_library_that_hangs_is_stopped_and_killed_all_the_same() {
    let machine = Machine::with_cuda(&["HANG"]);
    let (parent, _) = hanging(&machine);
    kill_process(Pid::from_child(&parent), Signal::INT).unwrap();
    let asked = Instant::now();
    let output = parent.wait_with_output().unwrap();
    assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
    let report: Report = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), report.why.as_deref()), (Some(130), Some("by the user")));
    machine.is_left_alone();

    let (mut parent, child) = hanging(&machine);
    parent.kill().unwrap();
    parent.wait().unwrap();
    until("the end of the probe's process", || !machine.processes().contains(&child));
    machine.is_left_alone();
}

/// `launch` on a device that takes a known time for everything.
fn launch(definitions: &[&str], environment: &[(&str, &str)]) -> (i32, Report) {
    let machine = Machine::with_device(definitions);
    let mut command = machine.command("launch", &["--json", "--seconds", "0.02"]);
    let (code, report, shown) = machine.end(command.envs(environment.iter().copied()));
    assert_eq!(report.ending, Ending::Done, "{shown}");
    (code, report)
}

/// A probe on such a device, its smallest run; the wrong checks.
fn small(definitions: &[&str], probe: &str, args: &[&str]) -> (Report, Vec<String>) {
    let machine = Machine::with_device(definitions);
    let least = match probe {
        "hbm" => &["--json", "--seconds", "0.02", "--mib", "16"][..],
        "pcie" => &["--json", "--seconds", "0.02", "--mib", "128"],
        "kvload" => &["--json", "--seconds", "0.02", "--mib", "256"],
        _ => &["--json", "--seconds", "0.02"],
    };
    let (_, report, shown) = machine.end(machine.command(probe, least).args(args));
    assert_eq!(report.ending, Ending::Done, "{shown}");
    let wrong = report.checks.iter().filter(|check| !check.passed).map(|check| check.what.clone()).collect();
    (report, wrong)
}

fn value(report: &Report, id: &str) -> f64 {
    report.figure(id).unwrap_or_else(|| panic!("no {id}")).value
}

#[test]
fn launches_are_as_slow_as_the_device_and_the_driver_make_them() {
    let (_, report) = launch(&["CALL_NS=3000", "KERNEL_NS=2000", "GRAPH_CALL_NS=5000", "NODE_NS=1000"], &[]);
    assert!(report.checks.len() == 5 && report.checks.iter().all(|check| check.passed), "{:?}", report.checks);
    // The device's own time does not depend on how busy this machine is, the host's can only be longer.
    for (id, us) in [("plain", 2.0), ("graph", 1.0), ("graph_10", 1.0), ("graph_1000", 1.0)] {
        let found = value(&report, &format!("{id}_device"));
        assert!((found / us - 1.0).abs() < 0.01, "{id}: {found} µs, not {us}");
    }
    // On a busy machine the smallest is nearer to what was asked for; a wrong divisor is off by ten and more.
    for (id, us) in [
        ("plain", 3.0),
        ("plain_host", 3.0),
        ("sync", 5.0),
        ("graph", 1.0),
        ("graph_10", 1.0),
        ("graph_1000", 1.0),
        ("graph_host", 5.0),
        ("graph_10_host", 5.0),
        ("graph_1000_host", 5.0),
        ("small", 3.0),
        ("small_graph", 1.0),
    ] {
        let figure = report.figure(id).unwrap_or_else(|| panic!("no {id}"));
        assert!(figure.lo >= us && figure.lo < us * 8.0 && figure.value >= figure.lo, "{figure:?}, not {us}");
    }
    // Slower than elsewhere on this product: that is this host's CPU, and no fault.
    assert!(report.notes.iter().any(|words| words.starts_with("the host is the slower side")), "{:?}", report.notes);
    assert!(report.results.iter().any(|judged| judged.pct_of_reference.is_some_and(|pct| pct < 95.0)));
    assert_ne!(report.verdict.level, Level::Failed, "{:?}", report.verdict);
    assert!(report.environment.facts["launching thread"].contains("bound to CPU"), "{:?}", report.environment.facts);
}

#[test]
fn a_slow_device_is_told_from_a_slow_host_and_causes_are_named() {
    let environment = [("CUDA_LAUNCH_BLOCKING", "1"), ("CUDA_INJECTION64_PATH", "libprofile.so")];
    let (_, report) = launch(&["KERNEL_NS=8000"], &environment);
    let device = value(&report, "plain_device");
    assert!((device - 8.0).abs() < 0.08 && value(&report, "plain") >= 8.0, "{device}");
    assert!(report.notes.iter().any(|note| note.contains("the GPU is the slower side")), "{:?}", report.notes);
    for words in ["CUDA_LAUNCH_BLOCKING is set", "libprofile.so"] {
        let advice = &report.verdict.advice;
        assert!(advice.iter().any(|advice| advice.contains(words)), "no '{words}': {advice:?}");
    }
}

#[test]
fn a_launch_that_is_lost_is_found() {
    let (code, report) = launch(&["LOSE=999"], &[]);
    assert_eq!(code, 3, "{:?}", report.verdict);
    assert!(report.verdict.summary.contains("the computation was wrong: plain launches"), "{:?}", report.verdict);
    assert!(report.checks.iter().filter(|check| !check.passed).count() >= 4, "{:?}", report.checks);
}

#[test]
fn what_cannot_be_measured_is_left_out_and_told() {
    let (_, report) = launch(&["NO_HOLD"], &[]);
    assert!(report.figure("plain").is_some() && report.figure("plain_device").is_none());
    assert!(report.notes.iter().any(|note| note.contains("not measured, since the host")), "{:?}", report.notes);
}

#[test]
fn memory_is_as_fast_as_the_device_makes_it_and_what_is_wrong_is_found() {
    let (report, wrong) = small(&["DRAM=16"], "hbm", &[]);
    assert!(wrong.is_empty() && report.checks.len() == 4, "{:?}", report.checks);
    for id in ["read", "write", "copy", "triad", "read_4mib", "triad_16mib"] {
        let found = value(&report, id);
        assert!((found / 16.0 - 1.0).abs() < 0.01, "{id}: {found} GB/s, not 16");
    }
    // A loop that does nothing wins the race: it has to be the one that is checked.
    for op in ["read", "write", "copy", "triad"] {
        let (report, wrong) = small(&["DRAM=16", &format!("BROKEN=\"{op}_u8_cs\"")], "hbm", &[]);
        assert!(value(&report, op) > 24.0, "{op}");
        assert_eq!(wrong, [format!("{op}: compared with the host's arithmetic")]);
    }
}

#[test]
fn copies_are_as_fast_as_the_link_and_the_slower_way_does_not_spoil_the_other() {
    // The ways differ so much that pieces of one are larger than those of the other.
    let (report, wrong) = small(&["H2D=12", "D2H=3", "DRAM=400"], "pcie", &[]);
    assert_eq!(wrong, [""; 0], "{:?}", report.checks);
    for (id, gb_per_s) in [("h2d", 12.0), ("d2h", 3.0), ("h2d_both", 12.0), ("d2h_both", 3.0)] {
        let found = value(&report, id);
        assert!((found / gb_per_s - 1.0).abs() < 0.02, "{id}: {found} GB/s, not {gb_per_s}");
    }
    assert!((value(&report, "h2d_device_64kib") - (1.0 + 65.536 / 12.0)).abs() < 0.1);
    for probe in ["pcie", "kvload"] {
        let (_, wrong) = small(&["LOSE_COPY=3", "DRAM=400"], probe, &[]);
        assert!(!wrong.is_empty(), "{probe}: a third of the copies was lost");
    }
}

/// Whether this machine has a cuBLASLt that a test cannot hide: in its loader's paths, CUDA's directories or a process.
fn has_cublaslt() -> bool {
    let homes = fs::read_dir("/usr/local").unwrap().flatten();
    let mut homes = homes.filter(|home| home.file_name().to_string_lossy().starts_with("cuda"));
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let mut maps = processes.filter_map(|process| fs::read_to_string(process.path().join("maps")).ok());
    homes.any(|home| home.path().join("lib64").exists())
        || maps.any(|maps| maps.contains("libcublasLt"))
        || is_known(&["libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11"])
}

/// The smallest products, away from the Pythons of this machine.
fn products(machine: &Machine, probe: &str, args: &[&str]) -> Command {
    let mut command = machine.command(probe, &["--n", "256"]);
    command.args(args).env("PATH", machine.0.path()).env("HOME", machine.0.path());
    for name in ["CUDA_HOME", "CUDA_PATH", "VIRTUAL_ENV", "CONDA_PREFIX"] {
        command.env_remove(name);
    }
    command
}

const SHORT: [&str; 5] = ["--json", "--bursts", "3", "--pause", "0"];

/// With 8 operations a ns of the device's clock.
fn is_the_rate_of_the_device(report: &Report, id: &str) {
    let figure = report.figure(id).unwrap_or_else(|| panic!("no {id}"));
    let (lo, hi) = (0.008 * 0.99, 0.008 * 1.000_001);
    assert!(figure.unit == "TFLOP/s" && (lo..hi).contains(&figure.value) && figure.hi < hi, "{figure:?}");
}

#[test]
fn without_cublaslt_the_own_kernel_multiplies_and_the_report_says_why() {
    if has_cublaslt() {
        return;
    }
    let machine = Machine::with_unheard_of(&["GEMM=8"]);
    let library = machine.0.path().join("libcublasLt.so.13");
    let path = library.to_str().unwrap();
    for (case, format, words) in [
        (
            "missing",
            "bf16",
            &["no cuBLASLt here (libcublasLt.so.13, ", "the loader's paths and", "LD_LIBRARY_PATH may name"][..],
        ),
        ("text", "bf16", &[path, "libcublasLt.so.13 will not do: it cannot be loaded: ", "invalid ELF header"]),
        ("LACKS", "bf16", &[path, " will not do: it has no function cublasLtMatmul"]),
        ("STATUS=1", "all", &[path, " will not do: cuBLASLt: starting did not work: status 1 (not initialised)"]),
    ] {
        match case {
            "missing" => {}
            "text" => {
                fs::write(&library, "half a download, long enough to have the header of a program\n".repeat(9))
                    .unwrap();
            }
            definition => machine.compile("lt.c", &[definition], "libcublasLt.so.13"),
        }
        let args = [&SHORT[..], &["--format", format]].concat();
        let mut command = products(&machine, "gemm", &args);
        // The same is not measured again at once: each has a place of its own for its reports.
        let (code, report, shown) = machine.end(command.env("XDG_STATE_HOME", machine.0.path().join(case)));
        assert_eq!((code, report.ending), (0, Ending::Done), "{case}: {shown}");
        is_clear(&shown);
        let by = &report.environment.facts["matrix products by"];
        assert_eq!(by, "own tensor-core kernel (mma.sync), not cuBLASLt", "{case}");
        let why =
            report.notes.iter().find(|note| note.starts_with("not measured with cuBLASLt but with the own kernel: "));
        let why = why.unwrap_or_else(|| panic!("{case}: {:?}", report.notes));
        assert!(words.iter().all(|words| why.contains(words)), "{case}: no {words:?} in '{why}'");
        let measured = if format == "all" { &["bf16", "fp16", "tf32"][..] } else { &["bf16"] };
        for id in measured {
            is_the_rate_of_the_device(&report, id);
        }
        assert!(report.checks.len() == 2 * measured.len() && report.checks.iter().all(|check| check.passed), "{shown}");
        // What neither this GPU nor the own kernel has is left out.
        assert!(report.figure("fp8").is_none(), "{case}");
        let note = report.notes.iter().any(|note| note.contains("fp8") && note.contains("compute capability 8.9"));
        assert_eq!(note, format == "all", "{case}: {:?}", report.notes);
    }
    // The page tells it as well.
    let output = products(&machine, "gemm", &["--bursts", "3", "--pause", "0", "--format", "bf16"]).output().unwrap();
    let page = String::from_utf8_lossy(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        page.contains("not measured with cuBLASLt but") && page.contains("starting did not work: status 1"),
        "{page}"
    );
}

/// Fault: driver: the GPU computes wrong
/// Seen: `the computation was wrong`, and which check found it
/// Works: the rest of the report
/// Recovers: with another GPU
#[test]
fn one_wrong_element_of_a_product_is_found() {
    // In the last column of a row in the middle, which no look at single elements meets.
    let machine = Machine::with_unheard_of(&["WRONG_ELEMENT=(100 * 256 + 255)"]);
    let args = [&SHORT[..], &["--library", "portable"]].concat();
    let (code, report, shown) = machine.end(&mut products(&machine, "gemm", &args));
    assert_eq!((code, report.ending), (3, Ending::Done), "{shown}");
    assert!(report.verdict.summary.contains("the computation was wrong: "), "{:?}", report.verdict);
    for format in ["bf16", "fp16", "TF32"] {
        let of_format = format!("{format}: ");
        let [elements, all] =
            &report.checks.iter().filter(|check| check.what.starts_with(&of_format)).collect::<Vec<_>>()[..]
        else {
            panic!("{format}: {:?}", report.checks)
        };
        assert!(elements.passed && elements.what.contains("144 elements compared"), "{elements:?}");
        assert!(!all.passed && all.what.contains("all elements by Freivalds' test"), "{all:?}");
        assert!(all.detail.contains("1 of 256 rows are wrong: row 100 is off by"), "{all:?}");
    }
    let by = &report.environment.facts["matrix products by"];
    assert_eq!(by, "own tensor-core kernel (mma.sync), as it was asked for");
    assert!(report.notes.iter().all(|note| !note.contains("cuBLASLt")), "nobody asked for it: {:?}", report.notes);
}

/// Each product is within what rounding allows; that they differ is what shows a GPU that is not steady.
#[test]
fn products_under_load_that_differ_are_found() {
    // Little L2: two sets of operands are enough, and three looks at products meet one of them twice.
    let machine = Machine::with_unheard_of(&["UNSTEADY", "L2=65536"]);
    let args = ["--json", "--library", "portable", "--minutes", "0.06", "--cool", "0"];
    let (code, report, shown) = machine.end(&mut products(&machine, "soak", &args));
    assert_eq!((code, report.ending), (3, Ending::Done), "{shown}");
    let [elements, all, same] = &report.checks[..] else { panic!("{shown}") };
    assert!(elements.passed && all.passed, "{:?}", report.checks);
    assert!(!same.passed && same.what.contains("products under load had the very bits"), "{same:?}");
    assert!(
        same.what.split(' ').next() == same.detail.split(' ').next() && same.detail.ends_with(" differed"),
        "{same:?}"
    );
    for id in ["bf16", "first"] {
        is_the_rate_of_the_device(&report, id);
    }
}

/// The guard admits no run that wants more than there is: here the process itself is told less than it wants.
/// Fault: probe: it wants more device memory than it was given
/// Seen: `the probe wants 16 MiB of device memory and may take 8 more`
/// Works: whatever else runs on the GPU
/// Recovers: with more room, or a smaller size
#[test]
fn a_probe_takes_no_more_memory_than_it_was_given() {
    let machine = Machine::with_device(&[]);
    let probe = PROBES.iter().find(|probe| probe.spec.id == "hbm").unwrap();
    let mut params = Params::of(&probe.spec);
    params.put("mib", Value::Number(16.0));
    let said = |most_mib: u64| {
        let request = Request {
            run: "r".to_owned(),
            probe: "hbm".to_owned(),
            target: Target { gpus: vec![GpuName::default()], ..Target::default() },
            params: params.clone(),
            duty_pct: 100,
            most_bytes: most_mib << 20,
            most_ms: 60_000,
            parent: std::process::id(),
            sealed: false,
        };
        let mut command = Command::new(env!("CARGO_BIN_EXE_warptop"));
        command.args(["__probe-child", "hbm", &serde_json::to_string(&request).unwrap()]);
        // Its input stays open: the end of it means stop.
        command
            .env("XDG_STATE_HOME", machine.0.path())
            .env("LD_LIBRARY_PATH", machine.0.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdin = child.stdin.take();
        let said = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
        drop(stdin);
        said.lines().last().unwrap_or_default().to_owned()
    };
    // Three arrays of 16 MiB and a context, which counts 600 MiB.
    let refused = said(600 + 40);
    assert!(refused.contains("the probe wants 16 MiB of device memory and may take 8 more"), "{refused}");
    let enough = said(600 + 49);
    assert!(enough.contains("\"is\":\"result\""), "{enough}");
}

/// Fault: probe: others work on the GPU that is measured
/// Seen: nothing: the share of time that `--duty` states is kept
/// Works: the others, for the rest of the time
/// Recovers: with the end of the run
#[test]
fn beside_others_a_device_is_busy_for_no_longer_than_agreed() {
    for probe in ["hbm", "pcie", "kvload", "launch"] {
        let log = tempfile::NamedTempFile::new().unwrap();
        let log_is = format!("LOG=\"{}\"", log.path().display());
        small(&[&log_is, "DRAM=48", "H2D=12", "D2H=12"], probe, &["--duty", "20"]);
        let log = fs::read_to_string(log.path()).unwrap();
        let ns: Vec<f64> = log.split(' ').map(|ns| ns.parse().unwrap()).collect();
        let [busy, all, longest] = ns[..] else { panic!("{log}") };
        // A busy machine only adds time in which the device has nothing to do.
        assert!(busy > 0.0 && busy / all < 0.22, "{probe}: busy for {:.3} of the time", busy / all);
        assert!(longest <= 5e6, "{probe}: {longest} ns without a gap");
    }
}
