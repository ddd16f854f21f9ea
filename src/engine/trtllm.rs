//! TensorRT-LLM's own server, `trtllm-serve`, from `/prometheus/metrics`.
//!
//! Names are those of its `metrics/collector.py` of 2026 and of the five without a prefix that the first
//! releases had. Rules:
//!
//! - `/metrics` of this server is a list of iteration statistics in JSON which each read takes away from the
//!   next reader. It is recognised where the search met it, and never asked again.
//! - Requests, tokens and times need `return_perf_metrics`, and count a request when it ends; the batch and
//!   the KV cache need `enable_iter_perf_stats`.
//! - `time_per_output_token_seconds` is one mean per request: TPOT, not ITL.
//! - Blocks that are kept for reuse count as free.

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::promtext::{Exposition, Sample};
use super::table::{ASKED, Found, Histogram, Scalar, Table, greater, number};
use super::{Adapter, AdapterSpec, Answers, Memory, Setting};
use crate::model::{Batch, FactKey, Metric, Subject, Why};

/// The adapter.
#[derive(Debug)]
pub struct TrtLlm;

const PROMETHEUS: &str = "/prometheus/metrics";
/// Only to be recognised by, see above.
const ITERATIONS: &str = "/metrics";
const VERSION: &str = "/version";

const NEEDS_REQUESTS: &str = "set return_perf_metrics: true";
const NEEDS_ITERATIONS: &str = "set enable_iter_perf_stats: true";

static SPEC: AdapterSpec = AdapterSpec {
    id: "trtllm",
    name: "TensorRT-LLM",
    main: &[PROMETHEUS],
    beside: &[],
    extras: &[VERSION],
    flags: &[
        (Setting::KvMemory, "--kv_cache_free_gpu_memory_fraction"),
        (Setting::Running, "--max_batch_size"),
        (Setting::StepTokens, "--max_num_tokens"),
        (Setting::Context, "--max_seq_len"),
    ],
    hints: &[
        (Metric::RequestsRunning, NEEDS_ITERATIONS),
        (Metric::RequestsWaiting, NEEDS_ITERATIONS),
        (Metric::KvUsage, NEEDS_ITERATIONS),
        (Metric::KvPoolTokens, NEEDS_ITERATIONS),
        (Metric::PromptTokens, NEEDS_REQUESTS),
        (Metric::GenerationTokens, NEEDS_REQUESTS),
        (Metric::RequestsFinished, NEEDS_REQUESTS),
        (Metric::PrefixHits, NEEDS_REQUESTS),
        (Metric::Ttft, NEEDS_REQUESTS),
        (Metric::Tpot, NEEDS_REQUESTS),
        (Metric::E2e, NEEDS_REQUESTS),
    ],
    help: "GET /prometheus/metrics of trtllm-serve (needs return_perf_metrics); names of 2025 and 2026",
};

const HISTOGRAMS: &[Histogram] = &[
    Histogram::of("time_to_first_token_seconds", Metric::Ttft),
    Histogram::of("time_per_output_token_seconds", Metric::Tpot),
    Histogram::of("e2e_request_latency_seconds", Metric::E2e),
    Histogram::of("request_queue_time_seconds", Metric::QueueTime),
    Histogram::of("request_prefill_time_seconds", Metric::PrefillTime),
    Histogram::of("request_decode_time_seconds", Metric::DecodeTime),
];

static TABLE: Table = Table {
    prefixes: &["trtllm_"],
    scalars: &[
        Scalar::of("num_requests_running", Metric::RequestsRunning),
        Scalar::of("max_num_active_requests", Metric::RequestsCap),
        Scalar::of("num_requests_waiting", Metric::RequestsWaiting),
        Scalar::of("num_paused_requests", Metric::WaitingPaused),
        Scalar::of("kv_cache_utilization", Metric::KvUsage).times(100.0).most(),
        Scalar::of("kv_cache_tokens_per_block", Metric::KvBlockSize).most(),
        Scalar::of("prompt_tokens_total", Metric::PromptTokens),
        Scalar::of("generation_tokens_total", Metric::GenerationTokens),
        Scalar::of("prompt_cached_tokens_total", Metric::PrefixHits),
        Scalar::of("request_success_total", Metric::RequestsFinished),
        Scalar::of("num_requests_completed_total", Metric::RequestsFinished).aged(1),
        Scalar::of("request_error_total", Metric::RequestsFailed),
    ],
    histograms: HISTOGRAMS,
    same: &[],
    ranks: &[],
    model: &["model_name"],
    expected: ASKED,
    absent: Why::Unsupported,
};

