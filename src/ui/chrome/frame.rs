//! The panes' frames and tabs.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::ui::layout::Slot;
use crate::ui::pane::PaneSpec;
use crate::ui::text::{columns, put, width};
use crate::ui::theme::{Role, Theme};

/// Draws the names of the panes with their numbers, `focus` marked.
pub fn draw_tabs(buf: &mut Buffer, area: Rect, theme: Theme, panes: &[PaneSpec], focus: usize) {
    let needs = |pane: &PaneSpec| width(pane.tab) + 3;
    let all = panes.iter().map(needs).fold(0_u16, u16::saturating_add);
    // Where not even numbers have room for blanks on both sides, they have one before them.
    let number_of = |place: usize| columns(format_args!(" {} ", place + 1));
    let chosen = panes.get(focus).map_or(0, |pane| width(pane.tab));
    let narrow = (0..panes.len()).map(number_of).fold(chosen.saturating_add(1), u16::saturating_add);
    let after = if narrow <= area.width { " " } else { "" };
    let mut x = 0;
    for (place, pane) in panes.iter().enumerate() {
        let number = place + 1;
        let (style, open, close) =
            if place == focus { (theme.style(Role::Accent), '[', ']') } else { (theme.style(Role::Dim), ' ', ' ') };
        // Too narrow for all names: only the chosen one is spelt out.
        if all <= area.width || place == focus {
            x = put(buf, area, (x, 0), style, format_args!("{open}{number} {}{close}", pane.tab));
        } else {
            x = put(buf, area, (x, 0), style, format_args!(" {number}{after}"));
        }
    }
}

/// Draws a pane's frame: name and answer in its upper edge. Without room for a frame, the edge only.
pub fn draw_frame(buf: &mut Buffer, slot: &Slot, theme: Theme, name: &str, answer: &str, focused: bool) {
    let area = slot.area.intersection(buf.area);
    if area.is_empty() {
        return;
    }
    let style = theme.style(if focused { Role::Focus } else { Role::Border });
    let [tl, tr, bl, br, across, down] =
        if theme.unicode() { ['╭', '╮', '╰', '╯', '─', '│'] } else { ['+', '+', '+', '+', '-', '|'] };
    let (right, last) = (area.width - 1, area.height - 1);
    for x in 0..area.width {
        put(buf, area, (x, 0), style, format_args!("{across}"));
    }
    if slot.inside.x > slot.area.x {
        for x in 0..area.width {
            put(buf, area, (x, last), style, format_args!("{across}"));
        }
        for y in 0..area.height {
            put(buf, area, (0, y), style, format_args!("{down}"));
            put(buf, area, (right, y), style, format_args!("{down}"));
        }
        for (x, y, corner) in [(0, 0, tl), (right, 0, tr), (0, last, bl), (right, last, br)] {
            put(buf, area, (x, y), style, format_args!("{corner}"));
        }
    }
    let title = Rect { x: area.x + 1.min(right), width: area.width.saturating_sub(2), height: 1, ..area };
    let named = if focused { theme.style(Role::Focus) } else { theme.style(Role::Dim) };
    let mut x = put(buf, title, (0, 0), named, format_args!(" {name} "));
    if !answer.is_empty() && x + 4 < title.width {
        x = put(buf, title, (x, 0), style, format_args!("{across} "));
        let room = Rect { x: title.x + x, width: (title.width - x).saturating_sub(1), ..title };
        let end = put(buf, room, (0, 0), theme.style(Role::Text), format_args!("{answer}"));
        let more = width(answer) > room.width;
        put(
            buf,
            title,
            (x + end, 0),
            style,
            format_args!("{}", if more { if theme.unicode() { '…' } else { '~' } } else { ' ' }),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::panes::PANES;

    #[test]
    fn every_tab_is_there_in_forty_columns() {
        for (focus, spec) in PANES.iter().enumerate() {
            let mut buf = Buffer::empty(Rect::new(0, 0, 40, 1));
            draw_tabs(&mut buf, Rect::new(0, 0, 40, 1), Theme::MONO, PANES, focus);
            let row: String = buf.content.iter().map(ratatui::buffer::Cell::symbol).collect();
            assert!(row.contains(&format!("[{} {}]", focus + 1, spec.tab)), "{row}");
            let numbers = row.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse::<usize>().ok());
            assert!(numbers.eq(1..=PANES.len()), "{row}");
        }
    }
}
