//! Probes from the command line, with a probe that misbehaves on request: exit codes and words, reports,
//! and that no process is left whatever is killed.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use support::until;
use tempfile::TempDir;
use warptop::probe::report::Report;

/// A state directory of its own for each test, so that they can run at once.
struct Home(TempDir);

struct Said {
    code: i32,
    stdout: String,
    stderr: String,
}

impl Said {
    fn report(&self) -> Report {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {}\n{}", self.stdout, self.stderr))
    }
}

impl From<Output> for Said {
    fn from(Output { status, stdout, stderr }: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Self { code: status.code().unwrap_or(-1), stdout: text(stdout), stderr: text(stderr) }
    }
}

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_warptop"));
        command.arg("probe").args(args).env("XDG_STATE_HOME", self.0.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn say(&self, args: &[&str]) -> Said {
        self.command(args).output().unwrap().into()
    }

    /// Arguments of the fake probe.
    fn fake<'a>(mode: &'a str, more: &[&'a str]) -> Vec<&'a str> {
        [&["fake", "--yes", "--json", "--no-discover", "--mode", mode], more].concat()
    }

    fn run(&self, mode: &str, more: &[&str]) -> Said {
        self.say(&Self::fake(mode, more))
    }

    fn start(&self, mode: &str, more: &[&str]) -> Child {
        self.command(&Self::fake(mode, more)).spawn().unwrap()
    }

    /// Makes a run one of a minute ago: its cool-down is over.
    fn age(&self, run: &str) {
        let path = self.folder().join(format!("reports/{run}.json"));
        let mut report: Report = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        report.ended_unix_ms -= 60_000;
        fs::write(&path, serde_json::to_vec(&report).unwrap()).unwrap();
    }

    fn folder(&self) -> PathBuf {
        self.0.path().join("warptop/probes")
    }

    /// Names of the files in `reports`.
    fn reports(&self) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(self.folder().join("reports"))
            .into_iter()
            .flatten()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

/// Field `place` of a process' stat, counted from the state as 0; `None` when it is gone.
fn stat(pid: u32, place: usize) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    text.rsplit_once(") ")?.1.split(' ').nth(place).map(ToOwned::to_owned)
}

/// Processes for which `wanted` holds, those that have ended but were not reaped left out.
fn processes(wanted: impl Fn(u32) -> bool) -> Vec<u32> {
    let pids = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|&pid| stat(pid, 0).is_some_and(|state| state != "Z" && state != "X") && wanted(pid)).collect()
}

fn children(parent: u32) -> Vec<u32> {
    processes(|pid| stat(pid, 1) == Some(parent.to_string()))
}

fn group(leader: u32) -> Vec<u32> {
    processes(|pid| stat(pid, 2) == Some(leader.to_string()))
}

/// The probe's process of a parent that was started, once it measures.
fn child_of(parent: &Child) -> u32 {
    until("a child", || children(parent.id()).first().copied())
}

fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

fn end(child: Child) -> Said {
    child.wait_with_output().unwrap().into()
}

/// Fault: probe: its process panics, crashes, exits, floods, or writes what is no message
/// Seen: which of them: `without a result (killed by signal 6)`, `more than 2000 lines in a second`, `what is no message`
/// Works: warptop; a report says how the run ended
/// Recovers: with the next run
#[test]
fn every_way_to_misbehave_has_its_code_and_its_words() {
    for (mode, code, ending, words) in [
        ("good", 0, "done", ""),
        ("wrong", 3, "done", "the computation was wrong: one and one"),
        ("missing", 4, "refused", "libcuda.so.1 is not here: install the GPU driver"),
        ("panic", 1, "failed", "the probe broke off: Unable to dynamically load"),
        ("flood", 1, "failed", "more than 2000 lines in a second"),
        ("garbage", 1, "failed", "what is no message: 'Segmentation fault (core dumped)'"),
        ("line", 1, "failed", "a line of more than 256 KiB"),
        ("stranger", 1, "failed", "of another version or run"),
        ("exit", 1, "failed", "without a result (exit code 7: CUDA error: the GPU has fallen off the bus)"),
        ("crash", 1, "failed", "without a result (killed by signal 6)"),
        ("prints", 0, "done", ""),
    ] {
        let home = Home::new();
        let said = home.run(mode, &[]);
        let report = said.report();
        assert_eq!(said.code, code, "{mode}: {}", said.stderr);
        let told = format!("{}{}", report.why.clone().unwrap_or_default(), report.verdict.summary);
        assert!(told.contains(words), "{mode}: no '{words}' in '{told}'");
        assert_eq!(serde_json::to_value(report.ending).unwrap(), ending, "{mode}");
        assert_eq!(report.why.is_none(), ending == "done", "{mode}");
        let names = [format!("{}.json", report.run), format!("{}.md", report.run)];
        assert_eq!(home.reports(), names, "{mode}: one report, and nothing else");
    }
}

