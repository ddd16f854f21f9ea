//! The machine as the guard of the probes and their reports see it, read from the store.
//!
//! It must not judge: that is the guard's. Invariant: what the store does not know is missing here too.

use std::collections::BTreeMap;
use std::fs;

use crate::derive::throttle::Throttled;
use crate::model::text::clean;
use crate::model::{Address, FactKey, Metric, Reading, SourceId, SourceState, Subject, Time, Why};
use crate::probe::guard::{self, Gpu, Host, Machine, OnGpu};
use crate::probe::life::Refusal;
use crate::probe::report::timeline::Steps;
use crate::probe::report::{Environment, GpuEnvironment, Range};
use crate::probe::{Aim, Cost, GpuName, Needs, Target};
use crate::store::{Data, Window};

use super::endpoint;

/// How far back activity is looked at before a run, ms.
const BUSY_MS: u64 = 2_000;
/// Steps of a timeline, at most.
const MOST_STEPS: u64 = 600;

/// What a probe is aimed at: the chosen GPU, or every one. No GPU where there is none.
pub(super) fn target(data: &Data, needs: Needs, aim: Aim, now: Time) -> Target {
    let chosen = |index: &u8| match needs {
        Needs::Host | Needs::Endpoint => false,
        Needs::Gpu => *index == aim.gpu,
        Needs::Gpus(_) => true,
    };
    let name = |index: u8| {
        let fact = |key| data.fact(Subject::Gpu(index), key, now).unwrap_or_default().to_owned();
        GpuName { index, uuid: fact(FactKey::Uuid), name: fact(FactKey::Name) }
    };
    let url = data.fact(Subject::Engine(aim.engine), FactKey::Url, now);
    let endpoint = url.filter(|_| needs == Needs::Endpoint).map(ToOwned::to_owned);
    let limit = |index| data.latest(Subject::Gpu(index), Metric::PowerLimit, now).reading.value();
    let power_limit_w = data.gpus().filter(chosen).filter_map(limit).max_by(f64::total_cmp);
    Target { gpus: data.gpus().filter(chosen).map(name).collect(), endpoint, power_limit_w }
}

/// Why a probe can never run on this target at this cost. Before the driver has said anything, nothing is known of GPUs.
pub(super) fn unfit(data: &Data, needs: Needs, target: &Target, cost: &Cost, now: Time) -> Option<Refusal> {
    if needs == Needs::Endpoint {
        return guard::unloadable(target, cost);
    }
    let state = data.source(SourceId::Nvml)?.state_at(now);
    let known = *state != SourceState::Starting;
    known.then(|| guard::unfit(needs, target.gpus.len(), state.why())).flatten()
}

/// On what a run of this target is marked: its GPUs, the engine that it loads, or the host.
pub(super) fn subjects(data: &Data, target: &Target, now: Time) -> Vec<Subject> {
    let engine = target.endpoint.as_deref().and_then(|url| endpoint::engine(data, url, now));
    match (engine, target.gpus.as_slice()) {
        (Some(engine), _) => vec![Subject::Engine(engine)],
        (None, []) => vec![Subject::Host],
        (None, gpus) => gpus.iter().map(|gpu| Subject::Gpu(gpu.index)).collect(),
    }
}

/// All that is known of the target and what it shares the machine with.
pub(super) fn machine(data: &Data, target: &Target, now: Time) -> Machine {
    let host = |metric| data.latest(Subject::Host, metric, now).reading;
    Machine {
        gpus: target.gpus.iter().map(|name| gpu(data, name.index, now)).collect(),
        host: Host {
            mem_used: host(Metric::HostMemUsed),
            mem_total: host(Metric::HostMemTotal),
            cpu_busy_pct: host(Metric::CpuBusy),
        },
        engines: data.engines().filter_map(|i| serves_here(data, i, now)).collect(),
        no_gpu: data.source(SourceId::Nvml).map_or("", |source| source.state_at(now).why()).to_owned(),
        endpoint: target.endpoint.as_deref().and_then(|url| endpoint::seen(data, url, now)),
    }
}

