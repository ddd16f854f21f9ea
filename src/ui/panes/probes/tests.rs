//! The pane of probes in each state of a probe: the fake one, whose cost is the same on every machine.

use super::*;
use crate::app::View;
use crate::diagnosis::Timeline;
use crate::model::{Batch, Edge, FactKey, Mark, Metric, SourceId, SourceState, Subject, Time};
use crate::probe::life::{Ask, Event, Refusal};
use crate::probe::protocol::{Message, Outcome};
use crate::probe::report::{Ending, GpuEnvironment, Level, Range, Report, Verdict};
use crate::probe::{Better, Check, Figure, PROBES, Params, Target};
use crate::store::{Retention, Store};
use crate::ui::theme::{Charset, Depth};

const NOW: Time = Time(1_795_960_600_000);
const ASCII: Theme = Theme { depth: Depth::Mono, charset: Charset::Ascii };

fn place() -> usize {
    PROBES.iter().position(|probe| probe.spec.id == "fake").unwrap()
}

fn ask(board: &mut Board) {
    let params = Params::of(&PROBES[place()].spec);
    let target = Target::default();
    board.ask(
        NOW,
        place(),
        Ask { run: "r".into(), target, params, forced: false, duty: None, agreed: false, most_ms: 60_000 },
    );
}

/// The last run of the fake probe: 231.4 GB/s, 98 % of the baseline, twelve minutes ago.
fn last() -> Report {
    let mut report = crate::probe::report::tests::report("r0", 231.4);
    let ago = NOW.0 - 720_000;
    (report.probe, report.target) = ("fake".to_owned(), Target::default());
    (report.started_unix_ms, report.ended_unix_ms) = (ago - 1_000, ago);
    report.verdict =
        Verdict { level: Level::Ok, summary: "Node 0 triad reaches 98 % of the baseline".into(), advice: Vec::new() };
    let judged = &mut report.results[0];
    (judged.reference, judged.pct_of_reference, judged.pct_of_datasheet) = (None, None, None);
    judged.pct_of_baseline = Some(98.2);
    report
}

/// A board after these events of the run.
fn board(events: &[Event]) -> Board {
    let mut board = Board::default();
    board.remember([last()].iter());
    ask(&mut board);
    for event in events {
        board.on(NOW, place(), event);
    }
    board
}

fn running() -> Vec<Event> {
    let progress = Message::Progress { done: 0.43, eta_s: Some(3.2), what: "node 0: triad".to_owned() };
    vec![Event::Yes, Event::Admitted("r".into()), Event::Heard("r".into(), progress)]
}

/// Every state, by name.
fn states() -> Vec<(&'static str, Option<Board>)> {
    let after = |more: &[Event]| Some(board(&[&running(), more].concat()));
    let refusal = Refusal {
        why: "an engine serves here (http://127.0.0.1:8000)".to_owned(),
        can_force: true,
        hint: "stop it, or force the run".to_owned(),
    };
    let mut full = board(&[]);
    full.on(NOW, place(), &Event::No);
    full.notice.push_str("the report could not be kept in 'reports/r.json': No space left on device");
    vec![
        ("none", None),
        ("never", Some(Board::default())),
        ("confirm", Some(board(&[]))),
        ("running", after(&[])),
        ("stopping", after(&[Event::Stop])),
        ("refused", Some(board(&[Event::Yes, Event::Refused("r".into(), refusal)]))),
        ("failed", after(&[Event::Gone("r".into(), "killed by signal 9".to_owned())])),
        (
            "cooling",
            after(&[
                Event::Heard("r".into(), Message::Result(Outcome::default())),
                Event::Gone("r".into(), "exit code 0".to_owned()),
            ]),
        ),
        ("full-disk", Some(full)),
    ]
}

fn drawn(board: Option<&Board>, size: (u16, u16), theme: Theme) -> String {
    seen(board, &Store::new(Retention::HOUR), &View::new(NOW), size, theme)
}

fn seen(board: Option<&Board>, store: &Store, view: &View, size: (u16, u16), theme: Theme) -> String {
    let (title, rows, _) = super::super::tests::seen::<Probes>(board, store, view, size, theme);
    format!("{title}\n{rows}\n")
}

#[test]
fn each_state_at_each_size() {
    let mut all = String::new();
    for (name, board) in states() {
        for (size, theme) in [((78, 5), Theme::FULL), ((38, 7), ASCII)] {
            let picture = drawn(board.as_ref(), size, theme);
            let _ = writeln!(all, "{name} {}x{}: {picture}", size.0, size.1);
        }
    }
    insta::assert_snapshot!("probes-states", all);
}

