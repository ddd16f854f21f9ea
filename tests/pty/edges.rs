//! A server whose bucket ends where arithmetic turns over, as a recording and live: the screen that it once froze.

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::thread;

use crate::session::{Session, warptop};

/// Edge of the one bucket, in seconds, of a server that freezes what does not bound its axes.
const EDGE: &str = "1e308";

/// Fault: recording: a bucket ends at 1e308
/// Seen: `TTFT` and `> 3e304 h`: the edge, beyond which nothing is known
/// Works: the keys and all other panes
/// Recovers: nothing is lost
#[test]
fn a_recording_with_a_bucket_that_ends_at_1e308_is_played() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("edge.jsonl");
    let (start, mut text) = (1_796_075_551_733_u64, String::new());
    let _ = writeln!(
        text,
        r#"{{"format":"warptop.recording","version":1,"warptop":"0.1.0","start":{start},"host":"h","interval_ms":250}}"#
    );
    for second in 0..30 {
        let (t, count) = (start + second * 1_000, second * 10);
        let histogram = format!(r#"{{"of":"engine0","m":"ttft_s","edges":[{EDGE}],"cumulative":[0,{count}],"sum":1}}"#);
        let fact = r#"{"of":"engine0","k":"url","v":"http://127.0.0.1:8000"}"#;
        let _ = writeln!(
            text,
            r#"{{"t":{t},"src":{{"engine":0}},"valid_ms":3500,"s":{{"engine0":{{"requests_running":1}}}},"h":[{histogram}],"facts":[{fact}]}}"#
        );
    }
    std::fs::write(&path, text).unwrap();
    let mut session = Session::start(warptop(&["replay", path.to_str().unwrap()]), 140, 40).read();
    session.wait("the edge", |s| s.contents().contains("TTFT") && s.contents().contains("> 3e304 h"));
    session.press("?");
    session.wait("the help", |s| s.contents().contains("Leave. Ctrl-C does the same."));
    session.press("q");
    session.ends(0);
}

/// Fault: engine: a bucket ends at 1e308
/// Seen: `TTFT` and `> 3e304 h`: the edge, beyond which nothing is known
/// Works: the keys and all other panes
/// Recovers: nothing is lost
#[test]
fn an_engine_with_a_bucket_that_ends_at_1e308_is_watched() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    // Ends with the test's process.
    thread::spawn(move || {
        for (scrape, stream) in listener.incoming().flatten().enumerate() {
            let mut bytes = [0; 2048];
            let read = { &stream }.read(&mut bytes).unwrap_or(0);
            let is_metrics = bytes[..read].starts_with(b"GET /metrics ");
            let (status, count) = (if is_metrics { "200 OK" } else { "404 Not Found" }, scrape * 10);
            let name = "vllm:time_to_first_token_seconds";
            let body = format!(
                "vllm:num_requests_running 1\n{name}_bucket{{le=\"{EDGE}\"}} 0\n{name}_bucket{{le=\"+Inf\"}} {count}\n\
                 {name}_count {count}\n{name}_sum 1\n"
            );
            let head = format!("HTTP/1.1 {status}\r\ncontent-type: text/plain\r\ncontent-length: {}", body.len());
            drop(write!(&stream, "{head}\r\nconnection: close\r\n\r\n{body}"));
        }
    });
    let url = format!("http://127.0.0.1:{port}");
    let args = ["--no-discover", "--engine-interval", "200ms", "--engine", &url];
    let mut session = Session::live(&args, 140, 40);
    session.wait("the edge", |s| s.contents().contains("TTFT") && s.contents().contains("> 3e304 h"));
    session.press("?");
    session.wait("the help", |s| s.contents().contains("Leave. Ctrl-C does the same."));
    session.press("q");
    session.ends(0);
}
