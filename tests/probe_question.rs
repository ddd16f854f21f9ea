//! The question of `warptop probe` on a terminal: what it states, which answers it takes, and how it is left.

#![allow(clippy::unwrap_used, reason = "in a test an error is a failure")]

use std::fs;
use std::io::Read as _;

use tempfile::TempDir;

fn home() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// On a terminal it asks; `answer` is what the user types when the question stands there.
fn asked(answer: &[u8]) -> (u32, String) {
    asked_at(&home(), answer)
}

fn asked_at(home: &TempDir, answer: &[u8]) -> (u32, String) {
    use portable_pty::{CommandBuilder, PtySize, native_pty_system};
    let pair = native_pty_system().openpty(PtySize { rows: 24, cols: 200, pixel_width: 0, pixel_height: 0 }).unwrap();
    let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_warptop"));
    command.args(["probe", "fake", "--no-discover"]);
    command.env("XDG_STATE_HOME", home.path());
    let mut child = pair.slave.spawn_command(command).unwrap();
    drop(pair.slave);
    let (mut reader, mut writer) = (pair.master.try_clone_reader().unwrap(), pair.master.take_writer().unwrap());
    let mut out = Vec::new();
    while !String::from_utf8_lossy(&out).contains("[y/N]") {
        let mut byte = [0];
        reader.read_exact(&mut byte).unwrap();
        out.extend(byte);
    }
    std::io::Write::write_all(&mut writer, answer).unwrap();
    let reading = std::thread::spawn(move || {
        // The end of a terminal is an error.
        drop(reader.read_to_end(&mut out));
        String::from_utf8_lossy(&out).into_owned()
    });
    let code = child.wait().unwrap().exit_code();
    drop((writer, pair.master));
    (code, reading.join().unwrap())
}

#[test]
fn on_a_terminal_it_states_the_cost_and_asks() {
    let (code, screen) = asked(b"n\n");
    assert_eq!(code, 4, "{screen}");
    assert!(
        screen.contains("about 1 s, 1 MiB of host memory. It disturbs nobody") && screen.contains("[y/N]"),
        "{screen}"
    );
    assert!(screen.contains("not run"), "{screen}");
    let (code, screen) = asked(b"y\n");
    assert_eq!(code, 0, "{screen}");
    assert!(screen.contains("# fake on the host"), "{screen}");
    let (code, screen) = asked(b"\xff\xfe\n");
    assert!(code == 4 && screen.contains("not run"), "bytes that are no text are no yes: {code} {screen}");
}

#[test]
fn a_question_is_left_by_ctrl_c_and_not_by_the_last_resort() {
    let home = home();
    let (code, screen) = asked_at(&home, b"\x03");
    assert_eq!(code, 130, "{screen}");
    // The last resort ends the program without a line in the log.
    let log = fs::read_to_string(home.path().join("warptop/warptop.log")).unwrap();
    assert!(log.contains("ended"), "{log}");
}
