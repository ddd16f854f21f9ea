//! NVIDIA Dynamo: its front end, and workers whose engine passes nothing on.
//!
//! Names were read in the crates `dynamo-llm` 0.4.1, 0.7.0, 0.9.0 and 1.6.1, `dynamo-runtime` 0.5.1, 0.7.0,
//! 0.9.0 and 1.6.1, and in `docs/observability/metrics.md` at 0b71cf84; no body of a running server has been
//! seen. Rules:
//!
//! - A worker's port (`DYN_SYSTEM_PORT`) passes on `vllm:`, `sglang:` or `trtllm_` metrics with labels of
//!   Dynamo added. A body with the first two is its engine's: that adapter stands before this one in the list.
//!   TensorRT-LLM's own server has its metrics at another path, so here its names are read in its stead.
//! - The front end counts requests from arrival to end (`active_requests`; before, `inflight_requests`, `_total`
//!   in 0.5), and apart from arrival to the first token (`stage_requests`, a request in one stage at a time; before,
//!   `queued_requests`). Those parked in the router's queue wait for a worker that has room. It does not know which of the latter wait and which
//!   are in prefill: [`FactKey::WaitingSource`] says so. Those past their first token run.
//! - `DYN_METRICS_PREFIX` replaces `dynamo_frontend`; NIM sets `nv_llm_http_service`. Others are not known.
//! - `output_tokens_total` (0.7) moves with every token; before it the sum of `output_sequence_tokens` moved
//!   when a request ended. Prompt tokens are the sum of `input_sequence_tokens`, at the first token.
//! - ITL is observed once for every token: the time since the last output over its tokens.
//! - `cached_tokens` is observed for requests whose engine tells. Hits and lookups are told only while that
//!   is all of them.
//! - Of the workers' limits the front end exposes those of the first worker only. They stand for the whole
//!   only where just one worker is seen. `worker_active_decode_blocks` is the router's own book-keeping, and
//!   `worker_last_*` are single requests: not read.
//! - A worker counts requests from its endpoint `generate`; others (`clear_kv_blocks`, `load_lora` …) are no
//!   requests for tokens. Its `gpu_cache_usage_percent` is a share of 1 in spite of the name.

use std::collections::BTreeSet;

use super::promtext::Sample;
use super::table::{Found, Histogram, Scalar, Table};
use super::{Adapter, AdapterSpec, Answers, Memory, trtllm};
use crate::model::{Batch, FactKey, Metric, Reading, Subject, Why};

/// The adapter.
#[derive(Debug)]
pub struct Dynamo;

const METRICS: &str = "/metrics";

const WORKER_PORT: &str = "its workers may: give a worker's port too (DYN_SYSTEM_PORT)";
const FRONT_PORT: &str = "its front end does: give that port too (8000 by default)";

static SPEC: AdapterSpec = AdapterSpec {
    id: "dynamo",
    name: "NVIDIA Dynamo",
    main: &[METRICS],
    beside: &[],
    extras: &[],
    flags: &[],
    hints: &[
        (Metric::RequestsCap, WORKER_PORT),
        (Metric::RequestsWaiting, WORKER_PORT),
        (Metric::WaitingCapacity, WORKER_PORT),
        (Metric::WaitingDeferred, WORKER_PORT),
        (Metric::WaitingGrammar, WORKER_PORT),
        (Metric::WaitingKvFetch, WORKER_PORT),
        (Metric::WaitingPaused, WORKER_PORT),
        (Metric::KvUsage, WORKER_PORT),
        (Metric::KvPoolTokens, WORKER_PORT),
        (Metric::KvBlockSize, WORKER_PORT),
        (Metric::KvHeldTokens, WORKER_PORT),
        (Metric::KvLiveTokens, WORKER_PORT),
        (Metric::KvCachedTokens, WORKER_PORT),
        (Metric::KvFreeTokens, WORKER_PORT),
        (Metric::KvReservedTokens, WORKER_PORT),
        (Metric::MaxModelLen, FRONT_PORT),
        (Metric::Preemptions, WORKER_PORT),
        (Metric::RecomputedTokens, WORKER_PORT),
        (Metric::PromptTokens, FRONT_PORT),
        (Metric::GenerationTokens, FRONT_PORT),
        (Metric::PrefixQueries, WORKER_PORT),
        (Metric::PrefixHits, WORKER_PORT),
        (Metric::LoraLoaded, WORKER_PORT),
        (Metric::LoraCap, WORKER_PORT),
        (Metric::LoraRunning, WORKER_PORT),
        (Metric::LoraWaiting, WORKER_PORT),
        (Metric::EngineStart, "a restart shows in counters that fall"),
        (Metric::Ttft, FRONT_PORT),
        (Metric::Itl, FRONT_PORT),
        (Metric::Tpot, WORKER_PORT),
        (Metric::QueueTime, WORKER_PORT),
        (Metric::PrefillTime, WORKER_PORT),
        (Metric::DecodeTime, WORKER_PORT),
        (Metric::PromptLen, FRONT_PORT),
        (Metric::GenerationLen, FRONT_PORT),
    ],
    help: "GET /metrics of front end and workers; names of Dynamo 0.4 to 1.6, from the source",
};