/// The URL of an engine whose processes are on this host and that answers.
fn serves_here(data: &Data, engine: u8, now: Time) -> Option<String> {
    let fact = |key| data.fact(Subject::Engine(engine), key, now);
    let url = fact(FactKey::Url)?;
    let local = fact(FactKey::Pids).is_some_and(|pids| !pids.is_empty())
        || Address::parse(url).is_some_and(|address| address.is_local());
    let answers = data.source(SourceId::Engine(engine)).is_some_and(|source| !source.state_at(now).is_down());
    (local && answers).then(|| url.to_owned())
}

fn gpu(data: &Data, index: u8, now: Time) -> Gpu {
    let subject = Subject::Gpu(index);
    let latest = |metric| data.latest(subject, metric, now).reading;
    let source = data.source(SourceId::Nvml).map(|source| source.state_at(now));
    let (mem_used, temp) = (latest(Metric::GpuMemUsed), latest(Metric::Temp));
    let failed = |reading| reading == Reading::Missing(Why::Failed);
    let down = match source {
        Some(state) if state.is_down() => Some(state.why().to_owned()),
        Some(state) if failed(mem_used) && failed(temp) => {
            Some(if state.why().is_empty() { "its readings fail".to_owned() } else { state.why().to_owned() })
        }
        _ => None,
    };
    let processes = match latest(Metric::GpuProcesses) {
        Reading::Missing(why) => Err(why),
        Reading::Value(_) => {
            let on_this = data.gpu_processes().iter().filter(|process| process.gpu == index);
            Ok(on_this.map(|process| OnGpu { pid: process.pid, mem: process.mem }).collect())
        }
    };
    Gpu {
        index,
        down,
        processes,
        busy_pct: busy(data, subject, now),
        mem_used,
        mem_total: latest(Metric::GpuMemTotal),
        temp,
        temp_slowdown: latest(Metric::TempSlowdown),
        compute_mode: latest(Metric::ComputeMode),
        reasons: latest(Metric::ThrottleReasons),
        ecc: latest(Metric::EccUncorrected),
        xids: latest(Metric::XidErrors),
    }
}

/// SM activity, or where the driver does not count that, the share of time with a kernel.
fn busy(data: &Data, subject: Subject, now: Time) -> Reading {
    let window = Window::last(now, BUSY_MS);
    match data.mean(subject, Metric::SmActive, window) {
        Reading::Missing(Why::Unsupported | Why::NotPermitted) => data.mean(subject, Metric::UtilGpuTime, window),
        reading => reading,
    }
}

/// What the machine did during a run.
pub(super) fn environment(data: &Data, target: &Target, (from, to): (Time, Time)) -> Environment {
    let fact = |key| data.fact(Subject::Host, key, to).map(ToOwned::to_owned);
    Environment {
        driver: fact(FactKey::Driver),
        cuda_driver: fact(FactKey::CudaDriver),
        kernel: fs::read_to_string("/proc/sys/kernel/osrelease").ok().map(|text| clean(&text)),
        gpus: target.gpus.iter().map(|gpu| gpu_environment(data, gpu.index, (from, to))).collect(),
        cpu_busy_before_pct: data.latest(Subject::Host, Metric::CpuBusy, from).reading.value(),
        ..Environment::default()
    }
}

