//! Rows of `proc.jsonl.gz`: `/proc` of the machine and of the server's processes.

use std::path::Path;

use serde::Deserialize;
use warptop::model::{Batch, GpuProcess, Metric, ProcessSample, Reading, SourceId, Subject, Time, Why, text};

use super::rows;

const VALID_MS: u32 = 3500;
/// A clock tick of `/proc/PID/stat` in ms: `USER_HZ` is 100 on every Linux that runs CUDA.
const TICK_MS: f64 = 10.0;

#[derive(Deserialize)]
struct Row {
    unix_ms: u64,
    #[serde(default)]
    procs: Vec<Process>,
    vmstat: Option<Vmstat>,
    pressure: Option<Pressure>,
}

#[derive(Deserialize)]
struct Vmstat {
    pgmajfault: Option<f64>,
}

#[derive(Deserialize)]
struct Pressure {
    cpu: Option<String>,
    memory: Option<String>,
    io: Option<String>,
}

#[derive(Deserialize)]
#[expect(non_snake_case, reason = "names of /proc/PID/status")]
struct Process {
    pid: u32,
    #[serde(default)]
    cmd: String,
    utime: Option<f64>,
    stime: Option<f64>,
    majflt: Option<f64>,
    VmRSS: Option<String>,
    VmPTE: Option<String>,
}

/// The server's processes as [`warptop::model::FactKey::Pids`] has them: the capture lists them in the order in
/// which they started, the listening one first.
pub(super) fn pids(dir: &Path) -> Result<String, String> {
    let first = rows::<Row>(dir, "proc.jsonl.gz")?.into_iter().next();
    let pids: Vec<_> = first.iter().flat_map(|row| &row.procs).map(|process| process.pid.to_string()).collect();
    Ok(pids.join(","))
}

/// All readings of the host and its processes; `held` says which of them hold device memory.
pub(super) fn batches(dir: &Path, held: &[(Time, Vec<GpuProcess>)]) -> Result<Vec<Batch>, String> {
    let rows = rows::<Row>(dir, "proc.jsonl.gz")?;
    Ok(rows.iter().flat_map(|row| [host(row), processes(row, held)]).collect())
}

fn host(row: &Row) -> Batch {
    let mut batch = Batch::new(SourceId::Host, Time(row.unix_ms), VALID_MS);
    if let Some(vmstat) = &row.vmstat {
        batch.push(Subject::Host, Metric::MajorFaults, reading(vmstat.pgmajfault));
    }
    if let Some(pressure) = &row.pressure {
        let parts =
            [(Metric::PsiCpu, &pressure.cpu), (Metric::PsiMem, &pressure.memory), (Metric::PsiIo, &pressure.io)];
        for (metric, text) in parts {
            batch.push(Subject::Host, metric, reading(text.as_deref().and_then(some_total)));
        }
    }
    batch
}

/// The total of the line "some", µs.
fn some_total(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with("some "))?;
    line.split(' ').find_map(|word| word.strip_prefix("total="))?.parse().ok()
}

fn processes(row: &Row, held: &[(Time, Vec<GpuProcess>)]) -> Batch {
    let at = Time(row.unix_ms);
    // The list that was current: the newest one, or the first, which came a moment later.
    let list = held.iter().rfind(|(then, _)| *then <= at).or_else(|| held.first()).map_or(&[][..], |h| &h.1);
    let mut batch = Batch::new(SourceId::Process, at, VALID_MS);
    batch.processes = Some(row.procs.iter().map(|process| sample(process, list)).collect());
    batch
}

fn sample(process: &Process, held: &[GpuProcess]) -> ProcessSample {
    let ticks = process.utime.zip(process.stime).map(|(user, system)| user + system);
    ProcessSample {
        pid: process.pid,
        user: "".into(),
        command: text::clean(&process.cmd).into(),
        gpus: held.iter().filter(|h| h.pid == process.pid).map(|h| (h.gpu, h.mem)).collect(),
        cpu_ms: reading(ticks.map(|t| t * TICK_MS)),
        rss: reading(process.VmRSS.as_deref().and_then(kilobytes)),
        majflt: reading(process.majflt),
        page_table: reading(process.VmPTE.as_deref().and_then(kilobytes)),
        ..ProcessSample::default()
    }
}

/// "1094252 kB" in bytes.
fn kilobytes(text: &str) -> Option<f64> {
    text.strip_suffix(" kB")?.trim().parse::<f64>().ok().map(|kb| kb * 1024.0)
}

fn reading(value: Option<f64>) -> Reading {
    value.map_or(Reading::Missing(Why::Failed), Reading::new)
}
