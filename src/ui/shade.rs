//! Stretches of the time axis in which a probe ran, shaded and named: what was measured then is the probe's doing.
//!
//! Only what nothing else is drawn on is shaded, so that no data disappear, and the name stands where there is room
//! for it; the axis below is marked in any case. It must not know what a pane shows. Drawing allocates nothing.

use std::sync::Arc;

use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Rect;

use crate::app::View;
use crate::derive::energy::gpus;
use crate::model::Subject;
use crate::store::Data;

use super::text::{put, width};
use super::theme::{Role, Theme};
use super::widgets::Axes;

/// Least height of a plot with a time axis below it.
const WITH_AXIS: u16 = 4;

/// Runs inside the window.
#[derive(Debug, Default)]
pub struct Shade {
    spans: Vec<Span>,
}

/// What a pane shows figures of: so it is disturbed by other runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// The chosen GPU.
    Gpu,
    /// The chosen engine, which may have several GPUs and not the chosen one.
    Engine,
}

/// A run, as shares of the window (0 to 1).
#[derive(Debug)]
struct Span {
    from: f64,
    to: f64,
    /// Which probe.
    probe: Arc<str>,
    /// Name of the run.
    run: Arc<str>,
    /// Whether it was on the chosen GPU, on an engine that has it, or on the host.
    of_gpu: bool,
    /// Whether it was on the chosen engine, on a GPU of it, or on the host.
    of_engine: bool,
}

impl Shade {
    /// Takes in the runs on the host, on the chosen GPU and on those of the chosen engine.
    pub fn fill(&mut self, data: &Data, view: &View) {
        let window = view.window();
        let share = |ms: u64| ms as f64 / window.ms().max(1) as f64;
        self.spans.clear();
        // Where that is not known, the chosen GPU stands for those of the engine.
        let engine = gpus(data, view.engine, view.end).ok().map(|(gpus, _)| gpus);
        let engines = data.engines().map(Subject::Engine);
        for subject in data.gpus().map(Subject::Gpu).chain(engines).chain([Subject::Host]) {
            let (of_gpu, of_engine) = match subject {
                Subject::Gpu(gpu) => {
                    let chosen = gpu == view.gpu;
                    (chosen, engine.map_or(chosen, |gpus| gpus.contains(gpu)))
                }
                // Who loads an engine loads its GPUs.
                Subject::Engine(loaded) => {
                    let chosen = loaded == view.engine;
                    let own = if chosen { engine } else { gpus(data, loaded, view.end).ok().map(|(gpus, _)| gpus) };
                    (own.map_or(chosen, |gpus| gpus.contains(view.gpu)), chosen)
                }
                _ => (true, true),
            };
            for run in data.runs(subject, window).filter(|_| of_gpu || of_engine) {
                // A run on several GPUs is one.
                if let Some(span) = self.spans.iter_mut().find(|span| span.run == run.name) {
                    (span.of_gpu, span.of_engine) = (span.of_gpu || of_gpu, span.of_engine || of_engine);
                    continue;
                }
                self.spans.push(Span {
                    from: share(run.start.since(window.start)),
                    to: share(run.end.min(window.end).since(window.start)),
                    probe: Arc::clone(&run.probe),
                    run: Arc::clone(&run.name),
                    of_gpu,
                    of_engine,
                });
            }
        }
    }

