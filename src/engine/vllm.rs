//! vLLM, all versions: the names of 0.8 to 0.33 and how they became one another.
//!
//! Names were read in the wheels 0.8.5, 0.9.2, 0.10.2, 0.12.0, 0.16.0, 0.24.0, 0.32.0 and 0.33.0 and
//! seen in bodies of 0.10.2, 0.25.1 and 0.32.0. Rules:
//!
//! - Some versions expose one thing under an old and a new name. The newest present is taken, never both.
//! - Data-parallel ranks (label `engine`) are one engine here: counters, buckets, running and waiting
//!   requests are added. KV usage is the mean weighted by the ranks' pools; where a pool is not known it
//!   is the fullest rank's, since that one preempts.
//! - With several API servers one series appears once for every `pid`, most of them at 0 (vllm#28792).
//!   Series that differ in nothing else are one series: the greatest value counts.
//! - `kv_cache_usage_perc` is a share of 1 in spite of its name.
//! - Behind Ray Serve the metrics of all replicas of a node come through Ray's agent, as `ray_vllm_` for `vllm:` and
//!   with labels of Ray added (`ReplicaId`, `WorkerId` …): replicas are added up as ranks are.
//! - Transfers of NIXL and, from 0.33, Mooncake are histograms; their sums and counts are read. NIXL's post time is a
//!   part of its transfer time; Mooncake has none.
//! - Of the stages of a KV fetch only `in_progress` waits for a transfer. `waiting_to_start` also counts requests for
//!   which no place or no blocks are free, and `completed_waiting` those whose blocks are there.
//! - `kv_offload_total_bytes` and `_time` repeat, in newer versions, what `kv_offload_load_*` and `_store_*` say.

mod api_server;

use std::collections::BTreeMap;

use api_server::ApiServer;

use super::promtext::Sample;
use super::table::{ASKED, Found, Histogram, Scalar, Table, greater, number, replica};
use super::{Adapter, AdapterSpec, Answers, Memory, Setting};
use crate::model::{Batch, FactKey, Metric, Reading, Subject, Why};

/// The adapter.
#[derive(Debug)]
pub struct Vllm;

const METRICS: &str = "/metrics";
const RAY: &str = "ray_vllm_";
const MODELS: &str = "/v1/models";
const VERSION: &str = "/version";

static SPEC: AdapterSpec = AdapterSpec {
    id: "vllm",
    name: "vLLM",
    main: &[METRICS],
    beside: &[],
    extras: &[VERSION, MODELS],
    flags: &[
        (Setting::KvMemory, "--gpu-memory-utilization"),
        (Setting::KvType, "--kv-cache-dtype fp8"),
        (Setting::Running, "--max-num-seqs"),
        (Setting::StepTokens, "--max-num-batched-tokens"),
        (Setting::Context, "--max-model-len"),
    ],
    hints: &[
        (Metric::WaitingCapacity, "needs version 0.24 or newer"),
        (Metric::WaitingDeferred, "needs version 0.24 or newer"),
        (Metric::RequestsFailed, "its API server counts them (http_requests_total); engines behind another one do not"),
        (Metric::SpecDraftTokens, "start it with --speculative-config"),
        (Metric::SpecAcceptedTokens, "start it with --speculative-config"),
        (
            Metric::KvTransfers,
            "only with a KV connector that uses NIXL, or Mooncake from version 0.33 (--kv-transfer-config)",
        ),
        (Metric::KvLoadBytes, "start it with --kv-offloading-size"),
        (Metric::PromptTokensExternal, "needs version 0.16 or newer"),
        (Metric::LoraLoaded, "start it with --enable-lora"),
        (Metric::LoraCap, "start it with --enable-lora"),
        (Metric::LoraRunning, "start it with --enable-lora"),
        (Metric::LoraWaiting, "the list it gives has been seen naming another adapter than those that waited"),
    ],
    help: "GET /metrics; names of vLLM 0.8 to 0.33, also behind Ray (ray_vllm_*)",
};

