//! The pane of probes in each state of a probe: the fake one, whose cost is the same on every machine.

use super::*;
use crate::app::View;
use crate::probe::life::{Ask, Event, Refusal};
use crate::probe::protocol::{Message, Outcome};
use crate::probe::report::Ending;
use crate::probe::{PROBES, Params, Target};
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

fn last(at: Time) -> Last {
    Last {
        run: "r0".into(),
        at,
        ending: Ending::Done,
        level: Level::Ok,
        headline: Some((231.4, "GB/s".into())),
        share: Some((98.2, "of the baseline")),
        summary: "Node 0 triad reaches 98 % of the baseline".into(),
    }
}

/// A board after these events of the run.
fn board(events: &[Event]) -> Board {
    let mut board = Board::default();
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
    let mut remembered = Board::default();
    remembered.remember(std::iter::empty());
    let mut full = board(&[]);
    full.on(NOW, place(), &Event::No);
    full.notice.push_str("the report could not be kept in 'reports/r.json': No space left on device");
    vec![
        ("none", None),
        ("never", Some(remembered)),
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

fn drawn(board: Option<&Board>, with_last: bool, (width, height): (u16, u16), theme: Theme) -> String {
    let mut pane = Probes::default();
    pane.probes(board);
    let mut buf = Buffer::empty(Rect::new(0, 0, width, height));
    let view = View::new(NOW);
    let context = Context { view: &view, theme: &theme, focused: true };
    pane.prepare(&Store::new(Retention::HOUR).read(), &context, buf.area);
    if with_last {
        for line in &mut pane.lines {
            (line.last, line.age_ms) = (Some(last(NOW)), 720_000);
        }
    }
    pane.draw(buf.area, &mut buf, &context);
    if !theme.unicode() {
        crate::ui::text::to_ascii(&mut buf);
    }
    let row = |y| (0..width).map(|x| buf[(x, y)].symbol()).collect::<String>();
    let rows: Vec<String> = (0..height).map(|y| format!("|{}|", row(y))).collect();
    format!("{}\n{}\n", pane.title(), rows.join("\n"))
}

#[test]
fn each_state_at_each_size() {
    let mut all = String::new();
    for (name, board) in states() {
        for (size, theme) in [((78, 5), Theme::FULL), ((38, 7), ASCII)] {
            let picture = drawn(board.as_ref(), true, size, theme);
            let _ = writeln!(all, "{name} {}x{}: {picture}", size.0, size.1);
        }
    }
    insta::assert_snapshot!("probes-states", all);
}

#[test]
fn a_question_says_what_it_costs_and_how_to_answer() {
    let (_, board) = states().remove(2);
    let picture = drawn(board.as_ref(), false, (118, 6), Theme::FULL);
    for words in ["run fake?", "Run fake on the host?", "about 1 s, 1 MiB of host memory", "y run it   n leave it"] {
        assert!(picture.contains(words), "no '{words}' in\n{picture}");
    }
}

#[test]
fn the_keys_to_answer_are_there_however_small_it_is() {
    for (name, board) in states() {
        let board = board.as_ref();
        let key = match name {
            "confirm" => "y run it",
            "running" | "stopping" => "x stop",
            "refused" => "F run it",
            _ => continue,
        };
        for size in [(78, 5), (38, 6), (24, 3), (12, 1)] {
            let picture = drawn(board, false, size, Theme::MONO);
            assert!(picture.contains(&key[..key.len().min(usize::from(size.0))]), "{name} at {size:?}:\n{picture}");
        }
    }
}