#[test]
fn levels_are_in_the_report_and_stay_there_when_the_run_is_stopped() {
    use warptop::load::level::State;
    let home = Home::new();
    // A pass each 20 ms, five to a level.
    let report = home.run("levels", &["--seconds", "0.28"]).report();
    assert_eq!(report.levels.iter().map(|level| level.place).collect::<Vec<_>>(), [0, 1, 2]);
    let parent = home.start("levels", &["--seconds", "600"]);
    child_of(&parent);
    std::thread::sleep(Duration::from_secs(1));
    signal(parent.id(), rustix::process::Signal::INT);
    let said = end(parent);
    let report = said.report();
    assert_eq!((said.code, report.ending), (130, warptop::probe::report::Ending::Stopped), "{}", said.stderr);
    assert!(report.levels.last().is_some_and(|level| level.state == State::Stopped), "{:?}", report.levels);
}

/// Fault: probe: its process hangs in the driver, or does not hear that it shall stop
/// Seen: `by the user`
/// Works: Ctrl-C: the process group is killed
/// Recovers: with the next run
#[test]
fn an_interrupt_stops_even_what_hangs_and_nothing_is_left() {
    for mode in ["hang", "deaf", "good"] {
        let home = Home::new();
        let parent = home.start(mode, &["--seconds", if mode == "good" { "600" } else { "0" }]);
        let child = child_of(&parent);
        std::thread::sleep(Duration::from_millis(200));
        signal(parent.id(), rustix::process::Signal::INT);
        let said = end(parent);
        assert_eq!((said.code, said.report().why.as_deref()), (130, Some("by the user")), "{mode}: {}", said.stderr);
        assert_eq!(group(child), [0; 0], "{mode}");
    }
}

/// Fault: probe: warptop is killed (SIGKILL) while a probe runs
/// Seen: nothing: it is gone
/// Works: the GPU: the probe goes with it, and its lock
/// Recovers: with the next run
#[test]
fn a_parent_that_is_killed_takes_the_probe_with_it() {
    // The last one holds its input open itself: only the system's signal reaches it.
    for mode in ["good", "hang", "deaf", "numb"] {
        let home = Home::new();
        let mut parent = home.start(mode, &["--seconds", if mode == "good" { "600" } else { "0" }]);
        let child = child_of(&parent);
        std::thread::sleep(Duration::from_millis(200));
        parent.kill().unwrap();
        parent.wait().unwrap();
        until("the end of the child", || group(child).is_empty().then_some(()));
        // Its lock went with it: the next run is not kept waiting.
        assert_eq!(home.run("good", &[]).code, 0, "{mode}");
    }
}

/// Fault: probe: its process is killed, as by the OOM killer
/// Seen: `killed by signal 9`
/// Works: what was measured until then is in the report
/// Recovers: with the next run
#[test]
fn a_probe_that_is_killed_is_a_failed_run_with_its_measurements() {
    let home = Home::new();
    let parent = home.start("good", &["--seconds", "600"]);
    let child = child_of(&parent);
    std::thread::sleep(Duration::from_millis(500));
    signal(child, rustix::process::Signal::KILL);
    let said = end(parent);
    let report = said.report();
    assert_eq!(said.code, 1, "{}", said.stderr);
    assert!(report.why.unwrap().contains("killed by signal 9"), "{}", said.stderr);
    assert!(!report.samples.is_empty(), "what was measured until then is kept");
    assert_eq!(home.reports().len(), 2);
    assert_eq!(group(child), [0; 0]);
}

