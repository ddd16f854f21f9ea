//! The pane on made-up sweeps: what a reader sees at each size, in colour and without, live and over. No figure here was
//! measured.

use std::fmt::Write as _;

use ratatui::style::Modifier;

use super::*;
use crate::app::View;
use crate::diagnosis::Timeline;
use crate::load::buckets::bucket;
use crate::load::level::{
    Agreement, Bottleneck, Client, Goodput, Knee, Lag, Latency, Load, Quantile, Rate, Requests, Server, Silicon, Slice,
    State,
};
use crate::model::{Batch, Edge, Mark, SourceId};
use crate::probe::PROBES;
use crate::probe::life::{Ask, Event};
use crate::probe::protocol::Message;
use crate::probe::{Params, Target};
use crate::store::{Retention, Store};
use crate::ui::theme::{Charset, Role};

const NOW: Time = Time(1_795_960_600_000);
const ASCII: Theme = Theme { depth: Depth::Mono, charset: Charset::Ascii };

/// `n` measurements from `least` on, most of them near it and a few far above.
fn tail(least: f64, n: u32) -> Vec<f64> {
    (0..n)
        .map(|i| least * (1.0 + 0.3 * f64::from(i) / f64::from(n) + 0.02 / (1.01 - f64::from(i) / f64::from(n))))
        .collect()
}

/// Their figures, as a client gives them.
fn latency_of(values: &[f64]) -> Latency {
    let n = values.len();
    let quantile = |q: f64, least: usize| {
        let value = *values.get(((q * n as f64).ceil() as usize).max(1) - 1)?;
        let enough = n >= least;
        Some(Quantile { value, lo: Some(value * 0.95), hi: enough.then_some(value * 1.08), enough })
    };
    let (p50, p95, p99) = (quantile(0.5, 6), quantile(0.95, 72), quantile(0.99, 368));
    Latency { n: n as u64, p50, p95, p99, ..Latency::default() }
}

fn slice_of(values: &[f64]) -> Vec<(u16, u32)> {
    values.iter().map(|value| (bucket(*value), 1)).collect()
}

/// A level of so many users with `n` measured requests, the `place`-th: beyond 16 users a queue forms.
fn level(place: u32, load: Load, n: u32) -> Level {
    let users = match load {
        Load::Users(users) => f64::from(users),
        Load::RequestsPerS(rate) => rate * 4.0,
        Load::Trace => 12.0,
    };
    let queue = (users - 16.0).max(0.0);
    let (ttft, itl) = (tail(0.04 + 0.02 * queue, n), tail(0.008 + 0.0002 * users.min(16.0), n));
    let e2e = tail(2.0 + 0.05 * users + 0.1 * queue, n);
    let rate = 420.0 * users.min(16.0) / (1.0 + users.min(16.0) / 60.0);
    let from = NOW.0 - 600_000 + u64::from(place) * 60_000;
    Level {
        place,
        load,
        state: State::Done,
        started_unix_ms: from,
        from_unix_ms: from + 4_000,
        to_unix_ms: from + 54_000,
        ended_unix_ms: from + 58_000,
        requests: Requests { sent: u64::from(n) + 20, measured: n.into(), ok: n.into(), ..Requests::default() },
        ttft_s: latency_of(&ttft),
        itl_s: latency_of(&itl),
        tpot_s: latency_of(&itl),
        e2e_s: latency_of(&e2e),
        requests_per_s: Some(Rate { value: rate / 128.0, lo: None, hi: None }),
        output_tokens_per_s: Some(Rate { value: rate, lo: Some(rate * 0.98), hi: Some(rate * 1.03) }),
        goodput: Some(Goodput {
            good: n.into(),
            n: n.into(),
            share: if queue > 0.0 { 0.62 } else { 0.998 },
            lo: 0.6,
            hi: 1.0,
            per_s: rate / 130.0,
        }),
        client: Client {
            dispatch_lag: Lag { n: n.into(), p50: Some(2e-5), p99: Some(0.000_21), max: Some(0.004) },
            loop_lag: Lag { n: 5_000, p50: Some(1e-5), p99: Some(0.000_4), max: Some(0.006) },
            cpu_pct: Some(3.0 + users / 4.0),
            in_flight: Some(users),
            most_in_flight: users as u64,
            ..Client::default()
        },
        slices: vec![Slice {
            from_unix_ms: from + 4_000,
            to_unix_ms: from + 54_000,
            ttft: slice_of(&ttft),
            itl: slice_of(&itl),
            tpot: slice_of(&itl),
            e2e: slice_of(&e2e),
        }],
        server: Some(server(users)),
        gpus: vec![gpu(users)],
        bottleneck: Some(match users {
            users if users > 30.0 => limit("queue", "30 requests wait while 18 run and KV cache is full"),
            users if users > 8.0 => limit("compute", "SMs active 84 % while DRAM is at 56 %"),
            _ => limit("latency", "neither SMs nor DRAM are busy: there is room for more users"),
        }),
        ..Level::default()
    }
}

