//! One reading of everything as JSON: `warptop.snapshot/1`, which scripts and checks read.
//!
//! It must not know whether the store is fed live or from a recording. Invariants: every field is
//! always there; what has no value is `null` and has a row in `missing` that says why; names are only
//! ever added. Activity, power, traffic and rates are of the window; clocks, temperatures, memory,
//! queue lengths and KV usage are the newest reading at its end.

mod coverage;
pub(crate) mod diagnosis;
mod engine;
mod gaps;
mod kv;
mod latency;
mod throttling;

use serde::Serialize;

use self::coverage::Coverage;
use self::diagnosis::{EventRow, FindingRow, Signal, events, rows, signals};
use crate::derive::busy::BusyTime;
use crate::derive::ceiling::{self, Ceiling};
use crate::derive::throttle::Throttled;
use crate::diagnosis::{Slo, Timeline};
use crate::model::{FactKey, GpuProcess, Metric, ProcessState, Reading, SourceId, Subject, Why};
use crate::store::{Data, ProcessRow, Window};
use engine::{Engine, engine};
use gaps::{Gaps, Missing};
use throttling::{mig_instances, throttle_reasons, throttled_from};

/// What `schema` says.
pub const SCHEMA: &str = "warptop.snapshot/1";

/// Where the data come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// The machine.
    Live,
    /// A recording.
    Replay,
}

/// The whole reading.
#[derive(Clone, Debug, Serialize)]
pub struct Snapshot {
    schema: &'static str,
    unix_ms: u64,
    mode: Mode,
    /// Length of the window that was asked for.
    window_s: f64,
    gpus: Vec<Gpu>,
    engines: Vec<Engine>,
    host: Host,
    processes: Vec<Process>,
    /// Those that the table has no room for; left out where there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    more_processes: Option<MoreRows>,
    /// Why the server is slow, most harmful first. Its windows are its own.
    diagnosis: Vec<FindingRow>,
    /// What came and went in the time that is kept, newest first.
    events: Vec<EventRow>,
    /// Old: the same findings under the names of before. Goes with the next version.
    signals: Vec<Signal>,
    missing: Vec<Missing>,
}

#[derive(Clone, Debug, Serialize)]
struct Gpu {
    index: u8,
    name: Option<String>,
    activity_source: Option<String>,
    mig_instances: Vec<String>,
    sm_active_pct: Option<f64>,
    sm_occupancy_pct: Option<f64>,
    tensor_active_pct: Option<f64>,
    dram_active_pct: Option<f64>,
    util_gpu_time_pct: Option<f64>,
    util_mem_time_pct: Option<f64>,
    /// The same over the part of the window in which it worked.
    busy: Busy,
    mem_used_bytes: Option<u64>,
    mem_total_bytes: Option<u64>,
    sm_clock_mhz: Option<u64>,
    sm_clock_max_mhz: Option<u64>,
    mem_clock_mhz: Option<u64>,
    temp_c: Option<u64>,
    mem_temp_c: Option<u64>,
    power_w: Option<f64>,
    power_limit_w: Option<f64>,
    throttle_reasons: Option<Vec<&'static str>>,
    throttled_ms_per_s: Option<f64>,
    throttled_from: Option<&'static str>,
    pcie_rx_bytes_per_s: Option<u64>,
    pcie_tx_bytes_per_s: Option<u64>,
    nvlink_rx_bytes_per_s: Option<u64>,
    nvlink_tx_bytes_per_s: Option<u64>,
    mem_clock_max_mhz: Option<u64>,
    temp_slowdown_c: Option<u64>,
    temp_shutdown_c: Option<u64>,
    mem_temp_max_c: Option<u64>,
    dram_peak_bytes_per_s: Option<u64>,
    dram_ceiling: Option<DramCeiling>,
    /// DRAM activity in percent of that.
    dram_active_of_ceiling_pct: Option<f64>,
    /// Mean power from the energy counter, which misses nothing between two readings.
    energy_w: Option<f64>,
    pcie: Link,
    health: Health,
    /// Seconds of the window that each figure over it rests on.
    measured_s: Coverage,
}