/// Fault: probe: its process leaves processes of its own behind
/// Seen: nothing
/// Works: they are killed with its group
/// Recovers: with the end of the run
#[test]
fn processes_that_a_probe_started_go_with_it() {
    let home = Home::new();
    let said = home.run("family", &[]);
    assert_eq!(said.code, 0, "{}", said.stderr);
    let left = processes(|pid| {
        fs::read(format!("/proc/{pid}/environ")).is_ok_and(|text| {
            let mine = home.0.path().to_str().unwrap().as_bytes();
            text.windows(mine.len()).any(|part| part == mine)
        })
    });
    assert_eq!(left, [0; 0], "a process with this test's state directory is left");
}

#[test]
fn the_same_in_two_processes_is_one_run() {
    let home = Home::new();
    // All at once, and one that comes later.
    let mut all: Vec<_> = (0..3).map(|_| home.start("good", &["--seconds", "5"])).collect();
    until("a run", || home.folder().join("holder.json").exists().then_some(()));
    all.push(home.start("good", &["--seconds", "5"]));
    let said: Vec<_> = all.into_iter().map(end).collect();
    let words: Vec<_> = said.iter().map(|said| said.stderr.as_str()).collect();
    assert!(said.iter().all(|said| said.code == 0), "{words:?}");
    let runs: BTreeSet<_> = said.iter().map(|said| said.report().run).collect();
    assert_eq!(runs.len(), 1, "{words:?}");
    assert_eq!(words.iter().filter(|words| words.contains("this is run")).count(), 3, "{words:?}");
    assert_eq!(home.reports().len(), 2, "one report and its page");
}

#[test]
fn another_duty_cycle_is_another_run_and_the_report_states_it() {
    let home = Home::new();
    let duty = |pct| home.run("good", &["--seconds", "0.2", "--duty", pct]);
    // The second comes within the cool-down of the first.
    let (easy, other) = (duty("50"), duty("40"));
    assert_eq!([easy.report().duty_pct, other.report().duty_pct], [50, 40], "{}{}", easy.stderr, other.stderr);
    // Nothing was measured that a later run could be held against.
    assert!(home.say(&["compare", "last:fake"]).stderr.contains("no baseline"));
    let first = home.start("good", &["--seconds", "600", "--duty", "50"]);
    child_of(&first);
    let other = home.run("good", &["--seconds", "600", "--duty", "40"]);
    assert_eq!(other.code, 4, "{}", other.stderr);
    signal(first.id(), rustix::process::Signal::INT);
    assert_eq!(end(first).code, 130);
}

/// Fault: probe: another process measures already
/// Seen: a refusal that names it: `another warptop (process`
/// Works: the run that was there first
/// Recovers: once that has ended
#[test]
fn another_measurement_is_turned_away_while_one_runs() {
    let home = Home::new();
    let first = home.start("good", &["--seconds", "600"]);
    child_of(&first);
    let other = home.run("good", &["--seconds", "1"]);
    assert_eq!(other.code, 4, "{}", other.stderr);
    assert!(other.stderr.contains(&format!("another warptop (process {}) runs fake", first.id())), "{}", other.stderr);
    signal(first.id(), rustix::process::Signal::INT);
    assert_eq!(end(first).code, 130);
}

/// Fault: disk: full when a report is kept
/// Seen: `the report could not be kept in`
/// Works: the run, and its report on standard output
/// Recovers: with the next run; on the screen it is kept once there is room
#[test]
fn a_disk_that_is_full_loses_nothing() {
    let home = Home::new();
    // No file may grow: what a full disk is to whoever writes, for any user and on any file system.
    let script = "ulimit -f 0; exec \"$0\" probe fake --yes --json --no-discover";
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_warptop")]).env("XDG_STATE_HOME", home.0.path());
    let said: Said = command.stdin(Stdio::null()).output().unwrap().into();
    assert_eq!(said.code, 0, "{}", said.stderr);
    assert_eq!(said.report().results.len(), 1, "the result is shown");
    assert!(said.stderr.contains("the report could not be kept in"), "{}", said.stderr);
    assert_eq!(home.reports(), [""; 0], "not even half of it");
}

