//! Why a read of an engine gave nothing, in words for the screen: what, why, and what to do.
//!
//! It must not read anything itself. Invariant: the words hold no URL with credentials, no header and no
//! part of a key; text from the other side is cleaned and short.

use std::error::Error;
use std::io::ErrorKind;
use std::time::Duration;

use crate::model::SourceState;
use crate::net::access::From as KeyFrom;
use crate::net::echo::MASK;
use crate::net::endpoint::Endpoint;
use crate::net::tls::TlsTrouble;

/// Why a read gave no metrics. The text is for the screen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Trouble {
    /// Nothing listens.
    #[error("connection refused: nothing listens there; is the engine running?")]
    Refused,
    /// No answer to the attempt to connect.
    #[error("cannot connect in time: host down, a firewall drops the packets, or it does not answer in TLS")]
    NoConnection,
    /// The name is unknown.
    #[error("the host name cannot be resolved: check the name, or give the address")]
    Dns,
    /// The resolver is late.
    #[error(
        "the host name is not resolved in time: the resolver does not answer; give the address, or see /etc/resolv.conf"
    )]
    Resolver,
    /// Any other failure to connect.
    #[error("cannot connect ({0})")]
    Connect(String),
    /// No TLS.
    #[error(transparent)]
    Tls(TlsTrouble),
    /// Connected, but nothing came in time: the kernel takes connections for a process that is stopped, too.
    #[error("does not answer within {} s: it is saturated, stuck or stopped", .0.as_secs_f64())]
    Silent(Duration),
    /// An answer began, but was not complete in time.
    #[error("no complete answer within {:.1} s: the engine is saturated or stuck", .0.as_secs_f64())]
    Timeout(Duration),
    /// HTTP 401 or 403.
    #[error("{}", .key.refused(*.status))]
    Unauthorized {
        /// HTTP status.
        status: u16,
        /// What was sent.
        key: KeyFrom,
    },
    /// HTTP 404.
    #[error("answers, but /metrics is not there (HTTP 404): was the engine started without metrics?")]
    NotFound,
    /// HTTP 503 of an engine that says so.
    #[error("loading its model: it answers, and will be read when it is ready")]
    Loading,
    /// A redirect to another origin.
    #[error("redirects to {to} (HTTP {status}), which is not followed: give that as --engine URL if it is right")]
    Redirect {
        /// HTTP status.
        status: u16,
        /// The other origin.
        to: String,
    },
    /// Redirects without end.
    #[error("redirects in a circle (HTTP {0}): give the final URL")]
    Circle(u16),
    /// Any other status, with the start of the answer.
    #[error("answers with HTTP {status}{}{excerpt}{}", if excerpt.is_empty() { "" } else { ": " }, advice(*.status))]
    Status {
        /// HTTP status.
        status: u16,
        /// Start of the answer, cleaned.
        excerpt: String,
    },
    /// A web page.
    #[error("answers with a web page, not with metrics: is this an engine's port?")]
    Html,
    /// The answer is longer than so many bytes.
    #[error("the answer is longer than {} MiB: not the metrics of an engine", .0 >> 20)]
    TooLarge(usize),
    /// It has so many lines.
    #[error("the answer has {0} lines: not the metrics of an engine")]
    Lines(usize),
    /// It comes in very many pieces.
    #[error("the answer comes a few bytes at a time: is there a proxy in between?")]
    Pieces,
    /// It costs too much CPU time to unpack.
    #[error("the answer is packed with gzip so that it takes very long to unpack: not the metrics of an engine")]
    Unpacking,
    /// Too many or too long headers.
    #[error("the headers of its answer are too many or too long: is this an engine's port?")]
    Headers,
    /// Packed and damaged.
    #[error("the answer is packed with gzip and damaged: is there a proxy in between?")]
    Packed,
    /// Packed in a way that was not asked for.
    #[error("the answer is packed ({0}), which was not asked for: have the proxy in between leave it as it is")]
    Encoding(String),
    /// The connection was closed before any answer.
    #[error("closed the connection without an answer: is this an engine's port, and does it want https?")]
    NoAnswer,
    /// The connection was reset.
    #[error("the connection was reset: did the engine die, or does it want https?")]
    Reset,
    /// The connection ended inside the answer.
    #[error("the answer broke off: did the engine die, or is there a proxy in between?")]
    Broken,
    /// What came was no HTTP.
    #[error("what answers is no HTTP: is this an engine's port, and does it want https?")]
    NoHttp,
    /// An exposition without a single sample.
    #[error("answers, but exposes nothing yet: it may have no model loaded, or has served nothing since it started")]
    Empty,
    /// Metrics, but of nothing known. The text lists some names.
    #[error("answers, but is no engine warptop knows: {0}")]
    Unknown(String),
}

