//! The best estimate of a quantile inside its bucket, from the sums of the window's scrape intervals.
//!
//! A histogram says in which bucket the quantile is and not where. But each scrape interval also has the sum
//! of its observations, and a second holds few of them: their mean is exact, and how it moves from interval
//! to interval shows how far the observations lie apart. With S the sum of an interval's observations and
//! nₖ those in bucket k = (lₖ, uₖ]:
//!
//! 1. **Cells.** A cell is what an interval has in one bucket. If all of an interval is in one bucket, the cell's
//!    mean is S/n, exactly. Else the interval's observations are taken as log-normal with mean S/n; the log-spread s
//!    is the likeliest of 0.015, 0.03, … 0.96 for the nₖ, with a prior ln s ~ N(ln p, 1). The part of that
//!    curve in bucket k has the mean mₖ and the variance vₖ, and the cells' means are mₖ + λ·vₖ, held inside
//!    their buckets, with the λ for which Σ nₖ·(mₖ + λ·vₖ) = S. For p see below.
//! 2. **Spread inside a cell**, from the bucket's neighbouring cells i and i + 1 with log-means y:
//!    dᵢ = ln((yᵢ₊₁ − yᵢ)²/2 · h^¼ + 10⁻⁷), h the harmonic mean of their n. (Observations that march in step would
//!    not need the factor, independent ones h; waves of requests are between the two.) A cell's log-variance is
//!    exp of the mean of the dᵢ on both sides of it and twice the mean of all, and of a prior: 0.3 of the distance
//!    to the nearer edge, which weighs 3 against the number of dᵢ (6 at most). It is at most 0.7 of that distance; where
//!    the interval goes on in the bucket above, it is at least s. A cell that is a whole interval of one
//!    observation is that value. In the same way p is made from the dᵢ of whole intervals, with 10⁻³ for 10⁻⁷ and the
//!    prior 0.2.
//! 3. **Quantile.** Each cell is a log-normal curve around its mean with that spread, cut at the edges. The
//!    estimate of the observation of rank j in the bucket is where the cells hold j − ½ together.
//!
//! A window without parts (a column of the heat map) is one interval. Its error against clients' clocks is
//! in docs/latency.md. It must not know what is measured. Invariant: what it gives lies between the bounds it
//! is given and never falls with the rank. Nothing is allocated.

use crate::store::{HistogramWindow, MOST_PARTS};

/// The observation that is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// Its bucket.
    pub(super) bucket: usize,
    /// Its rank in the bucket, from 1.
    pub(super) rank: u64,
    /// The bucket's lower edge, or 0.
    pub(super) lo: f64,
    /// What it certainly is not above.
    pub(super) hi: Option<f64>,
}

/// Log-spreads that are tried for an interval: how many, the first, and the factor between two.
const SPREADS: (u32, f64, f64) = (7, 0.015, 2.0);
/// Prior of an interval's log-spread where no movement is seen.
const PRIOR_INTERVAL: f64 = 0.2;
/// Prior of a cell's log-spread, in distances to the nearer edge.
const PRIOR_CELL: f64 = 0.3;
/// The number of differences that a prior counts for, and the most that differences count for.
const PRIOR_WEIGHT: f64 = 3.0;
const MOST_DIFFERENCES: f64 = 6.0;
/// Share of a bucket below which the curve says nothing about it: [`below`] is good to 1e-7.
const LEAST_SHARE: f64 = 1e-6;
/// Variance that a cell's mean has beside the curve's, in squares of the bucket's width.
const LEAST_VARIANCE: f64 = 0.02;
/// The widest log-spread of a cell, in distances to the nearer edge.
const WIDEST: f64 = 0.7;
/// Least log-spread of a cell.
const LEAST_SPREAD: f64 = 1e-6;
/// Least variance that a step speaks for, of intervals and of cells: that intervals are alike, as where requests come
/// in step, does not say that what is in them is.
const LEAST_STEPS: (f64, f64) = (1e-3, 1e-7);
/// A window that fills more buckets knows enough without its sums.
const MOST_SLICES: usize = 32;
/// Halvings of an interval that is searched.
const HALVINGS: usize = 20;

