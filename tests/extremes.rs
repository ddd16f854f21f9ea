//! Numbers as large, small and odd as a server, a driver or a file may say, through everything that works with them: the
//! store, every derivation, the diagnosis, the snapshot, every widget, every pane and the whole screen.
//!
//! A bucket that ended at 1e308 s once froze the screen: one loop over an axis that had overflowed. So each test has a
//! limit of time for each case that is orders of magnitude above its need, and a thread that watches it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod common;

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use warptop::app::{App, Cost, Event, Origin, Seen, View};
use warptop::derive::latency::summary::Summary;
use warptop::derive::latency::{Grid, bucket_span};
use warptop::derive::quantile::quantile;
use warptop::derive::throttle::{Bands, Throttled};
use warptop::derive::{ceiling, concurrency, energy, exposed, kv, level, means, queue};
use warptop::diagnosis::{Slo, Timeline};
use warptop::export::check::check;
use warptop::export::snapshot::{Mode, snapshot};
use warptop::load::Level;
use warptop::model::metric::Domain;
use warptop::model::{
    Batch, FactKey, GpuProcess, HistogramSample, Kind, Metric, ProcessSample, Reading, SourceId, SourceState, Subject,
    Time,
};
use warptop::store::{Bin, Data, HistogramWindow, Retention, Store, Window};
use warptop::ui::panes::PANES;
use warptop::ui::screen::Screen;
use warptop::ui::theme::{Charset, Depth, Role, Theme};
use warptop::ui::units;
use warptop::ui::widgets::{self, Area, Axes, Band, Heatmap, Line, Plot, Scale, TimeEnd};

/// Numbers at which arithmetic turns over.
const EDGES: [f64; 22] = [
    0.0,
    -0.0,
    5e-324,
    -5e-324,
    f64::MIN_POSITIVE,
    1e-300,
    1e-45,
    1.0,
    -1.0,
    3.402_823_6e38,
    9_007_199_254_740_991.0,
    9_007_199_254_740_993.0,
    18_446_744_073_709_551_615.0,
    -9_223_372_036_854_775_808.0,
    1e300,
    1e308,
    -1e308,
    f64::MAX,
    f64::MIN,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
];
/// Moments: at both ends, around what 32 and 53 bits hold, today, the year 9999 and the year 300 000.
const MOMENTS: [u64; 11] = [
    0,
    1,
    4_294_967_295,
    4_294_967_297,
    common::END.0,
    253_402_300_800_000,
    9_404_968_665_600_000,
    9_007_199_254_740_993,
    9_223_372_036_854_775_808,
    u64::MAX - 1,
    u64::MAX,
];
/// Steps from one reading to the next, ms.
const STEPS: [i64; 9] = [0, 1, 250, 1_000, 60_000, -1_000, 4_294_967_296, 1_795_960_600_000, i64::MIN];

fn number() -> impl Strategy<Value = f64> {
    prop_oneof![4 => prop::sample::select(&EDGES[..]), 1 => any::<f64>(), 1 => 0.0..100.0]
}

fn moment() -> impl Strategy<Value = u64> {
    prop_oneof![4 => prop::sample::select(&MOMENTS[..]), 1 => any::<u64>()]
}

/// Longest that one case may take, of which each needs well below a second: the loop that once froze the screen takes
/// minutes.
const CASE: Duration = Duration::from_mins(1);

/// Runs `test` on so many cases in a thread of its own; that one of them does not end in time is a failure like another.
fn hold<S>(name: &'static str, cases: u32, strategy: S, test: impl Fn(S::Value) + Send + 'static)
where
    S: Strategy + Send + 'static,
{
    let (tell, told) = channel();
    let body = move || {
        let config = Config { cases, failure_persistence: None, max_shrink_iters: 300, ..Config::default() };
        let result = TestRunner::new(config).run(&strategy, |case| {
            drop(tell.send(None));
            test(case);
            Ok(())
        });
        drop(tell.send(Some(result.map_err(|error| error.to_string()))));
    };
    std::thread::Builder::new().stack_size(8 << 20).spawn(body).unwrap();
    loop {
        match told.recv_timeout(CASE) {
            Ok(None) => {}
            Ok(Some(result)) => return result.unwrap_or_else(|error| panic!("{name}: {error}")),
            Err(error) => panic!("{name}: a case does not end ({error})"),
        }
    }
}

