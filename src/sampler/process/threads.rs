//! Threads of single processes: which are the busiest, and what they have used so far.
//!
//! An engine has hundreds of threads, of which two or three do the work. So all are looked at seldom, and in
//! between only the main thread and those that were busiest. Invariants: a time is a total of one thread; where
//! the kernel does not count how long threads wait for a CPU, that is missing, never 0.

use std::collections::HashMap;
use std::sync::Arc;

use crate::model::{Reading, ThreadSample, Why, text};

use super::short_file;
use super::stat::Times;

/// Threads of a process that are read every time, the main thread among them.
const MOST: usize = 4;
/// Readings between two looks at all threads, and after the first look, which knows only totals since the start.
const SCAN_EVERY: u64 = 10;
const SCAN_AGAIN: u64 = 2;
/// A thread that takes or waits for less than this is not worth a reading, ns a second.
const IDLE_NS: u64 = 5_000_000;
/// When threads that are not read begin to take this much more, all are looked at before it is due, ms a second.
const UNSEEN_MS: f64 = 250.0;
/// Processes that are remembered, at most.
const MAX_PROCESSES: usize = 256;

/// What is remembered of the threads of each process, by pid and start time.
pub(super) struct Threads {
    /// Whether the kernel counts how long threads wait.
    waits: bool,
    watched: HashMap<(u32, u64), Watched>,
}

/// The threads of one process.
#[derive(Default)]
struct Watched {
    /// Those that are read.
    chosen: Vec<(u32, Arc<str>)>,
    /// CPU and waiting time of each thread at the last look at all, ns.
    totals: HashMap<u32, u64>,
    looks: u64,
    /// Readings since that look, and how many there are to the next.
    readings: u64,
    next: u64,
    /// CPU time of threads that are not read, ms: so far, and what one reading added after the look.
    unseen: Option<f64>,
    usual: Option<f64>,
}

impl Default for Threads {
    fn default() -> Self {
        Self {
            waits: short_file("/proc/thread-self/schedstat").is_some_and(|t| schedstat(&t).is_some()),
            watched: HashMap::new(),
        }
    }
}

impl Threads {
    /// The main thread and the busiest others of a process that has used `cpu_ms` in all.
    pub(super) fn of(&mut self, pid: u32, start: u64, cpu_ms: f64) -> Vec<ThreadSample> {
        if self.watched.len() > MAX_PROCESSES {
            self.watched.clear();
        }
        let watched = self.watched.entry((pid, start)).or_default();
        if watched.readings >= watched.next {
            watched.look(pid, self.waits);
        }
        watched.readings += 1;
        let samples: Vec<_> =
            watched.chosen.iter().filter_map(|(tid, name)| sample(pid, *tid, name, self.waits)).collect();
        watched.note_unseen(cpu_ms - samples.iter().filter_map(|s| s.cpu_ms.value()).sum::<f64>());
        samples
    }
}

impl Watched {
    /// Looks at all threads and chooses those that took or waited for most since the last look.
    fn look(&mut self, pid: u32, waits: bool) {
        let tids = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let tids = tids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let totals: HashMap<_, _> = tids.filter_map(|tid| Some((tid, used(pid, tid, waits)?.total_ns()))).collect();
        let mut busy: Vec<_> = totals
            .iter()
            // A thread that is new since then counts from 0, and so does one that took over an id.
            .map(|(tid, &ns)| (*tid, ns.checked_sub(*self.totals.get(tid).unwrap_or(&0)).unwrap_or(ns)))
            .filter(|&(tid, ns)| tid != pid && ns > IDLE_NS * self.readings)
            .collect();
        busy.sort_unstable_by_key(|&(tid, ns)| (std::cmp::Reverse(ns), tid));
        let chosen = std::iter::once(pid).chain(busy.into_iter().map(|(tid, _)| tid)).take(MOST);
        self.chosen = chosen.map(|tid| (tid, name(pid, tid, &self.chosen))).collect();
        self.looks += 1;
        let next = if self.looks == 1 { SCAN_AGAIN } else { SCAN_EVERY };
        (self.totals, self.readings, self.next, self.unseen, self.usual) = (totals, 0, next, None, None);
    }

    /// Has all looked at in the next reading when threads that are not read have become busy.
    fn note_unseen(&mut self, unseen_ms: f64) {
        if let Some(before) = self.unseen.replace(unseen_ms) {
            let added = unseen_ms - before;
            if added > *self.usual.get_or_insert(added) + UNSEEN_MS {
                self.next = self.readings;
            }
        }
    }
}

/// What a thread has used so far.
struct Used {
    cpu_ns: u64,
    wait_ns: Option<u64>,
}

impl Used {
    fn total_ns(&self) -> u64 {
        self.cpu_ns.saturating_add(self.wait_ns.unwrap_or(0))
    }
}

/// `None` when the thread has ended.
fn used(pid: u32, tid: u32, waits: bool) -> Option<Used> {
    if waits {
        let (cpu_ns, wait_ns) =
            schedstat(&short_file(&format!("/proc/{pid}/task/{tid}/schedstat"))?).unwrap_or_default();
        return Some(Used { cpu_ns, wait_ns: Some(wait_ns) });
    }
    let times = Times::parse(&short_file(&format!("/proc/{pid}/task/{tid}/stat"))?)?;
    Some(Used { cpu_ns: (times.cpu_ms() * 1e6) as u64, wait_ns: None })
}

fn sample(pid: u32, tid: u32, name: &Arc<str>, waits: bool) -> Option<ThreadSample> {
    let used = used(pid, tid, waits)?;
    // To a hundredth of a ms: more digits would make recordings longer and say nothing.
    let ms = |ns: u64| Reading::Value((ns / 10_000) as f64 / 100.0);
    let wait_ms = used.wait_ns.map_or(Reading::Missing(Why::Unsupported), ms);
    Some(ThreadSample { tid, name: Arc::clone(name), cpu_ms: ms(used.cpu_ns), wait_ms })
}

