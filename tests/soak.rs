//! A day of a busy machine in minutes: 8 GPUs and 8 engines through the real store, diagnosis and screen, time injected.
//!
//! Engines restart and come back with their counters at 0, processes come and go, GPUs are throttled, probes run. What is
//! held must be flat once the histories are full, and each minute that is kept must be what an independent sum says.
//! `a_day_in_minutes` takes about ten minutes and is run by hand:
//!
//!     cargo test --release --test soak -- --ignored --nocapture
//!
//! tests/soak/live.py is the same for a real hour of the real program.
#![expect(unsafe_code, reason = "a global allocator that counts can only be written with it")]
#![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

#[path = "common/allocator.rs"]
mod allocator;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use warptop::app::Origin;
use warptop::diagnosis::{ChangeLog, Slo};
use warptop::model::metric::{Domain, Unit};
use warptop::model::{
    Batch, Edge, FactKey, HistogramSample, Kind, ManualClock, Mark, Metric, ProcessSample, Reading, SourceId,
    SourceState, Subject, ThreadSample, Time,
};
use warptop::runtime::{Inputs, Program, Session};
use warptop::store::{Retention, Store, Window};
use warptop::term::input::Input;
use warptop::ui::theme::Theme;

use allocator::{Counting, HELD};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A whole minute, so that the minutes of the store are minutes of this clock.
const BEGAN: u64 = 1_795_960_800_000;

/// What is simulated.
#[derive(Clone, Copy)]
struct Plan {
    keep: Retention,
    gpus: u8,
    engines: u8,
    interval_ms: u64,
    minutes: u64,
    /// From one row of the table to the next.
    mark_minutes: u64,
    /// Between two frames.
    frame_ms: u64,
}

/// Who holds memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    GpuFast,
    GpuSlow,
    EngineSeries,
    Processes,
    Host,
    Screen,
    ChangeLog,
}

/// Bytes by owner.
#[derive(Default)]
struct Held(BTreeMap<Owner, isize>);

impl Held {
    /// Books what `work` takes and gives back.
    fn by<T>(&mut self, owner: Owner, work: impl FnOnce() -> T) -> T {
        let before = HELD.get().0;
        let result = work();
        *self.0.entry(owner).or_default() += HELD.get().0.cast_signed() - before.cast_signed();
        result
    }

    /// The same, where `work` needs what holds this.
    fn and_by(mut self, owner: Owner, work: impl FnOnce()) -> Self {
        self.by(owner, work);
        self
    }

    fn all(&self) -> isize {
        self.0.values().sum()
    }

    /// What the store holds, and what those hold that judge and draw.
    fn parts(&self) -> [isize; 2] {
        let judges = [Owner::Screen, Owner::ChangeLog].iter().filter_map(|owner| self.0.get(owner)).sum();
        [self.all() - judges, judges]
    }
}

/// What an independent sum says of a minute: sum and weight, smallest and greatest value.
#[derive(Clone, Copy)]
struct Sum {
    total: f64,
    weight: f64,
    least: f64,
    most: f64,
}

/// Such sums of one series, by minute.
#[derive(Default)]
struct Sums(HashMap<u64, Sum>);

impl Sums {
    fn add(&mut self, at: u64, value: f64, weight: f64) {
        let fresh = Sum { total: 0.0, weight: 0.0, least: f64::MAX, most: f64::MIN };
        let minute = self.0.entry(at / 60_000).or_insert(fresh);
        minute.total += value * weight;
        minute.weight += weight;
        minute.least = minute.least.min(value);
        minute.most = minute.most.max(value);
    }
}

/// The simulated machine.
struct Machine {
    plan: Plan,
    store: Arc<Store>,
    clock: Arc<ManualClock>,
    program: Program<TestBackend>,
    _events: Sender<Input>,
    log: ChangeLog,
    held: Held,
    fast: Vec<Metric>,
    slow: Vec<Metric>,
    engine: Vec<Metric>,
    histograms: Vec<Metric>,
    edges: Arc<[f64]>,
    busy: Sums,
    tokens: Sums,
    events: usize,
}

/// Seconds that engine `i` has been up, or `None` while it is down for 20 s.
fn up(i: u8, second: u64) -> Option<u64> {
    let life = 60 * (7 + u64::from(i));
    (second % life).checked_sub(20)
}

