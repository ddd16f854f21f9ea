//! vLLM, all versions: the names of 0.8 to 0.32 and how they became one another.
//!
//! Names were read in the wheels 0.8.5, 0.9.2, 0.10.2, 0.12.0, 0.16.0, 0.24.0 and 0.32.0 and seen in
//! bodies of 0.10.2, 0.25.1 and 0.32.0. Rules:
//!
//! - Some versions expose one thing under an old and a new name. The newest present is taken, never both.
//! - Data-parallel ranks (label `engine`) are one engine here: counters, buckets, running and waiting
//!   requests are added. KV usage is the mean weighted by the ranks' pools; where a pool is not known it
//!   is the fullest rank's, since that one preempts.
//! - With several API servers one series appears once for every `pid`, most of them at 0 (vllm#28792).
//!   Series that differ in nothing else are one series: the greatest value counts.
//! - `kv_cache_usage_perc` is a share of 1 in spite of its name.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;

use super::buckets::{Buckets, Merged};
use super::promtext::{Exposition, Sample};
use super::{Adapter, AdapterSpec};
use crate::model::{Batch, FactKey, Metric, Reading, Subject, Why};

/// The adapter.
#[derive(Debug)]
pub struct Vllm;

const MODELS: &str = "/v1/models";
const VERSION: &str = "/version";

static SPEC: AdapterSpec = AdapterSpec {
    id: "vllm",
    name: "vLLM",
    extras: &[VERSION, MODELS],
    help: "GET /metrics; names of vLLM 0.8 to 0.32",
};

/// A name after `vllm:`, what it is, and its age: 0 is the newest name.
type Name = (&'static str, Metric, u8);

const SCALARS: &[Name] = &[
    ("num_requests_running", Metric::RequestsRunning, 0),
    ("num_requests_waiting", Metric::RequestsWaiting, 0),
    ("kv_cache_usage_perc", Metric::KvUsage, 0),
    ("gpu_cache_usage_perc", Metric::KvUsage, 1),
    ("num_preemptions_total", Metric::Preemptions, 0),
    ("prompt_tokens_total", Metric::PromptTokens, 0),
    ("generation_tokens_total", Metric::GenerationTokens, 0),
    ("prefix_cache_queries_total", Metric::PrefixQueries, 0),
    ("gpu_prefix_cache_queries_total", Metric::PrefixQueries, 1),
    ("prefix_cache_hits_total", Metric::PrefixHits, 0),
    ("gpu_prefix_cache_hits_total", Metric::PrefixHits, 1),
    ("request_success_total", Metric::RequestsFinished, 0),
];

const HISTOGRAMS: &[Name] = &[
    ("time_to_first_token_seconds", Metric::Ttft, 0),
    ("inter_token_latency_seconds", Metric::Itl, 0),
    ("time_per_output_token_seconds", Metric::Itl, 1),
    ("request_time_per_output_token_seconds", Metric::Tpot, 0),
    ("e2e_request_latency_seconds", Metric::E2e, 0),
    ("request_queue_time_seconds", Metric::QueueTime, 0),
    ("request_prefill_time_seconds", Metric::PrefillTime, 0),
    ("request_decode_time_seconds", Metric::DecodeTime, 0),
    ("request_prompt_tokens", Metric::PromptLen, 0),
    ("request_generation_tokens", Metric::GenerationLen, 0),
    ("request_params_max_tokens", Metric::MaxTokensParam, 0),
];

/// What the screen says "not exposed" about when the body lacks it.
const MAIN: &[Metric] = &[
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
];

impl Adapter for Vllm {
    fn spec(&self) -> &'static AdapterSpec {
        &SPEC
    }

    fn detect(&self, body: Exposition<'_>) -> bool {
        body.samples().any(|sample| sample.name.starts_with("vllm:"))
    }

    fn translate(&self, body: Exposition<'_>, engine: u8, batch: &mut Batch) -> usize {
        let subject = Subject::Engine(engine);
        let mut found = Found::default();
        let mut samples = body.samples();
        for sample in samples.by_ref() {
            found.take(&sample);
        }
        if !found.model.is_empty() {
            batch.fact(subject, FactKey::Model, &found.model);
        }
        found.scalars(subject, batch);
        found.pools(subject, batch);
        found.histograms(subject, batch);
        samples.bad_lines()
    }

    fn extra(&self, path: &str, answer: &[u8], engine: u8, batch: &mut Batch) {
        let subject = Subject::Engine(engine);
        match path {
            VERSION => {
                if let Some(version) = version(answer) {
                    batch.fact(subject, FactKey::Version, &version);
                }
            }
            MODELS => {
                if let Some(length) = max_model_len(answer) {
                    batch.push(subject, Metric::MaxModelLen, length);
                }
            }
            _ => {}
        }
    }
}

