//! Answers that no engine should give: each has its own words, and costs nothing but its own values.

#![allow(clippy::unwrap_used, clippy::panic, reason = "in a test an error is a failure")]

mod support;

use std::collections::HashSet;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use support::{BODY, ENGINE, HASTY, PATIENT, Server, Session, fact, http, vllm};
use warptop::model::{FactKey, Metric, Reading, SourceId, SourceState, Subject, Why};
use warptop::recording::Reader;
use warptop::store::Data;

/// What an answer comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Is {
    Ok,
    Degraded,
    Failed,
    NoMetrics,
    Loading,
    Unauthorized,
    Stalled,
}

fn kind(state: &SourceState) -> Is {
    match state {
        SourceState::Ok => Is::Ok,
        SourceState::Degraded(_) => Is::Degraded,
        SourceState::Failed(_) => Is::Failed,
        SourceState::NoMetrics(_) => Is::NoMetrics,
        SourceState::Unauthorized(_) => Is::Unauthorized,
        SourceState::Stalled(_) => Is::Stalled,
        SourceState::Loading(_) => Is::Loading,
        SourceState::Starting | SourceState::Absent(_) => panic!("{state:?}"),
    }
}

/// Checks an engine's words, and that another one is read on and on meanwhile.
fn check(server: &Server, (is, words): (Is, &str)) -> Session {
    let good = Server::start(|path, stream| drop(stream.write_all(&vllm(path, BODY, "1"))));
    let timing = if is == Is::Stalled { HASTY } else { PATIENT };
    let session = Session::start(&[&server.url(), &good.url()], false, timing);
    let state = session.outcome(words);
    let (seen, said) = (kind(&state), state.why());
    // On a machine that is slow, or without optimisation, a long answer costs too much to be asked for each second.
    let said = said.split("; answers cost").next().unwrap_or(said);
    let (seen, said) = if said.starts_with("answers cost") { (Is::Ok, "") } else { (seen, said) };
    assert!(seen == is && said == words, "{is:?} {words}: {state:?}");
    let read_at = |data: &Data| data.source(SourceId::Engine(1))?.last_read(data.newest());
    for _ in 0..3 {
        let last = read_at(&session.store.read());
        session.wait("the other engine", |data| {
            let reading = data.latest(Subject::Engine(1), Metric::RequestsRunning, data.newest()).reading;
            reading.value().filter(|_| read_at(data) > last)
        });
    }
    session
}

/// A reading of engine 0 as of its own last answer: those of the other engine are newer.
fn last(data: &Data, metric: Metric) -> Reading {
    let at = data.source(SourceId::Engine(0)).and_then(|source| source.last_read(data.newest())).unwrap();
    data.latest(ENGINE, metric, at).reading
}

fn text(body: &[u8]) -> Vec<u8> {
    http("200 OK", "text/plain; version=0.0.4", body)
}

fn json(status: &str, body: &str) -> Vec<u8> {
    http(status, "application/json", body.as_bytes())
}

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(body).unwrap();
    packed.finish().unwrap()
}