/// A value of this metric at this step: whole, so that sums of a minute are exact, and one that a GPU can have.
fn value(metric: Metric, step: u64) -> f64 {
    match metric {
        Metric::ThrottleReasons => [0.0, 4.0, 64.0][(step / 900 % 3) as usize],
        Metric::GpuMemUsed => 40e9 + (step % 1000) as f64 * 1e6,
        Metric::GpuMemTotal => 150e9,
        Metric::DramPeak | Metric::DramCeiling => 4.8e12,
        Metric::PcieGen | Metric::PcieGenMax | Metric::ComputeMode => 3.0,
        Metric::RemapPending => 0.0,
        _ if metric.unit() == Unit::Percent => (step * 7 % 101) as f64,
        _ => (40 + step % 23) as f64,
    }
}

impl Machine {
    fn new(plan: Plan) -> Self {
        let of = |domain, histogram| {
            let all = Metric::ALL.iter().copied();
            all.filter(|m| m.domain() == domain && (m.kind() == Kind::Histogram) == histogram).collect::<Vec<_>>()
        };
        let mut fast = of(Domain::Gpu, false);
        let slow = fast.split_off(16);
        let store = Arc::new(Store::new(plan.keep));
        let clock = Arc::new(ManualClock::at(Time(BEGAN)));
        let (to, events) = channel();
        let inputs = Inputs { clock: Arc::clone(&clock) as _, events, suspend: || Ok(()), resume: || Ok(()) };
        let terminal = Terminal::new(TestBackend::new(200, 60)).unwrap();
        let session = Session::on(Arc::clone(&store), Origin::Live);
        let program = Program::new(terminal, inputs, session, Theme::FULL);
        Self {
            plan,
            store,
            clock,
            program,
            _events: to,
            log: ChangeLog::new(Slo::default()),
            held: Held::default(),
            fast,
            slow,
            engine: of(Domain::Engine, false),
            histograms: of(Domain::Engine, true),
            edges: (1..=22).map(|n| f64::from(n) * 0.05).collect(),
            busy: Sums::default(),
            tokens: Sums::default(),
            events: 0,
        }
    }

    fn push(&mut self, owner: Owner, batch: &Batch) {
        let store = &self.store;
        self.held.by(owner, || store.push(batch));
    }

    fn gpu_batch(&self, at: u64, step: u64, metrics: &[Metric], valid_ms: u32) -> Batch {
        let mut batch = Batch::new(SourceId::Nvml, Time(at), valid_ms);
        for gpu in 0..self.plan.gpus {
            for &metric in metrics {
                // Totals grow by half of the time that passes, or by 500 J a second.
                let total = (at - BEGAN) as f64 / 2.0;
                let reading = if metric.kind() == Kind::Counter { total } else { value(metric, step + u64::from(gpu)) };
                batch.push(Subject::Gpu(gpu), metric, reading);
            }
        }
        batch
    }

    fn scrape(&mut self, at: u64, second: u64, i: u8) {
        let subject = Subject::Engine(i);
        let mut batch = Batch::new(SourceId::Engine(i), Time(at), 3500);
        let Some(age) = up(i, second) else {
            batch.state = Some(SourceState::Failed("connection refused: nothing listens there".into()));
            return self.push(Owner::EngineSeries, &batch);
        };
        batch.state = Some(SourceState::Ok);
        if age == 0 {
            batch.fact(subject, FactKey::Url, &format!("http://127.0.0.1:{}", 8000 + u32::from(i)));
            batch.fact(subject, FactKey::Kind, "vllm");
            batch.fact(subject, FactKey::Model, &format!("model-{}", second / 600 % 5));
            batch.fact(subject, FactKey::Pids, &format!("{}", 1000 + second));
        }
        for &metric in &self.engine {
            let total = (0..=age % 7).sum::<u64>() + age / 7 * 21;
            let reading = if metric.kind() == Kind::Counter { total as f64 } else { value(metric, second) };
            batch.push(subject, metric, reading);
        }
        if i == 0 && age > 0 {
            self.tokens.add(at, (age % 7) as f64, 1000.0);
        }
        batch.histograms.extend(self.histograms.iter().map(|&metric| HistogramSample {
            sets: 0,
            subject,
            metric,
            edges: Arc::clone(&self.edges),
            cumulative: (0..=self.edges.len()).map(|edge| (age * (edge as u64 + 1)) as f64).collect(),
            sum: Some(age as f64),
        }));
        self.push(Owner::EngineSeries, &batch);
    }

