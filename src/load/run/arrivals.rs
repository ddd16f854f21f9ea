//! When the requests of an open loop should begin.
//!
//! Times come from the schedule alone: nothing that the server does moves them.

use crate::load::plan::Arrival;

/// A request that is to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Due {
    /// µs since the start of the level.
    pub(super) at: u64,
    /// Tokens of its prompt and its output, where they are given.
    pub(super) lengths: Option<(u32, u32)>,
}

/// The requests of one level, without end but for a trace's.
#[derive(Debug)]
pub(super) enum Arrivals {
    /// At equal distances, the first at once.
    Constant {
        /// Requests/s.
        rate: f64,
        /// How many have come.
        came: u64,
    },
    /// With gaps that are distributed exponentially, also before the first.
    Poisson {
        /// Requests/s.
        rate: f64,
        /// When the last came, s.
        at_s: f64,
        /// Where the gaps come from.
        random: fastrand::Rng,
    },
    /// As a trace says.
    Trace(std::vec::IntoIter<Arrival>),
}

impl Arrivals {
    /// Evenly, so many per second.
    pub(super) const fn constant(rate: f64) -> Self {
        Self::Constant { rate, came: 0 }
    }
    /// At random, so many per second on average.
    pub(super) fn poisson(rate: f64, seed: u64) -> Self {
        Self::Poisson { rate, at_s: 0.0, random: fastrand::Rng::with_seed(seed) }
    }
    /// Those of a trace, in the order of their times.
    pub(super) fn trace(arrivals: &[Arrival]) -> Self {
        let mut sorted = arrivals.to_vec();
        sorted.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
        Self::Trace(sorted.into_iter())
    }
}

impl Iterator for Arrivals {
    type Item = Due;

    fn next(&mut self) -> Option<Due> {
        match self {
            Self::Constant { rate, came } => {
                // From the count and not from the last one: rounding must not add up.
                let at_s = if *came == 0 { 0.0 } else { *came as f64 / *rate };
                *came += 1;
                Some(Due { at: micros(at_s), lengths: None })
            }
            Self::Poisson { rate, at_s, random } => {
                // 1 − [0, 1) is never 0, of which there is no logarithm.
                *at_s -= (1.0 - random.f64()).ln() / *rate;
                Some(Due { at: micros(*at_s), lengths: None })
            }
            Self::Trace(rest) => {
                let next = rest.next()?;
                Some(Due { at: micros(next.at_s), lengths: Some((next.prompt, next.output)) })
            }
        }
    }
}

/// Seconds as µs; what cannot be is never (infinite) or at once (negative).
fn micros(seconds: f64) -> u64 {
    (seconds * 1e6).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constant_arrivals_do_not_drift() {
        let at: Vec<u64> = Arrivals::constant(3.0).map(|due| due.at).take(3_000_001).collect();
        assert_eq!(at[..4], [0, 333_333, 666_667, 1_000_000]);
        assert_eq!(at[3_000_000], 1_000_000_000_000);
    }

    #[test]
    fn gaps_of_poisson_have_the_mean_and_the_spread_of_an_exponential_distribution() {
        let n = 100_000;
        let at: Vec<u64> = Arrivals::poisson(50.0, 7).map(|due| due.at).take(n).collect();
        let gaps: Vec<f64> = at.windows(2).map(|pair| (pair[1] - pair[0]) as f64 / 1e6).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        // Four standard errors: of the mean 1/√n, of the variance √(8/n) (fourth central moment 9/λ⁴).
        assert!((mean * 50.0 - 1.0).abs() < 4.0 / (n as f64).sqrt(), "{mean}");
        assert!((variance * 2_500.0 - 1.0).abs() < 4.0 * (8.0 / n as f64).sqrt(), "{variance}");
        let again: Vec<u64> = Arrivals::poisson(50.0, 7).map(|due| due.at).take(100).collect();
        assert_eq!(again, at[..100]);
        assert_ne!(Arrivals::poisson(50.0, 8).next(), Arrivals::poisson(50.0, 7).next());
    }

    #[test]
    fn a_trace_comes_in_order_with_its_lengths_and_ends() {
        let arrival = |at_s, prompt| Arrival { at_s, prompt, output: 5 };
        let due: Vec<Due> = Arrivals::trace(&[arrival(0.0, 1), arrival(2.5, 3), arrival(0.25, 2)]).collect();
        let expected = [(0, 1), (250_000, 2), (2_500_000, 3)];
        assert_eq!(due, expected.map(|(at, prompt)| Due { at, lengths: Some((prompt, 5)) }));
    }

    #[test]
    fn a_rate_of_nothing_brings_nothing_after_the_first() {
        let at: Vec<u64> = Arrivals::constant(0.0).map(|due| due.at).take(3).collect();
        assert_eq!(at, [0, u64::MAX, u64::MAX]);
        assert_eq!(Arrivals::poisson(0.0, 1).next(), Some(Due { at: u64::MAX, lengths: None }));
    }
}
