//! An engine's KV memory in a snapshot: each kind of waste by itself, with what it rests on.

use serde::Serialize;

use crate::derive::kv::{self, Basis, Buffers};
use crate::derive::lives::Lives;
use crate::model::{FactKey, Metric, Reading, Subject, Why};
use crate::store::{Data, Window};
use crate::ui::panes::notice::kind;

use super::coverage::Coverage;
use super::gaps::{Gaps, short};

#[derive(Clone, Debug, Serialize)]
pub(super) struct Kv {
    usage_pct: Option<f64>,
    pool_tokens: Option<u64>,
    held_tokens: Option<u64>,
    live_tokens: Option<u64>,
    live_tokens_is: Option<&'static str>,
    tail_waste_pct: Option<f64>,
    idle_pct: Option<f64>,
    max_model_len: Option<u64>,
    overprovision_x: Option<f64>,
    prefix_hit_pct: Option<f64>,
    /// Lookups that preempted requests repeat, at most; and what has to be known to read the hits, empty where nothing.
    prefix_repeated_max_pct: Option<f64>,
    prefix_note: String,
    block_tokens: Option<u64>,
    /// `paged`, `slots` or `unified`.
    layout: Option<&'static str>,
    /// Empty places in what requests hold, and the most that they can be of it.
    tail_tokens: Option<u64>,
    tail_waste_max_pct: Option<f64>,
    /// Kept for reuse, held by nobody; holding nothing; set aside; cached and free together.
    cached_tokens: Option<u64>,
    free_tokens: Option<u64>,
    reserved_tokens: Option<u64>,
    reserved_is: Option<&'static str>,
    idle_tokens: Option<u64>,
    slots: Option<u64>,
    idle_slots: Option<u64>,
    /// Lengths of running requests together ÷ what they hold, not below 1.
    sharing_x: Option<f64>,
    sharing_is: Option<&'static str>,
    recomputed_tokens_per_s: Option<f64>,
    recomputed_is: Option<&'static str>,
    /// Of one token over all GPUs, copies included, and what that was worked out from.
    bytes_per_token: Option<u64>,
    bytes_per_token_from: Option<String>,
    /// GPUs that store the same KV.
    copies: Option<u64>,
    pool_bytes: Option<u64>,
    held_bytes: Option<u64>,
    tail_bytes: Option<u64>,
    /// Of what is held, what repeats another GPU's.
    copied_bytes: Option<u64>,
    /// Prompt and output of requests that finished in the window.
    used_length: Option<Length>,
    used_mean_tokens: Option<f64>,
    /// How many requests of the longest and of the mean length fit into the pool.
    full_length_requests: Option<f64>,
    mean_length_requests: Option<f64>,
    estimates: Vec<Estimate>,
    /// Seconds of the window that each figure over it rests on.
    measured_s: Coverage,
}

/// A quantile of the length of requests.
#[derive(Clone, Debug, Serialize)]
struct Length {
    quantile: f64,
    tokens: f64,
    lo: f64,
    hi: Option<f64>,
    n: u64,
    /// Restarts of the server between these requests, and whether those from before one were left out.
    restarts: u32,
    since_restart: bool,
}

/// A figure that is not exact: what it assumes, and what would make it exact.
#[derive(Clone, Debug, Serialize)]
struct Estimate {
    figure: &'static str,
    assumes: &'static str,
    exact_with: &'static str,
}

