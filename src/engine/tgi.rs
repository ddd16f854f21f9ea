//! Text Generation Inference (TGI) of Hugging Face, versions 0.9 to 3.
//!
//! Names were read in the router of 0.9 to 2 (`router/src`), in the backends 2 and 3 up to commit db931fcf
//! (3.3.6-dev0), and in `docs/source/reference/metrics.md` at 53fdbe61; no body of a running server has
//! been seen. They have not changed but for `tgi_batch_max_total_tokens`, which came with version 3. Rules:
//!
//! - A metric appears with its first use: what is missing at first may come. Counters have no `_total`.
//! - There is no counter of tokens. The sums of the histograms of lengths are totals: of prompts when they
//!   are admitted, of outputs when a request ends.
//! - `tgi_batch_current_max_tokens` is what the running batch may grow to, prompts and `max_new_tokens`: all
//!   of it is allocated when a request is admitted. It counts as held. There is no block size.
//! - `tgi_request_mean_time_per_token_duration` is the time since admission over all tokens: unlike TPOT it
//!   counts prefill in, and [`FactKey::TpotSource`] says so.
//! - `max_concurrent_requests` limits running and waiting requests together.

use serde::Deserialize;

use super::promtext::Exposition;
use super::table::{Found, Histogram, Scalar, Table};
use super::{Adapter, AdapterSpec, Answers, Memory, Setting};
use crate::model::{Batch, FactKey, Metric, Subject, Why};

/// The adapter.
#[derive(Debug)]
pub struct Tgi;

const METRICS: &str = "/metrics";
const INFO: &str = "/info";

static SPEC: AdapterSpec = AdapterSpec {
    id: "tgi",
    name: "TGI",
    main: &[METRICS],
    beside: &[],
    extras: &[INFO],
    flags: &[
        (Setting::KvMemory, "--cuda-memory-fraction"),
        (Setting::KvType, "--kv-cache-dtype fp8_e5m2"),
        (Setting::Running, "--max-batch-size"),
        (Setting::StepTokens, "--max-batch-prefill-tokens"),
        (Setting::Context, "--max-total-tokens"),
    ],
    hints: &[
        (Metric::QueueCap, "the limit is on running and waiting requests together (--max-concurrent-requests)"),
        (Metric::WaitingPaused, "no request is ever paused: all its tokens are reserved at admission"),
        (Metric::KvUsage, "needs version 3"),
        (Metric::KvPoolTokens, "/info has it before version 3"),
        (Metric::KvBlockSize, "see BLOCK_SIZE in its environment"),
        (Metric::KvReservedTokens, "what it reserves counts as held: prompt and max_new_tokens together"),
        (Metric::Preemptions, "it never preempts: all tokens are reserved at admission"),
        (Metric::RecomputedTokens, "it never preempts: all tokens are reserved at admission"),
        (Metric::EngineStart, "a restart shows in counters that fall"),
        (Metric::Ttft, "measure it at the client"),
        (Metric::Itl, "only the mean of each request is (TPOT)"),
        (Metric::PrefillTime, "only by batch, not by request"),
        (Metric::DecodeTime, "only by batch, not by request"),
    ],
    help: "GET /metrics; names of TGI 0.9 to 3.3.6, from the source",
};

/// What TGI and a fork of it have alike: all but the prefix, and the counters and gauges.
pub(super) const FORK: Table = Table {
    prefixes: &[],
    scalars: &[],
    histograms: &[
        Histogram::of("request_mean_time_per_token_duration", Metric::Tpot),
        Histogram::of("request_duration", Metric::E2e),
        Histogram::of("request_queue_duration", Metric::QueueTime),
        Histogram::of("request_input_length", Metric::PromptLen),
        Histogram::of("request_generated_tokens", Metric::GenerationLen),
        Histogram::of("request_max_new_tokens", Metric::MaxTokensParam),
    ],
    same: &[],
    ranks: &[],
    model: &[],
    expected: &[
        Metric::RequestsRunning,
        Metric::RequestsWaiting,
        Metric::KvHeldTokens,
        Metric::PromptTokens,
        Metric::GenerationTokens,
        Metric::RequestsFinished,
        Metric::RequestsFailed,
    ],
    absent: Why::NotYet,
};