/// Of the answer to `/version`: `{"version":"0.25.1"}`.
fn version(answer: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Answer {
        version: String,
    }
    serde_json::from_slice::<Answer>(answer).ok().map(|a| a.version).filter(|v| !v.is_empty())
}

/// Of the answer to `/v1/models`, tokens. Adapters are listed too, with no length of their own.
fn max_model_len(answer: &[u8]) -> Option<f64> {
    #[derive(Deserialize)]
    struct Answer {
        data: Vec<Model>,
    }
    #[derive(Deserialize)]
    struct Model {
        max_model_len: Option<f64>,
    }
    serde_json::from_slice::<Answer>(answer).ok()?.data.into_iter().find_map(|m| m.max_model_len)
}

/// Which series: metric, age of its name, rank.
type Key<'a> = (Metric, u8, Cow<'a, str>);

/// Everything of one body, ranks still apart.
#[derive(Default)]
struct Found<'a> {
    model: Cow<'a, str>,
    start: Option<f64>,
    /// The last part tells series of one rank apart: reasons.
    scalars: BTreeMap<(Key<'a>, Cow<'a, str>), f64>,
    histograms: BTreeMap<Key<'a>, Buckets>,
    pools: BTreeMap<Cow<'a, str>, Pool>,
    /// The histogram of the line before: its buckets stand together.
    last: (String, Option<(Metric, u8)>),
}

/// One rank's KV pool, tokens.
#[derive(Clone, Copy, Default)]
struct Pool {
    tokens: Option<f64>,
    block_size: Option<f64>,
}

/// Where a name ends when it belongs to a histogram.
enum Part {
    Bucket,
    Sum,
}

impl<'a> Found<'a> {
    fn take(&mut self, sample: &Sample<'a>) {
        let Some(name) = sample.name.strip_prefix("vllm:") else {
            if sample.name == "process_start_time_seconds" {
                self.start = Some(sample.value);
            }
            return;
        };
        if let Some(base) = name.strip_suffix("_bucket") {
            return self.take_histogram(base, Part::Bucket, sample);
        }
        if let Some(base) = name.strip_suffix("_sum") {
            return self.take_histogram(base, Part::Sum, sample);
        }
        match name {
            "cache_config_info" => self.take_pool(sample),
            "num_requests_waiting_by_reason" => {
                let metric = match &*sample.label("reason") {
                    "capacity" => Metric::WaitingCapacity,
                    "deferred" => Metric::WaitingDeferred,
                    _ => return,
                };
                self.take_scalar(metric, 0, sample);
            }
            _ => {
                if let Some(&(_, metric, age)) = SCALARS.iter().find(|known| known.0 == name) {
                    self.take_scalar(metric, age, sample);
                }
            }
        }
    }

    fn take_scalar(&mut self, metric: Metric, age: u8, sample: &Sample<'a>) {
        let (mut rank, mut part) = (Cow::Borrowed(""), Cow::Borrowed(""));
        for label in sample.labels() {
            match &*label.name() {
                "engine" => rank = label.value(),
                "finished_reason" => part = label.value(),
                "model_name" if self.model.is_empty() => self.model = label.value(),
                _ => {}
            }
        }
        let value = self.scalars.entry(((metric, age, rank), part)).or_insert(sample.value);
        *value = value.max(sample.value);
    }

