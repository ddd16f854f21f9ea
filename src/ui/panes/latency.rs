//! Latency over time: where requests spend it (heat map), and the quantiles that n allows, with the
//! interval that certainly holds them; where there is room, all latencies of the engine in a table.

mod figures;
mod table;
pub(super) mod words;

use std::fmt::{self, Write};
use std::ops::RangeInclusive;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use crate::app::View;
use crate::derive::api_server::api_server;
use crate::derive::coverage::{is_partial, said_ms};
use crate::derive::latency::summary::Summary;
use crate::derive::latency::{Grid, Headline, LogAxis, State, bucket_span};
use crate::derive::quantile::{Quantile, quantile};
use crate::model::{Metric, Reading, Subject, Time, Why};
use crate::store::{Data, HistogramWindow};
use crate::ui::pane::{Context, Pane, PaneSpec};
use crate::ui::shade::Of;
use crate::ui::text::{put, put_whole};
use crate::ui::theme::{Role, Theme};
use crate::ui::units::{Partly, Span};

use crate::ui::verdict::words::unusual;
use crate::ui::widgets::scale::nice_up;
use crate::ui::widgets::{Axes, Heatmap, TimeEnd, pixel_rows, swatch, time_axis};

use super::notice::{self, Lack};
use super::row::Row;
use table::Table;
use words::{Bounded, Covered, Edge, Lacks, MeanOnly, Short, Tick, definition, finer, name, observations};

/// The pane.
pub(super) const SPEC: PaneSpec = PaneSpec {
    id: "latency",
    tab: "Latency",
    help: "Time against latency (log rows): the brighter a cell, the more requests, per cell on a square-root scale. \
           P50 and P99 are marked with the range that certainly holds what the engine observed; clients wait for its \
           API server as well, whose mean part is told where vLLM counts it. A quantile is shown only when there are \
           enough requests (P99: 368). Dots below: scraped, but no traffic; hatched: not scraped. Alone on the screen \
           it lists all latencies that the engine exposes. Below the first bucket edge and beyond the last one only the \
           edge is known; for finer buckets start vLLM 0.33 with --custom-histogram-buckets '{\"request_latency\": […]}' \
           (or time_to_first_token, inter_token_latency), SGLang with --bucket-time-to-first-token, \
           --bucket-inter-token-latency, --bucket-e2e-request-latency and a list of edges in seconds.",
    new: || Box::new(Latency::default()),
};

/// What is drawn.
#[derive(Debug, Default)]
struct Latency {
    title: String,
    notice: String,
    grid: Grid,
    axis: Option<LogAxis>,
    pixels: Vec<f32>,
    pixel_rows: u16,
    /// Count at the top of the colour scale.
    top: f32,
    headline: Option<Headline>,
    median: Option<Quantile>,
    p95: Option<Quantile>,
    mean: Option<f64>,
    definition: &'static str,
    /// Mean gap between tokens now, and this server's usual one at such a load, s.
    gap: Option<[Reading; 2]>,
    /// Mean TTFT now and the usual one, s, where they differ.
    ttft: Option<[f64; 2]>,
    /// What the API server adds to the mean of a request's whole time, s, where that is worth a word.
    api_server: Option<Reading>,
    /// The flag for finer buckets, where the quantile of the title lies outside the edges.
    finer: Option<&'static str>,
    /// What is missing where there is no histogram.
    nothing: Nothing,
    table: Table,
    scratch: HistogramWindow,
    metric: Option<Metric>,
    end: Option<TimeEnd>,
}

/// Why there is no histogram.
#[derive(Clone, Copy, Debug, Default)]
enum Nothing {
    /// The engine was not read.
    #[default]
    NotScraped,
    /// It exposes nothing of this latency.
    NotExposed,
    /// It exposes a sum only.
    OnlySum,
}

/// The parts of the pane. Parts that have no room are empty.
struct Parts {
    head: Rect,
    /// The quantiles that are not in the title; with a table they are there.
    quantiles: Rect,
    axes: Axes,
    legend: Rect,
    table: Rect,
    /// What would give finer buckets.
    finer: Rect,
}

/// Share of a request's time from which on what the API server adds is told.
const WORTH_A_WORD: f64 = 0.05;

