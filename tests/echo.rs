//! Engines that send back the key that they were sent: it is on no screen and in no recording.

#![allow(clippy::unwrap_used, clippy::panic, reason = "in a test an error is a failure")]

mod support;

use std::io::Write;
use std::net::TcpListener;

use support::{BODY, PATIENT, Server, Session, http, path, read_head, vllm};
use warptop::model::{FactKey, SourceId, Subject};
use warptop::net::access::{Access, AuthFile, Token};
use warptop::sampler::Options;
use warptop::store::Data;

const SECRET: &str = "hunter2-hunter2";

/// Fault: engine: it sends its key back: in an error, a redirect, names of metrics, its model, its version, its adapters
/// Seen: `***`, or the message without the engine's words
/// Works: all of its numbers
/// Recovers: when its answers no longer hold the key
#[test]
fn a_key_that_comes_back_in_any_field_is_masked() {
    const BASIC: &str = "YW5uYWJlbGw6aHVudGVyMi1odW50ZXIy"; // printf 'annabell:hunter2-hunter2' | base64
    let server = Server::accept(TcpListener::bind("127.0.0.1:0").unwrap(), |mut stream| {
        let Some(head) = read_head(&mut stream) else { return };
        let (mode, path) = path(&head)[1..].split_once('/').unwrap();
        let plain = |text: &str| http("200 OK", "text/plain", text.as_bytes());
        let error = |text: &str| http("500 Oops", "text/plain", text.as_bytes());
        let with = |header: &str| {
            let text = String::from_utf8(http("302 Found", "text/plain", b"")).unwrap();
            text.replacen("\r\n", &format!("\r\n{header}\r\n"), 1).into_bytes()
        };
        let packed = with(&format!("Content-Encoding: {SECRET}"));
        drop(stream.write_all(&match (mode, path) {
            ("redirect", _) => with(&format!("Location: http://{SECRET}.example/")),
            ("groups", _) => with("Location: http://hun.ter2.hun.ter2.example/"),
            ("packed", _) => String::from_utf8(packed).unwrap().replacen("302", "200", 1).into_bytes(),
            ("names", _) => plain("hunter2_hunter2 1\nother 2\n"),
            ("upper", _) => error(&SECRET.to_uppercase()),
            ("percent", _) => error("%68%75%6e%74%65%72%32"),
            ("basic", _) => error(&format!("wrong: annabell {SECRET}")),
            (_, "version") => http("200 OK", "application/json", br#"{"version":"1-hunter2-h"}"#),
            (_, "v1/models") => {
                let list = br#"{"data":[{"id":"hunter2-h","parent":"x"},{"id":"y","max_model_len":32768}]}"#;
                http("200 OK", "application/json", list)
            }
            _ => vllm(&format!("/{path}"), &BODY.replace("model_name=\"", "model_name=\"Hunter2Hunter2"), ""),
        }));
    });
    let url = format!("http://127.0.0.1:{}", server.port);
    let modes = ["redirect", "groups", "packed", "names", "upper", "percent", "basic", "model"];
    let engine_urls = modes.map(|mode| format!("{url}/{mode}")).to_vec();
    let file = AuthFile::parse(&format!("{url}/basic Authorization: Basic {BASIC}")).unwrap();
    let access = Access { token: Token::parse(SECRET).unwrap(), file };
    let session = Session::with(&Options { engine_urls, access, ..Options::default() }, PATIENT);
    let why = |data: &Data, index| {
        let source = data.source(SourceId::Engine(index));
        source.map_or(String::new(), |source| source.state_at(data.newest()).why().to_owned())
    };
    let facts = |data: &Data| {
        let facts = [FactKey::Model, FactKey::Version, FactKey::LoraLoaded];
        facts.map(|key| data.fact(Subject::Engine(7), key, data.newest()).unwrap_or_default().to_owned())
    };
    let words = [
        "redirects to *** (HTTP 302)",
        "redirects to *** (HTTP 302)",
        "is packed (***)",
        "the names in its answer are left out, for they may hold a part of the key",
        "answers with HTTP 500",
        "answers with HTTP 500",
        "answers with HTTP 500",
        "",
    ];
    let said = session.wait("all engines", |data| {
        let all: Vec<String> = (0..8).map(|index| why(data, index)).collect();
        let told = facts(data).iter().all(|fact| !fact.is_empty());
        let done = told && all.iter().zip(words).all(|(why, words)| why.contains(words));
        done.then_some((all, facts(data)))
    });
    assert_eq!(said.1, ["***"; 3]);
    let said = format!("{said:?}").to_lowercase();
    for part in ["hunter2", "ter2.hun", "annabell", "%68%75"] {
        assert!(!said.contains(part), "{part}: {said}");
    }
}
