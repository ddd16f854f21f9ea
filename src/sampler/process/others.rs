//! Who else takes the CPUs, looked for while a server is short of them.
//!
//! Every process of the machine is looked at, which costs several ms where there are thousands of them. So this
//! happens only while there is a reason, and so seldom that it takes a thousandth of a core at most. It must not
//! know what the reason is. Invariant: a process is listed for what it took between two looks, never for its past.

use std::collections::HashMap;

use super::stat::Times;

/// Listed at most.
const MOST: usize = 3;
/// CPU from which a process is listed, % of a core.
const BUSY_PCT: f64 = 20.0;
/// Between two looks, µs; the second follows sooner, as only then there is anything to be seen.
const EVERY_US: u64 = 5_000_000;
const SECOND_US: u64 = 2_000_000;
/// Time between two looks for the CPU time that one takes.
const PER_COST: u64 = 1_000;
/// A reason that has gone for less than this still holds, µs.
const LINGERS_US: u64 = 10_000_000;

/// One look at all processes.
pub(super) struct Look {
    pub(super) times: HashMap<u32, Times>,
    /// CPU time that it took, µs.
    pub(super) cost_us: u64,
}

/// What is remembered between looks.
#[derive(Default)]
pub(super) struct Others {
    before: Option<(u64, HashMap<u32, Times>)>,
    due: u64,
    reason_until: u64,
    listed: Vec<u32>,
}

impl Others {
    /// The processes to be listed at `now` (µs), the busiest first; `pass` says which are not meant.
    pub(super) fn list(
        &mut self,
        now: u64,
        reason: bool,
        look: impl FnOnce() -> Look,
        mut pass: impl FnMut(u32) -> bool,
    ) -> &[u32] {
        if reason {
            self.reason_until = now + LINGERS_US;
        }
        if now >= self.reason_until {
            self.before = None;
            self.listed.clear();
        } else if now >= self.due {
            let Look { times, cost_us } = look();
            let first = self.before.is_none();
            if let Some((then, before)) = &self.before {
                let mut busy = busiest(&times, before, now.saturating_sub(*then));
                busy.retain(|pid| !pass(*pid));
                busy.truncate(MOST);
                self.listed = busy;
            }
            self.before = Some((now, times));
            // Two looks belong together; what both cost is made up for after the second.
            let rest = cost_us.saturating_mul(2 * PER_COST).max(EVERY_US);
            self.due = now + if first { SECOND_US } else { rest };
        }
        &self.listed
    }
}

/// Processes that took more than [`BUSY_PCT`] in these µs, the busiest first.
fn busiest(now: &HashMap<u32, Times>, before: &HashMap<u32, Times>, us: u64) -> Vec<u32> {
    let took = |(pid, new): (&u32, &Times)| {
        let old = before.get(pid).filter(|old| old.start == new.start).map_or(0, |old| old.cpu);
        let ms = Times { cpu: new.cpu.saturating_sub(old), ..*new }.cpu_ms();
        (ms * 1e5 > BUSY_PCT * us as f64).then_some((*pid, ms))
    };
    let mut busy: Vec<_> = now.iter().filter_map(took).collect();
    busy.sort_by(|a, b| b.1.total_cmp(&a.1));
    busy.into_iter().map(|(pid, _)| pid).collect()
}

/// Looks at every process of the machine.
pub(super) fn look() -> Look {
    let began = own_cpu_us();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let times = pids.filter_map(|pid| Some((pid, Times::parse(&super::short_file(&format!("/proc/{pid}/stat"))?)?)));
    let times = times.collect();
    Look { times, cost_us: own_cpu_us().saturating_sub(began) }
}

/// CPU time of this thread so far, µs; 0 where the kernel does not count it that finely.
fn own_cpu_us() -> u64 {
    let text = super::short_file("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_ascii_whitespace().next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0) / 1_000
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    /// Processes with so many ms of CPU time so far.
    fn machine(processes: &[(u32, u64)]) -> impl FnOnce() -> Look {
        let ticks = |ms| ms * procfs::ticks_per_second() / 1000;
        let times = processes.iter().map(|&(pid, ms)| (pid, Times { cpu: ticks(ms), start: 1 })).collect();
        move || Look { times, cost_us: 0 }
    }

    fn never() -> Look {
        panic!("there is no reason to look")
    }

    /// Fault: host: a process id is used again
    /// Seen: the new process, with nothing of the old one
    /// Works: everything
    /// Recovers: nothing to recover from
    #[test]
    fn the_busiest_between_two_looks_are_listed_while_there_is_a_reason() {
        let mut others = Others::default();
        let none = |_| false;
        assert!(others.list(0, false, never, none).is_empty());
        let old = [(1, 900_000), (2, 0), (3, 0), (4, 0), (5, 0), (6, 0)];
        assert!(others.list(SECOND, true, machine(&old), none).is_empty(), "what it took long ago says nothing");
        assert!(others.list(2 * SECOND, true, never, none).is_empty());
        // Of 2 s: 5 %, 100 %, 30 %, 90 %, 80 % and 95 %.
        let new = [(1, 900_100), (2, 2_000), (3, 600), (4, 1_800), (5, 1_600), (6, 1_900)];
        assert_eq!(others.list(3 * SECOND, true, machine(&new), |pid| pid == 6), [2, 4, 5]);
        assert_eq!(others.list(7 * SECOND, false, never, none), [2, 4, 5], "a reason lingers");
        assert!(others.list(13 * SECOND, false, never, none).is_empty());
        // A pid that came back is another process.
        others.list(20 * SECOND, true, machine(&[(7, 5_000)]), none);
        let again = Look { times: HashMap::from([(7, Times { cpu: 1, start: 99 })]), cost_us: 0 };
        assert!(others.list(22 * SECOND, true, || again, none).is_empty());
    }

    /// Fault: host: ten thousand processes
    /// Seen: who takes the CPU is looked for less often, at a thousandth of a core
    /// Works: everything else, once a second
    /// Recovers: nothing to recover from
    #[test]
    fn a_look_that_is_dear_is_rare() {
        let mut others = Others::default();
        let dear = || Look { cost_us: 20_000, ..machine(&[])() };
        others.list(0, true, dear, |_| false);
        others.list(2 * SECOND, true, dear, |_| false);
        for second in 3..42 {
            // Also a reason that comes and goes is no reason to look more often.
            others.list(second * SECOND, second % 15 == 0, never, |_| false);
        }
        let mut looked = false;
        let seen = || {
            looked = true;
            machine(&[])()
        };
        others.list(42 * SECOND, true, seen, |_| false);
        assert!(looked, "twice 20 ms in 42 s");
    }

    #[test]
    fn this_process_is_seen() {
        let own = look().times[&std::process::id()];
        assert!(own.start > 0);
    }
}
