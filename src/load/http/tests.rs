//! The transport against a scripted server, in virtual time: what it measures is exactly what the script did.

use super::*;
use crate::load::exchange::Usage;
use crate::load::tests::script::*;
use crate::net::access::{Access, AuthFile, Token};

mod cuts;
mod keeping;

const SECRET: &str = "hunter2-hunter2";
const LIMIT: Duration = Duration::from_mins(1);

fn post() -> Call {
    Call { path: "/v1/chat/completions", body: Some(b"{\"stream\":true}".to_vec()), limit: LIMIT, output: None }
}

/// A lane to a server with these scripts.
struct Bench {
    server: Server,
    lane: Connection,
    stamps: Vec<Stamp>,
}

impl Bench {
    fn new(scripts: impl IntoIterator<Item = Vec<Step>>) -> Self {
        Self::at("http://gpu7:8000/v", scripts)
    }

    fn at(url: &str, scripts: impl IntoIterator<Item = Vec<Step>>) -> Self {
        let clock = VirtualClock::start();
        let server = Server::new(&clock, scripts);
        let access = Access { token: Token::parse(SECRET).unwrap(), file: AuthFile::default() };
        let endpoint = access.equip(Endpoint::parse(url).unwrap(), true);
        let wire = Wire::over(Box::new(server.clone()), &endpoint, &Authorities::default(), clock).unwrap();
        Self { server, lane: wire.lane(), stamps: Vec::new() }
    }

    async fn stream(&mut self) -> Exchange {
        self.stream_within(LIMIT).await
    }

    async fn stream_within(&mut self, limit: Duration) -> Exchange {
        self.lane.stream(Call { limit, ..post() }, &mut self.stamps).await
    }

    /// When each event with content came, ms after the request.
    fn stamps(&self, exchange: &Exchange) -> Vec<u64> {
        self.stamps.iter().map(|stamp| since(exchange, Some(stamp.at)).unwrap()).collect()
    }
}

/// From dispatch, ms; all moments of a script are whole ms.
fn since(exchange: &Exchange, at: Option<u64>) -> Option<u64> {
    let micros = at? - exchange.dispatched.unwrap();
    assert_eq!(micros % 1000, 0);
    Some(micros / 1000)
}

/// The fault of the first request to a server with this script.
async fn fault(steps: Vec<Step>) -> Fault {
    let mut bench = Bench::new([steps]);
    bench.stream().await.fault.unwrap()
}