/// The first releases: no prefix, and nothing but what a request's end tells.
static FIRST: Table = Table {
    prefixes: &[""],
    scalars: &[Scalar::of("request_success_total", Metric::RequestsFinished)],
    histograms: HISTOGRAMS,
    same: &[],
    ranks: &[],
    model: &["model_name"],
    expected: ASKED,
    absent: Why::Unsupported,
};

impl Adapter for TrtLlm {
    fn spec(&self) -> &'static AdapterSpec {
        &SPEC
    }

    fn detect(&self, path: &str, answer: &str) -> bool {
        match path {
            PROMETHEUS => {
                is_in(answer) || super::holds(answer, &["request_success_total", "time_to_first_token_seconds"])
            }
            ITERATIONS => iterations(answer),
            _ => false,
        }
    }

    fn translate(&self, answers: Answers<'_>, engine: u8, _: &mut Memory, batch: &mut Batch) -> usize {
        read(answers.get(PROMETHEUS).unwrap_or_default(), Subject::Engine(engine), batch)
    }

    fn extra(&self, path: &str, answer: &[u8], engine: u8, batch: &mut Batch) {
        if path == VERSION {
            super::openai::version(answer, Subject::Engine(engine), batch);
        }
    }
}

/// Whether a text body has its present names.
pub(super) fn is_in(answer: &str) -> bool {
    super::holds(answer, TABLE.prefixes)
}

/// Reads its text body, wherever it was found.
pub(super) fn read(answer: &str, subject: Subject, batch: &mut Batch) -> usize {
    let table = if is_in(answer) { &TABLE } else { &FIRST };
    let mut config = Config::default();
    let found = Found::read(table, Exposition::new(answer), |sample| config.take(sample));
    config.emit(&found, subject, batch);
    batch.fact(subject, FactKey::KvLayout, "paged");
    let bad_lines = found.bad_lines();
    found.emit(subject, batch);
    bad_lines
}

/// Whether this is a list of iteration statistics. An empty one could be anybody's.
fn iterations(answer: &str) -> bool {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Iteration {
        iter: Option<IgnoredAny>,
        num_active_requests: Option<IgnoredAny>,
    }
    let list = serde_json::from_str::<Vec<Iteration>>(answer).unwrap_or_default();
    list.first().is_some_and(|first| first.iter.is_some() && first.num_active_requests.is_some())
}

/// What labels and several names tell together.
#[derive(Default)]
struct Config {
    max_model_len: Option<f64>,
    page_size: Option<f64>,
    pool: Option<f64>,
    reused: Option<f64>,
    missed: Option<f64>,
}

impl Config {
    fn take(&mut self, sample: &Sample<'_>) {
        let keep = |value: &mut Option<f64>| *value = greater(*value, Some(sample.value));
        match &*sample.name {
            "trtllm_model_config_info" => {
                self.max_model_len = greater(self.max_model_len, number(sample, "max_model_len"));
            }
            "trtllm_kv_cache_config_info" => self.page_size = greater(self.page_size, number(sample, "page_size")),
            "trtllm_kv_cache_max_blocks" => keep(&mut self.pool),
            "trtllm_kv_cache_reused_blocks_total" => keep(&mut self.reused),
            "trtllm_kv_cache_missed_blocks_total" => keep(&mut self.missed),
            _ => {}
        }
    }

