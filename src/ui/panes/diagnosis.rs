//! Everything that is found, most harmful first, each with what would help, and below it what came and went.
//!
//! It words nothing itself: sentences are those of the diagnosis, which every screen and the snapshot say. Its rows are made
//! once a second at most, which is the only time this pane allocates.

use std::fmt::Write;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::diagnosis::{Finding, Severity, Timeline};
use crate::model::Time;
use crate::store::Data;
use crate::ui::pane::{Context, Pane, PaneSpec};
use crate::ui::text::{put, width, wrap, wrapped_rows};
use crate::ui::theme::{Role, Theme};
use crate::ui::units::TimeOfDay;
use crate::ui::verdict::{events, words};

use super::notice;

/// The pane.
pub(super) const SPEC: PaneSpec = PaneSpec {
    id: "diagnosis",
    tab: "Diagnosis",
    help: "All that is found at this moment, most harmful first: ▲ asks for a change, ● for a look, · is well, each with what \
           would help where there is room. Below it what came and went, newest first, in UTC. Enter opens the figures and \
           the rules.",
    new: || Box::new(Findings::default()),
};

/// Columns of the mark and of the cause.
const MARK: u16 = 2;
const CAUSE: u16 = 21;
/// Least width at which the cause stands in a column of its own.
const WIDE: u16 = 70;

/// A row of words.
#[derive(Debug)]
struct Line {
    x: u16,
    role: Role,
    text: String,
}

/// What the rows depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    at: Time,
    judged: Option<(Time, Time)>,
    spans: usize,
    size: (u16, u16),
}

#[derive(Debug, Default)]
struct Findings {
    title: String,
    rows: Vec<Vec<Line>>,
    key: Option<Key>,
}

impl Pane for Findings {
    fn prepare(&mut self, data: &Data, context: &Context<'_>, area: Rect) {
        let timeline = context.timeline;
        let key = Key {
            at: timeline.diagnosis().at,
            judged: timeline.judged(),
            spans: timeline.spans().len(),
            size: (area.width, area.height),
        };
        if self.key.replace(key) == Some(key) {
            return;
        }
        self.word_title(timeline);
        self.rows.clear();
        let writer = Writer { data, timeline, theme: *context.theme, width: area.width };
        writer.findings(&mut self.rows, usize::from(area.height));
        writer.events(&mut self.rows, usize::from(area.height));
    }

    fn title(&self) -> &str {
        &self.title
    }

    fn draw(&self, area: Rect, buf: &mut Buffer, context: &Context<'_>) {
        let theme = *context.theme;
        if self.rows.is_empty() {
            notice::draw(buf, area, theme, &self.title);
        }
        for (y, row) in (0..area.height).zip(&self.rows) {
            for Line { x, role, text } in row {
                put(buf, area, (*x, y), theme.style(*role), format_args!("{text}"));
            }
        }
    }
}

impl Findings {
    /// "SLOW: KV cache full, power cap".
    fn word_title(&mut self, timeline: &Timeline) {
        self.title.clear();
        let findings = &timeline.diagnosis().findings;
        let Some(first) = findings.first() else {
            self.title.push_str("nothing to judge from yet");
            return;
        };
        self.title.push_str(words::state(Some(first)));
        let asks = |finding: &&Finding| finding.severity > Severity::Ok;
        if !asks(&first) {
            // Writing to a String never fails.
            let _ = write!(self.title, ": {}", first.cause.label());
        }
        for (place, finding) in findings.iter().filter(asks).enumerate() {
            let _ = write!(self.title, "{}{}", if place == 0 { ": " } else { ", " }, finding.cause.label());
        }
    }
}

/// Makes the rows.
struct Writer<'a> {
    data: &'a Data,
    timeline: &'a Timeline,
    theme: Theme,
    width: u16,
}

