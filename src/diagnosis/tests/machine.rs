//! A machine made up for a test: an engine, GPUs and a host whose figures are set, and a store that hears of them each second.

use crate::diagnosis::{Cause, Diagnosis, Finding, Severity, Slo, diagnose};
use crate::model::{
    Batch, FactKey, GpuProcess, HistogramSample, Kind, Metric, ProcessSample, ProcessState, Reading, SourceId,
    SourceState, Subject, Time, Why,
};
use crate::store::{Retention, Store};

/// When it starts.
pub(in crate::diagnosis) const START: u64 = 1_800_000_000_000;
/// The engine's process.
pub(in crate::diagnosis) const PID: u32 = 41;
/// Edges of its histograms, s.
const EDGES: [f64; 8] = [0.01, 0.05, 0.1, 0.5, 1.0, 2.0, 5.0, 20.0];

/// A value set again replaces the one before.
#[derive(Default)]
struct Figures(Vec<(Metric, f64)>);

impl Figures {
    fn set(&mut self, metric: Metric, value: f64) {
        self.0.retain(|(other, _)| *other != metric);
        self.0.push((metric, value));
    }
}

/// Figures of now; counters and histograms are given as what they grow by in a second.
pub(in crate::diagnosis) struct Machine {
    pub(in crate::diagnosis) store: Store,
    second: u64,
    engine: Option<Figures>,
    gpus: Vec<Figures>,
    host: Figures,
    /// Observations a second of a latency, s.
    latencies: Vec<(Metric, Vec<f64>)>,
    totals: Vec<(Subject, Metric, f64)>,
    counts: Vec<(Metric, Vec<f64>, f64)>,
    pub(in crate::diagnosis) state: SourceState,
    pub(in crate::diagnosis) processes: Vec<ProcessSample>,
    /// CPU time of each process, % of a core.
    pub(in crate::diagnosis) work: Vec<(u32, f64)>,
    pub(in crate::diagnosis) kind: &'static str,
}

impl Machine {
    /// Without engine and GPU.
    pub(in crate::diagnosis) fn bare() -> Self {
        Self {
            store: Store::new(Retention::HOUR),
            second: 0,
            engine: None,
            gpus: Vec::new(),
            host: Figures(vec![(Metric::CpuBusy, 5.0), (Metric::MajorFaults, 0.0)]),
            latencies: Vec::new(),
            totals: Vec::new(),
            counts: Vec::new(),
            state: SourceState::Ok,
            processes: Vec::new(),
            work: vec![(PID, 60.0)],
            kind: "vllm",
        }
    }

    /// With an engine that serves eight clients on one GPU, as decode does.
    pub(in crate::diagnosis) fn serving() -> Self {
        let mut machine = Self::bare();
        let engine = [
            (Metric::RequestsRunning, 8.0),
            (Metric::RequestsWaiting, 0.0),
            (Metric::RequestsCap, 256.0),
            (Metric::KvUsage, 20.0),
            (Metric::GenerationTokens, 1600.0),
            (Metric::PromptTokens, 800.0),
            (Metric::RequestsFinished, 8.0),
        ];
        machine.engine = Some(Figures(engine.to_vec()));
        machine.gpu(&[
            (Metric::SmActive, 65.0),
            (Metric::DramActive, 62.0),
            (Metric::TensorActive, 10.0),
            (Metric::UtilGpuTime, 100.0),
            (Metric::SmClock, 1980.0),
            (Metric::SmClockMax, 1980.0),
            (Metric::Power, 400.0),
            (Metric::PowerLimit, 700.0),
        ]);
        machine.processes.push(process(PID, "vllm serve model", &[0]));
        machine
    }

    /// Adds a GPU.
    pub(in crate::diagnosis) fn gpu(&mut self, figures: &[(Metric, f64)]) {
        self.gpus.push(Figures(figures.to_vec()));
    }

    /// Sets figures of the engine.
    pub(in crate::diagnosis) fn engine(&mut self, figures: &[(Metric, f64)]) -> &mut Self {
        let engine = self.engine.get_or_insert_default();
        for &(metric, value) in figures {
            engine.set(metric, value);
        }
        self
    }

