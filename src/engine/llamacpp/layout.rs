//! Whether slots have shares of their own or share the whole context (`--kv-unified`).
//!
//! No answer of the server says so. It follows from one slot, from slots that together hold more than one
//! may, from a build before there was a choice, or from the command line, whose `--ctx-size` is that of all
//! slots together. Invariant: what is not certain is `None`.

use super::slots::{Slot, context};
use crate::engine::launch;

/// How slots get their KV memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// Each has its own share.
    Slots,
    /// All share the whole.
    Unified,
}

/// What is known about it.
#[derive(Debug, Default)]
pub(super) struct Layouts {
    /// Seen to have shares of their own.
    split: bool,
    /// Said to share.
    unified: bool,
    /// The command line says how many slots; without that the server decides, and lets them share.
    counted: bool,
    /// The whole context according to it, tokens.
    whole: Option<f64>,
}

impl Layouts {
    /// What a command line says.
    pub(super) fn of(words: &[String]) -> Self {
        let has = |names: &[&str]| words.iter().any(|word| names.contains(&word.split('=').next().unwrap_or_default()));
        let whole = launch::option(words, &["-c", "--ctx-size"]).and_then(|value| value.parse().ok());
        Self {
            split: false,
            unified: has(&["-kvu", "--kv-unified"]),
            counted: has(&["-np", "--parallel"]),
            whole: whole.filter(|whole| *whole > 0.0),
        }
    }

    /// Notes that slots were seen to have shares of their own.
    pub(super) const fn split(&mut self) {
        self.split = true;
    }

    /// How these slots get their memory.
    pub(super) fn of_slots(&self, slots: &[Slot]) -> Option<Layout> {
        // A share is rounded up to a multiple of this.
        const STEP: f64 = 256.0;
        let (count, own) = (slots.len() as f64, context(slots));
        match self.whole {
            _ if self.split || slots.len() == 1 => Some(Layout::Slots),
            _ if self.unified => Some(Layout::Unified),
            Some(whole) if (0.0..STEP).contains(&(own - whole / count)) => Some(Layout::Slots),
            Some(whole) if (own - whole).abs() < STEP => Some(Layout::Unified),
            _ => self.counted.then_some(Layout::Slots),
        }
    }
}