static TABLE: Table = Table {
    prefixes: &["vllm:", RAY],
    scalars: &[
        Scalar::of("num_requests_running", Metric::RequestsRunning),
        Scalar::of("num_requests_waiting", Metric::RequestsWaiting),
        Scalar::of("num_requests_waiting_by_reason", Metric::WaitingCapacity).only("reason", "capacity"),
        Scalar::of("num_requests_waiting_by_reason", Metric::WaitingDeferred).only("reason", "deferred"),
        Scalar::of("num_requests_kv_fetch_by_stage", Metric::WaitingKvFetch).only("stage", "in_progress"),
        Scalar::of("num_requests_swapped", Metric::WaitingPaused),
        Scalar::of("kv_cache_usage_perc", Metric::KvUsage).times(100.0).most(),
        Scalar::of("gpu_cache_usage_perc", Metric::KvUsage).times(100.0).most().aged(1),
        Scalar::of("num_preemptions_total", Metric::Preemptions),
        Scalar::of("prompt_tokens_total", Metric::PromptTokens),
        Scalar::of("generation_tokens_total", Metric::GenerationTokens),
        Scalar::of("prefix_cache_queries_total", Metric::PrefixQueries),
        Scalar::of("gpu_prefix_cache_queries_total", Metric::PrefixQueries).aged(1),
        Scalar::of("prefix_cache_hits_total", Metric::PrefixHits),
        Scalar::of("gpu_prefix_cache_hits_total", Metric::PrefixHits).aged(1),
        Scalar::of("request_success_total", Metric::RequestsFinished),
        Scalar::of("admission_rejections_total", Metric::RequestsFailed),
        Scalar::of("request_success_total", Metric::RequestsFailed).only("finished_reason", "error"),
        Scalar::of("spec_decode_num_drafts_total", Metric::SpecDrafts),
        Scalar::of("spec_decode_num_draft_tokens_total", Metric::SpecDraftTokens),
        Scalar::of("spec_decode_num_accepted_tokens_total", Metric::SpecAcceptedTokens),
        Scalar::of("external_prefix_cache_queries_total", Metric::ExternalPrefixQueries),
        Scalar::of("external_prefix_cache_hits_total", Metric::ExternalPrefixHits),
        Scalar::of("prompt_tokens_by_source_total", Metric::PromptTokensComputed).only("source", "local_compute"),
        Scalar::of("prompt_tokens_by_source_total", Metric::PromptTokensCached).only("source", "local_cache_hit"),
        Scalar::of("prompt_tokens_by_source_total", Metric::PromptTokensExternal)
            .only("source", "external_kv_transfer"),
        Scalar::of("nixl_xfer_time_seconds_count", Metric::KvTransfers),
        Scalar::of("mooncake_xfer_time_seconds_count", Metric::KvTransfers),
        Scalar::of("nixl_xfer_time_seconds_sum", Metric::KvTransferTime),
        Scalar::of("mooncake_xfer_time_seconds_sum", Metric::KvTransferTime),
        Scalar::of("nixl_post_time_seconds_sum", Metric::KvTransferPostTime),
        Scalar::of("nixl_bytes_transferred_sum", Metric::KvTransferBytes),
        Scalar::of("mooncake_bytes_transferred_sum", Metric::KvTransferBytes),
        Scalar::of("nixl_num_descriptors_sum", Metric::KvTransferDescriptors),
        Scalar::of("mooncake_num_descriptors_sum", Metric::KvTransferDescriptors),
        Scalar::of("nixl_num_failed_transfers_total", Metric::KvTransfersFailed),
        Scalar::of("mooncake_num_failed_transfers_total", Metric::KvTransfersFailed),
        Scalar::of("mooncake_num_failed_recvs_total", Metric::KvTransfersFailed),
        Scalar::of("kv_offload_load_bytes_total", Metric::KvLoadBytes),
        Scalar::of("kv_offload_total_bytes_total", Metric::KvLoadBytes).only("transfer_type", "CPU_to_GPU").aged(1),
        Scalar::of("kv_offload_load_time_total", Metric::KvLoadTime),
        Scalar::of("kv_offload_total_time_total", Metric::KvLoadTime).only("transfer_type", "CPU_to_GPU").aged(1),
        Scalar::of("kv_offload_store_bytes_total", Metric::KvStoreBytes),
        Scalar::of("kv_offload_total_bytes_total", Metric::KvStoreBytes).only("transfer_type", "GPU_to_CPU").aged(1),
        Scalar::of("kv_offload_store_time_total", Metric::KvStoreTime),
        Scalar::of("kv_offload_total_time_total", Metric::KvStoreTime).only("transfer_type", "GPU_to_CPU").aged(1),
    ],
    histograms: &[
        Histogram::of("time_to_first_token_seconds", Metric::Ttft),
        Histogram::of("inter_token_latency_seconds", Metric::Itl),
        Histogram::of("time_per_output_token_seconds", Metric::Itl).aged(1),
        Histogram::of("request_time_per_output_token_seconds", Metric::Tpot),
        Histogram::of("e2e_request_latency_seconds", Metric::E2e),
        Histogram::of("request_queue_time_seconds", Metric::QueueTime),
        Histogram::of("request_prefill_time_seconds", Metric::PrefillTime),
        Histogram::of("request_decode_time_seconds", Metric::DecodeTime),
        Histogram::of("request_prompt_tokens", Metric::PromptLen),
        Histogram::of("request_generation_tokens", Metric::GenerationLen),
        Histogram::of("request_params_max_tokens", Metric::MaxTokensParam),
    ],
    same: &["pid"],
    ranks: &["engine", "ReplicaId"],
    model: &["model_name"],
    expected: ASKED,
    absent: Why::Unsupported,
};

