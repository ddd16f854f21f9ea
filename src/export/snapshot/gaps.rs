//! What is missing in a snapshot, and why: every value goes through here. It must not know what the values mean.

use serde::Serialize;

use crate::derive::exposed::why_of;
use crate::model::{FactKey, Metric, Reading, SourceId, Subject, Time, Why};
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
    /// Why there is nothing of what was never read.
    pub(super) never: Why,
}

impl Gaps {
    pub(super) const fn new(end: Time, never: Why) -> Self {
        Self { rows: Vec::new(), at: String::new(), end, kind: String::new(), never }
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

    /// A reading of a row that is read as a whole: what is not in it yet, a recording never holds.
    pub(super) fn never_read(&self, reading: Reading) -> Reading {
        if reading == Reading::Missing(Why::NotYet) { Reading::Missing(self.never) } else { reading }
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
            self.row(key, self.never, None);
        }
        text
    }

    /// A list is empty: its source says why.
    pub(super) fn source(&mut self, key: &str, data: &Data, source: SourceId, window: Window) {
        let state = data.source(source).map(|s| s.state_at(window.end));
        let why = state.map_or(self.never, why_of);
        let detail = state.map(|s| s.why().to_owned()).filter(|words| !words.is_empty());
        self.row(key, why, detail);
    }
}

/// Seven significant digits: what the store's numbers carry.
pub(crate) fn short(value: f64) -> f64 {
    format!("{value:.6e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::Slo;
    use crate::export::snapshot::{Mode, snapshot};
    use crate::model::{Batch, HistogramSample, SourceState};
    use crate::store::{Retention, Store};

    const START: Time = Time(1_795_960_600_000);

    /// A scrape of vLLM a second, of which those after `down_after` fail, up to 20 s.
    fn scraped(store: &Store, down_after: u64) {
        let (engine, source) = (Subject::Engine(0), SourceId::Engine(0));
        for second in 0..=20_u64 {
            let at = START + second * 1_000;
            let mut batch = Batch::new(source, at, 3_500);
            if second > down_after {
                batch.state = Some(SourceState::Failed("connection refused".into()));
                store.push(&batch);
                continue;
            }
            batch.state = Some(SourceState::Ok);
            batch.fact(engine, FactKey::Kind, "vllm");
            batch.fact(engine, FactKey::Url, "http://127.0.0.1:8000");
            let levels = [(Metric::KvUsage, 25.0), (Metric::KvPoolTokens, 1_000.0), (Metric::KvBlockSize, 16.0)];
            let total = second as f64;
            for (metric, value) in levels.into_iter().chain([(Metric::GenerationTokens, 100.0 * total)]) {
                batch.push(engine, metric, value);
            }
            for metric in [Metric::Ttft, Metric::E2e, Metric::PromptLen, Metric::GenerationLen] {
                let (edges, cumulative) = ([1.0].into(), vec![total, total]);
                let sum = Some(total);
                batch.histograms.push(HistogramSample { sets: 0, subject: engine, metric, edges, cumulative, sum });
            }
            store.push(&batch);
        }
    }

    /// Reason and detail of a key in the 10 s before `seconds` after the start.
    fn missing(store: &Store, seconds: u64, key: &str) -> Option<(String, String)> {
        let window = Window::last(START + seconds * 1_000, 10_000);
        let read = serde_json::to_value(snapshot(&store.read(), Mode::Replay, window, &Slo::default())).unwrap();
        let row = read["missing"].as_array()?.iter().find(|row| row["key"] == key)?.clone();
        let text = |field: &str| row[field].as_str().unwrap_or_default().to_owned();
        Some((text("why"), text("detail")))
    }

    #[test]
    fn what_was_given_before_the_engine_went_is_not_said_to_be_never_exposed() {
        let store = Store::new(Retention::HOUR);
        scraped(&store, 5);
        assert_eq!(missing(&store, 5, "engines[0].kv.idle_tokens"), None);
        let idle = missing(&store, 8, "engines[0].kv.idle_tokens").unwrap();
        assert_eq!((idle.0.as_str(), idle.1.as_str()), ("failed", ""));
        let cached = missing(&store, 8, "engines[0].kv.cached_tokens").unwrap();
        assert_eq!((cached.0.as_str(), cached.1.as_str()), ("unsupported", "not exposed by vLLM"));
    }

    #[test]
    fn rates_and_quantiles_of_a_window_without_answers_give_the_same_reason() {
        let store = Store::new(Retention::HOUR);
        scraped(&store, 5);
        let quantiles = ["latency.ttft_s.n", "latency.ttft_s.p99", "kv.used_length"];
        let means = ["latency.e2e_mean_s", "kv.used_mean_tokens", "kv.mean_length_requests"];
        for key in ["generation_tokens_per_s"].into_iter().chain(quantiles).chain(means) {
            assert_eq!(missing(&store, 20, &format!("engines[0].{key}")).unwrap().0, "failed", "{key}");
        }
    }

    #[test]
    fn what_a_recording_lacks_is_not_said_to_come() {
        let why = |store: &Store, key| missing(store, 20, key).unwrap().0;
        for (store, never) in
            [(Store::new(Retention::HOUR), "not_yet"), (Store::of_recording(Retention::HOUR), "not_recorded")]
        {
            scraped(&store, 20);
            for key in ["host.cpu_busy_pct", "processes", "engines[0].model"] {
                assert_eq!(why(&store, key), never, "{key}");
            }
        }
    }
}