/// Means over the part of the window in which the GPU worked.
#[derive(Clone, Debug, Serialize)]
struct Busy {
    /// That part, of the time that is known.
    share_pct: Option<f64>,
    sm_active_pct: Option<f64>,
    tensor_active_pct: Option<f64>,
    dram_active_pct: Option<f64>,
    sm_clock_mhz: Option<u64>,
    power_w: Option<f64>,
}

/// What a probe measured the memory of this very GPU to reach.
#[derive(Clone, Debug, Serialize)]
struct DramCeiling {
    bytes_per_s: u64,
    /// The figure of the report.
    figure: String,
    run: String,
    unix_ms: u64,
    /// Why it may not hold any more, in words; empty while it does.
    doubts: String,
}

/// The PCIe link as it is and as it could be.
#[derive(Clone, Debug, Serialize)]
struct Link {
    generation: Option<u64>,
    generation_max: Option<u64>,
    lanes: Option<u64>,
    lanes_max: Option<u64>,
}

/// Errors of the device memory since the driver was loaded, and rows replaced for good.
#[derive(Clone, Debug, Serialize)]
struct Health {
    ecc_corrected: Option<u64>,
    ecc_uncorrected: Option<u64>,
    remapped_rows: Option<u64>,
    remap_pending: Option<u64>,
}

#[derive(Clone, Debug, Serialize)]
struct Host {
    pgmajfault_per_s: Option<f64>,
    tcp_retrans_per_s: Option<f64>,
    psi_mem_some_pct: Option<f64>,
    psi_cpu_some_pct: Option<f64>,
    psi_io_some_pct: Option<f64>,
    cpu_busy_pct: Option<f64>,
    mem_used_bytes: Option<u64>,
    mem_total_bytes: Option<u64>,
    swap_used_bytes: Option<u64>,
    /// Seconds of the window that each figure over it rests on.
    measured_s: Coverage,
}

#[derive(Clone, Debug, Serialize)]
struct Process {
    pid: u32,
    gpu: Option<u8>,
    name: Option<String>,
    gpu_mem_bytes: Option<u64>,
    majflt_per_s: Option<f64>,
    page_table_bytes: Option<u64>,
    user: Option<String>,
    cpu_pct: Option<f64>,
    rss_bytes: Option<u64>,
    /// What its main thread is doing.
    state: Option<&'static str>,
    busiest_thread: Option<BusiestThread>,
    cpus_allowed: Option<u64>,
    /// Share of time in which its kernels ran on this GPU.
    gpu_share_pct: Option<f64>,
    /// Neither an engine's nor on a GPU.
    other: bool,
}

/// The thread that takes most CPU.
#[derive(Clone, Debug, Serialize)]
struct BusiestThread {
    name: String,
    cpu_pct: Option<f64>,
    wait_pct: Option<f64>,
}

/// Reads the store at the end of `window`; the diagnosis is for the objectives of `slo`.
pub fn snapshot(data: &Data, mode: Mode, window: Window, slo: &Slo) -> Snapshot {
    let mut timeline = Timeline::new(slo.clone());
    timeline.follow(data, window.end);
    timeline.complete(data);
    let diagnosis = timeline.diagnosis();
    let mut gaps = Gaps::new(window.end, data.never());
    let gpus: Vec<_> = data.gpus().enumerate().map(|(place, i)| gpu(data, i, place, window, &mut gaps)).collect();
    gaps.enter(String::new());
    if gpus.is_empty() {
        gaps.source("gpus", data, SourceId::Nvml, window);
    }
    let engines: Vec<_> =
        data.engines().enumerate().map(|(place, i)| engine(data, i, place, window, (diagnosis, &mut gaps))).collect();
    gaps.enter(String::new());
    if engines.is_empty() {
        gaps.source("engines", data, SourceId::Discovery, window);
    }
    let host = host(data, window, &mut gaps);
    let processes = processes(data, window, &mut gaps);
    Snapshot {
        schema: SCHEMA,
        unix_ms: window.end.0,
        mode,
        window_s: window.ms() as f64 / 1000.0,
        gpus,
        engines,
        host,
        processes,
        more_processes: more_rows(data, window),
        diagnosis: rows(diagnosis),
        events: events(timeline.spans(), diagnosis.at),
        signals: signals(diagnosis),
        missing: gaps.rows,
    }
}

