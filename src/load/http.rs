//! HTTP/1.1 to one endpoint, stamped where bytes arrive.
//!
//! It must not know levels or statistics. Invariants: only the endpoint is asked, through no proxy, and a redirect is not
//! followed; a request is sent again only when the connection was an old one that turned out to be closed, so that the
//! server cannot have worked on it; a connection goes back to its lane only when the answer on it has ended, so whatever
//! breaks off or is given up closes it.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER, USER_AGENT,
};
use hyper::http::response::Parts;
use hyper::{Method, Request, Response, StatusCode};
use rustls::pki_types::ServerName;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::model::{Clock, text};
use crate::net::answer::{self, MAX_BODY, MAX_ERROR_BODY};
use crate::net::endpoint::Endpoint;
use crate::net::tls::{self, Authorities};

use super::exchange::{Answer, Call, Exchange, Fault, Lane, Stamp, Transport};
use super::fault;
use super::reading::Reader;
use super::wire::{NoAnswer, Open, Opener, Sockets, Tls};

/// What a server has after `[DONE]` to end its answer, so that the connection can be kept.
const AFTER_DONE: Duration = Duration::from_millis(250);
/// A kept connection that ends without a byte within this time after a request went out, µs, was being closed while it
/// did: about one turn of a scheduler. Later than that the server may have worked on it and failed, which is no accident
/// of the connection and must be seen. Where the way there and back is longer, a closing that crosses a request is
/// therefore counted as an answer that broke off: rather one fault too many than work that nobody counts.
const CROSSED: u64 = 5_000;

/// Connections to one endpoint.
#[derive(Clone)]
pub struct Wire(Arc<Target>);

/// Who is asked, and how.
struct Target {
    endpoint: Endpoint,
    headers: HeaderMap,
    opener: Box<dyn Opener>,
    tls: Option<Tls>,
    clock: Arc<dyn Clock>,
}

/// One of them.
pub struct Connection {
    target: Arc<Target>,
    /// Kept from the request before.
    open: Option<Open>,
}

impl Wire {
    /// For this endpoint.
    ///
    /// # Errors
    /// When TLS cannot be had, in words.
    pub fn new(endpoint: &Endpoint, authorities: &Authorities, clock: Arc<dyn Clock>) -> Result<Self, String> {
        let sockets = Sockets { host: endpoint.host().to_owned(), port: endpoint.port() };
        Self::over(Box::new(sockets), endpoint, authorities, clock)
    }

    /// The same over whatever `opener` opens.
    ///
    /// # Errors
    /// When TLS cannot be had, in words.
    pub fn over(
        opener: Box<dyn Opener>,
        endpoint: &Endpoint,
        authorities: &Authorities,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, String> {
        let tls = if endpoint.is_https() {
            let config = tls::config(authorities, true).map_err(|error| tls::TlsTrouble::from(&error).to_string())?;
            let name = ServerName::try_from(endpoint.host().to_owned());
            let name = name.map_err(|_| "the host is neither a name nor an address that TLS knows".to_owned())?;
            Some((TlsConnector::from(Arc::new(config)), name))
        } else {
            None
        };
        let headers = headers(endpoint).ok_or_else(|| "the host cannot be named in a request".to_owned())?;
        Ok(Self(Arc::new(Target { endpoint: endpoint.clone(), headers, opener, tls, clock })))
    }
}

/// What goes with each request.
fn headers(endpoint: &Endpoint) -> Option<HeaderMap> {
    let fixed = |name: HeaderName, value| (name, HeaderValue::from_static(value));
    let mut headers = HeaderMap::from_iter([
        fixed(ACCEPT, "text/event-stream, application/json"),
        // Packing would cost the engine's time and hold events back.
        fixed(ACCEPT_ENCODING, "identity"),
        fixed(USER_AGENT, concat!("warptop/", env!("CARGO_PKG_VERSION"))),
    ]);
    headers.insert(HOST, HeaderValue::from_str(&endpoint.authority()).ok()?);
    headers.extend(endpoint.headers());
    Some(headers)
}

impl Target {
    fn request(&self, path: &str, body: Option<&Bytes>) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(body.cloned().unwrap_or_default()));
        *request.headers_mut() = self.headers.clone();
        if body.is_some() {
            *request.method_mut() = Method::POST;
            request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        // What a URL has for a path is one.
        *request.uri_mut() = self.endpoint.url(path).path().parse().unwrap_or_default();
        request
    }