#[test]
fn a_question_says_what_it_costs_and_how_to_answer() {
    let (_, board) = states().remove(2);
    let picture = drawn(board.as_ref(), (118, 6), Theme::FULL);
    for words in ["run fake?", "Run fake on the host?", "about 1 s, 1 MiB of host memory", "y run it   n leave it"] {
        assert!(picture.contains(words), "no '{words}' in\n{picture}");
    }
}

#[test]
fn a_question_is_asked_whole_or_not_at_all() {
    let (_, board) = states().remove(2);
    for (size, whole) in
        [((118, 6), true), ((78, 3), true), ((78, 2), false), ((38, 4), true), ((38, 3), false), ((12, 30), false)]
    {
        let mut pane = Probes::default();
        pane.probes(board.as_ref());
        let (view, theme) = (View::new(NOW), Theme::MONO);
        let area = Rect::new(0, 0, size.0, size.1);
        pane.prepare(
            &Store::new(Retention::HOUR).read(),
            &Context { view: &view, theme: &theme, timeline: &Timeline::default(), focused: true },
            area,
        );
        assert_eq!(pane.asks(), whole, "{size:?}");
        let picture = drawn(board.as_ref(), size, theme);
        assert_eq!(picture.contains("y run it"), whole, "{size:?}\n{picture}");
        // Nothing is cut off.
        assert_eq!(
            whole,
            picture.replace("|\n|", " ").replace(' ', "").contains("1MiBofhostmemory.Itdisturbsnobody."),
            "{picture}"
        );
    }
    assert!(drawn(board.as_ref(), (38, 3), Theme::MONO).contains("Too small here"));
}

#[test]
fn a_question_about_a_gpu_that_is_not_there_is_none_about_the_host() {
    let mut board = Board::default();
    let hbm = PROBES.iter().position(|probe| probe.spec.id == "hbm").unwrap();
    let (params, target) = (Params::of(&PROBES[hbm].spec), Target::default());
    board.ask(
        NOW,
        hbm,
        Ask { run: "r".into(), target, params, forced: false, duty: None, agreed: false, most_ms: 60_000 },
    );
    let picture = drawn(Some(&board), (118, 6), Theme::FULL);
    assert!(picture.contains("Run device memory? It needs a GPU, and takes about"), "{picture}");
}

#[test]
fn the_keys_to_answer_are_there_however_small_it_is() {
    for (name, board) in states() {
        let board = board.as_ref();
        let key = match name {
            "confirm" => "n leave it",
            "running" | "stopping" => "x stop",
            "refused" => "F run it",
            _ => continue,
        };
        for size in [(78, 5), (38, 6), (24, 3), (12, 1)] {
            let picture = drawn(board, size, Theme::MONO);
            assert!(picture.contains(&key[..key.len().min(usize::from(size.0))]), "{name} at {size:?}:\n{picture}");
        }
    }
}

#[test]
fn a_row_without_a_figure_says_how_it_ended_once_and_what_goes_on_apart() {
    let mut stopped = last();
    (stopped.ending, stopped.results) = (Ending::Stopped, Vec::new());
    stopped.why = Some("by the user".to_owned());
    let end = [Event::Stop, Event::Gone("r".into(), String::new()), Event::Kept("r".into(), Ok(String::new()))];
    let mut board = Board::default();
    board.remember([stopped.clone()].iter());
    ask(&mut board);
    for event in [&running()[..], &end].concat() {
        board.on(NOW, place(), &event);
    }
    let picture = |board: &Board| drawn(Some(board), (78, 20), Theme::FULL);
    assert!(picture(&board).contains("stopped 12 min ago · cooling"), "{}", picture(&board));
    // Asked again too early.
    ask(&mut board);
    assert!(picture(&board).contains("fake cools down for 2 s, then ask again"), "{}", picture(&board));
    board.on_all(NOW + 60_000, &Event::Tick);
    let later = picture(&board);
    assert!(later.contains("stopped 12 min ago: by the user") && !later.contains("cools down"), "{later}");
    let title = seen(Some(&measured()), &h200(), &View::new(NOW), (118, 20), Theme::FULL);
    assert!(title.starts_with("device memory: Triad 3.98 TB/s"), "{title}");
}

/// A machine with one H200, as the driver tells it.
fn h200() -> Store {
    let store = Store::new(Retention::HOUR);
    let mut batch = Batch::new(SourceId::Nvml, NOW - 60_000, Batch::FOREVER);
    batch.state = Some(SourceState::Ok);
    batch.fact(Subject::Gpu(0), FactKey::Name, "NVIDIA H200");
    batch.fact(Subject::Gpu(0), FactKey::Uuid, "GPU-1");
    store.push(&batch);
    store
}

