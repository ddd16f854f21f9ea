//! Writing text into a buffer without allocating.

use std::fmt::{self, Write};

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};

/// Longest text drawn in one call, bytes. More is cut at a character.
const LINE: usize = 512;

/// A text on the stack.
struct Line {
    bytes: [u8; LINE],
    len: usize,
}

impl Write for Line {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        let room = LINE - self.len;
        let mut take = s.len().min(room);
        while !s.is_char_boundary(take) {
            take -= 1;
        }
        self.bytes[self.len..self.len + take].copy_from_slice(&s.as_bytes()[..take]);
        self.len += take;
        Ok(())
    }
}

/// Writes `text` at column `x`, row `y` of `area` (0, 0 is its corner), cut at the area's edge.
/// Returns the column after the text. Nothing is drawn outside `area` or outside the buffer.
pub fn put(buf: &mut Buffer, area: Rect, (x, y): (u16, u16), style: Style, text: fmt::Arguments<'_>) -> u16 {
    let area = area.intersection(buf.area);
    if y >= area.height || x >= area.width {
        return x;
    }
    let mut line = Line { bytes: [0; LINE], len: 0 };
    // Line takes what fits and never fails.
    let _ = line.write_fmt(text);
    let text = std::str::from_utf8(&line.bytes[..line.len]).unwrap_or_default();
    // A style without a colour of its own must not take over what a frame or a grid line left in the cell.
    let style = Style::new().fg(Color::Reset).remove_modifier(Modifier::all()).patch(style);
    let (from, y, room) = (area.x + x, area.y + y, usize::from(area.width - x));
    if !text.chars().all(is_plain) {
        let (end, _) = buf.set_stringn(from, y, text, room, style);
        return end - area.x;
    }
    let mut end = from;
    for c in text.chars().take(room) {
        buf[(end, y)].set_char(c).set_style(style);
        end += 1;
    }
    end - area.x
}

/// Whether a character takes one column and joins no other, so that a text of such ones need not be looked at for
/// what belongs together: most of what is drawn, many times a second.
const fn is_plain(c: char) -> bool {
    matches!(c, ' '..='~' | '\u{b0}' | '·' | '×' | '–' | '…' | '−' | '\u{2500}'..='\u{259f}' | '\u{2800}'..='\u{28ff}')
}

/// The begin of `text` that takes no more than so many columns: whole characters, and perhaps none.
pub fn prefix(text: &str, columns: u16) -> &str {
    if width(text) <= columns {
        return text;
    }
    let begins = text.char_indices().map(|(at, c)| text.get(..at + c.len_utf8()).unwrap_or_default());
    begins.take_while(|begin| width(begin) <= columns).last().unwrap_or_default()
}

/// Cuts `text` into lines of at most `width` columns at spaces, and hands each to `line` with its row.
/// A word longer than a line goes on in the next one: a path that is cut looks like another path. Returns the number of lines.
pub fn wrap<'a>(text: &'a str, columns: u16, mut line: impl FnMut(u16, &'a str)) -> u16 {
    let mut rows = 0;
    let mut rest = text.trim();
    while !rest.is_empty() && columns > 0 && rows < u16::MAX {
        let mut end = 0;
        for (at, word) in rest.split(' ').scan(0, |at, word| {
            let start = *at;
            *at += word.len() + 1;
            Some((start, word))
        }) {
            let to = at + word.len();
            if end > 0 && rest.get(..to).is_some_and(|s| width(s) > columns) {
                break;
            }
            end = to;
        }
        // One character at least, or it would never end.
        let first = rest.chars().next().map_or(0, char::len_utf8);
        let end = prefix(rest.get(..end).unwrap_or(rest), columns).len().max(first);
        line(rows, rest.get(..end).unwrap_or_default());
        rest = rest.get(end..).unwrap_or_default().trim_start();
        rows += 1;
    }
    rows
}

/// Writes `text` over as many rows of `area` as it needs and there are, broken at spaces.
pub fn put_wrapped(buf: &mut Buffer, area: Rect, style: Style, text: &str) {
    wrap(text, area.width, |row, line| {
        put(buf, area, (0, row), style, format_args!("{line}"));
    });
}

/// Rows that [`put_wrapped`] needs for `text` at this width.
pub fn wrapped_rows(text: &str, columns: u16) -> u16 {
    wrap(text, columns, |_, _| {})
}

/// Like [`put`], with the text's end before column `end`. A text that is too long starts at column 0.
pub fn put_right(buf: &mut Buffer, area: Rect, (end, y): (u16, u16), style: Style, text: fmt::Arguments<'_>) {
    put(buf, area, (end.saturating_sub(columns(text)), y), style, text);
}

/// Like [`put`], but draws all of the text or nothing. Returns the column after it, or `x`.
pub fn put_whole(buf: &mut Buffer, area: Rect, (x, y): (u16, u16), style: Style, text: fmt::Arguments<'_>) -> u16 {
    if x.saturating_add(columns(text)) > area.width { x } else { put(buf, area, (x, y), style, text) }
}

/// Counts the columns of what is written.
struct Columns(u16);

impl Write for Columns {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        self.0 = self.0.saturating_add(width(s));
        Ok(())
    }
}

