//! A buffer as SVG: the same buffer gives the same bytes, on every machine.
//!
//! Text is pinned to the cell grid and everything that tiles is a shape, so no font
//! can move or tear the picture. Colours come from fixed tables: what a terminal leaves to its user
//! (the 16 names, the default colours) is decided here.

use std::fmt::Write as _;

use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};
use unicode_width::UnicodeWidthStr;

use super::glyph::{self, HEIGHT, Shape, WIDTH};

type Rgb = (u8, u8, u8);

/// Default text.
const FOREGROUND: Rgb = (0xd4, 0xd4, 0xd4);
/// Default background.
const BACKGROUND: Rgb = (0x14, 0x16, 0x1b);
/// The 16 named colours, in the order of their numbers.
const NAMED: [Rgb; 16] = [
    (0x1e, 0x1e, 0x1e),
    (0xd7, 0x4e, 0x4e),
    (0x6d, 0xb3, 0x5f),
    (0xd7, 0xaf, 0x4f),
    (0x4f, 0x87, 0xd7),
    (0xb0, 0x77, 0xc9),
    (0x4f, 0xb3, 0xbf),
    (0xc8, 0xc8, 0xc8),
    (0x80, 0x80, 0x80),
    (0xff, 0x76, 0x6b),
    (0x92, 0xd6, 0x83),
    (0xf4, 0xd3, 0x6f),
    (0x7c, 0xae, 0xf7),
    (0xd2, 0x9c, 0xea),
    (0x7b, 0xd5, 0xe0),
    (0xff, 0xff, 0xff),
];
/// Share of its colour that dim text keeps against the background, in hundredths.
const DIM: u16 = 60;
/// Empty border around the screen, in units.
const MARGIN: u32 = 16;
/// The baseline of text below the top of its cell, in units: centres DejaVu Sans Mono.
const BASELINE: u32 = 25;
/// Size of text at which DejaVu Sans Mono is as wide as a cell.
const FONT: &str = r#"font-family="DejaVu Sans Mono,Menlo,Consolas,monospace" font-size="26.6""#;

/// Path data or elements of one look, in the order in which the looks first appear.
struct Layers<K>(Vec<(K, String)>);

impl<K: PartialEq> Layers<K> {
    fn of(&mut self, key: K) -> &mut String {
        let i = self.0.iter().position(|(k, _)| *k == key).unwrap_or_else(|| {
            self.0.push((key, String::new()));
            self.0.len() - 1
        });
        &mut self.0[i].1
    }
}

/// How a cell looks once its colours and modifiers are resolved.
#[derive(Clone, Copy, PartialEq)]
struct Look {
    foreground: Rgb,
    background: Rgb,
    bold: bool,
    underlined: bool,
}

/// How text looks: colour, bold, underlined.
type Ink = (Rgb, bool, bool);

/// A run of text in one row and one look.
struct Run {
    column: u32,
    columns: u32,
    ink: Ink,
    text: String,
}

struct Drawing {
    backgrounds: Layers<Rgb>,
    fills: Layers<Rgb>,
    strokes: Layers<Rgb>,
    texts: Layers<Ink>,
}

/// Draws `buf`. Bold, dim, reversed, underlined and hidden are kept; italic and blinking text is plain.
pub fn svg(buf: &Buffer) -> String {
    let mut drawing =
        Drawing { backgrounds: Layers(vec![]), fills: Layers(vec![]), strokes: Layers(vec![]), texts: Layers(vec![]) };
    let columns = usize::from(buf.area.width);
    if columns > 0 {
        for (row, cells) in buf.content.chunks(columns).enumerate() {
            drawing.row(row as u32 * HEIGHT, cells);
        }
    }
    drawing.finish(u32::from(buf.area.width) * WIDTH, u32::from(buf.area.height) * HEIGHT)
}

