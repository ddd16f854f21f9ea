//! A recording, unpacked or packed, into a store and onto a screen.

use std::io::Cursor;

use warptop::recording::Reader;
use warptop::store::{Retention, Store};

/// Batches that pass the reader hold only finite numbers and clean texts, and the store takes them.
pub fn recording(data: &[u8]) {
    let Ok(reader) = Reader::new(Cursor::new(data.to_vec())) else { return };
    let store = Store::new(Retention::HOUR);
    for batch in reader.take(64) {
        assert!(batch.samples.iter().all(|sample| sample.reading.value().is_none_or(f64::is_finite)));
        assert!(!batch.facts.iter().any(|fact| fact.text.chars().any(char::is_control)));
        store.push(&batch);
    }
}
