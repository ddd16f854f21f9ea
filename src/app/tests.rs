//! The state machine under keys, ticks and random sequences of both.

use proptest::prelude::*;

use super::*;

fn app() -> App {
    let mut app = App::new(Origin::Live, Time(100_000), 6);
    let extent = Some((Time(10_000), Time(100_000)));
    let seen = Seen { extent, gpus: 0b101, engines: 0b10, ..Seen::default() };
    app.update(Event::Tick(Time(100_000), seen));
    app
}

fn press(app: &mut App, keys: &str) {
    for c in keys.chars() {
        app.update(Event::Key(Key::Char(c)));
    }
}

#[test]
fn the_next_gpu_is_one_that_exists() {
    let mut app = app();
    assert_eq!((app.view.gpu, app.view.engine), (0, 1), "engine 0 does not exist");
    press(&mut app, "g");
    assert_eq!(app.view.gpu, 2);
    press(&mut app, "g");
    assert_eq!(app.view.gpu, 0);
    press(&mut app, "Ge");
    assert_eq!((app.view.gpu, app.view.engine), (2, 1));
}

#[test]
fn the_next_latency_is_one_that_the_engine_exposes() {
    let mut app = app();
    let all: Vec<_> = View::LATENCIES.iter().map(|_| (press(&mut app, "m"), app.view.latency).1).collect();
    assert_eq!(all[..2], [Metric::Itl, Metric::Tpot], "nothing is known to be exposed");
    assert_eq!(all[6], Metric::Ttft);
    // Engine 1 has E2E and decode; engine 0, which is not chosen, has ITL.
    let latencies = [0, 0b01, 0, 0b10, 0, 0, 0b10];
    app.update(Event::Tick(Time(100_000), Seen { latencies, ..app.seen }));
    assert_eq!(app.view.latency, Metric::E2e, "TTFT was not exposed");
    let some: Vec<_> = (0..3).map(|_| (press(&mut app, "m"), app.view.latency).1).collect();
    assert_eq!(some, [Metric::DecodeTime, Metric::E2e, Metric::DecodeTime]);
    press(&mut app, "MM");
    assert_eq!(app.view.latency, Metric::DecodeTime);
}

#[test]
fn the_cursor_takes_the_arrows() {
    let mut app = app();
    app.update(Event::CursorRange(Some((50, 8))));
    press(&mut app, "chk");
    assert_eq!((app.view.cursor, app.view.end), (Some((24, 5)), Time(100_000)));
    app.update(Event::CursorRange(Some((100, 16))));
    assert_eq!(app.view.cursor, Some((49, 11)), "at the same time and height");
    app.update(Event::CursorRange(Some((10, 3))));
    assert_eq!(app.view.cursor, Some((4, 2)), "stays on the map");
    app.update(Event::CursorRange(Some((5, 1))));
    app.update(Event::CursorRange(Some((8, 1))));
    assert_eq!(app.view.cursor, Some((2, 0)), "more levels of a sweep: on the same one");
    press(&mut app, "ch");
    assert_eq!((app.view.cursor, app.view.end, app.view.live), (None, Time(94_000), false));
}

#[test]
fn where_no_cursor_can_be_seen_there_is_none_and_the_arrows_move_in_time() {
    let mut app = app();
    app.update(Event::CursorRange(None));
    press(&mut app, "ch");
    assert_eq!((app.view.cursor, app.view.end), (None, Time(94_000)));
    app.update(Event::CursorRange(Some((50, 8))));
    press(&mut app, "c");
    assert!(app.view.cursor.is_some());
    // Another pane, or a screen too small for one.
    app.update(Event::CursorRange(None));
    assert_eq!(app.view.cursor, None);
    press(&mut app, "h");
    assert_eq!(app.view.end, Time(88_000));
}

