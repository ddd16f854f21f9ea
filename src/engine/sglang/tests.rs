//! Bodies assembled from the names that the source declares; expected values by hand from the files.

use super::*;
use crate::engine::testing::{
    bad_extras_say_nothing, every_row_is_read, extra, fact, has_histograms, has_values, noise_changes_nothing, reading,
    translate,
};

const V0_5_23: &str = include_str!("../../../assets/metrics/assembled/sglang-0.5.23.prom");
const DECODE_0_5_23: &str = include_str!("../../../assets/metrics/assembled/sglang-0.5.23-decode.prom");
const V0_5_5: &str = include_str!("../../../assets/metrics/assembled/sglang-0.5.5.prom");
const V0_4_3: &str = include_str!("../../../assets/metrics/assembled/sglang-0.4.3.prom");
const LOADS_0_5_23: &str = include_str!("../../../assets/metrics/assembled/sglang-0.5.23-loads.json");
const INFO_0_5_23: &str = include_str!("../../../assets/metrics/assembled/sglang-0.5.23.server_info.json");
const MODELS_0_5_23: &str = include_str!("../../../assets/metrics/assembled/sglang-0.5.23.v1_models.json");

fn metrics(body: &str) -> Batch {
    translate(&Sglang, &[(METRICS, body)])
}

/// Two data-parallel ranks; each tensor-parallel rank tells the same, each priority a part.
const FIGURES_0_5_23: [(Metric, f64); 24] = [
    (Metric::KvTransfersFailed, 4.0),
    (Metric::RequestsRunning, 12.0 + 9.0),
    // queue, grammar, prefill bootstrap, decode preallocation, decode transfer
    (Metric::RequestsWaiting, 7.0 + 4.0 + 10.0 + 15.0 + 19.0),
    (Metric::WaitingGrammar, 4.0),
    (Metric::WaitingDeferred, 10.0),
    (Metric::WaitingKvFetch, 19.0),
    (Metric::KvUsage, 27.0),
    (Metric::KvPoolTokens, 100_000.0),
    (Metric::KvBlockSize, 16.0),
    (Metric::KvHeldTokens, 27_000.0),
    (Metric::KvCachedTokens, 24_000.0),
    (Metric::KvFreeTokens, 49_000.0),
    // 19 900 + 6 950: the 150 places left of 27 000 fit into 21 last pages of 16.
    (Metric::KvLiveTokens, 26_850.0),
    (Metric::MaxModelLen, 131_072.0),
    (Metric::Preemptions, 25.0),
    // 70 000 + 30 500 computed, 66 000 + 30 000 of them for the first time
    (Metric::RecomputedTokens, 4500.0),
    // input 96 000, device 46 000, host 2500, storage 250
    (Metric::PromptTokens, 144_750.0),
    (Metric::PrefixQueries, 144_750.0),
    (Metric::PrefixHits, 48_750.0),
    // decode 380 000, and the first tokens of 420 + 26 requests
    (Metric::GenerationTokens, 380_446.0),
    (Metric::RequestsFinished, 435.0),
    // aborted 31, bootstrap 3, transfer 4
    (Metric::RequestsFailed, 38.0),
    (Metric::LoraLoaded, 5.0),
    (Metric::LoraCap, 16.0),
];

#[test]
fn a_body_assembled_from_the_names_of_0_5_23_is_read() {
    let batch = metrics(V0_5_23);
    has_values(&batch, &FIGURES_0_5_23);
    has_histograms(
        &batch,
        &[
            (Metric::Ttft, 446.0, 136.0, (0.2, 210.0)),
            (Metric::Itl, 380_000.0, 3990.0, (0.01, 190_000.0)),
            (Metric::Tpot, 424.0, 5.0, (0.015, 200.0)),
            (Metric::E2e, 435.0, 1630.75, (4.0, 205.0)),
            (Metric::QueueTime, 450.0, 84.0, (0.1, 150.0)),
            (Metric::PrefillTime, 430.0, 130.0, (0.1, 145.0)),
            (Metric::PromptLen, 435.0, 180_000.0, (500.0, 217.0)),
            (Metric::GenerationLen, 435.0, 320_000.0, (1000.0, 217.0)),
        ],
    );
    assert_eq!(fact(&batch, FactKey::Model), Some("meta-llama/Llama-3.1-8B-Instruct"));
    assert_eq!((fact(&batch, FactKey::Ranks), fact(&batch, FactKey::KvLayout)), (Some("0,1"), Some("paged")));
}

