//! Keys and signals, each read on a thread of its own that is never waited for.
//!
//! Both also see to it that a request to end is heard when the main loop hangs in a write to a
//! terminal that takes nothing: after a moment they end the program themselves.

use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

use crossterm::event::{self, Event as Raw, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use tokio::signal::unix::{SignalKind, signal};

use crate::app::{Action, Event, Key};

/// How long the main loop may take to end once it was told to (a recorder waits 2 s for its output).
const PATIENCE: Duration = Duration::from_secs(3);
/// Exit code of a program ended by a signal.
pub const INTERRUPTED: i32 = 130;

/// What comes from outside, besides data.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Input {
    /// For the app.
    App(Event),
    /// The program was stopped and goes on: the terminal must be taken over again.
    Continued,
}

/// Reads keys from the terminal.
///
/// # Errors
/// When the system gives no thread.
pub fn read_terminal(to: Sender<Input>) -> std::io::Result<()> {
    let body = move || {
        while let Ok(raw) = event::read() {
            let Some(event) = translate(&raw) else { continue };
            let quits = matches!(event, Event::Key(key) if Action::of(key).is_some_and(|(a, _)| a == Action::Quit));
            if to.send(Input::App(event)).is_err() {
                return;
            }
            if quits {
                end_in_time(0);
            }
        }
        // The terminal is gone. Nobody may listen any more.
        let _ = to.send(Input::App(Event::Interrupt));
    };
    thread::Builder::new().name("keys".to_owned()).spawn(body).map(drop)
}

/// Ends the program with `code` unless the main loop does so first.
fn end_in_time(code: i32) {
    let watch = move || {
        thread::sleep(PATIENCE);
        super::abandon(code);
    };
    // Without another thread there is only the main loop to rely on.
    drop(thread::Builder::new().name("last-resort".to_owned()).spawn(watch));
}

/// Keeps SIGXFSZ from ending the program: a file that may not grow is then an error of the write, with words, and the
/// terminal is given back as ever.
///
/// # Errors
/// When the system refuses.
pub fn outlive_full_files() -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let _inside = runtime.enter();
    // The handler stays when this is gone; what it hears is of no interest.
    signal(SignalKind::from_raw(libc::SIGXFSZ)).map(drop)
}

/// Turns SIGTERM, SIGHUP, SIGINT, SIGQUIT and SIGXCPU into [`Event::Interrupt`], SIGWINCH into [`Event::Resize`] and
/// SIGCONT into [`Input::Continued`]. The terminal library reports changes of size too, but loses one that comes
/// together with a key; the screen would stay torn until the next.
///
/// # Errors
/// When the system gives no thread.
pub fn read_signals(to: Sender<Input>) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // Installed before this returns: a signal that comes right after it is not lost.
    let (mut terminate, mut hang_up, mut interrupt, mut leave, mut out_of_time, mut go_on, mut resize) = {
        let _inside = runtime.enter();
        (
            signal(SignalKind::terminate())?,
            signal(SignalKind::hangup())?,
            signal(SignalKind::interrupt())?,
            signal(SignalKind::quit())?,
            signal(SignalKind::from_raw(libc::SIGXCPU))?,
            signal(SignalKind::from_raw(libc::SIGCONT))?,
            signal(SignalKind::window_change())?,
        )
    };
    let body = move || {
        runtime.block_on(async {
            loop {
                let input = tokio::select! {
                    _ = terminate.recv() => Input::App(Event::Interrupt),
                    _ = hang_up.recv() => Input::App(Event::Interrupt),
                    _ = interrupt.recv() => Input::App(Event::Interrupt),
                    _ = leave.recv() => Input::App(Event::Interrupt),
                    _ = out_of_time.recv() => Input::App(Event::Interrupt),
                    _ = go_on.recv() => Input::Continued,
                    _ = resize.recv() => Input::App(Event::Resize),
                };
                if input == Input::App(Event::Interrupt) {
                    end_in_time(INTERRUPTED);
                }
                if to.send(input).is_err() {
                    return;
                }
            }
        });
    };
    thread::Builder::new().name("signals".to_owned()).spawn(body).map(drop)
}

/// What the app has to know of a terminal event. Pasted text is no key press: it could quit.
fn translate(raw: &Raw) -> Option<Event> {
    match raw {
        Raw::Key(key) => translate_key(key).map(Event::Key),
        // Sizes: see `read_signals`.
        Raw::Resize(..) | Raw::Paste(_) | Raw::Mouse(_) | Raw::FocusGained | Raw::FocusLost => None,
    }
}

fn translate_key(key: &KeyEvent) -> Option<Key> {
    if key.kind == KeyEventKind::Release || key.modifiers.intersects(KeyModifiers::ALT | KeyModifiers::SUPER) {
        return None;
    }
    let ctrl = key.modifiers.contains(KeyModifiers::CONTROL);
    Some(match key.code {
        KeyCode::Char(c) if ctrl => Key::Ctrl(c.to_ascii_lowercase()),
        KeyCode::Char(c) => Key::Char(c),
        KeyCode::Tab if key.modifiers.contains(KeyModifiers::SHIFT) => Key::BackTab,
        KeyCode::Tab => Key::Tab,
        KeyCode::BackTab => Key::BackTab,
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Esc,
        KeyCode::Left => Key::Left,
        KeyCode::Right => Key::Right,
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(code: KeyCode, modifiers: KeyModifiers) -> Option<Event> {
        translate(&Raw::Key(KeyEvent::new(code, modifiers)))
    }

    #[test]
    fn case_and_modifiers_count() {
        assert_eq!(key(KeyCode::Char('G'), KeyModifiers::SHIFT), Some(Event::Key(Key::Char('G'))));
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Event::Key(Key::Ctrl('c'))));
        assert_eq!(key(KeyCode::Char('q'), KeyModifiers::ALT), None);
        assert_eq!(key(KeyCode::Tab, KeyModifiers::SHIFT), Some(Event::Key(Key::BackTab)));
    }

    #[test]
    fn pasted_text_and_releases_do_nothing() {
        assert_eq!(translate(&Raw::Paste("q".to_owned())), None);
        let mut up = KeyEvent::new(KeyCode::Char('q'), KeyModifiers::NONE);
        up.kind = KeyEventKind::Release;
        assert_eq!(translate(&Raw::Key(up)), None);
    }
}
