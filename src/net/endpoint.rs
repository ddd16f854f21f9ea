//! Where an engine listens: what people write, what is asked, and what may be shown.
//!
//! Knows no engine and opens no socket. Invariant: user name, password, query, fragment and key never
//! get into anything that is shown or recorded.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use percent_encoding::percent_decode_str;
use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};

use super::access::Key;
use super::echo::{Echo, MASK};
use crate::model::{Address, Batch};

/// A base URL.
#[derive(Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// With credentials; without a slash at the end of the path.
    base: Url,
    shown: String,
    /// What is sent along.
    key: Arc<Key>,
    /// What must not come back of all that is sent.
    echo: Arc<Echo>,
}

/// The text is no address that can be asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}: write --engine http://HOST:PORT or https://…, with the path before /metrics if there is one")]
pub struct BadUrl {
    /// What was given, safe to show.
    pub shown: String,
    why: String,
}

impl Endpoint {
    /// Takes `host:port`, a base URL, or the URL of `/metrics` itself.
    pub fn parse(text: &str) -> Result<Self, BadUrl> {
        let text = text.trim();
        let bad = |why: &str| BadUrl { shown: without_secrets(text), why: why.to_owned() };
        let full = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let mut base = Url::parse(&full).map_err(|error| bad(&format!("no URL ({error})")))?;
        if base.path().contains('@') || base.path().contains("%40") {
            // As in "http:/ann:secret@host": what was meant as credentials would be shown as a path.
            return Err(bad("an @ in the path"));
        }
        if text.bytes().all(|b| b.is_ascii_digit()) {
            return Err(bad("only a number"));
        }
        match base.scheme() {
            "http" | "https" => {}
            _ => return Err(bad("no http or https URL")),
        }
        base.set_query(None);
        base.set_fragment(None);
        let path = base.path().trim_end_matches('/');
        let path = path.strip_suffix("/metrics").unwrap_or(path).trim_end_matches('/').to_owned();
        base.set_path(&path);
        if Address::parse(base.as_str()).is_none() {
            return Err(bad("no host that can be asked"));
        }
        let mut shown = base.clone();
        // Both fail only for URLs that cannot have a host, which http always has.
        let _ = shown.set_username("");
        let _ = shown.set_password(None);
        let shown = shown.as_str().trim_end_matches('/').to_owned();
        Ok(Self { base, shown, key: Arc::default(), echo: Arc::default() }.with(Key::default()))
    }

    /// The same with what may be sent to it.
    #[must_use]
    pub fn with(self, key: Key) -> Self {
        let mut with = Self { key: Arc::new(key), ..self };
        let mut sent = with.key.headers().clone();
        // Also where a header of the key goes in its place.
        if let Some(basic) = with.basic() {
            sent.append(AUTHORIZATION, basic);
        }
        with.echo = Arc::new(Echo::of(&sent));
        with
    }

    /// What is sent along.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Whether the URL holds a user name or a password.
    pub fn has_credentials(&self) -> bool {
        !self.base.username().is_empty() || self.base.password().is_some()
    }

    /// All headers that open it, each marked sensitive: those of its key, or else user name and password of the URL.
    pub fn headers(&self) -> HeaderMap {
        let mut headers = self.key.headers().clone();
        if !headers.contains_key(AUTHORIZATION)
            && let Some(basic) = self.basic()
        {
            headers.insert(AUTHORIZATION, basic);
        }
        headers
    }

    /// User name and password as a header (RFC 7617).
    fn basic(&self) -> Option<HeaderValue> {
        if !self.has_credentials() {
            return None;
        }
        let mut pair: Vec<u8> = percent_decode_str(self.base.username()).collect();
        pair.push(b':');
        pair.extend(percent_decode_str(self.base.password().unwrap_or_default()));
        // Base64 is always a header's value.
        let mut value = HeaderValue::from_str(&format!("Basic {}", BASE64_STANDARD.encode(pair))).ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    /// Whether a text that came back may hold a part of what was sent to open it.
    pub fn is_echoed(&self, text: &str) -> bool {
        self.echo.is_in(text)
    }

    /// Masks each text of a batch that may hold a part of what was sent to open it. All facts are to be of its answers.
    pub fn mask(&self, batch: &mut Batch) {
        if self.echo.is_empty() {
            return;
        }
        for fact in batch.facts.iter_mut().filter(|fact| self.is_echoed(&fact.text)) {
            fact.text = MASK.into();
        }
    }

    /// The host asked, without the brackets of an IPv6 address.
    pub fn host(&self) -> &str {
        self.base.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']')
    }

