//! Bounded history: everything the samplers read, for as long as it is kept, and what can be asked of it.
//!
//! Samplers push [`Batch`]es; readers lock the store for the time it takes to copy what they draw.
//! It must not know where data come from nor how they are drawn. Invariants: memory is bounded
//! ([`Retention`]); a counter is only ever seen as a rate; every answer is either measured or a [`Why`];
//! the lock is never held across IO.
//!
//! Memory at most, for 8 GPUs and 8 engines: see [`Retention::most_bytes`].

mod histogram;
mod minutes;
mod pauses;
mod processes;
mod retention;
mod runs;
mod series;
mod sources;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

pub use histogram::{HistogramSeries, HistogramWindow, Interval, MOST_PARTS, Parts};
pub use processes::{ProcessRow, ProcessTable, ThreadRow};
pub use retention::Retention;
pub use runs::Run;
pub use series::{Bin, Pushed, Series, Timed};
pub use sources::Source;

use crate::model::{
    Batch, Fact, FactKey, GpuProcess, HistogramSample, Kind, Metric, Reading, SourceId, SourceState, Subject, Time,
    Why, limits, lock,
};
use pauses::Pauses;
use processes::ProcessHistory;
use runs::Runs;

/// A stretch of time: after `start`, up to and including `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Not included.
    pub start: Time,
    /// Included.
    pub end: Time,
}

impl Window {
    /// The last `ms` before `end`.
    pub fn last(end: Time, ms: u64) -> Self {
        Self { start: end - ms, end }
    }

    /// Length in ms.
    pub const fn ms(&self) -> u64 {
        self.end.since(self.start)
    }
}

/// The histories, shared by samplers and readers.
#[derive(Debug)]
pub struct Store {
    data: Mutex<Data>,
    version: AtomicU64,
}

/// What the lock guards, and all that can be asked.
#[derive(Debug)]
pub struct Data {
    keep: Retention,
    epoch: Option<Time>,
    newest: Time,
    series: HashMap<(Subject, Metric), Series>,
    histograms: HashMap<(Subject, Metric), HistogramSeries>,
    facts: BTreeMap<(Subject, FactKey), Texts>,
    processes: ProcessHistory,
    gpu_processes: Vec<GpuProcess>,
    sources: BTreeMap<SourceId, Source>,
    resets: Vec<(Time, Subject)>,
    runs: Runs,
    pauses: Pauses,
    out_of_order: u64,
    left_out: u64,
    /// Why there is nothing of what was never read.
    never: Why,
}

/// A text and the moment it first held, rising.
type Texts = VecDeque<(Time, Arc<str>)>;

/// Restarts of engines that are remembered.
const MAX_RESETS: usize = 256;
/// Changes of a text that are remembered: an engine restarts with another model.
const MAX_TEXTS: usize = 32;
/// Bytes of all changes of a text together, at most; the newest one stays in any case. An hour of a name that changes with
/// every scrape is not worth more.
const TEXTS_BYTES: usize = 8 << 10;
/// Samples may be dated this long before the first batch that came in (several sources start together).
const EPOCH_SLACK_MS: u64 = 60_000;

/// Makes room for one more: a full ring grows by half instead of doubling. [`Retention::most_bytes`]
/// counts on it.
fn grow<T>(ring: &mut VecDeque<T>) {
    if ring.len() == ring.capacity() {
        ring.reserve_exact((ring.len() / 2).max(64));
    }
}

/// Histories count time in ms of 32 bits, which last for 49 days. Half way, how much later their epoch has
/// to be so that two days remain: whole minutes, so that minutes stay minutes.
fn later_epoch(epoch: Time, at: Time) -> Option<u64> {
    const FAR: u64 = 1 << 31;
    const REST: u64 = 2 * 86_400_000;
    let minute = u64::from(Retention::MINUTE_MS);
    let gone = at.since(epoch);
    (gone > FAR).then(|| (gone - REST) / minute * minute)
}

impl Store {
    /// An empty store.
    pub fn new(keep: Retention) -> Self {
        Self { data: Mutex::new(Data::new(keep, Why::NotYet)), version: AtomicU64::new(0) }
    }

    /// An empty store for what a recording holds: what it lacks will not come.
    pub fn of_recording(keep: Retention) -> Self {
        Self { data: Mutex::new(Data::new(keep, Why::NotRecorded)), version: AtomicU64::new(0) }
    }

