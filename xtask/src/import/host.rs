//! Rows of `proc.jsonl.gz`: `/proc` of the machine and of the server's processes.

use std::collections::HashMap;
use std::path::Path;

use serde::Deserialize;
use warptop::engine::launch;
use warptop::model::{Batch, CpuLimits, GpuProcess, ProcessSample, Reading, SourceId, ThreadSample, Time, Why, text};
use warptop::sampler::{HostReader, cpu_limits};

use super::rows;

const VALID_MS: u32 = 3500;
/// A clock tick of `/proc/PID/stat` in ms: `USER_HZ` is 100 on every Linux that runs CUDA.
const TICK_MS: f64 = 10.0;

#[derive(Deserialize)]
struct Row {
    unix_ms: u64,
    #[serde(default)]
    procs: Vec<Process>,
    vmstat: Option<HashMap<String, f64>>,
    pressure: Option<HashMap<String, String>>,
    /// Words of the first lines of `/proc/stat`.
    stat: Option<Vec<Vec<String>>>,
    /// Fields of `/proc/meminfo`, with their unit.
    mem: Option<HashMap<String, String>>,
    tcp_retrans: Option<f64>,
}

#[derive(Deserialize)]
#[expect(non_snake_case, reason = "names of /proc/PID/status")]
struct Process {
    pid: u32,
    ppid: Option<u32>,
    #[serde(default)]
    cmd: String,
    utime: Option<f64>,
    stime: Option<f64>,
    majflt: Option<f64>,
    VmRSS: Option<String>,
    VmPTE: Option<String>,
    /// CPUs that it may run on.
    cpus: Option<String>,
    /// Its busiest threads: ticks of CPU time, id and name.
    #[serde(default)]
    top: Vec<(f64, u32, String)>,
}

/// What `proc.jsonl.gz` holds.
pub(super) struct Host {
    /// All readings of the machine and its processes.
    pub(super) batches: Vec<Batch>,
    /// From when on the server consists of which processes, as [`warptop::model::FactKey::Pids`] has them.
    pub(super) pids: Vec<(Time, String)>,
}

/// Reads all rows; `held` says which processes hold device memory.
pub(super) fn read(dir: &Path, held: &[(Time, Vec<GpuProcess>)]) -> Result<Host, String> {
    let rows = rows::<Row>(dir, "proc.jsonl.gz")?;
    let mut out = Host { batches: Vec::new(), pids: Vec::new() };
    if rows.is_empty() {
        return Ok(out);
    }
    // The files are laid out as in /proc: so the program's own reader finds in them what it finds there.
    let files = tempfile::tempdir().map_err(|e| format!("no room for files of /proc: {e}"))?;
    let mut reader = HostReader::at(files.path());
    for row in &rows {
        row.lay_out(files.path()).map_err(|e| format!("no room for files of /proc: {e}"))?;
        let mut batch = Batch::new(SourceId::Host, Time(row.unix_ms), VALID_MS);
        reader.read(&mut batch);
        out.batches.push(batch);
        out.batches.push(processes(row, held));
        let pids = server(&row.procs);
        if !pids.is_empty() && out.pids.last().is_none_or(|last| last.1 != pids) {
            out.pids.push((Time(row.unix_ms), pids));
        }
    }
    Ok(out)
}

impl Row {
    /// Writes what was captured where `/proc` has it, and nothing else.
    fn lay_out(&self, proc: &Path) -> std::io::Result<()> {
        let meminfo = |fields: &HashMap<String, String>| {
            fields.iter().flat_map(|(name, amount)| [name, ": ", amount, "\n"]).collect()
        };
        let vmstat = |fields: &HashMap<String, f64>| {
            let lines: Vec<_> = fields.iter().map(|(name, total)| format!("{name} {total}\n")).collect();
            lines.concat()
        };
        let stat = self.stat.as_ref().map(|cpus| cpus.iter().map(|words| words.join(" ") + "\n").collect());
        let tcp = self.tcp_retrans.map(|total| format!("Tcp: RetransSegs\nTcp: {total}\n"));
        let pressure = |of: &str| self.pressure.as_ref().and_then(|files| files.get(of).cloned());
        let files: [(&str, Option<String>); 7] = [
            ("stat", stat),
            ("meminfo", self.mem.as_ref().map(meminfo)),
            ("vmstat", self.vmstat.as_ref().map(vmstat)),
            ("net/snmp", tcp),
            ("pressure/cpu", pressure("cpu")),
            ("pressure/memory", pressure("memory")),
            ("pressure/io", pressure("io")),
        ];
        for (name, text) in files {
            let path = proc.join(name);
            std::fs::create_dir_all(path.parent().unwrap_or(proc))?;
            match text {
                Some(text) => std::fs::write(path, text)?,
                // The row before may have had it.
                None => drop(std::fs::remove_file(path)),
            }
        }
        Ok(())
    }