static TABLE: Table = Table {
    prefixes: &["tgi_"],
    scalars: &[
        Scalar::of("batch_current_size", Metric::RequestsRunning),
        Scalar::of("queue_size", Metric::RequestsWaiting),
        Scalar::of("batch_current_max_tokens", Metric::KvHeldTokens),
        Scalar::of("batch_max_total_tokens", Metric::KvPoolTokens),
        Scalar::of("request_input_length_sum", Metric::PromptTokens),
        Scalar::of("request_generated_tokens_sum", Metric::GenerationTokens),
        Scalar::of("request_success", Metric::RequestsFinished),
        Scalar::of("request_failure", Metric::RequestsFailed),
    ],
    ..FORK
};

impl Adapter for Tgi {
    fn spec(&self) -> &'static AdapterSpec {
        &SPEC
    }

    fn detect(&self, path: &str, answer: &str) -> bool {
        path == METRICS && super::holds(answer, TABLE.prefixes)
    }

    fn translate(&self, answers: Answers<'_>, engine: u8, _: &mut Memory, batch: &mut Batch) -> usize {
        read(&TABLE, answers.body(METRICS), Subject::Engine(engine), batch)
    }

    fn extra(&self, path: &str, answer: &[u8], engine: u8, batch: &mut Batch) {
        if path == INFO {
            info(answer, Subject::Engine(engine), batch);
        }
    }
}

/// Reads the body of TGI or of a fork of it.
pub(super) fn read(table: &'static Table, body: Exposition<'_>, subject: Subject, batch: &mut Batch) -> usize {
    let found = Found::read(table, body, |_| {});
    if let Some((held, pool)) = found.value(Metric::KvHeldTokens).zip(found.value(Metric::KvPoolTokens)) {
        batch.push(subject, Metric::KvUsage, held / pool * 100.0);
    }
    batch.fact(subject, FactKey::KvLayout, "paged");
    batch.fact(subject, FactKey::TpotSource, "time since admission, prefill included, over all output tokens");
    let bad_lines = found.bad_lines();
    found.emit(subject, batch);
    bad_lines
}