    /// Takes in what a sampler read. Waits for readers for as long as they copy, microseconds.
    pub fn push(&self, batch: &Batch) {
        self.read().push(batch);
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Locks the store for reading. Copy what you need and let go.
    pub fn read(&self) -> MutexGuard<'_, Data> {
        // A panic while pushing leaves at worst half a batch: still better than no screen.
        lock(&self.data)
    }

    /// Grows with every push: a reader that has seen this version has nothing new to draw.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }
}

impl Data {
    fn new(keep: Retention, never: Why) -> Self {
        Self {
            keep,
            epoch: None,
            newest: Time(0),
            series: HashMap::new(),
            histograms: HashMap::new(),
            facts: BTreeMap::new(),
            processes: ProcessHistory::default(),
            gpu_processes: Vec::new(),
            sources: BTreeMap::new(),
            resets: Vec::new(),
            runs: Runs::default(),
            pauses: Pauses::default(),
            out_of_order: 0,
            left_out: 0,
            never,
        }
    }

    fn push(&mut self, batch: &Batch) {
        // What was concluded then says nothing to those who conclude now.
        if batch.source == SourceId::Diagnosis {
            return;
        }
        let epoch = *self.epoch.get_or_insert(batch.at - EPOCH_SLACK_MS);
        self.newest = self.newest.max(batch.at);
        self.sources.entry(batch.source).or_default().push(batch, &self.keep);
        if batch.breaks {
            self.break_off(batch);
        }
        if batch.paused_ms > 0 {
            self.pause(batch.at, batch.paused_ms);
        }
        for sample in &batch.samples {
            if !limits::takes(sample.subject, sample.metric) || sample.metric.kind() == Kind::Histogram {
                self.left_out += 1;
                continue;
            }
            let key = (sample.subject, sample.metric);
            let series = self.series.entry(key).or_insert_with(|| Series::new(sample.metric, epoch));
            series.by = Some(batch.source);
            match series.push(batch.at, sample.reading, batch.valid_ms, &self.keep) {
                Pushed::Kept => {}
                Pushed::Reset => self.note_reset(batch.at, sample.subject),
                Pushed::OutOfOrder => self.out_of_order += 1,
            }
        }
        for sample in &batch.histograms {
            self.push_histogram(batch.at, epoch, sample);
        }
        if let SourceId::Engine(i) = batch.source
            && !batch.partial
        {
            self.miss_histograms(batch, Subject::Engine(i));
        }
        if batch.samples.is_empty() && batch.state.as_ref().is_some_and(SourceState::is_down) {
            self.miss_series(batch);
        }
        for fact in &batch.facts {
            self.note_fact(batch.at, fact);
        }
        for mark in &batch.marks {
            self.runs.push(batch.at, mark);
        }
        if let Some(processes) = &batch.processes {
            let rows = processes.iter().take(limits::PROCESS_ROWS).cloned();
            self.processes.push(batch.at, batch.valid_ms, rows.map(limits::fit_row).collect(), &self.keep);
            self.processes.note_more(batch.at, batch.more_processes.unwrap_or_default());
        }
        if let Some(processes) = &batch.gpu_processes {
            self.gpu_processes.clear();
            self.gpu_processes.extend(processes.iter().take(limits::ALL_GPU_PROCESSES));
        }
    }

    fn push_histogram(&mut self, at: Time, epoch: Time, sample: &HistogramSample) {
        let key = (sample.subject, sample.metric);
        let known = self.histograms.get(&key).is_some_and(|series| *series.edges() == sample.edges);
        if !known && !self.has_room(sample) {
            self.left_out += 1;
            if let Some(series) = self.histograms.get_mut(&key) {
                series.miss(at, &self.keep);
            }
            return;
        }
        let series =
            self.histograms.entry(key).or_insert_with(|| HistogramSeries::new(epoch, Arc::clone(&sample.edges)));
        if series.push(at, sample, &self.keep) {
            self.note_reset(at, sample.subject);
        }
    }

    /// Whether a histogram on new edges is within the limits, together with all others of its subject.
    fn has_room(&self, sample: &HistogramSample) -> bool {
        let others =
            self.histograms.iter().filter(|((of, metric), _)| *of == sample.subject && *metric != sample.metric);
        let others: usize = others.map(|(_, series)| series.edges().len() + 1).sum();
        limits::takes(sample.subject, sample.metric)
            && sample.metric.kind() == Kind::Histogram
            && limits::has_room(sample.edges.len() + 1, others)
    }

    /// A histogram that an engine's batch does not carry was not scraped: a gap.
    fn miss_histograms(&mut self, batch: &Batch, subject: Subject) {
        for (key, series) in &mut self.histograms {
            if key.0 == subject && !batch.histograms.iter().any(|h| h.subject == subject && h.metric == key.1) {
                series.miss(batch.at, &self.keep);
            }
        }
    }