impl Writer<'_> {
    /// Each finding has its row first; what would help fills what is left, the most harmful first.
    fn findings(&self, rows: &mut Vec<Vec<Line>>, height: usize) {
        let findings = &self.timeline.diagnosis().findings;
        let mut spare = height.saturating_sub(findings.len());
        for finding in findings.iter().take(height) {
            let x = self.head(rows, finding);
            let room = self.width.saturating_sub(x);
            for fix in finding.fixes.iter().filter(|_| finding.severity > Severity::Ok) {
                let forms = words::fix(fix, self.theme);
                let fits = |form: &&String| usize::from(wrapped_rows(form, room)) <= spare.min(2);
                let Some(text) = forms.iter().find(fits) else { continue };
                spare = spare.saturating_sub(usize::from(wrapped_rows(text, room)));
                wrap(text, room, |_, line| rows.push(vec![Line { x, role: Role::Dim, text: line.to_owned() }]));
            }
        }
    }

    /// The row of a finding; returns the column of its sentence.
    fn head(&self, rows: &mut Vec<Vec<Line>>, finding: &Finding) -> u16 {
        let role = words::role(finding.severity);
        let mut row = vec![Line { x: 0, role, text: words::mark(self.theme, finding.severity).to_string() }];
        let x = if self.width >= WIDE { MARK + CAUSE } else { MARK };
        if x > MARK {
            row.push(Line { x: MARK, role, text: finding.cause.label().to_owned() });
        }
        let room = self.width.saturating_sub(x);
        let said = words::headline(finding, room);
        let named = words::whose(self.data, finding.subject, said, self.timeline.diagnosis());
        let named = named.map(|whose| format!("{whose}: {said}")).filter(|named| width(named) <= room);
        row.push(Line { x, role: Role::Text, text: named.unwrap_or_else(|| said.to_owned()) });
        rows.push(row);
        x
    }

    /// What came and went, in the rows that are left.
    fn events(&self, rows: &mut Vec<Vec<Line>>, height: usize) {
        let Some(since) = events::since(self.timeline).filter(|_| rows.len() + 2 <= height && !rows.is_empty()) else {
            return;
        };
        let lines = events::lines(self.data, self.timeline, self.theme, (self.width, height - rows.len() - 1));
        let heading = if lines.is_empty() { "no events since" } else { "events, newest first, since" };
        let text = format!("{heading} {} UTC", TimeOfDay(since));
        rows.push(vec![Line { x: 0, role: Role::Dim, text }]);
        for (role, text) in lines.into_iter().filter(|(_, text)| width(text) <= self.width) {
            rows.push(vec![Line { x: 0, role, text }]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::View;
    use crate::diagnosis::{Cause, Span};
    use crate::model::Subject;
    use crate::store::{Retention, Store};
    use crate::ui::verdict::tests::slow;

    fn drawn(timeline: &Timeline, (columns, height): (u16, u16)) -> (String, Vec<String>) {
        let (store, view) = (Store::new(Retention::HOUR), View::new(Time(90_000_000)));
        let context = Context { view: &view, theme: &Theme::FULL, timeline, focused: true };
        let mut pane = Findings::default();
        let mut buf = Buffer::empty(Rect::new(0, 0, columns, height));
        pane.prepare(&store.read(), &context, buf.area);
        pane.draw(buf.area, &mut buf, &context);
        let row = |row: &[ratatui::buffer::Cell]| row.iter().map(ratatui::buffer::Cell::symbol).collect::<String>();
        let rows = buf.content.chunks(usize::from(columns)).map(|cells| row(cells).trim_end().to_owned()).collect();
        (pane.title().to_owned(), rows)
    }

    fn span(cause: Cause, severity: Severity, from: u64, to: u64) -> Span {
        let (from, to) = (Time(from * 1_000), Time(to * 1_000));
        Span { subject: Subject::Engine(0), cause, severity, from, to, headline: format!("{} held", cause.label()) }
    }

    #[test]
    fn findings_come_first_then_what_would_help_then_what_came_and_went() {
        let mut diagnosis = slow();
        diagnosis.at = Time(90_000_000);
        let spans = vec![
            span(Cause::PowerCap, Severity::Watch, 89_000, 89_060),
            span(Cause::KvCapacity, Severity::Act, 89_900, 90_000),
            span(Cause::Healthy, Severity::Ok, 89_000, 89_900),
            span(Cause::Stalled, Severity::Act, 100, 200),
        ];
        let timeline = Timeline::showing(diagnosis, spans);
        let (title, rows) = drawn(&timeline, (110, 8));
        assert_eq!(title, "SLOW: KV cache full, power cap");
        let expected = [
            "▲ KV cache full        KV cache is full (99 %): 220 requests wait, 1.9 preemptions/s",
            "                       --gpu-memory-utilization 0.25 → 0.9: 101 GiB unused, room for 4.6 times the tokens",
            "● power cap            power cap takes 17 % of the clock",
            "events, newest first, since 00:01:40 UTC",
            "00:58:20–now       100 s  ▲ KV cache full held",
            "00:43:20–00:44:20   60 s  ● power cap held",
            "",
            "",
        ];
        assert_eq!(rows, expected, "what ended more than a day ago is gone");
        let (_, narrow) = drawn(&timeline, (38, 3));
        assert_eq!(
            narrow,
            [
                "▲ KV cache full: 220 wait",
                "  --gpu-memory-utilization 0.25 → 0.9",
                "● power cap takes 17 % of the clock"
            ]
        );
    }

    #[test]
    fn nothing_known_is_said() {
        let (title, rows) = drawn(&Timeline::default(), (60, 3));
        assert_eq!(title, "nothing to judge from yet");
        assert!(rows[1].contains("nothing to judge from yet"));
    }
}