    /// The host as a request names it: with its port unless that is the scheme's own.
    pub fn authority(&self) -> String {
        let host = self.base.host_str().unwrap_or_default();
        self.base.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
    }

    /// Whether asking it takes TLS.
    pub fn is_https(&self) -> bool {
        self.base.scheme() == "https"
    }

    /// The endpoint at a socket of this host.
    pub fn local(address: SocketAddr) -> Result<Self, BadUrl> {
        Self::parse(&format!("http://{address}"))
    }

    /// The URL of a path below the base, e.g. `/metrics`, with credentials: not for the screen.
    pub fn url(&self, path: &str) -> Url {
        let mut url = self.base.clone();
        url.set_path(&format!("{}{path}", self.path()));
        url
    }

    /// The base URL for the screen.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// Host, port and path, the host left out when it is this one: `:8000`, `gpu7:8000`, `:8000/llm/a`.
    pub fn place(&self) -> String {
        self.address().map(|address| format!("{address}{}", self.path())).unwrap_or_default()
    }

    /// What it is compared by. Every endpoint has one: [`Endpoint::parse`] sees to it.
    pub fn address(&self) -> Option<Address<'_>> {
        Address::parse(self.base.as_str())
    }

    /// Whether it is on this host for certain: a name can lead anywhere.
    pub fn is_local(&self) -> bool {
        self.address().is_some_and(|address| address.is_local())
    }

    /// The port asked.
    pub fn port(&self) -> u16 {
        self.base.port_or_known_default().unwrap_or(80)
    }

    /// Whether another endpoint has the same origin and lies at or below this one's path.
    pub fn covers(&self, other: &Self) -> bool {
        self.address().zip(other.address()).is_some_and(|(one, other)| one.covers(&other))
    }

    /// Length of the path: the longer of two prefixes says more.
    pub fn path_length(&self) -> usize {
        self.path().len()
    }

    fn path(&self) -> &str {
        self.base.path().trim_end_matches('/')
    }

    /// Whether both lead to the same place, as far as the text tells.
    pub fn same_place(&self, other: &Self) -> bool {
        self.address().zip(other.address()).is_some_and(|(one, other)| one.same_place(&other))
    }
}

