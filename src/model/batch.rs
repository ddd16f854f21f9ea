//! What a sampler hands on: everything read in one go, with its time, cost and validity.
//!
//! A batch is also one line of a recording: live, replayed and imported data are the same type.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::process::is_zero;
use super::{EventLine, GpuProcess, Mark, Metric, MoreProcesses, ProcessSample, Reading, Subject, Time, plausible};

/// Where a batch comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceId {
    /// The NVIDIA driver through NVML.
    Nvml,
    /// A DCGM exporter.
    Dcgm,
    /// `/proc` of the machine.
    Host,
    /// `/proc` of single processes.
    Process,
    /// The metrics endpoint of engine N.
    Engine(u8),
    /// The search for engines on this host.
    Discovery,
    /// warptop's own cost.
    App,
    /// Probes that warptop runs.
    Probe,
    /// What the diagnosis said while this was recorded.
    Diagnosis,
}

impl fmt::Display for SourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nvml => f.write_str("NVML"),
            Self::Dcgm => f.write_str("DCGM exporter"),
            Self::Host => f.write_str("host"),
            Self::Process => f.write_str("processes"),
            Self::Engine(i) => write!(f, "engine {i}"),
            Self::Discovery => f.write_str("discovery"),
            Self::App => f.write_str("warptop"),
            Self::Probe => f.write_str("probes"),
            Self::Diagnosis => f.write_str("diagnosis"),
        }
    }
}

/// How a source is doing. The text says what, why and what to do, ready for the screen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "is", content = "why")]
pub enum SourceState {
    /// Opened, nothing read yet.
    Starting,
    /// Reads as it should.
    Ok,
    /// Reads, but not everything or not in time.
    Degraded(Arc<str>),
    /// Cannot be reached or read; it will be tried again.
    Failed(Arc<str>),
    /// Loads its model and is not to be read before.
    Loading(Arc<str>),
    /// Answers, but with no metrics that can be read. An engine can be used all the same.
    NoMetrics(Arc<str>),
    /// There, but it wants a key (HTTP 401 or 403).
    Unauthorized(Arc<str>),
    /// A call has not come back.
    Stalled(Arc<str>),
    /// Not on this machine; not an error.
    Absent(Arc<str>),
}

impl SourceState {
    /// Whether the source gives no values at all in this state.
    pub const fn is_down(&self) -> bool {
        !matches!(self, Self::Starting | Self::Ok | Self::Degraded(_))
    }

    /// The words for the screen; empty when all is well.
    pub fn why(&self) -> &str {
        match self {
            Self::Starting => "starting",
            Self::Ok => "",
            Self::Degraded(why)
            | Self::Failed(why)
            | Self::Loading(why)
            | Self::NoMetrics(why)
            | Self::Unauthorized(why)
            | Self::Stalled(why)
            | Self::Absent(why) => why,
        }
    }
}

/// One value of one thing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Of what.
    pub subject: Subject,
    /// Which value. A counter carries its running total.
    pub metric: Metric,
    /// The value in the metric's unit, or why not.
    pub reading: Reading,
}

impl Sample {
    /// A value as its source gave it; one that cannot be is missing ([`plausible`]).
    pub fn new(subject: Subject, metric: Metric, reading: Reading) -> Self {
        Self { subject, metric, reading: plausible::judge(metric, reading) }
    }
}

/// One cumulative histogram as scraped, ranks merged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HistogramSample {
    /// Of what.
    #[serde(rename = "of")]
    pub subject: Subject,
    /// Which histogram.
    #[serde(rename = "m", with = "metric_key")]
    pub metric: Metric,
    /// Finite upper edges, rising, in the metric's unit.
    pub edges: Arc<[f64]>,
    /// Cumulative counts, one for each edge and one for +Inf: `edges.len() + 1`.
    pub cumulative: Vec<f64>,
    /// Sum of all observations, where exposed.
    pub sum: Option<f64>,
    /// Fingerprint of the label sets it was added up from; 0 where it was not noted. A difference between
    /// two scrapes means something only while this stays the same.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub sets: u64,
}

