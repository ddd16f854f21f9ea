//! The latency pane on synthetic stores: what a reader sees, as text.

use super::*;
use crate::app::View;
use crate::diagnosis::Timeline;
use crate::model::{Batch, FactKey, HistogramSample, SourceId, SourceState, Time};
use crate::store::{Retention, Store};
use crate::ui::theme::{Charset, Depth};

const EDGES: [f64; 6] = [0.01, 0.1, 0.25, 0.5, 1.0, 2.5];
const ASCII: Theme = Theme { depth: Depth::Mono, charset: Charset::Ascii };

/// A scrape a second from 100 s on; each adds the given requests to the buckets. `None` failed.
fn store(scrapes: &[Option<[u32; 7]>]) -> Store {
    let store = Store::new(Retention::HOUR);
    let mut totals = [0; 7];
    for (i, scrape) in scrapes.iter().enumerate() {
        let mut batch = Batch::new(SourceId::Engine(0), Time(100_000 + i as u64 * 1000), 3500);
        batch.fact(Subject::Engine(0), FactKey::Url, "http://h:8000");
        batch.state = Some(SourceState::Failed("connection refused".into()));
        if let Some(more) = scrape {
            totals.iter_mut().zip(more).for_each(|(total, n)| *total += n);
            let cumulative = totals.iter().scan(0, |sum, n| {
                *sum += n;
                Some(f64::from(*sum))
            });
            batch.state = Some(SourceState::Ok);
            batch.histograms.push(HistogramSample {
                sets: 0,
                subject: Subject::Engine(0),
                metric: Metric::Ttft,
                edges: EDGES.into(),
                cumulative: cumulative.collect(),
                sum: None,
            });
        }
        store.push(&batch);
    }
    store
}

/// A view of the last `seconds` up to the last scrape.
fn view(store: &Store, seconds: u64) -> View {
    View { span_ms: seconds * 1000, ..View::new(store.read().newest()) }
}

fn drawn(store: &Store, view: View, (width, height): (u16, u16), theme: Theme) -> (String, Vec<String>) {
    let mut pane = Latency::default();
    let mut buf = Buffer::empty(Rect::new(0, 0, width, height));
    let context = Context { view: &view, theme: &theme, timeline: &Timeline::default(), focused: true };
    pane.prepare(&store.read(), &context, buf.area);
    pane.draw(buf.area, &mut buf, &context);
    let row = |y| (0..width).map(|x| buf[(x, y)].symbol()).collect();
    (pane.title().to_owned(), (0..height).map(row).collect())
}

/// Ten seconds of `n` requests in 100–250 ms each.
fn steady(n: u32) -> Store {
    let mut scrapes = vec![Some([0; 7])];
    scrapes.resize(11, Some([0, 0, n, 0, 0, 0, 0]));
    store(&scrapes)
}

#[test]
fn the_title_gives_the_quantile_that_n_allows_with_its_bounds() {
    let title = |n| drawn(&steady(n), view(&steady(n), 10), (70, 12), Theme::FULL).0;
    assert_eq!(title(40), "TTFT P99 248 ms (100 ms–250 ms), n 400 in 10 s");
    assert_eq!(title(36), "TTFT P95 242 ms (100 ms–250 ms), n 360 in 10 s");
    assert_eq!(title(5), "TTFT P50 175 ms (100 ms–250 ms), n 50 in 10 s");
    assert_eq!(title(0), "TTFT: no traffic in 10 s");
}

#[test]
fn a_window_longer_than_its_data_says_how_long_they_are() {
    let title = drawn(&steady(40), view(&steady(40), 60), (70, 12), Theme::FULL).0;
    assert_eq!(title, "TTFT P99 248 ms (100 ms–250 ms)*, n 400 in 10 s");
}

