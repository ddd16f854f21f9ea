//! Single processes, once a second: those that hold device memory, and serving engines.
//!
//! Of the whole of `/proc` only command lines are looked at, and those seldom; all processes only while a server
//! is short of CPU time. Invariants: a process that cannot be read keeps its row, with the reason in place of its
//! values; a process id that the driver gives is matched only where it must mean the same process here.

mod commands;
mod limits;
mod others;
mod stat;
mod threads;

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::sync::Arc;
use std::time::Duration;

use procfs::ProcError;
use procfs::process::{FDTarget, Process, Stat, Status};

use crate::engine::launch;
use crate::model::limits::PROCESS_ROWS as MAX_ROWS;
use crate::model::{
    Batch, FactKey, GpuProcess, Metric, MoreProcesses, ProcessSample, ProcessState, Reading, SourceId, SourceState,
    Subject, Time, Why, text,
};
use crate::store::Data;

use commands::CommandLines;
use limits::Limits;
pub use limits::cpu_limits;
use others::Others;
use threads::Threads;

use super::thread::{SECOND_VALID_MS, Ticker, start};
use super::{Context, Sampler, cmdline, host};

pub(super) const SAMPLER: Sampler = Sampler {
    id: "process",
    help: "state, CPU, busiest threads, CPU limits, memory, major faults and page tables of processes on a GPU and of serving engines, once a second from /proc; while a server is short of CPU time also who else takes it",
    start: |context, _| start(context, SourceId::Process, "warptop-process", run),
};

/// Readings between two looks for new engines.
const SEARCH_EVERY: u64 = 10;
/// Searches after which every command line is looked at again: a shell may have become an engine.
const FORGET_EVERY: u64 = 6;
/// From here on a server is short of CPU time: the machine's CPUs are this busy, or one of its threads waits for
/// a CPU for this share of the time, %.
const CPUS_BUSY_PCT: f64 = 70.0;
const THREAD_WAITS_PCT: f64 = 10.0;

fn run(context: &Context) {
    let mut table = Table::new();
    let mut ticker = Ticker::new(context, Duration::from_secs(1));
    while ticker.wait() {
        let (at, began) = (context.clock.now(), context.clock.micros());
        let known = Known::of(&context.sink.store().read(), at);
        let mut batch = Batch::new(SourceId::Process, at, SECOND_VALID_MS);
        let (rows, more) = table.read(&known, began);
        (batch.processes, batch.more_processes) = (Some(rows), more);
        batch.took_us = u32::try_from(context.clock.micros() - began).unwrap_or(u32::MAX);
        batch.state = Some(SourceState::Ok);
        context.sink.send(&batch);
    }
}

/// What the other sources know that matters here.
#[derive(Default)]
struct Known {
    on_gpu: Vec<GpuProcess>,
    /// Processes that answer as an engine, and all that belong to one.
    answer: Vec<u32>,
    belong: Vec<u32>,
    /// Whether a server waits for CPUs, or all of them are busy.
    short_of_cpu: bool,
}

impl Known {
    fn of(data: &Data, at: Time) -> Self {
        let mut known = Self { on_gpu: data.gpu_processes().to_vec(), ..Self::default() };
        for engine in data.engines() {
            let pids = data.fact(Subject::Engine(engine), FactKey::Pids, at).unwrap_or_default();
            let pids = pids.split(',').filter_map(|pid| pid.parse::<u32>().ok());
            let first = known.belong.len();
            known.belong.extend(pids);
            known.answer.extend(known.belong.get(first));
        }
        let busy = data.latest(Subject::Host, Metric::CpuBusy, at).reading;
        let mut threads = data
            .processes(at)
            .into_iter()
            .flat_map(|table| &table.rows)
            .filter(|row| !row.other)
            .flat_map(|row| &row.threads);
        known.short_of_cpu = busy.value().is_some_and(|pct| pct >= CPUS_BUSY_PCT)
            || threads.any(|thread| thread.wait_pct.value().is_some_and(|pct| pct >= THREAD_WAITS_PCT));
        known
    }
}

/// What is remembered from one reading to the next.
struct Table {
    /// Whether process ids here are those of the machine, so that the driver's mean the same.
    host_pids: bool,
    own: u32,
    readings: u64,
    /// Serving engines by pid and start time: a pid is used again.
    engines: Vec<(u32, u64)>,
    judged: HashSet<u32>,
    /// By pid and start time: whether a process holds a device file of the driver.
    device: HashMap<(u32, u64), bool>,
    users: Users,
    threads: Threads,
    commands: CommandLines,
    limits: Limits,
    others: Others,
    look: fn() -> others::Look,
}

