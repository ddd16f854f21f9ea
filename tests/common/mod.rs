//! Data that tests of the screen share: stores filled through batches, as samplers fill them.
//!
//! Everything is a function of the step number: no clock, no random numbers, no `sin` whose last bit
//! depends on the machine.

#![allow(dead_code, reason = "each test binary uses a part")]

pub(crate) mod render;

use std::sync::Arc;

use warptop::model::metric::Domain;
use warptop::model::{
    Batch, FactKey, GpuProcess, HistogramSample, Kind, Metric, ProcessSample, Reading, SourceId, SourceState, Subject,
    Time, Why,
};
use warptop::store::{Retention, Store};

/// The newest moment of every store here.
pub(crate) const END: Time = Time(1_795_960_600_000);
/// How much history [`full`] has, ms.
pub(crate) const HISTORY_MS: u64 = 130_000;

/// A triangle wave from 0 to 1 and back with this period, and a small fixed jitter.
fn wave(step: u64, period: u64) -> f64 {
    let phase = (step % period) as f64 / period as f64;
    let jitter = ((step.wrapping_mul(2_654_435_761) >> 7) % 100) as f64 / 1000.0;
    (1.0 - (2.0 * phase - 1.0).abs()) * 0.9 + jitter
}

/// The subjects of a machine with these GPUs and one engine.
fn subjects(gpus: u8) -> Vec<(SourceId, Subject)> {
    let gpus = (0..gpus).map(|i| (SourceId::Nvml, Subject::Gpu(i)));
    gpus.chain([(SourceId::Engine(0), Subject::Engine(0)), (SourceId::Host, Subject::Host)]).collect()
}

fn domain(subject: Subject) -> Domain {
    match subject {
        Subject::Host => Domain::Host,
        Subject::Gpu(_) => Domain::Gpu,
        Subject::Engine(_) => Domain::Engine,
        Subject::App => Domain::App,
    }
}

/// Names, limits and all else that is read once.
fn facts(store: &Store, gpus: u8, at: Time) {
    let mut batch = Batch::new(SourceId::Nvml, at, Batch::FOREVER);
    batch.state = Some(SourceState::Ok);
    batch.fact(Subject::Host, FactKey::Driver, "580.159.03");
    batch.fact(Subject::Host, FactKey::Hostname, "gpu-07");
    for i in 0..gpus {
        let gpu = Subject::Gpu(i);
        batch.fact(gpu, FactKey::Name, "NVIDIA H200");
        batch.fact(gpu, FactKey::ActivitySource, "gpm");
        batch.fact(gpu, FactKey::DramPeakSource, "datasheet");
        batch.push(gpu, Metric::DramPeak, 4.8e12);
        batch.push(gpu, Metric::SmClockMax, 1980.0);
        for (metric, value) in [
            (Metric::TempSlowdown, 89.0),
            (Metric::TempShutdown, 94.0),
            (Metric::MemTempMax, 95.0),
            (Metric::MemClockMax, 3201.0),
            (Metric::PcieGen, 5.0),
            (Metric::PcieGenMax, 5.0),
            (Metric::PcieWidth, 16.0),
            (Metric::PcieWidthMax, 16.0),
            (Metric::EccCorrected, 3.0),
            (Metric::EccUncorrected, 0.0),
            (Metric::RemappedRows, 1.0),
            (Metric::RemapPending, 1.0),
        ] {
            batch.push(gpu, metric, value);
        }
        batch.push(gpu, Metric::GpuMemTotal, 150_754_820_096.0);
    }
    store.push(&batch);
    let mut batch = Batch::new(SourceId::Engine(0), at, Batch::FOREVER);
    batch.state = Some(SourceState::Ok);
    batch.fact(Subject::Engine(0), FactKey::Url, "http://localhost:8000");
    batch.fact(Subject::Engine(0), FactKey::Kind, "vllm");
    batch.fact(Subject::Engine(0), FactKey::Version, "0.25.1");
    batch.fact(Subject::Engine(0), FactKey::Model, "llama-8b");
    batch.push(Subject::Engine(0), Metric::MaxModelLen, 32_768.0);
    batch.push(Subject::Engine(0), Metric::KvPoolTokens, 260_000.0);
    batch.push(Subject::Engine(0), Metric::KvBlockSize, 16.0);
    store.push(&batch);
}