#[tokio::test(start_paused = true)]
async fn every_moment_is_what_the_server_did() {
    let wait = Step::Wait;
    let steps = vec![
        Step::Connect(5),
        Step::Hear,
        wait(30),
        send(HEAD),
        wait(20),
        send(chunk(delta(r#"{"role":"assistant","content":""}"#))),
        wait(250),
        send(chunk(think("a"))),
        wait(40),
        send(chunk(say("b"))),
        wait(10),
        // Two tokens in one packet, and in one chunk of it.
        send(chunk([say("c"), say("d")].concat())),
        // A stall.
        wait(3000),
        send(chunk(say("e"))),
        wait(1),
        send(chunk(stop("stop"))),
        wait(2),
        send(chunk(usage(7, 5))),
        wait(3),
        send(chunk(DONE)),
        wait(4),
        send(END),
        Step::Hold,
    ];
    let mut bench = Bench::new([steps]);
    let exchange = bench.stream().await;
    assert_eq!(exchange.dispatched, Some(START + 5000), "connecting is not in it");
    assert_eq!(since(&exchange, exchange.first_byte), Some(30));
    assert_eq!(since(&exchange, exchange.first_content), Some(300), "a role is no content");
    assert_eq!(since(&exchange, exchange.first_answer), Some(340), "reasoning is no answer");
    assert_eq!(since(&exchange, exchange.last_content), Some(3350), "neither a reason nor usage is content");
    assert_eq!(since(&exchange, Some(exchange.end)), Some(3360));
    assert_eq!(bench.stamps(&exchange), [300, 340, 350, 350, 3350]);
    assert!(bench.stamps.iter().all(|stamp| stamp.tokens.is_none()), "a chunk is no token");
    assert_eq!(exchange.usage, Some(Usage { prompt: Some(7), cached: None, output: Some(5) }));
    assert_eq!((exchange.finish.as_deref(), exchange.connected, exchange.fault), (Some("stop"), true, None));
}

#[tokio::test(start_paused = true)]
async fn a_request_is_what_the_interface_wants() {
    let mut bench = Bench::new([stream(1, &[say("a")])]);
    assert_eq!(bench.stream().await.fault, None);
    let request = bench.server.notes().heard.remove(0);
    assert!(request.starts_with("POST /v/v1/chat/completions HTTP/1.1\r\n"), "{request}");
    assert!(request.ends_with("\r\n\r\n{\"stream\":true}"), "{request}");
    for header in [
        "host: gpu7:8000",
        "content-type: application/json",
        "content-length: 15",
        "accept: text/event-stream, application/json",
        "accept-encoding: identity",
        concat!("user-agent: warptop/", env!("CARGO_PKG_VERSION")),
        &format!("authorization: Bearer {SECRET}"),
    ] {
        assert!(request.contains(&format!("\r\n{header}\r\n")), "{header}: {request}");
    }
    let mut bench = Bench::at("http://ann:x@gpu7", [vec![Step::Hear, send(plain("200 OK", "", "[]"))]]);
    let call = Call { path: "/v1/models", body: None, limit: LIMIT, output: None };
    let answer = bench.lane.whole(call).await.unwrap();
    assert_eq!(answer, Answer { status: 200, body: b"[]".to_vec() });
    let request = bench.server.notes().heard.remove(0);
    assert!(request.starts_with("GET /v1/models HTTP/1.1\r\n") && request.contains("\r\nhost: gpu7\r\n"), "{request}");
    assert!(request.contains("\r\nauthorization: Basic YW5uOng=\r\n"), "{request}");
    assert!(!request.contains("content-"), "{request}");
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_with_done_or_with_a_reason() {
    let to_the_end = "HTTP/1.1 200 OK\r\ncontent-type: TEXT/event-stream\r\n\r\n";
    let with_length = |body: String| plain("200 OK", "content-type: text/event-stream\r\n", &body);
    let good = [
        vec![Step::Hear, send(HEAD), send(chunk(say("a"))), send(chunk(DONE)), send(END)],
        vec![Step::Hear, send(HEAD), send(chunk(say("a"))), send(chunk(stop("length"))), send(END)],
        vec![Step::Hear, send(to_the_end), send(say("a")), send(stop("stop"))],
        vec![Step::Hear, send(with_length([say("a"), DONE.to_owned()].concat()))],
        // Without the blank line, and without even the end of the line.
        vec![Step::Hear, send(with_length([say("a"), "data: [DONE]\n".to_owned()].concat()))],
        vec![Step::Hear, send(to_the_end), send(say("a")), send("data: [DONE]")],
        // What breaks after all that was asked for is there is no fault.
        vec![Step::Hear, send(HEAD), send(chunk(say("a"))), send(chunk(DONE))],
        vec![Step::Hear, send(HEAD), send(chunk(say("a"))), send(chunk(DONE)), Step::Reset],
    ];
    for steps in good {
        let mut bench = Bench::new([steps.clone()]);
        let exchange = bench.stream().await;
        assert_eq!((exchange.fault, bench.stamps.len()), (None, 1), "{steps:?}");
    }
    let cut = [
        (vec![send(HEAD), send(chunk(say("a"))), send(END)], "without saying that it is done"),
        (vec![send(to_the_end), send(say("a")), send("data: {\"choi")], "without saying that it is done"),
        (vec![send(HEAD), send(chunk(say("a")))], "the connection ended before it"),
        (vec![send(HEAD), send(chunk(stop("stop"))), send("5\r\nda")], "the connection ended before it"),
        (vec![send(HEAD), send(chunk(say("a"))), Step::Wait(5), Step::Reset], "the connection was reset: did"),
        (vec![Step::Wait(9), Step::Reset], "the connection was reset before it began"),
        (vec![], "the connection was closed before it began"),
        (vec![send("HTTP/1.1 200 OK\r\ncont")], "the connection was closed before it began"),
    ];
    for (steps, words) in cut {
        let steps = [vec![Step::Hear], steps].concat();
        let fault = fault(steps.clone()).await;
        assert!(matches!(&fault, Fault::Cut(why) if why.contains(words)), "{steps:?}: {fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_seen_before_a_fault_is_kept() {
    let steps =
        vec![Step::Hear, Step::Wait(9), send(HEAD), Step::Wait(1), send(chunk(say("a"))), Step::Wait(4), Step::Reset];
    let mut bench = Bench::new([steps]);
    let exchange = bench.stream().await;
    assert_eq!(since(&exchange, exchange.first_byte), Some(9));
    assert_eq!((since(&exchange, exchange.first_content), since(&exchange, Some(exchange.end))), (Some(10), Some(14)));
    assert_eq!(bench.stamps(&exchange), [10]);
    assert_eq!(bench.stream().await.fault, Some(Fault::Unconnected("refused by the script".to_owned())));
    assert!(bench.stamps.is_empty(), "stamps are of the last request");
}

#[tokio::test(start_paused = true)]
async fn a_status_has_the_words_of_the_server() {
    let error = r#"{"error":{"message":"too \u001b[31mmany"}}"#;
    let refused = |status, seconds: Option<u64>, words: &str| Fault::Refused {
        status,
        retry_after: seconds.map(Duration::from_secs),
        words: words.to_owned(),
    };
    let other = |status, words: &str| Fault::Status { status, words: words.to_owned() };
    let left_out = "its words are left out, for they may hold a part of the key";
    let redirect = "a redirect, which is not followed: name the place it leads to";
    let cases = [
        ("429 Slow", "retry-after: 7\r\n", error, refused(429, Some(7), "too many")),
        ("429 Slow", "retry-after: Fri, 31 Dec 1999 23:59:59 GMT\r\n", error, refused(429, None, "too many")),
        ("503 No", "retry-after: -1\r\n", "", refused(503, None, "no words came with it")),
        ("429 No", "", "bad key hunter2-hunter2", refused(429, None, left_out)),
        ("500 No", "retry-after: 7\r\n", r#"{"detail":"hunter2 is bad"}"#, other(500, left_out)),
        ("400 No", "", r#"{"message":"no such model"}"#, other(400, "no such model")),
        ("302 There", "location: http://thief/?key=hunter2\r\n", "<a href=hunter2>", other(302, redirect)),
        ("502 Bad", "", "<html>nginx", other(502, "a web page came with it")),
    ];
    for (status, headers, body, expected) in cases {
        // The connection outlives a refusal that ends.
        let steps = vec![Step::Hear, send(plain(status, headers, body)), Step::Hear];
        let mut bench = Bench::new([steps, stream(1, &[say("a")])]);
        let exchange = bench.stream().await;
        assert_eq!(exchange.fault, Some(expected), "{status} {headers}");
        assert!(exchange.first_byte.is_some() && exchange.first_content.is_none());
        bench.stream().await;
        assert_eq!(bench.server.notes().heard.len(), 3, "the second was sent over the old one first");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_without_end_is_still_a_refusal() {
    let head = "HTTP/1.1 429 Slow\r\nretry-after: 3\r\ncontent-length: 999999\r\n\r\n";
    let endless = [vec![send("busy"), Step::Hold], vec![send("busy ".repeat(20_000)), Step::Hold]];
    for body in endless {
        let mut bench = Bench::new([[vec![Step::Hear, send(head)], body].concat()]);
        let exchange = bench.stream().await;
        let fault = exchange.fault.clone().unwrap();
        assert!(matches!(&fault, Fault::Refused { status: 429, words, .. } if words.starts_with("busy")), "{fault:?}");
        assert!(since(&exchange, Some(exchange.end)) <= Some(15_000), "a quarter of the limit");
        tokio::task::yield_now().await;
        assert_eq!(bench.server.notes().gone.len(), 1, "the connection is not kept");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_no_stream_is_told() {
    let with = |kind: &str| plain("200 OK", kind, "{\"choices\":[]}");
    let event = |data: &str| [HEAD.as_bytes(), &chunk(format!("data: {data}\n\n"))].concat();
    let cases = [
        (with("content-type: application/json\r\n"), "application/json came where a stream of events was asked for"),
        (with(""), "an answer without a type came where"),
        (with("content-type: hunter2-hunter2\r\n"), "another answer came where"),
        (event("{\"choices\":"), "an event of the stream cannot be understood (byte 11 of 11)"),
        (event("{\"choices\":[{\"text\":1}]}"), "cannot be understood"),
        ([HEAD.as_bytes(), &chunk(vec![b'x'; 600_000]).repeat(2)].concat(), "longer than 1 MiB"),
        (b"SSH-2.0-OpenSSH_9\r\n\r\n".to_vec(), "what answers is no HTTP"),
    ];
    for (answer, words) in cases {
        let fault = fault(vec![Step::Hear, send(answer), Step::Hold]).await;
        assert!(matches!(&fault, Fault::Malformed(why) if why.contains(words)), "{words}: {fault:?}");
        assert!(!fault.to_string().contains("hunter2"));
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_in_the_stream_is_no_success() {
    let cases = [
        ("data: {\"error\": {\"message\": \"engine \\u001b[1mdied\", \"code\": 500}}\n\n", "engine died"),
        ("event: error\ndata: oh no\n\n", "oh no"),
        ("event: error\ndata: {\"detail\":\"no memory\"}\n\n", "no memory"),
        ("data: {\"object\":\"error\",\"message\":\"old\"}\n\n", "old"),
        ("data: {\"error\":\"hunter2-hunter2\"}\n\n", "its words are left out, for they may hold a part of the key"),
    ];
    for (error, words) in cases {
        let mut bench = Bench::new([stream(1, &[say("a"), error.to_owned()])]);
        let exchange = bench.stream().await;
        assert_eq!(exchange.fault, Some(Fault::Stream(words.to_owned())), "{error}");
        assert_eq!(bench.stamps(&exchange), [1], "what came before is kept");
    }
}
