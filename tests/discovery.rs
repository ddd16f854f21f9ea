//! Engines that are found on this host, restarts of them, their processes, and network namespaces. The
//! engines are processes of their own: this test binary again, under the name of a real one.

#![allow(clippy::unwrap_used, reason = "in a test an error is a failure")]

mod support;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use support::{PATIENT, Server, Session, vllm};
use warptop::model::{FactKey, Metric, SourceId, SourceState, Subject};
use warptop::store::Data;

const IDLE: &str = include_str!("../assets/metrics/vllm-0.25.1-idle.prom");
const START: &str = "process_start_time_seconds 1.79596029994e+09";

const LLAMA: &str = include_str!("../assets/metrics/llama.cpp-b11549.prom");

/// A vLLM's body for another model, from a process that started then.
fn body(model: &str, start: f64) -> String {
    assert!(IDLE.contains(START) && IDLE.contains("\"dummy-8b\""));
    IDLE.replace(START, &format!("process_start_time_seconds {start}")).replace("\"dummy-8b\"", &format!("\"{model}\""))
}

/// The model of a stand-in that listens on many sockets and answers nothing.
const SILENT: &str = "silent";

/// One test at a time: every session finds all engines on the host, and takes only so many.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// When this process started, Unix seconds.
fn own_start() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let ticks: f64 = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(19).unwrap().parse().unwrap();
    let system = std::fs::read_to_string("/proc/stat").unwrap();
    let boot: f64 = system.lines().find_map(|line| line.strip_prefix("btime ")).unwrap().parse().unwrap();
    boot + ticks / 100.0
}

/// Not a test: the engine that the tests look for. It says where it listens, and serves until its standard
/// input ends; a line there makes it start a part of itself.
#[test]
#[ignore = "is started by the tests below"]
fn stand_in() {
    let var = |name: &str| std::env::var(name).unwrap();
    let (bind, model) = (var("STAND_IN_BIND"), var("STAND_IN_MODEL"));
    if model == SILENT {
        let silent: Vec<_> = (0..16).map(|_| TcpListener::bind(&bind).unwrap()).collect();
        println!("\nstarted 0 {}", own_start());
        std::io::stdin().lines().for_each(drop);
        return drop(silent);
    }
    let metrics = if model == "llama.cpp" { LLAMA.to_owned() } else { body(&model, own_start()) };
    let listener = bind_again(&bind);
    let server = Server::listen(listener, move |path, stream| drop(stream.write_all(&vllm(path, &metrics, "9.9.9"))));
    println!("\nstarted {} {}", server.port, own_start());
    let mut parts = Vec::new();
    for _ in std::io::stdin().lines() {
        let part = Command::new("sleep").arg0("VLLM::EngineCore").arg("600").stdout(Stdio::null()).spawn().unwrap();
        println!("\npart {}", part.id());
        parts.push(part);
    }
    for mut part in parts {
        part.kill().unwrap();
        part.wait().unwrap();
    }
}

