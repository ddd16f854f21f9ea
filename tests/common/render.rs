//! Panes drawn into buffers, and buffers as text that keeps the styles.

use std::fmt::Write;

use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier};
use warptop::app::View;
use warptop::diagnosis::Timeline;
use warptop::store::Store;
use warptop::ui::pane::{Context, PaneSpec};
use warptop::ui::theme::Theme;

use super::END;

/// A view of the last minute up to [`END`].
pub(crate) fn view() -> View {
    View::new(END)
}

/// What is concluded about the view's end.
pub(crate) fn judged(store: &Store, view: &View) -> Timeline {
    let mut timeline = Timeline::default();
    timeline.follow(&store.read(), view.end);
    timeline
}

/// Draws a new pane into `area` of `buf` and returns its title.
pub(crate) fn draw(spec: &PaneSpec, store: &Store, view: &View, theme: Theme, area: Rect, buf: &mut Buffer) -> String {
    draw_judged(spec, store, (view, &judged(store, view)), theme, area, buf)
}

/// The same, after what was concluded before.
pub(crate) fn draw_judged(
    spec: &PaneSpec,
    store: &Store,
    (view, timeline): (&View, &Timeline),
    theme: Theme,
    area: Rect,
    buf: &mut Buffer,
) -> String {
    let context = Context { view, theme: &theme, timeline, focused: true };
    let mut pane = (spec.new)();
    pane.prepare(&store.read(), &context, area);
    pane.draw(area, buf, &context);
    pane.title().to_owned()
}

/// A pane's title, its characters, and below them its styles.
pub(crate) fn snapshot(spec: &PaneSpec, store: &Store, theme: Theme, (width, height): (u16, u16)) -> String {
    let area = Rect::new(0, 0, width, height);
    let mut buf = Buffer::empty(area);
    let title = draw(spec, store, &view(), theme, area, &mut buf);
    format!("title: {title}\n{}{}", text(&buf), styles(&buf))
}

/// The characters, a line a row between bars.
pub(crate) fn text(buf: &Buffer) -> String {
    let mut out = String::new();
    for y in buf.area.top()..buf.area.bottom() {
        let row: String = (buf.area.left()..buf.area.right()).map(|x| buf[(x, y)].symbol()).collect();
        let _ = writeln!(out, "|{row}|");
    }
    out
}

/// Each row's runs of one style: "3 | 7..40 #ffd75f on #005f87 bold". Rows in the default style are left out.
pub(crate) fn styles(buf: &Buffer) -> String {
    let mut out = String::new();
    for y in buf.area.top()..buf.area.bottom() {
        let row: Vec<&Cell> = (buf.area.left()..buf.area.right()).map(|x| &buf[(x, y)]).collect();
        let mut x = 0;
        let mut line = String::new();
        for run in row.chunk_by(|a, b| style(a) == style(b)) {
            let style = style(run[0]);
            if !style.is_empty() {
                let _ = write!(line, "{}{x}..{} {style}", if line.is_empty() { "" } else { ", " }, x + run.len());
            }
            x += run.len();
        }
        if !line.is_empty() {
            let _ = writeln!(out, "{y:>2} | {line}");
        }
    }
    out
}

fn style(cell: &Cell) -> String {
    let mut words = Vec::new();
    if cell.fg != Color::Reset && cell.symbol() != " " {
        words.push(colour(cell.fg));
    }
    if cell.bg != Color::Reset {
        words.push(format!("on {}", colour(cell.bg)));
    }
    for (modifier, word) in [
        (Modifier::BOLD, "bold"),
        (Modifier::DIM, "dim"),
        (Modifier::REVERSED, "reversed"),
        (Modifier::UNDERLINED, "underlined"),
    ] {
        if cell.modifier.contains(modifier) {
            words.push(word.to_owned());
        }
    }
    words.join(" ")
}

fn colour(colour: Color) -> String {
    match colour {
        Color::Rgb(r, g, b) => format!("#{r:02x}{g:02x}{b:02x}"),
        other => format!("{other:?}").to_lowercase(),
    }
}
