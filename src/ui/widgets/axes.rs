//! What surrounds a plot: gutters with labels, and the row that tells the time.
//!
//! Every pane splits its area here, so that panes above one another share columns in time.

use std::fmt::{self, Display, Formatter};

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use crate::app::View;
use crate::model::{Time, Unit};
use crate::ui::text::{columns, put, put_right};
use crate::ui::theme::{Role, Theme};
use crate::ui::units::{Decimals, Span};

use super::{Scale, cell};

/// The parts of a pane that shows a plot. Parts that have no room are empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axes {
    /// Labels of the left axis and, in its last column, the axis.
    pub left: Rect,
    /// The plot.
    pub plot: Rect,
    /// Labels of the right axis.
    pub right: Rect,
    /// The row below, as wide as `left` and `plot`.
    pub time: Rect,
    /// The row below that, as wide as the plot, for what held when.
    pub strip: Rect,
}

/// Least height of plot, time and strip together.
const STRIPPED: u16 = 6;

impl Axes {
    /// Columns of the left gutter: six for the label, one for the axis.
    pub const LEFT: u16 = 7;
    /// Columns of the right gutter: a space and eight for the label.
    pub const RIGHT: u16 = 9;

    /// Splits the inside of a pane. The right gutter goes first, then the left one, then the time.
    pub fn split(area: Rect) -> Self {
        let left = if area.width >= 20 { Self::LEFT } else { 0 };
        let right = if area.width >= 36 { Self::RIGHT } else { 0 };
        let rows = area.height - u16::from(area.height >= 4);
        let plot = Rect { x: area.x + left, width: area.width - left - right, height: rows, ..area };
        Self {
            left: Rect { width: left, height: rows, ..area },
            plot,
            right: Rect { x: plot.x + plot.width, width: right, ..plot },
            time: Rect { y: area.y + rows, width: left + plot.width, height: area.height - rows, ..area },
            strip: Rect::ZERO,
        }
    }

    /// The same, with a strip below the time where the plot keeps enough rows.
    pub fn with_strip(area: Rect) -> Self {
        let strip = u16::from(area.height >= STRIPPED);
        let axes = Self::split(Rect { height: area.height - strip, ..area });
        let y = area.y.saturating_add(area.height - strip);
        Self { strip: Rect { y, height: strip, ..axes.plot }, ..axes }
    }

    /// The same columns, other rows: for plots above one another in one pane.
    #[must_use]
    pub fn rows(&self, y: u16, height: u16) -> Self {
        let cut = |r: Rect| Rect { y, height, ..r };
        Self { left: cut(self.left), plot: cut(self.plot), right: cut(self.right), ..*self }
    }

    /// Bins that fill the plot at two a column.
    pub fn bins(&self) -> usize {
        usize::from(self.plot.width) * 2
    }
}

/// Number of parts that grid lines cut a plot of this height into.
pub const fn divisions(height: u16) -> u16 {
    match height {
        0 | 1 => 0,
        2..=4 => 1,
        5..=11 => 2,
        _ => 4,
    }
}

/// Sub-row from the bottom at the share `t` (0 to 1) of a plot of `rows` cells with four sub-rows each.
pub(super) fn sub_row(t: f64, rows: u16) -> u16 {
    let most = f64::from(rows) * 4.0 - 1.0;
    (t * most).round().clamp(0.0, most.max(0.0)) as u16
}

/// Row from the top of grid line `k` of `n`; the row in which a line of that value is drawn.
pub fn grid_row(k: u16, n: u16, rows: u16) -> u16 {
    (rows.max(1) - 1) - sub_row(f64::from(k) / f64::from(n.max(1)), rows.max(1)) / 4
}

/// A number on an axis, in the prefix of the axis' upper end.
struct Label {
    value: f64,
    scale: Scale,
    unit: Unit,
    with_unit: bool,
    /// Whether a blank stands before the unit.
    blank: bool,
}

/// Prefix of a large number: divisor, and its place in a list of units.
fn prefix(top: f64, base: f64) -> (f64, usize) {
    let mut divisor = 1.0;
    let mut place = 0;
    while top.abs() / divisor >= base && place < 5 {
        divisor *= base;
        place += 1;
    }
    (divisor, place)
}

