//! The rows below the plot: throughput, KV memory, energy, adapters, high-water marks. What matters most comes
//! first, since a small pane has room for the first rows only.

use std::fmt::{self, Display, Formatter};

use crate::app::View;
use crate::derive::energy::{Energy, NoEnergy};
use crate::derive::queue::{Drain, HighWater, Lora, Peak, Queue, REASONS};
use crate::model::{Metric, Reading, Time, Why};
use crate::ui::panes::kv::{Bar, lines};
use crate::ui::panes::notice::{Lack, NoFigure};
use crate::ui::panes::row::Flow;
use crate::ui::text::put;
use crate::ui::theme::{Role, Theme};
use crate::ui::units::{Decimals, Number, Percent, Seconds, Span, Watts, Whole};
use crate::ui::widgets::Axes;

use super::{Names, Now};

/// Writes all rows, or as many as `flow` has room for.
pub(super) fn write(flow: &mut Flow<'_>, theme: Theme, now: &Now, names: &Names, end: Time) {
    let kind = &*names.kind;
    throughput(flow, theme, now, kind);
    kv(flow, theme, now, kind);
    energy(flow.line(), theme, now.energy);
    if let Some(lora) = &now.lora {
        adapters(flow.line(), theme, lora, names);
    }
    high_water(flow.line(), theme, &now.queue, end);
    lines::losses(flow.line(), theme, &now.kv);
    lines::overprovision(flow.line(), theme, &now.kv, kind);
    lines::prefix(flow.line(), theme, &now.kv, kind);
}

/// "4.08k generated tok/s  16.3k prompt tok/s  31.8 requests/s  over 10 s"; what failed comes before what may be left out.
fn throughput(flow: &mut Flow<'_>, theme: Theme, now: &Now, kind: &str) {
    let (text, dim) = (theme.style(Role::Text), theme.style(Role::Dim));
    let Reading::Value(_) = now.generated else {
        let why = now.generated.why().unwrap_or(Why::NotYet);
        let lack = Lack { kind, metric: Metric::GenerationTokens, why };
        flow.part(&[(dim, format_args!("tok/s: {lack}"))]);
        return;
    };
    let partly = now.partly;
    flow.part(&[(text, format_args!("{}{partly}", Number(now.generated))), (dim, format_args!(" generated tok/s"))]);
    if let Some(usual) = now.generated_usual {
        flow.part(&[(dim, format_args!(" (usual {})", Number(Reading::new(usual))))]);
    }
    flow.gap(2);
    if now.queue.failed_per_s.value().is_some_and(|rate| rate > 0.0) {
        let rate = format_args!("{}{partly}", Number(now.queue.failed_per_s));
        flow.part(&[(theme.style(Role::Warn), rate), (dim, format_args!(" failed/s"))]).gap(2);
    }
    if now.prompt.value().is_some() {
        let rate = format_args!("{}{partly}", Number(now.prompt));
        flow.fit(&[(text, rate), (dim, format_args!(" prompt tok/s"))]).gap(2);
    }
    if now.queue.finished_per_s.value().is_some() {
        let rate = format_args!("{}{partly}", Number(now.queue.finished_per_s));
        flow.fit(&[(text, rate), (dim, format_args!(" requests/s"))]).gap(2);
    }
    flow.fit(&[(dim, format_args!("over {}", Span(View::RATES_MS)))]);
}

/// The bar with its share, and below it what its parts are.
fn kv(flow: &mut Flow<'_>, theme: Theme, now: &Now, kind: &str) {
    let (text, dim) = (theme.style(Role::Text), theme.style(Role::Dim));
    let Some(bar) = Bar::of(&now.kv) else {
        let why = now.kv.usage_pct.why().unwrap_or(Why::NotYet);
        let lack = Lack { kind, metric: Metric::KvUsage, why };
        flow.line().part(&[(dim, format_args!("KV cache: {lack}"))]);
        return;
    };
    flow.picture(|buf, row| {
        let axes = Axes::split(row);
        put(buf, row, (0, 0), dim, format_args!("KV"));
        bar.draw(buf, axes.plot, theme);
        put(buf, axes.right, (1, 0), text, format_args!("{}", Percent(now.kv.usage_pct)));
    });
    lines::split(flow, theme, &now.kv);
}

/// "6.7 generated tok/J (0.15 J each)  33.6 tok/J with prompts  over 60 s  607 W on GPU 0".
fn energy(flow: &mut Flow<'_>, theme: Theme, energy: Result<Energy, NoEnergy>) {
    let (text, dim) = (theme.style(Role::Text), theme.style(Role::Dim));
    let energy = match energy {
        Ok(energy) => energy,
        Err(reason) => {
            flow.part(&[(dim, format_args!("tok/J: {}", NoFigure(reason)))]);
            return;
        }
    };
    // The power is that of all who share it, so the engine's own ratio is better than what can be said.
    let (least, most) = if energy.is_shared() { ("at least ", "at most ") } else { ("", "") };
    let value = format_args!("{}", Number(energy.generated_per_joule));
    flow.part(&[(dim, format_args!("{least}")), (text, value), (dim, format_args!(" generated tok/J"))]);
    if energy.joules_per_generated.value().is_some() {
        flow.gap(1).part(&[(dim, format_args!("({most}{} J each)", Number(energy.joules_per_generated)))]);
    }
    if energy.all_per_joule.value().is_some() {
        let value = format_args!("{}", Number(energy.all_per_joule));
        flow.gap(2).part(&[(dim, format_args!("{least}")), (text, value), (dim, format_args!(" tok/J with prompts"))]);
    }
    flow.gap(2).part(&[(dim, format_args!("over {}", Span(energy.measured_ms)))]);
    let watts = format_args!("{} on {}", Watts(Reading::new(energy.watts)), Gpus(&energy));
    flow.gap(2).fit(&[(dim, watts)]);
    if energy.is_shared() {
        let others = format_args!("shared with {} other", energy.others);
        flow.gap(2).part(&[(theme.style(Role::Warn), others)]);
    }
}

