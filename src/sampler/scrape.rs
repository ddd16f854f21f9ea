//! One read of an endpoint, bounded in time, size and work.
//!
//! Knows HTTP but no metric; the words for what goes wrong are those of `trouble`. Invariants: an answer
//! that is too long, too slow or endless costs at most twice [`MAX_BODY`] and the time-out, one that is packed no more
//! than `unpack` allows of CPU time; what an endpoint's key holds is sent to its origin only.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{ACCEPT_ENCODING, CONNECTION, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION};
use reqwest::{Client, ClientBuilder, Response, StatusCode, redirect};

use super::aside::{Aside, Turns};
use super::lookup::Lookup;
pub(super) use super::trouble::Trouble;
use super::unpack::unpack;
use super::work::{Desk, Spent};
use crate::model::text;
pub(super) use crate::net::answer::MAX_BODY;
use crate::net::answer::{MAX_ERROR_BODY, excerpt};
use crate::net::endpoint::Endpoint;
use crate::net::tls::{self, Authorities};

/// Redirects that are followed.
const MAX_REDIRECTS: usize = 3;

/// A client that asks the endpoint and no one else: no proxy, no redirect to another origin. `https`: there
/// is an endpoint that needs the authorities of this system.
pub(super) fn client(
    connect_timeout: Duration,
    authorities: &Authorities,
    https: bool,
) -> Result<Client, Box<dyn std::error::Error>> {
    Ok(builder(connect_timeout, authorities, https)?.build()?)
}

fn builder(
    connect_timeout: Duration,
    authorities: &Authorities,
    https: bool,
) -> Result<ClientBuilder, Box<dyn std::error::Error>> {
    let same_origin = redirect::Policy::custom(|attempt| {
        let first = attempt.previous().first();
        let follow = attempt.previous().len() <= MAX_REDIRECTS
            && first.is_some_and(|url| url.origin() == attempt.url().origin());
        if follow { attempt.follow() } else { attempt.stop() }
    });
    // Packing would cost the engine's time; without the header a server may pack as it likes.
    let headers = HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static("identity"))]);
    let builder = Client::builder()
        .tls_backend_preconfigured(tls::config(authorities, https)?)
        .no_proxy()
        .redirect(same_origin)
        .referer(false)
        .default_headers(headers)
        .user_agent(concat!("warptop/", env!("CARGO_PKG_VERSION")))
        // A little less, so that it is told what was late.
        .dns_resolver(Lookup::new(connect_timeout * 3 / 4))
        .connect_timeout(connect_timeout)
        .pool_max_idle_per_host(1);
    Ok(builder)
}

/// How an endpoint is asked.
#[derive(Clone, Copy)]
pub(super) struct Asker<'a> {
    pub(super) client: &'a Client,
    pub(super) desk: &'a Desk,
    pub(super) endpoint: &'a Endpoint,
    /// For one complete answer.
    pub(super) limit: Duration,
    /// Longest answer, bytes.
    pub(super) most: usize,
    /// Where it is asked that keeps the thread busy; `None` where it has a thread of its own.
    pub(super) aside: Option<(&'a Aside, &'a Turns)>,
}

impl Asker<'_> {
    /// Reads the whole answer of a path below the endpoint into `body`, and counts what that costs.
    pub(super) async fn get(&self, path: &str, body: &mut Vec<u8>, spent: &mut Spent) -> Result<(), Trouble> {
        body.clear();
        let received = match self.aside {
            Some((aside, turns)) => self.receive_beside_others(aside, turns, path, body, spent).await,
            None => self.receive(path, body).await,
        };
        let done = match received {
            Ok(response) => self.open(&response, body, spent).await,
            Err(trouble) => Err(trouble),
        };
        done.map_err(|trouble| {
            // It may have grown far beyond what a good answer needs.
            *body = Vec::new();
            trouble.masked(self.endpoint)
        })
    }

    /// Reads the answer as it comes, aside where that kept the thread busy before.
    async fn receive_beside_others(
        &self,
        aside: &Aside,
        turns: &Turns,
        path: &str,
        body: &mut Vec<u8>,
        spent: &mut Spent,
    ) -> Result<Response, Trouble> {
        let clock = self.desk.clock();
        let (begun, before, is_aside) = (clock.micros(), clock.cpu_micros(), turns.is_aside());
        let (done, took, cost) = if is_aside {
            aside.run(clock, self.receive(path, body)).await.unwrap_or((Err(Trouble::Broken), 0, 0))
        } else {
            let done = self.receive(path, body).await;
            (done, clock.micros().saturating_sub(begun), clock.cpu_micros().saturating_sub(before))
        };
        let is_silent = matches!(&done, Err(trouble) if trouble.is_silence());
        // On the thread of all it may have been another one.
        if turns.note(is_silent, took, cost) && is_aside {
            spent.add_us(cost);
        }
        done
    }

    /// Reads the answer as it comes.
    async fn receive(&self, path: &str, body: &mut Vec<u8>) -> Result<Response, Trouble> {
        let Self { client, endpoint, limit, most, .. } = *self;
        let mut request = client.get(endpoint.url(path)).headers(endpoint.key().headers().clone());
        if self.aside.is_some_and(|(_, turns)| turns.is_aside()) {
            // A connection belongs to the thread that opened it.
            request = request.header(CONNECTION, "close");
        }
        let mut begun = false;
        let read = async {
            let mut response = request.send().await.map_err(|error| Trouble::of_request(&error))?;
            begun = true;
            if !response.status().is_success() {
                // Its status says enough when the rest does not come.
                let _ = tokio::time::timeout(limit / 4, append(&mut response, MAX_ERROR_BODY, body)).await;
                return Err(refusal(&response, endpoint, body));
            }
            if response.content_length().is_some_and(|size| size > most as u64) {
                return Err(Trouble::TooLarge(most));
            }
            append(&mut response, most, body).await?;
            Ok(response)
        };
        let done = tokio::time::timeout(limit, read).await;
        done.unwrap_or(Err(if begun { Trouble::Timeout(limit) } else { Trouble::Silent(limit) }))
    }

    /// Makes plain text of what came, and looks whether it can be metrics at all.
    async fn open(&self, response: &Response, body: &mut Vec<u8>, spent: &mut Spent) -> Result<(), Trouble> {
        if is_packed(response, body)? {
            let (packed, clock, most) = (std::mem::take(body), Arc::clone(self.desk.clock()), self.most);
            // However short it is, it may be long when it is unpacked.
            let plain = self.desk.run(usize::MAX, spent, move || unpack(&packed, most, &*clock)).await;
            *body = plain.unwrap_or(Err(Trouble::Broken))?;
        }
        if is_page(response, body) {
            return Err(Trouble::Html);
        }
        // A short answer is not counted: it has no more lines than bytes.
        let count = || body.iter().map(|&byte| usize::from(byte == b'\n')).sum();
        let lines = if body.len() > MAX_LINES { count() } else { 0 };
        if lines > MAX_LINES { Err(Trouble::Lines(lines)) } else { Ok(()) }
    }
}

