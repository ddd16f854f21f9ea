//! What memory is taken for: drawing allocates nothing, so that a frame costs the same at midnight as at
//! noon, and the histories stay below the bound that is stated for them.

#![expect(unsafe_code, reason = "a global allocator that counts can only be written with it")]

#[path = "common/allocator.rs"]
mod allocator;
mod common;

use std::io::Cursor;
use std::sync::Arc;
use std::sync::mpsc::channel;

use allocator::{COUNT, Counting, HELD};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use warptop::app::{Origin, View};
use warptop::diagnosis::Timeline;
use warptop::load::Level;
use warptop::load::buckets::bucket;
use warptop::load::level::{Knee, Latency, Load, Quantile, Slice, State};
use warptop::model::metric::Domain;
use warptop::model::{
    Batch, CpuLimits, Edge, FactKey, GpuProcess, HistogramSample, Kind, ManualClock, Mark, Metric, ProcessSample,
    ProcessState, Reading, SourceId, SourceState, Subject, ThreadSample, Time,
};
use warptop::probe::board::{Board, Sweep};
use warptop::recording::{MAX_LINE, Reader};
use warptop::runtime::{Inputs, Program, Session};
use warptop::store::{Retention, Store};
use warptop::ui::pane::Context;
use warptop::ui::panes::PANES;
use warptop::ui::theme::{Charset, Depth, Theme};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations that `work` makes.
fn allocations(work: impl FnOnce()) -> u64 {
    let before = COUNT.get();
    work();
    COUNT.get() - before
}

#[test]
fn the_counter_counts() {
    assert_eq!(allocations(|| ()), 0);
    assert!(allocations(|| drop(std::hint::black_box(vec![1_u8; 100]))) >= 1);
}

#[test]
fn drawing_allocates_nothing_and_preparing_stops_to() {
    let stores = [common::full(2), common::empty(), common::time_based(), common::stalled()];
    let themes = [Theme::FULL, Theme::MONO, Theme { depth: Depth::Ansi16, charset: Charset::Ascii }];
    let view = common::render::view();
    for (store, spec) in stores.iter().flat_map(|s| PANES.iter().map(move |p| (s, p))) {
        for (theme, (width, height)) in themes.iter().flat_map(|t| [(20, 5), (80, 24), (200, 60)].map(|s| (t, s))) {
            let area = Rect::new(0, 0, width, height);
            let mut buf = Buffer::empty(area);
            let context = Context { view: &view, theme, timeline: &Timeline::default(), focused: true };
            let mut pane = (spec.new)();
            for _ in 0..3 {
                pane.prepare(&store.read(), &context, area);
                pane.draw(area, &mut buf, &context);
            }
            let preparing = allocations(|| pane.prepare(&store.read(), &context, area));
            let drawing = allocations(|| pane.draw(area, &mut buf, &context));
            assert_eq!(drawing, 0, "{} draws with allocations at {width}×{height}", spec.id);
            assert_eq!(preparing, 0, "{} still allocates while preparing at {width}×{height}", spec.id);
        }
    }
}

/// Levels of a load sweep that nobody measured.
fn levels() -> Vec<Level> {
    let quantile = |value| Some(Quantile { value, lo: Some(value), hi: Some(value), enough: true });
    let level = |place: u32| Level {
        place,
        load: Load::Users(1 << place),
        state: State::Done,
        ttft_s: Latency { n: 400, p50: quantile(0.05), p99: quantile(0.2), ..Latency::default() },
        slices: vec![Slice {
            from_unix_ms: common::END.0 - 50_000,
            to_unix_ms: common::END.0 - 10_000,
            ttft: vec![(bucket(0.05), 390), (bucket(0.2), 10)],
            ..Slice::default()
        }],
        notes: vec!["made up".to_owned()],
        ..Level::default()
    };
    (0..7).map(level).collect()
}