/// Fault: disk: a baseline cannot be kept
/// Seen: `no baseline could be kept in`, in the report's notes
/// Works: the run and its report
/// Recovers: with the next good run
#[test]
fn a_baseline_that_cannot_be_kept_costs_no_report() {
    let home = Home::new();
    fs::create_dir_all(home.folder()).unwrap();
    fs::write(home.folder().join("baseline"), "").unwrap();
    let said = home.run("good", &[]);
    let report = said.report();
    assert_eq!((said.code, home.reports().len()), (0, 2), "{}", said.stderr);
    assert!(said.stderr.contains("the report is in") && !said.stderr.contains("could not"), "{}", said.stderr);
    assert!(report.notes.iter().any(|note| note.contains("no baseline could be kept in")), "{:?}", report.notes);
    assert!(!report.verdict.summary.contains("baseline"), "{}", report.verdict.summary);
}

/// Fault: disk: neither HOME nor `XDG_STATE_HOME` says where to keep anything
/// Seen: `set HOME or XDG_STATE_HOME`
/// Works: the run, and its report on standard output
/// Recovers: with the variable
#[test]
fn without_a_place_for_reports_it_runs_and_says_so() {
    let home = Home::new();
    let mut command = home.command(&Home::fake("good", &[]));
    let said: Said = command.env_remove("XDG_STATE_HOME").env_remove("HOME").output().unwrap().into();
    assert_eq!(said.code, 0, "{}", said.stderr);
    assert_eq!(said.report().results.len(), 1);
    assert!(said.stderr.contains("set HOME or XDG_STATE_HOME"), "{}", said.stderr);
}

#[test]
fn without_a_terminal_it_wants_a_yes() {
    let home = Home::new();
    let said = home.say(&["fake", "--no-discover"]);
    assert_eq!((said.code, said.stdout.as_str()), (2, ""));
    assert!(said.stderr.contains("--yes"), "{}", said.stderr);
    assert!(!home.folder().exists());
}

#[test]
fn what_can_never_run_here_is_refused_before_the_question_and_once() {
    let home = Home::new();
    let said = home.say(&["hbm", "--no-discover"]);
    if said.stderr.contains("--yes") {
        return; // A machine with a GPU.
    }
    assert_eq!((said.code, said.stdout.as_str()), (4, ""), "{}", said.stderr);
    assert_eq!(said.stderr.matches("it needs a GPU: ").count(), 1, "{}", said.stderr);
    assert!(!said.stderr.contains("Run it?") && !said.stderr.contains("on the host"), "{}", said.stderr);
}

#[test]
fn the_help_of_a_probe_begins_with_the_probe_and_lists_have_the_width_of_a_page() {
    let home = Home::new();
    let help = home.say(&["hostmem", "--help"]).stdout;
    let at = |words: &str| help.find(words).unwrap_or_else(|| panic!("no {words} in {help}"));
    let order = ["Probe:", "--mib", "Run:", "--duty", "Sources:", "--engine", "Screen:", "--color"].map(at);
    assert!(order.is_sorted(), "{help}");
    assert!(help.starts_with("DRAM bandwidth"), "{help}");
    let all = home.say(&["--help"]).stdout;
    let place = |name: &str| all.find(&format!("\n  {name} ")).unwrap_or_else(|| panic!("no {name} in {all}"));
    assert!(place("hostmem") < place("list") && place("moe") < place("baseline"), "{all}");
    let list = home.say(&["list"]).stdout;
    assert!(list.lines().all(|line| line.chars().count() <= 100), "{list}");
}

