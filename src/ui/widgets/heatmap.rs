//! A heat map: shares from 0 to 1 become cells, two pixels above one another in each where colours and
//! characters allow, and marks are drawn over it without hiding the colour behind.
//!
//! It knows pixels, not what they count. Pixel rows count from the bottom; `None` is empty and stays
//! blank, while a share of 0 is the darkest step. No allocation; total for every size.

use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};

use crate::ui::theme::Theme;

use super::cell;

/// From here on up the ramp is so light that marks must be dark.
const LIGHT: f32 = 0.5;

/// How pixels become cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// `▀`: two colours in a cell.
    HalfBlocks,
    /// A background: one colour in a cell.
    Background,
    /// A shade: one character in a cell.
    Shades,
}

impl Mode {
    fn of(theme: Theme) -> Self {
        match (theme.heat(0.0), theme.unicode()) {
            (None, _) => Self::Shades,
            (Some(_), true) => Self::HalfBlocks,
            (Some(_), false) => Self::Background,
        }
    }

    const fn pixels_per_row(self) -> u16 {
        match self {
            Self::HalfBlocks => 2,
            Self::Background | Self::Shades => 1,
        }
    }
}

/// Pixel rows of a heat map `height` cells high.
pub fn pixel_rows(theme: &Theme, height: u16) -> u16 {
    height.saturating_mul(Mode::of(*theme).pixels_per_row())
}

/// A heat map whose pixel at column `x` and pixel row `y` from the bottom is `pixel(x, y)`.
#[derive(Debug)]
pub struct Heatmap<'a, F> {
    /// Colours and characters.
    pub theme: &'a Theme,
    /// Where it is drawn.
    pub area: Rect,
    /// Share of the scale, 0 to 1.
    pub pixel: F,
}

impl<F: Fn(u16, u16) -> Option<f32>> Heatmap<'_, F> {
    /// Draws all cells.
    pub fn draw(&self, buf: &mut Buffer) {
        for y in 0..self.area.height {
            for x in 0..self.area.width {
                if let Some(cell) = cell(buf, self.area, (x, y)) {
                    self.paint(cell, x, y);
                }
            }
        }
    }

    /// The pixels of a cell `y` rows from the top: upper and lower, the same one twice without half blocks.
    fn pixels(&self, x: u16, y: u16) -> (Option<f32>, Option<f32>) {
        let up = self.area.height - 1 - y;
        if Mode::of(*self.theme) == Mode::HalfBlocks {
            ((self.pixel)(x, up * 2 + 1), (self.pixel)(x, up * 2))
        } else {
            let one = (self.pixel)(x, up);
            (one, one)
        }
    }

    fn paint(&self, cell: &mut Cell, x: u16, y: u16) {
        let (upper, lower) = self.pixels(x, y);
        let colour = |t: Option<f32>| t.and_then(|t| self.theme.heat(t));
        match Mode::of(*self.theme) {
            Mode::Shades => {
                if let Some(t) = upper {
                    cell.set_char(self.theme.shade(t));
                }
            }
            Mode::Background => {
                if let Some(colour) = colour(upper) {
                    cell.set_char(' ').set_bg(colour);
                }
            }
            Mode::HalfBlocks => match (colour(upper), colour(lower)) {
                (None, None) => {}
                (Some(upper), None) => drop(cell.set_char('▀').set_fg(upper)),
                (None, Some(lower)) => drop(cell.set_char('▄').set_fg(lower)),
                (Some(upper), Some(lower)) => drop(cell.set_char('▀').set_fg(upper).set_bg(lower)),
            },
        }
    }

    /// Draws `mark` over the cell at column `x`, `y` rows from the top, on the colour of its hotter pixel.
    pub fn mark(&self, buf: &mut Buffer, (x, y): (u16, u16), mark: char, style: Style) {
        let (upper, lower) = if y < self.area.height { self.pixels(x, y) } else { (None, None) };
        let heat = upper.into_iter().chain(lower).reduce(f32::max);
        let Some(cell) = cell(buf, self.area, (x, y)) else { return };
        cell.reset();
        cell.set_char(mark).set_style(style);
        if let Some(t) = heat
            && let Some(colour) = self.theme.heat(t)
        {
            cell.set_bg(colour);
            if t >= LIGHT
                && let Some(dark) = self.theme.heat(0.0)
            {
                cell.set_fg(dark);
            }
        }
    }

    /// Turns the colours of a cell round: the cursor.
    pub fn invert(&self, buf: &mut Buffer, (x, y): (u16, u16)) {
        if let Some(cell) = cell(buf, self.area, (x, y)) {
            cell.modifier.toggle(Modifier::REVERSED);
        }
    }
}