/// What the server of so many users says of itself.
fn server(users: f64) -> Server {
    let queue = (users - 16.0).max(0.0);
    Server {
        running: Some(users.min(18.0)),
        waiting: Some(queue * 0.95),
        most_waiting: Some(queue),
        kv_used_pct: Some((users * 4.4).min(99.0)),
        most_kv_used_pct: Some((users * 5.0).min(100.0)),
        preemptions: Some(if queue > 20.0 { 7.0 } else { 0.0 }),
        prefix_hit_pct: Some(0.0),
        agreement: vec![Agreement {
            what: "requests running".into(),
            unit: "requests".into(),
            client: users,
            server_lo: users.min(18.0),
            server_hi: Some(users.min(18.0) + 1.0),
            agrees: queue < 20.0,
        }],
    }
}

/// What its GPU does.
fn gpu(users: f64) -> Silicon {
    Silicon {
        index: 0,
        sm_active_pct: Some((20.0 + users * 4.0).min(88.0)),
        dram_active_pct: Some(40.0 + users.min(16.0)),
        tensor_active_pct: Some(users.min(16.0) * 2.0),
        sm_clock_mhz: Some(if users > 30.0 { 1_755.0 } else { 1_980.0 }),
        sm_clock_max_mhz: Some(1_980.0),
        power_w: Some(300.0 + users.min(18.0) * 22.0),
        most_temp_c: Some(61.0),
        throttled_ms_per_s: (users > 30.0).then_some(420.0),
        throttled_by: (users > 30.0).then(|| "power cap".to_owned()),
    }
}

fn limit(word: &str, evidence: &str) -> Bottleneck {
    Bottleneck { word: word.into(), evidence: evidence.into() }
}

fn sweep(levels: Vec<Level>, runs: bool) -> board::Sweep {
    let run = "20261130-081000-000-sweep-7".into();
    board::Sweep { run, endpoint: "http://h:8000".into(), levels: Arc::new(levels), knee: None, runs }
}

const USERS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];

fn done(n: u32) -> Vec<Level> {
    (0..).zip(USERS).map(|(place, users)| level(place, Load::Users(users), n)).collect()
}

/// Levels up to 8 users, of which the last one is being measured.
fn running() -> board::Sweep {
    let mut levels = done(400);
    levels.truncate(4);
    levels[3] = level(3, Load::Users(8), 90);
    (levels[3].state, levels[3].bottleneck) = (State::Measuring, None);
    sweep(levels, true)
}

fn over() -> board::Sweep {
    let knee = Knee {
        at: 18.2,
        lo: 16.0,
        hi: 32.0,
        output_tokens_per_s: 5_306.0,
        words: "throughput grows up to 18 users".into(),
    };
    board::Sweep { knee: Some(knee), ..sweep(done(400), false) }
}

/// The last level failed, and no knee was found.
fn failing() -> board::Sweep {
    let mut levels = done(400);
    levels.truncate(6);
    levels[5] = level(5, Load::Users(32), 60);
    levels[5].state = State::Failing;
    levels[5].requests.measured = 90;
    (levels[5].requests.refused, levels[5].requests.cut) = (28, 2);
    levels[5].client.limits.push("its process used 97 % of a core".into());
    sweep(levels, false)
}

/// An endpoint on another host, whose metrics nobody reads.
fn remote() -> board::Sweep {
    let mut levels = done(400);
    for level in &mut levels {
        level.gpus.clear();
        (level.server, level.bottleneck, level.goodput) = (None, None, None);
    }
    sweep(levels, false)
}

fn open() -> board::Sweep {
    let rates = [0.5, 1.0, 2.0, 4.0, 8.0];
    let mut levels: Vec<_> =
        (0..).zip(rates).map(|(place, rate)| level(place, Load::RequestsPerS(rate), 100)).collect();
    levels[4].state = State::OverSaturated;
    let knee = Knee { at: 4.2, lo: 4.0, hi: 8.0, output_tokens_per_s: 5_300.0, words: String::new() };
    board::Sweep { knee: Some(knee), ..sweep(levels, false) }
}

