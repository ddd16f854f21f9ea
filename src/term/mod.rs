//! The terminal's life: entered once, and given back whatever ends the program.
//!
//! It must not know what is drawn. Invariants: [`restore`] may be called from any thread, any number
//! of times; once it has been called nothing is written to the terminal until it is entered again;
//! each flush is one write, wrapped as a synchronised frame.

pub mod caps;
pub mod input;

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, TryLockError};
use std::time::Duration;

use crossterm::terminal::{disable_raw_mode, enable_raw_mode};
use ratatui::backend::CrosstermBackend;
use ratatui::layout::Rect;
use ratatui::{Terminal, TerminalOptions, Viewport};

/// Alternate screen, pasted text marked as such, no cursor.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?2004h\x1b[?25l";
/// Undoes all that the program switches on, an unfinished frame first.
const LEAVE: &[u8] = b"\x1b[?2026l\x1b[0m\x1b[?2004l\x1b[?25h\x1b[?1049l";
/// Begin and end of a frame that the terminal shows at once (DEC private mode 2026).
const BEGIN_FRAME: &[u8] = b"\x1b[?2026h";
const END_FRAME: &[u8] = b"\x1b[?2026l";
/// A frame of a very large screen; more than that goes out in pieces.
const FRAME_BYTES: usize = 64 << 10;
/// How long [`restore`] waits for a frame that is being written.
const PATIENCE: Duration = Duration::from_millis(200);

/// Whether the terminal is ours.
static ACTIVE: AtomicBool = AtomicBool::new(false);
/// Held while bytes go out.
static GATE: Mutex<()> = Mutex::new(());
/// The terminal, apart from the standard library's own lock on standard output: a thread that is
/// stuck in a write must not keep another one from restoring.
static TTY: OnceLock<File> = OnceLock::new();

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

/// Takes over the terminal.
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
    let tty = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let tty = TTY.get_or_init(|| tty);
    let guard = Guard(());
    resume()?;
    let out = Out { tty, frame: Vec::with_capacity(FRAME_BYTES) };
    // Of no size yet: the program takes as much of the terminal as it draws.
    let options = TerminalOptions { viewport: Viewport::Fixed(Rect::ZERO) };
    Ok((guard, Terminal::with_options(CrosstermBackend::new(out), options)?))
}

/// Takes over a terminal that was given back, or that another program has changed meanwhile.
///
/// # Errors
/// When the terminal is gone.
pub fn resume() -> io::Result<()> {
    let Some(mut tty) = TTY.get() else { return Ok(()) };
    // Both, because after a stop by another process the terminal is no longer raw, unnoticed.
    disable_raw_mode()?;
    enable_raw_mode()?;
    ACTIVE.store(true, Ordering::SeqCst);
    tty.write_all(ENTER)
}

/// Gives the terminal back as it was. Nothing happens when it has been given back already.
pub fn restore() {
    if !ACTIVE.swap(false, Ordering::SeqCst) {
        return;
    }
    // A frame that is being written ends first, unless the terminal takes nothing any more.
    let step = Duration::from_millis(5);
    let mut waited = Duration::ZERO;
    let gate = loop {
        match GATE.try_lock() {
            Ok(gate) => break Some(gate),
            Err(TryLockError::Poisoned(gate)) => break Some(gate.into_inner()),
            Err(TryLockError::WouldBlock) if waited < PATIENCE => {
                std::thread::sleep(step);
                waited += step;
            }
            Err(TryLockError::WouldBlock) => break None,
        }
    };
    // There is nothing left to do about an error here. The modes of the line first: that never blocks.
    let _ = disable_raw_mode();
    if gate.is_some()
        && let Some(mut tty) = TTY.get()
    {
        let _ = tty.write_all(LEAVE);
    }
}

/// Stops the program as the shell's Ctrl-Z would, and takes the terminal back when it goes on.
///
/// # Errors
/// When the terminal is gone.
pub fn suspend() -> io::Result<()> {
    restore();
    // The whole job stops, as the shell expects; without a shell that could continue it the system
    // ignores the signal. The stop may come a moment later, while this thread already goes on.
    rustix::process::kill_current_process_group(rustix::process::Signal::TSTP)?;
    std::thread::sleep(Duration::from_millis(50));
    resume()
}

/// Ends the program although its main loop does not answer: a terminal that takes no more bytes.
pub fn abandon(code: i32) -> ! {
    restore();
    std::process::exit(code)
}

/// Makes a panic of any thread give the terminal back, say its message and end the program with 101.
pub fn restore_on_panic() {
    let print = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        restore();
        print(info);
        std::process::exit(101);
    }));
}

/// Collects a frame and writes it as one.
#[derive(Debug)]
pub struct Out {
    tty: &'static File,
    frame: Vec<u8>,
}

impl Out {
    fn send(&mut self) -> io::Result<()> {
        let gate = GATE.lock();
        let result = if ACTIVE.load(Ordering::SeqCst) { self.tty.write_all(&self.frame) } else { Ok(()) };
        drop(gate);
        self.frame.clear();
        result
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
