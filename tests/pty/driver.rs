//! A driver's library that does harm where it is loaded and left: the program goes on, or ends with the terminal as it was.

use std::path::Path;

use super::fake_nvml;
use super::session::{PATIENCE, Session, warptop};

/// A program with this library, and the library's folder.
fn with_library(definitions: &[&str], controls: &[&str]) -> (Session, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    fake_nvml::compile(folder.path(), definitions);
    for control in controls {
        std::fs::write(folder.path().join(control), "").unwrap();
    }
    let mut command = warptop(&["--no-discover"]);
    command.env("LD_LIBRARY_PATH", folder.path());
    let session = Session::start(command, 120, 35).read();
    (session, folder)
}

/// Processes that load the library of this folder for somebody else.
fn loaders(parent: u32) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(|entry| Some(entry.ok()?.path()));
    let is_one = |process: &Path| {
        let line = std::fs::read_to_string(process.join("cmdline")).unwrap_or_default();
        line.contains("__load-driver") && line.contains(&format!("\0{parent}\0"))
    };
    processes.filter(|process| is_one(process)).count()
}

const WAITS: &str = "START=while (control(CONTROL \"/start\")) usleep(5000)";

/// Fault: driver: loading its library hangs (a disk that does not answer, start-up code that waits)
/// Seen: state `NVML has not answered for` so many seconds, `while its library is loaded`
/// Works: everything else: keys, signals, the host; a process of its own loads the library first
/// Recovers: when the library can be loaded
#[test]
fn a_library_that_hangs_while_it_is_loaded_holds_nobody_up() {
    let (mut session, folder) = with_library(&[WAITS], &["start"]);
    session.wait("the words", |s| {
        let text = s.contents();
        text.contains("NVML has not answered for") && text.contains("while its library is loaded")
    });
    session.press("?");
    session.wait("the help", |s| s.contents().contains("Leave. Ctrl-C does the same."));
    session.press("?");
    std::fs::remove_file(folder.path().join("start")).unwrap();
    session.wait("the GPU", |s| s.contents().contains("H200"));
    session.press("q");
    session.ends(0);
}

#[test]
fn what_loads_the_library_is_gone_with_the_program() {
    let (mut session, _folder) = with_library(&[WAITS], &["start"]);
    let parent = session.child.process_id().unwrap();
    session.wait("its process", |_| loaders(parent) == 1);
    session.wait("the host", |s| s.contents().contains("memory"));
    session.press("q");
    session.ends(0);
    for _ in 0..PATIENCE {
        if loaders(parent) == 0 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("its process is still there");
}

/// Fault: driver: its library hangs or crashes when the program leaves it
/// Seen: the shell
/// Works: it ends at once, with its own exit code: nothing of a library is run at the end
/// Recovers: nothing to recover from
#[test]
fn a_library_has_no_say_in_the_end() {
    for end in ["END=while (control(CONTROL \"/end\")) usleep(5000)", "END=*(volatile int *)16=1"] {
        let (mut session, _folder) = with_library(&[end], &["end"]);
        session.wait("the GPU", |s| s.contents().contains("H200"));
        session.press("q");
        session.ends(0);
    }
}

/// Fault: driver: its library calls `exit`
/// Seen: the shell, and `warptop: a library ended the program (exit)`, the thread `warptop-nvml`, and what to do
/// Works: the terminal is as it was; exit code 1
/// Recovers: start it anew
#[test]
fn a_library_that_ends_the_program_is_named() {
    let (mut session, folder) = with_library(&[], &[]);
    session.wait("the GPU", |s| s.contents().contains("H200"));
    std::fs::write(folder.path().join("exit"), "").unwrap();
    session.ends(1);
    session.wait("the words", |s| {
        let text = s.contents();
        text.contains("warptop: a library ended the program (exit)") && text.contains("in thread 'warptop-nvml'")
    });
}
