//! What one request is, and what one answer was: between whoever decides when a request goes out and the connection
//! that carries it.
//!
//! It must not know levels or HTTP. All moments are µs of the [`crate::model::Clock`] of the run.

use std::time::Duration;

use super::level::HostLimit;

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Path below the endpoint's base, e.g. `/v1/completions`.
    pub path: &'static str,
    /// What is posted, JSON; `None`: it is a GET.
    pub body: Option<Vec<u8>>,
    /// How long it may take.
    pub limit: Duration,
    /// Tokens of output that it asks for; `None`: it says not how many.
    pub output: Option<u32>,
}

impl Call {
    /// What its stream may hold, where it says how much output it asks for.
    pub fn bound(&self) -> Option<Bound> {
        self.output.map(Bound)
    }
}

/// What a stream may hold that shall give so many tokens. A server that goes on beyond that does not do as it was asked,
/// and may never end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound(pub u32);

impl Bound {
    /// Tokens, and events with content, of which each holds a token or more: some more than were asked for.
    pub fn tokens(self) -> u64 {
        u64::from(self.0) + u64::from(self.0) / 8 + 16
    }
    /// Events of any kind: an engine adds some without content.
    pub fn events(self) -> u64 {
        u64::from(self.0) * 4 + 64
    }
}

/// An event with content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// When the bytes that ended it arrived, µs.
    pub at: u64,
    /// Tokens in it, where the server says so (token ids, or usage in each event).
    pub tokens: Option<u32>,
}

/// How an exchange of a stream went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exchange {
    /// When the first byte of the request was handed to the connection; `None`: there was no connection.
    pub dispatched: Option<u64>,
    /// When the first byte of the answer came.
    pub first_byte: Option<u64>,
    /// When the first content came, text or reasoning.
    pub first_content: Option<u64>,
    /// When the first content came that is no reasoning.
    pub first_answer: Option<u64>,
    /// When the last content came.
    pub last_content: Option<u64>,
    /// When the answer ended, or the attempt.
    pub end: u64,
    /// Tokens as the server counts them.
    pub usage: Option<Usage>,
    /// Why the model stopped, as the server calls it: `length`, `stop`.
    pub finish: Option<String>,
    /// Whether a connection was made for it.
    pub connected: bool,
    /// What went wrong.
    pub fault: Option<Fault>,
}

/// Tokens as the server counts them, or says it does: [`Usage::plausible`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Of the prompt.
    pub prompt: Option<u64>,
    /// Of those, found in the prefix cache.
    pub cached: Option<u64>,
    /// Of the output, reasoning included.
    pub output: Option<u64>,
}

impl Usage {
    /// Without the counts that no request of so many events with content has: above 1e9, or above 1000 for each event
    /// and a million besides. And whether there was such a one.
    pub fn plausible(self, events: u64) -> (Self, bool) {
        let most = events.saturating_mul(1000).saturating_add(1_000_000).min(1_000_000_000);
        let kept = |count: Option<u64>| count.filter(|count| *count <= most);
        let plausible = Self { prompt: kept(self.prompt), cached: kept(self.cached), output: kept(self.output) };
        (plausible, plausible != self)
    }
}

/// What went wrong with a request. The words are cleaned and hold nothing that was sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// No connection.
    #[error("no connection: {0}")]
    Unconnected(String),
    /// No connection, for want of something on this host.
    #[error("no connection: {0}")]
    AtHostLimit(HostLimit),
    /// HTTP 429 or 503: it has enough to do.
    #[error("refused with HTTP {status}: {words}")]
    Refused {
        /// HTTP status.
        status: u16,
        /// How long it wants to be left alone (Retry-After).
        retry_after: Option<Duration>,
        /// Start of the answer.
        words: String,
    },
    /// Another status that is no success.
    #[error("HTTP {status}: {words}")]
    Status {
        /// HTTP status.
        status: u16,
        /// Start of the answer.
        words: String,
    },
    /// An error in the stream.
    #[error("error in the stream: {0}")]
    Stream(String),
    /// What came is no stream of events, or an event is no JSON.
    #[error("{0}")]
    Malformed(String),
    /// The connection ended inside the answer.
    #[error("the answer broke off: {0}")]
    Cut(String),
    /// It took too long.
    #[error("no complete answer within {} s", .0.as_secs_f64())]
    Timeout(Duration),
}

impl Fault {
    /// Whether there was no connection, so that nothing can have been sent.
    pub const fn is_unconnected(&self) -> bool {
        matches!(self, Self::Unconnected(_) | Self::AtHostLimit(_))
    }
}

/// An answer that is no stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// Its body, as far as it is kept.
    pub body: Vec<u8>,
}

/// Makes connections to the one endpoint of a sweep.
pub trait Transport: Clone + 'static {
    /// What carries requests one after the other.
    type Lane: Lane;
    /// A lane, which connects when it is first used.
    fn lane(&self) -> Self::Lane;
}

/// Carries requests one after the other over a connection that it keeps as long as the server does. One that the server
/// closed while it was idle is replaced, and that is no fault.
pub trait Lane: 'static {
    /// Sends a request and reads the stream that answers it to its end; `stamps` is cleared and holds its events after.
    fn stream(&mut self, call: Call, stamps: &mut Vec<Stamp>) -> impl Future<Output = Exchange>;
    /// Sends a request and reads the whole answer.
    fn whole(&mut self, call: Call) -> impl Future<Output = Result<Answer, Fault>>;
    /// What the body of an answer that is no success says: cleaned, with nothing in it of what was sent, and empty where
    /// it says nothing.
    fn words(&self, body: &[u8]) -> String {
        let _ = body;
        String::new()
    }
    /// Whether a text that came back may hold a part of what was sent to open the endpoint.
    fn is_echoed(&self, text: &str) -> bool {
        let _ = text;
        false
    }
}
