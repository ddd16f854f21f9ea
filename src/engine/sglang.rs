//! SGLang: `/metrics` of a server started with `--enable-metrics`, and `/v1/loads`, which needs no flag.
//!
//! Names were read in the source of 0.3.6, 0.4.1, 0.4.3, 0.4.6, 0.4.9, 0.5.5, 0.5.7, 0.5.9, 0.5.10,
//! 0.5.13, 0.5.17 and 0.5.23; no body of a running server has been seen. Rules:
//!
//! - A router that passes on its workers' metrics writes `sglang_` for `sglang:` and adds `worker_addr`.
//! - `tp_rank`, `pp_rank` and `moe_ep_rank` tell the same several times, and so do two processes with a
//!   `pid`; `dp_rank` and `worker_addr` are replicas. With priority scheduling the total of a queue has an
//!   empty `priority`, and the series that have one repeat parts of it.
//! - Gauges are written when a batch is logged, so they may lag, up to 30 s once the engine is idle:
//!   requests, caps and, in older versions, used tokens come from `/v1/loads` (0.5.9) where it answers, and
//!   [`FactKey::LevelsAge`] says so where it does not.
//!   `gen_throughput`, `cache_hit_rate`, `num_retracted_reqs` and `num_paused_reqs` tell only what the last
//!   interval did, and are not read.
//! - Tokens: `prompt_tokens_total` and `generation_tokens_total` move when a request ends;
//!   `realtime_tokens_total` (0.5.7) moves with every batch. Its `decode` leaves out the first token of each
//!   request, which prefill makes: the number of TTFT observations is added.
//! - Prefix cache, newest first: `prefill_effective_tokens_total` (0.5.23; requests that were retracted count
//!   once), `realtime_tokens_total`, `cached_tokens_total` over `prompt_tokens_total`. A counter with a label
//!   appears with its first hit; where its lookups are counted, no such series means 0.
//! - Recomputed tokens are those computed (`realtime_tokens_total`) less those computed for the first time
//!   (`prefill_effective_tokens_total`). `num_retracted_*_tokens_total` are the lengths of retracted
//!   requests, of which the prefix cache may still hold a part: not read.
//! - `decode_sum_seq_lens` leaves out requests in prefill. It counts as live tokens only where it explains
//!   all held tokens but for the ends of last pages.
//! - `spec_accept_length` and `spec_accept_rate` are 0 without speculation, with which the length is at least 1:
//!   missing then. `is_cuda_graph` tells of the last batch, be it prefill or decode; `cuda_graph_passes_total`
//!   counts steps of decoding, and a mode appears with its first one.
//! - `kv_transfer_*` were gauges of the last transfer before they became histograms: only the latter are read.
//! - `num_decode_host_receive_queue_reqs` (0.5.23) is a part of `num_decode_transfer_queue_reqs`: not read, or it would count
//!   twice. `load_back_bytes_total` and `hicache_backup_bytes_total` are of each tensor-parallel rank's own share, which
//!   this table takes for the same told several times: not read.
//! - `eplb_balancedness` is a summary without quantiles, observed once a pass.
//! - `time_per_output_token_seconds` (to 0.4.3) observed, at every output, the mean since the first token:
//!   TPOT, with as many observations as outputs.

use serde::Deserialize;

use super::promtext::Exposition;
use super::table::{Found, Histogram, Scalar, Table, greater};
use super::{Adapter, AdapterSpec, Answers, Memory, Setting};
use crate::model::{Batch, FactKey, Metric, Reading, Subject, Why};

/// The adapter.
#[derive(Debug)]
pub struct Sglang;

const METRICS: &str = "/metrics";
const LOADS: &str = "/v1/loads";
const MODELS: &str = "/v1/models";
const INFO: &str = "/server_info";
const OLD_INFO: &str = "/get_server_info";

const FLAG: &str = "start it with --enable-metrics";
const NEW: &str = "start it with --enable-metrics; needs version 0.5.23 or newer";

