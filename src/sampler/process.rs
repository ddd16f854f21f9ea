//! Single processes, once a second: those that hold device memory, and serving engines.
//!
//! Of the whole of `/proc` only command lines are looked at, and those seldom. Invariants: a process
//! that cannot be read keeps its row, with the reason in place of its values; a process id that the
//! driver gives is matched only where it must mean the same process here.

use std::collections::{HashMap, HashSet};
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use procfs::ProcError;
use procfs::process::{FDTarget, Process, Stat, Status};

use crate::engine::launch;
use crate::model::{Batch, GpuProcess, ProcessSample, Reading, SourceId, SourceState, Why, text};

use super::thread::{SECOND_VALID_MS, Ticker, start};
use super::{Context, Sampler, host};

pub(super) const SAMPLER: Sampler = Sampler {
    id: "process",
    help: "CPU, memory, major faults and page tables of processes on a GPU and of serving engines, once a second from /proc",
    start: |context, _| start(context, SourceId::Process, "warptop-process", run),
};

/// Rows of the table, at most.
const MAX_ROWS: usize = 64;
/// Readings between two looks for new engines.
const SEARCH_EVERY: u64 = 10;
/// Searches after which every command line is looked at again: a shell may have become an engine.
const FORGET_EVERY: u64 = 6;

fn run(context: &Context) {
    let mut table = Table::new();
    let mut ticker = Ticker::new(context, Duration::from_secs(1));
    while ticker.wait() {
        let (at, began) = (context.clock.now(), context.clock.micros());
        let on_gpu = context.sink.store().read().gpu_processes().to_vec();
        let mut batch = Batch::new(SourceId::Process, at, SECOND_VALID_MS);
        batch.processes = Some(table.read(&on_gpu));
        batch.took_us = u32::try_from(context.clock.micros() - began).unwrap_or(u32::MAX);
        batch.state = Some(SourceState::Ok);
        context.sink.send(&batch);
    }
}

/// What is remembered from one reading to the next.
struct Table {
    /// Whether process ids here are those of the machine, so that the driver's mean the same.
    host_pids: bool,
    own: u32,
    readings: u64,
    engines: Vec<u32>,
    judged: HashSet<u32>,
    /// By pid and start time: whether a process holds a device file of the driver.
    device: HashMap<(u32, u64), bool>,
    users: Users,
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
        }
    }

    /// One row for each process on a GPU, then one for each engine that is on none.
    fn read(&mut self, on_gpu: &[GpuProcess]) -> Vec<ProcessSample> {
        if self.readings.is_multiple_of(SEARCH_EVERY) {
            self.search();
        }
        self.readings += 1;
        let mut rows: Vec<ProcessSample> = Vec::new();
        for process in on_gpu.iter().filter(|p| p.pid != self.own) {
            let gpu = (process.gpu, process.mem);
            match rows.iter().position(|row| row.pid == process.pid) {
                Some(place) => rows[place].gpus.push(gpu),
                None if rows.len() < MAX_ROWS => rows.push(unread(process.pid, vec![gpu])),
                None => {}
            }
        }
        for row in &mut rows {
            match self.fill(row, true) {
                Ok(()) => {}
                Err(reason) => *row = unread_because(row, reason),
            }
        }
        for &pid in &self.engines.clone() {
            let mut row = unread(pid, Vec::new());
            // An engine that has ended since the search is no row.
            if rows.len() < MAX_ROWS && rows.iter().all(|r| r.pid != pid) && self.fill(&mut row, false).is_ok() {
                rows.push(row);
            }
        }
        rows
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
        row.command = command(&process, &stat);
        row.user = status.as_ref().map(|s| self.users.name(s.euid)).unwrap_or_default();
        row.cpu_ms = ((stat.utime + stat.stime) as f64 * 1000.0 / procfs::ticks_per_second() as f64).into();
        row.rss = ((stat.rss * procfs::page_size()) as f64).into();
        row.majflt = (stat.majflt as f64).into();
        row.page_table = page_table(status.as_ref()).into();
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
            if pid != self.own && self.judged.insert(pid) {
                let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                if launch::recognise(&launch::words(&line)).is_some() {
                    self.engines.push(pid);
                }
            }
        }
    }
}

