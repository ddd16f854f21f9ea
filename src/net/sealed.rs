//! What another process of this program has to be told to speak to one endpoint as this one may: the address with user
//! name and password, the key, and whom to trust. One line of text, for a pipe between the two.
//!
//! Invariants: no `Debug` shows it; it opens for the endpoint only that it was made for.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::access::{From, Key};
use super::endpoint::Endpoint;
use super::tls::Authorities;

/// Longest line, bytes: as many certificates as a file of authorities may hold, and room for keys.
pub const MAX_SEALED: usize = 4 << 20;

/// A line that opens one endpoint.
#[derive(Clone, PartialEq, Eq)]
pub struct Sealed(String);

#[derive(Serialize, Deserialize)]
struct Content {
    /// With user name and password.
    url: String,
    headers: Vec<(String, String)>,
    from: From,
    /// DER, two hexadecimal digits a byte.
    authorities: Vec<String>,
}

impl Sealed {
    /// Seals an endpoint with its key and the authorities that are trusted for it.
    pub fn new(endpoint: &Endpoint, authorities: &Authorities) -> Self {
        let content = Content {
            url: endpoint.url("").into(),
            headers: endpoint.key().told(),
            from: endpoint.key().from(),
            authorities: authorities.der().map(to_hex).collect(),
        };
        // Texts and flags always have a JSON.
        Self(serde_json::to_string(&content).unwrap_or_default())
    }

    /// A line that came through a pipe.
    pub const fn of(line: String) -> Self {
        Self(line)
    }

    /// The line, for the pipe and nothing else.
    pub fn line(&self) -> &str {
        &self.0
    }

    /// Opens it for the endpoint that is shown as `shown`; `None` when it was made for another one or is no such line.
    pub fn open(&self, shown: &str) -> Option<(Endpoint, Authorities)> {
        let content: Content = serde_json::from_str(&self.0).ok()?;
        let key = Key::of(&content.headers, content.from)?;
        let endpoint = Endpoint::parse(&content.url).ok()?.with(key);
        let der: Option<Vec<_>> = content.authorities.iter().map(|hex| of_hex(hex)).collect();
        (endpoint.shown() == shown).then_some((endpoint, Authorities::of_der(der?)))
    }
}

impl fmt::Debug for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sealed")
    }
}

fn to_hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

fn of_hex(hex: &str) -> Option<Vec<u8>> {
    let nibble = |digit: u8| char::from(digit).to_digit(16).map(|nibble| nibble as u8);
    let pair = |pair: &[u8]| Some(nibble(*pair.first()?)? << 4 | nibble(*pair.get(1)?)?);
    hex.as_bytes().chunks(2).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::access::{Access, Token};

    const SECRET: &str = "hunter2-and-more";

    fn sealed(url: &str, token: &str) -> Sealed {
        let access = Access { token: Token::parse(token).unwrap(), ..Access::default() };
        let der = vec![vec![0_u8, 1, 0x7f, 0xff], vec![]];
        Sealed::new(&access.equip(Endpoint::parse(url).unwrap(), true), &Authorities::of_der(der))
    }

    #[test]
    fn it_opens_what_it_was_made_for_and_nothing_else() {
        let sealed = sealed("https://gw/llm/a", SECRET);
        assert!(!sealed.line().contains('\n'));
        let (endpoint, authorities) = Sealed::of(sealed.line().to_owned()).open("https://gw/llm/a").unwrap();
        let header = endpoint.key().headers().get("authorization").unwrap();
        assert_eq!(header.to_str().unwrap(), format!("Bearer {SECRET}"));
        assert!(header.is_sensitive(), "no Debug may show it here either");
        assert!(endpoint.key().from().refused(401).contains("WARPTOP_ENGINE_TOKEN"));
        let der: Vec<_> = authorities.der().map(<[u8]>::to_vec).collect();
        assert_eq!(der, [vec![0, 1, 0x7f, 0xff], vec![]]);
        for other in ["https://gw/llm/b", "https://gw/llm", "http://gw/llm/a", ""] {
            assert!(sealed.open(other).is_none(), "{other}");
        }
        for garbage in ["", "{}", "hello", &sealed.line()[1..]] {
            assert!(Sealed::of(garbage.to_owned()).open("https://gw/llm/a").is_none(), "{garbage}");
        }
    }

    #[test]
    fn user_name_and_password_go_along_and_nothing_is_shown() {
        let sealed = sealed("http://an%20n:hunter2%40x@gpu7:8000/v", "");
        let (endpoint, _) = sealed.open("http://gpu7:8000/v").unwrap();
        assert_eq!(endpoint.url("/v1").as_str(), "http://an%20n:hunter2%40x@gpu7:8000/v/v1");
        assert!(!format!("{sealed:?} {endpoint:?}").contains("hunter2"));
    }

    #[test]
    fn what_is_no_hexadecimal_is_refused() {
        assert_eq!(of_hex("00ff"), Some(vec![0, 255]));
        assert_eq!((of_hex("0"), of_hex("0g"), of_hex("é0")), (None, None, None));
    }
}
