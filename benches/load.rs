//! What the load client can take: events per second of one core (aim: at least 100,000 through HTTP), and how late it is
//! with 256 users (aim: P99 of the dispatch lag below 1 ms).
//!
//! Time is that of the client's thread on its CPU, so that a server on the same machine does not count; lags are those that
//! every level of a sweep reports, with the server on the same CPUs.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark prints, and an error ends it")]

use std::cell::RefCell;
use std::fmt::Write as _;
use std::hint::black_box;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::task::LocalSet;
use warptop::load::chunk::{Chunk, Counter};
use warptop::load::exchange::{Call, Lane, Transport};
use warptop::load::http::Wire;
use warptop::load::plan::{Api, Budget, Lengths, Order, Plan, PromptAs, Shape, Slo, Span};
use warptop::load::sse::Splitter;
use warptop::load::{self, Setup};
use warptop::model::SystemClock;
use warptop::net::endpoint::Endpoint;
use warptop::net::tls::Authorities;

/// As vLLM 0.32 sends them.
const CHAT: &str = r#"data: {"id":"chatcmpl-8d98152e3a7f6880","object":"chat.completion.chunk","created":1795961050,"model":"tiny-qwen3","choices":[{"index":0,"delta":{"content":"ublish"},"logprobs":null,"finish_reason":null,"token_ids":null}],"usage":{"prompt_tokens":13,"total_tokens":15,"completion_tokens":2,"completion_tokens_details":null}}"#;
const COMPLETION: &str = r#"data: {"id":"cmpl-803f4b159bcc09cd","object":"text_completion","created":1795961050,"model":"tiny-qwen3","choices":[{"index":0,"text":"orresponding","logprobs":null,"finish_reason":null,"stop_reason":null,"prompt_token_ids":null,"token_ids":null}]}"#;
const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
/// Events of one answer.
const EVENTS: u64 = 2000;

fn main() {
    for (name, event) in [("chat", CHAT), ("completion", COMPLETION)] {
        println!("parse, {name} of {} bytes: {:.0} events per CPU second", event.len(), parsed(event));
    }
    for (streams, total) in [(1, 1_000_000), (64, 1_000_000), (256, 1_024_000)] {
        through("flood", streams, total, EVENTS as usize);
    }
    for streams in [1, 64, 256] {
        through("one event a write", streams, 512_000, 1);
    }
    through("flood", 64, 5_120_000, EVENTS as usize);
    for users in [64, 256] {
        late(users);
    }
}

/// A level of so many users, each of whom gets a token every 20 ms: how late the client was, as its own proof says.
fn late(users: u32) {
    let endpoint = Endpoint::parse(&format!("127.0.0.1:{}", engine())).unwrap();
    let clock = Arc::new(SystemClock::start());
    let setup = Setup { endpoint, authorities: Authorities::default(), clock, stop: Arc::new(AtomicBool::new(false)) };
    let plan = Plan {
        api: Api::Completions,
        model: None,
        shape: Shape::Closed(vec![users]),
        prompt: Lengths::Fixed(256),
        output: Lengths::Fixed(64),
        prompt_as: PromptAs::Words,
        shared_prefix: 0.0,
        force_output: true,
        each_token: false,
        seed: 1,
        span: Span::Time { warmup_s: 2.0, least_s: 10.0, samples: 368, most_s: 20.0 },
        repeats: 1,
        order: Order::Listed,
        most_in_flight: 1024,
        timeout_s: 60.0,
        slo: Slo::default(),
        budget: Budget { seconds: 120.0, tokens: 100_000_000 },
        most_errors: 0.1,
    };
    let swept = load::run(&plan, &setup, drop).unwrap();
    let level = &swept.levels[0];
    let ms = |seconds: Option<f64>| seconds.unwrap_or(f64::NAN) * 1e3;
    let (dispatch, of_loop) = (level.client.dispatch_lag, level.client.loop_lag);
    println!(
        "{users} users, {} requests, {:.0} events/s: dispatch lag P99 {:.3} ms (n {}), event-loop lag P99 {:.3} ms, CPU {:.0} % of a core",
        level.requests.measured,
        level.output_tokens_per_s.map_or(f64::NAN, |rate| rate.value),
        ms(dispatch.p99),
        dispatch.n,
        ms(of_loop.p99),
        level.client.cpu_pct.unwrap_or(f64::NAN),
    );
}

/// A server with one model that sends a token every 20 ms.
fn engine() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for socket in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || speak(socket));
        }
    });
    port
}

