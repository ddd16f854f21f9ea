//! Keys: which request may carry which secret, where secrets come from, and that they go nowhere else.
//!
//! It must not know HTTP answers or engines. Invariants: a secret is in a header value that is marked
//! sensitive, so that no `Debug` shows it; no error holds a word of what was read; a token from the
//! environment goes to engines that the user named, never to one that was merely found or to an exporter.

use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};

use super::endpoint::Endpoint;
use super::file;

/// The environment variable that holds a bearer token for the engines given with `--engine`.
pub const TOKEN_VARIABLE: &str = "WARPTOP_ENGINE_TOKEN";

/// Longest file of keys that is read.
const MAX_FILE: u64 = 1 << 20;
/// Headers that belong to the connection or to warptop itself.
const RESERVED: &[&str] = &[
    "accept-encoding",
    "connection",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// What may be sent, and where to.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// For named engines.
    pub token: Option<Token>,
    /// For whatever its lines cover.
    pub file: AuthFile,
}

/// A bearer token as the value of `Authorization`.
#[derive(Clone, Debug)]
pub struct Token(HeaderValue);

/// The text is no token that a header can carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{TOKEN_VARIABLE} holds a space or another character that no key has: set it to the key alone")]
pub struct BadToken;

impl Token {
    /// Takes the text of the environment variable; `None` when it is empty.
    pub fn parse(text: &str) -> Result<Option<Self>, BadToken> {
        let text = text.trim();
        if text.is_empty() { Ok(None) } else { bearer(text).map(|value| Some(Self(value))).ok_or(BadToken) }
    }
}

fn bearer(token: &str) -> Option<HeaderValue> {
    if token.contains(char::is_whitespace) { None } else { secret(&format!("Bearer {token}")) }
}

/// A header value that is never shown.
fn secret(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// A file with a header for each URL prefix (`--engine-auth`).
#[derive(Clone, Debug, Default)]
pub struct AuthFile(Vec<Line>);

#[derive(Clone, Debug)]
struct Line {
    prefix: Endpoint,
    name: HeaderName,
    value: HeaderValue,
}

/// Why a file of keys cannot be used. Says nothing of what is in it.
#[derive(Debug, thiserror::Error)]
pub enum AuthFileError {
    /// The system's words.
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
    /// Its mode lets others in.
    #[error("its mode {0:03o} lets other users in, and it holds keys: chmod 600 it")]
    Open(u32),
    /// It is no list of keys.
    #[error("it is longer than {} MiB: not a list of keys", MAX_FILE >> 20)]
    TooLong,
    /// A line that cannot be understood.
    #[error("line {line}: {why}")]
    Line {
        /// Counted from 1.
        line: usize,
        /// Fixed words.
        why: &'static str,
    },
}

impl AuthFile {
    /// Reads a file that other users can neither read nor write. Pipes are files here.
    pub fn read(path: &Path) -> Result<Self, AuthFileError> {
        let file = file::open(path)?;
        let mode = file.metadata()?.permissions().mode() & 0o777;
        if mode & 0o026 != 0 {
            return Err(AuthFileError::Open(mode));
        }
        let bytes = file::read(file, MAX_FILE)?.ok_or(AuthFileError::TooLong)?;
        let text = std::str::from_utf8(&bytes).map_err(|_| io::Error::new(ErrorKind::InvalidData, "it is no UTF-8"))?;
        Self::parse(text)
    }

    /// Understands the text of such a file.
    ///
    /// # Errors
    /// The first line that is wrong, without a word of it.
    pub fn parse(text: &str) -> Result<Self, AuthFileError> {
        let mut lines: Vec<Line> = Vec::new();
        for (i, text) in text.lines().enumerate() {
            let text = text.trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let bad = |why| AuthFileError::Line { line: i + 1, why };
            let line = Line::parse(text).map_err(bad)?;
            if lines.iter().any(|other| other.name == line.name && other.prefix == line.prefix) {
                return Err(bad("the same header for the same URL stands on a line before"));
            }
            lines.push(line);
        }
        Ok(Self(lines))
    }

    /// The headers of the longest prefix that covers an endpoint.
    fn headers(&self, endpoint: &Endpoint) -> HeaderMap {
        let covering = || self.0.iter().filter(|line| line.prefix.covers(endpoint));
        let longest = covering().map(|line| line.prefix.path_length()).max();
        let chosen = covering().filter(|line| Some(line.prefix.path_length()) == longest);
        chosen.map(|line| (line.name.clone(), line.value.clone())).collect()
    }
}

impl Line {
    fn parse(text: &str) -> Result<Self, &'static str> {
        let (prefix, header) = text.split_once(char::is_whitespace).ok_or("nothing follows the URL")?;
        let is_url = ["http://", "https://"].iter().any(|scheme| prefix.starts_with(scheme));
        if !is_url || prefix.contains(['@', '?', '#']) {
            return Err("it must start with http://HOST:PORT/PATH or https://…, without user name or query");
        }
        let prefix = Endpoint::parse(prefix).map_err(|_| "its URL cannot be read")?;
        let header = header.trim();
        if let Some((word, token)) = header.split_once(char::is_whitespace)
            && word.eq_ignore_ascii_case("bearer")
        {
            let value = bearer(token.trim()).ok_or("one word must follow 'bearer', of what a header can carry")?;
            return Ok(Self { prefix, name: AUTHORIZATION, value });
        }
        let (name, value) = header.split_once(':').ok_or("after the URL: 'bearer TOKEN' or 'Header-Name: value'")?;
        let name = HeaderName::from_bytes(name.trim().as_bytes()).map_err(|_| "the header's name cannot be one")?;
        if RESERVED.contains(&name.as_str()) {
            return Err("this header is not for keys");
        }
        let value = secret(value.trim()).ok_or("a header cannot carry this value")?;
        if value.is_empty() {
            return Err("the header has no value");
        }
        Ok(Self { prefix, name, value })
    }
}

