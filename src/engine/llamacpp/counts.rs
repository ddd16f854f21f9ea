//! What `/metrics` counts beyond what the adapter's table puts together.
//!
//! It must not know slots. Invariants, those of the table: series that differ in a label are added up, and of one that
//! comes twice the greater value counts.

use std::collections::BTreeMap;

use super::Known;
use crate::engine::promtext::Exposition;

const NAMES: [&str; 7] = [
    "prompt_tokens_total",
    "prompt_tokens_cached_total",
    "tokens_predicted_total",
    "requests_processing",
    "requests_deferred",
    "n_decode_total",
    "kv_cache_tokens",
];

fn place(name: &str) -> Option<usize> {
    NAMES.iter().position(|known| *known == name)
}

/// Whether the answer is that of a runner that has no server running: nothing but a comment that says so.
pub(super) fn nothing_loaded(answer: &str) -> bool {
    let mut lines = answer.lines().map(str::trim).filter(|line| !line.is_empty()).peekable();
    lines.peek().is_some_and(|line| line.eq_ignore_ascii_case("# no active runners"))
        && lines.all(|line| line.starts_with('#'))
}

/// What `/metrics` counts and no table can put together.
pub(super) struct Counts {
    pub(super) prompt: f64,
    pub(super) cached: Option<f64>,
    pub(super) generated: f64,
    pub(super) busy: f64,
    pub(super) decoded: Option<f64>,
    /// Tokens in the cache as builds before 2025 counted them, those kept for reuse included.
    pub(super) kv_tokens: Option<f64>,
}

impl Counts {
    pub(super) fn read(body: &str) -> Option<Self> {
        let mut series: BTreeMap<(usize, Vec<String>), f64> = BTreeMap::new();
        for sample in Exposition::new(body).samples() {
            let Some(place) = sample.name.strip_prefix("llamacpp:").and_then(place) else { continue };
            let mut labels: Vec<_> =
                sample.labels().map(|label| format!("{}={}", label.name(), label.value())).collect();
            labels.sort_unstable();
            if sample.value.is_finite() {
                let known = series.entry((place, labels)).or_insert(sample.value);
                *known = known.max(sample.value);
            }
        }
        let mut values = [None; NAMES.len()];
        for ((place, _), value) in series {
            values[place] = Some(values[place].unwrap_or(0.0) + value);
        }
        let [prompt, cached, generated, running, waiting, decoded, kv_tokens] = values;
        let busy = running? + waiting.unwrap_or(0.0);
        Some(Self { prompt: prompt?, cached, generated: generated?, busy, decoded, kv_tokens })
    }

    /// Whether nothing runs, waits or was computed since `/slots` was last read.
    pub(super) fn rests_since(&self, known: &Known) -> bool {
        self.busy <= 0.0 && self.decoded.is_some() && self.decoded == known.computed
    }
}