/// What an interval has in the bucket.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    n: f64,
    /// Logarithm of the mean, and the log-spread around it.
    centre: f64,
    spread: f64,
    /// Logarithm of what none of it is above.
    top: f64,
    /// Share of the curve below the bucket, and in it.
    under: f64,
    inside: f64,
    /// The interval's own log-spread where it goes on in the bucket above, or 0.
    beyond: f64,
    /// Whether it is an interval of one observation.
    exact: bool,
}

/// An interval's observations in one of its buckets.
#[derive(Clone, Copy, Debug, Default)]
struct Slice {
    bucket: usize,
    n: f64,
    /// Edges, and their logarithms.
    lo: f64,
    hi: f64,
    ln_lo: f64,
    ln_hi: f64,
    /// Mean and variance, first by the curve and then by the sum.
    mean: f64,
    variance: f64,
}

/// The value of an observation, or `None` where no sum is known or too many buckets are filled.
pub(super) fn estimate(window: &HistogramWindow, place: Place) -> Option<f64> {
    let (sum, hi) = (window.sum.filter(|s| s.is_finite())?, place.hi?);
    if window.counts.iter().filter(|n| **n > 0).count() > MOST_SLICES {
        return None;
    }
    let mut cells = [Cell::default(); MOST_PARTS];
    let mut len = 0;
    let whole = window.parts.is_empty().then_some((window.counts.as_slice(), sum));
    let expected = expected_spread(window);
    for (counts, sum) in window.parts.iter().chain(whole).take(MOST_PARTS) {
        if let Some(cell) = cell(&window.edges, counts, sum, place, expected) {
            cells[len] = cell;
            len += 1;
        }
    }
    let cells = &mut cells[..len];
    if cells.is_empty() {
        return None;
    }
    spread(cells, place.lo.ln());
    Some(find(cells, place).clamp(place.lo, hi))
}

/// Mean of what came in, never 0.
fn mean_of(sum: f64, n: f64) -> f64 {
    (sum / n).max(1e-12)
}

/// Logarithm of the variance that the step between two neighbours' log-means, each of so many, speaks for.
fn step((n, mean): (f64, f64), (next_n, next): (f64, f64), least: f64) -> f64 {
    let n = 2.0 * n * next_n / (n + next_n);
    ((next - mean).powi(2) / 2.0 * n.sqrt().sqrt() + least).ln()
}

/// A log-spread, from the mean of so many steps and what was thought before.
fn spread_of(seen: f64, steps: f64, prior: f64) -> f64 {
    let weight = steps.min(MOST_DIFFERENCES);
    ((seen * weight / 2.0 + prior.ln() * PRIOR_WEIGHT) / (weight + PRIOR_WEIGHT)).exp()
}

/// The log-spread that an interval is likely to have.
fn expected_spread(window: &HistogramWindow) -> f64 {
    let (mut before, mut sum, mut steps) = (None, 0.0, 0.0);
    for (counts, total) in window.parts.iter() {
        let n = counts.iter().sum::<u64>() as f64;
        let this = (n, mean_of(total, n).ln());
        if let Some(before) = before.replace(this) {
            sum += step(before, this, LEAST_STEPS.0);
            steps += 1.0;
        }
    }
    spread_of(sum / f64::max(steps, 1.0), steps, PRIOR_INTERVAL)
}