static FRONT: Table = Table {
    prefixes: &["dynamo_frontend_", "nv_llm_http_service_"],
    scalars: &[
        Scalar::of("active_requests", Metric::RequestsRunning),
        Scalar::of("inflight_requests", Metric::RequestsRunning).aged(1),
        Scalar::of("inflight_requests_total", Metric::RequestsRunning).aged(2),
        Scalar::of("stage_requests", Metric::RequestsWaiting).only("stage", "preprocess"),
        Scalar::of("stage_requests", Metric::RequestsWaiting).only("stage", "route"),
        Scalar::of("stage_requests", Metric::RequestsWaiting).only("stage", "dispatch"),
        Scalar::of("queued_requests", Metric::RequestsWaiting).aged(1),
        Scalar::of("queued_requests_total", Metric::RequestsWaiting).aged(2),
        Scalar::of("router_queue_pending_requests", Metric::WaitingCapacity),
        Scalar::of("model_max_num_seqs", Metric::RequestsCap),
        Scalar::of("model_context_length", Metric::MaxModelLen).most(),
        Scalar::of("model_kv_cache_block_size", Metric::KvBlockSize).most(),
        Scalar::of("output_tokens_total", Metric::GenerationTokens),
        Scalar::of("output_sequence_tokens_sum", Metric::GenerationTokens).aged(1),
        Scalar::of("input_sequence_tokens_sum", Metric::PromptTokens),
        Scalar::of("cached_tokens_sum", Metric::PrefixHits),
        // How many requests told their hits, until `prefix` says how many tokens were looked up.
        Scalar::of("cached_tokens_count", Metric::PrefixQueries),
        Scalar::of("requests_total", Metric::RequestsFinished).only("status", "success"),
        Scalar::of("requests_total", Metric::RequestsFailed).only("status", "error"),
    ],
    histograms: &[
        Histogram::of("time_to_first_token_seconds", Metric::Ttft),
        Histogram::of("inter_token_latency_seconds", Metric::Itl),
        Histogram::of("request_duration_seconds", Metric::E2e),
        Histogram::of("input_sequence_tokens", Metric::PromptLen),
        Histogram::of("output_sequence_tokens", Metric::GenerationLen),
    ],
    same: &[],
    ranks: &[],
    model: &["model"],
    expected: &[
        Metric::RequestsRunning,
        Metric::PromptTokens,
        Metric::GenerationTokens,
        Metric::RequestsFinished,
        Metric::RequestsFailed,
    ],
    absent: Why::NotYet,
};

static WORKER: Table = Table {
    prefixes: &["dynamo_component_"],
    scalars: &[
        Scalar::of("inflight_requests", Metric::RequestsRunning).only("dynamo_endpoint", "generate"),
        Scalar::of("request_duration_seconds_count", Metric::RequestsFinished).only("dynamo_endpoint", "generate"),
        Scalar::of("errors_total", Metric::RequestsFailed).only("dynamo_endpoint", "generate"),
        Scalar::of("gpu_cache_usage_percent", Metric::KvUsage).times(100.0).most(),
        Scalar::of("kvstats_gpu_cache_usage_percent", Metric::KvUsage).times(100.0).most().aged(1),
    ],
    histograms: &[Histogram::of("request_duration_seconds", Metric::E2e).only("dynamo_endpoint", "generate")],
    same: &[],
    ranks: &["dp_rank"],
    model: &["model"],
    expected: &[Metric::RequestsRunning, Metric::RequestsFinished],
    absent: Why::NotYet,
};

