//! What an engine's KV memory is used for, split so that no two kinds of waste are mixed.
//!
//! With T tokens in the pool, A that live requests hold, blocks of B tokens and R running requests. What
//! the engine counts itself comes first; the formulas stand in where it does not:
//!
//! | figure | formula | basis |
//! | --- | --- | --- |
//! | held A | usage · T; static slots: R · T ÷ slots | exact (blocks and slots are whole) |
//! | live L | counted; else A − R · (B − 1)/2 | exact; estimate: a last block is half empty on average |
//! | live L, B not known | R · (mean prompt + ½ mean output), at most A | estimate |
//! | live L, short requests | the same, where blocks leave more than 10 % of A open and it is within its bound | estimate |
//! | tail waste | (A − L) ÷ A, not below 0 | as L |
//! | its bound | R · (B − 1) ÷ A | certain: a last block holds at least one token |
//! | cached C, free F | counted; one of them also as T − A − reserved − the other | exact |
//! | reserved | counted: set aside for what running requests may still generate | exact |
//! | reserved, by TGI and LoRAX | A − L: they hold prompt and longest output from admission on | estimate |
//! | idle | (T − A − reserved) ÷ T: C and F together | exact |
//! | idle slots | slots − R | exact |
//! | sharing × | counted L ÷ A, else R · (mean prompt + ½ mean output) ÷ A, at most 1 ÷ (1 − prefix hits), of the window or its last quarter; not below 1 | exact; estimate |
//! | recomputed tokens/s | counted; else preemptions/s · (mean prompt + ½ mean output) | exact; estimate |
//! | copies | GPUs that store the same KV; 1 − 1/copies of the bytes hold nothing new | exact |
//! | over-provision | longest context admitted ÷ length that requests really used | estimate, bounded |
//! | prefix hits | Δhits ÷ Δlookups | exact |
//! | repeated lookups | (Δlookups − Δprompt tokens) ÷ Δlookups, while requests are preempted | at most |
//!
//! On the H200 capture the first form of L lies within 1 % of the clients' own count wherever the load
//! is steady, the second is off by up to 10 %. Requests that share a prefix share its blocks, so the sum
//! of their lengths may exceed A: then the tail is 0 and the excess is the sharing. Tail waste acts on the block size (or the
//! slots' size), idle is headroom, and over-provision of a paged pool caps admission without holding
//! blocks: never one figure. This module must not know how they are drawn.

mod basis;
mod lengths;
mod prefix;

use crate::model::{FactKey, Metric, Reading, Subject, Time, Why};
use crate::store::{Data, HistogramWindow, Window};

use super::coverage::partial_scrapes;
use super::exposed::{both, empty, level, or, rate};
use super::lives::{self, Lives};
pub use basis::{Basis, Figure};
pub use lengths::UsedLength;
pub use prefix::{PrefixNote, hits_are_repeated};

/// How KV memory is given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// In blocks, as requests grow.
    Paged,
    /// Each slot has its own share, used or not.
    Slots,
    /// Slots take from one pool.
    Unified,
}

impl Layout {
    /// The layout that the engine's fact names.
    pub fn of(data: &Data, engine: u8, at: Time) -> Option<Self> {
        match data.fact(Subject::Engine(engine), FactKey::KvLayout, at)? {
            "paged" => Some(Self::Paged),
            "slots" => Some(Self::Slots),
            "unified" => Some(Self::Unified),
            _ => None,
        }
    }

    /// The name in the snapshot.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Paged => "paged",
            Self::Slots => "slots",
            Self::Unified => "unified",
        }
    }
}