impl Table {
    fn new() -> Self {
        Self {
            host_pids: in_first_pid_namespace(),
            own: std::process::id(),
            readings: 0,
            engines: Vec::new(),
            judged: HashSet::new(),
            device: HashMap::new(),
            users: Users { list: sysinfo::Users::new_with_refreshed_list().ok(), names: HashMap::new() },
            threads: Threads::default(),
            commands: CommandLines::default(),
            limits: Limits::default(),
            others: Others::default(),
            look: others::look,
        }
    }

    /// One row for each process on a GPU, then one for each engine that is on none, then those that take the CPU
    /// from them; `now` in µs.
    fn read(&mut self, known: &Known, now: u64) -> (Vec<ProcessSample>, Option<MoreProcesses>) {
        if self.readings.is_multiple_of(SEARCH_EVERY) {
            self.search();
        }
        self.readings += 1;
        self.limits.renew();
        let (mut rows, more) = self.on_gpus(known);
        // An engine that has ended since the search is no row, nor is what has its pid now.
        self.engines.retain(|&(pid, start)| start_of(pid) == Some(start));
        let engines = self.engines.iter().map(|(pid, _)| pid);
        for pid in engines.chain(&known.answer).copied().collect::<Vec<_>>() {
            self.add(&mut rows, ProcessSample { pid, ..ProcessSample::default() });
        }
        let confined = rows.iter().any(|row| self.limits.is_confined(&row.limits));
        for pid in self.others(&rows, known, now, known.short_of_cpu || confined) {
            self.add(&mut rows, ProcessSample { pid, other: true, ..ProcessSample::default() });
        }
        (rows, more)
    }

    /// One row for each process that the driver lists, and what there is no room for: those of engines come first, then
    /// those that hold most.
    fn on_gpus(&mut self, known: &Known) -> (Vec<ProcessSample>, Option<MoreProcesses>) {
        let mut rows: Vec<ProcessSample> = Vec::new();
        let mut places: HashMap<u32, usize> = HashMap::new();
        for process in known.on_gpu.iter().filter(|p| p.pid != self.own) {
            let place = *places.entry(process.pid).or_insert_with(|| {
                rows.push(ProcessSample { pid: process.pid, ..ProcessSample::default() });
                rows.len() - 1
            });
            rows[place].gpus.push((process.gpu, process.mem));
            if process.share != Reading::Missing(Why::NotYet) {
                rows[place].shares.push((process.gpu, process.share));
            }
        }
        // Engines that are on no GPU are listed as well.
        let beside = self.engines.iter().map(|(pid, _)| pid).chain(&known.answer).collect::<HashSet<_>>();
        let beside = beside.into_iter().filter(|pid| !places.contains_key(pid)).count().min(MAX_ROWS / 4);
        let more = cut(&mut rows, &known.belong, MAX_ROWS - beside);
        for row in &mut rows {
            match self.fill(row, true) {
                Ok(()) => {}
                Err(reason) => unread_because(row, reason),
            }
        }
        (rows, more)
    }

    /// Adds the row of a process that is not there yet, if it can be read and there is room.
    fn add(&mut self, rows: &mut Vec<ProcessSample>, mut row: ProcessSample) {
        if rows.len() < MAX_ROWS && rows.iter().all(|r| r.pid != row.pid) && self.fill(&mut row, false).is_ok() {
            rows.push(row);
        }
    }

    /// Processes that take the CPU from those in `rows`, while there is a reason to look for them.
    fn others(&mut self, rows: &[ProcessSample], known: &Known, now: u64, reason: bool) -> Vec<u32> {
        let (own, engines) = (self.own, &mut self.engines);
        let pass = |pid: u32| {
            // An engine that began after the last search is no stranger.
            let engine = pid != own && is_engine(pid);
            if engine && engines.iter().all(|(known, _)| *known != pid) {
                engines.extend(start_of(pid).map(|start| (pid, start)));
            }
            engine || pid == own || known.belong.contains(&pid) || rows.iter().any(|row| row.pid == pid)
        };
        self.others.list(now, reason, self.look, pass).to_vec()
    }