/// Until the client is gone.
fn speak(mut socket: TcpStream) -> Option<()> {
    socket.set_nodelay(true).ok()?;
    let mut requests = BufReader::new(socket.try_clone().ok()?);
    loop {
        let (mut line, mut length, mut posts) = (String::new(), 0, false);
        while line != "\r\n" {
            line.clear();
            if requests.read_line(&mut line).ok()? == 0 {
                return None;
            }
            posts |= line.starts_with("POST");
            let value = line.to_ascii_lowercase();
            length = value.strip_prefix("content-length:").map_or(length, |value| value.trim().parse().unwrap());
        }
        let mut body = vec![0; length];
        requests.read_exact(&mut body).ok()?;
        let request = String::from_utf8_lossy(&body);
        let number = |name: &str| request.split(name).nth(1)?.split([',', '}']).next()?.parse().ok();
        let (prompt, tokens) = (request.split_whitespace().count(), number("\"max_tokens\":").unwrap_or(1_u32));
        let usage = format!(r#""usage":{{"prompt_tokens":{prompt},"completion_tokens":{tokens}}}"#);
        if !request.contains("\"stream\":true") {
            let answer = if posts {
                format!(r#"{{"choices":[{{"text":"a","finish_reason":"length"}}],{usage}}}"#)
            } else {
                r#"{"data":[{"id":"m"}]}"#.to_owned()
            };
            let head = format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}", answer.len());
            write!(socket, "{head}\r\n\r\n{answer}").ok()?;
            continue;
        }
        socket.write_all(HEAD.as_bytes()).ok()?;
        for _ in 0..tokens {
            std::thread::sleep(Duration::from_millis(20));
            write!(socket, "{:x}\r\n{COMPLETION}\n\n\r\n", COMPLETION.len() + 2).ok()?;
        }
        let end = format!("data: {{\"choices\":[],{usage}}}\n\ndata: [DONE]\n\n");
        write!(socket, "{:x}\r\n{end}\r\n", end.len()).ok()?;
        socket.write_all(b"0\r\n\r\n").ok()?;
    }
}

/// Events per CPU second of splitter and chunks, from memory.
fn parsed(event: &str) -> f64 {
    let stream = format!("{event}\n\n").repeat(200);
    let (mut splitter, mut counter, mut seen) = (Splitter::default(), Counter::default(), 0_u32);
    let began = cpu();
    for _ in 0..2000 {
        // As large as the pieces that HTTP hands on.
        for mut piece in black_box(stream.as_bytes()).chunks(16 << 10) {
            while let Some(event) = splitter.next(&mut piece).unwrap() {
                let chunk = Chunk::read(event.data.trim_ascii()).unwrap();
                black_box(counter.tokens(&chunk));
                seen += u32::from(chunk.content);
            }
        }
    }
    f64::from(seen) / cpu().saturating_sub(began).as_secs_f64()
}

/// Many streams over loopback, `a_write` events in each write of the server.
fn through(what: &str, streams: u64, total: u64, a_write: usize) {
    let port = serve(a_write);
    let endpoint = Endpoint::parse(&format!("127.0.0.1:{port}")).unwrap();
    let wire = Wire::new(&endpoint, &Authorities::default(), Arc::new(SystemClock::start())).unwrap();
    let seen = Rc::new(RefCell::new(Seen::default()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let local = LocalSet::new();
    for _ in 0..streams {
        let (mut lane, seen) = (wire.lane(), Rc::clone(&seen));
        local.spawn_local(async move {
            let mut stamps = Vec::new();
            for _ in 0..total / streams / EVENTS {
                let limit = Duration::from_mins(5);
                let call = Call { path: "/v1/chat/completions", body: Some(b"{}".to_vec()), limit, output: None };
                let exchange = lane.stream(call, &mut stamps).await;
                assert_eq!((exchange.fault, stamps.len() as u64), (None, EVENTS));
                seen.borrow_mut().add(EVENTS);
            }
        });
    }
    let began = cpu();
    runtime.block_on(local);
    let spent = cpu().saturating_sub(began).as_secs_f64();
    let seen = seen.borrow();
    let mut memory = String::new();
    for (events, kib) in &seen.memory {
        write!(memory, " · {kib} KiB resident after {events} M").unwrap();
    }
    println!(
        "{what}, {streams} streams, {} events: {:.0} events per CPU second{memory}",
        seen.events,
        seen.events as f64 / spent
    );
}

/// Events so far, and memory at each million of them.
#[derive(Default)]
struct Seen {
    events: u64,
    memory: Vec<(u64, u64)>,
}

impl Seen {
    fn add(&mut self, events: u64) {
        let millions = self.events / 1_000_000;
        self.events += events;
        if self.events / 1_000_000 > millions {
            self.memory.push((millions + 1, resident_kib()));
        }
    }
}

/// A server that answers every request on every connection with the same stream.
fn serve(a_write: usize) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let event = format!("{CHAT}\n\n");
    let chunk = format!("{:x}\r\n{event}\r\n", event.len());
    let writes = Arc::new(vec![chunk.repeat(a_write); EVENTS as usize / a_write]);
    std::thread::spawn(move || {
        for socket in listener.incoming().map_while(Result::ok) {
            let writes = Arc::clone(&writes);
            std::thread::spawn(move || answer(socket, &writes));
        }
    });
    port
}

/// Until the client is gone.
fn answer(mut socket: TcpStream, writes: &[String]) -> Option<()> {
    socket.set_nodelay(true).ok()?;
    let mut requests = BufReader::new(socket.try_clone().ok()?);
    loop {
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            if requests.read_line(&mut line).ok()? == 0 {
                return None;
            }
        }
        requests.read_exact(&mut [0; 2]).ok()?;
        socket.write_all(HEAD.as_bytes()).ok()?;
        for write in writes {
            socket.write_all(write.as_bytes()).ok()?;
        }
        socket.write_all(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n").ok()?;
    }
}

/// What this thread has used of its CPU.
fn cpu() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap()
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
