//! This server's own past: what it did at such a load before, in pieces of two seconds over the last hour.
//!
//! A comparison with itself needs no table of what a model on a GPU should reach. A piece is worked out once and kept. What
//! ended less than [`RECENT_MS`] ago is the present and is compared with nothing.

use std::collections::BTreeMap;

use crate::derive::exposed::rate;
use crate::derive::kv::{hits_are_repeated, prefix_hit_pct};
use crate::model::{Metric, Subject, Time};
use crate::store::{Data, HistogramWindow, Window};

/// Length of a piece, ms.
const PIECE_MS: u64 = 2_000;
/// How far back the past reaches, ms.
const REACH_MS: u64 = 3_600_000;
/// What ended later than this before the moment is no past yet, ms.
const RECENT_MS: u64 = 10_000;
/// A load is alike when the running requests differ by no more than this factor.
const ALIKE: f64 = 1.5;
/// The same of lengths of answers, which vary more.
const ANSWERS_ALIKE: f64 = 2.0;
/// Pieces that are enough to compare with.
const LEAST: usize = 3;
/// Pieces that are kept of one engine: twice the reach, since a replay may judge earlier moments too.
const MOST: u64 = 3_600;

/// What an engine did in one piece of time. `None` where it was not read or nothing happened.
#[derive(Clone, Copy, Debug, Default)]
struct Piece {
    running: Option<f32>,
    itl: Option<f32>,
    ttft: Option<f32>,
    generated: Option<f32>,
    prompt_per_token: Option<f32>,
    prompt_len: Option<f32>,
    answer_len: Option<f32>,
    hit_share: Option<f32>,
}

/// Pieces by engine and number since the epoch.
#[derive(Debug, Default)]
pub(super) struct Past {
    pieces: BTreeMap<(u8, u64), Piece>,
    /// Of each engine, the first piece that is known and the one after the last.
    known: BTreeMap<u8, (u64, u64)>,
    scratch: HistogramWindow,
}

/// The load that is compared.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// Requests running.
    pub(super) running: f64,
    /// Prompt tokens that are computed for each generated one: the same however slow the server is.
    pub(super) prompt_per_token: f64,
}

impl Load {
    /// Of rates over the same time; `None` where one is not known or nothing is generated.
    pub(super) fn of(
        running: Option<f64>,
        prompt: Option<f64>,
        hits: Option<f64>,
        generated: Option<f64>,
    ) -> Option<Self> {
        let computed = prompt? * (1.0 - hits.unwrap_or(0.0));
        Some(Self { running: running?, prompt_per_token: computed / generated.filter(|&rate| rate > 0.0)? })
    }
}

/// What the past says of such a load: medians of all pieces. `None`: too few of them have it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Usual {
    /// Mean gap between tokens, s.
    pub(super) itl: Option<f64>,
    /// The gap that a quarter of the pieces reach, s.
    pub(super) best_itl: Option<f64>,
    /// Mean TTFT, s.
    pub(super) ttft: Option<f64>,
    /// Tokens generated a second.
    pub(super) generated: Option<f64>,
    /// Pieces that it was told from.
    pub(super) pieces: usize,
}

impl Past {
    /// What `engine` did before `at` at a load like this one.
    pub(super) fn usual(&mut self, data: &Data, engine: u8, at: Time, load: Load) -> Usual {
        self.learn(data, engine, at);
        let alike = |a: f64, b: f64| a <= b * ALIKE + 0.5 && b <= a * ALIKE + 0.5;
        let like = |value: Option<f32>, load: f64| value.is_some_and(|value| alike(f64::from(value), load));
        let pieces: Vec<&Piece> = self
            .before(data, engine, at)
            .filter(|piece| like(piece.running, load.running))
            // Prompts that are computed between the tokens of others lengthen the gaps.
            .filter(|piece| like(piece.prompt_per_token, load.prompt_per_token))
            .collect();
        let of = |figure: fn(&Piece) -> Option<f32>, share: f64| {
            let mut values: Vec<f64> = pieces.iter().filter_map(|piece| figure(piece).map(f64::from)).collect();
            values.sort_by(f64::total_cmp);
            values.get(((values.len().max(1) - 1) as f64 * share) as usize).copied().filter(|_| values.len() >= LEAST)
        };
        Usual {
            itl: of(|piece| piece.itl, 0.5),
            best_itl: of(|piece| piece.itl, 0.25),
            ttft: of(|piece| piece.ttft, 0.5),
            generated: of(|piece| piece.generated, 0.5),
            pieces: pieces.len(),
        }
    }

