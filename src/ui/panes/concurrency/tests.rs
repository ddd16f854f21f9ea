//! The map on synthetic stores: what a reader sees, as text.

use super::*;
use crate::app::View;
use crate::diagnosis::Timeline;
use crate::model::{Batch, FactKey, HistogramSample, SourceId, SourceState, Time};
use crate::store::{Retention, Store};
use crate::ui::theme::{Charset, Depth};

const EDGES: [f64; 5] = [0.1, 0.2, 0.4, 0.8, 1.6];
const ASCII: Theme = Theme { depth: Depth::Mono, charset: Charset::Ascii };
/// 2026-11-29 14:07 UTC.
const START: Time = Time(1_795_961_220_000);

/// Minutes scraped each second: requests running, requests a second, and the bucket they fall into.
fn store(minutes: &[(f64, u32, usize)]) -> Store {
    let store = Store::new(Retention::HOUR);
    let mut totals = [0.0; 6];
    for second in 0..=minutes.len() as u64 * 60 {
        let minute = second.saturating_sub(1) / 60;
        let (running, n, bucket) = minutes[minute as usize];
        if second > 0 {
            totals[bucket] += f64::from(n);
        }
        store.push(&scrape(second, running, totals));
    }
    store
}

fn scrape(second: u64, running: f64, totals: [f64; 6]) -> Batch {
    let engine = Subject::Engine(0);
    let mut batch = Batch::new(SourceId::Engine(0), START + second * 1000, 3500);
    batch.fact(engine, FactKey::Url, "http://h:8000");
    batch.state = Some(SourceState::Ok);
    batch.push(engine, Metric::RequestsRunning, running);
    let cumulative = totals.iter().scan(0.0, |sum, n| {
        *sum += n;
        Some(*sum)
    });
    batch.histograms.push(HistogramSample {
        sets: 0,
        subject: engine,
        metric: Metric::Ttft,
        edges: EDGES.into(),
        cumulative: cumulative.collect(),
        sum: None,
    });
    batch
}

fn drawn(store: &Store, view: View, (width, height): (u16, u16), theme: Theme) -> (String, Vec<String>, Buffer) {
    let mut pane = Concurrency::default();
    let mut buf = Buffer::empty(Rect::new(0, 0, width, height));
    let context = Context { view: &view, theme: &theme, timeline: &Timeline::default(), focused: true };
    pane.prepare(&store.read(), &context, buf.area);
    pane.draw(buf.area, &mut buf, &context);
    let row = |y| (0..width).map(|x| buf[(x, y)].symbol()).collect();
    (pane.title().to_owned(), (0..height).map(row).collect(), buf)
}

fn view(store: &Store) -> View {
    View::new(store.read().newest())
}

/// A minute at 4 running with a P99, one at 16, one at 4, one with 60 requests at 1, one with 120 at 1.
fn some() -> Store {
    store(&[(4.0, 10, 1), (16.0, 10, 3), (4.0, 10, 2), (1.0, 1, 1), (1.0, 2, 1)])
}

#[test]
fn cells_say_what_they_are_without_colour() {
    let store = some();
    let (title, rows, _) = drawn(&store, view(&store), (90, 13), Theme::MONO);
    assert_eq!(title, "TTFT at 1 running: P95 195 ms (100 ms–200 ms), n 120 at 14:11 UTC");
    let line = |label: &str| rows.iter().find(|r| r.trim_start().starts_with(label)).unwrap().clone();
    assert!(line("3–4").contains("199ms"), "{rows:#?}");
    assert!(line("3–4").contains("≈"), "the second minute lies between two: {rows:#?}");
    assert!(line("9–16").contains("797ms"), "{rows:#?}");
    assert!(line("1┤").contains("╱ n59 ╱") && line("1┤").contains("195ms*"), "{rows:#?}");
    assert!(line("UTC").contains("14:07") && line("UTC").contains("now"), "{rows:#?}");
    assert!(rows[12].contains("* P95 (n 72–367)") && rows[12].contains("╱ n < 72"), "{rows:#?}");
}