/// For a text that is no URL: what stands after the credentials and before a query.
fn without_secrets(text: &str) -> String {
    let text = text.split(['?', '#']).next().unwrap_or_default();
    let text = text.rsplit('@').next().unwrap_or_default();
    crate::model::text::clean(text)
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_write_it() {
        let cases = [
            ("localhost:8000", "http://localhost:8000", "http://localhost:8000/metrics", ":8000"),
            ("http://gpu7:8000/", "http://gpu7:8000", "http://gpu7:8000/metrics", "gpu7:8000"),
            ("http://gpu7:8000/metrics", "http://gpu7:8000", "http://gpu7:8000/metrics", "gpu7:8000"),
            ("http://gpu7/llm/a/metrics/", "http://gpu7/llm/a", "http://gpu7/llm/a/metrics", "gpu7:80/llm/a"),
            ("http://[::1]:9/x/?token=hunter2#y", "http://[::1]:9/x", "http://[::1]:9/x/metrics", "[::1]:9/x"),
            ("https://gw/llm/a", "https://gw/llm/a", "https://gw/llm/a/metrics", "gw:443/llm/a"),
            ("HTTPS://GW:8443/metrics", "https://gw:8443", "https://gw:8443/metrics", "gw:8443"),
            (" 10.0.0.5:30000 ", "http://10.0.0.5:30000", "http://10.0.0.5:30000/metrics", "10.0.0.5:30000"),
        ];
        for (text, shown, metrics, place) in cases {
            let endpoint = Endpoint::parse(text).unwrap();
            assert_eq!((endpoint.shown(), endpoint.url("/metrics").as_str()), (shown, metrics), "{text}");
            assert_eq!(endpoint.place(), place);
        }
    }

    #[test]
    fn credentials_are_used_but_never_shown() {
        let endpoint = Endpoint::parse("http://ann:hunter2@gpu7:8000/v").unwrap();
        assert_eq!(endpoint.url("/metrics").as_str(), "http://ann:hunter2@gpu7:8000/v/metrics");
        let shown = format!("{} {} {endpoint:?}", endpoint.shown(), endpoint.place());
        assert!(!shown.contains("hunter2") && !shown.contains("ann"), "{shown}");
        let typos = ["http:/ann:hunter2@gpu7:8000", "http//ann:hunter2@gpu7", "ann:hunter2/x@gpu7:80"];
        for text in typos {
            let bad = Endpoint::parse(text).unwrap_err();
            assert!(!format!("{bad} {}", bad.shown).contains("hunter2"), "{bad} {}", bad.shown);
        }
        for text in ["http://ann:hunter2@gpu 7:8000", "ftp://ann:hunter2@gpu7", "x://ann:hunter2@y?key=hunter2"] {
            let bad = Endpoint::parse(text).unwrap_err();
            let shown = format!("{bad} {} {bad:?}", bad.shown);
            assert!(!shown.contains("hunter2") && shown.contains("--engine http://"), "{shown}");
        }
        assert!(Endpoint::parse("").is_err() && Endpoint::parse("http://").is_err());
        assert!(Endpoint::parse("8000").is_err(), "0.0.31.64 is not what was meant");
    }

    #[test]
    fn only_what_cannot_be_elsewhere_is_on_this_host() {
        let local = |text| Endpoint::parse(text).unwrap().is_local();
        assert!(["localhost:8000", "127.8.8.8:1", "[::1]:1", "0.0.0.0:1"].into_iter().all(local));
        let elsewhere = ["127.example:1", "localhost.example:1", "10.0.0.1:1", "gpu7:1", "[fe80::1]:1"];
        assert!(!elsewhere.into_iter().any(local));
    }

    #[test]
    fn what_opens_it_is_a_sensitive_header() {
        let sent = |text: &str| {
            let headers = Endpoint::parse(text).unwrap().headers();
            headers.get(AUTHORIZATION).map(|value| (value.to_str().unwrap().to_owned(), value.is_sensitive()))
        };
        assert_eq!(sent("http://gpu7:8000"), None);
        // printf 'ann:p@ss word' | base64
        assert_eq!(sent("http://ann:p%40ss%20word@gpu7"), Some(("Basic YW5uOnBAc3Mgd29yZA==".to_owned(), true)));
        assert_eq!(sent("http://ann@gpu7"), Some(("Basic YW5uOg==".to_owned(), true)));
        let endpoint = Endpoint::parse("http://ann:x@gpu7").unwrap();
        assert!(endpoint.is_echoed("no user ann") && !Endpoint::parse("http://gpu7").unwrap().is_echoed("no user ann"));
    }

    #[test]
    fn host_and_authority_are_what_a_request_needs() {
        let of = |text: &str| {
            let endpoint = Endpoint::parse(text).unwrap();
            (endpoint.host().to_owned(), endpoint.authority())
        };
        assert_eq!(of("http://[::1]:9/x"), ("::1".to_owned(), "[::1]:9".to_owned()));
        assert_eq!(of("https://ann:x@gw:443/x"), ("gw".to_owned(), "gw".to_owned()));
        assert_eq!(of("gpu7:8000"), ("gpu7".to_owned(), "gpu7:8000".to_owned()));
    }

    #[test]
    fn one_place_has_many_names() {
        let parse = |text| Endpoint::parse(text).unwrap();
        assert!(parse("localhost:8000").same_place(&parse("http://127.0.0.1:8000/metrics")));
        // In any notation that a browser takes.
        assert!(parse("0.0.0.0:8000").same_place(&parse("http://0x7f.1:8000")));
        assert!(parse("http://2130706433:8000").is_local() && parse("127.1:8000").is_local());
        assert!(!parse("localhost:8000").same_place(&parse("localhost:8001")));
        assert!(!parse("localhost:8000/a").same_place(&parse("localhost:8000/b")));
    }
}
