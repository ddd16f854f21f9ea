//! Engines that hang, cost too much or come and go, over real sockets: the others and what else they say are read on.
//! Servers wait for a condition that the test decides, never for a time.

#![allow(clippy::unwrap_used, reason = "in a test an error is a failure")]

mod support;

use std::fmt::Write as _;
use std::io::Write;
use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use support::{BODY, PATIENT, Server, Session, fact, http, latest, read_head, state, until, vllm};
use warptop::model::{Batch, Clock, FactKey, Metric, Reading, SourceId, SourceState, Subject, SystemClock, Time, Why};
use warptop::sampler::engines::Timing;
use warptop::sampler::{Context, Options, SAMPLERS, Sink, Stop};
use warptop::store::{Data, Retention, Store};

/// What a server waits for before it answers.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn wait(&self) {
        let open = self.0.0.lock().unwrap();
        drop(self.0.1.wait_while(open, |open| !*open).unwrap());
    }

    fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }
}

/// A server whose threads end with it, hung or not.
struct Gated {
    server: Server,
    gate: Gate,
    /// Answers to the metrics so far.
    metrics: Arc<AtomicU32>,
}

impl Drop for Gated {
    fn drop(&mut self) {
        self.gate.open();
    }
}

/// A vLLM of which `shut` hangs until the gate is opened.
fn vllm_without(shut: &'static str) -> Gated {
    let (gate, metrics) = (Gate::default(), Arc::new(AtomicU32::new(0)));
    let (wait, count) = (gate.clone(), Arc::clone(&metrics));
    let server = Server::start(move |path, stream| {
        if path == shut {
            wait.wait();
        }
        count.fetch_add(u32::from(path == "/metrics"), Ordering::SeqCst);
        drop(stream.write_all(&vllm(path, BODY, "0.25.1")));
    });
    Gated { server, gate, metrics }
}

/// Names what is late soon; metrics that come at once are never late.
const SOON: Timing = Timing { timeout: Duration::from_secs(1), ..PATIENT };

/// Whoever waits for an answer waits longer than any test does.
const ENDLESS: Timing = Timing { timeout: Duration::from_mins(10), ..PATIENT };

/// Waits until engine `index` has been read `n` times more.
fn reads(session: &Session, index: u8, n: u32) {
    let read_at = |data: &Data| data.source(SourceId::Engine(index))?.last_read(data.newest());
    for _ in 0..n {
        let last = read_at(&session.store.read());
        session.wait("another reading", |data| (read_at(data) > last).then_some(()));
    }
}

/// Fault: engine: `/v1/models` hangs
/// Seen: the engine's row says `/v1/models: no answer for`, and for how long
/// Works: its metrics, every second, and what its other paths say
/// Recovers: with the first answer; it is asked once a minute
#[test]
fn a_list_of_models_that_hangs_holds_up_neither_metrics_nor_version() {
    let gated = vllm_without("/v1/models");
    let session = Session::named(&gated.server.url(), ENDLESS);
    session.wait("the version", |data| fact(data, FactKey::Version).filter(|&v| v == "0.25.1").map(|_| ()));
    let late = |s: &SourceState| matches!(s, SourceState::Degraded(why) if why.contains("/v1/models: no answer for"));
    session.wait_for_state("the words", late);
    assert_eq!(latest(&session.store.read(), Metric::MaxModelLen).value(), None);
    let before = gated.metrics.load(Ordering::SeqCst);
    reads(&session, 0, 50);
    assert!(gated.metrics.load(Ordering::SeqCst) >= before + 50);
    assert!(latest(&session.store.read(), Metric::RequestsRunning).value().is_some());
    gated.gate.open();
    session.wait("the model's length", |data| latest(data, Metric::MaxModelLen).value());
    session.wait_for_state("recovery", |state| *state == SourceState::Ok);
}

/// Fault: engine: `/version` hangs from the start, with a time-out of minutes
/// Seen: nothing for five seconds, then `/version: no answer for`, and for how long
/// Works: its metrics from the first second on
/// Recovers: with the first answer
#[test]
fn with_a_long_time_out_a_hanging_version_holds_up_nothing() {
    let gated = vllm_without("/version");
    let session = Session::named(&gated.server.url(), ENDLESS);
    reads(&session, 0, 50);
    session.wait("the model's length", |data| latest(data, Metric::MaxModelLen).value());
    let late = |s: &SourceState| matches!(s, SourceState::Degraded(why) if why.contains("/version: no answer for"));
    session.wait_for_state("the words", late);
    gated.gate.open();
    session.wait("the version", |data| fact(data, FactKey::Version).filter(|&v| v == "0.25.1").map(|_| ()));
    session.wait_for_state("recovery", |state| *state == SourceState::Ok);
}

const LLAMA: &str = include_str!("../assets/metrics/llama.cpp-b11549.prom");
const SLOTS: &str = r#"[{"id":0,"n_ctx":4096,"is_processing":true,"id_task":7,"next_token":[{"n_decoded":5}]}]"#;

