//! A load sweep on screen: level by level, in the order they are measured in, how latency spreads beside what throughput,
//! GPU and server did, with the knee between the columns where throughput stops growing.
//!
//! It shows the board's sweep and works nothing out: [`crate::derive::levels`] does. Invariants: a quantile that the
//! number of measurements does not allow is not drawn; what was not measured is a dot, never 0.

mod figures;
mod picture;
mod readout;
mod title;
pub(super) mod words;

use std::fmt::Write;
use std::sync::Arc;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use crate::derive::latency::LogAxis;
use crate::derive::levels::{self, Spread};
use crate::load::Level;
use crate::model::{FactKey, Metric, Subject, Time};
use crate::probe::board::{self, Board};
use crate::probe::life::State as Life;
use crate::store::{Data, Window};
use crate::ui::pane::{Context, Pane, PaneSpec};
use crate::ui::text::put;
use crate::ui::theme::{Depth, Theme};
use crate::ui::widgets::pixel_rows;

use super::notice;
use figures::{FIGURES, shown};
use picture::Picture;
use readout::Readout;
use words::is_planned;

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
        let engine = data.fact(Subject::Engine(view.engine), FactKey::Url, view.end);
        let seen = title::Seen { engine, at: view.end, latency: view.latency, done: self.done };
        title::word(&mut self.title, &sweep, &seen);
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
            // The newest that has begun is on screen.
            None => levels.iter().take_while(|level| !is_planned(level)).count().saturating_sub(fit).min(most),
        };
    }

    /// Lines of the level that is read out, if one is.
    fn lines(&self) -> Option<usize> {
        self.at.map(|_| self.readout.lines().len())
    }
}

#[cfg(test)]
#[path = "sweep/tests.rs"]
mod tests;
