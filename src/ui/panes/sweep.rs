//! A load sweep on screen: level by level, in the order they are measured in, how latency spreads beside what throughput,
//! GPU and server did, with the knee between the columns where throughput stops growing.
//!
//! It shows the board's sweep and works nothing out: [`crate::derive::levels`] does. Invariants: a quantile that the
//! number of measurements does not allow is not drawn; what was not measured is a dot, never 0.

mod figures;
mod readout;
mod title;
pub(super) mod words;

use std::fmt::Write;
use std::sync::Arc;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};

use crate::derive::latency::LogAxis;
use crate::derive::levels::{self, High, Spread, high, is_between, latency};
use crate::load::Level;
use crate::load::level::{Load, State};
use crate::model::{Metric, Subject, Time};
use crate::probe::board::{self, Board};
use crate::probe::life::State as Life;
use crate::store::{Data, Window};
use crate::ui::pane::{Context, Pane, PaneSpec};
use crate::ui::text::{put, put_right};
use crate::ui::theme::{Depth, Role, Theme};
use crate::ui::widgets::{Heatmap, pixel_rows, swatch};

use super::latency::words::{Tick, name};
use super::notice;
use super::row::Row;
use figures::{FIGURES, p99_of, shown};
use readout::Readout;
use words::{Amount, is_doubtful};

/// The pane.
pub(super) const SPEC: PaneSpec = PaneSpec {
    id: "sweep",
    tab: "Sweep",
    help: "The load sweep: a column for each level of load in the order they are measured in, with the spread of the chosen \
           latency as its client sees it (log rows; the brighter, the larger the share of that level's requests), and \
           below it P99 (P95 with a * below 368 measurements, their number below 72), tokens/s, goodput, what the \
           busiest GPU did, requests waiting, KV cache in use and what held it back. A broken line is the knee. c reads \
           a level out, arrows move; m shows another latency.",
    new: || Box::new(Sweep::default()),
};

/// Id of the probe, and its key while it is in no table.
const PROBE: (&str, char) = ("sweep", 'c');
/// Columns of names and labels, and of the axis.
const LEFT: u16 = 9;
/// Least and most columns of a level, a blank included.
const COLUMN: (u16, u16) = (7, 18);
/// Width and height from which a level is read out beside the others, and columns of that.
const WIDE: (u16, u16) = (100, 10);
const PANEL: u16 = 46;
/// Least rows of the heat map.
const LEAST_MAP: u16 = 4;

/// What is drawn.
#[derive(Debug, Default)]
struct Sweep {
    title: String,
    notice: String,
    /// Whether probes can be run at all.
    here: bool,
    shown: Option<board::Sweep>,
    /// Share that is done, while it runs.
    done: Option<f64>,
    spread: Spread,
    axis: Option<LogAxis>,
    pixels: Vec<f32>,
    pixel_rows: u16,
    /// Share of a level's measurements at the top of the colour scale.
    top: f32,
    rows: [bool; FIGURES.len()],
    /// Place of the first level on screen, and of the one under the cursor.
    first: usize,
    at: Option<usize>,
    readout: Readout,
    made: Option<Made>,
}

/// What everything was made for.
#[derive(Debug)]
struct Made {
    levels: Arc<Vec<Level>>,
    metric: Metric,
    area: Rect,
    depth: Depth,
    unicode: bool,
    at: Option<usize>,
}

impl Made {
    fn is(&self, other: &Self) -> bool {
        let key = |made: &Self| (made.metric, made.area, made.depth, made.unicode, made.at);
        Arc::ptr_eq(&self.levels, &other.levels) && key(self) == key(other)
    }
}

/// The parts of the pane. Parts that have no room are empty.
struct Parts {
    head: Rect,
    map: Rect,
    figures: Rect,
    /// Names and labels beside those three.
    left: u16,
    /// Below all, or beside them while a level is read out there.
    words: Rect,
    /// Columns of a level, and how many fit.
    column: u16,
    fit: u16,
}