/// Fault: engine: `/slots` of a llama.cpp server hangs while `/metrics` answers
/// Seen: its row says `/slots: no answer for`; what only the slots tell is missing
/// Works: what `/metrics` tells, every second
/// Recovers: with the first answer
#[test]
fn slots_that_hang_hold_up_no_metrics() {
    let gate = Gate::default();
    let wait = gate.clone();
    let server = Server::start(move |path, stream| {
        let body = match path {
            "/metrics" => LLAMA.replace("llamacpp:requests_processing 0", "llamacpp:requests_processing 1"),
            "/slots" => {
                wait.wait();
                SLOTS.to_owned()
            }
            _ => return drop(stream.write_all(&http("404 Not Found", "text/plain", b""))),
        };
        drop(stream.write_all(&http("200 OK", "text/plain", body.as_bytes())));
    });
    let gated = Gated { server, gate, metrics: Arc::default() };
    let session = Session::named(&gated.server.url(), ENDLESS);
    let late = |s: &SourceState| matches!(s, SourceState::Degraded(why) if why.contains("/slots: no answer for"));
    session.wait_for_state("the words", late);
    reads(&session, 0, 50);
    let data = session.store.read();
    assert!(latest(&data, Metric::RequestsRunning).value().is_some());
    assert_eq!(latest(&data, Metric::MaxModelLen).value(), None);
    drop(data);
    gated.gate.open();
    session.wait("the slots", |data| latest(data, Metric::MaxModelLen).value().filter(|&n| n > 4095.0));
    session.wait_for_state("recovery", |state| *state == SourceState::Ok);
}

/// A clock by which every piece of work takes as much CPU time as the test says, µs.
struct Priced {
    system: SystemClock,
    price: AtomicU64,
    used: AtomicU64,
}

impl Clock for Priced {
    fn now(&self) -> Time {
        self.system.now()
    }
    fn micros(&self) -> u64 {
        self.system.micros()
    }
    fn cpu_micros(&self) -> u64 {
        self.used.fetch_add(self.price.load(Ordering::SeqCst), Ordering::SeqCst)
    }
}

/// Fault: engine: its answers cost much to read
/// Seen: its row says `answers cost 180 ms to read: asked every 4 s`
/// Works: its values, which count for as long as it is not asked; everything else
/// Recovers: with its first answer that costs little
#[test]
fn an_engine_whose_answers_cost_much_is_asked_seldom() {
    let gated = vllm_without("");
    let clock =
        Arc::new(Priced { system: SystemClock::start(), price: AtomicU64::new(90_000), used: AtomicU64::new(0) });
    let options = Options { engine_urls: vec![gated.server.url()], ..Options::default() };
    let session = Session::with_clock(&options, PATIENT, Arc::<Priced>::clone(&clock));
    let seldom = |s: &SourceState| *s == SourceState::Degraded("answers cost 180 ms to read: asked every 4 s".into());
    session.wait_for_state("the words", seldom);
    assert!(latest(&session.store.read(), Metric::RequestsRunning).value().is_some());
    clock.price.store(0, Ordering::SeqCst);
    session.wait_for_state("recovery", |state| *state == SourceState::Ok);
    let asked = gated.metrics.load(Ordering::SeqCst);
    assert!(asked < 40, "a hundred a second are usual: {asked}");
    reads(&session, 0, 50);
}

/// Fault: engine: 62 of 64 named engines take the connection and say nothing
/// Seen: each of them says `does not answer within`
/// Works: the other two, every second
/// Recovers: each with its first answer
#[test]
fn sixty_four_engines_of_which_most_hang() {
    let gate = Gate::default();
    let wait = gate.clone();
    let server = Server::start(move |path, stream| {
        let (engine, path) = path.trim_start_matches('/').split_once('/').unwrap();
        if !["0", "63"].contains(&engine) {
            wait.wait();
        }
        drop(stream.write_all(&vllm(&format!("/{path}"), BODY, "1")));
    });
    let gated = Gated { server, gate, metrics: Arc::default() };
    let urls: Vec<String> = (0..64).map(|i| format!("{}/{i}", gated.server.url())).collect();
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    let session = Session::start(&urls, false, SOON);
    let silent = |data: &Data, index| {
        let state = data.source(SourceId::Engine(index))?.state_at(data.newest()).clone();
        state.why().contains("does not answer within").then_some(())
    };
    for index in 1..63 {
        session.wait("silence", |data| silent(data, index));
    }
    for index in [0, 63] {
        reads(&session, index, 20);
    }
    gated.gate.open();
    for index in 0..64 {
        session.wait("its requests", |data| {
            data.latest(Subject::Engine(index), Metric::RequestsRunning, data.newest()).reading.value()
        });
    }
}