/// Height from which on all latencies are listed below the heat map.
const WITH_TABLE: u16 = 18;

fn parts(area: Rect) -> Parts {
    let (head, legend) = (u16::from(area.height >= 10), u16::from(area.height >= 5));
    let table = if area.height >= WITH_TABLE { table::ROWS } else { 0 };
    let finer = u16::from(area.height > WITH_TABLE);
    let quantiles = u16::from((12..WITH_TABLE).contains(&area.height));
    let mut y = area.y;
    let mut next = |height| {
        let row = Rect { y, height, ..area };
        y += height;
        row
    };
    let (head_area, quantiles_area) = (next(head), next(quantiles));
    let middle = next(area.height - head - quantiles - legend - table - finer);
    Parts {
        head: head_area,
        quantiles: quantiles_area,
        axes: Axes::with_strip(middle),
        legend: next(legend),
        table: next(table),
        finer: next(finer),
    }
}

/// The heat map itself inside the pane's `area`: what the cursor moves on.
pub(in crate::ui) fn plot(area: Rect) -> Rect {
    parts(area).axes.plot
}

impl Pane for Latency {
    fn prepare(&mut self, data: &Data, context: &Context<'_>, area: Rect) {
        let view = context.view;
        let plot = plot(area);
        self.metric = Some(view.latency);
        self.grid.fill(data, Subject::Engine(view.engine), view.latency, view.window(), plot.width);
        let axis = self.grid.axis();
        self.axis = Some(axis);
        self.pixel_rows = pixel_rows(context.theme, plot.height);
        let most = self.grid.raster(axis, usize::from(self.pixel_rows), &mut self.pixels);
        // The colour scale ends at a round count, so that it seldom changes.
        self.top = nice_up(f64::from(most)) as f32;
        self.headline = self.grid.headline();
        self.median = self.grid.median();
        self.p95 = quantile(self.grid.visible(), 0.95).filter(|q| q.enough);
        self.mean = self.grid.visible().mean();
        self.end = Some(TimeEnd::of(view, data.oldest()));
        if area.height >= WITH_TABLE {
            self.table.prepare(data, view, &mut self.scratch);
        }
        let client = context.timeline.diagnosis().client(view.engine);
        self.gap = client.filter(|_| view.latency != Metric::Itl).map(|client| [client.itl_mean, client.itl_usual]);
        self.ttft =
            client.and_then(|client| Some([client.ttft_mean.value()?, unusual(client.ttft_mean, client.ttft_usual)?]));
        let of_requests = view.latency != Metric::Itl;
        let part = api_server(data, view.engine, view.window(), &mut self.scratch);
        self.api_server = part.share.filter(|share| of_requests && *share >= WORTH_A_WORD).map(|_| part.mean);
        notice::engine(data, view, &mut self.notice);
        self.explain(data, view);
        self.word_title(view.latency, view.span_ms, view.end);
    }

    fn title(&self) -> &str {
        &self.title
    }

    fn timeline(&self, area: Rect) -> Rect {
        let axes = parts(area).axes;
        let rows = Rect { y: axes.plot.y, height: axes.plot.height + axes.time.height, ..area };
        if self.grid.edges().is_empty() { Rect::ZERO } else { rows }
    }

    fn strip(&self, area: Rect) -> Rect {
        parts(area).axes.strip
    }

    fn of(&self) -> Of {
        Of::Engine
    }

    fn draw(&self, area: Rect, buf: &mut Buffer, context: &Context<'_>) {
        let area = area.intersection(buf.area);
        let (Some(axis), Some(end)) = (self.axis, self.end) else { return };
        if area.height < 3 || area.width < 12 {
            put(buf, area, (0, 0), Style::new(), format_args!("{}", self.title));
            return;
        }
        let parts = parts(area);
        if self.grid.edges().is_empty() {
            let above = Rect { height: area.height - parts.table.height - parts.finer.height, ..area };
            notice::draw(buf, above, *context.theme, if self.notice.is_empty() { &self.title } else { &self.notice });
            self.table.draw(buf, parts.table, *context.theme);
            return;
        }
        let picture = Picture { pane: self, theme: context.theme, plot: parts.axes.plot, axis };
        picture.draw(buf);
        picture.draw_labels(buf, parts.axes.left);
        picture.draw_window(buf, parts.axes.right);
        time_axis(buf, &parts.axes, context.theme, context.view.span_ms, end);
        let dim = context.theme.style(Role::Dim);
        let x = self.draw_gap(buf, parts.head, *context.theme, Span(context.view.span_ms));
        put_whole(buf, parts.head, (x, 0), dim, format_args!("{}", self.definition));
        self.draw_quantiles(buf, parts.quantiles, *context.theme);
        self.table.draw(buf, parts.table, *context.theme);
        if let Some(flag) = self.finer {
            put(buf, parts.finer, (0, 0), dim, format_args!("finer: {flag}"));
        }
        match context.view.cursor.filter(|_| context.focused) {
            Some(cursor) => picture.draw_cursor(buf, parts.legend, cursor, context),
            None => picture.draw_legend(buf, parts.legend),
        }
    }
}

