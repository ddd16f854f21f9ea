//! SM activity against DRAM bandwidth on one time axis, and the wall that the two show.
//!
//! SM activity is a line on the left axis in percent, bandwidth an area on the right axis in bytes per
//! second. Time-based utilisation is only ever a number in words here: it measures neither.

use std::fmt::Write;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::derive::wall::{Evidence, WINDOW_MS, Wall};
use crate::model::{FactKey, Metric, Reading, Subject, Unit, Why};
use crate::store::{Bin, Data, Window};
use crate::ui::pane::{Context, Pane, PaneSpec};
use crate::ui::text::{put_right, put_whole};
use crate::ui::theme::Role;
use crate::ui::units::{BytesPerSecond, Percent};
use crate::ui::widgets::{Area, Axes, Line, Plot, Scale, TimeEnd, time_axis, value_axis_left, value_axis_right};

use super::notice;

/// The pane.
pub(super) const SPEC: PaneSpec = PaneSpec {
    id: "sm_dram",
    tab: "SM/DRAM",
    help: "SM activity (line, left axis) against DRAM bandwidth (area, right axis) of the chosen GPU. High SM with low DRAM \
           is bound by compute, the reverse by memory, both low by launches or the host; the title judges the last 10 s.",
    new: || Box::<SmDram>::default(),
};

#[derive(Debug)]
struct SmDram {
    title: String,
    /// Why there is no plot; empty when there is one.
    missing: String,
    sm: Vec<Bin>,
    dram: Vec<Bin>,
    sm_now: Reading,
    dram_now: Reading,
    /// Bytes per second that 100 % stands for.
    peak: Reading,
    peak_source: String,
    exporter: notice::Exporter,
    end: TimeEnd,
}

impl Default for SmDram {
    fn default() -> Self {
        Self {
            title: String::new(),
            missing: String::new(),
            sm: Vec::new(),
            dram: Vec::new(),
            sm_now: Reading::Missing(Why::NotYet),
            dram_now: Reading::Missing(Why::NotYet),
            peak: Reading::Missing(Why::NotYet),
            peak_source: String::new(),
            exporter: notice::Exporter::default(),
            end: TimeEnd::Now,
        }
    }
}

impl Pane for SmDram {
    fn prepare(&mut self, data: &Data, context: &Context<'_>, area: Rect) {
        let view = context.view;
        let gpu = Subject::Gpu(view.gpu);
        let bins = Axes::split(area).bins();
        for (metric, out) in [(Metric::SmActive, &mut self.sm), (Metric::DramActive, &mut self.dram)] {
            out.resize(bins, Bin::default());
            data.fill(gpu, metric, view.window(), out);
        }
        self.sm_now = data.mean(gpu, Metric::SmActive, view.recent());
        self.dram_now = data.mean(gpu, Metric::DramActive, view.recent());
        self.peak = data.latest(gpu, Metric::DramPeak, view.end).reading;
        self.peak_source.clear();
        self.peak_source.push_str(data.fact(gpu, FactKey::DramPeakSource, view.end).unwrap_or(""));
        self.exporter.read(data, view.gpu, view.end);
        self.end = TimeEnd::of(view, data.oldest());

        let window = Window::last(view.end, WINDOW_MS.min(view.span_ms));
        let engine = data.engines().any(|e| e == view.engine).then_some(view.engine);
        let evidence = Evidence::over(data, view.gpu, engine, window);
        notice::gpus(data, view, &mut self.title);
        let _ = match evidence.wall() {
            Wall::Unknown(_) if !self.title.is_empty() => Ok(()),
            // The pane's inside says what is missing and what would help.
            Wall::Unknown(Why::Unsupported) => write!(self.title, "wall unknown: SM activity is not offered"),
            _ => {
                self.title.clear();
                write!(self.title, "now {evidence}")
            }
        };
        self.word_missing(data, context, &evidence);
    }

    fn title(&self) -> &str {
        &self.title
    }

    fn timeline(&self, area: Rect) -> Rect {
        if self.missing.is_empty() { plots(area) } else { Rect::ZERO }
    }