    fn emit(&self, found: &Found<'_>, subject: Subject, batch: &mut Batch) {
        let mut push = |metric, value: Option<f64>| {
            if let Some(value) = value {
                batch.push(subject, metric, value);
            }
        };
        let block = found.value(Metric::KvBlockSize).or(self.page_size);
        push(Metric::MaxModelLen, self.max_model_len);
        push(Metric::KvBlockSize, block);
        push(Metric::KvPoolTokens, self.pool.zip(block).map(|(blocks, size)| blocks * size));
        if found.value(Metric::PrefixHits).is_some() {
            // Both are counted when a request ends.
            push(Metric::PrefixQueries, found.value(Metric::PromptTokens));
        } else if let Some(((reused, missed), size)) = self.reused.zip(self.missed).zip(block) {
            push(Metric::PrefixHits, Some(reused * size));
            push(Metric::PrefixQueries, Some((reused + missed) * size));
        }
        if found.value(Metric::RequestsCap).is_some() {
            batch.fact(subject, FactKey::RequestsCapSource, "trtllm_max_num_active_requests");
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

    const NOW: &str = include_str!("../../assets/metrics/assembled/trtllm-2026.prom");
    const THEN: &str = include_str!("../../assets/metrics/assembled/trtllm-2025.prom");
    const JSON: &str = include_str!("../../assets/metrics/assembled/trtllm-iterations.json");

    fn read(body: &str) -> Batch {
        translate(&TrtLlm, &[(PROMETHEUS, body)])
    }

    #[test]
    fn names_of_2026_assembled() {
        let batch = read(NOW);
        has_values(
            &batch,
            &[
                (Metric::RequestsRunning, 48.0),
                (Metric::RequestsCap, 64.0),
                (Metric::RequestsWaiting, 9.0),
                (Metric::WaitingPaused, 2.0),
                (Metric::KvUsage, 75.0),
                (Metric::KvBlockSize, 32.0),
                (Metric::KvPoolTokens, 4000.0 * 32.0),
                (Metric::MaxModelLen, 8192.0),
                (Metric::PromptTokens, 52_000.0),
                (Metric::GenerationTokens, 11_000.0),
                (Metric::PrefixHits, 13_000.0),
                (Metric::PrefixQueries, 52_000.0),
                (Metric::RequestsFinished, 100.0),
                (Metric::RequestsFailed, 4.0),
                (Metric::EngineStart, 1_796_000_000.5),
            ],
        );
        has_histograms(
            &batch,
            &[
                (Metric::Ttft, 100.0, 30.0, (0.25, 60.0)),
                (Metric::Tpot, 100.0, 2.0, (0.025, 90.0)),
                (Metric::E2e, 100.0, 450.0, (5.0, 70.0)),
                (Metric::QueueTime, 100.0, 12.0, (0.3, 95.0)),
                (Metric::PrefillTime, 100.0, 18.0, (0.1, 40.0)),
                (Metric::DecodeTime, 100.0, 420.0, (5.0, 75.0)),
            ],
        );
        let facts = [FactKey::Model, FactKey::KvLayout, FactKey::RequestsCapSource].map(|key| fact(&batch, key));
        assert_eq!(facts, [Some("llama-8b"), Some("paged"), Some("trtllm_max_num_active_requests")]);
        assert_eq!(reading(&batch, Metric::Preemptions), Some(Reading::Missing(Why::Unsupported)));
    }

    #[test]
    fn what_older_releases_lack_comes_from_blocks_and_iterations() {
        let without =
            |name: &str| NOW.lines().filter(|line| !line.contains(name)).flat_map(|line| [line, "\n"]).collect();
        let cached: String = without("prompt_cached_tokens");
        let batch = read(&cached);
        let values = [Metric::PrefixHits, Metric::PrefixQueries].map(|m| reading(&batch, m).and_then(Reading::value));
        assert_eq!(values, [Some(400.0 * 32.0), Some(1600.0 * 32.0)]);
        let success: String = without("request_success");
        assert_eq!(reading(&read(&success), Metric::RequestsFinished), Some(Reading::Value(101.0)));
        let size: String = without("kv_cache_tokens_per_block");
        assert_eq!(reading(&read(&size), Metric::KvPoolTokens), Some(Reading::Value(4000.0 * 64.0)), "page_size");
    }

    #[test]
    fn five_names_of_2025_assembled() {
        let batch = read(THEN);
        has_values(&batch, &[(Metric::RequestsFinished, 20.0)]);
        has_histograms(
            &batch,
            &[
                (Metric::Ttft, 20.0, 8.0, (0.25, 9.0)),
                (Metric::Tpot, 20.0, 0.5, (0.025, 15.0)),
                (Metric::E2e, 20.0, 90.0, (5.0, 14.0)),
                (Metric::QueueTime, 20.0, 2.0, (0.3, 18.0)),
            ],
        );
        assert_eq!(fact(&batch, FactKey::Model), Some("llama-8b"));
    }

    #[test]
    fn what_takes_from_others_is_only_recognised_by() {
        let of = |path, text| crate::engine::detect(path, text).map(|adapter| adapter.spec().id);
        assert_eq!([of(PROMETHEUS, NOW), of(PROMETHEUS, THEN), of(ITERATIONS, JSON)], [Some("trtllm"); 3]);
        for other in ["[]", "{}", "[{}]", "[1]", "[{\"iter\":1}]", THEN, ""] {
            assert_eq!(of(ITERATIONS, other), None, "{other}");
        }
        let asked = SPEC.main.iter().chain(SPEC.beside).chain(SPEC.extras);
        assert!(!asked.into_iter().any(|path| *path == ITERATIONS));
    }

    #[test]
    fn names_extras_and_noise() {
        every_row_is_read(&TABLE, &[NOW]);
        noise_changes_nothing(&TrtLlm, PROMETHEUS, "trtllm_", NOW);
        assert_eq!(fact(&extra(&TrtLlm, VERSION, r#"{"version":"1.3.0"}"#), FactKey::Version), Some("1.3.0"));
        bad_extras_say_nothing(&TrtLlm);
    }
}