/// `lines` are those of the level that is read out, if one is.
fn parts(area: Rect, levels: usize, lines: Option<usize>) -> Parts {
    let reads = lines.is_some();
    let beside = reads && area.width >= WIDE.0 && area.height >= WIDE.1;
    let panel = if beside { PANEL } else { 0 };
    let below = match (beside, reads) {
        (true, _) => 0,
        (false, true) => u16::try_from(lines.unwrap_or(1)).unwrap_or(u16::MAX).min(area.height * 3 / 5).max(1),
        (false, false) => u16::from(area.height >= 7),
    };
    let left = if area.width >= 20 { LEFT } else { 0 };
    let all = FIGURES.len() as u16;
    let rest = area.height.saturating_sub(1 + below);
    let map = match rest {
        rest if rest >= all + LEAST_MAP => rest - all,
        rest if rest >= 5 + LEAST_MAP => LEAST_MAP,
        _ => 0,
    };
    let width = area.width.saturating_sub(left + panel);
    let row = |y, height| Rect { x: area.x + left, y: area.y + y, width, height };
    let column = width / u16::try_from(levels.max(1)).unwrap_or(u16::MAX);
    let column = column.clamp(COLUMN.0, COLUMN.1);
    let words = if beside {
        Rect { x: area.x + area.width - panel + 2, width: panel - 2, ..area }
    } else {
        Rect { y: area.y + area.height - below.min(area.height), height: below.min(area.height), ..area }
    };
    Parts {
        head: row(0, area.height.min(1)),
        map: row(1, map),
        figures: row(1 + map, rest - map),
        left,
        words,
        column,
        fit: (width / column).max(1),
    }
}

impl Pane for Sweep {
    fn probes(&mut self, board: Option<&Board>) {
        self.here = board.is_some();
        self.shown = board.and_then(|board| board.sweep.clone());
        // At most one probe runs: if a sweep does, it is that one.
        let running = |board: &Board| match board.active()?.1.life.state() {
            Life::Running(running) => Some(running.progress.0),
            _ => None,
        };
        self.done = board.filter(|_| self.shown.as_ref().is_some_and(|sweep| sweep.runs)).and_then(running);
    }

    fn prepare(&mut self, data: &Data, context: &Context<'_>, area: Rect) {
        let view = context.view;
        self.title.clear();
        self.notice.clear();
        let Some(sweep) = self.shown.take() else {
            self.nothing(data, view.end);
            return;
        };
        title::word(&mut self.title, &sweep, self.done, view.latency);
        let last = sweep.levels.len().checked_sub(1);
        let cursor = view.cursor.filter(|_| context.focused);
        self.at = cursor.zip(last).map(|((column, _), last)| usize::from(column).min(last));
        let made = Made {
            levels: Arc::clone(&sweep.levels),
            metric: levels::metric(view.latency),
            area,
            depth: context.theme.depth,
            unicode: context.theme.unicode(),
            at: self.at,
        };
        if !self.made.as_ref().is_some_and(|old| old.is(&made)) {
            self.make(&made, *context.theme);
            self.made = Some(made);
        }
        self.shown = Some(sweep);
    }

    fn title(&self) -> &str {
        &self.title
    }

    fn cursor_range(&self, _area: Rect) -> Option<(u16, u16)> {
        let levels = self.shown.as_ref()?.levels.len();
        Some((u16::try_from(levels).unwrap_or(u16::MAX), 1)).filter(|_| levels > 0)
    }

    fn draw(&self, area: Rect, buf: &mut Buffer, context: &Context<'_>) {
        let area = area.intersection(buf.area);
        if area.height < 3 || area.width < 12 {
            put(buf, area, (0, 0), Style::new(), format_args!("{}", self.title));
            return;
        }
        let (Some(sweep), Some(axis)) = (self.shown.as_ref().filter(|s| !s.levels.is_empty()), self.axis) else {
            let words = if self.notice.is_empty() { &self.title } else { &self.notice };
            notice::draw(buf, area, *context.theme, words);
            return;
        };
        let parts = parts(area, sweep.levels.len(), self.lines());
        let metric = levels::metric(context.view.latency);
        let picture = Picture { pane: self, sweep, theme: context.theme, parts, axis, metric };
        picture.draw_map(buf);
        picture.draw_labels(buf);
        picture.draw_figures(buf);
        picture.draw_head(buf);
        picture.draw_knee(buf);
        if self.at.is_some() {
            picture.draw_readout(buf);
        } else {
            picture.draw_legend(buf);
        }
    }
}

