//! Time in which both tokens and energy were measured.
//!
//! Tokens are read with every scrape, energy every 10 s, and either may fail. Both are cut where one of them was not
//! measured; a piece begins and ends with readings of the energy counter and with the scrapes nearest to those. Invariant:
//! tokens and joules of a piece are of the same time, but for the differences of its edges, which are added up.

use crate::model::{Metric, Subject, Time};
use crate::store::{Data, Series, Window};

use super::GpuSet;

/// A stretch of a series without a gap.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    window: Window,
    /// Length of its first and last interval, ms.
    first_ms: u64,
    last_ms: u64,
}

/// What was counted in the pieces of a window that tokens and energy have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Joint {
    /// Length of the pieces, ms, by the readings of the energy counter.
    pub(super) ms: u64,
    /// By how much the edges of tokens and energy differ, ms.
    apart_ms: u64,
    pub(super) joules: f64,
    pub(super) generated: f64,
    /// `None` where the prompt tokens of a piece are not known.
    pub(super) prompt: Option<f64>,
}

impl Joint {
    /// Of `gpus` and `engine`: energy over `window`, tokens up to `until`. `None` where they have no time in common, or
    /// where their edges differ by more than a tenth of it.
    pub(super) fn of(data: &Data, engine: u8, gpus: GpuSet, (window, until): (Window, Window)) -> Option<Self> {
        let engine = Subject::Engine(engine);
        let tokens = data.series(engine, Metric::GenerationTokens)?;
        // All are read in one round: the first one's readings are those of all, but for some ms.
        let energy = data.series(Subject::Gpu(gpus.iter().next()?), Metric::Energy)?;
        let mut joint = Self { prompt: Some(0.0), ..Self::default() };
        for joules in stretches(energy, window) {
            for generated in stretches(tokens, Window { start: window.start, end: until.end }) {
                let Some(piece) = common(energy, joules, generated) else { continue };
                joint.add(data, engine, gpus, (piece, tokens, generated));
            }
        }
        (joint.ms > 0 && joint.apart_ms * 10 <= joint.ms).then_some(joint)
    }

    fn add(&mut self, data: &Data, engine: Subject, gpus: GpuSet, (piece, tokens, within): (Window, &Series, Stretch)) {
        let edge = |at| nearest(tokens, within.window, at);
        let scrapes = Window { start: edge(piece.start), end: edge(piece.end) };
        let energy = |gpu| data.series(Subject::Gpu(gpu), Metric::Energy);
        let joules = gpus.iter().try_fold(0.0, |sum, gpu| Some(sum + joules(energy(gpu)?, piece)?));
        let (Some(joules), Some(generated)) = (joules, tokens.growth(scrapes)) else { return };
        let prompt = data.series(engine, Metric::PromptTokens);
        let prompt = prompt.filter(|s| s.measured_ms(scrapes) == tokens.measured_ms(scrapes));
        // Per second of the scrapes, for the seconds of the energy.
        let scale = piece.ms() as f64 / scrapes.ms().max(1) as f64;
        self.ms += piece.ms();
        self.apart_ms += scrapes.start.0.abs_diff(piece.start.0) + scrapes.end.0.abs_diff(piece.end.0);
        self.joules += joules;
        self.generated += generated * scale;
        self.prompt = self.prompt.zip(prompt.and_then(|s| s.growth(scrapes))).map(|(sum, n)| sum + n * scale);
    }
}

/// What a GPU took in a piece: between its own readings nearest to the piece's edges. A recording may have a time of its own
/// for each GPU of a round, and the interval that ends some ms after an edge is the one that belongs to it. `None` where
/// less than nine tenths of the piece were measured.
fn joules(energy: &Series, piece: Window) -> Option<f64> {
    let slack = piece.ms() / 10;
    let around = Window { start: piece.start - slack, end: piece.end + slack };
    let own = Window { start: nearest(energy, around, piece.start), end: nearest(energy, around, piece.end) };
    if energy.measured_ms(own) * 10 < piece.ms() * 9 {
        return None;
    }
    energy.growth(own)
}

/// The stretches without a gap that end in the window.
fn stretches(series: &Series, window: Window) -> impl Iterator<Item = Stretch> {
    let mut spans = series.spans(window).peekable();
    std::iter::from_fn(move || {
        let first = spans.next()?;
        let mut stretch = Stretch { window: first, first_ms: first.ms(), last_ms: first.ms() };
        while let Some(next) = spans.next_if(|next| next.start == stretch.window.end) {
            (stretch.window.end, stretch.last_ms) = (next.end, next.ms());
        }
        Some(stretch)
    })
}

/// The readings of the energy counter between which tokens were counted too: those nearest to where the stretches overlap,
/// no farther outside than the interval of a scrape.
fn common(energy: &Series, joules: Stretch, tokens: Stretch) -> Option<Window> {
    let (from, to) = (joules.window.start.max(tokens.window.start), joules.window.end.min(tokens.window.end));
    if to <= from {
        return None;
    }
    let edges = || edges(energy, joules.window);
    let start = edges().filter(|&at| at + tokens.first_ms >= from).min_by_key(|at| at.0.abs_diff(from.0))?;
    let end = edges().filter(|&at| at <= to + tokens.last_ms).min_by_key(|at| at.0.abs_diff(to.0))?;
    (end > start).then_some(Window { start, end })
}

/// The readings between which the intervals lie that end in a stretch.
fn edges(series: &Series, stretch: Window) -> impl Iterator<Item = Time> {
    series.spans(stretch).flat_map(|span| [span.start, span.end])
}

/// The reading of a stretch that is nearest to `at`.
fn nearest(series: &Series, stretch: Window, at: Time) -> Time {
    edges(series, stretch).min_by_key(|edge| edge.0.abs_diff(at.0)).unwrap_or(stretch.start)
}
