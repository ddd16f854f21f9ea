//! What a server answers to a load: the stream of events, and answers in one piece; and the workload files of users.

use warptop::load::chunk::{Chunk, Counter};
use warptop::load::sse::Splitter;

/// A stream of events, cut into pieces of changing length: what comes out does not depend on the cuts.
pub fn stream(data: &[u8]) {
    let Some((step, rest)) = super::choose(data, 61) else { return };
    let whole = events(&[rest]);
    let cut: Vec<&[u8]> = rest.chunks(step + 1).collect();
    assert_eq!(whole, events(&cut));
    let mut counter = Counter::default();
    for event in whole {
        if let Ok(chunk) = Chunk::read(&event) {
            let _ = counter.tokens(&chunk);
        }
    }
}

fn events(pieces: &[&[u8]]) -> Vec<Vec<u8>> {
    let (mut splitter, mut found) = (Splitter::default(), Vec::new());
    for piece in pieces {
        let mut rest = *piece;
        loop {
            match splitter.next(&mut rest) {
                Ok(Some(event)) => found.push(event.data.to_vec()),
                Ok(None) => break,
                Err(_) => return found,
            }
        }
    }
    if let Ok(Some(event)) = splitter.finish() {
        found.push(event.data.to_vec());
    }
    found
}

/// The body of an error, put into words.
pub fn answer(data: &[u8]) {
    let words = warptop::net::answer::excerpt(data);
    assert!(!words.chars().any(char::is_control), "{words:?}");
    assert!(words.chars().count() <= 400, "{}", words.len());
}

/// What a user writes of lengths, levels, rates and objectives.
pub fn workload(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let _ = warptop::load::lengths::parse(&text);
    let _ = warptop::load::given::users(&text);
    let _ = warptop::load::given::rates(&text);
    let _ = warptop::load::given::slo(&text);
}
