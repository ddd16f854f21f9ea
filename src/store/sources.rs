//! How each source is doing, now and at any moment that is still kept.

use std::collections::VecDeque;

use crate::model::{Batch, SourceState, Time};

use super::{Retention, Window, grow};

/// State changes that are remembered.
const MAX_STATES: usize = 512;
/// Read times that are remembered: an hour at 10 a second.
const MAX_READS: usize = 36_000;

/// The health and the cost of one source.
#[derive(Debug, Default)]
pub struct Source {
    states: VecDeque<(Time, SourceState)>,
    reads: VecDeque<(Time, u32)>,
}

impl Source {
    pub(super) fn push(&mut self, batch: &Batch, keep: &Retention) {
        if let Some(state) = &batch.state
            && self.states.back().is_none_or(|(_, last)| last != state)
        {
            if self.states.len() == MAX_STATES {
                self.states.pop_front();
            }
            self.states.push_back((batch.at, state.clone()));
        }
        let oldest = batch.at - u64::from(keep.full_ms);
        while self.reads.front().is_some_and(|r| r.0 < oldest) || self.reads.len() >= MAX_READS {
            self.reads.pop_front();
        }
        grow(&mut self.reads);
        self.reads.push_back((batch.at, batch.took_us));
    }

    /// Its state at that time; [`SourceState::Starting`] before its first word.
    pub fn state_at(&self, at: Time) -> &SourceState {
        self.states.iter().rev().find(|(t, _)| *t <= at).map_or(&SourceState::Starting, |(_, state)| state)
    }

    /// When it last read anything, at or before `at`.
    pub fn last_read(&self, at: Time) -> Option<Time> {
        self.reads.iter().rev().map(|r| r.0).find(|&t| t <= at)
    }

    /// Share of the window it spent reading, 0 to 1.
    pub fn busy(&self, window: Window) -> f64 {
        let inside = self.reads.iter().rev().take_while(|r| r.0 > window.start).filter(|r| r.0 <= window.end);
        inside.map(|r| f64::from(r.1)).sum::<f64>() / (window.ms().max(1) as f64 * 1000.0)
    }
}
