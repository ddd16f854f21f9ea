//! Servers and sessions for tests over real sockets. Servers are raw listeners of the test itself; every
//! wait is for a condition, with a deadline far beyond any machine's slowness.

#![allow(dead_code, clippy::unwrap_used, reason = "each test file uses a part; in a test an error is a failure")]

pub(crate) mod oai;

use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use warptop::model::{Clock, FactKey, Metric, Reading, SourceId, SourceState, Subject, SystemClock};
use warptop::sampler::engines::{self, Timing};
use warptop::sampler::{Context, Options, Sink, Stop};
use warptop::store::{Data, Retention, Store};

pub(crate) const BODY: &str = include_str!("../../assets/metrics/vllm-0.25.1-overload.prom");
pub(crate) const MODELS: &str = r#"{"object":"list","data":[{"id":"dummy-8b","max_model_len":32768}]}"#;
pub(crate) const ENGINE: Subject = Subject::Engine(0);

/// Longest that anything may take; a test that waits this long has failed.
const PATIENCE: Duration = Duration::from_mins(1);

/// Waits until `done` gives something.
pub(crate) fn until<T>(what: &str, mut done: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(got) = done() {
            return got;
        }
        assert!(began.elapsed() < PATIENCE, "{what} does not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A listener on loopback.
pub(crate) struct Server {
    pub(crate) port: u16,
    at: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Server {
    /// Answers each request with what `answer` writes, one connection a request.
    pub(crate) fn start(answer: impl Fn(&str, &mut TcpStream) + Send + Sync + 'static) -> Self {
        Self::listen(TcpListener::bind("127.0.0.1:0").unwrap(), answer)
    }

    pub(crate) fn listen(listener: TcpListener, answer: impl Fn(&str, &mut TcpStream) + Send + Sync + 'static) -> Self {
        Self::accept(listener, move |mut stream| {
            if let Some(head) = read_head(&stream) {
                answer(path(&head), &mut stream);
            }
        })
    }

    /// Answers every path with these bytes.
    pub(crate) fn raw(answer: impl Into<Vec<u8>>) -> Self {
        let answer = answer.into();
        Self::start(move |_, stream| drop(std::io::Write::write_all(stream, &answer)))
    }

    /// Hands every connection to `handle`, in a thread of its own.
    pub(crate) fn accept(listener: TcpListener, handle: impl Fn(TcpStream) + Send + Sync + 'static) -> Self {
        let at = listener.local_addr().unwrap();
        let (stop, handle) = (Arc::new(AtomicBool::new(false)), Arc::new(handle));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                let (Ok(stream), handle) = (stream, Arc::clone(&handle)) else { continue };
                std::thread::spawn(move || handle(stream));
            }
        });
        Self { port: at.port(), at, stop, thread: Some(thread) }
    }

    pub(crate) fn url(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(self.at));
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// Request line and headers, one a line.
pub(crate) fn read_head(stream: impl Read) -> Option<String> {
    let mut head = String::new();
    for line in BufReader::new(stream).lines() {
        let line = line.ok()?;
        if line.is_empty() {
            return Some(head);
        }
        head.push_str(&line);
        head.push('\n');
    }
    None
}

/// The path of a request's head.
pub(crate) fn path(head: &str) -> &str {
    head.split(' ').nth(1).unwrap_or("")
}

pub(crate) fn http(status: &str, kind: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// What a vLLM answers.
pub(crate) fn vllm(path: &str, metrics: &str, version: &str) -> Vec<u8> {
    match path {
        "/metrics" => http("200 OK", "text/plain; version=1.0.0; charset=utf-8", metrics.as_bytes()),
        "/version" => http("200 OK", "application/json", format!(r#"{{"version":"{version}"}}"#).as_bytes()),
        "/v1/models" => http("200 OK", "application/json", MODELS.as_bytes()),
        _ => http("404 Not Found", "application/json", br#"{"detail":"Not Found"}"#),
    }
}

/// Samplers on a store, stopped at the end.
pub(crate) struct Session {
    pub(crate) store: Arc<Store>,
    stop: Stop,
}

/// Fast, with a time-out that no healthy answer of these tests reaches.
pub(crate) const PATIENT: Timing = Timing {
    period: Duration::from_millis(10),
    timeout: Duration::from_secs(20),
    search: Duration::from_millis(50),
    search_when_none: Duration::from_millis(50),
};
/// For servers that never finish.
pub(crate) const HASTY: Timing = Timing { timeout: Duration::from_millis(150), ..PATIENT };

impl Session {
    pub(crate) fn with(options: &Options, timing: Timing) -> Self {
        Self::with_clock(options, timing, Arc::new(SystemClock::start()))
    }

    pub(crate) fn with_clock(options: &Options, timing: Timing, clock: Arc<dyn Clock>) -> Self {
        let (store, stop) = (Arc::new(Store::new(Retention::HOUR)), Stop::default());
        let context = Context {
            sink: Sink::new(Arc::clone(&store), None),
            clock,
            stop: stop.clone(),
            interval: Duration::from_millis(250),
        };
        engines::start(&context, options, timing);
        Self { store, stop }
    }

    pub(crate) fn start(urls: &[&str], discover: bool, timing: Timing) -> Self {
        let engine_urls = urls.iter().map(|&url| url.to_owned()).collect();
        Self::with(&Options { engine_urls, discover, ..Options::default() }, timing)
    }

    pub(crate) fn named(url: &str, timing: Timing) -> Self {
        Self::start(&[url], false, timing)
    }

    /// Waits until `ask` gives something.
    pub(crate) fn wait<T>(&self, what: &str, ask: impl Fn(&Data) -> Option<T>) -> T {
        let deadline = Instant::now() + Duration::from_mins(1);
        loop {
            let data = self.store.read();
            if let Some(answer) = ask(&data) {
                return answer;
            }
            let states: Vec<_> =
                data.sources().map(|(id, s)| format!("{id}: {:?}", s.state_at(data.newest()))).collect();
            drop(data);
            assert!(Instant::now() < deadline, "waited in vain for {what}; {states:?}");
            std::thread::sleep(Duration::from_millis(3));
        }
    }

    pub(crate) fn wait_for_state(&self, what: &str, is: impl Fn(&SourceState) -> bool) -> SourceState {
        self.wait(what, |data| state(data).filter(&is))
    }

    /// The first state of engine 0 that says how it is.
    pub(crate) fn outcome(&self, what: &str) -> SourceState {
        self.wait_for_state(what, |state| *state != SourceState::Starting)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.stop.stop();
    }
}

pub(crate) fn state(data: &Data) -> Option<SourceState> {
    data.source(SourceId::Engine(0)).map(|source| source.state_at(data.newest()).clone())
}

/// The newest reading as of the moment it was taken: a machine that is slow makes it old, not wrong.
pub(crate) fn latest(data: &Data, metric: Metric) -> Reading {
    let read = data.source(SourceId::Engine(0)).and_then(|source| source.last_read(data.newest()));
    data.latest(ENGINE, metric, read.unwrap_or(data.newest())).reading
}

pub(crate) fn fact(data: &Data, key: FactKey) -> Option<&str> {
    data.fact(ENGINE, key, data.newest())
}