/// What to do about a status; empty when its number and the answer say it.
const fn advice(status: u16) -> &'static str {
    match status {
        429 => "; it limits how often it is asked: give a longer --engine-interval",
        502 | 504 => "; a gateway answers and cannot reach the engine behind it",
        _ => "",
    }
}

/// An answer that is not complete in time is called saturation while the last good one is no older than this, ms.
const LATE_MS: u64 = 30_000;
/// The same of one that did not even begin. llama.cpp answers between two batches only, up to 4 s late in a burst of
/// prompts; a stopped engine is to be called so within 10 s.
const SILENT_MS: u64 = 6_000;

impl Trouble {
    /// The state to show. An engine that was read a moment ago (`read_ago` ms; `None`: never) and is late now is
    /// not down.
    pub(super) fn state(&self, read_ago: Option<u64>) -> SourceState {
        let words = self.to_string().into();
        let within = |most: u64| read_ago.is_some_and(|ago| ago <= most);
        match self {
            Self::Unauthorized { .. } => SourceState::Unauthorized(words),
            Self::Timeout(_) if within(LATE_MS) => SourceState::Degraded(words),
            Self::Silent(_) if within(SILENT_MS) => SourceState::Degraded(words),
            Self::Timeout(_) | Self::Silent(_) => SourceState::Stalled(words),
            Self::Loading => SourceState::Loading(words),
            Self::NotFound | Self::Html | Self::Empty | Self::Unknown(_) | Self::Status { .. } => {
                SourceState::NoMetrics(words)
            }
            _ => SourceState::Failed(words),
        }
    }

    /// The same without what came from the endpoint where that may hold a part of its key.
    pub(super) fn masked(mut self, endpoint: &Endpoint) -> Self {
        let (text, instead) = match &mut self {
            Self::Status { excerpt, .. } => (excerpt, ""),
            Self::Unknown(names) => {
                (names, "the names in its answer are left out, for they may hold a part of the key")
            }
            Self::Redirect { to: text, .. }
            | Self::Encoding(text)
            | Self::Connect(text)
            | Self::Tls(TlsTrouble::WrongName(text) | TlsTrouble::Certificate(text) | TlsTrouble::Refused(text)) => {
                (text, MASK)
            }
            _ => return self,
        };
        if endpoint.is_echoed(text) {
            instead.clone_into(text);
        }
        self
    }

    /// Whether the engine may be there in a moment.
    pub(super) const fn may_pass_soon(&self) -> bool {
        self.is_silence() || matches!(self, Self::Status { .. } | Self::Loading)
    }

    /// Whether nothing of an answer came, or not all of it in time: then it must not be said that the place answers,
    /// whatever it answered before.
    pub(super) const fn is_silence(&self) -> bool {
        matches!(self, Self::Refused | Self::NoConnection | Self::Silent(_) | Self::Timeout(_))
    }

    /// Whether another path of the same place would say no more.
    pub(super) const fn is_final(&self) -> bool {
        !matches!(
            self,
            Self::NotFound | Self::Html | Self::Empty | Self::Unknown(_) | Self::Status { status: 400..=499 | 501, .. }
        )
    }

    /// Names what went wrong before a complete head of an answer was there.
    pub(super) fn of_request(error: &reqwest::Error) -> Self {
        let connecting = error.is_connect();
        if error.is_dns() {
            let late = matches!(find(error, connecting), Some(Self::NoConnection));
            return if late { Self::Resolver } else { Self::Dns };
        }
        match find(error, connecting) {
            Some(trouble) => trouble,
            None if connecting && error.is_timeout() => Self::NoConnection,
            None if connecting => Self::Connect("unknown cause".to_owned()),
            None => Self::NoAnswer,
        }
    }

