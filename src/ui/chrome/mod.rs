//! What surrounds the panes: header, the host's figures, notices, tabs, frames, footer, and the bare
//! numbers of a screen too small for panes. Words are made in `prepare` in reused buffers; drawing
//! only writes. It knows no pane's content.

mod fit;
mod frame;
mod line;
pub(in crate::ui) mod words;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::app::{ACTIONS, Action, ActionSpec, App, Cost, Origin};
use crate::derive::coverage::{is_partial, partial_scrapes};
use crate::derive::lives;
use crate::derive::quantile::{highest_allowed, quantile};
use crate::model::text::Plural;
use crate::model::{FactKey, Metric, Reading, SourceId, SourceState, Subject, Time};
use crate::probe::board::Board;
use crate::store::{Data, HistogramWindow, Window};

use fit::{BETWEEN, fit};
pub use frame::{draw_frame, draw_tabs};
use line::{GAP, Line};
use words::{Ago, Count, Down, Latency, Port, Position};

use super::text::{put, put_wrapped, width, wrapped_rows};
use super::theme::{Role, Theme};
use super::units::{Bytes, FinePercent, Megahertz, Number, Partly, Percent, Seconds, Span, Watts};

/// Age from which live data are no longer called current, ms: one missed scrape.
const OLD_MS: u64 = 3_500;

/// So long after it a pause is told, ms.
const PAUSE_SAID_MS: u64 = 60_000;

/// Section of the keys that are named first in the footer.
const PROGRAM: &str = "Program";

/// How a figure of the host is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Figure {
    /// A percentage.
    Share,
    /// Bytes of all memory.
    Memory,
    /// Bytes.
    Bytes,
    /// Times a second.
    Rate,
    /// Share of the time in which some task waited (PSI).
    Stalled,
}

/// The host's figures: label, rank (see [`Segment`]), kind, and the value above which they stand out.
const HOST: [(Metric, &str, u8, Figure, f64); 8] = [
    (Metric::CpuBusy, "CPU", 0, Figure::Share, f64::INFINITY),
    (Metric::HostMemUsed, "memory", 1, Figure::Memory, f64::INFINITY),
    (Metric::MajorFaults, "major faults", 2, Figure::Rate, 0.5),
    (Metric::PsiMem, "stalled on memory", 3, Figure::Stalled, 5.0),
    (Metric::PsiIo, "on IO", 3, Figure::Stalled, 20.0),
    (Metric::PsiCpu, "on CPU", 3, Figure::Stalled, 50.0),
    (Metric::TcpRetrans, "TCP retransmits", 4, Figure::Rate, 0.5),
    (Metric::SwapUsed, "swap", 5, Figure::Bytes, f64::INFINITY),
];

/// Everything around the panes.
#[derive(Debug, Default)]
pub struct Chrome {
    header: Line,
    state: Line,
    host: Line,
    engines: Line,
    cost: Line,
    numbers: Line,
    notice: String,
    /// The probe that runs or asks, where there is no pane to say so.
    probe: Vec<String>,
    /// Whether the notice is about something that ought to work.
    urgent: bool,
    histogram: HistogramWindow,
}

impl Chrome {
    /// Words everything anew. `words` are notices from elsewhere, e.g. what is missing in a recording.
    pub fn prepare(&mut self, data: &Data, app: &App, cost: Cost, words: &[String]) {
        self.header(data, app);
        self.state(data, app);
        self.host(data, app.view.end);
        self.engines(data, app);
        self.cost(data, app, cost);
        self.numbers(data, app);
        self.notice(data, app, words);
    }

    /// Notes which probe runs or asks.
    pub fn probes(&mut self, board: Option<&Board>) {
        self.probe = board.map(Board::in_short).unwrap_or_default();
    }

    /// Rows that the notices need at this width.
    pub fn notice_rows(&self, columns: u16) -> u16 {
        wrapped_rows(&self.notice, columns)
    }