static SPEC: AdapterSpec = AdapterSpec {
    id: "sglang",
    name: "SGLang",
    main: &[METRICS, LOADS],
    beside: &[LOADS],
    extras: &[MODELS, INFO, OLD_INFO],
    flags: &[
        (Setting::KvMemory, "--mem-fraction-static"),
        (Setting::KvType, "--kv-cache-dtype fp8_e5m2"),
        (Setting::Running, "--max-running-requests"),
        (Setting::StepTokens, "--chunked-prefill-size"),
        (Setting::Context, "--context-length"),
    ],
    hints: &[
        (Metric::RequestsRunning, FLAG),
        (Metric::RequestsWaiting, FLAG),
        (Metric::RequestsCap, "needs version 0.5.9 or newer"),
        (Metric::QueueCap, "no limit unless started with --max-queued-requests"),
        (Metric::WaitingCapacity, "it does not tell why a request waits, but for grammars and KV transfers"),
        (Metric::WaitingDeferred, "only prefill servers have it (--disaggregation-mode prefill)"),
        (Metric::WaitingGrammar, "start it with --enable-metrics; needs version 0.4.9 or newer"),
        (Metric::WaitingKvFetch, "only decode servers have it (--disaggregation-mode decode)"),
        (Metric::WaitingPaused, "only decode servers have it (--disaggregation-mode decode)"),
        (Metric::KvUsage, FLAG),
        (Metric::KvPoolTokens, FLAG),
        (Metric::KvBlockSize, FLAG),
        (Metric::KvHeldTokens, FLAG),
        (Metric::KvLiveTokens, "its decode_sum_seq_lens leaves out requests in prefill"),
        (Metric::KvCachedTokens, "start it with --enable-metrics; needs version 0.5.13 or newer"),
        (Metric::KvFreeTokens, "start it with --enable-metrics; needs version 0.5.13 or newer"),
        (Metric::Preemptions, "start it with --enable-metrics (retractions)"),
        (Metric::RecomputedTokens, NEW),
        (Metric::PromptTokens, FLAG),
        (Metric::GenerationTokens, FLAG),
        (Metric::PrefixQueries, FLAG),
        (Metric::PrefixHits, "start it with --enable-metrics; needs version 0.4.6 or newer"),
        (Metric::RequestsFinished, FLAG),
        (Metric::RequestsFailed, FLAG),
        (Metric::LoraLoaded, "start it with --enable-lora"),
        (Metric::LoraCap, "start it with --enable-lora and --enable-metrics; needs version 0.5.10 or newer"),
        (Metric::EngineStart, "a restart shows in counters that fall"),
        (Metric::Ttft, FLAG),
        (Metric::Itl, FLAG),
        (Metric::Tpot, "start it with --enable-metrics; needs version 0.5.13 or newer"),
        (Metric::E2e, FLAG),
        (Metric::QueueTime, "start it with --enable-metrics; needs version 0.5.5 or newer"),
        (Metric::PrefillTime, "start it with --enable-metrics; needs version 0.5.5 or newer"),
        (Metric::DecodeTime, "E2E less TTFT"),
        (Metric::PromptLen, "start it with --enable-metrics, and --collect-tokens-histogram before 0.5.23"),
        (Metric::GenerationLen, "start it with --enable-metrics, and --collect-tokens-histogram before 0.5.23"),
    ],
    help: "GET /metrics and /v1/loads; names of SGLang 0.3.6 to 0.5.23, from the source",
};