/// What servers and drivers say, reading by reading.
#[derive(Clone, Debug)]
struct Said {
    start: u64,
    steps: Vec<i64>,
    values: Vec<f64>,
    edges: Vec<f64>,
    counts: Vec<f64>,
    sum: Option<f64>,
    valid_ms: u32,
}

fn said() -> impl Strategy<Value = Said> {
    let edges = prop_oneof![
        // As a server that means it would give them, but for where they lie.
        3 => prop::collection::vec(number(), 0..6).prop_map(|mut edges| {
            edges.retain(|edge| edge.is_finite());
            edges.sort_by(f64::total_cmp);
            edges.dedup();
            edges
        }),
        1 => prop::collection::vec(number(), 0..6),
        1 => Just(vec![1e308]),
    ];
    let steps = prop::collection::vec(prop_oneof![3 => Just(1_000), 1 => prop::sample::select(&STEPS[..])], 1..8);
    let counts = prop::collection::vec(prop_oneof![3 => 0.0..500.0, 1 => number()], 7);
    (moment(), steps, prop::collection::vec(number(), 1..6), edges, counts, prop::option::of(number()), any::<u32>())
        .prop_map(|(start, steps, values, edges, counts, sum, valid_ms)| Said {
            start,
            steps,
            values,
            edges,
            counts,
            sum,
            valid_ms,
        })
}

const SUBJECTS: [(SourceId, Subject, Domain); 4] = [
    (SourceId::Nvml, Subject::Gpu(0), Domain::Gpu),
    (SourceId::Engine(0), Subject::Engine(0), Domain::Engine),
    (SourceId::Host, Subject::Host, Domain::Host),
    (SourceId::App, Subject::App, Domain::App),
];

impl Said {
    /// The moment of the reading after these steps.
    fn at(&self, step: usize) -> Time {
        let at = self.steps[..step].iter().fold(self.start, |at, by| at.saturating_add_signed(*by));
        Time(at)
    }

    fn value(&self, i: usize) -> f64 {
        self.values[i % self.values.len()]
    }

    /// All of it in a store.
    fn store(&self) -> Store {
        let store = Store::new(Retention::HOUR);
        for step in 0..=self.steps.len() {
            let at = self.at(step);
            for (source, subject, domain) in SUBJECTS {
                store.push(&self.batch(step, source, (subject, domain), at));
            }
            let mut batch = Batch::new(SourceId::Process, at, self.valid_ms);
            let reading = |i| Reading::new(self.value(step + i));
            batch.processes = Some(vec![ProcessSample {
                pid: 7,
                gpus: vec![(0, reading(0))],
                cpu_ms: reading(1),
                rss: reading(2),
                majflt: reading(3),
                page_table: reading(4),
                ..ProcessSample::default()
            }]);
            store.push(&batch);
        }
        store
    }

    fn batch(&self, step: usize, source: SourceId, (subject, domain): (Subject, Domain), at: Time) -> Batch {
        let mut batch = Batch::new(source, at, self.valid_ms);
        batch.state = Some(SourceState::Ok);
        match subject {
            Subject::Gpu(_) => {
                batch.fact(subject, FactKey::Name, "NVIDIA H200");
                let (mem, share) = (Reading::new(self.value(step)), Reading::new(self.value(step + 1)));
                batch.gpu_processes = Some(vec![GpuProcess { gpu: 0, pid: 7, mem, share }]);
            }
            Subject::Engine(_) => {
                batch.fact(subject, FactKey::Url, "http://127.0.0.1:8000");
                batch.fact(subject, FactKey::Kind, "vllm");
                batch.fact(subject, FactKey::Pids, "7");
                batch.fact(subject, FactKey::KvLayout, ["paged", "slots", "unified"][step % 3]);
            }
            Subject::Host | Subject::App => {}
        }
        for (i, &metric) in Metric::ALL.iter().enumerate().filter(|(_, m)| m.domain() == domain) {
            if metric.kind() == Kind::Histogram {
                batch.histograms.push(self.histogram(step, subject, metric));
            } else {
                batch.push(subject, metric, self.value(step * 3 + i));
            }
        }
        batch
    }