impl Sweep {
    /// Says why there is no sweep to show.
    fn nothing(&mut self, data: &Data, end: Time) {
        (self.axis, self.at, self.made) = (None, None, None);
        let title = &mut self.title;
        // Writing to a String never fails, here and below.
        if self.here {
            let key = crate::probe::find(PROBE.0).map_or(PROBE.1, |probe| probe.spec.key);
            let _ = write!(title, "none yet: p, then {key} measures P99 over 1–64 users of the chosen engine");
            return;
        }
        let all = Window { start: Time(0), end };
        let run = data.runs(Subject::Host, all).filter(|run| *run.probe == *PROBE.0).last();
        let _ = match run {
            Some(run) => write!(title, "recorded: the figures of {} are in its report", run.name),
            None => write!(title, "no sweep on this recording"),
        };
        let run = run.map_or("RUN", |run| &run.name);
        let _ = write!(
            self.notice,
            "A sweep runs on the machine itself, not on a recording. Its figures are in its report: warptop probe show {run}"
        );
    }

    fn make(&mut self, made: &Made, theme: Theme) {
        let levels = made.levels.as_slice();
        match made.at.and_then(|at| Some((at, levels.get(at)?))) {
            Some((at, level)) => {
                let columns = parts(made.area, levels.len(), Some(1)).words.width;
                self.readout.make(level, (at, levels.len()), made.metric, columns);
            }
            None => self.readout.clear(),
        }
        let parts = parts(made.area, levels.len(), self.lines());
        self.spread.fill(levels, made.metric);
        let axis = self.spread.axis();
        self.axis = Some(axis);
        self.pixel_rows = pixel_rows(&theme, parts.map.height);
        self.top = self.spread.raster(axis, usize::from(self.pixel_rows), &mut self.pixels);
        self.rows = shown(levels, made.metric, parts.figures.height);
        let fit = usize::from(parts.fit);
        let most = levels.len().saturating_sub(fit);
        self.first = match made.at {
            Some(at) => at.saturating_sub(fit / 2).min(most),
            None => most,
        };
    }

    /// Lines of the level that is read out, if one is.
    fn lines(&self) -> Option<usize> {
        self.at.map(|_| self.readout.lines().len())
    }
}

/// The sweep while it is drawn.
struct Picture<'a> {
    pane: &'a Sweep,
    sweep: &'a board::Sweep,
    theme: &'a Theme,
    parts: Parts,
    axis: LogAxis,
    metric: Metric,
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

    fn draw_map(&self, buf: &mut Buffer) {
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
            let high = match high(latency) {
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
    fn draw_labels(&self, buf: &mut Buffer) {
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

    fn draw_figures(&self, buf: &mut Buffer) {
        for (y, figure) in self.figures() {
            for (x, _, level) in self.levels() {
                let span = self.span(self.parts.figures, x);
                let value = (figure.value)(level, self.metric);
                let style = self.theme.style(value.role(figure.role));
                put_right(buf, span, (span.width, y), style, format_args!("{value}"));
            }
        }
    }

    fn draw_head(&self, buf: &mut Buffer) {
        for (x, place, level) in self.levels() {
            let span = self.span(self.parts.head, x);
            let runs = self.sweep.runs && !level.state.is_over();
            let doubt = is_doubtful(level.state) || !level.client.limits.is_empty();
            let role = match (runs, doubt) {
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

    fn draw_knee(&self, buf: &mut Buffer) {
        let Some(x) = self.knee().filter(|x| x + 1 < self.parts.fit) else { return };
        let Parts { head, map, figures, column, .. } = self.parts;
        let rows = Rect { height: head.height + map.height + figures.height, ..head };
        let style = self.theme.style(Role::Accent);
        for y in 0..rows.height {
            put(buf, rows, ((x + 1) * column - 1, y), style, format_args!("{}", self.char('┊', '|')));
        }
    }

    fn draw_legend(&self, buf: &mut Buffer) {
        let dim = self.theme.style(Role::Dim);
        let (levels, first) = (self.sweep.levels.len(), self.pane.first);
        let any = |wanted: fn(&High) -> bool| self.levels().any(|(.., l)| wanted(&high(latency(l, self.metric))));
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
        let mut cells = self.levels().flat_map(|(.., l)| self.figures().map(move |(_, f)| (f.value)(l, self.metric)));
        if cells.any(|value| value == figures::Value::Missing) {
            row.part(&[(dim, format_args!("· not known"))]).gap(2);
        }
        let reads = self.levels().any(|(.., level)| level.state != State::WarmingUp);
        if reads {
            row.part(&[(dim, format_args!("c reads a level out"))]);
        }
    }

    /// The level under the cursor in place of the legend.
    fn draw_readout(&self, buf: &mut Buffer) {
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
            put(buf, area, (0, rows), dim, format_args!("{more} lines more on a larger screen"));
        }
    }
}

#[cfg(test)]
#[path = "sweep/tests.rs"]
mod tests;
