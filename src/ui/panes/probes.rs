//! The probes: key, name, last result and its share of the reference, or what is going on right now.
//!
//! It shows the board and judges nothing; refusals, costs and verdicts are worded where they are made.
//! What matters most stands first: a question, then a run, then why something did not run.

use std::fmt::{self, Display, Formatter, Write};

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::model::{Reading, Time};
use crate::probe::board::{Board, Last, Row as ProbeRow};
use crate::probe::life::{Ended, State};
use crate::probe::report::{Ending, Level};
use crate::store::Data;
use crate::ui::pane::{Context, Pane, PaneSpec};
use crate::ui::text::{put, put_wrapped, wrapped_rows};
use crate::ui::theme::{Role, Theme};
use crate::ui::units::{BytesPerSecond, Number, Span};
use crate::ui::widgets::meter;

use super::notice;
use super::row::Row;

/// The pane.
pub(super) const SPEC: PaneSpec = PaneSpec {
    id: "probes",
    tab: "Probes",
    help: "What this machine can do, measured on a key press: each probe with its key, its last result, the share of the \
           reference for this GPU model (or of this machine's first run) and its age. A probe asks first and says what \
           it costs; y runs it, x stops it from anywhere.",
    new: || Box::new(Probes::default()),
};

/// Columns of the name.
const NAME: u16 = 14;
/// Width from which a result has room for its share in words and its age.
const WIDE: u16 = 56;
/// Columns of a bar.
const BAR: u16 = 12;

/// A line of the list.
#[derive(Debug, Default)]
struct Line {
    key: char,
    name: &'static str,
    progress: Option<(f64, Option<f64>)>,
    last: Option<Last>,
    age_ms: u64,
    /// What is going on, in a word or two; empty while nothing is.
    state: String,
}

/// What is drawn.
#[derive(Debug, Default)]
struct Probes {
    title: String,
    /// Whether probes can be run at all.
    here: bool,
    board: Option<Board>,
    lines: Vec<Line>,
    /// What the user has to read: a question, a refusal, a failure.
    text: String,
    /// What may be pressed now.
    keys: &'static str,
}

impl Pane for Probes {
    fn probes(&mut self, board: Option<&Board>) {
        self.here = board.is_some();
        self.board = board.cloned();
    }

    fn prepare(&mut self, _: &Data, context: &Context<'_>, _: Rect) {
        self.title.clear();
        self.text.clear();
        self.keys = "";
        let Some(board) = self.board.take() else {
            self.lines.clear();
            self.title.push_str("probes run on the machine itself, not on a recording");
            return;
        };
        self.lines.resize_with(board.shown().count(), Line::default);
        for (line, (_, row)) in self.lines.iter_mut().zip(board.shown()) {
            line.fill(row, context.view.end);
        }
        self.word(&board);
        self.word_title(&board);
        self.board = Some(board);
    }

    fn title(&self) -> &str {
        &self.title
    }

    fn draw(&self, area: Rect, buf: &mut Buffer, context: &Context<'_>) {
        let theme = *context.theme;
        if !self.here {
            notice::draw(buf, area, theme, &self.title);
            return;
        }
        let mut rest = area;
        if !self.text.is_empty() || !self.keys.is_empty() {
            let keys = u16::from(!self.keys.is_empty());
            let rows = wrapped_rows(&self.text, area.width).min(area.height.saturating_sub(keys));
            put_wrapped(buf, Rect { height: rows, ..area }, theme.style(Role::Warn), &self.text);
            rest = Rect { y: area.y + rows, height: area.height - rows, ..area };
            if keys > 0 {
                put(buf, rest, (0, 0), theme.style(Role::Accent), format_args!("{}", self.keys));
                rest = Rect { y: rest.y.saturating_add(1), height: rest.height.saturating_sub(1), ..rest };
            }
        }
        for (y, line) in (0..rest.height).zip(&self.lines) {
            line.draw(buf, Rect { y: rest.y + y, height: 1, ..rest }, theme);
        }
    }
}

impl Probes {
    /// What there is to read, and which keys answer it.
    fn word(&mut self, board: &Board) {
        // Writing to a String never fails, here and below.
        let text = &mut self.text;
        if let Some((place, ask, cost)) = board.confirming() {
            let name = board.rows()[place].probe.spec.name;
            let forced = if ask.forced { ", although it was refused" } else { "" };
            let _ = write!(text, "Run {name} on {}{forced}? It takes {cost}", ask.target);
            if !text.ends_with('.') {
                text.push('.');
            }
            self.keys = "y run it   n leave it";
            return;
        }
        if board.active().is_some() {
            self.keys = "x stop";
        }
        for (_, row) in board.shown() {
            match row.life.state() {
                State::Refused(_, refusal) => {
                    let name = row.probe.spec.name;
                    let _ = write!(text, "{}{name} not run: {}", if text.is_empty() { "" } else { " · " }, refusal.why);
                    if !refusal.hint.is_empty() {
                        let _ = write!(text, ": {}", refusal.hint);
                    }
                    if refusal.can_force && self.keys.is_empty() {
                        self.keys = "F run it all the same";
                    }
                }
                State::Failed(ended) | State::Stopped(ended) | State::Cooling(ended, _)
                    if !ended.end.why().is_empty() =>
                {
                    failed(text, row, ended);
                }
                _ => {}
            }
        }
        if !board.notice.is_empty() {
            let _ = write!(text, "{}{}", if text.is_empty() { "" } else { " · " }, board.notice);
        }
    }