    /// Whether the server cannot have taken a request that went out over a kept connection and got no byte back.
    fn is_untaken(&self, none: &NoAnswer, exchange: &Exchange) -> bool {
        let since = exchange.dispatched.map(|dispatched| self.clock.micros().saturating_sub(dispatched));
        none.is_unsent || since.is_some_and(|since| since <= CROSSED)
    }

    /// What a time-out means when the request was or was not on its way.
    fn late(limit: Duration, dispatched: Option<u64>) -> Fault {
        dispatched.map_or_else(|| Fault::Unconnected(fault::NOT_IN_TIME.to_owned()), |_| Fault::Timeout(limit))
    }
}

impl Transport for Wire {
    type Lane = Connection;
    fn lane(&self) -> Self::Lane {
        Connection { target: Arc::clone(&self.0), open: None }
    }
}

impl Lane for Connection {
    async fn stream(&mut self, call: Call, stamps: &mut Vec<Stamp>) -> Exchange {
        stamps.clear();
        let (limit, mut exchange) = (call.limit, Exchange::default());
        let done = timeout(limit, self.exchange(call, &mut exchange, stamps)).await;
        let done = done.unwrap_or_else(|_| Err(Target::late(limit, exchange.dispatched)));
        match done {
            Ok(end) => exchange.end = end,
            Err(fault) => {
                exchange.end = self.target.clock.micros();
                exchange.fault = Some(fault);
            }
        }
        exchange
    }

    fn words(&self, body: &[u8]) -> String {
        answer::words(body, &self.target.endpoint)
    }

    fn is_echoed(&self, text: &str) -> bool {
        self.target.endpoint.is_echoed(text)
    }

    async fn whole(&mut self, call: Call) -> Result<Answer, Fault> {
        let (limit, mut exchange) = (call.limit, Exchange::default());
        let done = timeout(limit, async {
            let (mut open, answer) = self.ask(call, &mut exchange).await?;
            let (head, mut incoming) = answer.into_parts();
            let mut body = Vec::new();
            if !receive(&mut open, &mut incoming, MAX_BODY, &mut body).await? {
                let words = format!("the answer is longer than {} MiB: is this an engine's port?", MAX_BODY >> 20);
                return Err(Fault::Malformed(words));
            }
            self.open = Some(open);
            Ok(Answer { status: head.status.as_u16(), body })
        });
        let done = done.await;
        done.unwrap_or_else(|_| Err(Target::late(limit, exchange.dispatched)))
    }
}

impl Connection {
    /// One exchange; when its answer ended, µs.
    async fn exchange(&mut self, call: Call, exchange: &mut Exchange, stamps: &mut Vec<Stamp>) -> Result<u64, Fault> {
        let (limit, bound) = (call.limit, call.bound());
        let (mut open, answer) = self.ask(call, exchange).await?;
        let (head, mut body) = answer.into_parts();
        if !head.status.is_success() {
            return Err(self.refusal(open, &head, body, limit).await);
        }
        check_stream(&head, &self.target.endpoint)?;
        let mut reader = Reader::new(&self.target.endpoint, exchange, stamps, bound);
        loop {
            let piece = open.piece(&mut body).await.map_err(|error| fault::within_answer(error.as_ref()))?;
            let Some(piece) = piece else { break };
            if reader.take(&piece, open.marks.arrived())? {
                return Ok(self.after_done(open, body).await);
            }
        }
        reader.finish(open.marks.arrived())?;
        let end = open.marks.last();
        self.open = Some(open);
        Ok(end)
    }