/// What an interval has in the bucket; `None` if nothing.
fn cell(edges: &[f64], counts: &[u64], sum: f64, place: Place, expected: f64) -> Option<Cell> {
    let in_bucket = counts.get(place.bucket).copied().filter(|&n| n > 0)?;
    let mut slices = [Slice::default(); MOST_SLICES];
    let filled = slice(edges, counts, sum, &mut slices);
    let slices = &mut slices[..filled];
    let n: u64 = counts.iter().sum();
    let spread = if in_bucket < n { divide(slices, sum, expected) } else { 0.0 };
    let own = slices.iter().find(|s| s.bucket == place.bucket)?;
    let mean = if in_bucket < n { own.mean } else { sum / n as f64 };
    let exact = n == 1;
    let hair = if exact { 0.0 } else { (own.hi - own.lo) * 1e-3 };
    let least = (own.lo + if own.lo > 0.0 { hair } else { 0.0 }).max(own.hi * 1e-9);
    let goes_on = counts.get(place.bucket + 1).is_some_and(|&n| n > 0);
    Some(Cell {
        n: in_bucket as f64,
        centre: mean.min(own.hi - hair).max(least).ln(),
        spread: 0.0,
        top: own.ln_hi,
        under: 0.0,
        inside: 1.0,
        beyond: if goes_on { spread } else { 0.0 },
        exact,
    })
}

/// Cuts an interval at the edges; returns in how many buckets it has observations.
fn slice(edges: &[f64], counts: &[u64], sum: f64, out: &mut [Slice; MOST_SLICES]) -> usize {
    let lower = |bucket: usize| bucket.checked_sub(1).and_then(|i| edges.get(i)).copied().unwrap_or(0.0);
    let least: f64 = counts.iter().enumerate().map(|(bucket, &n)| n as f64 * lower(bucket)).sum();
    let busy = counts.iter().enumerate().filter(|(_, n)| **n > 0);
    let mut filled = 0;
    for ((bucket, &n), slice) in busy.zip(out.iter_mut()) {
        let lo = lower(bucket);
        // Above the last edge: one observation may have all that the others leave.
        let open = || (lo + sum - least).max(lo * (1.0 + 1e-6)).max(f64::MIN_POSITIVE);
        let hi = edges.get(bucket).copied().unwrap_or_else(open);
        *slice = Slice { bucket, n: n as f64, lo, hi, ln_lo: lo.ln(), ln_hi: hi.ln(), mean: 0.0, variance: 0.0 };
        filled += 1;
    }
    filled
}

/// Gives each bucket of an interval its mean; returns the interval's log-spread, `expected` before its counts are seen.
fn divide(slices: &mut [Slice], sum: f64, expected: f64) -> f64 {
    let n: f64 = slices.iter().map(|s| s.n).sum();
    let mean = mean_of(sum, n);
    let mut best = (f64::NEG_INFINITY, expected);
    let (tries, mut spread, factor) = SPREADS;
    for _ in 0..tries {
        let fit = Curve::of_mean(mean, spread).fit(slices) - 0.5 * (spread / expected).ln().powi(2);
        if fit < best.0 {
            // It has one summit.
            break;
        }
        best = (fit, spread);
        spread *= factor;
    }
    let curve = Curve::of_mean(mean, best.1);
    for s in slices.iter_mut() {
        let width = s.hi - s.lo;
        s.mean = curve.mean(s);
        s.variance = (curve.spread * s.mean).powi(2).min(width * width / 4.0) + LEAST_VARIANCE * width * width;
    }
    hold_to_sum(slices, sum);
    best.1
}

/// Moves the means, by their variances and inside their buckets, until they make up the sum.
fn hold_to_sum(slices: &mut [Slice], sum: f64) {
    let moved = |s: &Slice, by: f64| (s.mean + by * s.variance).clamp(s.lo, s.hi);
    // As far as brings each mean from one edge to the other.
    let far = slices.iter().map(|s| (s.hi - s.lo) / s.variance).fold(0.0, f64::max);
    let by = search(-far, far, |by| slices.iter().map(|s| s.n * moved(s, by)).sum::<f64>() < sum);
    for s in slices.iter_mut() {
        s.mean = moved(s, by);
    }
}

