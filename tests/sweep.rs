//! The load sweep from the command line, with a real child on a scripted engine: what is refused before anything is sent,
//! what a stopped sweep leaves, that no process stays, and that the key goes to the engine and nowhere else.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod support;

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::Ordering;
use std::time::Duration;

use support::oai::{Engine, Lie, Manners};
use support::{BODY, until};
use tempfile::TempDir;
use warptop::load::level::State;
use warptop::probe::report::{Ending, Report};

const SECRET: &str = "hunter2-and-more";
/// Metrics of an engine that does nothing just now.
const IDLE: &str = "# TYPE vllm:num_requests_running gauge\n\
                    vllm:num_requests_running{engine=\"0\",model_name=\"m\"} 0.0\n\
                    # TYPE vllm:num_requests_waiting gauge\n\
                    vllm:num_requests_waiting{engine=\"0\",model_name=\"m\"} 0.0\n";
/// Two small levels.
const SMALL: [&str; 10] = ["--levels", "1,2", "--requests", "4", "--prompt", "8", "--output", "4", "--seed", "7"];
/// Levels that last until they are stopped.
const LONG: [&str; 10] =
    ["--levels", "1,2", "--seconds", "600", "--most-seconds", "600", "--warmup", "0", "--output", "4"];

struct Said {
    code: i32,
    stdout: String,
    stderr: String,
}

impl From<Output> for Said {
    fn from(Output { status, stdout, stderr }: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Self { code: status.code().unwrap_or(-1), stdout: text(stdout), stderr: text(stderr) }
    }
}

impl Said {
    fn report(&self) -> Report {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {}\n{}", self.stdout, self.stderr))
    }
}

/// A state directory of its own for each test.
struct Home(TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_warptop"));
        command.args(["probe", "sweep", "--yes", "--json", "--no-discover", "--engine-interval", "200ms"]).args(args);
        command.env("XDG_STATE_HOME", self.0.path()).env_remove("WARPTOP_ENGINE_TOKEN");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn say(&self, args: &[&str]) -> Said {
        self.command(args).output().unwrap().into()
    }

    fn on(&self, engine: &Engine, args: &[&str]) -> Said {
        self.say(&[&["--engine", &engine.url()], args].concat())
    }

    fn start(&self, engine: &Engine, args: &[&str], key: &str) -> Child {
        let url = engine.url();
        let args = [&["--engine", &url], args].concat();
        self.command(&args).env("WARPTOP_ENGINE_TOKEN", key).spawn().unwrap()
    }

    fn folder(&self) -> PathBuf {
        self.0.path().join("warptop/probes")
    }
}

fn idle() -> Engine {
    Engine::start(Manners { metrics: Some(IDLE), ..Manners::default() })
}

/// An engine whose answers take 0.2 s.
fn slow(key: Option<&'static str>) -> Engine {
    Engine::start(Manners { metrics: Some(IDLE), pause: Duration::from_millis(50), key, lie: None })
}

/// The parent of a process, unless it has ended.
fn parent_of(pid: u32) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = text.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?;
    if state == "Z" || state == "X" { None } else { fields.next()?.parse().ok() }
}

fn child_of(parent: &Child) -> u32 {
    let pids = || fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    until("a child", || pids().find(|&pid| parent_of(pid) == Some(parent.id())))
}

fn interrupt(child: &Child) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
}

#[test]
fn a_sweep_of_small_levels_is_measured_and_kept() {
    let (home, engine) = (Home::new(), idle());
    let said = home.on(&engine, &SMALL);
    let report = said.report();
    assert_eq!((said.code, report.ending), (0, Ending::Done), "{} {:?}", said.stderr, report.why);
    assert_eq!(report.target.endpoint, Some(engine.url()));
    let counts: Vec<_> = report.levels.iter().map(|level| (level.state, level.requests.ok)).collect();
    assert_eq!(counts, [(State::Done, 4), (State::Done, 4)], "{:?}", report.levels);
    assert!(engine.streams() >= 8);
    assert_eq!(report.environment.facts["seed"], "7");
    assert_eq!((report.duty_pct, report.environment.company.as_str()), (100, ""));
    assert!(report.levels.iter().all(|level| level.server.is_some()), "the engine is read meanwhile");
    assert!(!report.verdict.summary.contains("reference"), "{}", report.verdict.summary);
    assert!(!home.folder().join("baseline").exists(), "a sweep is none");
}