    /// Reads the host's side of a row; `from_driver`: its pid is the driver's.
    fn fill(&mut self, row: &mut ProcessSample, from_driver: bool) -> Result<(), Why> {
        let pid = i32::try_from(row.pid).map_err(|_| Why::Failed)?;
        let process = Process::new(pid).map_err(|error| why_of_pid(&error))?;
        let stat = process.stat().map_err(|error| why_of_pid(&error))?;
        if from_driver && !self.is_same(&process, &stat) {
            return Err(Why::NotPermitted);
        }
        let status = process.status().map_err(|error| why_of_pid(&error));
        row.start = stat.starttime;
        row.command = self.commands.of(&stat);
        row.user = status.as_ref().map(|s| self.users.name(s.euid)).unwrap_or_default();
        row.cpu_ms = ((stat.utime + stat.stime) as f64 * 1000.0 / procfs::ticks_per_second() as f64).into();
        row.rss = ((stat.rss * procfs::page_size()) as f64).into();
        row.majflt = (stat.majflt as f64).into();
        row.page_table = page_table(status.as_ref()).into();
        row.state = Some(ProcessState::of(stat.state));
        if !row.other {
            let allowed = status.ok().and_then(|status| status.cpus_allowed_list);
            (row.limits, row.throttled_ms) = self.limits.of(row.pid, row.start, allowed);
            row.threads = self.threads.of(row.pid, row.start, row.cpu_ms.value().unwrap_or_default());
        }
        Ok(())
    }

    /// Whether the process with this pid here is the one that the driver means. In a container the two
    /// may count differently; then only a process that holds a device file of the driver counts as it.
    fn is_same(&mut self, process: &Process, stat: &Stat) -> bool {
        if self.host_pids {
            return true;
        }
        let key = (stat.pid.unsigned_abs(), stat.starttime);
        if self.device.len() > MAX_ROWS * 4 {
            self.device.clear();
        }
        *self.device.entry(key).or_insert_with(|| holds_device(process))
    }

    /// Looks for engines among the processes that were not looked at yet.
    fn search(&mut self) {
        if (self.readings / SEARCH_EVERY).is_multiple_of(FORGET_EVERY) {
            self.judged.clear();
            self.engines.clear();
        }
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        for pid in entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()) {
            if pid != self.own && self.judged.insert(pid) && is_engine(pid) {
                self.engines.extend(start_of(pid).map(|start| (pid, start)));
            }
        }
    }
}

/// Leaves at most `room` rows: those in `belong` before all others, and then those with most device memory. What went, if
/// anything did.
fn cut(rows: &mut Vec<ProcessSample>, belong: &[u32], room: usize) -> Option<MoreProcesses> {
    let held = |row: &ProcessSample| row.gpus.iter().filter_map(|(_, mem)| mem.value()).sum::<f64>();
    if rows.len() <= room {
        return None;
    }
    let belong: HashSet<u32> = belong.iter().copied().collect();
    rows.sort_by(|a, b| {
        belong.contains(&b.pid).cmp(&belong.contains(&a.pid)).then_with(|| held(b).total_cmp(&held(a)))
    });
    let gone = rows.split_off(room);
    let count = u32::try_from(gone.len()).unwrap_or(u32::MAX);
    Some(MoreProcesses { count, gpu_mem: gone.iter().map(held).sum() })
}

/// Whether the command line of a process is that of a serving engine.
fn is_engine(pid: u32) -> bool {
    let line = cmdline::read(pid).unwrap_or_default();
    launch::of_process(&line).is_some()
}

/// When a process began, in ticks since boot; `None` where it is gone or hidden.
fn start_of(pid: u32) -> Option<u64> {
    stat::Times::parse(&short_file(&format!("/proc/{pid}/stat"))?).map(|times| times.start)
}

/// A short file of `/proc`, with one call to read it.
fn short_file(path: &str) -> Option<String> {
    let mut buffer = [0; 512];
    let length = File::open(path).ok()?.read(&mut buffer).ok()?;
    Some(String::from_utf8_lossy(buffer.get(..length)?).into_owned())
}

/// Puts the reason in place of a row's values.
fn unread_because(row: &mut ProcessSample, why: Why) {
    let missing = Reading::Missing(why);
    (row.cpu_ms, row.rss, row.majflt, row.page_table) = (missing, missing, missing, missing);
}