#[test]
fn escape_closes_one_thing_at_a_time() {
    let mut app = app();
    app.update(Event::CursorRange(Some((50, 8))));
    press(&mut app, "cz?");
    let state = |app: &App| (app.help.is_some(), app.zoomed, app.view.cursor.is_some());
    let mut states = vec![state(&app)];
    for _ in 0..3 {
        app.update(Event::Key(Key::Esc));
        states.push(state(&app));
    }
    assert_eq!(states, [(true, true, true), (false, true, true), (false, false, true), (false, false, false)]);
}

#[test]
fn the_demo_is_offered_only_where_nothing_is() {
    let mut empty = App::new(Origin::Live, Time(5), 6);
    assert_eq!(empty.update(Event::Key(Key::Char('d'))), Some(Effect::Demo));
    assert_eq!(app().update(Event::Key(Key::Char('d'))), None);
    let mut replay = App::new(Origin::Recording, Time(5), 6);
    assert_eq!(replay.update(Event::Key(Key::Char('d'))), None);
}

#[test]
fn probes_are_told_only_from_their_pane_but_stopped_from_anywhere() {
    let mut app = App::new(Origin::Live, Time(1), 6).with_probes(Some(4));
    let key = |app: &mut App, c| app.update(Event::Key(Key::Char(c)));
    for c in ['y', 'n', 'F'] {
        assert_eq!(key(&mut app, c), None, "{c}");
    }
    assert_eq!(key(&mut app, 'x'), Some(Effect::Probe(Order::Stop)));
    key(&mut app, 'p');
    assert_eq!(app.focus, 4);
    assert_eq!(key(&mut app, 'y'), None, "no question was seen");
    for (event, answer) in [
        (Event::Tick(Time(2), Seen::default()), Some(Effect::Probe(Order::Yes))),
        (Event::Readable(false), None),
        (Event::Resize, None),
        (Event::Key(Key::Char(PROBES[0].spec.key)), None),
        (Event::Key(Key::Char('z')), None),
    ] {
        app.update(Event::Readable(true));
        app.update(event);
        assert_eq!(key(&mut app, 'y'), answer, "{event:?}");
        assert_eq!(key(&mut app, 'y'), None, "once");
    }
    assert_eq!(key(&mut app, 'F'), Some(Effect::Probe(Order::Force)));
    assert_eq!(app.update(Event::Key(Key::Esc)), None, "nobody asks");
    app.update(Event::Noted(true));
    assert_eq!(app.update(Event::Key(Key::Esc)), Some(Effect::Probe(Order::Seen)));
    app.update(Event::Asking(Some(0)));
    assert_eq!(app.update(Event::Key(Key::Esc)), Some(Effect::Probe(Order::No)));
    let first = PROBES.iter().position(|probe| !probe.spec.hidden).unwrap();
    assert_eq!(key(&mut app, PROBES[first].spec.key), Some(Effect::Probe(Order::Ask(first, Aim::default()))));
    // The help hides the pane.
    key(&mut app, '?');
    assert_eq!((key(&mut app, 'y'), key(&mut app, 'x')), (None, Some(Effect::Probe(Order::Stop))));
}

#[test]
fn another_engine_is_another_question() {
    let mut app = app().with_probes(Some(0));
    app.update(Event::Tick(Time(100_000), Seen { engines: 0b1010, ..app.seen }));
    let place = |endpoint| PROBES.iter().position(|probe| (probe.spec.needs == Needs::Endpoint) == endpoint);
    let mut press = |asking, c| {
        app.update(Event::Asking(asking));
        let effect = app.update(Event::Key(Key::Char(c)));
        (app.view.engine, effect)
    };
    assert_eq!(press(None, 'e'), (3, None), "nobody asks");
    assert_eq!(press(place(false), 'e'), (1, None), "the question is about no engine");
    let Some(sweep) = place(true) else { return };
    let asked = |engine| Some(Effect::Probe(Order::Ask(sweep, Aim { engine, ..Aim::default() })));
    assert_eq!(press(Some(sweep), 'e'), (3, asked(3)));
    assert_eq!(press(Some(sweep), 'E'), (1, asked(1)));
    // Elsewhere the key only chooses, and where there is one engine nothing is asked again.
    app.update(Event::Key(Key::Tab));
    app.update(Event::Asking(Some(sweep)));
    assert_eq!(app.update(Event::Key(Key::Char('e'))), None);
    app.update(Event::Key(Key::BackTab));
    app.update(Event::Tick(Time(100_000), Seen { engines: 0b1000, ..app.seen }));
    assert_eq!(app.update(Event::Key(Key::Char('e'))), None);
}

