//! Bytes that a terminal may send: whatever they are, `q` and Ctrl-C are heard after them.

use portable_pty::CommandBuilder;

use super::session::{Session, warptop};

const PROGRAM: &str = env!("CARGO_BIN_EXE_warptop");

/// Begins of what a terminal sends: replies, reports, keys with Alt, pastes.
const UNFINISHED: [&str; 14] = [
    "\x1b",
    "\x1b[",
    "\x1b[?",
    "\x1b[?2026;2$",
    "\x1b[?62;",
    "\x1b[1;",
    "\x1b[<0;1",
    "\x1b[M",
    "\x1b[[",
    "\x1bO",
    "\x1bP>|x",
    "\x1b]11;rgb:",
    "\x1b[200~",
    "\x1b[200~yes\x1b[201",
];

/// Fault: terminal: a sequence without an end (half a reply, Alt and a bracket, a paste cut off)
/// Seen: nothing
/// Works: everything
/// Recovers: after 0.1 s, a paste after 0.5 s without a byte; Ctrl-C at once
#[test]
fn an_unfinished_sequence_keeps_no_key_from_working() {
    for bytes in UNFINISHED {
        let mut session = Session::live(&["--no-discover"], 80, 24);
        session.press(bytes);
        assert_eq!(session.press_until_it_ends("q").exit_code(), 0, "{bytes:?}");
        session.is_restored();
    }
}

/// Fault: terminal: Ctrl-C in the middle of a sequence
/// Seen: the shell
/// Works: Ctrl-C, at once; in a paste without an end when it is pressed three times
/// Recovers: it ends
#[test]
fn ctrl_c_ends_it_whatever_was_sent_before() {
    for bytes in UNFINISHED {
        let mut session = Session::live(&["--no-discover"], 80, 24);
        session.press(&format!("{bytes}\x03\x03\x03"));
        session.ends(0);
    }
}

/// Fault: terminal: answers that nobody asked for (modes, colours, version, focus, mouse)
/// Seen: nothing
/// Works: everything
/// Recovers: at once
#[test]
fn replies_of_the_terminal_are_no_keys() {
    let mut session = Session::live(&["--no-discover"], 80, 24);
    session.press("\x1b]11;rgb:q/q/q\x1b\\\x1bP>|quick(1)\x1b\\\x1b[I\x1b[<0;9;9M\x1b[Mqqq\x1b[?2026;2$y");
    session.press("?");
    session.wait("the help", |s| s.contents().contains("Next pane"));
    session.press("q");
    session.ends(0);
}

/// Fault: terminal: text is pasted into it, 10 MB of it
/// Seen: nothing
/// Works: everything: a paste presses no key
/// Recovers: with its end
#[test]
fn pasted_text_is_no_command() {
    let mut session = Session::live(&["--no-discover"], 80, 24);
    session.press("\x1b[200~qqq\x1b[201~?");
    session.wait("the help", |s| s.contents().contains("Next pane"));
    session.press("\x1b[200~");
    let text = "qyp\x03\r\u{1b}[A x".repeat(1 << 10);
    for _ in 0..(10 << 20) / text.len() {
        session.press(&text);
    }
    session.press("\x1b[201~?");
    session.wait("no help", |s| !s.contents().contains("Next pane"));
    session.press("q");
    session.ends(0);
}

/// Fault: terminal: text is pasted where the terminal does not mark pastes, or a cat walks over the keyboard
/// Seen: what the keys do
/// Works: everything; of more keys than the screen takes the rest is dropped
/// Recovers: with the last key
#[test]
fn a_flood_of_keys_is_survived() {
    let mut session = Session::live(&["--no-discover"], 80, 24);
    for _ in 0..64 {
        session.press(&"j\x1b[Bk\t".repeat(1 << 10));
    }
    assert_eq!(session.press_until_it_ends("q").exit_code(), 0);
    session.is_restored();
}

