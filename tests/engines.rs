//! Engines over real sockets: good ones, ones that come and go, ones that are found.

#![allow(clippy::unwrap_used, reason = "in a test an error is a failure")]

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use support::{BODY, ENGINE, PATIENT, Server, Session, fact, latest, state, vllm};
use warptop::model::{FactKey, Metric, Reading, SourceId, SourceState, Subject, Why};
use warptop::sampler::engines::Timing;
use warptop::store::{Data, HistogramWindow, Window};

const IDLE: &str = include_str!("../assets/metrics/vllm-0.25.1-idle.prom");

#[test]
fn a_good_engine_is_recognised_and_read() {
    let server = Server::start(|path, stream| drop(stream.write_all(&vllm(path, BODY, "0.25.1"))));
    let url = format!("http://ann:hunter2@127.0.0.1:{}/metrics", server.port);
    let session = Session::named(&url, PATIENT);
    session.wait("the model's length", |data| latest(data, Metric::MaxModelLen).value().filter(|&v| v > 32_767.0));
    session.wait("the version", |data| fact(data, FactKey::Version).filter(|&v| v == "0.25.1").map(|_| ()));
    let data = session.store.read();
    assert_eq!(latest(&data, Metric::RequestsRunning), Reading::Value(109.0));
    assert!(matches!(latest(&data, Metric::KvUsage), Reading::Value(v) if (v - 90.347).abs() < 0.001));
    assert!(data.histogram(ENGINE, Metric::Ttft).is_some());
    let facts = [FactKey::Url, FactKey::Kind, FactKey::Model, FactKey::Name].map(|key| fact(&data, key).unwrap_or(""));
    let (url, name) = (format!("http://127.0.0.1:{}", server.port), format!("vLLM :{}", server.port));
    assert_eq!(facts, [url.as_str(), "vllm", "dummy-8b", name.as_str()], "and no password");
    assert_eq!(state(&data), Some(SourceState::Ok));
}

/// Fault: engine: it answers late after good answers
/// Seen: its row is degraded and says that it is `saturated`, not down
/// Works: everything else
/// Recovers: with the first answer in time
#[test]
fn an_engine_that_is_late_after_good_answers_is_degraded_not_down() {
    let late = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&late);
    let server = Server::start(move |path, stream| {
        if asked.load(Ordering::SeqCst) {
            drop(stream.read(&mut [0]));
        } else {
            drop(stream.write_all(&vllm(path, BODY, "1")));
        }
    });
    let session = Session::named(&server.url(), Timing { timeout: Duration::from_secs(1), ..PATIENT });
    session.wait_for_state("a good answer", |s| *s == SourceState::Ok);
    late.store(true, Ordering::SeqCst);
    let state = session.wait_for_state("a late answer", |s| *s != SourceState::Ok);
    assert!(matches!(&state, SourceState::Degraded(why) if why.contains("saturated")), "{state:?}");
    late.store(false, Ordering::SeqCst);
    session.wait_for_state("recovery", |s| *s == SourceState::Ok);
}

/// Fault: engine: it is started again between two scrapes, as another version
/// Seen: the new version; one reset, and no rate or latency that spans it
/// Works: everything from the first answer of the new process on
/// Recovers: at once
#[test]
fn a_restart_is_noticed_and_asked_about() {
    let now = Arc::new(Mutex::new((BODY.to_owned(), "0.25.1")));
    let answers = Arc::clone(&now);
    let server = Server::start(move |path, stream| {
        let (metrics, version) = answers.lock().unwrap().clone();
        drop(stream.write_all(&vllm(path, &metrics, version)));
    });
    let session = Session::named(&server.url(), PATIENT);
    session.wait("the old version", |data| fact(data, FactKey::Version).filter(|&v| v == "0.25.1").map(|_| ()));
    session.wait("a rate", |data| latest(data, Metric::GenerationTokens).value());
    let restarted = IDLE.replace("process_start_time_seconds 1.79596029994e+09", "process_start_time_seconds 1.8e+09");
    *now.lock().unwrap() = (restarted, "0.26.0");
    session.wait("the new version", |data| fact(data, FactKey::Version).filter(|&v| v == "0.26.0").map(|_| ()));
    let data = session.store.read();
    assert_eq!(data.resets(Window::last(data.newest(), 3_600_000)).count(), 1);
    let mut window = HistogramWindow::default();
    data.histogram_window(ENGINE, Metric::Ttft, Window::last(data.newest(), 3_600_000), &mut window);
    assert_eq!(window.n, 0, "lifetime counts are never taken for news");
}

/// What TTFT and generated tokens an hour's window holds, and how often totals did not continue.
fn growth(data: &Data) -> (u64, Option<f64>, usize) {
    let hour = Window::last(data.newest(), 3_600_000);
    let mut window = HistogramWindow::default();
    data.histogram_window(ENGINE, Metric::Ttft, hour, &mut window);
    let rate = data.mean(ENGINE, Metric::GenerationTokens, hour).value();
    (window.n, rate, data.resets(hour).count())
}

