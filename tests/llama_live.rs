//! A real llama.cpp server: found, read under load, stopped, killed, started again, and what the diagnosis says of each.
//!
//! `tests/servers/up-llama.sh` installs and starts it. What is right comes from elsewhere: the tokens from
//! the load client's own count, the slots from the server's `/slots`, read by this test. Every wait is for a
//! condition; nothing depends on how fast the machine is.

#![allow(clippy::unwrap_used, reason = "in a test an error is a failure")]

use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::Value;
use warptop::diagnosis::{Cause, Finding, Severity, Slo, Timeline};
use warptop::model::{Batch, Clock, FactKey, Metric, Reading, SourceId, SourceState, Subject, SystemClock, Time};
use warptop::sampler::engines::{self, Timing};
use warptop::sampler::{Context, Options, SAMPLERS, Sink, Stop};
use warptop::store::{Data, Retention, Store, Window};

/// Set to leave this test out where there is no Python or no package index.
const SKIP: &str = "WARPTOP_SKIP_LLAMA";
/// Exit code of the script where python3, venv, curl or the package index is not there.
const LACKING: i32 = 75;
/// For what depends on the machine, however slow.
const PATIENCE: Duration = Duration::from_mins(5);

const SLOTS: usize = 4;
const STREAMS: usize = 16;
const CONTEXT: f64 = 8192.0;

const TIMING: Timing = Timing {
    period: Duration::from_millis(250),
    // A stopped server is called silent after this.
    timeout: Duration::from_secs(10),
    search: Duration::from_millis(500),
    search_when_none: Duration::from_millis(500),
};

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/servers").join(name)
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The server, killed at the end.
struct Server {
    pid: u32,
    port: u16,
}

impl Server {
    /// `None`: this machine lacks something for it, as the script says. On one that builds for others (`CI`) that is a failure.
    fn install(port: u16) -> Option<Self> {
        let output = Command::new(script("up-llama.sh"))
            .env("SERVERS_HOME", Path::new(env!("CARGO_TARGET_TMPDIR")).join("servers"))
            .env("PORT", port.to_string())
            .env("SLOTS", SLOTS.to_string())
            .env("CONTEXT", CONTEXT.to_string())
            .env("LIVES_WITH", std::process::id().to_string())
            .env_remove("API_KEY")
            .stdin(Stdio::null())
            // Past the capture of tests: a download of minutes is seen while it runs.
            .stderr(Stdio::inherit())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        if output.status.code() == Some(LACKING) && std::env::var_os("CI").is_none() {
            return None;
        }
        let pid = said.strip_prefix("PID=").and_then(|rest| rest.split(' ').next()?.parse().ok());
        assert!(
            pid.is_some(),
            "no llama.cpp server, see above: {said}\nThis test needs python3 with venv, curl, and a Python package index; \
             where these cannot be had, {SKIP}=1 leaves it out."
        );
        let pid = pid.unwrap();
        Some(Self { pid, port })
    }

