//! How each source is doing, now and at any moment that is still kept.

use std::collections::VecDeque;

use crate::model::{Batch, SourceState, Time};

use super::{Retention, Window, grow};

/// State changes that are remembered.
pub(super) const MAX_STATES: usize = 512;
/// Bytes of their words, at most; the newest state stays in any case.
pub(super) const STATE_BYTES: usize = 64 << 10;
/// Read times that are remembered: an hour at 10 a second.
pub(super) const MAX_READS: usize = 36_000;

/// The health and the cost of one source.
#[derive(Debug, Default)]
pub struct Source {
    states: VecDeque<(Time, SourceState)>,
    /// Of the words of all states.
    bytes: usize,
    reads: VecDeque<(Time, u32)>,
}

impl Source {
    pub(super) fn push(&mut self, batch: &Batch, keep: &Retention) {
        if let Some(state) = &batch.state
            && self.states.back().is_none_or(|(_, last)| last != state)
        {
            self.bytes += state.why().len();
            while self.states.len() == MAX_STATES || self.bytes > STATE_BYTES {
                let Some((_, oldest)) = self.states.pop_front() else { break };
                self.bytes -= oldest.why().len();
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

    /// Since when it has given nothing, whatever the reasons: its last good reading, or its first bad one where that
    /// is not kept; `None` while it is not down.
    pub fn down_since(&self, at: Time) -> Option<Time> {
        let before = self.states.iter().rev().filter(|(t, _)| *t <= at);
        let first = before.take_while(|(_, state)| state.is_down()).last()?.0;
        Some(self.last_read(first - 1).unwrap_or(first))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::SourceId;

    fn read(source: &mut Source, at: u64, took_us: u32, state: Option<SourceState>) {
        let mut batch = Batch::new(SourceId::Nvml, Time(at), 1500);
        (batch.took_us, batch.state) = (took_us, state);
        source.push(&batch, &Retention::HOUR);
    }

    #[test]
    fn a_state_holds_until_the_next_one() {
        let mut source = Source::default();
        read(&mut source, 2000, 0, Some(SourceState::Ok));
        read(&mut source, 3000, 0, None);
        read(&mut source, 4000, 0, Some(SourceState::Stalled("no answer".into())));
        assert_eq!(*source.state_at(Time(1999)), SourceState::Starting);
        assert_eq!(*source.state_at(Time(3999)), SourceState::Ok);
        assert_eq!(source.state_at(Time(4000)).why(), "no answer");
        assert_eq!(source.last_read(Time(3500)), Some(Time(3000)));
        read(&mut source, 5000, 0, Some(SourceState::Failed("refused".into())));
        let since = [3999, 4000, 9000].map(|at| source.down_since(Time(at)));
        assert_eq!(since, [None, Some(Time(3000)), Some(Time(3000))], "another reason is no new start");
        assert_eq!(source.last_read(Time(1999)), None);
    }

    #[test]
    fn time_spent_reading_is_a_share_of_the_window() {
        let mut source = Source::default();
        for at in [1000, 2000, 3000] {
            read(&mut source, at, 10_000, None);
        }
        let busy = source.busy(Window { start: Time(1000), end: Time(3000) });
        assert!((busy - 0.01).abs() < 1e-12, "20 ms of 2 s: {busy}");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut source = Source::default();
        for i in 0..MAX_READS as u64 + 100 {
            let state = if i % 2 == 0 { SourceState::Ok } else { SourceState::Starting };
            read(&mut source, 1000 + i, 0, Some(state));
        }
        assert_eq!((source.reads.len(), source.states.len()), (MAX_READS, MAX_STATES));
        read(&mut source, 10_000_000, 0, None);
        assert_eq!(source.reads.len(), 1, "older than an hour");
    }
}