#[test]
fn keys_of_probes_leave_those_that_must_work_in_their_pane() {
    for probe in PROBES {
        let action = Action::of(Key::Char(probe.spec.key)).map(|(action, _)| action);
        let taken = [
            Action::Quit,
            Action::Help,
            Action::Probes,
            Action::Yes,
            Action::No,
            Action::Force,
            Action::Stop,
            Action::FocusNext,
            Action::FocusPrevious,
            Action::Show,
            Action::Zoom,
            Action::NextGpu,
            Action::PreviousGpu,
            Action::Up,
            Action::Down,
            Action::Back,
            Action::Pause,
            Action::Peak,
        ];
        let free = action.is_none_or(|action| !taken.contains(&action));
        assert!(free, "{}: '{}' is {action:?}", probe.spec.id, probe.spec.key);
        let others = PROBES.iter().filter(|other| other.spec.key == probe.spec.key).count();
        assert_eq!(others, 1, "two probes have the key '{}'", probe.spec.key);
    }
}

#[test]
fn the_help_names_the_keys_that_mean_something_else_among_the_probes() {
    let help = ACTIONS.iter().find(|spec| spec.action == Action::Probes).unwrap().help;
    let (_, named) = help.split_once("elsewhere: ").unwrap();
    for probe in PROBES.iter().filter(|probe| !probe.spec.hidden) {
        let key = Key::Char(probe.spec.key);
        let named = named.split([' ', ',', '.']).any(|word| word == key.to_string());
        assert_eq!(named, Action::of(key).is_some(), "{key}");
    }
}

#[test]
fn a_report_is_looked_at_without_starting_anything() {
    let mut app = App::new(Origin::Live, Time(1), 6).with_probes(Some(4));
    let last = listed().count() - 1;
    app.update(Event::LastLine(7));
    let mut press = |keys: &[Key]| {
        let effects: Vec<_> = keys.iter().filter_map(|&key| app.update(Event::Key(key))).collect();
        assert_eq!(effects, [], "{keys:?}");
        (app.view.probe, app.view.report, app.zoomed)
    };
    assert_eq!(press(&[Key::Down, Key::Enter, Key::Enter]), (0, None, false), "in another pane");
    assert_eq!(press(&[Key::Char('p')]), (0, None, false));
    assert_eq!(press(&[Key::Char('j'), Key::Down, Key::Up, Key::Char('j')]), (2.min(last), None, false));
    assert_eq!(press(&[Key::Down; 40]), (last, None, false));
    assert_eq!(press(&[Key::Enter, Key::Down, Key::Down]), (last, Some(2), false));
    assert_eq!(press(&[Key::Down; 40]), (last, Some(7), false), "no further than its last line");
    assert_eq!(press(&[Key::Char('z'), Key::Esc]), (last, None, true), "the report closes first");
    assert_eq!(press(&[Key::Esc, Key::Up]), (last.saturating_sub(1), None, false));
}

#[test]
fn the_latency_that_is_shown_is_one_that_the_engine_exposes() {
    let mut app = App::new(Origin::Live, Time(1), 6).without_gpu(Some(2));
    let seen = |itl: u64, e2e: u64| Seen { engines: 1, latencies: [0, itl, 0, e2e, 0, 0, 0], ..Seen::default() };
    app.update(Event::Tick(Time(2), seen(0, 0)));
    assert_eq!((app.view.latency, app.focus), (Metric::Ttft, 2), "none is known yet; there is no GPU");
    app.update(Event::Key(Key::Char('1')));
    app.update(Event::Tick(Time(3), seen(0, 1)));
    assert_eq!((app.view.latency, app.focus), (Metric::E2e, 0));
    app.update(Event::Tick(Time(4), seen(1, 1)));
    assert_eq!(app.view.latency, Metric::E2e, "it stays while it is exposed");
}

