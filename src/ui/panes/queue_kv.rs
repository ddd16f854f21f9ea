//! Queue and KV cache: who runs and who waits over time, how fast, at what energy, and what the KV pool is
//! used for in short (the pane `kv` has all of it).
//!
//! Estimates carry a `~`; tail waste, idle pool and over-provision are three figures and stay apart.

mod below;

use std::fmt::Write;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use crate::app::View;
use crate::derive::coverage::{partial_scrapes, present_rate};
use crate::derive::energy::{Energy, NoEnergy, energy};
use crate::derive::kv::{Buffers, Kv, kv};
use crate::derive::queue::{Drain, Lora, Queue, lora, queue};
use crate::model::{FactKey, Metric, Reading, Subject, Unit, Why};
use crate::store::{Bin, Data, Window};
use crate::ui::pane::{Context, Pane, PaneSpec};
use crate::ui::shade::Of;
use crate::ui::text::put;
use crate::ui::theme::{Role, Theme};
use crate::ui::units::{Decimals, FinePercent, Number, Partly, Percent, Whole};
use crate::ui::verdict::words::unusual;
use crate::ui::widgets::{Area, Axes, Line, Plot, Scale, TimeEnd, spark, time_axis, value_axis_left};

use super::kv::Times;
use super::notice::{self, Lack};
use super::row::{Flow, Row};
use below::{Drains, Reasons};

/// The pane.
pub(super) const SPEC: PaneSpec = PaneSpec {
    id: "queue_kv",
    tab: "Queue and KV",
    help: "Running (area) and waiting (line) requests against the engine's limits, and preemptions below them. The queue \
           drains in: those who wait by requests finished a second. tok/J: generated tokens over the measured energy of \
           the GPUs that the engine's processes run on; a shared GPU makes it a lower bound. The bar splits the KV pool \
           (~ marks an estimate); the pane KV memory says more. Over-provision compares the longest context admitted \
           with what requests used: it caps admission, it holds no blocks. Rates of tokens, requests and preemptions are \
           of the last 10 s; lengths, prefix hits and work done again of the time shown.",
    new: || Box::new(QueueKv::default()),
};

/// Tokens per joule are read over this long, ms: three readings of the driver's energy counter.
const ENERGY_MS: u64 = 30_000;

/// What is drawn.
#[derive(Debug, Default)]
struct QueueKv {
    title: String,
    notice: String,
    running: Vec<Bin>,
    waiting: Vec<Bin>,
    preempted: Vec<Bin>,
    scale: Option<Scale>,
    most_preempted: f64,
    names: Names,
    /// Rows that everything below the plot takes.
    rows_below: u16,
    buffers: Buffers,
    now: Option<Now>,
    end: Option<TimeEnd>,
}

/// Texts about the engine.
#[derive(Debug, Default)]
struct Names {
    /// Adapter id.
    kind: String,
    /// Adapters that run and wait, where the engine names them.
    lora_running: String,
    lora_waiting: String,
}

impl Names {
    fn read(&mut self, data: &Data, view: &View) {
        let fact = |key| data.fact(Subject::Engine(view.engine), key, view.end).unwrap_or_default();
        fact(FactKey::Kind).clone_into(&mut self.kind);
        fact(FactKey::LoraRunning).clone_into(&mut self.lora_running);
        fact(FactKey::LoraWaiting).clone_into(&mut self.lora_waiting);
    }
}

/// The newest figures.
#[derive(Clone, Copy, Debug)]
struct Now {
    queue: Queue,
    /// Rates of the last [`View::RATES_MS`].
    preemptions: Reading,
    prompt: Reading,
    generated: Reading,
    /// Whether less than four fifths of that time were measured.
    partly: Partly,
    energy: Result<Energy, NoEnergy>,
    lora: Option<Lora>,
    kv: Kv,
    /// This server's usual rate of generated tokens at such a load, where that of now differs, tokens/s.
    generated_usual: Option<f64>,
    /// Mean lengths of prompts and answers that finished, tokens.
    lengths: [Reading; 2],
}

/// The parts of the pane. Parts that have no room are empty.
struct Parts {
    head: Rect,
    axes: Axes,
    preempted: Axes,
    below: Rect,
}

fn parts(area: Rect, preempted: bool, rows_below: u16) -> Parts {
    let head = u16::from(area.height >= 4);
    let below = match area.height {
        0..=2 => 0,
        3..=5 => 1,
        6..=8 => 2,
        9..=10 => 3,
        height => height / 2 - 1,
    };
    let below = below.min(rows_below);
    let middle = Rect { y: area.y + head, height: area.height - head - below, ..area };
    let axes = Axes::with_strip(middle);
    let marks = u16::from(preempted && axes.plot.height >= 4);
    let rows = axes.plot.height - marks;
    Parts {
        head: Rect { height: head, ..area },
        axes: axes.rows(axes.plot.y, rows),
        preempted: axes.rows(axes.plot.y + rows, marks),
        below: Rect { y: middle.y + middle.height, height: below, ..area },
    }
}

