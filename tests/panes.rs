//! Every registered pane: total for every size and every state of the data, inside its area, the same
//! each time; and what it looks like.

mod common;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use warptop::app::{App, Cost, Event, Origin, Seen, View};
use warptop::derive::throttle::REASONS;
use warptop::diagnosis::Timeline;
use warptop::engine::{self, Answers, Memory};
use warptop::model::ceiling::CeilingOrigin;
use warptop::model::{Batch, Edge, FactKey, Mark, Metric, Reading, SourceId, SourceState, Subject, Why};
use warptop::store::{Data, Retention, Store};
use warptop::ui::pane::{Context, Pane, PaneSpec};
use warptop::ui::panes::PANES;
use warptop::ui::screen::Screen;
use warptop::ui::theme::{Charset, Depth, Theme};

const SIZES: [(u16, u16); 8] = [(0, 0), (1, 1), (20, 5), (40, 10), (80, 24), (200, 60), (3, 40), (120, 2)];
const THEMES: [Theme; 4] = [
    Theme::FULL,
    Theme::MONO,
    Theme { depth: Depth::Mono, charset: Charset::Ascii },
    Theme { depth: Depth::Ansi16, charset: Charset::Unicode },
];

/// Views that differ in all that a pane may look at.
fn views() -> Vec<View> {
    let live = common::render::view();
    vec![
        live,
        View {
            live: false,
            end: common::END - 30_000,
            span_ms: 15_000,
            cursor: Some((3, 3)),
            of_measured: true,
            ..live
        },
        View { span_ms: View::SPANS[7], gpu: 200, engine: 200, cursor: Some((u16::MAX, u16::MAX)), ..live },
        View { end: warptop::model::Time(0), ..live },
    ]
}

/// Draws a pane between canaries; says what is wrong with it.
fn conform(
    spec: &PaneSpec,
    store: &Store,
    judged @ (view, _): (&View, &Timeline),
    theme: Theme,
    (width, height): (u16, u16),
) -> Result<(), String> {
    const MARGIN: u16 = 3;
    let area = Rect::new(MARGIN, MARGIN, width, height);
    let mut canary = Cell::new("¤");
    canary.set_style(Style::new().fg(Color::Magenta).bg(Color::Green));
    let blank =
        |area: Rect| Buffer::filled(Rect::new(0, 0, area.width + 2 * MARGIN, area.height + 2 * MARGIN), canary.clone());
    let at = || format!("{} at {width}×{height}, {theme:?}, {view:?}", spec.id);
    let once = |area: Rect, mut buf: Buffer| {
        for position in area.intersection(buf.area).positions() {
            buf[position] = Cell::default();
        }
        let drawn = catch_unwind(AssertUnwindSafe(|| {
            let title = common::render::draw_judged(spec, store, judged, theme, area, &mut buf);
            (title, buf)
        }));
        drawn.map_err(|_| format!("{} panics", at()))
    };
    let first = once(area, blank(area))?;
    for position in first.1.area.positions().filter(|p| !area.contains(*p)) {
        if first.1[position] != canary {
            return Err(format!("{} draws outside its area, at {position}", at()));
        }
    }
    if first != once(area, blank(area))? {
        return Err(format!("{} draws the same data in two ways", at()));
    }
    // A terminal that shrank between layout and drawing: the area sticks out of the buffer.
    let small = Rect::new(0, 0, width / 2 + MARGIN, height / 2 + MARGIN);
    once(area, Buffer::empty(small))?;
    once(Rect::new(u16::MAX - 5, u16::MAX - 5, width, height), Buffer::empty(small))?;
    Ok(())
}

#[test]
fn every_pane_is_total_and_stays_inside() {
    let stores = [
        common::empty(),
        common::missing(),
        common::one_point(),
        common::full(2),
        common::extremes(),
        common::stalled(),
        common::time_based(),
    ];
    for (store, view) in stores.iter().flat_map(|s| views().into_iter().map(move |v| (s, v))) {
        let timeline = common::render::judged(store, &view);
        for spec in PANES {
            for (theme, size) in THEMES.into_iter().flat_map(|t| SIZES.map(|s| (t, s))) {
                conform(spec, store, (&view, &timeline), theme, size).unwrap();
            }
        }
    }
}

#[test]
fn every_pane_describes_itself() {
    for spec in PANES {
        assert!(!spec.id.is_empty() && !spec.tab.is_empty() && spec.help.len() > 40, "{}", spec.id);
        assert!(spec.help.ends_with('.'), "{}: help is sentences", spec.id);
        assert_eq!(PANES.iter().filter(|p| p.id == spec.id).count(), 1, "{}", spec.id);
    }
}