    /// Grows from step to step, where it is one at all.
    fn histogram(&self, step: usize, subject: Subject, metric: Metric) -> HistogramSample {
        let mut all = 0.0;
        let cumulative = self.counts.iter().take(self.edges.len() + 1).map(|count| {
            all += count * step as f64;
            all
        });
        let cumulative = cumulative.collect();
        let sum = self.sum.map(|sum| sum * step as f64);
        HistogramSample { subject, metric, edges: self.edges.clone().into(), cumulative, sum, sets: 0 }
    }
}

/// The stretches of time that something is asked of.
fn windows(said: &Said) -> Vec<Window> {
    let end = said.at(said.steps.len());
    let mut windows: Vec<_> = View::SPANS.iter().map(|span| Window::last(end, *span)).collect();
    let ends = [Time(0), Time(said.start), end, end + 500, Time(u64::MAX)];
    windows.extend(ends.iter().flat_map(|start| ends.iter().map(|end| Window { start: *start, end: *end })));
    windows
}

fn is_number(reading: Reading) -> bool {
    reading.value().is_none_or(f64::is_finite)
}

/// Asks every derivation; whatever was said, what comes back is a number or a reason.
fn derive_all(data: &Data, window: Window) {
    let end = window.end;
    let mut scratch = HistogramWindow::default();
    for &metric in Metric::ALL {
        assert!(is_number(exposed::level(data, 0, metric, end)), "{metric:?}");
        assert!(is_number(exposed::rate(data, 0, metric, window)), "{metric:?} {window:?}");
        let mut bins = [Bin::default(); 60];
        for (_, subject, _) in SUBJECTS {
            data.fill(subject, metric, window, &mut bins);
            let all = bins.iter().flat_map(|bin| [bin.min(), bin.mean(), bin.max()]);
            assert!(all.flatten().all(f32::is_finite), "{metric:?} {window:?}");
            let Some(series) = data.series(subject, metric) else { continue };
            assert!(series.extremes(window).is_none_or(|(lo, hi)| lo.is_finite() && lo <= hi), "{metric:?}");
            assert!(series.growth(window).is_none_or(f64::is_finite), "{metric:?}");
            assert!(series.above_zero(window).share().is_none_or(|share| (0.0..=1.0).contains(&share)), "{metric:?}");
            series.peak(window);
        }
        data.histogram_window(Subject::Engine(0), metric, window, &mut scratch);
        for q in [1e-9, 0.5, 0.95, 0.99, 1.0] {
            let Some(got) = quantile(&scratch, q) else { continue };
            assert!(got.lo.is_finite() && got.value >= got.lo, "{got:?}");
            assert!(got.hi.map_or(got.value.is_finite(), |hi| hi.is_finite() && got.value <= hi), "{got:?}");
        }
        assert!(scratch.mean().is_none_or(f64::is_finite));
        Summary::of(data, 0, metric, window, &mut scratch);
    }
    latencies(data, window);
    let split = kv::kv(data, 0, window, &mut kv::Buffers::default());
    for reading in [split.usage_pct, split.held_tokens, split.tail_waste_pct, split.sharing_x, split.overprovision_x] {
        assert!(is_number(reading) && is_number(split.copied_bytes(reading)), "{split:?}");
    }
    let queue = queue::queue(data, 0, window);
    assert!(is_number(queue.finished_per_s) && is_number(queue.drain.seconds()), "{queue:?}");
    queue::lora(data, 0, end);
    if let Ok(energy) = energy::energy(data, 0, window) {
        assert!(
            [energy.generated_per_joule, energy.joules_per_generated, energy.all_per_joule].into_iter().all(is_number)
        );
    }
    for mean in means::MEANS {
        assert!(is_number(means::mean(data, 0, mean, window, &mut scratch)));
    }
    assert!(is_number(ceiling::share(data, 0, Reading::new(50.0), end)));
    Throttled::over(data, 0, window);
    Bands::default().fill(data, 0, window, 50);
    let mut level = Level { from_unix_ms: window.start.0, to_unix_ms: end.0, ..Level::default() };
    level::attach(data, 0, &[0], &mut level);
}