static TABLE: Table = Table {
    prefixes: &["sglang:", "sglang_"],
    scalars: &[
        Scalar::of("num_running_reqs", Metric::RequestsRunning).only("priority", ""),
        Scalar::of("num_queue_reqs", Metric::RequestsWaiting).only("priority", ""),
        Scalar::of("num_grammar_queue_reqs", Metric::RequestsWaiting),
        Scalar::of("num_prefill_bootstrap_queue_reqs", Metric::RequestsWaiting).only("priority", ""),
        Scalar::of("num_prefill_prealloc_queue_reqs", Metric::RequestsWaiting).only("priority", ""),
        Scalar::of("num_decode_prealloc_queue_reqs", Metric::RequestsWaiting).only("priority", ""),
        Scalar::of("num_decode_transfer_queue_reqs", Metric::RequestsWaiting).only("priority", ""),
        Scalar::of("num_grammar_queue_reqs", Metric::WaitingGrammar),
        Scalar::of("num_prefill_bootstrap_queue_reqs", Metric::WaitingDeferred).only("priority", ""),
        Scalar::of("num_prefill_prealloc_queue_reqs", Metric::WaitingDeferred).only("priority", "").aged(1),
        Scalar::of("num_decode_transfer_queue_reqs", Metric::WaitingKvFetch).only("priority", ""),
        Scalar::of("token_usage", Metric::KvUsage).times(100.0).most(),
        Scalar::of("max_total_num_tokens", Metric::KvPoolTokens),
        Scalar::of("page_size", Metric::KvBlockSize).most(),
        Scalar::of("kv_used_tokens", Metric::KvHeldTokens),
        Scalar::of("num_used_tokens", Metric::KvHeldTokens).aged(1),
        Scalar::of("kv_evictable_tokens", Metric::KvCachedTokens),
        Scalar::of("kv_available_tokens", Metric::KvFreeTokens),
        Scalar::of("decode_sum_seq_lens", Metric::KvLiveTokens),
        Scalar::of("context_len", Metric::MaxModelLen).most(),
        Scalar::of("num_retracted_requests_total", Metric::Preemptions),
        Scalar::of("num_retractions_sum", Metric::Preemptions).aged(1),
        Scalar::of("realtime_tokens_total", Metric::RecomputedTokens).only("mode", "prefill_compute"),
        Scalar::of("prefill_effective_tokens_total", Metric::RecomputedTokens).only("mode", "input").times(-1.0),
        Scalar::of("prefill_effective_tokens_total", Metric::PromptTokens),
        Scalar::of("realtime_tokens_total", Metric::PromptTokens).only("mode", "prefill_compute").aged(1),
        Scalar::of("realtime_tokens_total", Metric::PromptTokens).only("mode", "prefill_cache").aged(1),
        Scalar::of("prompt_tokens_total", Metric::PromptTokens).aged(2),
        Scalar::of("realtime_tokens_total", Metric::GenerationTokens).only("mode", "decode"),
        Scalar::of("generation_tokens_total", Metric::GenerationTokens).aged(1),
        Scalar::of("prefill_effective_tokens_total", Metric::PrefixQueries),
        Scalar::of("realtime_tokens_total", Metric::PrefixQueries).only("mode", "prefill_compute").aged(1),
        Scalar::of("realtime_tokens_total", Metric::PrefixQueries).only("mode", "prefill_cache").aged(1),
        Scalar::of("prompt_tokens_total", Metric::PrefixQueries).aged(2),
        Scalar::of("prefill_effective_tokens_total", Metric::PrefixHits).only("mode", "device_hit"),
        Scalar::of("prefill_effective_tokens_total", Metric::PrefixHits).only("mode", "host_hit"),
        Scalar::of("prefill_effective_tokens_total", Metric::PrefixHits).only("mode", "storage_hit"),
        Scalar::of("realtime_tokens_total", Metric::PrefixHits).only("mode", "prefill_cache").aged(1),
        Scalar::of("cached_tokens_total", Metric::PrefixHits).aged(2),
        Scalar::of("num_requests_total", Metric::RequestsFinished),
        Scalar::of("num_aborted_requests_total", Metric::RequestsFailed),
        Scalar::of("num_bootstrap_failed_reqs_total", Metric::RequestsFailed),
        Scalar::of("num_transfer_failed_reqs_total", Metric::RequestsFailed),
        Scalar::of("spec_accept_length", Metric::SpecAcceptLength).most(),
        Scalar::of("spec_accept_rate", Metric::SpecAcceptRate).times(100.0).most(),
        Scalar::of("kv_transfer_latency_ms_count", Metric::KvTransfers),
        Scalar::of("kv_transfer_latency_ms_sum", Metric::KvTransferTime).times(1e-3),
        Scalar::of("kv_transfer_total_mb_sum", Metric::KvTransferBytes).times(1_048_576.0),
        Scalar::of("num_transfer_failed_reqs_total", Metric::KvTransfersFailed),
        Scalar::of("is_cuda_graph", Metric::CudaGraph).most(),
        Scalar::of("cuda_graph_passes_total", Metric::GraphSteps).only("mode", "decode_cuda_graph"),
        Scalar::of("cuda_graph_passes_total", Metric::EagerSteps).only("mode", "decode_none"),
        Scalar::of("eplb_balancedness_sum", Metric::ExpertBalanceSum),
        Scalar::of("eplb_balancedness_count", Metric::ExpertBalancePasses),
        Scalar::of("scheduler_idle_seconds_total", Metric::SchedulerIdleTime),
        Scalar::of("lora_pool_slots_used", Metric::LoraLoaded),
        Scalar::of("lora_pool_slots_total", Metric::LoraCap),
    ],
    histograms: &[
        Histogram::of("time_to_first_token_seconds", Metric::Ttft),
        Histogram::of("inter_token_latency_seconds", Metric::Itl),
        Histogram::of("request_time_per_output_token_seconds", Metric::Tpot),
        Histogram::of("time_per_output_token_seconds", Metric::Tpot).aged(1),
        Histogram::of("e2e_request_latency_seconds", Metric::E2e),
        Histogram::of("queue_time_seconds", Metric::QueueTime),
        Histogram::of("per_stage_req_latency_seconds", Metric::PrefillTime).only("stage", "prefill_forward"),
        Histogram::of("prompt_tokens_histogram", Metric::PromptLen),
        Histogram::of("generation_tokens_histogram", Metric::GenerationLen),
    ],
    same: &["tp_rank", "pp_rank", "moe_ep_rank", "pid"],
    ranks: &["worker_addr", "dp_rank"],
    model: &["model_name"],
    expected: &[
        Metric::RequestsRunning,
        Metric::RequestsWaiting,
        Metric::KvUsage,
        Metric::PromptTokens,
        Metric::GenerationTokens,
        Metric::PrefixQueries,
        Metric::PrefixHits,
        Metric::RequestsFinished,
    ],
    absent: Why::NotYet,
};

