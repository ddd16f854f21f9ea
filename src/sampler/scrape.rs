//! One read of a metrics endpoint, bounded in time and size, and words for everything that can go wrong.
//!
//! Knows HTTP but no metric. Invariant: an answer that is too long, too slow or endless costs at most
//! [`MAX_BODY`] and the time-out. Words shown never hold a URL.

use std::error::Error as _;
use std::io::ErrorKind;
use std::time::Duration;

use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, Response, StatusCode, Url, redirect};

use crate::model::{SourceState, text};

/// Longest body that is read: a hundred times what vLLM sends.
pub(super) const MAX_BODY: usize = 8 << 20;

/// Why a read gave no metrics. The text is for the screen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Trouble {
    /// Nothing listens.
    #[error("connection refused: nothing listens there; is the engine running?")]
    Refused,
    /// No answer to the attempt to connect.
    #[error("cannot connect in time: host down, or a firewall drops the packets")]
    NoConnection,
    /// The name is unknown.
    #[error("the host name cannot be resolved: check the name, or give the address")]
    Dns,
    /// Any other failure to connect.
    #[error("cannot connect ({0})")]
    Connect(String),
    /// Connected, but no complete answer in time.
    #[error("no complete answer within {:.1} s: the engine is saturated or stuck", .0.as_secs_f64())]
    Timeout(Duration),
    /// HTTP 401 or 403.
    #[error("present, needs a key (HTTP {0})")]
    Unauthorized(u16),
    /// HTTP 404.
    #[error("answers, but /metrics is not there (HTTP 404): was the engine started without metrics?")]
    NotFound,
    /// A redirect that is not followed.
    #[error("redirects to another place (HTTP {0}): give the final URL")]
    Redirect(u16),
    /// Any other status, with the start of the answer.
    #[error("answers with HTTP {status}{}{excerpt}", if excerpt.is_empty() { "" } else { ": " })]
    Status {
        /// HTTP status.
        status: u16,
        /// Start of the answer, cleaned.
        excerpt: String,
    },
    /// A web page.
    #[error("answers with a web page, not with metrics: is this an engine's port?")]
    Html,
    /// The answer is longer than [`MAX_BODY`].
    #[error("the answer is longer than {} MiB: not the metrics of an engine", MAX_BODY >> 20)]
    TooLarge,
    /// The connection ended or what came was no HTTP.
    #[error("the answer broke off or is no HTTP: is this an engine's port?")]
    Broken,
    /// Metrics, but of nothing known. The text lists some names.
    #[error("answers, but is no engine warptop knows: {0}")]
    Unknown(String),
}

impl Trouble {
    /// The state to show. An engine that was read a moment ago and is late now is not down.
    pub(super) fn state(&self, read_lately: bool) -> SourceState {
        let words = self.to_string().into();
        match self {
            Self::Unauthorized(_) => SourceState::Unauthorized(words),
            Self::Timeout(_) if read_lately => SourceState::Degraded(words),
            Self::Timeout(_) => SourceState::Stalled(words),
            _ => SourceState::Failed(words),
        }
    }

    /// Whether another path of the same place would say no more.
    pub(super) const fn is_final(&self) -> bool {
        !matches!(
            self,
            Self::NotFound
                | Self::Html
                | Self::TooLarge
                | Self::Unknown(_)
                | Self::Status { status: 400..=499 | 501, .. }
        )
    }

    fn connecting(error: &reqwest::Error) -> Self {
        if error.is_dns() {
            return Self::Dns;
        }
        if error.is_timeout() {
            return Self::NoConnection;
        }
        let mut source = error.source();
        while let Some(cause) = source {
            if let Some(io) = cause.downcast_ref::<std::io::Error>() {
                return match io.kind() {
                    ErrorKind::ConnectionRefused => Self::Refused,
                    ErrorKind::TimedOut => Self::NoConnection,
                    kind => Self::Connect(kind.to_string()),
                };
            }
            source = cause.source();
        }
        Self::Connect("unknown cause".to_owned())
    }
}

/// A client that asks the endpoint and no one else: no proxy, no redirect to another origin.
pub(super) fn client(connect_timeout: Duration) -> reqwest::Result<Client> {
    let same_origin = redirect::Policy::custom(|attempt| {
        let first = attempt.previous().first();
        let follow = attempt.previous().len() <= 3 && first.is_some_and(|url| url.origin() == attempt.url().origin());
        if follow { attempt.follow() } else { attempt.stop() }
    });
    Client::builder()
        .no_proxy()
        .redirect(same_origin)
        .referer(false)
        .user_agent(concat!("warptop/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(connect_timeout)
        .pool_max_idle_per_host(1)
        .build()
}

/// Reads the whole answer into `body`.
pub(super) async fn get(client: &Client, url: Url, limit: Duration, body: &mut Vec<u8>) -> Result<(), Trouble> {
    body.clear();
    let read = async {
        let mut response = client
            .get(url)
            .send()
            .await
            .map_err(|error| if error.is_connect() { Trouble::connecting(&error) } else { Trouble::Broken })?;
        let size = response.content_length().unwrap_or(0);
        if usize::try_from(size).map_or(true, |size| size > MAX_BODY) {
            return Err(Trouble::TooLarge);
        }
        while let Some(chunk) = response.chunk().await.map_err(|_| Trouble::Broken)? {
            if body.len() + chunk.len() > MAX_BODY {
                return Err(Trouble::TooLarge);
            }
            body.extend_from_slice(&chunk);
        }
        judge(&response, body)
    };
    tokio::time::timeout(limit, read).await.unwrap_or(Err(Trouble::Timeout(limit)))
}

/// Whether a complete answer can be metrics at all.
fn judge(response: &Response, body: &[u8]) -> Result<(), Trouble> {
    let status = response.status();
    let page = response.headers().get(CONTENT_TYPE).is_some_and(|t| t.as_bytes().starts_with(b"text/html"))
        || body.trim_ascii_start().starts_with(b"<");
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(Trouble::Unauthorized(status.as_u16())),
        StatusCode::NOT_FOUND => Err(Trouble::NotFound),
        _ if status.is_redirection() => Err(Trouble::Redirect(status.as_u16())),
        _ if !status.is_success() => {
            let excerpt = if page { String::new() } else { excerpt(body) };
            Err(Trouble::Status { status: status.as_u16(), excerpt })
        }
        _ if page => Err(Trouble::Html),
        _ => Ok(()),
    }
}

/// The start of an answer, for the screen.
fn excerpt(body: &[u8]) -> String {
    let start = String::from_utf8_lossy(body.get(..400).unwrap_or(body));
    text::clean(&start).chars().take(100).collect()
}
