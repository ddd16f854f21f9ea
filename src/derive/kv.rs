//! What the KV pool of a paged engine is used for, split so that no two kinds of waste are mixed.
//!
//! With T tokens in the pool, A in blocks that live requests hold, L live in them, blocks of B tokens
//! and R running requests:
//!
//! | figure | formula | basis |
//! | --- | --- | --- |
//! | held A | usage · T | exact (blocks are whole) |
//! | tail waste | R · (B − 1)/2 ÷ A | estimate: a last block is half empty on average |
//! | its bound | R · (B − 1) ÷ A | certain: a last block holds at least one token |
//! | live L | A − R · (B − 1)/2 | estimate; exact when nothing is held or B = 1 |
//! | live L, B not known | R · (mean prompt + ½ mean output), at most A | estimate |
//! | idle | (T − A) ÷ T | exact; cached blocks nobody uses are idle too |
//! | over-provision | longest context admitted ÷ length that requests really used | estimate, bounded |
//! | prefix hits | Δhits ÷ Δlookups | exact |
//!
//! On the H200 capture the first form of L lies within 1 % of the clients' own count wherever the load
//! is steady, the second is off by up to 10 %. Tail waste acts on the block size, idle is headroom, and
//! over-provision caps admission without holding blocks: three figures, never one. It must not know
//! how they are drawn.

use crate::model::{Metric, Reading, Subject, Why};
use crate::store::{Data, HistogramWindow, Window};

use super::quantile::{highest_allowed, quantile};

/// How a figure was come by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// Measured, or follows from what was.
    Exact,
    /// Rests on an assumption, which the module's table names.
    Estimate,
}

impl Basis {
    /// The name in the snapshot (`live_tokens_is`).
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Estimate => "estimate",
        }
    }
}

/// Tokens (prompt and output) that requests of the window really used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UsedLength {
    /// Which quantile: the highest of 0.99, 0.95 and 0.5 that `n` allows.
    pub q: f64,
    /// Best estimate, tokens.
    pub tokens: f64,
    /// Certainly not less.
    pub lo: f64,
    /// Certainly not more, where anything bounds it.
    pub hi: Option<f64>,
    /// Finished requests it rests on.
    pub n: u64,
}

/// The split of one engine's KV pool. Names are those of the snapshot's contract.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kv {
    /// Share of the pool in blocks held by live requests, %.
    pub usage_pct: Reading,
    /// Tokens that fit into the pool.
    pub pool_tokens: Reading,
    /// Tokens in held blocks, empty places included.
    pub held_tokens: Reading,
    /// Tokens that hold state.
    pub live_tokens: Reading,
    /// How `live_tokens` was come by.
    pub live_tokens_is: Basis,
    /// Expected share of the held blocks that is empty because blocks are whole, %.
    pub tail_waste_pct: Reading,
    /// The most that share can be, %.
    pub tail_waste_max_pct: Reading,
    /// Share of the pool no live request holds, %.
    pub idle_pct: Reading,
    /// Longest context the engine admits, tokens.
    pub max_model_len: Reading,
    /// Requests of the longest admitted context that fit into the pool at once.
    pub full_length_requests: Reading,
    /// What requests really used; `None` below 6 finished requests.
    pub used_length: Option<UsedLength>,
    /// `max_model_len` ÷ `used_length`.
    pub overprovision_x: Reading,
    /// Share of looked-up prompt tokens that the prefix cache had, %.
    pub prefix_hit_pct: Reading,
}

/// Reused buffers.
#[derive(Debug, Default)]
pub struct Buffers {
    prompt: HistogramWindow,
    output: HistogramWindow,
}