#[test]
fn a_body_assembled_with_the_prefix_and_labels_of_a_router_is_read_the_same() {
    let routed =
        V0_5_23.replace("sglang:", "sglang_").replace("engine_type=", "worker_addr=\"http://a:1\",engine_type=");
    let batch = metrics(&routed);
    has_values(&batch, &FIGURES_0_5_23);
    assert_eq!(fact(&batch, FactKey::Ranks), Some("0/http://a:1,1/http://a:1,http://a:1"));
    let second = routed.replace("http://a:1", "http://b:1");
    let both = metrics(&(routed + &second));
    assert_eq!(reading(&both, Metric::RequestsRunning), Some(Reading::Value(42.0)));
    assert_eq!(both.histograms[0].cumulative.last(), Some(&892.0));
}

#[test]
fn bodies_assembled_from_older_names_are_read() {
    let batch = metrics(V0_5_5);
    has_values(
        &batch,
        &[
            (Metric::RequestsRunning, 7.0),
            (Metric::RequestsWaiting, 3.0 + 2.0 + 4.0),
            (Metric::WaitingGrammar, 2.0),
            (Metric::WaitingDeferred, 4.0),
            (Metric::WaitingKvFetch, 0.0),
            (Metric::KvUsage, 25.0),
            (Metric::KvHeldTokens, 4096.0),
            (Metric::Preemptions, 17.0),
            (Metric::PromptTokens, 12_000.0),
            (Metric::PrefixQueries, 12_000.0),
            (Metric::PrefixHits, 2500.0),
            (Metric::GenerationTokens, 34_000.0),
            (Metric::RequestsFinished, 60.0),
            (Metric::RequestsFailed, 5.0),
        ],
    );
    has_histograms(&batch, &[(Metric::Itl, 33_000.0, 260.0, (0.008, 16_500.0))]);
    let batch = metrics(V0_4_3);
    has_values(
        &batch,
        &[
            (Metric::RequestsRunning, 4.0),
            (Metric::RequestsWaiting, 6.0),
            (Metric::KvUsage, 50.0),
            (Metric::KvHeldTokens, 2048.0),
            (Metric::PromptTokens, 500.0),
            (Metric::PrefixQueries, 500.0),
            (Metric::GenerationTokens, 900.0),
            (Metric::RequestsFinished, 11.0),
        ],
    );
    has_histograms(&batch, &[(Metric::Tpot, 880.0, 12.5, (0.015, 440.0))]);
    assert_eq!(reading(&batch, Metric::PrefixHits), Some(Reading::Missing(Why::NotYet)), "this version has none");
}

#[test]
fn every_row_of_the_table_is_in_an_assembled_body() {
    every_row_is_read(&TABLE, &[V0_5_23, DECODE_0_5_23, V0_5_5, V0_4_3, "sglang:some_gauge 1\n"]);
    noise_changes_nothing(&Sglang, METRICS, "sglang:", V0_5_23);
}

#[test]
fn a_rank_that_vanishes_takes_its_part_with_it() {
    let rest: String = V0_5_23.lines().filter(|line| !line.contains("dp_rank=\"1\"")).flat_map(|l| [l, "\n"]).collect();
    let batch = metrics(&rest);
    assert_eq!(fact(&batch, FactKey::Ranks), Some("0"));
    assert_eq!(reading(&batch, Metric::RequestsRunning), Some(Reading::Value(12.0)));
    let sets = |batch: &Batch, metric| batch.histograms.iter().find(|h| h.metric == metric).map(|h| h.sets);
    assert_ne!(sets(&batch, Metric::QueueTime), sets(&metrics(V0_5_23), Metric::QueueTime));
    assert_eq!(sets(&batch, Metric::Ttft), sets(&metrics(V0_5_23), Metric::Ttft), "not told by rank");
}

