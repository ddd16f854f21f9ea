//! Block elements, braille and box drawing as outlines on a cell of [`WIDTH`] × [`HEIGHT`] units.
//!
//! Drawn as shapes they meet at the cell's edges whatever the viewer's font is. Everything is in whole
//! units, so the text of a shape is the same everywhere.

use std::fmt::Write as _;

/// Width of a cell. A multiple of 8: block elements come in eighths.
pub(super) const WIDTH: u32 = 16;
/// Height of a cell.
pub(super) const HEIGHT: u32 = 32;
/// Thickness of a light line; a heavy one is twice as thick.
const LIGHT: u32 = 2;

/// How to draw a character that is drawn as a shape.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// Path data to be filled.
    Fill(String),
    /// Path data to be drawn with a light line.
    Stroke(String),
    /// The whole cell with this many quarters of the foreground over the background.
    Shade(u8),
}

/// The shape of `c` in a cell whose corner is at `x`, `y`; `None` for what is left to the font.
pub(super) fn shape(c: char, x: u32, y: u32) -> Option<Shape> {
    let pen = Pen { x, y };
    match c {
        '░' => Some(Shape::Shade(1)),
        '▒' => Some(Shape::Shade(2)),
        '▓' => Some(Shape::Shade(3)),
        '\u{2580}'..='\u{259f}' => Some(Shape::Fill(pen.block(c))),
        '\u{2800}'..='\u{28ff}' => Some(Shape::Fill(pen.braille(c as u32 - 0x2800))),
        '╭' | '╮' | '╯' | '╰' | '╱' | '╲' | '╳' => Some(Shape::Stroke(pen.curve(c))),
        '\u{2500}'..='\u{257f}' => Some(Shape::Fill(pen.lines(c as u32 - 0x2500))),
        _ => None,
    }
}

/// The corner of a cell.
struct Pen {
    x: u32,
    y: u32,
}

/// Arms of U+2500 to U+257F, two bits each (0 none, 1 light, 2 heavy, 3 double) from the lowest: up, right, down,
/// left. Worked out from the characters' names in the Unicode database; dashes count as whole lines here.
#[rustfmt::skip]
const ARMS: [u8; 128] = [
    0x44, 0x88, 0x11, 0x22, 0x44, 0x88, 0x11, 0x22, 0x44, 0x88, 0x11, 0x22, 0x14, 0x18, 0x24, 0x28,
    0x50, 0x90, 0x60, 0xa0, 0x05, 0x09, 0x06, 0x0a, 0x41, 0x81, 0x42, 0x82, 0x15, 0x19, 0x16, 0x25,
    0x26, 0x1a, 0x29, 0x2a, 0x51, 0x91, 0x52, 0x61, 0x62, 0x92, 0xa1, 0xa2, 0x54, 0x94, 0x58, 0x98,
    0x64, 0xa4, 0x68, 0xa8, 0x45, 0x85, 0x49, 0x89, 0x46, 0x86, 0x4a, 0x8a, 0x55, 0x95, 0x59, 0x99,
    0x56, 0x65, 0x66, 0x96, 0x5a, 0xa5, 0x69, 0x9a, 0xa9, 0xa6, 0x6a, 0xaa, 0x44, 0x88, 0x11, 0x22,
    0xcc, 0x33, 0x1c, 0x34, 0x3c, 0xd0, 0x70, 0xf0, 0x0d, 0x07, 0x0f, 0xc1, 0x43, 0xc3, 0x1d, 0x37,
    0x3f, 0xd1, 0x73, 0xf3, 0xdc, 0x74, 0xfc, 0xcd, 0x47, 0xcf, 0xdd, 0x77, 0xff, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x40, 0x01, 0x04, 0x10, 0x80, 0x02, 0x08, 0x20, 0x48, 0x21, 0x84, 0x12,
];

impl Pen {
    fn rect(&self, out: &mut String, x: u32, y: u32, w: u32, h: u32) {
        let _ = write!(out, "M{} {}h{w}v{h}h-{w}z", self.x + x, self.y + y);
    }

