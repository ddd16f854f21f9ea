//! The process table over time: an hour of readings, so that a paused or replayed screen shows the
//! processes of that moment. Totals become rates here, as counters do in a series.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::model::{CpuLimits, MoreProcesses, ProcessSample, ProcessState, Reading, ThreadSample, Time, Why};

use super::Retention;

/// One thread at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadRow {
    /// Thread id.
    pub tid: u32,
    /// The name it gave itself.
    pub name: Arc<str>,
    /// CPU, % of one core.
    pub cpu_pct: Reading,
    /// Share of time in which it could have run and waited for a CPU, %.
    pub wait_pct: Reading,
}

/// One process at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessRow {
    /// Process id.
    pub pid: u32,
    /// Owner; empty when it cannot be read.
    pub user: Arc<str>,
    /// Command line; empty when it cannot be read.
    pub command: Arc<str>,
    /// Device memory in bytes on each GPU it uses.
    pub gpus: Vec<(u8, Reading)>,
    /// CPU, % of one core.
    pub cpu_pct: Reading,
    /// Resident memory, bytes.
    pub rss: Reading,
    /// Major faults per second.
    pub majflt_per_s: Reading,
    /// Memory held by its page tables, bytes.
    pub page_table: Reading,
    /// What its main thread is doing.
    pub state: Option<ProcessState>,
    /// Share of time in which its kernels ran on each GPU, %, where the driver was asked.
    pub shares: Vec<(u8, Reading)>,
    /// Its main thread and the busiest others, the one that takes most CPU first.
    pub threads: Vec<ThreadRow>,
    /// What keeps it from using every CPU.
    pub limits: Arc<CpuLimits>,
    /// Time in which its control group had used up its quota, ms per second.
    pub throttled_ms_per_s: Reading,
    /// Neither an engine's nor on a GPU: listed because it takes CPU time while a server is short of it.
    pub other: bool,
}

/// The process table at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProcessTable {
    /// When it was read.
    pub at: Time,
    /// How long it may be called current, ms.
    pub valid_ms: u32,
    /// One row a process.
    pub rows: Vec<ProcessRow>,
    /// Those that there is no row for.
    pub more: MoreProcesses,
}

impl ProcessTable {
    /// Whether it may be called current at `at`.
    pub fn is_current(&self, at: Time) -> bool {
        at.since(self.at) <= u64::from(self.valid_ms)
    }
}

/// Readings of the process table.
#[derive(Debug, Default)]
pub(super) struct ProcessHistory {
    /// Each with the bytes it takes.
    tables: VecDeque<(ProcessTable, usize)>,
    bytes: usize,
    before: Option<(Time, Vec<ProcessSample>)>,
}

/// Rate per second of a total, or why there is none.
fn rate(new: Reading, old: Option<Reading>, ms: u64) -> Reading {
    match (new, old) {
        (Reading::Missing(why), _) => Reading::Missing(why),
        (Reading::Value(new), Some(Reading::Value(old))) if ms > 0 && new >= old => {
            Reading::new((new - old) * 1000.0 / ms as f64)
        }
        _ => Reading::Missing(Why::NotYet),
    }
}

/// What a table takes besides its rows: its place in the ring, which may be half empty.
const TABLE_BYTES: usize = 2 * size_of::<(ProcessTable, usize)>();

/// The text of the reading before where it is the same, so that it is not kept once a second; else the
/// new one, whose size is added to `bytes`.
fn share(new: &Arc<str>, before: Option<&Arc<str>>, bytes: &mut usize) -> Arc<str> {
    if let Some(same) = before.filter(|before| *before == new) {
        return Arc::clone(same);
    }
    *bytes += new.len() + 2 * size_of::<usize>();
    Arc::clone(new)
}

/// The threads of a process with their rates since the reading before; what they take is added to `bytes`.
fn threads(new: &[ThreadSample], before: &[ThreadSample], ms: u64, bytes: &mut usize) -> Vec<ThreadRow> {
    *bytes += new.len() * size_of::<ThreadRow>();
    let mut row = |new: &ThreadSample| {
        let same = before.iter().find(|thread| thread.tid == new.tid);
        ThreadRow {
            tid: new.tid,
            name: share(&new.name, same.map(|thread| &thread.name), bytes),
            cpu_pct: percent(rate(new.cpu_ms, same.map(|thread| thread.cpu_ms), ms)),
            wait_pct: percent(rate(new.wait_ms, same.map(|thread| thread.wait_ms), ms)),
        }
    };
    let mut rows: Vec<_> = new.iter().map(&mut row).collect();
    let key = |row: &ThreadRow| row.cpu_pct.value().unwrap_or(-1.0);
    rows.sort_by(|a, b| key(b).total_cmp(&key(a)));
    rows
}

