//! Keys and signals, each read on a thread of its own that is never waited for.
//!
//! Both also see to it that a request to end is heard when the main loop hangs in a write to a terminal that takes
//! nothing: nothing is drawn from then on, and after a moment they end the program themselves. What they say goes into a
//! bounded queue: of keys that nobody takes the rest is dropped, a signal is said again.

use std::future::poll_fn;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::app::{Action, Event, Key};

use super::keys::KeyDecoder;
use super::tty::Tty;
use super::{TTY, WAITS, is_ours, let_go, signals};
use crate::model::spawn;

/// How long the main loop may take to end once it was told to (a recorder waits 2 s for its output).
const PATIENCE: Duration = Duration::from_secs(3);
/// How often somebody who is not listened to looks again: for the terminal to be ours, for room in the queue.
const AGAIN: Duration = Duration::from_millis(100);
/// How often to look whether the terminal is still ours while nothing is typed: the shell may have taken it and given it
/// back while this waited.
const IDLE: Duration = Duration::from_millis(500);
/// Bytes read at a time.
const READ: usize = 4096;
/// Exit code of a program ended by a signal.
pub const INTERRUPTED: i32 = 130;
/// Most inputs that wait for the main loop: far more than anybody types while a frame is drawn.
pub const QUEUE: usize = 1024;

/// What comes from outside, besides data.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Input {
    /// For the app.
    App(Event),
    /// Another program wants this one to stop, as Ctrl-Z does.
    Stop,
    /// The program was stopped and goes on, or is in front again: the terminal must be taken over again.
    Continued,
}

const END: Input = Input::App(Event::Interrupt);

/// Reads keys from the terminal that was entered.
///
/// # Errors
/// When the system gives no thread.
pub fn read_terminal(to: SyncSender<Input>) -> io::Result<()> {
    let Some(tty) = TTY.get() else { return Ok(()) };
    let body = move || {
        let mut keys = Keys { tty, to: &to, decoder: KeyDecoder::default() };
        if keys.read().is_none() {
            return;
        }
        // The terminal is gone. Nobody may listen any more.
        end_in_time(INTERRUPTED);
        let _ = to.send(END);
    };
    spawn("keys", body).map(drop)
}

/// The terminal is gone.
struct Gone;

/// Reads keys.
struct Keys<'a> {
    tty: &'a Tty,
    to: &'a SyncSender<Input>,
    decoder: KeyDecoder,
}

impl Keys<'_> {
    /// Reads until the terminal is gone; `None` when nobody listens any more.
    fn read(&mut self) -> Option<Gone> {
        let mut bytes = [0; READ];
        loop {
            if !is_ours() {
                // What is typed now is for somebody else.
                if self.tty.is_gone(AGAIN) {
                    return Some(Gone);
                }
                self.decoder = KeyDecoder::default();
                if WAITS.load(Ordering::SeqCst) && self.tty.is_in_front() {
                    self.say(Input::Continued)?;
                }
                continue;
            }
            if !self.tty.wait_for_keys(self.decoder.patience().unwrap_or(IDLE)) {
                let late = self.decoder.expire();
                self.press(late)?;
                continue;
            }
            // Somebody may have come in front while this waited.
            if !is_ours() {
                continue;
            }
            match self.tty.read(&mut bytes) {
                Ok(n @ 1..) => {
                    for &byte in &bytes[..n] {
                        let key = self.decoder.feed(byte);
                        self.press(key)?;
                    }
                }
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(_) if !self.tty.is_in_front() => {}
                Ok(_) | Err(_) => return Some(Gone),
            }
        }
    }

    fn press(&self, key: Option<Key>) -> Option<()> {
        let Some(key) = key else { return Some(()) };
        if Action::of(key).is_some_and(|(action, _)| action == Action::Quit) {
            end_in_time(0);
        }
        self.say(Input::App(Event::Key(key)))
    }

    fn say(&self, input: Input) -> Option<()> {
        match self.to.try_send(input) {
            Ok(()) | Err(TrySendError::Full(_)) => Some(()),
            Err(TrySendError::Disconnected(_)) => None,
        }
    }
}

/// Whether a thread sees to it that the program ends in time: a paste may ask for the end at every byte.
static SEEN_TO: AtomicBool = AtomicBool::new(false);

/// Draws nothing any more, and ends the program with `code` unless the main loop does so first.
fn end_in_time(code: i32) {
    let_go();
    if SEEN_TO.swap(true, Ordering::SeqCst) {
        return;
    }
    let watch = move || {
        thread::sleep(PATIENCE);
        super::leave(code);
    };
    // Without another thread there is only the main loop to rely on.
    if spawn("last-resort", watch).is_err() {
        SEEN_TO.store(false, Ordering::SeqCst);
    }
}

/// Keeps SIGXFSZ from ending the program: a file that may not grow is then an error of the write, with words, and the
/// terminal is given back as ever.
///
/// # Errors
/// When the system refuses.
pub fn outlive_full_files() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let _inside = runtime.enter();
    // The handler stays when this is gone; what it hears is of no interest.
    signal(SignalKind::from_raw(libc::SIGXFSZ)).map(drop)
}

/// What each signal says; those that end come first. SIGTSTP only where there is a terminal to give back before.
const SIGNALS: [(i32, Input); 8] = [
    (libc::SIGTERM, END),
    (libc::SIGHUP, END),
    (libc::SIGINT, END),
    (libc::SIGQUIT, END),
    (libc::SIGXCPU, END),
    (libc::SIGTSTP, Input::Stop),
    (libc::SIGCONT, Input::Continued),
    (libc::SIGWINCH, Input::App(Event::Resize)),
];

/// Turns signals into inputs, SIGTSTP only for a program with a `screen`. One that whoever started the program has
/// ignored stays ignored: `nohup warptop record` outlives its terminal.
///
/// # Errors
/// When the system gives no thread.
pub fn read_signals(to: SyncSender<Input>, screen: bool) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // Installed before this returns: a signal that comes right after it is not lost.
    let mut heard = Vec::new();
    {
        let _inside = runtime.enter();
        for (number, input) in SIGNALS {
            if (screen || input != Input::Stop) && !signals::is_ignored(number) {
                heard.push((signal(SignalKind::from_raw(number))?, input));
            }
        }
    }
    let body = move || runtime.block_on(pass_on(heard, &to));
    spawn("signals", body).map(drop)
}

async fn pass_on(mut heard: Vec<(Signal, Input)>, to: &SyncSender<Input>) {
    // What there was no room for.
    let mut owed = None;
    loop {
        let next = poll_fn(|context| {
            let mut said =
                heard.iter_mut().filter_map(|(signal, input)| signal.poll_recv(context).is_ready().then_some(*input));
            said.next().map_or(Poll::Pending, Poll::Ready)
        });
        let input = tokio::select! {
            input = next => input,
            () = tokio::time::sleep(AGAIN), if owed.is_some() => owed.take().unwrap_or(END),
        };
        if input == END {
            end_in_time(INTERRUPTED);
        }
        match to.try_send(input) {
            Ok(()) => {}
            Err(TrySendError::Full(input)) => owed = if owed == Some(END) { owed } else { Some(input) },
            Err(TrySendError::Disconnected(_)) => return,
        }
    }
}