    /// Twenty rows, one of which is another process each second.
    fn processes(&mut self, at: u64, second: u64) {
        // What is kept shares its texts with the batch, so that making that counts too.
        let (held, store) = (std::mem::take(&mut self.held), Arc::clone(&self.store));
        self.held = held.and_by(Owner::Processes, || store.push(&self.table(at, second)));
    }

    fn table(&self, at: u64, second: u64) -> Batch {
        let mut batch = Batch::new(SourceId::Process, Time(at), 3500);
        let row = |place: u64| {
            let life = (second + 20 - place) / 20;
            let name = format!("python -m serve --port {}", 8000 + place);
            let total = Reading::Value((second % 1000) as f64);
            let thread = |tid| ThreadSample { tid, name: "VLLM::EngineCor".into(), cpu_ms: total, wait_ms: 1.0.into() };
            ProcessSample {
                pid: (10 + place * 100_000 + life % 100_000) as u32,
                start: life,
                user: "somebody".into(),
                command: name.into(),
                gpus: vec![((place % u64::from(self.plan.gpus)) as u8, Reading::Value(1e9))],
                cpu_ms: total,
                rss: 1e9.into(),
                threads: (0..4).map(thread).collect(),
                ..ProcessSample::default()
            }
        };
        batch.processes = Some((0..20).map(row).collect());
        batch
    }

    fn others(&mut self, at: u64, second: u64) {
        let mut batch = Batch::new(SourceId::Host, Time(at), 3500);
        for &metric in Metric::ALL.iter().filter(|metric| metric.domain() == Domain::Host) {
            batch.push(Subject::Host, metric, if metric.kind() == Kind::Counter { second as f64 } else { 60.0 });
        }
        // A probe runs for a minute in every ten.
        let edge = match second % 600 {
            0 => Some(Edge::Start(60_000)),
            60 => Some(Edge::End("done".into())),
            _ => None,
        };
        batch.marks.extend(edge.map(|edge| Mark {
            subject: Subject::Gpu(0),
            probe: "hbm".into(),
            run: format!("run-{}", second / 600).into(),
            edge,
        }));
        self.push(Owner::Host, &batch);
    }

    fn second(&mut self, second: u64) {
        let began = BEGAN + second * 1000;
        for at in (began..began + 1000).step_by(self.plan.interval_ms as usize) {
            let step = (at - BEGAN) / self.plan.interval_ms;
            let batch = self.gpu_batch(at, step, &self.fast, 1500);
            self.busy.add(at, value(Metric::SmActive, step), 1.0);
            self.push(Owner::GpuFast, &batch);
        }
        let slow = self.gpu_batch(began, second, &self.slow, 3500);
        self.push(Owner::GpuSlow, &slow);
        (0..self.plan.engines).for_each(|i| self.scrape(began, second, i));
        self.processes(began, second);
        self.others(began, second);
        self.clock.set(Time(began + 999));
        let (log, store) = (&mut self.log, &self.store);
        let told = self.held.by(Owner::ChangeLog, || {
            let told = log.follow(&store.read(), Time(began));
            told.map_or(0, |batch| batch.events.len())
        });
        self.events += told;
        if (second * 1000).is_multiple_of(self.plan.frame_ms) {
            let program = &mut self.program;
            self.held.by(Owner::Screen, || program.frame().unwrap());
        }
    }

    /// Runs the plan; what was held at each mark, with the table on stdout.
    fn run(&mut self) -> Vec<[isize; 2]> {
        let mut marks = Vec::new();
        for minute in 0..self.plan.minutes {
            (minute * 60..minute * 60 + 60).for_each(|second| self.second(second));
            if (minute + 1).is_multiple_of(self.plan.mark_minutes) {
                let owners: Vec<_> = self.held.0.iter().map(|(owner, bytes)| format!("{owner:?} {bytes}")).collect();
                println!("minute {:5}  {:10} bytes: {}", minute + 1, self.held.all(), owners.join(", "));
                marks.push(self.held.parts());
            }
        }
        marks
    }

