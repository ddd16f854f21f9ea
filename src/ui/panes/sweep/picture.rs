//! The sweep while it is drawn: head, heat map, figures, knee, and below or beside them the legend or a level that is
//! read out. What is drawn is made before; here is only where it goes.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Modifier;

use crate::derive::latency::LogAxis;
use crate::derive::levels::{High, is_between, latency};
use crate::load::Level;
use crate::load::level::{Load, Silicon, State};
use crate::model::Metric;
use crate::model::text::Plural;
use crate::probe::board;
use crate::ui::panes::latency::words::{Tick, name};
use crate::ui::panes::row::Row;
use crate::ui::text::{put, put_right};
use crate::ui::theme::{Role, Theme};
use crate::ui::widgets::{Heatmap, swatch};

use super::figures::{self, FIGURES, p99_of};
use super::words::{Amount, is_doubtful, is_planned};
use super::{Parts, Sweep};

/// The sweep while it is drawn.
pub(super) struct Picture<'a> {
    pub(super) pane: &'a Sweep,
    pub(super) sweep: &'a board::Sweep,
    pub(super) theme: &'a Theme,
    pub(super) parts: Parts,
    pub(super) axis: LogAxis,
    pub(super) metric: Metric,
}

impl Picture<'_> {
    const fn char(&self, unicode: char, ascii: char) -> char {
        if self.theme.unicode() { unicode } else { ascii }
    }

    /// The levels on screen with their place there and among all.
    fn levels(&self) -> impl Iterator<Item = (u16, usize, &Level)> {
        let levels = self.sweep.levels.iter().enumerate().skip(self.pane.first);
        (0..self.parts.fit).zip(levels).map(|(x, (place, level))| (x, place, level))
    }

    /// The columns of an area that the level at place `x` of the screen takes, without the blank after them.
    fn span(&self, area: Rect, x: u16) -> Rect {
        let from = (x * self.parts.column).min(area.width);
        Rect { x: area.x + from, width: (area.width - from).min(self.parts.column - 1), ..area }
    }

    /// Row of the map from the top that holds a latency, clamped to it.
    fn row(&self, seconds: f64) -> u16 {
        let rows = f64::from(self.parts.map.height);
        let up = (self.axis.place(seconds) * rows).floor().clamp(0.0, (rows - 1.0).max(0.0));
        self.parts.map.height.saturating_sub(1) - up as u16
    }

    pub(super) fn draw_map(&self, buf: &mut Buffer) {
        let area = self.parts.map;
        if area.is_empty() {
            return;
        }
        let Sweep { pixels, pixel_rows, top, first, .. } = self.pane;
        let column = self.parts.column;
        let pixel = |x: u16, row: u16| {
            let (level, blank) = (first + usize::from(x / column), x % column == column - 1);
            let share = pixels.get(level * usize::from(*pixel_rows) + usize::from(row)).copied();
            share
                .filter(|share| *share > 0.0 && !blank && x / column < self.parts.fit)
                .map(|share| (share / top).sqrt())
        };
        let map = Heatmap { theme: self.theme, area, pixel };
        map.draw(buf);
        for (x, _, level) in self.levels() {
            let span = self.span(area, x);
            let latency = latency(level, self.metric);
            let median = latency.p50.filter(|p50| p50.enough).map(|p50| (p50.value, Role::Fourth, '─', '-'));
            let high = match latency.high() {
                High::P99(quantile) => Some((quantile.value, Role::Third, '━', '=')),
                High::P95(quantile) => Some((quantile.value, Role::Third, '*', '*')),
                High::Few(_) | High::Nothing => None,
            };
            for (seconds, role, unicode, ascii) in median.into_iter().chain(high) {
                let (y, mark) = (self.row(seconds), self.char(unicode, ascii));
                // Without colours behind it a mark hides the shade: that stays on both sides of it.
                let aside = if self.theme.heat(0.0).is_none() { span.width / 4 } else { 0 };
                for i in aside..span.width - aside {
                    map.mark(buf, (span.x - area.x + i, y), mark, self.theme.style(role));
                }
            }
            if latency.n == 0 {
                put(buf, span, (0, span.height - 1), self.theme.style(Role::Dim), format_args!("·"));
            }
        }
    }

    /// The axis of the map, and the names of head and figures.
    pub(super) fn draw_labels(&self, buf: &mut Buffer) {
        let Parts { head, map, figures, left, .. } = self.parts;
        let Some(line) = left.checked_sub(1) else { return };
        let (dim, border) = (self.theme.style(Role::Dim), self.theme.style(Role::Border));
        let beside = |area: Rect| Rect { x: area.x - left, width: left, ..area };
        for y in 0..map.height {
            put(buf, beside(map), (line, y), border, format_args!("{}", self.char('│', '|')));
        }
        let tick = self.char('┤', '+');
        for value in self.axis.ticks(map.height) {
            let (y, room) = (self.row(value * 1.001), usize::from(line));
            let area = beside(map);
            let free = buf.cell((area.x + line, area.y + y)).is_some_and(|cell| !cell.symbol().starts_with(tick));
            if free && y < map.height {
                put(buf, area, (0, y), dim, format_args!("{:>room$}", Tick(value)));
                put(buf, area, (line, y), border, format_args!("{tick}"));
            }
        }
        let load = match self.sweep.levels.first().map(|level| level.load) {
            Some(Load::Users(_)) => "users",
            _ => "load",
        };
        put_right(buf, beside(head), (line, 0), dim, format_args!("{load}"));
        for (y, figure) in self.figures() {
            let label = if figure.label.is_empty() { p99_of(self.metric) } else { figure.label };
            put_right(buf, beside(figures), (line, y), dim, format_args!("{label}"));
        }
    }

    /// The rows of figures that are shown, from the top.
    fn figures(&self) -> impl Iterator<Item = (u16, &'static figures::Figure)> {
        let shown = FIGURES.iter().zip(self.pane.rows).filter_map(|(figure, shown)| shown.then_some(figure));
        (0..self.parts.figures.height).zip(shown)
    }

    pub(super) fn draw_figures(&self, buf: &mut Buffer) {
        for (y, figure) in self.figures() {
            for (x, _, level) in self.levels() {
                let span = self.span(self.parts.figures, x);
                let value = (figure.value)(level, self.metric).within(span.width);
                let style = self.theme.style(value.role(figure.role));
                put_right(buf, span, (span.width, y), style, format_args!("{value}"));
            }
        }
    }

    pub(super) fn draw_head(&self, buf: &mut Buffer) {
        for (x, place, level) in self.levels() {
            let span = self.span(self.parts.head, x);
            let planned = is_planned(level);
            let runs = self.sweep.runs && !level.state.is_over() && !planned;
            let doubt = is_doubtful(level.state) || !level.client.limits.is_empty();
            let role = match (runs, doubt) {
                _ if planned => Role::Dim,
                (true, _) => Role::Accent,
                (false, true) => Role::Warn,
                (false, false) => Role::Text,
            };
            let (before, after) = (if runs { self.char('▸', '>') } else { ' ' }, if doubt { "!" } else { "" });
            let style = self.theme.style(role);
            let load = Amount(level.load);
            match level.repeat {
                0 => put_right(buf, span, (span.width, 0), style, format_args!("{before}{load:#}{after}")),
                n => put_right(buf, span, (span.width, 0), style, format_args!("{before}{load:#}#{}{after}", n + 1)),
            }
            if self.pane.at == Some(place) {
                for position in span.intersection(buf.area).positions() {
                    if let Some(cell) = buf.cell_mut(position) {
                        cell.modifier.toggle(Modifier::REVERSED);
                    }
                }
            }
        }
    }

    /// Place on screen of the level before the knee.
    fn knee(&self) -> Option<u16> {
        let knee = self.sweep.knee.as_ref()?;
        let next = |place: usize| self.sweep.levels.get(place + 1);
        self.levels().find_map(|(x, place, level)| is_between(knee, level, next(place)?).then_some(x))
    }

    pub(super) fn draw_knee(&self, buf: &mut Buffer) {
        let Some(x) = self.knee().filter(|x| x + 1 < self.parts.fit) else { return };
        let Parts { head, map, figures, column, .. } = self.parts;
        let rows = Rect { height: head.height + map.height + figures.height, ..head };
        let style = self.theme.style(Role::Accent);
        for y in 0..rows.height {
            put(buf, rows, ((x + 1) * column - 1, y), style, format_args!("{}", self.char('┊', '|')));
        }
    }

    pub(super) fn draw_legend(&self, buf: &mut Buffer) {
        let dim = self.theme.style(Role::Dim);
        let (levels, first) = (self.sweep.levels.len(), self.pane.first);
        let any = |wanted: fn(&High) -> bool| self.levels().any(|(.., l)| wanted(&latency(l, self.metric).high()));
        let mut row = Row::new(buf, self.parts.words);
        row.part(&[(dim, format_args!("{}", name(self.metric)))]).gap(1);
        if self.knee().is_some() {
            let accent = self.theme.style(Role::Accent);
            row.part(&[(accent, format_args!("{}", self.char('┊', '|'))), (dim, format_args!(" knee"))]).gap(2);
        }
        if levels > usize::from(self.parts.fit) {
            let last = (first + usize::from(self.parts.fit)).min(levels);
            row.part(&[(dim, format_args!("levels {}–{last} of {levels}", first + 1))]).gap(2);
        }
        if any(|high| matches!(high, High::P95(_))) {
            row.part(&[(dim, format_args!("* P95 (n 72–367)"))]).gap(2);
        }
        if any(|high| matches!(high, High::Few(_))) {
            row.part(&[(dim, format_args!("n: too few"))]).gap(2);
        }
        if !self.parts.map.is_empty() {
            let marks = [(Role::Fourth, self.char('─', '-'), "P50"), (Role::Third, self.char('━', '='), "P99")];
            for (role, mark, name) in marks {
                let mark = (self.theme.style(role), format_args!("{mark}"));
                row.part(&[mark, (dim, format_args!(" {name}"))]).gap(2);
            }
            row.picture(2, |buf, area| swatch(buf, area, self.theme, 1.0));
            let share = f64::from(self.pane.top) * 100.0;
            row.part(&[(dim, format_args!(" {share:.0} % of n"))]).gap(2);
        }
        let warn = self.theme.style(Role::Warn);
        if self.levels().any(|(.., level)| !level.client.limits.is_empty() || is_doubtful(level.state)) {
            row.part(&[(warn, format_args!("!")), (dim, format_args!(" doubtful"))]).gap(2);
        }
        let begun = self.levels().filter(|(.., level)| !is_planned(level));
        let mut cells = begun.flat_map(|(.., l)| self.figures().map(move |(_, f)| (f.value)(l, self.metric)));
        if cells.any(|value| value == figures::Value::Missing) {
            row.part(&[(dim, format_args!("· not known"))]).gap(2);
        }
        let reads = self.levels().any(|(.., level)| level.state != State::WarmingUp);
        if reads {
            row.part(&[(dim, format_args!("c reads a level out"))]).gap(2);
        }
        let held = |(.., level): (u16, usize, &Level)| level.gpus.iter().any(Silicon::is_throttled);
        if self.figures().any(|(_, figure)| figure.label == figures::CLOCK) && self.levels().any(held) {
            row.part(&[(dim, format_args!("clock")), (warn, format_args!("!")), (dim, format_args!(" held down"))]);
        }
    }

    /// The level under the cursor in place of the legend.
    pub(super) fn draw_readout(&self, buf: &mut Buffer) {
        let area = self.parts.words;
        let lines = self.pane.readout.lines();
        // What does not fit is said in a row of its own: half a sentence could be another one.
        let cut = lines.len() > usize::from(area.height) && area.height > 1;
        let rows = area.height - u16::from(cut);
        for (y, (role, text)) in (0..rows).zip(lines) {
            put(buf, area, (0, y), self.theme.style(*role), format_args!("{text}"));
        }
        if cut {
            let (more, dim) = (lines.len() - usize::from(rows), self.theme.style(Role::Dim));
            let more = Plural(more as u64, "line more", "lines more");
            put(buf, area, (0, rows), dim, format_args!("{more} on a larger screen"));
        }
    }
}
