//! Job control: stopped, continued, in the background, and when the terminal goes away.

use std::fmt::Write as _;
use std::io::Read as _;
use std::path::Path;
use std::thread;
use std::time::Duration;

use portable_pty::CommandBuilder;
use rustix::process::{Pid, Signal, kill_process};

use super::session::{PATIENCE, Session, warptop};

const PROGRAM: &str = env!("CARGO_BIN_EXE_warptop");

/// A shell with job control.
fn shell() -> Session {
    let mut shell = CommandBuilder::new("bash");
    shell.args(["--noprofile", "--norc", "-i"]);
    let mut session = Session::start(shell, 100, 30).read();
    session.press("PS1='$ '\n");
    session
}

/// Runs warptop in the shell; its process id goes to the file.
fn launch(session: &mut Session, pid: &Path) {
    let mut line = String::new();
    let file = pid.display();
    writeln!(line, "bash -c 'echo $$ >{file}; exec {PROGRAM} --no-discover'; echo code=$?").unwrap();
    session.press(&line);
    session.wait("the first frame", |s| s.alternate_screen() && s.contents().contains("live"));
}

fn signal(pid: &Path, signal: Signal) {
    let pid = std::fs::read_to_string(pid).unwrap().trim().parse().unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

fn is_the_shells(screen: &vt100::Screen) -> bool {
    !screen.alternate_screen() && !screen.hide_cursor()
}

fn wait_for_stop(session: &Session, times: usize) {
    session.wait("the shell", |s| is_the_shells(s) && s.contents().matches("Stopped").count() >= times);
}

fn wait_for_screen(session: &Session) {
    session.wait("the screen again", |s| s.alternate_screen() && s.contents().contains("live"));
}

/// The shell does what is typed, and shows it.
fn is_usable(session: &mut Session) {
    session.press("echo us''able\n");
    session.wait("the shell's answer", |s| is_the_shells(s) && s.contents().contains("usable"));
}

/// The job has ended, as one that was told to; 147 and 148 are those of one that is stopped.
fn has_ended(session: &mut Session) {
    session.press("until wait %1 2>/dev/null; r=$?; [ $r -lt 147 ]; do sleep .1; done; echo code=$r\n");
    let code = |s: &vt100::Screen| ["code=130", "Exit 130"].iter().any(|word| s.contents().contains(word));
    session.wait("its exit code", |s| is_the_shells(s) && code(s));
}

fn leave(session: &mut Session) {
    session.press("q");
    session.wait("the shell again", |s| is_the_shells(s) && s.contents().ends_with("$ "));
    session.press("exit\n");
    session.ended();
}

/// Fault: terminal: Ctrl-Z, `fg`, and again
/// Seen: the shell, with its own screen and `Stopped`; then the program as it was
/// Works: the shell
/// Recovers: with `fg`
#[test]
fn ctrl_z_gives_the_terminal_to_the_shell_and_fg_takes_it_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut session = shell();
    launch(&mut session, &folder.path().join("pid"));
    for times in 1..=2 {
        session.press("\x1a");
        wait_for_stop(&session, times);
        is_usable(&mut session);
        session.press("fg\n");
        wait_for_screen(&session);
    }
    leave(&mut session);
}

/// Fault: terminal: Ctrl-Z with no shell that could continue it
/// Seen: the screen, painted anew
/// Works: everything: it does not stop
/// Recovers: at once
#[test]
fn ctrl_z_without_a_shell_is_survived() {
    let mut session = Session::live(&[], 80, 24);
    session.press("\x1a");
    session.press("?");
    session.wait("the help", |s| s.alternate_screen() && s.contents().contains("Next pane"));
    session.press("q");
    session.ends(0);
}

/// Fault: terminal: Ctrl-Z, then SIGTERM and SIGCONT, as a service manager or `kill %1` sends them
/// Seen: the shell; exit code 130
/// Works: the shell
/// Recovers: it ends, and never stops again for touching the terminal
#[test]
fn a_stopped_program_ends_when_told_to() {
    let folder = tempfile::tempdir().unwrap();
    let mut session = shell();
    launch(&mut session, &folder.path().join("pid"));
    session.press("\x1a");
    wait_for_stop(&session, 1);
    session.press("kill %1\n");
    has_ended(&mut session);
    is_usable(&mut session);
}

/// Fault: terminal: continued in the background (`bg`)
/// Seen: the shell; the program draws nothing and takes no key
/// Works: all sources, so that nothing is missing afterwards
/// Recovers: with `fg`
#[test]
fn in_the_background_it_leaves_the_terminal_alone() {
    let folder = tempfile::tempdir().unwrap();
    let mut session = shell();
    launch(&mut session, &folder.path().join("pid"));
    session.press("\x1a");
    wait_for_stop(&session, 1);
    session.press("bg\n");
    is_usable(&mut session);
    session.press("jobs\n");
    session.wait("a job that runs", |s| is_the_shells(s) && s.contents().contains("Running"));
    session.press("fg\n");
    wait_for_screen(&session);
    leave(&mut session);
}