impl Adapter for Vllm {
    fn spec(&self) -> &'static AdapterSpec {
        &SPEC
    }

    fn detect(&self, path: &str, answer: &str) -> bool {
        path == METRICS && super::holds(answer, TABLE.prefixes)
    }

    fn translate(&self, answers: Answers<'_>, engine: u8, _: &mut Memory, batch: &mut Batch) -> usize {
        let subject = Subject::Engine(engine);
        let (mut pools, mut adapters) = (Pools::default(), Adapters::default());
        let (mut behind_ray, mut server) = (false, ApiServer::default());
        let found = Found::read(&TABLE, answers.body(METRICS), |sample| {
            behind_ray |= sample.name.starts_with(RAY);
            match &*sample.name {
                "vllm:cache_config_info" | "ray_vllm_cache_config_info" => pools.take(sample),
                "vllm:lora_requests_info" | "ray_vllm_lora_requests_info" => adapters.take(sample),
                _ => server.take(sample),
            }
        });
        pools.emit(&found, subject, batch);
        adapters.emit(subject, batch);
        server.emit(found.value(Metric::RequestsFailed), subject, batch);
        if behind_ray {
            batch.fact(subject, FactKey::Behind, "Ray");
        }
        batch.fact(subject, FactKey::KvLayout, "paged");
        let bad_lines = found.bad_lines();
        found.emit(subject, batch);
        bad_lines
    }

    fn extra(&self, path: &str, answer: &[u8], engine: u8, batch: &mut Batch) {
        let subject = Subject::Engine(engine);
        match path {
            VERSION => super::openai::version(answer, subject, batch),
            MODELS => super::openai::models(answer, subject, batch),
            _ => {}
        }
    }
}

/// The KV pools of the ranks.
#[derive(Default)]
struct Pools(BTreeMap<String, Pool>);

/// One rank's KV pool, tokens.
#[derive(Clone, Copy, Default)]
struct Pool {
    tokens: Option<f64>,
    block_size: Option<f64>,
}

impl Pools {
    /// The pool is stated in tokens since about 0.24, in blocks before, of which one is the null block
    /// that holds nothing. Any of these labels may say "None".
    fn take(&mut self, sample: &Sample<'_>) {
        let block_size = number(sample, "block_size");
        let from_blocks = || Some((number(sample, "num_gpu_blocks")? - 1.0) * block_size?);
        let tokens = number(sample, "kv_cache_size_tokens").or_else(from_blocks);
        let pool = self.0.entry(replica(&TABLE, sample).into_owned()).or_default();
        pool.tokens = greater(pool.tokens, tokens);
        pool.block_size = greater(pool.block_size, block_size);
    }