fn gpu(data: &Data, index: u8, place: usize, window: Window, gaps: &mut Gaps) -> Gpu {
    gaps.enter(format!("gpus[{place}]."));
    let subject = Subject::Gpu(index);
    let mean = |metric| data.mean(subject, metric, window);
    let newest = |metric| data.latest(subject, metric, window.end).reading;
    let throttled = Throttled::over(data, index, window);
    let mut time = BusyTime::over(data, index, window);
    Gpu {
        index,
        name: gaps.fact("name", data, subject, FactKey::Name),
        activity_source: gaps.fact("activity_source", data, subject, FactKey::ActivitySource),
        mig_instances: mig_instances(data, subject, window.end),
        sm_active_pct: gaps.float("sm_active_pct", mean(Metric::SmActive)),
        sm_occupancy_pct: gaps.float("sm_occupancy_pct", mean(Metric::SmOccupancy)),
        tensor_active_pct: gaps.float("tensor_active_pct", mean(Metric::TensorActive)),
        dram_active_pct: gaps.float("dram_active_pct", mean(Metric::DramActive)),
        util_gpu_time_pct: gaps.float("util_gpu_time_pct", mean(Metric::UtilGpuTime)),
        util_mem_time_pct: gaps.float("util_mem_time_pct", mean(Metric::UtilMemTime)),
        busy: busy(data, &mut time, (index, window), gaps),
        mem_used_bytes: gaps.whole("mem_used_bytes", newest(Metric::GpuMemUsed)),
        mem_total_bytes: gaps.whole("mem_total_bytes", newest(Metric::GpuMemTotal)),
        sm_clock_mhz: gaps.whole("sm_clock_mhz", newest(Metric::SmClock)),
        sm_clock_max_mhz: gaps.whole("sm_clock_max_mhz", newest(Metric::SmClockMax)),
        mem_clock_mhz: gaps.whole("mem_clock_mhz", newest(Metric::MemClock)),
        temp_c: gaps.whole("temp_c", newest(Metric::Temp)),
        mem_temp_c: gaps.whole("mem_temp_c", newest(Metric::MemTemp)),
        power_w: gaps.float("power_w", mean(Metric::Power)),
        power_limit_w: gaps.float("power_limit_w", newest(Metric::PowerLimit)),
        throttle_reasons: throttle_reasons(newest(Metric::ThrottleReasons), &throttled, gaps),
        throttled_ms_per_s: gaps.float("throttled_ms_per_s", throttled.at_least()),
        throttled_from: throttled_from(newest(Metric::ThrottleReasons), &throttled, gaps),
        pcie_rx_bytes_per_s: gaps.whole("pcie_rx_bytes_per_s", mean(Metric::PcieRx)),
        pcie_tx_bytes_per_s: gaps.whole("pcie_tx_bytes_per_s", mean(Metric::PcieTx)),
        nvlink_rx_bytes_per_s: gaps.whole("nvlink_rx_bytes_per_s", mean(Metric::NvlinkRx)),
        nvlink_tx_bytes_per_s: gaps.whole("nvlink_tx_bytes_per_s", mean(Metric::NvlinkTx)),
        mem_clock_max_mhz: gaps.whole("mem_clock_max_mhz", newest(Metric::MemClockMax)),
        temp_slowdown_c: gaps.whole("temp_slowdown_c", newest(Metric::TempSlowdown)),
        temp_shutdown_c: gaps.whole("temp_shutdown_c", newest(Metric::TempShutdown)),
        mem_temp_max_c: gaps.whole("mem_temp_max_c", newest(Metric::MemTempMax)),
        dram_peak_bytes_per_s: gaps.whole("dram_peak_bytes_per_s", newest(Metric::DramPeak)),
        dram_ceiling: dram_ceiling(data, index, window, gaps),
        dram_active_of_ceiling_pct: gaps
            .float("dram_active_of_ceiling_pct", ceiling::share(data, index, mean(Metric::DramActive), window.end)),
        energy_w: gaps.float("energy_w", mean(Metric::Energy)),
        pcie: Link {
            generation: gaps.whole("pcie.generation", newest(Metric::PcieGen)),
            generation_max: gaps.whole("pcie.generation_max", newest(Metric::PcieGenMax)),
            lanes: gaps.whole("pcie.lanes", newest(Metric::PcieWidth)),
            lanes_max: gaps.whole("pcie.lanes_max", newest(Metric::PcieWidthMax)),
        },
        health: Health {
            ecc_corrected: gaps.whole("health.ecc_corrected", newest(Metric::EccCorrected)),
            ecc_uncorrected: gaps.whole("health.ecc_uncorrected", newest(Metric::EccUncorrected)),
            remapped_rows: gaps.whole("health.remapped_rows", newest(Metric::RemappedRows)),
            remap_pending: gaps.whole("health.remap_pending", newest(Metric::RemapPending)),
        },
        measured_s: measured_of_gpu(data, (subject, window), &throttled, &time),
    }
}