/// Serves `before` until a rate is known, then `after` until `seen`; the growth of the whole time.
fn growth_over(before: &str, after: String, seen: impl Fn(&Data) -> bool) -> (u64, Option<f64>, usize) {
    let now = Arc::new(Mutex::new(before.to_owned()));
    let answers = Arc::clone(&now);
    let server = Server::start(move |path, stream| {
        let metrics = answers.lock().unwrap().clone();
        drop(stream.write_all(&vllm(path, &metrics, "1")));
    });
    let session = Session::named(&server.url(), PATIENT);
    session.wait("a rate", |data| latest(data, Metric::GenerationTokens).value());
    *now.lock().unwrap() = after;
    session.wait("the other answer", |data| seen(data).then_some(()));
    session.wait("a rate again", |data| latest(data, Metric::GenerationTokens).value());
    let data = session.store.read();
    growth(&data)
}

/// Fault: engine: a replica joins or leaves, with the counts of its whole life
/// Seen: the requests of those that are there; a reset instead of a jump
/// Works: everything else
/// Recovers: with the next scrape
#[test]
fn a_replica_that_joins_or_leaves_brings_no_lifetime_with_it() {
    let replica: String =
        BODY.lines().filter(|line| line.starts_with("vllm:")).fold(String::new(), |text, line| text + line + "\n");
    let two = BODY.to_owned() + &replica.replace("engine=\"0\"", "engine=\"1\"");
    let running = |n| move |data: &Data| latest(data, Metric::RequestsRunning) == Reading::Value(n);
    assert_eq!(growth_over(BODY, two.clone(), running(218.0)), (0, Some(0.0), 1));
    assert_eq!(growth_over(&two, BODY.to_owned(), running(109.0)), (0, Some(0.0), 1));
}

#[test]
fn a_process_that_was_replaced_between_two_scrapes_is_another_one_however_much_it_has_done() {
    let start = "process_start_time_seconds 1.79596029994e+09";
    let busy = BODY.replace(start, "process_start_time_seconds 1.8e+09").replace(" 551103.0", " 951103.0");
    assert!(busy != BODY.replace(start, "process_start_time_seconds 1.8e+09"), "the counter is in the body");
    let started = |data: &Data| latest(data, Metric::EngineStart) == Reading::Value(1.8e9);
    assert_eq!(growth_over(BODY, busy, started), (0, Some(0.0), 1));
}

/// Fault: engine: another kind of engine answers at the same place
/// Seen: its own kind (`llama.cpp`)
/// Works: everything it exposes; nothing of the one before goes on
/// Recovers: at once
#[test]
fn another_engine_at_the_same_place_is_recognised_anew() {
    let llama = include_str!("../assets/metrics/llama.cpp-b11549.prom");
    let kind = |data: &Data| fact(data, FactKey::Kind) == Some("llama.cpp");
    let (n, rate, _) = growth_over(BODY, llama.to_owned(), kind);
    assert_eq!((n, rate), (0, Some(0.0)));
}

#[test]
fn histograms_are_whole_when_levels_are_read_more_often() {
    let asked = std::sync::atomic::AtomicU32::new(1);
    let server = Server::start(move |path, stream| {
        let n = asked.fetch_add(1, Ordering::SeqCst);
        let body = format!(
            "vllm:num_requests_running{{engine=\"0\"}} 1\nvllm:time_to_first_token_seconds_bucket{{le=\"1.0\"}} {n}\n\
             vllm:time_to_first_token_seconds_bucket{{le=\"+Inf\"}} {n}\nvllm:time_to_first_token_seconds_sum {n}\n"
        );
        drop(stream.write_all(&vllm(path, &body, "1")));
    });
    let session = Session::named(&server.url(), PATIENT);
    let window = session.wait("two full scrapes", |data| {
        let mut window = HistogramWindow::default();
        data.histogram_window(ENGINE, Metric::Ttft, Window::last(data.newest(), 3_600_000), &mut window);
        (window.n > 0).then_some(window)
    });
    assert!(!window.gaps && window.n > 2, "every answer counts one more: {window:?}");
}

