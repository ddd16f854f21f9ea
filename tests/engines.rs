//! Engines over real sockets: good ones, bad ones, ones that come and go. Servers are raw listeners of
//! the test itself; every wait is for a condition, with a deadline far beyond any machine's slowness.

#![allow(clippy::unwrap_used, reason = "in a test an error is a failure")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use warptop::model::{FactKey, Metric, Reading, SourceId, SourceState, Subject, SystemClock, Why};
use warptop::sampler::engines::{self, Timing};
use warptop::sampler::{Context, Options, Sink, Stop};
use warptop::store::{Data, HistogramWindow, Retention, Store, Window};

const BODY: &str = include_str!("../assets/metrics/vllm-0.25.1-overload.prom");
const IDLE: &str = include_str!("../assets/metrics/vllm-0.25.1-idle.prom");
/// What a metrics server that is no engine says of itself.
const OTHER: &str = "go_goroutines 8\nprometheus_build_info{version=\"2.42.0\"} 1\n";
const MODELS: &str = r#"{"object":"list","data":[{"id":"dummy-8b","max_model_len":32768}]}"#;
const ENGINE: Subject = Subject::Engine(0);

/// A listener that answers each request with what `answer` writes, one connection a request.
struct Server {
    port: u16,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Server {
    fn start(answer: impl Fn(&str, &mut TcpStream) + Send + Sync + 'static) -> Self {
        Self::listen(TcpListener::bind("127.0.0.1:0").unwrap(), answer)
    }

    fn listen(listener: TcpListener, answer: impl Fn(&str, &mut TcpStream) + Send + Sync + 'static) -> Self {
        let port = listener.local_addr().unwrap().port();
        let (stop, answer) = (Arc::new(AtomicBool::new(false)), Arc::new(answer));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                let (Ok(mut stream), answer) = (stream, Arc::clone(&answer)) else { continue };
                std::thread::spawn(move || {
                    if let Some(path) = read_request(&stream) {
                        answer(&path, &mut stream);
                    }
                });
            }
        });
        Self { port, stop, thread: Some(thread) }
    }

    /// Answers every path with these bytes.
    fn raw(answer: impl Into<Vec<u8>>) -> Self {
        let answer = answer.into();
        Self::start(move |_, stream| drop(stream.write_all(&answer)))
    }

    fn url(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(("127.0.0.1", self.port)));
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

fn read_request(stream: &TcpStream) -> Option<String> {
    let mut lines = BufReader::new(stream).lines();
    let path = lines.next()?.ok()?.split(' ').nth(1)?.to_owned();
    lines.find(|line| line.as_ref().is_ok_and(String::is_empty))?.ok()?;
    Some(path)
}