#[test]
fn a_second_sweep_of_the_same_is_a_measurement_of_its_own() {
    let (home, engine) = (Home::new(), idle());
    let (first, second) = (home.on(&engine, &SMALL), home.on(&engine, &SMALL));
    assert_eq!((first.code, second.code), (0, 0), "{}", second.stderr);
    assert_ne!(first.report().run, second.report().run);
    assert!(engine.streams() >= 16, "{}", engine.streams());
    let compare = |runs: &[&str]| -> Said {
        let mut command = Command::new(env!("CARGO_BIN_EXE_warptop"));
        command.args(["probe", "compare"]).args(runs).env("XDG_STATE_HOME", home.0.path()).output().unwrap().into()
    };
    let alone = compare(&["last:sweep"]);
    assert!(alone.code == 1 && alone.stderr.contains("a sweep has no baseline: name two runs"), "{}", alone.stderr);
    assert_eq!(compare(&[&first.report().run, "last:sweep"]).code, 0);
}

/// Fault: probe: the same sweep is started in two processes
/// Seen: the second is refused: process … `runs sweep on` that endpoint
/// Works: the first one
/// Recovers: once the first has ended
#[test]
fn a_sweep_beside_the_same_one_in_another_process_is_refused() {
    let (home, engine) = (Home::new(), slow(None));
    let mut first = home.start(&engine, &LONG, "");
    until("the first sweep", || (engine.streams() > 2).then_some(()));
    let url = engine.url();
    let args = [&["--engine", &url, "--force"], LONG.as_slice()].concat();
    let second: Said = home.command(&args).output().unwrap().into();
    interrupt(&first);
    first.wait().unwrap();
    assert_eq!(second.code, 4, "{}", second.stderr);
    assert!(second.stderr.contains(&format!("(process {}) runs sweep on {url}", first.id())), "{}", second.stderr);
}

/// Fault: engine: the one that is loaded has no metrics
/// Seen: a note that what the server did `is not told`
/// Works: all that the client measures
/// Recovers: with an engine that has some
#[test]
fn an_engine_without_metrics_can_be_loaded() {
    let (home, engine) = (Home::new(), Engine::start(Manners::default()));
    let said = home.on(&engine, &SMALL);
    let report = said.report();
    assert_eq!((said.code, report.levels.len()), (0, 2), "{} {:?}", said.stderr, report.why);
    assert!(report.notes.iter().any(|note| note.contains("is not told")), "{:?}", report.notes);
}

/// Fault: probe: the endpoint is on another host, wants a key, is one of several, or nothing is there
/// Seen: a refusal before anything is sent: `may be on another host`, `needs a key (HTTP 401)`, `several engines`, `nothing listens there`
/// Works: everything else; no report is left
/// Recovers: with `--remote`, a key, one `--engine`, or the server
#[test]
fn what_must_not_be_loaded_is_refused_before_anything_is_sent() {
    let home = Home::new();
    let (engine, second) = (idle(), idle());
    let (url, other) = (engine.url(), second.url());
    let locked = Engine::start(Manners { key: Some(SECRET), metrics: Some(IDLE), ..Manners::default() });
    let locked_url = locked.url();
    let nobody = { support::Server::raw("").url() };
    let cases: [(&[&str], &[&str]); 5] = [
        (&["--engine", "http://warptop.invalid:8000"], &["may be on another host", "--remote"]),
        (&[], &["no serving engine is known", "--engine http://"]),
        (&["--engine", &url, "--engine", &other], &["several engines", &url, &other, "one --engine"]),
        (&["--engine", &locked_url], &["needs a key (HTTP 401)", "WARPTOP_ENGINE_TOKEN"]),
        (&["--engine", &nobody], &["nothing listens there"]),
    ];
    for (args, words) in cases {
        let said = home.say(args);
        assert_eq!(said.code, 4, "{args:?}: {}", said.stderr);
        for word in words {
            assert!(said.stderr.contains(word), "{args:?}: no '{word}' in {}", said.stderr);
        }
        assert_eq!(said.report().ending, Ending::Refused);
    }
    assert_eq!((engine.streams(), second.streams(), locked.streams()), (0, 0, 0));
    assert!(!home.folder().join("reports").exists(), "a refusal leaves no report");
}

