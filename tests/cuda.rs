//! A GPU probe where the CUDA driver's library is missing, broken, incomplete, unwilling or hangs: clear words, the exit
//! code as documented, nothing left over. A fake NVML shows an idle GPU, so that the run is admitted; its process then
//! meets the library of the case.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

#[path = "fake-nvml/mod.rs"]
mod fake_nvml;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use warptop::probe::report::{Ending, Report};

/// Longest that anything here may take; a test that waits this long has failed.
const PATIENCE: Duration = Duration::from_mins(1);

/// A folder with the fake libraries and the state of warptop.
struct Machine(tempfile::TempDir);

impl Machine {
    /// With an idle GPU, and no CUDA.
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fake_nvml::compile(folder.path(), &["IDLE"]);
        Self(folder)
    }

    /// With a CUDA library that was compiled with these definitions.
    fn with_cuda(definitions: &[&str]) -> Self {
        let machine = Self::new();
        let library = machine.0.path().join("libcuda.so.1");
        let output = Command::new("cc")
            .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"])
            .arg(&library)
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake-cuda/fake.c"))
            .args(definitions.iter().map(|definition| format!("-D{definition}")))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        // Under both names: where there is a real one, it must not be found first.
        fs::copy(&library, machine.0.path().join("libcuda.so")).unwrap();
        machine
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_warptop"));
        command.args(["probe", "hbm", "--yes", "--no-discover"]).args(args);
        command.env("XDG_STATE_HOME", self.0.path()).env("LD_LIBRARY_PATH", self.0.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// What it comes to: exit code, report, and all that was shown.
    fn run(&self) -> (i32, Report, String) {
        let Output { status, stdout, stderr } = self.command(&["--json"]).output().unwrap();
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

/// Whether this machine's loader knows a CUDA library. Asked of the loader itself, by a program of one line.
fn has_cuda() -> bool {
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("has.c"), folder.path().join("has"));
    let code = "#include <dlfcn.h>\nint main(void) { return !dlopen(\"libcuda.so.1\", RTLD_LAZY) && !dlopen(\"libcuda.so\", RTLD_LAZY); }\n";
    fs::write(&source, code).unwrap();
    assert!(Command::new("cc").arg(&source).arg("-o").arg(&program).arg("-ldl").status().unwrap().success());
    Command::new(&program).status().unwrap().success()
}

#[test]
fn without_the_library_it_says_what_why_and_what_to_do() {
    if has_cuda() {
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
    let output = machine.command(&[]).output().unwrap();
    let page = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(4) && page.contains("is not on this machine"), "{page}");
    is_clear(&page);
}

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

/// A run whose process hangs in cuInit, and that process.
fn hanging(machine: &Machine) -> (Child, u32) {
    let parent = machine.command(&["--json"]).spawn().unwrap();
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

#[test]
fn a_library_that_hangs_is_stopped_and_killed_all_the_same() {
    let machine = Machine::with_cuda(&["HANG"]);
    let (parent, _) = hanging(&machine);
    kill_process(Pid::from_child(&parent), Signal::INT).unwrap();
    let asked = Instant::now();
    let output = parent.wait_with_output().unwrap();
    assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
    let report: Report = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), report.why.as_deref()), (Some(130), Some("stopped by the user")));
    machine.is_left_alone();

    let (mut parent, child) = hanging(&machine);
    parent.kill().unwrap();
    parent.wait().unwrap();
    until("the end of the probe's process", || !machine.processes().contains(&child));
    machine.is_left_alone();
}
