//! The split of pools and slots against worked examples and captured slots; oracles are hand arithmetic.

use super::*;
use crate::model::{Batch, HistogramSample, SourceId, Time};
use crate::store::{Retention, Store};

const NONE: Reading = Reading::Missing(Why::Unsupported);

fn levels(usage_pct: f64, pool: f64, running: f64) -> Levels {
    Levels {
        layout: None,
        reserves_all: false,
        usage_pct: usage_pct.into(),
        pool_tokens: pool.into(),
        block: 16.0.into(),
        held: NONE,
        live: NONE,
        cached: NONE,
        free: NONE,
        reserved: NONE,
        running: running.into(),
        cap: NONE,
        max_model_len: 131_072.0.into(),
        bytes_per_token: 131_072.0.into(),
        copies: NONE,
    }
}

fn split(levels: Levels, mean_length: Reading) -> Kv {
    levels.split(mean_length)
}

const UNKNOWN: Reading = Reading::Missing(Why::NotYet);

fn near(reading: Reading, want: f64, tolerance: f64) {
    let got = reading.value().unwrap();
    assert!((got - want).abs() <= tolerance, "{got} is not {want} ± {tolerance}");
}

/// 64 requests of 1500 tokens in 50 000 blocks of 16: 94 blocks each.
#[test]
fn long_requests_waste_little_and_leave_most_idle() {
    let kv = split(levels(6016.0 / 500.0, 800_000.0, 64.0), UNKNOWN);
    near(kv.held_tokens, 96_256.0, 0.01);
    // The truth is 96 000; the expected tail of 7.5 tokens a request is what can be known.
    near(kv.live_tokens, 95_776.0, 0.01);
    assert_eq!(kv.live_tokens_is, Basis::Estimate);
    near(kv.tail_waste_pct, 0.499, 0.001);
    near(kv.tail_waste_max_pct, 0.997, 0.001);
    let truth = 100.0 * (1.0 - 96_000.0 / 96_256.0);
    assert!(truth <= kv.tail_waste_max_pct.value().unwrap());
    near(kv.idle_pct, 87.968, 0.001);
    near(kv.full_length_requests, 6.1, 0.01);
}

/// 17 tokens in two blocks each: the worst case, and the bound says so.
#[test]
fn the_bound_holds_the_worst_case() {
    let kv = split(levels(128.0 / 500.0, 800_000.0, 64.0), UNKNOWN);
    near(kv.held_tokens, 2048.0, 0.01);
    near(kv.tail_waste_max_pct, 46.875, 0.001);
}

/// The same requests where their lengths are known: 17 in, 1 out. Blocks say nothing of how full the second is.
#[test]
fn lengths_of_short_requests_say_more_than_whole_blocks() {
    let kv = split(levels(128.0 / 500.0, 800_000.0, 64.0), 17.5.into());
    near(kv.live_tokens, 64.0 * 17.5, 0.01);
    assert_eq!((kv.live_tokens_is, kv.live_by_length), (Basis::Estimate, true));
    near(kv.tail_tokens, 64.0 * 14.5, 0.01);
    near(kv.tail_waste_pct, 100.0 * 14.5 / 32.0, 0.01);
    assert!(kv.estimates().any(|figure| figure == Figure::LiveByLength));
    // 15 tokens cannot hold two blocks, and 40 do not fit: they are not like those that run.
    for contradicts in [15.0, 40.0] {
        let kv = split(levels(128.0 / 500.0, 800_000.0, 64.0), contradicts.into());
        near(kv.live_tokens, 64.0 * 24.5, 0.01);
        assert!(!kv.live_by_length && kv.estimates().any(|figure| figure == Figure::Live));
    }
    // Of long requests the last block is little: 1500 tokens are within 0.5 % by blocks.
    assert!(!split(levels(6016.0 / 500.0, 800_000.0, 64.0), 1490.0.into()).live_by_length);
}

