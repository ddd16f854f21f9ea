//! The probes: key, name, last result and its share of the reference, or what is going on right now; and the last
//! report of the one that is chosen.
//!
//! It shows the board and judges nothing; refusals, costs and verdicts are worded where they are made.
//! What matters most stands first: a question, then a run, then why something did not run. On a recording, where
//! nothing can be run, it shows what ran while it was made.

mod details;
mod line;

use std::fmt::Write;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::model::Reading;
use crate::probe::board::{Board, Row as ProbeRow};
use crate::probe::life::{Ask, Ended, State};
use crate::probe::{Cost as ProbeCost, Needs, ProbeSpec, listed};
use crate::store::Data;
use crate::ui::chrome::words::Port;
use crate::ui::pane::{Context, Pane, PaneSpec};
use crate::ui::text::{columns, put, put_right, put_wrapped, width, wrap, wrapped_rows};
use crate::ui::theme::{Role, Theme};
use crate::ui::units::Number;

use details::Details;
use line::{Line, Result};

/// The pane.
pub(super) const SPEC: PaneSpec = PaneSpec {
    id: "probes",
    tab: "Probes",
    help: "What this machine can do, measured on a key press: each probe with its key, its last result on the chosen GPU, the \
           share of the reference for this GPU model (or of this machine's first run) and its age. Up and down choose one, \
           Enter opens its last report. A probe asks first and says what it costs; y runs it, x stops it from anywhere.",
    new: || Box::new(Probes::default()),
};

/// Why none can be run.
const RECORDED: &str = "probes run on the machine itself, not on a recording";
/// Width from which the title has room for that.
const WITH_TITLE: u16 = 66;
/// Least rows of a report below the list.
const BELOW: u16 = 4;

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
    /// Whether a question is shown whole.
    asks: bool,
    /// Place of the chosen line.
    chosen: usize,
    details: Details,
    /// First row of the report that is shown, while it has the pane for itself.
    first: Option<u16>,
    /// Columns of keys and names.
    indent: u16,
    parts: Parts,
}

/// How the pane is divided, from top to bottom.
#[derive(Clone, Copy, Debug, Default)]
struct Parts {
    text: Rect,
    keys: Rect,
    list: Rect,
    /// Its first row is a line with a caption.
    report: Rect,
}

impl Pane for Probes {
    fn probes(&mut self, board: Option<&Board>) {
        self.here = board.is_some();
        self.board = board.cloned();
    }

    fn prepare(&mut self, data: &Data, context: &Context<'_>, area: Rect) {
        self.title.clear();
        self.text.clear();
        self.keys = "";
        self.asks = false;
        let view = context.view;
        self.first = view.report;
        if let Some(board) = self.board.take() {
            self.lines.resize_with(board.shown().count(), Line::default);
            for (line, (_, row)) in self.lines.iter_mut().zip(board.shown()) {
                let elsewhere = board.elsewhere.as_ref().filter(|(probe, _)| *probe == row.probe.spec.id);
                line.fill(row, elsewhere.map(|(_, pid)| *pid), data, context);
            }
            self.word(&board, data.engines().take(2).count() > 1);
            self.ask(&board, area);
            self.word_title(&board);
            self.board = Some(board);
        } else {
            self.lines.resize_with(listed().count(), Line::default);
            for (line, probe) in self.lines.iter_mut().zip(listed()) {
                line.fill_recorded(&probe.spec, data, context);
            }
            self.title.push_str(RECORDED);
        }
        self.chosen = view.probe.min(self.lines.len().saturating_sub(1));
        let widest = self.lines.iter().map(Line::name_columns).max().unwrap_or_default();
        self.indent = widest.min(area.width / 2);
        if let (Some(spec), Some(line)) = (chosen(self.chosen), self.lines.get(self.chosen)) {
            let last = line.last.as_ref().map(|last| (&last.run, &*last.report));
            self.details.make(spec, last, area.width);
        }
        self.parts = self.divide(area);
    }

    fn title(&self) -> &str {
        &self.title
    }

    fn asks(&self) -> bool {
        self.asks
    }

    fn last_line(&self) -> Option<u16> {
        let rows = u16::try_from(self.details.rows().len()).unwrap_or(u16::MAX);
        self.first.map(|_| rows.saturating_sub(self.parts.report.height.saturating_sub(1)))
    }