    /// Compares each minute that has left the full rate, and is still kept, with the independent sums.
    fn rollups_are_exact(&self) -> usize {
        let data = self.store.read();
        let last = BEGAN / 60_000 + self.plan.minutes - 1;
        let full = u64::from(self.plan.keep.full_ms / Retention::MINUTE_MS);
        let kept = u64::from(self.plan.keep.minutes).min(self.plan.minutes);
        let series = [
            (Subject::Gpu(0), Metric::SmActive, &self.busy),
            (Subject::Engine(0), Metric::GenerationTokens, &self.tokens),
        ];
        let mut compared = 0;
        for (subject, metric, sums) in series {
            for minute in last + 2 - kept..last - full {
                let Some(sum) = sums.0.get(&minute) else { continue };
                let window = Window { start: Time(minute * 60_000), end: Time((minute + 1) * 60_000) };
                let series = data.series(subject, metric).unwrap();
                assert_eq!(series.mean(window), Reading::Value(sum.total / sum.weight), "{metric:?}, minute {minute}");
                assert_eq!(series.extremes(window), Some((sum.least, sum.most)), "{metric:?}, minute {minute}");
                compared += 1;
            }
        }
        compared
    }
}

/// Runs a plan whose histories are full from the mark `full` on: what the store holds from then on is flat, to 1 %. The
/// diagnosis remembers its own past for an hour and its findings for a day, whatever the store keeps: it is flat, to 2 %, where
/// `judged` is that far on.
fn soak(plan: Plan, full: usize, judged: Option<usize>) -> Machine {
    let mut machine = Machine::new(plan);
    let marks = machine.run();
    for (part, from, parts) in [(0, Some(full), 100), (1, judged, 50)] {
        let Some(from) = from else { continue };
        let flat: Vec<_> = marks[from..].iter().map(|mark| mark[part]).collect();
        let (least, most) = (flat.iter().min().unwrap(), flat.iter().max().unwrap());
        assert!(flat.len() >= 3 && (most - least) * parts < *most, "held from mark {from} on: {flat:?}");
    }
    let judges = marks.iter().map(|mark| mark[1]).max().unwrap();
    assert!(judges < 12_000_000, "two timelines of eight engines: {judges} bytes");
    let compared = machine.rollups_are_exact();
    let stated = plan.keep.most_bytes(plan.interval_ms as u32, plan.gpus.into(), plan.engines.into());
    println!("{compared} minutes compared; {} findings began or ended; {stated} bytes are stated", machine.events);
    assert!(compared as u64 >= u64::from(plan.keep.minutes) / 2, "{compared}");
    assert!(machine.events > 0, "nothing was concluded");
    machine
}

/// The same histories, small: full within ten minutes.
const SMALL: Retention =
    Retention { full_ms: 120_000, max_points: 36_000, max_scrapes: 120, minutes: 8, process_bytes: 300_000 };

#[test]
fn what_is_kept_is_flat_and_exact_once_it_is_full() {
    let plan =
        Plan { keep: SMALL, gpus: 2, engines: 2, interval_ms: 500, minutes: 30, mark_minutes: 3, frame_ms: 10_000 };
    let machine = soak(plan, 4, None);
    assert!(machine.store.read().out_of_order() == 0);
}

#[test]
#[ignore = "a day takes minutes; see the head of this file"]
fn a_day_in_minutes() {
    let plan = Plan {
        keep: Retention::HOUR,
        gpus: 8,
        engines: 8,
        interval_ms: 250,
        minutes: 28 * 60,
        mark_minutes: 60,
        frame_ms: 10_000,
    };
    soak(plan, 25, Some(25));
}

/// The attack: twenty minutes at 100 ms with 8 GPUs and 4 engines. By owner, as a table.
#[test]
#[ignore = "prints a table for people"]
fn twenty_minutes_at_100_ms() {
    let plan = Plan {
        keep: Retention::HOUR,
        gpus: 8,
        engines: 4,
        interval_ms: 100,
        minutes: 20,
        mark_minutes: 2,
        frame_ms: 1_000,
    };
    Machine::new(plan).run();
}