/// Fills `area` with the share `t`: a sample for a legend.
pub fn swatch(buf: &mut Buffer, area: Rect, theme: &Theme, t: f32) {
    Heatmap { theme, area, pixel: |_, _| Some(t) }.draw(buf);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::theme::{Charset, Depth};
    use ratatui::style::Color;

    const ASCII: Theme = Theme { depth: Depth::Mono, charset: Charset::Ascii };

    fn drawn(theme: Theme, height: u16, pixel: impl Fn(u16, u16) -> Option<f32>) -> Buffer {
        let mut buf = Buffer::empty(Rect::new(0, 0, 3, height));
        Heatmap { theme: &theme, area: buf.area, pixel }.draw(&mut buf);
        buf
    }

    fn symbols(buf: &Buffer) -> Vec<String> {
        let row = |y| (0..buf.area.width).map(|x| buf[(x, y)].symbol()).collect();
        (0..buf.area.height).map(row).collect()
    }

    #[test]
    fn two_pixels_share_a_cell_and_keep_their_colours() {
        let buf = drawn(Theme::FULL, 1, |x, y| match (x, y) {
            (0, _) => None,
            (1, 0) => Some(0.0),
            (1, _) => Some(1.0),
            (_, 0) => Some(0.5),
            _ => None,
        });
        assert_eq!(symbols(&buf), [" ▀▄"]);
        let heat = |t| Theme::FULL.heat(t).unwrap();
        assert_eq!((buf[(1, 0)].fg, buf[(1, 0)].bg), (heat(1.0), heat(0.0)));
        assert_eq!((buf[(2, 0)].fg, buf[(2, 0)].bg), (heat(0.5), Color::Reset));
    }

    #[test]
    fn shades_tell_values_apart_without_colour() {
        let step = |x: u16, _| [Some(0.01), Some(0.6), None][usize::from(x)];
        assert_eq!(symbols(&drawn(Theme::MONO, 1, step)), ["░▓ "]);
        assert_eq!(symbols(&drawn(ASCII, 1, step)), [".o "]);
    }

    #[test]
    fn a_colour_terminal_without_unicode_uses_backgrounds() {
        let theme = Theme { depth: Depth::Ansi256, charset: Charset::Ascii };
        let buf = drawn(theme, 1, |x, _| (x == 1).then_some(0.7));
        assert_eq!((symbols(&buf), Some(buf[(1, 0)].bg)), (vec!["   ".into()], theme.heat(0.7)));
        assert_eq!(pixel_rows(&theme, 7), 7);
        assert_eq!(pixel_rows(&Theme::FULL, 7), 14);
    }

    #[test]
    fn a_mark_keeps_the_colour_behind_and_stays_legible() {
        let mut buf = Buffer::empty(Rect::new(0, 0, 2, 1));
        let map = Heatmap { theme: &Theme::FULL, area: buf.area, pixel: |x, _| Some(f32::from(x)) };
        map.draw(&mut buf);
        map.mark(&mut buf, (0, 0), '━', Style::new().fg(Color::Red));
        map.mark(&mut buf, (1, 0), '━', Style::new().fg(Color::Red));
        assert_eq!(symbols(&buf), ["━━"]);
        assert_eq!((buf[(0, 0)].fg, Some(buf[(0, 0)].bg)), (Color::Red, Theme::FULL.heat(0.0)));
        assert_eq!((Some(buf[(1, 0)].fg), Some(buf[(1, 0)].bg)), (Theme::FULL.heat(0.0), Theme::FULL.heat(1.0)));
    }

    #[test]
    fn outside_the_buffer_nothing_happens() {
        let mut buf = Buffer::empty(Rect::new(0, 0, 2, 2));
        let before = buf.clone();
        for area in [Rect::new(5, 5, 3, 3), Rect::new(0, 0, 0, 0), Rect::new(u16::MAX, 0, 9, 1)] {
            let map = Heatmap { theme: &Theme::FULL, area, pixel: |_, _| Some(1.0) };
            map.draw(&mut buf);
            map.mark(&mut buf, (0, 0), 'x', Style::new());
            map.invert(&mut buf, (1, 1));
        }
        assert_eq!(buf, before);
    }
}