    fn start(port: u16) -> Self {
        Self::install(port).unwrap()
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// SIGKILL, as the kernel does it when memory runs out.
    fn kill(&self) {
        let killed = Command::new("kill").args(["-9", &self.pid.to_string()]).stderr(Stdio::null()).status();
        drop(killed);
    }

    fn signal(&self, name: &str) {
        assert!(Command::new("kill").args([name, &self.pid.to_string()]).status().unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Streams against the server; the process is killed at the end.
struct Load(Child);

impl Load {
    fn start(server: &Server, tokens: u32) -> Self {
        let port = server.port.to_string();
        let (streams, tokens) = (STREAMS.to_string(), tokens.to_string());
        let options = ["--port", &port, "--requests", &streams, "--clients", &streams, "--max-tokens", &tokens];
        let mut command = Command::new("python3");
        command.arg(script("load.py")).args(options).args(["--words", "20", "--vary", "0.3"]);
        Self(command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap())
    }

    /// Waits for the end: what the client saw.
    fn finish(mut self) -> Value {
        let mut said = String::new();
        self.0.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        serde_json::from_str(&said).unwrap()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// One slot of `/slots`, as this test reads it.
#[derive(Clone, Debug)]
struct Slot {
    busy: bool,
    task: Option<i64>,
    held: f64,
    decoded: f64,
}

/// What `/slots` said between two times.
#[derive(Clone, Debug)]
struct Poll {
    from: Time,
    to: Time,
    slots: Vec<Slot>,
}

impl Poll {
    /// All slots generate.
    fn full(&self) -> bool {
        self.slots.len() == SLOTS && self.slots.iter().all(|slot| slot.busy && slot.decoded >= 1.0)
    }

    fn tasks(&self) -> Vec<Option<i64>> {
        self.slots.iter().map(|slot| slot.task).collect()
    }

    fn sum(&self, of: impl Fn(&Slot) -> f64) -> f64 {
        self.slots.iter().map(of).sum()
    }
}

fn get(port: u16, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.contains(" 200 ").then(|| body.to_owned())
}

fn slots(port: u16, clock: &SystemClock) -> Option<Poll> {
    let from = clock.now();
    let Ok(Value::Array(list)) = serde_json::from_str(&get(port, "/slots")?) else { return None };
    let slot = |slot: &Value| Slot {
        busy: slot["is_processing"] == true,
        task: slot["id_task"].as_i64(),
        held: slot["n_prompt_tokens"].as_f64().unwrap_or(0.0),
        decoded: slot["next_token"][0]["n_decoded"].as_f64().unwrap_or(0.0),
    };
    Some(Poll { from, to: clock.now(), slots: list.iter().map(slot).collect() })
}

/// Reads `/slots` again and again until dropped.
struct Poller {
    polls: Arc<Mutex<Vec<Poll>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Poller {
    fn start(port: u16, clock: Arc<SystemClock>) -> Self {
        let (polls, stop) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (list, stopped) = (Arc::clone(&polls), Arc::clone(&stop));
        let thread = thread::spawn(move || {
            while !stopped.load(Ordering::SeqCst) {
                list.lock().unwrap().extend(slots(port, &clock));
                thread::sleep(Duration::from_millis(20));
            }
        });
        Self { polls, stop, thread: Some(thread) }
    }

    /// The last poll that ended before `from`, and the first that began after `to`.
    fn around(&self, from: Time, to: Time) -> (Option<Poll>, Option<Poll>) {
        let polls = self.polls.lock().unwrap();
        let before = polls.iter().rfind(|poll| poll.to <= from);
        (before.cloned(), polls.iter().find(|poll| poll.from >= to).cloned())
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// warptop's samplers of engines and processes on a store, looking for engines by themselves, and the diagnosis.
struct Session {
    store: Arc<Store>,
    timeline: RefCell<Timeline>,
    clock: Arc<SystemClock>,
    stop: Stop,
    tap: mpsc::Receiver<Batch>,
}

impl Session {
    fn start() -> Self {
        let (store, stop) = (Arc::new(Store::new(Retention::HOUR)), Stop::default());
        let (sender, tap) = mpsc::sync_channel(1 << 16);
        let clock = Arc::new(SystemClock::start());
        let context = Context {
            sink: Sink::new(Arc::clone(&store), Some(sender)),
            clock: Arc::clone(&clock) as Arc<dyn Clock>,
            stop: stop.clone(),
            interval: Duration::from_millis(250),
        };
        let options = Options { discover: true, ..Options::default() };
        engines::start(&context, &options, TIMING);
        let processes = SAMPLERS.iter().find(|sampler| sampler.id == "process").unwrap();
        (processes.start)(&context, &options);
        Self { store, timeline: RefCell::new(Timeline::new(Slo::default())), clock, stop, tap }
    }

    fn wait<T>(&self, what: &str, ask: impl Fn(&Data) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let data = self.store.read();
            if let Some(answer) = ask(&data) {
                return answer;
            }
            let states: Vec<_> =
                data.sources().map(|(id, s)| format!("{id}: {:?}", s.state_at(data.newest()))).collect();
            drop(data);
            let findings = self.timeline.borrow().diagnosis().findings.clone();
            assert!(Instant::now() < deadline, "waited in vain for {what}; {states:?}; {findings:#?}");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until the findings about the engine, most harmful first, are what is asked for.
    fn wait_for_findings<T>(&self, what: &str, index: u8, ask: impl Fn(&[&Finding]) -> Option<T>) -> T {
        self.wait(what, |data| {
            let mut timeline = self.timeline.borrow_mut();
            timeline.follow(data, data.newest());
            let found: Vec<_> = timeline.diagnosis().of(Subject::Engine(index)).collect();
            ask(&found)
        })
    }

    /// Waits until this cause is the first finding about the engine, or comes after `host-cpu` alone: other programs may
    /// take the CPUs from the server, and that is right, too.
    fn diagnosed(&self, index: u8, cause: Cause) -> Finding {
        self.wait_for_findings(cause.id(), index, |found| {
            let first = found.iter().find(|finding| finding.cause != Cause::HostCpu)?;
            (first.cause == cause).then(|| (*first).clone())
        })
    }

    /// Waits until the cause is no longer found.
    fn not_diagnosed(&self, index: u8, cause: Cause) {
        self.wait_for_findings(&format!("the end of {}", cause.id()), index, |found| {
            found.iter().all(|finding| finding.cause != cause).then_some(())
        });
    }

    /// Waits until an engine at this URL is read well; its number.
    fn wait_for_engine(&self, url: &str) -> u8 {
        self.wait(&format!("an engine at {url}"), |data| {
            let here = |&index: &u8| {
                fact(data, index, FactKey::Url) == Some(url) && state(data, index) == Some(SourceState::Ok)
            };
            data.engines().find(here)
        })
    }

    fn wait_for<const N: usize>(&self, index: u8, expected: [(Metric, f64); N]) {
        self.wait(&format!("{expected:?}"), |data| {
            let holds = |&(metric, value)| latest(data, index, metric) == Reading::Value(value);
            expected.iter().all(holds).then_some(())
        });
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.stop.stop();
    }
}

fn state(data: &Data, index: u8) -> Option<SourceState> {
    data.source(SourceId::Engine(index)).map(|source| source.state_at(data.newest()).clone())
}

fn latest(data: &Data, index: u8, metric: Metric) -> Reading {
    data.latest(Subject::Engine(index), metric, data.newest()).reading
}

fn fact(data: &Data, index: u8, key: FactKey) -> Option<&str> {
    data.fact(Subject::Engine(index), key, data.newest())
}

/// The value that a batch gives for a metric of an engine.
fn value(batch: &Batch, index: u8, metric: Metric) -> Option<f64> {
    let sample = batch.samples.iter().find(|s| s.subject == Subject::Engine(index) && s.metric == metric)?;
    sample.reading.value()
}

#[test]
fn a_real_server_is_found_read_killed_and_found_again() {
    if std::env::var_os(SKIP).is_some_and(|value| value == "1") {
        eprintln!("left out: {SKIP}=1");
        return;
    }
    let Some(server) = Server::install(free_port()) else {
        let words = b"SKIPPED: the test against a real llama.cpp server; what it lacks stands above\n";
        std::io::stderr().write_all(words).unwrap();
        return;
    };
    let session = Session::start();
    let index = session.wait_for_engine(&server.url());
    it_says_what_it_is(&session, index);
    session.diagnosed(index, Cause::Idle);
    let counted = tokens_are_those_of_the_client(&session, index, &server);
    let load = Load::start(&server, 1400);
    the_queue_is_seen(&session, index, &server);
    scrapes_lie_between_what_slots_said(&session, index, &server, counted);
    its_limit_is_named(&session, index);
    it_is_stopped_and_goes_on(&session, index, &server);

    server.kill();
    it_is_gone(&session, index);
    session.diagnosed(index, Cause::Down);
    let client = load.finish();
    assert_eq!(client["failed"], STREAMS, "all of its streams broke off");
    let server = it_comes_back(&session, index, &server);
    session.not_diagnosed(index, Cause::Down);
    session.diagnosed(index, Cause::Idle);

    server.kill();
    it_is_gone(&session, index);
    let elsewhere = Server::start(free_port());
    assert_eq!(session.wait_for_engine(&elsewhere.url()), index, "the same engine at another port");
    session.wait_for(index, [(Metric::RequestsRunning, 0.0), (Metric::KvPoolTokens, CONTEXT)]);
}

fn it_says_what_it_is(session: &Session, index: u8) {
    session.wait("the model", |data| {
        let told = [FactKey::Kind, FactKey::Model, FactKey::KvLayout].map(|key| fact(data, index, key).unwrap_or(""));
        (told == ["llama.cpp", "gemma-3-270m-q4_k_m.gguf", "slots"]).then_some(())
    });
    session.wait_for(
        index,
        [
            (Metric::RequestsRunning, 0.0),
            (Metric::RequestsWaiting, 0.0),
            (Metric::RequestsCap, SLOTS as f64),
            (Metric::MaxModelLen, CONTEXT / SLOTS as f64),
            (Metric::KvPoolTokens, CONTEXT),
            (Metric::KvFreeTokens, CONTEXT),
            (Metric::GenerationTokens, 0.0),
        ],
    );
}

/// Short requests to their end: totals against the client's count, what is left in the slots against `/slots`.
/// The tokens generated.
fn tokens_are_those_of_the_client(session: &Session, index: u8, server: &Server) -> f64 {
    let client = Load::start(server, 12).finish();
    assert_eq!((&client["ok"], &client["failed"]), (&STREAMS.into(), &0.into()), "{client}");
    let (prompt, generated) =
        (client["prompt_tokens"].as_f64().unwrap(), client["completion_tokens"].as_f64().unwrap());
    let left = slots(server.port, &session.clock).unwrap();
    assert!(left.slots.iter().all(|slot| !slot.busy), "{left:?}");
    let cached = left.sum(|slot| slot.held);
    let mut said = Vec::new();
    let deadline = Instant::now() + PATIENCE;
    let last = loop {
        let batch = session.tap.recv_timeout(PATIENCE).unwrap();
        assert!(Instant::now() < deadline, "{client}; what was read of it: {said:?}");
        if batch.source != SourceId::Engine(index) {
            continue;
        }
        said = [Metric::PromptTokens, Metric::GenerationTokens, Metric::KvLiveTokens]
            .map(|m| value(&batch, index, m))
            .into();
        if said == [Some(prompt), Some(generated), Some(0.0)] {
            break batch;
        }
    };
    let levels = [Metric::KvCachedTokens, Metric::KvHeldTokens, Metric::KvFreeTokens].map(|m| value(&last, index, m));
    assert_eq!(levels, [Some(cached), Some(0.0), Some(CONTEXT - cached)]);
    generated
}

/// 16 streams on 4 slots: 12 wait. The program on its own says so as well.
fn the_queue_is_seen(session: &Session, index: u8, server: &Server) {
    let waiting = (STREAMS - SLOTS) as f64;
    session.wait_for(
        index,
        [
            (Metric::RequestsRunning, SLOTS as f64),
            (Metric::RequestsWaiting, waiting),
            (Metric::WaitingCapacity, waiting),
            (Metric::KvHeldTokens, CONTEXT),
            (Metric::KvUsage, 100.0),
        ],
    );
    let output = Command::new(env!("CARGO_BIN_EXE_warptop"))
        .args(["snapshot", "--json"])
        .env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR"))
        .output()
        .unwrap();
    let snapshot: Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut engines = snapshot["engines"].as_array().unwrap().iter();
    let here = engines.find(|engine| engine["url"] == server.url()).unwrap();
    assert_eq!((&here["kind"], &here["requests_running"]), (&"llama.cpp".into(), &SLOTS.into()), "{here}");
    assert_eq!(here["requests_waiting"], STREAMS - SLOTS, "{here}");
}

/// Tokens in the slots and tokens generated, each scrape between two reads of `/slots` that saw the same requests.
fn scrapes_lie_between_what_slots_said(session: &Session, index: u8, server: &Server, counted: f64) {
    const ENOUGH: usize = 5;
    let first = slots(server.port, &session.clock).unwrap();
    let poller = Poller::start(server.port, Arc::clone(&session.clock));
    let deadline = Instant::now() + PATIENCE;
    let (mut open, mut checked) = (Vec::new(), 0);
    while checked < ENOUGH {
        assert!(Instant::now() < deadline, "only {checked} scrapes could be compared");
        let batch = session.tap.recv_timeout(PATIENCE).unwrap();
        let answered = value(&batch, index, Metric::GenerationTokens).is_some();
        if batch.source == SourceId::Engine(index) && batch.at > first.to && answered {
            open.push(batch);
        }
        open.retain(|batch| {
            let half = u64::from(batch.took_us).div_ceil(2000) + 1;
            let (Some(before), after) = poller.around(batch.at - half, batch.at + half) else { return false };
            let Some(after) = after else { return true };
            // The first four requests: none has ended yet, so nothing more is counted.
            let same = before.tasks() == first.tasks() && after.tasks() == first.tasks();
            if before.full() && after.full() && same {
                let between = |metric, base: f64, of: fn(&Slot) -> f64| {
                    let (low, high) = (base + before.sum(of), base + after.sum(of));
                    let said = value(batch, index, metric).unwrap();
                    assert!(low <= said && said <= high, "{metric:?}: {said} is not in {low} to {high}");
                };
                between(Metric::KvLiveTokens, 0.0, |slot| slot.held);
                between(Metric::GenerationTokens, counted, |slot| slot.decoded);
                checked += 1;
            }
            false
        });
    }
}

/// The diagnosis names the slots as what holds the queue back, and the option that gives more of them.
fn its_limit_is_named(session: &Session, index: u8) {
    let limit = session.diagnosed(index, Cause::AdmissionLimit);
    assert_eq!(limit.severity, Severity::Act);
    let fix = &limit.fixes[0];
    assert_eq!((fix.flag.as_deref(), fix.now.as_deref()), (Some("--parallel"), Some(&*SLOTS.to_string())), "{limit:?}");
}

/// A stopped server takes connections and says nothing: that is no answer and not down, its process is named as stopped,
/// and it ends with the stop.
fn it_is_stopped_and_goes_on(session: &Session, index: u8, server: &Server) {
    server.signal("-STOP");
    let (named, go_on) = (format!("process {} is stopped", server.pid), format!("kill -CONT {}", server.pid));
    let severity = session.wait_for_findings("a stopped process", index, |found| {
        for words in found.iter().map(|finding| &finding.headline.full) {
            assert!(!words.contains(" answers"), "{words}");
        }
        let stalled = found.first().filter(|finding| finding.cause == Cause::Stalled)?;
        let fixed = stalled.fixes.iter().any(|fix| fix.text.full.contains(&go_on));
        (stalled.headline.full.contains(&named) && fixed).then_some(stalled.severity)
    });
    assert_eq!(severity, Severity::Act);

    let generated = latest(&session.store.read(), index, Metric::GenerationTokens).value();
    server.signal("-CONT");
    session.wait("progress", |data| {
        let now = latest(data, index, Metric::GenerationTokens).value()?;
        (state(data, index) == Some(SourceState::Ok) && generated.is_none_or(|before| now > before)).then_some(())
    });
    session.not_diagnosed(index, Cause::Stalled);
    session.diagnosed(index, Cause::AdmissionLimit);
}

fn it_is_gone(session: &Session, index: u8) {
    session.wait("the end", |data| match state(data, index) {
        Some(SourceState::Failed(why)) if why.contains("connection refused") => Some(()),
        _ => None,
    });
    session.wait("a gap", |data| {
        let gap = [Metric::RequestsRunning, Metric::KvLiveTokens, Metric::GenerationTokens];
        gap.iter().all(|&metric| latest(data, index, metric).value().is_none()).then_some(())
    });
}

/// Started again at the same port: the gap ends, the counters start anew, and no rate goes below 0.
fn it_comes_back(session: &Session, index: u8, killed: &Server) -> Server {
    let gone = session.clock.now();
    let server = Server::start(killed.port);
    session.wait("its return", |data| (state(data, index) == Some(SourceState::Ok)).then_some(()));
    session
        .wait_for(index, [(Metric::RequestsRunning, 0.0), (Metric::KvLiveTokens, 0.0), (Metric::KvCachedTokens, 0.0)]);
    let data = session.store.read();
    let since = Window { start: gone, end: data.newest() };
    let resets: Vec<_> = data.resets(since).filter(|(_, subject)| *subject == Subject::Engine(index)).collect();
    // Its first answers may come apart: a server that still loads leaves one of them out.
    assert!((1..=2).contains(&resets.len()), "{resets:?}");
    let rate = data.mean(Subject::Engine(index), Metric::GenerationTokens, since).value();
    assert!(rate.is_none_or(|rate| rate.abs() < 1e-9), "nothing was generated: {rate:?}");
    drop(data);
    server
}