#[test]
fn a_load_sweep_is_drawn_without_allocations_too() {
    let mut board = Board::default();
    let knee = Some(Knee { at: 18.0, lo: 16.0, hi: 32.0, ..Knee::default() });
    let (run, endpoint) = ("r".into(), "http://localhost:8000".into());
    board.sweep = Some(Sweep { run, endpoint, levels: levels().into(), knee, runs: true });
    let store = common::full(1);
    for (id, cursor) in [("sweep", None), ("sweep", Some((3, 0))), ("concurrency", None)] {
        let spec = PANES.iter().find(|spec| spec.id == id).unwrap();
        for (width, height) in [(38, 6), (78, 19), (200, 60)] {
            let area = Rect::new(0, 0, width, height);
            let (view, mut buf) = (View { cursor, ..common::render::view() }, Buffer::empty(area));
            let context = Context { view: &view, theme: &Theme::FULL, timeline: &Timeline::default(), focused: true };
            let mut pane = (spec.new)();
            pane.probes(Some(&board));
            for _ in 0..3 {
                pane.prepare(&store.read(), &context, area);
                pane.draw(area, &mut buf, &context);
            }
            assert!(!pane.title().contains("none yet") && !pane.title().is_empty());
            let preparing = allocations(|| pane.prepare(&store.read(), &context, area));
            let drawing = allocations(|| pane.draw(area, &mut buf, &context));
            assert_eq!((preparing, drawing), (0, 0), "{id} {cursor:?} at {width}×{height}");
        }
    }
}

#[test]
fn a_frame_of_the_whole_program_allocates_nothing() {
    for (width, height) in [(30, 6), (60, 20), (80, 24), (200, 60)] {
        let (store, clock) = (Arc::new(common::full(2)), Arc::new(ManualClock::at(common::END)));
        let (_to, events) = channel();
        let inputs = Inputs { clock: Arc::clone(&clock) as _, events, suspend: || Ok(()), resume: || Ok(()) };
        let terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let mut program = Program::new(terminal, inputs, Session::on(store, Origin::Live), Theme::FULL);
        let mut frame = |ms| {
            clock.set(common::END + ms);
            allocations(|| program.frame().unwrap())
        };
        // Buffers grow with the longest text they have held.
        let warm: u64 = (0..20).map(|i| frame(i * 50)).sum();
        assert!(warm > 0, "the first frame must fill its buffers");
        // Signals are judged once a second, and worded then.
        frame(1000);
        assert_eq!(frame(1050), 0, "at {width}×{height}");
    }
}

/// A machine that fills every history: GPUs at `interval_ms`, engines and the process table at 1 Hz.
struct Machine {
    gpus: u8,
    engines: u8,
    interval_ms: u64,
    gpu: Vec<Metric>,
    engine: Vec<Metric>,
    histograms: Vec<Metric>,
    edges: Arc<[f64]>,
}

impl Machine {
    fn new(gpus: u8, engines: u8, interval_ms: u64) -> Self {
        let of = |domain, histogram| {
            let all = Metric::ALL.iter().copied();
            all.filter(|m| m.domain() == domain && (m.kind() == Kind::Histogram) == histogram).collect::<Vec<_>>()
        };
        Self {
            gpus,
            engines,
            interval_ms,
            gpu: of(Domain::Gpu, false),
            engine: of(Domain::Engine, false),
            histograms: of(Domain::Engine, true),
            edges: (1..=22).map(f64::from).collect(),
        }
    }

    /// The first `n` of a GPU's metrics, for all GPUs.
    fn gpu_batch(&self, at: Time, metrics: &[Metric]) -> Batch {
        let mut batch = Batch::new(SourceId::Nvml, at, 1500);
        for gpu in 0..self.gpus {
            for &metric in metrics {
                batch.push(Subject::Gpu(gpu), metric, at.0 as f64);
            }
        }
        batch
    }

    fn scrape(&self, at: Time, engine: u8) -> Batch {
        let mut batch = Batch::new(SourceId::Engine(engine), at, 3500);
        let subject = Subject::Engine(engine);
        for &metric in &self.engine {
            batch.push(subject, metric, at.0 as f64);
        }
        batch.histograms.extend(self.histograms.iter().map(|&metric| HistogramSample {
            sets: 0,
            subject,
            metric,
            edges: Arc::clone(&self.edges),
            cumulative: (0..=self.edges.len()).map(|i| (at.0 * (i as u64 + 1)) as f64).collect(),
            sum: Some(at.0 as f64),
        }));
        batch
    }

    /// A process on all GPUs, with texts of its own.
    fn processes(at: Time, gpus: u8, rows: u32) -> Batch {
        let mut batch = Batch::new(SourceId::Process, at, 3500);
        let thread = |tid| {
            let total = Reading::Value(at.0 as f64);
            ThreadSample { tid, name: "VLLM::EngineCor".into(), cpu_ms: total, wait_ms: total }
        };
        let row = |pid| ProcessSample {
            pid,
            start: 1,
            user: "somebody".into(),
            command: "python -m vllm serve".into(),
            gpus: (0..gpus).map(|gpu| (gpu, Reading::Value(1e9))).collect(),
            cpu_ms: (at.0 as f64).into(),
            rss: 1e9.into(),
            majflt: 0.0.into(),
            page_table: 1e6.into(),
            state: Some(ProcessState::Running),
            shares: (0..gpus).map(|gpu| (gpu, Reading::Value(50.0))).collect(),
            threads: (0..4).map(thread).collect(),
            limits: CpuLimits { allowed: 8.0.into(), list: "0-7".into(), quota: 4.0.into() }.into(),
            throttled_ms: (at.0 as f64).into(),
            other: false,
        };
        batch.processes = Some((0..rows).map(row).collect());
        batch
    }