fn with_header(header: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\n{header}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// Fault: engine: an answer that is too long, cut, packed and damaged, a web page, no HTTP, a refusal, a redirect elsewhere
/// Seen: the engine's row says which, for example `the answer is longer than 8 MiB: not the metrics of an engine`
/// Works: the engine beside it
/// Recovers: with the first good answer
#[test]
fn every_bad_answer_has_its_words() {
    const LONG: &str = "the answer is longer than 8 MiB: not the metrics of an engine";
    const CUT: &str = "the answer broke off: did the engine die, or is there a proxy in between?";
    const NO_HTTP: &str = "what answers is no HTTP: is this an engine's port, and does it want https?";
    const PAGE: &str = "answers with a web page, not with metrics: is this an engine's port?";
    const HEADERS: &str = "the headers of its answer are too many or too long: is this an engine's port?";
    const DAMAGED: &str = "the answer is packed with gzip and damaged: is there a proxy in between?";
    let (packed, bomb) = (gzip(BODY.as_bytes()), gzip(&vec![b'#'; 100 << 20]));
    let headers = "x: y\r\n".repeat(200);
    let chunks = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    let chunks = [chunks, b"1\r\n#\r\n".repeat(300_000)].concat();
    let long_header = format!("x: {}", "y".repeat(1 << 20));
    let cases: Vec<(Vec<u8>, Is, &str)> = vec![
        (text(&vec![b'#'; 10_000_000]), Is::Failed, LONG),
        (text(&vec![b'\n'; 8_000_000]), Is::Failed, "the answer has 8000000 lines: not the metrics of an engine"),
        (text(&b"a 1\n".repeat(2_000_000)), Is::Failed, "the answer has 2000000 lines: not the metrics of an engine"),
        (chunks, Is::Failed, "the answer comes a few bytes at a time: is there a proxy in between?"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n#".to_vec(), Is::Failed, LONG),
        (with_header("content-encoding: gzip", &packed), Is::Ok, ""),
        (with_header("content-encoding: X-GZIP", &packed), Is::Ok, ""),
        (text(&packed), Is::Ok, ""),
        (with_header("content-encoding: gzip", BODY.as_bytes()), Is::Ok, ""),
        (with_header("content-encoding: gzip", &bomb), Is::Failed, LONG),
        (text(&packed[..packed.len() / 2]), Is::Failed, DAMAGED),
        (text(&[&packed[..40], &[0; 400][..]].concat()), Is::Failed, DAMAGED),
        (
            with_header("content-encoding: br", b"\x0b\x02\x80"),
            Is::Failed,
            "the answer is packed (br), which was not asked for: have the proxy in between leave it as it is",
        ),
        (http("200 OK", "text/html; charset=utf-8", BODY.as_bytes()), Is::NoMetrics, PAGE),
        (text(b"\r\n <!DOCTYPE html><p>hello"), Is::NoMetrics, PAGE),
        (http("500 Oops", "text/plain", b"boom \x1b[31m"), Is::NoMetrics, "answers with HTTP 500: boom"),
        (http("500 Oops", "text/html", b"<p>boom"), Is::NoMetrics, "answers with HTTP 500"),
        (http("500 Oops", "text/plain", &vec![b'x'; 10_000_000]), Is::NoMetrics, concat!("answers with HTTP 500: ", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx")),
        (json("401 No", "{}"), Is::Unauthorized, "present, needs a key (HTTP 401): put it into WARPTOP_ENGINE_TOKEN or a file for --engine-auth"),
        (json("403 No", "{}"), Is::Unauthorized, "present, needs a key (HTTP 403): put it into WARPTOP_ENGINE_TOKEN or a file for --engine-auth"),
        (json("404 No", "{}"), Is::NoMetrics, "answers, but /metrics is not there (HTTP 404): was the engine started without metrics?"),
        (json("429 No", r#"{"detail":"slow down"}"#), Is::NoMetrics, "answers with HTTP 429: slow down; it limits how often it is asked: give a longer --engine-interval"),
        // Bodies of llama.cpp b11549.
        (json("501 No", r#"{"error":{"code":501,"message":"This server does not support metrics endpoint. Start it with `--metrics`","type":"not_supported_error"}}"#), Is::NoMetrics, "answers with HTTP 501: This server does not support metrics endpoint. Start it with `--metrics`"),
        (json("503 No", r#"{"error":{"message":"Loading model","type":"unavailable_error","code":503}}"#), Is::Loading, "loading its model: it answers, and will be read when it is ready"),
        (json("503 No", r#"{"error":"overloaded"}"#), Is::NoMetrics, "answers with HTTP 503: overloaded"),
        (http("502 Bad Gateway", "text/html", b"<h1>nginx"), Is::NoMetrics, "answers with HTTP 502; a gateway answers and cannot reach the engine behind it"),
        (text(b"node_cpu_seconds_total 1\ngo_x 2\n"), Is::NoMetrics, "answers, but is no engine warptop knows: it exposes node_cpu_seconds_total …"),
        (text(b"\xff\xfe{{{\n1 2 3\n"), Is::NoMetrics, "answers, but is no engine warptop knows: no metric of an engine in its answer"),
        (text(b""), Is::NoMetrics, "answers, but is no engine warptop knows: no metric of an engine in its answer"),
        (b"SSH-2.0-OpenSSH_9.2\r\n".to_vec(), Is::Failed, NO_HTTP),
        // HTTP/0.9 is a body without a head.
        (BODY.as_bytes().to_vec(), Is::Failed, NO_HTTP),
        (b"HTTP/1.1 200 OK\r\nno header\r\n\r\n".to_vec(), Is::Failed, NO_HTTP),
        (b"HTTP/1.1 200 OK\r\n".repeat(2), Is::Failed, NO_HTTP),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello!".to_vec(), Is::Failed, NO_HTTP),
        (b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\nhello!".to_vec(), Is::Failed, NO_HTTP),
        (format!("HTTP/1.1 200 OK\r\n{headers}\r\n").into_bytes(), Is::Failed, HEADERS),
        (with_header(&long_header, b""), Is::Failed, HEADERS),
        (b"HTTP/1.1 302 Found\r\nlocation: http://ann:hunter2@127.0.0.2:1/x?y\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_vec(), Is::Failed, "redirects to http://127.0.0.2:1 (HTTP 302), which is not followed: give that as --engine URL if it is right"),
        (b"HTTP/1.1 302 Found\r\nlocation: /metrics\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_vec(), Is::Failed, "redirects in a circle (HTTP 302): give the final URL"),
        (b"HTTP/1.1 304 Same\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_vec(), Is::NoMetrics, "answers with HTTP 304: no place to redirect to"),
        (format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{}", BODY.len(), &BODY[..20_000]).into_bytes(), Is::Failed, CUT),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n".to_vec(), Is::Failed, CUT),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n".to_vec(), Is::Failed, CUT),
        (b"".to_vec(), Is::Failed, "closed the connection without an answer: is this an engine's port, and does it want https?"),
    ];
    for (answer, is, words) in cases {
        let server = Server::raw(answer);
        drop(check(&server, (is, words)));
    }
}

/// Writes the head of an answer, and then `part` again and again until the other side has enough.
fn endless(head: &'static str, part: &'static [u8], pause: Duration) -> Server {
    Server::start(move |_, stream| {
        let mut open = stream.write_all(head.as_bytes()).is_ok();
        while open {
            open = stream.write_all(part).is_ok();
            std::thread::sleep(pause);
        }
    })
}

static CHUNK: LazyLock<String> = LazyLock::new(|| format!("1000\r\n{}\r\n", "x".repeat(4096)));

/// Fault: engine: an answer that never ends, byte by byte or at full speed
/// Seen: the engine's row says that it is too long or not complete in time
/// Works: the engine beside it
/// Recovers: with the first good answer
#[test]
fn answers_without_end_are_ended() {
    const LATE: (Is, &str) = (Is::Stalled, "no complete answer within 0.1 s: the engine is saturated or stuck");
    const SILENT: (Is, &str) = (Is::Stalled, "does not answer within 0.15 s: it is saturated, stuck or stopped");
    let (none, drip) = (Duration::ZERO, Duration::from_millis(20));
    let long = (Is::Failed, "the answer is longer than 8 MiB: not the metrics of an engine");
    let headers = (Is::Failed, "the headers of its answer are too many or too long: is this an engine's port?");
    let refused = (Is::NoMetrics, "answers with HTTP 500: xxxx");
    let cases = [
        (endless("HTTP/1.1 200 OK\r\n\r\n", &[b'x'; 4096], none), long),
        (endless("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", CHUNK.as_bytes(), none), long),
        (endless("HTTP/1.1 200 OK\r\n", b"x: y\r\n", none), headers),
        (endless("HTTP/1.1 200 OK\r\nx: ", &[b'y'; 4096], none), headers),
        (endless("HTTP/1.1 200 OK\r\n\r\n", b"#", drip), LATE),
        (endless("HTTP/1.1 200 OK\r\n", b"x: y\r\n", Duration::from_millis(40)), SILENT),
        (endless("", b"", drip), SILENT),
        (endless("HTTP/1.1 500 No\r\ncontent-length: 99999\r\n\r\nxxxx", b"", drip), refused),
    ];
    for (server, expected) in cases {
        drop(check(&server, expected));
    }
}

/// A process that is stopped (SIGSTOP) still has its connections taken by the kernel.
/// Fault: engine: its process is stopped (SIGSTOP)
/// Seen: `does not answer within 0.15 s`
/// Works: everything else
/// Recovers: when it goes on
#[test]
fn a_server_that_is_stopped_does_not_answer() {
    let stopped = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let state = Session::named(&stopped.local_addr().unwrap().to_string(), HASTY).outcome("its state");
    assert!(
        matches!(&state, SourceState::Stalled(why) if why.starts_with("does not answer within 0.15 s")),
        "{state:?}"
    );
    // And one that answered a moment ago, if only that it has no metrics, answers no longer.
    let without_metrics = Server::start(|path, stream| {
        if path == "/metrics" {
            drop(stream.write_all(b"HTTP/1.1 404 No\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"));
        } else {
            drop(stream.read(&mut [0]));
        }
    });
    let state = Session::named(&without_metrics.url(), HASTY).outcome("its state");
    assert!(!matches!(state, SourceState::NoMetrics(_)) && state.why().starts_with("does not answer"), "{state:?}");
}

/// Fault: engine: no such host, nothing listens, the connection is reset
/// Seen: `the host name cannot be resolved: check the name, or give the address`, `connection refused: nothing listens there; is the engine running?`
/// Works: the other engine, every second
/// Recovers: with the first answer
#[test]
fn places_that_cannot_be_asked_have_their_words() {
    // A label of more than 63 letters is no name: no resolver needs to be asked.
    let no_name = format!("{}.invalid:8000", "x".repeat(70));
    let closed = {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        free.local_addr().unwrap().to_string()
    };
    let cases = [
        (no_name, "the host name cannot be resolved: check the name, or give the address"),
        (closed, "connection refused: nothing listens there; is the engine running?"),
    ];
    for (url, words) in cases {
        let state = Session::named(&url, PATIENT).outcome(words);
        assert!(matches!(&state, SourceState::Failed(why) if **why == *words), "{state:?}");
    }
    // Closing with something unread resets the connection.
    let reset = (Is::Failed, "the connection was reset: did the engine die, or does it want https?");
    let listen = || std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    drop(check(&Server::accept(listen(), |mut stream: TcpStream| drop(stream.read(&mut [0]))), reset));
    let half = |mut stream: TcpStream| {
        drop(stream.read(&mut [0]));
        drop(stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf"));
    };
    drop(check(&Server::accept(listen(), half), reset));
}

/// Fault: engine: a bad answer between good ones
/// Seen: that it failed, until the next good answer
/// Works: everything else
/// Recovers: with the next good answer
#[test]
fn an_engine_is_read_again_after_a_bad_answer() {
    let bad = Arc::new(AtomicBool::new(false));
    let is_bad = Arc::clone(&bad);
    let server = Server::start(move |path, stream| {
        let answer = if is_bad.load(Ordering::SeqCst) { text(&vec![b'#'; 10_000_000]) } else { vllm(path, BODY, "1") };
        drop(stream.write_all(&answer));
    });
    let session = Session::named(&server.url(), PATIENT);
    session.wait_for_state("good", |s| *s == SourceState::Ok);
    bad.store(true, Ordering::SeqCst);
    session.wait_for_state("bad", |s| matches!(s, SourceState::Failed(_)));
    bad.store(false, Ordering::SeqCst);
    session.wait_for_state("good again", |s| *s == SourceState::Ok);
}

/// Fault: engine: lines that cannot be read, bytes that are no text, a last line cut off
/// Seen: the engine's row counts them: `/metrics: 1 line cannot be read`
/// Works: all other lines of the same answer
/// Recovers: with the first answer without them
#[test]
fn dirt_in_a_body_costs_only_its_own_lines() {
    let dirt = b"vllm:broken{a=\xff} 1\nvllm:kv_cache_usage_perc{engine=\"0\"} NaN\n\
        vllm:num_requests_running{engine=\"0\",pid=\"\xfe\"} 7\r\nvllm:num_requests_running{engine=\"0\"} 7\n\
        vllm:num_requests_running{engine=\"0\"} 6\nvllm:num_requests_waiting{engine=\"0\"} +Inf\n\
        vllm:num_preemptions_total{engine=\"0\"} 3\nvllm:prompt_tokens_total{engine=\"0\"} 12";
    let words = "/metrics: 1 line cannot be read; 1 answer ends within a line, which is left out; 1 series comes twice, the \
                 greater value is used; 2 values are NaN or infinite; the rest is used";
    let session = check(&Server::raw(text(dirt)), (Is::Degraded, words));
    let data = session.store.read();
    let metrics = [Metric::RequestsRunning, Metric::KvUsage, Metric::RequestsWaiting, Metric::PromptTokens];
    let failed = Reading::Missing(Why::Failed);
    let expected = [Reading::Value(7.0), failed, failed, Reading::Missing(Why::Unsupported)];
    assert_eq!(metrics.map(|metric| last(&data, metric)), expected);
}

/// Fault: engine: values that cannot be, negative or beyond all bounds
/// Seen: the engine's row says `/metrics: 3 values are impossible; the rest is used`
/// Works: its other values
/// Recovers: with the first answer without them
#[test]
fn impossible_values_are_told_and_not_shown() {
    let body = b"vllm:num_requests_running{engine=\"0\"} -5\nvllm:num_requests_waiting{engine=\"0\"} 1e30\n\
        vllm:kv_cache_usage_perc{engine=\"0\"} 1.7\nvllm:num_preemptions_total{engine=\"0\"} 3\n";
    let words = "/metrics: 3 values are impossible; the rest is used";
    let session = check(&Server::raw(text(body)), (Is::Degraded, words));
    let data = session.store.read();
    for metric in [Metric::RequestsRunning, Metric::RequestsWaiting, Metric::KvUsage] {
        assert_eq!(last(&data, metric), Reading::Missing(Why::Failed), "{metric:?}");
    }
}

/// Fault: engine: metrics of two engines in one answer
/// Seen: `also holds metrics of SGLang, which are not read`
/// Works: the first engine
/// Recovers: –
#[test]
fn a_second_engine_in_one_body_is_told() {
    let body = format!("{BODY}sglang:num_running_reqs 2\n");
    let words = "/metrics: also holds metrics of SGLang, which are not read";
    let session = check(&Server::raw(text(body.as_bytes())), (Is::Degraded, words));
    assert_eq!(last(&session.store.read(), Metric::RequestsRunning), Reading::Value(109.0));
}

/// Fault: engine: an answer is cut within a line
/// Seen: `1 answer ends within a line, which is left out`
/// Works: all whole lines
/// Recovers: with the next answer
#[test]
fn an_answer_that_promised_less_than_it_sent_is_cut_and_told() {
    // The number at the cut would read as another one.
    let end = BODY.len() - 12;
    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {end}\r\nconnection: close\r\n\r\n{BODY}");
    let words = "/metrics: 1 answer ends within a line, which is left out; the rest is used";
    let session = check(&Server::raw(answer), (Is::Degraded, words));
    assert_eq!(last(&session.store.read(), Metric::RequestsRunning), Reading::Value(109.0));
}

/// A body of 100 000 series, each of a replica, a model and an adapter of its own.
fn many_series() -> String {
    let mut body = BODY.to_owned();
    for i in 0..100_000 {
        let _ = writeln!(body, "vllm:num_requests_running{{engine=\"{i}\",model_name=\"{i}\",lora=\"{i}\"}} 0");
    }
    body
}

/// Fault: engine: an answer of 100,000 series, each of a replica, a model and an adapter of its own
/// Seen: its values, added up
/// Works: the engine beside it
/// Recovers: needs none
#[test]
fn a_hundred_thousand_series_are_read_beside_another_engine() {
    let body = many_series();
    assert!(body.len() > 5_000_000);
    let session = check(&Server::raw(text(body.as_bytes())), (Is::Ok, ""));
    // On a machine that is busy one of its long answers may break off; the next one counts.
    session
        .wait("the sum of them", |data| (last(data, Metric::RequestsRunning) == Reading::Value(109.0)).then_some(()));
    let data = session.store.read();
    assert!(fact(&data, FactKey::Model).is_some_and(|models| models.chars().count() <= 256));
}

/// Fault: engine: a histogram of 60,000 buckets in an answer within the limit of size
/// Seen: the engine's row says `/metrics: ttft_s is left out: 60001 buckets, and at most 128 are read; the rest is used`
/// Works: its other histograms and values, and the engine beside it
/// Recovers: with the first answer whose histogram is within the limits
#[test]
fn a_histogram_of_too_many_buckets_is_left_out_and_told() {
    let mut body = "vllm:num_requests_running 3\n".to_owned();
    for edge in (1..=60_000).map(|edge| edge.to_string()).chain(["+Inf".to_owned()]) {
        let _ = writeln!(body, "vllm:time_to_first_token_seconds_bucket{{le=\"{edge}\"}} 5");
    }
    for edge in ["1.0", "+Inf"] {
        let _ = writeln!(body, "vllm:e2e_request_latency_seconds_bucket{{le=\"{edge}\"}} 5");
    }
    let words = "/metrics: ttft_s is left out: 60001 buckets, and at most 128 are read; the rest is used";
    let session = check(&Server::raw(text(body.as_bytes())), (Is::Degraded, words));
    let data = session.store.read();
    assert_eq!(last(&data, Metric::RequestsRunning), Reading::Value(3.0));
    assert!(data.histogram(ENGINE, Metric::E2e).is_some() && data.histogram(ENGINE, Metric::Ttft).is_none());
}

/// The most resident memory of a process, KiB.
fn most_memory(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.trim().parse().ok())
}

/// Fault: engine: answers without end, of 10 MB, packed to a thousandth, of 100,000 series: all at once, ten times a second
/// Seen: each engine's row says what is wrong with it
/// Works: the good engine beside them, on screen and in the recording; less than 150 MiB
/// Recovers: with the first good answer
#[test]
fn bad_answers_take_little_memory_and_leave_a_recording_of_the_good_ones() {
    let none = Duration::ZERO;
    let mut servers = vec![
        Server::raw(text(&vec![b'#'; 10_000_000])),
        endless("HTTP/1.1 200 OK\r\n\r\n", &[b'x'; 4096], none),
        endless("HTTP/1.1 200 OK\r\n", b"x: y\r\n", none),
        Server::raw(text(&gzip(&vec![b'#'; 200 << 20]))),
        Server::raw(http("500 No", "text/plain", &vec![b'x'; 20 << 20])),
    ];
    servers.push(Server::raw(text(many_series().as_bytes())));
    servers.push(Server::start(|path, stream| drop(stream.write_all(&vllm(path, BODY, "1")))));
    let mut command = Command::new(env!("CARGO_BIN_EXE_warptop"));
    command.env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR"));
    command.args(["record", "--no-discover", "--engine-interval", "100ms", "--engine-timeout", "60s", "-o", "-"]);
    command.args(servers.iter().map(|server| format!("--engine={}", server.url())));
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    // Ends with its reader.
    let batches = Reader::new(child.stdout.take().unwrap()).unwrap();
    let (good, mut told, mut read) = (SourceId::Engine(6), HashSet::new(), 0);
    for batch in batches {
        if batch.state.as_ref().is_some_and(|state| *state != SourceState::Starting) {
            told.insert(batch.source.to_string());
        }
        let engines = told.iter().filter(|source| source.starts_with("engine")).count();
        let good = batch.source == good && batch.samples.iter().any(|s| s.reading == Reading::Value(109.0));
        read += usize::from(good && engines == servers.len());
        if read == 2 {
            break;
        }
    }
    let most = most_memory(child.id()).unwrap();
    drop(child.wait());
    assert_eq!(read, 2, "{told:?}");
    assert!(most < 150 << 10, "{most} KiB");
}

#[test]
fn a_redirect_at_the_same_place_is_followed() {
    let server = Server::start(|path, stream| {
        let answer = match path {
            "/metrics" => {
                b"HTTP/1.1 307 There\r\nlocation: /metrics/\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_vec()
            }
            "/metrics/" => vllm("/metrics", BODY, "1"),
            other => vllm(other, BODY, "1"),
        };
        drop(stream.write_all(&answer));
    });
    let session = Session::named(&server.url(), PATIENT);
    session.wait_for_state("a reading", |s| *s == SourceState::Ok);
}
