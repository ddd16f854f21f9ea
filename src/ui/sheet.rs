//! A page of text that is longer than the screen: one pass that counts its rows or draws those that are shown.
//!
//! What is drawn and how far it can be scrolled come from the same steps, so that each row can be reached, whatever the
//! size. Invariant: nothing is allocated.

use std::fmt;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::text::{put, wrap};

/// Where a page is laid out: down the columns of an area, from some row on.
pub(super) struct Sheet<'a> {
    /// `None`: rows are only counted.
    buf: Option<&'a mut Buffer>,
    area: Rect,
    columns: u16,
    first: u16,
    row: u16,
}

impl<'a> Sheet<'a> {
    /// Draws on `area`, from row `first` on.
    pub(super) fn draw(buf: &'a mut Buffer, area: Rect, columns: u16, first: u16) -> Self {
        Self { buf: Some(buf), area, columns: columns.max(1), first, row: 0 }
    }

    /// Draws nothing.
    pub(super) fn count(area: Rect, columns: u16) -> Self {
        Self { buf: None, area, columns: columns.max(1), first: 0, row: 0 }
    }

    /// The last row that may be the first one shown, after all has been laid out.
    pub(super) const fn last_line(&self) -> u16 {
        self.row.saturating_sub(self.area.height.saturating_mul(self.columns))
    }

    /// Whether nothing has been laid out yet.
    pub(super) const fn is_blank(&self) -> bool {
        self.row == 0
    }

    /// Leaves a row empty.
    pub(super) const fn gap(&mut self) {
        self.row = self.row.saturating_add(1);
    }

    /// A text from column `indent` on, over as many rows as it needs (one at least), and a label before its first row.
    pub(super) fn paragraph(&mut self, indent: u16, label: (Style, fmt::Arguments<'_>), text: (Style, &str)) {
        let width = self.area.width / self.columns;
        let width = if self.columns > 1 { width.saturating_sub(1) } else { width };
        let indent = indent.min(width);
        self.line(self.row, (0, width), label.0, label.1);
        let from = self.row;
        let rows = wrap(text.1, width - indent, |row, line| {
            self.line(from.saturating_add(row), (indent, width - indent), text.0, format_args!("{line}"));
        });
        self.row = from.saturating_add(rows.max(1));
    }

    fn line(&mut self, row: u16, (x, width): (u16, u16), style: Style, text: fmt::Arguments<'_>) {
        let (area, columns) = (self.area, self.columns);
        let (Some(buf), Some(at)) = (self.buf.as_deref_mut(), row.checked_sub(self.first)) else { return };
        if area.height == 0 || at / area.height >= columns {
            return;
        }
        let x = area.x.saturating_add(at / area.height * (area.width / columns)).saturating_add(x);
        put(buf, Rect { x, width, ..area }, (0, at % area.height), style, text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_last_row_is_reached_and_nothing_lies_below_it(
            texts in prop::collection::vec("[a-z ]{0,60}", 1..20),
            (width, height, columns, indent) in (1_u16..90, 1_u16..30, 1_u16..4, 0_u16..12),
        ) {
            let area = Rect::new(0, 0, width * columns, height);
            let lay = |sheet: &mut Sheet<'_>| {
                for text in &texts {
                    sheet.paragraph(indent, (Style::new(), format_args!("")), (Style::new(), text));
                }
                sheet.paragraph(0, (Style::new(), format_args!("Z")), (Style::new(), ""));
            };
            let shows_end = |first: u16| {
                let mut buf = Buffer::empty(area);
                lay(&mut Sheet::draw(&mut buf, area, columns, first));
                buf.content.iter().position(|cell| cell.symbol() == "Z")
            };
            let mut sheet = Sheet::count(area, columns);
            lay(&mut sheet);
            let last = sheet.last_line();
            // In a column of one cell, of which the gap to the next takes that one, there is no room for a text.
            prop_assume!(columns == 1 || width > 1);
            prop_assert!(shows_end(last).is_some());
            // One less would hide it, so that no key is needed for an empty page.
            prop_assert!(last == 0 || shows_end(last - 1).is_none());
        }
    }
}
