//! The help screen, generated from the table of actions and the panes' own words.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::app::ACTIONS;

use super::pane::PaneSpec;
use super::text::{put, put_wrapped, wrapped_rows};
use super::theme::{Role, Theme};

/// Column at which the explanations start.
const INDENT: u16 = 14;

/// A cursor that writes lines downwards, the first `skip` of them unseen.
struct Page<'a> {
    buf: &'a mut Buffer,
    area: Rect,
    row: u16,
    skip: u16,
}

impl Page<'_> {
    /// A key or a name, and its explanation below one another when it is long.
    fn entry(&mut self, theme: Theme, name: &str, text: &str) {
        let width = self.area.width.saturating_sub(INDENT);
        let rows = wrapped_rows(text, width).max(1);
        // Lines above the top of the page are cut off as a whole entry: simple, and no line is torn.
        if self.row >= self.skip && self.row - self.skip < self.area.height {
            let y = self.row - self.skip;
            put(self.buf, self.area, (1, y), theme.style(Role::Accent), format_args!("{name}"));
            let area = self.area;
            let room = Rect::new(area.x + INDENT.min(area.width), area.y + y, width, area.height - y);
            put_wrapped(self.buf, room, theme.style(Role::Text), text);
        }
        self.row = self.row.saturating_add(rows);
    }

    fn heading(&mut self, theme: Theme, text: &str) {
        if self.row > 0 {
            self.row += 1;
        }
        if self.row >= self.skip {
            put(self.buf, self.area, (0, self.row - self.skip), theme.style(Role::Dim), format_args!("{text}"));
        }
        self.row += 1;
    }
}

/// Draws the help from its line `first` on.
pub fn draw(buf: &mut Buffer, area: Rect, theme: Theme, panes: &[PaneSpec], first: u16) {
    let area = area.intersection(buf.area);
    if area.is_empty() {
        return;
    }
    let mut page = Page { buf, area, row: 0, skip: first };
    let mut section = "";
    for spec in ACTIONS {
        if spec.section != section {
            section = spec.section;
            page.heading(theme, section);
        }
        page.entry(theme, spec.label, spec.help);
    }
    page.heading(theme, "How to read the panes");
    for pane in panes {
        page.entry(theme, pane.tab, pane.help);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_action_is_explained() {
        let area = Rect::new(0, 0, 120, 80);
        let mut buf = Buffer::empty(area);
        draw(&mut buf, area, Theme::MONO, super::super::panes::PANES, 0);
        let text: String = buf.content.iter().map(ratatui::buffer::Cell::symbol).collect();
        for spec in ACTIONS {
            assert!(text.contains(spec.label) && text.contains(spec.help), "{:?}", spec.action);
        }
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
