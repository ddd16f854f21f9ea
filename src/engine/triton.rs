//! Triton Inference Server, with the TensorRT-LLM backend, the vLLM backend, or neither.
//!
//! Names are those of its core (`nv_inference_*`), of the TensorRT-LLM backend (`nv_trt_llm_*`) and of the
//! part of vLLM's names that its vLLM backend passes on. Rules:
//!
//! - One request to an ensemble is counted by the ensemble and by each of its steps. Where a backend tells
//!   which models generate text, only those count; else all models are added up.
//! - Times are totals in microseconds: seconds here. Summaries are lifetime quantiles: not used.
//! - `nv_inference_pending_request_count` is the queue in front of the backend. Both backends take every
//!   request at once into a queue of their own, so it says nothing of who waits there.
//! - The KV pool in use is used blocks ÷ all blocks, which the sample in the documentation contradicts its
//!   own `fraction` about: that is taken only where the blocks are not told.
//! - Time to first response is time to first token only for models that stream (decoupled).

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::promtext::{Exposition, Sample};
use super::table::{Found, Histogram, Scalar, Table};
use super::{Adapter, AdapterSpec, Answers, Memory};
use crate::model::{Batch, FactKey, Metric, Reading, Subject, Why};

/// The adapter.
#[derive(Debug)]
pub struct Triton;

const METRICS: &str = "/metrics";

const NEEDS_HISTOGRAMS: &str = "start it with --metrics-config histogram_latencies=true";
const NEEDS_COUNTERS: &str = "start it without --metrics-config counter_latencies=false";

static SPEC: AdapterSpec = AdapterSpec {
    id: "triton",
    name: "Triton",
    main: &[METRICS],
    beside: &[],
    extras: &[],
    flags: &[],
    hints: &[(Metric::Ttft, NEEDS_HISTOGRAMS), (Metric::E2eSum, NEEDS_COUNTERS), (Metric::QueueSum, NEEDS_COUNTERS)],
    help: "GET /metrics of Triton Inference Server (port 8002 unless told otherwise), with the TensorRT-LLM and vLLM \
           backends",
};

/// Names of Triton's own; what begins with `nv_` alone may be another NVIDIA program.
const OWN: &[&str] = &["nv_inference_", "nv_trt_llm_", "nv_model_", "nv_gpu_", "nv_cpu_", "nv_pinned_memory_"];

const REQUESTS: &str = "trt_llm_request_metrics";
const BLOCKS: &str = "trt_llm_kv_cache_block_metrics";

static TABLE: Table = Table {
    prefixes: &["nv_", "vllm:"],
    scalars: &[
        Scalar::of(REQUESTS, Metric::RequestsRunning).only("request_type", "scheduled"),
        Scalar::of(REQUESTS, Metric::RequestsCap).only("request_type", "max"),
        Scalar::of(REQUESTS, Metric::RequestsWaiting).only("request_type", "waiting"),
        Scalar::of("inference_pending_request_count", Metric::RequestsWaiting).aged(1),
        Scalar::of(BLOCKS, Metric::KvUsage).only("kv_cache_block_type", "fraction").times(100.0).most(),
        Scalar::of(BLOCKS, Metric::KvBlockSize).only("kv_cache_block_type", "tokens_per").most(),
        Scalar::of("inference_request_success", Metric::RequestsFinished),
        Scalar::of("inference_request_failure", Metric::RequestsFailed),
        Scalar::of("inference_request_duration_us", Metric::E2eSum).times(1e-6),
        Scalar::of("inference_queue_duration_us", Metric::QueueSum).times(1e-6),
        Scalar::of("prompt_tokens_total", Metric::PromptTokens),
        Scalar::of("generation_tokens_total", Metric::GenerationTokens),
    ],
    histograms: &[
        Histogram::of("time_to_first_token_seconds", Metric::Ttft),
        Histogram::of("inference_first_response_histogram_ms", Metric::Ttft).times(1e-3).aged(1),
        Histogram::of("time_per_output_token_seconds", Metric::Itl),
        Histogram::of("e2e_request_latency_seconds", Metric::E2e),
        Histogram::of("request_prompt_tokens", Metric::PromptLen),
        Histogram::of("request_generation_tokens", Metric::GenerationLen),
    ],
    same: &[],
    ranks: &["model"],
    model: &[],
    expected: &[
        Metric::RequestsRunning,
        Metric::RequestsWaiting,
        Metric::KvUsage,
        Metric::KvPoolTokens,
        Metric::Preemptions,
        Metric::PromptTokens,
        Metric::GenerationTokens,
        Metric::PrefixQueries,
        Metric::PrefixHits,
        Metric::RequestsFinished,
        Metric::LoraLoaded,
    ],
    absent: Why::Unsupported,
};