/// Reads the KV memory of an engine; `prefix` is its key path.
pub(super) fn kv(data: &Data, engine: u8, window: Window, prefix: &str, gaps: &mut Gaps) -> Kv {
    gaps.enter(format!("{prefix}kv."));
    let kv = kv::kv(data, engine, window, &mut Buffers::default());
    let basis = |key: &str, value: Reading, basis: Basis, gaps: &mut Gaps| {
        if let Some(why) = value.why() {
            gaps.row(key, why, None);
        }
        value.value().map(|_| basis.name())
    };
    let kind = kind(data, engine, window.end);
    Kv {
        usage_pct: gaps.float_of("usage_pct", Metric::KvUsage, kv.usage_pct),
        pool_tokens: gaps.whole_of("pool_tokens", Metric::KvPoolTokens, kv.pool_tokens),
        held_tokens: gaps.whole_of("held_tokens", Metric::KvHeldTokens, kv.held_tokens),
        live_tokens: gaps.whole_of("live_tokens", Metric::KvLiveTokens, kv.live_tokens),
        live_tokens_is: basis("live_tokens_is", kv.live_tokens, kv.live_tokens_is, gaps),
        tail_waste_pct: gaps.float_of("tail_waste_pct", Metric::KvLiveTokens, kv.tail_waste_pct),
        idle_pct: gaps.float_of("idle_pct", Metric::KvUsage, kv.idle_pct),
        max_model_len: gaps.whole_of("max_model_len", Metric::MaxModelLen, kv.max_model_len),
        overprovision_x: gaps.float_of("overprovision_x", Metric::MaxModelLen, kv.overprovision_x),
        prefix_hit_pct: gaps.float_of("prefix_hit_pct", Metric::PrefixHits, kv.prefix_hit_pct),
        prefix_repeated_max_pct: gaps.float_of("prefix_repeated_max_pct", Metric::Preemptions, kv.repeated_max_pct),
        prefix_note: kv.prefix_note.map(|note| note.to_string()).unwrap_or_default(),
        block_tokens: gaps.whole_of("block_tokens", Metric::KvBlockSize, kv.block_tokens),
        layout: layout(&kv, gaps),
        tail_tokens: gaps.whole_of("tail_tokens", Metric::KvLiveTokens, kv.tail_tokens),
        tail_waste_max_pct: gaps.float_of("tail_waste_max_pct", Metric::KvLiveTokens, kv.tail_waste_max_pct),
        cached_tokens: gaps.whole_of("cached_tokens", Metric::KvCachedTokens, kv.cached_tokens),
        free_tokens: gaps.whole_of("free_tokens", Metric::KvFreeTokens, kv.free_tokens),
        reserved_tokens: gaps.whole_of("reserved_tokens", Metric::KvReservedTokens, kv.reserved_tokens),
        reserved_is: basis("reserved_is", kv.reserved_tokens, kv.reserved_is, gaps),
        idle_tokens: gaps.whole_of("idle_tokens", Metric::KvUsage, kv.idle_tokens),
        slots: slots("slots", &kv, kv.slots, gaps),
        idle_slots: slots("idle_slots", &kv, kv.idle_slots, gaps),
        sharing_x: gaps.float_of("sharing_x", Metric::KvLiveTokens, kv.sharing_x),
        sharing_is: basis("sharing_is", kv.sharing_x, kv.sharing_is, gaps),
        recomputed_tokens_per_s: gaps.float_of("recomputed_tokens_per_s", Metric::Preemptions, kv.recomputed_per_s),
        recomputed_is: basis("recomputed_is", kv.recomputed_per_s, kv.recomputed_is, gaps),
        bytes_per_token: gaps.whole_of("bytes_per_token", Metric::KvBytesPerToken, kv.bytes_per_token),
        bytes_per_token_from: bytes_from(data, engine, &kv, window, gaps),
        copies: gaps.whole_of("copies", Metric::KvCopies, kv.copies),
        pool_bytes: gaps.whole_of("pool_bytes", Metric::KvBytesPerToken, kv.bytes(kv.pool_tokens)),
        held_bytes: gaps.whole_of("held_bytes", Metric::KvBytesPerToken, kv.bytes(kv.held_tokens)),
        tail_bytes: gaps.whole_of("tail_bytes", Metric::KvBytesPerToken, kv.bytes(kv.tail_tokens)),
        copied_bytes: gaps.whole_of("copied_bytes", Metric::KvCopies, kv.copied_bytes(kv.held_tokens)),
        used_length: used_length(&kv, gaps),
        used_mean_tokens: gaps.float_of("used_mean_tokens", Metric::PromptLen, kv.used_mean),
        full_length_requests: gaps.float_of("full_length_requests", Metric::MaxModelLen, kv.full_length_requests),
        mean_length_requests: gaps.float_of("mean_length_requests", Metric::PromptLen, kv.mean_length_requests),
        estimates: kv
            .estimates()
            .map(|f| Estimate { figure: f.name(), assumes: f.assumes(), exact_with: f.to_be_exact(kind) })
            .collect(),
        measured_s: measured(data, engine, &kv, window),
    }
}

fn measured(data: &Data, engine: u8, kv: &kv::Kv, window: Window) -> Coverage {
    let recomputed = match kv.recomputed_is {
        Basis::Exact if data.series(Subject::Engine(engine), Metric::RecomputedTokens).is_some() => {
            Metric::RecomputedTokens
        }
        Basis::Exact | Basis::Estimate => Metric::Preemptions,
    };
    let figures = [
        ("prefix_hit_pct", Metric::PrefixQueries),
        ("prefix_repeated_max_pct", Metric::PrefixQueries),
        ("recomputed_tokens_per_s", recomputed),
    ];
    let mut measured = Coverage::of(data, Subject::Engine(engine), window, &figures);
    for name in ["used_length", "used_mean_tokens"] {
        measured.note(name, kv.used_ms);
    }
    measured
}

fn layout(kv: &kv::Kv, gaps: &mut Gaps) -> Option<&'static str> {
    if kv.layout.is_none() {
        gaps.row("layout", kv.usage_pct.why().unwrap_or(Why::Unsupported), None);
    }
    kv.layout.map(kv::Layout::name)
}

/// Only some engines have slots at all.
fn slots(key: &str, kv: &kv::Kv, reading: Reading, gaps: &mut Gaps) -> Option<u64> {
    if kv.layout == Some(kv::Layout::Paged) {
        gaps.row(key, Why::Unsupported, Some("it gives KV memory out in blocks, not in slots".to_owned()));
        return None;
    }
    gaps.whole_of(key, Metric::KvPoolTokens, reading)
}

fn bytes_from(data: &Data, engine: u8, kv: &kv::Kv, window: Window, gaps: &mut Gaps) -> Option<String> {
    let from = data.fact(Subject::Engine(engine), FactKey::KvBytesSource, window.end).map(str::to_owned);
    if from.is_none() {
        gaps.row("bytes_per_token_from", kv.bytes_per_token.why().unwrap_or(Why::Unsupported), None);
    }
    from
}

fn used_length(kv: &kv::Kv, gaps: &mut Gaps) -> Option<Length> {
    let length = kv.used_length;
    if length.is_none() {
        let why = kv.used_mean.why().unwrap_or(Why::NotYet);
        let few = (why == Why::NotYet).then(|| "fewer than 6 requests finished".to_owned());
        gaps.row("used_length", why, few);
    }
    let Lives { restarts, since_restart } = kv.used_lives;
    length.map(|l| Length {
        quantile: l.q,
        tokens: short(l.tokens),
        lo: short(l.lo),
        hi: l.hi.map(short),
        n: l.n,
        restarts,
        since_restart,
    })
}
