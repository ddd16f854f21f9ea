//! A probe on one line of the list: key, name, and what is known or going on.
//!
//! It must not judge: levels, shares and reasons are worded where they are made.

use std::fmt::{self, Display, Formatter, Write};

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::derive::ceiling::Ceiling;
use crate::model::{FactKey, Reading, SourceId, SourceState, Subject, Time};
use crate::probe::board::{Last, Left, Row as ProbeRow};
use crate::probe::life::State;
use crate::probe::report::{Ending, Level};
use crate::probe::spec::Lack;
use crate::probe::{Needs, ProbeSpec, ceiling};
use crate::store::{Data, Run, Window};
use crate::ui::pane::Context;
use crate::ui::text::{columns, put};
use crate::ui::theme::{Role, Theme};
use crate::ui::units::{BytesPerSecond, Number, Percent, Span, pad};
use crate::ui::widgets::meter;

use super::super::row::Row;

/// Columns of mark, key and the blanks after them.
const KEY: u16 = 5;
/// Width from which a result has room for what its share is of, its level and its age.
const WIDE: u16 = 60;
/// Columns of a bar.
const BAR: u16 = 12;

/// A line of the list.
#[derive(Debug, Default)]
pub(super) struct Line {
    pub(super) key: char,
    pub(super) name: &'static str,
    /// Share that is done, and time left in s.
    pub(super) progress: Option<(f64, Option<f64>)>,
    /// Its last run on the chosen target.
    pub(super) last: Option<Last>,
    pub(super) age_ms: u64,
    /// What is going on, in a word or two; empty while nothing is.
    state: String,
    /// Too few GPUs to run here.
    lacks: Option<Lack>,
    /// Why there are none.
    no_gpu: String,
    /// Whether this is a recording, where nothing can be asked for.
    recorded: bool,
    /// On a recording: how long ago it ran, for how long, and how that ended.
    ran: Option<(u64, u64)>,
    /// On a recording: what was known of the ceiling, bytes per second, and its age.
    known: Option<(f64, u64)>,
}

impl Line {
    /// A probe that can be asked for.
    /// `elsewhere` is the process that runs it, if that is another one.
    pub(super) fn fill(&mut self, row: &ProbeRow, elsewhere: Option<u32>, data: &Data, context: &Context<'_>) {
        let (view, spec) = (context.view, &row.probe.spec);
        (self.key, self.name) = (spec.key, spec.name);
        self.last
            .clone_from(&row.last_on(view.gpu, data.fact(Subject::Gpu(view.gpu), FactKey::Uuid, view.end)).cloned());
        self.age_ms = self.last.as_ref().map_or(u64::MAX, |last| view.end.since(last.at));
        (self.progress, self.ran, self.known, self.recorded) = (None, None, None, false);
        self.lacks = lacks(spec, data, view.end, &mut self.no_gpu);
        self.state.clear();
        match row.life.state() {
            State::Idle | State::Done(_) => {}
            State::Confirm(_) => self.state.push_str("run it?"),
            State::Preflight(..) => self.state.push_str("looking at the machine"),
            State::Running(running) => {
                let (done, eta_s, what) = &running.progress;
                self.progress = Some((*done, *eta_s));
                self.state.push_str(if running.ending.is_some() { "stopping" } else { what });
            }
            State::Cooling(..) => self.state.push_str("cooling"),
            State::Stopped(_) => self.state.push_str("stopped"),
            State::Refused(..) => self.state.push_str("not run"),
            State::Failed(_) => self.state.push_str("failed"),
        }
        if let (Some(pid), false) = (elsewhere, row.life.is_active()) {
            self.state.clear();
            // Writing to a String never fails.
            let _ = write!(self.state, "runs in process {pid}");
        }
    }