impl Adapter for Triton {
    fn spec(&self) -> &'static AdapterSpec {
        &SPEC
    }

    fn detect(&self, path: &str, answer: &str) -> bool {
        path == METRICS && super::holds(answer, OWN)
    }

    fn passes_on(&self) -> bool {
        true
    }

    fn translate(&self, answers: Answers<'_>, engine: u8, _: &mut Memory, batch: &mut Batch) -> usize {
        let subject = Subject::Engine(engine);
        let text = answers.get(METRICS).unwrap_or_default();
        let mut models = models(text, |name| name.starts_with("nv_trt_llm_") || name.starts_with("vllm:"));
        let body = if models.is_empty() { Cow::Borrowed(text) } else { of_models(text, &models).into() };
        let mut backend = Backend::default();
        let found = Found::read(&TABLE, Exposition::new(&body), |sample| backend.take(sample));
        if !models.is_empty() && !backend.waiting {
            batch.push(subject, Metric::RequestsWaiting, Reading::Missing(Why::Unsupported));
        }
        if found.value(Metric::RequestsCap).is_some() {
            batch.fact(subject, FactKey::RequestsCapSource, "request_type=\"max\"");
        }
        backend.emit(subject, batch);
        if models.is_empty() {
            models = self::models(text, |name| name.starts_with("nv_inference_"));
        }
        batch.fact(subject, FactKey::Model, &models.join(", "));
        let bad_lines = found.bad_lines();
        found.emit(subject, batch);
        bad_lines
    }
}

/// The models of the series whose name fits.
fn models(text: &str, fits: impl Fn(&str) -> bool) -> Vec<Cow<'_, str>> {
    let mut models: Vec<Cow<'_, str>> = Vec::new();
    for sample in Exposition::new(text).samples().filter(|sample| fits(&sample.name)) {
        let model = sample.label("model");
        if !model.is_empty() && !models.contains(&model) {
            models.push(model);
        }
    }
    models
}

