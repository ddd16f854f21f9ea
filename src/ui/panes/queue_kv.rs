//! Queue and KV cache: who runs and who waits over time, and what the KV pool is used for.
//!
//! Estimates carry a `~`; tail waste, idle pool and over-provision are three figures and stay apart.

mod words;

use std::fmt::Write;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use crate::derive::kv::{Basis, Buffers, Kv, kv};
use crate::model::{Metric, Reading, Subject, Unit, Why};
use crate::store::{Bin, Data, Window};
use crate::ui::pane::{Context, Pane, PaneSpec};
use crate::ui::text::put;
use crate::ui::theme::{Role, Theme};
use crate::ui::units::{FinePercent, Number, Percent, Whole};
use crate::ui::widgets::{Area, Axes, Line, Plot, Scale, TimeEnd, spark, time_axis, value_axis_left};

use super::notice;
use super::row::Row;
use words::{Tilde, Times, Tokens, used};

/// The pane.
pub(super) const SPEC: PaneSpec = PaneSpec {
    id: "queue_kv",
    tab: "Queue and KV",
    help: "Running (area) and waiting (line) requests, and preemptions below them. The bar splits the KV pool: live \
           tokens, tail waste (empty places in last blocks; ~ marks an estimate) and idle. Over-provision compares \
           the longest context the engine admits with what requests really used: it caps admission, it holds no blocks.",
    new: || Box::new(QueueKv::default()),
};

/// Preemptions are rare and whole: their rate is read over this long, ms.
const PREEMPTIONS_MS: u64 = 10_000;

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
    buffers: Buffers,
    now: Option<Now>,
    end: Option<TimeEnd>,
}

/// The newest figures.
#[derive(Clone, Copy, Debug)]
struct Now {
    running: Reading,
    waiting: Reading,
    capacity: Reading,
    deferred: Reading,
    preemptions: Reading,
    prompt: Reading,
    generated: Reading,
    kv: Kv,
}

/// The parts of the pane. Parts that have no room are empty.
struct Parts {
    head: Rect,
    axes: Axes,
    preempted: Axes,
    below: Rect,
}

fn parts(area: Rect, preempted: bool) -> Parts {
    let head = u16::from(area.height >= 4);
    let below = match area.height {
        0..=2 => 0,
        3..=5 => 1,
        6..=8 => 2,
        9..=11 => 3,
        _ => 4,
    };
    let middle = Rect { y: area.y + head, height: area.height - head - below, ..area };
    let axes = Axes::split(middle);
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
        let bins = parts(area, false).axes.bins();
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
        let latest = |metric| data.latest(subject, metric, view.end).reading;
        let rate = |metric, window| data.mean(subject, metric, window);
        let now = Now {
            running: latest(Metric::RequestsRunning),
            waiting: latest(Metric::RequestsWaiting),
            capacity: latest(Metric::WaitingCapacity),
            deferred: latest(Metric::WaitingDeferred),
            preemptions: rate(Metric::Preemptions, Window::last(view.end, PREEMPTIONS_MS)),
            prompt: rate(Metric::PromptTokens, view.recent()),
            generated: rate(Metric::GenerationTokens, view.recent()),
            kv: kv(data, view.engine, window, &mut self.buffers),
        };
        self.now = Some(now);
        self.end = Some(TimeEnd::of(view, data.oldest()));
        notice::engine(data, view, &mut self.notice);
        self.word_title(&now);
    }

    fn title(&self) -> &str {
        &self.title
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
        let parts = parts(area, self.most_preempted > 0.0);
        draw_head(buf, parts.head, *context.theme, now);
        self.draw_plot(buf, &parts, *context.theme, scale);
        time_axis(buf, &parts.axes, context.theme, context.view.span_ms, end);
        draw_kv(buf, parts.below, *context.theme, &now.kv);
    }
}

