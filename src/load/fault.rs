//! Words for what goes wrong with a connection: what, why, what to do.
//!
//! It must not know streams of events. Invariant: nothing that was sent is in the words.

use std::error::Error;
use std::io::{self, ErrorKind};

use crate::net::tls::TlsTrouble;

use super::exchange::Fault;
use super::level::HostLimit;

/// The host has no address.
pub(super) const NO_ADDRESS: &str = "the host name cannot be resolved: check the name, or give the address";
/// It took as long as the whole request may.
pub(super) const NOT_IN_TIME: &str =
    "none was made in time: host down, a firewall drops the packets, or it does not answer in TLS";

/// Why a socket was not connected.
pub(super) fn connecting(error: &io::Error) -> Fault {
    Fault::Unconnected(match error.kind() {
        ErrorKind::ConnectionRefused => {
            "connection refused: nothing listens there, or its queue is full; is the engine running?".to_owned()
        }
        ErrorKind::TimedOut => NOT_IN_TIME.to_owned(),
        _ if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => {
            return Fault::AtHostLimit(HostLimit::OpenFiles);
        }
        ErrorKind::AddrNotAvailable => return Fault::AtHostLimit(HostLimit::LocalPorts),
        kind => kind.to_string(),
    })
}

/// Why there is no TLS on a connected socket.
pub(super) fn securing(error: &io::Error) -> Fault {
    Fault::Unconnected(tls(error).unwrap_or(TlsTrouble::Ended).to_string())
}

/// An answer that did not begin.
pub(super) fn without_answer(error: Option<&hyper::Error>) -> Fault {
    let Some(error) = error else { return Fault::Cut(CLOSED.to_owned()) };
    if error.is_parse() {
        return Fault::Malformed(
            "what answers is no HTTP: is this an engine's port, and does it want https?".to_owned(),
        );
    }
    Fault::Cut(found(
        error,
        "the connection was reset before it began: did the engine die, or does it want https?",
        CLOSED,
    ))
}

/// An answer that did not end.
pub(super) fn within_answer(error: Option<&hyper::Error>) -> Fault {
    let ended = "the connection ended before it: did the engine die, or is there a proxy in between?";
    let reset = "the connection was reset: did the engine die?";
    Fault::Cut(error.map_or_else(|| ended.to_owned(), |error| found(error, reset, ended)))
}

const CLOSED: &str = "the connection was closed before it began: did the engine die, or does it want https?";

fn found(error: &hyper::Error, reset: &str, otherwise: &str) -> String {
    let mut next: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(cause) = next {
        if let Some(io) = cause.downcast_ref::<io::Error>() {
            if let Some(tls) = tls(io) {
                return tls.to_string();
            }
            if matches!(io.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) {
                return reset.to_owned();
            }
        }
        next = cause.source();
    }
    otherwise.to_owned()
}

fn tls(error: &io::Error) -> Option<TlsTrouble> {
    error.get_ref()?.downcast_ref::<rustls::Error>().map(TlsTrouble::from)
}
