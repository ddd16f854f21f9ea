//! SM clock, temperature and power, each against its limit, on one time axis with what held the clocks down.
//!
//! Three plots above one another: three lines in one plot would need three axes. The top of each axis is
//! the limit. Shares of throttled time come from the driver's counters, so they are exact.

use std::fmt::{self, Display, Formatter, Write};

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::app::View;
use crate::derive::busy::BusyTime;
use crate::derive::coverage::{is_partial, said_ms};
use crate::derive::throttle::{self, Bands, Reason, Throttled};
use crate::model::{Metric, Reading, Subject, Unit, Why};
use crate::store::{Bin, Data};
use crate::ui::pane::{Context, Pane, PaneSpec};
use crate::ui::text::{put, put_right, put_whole};
use crate::ui::theme::Role;
use crate::ui::units::{Celsius, FinePercent, Megahertz, Partly, Span, Watts};
use crate::ui::widgets::{Axes, Band, Line, Plot, Scale, TimeEnd, bands, time_axis, value_axis_left};

use super::notice;

/// The pane.
pub(super) const SPEC: PaneSpec = PaneSpec {
    id: "clocks",
    tab: "Clocks",
    help: "SM clock, temperature and power of the chosen GPU; the top of each axis is its limit. The row below shows \
           when clocks were held down and by what: P power cap, T software thermal, H hardware thermal, B power brake, \
           S sync boost. Shares are exact: the driver counts the time.",
    new: || Box::new(Clocks::new()),
};

/// A value may be this much above its limit before the axis grows.
const OVERSHOOT: f64 = 1.05;

/// One of the plots.
#[derive(Debug)]
struct Strip {
    name: &'static str,
    metric: Metric,
    limit: Metric,
    unit: Unit,
    role: Role,
    bins: Vec<Bin>,
    now: Reading,
    most: Reading,
    scale: Scale,
}

impl Strip {
    fn new(name: &'static str, metric: Metric, limit: Metric, role: Role) -> Self {
        Self {
            name,
            metric,
            limit,
            unit: metric.unit(),
            role,
            bins: Vec::new(),
            now: Reading::Missing(Why::NotYet),
            most: Reading::Missing(Why::NotYet),
            scale: Scale::PERCENT,
        }
    }

    fn prepare(&mut self, data: &Data, context: &Context<'_>, bins: usize) {
        let (view, gpu) = (context.view, Subject::Gpu(context.view.gpu));
        self.bins.resize(bins, Bin::default());
        data.fill(gpu, self.metric, view.window(), &mut self.bins);
        self.now = data.latest(gpu, self.metric, view.end).reading;
        self.most = data.latest(gpu, self.limit, view.end).reading;
        // A limit that is no longer read still is the top of what was.
        let held = || data.series(gpu, self.limit)?.extremes(view.window());
        let limit = self.most.value().or_else(|| held().map(|(_, most)| most));
        let top = self.bins.iter().filter_map(Bin::max).fold(0.0_f32, f32::max);
        let low = self.bins.iter().filter_map(Bin::min).fold(f32::INFINITY, f32::min);
        // Power overshoots its limit for moments: that stays the top, unless it is more than that.
        let hi = limit
            .filter(|limit| f64::from(top) <= limit * OVERSHOOT)
            .unwrap_or_else(|| Scale::zoom(f64::from(top), 1.0).hi());
        // Clocks that stay in the upper half get all the rows.
        let lo = if self.metric == Metric::SmClock && f64::from(low) > hi / 2.0 { hi / 2.0 } else { 0.0 };
        self.scale = Scale::fixed(lo, hi);
    }

    fn draw(&self, axes: &Axes, buf: &mut Buffer, context: &Context<'_>) {
        let theme = context.theme;
        let style = theme.style(self.role);
        value_axis_left(buf, axes, theme, self.scale, self.unit, style);
        let line = Line { bins: &self.bins, scale: self.scale, style, envelope: true };
        Plot { theme, areas: &[], lines: &[line], grid: axes.plot.height >= 5 }.draw(axes.plot, buf);
        let room = axes.right.width;
        put_right(buf, axes.right, (room, 0), theme.style(Role::Text), format_args!("{self}"));
        put_right(buf, axes.right, (room, 1), theme.style(Role::Dim), format_args!("{}", self.name));
    }
}

/// The newest value with its unit.
impl Display for Strip {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.unit {
            Unit::Megahertz => Megahertz(self.now).fmt(f),
            Unit::Celsius => Celsius(self.now).fmt(f),
            _ => Watts(self.now).fmt(f),
        }
    }
}