/// Fault: engine: it goes and comes back
/// Seen: its row says `connection refused`; its values are missing, not 0
/// Works: everything else
/// Recovers: within five seconds, as it is tried at least as often
#[test]
fn an_engine_that_goes_and_comes_back_leaves_a_gap() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let session = Session::named(&address.to_string(), PATIENT);
    let refused = |s: &SourceState| matches!(s, SourceState::Failed(why) if why.contains("connection refused"));
    session.wait_for_state("refusal", refused);
    let serve = || {
        // The port may linger for a moment after the server before.
        let deadline = Instant::now() + Duration::from_mins(1);
        let listener = loop {
            match TcpListener::bind(address) {
                Ok(listener) => break listener,
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        Server::listen(listener, |path, stream| drop(stream.write_all(&vllm(path, BODY, "1"))))
    };
    let server = serve();
    session.wait_for_state("the first start", |s| *s == SourceState::Ok);
    session.wait("a value", |data| latest(data, Metric::RequestsRunning).value());
    drop(server);
    session.wait_for_state("refusal again", refused);
    session
        .wait("a gap", |data| (latest(data, Metric::RequestsRunning) == Reading::Missing(Why::Failed)).then_some(()));
    let _server = serve();
    session.wait("a value again", |data| latest(data, Metric::RequestsRunning).value());
}

/// Fault: engine: what was given is no URL
/// Seen: its row says `--engine http://HOST:PORT`, without the password in it
/// Works: the other engine
/// Recovers: when it is started with a URL
#[test]
fn what_is_no_url_has_its_words_and_stops_no_other() {
    let server = Server::start(|path, stream| drop(stream.write_all(&vllm(path, BODY, "1"))));
    let session = Session::start(&["http://ann:hunter2@a b:x", &server.url(), &server.url()], false, PATIENT);
    let state = session.wait_for_state("the words", |_| true);
    assert!(matches!(&state, SourceState::Failed(why) if why.contains("--engine http://HOST:PORT")), "{state:?}");
    session.wait("the other engine", |data| {
        let at = data.newest();
        data.latest(Subject::Engine(1), Metric::RequestsRunning, at).reading.value()
    });
    let data = session.store.read();
    assert_eq!(data.engines().collect::<Vec<_>>(), [0, 1], "one place, one entry");
    assert_eq!(fact(&data, FactKey::Url), Some("a b:x"));
    assert!(!state.why().contains("hunter2"));
}

/// Fault: engine: 70 engines named at once, all at one host and port under paths of their own
/// Seen: the search says `70 engines are named, and at most 64 are watched: the last 6 are left out`
/// Works: the first 64, each under a name of its own
/// Recovers: with fewer of them, or another warptop
#[test]
fn sixty_four_engines_at_one_port_have_names_of_their_own_and_more_are_counted() {
    let server = Server::start(|path, stream| {
        let (model, rest) = path.trim_start_matches('/').split_once('/').unwrap_or_default();
        let body = BODY.replace("dummy-8b", model);
        drop(stream.write_all(&vllm(&format!("/{rest}"), &body, "1")));
    });
    let urls: Vec<_> = (0..70).map(|i| format!("http://{}/m{i}", server.url())).collect();
    // A name that comes twice is one engine, and takes no place from another.
    let all: Vec<_> = urls.iter().chain(&urls[..3]).map(String::as_str).collect();
    let timing = Timing { period: Duration::from_millis(500), ..PATIENT };
    let session = Session::start(&all, false, timing);
    let read = |data: &Data, i| {
        let model = data.fact(Subject::Engine(i), FactKey::Model, data.newest())?;
        (model == format!("m{i}")).then_some(())
    };
    session.wait("all of them", |data| (0..64).try_for_each(|i| read(data, i)));
    let data = session.store.read();
    let names: Vec<_> = (0..64).filter_map(|i| data.fact(Subject::Engine(i), FactKey::Name, data.newest())).collect();
    let expected: Vec<_> = (0..64).map(|i| format!("vLLM :{}/m{i}", server.port)).collect();
    assert_eq!((names, data.engines().count()), (expected.iter().map(String::as_str).collect(), 64));
    let search = data.source(SourceId::Discovery).map_or("", |source| source.state_at(data.newest()).why());
    let words = "70 engines are named, and at most 64 are watched: the last 6 are left out";
    assert!(search.starts_with(words), "{search}");
}

/// Not a test: the process that the next one looks for, which runs it under the name of `vllm serve`.
#[test]
#[ignore = "is started by the test below"]
fn vllm_stand_in() {
    let server = Server::start(|path, stream| drop(stream.write_all(&vllm(path, BODY, "9.9.9"))));
    println!("port {}", server.port);
    // Serves until the test closes the pipe.
    drop(std::io::stdin().read_to_end(&mut Vec::new()));
}

#[test]
fn an_engine_on_this_host_is_found() {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .arg0("vllm")
        .args(["serve", "vllm_stand_in", "--exact", "--ignored", "--nocapture"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let port = lines.find_map(|line| line.rsplit_once("port ")?.1.parse::<u16>().ok()).unwrap();
    let url = format!("http://127.0.0.1:{port}");
    let session = Session::start(&[], true, PATIENT);
    let engine = session.wait("the engine", |data| {
        data.engines().find(|&i| data.fact(Subject::Engine(i), FactKey::Url, data.newest()) == Some(url.as_str()))
    });
    session.wait("its version", |data| {
        data.fact(Subject::Engine(engine), FactKey::Version, data.newest()).filter(|&v| v == "9.9.9").map(|_| ())
    });
    session.wait("the search to be content", |data| {
        let search = data.source(SourceId::Discovery)?;
        (*search.state_at(data.newest()) == SourceState::Ok).then_some(())
    });
    let places = session.store.read().engines().count();
    let last_search = |data: &Data| data.source(SourceId::Discovery)?.last_read(data.newest());
    let before = last_search(&session.store.read());
    session.wait("another search", |data| last_search(data).filter(|at| Some(*at) > before));
    assert_eq!(session.store.read().engines().count(), places, "found once");
    drop(child.stdin.take());
    child.wait().unwrap();
    // Until here the child must be able to write.
    drop(lines);
}