#[test]
fn wrong_parameters_are_told_what_is_allowed() {
    let home = Home::new();
    for (args, words) in [
        (&["fake", "--seconds", "601"][..], "0 to 600"),
        (&["fake", "--seconds", "x"], "0 to 600"),
        (&["fake", "--mode", "dance"], "good"),
        (&["hostmem", "--mib", "-1"], "16 to 16384"),
        (&["hostmem", "--gpu", "0"], "--gpu"),
        (&["fake", "--duty", "0"], "1..=100"),
        (&["fake", "--duty", "101"], "1..=100"),
        (&["dance"], "dance"),
    ] {
        let said = home.say(args);
        assert_eq!(said.code, 2, "{args:?}: {}", said.stderr);
        assert!(said.stderr.contains(words), "{args:?}: {}", said.stderr);
    }
}

#[test]
fn reports_are_listed_shown_compared_and_made_a_baseline() {
    let home = Home::new();
    assert_eq!(home.say(&["show", "last:fake"]).code, 1);
    let first = home.run("good", &["--seconds", "0.1"]).report();
    assert_eq!(first.verdict.summary, "measured; this run is now the baseline of this machine");
    assert!(first.verdict.advice.is_empty(), "{:?}", first.verdict.advice);
    home.age(&first.run);
    let again = home.run("good", &["--seconds", "0.1"]).report();
    assert_ne!(first.run, again.run);
    assert_eq!(again.results[0].pct_of_baseline, Some(100.0), "the first good run is the baseline");
    let second = home.run("good", &["--seconds", "0.2"]).report();
    assert_eq!(second.results[0].pct_of_baseline, None, "other inputs have no baseline yet");
    let shown = home.say(&["show", &again.run]);
    assert!(shown.stdout.contains("# fake on the host") && shown.stdout.contains(&again.run));
    let page = fs::read_to_string(home.folder().join(format!("reports/{}.md", again.run))).unwrap();
    assert_eq!(shown.stdout, page);
    let file = home.folder().join(format!("reports/{}.json", second.run));
    let compared = home.say(&["compare", &first.run, file.to_str().unwrap()]);
    assert!(
        compared.stdout.contains("- input seconds: 0.1 then, 0.2 now") && !compared.stdout.contains("input mode"),
        "{}",
        compared.stdout
    );
    let itself = home.say(&["compare", &first.run]);
    assert_eq!(itself.code, 1);
    let words = format!("run {} is itself the baseline of fake on the host", first.run);
    assert!(itself.stderr.contains(&words), "{}", itself.stderr);
    let against = home.say(&["compare", &again.run]);
    assert!(against.stdout.contains(&format!("{} against {}", again.run, first.run)), "{}", against.stdout);
    let made = home.say(&["baseline", &second.run]);
    let words = format!("run {} is now the baseline of fake on the host", second.run);
    assert!(made.code == 0 && made.stdout.contains(&words), "{}{}", made.stdout, made.stderr);
    let against = home.say(&["compare", "baseline:fake", "last:fake"]);
    assert!(against.stdout.contains(&format!("{0} against {0}", second.run)), "{}", against.stdout);
    let list = home.say(&["list"]);
    assert!(list.stdout.contains("hostmem") && list.stdout.contains(&second.run), "{}", list.stdout);
    let rows: serde_json::Value = serde_json::from_str(&home.say(&["list", "--json"]).stdout).unwrap();
    let named = |id: &str| rows.as_array().unwrap().iter().any(|row| row["probe"] == id);
    assert!(named("hostmem") && named("hbm"));
    assert_eq!(home.say(&["show", "no-such-run"]).code, 1);
}

#[test]
fn a_run_on_some_cpus_is_no_run_on_all() {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    let ours = sched_getaffinity(None).unwrap();
    let cpus: Vec<_> = (0..CpuSet::MAX_CPU).filter(|&cpu| ours.is_set(cpu)).collect();
    if cpus.len() < 2 {
        return;
    }
    let home = Home::new();
    let all = home.run("good", &[]).report();
    let mut one = CpuSet::new();
    one.set(cpus[0]);
    // Of this test's thread, and of what it starts.
    sched_setaffinity(None, &one).unwrap();
    // Within the cool-down of the first.
    let part = home.run("good", &[]).report();
    sched_setaffinity(None, &ours).unwrap();
    assert_ne!(all.run, part.run, "another measurement");
    assert!(part.bound().unwrap().starts_with("1 of "), "{:?}", part.environment.facts);
    assert_eq!(part.results[0].pct_of_baseline, None);
    assert_eq!(part.verdict.summary, "measured; this run is now the baseline of this machine");
    let against = home.say(&["compare", &all.run, &part.run]).stdout;
    assert!(against.contains("- bound to: all of it then, 1 of "), "{against}");
}

