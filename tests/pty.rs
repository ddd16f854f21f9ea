//! The real binary on a real terminal: how it starts, and what it leaves behind however it ends.
//!
//! Each step waits until the screen satisfies a named condition; nothing passes by having waited.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

#[path = "pty/crash.rs"]
mod crash;
#[path = "pty/driver.rs"]
mod driver;
#[path = "pty/edges.rs"]
mod edges;
#[path = "fake-nvml/mod.rs"]
mod fake_nvml;
#[path = "pty/jobs.rs"]
mod jobs;
#[path = "pty/keys.rs"]
mod keys;
#[path = "pty/session.rs"]
mod session;

use portable_pty::CommandBuilder;
use rustix::process::Signal;

use session::{Session, modes, size, warptop};

/// Fault: terminal: any end at all
/// Seen: the shell's screen, its modes and its cursor
/// Works: everything
/// Recovers: they are given back once, however it ends
#[test]
fn starts_and_quits_with_the_terminal_as_it_was() {
    let mut session = Session::live(&[], 120, 35);
    assert_ne!(modes(&*session.master), session.modes_before, "raw while it runs");
    session.wait("the alternate screen without a cursor", |s| s.alternate_screen() && s.hide_cursor());
    session.wait("the host's figures", |s| s.contents().contains("memory"));
    session.press("?");
    session.wait("the help", |s| s.contents().contains("Leave. Ctrl-C does the same."));
    session.press("q");
    session.ends(0);
}

/// Fault: terminal: sizes from 1 × 1 to 300 × 5
/// Seen: what fits
/// Works: everything
/// Recovers: with the next size
#[test]
fn any_size_is_drawn_and_survived() {
    let mut session = Session::live(&["--no-discover"], 80, 24);
    for (columns, rows) in [(10, 3), (200, 60), (1, 1), (40, 10), (39, 7), (120, 35), (300, 5), (5, 90), (80, 24)] {
        session.resize(columns, rows);
        session.press("\t");
    }
    session.wait("the full header again", |s| s.contents().contains("live") && s.contents().contains("quit"));
    for (columns, rows) in [(10, 3), (40, 10)] {
        session.resize(columns, rows);
        let wanted = if columns == 10 { "CPU" } else { "live" };
        session.wait("something on a small screen", |s| s.contents().contains(wanted));
    }
    session.press("q");
    session.ends(0);
}

/// Fault: terminal: a size of 65,535 × 65,535
/// Seen: the upper left part of it
/// Works: everything, also when it starts at this size
/// Recovers: with the next size
#[test]
fn a_terminal_of_absurd_size_is_drawn_in_part() {
    let mut session = Session::live(&[], 120, 35);
    let absurd = |session: &Session| session.master.resize(size(u16::MAX, u16::MAX)).unwrap();
    let written = |session: &Session| session.raw.lock().unwrap().len();
    let before = written(&session);
    absurd(&session);
    // Far more than a frame of the size before: the screen is drawn at another one.
    session.wait("a frame", |_| written(&session) > before + 120 * 35 * 20);
    session.resize(100, 30);
    session.wait("the size after it", |screen| screen.contents().lines().nth(29).is_some_and(|l| l.contains("quit")));
    session.press("q");
    session.ends(0);
    let mut started = Session::start(warptop(&[]), 120, 35);
    absurd(&started);
    started = started.read();
    started.wait("a frame", |_| written(&started) > 120 * 35);
    started.press("q");
    started.ends(0);
}

/// Fault: terminal: 200 changes of size at once
/// Seen: the screen at the last of them
/// Works: everything
/// Recovers: with the last size
#[test]
fn a_resize_storm_ends_in_a_whole_screen() {
    let mut session = Session::live(&[], 80, 24);
    for i in 0..200_u16 {
        session.resize(20 + i * 7 % 150, 5 + i * 3 % 50);
    }
    session.resize(100, 30);
    session.wait("header and footer", |s| {
        let rows: Vec<_> = s.rows(0, 100).collect();
        rows[0].contains("live") && rows[29].contains("quit")
    });
    session.press("\x03");
    session.ends(0);
}

/// Fault: terminal: SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGXCPU
/// Seen: the shell; exit code 130
/// Works: nothing is left behind
/// Recovers: it ends
#[test]
fn signals_end_it() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT, Signal::XCPU] {
        let mut session = Session::live(&[], 80, 24);
        session.signal(signal);
        session.ends(130);
    }
}

