//! A line of short texts that gives way from its least important text on when it is too long.

use std::fmt::{self, Write};

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::ui::text::{put, width};
use crate::ui::theme::{Role, Theme};

/// Columns between two segments.
pub(super) const GAP: u16 = 2;

/// A short text in a line, with a dim label before it.
#[derive(Debug)]
struct Segment {
    label: &'static str,
    text: String,
    role: Role,
    /// Those with the highest rank give way first when the line is too short.
    rank: u8,
}

/// A line of segments whose buffers are used again.
#[derive(Debug, Default)]
pub(super) struct Line {
    segments: Vec<Segment>,
    used: usize,
}

impl Line {
    pub(super) fn clear(&mut self) {
        self.used = 0;
    }

    pub(super) fn add(&mut self, label: &'static str, role: Role, rank: u8, text: fmt::Arguments<'_>) {
        if self.used == self.segments.len() {
            self.segments.push(Segment { label, text: String::new(), role, rank });
        }
        let segment = &mut self.segments[self.used];
        (segment.label, segment.role, segment.rank) = (label, role, rank);
        segment.text.clear();
        // A String takes everything.
        let _ = segment.text.write_fmt(text);
        self.used += 1;
    }

    /// Number of segments.
    pub(super) const fn len(&self) -> usize {
        self.used
    }

    fn shown(&self) -> &[Segment] {
        &self.segments[..self.used]
    }

    /// Highest rank that may be shown for everything up to it to fit into `columns`.
    fn fitting(&self, columns: u16) -> u8 {
        let needs = |rank: u8| {
            self.shown().iter().filter(|s| s.rank <= rank).map(Segment::width).fold(0_u16, u16::saturating_add)
        };
        (0..=9).rev().find(|&rank| needs(rank) <= columns.saturating_add(GAP)).unwrap_or(0)
    }

    /// Draws what fits into the row.
    pub(super) fn draw(&self, buf: &mut Buffer, area: Rect, theme: Theme) {
        let (mut x, most) = (0, self.fitting(area.width));
        for segment in self.shown().iter().filter(|s| s.rank <= most) {
            x = segment.draw(buf, area, (x, 0), theme) + GAP;
        }
    }

    /// Columns it takes when nothing gives way.
    pub(super) fn width(&self) -> u16 {
        self.shown().iter().map(Segment::width).fold(0_u16, u16::saturating_add).saturating_sub(GAP)
    }

    /// Columns that what never gives way takes.
    pub(super) fn least(&self) -> u16 {
        let kept = self.shown().iter().filter(|s| s.rank == 0);
        kept.map(Segment::width).fold(0_u16, u16::saturating_add).saturating_sub(GAP)
    }

    /// Columns that the texts take without their labels.
    pub(super) fn bare_width(&self) -> u16 {
        let texts = self.shown().iter().map(|s| width(&s.text).saturating_add(GAP));
        texts.fold(0_u16, u16::saturating_add).saturating_sub(GAP)
    }

    /// Draws the texts without their labels.
    pub(super) fn draw_bare(&self, buf: &mut Buffer, area: Rect, theme: Theme) {
        let mut x = 0;
        for segment in self.shown() {
            x = put(buf, area, (x, 0), theme.style(segment.role), format_args!("{}", segment.text)) + GAP;
        }
    }

    /// Draws all segments over as many rows as they need and there are.
    pub(super) fn flow(&self, buf: &mut Buffer, area: Rect, theme: Theme) {
        let (mut x, mut y) = (0, 0);
        for segment in self.shown() {
            if x > 0 && x + segment.width() - GAP > area.width {
                (x, y) = (0, y + 1);
            }
            x = segment.draw(buf, area, (x, y), theme) + GAP;
        }
    }
}

impl Segment {
    fn width(&self) -> u16 {
        let label = if self.label.is_empty() { 0 } else { width(self.label).saturating_add(1) };
        label.saturating_add(width(&self.text)).saturating_add(GAP)
    }

    fn draw(&self, buf: &mut Buffer, area: Rect, (mut x, y): (u16, u16), theme: Theme) -> u16 {
        if !self.label.is_empty() {
            x = put(buf, area, (x, y), theme.style(Role::Dim), format_args!("{} ", self.label));
        }
        put(buf, area, (x, y), theme.style(self.role), format_args!("{}", self.text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(columns: u16, rows: u16, draw: impl Fn(&Line, &mut Buffer, Rect)) -> Buffer {
        let mut line = Line::default();
        line.add("", Role::Text, 0, format_args!("first"));
        line.add("a", Role::Text, 2, format_args!("second"));
        line.add("", Role::Text, 1, format_args!("third"));
        let area = Rect::new(0, 0, columns, rows);
        let mut buf = Buffer::empty(area);
        draw(&line, &mut buf, area);
        buf.set_style(area, ratatui::style::Style::reset());
        buf
    }

    fn row(columns: u16) -> String {
        let buf = drawn(columns, 1, |line, buf, area| line.draw(buf, area, Theme::MONO));
        buf.content.iter().map(ratatui::buffer::Cell::symbol).collect::<String>().trim_end().to_owned()
    }

    #[test]
    fn the_least_important_gives_way_first() {
        assert_eq!(row(22), "first  a second  third");
        assert_eq!(row(21), "first  third");
        assert_eq!(row(11), "first");
        assert_eq!(row(3), "fir");
        assert_eq!(row(0), "");
    }

    #[test]
    fn buffers_are_used_again() {
        let mut line = Line::default();
        for text in ["a long one", "b"] {
            line.clear();
            line.add("", Role::Text, 0, format_args!("{text}"));
        }
        assert_eq!((line.width(), line.segments.len()), (1, 1));
    }

    #[test]
    fn many_rows_take_all() {
        let buf = drawn(8, 3, |line, buf, area| line.flow(buf, area, Theme::MONO));
        let rows: Vec<String> =
            buf.content.chunks(8).map(|row| row.iter().map(ratatui::buffer::Cell::symbol).collect()).collect();
        assert_eq!(rows, ["first   ", "a second", "third   "]);
    }

    #[test]
    fn labels_give_way_where_texts_alone_have_room() {
        let mut line = Line::default();
        line.add("replay", Role::Text, 0, format_args!("ended 0:18"));
        line.add("", Role::Text, 1, format_args!("last"));
        assert_eq!((line.least(), line.width(), line.bare_width()), (17, 23, 16));
        let area = Rect::new(0, 0, line.bare_width(), 1);
        let mut buf = Buffer::empty(area);
        line.draw_bare(&mut buf, area, Theme::FULL);
        assert_eq!(buf.content.iter().map(ratatui::buffer::Cell::symbol).collect::<String>(), "ended 0:18  last");
    }
}
