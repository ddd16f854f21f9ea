//! One read of an endpoint, bounded in time and size.
//!
//! Knows HTTP but no metric; the words for what goes wrong are those of `trouble`. Invariants: an answer
//! that is too long, too slow or endless costs at most twice [`MAX_BODY`] and the time-out; what an
//! endpoint's key holds is sent to its origin only.

use std::io::Read;
use std::time::Duration;

use flate2::read::MultiGzDecoder;
use reqwest::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION};
use reqwest::{Client, ClientBuilder, Response, StatusCode, redirect};

pub(super) use super::trouble::Trouble;
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
        .connect_timeout(connect_timeout)
        .pool_max_idle_per_host(1);
    Ok(builder)
}

/// Reads the whole answer of a path below the endpoint into `body`.
pub(super) async fn get(
    client: &Client,
    endpoint: &Endpoint,
    path: &str,
    limit: Duration,
    body: &mut Vec<u8>,
) -> Result<(), Trouble> {
    body.clear();
    let request = client.get(endpoint.url(path)).headers(endpoint.key().headers().clone());
    let mut begun = false;
    let read = async {
        let mut response = request.send().await.map_err(|error| Trouble::of_request(&error))?;
        begun = true;
        if !response.status().is_success() {
            // Its status says enough when the rest does not come.
            let _ = tokio::time::timeout(limit / 4, receive(&mut response, MAX_ERROR_BODY, body)).await;
            return Err(refusal(&response, endpoint, body));
        }
        if response.content_length().is_some_and(|size| size > MAX_BODY as u64) {
            return Err(Trouble::TooLarge);
        }
        receive(&mut response, MAX_BODY, body).await?;
        unpack(&response, body)?;
        if is_page(&response, body) { Err(Trouble::Html) } else { Ok(()) }
    };
    let done = tokio::time::timeout(limit, read).await;
    let done = done.unwrap_or(Err(if begun { Trouble::Timeout(limit) } else { Trouble::Silent(limit) }));
    if done.is_err() {
        // It may have grown far beyond what a good answer needs.
        *body = Vec::new();
    }
    done
}

/// Appends the body as it comes, and stops when it is longer than `most`.
async fn receive(response: &mut Response, most: usize, body: &mut Vec<u8>) -> Result<(), Trouble> {
    while let Some(chunk) = response.chunk().await.map_err(|error| Trouble::of_body(&error))? {
        let room = most - body.len();
        body.extend_from_slice(chunk.get(..room).unwrap_or(&chunk));
        if chunk.len() > room {
            return Err(Trouble::TooLarge);
        }
    }
    Ok(())
}

/// Undoes what a server packed without being asked.
fn unpack(response: &Response, body: &mut Vec<u8>) -> Result<(), Trouble> {
    let encoding = response.headers().get(CONTENT_ENCODING).map_or(&b""[..], HeaderValue::as_bytes);
    let named = |name: &[u8]| encoding.eq_ignore_ascii_case(name);
    let is_known = encoding.is_empty() || named(b"identity") || named(b"gzip") || named(b"x-gzip");
    let packed = body.starts_with(b"\x1f\x8b");
    if !packed && !is_known {
        let name = text::clean(&String::from_utf8_lossy(encoding)).chars().take(20).collect();
        return Err(Trouble::Encoding(name));
    }
    if !packed {
        return Ok(());
    }
    let mut plain = Vec::new();
    MultiGzDecoder::new(&body[..]).take(MAX_BODY as u64 + 1).read_to_end(&mut plain).map_err(|_| Trouble::Packed)?;
    if plain.len() > MAX_BODY {
        return Err(Trouble::TooLarge);
    }
    *body = plain;
    Ok(())
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
            let echoed = endpoint.key().is_echoed(&words);
            Trouble::Status { status: code, excerpt: if echoed { String::new() } else { words } }
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