#[test]
fn a_run_that_went_wrong_is_no_baseline() {
    for (mode, more, words) in [
        ("wrong", &[][..], "its computation was wrong"),
        ("missing", &[], "it has no result"),
        ("good", &["--duty", "50"], "it had less than all of its target"),
        ("good", &["--force", "--duty", "100"], "it was forced"),
    ] {
        let home = Home::new();
        let run = home.run(mode, more).report().run;
        let said = home.say(&["baseline", &run]);
        assert_eq!(said.code, 1, "{mode} {more:?}");
        assert!(said.stderr.contains(&format!("run {run} cannot be a baseline: {words}")), "{}", said.stderr);
        assert!(!home.folder().join("baseline").exists(), "{mode} {more:?}");
    }
}

/// Names of all fields of a document; of tables whose keys are data, one for all.
fn fields(value: &serde_json::Value, path: &str, out: &mut BTreeSet<String>) {
    const TABLES: [&str; 5] = [
        "inputs",
        "environment.facts",
        "environment.gpus[].throttled_ms",
        "environment.gpus[].timeline.throttled_ms",
        "moments",
    ];
    match value {
        serde_json::Value::Object(map) if TABLES.contains(&path) => {
            assert!(!map.is_empty(), "{path} is empty");
            out.insert(format!("{path}.*"));
        }
        serde_json::Value::Object(map) => {
            for (key, value) in map {
                fields(value, &if path.is_empty() { key.clone() } else { format!("{path}.{key}") }, out);
            }
        }
        serde_json::Value::Array(list) => {
            assert!(!list.is_empty(), "{path} is empty");
            for value in list {
                fields(value, &format!("{path}[]"), out);
            }
        }
        _ => drop(out.insert(path.to_owned())),
    }
}

#[test]
fn the_document_of_a_report_is_the_documented_one() {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/probes.md")).unwrap();
    let table = text.split_once("<!-- fields of a report").unwrap().1.split_once("<!-- end of fields").unwrap().0;
    let rows =
        table.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`').map(|(name, _)| name.to_owned()));
    let documented: BTreeSet<String> = rows.collect();
    // A real report, with those parts filled in that take a GPU, a sweep or a part of the CPUs.
    let said = Home::new().run("wrong", &[]);
    let mut report = said.report();
    let gpu = serde_json::json!({"index": 0, "uuid": "", "name": ""});
    report.target.gpus = vec![serde_json::from_value(gpu).unwrap()];
    let mut gpu = warptop::probe::report::GpuEnvironment::default();
    gpu.throttled_ms.insert("sw_power_cap".to_owned(), None);
    let timeline = &mut gpu.timeline;
    for readings in [&mut timeline.sm_clock_mhz, &mut timeline.temp_c, &mut timeline.power_w] {
        readings.push(None);
    }
    timeline.throttled_ms.insert("sw_power_cap".to_owned(), vec![None]);
    report.environment.gpus = vec![gpu];
    report.moments.insert("onset".to_owned(), 1.0);
    report.environment.facts.insert("CPU".to_owned(), String::new());
    report.environment.bound_to = Some("1 of 2 CPUs of node 0".to_owned());
    report.ended_early = Some("the budget was used up".to_owned());
    report.results[0].figure.floor = Some(1.0);
    report.results[0].figure.method = "somehow".to_owned();
    report.notes.push(String::new());
    let mut found = BTreeSet::new();
    fields(&serde_json::to_value(&report).unwrap(), "", &mut found);
    assert_eq!(found, documented);
}
