//! The help screen, generated from the table of actions and the panes' own words.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::app::ACTIONS;

use super::pane::PaneSpec;
use super::sheet::Sheet;
use super::theme::{Role, Theme};
use super::units::{PARTLY, PARTLY_HELP};

/// Column at which the explanations start.
const INDENT: u16 = 14;
/// Least width of a column of the page.
const COLUMN: u16 = 58;

const fn columns(area: Rect) -> u16 {
    if area.width < 2 * COLUMN { 1 } else { area.width / COLUMN }
}

fn lay(sheet: &mut Sheet<'_>, theme: Theme, panes: &[PaneSpec]) {
    let heading = |sheet: &mut Sheet<'_>, text: &str| {
        if !sheet.is_blank() {
            sheet.gap();
        }
        let style = theme.style(Role::Dim);
        sheet.paragraph(0, (style, format_args!("")), (style, text));
    };
    let entry = |sheet: &mut Sheet<'_>, name: &str, text: &str| {
        let label = (theme.style(Role::Accent), format_args!(" {name}"));
        sheet.paragraph(INDENT, label, (theme.style(Role::Text), text));
    };
    let mut section = "";
    for spec in ACTIONS {
        if spec.section != section {
            section = spec.section;
            heading(sheet, section);
        }
        entry(sheet, spec.label, spec.help);
    }
    heading(sheet, "How to read the panes");
    entry(sheet, PARTLY, PARTLY_HELP);
    for pane in panes {
        entry(sheet, pane.tab, pane.help);
    }
}

/// The last line that may be the first on `area`.
pub fn last_line(area: Rect, panes: &[PaneSpec]) -> u16 {
    let mut sheet = Sheet::count(area, columns(area));
    lay(&mut sheet, Theme::MONO, panes);
    sheet.last_line()
}

/// Draws the help from its line `first` on.
pub fn draw(buf: &mut Buffer, area: Rect, theme: Theme, panes: &[PaneSpec], first: u16) {
    let area = area.intersection(buf.area);
    lay(&mut Sheet::draw(buf, area, columns(area), first), theme, panes);
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
    fn each_text_is_reached_at_every_size() {
        let panes = super::super::panes::PANES;
        for (width, height) in [(80, 22), (40, 7), (24, 3), (100, 12), (120, 20), (200, 9), (300, 1)] {
            let last = last_line(Rect::new(0, 0, width, height), panes);
            assert!(last > 0, "{width}x{height}");
            // Every first line from the top to the last one, as the arrow goes.
            let seen: String = (0..=last).map(|first| page(width, height, first)).collect();
            for text in ACTIONS.iter().map(|spec| spec.help).chain(panes.iter().map(|pane| pane.help)) {
                // A column that is narrow breaks long words.
                assert!(width < 80 || holds(&seen, text), "{text} at {width}x{height}");
            }
            let end = |first| page(width, height, first).lines().last().is_some_and(|row| !row.trim().is_empty());
            assert!(end(last), "the last row is the text's last at {width}x{height}");
            assert!(
                page(width, height, last + 1)
                    .lines()
                    .last()
                    .is_some_and(|row| !row.contains(panes[panes.len() - 1].tab))
            );
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
