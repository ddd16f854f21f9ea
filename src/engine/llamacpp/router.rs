//! A `llama-server` without a model of its own, which starts one server for each model that is asked for (router mode).
//!
//! From llama.cpp's documentation and issues #20227, #22373 and #23096; no body of a running router has been seen. Rules:
//!
//! - `/metrics` and `/slots` want `?model=`. Such a read loads a model that is not loaded, wakes one that sleeps
//!   (whatever `autoload` says) and resets its idle timer: none is ever asked.
//! - `/v1/models` tells the `status` of each model and does none of that. It is all that is read.

use serde::Deserialize;

use crate::engine::table::ASKED;
use crate::engine::{Adapter, AdapterSpec, Answers, Memory};
use crate::model::{Batch, FactKey, Metric, Reading, Subject, Why};

/// The adapter.
#[derive(Debug)]
pub struct LlamaRouter;

const MODELS: &str = "/v1/models";

const WAKES: &str = "asking the router for it would load or wake its models; give the port of a model's own server, \
                     which keeps that model awake";

static SPEC: AdapterSpec = AdapterSpec {
    id: "llama.cpp-router",
    name: "llama.cpp router",
    main: &[MODELS],
    beside: &[],
    extras: &[],
    flags: &[],
    hints: &[
        (Metric::RequestsRunning, WAKES),
        (Metric::RequestsWaiting, WAKES),
        (Metric::KvUsage, WAKES),
        (Metric::KvPoolTokens, WAKES),
        (Metric::PromptTokens, WAKES),
        (Metric::GenerationTokens, WAKES),
        (Metric::PrefixHits, WAKES),
    ],
    help: "GET /v1/models of a llama-server in router mode: which models are loaded, sleep or are not loaded; nothing \
           that would load or wake one",
};

/// Of the answer to `/v1/models`.
#[derive(Deserialize)]
struct RoutedModel {
    id: String,
    status: RoutedStatus,
}

#[derive(Deserialize)]
struct RoutedStatus {
    value: String,
}

/// The models, where each has a status, as only a router's have.
fn models(answer: &str) -> Option<Vec<RoutedModel>> {
    #[derive(Deserialize)]
    struct Answer {
        data: Vec<RoutedModel>,
    }
    serde_json::from_str::<Answer>(answer).ok().map(|answer| answer.data).filter(|models| !models.is_empty())
}

impl Adapter for LlamaRouter {
    fn spec(&self) -> &'static AdapterSpec {
        &SPEC
    }

    fn detect(&self, path: &str, answer: &str) -> bool {
        path == MODELS && models(answer).is_some()
    }

    fn translate(&self, answers: Answers<'_>, engine: u8, _: &mut Memory, batch: &mut Batch) -> usize {
        let subject = Subject::Engine(engine);
        let models = answers.get(MODELS).and_then(models).unwrap_or_default();
        let loaded: Vec<_> = models.iter().filter(|model| model.status.value == "loaded").map(|m| &*m.id).collect();
        let details: Vec<_> = models.iter().map(|model| format!("{} {}", model.id, model.status.value)).collect();
        batch.push(subject, Metric::ModelsLoaded, loaded.len() as f64);
        batch.push(subject, Metric::ModelsKnown, models.len() as f64);
        batch.fact(subject, FactKey::Model, &loaded.join(", "));
        batch.fact(subject, FactKey::Loaded, &details.join("; "));
        for &metric in ASKED {
            batch.push(subject, metric, Reading::Missing(Why::Unsupported));
        }
        usize::from(models.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::testing::{fact, has_values, translate};

    const ASSEMBLED: &str = include_str!("../../../assets/metrics/assembled/llama.cpp-router.v1_models.json");

    #[test]
    fn a_router_tells_which_models_are_loaded() {
        assert_eq!(crate::engine::detect(MODELS, ASSEMBLED).map(|adapter| adapter.spec().id), Some("llama.cpp-router"));
        let batch = translate(&LlamaRouter, &[(MODELS, ASSEMBLED)]);
        has_values(&batch, &[(Metric::ModelsLoaded, 1.0), (Metric::ModelsKnown, 3.0)]);
        assert_eq!(fact(&batch, FactKey::Model), Some("big"));
        assert_eq!(fact(&batch, FactKey::Loaded), Some("big loaded; mid sleeping; tiny unloaded"));
    }

    #[test]
    fn models_of_other_servers_have_no_status() {
        let vllm = include_str!("../../../assets/metrics/vllm-0.32.0-lora.v1_models.json");
        for other in [vllm, "", "{}", "{\"data\":[]}", "{\"data\":[{\"id\":\"m\",\"meta\":{\"n_ctx\":1}}]}"] {
            assert!(!LlamaRouter.detect(MODELS, other), "{other}");
        }
        assert!(
            SPEC.main.iter().chain(SPEC.beside).chain(SPEC.extras).all(|path| *path == MODELS),
            "nothing else is asked"
        );
    }
}