impl QueueKv {
    fn word_title(&mut self, now: &Now) {
        self.title.clear();
        let title = &mut self.title;
        let (Reading::Value(running), Reading::Value(waiting)) = (now.running, now.waiting) else {
            let why = now.running.why().or(now.waiting.why()).map_or("", notice::words);
            // Writing to a String never fails.
            let _ = write!(title, "queue: {why}");
            return;
        };
        let _ = write!(title, "{running:.0} running, {waiting:.0} waiting");
        if let Some(rate) = now.preemptions.value().filter(|&rate| rate > 0.0) {
            let _ = write!(title, ", {rate:.1} preemptions/s");
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
        put(buf, row.right, (1, 0), dim, format_args!("max {:.0}/s", self.most_preempted));
    }
}

/// "█ 128 running  ─ 40 waiting for capacity   16.3k prompt  4.08k generated tok/s".
fn draw_head(buf: &mut Buffer, area: Rect, theme: Theme, now: &Now) {
    let (text, dim) = (theme.style(Role::Text), theme.style(Role::Dim));
    let (block, line) = if theme.unicode() { ("█ ", "─ ") } else { ("# ", "- ") };
    let area_style = theme.colour(Role::Area).map_or(dim, |c| Style::new().fg(c));
    let mut row = Row::new(buf, area);
    let running = [(text, format_args!("{}", Whole(now.running))), (dim, format_args!(" running"))];
    row.part(&[(area_style, format_args!("{block}"))]).part(&running).gap(2);
    let waiting = [(text, format_args!("{}", Whole(now.waiting))), (dim, format_args!(" waiting"))];
    row.part(&[(theme.style(Role::Line), format_args!("{line}"))]).part(&waiting);
    match (now.capacity.value().unwrap_or(0.0), now.deferred.value().unwrap_or(0.0)) {
        (capacity, deferred) if capacity > 0.0 && deferred > 0.0 => {
            row.part(&[(dim, format_args!(" ({capacity:.0} for capacity, {deferred:.0} deferred)"))]);
        }
        (capacity, _) if capacity > 0.0 => drop(row.part(&[(dim, format_args!(" for capacity"))])),
        (_, deferred) if deferred > 0.0 => drop(row.part(&[(dim, format_args!(" deferred"))])),
        _ => {}
    }
    row.gap(3).part(&[(text, format_args!("{}", Number(now.prompt))), (dim, format_args!(" prompt"))]);
    row.gap(2).part(&[(text, format_args!("{}", Number(now.generated))), (dim, format_args!(" generated tok/s"))]);
}

/// The bar, what its parts are, over-provision, prefix cache: as many as there are rows.
fn draw_kv(buf: &mut Buffer, area: Rect, theme: Theme, kv: &Kv) {
    let row = |y| Rect { y: area.y + y, height: u16::from(y < area.height), ..area };
    let dim = theme.style(Role::Dim);
    let Reading::Value(usage) = kv.usage_pct else {
        let why = kv.usage_pct.why().map_or("", notice::words);
        put(buf, row(0), (0, 0), dim, format_args!("KV cache: {why}"));
        return;
    };
    let pool = Axes::split(Rect { height: 1, ..row(0) });
    put(buf, row(0), (0, 0), dim, format_args!("KV"));
    let bar = Bar::of(usage, kv);
    bar.draw(buf, Rect { height: row(0).height, ..pool.plot }, theme);
    put(
        buf,
        Rect { height: row(0).height, ..pool.right },
        (1, 0),
        theme.style(Role::Text),
        format_args!("{}", Percent(kv.usage_pct)),
    );
    Bar::explain(buf, row(1), theme, kv);
    draw_overprovision(buf, row(2), theme, kv);
    draw_prefix(buf, row(3), theme, kv);
}

/// Shares of the pool, 0 to 1.
struct Bar {
    live: f64,
    tail: f64,
}

impl Bar {
    fn of(usage: f64, kv: &Kv) -> Self {
        let held = usage / 100.0;
        // Nothing held wastes nothing; without a block size the parts cannot be told apart.
        let tail = kv.tail_waste_pct.value().map_or(0.0, |share| held * share / 100.0);
        Self { live: held - tail, tail }
    }

    const fn chars(unicode: bool) -> [char; 3] {
        if unicode { ['█', '▒', '·'] } else { ['#', '%', '.'] }
    }

    fn styles(theme: Theme) -> [Style; 3] {
        let live = theme.colour(Role::Good).map_or(Style::new(), |c| Style::new().fg(c));
        [live, theme.style(Role::Warn), theme.style(Role::Border)]
    }