    /// Shades what is `of` that in `area`, the rows of a pane's plots with the time axis as the last one. Any area will do.
    pub fn draw(&self, buf: &mut Buffer, area: Rect, theme: Theme, of: Of) {
        let plot = Axes::split(area).plot;
        if plot.width == 0 {
            return;
        }
        let spans = || self.spans.iter().filter(|span| if of == Of::Gpu { span.of_gpu } else { span.of_engine });
        let (blank, dash, axis) = if theme.unicode() { ('░', '─', '━') } else { (':', '-', '=') };
        let wide = f64::from(plot.width);
        for Span { from, to, .. } in spans() {
            let first = (from * wide) as u16;
            // A run that is shorter than a column still has one.
            let last = ((to * wide).ceil() as u16).max(first.saturating_add(1)).min(plot.width);
            for (x, y) in (first..last).flat_map(|x| (0..area.height).map(move |y| (x, y))) {
                let at = (plot.x.saturating_add(x), area.y.saturating_add(y));
                let next = buf.cell((at.0.saturating_add(1), at.1)).and_then(|next| next.symbol().chars().next());
                let Some(cell) = buf.cell_mut(at) else { continue };
                if y + 1 == area.height && area.height >= WITH_AXIS {
                    // In ASCII a label begins with the same sign: "-30 s".
                    let label = next.is_some_and(|next| next.is_ascii_digit());
                    if cell.symbol().starts_with(dash) && !label {
                        cell.set_char(axis).set_style(theme.style(Role::Accent));
                    }
                } else if is_free(cell, None) {
                    cell.set_char(blank).set_style(theme.style(Role::Border));
                }
            }
        }
        let rows = area.height - u16::from(area.height >= WITH_AXIS);
        for span in spans() {
            span.name(buf, Rect { height: rows, y: area.y, ..plot }, theme, blank);
        }
    }
}

/// Whether nothing is drawn here but a grid line, or the shade itself.
fn is_free(cell: &Cell, shade: Option<char>) -> bool {
    let symbol = cell.symbol();
    cell.bg == ratatui::style::Color::Reset
        && (matches!(symbol, " " | "┈") || shade.is_some_and(|shade| symbol.starts_with(shade)))
}