impl Adapter for Dynamo {
    fn spec(&self) -> &'static AdapterSpec {
        &SPEC
    }

    fn detect(&self, path: &str, answer: &str) -> bool {
        path == METRICS && (super::holds(answer, FRONT.prefixes) || super::holds(answer, WORKER.prefixes))
    }

    fn passes_on(&self) -> bool {
        true
    }

    fn translate(&self, answers: Answers<'_>, engine: u8, _: &mut Memory, batch: &mut Batch) -> usize {
        let subject = Subject::Engine(engine);
        let answer = answers.get(METRICS).unwrap_or_default();
        if trtllm::is_in(answer) {
            return trtllm::read(answer, subject, batch);
        }
        let found = if super::holds(answer, FRONT.prefixes) {
            let mut workers = BTreeSet::new();
            let found = Found::read(&FRONT, answers.body(METRICS), |sample| workers.extend(worker(sample)));
            requests(&found, subject, batch);
            prefix(&found, subject, batch);
            // One worker's limit is the whole's only where there is one.
            if workers.len() != 1 || found.models().len() > 1 {
                batch.push(subject, Metric::RequestsCap, Reading::Missing(Why::Unsupported));
            }
            found
        } else {
            batch.fact(
                subject,
                FactKey::WaitingSource,
                "not told: requests count from arrival at the worker to their end",
            );
            Found::read(&WORKER, answers.body(METRICS), |_| {})
        };
        let bad_lines = found.bad_lines();
        found.emit(subject, batch);
        bad_lines
    }
}

/// The worker that a series of the front end is about.
fn worker(sample: &Sample<'_>) -> Option<(String, String)> {
    let id = sample.label("worker_id");
    (!id.is_empty()).then(|| (id.into_owned(), sample.label("dp_rank").into_owned()))
}

/// Requests past their first token, and those before it.
fn requests(found: &Found<'_>, subject: Subject, batch: &mut Batch) {
    let source = match (found.value(Metric::RequestsRunning), found.value(Metric::RequestsWaiting)) {
        (Some(all), Some(before)) => {
            // The two are not read at one moment.
            batch.push(subject, Metric::RequestsRunning, (all - before).max(0.0));
            "until the first token, prefill included"
        }
        _ => "not told: requests count from arrival to their end",
    };
    batch.fact(subject, FactKey::WaitingSource, source);
}