/// What a text says about its subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FactKey {
    /// GPU: product name. Engine: the name shown for it.
    Name,
    /// GPU: where SM and DRAM activity come from: `gpm`, `dcgm` or `time` (not available).
    ActivitySource,
    /// GPU: instances that it is split into (MIG), `3g.40gb, 2g.20gb`; activity from `dcgm` is theirs, weighted by their slices.
    Instances,
    /// GPU: how often `dcgm` has new values, e.g. `30 s`; empty while that is not known.
    ActivityPeriod,
    /// GPU: where `dram_peak_bytes_per_s` comes from.
    DramPeakSource,
    /// GPU: the measurement behind `dram_ceiling_bytes_per_s`, as [`super::ceiling::CeilingOrigin`] writes it.
    DramCeilingOrigin,
    /// GPU: the driver's name for this very device.
    Uuid,
    /// GPU: why the driver says nothing of it; empty while it does.
    Trouble,
    /// Host: driver version.
    Driver,
    /// Host: CUDA version the driver supports.
    CudaDriver,
    /// Host: name of the machine.
    Hostname,
    /// Engine: base URL.
    Url,
    /// Engine: adapter id, e.g. `vllm`.
    Kind,
    /// Engine: what stands before it and hands its metrics on, e.g. `Ray`.
    Behind,
    /// Engine: version it reports.
    Version,
    /// Engine: model it serves.
    Model,
    /// Engine: models in memory, each with its size, share on GPUs, context and when it goes.
    Loaded,
    /// Engine: ids of its processes on this host, `"12,40"`, the listening one first.
    Pids,
    /// Engine: data-parallel ranks, models or workers that its figures are added up from, `"0,1"`.
    Ranks,
    /// Engine: how KV memory is given out: `paged`, `slots` (each slot has its own share) or `unified` (slots share all).
    KvLayout,
    /// Engine: what `kv_bytes_per_token` was worked out from, or `not known: …` with the reason.
    KvBytesSource,
    /// Engine: where `requests_cap` comes from.
    RequestsCapSource,
    /// Engine: what its time per output token counts in that ours leaves out; not told where it is ours.
    TpotSource,
    /// Engine: what its waiting requests are, where they are not just those that wait to be scheduled.
    WaitingSource,
    /// Engine: how old its own levels may be when they are read, where that is longer than a scrape: `10 s`.
    LevelsAge,
    /// Engine: LoRA adapters in GPU memory or known to it, `"sql,chat"`.
    LoraLoaded,
    /// Engine: LoRA adapters that running requests use.
    LoraRunning,
    /// Engine: LoRA adapters that waiting requests want.
    LoraWaiting,
    /// Host: where a recording comes from (its own header).
    Origin,
}

/// A text about a subject.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fact {
    /// Of what.
    #[serde(rename = "of")]
    pub subject: Subject,
    /// Which text.
    #[serde(rename = "k")]
    pub key: FactKey,
    /// The text, cleaned for the screen.
    #[serde(rename = "v")]
    pub text: Arc<str>,
}

/// Everything a source read in one go.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// Who read it.
    pub source: SourceId,
    /// When: the middle of the read.
    pub at: Time,
    /// How long the read took, µs.
    pub took_us: u32,
    /// How long these values may be called current, ms. After that they are stale.
    pub valid_ms: u32,
    /// Values.
    pub samples: Vec<Sample>,
    /// Histograms.
    pub histograms: Vec<HistogramSample>,
    /// Texts.
    pub facts: Vec<Fact>,
    /// Processes, when this batch is a reading of the process table.
    pub processes: Option<Vec<ProcessSample>>,
    /// Processes that this reading of the table has no room for.
    pub more_processes: Option<MoreProcesses>,
    /// Processes with device memory, when this batch lists them.
    pub gpu_processes: Option<Vec<GpuProcess>>,
    /// Runs of probes that began or ended.
    pub marks: Vec<Mark>,
    /// Findings that began or ended.
    pub events: Vec<EventLine>,
    /// A change of the source's state.
    pub state: Option<SourceState>,
    /// Totals do not continue those of the batch before: the source restarted, or another set of ranks
    /// is added up.
    pub breaks: bool,
    /// Read for its levels and counters only: that there are no histograms says nothing.
    pub partial: bool,
    /// For how long before this nothing was read at all, ms: the machine was suspended or warptop was stopped; 0: not so.
    pub paused_ms: u64,
}

impl Batch {
    /// Validity of what never changes.
    pub const FOREVER: u32 = u32::MAX;

    /// An empty batch.
    pub const fn new(source: SourceId, at: Time, valid_ms: u32) -> Self {
        Self {
            source,
            at,
            took_us: 0,
            valid_ms,
            samples: Vec::new(),
            histograms: Vec::new(),
            facts: Vec::new(),
            processes: None,
            more_processes: None,
            gpu_processes: None,
            marks: Vec::new(),
            events: Vec::new(),
            state: None,
            breaks: false,
            partial: false,
            paused_ms: 0,
        }
    }

    /// Adds a value.
    pub fn push(&mut self, subject: Subject, metric: Metric, reading: impl Into<Reading>) {
        self.samples.push(Sample::new(subject, metric, reading.into()));
    }

    /// Adds a text, cleaned for the screen.
    pub fn fact(&mut self, subject: Subject, key: FactKey, text: &str) {
        self.facts.push(Fact { subject, key, text: super::text::clean(text).into() });
    }