    fn take_histogram(&mut self, base: &str, part: Part, sample: &Sample<'a>) {
        if self.last.0 != base {
            let known = HISTOGRAMS.iter().find(|known| known.0 == base);
            self.last = (base.to_owned(), known.map(|&(_, metric, age)| (metric, age)));
        }
        let Some((metric, age)) = self.last.1 else { return };
        let (mut rank, mut edge) = (Cow::Borrowed(""), None);
        for label in sample.labels() {
            if label.is("engine") {
                rank = label.value();
            } else if label.is("le") {
                edge = label.value().parse::<f64>().ok();
            }
        }
        let buckets = self.histograms.entry((metric, age, rank)).or_default();
        match (part, edge) {
            (Part::Bucket, Some(edge)) => buckets.counts.push((edge, sample.value)),
            (Part::Bucket, None) => {}
            (Part::Sum, _) => buckets.sum = greater(buckets.sum, Some(sample.value)),
        }
    }

    /// The pool is stated in tokens since about 0.24, in blocks before, of which one is the null block
    /// that holds nothing. Any of these labels may say "None".
    fn take_pool(&mut self, sample: &Sample<'a>) {
        let number = |name| sample.label(name).parse::<f64>().ok().filter(|n| n.is_finite() && *n > 0.0);
        let block_size = number("block_size");
        let from_blocks = || Some((number("num_gpu_blocks")? - 1.0) * block_size?);
        let tokens = number("kv_cache_size_tokens").or_else(from_blocks);
        let pool = self.pools.entry(sample.label("engine")).or_default();
        pool.tokens = greater(pool.tokens, tokens);
        pool.block_size = greater(pool.block_size, block_size);
    }

    /// Adds what is counted or held, over the ranks.
    fn scalars(&self, subject: Subject, batch: &mut Batch) {
        let mut sums: Vec<(Metric, u8, f64)> = Vec::new();
        for (((metric, age, _), _), value) in &self.scalars {
            match sums.last_mut() {
                // Ages rise within a metric: what comes after the first is an older name.
                Some(last) if last.0 == *metric && last.1 != *age => {}
                Some(last) if last.0 == *metric => last.2 += value,
                _ => sums.push((*metric, *age, *value)),
            }
        }
        for &(metric, age, sum) in &sums {
            let value = if metric == Metric::KvUsage { self.kv_usage(age) } else { sum };
            batch.push(subject, metric, value);
        }
        if let Some(start) = self.start {
            batch.push(subject, Metric::EngineStart, start);
        }
        for &metric in MAIN {
            if metric != Metric::KvPoolTokens && !sums.iter().any(|s| s.0 == metric) {
                batch.push(subject, metric, Reading::Missing(Why::Unsupported));
            }
        }
    }

    /// Share of the blocks in use, percent.
    fn kv_usage(&self, age: u8) -> f64 {
        let of_age = self.scalars.iter().filter(|(((metric, a, _), _), _)| *metric == Metric::KvUsage && *a == age);
        let (mut held, mut pool, mut fullest) = (Some(0.0), 0.0, f64::NAN);
        for (((_, _, rank), _), &usage) in of_age {
            let tokens = self.pools.get(rank).and_then(|p| p.tokens);
            held = held.zip(tokens).map(|(held, tokens)| held + usage * tokens);
            pool += tokens.unwrap_or(0.0);
            fullest = fullest.max(usage);
        }
        100.0 * held.filter(|_| pool > 0.0).map_or(fullest, |held| held / pool)
    }

    fn pools(&self, subject: Subject, batch: &mut Batch) {
        let tokens: Option<f64> = self.pools.values().map(|p| p.tokens).sum();
        match tokens.filter(|_| !self.pools.is_empty()) {
            Some(tokens) => batch.push(subject, Metric::KvPoolTokens, tokens),
            None => batch.push(subject, Metric::KvPoolTokens, Reading::Missing(Why::Unsupported)),
        }
        if let Some(size) = self.pools.values().filter_map(|p| p.block_size).reduce(f64::max) {
            batch.push(subject, Metric::KvBlockSize, size);
        }
    }

