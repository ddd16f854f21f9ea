//! Whether an engine's totals go on from one scrape to the next, or begin anew: it restarted, or others are added up.
//!
//! It must not know who scrapes. Invariant: the live program and an import of captured answers judge alike.

use std::sync::Arc;

use crate::model::{Batch, FactKey, Kind, Metric};

/// What the last good scrape of an engine said of who counted.
#[derive(Debug, Default)]
pub struct Continuity {
    started: Option<f64>,
    ranks: Option<Arc<str>>,
    totals: Vec<(Metric, f64)>,
}

/// When the engine's process started, Unix seconds, where the answer tells.
pub fn started(batch: &Batch) -> Option<f64> {
    batch.samples.iter().find(|s| s.metric == Metric::EngineStart).and_then(|s| s.reading.value())
}

impl Continuity {
    /// Whether the process is another one than that of the last scrape, as far as is known.
    pub fn is_other(&self, batch: &Batch) -> bool {
        started(batch) != self.started
    }

    /// Marks totals that do not continue those before: when the process is another one, or when other replicas are
    /// added up: one that joined brings the counts of its whole life with it. `down`: nothing was read since the last
    /// good scrape; then the store has forgotten the totals.
    pub fn mark(&mut self, batch: &mut Batch, down: bool) {
        let start = started(batch);
        let ranks = batch.facts.iter().find(|fact| fact.key == FactKey::Ranks).map(|fact| Arc::clone(&fact.text));
        let counters = batch.samples.iter().filter(|sample| sample.metric.kind() == Kind::Counter);
        let totals: Vec<_> = counters.filter_map(|sample| Some((sample.metric, sample.reading.value()?))).collect();
        let fell = |&(metric, total): &(Metric, f64)| self.totals.iter().any(|&(m, last)| m == metric && total < last);
        let other = |known: bool, same: bool| known && !same;
        batch.breaks = other(self.started.is_some(), start == self.started)
            || other(self.ranks.is_some(), ranks == self.ranks)
            // Not every engine tells when it started.
            || (down && totals.iter().any(fell));
        *self = Self { started: start, ranks, totals };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{SourceId, Subject, Time};

    /// Whether a scrape with this start and total breaks with those before.
    fn breaks(continuity: &mut Continuity, start: Option<f64>, total: f64, down: bool) -> bool {
        let mut batch = Batch::new(SourceId::Engine(0), Time(0), 0);
        if let Some(start) = start {
            batch.push(Subject::Engine(0), Metric::EngineStart, start);
        }
        batch.push(Subject::Engine(0), Metric::GenerationTokens, total);
        continuity.mark(&mut batch, down);
        batch.breaks
    }

    #[test]
    fn another_start_breaks_and_so_do_totals_that_fell_in_an_outage() {
        let mut told = Continuity::default();
        let seen =
            [(Some(5.0), 10.0, false), (Some(5.0), 20.0, true), (Some(9.0), 30.0, false), (Some(9.0), 1.0, true)];
        let seen = seen.map(|(start, total, down)| breaks(&mut told, start, total, down));
        assert_eq!(seen, [false, false, true, true]);
        let mut untold = Continuity::default();
        let seen = [(10.0, false), (20.0, true), (5.0, true), (1.0, false)];
        let seen = seen.map(|(total, down)| breaks(&mut untold, None, total, down));
        assert_eq!(seen, [false, false, true, false], "without an outage the store sees for itself that a total fell");
    }
}