/// Fault: terminal: started in the background (`warptop &`)
/// Seen: the shell
/// Works: all sources
/// Recovers: with `fg`
#[test]
fn started_in_the_background_it_waits_for_the_terminal() {
    let mut session = shell();
    session.press(&format!("{PROGRAM} --no-discover &\n"));
    is_usable(&mut session);
    session.press("jobs\n");
    session.wait("a job that runs", |s| is_the_shells(s) && s.contents().contains("Running"));
    assert_eq!(session.count("\x1b[?1049h"), 0);
    session.press("fg\n");
    wait_for_screen(&session);
    leave(&mut session);
}

/// Fault: terminal: SIGSTOP, then SIGCONT in the background
/// Seen: the shell's own screen again, as soon as the program goes on
/// Works: the shell
/// Recovers: with `fg`, or it ends when told to
#[test]
fn stopped_without_a_word_it_leaves_the_screen_as_soon_as_it_can() {
    let folder = tempfile::tempdir().unwrap();
    let pid = folder.path().join("pid");
    let mut session = shell();
    launch(&mut session, &pid);
    signal(&pid, Signal::STOP);
    session.wait("the shell's word", |s| s.contents().contains("Stopped"));
    signal(&pid, Signal::CONT);
    session.wait("the shell's screen", is_the_shells);
    is_usable(&mut session);
    session.press("fg\n");
    wait_for_screen(&session);
    signal(&pid, Signal::STOP);
    session.wait("the shell's word", |s| s.contents().contains("Stopped"));
    signal(&pid, Signal::TERM);
    signal(&pid, Signal::CONT);
    has_ended(&mut session);
}

/// Fault: terminal: SIGSTOP, then SIGCONT in front (a suspended machine, a debugger)
/// Seen: the screen, painted anew
/// Works: everything
/// Recovers: with SIGCONT
#[test]
fn a_program_that_goes_on_paints_its_screen_anew() {
    let mut session = Session::live(&["--no-discover"], 80, 24);
    session.signal(Signal::STOP);
    // What another program may have left there.
    session.screen.lock().unwrap().process(b"\x1b[?1049l\x1b[2J");
    session.signal(Signal::CONT);
    wait_for_screen(&session);
    session.press("q");
    assert_eq!(session.ended().exit_code(), 0);
}

/// Fault: terminal: SIGTSTP from another program
/// Seen: the shell, with its own screen, as with Ctrl-Z
/// Works: the shell
/// Recovers: with `fg`
#[test]
fn a_stop_that_is_asked_for_gives_the_terminal_back_first() {
    let folder = tempfile::tempdir().unwrap();
    let pid = folder.path().join("pid");
    let mut session = shell();
    launch(&mut session, &pid);
    signal(&pid, Signal::TSTP);
    wait_for_stop(&session, 1);
    is_usable(&mut session);
    session.press("fg\n");
    wait_for_screen(&session);
    leave(&mut session);
}

/// Fault: terminal: SIGTTIN, SIGTTOU, SIGPIPE from anywhere
/// Seen: nothing
/// Works: everything
/// Recovers: there is nothing to recover from
#[test]
fn signals_about_the_terminal_stop_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let pid = folder.path().join("pid");
    let mut session = shell();
    launch(&mut session, &pid);
    for number in [Signal::TTIN, Signal::TTOU, Signal::PIPE] {
        signal(&pid, number);
    }
    session.press("?");
    session.wait("the help", |s| s.contents().contains("Next pane"));
    leave(&mut session);
}

/// Fault: terminal: it goes away (a dropped connection, a closed window)
/// Seen: nothing any more
/// Works: nothing is left behind: the process is gone
/// Recovers: start it anew
#[test]
fn a_terminal_that_goes_away_ends_it() {
    let mut session = Session::start(warptop(&["--no-discover"]), 80, 24);
    let mut reader = session.master.try_clone_reader().unwrap();
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains("live") {
        let mut bytes = [0; 4096];
        let n = reader.read(&mut bytes).unwrap();
        seen.extend_from_slice(&bytes[..n]);
    }
    drop(reader);
    session.hang_up();
    session.ended();
}

/// Fault: terminal: it goes away under `nohup warptop record`
/// Seen: the recording, whole
/// Works: everything
/// Recovers: there is nothing to recover from
#[test]
fn a_recording_outlives_its_terminal_where_that_was_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("r.jsonl.gz");
    let mut command = CommandBuilder::new("bash");
    let script = "trap '' HUP; exec \"$0\" record --no-discover -o \"$1\" --duration 1s";
    command.args(["-c", script, PROGRAM, file.to_str().unwrap()]);
    let mut session = Session::start(command, 100, 30).read();
    for _ in 0..PATIENCE {
        if file.exists() {
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    session.signal(Signal::HUP);
    assert_eq!(session.ended().exit_code(), 0, "{}", session.contents());
    assert!(file.exists());
}
