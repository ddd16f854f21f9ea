//! Whether the client was the limit: how late it was, how busy, and what that says.
//!
//! It must not know what a request is. All moments and lags are µs unless the name says otherwise.

use hdrhistogram::Histogram;
use rustix::time::{ClockId, clock_gettime};

use crate::load::level::{Client, Lag};
use crate::load::rank::enough;

/// A client later than this may have been the limit, s …
const LATE_S: f64 = 1e-3;
/// … unless it is less than this share of the median TTFT, which it then does not bend.
const LATE_OF_TTFT: f64 = 0.01;
/// CPU of one core above which the one thread of the client has nothing left, %.
const BUSY_PCT: f64 = 85.0;

/// How late something was, again and again.
#[derive(Debug)]
pub(super) struct Lags(Option<Histogram<u64>>);

impl Lags {
    /// Nothing yet. Lags are kept to 0.1 %, up to an hour.
    pub(super) fn new() -> Self {
        Self(Histogram::new_with_bounds(1, 3_600_000_000, 3).ok())
    }
    /// It was so late once more.
    pub(super) fn add(&mut self, micros: u64) {
        if let Some(kept) = &mut self.0 {
            kept.saturating_record(micros);
        }
    }
    /// What it came to.
    pub(super) fn lag(&self) -> Lag {
        let Some(kept) = self.0.as_ref().filter(|kept| !kept.is_empty()) else { return Lag::default() };
        let seconds = |micros: u64| Some(micros as f64 / 1e6);
        Lag {
            n: kept.len(),
            p50: seconds(kept.value_at_quantile(0.5)),
            p99: seconds(kept.value_at_quantile(0.99)).filter(|_| enough(0.99, kept.len())),
            max: seconds(kept.max()),
        }
    }
}

/// How many requests are in flight.
#[derive(Debug, Default)]
pub(super) struct Flight {
    /// Now.
    pub(super) now: u64,
    most: u64,
    changed: u64,
    /// Requests in flight × µs since `from`.
    area: u128,
    from: Option<u64>,
    to: Option<u64>,
}

impl Flight {
    /// One more.
    pub(super) fn begin(&mut self, at: u64) {
        self.pass(at);
        self.now += 1;
        if self.to.is_none() {
            self.most = self.most.max(self.now);
        }
    }
    /// One less.
    pub(super) fn end(&mut self, at: u64) {
        self.pass(at);
        self.now = self.now.saturating_sub(1);
    }
    /// The mean counts from here on.
    pub(super) fn measure_from(&mut self, at: u64) {
        self.pass(at);
        (self.area, self.from, self.most) = (0, Some(at), self.now);
    }
    /// … up to here.
    pub(super) fn measure_to(&mut self, at: u64) {
        self.pass(at);
        self.to = Some(at);
    }
    fn pass(&mut self, at: u64) {
        if self.to.is_none() {
            self.area += u128::from(at.saturating_sub(self.changed)) * u128::from(self.now);
        }
        self.changed = at;
    }
    /// Mean over the measured time until `at`.
    fn mean(&self, at: u64) -> Option<f64> {
        let (from, to) = (self.from?, self.to.unwrap_or(at));
        let last =
            if self.to.is_none() { u128::from(at.saturating_sub(self.changed)) * u128::from(self.now) } else { 0 };
        (to > from).then(|| (self.area + last) as f64 / (to - from) as f64)
    }
}

/// What proves that the client was not the limit of a level, or that it may have been.
#[derive(Debug)]
pub(super) struct Proof {
    /// From the intended start of a request, or the moment it had a place, to its dispatch.
    pub(super) dispatch: Lags,
    /// Of the event loop.
    pub(super) ticks: Lags,
    /// Requests in flight.
    pub(super) flight: Flight,
    cpu: fn() -> Option<u64>,
    from: Option<(u64, u64)>,
    to: Option<(u64, u64)>,
}

impl Proof {
    /// Nothing yet; `cpu` tells the CPU time that this process has taken, ns.
    pub(super) fn new(cpu: fn() -> Option<u64>) -> Self {
        Self { dispatch: Lags::new(), ticks: Lags::new(), flight: Flight::default(), cpu, from: None, to: None }
    }
    /// It counts from here on.
    pub(super) fn measure_from(&mut self, at: u64) {
        self.flight.measure_from(at);
        self.from = (self.cpu)().map(|cpu| (at, cpu));
    }
    /// … up to here.
    pub(super) fn measure_to(&mut self, at: u64) {
        self.flight.measure_to(at);
        self.to = (self.cpu)().map(|cpu| (at, cpu));
    }
    /// What it is until now, µs, beside a median TTFT, s.
    pub(super) fn client(&self, now: u64, ttft_p50: Option<f64>) -> Client {
        let mut client = Client {
            dispatch_lag: self.dispatch.lag(),
            loop_lag: self.ticks.lag(),
            cpu_pct: self.cpu_pct(now),
            in_flight: self.flight.mean(now),
            most_in_flight: self.flight.most,
            ..Client::default()
        };
        client.limits = limits(&client, ttft_p50);
        client
    }
    fn cpu_pct(&self, now: u64) -> Option<f64> {
        let (from, before) = self.from?;
        let (to, after) = self.to.or_else(|| (self.cpu)().map(|cpu| (now, cpu)))?;
        (to > from).then(|| after.saturating_sub(before) as f64 / 1000.0 / (to - from) as f64 * 100.0)
    }
}

