//! The answer of a sweep in a sentence: of which engine and how old it is, how far, where its knee is, or why there is
//! none.

use std::fmt::Write;

use crate::derive::levels::{High, latency, metric};
use crate::load::Level;
use crate::load::level::{Knee, Load, State};
use crate::model::text::Plural;
use crate::model::{Metric, Time};
use crate::probe::board;
use crate::ui::chrome::words::Port;
use crate::ui::panes::latency::words::name;
use crate::ui::units::Span;

use super::words::{Amount, is_planned, is_same, number, seconds};

/// How much younger than the moment shown a sweep may be and still be of that moment, ms: a clock may have been set.
const LATER_MS: u64 = 2_000;

/// Where a sweep is looked at from.
pub(super) struct Seen<'a> {
    /// The address of the chosen engine, if there is one.
    pub(super) engine: Option<&'a str>,
    /// The moment.
    pub(super) at: Time,
    /// The chosen latency.
    pub(super) latency: Metric,
    /// The share of the sweep that is done, while it runs.
    pub(super) done: Option<f64>,
}

/// Words a sweep into `out`.
pub(super) fn word(out: &mut String, sweep: &board::Sweep, seen: &Seen<'_>) {
    origin(out, sweep, seen);
    let Seen { done, latency: chosen, .. } = *seen;
    if sweep.runs { running(out, &sweep.levels, done, chosen) } else { over(out, &sweep.levels, sweep.knee.as_ref()) }
}

/// "of :18261, not the chosen engine, 2 h ago; ": what it is of and how old, where it is not the chosen engine's now.
fn origin(out: &mut String, sweep: &board::Sweep, seen: &Seen<'_>) {
    // Writing to a String never fails, here and below.
    if !seen.engine.is_some_and(|url| is_same(&sweep.endpoint, url)) {
        let other = if seen.engine.is_some() { ", not the chosen engine" } else { "" };
        let _ = write!(out, "of {}{other}", Port(&sweep.endpoint));
    }
    let last = |level: &Level| level.ended_unix_ms.max(level.to_unix_ms).max(level.started_unix_ms);
    let ended = sweep.levels.iter().map(last).max().filter(|ended| *ended > 0 && !sweep.runs);
    if let Some(ended) = ended {
        let between = if out.is_empty() { "" } else { ", " };
        let _ = if ended > seen.at.0 + LATER_MS {
            write!(out, "{between}after the moment shown")
        } else {
            write!(out, "{between}{} ago", Span(seen.at.since(Time(ended))))
        };
    }
    if !out.is_empty() {
        out.push_str("; ");
    }
}

/// "8 users, 43 %: P99 TTFT 210 ms so far".
fn running(out: &mut String, levels: &[Level], done: Option<f64>, chosen: Metric) {
    let Some(level) = levels.iter().rfind(|level| !is_planned(level)) else {
        out.push_str("begins");
        return;
    };
    let _ = write!(out, "{}", Amount(level.load));
    if let Some(done) = done {
        let _ = write!(out, ", {:.0} %", done * 100.0);
    }
    let name = name(metric(chosen));
    let so_far = if level.state.is_over() { "" } else { " so far" };
    let _ = match latency(level, chosen).high() {
        _ if level.state == State::WarmingUp => write!(out, ": warming up"),
        High::P99(quantile) => write!(out, ": P99 {name} {}{so_far}", seconds(quantile.value)),
        High::P95(quantile) => write!(out, ": P95 {name} {}{so_far}, too few for a P99", seconds(quantile.value)),
        High::Few(n) => write!(out, ": {name} of {n}{so_far}, too few for a P95"),
        High::Nothing => write!(out, ": no {name} yet"),
    };
}

/// "knee at 18 users (16–32): 5.90k tokens/s, then queue".
fn over(out: &mut String, levels: &[Level], knee: Option<&Knee>) {
    let of = |state| levels.iter().find(move |level| level.state == state);
    if levels.iter().all(is_planned) {
        out.push_str("over before a level was measured");
        return;
    }
    if let Some(level) = of(State::Failing) {
        let requests = level.requests;
        let bad = requests.measured.saturating_sub(requests.ok);
        let measured = Plural(requests.measured, "request", "requests");
        let _ = write!(out, "{}: {bad} of {measured} failed; ", Amount(level.load));
    }
    match knee {
        Some(knee) => at_knee(out, levels, knee),
        None => without(out, levels),
    }
    for (state, word) in [
        (State::OverSaturated, "over-saturated at"),
        (State::OutOfBudget, "the budget was used up at"),
        (State::Stopped, "stopped at"),
    ] {
        if let Some(level) = of(state) {
            let _ = write!(out, "; {word} {}", Amount(level.load));
        }
    }
    if let Some(level) = levels.iter().find(|level| !level.client.limits.is_empty()) {
        let _ = write!(out, "; the client may have been the limit at {}", Amount(level.load));
    }
}

fn at_knee(out: &mut String, levels: &[Level], knee: &Knee) {
    let (at, lo, hi) = (number(knee.at), number(knee.lo), number(knee.hi));
    let _ = match levels.first().map(|level| level.load) {
        Some(Load::RequestsPerS(_)) => write!(out, "knee at {at} requests/s ({lo}–{hi})"),
        _ => write!(out, "knee at {:.0} users ({lo}–{hi})", knee.at),
    };
    let _ = write!(out, ": {} tokens/s", number(knee.output_tokens_per_s));
    // What holds back the first level beyond.
    let beyond = |level: &&Level| level.load.amount().is_some_and(|load| load >= knee.hi);
    let least = |level: &&Level| level.load.amount().unwrap_or_default();
    let then = levels.iter().filter(beyond).min_by(|a, b| least(a).total_cmp(&least(b)));
    if let Some(limit) = then.and_then(|level| level.bottleneck.as_ref()) {
        let _ = write!(out, ", then {}", limit.word);
    }
}

fn without(out: &mut String, levels: &[Level]) {
    let rate = |level: &Level| level.output_tokens_per_s.map(|rate| rate.value);
    let rates = levels.iter().filter_map(|level| Some((level, rate(level)?)));
    // Of several the first: more load gave no more.
    let best = rates.reduce(|best, next| if next.1 > best.1 { next } else { best });
    let _ = match best {
        Some((level, tokens)) => write!(out, "no knee; most {} tokens/s at {}", number(tokens), Amount(level.load)),
        None => write!(out, "no throughput was measured"),
    };
}
