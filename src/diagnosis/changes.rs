//! Findings that begin and end, for a recording. It follows the store as a screen does, once a second.

use std::collections::BTreeMap;

use crate::model::{Batch, EventEdge, EventLine, SourceId, Subject, Time};
use crate::store::Data;

use super::timeline::{BRIDGE, STEP_MS};
use super::{Cause, Finding, Severity, Slo, Timeline};

/// A finding that was told and holds.
#[derive(Debug)]
struct Open {
    severity: Severity,
    /// The last second in which it held.
    last: Time,
    headline: String,
}

/// Tells once when something begins to ask for a look, and when it ends.
#[derive(Debug)]
pub struct ChangeLog {
    timeline: Timeline,
    open: BTreeMap<(Subject, Cause), Open>,
    /// The second that was judged last.
    judged: Option<u64>,
}

impl ChangeLog {
    /// Nothing told yet; judges for `slo`.
    pub fn new(slo: Slo) -> Self {
        Self { timeline: Timeline::new(slo), open: BTreeMap::new(), judged: None }
    }

    /// What changed up to `at`; `None` where nothing did, or the second is the same.
    pub fn follow(&mut self, data: &Data, at: Time) -> Option<Batch> {
        if self.judged.replace(at.0 / STEP_MS) == Some(at.0 / STEP_MS) {
            return None;
        }
        self.timeline.follow(data, at);
        let mut batch = Batch::new(SourceId::Diagnosis, at, 0);
        let findings = &self.timeline.diagnosis().findings;
        for finding in findings.iter().filter(|finding| finding.severity > Severity::Ok) {
            batch.events.extend(hold(&mut self.open, finding, at));
        }
        self.open.retain(|&(subject, cause), open| {
            let holds = at.since(open.last) <= BRIDGE * STEP_MS;
            if !holds {
                let headline = open.headline.as_str();
                batch.events.push(line((subject, cause), open.severity, EventEdge::End, open.last, headline));
            }
            holds
        });
        (!batch.events.is_empty()).then_some(batch)
    }
}

/// Notes that a finding holds; tells it where it is new or asks for more.
fn hold(open: &mut BTreeMap<(Subject, Cause), Open>, finding: &Finding, at: Time) -> Option<EventLine> {
    let (key, severity) = ((finding.subject, finding.cause), finding.severity);
    let known = open.get(&key).map(|open| open.severity);
    let headline = &finding.headline.short;
    let most = known.map_or(severity, |known| known.max(severity));
    open.insert(key, Open { severity: most, last: at, headline: headline.clone() });
    let new = known.is_none_or(|known| known < severity);
    new.then(|| line(key, severity, EventEdge::Begin, finding.since, headline))
}

fn line(
    (subject, cause): (Subject, Cause),
    level: Severity,
    edge: EventEdge,
    since: Time,
    headline: &str,
) -> EventLine {
    EventLine { subject, cause: cause.id().into(), level: level.name().into(), edge, since, headline: headline.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::tests::machine::Machine;
    use crate::model::Metric;

    #[test]
    fn what_begins_and_ends_is_told_once() {
        let mut machine = Machine::serving();
        let mut log = ChangeLog::new(Slo::default());
        let mut told = Vec::new();
        let mut follow = |machine: &mut Machine, seconds: u64| {
            for _ in 0..seconds {
                machine.run(1);
                let data = machine.store.read();
                let batch = log.follow(&data, machine.now());
                assert!(log.follow(&data, machine.now() + 200).is_none(), "the second is the same");
                told.extend(batch.into_iter().flat_map(|batch| batch.events));
            }
        };
        follow(&mut machine, 20);
        machine.engine(&[(Metric::RequestsWaiting, 9.0), (Metric::RequestsRunning, 16.0), (Metric::RequestsCap, 16.0)]);
        let began = machine.now();
        follow(&mut machine, 30);
        machine.engine(&[(Metric::RequestsWaiting, 0.0), (Metric::RequestsRunning, 8.0)]);
        let ended = machine.now();
        follow(&mut machine, 30);
        let edges: Vec<_> = told.iter().map(|event| (&*event.cause, &*event.level, event.edge)).collect();
        let expected = [("admission-limit", "act", EventEdge::Begin), ("admission-limit", "act", EventEdge::End)];
        assert_eq!(edges, expected, "{told:?}");
        assert!(told[0].since > began && told[0].since <= began + 10_000, "{told:?}");
        assert!(told[1].since >= ended && told[1].since <= ended + 10_000, "{told:?}");
    }

    #[test]
    fn nothing_is_told_of_what_asks_for_nothing() {
        let (mut machine, mut log) = (Machine::serving(), ChangeLog::new(Slo::default()));
        for _ in 0..20 {
            machine.run(1);
            assert!(log.follow(&machine.store.read(), machine.now()).is_none());
        }
    }
}