impl Label {
    fn parts(&self) -> (f64, &'static str) {
        let hi = self.scale.hi();
        match self.unit {
            Unit::Percent => (1.0, " %"),
            Unit::Megahertz => (1.0, " MHz"),
            Unit::Celsius => (1.0, " °C"),
            Unit::Watts | Unit::Joules => (1.0, " W"),
            Unit::BytesPerSecond => {
                let (d, place) = prefix(hi, 1000.0);
                (d, [" B/s", " kB/s", " MB/s", " GB/s", " TB/s", " PB/s"][place])
            }
            Unit::Bytes => {
                let (d, place) = prefix(hi, 1024.0);
                (d, [" B", " KiB", " MiB", " GiB", " TiB", " PiB"][place])
            }
            Unit::Seconds if hi < 1.0 => (1e-3, " ms"),
            Unit::Seconds => (1.0, " s"),
            Unit::Milliseconds => (1.0, " ms/s"),
            Unit::Microseconds => (1.0, " µs/s"),
            Unit::Tokens | Unit::Requests | Unit::Count | Unit::Bits => {
                let (d, place) = prefix(hi / 10.0, 1000.0);
                (d, ["", "k", "M", "G", "T", "P"][place])
            }
        }
    }
}

impl Display for Label {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (divisor, unit) = self.parts();
        let value = self.value / divisor;
        let whole = |v: f64| (v - v.round()).abs() < 1e-6;
        let decimals = if value.abs() >= 1000.0 || whole(value) {
            0
        } else if whole(value * 10.0) || value.abs() >= 100.0 {
            1
        } else {
            2
        };
        let unit = if self.blank { unit } else { unit.trim_start() };
        write!(f, "{}{}", Decimals(value, decimals), if self.with_unit { unit } else { "" })
    }
}

/// Draws the left axis of a plot into `axes.left`: labels of the grid lines right-aligned, the axis beside them.
/// The uppermost has the unit, where it fits.
pub fn value_axis_left(buf: &mut Buffer, axes: &Axes, theme: &Theme, scale: Scale, unit: Unit, style: Style) {
    let area = axes.left;
    let Some(line) = area.width.checked_sub(1) else { return };
    let (bar, tick) = if theme.unicode() { ('│', '┤') } else { ('|', '+') };
    for y in 0..area.height {
        if let Some(cell) = cell(buf, area, (line, y)) {
            cell.set_char(bar).set_style(theme.style(Role::Border));
        }
    }
    let text = Rect { width: line, ..area };
    each_label(area.height, scale, unit, line, |y, label| {
        put_right(buf, text, (line, y), style, format_args!("{label}"));
        if let Some(cell) = cell(buf, area, (line, y)) {
            cell.set_char(tick);
        }
    });
}

/// Draws the right axis of a plot into `axes.right`: labels of the grid lines after a space.
pub fn value_axis_right(buf: &mut Buffer, axes: &Axes, scale: Scale, unit: Unit, style: Style) {
    let area = axes.right;
    let Some(room) = area.width.checked_sub(1) else { return };
    each_label(area.height, scale, unit, room, |y, label| {
        put(buf, area, (1, y), style, format_args!("{label}"));
    });
}

/// Calls `draw` with the row and the label of every grid line.
fn each_label(rows: u16, scale: Scale, unit: Unit, room: u16, mut draw: impl FnMut(u16, &Label)) {
    let n = divisions(rows);
    for k in 0..=n {
        let value = if n == 0 { scale.hi() } else { scale.at(f64::from(k) / f64::from(n)) };
        let mut label = Label { value, scale, unit, with_unit: k == n, blank: true };
        label.blank = columns(format_args!("{label}")) <= room;
        label.with_unit &= columns(format_args!("{label}")) <= room;
        draw(grid_row(k, n, rows), &label);
    }
}

/// What stands at the right end of the time axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeEnd {
    /// Now.
    Now,
    /// A moment, in ms after the first data: what `snapshot --at` takes.
    At(u64),
}

impl TimeEnd {
    /// The right end of the view, `oldest` being the time of the first data.
    pub fn of(view: &View, oldest: Option<Time>) -> Self {
        if view.live { Self::Now } else { Self::At(view.end.since(oldest.unwrap_or(view.end))) }
    }
}

impl Display for TimeEnd {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Now => f.write_str("now"),
            Self::At(ms) => write!(f, "at {}.{} s", ms / 1000, ms % 1000 / 100),
        }
    }
}

