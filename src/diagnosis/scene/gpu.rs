//! One GPU: what it did while work ran, what held it back, and who is on it.

use crate::derive::busy::BusyTime;
use crate::derive::throttle::{self, Throttled, ThrottledBy};
use crate::engine::launch;
use crate::model::{Metric, Subject, Time};
use crate::store::{Data, Window};

use super::engine::EngineScene;
use super::process_mean;

/// What "now" means for a GPU that may rest, ms.
const NOW_MS: u64 = 3_000;

/// Process tables over which the driver's share of a process is averaged, and the time between them, ms: it is asked
/// every two seconds.
const SHARE_TABLES: u64 = 4;
const SHARE_MS: u64 = 2_000;

/// DRAM activity from which on memory limits, % of peak, where the tensor pipes are far less busy. A copy reaches 92 % on
/// an H200, decode of 8 requests 63 %, split over two GPUs 41 %.
const MEMORY: f64 = 38.0;
/// How many times as busy as the tensor pipes the memory has to be.
const RATIO: f64 = 2.5;

/// SM activity from which on compute limits, %.
const COMPUTE_SM: f64 = 80.0;
/// Tensor activity that shows that it is work and not waiting, %.
const COMPUTE_TENSOR: f64 = 40.0;

/// A process on the GPU that belongs to no engine.
#[derive(Clone, Debug)]
pub(in crate::diagnosis) struct GpuProcessScene {
    pub(in crate::diagnosis) pid: u32,
    pub(in crate::diagnosis) command: String,
    pub(in crate::diagnosis) mem: Option<f64>,
    /// % of a core.
    pub(in crate::diagnosis) cpu_pct: Option<f64>,
    /// NVML's share of the SMs' time, %.
    pub(in crate::diagnosis) share_pct: Option<f64>,
}

/// Figures of one GPU. `None`: not known. Activity, clocks and power are means over the time in which work ran.
#[derive(Clone, Debug, Default)]
pub(in crate::diagnosis) struct GpuScene {
    pub(in crate::diagnosis) index: u8,
    /// Share of the known time in which work ran, 0 to 1; `None` where neither activity nor utilisation is read.
    pub(in crate::diagnosis) busy: Option<f64>,
    /// The same of the last three seconds.
    pub(in crate::diagnosis) busy_now: Option<f64>,
    pub(in crate::diagnosis) sm: Option<f64>,
    pub(in crate::diagnosis) dram: Option<f64>,
    pub(in crate::diagnosis) tensor: Option<f64>,
    pub(in crate::diagnosis) util: Option<f64>,
    pub(in crate::diagnosis) clock: Option<f64>,
    pub(in crate::diagnosis) clock_max: Option<f64>,
    pub(in crate::diagnosis) power: Option<f64>,
    pub(in crate::diagnosis) power_limit: Option<f64>,
    pub(in crate::diagnosis) temp: Option<f64>,
    /// Share of the working time, 0 to 1, in which each clock reason held (bit of NVML, share).
    pub(in crate::diagnosis) held: Vec<(u64, f64)>,
    /// What these shares rest on.
    pub(in crate::diagnosis) held_from: ThrottledBy,
    pub(in crate::diagnosis) pcie_rx: Option<f64>,
    pub(in crate::diagnosis) pcie_tx: Option<f64>,
    pub(in crate::diagnosis) nvlink: Option<f64>,
    /// NVLinks that are up.
    pub(in crate::diagnosis) links_up: Option<f64>,
    /// Other GPUs of the machine whose memory it cannot read.
    pub(in crate::diagnosis) blocked_peers: Option<f64>,
    /// Generation now and at most, lanes now and at most.
    pub(in crate::diagnosis) pcie: [Option<f64>; 4],
    pub(in crate::diagnosis) mem_used: Option<f64>,
    pub(in crate::diagnosis) mem_total: Option<f64>,
    pub(in crate::diagnosis) others: Vec<GpuProcessScene>,
}

