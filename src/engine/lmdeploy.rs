//! `LMDeploy`, both of its backends: `/metrics`, which is on unless `--disable-metrics` is given.
//!
//! Names were read in the wheels 0.9.2, 0.10.2, 0.12.0 and 0.18.0; no body of a running server has been
//! seen. Rules:
//!
//! - The scheduler's gauges are renewed every 10 s, so what is read may be that old: [`FactKey::LevelsAge`].
//!   Counters and histograms are renewed with every output.
//! - `num_requests_succeeded` and `num_requests_failed` are gauges that count; `iteration_tokens_total` is a
//!   histogram. Requests that were cancelled or failed are in none of the histograms.
//! - Requests wait in two places: for a free handle of the front end, which is a place in the batch, and in
//!   the engine.
//! - `time_per_output_token_seconds` is, for each output, the time since the last one over its tokens. It
//!   was the only one of its kind in 0.9; since then `iter_token_latency`, the time itself, is the ITL.
//!   Neither is a mean of a request.
//! - Prefix cache: cached tokens and prompt lengths, both counted when a request ends. With the cache off (the
//!   default) hits stay at 0.
//! - `backend_config_info` has no labels in any of these versions; they are read should they come.

use super::promtext::Sample;
use super::table::{Found, Histogram, Scalar, Table, number};
use super::{Adapter, AdapterSpec, Answers, Memory, Setting};
use crate::model::{Batch, FactKey, Metric, Subject, Why};

/// The adapter.
#[derive(Debug)]
pub struct Lmdeploy;

const METRICS: &str = "/metrics";
const MODELS: &str = "/v1/models";

const NEW: &str = "needs version 0.18";

static SPEC: AdapterSpec = AdapterSpec {
    id: "lmdeploy",
    name: "LMDeploy",
    main: &[METRICS],
    beside: &[],
    extras: &[MODELS],
    flags: &[
        (Setting::KvMemory, "--cache-max-entry-count"),
        (Setting::KvType, "--quant-policy 8"),
        (Setting::Running, "--max-batch-size"),
        (Setting::StepTokens, "--max-prefill-token-num"),
        (Setting::Context, "--session-len"),
    ],
    hints: &[
        (Metric::RequestsCap, "see --max-batch-size"),
        (Metric::WaitingCapacity, NEW),
        (Metric::KvPoolTokens, "its log says it at the start"),
        (Metric::KvBlockSize, "see --cache-block-seq-len"),
        (Metric::MaxModelLen, "see --session-len"),
        (Metric::PrefixQueries, NEW),
        (Metric::PrefixHits, NEW),
        (Metric::RequestsFailed, NEW),
        (Metric::LoraLoaded, "start it with --adapters"),
        (Metric::Tpot, "only by output, not by request (ITL)"),
    ],
    help: "GET /metrics; names of LMDeploy 0.9 to 0.18, from the source; levels are renewed every 10 s",
};

static TABLE: Table = Table {
    prefixes: &["lmdeploy:"],
    scalars: &[
        Scalar::of("num_requests_running", Metric::RequestsRunning),
        Scalar::of("num_requests_waiting", Metric::RequestsWaiting),
        Scalar::of("num_api_requests_waiting", Metric::RequestsWaiting),
        Scalar::of("num_api_requests_waiting", Metric::WaitingCapacity),
        Scalar::of("gpu_cache_usage_perc", Metric::KvUsage).times(100.0).most(),
        Scalar::of("prompt_tokens_total", Metric::PromptTokens),
        Scalar::of("generation_tokens_total", Metric::GenerationTokens),
        Scalar::of("cached_tokens_total", Metric::PrefixHits),
        Scalar::of("request_success_total", Metric::RequestsFinished),
        Scalar::of("num_requests_failed", Metric::RequestsFailed),
    ],
    histograms: &[
        Histogram::of("time_to_first_token_seconds", Metric::Ttft),
        Histogram::of("iter_token_latency", Metric::Itl),
        Histogram::of("time_per_output_token_seconds", Metric::Itl).aged(1),
        Histogram::of("e2e_request_latency_seconds", Metric::E2e),
        Histogram::of("request_queue_time_seconds", Metric::QueueTime),
        Histogram::of("request_prefill_time_seconds", Metric::PrefillTime),
        Histogram::of("request_decode_time_seconds", Metric::DecodeTime),
        Histogram::of("request_prompt_tokens", Metric::PromptLen),
        Histogram::of("request_generation_tokens", Metric::GenerationLen),
    ],
    same: &[],
    ranks: &["engine"],
    model: &["model_name"],
    expected: &[
        Metric::RequestsRunning,
        Metric::RequestsWaiting,
        Metric::KvUsage,
        Metric::PromptTokens,
        Metric::GenerationTokens,
        Metric::RequestsFinished,
    ],
    absent: Why::NotYet,
};