    /// A day by the minute, then more than an hour at full rate.
    fn run(&self, store: &Store) {
        const DAY_MS: u64 = 24 * 3_600_000;
        const MORE_MS: u64 = 64 * 60_000;
        let minutes = (0..DAY_MS).step_by(60_000);
        for at in minutes.chain((DAY_MS..DAY_MS + MORE_MS).step_by(self.interval_ms as usize)).map(Time) {
            // As many as the driver's fast class reads.
            store.push(&self.gpu_batch(at, &self.gpu[..16]));
            if at.0.is_multiple_of(1000) {
                store.push(&self.gpu_batch(at, &self.gpu[16..]));
                (0..self.engines).for_each(|i| store.push(&self.scrape(at, i)));
                store.push(&Self::processes(at, self.gpus, 20));
            }
        }
    }
}

#[test]
fn the_histories_stay_below_the_stated_bound() {
    let machine = Machine::new(1, 1, 250);
    let before = HELD.get().0;
    HELD.set((before, before));
    let store = Store::new(Retention::HOUR);
    machine.run(&store);
    let most = HELD.get().1 - before;
    let stated = Retention::HOUR.most_bytes(250, 1, 1);
    assert!(most <= stated, "{most} bytes were held, {stated} are stated");
    assert!(most * 2 > stated, "{most} bytes were held: a bound of {stated} says little");
}

/// A hundred times as much as the limits permit of everything at once, ten times a second.
fn too_much(second: u64, tenth: u64, edges: &[(Metric, Arc<[f64]>)]) -> Vec<Batch> {
    let at = Time(second * 1000 + tenth * 100);
    let text = |i: usize| format!("{i}{}", "\u{1d11e}".repeat(200));
    let mut batches = Vec::new();
    for (source, subject, domain) in [
        (SourceId::Nvml, Subject::Gpu(0), Domain::Gpu),
        (SourceId::Engine(0), Subject::Engine(0), Domain::Engine),
        (SourceId::Host, Subject::Host, Domain::Host),
        (SourceId::App, Subject::App, Domain::App),
    ] {
        let mut batch = Batch::new(source, at, 1500);
        let metrics = Metric::ALL.iter().filter(|m| m.kind() != Kind::Histogram);
        // Those of all other domains too, and of a GPU that is beyond the limit.
        for &metric in metrics.clone() {
            batch.push(subject, metric, at.0 as f64);
        }
        metrics.clone().filter(|m| m.domain() == domain).for_each(|&m| batch.push(Subject::Gpu(200), m, 1.0));
        if tenth == 0 {
            batch.fact(subject, FactKey::Name, &text(second as usize));
            batch.fact(subject, FactKey::Model, &text(second as usize));
            batch.state = Some(SourceState::Degraded(text(second as usize).into()));
            let (probe, run) = (text(0).into(), text(second as usize).into());
            batch.marks.push(Mark { subject, probe, run, edge: Edge::Start(1000) });
        }
        if tenth == 0 && domain == Domain::Engine {
            batch.histograms.extend(edges.iter().map(|(metric, edges)| HistogramSample {
                subject,
                metric: *metric,
                edges: Arc::clone(edges),
                cumulative: (0..=edges.len()).map(|i| (second * (i as u64 + 1)) as f64).collect(),
                sum: Some(second as f64),
                sets: 0,
            }));
        } else {
            batch.partial = true;
        }
        batches.push(batch);
    }
    batches
}