impl Adapter for Sglang {
    fn spec(&self) -> &'static AdapterSpec {
        &SPEC
    }

    fn detect(&self, path: &str, answer: &str) -> bool {
        match path {
            METRICS => super::holds(answer, TABLE.prefixes),
            LOADS => Loads::read(answer).is_some(),
            _ => false,
        }
    }

    fn translate(&self, answers: Answers<'_>, engine: u8, memory: &mut Memory, batch: &mut Batch) -> usize {
        let subject = Subject::Engine(engine);
        batch.fact(subject, FactKey::KvLayout, "paged");
        let loads = answers.get(LOADS).and_then(Loads::read);
        let Some(metrics) = answers.get(METRICS) else {
            if let Some(loads) = loads {
                loads.emit(true, subject, batch);
            }
            return 0;
        };
        let mut full = None;
        if loads.is_none() {
            batch.fact(subject, FactKey::LevelsAge, "30 s when idle");
        }
        let found = Found::read(&TABLE, Exposition::new(metrics), |sample| {
            if sample
                .name
                .strip_prefix("sglang")
                .is_some_and(|name| name.trim_start_matches([':', '_']) == "full_token_usage")
            {
                full = greater(full, Some(sample.value * 100.0));
            }
        });
        if let Some(loads) = loads {
            loads.emit(found.age(Metric::KvHeldTokens) != Some(0), subject, batch);
        }
        pool(&found, full, subject, batch);
        speculation(&found, subject, batch);
        tokens(&found, memory, subject, batch);
        let bad_lines = found.bad_lines();
        found.emit(subject, batch);
        bad_lines
    }

    fn stands_in(&self, path: &str) -> Option<&'static str> {
        // Newer versions note in their log whenever the old path is asked for.
        (path == OLD_INFO).then_some(INFO)
    }

    fn extra(&self, path: &str, answer: &[u8], engine: u8, batch: &mut Batch) {
        let subject = Subject::Engine(engine);
        match path {
            MODELS => super::openai::models(answer, subject, batch),
            INFO | OLD_INFO => {
                if let Ok(info) = serde_json::from_slice::<Info>(answer) {
                    info.emit(subject, batch);
                }
            }
            _ => {}
        }
    }
}