#[derive(Debug)]
struct Clocks {
    title: String,
    /// Why there is nothing to plot; empty when there is something.
    missing: String,
    strips: [Strip; 3],
    bands: Bands,
    busy: BusyTime,
    throttled: Option<Throttled>,
    /// What holds the clocks down now, by the bits: for where no time is counted.
    slowing: Option<&'static Reason>,
    /// What the throttled shares are shares of: the axis, or what was measured of it.
    over: Span,
    /// Whether that is less than four fifths of the axis.
    partly: Partly,
    end: TimeEnd,
}

impl Clocks {
    fn new() -> Self {
        Self {
            title: String::new(),
            missing: String::new(),
            strips: [
                Strip::new("SM clock", Metric::SmClock, Metric::SmClockMax, Role::Line),
                Strip::new("temp", Metric::Temp, Metric::TempSlowdown, Role::Third),
                Strip::new("power", Metric::Power, Metric::PowerLimit, Role::Fourth),
            ],
            bands: Bands::default(),
            busy: BusyTime::default(),
            throttled: None,
            slowing: None,
            over: Span(0),
            partly: Partly(false),
            end: TimeEnd::Now,
        }
    }

    /// "power cap 98 % of 60 s, busy SM clock 75 % of 1980 MHz", or that nothing holds it down. The clock is that of
    /// the busy time: an idle one says nothing about throttling.
    fn word_title(&mut self, data: &Data, view: &View) {
        notice::gpus(data, view, &mut self.title);
        if !self.title.is_empty() {
            return;
        }
        let [clock, temp, power] = &self.strips;
        let time = &mut self.busy;
        let mut share = || {
            time.read(data, view.gpu, view.window());
            Some(time.mean(data, Metric::SmClock).value()? / clock.most.value().filter(|most| *most > 0.0)? * 100.0)
        };
        let dominant = self.throttled.and_then(|t| t.dominant());
        let counted = self.throttled.is_some_and(|t| t.at_least().value().is_some());
        let (span, partly) = (self.over, self.partly);
        let _ = match (dominant, dominant.and_then(|_| share())) {
            (Some((reason, held)), Some(of_max)) => write!(
                self.title,
                "{} {}{partly} of {span}, busy SM clock {of_max:.0} % of {}",
                reason.word,
                FinePercent((held * 100.0).into()),
                Megahertz(clock.most)
            ),
            (Some((reason, held)), None) => {
                write!(self.title, "{} {}{partly} of {span}", reason.word, FinePercent((held * 100.0).into()))
            }
            (None, _) => {
                let _ = write!(self.title, "{clock}, {temp}, {power}");
                self.title.write_str(if counted { ", not throttled" } else { "" })
            }
        };
    }
}

impl Pane for Clocks {
    fn prepare(&mut self, data: &Data, context: &Context<'_>, area: Rect) {
        let view = context.view;
        let axes = Axes::split(area);
        for strip in &mut self.strips {
            strip.prepare(data, context, axes.bins());
        }
        self.bands.fill(data, view.gpu, view.window(), usize::from(axes.plot.width));
        let throttled = Throttled::over(data, view.gpu, view.window());
        let measured = throttled.measured_ms;
        self.over = Span(said_ms(measured, view.span_ms));
        self.partly = Partly(is_partial(measured, view.span_ms));
        self.throttled = Some(throttled);
        let bits = data.latest(Subject::Gpu(view.gpu), Metric::ThrottleReasons, view.end).reading;
        self.slowing = throttle::slowing(bits);
        self.end = TimeEnd::of(view, data.oldest());
        self.word_title(data, view);
        self.missing.clear();
        if self.strips.iter().all(|s| s.bins.iter().all(|b| b.mean().is_none()) && s.now.value().is_none()) {
            notice::gpus(data, view, &mut self.missing);
            if self.missing.is_empty() {
                let why = self.strips[0].now.why().unwrap_or(Why::NotYet);
                let _ = write!(self.missing, "clocks, temperature and power: {}", why.word());
            }
        }
    }

    fn title(&self) -> &str {
        &self.title
    }

    fn timeline(&self, area: Rect) -> Rect {
        let axes = Axes::with_strip(area);
        let words = u16::from(axes.plot.height >= 7);
        let height = area.height - words - axes.strip.height;
        if self.missing.is_empty() { Rect { y: area.y.saturating_add(words), height, ..area } } else { Rect::ZERO }
    }

    fn strip(&self, area: Rect) -> Rect {
        Axes::with_strip(area).strip
    }

    fn cursor_range(&self, area: Rect) -> Option<(u16, u16)> {
        let strip = self.strip(area);
        (!strip.is_empty()).then_some((strip.width, 1))
    }