impl Drawing {
    fn row(&mut self, y: u32, cells: &[Cell]) {
        self.backgrounds(y, cells);
        let mut run: Option<Run> = None;
        let mut column = 0;
        while let Some(cell) = cells.get(column) {
            let symbol = cell.symbol();
            // The cell after a wide character belongs to it.
            let columns = symbol.width().max(1);
            self.symbol(&mut run, column as u32, y, cell, columns as u32);
            column += columns;
        }
        self.flush(&mut run, y);
    }

    fn backgrounds(&mut self, y: u32, cells: &[Cell]) {
        let mut x = 0;
        for same in cells.chunk_by(|a, b| look(a).background == look(b).background) {
            let wide = same.len() as u32 * WIDTH;
            let colour = look(&same[0]).background;
            if colour != BACKGROUND {
                let _ = write!(self.backgrounds.of(colour), "M{x} {y}h{wide}v{HEIGHT}h-{wide}z");
            }
            x += wide;
        }
    }

    fn symbol(&mut self, run: &mut Option<Run>, column: u32, y: u32, cell: &Cell, columns: u32) {
        let look = look(cell);
        let ink = (look.foreground, look.bold, look.underlined);
        let symbol = cell.symbol();
        let drawn = symbol.chars().next().and_then(|c| glyph::shape(c, column * WIDTH, y));
        if let Some(shape) = drawn {
            self.flush(run, y);
            self.shape(shape, look, column * WIDTH, y);
            return;
        }
        if let Some(open) = run
            && open.ink == ink
            // Two spaces end a run: viewers may fold them.
            && !(symbol == " " && open.text.ends_with(' '))
        {
            open.text.push_str(symbol);
            open.columns += columns;
            return;
        }
        self.flush(run, y);
        if !symbol.trim().is_empty() {
            *run = Some(Run { column, columns, ink, text: symbol.to_owned() });
        }
    }

    fn shape(&mut self, shape: Shape, look: Look, x: u32, y: u32) {
        match shape {
            Shape::Fill(path) => self.fills.of(look.foreground).push_str(&path),
            Shape::Stroke(path) => self.strokes.of(look.foreground).push_str(&path),
            Shape::Shade(quarters) => {
                let colour = mix(look.foreground, look.background, u16::from(quarters) * 25);
                let _ = write!(self.fills.of(colour), "M{x} {y}h{WIDTH}v{HEIGHT}h-{WIDTH}z");
            }
        }
    }

