//! A row of words: parts are written one after the other as long as each fits whole. A number that was
//! cut would be another number, and one without its words has no meaning.

use std::fmt;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use crate::ui::text::{columns, put};

/// Writes parts into the first row of an area.
pub(super) struct Row<'a> {
    buf: &'a mut Buffer,
    area: Rect,
    x: u16,
}

impl<'a> Row<'a> {
    /// A row that begins at the left of `area`.
    pub(super) const fn new(buf: &'a mut Buffer, area: Rect) -> Self {
        Self { buf, area, x: 0 }
    }

    /// Writes all of these words if all of them fit; else nothing, and nothing after them either.
    pub(super) fn part(&mut self, words: &[(Style, fmt::Arguments<'_>)]) -> &mut Self {
        let needed = words.iter().fold(self.x, |x, (_, text)| x.saturating_add(columns(*text)));
        if needed > self.area.width {
            self.x = self.area.width;
            return self;
        }
        for (style, text) in words {
            self.x = put(self.buf, self.area, (self.x, 0), *style, *text);
        }
        self
    }

    /// Leaves `columns` blank before the next part.
    pub(super) const fn gap(&mut self, columns: u16) -> &mut Self {
        self.x = self.x.saturating_add(columns);
        self
    }

    /// Draws something that is no text and `columns` wide, if it fits.
    pub(super) fn picture(&mut self, columns: u16, draw: impl FnOnce(&mut Buffer, Rect)) -> &mut Self {
        if self.x.saturating_add(columns) > self.area.width {
            self.x = self.area.width;
            return self;
        }
        draw(self.buf, Rect { x: self.area.x + self.x, width: columns, ..self.area });
        self.x += columns;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_whole_or_absent_and_the_last() {
        let plain = Style::new();
        let drawn = |width| {
            let mut buf = Buffer::empty(Rect::new(0, 0, width, 1));
            let area = buf.area;
            let mut row = Row::new(&mut buf, area);
            row.part(&[(plain, format_args!("{}", 600)), (plain, format_args!(" tok/s"))]);
            row.gap(1).part(&[(plain, format_args!("n {}", 12))]).part(&[(plain, format_args!("!"))]);
            (0..width).map(|x| buf[(x, 0)].symbol()).collect::<String>().trim_end().to_owned()
        };
        assert_eq!(drawn(15), "600 tok/s n 12!");
        assert_eq!(drawn(13), "600 tok/s", "neither a part of n nor what comes after it");
        assert_eq!(drawn(8), "");
    }
}