/// Fault: probe: others use the engine that is to be loaded
/// Seen: `requests of others run there`
/// Works: their requests
/// Recovers: with `--force`, which the report names, or once they are gone
#[test]
fn an_engine_that_others_use_is_loaded_by_force_only_and_the_report_says_so() {
    let (home, engine) = (Home::new(), Engine::start(Manners { metrics: Some(BODY), ..Manners::default() }));
    let said = home.on(&engine, &SMALL);
    assert_eq!((said.code, engine.streams()), (4, 0), "{}", said.stderr);
    assert!(
        said.stderr.contains("requests of others run there") && said.stderr.contains("(--force)"),
        "{}",
        said.stderr
    );
    let said = home.on(&engine, &[&SMALL[..], &["--force"]].concat());
    let report = said.report();
    assert_eq!((said.code, report.forced, report.duty_pct), (0, true, 100), "{} {:?}", said.stderr, report.why);
    assert!(report.environment.company.contains("requests of others"), "{:?}", report.environment.company);
}

#[test]
fn options_that_mean_nothing_to_it_are_not_there_and_texts_are_held_to_their_form() {
    let home = Home::new();
    for (args, words) in [
        (&["--gpu", "0"][..], "--gpu"),
        (&["--duty", "10"], "--duty"),
        (&["--levels", "1,x"], "--levels: \"x\" is no number of users"),
        (&["--levels", "1.5"], "\"1.5\" is no number of users"),
        (&["--levels", "1-8", "--load", "constant"], "\"1-8\" is no rate"),
        (&["--tokens", "1000"], "less than one level takes"),
        (&["--minutes", "0.1"], "less than the 23 s"),
        (&["--load", "trace"], "--trace FILE"),
        (&["--load", "trace", "--trace", "/no/such/trace"], "/no/such/trace"),
        (&["--prompt", "@/no/such/lengths"], "/no/such/lengths"),
        (
            &["--engine", "http://ann:secret@127.0.0.1:8000/v1/"],
            "leave /v1 out, it is added: --engine http://127.0.0.1:8000",
        ),
        (&["--slo", "ttft"], "gives no SLO"),
        (&["--minutes", "1000"], "0.1 to 240"),
    ] {
        let said = home.say(args);
        assert_eq!((said.code, said.stdout.as_str()), (2, ""), "{args:?}: {}", said.stderr);
        assert!(said.stderr.contains(words), "{args:?}: {}", said.stderr);
    }
}

#[test]
fn the_cost_is_stated_with_budgets_before_the_question() {
    use portable_pty::{CommandBuilder, PtySize, native_pty_system};
    use std::io::{Read as _, Write as _};
    let (home, engine) = (Home::new(), idle());
    let pair = native_pty_system().openpty(PtySize { rows: 24, cols: 250, pixel_width: 0, pixel_height: 0 }).unwrap();
    let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_warptop"));
    command.args(["probe", "sweep", "--no-discover", "--engine", &engine.url()]);
    command.env("XDG_STATE_HOME", home.0.path());
    let mut child = pair.slave.spawn_command(command).unwrap();
    drop(pair.slave);
    let (mut reader, mut writer) = (pair.master.try_clone_reader().unwrap(), pair.master.take_writer().unwrap());
    writer.write_all(b"n\n").unwrap();
    let reading = std::thread::spawn(move || {
        let mut out = Vec::new();
        // The end of a terminal is an error.
        drop(reader.read_to_end(&mut out));
        String::from_utf8_lossy(&out).into_owned()
    });
    let code = child.wait().unwrap().exit_code();
    drop((writer, pair.master));
    let screen = reading.join().unwrap();
    let words = format!(
        "load sweep on {}: takes at most 20.0 min, at least 504 requests, at most 2,000,000 tokens",
        engine.url()
    );
    assert!(screen.contains(&words) && screen.contains("It disturbs whoever else uses that server"), "{screen}");
    assert_eq!((code, engine.streams()), (4, 0), "{screen}");
}

