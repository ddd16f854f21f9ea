//! Quantiles of independent measurements, all of which are kept, with intervals that assume no distribution.
//!
//! The sample quantile q of n measurements is the one of rank ⌈q·n⌉. The number of measurements below the true quantile
//! is binomial (n, q), whatever they are distributed like; so the measurements of two ranks enclose it with at least 95 %
//! when neither tail of that binomial holds more than 2.5 %. It must not know what was measured. Invariant: a bound that
//! so few measurements cannot give is `None`.

use std::borrow::Cow;

use super::level::{Latency, Quantile};

/// What either tail may hold: 95 %, two-sided.
const TAIL: f64 = 0.025;
/// Terms of the binomial that are smaller, as a share of its largest, sum to less than a float can tell.
const NEGLIGIBLE: f64 = 1e-22;
/// So many new measurements are sorted in at once: sorting a long run with a short tail costs about a copy.
const FRESH: usize = 4096;

/// Measurements, s, in the order of their size.
#[derive(Debug, Default)]
pub struct Sample {
    sorted: Vec<f64>,
    fresh: Vec<f64>,
    sum: f64,
}

impl Sample {
    /// Takes one in.
    pub fn push(&mut self, value: f64) {
        self.sum += value;
        self.fresh.push(value);
        if self.fresh.len() >= FRESH {
            self.sorted.append(&mut self.fresh);
            self.sorted.sort_by(f64::total_cmp);
        }
    }

    /// All of them, the smallest first.
    fn in_order(&self) -> Cow<'_, [f64]> {
        if self.fresh.is_empty() {
            return Cow::Borrowed(&self.sorted);
        }
        let mut all = Vec::with_capacity(self.sorted.len() + self.fresh.len());
        all.extend_from_slice(&self.sorted);
        all.extend_from_slice(&self.fresh);
        // Stable: it finds the long run that is sorted already.
        all.sort_by(f64::total_cmp);
        Cow::Owned(all)
    }

    /// What they come to.
    pub fn latency(&self) -> Latency {
        let all = self.in_order();
        let n = all.len() as u64;
        Latency {
            n,
            mean: (n > 0).then(|| self.sum / n as f64),
            min: all.first().copied(),
            max: all.last().copied(),
            p50: quantile(&all, 0.5),
            p95: quantile(&all, 0.95),
            p99: quantile(&all, 0.99),
        }
    }
}

/// The sample quantile `q` (0 < q < 1) of measurements in the order of their size; `None` of none.
pub fn quantile(sorted: &[f64], q: f64) -> Option<Quantile> {
    let n = sorted.len() as u64;
    let at = |rank: u64| sorted.get((rank as usize).checked_sub(1)?).copied();
    let (lo, hi) = ranks(q, n);
    let value = at(rank(q, n))?;
    Some(Quantile { value, lo: lo.and_then(at), hi: hi.and_then(at), enough: lo.is_some() && hi.is_some() })
}

/// ⌈q·n⌉, at least 1; what a float adds to a whole number does not count.
fn rank(q: f64, n: u64) -> u64 {
    ((q * n as f64 - 1e-9).ceil() as u64).max(1)
}

/// Whether n measurements bound the quantile `q` from both sides: 6 for P50, 72 for P95, 368 for P99.
pub fn enough(q: f64, n: u64) -> bool {
    // The largest is not above it with probability qⁿ, the smallest not below it with (1 − q)ⁿ.
    let not_bounded = |share: f64| share.powf(n as f64) > TAIL;
    !not_bounded(q) && !not_bounded(1.0 - q)
}

/// The ranks, from 1, of the measurements that enclose the quantile `q` (0 < q < 1) of n with 95 %, 2.5 % on each side.
pub fn ranks(q: f64, n: u64) -> (Option<u64>, Option<u64>) {
    if n == 0 {
        return (None, None);
    }
    let (least, weights) = binomial(q, n);
    let most = least + weights.len() as u64 - 1;
    let tail = TAIL * weights.iter().sum::<f64>();
    let held = |weights: &mut dyn Iterator<Item = &f64>| {
        let mut sum = 0.0;
        weights
            .take_while(|weight| {
                sum += **weight;
                sum <= tail
            })
            .count() as u64
    };
    // P(K < lo) ≤ 2.5 %, P(K ≥ hi) ≤ 2.5 %: so much as the tails allow, and not a rank more.
    let lo = least + held(&mut weights.iter());
    let hi = most + 1 - held(&mut weights.iter().rev());
    ((lo >= 1).then_some(lo), (hi <= n).then_some(hi))
}