#[test]
fn an_idle_pool_is_exact_and_has_no_share_of_nothing() {
    let kv = split(levels(0.0, 800_000.0, 0.0), UNKNOWN);
    assert_eq!((kv.live_tokens, kv.live_tokens_is), (Reading::Value(0.0), Basis::Exact));
    assert_eq!(kv.tail_waste_pct, Reading::Missing(Why::NotYet));
    assert_eq!(kv.idle_pct, Reading::Value(100.0));
}

#[test]
fn without_a_block_size_lengths_stand_in_but_never_above_what_is_held() {
    let mut without = levels(10.0, 100_000.0, 10.0);
    without.block = Reading::Missing(Why::Unsupported);
    assert_eq!(split(without, Reading::Value(576.0)).live_tokens, Reading::Value(5760.0));
    assert_eq!(split(without, Reading::Value(5000.0)).live_tokens, Reading::Value(10_000.0));
    let kv = split(without, UNKNOWN);
    assert_eq!((kv.live_tokens, kv.tail_waste_pct), (UNKNOWN, Reading::Missing(Why::Unsupported)));
}

#[test]
fn blocks_of_one_token_waste_nothing() {
    let mut one = levels(50.0, 1000.0, 7.0);
    one.block = 1.0.into();
    let kv = split(one, UNKNOWN);
    assert_eq!((kv.live_tokens, kv.live_tokens_is), (Reading::Value(500.0), Basis::Exact));
    assert_eq!(kv.tail_waste_pct, Reading::Value(0.0));
}

#[test]
fn a_missing_pool_keeps_its_reason() {
    let mut denied = levels(24.0, 1.0, 64.0);
    denied.pool_tokens = Reading::Missing(Why::Unsupported);
    let kv = split(denied, UNKNOWN);
    assert_eq!(kv.held_tokens, Reading::Missing(Why::Unsupported));
    assert_eq!(kv.idle_pct, Reading::Value(76.0), "usage alone says what is idle");
}

fn scrape(at: u64, finished: f64, queries: f64, hits: f64) -> Batch {
    let subject = Subject::Engine(0);
    let mut batch = Batch::new(SourceId::Engine(0), Time(at), 3500);
    let levels = [
        (Metric::KvUsage, 24.0),
        (Metric::KvPoolTokens, 165_936.0),
        (Metric::KvBlockSize, 16.0),
        (Metric::RequestsRunning, 64.0),
        (Metric::MaxModelLen, 32_768.0),
        (Metric::PrefixQueries, queries),
        (Metric::PrefixHits, hits),
    ];
    for (metric, value) in levels {
        batch.push(subject, metric, value);
    }
    for (metric, length) in [(Metric::PromptLen, 512.0), (Metric::GenerationLen, 128.0)] {
        let edges: [f64; 4] = [100.0, 200.0, 500.0, 1000.0];
        let mut cumulative: Vec<_> = edges.iter().map(|&e| if length <= e { finished } else { 0.0 }).collect();
        cumulative.push(finished);
        let sum = Some(finished * length);
        batch.histograms.push(HistogramSample { sets: 0, subject, metric, edges: edges.into(), cumulative, sum });
    }
    batch
}

#[test]
fn the_store_gives_the_split_of_its_window() {
    let store = Store::new(Retention::HOUR);
    store.push(&scrape(100_000, 1000.0, 5000.0, 4000.0));
    store.push(&scrape(101_000, 1200.0, 5500.0, 4100.0));
    store.push(&scrape(102_000, 1400.0, 6000.0, 4100.0));
    let kv = kv(&store.read(), 0, Window::last(Time(102_000), 10_000), &mut Buffers::default());
    near(kv.held_tokens, 39_824.64, 0.01);
    near(kv.live_tokens, 39_344.64, 0.01);
    near(kv.prefix_hit_pct, 10.0, 1e-4);
    let used = kv.used_length.unwrap();
    // 640 tokens in truth.
    assert_eq!((used.n, used.lo, used.hi), (400, 600.0, Some(1200.0)));
    near(kv.overprovision_x, 32_768.0 / used.tokens, 1e-9);
}