/// ms per second as a share of time: a thousandth of a second is a tenth of a per cent.
fn percent(ms_per_s: Reading) -> Reading {
    ms_per_s.map(|ms| ms / 10.0)
}

/// The limits of the reading before where they are the same; else the new ones, whose size is added to `bytes`.
fn share_limits(new: &Arc<CpuLimits>, before: Option<&Arc<CpuLimits>>, bytes: &mut usize) -> Arc<CpuLimits> {
    if let Some(same) = before.filter(|before| *before == new) {
        return Arc::clone(same);
    }
    *bytes += size_of::<CpuLimits>() + new.list.len() + 4 * size_of::<usize>();
    Arc::clone(new)
}

impl ProcessHistory {
    pub(super) fn push(&mut self, at: Time, valid_ms: u32, samples: Vec<ProcessSample>, keep: &Retention) {
        if self.tables.back().is_some_and(|(last, _)| at < last.at) {
            return;
        }
        let (then, old) = self.before.take().unwrap_or_default();
        let ms = at.since(then);
        let mut bytes = TABLE_BYTES;
        let mut row = |new: &ProcessSample| {
            let same = old.iter().find(|o| o.pid == new.pid && o.start == new.start);
            bytes += size_of::<ProcessRow>() + size_of_val(&*new.gpus) + size_of_val(&*new.shares);
            ProcessRow {
                pid: new.pid,
                user: share(&new.user, same.map(|o| &o.user), &mut bytes),
                command: share(&new.command, same.map(|o| &o.command), &mut bytes),
                gpus: new.gpus.clone(),
                cpu_pct: percent(rate(new.cpu_ms, same.map(|o| o.cpu_ms), ms)),
                rss: new.rss,
                majflt_per_s: rate(new.majflt, same.map(|o| o.majflt), ms),
                page_table: new.page_table,
                state: new.state,
                shares: new.shares.clone(),
                threads: threads(&new.threads, same.map_or(&[], |o| &o.threads), ms, &mut bytes),
                limits: share_limits(&new.limits, same.map(|o| &o.limits), &mut bytes),
                throttled_ms_per_s: rate(new.throttled_ms, same.map(|o| o.throttled_ms), ms),
                other: new.other,
            }
        };
        let rows: Vec<_> = samples.iter().map(&mut row).collect();
        self.bytes += bytes;
        let mut kept = samples;
        for (sample, row) in kept.iter_mut().zip(&rows) {
            (sample.user, sample.command) = (Arc::clone(&row.user), Arc::clone(&row.command));
            sample.limits = Arc::clone(&row.limits);
            for thread in &mut sample.threads {
                if let Some(kept) = row.threads.iter().find(|kept| kept.tid == thread.tid) {
                    thread.name = Arc::clone(&kept.name);
                }
            }
        }
        self.before = Some((at, kept));
        self.tables.push_back((ProcessTable { at, valid_ms, rows, more: MoreProcesses::default() }, bytes));
        let oldest = at - u64::from(keep.full_ms);
        while self.tables.front().is_some_and(|(t, _)| t.at < oldest)
            || (self.bytes > keep.process_bytes && self.tables.len() > 1)
        {
            self.bytes -= self.tables.pop_front().map_or(0, |(_, bytes)| bytes);
        }
    }

    /// Forgets the last totals: the next reading starts anew.
    pub(super) fn break_off(&mut self) {
        self.before = None;
    }

    /// Notes which processes the table of this moment has no room for.
    pub(super) fn note_more(&mut self, at: Time, more: MoreProcesses) {
        if let Some((table, _)) = self.tables.back_mut().filter(|(table, _)| table.at == at) {
            table.more = more;
        }
    }