/// Fault: terminal: standard input is `/dev/null` or closed
/// Seen: the screen
/// Works: keys, from the controlling terminal
/// Recovers: there is nothing to recover from
#[test]
fn keys_come_from_the_terminal_where_standard_input_is_none() {
    for input in ["</dev/null", "<&-"] {
        let mut command = CommandBuilder::new("bash");
        command.args(["-c", &format!("exec \"$0\" --no-discover {input}"), PROGRAM]);
        let mut session = Session::start(command, 80, 24).read();
        session.wait("the first frame", |s| s.contents().contains("live"));
        session.press("q");
        session.ends(0);
    }
}

/// Fault: terminal: it is not the controlling one (`setsid`, some containers)
/// Seen: the screen; without keys on standard input `no keys`
/// Works: keys, from standard input
/// Recovers: start it where there is a terminal
#[test]
fn without_a_controlling_terminal_keys_come_from_standard_input() {
    let setsid = |rest: &str| {
        let mut command = CommandBuilder::new("bash");
        command.args(["-c", &format!("setsid -w \"$0\" --no-discover {rest}"), PROGRAM]);
        Session::start(command, 100, 24).read()
    };
    let mut session = setsid("");
    session.wait("the first frame", |s| s.contents().contains("live"));
    session.press("q");
    session.ends(0);
    let mut session = setsid("</dev/null");
    session.ends(1);
    session.wait("the words", |s| s.contents().contains("no keys: standard input is no terminal"));
}

/// Fault: terminal: a sequence without an end at the question of `warptop probe`
/// Seen: `not run`
/// Works: Enter, Ctrl-C
/// Recovers: the question is answered with no
#[test]
fn a_question_is_answered_whatever_was_sent_before() {
    let asked = || {
        let session = Session::start(warptop(&["probe", "fake", "--no-discover"]), 100, 24).read();
        session.wait("the question", |s| s.contents().contains("Run it? [y/N]"));
        session
    };
    for bytes in UNFINISHED {
        let mut session = asked();
        session.press(&format!("{bytes}\r"));
        session.ends(4);
        session.wait("the words", |s| s.contents().contains("not run"));
    }
    let mut session = asked();
    session.press("\x1b[200~y\x03");
    session.ends(130);
}

/// Fault: terminal: it takes nothing any more (a blocked connection, a screen that was held)
/// Seen: the last frame; once it takes something again, the shell's screen
/// Works: all sources; `q`, Ctrl-C and SIGTERM
/// Recovers: with the first byte that is taken
#[test]
fn q_ends_it_although_the_terminal_takes_nothing() {
    for key in ["q", "\x03"] {
        // Nobody reads: the first frame is several times what the terminal's buffer holds.
        let mut session = Session::start(warptop(&["demo"]), 1000, 300);
        session.wait_for_raw_modes();
        assert_eq!(session.press_until_it_ends(key).exit_code(), 0);
        session.expect_restored_late();
    }
}

/// Fault: terminal: thousands of `q` at once, where the terminal does not mark pastes
/// Seen: the shell
/// Works: nothing else of the machine: one thread sees to the end, whatever was asked how often
/// Recovers: it ends
#[test]
fn a_paste_of_ends_starts_one_thread() {
    // Nobody reads: the main loop needs a moment to come back from its write.
    let mut session = Session::start(warptop(&["demo"]), 1000, 300);
    session.wait_for_raw_modes();
    let tasks = format!("/proc/{}/task", session.child.process_id().unwrap());
    session.press(&"q".repeat(4000));
    let mut most = 0;
    while session.child.try_wait().unwrap().is_none() {
        let names = std::fs::read_dir(&tasks)
            .into_iter()
            .flatten()
            .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
        most = most.max(names.filter(|name| name.trim_end() == "last-resort").count());
    }
    assert!(most <= 1, "{most} threads");
    session.expect_restored_late();
}