    fn draw(&self, area: Rect, buf: &mut Buffer, context: &Context<'_>) {
        let theme = *context.theme;
        let parts = self.divide(area);
        let words = self.words(area);
        put_wrapped(buf, parts.text, theme.style(if self.here { Role::Warn } else { Role::Dim }), words);
        put(buf, parts.keys, (0, 0), theme.style(Role::Accent), format_args!("{}", self.keys));
        for y in 0..parts.list.height.min(u16::try_from(self.lines.len()).unwrap_or(u16::MAX)) {
            let place = self.place(usize::from(y), usize::from(parts.list.height));
            let Some(line) = self.lines.get(place) else { continue };
            let row = Rect { y: parts.list.y + y, height: 1, ..parts.list };
            // Those that the list has no row for.
            let hidden = self.lines.len().saturating_sub(usize::from(parts.list.height));
            let (plus, word) = if row.width < WITH_TITLE { ("+", "") } else { ("", " more") };
            let more = format_args!(" {plus}{hidden}{word}");
            // How far a run is comes first.
            let room = row.width >= WITH_TITLE || line.progress.is_none();
            let says = hidden > 0 && self.first.is_none() && y + 1 == parts.list.height && room;
            let left = Rect { width: row.width.saturating_sub(if says { columns(more) } else { 0 }), ..row };
            line.draw(buf, left, theme, self.indent, context.focused && place == self.chosen);
            if says {
                put_right(buf, row, (row.width, 0), theme.style(Role::Dim), more);
            }
        }
        self.draw_report(buf, parts.report, theme);
    }
}

/// The description of the probe at this place of those that people are shown.
fn chosen(place: usize) -> Option<&'static ProbeSpec> {
    listed().nth(place).map(|probe| &probe.spec)
}

impl Probes {
    /// Which line stands in row `y` of a list of `rows` rows: the chosen one and the one that runs are among them.
    fn place(&self, y: usize, rows: usize) -> usize {
        let runs = self.lines.iter().position(|line| line.progress.is_some()).unwrap_or(self.chosen);
        let (upper, lower) = (self.chosen.min(runs), self.chosen.max(runs));
        let to =
            |place: usize, rows: usize| (place + 1).saturating_sub(rows).min(self.lines.len().saturating_sub(rows));
        match lower - upper < rows {
            true => to(lower, rows) + y,
            // Too far apart: one of them, and the other in the last row or alone.
            false if rows < 2 => self.chosen,
            false if y + 1 == rows => lower,
            false => to(upper, rows - 1) + y,
        }
    }

    /// What there is to read above the list. Why nothing can be run says the title, where that has room for it.
    fn words(&self, area: Rect) -> &str {
        match (self.here, area.width < WITH_TITLE) {
            (true, _) => &self.text,
            (false, true) => RECORDED,
            (false, false) => "",
        }
    }

    /// Whether a question and the keys that answer it have room; where they have not, what to do about that.
    fn ask(&mut self, board: &Board, area: Rect) {
        let Some((place, ask, cost)) = board.confirming() else { return };
        self.asks = self.fits(area);
        if !self.asks && shortly(&mut self.text, ask, &cost) {
            self.keys = "y run it   n leave it";
            self.asks = self.fits(area);
        }
        if !self.asks {
            let name = board.rows()[place].probe.spec.name;
            self.text.clear();
            // Writing to a String never fails.
            let _ = write!(self.text, "Too small here to ask for {name}: enlarge the terminal.");
            self.keys = "n leave it";
        }
    }

    /// Whether words and keys have room.
    fn fits(&self, area: Rect) -> bool {
        let mut widest = width(self.keys);
        let rows = wrap(&self.text, area.width, |_, line| widest = widest.max(width(line)));
        widest <= area.width && rows < area.height
    }

    /// Divides the pane: words and keys have what they need, then the list, then the report. An open report leaves
    /// the list one line.
    fn divide(&self, area: Rect) -> Parts {
        let mut rest = area;
        let mut cut = |rows: u16| {
            let rows = rows.min(rest.height);
            let part = Rect { height: rows, ..rest };
            rest = Rect { y: rest.y.saturating_add(rows), height: rest.height - rows, ..rest };
            part
        };
        let keys = u16::from(!self.keys.is_empty());
        let text = cut(wrapped_rows(self.words(area), area.width).min(area.height.saturating_sub(keys)));
        let keys = cut(keys);
        let left = area.height - text.height - keys.height;
        let all = u16::try_from(self.lines.len()).unwrap_or(u16::MAX);
        let list = match self.first {
            Some(_) if left > 1 => 1,
            None if left >= all.saturating_add(BELOW) => all,
            _ => left,
        };
        let list = cut(list);
        Parts { text, keys, list, report: cut(u16::MAX) }
    }