/// A board on which hbm reached 91 % of its reference on GPU-1, two hours ago.
fn measured() -> Board {
    let mut report = crate::probe::report::tests::report("20261130-081000-000-hbm-7", 3_980.0);
    report.ended_unix_ms = NOW.0 - 7_200_000;
    report.started_unix_ms = report.ended_unix_ms - 9_000;
    report.environment.driver = Some("580.159.03".to_owned());
    report
        .notes
        .push("arrays of 16 MiB are less than four times the 50 MiB of L2: part of it is the cache's".to_owned());
    let range = |min, max| Range { before: Some(min), min: Some(min), mean: Some(max), max: Some(max) };
    report.environment.gpus.push(GpuEnvironment {
        sm_clock_mhz: range(1_905.0, 1_980.0),
        temp_c: range(41.0, 52.0),
        power_w: range(120.0, 561.0),
        power_limit_w: Some(700.0),
        throttled_ms: [("sw_power_cap".to_owned(), Some(120.0)), ("hw_slowdown".to_owned(), None)].into(),
        ..GpuEnvironment::default()
    });
    report.environment.facts.insert("CUDA".to_owned(), "13.0".to_owned());
    let mut outcome = crate::probe::Outcome::default();
    for (id, label, value) in
        [("triad", "Triad", 3_980.0), ("copy", "Copy", 3_950.5), ("read_64mib", "Read of 64 MiB", 5_312.0)]
    {
        let figure = Figure::median(id, label, "GB/s", Better::Higher, &[value - 2.0, value, value + 1.0]).unwrap();
        outcome.figures.push(figure.by("512 MiB arrays"));
    }
    outcome.checks.push(Check {
        what: "triad: compared with the host's arithmetic".into(),
        passed: true,
        detail: String::new(),
    });
    report.take(outcome, None);
    let mut board = Board::default();
    board.remember([report].iter());
    board
}

/// The place of hbm in the list.
fn hbm() -> usize {
    listed().position(|probe| probe.spec.id == "hbm").unwrap()
}

#[test]
fn the_last_report_is_below_the_list_or_open_alone() {
    let (board, store) = (measured(), h200());
    let mut all = String::new();
    for (size, theme) in [((138, 30), Theme::FULL), ((78, 19), Theme::FULL), ((38, 9), ASCII)] {
        for report in [None, Some(0), Some(2)] {
            let view = View { probe: hbm(), report, ..View::new(NOW) };
            let picture = seen(Some(&board), &store, &view, size, theme);
            let _ = writeln!(all, "{}x{} {report:?}: {picture}", size.0, size.1);
        }
    }
    insta::assert_snapshot!("probes-report", all);
}

#[test]
fn a_result_is_shown_only_for_the_gpu_that_it_was_measured_on() {
    let (board, store) = (measured(), h200());
    let mut batch = Batch::new(SourceId::Nvml, NOW - 60_000, Batch::FOREVER);
    batch.fact(Subject::Gpu(1), FactKey::Name, "NVIDIA H200");
    batch.fact(Subject::Gpu(1), FactKey::Uuid, "GPU-2");
    store.push(&batch);
    let on = |gpu| seen(Some(&board), &store, &View { gpu, probe: hbm(), ..View::new(NOW) }, (78, 20), Theme::FULL);
    assert!(on(0).contains("3.98 TB/s") && on(0).contains("91 %") && on(0).contains("2 h ago"), "{}", on(0));
    assert!(!on(1).contains("3.98 TB/s") && on(1).contains("never run here"), "{}", on(1));
}

#[test]
fn a_probe_that_cannot_run_here_says_why() {
    let store = Store::new(Retention::HOUR);
    let words = || seen(Some(&measured()), &store, &View::new(NOW), (118, 20), Theme::FULL);
    assert!(!words().contains("needs a GPU"), "nothing is known of the driver yet: {}", words());
    let mut batch = Batch::new(SourceId::Nvml, NOW - 60_000, Batch::FOREVER);
    batch.state = Some(SourceState::Absent("libnvidia-ml.so.1 is not there".into()));
    store.push(&batch);
    assert!(words().contains("needs a GPU: libnvidia-ml.so.1 is not there"), "{}", words());
    let host = listed().find(|probe| probe.spec.id == "hostmem").unwrap();
    let line = words().lines().find(|line| line.contains(host.spec.name)).unwrap().to_owned();
    assert!(line.contains("never run here"), "{line}");
}