fn latencies(data: &Data, window: Window) {
    let (mut grid, mut map, mut pixels) = (Grid::default(), concurrency::Map::default(), Vec::new());
    for metric in View::LATENCIES {
        for cells in [0, 1, 60, 500] {
            grid.fill(data, Subject::Engine(0), metric, window, cells);
            assert!(grid.columns().len() <= usize::from(cells) + 2, "{window:?}");
            let axis = grid.axis();
            let most = grid.raster(axis, 80, &mut pixels);
            assert!(most.is_finite() && pixels.iter().all(|pixel| pixel.is_finite()), "{axis:?}");
            assert!(axis.ticks(200).take(1_000).count() < 100, "{axis:?}");
            // What was observed is to be seen, wherever it lies.
            let seen = grid.columns().iter().any(|column| column.n > 0);
            assert_eq!(seen && cells > 0, most > 0.0, "{axis:?} {:?}", grid.edges());
        }
        for bucket in 0..=grid.edges().len() {
            bucket_span(grid.edges(), bucket);
        }
        map.follow(data, Subject::Engine(0), metric, window.end, 30);
        assert!(map.columns().len() <= 30 && map.axis().ticks(200).take(1_000).count() < 100);
    }
}

#[test]
fn every_derivation_of_extreme_numbers_is_bounded_and_a_number() {
    hold("derivations", 40, said(), |said| {
        let store = said.store();
        for window in windows(&said) {
            derive_all(&store.read(), window);
        }
    });
}

#[test]
fn the_diagnosis_and_what_scripts_get_of_extreme_numbers_are_bounded() {
    hold("exports", 24, said(), |said| {
        let store = said.store();
        let data = store.read();
        for window in windows(&said).into_iter().step_by(5) {
            let mut timeline = Timeline::default();
            timeline.follow(&data, window.end);
            let reading = snapshot(&data, Mode::Replay, window, &Slo::default());
            // JSON has no infinity: what is none of a number would be lost silently.
            serde_json::to_string(&reading).unwrap();
        }
        check(&data, Window::last(said.at(said.steps.len()), 60_000), &Slo::default()).json().unwrap();
    });
}

const THEMES: [Theme; 3] = [Theme::FULL, Theme::MONO, Theme { depth: Depth::Mono, charset: Charset::Ascii }];

/// A size of a screen, of which few are usual.
fn size() -> impl Strategy<Value = (u16, u16)> {
    let sides = |most| prop_oneof![1 => 0..4_u16, 3 => 0..=most];
    prop_oneof![6 => (sides(500_u16), sides(200_u16)), 1 => Just((0, 0)), 1 => Just((500, 200))]
}

/// Fault: engine: a bucket of a histogram ends at 1e308, and other numbers at which arithmetic overflows
/// Seen: a frame, as always; what lies beyond an axis is drawn at its end
/// Works: the keys and all that is measured
/// Recovers: nothing is lost
#[test]
fn the_whole_screen_of_extreme_numbers_is_bounded() {
    let look =
        (size(), 0..PANES.len(), 0..View::SPANS.len(), prop::option::of((any::<u16>(), any::<u16>())), 0..3_usize);
    hold("screen", 32, (said(), look), |(said, ((width, height), focus, span, cursor, theme))| {
        let store = said.store();
        let data = store.read();
        for (zoomed, end) in [(false, said.at(said.steps.len())), (true, Time(said.start))] {
            let mut app = App::new(Origin::Live, end, PANES.len());
            (app.focus, app.zoomed) = (focus, zoomed);
            app.update(Event::Tick(end, Seen::of(&data, false)));
            app.view = View { end, span_ms: View::SPANS[span], cursor, ..app.view };
            let area = Rect::new(0, 0, width, height);
            let (mut screen, mut buf) = (Screen::new(THEMES[theme], PANES), Buffer::empty(area));
            screen.prepare(&data, &app, area, Cost::default(), &[]);
            screen.draw(&mut buf, &app);
        }
    });
}

/// One bin a value and gaps between some, as panes get them.
fn bins(values: &[f64], window: Window) -> Vec<Bin> {
    let store = Store::new(Retention::HOUR);
    for (i, value) in (0_u64..).zip(values) {
        let mut batch = Batch::new(SourceId::Nvml, Time(1_000_000 + i * 1_000), 1_500);
        batch.push(Subject::Gpu(0), Metric::SmActive, *value);
        store.push(&batch);
    }
    let mut bins = vec![Bin::default(); values.len() * 3];
    store.read().fill(Subject::Gpu(0), Metric::SmActive, window, &mut bins);
    bins
}