#[test]
fn a_title_says_whose_requests_it_is_of() {
    let title = |after: u32| {
        let store = steady(40);
        for second in 0..=6_u32 {
            let mut batch = Batch::new(SourceId::Engine(0), Time(111_000 + u64::from(second) * 1000), 3500);
            batch.breaks = second == 0;
            batch.push(Subject::Engine(0), Metric::RequestsFinished, f64::from(after * second));
            let n = f64::from(after * second);
            let (edges, cumulative) = (EDGES.into(), vec![0.0, n, n, n, n, n, n]);
            let (subject, metric) = (Subject::Engine(0), Metric::Ttft);
            batch.histograms.push(HistogramSample { sets: 0, subject, metric, edges, cumulative, sum: None });
            store.push(&batch);
        }
        drawn(&store, view(&store, 17), (90, 12), Theme::FULL).0
    };
    assert_eq!(title(61), "TTFT P99 247 ms (100 ms–250 ms), n 766 in 17 s across a restart, with gaps");
    assert_eq!(title(62), "TTFT P99 99.3 ms (10.0 ms–100 ms)*, n 372 in 6 s since the restart");
}

#[test]
fn outside_the_edges_only_the_edge_is_claimed() {
    let above = store(&[Some([0; 7]), Some([0, 0, 0, 0, 0, 0, 400])]);
    let (title, rows) = drawn(&above, view(&above, 10), (60, 12), Theme::MONO);
    assert_eq!(title, "TTFT P99 > 2.50 s*, n 400 in 1 s");
    assert!(rows.iter().any(|r| r.starts_with(" >2.5s┤")), "{rows:#?}");
    let below = store(&[Some([0; 7]), Some([400, 0, 0, 0, 0, 0, 0])]);
    let (title, rows) = drawn(&below, view(&below, 10), (60, 12), Theme::MONO);
    assert_eq!(title, "TTFT P99 < 10.0 ms*, n 400 in 1 s");
    assert!(rows.iter().any(|r| r.starts_with(" <10ms┤")), "{rows:#?}");
}

#[test]
fn no_traffic_and_not_scraped_look_different_and_are_explained() {
    let traffic = Some([0, 0, 9, 0, 0, 0, 0]);
    let quiet = Some([0; 7]);
    let store = store(&[quiet, traffic, quiet, quiet, None, None, traffic, traffic]);
    let (_, rows) = drawn(&store, view(&store, 7), (23, 8), Theme::MONO);
    let column = |x: usize| rows[..5].iter().filter_map(|row| row.chars().nth(x)).collect::<String>();
    let columns: Vec<_> = (7..23).map(column).collect();
    let dotted = columns.iter().filter(|c| c.ends_with('·')).count();
    let hatched = columns.iter().filter(|c| c.contains('╱')).count();
    assert!(dotted >= 4 && hatched >= 4, "{rows:#?}");
    assert!(columns.iter().all(|c| !(c.contains('·') && c.contains('╱'))), "{rows:#?}");
    let (_, wide) = drawn(&store, view(&store, 7), (110, 8), Theme::MONO);
    assert!(wide[7].contains("· no traffic") && wide[7].contains("╱ not scraped"), "{wide:#?}");
}

#[test]
fn quantiles_are_marked_with_their_certain_range() {
    let (_, rows) = drawn(&steady(400), view(&steady(400), 10), (110, 14), Theme::MONO);
    let all = rows.concat();
    assert!(all.contains('━') && all.contains('│') && all.contains("P99") && all.contains("P50"), "{rows:#?}");
    let few = drawn(&steady(40), view(&steady(40), 10), (110, 14), Theme::MONO).1;
    assert!(!few.concat().contains('━'), "40 requests a column are no P99: {few:#?}");
}

#[test]
fn the_cursor_reads_out_a_cell() {
    let store = store(&[Some([0; 7]), Some([0, 0, 9, 3, 0, 0, 0]), Some([0; 7])]);
    let mut view = view(&store, 2);
    let at = |view: View| drawn(&store, view, (90, 14), Theme::FULL).1[13].clone();
    view.cursor = Some((0, 0));
    assert!(at(view).starts_with("−2 s to −1 s"), "{}", at(view));
    let rows: Vec<_> = (0..14).map(|row| at(View { cursor: Some((0, row)), ..view })).collect();
    assert!(rows.iter().any(|r| r.contains("100 ms–250 ms: 9 of 12 requests, 75 %")), "{rows:#?}");
    assert!(rows.iter().any(|r| r.contains("250 ms–500 ms: 3 of 12 requests, 25 %")), "{rows:#?}");
    view.cursor = Some((u16::MAX, u16::MAX));
    assert!(at(view).contains("scraped, no traffic"), "{}", at(view));
}

