//! The verdict: in the first lines of every screen, what state the server is in, what its clients see, why, what would
//! help, and what else is found.
//!
//! It is worded once for each second, size and choice, for the room there is: no sentence is ever cut. It words what the
//! diagnosis says and judges nothing.

pub(in crate::ui) mod events;
pub(in crate::ui) mod words;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::diagnosis::{Cause, ClientView, Diagnosis, Finding, Severity};
use crate::model::{Subject, Time};
use crate::store::Data;

use super::text::{put, put_right, width, wrap, wrapped_rows};
use super::theme::{Role, Theme};
use words::Parts;

/// Least width of a screen that has room for the hint.
const HINTED: u16 = 60;
const HINT: &str = "Enter: evidence";

/// Most rows in which the block is why and what would help, a row each, without what clients see.
const COMPACT: u16 = 2;
/// Least rows in which a limit that every server has is worth one beside a cause that asks for action.
const ROOMY: u16 = 6;

/// A line of the block; it may take several rows.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    label: &'static str,
    role: Role,
    text: String,
}

/// What a wording depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    at: Time,
    findings: usize,
    engine: u8,
    columns: u16,
    rows: u16,
}

/// The block.
#[derive(Debug)]
pub(super) struct Verdict {
    key: Option<Key>,
    lines: Vec<Entry>,
    /// Columns before the texts.
    indent: u16,
    /// A word and a figure, for a screen that has no room for the block.
    brief: String,
    role: Role,
}

impl Default for Verdict {
    fn default() -> Self {
        Self { key: None, lines: Vec::new(), indent: 0, brief: String::new(), role: Role::Dim }
    }
}

impl Verdict {
    /// Words what is known at this moment for at most `rows` rows of `columns`.
    pub(super) fn prepare(
        &mut self,
        data: &Data,
        diagnosis: &Diagnosis,
        engine: u8,
        (columns, rows): (u16, u16),
        theme: Theme,
    ) {
        let key = Key { at: diagnosis.at, findings: diagnosis.findings.len(), engine, columns, rows };
        if self.key.replace(key) == Some(key) {
            return;
        }
        let first = diagnosis.first();
        let state = words::state(first);
        let label = if rows > COMPACT { width(state).max(4) + 2 } else { width(state) + 1 };
        self.indent = label;
        let writer = Writer { data, diagnosis, theme, room: columns.saturating_sub(label), rows };
        let client = client(diagnosis, engine);
        self.lines.clear();
        match first {
            None => self.lines.push(entry(state, Role::Dim, NOTHING)),
            Some(first) if rows <= COMPACT => writer.compact(&mut self.lines, state, first, client),
            Some(first) => writer.block(&mut self.lines, state, first, client),
        }
        self.role = first.map_or(Role::Dim, |first| words::role(first.severity));
        self.brief.clear();
        self.brief.push_str(state);
        let figure = client.and_then(words::figure);
        if let Some(more) = figure.as_deref().or(first.map(|first| first.cause.label())) {
            self.brief.push(' ');
            self.brief.push_str(more);
        }
    }

    /// Draws the state in a word, and a figure, on a screen that is too small for sentences; returns what is left of it.
    pub(super) fn draw_brief(&self, buf: &mut Buffer, area: Rect, theme: Theme) -> Rect {
        let end = put(buf, area, (0, 0), theme.style(self.role), format_args!("{}", self.brief));
        if area.height > 1 {
            return Rect { y: area.y + 1, height: area.height - 1, ..area };
        }
        let taken = end.saturating_add(2).min(area.width);
        Rect { x: area.x + taken, width: area.width - taken, ..area }
    }

    /// Rows that the block takes.
    pub(super) fn rows(&self) -> u16 {
        let Some(key) = self.key else { return 0 };
        let room = key.columns.saturating_sub(self.indent);
        self.lines.iter().map(|line| wrapped_rows(&line.text, room).max(1)).fold(0, u16::saturating_add).min(key.rows)
    }