/// The split of one engine's KV pool. Names are those of the snapshot's contract.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kv {
    /// How the memory is given out, where the engine says so.
    pub layout: Option<Layout>,
    /// Share of the pool held by live requests, %.
    pub usage_pct: Reading,
    /// Tokens that fit into the pool.
    pub pool_tokens: Reading,
    /// Tokens in held blocks or slots, empty places included.
    pub held_tokens: Reading,
    /// Tokens that hold state.
    pub live_tokens: Reading,
    /// How `live_tokens`, and with them the tail, were come by.
    pub live_tokens_is: Basis,
    /// Whether they were estimated from the lengths of requests rather than from whole blocks.
    pub live_by_length: bool,
    /// Empty places in held blocks or slots, tokens.
    pub tail_tokens: Reading,
    /// Share of the held places that is empty, %.
    pub tail_waste_pct: Reading,
    /// The most that share can be, %.
    pub tail_waste_max_pct: Reading,
    /// Tokens kept for reuse that nobody holds.
    pub cached_tokens: Reading,
    /// Tokens of the pool that hold nothing.
    pub free_tokens: Reading,
    /// Tokens set aside for what running requests may still generate.
    pub reserved_tokens: Reading,
    /// How `reserved_tokens` was come by.
    pub reserved_is: Basis,
    /// Whether what is reserved is a part of what is held, rather than on top of it.
    pub reserved_in_held: bool,
    /// Cached and free tokens together.
    pub idle_tokens: Reading,
    /// Share of the pool no live request holds or has set aside, %.
    pub idle_pct: Reading,
    /// Slots in all; of engines that have slots.
    pub slots: Reading,
    /// Slots in which nothing runs; of engines that have slots.
    pub idle_slots: Reading,
    /// Longest context the engine admits, tokens.
    pub max_model_len: Reading,
    /// Requests of the longest admitted context that fit into the pool at once.
    pub full_length_requests: Reading,
    /// Requests of the mean length that fit into the pool at once.
    pub mean_length_requests: Reading,
    /// What requests really used; `None` below 6 finished requests.
    pub used_length: Option<UsedLength>,
    /// Whose requests that is of.
    pub used_lives: Lives,
    /// How much time was measured of them, ms.
    pub used_ms: u64,
    /// Mean of what requests used, prompt and output.
    pub used_mean: Reading,
    /// `max_model_len` ÷ `used_length`.
    pub overprovision_x: Reading,
    /// Lengths of running requests together ÷ tokens that they hold.
    pub sharing_x: Reading,
    /// How `sharing_x` was come by.
    pub sharing_is: Basis,
    /// Tokens lost to preemption and computed again, a second.
    pub recomputed_per_s: Reading,
    /// How `recomputed_per_s` was come by.
    pub recomputed_is: Basis,
    /// KV memory of one token over all GPUs, copies included.
    pub bytes_per_token: Reading,
    /// GPUs that store the same KV.
    pub copies: Reading,
    /// Share of looked-up prompt tokens that the prefix cache had, %.
    pub prefix_hit_pct: Reading,
    /// Share of the lookups that preempted requests repeat, at most, %; 0 where none is preempted.
    pub repeated_max_pct: Reading,
    /// What has to be known to read `prefix_hit_pct`.
    pub prefix_note: Option<PrefixNote>,
    /// Tokens of a block.
    pub block_tokens: Reading,
    /// Whether less than four fifths of the window were scraped: what is of the window is of the rest.
    pub partial: bool,
}

impl Kv {
    /// What so many tokens take, bytes.
    pub fn bytes(&self, tokens: Reading) -> Reading {
        both(tokens, self.bytes_per_token, |tokens, bytes| tokens * bytes)
    }

    /// Of `tokens` tokens' bytes, those that repeat what another GPU holds.
    pub fn copied_bytes(&self, tokens: Reading) -> Reading {
        both(self.bytes(tokens), self.copies, |bytes, copies| bytes * (1.0 - 1.0 / copies.max(1.0)))
    }

    /// Whether each slot has a share of its own.
    pub fn has_slots(&self) -> bool {
        self.layout == Some(Layout::Slots)
    }
}

/// Reused buffers.
#[derive(Debug, Default)]
pub struct Buffers {
    prompt: HistogramWindow,
    output: HistogramWindow,
}

