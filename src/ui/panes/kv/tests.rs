//! The pane of KV memory on synthetic stores: what a reader sees, as text.

use super::*;
use crate::app::View;
use crate::diagnosis::Timeline;
use crate::model::{Batch, SourceId, SourceState, Time};
use crate::store::{Retention, Store};

fn store(kind: &str, facts: &[(FactKey, &str)], values: &[(Metric, f64)]) -> Store {
    let store = Store::new(Retention::HOUR);
    let subject = Subject::Engine(0);
    for i in 0..=10_u64 {
        let mut batch = Batch::new(SourceId::Engine(0), Time(100_000 + i * 1000), 3500);
        batch.state = Some(SourceState::Ok);
        batch.fact(subject, FactKey::Url, "http://h:8000");
        batch.fact(subject, FactKey::Kind, kind);
        for (key, text) in facts {
            batch.fact(subject, *key, text);
        }
        for (metric, value) in values {
            batch.push(subject, *metric, *value);
        }
        store.push(&batch);
    }
    store
}

/// 64 requests in blocks of 16, as vLLM tells it.
fn paged() -> Store {
    store(
        "vllm",
        &[(FactKey::KvBytesSource, "start-up log")],
        &[
            (Metric::RequestsRunning, 64.0),
            (Metric::KvUsage, 24.0),
            (Metric::KvPoolTokens, 165_936.0),
            (Metric::KvBlockSize, 16.0),
            (Metric::MaxModelLen, 32_768.0),
            (Metric::KvBytesPerToken, 131_072.0),
            (Metric::Preemptions, 0.0),
        ],
    )
}

/// Example (b): four slots, three busy.
fn slots() -> Store {
    store(
        "llamacpp",
        &[(FactKey::KvLayout, "slots")],
        &[
            (Metric::RequestsRunning, 3.0),
            (Metric::RequestsCap, 4.0),
            (Metric::KvPoolTokens, 32_768.0),
            (Metric::KvLiveTokens, 8000.0),
            (Metric::KvCachedTokens, 192.0),
            (Metric::MaxModelLen, 8192.0),
            (Metric::KvBytesPerToken, 131_072.0),
        ],
    )
}

fn drawn(store: &Store, size: (u16, u16), theme: Theme) -> (String, Vec<String>) {
    drawn_at(store, &View { span_ms: 15_000, ..View::new(Time(110_000)) }, size, theme)
}