impl Pane for QueueKv {
    fn prepare(&mut self, data: &Data, context: &Context<'_>, area: Rect) {
        let view = context.view;
        let (subject, window) = (Subject::Engine(view.engine), view.window());
        let bins = parts(area, false, 0).axes.bins();
        for (metric, columns, n) in [
            (Metric::RequestsRunning, &mut self.running, bins),
            (Metric::RequestsWaiting, &mut self.waiting, bins),
            (Metric::Preemptions, &mut self.preempted, bins / 2),
        ] {
            columns.resize(n, Bin::default());
            data.fill(subject, metric, window, columns);
        }
        let most = |metric| data.series(subject, metric).and_then(|s| s.extremes(window)).map_or(0.0, |(_, most)| most);
        self.scale = Some(Scale::zoom(most(Metric::RequestsRunning).max(most(Metric::RequestsWaiting)), 4.0));
        self.most_preempted = most(Metric::Preemptions);
        let present = view.rates();
        let rate = |metric| present_rate(data, view.engine, metric, present);
        let client = context.timeline.diagnosis().client(view.engine);
        let mut now = Now {
            queue: present_queue(data, view.engine, window, present),
            preemptions: rate(Metric::Preemptions),
            prompt: rate(Metric::PromptTokens),
            generated: rate(Metric::GenerationTokens),
            partly: Partly(partial_scrapes(data, view.engine, present)),
            energy: energy(data, view.engine, Window::last(view.end, ENERGY_MS)),
            lora: lora(data, view.engine, view.end),
            kv: kv(data, view.engine, window, &mut self.buffers),
            generated_usual: client.and_then(|client| unusual(client.generated_per_s, client.generated_usual)),
            lengths: client.map_or([Reading::Missing(Why::NotYet); 2], |client| [client.prompt_len, client.answer_len]),
        };
        notice::engine(data, view, &mut self.notice);
        if !self.notice.is_empty() {
            let Now { queue, generated, kv, .. } = &mut now;
            notice::unanswered([&mut queue.running, &mut queue.waiting, generated, &mut kv.usage_pct]);
        }
        self.names.read(data, view);
        let mut flow = Flow::count(area.width);
        below::write(&mut flow, *context.theme, &now, &self.names, view.end);
        self.rows_below = flow.rows();
        self.now = Some(now);
        self.end = Some(TimeEnd::of(view, data.oldest()));
        self.word_title(&now);
    }

    fn title(&self) -> &str {
        &self.title
    }

    fn timeline(&self, area: Rect) -> Rect {
        let parts = parts(area, self.most_preempted > 0.0, self.rows_below);
        let rows = parts.axes.plot.height + parts.preempted.plot.height + parts.axes.time.height;
        let drawn = self.running.iter().chain(&self.waiting).any(|bin| bin.mean().is_some());
        if drawn { Rect { y: parts.axes.plot.y, height: rows, ..area } } else { Rect::ZERO }
    }

    fn strip(&self, area: Rect) -> Rect {
        parts(area, self.most_preempted > 0.0, self.rows_below).axes.strip
    }

    fn cursor_range(&self, area: Rect) -> Option<(u16, u16)> {
        let strip = self.strip(area);
        (!strip.is_empty()).then_some((strip.width, 1))
    }

    fn of(&self) -> Of {
        Of::Engine
    }

    fn draw(&self, area: Rect, buf: &mut Buffer, context: &Context<'_>) {
        let area = area.intersection(buf.area);
        let (Some(now), Some(scale), Some(end)) = (&self.now, self.scale, self.end) else { return };
        if area.height < 3 || area.width < 12 {
            put(buf, area, (0, 0), Style::new(), format_args!("{}", self.title));
            return;
        }
        // What was read before the engine went away stays on the plot; without any of it only words are left.
        let nothing = self.running.iter().chain(&self.waiting).all(|bin| bin.mean().is_none());
        if nothing {
            notice::draw(buf, area, *context.theme, if self.notice.is_empty() { &self.title } else { &self.notice });
            return;
        }
        let parts = parts(area, self.most_preempted > 0.0, self.rows_below);
        draw_head(buf, parts.head, *context.theme, now);
        self.draw_plot(buf, &parts, *context.theme, scale);
        time_axis(buf, &parts.axes, context.theme, context.view.span_ms, end);
        below::write(&mut Flow::new(buf, parts.below), *context.theme, now, &self.names, context.view.end);
    }
}

/// The queue with the high-water marks of the visible time and the rates of the present.
fn present_queue(data: &Data, engine: u8, visible: Window, present: Window) -> Queue {
    let rate = |metric| present_rate(data, engine, metric, present);
    let (finished_per_s, failed_per_s) = (rate(Metric::RequestsFinished), rate(Metric::RequestsFailed));
    Queue { finished_per_s, failed_per_s, ..queue(data, engine, visible) }
}