    /// Live and waste take at least a column each when there is any.
    fn draw(&self, buf: &mut Buffer, area: Rect, theme: Theme) {
        let columns = |share: f64| (share * f64::from(area.width)).round().max(f64::from(u8::from(share > 0.0))) as u16;
        let tail = columns(self.tail);
        let live = columns(self.live + self.tail).saturating_sub(tail).max(columns(self.live).min(1));
        let (chars, styles) = (Self::chars(theme.unicode()), Self::styles(theme));
        for x in 0..area.width {
            let part = if x < live { 0 } else { usize::from(x >= live + tail) + 1 };
            put(buf, area, (x, 0), styles[part], format_args!("{}", chars[part]));
        }
    }

    fn explain(buf: &mut Buffer, area: Rect, theme: Theme, kv: &Kv) {
        let ([live, tail, idle], [live_style, tail_style, idle_style]) =
            (Self::chars(theme.unicode()), Self::styles(theme));
        let (text, dim) = (theme.style(Role::Text), theme.style(Role::Dim));
        let mut row = Row::new(buf, area);
        row.part(&[(live_style, format_args!("{live} "))]);
        let tilde = Tilde(kv.live_tokens_is == Basis::Estimate);
        if kv.live_tokens.value().is_some() {
            let tokens = format_args!("{tilde}{}", Number(kv.live_tokens));
            let pool = format_args!(" of {}  ", Number(kv.pool_tokens));
            row.part(&[(dim, format_args!("live ")), (text, tokens), (dim, pool)]);
        } else {
            row.part(&[(dim, format_args!("held {}  ", Percent(kv.usage_pct)))]);
        }
        if let (Some(_), Some(most)) = (kv.tail_waste_pct.value(), kv.tail_waste_max_pct.value()) {
            let share = format_args!("~{}", FinePercent(kv.tail_waste_pct));
            row.part(&[
                (tail_style, format_args!("{tail} ")),
                (dim, format_args!("tail waste ")),
                (text, share),
                (dim, format_args!(" of held")),
            ]);
            if area.width >= 80 {
                row.part(&[(dim, format_args!(" (at most {})", FinePercent(Reading::new(most))))]);
            }
            row.gap(2);
        }
        row.part(&[
            (idle_style, format_args!("{idle} ")),
            (dim, format_args!("idle ")),
            (text, format_args!("{}", Percent(kv.idle_pct))),
        ]);
    }
}

/// "over-provision ~27×: max 32 768, requests used P99 ~1195 (600–1200), n 881".
fn draw_overprovision(buf: &mut Buffer, area: Rect, theme: Theme, kv: &Kv) {
    let (text, dim) = (theme.style(Role::Text), theme.style(Role::Dim));
    let max = match kv.max_model_len {
        Reading::Value(max) => max,
        Reading::Missing(why) => {
            put(buf, area, (0, 0), dim, format_args!("max context: {}", notice::words(why)));
            return;
        }
    };
    let mut row = Row::new(buf, area);
    if let (Some(times), Some(length)) = (kv.overprovision_x.value(), kv.used_length) {
        row.part(&[(dim, format_args!("over-provision ")), (text, format_args!("~{}", Times(times)))]);
        row.part(&[(dim, format_args!(": max {}, ", Tokens(max)))]);
        used(&mut row, theme, &length);
    } else {
        row.part(&[(dim, format_args!("max context {}", Tokens(max)))]);
        row.part(&[(dim, format_args!("; too few requests finished to compare"))]);
    }
    if let Some(fit) = kv.full_length_requests.value() {
        row.part(&[(dim, format_args!("; pool fits {fit:.1} of max"))]);
    }
}

/// "prefix cache hits 12 % of looked-up prompt tokens".
fn draw_prefix(buf: &mut Buffer, area: Rect, theme: Theme, kv: &Kv) {
    let (text, dim) = (theme.style(Role::Text), theme.style(Role::Dim));
    let x = put(buf, area, (0, 0), dim, format_args!("prefix cache "));
    match kv.prefix_hit_pct {
        Reading::Value(_) => {
            let x = put(buf, area, (x, 0), text, format_args!("{}", FinePercent(kv.prefix_hit_pct)));
            put(buf, area, (x, 0), dim, format_args!(" of looked-up prompt tokens found"));
        }
        Reading::Missing(Why::NotYet) => {
            put(buf, area, (x, 0), dim, format_args!("not looked up in this window"));
        }
        Reading::Missing(why) => {
            put(buf, area, (x, 0), dim, format_args!("{}", notice::words(why)));
        }
    }
}

#[cfg(test)]
mod tests;