impl Span {
    /// Names the probe in the uppermost row that has room for it, from the start of the run on, or before its end
    /// where the plot ends.
    fn name(&self, buf: &mut Buffer, plot: Rect, theme: Theme, shade: char) {
        let columns = width(&self.probe);
        let Some(most) = plot.width.checked_sub(columns) else { return };
        let x = ((self.from * f64::from(plot.width)) as u16).min(most);
        let free = |buf: &Buffer, y: u16| {
            let at = |x: u16| (plot.x.saturating_add(x), plot.y.saturating_add(y));
            (x..x + columns).all(|x| buf.cell(at(x)).is_some_and(|cell| is_free(cell, Some(shade))))
        };
        if let Some(y) = (0..plot.height).find(|&y| free(buf, y)) {
            put(buf, plot, (x, y), theme.style(Role::Accent), format_args!("{}", self.probe));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Batch, Edge, FactKey, Mark, ProcessSample, Reading, SourceId, Time, Why};
    use crate::store::{Retention, Store};
    use crate::ui::theme::{Charset, Depth};

    const END: Time = Time(1_000_000);

    /// A minute in which a probe ran from `start` to `end` seconds.
    fn shade(subject: Subject, start: u64, end: u64) -> Shade {
        let store = Store::new(Retention::HOUR);
        let mut names = Batch::new(SourceId::Nvml, END - 60_000, Batch::FOREVER);
        (0..2).for_each(|gpu| names.fact(Subject::Gpu(gpu), FactKey::Name, "GPU"));
        store.push(&names);
        for (s, edge) in [(start, Edge::Start(60_000)), (end, Edge::End("done".into()))] {
            let mut batch = Batch::new(SourceId::Probe, END - 60_000 + s * 1_000, 0);
            batch.marks.push(Mark { subject, probe: "hbm".into(), run: "r".into(), edge });
            store.push(&batch);
        }
        let mut shade = Shade::default();
        shade.fill(&store.read(), &View::new(END));
        shade
    }

    /// Twelve columns (five seconds each) and four rows: a blank one, data, a row of both, the axis.
    fn drawn(shade: &Shade, theme: Theme) -> Vec<String> {
        let axis = if theme.unicode() { "─── −30 s ──" } else { "--- -30 s --" };
        let mut buf = Buffer::with_lines(["            ", "############", "     ####   ", axis]);
        shade.draw(&mut buf, Rect::new(0, 0, 12, 4), theme, Of::Gpu);
        buf.content.chunks(12).map(|row| row.iter().map(ratatui::buffer::Cell::symbol).collect()).collect()
    }

    #[test]
    fn a_run_is_shaded_and_named_from_its_start_to_its_end_and_hides_no_data() {
        let full = drawn(&shade(Subject::Gpu(0), 10, 35), Theme::FULL);
        assert_eq!(full, ["  hbm░░     ", "############", "  ░░░####   ", "──━ −30 s ──"]);
        let ascii = drawn(&shade(Subject::Host, 0, 60), Theme { depth: Depth::Mono, charset: Charset::Ascii });
        assert_eq!(ascii, ["hbm:::::::::", "############", ":::::####:::", "=== -30 s =="]);
        let short = drawn(&shade(Subject::Gpu(0), 58, 58), Theme::FULL);
        assert_eq!(short, ["         hbm", "############", "     ####  ░", "─── −30 s ─━"]);
        assert_eq!(drawn(&shade(Subject::Gpu(1), 0, 60), Theme::FULL)[0].trim(), "", "another GPU");
    }

    #[test]
    fn a_name_takes_the_place_of_nothing_else() {
        let mut buf = Buffer::with_lines(["####        ", "#           ", "############"]);
        let shade = shade(Subject::Host, 0, 60);
        shade.draw(&mut buf, Rect::new(0, 0, 12, 3), Theme::FULL, Of::Gpu);
        let rows: Vec<String> =
            buf.content.chunks(12).map(|row| row.iter().map(ratatui::buffer::Cell::symbol).collect()).collect();
        assert_eq!(rows, ["####░░░░░░░░", "#░░░░░░░░░░░", "############"], "no row has room at its start");
    }

    #[test]
    fn a_pane_of_an_engine_is_disturbed_by_runs_on_the_engines_gpus() {
        let store = Store::new(Retention::HOUR);
        let mut batch = Batch::new(SourceId::Process, END - 50_000, Batch::FOREVER);
        (0..4).for_each(|gpu| batch.fact(Subject::Gpu(gpu), FactKey::Name, "GPU"));
        batch.fact(Subject::Engine(0), FactKey::Url, "http://127.0.0.1:8000");
        batch.fact(Subject::Engine(0), FactKey::Pids, "7");
        let none = Reading::Missing(Why::NotYet);
        batch.processes = Some(vec![ProcessSample {
            pid: 7,
            start: 1,
            user: "a".into(),
            command: "vllm".into(),
            gpus: vec![(2, Reading::Value(1e9)), (3, Reading::Value(1e9))],
            cpu_ms: none,
            rss: none,
            majflt: none,
            page_table: none,
            ..ProcessSample::default()
        }]);
        let (gpu, engine) = (Subject::Gpu, Subject::Engine(0));
        for (subject, run) in [(gpu(0), "a"), (gpu(1), "b"), (gpu(2), "c"), (gpu(3), "c"), (engine, "sweep")] {
            let (probe, run) = (run.into(), run.into());
            batch.marks.push(Mark { subject, probe, run, edge: Edge::Start(60_000) });
        }
        store.push(&batch);
        for (gpu, of_gpu) in [(0, &["a"][..]), (2, &["c", "sweep"])] {
            let mut shade = Shade::default();
            shade.fill(&store.read(), &View { gpu, ..View::new(END) });
            let of = |which: fn(&Span) -> bool| {
                shade.spans.iter().filter(|s| which(s)).map(|s| &*s.probe).collect::<Vec<_>>()
            };
            assert_eq!((of(|span| span.of_gpu), of(|span| span.of_engine)), (of_gpu.to_vec(), vec!["c", "sweep"]));
        }
    }

    #[test]
    fn any_area_will_do() {
        let shade = shade(Subject::Host, 0, 60);
        for area in [Rect::ZERO, Rect::new(0, 0, 300, 300), Rect::new(u16::MAX - 1, u16::MAX - 1, 1, 1)] {
            shade.draw(&mut Buffer::empty(Rect::new(0, 0, 20, 5)), area, Theme::FULL, Of::Engine);
        }
    }
}
