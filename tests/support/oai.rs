//! A serving engine that streams: enough of the OpenAI interface for a load, with a key where one is wanted and metrics
//! where there are any. Keeps connections open, as engines do.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::{MODELS, Server};

/// How it behaves.
#[derive(Clone, Default)]
pub(crate) struct Manners {
    /// Between two events.
    pub(crate) pause: Duration,
    /// What `/metrics` says; without it there is none (HTTP 404).
    pub(crate) metrics: Option<&'static str>,
    /// The bearer token that every request needs.
    pub(crate) key: Option<&'static str>,
}

/// The engine, and what it has seen.
pub(crate) struct Engine {
    pub(crate) server: Server,
    /// Streams that were asked for.
    pub(crate) streams: Arc<AtomicUsize>,
    /// Connections that are open.
    pub(crate) open: Arc<AtomicUsize>,
    /// Heads of all requests.
    pub(crate) heads: Arc<Mutex<Vec<String>>>,
}

impl Engine {
    pub(crate) fn start(manners: Manners) -> Self {
        let (streams, open) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let heads = Arc::new(Mutex::new(Vec::new()));
        let (seen, kept, lines) = (Arc::clone(&streams), Arc::clone(&heads), Arc::clone(&open));
        let server = Server::accept(TcpListener::bind("127.0.0.1:0").unwrap(), move |stream| {
            lines.fetch_add(1, Ordering::SeqCst);
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            while let Some((head, body)) = request(&mut reader) {
                kept.lock().unwrap().push(head.clone());
                if respond(&manners, &head, &body, &stream, &seen).is_err() {
                    break;
                }
            }
            lines.fetch_sub(1, Ordering::SeqCst);
        });
        Self { server, streams, open, heads }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.server.url())
    }

    pub(crate) fn streams(&self) -> usize {
        self.streams.load(Ordering::SeqCst)
    }
}

/// Head and body of the next request on a connection.
fn request(reader: &mut BufReader<TcpStream>) -> Option<(String, Vec<u8>)> {
    let mut head = String::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line.trim().is_empty() {
            break;
        }
        head.push_str(line.trim_end());
        head.push('\n');
    }
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok()).flatten()
    });
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    Some((head, body))
}

fn respond(
    manners: &Manners,
    head: &str,
    body: &[u8],
    mut stream: &TcpStream,
    streams: &AtomicUsize,
) -> std::io::Result<()> {
    let json = |status: &str, body: &str| plain(status, "application/json", body);
    let allowed = manners.key.is_none_or(|key| {
        head.lines().any(|line| line.to_ascii_lowercase() == format!("authorization: bearer {}", key.to_lowercase()))
    });
    if !allowed {
        return stream.write_all(&json("401 Unauthorized", r#"{"error":{"message":"no key"}}"#));
    }
    match super::path(head) {
        "/metrics" => stream.write_all(&match manners.metrics {
            Some(metrics) => plain("200 OK", "text/plain; version=0.0.4", metrics),
            None => json("404 Not Found", "{}"),
        }),
        "/v1/models" => stream.write_all(&json("200 OK", MODELS)),
        path @ ("/v1/completions" | "/v1/chat/completions") if head.starts_with("POST") => {
            generate(manners, path, body, stream, streams)
        }
        _ => stream.write_all(&json("404 Not Found", r#"{"detail":"Not Found"}"#)),
    }
}

fn plain(status: &str, kind: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// Tokens of a prompt: ids as they are, words by their number.
fn prompt_tokens(request: &serde_json::Value) -> usize {
    let words = |text: &str| text.split_whitespace().count();
    match &request["prompt"] {
        serde_json::Value::Array(ids) => ids.len(),
        serde_json::Value::String(text) => words(text),
        _ => request["messages"].to_string().split_whitespace().count(),
    }
}

fn generate(
    manners: &Manners,
    path: &str,
    body: &[u8],
    mut stream: &TcpStream,
    streams: &AtomicUsize,
) -> std::io::Result<()> {
    let Ok(request) = serde_json::from_slice::<serde_json::Value>(body) else {
        return stream.write_all(&plain("400 Bad Request", "application/json", r#"{"error":{"message":"no JSON"}}"#));
    };
    let most = ["max_tokens", "max_completion_tokens"].iter().find_map(|name| request[*name].as_u64());
    let tokens = most.unwrap_or(16);
    let prompt = prompt_tokens(&request);
    let usage = serde_json::json!({
        "prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt as u64 + tokens,
    });
    let chat = path.contains("chat");
    let choice = |text: &str, finish: Option<&str>, delta: bool| {
        let mut choice = serde_json::json!({ "index": 0, "finish_reason": finish });
        match (chat, delta) {
            (true, true) => choice["delta"] = serde_json::json!({ "content": text }),
            (true, false) => choice["message"] = serde_json::json!({ "role": "assistant", "content": text }),
            (false, _) => choice["text"] = text.into(),
        }
        choice
    };
    if request["stream"] != true {
        let answer = serde_json::json!({ "choices": [choice(" a", Some("length"), false)], "usage": usage });
        return stream.write_all(&plain("200 OK", "application/json", &answer.to_string()));
    }
    streams.fetch_add(1, Ordering::SeqCst);
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")?;
    let mut say = |data: &str| {
        let event = format!("data: {data}\n\n");
        stream.write_all(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes())
    };
    for i in 0..tokens {
        std::thread::sleep(manners.pause);
        let finish = (i + 1 == tokens).then_some("length");
        say(&serde_json::json!({ "choices": [choice(" a", finish, true)], "usage": null }).to_string())?;
    }
    say(&serde_json::json!({ "choices": [], "usage": usage }).to_string())?;
    say("[DONE]")?;
    stream.write_all(b"0\r\n\r\n")
}
