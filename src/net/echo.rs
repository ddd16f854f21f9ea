//! Finds a key in what came back from the place that it was sent to.
//!
//! It must not know where a key comes from. Invariants: it holds digests and pieces of keys and shows none of them; where
//! nothing was sent, looking costs nothing.

use std::collections::HashSet;
use std::fmt;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use percent_encoding::percent_decode_str;
use reqwest::header::{AUTHORIZATION, HeaderMap};

/// So many letters and digits of a key in a row give it away.
const PART: usize = 6;
/// What stands for a text that may hold a key.
pub const MASK: &str = "***";

/// What must not be shown of the headers that open an endpoint.
///
/// Letters and digits alone are compared, in lower case, so that neither the separators of a key nor its case matter.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Echo {
    /// Every part of a key.
    parts: HashSet<[u8; PART]>,
    /// Keys that are too short for that, and user names: found as whole words.
    words: Vec<String>,
}

impl fmt::Debug for Echo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sensitive")
    }
}

impl Echo {
    /// Of the headers that go with each request.
    pub fn of(headers: &HeaderMap) -> Self {
        let mut echo = Self::default();
        for (name, value) in headers {
            let value = String::from_utf8_lossy(value.as_bytes());
            match value.split_once(char::is_whitespace).filter(|_| name == AUTHORIZATION) {
                Some((scheme, secret)) => {
                    secret.split_whitespace().for_each(|word| echo.add(word));
                    if scheme.eq_ignore_ascii_case("basic") {
                        echo.add_pair(secret.trim());
                    }
                }
                None => value.split_whitespace().for_each(|word| echo.add(word)),
            }
        }
        echo
    }

    /// Whether nothing was sent.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty() && self.words.is_empty()
    }

    /// User name and password (RFC 7617). The password may be empty: then the name is the key.
    fn add_pair(&mut self, coded: &str) {
        let either = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
        let Ok(pair) = GeneralPurpose::new(&STANDARD, either).decode(coded) else { return };
        let pair = String::from_utf8_lossy(&pair);
        match pair.split_once(':') {
            Some((name, password)) if !password.is_empty() => {
                self.add_word(name);
                self.add(password);
            }
            _ => self.add(pair.trim_end_matches(':')),
        }
    }

    fn add(&mut self, secret: &str) {
        let plain = plain(secret);
        if plain.len() < PART {
            self.add_word(secret);
        }
        self.parts.extend(parts(&plain));
    }

    fn add_word(&mut self, word: &str) {
        if !word.is_empty() {
            self.words.push(word.to_lowercase());
        }
    }

    /// Whether a text may hold a part of a key: as it is, or percent-encoded.
    pub fn is_in(&self, text: &str) -> bool {
        if self.is_empty() {
            return false;
        }
        self.is_plainly_in(text)
            || (text.contains('%') && self.is_plainly_in(&percent_decode_str(text).decode_utf8_lossy()))
    }

    fn is_plainly_in(&self, text: &str) -> bool {
        let lower = text.to_lowercase();
        parts(&plain(text)).any(|part| self.parts.contains(&part))
            || self.words.iter().any(|word| stands_in(word, &lower))
    }
}

/// The letters and digits of a text, in lower case.
fn plain(text: &str) -> String {
    text.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

fn parts(plain: &str) -> impl Iterator<Item = [u8; PART]> {
    plain.as_bytes().windows(PART).filter_map(|part| part.try_into().ok())
}

/// Whether a word stands in a text with no letter or digit next to it.
fn stands_in(word: &str, text: &str) -> bool {
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        ![before, after].into_iter().flatten().any(char::is_alphanumeric)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqwest::header::{HeaderName, HeaderValue};

    fn echo(name: &'static str, value: &str) -> Echo {
        Echo::of(&HeaderMap::from_iter([(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())]))
    }

    #[test]
    fn a_token_is_found_in_its_usual_forms() {
        let echo = echo("authorization", "Bearer zqSecretKey-0123456789");
        for text in [
            "no such key: Bearer zqSecretKey-0123456789",
            "zqSecr***",
            "http://zqsecretkey-0123456789.evil.test",
            "ZQSECRETKEY",
            "zqSecretKey_0123456789",
            "zqSec retKe y-012",
            "%7a%71%53%65%63%72%65%74",
            "user 3456789",
        ] {
            assert!(echo.is_in(text), "{text}");
        }
        for text in ["Bearer of bad news", "zqSe…789", "", "100 % of it", "meta-llama/Llama-3.1-8B"] {
            assert!(!echo.is_in(text), "{text}");
        }
        assert!(!format!("{echo:?}").contains("secret"));
    }

    #[test]
    fn user_and_password_are_found_in_base64_and_each_alone() {
        // printf 'annabell:hunter2passw' | base64
        let echo = echo("authorization", "Basic YW5uYWJlbGw6aHVudGVyMnBhc3N3");
        for text in [
            "wrong: annabell:hunter2passw",
            "annabell is unknown",
            "hunter2passw",
            "nter2pas",
            "YW5uYWJlbGw6",
            "Annabell",
        ] {
            assert!(echo.is_in(text), "{text}");
        }
        assert!(!echo.is_in("wrong user or password") && !echo.is_in("annabells"));
        // printf 'hunter2passw:' | base64
        assert!(self::echo("authorization", "basic aHVudGVyMnBhc3N3Og").is_in("xhunter2pass"), "the name is the key");
    }

    #[test]
    fn a_short_key_is_a_word_and_no_key_is_nowhere() {
        let echo = echo("x-key", "ab1");
        assert!(echo.is_in("key 'AB1' is wrong") && echo.is_in("key=%61b1") && !echo.is_in("cab1n"));
        assert!(!Echo::default().is_in("anything") && Echo::default().is_empty());
    }
}
