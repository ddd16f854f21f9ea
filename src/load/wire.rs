//! A connection that notes when its bytes arrive: below TLS and HTTP, before anyone understands them.
//!
//! It must not know streams of events. Invariants: the moment of a piece of a body is that of the read that brought it,
//! since HTTP reads again only when all that came is handed on, and connection and body are driven by one task; dropping
//! an [`Open`] closes its connection.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};

use http_body_util::Full;
use hyper::body::{Body, Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, lookup_host};
use tokio_rustls::TlsConnector;

use crate::model::Clock;

use super::exchange::Fault;
use super::fault;

/// Most that is read at once, bytes. Hundreds of connections have one such buffer each.
const BUFFER: usize = 64 << 10;

/// Bytes both ways.
pub trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Duplex for T {}

/// Bytes both ways in a moment, or why not.
pub type Opening<'a> = Pin<Box<dyn Future<Output = Result<Box<dyn Duplex>, Fault>> + Send + 'a>>;

/// Opens what connections are made of.
pub trait Opener: Send + Sync {
    /// Another one.
    fn open(&self) -> Opening<'_>;
}

/// Opens TCP sockets to a place.
#[derive(Clone, Debug)]
pub struct Sockets {
    /// Name or address, without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
}

impl Opener for Sockets {
    fn open(&self) -> Opening<'_> {
        Box::pin(async {
            let addresses: Vec<_> = lookup_host((&*self.host, self.port))
                .await
                .map_err(|_| Fault::Unconnected(fault::NO_ADDRESS.to_owned()))?
                .collect();
            let socket = TcpStream::connect(&*addresses).await.map_err(|error| fault::connecting(&error))?;
            // A request must not wait for the acknowledgement of the one before.
            socket.set_nodelay(true).map_err(|error| fault::connecting(&error))?;
            Ok(Box::new(socket) as Box<dyn Duplex>)
        })
    }
}

/// What was noted of a connection, µs.
#[derive(Debug)]
pub struct Marks {
    /// When bytes came last.
    arrived: AtomicU64,
    /// When the other side ended it.
    ended: AtomicU64,
    /// When the first byte of an answer came.
    first: AtomicU64,
}

const NEVER: u64 = u64::MAX;

impl Marks {
    fn new() -> Arc<Self> {
        Arc::new(Self { arrived: AtomicU64::new(0), ended: AtomicU64::new(NEVER), first: AtomicU64::new(NEVER) })
    }

    /// When the bytes came that are being read.
    pub fn arrived(&self) -> u64 {
        self.arrived.load(Relaxed)
    }

    /// When anything came last: bytes, or the end.
    pub fn last(&self) -> u64 {
        Some(self.ended.load(Relaxed)).filter(|&ended| ended != NEVER).unwrap_or_else(|| self.arrived())
    }

    /// When the first byte came of the answer to the last request.
    pub fn first(&self) -> Option<u64> {
        Some(self.first.load(Relaxed)).filter(|&first| first != NEVER)
    }
}

/// Hands everything on and is told how many bytes each read brought.
struct Watched<S, F> {
    inner: S,
    on_read: F,
}

impl<S: AsyncRead + Unpin, F: FnMut(usize) + Unpin> AsyncRead for Watched<S, F> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let polled = Pin::new(&mut this.inner).poll_read(cx, buffer);
        if polled.is_ready() {
            (this.on_read)(buffer.filled().len() - before);
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin, F: Unpin> AsyncWrite for Watched<S, F> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, parts)
    }
    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// With whom TLS is spoken.
