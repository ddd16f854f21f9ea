//! Why there is nothing to show: words instead of an empty plot, wrapped and centred, and the words for
//! what an engine does not give. The snapshot says the same words.

use std::fmt::{self, Display, Formatter, Write};

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::app::View;
use crate::derive::energy::NoEnergy;
use crate::engine;
use crate::model::{FactKey, Metric, Reading, SourceId, SourceState, Subject, Time, Why};
use crate::store::Data;
use crate::ui::text::{put_wrapped, width, wrapped_rows};
use crate::ui::theme::{Role, Theme};

/// Says why the chosen engine gives nothing at the view's end, if so: replaces `out`, empty when it is well.
pub(super) fn engine(data: &Data, view: &View, out: &mut String) {
    out.clear();
    if !data.engines().any(|i| i == view.engine) {
        let search = data.source(SourceId::Discovery).map(|s| s.state_at(view.end)).filter(|s| s.is_down());
        let why = search.map_or("no serving engine found on this host", SourceState::why);
        // Writing to a String never fails.
        let _ = write!(out, "{why}; name one with --engine http://HOST:PORT");
        return;
    }
    match data.source(SourceId::Engine(view.engine)).map(|s| s.state_at(view.end)) {
        None | Some(SourceState::Starting) => out.push_str("waiting for the first scrape"),
        Some(state) if state.is_down() => out.push_str(state.why()),
        Some(_) => {}
    }
}

/// Says why no GPU has values at the view's end, if so: replaces `out`, empty when their source is well
/// or only degraded.
pub(super) fn gpus(data: &Data, view: &View, out: &mut String) {
    out.clear();
    let none = data.gpus().next().is_none();
    match data.source(SourceId::Nvml).map(|source| source.state_at(view.end)) {
        None => out.push_str("no GPU has been read"),
        // Without a driver an exporter may still tell.
        Some(_) if !none && data.source(SourceId::Dcgm).is_some_and(|s| !s.state_at(view.end).is_down()) => {}
        Some(state) if none || state.is_down() => out.push_str(state.why()),
        Some(_) => {}
    }
    if none && out.is_empty() {
        out.push_str("no GPU on this machine");
    }
}

/// Where the activity of a GPU comes from, when that is not the driver: "DCGM, new every 30 s".
#[derive(Clone, Debug, Default)]
pub(super) struct Exporter {
    is: bool,
    period: String,
}

impl Exporter {
    /// Reads it for one GPU, in place of what it was.
    pub(super) fn read(&mut self, data: &Data, gpu: u8, at: Time) {
        let gpu = Subject::Gpu(gpu);
        self.is = data.fact(gpu, FactKey::ActivitySource, at) == Some("dcgm");
        self.period.clear();
        self.period.push_str(data.fact(gpu, FactKey::ActivityPeriod, at).unwrap_or_default());
    }

    /// Whether an exporter gives it.
    pub(super) const fn gives(&self) -> bool {
        self.is
    }
}

impl Display for Exporter {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match (self.is, self.period.as_str()) {
            (false, _) => Ok(()),
            (true, "") => f.write_str("DCGM"),
            (true, period) => write!(f, "DCGM, new every {period}"),
        }
    }
}

/// What a missing value of an engine that answers means, in words; [`engine`] says what is wrong with one that does not.
pub(super) const fn words(why: Why) -> &'static str {
    match why {
        Why::Unsupported => "not exposed by this engine",
        Why::NotPermitted => "not permitted",
        Why::Stale => "no fresh scrape",
        Why::Failed => "no number in the answer",
        Why::NotYet => "nothing read yet",
        Why::NotRecorded => "not in the recording",
    }
}

/// Readings of an engine that does not answer: there was no answer that could have lacked a number.
pub(super) fn unanswered(readings: [&mut Reading; 4]) {
    for reading in readings.into_iter().filter(|reading| **reading == Reading::Missing(Why::Failed)) {
        *reading = Reading::Missing(Why::Stale);
    }
}

/// The adapter id of an engine at `at`; empty when it is not known.
pub fn kind(data: &Data, engine: u8, at: Time) -> &str {
    data.fact(Subject::Engine(engine), FactKey::Kind, at).unwrap_or_default()
}

/// Why a metric of an engine has no value: "not exposed by vLLM; start it with --enable-lora".
#[derive(Clone, Copy, Debug)]
pub struct Lack<'a> {
    /// Adapter id of the engine; empty when it is not known.
    pub kind: &'a str,
    /// What is missing.
    pub metric: Metric,
    /// The reason.
    pub why: Why,
}

impl Display for Lack<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let name = engine::name(self.kind).filter(|_| self.why == Why::Unsupported);
        let Some(name) = name else { return f.write_str(words(self.why)) };
        write!(f, "not exposed by {name}")?;
        match engine::hint(self.kind, self.metric) {
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        }
    }
}

/// Why nothing is said about an engine's energy.
#[derive(Clone, Copy, Debug)]
pub struct NoFigure(pub NoEnergy);

impl Display for NoFigure {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            NoEnergy::OtherHost => f.write_str("its GPUs are on another host"),
            NoEnergy::NoPids => f.write_str("which processes are its own is not known"),
            NoEnergy::NoTable(Why::NotRecorded) => f.write_str("the recording has no process table"),
            NoEnergy::NoTable(_) => f.write_str("no current process table"),
            NoEnergy::NoList(Why::NotRecorded) => f.write_str("the recording does not have what runs on the GPUs"),
            NoEnergy::NoList(_) => f.write_str("what runs on the GPUs was not read yet"),
            NoEnergy::NotOnGpu => f.write_str("none of its processes holds memory on a GPU here"),
            NoEnergy::NoCounter(gpu, Why::Unsupported) => write!(f, "GPU {gpu} has no energy counter"),
            NoEnergy::NoCounter(gpu, _) => write!(f, "no two readings of GPU {gpu}'s energy counter yet"),
            NoEnergy::Apart(_) => f.write_str("tokens and energy were not read over the same time"),
        }
    }
}

/// Draws `text` in the middle of `area`, broken at spaces.
pub(super) fn draw(buf: &mut Buffer, area: Rect, theme: Theme, text: &str) {
    let room = area.width.saturating_sub(2).min(72);
    let columns = width(text).min(room);
    let rows = wrapped_rows(text, columns).min(area.height);
    let middle = Rect {
        x: area.x + (area.width - columns) / 2,
        y: area.y + (area.height - rows) / 2,
        width: columns,
        height: rows,
    };
    put_wrapped(buf, middle, theme.style(Role::Dim), text);
}