impl Access {
    /// An endpoint with what may be sent to it. `named`: it is an engine, and the user gave it with `--engine`.
    pub fn equip(&self, endpoint: Endpoint, named: bool) -> Endpoint {
        let mut headers = self.file.headers(&endpoint);
        let mut from = From { token_allowed: named, file: !headers.is_empty(), ..From::default() };
        let basic = endpoint.has_credentials();
        from.url = basic && !headers.contains_key(AUTHORIZATION);
        if let Some(Token(value)) = self.token.as_ref().filter(|_| named && !basic)
            && !headers.contains_key(AUTHORIZATION)
        {
            headers.insert(AUTHORIZATION, value.clone());
            from.token = true;
        }
        endpoint.with(Key { headers, from })
    }
}

/// What goes with the requests to one endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Key {
    headers: HeaderMap,
    from: From,
}

/// Where the parts of a key come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(clippy::struct_excessive_bools, reason = "independent facts; each is a word of the same sentence")]
pub struct From {
    /// User name and password in the URL.
    url: bool,
    token: bool,
    file: bool,
    /// A token in the environment would be sent.
    token_allowed: bool,
}

impl From {
    /// What to say when the key is missing or refused.
    pub fn refused(self, status: u16) -> String {
        let sources = [
            (self.url, "user name and password in the URL"),
            (self.token, TOKEN_VARIABLE),
            (self.file, "the --engine-auth file"),
        ];
        let given: Vec<&str> = sources.iter().filter(|(given, _)| *given).map(|(_, words)| *words).collect();
        if !given.is_empty() {
            let right = if status == 403 { ", and whether it may read metrics" } else { "" };
            return format!(
                "present, but the key given was refused (HTTP {status}): check {}{right}",
                given.join(" and ")
            );
        }
        let place = if self.token_allowed {
            "put it into WARPTOP_ENGINE_TOKEN or a file for --engine-auth"
        } else {
            "put it into a file for --engine-auth"
        };
        format!("present, needs a key (HTTP {status}): {place}")
    }
}