#[test]
fn interpolated_and_measured_look_different_in_every_theme() {
    let store = some();
    for theme in [Theme::FULL, Theme::MONO, ASCII, Theme { depth: Depth::Ansi16, charset: Charset::Unicode }] {
        let (_, rows, buf) = drawn(&store, view(&store), (60, 13), theme);
        let y = rows.iter().position(|r| r.trim_start().starts_with("3–4")).unwrap() as u16;
        let sign = if theme.unicode() { '≈' } else { '~' };
        let row: Vec<char> = rows[usize::from(y)].chars().collect();
        let between = row.iter().position(|&c| c == sign).unwrap_or_else(|| panic!("{theme:?} {rows:#?}")) as u16;
        let measured = row.iter().position(|&c| c == '1').unwrap() as u16;
        assert_eq!(buf[(between, y)].bg, ratatui::style::Color::Reset, "{theme:?}: not filled");
        assert_ne!(buf[(between, y)].style(), buf[(measured, y)].style(), "{theme:?}");
    }
}

#[test]
fn the_cursor_reads_out_a_cell() {
    let store = some();
    let view = view(&store);
    let (columns, rows) = grid(Rect::new(0, 0, 42, 13));
    assert_eq!((columns, rows), (5, 8));
    let at = |x, up| {
        let cursor = Some((x, up));
        drawn(&store, View { cursor, ..view }, (120, 13), Theme::FULL).1[12].trim_end().to_owned()
    };
    // The pane is wider than five minutes.
    let first = grid(Rect::new(0, 0, 120, 13)).0 - 5;
    assert_eq!(at(first, 2), "14:07–14:08 UTC, 3–4 running: P99 199 ms (100 ms–200 ms), n 600 requests; mixed 0");
    assert_eq!(at(first + 1, 4), "14:08–14:09 UTC, 9–16 running: P99 797 ms (400 ms–800 ms), n 590 requests; mixed 10");
    assert!(at(first + 1, 2).contains("interpolated 282 ms, nothing observed"), "{}", at(first + 1, 2));
    assert!(at(first + 3, 0).contains("only 59 requests"), "{}", at(first + 3, 0));
    assert!(at(first + 4, 0).contains("P95 195 ms") && at(first + 4, 0).contains("too few for a P99"));
    assert_eq!(at(0, 0), "13:56–13:57 UTC, 1 running: not scraped");
    assert!(at(u16::MAX, u16::MAX).contains("> 64 running: nothing observed; mixed"), "{}", at(u16::MAX, u16::MAX));
}

#[test]
fn it_shows_the_minutes_up_to_the_views_end_whatever_its_span() {
    let store = some();
    let paused = View { live: false, end: START + 120_000, span_ms: View::SPANS[0], ..view(&store) };
    let (title, rows, _) = drawn(&store, paused, (60, 13), Theme::MONO);
    assert_eq!(title, "TTFT at 9–16 running: P99 797 ms (400 ms–800 ms), n 590 at 14:08 UTC");
    assert!(rows[11].trim_end().ends_with("14:07  14:08"), "{rows:#?}");
    let long = View { span_ms: View::SPANS[7], ..paused };
    assert_eq!(drawn(&store, long, (60, 13), Theme::MONO).1, rows);
}

#[test]
fn where_rows_have_no_room_those_with_the_most_running_stay() {
    let store = store(&[(1.0, 10, 1), (60.0, 10, 3), (4.0, 10, 2)]);
    let (_, rows, _) = drawn(&store, view(&store), (100, 8), Theme::MONO);
    assert!(rows[0].contains("33–64┤") && rows[4].contains("3–4┤"), "{rows:#?}");
    assert!(rows[7].contains("lower rows have no room"), "{rows:#?}");
}

#[test]
fn gaps_restarts_and_idle_minutes_are_marked() {
    let store = Store::new(Retention::HOUR);
    let mut n = 0.0;
    for second in 0..=180 {
        n = if second == 30 { 0.0 } else { n + f64::from(u8::from(second < 120)) };
        if second == 90 {
            let mut failed = Batch::new(SourceId::Engine(0), START + second * 1000, 3500);
            failed.state = Some(SourceState::Failed("refused".into()));
            store.push(&failed);
        } else {
            let running = if second < 120 { 2.0 } else { 0.0 };
            store.push(&scrape(second, running, [0.0, n, 0.0, 0.0, 0.0, 0.0]));
        }
    }
    let (title, rows, _) = drawn(&store, view(&store), (140, 13), Theme::MONO);
    assert_eq!(title, "TTFT by requests running: no cell has the 72 requests of a P95");
    let mixed = &rows[10];
    assert!(mixed.contains('R') && mixed.contains('!') && mixed.contains("idle"), "{rows:#?}");
    assert!(rows[12].contains("R restart") && rows[12].contains("! scrape missing"), "{rows:#?}");
}

