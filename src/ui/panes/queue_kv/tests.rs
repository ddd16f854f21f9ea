//! The queue and KV pane on a synthetic store: what a reader sees, as text.

use super::*;
use crate::app::View;
use crate::diagnosis::Timeline;
use crate::model::{Batch, FactKey, HistogramSample, ProcessSample, SourceId, SourceState, Time, Why};
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
        (Metric::RequestsCap, 256.0),
        (Metric::RequestsFinished, 20.0 * n),
        (Metric::RequestsFailed, 0.0),
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
    let context = Context { view: &view, theme: &theme, timeline: &Timeline::default(), focused: false };
    pane.prepare(&store.read(), &context, buf.area);
    pane.draw(buf.area, &mut buf, &context);
    let row = |y| (0..width).map(|x| buf[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (pane.title().to_owned(), (0..height).map(row).collect())
}

/// The same engine on GPU 0 at 500 W, with processes 7 and perhaps 50 on it.
fn with_energy(pids: &str, on_gpu: &[u32]) -> Store {
    let store = Store::new(Retention::HOUR);
    for i in 0..=10_u64 {
        let mut batch = scrape(i, &[]);
        batch.fact(Subject::Engine(0), FactKey::Url, "http://127.0.0.1:8000");
        batch.fact(Subject::Engine(0), FactKey::Pids, pids);
        batch.fact(Subject::Engine(0), FactKey::LoraRunning, "sql,chat");
        batch.push(Subject::Engine(0), Metric::LoraCap, 4.0);
        batch.push(Subject::Engine(0), Metric::LoraRunning, 2.0);
        batch.push(Subject::Engine(0), Metric::LoraWaiting, 0.0);
        store.push(&batch);
        let mut batch = Batch::new(SourceId::Nvml, Time(100_000 + i * 1000), 3500);
        batch.push(Subject::Gpu(0), Metric::Energy, 500.0 * i as f64);
        store.push(&batch);
        let mut batch = Batch::new(SourceId::Process, Time(100_000 + i * 1000), 3500);
        batch.processes = Some(on_gpu.iter().map(|&pid| process(pid)).collect());
        store.push(&batch);
    }
    store
}

fn process(pid: u32) -> ProcessSample {
    let none = Reading::Missing(Why::NotPermitted);
    let (user, command, gpus) = ("".into(), "".into(), vec![(0, Reading::Value(1e9))]);
    let (cpu_ms, rss, majflt, page_table) = (none, none, none, none);
    ProcessSample { pid, user, command, gpus, cpu_ms, rss, majflt, page_table, ..ProcessSample::default() }
}

fn holds(rows: &[String], row: &str) {
    assert!(rows.iter().any(|drawn| drawn == row), "no '{row}' in {rows:#?}");
}

#[test]
fn the_title_answers_who_waits_and_what_the_pool_is_for() {
    let (title, _) = drawn(&store(&[]), (100, 16), Theme::FULL);
    assert_eq!(
        title,
        "64 running, 40 waiting, drains in 2.00 s, 2.0 preemptions/s; KV 24 % held, ~1.2 % tail waste, ~51× over-provisioned"
    );
}

#[test]
fn every_figure_has_its_row() {
    let (_, rows) = drawn(&store(&[]), (100, 22), Theme::FULL);
    assert_eq!(rows[0], "█ 64 running of 256  ─ 40 waiting (38 for capacity, 2 deferred), drains in 2.00 s");
    assert!(rows.iter().any(|row| row.starts_with("preempt") && row.ends_with("max 2/s")), "{rows:#?}");
    holds(&rows, "4.08k generated tok/s  16.3k prompt tok/s  20 requests/s  over 10 s");
    assert!(rows.iter().any(|row| row.starts_with("KV     ██") && row.ends_with("24 %")), "{rows:#?}");
    holds(&rows, "█ live ~39.3k of 166k  ▒ tail waste ~1.2 % of held  · idle 76 %  (tail at most 2.4 %)");
    holds(&rows, "tok/J: its GPUs are on another host");
    holds(&rows, "high water 64 running −10 s  40 waiting −10 s");
    // Ten of the fifteen seconds of the axis were scraped.
    holds(&rows, "recomputed after preemption ~1.15k* tok/s");
    holds(&rows, "over-provision ~51×: max 32 768 tok, requests used P99 ~642* (600–1200), n 1000  fits 5.1 of max");
    holds(&rows, "prefix cache 12 %* of looked-up prompt tokens found");
}

/// 4076 generated and 16 320 prompt tokens a second at 500 W.
#[test]
fn tokens_per_joule_are_named_and_a_shared_gpu_makes_them_bounds() {
    let (_, rows) = drawn(&with_energy("7", &[7]), (100, 22), Theme::FULL);
    holds(&rows, "8.15 generated tok/J (0.12 J each)  40.8 tok/J with prompts  over 10 s  500 W on GPU 0");
    holds(&rows, "LoRA adapters at most 4 loaded  2 running (sql,chat)  0 waiting");
    let (_, rows) = drawn(&with_energy("7", &[7, 50]), (140, 22), Theme::FULL);
    let shared = "at least 8.15 generated tok/J (at most 0.12 J each)  at least 40.8 tok/J with prompts  over 10 s  500 W on GPU 0";
    holds(&rows, &format!("{shared}  shared with 1 other"));
    let (_, rows) = drawn(&with_energy("9", &[7]), (100, 22), Theme::FULL);
    assert!(rows.iter().any(|row| row == "tok/J: none of its processes holds memory on a GPU here"), "{rows:#?}");
}

#[test]
fn a_queue_that_does_not_drain_says_so() {
    let store = Store::new(Retention::HOUR);
    (0..=10).for_each(|i| {
        let mut batch = scrape(i, &[Metric::RequestsFinished]);
        batch.push(Subject::Engine(0), Metric::RequestsFinished, 5.0);
        store.push(&batch);
    });
    let (title, rows) = drawn(&store, (100, 16), Theme::FULL);
    assert!(title.starts_with("64 running, 40 waiting, does not drain: none finishes"), "{title}");
    assert!(rows[0].ends_with("does not drain: none finishes"), "{rows:#?}");
}

#[test]
fn a_narrow_pane_keeps_generated_tokens_with_their_unit() {
    let (_, rows) = drawn(&store(&[]), (38, 8), Theme::FULL);
    assert_eq!(rows[0], "█ 64 running of 256  ─ 40 waiting");
    assert_eq!(rows[6], "4.08k generated tok/s", "{rows:#?}");
}

#[test]
fn the_bar_shows_the_split() {
    let bar = |theme| {
        let (_, rows) = drawn(&store(&[]), (116, 16), theme);
        rows.into_iter().find(|row| row.starts_with("KV ")).unwrap()
    };
    let row = bar(Theme::FULL);
    let count = |c| row.chars().filter(|x| *x == c).count();
    // 100 columns: 24 held, of which waste takes at least one.
    assert_eq!((count('█'), count('▒'), count('·')), (23, 1, 76), "{row}");
    assert_eq!(bar(Theme::MONO), row, "told apart without colour");
}

#[test]
fn without_a_block_size_nothing_is_claimed_about_waste() {
    let (title, rows) = drawn(&store(&[Metric::KvBlockSize]), (100, 16), Theme::FULL);
    assert!(!title.contains("waste"), "{title}");
    assert!(rows.iter().any(|row| row == "█ live ~36.9k of 166k  · idle 76 %"), "{rows:#?}");
}

#[test]
fn what_is_missing_says_why() {
    let (title, rows) =
        drawn(&store(&[Metric::KvUsage, Metric::MaxModelLen, Metric::PrefixHits]), (100, 16), Theme::FULL);
    assert_eq!(title, "64 running, 40 waiting, drains in 2.00 s, 2.0 preemptions/s");
    assert!(rows.iter().any(|row| row == "KV cache: not exposed by this engine"), "{rows:#?}");
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

#[test]
fn an_engine_that_wants_a_key_and_one_number_that_is_lost_have_words_of_their_own() {
    let read_until_now = || {
        let store = Store::new(Retention::HOUR);
        (0..10).for_each(|i| store.push(&scrape(i, &[])));
        store
    };
    let lost = read_until_now();
    let mut batch = scrape(10, &[Metric::RequestsRunning]);
    batch.push(Subject::Engine(0), Metric::RequestsRunning, f64::NAN);
    lost.push(&batch);
    let (title, _) = drawn(&lost, (100, 22), Theme::FULL);
    assert_eq!(title, "queue: no number in the answer");
    let refused = read_until_now();
    let mut batch = Batch::new(SourceId::Engine(0), Time(110_000), 3500);
    batch.fact(Subject::Engine(0), FactKey::Url, "http://h:8000");
    batch.state = Some(SourceState::Unauthorized("present, needs a key (HTTP 401)".into()));
    refused.push(&batch);
    let (title, rows) = drawn(&refused, (100, 22), Theme::FULL);
    assert_eq!(title, "queue: present, needs a key (HTTP 401)");
    assert_eq!(rows[0], "█ running: no fresh scrape  ─ waiting: no fresh scrape");
    let never = Store::new(Retention::HOUR);
    never.push(&batch);
    let (title, _) = drawn(&never, (100, 22), Theme::FULL);
    assert_eq!(title, "queue: present, needs a key (HTTP 401)", "it is not known what it exposes");
}

/// Traffic that ended 4 s ago: tokens and requests are of the same ten seconds.
#[test]
fn rates_of_a_row_are_of_the_same_time() {
    let store = Store::new(Retention::HOUR);
    (0..=10).for_each(|i| {
        let mut batch = scrape(i.min(6), &[]);
        batch.at = Time(100_000 + i * 1000);
        store.push(&batch);
    });
    let (_, rows) = drawn(&store, (100, 22), Theme::FULL);
    holds(&rows, "2.45k generated tok/s  9.79k prompt tok/s  12 requests/s  over 10 s");
}

#[test]
fn a_rate_of_which_little_was_measured_is_marked_and_ends_with_the_engine() {
    let of = |failed: std::ops::RangeInclusive<u64>| {
        let store = Store::new(Retention::HOUR);
        (0..=10).for_each(|i| {
            let mut batch = scrape(i, &[]);
            if failed.contains(&i) {
                batch = Batch::new(SourceId::Engine(0), batch.at, 3500);
                batch.state = Some(SourceState::Failed("connection refused".into()));
            }
            store.push(&batch);
        });
        drawn(&store, (100, 22), Theme::FULL).1
    };
    // From second 3 to 7 nothing is known: 5 of 10 s are left. Second 5 alone takes 2 s.
    let marked = "4.08k* generated tok/s  16.3k* prompt tok/s  20* requests/s  over 10 s";
    holds(&of(3..=6), marked);
    holds(&of(5..=5), &marked.replace('*', ""));
    let down = of(10..=10);
    assert!(down.iter().all(|row| !row.contains("requests/s") && !row.contains("4.08k")), "{down:#?}");
    assert!(down.iter().any(|row| row.starts_with("tok/s: ")), "{down:#?}");
}

#[test]
fn a_usual_rate_stands_beside_one_that_differs() {
    let store = store(&[]);
    let mut pane = QueueKv::default();
    let view = View { span_ms: 15_000, ..View::new(Time(110_000)) };
    let area = Rect::new(0, 0, 100, 22);
    let context = Context { view: &view, theme: &Theme::FULL, timeline: &Timeline::default(), focused: false };
    pane.prepare(&store.read(), &context, area);
    pane.now = pane.now.map(|now| Now { generated_usual: Some(9_000.0), ..now });
    let mut buf = Buffer::empty(area);
    pane.draw(area, &mut buf, &context);
    let text: String = buf.content.iter().map(ratatui::buffer::Cell::symbol).collect();
    assert!(text.contains("4.08k generated tok/s (usual 9.00k)  16.3k prompt tok/s"), "{text}");
}