#[test]
fn a_pane_says_something_about_every_state_of_the_data() {
    for spec in PANES {
        for store in [common::empty(), common::missing(), common::full(2), common::stalled()] {
            let area = Rect::new(0, 0, 80, 16);
            let mut buf = Buffer::empty(area);
            let title = common::render::draw(spec, &store, &common::render::view(), Theme::FULL, area, &mut buf);
            assert!(!title.is_empty(), "{} has no title", spec.id);
            let words = common::render::text(&buf).chars().filter(char::is_ascii_alphabetic).count();
            assert!(words > 5, "{} is silent:\n{}", spec.id, common::render::text(&buf));
        }
    }
}

#[test]
fn without_colour_and_unicode_only_ascii_is_drawn() {
    let theme = Theme { depth: Depth::Mono, charset: Charset::Ascii };
    for spec in PANES {
        let area = Rect::new(0, 0, 100, 20);
        let mut buf = Buffer::empty(area);
        common::render::draw(spec, &common::full(2), &common::render::view(), theme, area, &mut buf);
        // Only text may need the last step; what a pane draws itself is chosen by the charset.
        let units = "°…−–×µ·";
        for cell in &buf.content {
            assert!(
                cell.symbol().chars().all(|c| c.is_ascii() || units.contains(c)),
                "{}: {:?}",
                spec.id,
                cell.symbol()
            );
        }
        warptop::ui::text::to_ascii(&mut buf);
        for cell in &buf.content {
            assert!(cell.symbol().is_ascii(), "{}: {:?}\n{}", spec.id, cell.symbol(), common::render::text(&buf));
            assert!(cell.fg == Color::Reset && cell.bg == Color::Reset, "{}: colour without colour", spec.id);
        }
    }
}

#[test]
fn looks() {
    let store = common::full(2);
    for spec in PANES {
        for size @ (width, height) in [(38, 8), (78, 12), (118, 20)] {
            for (name, theme) in [("colour", Theme::FULL), ("mono", Theme::MONO)] {
                let name = format!("{}-{width}x{height}-{name}", spec.id);
                insta::assert_snapshot!(name, common::render::snapshot(spec, &store, theme, size));
            }
        }
    }
}

#[test]
fn looks_when_data_are_missing() {
    for spec in PANES {
        for (name, store) in
            [("empty", common::empty()), ("stalled", common::stalled()), ("time-based", common::time_based())]
        {
            let name = format!("{}-{name}", spec.id);
            insta::assert_snapshot!(name, common::render::snapshot(spec, &store, Theme::FULL, (78, 10)));
        }
    }
}

#[test]
fn looks_when_an_exporter_gives_the_activity() {
    let store = common::full(1);
    let mut batch = Batch::new(SourceId::Dcgm, common::END, Batch::FOREVER);
    batch.fact(Subject::Gpu(0), FactKey::ActivitySource, "dcgm");
    batch.fact(Subject::Gpu(0), FactKey::ActivityPeriod, "30 s");
    store.push(&batch);
    for spec in PANES.iter().filter(|spec| ["gpu_strip", "sm_dram"].contains(&spec.id)) {
        let name = format!("{}-dcgm", spec.id);
        insta::assert_snapshot!(name, common::render::snapshot(spec, &store, Theme::FULL, (118, 10)));
    }
}

/// The screen, in which panes are shaded: every pane on the time axis shows that a probe ran, and which.
#[test]
fn a_run_of_a_probe_is_marked_on_every_time_axis() {
    let store = common::full(1);
    for (ago, edge) in [(40_000, Edge::Start(60_000)), (20_000, Edge::End("done".into()))] {
        let mut batch = Batch::new(SourceId::Probe, common::END - ago, Batch::FOREVER);
        batch.marks.push(Mark { subject: Subject::Gpu(0), probe: "hbm".into(), run: "r".into(), edge });
        store.push(&batch);
    }
    let data = store.read();
    let mut on_time = Vec::new();
    for (focus, spec) in PANES.iter().enumerate() {
        let mut app = App::new(Origin::Live, common::END, PANES.len());
        (app.focus, app.zoomed) = (focus, true);
        app.update(Event::Tick(common::END, Seen::of(&data, false)));
        let area = Rect::new(0, 0, 118, 40);
        let (mut screen, mut buf) = (Screen::new(Theme::FULL, PANES), Buffer::empty(area));
        screen.prepare(&data, &app, area, Cost::default(), &[]);
        screen.draw(&mut buf, &app);
        let text = common::render::text(&buf);
        if text.contains("−60 s ─") {
            on_time.push(spec.id);
            assert!(text.contains('━') && text.contains("hbm"), "{}:\n{text}", spec.id);
        }
    }
    assert_eq!(on_time, ["sm_dram", "latency", "clocks", "queue_kv", "kv"]);
}