    fn header(&mut self, data: &Data, app: &App) {
        let (line, end) = (&mut self.header, app.view.end);
        line.clear();
        line.add("", Role::Accent, 7, format_args!("warptop"));
        if let Some(host) = data.fact(Subject::Host, FactKey::Hostname, end) {
            line.add("", Role::Text, 4, format_args!("{host}"));
        }
        if let Some(first) = data.gpus().next() {
            let name = data.fact(Subject::Gpu(first), FactKey::Name, end).unwrap_or_default();
            let name = name.strip_prefix("NVIDIA ").unwrap_or(name);
            line.add("", Role::Text, 3, format_args!("{name} ×{}", data.gpus().count()));
        }
        if let Some(driver) = data.fact(Subject::Host, FactKey::Driver, end) {
            line.add("driver", Role::Text, 8, format_args!("{driver}"));
        }
        let engine = Subject::Engine(app.view.engine);
        let fact = |key| data.fact(engine, key, end);
        let Some(url) = fact(FactKey::Url) else { return };
        let kind = fact(FactKey::Name).or_else(|| fact(FactKey::Kind)).unwrap_or("engine");
        let count = data.engines().count();
        if count > 1 {
            let place = data.engines().take_while(|&i| i <= app.view.engine).count();
            line.add("engine", Role::Text, 1, format_args!("{place}/{count} {kind}"));
        } else {
            line.add("", Role::Text, 1, format_args!("{kind}"));
        }
        if let Some(version) = fact(FactKey::Version) {
            line.add("", Role::Text, 6, format_args!("{version}"));
        }
        if let Some(model) = fact(FactKey::Model) {
            let short = model.rsplit('/').next().filter(|s| !s.is_empty()).unwrap_or(model);
            line.add("", Role::Text, 2, format_args!("{short}"));
        }
        // A live engine's name already says where it is.
        if !kind.ends_with(Port(url).text()) {
            line.add("", Role::Dim, 5, format_args!("{}", Port(url)));
        }
        let source = data.source(SourceId::Engine(app.view.engine));
        if let Some((source, since)) = source.and_then(|source| Some((source, source.down_since(end)?))) {
            line.add("", Role::Warn, 0, format_args!("{}", Down(source.state_at(end), end.since(since))));
            return;
        }
        let latest = |metric| Count(data.latest(engine, metric, end).reading);
        let (running, waiting) = (latest(Metric::RequestsRunning), latest(Metric::RequestsWaiting));
        let queued = waiting.0.value().is_some_and(|n| n > 0.0);
        line.add("", Role::Text, 0, format_args!("{running} run"));
        line.add("", if queued { Role::Warn } else { Role::Text }, 0, format_args!("{waiting} wait"));
    }

    fn state(&mut self, data: &Data, app: &App) {
        let (time, line) = (&app.playhead, &mut self.state);
        line.clear();
        let behind = time.edge().since(time.end());
        match time.origin() {
            Origin::Live | Origin::Stream => {
                let name = if time.origin() == Origin::Live { "live" } else { "stream" };
                if !time.moving() {
                    line.add("", Role::Warn, 0, format_args!("paused {} before now", Ago(behind)));
                } else if let Some(age) = age(data, app) {
                    let role = if age > OLD_MS { Role::Warn } else { Role::Good };
                    line.add(name, role, 0, format_args!("{} ago", Ago(age)));
                } else {
                    line.add("", Role::Dim, 0, format_args!("{name}, nothing read yet"));
                }
            }
            Origin::Recording | Origin::Demo => {
                let name = if time.origin() == Origin::Demo { "demo" } else { "replay" };
                let (at, length) = (Position(time.end().since(time.first())), time.edge().since(time.first()));
                // "+" while it is still being read.
                let (length, more) = (Position(length), if app.seen.complete { "" } else { "+" });
                if app.seen.extent.is_none() {
                    line.add("", Role::Dim, 0, format_args!("{name}, nothing read yet"));
                } else if !time.moving() {
                    line.add(name, Role::Warn, 0, format_args!("paused {at} of {length}{more}"));
                } else if behind == 0 && app.seen.complete {
                    line.add(name, Role::Warn, 0, format_args!("ended {at} of {length}"));
                } else if (time.speed() - 1.0).abs() < f64::EPSILON {
                    line.add(name, Role::Good, 0, format_args!("{at} of {length}{more}"));
                } else {
                    line.add(name, Role::Good, 0, format_args!("{at} of {length}{more} ×{}", time.speed()));
                }
            }
        }
    }