/// Splits the pool of `engine`: levels are the newest at the window's end, lengths and hits are of the
/// window.
pub fn kv(data: &Data, engine: u8, window: Window, buffers: &mut Buffers) -> Kv {
    let subject = Subject::Engine(engine);
    let latest = |metric| data.latest(subject, metric, window.end).reading;
    data.histogram_window(subject, Metric::PromptLen, window, &mut buffers.prompt);
    data.histogram_window(subject, Metric::GenerationLen, window, &mut buffers.output);
    let levels = Levels {
        usage_pct: latest(Metric::KvUsage),
        pool_tokens: latest(Metric::KvPoolTokens),
        block: latest(Metric::KvBlockSize),
        running: latest(Metric::RequestsRunning),
        max_model_len: latest(Metric::MaxModelLen),
    };
    let mut kv = split(levels, mean_length(&buffers.prompt, &buffers.output));
    kv.used_length = used_length(&buffers.prompt, &buffers.output, kv.max_model_len.value());
    kv.overprovision_x = both(levels.max_model_len, used_tokens(kv.used_length), |max, used| max / used);
    let hits = data.mean(subject, Metric::PrefixHits, window);
    let queries = data.mean(subject, Metric::PrefixQueries, window);
    kv.prefix_hit_pct = share(hits, queries);
    kv
}

/// Newest levels of an engine.
#[derive(Clone, Copy)]
struct Levels {
    usage_pct: Reading,
    pool_tokens: Reading,
    block: Reading,
    running: Reading,
    max_model_len: Reading,
}

/// Everything that follows from levels alone, and the mean length of a running request.
fn split(levels: Levels, mean_length: Reading) -> Kv {
    let Levels { usage_pct, pool_tokens, block, running, max_model_len } = levels;
    let held = both(usage_pct, pool_tokens, |usage, pool| usage / 100.0 * pool);
    // A sequence's last block holds 1 to B tokens, so 0 to B − 1 places are empty.
    let most_empty = both(running, block, |running, block| running * (block - 1.0).max(0.0));
    let empty = most_empty.map(|most| most / 2.0);
    let (live_tokens, live_tokens_is) = match (held, most_empty) {
        (Reading::Value(held), _) if held <= 0.0 => (Reading::Value(0.0), Basis::Exact),
        (Reading::Value(held), Reading::Value(most)) if most <= 0.0 => (Reading::new(held), Basis::Exact),
        (_, Reading::Missing(_)) => {
            let sum = both(running, mean_length, |running, mean| running * mean);
            (both(sum, held, f64::min), Basis::Estimate)
        }
        _ => (both(held, empty, |held, empty| (held - empty).max(0.0)), Basis::Estimate),
    };
    Kv {
        usage_pct,
        pool_tokens,
        held_tokens: held,
        live_tokens,
        live_tokens_is,
        tail_waste_pct: share(empty, held),
        tail_waste_max_pct: share(most_empty, held),
        idle_pct: usage_pct.map(|usage| 100.0 - usage),
        max_model_len,
        full_length_requests: both(pool_tokens, max_model_len, |pool, max| pool / max),
        used_length: None,
        overprovision_x: Reading::Missing(Why::NotYet),
        prefix_hit_pct: Reading::Missing(Why::NotYet),
    }
}

/// `f` of two readings, or the first reason that one is missing.
fn both(a: Reading, b: Reading, f: impl FnOnce(f64, f64) -> f64) -> Reading {
    match (a, b) {
        (Reading::Value(a), Reading::Value(b)) => Reading::new(f(a, b)),
        (Reading::Missing(why), _) | (_, Reading::Missing(why)) => Reading::Missing(why),
    }
}

/// `part` of `whole` in %, at most 100; of nothing there is no share yet.
fn share(part: Reading, whole: Reading) -> Reading {
    match whole {
        Reading::Value(whole) if whole <= 0.0 => Reading::Missing(Why::NotYet),
        _ => both(part, whole, |part, whole| (part / whole * 100.0).clamp(0.0, 100.0)),
    }
}

/// Mean length of a running request: its prompt and, on average, half of its output.
fn mean_length(prompt: &HistogramWindow, output: &HistogramWindow) -> Reading {
    let mean = |window: &HistogramWindow| window.sum.filter(|_| window.n > 0).map(|sum| sum / window.n as f64);
    let length = mean(prompt).zip(mean(output)).map(|(prompt, output)| prompt + output / 2.0);
    length.map_or(Reading::Missing(Why::NotYet), Reading::new)
}

