//! Lines over areas: a line lives in the foreground of its cells (braille, 2×4 dots), an area in their
//! background, so that where they cross both keep their colour and the line every dot.
//!
//! Without colour an area is a shade and a line replaces it only in the cells it passes; without
//! Unicode a line is drawn with `_ - ' / \ |`.

use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};

use crate::store::Bin;
use crate::ui::theme::{Depth, Role, Theme};

use super::axes::{divisions, grid_row, sub_row};
use super::{Scale, anchored, cell};

/// A line; where lines share a cell their dots are all drawn, in the colour of the later one.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a> {
    /// Two bins a column, the last at the right edge.
    pub bins: &'a [Bin],
    /// Its axis.
    pub scale: Scale,
    /// Its colour.
    pub style: Style,
    /// Whether it spreads from the smallest to the largest value of each bin, instead of showing the mean.
    pub envelope: bool,
}

/// An area from the base line up to the mean of each column; a later one covers an earlier one.
#[derive(Clone, Copy, Debug)]
pub struct Area<'a> {
    /// Two bins a column, the last at the right edge.
    pub bins: &'a [Bin],
    /// Its axis.
    pub scale: Scale,
    /// Its colour.
    pub role: Role,
    /// Its shade without colour, 0 (lightest) to 1: see [`Theme::shade`].
    pub shade: f32,
}

/// A plot.
#[derive(Clone, Copy, Debug)]
pub struct Plot<'a> {
    /// Colours and characters.
    pub theme: &'a Theme,
    /// Areas, the hindmost first.
    pub areas: &'a [Area<'a>],
    /// Lines, the hindmost first.
    pub lines: &'a [Line<'a>],
    /// Whether grid lines show where nothing else does.
    pub grid: bool,
}

/// A braille cell's dots from the bottom: left column, right column.
const DOTS: [[u8; 4]; 2] = [[0x40, 0x04, 0x02, 0x01], [0x80, 0x20, 0x10, 0x08]];
/// Eighths that a value above zero takes at least: a lone eighth is the mark of a measured zero.
const LITTLE: f64 = 3.0;
/// Lower eighths, 1 to 7.
const EIGHTHS: [char; 7] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇'];

/// Dots that a line sets in one half of a column: sub-rows from the bottom, both ends included.
type Dots = Option<(u16, u16)>;

impl Line<'_> {
    /// Lowest and highest sub-row of the bin in half-column `i` of `halves`.
    fn span(&self, i: usize, halves: usize, rows: u16) -> Dots {
        let bin = anchored(self.bins, halves, i)?;
        let (lo, hi) = if self.envelope { (bin.min()?, bin.max()?) } else { (bin.mean()?, bin.mean()?) };
        let row = |v: f32| {
            let share = self.scale.fraction(f64::from(v))?;
            // Little is not nothing: it leaves the base line.
            Some(sub_row(share, rows).max(u16::from(share > 0.0)))
        };
        let (lo, hi) = (row(lo)?, row(hi)?);
        Some((lo.min(hi), lo.max(hi)))
    }

    /// The same, reaching out to its neighbour on the left so that the line does not break.
    fn dots(&self, i: usize, halves: usize, rows: u16) -> Dots {
        let (lo, hi) = self.span(i, halves, rows)?;
        let Some((before_lo, before_hi)) = i.checked_sub(1).and_then(|b| self.span(b, halves, rows)) else {
            return Some((lo, hi));
        };
        Some((lo.min(before_hi.saturating_add(1)), hi.max(before_lo.saturating_sub(1))))
    }
}

impl Area<'_> {
    /// Height in eighths of a row: at least one where anything was measured, and [`LITTLE`] above zero.
    fn eighths(&self, x: usize, columns: usize, rows: u16) -> Option<u16> {
        let mean = |half| anchored(self.bins, columns * 2, x * 2 + half).and_then(Bin::mean);
        let value = match (mean(0), mean(1)) {
            (Some(a), Some(b)) => f32::midpoint(a, b),
            (a, b) => a.or(b)?,
        };
        let (share, most) = (self.scale.fraction(f64::from(value))?, f64::from(rows) * 8.0);
        let least = if share > 0.0 { LITTLE } else { 1.0 };
        Some((share * most).round().clamp(least, most.max(least)) as u16)
    }
}

