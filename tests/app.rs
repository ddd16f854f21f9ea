//! The whole program in this process: a terminal in memory, keys from a script, time set by hand.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use warptop::app::{Event, Exit, Key, Origin};
use warptop::log::{EventLog, LogLevel};
use warptop::model::{Batch, FactKey, HistogramSample, ManualClock, Metric, SourceId, SourceState, Subject, Time};
use warptop::runtime::{Inputs, Program, Session};
use warptop::store::{Retention, Store};
use warptop::term::input::Input;
use warptop::ui::theme::Theme;

const START: Time = Time(1_795_960_000_000);

struct Rig {
    program: Program<TestBackend>,
    store: Arc<Store>,
    clock: Arc<ManualClock>,
    now: Time,
}

/// The program and the sender of its events.
fn program(
    columns: u16,
    rows: u16,
    clock: &Arc<ManualClock>,
    store: &Arc<Store>,
) -> (Program<TestBackend>, Sender<Input>) {
    let (to, events) = channel();
    let inputs = Inputs { clock: Arc::clone(clock) as _, events, suspend: || Ok(()), resume: || Ok(()) };
    let terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    let session = Session::on(Arc::clone(store), Origin::Live);
    (Program::new(terminal, inputs, session, Theme::FULL), to)
}

impl Rig {
    fn new(columns: u16, rows: u16) -> Self {
        let (clock, store) = (Arc::new(ManualClock::at(START)), Arc::new(Store::new(Retention::HOUR)));
        let (program, _) = program(columns, rows, &clock, &store);
        Self { program, store, clock, now: START }
    }

    /// A second passes in which an H200 and an engine are read.
    fn serve(&mut self, running: f64, waiting: f64) {
        self.pass(1000);
        let mut gpu = Batch::new(SourceId::Nvml, self.now, 1500);
        gpu.fact(Subject::Gpu(0), FactKey::Name, "NVIDIA H200");
        gpu.push(Subject::Gpu(0), Metric::SmActive, 81.0);
        gpu.push(Subject::Gpu(0), Metric::DramActive, 46.0);
        gpu.state = Some(SourceState::Ok);
        self.store.push(&gpu);
        let mut engine = Batch::new(SourceId::Engine(0), self.now, 3500);
        engine.fact(Subject::Engine(0), FactKey::Url, "http://127.0.0.1:8000");
        engine.fact(Subject::Engine(0), FactKey::Kind, "vllm");
        engine.push(Subject::Engine(0), Metric::RequestsRunning, running);
        engine.push(Subject::Engine(0), Metric::RequestsWaiting, waiting);
        engine.state = Some(SourceState::Ok);
        self.store.push(&engine);
    }

    /// Another engine is read at this moment.
    fn beside(&mut self, index: u8, name: &str, running: f64, state: SourceState) {
        let mut engine = Batch::new(SourceId::Engine(index), self.now, 3500);
        engine.fact(Subject::Engine(index), FactKey::Url, "http://127.0.0.1:8080");
        engine.fact(Subject::Engine(index), FactKey::Name, name);
        engine.push(Subject::Engine(index), Metric::RequestsRunning, running);
        engine.push(Subject::Engine(index), Metric::RequestsWaiting, 0.0);
        engine.push(Subject::Engine(index), Metric::GenerationTokens, running * self.now.0 as f64 / 100.0);
        engine.state = Some(state);
        self.store.push(&engine);
    }

    fn pass(&mut self, ms: u64) {
        self.now = self.now + ms;
        self.clock.set(self.now);
    }

    /// Presses keys and draws after each; says how the program ended, if it did.
    fn press(&mut self, keys: &[Key]) -> Option<Exit> {
        for &key in keys {
            let exit = self.program.take(Input::App(Event::Key(key))).unwrap();
            if exit.is_some() {
                return exit;
            }
            self.program.frame().unwrap();
        }
        None
    }

    fn type_keys(&mut self, keys: &str) -> Option<Exit> {
        let keys: Vec<_> = keys.chars().map(Key::Char).collect();
        self.press(&keys)
    }

