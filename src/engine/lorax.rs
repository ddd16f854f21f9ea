//! `LoRAX` of Predibase, a fork of TGI 0.9 for many LoRA adapters.
//!
//! Names were read in the source at a7394ba3; no body of a running server has been seen. They are TGI's with
//! another prefix, but for the queue's length; see `tgi` for what they mean. Releases before the prefix was
//! changed are read as TGI. No metric is told by adapter: which one served a request stands only in the
//! response (`x-adapter-id`).

use super::table::{Scalar, Table};
use super::{Adapter, AdapterSpec, Answers, Memory, Setting, tgi};
use crate::model::{Batch, Metric, Subject};

/// The adapter.
#[derive(Debug)]
pub struct Lorax;

const METRICS: &str = "/metrics";
const INFO: &str = "/info";

const ADAPTERS: &str = "no metric is by adapter; only responses name theirs (x-adapter-id)";

static SPEC: AdapterSpec = AdapterSpec {
    id: "lorax",
    name: "LoRAX",
    main: &[METRICS],
    beside: &[],
    extras: &[INFO],
    flags: &[(Setting::StepTokens, "--max-batch-prefill-tokens"), (Setting::Context, "--max-total-tokens")],
    hints: &[
        (Metric::QueueCap, "the limit is on running and waiting requests together (--max-concurrent-requests)"),
        (Metric::WaitingDeferred, ADAPTERS),
        (Metric::KvPoolTokens, "/info has it"),
        (Metric::KvReservedTokens, "what it reserves counts as held: prompt and max_new_tokens together"),
        (Metric::LoraLoaded, ADAPTERS),
        (Metric::LoraCap, ADAPTERS),
        (Metric::LoraRunning, ADAPTERS),
        (Metric::LoraWaiting, ADAPTERS),
        (Metric::EngineStart, "a restart shows in counters that fall"),
        (Metric::Ttft, "measure it at the client"),
        (Metric::Itl, "only the mean of each request is (TPOT)"),
    ],
    help: "GET /metrics; names of LoRAX at a7394ba3, from the source",
};

static TABLE: Table = Table {
    prefixes: &["lorax_"],
    scalars: &[
        Scalar::of("batch_current_size", Metric::RequestsRunning),
        Scalar::of("queue_length", Metric::RequestsWaiting),
        Scalar::of("batch_current_max_tokens", Metric::KvHeldTokens),
        Scalar::of("request_input_length_sum", Metric::PromptTokens),
        Scalar::of("request_generated_tokens_sum", Metric::GenerationTokens),
        Scalar::of("request_success", Metric::RequestsFinished),
        Scalar::of("request_failure", Metric::RequestsFailed),
    ],
    ..tgi::FORK
};

impl Adapter for Lorax {
    fn spec(&self) -> &'static AdapterSpec {
        &SPEC
    }

    fn detect(&self, path: &str, answer: &str) -> bool {
        path == METRICS && super::holds(answer, TABLE.prefixes)
    }

    fn translate(&self, answers: Answers<'_>, engine: u8, _: &mut Memory, batch: &mut Batch) -> usize {
        tgi::read(&TABLE, answers.body(METRICS), Subject::Engine(engine), batch)
    }

    fn extra(&self, path: &str, answer: &[u8], engine: u8, batch: &mut Batch) {
        if path == INFO {
            tgi::info(answer, Subject::Engine(engine), batch);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::testing::{
        bad_extras_say_nothing, every_row_is_read, extra, fact, has_histograms, has_values, noise_changes_nothing,
        translate,
    };
    use crate::model::FactKey;

    const BODY: &str = include_str!("../../assets/metrics/assembled/lorax-a7394ba3.prom");
    const INFO_BODY: &str = include_str!("../../assets/metrics/assembled/lorax-a7394ba3.info.json");

    /// The edges of durations: 0.0001 s × 1.5ᵏ.
    fn edge(k: i32) -> f64 {
        0.0001 * 1.5_f64.powi(k)
    }

    #[test]
    fn a_body_assembled_from_documented_names_is_read() {
        let batch = translate(&Lorax, &[(METRICS, BODY)]);
        has_values(
            &batch,
            &[
                (Metric::RequestsRunning, 11.0),
                (Metric::RequestsWaiting, 5.0),
                (Metric::KvHeldTokens, 9000.0),
                (Metric::PromptTokens, 8200.0),
                (Metric::GenerationTokens, 4100.0),
                (Metric::RequestsFinished, 41.0),
                // download_adapter 3, overloaded 2
                (Metric::RequestsFailed, 5.0),
            ],
        );
        has_histograms(
            &batch,
            &[
                (Metric::Tpot, 41.0, 1.25, (edge(14), 20.0)),
                (Metric::E2e, 41.0, 90.5, (edge(25), 20.0)),
                (Metric::QueueTime, 41.0, 12.75, (edge(20), 20.0)),
                (Metric::PromptLen, 46.0, 8200.0, (160.0, 23.0)),
                (Metric::GenerationLen, 41.0, 4100.0, (120.0, 20.0)),
                (Metric::MaxTokensParam, 46.0, 11_776.0, (240.0, 23.0)),
            ],
        );
        assert!(fact(&batch, FactKey::TpotSource).is_some_and(|text| text.contains("prefill included")));
    }

    #[test]
    fn every_row_of_the_table_is_in_an_assembled_body() {
        every_row_is_read(&TABLE, &[BODY]);
        noise_changes_nothing(&Lorax, METRICS, "lorax_", BODY);
        let of = |text| crate::engine::detect(METRICS, text).map(|adapter| adapter.spec().id);
        assert_eq!(of(BODY), Some("lorax"));
    }

    #[test]
    fn an_assembled_answer_of_info_has_the_limits() {
        let batch = extra(&Lorax, INFO, INFO_BODY);
        has_values(
            &batch,
            &[(Metric::RequestsCap, 256.0), (Metric::MaxModelLen, 8192.0), (Metric::KvPoolTokens, 64_000.0)],
        );
        assert_eq!(fact(&batch, FactKey::Version), Some("0.12.1"));
        bad_extras_say_nothing(&Lorax);
    }
}