/// Splits the pool of `engine`: levels are the newest at the window's end, lengths and rates are of the
/// window.
pub fn kv(data: &Data, engine: u8, window: Window, buffers: &mut Buffers) -> Kv {
    let subject = Subject::Engine(engine);
    let (prompt, output) = (&mut buffers.prompt, &mut buffers.output);
    let lives = lives::window(data, subject, Metric::PromptLen, window, prompt);
    lives::window(data, subject, Metric::GenerationLen, window, output);
    let levels = Levels::read(data, engine, window.end);
    let nothing = empty(data, engine, Metric::PromptLen, window.end);
    let running = lengths::mean_running(prompt, output, nothing);
    let mut kv = levels.split(running);
    kv.used_length = lengths::used_length(prompt, output, kv.max_model_len.value());
    (kv.used_lives, kv.used_ms) = (lives, prompt.measured_ms);
    kv.used_mean = lengths::mean_used(prompt, output, nothing);
    kv.mean_length_requests = per(kv.pool_tokens, kv.used_mean);
    kv.overprovision_x = per(kv.max_model_len, used_tokens(kv.used_length, nothing));
    let of_window = |metric| rate(data, engine, metric, window);
    (kv.recomputed_per_s, kv.recomputed_is) =
        recomputed(of_window(Metric::RecomputedTokens), of_window(Metric::Preemptions), running);
    kv.prefix_hit_pct = prefix_hit_pct(data, engine, window);
    (kv.repeated_max_pct, kv.prefix_note) = prefix::note(data, engine, window, &kv, prompt.mean());
    kv.partial = partial_scrapes(data, engine, window);
    kv.sharing_x = at_most_by_hits(kv.sharing_x, kv.sharing_is, least_hit_pct(data, engine, window));
    kv
}

/// Share of the prompt tokens looked up in the window that the prefix cache had, %.
pub fn prefix_hit_pct(data: &Data, engine: u8, window: Window) -> Reading {
    let of_window = |metric| rate(data, engine, metric, window);
    share(of_window(Metric::PrefixHits), of_window(Metric::PrefixQueries))
}

/// The lower share of prefix hits, %, of the whole window and of its newest part: requests of now share at most what
/// was found for those of now, whatever an earlier traffic in the window had in common.
fn least_hit_pct(data: &Data, engine: u8, window: Window) -> Reading {
    const NEWEST_PART: u64 = 4;
    let whole = prefix_hit_pct(data, engine, window);
    let newest = prefix_hit_pct(data, engine, Window::last(window.end, window.ms() / NEWEST_PART));
    match (whole, newest) {
        (Reading::Value(whole), Reading::Value(newest)) => Reading::Value(whole.min(newest)),
        _ => whole,
    }
}

/// Newest levels of an engine.
#[derive(Clone, Copy)]
struct Levels {
    layout: Option<Layout>,
    /// Whether a request holds its longest output from admission on.
    reserves_all: bool,
    usage_pct: Reading,
    pool_tokens: Reading,
    block: Reading,
    held: Reading,
    live: Reading,
    cached: Reading,
    free: Reading,
    reserved: Reading,
    running: Reading,
    cap: Reading,
    max_model_len: Reading,
    bytes_per_token: Reading,
    copies: Reading,
}

impl Levels {
    fn read(data: &Data, engine: u8, at: Time) -> Self {
        let latest = |metric| level(data, engine, metric, at);
        let kind = data.fact(Subject::Engine(engine), FactKey::Kind, at);
        Self {
            layout: Layout::of(data, engine, at),
            reserves_all: matches!(kind, Some("tgi" | "lorax")),
            usage_pct: latest(Metric::KvUsage),
            pool_tokens: latest(Metric::KvPoolTokens),
            block: latest(Metric::KvBlockSize),
            held: latest(Metric::KvHeldTokens),
            live: latest(Metric::KvLiveTokens),
            cached: latest(Metric::KvCachedTokens),
            free: latest(Metric::KvFreeTokens),
            reserved: latest(Metric::KvReservedTokens),
            running: latest(Metric::RequestsRunning),
            cap: latest(Metric::RequestsCap),
            max_model_len: latest(Metric::MaxModelLen),
            bytes_per_token: latest(Metric::KvBytesPerToken),
            copies: latest(Metric::KvCopies),
        }
    }

