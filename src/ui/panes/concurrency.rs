//! The time × concurrency map on screen: how the tail of a latency depends on how many requests run, minute
//! by minute.
//!
//! Measured cells carry their value and its colour, interpolated ones neither fill nor plain digits, and
//! cells with too few requests are hatched with their number: told apart without colour, too. It must
//! not work out figures: [`crate::derive::concurrency`] does. It shows the last minutes that fit up to
//! the view's end, whatever the length of the view's time axis. Where a load sweep of the chosen engine ran in them, its
//! client's own measurements are the map, at the loads that it set, while it runs too; it says so.

mod words;

use std::fmt::Write;
use std::ops::RangeInclusive;
use std::sync::Arc;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};

use crate::derive::concurrency::{COLUMN_MS, Cell, Column, Map, ROWS, State, slots};
use crate::derive::latency::LogAxis;
use crate::derive::levels::{self, Pieces};
use crate::derive::quantile::Quantile;
use crate::load;
use crate::model::{FactKey, Metric, Reading, Subject, Time, Why};
use crate::probe::board::{Board, Sweep};
use crate::store::Data;
use crate::ui::pane::{Context, Pane, PaneSpec};
use crate::ui::text::{columns, put, put_right};
use crate::ui::theme::{Role, Theme};
use crate::ui::units::Seconds;
use crate::ui::widgets::{Axes, swatch};

use super::latency::words::{Bounded, Compact, Short, definition, name, observations};
use super::notice::{self, Lack};
use super::row::Row;
use super::sweep::words::is_same;
use words::{Minute, Running, caveat};

/// The pane.
pub(super) const SPEC: PaneSpec = PaneSpec {
    id: "concurrency",
    tab: "Concurrency",
    help: "Minutes against requests running (rows 1, 2, 4 … 64 and above): the P99 of the requests observed there, \
           from merged histograms. From 368 requests on a P99, from 72 on a P95 (*), below that hatched with their \
           number. Scrapes between which the number running left its row are 'mixed' and in no row. ≈ is \
           interpolated between measured cells. E2E counts a request when it ends: it reflects the concurrency of \
           up to one E2E before. Where a load sweep of this engine ran, the map is made of its client's own samples.",
    new: || Box::new(Concurrency::default()),
};

/// Least width of a column: a value and what marks it.
const COLUMN: u16 = 7;
/// Most columns: the hour that is kept scrape by scrape.
const MOST: u16 = 60;
/// From here on up the ramp is so light that text on it must be dark.
const LIGHT: f32 = 0.4;

/// What is drawn.
#[derive(Debug, Default)]
struct Concurrency {
    title: String,
    notice: String,
    map: Map,
    axis: Option<LogAxis>,
    metric: Option<Metric>,
    definition: &'static str,
    /// Lowest row on screen.
    bottom: usize,
    /// The load sweep that runs, or the last one.
    sweep: Option<Sweep>,
    /// What the map was made of, where that is a sweep.
    client: Option<Client>,
}

/// A sweep's own measurements.
#[derive(Debug)]
struct Client {
    levels: Arc<Vec<load::Level>>,
    metric: Metric,
    pieces: Pieces,
    /// The minutes that the map was made for, and how many pieces it was made of.
    made: Option<(RangeInclusive<u64>, usize)>,
}

/// The parts of the pane. Parts that have no room are empty.
struct Parts {
    head: Rect,
    labels: Rect,
    plot: Rect,
    mixed: Rect,
    time: Rect,
    legend: Rect,
}

fn parts(area: Rect) -> Parts {
    let head = u16::from(area.height >= 12);
    let (legend, time) = (u16::from(area.height >= 5), u16::from(area.height >= 6));
    let mixed = u16::from(area.height >= 4);
    let left = if area.width >= 20 { Axes::LEFT } else { 0 };
    let height = area.height - head - legend - time - mixed;
    let row = |y, height| Rect { y: area.y + y, height, ..area };
    let labels = Rect { width: left, ..row(head, height) };
    let plot = Rect { x: area.x + left, width: area.width - left, ..labels };
    Parts {
        head: row(0, head),
        labels,
        plot,
        mixed: row(head + height, mixed),
        time: row(head + height + mixed, time),
        legend: row(area.height - legend, legend),
    }
}

/// Columns and rows that fit into the pane's `area`: what the cursor moves on.
pub(in crate::ui) fn grid(area: Rect) -> (u16, u16) {
    let plot = parts(area).plot;
    ((plot.width / COLUMN).min(MOST), plot.height.min(ROWS as u16))
}