    fn rows(&mut self) -> Vec<String> {
        self.program.frame().unwrap();
        let buffer = self.program.terminal().backend().buffer();
        let width = usize::from(buffer.area.width).max(1);
        buffer.content.chunks(width).map(|row| row.iter().map(ratatui::buffer::Cell::symbol).collect()).collect()
    }

    fn shows(&mut self, words: &[&str]) {
        let screen = self.rows().join("\n");
        for word in words {
            assert!(screen.contains(word), "no '{word}' on:\n{screen}");
        }
    }

    fn lacks(&mut self, word: &str) {
        let screen = self.rows().join("\n");
        assert!(!screen.contains(word), "'{word}' on:\n{screen}");
    }
}

#[test]
fn several_engines_are_listed_and_a_key_goes_from_one_to_the_next() {
    for (columns, rows) in [(160, 45), (80, 24)] {
        let mut rig = Rig::new(columns, rows);
        rig.serve(64.0, 3.0);
        let footer = |rig: &mut Rig| rig.rows().pop().unwrap();
        assert!(!footer(&mut rig).contains("e engine"), "there is but one");
        for _ in 0..3 {
            rig.serve(64.0, 3.0);
            rig.beside(1, "llama.cpp :8080", 2.0, SourceState::Ok);
        }
        rig.shows(&["> :8000 64 run 3 wait", "llama.cpp :8080 2 run 0 wait", "1/2"]);
        assert!(footer(&mut rig).contains("e engine"), "{}", footer(&mut rig));
        rig.type_keys("e");
        rig.shows(&["> llama.cpp :8080 2 run 0 wait  20* tok/s", "2/2"]);
        rig.serve(64.0, 3.0);
        rig.beside(1, "llama.cpp :8080", 2.0, SourceState::Failed("nothing listens there".into()));
        rig.shows(&["> llama.cpp :8080 down"]);
    }
}

/// Fault: engine: 64 engines at once
/// Seen: `1/64` and as many of their names as there is room for, the chosen one first
/// Works: every pane at every size; `e` goes through all of them
/// Recovers: needs none
#[test]
fn sixty_four_engines_can_be_gone_through_at_every_size() {
    for (columns, rows) in [(160, 45), (120, 35), (80, 24), (40, 10)] {
        let mut rig = Rig::new(columns, rows);
        for _ in 0..3 {
            rig.serve(64.0, 3.0);
            (1..64).for_each(|i| rig.beside(i, &format!("vLLM :8000/m{i}"), 2.0, SourceState::Ok));
        }
        if columns >= 80 {
            rig.shows(&["1/64", "> :8000"]);
        }
        for i in 1..64 {
            rig.type_keys("e");
            if columns >= 80 {
                rig.shows(&[&format!("{}/64", i + 1), &format!("> vLLM :8000/m{i}")]);
            }
        }
        rig.type_keys("e");
        (0..12).for_each(|_| assert!(rig.press(&[Key::Tab]).is_none()));
        rig.rows();
    }
}

#[test]
fn the_header_of_a_dead_engine_says_since_when() {
    let mut rig = Rig::new(120, 35);
    rig.serve(64.0, 3.0);
    rig.beside(0, "vllm :8000", 2.0, SourceState::Failed("nothing listens there".into()));
    rig.pass(9000);
    let header = rig.rows()[0].clone();
    assert!(header.contains("down for 9.0 s") && !header.contains("failed") && !header.contains("wait"), "{header}");
}

#[test]
fn the_header_leaves_out_a_count_that_was_lost() {
    let mut rig = Rig::new(120, 35);
    rig.serve(f64::NAN, 3.0);
    let header = rig.rows()[0].clone();
    assert!(header.contains("– run  3 wait"), "{header}");
}