#[test]
fn a_recording_shows_what_ran_while_it_was_made() {
    let store = h200();
    for (ago, edge) in [(40_000, Edge::Start(60_000)), (25_000, Edge::End("done".into()))] {
        let mut batch = Batch::new(SourceId::Probe, NOW - ago, Batch::FOREVER);
        batch.marks.push(Mark { subject: Subject::Gpu(0), probe: "hbm".into(), run: "r".into(), edge });
        store.push(&batch);
    }
    let at = |end| seen(None, &store, &View::new(end), (78, 20), Theme::FULL);
    let line = |picture: &str| picture.lines().find(|line| line.contains("device memory")).unwrap().to_owned();
    assert!(at(NOW).contains("not on a recording"), "{}", at(NOW));
    assert!(line(&at(NOW)).contains("done 25 s ago, ran 15 s"), "{}", at(NOW));
    assert!(line(&at(NOW - 30_000)).contains("began 10 s ago"), "{}", at(NOW - 30_000));
    assert!(line(&at(NOW - 50_000)).contains("no run recorded"), "{}", at(NOW - 50_000));
    let mut batch = Batch::new(SourceId::Probe, NOW - 25_000, Batch::FOREVER);
    batch.push(Subject::Gpu(0), Metric::DramCeiling, 4.381e12);
    batch.fact(Subject::Gpu(0), FactKey::DramCeilingOrigin, &format!("triad {} r - 0.1.0", NOW.0 - 25_000));
    store.push(&batch);
    assert!(line(&at(NOW)).contains("4.38 TB/s measured 25 s ago"), "{}", at(NOW));
}

#[test]
fn any_size_is_drawn() {
    let (board, store) = (measured(), h200());
    for board in [Some(&board), None] {
        for size in [(0, 0), (1, 1), (5, 2), (12, 3), (30, 4), (200, 60)] {
            for report in [None, Some(0), Some(u16::MAX)] {
                seen(board, &store, &View { report, probe: usize::MAX, ..View::new(NOW) }, size, ASCII);
            }
        }
    }
}

#[test]
fn a_short_list_shows_the_chosen_probe_and_the_one_that_runs() {
    let line = |place: usize, runs: usize| {
        let mut line = Line::default();
        line.progress = (place == runs).then_some((0.5, None));
        line
    };
    let shown = |chosen, runs, rows: usize| {
        let pane = Probes { chosen, lines: (0..10).map(|place| line(place, runs)).collect(), ..Probes::default() };
        (0..rows).map(|y| pane.place(y, rows)).collect::<Vec<_>>()
    };
    assert_eq!(shown(0, 99, 4), [0, 1, 2, 3], "nothing runs");
    assert_eq!(shown(7, 99, 4), [4, 5, 6, 7]);
    assert_eq!(shown(9, 7, 4), [6, 7, 8, 9]);
    assert_eq!((shown(0, 9, 4), shown(9, 0, 4)), (vec![0, 1, 2, 9], vec![0, 1, 2, 9]), "far apart");
    assert_eq!((shown(0, 9, 1), shown(9, 0, 1)), (vec![0], vec![9]), "with an open report: its own");
    assert_eq!(shown(3, 5, 10), (0..10).collect::<Vec<_>>());
}

#[test]
fn a_question_about_an_engine_names_it_and_offers_another_where_there_is_one() {
    let Some(place) = PROBES.iter().position(|probe| probe.spec.needs == Needs::Endpoint) else { return };
    let params = Params::of(&PROBES[place].spec);
    let target = Target { endpoint: Some("http://h:8000".to_owned()), ..Target::default() };
    let mut board = Board::default();
    let ask = Ask { run: "r".into(), target, params, forced: false, duty: None, agreed: false, most_ms: 60_000 };
    board.ask(NOW, place, ask);
    let store = Store::new(Retention::HOUR);
    for (engine, several) in [(0, false), (1, true)] {
        let mut batch = Batch::new(SourceId::Engine(engine), NOW - 1_000, Batch::FOREVER);
        batch.fact(Subject::Engine(engine), FactKey::Url, "http://h:8000");
        store.push(&batch);
        let picture = seen(Some(&board), &store, &View::new(NOW), (118, 8), Theme::FULL);
        assert!(picture.contains("on http://h:8000"), "{picture}");
        assert_eq!(picture.contains("e another engine"), several, "{picture}");
    }
}

