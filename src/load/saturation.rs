//! Whether an open loop brings more than is served, so that there is no steady state to measure.
//!
//! As guidellm does (its scheduler/constraints/saturation.py): TTFT and the requests in flight must both grow with time,
//! each by a t-test on the slope of a straight line. Neighbouring requests are not independent, so such a test alone is
//! tripped by any busy moment; therefore the growth must also be material (`TTFT_GROWN`, `IN_FLIGHT_GROWN`), and more
//! requests must have stayed than chance leaves behind where as many go as come (`CHANCE`). Filling up is not
//! saturation: what was dispatched in the first moments is left out (`FILLING`). It must not know a clock. Invariants:
//! memory is bounded; it is judged from requests that ended well and nothing else.

use std::collections::VecDeque;

/// Least time that is judged, µs, …
const LEAST: u64 = 5_000_000;
/// … and least number of requests.
const LEAST_REQUESTS: usize = 30;
/// Most time that is judged, µs: guidellm's `maximum_window_seconds`, 120.
const MOST: u64 = 120_000_000;
/// Share of the time so far that is judged, its latest part: guidellm's `maximum_window_ratio`, there of the requests.
const LATEST: f64 = 0.75;
/// The time until a system with many places is full is about its longest E2E. That is not known yet; it is taken for
/// this many times the longest of the first [`FIRST`] to end.
const FILLING: u64 = 3;
const FIRST: usize = 10;
/// Student's t, one-sided, 1 %, for 28 degrees of freedom ([`LEAST_REQUESTS`] − 2); more have less.
const T: f64 = 2.467;
/// TTFT must become this many times what it was at the start of the time that is judged.
const TTFT_GROWN: f64 = 2.0;
/// Requests in flight likewise.
const IN_FLIGHT_GROWN: f64 = 1.5;
/// Where as many requests go as come, both at random, the requests in flight are a random walk: after so many comings
/// and goings they are off by the root of that number, and by this many times as much in one of 100 cases.
pub(super) const CHANCE: f64 = 2.33;
/// Requests that are remembered.
const MOST_KEPT: usize = 20_000;

/// What is remembered of the requests of a level.
#[derive(Debug, Default)]
pub struct Saturation {
    first: Option<u64>,
    in_flight: u32,
    /// When a request was dispatched, and how many were in flight with it.
    sent: VecDeque<(u64, u32)>,
    ended: VecDeque<Served>,
    first_e2e: Vec<u64>,
}

/// A request that ended well: when it should have begun, was dispatched and had its first content, µs.
#[derive(Clone, Copy, Debug)]
struct Served {
    intended: u64,
    dispatched: u64,
    first_content: u64,
}

impl Saturation {
    /// A request was dispatched, µs.
    pub fn sent(&mut self, at: u64) {
        self.first.get_or_insert(at);
        self.in_flight += 1;
        keep(&mut self.sent, (at, self.in_flight));
    }

    /// A request ended, however.
    pub fn ended(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// One of those ended well: when it should have begun, was dispatched, had its first content and ended, µs.
    pub fn served(&mut self, intended: u64, dispatched: u64, first_content: u64, end: u64) {
        if self.first_e2e.len() < FIRST {
            self.first_e2e.push(end.saturating_sub(dispatched));
        }
        keep(&mut self.ended, Served { intended, dispatched, first_content });
    }

    /// From when on requests are judged, µs.
    fn start(&self, last: u64) -> Option<u64> {
        let first = self.first?;
        let full = first.saturating_add(self.first_e2e.iter().max()?.saturating_mul(FILLING));
        let latest = last - (last.saturating_sub(first) as f64 * LATEST) as u64;
        Some(full.max(latest).max(last.saturating_sub(MOST)))
    }

    /// Whether more comes than is served.
    pub fn is_over(&self) -> bool {
        let last = self.ended.iter().map(|served| served.dispatched).max();
        let Some((start, last)) = last.and_then(|last| Some((self.start(last)?, last))) else { return false };
        let judged = || self.ended.iter().filter(|served| served.dispatched >= start);
        if judged().count() < LEAST_REQUESTS || last.saturating_sub(start) < LEAST {
            return false;
        }
        // TTFT from the intended start: where requests are held back, that is where the growth is.
        let at = |moment: u64| (moment - start) as f64 / 1e6;
        let ttft = judged()
            .map(|served| (at(served.dispatched), served.first_content.saturating_sub(served.intended) as f64 / 1e6));
        if !Line::through(ttft).is_some_and(|line| line.rises() && line.grows(TTFT_GROWN)) {
            return false;
        }
        // Those in flight are known up to now; those held back before them only of requests that ended.
        let in_flight = self.sent.iter().filter(|(sent, _)| *sent >= start).map(|(sent, n)| (at(*sent), f64::from(*n)));
        let queued = judged().filter_map(|served| Some((at(served.dispatched), f64::from(self.present(served)?))));
        [Line::through(in_flight), Line::through(queued)].into_iter().flatten().any(|line| line.accumulates())
    }

    /// How many requests were there when this one was dispatched: in flight, and before it in the queue for a place among
    /// them. Those went out between its intended start and its dispatch.
    fn present(&self, served: &Served) -> Option<u32> {
        let its_own = self.sent.partition_point(|(at, _)| *at <= served.dispatched).checked_sub(1)?;
        let came = self.sent.partition_point(|(at, _)| *at <= served.intended);
        Some(self.sent[its_own].1 + its_own.saturating_sub(came) as u32)
    }
}

fn keep<T>(ring: &mut VecDeque<T>, value: T) {
    if ring.len() >= MOST_KEPT {
        ring.pop_front();
    }
    ring.push_back(value);
}

/// A straight line by least squares.
#[derive(Clone, Copy, Debug)]
struct Line {
    n: f64,
    start: f64,
    slope: f64,
    /// Standard error of the slope.
    error: f64,
    /// Where the points end.
    end: f64,
}

impl Line {
    /// `None` where the points make none.
    fn through(points: impl Iterator<Item = (f64, f64)> + Clone) -> Option<Self> {
        let (mut n, mut x, mut y, mut end) = (0.0, 0.0, 0.0, 0.0_f64);
        for point in points.clone() {
            end = end.max(point.0);
            n += 1.0;
            x += point.0;
            y += point.1;
        }
        let (x, y) = (x / n, y / n);
        let (mut xx, mut xy, mut yy) = (0.0, 0.0, 0.0);
        for point in points {
            let (dx, dy) = (point.0 - x, point.1 - y);
            xx += dx * dx;
            xy += dx * dy;
            yy += dy * dy;
        }
        if n < 3.0 || xx <= 0.0 {
            return None;
        }
        let slope = xy / xx;
        let rest = (yy - slope * xy).max(0.0);
        Some(Self { n, start: y - slope * x, slope, error: (rest / (n - 2.0) / xx).sqrt(), end })
    }

