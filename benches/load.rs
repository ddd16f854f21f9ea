//! What the load client can take: events per second of one core. Aim: at least 100,000 through HTTP.
//!
//! Time is that of the client's thread on its CPU, so that a server on the same machine does not count.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark prints, and an error ends it")]

use std::cell::RefCell;
use std::fmt::Write as _;
use std::hint::black_box;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::task::LocalSet;
use warptop::load::chunk::{Chunk, Counter};
use warptop::load::exchange::{Call, Lane, Transport};
use warptop::load::http::Wire;
use warptop::load::sse::Splitter;
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
                let call = Call { path: "/v1/chat/completions", body: Some(b"{}".to_vec()), limit };
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