    fn emit(&self, found: &Found<'_>, subject: Subject, batch: &mut Batch) {
        if let Some(usage) = self.usage(found) {
            batch.push(subject, Metric::KvUsage, usage);
        }
        let tokens: Option<f64> = self.0.values().map(|pool| pool.tokens).sum();
        if let Some(tokens) = tokens.filter(|_| !self.0.is_empty()) {
            batch.push(subject, Metric::KvPoolTokens, tokens);
        }
        if let Some(size) = self.0.values().filter_map(|pool| pool.block_size).reduce(f64::max) {
            batch.push(subject, Metric::KvBlockSize, size);
        }
    }

    /// Share of all blocks in use, percent; `None` where not every rank's pool is known.
    fn usage(&self, found: &Found<'_>) -> Option<f64> {
        let (mut held, mut pool) = (0.0, 0.0);
        for (rank, usage) in found.parts(Metric::KvUsage) {
            let tokens = self.0.get(rank)?.tokens?;
            held += usage * tokens;
            pool += tokens;
        }
        (pool > 0.0).then(|| held / pool)
    }
}

/// What `lora_requests_info` says: its value is the time of the last change, and old combinations of labels
/// stay for ever, so the newest series counts. Its list of waiting adapters is not to be trusted (seen naming
/// another one than those that waited); its list of running ones is. An adapter with several requests is
/// listed once for each.
#[derive(Default)]
struct Adapters {
    at: Option<f64>,
    most: Option<f64>,
    running: String,
}

impl Adapters {
    fn take(&mut self, sample: &Sample<'_>) {
        if self.at.is_some_and(|at| at > sample.value) || !sample.value.is_finite() {
            return;
        }
        self.at = Some(sample.value);
        self.most = number(sample, "max_lora");
        self.running = sample.label("running_lora_adapters").into_owned();
    }