#[test]
fn an_engine_never_scraped_has_reasons_only() {
    let store = Store::new(Retention::HOUR);
    let kv = kv(&store.read(), 3, Window::last(Time(9), 5), &mut Buffers::default());
    for reading in [kv.usage_pct, kv.held_tokens, kv.live_tokens, kv.overprovision_x, kv.prefix_hit_pct] {
        assert_eq!(reading, Reading::Missing(Why::NotYet));
    }
}

/// Of the 17-token requests, counted: 46.9 % of what they hold is empty.
#[test]
fn what_the_engine_counts_wins_and_is_exact() {
    let counted = Levels { live: 1088.0.into(), ..levels(128.0 / 500.0, 800_000.0, 64.0) };
    let kv = split(counted, UNKNOWN);
    assert_eq!((kv.live_tokens, kv.live_tokens_is), (Reading::Value(1088.0), Basis::Exact));
    near(kv.tail_tokens, 960.0, 0.01);
    near(kv.tail_waste_pct, 46.875, 0.001);
    assert_eq!(kv.tail_waste_max_pct, kv.tail_waste_pct);
    near(kv.bytes(kv.tail_tokens), 125_829_120.0, 1.0);
}

/// 64 requests of 1500 tokens of which 1024 are one system prompt: 64 + 64 · 30 blocks of 16.
#[test]
fn a_shared_prompt_is_no_negative_waste() {
    let shared = levels(1984.0 / 500.0, 800_000.0, 64.0);
    let estimate = split(shared, Reading::Value(1500.0));
    near(estimate.sharing_x, 96_000.0 / 31_744.0, 1e-9);
    assert_eq!(estimate.sharing_is, Basis::Estimate);
    let counted = split(Levels { live: 96_000.0.into(), ..shared }, UNKNOWN);
    near(counted.sharing_x, 3.02, 0.01);
    assert_eq!((counted.tail_tokens, counted.sharing_is), (Reading::Value(0.0), Basis::Exact));
    near(counted.live_tokens, 31_744.0, 0.01);
    assert!(counted.estimates().any(|figure| figure == Figure::LiveShared));
    let alone = split(levels(6016.0 / 500.0, 800_000.0, 64.0), Reading::Value(1400.0));
    assert_eq!(alone.sharing_x, Reading::Value(1.0), "shorter than what they hold is no sharing");
}

/// Long requests finished, short ones run, and no prompt was found in the cache: nothing is shared.
#[test]
fn what_the_cache_did_not_have_is_not_shared() {
    let of = |basis, hits: Reading| at_most_by_hits(2.4.into(), basis, hits);
    assert_eq!(of(Basis::Estimate, 0.0.into()), Reading::Value(1.0));
    assert_eq!(of(Basis::Estimate, 50.0.into()), Reading::Value(2.0));
    assert_eq!(of(Basis::Estimate, 90.0.into()), Reading::Value(2.4));
    assert_eq!(of(Basis::Estimate, UNKNOWN), Reading::Value(1.0));
    assert_eq!(of(Basis::Estimate, NONE), NONE, "an engine that does not say");
    assert_eq!(of(Basis::Exact, 0.0.into()), Reading::Value(2.4));
}

/// Until 105 s every prompt is in the cache and long, as those finished; from then on short ones, none of which is.
#[test]
fn sharing_ends_with_the_traffic_that_shared() {
    let store = Store::new(Retention::HOUR);
    let looked_up = |second: u64| 5_000.0 * second as f64;
    for second in 90..=115_u64 {
        let found = looked_up(second.min(105));
        let mut scraped = scrape(second * 1_000, 100.0 * second as f64, looked_up(second), found);
        scraped.push(Subject::Engine(0), Metric::KvHeldTokens, 9_216.0);
        store.push(&scraped);
    }
    let data = store.read();
    let at = |second: u64| kv(&data, 0, Window::last(Time(second * 1_000), 10_000), &mut Buffers::default());
    // 64 requests of 576 tokens, half of their output generated, hold 9216.
    near(at(105).sharing_x, 4.0, 0.001);
    assert!(at(108).prefix_hit_pct.value().unwrap() > 60.0, "most of the window is of before");
    assert_eq!(at(108).sharing_x, Reading::Value(1.0));
}