/// KV usage over all ranks, and live tokens where they are known. `full`: the usage of the pool for full
/// attention, of the fullest rank.
fn pool(found: &Found<'_>, full: Option<f64>, subject: Subject, batch: &mut Batch) {
    let held = found.value(Metric::KvHeldTokens).filter(|_| found.age(Metric::KvHeldTokens) == Some(0));
    let size = found.value(Metric::KvPoolTokens).filter(|size| *size > 0.0);
    // Of a model with several kinds of pools usage is the fullest one's, which is the one that matters.
    let only_pool = found.parts(Metric::KvUsage).all(|(_, usage)| full.is_some_and(|full| usage <= full));
    if let (Some(held), Some(size), true) = (held, size, only_pool) {
        batch.push(subject, Metric::KvUsage, held / size * 100.0);
    }
    let known = |metric| found.value(metric).filter(|value| *value > 0.0);
    let live = known(Metric::KvLiveTokens).filter(|live| {
        let ends = known(Metric::RequestsRunning).zip(known(Metric::KvBlockSize)).map(|(n, page)| n * (page - 1.0));
        held.filter(|held| *held > 0.0).zip(ends).is_some_and(|(held, ends)| live + ends >= held)
    });
    batch.push(subject, Metric::KvLiveTokens, live.map_or(Reading::Missing(Why::Unsupported), Reading::new));
}

/// What is said of speculation, which is nothing where there is none.
fn speculation(found: &Found<'_>, subject: Subject, batch: &mut Batch) {
    if found.value(Metric::SpecAcceptLength).is_some_and(|length| length <= 0.0) {
        for metric in [Metric::SpecAcceptLength, Metric::SpecAcceptRate] {
            batch.push(subject, metric, Reading::Missing(Why::Unsupported));
        }
    }
}

/// Totals that more than one counter makes.
fn tokens(found: &Found<'_>, memory: &mut Memory, subject: Subject, batch: &mut Batch) {
    if found.age(Metric::GenerationTokens) == Some(0) {
        let decoded = found.value(Metric::GenerationTokens).unwrap_or_default();
        let first = found.observations(Metric::Ttft).unwrap_or_default();
        batch.push(subject, Metric::GenerationTokens, decoded + first);
    }
    let lookups = found.age(Metric::PrefixQueries);
    if lookups.is_some_and(|age| age < 2 && found.age(Metric::PrefixHits) != Some(age)) {
        batch.push(subject, Metric::PrefixHits, 0.0);
    }
    let recomputed = match (lookups, found.value(Metric::RecomputedTokens), found.value(Metric::PromptTokens)) {
        (Some(0), Some(more), Some(prompt)) => {
            Reading::new(memory.settled(Metric::RecomputedTokens, prompt, more.max(0.0)))
        }
        _ => Reading::Missing(Why::Unsupported),
    };
    batch.push(subject, Metric::RecomputedTokens, recomputed);
}

/// The answer to `/v1/loads`: what each data-parallel rank has to do right now.
#[derive(Deserialize)]
struct Loads {
    version: Option<String>,
    loads: Vec<Load>,
}

#[derive(Deserialize)]
struct Load {
    num_running_reqs: f64,
    num_waiting_reqs: f64,
    max_total_num_tokens: Option<f64>,
    num_used_tokens: Option<f64>,
    max_running_requests: Option<f64>,
    disaggregation: Option<Disaggregation>,
    queues: Option<Queues>,
    lora: Option<Lora>,
}

#[derive(Deserialize)]
struct Disaggregation {
    mode: Option<String>,
    decode_retracted_queue_reqs: Option<f64>,
}

#[derive(Deserialize)]
struct Queues {
    grammar: Option<f64>,
}

#[derive(Deserialize)]
struct Lora {
    slots_used: Option<f64>,
    slots_total: Option<f64>,
}