#[test]
fn the_header_says_what_runs_where_and_how_old_it_is() {
    for (columns, rows) in [(120, 35), (80, 24)] {
        let mut rig = Rig::new(columns, rows);
        rig.serve(128.0, 40.0);
        rig.pass(200);
        let header = rig.rows()[0].clone();
        for word in ["H200 ×1", "vllm", ":8000", "128 run", "40 wait", "live 0.2 s ago"] {
            assert!(header.contains(word), "no '{word}' in: {header}");
        }
        rig.pass(60_000);
        let header = rig.rows()[0].clone();
        assert!(header.contains("60 s ago") && header.contains("stale run"), "{header}");
    }
}

#[test]
fn a_pause_holds_the_moment_while_data_come_in() {
    let mut rig = Rig::new(120, 35);
    for waiting in 0..30 {
        rig.serve(8.0, f64::from(waiting));
    }
    rig.shows(&["29 wait"]);
    rig.type_keys(" ");
    rig.serve(8.0, 99.0);
    rig.pass(500);
    rig.shows(&["29 wait", "paused 1.5 s before now"]);
    // A tenth of a minute back, twice; then on to now.
    rig.type_keys("hh");
    rig.shows(&["17 wait", "paused 13 s before now"]);
    rig.press(&[Key::End]);
    rig.shows(&["99 wait", "live"]);
}

#[test]
fn a_source_that_fails_says_so_and_the_rest_goes_on() {
    let mut rig = Rig::new(80, 24);
    rig.serve(1.0, 0.0);
    let mut failed = Batch::new(SourceId::Engine(0), rig.now + 1000, 3500);
    failed.state = Some(SourceState::Failed("http://127.0.0.1:8000: connection refused; is the server up?".into()));
    rig.pass(1000);
    rig.store.push(&failed);
    rig.shows(&["connection refused; is the server up?", "down for 1.0 s", "H200", "live 1.0 s ago"]);
    rig.serve(3.0, 0.0);
    rig.lacks("connection refused");
}