/// One fast reading of a GPU: load comes and goes, the power cap follows it.
fn gpu_reading(batch: &mut Batch, i: u8, step: u64) {
    let gpu = Subject::Gpu(i);
    let load = wave(step + u64::from(i) * 37, 160);
    batch.push(gpu, Metric::SmActive, 30.0 + 65.0 * load);
    batch.push(gpu, Metric::SmOccupancy, 8.0 + 10.0 * load);
    batch.push(gpu, Metric::DramActive, 62.0 - 36.0 * load);
    batch.push(gpu, Metric::TensorActive, 70.0 * load);
    batch.push(gpu, Metric::UtilGpuTime, 97.0);
    batch.push(gpu, Metric::UtilMemTime, 48.0);
    batch.push(gpu, Metric::SmClock, (1980.0 - 390.0 * load).round());
    batch.push(gpu, Metric::MemClock, 3201.0);
    batch.push(gpu, Metric::Power, 420.0 + 275.0 * load);
    batch.push(gpu, Metric::PowerLimit, 700.0);
    batch.push(gpu, Metric::MemTemp, (52.0 + 9.0 * load).round());
    batch.push(gpu, Metric::PcieRx, 1e6 + 4e6 * load);
    batch.push(gpu, Metric::PcieTx, 2e6 + 6e6 * load);
    batch.push(gpu, Metric::NvlinkRx, Reading::Missing(Why::Unsupported));
    batch.push(gpu, Metric::NvlinkTx, Reading::Missing(Why::Unsupported));
    batch.push(gpu, Metric::Energy, step as f64 * 150.0);
    batch.push(gpu, Metric::Temp, (45.0 + 14.0 * load).round());
    batch.push(gpu, Metric::GpuMemUsed, 39_191_576_576.0 + 2e9 * f64::from(i));
    batch.push(gpu, Metric::ThrottleReasons, if load > 0.6 { 4.0 } else { 0.0 });
}

/// Time throttled until this step of 250 ms: whenever the load was above 0.6.
fn throttled_ms(i: u8, step: u64) -> f64 {
    (0..step).filter(|s| wave(s + u64::from(i) * 37, 160) > 0.6).count() as f64 * 250.0
}

const EDGES: [f64; 16] = [0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0];

/// A cumulative histogram after `seconds`: ten observations a second that wander over the buckets.
fn histogram(metric: Metric, seconds: u64, place: usize, unit: f64) -> HistogramSample {
    let mut counts = [0.0; EDGES.len() + 1];
    let mut sum = 0.0;
    for second in 0..seconds {
        for n in 0..10 {
            let wander = (wave(second * 10 + n, 170) * 5.0) as usize;
            let bucket = (place + wander + usize::from(n == 9) * 2).min(EDGES.len() - 1);
            counts[bucket] += 1.0;
            sum += EDGES[bucket] * 0.9 * unit;
        }
    }
    let cumulative = counts
        .iter()
        .scan(0.0, |sum, n| {
            *sum += n;
            Some(*sum)
        })
        .collect();
    let edges = EDGES.iter().map(|e| e * unit).collect::<Arc<[f64]>>();
    HistogramSample { sets: 0, subject: Subject::Engine(0), metric, edges, cumulative, sum: Some(sum) }
}