#[test]
fn a_restart_is_marked() {
    let store = Store::new(Retention::HOUR);
    for (i, n) in [50.0, 60.0, 2.0, 4.0].into_iter().enumerate() {
        let mut batch = Batch::new(SourceId::Engine(0), Time(100_000 + i as u64 * 1000), 3500);
        batch.fact(Subject::Engine(0), FactKey::Url, "http://h:8000");
        batch.histograms.push(HistogramSample {
            sets: 0,
            subject: Subject::Engine(0),
            metric: Metric::Ttft,
            edges: [0.5].into(),
            cumulative: vec![n, n],
            sum: None,
        });
        store.push(&batch);
    }
    let (title, rows) = drawn(&store, view(&store, 3), (70, 10), Theme::FULL);
    assert!(rows[1].contains('R') && rows[9].contains("R restart"), "{rows:#?}");
    assert!(title.ends_with("with gaps"), "{title}");
}

#[test]
fn what_is_missing_says_why() {
    let nothing = Store::new(Retention::HOUR);
    let (_, rows) = drawn(&nothing, View::new(Time(5)), (60, 10), Theme::FULL);
    assert!(rows.concat().contains("--engine http://HOST:PORT"), "{rows:#?}");
    let down = store(&[None]);
    let (title, rows) = drawn(&down, view(&down, 60), (60, 10), Theme::FULL);
    assert_eq!(title, "TTFT not scraped");
    assert!(rows.concat().contains("connection refused"), "{rows:#?}");
    let other = View { latency: Metric::Itl, ..view(&steady(1), 60) };
    let (title, rows) = drawn(&steady(1), other, (60, 10), Theme::FULL);
    assert_eq!(title, "ITL: this engine does not expose it");
    assert!(rows.concat().contains("ITL: not exposed by this engine"), "{rows:#?}");
}

#[test]
fn ascii_terminals_get_marks_of_their_own() {
    let (_, rows) = drawn(&steady(400), view(&steady(400), 10), (110, 14), ASCII);
    let plot = rows[2..12].concat();
    assert!(plot.contains('=') && plot.contains('-') && plot.contains('#') && plot.is_ascii(), "{rows:#?}");
}

#[test]
fn every_size_is_drawn() {
    for width in 0..50 {
        for height in 0..16 {
            drawn(&steady(40), View { cursor: Some((3, 3)), ..view(&steady(40), 10) }, (width, height), Theme::FULL);
        }
    }
}

/// A scrape a second for ten seconds, each filled with what it holds.
fn scraped(fill: impl Fn(f64, &mut Batch)) -> Store {
    let store = Store::new(Retention::HOUR);
    for second in 0..=10_u32 {
        let mut batch = Batch::new(SourceId::Engine(0), Time(100_000 + u64::from(second) * 1000), 3500);
        batch.fact(Subject::Engine(0), FactKey::Url, "http://h:8000");
        batch.fact(Subject::Engine(0), FactKey::Kind, "vllm");
        batch.state = Some(SourceState::Ok);
        fill(f64::from(second), &mut batch);
        store.push(&batch);
    }
    store
}

fn histogram(metric: Metric, cumulative: Vec<f64>, sum: f64) -> HistogramSample {
    HistogramSample { sets: 0, subject: Subject::Engine(0), metric, edges: EDGES.into(), cumulative, sum: Some(sum) }
}