/// Of the answer to `/info`: limits, version and model, which are no metrics.
pub(super) fn info(answer: &[u8], subject: Subject, batch: &mut Batch) {
    #[derive(Deserialize)]
    struct Info {
        model_id: Option<String>,
        version: Option<String>,
        max_concurrent_requests: Option<f64>,
        max_batch_size: Option<f64>,
        max_total_tokens: Option<f64>,
        max_batch_total_tokens: Option<f64>,
    }
    let Ok(info) = serde_json::from_slice::<Info>(answer) else { return };
    let (cap, source) = match (info.max_batch_size, info.max_concurrent_requests) {
        (Some(size), most) if most.is_none_or(|most| size < most) => (Some(size), "max_batch_size"),
        (_, most) => (most, "max_concurrent_requests, which counts waiting requests too"),
    };
    for (metric, value) in [
        (Metric::RequestsCap, cap),
        (Metric::MaxModelLen, info.max_total_tokens),
        (Metric::KvPoolTokens, info.max_batch_total_tokens),
    ] {
        if let Some(value) = value.filter(|value| *value > 0.0) {
            batch.push(subject, metric, value);
        }
    }
    for (key, text) in [
        (FactKey::RequestsCapSource, cap.map(|_| source)),
        (FactKey::Model, info.model_id.as_deref()),
        (FactKey::Version, info.version.as_deref()),
    ] {
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            batch.fact(subject, key, text);
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

    const V3: &str = include_str!("../../assets/metrics/assembled/tgi-3.3.6.prom");
    const V2: &str = include_str!("../../assets/metrics/assembled/tgi-2.4.0.prom");
    const INFO_V3: &str = include_str!("../../assets/metrics/assembled/tgi-3.3.6.info.json");
    const INFO_V2: &str = include_str!("../../assets/metrics/assembled/tgi-2.4.0.info.json");

    /// The edges of durations: 0.0001 s × 1.5ᵏ.
    fn edge(k: i32) -> f64 {
        0.0001 * 1.5_f64.powi(k)
    }

    #[test]
    fn a_body_assembled_from_the_names_of_version_3_is_read() {
        let batch = translate(&Tgi, &[(METRICS, V3)]);
        has_values(
            &batch,
            &[
                (Metric::RequestsRunning, 17.0),
                (Metric::RequestsWaiting, 6.0),
                (Metric::KvHeldTokens, 21_000.0),
                (Metric::KvPoolTokens, 84_000.0),
                (Metric::KvUsage, 25.0),
                (Metric::PromptTokens, 61_440.0),
                (Metric::GenerationTokens, 12_288.0),
                (Metric::RequestsFinished, 118.0),
                // overloaded 4, validation 2, dropped 1
                (Metric::RequestsFailed, 7.0),
            ],
        );
        has_histograms(
            &batch,
            &[
                (Metric::Tpot, 118.0, 3.5, (edge(14), 59.0)),
                (Metric::E2e, 118.0, 380.5, (edge(26), 59.0)),
                (Metric::QueueTime, 118.0, 8.25, (edge(16), 59.0)),
                (Metric::PromptLen, 125.0, 61_440.0, (410.0, 62.0)),
                (Metric::GenerationLen, 118.0, 12_288.0, (80.0, 59.0)),
                (Metric::MaxTokensParam, 125.0, 32_000.0, (160.0, 62.0)),
            ],
        );
        assert_eq!(fact(&batch, FactKey::KvLayout), Some("paged"));
        assert!(fact(&batch, FactKey::TpotSource).is_some_and(|text| text.contains("prefill included")));
        assert!(Tgi.detect(METRICS, V3) && !Tgi.detect(INFO, V3));
    }

    #[test]
    fn a_body_assembled_from_the_names_of_version_2_has_no_pool_and_what_was_not_used_may_come() {
        let batch = translate(&Tgi, &[(METRICS, V2)]);
        has_values(
            &batch,
            &[
                (Metric::RequestsRunning, 2.0),
                (Metric::RequestsWaiting, 9.0),
                (Metric::KvHeldTokens, 3000.0),
                (Metric::PromptTokens, 1024.0),
            ],
        );
        let missing = |metric| reading(&batch, metric);
        assert_eq!(missing(Metric::RequestsFinished), Some(Reading::Missing(Why::NotYet)));
        assert_eq!(missing(Metric::KvPoolTokens), None, "/info has it");
    }

    #[test]
    fn every_row_of_the_table_is_in_an_assembled_body() {
        every_row_is_read(&TABLE, &[V3]);
        noise_changes_nothing(&Tgi, METRICS, "tgi_", V3);
    }

    #[test]
    fn an_assembled_answer_of_info_has_the_limits() {
        let batch = extra(&Tgi, INFO, INFO_V3);
        has_values(&batch, &[(Metric::RequestsCap, 128.0), (Metric::MaxModelLen, 2048.0)]);
        assert_eq!(
            fact(&batch, FactKey::RequestsCapSource),
            Some("max_concurrent_requests, which counts waiting requests too")
        );
        assert_eq!(
            (fact(&batch, FactKey::Model), fact(&batch, FactKey::Version)),
            (Some("bigscience/bloom"), Some("3.3.6-dev0"))
        );
        let batch = extra(&Tgi, INFO, INFO_V2);
        has_values(
            &batch,
            &[(Metric::RequestsCap, 16.0), (Metric::MaxModelLen, 2048.0), (Metric::KvPoolTokens, 32_000.0)],
        );
        assert_eq!(fact(&batch, FactKey::RequestsCapSource), Some("max_batch_size"));
        bad_extras_say_nothing(&Tgi);
    }
}