/// A row of which nothing is known but its pid and its device memory.
fn unread(pid: u32, gpus: Vec<(u8, Reading)>) -> ProcessSample {
    let missing = Reading::Missing(Why::NotYet);
    ProcessSample {
        pid,
        start: 0,
        user: Arc::default(),
        command: Arc::default(),
        gpus,
        cpu_ms: missing,
        rss: missing,
        majflt: missing,
        page_table: missing,
    }
}

fn unread_because(row: &ProcessSample, why: Why) -> ProcessSample {
    let missing = Reading::Missing(why);
    ProcessSample {
        cpu_ms: missing,
        rss: missing,
        majflt: missing,
        page_table: missing,
        ..unread(row.pid, row.gpus.clone())
    }
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

/// The command line, or the kernel's short name where there is none (kernel threads, zombies).
fn command(process: &Process, stat: &Stat) -> Arc<str> {
    let line = process.open_relative("cmdline").ok().and_then(|mut file| {
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut file, &mut bytes).ok()?;
        Some(text::clean(&launch::words(&bytes).join(" ")))
    });
    line.filter(|line| !line.is_empty()).unwrap_or_else(|| text::clean(&stat.comm)).into()
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that does nothing, once it is past its exec.
    fn sleeper() -> std::process::Child {
        let child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let line = format!("/proc/{}/cmdline", child.id());
        while !std::fs::read(&line).unwrap().starts_with(b"sleep\x00600") {
            std::thread::yield_now();
        }
        child
    }

    #[test]
    fn a_process_on_two_gpus_is_one_row_with_its_host_side() {
        let mut child = sleeper();
        let mut table = Table::new();
        table.host_pids = true;
        let on = |gpu, pid| GpuProcess { gpu, pid, mem: Reading::Value(1e9) };
        let rows = table.read(&[on(0, child.id()), on(1, child.id()), on(1, std::process::id())]);
        child.kill().unwrap();
        child.wait().unwrap();
        let row = rows.iter().find(|row| row.pid == child.id()).unwrap();
        assert_eq!((row.gpus.len(), &*row.command), (2, "sleep 600"));
        assert!(row.rss.value().unwrap() > 0.0 && row.page_table.value().unwrap() > 0.0 && row.start > 0, "{row:?}");
        assert!(row.cpu_ms.value().is_some() && row.majflt.value().is_some() && !row.user.is_empty(), "{row:?}");
        assert!(rows.iter().all(|row| row.pid != std::process::id()), "warptop leaves itself out");
    }

    #[test]
    fn a_pid_of_another_namespace_keeps_its_row() {
        let mut table = Table::new();
        let gone = GpuProcess { gpu: 3, pid: u32::MAX - 7, mem: Reading::Value(5.0) };
        let mut here = sleeper();
        let same_number = GpuProcess { gpu: 3, pid: here.id(), mem: Reading::Value(6.0) };
        table.host_pids = false;
        let rows = table.read(&[gone, same_number]);
        here.kill().unwrap();
        here.wait().unwrap();
        assert_eq!(rows[0].gpus, [(3, Reading::Value(5.0))]);
        assert!(rows[0].cpu_ms.why().is_some());
        assert_eq!(rows[1].rss, Reading::Missing(Why::NotPermitted), "holds no device, so it is another process");
        assert_eq!(&*rows[1].command, "");
    }

    #[test]
    fn rows_are_bounded() {
        let many: Vec<_> =
            (0..500).map(|i| GpuProcess { gpu: 0, pid: u32::MAX - i, mem: Reading::Value(1.0) }).collect();
        assert_eq!(Table::new().read(&many).len(), MAX_ROWS);
    }
}
