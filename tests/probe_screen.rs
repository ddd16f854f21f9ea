//! Probes on the screen: the whole program in this process, on a terminal in memory, with real children.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use tempfile::TempDir;
use warptop::app::{Event, Exit, Key, Origin};
use warptop::model::{Batch, Clock, Metric, SourceId, SourceState, Subject, SystemClock};
use warptop::probe::files::Files;
use warptop::probe::report::{Ending, Report};
use warptop::probe::{Aim, PROBES, Params, Value};
use warptop::runtime::{Inputs, Manner, Probes, Program, Reach, Session, Setup};
use warptop::sampler::Sink;
use warptop::store::{Retention, Store, Window};
use warptop::term::input::Input;
use warptop::ui::theme::Theme;

/// Looks at the screen before a test gives up.
const LOOKS: u32 = 3_000;

struct Rig {
    program: Program<TestBackend>,
    store: Arc<Store>,
    clock: Arc<SystemClock>,
    files: Files,
    _home: TempDir,
}

fn fake() -> usize {
    PROBES.iter().position(|probe| probe.spec.id == "fake").unwrap()
}

impl Rig {
    /// A screen on a host of whose memory so much is in use, and a request for the fake probe.
    fn new(mode: &str, seconds: f64, used: f64) -> Self {
        Self::at(tempfile::tempdir().unwrap(), Path::new(""), mode, seconds, used)
    }

    /// The same with the reports of this folder, or one below it.
    fn at(home: TempDir, below: &Path, mode: &str, seconds: f64, used: f64) -> Self {
        let clock = Arc::new(SystemClock::start());
        let files = Files::at(&home.path().join(below));
        let store = Arc::new(Store::new(Retention::HOUR));
        let mut host = Batch::new(SourceId::Host, clock.now(), Batch::FOREVER);
        host.push(Subject::Host, Metric::HostMemTotal, 64e9);
        host.push(Subject::Host, Metric::HostMemUsed, used);
        host.state = Some(SourceState::Ok);
        store.push(&host);
        let probes = Probes::start(Setup {
            sink: Sink::new(Arc::clone(&store), None),
            clock: Arc::clone(&clock) as _,
            files: Ok(files.clone()),
            program: PathBuf::from(env!("CARGO_BIN_EXE_warptop")),
            reach: Reach::default(),
        });
        let mut params = Params::of(&PROBES[fake()].spec);
        params.put("mode", Value::Word(mode.to_owned()));
        params.put("seconds", Value::Number(seconds));
        probes.ask(fake(), Aim::default(), Some(params), Manner::default());
        let inputs =
            Inputs { clock: Arc::clone(&clock) as _, events: channel().1, suspend: || Ok(()), resume: || Ok(()) };
        let terminal = Terminal::new(TestBackend::new(120, 40)).unwrap();
        let mut program = Program::new(terminal, inputs, Session::on(Arc::clone(&store), Origin::Live), Theme::FULL);
        program.run_probes(probes);
        Self { program, store, clock, files, _home: home }
    }

    fn press(&mut self, key: char) -> Option<Exit> {
        self.program.take(Input::App(Event::Key(Key::Char(key)))).unwrap()
    }

    fn screen(&mut self) -> String {
        self.program.frame().unwrap();
        let buffer = self.program.terminal().backend().buffer();
        let width = usize::from(buffer.area.width);
        let rows = buffer.content.chunks(width);
        rows.map(|row| row.iter().map(ratatui::buffer::Cell::symbol).collect::<String>() + "\n").collect()
    }

