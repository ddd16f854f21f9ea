//! JSON answers that several engines give in one shape: `/v1/models` of the `OpenAI` API, with additions of
//! their own, and the version.
//!
//! Knows no engine. Invariant: an answer that cannot be read adds nothing.

use serde::Deserialize;

use crate::model::{Batch, FactKey, Metric, Subject};

/// Of the answer to `/v1/models`: the longest context, tokens, and the adapters, which have a parent and no
/// length of their own.
pub fn models(answer: &[u8], subject: Subject, batch: &mut Batch) {
    #[derive(Deserialize)]
    struct Answer {
        data: Vec<Model>,
    }
    #[derive(Deserialize)]
    struct Model {
        #[serde(default)]
        id: String,
        parent: Option<String>,
        max_model_len: Option<f64>,
    }
    let Ok(Answer { data }) = serde_json::from_slice::<Answer>(answer) else { return };
    if let Some(length) = data.iter().find_map(|m| m.max_model_len) {
        batch.push(subject, Metric::MaxModelLen, length);
    }
    let adapters: Vec<_> = data.iter().filter(|m| m.parent.is_some() && !m.id.is_empty()).map(|m| &*m.id).collect();
    if !adapters.is_empty() {
        batch.fact(subject, FactKey::LoraLoaded, &adapters.join(","));
        batch.push(subject, Metric::LoraLoaded, adapters.len() as f64);
    }
}

/// Of the answer `{"version":"0.25.1"}`: the version.
pub fn version(answer: &[u8], subject: Subject, batch: &mut Batch) {
    #[derive(Deserialize)]
    struct Answer {
        version: String,
    }
    let version = serde_json::from_slice::<Answer>(answer).ok().map(|answer| answer.version);
    if let Some(version) = version.filter(|version| !version.is_empty()) {
        batch.fact(subject, FactKey::Version, &version);
    }
}
