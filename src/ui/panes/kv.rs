//! KV memory: each kind of waste by itself, in tokens, bytes and share of the pool, exact or estimated, and
//! what would make an estimate exact.
//!
//! Estimates carry a `~`. Nothing is added up over kinds: a tail, an idle pool, work done again, copies and
//! an over-long context ask for different changes.

mod bar;
pub(super) mod lines;
mod table;
mod words;

use std::fmt::Write;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

pub(super) use bar::Bar;
pub(super) use words::Times;

use crate::derive::kv::{Basis, Buffers, Kv, kv};
use crate::model::{FactKey, Metric, Reading, Subject, Unit};
use crate::store::{Bin, Data};
use crate::ui::pane::{Context, Pane, PaneSpec};
use crate::ui::shade::Of;
use crate::ui::text::put;
use crate::ui::theme::{Role, Theme};
use crate::ui::units::{Bytes, Decimals, FinePercent, Percent};
use crate::ui::widgets::{Area, Axes, Plot, Scale, TimeEnd, time_axis, value_axis_left};

use super::notice::{self, Lack};
use super::row::Flow;
use words::Tilde;

/// The pane.
pub(super) const SPEC: PaneSpec = PaneSpec {
    id: "kv",
    tab: "KV memory",
    help: "What live requests hold of the KV pool over time, and where all of it goes: live tokens, tails (empty places in \
           last blocks or in busy slots), reserved, cached for reuse, free. ~ marks an estimate; below the table stands \
           what it assumes and what would make it exact. Work done again after preemption, copies on several GPUs and a \
           context longer than requests use are kept apart: each asks for another change. Lengths, prefix hits and work \
           done again are of the time shown; the rest is as read last.",
    new: || Box::new(KvMemory::default()),
};

/// Least height with a plot.
const WITH_PLOT: u16 = 18;

/// What is drawn.
#[derive(Debug, Default)]
struct KvMemory {
    title: String,
    notice: String,
    kind: String,
    /// What the bytes of a token were worked out from.
    bytes_from: String,
    /// Models that share the memory, of an engine that loads several.
    loaded: String,
    held: Vec<Bin>,
    buffers: Buffers,
    kv: Option<Kv>,
    end: Option<TimeEnd>,
}

/// The plot above, and the words below. Without room for both there is no plot.
fn parts(area: Rect) -> (Axes, Rect) {
    let plot = if area.height < WITH_PLOT { 0 } else { area.height / 3 };
    let words = Rect { y: area.y + plot, height: area.height - plot, ..area };
    (Axes::with_strip(Rect { height: plot, ..area }), words)
}

impl Pane for KvMemory {
    fn prepare(&mut self, data: &Data, context: &Context<'_>, area: Rect) {
        let view = context.view;
        let (subject, window) = (Subject::Engine(view.engine), view.window());
        notice::engine(data, view, &mut self.notice);
        notice::kind(data, view.engine, view.end).clone_into(&mut self.kind);
        let from = data.fact(subject, FactKey::KvBytesSource, view.end);
        from.unwrap_or_default().clone_into(&mut self.bytes_from);
        data.fact(subject, FactKey::Loaded, view.end).unwrap_or_default().clone_into(&mut self.loaded);
        let kv = kv(data, view.engine, window, &mut self.buffers);
        self.held.resize(parts(area).0.bins(), Bin::default());
        data.fill(subject, Metric::KvUsage, window, &mut self.held);
        self.word_title(&kv);
        self.kv = Some(kv);
        self.end = Some(TimeEnd::of(view, data.oldest()));
    }

    fn title(&self) -> &str {
        &self.title
    }

    fn timeline(&self, area: Rect) -> Rect {
        let axes = parts(area).0;
        let rows = axes.plot.height + axes.time.height;
        let drawn = self.held.iter().any(|bin| bin.mean().is_some());
        if drawn { Rect { y: axes.plot.y, height: rows, ..area } } else { Rect::ZERO }
    }