impl Pane for Concurrency {
    fn probes(&mut self, board: Option<&Board>) {
        self.sweep = board.and_then(|board| board.sweep.clone());
    }

    fn prepare(&mut self, data: &Data, context: &Context<'_>, area: Rect) {
        let view = context.view;
        let (width, rows) = grid(area);
        self.metric = Some(view.latency);
        if !self.follow_sweep(data, context, width) {
            self.client = None;
            self.map.follow(data, Subject::Engine(view.engine), view.latency, view.end, width);
        }
        self.axis = Some(self.map.axis());
        // Where not all rows fit, those of the highest concurrency that was seen.
        let used = |row: &usize| self.map.columns().iter().any(|c| c.cells[*row] != Cell::Empty);
        let top = (0..ROWS).rev().find(used).unwrap_or(ROWS - 1);
        self.bottom = (top + 1).saturating_sub(usize::from(rows)).min(ROWS - usize::from(rows));
        self.definition = definition(view.latency, notice::kind(data, view.engine, view.end));
        notice::engine(data, view, &mut self.notice);
        self.word_title(view.latency);
        if self.notice.is_empty() && self.map.edges().is_empty() {
            let kind = notice::kind(data, view.engine, view.end);
            let lack = Lack { kind, metric: view.latency, why: Why::Unsupported };
            // Writing to a String never fails.
            let _ = write!(self.notice, "{}: no histogram; {lack}; m shows another latency", name(view.latency));
        }
    }

    fn title(&self) -> &str {
        &self.title
    }

    fn draw(&self, area: Rect, buf: &mut Buffer, context: &Context<'_>) {
        let area = area.intersection(buf.area);
        let (Some(axis), Some(metric)) = (self.axis, self.metric) else { return };
        let (width, rows) = grid(area);
        if area.height < 3 || width == 0 || rows == 0 {
            put(buf, area, (0, 0), Style::new(), format_args!("{}", self.title));
            return;
        }
        if self.map.edges().is_empty() {
            notice::draw(buf, area, *context.theme, if self.notice.is_empty() { &self.title } else { &self.notice });
            return;
        }
        let parts = parts(area);
        let dim = context.theme.style(Role::Dim);
        let picture = Picture { pane: self, theme: context.theme, plot: parts.plot, axis, width, rows };
        picture.draw(buf);
        picture.draw_labels(buf, &parts);
        picture.draw_times(buf, &parts, context);
        match self.client.as_ref().and(self.sweep.as_ref()) {
            Some(Sweep { run, .. }) => {
                put(buf, parts.head, (0, 0), dim, format_args!("client's samples of sweep {run}"))
            }
            None => put(buf, parts.head, (0, 0), dim, format_args!("{}; {}", caveat(metric), self.definition)),
        };
        match context.view.cursor.filter(|_| context.focused) {
            Some(cursor) => picture.draw_cursor(buf, parts.legend, cursor),
            None => picture.draw_legend(buf, parts.legend),
        }
    }
}

impl Concurrency {
    /// Makes the map of a sweep's own measurements, if a sweep of the chosen engine measured this latency in the
    /// `columns` minutes up to the view's end.
    fn follow_sweep(&mut self, data: &Data, context: &Context<'_>, columns: u16) -> bool {
        let view = context.view;
        let url = data.fact(Subject::Engine(view.engine), FactKey::Url, view.end);
        let Some(sweep) =
            self.sweep.as_ref().filter(|sweep| url.is_some_and(|url| is_same(&sweep.endpoint, url)) && columns > 0)
        else {
            return false;
        };
        // What a client cannot see, such as the queue, stays the engine's.
        if levels::metric(view.latency) != view.latency {
            return false;
        }
        let slots = slots(view.end, columns);
        let start = Time(slots.start() * COLUMN_MS);
        let same = |client: &Client| Arc::ptr_eq(&client.levels, &sweep.levels) && client.metric == view.latency;
        let mut client = self.client.take().filter(same).unwrap_or_else(|| Client {
            levels: Arc::clone(&sweep.levels),
            metric: view.latency,
            pieces: Pieces::of(&sweep.levels, view.latency),
            made: None,
        });
        let over = client.pieces.until(view.end);
        let overlaps = over > client.pieces.until(start);
        let made = (slots, over);
        if overlaps && client.made.as_ref() != Some(&made) {
            self.map = client.pieces.map(made.0.clone(), over);
            client.made = Some(made);
        }
        self.client = Some(client).filter(|_| overlaps);
        overlaps
    }