    fn draw(&self, area: Rect, buf: &mut Buffer, context: &Context<'_>) {
        let theme = context.theme;
        let plots = plots(area);
        let legend = area.height - plots.height;
        let axes = Axes::split(plots);
        time_axis(buf, &axes, theme, context.view.span_ms, self.end);
        if !self.missing.is_empty() {
            let rows = axes.plot.height + legend;
            notice::draw(buf, Rect { height: rows, ..area }, *theme, &self.missing);
            return;
        }
        if legend > 0 {
            self.draw_legend(area, buf, context);
        }
        value_axis_left(buf, &axes, theme, Scale::PERCENT, Unit::Percent, theme.style(Role::Line));
        let (scale, unit) = match self.peak {
            Reading::Value(peak) => (Scale::fixed(0.0, peak), Unit::BytesPerSecond),
            Reading::Missing(_) => (Scale::PERCENT, Unit::Percent),
        };
        value_axis_right(buf, &axes, scale, unit, theme.style(Role::AreaText));
        let plot = Plot {
            theme,
            areas: &[Area { bins: &self.dram, scale: Scale::PERCENT, role: Role::Area, shade: 0.0 }],
            lines: &[Line { bins: &self.sm, scale: Scale::PERCENT, style: theme.style(Role::Line), envelope: false }],
            grid: true,
        };
        plot.draw(axes.plot, buf);
    }
}

/// All but the legend.
fn plots(area: Rect) -> Rect {
    let legend = u16::from(area.height == 1 || area.height >= 6);
    Rect { y: area.y.saturating_add(legend), height: area.height - legend, ..area }
}

impl SmDram {
    /// Says why there is nothing to plot.
    fn word_missing(&mut self, data: &Data, context: &Context<'_>, evidence: &Evidence) {
        self.missing.clear();
        let bins = self.sm.iter().chain(&self.dram);
        if bins.clone().next().is_some() && bins.clone().any(|bin| bin.mean().is_some()) {
            return;
        }
        notice::gpus(data, context.view, &mut self.missing);
        if !self.missing.is_empty() {
            return;
        }
        let _ = match (evidence.wall(), evidence.util_time) {
            (Wall::Unknown(Why::Unsupported), Reading::Value(time)) => write!(
                self.missing,
                "SM activity needs GPM (Hopper or newer) or a DCGM exporter. Time-based utilisation, {time:.0} % here, \
                 counts time with any kernel and cannot tell."
            ),
            (Wall::Unknown(Why::Unsupported), Reading::Missing(_)) => {
                write!(self.missing, "SM activity needs GPM (Hopper or newer) or a DCGM exporter.")
            }
            (Wall::Unknown(why), _) => write!(self.missing, "SM and DRAM activity: {}", why.word()),
            _ => Ok(()),
        };
    }

    /// "━ SM active 81 %   ▆ DRAM 2.21 TB/s, 46 % of 4.80 TB/s (datasheet)": what does not fit is left out.
    fn draw_legend(&self, area: Rect, buf: &mut Buffer, context: &Context<'_>) {
        let theme = context.theme;
        let (line, block) = if theme.unicode() { ("━", "▆") } else { ("-", "#") };
        let (text, dim) = (theme.style(Role::Text), theme.style(Role::Dim));
        let mut x = 0;
        let mut say = |style, args: std::fmt::Arguments<'_>| {
            x = put_whole(buf, area, (x, 0), style, args);
        };
        say(theme.style(Role::Line), format_args!("{line} "));
        say(dim, format_args!("SM "));
        say(text, format_args!("{:>5}  ", Percent(self.sm_now)));
        say(theme.style(Role::AreaText), format_args!("{block} "));
        say(dim, format_args!("DRAM "));
        say(text, format_args!("{:>5} ", Percent(self.dram_now)));
        let Reading::Value(peak) = self.peak else {
            say(dim, format_args!("of peak"));
            return;
        };
        say(text, format_args!("{:>9}", BytesPerSecond(self.dram_now.map(|p| p / 100.0 * peak))));
        let end = x;
        let source = if self.peak_source.is_empty() { "peak" } else { &self.peak_source };
        let rest = Rect { x: area.x.saturating_add(end), width: area.width.saturating_sub(end), ..area };
        let note = format_args!("100 % = {} ({source})", BytesPerSecond(self.peak));
        if self.exporter.gives() {
            // That the values are slow matters more than what their axis ends at.
            put_right(buf, rest, (rest.width, 0), dim, format_args!("{}", self.exporter));
        } else if crate::ui::text::columns(note) + 2 <= rest.width {
            put_right(buf, rest, (rest.width, 0), dim, note);
        }
    }
}