#[test]
fn the_evidence_opens_from_everywhere_scrolls_and_closes() {
    let mut app = App::new(Origin::Live, Time(1), 6).with_probes(Some(4));
    let mut press = |keys: &[Key]| {
        for &key in keys {
            assert_eq!(app.update(Event::Key(key)), None);
        }
        app.update(Event::LastLine(2));
        (app.evidence, app.help)
    };
    assert_eq!(press(&[Key::Enter]), (Some(0), None));
    assert_eq!(press(&[Key::Down; 5]), (Some(2), None), "no further than its last line");
    assert_eq!(press(&[Key::Up]), (Some(1), None));
    assert_eq!(press(&[Key::Char('?')]), (None, Some(0)), "the help takes its place");
    assert_eq!(press(&[Key::Enter, Key::Esc]), (None, None));
    assert_eq!(press(&[Key::Char('p'), Key::Enter]), (None, None), "there it opens a report");
    assert_eq!(press(&[Key::Char('D')]), (Some(0), None));
    assert_eq!(press(&[Key::Enter]), (None, None), "closes what is open");
}

#[test]
fn the_probe_that_is_asked_for_is_the_one_that_is_looked_at() {
    let mut app = App::new(Origin::Live, Time(1), 6).with_probes(Some(4));
    let (place, probe) = listed().enumerate().last().unwrap();
    for key in [Key::Char('p'), Key::Enter, Key::Char(probe.spec.key)] {
        app.update(Event::Key(key));
    }
    assert_eq!((app.view.probe, app.view.report), (place, None));
}

fn any_event() -> impl Strategy<Value = Event> {
    let keys: Vec<Key> = ACTIONS.iter().flat_map(|s| s.keys.iter().copied()).collect();
    let extent = proptest::option::of((any::<u64>(), any::<u64>()));
    let seen = (any::<u64>(), any::<u64>(), extent, any::<bool>()).prop_map(|(gpus, engines, extent, complete)| Seen {
        complete,
        latencies: [gpus, engines, gpus, 0, 0, engines, 0],
        extent: extent.map(|(a, b)| (Time(a.min(b)), Time(a.max(b)))),
        gpus,
        engines,
    });
    prop_oneof![
        8 => proptest::sample::select(keys).prop_map(Event::Key),
        1 => any::<char>().prop_map(|c| Event::Key(Key::Char(c))),
        2 => (any::<u64>(), seen).prop_map(|(now, seen)| Event::Tick(Time(now), seen)),
        1 => any::<Option<(u16, u16)>>().prop_map(Event::CursorRange),
        1 => Just(Event::Resize),
        1 => prop::option::of(0..PROBES.len()).prop_map(Event::Asking),
        1 => any::<bool>().prop_map(Event::Readable),
        1 => any::<bool>().prop_map(Event::Noted),
        1 => any::<u16>().prop_map(Event::LastLine),
    ]
}

proptest! {
    #[test]
    fn any_sequence_of_events_is_survived(
        panes in 0_usize..8,
        origin in proptest::sample::select(vec![Origin::Live, Origin::Stream, Origin::Recording, Origin::Demo]),
        events in proptest::collection::vec(any_event(), 0..200),
    ) {
        let mut app = App::new(origin, Time(1_000_000), panes).with_probes((panes > 3).then_some(3));
        for event in events {
            app.update(event);
            prop_assert!(app.focus < panes.max(1) && app.view.probe < listed().count());
            prop_assert!(View::SPANS.contains(&app.view.span_ms));
            prop_assert_eq!(app.view.end, app.playhead.end());
            prop_assert!(app.view.cursor.is_none_or(|(c, r)| app.cursor_range.is_some_and(|(columns, rows)| c < columns && r < rows)));
        }
        prop_assert_eq!(app.update(Event::Key(Key::Char('q'))), Some(Effect::Quit(Exit::Asked)));
    }
}