    /// Makes this batch empty again, keeping its buffers.
    pub fn reset(&mut self, at: Time) {
        self.at = at;
        self.took_us = 0;
        self.samples.clear();
        self.histograms.clear();
        self.facts.clear();
        self.processes = None;
        self.more_processes = None;
        self.gpu_processes = None;
        self.marks.clear();
        self.events.clear();
        self.state = None;
        self.breaks = false;
        self.partial = false;
        self.paused_ms = 0;
    }
}

impl From<f64> for Reading {
    fn from(value: f64) -> Self {
        Self::new(value)
    }
}

/// A histogram's metric by its key.
mod metric_key {
    use super::{Deserialize, Deserializer, Metric, Serializer};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature serde asks for")]
    pub(super) fn serialize<S: Serializer>(metric: &Metric, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(metric.key())
    }
    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Metric, D::Error> {
        let key = std::borrow::Cow::<str>::deserialize(deserializer)?;
        Metric::from_key(&key).ok_or_else(|| serde::de::Error::custom(format_args!("unknown metric '{key}'")))
    }
}

/// Samples as `{"gpu0":{"sm_active_pct":81.0,"mem_temp_c":"unsupported"}}`.
struct Grouped<'a>(&'a [Sample]);

impl Serialize for Grouped<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Values<'a>(&'a [Sample]);
        impl Serialize for Values<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_map(self.0.iter().map(|s| (s.metric.key(), s.reading)))
            }
        }
        let mut sorted = self.0.to_vec();
        sorted.sort_by_key(|s| s.subject);
        let mut map = serializer.serialize_map(None)?;
        for group in sorted.chunk_by(|a, b| a.subject == b.subject) {
            map.serialize_entry(&group[0].subject, &Values(group))?;
        }
        map.end()
    }
}

/// Reads [`Grouped`]; metrics and subjects of a newer version are passed over and counted.
#[derive(Default)]
struct Ungrouped {
    samples: Vec<Sample>,
}

impl<'de> Deserialize<'de> for Ungrouped {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Groups;
        impl<'de> Visitor<'de> for Groups {
            type Value = Ungrouped;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a map from subjects to their values")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Ungrouped, A::Error> {
                let mut out = Ungrouped::default();
                while let Some((subject, values)) = map.next_entry::<String, BTreeMap<String, Reading>>()? {
                    let Ok(subject) = subject.parse() else { continue };
                    out.samples.extend(
                        values
                            .into_iter()
                            .filter_map(|(key, reading)| Some(Sample::new(subject, Metric::from_key(&key)?, reading))),
                    );
                }
                Ok(out)
            }
        }
        deserializer.deserialize_map(Groups)
    }
}

/// A part of a batch, or something a newer version added, which is passed over.
#[derive(Deserialize)]
#[serde(untagged)]
enum Known<T> {
    Here(T),
    Newer(serde::de::IgnoredAny),
}

impl<T> Known<T> {
    fn get(self) -> Option<T> {
        match self {
            Self::Here(part) => Some(part),
            Self::Newer(_) => None,
        }
    }
}

/// Parts of a batch. What is passed over takes no room: a line of 1 MiB may hold half a million of nothing.
struct Parts<T>(Vec<T>);

impl<T> Default for Parts<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Parts<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List<T>(std::marker::PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for List<T> {
            type Value = Vec<T>;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a list")
            }
            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
                let mut parts = Vec::new();
                while let Some(part) = list.next_element::<Known<T>>()? {
                    parts.extend(part.get());
                }
                Ok(parts)
            }
        }
        deserializer.deserialize_seq(List(std::marker::PhantomData)).map(Self)
    }
}