/// So much later than a P99 may the largest of too few lags be: a thread that is kept waiting once by a busy machine.
const LARGEST: f64 = 5.0;

/// Why the client may have been the limit.
fn limits(client: &Client, ttft_p50: Option<f64>) -> Vec<String> {
    let most = LATE_S.max(LATE_OF_TTFT * ttft_p50.unwrap_or(0.0));
    let late = |what: &str, lag: &Lag| {
        // Of too few for a P99 the largest tells; that one, which bends no median, is allowed more.
        let p99 = lag.p99.map(|p99| ("P99", p99, most));
        let (which, worst, most) = p99.or_else(|| Some(("at most", lag.max?, most * LARGEST)))?;
        (worst > most).then(|| format!("{what}: {which} {:.2} ms, above {:.2} ms", worst * 1e3, most * 1e3))
    };
    let busy = client.cpu_pct.filter(|pct| *pct > BUSY_PCT);
    [
        late("requests began late", &client.dispatch_lag),
        late("the event loop was late", &client.loop_lag),
        busy.map(|pct| format!("the client took {pct:.0} % of one core, above {BUSY_PCT:.0} %")),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// CPU time that this process has taken, ns.
pub(super) fn cpu_ns() -> Option<u64> {
    let taken = clock_gettime(ClockId::ProcessCPUTime);
    Some(u64::try_from(taken.tv_sec).ok()? * 1_000_000_000 + u64::try_from(taken.tv_nsec).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_in_flight_is_weighted_with_time_and_ends_with_the_measured_time() {
        let mut flight = Flight::default();
        flight.begin(0);
        flight.begin(500);
        flight.begin(600);
        flight.end(700);
        flight.measure_from(1_000);
        assert_eq!((flight.mean(1_000), flight.most), (None, 2));
        flight.end(1_250);
        flight.begin(1_750);
        flight.begin(1_900);
        flight.end(1_900);
        assert_eq!(flight.mean(2_000), Some(1.5));
        flight.measure_to(2_000);
        flight.begin(2_500);
        assert_eq!((flight.mean(9_000), flight.most), (Some(1.5), 3));
    }

    #[test]
    fn a_client_that_was_late_or_busy_says_by_how_much() {
        let mut proof = Proof::new(|| Some(0));
        for lag in [900, 950, 990] {
            proof.dispatch.add(lag);
            proof.ticks.add(lag);
        }
        assert!(proof.client(0, None).limits.is_empty());
        proof.dispatch.add(12_500);
        proof.ticks.add(6_000);
        let words = [
            "requests began late: at most 12.50 ms, above 5.00 ms",
            "the event loop was late: at most 6.00 ms, above 5.00 ms",
        ];
        assert_eq!(proof.client(0, Some(0.05)).limits, words);
        // What is late by less than 1 % of the TTFT does not bend it.
        assert_eq!(proof.client(0, Some(0.2)).limits, ["requests began late: at most 12.50 ms, above 10.00 ms"]);
        assert!(proof.client(0, Some(0.3)).limits.is_empty());
        let lag = proof.client(0, None).dispatch_lag;
        assert_eq!((lag.n, lag.p99), (4, None));
        assert!((lag.p50.unwrap() - 950e-6).abs() < 1e-6 && (lag.max.unwrap() - 12.5e-3).abs() < 13e-6, "{lag:?}");
    }

    #[test]
    fn a_p99_takes_as_many_as_one_needs() {
        let mut proof = Proof::new(|| Some(0));
        (0..367).for_each(|_| proof.dispatch.add(100));
        proof.dispatch.add(9_000);
        let client = proof.client(0, None);
        assert!(client.dispatch_lag.p99.is_some_and(|p99| p99 < 1e-3) && client.limits.is_empty(), "{client:?}");
        let mut few = Proof::new(|| Some(0));
        (0..366).for_each(|_| few.dispatch.add(100));
        few.dispatch.add(9_000);
        let client = few.client(0, None);
        assert_eq!((client.dispatch_lag.p99, client.limits.len()), (None, 1));
    }

    #[test]
    fn cpu_counts_in_the_measured_time_only() {
        use std::sync::atomic::{AtomicU64, Ordering};
        static CPU: AtomicU64 = AtomicU64::new(5_000_000_000);
        let mut proof = Proof::new(|| Some(CPU.load(Ordering::Relaxed)));
        assert_eq!(proof.client(1_000_000, None).cpu_pct, None);
        proof.measure_from(1_000_000);
        CPU.fetch_add(900_000_000, Ordering::Relaxed);
        proof.measure_to(2_000_000);
        CPU.fetch_add(900_000_000, Ordering::Relaxed);
        let client = proof.client(9_000_000, None);
        assert_eq!(client.cpu_pct, Some(90.0));
        assert_eq!(client.limits, ["the client took 90 % of one core, above 85 %"]);
        assert_eq!(Proof::new(|| None).client(1, None).cpu_pct, None);
        assert!(cpu_ns().is_some_and(|taken| taken > 0));
    }
}