    /// A probe on a recording, which cannot be asked for: what the recording says of it.
    pub(super) fn fill_recorded(&mut self, spec: &ProbeSpec, data: &Data, context: &Context<'_>) {
        let view = context.view;
        (self.key, self.name) = (spec.key, spec.name);
        (self.progress, self.last, self.age_ms, self.recorded) = (None, None, u64::MAX, true);
        self.state.clear();
        self.lacks = None;
        self.ran = None;
        let subject = match spec.needs {
            Needs::Gpu | Needs::Gpus(_) => Subject::Gpu(view.gpu),
            Needs::Host => Subject::Host,
            Needs::Endpoint => Subject::Engine(view.engine),
        };
        let all = Window { start: Time(0), end: view.end };
        if let Some(run) = data.runs(subject, all).filter(|run| *run.probe == *spec.id).last() {
            let over = run.end <= view.end;
            self.age_ms = view.end.since(if over { run.end } else { run.start });
            self.ran = Some((self.age_ms, run.end.min(view.end).since(run.start)));
            let _ = self.state.write_str(how(run, over));
        }
        let known = Ceiling::of(data, view.gpu, view.end).filter(|_| spec.id == ceiling::PROBE);
        self.known = known.map(|ceiling| (ceiling.bytes_per_s, ceiling.age_ms()));
    }

    /// What is going on, in a word or two.
    pub(super) fn state(&self) -> &str {
        &self.state
    }

    /// Columns that its key and name take.
    pub(super) fn name_columns(&self) -> u16 {
        KEY + crate::ui::text::width(self.name) + 1
    }

    /// Draws it, the name `indent` columns wide, with a mark where it is the chosen one.
    pub(super) fn draw(&self, buf: &mut Buffer, area: Rect, theme: Theme, indent: u16, chosen: bool) {
        let (dim, text) = (theme.style(Role::Dim), theme.style(Role::Text));
        let here = self.lacks.is_none() && !self.recorded || self.progress.is_some();
        if chosen {
            let mark = if theme.unicode() { '▸' } else { '>' };
            put(buf, area, (0, 0), theme.style(Role::Accent), format_args!("{mark}"));
        }
        let key = theme.style(if here { Role::Accent } else { Role::Dim });
        put(buf, area, (2, 0), key, format_args!("{}", self.key));
        let indent = indent.min(area.width);
        let name = Rect { width: indent.saturating_sub(1), ..area };
        put(buf, name, (KEY - 1, 0), if here { text } else { dim }, format_args!("{}", self.name));
        let right = Rect { x: area.x + indent, width: area.width - indent, ..area };
        let mut row = Row::new(buf, right);
        if let Some((done, eta_s)) = self.progress {
            row.picture(BAR, |buf, area| meter(buf, area, &theme, Some(done), theme.style(Role::Line)));
            row.gap(1).part(&[(text, format_args!("{:3.0} %", done * 100.0))]);
            if let Some(eta_s) = eta_s {
                row.gap(1).part(&[(dim, format_args!("{} left", Left(eta_s)))]);
            }
            row.gap(1).part(&[(dim, format_args!("{}", self.state))]);
        } else if let Some((age, took)) = self.ran {
            let (age, took) = (Span(age), Span(took));
            row.part(&[(text, format_args!("{}", self.state)), (dim, format_args!(" {age} ago, ran {took}"))]);
            self.draw_known(row.gap(2), theme);
        } else if self.known.is_some() {
            self.draw_known(&mut row, theme);
        } else if let (Some(lack), true) = (self.lacks, self.state.is_empty()) {
            if columns(format_args!("{lack:#}")) <= right.width {
                row.part(&[(dim, format_args!("{lack:#}"))]);
            } else {
                row.part(&[(dim, format_args!("{lack}"))]);
            }
            if !self.no_gpu.is_empty() {
                row.part(&[(dim, format_args!(": {}", self.no_gpu))]);
            }
        } else if let Some(last) = &self.last {
            self.draw_last(&mut row, area.width >= WIDE, last, theme);
        } else {
            let never = if self.recorded { "no run recorded" } else { "never run here" };
            let words = if self.state.is_empty() { never } else { &self.state };
            row.part(&[(dim, format_args!("{words}"))]);
        }
    }