fn gpu_environment(data: &Data, index: u8, (from, to): (Time, Time)) -> GpuEnvironment {
    let (subject, window) = (Subject::Gpu(index), Window { start: from, end: to });
    let latest = |metric| data.latest(subject, metric, to).reading.value();
    let range = |metric| {
        let extremes = data.series(subject, metric).and_then(|series| series.extremes(window));
        Range {
            before: data.latest(subject, metric, from).reading.value(),
            min: extremes.map(|(min, _)| min),
            mean: data.mean(subject, metric, window).value(),
            max: extremes.map(|(_, max)| max),
        }
    };
    let giga = |metric| {
        let Range { before, min, mean, max } = range(metric);
        let [before, min, mean, max] = [before, min, mean, max].map(|value| value.map(|bytes| bytes / 1e9));
        Range { before, min, mean, max }
    };
    let seconds = window.ms() as f64 / 1000.0;
    let throttled = Throttled::over(data, index, window);
    let held = throttled.reasons().map(|(reason, rate)| (reason.name.to_owned(), rate.value().map(|ms| ms * seconds)));
    GpuEnvironment {
        index,
        sm_clock_mhz: range(Metric::SmClock),
        sm_clock_max_mhz: latest(Metric::SmClockMax),
        mem_clock_mhz: range(Metric::MemClock),
        temp_c: range(Metric::Temp),
        mem_temp_c: range(Metric::MemTemp),
        power_w: range(Metric::Power),
        power_limit_w: latest(Metric::PowerLimit),
        pcie_generation: range(Metric::PcieGen),
        pcie_generation_max: latest(Metric::PcieGenMax),
        pcie_lanes: range(Metric::PcieWidth),
        pcie_lanes_max: latest(Metric::PcieWidthMax),
        pcie_rx_gb_per_s: giga(Metric::PcieRx),
        pcie_tx_gb_per_s: giga(Metric::PcieTx),
        throttled_ms: held.collect(),
        timeline: timeline(data, index, window),
    }
}

/// The run second by second, in longer steps when it was long.
fn timeline(data: &Data, index: u8, window: Window) -> Steps {
    let step_ms = window.ms().div_ceil(MOST_STEPS).max(1_000);
    let steps = || {
        let starts = (window.start.0..window.end.0).step_by(usize::try_from(step_ms).unwrap_or(usize::MAX));
        starts.map(|start| Window { start: Time(start), end: window.end.min(Time(start + step_ms)) })
    };
    // One digit behind the point is as good as the readings are.
    let round = |value: f64| (value * 10.0).round() / 10.0;
    let mean = |metric| {
        let each = steps().map(|step| data.mean(Subject::Gpu(index), metric, step).value().map(round));
        each.collect::<Vec<_>>()
    };
    let mut throttled_ms = BTreeMap::new();
    for step in steps() {
        for (reason, rate) in Throttled::over(data, index, step).reasons() {
            let held: &mut Vec<_> = throttled_ms.entry(reason.name.to_owned()).or_default();
            held.push(rate.value().map(|ms| round(ms * step.ms() as f64 / 1000.0)));
        }
    }
    // Most machines never see most of the reasons.
    throttled_ms.retain(|_, held: &mut Vec<Option<f64>>| held.iter().any(Option::is_some));
    Steps {
        step_s: step_ms as f64 / 1000.0,
        sm_clock_mhz: mean(Metric::SmClock),
        temp_c: mean(Metric::Temp),
        power_w: mean(Metric::Power),
        throttled_ms,
    }
}