/// The terms of the binomial (n, q) that are not negligible, up to a common factor, and the first one's number. They are
/// computed from the largest outwards, each from its neighbour, which needs no factorial and overflows nowhere.
fn binomial(q: f64, n: u64) -> (u64, Vec<f64>) {
    let mode = (((n + 1) as f64 * q) as u64).min(n);
    let odds = q / (1.0 - q);
    let mut below = Vec::new();
    let (mut weight, mut k) = (1.0, mode);
    while k > 0 && weight > NEGLIGIBLE {
        weight *= k as f64 / ((n - k + 1) as f64 * odds);
        k -= 1;
        below.push(weight);
    }
    let least = k;
    below.reverse();
    below.push(1.0);
    let (mut weight, mut k) = (1.0, mode);
    while k < n && weight > NEGLIGIBLE {
        weight *= (n - k) as f64 * odds / (k + 1) as f64;
        k += 1;
        below.push(weight);
    }
    (least, below)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Exact, with whole numbers and fractions: in Python, for `comb` of `math` and `F` of `fractions`, the largest l with
    /// `F(sum(comb(n, k) * a**k * (b - a)**(n - k) for k in range(l)), b**n) <= F(25, 1000)` where q = a/b, and the
    /// smallest u with the same of `range(u, n + 1)`.
    #[test]
    fn the_ranks_are_those_of_exact_arithmetic() {
        let some = |l: u64, u: u64| (Some(l), Some(u));
        for (q, n, expected) in [
            (0.5, 0, (None, None)),
            (0.5, 5, (None, None)),
            (0.5, 6, some(1, 6)),
            (0.5, 7, some(1, 7)),
            (0.5, 10, some(2, 9)),
            (0.5, 20, some(6, 15)),
            (0.5, 100, some(40, 61)),
            (0.5, 368, some(165, 204)),
            (0.5, 5000, some(2431, 2570)),
            (0.95, 1, (None, None)),
            (0.95, 5, (Some(4), None)),
            (0.95, 71, (Some(63), None)),
            (0.95, 72, some(64, 72)),
            (0.95, 100, some(90, 100)),
            (0.95, 1000, some(936, 964)),
            (0.99, 1, (Some(1), None)),
            (0.99, 100, (Some(97), None)),
            (0.99, 367, (Some(359), None)),
            (0.99, 368, some(360, 368)),
            (0.99, 500, some(490, 500)),
            (0.99, 1000, some(983, 997)),
            (0.99, 2000, some(1971, 1989)),
            (0.99, 5000, some(4936, 4964)),
            (0.99, 10_000, some(9880, 9920)),
        ] {
            assert_eq!(ranks(q, n), expected, "q {q} n {n}");
        }
    }

    #[test]
    fn enough_is_where_both_bounds_are() {
        for q in [0.5, 0.95, 0.99] {
            for n in 0..600 {
                let (lo, hi) = ranks(q, n);
                assert_eq!(enough(q, n), lo.is_some() && hi.is_some(), "q {q} n {n}");
            }
        }
    }

    #[test]
    fn a_million_measurements_have_ranks_as_the_normal_distribution_says() {
        let (lo, hi) = ranks(0.5, 1_000_000);
        assert!(lo.unwrap().abs_diff(500_000 - 980) <= 1 && hi.unwrap().abs_diff(500_000 + 981) <= 1, "{lo:?} {hi:?}");
    }

    #[test]
    fn the_quantile_is_the_measurement_of_its_rank_in_whatever_order_they_came() {
        let mut sample = Sample::default();
        // 1 to 10 000, each once: 7 has no common divisor with 10 000. More than are kept unsorted.
        for i in 0..10_000_u32 {
            sample.push(f64::from(i * 7 % 10_000 + 1));
        }
        let got = sample.latency();
        assert_eq!((got.n, got.mean, got.min, got.max), (10_000, Some(5_000.5), Some(1.0), Some(10_000.0)));
        let p99 = got.p99.unwrap();
        assert_eq!((p99.value, p99.lo, p99.hi, p99.enough), (9_900.0, Some(9_880.0), Some(9_920.0), true));
        assert_eq!((got.p50.unwrap().value, got.p95.unwrap().value), (5_000.0, 9_500.0));
        let mut falling = Sample::default();
        (0..FRESH).for_each(|i| falling.push(-(i as f64)));
        assert_eq!(falling.latency().max, Some(0.0), "just sorted in, and none is fresh");
        assert_eq!(quantile(&[1.0, 2.0, 3.0], 0.5).map(|median| median.value), Some(2.0));
        assert_eq!(quantile(&[4.0], 0.99).unwrap(), Quantile { value: 4.0, lo: Some(4.0), hi: None, enough: false });
    }

    #[test]
    fn of_nothing_there_is_nothing() {
        assert_eq!(Sample::default().latency(), Latency::default());
    }

    /// 4000 samples of a lognormal-like distribution: the interval holds the true quantile in at least 95 % of them (97.5
    /// or a little more, as ranks are whole numbers), and in not so many that it would be too wide. Standard error: 0.35 %.
    #[test]
    fn the_interval_holds_the_true_quantile_as_often_as_it_says() {
        let mut random = fastrand::Rng::with_seed(5);
        for (q, n) in [(0.5, 40), (0.95, 200), (0.99, 500)] {
            // Monotone in a uniform number, so the true quantile is that of q.
            let value = |uniform: f64| (3.0 * uniform).exp() + 1.0 / (1.0 - uniform);
            let (mut held, mut below) = (0, 0);
            for _ in 0..4000 {
                let mut sample: Vec<f64> = (0..n).map(|_| value(random.f64())).collect();
                sample.sort_by(f64::total_cmp);
                let got = quantile(&sample, q).unwrap();
                held += i32::from(got.lo.unwrap() <= value(q) && value(q) <= got.hi.unwrap());
                below += i32::from(got.hi.unwrap() < value(q));
            }
            assert!((3760..=3960).contains(&held), "q {q}: {held} of 4000");
            assert!(below <= 130, "q {q}: {below} of 4000 below, at most 2.5 % expected");
        }
    }
}