impl Adapter for Lmdeploy {
    fn spec(&self) -> &'static AdapterSpec {
        &SPEC
    }

    fn detect(&self, path: &str, answer: &str) -> bool {
        path == METRICS && super::holds(answer, TABLE.prefixes)
    }

    fn translate(&self, answers: Answers<'_>, engine: u8, _: &mut Memory, batch: &mut Batch) -> usize {
        let subject = Subject::Engine(engine);
        let mut config = Config::default();
        let found = Found::read(&TABLE, answers.body(METRICS), |sample| {
            if sample.name == "lmdeploy:backend_config_info" {
                config.take(sample);
            }
        });
        batch.fact(subject, FactKey::KvLayout, "paged");
        batch.fact(subject, FactKey::LevelsAge, "10 s");
        config.emit(subject, batch);
        if let (Some(_), Some(looked_up)) = (found.value(Metric::PrefixHits), found.sum(Metric::PromptLen)) {
            batch.push(subject, Metric::PrefixQueries, looked_up);
        }
        let bad_lines = found.bad_lines();
        found.emit(subject, batch);
        bad_lines
    }

    fn extra(&self, path: &str, answer: &[u8], engine: u8, batch: &mut Batch) {
        if path == MODELS {
            super::openai::models(answer, Subject::Engine(engine), batch);
        }
    }
}

/// What the engine was started with, under the names of either backend.
#[derive(Default)]
struct Config {
    block: Option<f64>,
    blocks: Option<f64>,
    batch: Option<f64>,
    length: Option<f64>,
}

impl Config {
    fn take(&mut self, sample: &Sample<'_>) {
        let of = |label| number(sample, label);
        self.block = of("block_size").or_else(|| of("cache_block_seq_len"));
        self.blocks = of("num_gpu_blocks");
        self.batch = of("max_batch_size");
        self.length = of("session_len");
    }