/// Gives each cell its spread. `lo` is the logarithm of the bucket's lower edge, infinitely far down in the lowest.
fn spread(cells: &mut [Cell], lo: f64) {
    let step = |a: &Cell, b: &Cell| step((a.n, a.centre), (b.n, b.centre), LEAST_STEPS.1);
    let steps = (cells.len() - 1) as f64;
    let all: f64 = cells.windows(2).map(|pair| step(&pair[0], &pair[1])).sum();
    let typical = all / steps.max(1.0);
    let mut before = None;
    for i in 0..cells.len() {
        let after = cells.get(i + 1).map(|next| step(&cells[i], next));
        let near = [before, after];
        let beside = near.iter().flatten().count() as f64;
        let seen = (near.iter().flatten().sum::<f64>() + 2.0 * typical) / (beside + 2.0);
        before = after;
        let cell = &mut cells[i];
        let room = (cell.centre - lo).min(cell.top - cell.centre);
        let wide = spread_of(seen, steps, PRIOR_CELL * room);
        let widest = if cell.exact { 0.0 } else { WIDEST * room };
        cell.spread = wide.max(cell.beyond).min(widest).max(LEAST_SPREAD);
        cell.under = below((lo - cell.centre) / cell.spread);
        cell.inside = below((cell.top - cell.centre) / cell.spread) - cell.under;
    }
}

/// Where the cells hold the rank less a half together.
fn find(cells: &[Cell], place: Place) -> f64 {
    let lo = place.lo.ln();
    let top = cells.iter().map(|c| c.top).fold(f64::NEG_INFINITY, f64::max);
    // In the lowest bucket, below what is in it.
    let bottom = cells.iter().map(|c| c.centre - 6.0 * c.spread).fold(top, f64::min).max(lo);
    let part = |c: &Cell, at: f64| (below((at - c.centre) / c.spread) - c.under) / c.inside;
    let held = |at: f64| -> f64 { cells.iter().map(|c| c.n * part(c, at).clamp(0.0, 1.0)).sum() };
    let rank = place.rank as f64 - 0.5;
    search(bottom, top, |at| held(at) < rank).exp()
}

/// Where a condition that holds on the left stops holding.
fn search(mut left: f64, mut right: f64, holds: impl Fn(f64) -> bool) -> f64 {
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(left, right);
        if holds(middle) {
            left = middle;
        } else {
            right = middle;
        }
    }
    f64::midpoint(left, right)
}

/// A log-normal distribution.
#[derive(Clone, Copy, Debug)]
struct Curve {
    /// Mean and spread of the logarithm.
    centre: f64,
    spread: f64,
}

impl Curve {
    fn of_mean(mean: f64, spread: f64) -> Self {
        Self { centre: mean.ln() - spread * spread / 2.0, spread }
    }

    /// Logarithm of how likely it makes the counts.
    fn fit(self, slices: &[Slice]) -> f64 {
        let below_edge = |ln: f64| below((ln - self.centre) / self.spread);
        let (mut edge, mut under, mut fit) = (f64::NAN, 0.0, 0.0);
        for s in slices {
            // Neighbours share an edge.
            let from = if s.ln_lo.total_cmp(&edge).is_eq() { under } else { below_edge(s.ln_lo) };
            (edge, under) = (s.ln_hi, below_edge(s.ln_hi));
            fit += s.n * (under - from).max(LEAST_SHARE).ln();
        }
        fit
    }

    /// A slice's edges in spreads from the centre.
    fn scores(self, slice: &Slice) -> (f64, f64) {
        ((slice.ln_lo - self.centre) / self.spread, (slice.ln_hi - self.centre) / self.spread)
    }

    /// Share of it in a slice.
    fn share(self, slice: &Slice) -> f64 {
        let (a, b) = self.scores(slice);
        between(a, b).max(LEAST_SHARE)
    }