impl Loads {
    fn read(answer: &str) -> Option<Self> {
        serde_json::from_str::<Self>(answer).ok().filter(|answer| !answer.loads.is_empty())
    }

    /// The sum over the ranks; `None` unless all of them tell.
    fn sum(&self, of: impl Fn(&Load) -> Option<f64>) -> Option<f64> {
        self.loads.iter().map(of).sum()
    }

    /// `tokens`: whether used tokens are wanted too.
    fn emit(&self, tokens: bool, subject: Subject, batch: &mut Batch) {
        let mut offer = |metric, value: Option<f64>| {
            if let Some(value) = value {
                batch.push(subject, metric, value);
            }
        };
        let grammar = self.sum(|load| load.queues.as_ref()?.grammar);
        let waiting = self.sum(|load| Some(load.num_waiting_reqs));
        offer(Metric::RequestsRunning, self.sum(|load| Some(load.num_running_reqs)));
        // A request whose grammar is being compiled is in no other queue.
        offer(Metric::RequestsWaiting, waiting.map(|waiting| waiting + grammar.unwrap_or_default()));
        offer(Metric::WaitingGrammar, grammar);
        offer(Metric::WaitingPaused, self.sum(Load::retracted));
        offer(Metric::RequestsCap, self.sum(|load| load.max_running_requests));
        offer(Metric::LoraLoaded, self.sum(|load| load.lora.as_ref()?.slots_used));
        offer(Metric::LoraCap, self.sum(|load| load.lora.as_ref()?.slots_total));
        if tokens {
            let pool = self.sum(|load| load.max_total_num_tokens).filter(|pool| *pool > 0.0);
            let held = self.sum(|load| load.num_used_tokens);
            offer(Metric::KvPoolTokens, pool);
            offer(Metric::KvHeldTokens, held);
            offer(Metric::KvUsage, held.zip(pool).map(|(held, pool)| held / pool * 100.0));
        }
        if let Some(version) = self.version.as_deref().filter(|version| !version.is_empty()) {
            batch.fact(subject, FactKey::Version, version);
        }
    }
}

impl Load {
    /// Requests of a decode server that lost their KV and wait for it again.
    fn retracted(&self) -> Option<f64> {
        let split = self.disaggregation.as_ref().filter(|split| split.mode.as_deref() == Some("decode"))?;
        split.decode_retracted_queue_reqs
    }
}

/// Of the answer to `/server_info`: what the engine was started with, and what became of it. There is much
/// more in it, keys included, that is not read.
#[derive(Deserialize)]
struct Info {
    version: Option<String>,
    served_model_name: Option<String>,
    max_total_num_tokens: Option<f64>,
    page_size: Option<f64>,
    dp_size: Option<f64>,
    max_queued_requests: Option<f64>,
    #[serde(default, deserialize_with = "either")]
    internal_states: Vec<State>,
}

#[derive(Deserialize)]
struct State {
    effective_max_running_requests_per_dp: Option<f64>,
}

/// A list; anything else is as good as none.
fn either<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<State>, D::Error> {
    let value = serde_json::Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).unwrap_or_default())
}

impl Info {
    fn emit(&self, subject: Subject, batch: &mut Batch) {
        let replicas = self.dp_size.unwrap_or(1.0).max(1.0);
        let states = || self.internal_states.iter();
        let cap: Option<f64> = states().map(|state| state.effective_max_running_requests_per_dp).sum();
        for (metric, value) in [
            (Metric::KvPoolTokens, self.max_total_num_tokens.map(|tokens| tokens * replicas)),
            (Metric::KvBlockSize, self.page_size),
            (Metric::RequestsCap, cap),
            (Metric::QueueCap, self.max_queued_requests.map(|most| most * replicas)),
        ] {
            if let Some(value) = value.filter(|value| *value > 0.0) {
                batch.push(subject, metric, value);
            }
        }
        for (key, text) in [(FactKey::Version, &self.version), (FactKey::Model, &self.served_model_name)] {
            if let Some(text) = text.as_deref().filter(|text| !text.is_empty()) {
                batch.fact(subject, key, text);
            }
        }
    }
}

#[cfg(test)]
mod tests;