    fn host(&mut self, data: &Data, at: Time) {
        let line = &mut self.host;
        line.clear();
        line.add("", Role::Dim, 0, format_args!("host"));
        let latest = |metric| data.latest(Subject::Host, metric, at).reading;
        for &(metric, label, rank, figure, limit) in &HOST {
            // A recording may hold only some of them.
            if data.series(Subject::Host, metric).is_none() {
                continue;
            }
            let reading = latest(metric);
            // Stalled µs in each s; a percent is 10 000 of them.
            let reading = if figure == Figure::Stalled { reading.map(|us| us / 10_000.0) } else { reading };
            let role = if reading.value().is_some_and(|v| v > limit) { Role::Warn } else { Role::Text };
            match figure {
                Figure::Share | Figure::Stalled => {
                    line.add(label, role, rank, format_args!("{}", FinePercent(reading)));
                }
                Figure::Bytes => line.add(label, role, rank, format_args!("{}", Bytes(reading))),
                Figure::Memory => {
                    let total = Bytes(latest(Metric::HostMemTotal));
                    line.add(label, role, rank, format_args!("{} of {total}", Bytes(reading)));
                }
                Figure::Rate => line.add(label, role, rank, format_args!("{}/s", Number(reading))),
            }
        }
        if line.len() == 1 {
            line.add("", Role::Dim, 0, format_args!("no figures yet"));
        }
    }

    /// Every engine with its queue and speed, where there are several; the chosen one is marked.
    fn engines(&mut self, data: &Data, app: &App) {
        let (line, view) = (&mut self.engines, &app.view);
        line.clear();
        for (rank, engine) in (1..=4).chain(std::iter::repeat(5)).zip(data.engines()) {
            let subject = Subject::Engine(engine);
            let fact = |key| data.fact(subject, key, view.end);
            let chosen = engine == view.engine;
            let (mark, rank) = if chosen { (">", 0) } else { ("", rank) };
            let url = Port(fact(FactKey::Url).unwrap_or_default()).text();
            let name = fact(FactKey::Name).unwrap_or(url);
            let down = data.source(SourceId::Engine(engine)).is_some_and(|s| s.state_at(view.end).is_down());
            if down {
                line.add(mark, Role::Warn, rank, format_args!("{name} down"));
                continue;
            }
            let latest = |metric| Count(data.latest(subject, metric, view.end).reading);
            let (running, waiting) = (latest(Metric::RequestsRunning), latest(Metric::RequestsWaiting));
            let speed = Number(data.mean(subject, Metric::GenerationTokens, view.rates()));
            let partly = Partly(speed.0.value().is_some() && partial_scrapes(data, engine, view.rates()));
            let queued = waiting.0.value().is_some_and(|n| n > 0.0);
            let role = if queued {
                Role::Warn
            } else if chosen {
                Role::Text
            } else {
                Role::Dim
            };
            line.add(mark, role, rank, format_args!("{name} {running} run {waiting} wait"));
            // Speeds give way before the names of others do.
            line.add("", role, rank + 4, format_args!("{speed}{partly} tok/s"));
        }
    }

    fn cost(&mut self, data: &Data, app: &App, cost: Cost) {
        let line = &mut self.cost;
        line.clear();
        if app.playhead.origin() == Origin::Live {
            let at = app.playhead.edge();
            let latest = |metric| data.latest(Subject::App, metric, at).reading;
            line.add("warptop", Role::Dim, 1, format_args!("{}", FinePercent(latest(Metric::AppCpu))));
            line.add("", Role::Dim, 2, format_args!("{}", Bytes(latest(Metric::AppRss))));
            let busy: f64 = data.sources().map(|(_, source)| source.busy(Window::last(at, 10_000))).sum();
            line.add("reading", Role::Dim, 4, format_args!("{}", FinePercent(Reading::new(busy * 100.0))));
        }
        if cost.frame_us > 0 {
            line.add("frame", Role::Dim, 3, format_args!("{}", Seconds(Reading::new(cost.frame_us as f64 / 1e6))));
        }
        // Nothing lost is nothing to say.
        let lost = Plural(cost.lost, "batch not recorded", "batches not recorded");
        let late = Plural(data.out_of_order(), "reading came too late", "readings came too late");
        for counted in [lost, late].into_iter().filter(|counted| counted.0 > 0) {
            line.add("", Role::Warn, 0, format_args!("{counted}"));
        }
    }