fn measured_of_gpu(
    data: &Data,
    (subject, window): (Subject, Window),
    throttled: &Throttled,
    time: &BusyTime,
) -> Coverage {
    let figures = [
        ("sm_active_pct", Metric::SmActive),
        ("sm_occupancy_pct", Metric::SmOccupancy),
        ("tensor_active_pct", Metric::TensorActive),
        ("dram_active_pct", Metric::DramActive),
        ("dram_active_of_ceiling_pct", Metric::DramActive),
        ("util_gpu_time_pct", Metric::UtilGpuTime),
        ("util_mem_time_pct", Metric::UtilMemTime),
        ("power_w", Metric::Power),
        ("energy_w", Metric::Energy),
        ("pcie_rx_bytes_per_s", Metric::PcieRx),
        ("pcie_tx_bytes_per_s", Metric::PcieTx),
        ("nvlink_rx_bytes_per_s", Metric::NvlinkRx),
        ("nvlink_tx_bytes_per_s", Metric::NvlinkTx),
    ];
    let mut measured = Coverage::of(data, subject, window, &figures);
    measured.note("throttled_ms_per_s", throttled.measured_ms);
    measured.note("busy", time.known_ms());
    measured
}

fn busy(data: &Data, time: &mut BusyTime, (index, window): (u8, Window), gaps: &mut Gaps) -> Busy {
    let unknown = || data.mean(Subject::Gpu(index), Metric::SmActive, window).why().unwrap_or(data.never());
    let share = time.share().map_or_else(|| Reading::Missing(unknown()), |share| Reading::new(share * 100.0));
    Busy {
        share_pct: gaps.float("busy.share_pct", share),
        sm_active_pct: gaps.float("busy.sm_active_pct", time.mean(data, Metric::SmActive)),
        tensor_active_pct: gaps.float("busy.tensor_active_pct", time.mean(data, Metric::TensorActive)),
        dram_active_pct: gaps.float("busy.dram_active_pct", time.mean(data, Metric::DramActive)),
        sm_clock_mhz: gaps.whole("busy.sm_clock_mhz", time.mean(data, Metric::SmClock)),
        power_w: gaps.float("busy.power_w", time.mean(data, Metric::Power)),
    }
}

fn dram_ceiling(data: &Data, gpu: u8, window: Window, gaps: &mut Gaps) -> Option<DramCeiling> {
    let known = Ceiling::of(data, gpu, window.end);
    if known.is_none() {
        let words = "no good run of the probe hbm on this GPU is known";
        gaps.row("dram_ceiling", Why::NotYet, Some(words.to_owned()));
    }
    known.map(|ceiling| DramCeiling {
        bytes_per_s: ceiling.bytes_per_s.round() as u64,
        figure: ceiling.from.figure.to_owned(),
        run: ceiling.from.run.to_owned(),
        unix_ms: ceiling.from.at.0,
        doubts: ceiling.doubts().to_string(),
    })
}

