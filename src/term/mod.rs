//! The terminal's life: entered once, and given back whatever ends the program.
//!
//! It must not know what is drawn. Invariants: [`restore`] may be called from any thread and from a signal handler, any
//! number of times; once it has been called nothing is written to the terminal until it is entered again; nothing is
//! written and no key is read while another program is in front; each flush is one write, wrapped as a synchronised
//! frame.

pub mod caps;
pub mod input;
pub mod keys;
mod signals;
mod tty;

use std::io::{self, IsTerminal, Write};
use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use ratatui::backend::CrosstermBackend;
use ratatui::layout::Rect;
use ratatui::{Terminal, TerminalOptions, Viewport};
use rustix::io::Errno;

use tty::{Tty, seize};

/// Alternate screen, pasted text marked as such, no cursor.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?2004h\x1b[?25l";
/// Undoes all that the program switches on, an unfinished frame first.
const LEAVE: &[u8] = b"\x1b[?2026l\x1b[0m\x1b[?2004l\x1b[?25h\x1b[?1049l";
/// Begin and end of a frame that the terminal shows at once (DEC private mode 2026).
const BEGIN_FRAME: &[u8] = b"\x1b[?2026h";
const END_FRAME: &[u8] = b"\x1b[?2026l";
/// A frame of a very large screen; more than that goes out in pieces.
const FRAME_BYTES: usize = 64 << 10;
/// How long [`restore`] waits for a frame that is being written, and then for the terminal to take its last bytes.
const PATIENCE: Duration = Duration::from_millis(200);

/// Whether the terminal is ours.
static ACTIVE: AtomicBool = AtomicBool::new(false);
/// Whether the program goes on in the background and is to take the terminal once it is in front.
static WAITS: AtomicBool = AtomicBool::new(false);
/// Whether nothing is to be drawn any more: the program is about to end.
static LEAVING: AtomicBool = AtomicBool::new(false);
/// Held while bytes go out.
static GATE: Mutex<()> = Mutex::new(());
/// The terminal, apart from the standard library's own lock on standard output: a thread that is
/// stuck in a write must not keep another one from restoring.
static TTY: OnceLock<Tty> = OnceLock::new();

/// A terminal that the program draws on.
pub type Screen = Terminal<CrosstermBackend<Out>>;

/// There is no terminal to draw on.
#[derive(Debug, thiserror::Error)]
pub enum NoTerminal {
    /// Standard output goes elsewhere.
    #[error(
        "standard output is not a terminal: for scripts and pipes use 'warptop snapshot --json' or 'warptop record -o -'"
    )]
    NotATerminal,
    /// It cannot place its cursor.
    #[error("TERM=dumb cannot show a screen: set TERM to what the terminal is, or use 'warptop snapshot --json'")]
    Dumb,
    /// The system refused.
    #[error("cannot use the terminal: {0}")]
    Io(#[from] io::Error),
}

/// Gives the terminal back when dropped.
#[derive(Debug)]
pub struct Guard(());

impl Drop for Guard {
    fn drop(&mut self) {
        restore();
    }
}

/// Takes over the terminal; from the background, not before the program is in front.
///
/// # Errors
/// When there is none, or it cannot be used.
pub fn enter() -> Result<(Guard, Screen), NoTerminal> {
    if !io::stdout().is_terminal() {
        return Err(NoTerminal::NotATerminal);
    }
    if caps::is_dumb() {
        return Err(NoTerminal::Dumb);
    }
    let tty = Tty::open()?;
    let tty = TTY.get_or_init(|| tty);
    signals::outlive_the_background();
    signals::restore_on_crash();
    signals::restore_on_end();
    let guard = Guard(());
    resume()?;
    let out = Out { tty, frame: Vec::with_capacity(FRAME_BYTES) };
    // Of no size yet: the program takes as much of the terminal as it draws.
    let options = TerminalOptions { viewport: Viewport::Fixed(Rect::ZERO) };
    Ok((guard, Terminal::with_options(CrosstermBackend::new(out), options)?))
}

/// Takes over a terminal that was given back, or that another program has changed meanwhile. In the background it does
/// so only once the program is in front again: [`input::read_terminal`] says when.
///
/// # Errors
/// When the terminal is gone.
pub fn resume() -> io::Result<()> {
    let Some(tty) = TTY.get() else { return Ok(()) };
    let waits = !tty.is_in_front();
    WAITS.store(waits, Ordering::SeqCst);
    if waits {
        // Stopped by a signal that says nothing before, and continued in the background: the shell has the terminal,
        // and our screen is still on it.
        restore();
        return Ok(());
    }
    // After a stop by another process the terminal is no longer raw, unnoticed.
    tty.make_raw()?;
    ACTIVE.store(true, Ordering::SeqCst);
    match tty.write(ENTER, || !is_ours()) {
        Ok(()) | Err(Errno::AGAIN) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Whether the terminal is ours, and nobody else has taken it since.
fn is_ours() -> bool {
    ACTIVE.load(Ordering::SeqCst) && TTY.get().is_some_and(Tty::is_in_front)
}

/// Draws nothing from now on: the main loop comes back from a write to a terminal that takes nothing, and can end.
fn let_go() {
    LEAVING.store(true, Ordering::SeqCst);
}

/// Gives the terminal back as it was. Nothing happens when it has been given back already.
pub fn restore() {
    if !ACTIVE.swap(false, Ordering::SeqCst) {
        return;
    }
    let Some(tty) = TTY.get() else { return };
    // A frame that is being written ends first; it gives up at once now, unless it has crashed.
    let _gate = seize(&GATE, PATIENCE);
    // There is nothing left to do about an error here. The modes of the line first: that never waits.
    tty.put_back();
    tty.write_last(LEAVE, PATIENCE);
}

/// Stops the program as the shell's Ctrl-Z would, and takes the terminal back when it goes on.
///
/// # Errors
/// When the terminal is gone.
pub fn suspend() -> io::Result<()> {
    restore();
    signals::stop();
    resume()
}

/// Gives the terminal back and ends the program. Nothing is run of what libraries have for its end: a driver's may hang, or
/// crash. What was printed has to be flushed before.
pub fn leave(code: i32) -> ! {
    restore();
    signals::leave(code)
}

/// Makes a call of `exit` by a library give the terminal back, say what happened and end the program with 1. warptop itself
/// ends by [`leave`].
pub fn restore_on_exit() {
    signals::restore_on_exit();
}

/// Makes a panic of any thread give the terminal back, say its message and end the program with 101.
pub fn restore_on_panic() {
    let print = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        restore();
        print(info);
        signals::leave(101);
    }));
}

/// Collects a frame and writes it as one.
#[derive(Debug)]
pub struct Out {
    tty: &'static Tty,
    frame: Vec<u8>,
}

impl Out {
    fn send(&mut self) -> io::Result<()> {
        let gate = GATE.lock();
        // What a terminal does not take before it is given back is nobody's any more.
        let draws = || is_ours() && !LEAVING.load(Ordering::SeqCst);
        let result = if draws() { self.tty.write(&self.frame, || !draws()) } else { Ok(()) };
        drop(gate);
        self.frame.clear();
        match result {
            Ok(()) | Err(Errno::AGAIN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.frame.is_empty() {
            self.frame.extend_from_slice(BEGIN_FRAME);
        } else if self.frame.len() + bytes.len() + END_FRAME.len() > FRAME_BYTES {
            self.send()?;
        }
        self.frame.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.frame.is_empty() {
            return Ok(());
        }
        self.frame.extend_from_slice(END_FRAME);
        self.send()
    }
}