    fn at(&self, x: f64) -> f64 {
        self.start + self.slope * x
    }

    /// Whether it rises, and not by chance if points were independent.
    fn rises(&self) -> bool {
        self.slope > 0.0 && self.slope >= T * self.error
    }

    /// Whether it ends at so many times what it starts at.
    fn grows(&self, times: f64) -> bool {
        self.at(self.end) >= times * self.at(0.0)
    }

    /// Of numbers of requests that are there, one for each that came: whether so many stayed that chance did not do it.
    fn accumulates(&self) -> bool {
        let gained = self.at(self.end) - self.at(0.0);
        // What came and did not stay has gone.
        let moves = (2.0 * self.n - gained).max(1.0);
        self.rises() && self.grows(IN_FLIGHT_GROWN) && gained >= CHANCE * moves.sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests of a queue with one server by Lindley's recursion: moments between them and times to serve one are
    /// exponential, so many per second. Calls `each` at each full second of virtual time with the verdict; ends when that
    /// says so.
    fn queue(seed: u64, come: f64, go: f64, most_in_flight: usize, mut each: impl FnMut(u64, bool) -> bool) {
        const SECOND: u64 = 1_000_000;
        let mut random = fastrand::Rng::with_seed(seed);
        let mut saturation = Saturation::default();
        let mut pause = |rate: f64| -(1.0 - random.f64()).ln() / rate * 1e6;
        let (mut comes, mut free, mut second) = (0.0, 0.0_f64, 1);
        // Intended, dispatched, end: of those in flight.
        let mut open: VecDeque<(u64, u64, u64)> = VecDeque::new();
        loop {
            comes += pause(come);
            let intended = comes as u64;
            // A place among those in flight is there when the first of them ends.
            let mut dispatched = intended;
            while let Some(&(its_intended, its_dispatched, end)) = open.front()
                && (end <= dispatched || open.len() >= most_in_flight)
            {
                while second * SECOND < end {
                    if each(second, saturation.is_over()) {
                        return;
                    }
                    second += 1;
                }
                open.pop_front();
                dispatched = dispatched.max(end);
                saturation.ended();
                saturation.served(its_intended, its_dispatched, end, end);
            }
            while second * SECOND < dispatched {
                if each(second, saturation.is_over()) {
                    return;
                }
                second += 1;
            }
            saturation.sent(dispatched);
            free = free.max(dispatched as f64) + pause(go);
            open.push_back((intended, dispatched, free as u64));
        }
    }

    /// When it was first found to be over, s; `None`: not within `most`.
    fn found(seed: u64, come: f64, go: f64, most_in_flight: usize, most: u64) -> Option<u64> {
        let mut at = None;
        queue(seed, come, go, most_in_flight, |second, over| {
            at = over.then_some(second);
            over || second >= most
        });
        at
    }

    #[test]
    fn a_stable_queue_is_hardly_ever_called_saturated() {
        let wrong = (0..200).filter(|seed| found(*seed, 14.0, 20.0, usize::MAX, 60).is_some()).count();
        assert!(wrong < 2, "{wrong} of 200 runs at 70 %");
    }

    #[test]
    fn a_queue_that_is_nearly_full_is_rarely_called_saturated() {
        let wrong = (0..100).filter(|seed| found(*seed, 18.0, 20.0, usize::MAX, 60).is_some()).count();
        assert!(wrong <= 5, "{wrong} of 100 runs at 90 %");
    }

    #[test]
    fn a_queue_that_gets_more_than_it_serves_is_found_within_half_a_minute() {
        let missed: Vec<u64> = (0..100).filter(|seed| found(*seed, 26.0, 20.0, usize::MAX, 30).is_none()).collect();
        assert!(missed.len() <= 1, "not found at 130 %: seeds {missed:?}");
    }

    #[test]
    fn requests_that_are_held_back_at_the_cap_are_seen_too() {
        // At most 8 in flight: those and their TTFT do not grow; the queue before them does.
        let missed: Vec<u64> = (0..50).filter(|seed| found(*seed, 30.0, 20.0, 8, 30).is_none()).collect();
        assert!(missed.len() <= 1, "not found at 150 %: seeds {missed:?}");
        let wrong = (0..50).filter(|seed| found(*seed, 14.0, 20.0, 8, 60).is_some()).count();
        assert_eq!(wrong, 0, "of 50 runs at 70 %");
    }

    /// A server with room for all, 10 requests/s; `e2e(n)` and `ttft(n)` in µs with n in flight.
    fn roomy(ttft: impl Fn(u64) -> u64, e2e: impl Fn(u64) -> u64) -> Option<u64> {
        let mut saturation = Saturation::default();
        let mut open: Vec<(u64, u64, u64)> = Vec::new();
        for i in 0..1200 {
            let now = i * 100_000;
            let mut gone: Vec<_> = open.extract_if(.., |(_, _, end)| *end <= now).collect();
            gone.sort_by_key(|(_, _, end)| *end);
            for (dispatched, first, end) in gone {
                saturation.ended();
                saturation.served(dispatched, dispatched, first, end);
            }
            if i % 10 == 0 && saturation.is_over() {
                return Some(i / 10);
            }
            saturation.sent(now);
            let n = open.len() as u64;
            open.push((now, now + ttft(n), now + e2e(n)));
        }
        None
    }

    #[test]
    fn a_server_that_fills_up_and_then_keeps_pace_is_not_saturated() {
        assert_eq!(roomy(|n| 50_000 + 5_000 * n, |n| 8_000_000 + 40_000 * n), None);
        // The same, but what it takes grows with what is in flight so that it never keeps pace.
        let over = roomy(|n| 50_000 + 20_000 * n, |n| 2_000_000 + 110_000 * n);
        assert!(over.is_some_and(|second| second < 120), "{over:?}");
    }

    #[test]
    fn growth_that_is_sure_but_small_is_none() {
        // TTFT creeps up by 10 % without any noise, as when a cache fills.
        let mut saturation = Saturation::default();
        for i in 0..2000_u64 {
            saturation.sent(i * 10_000);
            saturation.served(i * 10_000, i * 10_000, i * 10_000 + 100_000 + 5 * i, i * 10_000 + 200_000);
        }
        assert!(!saturation.is_over(), "nobody leaves, but TTFT has not doubled");
        let mut steep = Saturation::default();
        for i in 0..2000_u64 {
            steep.sent(i * 10_000);
            steep.served(i * 10_000, i * 10_000, i * 10_000 + 100_000 + 500 * i, i * 10_000 + 200_000);
        }
        assert!(steep.is_over());
    }

    #[test]
    fn a_line_and_its_standard_error_are_as_computed_by_hand() {
        // x 0 1 2 3, y 1 3 2 5: mean 1.5 and 2.75, slope 5.5 ÷ 5, rest 8.75 − 1.1 · 5.5 = 2.7.
        let line = Line::through([(0.0, 1.0), (1.0, 3.0), (2.0, 2.0), (3.0, 5.0)].into_iter()).unwrap();
        assert!((line.slope - 1.1).abs() < 1e-12 && (line.at(0.0) - 1.1).abs() < 1e-12, "{line:?}");
        assert!((line.error - (2.7_f64 / 2.0 / 5.0).sqrt()).abs() < 1e-12 && !line.rises(), "{line:?}");
        assert!(Line::through([(1.0, 1.0); 5].into_iter()).is_none());
    }

    #[test]
    fn memory_is_bounded() {
        let mut saturation = Saturation::default();
        for i in 0..MOST_KEPT as u64 + 10 {
            saturation.sent(i);
            saturation.ended();
            saturation.served(i, i, i, i);
        }
        assert_eq!((saturation.sent.len(), saturation.ended.len(), saturation.in_flight), (MOST_KEPT, MOST_KEPT, 0));
    }
}