fn host(data: &Data, window: Window, gaps: &mut Gaps) -> Host {
    gaps.enter("host.".to_owned());
    let rate = |metric| data.mean(Subject::Host, metric, window);
    let newest = |metric| data.latest(Subject::Host, metric, window.end).reading;
    // µs a second are ten-thousandths of a per cent.
    let stalled = |metric| rate(metric).map(|us| us / 1e4);
    Host {
        pgmajfault_per_s: gaps.float("pgmajfault_per_s", rate(Metric::MajorFaults)),
        tcp_retrans_per_s: gaps.float("tcp_retrans_per_s", rate(Metric::TcpRetrans)),
        psi_mem_some_pct: gaps.float("psi_mem_some_pct", stalled(Metric::PsiMem)),
        psi_cpu_some_pct: gaps.float("psi_cpu_some_pct", stalled(Metric::PsiCpu)),
        psi_io_some_pct: gaps.float("psi_io_some_pct", stalled(Metric::PsiIo)),
        cpu_busy_pct: gaps.float("cpu_busy_pct", rate(Metric::CpuBusy)),
        mem_used_bytes: gaps.whole("mem_used_bytes", newest(Metric::HostMemUsed)),
        mem_total_bytes: gaps.whole("mem_total_bytes", newest(Metric::HostMemTotal)),
        swap_used_bytes: gaps.whole("swap_used_bytes", newest(Metric::SwapUsed)),
        measured_s: Coverage::of(
            data,
            Subject::Host,
            window,
            &[
                ("pgmajfault_per_s", Metric::MajorFaults),
                ("tcp_retrans_per_s", Metric::TcpRetrans),
                ("psi_mem_some_pct", Metric::PsiMem),
                ("psi_cpu_some_pct", Metric::PsiCpu),
                ("psi_io_some_pct", Metric::PsiIo),
                ("cpu_busy_pct", Metric::CpuBusy),
            ],
        ),
    }
}

/// What the process table leaves out.
#[derive(Clone, Debug, Serialize)]
struct MoreRows {
    count: u32,
    gpu_mem_bytes: u64,
}

fn more_rows(data: &Data, window: Window) -> Option<MoreRows> {
    let more = data.current_processes(window.end)?.more;
    (more.count > 0).then_some(MoreRows { count: more.count, gpu_mem_bytes: more.gpu_mem as u64 })
}

/// A row for each process and GPU; a process without device memory has one row of its own.
fn processes(data: &Data, window: Window, gaps: &mut Gaps) -> Vec<Process> {
    gaps.enter(String::new());
    let Some(table) = data.current_processes(window.end) else {
        let why = if data.processes(window.end).is_some() { Why::Stale } else { data.never() };
        gaps.row("processes", why, None);
        return data.gpu_processes().iter().enumerate().map(|(i, held)| nameless(held, i, why, gaps)).collect();
    };
    let none = [(None, Reading::Missing(Why::Unsupported))];
    let mut out = Vec::new();
    for row in &table.rows {
        let on: Vec<_> = row.gpus.iter().map(|&(gpu, mem)| (Some(gpu), mem)).collect();
        for &(gpu, mem) in if on.is_empty() { &none[..] } else { &on } {
            out.push(process(row, gpu, mem, out.len(), gaps));
        }
    }
    out
}

fn process(row: &ProcessRow, gpu: Option<u8>, mem: Reading, place: usize, gaps: &mut Gaps) -> Process {
    gaps.enter(format!("processes[{place}]."));
    if gpu.is_none() {
        gaps.row("gpu", Why::Unsupported, None);
    }
    let text = |key: &str, text: &str, why: Why, gaps: &mut Gaps| {
        if text.is_empty() {
            gaps.row(key, why, None);
        }
        Some(text.to_owned()).filter(|text| !text.is_empty())
    };
    // Anybody may read whose a process is; an import may lack it.
    let no_user = if gaps.never == Why::NotRecorded { Why::NotRecorded } else { Why::NotPermitted };
    Process {
        pid: row.pid,
        gpu,
        name: text("name", &row.command, Why::NotPermitted, gaps),
        gpu_mem_bytes: gaps.whole("gpu_mem_bytes", mem),
        majflt_per_s: gaps.float("majflt_per_s", row.majflt_per_s),
        page_table_bytes: gaps.whole("page_table_bytes", row.page_table),
        user: text("user", &row.user, no_user, gaps),
        cpu_pct: gaps.float("cpu_pct", row.cpu_pct),
        rss_bytes: gaps.whole("rss_bytes", row.rss),
        state: state(row, gaps),
        busiest_thread: busiest_thread(row, gaps),
        cpus_allowed: gaps.whole("cpus_allowed", gaps.never_read(row.limits.allowed)),
        gpu_share_pct: gpu_share(row, gpu, gaps),
        other: row.other,
    }
}