    /// Reads what follows `[DONE]`, so that the connection can be kept; when the answer ended, µs. All that was asked for
    /// is there: nothing that happens now is a fault.
    async fn after_done(&mut self, mut open: Open, mut body: Incoming) -> u64 {
        let done = open.marks.arrived();
        let rest = async {
            while open.piece(&mut body).await?.is_some() {}
            Ok::<_, Option<hyper::Error>>(())
        };
        if !matches!(timeout(AFTER_DONE, rest).await, Ok(Ok(()))) {
            return done;
        }
        let end = open.marks.last();
        self.open = Some(open);
        end
    }

    /// Sends a request over the connection that was kept, or a new one, and reads the head of the answer.
    async fn ask(&mut self, call: Call, exchange: &mut Exchange) -> Result<(Open, Response<Incoming>), Fault> {
        let target = Arc::clone(&self.target);
        let body = call.body.map(Bytes::from);
        let mut kept = self.open.take();
        if let Some(open) = &mut kept
            && !open.is_usable().await
        {
            kept = None;
        }
        loop {
            let is_old = kept.is_some();
            let mut open = if let Some(open) = kept.take() {
                open
            } else {
                exchange.dispatched = None;
                Open::new(&*target.opener, target.tls.as_ref(), &target.clock).await?
            };
            exchange.connected = !is_old;
            let request = target.request(call.path, body.as_ref());
            exchange.dispatched = Some(target.clock.micros());
            let answer = open.send(request).await;
            exchange.first_byte = open.marks.first();
            match answer {
                Ok(answer) => return Ok((open, answer)),
                // The server closed it before, or at the moment at which, it was to be used again.
                Err(none) if is_old && exchange.first_byte.is_none() && target.is_untaken(&none, exchange) => {}
                Err(none) => return Err(fault::without_answer(none.error.as_ref())),
            }
        }
    }

    /// An answer that is no success. The connection is kept when the answer ends soon.
    async fn refusal(&mut self, mut open: Open, head: &Parts, mut incoming: Incoming, limit: Duration) -> Fault {
        let mut body = Vec::new();
        // The status says enough when the rest does not come.
        let read = timeout(limit / 4, receive(&mut open, &mut incoming, MAX_ERROR_BODY, &mut body)).await;
        if matches!(read, Ok(Ok(true))) {
            self.open = Some(open);
        }
        let status = head.status.as_u16();
        let words = answer::words(&body, &self.target.endpoint);
        match head.status {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                Fault::Refused { status, retry_after: retry_after(&head.headers), words }
            }
            // Where it leads to may hold secrets, and the words of it are for browsers.
            code if code.is_redirection() => {
                let words = "a redirect, which is not followed: name the place it leads to".to_owned();
                Fault::Status { status, words }
            }
            _ => Fault::Status { status, words },
        }
    }
}

/// Appends a body; whether all of it was read and is no longer than `most` bytes.
async fn receive(open: &mut Open, incoming: &mut Incoming, most: usize, body: &mut Vec<u8>) -> Result<bool, Fault> {
    while let Some(piece) = open.piece(incoming).await.map_err(|error| fault::within_answer(error.as_ref()))? {
        let room = most - body.len();
        body.extend_from_slice(piece.get(..room).unwrap_or(&piece));
        if piece.len() > room {
            return Ok(false);
        }
    }
    Ok(true)
}

/// How long it wants to be left alone, where it says so in seconds. A date would have to be held against its clock.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse::<u32>().ok()?;
    Some(Duration::from_secs(seconds.into()))
}

/// Whether the answer is a stream of events.
fn check_stream(head: &Parts, endpoint: &Endpoint) -> Result<(), Fault> {
    let kind = head.headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    let kind = kind.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii();
    if kind.eq_ignore_ascii_case(b"text/event-stream") {
        return Ok(());
    }
    let name = text::clean_to(&String::from_utf8_lossy(kind), 60);
    let came = match name.as_str() {
        "" => "an answer without a type".to_owned(),
        name if endpoint.is_echoed(name) => "another answer".to_owned(),
        name => name.to_owned(),
    };
    let words = format!(
        "{came} came where a stream of events was asked for: does this endpoint stream, and is there a proxy in between?"
    );
    Err(Fault::Malformed(words))
}

#[cfg(test)]
mod tests;