/// `-c 32768 -np 4`, 128 KiB a token; three of four slots hold 900, 2100 and 5000 tokens.
#[test]
fn static_slots_split_into_idle_slots_and_tails_of_busy_ones() {
    let slots = Levels {
        layout: Some(Layout::Slots),
        usage_pct: NONE,
        block: NONE,
        live: 8000.0.into(),
        cap: 4.0.into(),
        ..levels(0.0, 32_768.0, 3.0)
    };
    let kv = split(slots, UNKNOWN);
    let gib = |tokens| kv.bytes(tokens).map(|bytes| bytes / 1_073_741_824.0);
    near(gib(kv.pool_tokens), 4.0, 1e-9);
    near(gib(kv.live_tokens), 0.977, 0.001);
    assert_eq!((kv.held_tokens, kv.live_tokens_is), (Reading::Value(24_576.0), Basis::Exact));
    assert_eq!(kv.idle_slots, Reading::Value(1.0));
    near(kv.idle_pct, 25.0, 1e-9);
    near(kv.tail_tokens.map(|tail| tail / 327.68), 50.6, 0.05);
    near(kv.tail_waste_pct, 67.4, 0.05);
    assert_eq!(kv.sharing_x, NONE);
}

/// 64 · 2048 in slots, mean length 350: what the paper calls Orca-Max.
#[test]
fn a_static_batch_holds_mostly_nothing() {
    let mut batch = levels(0.0, 131_072.0, 64.0);
    (batch.layout, batch.usage_pct, batch.cap) = (Some(Layout::Slots), NONE, 64.0.into());
    let kv = split(Levels { live: 22_400.0.into(), ..batch }, UNKNOWN);
    near(kv.tail_waste_pct, 100.0 - 17.09, 0.01);
    near(kv.idle_pct, 0.0, 1e-9);
}

/// `load16-slots-2.txt` of llama.cpp 11434: 69, 70, 69 and 71 tokens in slots of 2048, by jq. One slot
/// ends and keeps its 71 tokens.
#[test]
fn captured_slots_of_llama_cpp() {
    let mut slots = levels(0.0, 8192.0, 4.0);
    (slots.layout, slots.usage_pct, slots.block, slots.cap) = (Some(Layout::Slots), NONE, NONE, 4.0.into());
    let busy = split(Levels { live: 279.0.into(), cached: 0.0.into(), ..slots }, UNKNOWN);
    near(busy.tail_waste_pct, 96.594, 0.001);
    assert_eq!((busy.idle_slots, busy.free_tokens, busy.idle_tokens), (0.0.into(), 0.0.into(), 0.0.into()));
    let ended = Levels { live: 208.0.into(), cached: 71.0.into(), running: 3.0.into(), ..slots };
    let ended = split(ended, UNKNOWN);
    assert_eq!((ended.idle_slots, ended.cached_tokens), (1.0.into(), 71.0.into()));
    assert_eq!((ended.free_tokens, ended.tail_tokens), (1977.0.into(), 5936.0.into()));
    let all = [ended.live_tokens, ended.tail_tokens, ended.cached_tokens, ended.free_tokens];
    near(Reading::new(all.iter().filter_map(|part| part.value()).sum()), 8192.0, 1e-9);
}