    /// Waits until the screen shows all of these words.
    fn until(&mut self, words: &[&str]) -> String {
        for _ in 0..LOOKS {
            let screen = self.screen();
            if words.iter().all(|word| screen.contains(word)) {
                return screen;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("{words:?} do not come:\n{}", self.screen());
    }

    /// Opens the pane over the whole screen, where a sentence has a line for itself.
    fn open(&mut self) {
        self.press('p');
        self.press('z');
        self.until(&["run fake?"]);
    }

    fn reports(&self) -> Vec<Report> {
        self.files.list().0
    }

    /// The one report, once it is written: the screen does not wait for the disk.
    fn report(&self) -> Report {
        for _ in 0..LOOKS {
            if let [report] = &self.reports()[..] {
                return report.clone();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("{} reports", self.reports().len());
    }

    /// Runs on the host's time axis: how each ended.
    fn marks(&self) -> Vec<Option<String>> {
        let window = Window::last(self.clock.now(), 600_000);
        let data = self.store.read();
        data.runs(Subject::Host, window).map(|run| run.how.as_deref().map(ToOwned::to_owned)).collect()
    }
}

#[test]
fn a_question_is_answered_in_its_pane_and_the_run_leaves_a_mark_and_a_report() {
    let mut rig = Rig::new("good", 0.3, 8e9);
    rig.press('y');
    assert!(rig.marks().is_empty(), "a question that is not seen is not answered");
    rig.open();
    rig.until(&["Run fake on the host? It takes about 1 s, 1 MiB of host memory", "y run it   n leave it"]);
    rig.press('y');
    rig.until(&["fake: ", "101 GB/s"]);
    assert_eq!(rig.marks(), [Some("done".to_owned())]);
    let report = rig.report();
    assert_eq!((report.ending, report.duty_pct), (Ending::Done, 100));
}

#[test]
fn what_cannot_be_read_is_not_agreed_to_and_what_runs_is_seen_at_every_size() {
    let mut rig = Rig::new("hang", 0.0, 8e9);
    rig.program.terminal_mut().backend_mut().resize(30, 7);
    rig.press('p');
    rig.until(&["too small to ask", "n leave it"]);
    rig.press('y');
    rig.screen();
    assert!(rig.marks().is_empty(), "a question that is not seen is not answered");
    rig.program.terminal_mut().backend_mut().resize(80, 24);
    rig.press('z');
    // A key that is typed ahead answers nothing.
    rig.press('y');
    rig.until(&["It disturbs", "nobody.", "y run it"]);
    rig.press('y');
    rig.until(&["probe fake runs"]);
    for (columns, rows) in [(30, 7), (20, 3), (12, 4), (40, 8), (40, 10), (79, 20), (80, 24), (140, 45)] {
        rig.program.terminal_mut().backend_mut().resize(columns, rows);
        for keys in ["", "z", "\t"] {
            for key in keys.chars() {
                rig.press(key);
            }
            let screen = rig.screen();
            assert!(
                screen.contains("fake") && screen.contains("0 %") && screen.contains("x stop"),
                "{columns}x{rows}\n{screen}"
            );
        }
    }
    rig.press('x');
    rig.until(&["fake stopped"]);
}

#[test]
fn a_report_that_is_kept_is_read_without_running_anything() {
    let mut rig = Rig::new("good", 0.1, 8e9);
    rig.open();
    rig.press('y');
    rig.until(&["fake: ", "101 GB/s"]);
    let mut report = rig.report();
    (report.probe, report.run) = ("hostmem".to_owned(), "20261130-101500-000-hostmem-1".to_owned());
    report.notes = (1..90).map(|line| format!("note {line} of 89")).collect();
    let home = tempfile::tempdir().unwrap();
    Files::at(home.path()).keep(&report).unwrap();
    // A home that machines share: the newer one is another machine's.
    let elsewhere = Report {
        run: "20261130-111500-000-hostmem-1".to_owned(),
        host: "elsewhere".to_owned(),
        started_unix_ms: report.started_unix_ms + 3_600_000,
        notes: Vec::new(),
        ..report.clone()
    };
    Files::at(home.path()).keep(&elsewhere).unwrap();
    let mut rig = Rig::at(home, Path::new(""), "good", 0.1, 8e9);
    rig.open();
    rig.press('n');
    rig.until(&["host memory", "101 GB/s"]);
    for _ in warptop::probe::listed().take_while(|probe| probe.spec.id != "hostmem") {
        rig.press('j');
    }
    rig.until(&["hostmem on the host, last report", "rows more: Enter"]);
    rig.program.take(Input::App(Event::Key(Key::Enter))).unwrap();
    let screen = rig.until(&["note 1 of 89", "rows more: down  Enter: the list"]);
    assert!(!screen.contains("note 80 of 89"), "{screen}");
    for _ in 0..300 {
        rig.program.take(Input::App(Event::Key(Key::Down))).unwrap();
    }
    rig.until(&["note 89 of 89", "20261130-101500-000-hostmem-1"]);
    rig.program.take(Input::App(Event::Key(Key::Up))).unwrap();
    rig.until(&["1 row more: down"]);
    assert!(rig.marks().is_empty() && rig.reports().len() == 2, "nothing was run");
}

#[test]
fn no_is_no() {
    let mut rig = Rig::new("good", 600.0, 8e9);
    rig.open();
    rig.press('n');
    let screen = rig.until(&["none run here yet"]);
    assert!(!screen.contains("Run fake"), "{screen}");
    assert!(rig.marks().is_empty() && rig.reports().is_empty());
}

#[test]
fn what_runs_is_seen_and_stopped_from_anywhere() {
    let mut rig = Rig::new("hang", 0.0, 8e9);
    rig.open();
    rig.press('y');
    rig.press('1');
    rig.until(&["probe fake runs, 0 %", "x stops it"]);
    rig.press('?');
    rig.press('x');
    rig.press('?');
    rig.press('p');
    rig.until(&["fake stopped: by the user"]);
    assert_eq!(rig.marks(), [Some("stopped".to_owned())]);
    assert_eq!(rig.report().ending, Ending::Stopped);
}

#[test]
fn a_run_of_another_process_is_seen_and_so_is_its_result() {
    let state = tempfile::tempdir().unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_warptop"));
    command.args(["probe", "fake", "--yes", "--no-discover", "--seconds", "4"]).env("XDG_STATE_HOME", state.path());
    let quiet = std::process::Stdio::null;
    let mut other = command.stdin(quiet()).stdout(quiet()).stderr(quiet()).spawn().unwrap();
    // The same place for both.
    let mut rig = Rig::at(state, Path::new("warptop/probes"), "good", 0.1, 8e9);
    rig.press('n');
    rig.press('p');
    rig.press('z');
    rig.until(&[&format!("runs in process {}", other.id())]);
    other.wait().unwrap();
    let screen = rig.until(&["101 GB/s"]);
    assert!(!screen.contains("runs in process"), "{screen}");
}

#[test]
fn the_demo_drops_no_run() {
    let mut rig = Rig::new("hang", 0.0, 8e9);
    rig.open();
    rig.press('y');
    rig.until(&["probe fake runs"]);
    rig.press('d');
    rig.until(&["probe fake runs", "the demo has to wait for the probe"]);
    rig.press('x');
    assert_eq!(rig.report().ending, Ending::Stopped);
    // The screen does not wait for the disk, and neither does the key.
    let goes = (0..LOOKS).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        !rig.screen().contains("has to wait")
    });
    assert!(goes, "{}", rig.screen());
    rig.press('d');
    rig.until(&["probes run on the machine itself, not on a recording"]);
}

#[test]
fn leaving_ends_what_runs_and_keeps_its_report() {
    for mode in ["good", "deaf"] {
        let mut rig = Rig::new(mode, if mode == "good" { 600.0 } else { 0.0 }, 8e9);
        rig.open();
        rig.press('y');
        rig.until(&["probe fake runs"]);
        assert_eq!(rig.press('q'), Some(Exit::Asked));
        let reports = rig.reports();
        assert_eq!(reports.len(), 1, "{mode}");
        assert_eq!(reports[0].why.as_deref(), Some("the program was left"), "{mode}");
    }
}

#[test]
fn a_refusal_says_why_and_what_to_do() {
    let mut rig = Rig::new("good", 0.1, 60e9);
    rig.open();
    rig.press('y');
    rig.until(&["fake not run: the host has 3.7 GiB free", "the probe takes 1 MiB", "or free memory"]);
    assert!(rig.marks().is_empty() && rig.reports().is_empty());
    rig.press('F');
    let screen = rig.screen();
    assert!(screen.contains("fake not run"), "memory cannot be forced: {screen}");
}

#[test]
fn what_can_never_run_here_is_refused_without_a_question() {
    let mut rig = Rig::new("good", 0.1, 8e9);
    let mut driver = Batch::new(SourceId::Nvml, rig.clock.now(), Batch::FOREVER);
    driver.state = Some(SourceState::Absent("libnvidia-ml.so.1 is not there".into()));
    rig.store.push(&driver);
    rig.open();
    rig.press(PROBES.iter().find(|probe| probe.spec.id == "hbm").unwrap().spec.key);
    let screen = rig.until(&["device memory not run: it needs a GPU: libnvidia-ml.so.1 is not there"]);
    assert!(!screen.contains("y run it"), "{screen}");
}

#[test]
fn company_can_be_forced_at_a_tenth_of_the_time() {
    let mut rig = Rig::new("good", 0.1, 8e9);
    let mut engine = Batch::new(SourceId::Engine(0), rig.clock.now(), Batch::FOREVER);
    engine.fact(Subject::Engine(0), warptop::model::FactKey::Url, "http://127.0.0.1:8000");
    engine.state = Some(SourceState::Ok);
    rig.store.push(&engine);
    rig.open();
    rig.press('y');
    rig.until(&["an engine serves here", "F run it all the same"]);
    rig.press('F');
    rig.until(&["although it was refused?"]);
    rig.press('y');
    rig.until(&["fake: ", "101 GB/s"]);
    let report = rig.report();
    assert_eq!((report.forced, report.duty_pct), (true, 10));
    assert!(report.environment.company.contains("an engine serves here"));
}

#[test]
fn a_recording_is_no_machine_to_measure() {
    let clock = Arc::new(SystemClock::start());
    let store = Arc::new(Store::new(Retention::HOUR));
    let inputs = Inputs { clock, events: channel().1, suspend: || Ok(()), resume: || Ok(()) };
    let terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
    let session = Session::on(store, Origin::Recording);
    let mut program = Program::new(terminal, inputs, session, Theme::FULL);
    for key in ['p', 'm', 'y', 'F', 'x'] {
        assert_eq!(program.take(Input::App(Event::Key(Key::Char(key)))).unwrap(), None);
    }
    program.frame().unwrap();
    let text: String =
        program.terminal().backend().buffer().content.iter().map(ratatui::buffer::Cell::symbol).collect();
    assert!(text.contains("probes run on the machine itself, not on a recording"), "{text}");
}