fn drawn_at(store: &Store, view: &View, (width, height): (u16, u16), theme: Theme) -> (String, Vec<String>) {
    let mut pane = KvMemory::default();
    let mut buf = Buffer::empty(Rect::new(0, 0, width, height));
    let context = Context { view, theme: &theme, timeline: &Timeline::default(), focused: false };
    pane.prepare(&store.read(), &context, buf.area);
    pane.draw(buf.area, &mut buf, &context);
    let row = |y| (0..width).map(|x| buf[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (pane.title().to_owned(), (0..height).map(row).collect())
}

#[test]
fn a_paged_pool_is_split_and_says_what_is_estimated() {
    let (title, rows) = drawn(&paged(), (90, 13), Theme::FULL);
    assert_eq!(title, "24 % held, 4.86 GiB of 20.3 GiB; ~1.2 % of it empty tails");
    assert!(rows[0].starts_with("pool   ██"), "{rows:#?}");
    assert_eq!(rows[1], "█ live             ~39.3k   24 %  4.80 GiB  estimate");
    assert_eq!(rows[2], "▒ tail               ~480  0.3 %  60.0 MiB  estimate, ~1.2 % of held (at most 2.4 %)");
    assert_eq!(rows[3], "· cached or free     126k   76 %  15.4 GiB  exact");
    assert_eq!(rows[4], "max context 32 768 tok; lengths of requests are not exposed  fits 5.1 of max");
    assert!(rows[5].starts_with("prefix cache not exposed by vLLM"), "{rows:#?}");
    assert_eq!(rows[6], "bytes a token: 128 KiB from the start-up log");
    assert_eq!(rows[7], "not exposed by vLLM: reserved, cached apart from free, copies");
    assert!(rows[8].starts_with("~ live and tail: the last block of a request is half empty"), "{rows:#?}");
    assert!(rows[9].contains("vllm#57336"), "{rows:#?}");
}

#[test]
fn blocks_longer_than_prompts_explain_a_cache_that_finds_nothing() {
    let counted = [(Metric::PrefixQueries, 1000.0), (Metric::PrefixHits, 0.0), (Metric::KvBlockSize, 784.0)];
    let store =
        store("vllm", &[], &[&counted[..], &[(Metric::KvUsage, 24.0), (Metric::RequestsRunning, 1.0)]].concat());
    let mut batch = Batch::new(SourceId::Engine(0), Time(110_500), 3500);
    batch.push(Subject::Engine(0), Metric::PrefixQueries, 5000.0);
    batch.push(Subject::Engine(0), Metric::PrefixHits, 0.0);
    store.push(&batch);
    let view = View { span_ms: 15_000, ..View::new(Time(110_500)) };
    let (_, rows) = drawn_at(&store, &view, (120, 13), Theme::FULL);
    let at = rows.iter().position(|row| row.starts_with("prefix cache 0.0 %")).unwrap();
    assert!(rows[at].ends_with("of looked-up prompt tokens found  only whole blocks of 784 are found"), "{rows:#?}");
    assert_eq!(rows[at + 1], "(prompts that share less find nothing)");
}

#[test]
fn static_slots_are_exact() {
    let (title, rows) = drawn(&slots(), (90, 13), Theme::FULL);
    assert_eq!(title, "75 % held, 3.00 GiB of 4.00 GiB; 67 % of it empty tails; 1 slots idle");
    assert_eq!(rows[1], "█ live              8.00k   24 %  1000 MiB  exact");
    assert_eq!(rows[2], "▒ tails of slots    16.6k   51 %  2.02 GiB  exact, 67 % of held");
    assert_eq!(rows[3], "░ cached              192  0.6 %  24.0 MiB  exact");
    assert_eq!(rows[4], "· free              8.00k   24 %  1000 MiB  exact, 1 of 4 slots idle");
    assert!(rows.iter().all(|row| !row.contains('~')), "nothing is estimated: {rows:#?}");
}

#[test]
fn a_narrow_pane_keeps_whole_words_and_a_high_one_has_a_plot() {
    let (_, rows) = drawn(&slots(), (38, 8), Theme::MONO);
    assert_eq!(rows[1], "█ live              8.00k   24 %");
    let (_, rows) = drawn(&paged(), (90, 24), Theme::FULL);
    assert!(rows[0].starts_with("100 %") || rows[0].contains("100"), "{rows:#?}");
    let ascii = Theme { charset: crate::ui::theme::Charset::Ascii, ..Theme::MONO };
    let (_, rows) = drawn(&slots(), (60, 8), ascii);
    assert!(rows[0].contains("###%%%"), "{rows:#?}");
}

#[test]
fn what_is_missing_says_why() {
    let (title, rows) = drawn(&Store::new(Retention::HOUR), (60, 9), Theme::FULL);
    assert_eq!(title, "KV memory: nothing read yet");
    assert!(rows.concat().contains("--engine http://HOST:PORT"), "{rows:#?}");
    let (title, _) = drawn(&store("vllm", &[], &[(Metric::RequestsRunning, 1.0)]), (60, 9), Theme::FULL);
    assert_eq!(title, "KV memory: not exposed by vLLM");
}

#[test]
fn of_an_engine_that_is_down_the_title_says_so() {
    let store = paged();
    let mut gone = Batch::new(SourceId::Engine(0), Time(111_000), 3500);
    gone.state = Some(SourceState::Failed("connection refused".into()));
    store.push(&gone);
    let view = View::new(Time(111_000));
    let area = Rect::new(0, 0, 60, 12);
    let mut pane = KvMemory::default();
    pane.prepare(
        &store.read(),
        &Context { view: &view, theme: &Theme::FULL, timeline: &Timeline::default(), focused: true },
        area,
    );
    assert_eq!(pane.title(), "KV memory: connection refused");
}

#[test]
fn models_in_memory_are_listed_where_the_engine_says_no_more() {
    let loaded = "a:8b 5.14 GB, 80 % on GPUs; b 1.00 GB, 100 % on GPUs, context 8192, until 2026-11-29T21:40";
    let (_, rows) = drawn(&store("ollama", &[(FactKey::Loaded, loaded)], &[]), (60, 12), Theme::FULL);
    let text = rows.join("\n");
    for line in ["in memory:", "a:8b 5.14 GB, 80 % on GPUs", "b 1.00 GB", "2026-11-29T21:40", "not exposed by Ollama"] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

#[test]
fn every_size_is_drawn() {
    for store in [paged(), slots()] {
        for width in 0..60 {
            for height in 0..26 {
                drawn(&store, (width, height), Theme::MONO);
            }
        }
    }
}