/// Columns that a formatted text takes on screen.
pub fn columns(text: fmt::Arguments<'_>) -> u16 {
    let mut columns = Columns(0);
    // Counting never fails.
    let _ = columns.write_fmt(text);
    columns.0
}

/// Replaces what a terminal without Unicode cannot show, after everything is drawn: units and names
/// come with characters of their own, whatever the charset. A cell stays a cell.
pub fn to_ascii(buf: &mut Buffer) {
    for cell in &mut buf.content {
        let Some(c) = cell.symbol().chars().next().filter(|c| !c.is_ascii()) else { continue };
        cell.set_char(match c {
            '°' => ' ',
            '…' => '~',
            '−' | '–' | '—' => '-',
            '×' => 'x',
            'µ' | 'μ' => 'u',
            '≤' => '<',
            '≥' => '>',
            '·' => '.',
            '▲' => '!',
            '●' => '*',
            _ => '?',
        });
    }
}

/// Columns that `text` takes on screen.
pub fn width(text: &str) -> u16 {
    u16::try_from(unicode_width::UnicodeWidthStr::width(text)).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_characters_are_drawn_as_ratatui_draws_them() {
        let plain: Vec<char> = ('\0'..='\u{2fff}').filter(|c| is_plain(*c)).collect();
        assert!(plain.len() > 400, "{}", plain.len());
        for pair in plain.windows(2).chain(plain.chunks(7)) {
            let (text, area) = (pair.iter().collect::<String>(), Rect::new(0, 0, 5, 1));
            let (mut ours, mut theirs) = (Buffer::empty(area), Buffer::empty(area));
            let end = put(&mut ours, area, (1, 0), Style::new().fg(Color::Red), format_args!("{text}"));
            let style = Style::new().fg(Color::Red).remove_modifier(Modifier::all());
            assert_eq!(end, theirs.set_stringn(1, 0, &text, 4, style).0, "{text}");
            assert_eq!(ours, theirs);
        }
    }

    #[test]
    fn ascii_keeps_the_cells() {
        let mut buf = Buffer::with_lines(["55 °C 2.5× 模 ok"]);
        to_ascii(&mut buf);
        assert_eq!(buf, Buffer::with_lines(["55  C 2.5x ?  ok"]));
    }

    #[test]
    fn plain_text_on_a_frame_is_plain() {
        let mut buf = Buffer::empty(Rect::new(0, 0, 4, 1));
        let (area, frame) = (buf.area, Style::new().fg(Color::DarkGray).add_modifier(Modifier::DIM));
        put(&mut buf, area, (0, 0), frame, format_args!("----"));
        put(&mut buf, area, (1, 0), Style::new().add_modifier(Modifier::BOLD), format_args!("ab"));
        assert_eq!((buf[(1, 0)].fg, buf[(1, 0)].modifier), (Color::Reset, Modifier::BOLD));
        assert_eq!(buf[(3, 0)].fg, Color::DarkGray);
    }

    #[test]
    fn all_or_nothing() {
        let mut buf = Buffer::empty(Rect::new(0, 0, 6, 1));
        let area = buf.area;
        assert_eq!(put_whole(&mut buf, area, (0, 0), Style::new(), format_args!("abcdefg")), 0);
        assert_eq!(put_whole(&mut buf, area, (0, 0), Style::new(), format_args!("abc")), 3);
        put_right(&mut buf, area, (6, 0), Style::new(), format_args!("{}", 42));
        assert_eq!(buf, Buffer::with_lines(["abc 42"]));
    }

    #[test]
    fn nothing_leaves_the_area() {
        let mut buf = Buffer::empty(Rect::new(0, 0, 8, 2));
        let area = Rect::new(2, 0, 4, 1);
        assert_eq!(put(&mut buf, area, (1, 0), Style::new(), format_args!("abcdef")), 4);
        assert_eq!(put(&mut buf, area, (0, 1), Style::new(), format_args!("x")), 0);
        put(&mut buf, Rect::new(100, 100, 5, 5), (0, 0), Style::new(), format_args!("x"));
        assert_eq!(buf, Buffer::with_lines(["   abc  ", "        "]));
    }

    #[test]
    fn long_text_is_broken_at_spaces() {
        let text = "no driver here: install it";
        let mut buf = Buffer::empty(Rect::new(0, 0, 10, 4));
        let area = buf.area;
        put_wrapped(&mut buf, area, Style::new(), text);
        assert_eq!(buf, Buffer::with_lines(["no driver ", "here:     ", "install it", "          "]));
        assert_eq!((wrapped_rows(text, 10), wrapped_rows(text, 0), wrapped_rows("", 9)), (3, 0, 0));
        // A word that is longer than a line is not cut: über, lang, kurz.
        assert_eq!(wrapped_rows("überlang kurz", 4), 3);
        let mut lines = Vec::new();
        wrap("at /var/log/überall.log.", 8, |_, line| lines.push(line));
        assert_eq!(lines, ["at", "/var/log", "/überall", ".log."]);
        // One character at least, however wide.
        assert_eq!(wrapped_rows("語語", 1), 2);
    }
}