    fn emit(&self, subject: Subject, batch: &mut Batch) {
        let pool = self.blocks.zip(self.block).map(|(blocks, size)| blocks * size);
        for (metric, value) in [
            (Metric::KvBlockSize, self.block),
            (Metric::KvPoolTokens, pool),
            (Metric::RequestsCap, self.batch),
            (Metric::MaxModelLen, self.length),
        ] {
            if let Some(value) = value {
                batch.push(subject, metric, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::testing::{
        bad_extras_say_nothing, every_row_is_read, extra, fact, has_histograms, has_values, noise_changes_nothing,
        reading, translate,
    };
    use crate::model::Reading;

    const V0_18: &str = include_str!("../../assets/metrics/assembled/lmdeploy-0.18.0.prom");
    const V0_9: &str = include_str!("../../assets/metrics/assembled/lmdeploy-0.9.2.prom");
    const MODELS_0_18: &str = include_str!("../../assets/metrics/assembled/lmdeploy-0.18.0.v1_models.json");

    #[test]
    fn a_body_assembled_from_the_names_of_0_18_is_read() {
        let batch = translate(&Lmdeploy, &[(METRICS, V0_18)]);
        has_values(
            &batch,
            &[
                (Metric::RequestsRunning, 31.0),
                // in the engine 4, for a handle 10
                (Metric::RequestsWaiting, 14.0),
                (Metric::WaitingCapacity, 10.0),
                (Metric::KvUsage, 62.5),
                (Metric::PromptTokens, 52_000.0),
                (Metric::GenerationTokens, 26_500.0),
                (Metric::PrefixHits, 9000.0),
                (Metric::PrefixQueries, 50_000.0),
                (Metric::RequestsFinished, 240.0),
                (Metric::RequestsFailed, 8.0),
                (Metric::EngineStart, 1_796_000_123.5),
            ],
        );
        has_histograms(
            &batch,
            &[
                (Metric::Ttft, 260.0, 77.5, (0.25, 130.0)),
                (Metric::Itl, 26_000.0, 650.5, (0.025, 13_000.0)),
                (Metric::E2e, 240.0, 900.5, (2.5, 120.0)),
                (Metric::QueueTime, 240.0, 12.5, (0.3, 120.0)),
                (Metric::PrefillTime, 240.0, 60.25, (0.5, 120.0)),
                (Metric::DecodeTime, 240.0, 820.75, (2.0, 120.0)),
                (Metric::PromptLen, 240.0, 50_000.0, (200.0, 120.0)),
                (Metric::GenerationLen, 240.0, 24_000.0, (100.0, 120.0)),
            ],
        );
        assert_eq!((fact(&batch, FactKey::Model), fact(&batch, FactKey::Ranks)), (Some("internlm2"), Some("0,1")));
        assert_eq!((fact(&batch, FactKey::KvLayout), fact(&batch, FactKey::LevelsAge)), (Some("paged"), Some("10 s")));
    }

    #[test]
    fn a_body_assembled_from_the_names_of_0_9_is_read() {
        let batch = translate(&Lmdeploy, &[(METRICS, V0_9)]);
        has_values(
            &batch,
            &[
                (Metric::RequestsRunning, 3.0),
                (Metric::RequestsWaiting, 2.0),
                (Metric::KvUsage, 12.5),
                (Metric::PromptTokens, 700.0),
                (Metric::GenerationTokens, 900.0),
                (Metric::RequestsFinished, 15.0),
            ],
        );
        has_histograms(&batch, &[(Metric::Itl, 880.0, 22.5, (0.025, 440.0))]);
        assert_eq!(reading(&batch, Metric::PrefixHits), None);
    }

    #[test]
    fn every_row_of_the_table_is_in_an_assembled_body() {
        every_row_is_read(&TABLE, &[V0_18, V0_9]);
        noise_changes_nothing(&Lmdeploy, METRICS, "lmdeploy:", V0_18);
    }

    #[test]
    fn a_rank_that_vanishes_takes_its_part_with_it() {
        let rest: String =
            V0_18.lines().filter(|line| !line.contains("engine=\"1\"")).flat_map(|l| [l, "\n"]).collect();
        let batch = translate(&Lmdeploy, &[(METRICS, &rest)]);
        assert_eq!(
            (fact(&batch, FactKey::Ranks), reading(&batch, Metric::RequestsRunning)),
            (Some("0"), Some(Reading::Value(21.0)))
        );
    }

    #[test]
    fn labels_of_the_configuration_are_read_should_they_come() {
        let config =
            |labels: &str| translate(&Lmdeploy, &[(METRICS, &format!("lmdeploy:backend_config_info{{{labels}}} 1\n"))]);
        has_values(
            &config(r#"block_size="64",num_gpu_blocks="1000",max_batch_size="256",session_len="32768",tp="1""#),
            &[
                (Metric::KvBlockSize, 64.0),
                (Metric::KvPoolTokens, 64_000.0),
                (Metric::RequestsCap, 256.0),
                (Metric::MaxModelLen, 32_768.0),
            ],
        );
        has_values(
            &config(r#"cache_block_seq_len="64",num_gpu_blocks="0",session_len="None""#),
            &[(Metric::KvBlockSize, 64.0)],
        );
        has_values(&config(""), &[]);
    }

    #[test]
    fn an_assembled_answer_of_models_names_the_adapters() {
        has_values(&extra(&Lmdeploy, MODELS, MODELS_0_18), &[(Metric::LoraLoaded, 1.0)]);
        bad_extras_say_nothing(&Lmdeploy);
    }
}