fn engine_reading(seconds: u64, at: Time) -> Batch {
    let engine = Subject::Engine(0);
    let load = wave(seconds * 4, 160);
    let mut batch = Batch::new(SourceId::Engine(0), at, 3500);
    batch.took_us = 9000;
    batch.push(engine, Metric::RequestsRunning, (64.0 + 64.0 * load).round());
    batch.push(engine, Metric::RequestsWaiting, (40.0 * (load - 0.5).max(0.0)).round());
    batch.push(engine, Metric::KvUsage, 20.0 + 60.0 * load);
    batch.push(engine, Metric::Preemptions, (seconds / 20) as f64);
    batch.push(engine, Metric::PromptTokens, seconds as f64 * 16_320.0);
    batch.push(engine, Metric::GenerationTokens, seconds as f64 * 4_076.0);
    batch.push(engine, Metric::PrefixQueries, seconds as f64 * 16_320.0);
    batch.push(engine, Metric::PrefixHits, seconds as f64 * 5_000.0);
    batch.push(engine, Metric::RequestsFinished, seconds as f64 * 10.0);
    for (metric, place, unit) in [
        (Metric::Ttft, 5, 1.0),
        (Metric::Itl, 0, 0.25),
        (Metric::E2e, 8, 1.0),
        (Metric::QueueTime, 2, 1.0),
        (Metric::PromptLen, 3, 10_000.0),
        (Metric::GenerationLen, 2, 5000.0),
        (Metric::MaxTokensParam, 3, 5000.0),
    ] {
        batch.histograms.push(histogram(metric, seconds, place, unit));
    }
    batch
}

fn process_reading(seconds: u64, at: Time) -> Batch {
    let mut batch = Batch::new(SourceId::Process, at, 3500);
    let process = |pid: u32, user: &str, command: &str, gib: f64, cpu: f64| ProcessSample {
        pid,
        start: 1000 + u64::from(pid),
        user: user.into(),
        command: command.into(),
        gpus: vec![(0, Reading::Value(gib * 1e9))],
        cpu_ms: (seconds as f64 * cpu).into(),
        rss: (gib * 1e8).into(),
        majflt: (seconds as f64 * 2.0).into(),
        page_table: 6e6.into(),
        ..ProcessSample::default()
    };
    batch.processes = Some(vec![
        process(1696, "serve", "VLLM::EngineCore", 38.17, 640.0),
        process(2042, "alice", "python train.py --config a-rather-long-name.yaml", 4.5, 990.0),
        ProcessSample { cpu_ms: Reading::Missing(Why::NotPermitted), ..process(31_337, "", "", 0.4, 0.0) },
    ]);
    batch
}

/// Nothing was ever read.
pub(crate) fn empty() -> Store {
    Store::new(Retention::HOUR)
}

/// Two minutes of a busy machine with this many GPUs and one vLLM.
pub(crate) fn full(gpus: u8) -> Store {
    let store = empty();
    let start = END - HISTORY_MS;
    facts(&store, gpus, start);
    for step in 0..=HISTORY_MS / 250 {
        let at = start + step * 250;
        let mut batch = Batch::new(SourceId::Nvml, at, 1500);
        batch.took_us = 800;
        for i in 0..gpus {
            gpu_reading(&mut batch, i, step);
        }
        if step % 4 == 0 {
            batch.valid_ms = 3500;
            for i in 0..gpus {
                batch.push(Subject::Gpu(i), Metric::ThrottledPowerCap, throttled_ms(i, step));
                batch.push(Subject::Gpu(i), Metric::ThrottledHwThermal, 0.0);
            }
            store.push(&engine_reading(step / 4, at));
            store.push(&process_reading(step / 4, at));
        }
        store.push(&batch);
    }
    store
}

/// Everything was asked for and nothing came: every reason takes its turn.
pub(crate) fn missing() -> Store {
    let store = empty();
    let start = END - 10_000;
    named(&store, start);
    for step in 0..10 {
        for (n, (source, subject)) in subjects(3).into_iter().enumerate() {
            let mut batch = Batch::new(source, start + step * 1000, 3500);
            for &metric in Metric::ALL.iter().filter(|m| m.domain() == domain(subject) && m.kind() != Kind::Histogram) {
                batch.push(subject, metric, Reading::Missing(Why::ALL[n % Why::ALL.len()]));
            }
            store.push(&batch);
        }
    }
    store
}

