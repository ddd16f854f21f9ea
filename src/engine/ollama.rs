//! Ollama: which models are in memory, from `/api/ps`. It exposes nothing else.
//!
//! Fields are those of its `api/types.go`. There is no `/metrics` in any release (ollama#3144). Several models
//! may be loaded at once; they are told together, and the longest of their contexts is the engine's.

use serde::Deserialize;

use super::table::ASKED;
use super::{Adapter, AdapterSpec, Answers, Memory, Setting};
use crate::model::{Batch, FactKey, Metric, Reading, Subject, Why};

/// The adapter.
#[derive(Debug)]
pub struct Ollama;

const PS: &str = "/api/ps";
const VERSION: &str = "/api/version";

static SPEC: AdapterSpec = AdapterSpec {
    id: "ollama",
    name: "Ollama",
    main: &[PS],
    beside: &[],
    extras: &[VERSION],
    flags: &[
        (Setting::KvType, "OLLAMA_KV_CACHE_TYPE"),
        (Setting::Running, "OLLAMA_NUM_PARALLEL"),
        (Setting::Context, "OLLAMA_CONTEXT_LENGTH"),
    ],
    hints: &[],
    help: "GET /api/ps and /api/version: models in memory and their share on the GPU; it exposes no requests, tokens, \
           KV or latency",
};

impl Adapter for Ollama {
    fn spec(&self) -> &'static AdapterSpec {
        &SPEC
    }

    fn detect(&self, path: &str, answer: &str) -> bool {
        path == PS && loaded(answer).is_some()
    }

    fn translate(&self, answers: Answers<'_>, engine: u8, _: &mut Memory, batch: &mut Batch) -> usize {
        let subject = Subject::Engine(engine);
        let models = answers.get(PS).and_then(loaded);
        if let Some(models) = &models {
            tell(models, subject, batch);
        }
        for &metric in ASKED.iter().chain(&[Metric::LoraLoaded]) {
            batch.push(subject, metric, Reading::Missing(Why::Unsupported));
        }
        usize::from(models.is_none())
    }

    fn extra(&self, path: &str, answer: &[u8], engine: u8, batch: &mut Batch) {
        if path == VERSION {
            super::openai::version(answer, Subject::Engine(engine), batch);
        }
    }
}

/// A model in memory.
#[derive(Deserialize)]
struct Loaded {
    name: String,
    /// All of its memory, bytes.
    size: f64,
    /// The part of it that is on GPUs, bytes.
    size_vram: f64,
    /// Since 2025; tokens.
    context_length: Option<f64>,
    /// When it goes if nobody asks for it, RFC 3339.
    #[serde(default)]
    expires_at: String,
}

fn loaded(answer: &str) -> Option<Vec<Loaded>> {
    #[derive(Deserialize)]
    struct Answer {
        /// Without a model it is an empty list, or in some releases nothing.
        models: Option<Vec<Loaded>>,
    }
    // An object that lacks the field altogether is of another program.
    let named = answer.contains("\"models\"");
    serde_json::from_str::<Answer>(answer).ok().filter(|_| named).map(|answer| answer.models.unwrap_or_default())
}

fn tell(models: &[Loaded], subject: Subject, batch: &mut Batch) {
    let names: Vec<_> = models.iter().map(|model| &*model.name).collect();
    let details: Vec<_> = models.iter().map(Loaded::words).collect();
    batch.fact(subject, FactKey::Model, &names.join(", "));
    batch.fact(subject, FactKey::Loaded, &details.join("; "));
    batch.push(subject, Metric::ModelsLoaded, models.len() as f64);
    batch.push(subject, Metric::ModelBytes, models.iter().fold(0.0, |sum, model| sum + model.size));
    batch.push(subject, Metric::ModelGpuBytes, models.iter().fold(0.0, |sum, model| sum + model.size_vram));
    let context = models.iter().filter_map(|model| model.context_length).reduce(f64::max);
    batch.push(subject, Metric::MaxModelLen, context.map_or(Reading::Missing(Why::Unsupported), Reading::new));
}

impl Loaded {
    /// "llama3:8b 5.14 GB, 80 % on GPUs, context 8192, until 2026-11-29T21:40". To the minute, since each
    /// request puts the end off.
    fn words(&self) -> String {
        let share = (self.size > 0.0).then(|| format!("{:.0} % on GPUs", self.size_vram / self.size * 100.0));
        let context = self.context_length.map(|context| format!("context {context}"));
        let end = self.expires_at.get(..16).map(|minute| format!("until {minute}"));
        let first = format!("{} {:.2} GB", self.name, self.size / 1e9);
        [Some(first), share, context, end].into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::testing::{bad_extras_say_nothing, extra, fact, has_values, reading, translate};

    const TWO: &str = include_str!("../../assets/metrics/assembled/ollama-ps.json");

    #[test]
    fn two_models_of_an_assembled_answer() {
        assert!(Ollama.detect(PS, TWO) && !Ollama.detect("/slots", TWO));
        let batch = translate(&Ollama, &[(PS, TWO)]);
        has_values(
            &batch,
            &[
                (Metric::ModelsLoaded, 2.0),
                (Metric::ModelBytes, 6_654_289_920.0 + 20_000_000_000.0),
                (Metric::ModelGpuBytes, 6_654_289_920.0 + 15_000_000_000.0),
                (Metric::MaxModelLen, 8192.0),
            ],
        );
        assert_eq!(fact(&batch, FactKey::Model), Some("llama3.1:8b, big:70b"));
        let told = "llama3.1:8b 6.65 GB, 100 % on GPUs, context 8192, until 2026-11-29T21:40; \
                    big:70b 20.00 GB, 75 % on GPUs, until 2026-11-29T21:44";
        assert_eq!(fact(&batch, FactKey::Loaded), Some(told));
        assert_eq!(reading(&batch, Metric::RequestsRunning), Some(Reading::Missing(Why::Unsupported)));
    }

    #[test]
    fn no_model_is_not_no_engine() {
        for none in [r#"{"models":[]}"#, r#"{"models":null}"#] {
            assert!(Ollama.detect(PS, none), "{none}");
            let batch = translate(&Ollama, &[(PS, none)]);
            has_values(&batch, &[(Metric::ModelsLoaded, 0.0), (Metric::ModelBytes, 0.0), (Metric::ModelGpuBytes, 0.0)]);
            assert_eq!(fact(&batch, FactKey::Model), Some(""));
        }
        for other in ["", "[]", "{}", "{\"data\":[]}", "{\"models\":[{\"id\":1}]}", "<html>"] {
            assert!(!Ollama.detect(PS, other), "{other}");
        }
    }

    #[test]
    fn its_version() {
        let batch = extra(&Ollama, VERSION, r#"{"version":"0.24.1"}"#);
        assert_eq!(fact(&batch, FactKey::Version), Some("0.24.1"));
        bad_extras_say_nothing(&Ollama);
    }
}
