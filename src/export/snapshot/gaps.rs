//! What is missing in a snapshot, and why: every value goes through here. It must not know what the values mean.

use serde::Serialize;

use crate::model::{FactKey, Metric, Reading, SourceId, SourceState, Subject, Time, Why};
use crate::store::{Data, Window};
use crate::ui::panes::notice::Lack;

/// A value that is not there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Missing {
    key: String,
    why: Why,
    /// What its source says about it, where that is more than the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

/// Collects what is missing; every value goes through here.
pub(super) struct Gaps {
    pub(super) rows: Vec<Missing>,
    /// Key path of the object being filled.
    at: String,
    /// The moment that is read.
    end: Time,
    /// Adapter id of the engine that is being filled; empty elsewhere.
    kind: String,
}

impl Gaps {
    pub(super) const fn new(end: Time) -> Self {
        Self { rows: Vec::new(), at: String::new(), end, kind: String::new() }
    }

    /// Goes to the object with this key path.
    pub(super) fn enter(&mut self, at: String) {
        self.at = at;
    }

    /// From here on it is an engine of this kind that does not expose something.
    pub(super) fn about(&mut self, kind: &str) {
        kind.clone_into(&mut self.kind);
    }

    pub(super) fn row(&mut self, key: &str, why: Why, detail: Option<String>) {
        self.rows.push(Missing { key: format!("{}{key}", self.at), why, detail });
    }

    pub(super) fn float(&mut self, key: &str, reading: Reading) -> Option<f64> {
        if let Some(why) = reading.why() {
            self.row(key, why, None);
        }
        reading.value().map(short)
    }

    pub(super) fn whole(&mut self, key: &str, reading: Reading) -> Option<u64> {
        if let Some(why) = reading.why() {
            self.row(key, why, None);
        }
        reading.value().map(|value| value.round() as u64)
    }

    /// A figure of an engine that rests on `metric`, which it may not expose.
    pub(super) fn float_of(&mut self, key: &str, metric: Metric, reading: Reading) -> Option<f64> {
        self.lack(key, metric, reading);
        reading.value().map(short)
    }

    /// The same for a whole number.
    pub(super) fn whole_of(&mut self, key: &str, metric: Metric, reading: Reading) -> Option<u64> {
        self.lack(key, metric, reading);
        reading.value().map(|value| value.round() as u64)
    }

    fn lack(&mut self, key: &str, metric: Metric, reading: Reading) {
        if let Some(why) = reading.why() {
            let words = Lack { kind: &self.kind, metric, why }.to_string();
            self.row(key, why, Some(words).filter(|_| why == Why::Unsupported && !self.kind.is_empty()));
        }
    }

    pub(super) fn fact(&mut self, key: &str, data: &Data, subject: Subject, fact: FactKey) -> Option<String> {
        let text = data.fact(subject, fact, self.end).map(str::to_owned);
        if text.is_none() {
            self.row(key, Why::NotYet, None);
        }
        text
    }

    /// A list is empty: its source says why.
    pub(super) fn source(&mut self, key: &str, data: &Data, source: SourceId, window: Window) {
        let state = data.source(source).map(|s| s.state_at(window.end));
        let why = match state {
            None | Some(SourceState::Starting | SourceState::Loading(_)) => Why::NotYet,
            Some(SourceState::Unauthorized(_)) => Why::NotPermitted,
            Some(SourceState::Failed(_) | SourceState::NoMetrics(_) | SourceState::Stalled(_)) => Why::Failed,
            Some(SourceState::Ok | SourceState::Degraded(_) | SourceState::Absent(_)) => Why::Unsupported,
        };
        let detail = state.map(|s| s.why().to_owned()).filter(|words| !words.is_empty());
        self.row(key, why, detail);
    }
}

/// Seven significant digits: what the store's numbers carry.
pub(crate) fn short(value: f64) -> f64 {
    format!("{value:.6e}").parse().unwrap_or(value)
}