    fn draw_known(&self, row: &mut Row<'_>, theme: Theme) {
        if let Some((rate, age)) = self.known {
            let (text, dim) = (theme.style(Role::Text), theme.style(Role::Dim));
            let rate = BytesPerSecond(rate.into());
            row.part(&[(text, format_args!("{rate}")), (dim, format_args!(" measured {} ago", Span(age)))]);
        }
    }

    fn draw_last(&self, row: &mut Row<'_>, wide: bool, last: &Last, theme: Theme) {
        let (dim, text) = (theme.style(Role::Dim), theme.style(Role::Text));
        let style = theme.style(role(last.level));
        if last.headline.is_none() {
            let (how, age, why) = (Result(last), Span(self.age_ms), &last.summary);
            row.part(&[(text, format_args!("{how}")), (dim, format_args!(" {age} ago"))]);
            // "stopped 6 s ago: by the user", not "stopped 6 s ago stopped".
            if self.state.is_empty() || how.word() == self.state {
                row.part(&[(dim, format_args!(": {why}"))]);
            } else {
                row.part(&[(text, format_args!(" · {}", self.state))]);
            }
            return;
        }
        row.part(&[(text, format_args!("{:>11}", Result(last)))]);
        if let Some((share, of)) = last.share {
            row.gap(1).part(&[(style, format_args!("{:>6}", Percent(share.into())))]);
            if wide {
                row.gap(1).part(&[(dim, format_args!("{of:<16}"))]);
            }
        } else if wide {
            row.gap(24);
        }
        // Not by colour alone.
        let level = if last.level == Level::Unknown { "" } else { last.level.word() };
        if wide {
            row.gap(1).part(&[(style, format_args!("{level:<6}"))]);
        } else if last.level > Level::Ok {
            row.gap(1).part(&[(style, format_args!("{level}"))]);
        }
        if self.state.is_empty() {
            row.gap(1).part(&[(dim, format_args!("{} ago", Span(self.age_ms)))]);
        } else {
            row.gap(1).part(&[(text, format_args!("{}", self.state))]);
        }
    }
}

/// How a run of a recording stands at the view's end.
fn how(run: &Run, over: bool) -> &str {
    match &run.how {
        Some(how) if over => how,
        _ if over => "never ended",
        _ => "began",
    }
}

/// Whether there are too few GPUs for a probe, and why there are none. Before the driver has said anything, nothing
/// is known.
fn lacks(spec: &ProbeSpec, data: &Data, now: Time, no_gpu: &mut String) -> Option<Lack> {
    no_gpu.clear();
    let state = data.source(SourceId::Nvml).map(|source| source.state_at(now))?;
    let lack = spec.needs.lacks(data.gpus().count()).filter(|_| *state != SourceState::Starting)?;
    if data.gpus().next().is_none() {
        no_gpu.push_str(state.why());
    }
    Some(lack)
}

/// The colour of a level.
pub(super) const fn role(level: Level) -> Role {
    match level {
        Level::Unknown => Role::Text,
        Level::Ok => Role::Good,
        Level::Watch | Level::Failed => Role::Warn,
    }
}

/// The figure of a run on one line, or how it ended.
pub(super) struct Result<'a>(pub(super) &'a Last);

impl Result<'_> {
    /// How it ended, of a run without a figure.
    const fn word(&self) -> &'static str {
        match self.0.ending {
            Ending::Done => "no figure",
            Ending::Stopped => "stopped",
            Ending::Refused => "not run",
            Ending::Failed => "failed",
        }
    }
}

impl Display for Result<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.0.headline {
            // Rates of memory have prefixes of their own.
            Some((value, unit)) if unit.as_ref() == "GB/s" => BytesPerSecond(Reading::new(value * 1e9)).fmt(f),
            Some((value, unit)) => pad(f, format_args!("{} {unit}", Number(Reading::new(*value)))),
            None => f.pad(self.word()),
        }
    }
}