/// Most lines of an answer. SGLang with 64 ranks has 30,000; reading so many takes half a second.
const MAX_LINES: usize = 200_000;

/// Most pieces in which an answer comes: each costs as much as a kilobyte. One that is written line by line has as many
/// as it has lines.
const MAX_PIECES: usize = MAX_LINES;

/// Appends the body as it comes, and stops when it is longer than `most`.
async fn append(response: &mut Response, most: usize, body: &mut Vec<u8>) -> Result<(), Trouble> {
    let mut pieces = 0;
    while let Some(chunk) = response.chunk().await.map_err(|error| Trouble::of_body(&error))? {
        let room = most - body.len();
        body.extend_from_slice(chunk.get(..room).unwrap_or(&chunk));
        if chunk.len() > room {
            return Err(Trouble::TooLarge(most));
        }
        pieces += 1;
        if pieces > MAX_PIECES {
            return Err(Trouble::Pieces);
        }
    }
    Ok(())
}

/// Whether an answer has to be unpacked. A server may pack without being asked.
fn is_packed(response: &Response, body: &[u8]) -> Result<bool, Trouble> {
    let encoding = response.headers().get(CONTENT_ENCODING).map_or(&b""[..], HeaderValue::as_bytes);
    let named = |name: &[u8]| encoding.eq_ignore_ascii_case(name);
    let is_known = encoding.is_empty() || named(b"identity") || named(b"gzip") || named(b"x-gzip");
    let packed = body.starts_with(b"\x1f\x8b");
    if packed || is_known {
        return Ok(packed);
    }
    let name = text::clean(&String::from_utf8_lossy(encoding)).chars().take(20).collect();
    Err(Trouble::Encoding(name))
}

fn is_page(response: &Response, body: &[u8]) -> bool {
    response.headers().get(CONTENT_TYPE).is_some_and(|t| t.as_bytes().starts_with(b"text/html"))
        || body.trim_ascii_start().starts_with(b"<")
}

/// Why an answer that is no success was given.
fn refusal(response: &Response, endpoint: &Endpoint, body: &[u8]) -> Trouble {
    let status = response.status();
    let code = status.as_u16();
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            Trouble::Unauthorized { status: code, key: endpoint.key().from() }
        }
        StatusCode::NOT_FOUND => Trouble::NotFound,
        _ if status.is_redirection() => redirected(response),
        _ => {
            let words = if is_page(response, body) { String::new() } else { excerpt(body) };
            if status == StatusCode::SERVICE_UNAVAILABLE && words.to_ascii_lowercase().starts_with("loading model") {
                return Trouble::Loading;
            }
            Trouble::Status { status: code, excerpt: words }
        }
    }
}

/// A redirect that was not followed. Only the other origin is named: a path or query may hold secrets.
fn redirected(response: &Response) -> Trouble {
    let status = response.status().as_u16();
    let location = response.headers().get(LOCATION).and_then(|to| to.to_str().ok());
    match location.and_then(|to| response.url().join(to).ok()).map(|url| url.origin()) {
        Some(origin) if origin == response.url().origin() => Trouble::Circle(status),
        Some(origin) => {
            let to = text::clean(&origin.ascii_serialization()).chars().take(80).collect();
            Trouble::Redirect { status, to }
        }
        None => Trouble::Status { status, excerpt: "no place to redirect to".to_owned() },
    }
}

#[cfg(test)]
mod tests;
