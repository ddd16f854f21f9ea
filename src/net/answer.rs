//! Answers of an API: how much of one is read, and the words in it that may be shown.
//!
//! It must not know what was asked, and reads nothing itself. Invariant: words are cleaned, at most 100 characters, and
//! left out when they may hold a part of a key.

use super::endpoint::Endpoint;
use crate::model::text;

/// Longest body that is read, bytes, packed or not: a hundred times the metrics of vLLM.
pub const MAX_BODY: usize = 8 << 20;
/// So many bytes are read of an answer that only says what is wrong.
pub const MAX_ERROR_BODY: usize = 16 << 10;

/// The start of an answer, for the screen: the message alone when it is the JSON of an API. It may hold what was sent.
pub fn excerpt(body: &[u8]) -> String {
    let message = message(body).unwrap_or_else(|| {
        let start = body.get(..400).unwrap_or(body);
        String::from_utf8_lossy(start).into_owned()
    });
    text::clean(&message).chars().take(100).collect()
}

/// The message in `{"error": {"message": …}}`, `{"error": …}`, `{"detail": …}` or `{"message": …}`.
fn message(body: &[u8]) -> Option<String> {
    let json: serde_json::Value = serde_json::from_slice(body).ok()?;
    let places = ["/error/message", "/error", "/detail", "/message"];
    places.iter().find_map(|place| json.pointer(place)?.as_str().map(ToOwned::to_owned))
}

/// What an answer of this endpoint says is wrong: never empty, and never with a part of its key.
pub fn words(body: &[u8], endpoint: &Endpoint) -> String {
    if body.trim_ascii_start().starts_with(b"<") {
        return "a web page came with it".to_owned();
    }
    let words = excerpt(body);
    if words.is_empty() {
        "no words came with it".to_owned()
    } else if endpoint.is_echoed(&words) {
        "its words are left out, for they may hold a part of the key".to_owned()
    } else {
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::access::{Access, AuthFile, Token};

    #[test]
    fn the_message_of_an_api_is_found() {
        let cases = [
            (r#"{"error":{"code":501,"message":"no metrics here","type":"x"}}"#, "no metrics here"),
            (r#"{"error":"no"}"#, "no"),
            (r#"{"detail":"Not\u001b[31m Found"}"#, "Not Found"),
            (r#"{"message":"gone"}"#, "gone"),
            (r#"{"detail":[1]}"#, r#"{"detail":[1]}"#),
            ("Loading \n model", "Loading model"),
        ];
        for (body, words) in cases {
            assert_eq!(excerpt(body.as_bytes()), words);
        }
        assert_eq!(excerpt(&[b'x'; 5000]).len(), 100);
    }

    #[test]
    fn words_never_hold_a_key() {
        let access = Access { token: Token::parse("hunter2-hunter2").unwrap(), file: AuthFile::default() };
        let endpoint = access.equip(Endpoint::parse("http://gpu7").unwrap(), true);
        assert_eq!(words(br#"{"error":"too many requests"}"#, &endpoint), "too many requests");
        for echo in ["Bearer hunter2-hunter2 is bad", r#"{"error":"key nter2-h is bad"}"#] {
            assert!(words(echo.as_bytes(), &endpoint).starts_with("its words are left out"), "{echo}");
        }
        assert_eq!(words(b" ", &endpoint), "no words came with it");
        assert_eq!(words(b"\n<html>hunter2-hunter2", &endpoint), "a web page came with it");
    }
}