    /// Mean of its part in a slice: E = exp(µ + σ²/2)·(Φ(b − σ) − Φ(a − σ)) / (Φ(b) − Φ(a)).
    fn mean(self, slice: &Slice) -> f64 {
        let share = self.share(slice);
        if share <= LEAST_SHARE {
            return f64::midpoint(slice.lo, slice.hi);
        }
        let (a, b) = self.scores(slice);
        let part = between(a - self.spread, b - self.spread) / share;
        ((self.centre + self.spread * self.spread / 2.0).exp() * part).clamp(slice.lo, slice.hi)
    }
}

/// Share of the standard normal distribution between two points.
fn between(a: f64, b: f64) -> f64 {
    // Where both are far up, the tails differ and not the rounded ones below them.
    if a > 0.0 { below(-a) - below(-b) } else { below(b) - below(a) }
}

/// Share of the standard normal distribution below a point, to 1e-7: Abramowitz and Stegun, Handbook of
/// Mathematical Functions, 26.2.17.
fn below(z: f64) -> f64 {
    const FACTORS: [f64; 5] = [1.330_274_429, -1.821_255_978, 1.781_477_937, -0.356_563_782, 0.319_381_530];
    if z.abs() > 8.0 {
        return if z > 0.0 { 1.0 } else { 0.0 };
    }
    let t = 1.0 / (1.0 + 0.231_641_9 * z.abs());
    let series = FACTORS.iter().fold(0.0, |sum, factor| (sum + factor) * t);
    let tail = (-z * z / 2.0).exp() / std::f64::consts::TAU.sqrt() * series;
    if z > 0.0 { 1.0 - tail } else { tail }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::derive::quantile::quantile;
    use crate::model::{HistogramSample, Metric, Subject, Time};
    use crate::store::{Retention, Store, Window};
    use proptest::prelude::*;

    const EDGES: [f64; 7] = [0.1, 0.3, 0.5, 1.0, 2.5, 5.0, 10.0];

    /// The window of these intervals, through the store.
    fn window(intervals: &[Vec<f64>]) -> HistogramWindow {
        let store = Store::new(Retention::HOUR);
        let (mut cumulative, mut sum, none) = (vec![0.0; EDGES.len() + 1], 0.0, Vec::new());
        let intervals = std::iter::once(&none).chain(intervals).enumerate();
        let mut end = Time(0);
        for (i, values) in intervals {
            for value in values {
                cumulative.iter_mut().skip(EDGES.partition_point(|e| e < value)).for_each(|n| *n += 1.0);
                sum += value;
            }
            end = Time(100_000 + i as u64 * 1000);
            let mut batch = crate::model::Batch::new(crate::model::SourceId::Engine(0), end, 3500);
            batch.histograms.push(HistogramSample {
                subject: Subject::Engine(0),
                metric: Metric::E2e,
                edges: EDGES.into(),
                cumulative: cumulative.clone(),
                sum: Some(sum),
                sets: 0,
            });
            store.push(&batch);
        }
        let mut out = HistogramWindow::default();
        store.read().histogram_window(Subject::Engine(0), Metric::E2e, Window { start: Time(0), end }, &mut out);
        out
    }

    fn p99(intervals: &[Vec<f64>]) -> f64 {
        quantile(&window(intervals), 0.99).unwrap().value
    }

    fn near(got: f64, want: f64, share: f64) {
        assert!((got / want - 1.0).abs() <= share, "{got}, not {want}");
    }

    #[test]
    fn one_request_an_interval_is_known_exactly() {
        let intervals: Vec<_> = (0..50).map(|i| vec![5.2 + 0.01 * f64::from(i * 7 % 50)]).collect();
        near(p99(&intervals), 5.69, 1e-4);
        near(quantile(&window(&intervals), 0.5).unwrap().value, 5.44, 1e-4);
    }

    #[test]
    fn what_hardly_varies_is_found_in_a_wide_bucket() {
        // Far below the first edge, near an edge, and in the middle.
        for centre in [0.004, 1.02, 7.0] {
            let values = |i: i32| (0..8).map(|k| centre * (1.0 + 0.002 * f64::from((i + 3 * k) % 5))).collect();
            let intervals: Vec<Vec<f64>> = (0..12).map(values).collect();
            near(p99(&intervals), centre * 1.008, 0.02);
        }
    }

    #[test]
    fn a_slow_second_among_fast_ones_is_the_tail() {
        let mut intervals = vec![vec![5.1; 20]; 30];
        intervals[17] = vec![8.8; 20];
        near(p99(&intervals), 8.8, 0.03);
    }

    #[test]
    fn an_interval_over_two_buckets_is_divided_by_its_sum() {
        // 2.0 to 2.9 s, of which four are in the upper bucket, which ends at 5 s.
        let values = |i: i32| (0..9).map(|k| 2.0 + 0.1 * f64::from(k) + 0.01 * f64::from(i % 10)).collect();
        let intervals: Vec<Vec<f64>> = (0..20).map(values).collect();
        near(p99(&intervals), 2.89, 0.08);
    }

    #[test]
    fn above_the_last_edge_the_sums_still_tell() {
        let intervals: Vec<_> = (0..20).map(|i| vec![0.2, 40.0 + f64::from(i % 3)]).collect();
        near(p99(&intervals), 42.0, 0.05);
        let lone: Vec<_> = (0..20).map(|i| vec![40.0 + f64::from(i % 3)]).collect();
        near(p99(&lone), 42.0, 1e-4);
    }

    #[test]
    fn without_parts_the_window_is_one_interval() {
        let mut whole = window(&vec![vec![5.3; 40]; 5]);
        whole.parts = crate::store::Parts::default();
        // 10.0 by rank alone.
        near(quantile(&whole, 0.99).unwrap().value, 5.3, 0.06);
        whole.sum = None;
        near(quantile(&whole, 1.0).unwrap().value, 10.0, 1e-9);
    }

    #[test]
    fn nonsense_stays_inside_the_bounds() {
        for sum in [0.0, -5.0, 1e9, f64::NAN, f64::INFINITY] {
            let mut whole = window(&[vec![0.2, 0.4, 3.0], vec![3.0]]);
            whole.parts = crate::store::Parts::default();
            whole.sum = Some(sum);
            for q in [0.01, 0.5, 1.0] {
                let got = quantile(&whole, q).unwrap();
                assert!(got.lo <= got.value && got.hi.is_none_or(|hi| got.value <= hi), "{sum} {got:?}");
            }
        }
    }

    #[test]
    fn the_normal_distribution_is_that_of_the_tables() {
        for (z, share) in [(0.0, 0.5), (1.0, 0.841_344_7), (-1.96, 0.024_997_9), (3.0, 0.998_650_1), (-40.0, 0.0)] {
            assert!((below(z) - share).abs() < 2e-7, "{z}: {}", below(z));
        }
        near(between(5.0, 6.0), 2.8567e-7, 0.05);
    }

    proptest! {
        #[test]
        fn it_is_inside_the_bounds_and_does_not_fall(
            intervals in prop::collection::vec(prop::collection::vec(0.0001f64..30.0, 0..9), 1..90),
            a in 0.01f64..1.0, b in 0.01f64..1.0,
        ) {
            let window = window(&intervals);
            prop_assume!(window.n > 0);
            let (low, high) = (quantile(&window, a.min(b)).unwrap(), quantile(&window, a.max(b)).unwrap());
            for got in [low, high] {
                prop_assert!(got.value.is_finite() && got.lo <= got.value && got.hi.is_none_or(|hi| got.value <= hi), "{:?}", got);
            }
            prop_assert!(low.value <= high.value, "{:?} {:?}", low, high);
        }
    }
}