    fn numbers(&mut self, data: &Data, app: &App) {
        let (view, line) = (&app.view, &mut self.numbers);
        line.clear();
        let gpu = |metric| data.latest(Subject::Gpu(view.gpu), metric, view.end).reading;
        let engine = Subject::Engine(view.engine);
        let served = |metric| data.latest(engine, metric, view.end).reading;
        for part in &self.probe {
            line.add("", Role::Warn, 0, format_args!("{part}"));
        }
        if data.gpus().next().is_some() {
            line.add("SM", Role::Text, 0, format_args!("{}", Percent(gpu(Metric::SmActive))));
            line.add("DRAM", Role::Text, 0, format_args!("{}", Percent(gpu(Metric::DramActive))));
        }
        if data.fact(engine, FactKey::Url, view.end).is_some() {
            line.add("KV", Role::Text, 0, format_args!("{}", Percent(served(Metric::KvUsage))));
            line.add("run", Role::Text, 0, format_args!("{}", Number(served(Metric::RequestsRunning))));
            line.add("wait", Role::Text, 0, format_args!("{}", Number(served(Metric::RequestsWaiting))));
            lives::window(data, engine, view.latency, view.window(), &mut self.histogram);
            if let Some(q) = highest_allowed(self.histogram.n).and_then(|q| quantile(&self.histogram, q).zip(Some(q))) {
                let (value, name) = (Seconds(Reading::new(q.0.value)), Latency(view.latency));
                let partly = Partly(is_partial(self.histogram.measured_ms, view.span_ms));
                let span = Span(view.span_ms);
                line.add("", Role::Text, 0, format_args!("{name} P{:.0} {value}{partly} in {span}", q.1 * 100.0));
            }
        }
        if data.gpus().next().is_some() {
            line.add("", Role::Text, 0, format_args!("{}", Megahertz(gpu(Metric::SmClock))));
            line.add("", Role::Text, 0, format_args!("{}", Watts(gpu(Metric::Power))));
        } else {
            let cpu = data.latest(Subject::Host, Metric::CpuBusy, view.end).reading;
            line.add("CPU", Role::Text, 0, format_args!("{}", Percent(cpu)));
        }
    }

    /// Puts what is missing, and why, into one text. That a source is not on this machine is said only
    /// where nothing else is either: a machine without a GPU may well watch a remote engine.
    fn notice(&mut self, data: &Data, app: &App, words: &[String]) {
        self.notice.clear();
        self.urgent = false;
        for text in words {
            say(&mut self.notice, "", text);
            self.urgent = true;
        }
        let end = app.view.end;
        if let Some(pause) = data.pause_before(end).filter(|pause| end.since(pause.end) < PAUSE_SAID_MS) {
            say(&mut self.notice, "", &words::paused(pause.ms()));
        }
        for (id, source) in data.sources() {
            let state = source.state_at(app.view.end);
            let absent = matches!(state, SourceState::Absent(_));
            let urgent = !absent && (state.is_down() || matches!(state, SourceState::Degraded(_)));
            if urgent || absent && app.nothing_here() {
                say(&mut self.notice, place(data, id, app.view.end), state.why());
            }
            self.urgent |= urgent;
        }
        if app.nothing_here() {
            say(&mut self.notice, "", "d plays the demo: a real H200 serving a model");
        }
    }

    /// Draws the header.
    pub fn draw_header(&self, buf: &mut Buffer, area: Rect, theme: Theme) {
        if area.is_empty() {
            return;
        }
        // Beside the counts of the engine the state keeps its figures, and its name where that has room.
        let named = self.header.least().saturating_add(GAP).saturating_add(self.state.width()) <= area.width;
        let state = if named { self.state.width() } else { self.state.bare_width() }.min(area.width);
        let left = Rect { width: area.width - state, ..area };
        // One column before the state stays free.
        self.header.draw(buf, Rect { width: left.width.saturating_sub(GAP), ..left }, theme);
        let right = Rect { x: left.right(), width: state, ..area };
        if named { self.state.draw(buf, right, theme) } else { self.state.draw_bare(buf, right, theme) }
    }