impl Plot<'_> {
    /// Draws it into `area`.
    pub fn draw(&self, area: Rect, buf: &mut Buffer) {
        if area.is_empty() {
            return;
        }
        if self.grid {
            self.draw_grid(area, buf);
        }
        for x in 0..area.width {
            for layer in self.areas {
                self.draw_area(layer, area, x, buf);
            }
            for line in self.lines {
                self.draw_line(line, area, x, buf);
            }
        }
    }

    fn draw_grid(&self, area: Rect, buf: &mut Buffer) {
        let n = divisions(area.height);
        let dot = if self.theme.unicode() { '┈' } else { '.' };
        for k in 1..n {
            for x in 0..area.width {
                if let Some(cell) = cell(buf, area, (x, grid_row(k, n, area.height))) {
                    cell.set_char(dot).set_style(self.theme.style(Role::Border));
                }
            }
        }
    }

    fn draw_area(&self, layer: &Area<'_>, area: Rect, x: u16, buf: &mut Buffer) {
        let Some(height) = layer.eighths(usize::from(x), usize::from(area.width), area.height) else { return };
        for up in 0..height.div_ceil(8) {
            let Some(row) = (area.height - 1).checked_sub(up) else { return };
            let eighths = (height - up * 8).min(8);
            // Eighths would be a bright lid on a shade: without colour the edge is rounded to whole rows.
            if self.theme.depth == Depth::Mono && up > 0 && eighths < 4 {
                return;
            }
            if let Some(cell) = cell(buf, area, (x, row)) {
                self.fill(layer, eighths, cell);
            }
        }
    }

    /// Fills the lower `eighths` (1 to 8) of a cell.
    fn fill(&self, layer: &Area<'_>, eighths: u16, cell: &mut Cell) {
        match (self.theme.colour(layer.role), eighths) {
            (Some(colour), 8) => cell.set_char(' ').set_bg(colour),
            (Some(colour), part) if self.theme.unicode() => {
                cell.set_char(EIGHTHS[usize::from(part - 1).min(6)]).set_fg(colour)
            }
            (Some(colour), 4..) => cell.set_char(' ').set_bg(colour),
            (None, 4..) => cell.set_char(self.theme.shade(layer.shade)).set_style(self.theme.style(Role::Dim)),
            (Some(colour), part) => cell.set_char(if part > 1 { '=' } else { '_' }).set_fg(colour),
            (None, part) if self.theme.unicode() => {
                cell.set_char(EIGHTHS[usize::from(part - 1).min(6)]).set_style(self.theme.style(Role::Dim))
            }
            (None, part) => cell.set_char(if part > 1 { '=' } else { '_' }).set_style(self.theme.style(Role::Dim)),
        };
    }

    fn draw_line(&self, line: &Line<'_>, area: Rect, x: u16, buf: &mut Buffer) {
        let halves = usize::from(area.width) * 2;
        let half = |side: usize| line.dots(usize::from(x) * 2 + side, halves, area.height);
        let sides = [half(0), half(1)];
        let ends = sides.into_iter().flatten();
        let Some((lo, hi)) = ends.reduce(|(a, b), (c, d)| (a.min(c), b.max(d))) else { return };
        for up in lo / 4..=hi / 4 {
            let Some(row) = (area.height - 1).checked_sub(up) else { return };
            let Some(cell) = cell(buf, area, (x, row)) else { continue };
            if hi == 0 && is_little(cell) {
                // A line at zero yields to an area so low that the two cannot share a cell.
                continue;
            }
            let parts = sides.map(|dots| part(dots, up));
            let bits = parts.iter().zip(DOTS).fold(0, |bits, (part, dots)| bits | mask(*part, dots));
            if bits != 0 {
                self.mark(line, parts, bits, cell);
            }
        }
    }

    /// Sets a line's dots in a cell, keeping those that are there and an area behind.
    fn mark(&self, line: &Line<'_>, parts: [Dots; 2], bits: u8, cell: &mut Cell) {
        // The upper edge of an area becomes a background, or nothing, so that the dots can be seen on it.
        let edge = cell.symbol().chars().next().and_then(|c| EIGHTHS.iter().position(|e| *e == c));
        let bg = if edge.is_some_and(|eighths| eighths >= 3) { cell.fg } else { cell.bg };
        if self.theme.unicode() {
            cell.set_char(braille(bits | dots_of(cell)));
        } else {
            cell.set_char(ascii(parts));
        }
        (cell.fg, cell.modifier) = (Color::Reset, Modifier::empty());
        cell.set_style(line.style).set_bg(bg);
    }
}