/// Draws the time axis into `axes.time`: "└ −60 s ──── −30 s ──── now".
pub fn time_axis(buf: &mut Buffer, axes: &Axes, theme: &Theme, span_ms: u64, end: TimeEnd) {
    let area = axes.time;
    let line = Rect { x: axes.plot.x, width: axes.plot.width, ..area };
    let (dash, corner) = if theme.unicode() { ('─', '└') } else { ('-', '+') };
    for x in 0..line.width {
        if let Some(cell) = cell(buf, line, (x, 0)) {
            cell.set_char(dash).set_style(theme.style(Role::Border));
        }
    }
    if let Some(x) = axes.left.width.checked_sub(1)
        && let Some(cell) = cell(buf, area, (x, 0))
    {
        cell.set_char(corner).set_style(theme.style(Role::Border));
    }
    let dim = theme.style(Role::Dim);
    let right = columns(format_args!("{end}")).saturating_add(1);
    if right > line.width {
        return;
    }
    let (mut used, parts) = (0, time_parts(span_ms));
    for part in 0..parts {
        let label = Ago { ms: span_ms / parts * (parts - part), unicode: theme.unicode() };
        let room = columns(format_args!("{label}")).saturating_add(2);
        let centre = (u64::from(line.width) * part / parts) as u16;
        let x = if part == 0 { 0 } else { centre.saturating_sub(room / 2) };
        if x >= used && x + room + 2 <= line.width - right {
            let lead = if part == 0 { "" } else { " " };
            put(buf, line, (x, 0), dim, format_args!("{lead}{label} "));
            used = x + room + 2;
        }
    }
    put(buf, line, (line.width - right, 0), dim, format_args!(" {end}"));
}

/// A time before the right end.
struct Ago {
    ms: u64,
    unicode: bool,
}

impl Display for Ago {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.unicode { '−' } else { '-' }, Span(self.ms))
    }
}

/// Number of parts with round lengths that labels cut the time axis into.
fn time_parts(span_ms: u64) -> u64 {
    let unit = match span_ms {
        ms if ms < 120_000 => 1000,
        ms if ms < 7_200_000 => 60_000,
        _ => 3_600_000,
    };
    [2, 3, 5].into_iter().find(|n| span_ms.is_multiple_of(n * unit)).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(area: Rect, draw: impl Fn(&mut Buffer, &Axes)) -> Vec<String> {
        let mut buf = Buffer::empty(area);
        draw(&mut buf, &Axes::split(area));
        let row = |y| (0..area.width).map(|x| buf[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        (0..area.height).map(row).collect()
    }

    #[test]
    fn both_axes_share_their_grid_lines() {
        let rows = drawn(Rect::new(0, 0, 50, 6), |buf, axes| {
            value_axis_left(buf, axes, &Theme::FULL, Scale::PERCENT, Unit::Percent, Style::new());
            value_axis_right(buf, axes, Scale::fixed(0.0, 4.8e12), Unit::BytesPerSecond, Style::new());
            time_axis(buf, axes, &Theme::FULL, 60_000, TimeEnd::Now);
        });
        let gap = " ".repeat(34);
        assert_eq!(rows[0], format!(" 100 %┤{gap} 4.8 TB/s"));
        assert_eq!(rows[2], format!("    50┤{gap} 2.4"));
        assert_eq!(rows[4], format!("     0┤{gap} 0"));
        assert_eq!(rows[5], "      └−60 s ──────── −30 s ───────── now");
    }

    #[test]
    fn labels_of_the_time_axis_are_round_and_never_touch() {
        for span in View::SPANS {
            let parts = time_parts(span);
            assert_eq!(span % parts, 0);
            for width in 0..120 {
                let row = drawn(Rect::new(0, 0, width, 4), |buf, axes| {
                    time_axis(buf, axes, &Theme::FULL, span, TimeEnd::At(52_340));
                });
                assert!(width < 22 || row[3].ends_with(" at 52.3 s"), "{row:?}");
                assert!(!row[3].contains("s−") && !row[3].contains("n−"), "{row:?}");
            }
        }
    }

    #[test]
    fn parts_fit_into_the_area() {
        for width in 0..60 {
            for height in 0..8 {
                let area = Rect::new(3, 2, width, height);
                let axes = Axes::split(area);
                for part in [axes.left, axes.plot, axes.right, axes.time] {
                    assert_eq!(part.intersection(area).area(), part.area(), "{area:?} {axes:?}");
                }
            }
        }
    }
}