    /// Names what went wrong in the body.
    pub(super) fn of_body(error: &reqwest::Error) -> Self {
        match find(error, false) {
            Some(reset @ (Self::Reset | Self::Tls(_))) => reset,
            _ => Self::Broken,
        }
    }
}

/// The first cause that says something.
fn find(error: &reqwest::Error, connecting: bool) -> Option<Trouble> {
    let mut next = error.source();
    while let Some(cause) = next {
        if let Some(trouble) = named(cause, connecting) {
            return Some(trouble);
        }
        next = cause.source();
    }
    None
}

fn named(cause: &(dyn Error + 'static), connecting: bool) -> Option<Trouble> {
    if let Some(io) = cause.downcast_ref::<std::io::Error>() {
        // What an error of IO holds is not among its sources: one of TLS, or another one of IO.
        let inner = io.get_ref().and_then(|inner| named(inner, connecting));
        return inner.or_else(|| of_io(io.kind(), connecting));
    }
    if let Some(tls) = cause.downcast_ref::<rustls::Error>() {
        return Some(Trouble::Tls(tls.into()));
    }
    let http = cause.downcast_ref::<hyper::Error>().filter(|http| http.is_parse())?;
    // The library tells the kinds apart in its words only.
    Some(if http.to_string().contains("too large") { Trouble::Headers } else { Trouble::NoHttp })
}

fn of_io(kind: ErrorKind, connecting: bool) -> Option<Trouble> {
    match kind {
        ErrorKind::ConnectionRefused => Some(Trouble::Refused),
        ErrorKind::TimedOut if connecting => Some(Trouble::NoConnection),
        ErrorKind::UnexpectedEof if connecting => Some(Trouble::Tls(TlsTrouble::Ended)),
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => Some(Trouble::Reset),
        // Says nothing of its own.
        ErrorKind::Other => None,
        kind if connecting => Some(Trouble::Connect(kind.to_string())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_that_loads_its_model_is_told_from_a_failed_one() {
        assert!(matches!(Trouble::Loading.state(None), SourceState::Loading(_)));
    }

    #[test]
    fn a_place_that_speaks_http_has_no_metrics_and_is_not_down() {
        let answers = |trouble: &Trouble, ago| matches!(trouble.state(ago), SourceState::NoMetrics(_));
        let status = |status| Trouble::Status { status, excerpt: String::new() };
        for trouble in [
            Trouble::NotFound,
            Trouble::Html,
            Trouble::Empty,
            Trouble::Unknown("x".to_owned()),
            status(404),
            status(501),
        ] {
            assert!(!trouble.is_final() && answers(&trouble, None), "{trouble}");
        }
        let unauthorized = Trouble::Unauthorized { status: 401, key: KeyFrom::default() };
        let silent = [Trouble::Refused, Trouble::NoConnection, Trouble::Loading, Trouble::NoHttp, Trouble::NoAnswer];
        for trouble in silent.into_iter().chain([unauthorized, Trouble::Timeout(LIMIT), Trouble::Silent(LIMIT)]) {
            assert!(!answers(&trouble, None) && !answers(&trouble, Some(0)), "{trouble}");
        }
    }

    const LIMIT: Duration = Duration::from_secs(2);

    #[test]
    fn what_is_late_is_degraded_first_and_stalled_then() {
        let stalled = |trouble: Trouble| {
            [Some(0), Some(6_000), Some(6_001), Some(30_000), Some(30_001), None]
                .map(|ago| trouble.state(ago).is_down())
        };
        assert_eq!(stalled(Trouble::Silent(LIMIT)), [false, false, true, true, true, true]);
        assert_eq!(stalled(Trouble::Timeout(LIMIT)), [false, false, false, false, true, true]);
        assert!(Trouble::Silent(LIMIT).to_string().starts_with("does not answer within 2 s"));
    }
}