    fn strip(&self, area: Rect) -> Rect {
        parts(area).0.strip
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
        let (Some(kv), Some(end)) = (&self.kv, self.end) else { return };
        let theme = *context.theme;
        let known = [kv.usage_pct, kv.pool_tokens, kv.held_tokens, kv.max_model_len];
        if self.loaded.is_empty() && known.iter().all(|reading| reading.value().is_none()) {
            notice::draw(buf, area, theme, if self.notice.is_empty() { &self.title } else { &self.notice });
            return;
        }
        let (axes, words) = parts(area);
        if axes.plot.height > 0 {
            let held = [Area { bins: &self.held, scale: Scale::PERCENT, role: Role::Area, shade: 0.0 }];
            Plot { theme: &theme, areas: &held, lines: &[], grid: true }.draw(axes.plot, buf);
            value_axis_left(buf, &axes, &theme, Scale::PERCENT, Unit::Percent, theme.style(Role::Dim));
            time_axis(buf, &axes, &theme, context.view.span_ms, end);
        }
        self.write(&mut Flow::new(buf, words), theme, kv);
    }
}

impl KvMemory {
    fn word_title(&mut self, kv: &Kv) {
        self.title.clear();
        let title = &mut self.title;
        if kv.usage_pct.value().is_none() && !self.kind.is_empty() && !self.notice.is_empty() {
            // What was read before says nothing about now.
            let _ = write!(title, "KV memory: {}", self.notice);
            return;
        }
        // Writing to a String never fails.
        let _ = match kv.usage_pct {
            Reading::Value(_) => write!(title, "{} held", Percent(kv.usage_pct)),
            Reading::Missing(why) => {
                write!(title, "KV memory: {}", Lack { kind: &self.kind, metric: Metric::KvUsage, why })
            }
        };
        if kv.bytes(kv.held_tokens).value().is_some() {
            let _ = write!(title, ", {} of {}", Bytes(kv.bytes(kv.held_tokens)), Bytes(kv.bytes(kv.pool_tokens)));
        }
        if kv.tail_waste_pct.value().is_some() {
            let tilde = Tilde(kv.live_tokens_is == Basis::Estimate);
            let _ = write!(title, "; {tilde}{} of it empty tails", FinePercent(kv.tail_waste_pct));
        }
        if let Reading::Value(idle) = kv.idle_slots {
            let _ = write!(title, "; {} slots idle", Decimals(idle, 0));
        }
    }

    /// Bar, table, what is lost otherwise, and what would make estimates exact.
    fn write(&self, flow: &mut Flow<'_>, theme: Theme, kv: &Kv) {
        let dim = theme.style(Role::Dim);
        if !self.loaded.is_empty() && self.notice.is_empty() {
            let text = theme.style(Role::Text);
            flow.line().part(&[(dim, format_args!("in memory:"))]);
            for model in self.loaded.split("; ") {
                flow.line().gap(1).text(text, model);
            }
        }
        if let Some(bar) = Bar::of(kv) {
            flow.picture(|buf, row| {
                let axes = Axes::split(row);
                put(buf, row, (0, 0), dim, format_args!("pool"));
                bar.draw(buf, axes.plot, theme);
            });
        }
        table::write(flow, theme, kv, &self.kind);
        lines::losses(flow.line(), theme, kv);
        lines::overprovision(flow.line(), theme, kv, &self.kind);
        lines::prefix(flow.line(), theme, kv, &self.kind);
        if !self.bytes_from.is_empty() {
            flow.line().part(&[(dim, format_args!("bytes a token: {}", Bytes(kv.bytes_per_token)))]);
            flow.gap(1).part(&[(dim, format_args!("from the {}", self.bytes_from))]);
        }
        table::missing(flow.line(), theme, kv, &self.kind);
        table::estimates(flow.line(), theme, kv, &self.kind);
    }
}

#[cfg(test)]
mod tests;