/// Prompt tokens looked up and found, where every request tells.
fn prefix(found: &Found<'_>, subject: Subject, batch: &mut Batch) {
    let (told, prompts) = (found.value(Metric::PrefixQueries), found.observations(Metric::PromptLen));
    let under_way = found.value(Metric::RequestsRunning).unwrap_or_default();
    let all = told.zip(prompts).is_some_and(|(told, prompts)| told > 0.0 && (prompts - told).abs() <= under_way);
    match found.value(Metric::PromptTokens).filter(|_| all) {
        Some(tokens) => batch.push(subject, Metric::PrefixQueries, tokens),
        None => {
            for metric in [Metric::PrefixQueries, Metric::PrefixHits] {
                batch.push(subject, metric, Reading::Missing(Why::Unsupported));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::testing::{
        every_row_is_read, fact, has_histograms, has_values, noise_changes_nothing, reading, translate,
    };

    const FRONT_1_6: &str = include_str!("../../assets/metrics/assembled/dynamo-1.6.1-frontend.prom");
    const FRONT_0_5: &str = include_str!("../../assets/metrics/assembled/dynamo-0.5.1-frontend.prom");
    const WORKER_1_6: &str = include_str!("../../assets/metrics/assembled/dynamo-1.6.1-worker.prom");
    const TRTLLM: &str = include_str!("../../assets/metrics/assembled/trtllm-2026.prom");
    const WORKER_0_7: &str = include_str!("../../assets/metrics/assembled/dynamo-0.7.0-worker.prom");

    #[test]
    fn a_body_assembled_from_the_names_of_the_front_end_is_read() {
        let batch = translate(&Dynamo, &[(METRICS, FRONT_1_6)]);
        has_values(
            &batch,
            &[
                // 40 + 6 under way, 11 + 2 of them before the first token
                (Metric::RequestsRunning, 33.0),
                // preprocess 1, route 3, dispatch 7 + 2
                (Metric::RequestsWaiting, 13.0),
                (Metric::WaitingCapacity, 1.0),
                (Metric::MaxModelLen, 131_072.0),
                (Metric::KvBlockSize, 64.0),
                (Metric::GenerationTokens, 90_500.0),
                (Metric::PromptTokens, 210_000.0),
                (Metric::PrefixQueries, 210_000.0),
                (Metric::PrefixHits, 70_000.0),
                // streamed 500, unary 20, of the second model 80
                (Metric::RequestsFinished, 600.0),
                // overload 7, internal 2
                (Metric::RequestsFailed, 9.0),
            ],
        );
        has_histograms(
            &batch,
            &[
                (Metric::Ttft, 630.0, 160.5, (0.1, 315.0)),
                (Metric::Itl, 90_000.0, 1300.5, (0.011, 45_000.0)),
                (Metric::E2e, 609.0, 2400.5, (4.0, 304.0)),
                (Metric::PromptLen, 630.0, 210_000.0, (430.0, 315.0)),
                (Metric::GenerationLen, 600.0, 88_000.0, (210.0, 300.0)),
            ],
        );
        assert_eq!(fact(&batch, FactKey::Model), Some("llama-70b, qwen-8b"));
        assert_eq!(fact(&batch, FactKey::WaitingSource), Some("until the first token, prefill included"));
        assert_eq!(reading(&batch, Metric::RequestsCap), Some(Reading::Missing(Why::Unsupported)), "two workers");
    }

    #[test]
    fn a_body_assembled_with_older_names_and_the_prefix_of_nim_is_read() {
        let expected = [
            (Metric::RequestsRunning, 3.0),
            (Metric::RequestsWaiting, 2.0),
            (Metric::MaxModelLen, 8192.0),
            (Metric::KvBlockSize, 16.0),
            (Metric::GenerationTokens, 4400.0),
            (Metric::PromptTokens, 9900.0),
            (Metric::RequestsFinished, 44.0),
            (Metric::RequestsFailed, 1.0),
        ];
        for prefix in ["dynamo_frontend_", "nv_llm_http_service_"] {
            let body = FRONT_0_5.replace("dynamo_frontend_", prefix);
            assert!(Dynamo.detect(METRICS, &body));
            has_values(&translate(&Dynamo, &[(METRICS, &body)]), &expected);
        }
        let none: String = FRONT_0_5.lines().filter(|line| !line.contains("queued")).flat_map(|l| [l, "\n"]).collect();
        let batch = translate(&Dynamo, &[(METRICS, &none)]);
        assert_eq!(reading(&batch, Metric::RequestsRunning), Some(Reading::Value(5.0)));
        assert!(fact(&batch, FactKey::WaitingSource).is_some_and(|text| text.starts_with("not told")));
    }

    #[test]
    fn bodies_assembled_from_the_names_of_workers_are_read() {
        let batch = translate(&Dynamo, &[(METRICS, WORKER_1_6)]);
        has_values(
            &batch,
            &[
                (Metric::RequestsRunning, 12.0),
                (Metric::RequestsFinished, 300.0),
                (Metric::RequestsFailed, 4.0),
                (Metric::KvUsage, 75.0),
            ],
        );
        has_histograms(&batch, &[(Metric::E2e, 300.0, 1100.5, (5.0, 150.0))]);
        assert_eq!(fact(&batch, FactKey::Ranks), Some("0,1"));
        let old = translate(&Dynamo, &[(METRICS, WORKER_0_7)]);
        has_values(&old, &[(Metric::RequestsRunning, 1.0), (Metric::KvUsage, 12.5)]);
    }

    #[test]
    fn every_row_of_both_tables_is_in_an_assembled_body() {
        every_row_is_read(&FRONT, &[FRONT_1_6, FRONT_0_5]);
        every_row_is_read(&WORKER, &[WORKER_1_6, WORKER_0_7]);
        noise_changes_nothing(&Dynamo, METRICS, "dynamo_frontend_", FRONT_1_6);
        noise_changes_nothing(&Dynamo, METRICS, "dynamo_component_", WORKER_1_6);
    }

    #[test]
    fn a_worker_that_passes_on_its_engine_is_read_as_that_engine() {
        let engine_of = |body: &str| crate::engine::detect(METRICS, body).map(|adapter| adapter.spec().id);
        assert_eq!((engine_of(WORKER_1_6), engine_of(FRONT_1_6)), (Some("dynamo"), Some("dynamo")));
        let labels = "dynamo_namespace=\"d\",dynamo_component=\"backend\",dynamo_endpoint=\"generate\",model=\"m\",model_name=\"m\"";
        for (name, id) in [("vllm:num_requests_running", "vllm"), ("sglang:num_running_reqs", "sglang")] {
            let body = format!("{WORKER_1_6}{name}{{{labels}}} 7\n");
            let adapter = crate::engine::detect(METRICS, &body).unwrap();
            assert_eq!(adapter.spec().id, id);
            assert_eq!(
                reading(&translate(adapter, &[(METRICS, &body)]), Metric::RequestsRunning),
                Some(Reading::Value(7.0))
            );
        }
    }

    #[test]
    fn a_worker_that_passes_on_tensorrt_llm_is_read_by_its_names() {
        let alone = translate(&trtllm::TrtLlm, &[("/prometheus/metrics", TRTLLM)]);
        let passed_on = TRTLLM.replace("engine_type=\"trtllm\"", "engine_type=\"trtllm\",dynamo_component=\"backend\"");
        let batch = translate(&Dynamo, &[(METRICS, &format!("{WORKER_1_6}{passed_on}"))]);
        assert!(batch.samples.len() > 10 && batch.histograms.len() > 3);
        assert_eq!((&batch.samples, &batch.facts), (&alone.samples, &alone.facts));
    }

    #[test]
    fn the_limit_of_one_worker_is_the_whole_s_where_there_is_one() {
        let body = |workers: &[&str]| {
            let series = workers.iter().map(|id| {
                format!("dynamo_frontend_worker_active_decode_blocks{{worker_id=\"{id}\",dp_rank=\"0\"}} 5\n")
            });
            "dynamo_frontend_model_max_num_seqs{model=\"m\"} 256\n".to_owned() + &series.collect::<String>()
        };
        let cap =
            |body: &str| reading(&translate(&Dynamo, &[(METRICS, body)]), Metric::RequestsCap).and_then(Reading::value);
        assert_eq!((cap(&body(&["a"])), cap(&body(&["a", "b"])), cap(&body(&[]))), (Some(256.0), None, None));
        assert_eq!(cap(&(body(&["a"]) + "dynamo_frontend_model_max_num_seqs{model=\"n\"} 64\n")), None, "two models");
    }

    #[test]
    fn hits_are_told_only_while_every_request_tells() {
        let body = |told: u32| {
            format!(
                "dynamo_frontend_inflight_requests{{model=\"m\"}} 2\ndynamo_frontend_cached_tokens_sum{{model=\"m\"}} 30\n\
                 dynamo_frontend_cached_tokens_count{{model=\"m\"}} {told}\ndynamo_frontend_input_sequence_tokens_sum{{model=\"m\"}} 90\n\
                 dynamo_frontend_input_sequence_tokens_bucket{{model=\"m\",le=\"50\"}} 10\n\
                 dynamo_frontend_input_sequence_tokens_bucket{{model=\"m\",le=\"+Inf\"}} 10\n"
            )
        };
        let both = |told| {
            let batch = translate(&Dynamo, &[(METRICS, &body(told))]);
            [Metric::PrefixQueries, Metric::PrefixHits].map(|metric| reading(&batch, metric).and_then(Reading::value))
        };
        assert_eq!((both(10), both(8)), ([Some(90.0), Some(30.0)], [Some(90.0), Some(30.0)]));
        assert_eq!((both(7), both(0)), ([None, None], [None, None]));
    }
}