/// The name of a thread, in the text of the look before where it is the same.
fn name(pid: u32, tid: u32, before: &[(u32, Arc<str>)]) -> Arc<str> {
    let name = text::clean(&short_file(&format!("/proc/{pid}/task/{tid}/comm")).unwrap_or_default());
    let same = before.iter().find(|(t, kept)| *t == tid && **kept == *name);
    same.map_or_else(|| name.into(), |(_, kept)| Arc::clone(kept))
}

/// CPU time and time waiting for a CPU, ns (Documentation/scheduler/sched-stats.rst of the kernel). A kernel that
/// does not count them has the file all the same, with `0 0 0` in it.
fn schedstat(text: &str) -> Option<(u64, u64)> {
    let mut numbers = text.split_ascii_whitespace().map(|word| word.parse::<u64>().ok());
    let (cpu, wait, slices) = (numbers.next()??, numbers.next()??, numbers.next()??);
    (slices > 0).then_some((cpu, wait))
}

/// Every parser here on the same text, for `fuzz/`.
#[cfg(fuzzing)]
pub(in crate::sampler) fn fuzz(text: &str) {
    let _ = schedstat(text);
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn a_kernel_that_does_not_count_is_told_from_a_thread_that_did_not_wait() {
        assert_eq!(schedstat("62443 46580 2\n"), Some((62_443, 46_580)));
        assert_eq!(schedstat("62443 0 2"), Some((62_443, 0)));
        assert_eq!(schedstat("0 0 0\n"), None);
        assert_eq!(schedstat("1 2"), None);
        assert_eq!(schedstat("x 2 3"), None);
    }

    /// A thread called `name` that sleeps until it is told to spin; returns its id.
    fn thread(name: &str, spin: &Arc<AtomicBool>, end: &Arc<AtomicBool>) -> u32 {
        let (tell, told) = std::sync::mpsc::channel();
        let (spin, end) = (Arc::clone(spin), Arc::clone(end));
        let body = move || {
            let tid = std::fs::read_link("/proc/thread-self").unwrap();
            tell.send(tid.file_name().unwrap().to_str().unwrap().parse().unwrap()).unwrap();
            while !end.load(Ordering::Relaxed) {
                if !spin.load(Ordering::Relaxed) {
                    std::thread::park_timeout(std::time::Duration::from_millis(5));
                }
            }
        };
        std::thread::Builder::new().name(name.to_owned()).spawn(body).unwrap();
        told.recv().unwrap()
    }

    /// CPU time of a thread, ms.
    fn cpu_ms(tid: u32, waits: bool) -> f64 {
        used(std::process::id(), tid, waits).unwrap().cpu_ns as f64 / 1e6
    }

    #[test]
    fn the_thread_that_works_is_found_among_those_that_do_not() {
        for waits in [Threads::default().waits, false] {
            let (spin, rest) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
            let end = Arc::new(AtomicBool::new(false));
            let idle: Vec<_> = (0..20).map(|i| thread(&format!("idle-{i}"), &rest, &end)).collect();
            let busy = thread("spin\u{1b}[31mner", &spin, &end);
            let pid = std::process::id();
            let mut watched = Watched::default();
            watched.look(pid, waits);
            spin.store(true, Ordering::Relaxed);
            let before = cpu_ms(busy, waits);
            // Ten times what counts as idle, in whole ticks of 10 ms, however long that takes.
            while cpu_ms(busy, waits) < before + 50.0 {
                std::thread::yield_now();
            }
            watched.readings = 1;
            watched.look(pid, waits);
            let chosen: Vec<_> = watched.chosen.iter().map(|(tid, name)| (*tid, &**name)).collect();
            assert_eq!(chosen[0].0, pid, "the main thread is always read: {chosen:?}");
            assert!(chosen.len() <= MOST && chosen.contains(&(busy, "spinner")), "{chosen:?}");
            let sample = sample(pid, busy, &"spinner".into(), waits).unwrap();
            let most_idle = idle.iter().map(|&tid| cpu_ms(tid, waits)).fold(0.0, f64::max);
            assert!(sample.cpu_ms.value().unwrap() > 2.0 * most_idle, "{sample:?} against {most_idle} ms");
            assert_eq!(sample.wait_ms.why(), (!waits).then_some(Why::Unsupported));
            end.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    fn all_are_looked_at_seldom_but_at_once_when_others_become_busy() {
        // A process that does nothing: all that is said to be used is used by threads that are not read.
        let mut resting = Command::new("sleep").arg("600").spawn().unwrap();
        let mut threads = Threads::default();
        let key = (resting.id(), 1);
        let mut looks = |unseen_ms: &[f64]| {
            for &ms in unseen_ms {
                threads.of(key.0, key.1, ms);
            }
            threads.watched[&key].looks
        };
        assert_eq!(looks(&[0.0, 50.0, 100.0]), 2, "the second look follows soon");
        assert_eq!(looks(&[150.0, 200.0, 250.0, 300.0]), 2);
        assert_eq!(looks(&[900.0]), 2);
        assert_eq!(looks(&[950.0]), 3, "600 ms where 50 are usual");
        assert_eq!(looks(&[1000.0; 9]), 3);
        assert_eq!(looks(&[1000.0; 1]), 4, "due");
        resting.kill().unwrap();
        resting.wait().unwrap();
    }

    #[test]
    fn a_process_that_is_gone_has_no_threads() {
        assert_eq!(Threads::default().of(u32::MAX - 7, 1, 0.0), []);
    }
}