    fn block(&self, c: char) -> String {
        let (w, h, mut out) = (WIDTH, HEIGHT, String::new());
        let code = c as u32;
        match code {
            0x2580 => self.rect(&mut out, 0, 0, w, h / 2),
            0x2581..=0x2588 => {
                let high = h / 8 * (code - 0x2580);
                self.rect(&mut out, 0, h - high, w, high);
            }
            0x2589..=0x258f => self.rect(&mut out, 0, 0, w / 8 * (0x2590 - code), h),
            0x2590 => self.rect(&mut out, w / 2, 0, w / 2, h),
            0x2594 => self.rect(&mut out, 0, 0, w, h / 8),
            0x2595 => self.rect(&mut out, w - w / 8, 0, w / 8, h),
            // U+2596 to U+259F: which quadrants are full; bit 0 upper left, 1 upper right, 2 lower left, 3 lower right.
            0x2596..=0x259f => {
                let full = [4u8, 8, 1, 13, 9, 7, 11, 2, 6, 14][(code - 0x2596) as usize];
                for quadrant in (0..4u32).filter(|q| full >> q & 1 == 1) {
                    self.rect(&mut out, quadrant % 2 * w / 2, quadrant / 2 * h / 2, w / 2, h / 2);
                }
            }
            _ => {}
        }
        out
    }