/// Fault: recording: a hostile recording, or an engine, sends more of everything than any machine has
/// Seen: how many values are not kept, below the replay
/// Works: what is within the limits is kept for as long as always
/// Recovers: at once
#[test]
fn the_worst_that_the_limits_permit_stays_below_the_stated_bound() {
    let (before, keep) = (HELD.get().0, Retention::HOUR);
    HELD.set((before, before));
    let store = Store::new(keep);
    // Ten histograms of 32 buckets are the share of an engine. One has 20,000 all the time, and one now and then 128, for
    // which there is no room beside the others.
    let edges = |n: u32| (1..n).map(f64::from).collect::<Arc<[f64]>>();
    let (small, large) = (edges(32), edges(128));
    let histograms: Vec<_> = Metric::ALL.iter().filter(|m| m.kind() == Kind::Histogram).copied().collect();
    let mut all: Vec<_> = histograms.iter().map(|&m| (m, Arc::clone(&small))).collect();
    all[0].1 = edges(20_000);
    let fixed = HELD.get().0 - before;
    for second in 0..4_000 {
        let now = 100_000 + second;
        all[1].1 = Arc::clone(if second % 500 == 7 { &large } else { &small });
        (0..10).for_each(|tenth| too_much(now, tenth, &all).iter().for_each(|batch| store.push(batch)));
        if second % 100 == 0 {
            let mut batch = Machine::processes(Time(now * 1000), 255, 2_000);
            let held = GpuProcess { gpu: 0, pid: 1, mem: 1.0.into(), share: 1.0.into() };
            batch.gpu_processes = Some(vec![held; 100_000]);
            store.push(&batch);
        }
    }
    // The batches themselves, of which the largest is this one, are no history.
    let most = HELD.get().0 - before - fixed;
    let stated = keep.worst_bytes(1, 1);
    assert!(most <= stated, "{most} bytes are held, {stated} are stated");
    assert!(most * 2 > stated, "{most} bytes are held: a bound of {stated} says little");
    assert!(store.read().left_out() > 1_000);
}

#[test]
fn process_tables_take_no_more_than_is_stated() {
    let before = HELD.get().0;
    HELD.set((before, before));
    let store = Store::new(Retention::HOUR);
    for second in 0..2_000 {
        store.push(&Machine::processes(Time(second * 1000), 2, 20));
    }
    // Beside them: the readings of the source, and the batch that is being pushed.
    let (most, stated) = (HELD.get().1 - before, Retention::HOUR.process_bytes + 200_000);
    assert!(most <= stated, "{most} bytes were held, {stated} are stated");
    assert!(most * 5 > stated * 4, "{most} bytes were held: a bound of {stated} says little");
}

/// Lines of a recording that are as costly as a line can be.
fn costly_lines() -> Vec<String> {
    let head = r#"{"t":1,"src":"nvml","valid_ms":1,"#;
    let many = |part: &str| vec![part; (1 << 20) / (part.len() + 1) - 200].join(",");
    let key = |i: usize| format!("\"{i}\":0");
    let keys = (0..100_000).map(key).collect::<Vec<_>>().join(",");
    let row = r#"{"pid":1,"cpu_ms":0,"rss":0,"majflt":0,"page_table":0}"#;
    let edges = format!(r#"{{"of":"engine0","m":"ttft_s","edges":[{}],"cumulative":[],"sum":0}}"#, many("0"));
    vec![
        format!(r#"{head}"h":[{}]}}"#, many("0")),
        format!(r#"{head}"h":[{edges}]}}"#),
        format!(r#"{head}"h":{}{}}}"#, "[".repeat(500_000), "]".repeat(500_000)),
        format!(r#"{head}"facts":[{}]}}"#, many("[]")),
        format!(r#"{head}"marks":[{}],"events":[]}}"#, many("{}")),
        format!(r#"{head}"s":{{"gpu0":{{{keys}}}}}}}"#),
        format!(r#"{head}"s":{{{}}}}}"#, many(r#""gpu0":{}"#)),
        format!(r#"{head}"procs":[{}]}}"#, many(row)),
        format!(r#"{head}"gpu_procs":[{}]}}"#, many(r#"{"gpu":0,"pid":1,"mem":0}"#)),
        format!(r#"{head}"state":[{}]}}"#, many("[]")),
        "[".repeat(1 << 20),
    ]
}

/// Fault: recording: a line that takes far more memory to read than it is long
/// Seen: the damaged lines are counted
/// Works: the lines before and after it
/// Recovers: with the next line
#[test]
fn a_line_of_a_recording_takes_no_more_than_forty_times_its_length() {
    for line in costly_lines() {
        let header = r#"{"format":"warptop.recording","version":1}"#;
        let bytes = format!("{header}\n{line}\n").into_bytes();
        assert!(line.len() <= MAX_LINE, "{} is a line that is not read at all", line.len());
        let before = HELD.get().0;
        HELD.set((before, before));
        let batches = Reader::new(Cursor::new(bytes.clone())).unwrap().count();
        let most = HELD.get().1 - before;
        assert!(most < 40 << 20, "{batches} batches, {most} bytes: {}", &line[..80]);
    }
}
