//! The same words are said once a minute, with how often they came again.
//!
//! Pure: time comes in. Words that differ only in their numbers are the same. Invariant: the table is bounded; what has no
//! place in it is counted.

use std::collections::HashMap;

use super::{LogLevel, LogLine};
use crate::model::Time;
use crate::model::text::Plural;

/// How long the same words are only counted, ms.
const WINDOW_MS: u64 = 60_000;
/// Different words a minute; all others are counted together.
const MOST: usize = 256;

#[derive(Debug)]
struct Last {
    since: Time,
    line: LogLine,
    again: u64,
}

/// What was said lately.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    last: HashMap<(String, String), Last>,
    /// Lines without a place in the table.
    others: u64,
    others_since: Time,
}

impl Repeats {
    /// Takes a line in; gives it back where it is to be said now.
    pub(super) fn take(&mut self, line: LogLine, now: Time) -> Option<LogLine> {
        let key = (line.subject.clone(), shape(&line.words));
        if let Some(last) = self.last.get_mut(&key) {
            last.again += 1;
            last.line = line;
            return None;
        }
        if self.last.len() >= MOST {
            if self.others == 0 {
                self.others_since = now;
            }
            self.others += 1;
            return None;
        }
        self.last.insert(key, Last { since: now, line: line.clone(), again: 0 });
        Some(line)
    }

    /// What came again, a minute after it was said last.
    pub(super) fn due(&mut self, now: Time) -> Vec<LogLine> {
        let mut due = Vec::new();
        self.last.retain(|_, last| {
            if now.since(last.since) < WINDOW_MS {
                return true;
            }
            let again = std::mem::take(&mut last.again);
            last.since = now;
            if again > 0 {
                due.push(LogLine { again, ..last.line.clone() });
            }
            again > 0
        });
        due.sort_by_key(|line| line.at);
        if self.others > 0 && now.since(self.others_since) >= WINDOW_MS {
            let words = Plural(self.others, "more line of other words is", "more lines of other words are");
            let words = format!("{words} left out");
            self.others = 0;
            due.push(LogLine::new(now, LogLevel::Warning, "log", &words));
        }
        due
    }
}

/// The words with every number as `#`.
fn shape(words: &str) -> String {
    let mut shape = String::with_capacity(words.len());
    for c in words.chars() {
        match c {
            '0'..='9' if shape.ends_with('#') => {}
            '0'..='9' => shape.push('#'),
            c => shape.push(c),
        }
    }
    shape
}
