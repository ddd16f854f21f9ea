//! What warptop itself costs, once a second: a monitor must say what it takes.
//!
//! CPU time is that of each thread in nanoseconds (`schedstat`); `/proc/self/stat` counts in ticks of
//! 10 ms, which at one reading a second is 1 % of a core and would show 0 or 1, never 0.3.

use std::collections::HashMap;
use std::time::Duration;

use procfs::process::Process;
use procfs::{ProcError, ProcResult};

use crate::model::{Batch, Metric, SourceId, SourceState, Subject, Why};

use super::process::why;
use super::thread::{SECOND_VALID_MS, Ticker, start};
use super::{Context, Sampler};

pub(super) const SAMPLER: Sampler = Sampler {
    id: "cost",
    help: "CPU and resident memory of warptop itself, once a second",
    start: |context, _| start(context, SourceId::App, "warptop-cost", run),
};

fn run(context: &Context) {
    let mut batch = Batch::new(SourceId::App, context.clock.now(), SECOND_VALID_MS);
    let mut threads = Threads::default();
    let mut ticker = Ticker::new(context, Duration::from_secs(1));
    while ticker.wait() {
        let began = context.clock.micros();
        let cpu = cpu_times().map(|times| threads.share(began, times));
        batch.reset(context.clock.now());
        batch.push(Subject::App, Metric::AppCpu, cpu.unwrap_or_else(|error| Err(why(&error))));
        batch.push(Subject::App, Metric::AppRss, rss().map_err(|error| why(&error)));
        batch.took_us = u32::try_from(context.clock.micros() - began).unwrap_or(u32::MAX);
        batch.state = Some(SourceState::Ok);
        context.sink.send(&batch);
    }
}

/// CPU time of each thread of this process so far, ns, by thread id.
fn cpu_times() -> ProcResult<HashMap<i32, u64>> {
    let tasks = Process::myself()?.tasks()?;
    // A thread that ends while the list is read is left out, not an error.
    let times = tasks.flatten().filter_map(|task| match task.schedstat() {
        Err(ProcError::NotFound(_)) => None,
        other => Some(other.map(|time| (task.tid, time.sum_exec_runtime))),
    });
    let times = times.collect::<ProcResult<HashMap<_, _>>>()?;
    if times.is_empty() { Err(ProcError::NotFound(None)) } else { Ok(times) }
}

/// The CPU times of the reading before.
#[derive(Debug, Default)]
struct Threads {
    before: Option<(u64, HashMap<i32, u64>)>,
}

impl Threads {
    /// CPU in per cent of one core since the reading before; `at` in µs.
    fn share(&mut self, at: u64, times: HashMap<i32, u64>) -> Result<f64, Why> {
        let Some((then, before)) = self.before.replace((at, times)) else { return Err(Why::NotYet) };
        let wall_us = at.saturating_sub(then);
        let now = self.before.iter().flat_map(|(_, times)| times);
        // A new thread counts from 0; so does one that took over the id of an ended one.
        let used_ns: u64 = now.map(|(tid, &ns)| ns.checked_sub(*before.get(tid).unwrap_or(&0)).unwrap_or(ns)).sum();
        if wall_us == 0 { Err(Why::NotYet) } else { Ok(used_ns as f64 / wall_us as f64 / 10.0) }
    }
}

/// Resident memory of this process, bytes.
fn rss() -> ProcResult<f64> {
    Ok(Process::myself()?.statm()?.resident as f64 * procfs::page_size() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_is_of_one_core_over_all_threads() {
        let mut threads = Threads::default();
        assert_eq!(threads.share(0, HashMap::from([(1, 500), (2, 9_000_000)])), Err(Why::NotYet));
        let share = threads.share(1_000_000, HashMap::from([(1, 2_000_500), (3, 1_000_000)]));
        assert_eq!(share, Ok(0.3), "thread 2 ended, thread 3 is new");
        assert_eq!(threads.share(1_000_000, HashMap::new()), Err(Why::NotYet));
        threads.share(2_000_000, HashMap::from([(3, 5_000_000)])).unwrap();
        assert_eq!(threads.share(2_500_000, HashMap::from([(3, 500_000_000)])), Ok(99.0));
        assert_eq!(threads.share(3_500_000, HashMap::from([(3, 10_000_000)])), Ok(1.0), "the id was used again");
    }

    #[test]
    fn this_process_takes_cpu_and_memory() {
        let sum = || cpu_times().unwrap().values().sum::<u64>();
        let began = sum();
        while sum() == began {
            std::hint::spin_loop();
        }
        assert!(rss().unwrap() > 500e3);
    }
}
