//! NVIDIA NIM for LLMs, 1.x: vLLM's early names without a prefix, at `/v1/metrics`, before that at `/metrics`.
//!
//! Names are those of NVIDIA's observability page for LLM and VLM NIMs and of lines that a running
//! llama-3.2-1b-instruct answered. NIM 2 serves through Dynamo, whose adapter reads it (`nv_llm_http_service_`). Rules:
//!
//! - `time_per_output_token_seconds` is observed for every token but the first (seen: 963 observations for 997 tokens
//!   of 34 requests), which is ITL.
//! - `request_finish_total` counts by `finished_reason`; where only `request_success_total` is there it counts instead.
//! - `gpu_cache_usage_perc` is a share of 1. GPU figures (`gpu_power_usage_watts` …) tell of no GPU by name: not read.

use serde::Deserialize;

use super::promtext::Exposition;
use super::table::{ASKED, Found, Histogram, Scalar, Table};
use super::{Adapter, AdapterSpec, Answers, Memory};
use crate::model::{Batch, FactKey, Metric, Subject, Why};

/// The adapter.
#[derive(Debug)]
pub struct Nim;

const METRICS: &str = "/v1/metrics";
const OLD_METRICS: &str = "/metrics";
const MODELS: &str = "/v1/models";
const VERSION: &str = "/v1/version";

static SPEC: AdapterSpec = AdapterSpec {
    id: "nim",
    name: "NVIDIA NIM",
    main: &[METRICS, OLD_METRICS],
    beside: &[],
    extras: &[VERSION, MODELS],
    flags: &[],
    hints: &[],
    help: "GET /v1/metrics, or /metrics; names of NIM 1.x, from its documentation",
};

static TABLE: Table = Table {
    prefixes: &[""],
    scalars: &[
        Scalar::of("num_requests_running", Metric::RequestsRunning),
        Scalar::of("num_requests_waiting", Metric::RequestsWaiting),
        Scalar::of("num_request_max", Metric::RequestsCap),
        Scalar::of("gpu_cache_usage_perc", Metric::KvUsage).times(100.0).most(),
        Scalar::of("prompt_tokens_total", Metric::PromptTokens),
        Scalar::of("generation_tokens_total", Metric::GenerationTokens),
        Scalar::of("request_finish_total", Metric::RequestsFinished),
        Scalar::of("request_success_total", Metric::RequestsFinished).aged(1),
        Scalar::of("request_failure_total", Metric::RequestsFailed),
        Scalar::of("process_start_time_seconds", Metric::EngineStart).most(),
    ],
    histograms: &[
        Histogram::of("time_to_first_token_seconds", Metric::Ttft),
        Histogram::of("time_per_output_token_seconds", Metric::Itl),
        Histogram::of("e2e_request_latency_seconds", Metric::E2e),
        Histogram::of("request_prompt_tokens", Metric::PromptLen),
        Histogram::of("request_generation_tokens", Metric::GenerationLen),
    ],
    same: &["pid"],
    ranks: &[],
    model: &["model_name"],
    expected: ASKED,
    absent: Why::Unsupported,
};

impl Adapter for Nim {
    fn spec(&self) -> &'static AdapterSpec {
        &SPEC
    }

    fn detect(&self, path: &str, answer: &str) -> bool {
        // Names without a prefix could be anybody's: it takes two, of which one is NIM's own.
        let has = |name: &str| Exposition::new(answer).samples().any(|sample| sample.name == name);
        SPEC.main.contains(&path)
            && has("num_requests_running")
            && (has("num_request_max") || has("request_finish_total"))
    }

    fn translate(&self, answers: Answers<'_>, engine: u8, _: &mut Memory, batch: &mut Batch) -> usize {
        let answered = SPEC.main.iter().find(|path| answers.get(path).is_some());
        let found = Found::read(&TABLE, answers.body(answered.unwrap_or(&METRICS)), |_| {});
        let bad_lines = found.bad_lines();
        let subject = Subject::Engine(engine);
        batch.fact(subject, FactKey::KvLayout, "paged");
        found.emit(subject, batch);
        bad_lines
    }

    fn extra(&self, path: &str, answer: &[u8], engine: u8, batch: &mut Batch) {
        let subject = Subject::Engine(engine);
        match path {
            VERSION => version(answer, subject, batch),
            MODELS => super::openai::models(answer, subject, batch),
            _ => {}
        }
    }
}

/// Of the answer to `/v1/version`.
fn version(answer: &[u8], subject: Subject, batch: &mut Batch) {
    #[derive(Deserialize)]
    struct Version {
        release: String,
    }
    if let Some(version) = serde_json::from_slice::<Version>(answer).ok().filter(|version| !version.release.is_empty())
    {
        batch.fact(subject, FactKey::Version, &version.release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::testing::{
        bad_extras_say_nothing, every_row_is_read, fact, has_histograms, has_values, noise_changes_nothing, translate,
    };

    const ASSEMBLED: &str = include_str!("../../assets/metrics/assembled/nim-1.prom");

    #[test]
    fn a_body_assembled_from_the_documented_names_is_read_at_both_paths() {
        for path in [METRICS, OLD_METRICS] {
            assert_eq!(crate::engine::detect(path, ASSEMBLED).map(|adapter| adapter.spec().id), Some("nim"));
            let batch = translate(&Nim, &[(path, ASSEMBLED)]);
            has_values(
                &batch,
                &[
                    (Metric::RequestsRunning, 9.0),
                    (Metric::RequestsWaiting, 4.0),
                    (Metric::RequestsCap, 256.0),
                    (Metric::KvUsage, 27.0),
                    (Metric::PromptTokens, 603.0),
                    (Metric::GenerationTokens, 997.0),
                    (Metric::RequestsFinished, 30.0 + 4.0),
                    (Metric::RequestsFailed, 2.0),
                    (Metric::EngineStart, 1.796e9),
                ],
            );
            has_histograms(
                &batch,
                &[
                    (Metric::Ttft, 34.0, 3.75, (0.25, 34.0)),
                    (Metric::Itl, 963.0, 1.75, (0.01, 963.0)),
                    (Metric::E2e, 34.0, 5.5, (1.0, 34.0)),
                    (Metric::PromptLen, 34.0, 603.0, (20.0, 34.0)),
                    (Metric::GenerationLen, 34.0, 997.0, (50.0, 34.0)),
                ],
            );
            assert_eq!(fact(&batch, FactKey::Model), Some("meta/llama-3.2-1b-instruct"));
        }
        every_row_is_read(&TABLE, &[ASSEMBLED, "request_success_total 3\n"]);
        noise_changes_nothing(&Nim, METRICS, "nim_", ASSEMBLED);
        bad_extras_say_nothing(&Nim);
    }

    #[test]
    fn names_that_could_be_anybody_s_are_not_enough() {
        let of = |body: &str| Nim.detect(METRICS, body);
        assert!(of("num_requests_running 1\nnum_request_max 2\n"));
        assert!(!of("num_requests_running 1\nprompt_tokens_total 2\n"));
        assert!(!of("request_finish_total 1\nrequest_success_total 2\n"));
        assert!(!Nim.detect("/prometheus/metrics", ASSEMBLED));
    }
}
