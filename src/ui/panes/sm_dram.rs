//! SM activity against DRAM bandwidth on one time axis; the title says what the diagnosis says of the GPU.
//!
//! SM activity is a line on the left axis in percent, bandwidth an area on the right axis in bytes per
//! second, up to the peak that the datasheet promises or, on a key, to what a probe measured on this very GPU.
//! Time-based utilisation is only ever a number in words here: it measures neither.

use std::fmt::{self, Write};

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::app::View;
use crate::derive::ceiling::Ceiling;
use crate::derive::coverage::partial;
use crate::derive::energy::gpus;
use crate::diagnosis::Cause;
use crate::model::{FactKey, Metric, Reading, Subject, Unit, Why};
use crate::store::{Bin, Data};
use crate::ui::pane::{Context, Pane, PaneSpec};
use crate::ui::text::{columns, put, put_right, put_whole};
use crate::ui::theme::Role;
use crate::ui::units::{BytesPerSecond, Partly, Percent, Span};
use crate::ui::verdict::words;
use crate::ui::widgets::{Area, Axes, Line, Plot, Scale, TimeEnd, time_axis, value_axis_left, value_axis_right};

use super::notice;

/// The pane.
pub(super) const SPEC: PaneSpec = PaneSpec {
    id: "sm_dram",
    tab: "SM/DRAM",
    help: "SM activity (line, left axis) against DRAM bandwidth (area, right axis) of the chosen GPU. High SM with low DRAM \
           speaks for compute, the reverse for memory, both low for launches, the host or little demand; the title is the \
           diagnosis of this GPU. P makes the right axis end at what the probe hbm measured on this GPU.",
    new: || Box::<SmDram>::default(),
};

/// Columns of a title that the pane's name and the frame take.
const TITLE: u16 = 14;

#[derive(Debug)]
struct SmDram {
    title: String,
    /// Why there is no plot; empty when there is one.
    missing: String,
    sm: Vec<Bin>,
    dram: Vec<Bin>,
    sm_now: Reading,
    dram_now: Reading,
    /// Whether less than four fifths of the last seconds were measured.
    partly: Partly,
    /// Bytes per second that 100 % of the readings stands for.
    peak: Reading,
    peak_source: String,
    /// What was measured on this GPU, if it was.
    ceiling: Option<Measured>,
    /// What it is that was measured, and whether it still counts; with a ceiling only.
    ceiling_source: String,
    exporter: notice::Exporter,
    end: TimeEnd,
}

/// The measured ceiling.
#[derive(Clone, Copy, Debug)]
struct Measured {
    bytes_per_s: f64,
    /// The same on the scale of the readings, %.
    activity: f64,
    /// Whether it may not hold any more.
    old: bool,
    /// DRAM activity now, % of the ceiling.
    now: Reading,
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
            partly: Partly(false),
            peak: Reading::Missing(Why::NotYet),
            peak_source: String::new(),
            ceiling: None,
            ceiling_source: String::new(),
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
        let partly = partial(data, gpu, Metric::SmActive, view.recent());
        self.partly = Partly(partly && self.sm_now.value().is_some());
        self.peak = data.latest(gpu, Metric::DramPeak, view.end).reading;
        self.peak_source.clear();
        self.peak_source.push_str(data.fact(gpu, FactKey::DramPeakSource, view.end).unwrap_or(""));
        self.read_ceiling(data, view);
        self.exporter.read(data, view.gpu, view.end);
        self.end = TimeEnd::of(view, data.oldest());

