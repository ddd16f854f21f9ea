//! Who may be asked and with what: TLS and the ways in which it fails, keys and where they never go.

#![allow(clippy::unwrap_used, clippy::panic, reason = "in a test an error is a failure")]

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use support::{BODY, PATIENT, Server, Session, fact, http, latest, path, read_head, until, vllm};
use warptop::model::{Batch, Clock as _, FactKey, Metric, SourceId, SourceState, Subject, SystemClock};
use warptop::net::access::{Access, AuthFile, Token};
use warptop::net::tls::Authorities;
use warptop::sampler::{Context, Options, SAMPLERS, Sink, Stop};
use warptop::store::{Data, Retention, Store};

const SECRET: &str = "hunter2-hunter2";

/// A folder for the files of one test.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Writes a file that only its owner can read.
    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(&path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        path
    }
}

/// An authority of a test's own.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    der: CertificateDer<'static>,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let (pem, der) = (certificate.pem(), certificate.der().clone());
        Self { issuer: Issuer::new(params, key), pem, der }
    }
}

/// What a server shows, and its key.
struct Shown {
    certificate: CertificateDer<'static>,
    pem: String,
    key: KeyPair,
}

/// A certificate for `names`, by `by` or by itself.
fn certificate(names: &[&str], by: Option<&Authority>, change: impl FnOnce(&mut CertificateParams)) -> Shown {
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let (mut params, key) = (CertificateParams::new(names).unwrap(), KeyPair::generate().unwrap());
    change(&mut params);
    let certificate = by.map_or_else(|| params.self_signed(&key), |by| params.signed_by(&key, &by.issuer)).unwrap();
    Shown { certificate: certificate.der().clone(), pem: certificate.pem(), key }
}