fn many() -> board::Sweep {
    sweep((0..64).map(|place| level(place, Load::Users(place + 1), 12 + place * 10)).collect(), false)
}

/// Every kind of sweep by name.
fn sweeps() -> [(&'static str, board::Sweep); 7] {
    [
        ("running", running()),
        ("over", over()),
        ("failing", failing()),
        ("remote", remote()),
        ("open loop", open()),
        ("64 levels", many()),
        ("begins", sweep(Vec::new(), true)),
    ]
}

fn board(sweep: board::Sweep) -> Board {
    let mut board = Board::default();
    board.sweep = Some(sweep);
    board
}

/// The chosen engine is the one that was swept.
fn store() -> Store {
    engine("http://h:8000/")
}

fn engine(url: &str) -> Store {
    let store = Store::new(Retention::HOUR);
    let mut batch = Batch::new(SourceId::Engine(0), NOW - 5_000, Batch::FOREVER);
    batch.fact(Subject::Engine(0), FactKey::Url, url);
    store.push(&batch);
    store
}

fn drawn(board: Option<&Board>, view: &View, size: (u16, u16), theme: Theme) -> (String, String, Buffer) {
    seen(board, &store(), view, size, theme)
}

fn seen(board: Option<&Board>, store: &Store, view: &View, size: (u16, u16), theme: Theme) -> (String, String, Buffer) {
    super::super::tests::seen::<Sweep>(board, store, view, size, theme)
}

fn view() -> View {
    View::new(NOW)
}

/// The insides of 140×45, 80×24 and 40×10, where the pane has the screen for itself, and of its place among others.
#[test]
fn each_kind_of_sweep_at_each_size() {
    for (place, (name, sweep)) in sweeps().into_iter().enumerate() {
        let board = board(sweep);
        let mut all = String::new();
        // Colours change nothing about where things are: all themes for one of them.
        let themes: &[Theme] = if place == 1 { &[Theme::FULL, Theme::MONO, ASCII] } else { &[Theme::FULL] };
        for theme in themes {
            for size in [(138, 24), (78, 19), (78, 7), (38, 6)] {
                let (title, rows, _) = drawn(Some(&board), &view(), size, *theme);
                let (depth, charset) = (theme.depth, theme.charset);
                let _ = writeln!(all, "{}×{} {depth:?} {charset:?}: {title}\n{rows}\n", size.0, size.1);
            }
        }
        insta::assert_snapshot!(format!("sweep-{}", name.replace(' ', "-")), all);
    }
}

#[test]
fn the_title_is_the_answer() {
    let title = |sweep| drawn(Some(&board(sweep)), &view(), (78, 19), Theme::FULL).0;
    assert_eq!(title(running()), "8 users: P95 TTFT 63.5 ms so far, too few for a P99");
    let mut between = running();
    Arc::make_mut(&mut between.levels).pop();
    assert_eq!(title(between), "4 users: P99 TTFT 87.4 ms");
    assert_eq!(title(over()), "3 min ago; knee at 18 users (16–32): 5.31k tokens/s, then queue");
    let words = title(failing());
    assert!(
        words.starts_with("4 min ago; 32 users: 30 of 90 requests failed; no knee; most 5.31k tokens/s at 16 users"),
        "{words}"
    );
    assert!(words.ends_with("the client may have been the limit at 32 users"), "{words}");
    assert_eq!(
        title(open()),
        "5 min ago; knee at 4.20 requests/s (4–8): 5.30k tokens/s, then queue; over-saturated at 8 requests/s"
    );
    assert_eq!(title(sweep(Vec::new(), true)), "begins");
}

#[test]
fn what_is_not_the_chosen_engines_now_says_so() {
    let title = |sweep, store: &Store, view: &View| seen(Some(&board(sweep)), store, view, (78, 19), Theme::FULL).0;
    let other = engine("http://127.0.0.1:18261");
    assert_eq!(
        title(over(), &other, &view()),
        "of h:8000, not the chosen engine, 3 min ago; knee at 18 users (16–32): 5.31k tokens/s, then queue"
    );
    assert!(title(running(), &other, &view()).starts_with("of h:8000, not the chosen engine; 8 users: P95"));
    let none = Store::new(Retention::HOUR);
    assert!(title(over(), &none, &view()).starts_with("of h:8000, 3 min ago; knee"), "no engine is chosen");
    let at = |end| title(over(), &store(), &View { end, ..view() });
    assert!(at(NOW + 7_200_000).starts_with("2 h ago; knee"), "{}", at(NOW + 7_200_000));
    assert!(at(NOW - 400_000).starts_with("after the moment shown; knee"), "{}", at(NOW - 400_000));
    let mut timeless = over();
    for level in Arc::make_mut(&mut timeless.levels) {
        (level.ended_unix_ms, level.to_unix_ms, level.started_unix_ms) = (0, 0, 0);
    }
    assert!(title(timeless, &store(), &view()).starts_with("knee"), "an age that is not known is not made up");
}

#[test]
fn planned_levels_have_their_columns_before_they_begin() {
    let mut swept = running();
    let planned = |&users: &u32| Level { load: Load::Users(users), ..Level::default() };
    Arc::make_mut(&mut swept.levels).extend(USERS[4..].iter().map(planned));
    let board = board(swept);
    let (title, rows, buf) = drawn(Some(&board), &view(), (78, 19), Theme::FULL);
    assert_eq!(title, "8 users: P95 TTFT 63.5 ms so far, too few for a P99", "of the level that runs");
    let row = |word: &str| rows.lines().find(|row| row.contains(word)).unwrap().to_owned();
    assert!(row("users").contains("▸8") && row("users").contains("64") && !row("users").contains("▸64"), "{rows}");
    assert_eq!(row("limit").matches('·').count(), 3, "{rows}");
    assert_eq!(row("P99 TTFT").matches('·').count(), 3, "{rows}");
    // The last digit of 64: the rows have a frame here.
    let last = row("users").chars().collect::<Vec<_>>().iter().rposition(|c| *c == '6').unwrap() as u16;
    assert_eq!(buf[(last, 0)].fg, Theme::FULL.style(Role::Dim).fg.unwrap(), "{rows}");
    let (_, small, _) = drawn(Some(&board), &view(), (38, 6), Theme::FULL);
    assert!(small.contains("▸8"), "the level that runs is on screen:\n{small}");
    let read = |column| drawn(Some(&board), &View { cursor: Some((column, 0)), ..view() }, (138, 30), Theme::FULL).1;
    assert!(read(3).contains("8 users, level 4 of 7: measuring"), "{}", read(3));
    assert!(read(6).contains("64 users, level 7 of 7: planned") && !read(6).contains("measured in"), "{}", read(6));
    let none = sweep(USERS.iter().map(planned).collect(), true);
    assert_eq!(drawn(Some(&self::board(none)), &view(), (78, 19), Theme::FULL).0, "begins");
}

#[test]
fn how_far_it_is_comes_from_the_probe_that_runs() {
    let mut board = board(running());
    let place = PROBES.iter().position(|probe| probe.spec.id == "fake").unwrap();
    let params = Params::of(&PROBES[place].spec);
    let target = Target::default();
    let ask = Ask { run: "r".into(), target, params, forced: false, duty: None, agreed: false, most_ms: 60_000 };
    board.ask(NOW, place, ask);
    let progress = Message::Progress { done: 0.43, eta_s: None, what: String::new() };
    for event in [Event::Yes, Event::Admitted("r".into()), Event::Heard("r".into(), progress)] {
        board.on(NOW, place, &event);
    }
    let (title, ..) = drawn(Some(&board), &view(), (78, 19), Theme::FULL);
    assert!(title.starts_with("8 users, 43 %: P95 TTFT"), "{title}");
}

#[test]
fn where_no_sweep_is_it_says_how_to_get_one() {
    let (title, rows, _) = drawn(Some(&Board::default()), &view(), (78, 7), Theme::FULL);
    assert!(title.starts_with("none yet: p, then") && rows.contains("measures P99 over 1–64 users"), "{title}\n{rows}");
    let (title, rows, _) = drawn(None, &view(), (78, 7), Theme::FULL);
    assert!(title == "no sweep on this recording" && rows.contains("warptop probe show RUN"), "{title}\n{rows}");
    let store = Store::new(Retention::HOUR);
    let mut batch = Batch::new(SourceId::Probe, NOW - 5_000, Batch::FOREVER);
    let (subject, edge) = (Subject::Host, Edge::Start(60_000));
    batch.marks.push(Mark { subject, probe: "sweep".into(), run: "20261130-sweep-1".into(), edge });
    store.push(&batch);
    let mut pane = Sweep::default();
    let context = Context { view: &view(), theme: &Theme::FULL, timeline: &Timeline::default(), focused: true };
    pane.prepare(&store.read(), &context, Rect::new(0, 0, 78, 7));
    assert!(pane.notice.contains("warptop probe show 20261130-sweep-1"), "{}", pane.notice);
}

#[test]
fn the_latency_is_the_chosen_one() {
    let board = board(over());
    let label = |latency| drawn(Some(&board), &View { latency, ..view() }, (78, 19), Theme::FULL).1;
    for (metric, words) in [(Metric::Ttft, "P99 TTFT"), (Metric::Itl, "P99 ITL"), (Metric::QueueTime, "P99 E2E")] {
        assert!(label(metric).contains(words), "{}", label(metric));
    }
}

#[test]
fn the_cursor_reads_a_level_out() {
    let mut all = String::new();
    for (sweep, column) in [(over(), 5), (failing(), 5), (remote(), 0), (running(), 3), (open(), u16::MAX)] {
        let board = board(sweep);
        for size in [(138, 30), (78, 19), (38, 6)] {
            let view = View { cursor: Some((column, 0)), ..view() };
            let (_, rows, _) = drawn(Some(&board), &view, size, Theme::FULL);
            let _ = writeln!(all, "{column} at {}×{}\n{rows}\n", size.0, size.1);
        }
    }
    insta::assert_snapshot!("sweep-cursor", all);
}

#[test]
fn the_cursor_moves_over_every_level_and_its_column_is_on_screen() {
    let mut pane = Sweep::default();
    let area = Rect::new(0, 0, 78, 19);
    assert_eq!(pane.cursor_range(area), None);
    pane.probes(Some(&board(many())));
    assert_eq!(pane.cursor_range(area), Some((64, 1)));
    for place in [0, 1, 30, 63] {
        let view = View { cursor: Some((place, 0)), ..view() };
        let (_, rows, buf) = drawn(Some(&board(many())), &view, (78, 19), Theme::MONO);
        let reversed: String = (0..78)
            .filter(|x| buf[(*x, 0)].modifier.contains(Modifier::REVERSED))
            .map(|x| buf[(x, 0)].symbol())
            .collect();
        assert_eq!(reversed.trim(), (place + 1).to_string(), "{rows}");
    }
}

#[test]
fn a_quantile_that_n_does_not_allow_is_not_drawn() {
    let few = |n| drawn(Some(&board(sweep(done(n), false))), &view(), (78, 19), Theme::FULL).1;
    let row = |rows: &str| rows.lines().find(|row| row.contains("P99 TTFT")).unwrap().to_owned();
    assert!(row(&few(60)).contains("n60") && !few(60).contains("━━━"), "{}", few(60));
    assert!(row(&few(80)).contains("ms*") && !few(80).contains("━━━"), "{}", few(80));
    assert!(!row(&few(400)).contains('*') && few(400).contains("━━━"), "{}", few(400));
}

#[test]
fn the_knee_is_between_its_levels() {
    let (_, rows, _) = drawn(Some(&board(over())), &view(), (78, 19), ASCII);
    let head = rows.lines().next().unwrap();
    let head = head.trim_matches('|');
    let (sixteen, knee, more) = (head.find("16").unwrap(), head.find('|').unwrap(), head.find("32").unwrap());
    assert!(sixteen < knee && knee < more, "{rows}");
    let (_, rows, _) = drawn(Some(&board(running())), &view(), (78, 19), ASCII);
    assert!(!rows.lines().next().unwrap().trim_matches('|').contains('|'), "none is known yet:\n{rows}");
}

#[test]
fn every_size_is_drawn_and_nothing_is_made_twice() {
    for (_, sweep) in sweeps().into_iter().filter(|(name, _)| *name != "64 levels") {
        let board = board(sweep);
        for width in (0..30).chain([60, 100, 200]) {
            for height in (0..12).chain([40]) {
                for cursor in [None, Some((u16::MAX, u16::MAX))] {
                    drawn(Some(&board), &View { cursor, ..view() }, (width, height), ASCII);
                }
            }
        }
    }
    let mut pane = Sweep::default();
    pane.probes(Some(&board(over())));
    let (view, area) = (View { cursor: Some((2, 0)), ..view() }, Rect::new(0, 0, 78, 19));
    let context = Context { view: &view, theme: &Theme::FULL, timeline: &Timeline::default(), focused: true };
    let store = Store::new(Retention::HOUR);
    pane.prepare(&store.read(), &context, area);
    pane.readout.clear();
    pane.prepare(&store.read(), &context, area);
    assert!(pane.readout.lines().is_empty(), "made again for the same levels");
    pane.probes(Some(&board(over())));
    pane.prepare(&store.read(), &context, area);
    assert!(!pane.readout.lines().is_empty(), "other levels");
}