    /// What the batch brings does not continue what its source said before.
    fn break_off(&mut self, batch: &Batch) {
        let of_batch = |subject| batch.samples.iter().any(|s| s.subject == subject);
        for (_, series) in self.series.iter_mut().filter(|((subject, _), _)| of_batch(*subject)) {
            series.break_off();
        }
        for (_, series) in self.histograms.iter_mut().filter(|((subject, _), _)| of_batch(*subject)) {
            series.miss(batch.at, &self.keep);
        }
        if let Some(first) = batch.samples.first() {
            self.note_reset(batch.at, first.subject);
        }
    }

    /// Nothing was read for so long before `at`: no rate and no difference spans it.
    fn pause(&mut self, at: Time, ms: u64) {
        self.pauses.push(at, ms);
        self.series.values_mut().for_each(Series::break_off);
        self.histograms.values_mut().for_each(|series| series.miss(at, &self.keep));
        self.processes.break_off();
    }

    /// A source that is down has no current values: each of its series gets a gap.
    fn miss_series(&mut self, batch: &Batch) {
        for series in self.series.values_mut().filter(|series| series.by == Some(batch.source)) {
            series.miss(batch.at, &self.keep);
        }
    }

    fn note_fact(&mut self, at: Time, fact: &Fact) {
        if !limits::knows(fact.subject) || fact.text.len() > limits::TEXT_BYTES {
            self.left_out += 1;
            return;
        }
        let texts = self.facts.entry((fact.subject, fact.key)).or_default();
        match texts.back() {
            Some((last, text)) if at < *last || *text == fact.text => return,
            _ => {}
        }
        let mut bytes: usize = texts.iter().map(|(_, text)| text.len()).sum();
        while texts.len() == MAX_TEXTS || bytes + fact.text.len() > TEXTS_BYTES {
            let Some((_, oldest)) = texts.pop_front() else { break };
            bytes -= oldest.len();
        }
        texts.push_back((at, Arc::clone(&fact.text)));
    }

    fn note_reset(&mut self, at: Time, subject: Subject) {
        if self.resets.last() == Some(&(at, subject)) {
            return;
        }
        if self.resets.len() == MAX_RESETS {
            self.resets.remove(0);
        }
        self.resets.push((at, subject));
    }

    /// Time of the newest batch; 0 before the first.
    pub const fn newest(&self) -> Time {
        self.newest
    }

    /// When the first batch came in.
    pub fn oldest(&self) -> Option<Time> {
        self.epoch.map(|e| e + EPOCH_SLACK_MS)
    }

    /// A series, if anything was ever read for it.
    pub fn series(&self, subject: Subject, metric: Metric) -> Option<&Series> {
        self.series.get(&(subject, metric))
    }

    /// A histogram's history, if it was ever scraped.
    pub fn histogram(&self, subject: Subject, metric: Metric) -> Option<&HistogramSeries> {
        self.histograms.get(&(subject, metric))
    }

    /// Why there is nothing of what was never read: not yet, or a recording that does not hold it.
    pub const fn never(&self) -> Why {
        self.never
    }

    /// The newest reading at `at`, stale when too old.
    pub fn latest(&self, subject: Subject, metric: Metric, at: Time) -> Timed {
        let never = Timed { at: None, reading: Reading::Missing(self.never) };
        self.series(subject, metric).map_or(never, |s| s.latest(at))
    }

    /// The mean of a gauge or the rate of a counter over the window.
    pub fn mean(&self, subject: Subject, metric: Metric, window: Window) -> Reading {
        self.series(subject, metric).map_or(Reading::Missing(self.never), |s| s.mean(window))
    }

    /// The part of the window that [`Data::mean`] or [`Data::histogram_window`] is of, ms: see [`Series::measured_ms`].
    pub fn measured_ms(&self, subject: Subject, metric: Metric, window: Window) -> u64 {
        let histogram = || self.histogram(subject, metric).map_or(0, |h| h.measured_ms(window));
        self.series(subject, metric).map_or_else(histogram, |s| s.measured_ms(window))
    }

    /// Columns of a plot; all empty when there is no such series.
    pub fn fill(&self, subject: Subject, metric: Metric, window: Window, bins: &mut [Bin]) {
        match self.series(subject, metric) {
            Some(series) => series.fill(window, bins),
            None => bins.fill(Bin::default()),
        }
    }