/// Counters with a label appear with their first use.
#[test]
fn no_hit_so_far_is_none_and_not_unknown() {
    let hits = |body: &str| reading(&metrics(body), Metric::PrefixHits);
    let effective = "sglang:prefill_effective_tokens_total{mode=\"input\"} 50\n";
    let realtime = "sglang:realtime_tokens_total{mode=\"prefill_compute\"} 60\n";
    let retried = "sglang:realtime_tokens_total{mode=\"prefill_cache\"} 10\n";
    for body in [effective.to_owned(), realtime.to_owned(), [effective, realtime, retried].concat()] {
        assert_eq!(hits(&body), Some(Reading::Value(0.0)), "{body}");
    }
    assert_eq!(hits(&[realtime, retried].concat()), Some(Reading::Value(10.0)));
    assert_eq!(hits("sglang:prompt_tokens_total 9\n"), Some(Reading::Missing(Why::NotYet)));
    assert_eq!(hits("sglang:num_running_reqs 0\n"), Some(Reading::Missing(Why::NotYet)));
}

#[test]
fn recomputed_tokens_need_both_counters() {
    let realtime = "sglang:realtime_tokens_total{mode=\"prefill_compute\"} 60\n";
    let missing = Some(Reading::Missing(Why::Unsupported));
    assert_eq!(reading(&metrics(realtime), Metric::RecomputedTokens), missing);
    assert_eq!(
        reading(&metrics("sglang:prefill_effective_tokens_total{mode=\"input\"} 50\n"), Metric::RecomputedTokens),
        Some(Reading::Value(0.0))
    );
    let mut memory = Memory::default();
    let mut recomputed = |computed: u32, first: u32| {
        let body = format!(
            "sglang:realtime_tokens_total{{mode=\"prefill_compute\"}} {computed}\n\
             sglang:prefill_effective_tokens_total{{mode=\"input\"}} {first}\n"
        );
        let mut batch = Batch::new(crate::model::SourceId::Engine(3), crate::model::Time(0), 1);
        Sglang.translate(Answers::new(&[(METRICS, &body)]), 3, &mut memory, &mut batch);
        reading(&batch, Metric::RecomputedTokens).and_then(Reading::value)
    };
    // The third scrape falls between the two counters; from the fifth on 20 tokens are computed again.
    let read = [(100, 100), (150, 150), (200, 150), (200, 200), (230, 210), (230, 210)];
    assert_eq!(read.map(|(a, b)| recomputed(a, b)), [0.0, 0.0, 0.0, 0.0, 0.0, 20.0].map(Some));
}

#[test]
fn sums_of_lengths_that_leave_requests_out_are_not_live_tokens() {
    let body = |live: u32, held: u32, running: u32| {
        format!(
            "sglang:decode_sum_seq_lens {live}\nsglang:kv_used_tokens {held}\nsglang:num_running_reqs {running}\n\
             sglang:page_size 4\nsglang:max_total_num_tokens 1000\n"
        )
    };
    let live = |l, h, r| reading(&metrics(&body(l, h, r)), Metric::KvLiveTokens).and_then(Reading::value);
    assert_eq!(live(97, 100, 1), Some(97.0));
    assert_eq!(live(96, 100, 1), None, "4 places are more than the end of one page of 4: somebody is in prefill");
    assert_eq!(live(300, 100, 4), Some(300.0), "shared prefixes");
    assert_eq!(live(97, 0, 0), None, "idle: the gauge is old");
}

#[test]
fn usage_is_that_of_the_fullest_kind_of_pool() {
    let body = "sglang:kv_used_tokens 104\nsglang:max_total_num_tokens 1000\nsglang:full_token_usage 0.1\n";
    let usage = |body: &str| reading(&metrics(body), Metric::KvUsage).and_then(Reading::value);
    assert_eq!(usage(&format!("{body}sglang:token_usage 0.1\n")), Some(10.4));
    assert_eq!(usage(&format!("{body}sglang:token_usage 0.85\n")), Some(85.0), "the sliding-window pool");
}