/// A port may linger for a moment after the server before.
fn bind_again(address: &str) -> TcpListener {
    let deadline = Instant::now() + Duration::from_mins(1);
    loop {
        match TcpListener::bind(address) {
            Ok(listener) => return listener,
            Err(error) => assert!(Instant::now() < deadline, "{address}: {error}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

struct Engine {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
    port: u16,
    start: f64,
}

impl Engine {
    fn start(bind: &str, model: &str) -> Self {
        Self::with_options(bind, model, &[])
    }

    fn with_options(bind: &str, model: &str, options: &[&str]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg0("vllm").args(["serve", model, "stand_in", "--exact", "--ignored", "--nocapture", "--"]);
        command.args(options);
        Self::run(command, bind, model)
    }

    /// In a user and a network namespace of its own; `None` where the machine does not allow that.
    fn contained(bind: &str, model: &str) -> Option<Self> {
        let allowed = Command::new("unshare").args(["-rn", "true"]).stderr(Stdio::null()).status();
        if !allowed.is_ok_and(|status| status.success()) {
            eprintln!("not tested: this machine allows no user and network namespaces (unshare -rn)");
            return None;
        }
        let mut command = Command::new("unshare");
        let script = r#"ip link set lo up 2>/dev/null; exec -a vllm "$0" serve stand_in --exact --ignored --nocapture"#;
        command.args(["-rn", "bash", "-c", script]).arg(std::env::current_exe().unwrap());
        Some(Self::run(command, bind, model))
    }

    fn run(mut command: Command, bind: &str, model: &str) -> Self {
        command.env("STAND_IN_BIND", bind).env("STAND_IN_MODEL", model);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let stdin = child.stdin.take();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let said = said(&mut lines, "started ");
        let (port, start) = said.split_once(' ').unwrap();
        let (port, start) = (port.parse().unwrap(), start.parse().unwrap());
        Self { child, stdin, lines, port, start }
    }

    fn start_part(&mut self) -> u32 {
        self.stdin.as_mut().unwrap().write_all(b"part\n").unwrap();
        said(&mut self.lines, "part ").parse().unwrap()
    }

    fn end(mut self) {
        drop(self.stdin.take());
        // Until it has ended it must be able to write.
        self.lines.by_ref().for_each(drop);
        self.child.wait().unwrap();
    }
}

fn said(lines: &mut impl Iterator<Item = std::io::Result<String>>, what: &str) -> String {
    lines.by_ref().map_while(Result::ok).find_map(|line| line.strip_prefix(what).map(ToOwned::to_owned)).unwrap()
}

fn fact(data: &Data, engine: u8, key: FactKey) -> Option<&str> {
    data.fact(Subject::Engine(engine), key, data.newest())
}

/// The engine at this port.
fn at_port(data: &Data, port: u16) -> Option<u8> {
    let url = format!("http://127.0.0.1:{port}");
    data.engines().find(|&engine| fact(data, engine, FactKey::Url) == Some(url.as_str()))
}

fn wait_for_fact(session: &Session, engine: u8, key: FactKey, text: &str) {
    session.wait(&format!("{key:?} = {text}"), |data| (fact(data, engine, key) == Some(text)).then_some(()));
}

fn search_state(data: &Data) -> Option<SourceState> {
    Some(data.source(SourceId::Discovery)?.state_at(data.newest()).clone())
}

/// Whether ids of processes here are those of the machine; elsewhere only those on a GPU are told.
fn host_pids() -> bool {
    let here = std::fs::read_link("/proc/self/ns/pid").unwrap().as_os_str() == "pid:[4026531836]";
    if !here {
        eprintln!("not tested: process ids here are not those of the machine (a container)");
    }
    here
}

#[test]
fn an_engine_is_found_with_the_processes_that_it_starts() {
    let _alone = alone();
    let mut engine = Engine::start("127.0.0.1:0", "with-parts");
    let session = Session::start(&[], true, PATIENT);
    let index = session.wait("the engine", |data| at_port(data, engine.port));
    wait_for_fact(&session, index, FactKey::Model, "with-parts");
    if host_pids() {
        wait_for_fact(&session, index, FactKey::Pids, &engine.child.id().to_string());
        let part = engine.start_part();
        wait_for_fact(&session, index, FactKey::Pids, &format!("{},{part}", engine.child.id()));
        engine.end();
        wait_for_fact(&session, index, FactKey::Pids, "");
    }
}

#[test]
fn the_command_line_and_the_models_configuration_say_what_the_answers_do_not() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let config = r#"{"model_type":"llama","hidden_size":4096,"num_hidden_layers":32,"num_attention_heads":32,
        "num_key_value_heads":8,"torch_dtype":"bfloat16"}"#;
    std::fs::write(dir.path().join("config.json"), config).unwrap();
    let model = dir.path().to_str().unwrap();
    let engine = Engine::with_options("127.0.0.1:0", model, &["--max-num-seqs", "48", "-tp", "16"]);
    let session = Session::start(&[], true, PATIENT);
    let index = session.wait("the engine", |data| at_port(data, engine.port));
    let value = |metric| {
        session.wait("a value", |data| data.latest(Subject::Engine(index), metric, data.newest()).reading.value())
    };
    let values = [Metric::RequestsCap, Metric::KvBytesPerToken, Metric::KvCopies].map(value);
    assert_eq!(values.map(|value| value as u64), [48, 262_144, 2]);
    wait_for_fact(&session, index, FactKey::RequestsCapSource, "--max-num-seqs");
    let how = "config.json: 2 × 32 layers × 8 KV heads × 128 × 2 B × 2 copies (TP 16)";
    wait_for_fact(&session, index, FactKey::KvBytesSource, how);
    let port = format!("127.0.0.1:{}", engine.port);
    engine.end();
    let plain = Engine::start(&port, "org/not-in-any-cache");
    wait_for_fact(&session, index, FactKey::RequestsCapSource, "");
    let why = "not known: its config.json is neither in the directory given nor in the Hugging Face cache";
    wait_for_fact(&session, index, FactKey::KvBytesSource, why);
    plain.end();
}

#[test]
fn a_named_engine_has_its_processes_even_without_a_search() {
    let _alone = alone();
    if !host_pids() {
        return;
    }
    let server = Server::start(|path, stream| drop(stream.write_all(&vllm(path, &body("named", 1e9), "1"))));
    let session = Session::start(&[&format!("localhost:{}", server.port)], false, PATIENT);
    let own = std::process::id().to_string();
    session.wait("this process", |data| {
        fact(data, 0, FactKey::Pids).filter(|pids| pids.split(',').next() == Some(&own)).map(|_| ())
    });
    let data = session.store.read();
    assert_eq!(data.engines().collect::<Vec<_>>(), [0], "nothing else is listed");
    assert!(data.source(SourceId::Discovery).is_none(), "nobody asked for a search");
}

/// Fault: engine: six processes look like engines, and each listens on 16 sockets that stay silent
/// Seen: nothing
/// Works: another engine is found at once; one after the other they would be waited for 16 minutes in this test
/// Recovers: when they answer
#[test]
fn silent_sockets_of_others_do_not_delay_the_search() {
    let _alone = alone();
    let silent: Vec<_> = (0..6).map(|_| Engine::start("127.0.0.1:0", SILENT)).collect();
    let real = Engine::start("127.0.0.1:0", "found");
    let session = Session::start(&[], true, PATIENT);
    let index = session.wait("the engine", |data| at_port(data, real.port));
    wait_for_fact(&session, index, FactKey::Model, "found");
    for engine in silent.into_iter().chain([real]) {
        engine.end();
    }
}

#[test]
fn a_restart_on_another_port_is_the_same_engine() {
    let _alone = alone();
    let first = Engine::start("127.0.0.1:0", "moves");
    let session = Session::start(&[], true, PATIENT);
    let index = session.wait("the engine", |data| at_port(data, first.port));
    wait_for_fact(&session, index, FactKey::Model, "moves");
    first.end();
    session
        .wait("its end", |data| data.source(SourceId::Engine(index))?.state_at(data.newest()).is_down().then_some(()));
    let second = Engine::start("127.0.0.1:0", "moves");
    wait_for_fact(&session, index, FactKey::Url, &format!("http://127.0.0.1:{}", second.port));
    if host_pids() {
        wait_for_fact(&session, index, FactKey::Pids, &second.child.id().to_string());
    }
    second.end();
}

#[test]
fn another_model_or_engine_on_the_same_port_takes_the_place_over() {
    let _alone = alone();
    let first = Engine::start("127.0.0.1:0", "before");
    let (port, address) = (first.port, format!("127.0.0.1:{}", first.port));
    let session = Session::start(&[], true, PATIENT);
    let index = session.wait("the engine", |data| at_port(data, port));
    wait_for_fact(&session, index, FactKey::Model, "before");
    first.end();
    let second = Engine::start(&address, "after");
    wait_for_fact(&session, index, FactKey::Model, "after");
    let pid = second.child.id().to_string();
    if host_pids() {
        wait_for_fact(&session, index, FactKey::Pids, &pid);
    }
    second.end();
    let third = Engine::start(&address, "llama.cpp");
    wait_for_fact(&session, index, FactKey::Kind, "llama.cpp");
    wait_for_fact(&session, index, FactKey::Name, &format!("llama.cpp :{port}"));
    let data = session.store.read();
    let url = |engine| fact(&data, engine, FactKey::Url).is_some_and(|url| url.ends_with(&address));
    assert_eq!(data.engines().filter(|&engine| url(engine)).count(), 1);
    drop(data);
    third.end();
}

#[test]
fn an_engine_in_a_network_namespace_is_not_mistaken_for_what_answers_here() {
    let _alone = alone();
    let stranger = Server::start(|path, stream| drop(stream.write_all(&vllm(path, &body("stranger", 1e9), "1"))));
    let Some(inside) = Engine::contained(&format!("0.0.0.0:{}", stranger.port), "inside") else { return };
    assert_eq!(inside.port, stranger.port);
    let session = Session::start(&[], true, PATIENT);
    let words = format!("vLLM (pid {}) cannot be reached from outside its container", inside.child.id());
    let state = session.wait("the words", |data| search_state(data).filter(|s| s.why().starts_with(&words)));
    assert!(state.why().contains(&format!("at 127.0.0.1:{} is another process", stranger.port)), "{state:?}");
    assert_eq!(at_port(&session.store.read(), stranger.port), None, "nobody named the stranger");
    inside.end();
}

#[test]
fn a_published_port_leads_to_the_engine_in_its_namespace() {
    let _alone = alone();
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let Some(inside) = Engine::contained(&format!("0.0.0.0:{}", free.local_addr().unwrap().port()), "inside") else {
        return;
    };
    // What a proxy would hand out: the answers of the engine inside.
    let start = inside.start;
    let proxy =
        Server::listen(free, move |path, stream| drop(stream.write_all(&vllm(path, &body("inside", start), "1"))));
    let session = Session::start(&[], true, PATIENT);
    let index = session.wait("the engine", |data| at_port(data, proxy.port));
    if host_pids() {
        wait_for_fact(&session, index, FactKey::Pids, &inside.child.id().to_string());
    }
    inside.end();
}

#[test]
fn an_engine_on_the_loopback_of_a_namespace_has_its_words() {
    let _alone = alone();
    let Some(inside) = Engine::contained("127.0.0.1:0", "inside") else { return };
    let session = Session::start(&[], true, PATIENT);
    let words = format!("vLLM (pid {}) listens only at 127.0.0.1:{} inside", inside.child.id(), inside.port);
    let state = session.wait("the words", |data| search_state(data).filter(|s| s.why().starts_with(&words)));
    assert!(state.why().contains("--host 0.0.0.0"), "{state:?}");
    inside.end();
}