    fn word_title(&mut self, metric: Metric) {
        self.title.clear();
        let name = name(metric);
        // Writing to a String never fails, here and below.
        if self.client.is_some() {
            let _ = write!(self.title, "client's ");
        }
        let _ = if self.map.edges().is_empty() {
            let why = if self.notice.is_empty() { ": no histogram exposed" } else { " not scraped" };
            write!(self.title, "{name}{why}")
        } else if let Some((column, row, q, quantile)) = self.newest() {
            let bounded = Bounded { q, quantile, edges: self.map.edges() };
            let (running, at) = (Running(row), Minute(column.slot));
            write!(self.title, "{name} at {running} running: {bounded}, n {} at {at} UTC", quantile.n)
        } else if self.map.columns().iter().any(|c| c.unplaced > 0) {
            write!(self.title, "{name}: the number running was not read, so nothing can be placed")
        } else {
            write!(self.title, "{name} by requests running: no cell has the 72 {} of a P95", observations(metric))
        };
    }

    /// The newest cell with a quantile; of its minute the one with most observations.
    fn newest(&self) -> Option<(&Column, usize, f64, Quantile)> {
        self.map.columns().iter().rev().find_map(|column| {
            let cells = column.cells.iter().enumerate().filter_map(|(row, cell)| match *cell {
                Cell::P99(quantile) => Some((column, row, 0.99, quantile)),
                Cell::P95(quantile) => Some((column, row, 0.95, quantile)),
                Cell::Empty | Cell::Few(_) => None,
            });
            cells.max_by_key(|(.., quantile)| quantile.n)
        })
    }
}

/// The map while it is drawn.
struct Picture<'a> {
    pane: &'a Concurrency,
    theme: &'a Theme,
    plot: Rect,
    axis: LogAxis,
    /// Columns and rows on screen.
    width: u16,
    rows: u16,
}