/// The lines of these models and those of none.
fn of_models(text: &str, models: &[Cow<'_, str>]) -> String {
    let belongs = |line: &&str| {
        let Some(sample) = Exposition::new(line).samples().next() else { return true };
        let model = sample.label("model");
        model.is_empty() || models.contains(&model)
    };
    text.lines().filter(belongs).flat_map(|line| [line, "\n"]).collect()
}

/// What the TensorRT-LLM backend tells, for all models together.
#[derive(Default)]
struct Backend {
    pools: BTreeMap<String, Pool>,
    /// It tells who waits.
    waiting: bool,
}

/// One model's KV pool: blocks, and tokens in one.
#[derive(Clone, Copy, Default)]
struct Pool {
    used: Option<f64>,
    max: Option<f64>,
    size: Option<f64>,
}

impl Backend {
    fn take(&mut self, sample: &Sample<'_>) {
        let name = sample.name.strip_prefix("nv_");
        self.waiting |= name == Some(REQUESTS) && sample.label("request_type") == "waiting";
        if name != Some(BLOCKS) {
            return;
        }
        let pool = self.pools.entry(sample.label("model").into_owned()).or_default();
        let place = match &*sample.label("kv_cache_block_type") {
            "used" => &mut pool.used,
            "max" => &mut pool.max,
            "tokens_per" => &mut pool.size,
            _ => return,
        };
        *place = Some(sample.value);
    }

    fn emit(&self, subject: Subject, batch: &mut Batch) {
        let sum = |part: fn(&Pool) -> Option<f64>| {
            let whole: Option<f64> = self.pools.values().map(part).sum();
            whole.filter(|_| !self.pools.is_empty())
        };
        if !self.pools.is_empty() {
            batch.fact(subject, FactKey::KvLayout, "paged");
        }
        let Some(tokens) = sum(|pool| Some(pool.max? * pool.size?)).filter(|tokens| *tokens > 0.0) else { return };
        batch.push(subject, Metric::KvPoolTokens, tokens);
        if let Some(used) = sum(|pool| Some(pool.used? * pool.size?)) {
            batch.push(subject, Metric::KvUsage, used / tokens * 100.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::testing::{
        every_row_is_read, fact, has_histograms, has_values, noise_changes_nothing, reading, translate,
    };

    const TRT_LLM: &str = include_str!("../../assets/metrics/assembled/triton-trtllm.prom");
    const VLLM: &str = include_str!("../../assets/metrics/assembled/triton-vllm.prom");

    fn read(body: &str) -> Batch {
        translate(&Triton, &[(METRICS, body)])
    }

    /// An ensemble of three steps: only the step that generates counts.
    #[test]
    fn tensorrt_llm_behind_an_ensemble_assembled() {
        let batch = read(TRT_LLM);
        has_values(
            &batch,
            &[
                (Metric::RequestsRunning, 24.0),
                (Metric::RequestsCap, 64.0),
                (Metric::RequestsWaiting, 7.0),
                (Metric::KvUsage, 62.5),
                (Metric::KvPoolTokens, 128_000.0),
                (Metric::KvBlockSize, 64.0),
                (Metric::RequestsFinished, 410.0),
                (Metric::RequestsFailed, 5.0),
                (Metric::E2eSum, 1230.5),
                (Metric::QueueSum, 0.25),
            ],
        );
        has_histograms(&batch, &[(Metric::Ttft, 410.0, 205.0, (0.5, 300.0))]);
        let facts = [FactKey::Model, FactKey::Ranks, FactKey::KvLayout].map(|key| fact(&batch, key));
        assert_eq!(facts, [Some("tensorrt_llm"), Some("tensorrt_llm"), Some("paged")]);
        assert_eq!(reading(&batch, Metric::GenerationTokens), Some(Reading::Missing(Why::Unsupported)));
    }

    /// Two models; the queue in front of the backend is not theirs.
    #[test]
    fn the_vllm_backend_assembled() {
        let batch = read(VLLM);
        has_values(
            &batch,
            &[
                (Metric::PromptTokens, 5000.0 + 70.0),
                (Metric::GenerationTokens, 900.0 + 30.0),
                (Metric::RequestsFinished, 12.0 + 3.0),
                (Metric::E2eSum, 66.0 + 9.0),
                (Metric::QueueSum, 0.0012 + 0.0003),
            ],
        );
        has_histograms(
            &batch,
            &[
                (Metric::Ttft, 12.0, 3.0, (0.25, 8.0)),
                (Metric::Itl, 900.0, 18.0, (0.025, 850.0)),
                (Metric::E2e, 15.0, 75.0, (5.0, 9.0)),
                (Metric::PromptLen, 12.0, 5000.0, (500.0, 10.0)),
                (Metric::GenerationLen, 12.0, 900.0, (100.0, 11.0)),
            ],
        );
        assert_eq!(fact(&batch, FactKey::Ranks), Some("llama,small"));
        assert_eq!(reading(&batch, Metric::RequestsWaiting), Some(Reading::Missing(Why::Unsupported)));
        assert_eq!(reading(&batch, Metric::RequestsRunning), Some(Reading::Missing(Why::Unsupported)));
    }

    #[test]
    fn without_a_backend_for_text_all_models_are_added_up() {
        let body = "nv_inference_request_success{model=\"a\",version=\"1\"} 4\nnv_inference_request_success{model=\"a\",version=\"2\"} 5\n\
                    nv_inference_pending_request_count{model=\"b\",version=\"1\"} 3\nnv_gpu_utilization{gpu_uuid=\"GPU-1\"} 0.5\n";
        has_values(&read(body), &[(Metric::RequestsFinished, 9.0), (Metric::RequestsWaiting, 3.0)]);
    }

    #[test]
    fn a_pool_without_blocks_is_a_share() {
        let body = TRT_LLM.replace("kv_cache_block_type=\"max\"", "kv_cache_block_type=\"most\"");
        let batch = read(&body);
        let usage = reading(&batch, Metric::KvUsage).and_then(Reading::value);
        assert_eq!(usage.map(f64::round), Some(49.0));
        assert_eq!(reading(&batch, Metric::KvPoolTokens), Some(Reading::Missing(Why::Unsupported)));
    }

    #[test]
    fn it_is_recognised_before_the_engine_inside_it() {
        let of = |text| crate::engine::detect(METRICS, text).map(|adapter| adapter.spec().id);
        assert_eq!([of(TRT_LLM), of(VLLM)], [Some("triton"); 2]);
        assert_eq!(
            of("nv_llm_http_service_inflight_requests 1\n"),
            Some("dynamo"),
            "NIM's name for Dynamo's front end"
        );
        every_row_is_read(&TABLE, &[TRT_LLM, VLLM]);
        noise_changes_nothing(&Triton, METRICS, "nv_inference_", TRT_LLM);
    }
}