impl Shown {
    fn config(&self, clients: Option<&Authority>) -> ServerConfig {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
        let key = PrivateKeyDer::try_from(self.key.serialize_der()).unwrap();
        let builder = builder.unwrap();
        let builder = if let Some(authority) = clients {
            let mut roots = RootCertStore::empty();
            roots.add(authority.der.clone()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
            builder.with_client_cert_verifier(verifier)
        } else {
            builder.with_no_client_auth()
        };
        builder.with_single_cert(vec![self.certificate.clone()], key).unwrap()
    }
}

/// A server that speaks TLS and answers each request, given its head.
fn tls(config: ServerConfig, answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> Server {
    let config = Arc::new(config);
    Server::accept(TcpListener::bind("127.0.0.1:0").unwrap(), move |stream| {
        let mut stream = StreamOwned::new(ServerConnection::new(Arc::clone(&config)).unwrap(), stream);
        if let Some(head) = read_head(&mut stream) {
            drop(stream.write_all(&answer(&head)));
            stream.conn.send_close_notify();
            drop(stream.flush());
        }
    })
}

/// A session with one named engine that trusts what is in `ca`.
fn https(server: &Server, ca: &str) -> Session {
    let folder = Folder::new();
    let authorities =
        if ca.is_empty() { Authorities::default() } else { Authorities::read(&folder.file("ca.pem", ca)).unwrap() };
    let engine_urls = vec![format!("https://127.0.0.1:{}", server.port)];
    Session::with(&Options { engine_urls, authorities, ..Options::default() }, PATIENT)
}

#[test]
fn an_engine_behind_a_gateway_is_read_over_tls() {
    let authority = Authority::new("one");
    let shown = certificate(&["127.0.0.1"], Some(&authority), |_| ());
    let server = tls(shown.config(None), |head| {
        path(head)
            .strip_prefix("/llm/a")
            .map_or_else(|| http("404 Not Found", "text/plain", b""), |path| vllm(path, BODY, "0.25.1"))
    });
    let folder = Folder::new();
    let authorities = Authorities::read(&folder.file("ca.pem", &authority.pem)).unwrap();
    let url = format!("https://127.0.0.1:{}/llm/a", server.port);
    let engine_urls = vec![format!("{url}/metrics")];
    let session = Session::with(&Options { engine_urls, authorities, ..Options::default() }, PATIENT);
    session.wait("a value", |data| latest(data, Metric::RequestsRunning).value().filter(|&v| v > 108.9));
    session.wait("the version", |data| fact(data, FactKey::Version).filter(|&v| v == "0.25.1").map(|_| ()));
    assert_eq!(fact(&session.store.read(), FactKey::Url), Some(url.as_str()));
}

/// Fault: engine: its certificate is expired, for another host or of an unknown authority
/// Seen: `not valid yet`, `expired`, or what else is wrong with it
/// Works: other engines
/// Recovers: with the first answer under a certificate that holds
#[test]
fn every_failure_of_tls_has_its_words() {
    let (authority, other, later) = (Authority::new("one"), Authority::new("other"), Authority::new("one"));
    let here = &["127.0.0.1"];
    let make_ca = |params: &mut CertificateParams| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let own = certificate(here, None, |_| ());
    let own_ca = certificate(here, None, make_ca);
    let elsewhere_ca = certificate(&["gpu7"], None, make_ca);
    let of = |shown: &Shown| tls(shown.config(None), |head| vllm(path(head), BODY, "1"));
    let by = |names: &[&str], change: fn(&mut CertificateParams)| of(&certificate(names, Some(&authority), change));
    let expired = |params: &mut CertificateParams| {
        params.not_before = date_time_ymd(2001, 1, 1);
        params.not_after = date_time_ymd(2002, 1, 1);
    };
    let cases = [
        (by(here, |_| ()), authority.pem.as_str(), ""),
        (
            by(here, |_| ()),
            "",
            "does not trust: give that authority's certificate (or a self-signed one itself) with --engine-ca FILE",
        ),
        (by(here, |_| ()), &other.pem, "does not trust"),
        (by(here, |_| ()), &later.pem, "not signed by the authority it names: is the file of --engine-ca out of date?"),
        (by(here, expired), &authority.pem, "days ago: renew it, or set the clock of this host"),
        (by(here, |params| params.not_before = date_time_ymd(4000, 1, 1)), &authority.pem, "not valid yet"),
        (
            by(&["gpu7", "10.0.0.9"], |_| ()),
            &authority.pem,
            "not for this host name but for gpu7 and 10.0.0.9: use that name",
        ),
        (by(&[], |_| ()), &authority.pem, "but for none at all"),
        // What `openssl req -x509` makes, with and without CA:TRUE.
        (of(&own), &own.pem, ""),
        (of(&own), &other.pem, "does not trust"),
        (of(&own_ca), &own_ca.pem, ""),
        (of(&own_ca), &other.pem, "an authority's, not a server's: give it with --engine-ca FILE"),
        (of(&elsewhere_ca), &elsewhere_ca.pem, "but for gpu7"),
        (
            of(&certificate(here, None, |params| {
                make_ca(params);
                expired(params);
            })),
            &own_ca.pem,
            "expired",
        ),
        (
            tls(own.config(Some(&authority)), |head| vllm(path(head), BODY, "1")),
            &own.pem,
            "wants a client certificate, which warptop cannot give",
        ),
        (
            Server::accept(TcpListener::bind("127.0.0.1:0").unwrap(), refuse),
            "",
            "not TLS: write http:// or another port",
        ),
        (Server::accept(TcpListener::bind("127.0.0.1:0").unwrap(), hang_up), "", "ended in the TLS handshake"),
    ];
    for (server, ca, words) in cases {
        let session = https(&server, ca);
        let state = session.outcome(words);
        let fits = if words.is_empty() { state == SourceState::Ok } else { state.why().contains(words) };
        assert!(fits, "{words}: {state:?}");
        assert!(words.is_empty() || matches!(state, SourceState::Failed(_)), "{state:?}");
    }
}

/// Answers whatever comes in plain HTTP.
fn refuse(mut stream: TcpStream) {
    drop(stream.read(&mut [0; 4096]));
    drop(stream.write_all(&http("400 Bad Request", "text/plain", b"")));
}

/// Takes what comes and ends the connection.
fn hang_up(mut stream: TcpStream) {
    drop(stream.read(&mut [0; 4096]));
}

/// Fault: engine: plain HTTP at a port that wants TLS
/// Seen: `does it want https?`
/// Works: other engines
/// Recovers: with the right URL
#[test]
fn plain_http_at_a_port_that_wants_tls_is_told() {
    let own = certificate(&["127.0.0.1"], None, |_| ());
    let server = tls(own.config(None), |head| vllm(path(head), BODY, "1"));
    let state = Session::named(&server.url(), PATIENT).outcome("the words");
    assert!(matches!(&state, SourceState::Failed(why) if why.contains("does it want https?")), "{state:?}");
}

/// A server that keeps the heads of all requests.
fn listening(answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> (Server, Heads) {
    answering(TcpListener::bind("127.0.0.1:0").unwrap(), answer)
}

/// Requests that a server got: request line and headers of each.
type Heads = Arc<Mutex<Vec<String>>>;

fn answering(at: TcpListener, answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> (Server, Heads) {
    let heads = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&heads);
    let server = Server::accept(at, move |mut stream| {
        if let Some(head) = read_head(&stream) {
            let answer = answer(&head);
            kept.lock().unwrap().push(head);
            drop(stream.write_all(&answer));
        }
    });
    (server, heads)
}

fn access(token: &str, file: &str) -> Access {
    let folder = Folder::new();
    let file = AuthFile::read(&folder.file("keys", file)).unwrap();
    Access { token: Token::parse(token).unwrap(), file }
}

/// Wants the key, as a gateway does.
fn locked(head: &str) -> Vec<u8> {
    let key = head.to_ascii_lowercase().contains(&format!("authorization: bearer {SECRET}\n"));
    let tenant = head.to_ascii_lowercase().contains("x-tenant: a b\n");
    if key && tenant { vllm(path(head), BODY, "1") } else { http("401 No", "application/json", b"{}") }
}

#[test]
fn a_key_opens_what_it_is_for() {
    let (server, heads) = listening(locked);
    let url = server.url();
    let session = Session::with(
        &Options {
            engine_urls: vec![url.clone()],
            access: access(SECRET, &format!("http://{url}/ X-Tenant: a b")),
            ..Options::default()
        },
        PATIENT,
    );
    assert_eq!(session.outcome("the lock to open"), SourceState::Ok);
    session.wait("the version", |data| fact(data, FactKey::Version).map(|_| ()));
    let heads = heads.lock().unwrap();
    assert!(heads.iter().all(|head| head.contains("accept-encoding: identity")), "{heads:?}");
    assert!(heads.iter().any(|head| path(head) == "/version"), "the extras are asked with the key as well");
}

/// Fault: engine: it wants a key, or refuses the one it got
/// Seen: `present, needs a key (HTTP 401): put it into WARPTOP_ENGINE_TOKEN or a file for --engine-auth`
/// Works: other engines, GPUs and host
/// Recovers: with the first answer to a key
#[test]
fn a_missing_or_wrong_key_is_told_with_what_to_do() {
    let cases = [
        ("", "", "", "present, needs a key (HTTP 401): put it into WARPTOP_ENGINE_TOKEN or a file for --engine-auth"),
        ("", "wrong", "", "present, but the key given was refused (HTTP 401): check WARPTOP_ENGINE_TOKEN"),
        ("", "", "bearer wrong", "the key given was refused (HTTP 401): check the --engine-auth file"),
        ("", "wrong", "x-tenant: c", "was refused (HTTP 401): check WARPTOP_ENGINE_TOKEN and the --engine-auth file"),
        ("ann:wrong@", "ignored", "", "was refused (HTTP 401): check user name and password in the URL"),
    ];
    let (server, _) = listening(locked);
    for (user, token, line, words) in cases {
        let url = server.url();
        let file = if line.is_empty() { String::new() } else { format!("http://{url} {line}") };
        let options = Options {
            engine_urls: vec![format!("http://{user}{url}")],
            access: access(token, &file),
            ..Options::default()
        };
        let state = Session::with(&options, PATIENT).outcome(words);
        assert!(matches!(&state, SourceState::Unauthorized(why) if why.contains(words)), "{words}: {state:?}");
    }
    let (server, _) = listening(|_| http("403 No", "text/html", b"<p>no"));
    let options = Options { engine_urls: vec![server.url()], access: access("wrong", ""), ..Options::default() };
    let state = Session::with(&options, PATIENT).outcome("403");
    assert!(
        state.why().ends_with("(HTTP 403): check WARPTOP_ENGINE_TOKEN, and whether it may read metrics"),
        "{state:?}"
    );
}

/// Fault: engine: it redirects to another origin
/// Seen: where it redirects to, and `(HTTP 307), which is not followed`
/// Works: a redirect within its origin, with its key
/// Recovers: with the first answer that is none
#[test]
fn a_redirect_carries_the_key_within_its_origin_only() {
    let authority = Authority::new("one");
    let shown = certificate(&["127.0.0.1"], Some(&authority), |_| ());
    let (thief, stolen) = listening(|head| vllm(path(head), BODY, "1"));
    let target = format!("http://127.0.0.1:{}", thief.port);
    let redirect = move |head: &str| {
        let to = match path(head) {
            "/near/metrics" => "/far/metrics".to_owned(),
            "/far/metrics" if !head.contains(SECRET) => "/lost".to_owned(),
            "/far/metrics" => return vllm("/metrics", BODY, "1"),
            path => format!("{target}{path}?token=leak"),
        };
        format!("HTTP/1.1 307 There\r\nlocation: {to}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").into_bytes()
    };
    let secure = tls(shown.config(None), redirect.clone());
    let (plain, _) = listening(redirect);
    let folder = Folder::new();
    let authorities = Authorities::read(&folder.file("ca.pem", &authority.pem)).unwrap();
    let secure = format!("https://127.0.0.1:{}", secure.port);
    let plain = format!("http://127.0.0.1:{}", plain.port);
    let session = |url: String| {
        let (access, authorities) = (access(SECRET, ""), authorities.clone());
        Session::with(&Options { engine_urls: vec![url], access, authorities, ..Options::default() }, PATIENT)
    };
    for origin in [&secure, &plain] {
        assert_eq!(session(format!("{origin}/near")).outcome("the same origin"), SourceState::Ok);
        let state = session(origin.clone()).outcome("another origin");
        let words = format!("redirects to http://127.0.0.1:{} (HTTP 307), which is not followed", thief.port);
        assert!(state.why().contains(&words) && !state.why().contains("leak"), "{state:?}");
    }
    assert!(stolen.lock().unwrap().is_empty(), "nothing was asked of the other origin");
}

/// Servers at the same port of 127.0.0.1, 127.0.0.2 and, where there is IPv6, `::1`; each with the heads it got.
fn neighbours() -> (u16, Vec<(Server, Heads)>) {
    let first = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = first.local_addr().unwrap().port();
    let others = [format!("127.0.0.2:{port}"), format!("[::1]:{port}")];
    let others = others.iter().filter_map(|at| TcpListener::bind(at).ok());
    // Below a path of its own for each case.
    let below = |path: &str| format!("/{}", path.splitn(3, '/').nth(2).unwrap_or_default());
    let listen = |listener| answering(listener, move |head| vllm(&below(path(head)), BODY, "1"));
    (port, std::iter::once(first).chain(others).map(listen).collect())
}

/// Fault: engine: another user's server listens at the address beside the engine's
/// Seen: `present, needs a key (HTTP 401)`, where it wants one
/// Works: it is read, without a key
/// Recovers: with a line of its own in the file of keys
#[test]
fn a_key_does_not_go_to_the_address_beside_its_own() {
    let (port, servers) = neighbours();
    let hosts = ["127.0.0.1", "127.0.0.2", "[::1]", "localhost"];
    let cases = [
        (0, 0, true),
        (0, 1, false),
        (0, 2, false),
        (0, 3, false),
        (1, 0, false),
        (2, 0, false),
        (1, 1, true),
        (3, 0, true),
        (3, 1, false),
    ];
    for (case, (line, url, opens)) in cases.into_iter().enumerate() {
        let (line, url) = (format!("http://{}:{port}", hosts[line]), format!("http://{}:{port}/{case}", hosts[url]));
        if servers.len() < 3 && url.contains("::1") {
            continue;
        }
        let access = access("", &format!("{line} bearer {SECRET}"));
        let session = Session::with(&Options { engine_urls: vec![url.clone()], access, ..Options::default() }, PATIENT);
        assert_eq!(session.outcome(&url), SourceState::Ok);
        session.wait("the version", |data| fact(data, FactKey::Version).map(|_| ()));
        drop(session);
        let heads = servers.iter().flat_map(|(_, heads)| heads.lock().unwrap().clone());
        let heads: Vec<String> = heads.filter(|head| path(head).starts_with(&format!("/{case}/"))).collect();
        let with_key = heads.iter().filter(|head| head.contains(SECRET)).count();
        assert!(!heads.is_empty(), "{url} was asked");
        assert_eq!(with_key, if opens { heads.len() } else { 0 }, "a line for {line}, asked: {url}");
    }
}

/// The DCGM exporter at `url`, read until its state is told; there is no driver.
fn exporter(url: &str, access: Access) -> SourceState {
    let (store, stop) = (Arc::new(Store::new(Retention::HOUR)), Stop::default());
    let clock = Arc::new(SystemClock::start());
    let mut batch = Batch::new(SourceId::Nvml, clock.now(), Batch::FOREVER);
    batch.state = Some(SourceState::Absent("no driver".into()));
    store.push(&batch);
    let sink = Sink::new(Arc::clone(&store), None);
    let context = Context { sink, clock, stop: stop.clone(), interval: Duration::from_millis(250) };
    let sampler = SAMPLERS.iter().find(|sampler| sampler.id == "dcgm").unwrap();
    (sampler.start)(&context, &Options { dcgm_url: Some(url.to_owned()), access, ..Options::default() });
    let state = until("the exporter is read", || {
        let data = store.read();
        let state = data.source(SourceId::Dcgm)?.state_at(data.newest()).clone();
        (state != SourceState::Starting).then_some(state)
    });
    stop.stop();
    state
}

/// Fault: engine: a DCGM exporter wants a key
/// Seen: `needs a key (HTTP 401): put it into a file for --engine-auth`
/// Works: the driver's own figures, and every engine
/// Recovers: once a line for it is in the file of keys
#[test]
fn the_token_for_engines_never_goes_to_an_exporter() {
    let (server, heads) = listening(locked);
    let url = format!("http://{}", server.url());
    let state = exporter(&url, access(SECRET, ""));
    assert!(state.why().contains("needs a key (HTTP 401): put it into a file for --engine-auth"), "{state:?}");
    let asked = std::mem::take(&mut *heads.lock().unwrap());
    assert!(!asked.is_empty() && !asked.iter().any(|head| head.contains("authorization")), "{asked:?}");
    let state = exporter(&url, access("token-of-engines", &format!("{url} bearer {SECRET}\n{url} x-tenant: a b")));
    assert!(!state.why().contains("key"), "its line opens it: {state:?}");
    assert!(!heads.lock().unwrap().iter().any(|head| head.contains("token-of-engines")));
}

/// Not a test: the process that the next one looks for. "vllm" is in its command line.
#[test]
#[ignore = "is started by the test below"]
fn vllm_stand_in() {
    let (server, heads) = listening(locked);
    println!("port {}", server.port);
    // Serves until the test closes the pipe.
    drop(std::io::stdin().read_to_end(&mut Vec::new()));
    let heads = heads.lock().unwrap();
    println!("fished {} of {}", heads.iter().filter(|head| head.contains("token-of-others")).count(), heads.len());
}

/// Fault: engine: any process listens and looks like an engine, to fish for keys
/// Seen: nothing: it gets no key but that of its own line
/// Works: the engine whose line it is
/// Recovers: nothing is lost
#[test]
fn an_engine_that_was_found_gets_only_the_key_of_its_line() {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .arg0("vllm")
        .args(["serve", "vllm_stand_in", "--exact", "--ignored", "--nocapture"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let port = lines.find_map(|line| line.rsplit_once("port ")?.1.parse::<u16>().ok()).unwrap();
    let found = |access: Access| Session::with(&Options { discover: true, access, ..Options::default() }, PATIENT);
    let url = format!("http://127.0.0.1:{port}");
    let engine = |data: &Data| {
        data.engines().find(|&i| data.fact(Subject::Engine(i), FactKey::Url, data.newest()) == Some(&url))
    };
    let session = found(access("token-of-others", ""));
    session.wait("a search", |data| data.source(SourceId::Discovery)?.last_read(data.newest()));
    assert_eq!(engine(&session.store.read()), None);
    drop(session);
    let session = found(access("token-of-others", &format!("{url} bearer {SECRET}\n{url} x-tenant: a b")));
    session.wait("the engine", engine);
    drop(session);
    drop(child.stdin.take());
    let fished = lines.find_map(|line| Some(line.strip_prefix("fished ")?.to_owned())).unwrap();
    assert!(fished.starts_with("0 of ") && fished != "0 of 0", "whatever listens there could fish for it: {fished}");
    child.wait().unwrap();
}

/// A recording's text.
fn unpacked(file: &std::path::Path) -> String {
    let mut text = String::new();
    flate2::read::MultiGzDecoder::new(std::fs::File::open(file).unwrap()).read_to_string(&mut text).unwrap();
    text
}

#[test]
fn no_secret_leaves_the_program() {
    // The worst of servers says what it was sent.
    let (echo, heads) = listening(|head| {
        let status = if path(head).starts_with("/401") { "401 No" } else { "500 Oops" };
        http(status, "application/json", serde_json::json!({ "error": { "message": head } }).to_string().as_bytes())
    });
    let url = echo.url();
    let folder = Folder::new();
    let keys = folder.file("keys", &format!("# {SECRET}\nhttp://{url}/file X-Key: {SECRET}\n"));
    let recording = folder.0.path().join("out.jsonl.gz");
    let urls = [url.clone(), format!("{url}/401"), format!("{url}/file"), format!("ann:{SECRET}@{url}/url")];
    let run = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_warptop"));
        command.env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR"));
        command.args(args).arg("--no-discover").arg("--engine-auth").arg(&keys).env("WARPTOP_ENGINE_TOKEN", SECRET);
        for url in &urls[..3] {
            command.args(["--engine", url]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let child = run(&["record", "--duration", "1500ms", "-o", recording.to_str().unwrap()]);
    let command_line = std::fs::read_to_string(format!("/proc/{}/cmdline", child.id())).unwrap();
    let done = child.wait_with_output().unwrap();
    assert!(done.status.success(), "{done:?}");
    let snapshot = run(&["snapshot", "--json"]).wait_with_output().unwrap();
    assert!(snapshot.status.success(), "{snapshot:?}");
    let texts = [
        ("command line", command_line),
        ("recording", unpacked(&recording)),
        ("messages", format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr))),
        ("snapshot", String::from_utf8_lossy(&snapshot.stdout).into_owned()),
        ("its messages", String::from_utf8_lossy(&snapshot.stderr).into_owned()),
    ];
    for (what, text) in &texts {
        assert!(!text.contains("hunter2"), "{what}: {text}");
    }
    let recording = &texts[1].1;
    assert!(recording.contains("HTTP 500") && recording.contains("the key given was refused"), "{recording}");
    let heads = heads.lock().unwrap().concat();
    assert!(heads.contains(&format!("Bearer {SECRET}")) && heads.contains(&format!("x-key: {SECRET}")), "{heads}");
    // User name and password in a URL are on the command line, but nowhere else.
    let options = Options { engine_urls: vec![urls[3].clone()], access: access(SECRET, ""), ..Options::default() };
    let state = Session::with(&options, PATIENT).outcome("an echo");
    assert_eq!(state.why(), "answers with HTTP 500");
}

#[test]
fn what_cannot_be_used_is_refused_before_the_start_and_not_repeated() {
    let folder = Folder::new();
    let bad = folder.file("bad", &format!("http://gpu7 {SECRET}"));
    let open = folder.file("open", "");
    std::fs::set_permissions(&open, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let cases = [
        (vec!["--engine-auth", bad.to_str().unwrap()], "", "line 1: after the URL: 'bearer TOKEN' or"),
        (vec!["--engine-auth", open.to_str().unwrap()], "", "chmod 600"),
        (vec!["--engine-auth", "/no/such/file"], "", "No such file"),
        (vec!["--engine-ca", bad.to_str().unwrap()], "", "no certificate is in it: PEM is needed"),
        (vec![], "hunter2 hunter2", "WARPTOP_ENGINE_TOKEN holds a space"),
    ];
    for (args, token, words) in cases {
        let mut command = Command::new(env!("CARGO_BIN_EXE_warptop"));
        command.env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR"));
        let out = command.args(["snapshot", "--json"]).args(args).env("WARPTOP_ENGINE_TOKEN", token).output().unwrap();
        let text = String::from_utf8_lossy(&out.stderr);
        assert_eq!((out.status.code(), out.stdout.len()), (Some(2), 0), "{text}");
        assert!(text.contains(words) && !text.contains("hunter2"), "{words}: {text}");
    }
}