#[test]
fn where_nothing_is_the_demo_is_one_key_away() {
    let mut rig = Rig::new(100, 30);
    let mut absent = Batch::new(SourceId::Nvml, START, 3500);
    absent.state = Some(SourceState::Absent("no NVIDIA driver here: libnvidia-ml.so.1 is not installed".into()));
    rig.store.push(&absent);
    rig.shows(&["no NVIDIA driver here", "d plays the demo", "d demo"]);
    rig.type_keys("d");
    // Read by another thread.
    for _ in 0..3000 {
        rig.pass(1);
        let header = &rig.rows()[0];
        if header.contains("demo 1:0") && !header.contains('+') {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    rig.shows(&["H200", "vLLM", "demo 1:0"]);
    rig.lacks("d plays the demo");
    assert_eq!(rig.type_keys("q"), Some(Exit::Asked));
}

#[test]
fn every_key_on_every_size_is_survived_and_q_ends_it() {
    for (columns, rows) in [(0, 0), (1, 1), (10, 3), (39, 8), (40, 8), (79, 24), (80, 24), (120, 35), (250, 70)] {
        let mut rig = Rig::new(columns, rows);
        rig.serve(5.0, 1.0);
        for spec in warptop::app::ACTIONS.iter().filter(|s| s.action != warptop::app::Action::Quit) {
            for &key in spec.keys {
                assert_eq!(rig.press(&[key]), None, "{key} at {columns}x{rows}");
            }
        }
        assert_eq!(rig.type_keys("q"), Some(Exit::Asked));
    }
}

#[test]
fn the_size_may_change_between_any_two_frames() {
    let mut rig = Rig::new(80, 24);
    rig.serve(5.0, 1.0);
    for i in 0..300_u16 {
        rig.program.terminal_mut().backend_mut().resize(i * 37 % 160, i * 11 % 50);
        rig.press(&[[Key::Tab, Key::Char('z'), Key::Char('?'), Key::Char('c')][usize::from(i % 4)]]);
    }
}

#[test]
fn what_is_not_on_this_machine_is_no_notice_once_something_is() {
    let mut rig = Rig::new(100, 30);
    let mut absent = Batch::new(SourceId::Discovery, START, 3500);
    absent.state = Some(SourceState::Absent("no engine found".into()));
    rig.store.push(&absent);
    rig.shows(&["no engine found · d plays the demo"]);
    rig.serve(1.0, 0.0);
    rig.lacks("no engine found · d");
    rig.lacks("d plays the demo");
}

#[test]
fn eight_gpus_are_on_a_screen_of_80_by_24() {
    let mut rig = Rig::new(80, 24);
    rig.serve(7.0, 0.0);
    let mut batch = Batch::new(SourceId::Nvml, rig.now, 3500);
    for gpu in (0..8).map(Subject::Gpu) {
        batch.fact(gpu, FactKey::Name, "NVIDIA H200");
        batch.push(gpu, Metric::SmActive, 50.0);
        batch.push(gpu, Metric::Temp, 40.0);
    }
    rig.store.push(&batch);
    let rows = rig.rows();
    for gpu in 0..8 {
        let number = |row: &str| row.trim_start_matches(['│', ' ', '▸']).split(' ').next().unwrap().to_owned();
        let shown = rows.iter().any(|row| row.contains("40°") && number(row) == gpu.to_string());
        assert!(shown, "GPU {gpu} is not on:\n{}", rows.join("\n"));
    }
}

#[test]
fn the_verdict_is_on_every_size_and_enter_opens_its_evidence() {
    for (columns, rows, row) in [(140, 45, 1), (80, 24, 1), (40, 10, 1), (30, 4, 0)] {
        let mut rig = Rig::new(columns, rows);
        (0..12).for_each(|_| rig.serve(3.0, 11.0));
        let screen = rig.rows();
        let said = screen[row].trim_start();
        let state =
            ["SLOW", "STALLED", "DOWN", "WATCH", "OK", "IDLE", "UNKNOWN"].into_iter().find(|s| said.starts_with(s));
        assert!(
            state.is_some() && said.trim_end() != state.unwrap_or_default(),
            "{columns}x{rows}:\n{}",
            screen.join("\n")
        );
        if rows >= 24 {
            rig.press(&[Key::Enter]);
            rig.shows(&["rule ", "since "]);
            rig.press(&[Key::Esc]);
            rig.lacks("rule ");
        }
    }
}

#[test]
fn small_screens_get_bare_numbers() {
    let mut rig = Rig::new(30, 4);
    rig.serve(7.0, 2.0);
    rig.shows(&["SM 81 %", "DRAM 46 %", "run 7", "wait 2"]);
}

#[test]
fn the_loop_ends_by_key_by_signal_and_when_nobody_is_left_to_speak() {
    let clock = Arc::new(ManualClock::at(START));
    let store = Arc::new(Store::new(Retention::HOUR));
    let ends = |inputs: &[Input]| {
        let (mut program, to) = program(80, 24, &clock, &store);
        for &input in inputs {
            to.send(input).unwrap();
        }
        drop(to);
        program.run().unwrap()
    };
    let key = |key| Input::App(Event::Key(key));
    assert_eq!(ends(&[key(Key::Char('?')), Input::Continued, key(Key::Ctrl('z')), key(Key::Char('q'))]), Exit::Asked);
    assert_eq!(ends(&[key(Key::Ctrl('c'))]), Exit::Asked);
    assert_eq!(ends(&[Input::App(Event::Interrupt)]), Exit::Interrupted);
    assert_eq!(ends(&[key(Key::Tab)]), Exit::Interrupted);
}

#[test]
fn the_cursor_belongs_to_the_map_in_focus() {
    let mut rig = Rig::new(140, 45);
    rig.serve(4.0, 0.0);
    for second in 0..70 {
        rig.pass(1000);
        let mut scrape = Batch::new(SourceId::Engine(0), rig.now, 3500);
        scrape.push(Subject::Engine(0), Metric::RequestsRunning, 4.0);
        scrape.histograms.push(HistogramSample {
            sets: 0,
            subject: Subject::Engine(0),
            metric: Metric::E2e,
            edges: [1.0, 2.0].into(),
            cumulative: vec![0.0, f64::from(second) * 10.0, f64::from(second) * 10.0],
            sum: None,
        });
        rig.store.push(&scrape);
    }
    // E2E is the only latency there is, once the program has looked.
    rig.rows();
    rig.type_keys("m3c");
    rig.shows(&["E2E P99 1.99 s (1.00 s–2.00 s)"]);
    rig.lacks("running:");
    let place = warptop::ui::panes::PANES.iter().position(|pane| pane.id == "concurrency").unwrap() + 1;
    rig.type_keys(&place.to_string());
    rig.press(&[Key::Up; 40]);
    rig.press(&[Key::Right; 60]);
    rig.shows(&["UTC, ", "running: ", "; mixed 0", "counted when a request ends"]);
    rig.press(&[Key::Down; 40]);
    rig.press(&[Key::Up, Key::Up]);
    rig.shows(&["3–4 running: P9"]);
}

#[test]
fn the_help_lists_every_key() {
    let mut rig = Rig::new(110, 74);
    rig.type_keys("?");
    let screen = rig.rows().join("\n");
    for spec in warptop::app::ACTIONS {
        assert!(screen.contains(spec.label) && screen.contains(spec.help), "{:?} on:\n{screen}", spec.action);
    }
}

#[test]
fn gpus_that_have_no_row_are_counted() {
    let mut rig = Rig::new(80, 24);
    rig.pass(1000);
    let mut batch = Batch::new(SourceId::Nvml, rig.now, 1500);
    for i in 0..16 {
        batch.fact(Subject::Gpu(i), FactKey::Name, "NVIDIA H200");
        batch.push(Subject::Gpu(i), Metric::SmActive, f64::from(i) + 11.0);
    }
    rig.store.push(&batch);
    rig.shows(&["g moves on to 8 more", "▸0   11 %", "7   18 %"]);
    rig.lacks("8   19 %");
    rig.press(&[Key::Char('G')]);
    rig.shows(&["▸15  26 %"]);
}

#[test]
fn a_notice_says_which_engine_it_is_about() {
    let mut rig = Rig::new(120, 35);
    rig.serve(1.0, 0.0);
    let mut other = Batch::new(SourceId::Engine(1), rig.now, 3500);
    other.fact(Subject::Engine(1), FactKey::Url, "http://127.0.0.1:8001");
    other.state = Some(SourceState::Failed("connection refused".into()));
    rig.store.push(&other);
    rig.shows(&[":8001: connection refused"]);
    // However much another source has to say.
    let mut wordy = Batch::new(SourceId::Nvml, rig.now, 3500);
    wordy.state = Some(SourceState::Degraded("GPU 0 has much to say of itself; ".repeat(60).into()));
    rig.store.push(&wordy);
    rig.shows(&["GPU 0 has much to say of itself", "…", ":8001: connection refused"]);
}

/// Fault: host: the machine is suspended for a minute, or warptop is stopped and goes on
/// Seen: `the machine was suspended, or warptop was stopped, for 61 s: nothing was read`, for a minute
/// Works: the whole screen, with the first frame
/// Recovers: at once; what was not read stays a gap
#[test]
fn a_pause_is_said_for_a_while() {
    let mut rig = Rig::new(120, 35);
    rig.serve(1.0, 0.0);
    rig.now = rig.now + 61_000;
    let mut pause = Batch::new(SourceId::App, rig.now, 0);
    pause.paused_ms = 61_000;
    rig.store.push(&pause);
    rig.serve(1.0, 0.0);
    rig.shows(&["the machine was suspended, or warptop was stopped, for 61 s: nothing was read"]);
    for _ in 0..61 {
        rig.serve(1.0, 0.0);
    }
    rig.lacks("the machine was suspended");
}

#[test]
fn the_screen_names_what_served_at_the_moment_it_shows() {
    let mut rig = Rig::new(120, 35);
    for model in ["old-7b", "new-70b"] {
        let mut engine = Batch::new(SourceId::Engine(0), rig.now, 3500);
        engine.fact(Subject::Engine(0), FactKey::Model, model);
        rig.store.push(&engine);
        for _ in 0..30 {
            rig.serve(1.0, 0.0);
        }
    }
    rig.shows(&["new-70b"]);
    rig.press(&[Key::Left; 8]);
    rig.shows(&["old-7b"]);
    rig.lacks("new-70b");
    rig.press(&[Key::End]);
    rig.shows(&["new-70b"]);
}

#[test]
fn the_log_opens_over_the_panes_scrolls_and_closes() {
    let clock: Arc<ManualClock> = Arc::new(ManualClock::at(START));
    for (columns, rows) in [(40, 10), (80, 24), (160, 45)] {
        let store = Arc::new(Store::new(Retention::HOUR));
        let log = EventLog::start(&(Arc::clone(&clock) as _), Err("--no-log".to_owned()));
        for i in 0..60 {
            log.say(LogLevel::Error, &format!("engine {i}"), "nothing listens there");
        }
        log.flush(std::time::Duration::from_mins(1));
        let (_to, events) = channel();
        let inputs = Inputs { clock: Arc::clone(&clock) as _, events, suspend: || Ok(()), resume: || Ok(()) };
        let terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
        let session = Session::on(Arc::clone(&store), Origin::Live).with_log(log);
        let program = Program::new(terminal, inputs, session, Theme::FULL);
        let mut rig = Rig { program, store, clock: Arc::clone(&clock), now: START };
        rig.lacks("engine 59");
        rig.type_keys("L");
        rig.shows(&["engine 59", "No file: --no-log."]);
        rig.lacks("engine 0:");
        for _ in 0..200 {
            rig.type_keys("k");
        }
        rig.shows(&["is not written"]);
        rig.type_keys("j");
        rig.type_keys("?");
        rig.lacks("is not written");
        rig.type_keys("?L");
        rig.shows(&["engine 59"]);
        rig.press(&[Key::Esc]);
        rig.lacks("engine 59");
    }
    let mut rig = Rig::new(80, 24);
    rig.type_keys("L");
    rig.shows(&["A replay has no log"]);
    rig.type_keys("L");
    rig.lacks("A replay has no log");
}

#[test]
fn a_log_that_is_scrolled_holds_still_while_lines_come_in() {
    let clock: Arc<ManualClock> = Arc::new(ManualClock::at(START));
    let log = EventLog::start(&(Arc::clone(&clock) as _), Err("--no-log".to_owned()));
    let say = |from: u32| {
        (from..from + 60).for_each(|i| log.say(LogLevel::Error, &format!("engine {i}"), "nothing listens there"));
        log.flush(std::time::Duration::from_mins(1));
    };
    say(0);
    let store = Arc::new(Store::new(Retention::HOUR));
    let (_to, events) = channel();
    let inputs = Inputs { clock: Arc::clone(&clock) as _, events, suspend: || Ok(()), resume: || Ok(()) };
    let session = Session::on(Arc::clone(&store), Origin::Live).with_log(log.clone());
    let program = Program::new(Terminal::new(TestBackend::new(80, 24)).unwrap(), inputs, session, Theme::FULL);
    let mut rig = Rig { program, store, clock: Arc::clone(&clock), now: START };
    rig.type_keys("Lkkk");
    let (before, read) = (rig.rows(), "engine 50: nothing");
    assert!(before.iter().any(|row| row.contains(read)), "{before:?}");
    say(60);
    rig.shows(&[read]);
    rig.lacks("engine 60");
    // Back at the end it goes on.
    rig.type_keys("jjj");
    rig.shows(&["engine 119"]);
}

#[test]
fn the_footer_says_what_came_too_late_and_nothing_where_nothing_did() {
    let mut rig = Rig::new(140, 45);
    rig.serve(1.0, 0.0);
    rig.serve(1.0, 0.0);
    rig.lacks("too late");
    rig.lacks("not recorded");
    let mut late = Batch::new(SourceId::Nvml, START, 1500);
    late.push(Subject::Gpu(0), Metric::SmActive, 10.0);
    late.push(Subject::Gpu(0), Metric::DramActive, 10.0);
    rig.store.push(&late);
    rig.pass(1000);
    rig.shows(&["2 readings came too late"]);
    rig.lacks("not recorded");
}