    fn word_title(&mut self, board: &Board) {
        if let Some((place, ..)) = board.confirming() {
            let _ = write!(self.title, "run {}?", board.rows()[place].probe.spec.name);
            return;
        }
        let active = self.lines.iter().find(|line| line.progress.is_some());
        if let Some(line) = active {
            let (done, _) = line.progress.unwrap_or_default();
            let _ = write!(self.title, "{} runs, {:.0} %", line.name, done * 100.0);
            return;
        }
        let newest = self.lines.iter().filter(|line| line.last.is_some()).min_by_key(|line| line.age_ms);
        match newest.and_then(|line| Some((line.name, line.last.as_ref()?))) {
            Some((name, last)) => {
                let _ = write!(self.title, "{name}: {}", Result(last));
                if let Some((share, of)) = last.share {
                    let _ = write!(self.title, ", {share:.0} % {of}");
                }
            }
            None => self.title.push_str("none run here yet: the key before its name asks for one"),
        }
    }
}

fn failed(text: &mut String, row: &ProbeRow, ended: &Ended) {
    let word = ended.end.name();
    let between = if text.is_empty() { "" } else { " · " };
    let _ = write!(text, "{between}{} {word}: {}", row.probe.spec.name, ended.end.why());
}

impl Line {
    fn fill(&mut self, row: &ProbeRow, now: Time) {
        (self.key, self.name) = (row.probe.spec.key, row.probe.spec.name);
        self.last.clone_from(&row.last);
        self.age_ms = row.last.as_ref().map_or(u64::MAX, |last| now.since(last.at));
        self.progress = None;
        self.state.clear();
        match row.life.state() {
            State::Idle | State::Done(_) => {}
            State::Confirm(_) => self.state.push_str("run it?"),
            State::Preflight(..) => self.state.push_str("looking at the machine"),
            State::Running(running) => {
                let (done, eta_s, what) = &running.progress;
                self.progress = Some((*done, *eta_s));
                self.state.push_str(if running.ending.is_some() { "stopping" } else { what });
            }
            State::Cooling(..) => self.state.push_str("cooling"),
            State::Stopped(_) => self.state.push_str("stopped"),
            State::Refused(..) => self.state.push_str("not run"),
            State::Failed(_) => self.state.push_str("failed"),
        }
    }

    fn draw(&self, buf: &mut Buffer, area: Rect, theme: Theme) {
        let (dim, text) = (theme.style(Role::Dim), theme.style(Role::Text));
        put(buf, area, (0, 0), theme.style(Role::Accent), format_args!("{}", self.key));
        put(buf, area, (2, 0), text, format_args!("{}", self.name));
        let indent = (2 + NAME).min(area.width);
        let right = Rect { x: area.x + indent, width: area.width - indent, ..area };
        let mut row = Row::new(buf, right);
        if let Some((done, eta_s)) = self.progress {
            row.picture(BAR, |buf, area| meter(buf, area, &theme, Some(done), theme.style(Role::Line)));
            row.gap(1).part(&[(text, format_args!("{:3.0} %", done * 100.0))]);
            if let Some(eta_s) = eta_s {
                row.gap(1).part(&[(dim, format_args!("{eta_s:.0} s left"))]);
            }
            row.gap(1).part(&[(dim, format_args!("{}", self.state))]);
            return;
        }
        let Some(last) = &self.last else {
            let words = if self.state.is_empty() { "never run here" } else { &self.state };
            row.part(&[(dim, format_args!("{words}"))]);
            return;
        };
        let style = match last.level {
            Level::Watch | Level::Failed => theme.style(Role::Warn),
            Level::Ok | Level::Unknown => text,
        };
        row.part(&[(style, format_args!("{:>10}", Result(last)))]);
        if let Some((share, of)) = last.share {
            row.gap(1).part(&[(style, format_args!("{share:>4.0} %"))]);
            if area.width >= WIDE {
                row.gap(1).part(&[(dim, format_args!("{of:<16}"))]);
            }
        }
        if self.state.is_empty() {
            row.gap(1).part(&[(dim, format_args!("{} ago", Span(self.age_ms)))]);
        } else {
            row.gap(1).part(&[(text, format_args!("{}", self.state))]);
        }
    }
}

/// The figure of a run on one line, or how it ended.
struct Result<'a>(&'a Last);

impl Display for Result<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.0.headline {
            // Rates of memory have prefixes of their own.
            Some((value, unit)) if unit.as_ref() == "GB/s" => BytesPerSecond(Reading::new(value * 1e9)).fmt(f),
            Some((value, unit)) => write!(f, "{} {unit}", Number(Reading::new(*value))),
            None => f.pad(match self.0.ending {
                Ending::Done => "no figure",
                Ending::Stopped => "stopped",
                Ending::Refused => "not run",
                Ending::Failed => "failed",
            }),
        }
    }
}

#[cfg(test)]
#[path = "probes/tests.rs"]
mod tests;
