//! The queue and KV pane on a synthetic store: what a reader sees, as text.

use super::*;
use crate::app::View;
use crate::model::{Batch, FactKey, HistogramSample, SourceId, SourceState, Time};
use crate::store::{Retention, Store};

/// One engine: 64 of 512 + 128 tokens run, 40 wait, 2 preemptions a second.
fn scrape(i: u64, without: &[Metric]) -> Batch {
    let subject = Subject::Engine(0);
    let mut batch = Batch::new(SourceId::Engine(0), Time(100_000 + i * 1000), 3500);
    batch.state = Some(SourceState::Ok);
    batch.fact(subject, FactKey::Url, "http://h:8000");
    let n = i as f64;
    let values = [
        (Metric::RequestsRunning, 64.0),
        (Metric::RequestsWaiting, 40.0),
        (Metric::WaitingCapacity, 38.0),
        (Metric::WaitingDeferred, 2.0),
        (Metric::KvUsage, 24.0),
        (Metric::KvPoolTokens, 165_936.0),
        (Metric::KvBlockSize, 16.0),
        (Metric::MaxModelLen, 32_768.0),
        (Metric::Preemptions, 2.0 * n),
        (Metric::PromptTokens, 16_320.0 * n),
        (Metric::GenerationTokens, 4076.0 * n),
        (Metric::PrefixQueries, 1000.0 * n),
        (Metric::PrefixHits, 120.0 * n),
    ];
    for (metric, value) in values.into_iter().filter(|(metric, _)| !without.contains(metric)) {
        batch.push(subject, metric, value);
    }
    for (metric, length) in [(Metric::PromptLen, 512.0), (Metric::GenerationLen, 128.0)] {
        let edges = [100.0, 200.0, 500.0, 1000.0];
        let mut cumulative: Vec<_> = edges.iter().map(|&e| if length <= e { 100.0 * n } else { 0.0 }).collect();
        cumulative.push(100.0 * n);
        let sum = Some(100.0 * n * length);
        batch.histograms.push(HistogramSample { sets: 0, subject, metric, edges: edges.into(), cumulative, sum });
    }
    batch
}

fn store(without: &[Metric]) -> Store {
    let store = Store::new(Retention::HOUR);
    (0..=10).for_each(|i| store.push(&scrape(i, without)));
    store
}

fn drawn(store: &Store, (width, height): (u16, u16), theme: Theme) -> (String, Vec<String>) {
    let mut pane = QueueKv::default();
    let mut buf = Buffer::empty(Rect::new(0, 0, width, height));
    let view = View { span_ms: 15_000, ..View::new(Time(110_000)) };
    let context = Context { view: &view, theme: &theme, focused: false };
    pane.prepare(&store.read(), &context, buf.area);
    pane.draw(buf.area, &mut buf, &context);
    let row = |y| (0..width).map(|x| buf[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (pane.title().to_owned(), (0..height).map(row).collect())
}

#[test]
fn the_title_answers_who_waits_and_what_the_pool_is_for() {
    let (title, _) = drawn(&store(&[]), (100, 16), Theme::FULL);
    assert_eq!(
        title,
        "64 running, 40 waiting, 2.0 preemptions/s; KV 24 % held, ~1.2 % tail waste, ~27× over-provisioned"
    );
}

#[test]
fn every_figure_has_its_row() {
    let (_, rows) = drawn(&store(&[]), (100, 16), Theme::FULL);
    assert_eq!(
        rows[0],
        "█ 64 running  ─ 40 waiting (38 for capacity, 2 deferred)   16.3k prompt  4.08k generated tok/s"
    );
    assert!(rows[10].starts_with("preempt") && rows[10].ends_with("max 2/s"), "{rows:#?}");
    assert!(rows[12].starts_with("KV     ██") && rows[12].ends_with("24 %"), "{rows:#?}");
    assert_eq!(rows[13], "█ live ~39.3k of 166k  ▒ tail waste ~1.2 % of held (at most 2.4 %)  · idle 76 %");
    assert_eq!(
        rows[14],
        "over-provision ~27×: max 32 768, requests used P99 ~1194 (600–1200), n 1000; pool fits 5.1 of max"
    );
    assert_eq!(rows[15], "prefix cache 12 % of looked-up prompt tokens found");
}

#[test]
fn the_bar_shows_the_split() {
    let (_, rows) = drawn(&store(&[]), (116, 16), Theme::FULL);
    let count = |c| rows[12].chars().filter(|x| *x == c).count();
    // 100 columns: 24 held, of which waste takes at least one.
    assert_eq!((count('█'), count('▒'), count('·')), (23, 1, 76), "{rows:#?}");
    let (_, mono) = drawn(&store(&[]), (116, 16), Theme::MONO);
    assert_eq!(mono[12], rows[12], "told apart without colour");
}

#[test]
fn without_a_block_size_nothing_is_claimed_about_waste() {
    let (title, rows) = drawn(&store(&[Metric::KvBlockSize]), (100, 16), Theme::FULL);
    assert!(!title.contains("waste"), "{title}");
    assert_eq!(rows[13], "█ live ~36.9k of 166k  · idle 76 %");
}

#[test]
fn what_is_missing_says_why() {
    let (title, rows) =
        drawn(&store(&[Metric::KvUsage, Metric::MaxModelLen, Metric::PrefixHits]), (100, 16), Theme::FULL);
    assert_eq!(title, "64 running, 40 waiting, 2.0 preemptions/s");
    assert_eq!(rows[12], "KV cache: not exposed by this engine");
    let (title, rows) = drawn(&Store::new(Retention::HOUR), (60, 9), Theme::FULL);
    assert_eq!(title, "queue: nothing read yet");
    assert!(rows.concat().contains("--engine http://HOST:PORT"), "{rows:#?}");
}

#[test]
fn preemptions_take_a_row_only_when_there_are_any() {
    let (title, rows) = drawn(&store(&[Metric::Preemptions]), (100, 16), Theme::FULL);
    assert!(!title.contains("preempt") && rows.iter().all(|r| !r.starts_with("preempt")), "{rows:#?}");
}

#[test]
fn every_size_is_drawn() {
    for width in 0..60 {
        for height in 0..18 {
            drawn(&store(&[]), (width, height), Theme::MONO);
        }
    }
}