    /// The highest share of prompt tokens that the prefix cache held for prompts and answers about this long, 0 to 1:
    /// other lengths are other requests, of which nothing was cached.
    pub(super) fn hit_share(&mut self, data: &Data, engine: u8, at: Time, lengths: (f64, f64)) -> Option<f64> {
        self.learn(data, engine, at);
        let alike = |len: Option<f32>, now: f64, most: f64| {
            len.map(f64::from).is_some_and(|len| len <= now * most && now <= len * most)
        };
        let (prompt, answer) = lengths;
        let pieces = self
            .before(data, engine, at)
            .filter(|piece| alike(piece.prompt_len, prompt, ALIKE) && alike(piece.answer_len, answer, ANSWERS_ALIKE));
        let mut shares: Vec<f64> = pieces.filter_map(|piece| piece.hit_share.map(f64::from)).collect();
        shares.sort_by(f64::total_cmp);
        // One piece may be a fluke of few requests.
        shares.len().checked_sub(LEAST).map(|place| shares[place])
    }

    fn before(&self, data: &Data, engine: u8, at: Time) -> impl Iterator<Item = &Piece> {
        let range = Self::range(data, at);
        self.pieces.range((engine, range.0)..(engine, range.1)).map(|(_, piece)| piece)
    }

    /// Numbers of the pieces before `at`: the first, and the one after the last.
    fn range(data: &Data, at: Time) -> (u64, u64) {
        let oldest = data.oldest().unwrap_or(at).max(at - REACH_MS);
        let end = (at - RECENT_MS).0 / PIECE_MS;
        ((oldest.0.div_ceil(PIECE_MS)).min(end), end)
    }

    /// Works out the pieces that are not known yet.
    fn learn(&mut self, data: &Data, engine: u8, at: Time) {
        let (first, end) = Self::range(data, at);
        let known = self.known.get(&engine).copied().filter(|&(from, to)| first <= to && end >= from);
        let (from, to) = known.unwrap_or((first, first));
        if known.is_some() && from <= first && end <= to {
            return;
        }
        for number in (first..from).chain(to..end) {
            let window = Window::last(Time((number + 1) * PIECE_MS), PIECE_MS);
            self.pieces.insert((engine, number), piece(data, engine, window, &mut self.scratch));
        }
        let (from, to) = (from.min(first), to.max(end));
        let from = from.max(to.saturating_sub(MOST));
        self.pieces.retain(|&(of, number), _| of != engine || number >= from && number < to);
        self.known.insert(engine, (from, to));
    }
}

fn piece(data: &Data, engine: u8, window: Window, scratch: &mut HistogramWindow) -> Piece {
    let of = |metric| rate(data, engine, metric, window).value();
    let mut mean = |metric| {
        data.histogram_window(Subject::Engine(engine), metric, window, scratch);
        scratch.mean()
    };
    let (itl, ttft) = (mean(Metric::Itl), mean(Metric::Ttft));
    let (prompt_len, answer_len) = (mean(Metric::PromptLen), mean(Metric::GenerationLen));
    let hit_share = prefix_hit_pct(data, engine, window).value().map(|pct| pct / 100.0);
    let running = of(Metric::RequestsRunning);
    let generated = of(Metric::GenerationTokens);
    let load = Load::of(running, of(Metric::PromptTokens), hit_share, generated);
    let small = |value: Option<f64>| value.map(|value| value as f32);
    Piece {
        running: small(running),
        itl: small(itl),
        ttft: small(ttft),
        generated: small(generated),
        prompt_per_token: small(load.map(|load| load.prompt_per_token)),
        prompt_len: small(prompt_len),
        answer_len: small(answer_len),
        // Requests that find their own blocks after preemption show no prefix that others could lose.
        hit_share: small(hit_share.filter(|_| !hits_are_repeated(data, engine, window))),
    }
}