    /// Adds up a histogram's window; empty edges when it was never scraped.
    pub fn histogram_window(&self, subject: Subject, metric: Metric, window: Window, out: &mut HistogramWindow) {
        match self.histogram(subject, metric) {
            Some(series) => series.window(window, out),
            None => *out = HistogramWindow::default(),
        }
    }

    /// A text about a subject as it was at `at`; before the first word of it, that one: a source says
    /// what it is only once it is asked.
    pub fn fact(&self, subject: Subject, key: FactKey, at: Time) -> Option<&str> {
        let texts = self.facts.get(&(subject, key))?;
        let then = texts.iter().rev().find(|(since, _)| *since <= at).or_else(|| texts.front());
        then.map(|(_, text)| text.as_ref())
    }

    /// Indices of the GPUs that were seen, rising.
    pub fn gpus(&self) -> impl Iterator<Item = u8> {
        self.facts.keys().filter_map(|&(subject, key)| match subject {
            Subject::Gpu(i) if key == FactKey::Name => Some(i),
            _ => None,
        })
    }

    /// Indices of the engines that were named or found, rising.
    pub fn engines(&self) -> impl Iterator<Item = u8> {
        self.facts.keys().filter_map(|&(subject, key)| match subject {
            Subject::Engine(i) if key == FactKey::Url => Some(i),
            _ => None,
        })
    }

    /// The newest process table read at or before `at`, whatever its age.
    pub fn processes(&self, at: Time) -> Option<&ProcessTable> {
        self.processes.at(at)
    }

    /// The process table that is current at `at`; `None` where there is none, or it is too old to be called that.
    pub fn current_processes(&self, at: Time) -> Option<&ProcessTable> {
        self.processes(at).filter(|table| table.is_current(at))
    }

    /// Processes with device memory, as NVML listed them last.
    pub fn gpu_processes(&self) -> &[GpuProcess] {
        &self.gpu_processes
    }

    /// A source, once it has said anything.
    pub fn source(&self, id: SourceId) -> Option<&Source> {
        self.sources.get(&id)
    }

    /// Every source that has said anything.
    pub fn sources(&self) -> impl Iterator<Item = (SourceId, &Source)> {
        self.sources.iter().map(|(&id, source)| (id, source))
    }

    /// Restarts seen in the window: a counter went down.
    pub fn resets(&self, window: Window) -> impl Iterator<Item = (Time, Subject)> {
        self.resets.iter().copied().filter(move |(at, _)| *at > window.start && *at <= window.end)
    }

    /// The last stretch before `at` in which nothing was read at all: the machine was suspended, or warptop was stopped.
    pub fn pause_before(&self, at: Time) -> Option<Window> {
        self.pauses.before(at)
    }

    /// Runs of probes on this subject that overlap the window, in the order they began.
    pub fn runs(&self, subject: Subject, window: Window) -> impl Iterator<Item = &Run> {
        self.runs.on(subject, window)
    }

