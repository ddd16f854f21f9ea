//! The help screen, generated from the table of actions and the panes' own words.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::app::ACTIONS;

use super::pane::PaneSpec;
use super::text::{put, put_wrapped, wrapped_rows};
use super::theme::{Role, Theme};

/// Column at which the explanations start.
const INDENT: u16 = 14;
/// Least width of a column of the page.
const COLUMN: u16 = 58;

/// Where the next line goes: down the first column of the page, then down the next.
struct Page<'a> {
    buf: &'a mut Buffer,
    area: Rect,
    theme: Theme,
    row: u16,
    /// Lines at the top that are scrolled out.
    skip: u16,
}

impl Page<'_> {
    const fn columns(&self) -> u16 {
        if self.area.width < 2 * COLUMN { 1 } else { self.area.width / COLUMN }
    }

    /// Room for the next `rows` lines, kept together; empty when they are not on the page.
    fn room(&mut self, rows: u16) -> Rect {
        let (columns, height) = (self.columns(), self.area.height);
        if self.row >= self.skip && rows <= height {
            let left = height - (self.row - self.skip) % height;
            self.row = self.row.saturating_add(if rows > left { left } else { 0 });
        }
        let at = self.row.checked_sub(self.skip).filter(|at| at / height < columns);
        self.row = self.row.saturating_add(rows);
        at.map_or(Rect::ZERO, |at| {
            let width = self.area.width / columns;
            let (x, y) = (at / height * width, at % height);
            Rect::new(self.area.x + x, self.area.y + y, width.saturating_sub(1), rows.min(height - y))
        })
    }

    /// A key or a name, and beside it its explanation.
    fn entry(&mut self, name: &str, text: &str) {
        let width = (self.area.width / self.columns()).saturating_sub(INDENT + 1);
        let room = self.room(wrapped_rows(text, width).max(1));
        put(self.buf, room, (1, 0), self.theme.style(Role::Accent), format_args!("{name}"));
        let indent = INDENT.min(room.width);
        let right = Rect { x: room.x + indent, width: room.width - indent, ..room };
        put_wrapped(self.buf, right, self.theme.style(Role::Text), text);
    }

    fn heading(&mut self, text: &str) {
        let first = self.row == 0;
        let mut room = self.room(if first { 1 } else { 2 });
        if !first && room.height > 1 {
            room.y += 1;
        }
        put(self.buf, room, (0, 0), self.theme.style(Role::Dim), format_args!("{text}"));
    }
}

/// Draws the help from its line `first` on.
pub fn draw(buf: &mut Buffer, area: Rect, theme: Theme, panes: &[PaneSpec], first: u16) {
    let area = area.intersection(buf.area);
    if area.is_empty() {
        return;
    }
    let mut page = Page { buf, area, theme, row: 0, skip: first };
    let mut section = "";
    for spec in ACTIONS {
        if spec.section != section {
            section = spec.section;
            page.heading(section);
        }
        page.entry(spec.label, spec.help);
    }
    page.heading("How to read the panes");
    for pane in panes {
        page.entry(pane.tab, pane.help);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(width: u16, height: u16, first: u16) -> String {
        let area = Rect::new(0, 0, width, height);
        let mut buf = Buffer::empty(area);
        draw(&mut buf, area, Theme::MONO, super::super::panes::PANES, first);
        buf.content
            .chunks(usize::from(width))
            .map(|row| row.iter().map(ratatui::buffer::Cell::symbol).collect::<String>() + "\n")
            .collect()
    }

    /// The words of a text that stand on the page, in whatever lines.
    fn holds(page: &str, text: &str) -> bool {
        let words = |text: &str| text.split_whitespace().map(ToOwned::to_owned).collect::<Vec<_>>();
        let page = words(page);
        words(text).iter().all(|word| page.contains(word))
    }

    #[test]
    fn every_action_is_explained() {
        for page in [page(100, 100, 0), page(120, 32, 0)] {
            for spec in ACTIONS {
                assert!(holds(&page, spec.label) && holds(&page, spec.help), "{:?} on:\n{page}", spec.action);
            }
        }
    }

    #[test]
    fn a_small_page_is_scrolled() {
        let last = ACTIONS[ACTIONS.len() - 1].help;
        assert!(!page(100, 12, 0).contains(last));
        assert!((0..60).any(|first| page(100, 12, first).contains(last)));
    }

    #[test]
    fn any_size_and_line_is_drawn() {
        for (w, h) in [(0, 0), (1, 1), (10, 3), (15, 40), (200, 2)] {
            for first in [0, 1, 7, 200, u16::MAX] {
                let area = Rect::new(0, 0, w, h);
                draw(&mut Buffer::empty(area), area, Theme::MONO, super::super::panes::PANES, first);
            }
        }
    }
}