/// Fault: probe: Ctrl-C during a sweep
/// Seen: exit code 130 and a report whose last level was stopped
/// Works: what was measured is kept; the client is gone
/// Recovers: with the next sweep
#[test]
fn a_sweep_that_is_interrupted_keeps_its_levels() {
    let (home, engine) = (Home::new(), slow(None));
    let parent = home.start(&engine, &LONG, "");
    let pid = child_of(&parent);
    until("a few streams", || (engine.streams() > 8).then_some(()));
    std::thread::sleep(Duration::from_secs(2));
    interrupt(&parent);
    let said: Said = parent.wait_with_output().unwrap().into();
    let report = said.report();
    assert_eq!((said.code, report.ending), (130, Ending::Stopped), "{}", said.stderr);
    let level = report.levels.last().unwrap_or_else(|| panic!("no level: {report:?}"));
    assert_eq!(level.state, State::Stopped);
    assert!(level.requests.ok > 0, "{level:?}");
    assert_eq!(parent_of(pid), None, "its client is gone");
    assert_eq!(fs::read_dir(home.folder().join("reports")).unwrap().count(), 2, "report and page");
}

/// Fault: probe: warptop is killed (SIGKILL) during a sweep
/// Seen: nothing: it is gone
/// Works: the server: the load and its connections go too
/// Recovers: with the next sweep
#[test]
fn a_parent_that_is_killed_takes_the_load_with_it() {
    let (home, engine) = (Home::new(), slow(None));
    let mut parent = home.start(&engine, &LONG, "");
    let pid = child_of(&parent);
    until("a stream", || (engine.streams() > 0).then_some(()));
    parent.kill().unwrap();
    parent.wait().unwrap();
    until("the end of the client", || parent_of(pid).is_none().then_some(()));
    until("the end of its connections", || (engine.open.load(Ordering::SeqCst) == 0).then_some(()));
}

#[test]
fn the_key_reaches_the_engine_and_nothing_else() {
    let (home, engine) = (Home::new(), slow(Some(SECRET)));
    let parent = home.start(&engine, &LONG, SECRET);
    let pid = child_of(&parent);
    until("a stream", || (engine.streams() > 0).then_some(()));
    let of_child = |what: &str| fs::read(format!("/proc/{pid}/{what}")).unwrap();
    let (arguments, environment) = (of_child("cmdline"), of_child("environ"));
    assert!(String::from_utf8_lossy(&arguments).contains("__probe-child"));
    assert!(!environment.is_empty());
    let holder = fs::read(home.folder().join("holder.json")).unwrap();
    interrupt(&parent);
    let said = parent.wait_with_output().unwrap();
    let mut texts = vec![
        ("arguments", arguments),
        ("environment", environment),
        ("lock", holder),
        ("standard output", said.stdout),
        ("standard error", said.stderr),
    ];
    for entry in fs::read_dir(home.folder().join("reports")).unwrap() {
        texts.push(("report or page", fs::read(entry.unwrap().path()).unwrap()));
    }
    assert_eq!(texts.len(), 7);
    for (what, text) in texts {
        assert!(!String::from_utf8_lossy(&text).contains("hunter2"), "{what}: {}", String::from_utf8_lossy(&text));
    }
    let heads = engine.heads.lock().unwrap();
    let posts: Vec<_> = heads.iter().filter(|head| head.starts_with("POST")).collect();
    assert!(!posts.is_empty() && posts.iter().all(|head| head.contains(SECRET)), "{posts:?}");
}

/// Fault: probe: the server reports a usage of 0, and the budget of tokens is never used up
/// Seen: `the budget of 4000 tokens was used up` in the report
/// Works: what was measured until then is kept
/// Recovers: with the next sweep
#[test]
fn a_server_that_says_that_it_used_nothing_is_held_to_the_budget() {
    let (home, lie) = (Home::new(), Some((1, Lie::Usage("0", "0"))));
    let pause = Duration::from_millis(2);
    let engine = Engine::start(Manners { metrics: Some(IDLE), lie, pause, ..Manners::default() });
    let levels = ["--levels", "1,2,4", "--prompt", "64", "--output", "16", "--samples", "5", "--tokens", "4000"];
    let times = ["--seconds", "20", "--most-seconds", "20", "--warmup", "0"];
    let said = home.on(&engine, &[&levels[..], &times].concat());
    let report = said.report();
    assert_eq!(said.code, 0, "{} {:?}", said.stderr, report.why);
    let words = "the budget of 4000 tokens was used up";
    assert!(report.notes.iter().any(|note| note.contains(words)), "{:?}", report.notes);
    assert!(report.ended_early.as_deref().is_some_and(|why| why.starts_with(words)), "{:?}", report.ended_early);
    assert!((3_000..=4_000).contains(&engine.tokens()), "{}", engine.tokens());
}