    fn flush(&mut self, run: &mut Option<Run>, y: u32) {
        let Some(run) = run.take() else { return };
        let text = run.text.trim_end();
        let spaces = (run.text.len() - text.len()) as u32;
        let (x, y, length) = (run.column * WIDTH, y + BASELINE, (run.columns - spaces) * WIDTH);
        let out = self.texts.of(run.ink);
        let _ = write!(out, r#"<text x="{x}" y="{y}" textLength="{length}">"#);
        for c in text.chars() {
            match c {
                '<' => out.push_str("&lt;"),
                '>' => out.push_str("&gt;"),
                '&' => out.push_str("&amp;"),
                // XML 1.0 has no control characters, not even escaped ones.
                c if c.is_control() => out.push('\u{fffd}'),
                c => out.push(c),
            }
        }
        out.push_str("</text>\n");
    }

    fn finish(self, width: u32, height: u32) -> String {
        let (outer_w, outer_h) = (width + 2 * MARGIN, height + 2 * MARGIN);
        let mut out = String::new();
        let _ = writeln!(
            out,
            r#"<svg xmlns="http://www.w3.org/2000/svg" width="{}" height="{}" viewBox="-{MARGIN} -{MARGIN} {outer_w} {outer_h}">"#,
            outer_w / 2,
            outer_h / 2
        );
        let back = Hex(BACKGROUND);
        let _ = writeln!(
            out,
            r#"<rect x="-{MARGIN}" y="-{MARGIN}" width="{outer_w}" height="{outer_h}" rx="12" fill="{back}"/>"#
        );
        let fills = self.backgrounds.0.into_iter().chain(self.fills.0);
        for (colour, path) in fills.filter(|(_, path)| !path.is_empty()) {
            let _ = writeln!(out, r#"<path fill="{}" d="{path}"/>"#, Hex(colour));
        }
        for (colour, path) in self.strokes.0 {
            let _ = writeln!(out, r#"<path fill="none" stroke="{}" stroke-width="2" d="{path}"/>"#, Hex(colour));
        }
        let _ = writeln!(out, "<g {FONT}>");
        for ((colour, bold, underlined), texts) in self.texts.0 {
            let weight = if bold { r#" font-weight="bold""# } else { "" };
            let line = if underlined { r#" text-decoration="underline""# } else { "" };
            let _ = write!(out, "<g fill=\"{}\"{weight}{line}>\n{texts}</g>\n", Hex(colour));
        }
        out.push_str("</g>\n</svg>\n");
        out
    }
}

/// A colour as `#rrggbb`.
struct Hex(Rgb);

impl std::fmt::Display for Hex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (r, g, b) = self.0;
        write!(f, "#{r:02x}{g:02x}{b:02x}")
    }
}

fn look(cell: &Cell) -> Look {
    let has = |modifier| cell.modifier.contains(modifier);
    let mut foreground = rgb(cell.fg, FOREGROUND);
    let mut background = rgb(cell.bg, BACKGROUND);
    if has(Modifier::REVERSED) {
        (foreground, background) = (background, foreground);
    }
    if has(Modifier::DIM) {
        foreground = mix(foreground, background, DIM);
    }
    if has(Modifier::HIDDEN) {
        foreground = background;
    }
    Look { foreground, background, bold: has(Modifier::BOLD), underlined: has(Modifier::UNDERLINED) }
}

/// `percent` hundredths of `a`, the rest `b`.
fn mix(a: Rgb, b: Rgb, percent: u16) -> Rgb {
    let f = |a: u8, b: u8| ((u16::from(a) * percent + u16::from(b) * (100 - percent) + 50) / 100) as u8;
    (f(a.0, b.0), f(a.1, b.1), f(a.2, b.2))
}

fn rgb(colour: Color, default: Rgb) -> Rgb {
    let index = match colour {
        Color::Reset => return default,
        Color::Rgb(r, g, b) => return (r, g, b),
        Color::Indexed(i) => i,
        Color::Black => 0,
        Color::Red => 1,
        Color::Green => 2,
        Color::Yellow => 3,
        Color::Blue => 4,
        Color::Magenta => 5,
        Color::Cyan => 6,
        Color::Gray => 7,
        Color::DarkGray => 8,
        Color::LightRed => 9,
        Color::LightGreen => 10,
        Color::LightYellow => 11,
        Color::LightBlue => 12,
        Color::LightMagenta => 13,
        Color::LightCyan => 14,
        Color::White => 15,
    };
    indexed(index)
}

/// The 256-colour palette: the names, a cube of 6 × 6 × 6, 24 greys.
fn indexed(index: u8) -> Rgb {
    match index {
        0..=15 => NAMED[usize::from(index)],
        16..=231 => {
            let level = |n: u8| if n == 0 { 0 } else { 55 + 40 * n };
            let i = index - 16;
            (level(i / 36), level(i / 6 % 6), level(i % 6))
        }
        232..=255 => {
            let grey = 8 + 10 * (index - 232);
            (grey, grey, grey)
        }
    }
}

#[cfg(test)]
mod tests {
    use ratatui::layout::Rect;
    use ratatui::style::Style;

    use super::*;

    fn drawn(text: &str, style: Style) -> String {
        let mut buf = Buffer::empty(Rect::new(0, 0, 12, 1));
        buf.set_string(0, 0, text, style);
        svg(&buf)
    }

    fn texts(svg: &str) -> Vec<&str> {
        svg.lines().filter(|line| line.starts_with("<text")).collect()
    }

    #[test]
    fn text_is_pinned_to_the_grid() {
        let svg = drawn("ab  c d ", Style::new());
        assert_eq!(
            texts(&svg),
            [r#"<text x="0" y="25" textLength="32">ab</text>"#, r#"<text x="64" y="25" textLength="48">c d</text>"#,]
        );
        assert!(svg.starts_with(
            r#"<svg xmlns="http://www.w3.org/2000/svg" width="112" height="32" viewBox="-16 -16 224 64">"#
        ));
    }

    #[test]
    fn markup_and_control_characters_are_escaped() {
        assert!(drawn("<a>&", Style::new()).contains(">&lt;a&gt;&amp;</text>"));
        let mut buf = Buffer::empty(Rect::new(0, 0, 2, 1));
        buf[(0, 0)].set_symbol("\u{1b}");
        assert!(!svg(&buf).contains('\u{1b}'));
    }

    #[test]
    fn wide_characters_take_two_cells() {
        let svg = drawn("量x", Style::new());
        assert_eq!(texts(&svg), [r#"<text x="0" y="25" textLength="48">量x</text>"#]);
    }

    #[test]
    fn colours_are_resolved() {
        assert_eq!(rgb(Color::Indexed(81), FOREGROUND), (95, 215, 255));
        assert_eq!(rgb(Color::Indexed(239), FOREGROUND), (78, 78, 78));
        assert_eq!(rgb(Color::Indexed(16), FOREGROUND), (0, 0, 0));
        assert_eq!(rgb(Color::Indexed(231), FOREGROUND), (255, 255, 255));
        assert_eq!(rgb(Color::Indexed(11), FOREGROUND), rgb(Color::LightYellow, FOREGROUND));
        let svg = drawn("a", Style::new().fg(Color::Rgb(1, 2, 255)).bg(Color::Rgb(255, 0, 0)));
        assert!(svg.contains(r##"<g fill="#0102ff">"##), "{svg}");
        assert!(svg.contains(r##"<path fill="#ff0000" d="M0 0h16v32h-16z"/>"##), "{svg}");
    }

    #[test]
    fn modifiers_are_resolved() {
        let white = Style::new().fg(Color::Rgb(200, 200, 200)).bg(Color::Rgb(0, 0, 0));
        let reversed = drawn("a", white.add_modifier(Modifier::REVERSED));
        assert!(reversed.contains(r##"<g fill="#000000">"##) && reversed.contains(r##"<path fill="#c8c8c8""##));
        assert!(drawn("a", white.add_modifier(Modifier::DIM)).contains(r##"<g fill="#787878">"##));
        assert!(drawn("a", white.add_modifier(Modifier::BOLD)).contains(r##"<g fill="#c8c8c8" font-weight="bold">"##));
        assert!(drawn("a", white.add_modifier(Modifier::HIDDEN)).contains(r##"<g fill="#000000">"##));
    }

    #[test]
    fn what_tiles_is_a_shape() {
        let style = Style::new().fg(Color::Rgb(10, 20, 30)).bg(Color::Rgb(110, 120, 130));
        let svg = drawn("█⣿░│╭", style);
        assert_eq!(texts(&svg).len(), 0);
        assert!(svg.contains(r##"<path fill="none" stroke="#0a141e""##));
        // A quarter of the foreground over the background.
        assert!(svg.contains(r##"<path fill="#555f69" d="M32 0h16v32h-16z"/>"##), "{svg}");
    }

    #[test]
    fn the_same_buffer_gives_the_same_bytes_for_any_size() {
        for area in [Rect::ZERO, Rect::new(0, 0, 0, 5), Rect::new(3, 4, 5, 6)] {
            let buf = Buffer::empty(area);
            assert_eq!(svg(&buf), svg(&buf));
        }
    }
}
