//! The load client over real sockets: stamps in order and never before the server sent, counts and faults. How late a stamp
//! was is printed, not judged: that is the machine's matter.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "in a test an error is a failure")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rcgen::generate_simple_self_signed;
use rustls::pki_types::{PrivateKeyDer, pem::PemObject};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use warptop::load::exchange::{Call, Exchange, Fault, Lane, Stamp, Transport};
use warptop::load::http::{Connection, Wire};
use warptop::model::{Clock, SystemClock};
use warptop::net::endpoint::Endpoint;
use warptop::net::tls::Authorities;

const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

/// What a server does for one request.
#[derive(Clone)]
enum Step {
    Send(String),
    Wait(u64),
    /// Ends the connection with an RST, which is what closing one does whose bytes were not all read; last step only.
    Reset,
}

fn event(data: &str) -> Step {
    let event = format!("data: {data}\n\n");
    Step::Send(format!("{:x}\r\n{event}\r\n", event.len()))
}

fn say(text: &str) -> Step {
    event(&format!(r#"{{"choices":[{{"index":0,"delta":{{"content":"{text}"}}}}]}}"#))
}

fn done() -> [Step; 2] {
    [event("[DONE]"), Step::Send("0\r\n\r\n".to_owned())]
}

/// Answers each request over whatever connection it comes; notes when each piece is about to be sent, µs.
struct Server {
    port: u16,
    sent: Arc<Mutex<Vec<u64>>>,
}

impl Server {
    fn start(clock: &Arc<dyn Clock>, tls: Option<ServerConfig>, answers: Vec<Vec<Step>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (sent, clock, tls) = (Arc::default(), Arc::clone(clock), tls.map(Arc::new));
        let noted = Arc::clone(&sent);
        thread::spawn(move || {
            let mut answers = answers.into_iter();
            for socket in listener.incoming().map_while(Result::ok) {
                socket.set_nodelay(true).unwrap();
                let more = match &tls {
                    None => serve(socket, &mut answers, &*clock, &noted),
                    Some(tls) => {
                        let tls = ServerConnection::new(Arc::clone(tls)).unwrap();
                        serve(StreamOwned::new(tls, socket), &mut answers, &*clock, &noted)
                    }
                };
                if !more {
                    return;
                }
            }
        });
        Self { port, sent }
    }
}

/// Whether there are more answers to give.
fn serve(
    io: impl Read + Write,
    answers: &mut std::vec::IntoIter<Vec<Step>>,
    clock: &dyn Clock,
    sent: &Mutex<Vec<u64>>,
) -> bool {
    let mut io = BufReader::new(io);
    while answers.len() > 0 {
        let (mut line, mut length) = (String::new(), 0);
        while line != "\r\n" {
            line.clear();
            if !matches!(io.read_line(&mut line), Ok(read) if read > 0) {
                return true;
            }
            length = line.strip_prefix("content-length: ").map_or(length, |length| length.trim().parse().unwrap());
        }
        let answer = answers.next().unwrap();
        if !matches!(answer.last(), Some(Step::Reset)) {
            io.read_exact(&mut vec![0; length]).unwrap();
        }
        for step in answer {
            match step {
                Step::Send(piece) => {
                    sent.lock().unwrap().push(clock.micros());
                    io.get_mut().write_all(piece.as_bytes()).unwrap();
                    io.get_mut().flush().unwrap();
                }
                Step::Wait(ms) => thread::sleep(Duration::from_millis(ms)),
                Step::Reset => return answers.len() > 0,
            }
        }
    }
    false
}

fn client(endpoint: &Endpoint, authorities: &Authorities, clock: &Arc<dyn Clock>) -> Connection {
    Wire::new(endpoint, authorities, Arc::clone(clock)).unwrap().lane()
}

/// A request with a body that no buffer of the server holds whole.
fn call() -> Call {
    Call { path: "/v1/chat/completions", body: Some(vec![b' '; 40_000]), limit: Duration::from_mins(1), output: None }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Stamps against what was sent: the head, then an event with content in each piece.
fn check(what: &str, exchange: &Exchange, stamps: &[Stamp], sent: &[u64]) {
    let first_byte = exchange.first_byte.unwrap();
    assert!(exchange.dispatched.unwrap() <= first_byte && sent[0] <= first_byte, "{what}");
    let moments: Vec<u64> = stamps.iter().map(|stamp| stamp.at).collect();
    assert!(moments.is_sorted() && first_byte <= moments[0], "{what}: {moments:?}");
    let late: Vec<u64> = moments.iter().zip(&sent[1..]).map(|(at, sent)| at.checked_sub(*sent).unwrap()).collect();
    assert_eq!((exchange.first_content, exchange.last_content), (moments.first().copied(), moments.last().copied()));
    assert!(exchange.end >= *moments.last().unwrap(), "{what}");
    println!("{what}: stamped so many µs after the server began to send: {late:?}");
}

/// Fault: engine: it resets a connection in the middle of an answer
/// Seen: `was reset`
/// Works: the requests before it and after
/// Recovers: with the next request
#[test]
fn stamps_are_in_order_and_never_before_the_server_sent() {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
    let tokens = (0..20).flat_map(|_| [Step::Wait(3), say("a")]);
    let answer: Vec<Step> =
        [Step::Send(HEAD.to_owned()), Step::Wait(40)].into_iter().chain(tokens).chain(done()).collect();
    let reset = vec![Step::Send(HEAD.to_owned()), Step::Wait(3), say("a"), Step::Wait(50), Step::Reset];
    let busy = "HTTP/1.1 429 Slow\r\nretry-after: 2\r\ncontent-length: 4\r\n\r\nbusy".to_owned();
    let server = Server::start(&clock, None, vec![answer, vec![Step::Send(busy)], reset]);
    let endpoint = Endpoint::parse(&format!("127.0.0.1:{}", server.port)).unwrap();
    let (mut lane, mut stamps) = (client(&endpoint, &Authorities::default(), &clock), Vec::new());
    let runtime = runtime();
    let mut ask = |stamps: &mut Vec<Stamp>| runtime.block_on(lane.stream(call(), stamps));

    let exchange = ask(&mut stamps);
    assert_eq!((&exchange.fault, stamps.len(), exchange.connected), (&None, 20, true));
    check("plain", &exchange, &stamps, &server.sent.lock().unwrap());

    let exchange = ask(&mut stamps);
    let refused = Fault::Refused { status: 429, retry_after: Some(Duration::from_secs(2)), words: "busy".to_owned() };
    assert_eq!((exchange.fault, exchange.connected), (Some(refused), false));

    let exchange = ask(&mut stamps);
    assert!(matches!(&exchange.fault, Some(Fault::Cut(why)) if why.contains("was reset")), "{exchange:?}");
    assert_eq!((stamps.len(), exchange.connected), (1, false));
}

#[test]
fn stamps_are_taken_below_tls() {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
    let own = generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = PrivateKeyDer::from_pem_slice(own.signing_key.serialize_pem().as_bytes()).unwrap();
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth().with_single_cert(vec![own.cert.der().clone()], key).unwrap();
    // What TLS itself sends after its handshake is no answer: the answer comes later.
    let mut answer = vec![Step::Wait(60), Step::Send(HEAD.to_owned())];
    answer.extend((0..10).flat_map(|_| [Step::Wait(3), say("a")]).chain(done()));
    let server = Server::start(&clock, Some(config), vec![answer]);
    let folder = tempfile::tempdir().unwrap();
    let pem = folder.path().join("ca.pem");
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&pem).unwrap();
    file.write_all(own.cert.pem().as_bytes()).unwrap();
    let endpoint = Endpoint::parse(&format!("https://127.0.0.1:{}", server.port)).unwrap();
    let (mut lane, mut stamps) = (client(&endpoint, &Authorities::read(&pem).unwrap(), &clock), Vec::new());
    let exchange = runtime().block_on(lane.stream(call(), &mut stamps));
    assert_eq!((&exchange.fault, stamps.len()), (&None, 10));
    check("TLS", &exchange, &stamps, &server.sent.lock().unwrap());
}

/// Fault: engine: nothing listens, or it speaks no TLS
/// Seen: `nothing listens`, `not TLS: write http://`
/// Works: the rest of the sweep
/// Recovers: with the next request that gets a connection
#[test]
fn why_there_is_no_connection_is_told() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let plain = thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        socket.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
        drop(socket.read_to_end(&mut Vec::new()));
    });
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
    let endpoint = Endpoint::parse(&format!("https://127.0.0.1:{port}")).unwrap();
    let mut lane = client(&endpoint, &Authorities::default(), &clock);
    let fault = runtime().block_on(lane.whole(Call { body: None, ..call() })).unwrap_err();
    assert!(matches!(&fault, Fault::Unconnected(why) if why.contains("not TLS: write http://")), "{fault:?}");
    plain.join().unwrap();

    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let endpoint = Endpoint::parse(&format!("127.0.0.1:{gone}")).unwrap();
    let mut stamps = Vec::new();
    let exchange = runtime().block_on(client(&endpoint, &Authorities::default(), &clock).stream(call(), &mut stamps));
    assert!(
        matches!(&exchange.fault, Some(Fault::Unconnected(why)) if why.contains("nothing listens")),
        "{exchange:?}"
    );
    assert_eq!((exchange.dispatched, exchange.first_byte, exchange.connected), (None, None, false));
}