#[test]
fn cached_free_and_reserved_are_kept_apart() {
    let sglang = Levels {
        held: 30_000.0.into(),
        cached: 50_000.0.into(),
        free: 20_000.0.into(),
        ..levels(31.0, 100_000.0, 50.0)
    };
    let kv = split(sglang, UNKNOWN);
    assert_eq!((kv.cached_tokens, kv.free_tokens), (50_000.0.into(), 20_000.0.into()));
    assert_eq!((kv.idle_tokens, kv.usage_pct), (70_000.0.into(), 31.0.into()));
    let tgi =
        Levels { held: 30_000.0.into(), reserved: 45_000.0.into(), usage_pct: NONE, ..levels(0.0, 100_000.0, 50.0) };
    let kv = split(tgi, UNKNOWN);
    near(kv.usage_pct, 30.0, 1e-9);
    near(kv.idle_pct, 25.0, 1e-9);
    assert_eq!((kv.cached_tokens, kv.free_tokens), (NONE, NONE), "which of the two it is, nobody says");
    let one_known = split(Levels { free: 20_000.0.into(), cached: NONE, ..sglang }, UNKNOWN);
    assert_eq!(one_known.cached_tokens, 50_000.0.into());
}

/// TGI: 50 requests hold 600 + 1400 tokens each from admission on, and have 600 + 200 on average.
#[test]
fn what_is_held_from_admission_on_is_reserved_and_no_tail() {
    let tgi = Levels {
        reserves_all: true,
        held: 100_000.0.into(),
        block: NONE,
        usage_pct: NONE,
        ..levels(0.0, 160_000.0, 50.0)
    };
    let kv = split(tgi, Reading::Value(800.0));
    assert_eq!((kv.live_tokens, kv.live_tokens_is), (40_000.0.into(), Basis::Estimate));
    assert_eq!((kv.reserved_tokens, kv.reserved_is), (60_000.0.into(), Basis::Estimate));
    assert_eq!((kv.tail_tokens, kv.idle_tokens), (NONE, 60_000.0.into()));
    assert!(kv.reserved_in_held && kv.estimates().any(|figure| figure == Figure::LiveByLength));
    let counted = split(Levels { reserved: 5.0.into(), ..tgi }, Reading::Value(800.0));
    assert_eq!((counted.reserved_tokens, counted.reserved_in_held), (5.0.into(), false));
}

#[test]
fn work_done_again_is_counted_or_what_preempted_requests_lose() {
    let mean = Reading::Value(600.0);
    assert_eq!(recomputed(900.0.into(), 2.0.into(), mean), (900.0.into(), Basis::Exact));
    assert_eq!(recomputed(NONE, 2.0.into(), mean), (1200.0.into(), Basis::Estimate));
    assert_eq!(recomputed(NONE, 0.0.into(), UNKNOWN), (0.0.into(), Basis::Exact));
    assert_eq!(recomputed(NONE, NONE, mean).0, NONE);
}

/// 16 GPUs for 8 KV heads: each head is stored twice.
#[test]
fn copies_are_bytes_that_hold_nothing_new() {
    let kv = split(Levels { copies: 2.0.into(), ..levels(12.5, 800_000.0, 64.0) }, UNKNOWN);
    near(kv.copied_bytes(kv.held_tokens), 100_000.0 * 131_072.0 / 2.0, 1.0);
    let single = split(Levels { copies: 1.0.into(), ..levels(12.5, 800_000.0, 64.0) }, UNKNOWN);
    assert_eq!(single.copied_bytes(single.held_tokens), Reading::Value(0.0));
}

#[test]
fn each_estimate_says_what_would_make_it_exact() {
    let mut kv = split(levels(12.5, 800_000.0, 64.0), Reading::Value(1500.0));
    (kv.recomputed_per_s, kv.recomputed_is) = (100.0.into(), Basis::Estimate);
    (kv.overprovision_x, kv.sharing_x) = (20.0.into(), 3.0.into());
    let figures: Vec<_> = kv.estimates().collect();
    let all = [Figure::Live, Figure::Cached, Figure::Recompute, Figure::Sharing, Figure::Overprovision];
    assert_eq!(figures, all);
    assert!(figures.iter().all(|f| f.to_be_exact("vllm").len() > 30 && f.assumes().len() > 20));
    assert!(Figure::Live.to_be_exact("vllm").contains("57336"));
    let counted = Levels { live: 1.0.into(), cached: 1.0.into(), ..levels(12.5, 800_000.0, 64.0) };
    assert_eq!(split(counted, UNKNOWN).estimates().count(), 0);
}