/// "GPU 0", "GPUs 0 1 2 3", "8 GPUs".
struct Gpus<'a>(&'a Energy);

impl Display for Gpus<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0.gpus.iter().count() {
            1 => f.write_str("GPU")?,
            count if count > 4 => return write!(f, "{count} GPUs"),
            _ => f.write_str("GPUs")?,
        }
        self.0.gpus.iter().try_for_each(|gpu| write!(f, " {gpu}"))
    }
}

/// "LoRA adapters 4 of 8 loaded  2 running (sql,chat)  1 waiting (legal)".
fn adapters(flow: &mut Flow<'_>, theme: Theme, lora: &Lora, names: &Names) {
    let (text, dim) = (theme.style(Role::Text), theme.style(Role::Dim));
    flow.part(&[(dim, format_args!("LoRA adapters"))]);
    if lora.loaded.value().is_some() {
        flow.gap(1).part(&[(text, format_args!("{}", Whole(lora.loaded)))]);
        if lora.cap.value().is_some() {
            flow.part(&[(dim, format_args!(" of {}", Whole(lora.cap)))]);
        }
        flow.part(&[(dim, format_args!(" loaded"))]);
    } else if lora.cap.value().is_some() {
        flow.gap(1).part(&[(dim, format_args!("at most {} loaded", Whole(lora.cap)))]);
    }
    let lists = [(lora.running, "running", &names.lora_running), (lora.waiting, "waiting", &names.lora_waiting)];
    for (reading, name, list) in lists {
        if reading.value().is_some() {
            flow.gap(2).part(&[(text, format_args!("{}", Whole(reading))), (dim, format_args!(" {name}"))]);
            if !list.is_empty() {
                flow.part(&[(dim, format_args!(" ({list})"))]);
            }
        }
    }
}

/// "high water 155 running −24 s  556 waiting −27 s  since the start 256 running −102 s …".
fn high_water(flow: &mut Flow<'_>, theme: Theme, queue: &Queue, end: Time) {
    let (text, dim) = (theme.style(Role::Text), theme.style(Role::Dim));
    let mark = |flow: &mut Flow<'_>, before: &str, peak: Option<Peak>, what: &str| {
        let Some(peak) = peak else { return };
        let when = format_args!(" {what} {}", Before(end.since(peak.at)));
        flow.part(&[(dim, format_args!("{before}")), (text, format_args!("{}", Decimals(peak.value, 0))), (dim, when)])
            .gap(2);
    };
    let marks = |flow: &mut Flow<'_>, before: &str, marks: &HighWater| {
        mark(flow, before, marks.running, "running");
        mark(flow, "", marks.waiting, "waiting");
    };
    marks(flow, "high water ", &queue.window);
    if queue.ever != queue.window {
        marks(flow, "since the start ", &queue.ever);
    }
}

/// "−12 s"; "now" below a second.
struct Before(u64);

impl Display for Before {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.0 < 1000 { f.write_str("now") } else { write!(f, "−{}", Span(self.0)) }
    }
}

/// For what they wait: " for capacity", " (38 for capacity, 2 deferred)"; nothing where nobody says.
pub(super) struct Reasons<'a>(pub(super) &'a Queue);

impl Display for Reasons<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let counts = REASONS.iter().zip(self.0.reasons).filter_map(|(reason, n)| Some((reason.words, n.value()?)));
        let counts = || counts.clone().filter(|(_, n)| *n > 0.0);
        let waiting = self.0.waiting.value().unwrap_or(0.0);
        match counts().next() {
            None => Ok(()),
            Some((words, n)) if n >= waiting && counts().count() == 1 => write!(f, " {words}"),
            Some(_) => {
                for (i, (words, n)) in counts().enumerate() {
                    write!(f, "{}{} {words}", if i == 0 { " (" } else { ", " }, Decimals(n, 0))?;
                }
                f.write_str(")")
            }
        }
    }
}

/// How long the queue takes: ", drains in 20 s", ", does not drain".
pub(super) struct Drains(pub(super) Drain);

impl Display for Drains {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Drain::In(seconds) => write!(f, ", drains in {}", Seconds(Reading::new(seconds))),
            Drain::Never => f.write_str(", does not drain: none finishes"),
            Drain::Empty | Drain::Unknown(_) => Ok(()),
        }
    }
}
