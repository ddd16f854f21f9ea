//! Three ways to time launches, and the round trip.
//!
//! It must not know which kernels these are. Invariants: nothing but the driver's calls is between two looks at the
//! clock; the device is never kept busy for more than some ms at a time; a measurement that was not what it ought to be
//! is left out, and counted.

use std::sync::Arc;

use crate::model::Clock;
use crate::probe::cuda::{Arg, Graph, Grid, Kernel, Stream};
use crate::probe::plan::{Plan, Series};
use crate::probe::{Failure, Link};

/// Kernels that wait in a queue, at most: the driver takes about a thousand before its calls wait.
const QUEUE: u32 = 512;
/// Measurements of a call in a pass: one takes a millisecond or less.
const ROUNDS: u32 = 4;
/// Longest that the device is held, µs.
const HOLD_MOST_US: f64 = 4_000.0;
/// Shortest: the event behind it has to be given as well.
const HOLD_LEAST_US: f64 = 100.0;
/// Attempts to fill the queue in time after which it is given up.
const ATTEMPTS: u32 = 20;

/// What is launched.
pub(super) enum Work<'a> {
    /// One kernel.
    Kernel { kernel: &'a Kernel, grid: Grid, args: &'a [Arg] },
    /// A graph of this many kernels.
    Graph { graph: &'a Graph, nodes: u32 },
}

impl Work<'_> {
    /// Kernels of one launch.
    pub(super) const fn kernels(&self) -> u32 {
        match self {
            Self::Kernel { .. } => 1,
            Self::Graph { nodes, .. } => *nodes,
        }
    }

    /// Launches that the queue holds.
    fn fit(&self) -> u32 {
        (QUEUE / self.kernels()).max(1)
    }

    fn give(&self, stream: &Stream, n: u32) -> Result<(), Failure> {
        match self {
            Self::Kernel { kernel, grid, args } => stream.launch_times(n, kernel, *grid, args),
            Self::Graph { graph, .. } => graph.launch_times(n),
        }
    }
}

/// A stream and a clock.
pub(super) struct Timer {
    stream: Stream,
    hold: Kernel,
    clock: Arc<dyn Clock>,
}

impl Timer {
    /// `hold` is a kernel that takes as many ns as it is told.
    pub(super) fn new(stream: &Stream, hold: Kernel, clock: Arc<dyn Clock>) -> Self {
        Self { stream: stream.clone(), hold, clock }
    }

    fn us(&self, work: impl FnOnce() -> Result<(), Failure>) -> Result<f64, Failure> {
        let start = self.clock.nanos();
        work()?;
        Ok(self.clock.nanos().saturating_sub(start) as f64 / 1e3)
    }

    /// Time from the first of `n` launches until the device is done with all of them, µs.
    pub(super) fn until_done(&self, work: &Work<'_>, n: u32) -> Result<f64, Failure> {
        self.stream.finish()?;
        self.us(|| {
            work.give(&self.stream, n)?;
            self.stream.finish()
        })
    }

    /// Time of one launch and the wait for it, the mean of `n`, µs.
    pub(super) fn trips(&self, work: &Work<'_>, n: u32) -> Result<f64, Failure> {
        self.stream.finish()?;
        let us = self.us(|| {
            (0..n).try_for_each(|_| {
                work.give(&self.stream, 1)?;
                self.stream.finish()
            })
        })?;
        Ok(us / f64::from(n))
    }

    /// Time of the driver's call for one launch while the queue has room, and how long all of it took, µs.
    pub(super) fn calls(&self, work: &Work<'_>) -> Result<(f64, f64), Failure> {
        let (mut calls, n) = (0.0, work.fit());
        let all = self.us(|| {
            for _ in 0..ROUNDS {
                calls += self.us(|| work.give(&self.stream, n))?;
                self.stream.finish()?;
            }
            Ok(())
        })?;
        Ok((calls / f64::from(n * ROUNDS), all))
    }

    /// Time that the device takes for each kernel when all of them are there before it begins, µs. A call takes the host
    /// `call_us`. Also how often the queue was not full in time: those are no measurements.
    pub(super) fn held(
        &self,
        link: &mut Link,
        plan: &mut Plan,
        series: Series<'_>,
        work: &Work<'_>,
        call_us: f64,
    ) -> Result<(Vec<f64>, u32), Failure> {
        let n = launches(work.fit(), call_us);
        let mut hold_us = hold(n, call_us);
        let (mut values, mut missed, mut spent) = (Vec::new(), 0, 0.0);
        // One that warms up.
        self.once_held(work, n, hold_us)?;
        while (values.len() < 5 || spent < plan.seconds() * 1e6) && !(values.is_empty() && missed >= ATTEMPTS) {
            let (value, busy_us) = self.once_held(work, n, hold_us)?;
            spent += busy_us;
            if let Some(us) = value {
                let each = us / f64::from(n * work.kernels());
                values.push(each);
                link.sample(series.id, series.unit, each)?;
            } else {
                missed += 1;
                hold_us = (hold_us * 1.5).min(HOLD_MOST_US);
            }
            plan.tell(link, spent / 1e6 / plan.seconds(), series.what)?;
            link.rest(busy_us as u64)?;
        }
        plan.step();
        Ok((values, missed))
    }

    /// Gives the work while the device is held. Its time, unless the device was let go before all of it was there; and
    /// how long the device was busy, µs.
    fn once_held(&self, work: &Work<'_>, n: u32, hold_us: f64) -> Result<(Option<f64>, f64), Failure> {
        self.stream.finish()?;
        self.stream.launch(&self.hold, Grid::new(1, 1), &[Arg::U64((hold_us * 1e3) as u64)])?;
        let queued = self.stream.queue(|stream| work.give(stream, n))?;
        let us = queued.us()?;
        Ok(((!queued.late).then_some(us), us + hold_us))
    }
}

/// Launches that the host has given before the device must be let go.
fn launches(most: u32, call_us: f64) -> u32 {
    let within = (HOLD_MOST_US - HOLD_LEAST_US) / 2.0 / call_us.max(0.01);
    (within as u32).clamp(1, most)
}

/// How long the device is held while so many calls are made: twice what they take.
fn hold(n: u32, call_us: f64) -> f64 {
    (HOLD_LEAST_US + 2.0 * call_us * f64::from(n)).min(HOLD_MOST_US)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_is_held_as_long_as_the_host_needs_and_no_longer_than_allowed() {
        for (call_us, fit) in [(0.0, 512), (1.8, 512), (3.5, 512), (20.0, 97), (900.0, 2), (1e6, 1)] {
            let n = launches(512, call_us);
            assert_eq!(n, fit, "{call_us} µs a call");
            let held = hold(n, call_us);
            assert!((HOLD_LEAST_US..=HOLD_MOST_US).contains(&held), "{held}");
            assert!(held >= HOLD_MOST_US || held >= 2.0 * call_us * f64::from(n), "{call_us} µs a call");
        }
        assert_eq!(launches(1, 4.0), 1);
    }
}