    /// Everything that follows from levels alone, and the mean length of a running request.
    fn split(&self, mean_length: Reading) -> Kv {
        let (pool, held) = (self.pool_tokens, self.held());
        let by_length = self.by_length(held, mean_length);
        let (live_tokens, live_tokens_is) = self.live(held, by_length);
        let (tail_tokens, most_empty) = self.tail(held, live_tokens, live_tokens_is);
        let on_top = self.reserved.value().unwrap_or(0.0);
        let not_held = both(pool, held, |pool, held| (pool - held - on_top).max(0.0));
        let reserved_in_held = self.reserves_all && self.reserved.value().is_none();
        let within = both(held, live_tokens, |held, live| (held - live).max(0.0));
        let rest = |other: Reading| both(not_held, other, |all, other| (all - other).max(0.0));
        let idle_tokens = or(not_held, both(self.cached, self.free, |cached, free| cached + free));
        let usage_pct = or(self.usage_pct, share(held, pool));
        let (sharing_x, sharing_is) = self.sharing(held, mean_length);
        let slots = if self.has_slots() { self.cap } else { Reading::Missing(Why::Unsupported) };
        let missing = Reading::Missing(Why::NotYet);
        Kv {
            layout: self.layout,
            usage_pct,
            pool_tokens: pool,
            held_tokens: held,
            live_tokens,
            live_tokens_is,
            live_by_length: live_tokens_is == Basis::Estimate && by_length.is_some() && self.live.value().is_none(),
            tail_tokens,
            tail_waste_pct: share(tail_tokens, held),
            tail_waste_max_pct: share(most_empty, held),
            cached_tokens: or(self.cached, rest(self.free)),
            free_tokens: or(self.free, rest(self.cached)),
            reserved_tokens: if reserved_in_held { within } else { self.reserved },
            reserved_is: if reserved_in_held { live_tokens_is } else { Basis::Exact },
            reserved_in_held,
            idle_tokens,
            idle_pct: or(share(idle_tokens, pool), usage_pct.map(|usage| 100.0 - usage)),
            slots,
            idle_slots: both(slots, self.running, |slots, running| (slots - running).max(0.0)),
            max_model_len: self.max_model_len,
            full_length_requests: per(pool, self.max_model_len),
            mean_length_requests: missing,
            used_length: None,
            used_lives: Lives::default(),
            used_ms: 0,
            used_mean: missing,
            overprovision_x: missing,
            sharing_x,
            sharing_is,
            recomputed_per_s: missing,
            recomputed_is: Basis::Exact,
            bytes_per_token: self.bytes_per_token,
            copies: self.copies,
            prefix_hit_pct: missing,
            repeated_max_pct: missing,
            prefix_note: None,
            block_tokens: self.block,
            partial: false,
        }
    }

    fn has_slots(&self) -> bool {
        matches!(self.layout, Some(Layout::Slots | Layout::Unified))
    }

    fn held(&self) -> Reading {
        let by_usage = both(self.usage_pct, self.pool_tokens, |usage, pool| usage / 100.0 * pool);
        if self.layout != Some(Layout::Slots) {
            return or(self.held, by_usage);
        }
        let slot = per(self.pool_tokens, self.cap);
        or(self.held, or(both(self.running, slot, |running, slot| running * slot), by_usage))
    }

    /// Empty places in last blocks, at most: a sequence's last block holds 1 to B tokens.
    fn most_empty(&self) -> Reading {
        match self.layout {
            Some(Layout::Slots | Layout::Unified) => Reading::Missing(Why::Unsupported),
            _ => both(self.running, self.block, |running, block| running * (block - 1.0).max(0.0)),
        }
    }

    /// What the lengths of requests say is live, where they say more than whole blocks do: where the size of a block
    /// is not known, or where last blocks leave so much open that lengths, which are off by up to 10 % on the H200
    /// capture, are the better guide. Lengths that contradict what is certain (requests share blocks, or those that
    /// run are not like those that finished) are none.
    fn by_length(&self, held: Reading, mean_length: Reading) -> Option<Reading> {
        const LENGTHS_ARE_OFF_BY: f64 = 0.1;
        let sum = both(self.running, mean_length, |running, mean| running * mean);
        let Some(most) = self.most_empty().value() else { return Some(both(sum, held, f64::min)) };
        let (held, sum) = (held.value()?, sum.value()?);
        let open = most / 2.0 > held * LENGTHS_ARE_OFF_BY;
        (open && (held - most..=held).contains(&sum)).then_some(Reading::Value(sum))
    }