/// Name of the machine; empty when it cannot be read.
pub(super) fn host_name() -> String {
    clean(fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Batch, GpuProcess, SourceState};
    use crate::store::{Retention, Store};

    const AT: Time = Time(1_000_000);

    fn store(values: &[(Metric, Reading)], state: &SourceState) -> Store {
        let store = Store::new(Retention::HOUR);
        for at in [AT - 500, AT] {
            let mut batch = Batch::new(SourceId::Nvml, at, 3_500);
            batch.fact(Subject::Gpu(0), FactKey::Name, "NVIDIA H200");
            batch.fact(Subject::Gpu(0), FactKey::Uuid, "GPU-1");
            batch.gpu_processes = Some(vec![GpuProcess {
                gpu: 0,
                pid: 42,
                mem: Reading::Value(1e9),
                share: Reading::Missing(Why::NotYet),
            }]);
            batch.state = Some(state.clone());
            for &(metric, reading) in values {
                batch.push(Subject::Gpu(0), metric, reading);
            }
            store.push(&batch);
        }
        store
    }

    fn seen(values: &[(Metric, Reading)], state: &SourceState) -> Gpu {
        let store = store(values, state);
        let data = store.read();
        let target = target(&data, Needs::Gpu, Aim::default(), AT);
        assert_eq!(target.key(), "GPU-1");
        machine(&data, &target, AT).gpus.remove(0)
    }

    #[test]
    fn what_was_not_read_is_missing_and_not_0() {
        let gpu = seen(&[], &SourceState::Ok);
        let not_yet = Reading::Missing(Why::NotYet);
        assert_eq!((gpu.mem_used, gpu.temp, gpu.busy_pct, gpu.xids), (not_yet, not_yet, not_yet, not_yet));
        assert_eq!((gpu.processes, gpu.down), (Err(Why::NotYet), None));
    }

    #[test]
    fn processes_count_only_where_the_driver_lists_them() {
        let listed = |reading| seen(&[(Metric::GpuProcesses, reading)], &SourceState::Ok).processes;
        assert_eq!(listed(Reading::Value(1.0)), Ok(vec![OnGpu { pid: 42, mem: Reading::Value(1e9) }]));
        assert_eq!(listed(Reading::Missing(Why::Unsupported)), Err(Why::Unsupported));
    }

    #[test]
    fn without_activity_the_time_based_figure_counts() {
        let denied = Reading::Missing(Why::NotPermitted);
        let busy = |sm| seen(&[(Metric::SmActive, sm), (Metric::UtilGpuTime, 30.0.into())], &SourceState::Ok).busy_pct;
        assert_eq!((busy(denied), busy(5.0.into())), (Reading::Value(30.0), Reading::Value(5.0)));
    }

    #[test]
    fn a_driver_that_is_down_and_a_gpu_that_is_lost_are_seen() {
        assert_eq!(seen(&[], &SourceState::Stalled("hangs".into())).down.as_deref(), Some("hangs"));
        let failed = Reading::Missing(Why::Failed);
        let lost = [(Metric::GpuMemUsed, failed), (Metric::Temp, failed)];
        assert_eq!(seen(&lost, &SourceState::Degraded("GPU 0 is lost".into())).down.as_deref(), Some("GPU 0 is lost"));
    }

    #[test]
    fn the_environment_is_that_of_the_run() {
        let store = Store::new(Retention::HOUR);
        for (ms, clock, held) in
            [(0, 1980.0, 0.0), (1_000, 1500.0, 500.0), (2_000, 1400.0, 1_500.0), (9_000, 300.0, 1_500.0)]
        {
            let mut batch = Batch::new(SourceId::Nvml, AT + ms, 3_500);
            batch.push(Subject::Gpu(0), Metric::SmClock, clock);
            batch.push(Subject::Gpu(0), Metric::ThrottledPowerCap, held);
            batch.push(Subject::Gpu(0), Metric::PcieRx, clock * 1e7);
            batch.push(Subject::Gpu(0), Metric::PcieGen, if held > 0.0 { 5.0 } else { 1.0 });
            store.push(&batch);
        }
        let gpu = gpu_environment(&store.read(), 0, (AT, AT + 2_000));
        // 1500 × 10⁷ bytes/s; idle before the run, at full speed during it.
        let (to, from) = (gpu.pcie_rx_gb_per_s.max, gpu.pcie_tx_gb_per_s.max);
        assert!((to.unwrap() - 15.0).abs() < 1e-3 && from.is_none(), "{to:?} {from:?}");
        assert_eq!((gpu.pcie_generation.before, gpu.pcie_generation.max), (Some(1.0), Some(5.0)));
        let Range { before, min, max, .. } = gpu.sm_clock_mhz;
        assert_eq!((before, min, max), (Some(1980.0), Some(1400.0), Some(1500.0)));
        let held = gpu.throttled_ms["sw_power_cap"].unwrap();
        assert!((held - 1_500.0).abs() < 1.0, "{held}");
        assert_eq!((gpu.throttled_ms["sync_boost"], gpu.power_limit_w), (None, None));
        let Steps { step_s, sm_clock_mhz, temp_c, throttled_ms, .. } = gpu.timeline;
        assert_eq!((step_s, sm_clock_mhz, temp_c), (1.0, vec![Some(1500.0), Some(1400.0)], vec![None, None]));
        assert_eq!(throttled_ms["sw_power_cap"], [Some(500.0), Some(1_000.0)]);
        assert!(!throttled_ms.contains_key("sync_boost"));
    }
}