impl Picture<'_> {
    fn char(&self, unicode: char, ascii: char) -> char {
        if self.theme.unicode() { unicode } else { ascii }
    }

    /// Place of the oldest column on screen among the map's.
    fn first(&self) -> usize {
        self.pane.map.columns().len().saturating_sub(usize::from(self.width))
    }

    /// The map's columns with their place on screen.
    fn columns(&self) -> impl Iterator<Item = (u16, usize, &Column)> {
        let columns = self.pane.map.columns().iter().enumerate().skip(self.first());
        (0..self.width).zip(columns).map(|(x, (c, column))| (x, c, column))
    }

    /// Columns of the screen that column `x` takes.
    fn span(&self, area: Rect, x: u16) -> Rect {
        let width = self.plot.width / self.width;
        Rect { x: self.plot.x + x * width, width, ..area }
    }

    /// The cell of column `x` and the row `up` rows above the lowest on screen.
    fn cell(&self, x: u16, up: u16) -> Rect {
        let edge = |up: u16| u32::from(up) * u32::from(self.plot.height) / u32::from(self.rows);
        // No more than the height.
        let (low, high) = (edge(up) as u16, edge(up + 1) as u16);
        let area = Rect { y: self.plot.y + self.plot.height - high, height: high - low, ..self.plot };
        self.span(area, x)
    }

    /// The row of the map that lies `up` rows above the lowest on screen.
    fn row(&self, up: u16) -> usize {
        self.pane.bottom + usize::from(up)
    }

    fn draw(&self, buf: &mut Buffer) {
        for (x, c, column) in self.columns() {
            for up in 0..self.rows {
                let (area, row) = (self.cell(x, up), self.row(up));
                match &column.cells[row] {
                    Cell::P99(quantile) => self.measured(buf, area, quantile, ' '),
                    Cell::P95(quantile) => self.measured(buf, area, quantile, '*'),
                    Cell::Few(n) => self.few(buf, area, *n),
                    Cell::Empty => {
                        if let Some(seconds) = self.pane.map.between(c, row) {
                            self.between(buf, area, seconds);
                        }
                    }
                }
            }
        }
    }

    /// Share of the colour scale.
    fn heat(&self, seconds: f64) -> f32 {
        self.axis.place(seconds).clamp(0.0, 1.0) as f32
    }

    fn fill(buf: &mut Buffer, area: Rect, c: char, style: Style) {
        for position in area.intersection(buf.area).positions() {
            if let Some(cell) = buf.cell_mut(position) {
                cell.reset();
                cell.set_char(c).set_style(style);
            }
        }
    }

    /// A quantile: its value on its colour, or beside its shade where there are no colours.
    fn measured(&self, buf: &mut Buffer, area: Rect, quantile: &Quantile, mark: char) {
        let t = self.heat(quantile.value);
        let short = Short { quantile, edges: self.pane.map.edges() };
        let width = columns(format_args!("{short}{mark}")).min(area.width);
        let text = Rect { x: area.x + area.width - width, width, height: area.height.min(1), ..area };
        let style = if let Some(colour) = self.theme.heat(t) {
            let legible = self.theme.heat(if t >= LIGHT { 0.0 } else { 1.0 });
            let style = Style { fg: legible, ..Style::new() }.bg(colour);
            Self::fill(buf, area, ' ', style);
            style
        } else {
            Self::fill(buf, area, self.theme.shade(t), Style::new());
            Style::new().add_modifier(Modifier::BOLD)
        };
        put(buf, text, (0, 0), style, format_args!("{short}{mark}"));
    }

    /// Too few for a quantile: hatched, with their number.
    fn few(&self, buf: &mut Buffer, area: Rect, n: u64) {
        Self::fill(buf, area, self.char('╱', '/'), self.theme.style(Role::Border));
        put_right(buf, area, (area.width.saturating_sub(1), 0), self.theme.style(Role::Dim), format_args!(" n{n} "));
    }

    /// No measurement: no fill, and a sign before the value.
    fn between(&self, buf: &mut Buffer, area: Rect, seconds: f64) {
        let style = self.theme.style(Role::Dim);
        let dots = self.theme.heat(self.heat(seconds)).map_or(style, |colour| Style::new().fg(colour));
        Self::fill(buf, area, self.char('·', ' '), dots);
        let sign = self.char('≈', '~');
        put_right(buf, area, (area.width, 0), style, format_args!(" {sign}{} ", Compact(seconds)));
    }

    fn draw_labels(&self, buf: &mut Buffer, parts: &Parts) {
        let Some(line) = parts.labels.width.checked_sub(1) else { return };
        let (dim, border) = (self.theme.style(Role::Dim), self.theme.style(Role::Border));
        for y in 0..parts.labels.height {
            put(buf, parts.labels, (line, y), border, format_args!("{}", self.char('│', '|')));
        }
        for up in 0..self.rows {
            let y = self.cell(0, up).y - parts.labels.y;
            put_right(buf, parts.labels, (line, y), dim, format_args!("{}", Running(self.row(up))));
            put(buf, parts.labels, (line, y), border, format_args!("{}", self.char('┤', '+')));
        }
        let left = Rect { width: line, ..parts.mixed };
        put_right(buf, left, (line, 0), dim, format_args!("mixed"));
        put_right(buf, Rect { width: line, ..parts.time }, (line, 0), dim, format_args!("UTC"));
    }

    /// Below each column what is in none of its rows, and when it began.
    fn draw_times(&self, buf: &mut Buffer, parts: &Parts, context: &Context<'_>) {
        let (dim, warn) = (self.theme.style(Role::Dim), self.theme.style(Role::Warn));
        for (x, c, column) in self.columns() {
            let (below, time) = (self.span(parts.mixed, x), self.span(parts.time, x));
            let end = below.width.saturating_sub(1);
            let none = column.mixed + column.unplaced;
            let idle = column.idle && none == 0 && column.cells.iter().all(|c| *c == Cell::Empty);
            match column.state {
                State::NotScraped => put_right(buf, below, (end, 0), dim, format_args!("{}", self.char('·', '.'))),
                State::NotKept => put_right(buf, below, (end, 0), dim, format_args!("old")),
                State::Scraped if idle => put_right(buf, below, (end, 0), dim, format_args!("idle")),
                State::Scraped => put_right(buf, below, (end, 0), dim, format_args!("{none}")),
            }
            if column.restart || column.gap {
                put(buf, below, (0, 0), warn, format_args!("{}", if column.restart { 'R' } else { '!' }));
            }
            let newest = c + 1 == self.pane.map.columns().len();
            if newest && context.view.live {
                put_right(buf, time, (end, 0), dim, format_args!("now"));
            } else {
                put_right(buf, time, (end, 0), dim, format_args!("{}", Minute(column.slot)));
            }
        }
    }

    fn draw_legend(&self, buf: &mut Buffer, area: Rect) {
        let dim = self.theme.style(Role::Dim);
        let map = &self.pane.map;
        let any = |wanted: fn(&Cell) -> bool| self.columns().any(|(.., c)| c.cells.iter().any(wanted));
        let column = |wanted: fn(&Column) -> bool| self.columns().any(|(.., c)| wanted(c));
        let mut row = Row::new(buf, area);
        if any(|c| c.quantile().is_some()) {
            for t in [0.0, 0.5, 1.0_f32] {
                let seconds = Seconds(Reading::new(self.axis.value(f64::from(t))));
                row.picture(2, |buf, area| swatch(buf, area, self.theme, t));
                row.part(&[(dim, format_args!(" {seconds} "))]);
            }
            row.gap(1);
        }
        if self.pane.bottom > 0 {
            row.part(&[(dim, format_args!("lower rows have no room"))]).gap(2);
        }
        if any(|c| matches!(c, Cell::P95(_))) {
            row.part(&[(dim, format_args!("* P95 (n 72–367)"))]).gap(2);
        }
        if any(|c| matches!(c, Cell::Few(_))) {
            row.part(&[(dim, format_args!("{} n < 72", self.char('╱', '/')))]).gap(2);
        }
        if self.columns().any(|(_, c, _)| (0..ROWS).any(|row| map.between(c, row).is_some())) {
            row.part(&[(dim, format_args!("{} interpolated", self.char('≈', '~')))]).gap(2);
        }
        if column(|c| c.restart) {
            row.part(&[(dim, format_args!("R restart"))]).gap(2);
        }
        if column(|c| c.gap && !c.restart) {
            row.part(&[(dim, format_args!("! scrape missing"))]).gap(2);
        }
        if column(|c| c.state == State::NotKept) {
            row.part(&[(dim, format_args!("old: not kept at this rate"))]).gap(2);
        }
        if column(|c| c.state == State::NotScraped) {
            let not = if self.pane.client.is_some() { "not measured" } else { "not scraped" };
            row.part(&[(dim, format_args!("{} {not}", self.char('·', '.')))]).gap(2);
        }
    }

    /// Marks the cell under the cursor and reads it out in place of the legend.
    fn draw_cursor(&self, buf: &mut Buffer, area: Rect, (x, up): (u16, u16)) {
        let (x, up) = (x.min(self.width - 1), up.min(self.rows - 1));
        for position in self.cell(x, up).intersection(buf.area).positions() {
            if let Some(cell) = buf.cell_mut(position) {
                cell.modifier.toggle(Modifier::REVERSED);
            }
        }
        let c = self.first() + usize::from(x);
        let (Some(column), row) = (self.pane.map.columns().get(c), self.row(up)) else { return };
        let (text, dim) = (self.theme.style(Role::Text), self.theme.style(Role::Dim));
        let (from, to, running) = (Minute(column.slot), Minute(column.slot + 1), Running(row));
        let x = put(buf, area, (0, 0), text, format_args!("{from}–{to} UTC, {running} running: "));
        let edges = self.pane.map.edges();
        let noun = self.pane.metric.map_or("", observations);
        let x = match (column.state, &column.cells[row]) {
            (State::NotScraped, _) if self.pane.client.is_some() => {
                put(buf, area, (x, 0), dim, format_args!("not measured"))
            }
            (State::NotScraped, _) => put(buf, area, (x, 0), dim, format_args!("not scraped")),
            (State::NotKept, _) => put(buf, area, (x, 0), dim, format_args!("not kept at this rate")),
            (_, &Cell::P99(quantile)) => {
                let bounded = Bounded { q: 0.99, quantile, edges };
                put(buf, area, (x, 0), text, format_args!("{bounded}, n {} {noun}", quantile.n))
            }
            (_, &Cell::P95(quantile)) => {
                let bounded = Bounded { q: 0.95, quantile, edges };
                put(buf, area, (x, 0), text, format_args!("{bounded}, n {} {noun}, too few for a P99", quantile.n))
            }
            (_, Cell::Few(n)) => put(buf, area, (x, 0), dim, format_args!("only {n} {noun}")),
            (_, Cell::Empty) => match self.pane.map.between(c, row) {
                Some(seconds) => {
                    let seconds = Seconds(Reading::new(seconds));
                    put(buf, area, (x, 0), dim, format_args!("interpolated {seconds}, nothing observed"))
                }
                None => put(buf, area, (x, 0), dim, format_args!("nothing observed")),
            },
        };
        if column.state == State::Scraped {
            put(buf, area, (x, 0), dim, format_args!("; mixed {}", column.mixed + column.unplaced));
        }
    }
}

#[cfg(test)]
mod tests;
