//! What tests of panes that show the probes have in common.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::app::View;
use crate::diagnosis::Timeline;
use crate::probe::board::Board;
use crate::store::Store;
use crate::ui::pane::{Context, Pane};
use crate::ui::theme::Theme;

/// Draws the pane with the focus on it: its title, its rows between bars, and the cells.
pub(super) fn seen<P: Pane + Default>(
    board: Option<&Board>,
    store: &Store,
    view: &View,
    (width, height): (u16, u16),
    theme: Theme,
) -> (String, String, Buffer) {
    let mut pane = P::default();
    pane.probes(board);
    let mut buf = Buffer::empty(Rect::new(0, 0, width, height));
    let context = Context { view, theme: &theme, timeline: &Timeline::default(), focused: true };
    pane.prepare(&store.read(), &context, buf.area);
    pane.draw(buf.area, &mut buf, &context);
    if !theme.unicode() {
        crate::ui::text::to_ascii(&mut buf);
    }
    let row = |y| (0..width).map(|x| buf[(x, y)].symbol()).collect::<String>();
    let rows: Vec<String> = (0..height).map(|y| format!("|{}|", row(y))).collect();
    (pane.title().to_owned(), rows.join("\n"), buf)
}