#[test]
fn with_room_all_latencies_are_listed_with_their_bounds() {
    let store = scraped(|s, batch| {
        batch.histograms.push(histogram(
            Metric::Ttft,
            [0.0, 0.0, 40.0, 40.0, 40.0, 40.0, 40.0].map(|n| n * s).into(),
            8.0 * s,
        ));
        batch.histograms.push(histogram(Metric::Itl, [900.0; 7].map(|n| n * s).into(), 4.5 * s));
        batch.histograms.push(histogram(
            Metric::E2e,
            [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 10.0].map(|n| n * s).into(),
            90.0 * s,
        ));
        batch.push(Subject::Engine(0), Metric::QueueSum, s);
        batch.push(Subject::Engine(0), Metric::RequestsFinished, 10.0 * s);
    });
    let (_, rows) = drawn(&store, view(&store, 10), (78, 20), Theme::FULL);
    let line =
        |name: &str| rows[10..].iter().find(|r| r.starts_with(name)).unwrap_or_else(|| panic!("{name} {rows:#?}"));
    assert!(line("TTFT").contains("   400   200ms  ") && line("TTFT").contains(" 100ms–250ms"), "{rows:#?}");
    assert!(line("ITL").contains("  9000   5.0ms  <10ms"), "{rows:#?}");
    assert!(line("E2E").contains(">2.50s ≤") && line("E2E").contains("n < 368"), "{rows:#?}");
    assert!(line("queue").contains("mean 100 ms of 100 requests; no histogram exposed"));
    assert!(line("TPOT").contains("not exposed by vLLM"), "{rows:#?}");
    assert!(rows.concat().contains("P50 certainly in  P95 certainly in  P99 certainly in"), "{rows:#?}");
}

#[test]
fn a_quantile_outside_the_edges_names_the_flag_for_finer_buckets() {
    let store = scraped(|s, batch| batch.histograms.push(histogram(Metric::Itl, vec![900.0 * s; 7], 4.5 * s)));
    let view = View { latency: Metric::Itl, ..view(&store, 10) };
    let (title, rows) = drawn(&store, view, (100, 19), Theme::FULL);
    assert_eq!(title, "ITL P99 < 10.0 ms, n 9000 in 10 s");
    assert!(rows[18].contains("--custom-histogram-buckets '{\"inter_token_latency\":[…]}'"), "{rows:#?}");
    assert!(rows[0].starts_with("inter-token latency: each gap between output events, requests pooled"));
    let inside = drawn(&steady(40), self::view(&steady(40), 10), (100, 19), Theme::FULL).1;
    assert!(!inside[18].contains("buckets"), "{inside:#?}");
}

#[test]
fn the_quantiles_that_are_not_in_the_title_stand_below_it() {
    let (_, rows) = drawn(&steady(40), view(&steady(40), 10), (80, 13), Theme::FULL);
    assert!(rows[1].contains("P50 175 ms (100 ms–250 ms)  P95 ") && !rows[1].contains("P99"), "{rows:#?}");
    let (title, rows) = drawn(&steady(36), view(&steady(36), 10), (80, 13), Theme::FULL);
    assert!(title.contains("P95") && !rows[1].contains("P95"), "{title} {rows:#?}");
}

#[test]
fn without_a_histogram_there_is_a_mean_and_no_quantile() {
    let store = scraped(|s, batch| {
        batch.push(Subject::Engine(0), Metric::E2eSum, 0.96 * s);
        batch.push(Subject::Engine(0), Metric::RequestsFinished, 1.2 * s);
    });
    let view = View { latency: Metric::E2e, ..view(&store, 10) };
    let (title, rows) = drawn(&store, view, (74, 10), Theme::FULL);
    assert_eq!(title, "E2E: a mean, no histogram");
    let words = rows.concat().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("mean only, no histogram exposed: E2E 800 ms mean of 12 requests in 10 s."), "{words}");
    let other = drawn(&store, View { latency: Metric::Ttft, ..view }, (74, 10), Theme::FULL).1.concat();
    assert!(other.contains("TTFT: not exposed by vLLM") && other.contains("m shows another"), "{other}");
}

#[test]
fn the_legend_has_no_fractions_of_a_request() {
    for n in [1, 3, 8, 20, 50, 400] {
        let (_, rows) = drawn(&steady(n), view(&steady(n), 10), (110, 14), Theme::MONO);
        let legend = rows[13].split("a cell").next().unwrap();
        assert!(!legend.contains("0.") && !legend.contains(".5"), "{n}: {legend}");
    }
}