    fn draw(&self, area: Rect, buf: &mut Buffer, context: &Context<'_>) {
        let theme = context.theme;
        let axes = Axes::with_strip(area);
        let mut rows = axes.plot.height;
        if !self.missing.is_empty() {
            time_axis(buf, &axes, theme, context.view.span_ms, self.end);
            notice::draw(buf, Rect { height: rows, ..area }, *theme, &self.missing);
            return;
        }
        // Rows go to the three plots first, then to the band, then to the words.
        let band = u16::from(rows >= 4);
        let words = u16::from(rows >= 7);
        rows -= band + words;
        let mut y = area.y;
        if words > 0 {
            self.draw_words(area, buf, context);
            y += 1;
        }
        let mut left = rows;
        for (i, strip) in self.strips.iter().enumerate() {
            let height = left.div_ceil(3 - i as u16);
            strip.draw(&axes.rows(y, height), buf, context);
            y += height;
            left -= height;
        }
        if band > 0 {
            self.draw_band(&axes.rows(y, 1), buf, context);
        }
        time_axis(buf, &axes, theme, context.view.span_ms, self.end);
    }
}

impl Clocks {
    /// "throttled in 60 s: power cap 98.3 %, SW thermal 1.2 %": what does not fit is left out.
    fn draw_words(&self, area: Rect, buf: &mut Buffer, context: &Context<'_>) {
        let theme = context.theme;
        let (dim, warn) = (theme.style(Role::Dim), theme.style(Role::Warn));
        let mut x = put(buf, area, (0, 0), dim, format_args!("throttled in {}: ", self.over));
        let Some(throttled) = self.throttled else { return };
        if let Reading::Missing(why) = throttled.at_least() {
            x = put(buf, area, (x, 0), dim, format_args!("{}", not_counted(why)));
            if let Some(reason) = self.slowing {
                put_whole(buf, area, (x, 0), warn, format_args!("; {} now", reason.word));
            }
            return;
        }
        let partly = self.partly;
        let held = |rate: Reading| rate.value().is_some_and(|ms| ms > 0.0);
        let mut sorted = [None; throttle::REASONS.len()];
        for (slot, item) in sorted.iter_mut().zip(throttled.reasons().filter(|(_, rate)| held(*rate))) {
            *slot = Some(item);
        }
        let share = |item: Option<(_, Reading)>| item.and_then(|(_, rate)| rate.value()).unwrap_or(-1.0);
        sorted.sort_unstable_by(|a, b| share(*b).total_cmp(&share(*a)));
        if sorted[0].is_none() {
            put(buf, area, (x, 0), theme.style(Role::Text), format_args!("never"));
        }
        for (reason, rate) in sorted.into_iter().flatten() {
            let percent = FinePercent(rate.map(|ms| ms / 10.0));
            x = put_whole(buf, area, (x, 0), warn, format_args!("{} ", letter(reason)));
            x = put_whole(buf, area, (x, 0), dim, format_args!("{} ", reason.word));
            x = put_whole(buf, area, (x, 0), theme.style(Role::Text), format_args!("{percent}{partly}   "));
        }
    }

    fn draw_band(&self, axes: &Axes, buf: &mut Buffer, context: &Context<'_>) {
        let theme = context.theme;
        put_right(buf, axes.left, (axes.left.width.saturating_sub(1), 0), theme.style(Role::Dim), format_args!("held"));
        let columns = self.bands.columns();
        let skip = usize::from(axes.plot.width).saturating_sub(columns.len());
        bands(buf, axes.plot, theme, theme.style(Role::Warn), |x| {
            match usize::from(x).checked_sub(skip).and_then(|i| columns.get(i)) {
                None | Some(throttle::Band::Unknown) => Band::Unknown,
                Some(throttle::Band::Clear) => Band::Clear,
                Some(throttle::Band::Held(reason, share)) => Band::Held(letter(reason), *share),
            }
        });
        if let Some((_, held)) = self.throttled.and_then(|t| t.dominant()) {
            let percent = FinePercent((held * 100.0).into());
            let text = format_args!("{percent}{}", self.partly);
            put_right(buf, axes.right, (axes.right.width, 0), theme.style(Role::Warn), text);
        }
    }
}

/// Why there is no share of throttled time.
const fn not_counted(why: Why) -> &'static str {
    match why {
        Why::Unsupported => "not counted by this driver",
        Why::NotRecorded => "not recorded",
        other => other.word(),
    }
}

/// A reason's letter in the band.
const fn letter(reason: &Reason) -> char {
    match reason.counter {
        Some(Metric::ThrottledPowerCap) => 'P',
        Some(Metric::ThrottledSwThermal) => 'T',
        Some(Metric::ThrottledHwThermal) => 'H',
        Some(Metric::ThrottledPowerBrake) => 'B',
        Some(Metric::ThrottledSyncBoost) => 'S',
        _ => '?',
    }
}