/// Why a file of a process could not be read.
pub(super) fn why(error: &ProcError) -> Why {
    match error {
        ProcError::PermissionDenied(_) => Why::NotPermitted,
        ProcError::NotFound(_) => Why::Unsupported,
        ProcError::Io(error, _) => host::why(error.kind()),
        ProcError::Incomplete(_) | ProcError::Other(_) | ProcError::InternalError(_) => Why::Failed,
    }
}

/// The same for a pid that the driver listed: not to be found means that it lives in another
/// namespace, or that it is hidden (`hidepid`), or that it has just ended.
fn why_of_pid(error: &ProcError) -> Why {
    match error {
        ProcError::NotFound(_) => Why::NotPermitted,
        ProcError::Io(error, _) if error.kind() == ErrorKind::NotFound => Why::NotPermitted,
        error => why(error),
    }
}

fn page_table(status: Result<&Status, &Why>) -> Result<f64, Why> {
    let kib = status.map_err(|why| *why)?.vmpte.ok_or(Why::Unsupported)?;
    Ok(kib as f64 * 1024.0)
}

/// Whether a process has a device file of the NVIDIA driver open. Not knowing counts as no: a wrong
/// name on a row is worse than none.
pub(super) fn holds_device(process: &Process) -> bool {
    let is_device = |target: &FDTarget| matches!(target, FDTarget::Path(path) if path.starts_with("/dev") && path.to_string_lossy().contains("nvidia"));
    process.fd().is_ok_and(|fds| fds.flatten().any(|fd| is_device(&fd.target)))
}

/// Whether this process lives in the machine's first pid namespace (its inode number is fixed in the
/// kernel: `PROC_PID_INIT_INO`, include/linux/proc_ns.h).
pub(super) fn in_first_pid_namespace() -> bool {
    std::fs::read_link("/proc/self/ns/pid").is_ok_and(|link| link.as_os_str() == "pid:[4026531836]")
}

/// Names of users. The list is read once: it may come over the network.
struct Users {
    list: Option<sysinfo::Users>,
    names: HashMap<u32, Arc<str>>,
}

impl Users {
    fn name(&mut self, uid: u32) -> Arc<str> {
        let Self { list, names } = self;
        let name = || list.iter().flat_map(|l| l.iter()).find(|u| **u.id() == uid).map(|u| text::clean(u.name()));
        Arc::clone(names.entry(uid).or_insert_with(|| name().unwrap_or_else(|| uid.to_string()).into()))
    }
}

/// Every parser below on the same text, for `fuzz/`.
#[cfg(fuzzing)]
pub(super) fn fuzz(text: &str) {
    limits::fuzz(text);
    threads::fuzz(text);
    let _ = stat::Times::parse(text).map(stat::Times::cpu_ms);
}

#[cfg(test)]
mod tests {
    use super::stat::Times;
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    use crate::model::ThreadSample;
    use crate::store::{Retention, Store};

    /// A process that does nothing, killed in the end.
    struct Sleeper(std::process::Child);

    impl Sleeper {
        /// Starts one and waits until it is past its exec.
        fn start() -> Self {
            let child = Self(std::process::Command::new("sleep").arg("600").spawn().unwrap());
            let line = format!("/proc/{}/cmdline", child.pid());
            while !std::fs::read(&line).unwrap().starts_with(b"sleep\x00600") {
                std::thread::yield_now();
            }
            child
        }

        fn pid(&self) -> u32 {
            self.0.id()
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            drop(self.0.kill());
            drop(self.0.wait());
        }
    }

    #[test]
    fn what_the_table_has_no_room_for_is_counted_and_engines_come_first() {
        let row = |pid: u32, mem: f64| ProcessSample { pid, gpus: vec![(0, mem.into())], ..ProcessSample::default() };
        let mut rows: Vec<_> = (1..=200).map(|pid| row(pid, if pid > 137 { 5e9 } else { 1e9 })).collect();
        let more = cut(&mut rows, &[7], MAX_ROWS);
        assert_eq!((rows.len(), rows[0].pid, more), (64, 7, Some(MoreProcesses { count: 136, gpu_mem: 136e9 })));
        assert!(rows[1..].iter().all(|row| row.pid > 137), "the largest are shown");
        assert_eq!((cut(&mut rows, &[], MAX_ROWS), rows.len()), (None, 64));
        // Engines that are on no GPU have their rows too.
        let mut table = Table { engines: vec![(1_000, 1), (1_001, 1)], ..Table::new() };
        let on_gpu = (0..100).map(|i| held(0, u32::MAX - i, 1.0)).collect();
        let (rows, more) = table.on_gpus(&Known { on_gpu, ..Known::default() });
        assert_eq!((rows.len(), more.map(|more| more.count)), (62, Some(38)));
    }