fn named(store: &Store, at: Time) {
    let mut batch = Batch::new(SourceId::Nvml, at, Batch::FOREVER);
    for i in 0..3 {
        batch.fact(Subject::Gpu(i), FactKey::Name, "NVIDIA Something");
    }
    store.push(&batch);
    let mut batch = Batch::new(SourceId::Engine(0), at, Batch::FOREVER);
    batch.fact(Subject::Engine(0), FactKey::Url, "http://localhost:8000");
    store.push(&batch);
}

/// A GPU without activity counters: only the time-based utilisation, as before Hopper.
pub(crate) fn time_based() -> Store {
    let store = empty();
    let start = END - 70_000;
    facts(&store, 2, start);
    for step in 0..=280 {
        let mut batch = Batch::new(SourceId::Nvml, start + step * 250, 1500);
        for i in 0..2 {
            gpu_reading(&mut batch, i, step);
        }
        for sample in &mut batch.samples {
            if matches!(
                sample.metric,
                Metric::SmActive | Metric::DramActive | Metric::TensorActive | Metric::SmOccupancy
            ) {
                sample.reading = Reading::Missing(Why::Unsupported);
            }
        }
        store.push(&batch);
    }
    store
}

/// The driver stopped answering 20 s ago.
pub(crate) fn stalled() -> Store {
    let store = full(2);
    let newer = Store::new(Retention::HOUR);
    drop(store);
    facts(&newer, 2, END - 90_000);
    for step in 0..=280 {
        let mut batch = Batch::new(SourceId::Nvml, END - 90_000 + step * 250, 1500);
        for i in 0..2 {
            gpu_reading(&mut batch, i, step);
        }
        newer.push(&batch);
    }
    let mut batch = Batch::new(SourceId::Nvml, END - 18_000, 1500);
    batch.state = Some(SourceState::Stalled("the driver does not answer; a GPU may be lost (see dmesg)".into()));
    newer.push(&batch);
    newer
}

/// Every metric of every subject has one point, at the end.
pub(crate) fn one_point() -> Store {
    values(&[5.0])
}

/// Numbers as large, as small and as wrong as they come.
pub(crate) fn extremes() -> Store {
    values(&[f64::MAX, f64::MIN, -1.0, 0.0, f64::MIN_POSITIVE, f64::NAN, f64::INFINITY, 1e38, -1e38, 1e300])
}

/// Every metric takes these values one after another, the last at the end.
fn values(values: &[f64]) -> Store {
    let store = empty();
    let start = END - 1000 * (values.len() as u64 - 1);
    named(&store, start);
    for (step, &value) in values.iter().enumerate() {
        let at = start + step as u64 * 1000;
        for (source, subject) in subjects(3) {
            let mut batch = Batch::new(source, at, 3500);
            for &metric in Metric::ALL.iter().filter(|m| m.domain() == domain(subject)) {
                if metric.kind() == Kind::Histogram {
                    let cumulative = vec![value; 4];
                    let edges = [1e-300, 1.0, 1e300].into();
                    batch.histograms.push(HistogramSample {
                        sets: 0,
                        subject,
                        metric,
                        edges,
                        cumulative,
                        sum: Some(value),
                    });
                } else {
                    batch.push(subject, metric, value);
                }
            }
            if source == SourceId::Nvml {
                batch.gpu_processes =
                    Some(vec![GpuProcess { gpu: 0, pid: 1, mem: Reading::new(value), share: Reading::new(value) }]);
            }
            store.push(&batch);
        }
        let reading = Reading::new(value);
        let mut batch = Batch::new(SourceId::Process, at, 3500);
        batch.processes = Some(vec![ProcessSample {
            pid: u32::MAX,
            start: 0,
            user: "名前の長い利用者".into(),
            command: "x".repeat(300).into(),
            gpus: vec![(255, reading)],
            cpu_ms: reading,
            rss: reading,
            majflt: reading,
            page_table: reading,
            ..ProcessSample::default()
        }]);
        store.push(&batch);
    }
    store
}
