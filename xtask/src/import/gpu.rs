//! Rows of `gpu.jsonl.gz`: what NVML and GPM said, a row a GPU.

use std::collections::HashMap;
use std::path::Path;

use serde::Deserialize;
use warptop::model::{Batch, GpuProcess, Metric, Reading, SourceId, Subject, Time, Why};

use super::{Captured, rows};

/// The fast class was read every 100 ms.
const FAST_VALID_MS: u32 = 1500;
/// The slow class was read every second.
const SLOW_VALID_MS: u32 = 3500;
const PER_BYTE: f64 = 1.0 / 1_048_576.0;

#[derive(Deserialize)]
struct Row {
    unix_ms: u64,
    /// Captures of one GPU leave it out.
    #[serde(default)]
    gpu: u8,
    #[serde(default)]
    gpm: HashMap<String, Captured>,
    procs: Option<Vec<(u32, f64)>>,
    #[serde(default)]
    proc_util: Vec<Share>,
    #[serde(flatten)]
    values: HashMap<String, serde_json::Value>,
}

/// What the driver says of the time in which a process's kernels ran.
#[derive(Deserialize)]
struct Share {
    pid: u32,
    /// %.
    sm: f64,
}

/// Name in the capture, metric, and how many of the capture's unit make one of the metric's.
type Field = (&'static str, Metric, f64);

const GPM: &[Field] = &[
    ("sm_util", Metric::SmActive, 1.0),
    ("sm_occupancy", Metric::SmOccupancy, 1.0),
    ("any_tensor_util", Metric::TensorActive, 1.0),
    ("dram_bw_util", Metric::DramActive, 1.0),
    ("pcie_rx_per_sec", Metric::PcieRx, PER_BYTE),
    ("pcie_tx_per_sec", Metric::PcieTx, PER_BYTE),
    ("nvlink_total_rx_per_sec", Metric::NvlinkRx, PER_BYTE),
    ("nvlink_total_tx_per_sec", Metric::NvlinkTx, PER_BYTE),
];

const FAST: &[Field] = &[
    ("util_gpu", Metric::UtilGpuTime, 1.0),
    ("util_mem", Metric::UtilMemTime, 1.0),
    ("mem_used", Metric::GpuMemUsed, 1.0),
    ("mem_total", Metric::GpuMemTotal, 1.0),
    ("temp", Metric::Temp, 1.0),
    ("power_mw", Metric::Power, 1e3),
    ("sm_mhz", Metric::SmClock, 1.0),
    ("mem_mhz", Metric::MemClock, 1.0),
    ("event_reasons", Metric::ThrottleReasons, 1.0),
];

/// The violation counters (`nvmlDeviceGetViolationStatus`, ns) are the driver's older account of the
/// time that power and heat held clocks down. They stand in for the two counters of software capping,
/// which this capture did not read; in its overload, 98 % of the readings have the power cap's bit, and
/// the power counter grows by 983 ms a second.
const SLOW: &[Field] = &[
    ("energy_mj", Metric::Energy, 1e3),
    ("mem_temp", Metric::MemTemp, 1.0),
    ("viol_power_ns", Metric::ThrottledPowerCap, 1e6),
    ("viol_thermal_ns", Metric::ThrottledSwThermal, 1e6),
];

/// All readings of the GPUs.
pub(super) fn batches(dir: &Path) -> Result<Vec<Batch>, String> {
    // The list of processes is one for all GPUs: each row renews its GPU's part.
    let mut held = Vec::new();
    let rows = rows::<Row>(dir, "gpu.jsonl.gz")?;
    Ok(rows.iter().flat_map(|row| [fast(row), slow(row, &mut held)]).flatten().collect())
}

fn fast(row: &Row) -> Option<Batch> {
    let mut batch = Batch::new(SourceId::Nvml, Time(row.unix_ms), FAST_VALID_MS);
    for (name, metric, unit) in GPM {
        if let Some(value) = row.gpm.get(*name) {
            batch.push(Subject::Gpu(row.gpu), *metric, value.per(*unit));
        }
    }
    take(row, FAST, &mut batch);
    (!batch.samples.is_empty()).then_some(batch)
}

fn slow(row: &Row, held: &mut Vec<GpuProcess>) -> Option<Batch> {
    let mut batch = Batch::new(SourceId::Nvml, Time(row.unix_ms), SLOW_VALID_MS);
    take(row, SLOW, &mut batch);
    if let Some(list) = &row.procs {
        held.retain(|process| process.gpu != row.gpu);
        held.extend(list.iter().map(|&(pid, bytes)| GpuProcess {
            gpu: row.gpu,
            pid,
            mem: Reading::new(bytes),
            share: row.share(pid),
        }));
        batch.gpu_processes = Some(held.clone());
    }
    (!batch.samples.is_empty() || batch.gpu_processes.is_some()).then_some(batch)
}

impl Row {
    fn share(&self, pid: u32) -> Reading {
        let known = self.proc_util.iter().find(|share| share.pid == pid);
        known.map_or(Reading::Missing(Why::NotYet), |share| Reading::new(share.sm))
    }
}

fn take(row: &Row, fields: &[Field], batch: &mut Batch) {
    for (name, metric, unit) in fields {
        if let Some(value) = row.values.get(*name) {
            batch.push(Subject::Gpu(row.gpu), *metric, Captured(value.as_f64()).per(*unit));
        }
    }
}

/// The lists of processes with device memory, by time.
pub(super) fn memory_held(batches: &[Batch]) -> Vec<(Time, Vec<GpuProcess>)> {
    batches.iter().filter_map(|batch| Some((batch.at, batch.gpu_processes.clone()?))).collect()
}