    fn held(gpu: u8, pid: u32, bytes: f64) -> GpuProcess {
        GpuProcess { gpu, pid, mem: Reading::Value(bytes), share: Reading::Missing(Why::NotYet) }
    }

    fn on_gpu(list: &[GpuProcess]) -> Known {
        Known { on_gpu: list.to_vec(), ..Known::default() }
    }

    #[test]
    fn a_process_on_two_gpus_is_one_row_with_its_host_side() {
        let child = Sleeper::start();
        let pid = child.pid();
        let mut table = Table::new();
        table.host_pids = true;
        let on = |gpu, pid| held(gpu, pid, 1e9);
        let half = GpuProcess { share: 50.0.into(), ..on(1, pid) };
        let rows = table.read(&on_gpu(&[on(0, pid), half, on(1, std::process::id())]), 0).0;
        let row = rows.iter().find(|row| row.pid == pid).unwrap();
        assert_eq!((row.gpus.len(), &*row.command), (2, "sleep 600"));
        assert!(row.rss.value().unwrap() > 0.0 && row.page_table.value().unwrap() > 0.0 && row.start > 0, "{row:?}");
        assert!(row.cpu_ms.value().is_some() && row.majflt.value().is_some() && !row.user.is_empty(), "{row:?}");
        assert!(rows.iter().all(|row| row.pid != std::process::id()), "warptop leaves itself out");
        assert_eq!(row.shares, [(1, Reading::Value(50.0))], "only where the driver was asked");
        assert_eq!((row.threads.len(), row.threads[0].tid, &*row.threads[0].name), (1, pid, "sleep"));
        assert!(row.limits.allowed.value().unwrap() >= 1.0 && !row.other, "{row:?}");
    }

    /// Fault: host: process ids of another namespace, or hidden (hidepid)
    /// Seen: the row with its GPU memory; denied in place of the rest
    /// Works: memory by process, everything else
    /// Recovers: when warptop may see them
    #[test]
    fn a_pid_of_another_namespace_keeps_its_row() {
        let mut table = Table::new();
        let gone = held(3, u32::MAX - 7, 5.0);
        let here = Sleeper::start();
        let same_number = held(3, here.pid(), 6.0);
        table.host_pids = false;
        let rows = table.read(&on_gpu(&[gone, same_number]), 0).0;
        assert_eq!(rows[0].gpus, [(3, Reading::Value(5.0))]);
        assert!(rows[0].cpu_ms.why().is_some());
        assert_eq!(rows[1].rss, Reading::Missing(Why::NotPermitted), "holds no device, so it is another process");
        assert_eq!(&*rows[1].command, "");
    }

    /// Reads the row of a process until it is in this state.
    fn until_state(table: &mut Table, pid: u32, state: ProcessState) {
        while table.read(&on_gpu(&[held(0, pid, 1.0)]), 0).0[0].state != Some(state) {
            std::thread::yield_now();
        }
    }

    /// Fault: host: a process is stopped, a zombie, or dies while it is read
    /// Seen: its state; then no row, or one without figures while the driver lists it
    /// Works: all other rows
    /// Recovers: nothing to recover from
    #[test]
    fn a_process_that_is_stopped_or_has_ended_says_so() {
        use rustix::process::{Pid, Signal, kill_process};
        let mut child = Sleeper::start();
        let (pid, id) = (child.pid(), Pid::from_child(&child.0));
        let mut table = Table::new();
        table.host_pids = true;
        until_state(&mut table, pid, ProcessState::Sleeping);
        kill_process(id, Signal::STOP).unwrap();
        until_state(&mut table, pid, ProcessState::Stopped);
        kill_process(id, Signal::CONT).unwrap();
        until_state(&mut table, pid, ProcessState::Sleeping);
        kill_process(id, Signal::KILL).unwrap();
        until_state(&mut table, pid, ProcessState::Zombie);
        child.0.wait().unwrap();
        assert_eq!(table.read(&on_gpu(&[held(0, pid, 1.0)]), 0).0[0].state, None, "gone");
    }