    fn emit(&self, subject: Subject, batch: &mut Batch) {
        if self.at.is_none() {
            return;
        }
        let mut running: Vec<_> = self.running.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
        running.sort_unstable();
        running.dedup();
        batch.push(subject, Metric::LoraRunning, running.len() as f64);
        batch.push(subject, Metric::LoraWaiting, Reading::Missing(Why::Unsupported));
        if let Some(most) = self.most {
            batch.push(subject, Metric::LoraCap, most);
        }
        batch.fact(subject, FactKey::LoraRunning, &running.join(","));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{HistogramSample, SourceId, Time};

    const OVERLOAD_0_25: &str = include_str!("../../assets/metrics/vllm-0.25.1-overload.prom");
    pub(super) const IDLE_0_25: &str = include_str!("../../assets/metrics/vllm-0.25.1-idle.prom");
    pub(super) const SPEC_0_25: &str = include_str!("../../assets/metrics/vllm-0.25.1-spec.prom");
    const CONNECTORS_0_32: &str = include_str!("../../assets/metrics/assembled/vllm-0.32.0-connectors.prom");
    pub(super) const QUEUE_0_32: &str = include_str!("../../assets/metrics/vllm-0.32.0-queue.prom");
    const LORA_0_32: &str = include_str!("../../assets/metrics/vllm-0.32.0-lora.prom");
    const LOAD_0_10: &str = include_str!("../../assets/metrics/vllm-0.10.2-load.prom");

    pub(super) fn translate(body: &str) -> Batch {
        let mut batch = Batch::new(SourceId::Engine(3), Time(0), 3500);
        Vllm.translate(Answers::new(&[(METRICS, body)]), 3, &mut Memory::default(), &mut batch);
        batch
    }

    pub(super) fn reading(batch: &Batch, metric: Metric) -> Option<Reading> {
        let mut found = batch.samples.iter().filter(|s| s.metric == metric && s.subject == Subject::Engine(3));
        let first = found.next().map(|s| s.reading);
        assert_eq!(found.next(), None, "{metric:?} comes twice");
        first
    }

    pub(super) fn values(batch: &Batch, metrics: &[Metric]) -> Vec<f64> {
        metrics.iter().map(|&m| reading(batch, m).and_then(Reading::value).unwrap_or(f64::NAN)).collect()
    }

    fn histogram(batch: &Batch, metric: Metric) -> &HistogramSample {
        let mut found = batch.histograms.iter().filter(|h| h.metric == metric);
        let first = found.next().unwrap_or_else(|| panic!("no {metric:?}"));
        assert_eq!(found.next(), None, "{metric:?} comes twice");
        first
    }

    /// The last word of the only line that starts like this: another way to read a body.
    pub(super) fn grep(body: &str, start: &str) -> f64 {
        let lines: Vec<_> = body.lines().filter(|line| line.starts_with(start)).collect();
        assert_eq!(lines.len(), 1, "{start}");
        lines[0].rsplit(' ').next().unwrap().parse().unwrap()
    }

    const FIGURES: [Metric; 12] = [
        Metric::RequestsRunning,
        Metric::RequestsWaiting,
        Metric::KvUsage,
        Metric::KvPoolTokens,
        Metric::KvBlockSize,
        Metric::Preemptions,
        Metric::PromptTokens,
        Metric::GenerationTokens,
        Metric::PrefixQueries,
        Metric::PrefixHits,
        Metric::RequestsFinished,
        Metric::EngineStart,
    ];

    /// Read off the files with another program.
    #[test]
    fn figures_of_real_bodies() {
        let t0 = 1.795_960_299_94e9;
        let usage_0_10 = 100.0 * 34.0 / 63.0; // 34 of 64 - 1 blocks
        let cases: [(&str, &str, [f64; 12]); 5] = [
            (
                OVERLOAD_0_25,
                "dummy-8b",
                [
                    109.0,
                    0.0,
                    90.347_155_255_445_84,
                    165_936.0,
                    16.0,
                    144.0,
                    4_109_824.0,
                    551_103.0,
                    9_462_400.0,
                    0.0,
                    3646.0,
                    t0,
                ],
            ),
            (IDLE_0_25, "dummy-8b", [0.0, 0.0, 0.0, 165_936.0, 16.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, t0]),
            (
                QUEUE_0_32,
                "tiny-qwen3",
                [3.0, 29.0, 87.5, 1056.0, 32.0, 60.0, 4040.0, 10_382.0, 4040.0, 1024.0, 40.0, 1.795_960_873_18e9],
            ),
            (
                LORA_0_32,
                "tiny-qwen3",
                [6.0, 6.0, 75.0, 1056.0, 32.0, 0.0, 192.0, 499.0, 192.0, 0.0, 0.0, 1.795_961_248_54e9],
            ),
            (
                LOAD_0_10,
                "tiny-qwen3",
                [3.0, 11.0, usage_0_10, 1008.0, 16.0, 11.0, 1244.0, 2146.0, 0.0, 0.0, 12.0, 1.795_961_850_1e9],
            ),
        ];
        for (body, model, expected) in cases {
            let batch = translate(body);
            for (metric, (value, expected)) in FIGURES.iter().zip(values(&batch, &FIGURES).iter().zip(expected)) {
                assert!(
                    (value - expected).abs() <= 1e-9 * expected.abs(),
                    "{model} {metric:?}: {value} for {expected}"
                );
            }
            let told = |key| batch.facts.iter().find(|f| f.key == key).map(|f| &*f.text);
            assert_eq!((told(FactKey::Model), told(FactKey::Ranks)), (Some(model), Some("0")));
        }
    }

    #[test]
    fn waiting_by_reason() {
        let reasons = [Metric::WaitingCapacity, Metric::WaitingDeferred];
        assert_eq!(values(&translate(QUEUE_0_32), &reasons), [29.0, 0.0]);
        assert_eq!(values(&translate(LORA_0_32), &reasons), [0.0, 6.0]);
        assert_eq!(reading(&translate(LOAD_0_10), Metric::WaitingCapacity), None, "0.10 gives no reasons");
    }

    /// A load that waits for free blocks waits for capacity, and one that is done waits for its turn: neither for a link.
    #[test]
    fn of_the_stages_of_a_kv_fetch_only_the_transfer_counts() {
        let body = "vllm:num_requests_kv_fetch_by_stage{engine=\"0\",stage=\"waiting_to_start\"} 40\n\
                    vllm:num_requests_kv_fetch_by_stage{engine=\"0\",stage=\"in_progress\"} 3\n\
                    vllm:num_requests_kv_fetch_by_stage{engine=\"1\",stage=\"in_progress\"} 2\n\
                    vllm:num_requests_kv_fetch_by_stage{engine=\"0\",stage=\"completed_waiting\"} 7\n";
        assert_eq!(reading(&translate(body), Metric::WaitingKvFetch), Some(Reading::Value(5.0)));
    }

    /// Mooncake's connector (0.33) counts as NIXL's does, but for the time of submission.
    #[test]
    fn transfers_of_mooncake() {
        let body = "vllm:mooncake_xfer_time_seconds_sum{engine=\"0\"} 1.5\nvllm:mooncake_xfer_time_seconds_count{engine=\"0\"} 10\n\
                    vllm:mooncake_bytes_transferred_sum{engine=\"0\"} 4e9\nvllm:mooncake_num_descriptors_sum{engine=\"0\"} 500\n\
                    vllm:mooncake_num_failed_transfers_total{engine=\"0\"} 2\nvllm:mooncake_num_failed_recvs_total{engine=\"0\"} 1\n";
        let batch = translate(body);
        let metrics = [
            Metric::KvTransfers,
            Metric::KvTransferTime,
            Metric::KvTransferBytes,
            Metric::KvTransferDescriptors,
            Metric::KvTransfersFailed,
        ];
        assert_eq!(values(&batch, &metrics), [10.0, 1.5, 4e9, 500.0, 3.0]);
        assert_eq!(reading(&batch, Metric::KvTransferPostTime), None);
    }

    #[test]
    fn adapters_that_run_are_those_of_the_newest_series() {
        let batch = translate(LORA_0_32);
        let metrics = [Metric::LoraRunning, Metric::LoraCap];
        assert_eq!(values(&batch, &metrics), [1.0, 1.0]);
        assert_eq!(reading(&batch, Metric::LoraWaiting), Some(Reading::Missing(Why::Unsupported)));
        let names =
            |batch: &Batch| batch.facts.iter().find(|f| f.key == FactKey::LoraRunning).map(|f| f.text.to_string());
        assert_eq!(names(&batch).as_deref(), Some("chat"));
        let body = "vllm:lora_requests_info{max_lora=\"4\",running_lora_adapters=\"b,a,b\",waiting_lora_adapters=\"\"} 20\n\
                    vllm:lora_requests_info{max_lora=\"4\",running_lora_adapters=\"old\",waiting_lora_adapters=\"\"} 10\n";
        let batch = translate(body);
        assert_eq!((names(&batch).as_deref(), values(&batch, &metrics)), (Some("a,b"), vec![2.0, 4.0]));
        assert_eq!(reading(&translate(IDLE_0_25), Metric::LoraRunning), None);
    }

    /// Every histogram against its own `_count` and `_sum` lines and one bucket in the middle.
    #[test]
    fn histograms_of_real_bodies() {
        for body in [OVERLOAD_0_25, QUEUE_0_32, LOAD_0_10] {
            let batch = translate(body);
            for &Histogram { name, metric, age, .. } in TABLE.histograms {
                if age > 0 || !body.contains(&format!("vllm:{name}_bucket")) {
                    continue;
                }
                let h = histogram(&batch, metric);
                assert_eq!(h.cumulative.len(), h.edges.len() + 1);
                assert_eq!(h.cumulative.last().copied(), Some(grep(body, &format!("vllm:{name}_count{{"))), "{name}");
                assert_eq!(h.sum, Some(grep(body, &format!("vllm:{name}_sum{{"))), "{name}");
                let (edge, count) = (h.edges[h.edges.len() / 2], h.cumulative[h.edges.len() / 2]);
                let line = format!("vllm:{name}_bucket{{engine=\"0\",le=\"{edge:?}\"");
                assert_eq!(count.to_bits(), grep(body, &line).to_bits(), "{name} at {edge}");
            }
        }
        let batch = translate(OVERLOAD_0_25);
        assert_eq!(batch.histograms.len(), 10, "all but the old name");
        assert_eq!(histogram(&batch, Metric::Ttft).edges.len(), 22);
        assert!(translate(LOAD_0_10).histograms.iter().all(|h| h.metric != Metric::Tpot));
    }

    #[test]
    fn speculation_and_sources_of_prompt_tokens_of_a_real_body() {
        let batch = translate(SPEC_0_25);
        let metrics = [Metric::SpecDrafts, Metric::SpecDraftTokens, Metric::SpecAcceptedTokens];
        assert_eq!(values(&batch, &metrics), [61.0, 303.0, 0.0]);
        let metrics = [Metric::PromptTokensComputed, Metric::PromptTokensCached, Metric::PromptTokensExternal];
        assert_eq!(values(&batch, &metrics), [2048.0, 0.0, 0.0]);
        assert_eq!(values(&batch, &[Metric::ExternalPrefixQueries, Metric::ExternalPrefixHits]), [0.0, 0.0]);
        assert_eq!(reading(&translate(OVERLOAD_0_25), Metric::SpecDraftTokens), None, "started without speculation");
        assert_eq!(reading(&batch, Metric::KvTransfers), None, "started without a connector");
    }

    #[test]
    fn transfers_and_offload_of_an_assembled_body() {
        let expected = [
            (Metric::KvTransfers, 200.0),
            (Metric::KvTransferTime, 28.0),
            (Metric::KvTransferPostTime, 16.0),
            (Metric::KvTransferBytes, 980e9),
            (Metric::KvTransferDescriptors, 21e6),
            (Metric::KvTransfersFailed, 2.0),
            (Metric::KvLoadBytes, 7e9),
            (Metric::KvLoadTime, 0.5),
            (Metric::KvStoreBytes, 9e9),
            (Metric::KvStoreTime, 0.75),
        ];
        let (metrics, numbers): (Vec<_>, Vec<_>) = expected.into_iter().unzip();
        let old: String = CONNECTORS_0_32
            .lines()
            .filter(|line| !line.contains("offload_load") && !line.contains("offload_store"))
            .flat_map(|line| [line, "\n"])
            .collect();
        for body in [CONNECTORS_0_32, &old] {
            assert_eq!(values(&translate(body), &metrics), numbers);
        }
    }

    #[test]
    fn the_newer_name_wins_and_nothing_is_added_up() {
        let batch = translate(LOAD_0_10);
        assert_eq!(histogram(&batch, Metric::Itl).cumulative.last(), Some(&2129.0), "both names have 2129");
        let old_only: String = LOAD_0_10
            .lines()
            .filter(|l| !l.contains("inter_token") && !l.contains(":kv_cache"))
            .fold(String::new(), |text, line| text + line + "\n");
        let old = translate(&old_only);
        assert_eq!(histogram(&old, Metric::Itl), histogram(&batch, Metric::Itl));
        assert_eq!(reading(&old, Metric::KvUsage), reading(&batch, Metric::KvUsage));
        let differing =
            "vllm:gpu_prefix_cache_hits_total{engine=\"0\"} 7\nvllm:prefix_cache_hits_total{engine=\"0\"} 5\n";
        assert_eq!(reading(&translate(differing), Metric::PrefixHits), Some(Reading::Value(5.0)));
    }

    #[test]
    fn ranks_are_added_and_pid_duplicates_are_not() {
        let body = r#"
vllm:num_requests_running{engine="0",model_name="m",pid="11"} 4
vllm:num_requests_running{engine="0",model_name="m",pid="12"} 0
vllm:num_requests_running{engine="1",model_name="m",pid="11"} 6
vllm:kv_cache_usage_perc{engine="0",model_name="m",pid="11"} 0
vllm:kv_cache_usage_perc{engine="0",model_name="m",pid="12"} 0.5
vllm:kv_cache_usage_perc{engine="1",model_name="m",pid="11"} 0.9
vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} 3
vllm:request_success_total{engine="0",finished_reason="length",model_name="m"} 3
vllm:request_success_total{engine="1",finished_reason="stop",model_name="m"} 4
vllm:e2e_request_latency_seconds_bucket{engine="0",le="1.0"} 1
vllm:e2e_request_latency_seconds_bucket{engine="0",le="5.0"} 2
vllm:e2e_request_latency_seconds_bucket{engine="0",le="+Inf"} 3
vllm:e2e_request_latency_seconds_bucket{engine="0",le="+Inf"} 3
vllm:e2e_request_latency_seconds_sum{engine="0"} 10
vllm:e2e_request_latency_seconds_bucket{engine="1",le="+Inf"} 30
vllm:e2e_request_latency_seconds_bucket{engine="1",le="5.0"} 20
vllm:e2e_request_latency_seconds_bucket{engine="1",le="2.0"} 10
vllm:e2e_request_latency_seconds_sum{engine="1"} 100
"#;
        let pools = r#"
vllm:cache_config_info{engine="0",block_size="16",num_gpu_blocks="101",kv_cache_size_tokens="None"} 1
vllm:cache_config_info{engine="1",block_size="16",num_gpu_blocks="None",kv_cache_size_tokens="400"} 1
"#;
        let metrics = [Metric::RequestsRunning, Metric::RequestsFinished, Metric::KvPoolTokens, Metric::KvBlockSize];
        let batch = translate(&format!("{body}{pools}"));
        assert_eq!(values(&batch, &metrics), [10.0, 10.0, 2000.0, 16.0]);
        let usage = reading(&batch, Metric::KvUsage).and_then(Reading::value).unwrap();
        assert!((usage - 58.0).abs() < 1e-9, "(0.5 × 1600 + 0.9 × 400) / 2000: {usage}");
        let h = histogram(&batch, Metric::E2e);
        assert_eq!((&*h.edges, &*h.cumulative, h.sum), (&[5.0][..], &[22.0, 33.0][..], Some(110.0)));

        let batch = translate(body);
        assert_eq!(reading(&batch, Metric::KvUsage), Some(Reading::Value(90.0)), "pools unknown: the fullest rank");
        assert_eq!(reading(&batch, Metric::KvPoolTokens), Some(Reading::Missing(Why::Unsupported)));
    }