#[test]
fn looks_when_the_ceiling_of_the_memory_was_measured() {
    let known = |driver, days: u64| {
        let store = common::full(1);
        let at = common::END - 90_000;
        let mut batch = Batch::new(SourceId::Probe, at, Batch::FOREVER);
        batch.push(Subject::Gpu(0), Metric::DramCeiling, 4.381e12);
        let warptop = env!("CARGO_PKG_VERSION");
        let origin =
            CeilingOrigin { figure: "triad", at: at - days * 86_400_000 - 7_200_000, run: "r", driver, warptop };
        batch.fact(Subject::Gpu(0), FactKey::DramCeilingOrigin, &origin.to_string());
        store.push(&batch);
        store
    };
    let spec = PANES.iter().find(|spec| spec.id == "sm_dram").unwrap();
    let mut all = String::new();
    for (name, store, of_measured) in [
        ("offered", known("580.159.03", 0), false),
        ("measured", known("580.159.03", 0), true),
        ("old", known("570.86.15", 41), true),
        ("nothing measured", common::full(1), true),
    ] {
        for (width, height) in [(118, 8), (68, 8), (38, 8)] {
            let area = Rect::new(0, 0, width, height);
            let mut buf = Buffer::empty(area);
            let view = View { of_measured, ..common::render::view() };
            let title = common::render::draw(spec, &store, &view, Theme::FULL, area, &mut buf);
            let _ = writeln!(all, "{name}: {title}\n{}", common::render::text(&buf));
        }
    }
    insta::assert_snapshot!("sm_dram-ceiling", all);
}

/// Panes with a fault each: conformance must find it.
mod faulty {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    static DRAWN: AtomicU32 = AtomicU32::new(0);

    struct Faulty(fn(Rect, &mut Buffer));

    impl Pane for Faulty {
        fn prepare(&mut self, _: &Data, _: &Context<'_>, _: Rect) {}
        fn title(&self) -> &'static str {
            "faulty"
        }
        fn draw(&self, area: Rect, buf: &mut Buffer, _: &Context<'_>) {
            (self.0)(area, buf);
        }
    }

    const fn spec(id: &'static str, new: fn() -> Box<dyn Pane>) -> PaneSpec {
        PaneSpec { id, tab: "", help: "", new }
    }

    pub(super) const PANICS: PaneSpec =
        spec("panics", || Box::new(Faulty(|area, buf| buf[(area.right() + 100, 0)].reset())));
    pub(super) const OVERFLOWS: PaneSpec = spec("overflows", || {
        Box::new(Faulty(|area, buf| {
            if let Some(cell) = buf.cell_mut((area.right(), area.top())) {
                cell.set_symbol("x");
            }
        }))
    });
    pub(super) const WAVERS: PaneSpec = spec("wavers", || {
        Box::new(Faulty(|area, buf| {
            let n = DRAWN.fetch_add(1, Ordering::Relaxed);
            ratatui::widgets::Widget::render(n.to_string(), area, buf);
        }))
    });
    pub(super) const FAULTLESS: PaneSpec = spec("faultless", || Box::new(Faulty(|_, _| {})));
}