impl Latency {
    /// Says what the metric means with this engine, what would give finer buckets, and what is left where it has no
    /// histogram of it.
    fn explain(&mut self, data: &Data, view: &View) {
        let kind = notice::kind(data, view.engine, view.end);
        self.definition = definition(view.latency, kind);
        let outside =
            |headline: &Headline| !Short { quantile: &headline.quantile, edges: self.grid.edges() }.is_inside();
        self.finer = self.headline.as_ref().filter(|h| outside(h)).and_then(|_| finer(view.latency, kind));
        self.nothing = Nothing::NotScraped;
        if !self.notice.is_empty() || !self.grid.edges().is_empty() {
            return;
        }
        // Writing to a String never fails.
        let _ = match Summary::of(data, view.engine, view.latency, view.window(), &mut self.scratch) {
            Summary::Sum { seconds, requests, measured_ms } => {
                self.nothing = Nothing::OnlySum;
                let mean = MeanOnly { metric: view.latency, seconds, requests };
                let span = Covered(said_ms(measured_ms, view.span_ms));
                write!(self.notice, "{mean} in {span}. {}", self.definition)
            }
            Summary::NotExposed | Summary::Histogram { .. } => {
                self.nothing = Nothing::NotExposed;
                let lack = Lack { kind, metric: view.latency, why: Why::Unsupported };
                write!(self.notice, "{}: {lack}; m shows another latency", name(view.latency))
            }
        };
    }

    fn word_title(&mut self, metric: Metric, span_ms: u64, end: Time) {
        self.title.clear();
        let (name, seen) = (name(metric), self.grid.visible());
        // Writing to a String never fails.
        let _ = if self.grid.edges().is_empty() {
            match self.nothing {
                Nothing::NotScraped => write!(self.title, "{name} not scraped"),
                Nothing::NotExposed => write!(self.title, "{name}: this engine does not expose it"),
                Nothing::OnlySum => write!(self.title, "{name}: a mean, no histogram"),
            }
        } else if let Some(last) = seen.last {
            // A window of which a part was not scraped is as long as what was.
            let measured = seen.measured_ms;
            let span = Covered(said_ms(measured, span_ms));
            let gaps = Lacks { lives: self.grid.lives(), gaps: seen.gaps, old_ms: end.since(last) };
            let partly = Partly(is_partial(measured, span_ms));
            match self.headline {
                Some(Headline { q, quantile }) => {
                    let bounded = Bounded { q, quantile, edges: self.grid.edges() };
                    write!(self.title, "{name} {bounded}{partly}, n {} in {span}{gaps}", seen.n)
                }
                None if seen.n == 0 => write!(self.title, "{name}: no traffic in {span}{gaps}"),
                None => write!(self.title, "{name}: only {} {} in {span}{gaps}", seen.n, observations(metric)),
            }
        } else {
            write!(self.title, "{name} not scraped in {}", Span(span_ms))
        };
    }
}

/// The heat map while it is drawn.
struct Picture<'a> {
    pane: &'a Latency,
    theme: &'a Theme,
    plot: Rect,
    axis: LogAxis,
}

/// Role of the high quantile and of P50.
const HIGH: Role = Role::Third;
const MEDIAN: Role = Role::Fourth;