    /// Sets figures of a GPU.
    pub(in crate::diagnosis) fn set(&mut self, gpu: usize, figures: &[(Metric, f64)]) -> &mut Self {
        for &(metric, value) in figures {
            self.gpus[gpu].set(metric, value);
        }
        self
    }

    /// Sets figures of the host.
    pub(in crate::diagnosis) fn host(&mut self, figures: &[(Metric, f64)]) -> &mut Self {
        for &(metric, value) in figures {
            self.host.set(metric, value);
        }
        self
    }

    /// Observes these latencies each second from now on, s.
    pub(in crate::diagnosis) fn observe(&mut self, metric: Metric, seconds: &[f64]) -> &mut Self {
        self.latencies.retain(|(other, _)| *other != metric);
        self.latencies.push((metric, seconds.to_vec()));
        self
    }

    /// The engine's counters and requests stand still; what runs and waits stays as it is.
    pub(in crate::diagnosis) fn freeze(&mut self) -> &mut Self {
        let figures =
            [Metric::GenerationTokens, Metric::PromptTokens, Metric::RequestsFinished].map(|metric| (metric, 0.0));
        self.latencies.clear();
        self.engine(&figures)
    }

    /// Lets time pass.
    pub(in crate::diagnosis) fn run(&mut self, seconds: u64) -> &mut Self {
        for _ in 0..seconds {
            self.second += 1;
            self.tell_engine();
            self.tell_gpus();
            self.tell_host();
        }
        self
    }

    /// Nothing is read for so long; the totals go on meanwhile, as those of a server elsewhere do.
    pub(in crate::diagnosis) fn pause(&mut self, seconds: u64) -> &mut Self {
        self.second += seconds;
        self.totals.iter_mut().for_each(|(_, _, total)| *total += 1e6);
        let mut batch = Batch::new(SourceId::App, self.now(), 0);
        batch.paused_ms = seconds * 1000;
        self.store.push(&batch);
        self
    }

    /// The moment up to which it ran.
    pub(in crate::diagnosis) fn now(&self) -> Time {
        Time(START + self.second * 1000)
    }

    /// What is said of it now.
    pub(in crate::diagnosis) fn diagnosis(&self) -> Diagnosis {
        self.judged(&Slo::default())
    }

    /// The same for objectives.
    pub(in crate::diagnosis) fn judged(&self, slo: &Slo) -> Diagnosis {
        diagnose(&self.store.read(), self.now(), slo)
    }

    /// The finding with this cause, where there is one now.
    pub(in crate::diagnosis) fn finds(&self, cause: Cause) -> Option<Finding> {
        self.diagnosis().findings.into_iter().find(|finding| finding.cause == cause)
    }

    /// What is said first now.
    pub(in crate::diagnosis) fn first(&self) -> Option<(Cause, Severity)> {
        self.diagnosis().first().map(|finding| (finding.cause, finding.severity))
    }

    fn total(&mut self, subject: Subject, metric: Metric, growth: f64) -> f64 {
        let known = self.totals.iter().position(|(of, which, _)| (*of, *which) == (subject, metric));
        let place = known.unwrap_or_else(|| {
            self.totals.push((subject, metric, 0.0));
            self.totals.len() - 1
        });
        self.totals[place].2 += growth;
        self.totals[place].2
    }

    fn push(&mut self, batch: &mut Batch, subject: Subject, figures: &[(Metric, f64)]) {
        for &(metric, value) in figures {
            let value = if metric.kind() == Kind::Counter { self.total(subject, metric, value) } else { value };
            batch.push(subject, metric, value);
        }
    }