    /// Values, histograms and texts that are not kept: beyond the limits, or of nothing that can have them.
    pub const fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Samples dropped because newer ones were already there.
    pub const fn out_of_order(&self) -> u64 {
        self.out_of_order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scrape(at: u64, tokens: f64) -> Batch {
        let mut batch = Batch::new(SourceId::Engine(0), Time(at), 3500);
        batch.push(Subject::Engine(0), Metric::GenerationTokens, tokens);
        batch.histograms.push(HistogramSample {
            sets: 0,
            subject: Subject::Engine(0),
            metric: Metric::Ttft,
            edges: [1.0].into(),
            cumulative: vec![tokens, tokens],
            sum: None,
        });
        batch
    }

    #[test]
    fn a_failed_scrape_is_a_gap_in_its_histograms() {
        let store = Store::new(Retention::HOUR);
        store.push(&scrape(100_000, 1.0));
        store.push(&scrape(101_000, 2.0));
        let mut failed = Batch::new(SourceId::Engine(0), Time(102_000), 3500);
        failed.state = Some(SourceState::Failed("connection refused".into()));
        store.push(&failed);
        store.push(&scrape(103_000, 9.0));
        let data = store.read();
        let mut out = HistogramWindow::default();
        data.histogram_window(Subject::Engine(0), Metric::Ttft, Window::last(Time(103_000), 10_000), &mut out);
        assert_eq!((out.n, out.gaps), (1, true));
        let rate = data.latest(Subject::Engine(0), Metric::GenerationTokens, Time(102_500)).reading;
        assert_eq!(rate, Reading::Missing(Why::Failed));
        let rate = data.latest(Subject::Engine(0), Metric::GenerationTokens, Time(103_000)).reading;
        assert_eq!(rate, Reading::Missing(Why::NotYet), "the gap is not bridged");
        assert_eq!(data.source(SourceId::Engine(0)).unwrap().state_at(Time(102_500)).why(), "connection refused");
    }

    #[test]
    fn totals_that_do_not_continue_are_not_subtracted() {
        let store = Store::new(Retention::HOUR);
        store.push(&scrape(100_000, 1.0));
        let mut joined = scrape(101_000, 5000.0);
        joined.breaks = true;
        store.push(&joined);
        store.push(&scrape(102_000, 5002.0));
        let data = store.read();
        let mut out = HistogramWindow::default();
        data.histogram_window(Subject::Engine(0), Metric::Ttft, Window::last(Time(102_000), 10_000), &mut out);
        assert_eq!((out.n, out.gaps), (2, true));
        let rate = |at| data.latest(Subject::Engine(0), Metric::GenerationTokens, Time(at)).reading;
        assert_eq!((rate(101_000), rate(102_000)), (Reading::Missing(Why::NotYet), Reading::Value(2.0)));
        assert_eq!(data.resets(Window::last(Time(102_000), 5000)).count(), 1);
    }

    #[test]
    fn a_partial_reading_leaves_no_gap_in_histograms() {
        let store = Store::new(Retention::HOUR);
        store.push(&scrape(100_000, 1.0));
        let mut levels = scrape(100_100, 1.0);
        levels.histograms.clear();
        levels.partial = true;
        store.push(&levels);
        store.push(&scrape(101_000, 4.0));
        let mut out = HistogramWindow::default();
        store.read().histogram_window(Subject::Engine(0), Metric::Ttft, Window::last(Time(101_000), 10_000), &mut out);
        assert_eq!((out.n, out.gaps), (3, false));
    }

    #[test]
    fn a_restart_is_noted_once() {
        let store = Store::new(Retention::HOUR);
        store.push(&scrape(100_000, 100.0));
        store.push(&scrape(101_000, 1.0));
        assert_eq!(store.read().resets(Window::last(Time(101_000), 5000)).count(), 1);
    }

    /// Fault: host: the machine is suspended, or warptop is stopped
    /// Seen: a gap in every figure
    /// Works: everything, at once afterwards
    /// Recovers: rates and quantiles with the second reading
    #[test]
    fn no_rate_spans_a_pause() {
        let store = Store::new(Retention::HOUR);
        let processes = |at: u64, cpu_ms: f64| {
            let mut batch = Batch::new(SourceId::Process, Time(at), 3500);
            let row = crate::model::ProcessSample { pid: 5, cpu_ms: cpu_ms.into(), ..Default::default() };
            batch.processes = Some(vec![row]);
            store.push(&batch);
        };
        let cpu = |at: u64| store.read().processes(Time(at)).map(|table| table.rows[0].cpu_pct);
        store.push(&scrape(100_000, 1.0));
        store.push(&scrape(101_000, 2.0));
        processes(101_000, 10.0);
        let mut pause = Batch::new(SourceId::App, Time(162_000), 0);
        pause.paused_ms = 61_000;
        store.push(&pause);
        store.push(&scrape(162_000, 9_000.0));
        store.push(&scrape(163_000, 9_003.0));
        processes(162_000, 60_000.0);
        assert_eq!(cpu(162_000), Some(Reading::Missing(Why::NotYet)));
        processes(163_000, 60_500.0);
        assert_eq!(cpu(163_000), Some(Reading::Value(50.0)));
        let data = store.read();
        let rate = |at| data.latest(Subject::Engine(0), Metric::GenerationTokens, Time(at)).reading;
        assert_eq!((rate(162_000), rate(163_000)), (Reading::Missing(Why::NotYet), Reading::Value(3.0)));
        let mut out = HistogramWindow::default();
        data.histogram_window(Subject::Engine(0), Metric::Ttft, Window::last(Time(163_000), 70_000), &mut out);
        assert_eq!((out.n, out.gaps), (4, true), "one before, three after");
        assert_eq!(data.resets(Window::last(Time(163_000), 70_000)).count(), 0, "no engine restarted");
        assert_eq!(data.pause_before(Time(163_000)), Some(Window { start: Time(101_000), end: Time(162_000) }));
    }

    #[test]
    fn nothing_was_read_is_not_yet() {
        let store = Store::new(Retention::HOUR);
        assert_eq!(store.read().latest(Subject::Gpu(0), Metric::Temp, Time(5)).reading, Reading::Missing(Why::NotYet));
        assert_eq!(store.version(), 0);
    }
}