#[test]
fn an_assembled_answer_of_loads_is_newer_than_the_gauges() {
    assert!(Sglang.detect(LOADS, LOADS_0_5_23) && Sglang.detect(METRICS, V0_5_23));
    for other in ["", "{}", "{\"loads\":[]}", "{\"loads\":[{\"id\":1}]}", "sglang:num_running_reqs 1"] {
        assert!(!Sglang.detect(LOADS, other), "{other}");
    }
    assert!(!Sglang.detect("/props", V0_5_23));
    let live = [
        (Metric::RequestsRunning, 33.0),
        (Metric::RequestsWaiting, 5.0 + 7.0 + 3.0),
        (Metric::WaitingGrammar, 3.0),
        (Metric::WaitingPaused, 2.0),
        (Metric::RequestsCap, 512.0),
        (Metric::LoraLoaded, 6.0),
        (Metric::LoraCap, 18.0),
    ];
    let tokens = [(Metric::KvPoolTokens, 120_000.0), (Metric::KvHeldTokens, 30_000.0), (Metric::KvUsage, 25.0)];
    let alone = translate(&Sglang, &[(LOADS, LOADS_0_5_23)]);
    has_values(&alone, &[&live[..], &tokens].concat());
    assert_eq!(fact(&alone, FactKey::Version), Some("0.5.23"));
    let both = translate(&Sglang, &[(METRICS, V0_5_23), (LOADS, LOADS_0_5_23)]);
    let rest = FIGURES_0_5_23.iter().filter(|(metric, _)| !live.iter().any(|l| l.0 == *metric)).copied();
    has_values(&both, &live.into_iter().chain(rest).collect::<Vec<_>>());
    let old = translate(&Sglang, &[(METRICS, V0_4_3), (LOADS, LOADS_0_5_23)]);
    assert_eq!(reading(&old, Metric::KvHeldTokens), Some(Reading::Value(30_000.0)));
    has_values(&translate(&Sglang, &[(METRICS, V0_5_23), (LOADS, "<html>")]), &FIGURES_0_5_23);
}

#[test]
fn assembled_extras_say_what_the_engine_was_started_with() {
    for path in [INFO, OLD_INFO] {
        let batch = extra(&Sglang, path, INFO_0_5_23);
        has_values(
            &batch,
            &[
                (Metric::KvPoolTokens, 100_000.0),
                (Metric::KvBlockSize, 16.0),
                (Metric::RequestsCap, 506.0),
                (Metric::QueueCap, 200.0),
            ],
        );
        assert_eq!((fact(&batch, FactKey::Version), fact(&batch, FactKey::Model)), (Some("0.5.23"), Some("llama")));
        assert!(!format!("{batch:?}").contains("secret"));
    }
    // To 0.4.6 the states of the ranks were no list.
    let old = extra(&Sglang, OLD_INFO, r#"{"max_total_num_tokens":900,"internal_states":{"a":1},"version":"0.4.6"}"#);
    has_values(&old, &[(Metric::KvPoolTokens, 900.0)]);
    has_values(&extra(&Sglang, MODELS, MODELS_0_5_23), &[(Metric::MaxModelLen, 8192.0), (Metric::LoraLoaded, 1.0)]);
    assert_eq!(Sglang.stands_in(OLD_INFO), Some(INFO));
    assert_eq!((Sglang.stands_in(INFO), Sglang.stands_in(MODELS)), (None, None));
    bad_extras_say_nothing(&Sglang);
}

#[test]
fn speculation_transfers_graphs_and_experts_of_an_assembled_decode_server() {
    let batch = metrics(DECODE_0_5_23);
    has_values(
        &batch,
        &[
            (Metric::RequestsRunning, 16.0),
            (Metric::RequestsFailed, 3.0),
            (Metric::SpecAcceptLength, 2.75),
            (Metric::SpecAcceptRate, 43.75),
            (Metric::KvTransfers, 200.0),
            (Metric::KvTransferTime, 6.0),
            (Metric::KvTransferBytes, 128_000.0 * 1_048_576.0),
            (Metric::KvTransfersFailed, 3.0),
            (Metric::CudaGraph, 1.0),
            (Metric::GraphSteps, 900.0),
            (Metric::EagerSteps, 12.0),
            (Metric::ExpertBalanceSum, 650.0),
            (Metric::ExpertBalancePasses, 900.0),
            (Metric::SchedulerIdleTime, 42.5),
        ],
    );
    let none = DECODE_0_5_23.replace("} 2.75", "} 0.0").replace("} 0.4375", "} 0.0");
    let batch = metrics(&none);
    for metric in [Metric::SpecAcceptLength, Metric::SpecAcceptRate] {
        assert_eq!(reading(&batch, metric), Some(Reading::Missing(Why::Unsupported)), "no speculation");
    }
}