#[test]
fn every_widget_of_extreme_numbers_is_bounded() {
    let ends = (number(), number());
    let look = (size(), 0..3_usize, any::<u64>());
    let case = (prop::collection::vec(number(), 1..9), ends, look);
    hold("widgets", 128, case, |(values, (lo, hi), ((width, height), theme, ms))| {
        let theme = &THEMES[theme];
        let end = Time(1_000_000 + values.len() as u64 * 1_000);
        let bins = bins(&values, Window::last(end, values.len() as u64 * 1_000));
        let mut buf = Buffer::empty(Rect::new(0, 0, width.min(300), height.min(90)));
        let area = Rect::new(0, 0, width, height);
        let axes = Axes::with_strip(area);
        for scale in [Scale::fixed(lo, hi), Scale::zoom(hi, lo), Scale::PERCENT] {
            assert!([0.0, 0.5, 1.0].into_iter().all(|t| scale.at(t).is_finite()), "{scale:?}");
            assert!(values.iter().all(|v| scale.fraction(*v).is_none_or(|t| (0.0..=1.0).contains(&t))), "{scale:?}");
            let lines = [Line { bins: &bins, scale, style: Style::new(), envelope: true }];
            let areas = [Area { bins: &bins, scale, role: Role::Area, shade: 0.5 }];
            Plot { theme, areas: &areas, lines: &lines, grid: true }.draw(axes.plot, &mut buf);
            widgets::spark(&mut buf, area, theme, &bins, scale, Style::new());
            for metric in Metric::ALL.iter().step_by(7) {
                widgets::value_axis_left(&mut buf, &axes, theme, scale, metric.unit(), Style::new());
                widgets::value_axis_right(&mut buf, &axes, scale, metric.unit(), Style::new());
            }
        }
        for value in &values {
            widgets::meter(&mut buf, area, theme, Some(*value), Style::new());
            widgets::bands(&mut buf, area, theme, Style::new(), |_| Band::Held('P', *value as f32));
            let pixel = |_, _| Some(*value as f32);
            Heatmap { theme, area, pixel }.draw(&mut buf);
            words(*value);
        }
        for end in [TimeEnd::Now, TimeEnd::At(ms)] {
            widgets::time_axis(&mut buf, &axes, theme, ms, end);
        }
        assert!(units::Span(ms).to_string().len() < 40 && units::TimeOfDay(Time(ms)).to_string().len() == 8);
    });
}

/// A number in each unit: a few characters, however large, and never a panic.
fn words(value: f64) {
    let reading = Reading::new(value);
    let all = [
        units::Percent(reading).to_string(),
        units::FinePercent(reading).to_string(),
        units::Bytes(reading).to_string(),
        units::BytesPerSecond(reading).to_string(),
        units::Number(reading).to_string(),
        units::Seconds(reading).to_string(),
        units::Watts(reading).to_string(),
        units::Megahertz(reading).to_string(),
        units::Celsius(reading).to_string(),
        units::Whole(reading).to_string(),
    ];
    assert!(all.iter().all(|text| !text.is_empty() && text.chars().count() <= 24), "{all:?}");
}

/// The recording of such a server, drawn as a replay draws it: what is above the last edge is still seen.
#[test]
fn a_bucket_that_ends_at_1e308_is_drawn() {
    let store = Store::new(Retention::HOUR);
    for second in 0..30_u32 {
        let at = Time(common::END.0 - 30_000 + u64::from(second) * 1_000);
        let mut batch = Batch::new(SourceId::Engine(0), at, 3_500);
        batch.fact(Subject::Engine(0), FactKey::Url, "http://127.0.0.1:8000");
        batch.push(Subject::Engine(0), Metric::RequestsRunning, 1.0);
        batch.histograms.push(HistogramSample {
            subject: Subject::Engine(0),
            metric: Metric::Ttft,
            edges: Arc::from([1e308]),
            cumulative: vec![0.0, 10.0 * f64::from(second)],
            sum: Some(1.0),
            sets: 0,
        });
        store.push(&batch);
    }
    hold("latency", 1, Just(()), move |()| {
        let spec = PANES.iter().find(|spec| spec.id == "latency").unwrap();
        let area = Rect::new(0, 0, 118, 20);
        let mut buf = Buffer::empty(area);
        let view = View { end: common::END, ..common::render::view() };
        let title = common::render::draw(spec, &store, &view, Theme::FULL, area, &mut buf);
        let text = common::render::text(&buf);
        assert_eq!(title, "TTFT P95 > 3e304 h*, n 290 in 29 s", "{text}");
        assert!(text.contains('▀') || text.contains('▄'), "{text}");
    });
}