impl Serialize for Batch {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("t", &self.at)?;
        map.serialize_entry("src", &self.source)?;
        map.serialize_entry("took_us", &self.took_us)?;
        map.serialize_entry("valid_ms", &self.valid_ms)?;
        if !self.samples.is_empty() {
            map.serialize_entry("s", &Grouped(&self.samples))?;
        }
        if !self.histograms.is_empty() {
            map.serialize_entry("h", &self.histograms)?;
        }
        if !self.facts.is_empty() {
            map.serialize_entry("facts", &self.facts)?;
        }
        if let Some(processes) = &self.processes {
            map.serialize_entry("procs", processes)?;
        }
        if let Some(more) = &self.more_processes {
            map.serialize_entry("more_procs", more)?;
        }
        if let Some(processes) = &self.gpu_processes {
            map.serialize_entry("gpu_procs", processes)?;
        }
        if !self.marks.is_empty() {
            map.serialize_entry("marks", &self.marks)?;
        }
        if !self.events.is_empty() {
            map.serialize_entry("events", &self.events)?;
        }
        if let Some(state) = &self.state {
            map.serialize_entry("state", state)?;
        }
        if self.paused_ms > 0 {
            map.serialize_entry("paused_ms", &self.paused_ms)?;
        }
        for (key, set) in [("breaks", self.breaks), ("partial", self.partial)] {
            if set {
                map.serialize_entry(key, &true)?;
            }
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Batch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Line {
            t: Time,
            src: SourceId,
            #[serde(default)]
            took_us: u32,
            valid_ms: u32,
            #[serde(default)]
            s: Ungrouped,
            #[serde(default)]
            h: Parts<HistogramSample>,
            #[serde(default)]
            facts: Parts<Fact>,
            procs: Option<Vec<ProcessSample>>,
            more_procs: Option<Known<MoreProcesses>>,
            gpu_procs: Option<Vec<GpuProcess>>,
            #[serde(default)]
            marks: Parts<Mark>,
            #[serde(default)]
            events: Parts<EventLine>,
            state: Option<Known<SourceState>>,
            #[serde(default)]
            breaks: bool,
            #[serde(default)]
            partial: bool,
            #[serde(default)]
            paused_ms: u64,
        }
        let line = Line::deserialize(deserializer)?;
        Ok(Self {
            source: line.src,
            at: line.t,
            took_us: line.took_us,
            valid_ms: line.valid_ms,
            samples: line.s.samples,
            histograms: line.h.0,
            facts: line.facts.0,
            processes: line.procs,
            more_processes: line.more_procs.and_then(Known::get),
            gpu_processes: line.gpu_procs,
            marks: line.marks.0,
            events: line.events.0,
            state: line.state.and_then(Known::get),
            breaks: line.breaks,
            partial: line.partial,
            paused_ms: line.paused_ms,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Edge, EventEdge, Why};

    #[test]
    fn a_batch_reads_back_from_its_line() {
        let mut batch = Batch::new(SourceId::Engine(1), Time(1_795_960_436_789), 3500);
        batch.took_us = 250;
        batch.push(Subject::Gpu(0), Metric::MemTemp, Reading::Missing(Why::Unsupported));
        batch.push(Subject::Gpu(0), Metric::SmActive, 81.25);
        batch.fact(Subject::Engine(1), FactKey::Model, "llama\u{1b}[31m 8b");
        batch.histograms.push(HistogramSample {
            subject: Subject::Engine(1),
            metric: Metric::Ttft,
            edges: [0.1, 0.5].into(),
            cumulative: vec![1.0, 2.0, 3.0],
            sum: Some(1.5),
            sets: u64::MAX - 1,
        });
        batch.more_processes = Some(MoreProcesses { count: 136, gpu_mem: 1e10 });
        batch.gpu_processes = Some(vec![GpuProcess { gpu: 0, pid: 7, mem: Reading::Value(1e9), share: 30.0.into() }]);
        for edge in [Edge::Start(60_000), Edge::End("done".into())] {
            batch.marks.push(Mark { subject: Subject::Gpu(0), probe: "hbm".into(), run: "r1".into(), edge });
        }
        for edge in [EventEdge::Begin, EventEdge::End] {
            let (subject, since) = (Subject::Engine(1), Time(1_795_960_430_000));
            let headline = "KV cache 99 %, 20 wait".into();
            batch.events.push(EventLine {
                subject,
                cause: "kv-capacity".into(),
                level: "act".into(),
                edge,
                since,
                headline,
            });
        }
        batch.state = Some(SourceState::Degraded("slow".into()));
        batch.breaks = true;
        batch.partial = true;
        let line = serde_json::to_string(&batch).unwrap();
        let mut back: Batch = serde_json::from_str(&line).unwrap();
        back.samples.sort_by_key(|s| s.metric as usize);
        batch.samples.sort_by_key(|s| s.metric as usize);
        assert_eq!(back, batch, "{line}");
    }

    #[test]
    fn a_newer_metric_is_passed_over() {
        let line = r#"{"t":1,"src":"nvml","valid_ms":1,"s":{"gpu0":{"new_thing":1,"temp_c":40},"dpu0":{"temp_c":1}},
            "facts":[{"of":"gpu0","k":"colour","v":"green"},{"of":"gpu0","k":"name","v":"X"}],
            "h":[{"of":"engine0","m":"new_s","edges":[1],"cumulative":[1,2],"sum":null}],"state":{"is":"dreaming"},
            "marks":[{"of":"gpu0","probe":"hbm","run":"r","edge":"paused"}],
            "events":[{"of":"gpu0","cause":"heat","level":"act","edge":"middle","since":1,"headline":""}]}"#;
        let batch: Batch = serde_json::from_str(line).unwrap();
        assert_eq!((batch.samples.len(), batch.facts.len(), batch.histograms.len()), (1, 1, 0));
        assert_eq!((batch.state, batch.marks, batch.events), (None, vec![], vec![]));
    }
}
