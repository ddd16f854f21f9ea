//! One-row shapes: a meter for a level, a spark line for a short history, bands for stretches of time.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use crate::store::Bin;
use crate::ui::theme::{Role, Theme};

use super::{Scale, anchored, cell};

/// Left eighths, 1 to 8.
const LEFT: [char; 8] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉', '█'];
/// Lower eighths, 1 to 8.
const LOWER: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// The same without Unicode.
const ASCII_LOWER: [char; 8] = ['.', '.', ':', ':', '+', '+', '#', '#'];

fn lower(theme: Theme, eighths: u16) -> char {
    let i = usize::from(eighths.clamp(1, 8) - 1);
    if theme.unicode() { LOWER[i] } else { ASCII_LOWER[i] }
}

/// Draws a level into the first row of `area`: `fraction` (0 to 1) of its width, in eighths of a column.
/// The rest is a dim track. A level above 0 shows at least an eighth; `None` leaves the row blank.
pub fn meter(buf: &mut Buffer, area: Rect, theme: &Theme, fraction: Option<f64>, style: Style) {
    let Some(fraction) = fraction.filter(|f| !f.is_nan()) else { return };
    let fraction = fraction.clamp(0.0, 1.0);
    let most = f64::from(area.width) * 8.0;
    let eighths = ((fraction * most).round() as u32).max(u32::from(fraction > 0.0));
    let (full, track) = if theme.unicode() { ('█', '·') } else { ('#', '.') };
    for x in 0..area.width {
        let Some(cell) = cell(buf, area, (x, 0)) else { continue };
        match eighths.saturating_sub(u32::from(x) * 8) {
            part @ 1..8 if theme.unicode() => cell.set_char(LEFT[part as usize - 1]).set_style(style),
            0..4 => cell.set_char(track).set_style(theme.style(Role::Border)),
            _ => cell.set_char(full).set_style(style),
        };
    }
}

/// Draws a history into the first row of `area`, one bin a column, the last at the right edge: the
/// largest value of each bin as an eighth block; 0 is a dim dot, what was not measured stays blank.
pub fn spark(buf: &mut Buffer, area: Rect, theme: &Theme, bins: &[Bin], scale: Scale, style: Style) {
    for x in 0..area.width {
        let bin = anchored(bins, usize::from(area.width), usize::from(x));
        let Some(t) = bin.and_then(Bin::max).and_then(|v| scale.fraction(f64::from(v))) else { continue };
        let Some(cell) = cell(buf, area, (x, 0)) else { continue };
        if t > 0.0 {
            cell.set_char(lower(*theme, (t * 8.0).ceil() as u16)).set_style(style);
        } else {
            cell.set_char(if theme.unicode() { '·' } else { '.' }).set_style(theme.style(Role::Border));
        }
    }
}

/// What a column of a band row shows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Band {
    /// Nothing was measured: blank.
    Unknown,
    /// It did not hold: a dim dot.
    Clear,
    /// It held for this share (0 to 1) of the column; the letter says what.
    Held(char, f32),
}

/// Draws stretches of time into the first row of `area`, column `x` being what `band(x)` says: blocks
/// up to half a row high for the share, each stretch with its letter at the start and every 16 columns.
pub fn bands(buf: &mut Buffer, area: Rect, theme: &Theme, style: Style, band: impl Fn(u16) -> Band) {
    let mut since = (' ', 0);
    for x in 0..area.width {
        let band = band(x);
        let letter = if let Band::Held(letter, _) = band { letter } else { ' ' };
        if letter != since.0 {
            since = (letter, x);
        }
        let Some(cell) = cell(buf, area, (x, 0)) else { continue };
        match band {
            Band::Unknown => {}
            Band::Clear => {
                cell.set_char(if theme.unicode() { '·' } else { '.' }).set_style(theme.style(Role::Border));
            }
            Band::Held(letter, _) if (x - since.1).is_multiple_of(16) => {
                cell.set_char(letter).set_style(style);
            }
            Band::Held(_, share) => {
                // Half a row is enough: what holds all the time must not outshine the data.
                let eighths = if theme.unicode() { 4.0 } else { 8.0 };
                cell.set_char(lower(*theme, (share * eighths).ceil() as u16)).set_style(style);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::theme::{Charset, Depth};

    const ASCII: Theme = Theme { depth: Depth::Mono, charset: Charset::Ascii };

    fn row(width: u16, draw: impl Fn(&mut Buffer, Rect)) -> String {
        let mut buf = Buffer::empty(Rect::new(0, 0, width, 1));
        let area = buf.area;
        draw(&mut buf, area);
        (0..width).map(|x| buf[(x, 0)].symbol()).collect()
    }

    #[test]
    fn a_meter_ends_in_eighths() {
        let level = |theme: Theme, t| row(4, |buf, area| meter(buf, area, &theme, t, Style::new()));
        assert_eq!(level(Theme::FULL, Some(0.5)), "██··");
        assert_eq!(level(Theme::FULL, Some(0.66)), "██▋·");
        assert_eq!(level(Theme::FULL, Some(0.001)), "▏···");
        assert_eq!(level(Theme::FULL, Some(0.0)), "····");
        assert_eq!(level(Theme::FULL, Some(7.0)), "████");
        assert_eq!(level(Theme::FULL, Some(f64::NAN)), "    ");
        assert_eq!(level(Theme::FULL, None), "    ");
        assert_eq!(level(ASCII, Some(0.66)), "###.");
    }

    #[test]
    fn a_band_says_what_held_and_for_how_much() {
        let states = [Band::Unknown, Band::Clear, Band::Held('P', 1.0), Band::Held('P', 0.5), Band::Held('T', 1.0)];
        let draw = |theme| row(5, |buf, area| bands(buf, area, &theme, Style::new(), |x| states[usize::from(x)]));
        assert_eq!(draw(Theme::FULL), " ·P▂T");
        assert_eq!(draw(ASCII), " .P:T");
    }
}
