//! Recognises an engine by what it answers, never by its port.
//!
//! Asks the paths that adapters recognise their engine by, one after the other, until one of them does.
//! Invariant: a place that cannot be reached, that wants a key or that is late is asked for one path only.

use std::time::Duration;

use super::scrape::{self, Trouble};
use super::watch::unknown;
use crate::engine::{self, Adapter, promtext};
use crate::net::endpoint::Endpoint;
use reqwest::Client;

/// An engine that was recognised.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recognised {
    pub(super) adapter: &'static dyn Adapter,
    /// The path whose answer is read with every scrape; `body` holds its answer.
    pub(super) path: &'static str,
}

/// Asks until an adapter knows the answer, which is left in `body`. The error is that of the first path, since the
/// others are asked only because few engines lack it, unless the place falls silent.
pub(super) async fn recognise(
    client: &Client,
    endpoint: &Endpoint,
    limit: Duration,
    body: &mut Vec<u8>,
) -> Result<Recognised, Trouble> {
    let mut first = None;
    for path in engine::fingerprints() {
        let trouble = match scrape::get(client, endpoint, path, limit, body).await {
            Ok(()) => {
                let text = promtext::decode(body);
                match engine::detect(path, &text) {
                    Some(adapter) => return settle(client, endpoint, limit, body, Recognised { adapter, path }).await,
                    None => unknown(&text),
                }
            }
            Err(trouble) if trouble.is_silence() => return Err(trouble),
            Err(trouble) if trouble.is_final() => return Err(first.unwrap_or(trouble)),
            Err(trouble) => trouble,
        };
        first.get_or_insert(trouble);
    }
    Err(first.unwrap_or(Trouble::Broken))
}

/// An engine may be recognised by a path that is not the one to read, and must not be: it is asked for that
/// one. Where it lacks it nothing is read, but the engine is known.
async fn settle(
    client: &Client,
    endpoint: &Endpoint,
    limit: Duration,
    body: &mut Vec<u8>,
    found: Recognised,
) -> Result<Recognised, Trouble> {
    let main = found.adapter.spec().main;
    let Some(&best) = main.first().filter(|_| !main.contains(&found.path)) else { return Ok(found) };
    if scrape::get(client, endpoint, best, limit, body).await.is_err() {
        body.clear();
    }
    Ok(Recognised { path: best, ..found })
}
