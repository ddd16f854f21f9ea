//! Rows of words: parts are written one after the other as long as each fits whole. A number that was
//! cut would be another number, and one without its words has no meaning. A [`Row`] ends at the first
//! part that does not fit; a [`Flow`] goes on in the next row.

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

    /// The column of the next part.
    pub(super) const fn x(&self) -> u16 {
        self.x
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

/// Writes parts over several rows, or only counts how many rows they would take.
pub(super) struct Flow<'a> {
    buf: Option<&'a mut Buffer>,
    area: Rect,
    x: u16,
    y: u16,
}

impl<'a> Flow<'a> {
    /// Rows that begin at the top of `area`.
    pub(super) const fn new(buf: &'a mut Buffer, area: Rect) -> Self {
        Self { buf: Some(buf), area, x: 0, y: 0 }
    }

    /// Counts the rows at this width, without an end.
    pub(super) const fn count(width: u16) -> Self {
        Self { buf: None, area: Rect { x: 0, y: 0, width, height: u16::MAX }, x: 0, y: 0 }
    }

    /// Rows taken so far, at most those that there are.
    pub(super) fn rows(&self) -> u16 {
        (self.y + u16::from(self.x > 0)).min(self.area.height)
    }

    /// Begins a new row unless this one is empty.
    pub(super) fn line(&mut self) -> &mut Self {
        if self.x > 0 {
            (self.x, self.y) = (0, self.y.saturating_add(1));
        }
        self
    }

    /// Leaves `columns` blank before the next part, unless it begins a row.
    pub(super) const fn gap(&mut self, columns: u16) -> &mut Self {
        if self.x > 0 {
            self.x = self.x.saturating_add(columns);
        }
        self
    }

    /// Writes all of these words, in the next row if this one has no room for all of them; words that no
    /// row has room for are left out.
    pub(super) fn part(&mut self, words: &[(Style, fmt::Arguments<'_>)]) -> &mut Self {
        let needed = words.iter().fold(0_u16, |x, (_, text)| x.saturating_add(columns(*text)));
        if needed > self.area.width {
            return self;
        }
        if self.x.saturating_add(needed) > self.area.width {
            self.line();
        }
        for (style, text) in words {
            let (at, area) = ((self.x, self.y), self.area);
            self.x = match &mut self.buf {
                Some(buf) if at.1 < area.height => put(buf, area, at, *style, *text),
                _ => at.0.saturating_add(columns(*text)),
            };
        }
        self
    }

    /// Writes these words if this row has room for all of them; else nothing more goes into this row.
    pub(super) fn fit(&mut self, words: &[(Style, fmt::Arguments<'_>)]) -> &mut Self {
        let needed = words.iter().fold(self.x, |x, (_, text)| x.saturating_add(columns(*text)));
        if needed > self.area.width {
            self.x = self.area.width;
            return self;
        }
        self.part(words)
    }

    /// Writes a text word by word, over as many rows as it takes.
    pub(super) fn text(&mut self, style: Style, text: &str) -> &mut Self {
        for word in text.split(' ').filter(|word| !word.is_empty()) {
            self.gap(1).part(&[(style, format_args!("{word}"))]);
        }
        self
    }

    /// A whole row for something that is no text; empty when there is none left.
    pub(super) fn picture(&mut self, draw: impl FnOnce(&mut Buffer, Rect)) -> &mut Self {
        self.line();
        if let Some(buf) = &mut self.buf
            && self.y < self.area.height
        {
            draw(buf, Rect { y: self.area.y + self.y, height: 1, ..self.area });
        }
        self.y = self.y.saturating_add(1);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_breaks_between_parts_and_counts_as_it_draws() {
        let plain = Style::new();
        let fill = |flow: &mut Flow<'_>| {
            flow.part(&[(plain, format_args!("600")), (plain, format_args!(" tok/s"))]).gap(2);
            flow.part(&[(plain, format_args!("n 12"))]).line();
            flow.part(&[(plain, format_args!("far too long for any row"))]);
            flow.picture(|buf, row| {
                put(buf, row, (0, 0), plain, format_args!("====="));
            })
            .part(&[(plain, format_args!("end"))]);
            flow.rows()
        };
        let drawn = |width, height| {
            let mut buf = Buffer::empty(Rect::new(0, 0, width, height));
            let area = buf.area;
            let rows = fill(&mut Flow::new(&mut buf, area));
            let row = |y| (0..width).map(|x| buf[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
            (rows, (0..height).map(row).collect::<Vec<_>>())
        };
        assert_eq!(drawn(15, 4), (3, vec!["600 tok/s  n 12".into(), "=====".into(), "end".into(), String::new()]));
        assert_eq!(drawn(12, 4), (4, vec!["600 tok/s".into(), "n 12".into(), "=====".into(), "end".into()]));
        assert_eq!(drawn(12, 2), (2, vec!["600 tok/s".into(), "n 12".into()]));
        assert_eq!([15, 12].map(|width| fill(&mut Flow::count(width))), [3, 4]);
    }

    #[test]
    fn what_must_fit_ends_its_row_and_text_is_broken_at_words() {
        let plain = Style::new();
        let mut buf = Buffer::empty(Rect::new(0, 0, 10, 3));
        let area = buf.area;
        let mut flow = Flow::new(&mut buf, area);
        flow.part(&[(plain, format_args!("12.5k"))]).fit(&[(plain, format_args!(" of 160k"))]);
        flow.fit(&[(plain, format_args!("!"))]).line().text(plain, "half empty on average");
        let row = |y| (0..10).map(|x| buf[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        assert_eq!([0, 1, 2].map(row), ["12.5k", "half empty", "on average"]);
    }

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