impl QueueKv {
    fn word_title(&mut self, now: &Now) {
        self.title.clear();
        let title = &mut self.title;
        let (Reading::Value(running), Reading::Value(waiting)) = (now.queue.running, now.queue.waiting) else {
            let running = now.queue.running.why();
            if !self.notice.is_empty() && running != Some(Why::NotYet) {
                let _ = write!(title, "queue: {}", self.notice);
                return;
            }
            let why = running.or(now.queue.waiting.why());
            let metric = if running.is_some() { Metric::RequestsRunning } else { Metric::RequestsWaiting };
            // Writing to a String never fails.
            let _ = match why {
                Some(why) => write!(title, "queue: {}", Lack { kind: &self.names.kind, metric, why }),
                None => Ok(()),
            };
            return;
        };
        let _ = write!(
            title,
            "{} running, {} waiting{}",
            Decimals(running, 0),
            Decimals(waiting, 0),
            Drains(now.queue.drain)
        );
        if let Some(rate) = now.preemptions.value().filter(|&rate| rate > 0.0) {
            let _ = write!(title, ", {}{} preemptions/s", Decimals(rate, 1), now.partly);
        }
        if let Reading::Value(usage) = now.kv.usage_pct {
            let _ = write!(title, "; KV {} held", Percent(Reading::new(usage)));
        }
        if now.kv.tail_waste_pct.value().is_some() {
            let _ = write!(title, ", ~{} tail waste", FinePercent(now.kv.tail_waste_pct));
        }
        if let Reading::Value(times) = now.kv.overprovision_x {
            let _ = write!(title, ", ~{} over-provisioned", Times(times));
        }
    }

    fn draw_plot(&self, buf: &mut Buffer, parts: &Parts, theme: Theme, scale: Scale) {
        let running = [Area { bins: &self.running, scale, role: Role::Area, shade: 0.0 }];
        let waiting = [Line { bins: &self.waiting, scale, style: theme.style(Role::Line), envelope: true }];
        Plot { theme: &theme, areas: &running, lines: &waiting, grid: true }.draw(parts.axes.plot, buf);
        let dim = theme.style(Role::Dim);
        value_axis_left(buf, &parts.axes, &theme, scale, Unit::Requests, dim);
        let row = &parts.preempted;
        if row.plot.height == 0 {
            return;
        }
        put(buf, row.left, (0, 0), dim, format_args!("preempt"));
        let top = Scale::fixed(0.0, self.most_preempted);
        spark(buf, row.plot, &theme, &self.preempted, top, theme.style(Role::Warn));
        put(buf, row.right, (1, 0), dim, format_args!("max {}/s", Decimals(self.most_preempted, 0)));
    }
}

/// "█ 128 running of 256  ─ 40 waiting for capacity, drains in 14 s".
fn draw_head(buf: &mut Buffer, area: Rect, theme: Theme, now: &Now) {
    let queue = &now.queue;
    let (text, dim) = (theme.style(Role::Text), theme.style(Role::Dim));
    let (block, line) = if theme.unicode() { ("█ ", "─ ") } else { ("# ", "- ") };
    let area_style = theme.colour(Role::Area).map_or(dim, |c| Style::new().fg(c));
    let mut row = Row::new(buf, area);
    // Why one is missing, and what would help, is in the title.
    let figure = |row: &mut Row<'_>, reading: Reading, name: &str| {
        match reading {
            Reading::Value(_) => {
                row.part(&[(text, format_args!("{}", Whole(reading))), (dim, format_args!(" {name}"))])
            }
            Reading::Missing(Why::Unsupported) => row.part(&[(dim, format_args!("{name} not exposed"))]),
            Reading::Missing(why) => row.part(&[(dim, format_args!("{name}: {}", notice::words(why)))]),
        };
    };
    row.part(&[(area_style, format_args!("{block}"))]);
    figure(&mut row, queue.running, "running");
    let of = |row: &mut Row<'_>, cap: Reading| {
        if cap.value().is_some() {
            row.part(&[(dim, format_args!(" of {}", Whole(cap)))]);
        }
    };
    of(&mut row, queue.running_cap);
    row.gap(2);
    row.part(&[(theme.style(Role::Line), format_args!("{line}"))]);
    figure(&mut row, queue.waiting, "waiting");
    of(&mut row, queue.waiting_cap);
    row.part(&[(dim, format_args!("{}", Reasons(queue)))]);
    let style = if queue.drain == Drain::Never { theme.style(Role::Warn) } else { text };
    row.part(&[(style, format_args!("{}", Drains(queue.drain)))]);
    let [prompt, answer] = now.lengths;
    if prompt.value().is_some() && answer.value().is_some() {
        row.gap(2).part(&[
            (dim, format_args!("prompts ")),
            (text, format_args!("{}", Number(prompt))),
            (dim, format_args!(", answers ")),
            (text, format_args!("{}", Number(answer))),
            (dim, format_args!(" tokens")),
        ]);
    }
}

#[cfg(test)]
mod tests;