/// Whether a cell holds no more than the top of an area that is low, but not zero.
fn is_little(cell: &Cell) -> bool {
    matches!(cell.symbol(), "▂" | "▃" | "=")
}

/// The part of a range that lies in the cell `up` from the bottom, as 0 to 3.
fn part(dots: Dots, up: u16) -> Dots {
    let (lo, hi) = dots?;
    let base = up * 4;
    (lo <= base + 3 && hi >= base).then(|| (lo.saturating_sub(base), (hi - base).min(3)))
}

fn mask(part: Dots, dots: [u8; 4]) -> u8 {
    part.map_or(0, |(lo, hi)| (lo..=hi).fold(0, |bits, i| bits | dots[usize::from(i)]))
}

fn braille(bits: u8) -> char {
    char::from_u32(0x2800 + u32::from(bits)).unwrap_or(' ')
}

/// Dots that are already in a cell.
fn dots_of(cell: &Cell) -> u8 {
    let c = cell.symbol().chars().next().map_or(0, u32::from);
    if (0x2800..0x2900).contains(&c) { (c & 0xff) as u8 } else { 0 }
}

/// A line's character without braille: by its slope, else by its height in the cell.
fn ascii([left, right]: [Dots; 2]) -> char {
    let middle = |(lo, hi): (u16, u16)| lo + hi;
    let (lo, hi) = match (left, right) {
        (Some(l), Some(r)) => {
            let (a, b) = (middle(l), middle(r));
            if a.abs_diff(b) >= 4 {
                return if a < b { '/' } else { '\\' };
            }
            (l.0.min(r.0), l.1.max(r.1))
        }
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => return ' ',
    };
    match (lo, hi) {
        (lo, hi) if hi - lo >= 2 => '|',
        (lo, hi) if lo + hi <= 1 => '_',
        (lo, hi) if lo + hi >= 5 => '\'',
        _ => '-',
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Batch, Metric, SourceId, Subject, Time};
    use crate::store::{Retention, Store, Window};
    use crate::ui::theme::Charset;

    /// One bin a value, through the store as a pane gets them; `None` is a gap.
    fn bins(values: &[Option<f64>]) -> Vec<Bin> {
        let store = Store::new(Retention::HOUR);
        for (i, value) in values.iter().enumerate() {
            let mut batch = Batch::new(SourceId::Nvml, Time(1_000_000 + i as u64 * 1000), 1500);
            batch.push(Subject::Gpu(0), Metric::SmActive, value.unwrap_or(f64::NAN));
            store.push(&batch);
        }
        let end = Time(999_000 + values.len() as u64 * 1000);
        let mut bins = vec![Bin::default(); values.len()];
        store.read().fill(Subject::Gpu(0), Metric::SmActive, Window::last(end, values.len() as u64 * 1000), &mut bins);
        bins
    }

    fn drawn(theme: Theme, width: u16, height: u16, area: &[f64], line: &[Option<f64>]) -> Buffer {
        let mut buf = Buffer::empty(Rect::new(0, 0, width, height));
        let (below, above) = (bins(&area.iter().copied().map(Some).collect::<Vec<_>>()), bins(line));
        let plot = Plot {
            theme: &theme,
            areas: &[Area { bins: &below, scale: Scale::PERCENT, role: Role::Area, shade: 0.0 }],
            lines: &[Line { bins: &above, scale: Scale::PERCENT, style: theme.style(Role::Line), envelope: false }],
            grid: false,
        };
        plot.draw(buf.area, &mut buf);
        buf
    }

    fn text(buf: &Buffer) -> Vec<String> {
        let row = |y| (0..buf.area.width).map(|x| buf[(x, y)].symbol()).collect();
        (0..buf.area.height).map(row).collect()
    }

    #[test]
    fn where_they_cross_both_keep_their_colour_and_every_dot() {
        let falling = [100.0, 80.0, 60.0, 40.0, 20.0, 0.0].map(Some);
        let alone = drawn(Theme::FULL, 3, 3, &[], &falling);
        let both = drawn(Theme::FULL, 3, 3, &[100.0; 6], &falling);
        assert_eq!(text(&alone), text(&both), "the area takes no dot from the line");
        for (x, y) in (0..3).flat_map(|x| (0..3).map(move |y| (x, y))) {
            assert_eq!(Some(both[(x, y)].bg), Theme::FULL.colour(Role::Area));
            if alone[(x, y)].symbol() != " " {
                assert_eq!(Some(both[(x, y)].fg), Theme::FULL.colour(Role::Line));
            }
        }
    }

    #[test]
    fn an_area_ends_in_eighths_and_a_measured_zero_shows() {
        let buf = drawn(Theme::FULL, 3, 2, &[0.0, 0.0, 25.0, 25.0, 75.0, 75.0], &[]);
        assert_eq!(text(&buf), ["  ▄", "▁▄ "]);
    }

    #[test]
    fn little_is_not_nothing() {
        let one_of_eighty = [0.0, 0.0, 1.25, 1.25];
        assert_eq!(text(&drawn(Theme::FULL, 2, 2, &one_of_eighty, &[])), ["  ", "▁▃"]);
        assert_eq!(text(&drawn(Theme::MONO, 2, 2, &one_of_eighty, &[])), ["  ", "▁▃"]);
        let ascii = Theme { depth: Depth::Mono, charset: Charset::Ascii };
        assert_eq!(text(&drawn(ascii, 2, 2, &one_of_eighty, &[])), ["  ", "_="]);
        let line = one_of_eighty.map(Some);
        assert_eq!(text(&drawn(Theme::FULL, 2, 2, &[], &line)), ["  ", "⣀⠤"]);
        let (zero, half) = ([Some(0.0); 4], [0.0, 0.0, 30.0, 30.0]);
        assert_eq!(text(&drawn(Theme::FULL, 2, 2, &one_of_eighty, &zero)), ["  ", "⣀▃"], "the line yields");
        assert_eq!(text(&drawn(Theme::FULL, 2, 2, &half, &zero)), ["  ", "⣀⣀"], "they share a cell");
    }

    #[test]
    fn a_line_is_unbroken_and_a_gap_is_blank() {
        let buf =
            drawn(Theme::FULL, 4, 2, &[], &[Some(0.0), Some(100.0), None, None, None, None, Some(50.0), Some(50.0)]);
        assert_eq!(text(&buf), ["⢸  ⣀", "⡸   "]);
    }

    #[test]
    fn two_lines_share_a_cell() {
        let (low, high) = (bins(&[Some(0.0); 2]), bins(&[Some(100.0); 2]));
        let line = |bins| Line { bins, scale: Scale::PERCENT, style: Style::new(), envelope: false };
        let mut buf = Buffer::empty(Rect::new(0, 0, 1, 1));
        Plot { theme: &Theme::MONO, areas: &[], lines: &[line(&low), line(&high)], grid: false }
            .draw(buf.area, &mut buf);
        assert_eq!(text(&buf), ["⣉"]);
    }

    #[test]
    fn without_colour_the_area_is_a_shade_and_without_unicode_the_line_is_ascii() {
        let line = [0.0, 0.0, 50.0, 50.0, 100.0, 100.0].map(Some);
        assert_eq!(text(&drawn(Theme::MONO, 3, 2, &[100.0; 6], &line)), ["░⣀⠏", "⣀⠇░"]);
        let ascii = Theme { depth: Depth::Mono, charset: Charset::Ascii };
        assert_eq!(text(&drawn(ascii, 3, 2, &[100.0; 6], &line)), ["._|", "_|."]);
    }

    #[test]
    fn time_stands_at_the_right_edge() {
        let buf = drawn(Theme::FULL, 4, 1, &[], &[Some(100.0), Some(100.0)]);
        assert_eq!(text(&buf), ["   ⠉"]);
    }
}