    /// The newest table read at or before `at`, whatever its age.
    pub(super) fn at(&self, at: Time) -> Option<&ProcessTable> {
        let newest = self.tables.partition_point(|(t, _)| t.at <= at).checked_sub(1)?;
        self.tables.get(newest).map(|(table, _)| table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(pid: u32, start: u64, cpu_ms: f64, majflt: f64) -> ProcessSample {
        ProcessSample {
            pid,
            start,
            user: "u".into(),
            command: "vllm".into(),
            gpus: vec![(0, Reading::Value(1e9))],
            cpu_ms: cpu_ms.into(),
            rss: 5.0.into(),
            majflt: majflt.into(),
            page_table: Reading::Missing(Why::NotPermitted),
            ..ProcessSample::default()
        }
    }

    fn thread(tid: u32, cpu_ms: f64, wait_ms: f64) -> ThreadSample {
        ThreadSample { tid, name: "t".into(), cpu_ms: cpu_ms.into(), wait_ms: wait_ms.into() }
    }

    #[test]
    fn threads_have_the_rates_of_their_own_process_and_the_busiest_is_first() {
        let mut history = ProcessHistory::default();
        let with = |start, threads, throttled: f64| ProcessSample {
            threads,
            throttled_ms: throttled.into(),
            ..sample(1, start, 0.0, 0.0)
        };
        let keep = Retention::HOUR;
        history.push(Time(0), 3500, vec![with(9, vec![thread(5, 100.0, 0.0), thread(6, 100.0, 7.0)], 0.0)], &keep);
        let now = vec![thread(5, 300.0, 0.0), thread(6, 2000.0, 107.0), thread(7, 9.0, 9.0)];
        history.push(Time(2000), 3500, vec![with(9, now, 500.0)], &keep);
        let row = &history.at(Time(2000)).unwrap().rows[0];
        let of = |row: &ProcessRow| row.threads.iter().map(|t| (t.tid, t.cpu_pct, t.wait_pct)).collect::<Vec<_>>();
        let none = Reading::Missing(Why::NotYet);
        assert_eq!(of(row), [(6, 95.0.into(), 5.0.into()), (5, 10.0.into(), 0.0.into()), (7, none, none)]);
        assert_eq!(row.throttled_ms_per_s, Reading::Value(250.0));
        assert!(Arc::ptr_eq(&row.threads[0].name, &history.at(Time(0)).unwrap().rows[0].threads[1].name));
        // Both the process and a thread come back under the same number; and a thread whose total went down is another.
        history.push(Time(3000), 3500, vec![with(77, vec![thread(6, 2100.0, 107.0)], 500.0)], &keep);
        assert_eq!(of(&history.at(Time(3000)).unwrap().rows[0]), [(6, none, none)]);
        history.push(Time(4000), 3500, vec![with(77, vec![thread(6, 3.0, 200.0)], 500.0)], &keep);
        assert_eq!(of(&history.at(Time(4000)).unwrap().rows[0]), [(6, none, 9.3.into())]);
    }

    #[test]
    fn limits_that_stay_are_kept_once() {
        let mut history = ProcessHistory::default();
        for (at, allowed) in [(0, 2.0), (1, 2.0), (2, 3.0)] {
            let limits = Arc::new(CpuLimits { allowed: Reading::Value(allowed), ..CpuLimits::default() });
            let row = ProcessSample { limits, ..sample(1, 9, 0.0, 0.0) };
            history.push(Time(at), 3500, vec![row], &Retention::HOUR);
        }
        let of = |at| Arc::clone(&history.at(Time(at)).unwrap().rows[0].limits);
        assert!(Arc::ptr_eq(&of(0), &of(1)));
        assert_eq!(of(2).allowed, Reading::Value(3.0));
    }

    #[test]
    fn the_oldest_tables_go_when_there_are_too_many_bytes() {
        let mut history = ProcessHistory::default();
        let keep = Retention { process_bytes: 20_000, ..Retention::HOUR };
        for second in 0..1000 {
            history.push(Time(second * 1000), 3500, (0..10).map(|pid| sample(pid, 1, 0.0, 0.0)).collect(), &keep);
        }
        let kept = history.tables.len();
        assert!((5..=12).contains(&kept), "{kept} tables of 10 rows in 20 kB");
        assert!(history.at(Time(500_000)).is_none() && history.at(Time(999_000)).is_some());
        history.push(Time(1_000_000), 3500, (0..500).map(|pid| sample(pid, 1, 0.0, 0.0)).collect(), &keep);
        assert_eq!(history.at(Time(1_000_000)).map(|t| t.rows.len()), Some(500), "the newest always stays");
    }

    /// Fault: host: a process id is used again by another process
    /// Seen: no rate in the first second
    /// Works: everything
    /// Recovers: with the next reading
    #[test]
    fn totals_become_rates_of_the_same_process_only() {
        let mut history = ProcessHistory::default();
        let keep = Retention::HOUR;
        history.push(Time(0), 3500, vec![sample(1, 9, 1000.0, 10.0)], &keep);
        assert_eq!(history.at(Time(0)).unwrap().rows[0].cpu_pct, Reading::Missing(Why::NotYet));
        history.push(Time(2000), 3500, vec![sample(1, 9, 2000.0, 14.0), sample(2, 9, 5.0, 0.0)], &keep);
        let rows = &history.at(Time(2500)).unwrap().rows;
        assert_eq!((rows[0].cpu_pct, rows[0].majflt_per_s), (Reading::Value(50.0), Reading::Value(2.0)));
        assert_eq!(rows[1].cpu_pct, Reading::Missing(Why::NotYet));
        // The pid comes back as another process.
        history.push(Time(3000), 3500, vec![sample(1, 77, 2100.0, 14.0)], &keep);
        assert_eq!(history.at(Time(3000)).unwrap().rows[0].cpu_pct, Reading::Missing(Why::NotYet));
        assert_eq!(history.at(Time(2999)).unwrap().rows.len(), 2);
    }
}
