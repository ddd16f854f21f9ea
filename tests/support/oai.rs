//! A serving engine that streams: enough of the OpenAI interface for a load, with a key where one is wanted and metrics
//! where there are any. Keeps connections open, as engines do.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
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
    /// What it does from the stream of this number on; before that it is honest.
    pub(crate) lie: Option<(usize, Lie)>,
}

/// What an engine may do that its client does not expect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lie {
    /// Says that a request had these tokens: of its prompt, and of its output, as JSON; nothing at all where empty.
    Usage(&'static str, &'static str),
    /// Streams events without end, one each ms.
    Endless,
    /// Streams one event a second.
    Slow,
    /// Answers nothing, and keeps the connection.
    Silent,
    /// Answers with this status and these headers, at once.
    Status(&'static str),
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
    /// Tokens that it really had to do with: those of prompts it was sent, and events it gave.
    pub(crate) tokens: Arc<AtomicU64>,
}

impl Engine {
    pub(crate) fn start(manners: Manners) -> Self {
        let (streams, open) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (heads, tokens) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicU64::new(0)));
        let (seen, kept, lines) = (Arc::clone(&streams), Arc::clone(&heads), Arc::clone(&open));
        let counted = Arc::clone(&tokens);
        let server = Server::accept(TcpListener::bind("127.0.0.1:0").unwrap(), move |stream| {
            // Each event at once, as engines send them.
            drop(stream.set_nodelay(true));
            lines.fetch_add(1, Ordering::SeqCst);
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            while let Some((head, body)) = request(&mut reader) {
                kept.lock().unwrap().push(head.clone());
                if respond(&manners, &head, &body, &stream, (&seen, &counted)).is_err() {
                    break;
                }
            }
            lines.fetch_sub(1, Ordering::SeqCst);
        });
        Self { server, streams, open, heads, tokens }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.server.url())
    }

    pub(crate) fn streams(&self) -> usize {
        self.streams.load(Ordering::SeqCst)
    }

    pub(crate) fn tokens(&self) -> u64 {
        self.tokens.load(Ordering::SeqCst)
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
    counts: (&AtomicUsize, &AtomicU64),
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
            generate(manners, path, body, stream, counts)
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
    (streams, counted): (&AtomicUsize, &AtomicU64),
) -> std::io::Result<()> {
    let Ok(request) = serde_json::from_slice::<serde_json::Value>(body) else {
        return stream.write_all(&plain("400 Bad Request", "application/json", r#"{"error":{"message":"no JSON"}}"#));
    };
    let most = ["max_tokens", "max_completion_tokens"].iter().find_map(|name| request[*name].as_u64());
    let tokens = most.unwrap_or(16);
    let prompt = prompt_tokens(&request);
    counted.fetch_add(prompt as u64, Ordering::SeqCst);
    let mut usage = serde_json::json!({
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
        counted.fetch_add(tokens, Ordering::SeqCst);
        return stream.write_all(&plain("200 OK", "application/json", &answer.to_string()));
    }
    let number = streams.fetch_add(1, Ordering::SeqCst);
    let lie = manners.lie.filter(|(first, _)| number >= *first).map(|(_, lie)| lie);
    let (mut pause, mut last) = (manners.pause, tokens);
    match lie {
        Some(Lie::Status(head)) => {
            return stream.write_all(format!("HTTP/1.1 {head}\r\ncontent-length: 2\r\n\r\n{{}}").as_bytes());
        }
        Some(Lie::Silent) => {
            // Until the client goes away.
            drop(stream.read(&mut [0]));
            return Err(std::io::ErrorKind::ConnectionReset.into());
        }
        Some(Lie::Endless) => (pause, last) = (Duration::from_millis(1), u64::MAX),
        Some(Lie::Slow) => pause = Duration::from_secs(1),
        Some(Lie::Usage(..)) | None => {}
    }
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")?;
    let mut say = |data: &str| {
        let event = format!("data: {data}\n\n");
        stream.write_all(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes())
    };
    for i in 0..last {
        std::thread::sleep(pause);
        let finish = (i + 1 == last).then_some("length");
        counted.fetch_add(1, Ordering::SeqCst);
        say(&serde_json::json!({ "choices": [choice(" a", finish, true)], "usage": null }).to_string())?;
    }
    if let Some(Lie::Usage(prompt, output)) = lie {
        let said = |text: &str| serde_json::from_str(text).unwrap_or(serde_json::Value::Null);
        usage = serde_json::json!({ "prompt_tokens": said(prompt), "completion_tokens": said(output) });
    }
    say(&serde_json::json!({ "choices": [], "usage": usage }).to_string())?;
    say("[DONE]")?;
    stream.write_all(b"0\r\n\r\n")
}