/// Fault: engine: every second answer is an HTTP 500
/// Seen: its row says `answers with HTTP 500`, and is ok in between
/// Works: each good answer's values; a rate never spans a failed one
/// Recovers: with the next good answer
#[test]
fn an_engine_that_flaps_is_read_each_time_it_answers() {
    let asked = AtomicU32::new(0);
    let server = Server::start(move |path, stream| {
        let bad = path == "/metrics" && asked.fetch_add(1, Ordering::SeqCst) % 2 == 1;
        let answer = if bad { http("500 Internal Server Error", "text/plain", b"") } else { vllm(path, BODY, "1") };
        drop(stream.write_all(&answer));
    });
    let session = Session::named(&server.url(), PATIENT);
    for _ in 0..3 {
        session.wait_for_state("a good answer", |state| *state == SourceState::Ok);
        session.wait_for_state("a bad one", |state| state.why().contains("answers with HTTP 500"));
    }
    let data = session.store.read();
    let rate = latest(&data, Metric::GenerationTokens);
    assert!(matches!(rate, Reading::Missing(Why::Failed | Why::NotYet)), "{rate:?} {:?}", state(&data));
}

/// Fault: engine: `HTTP/1.0`, connections closed after each answer, trailers, early hints
/// Seen: nothing: the state is ok
/// Works: all of it
/// Recovers: there is nothing to recover from
#[test]
fn old_and_odd_http_is_read() {
    let chunked = format!("{:x}\r\n{BODY}\r\n0\r\nx-a: b\r\nAuthorization: z\r\n\r\n", BODY.len());
    let hints = "HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n".repeat(3);
    let good = String::from_utf8(vllm("/metrics", BODY, "1")).unwrap();
    let mut odd = String::new();
    write!(odd, "HTTP/1.0 200 OK\r\n\r\n{BODY}").unwrap();
    let answers = [
        odd,
        format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-a\r\n\r\n{chunked}"),
        format!("{hints}{good}"),
        good.repeat(3),
    ];
    for answer in answers {
        let server = Server::start(move |path, stream| {
            let other = http("404 Not Found", "text/plain", b"");
            drop(stream.write_all(if path == "/metrics" { answer.as_bytes() } else { &other }));
        });
        let session = Session::named(&server.url(), PATIENT);
        assert_eq!(session.outcome("an answer"), SourceState::Ok);
        reads(&session, 0, 10);
    }
}

/// Fault: driver: a DCGM exporter that lists 130,000 GPUs
/// Seen: `the DCGM exporter lists more than 64 GPUs: the first 64 are read`, and where its answers cost much, that
/// Works: the first 64; engines, which are read on another thread
/// Recovers: with its first answer of fewer GPUs
#[test]
fn an_exporter_of_very_many_gpus_is_read_in_part() {
    let mut body = String::new();
    for i in 0..130_000 {
        writeln!(body, "DCGM_FI_PROF_SM_ACTIVE{{gpu=\"{}\",UUID=\"GPU-{i}\"}} 0.5", i % 64).unwrap();
    }
    let server = Server::raw(http("200 OK", "text/plain", body.as_bytes()));
    let store = Arc::new(Store::new(Retention::HOUR));
    let context = Context {
        sink: Sink::new(Arc::clone(&store), None),
        clock: Arc::new(SystemClock::start()),
        stop: Stop::default(),
        interval: Duration::from_millis(250),
    };
    let mut absent = Batch::new(SourceId::Nvml, context.clock.now(), Batch::FOREVER);
    absent.state = Some(SourceState::Absent("no driver".into()));
    context.sink.send(&absent);
    let options = Options { dcgm_url: Some(server.url()), ..Options::default() };
    let sampler = SAMPLERS.iter().find(|sampler| sampler.id == "dcgm").unwrap();
    (sampler.start)(&context, &options);
    let why = until("the words", || {
        let data = store.read();
        let state = data.source(SourceId::Dcgm)?.state_at(data.newest()).clone();
        matches!(state, SourceState::Degraded(_)).then(|| state.why().to_owned())
    });
    context.stop.stop();
    assert!(why.starts_with("the DCGM exporter lists more than 64 GPUs: the first 64 are read"), "{why}");
    let data = store.read();
    let gpus = (0..=255)
        .filter(|&gpu| data.latest(Subject::Gpu(gpu), Metric::SmActive, data.newest()).reading.value().is_some());
    assert_eq!(gpus.count(), 64);
}

/// Fault: engine: it sends `100 Continue` without end
/// Seen: `does not answer within` and `asked every`, which is 5 % of a core at most
/// Works: the other engines, every second: it is asked on a thread of its own
/// Recovers: with the first answer
#[test]
fn an_endpoint_that_says_continue_without_end_is_asked_aside_and_seldom() {
    let endless = Server::accept(TcpListener::bind("127.0.0.1:0").unwrap(), |mut stream| {
        let many = b"HTTP/1.1 100 Continue\r\n\r\n".repeat(1000);
        if read_head(&mut stream).is_some() {
            while stream.write_all(&many).is_ok() {}
        }
    });
    let good = Server::start(|path, stream| drop(stream.write_all(&vllm(path, BODY, "0.25.1"))));
    let timing = Timing { period: Duration::from_millis(100), timeout: Duration::from_secs(2), ..PATIENT };
    let session = Session::start(&[&endless.url(), &good.url()], false, timing);
    let words = session.wait_for_state("its cost is seen", |state| state.why().contains("asked every"));
    assert!(words.why().contains("does not answer within"), "{words:?}");
    reads(&session, 1, 5);
}