    fn live(&self, held: Reading, by_length: Option<Reading>) -> (Reading, Basis) {
        if let Some(live) = self.live.value() {
            // More than is held: requests share blocks, and how much of those is live is not known.
            return match held {
                Reading::Value(held) if live > held => (Reading::Value(held), Basis::Estimate),
                _ => (Reading::Value(live), Basis::Exact),
            };
        }
        match (held, self.most_empty()) {
            (Reading::Value(held), _) if held <= 0.0 => (Reading::Value(0.0), Basis::Exact),
            (Reading::Value(held), Reading::Value(most)) if most <= 0.0 => (Reading::new(held), Basis::Exact),
            (_, most) => {
                let by_blocks = || both(held, most, |held, most| (held - most / 2.0).max(0.0));
                (by_length.unwrap_or_else(by_blocks), Basis::Estimate)
            }
        }
    }

    /// Empty places, and how many there can be at most.
    fn tail(&self, held: Reading, live: Reading, basis: Basis) -> (Reading, Reading) {
        let counted = self.live.value().is_some();
        if counted || basis == Basis::Exact {
            let empty = both(held, live, |held, live| (held - live).max(0.0));
            return (empty, empty);
        }
        let most = self.most_empty();
        let empty = both(held, live, |held, live| held - live);
        (both(most, empty, |_, empty| empty), most)
    }

    fn sharing(&self, held: Reading, mean_length: Reading) -> (Reading, Basis) {
        if self.has_slots() {
            return (Reading::Missing(Why::Unsupported), Basis::Exact);
        }
        let basis = if self.live.value().is_some() { Basis::Exact } else { Basis::Estimate };
        let lengths = or(self.live, both(self.running, mean_length, |running, mean| running * mean));
        (per(lengths, held).map(|times| times.max(1.0)), basis)
    }
}

/// Requests of now may be shorter than those that finished, which looks like sharing; but what was not found
/// in the prefix cache has blocks of its own. Nothing looked up is nothing shared.
fn at_most_by_hits(sharing: Reading, basis: Basis, hit_pct: Reading) -> Reading {
    match (basis, hit_pct) {
        (Basis::Exact, _) => sharing,
        (Basis::Estimate, Reading::Missing(Why::NotYet)) => sharing.map(|times| times.min(1.0)),
        (Basis::Estimate, hits) => both(sharing, hits, |times, hits| times.min(1.0 / (1.0 - hits / 100.0).max(1e-3))),
    }
}

/// Tokens computed again, a second: as counted, else what preempted requests lose.
fn recomputed(counted: Reading, preemptions: Reading, mean_length: Reading) -> (Reading, Basis) {
    match (counted, preemptions) {
        (Reading::Value(_), _) => (counted, Basis::Exact),
        (_, Reading::Value(rate)) if rate <= 0.0 => (Reading::Value(0.0), Basis::Exact),
        _ => (both(preemptions, mean_length, |rate, length| rate * length), Basis::Estimate),
    }
}

/// `a` for each of `b`; of nothing there is no ratio yet.
fn per(a: Reading, b: Reading) -> Reading {
    match b {
        Reading::Value(b) if b <= 0.0 => Reading::Missing(Why::NotYet),
        _ => both(a, b, |a, b| a / b),
    }
}

/// `part` of `whole` in %, at most 100; of nothing there is no share yet.
fn share(part: Reading, whole: Reading) -> Reading {
    per(part, whole).map(|share| (share * 100.0).clamp(0.0, 100.0))
}

fn used_tokens(used: Option<UsedLength>, nothing: Why) -> Reading {
    used.filter(|used| used.tokens > 0.0).map_or(Reading::Missing(nothing), |used| Reading::new(used.tokens))
}

#[cfg(test)]
mod tests;