fn used_tokens(used: Option<UsedLength>) -> Reading {
    used.filter(|used| used.tokens > 0.0).map_or(Reading::Missing(Why::NotYet), |used| Reading::new(used.tokens))
}

/// Quantile of prompt + output from their separate histograms.
///
/// Each histogram alone says nothing about which prompt went with which output, so the sum is bounded:
/// it is at least the quantile of the one plus the smallest of the other, and at most (1 − q) of the
/// requests can exceed the sum of the two quantiles at 1 − (1 − q)/2.
fn used_length(prompt: &HistogramWindow, output: &HistogramWindow, most: Option<f64>) -> Option<UsedLength> {
    let n = prompt.n.min(output.n);
    let q = highest_allowed(n)?;
    let (p, o) = (quantile(prompt, q)?, quantile(output, q)?);
    let lo = (p.lo + smallest(output)).max(o.lo + smallest(prompt));
    let wide = 1.0 - (1.0 - q) / 2.0;
    let hi = quantile(prompt, wide)?.hi.zip(quantile(output, wide)?.hi).map(|(p, o)| p + o);
    // Bucket edges may lie above what the engine admits at all.
    let hi = [hi, most].into_iter().flatten().reduce(f64::min);
    let tokens = (p.value + o.value).min(hi.unwrap_or(f64::INFINITY)).max(lo);
    Some(UsedLength { q, tokens, lo, hi, n })
}

/// Lower edge of the lowest bucket that holds anything.
fn smallest(window: &HistogramWindow) -> f64 {
    let first = window.counts.iter().position(|&count| count > 0).unwrap_or(0);
    first.checked_sub(1).and_then(|below| window.edges.get(below)).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Batch, HistogramSample, SourceId, Time};
    use crate::store::{Retention, Store};

    fn levels(usage_pct: f64, pool: f64, running: f64) -> Levels {
        Levels {
            usage_pct: usage_pct.into(),
            pool_tokens: pool.into(),
            block: 16.0.into(),
            running: running.into(),
            max_model_len: 131_072.0.into(),
        }
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

    fn lengths(edges: &[f64], values: &[f64]) -> HistogramWindow {
        let mut counts = vec![0; edges.len() + 1];
        for v in values {
            counts[edges.partition_point(|e| e < v)] += 1;
        }
        let (n, sum) = (values.len() as u64, Some(values.iter().sum()));
        HistogramWindow { edges: edges.into(), counts, n, sum, covered: None, gaps: false }
    }

    #[test]
    fn the_used_length_bounds_the_true_quantile_of_the_sum() {
        const EDGES: [f64; 9] = [10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0];
        for spread in 1..40_u32 {
            let prompt: Vec<_> = (0..500_u32).map(|i| f64::from(30 + i * spread % 1900)).collect();
            let output: Vec<_> = (0..500_u32).map(|i| f64::from(1 + (i * i * spread) % 400)).collect();
            let mut sums: Vec<_> = prompt.iter().zip(&output).map(|(p, o)| p + o).collect();
            sums.sort_by(f64::total_cmp);
            let truth = sums[494];
            let used = used_length(&lengths(&EDGES, &prompt), &lengths(&EDGES, &output), None).unwrap();
            assert!((used.q - 0.99).abs() < 1e-9);
            assert!(used.lo <= truth && truth <= used.hi.unwrap(), "{truth} {used:?}");
            assert!(used.lo <= used.tokens && used.tokens <= used.hi.unwrap());
        }
    }

    #[test]
    fn few_requests_get_a_lower_quantile_or_none() {
        let of = |n| used_length(&lengths(&[100.0], &vec![50.0; n]), &lengths(&[100.0], &vec![50.0; n]), Some(150.0));
        assert_eq!(of(5), None);
        assert_eq!(of(6).map(|u| (u.q, u.n)), Some((0.5, 6)));
        assert_eq!(of(72).map(|u| u.q), Some(0.95));
        let most = of(368).unwrap();
        assert_eq!((most.q, most.hi), (0.99, Some(150.0)), "not above the longest context");
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
}
