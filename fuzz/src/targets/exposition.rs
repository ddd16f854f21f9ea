//! Bodies of engines and exporters: the text format, each engine's adapter, and the answers beside the metrics.

use warptop::engine::promtext::{Exposition, decode};
use warptop::engine::{ADAPTERS, Answers, Memory, dcgm as exporter, detect};
use warptop::model::{Batch, SourceId, Time};
use warptop::store::{Retention, Store};

/// The text format itself: each sample lies within the body, and its labels can be read.
pub fn samples(data: &[u8]) {
    let body = decode(data);
    let mut samples = Exposition::new(&body).samples();
    for sample in &mut samples {
        assert!(!sample.name.is_empty());
        let _ = (sample.label("le").len(), sample.label("model_name").len());
        for label in sample.labels() {
            let _ = (label.name().len(), label.value().len(), label.is("le"));
        }
    }
}

fn batch(ms: u64) -> Batch {
    Batch::new(SourceId::Engine(0), Time(1_795_960_600_000 + ms), 3500)
}

/// Two answers of an engine, cut at a NUL, through its adapter into a store.
pub fn engine(data: &[u8]) {
    let Some((which, rest)) = super::choose(data, ADAPTERS.len()) else { return };
    let text = decode(rest);
    let (first, second) = text.split_once('\0').unwrap_or((&text, &text));
    let adapter = ADAPTERS[which];
    for path in adapter.spec().main {
        let _ = detect(path, first).is_some();
    }
    let mut memory = Memory::default();
    let store = Store::new(Retention::HOUR);
    for (ms, body) in [(0, first), (1000, second)] {
        let paths = adapter.spec().main.iter().chain(adapter.spec().beside);
        let answers: Vec<(&'static str, &str)> = paths.map(|path| (*path, body)).collect();
        let mut batch = batch(ms);
        adapter.translate(Answers::new(&answers), 0, &mut memory, &mut batch);
        assert!(batch.samples.iter().all(|sample| sample.reading.value().is_none_or(f64::is_finite)));
        store.push(&batch);
    }
}

/// An answer beside the metrics: models, version, options, slots.
pub fn extra(data: &[u8]) {
    let Some((which, rest)) = super::choose(data, ADAPTERS.len()) else { return };
    let adapter = ADAPTERS[which];
    for path in adapter.spec().extras {
        let mut batch = batch(0);
        adapter.extra(path, rest, 0, &mut batch);
        for fact in &batch.facts {
            assert!(!fact.text.chars().any(char::is_control), "{fact:?}");
        }
    }
}

/// A DCGM exporter's body.
pub fn dcgm(data: &[u8]) {
    let body = decode(data);
    let body = Exposition::new(&body);
    if exporter::detect(body) {
        let _ = exporter::rows(body).0.len();
    }
}