fn http(status: &str, kind: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// What a vLLM answers.
fn vllm(path: &str, metrics: &str, version: &str) -> Vec<u8> {
    match path {
        "/metrics" => http("200 OK", "text/plain; version=1.0.0; charset=utf-8", metrics.as_bytes()),
        "/version" => http("200 OK", "application/json", format!(r#"{{"version":"{version}"}}"#).as_bytes()),
        "/v1/models" => http("200 OK", "application/json", MODELS.as_bytes()),
        _ => http("404 Not Found", "application/json", br#"{"detail":"Not Found"}"#),
    }
}

/// Samplers on a store, stopped at the end.
struct Session {
    store: Arc<Store>,
    stop: Stop,
}

/// Fast, with a time-out that no healthy answer of these tests reaches.
const PATIENT: Timing = Timing {
    period: Duration::from_millis(10),
    timeout: Duration::from_secs(20),
    search: Duration::from_millis(50),
    search_when_none: Duration::from_millis(50),
};
/// For servers that never finish.
const HASTY: Timing = Timing { timeout: Duration::from_millis(150), ..PATIENT };

impl Session {
    fn start(urls: &[&str], discover: bool, timing: Timing) -> Self {
        let (store, stop) = (Arc::new(Store::new(Retention::HOUR)), Stop::default());
        let context = Context {
            sink: Sink::new(Arc::clone(&store), None),
            clock: Arc::new(SystemClock::start()),
            stop: stop.clone(),
            interval: Duration::from_millis(250),
        };
        let engine_urls = urls.iter().map(|&url| url.to_owned()).collect();
        engines::start(&context, &Options { engine_urls, discover, ..Options::default() }, timing);
        Self { store, stop }
    }

    fn named(url: &str, timing: Timing) -> Self {
        Self::start(&[url], false, timing)
    }

    /// Waits until `ask` gives something.
    fn wait<T>(&self, what: &str, ask: impl Fn(&Data) -> Option<T>) -> T {
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

    fn wait_for_state(&self, what: &str, is: impl Fn(&SourceState) -> bool) -> SourceState {
        self.wait(what, |data| state(data).filter(&is))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.stop.stop();
    }
}

fn state(data: &Data) -> Option<SourceState> {
    data.source(SourceId::Engine(0)).map(|source| source.state_at(data.newest()).clone())
}

fn latest(data: &Data, metric: Metric) -> Reading {
    data.latest(ENGINE, metric, data.newest()).reading
}

fn fact(data: &Data, key: FactKey) -> Option<&str> {
    data.fact(ENGINE, key, data.newest())
}

#[test]
fn a_good_engine_is_recognised_and_read() {
    let server = Server::start(|path, stream| drop(stream.write_all(&vllm(path, BODY, "0.25.1"))));
    let url = format!("http://ann:hunter2@127.0.0.1:{}/metrics", server.port);
    let session = Session::named(&url, PATIENT);
    session.wait("the model's length", |data| latest(data, Metric::MaxModelLen).value().filter(|&v| v > 32_767.0));
    session.wait("the version", |data| fact(data, FactKey::Version).filter(|&v| v == "0.25.1").map(|_| ()));
    let data = session.store.read();
    assert_eq!(latest(&data, Metric::RequestsRunning), Reading::Value(109.0));
    assert!(matches!(latest(&data, Metric::KvUsage), Reading::Value(v) if (v - 90.347).abs() < 0.001));
    assert!(data.histogram(ENGINE, Metric::Ttft).is_some());
    let facts = [FactKey::Url, FactKey::Kind, FactKey::Model, FactKey::Name].map(|key| fact(&data, key).unwrap_or(""));
    let (url, name) = (format!("http://127.0.0.1:{}", server.port), format!("vLLM :{}", server.port));
    assert_eq!(facts, [url.as_str(), "vllm", "dummy-8b", name.as_str()], "and no password");
    assert_eq!(state(&data), Some(SourceState::Ok));
}

#[test]
fn what_is_wrong_is_said() {
    let html = http("200 OK", "text/html; charset=utf-8", b"<!DOCTYPE html><p>vllm:num_requests_running 1");
    let elsewhere = b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.2:1/metrics\r\ncontent-length: 0\r\n\r\n".to_vec();
    let cut = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{}", BODY.len(), &BODY[..20_000]);
    let huge = http("200 OK", "text/plain", &vec![b'#'; 10 << 20]);
    let cases = [
        (http("500 Oops", "text/plain", b"boom \x1b[31m"), "failed", "HTTP 500: boom [31m"),
        (http("503 No", "text/plain", b"Loading model"), "failed", "HTTP 503: Loading"),
        (http("401 No", "application/json", b"{}"), "unauthorized", "needs a key (HTTP 401)"),
        (http("403 No", "application/json", b"{}"), "unauthorized", "needs a key (HTTP 403)"),
        (http("404 No", "application/json", b"{}"), "failed", "without metrics?"),
        (html, "failed", "web page"),
        (http("200 OK", "text/plain", OTHER.as_bytes()), "failed", "exposes prometheus_build_info"),
        (http("200 OK", "text/plain", b"\xff\xfe{{{\n1 2 3\n"), "failed", "no engine"),
        (http("200 OK", "text/plain", b""), "failed", "no metric"),
        (b"SSH-2.0-OpenSSH_9.2\r\n".to_vec(), "failed", "no HTTP"),
        (elsewhere, "failed", "final URL"),
        (cut.into_bytes(), "failed", "broke off"),
        (huge, "failed", "longer than 8 MiB"),
    ];
    for (answer, kind, words) in cases {
        let server = Server::raw(answer);
        let session = Session::named(&server.url(), PATIENT);
        let state = session.wait_for_state(words, |s| !matches!(s, SourceState::Starting));
        let is = match &state {
            SourceState::Failed(_) => "failed",
            SourceState::Unauthorized(_) => "unauthorized",
            _ => "something else",
        };
        assert!(is == kind && state.why().contains(words), "{words}: {state:?}");
    }
}

#[test]
fn a_body_without_end_stops_at_the_limit() {
    let server = Server::start(|_, stream| {
        let line = [b'x'; 4096];
        let mut open = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").is_ok();
        while open {
            open = stream.write_all(&line).is_ok();
        }
    });
    let session = Session::named(&server.url(), PATIENT);
    let state = session.wait_for_state("the limit", |s| !matches!(s, SourceState::Starting));
    assert!(matches!(&state, SourceState::Failed(why) if why.contains("longer than 8 MiB")), "{state:?}");
}

#[test]
fn an_answer_that_drips_is_saturation_and_another_engine_is_read_meanwhile() {
    let drips = Server::start(|_, stream| {
        let mut open = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").is_ok();
        while open {
            std::thread::sleep(Duration::from_millis(20));
            open = stream.write_all(b"#").is_ok();
        }
    });
    let good = Server::start(|path, stream| drop(stream.write_all(&vllm(path, BODY, "1"))));
    let session = Session::start(&[&drips.url(), &good.url()], false, HASTY);
    let state = session.wait_for_state("saturation", |s| !matches!(s, SourceState::Starting));
    assert!(matches!(&state, SourceState::Stalled(why) if why.contains("saturated or stuck")), "{state:?}");
    session.wait("the other engine", |data| {
        let at = data.newest();
        data.latest(Subject::Engine(1), Metric::RequestsRunning, at).reading.value()
    });
}

#[test]
fn an_engine_that_is_late_after_good_answers_is_degraded_not_down() {
    let late = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&late);
    let server = Server::start(move |path, stream| {
        if asked.load(Ordering::SeqCst) {
            drop(stream.read(&mut [0]));
        } else {
            drop(stream.write_all(&vllm(path, BODY, "1")));
        }
    });
    let session = Session::named(&server.url(), Timing { timeout: Duration::from_secs(1), ..PATIENT });
    session.wait_for_state("a good answer", |s| *s == SourceState::Ok);
    late.store(true, Ordering::SeqCst);
    let state = session.wait_for_state("a late answer", |s| *s != SourceState::Ok);
    assert!(matches!(&state, SourceState::Degraded(why) if why.contains("saturated")), "{state:?}");
    late.store(false, Ordering::SeqCst);
    session.wait_for_state("recovery", |s| *s == SourceState::Ok);
}

#[test]
fn dirt_in_a_body_costs_only_its_own_lines() {
    let dirt = b"vllm:broken{a=\xff} 1\nvllm:kv_cache_usage_perc{engine=\"0\"} NaN\n\
        vllm:num_requests_running{engine=\"0\",pid=\"\xfe\"} 7\r\nvllm:num_requests_running{engine=\"0\"} 7\n\
        vllm:num_requests_waiting{engine=\"0\"} +Inf\nvllm:num_preemptions_total{engine=\"0\"} 3";
    let server = Server::raw(http("200 OK", "text/plain", dirt));
    let session = Session::named(&server.url(), PATIENT);
    let state = session.wait_for_state("a reading", |s| !matches!(s, SourceState::Starting));
    assert!(matches!(&state, SourceState::Degraded(why) if why.starts_with("1 lines")), "{state:?}");
    let data = session.store.read();
    let readings = [Metric::RequestsRunning, Metric::KvUsage, Metric::RequestsWaiting, Metric::GenerationTokens];
    let failed = Reading::Missing(Why::Failed);
    let expected = [Reading::Value(7.0), failed, failed, Reading::Missing(Why::Unsupported)];
    assert_eq!(readings.map(|metric| latest(&data, metric)), expected);
}

#[test]
fn a_redirect_at_the_same_place_is_followed() {
    let server = Server::start(|path, stream| {
        let answer = match path {
            "/metrics" => b"HTTP/1.1 307 There\r\nlocation: /metrics/\r\ncontent-length: 0\r\n\r\n".to_vec(),
            "/metrics/" => vllm("/metrics", BODY, "1"),
            other => vllm(other, BODY, "1"),
        };
        drop(stream.write_all(&answer));
    });
    let session = Session::named(&server.url(), PATIENT);
    session.wait_for_state("a reading", |s| *s == SourceState::Ok);
}

#[test]
fn a_restart_is_noticed_and_asked_about() {
    let now = Arc::new(Mutex::new((BODY.to_owned(), "0.25.1")));
    let answers = Arc::clone(&now);
    let server = Server::start(move |path, stream| {
        let (metrics, version) = answers.lock().unwrap().clone();
        drop(stream.write_all(&vllm(path, &metrics, version)));
    });
    let session = Session::named(&server.url(), PATIENT);
    session.wait("the old version", |data| fact(data, FactKey::Version).filter(|&v| v == "0.25.1").map(|_| ()));
    session.wait("a rate", |data| latest(data, Metric::GenerationTokens).value());
    let restarted = IDLE.replace("process_start_time_seconds 1.79596029994e+09", "process_start_time_seconds 1.8e+09");
    *now.lock().unwrap() = (restarted, "0.26.0");
    session.wait("the new version", |data| fact(data, FactKey::Version).filter(|&v| v == "0.26.0").map(|_| ()));
    let data = session.store.read();
    assert_eq!(data.resets(Window::last(data.newest(), 3_600_000)).count(), 1);
    let mut window = HistogramWindow::default();
    data.histogram_window(ENGINE, Metric::Ttft, Window::last(data.newest(), 3_600_000), &mut window);
    assert_eq!(window.n, 0, "lifetime counts are never taken for news");
}

#[test]
fn an_engine_that_goes_and_comes_back_leaves_a_gap() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let session = Session::named(&address.to_string(), PATIENT);
    let refused = |s: &SourceState| matches!(s, SourceState::Failed(why) if why.contains("connection refused"));
    session.wait_for_state("refusal", refused);
    let serve = || {
        // The port may linger for a moment after the server before.
        let deadline = Instant::now() + Duration::from_mins(1);
        let listener = loop {
            match TcpListener::bind(address) {
                Ok(listener) => break listener,
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        Server::listen(listener, |path, stream| drop(stream.write_all(&vllm(path, BODY, "1"))))
    };
    let server = serve();
    session.wait_for_state("the first start", |s| *s == SourceState::Ok);
    session.wait("a value", |data| latest(data, Metric::RequestsRunning).value());
    drop(server);
    session.wait_for_state("refusal again", refused);
    session
        .wait("a gap", |data| (latest(data, Metric::RequestsRunning) == Reading::Missing(Why::Failed)).then_some(()));
    let _server = serve();
    session.wait("a value again", |data| latest(data, Metric::RequestsRunning).value());
}

#[test]
fn what_is_no_url_has_its_words_and_stops_no_other() {
    let server = Server::start(|path, stream| drop(stream.write_all(&vllm(path, BODY, "1"))));
    let session = Session::start(&["http://ann:hunter2@a b:x", &server.url(), &server.url()], false, PATIENT);
    let state = session.wait_for_state("the words", |_| true);
    assert!(matches!(&state, SourceState::Failed(why) if why.contains("--engine http://HOST:PORT")), "{state:?}");
    session.wait("the other engine", |data| {
        let at = data.newest();
        data.latest(Subject::Engine(1), Metric::RequestsRunning, at).reading.value()
    });
    let data = session.store.read();
    assert_eq!(data.engines().collect::<Vec<_>>(), [0, 1], "one place, one entry");
    assert_eq!(fact(&data, FactKey::Url), Some("a b:x"));
    assert!(!state.why().contains("hunter2"));
}

/// Not a test: the process that the next one looks for. "vllm" is in its command line.
#[test]
#[ignore = "is started by the test below"]
fn vllm_stand_in() {
    let server = Server::start(|path, stream| drop(stream.write_all(&vllm(path, BODY, "9.9.9"))));
    println!("port {}", server.port);
    // Serves until the test closes the pipe.
    drop(std::io::stdin().read_to_end(&mut Vec::new()));
}

#[test]
fn an_engine_on_this_host_is_found() {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["vllm_stand_in", "--exact", "--ignored", "--nocapture"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let port = lines.find_map(|line| line.rsplit_once("port ")?.1.parse::<u16>().ok()).unwrap();
    let url = format!("http://127.0.0.1:{port}");
    let session = Session::start(&[], true, PATIENT);
    let engine = session.wait("the engine", |data| {
        data.engines().find(|&i| data.fact(Subject::Engine(i), FactKey::Url, data.newest()) == Some(url.as_str()))
    });
    session.wait("its version", |data| {
        data.fact(Subject::Engine(engine), FactKey::Version, data.newest()).filter(|&v| v == "9.9.9").map(|_| ())
    });
    session.wait("the search to be content", |data| {
        let search = data.source(SourceId::Discovery)?;
        (*search.state_at(data.newest()) == SourceState::Ok).then_some(())
    });
    let places = session.store.read().engines().count();
    let last_search = |data: &Data| data.source(SourceId::Discovery)?.last_read(data.newest());
    let before = last_search(&session.store.read());
    session.wait("another search", |data| last_search(data).filter(|at| Some(*at) > before));
    assert_eq!(session.store.read().engines().count(), places, "found once");
    drop(child.stdin.take());
    child.wait().unwrap();
    // Until here the child must be able to write.
    drop(lines);
}
