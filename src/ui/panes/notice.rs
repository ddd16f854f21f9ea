//! Why a pane has nothing to show: words instead of an empty plot, wrapped and centred.

use std::fmt::Write;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::app::View;
use crate::model::{SourceId, SourceState, Why};
use crate::store::Data;
use crate::ui::text::{put_wrapped, width, wrapped_rows};
use crate::ui::theme::{Role, Theme};

/// Says why the chosen engine gives nothing at the view's end, if so: replaces `out`, empty when it is well.
pub(super) fn engine(data: &Data, view: &View, out: &mut String) {
    out.clear();
    if !data.engines().any(|i| i == view.engine) {
        let search = data.source(SourceId::Discovery).map(|s| s.state_at(view.end)).filter(|s| s.is_down());
        let why = search.map_or("no serving engine found on this host", SourceState::why);
        // Writing to a String never fails.
        let _ = write!(out, "{why}; name one with --engine http://HOST:PORT");
        return;
    }
    match data.source(SourceId::Engine(view.engine)).map(|s| s.state_at(view.end)) {
        None | Some(SourceState::Starting) => out.push_str("waiting for the first scrape"),
        Some(state) if state.is_down() => out.push_str(state.why()),
        Some(_) => {}
    }
}

/// Says why no GPU has values at the view's end, if so: replaces `out`, empty when their source is well
/// or only degraded.
pub(super) fn gpus(data: &Data, view: &View, out: &mut String) {
    out.clear();
    let none = data.gpus().next().is_none();
    match data.source(SourceId::Nvml).map(|source| source.state_at(view.end)) {
        None => out.push_str("no GPU has been read"),
        Some(state) if none || state.is_down() => out.push_str(state.why()),
        Some(_) => {}
    }
    if none && out.is_empty() {
        out.push_str("no GPU on this machine");
    }
}

/// What a missing value of an engine means, in words.
pub(super) const fn words(why: Why) -> &'static str {
    match why {
        Why::Unsupported => "not exposed by this engine",
        Why::NotPermitted => "not permitted",
        Why::Stale => "no fresh scrape",
        Why::Failed => "the scrape failed",
        Why::NotYet => "nothing read yet",
    }
}

/// Draws `text` in the middle of `area`, broken at spaces.
pub(super) fn draw(buf: &mut Buffer, area: Rect, theme: Theme, text: &str) {
    let room = area.width.saturating_sub(2).min(72);
    let columns = width(text).min(room);
    let rows = wrapped_rows(text, columns).min(area.height);
    let middle = Rect {
        x: area.x + (area.width - columns) / 2,
        y: area.y + (area.height - rows) / 2,
        width: columns,
        height: rows,
    };
    put_wrapped(buf, middle, theme.style(Role::Dim), text);
}