impl GpuScene {
    pub(super) fn of(data: &Data, index: u8, window: Window, engines: &[EngineScene]) -> Self {
        let subject = Subject::Gpu(index);
        let newest = |metric| data.latest(subject, metric, window.end).reading.value();
        let mean = |metric| data.mean(subject, metric, window).value();
        let mut time = BusyTime::over(data, index, window);
        let (busy, busy_now) = (time.share(), time.share_of_last(NOW_MS));
        let throttled = Throttled::over(data, index, window);
        let (held, held_from) = throttle::held(data, &throttled, &mut time).unwrap_or_default();
        let mut in_work = |metric| time.mean(data, metric).value();
        Self {
            index,
            busy,
            busy_now,
            sm: in_work(Metric::SmActive),
            dram: in_work(Metric::DramActive),
            tensor: in_work(Metric::TensorActive),
            util: mean(Metric::UtilGpuTime),
            clock: in_work(Metric::SmClock),
            clock_max: newest(Metric::SmClockMax),
            power: in_work(Metric::Power),
            power_limit: newest(Metric::PowerLimit),
            temp: newest(Metric::Temp),
            held,
            held_from,
            pcie_rx: mean(Metric::PcieRx),
            pcie_tx: mean(Metric::PcieTx),
            nvlink: mean(Metric::NvlinkRx),
            links_up: newest(Metric::NvlinkLinksUp),
            blocked_peers: newest(Metric::P2pPeersBlocked),
            pcie: [Metric::PcieGen, Metric::PcieGenMax, Metric::PcieWidth, Metric::PcieWidthMax].map(newest),
            mem_used: newest(Metric::GpuMemUsed),
            mem_total: newest(Metric::GpuMemTotal),
            others: others(data, index, window, engines),
        }
    }

    /// Share of the working time in which a reason with one of these bits held the clocks down, 0 to 1.
    pub(in crate::diagnosis) fn held_by(&self, bits: u64) -> f64 {
        self.held.iter().filter(|(bit, _)| bit & bits != 0).map(|&(_, share)| share).fold(0.0, f64::max)
    }

    /// Share of the highest clock that is missing while work runs, 0 to 1.
    pub(in crate::diagnosis) fn clock_loss(&self) -> Option<f64> {
        Some((1.0 - self.clock? / self.clock_max.filter(|&max| max > 0.0)?).clamp(0.0, 1.0))
    }

    /// Whether memory is what limits it: busy, and far busier than the tensor pipes.
    pub(in crate::diagnosis) fn is_memory_bound(&self) -> bool {
        self.dram.is_some_and(|dram| dram >= MEMORY && dram >= self.tensor.unwrap_or(0.0) * RATIO)
    }

    /// Whether the SMs are what limits it: full, and full of matrix products.
    pub(in crate::diagnosis) fn is_compute_bound(&self) -> bool {
        self.sm.is_some_and(|sm| sm >= COMPUTE_SM) && self.tensor.is_some_and(|tensor| tensor >= COMPUTE_TENSOR)
    }

    /// "GPU 0".
    pub(in crate::diagnosis) fn label(&self) -> String {
        format!("GPU {}", self.index)
    }
}

/// Processes on the GPU that belong to none of the engines.
fn others(data: &Data, gpu: u8, window: Window, engines: &[EngineScene]) -> Vec<GpuProcessScene> {
    let Some(table) = data.current_processes(window.end) else { return Vec::new() };
    let own = |pid: u32| engines.iter().any(|engine| engine.pids.contains(&pid));
    // Without an engine nobody is a neighbour: whoever computes is the work. A process of an engine that is not known
    // as one says so by its title or command line.
    let rows = table.rows.iter().filter(|row| !engines.is_empty() && !own(row.pid) && !launch::is_engine(&row.command));
    rows.filter_map(|row| {
        let (_, mem) = row.gpus.iter().find(|(on, _)| *on == gpu)?;
        Some(GpuProcessScene {
            pid: row.pid,
            command: row.command.to_string(),
            mem: mem.value(),
            cpu_pct: row.cpu_pct.value(),
            share_pct: share(data, row.pid, gpu, window.end),
        })
    })
    .collect()
}

/// The driver's share of the SMs' time that a process had on a GPU, %: a mean, since single ones are off by a third.
fn share(data: &Data, pid: u32, gpu: u8, at: Time) -> Option<f64> {
    process_mean(data, pid, at, (SHARE_TABLES, SHARE_MS), |row| row.shares.iter().find(|(on, _)| *on == gpu)?.1.value())
}