    /// Whom [`two_more_seconds`] sees, and how often it was asked.
    static SEEN: [AtomicU32; 2] = [AtomicU32::new(0), AtomicU32::new(0)];

    /// A machine with one process, which has taken two more seconds at each look.
    fn two_more_seconds() -> others::Look {
        let looks = u64::from(SEEN[1].fetch_add(1, Ordering::Relaxed));
        let times = Times { cpu: 2 * looks * procfs::ticks_per_second(), start: 1 };
        others::Look { times: HashMap::from([(SEEN[0].load(Ordering::Relaxed), times)]), cost_us: 0 }
    }

    #[test]
    fn who_takes_the_cpu_has_a_row_only_while_a_server_is_short_of_it() {
        const SECOND: u64 = 1_000_000;
        let child = Sleeper::start();
        let pid = child.pid();
        SEEN[0].store(pid, Ordering::Relaxed);
        let mut table = Table { look: two_more_seconds, ..Table::new() };
        let mut row = |short_of_cpu, belong: &[u32], at| {
            let known = Known { short_of_cpu, belong: belong.to_vec(), ..Known::default() };
            table.read(&known, at).0.into_iter().find(|row| row.pid == pid)
        };
        assert!(row(false, &[], 0).is_none() && row(true, &[], SECOND).is_none());
        let listed = row(true, &[], 3 * SECOND).unwrap();
        assert!(listed.other && &*listed.command == "sleep 600" && listed.cpu_ms.value().is_some(), "{listed:?}");
        assert!(listed.threads.is_empty(), "{listed:?}");
        assert!(row(true, &[pid], 8 * SECOND).is_none(), "it belongs to an engine");
        assert!(row(true, &[], 13 * SECOND).is_some());
        assert!(row(false, &[], 30 * SECOND).is_none());
        assert_eq!(SEEN[1].load(Ordering::Relaxed), 4, "looks");
    }

    #[test]
    fn a_server_is_short_of_cpu_when_its_threads_wait_or_all_cpus_are_busy() {
        let store = Store::new(Retention::HOUR);
        let at = Time(10_000);
        let short = || Known::of(&store.read(), at).short_of_cpu;
        let table = |at: u64, wait_ms: f64, other| {
            let mut batch = Batch::new(SourceId::Process, Time(at), SECOND_VALID_MS);
            let thread = ThreadSample { tid: 7, name: "t".into(), cpu_ms: 0.0.into(), wait_ms: wait_ms.into() };
            batch.processes =
                Some(vec![ProcessSample { pid: 7, other, threads: vec![thread], ..ProcessSample::default() }]);
            store.push(&batch);
        };
        table(7_000, 0.0, false);
        table(8_000, 90.0, false);
        assert!(!short(), "9 %");
        table(9_000, 190.0, false);
        assert!(short(), "10 %");
        table(9_500, 190.0, false);
        assert!(!short());
        let mut batch = Batch::new(SourceId::Host, at, SECOND_VALID_MS);
        batch.push(Subject::Host, Metric::CpuBusy, 70.0);
        batch.fact(Subject::Engine(0), FactKey::Url, "http://here");
        batch.fact(Subject::Engine(0), FactKey::Pids, "12,40");
        store.push(&batch);
        assert!(short());
        let known = Known::of(&store.read(), at);
        assert_eq!((known.answer, known.belong), (vec![12], vec![12, 40]));
    }

    /// Fault: host: hundreds of processes on GPUs
    /// Seen: 64 rows
    /// Works: everything
    /// Recovers: nothing to recover from
    #[test]
    fn rows_are_bounded() {
        let many: Vec<_> = (0..500).map(|i| held(0, u32::MAX - i, 1.0)).collect();
        assert_eq!(Table::new().read(&on_gpu(&many), 0).0.len(), MAX_ROWS);
    }

    /// Fault: host: the process id of an engine that has ended is used again at once
    /// Seen: no row of it
    /// Works: everything
    /// Recovers: nothing to recover from
    #[test]
    fn a_process_that_has_the_pid_of_an_engine_is_none() {
        let child = Sleeper::start();
        let (pid, start) = (child.pid(), start_of(child.pid()).unwrap());
        let listed = |start| {
            let mut table = Table { engines: vec![(pid, start)], readings: 1, ..Table::new() };
            table.read(&Known::default(), 0).0.iter().any(|row| row.pid == pid)
        };
        assert!(listed(start) && !listed(start - 1));
    }
}
