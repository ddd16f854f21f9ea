//! Crashes: the terminal is given back, and the process ends as it would have.

use std::process::Command;

use rustix::process::Signal;

use super::fake_nvml;
use super::session::{Session, warptop};

/// It ends by this signal, with the terminal as it was and words about `name`.
fn crashes(session: &mut Session, signal: &str, name: &str) {
    assert_eq!(session.ended().signal(), Some(signal), "{}", session.contents());
    session.is_restored();
    session.wait("what happened", |s| s.contents().contains(&format!("warptop: crashed with {name} (")));
    session.wait("what to do", |s| s.contents().contains("does nvidia-smi work? Else please report it"));
}

/// Fault: driver: its library reads where nothing is (SIGSEGV)
/// Seen: the shell, and `warptop: crashed with`, the signal, the thread `warptop-nvml`, and what to do
/// Works: the terminal is as it was; exit status and core file are those of the crash
/// Recovers: start it anew
#[test]
fn a_crash_of_the_drivers_library_gives_the_terminal_back() {
    let folder = tempfile::tempdir().unwrap();
    fake_nvml::compile(folder.path(), &[]);
    let mut command = warptop(&["--no-discover"]);
    command.env("LD_LIBRARY_PATH", folder.path());
    let mut session = Session::start(command, 120, 35).read();
    session.wait("the GPU", |s| s.contents().contains("H200"));
    std::fs::write(folder.path().join("crash"), "").unwrap();
    crashes(&mut session, "Segmentation fault", "SIGSEGV");
    session.wait("whose fault it is", |s| s.contents().contains("in thread 'warptop-nvml'"));
}

/// Fault: host: memory that cannot be had, or a full stack (SIGABRT)
/// Seen: the shell, and `SIGABRT`, `SIGSEGV` with what to do
/// Works: the terminal is as it was; exit status and core file are those of the crash
/// Recovers: start it anew
#[test]
fn an_abort_gives_the_terminal_back() {
    for (fault, name, rest) in [("memory", "SIGABRT", ""), ("stack", "SIGSEGV", "has overflowed its stack")] {
        let mut session = Session::start(warptop(&["--no-discover", "--test-panic", fault]), 120, 35).read();
        crashes(&mut session, "Aborted", name);
        session.wait("Rust's own words", |s| s.contents().contains(rest));
    }
}

/// Fault: host: any other signal of a crash (SIGBUS, SIGILL, SIGFPE, SIGSYS, SIGTRAP), of its own or sent
/// Seen: the shell, the signal's name and what to do
/// Works: the terminal is as it was; exit status and core file are those of the crash
/// Recovers: start it anew
#[test]
fn each_signal_of_a_crash_gives_the_terminal_back() {
    let signals = [
        (Signal::SEGV, "Segmentation fault", "SIGSEGV"),
        (Signal::BUS, "Bus error", "SIGBUS"),
        (Signal::ABORT, "Aborted", "SIGABRT"),
        (Signal::ILL, "Illegal instruction", "SIGILL"),
        (Signal::FPE, "Floating point exception", "SIGFPE"),
        (Signal::SYS, "Bad system call", "SIGSYS"),
        (Signal::TRAP, "Trace/breakpoint trap", "SIGTRAP"),
    ];
    for (signal, words, name) in signals {
        let mut session = Session::live(&["--no-discover"], 120, 35);
        session.signal(signal);
        crashes(&mut session, words, name);
    }
}

/// Fault: terminal: it takes nothing any more, and then the program crashes
/// Seen: once it takes something again, the shell's screen
/// Works: the process is gone
/// Recovers: start it anew
#[test]
fn a_crash_waits_for_no_terminal() {
    let mut session = Session::start(warptop(&["demo"]), 1000, 300);
    session.wait_for_raw_modes();
    session.signal(Signal::SEGV);
    assert_eq!(session.ended().signal(), Some("Segmentation fault"));
    session.expect_restored_late();
}

/// Fault: terminal: a signal that means nothing to warptop (SIGUSR1, SIGALRM, SIGIO, realtime ones)
/// Seen: the shell, and `warptop: ended by` the signal
/// Works: the terminal is as it was; the exit status is that of the signal
/// Recovers: start it anew
#[test]
fn each_signal_that_ends_a_process_gives_the_terminal_back() {
    let named = [
        (libc::SIGUSR1, "SIGUSR1"),
        (libc::SIGUSR2, "SIGUSR2"),
        (libc::SIGALRM, "SIGALRM"),
        (libc::SIGVTALRM, "SIGVTALRM"),
        (libc::SIGPROF, "SIGPROF"),
        (libc::SIGIO, "SIGIO"),
        (libc::SIGPWR, "SIGPWR"),
        (libc::SIGSTKFLT, "SIGSTKFLT"),
        (40, "signal 40"),
        (64, "signal 64"),
    ];
    for (number, name) in named {
        let mut session = Session::live(&["--no-discover"], 120, 35);
        let pid = session.child.process_id().unwrap().to_string();
        assert!(Command::new("kill").args([format!("-{number}"), pid]).status().unwrap().success());
        assert!(session.ended().signal().is_some(), "{name} ended it");
        session.is_restored();
        session.wait("what happened", |s| s.contents().contains(&format!("warptop: ended by {name};")));
    }
}