/// What an engine does not expose has words of its own, with the engine's name and what would help.
#[test]
fn no_figure_of_an_engine_is_just_missing() {
    let (mut engines, mut faults) = (BTreeSet::new(), Vec::new());
    for dir in ["assets/metrics", "assets/metrics/assembled"] {
        for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(dir)).unwrap() {
            let path = entry.unwrap().path();
            let Ok(text) = fs::read_to_string(&path) else { continue };
            let known = engine::fingerprints().find_map(|asked| Some((asked, engine::detect(asked, &text)?)));
            let Some((asked, adapter)) = known else { continue };
            let store = Store::new(Retention::HOUR);
            let mut memory = Memory::default();
            for ago in (0..20).rev() {
                let mut batch = Batch::new(SourceId::Engine(0), common::END - ago * 1000, 3500);
                batch.fact(Subject::Engine(0), FactKey::Kind, adapter.spec().id);
                batch.fact(Subject::Engine(0), FactKey::Name, &format!("{} :8000", adapter.spec().name));
                batch.state = Some(SourceState::Ok);
                adapter.translate(Answers::new(&[(asked, &text)]), 0, &mut memory, &mut batch);
                store.push(&batch);
            }
            let area = Rect::new(0, 0, 140, 40);
            for spec in PANES.iter().filter(|spec| ["latency", "queue_kv", "kv", "concurrency"].contains(&spec.id)) {
                let mut buf = Buffer::empty(area);
                let title = common::render::draw(spec, &store, &common::render::view(), Theme::FULL, area, &mut buf);
                let drawn: String = buf.content.iter().map(Cell::symbol).collect();
                let at = format!("{} of {}: {title}\n{drawn}", spec.id, path.display());
                let bare = ["n/a", "by this engine"].iter().any(|words| drawn.contains(words) || title.contains(words));
                faults.extend(bare.then_some(at));
            }
            engines.insert(adapter.spec().id);
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert_eq!(engines.len(), engine::ADAPTERS.len(), "{engines:?}");
}

#[test]
fn conformance_finds_faults() {
    let store = common::empty();
    let (view, timeline) = (common::render::view(), Timeline::default());
    let check = |spec| conform(spec, &store, (&view, &timeline), Theme::FULL, (20, 5));
    assert!(check(&faulty::PANICS).unwrap_err().contains("panics at 20×5"));
    assert!(check(&faulty::OVERFLOWS).unwrap_err().contains("outside its area"));
    assert!(check(&faulty::WAVERS).unwrap_err().contains("in two ways"));
    check(&faulty::FAULTLESS).unwrap();
}

/// A driver that did not answer for 40 of 60 s, and not for 5 s before the last: shares of the minute are of what was
/// measured and marked.
#[test]
fn what_was_hardly_measured_of_a_gpu_is_marked() {
    let (theme, diagnosis) = (Theme::FULL, Timeline::default());
    let seen = |id: &str, silent: Range<u64>| {
        let store = common::empty();
        for second in 0..=60_u64 {
            let at = common::END - 60_000 + second * 1000;
            let mut batch = Batch::new(SourceId::Nvml, at, 1500);
            batch.fact(Subject::Gpu(0), FactKey::Name, "NVIDIA H200");
            batch.state = Some(SourceState::Ok);
            let read = |value: f64| if silent.contains(&second) { Reading::Missing(Why::Failed) } else { value.into() };
            batch.push(Subject::Gpu(0), Metric::SmActive, read(81.0));
            batch.push(Subject::Gpu(0), Metric::DramActive, read(46.0));
            batch.push(Subject::Gpu(0), Metric::SmClock, read(1485.0));
            batch.push(Subject::Gpu(0), Metric::Temp, read(55.0));
            batch.push(Subject::Gpu(0), Metric::ThrottledPowerCap, read(1000.0 * second as f64));
            store.push(&batch);
        }
        let view = View { span_ms: 60_000, ..View::new(common::END) };
        let context = Context { view: &view, theme: &theme, timeline: &diagnosis, focused: false };
        let area = Rect::new(0, 0, 118, 20);
        let mut pane = (PANES.iter().find(|spec| spec.id == id).unwrap().new)();
        let mut buf = Buffer::empty(area);
        pane.prepare(&store.read(), &context, area);
        pane.draw(area, &mut buf, &context);
        let text: String = buf.content.iter().map(Cell::symbol).collect();
        (pane.title().to_owned(), text)
    };
    let (title, text) = seen("clocks", 10..50);
    assert_eq!(title, "power cap 100 %* of 19 s");
    assert!(text.contains("throttled in 19 s: P power cap 100 %*"), "{text}");
    assert!(seen("gpu_strip", 10..50).1.contains("power cap 100 %*"));
    assert_eq!(seen("gpu_strip", 10..50).0, "NVIDIA H200: SM 81 %, DRAM 46 %", "the last seconds were measured");
    assert_eq!(seen("gpu_strip", 56..60).0, "NVIDIA H200: SM 81 %*, DRAM 46 %*");
    assert!(seen("sm_dram", 56..60).0.starts_with("SM 81 %*, DRAM 46 %*"));
    for id in ["clocks", "gpu_strip", "sm_dram"] {
        let (title, text) = seen(id, 0..0);
        assert!(!title.contains('*') && !text.contains('*'), "{title}\n{text}");
    }
}

/// A DCGM exporter and older drivers tell the reasons of the moment and count no time.
#[test]
fn where_no_time_is_counted_the_reason_of_the_moment_is_named() {
    let store = Store::new(Retention::HOUR);
    let gpu = Subject::Gpu(0);
    for second in 0..60 {
        let mut batch = Batch::new(SourceId::Dcgm, common::END - 59_000 + second * 1000, 2500);
        batch.fact(gpu, FactKey::Name, "NVIDIA A100-SXM4-80GB");
        batch.push(gpu, Metric::SmActive, 93.0);
        batch.push(gpu, Metric::SmClock, 960.0);
        batch.push(gpu, Metric::ThrottleReasons, 4.0);
        for counter in REASONS.iter().filter_map(|reason| reason.counter) {
            batch.push(gpu, counter, Reading::Missing(Why::Unsupported));
        }
        store.push(&batch);
    }
    let drawn = |id: &str| {
        let pane = PANES.iter().find(|pane| pane.id == id).unwrap();
        common::render::snapshot(pane, &store, Theme::MONO, (200, 20))
    };
    let clocks = drawn("clocks");
    assert!(clocks.contains("not counted by this driver; power cap now"), "{clocks}");
    let gpus = drawn("gpu_strip");
    assert!(gpus.contains("power cap now"), "{gpus}");
}
