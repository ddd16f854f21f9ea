//! What is sent to whom, over real sockets, with names that lead where the test says.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::OpenOptionsExt as _;

use super::*;
use crate::model::SystemClock;
use crate::net::access::{Access, AuthFile, Token};

const SECRET: &str = "hunter2-hunter2";

fn access(lines: &str) -> Access {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys");
    let mut open = std::fs::OpenOptions::new();
    open.write(true).create_new(true).mode(0o600).open(&path).unwrap().write_all(lines.as_bytes()).unwrap();
    Access { token: Token::parse("token-of-engines").unwrap(), file: AuthFile::read(&path).unwrap() }
}

/// Asks `url` once, its name leading to this listener, which answers with `answer`; every line of the request's head.
fn head(url: &str, access: &Access, named: bool, answer: String) -> (Vec<String>, Result<(), Trouble>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at: SocketAddr = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let lines = BufReader::new(&stream).lines().map_while(Result::ok).take_while(|line| !line.is_empty());
        let lines: Vec<_> = lines.collect();
        (&stream).write_all(answer.replace("PORT", &at.port().to_string()).as_bytes()).unwrap();
        lines
    });
    let endpoint = access.equip(Endpoint::parse(&url.replace("PORT", &at.port().to_string())).unwrap(), named);
    let patience = Duration::from_mins(1);
    let client = builder(patience, &Authorities::default(), false).unwrap();
    let client = client.resolve(endpoint.host(), at).build().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let desk = Desk::new(Arc::new(SystemClock::start()));
    let asker =
        Asker { client: &client, desk: &desk, endpoint: &endpoint, limit: patience, most: MAX_BODY, aside: None };
    let read = runtime.block_on(asker.get("/metrics", &mut Vec::new(), &mut Spent::default()));
    (server.join().unwrap(), read)
}

const FINE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\nconnection: close\r\n\r\na 1\n";

/// Fault: engine: a name that begins like an address of this host
/// Seen: `token-of-engines` is sent to it when it was named, and no line's key
/// Works: it is read
/// Recovers: with a line of its own
#[test]
fn a_name_that_looks_like_loopback_gets_no_key_of_loopback() {
    let names = ["127.evil.test", "127.0.0.1.evil.test", "localhost.evil.test", "evil.test"];
    for name in names {
        let line = |host: &str| format!("http://{host} bearer {SECRET}\nhttp://{host} x-key: {SECRET}");
        // A line without a port is for port 80: the name leads to the listener whatever its port.
        let lines = [line("127.0.0.1"), line("localhost"), line("[::1]")].join("\n");
        let url = format!("http://{name}");
        for (named, sent) in [(true, "token-of-engines"), (false, "")] {
            let (lines, read) = head(&url, &access(&lines), named, FINE.to_owned());
            assert!(read.is_ok(), "{name}: {read:?}");
            assert!(lines.iter().any(|line| line.eq_ignore_ascii_case(&format!("host: {name}"))), "{lines:?}");
            assert!(!lines.iter().any(|line| line.contains(SECRET)), "{name}: {lines:?}");
            assert_eq!(lines.iter().any(|line| line.contains("token-of")), !sent.is_empty(), "{name}: {lines:?}");
        }
        let own = access(&format!("http://{name} bearer {SECRET}"));
        assert!(head(&url, &own, false, FINE.to_owned()).0.iter().any(|line| line.contains(SECRET)), "{name}");
    }
}

/// Fault: engine: a redirect from the address of a key to the one beside it
/// Seen: `redirects to http://127.0.0.2`
/// Works: other engines
/// Recovers: with the first answer that is none
#[test]
fn a_redirect_to_the_address_beside_is_not_followed() {
    let cases = [
        ("127.0.0.2", "redirects to http://127.0.0.2"),
        ("localhost", "redirects to http://localhost"),
        ("[::1]", "redirects to http://[::1]"),
        ("127.evil.test", "redirects to http://127.evil.test"),
    ];
    for (to, words) in cases {
        let answer = format!("HTTP/1.1 307 No\r\nlocation: http://{to}:PORT/metrics\r\ncontent-length: 0\r\n\r\n");
        let access = access(&format!("http://127.0.0.1 bearer {SECRET}"));
        let (_, read) = head("http://127.0.0.1:PORT", &access, true, answer);
        let said = read.unwrap_err().to_string();
        assert!(said.contains(words) && said.contains("not followed"), "{said}");
    }
}