    fn histograms(self, subject: Subject, batch: &mut Batch) {
        let mut taken: Option<(Metric, u8)> = None;
        let mut merged: Vec<(Metric, Merged)> = Vec::new();
        for ((metric, age, _), buckets) in self.histograms {
            if taken.is_some_and(|t| t.0 == metric && t.1 != age) {
                continue;
            }
            let rank = Merged::of(buckets);
            match merged.last_mut() {
                Some((last, sum)) if *last == metric => sum.add(rank),
                _ => merged.push((metric, rank)),
            }
            taken = Some((metric, age));
        }
        batch.histograms.extend(merged.into_iter().filter_map(|(metric, merged)| merged.sample(subject, metric)));
    }
}

fn greater(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    a.into_iter().chain(b).reduce(f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{HistogramSample, SourceId, Time};

    const OVERLOAD_0_25: &str = include_str!("../../assets/metrics/vllm-0.25.1-overload.prom");
    const IDLE_0_25: &str = include_str!("../../assets/metrics/vllm-0.25.1-idle.prom");
    const QUEUE_0_32: &str = include_str!("../../assets/metrics/vllm-0.32.0-queue.prom");
    const LORA_0_32: &str = include_str!("../../assets/metrics/vllm-0.32.0-lora.prom");
    const LOAD_0_10: &str = include_str!("../../assets/metrics/vllm-0.10.2-load.prom");

    fn translate(body: &str) -> Batch {
        let mut batch = Batch::new(SourceId::Engine(3), Time(0), 3500);
        Vllm.translate(Exposition::new(body), 3, &mut batch);
        batch
    }

    fn reading(batch: &Batch, metric: Metric) -> Option<Reading> {
        let mut found = batch.samples.iter().filter(|s| s.metric == metric && s.subject == Subject::Engine(3));
        let first = found.next().map(|s| s.reading);
        assert_eq!(found.next(), None, "{metric:?} comes twice");
        first
    }

    fn values(batch: &Batch, metrics: &[Metric]) -> Vec<f64> {
        metrics.iter().map(|&m| reading(batch, m).and_then(Reading::value).unwrap_or(f64::NAN)).collect()
    }

    fn histogram(batch: &Batch, metric: Metric) -> &HistogramSample {
        let mut found = batch.histograms.iter().filter(|h| h.metric == metric);
        let first = found.next().unwrap_or_else(|| panic!("no {metric:?}"));
        assert_eq!(found.next(), None, "{metric:?} comes twice");
        first
    }

    /// The last word of the only line that starts like this: another way to read a body.
    fn grep(body: &str, start: &str) -> f64 {
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
            assert_eq!(batch.facts.iter().map(|f| (f.key, &*f.text)).collect::<Vec<_>>(), [(FactKey::Model, model)]);
        }
    }

    #[test]
    fn waiting_by_reason() {
        let reasons = [Metric::WaitingCapacity, Metric::WaitingDeferred];
        assert_eq!(values(&translate(QUEUE_0_32), &reasons), [29.0, 0.0]);
        assert_eq!(values(&translate(LORA_0_32), &reasons), [0.0, 6.0]);
        assert_eq!(reading(&translate(LOAD_0_10), Metric::WaitingCapacity), None, "0.10 gives no reasons");
    }

    /// Every histogram against its own `_count` and `_sum` lines and one bucket in the middle.
    #[test]
    fn histograms_of_real_bodies() {
        for body in [OVERLOAD_0_25, QUEUE_0_32, LOAD_0_10] {
            let batch = translate(body);
            for &(name, metric, age) in HISTOGRAMS {
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
        for &metric in MAIN.iter().filter(|&&m| m != Metric::KvUsage) {
            assert_eq!(reading(&batch, metric), Some(Reading::Missing(Why::Unsupported)), "{metric:?}");
        }
        assert!(batch.histograms.is_empty() && batch.facts.is_empty());
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
        assert_eq!(batch.facts.iter().map(|f| (f.key, &*f.text)).collect::<Vec<_>>(), [(FactKey::Version, "0.32.0")]);
        let mut batch = Batch::new(SourceId::Engine(3), Time(0), Batch::FOREVER);
        for path in SPEC.extras {
            for answer in [&b""[..], b"{}", b"<html>", b"{\"data\":[{}]}", b"{\"version\":\"\"}", b"\xff"] {
                Vllm.extra(path, answer, 3, &mut batch);
            }
        }
        assert!(batch.samples.is_empty() && batch.facts.is_empty());
    }
}