/// Fault: terminal: SIGXFSZ: a file is at its limit
/// Seen: nothing; whoever writes the file says it
/// Works: the screen
/// Recovers: when the file may grow
#[test]
fn a_file_that_may_not_grow_does_not_end_it() {
    let mut session = Session::live(&[], 80, 24);
    session.signal(Signal::XFSZ);
    session.press("?");
    session.wait("the help", |s| s.alternate_screen() && s.contents().contains("Next pane"));
    session.press("q");
    session.ends(0);
}

/// Fault: host: hardly any file may be open (`ulimit -n` of 3 to 20)
/// Seen: `too few files may be open`, and what to do
/// Works: help and version; the terminal is as it was
/// Recovers: started again with more
#[test]
fn too_few_files_end_it_with_words_before_the_terminal_is_touched() {
    let limited = |files: u32, args: &str| {
        let mut command = CommandBuilder::new("sh");
        let line = format!("ulimit -n {files}; exec '{}' {args}", env!("CARGO_BIN_EXE_warptop"));
        command.args(["-c", line.as_str()]);
        let mut session = Session::start(command, 200, 24).read();
        let code = session.ended().exit_code();
        session.wait("words", |screen| !screen.contents().trim().is_empty());
        assert_eq!(modes(&*session.master), session.modes_before, "{files} files");
        (code, session.contents())
    };
    // With three the program itself cannot be loaded.
    for files in 4..=20 {
        for args in ["--no-discover", "record -o /dev/null", "demo"] {
            let (code, words) = limited(files, args);
            let said = words.contains("too few files may be open") && words.contains("ulimit -n 1024");
            assert!(code == 1 && said && !words.contains("panicked"), "{files} files, {args}: {code} {words}");
        }
    }
    let (code, words) = limited(6, "--version");
    assert!(code == 0 && words.contains("warptop"), "{words}");
    assert!(limited(3, "demo").0 != 101);
}

/// Fault: terminal: a panic, on any thread
/// Seen: the shell, and what went wrong; exit code 101
/// Works: the terminal
/// Recovers: start it anew
#[test]
fn a_panic_gives_the_terminal_back_and_says_why() {
    for place in ["draw", "thread"] {
        let mut session = Session::start(warptop(&["--test-panic", place]), 80, 24).read();
        session.ends(101);
        session.wait("the message", |s| s.contents().contains("asked to fail"));
    }
}

/// Fault: terminal: it takes nothing from the first frame on
/// Seen: nothing
/// Works: SIGTERM
/// Recovers: it ends, with the modes as they were
#[test]
fn a_terminal_that_takes_nothing_does_not_keep_it() {
    // Nobody reads: the first frame is several times what the terminal's buffer holds, and the main loop hangs in it.
    let mut session = Session::start(warptop(&["demo"]), 1000, 300);
    session.wait_for_raw_modes();
    session.signal(Signal::TERM);
    assert_eq!(session.ended().exit_code(), 130);
    session.expect_restored_late();
}

#[test]
fn the_demo_is_one_key_away() {
    let mut session = Session::start(warptop(&["demo"]), 120, 35).read();
    session.wait("the recorded machine", |s| s.contents().contains("H200") && s.contents().contains("demo"));
    session.press(" ");
    session.wait("the pause", |s| s.contents().contains("paused"));
    session.press("q");
    session.ends(0);
}

#[test]
fn a_remote_machine_is_watched_through_a_pipe() {
    let mut shell = CommandBuilder::new("bash");
    let script = "\"$0\" record --no-discover -o - 2>/dev/null | \"$0\" replay -; echo \"code=${PIPESTATUS[*]}\"";
    shell.args(["-c", script, env!("CARGO_BIN_EXE_warptop")]);
    let mut session = Session::start(shell, 100, 30).read();
    session.wait("the stream", |s| s.contents().contains("stream") && s.contents().contains("memory"));
    session.press("q");
    session.wait("both ended well", |s| s.contents().contains("code=0 0"));
    session.ends(0);
}

/// Fault: terminal: `TERM=dumb`
/// Seen: `TERM=dumb` and `snapshot --json`
/// Works: `warptop snapshot`, `check`, `record`
/// Recovers: set TERM
#[test]
fn a_dumb_terminal_is_told_what_to_do() {
    let mut command = warptop(&[]);
    command.env("TERM", "dumb");
    let mut session = Session::start(command, 120, 24).read();
    session.ends(2);
    session.wait("the words", |s| s.contents().contains("TERM=dumb") && s.contents().contains("snapshot --json"));
}