    /// Draws the machine's own figures.
    pub fn draw_host(&self, buf: &mut Buffer, area: Rect, theme: Theme) {
        self.host.draw(buf, area, theme);
    }

    /// Draws the list of engines.
    pub fn draw_engines(&self, buf: &mut Buffer, area: Rect, theme: Theme) {
        self.engines.draw(buf, area, theme);
    }

    /// Draws what is missing, and why.
    pub fn draw_notices(&self, buf: &mut Buffer, area: Rect, theme: Theme) {
        let text = fit(&self.notice, area.width, area.height);
        put_wrapped(buf, area, theme.style(if self.urgent { Role::Warn } else { Role::Text }), &text);
    }

    /// Draws keys to the left and own cost to the right.
    pub fn draw_footer(&self, buf: &mut Buffer, area: Rect, theme: Theme, app: &App) {
        if area.is_empty() {
            return;
        }
        let cost = self.cost.width().min(area.width / 2);
        let right = Rect { x: area.right() - cost, width: cost, ..area };
        self.cost.draw(buf, right, theme);
        let left = Rect { width: area.width - cost, ..area };
        let mut x = 0;
        // The way out first: the last ones give way on a narrow screen.
        let in_order = [true, false]
            .into_iter()
            .flat_map(|first| ACTIONS.iter().filter(move |spec| (spec.section == PROGRAM) == first));
        for spec in in_order {
            let hint = hint(spec, app);
            let needed = width(spec.label) + 1 + width(hint) + GAP;
            if hint.is_empty() || x + needed > left.width {
                continue;
            }
            x = put(buf, left, (x, 0), theme.style(Role::Accent), format_args!("{} ", spec.label));
            x = put(buf, left, (x, 0), theme.style(Role::Dim), format_args!("{hint}")) + GAP;
        }
    }

    /// Draws the bare numbers of a screen that is too small for panes.
    pub fn draw_numbers(&self, buf: &mut Buffer, area: Rect, theme: Theme) {
        self.numbers.flow(buf, area, theme);
    }
}

/// A key's word in the footer: some only help where there is something to choose from.
fn hint(spec: &ActionSpec, app: &App) -> &'static str {
    match spec.action {
        Action::Demo if app.nothing_here() => "demo",
        Action::NextGpu if app.seen.gpus.count_ones() > 1 => "GPU",
        // There they do something else, or nothing.
        Action::NextMetric | Action::Probes if app.at_probes() => "",
        Action::Down if app.at_probes() => "choose",
        Action::NextEngine if app.seen.engines.count_ones() > 1 => "engine",
        _ => spec.hint,
    }
}

/// Adds a sentence to a notice, set apart from the one before it: about what, and what of it.
fn say(notice: &mut String, about: &str, text: &str) {
    if text.is_empty() {
        return;
    }
    if !notice.is_empty() {
        notice.push_str(BETWEEN);
    }
    if !about.is_empty() {
        notice.push_str(about);
        notice.push_str(": ");
    }
    notice.push_str(text);
}

/// Where an engine listens; of other sources the words alone say what they are about.
fn place(data: &Data, id: SourceId, at: Time) -> &str {
    let SourceId::Engine(i) = id else { return "" };
    Port(data.fact(Subject::Engine(i), FactKey::Url, at).unwrap_or_default()).text()
}

/// Age of the oldest of the sources that are shown: the GPUs, the chosen engine, the host.
fn age(data: &Data, app: &App) -> Option<u64> {
    let end = app.view.end;
    let shown = [SourceId::Nvml, SourceId::Dcgm, SourceId::Engine(app.view.engine), SourceId::Host];
    let ages = shown.into_iter().filter_map(|id| {
        let source = data.source(id)?;
        // A source that is down has its own words.
        let up = !source.state_at(end).is_down();
        up.then(|| source.last_read(end)).flatten().map(|at| end.since(at))
    });
    ages.max()
}
