//! Stretches of the time axis in which a probe ran, shaded: what was measured then is the probe's doing.
//!
//! Only what nothing else is drawn on is shaded, so that no data disappear; the axis below is marked in any
//! case. It must not know what a pane shows. Drawing allocates nothing.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::app::View;
use crate::model::Subject;
use crate::store::Data;

use super::theme::{Role, Theme};
use super::widgets::Axes;

/// Runs inside the window, as shares of it (0 to 1).
#[derive(Debug, Default)]
pub struct Shade {
    spans: Vec<(f64, f64)>,
}

impl Shade {
    /// Takes in the runs on the chosen GPU and on the host.
    pub fn fill(&mut self, data: &Data, view: &View) {
        let window = view.window();
        let share = |ms: u64| ms as f64 / window.ms().max(1) as f64;
        let on = |subject| data.runs(subject, window);
        self.spans.clear();
        self.spans.extend(
            on(Subject::Gpu(view.gpu))
                .chain(on(Subject::Host))
                .map(|run| (share(run.start.since(window.start)), share(run.end.min(window.end).since(window.start)))),
        );
    }

    /// Shades `area`, the rows of a pane's plots with the time axis as the last one. Any area will do.
    pub fn draw(&self, buf: &mut Buffer, area: Rect, theme: Theme) {
        let plot = Axes::split(area).plot;
        if self.spans.is_empty() || plot.width == 0 {
            return;
        }
        let (blank, dash, axis) = if theme.unicode() { ('░', '─', '━') } else { (':', '-', '=') };
        let width = f64::from(plot.width);
        for &(from, to) in &self.spans {
            let first = (from * width) as u16;
            // A run that is shorter than a column still has one.
            let last = ((to * width).ceil() as u16).max(first.saturating_add(1)).min(plot.width);
            for (x, y) in (first..last).flat_map(|x| (0..area.height).map(move |y| (x, y))) {
                let at = (plot.x.saturating_add(x), area.y.saturating_add(y));
                let next = buf.cell((at.0.saturating_add(1), at.1)).and_then(|next| next.symbol().chars().next());
                let Some(cell) = buf.cell_mut(at) else { continue };
                if y + 1 == area.height {
                    // In ASCII a label begins with the same sign: "-30 s".
                    let label = next.is_some_and(|next| next.is_ascii_digit());
                    if cell.symbol().starts_with(dash) && !label {
                        cell.set_char(axis).set_style(theme.style(Role::Accent));
                    }
                } else if matches!(cell.symbol(), " " | "┈") && cell.bg == ratatui::style::Color::Reset {
                    cell.set_char(blank).set_style(theme.style(Role::Border));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Batch, Edge, Mark, SourceId, Time};
    use crate::store::{Retention, Store};
    use crate::ui::theme::{Charset, Depth};

    const END: Time = Time(1_000_000);

    /// A minute in which a probe ran from `start` to `end` seconds.
    fn shade(subject: Subject, start: u64, end: u64) -> Shade {
        let store = Store::new(Retention::HOUR);
        for (s, edge) in [(start, Edge::Start(60_000)), (end, Edge::End("done".into()))] {
            let mut batch = Batch::new(SourceId::Probe, END - 60_000 + s * 1_000, 0);
            batch.marks.push(Mark { subject, probe: "hbm".into(), run: "r".into(), edge });
            store.push(&batch);
        }
        let mut shade = Shade::default();
        shade.fill(&store.read(), &View::new(END));
        shade
    }

    /// Twelve columns (five seconds each) and three rows: a blank one, one of data, the axis.
    fn drawn(shade: &Shade, theme: Theme) -> Vec<String> {
        let axis = if theme.unicode() { "─── −30 s ──" } else { "--- -30 s --" };
        let mut buf = Buffer::with_lines(["            ", "############", axis]);
        shade.draw(&mut buf, Rect::new(0, 0, 12, 3), theme);
        buf.content.chunks(12).map(|row| row.iter().map(ratatui::buffer::Cell::symbol).collect()).collect()
    }

    #[test]
    fn a_run_is_shaded_from_its_start_to_its_end_and_hides_no_data() {
        let full = drawn(&shade(Subject::Gpu(0), 10, 25), Theme::FULL);
        assert_eq!(full, ["  ░░░       ", "############", "──━ −30 s ──"]);
        let ascii = drawn(&shade(Subject::Host, 0, 60), Theme { depth: Depth::Mono, charset: Charset::Ascii });
        assert_eq!(ascii, ["::::::::::::", "############", "=== -30 s =="]);
        let short = drawn(&shade(Subject::Gpu(0), 58, 58), Theme::FULL);
        assert_eq!(short, ["           ░", "############", "─── −30 s ─━"]);
        assert_eq!(drawn(&shade(Subject::Gpu(1), 0, 60), Theme::FULL)[0].trim(), "", "another GPU");
    }

    #[test]
    fn any_area_will_do() {
        let shade = shade(Subject::Host, 0, 60);
        for area in [Rect::ZERO, Rect::new(0, 0, 300, 300), Rect::new(u16::MAX - 1, u16::MAX - 1, 1, 1)] {
            shade.draw(&mut Buffer::empty(Rect::new(0, 0, 20, 5)), area, Theme::FULL);
        }
    }
}