    #[test]
    fn what_is_not_there_or_no_number_is_missing() {
        let batch = translate("vllm:something_new{a=\"b\"} 1\nvllm:kv_cache_usage_perc NaN\nnonsense\n");
        assert_eq!(reading(&batch, Metric::KvUsage), Some(Reading::Missing(Why::Failed)));
        for &metric in TABLE.expected.iter().filter(|&&m| m != Metric::KvUsage) {
            assert_eq!(reading(&batch, metric), Some(Reading::Missing(Why::Unsupported)), "{metric:?}");
        }
        assert!(batch.histograms.is_empty() && batch.facts.iter().all(|f| f.key == FactKey::KvLayout));
        assert_eq!(reading(&batch, Metric::WaitingCapacity), None);
    }

    #[test]
    fn a_broken_histogram_is_left_out() {
        let bucket = |counts: [&str; 3]| {
            let lines = ["1.0", "2.0", "+Inf"].iter().zip(counts);
            let body: Vec<_> =
                lines.map(|(le, n)| format!("vllm:time_to_first_token_seconds_bucket{{le=\"{le}\"}} {n}")).collect();
            translate(&body.join("\n")).histograms.len()
        };
        assert_eq!(bucket(["1", "2", "3"]), 1);
        for counts in [["3", "2", "3"], ["1", "NaN", "3"], ["1", "2", "+Inf"], ["-1", "2", "3"], ["1", "2", "x"]] {
            assert_eq!(bucket(counts), 0, "{counts:?}");
        }
    }

    #[test]
    fn extras_of_real_answers() {
        let models = br#"{"object":"list","data":[{"id":"sql","parent":"m","max_model_len":null},{"id":"m","max_model_len":960}]}"#;
        let mut batch = Batch::new(SourceId::Engine(3), Time(0), Batch::FOREVER);
        Vllm.extra(MODELS, models, 3, &mut batch);
        Vllm.extra(VERSION, br#"{"version":"0.32.0"}"#, 3, &mut batch);
        assert_eq!(reading(&batch, Metric::MaxModelLen), Some(Reading::Value(960.0)));
        assert_eq!(
            batch.facts.iter().map(|f| (f.key, &*f.text)).collect::<Vec<_>>(),
            [(FactKey::LoraLoaded, "sql"), (FactKey::Version, "0.32.0")]
        );
        let mut batch = Batch::new(SourceId::Engine(3), Time(0), Batch::FOREVER);
        for path in SPEC.extras {
            for answer in [&b""[..], b"{}", b"<html>", b"{\"data\":[{}]}", b"{\"version\":\"\"}", b"\xff"] {
                Vllm.extra(path, answer, 3, &mut batch);
            }
        }
        assert!(batch.samples.is_empty() && batch.facts.is_empty());
    }
}
