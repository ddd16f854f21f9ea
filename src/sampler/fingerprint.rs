//! Recognises an engine by what it answers, never by its port.
//!
//! Asks the paths that adapters recognise their engine by, one after the other, until one of them does.
//! Invariant: a place that cannot be reached, that wants a key or that is late is asked for one path only.

use super::scrape::{Asker, Trouble};
use super::watch::unknown;
use super::work::Spent;
use crate::engine::{self, Adapter, promtext};

/// An engine that was recognised.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recognised {
    pub(super) adapter: &'static dyn Adapter,
    /// The path whose answer is read with every scrape; `body` holds its answer.
    pub(super) path: &'static str,
}

/// Asks until an adapter knows the answer, which is left in `body`. The error is that of the first path, since the
/// others are asked only because few engines lack it, unless the place falls silent.
pub(super) async fn recognise(asker: &Asker<'_>, body: &mut Vec<u8>, spent: &mut Spent) -> Result<Recognised, Trouble> {
    let mut first = None;
    for path in engine::fingerprints() {
        let trouble = match asker.get(path, body, spent).await {
            Ok(()) => match detect(asker, path, body, spent).await {
                Ok(adapter) => return settle(asker, body, spent, Recognised { adapter, path }).await,
                Err(unknown) => unknown,
            },
            Err(trouble) if trouble.is_silence() => return Err(trouble),
            Err(trouble) if trouble.is_final() => return Err(first.unwrap_or(trouble)),
            Err(trouble) => trouble,
        };
        first.get_or_insert(trouble);
    }
    Err(first.unwrap_or(Trouble::Broken))
}

/// The adapter that knows this answer, or what it holds instead.
async fn detect(
    asker: &Asker<'_>,
    path: &'static str,
    body: &mut Vec<u8>,
    spent: &mut Spent,
) -> Result<&'static dyn Adapter, Trouble> {
    let taken = std::mem::take(body);
    let bytes = taken.len();
    let work = move || {
        let text = promtext::decode(&taken);
        let known = engine::detect(path, &text).ok_or_else(|| unknown(&text));
        drop(text);
        (known, taken)
    };
    let (known, taken) = asker.desk.run(bytes, spent, work).await.ok_or(Trouble::Broken)?;
    *body = taken;
    known.map_err(|unknown| unknown.masked(asker.endpoint))
}

/// An engine may be recognised by a path that is not the one to read, and must not be: it is asked for that
/// one. Where it lacks it nothing is read, but the engine is known.
async fn settle(
    asker: &Asker<'_>,
    body: &mut Vec<u8>,
    spent: &mut Spent,
    found: Recognised,
) -> Result<Recognised, Trouble> {
    let main = found.adapter.spec().main;
    let Some(&best) = main.first().filter(|_| !main.contains(&found.path)) else { return Ok(found) };
    if asker.get(best, body, spent).await.is_err() {
        body.clear();
    }
    Ok(Recognised { path: best, ..found })
}