    /// Draws the block.
    pub(super) fn draw(&self, buf: &mut Buffer, area: Rect, theme: Theme) {
        let (mut y, mut end) = (0, 0);
        for line in &self.lines {
            put(buf, area, (0, y), theme.style(line.role), format_args!("{}", line.label));
            let text = theme.style(if line.label == ALSO { Role::Dim } else { Role::Text });
            let inside =
                Rect { x: area.x.saturating_add(self.indent), width: area.width.saturating_sub(self.indent), ..area };
            let rows = wrap(&line.text, inside.width, |row, words| {
                end = put(buf, inside, (0, y + row), text, format_args!("{words}"));
            });
            y += rows.max(1);
        }
        let taken = self.indent.saturating_add(end).saturating_add(2).saturating_add(width(HINT));
        if area.width >= HINTED && area.height > 1 && y <= area.height && taken <= area.width {
            put_right(buf, area, (area.width, y.saturating_sub(1)), theme.style(Role::Dim), format_args!("{HINT}"));
        }
    }
}

const WHY: &str = "WHY";
const FIX: &str = "FIX";
const ALSO: &str = "ALSO";
const NOTHING: &str = "nothing to judge from yet";

fn entry(label: &'static str, role: Role, text: impl Into<String>) -> Entry {
    Entry { label, role, text: text.into() }
}

/// The clients that the block is about: those of the engine that the most harmful finding is of, else of the chosen one.
fn client(diagnosis: &Diagnosis, chosen: u8) -> Option<&ClientView> {
    let engine = match diagnosis.first().map(|first| first.subject) {
        Some(Subject::Engine(engine)) => engine,
        _ => chosen,
    };
    diagnosis.client(engine)
}

/// Words the lines of the block.
struct Writer<'a> {
    data: &'a Data,
    diagnosis: &'a Diagnosis,
    theme: Theme,
    /// Columns for a text.
    room: u16,
    rows: u16,
}