    /// Dots in the order of their bits: three down the left column, three down the right one, then the lowest row.
    fn braille(&self, bits: u32) -> String {
        const DOTS: [(u32, u32); 8] = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (1, 3)];
        let mut out = String::new();
        for (column, row) in DOTS.iter().enumerate().filter(|(bit, _)| bits >> bit & 1 == 1).map(|(_, dot)| *dot) {
            self.rect(&mut out, column * WIDTH / 2 + 2, row * HEIGHT / 4 + 2, 4, 4);
        }
        out
    }

    fn curve(&self, c: char) -> String {
        let (x, y) = (self.x, self.y);
        let (mid_x, mid_y, right, bottom) = (x + WIDTH / 2, y + HEIGHT / 2, x + WIDTH, y + HEIGHT);
        let round =
            |end_y: u32, bend_y: u32, end_x: u32| format!("M{mid_x} {end_y}V{bend_y}Q{mid_x} {mid_y} {end_x} {mid_y}");
        match c {
            '╭' => round(bottom, mid_y + WIDTH / 2, right),
            '╮' => round(bottom, mid_y + WIDTH / 2, x),
            '╯' => round(y, mid_y - WIDTH / 2, x),
            '╰' => round(y, mid_y - WIDTH / 2, right),
            '╱' => format!("M{x} {bottom}L{right} {y}"),
            '╲' => format!("M{x} {y}L{right} {bottom}"),
            _ => format!("M{x} {bottom}L{right} {y}M{x} {y}L{right} {bottom}"),
        }
    }

    fn lines(&self, index: u32) -> String {
        let mut out = String::new();
        let arms = ARMS[index as usize];
        let dashes = match index {
            0x04..=0x07 => 3,
            0x08..=0x0b => 4,
            0x4c..=0x4f => 2,
            _ => 0,
        };
        if dashes > 0 {
            self.dashes(&mut out, arms, dashes);
            return out;
        }
        for (arm, weight) in [arms & 3, arms >> 2 & 3, arms >> 4 & 3, arms >> 6 & 3].into_iter().enumerate() {
            match weight {
                0 => {}
                3 => {
                    self.arm(&mut out, arm, -2 * LIGHT.cast_signed(), LIGHT);
                    self.arm(&mut out, arm, LIGHT.cast_signed(), LIGHT);
                }
                weight => {
                    let thick = LIGHT * u32::from(weight);
                    self.arm(&mut out, arm, -(thick / 2).cast_signed(), thick);
                }
            }
        }
        out
    }

    /// One arm from the middle of the cell to an edge (0 up, 1 right, 2 down, 3 left); `side` is the offset of
    /// the line from the middle. Arms overlap in the middle, so that corners are closed.
    fn arm(&self, out: &mut String, arm: usize, side: i32, thick: u32) {
        let (mid_x, mid_y) = (WIDTH / 2, HEIGHT / 2);
        let (at_x, at_y) = (mid_x.saturating_add_signed(side), mid_y.saturating_add_signed(side));
        match arm {
            0 => self.rect(out, at_x, 0, thick, mid_y + LIGHT / 2),
            1 => self.rect(out, mid_x - LIGHT / 2, at_y, WIDTH - mid_x + LIGHT / 2, thick),
            2 => self.rect(out, at_x, mid_y - LIGHT / 2, thick, HEIGHT - mid_y + LIGHT / 2),
            _ => self.rect(out, 0, at_y, mid_x + LIGHT / 2, thick),
        }
    }

    fn dashes(&self, out: &mut String, arms: u8, n: u32) {
        let upright = arms & 3 != 0;
        let thick = LIGHT * u32::from(if upright { arms & 3 } else { arms >> 2 & 3 });
        let length = if upright { HEIGHT } else { WIDTH };
        for i in 0..n {
            let (from, to) = (length * i / n + 1, length * (i + 1) / n - 1);
            if upright {
                self.rect(out, (WIDTH - thick) / 2, from, thick, to - from);
            } else {
                self.rect(out, from, (HEIGHT - thick) / 2, to - from, thick);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(c: char) -> String {
        match shape(c, 0, 0) {
            Some(Shape::Fill(path)) => path,
            other => panic!("{c}: {other:?}"),
        }
    }

    /// Area covered by the rectangles of a path, for shapes whose rectangles do not overlap.
    fn area(path: &str) -> u32 {
        path.split('M')
            .filter(|r| !r.is_empty())
            .map(|r| {
                let (_, rest) = r.split_once('h').unwrap();
                let (w, rest) = rest.split_once('v').unwrap();
                let (h, _) = rest.split_once('h').unwrap();
                w.parse::<u32>().unwrap() * h.parse::<u32>().unwrap()
            })
            .sum()
    }

    #[test]
    fn blocks_cover_what_their_names_say() {
        let cell = WIDTH * HEIGHT;
        for (i, c) in ('▁'..='█').enumerate() {
            assert_eq!(area(&fill(c)), cell / 8 * (i as u32 + 1), "{c}");
        }
        for (i, c) in ('▉'..='▏').enumerate() {
            assert_eq!(area(&fill(c)), cell / 8 * (7 - i as u32), "{c}");
        }
        assert_eq!(fill('▀'), "M0 0h16v16h-16z");
        assert_eq!(fill('▄'), "M0 16h16v16h-16z");
        assert_eq!(fill('▐'), "M8 0h8v32h-8z");
        assert_eq!(fill('▚'), "M0 0h8v16h-8zM8 16h8v16h-8z");
        assert_eq!(fill('▟'), "M8 0h8v16h-8zM0 16h8v16h-8zM8 16h8v16h-8z");
    }

    #[test]
    fn braille_dots_are_where_unicode_puts_them() {
        assert_eq!(fill('⠀'), "");
        assert_eq!(fill('⠁'), "M2 2h4v4h-4z");
        assert_eq!(fill('⡀'), "M2 26h4v4h-4z");
        assert_eq!(fill('⢀'), "M10 26h4v4h-4z");
        assert_eq!(fill('⣿').matches('M').count(), 8);
    }

    #[test]
    fn lines_reach_the_edges_that_their_neighbours_start_at() {
        assert_eq!(fill('─'), "M7 15h9v2h-9zM0 15h9v2h-9z");
        assert_eq!(fill('│'), "M7 0h2v17h-2zM7 15h2v17h-2z");
        assert_eq!(fill('├').matches('M').count(), 3);
        assert_eq!(fill('┼').matches('M').count(), 4);
        assert_eq!(fill('━'), "M7 14h9v4h-9zM0 14h9v4h-9z");
        assert_eq!(fill('═').matches('M').count(), 4);
        assert_eq!(fill('╌').matches('M').count(), 2);
        assert_eq!(fill('╵'), "M7 0h2v17h-2z");
        assert_eq!(shape('╭', 0, 0), Some(Shape::Stroke("M8 32V24Q8 16 16 16".to_owned())));
    }

    #[test]
    fn letters_are_left_to_the_font() {
        assert_eq!(shape('a', 0, 0), None);
        assert_eq!(shape('▲', 0, 0), None);
        for c in '\u{2500}'..='\u{259f}' {
            let drawn = shape(c, 3, 5).unwrap();
            assert!(drawn != Shape::Fill(String::new()), "{c} draws nothing");
        }
    }
}