    /// CPUs that are there, as the kernel lists them.
    fn online(&self) -> String {
        let names = self.stat.iter().flatten().filter_map(|words| words.first()?.strip_prefix("cpu"));
        names.filter(|number| !number.is_empty()).collect::<Vec<_>>().join(",")
    }
}

/// The server's processes: the first whose command line is that of an engine, and what it started. A capture that does
/// not say who started whom lists no others.
fn server(procs: &[Process]) -> String {
    let Some(first) = procs.iter().find(|process| launch::is_engine(&process.cmd)).or_else(|| procs.first()) else {
        return String::new();
    };
    let mut pids = vec![first.pid];
    for _ in procs {
        let child = |p: &&Process| p.ppid.is_none_or(|parent| pids.contains(&parent)) && !pids.contains(&p.pid);
        let Some(child) = procs.iter().find(child).map(|process| process.pid) else { break };
        pids.push(child);
    }
    pids.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

fn processes(row: &Row, held: &[(Time, Vec<GpuProcess>)]) -> Batch {
    let at = Time(row.unix_ms);
    // The list that was current: the newest one, or the first, which came a moment later.
    let list = held.iter().rfind(|(then, _)| *then <= at).or_else(|| held.first()).map_or(&[][..], |h| &h.1);
    let online = row.online();
    let mut batch = Batch::new(SourceId::Process, at, VALID_MS);
    batch.processes = Some(row.procs.iter().map(|process| sample(process, list, &online)).collect());
    batch
}

fn sample(process: &Process, held: &[GpuProcess], online: &str) -> ProcessSample {
    let ticks = process.utime.zip(process.stime).map(|(user, system)| user + system);
    let on = || held.iter().filter(|h| h.pid == process.pid);
    ProcessSample {
        pid: process.pid,
        user: "".into(),
        command: text::clean(&process.cmd).into(),
        gpus: on().map(|h| (h.gpu, h.mem)).collect(),
        shares: on().filter(|h| h.share.value().is_some()).map(|h| (h.gpu, h.share)).collect(),
        cpu_ms: reading(ticks.map(|t| t * TICK_MS)),
        rss: reading(process.VmRSS.as_deref().and_then(kilobytes)),
        majflt: reading(process.majflt),
        page_table: reading(process.VmPTE.as_deref().and_then(kilobytes)),
        threads: threads(process),
        limits: process.cpus.as_ref().map_or_else(CpuLimits::default, |cpus| cpu_limits(cpus, online)).into(),
        ..ProcessSample::default()
    }
}

/// The busiest threads, the main one first as in the program.
fn threads(process: &Process) -> Vec<ThreadSample> {
    let mut threads: Vec<_> = process.top.iter().collect();
    threads.sort_by_key(|(_, tid, _)| *tid != process.pid);
    let sample = |(ticks, tid, name): &(f64, u32, String)| ThreadSample {
        tid: *tid,
        name: text::clean(name).into(),
        cpu_ms: Reading::new(ticks * TICK_MS),
        wait_ms: Reading::Missing(Why::Unsupported),
    };
    threads.into_iter().map(sample).collect()
}

/// "1094252 kB" in bytes.
fn kilobytes(text: &str) -> Option<f64> {
    text.strip_suffix(" kB")?.trim().parse::<f64>().ok().map(|kb| kb * 1024.0)
}

fn reading(value: Option<f64>) -> Reading {
    value.map_or(Reading::Missing(Why::Failed), Reading::new)
}