fn state(row: &ProcessRow, gaps: &mut Gaps) -> Option<&'static str> {
    if row.state.is_none() {
        // It is read with the CPU time, of which it is known why it is missing; but it needs no second reading.
        let why = row.cpu_pct.why().filter(|&why| why != Why::NotYet);
        gaps.row("state", why.unwrap_or(gaps.never), None);
    }
    row.state.map(ProcessState::word)
}

fn busiest_thread(row: &ProcessRow, gaps: &mut Gaps) -> Option<BusiestThread> {
    let Some(thread) = row.threads.first() else {
        let words = "threads are read of engines and of processes on a GPU";
        gaps.row("busiest_thread", row.cpu_pct.why().unwrap_or(gaps.never), Some(words.to_owned()));
        return None;
    };
    Some(BusiestThread {
        name: thread.name.to_string(),
        cpu_pct: gaps.float("busiest_thread.cpu_pct", thread.cpu_pct),
        wait_pct: gaps.float("busiest_thread.wait_pct", thread.wait_pct),
    })
}

fn gpu_share(row: &ProcessRow, gpu: Option<u8>, gaps: &mut Gaps) -> Option<f64> {
    if let Some((_, share)) = row.shares.iter().find(|(of, _)| Some(*of) == gpu) {
        return gaps.float("gpu_share_pct", *share);
    }
    let words = "asked for while several processes, or one of no engine, hold memory on the GPU";
    gaps.row("gpu_share_pct", gaps.never, Some(words.to_owned()));
    None
}

