//! Whether requests pile up before a server: those that wait for a place and those in flight, by what came and not by what
//! ended.
//!
//! [`super::saturation`] is judged from requests that ended; where few do, it has nothing to judge. Here it is enough
//! that requests came. They are called piled up when at the end of a time more are there than the requests per second ×
//! `EXPLAINED` × what a request took early on explain (Little's law), and their number grew through both halves of that
//! time, did not level off as one does that fills up, and grew by more than chance leaves behind where as many go as
//! come. It must not know a clock. Invariants: memory grows with requests that ended and else is bounded; a time in whose
//! first half nothing ended well is not judged.

use super::saturation::CHANCE;

/// Times the requests that Little's law gives, …
const EXPLAINED: f64 = 2.0;
/// … and so many more, which may come by chance at any moment.
const FEW: f64 = 10.0;
/// In the second half it must have grown by this share of what it grew by in the first.
const GOES_ON: f64 = 0.5;
/// Looks that are kept; then every other one is forgotten, and only half as many are kept from then on.
const MOST_KEPT: usize = 4096;
/// Looks that a time must have.
const FEWEST: usize = 16;
/// Time between two looks, µs, at first.
const STEP: u64 = 100_000;

/// What is remembered of an open loop.
#[derive(Debug)]
pub struct Backlog {
    /// Requests per second that come.
    rate: f64,
    start: u64,
    /// When it was looked and how many requests were there.
    looks: Vec<(u64, f64)>,
    step: u64,
    /// When a request ended well and what it had taken, µs.
    ended: Vec<(u64, u64)>,
}

impl Backlog {
    /// Nothing yet: requests come at this rate per second from `start` on, µs.
    pub const fn new(rate: f64, start: u64) -> Self {
        Self { rate, start, looks: Vec::new(), step: STEP, ended: Vec::new() }
    }

    /// So many requests wait or are in flight.
    pub fn look(&mut self, at: u64, there: u64) {
        if self.looks.last().is_some_and(|(last, _)| at < last + self.step) {
            return;
        }
        if self.looks.len() >= MOST_KEPT {
            let mut is_kept = false;
            self.looks.retain(|_| {
                is_kept = !is_kept;
                is_kept
            });
            self.step *= 2;
        }
        self.looks.push((at, there as f64));
    }

    /// A request ended well that took so many µs.
    pub fn ended(&mut self, at: u64, took: u64) {
        self.ended.push((at, took));
    }

    /// Whether requests have piled up in this time, µs.
    pub fn is_piled_up(&self, from: u64, to: u64) -> bool {
        let length = to.saturating_sub(from);
        let within = |from: u64, to: u64| self.looks.iter().filter(move |(at, _)| (from..=to).contains(at));
        if within(from, to).count() < FEWEST {
            return false;
        }
        let mean = |from: u64, to: u64| {
            let n = within(from, to).count();
            (n > 0).then(|| within(from, to).map(|(_, there)| there).sum::<f64>() / n as f64)
        };
        let half = from + length / 2;
        let parts = (
            mean(from, from + length / 8),
            mean(half - length / 16, half + length / 16),
            mean(to - length / 8, to),
            self.took_s(self.start + to.saturating_sub(self.start) / 2),
        );
        let (Some(first), Some(middle), Some(last), Some(took_s)) = parts else { return false };
        let (early, late) = (middle - first, last - middle);
        // Comings, and goings of all that came.
        let moves = 2.0 * self.rate * length as f64 / 1e6;
        let explained = EXPLAINED * self.rate * took_s + FEW;
        early > 0.0 && late >= GOES_ON * early && early + late >= CHANCE * moves.sqrt() && last > explained
    }

    /// Median of what requests took that ended before this moment, s. Of later ones it may have grown with the pile.
    fn took_s(&self, before: u64) -> Option<f64> {
        let mut took: Vec<u64> = self.ended.iter().filter(|(at, _)| *at <= before).map(|(_, took)| *took).collect();
        let middle = took.len() / 2;
        (!took.is_empty()).then(|| *took.select_nth_unstable(middle).1 as f64 / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    /// A queue with one server, at random where a seed is given: so many come and go per second. Judged once, from 5 s to
    /// 25 s; `cap`: as many are in flight at most, so that a request takes no longer than these.
    fn queue(seed: Option<u64>, come: f64, go: f64, cap: usize) -> bool {
        let mut random = fastrand::Rng::with_seed(seed.unwrap_or(0));
        let mut pause = |rate: f64| if seed.is_some() { -(1.0 - random.f64()).ln() / rate * 1e6 } else { 1e6 / rate };
        let mut backlog = Backlog::new(come, 0);
        let (mut comes, mut free) = (0.0, 0.0_f64);
        let mut ends: Vec<(f64, f64)> = Vec::new();
        loop {
            comes += pause(come);
            if comes > 25e6 {
                break;
            }
            free = free.max(comes) + pause(go);
            ends.push((comes, free));
        }
        for (i, (came, end)) in ends.iter().enumerate() {
            let place = if i >= cap { ends[i - cap].1.max(*came) } else { *came };
            if *end <= 25e6 {
                backlog.ended(*end as u64, (end - place) as u64);
            }
        }
        for at in (0..=25 * SECOND).step_by(10_000) {
            let there = ends.iter().filter(|(came, end)| *came <= at as f64 && *end > at as f64).count();
            backlog.look(at, there as u64);
        }
        backlog.is_piled_up(5 * SECOND, 25 * SECOND)
    }

    #[test]
    fn queues_that_keep_pace_are_hardly_ever_called_piled_up() {
        let wrong = (0..200).filter(|seed| queue(Some(*seed), 14.0, 20.0, usize::MAX)).count();
        assert!(wrong < 2, "{wrong} of 200 runs at 70 %");
        let wrong = (0..100).filter(|seed| queue(Some(*seed), 18.0, 20.0, usize::MAX)).count();
        assert!(wrong <= 5, "{wrong} of 100 runs at 90 %");
        assert_eq!((0..50).filter(|seed| queue(Some(*seed), 14.0, 20.0, 8)).count(), 0, "of 50 at the cap");
    }

    #[test]
    fn queues_that_get_more_than_is_served_are() {
        // Few end: it is seen by those that came.
        for (come, go, cap) in [(10.0, 2.0, 1), (10.0, 2.0, usize::MAX), (30.0, 10.0, usize::MAX), (30.0, 10.0, 8)] {
            assert!(queue(None, come, go, cap), "{come} of {go} at most {cap}");
            assert!((0..50).all(|seed| queue(Some(seed), come, go, cap)), "{come} of {go} at most {cap}, at random");
        }
    }

    /// 10 requests/s that each take so many s: as many as that are in flight after it.
    #[test]
    fn filling_up_is_none() {
        for took in [1, 6, 12, 18, 24, 60] {
            let mut backlog = Backlog::new(10.0, 0);
            for i in 0..=250 {
                let at = i * 100_000;
                backlog.look(at, i.min(took * 10));
                if i >= took * 10 {
                    backlog.ended(at, took * SECOND);
                }
            }
            assert!(!backlog.is_piled_up(5 * SECOND, 25 * SECOND), "{took} s");
        }
    }

    #[test]
    fn memory_is_bounded() {
        let mut backlog = Backlog::new(10.0, 0);
        (0..100_000).for_each(|i| backlog.look(i * STEP, i));
        assert!(backlog.looks.len() <= MOST_KEPT && backlog.looks.len() >= MOST_KEPT / 4);
        assert!(backlog.looks.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert!(!backlog.is_piled_up(0, 10_000_000_000), "nothing ended");
    }
}