impl Key {
    /// The headers, each marked sensitive.
    pub const fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// Name and value of each header: for [`super::sealed`] only.
    pub(super) fn told(&self) -> Vec<(String, String)> {
        let told = |(name, value): (&HeaderName, &HeaderValue)| {
            (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        self.headers.iter().map(told).collect()
    }

    /// The key of which this was told; `None` where a header cannot be one.
    pub(super) fn of(told: &[(String, String)], from: From) -> Option<Self> {
        let header =
            |(name, value): &(String, String)| Some((HeaderName::from_bytes(name.as_bytes()).ok()?, secret(value)?));
        Some(Self { headers: told.iter().map(header).collect::<Option<_>>()?, from })
    }

    /// Where they come from.
    pub const fn from(&self) -> From {
        self.from
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "hunter2-and-more";

    fn access(file: &str, token: &str) -> Access {
        Access { token: Token::parse(token).unwrap(), file: AuthFile::parse(file).unwrap() }
    }

    /// What is sent as `Authorization`, or else as `x-key`.
    fn sent(access: &Access, url: &str, named: bool) -> String {
        let endpoint = access.equip(Endpoint::parse(url).unwrap(), named);
        let headers = endpoint.key().headers();
        let value = headers.get(AUTHORIZATION).or(headers.get("x-key"));
        value.map_or(String::new(), |value| value.to_str().unwrap().to_owned())
    }

    #[test]
    fn a_line_covers_its_origin_from_a_whole_segment_on() {
        let access = access(
            "# gateways\n\n https://gw/llm/a \t bearer one\nhttps://gw/llm X-Key: two: 2\nhttp://localhost:8000 Bearer three",
            "",
        );
        let cases = [
            ("https://gw/llm/a", "Bearer one"),
            ("https://GW:443/llm/a/deep/metrics", "Bearer one"),
            ("https://gw/llm/a/../a", "Bearer one"),
            ("https://gw/llm/ab", "two: 2"),
            ("https://gw/llm/a/../b", "two: 2"),
            ("https://gw/llm/%2e%2e/x", ""),
            ("https://gw/", ""),
            ("http://gw:443/llm/a", ""),
            ("https://gw:8443/llm/a", ""),
            ("https://gw.example/llm/a", ""),
            ("https://xgw/llm/a", ""),
            ("127.0.0.1:8000", "Bearer three"),
            ("[::1]:8000/v", "Bearer three"),
            ("https://127.0.0.1:8000", ""),
            ("10.0.0.1:8000", ""),
        ];
        for (url, value) in cases {
            assert_eq!((sent(&access, url, true), sent(&access, url, false)), (value.into(), value.into()), "{url}");
        }
    }

    #[test]
    fn the_token_goes_to_named_engines_only_and_yields_to_what_is_closer() {
        let access = access("http://gpu7 bearer file\nhttp://gpu8 x-tenant: a", "env");
        assert_eq!(sent(&access, "gpu9:8000", true), "Bearer env");
        assert_eq!(sent(&access, "gpu9:8000", false), "", "whatever listens there could fish for it");
        assert_eq!(sent(&access, "gpu7", true), "Bearer file");
        assert_eq!(sent(&access, "gpu8", true), "Bearer env", "beside a header that is no Authorization");
        assert_eq!(sent(&access, "ann:pw@gpu9:8000", true), "", "the URL's own are sent");
    }

    #[test]
    fn what_is_wrong_in_a_file_is_told_by_line_and_nothing_of_it_is_shown() {
        let bad = [
            SECRET.to_owned(),
            format!("http://{SECRET}"),
            format!("{SECRET} bearer x"),
            format!("ftp://gpu7 bearer {SECRET}"),
            format!("http://ann:{SECRET}@gpu7 bearer x"),
            format!("http://gpu7?key={SECRET} bearer x"),
            format!("http://gpu7/{SECRET}:x:y] {SECRET}"),
            format!("http:// bearer {SECRET}"),
            format!("http://gpu7 {SECRET}"),
            format!("http://gpu7 bearer {SECRET} {SECRET}"),
            format!("http://gpu7 bearer {SECRET}\u{1}"),
            format!("http://gpu7 {SECRET} x: y"),
            format!("http://gpu7 Host: {SECRET}"),
            format!("http://gpu7 x-{SECRET}:"),
            format!("http://gpu7 x: {SECRET}\u{7f}"),
        ];
        for text in &bad {
            let error = AuthFile::parse(&format!("# fine\nhttp://a bearer {SECRET}\n{text}\n")).unwrap_err();
            let words = format!("{error} {error:?}");
            assert!(words.starts_with("line 3: ") && !words.contains("hunter2"), "{words}");
        }
        let twice = AuthFile::parse("http://a bearer b\nhttp://a/ Authorization: c").unwrap_err();
        assert!(twice.to_string().starts_with("line 2: the same header"), "{twice}");
        assert!(!BadToken.to_string().is_empty() && Token::parse("a b").is_err() && Token::parse("a\n").is_ok());
        assert!(Token::parse(" \n").unwrap().is_none() && Token::parse("\u{e4}\u{1}").is_err());
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        use std::io::Write;
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(file, "http://gpu7 bearer {SECRET}").unwrap();
        for (mode, fine) in
            [(0o600, true), (0o400, true), (0o640, true), (0o644, false), (0o660, false), (0o602, false)]
        {
            file.as_file().set_permissions(std::fs::Permissions::from_mode(mode)).unwrap();
            match AuthFile::read(file.path()) {
                Ok(read) => assert!(fine && !format!("{read:?}").contains("hunter2"), "{mode:o}"),
                Err(error) => {
                    assert!(!fine && error.to_string().contains("chmod 600"), "{mode:o}: {error}");
                }
            }
        }
        assert!(matches!(AuthFile::read(Path::new("/no/such/file")), Err(AuthFileError::Io(_))));
        assert!(AuthFile::read(Path::new("/")).is_err());
        assert!(AuthFile::read(Path::new("/dev/zero")).is_err(), "it must end");
    }

    #[test]
    fn no_debug_shows_a_secret_and_an_echo_is_noticed() {
        let access = access(&format!("http://gpu7 X-Key: {SECRET}"), SECRET);
        let endpoint = access.equip(Endpoint::parse("http://gpu7").unwrap(), true);
        let shown = format!("{access:?} {endpoint:?} {:?}", endpoint.key());
        assert!(!shown.contains("hunter2") && shown.contains("Sensitive"), "{shown}");
        let echoed = |text| endpoint.is_echoed(text);
        for text in ["no such key: hunter2-and-more", "key hunter2*** is wrong", "…and-more"] {
            assert!(echoed(text), "{text}");
        }
        assert!(!echoed("Bearer of bad news") && !echoed("hunt…more") && !echoed(""));
        let url = Access::default().equip(Endpoint::parse("ann:pass-word@gpu7").unwrap(), true);
        assert!(url.is_echoed("ann is unknown") && url.is_echoed("PASSWORD") && !url.is_echoed("anything"));
    }
}
