//! A server that does what a script says, in virtual time and in memory, and notes when it did it.
//!
//! It runs on the paused clock of tokio: time passes only when everyone waits, so what a client measures is exactly what
//! the script says.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};
use tokio::time::{Instant, sleep};

use crate::load::exchange::Fault;
use crate::load::wire::{Duplex, Opener, Opening};
use crate::model::{Clock, Time};

/// What [`VirtualClock`] says first, µs: 0 would hide what was never set.
pub(crate) const START: u64 = 7_000_000;

/// The clock of tokio.
pub(crate) struct VirtualClock(Instant);

impl VirtualClock {
    pub(crate) fn start() -> Arc<dyn Clock> {
        Arc::new(Self(Instant::now()))
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Time {
        Time(self.micros() / 1000)
    }
    fn micros(&self) -> u64 {
        START + u64::try_from(self.0.elapsed().as_micros()).unwrap()
    }
}

/// What a server does on a connection. When there is nothing more to do, it closes it.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Connecting takes so many ms; only as the first step.
    Connect(u64),
    /// Reads a whole request.
    Hear,
    /// Lets so many ms pass.
    Wait(u64),
    /// Sends in one piece.
    Send(Vec<u8>),
    /// Waits until the client closes the connection.
    Hold,
    /// Resets the connection.
    Reset,
}

/// A step that sends.
pub(crate) fn send(bytes: impl AsRef<[u8]>) -> Step {
    Step::Send(bytes.as_ref().to_vec())
}

/// What was noted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notes {
    /// The requests, head and body.
    pub(crate) heard: Vec<String>,
    /// When each piece was sent, µs.
    pub(crate) sent: Vec<u64>,
    /// When the client was seen to have closed a connection, µs.
    pub(crate) gone: Vec<u64>,
    /// Connections that were made.
    pub(crate) connections: usize,
}

/// A server with a script for each connection that is made to it, one after the other; after those it refuses.
#[derive(Clone)]
pub(crate) struct Server {
    scripts: Arc<Mutex<VecDeque<Vec<Step>>>>,
    notes: Arc<Mutex<Notes>>,
    clock: Arc<dyn Clock>,
}

impl Server {
    pub(crate) fn new(clock: &Arc<dyn Clock>, scripts: impl IntoIterator<Item = Vec<Step>>) -> Self {
        let scripts = Arc::new(Mutex::new(scripts.into_iter().collect()));
        Self { scripts, notes: Arc::default(), clock: Arc::clone(clock) }
    }

    pub(crate) fn notes(&self) -> Notes {
        self.notes.lock().unwrap().clone()
    }

    /// Plays a script at one end of a connection.
    pub(crate) async fn play(self, steps: Vec<Step>, mut io: impl Duplex, reset: Arc<AtomicBool>) {
        let note = |change: &dyn Fn(&mut Notes, u64)| change(&mut self.notes.lock().unwrap(), self.clock.micros());
        for step in steps {
            match step {
                Step::Connect(_) => {}
                Step::Hear => {
                    let Some(request) = hear(&mut io).await else { return note(&|notes, now| notes.gone.push(now)) };
                    note(&|notes, _| notes.heard.push(request.clone()));
                }
                Step::Wait(ms) => sleep(Duration::from_millis(ms)).await,
                Step::Send(bytes) => {
                    if io.write_all(&bytes).await.is_err() {
                        return note(&|notes, now| notes.gone.push(now));
                    }
                    io.flush().await.unwrap();
                    note(&|notes, now| notes.sent.push(now));
                }
                Step::Hold => {
                    while io.read(&mut [0; 1024]).await.is_ok_and(|read| read > 0) {}
                    note(&|notes, now| notes.gone.push(now));
                }
                Step::Reset => reset.store(true, SeqCst),
            }
        }
    }
}

impl Opener for Server {
    fn open(&self) -> Opening<'_> {
        Box::pin(async {
            let next = self.scripts.lock().unwrap().pop_front();
            let Some(steps) = next else { return Err(Fault::Unconnected("refused by the script".to_owned())) };
            if let Some(Step::Connect(ms)) = steps.first() {
                sleep(Duration::from_millis(*ms)).await;
            }
            self.notes.lock().unwrap().connections += 1;
            let (near, far) = tokio::io::duplex(1 << 20);
            let reset = Arc::new(AtomicBool::new(false));
            tokio::spawn(self.clone().play(steps, far, Arc::clone(&reset)));
            Ok(Box::new(Line { io: near, reset }) as Box<dyn Duplex>)
        })
    }
}

/// Reads a request with its body; `None` when the connection ends first.
async fn hear(io: &mut (impl AsyncRead + Unpin)) -> Option<String> {
    let mut text = Vec::new();
    loop {
        let byte = io.read_u8().await.ok()?;
        text.push(byte);
        if text.ends_with(b"\r\n\r\n") {
            break;
        }
    }
    let head = String::from_utf8(text).unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    io.read_exact(&mut body).await.ok()?;
    Some(head + std::str::from_utf8(&body).unwrap())
}

/// The client's end, which can be reset.
struct Line {
    io: DuplexStream,
    reset: Arc<AtomicBool>,
}

impl AsyncRead for Line {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.io).poll_read(cx, buffer);
        let is_end = matches!(polled, Poll::Ready(Ok(()))) && buffer.filled().len() == before;
        if is_end && self.reset.load(SeqCst) { Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())) } else { polled }
    }
}

impl AsyncWrite for Line {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

/// The head of a stream in chunked encoding.
pub(crate) const HEAD: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n";
/// The last chunk of such a body.
pub(crate) const END: &str = "0\r\n\r\n";
/// The event that ends a stream.
pub(crate) const DONE: &str = "data: [DONE]\n\n";

/// Bytes as a chunk of the chunked encoding.
pub(crate) fn chunk(bytes: impl AsRef<[u8]>) -> Vec<u8> {
    let bytes = bytes.as_ref();
    [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

/// An event of a chat with this delta.
pub(crate) fn delta(delta: &str) -> String {
    format!("data: {{\"id\":\"c\",\"choices\":[{{\"index\":0,\"delta\":{delta},\"finish_reason\":null}}]}}\n\n")
}

/// An event with a text.
pub(crate) fn say(text: &str) -> String {
    delta(&format!("{{\"content\":\"{text}\"}}"))
}

/// An event with reasoning.
pub(crate) fn think(text: &str) -> String {
    delta(&format!("{{\"reasoning_content\":\"{text}\"}}"))
}

/// An event that says why the model stopped.
pub(crate) fn stop(reason: &str) -> String {
    format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{}},\"finish_reason\":\"{reason}\"}}]}}\n\n")
}

/// An event with usage alone.
pub(crate) fn usage(prompt: u64, output: u64) -> String {
    format!("data: {{\"choices\":[],\"usage\":{{\"prompt_tokens\":{prompt},\"completion_tokens\":{output}}}}}\n\n")
}

/// An answer with a length.
pub(crate) fn plain(status: &str, headers: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// The steps of a whole stream of these events, one a piece, `ms` before each.
pub(crate) fn stream(ms: u64, events: &[String]) -> Vec<Step> {
    let mut steps = vec![Step::Hear, send(HEAD)];
    for event in events {
        steps.extend([Step::Wait(ms), send(chunk(event))]);
    }
    steps.push(send([chunk(DONE), END.as_bytes().to_vec()].concat()));
    steps
}