#[test]
fn where_there_is_little_room_a_sweep_asks_in_fewer_words() {
    let place = PROBES.iter().position(|probe| probe.spec.needs == Needs::Endpoint).unwrap();
    let params = Params::of(&PROBES[place].spec);
    let target = Target { endpoint: Some("http://127.0.0.1:8000".to_owned()), ..Target::default() };
    let ask = Ask { run: "r".into(), target, params, forced: false, duty: None, agreed: false, most_ms: 60_000 };
    let asked = |ask: &Ask, (width, height)| {
        let mut board = Board::default();
        board.ask(NOW, place, ask.clone());
        let mut pane = Probes::default();
        pane.probes(Some(&board));
        let view = View::new(NOW);
        let context = Context { view: &view, theme: &Theme::MONO, timeline: &Timeline::default(), focused: true };
        pane.prepare(&Store::new(Retention::HOUR).read(), &context, Rect::new(0, 0, width, height));
        (pane.asks(), drawn(Some(&board), (width, height), Theme::MONO))
    };
    // Inside of 40×10.
    let (asks, picture) = asked(&ask, (38, 4));
    assert!(
        asks && picture.contains("Load :8000? ≤20 min, ≤2.00M tokens;") && picture.contains("y run it"),
        "{picture}"
    );
    assert!(asked(&Ask { forced: true, ..ask.clone() }, (38, 4)).1.contains("although it was refused"));
    let (asks, picture) = asked(&ask, (38, 2));
    assert!(!asks && picture.contains("Too small here"), "{picture}");
    let (asks, picture) = asked(&ask, (118, 8));
    assert!(asks && picture.contains("It disturbs whoever else uses that server"), "{picture}");
    let mut nothing = ask.clone();
    nothing.params.put("levels", crate::probe::Value::Word("nothing".to_owned()));
    assert!(!asked(&nothing, (38, 4)).1.contains("Load :8000"), "one that comes to nothing says why");
}

#[test]
fn the_time_left_is_the_same_in_the_header() {
    let mut board = board(&running());
    let progress = Message::Progress { done: 0.5, eta_s: Some(230.0), what: "8 users".to_owned() };
    board.on(NOW, place(), &Event::Heard("r".into(), progress));
    let header = board.running().unwrap();
    assert!(header.contains("4 min left"), "{header}");
    assert!(drawn(Some(&board), (78, 12), Theme::FULL).contains("4 min left"));
}

#[test]
fn a_report_of_a_sweep_shows_its_levels_as_a_table() {
    use crate::load::level::{Bottleneck, Knee, Latency, Load, Quantile, Rate, State};
    let quantile = |value| Some(Quantile { value, lo: None, hi: None, enough: true });
    let level = |users: u32, n| crate::load::Level {
        load: Load::Users(users),
        state: if users > 32 { State::Failing } else { State::Done },
        ttft_s: Latency { n, p50: quantile(0.05), p99: quantile(0.21).filter(|_| n > 368), ..Latency::default() },
        output_tokens_per_s: Some(Rate { value: 420.0 * f64::from(users), lo: None, hi: None }),
        bottleneck: (users > 1).then(|| Bottleneck { word: "queue".to_owned(), evidence: String::new() }),
        ..Default::default()
    };
    let mut report = last();
    report.levels = vec![level(1, 400), level(8, 400), level(64, 30)];
    report.knee = Some(Knee { words: "throughput grows up to 18 users".to_owned(), ..Knee::default() });
    report.verdict.level = crate::probe::report::Level::Unknown;
    let point = |figure: &mut crate::probe::report::Judged| {
        (figure.figure.value, figure.figure.lo, figure.figure.hi) = (36.0, 36.0, 36.0);
    };
    report.results.iter_mut().skip(1).for_each(point);
    let mut details = Details::default();
    let table = |details: &mut Details, columns| {
        details.make(&PROBES[place()].spec, Some((&"r".into(), &report)), columns);
        let rows: Vec<_> = details.rows().iter().map(|(_, row)| row.clone()).collect();
        let from = rows.iter().position(|row| row.contains("tokens/s")).unwrap();
        rows[from..from + 5].join("\n")
    };
    insta::assert_snapshot!("probes-levels", [90, 40].map(|columns| table(&mut details, columns)).join("\n\n"));
    let rows = |details: &Details| details.rows().iter().map(|(_, row)| row.as_str()).collect::<Vec<_>>().join("\n");
    let words = rows(&details);
    assert!(words.starts_with("measured: "), "a good one is not unknown:\n{words}");
    assert!(words.contains("value") && !words.contains("median"), "{words}");
    report.ending = Ending::Stopped;
    details.make(&PROBES[place()].spec, Some((&"stopped".into(), &report)), 90);
    let words = rows(&details);
    assert!(words.starts_with("unknown: ") && words.contains("95 % interval"), "{words}");
    assert!(!words.contains("smallest") && !words.contains("36 – 36"), "{words}");
}