#[test]
fn what_is_missing_says_why() {
    let nothing = Store::new(Retention::HOUR);
    let (title, rows, _) = drawn(&nothing, View::new(START), (60, 10), Theme::FULL);
    assert_eq!(title, "TTFT not scraped");
    assert!(rows.concat().contains("--engine http://HOST:PORT"), "{rows:#?}");
    let other = View { latency: Metric::Itl, ..view(&some()) };
    assert_eq!(drawn(&some(), other, (60, 10), Theme::FULL).0, "ITL: no histogram exposed");
    let unread = Store::new(Retention::HOUR);
    for second in 0..5 {
        let mut batch = scrape(second, 4.0, [0.0, 9.0 * second as f64, 0.0, 0.0, 0.0, 0.0]);
        batch.samples.clear();
        unread.push(&batch);
    }
    let title = drawn(&unread, view(&unread), (60, 10), Theme::FULL).0;
    assert_eq!(title, "TTFT: the number running was not read, so nothing can be placed");
}

#[test]
fn every_size_is_drawn() {
    let store = some();
    for width in 0..60 {
        for height in 0..20 {
            drawn(&store, View { cursor: Some((3, 3)), ..view(&store) }, (width, height), Theme::FULL);
        }
    }
}

/// The pane with a sweep on the board.
fn swept(store: &Store, view: View, endpoint: &str, levels: Vec<load::Level>) -> (String, Vec<String>) {
    let mut board = Board::default();
    let (run, levels) = ("20261130-sweep-7".into(), Arc::new(levels));
    board.sweep = Some(Sweep { run, endpoint: endpoint.into(), levels, knee: None, runs: true });
    let mut pane = Concurrency::default();
    let mut buf = Buffer::empty(Rect::new(0, 0, 90, 13));
    let context = Context { view: &view, theme: &Theme::MONO, timeline: &Timeline::default(), focused: true };
    // The engine's own map first: nothing of it may stay.
    pane.prepare(&store.read(), &context, buf.area);
    pane.probes(Some(&board));
    pane.prepare(&store.read(), &context, buf.area);
    pane.draw(buf.area, &mut buf, &context);
    let row = |y| (0..90).map(|x| buf[(x, y)].symbol()).collect();
    (pane.title().to_owned(), (0..13).map(row).collect())
}

/// `n` requests of 3 s in the third minute.
fn third_minute(users: u32, n: u32) -> load::Level {
    let ttft = vec![(load::buckets::bucket(3.0), n)];
    let (from_unix_ms, to_unix_ms) = (START.0 + 121_000, START.0 + 175_000);
    let slices = vec![load::level::Slice { from_unix_ms, to_unix_ms, ttft, ..Default::default() }];
    load::Level { load: load::level::Load::Users(users), slices, ..load::Level::default() }
}

#[test]
fn a_sweep_of_the_chosen_engine_fills_the_map_at_the_loads_that_it_set() {
    let store = some();
    let (title, rows) = swept(&store, view(&store), "http://h:8000/", vec![third_minute(64, 400)]);
    assert!(title.starts_with("client's TTFT at 33–64 running: P99 3."), "{title}");
    assert!(title.ends_with("n 400 at 14:09 UTC"), "{title}");
    assert!(rows[0].starts_with("client's samples of sweep 20261130-sweep-7"), "{rows:#?}");
    let line = |label: &str| rows.iter().find(|r| r.trim_start().starts_with(label)).unwrap().clone();
    assert!(line("33–64").contains('s') && !line("3–4").contains("199ms"), "{rows:#?}");
    assert!(rows[12].contains("· not measured"), "{rows:#?}");
}

#[test]
fn the_map_is_the_engines_where_the_sweep_says_nothing_of_it() {
    let store = some();
    let view = view(&store);
    let own = |endpoint, view, levels| swept(&store, view, endpoint, levels).0;
    let levels = || vec![third_minute(64, 400)];
    assert!(own("http://other:8000", view, levels()).starts_with("TTFT at 1 running"), "another engine");
    let before = View { end: START + 130_000, live: false, ..view };
    assert!(own("http://h:8000", before, levels()).starts_with("TTFT at"), "before its first samples were complete");
    assert!(own("http://h:8000", View { latency: Metric::QueueTime, ..view }, levels()).starts_with("queue time:"));
    assert!(own("http://h:8000", view, Vec::new()).starts_with("TTFT at 1 running"), "nothing measured yet");
}
