//! The terminal as a device: its modes, who is in front of it, and writing that never waits for ever.
//!
//! It must not know what is written or why. Invariants: nothing here allocates once the device is open, and nothing
//! takes a lock but by trying, so that a signal handler may call all of it; a write ends when its caller gives up.

use std::fs::File;
use std::io::{self, IsTerminal as _};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::getpgrp;
use rustix::termios::{OptionalActions, QueueSelector, Termios, tcflush, tcgetattr, tcgetpgrp, tcsetattr};

use crate::model::lock;

/// How long a write waits for room before it asks its caller whether to go on.
const ROOM: Duration = Duration::from_millis(50);
/// Bytes written at a time where a write may wait: a terminal that says it has room takes about that many.
const PIECE: usize = 256;

/// A terminal: where keys come from, and where the screen goes.
#[derive(Debug)]
pub(super) struct Tty {
    keys: OwnedFd,
    screen: OwnedFd,
    /// Whether writing on `screen` never waits.
    instant: bool,
    /// The modes before the program changed them; `None` while they are not changed.
    before: Mutex<Option<Termios>>,
}

impl Tty {
    /// The terminal that standard output goes to, with keys from standard input or else from the controlling terminal.
    ///
    /// # Errors
    /// When there is nothing to read keys from.
    pub(super) fn open() -> io::Result<Self> {
        let keys = if io::stdin().is_terminal() {
            io::stdin().as_fd().try_clone_to_owned()?
        } else {
            let open = File::options().read(true).open("/dev/tty");
            open.map_err(|error| {
                io::Error::new(error.kind(), format!("no keys: standard input is no terminal, and /dev/tty: {error}"))
            })?
            .into()
        };
        // Opened anew, since not to wait is a property of what is open, and standard output is shared with the shell.
        // Another user's terminal (after `su`) may not be opened.
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let (screen, instant) = match rustix::fs::open("/proc/self/fd/1", flags, Mode::empty()) {
            Ok(screen) => (screen, true),
            Err(_) => (io::stdout().as_fd().try_clone_to_owned()?, false),
        };
        Ok(Self { keys, screen, instant, before: Mutex::new(None) })
    }

    /// Whether this program is the one that the user has before them. Without job control there is only one.
    pub(super) fn is_in_front(&self) -> bool {
        !tcgetpgrp(&self.keys).is_ok_and(|group| group != getpgrp())
    }

    /// Makes keys come as they are typed, and keeps what was before.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub(super) fn make_raw(&self) -> io::Result<()> {
        let mut before = lock(&self.before);
        let mut raw = match &*before {
            Some(before) => before.clone(),
            None => tcgetattr(&self.keys)?,
        };
        let kept = raw.clone();
        raw.make_raw();
        tcsetattr(&self.keys, OptionalActions::Now, &raw)?;
        *before = Some(kept);
        Ok(())
    }

    /// Puts the modes back as they were; nothing happens where they are not changed. In the background they are those of
    /// the program in front.
    pub(super) fn put_back(&self) {
        if !self.is_in_front() {
            return;
        }
        let Some(mut before) = seize(&self.before, ROOM) else { return };
        if let Some(modes) = before.take() {
            // It may be gone. This never waits for what is still to be written.
            let _ = tcsetattr(&self.keys, OptionalActions::Now, &modes);
        }
    }

    /// Writes all of it, however often the terminal takes only a part, unless `gives_up` says otherwise in between.
    ///
    /// # Errors
    /// `AGAIN` when it gave up, else when the terminal is gone.
    pub(super) fn write(&self, mut bytes: &[u8], mut gives_up: impl FnMut() -> bool) -> Result<(), Errno> {
        let most = if self.instant { usize::MAX } else { PIECE };
        while !bytes.is_empty() {
            let ready = self.instant || wait(&self.screen, PollFlags::OUT, Duration::ZERO);
            let written = if ready {
                rustix::io::write(&self.screen, &bytes[..bytes.len().min(most)])
            } else {
                Err(Errno::AGAIN)
            };
            match written {
                Ok(n) => bytes = &bytes[n..],
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if gives_up() => return Err(Errno::AGAIN),
                Err(Errno::AGAIN) => {
                    wait(&self.screen, PollFlags::OUT, ROOM);
                    // A terminal may have room, and yet none for the next character.
                    pause(Duration::from_millis(1));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes what must be seen although the terminal may have stopped to take anything: then what it did not take
    /// is thrown away first.
    pub(super) fn write_last(&self, bytes: &[u8], patience: Duration) {
        let mut left = patience.as_millis() / ROOM.as_millis();
        let mut in_time = || {
            let over = left == 0;
            left = left.saturating_sub(1);
            over
        };
        if self.write(bytes, &mut in_time) == Err(Errno::AGAIN) {
            let _ = tcflush(&self.screen, QueueSelector::OFlush);
            let _ = self.write(bytes, || true);
        }
    }

    /// Waits for keys, at most so long. A terminal that is gone has something to read too: its end.
    pub(super) fn wait_for_keys(&self, most: Duration) -> bool {
        wait(&self.keys, PollFlags::IN, most)
    }

    /// Whether the other end of the terminal is closed; waits at most so long for it.
    pub(super) fn is_gone(&self, most: Duration) -> bool {
        wait(&self.keys, PollFlags::empty(), most)
    }

    /// Reads what was typed.
    ///
    /// # Errors
    /// When the terminal is gone, or another program is in front of it.
    pub(super) fn read(&self, into: &mut [u8]) -> Result<usize, Errno> {
        rustix::io::read(&self.keys, into)
    }
}

fn wait(of: &OwnedFd, what: PollFlags, most: Duration) -> bool {
    let most = Timespec::try_from(most).ok();
    poll(&mut [PollFd::new(of, what)], most.as_ref()).is_ok_and(|n| n > 0)
}

/// Sleeps, in a signal handler too.
pub(super) fn pause(time: Duration) {
    if let Ok(time) = Timespec::try_from(time) {
        let _ = rustix::thread::nanosleep(&time);
    }
}

/// The lock, if it is to be had within `most`: whoever has it may be the thread that a signal handler interrupted.
pub(super) fn seize<T>(lock: &Mutex<T>, most: Duration) -> Option<MutexGuard<'_, T>> {
    let step = Duration::from_millis(5);
    let mut waited = Duration::ZERO;
    loop {
        match lock.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(guard)) => return Some(guard.into_inner()),
            Err(TryLockError::WouldBlock) if waited < most => {
                pause(step);
                waited += step;
            }
            Err(TryLockError::WouldBlock) => return None,
        }
    }
}