    fn tell_engine(&mut self) {
        let Some(engine) = &self.engine else { return };
        let figures = engine.0.clone();
        let subject = Subject::Engine(0);
        let mut batch = Batch::new(SourceId::Engine(0), self.now(), 3500);
        batch.state = Some(self.state.clone());
        batch.fact(subject, FactKey::Kind, self.kind);
        batch.fact(subject, FactKey::Name, "the engine");
        batch.fact(subject, FactKey::Url, "http://127.0.0.1:8000");
        if !self.processes.is_empty() {
            batch.fact(subject, FactKey::Pids, &PID.to_string());
        }
        if !self.state.is_down() {
            self.push(&mut batch, subject, &figures);
            batch.histograms = self.histograms();
        }
        self.store.push(&batch);
    }

    fn histograms(&mut self) -> Vec<HistogramSample> {
        for (metric, seconds) in &self.latencies {
            if !self.counts.iter().any(|(of, ..)| of == metric) {
                self.counts.push((*metric, vec![0.0; EDGES.len() + 1], 0.0));
            }
            let (_, counts, sum) = self.counts.iter_mut().find(|(of, ..)| of == metric).unwrap();
            for &value in seconds {
                *sum += value;
                let place = EDGES.iter().position(|edge| value <= *edge).unwrap_or(EDGES.len());
                counts[place..].iter_mut().for_each(|count| *count += 1.0);
            }
        }
        let sample = |(metric, counts, sum): &(Metric, Vec<f64>, f64)| HistogramSample {
            subject: Subject::Engine(0),
            metric: *metric,
            edges: EDGES.into(),
            cumulative: counts.clone(),
            sum: Some(*sum),
            sets: 0,
        };
        self.counts.iter().map(sample).collect()
    }

    fn tell_gpus(&mut self) {
        if self.gpus.is_empty() {
            return;
        }
        // The fast readings come four times a second; a counter grows by a quarter.
        for quarter in 0..4 {
            let mut batch = Batch::new(SourceId::Nvml, self.now() - 750 + quarter * 250, 3500);
            batch.state = Some(SourceState::Ok);
            for gpu in 0..self.gpus.len() {
                let subject = Subject::Gpu(gpu as u8);
                batch.fact(subject, FactKey::Name, "H200");
                let figures = self.gpus[gpu].0.iter();
                let part = |metric: Metric| if metric.kind() == Kind::Counter { 4.0 } else { 1.0 };
                let figures: Vec<_> = figures.map(|&(metric, value)| (metric, value / part(metric))).collect();
                self.push(&mut batch, subject, &figures);
            }
            if quarter == 3 {
                let held = |p: &ProcessSample| {
                    let (pid, gpus) = (p.pid, p.gpus.clone());
                    gpus.into_iter().map(move |(gpu, mem)| GpuProcess {
                        gpu,
                        pid,
                        mem,
                        share: Reading::Missing(Why::NotYet),
                    })
                };
                batch.gpu_processes = Some(self.processes.iter().flat_map(held).collect());
            }
            self.store.push(&batch);
        }
    }

    fn tell_host(&mut self) {
        let figures = self.host.0.clone();
        let mut batch = Batch::new(SourceId::Host, self.now(), 3500);
        batch.state = Some(SourceState::Ok);
        self.push(&mut batch, Subject::Host, &figures);
        self.store.push(&batch);
        for process in &mut self.processes {
            let work = self.work.iter().find(|(pid, _)| *pid == process.pid).map_or(0.0, |(_, pct)| pct * 10.0);
            process.cpu_ms = (process.cpu_ms.value().unwrap_or(0.0) + work).into();
        }
        let mut batch = Batch::new(SourceId::Process, self.now(), 3500);
        batch.state = Some(SourceState::Ok);
        batch.processes = Some(self.processes.clone());
        self.store.push(&batch);
    }
}

/// A process with memory on these GPUs.
pub(in crate::diagnosis) fn process(pid: u32, command: &str, gpus: &[u8]) -> ProcessSample {
    ProcessSample {
        pid,
        start: 1,
        command: command.into(),
        gpus: gpus.iter().map(|&gpu| (gpu, 1e11.into())).collect(),
        cpu_ms: 0.0.into(),
        rss: 1e9.into(),
        majflt: 0.0.into(),
        state: Some(ProcessState::Sleeping),
        ..ProcessSample::default()
    }
}