    /// "── hbm ─────── 12 rows more: Enter ──", and the rows below it.
    fn draw_report(&self, buf: &mut Buffer, area: Rect, theme: Theme) {
        let Some(spec) = chosen(self.chosen).filter(|_| area.height > 1) else { return };
        let rule = if theme.unicode() { "─" } else { "-" };
        for x in 0..area.width {
            put(buf, area, (x, 0), theme.style(Role::Border), format_args!("{rule}"));
        }
        let (id, dim) = (spec.id, theme.style(Role::Dim));
        let end = match self.lines.get(self.chosen).and_then(|line| line.last.as_ref()) {
            Some(last) => put(buf, area, (2, 0), dim, format_args!(" {id} on {}, last report ", last.report.target)),
            None => put(buf, area, (2, 0), dim, format_args!(" {id}, no report ")),
        };
        let rows = self.details.rows();
        let room = usize::from(area.height - 1);
        let first = usize::from(self.first.unwrap_or(0)).min(rows.len().saturating_sub(room));
        let more = rows.len().saturating_sub(first + room);
        let rows_more = if more == 1 { "row more" } else { "rows more" };
        let hint = match (self.first, more) {
            (None, 0) => format_args!(""),
            (None, _) => format_args!(" {more} {rows_more}: Enter "),
            (Some(_), 0) => format_args!(" Enter: the list "),
            (Some(_), _) => format_args!(" {more} {rows_more}: down  Enter: the list "),
        };
        if end + 2 + columns(hint) < area.width {
            put_right(buf, area, (area.width.saturating_sub(2), 0), theme.style(Role::Dim), hint);
        }
        let below = Rect { y: area.y + 1, height: area.height - 1, ..area };
        for (y, (role, text)) in (0..below.height).zip(rows.iter().skip(first)) {
            put(buf, below, (0, y), theme.style(*role), format_args!("{text}"));
        }
    }

    /// What there is to read, and which keys answer it; `several`: there is more than one engine.
    fn word(&mut self, board: &Board, several: bool) {
        // Writing to a String never fails, here and below.
        let text = &mut self.text;
        if let Some((place, ask, cost)) = board.confirming() {
            let ProbeSpec { name, needs, .. } = board.rows()[place].probe.spec;
            let forced = if ask.forced { ", although it was refused" } else { "" };
            let _ = match needs.lacks(ask.target.gpus.len()) {
                // The preflight will say so; it is no run on the host.
                Some(lack) => write!(text, "Run {name}{forced}? It {lack:#}, and takes {cost}"),
                None => write!(text, "Run {name} on {}{forced}? It takes {cost}", ask.target),
            };
            if !text.ends_with('.') {
                text.push('.');
            }
            self.keys = match needs {
                Needs::Endpoint if several => "y run it   n leave it   e another engine",
                _ => "y run it   n leave it",
            };
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
        for note in [&board.notice, board.hint()] {
            if !note.is_empty() {
                let _ = write!(text, "{}{note}", if text.is_empty() { "" } else { " · " });
            }
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
            let _ = write!(self.title, "{} runs, {:.0} %: {}", line.name, done * 100.0, line.state());
            return;
        }
        let newest = self.lines.iter().filter(|line| line.last.is_some()).min_by_key(|line| line.age_ms);
        match newest.and_then(|line| Some((line.name, line.last.as_ref()?))) {
            Some((name, last)) => {
                // "host memory: Node 0 triad 35.1 GB/s": what it is the figure of.
                let between = if last.figure.is_empty() { "" } else { " " };
                let _ = write!(self.title, "{name}: {}{between}{}", last.figure, Result(last));
                if let Some((share, of)) = last.share {
                    let _ = write!(self.title, ", {share:.0} % {of}");
                }
            }
            None => self.title.push_str("none run here yet: the key before its name asks for one"),
        }
    }
}

/// "Load :8000? ≤20 min, ≤2.00M tokens; its users wait.": what a run asks of an endpoint in as few words as can be.
/// False where it is no such run, or one that comes to nothing.
fn shortly(text: &mut String, ask: &Ask, cost: &ProbeCost) -> bool {
    let loads = cost.load.as_ref().filter(|load| load.wrong.is_empty());
    let (Some(load), Some(url)) = (loads, &ask.target.endpoint) else { return false };
    let forced = if ask.forced { " although it was refused" } else { "" };
    // Never less than it may be.
    let (minutes, tokens) = ((cost.seconds / 60.0).ceil(), Number(Reading::new(load.most_tokens as f64)));
    text.clear();
    // Writing to a String never fails.
    let _ = write!(text, "Load {}{forced}? ≤{minutes} min, ≤{tokens} tokens; its users wait.", Port(url));
    true
}

fn failed(text: &mut String, row: &ProbeRow, ended: &Ended) {
    let word = ended.end.name();
    let between = if text.is_empty() { "" } else { " · " };
    let _ = write!(text, "{between}{} {word}: {}", row.probe.spec.name, ended.end.why());
}

#[cfg(test)]
#[path = "probes/tests.rs"]
mod tests;
