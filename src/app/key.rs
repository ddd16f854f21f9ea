//! A key as the program knows it, free of any terminal library. Case counts: `g` and `G` differ.

use std::fmt;

/// A key press.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// A character, as typed (Shift is in its case).
    Char(char),
    /// A letter with Ctrl, in lower case.
    Ctrl(char),
    /// Tab.
    Tab,
    /// Shift-Tab.
    BackTab,
    /// Enter.
    Enter,
    /// Escape.
    Esc,
    /// Arrow left.
    Left,
    /// Arrow right.
    Right,
    /// Arrow up.
    Up,
    /// Arrow down.
    Down,
    /// Home.
    Home,
    /// End.
    End,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Char(' ') => f.write_str("Space"),
            Self::Char(c) => write!(f, "{c}"),
            Self::Ctrl(c) => write!(f, "Ctrl-{}", c.to_ascii_uppercase()),
            Self::BackTab => f.write_str("Shift-Tab"),
            Self::Tab
            | Self::Enter
            | Self::Esc
            | Self::Left
            | Self::Right
            | Self::Up
            | Self::Down
            | Self::Home
            | Self::End => {
                write!(f, "{self:?}")
            }
        }
    }
}
