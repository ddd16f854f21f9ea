//! Stretches in which nothing was read at all: the machine was suspended, or warptop was stopped.

use std::collections::VecDeque;

use crate::model::Time;

use super::Window;

/// Pauses that are remembered.
const MOST: usize = 64;

/// The pauses of a session, rising.
#[derive(Debug, Default)]
pub(super) struct Pauses(VecDeque<Window>);

impl Pauses {
    /// Notes that nothing was read for `ms` before `at`.
    pub(super) fn push(&mut self, at: Time, ms: u64) {
        let pause = Window::last(at, ms);
        match self.0.back_mut() {
            // What had begun to be read before it is dated into it, and cuts it in two.
            Some(last) if pause.start <= last.end => last.end = last.end.max(at),
            _ => {
                if self.0.len() == MOST {
                    self.0.pop_front();
                }
                self.0.push_back(pause);
            }
        }
    }

    /// The last one that began before `at`.
    pub(super) fn before(&self, at: Time) -> Option<Window> {
        self.0.iter().rev().find(|pause| pause.start < at).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_bounded_and_two_halves_are_one() {
        let mut pauses = Pauses::default();
        pauses.push(Time(40_000), 30_000);
        pauses.push(Time(70_000), 30_000);
        let whole = Window { start: Time(10_000), end: Time(70_000) };
        assert_eq!(pauses.before(Time(90_000)), Some(whole));
        assert_eq!(pauses.before(Time(10_000)), None);
        for n in 1..200 {
            pauses.push(Time(n * 100_000), 5_000);
        }
        assert_eq!(pauses.0.len(), MOST);
    }
}