/// A process of which only the driver's list is known.
fn nameless(held: &GpuProcess, place: usize, why: Why, gaps: &mut Gaps) -> Process {
    gaps.enter(format!("processes[{place}]."));
    let unread = ["name", "majflt_per_s", "page_table_bytes", "user", "cpu_pct", "rss_bytes"];
    for key in unread.into_iter().chain(["state", "busiest_thread", "cpus_allowed"]) {
        gaps.row(key, why, None);
    }
    Process {
        pid: held.pid,
        gpu: Some(held.gpu),
        name: None,
        gpu_mem_bytes: gaps.whole("gpu_mem_bytes", held.mem),
        majflt_per_s: None,
        page_table_bytes: None,
        user: None,
        cpu_pct: None,
        rss_bytes: None,
        state: None,
        busiest_thread: None,
        cpus_allowed: None,
        gpu_share_pct: gaps.float("gpu_share_pct", held.share),
        other: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ceiling::CeilingOrigin;
    use crate::model::{Batch, CpuLimits, MoreProcesses, ProcessSample, ThreadSample, Time};
    use crate::store::{Retention, Store};

    const AT: Time = Time(1_795_960_600_000);

    #[test]
    fn a_process_says_what_it_does_and_what_keeps_it_from_it() {
        let store = Store::new(Retention::HOUR);
        for (at, cpu_ms) in [(AT - 1_000, 0.0), (AT, 950.0)] {
            let thread = |tid, name: &str, cpu_ms: f64| ThreadSample {
                tid,
                name: name.into(),
                cpu_ms: cpu_ms.into(),
                wait_ms: Reading::Missing(Why::Unsupported),
            };
            let limits = CpuLimits { allowed: 1.0.into(), ..CpuLimits::default() };
            let mut batch = Batch::new(SourceId::Process, at, 3_500);
            batch.more_processes = Some(MoreProcesses { count: 136, gpu_mem: 5e9 });
            batch.processes = Some(vec![ProcessSample {
                pid: 7,
                gpus: vec![(0, 1e9.into()), (1, 1e9.into())],
                shares: vec![(1, 40.0.into())],
                state: Some(ProcessState::DiskSleep),
                threads: vec![thread(7, "main", 0.0), thread(8, "EngineCore", cpu_ms)],
                limits: limits.into(),
                ..ProcessSample::default()
            }]);
            store.push(&batch);
        }
        let read = serde_json::to_value(snapshot(&store.read(), Mode::Live, Window::last(AT, 1_000), &Slo::default()))
            .unwrap();
        let process = &read["processes"][1];
        let thread = serde_json::json!({"name": "EngineCore", "cpu_pct": 95.0, "wait_pct": null});
        assert_eq!((&process["state"], &process["busiest_thread"]), (&"disk sleep".into(), &thread));
        assert_eq!((&process["cpus_allowed"], &process["gpu_share_pct"]), (&1.into(), &40.0.into()));
        assert_eq!(process["other"], false);
        assert_eq!(read["more_processes"], serde_json::json!({"count": 136, "gpu_mem_bytes": 5_000_000_000_u64}));
        let why = |key: &str| {
            let row = read["missing"].as_array()?.iter().find(|row| row["key"] == key)?;
            Some(row["why"].clone())
        };
        assert_eq!(why("processes[1].busiest_thread.wait_pct"), Some("unsupported".into()));
        assert_eq!(why("processes[0].gpu_share_pct"), Some("not_yet".into()));
    }

    #[test]
    fn a_measured_ceiling_is_there_with_its_run_or_missing_with_a_reason() {
        let store = Store::new(Retention::HOUR);
        let mut batch = Batch::new(SourceId::Nvml, AT, Batch::FOREVER);
        let gpu = Subject::Gpu(0);
        batch.fact(gpu, FactKey::Name, "NVIDIA H200");
        batch.push(gpu, Metric::DramPeak, 4.8e12);
        batch.push(gpu, Metric::DramActive, 55.0);
        store.push(&batch);
        let read = || {
            serde_json::to_value(snapshot(&store.read(), Mode::Live, Window::last(AT, 1_000), &Slo::default())).unwrap()
        };
        let before = read();
        assert!(
            before["gpus"][0]["dram_ceiling"].is_null() && before["gpus"][0]["dram_active_of_ceiling_pct"].is_null()
        );
        let rows = before["missing"].as_array().unwrap();
        let row = rows.iter().find(|row| row["key"] == "gpus[0].dram_ceiling").unwrap();
        assert!(row["detail"].as_str().unwrap().contains("the probe hbm"), "{row}");
        assert!(rows.iter().any(|row| row["key"] == "gpus[0].dram_active_of_ceiling_pct"));
        let mut batch = Batch::new(SourceId::Probe, AT, Batch::FOREVER);
        batch.push(gpu, Metric::DramCeiling, 4.4e12);
        let (at, warptop) = (AT - 7_200_000, "0.0.1");
        let origin = CeilingOrigin { figure: "read", at, run: "r", driver: "", warptop };
        batch.fact(gpu, FactKey::DramCeilingOrigin, &origin.to_string());
        store.push(&batch);
        let ceiling = &read()["gpus"][0]["dram_ceiling"];
        let bytes = ceiling["bytes_per_s"].as_f64().unwrap();
        assert!((bytes / 4.4e12 - 1.0).abs() < 1e-6, "{bytes}");
        assert_eq!(
            (&ceiling["figure"], &ceiling["run"], &ceiling["unix_ms"]),
            (&"read".into(), &"r".into(), &at.0.into())
        );
        assert_eq!(ceiling["doubts"], "old: by warptop 0.0.1");
        // 55 % of 4.8 TB/s are 2.64 TB/s.
        let share = read()["gpus"][0]["dram_active_of_ceiling_pct"].as_f64().unwrap();
        assert!((share - 60.0).abs() < 1e-3, "{share}");
    }
}