impl Picture<'_> {
    fn heatmap(&self) -> Heatmap<'_, impl Fn(u16, u16) -> Option<f32>> {
        let Latency { grid, pixels, pixel_rows, top, .. } = self.pane;
        let pixel = move |x, row| {
            let place = grid.column_at(x)? * usize::from(*pixel_rows) + usize::from(row);
            let count = pixels.get(place).copied().filter(|_| row < *pixel_rows)?;
            (count > 0.0).then(|| (count / top).sqrt())
        };
        Heatmap { theme: self.theme, area: self.plot, pixel }
    }

    fn char(&self, unicode: char, ascii: char) -> char {
        if self.theme.unicode() { unicode } else { ascii }
    }

    const fn sqrt(&self) -> &'static str {
        if self.theme.unicode() { "√" } else { "sqrt" }
    }

    /// Row from the top that holds a latency, clamped to the plot.
    fn row(&self, seconds: f64) -> u16 {
        let rows = f64::from(self.plot.height);
        let up = (self.axis.place(seconds) * rows).floor().clamp(0.0, (rows - 1.0).max(0.0));
        self.plot.height.saturating_sub(1) - up as u16
    }

    fn draw(&self, buf: &mut Buffer) {
        let map = self.heatmap();
        map.draw(buf);
        for x in 0..self.plot.width {
            let Some(i) = self.pane.grid.column_at(x) else { continue };
            let column = self.pane.grid.columns()[i];
            match column.state {
                State::NotScraped => self.hatch(buf, x),
                State::NoTraffic => self.dim(buf, (x, self.plot.height.saturating_sub(1)), self.char('·', '_')),
                State::Pending | State::Counts => {}
            }
            let middle = self.is_middle(x, i);
            let bar = middle && self.has_bar(i);
            for (quantile, role, mark) in [(column.p50, MEDIAN, '─'), (column.high, HIGH, '━')] {
                let Some(quantile) = quantile else { continue };
                let style = self.theme.style(role);
                if bar {
                    self.range(&quantile).for_each(|y| map.mark(buf, (x, y), self.char('│', '|'), style));
                }
                map.mark(
                    buf,
                    (x, self.row(quantile.value)),
                    self.char(mark, if role == HIGH { '=' } else { '-' }),
                    style,
                );
            }
            if column.restart && middle {
                let style = self.theme.style(Role::Warn);
                (0..self.plot.height).for_each(|y| map.mark(buf, (x, y), self.char('╎', '!'), style));
                map.mark(buf, (x, 0), 'R', style);
            }
        }
    }

    /// Whether column `i` shows its certain ranges: wide columns all do, of narrow ones every fourth, so that
    /// the counts behind stay visible.
    fn has_bar(&self, i: usize) -> bool {
        let cells = f64::from(self.plot.width) / self.pane.grid.columns().len().max(1) as f64;
        cells > 2.0 || self.pane.grid.slot(i).is_multiple_of(4)
    }

    /// Whether `x` is the middle one of the cells that show column `i`.
    fn is_middle(&self, x: u16, i: usize) -> bool {
        let same = |x: u16| self.pane.grid.column_at(x) == Some(i);
        let left = (0..x).rev().take_while(|&x| same(x)).count();
        let right = (x + 1..self.plot.width).take_while(|&x| same(x)).count();
        left == right || left + 1 == right
    }

    /// Rows that a quantile's certain interval touches.
    fn range(&self, quantile: &Quantile) -> RangeInclusive<u16> {
        // A hair inside the bucket: its upper edge belongs to the row below.
        let top = quantile.hi.map_or(0, |hi| self.row(hi * 0.999));
        let bottom = self.row(if quantile.lo > 0.0 { quantile.lo * 1.001 } else { self.axis.lo() });
        top..=bottom.max(top)
    }

    fn dim(&self, buf: &mut Buffer, (x, y): (u16, u16), c: char) {
        self.heatmap().mark(buf, (x, y), c, self.theme.style(Role::Border));
    }

    fn hatch(&self, buf: &mut Buffer, x: u16) {
        for y in (0..self.plot.height).filter(|y| (x + y).is_multiple_of(4)) {
            self.dim(buf, (x, y), self.char('╱', '/'));
        }
    }

    /// Labels of the log rows: round ticks, and the edges beyond which nothing is known.
    fn draw_labels(&self, buf: &mut Buffer, area: Rect) {
        let Some(line) = area.width.checked_sub(1) else { return };
        for y in 0..area.height {
            put(buf, area, (line, y), self.theme.style(Role::Border), format_args!("{}", self.char('│', '|')));
        }
        let edges = self.pane.grid.edges();
        let (Some(&first), Some(&last)) = (edges.first(), edges.last()) else { return };
        let dim = self.theme.style(Role::Dim);
        let room = usize::from(line);
        let tick = self.char('┤', '+');
        // A row has one label: the first that asks for it.
        let mut label = |y, text: fmt::Arguments<'_>| {
            let free = buf.cell((area.x + line, area.y + y)).is_some_and(|cell| !cell.symbol().starts_with(tick));
            if free {
                put(buf, area, (0, y), dim, text);
                put(buf, area, (line, y), self.theme.style(Role::Border), format_args!("{tick}"));
            }
        };
        if self.axis.hi() > last * 1.01 {
            label(self.row(last * 1.5), format_args!("{:>room$}", Edge::Above(last)));
        }
        if self.axis.lo() < first * 0.99 {
            label(self.row(first / 1.5), format_args!("{:>room$}", Edge::Below(first)));
        }
        for value in self.axis.ticks(self.plot.height) {
            // Beyond the outer edges no row means more than another.
            if (first..=last).contains(&value) {
                label(self.row(value * 1.001), format_args!("{:>room$}", Tick(value)));
            }
        }
    }

    /// Brackets of the whole window's quantiles beside the plot.
    fn draw_window(&self, buf: &mut Buffer, area: Rect) {
        let high = self.pane.headline.filter(|h| h.q > 0.5);
        let median = self.pane.median.map(|quantile| Headline { q: 0.5, quantile });
        let mut label_at = u16::MAX;
        for (headline, role, x) in [(high, HIGH, 1), (median, MEDIAN, 2)] {
            let Some(Headline { q, quantile }) = headline else { continue };
            let style = self.theme.style(role);
            let value = self.row(quantile.value);
            let rows = self.range(&quantile);
            let (top, bottom) = (*rows.start(), *rows.end());
            for y in rows {
                let c = match (y == value, y == top, y == bottom) {
                    (true, ..) => self.char('┿', '+'),
                    (_, true, _) => self.char('┐', '.'),
                    (_, _, true) => self.char('┘', '\''),
                    _ => self.char('│', '|'),
                };
                put(buf, area, (x, y), style, format_args!("{c}"));
            }
            // Both in one row: the label of P50 goes below.
            let y = if value == label_at { value + 1 } else { value };
            label_at = value;
            put(buf, area, (4, y), style, format_args!("P{:.0}", q * 100.0));
        }
    }

    fn draw_legend(&self, buf: &mut Buffer, area: Rect) {
        let (grid, dim) = (&self.pane.grid, self.theme.style(Role::Dim));
        let any = |state| grid.columns().iter().any(|c| c.state == state);
        let mut row = Row::new(buf, area);
        if any(State::Counts) {
            self.draw_scale(&mut row);
        }
        if any(State::NoTraffic) {
            row.part(&[(dim, format_args!("{} no traffic", self.char('·', '_')))]).gap(2);
        }
        if any(State::NotScraped) {
            row.part(&[(dim, format_args!("{} not scraped", self.char('╱', '/')))]).gap(2);
        }
        if grid.columns().iter().any(|c| c.restart) {
            row.part(&[(dim, format_args!("R restart"))]).gap(2);
        }
        if let Some(q) = grid.high_q() {
            let line = format_args!("{} ", self.char('━', '='));
            row.part(&[(self.theme.style(HIGH), line), (dim, format_args!("P{:.0}", q * 100.0))]).gap(2);
        }
        if grid.columns().iter().any(|c| c.p50.is_some()) {
            let line = format_args!("{} ", self.char('─', '-'));
            row.part(&[(self.theme.style(MEDIAN), line), (dim, format_args!("P50"))]);
            row.part(&[(dim, format_args!(" of a column, {} certain range", self.char('│', '|')))]);
        }
    }

    /// The colours of some whole numbers of requests. Where even the hottest cell has less than one (a request
    /// is spread over its bucket), the ends of the scale.
    fn draw_scale(&self, row: &mut Row<'_>) {
        let (top, dim) = (self.pane.top, self.theme.style(Role::Dim));
        let whole = [(top / 10.0).round(), (top / 2.0).round(), top.round()];
        if whole[2] < 2.0 {
            for (t, word) in [(0.0, "few"), (1.0, "most, spread over their bucket")] {
                row.picture(2, |buf, area| swatch(buf, area, self.theme, t));
                row.part(&[(dim, format_args!(" {word} "))]);
            }
            row.gap(1);
            return;
        }
        row.picture(2, |buf, area| swatch(buf, area, self.theme, 0.0));
        row.part(&[(dim, format_args!(" >0 "))]);
        for (i, count) in whole.into_iter().enumerate().filter(|(_, count)| *count >= 1.0) {
            // Rounded, two of them may be the same.
            if !whole[..i].contains(&count) {
                let t = (count / top).sqrt();
                row.picture(2, |buf, area| swatch(buf, area, self.theme, t));
                row.part(&[(dim, format_args!(" {count:.0} "))]);
            }
        }
        row.part(&[(dim, format_args!("a cell ({})", self.sqrt()))]).gap(2);
    }

    /// Marks the cell under the cursor and reads it out in place of the legend.
    fn draw_cursor(&self, buf: &mut Buffer, area: Rect, (x, up): (u16, u16), context: &Context<'_>) {
        let (x, up) = (x.min(self.plot.width.saturating_sub(1)), up.min(self.plot.height.saturating_sub(1)));
        self.heatmap().invert(buf, (x, self.plot.height.saturating_sub(1) - up));
        let Some(i) = self.pane.grid.column_at(x) else { return };
        let column = self.pane.grid.columns()[i];
        let minus = self.char('−', '-');
        let ago = |at| Span(context.view.end.since(at));
        let (text, dim) = (self.theme.style(Role::Text), self.theme.style(Role::Dim));
        let x =
            put(buf, area, (0, 0), text, format_args!("{minus}{} to {minus}{}  ", ago(column.from), ago(column.to)));
        let say = |buf: &mut Buffer, x, words: &str| {
            put(buf, area, (x, 0), dim, format_args!("{words}"));
        };
        let x = match column.state {
            State::NotScraped => return say(buf, x, "not scraped"),
            State::Pending => return say(buf, x, "next scrape is due"),
            State::NoTraffic => return say(buf, x, "scraped, no traffic"),
            State::Counts => x,
        };
        let rows = f64::from(self.plot.height);
        let (lo, hi) = (self.axis.value(f64::from(up) / rows), self.axis.value(f64::from(up + 1) / rows));
        let x = self.read_out(buf, area, x, i, (lo, hi));
        let mut rest = Row::new(buf, Rect { x: area.x + x, width: area.width.saturating_sub(x), ..area });
        for (name, quantile) in [(self.pane.grid.high_q(), column.high), (Some(0.5), column.p50)] {
            let Some((q, quantile)) = name.zip(quantile) else { continue };
            let bounded = Bounded { q, quantile, edges: self.pane.grid.edges() };
            // Without its interval a quantile says too much.
            rest.part(&[(dim, format_args!("{bounded}"))]);
            return;
        }
    }

    /// Writes the buckets that touch `lo..hi` of column `i`: their range, count and share.
    fn read_out(&self, buf: &mut Buffer, area: Rect, x: u16, i: usize, (lo, hi): (f64, f64)) -> u16 {
        let grid = &self.pane.grid;
        let edges = grid.edges();
        let touches = |&bucket: &usize| {
            let span = bucket_span(edges, bucket);
            span.0 < hi * 0.999 && span.1 > lo * 1.001
        };
        let buckets = 0..=edges.len();
        let Some(first) = buckets.clone().find(touches) else { return x };
        let last = buckets.rev().find(touches).unwrap_or(first);
        let count: u64 = grid.counts(i)[first..=last].iter().sum();
        let n = grid.columns()[i].n;
        let range = words::Range { edges, first, last };
        let noun = self.pane.metric.map_or("", observations);
        let share = count as f64 * 100.0 / n.max(1) as f64;
        let style = self.theme.style(Role::Text);
        put(buf, area, (x, 0), style, format_args!("{range}: {count} of {n} {noun}, {share:.0} %  "))
    }
}

#[cfg(test)]
mod tests;
