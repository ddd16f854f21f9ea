//! Runs of probes: when each began and ended, so that what was measured meanwhile can be told apart.
//!
//! Invariant: a run whose end is not known (a recording was cut, warptop was killed) counts for as long as
//! it might have taken, not for ever.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::model::{Edge, Mark, Subject, Time};

use super::Window;

/// Runs that are remembered.
pub(super) const MAX_RUNS: usize = 256;

/// A run of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// What it ran on.
    pub subject: Subject,
    /// Id of the probe.
    pub probe: Arc<str>,
    /// Name of the run.
    pub name: Arc<str>,
    /// When it began.
    pub start: Time,
    /// When it ended, or at the latest has to have ended.
    pub end: Time,
    /// How it ended; `None` while that is not known.
    pub how: Option<Arc<str>>,
}

/// The runs, in the order they began.
#[derive(Debug, Default)]
pub(super) struct Runs(VecDeque<Run>);

impl Runs {
    pub(super) fn push(&mut self, at: Time, mark: &Mark) {
        let same = |run: &&mut Run| run.subject == mark.subject && run.name == mark.run;
        match &mark.edge {
            Edge::End(how) => {
                if let Some(run) = self.0.iter_mut().rev().find(same).filter(|run| run.how.is_none()) {
                    (run.end, run.how) = (at.max(run.start), Some(Arc::clone(how)));
                }
            }
            Edge::Start(_) if self.0.iter_mut().any(|run| same(&run)) => {}
            Edge::Start(most_ms) => {
                if self.0.len() == MAX_RUNS {
                    self.0.pop_front();
                }
                let (probe, name) = (Arc::clone(&mark.probe), Arc::clone(&mark.run));
                self.0.push_back(Run { subject: mark.subject, probe, name, start: at, end: at + *most_ms, how: None });
            }
        }
    }

    pub(super) fn on(&self, subject: Subject, window: Window) -> impl Iterator<Item = &Run> {
        let inside = move |run: &&Run| run.subject == subject && run.start <= window.end && run.end > window.start;
        self.0.iter().filter(inside)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(run: &str, edge: Edge) -> Mark {
        Mark { subject: Subject::Gpu(0), probe: "hbm".into(), run: run.into(), edge }
    }

    fn spans(runs: &Runs, window: Window) -> Vec<(u64, u64)> {
        runs.on(Subject::Gpu(0), window).map(|run| (run.start.0, run.end.0)).collect()
    }

    #[test]
    fn a_run_lasts_from_its_start_to_its_end() {
        let mut runs = Runs::default();
        runs.push(Time(1_000), &mark("a", Edge::Start(60_000)));
        runs.push(Time(1_500), &mark("a", Edge::Start(60_000)));
        let all = Window { start: Time(0), end: Time(100_000) };
        assert_eq!(spans(&runs, all), [(1_000, 61_000)], "while its end is not known");
        runs.push(Time(6_000), &mark("b", Edge::End("done".into())));
        runs.push(Time(6_000), &mark("a", Edge::End("done".into())));
        runs.push(Time(9_000), &mark("a", Edge::End("failed".into())));
        assert_eq!(spans(&runs, all), [(1_000, 6_000)]);
        assert_eq!(runs.on(Subject::Gpu(0), all).next().unwrap().how.as_deref(), Some("done"));
        assert_eq!(spans(&runs, Window { start: Time(6_000), end: Time(9_000) }), []);
        assert_eq!(spans(&runs, Window { start: Time(0), end: Time(1_000) }), [(1_000, 6_000)]);
        assert_eq!(runs.on(Subject::Host, all).count(), 0);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut runs = Runs::default();
        for i in 0..MAX_RUNS + 10 {
            runs.push(Time(1), &mark(&i.to_string(), Edge::Start(1)));
        }
        assert_eq!(runs.0.len(), MAX_RUNS);
    }
}