pub type Tls = (TlsConnector, rustls::pki_types::ServerName<'static>);

/// Why an answer did not begin.
#[derive(Debug)]
pub struct NoAnswer {
    /// The library's error where it has one.
    pub error: Option<hyper::Error>,
    /// The request was given back: not a byte of it was written.
    pub is_unsent: bool,
}

/// An open connection.
pub struct Open {
    sender: http1::SendRequest<Full<Bytes>>,
    pump: Pump,
    /// What is noted of it.
    pub marks: Arc<Marks>,
}

impl Open {
    /// Opens one.
    ///
    /// # Errors
    /// Why there is none: [`Fault::is_unconnected`].
    pub async fn new(opener: &dyn Opener, tls: Option<&Tls>, clock: &Arc<dyn Clock>) -> Result<Self, Fault> {
        let marks = Marks::new();
        let (noted, clock) = (Arc::clone(&marks), Arc::clone(clock));
        let on_read = move |bytes| {
            let mark = if bytes > 0 { &noted.arrived } else { &noted.ended };
            mark.store(clock.micros(), Relaxed);
        };
        let bare = Watched { inner: opener.open().await?, on_read };
        let plain: Box<dyn Duplex> = match tls {
            None => Box::new(bare),
            Some((connector, name)) => {
                let secured = connector.connect(name.clone(), bare).await;
                Box::new(secured.map_err(|error| fault::securing(&error))?)
            }
        };
        let noted = Arc::clone(&marks);
        // Above TLS, whose own messages are no answer.
        let on_read = move |bytes| {
            if bytes > 0 && noted.first().is_none() {
                noted.first.store(noted.arrived(), Relaxed);
            }
        };
        let io: Box<dyn Duplex> = Box::new(Watched { inner: plain, on_read });
        let shaken = http1::Builder::new().max_buf_size(BUFFER).handshake(TokioIo::new(io)).await;
        let (sender, connection) = shaken.map_err(|_| Fault::Unconnected("HTTP cannot begin".to_owned()))?;
        Ok(Self { sender, pump: Pump { connection, is_over: false }, marks })
    }

    /// Whether it can carry another request, as far as is known: it was not looked after while it was idle.
    pub async fn is_usable(&mut self) -> bool {
        poll_fn(|cx| {
            self.pump.turn(cx);
            Poll::Ready(())
        })
        .await;
        !self.pump.is_over && matches!(self.pump.drive(|cx| self.sender.poll_ready(cx)).await, Some(Ok(())))
    }

    /// Sends a request; the head of its answer.
    ///
    /// # Errors
    /// The library's error where it has one, and whether nothing of the request was written.
    pub async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, NoAnswer> {
        self.marks.first.store(NEVER, Relaxed);
        let mut answer = pin!(self.sender.try_send_request(request));
        let Some(ended) = self.pump.drive(|cx| answer.as_mut().poll(cx)).await else {
            return Err(NoAnswer { error: None, is_unsent: false });
        };
        ended.map_err(|mut trouble| {
            let is_unsent = trouble.take_message().is_some();
            NoAnswer { error: Some(trouble.into_error()), is_unsent }
        })
    }

    /// The next piece of a body; `None` at its end. When it came is [`Marks::arrived`].
    ///
    /// # Errors
    /// The library's error where it has one.
    pub async fn piece(&mut self, body: &mut Incoming) -> Result<Option<Bytes>, Option<hyper::Error>> {
        loop {
            let frame = self.pump.drive(|cx| Pin::new(&mut *body).poll_frame(cx)).await;
            match frame {
                None => return Err(None),
                Some(None) => return Ok(None),
                Some(Some(Err(error))) => return Err(Some(error)),
                Some(Some(Ok(frame))) => {
                    // Else it is trailers, which say nothing here.
                    if let Ok(piece) = frame.into_data() {
                        return Ok(Some(piece));
                    }
                }
            }
        }
    }
}

/// The part of a connection that reads and writes.
struct Pump {
    connection: http1::Connection<TokioIo<Box<dyn Duplex>>, Full<Bytes>>,
    is_over: bool,
}

impl Pump {
    /// Reads and writes what can be; how it ended is told to whoever waits for an answer.
    fn turn(&mut self, cx: &mut Context<'_>) {
        self.is_over = self.is_over || Pin::new(&mut self.connection).poll(cx).is_ready();
    }

    /// Reads and writes until `wanted` is there; `None`: the connection is over and it is not.
    async fn drive<T>(&mut self, mut wanted: impl FnMut(&mut Context<'_>) -> Poll<T>) -> Option<T> {
        poll_fn(|cx| {
            // Only the connection brings what is wanted, so only the connection has to wake this task.
            let mut quiet = Context::from_waker(Waker::noop());
            if let Poll::Ready(found) = wanted(&mut quiet) {
                return Poll::Ready(Some(found));
            }
            self.turn(cx);
            match wanted(&mut quiet) {
                Poll::Ready(found) => Poll::Ready(Some(found)),
                Poll::Pending if self.is_over => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }
}
