//! A terminal with a program in it.

use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use portable_pty::{Child, CommandBuilder, ExitStatus, MasterPty, PtySize, SlavePty, native_pty_system};
use rustix::process::{Pid, Signal, kill_process};

/// Steps of 10 ms that a condition may take to come true: far more than it ever should.
pub(crate) const PATIENCE: u32 = 3000;

/// A terminal with a program in it.
pub(crate) struct Session {
    pub(crate) master: Box<dyn MasterPty + Send>,
    /// Kept open, so that the terminal's modes can be read after the program has ended.
    _slave: Box<dyn SlavePty + Send>,
    pub(crate) child: Box<dyn Child + Send + Sync>,
    input: Box<dyn Write + Send>,
    pub(crate) screen: Arc<Mutex<vt100::Parser>>,
    pub(crate) raw: Arc<Mutex<Vec<u8>>>,
    pub(crate) modes_before: String,
}

pub(crate) fn size(columns: u16, rows: u16) -> PtySize {
    PtySize { rows, cols: columns, pixel_width: 0, pixel_height: 0 }
}

fn some(n: u16) -> NonZeroU16 {
    NonZeroU16::new(n).unwrap()
}

pub(crate) fn warptop(args: &[&str]) -> CommandBuilder {
    let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_warptop"));
    command.args(args);
    command
}

pub(crate) fn modes(master: &dyn MasterPty) -> String {
    format!("{:?}", master.get_termios().unwrap())
}

impl Session {
    pub(crate) fn start(mut command: CommandBuilder, columns: u16, rows: u16) -> Self {
        for name in ["NO_COLOR", "CLICOLOR_FORCE", "LC_ALL", "LC_CTYPE"] {
            command.env_remove(name);
        }
        // Its log is not that of whoever runs the tests.
        command.env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR"));
        command.env("LANG", "C.UTF-8");
        command.env("RUST_BACKTRACE", "0");
        if command.get_env("TERM").is_none_or(|term| term != "dumb") {
            command.env("TERM", "xterm-256color");
        }
        let pair = native_pty_system().openpty(size(columns, rows)).unwrap();
        let modes_before = modes(&*pair.master);
        let child = pair.slave.spawn_command(command).unwrap();
        let parser = vt100::Parser::new(some(rows), some(columns), 0);
        Self {
            input: pair.master.take_writer().unwrap(),
            master: pair.master,
            _slave: pair.slave,
            child,
            screen: Arc::new(Mutex::new(parser)),
            raw: Arc::default(),
            modes_before,
        }
    }

    /// Lets the terminal take what the program writes.
    pub(crate) fn read(self) -> Self {
        let mut reader = self.master.try_clone_reader().unwrap();
        let (screen, raw) = (Arc::clone(&self.screen), Arc::clone(&self.raw));
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(n @ 1..) = reader.read(&mut bytes) {
                screen.lock().unwrap().process(&bytes[..n]);
                raw.lock().unwrap().extend_from_slice(&bytes[..n]);
            }
        });
        self
    }

    pub(crate) fn live(args: &[&str], columns: u16, rows: u16) -> Self {
        let session = Self::start(warptop(args), columns, rows).read();
        session.wait("the first frame", |screen| screen.contents().contains("live"));
        session
    }

    pub(crate) fn wait(&self, what: &str, holds: impl Fn(&vt100::Screen) -> bool) {
        for _ in 0..PATIENCE {
            if holds(self.screen.lock().unwrap().screen()) {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("{what} did not come; the screen:\n{}", self.contents());
    }

    /// Waits until the program has taken the terminal over, though nobody reads what it shows.
    pub(crate) fn wait_for_raw_modes(&self) {
        for _ in 0..PATIENCE {
            if modes(&*self.master) != self.modes_before {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("never took the terminal over");
    }

    pub(crate) fn contents(&self) -> String {
        self.screen.lock().unwrap().screen().contents()
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.input.write_all(keys.as_bytes()).unwrap();
        self.input.flush().unwrap();
    }

    pub(crate) fn resize(&self, columns: u16, rows: u16) {
        self.screen.lock().unwrap().set_size(some(rows), some(columns));
        self.master.resize(size(columns, rows)).unwrap();
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.process_id().unwrap()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
    }

    pub(crate) fn ended(&mut self) -> ExitStatus {
        for _ in 0..PATIENCE {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("it did not end; the screen:\n{}", self.contents());
    }

    /// Presses it again and again until the program ends: once per half-second and more, after which nothing that is
    /// unfinished counts.
    pub(crate) fn press_until_it_ends(&mut self, key: &str) -> ExitStatus {
        for _ in 0..PATIENCE / 60 {
            thread::sleep(Duration::from_millis(600));
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            // It may end in this moment.
            drop(self.input.write_all(key.as_bytes()));
        }
        panic!("{key:?} does not end it; the screen:\n{}", self.contents());
    }

    /// Closes the terminal, as a lost connection does. For one that nobody else reads.
    pub(crate) fn hang_up(&mut self) {
        let other = native_pty_system().openpty(size(80, 24)).unwrap();
        self.input = other.master.take_writer().unwrap();
        self.master = other.master;
    }

    /// How often this was written.
    pub(crate) fn count(&self, text: &str) -> usize {
        String::from_utf8_lossy(&self.raw.lock().unwrap()).matches(text).count()
    }

    /// Waits for the end and checks the exit code and that the terminal is as it was.
    pub(crate) fn ends(&mut self, code: u32) {
        assert_eq!(self.ended().exit_code(), code, "{}", self.contents());
        self.is_restored();
    }

    /// Checks that a terminal that took nothing is as it was once it takes what the program left for it.
    pub(crate) fn expect_restored_late(self) {
        let session = self.read();
        session.wait("the last bytes", |screen| session.count("\x1b[?1049l") > 0 && !screen.alternate_screen());
        assert!(!session.screen.lock().unwrap().screen().hide_cursor());
        assert_eq!(modes(&*session.master), session.modes_before);
    }

    /// Checks that the terminal is as it was, and was given back as often as it was taken.
    pub(crate) fn is_restored(&self) {
        self.wait("the terminal as it was", |screen| {
            !screen.alternate_screen() && !screen.hide_cursor() && !screen.bracketed_paste()
        });
        assert_eq!(modes(&*self.master), self.modes_before);
        let raw = String::from_utf8_lossy(&self.raw.lock().unwrap()).into_owned();
        let last = |sequence: &str| raw.rfind(sequence);
        assert!(last("\x1b[?2026l") >= last("\x1b[?2026h"), "a frame was left open");
        assert_eq!(self.count("\x1b[?1049l"), self.count("\x1b[?1049h"), "given back once each time");
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Already gone, as a rule.
        drop(self.child.kill());
    }
}
