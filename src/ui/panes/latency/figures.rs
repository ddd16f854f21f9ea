//! The rows of figures above the heat map.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::diagnosis::WINDOW_MS;
use crate::model::Reading;
use crate::ui::panes::row::Row;
use crate::ui::theme::{Role, Theme};
use crate::ui::units::{Seconds, Span};

use super::Latency;
use super::words::Bounded;

impl Latency {
    /// "ITL 12.1 ms, usual 4.80 ms  TTFT mean 210 ms, usual 52.0 ms  in 6 s" beside whatever is on the map; returns the
    /// column after it. These are the diagnosis's, of its own window.
    pub(super) fn draw_gap(&self, buf: &mut Buffer, area: Rect, theme: Theme, shown: Span) -> u16 {
        let (dim, text) = (theme.style(Role::Dim), theme.style(Role::Text));
        let mut row = Row::new(buf, area);
        if let Some([now, usual]) = self.gap.filter(|[now, _]| now.value().is_some()) {
            row.part(&[(dim, format_args!("ITL ")), (text, format_args!("{}", Seconds(now)))]);
            if usual.value().is_some() {
                row.part(&[(dim, format_args!(", usual {}", Seconds(usual)))]);
            }
            row.gap(2);
        }
        if let Some([now, usual]) = self.ttft.map(|both| both.map(|s| Seconds(Reading::new(s)))) {
            let words = [
                (dim, format_args!("TTFT mean ")),
                (text, format_args!("{now}")),
                (dim, format_args!(", usual {usual}")),
            ];
            row.part(&words).gap(2);
        }
        if row.x() > 0 {
            row.part(&[(dim, format_args!("in {}", Span(WINDOW_MS)))]).gap(2);
        }
        if let Some(part) = self.api_server {
            row.part(&[(dim, format_args!("API server +{} in {shown}", Seconds(part)))]).gap(2);
        }
        row.x()
    }

    /// Mean, P50 and P95 of the window, unless the title has them.
    pub(super) fn draw_quantiles(&self, buf: &mut Buffer, area: Rect, theme: Theme) {
        let dim = theme.style(Role::Dim);
        let mut row = Row::new(buf, area);
        if let Some(mean) = self.mean {
            row.part(&[(dim, format_args!("mean {}", Seconds(Reading::new(mean))))]).gap(2);
        }
        for (q, quantile) in [(0.5, self.median), (0.95, self.p95)] {
            let titled = self.headline.is_none_or(|h| h.q <= q);
            if let Some(quantile) = quantile.filter(|_| !titled) {
                let bounded = Bounded { q, quantile, edges: self.grid.edges() };
                row.part(&[(dim, format_args!("{bounded}"))]).gap(2);
            }
        }
    }
}