impl Writer<'_> {
    /// Why in a row, and what would help in another where there is one and something asks for it.
    fn compact(&self, lines: &mut Vec<Entry>, state: &'static str, first: &Finding, client: Option<&ClientView>) {
        lines.push(entry(state, words::role(first.severity), self.one(first, client)));
        if self.rows > 1 && first.severity > Severity::Ok {
            self.remedy(lines, first, 1);
        }
    }

    /// The best fix in the fullest form that takes at most these rows; none where no form does.
    fn remedy(&self, lines: &mut Vec<Entry>, first: &Finding, rows: u16) {
        let Some(fix) = first.fixes.first() else { return };
        let text = self.fullest(&words::fix(fix, self.theme), rows);
        if !text.is_empty() {
            lines.push(entry(FIX, Role::Dim, text));
        }
    }

    /// All in one row: why, or where nothing is the matter what clients see.
    fn one(&self, first: &Finding, client: Option<&ClientView>) -> String {
        if first.severity > Severity::Ok {
            return self.headline(first, self.room);
        }
        let line = self.seen(first, client);
        if line.is_empty() { self.headline(first, self.room) } else { line }
    }

    fn block(&self, lines: &mut Vec<Entry>, state: &'static str, first: &Finding, client: Option<&ClientView>) {
        let role = words::role(first.severity);
        let well = first.severity == Severity::Ok;
        let seen = self.seen(first, client);
        let mut said = 1;
        if well {
            let rest = self.ceiling(first);
            // A server that is well is told of in one line where that has room.
            let both = format!("{seen}; {}", rest.headline.full);
            if seen.is_empty() {
                lines.push(entry(state, role, self.headline(rest, self.room)));
            } else if width(&both) <= self.room {
                lines.push(entry(state, role, both));
            } else {
                lines.push(entry(state, role, seen));
                // That nothing is the matter is said by the state already.
                if rest.cause != Cause::Healthy {
                    lines.push(entry("", role, self.headline(rest, self.room)));
                }
            }
            said =
                self.diagnosis.findings.iter().position(|other| std::ptr::eq(other, rest)).map_or(1, |place| place + 1);
        } else if seen.is_empty() {
            lines.push(entry(state, role, self.headline(first, self.room)));
        } else {
            lines.push(entry(state, role, seen));
            lines.push(entry(WHY, Role::Dim, self.headline(first, self.room)));
        }
        // What else asks for something comes before a second row of what would help, and the cause in full before both.
        let also = self.also(said, |other| well || other.severity > Severity::Ok);
        let below = u16::from(!also.is_empty()) + u16::from(!well && !first.fixes.is_empty());
        self.widen(lines, first, below);
        if !well && self.left(lines) > 0 {
            let spare = self.left(lines).saturating_sub(u16::from(!also.is_empty()));
            self.remedy(lines, first, spare.clamp(1, 2));
        }
        let silent = also.is_empty() && (first.severity < Severity::Act || self.rows >= ROOMY);
        let also = if silent { self.also(said, |_| true) } else { also };
        if !also.is_empty() && self.left(lines) > 0 {
            lines.push(entry(ALSO, Role::Dim, also));
        }
    }

    /// Rows that are left.
    fn left(&self, lines: &[Entry]) -> u16 {
        let taken = lines.iter().map(|line| wrapped_rows(&line.text, self.room).max(1)).fold(0, u16::saturating_add);
        self.rows.saturating_sub(taken)
    }

    /// A cause that was said in short is said in full over two rows, where `below` more are left under it.
    fn widen(&self, lines: &mut [Entry], first: &Finding, below: u16) {
        let full = self.named(first, &first.headline.full);
        let more = wrapped_rows(&full, self.room).saturating_sub(1);
        if more > 0
            && more + below <= self.left(lines)
            && let Some(why) =
                lines.iter_mut().find(|line| line.label == WHY && line.text.ends_with(&first.headline.short))
        {
            why.text = full;
        }
    }

    /// What clients see, after whose they are where there are several.
    fn seen(&self, first: &Finding, client: Option<&ClientView>) -> String {
        let mut parts = Parts::new();
        if let Some(client) = client {
            if self.diagnosis.clients.len() > 1 {
                parts.add(words::WHOSE, format!("{}: ", words::engine_name(self.data, client.engine, self.diagnosis)));
            }
            words::clients(&mut parts, client, first.severity == Severity::Ok);
        }
        parts.fit(self.room)
    }

    /// What a server that is well is bound by; where nothing is known of that, the state itself.
    fn ceiling<'a>(&'a self, first: &'a Finding) -> &'a Finding {
        self.diagnosis.findings.iter().find(|finding| !finding.cause.is_state()).unwrap_or(first)
    }

    /// What is the matter, in the longest form that has room; at least the cause's name.
    fn headline(&self, finding: &Finding, columns: u16) -> String {
        let text = finding.headline.fit(columns);
        let text = if width(text) <= columns || wrapped_rows(text, columns) < self.rows {
            text
        } else {
            finding.cause.label()
        };
        // Whose it is gives way to what it is.
        let named = self.named(finding, text);
        if width(&named) <= columns { named } else { text.to_owned() }
    }

    /// A text after whose it is.
    fn named(&self, finding: &Finding, text: &str) -> String {
        words::whose(self.data, finding.subject, text, self.diagnosis)
            .map_or_else(|| text.to_owned(), |whose| format!("{whose}: {text}"))
    }

    /// The fullest form that takes no more than these rows.
    fn fullest(&self, forms: &[String], rows: u16) -> String {
        forms.iter().find(|form| wrapped_rows(form, self.room) <= rows).cloned().unwrap_or_default()
    }

    /// The other findings that are worth it, as many as fit a row whole.
    fn also(&self, from: usize, worth: impl Fn(&Finding) -> bool) -> String {
        let mut line = String::new();
        let others = self.diagnosis.findings.iter().skip(from).filter(|finding| !finding.cause.is_state());
        for finding in others.filter(|finding| worth(finding)) {
            let between = if line.is_empty() { "" } else { "; " };
            let left = self.room.saturating_sub(width(&line)).saturating_sub(width(between));
            let text = self.headline(finding, left);
            if width(&text) > left {
                break;
            }
            line.push_str(between);
            line.push_str(&text);
        }
        line
    }
}

#[cfg(test)]
pub(in crate::ui) mod tests;
