//! Every latency that the engine exposes, one row each: n, mean, P50, P95 and P99 with their bounds.

use std::fmt::{self, Display, Formatter};

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::app::View;
use crate::derive::latency::summary::{QUANTILES, Summary};
use crate::derive::quantile::{Quantile, least};
use crate::model::{Metric, Reading, Why};
use crate::store::{Data, HistogramWindow};
use crate::ui::panes::notice::{self, Lack};
use crate::ui::text::{put, put_right};
use crate::ui::theme::{Role, Theme};
use crate::ui::units::{Number, Partly};

use super::words::{Compact, MeanOnly, Short, name};

/// Rows of the table, its head included.
pub(super) const ROWS: u16 = View::LATENCIES.len() as u16 + 1;

/// Columns of name, n, mean, and each quantile with its bounds.
const NAME: u16 = 8;
const N: u16 = 6;
const MEAN: u16 = 8;
const QUANTILE: u16 = 18;

/// What is drawn.
#[derive(Debug, Default)]
pub(super) struct Table {
    rows: [Summary; View::LATENCIES.len()],
    chosen: Option<Metric>,
    /// Adapter id of the engine.
    kind: String,
}

impl Table {
    /// Reads every latency of the chosen engine over the view's window.
    pub(super) fn prepare(&mut self, data: &Data, view: &View, scratch: &mut HistogramWindow) {
        for (row, metric) in self.rows.iter_mut().zip(View::LATENCIES) {
            *row = Summary::of(data, view.engine, metric, view.window(), scratch);
        }
        self.chosen = Some(view.latency);
        self.kind.clear();
        self.kind.push_str(notice::kind(data, view.engine, view.end));
    }

    /// Draws head and rows; quantiles that have no room are left out, the lowest first.
    pub(super) fn draw(&self, buf: &mut Buffer, area: Rect, theme: Theme) {
        let dim = theme.style(Role::Dim);
        let room = area.width.saturating_sub(NAME + N + MEAN);
        let first = QUANTILES.len() - usize::from(room / QUANTILE).min(QUANTILES.len());
        put_right(buf, area, (NAME + N, 0), dim, format_args!("n"));
        put_right(buf, area, (NAME + N + MEAN, 0), dim, format_args!("mean"));
        for (x, q) in columns(first) {
            put(buf, area, (x, 0), dim, format_args!("P{:.0} certainly in", q * 100.0));
        }
        for ((y, summary), metric) in (1..).zip(&self.rows).zip(View::LATENCIES) {
            let role = if self.chosen == Some(metric) { Role::Accent } else { Role::Text };
            let name = if metric == Metric::QueueTime { "queue" } else { name(metric) };
            put(buf, area, (0, y), theme.style(role), format_args!("{name}"));
            self.draw_row(buf, area, y, theme, (metric, summary, first));
        }
    }

    fn draw_row(
        &self,
        buf: &mut Buffer,
        area: Rect,
        y: u16,
        theme: Theme,
        (metric, summary, first): (Metric, &Summary, usize),
    ) {
        let (text, dim) = (theme.style(Role::Text), theme.style(Role::Dim));
        match summary {
            Summary::NotExposed => {
                let lack = Lack { kind: &self.kind, metric, why: Why::Unsupported };
                put(buf, area, (NAME, y), dim, format_args!("{lack}"));
            }
            &Summary::Sum { seconds, requests, .. } => {
                put(buf, area, (NAME, y), dim, format_args!("{:#}", MeanOnly { metric, seconds, requests }));
            }
            Summary::Histogram { n, mean, quantiles, edges, partial } => {
                let partly = Partly(*partial);
                if *n < 1_000_000 {
                    put_right(buf, area, (NAME + N, y), text, format_args!("{n}{partly}"));
                } else {
                    let n = Number(Reading::new(*n as f64));
                    put_right(buf, area, (NAME + N, y), text, format_args!("{n}{partly}"));
                }
                match mean {
                    Some(mean) => put_right(buf, area, (NAME + N + MEAN, y), text, format_args!("{}", Compact(*mean))),
                    None => put_right(buf, area, (NAME + N + MEAN, y), dim, format_args!("-")),
                }
                for ((x, q), quantile) in columns(first).zip(&quantiles[first..]) {
                    let cell = Cell { q, quantile: quantile.as_ref(), edges };
                    let style = if quantile.is_some_and(|q| q.enough) { text } else { dim };
                    put(buf, area, (x, y), style, format_args!("{cell}"));
                }
            }
        }
    }
}

/// Left edge of each quantile's column from the `first` on.
fn columns(first: usize) -> impl Iterator<Item = (u16, f64)> {
    (0..).map(|i: u16| NAME + N + MEAN + 2 + i * QUANTILE).zip(QUANTILES.into_iter().skip(first))
}

/// "780ms 750ms–1.00s", "<10.0ms", ">80.0s ≤95.0s", "n < 368", or "-" where nothing was observed.
struct Cell<'a> {
    q: f64,
    quantile: Option<&'a Quantile>,
    edges: &'a [f64],
}

impl Display for Cell<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Some(quantile) = self.quantile else { return f.write_str("-") };
        if !quantile.enough {
            return write!(f, "n < {}", least(self.q));
        }
        let short = Short { quantile, edges: self.edges };
        match quantile.hi {
            Some(hi) if short.is_inside() => write!(f, "{short} {}–{}", Compact(quantile.lo), Compact(hi)),
            Some(hi) if quantile.lo > 0.0 => write!(f, "{short} ≤{}", Compact(hi)),
            _ => write!(f, "{short}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_say_what_is_certain() {
        let of = |n, lo, hi, value| {
            let enough = crate::derive::quantile::enough(0.99, n);
            Cell { q: 0.99, quantile: Some(&Quantile { value, lo, hi, enough, n }), edges: &[0.3, 80.0] }.to_string()
        };
        assert_eq!(of(400, 0.75, Some(1.0), 0.78), "780ms 750ms–1.00s");
        assert_eq!(of(400, 0.0, Some(0.3), 0.2), "<300ms");
        assert_eq!(of(400, 80.0, Some(95.0), 85.0), ">80.0s ≤95.0s");
        assert_eq!(of(400, 80.0, None, 80.0), ">80.0s");
        assert_eq!(of(367, 0.75, Some(1.0), 0.78), "n < 368");
        assert_eq!(Cell { q: 0.5, quantile: None, edges: &[] }.to_string(), "-");
    }
}