        self.word_title(data, context, area);
        self.word_missing(data, context);
    }

    fn title(&self) -> &str {
        &self.title
    }

    fn timeline(&self, area: Rect) -> Rect {
        let (plots, strip) = (plots(area), self.strip(area).height);
        if self.missing.is_empty() { Rect { height: plots.height - strip, ..plots } } else { Rect::ZERO }
    }

    fn strip(&self, area: Rect) -> Rect {
        Axes::with_strip(plots(area)).strip
    }

    fn cursor_range(&self, area: Rect) -> Option<(u16, u16)> {
        let strip = self.strip(area);
        (!strip.is_empty()).then_some((strip.width, 1))
    }

    fn draw(&self, area: Rect, buf: &mut Buffer, context: &Context<'_>) {
        let theme = context.theme;
        let plots = plots(area);
        let legend = area.height - plots.height;
        let axes = Axes::with_strip(plots);
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
        let measured = self.shown(context);
        let (scale, unit) = match (measured, self.peak) {
            (Some(measured), _) => (Scale::fixed(0.0, measured.bytes_per_s), Unit::BytesPerSecond),
            (None, Reading::Value(peak)) => (Scale::fixed(0.0, peak), Unit::BytesPerSecond),
            (None, Reading::Missing(_)) => (Scale::PERCENT, Unit::Percent),
        };
        value_axis_right(buf, &axes, scale, unit, theme.style(Role::AreaText));
        let top = measured.map_or(Scale::PERCENT, |measured| Scale::fixed(0.0, measured.activity));
        let plot = Plot {
            theme,
            areas: &[Area { bins: &self.dram, scale: top, role: Role::Area, shade: 0.0 }],
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

/// Whether an engine's finding says why its GPU is as busy as it is.
const fn tells_of_activity(cause: Cause) -> bool {
    use Cause::{
        Compute, DemandLimited, Frontend, HostCpu, Idle, Interconnect, LaunchOverhead, LongPrefill, MemoryBandwidth,
        Neighbour, PcieTransfer, PrefixCold, Stalled, Straggler,
    };
    matches!(
        cause,
        Compute
            | DemandLimited
            | Frontend
            | HostCpu
            | Idle
            | Interconnect
            | LaunchOverhead
            | LongPrefill
            | MemoryBandwidth
            | Neighbour
            | PcieTransfer
            | PrefixCold
            | Stalled
            | Straggler
    )
}

impl SmDram {
    /// What the diagnosis says of this GPU, or of the engine on it: the same words as in the verdict.
    fn word_title(&mut self, data: &Data, context: &Context<'_>, area: Rect) {
        let (view, diagnosis) = (context.view, context.timeline.diagnosis());
        notice::gpus(data, view, &mut self.title);
        if !self.title.is_empty() {
            return;
        }
        let on_it = || gpus(data, view.engine, view.end).map_or(true, |(gpus, _)| gpus.contains(view.gpu));
        // The most harmful first, whether it is of the GPU or of the engine on it; a fault says nothing of what the GPU does.
        let found = diagnosis.findings.iter().find(|finding| match finding.subject {
            Subject::Gpu(gpu) => gpu == view.gpu && finding.cause != Cause::GpuFault,
            Subject::Engine(engine) => engine == view.engine && tells_of_activity(finding.cause) && on_it(),
            _ => false,
        });
        if let Some(finding) = found {
            self.title.push_str(words::headline(finding, area.width.saturating_sub(TITLE)));
            return;
        }
        // Writing to a String never fails.
        let _ = match self.sm_now {
            Reading::Missing(Why::Unsupported) => self.title.write_str("SM activity is not offered"),
            _ => write!(
                self.title,
                "SM {}{}, DRAM {}{}",
                Percent(self.sm_now),
                self.partly,
                Percent(self.dram_now),
                self.partly
            ),
        };
    }

    /// Says why there is nothing to plot.
    fn word_missing(&mut self, data: &Data, context: &Context<'_>) {
        self.missing.clear();
        let bins = self.sm.iter().chain(&self.dram);
        if bins.clone().next().is_some() && bins.clone().any(|bin| bin.mean().is_some()) {
            return;
        }
        notice::gpus(data, context.view, &mut self.missing);
        if !self.missing.is_empty() {
            return;
        }
        let util_time = data.mean(Subject::Gpu(context.view.gpu), Metric::UtilGpuTime, context.view.window());
        let _ = match (self.sm_now, util_time) {
            (Reading::Missing(Why::Unsupported), Reading::Value(time)) => write!(
                self.missing,
                "SM activity needs GPM (Hopper or newer) or a DCGM exporter. Time-based utilisation, {time:.0} % here, \
                 counts time with any kernel and cannot tell."
            ),
            (Reading::Missing(Why::Unsupported), Reading::Missing(_)) => {
                write!(self.missing, "SM activity needs GPM (Hopper or newer) or a DCGM exporter.")
            }
            (Reading::Missing(why), _) => write!(self.missing, "SM and DRAM activity: {}", why.word()),
            (Reading::Value(_), _) => Ok(()),
        };
    }

    /// What a probe measured on this GPU, as it is known at the view's end.
    fn read_ceiling(&mut self, data: &Data, view: &View) {
        self.ceiling_source.clear();
        let ceiling = Ceiling::of(data, view.gpu, view.end);
        self.ceiling = ceiling.and_then(|ceiling| {
            let (doubts, figure) = (ceiling.doubts(), ceiling.from.figure);
            let _ = match doubts.days {
                // The doubts say how old it is.
                Some(_) => write!(self.ceiling_source, "hbm {figure}, {doubts}"),
                None if doubts.is_empty() => {
                    write!(self.ceiling_source, "hbm {figure} {} ago", Span(ceiling.age_ms()))
                }
                None => write!(self.ceiling_source, "hbm {figure} {} ago, {doubts}", Span(ceiling.age_ms())),
            };
            let (bytes_per_s, activity, old) = (ceiling.bytes_per_s, ceiling.activity()?, !doubts.is_empty());
            Some(Measured { bytes_per_s, activity, old, now: ceiling.share(self.dram_now) })
        });
    }

    /// The ceiling, where it is what the plot ends at.
    fn shown(&self, context: &Context<'_>) -> Option<Measured> {
        self.ceiling.filter(|_| context.view.of_measured)
    }

    /// "━ SM 81 %  ▆ DRAM 46 % 2.21 TB/s", and what 100 % is; what does not fit is left out.
    fn draw_legend(&self, area: Rect, buf: &mut Buffer, context: &Context<'_>) {
        let theme = context.theme;
        let (line, block) = if theme.unicode() { ("━", "▆") } else { ("-", "#") };
        let (text, dim) = (theme.style(Role::Text), theme.style(Role::Dim));
        let mut x = 0;
        let mut say = |style, args: fmt::Arguments<'_>| {
            x = put_whole(buf, area, (x, 0), style, args);
        };
        say(theme.style(Role::Line), format_args!("{line} "));
        say(dim, format_args!("SM "));
        let partly = self.partly;
        say(text, format_args!("{:>5}{partly}  ", Percent(self.sm_now)));
        say(theme.style(Role::AreaText), format_args!("{block} "));
        say(dim, format_args!("DRAM "));
        let measured = self.shown(context);
        say(text, format_args!("{:>5}{partly} ", Percent(measured.map_or(self.dram_now, |measured| measured.now))));
        let rate = BytesPerSecond(match self.peak {
            Reading::Value(peak) => self.dram_now.map(|percent| percent / 100.0 * peak),
            missing @ Reading::Missing(_) => missing,
        });
        match (measured, self.peak) {
            (Some(measured), _) => {
                let left = Rect { x: area.x.saturating_add(x), width: area.width.saturating_sub(x), ..area };
                self.draw_ceiling(left, buf, context, measured, rate);
                return;
            }
            (None, Reading::Missing(_)) => {
                say(dim, format_args!("of peak"));
                return;
            }
            (None, Reading::Value(_)) => say(text, format_args!("{rate:>9}")),
        }
        let rest = Rect { x: area.x.saturating_add(x), width: area.width.saturating_sub(x), ..area };
        // That the values are slow matters more than what their axis ends at.
        if self.exporter.gives() {
            put_right(buf, rest, (rest.width, 0), dim, format_args!("{}", self.exporter));
            return;
        }
        let source = if self.peak_source.is_empty() { "peak" } else { &self.peak_source };
        let hint = match (self.ceiling, context.view.of_measured) {
            (Some(_), _) => "  P: of measured",
            (None, true) => ": nothing measured here, p: probes",
            (None, false) => "",
        };
        let peak = BytesPerSecond(self.peak);
        for hint in [hint, ""] {
            let note = format_args!("100 % = {peak} ({source}){hint}");
            if columns(note) + 2 <= rest.width {
                put_right(buf, rest, (rest.width, 0), dim, note);
                return;
            }
        }
    }

    /// "2.18 TB/s of measured 4.38 TB/s (hbm triad 2 h ago)", or as much of it as fits. That it is a share of
    /// something else, and that this is old, is said in any case.
    fn draw_ceiling(
        &self,
        area: Rect,
        buf: &mut Buffer,
        context: &Context<'_>,
        measured: Measured,
        rate: BytesPerSecond,
    ) {
        let (text, dim) = (context.theme.style(Role::Text), context.theme.style(Role::Dim));
        let (top, source) = (BytesPerSecond(measured.bytes_per_s.into()), &self.ceiling_source);
        let (whose, old) = if measured.old { ("of old run", ", old") } else { ("of measured", "") };
        let exporter = columns(format_args!("{}", self.exporter));
        let room = area.width.saturating_sub(if exporter > 0 { exporter + 2 } else { 0 });
        if exporter > 0 {
            put_right(buf, area, (area.width, 0), dim, format_args!("{}", self.exporter));
        }
        let area = Rect { width: room, ..area };
        let mut say = |rate: fmt::Arguments<'_>, words: fmt::Arguments<'_>| {
            let fits = columns(rate) + columns(words) <= room;
            if fits {
                let x = put(buf, area, (0, 0), text, rate);
                put(buf, area, (x, 0), dim, words);
            }
            fits
        };
        let none = format_args!("");
        let _ = say(format_args!("{rate:>9} "), format_args!("of measured {top} ({source})"))
            || say(none, format_args!("of measured {top} ({source})"))
            || say(none, format_args!("of measured {top}{old}"))
            || say(none, format_args!("{whose}"));
    }
}
