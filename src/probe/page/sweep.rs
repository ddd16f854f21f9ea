//! The levels of a load sweep on a page: what clients saw, what server and GPUs did, what held each level back, and how
//! the client itself was checked.
//!
//! It must not know how any of it was measured. Invariants: what is missing is a dash; a P99 is called one only where n
//! suffices for it; levels stand in the order of their load, whatever order they were measured in; lines of tables are made
//! for 120 columns.

mod heat;

use std::fmt::Write as _;

use crate::load::Level;
use crate::load::level::{Goodput, High, Lag, Latency, Quantile, Rate, State};
use crate::probe::report::{Judged, Report};

use super::{cell, methods, number, percent};

/// Measurements that a P50 needs, and a P99 (load::level).
const P50_NEEDS: u64 = 6;
const P99_NEEDS: u64 = 368;

/// Appends what a report says of its levels; nothing where it has none.
pub(super) fn levels(out: &mut String, report: &Report) {
    if report.levels.is_empty() {
        return;
    }
    let levels = sorted(&report.levels);
    out.push_str("## Levels\n\n");
    match &report.knee {
        Some(knee) => {
            let [at, lo, hi, rate] =
                [knee.at, knee.lo, knee.hi, knee.output_tokens_per_s].map(|value| number(Some(value)));
            let _ = writeln!(
                out,
                "**Knee** at {at} (levels {lo} and {hi} beside it), {rate} output tokens/s: {}\n",
                knee.words
            );
        }
        None => out.push_str("These levels show no knee.\n\n"),
    }
    requests(out, &levels);
    latencies(out, &levels);
    heat::maps(out, &levels);
    notes(out, &levels);
    machine(out, &levels);
    client(out, &levels);
}

/// The figures of a sweep: there is nothing that they are held against.
pub(super) fn figures(out: &mut String, report: &Report) {
    head(out, &["figure", "value", "95 % interval", "n"]);
    for Judged { figure, .. } in &report.results {
        let [value, lo, hi] = [figure.value, figure.lo, figure.hi].map(|value| number(Some(value)));
        let interval = match (figure.lo < figure.value || figure.value < figure.hi, figure.id.as_str()) {
            (false, _) => number(None),
            (true, "knee") => format!("levels {lo} and {hi}"),
            (true, _) => format!("{lo} – {hi}"),
        };
        row(out, &[figure.label.clone(), format!("{value} {}", figure.unit), interval, figure.n.to_string()]);
    }
    out.push('\n');
    methods(out, report);
    out.push('\n');
}

/// The levels by their load, then in the order they were measured in.
pub(super) fn sorted(levels: &[Level]) -> Vec<&Level> {
    let mut levels: Vec<_> = levels.iter().collect();
    let amount = |level: &Level| level.load.amount().unwrap_or(0.0);
    levels.sort_by(|a, b| amount(a).total_cmp(&amount(b)).then(a.repeat.cmp(&b.repeat)));
    levels
}

/// The load in words, from the second repetition on with its number.
pub(super) fn name(level: &Level) -> String {
    let load = level.load;
    if level.repeat == 0 { load.to_string() } else { format!("{load} #{}", level.repeat + 1) }
}

/// How it ended, in a word or two.
const fn state(state: State) -> &'static str {
    match state {
        State::Planned | State::WarmingUp => "not measured",
        State::Measuring | State::Ending => "not over",
        State::Done => "done",
        State::Short => "short",
        State::OverSaturated => "over-saturated",
        State::Failing => "failing",
        State::OutOfBudget => "budget used up",
        State::Stopped => "stopped",
    }
}

/// Head and rule of a table, the first column to the left.
pub(super) fn head(out: &mut String, columns: &[&str]) {
    let _ = writeln!(out, "| {} |", columns.join(" | "));
    let _ = writeln!(out, "| --- |{}", " ---: |".repeat(columns.len() - 1));
}

/// A row of a table.
pub(super) fn row(out: &mut String, cells: &[String]) {
    let cells: Vec<_> = cells.iter().map(|text| cell(text)).collect();
    let _ = writeln!(out, "| {} |", cells.join(" | "));
}

/// Seconds as ms, or a dash.
fn ms(seconds: Option<f64>) -> String {
    number(seconds.map(|seconds| seconds * 1000.0))
}

/// A value with its interval, where there is one.
fn within(value: &str, interval: Option<(String, String)>) -> String {
    interval.map_or_else(|| value.to_owned(), |(lo, hi)| format!("{value} ({lo}–{hi})"))
}

fn quantile(quantile: &Quantile, mark: &str) -> String {
    let interval = quantile.lo.zip(quantile.hi).map(|(lo, hi)| (ms(Some(lo)), ms(Some(hi))));
    within(&(ms(Some(quantile.value)) + mark), interval)
}

fn p50(latency: &Latency) -> String {
    match latency.p50 {
        Some(p50) if p50.enough => quantile(&p50, ""),
        _ if latency.n == 0 => number(None),
        _ => format!("(P50 needs {P50_NEEDS}, n {})", latency.n),
    }
}

/// The P99; where n does not suffice for it the P95, marked; else what is missing.
fn p99(latency: &Latency) -> String {
    match latency.high() {
        High::P99(p99) => quantile(&p99, ""),
        High::P95(p95) => quantile(&p95, "*"),
        High::Few(n) => format!("(P99 needs {P99_NEEDS}, n {n})"),
        High::Nothing => number(None),
    }
}

fn rate(rate: Option<Rate>) -> String {
    let Some(rate) = rate else { return number(None) };
    let interval = rate.lo.zip(rate.hi).map(|(lo, hi)| (number(Some(lo)), number(Some(hi))));
    within(&number(Some(rate.value)), interval)
}

fn good(goodput: Option<Goodput>) -> [String; 2] {
    let Some(goodput) = goodput else { return [number(None), number(None)] };
    let share = |share: f64| format!("{:.1}", share * 100.0);
    let [value, lo, hi] = [goodput.share, goodput.lo, goodput.hi].map(share);
    [within(&value, Some((lo, hi))), number(Some(goodput.per_s))]
}

fn requests(out: &mut String, levels: &[&Level]) {
    head(out, &["load", "ended", "measured", "ok", "lost", "req/s", "output tokens/s", "good, %", "good/s"]);
    for level in levels {
        let requests = &level.requests;
        let [share, per_s] = good(level.goodput);
        row(
            out,
            &[
                name(level),
                state(level.state).to_owned(),
                requests.measured.to_string(),
                requests.ok.to_string(),
                requests.lost().to_string(),
                number(level.requests_per_s.map(|rate| rate.value)),
                rate(level.output_tokens_per_s),
                share,
                per_s,
            ],
        );
    }
    out.push('\n');
    for level in levels {
        let (of, tokens) = (level.requests, level.tokens);
        let what = [
            (of.refused, "refused"),
            (of.cut, "broken off"),
            (of.failed, "failed otherwise"),
            (of.unconnected, "without a connection"),
            (of.held_back, "held back by the limit of requests in flight"),
            (of.not_sent, "planned and not sent"),
            (tokens.other_length, "with another output length than planned"),
            (tokens.uncounted, "of which the server told no tokens"),
        ];
        let what: Vec<_> = what.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
        if !what.is_empty() {
            let _ = writeln!(out, "- {}: {}", name(level), what.join(", "));
        }
    }
    out.push_str("- in brackets: 95 % intervals\n");
    if levels.iter().any(|level| level.goodput.is_some()) {
        out.push_str("- good: kept every SLO; requests that failed are not\n");
    }
    out.push('\n');
}

fn latencies(out: &mut String, levels: &[&Level]) {
    head(out, &["service, ms", "n", "TTFT P50", "TTFT P99", "TPOT P50"]);
    for level in levels {
        let (ttft, tpot) = (&level.ttft_s, &level.tpot_s);
        row(out, &[name(level), ttft.n.to_string(), p50(ttft), p99(ttft), p50(tpot)]);
    }
    out.push('\n');
    head(out, &["service, ms", "n", "E2E P50", "E2E P99", "ITL P50", "ITL P99"]);
    for level in levels {
        let (e2e, itl) = (&level.e2e_s, &level.itl_s);
        row(out, &[name(level), e2e.n.to_string(), p50(e2e), p99(e2e), p50(itl), p99(itl)]);
    }
    out.push('\n');
    let answers: Vec<_> = levels.iter().filter(|level| level.answer_s.n > 0).collect();
    if !answers.is_empty() {
        head(out, &["to the answer, ms", "n", "P50", "P99"]);
        for level in answers {
            let answer = &level.answer_s;
            row(out, &[name(level), answer.n.to_string(), p50(answer), p99(answer)]);
        }
        out.push('\n');
    }
    let open = |level: &&&Level| level.scheduled_ttft_s.is_some() || level.scheduled_e2e_s.is_some();
    if levels.iter().any(|level| open(&level)) {
        head(out, &["from the intended start, ms", "n", "TTFT P50", "TTFT P99", "E2E P50", "E2E P99"]);
        for level in levels.iter().filter(open) {
            let (ttft, e2e) = (level.scheduled_ttft_s.unwrap_or_default(), level.scheduled_e2e_s.unwrap_or_default());
            row(out, &[name(level), e2e.n.to_string(), p50(&ttft), p99(&ttft), p50(&e2e), p99(&e2e)]);
        }
        out.push('\n');
    }
    let starred = |latency: &Latency| matches!(latency.high(), High::P95(_));
    let all = levels.iter().flat_map(|level| {
        let scheduled = [level.scheduled_ttft_s, level.scheduled_e2e_s].into_iter().flatten();
        [level.ttft_s, level.e2e_s, level.itl_s, level.answer_s].into_iter().chain(scheduled)
    });
    if all.into_iter().any(|latency| starred(&latency)) {
        let _ = writeln!(out, "- \\* a P95: a P99 needs {P99_NEEDS} measurements\n");
    }
}

fn notes(out: &mut String, levels: &[&Level]) {
    let mut any = false;
    for level in levels {
        let limits = level.client.limits.iter().map(|limit| format!("the client may have been the limit: {limit}"));
        for words in level.notes.iter().cloned().chain(limits) {
            any = true;
            let _ = writeln!(out, "- {}: {words}", name(level));
        }
    }
    if any {
        out.push('\n');
    }
}

/// A mean with the largest reading.
fn most(mean: Option<f64>, most: Option<f64>) -> String {
    let most = most.map(|most| format!(" (most {})", number(Some(most))));
    number(mean) + &most.unwrap_or_default()
}

fn machine(out: &mut String, levels: &[&Level]) {
    out.push_str("## What held each level back\n\n");
    head(out, &["server", "running", "waiting", "KV used, %", "preempted", "prefix hits", "bottleneck"]);
    for level in levels {
        let server = level.server.clone().unwrap_or_default();
        let word = level.bottleneck.as_ref().map_or("–", |bottleneck| bottleneck.word.as_str());
        row(
            out,
            &[
                name(level),
                number(server.running),
                most(server.waiting, server.most_waiting),
                most(server.kv_used_pct, server.most_kv_used_pct),
                number(server.preemptions),
                percent(server.prefix_hit_pct),
                word.to_owned(),
            ],
        );
    }
    out.push('\n');
    for level in levels {
        if let Some(bottleneck) = &level.bottleneck {
            let _ = writeln!(out, "- {}: {}: {}", name(level), bottleneck.word, bottleneck.evidence);
        }
    }
    if levels.iter().any(|level| level.bottleneck.is_some()) {
        out.push('\n');
    }
    if levels.iter().all(|level| level.gpus.is_empty()) {
        out.push_str("GPUs of the server were not read.\n\n");
        return;
    }
    head(out, &["GPUs", "GPU", "SM", "DRAM", "tensor", "SM clock, of maximum", "power, W", "°C at most", "throttled"]);
    for level in levels {
        for gpu in &level.gpus {
            let share = gpu.clock_pct().map(|share| format!(" MHz, {share:.0} %")).unwrap_or_default();
            let clock = number(gpu.sm_clock_mhz) + &share;
            let reason = gpu.throttled_by.as_deref().filter(|_| gpu.is_throttled());
            let held = percent(gpu.throttled_ms_per_s.map(|ms| ms / 10.0));
            row(
                out,
                &[
                    name(level),
                    gpu.index.to_string(),
                    percent(gpu.sm_active_pct),
                    percent(gpu.dram_active_pct),
                    percent(gpu.tensor_active_pct),
                    clock,
                    number(gpu.power_w),
                    number(gpu.most_temp_c),
                    reason.map_or(held.clone(), |reason| format!("! {held}: {reason}")),
                ],
            );
        }
    }
    out.push('\n');
}

/// The P99 and the largest; of too few for a P99 the largest of how many.
fn lag(lag: &Lag) -> [String; 2] {
    match lag.sure_p99() {
        Some(p99) => [ms(Some(p99)), ms(lag.max)],
        None if lag.max.is_some() => [number(None), format!("{} of n {}", ms(lag.max), lag.n)],
        None => [number(None), number(None)],
    }
}

fn client(out: &mut String, levels: &[&Level]) {
    out.push_str("## How the client was checked\n\n");
    head(
        out,
        &["client", "in flight", "of the server", "dispatch lag P99, ms", "most", "loop lag P99, ms", "most", "CPU"],
    );
    for level in levels {
        let client = &level.client;
        let server = level.server.as_ref().and_then(|server| Some(server.running? + server.waiting?));
        let [dispatch_p99, dispatch_most] = lag(&client.dispatch_lag);
        let [loop_p99, loop_most] = lag(&client.loop_lag);
        row(
            out,
            &[
                name(level),
                number(client.in_flight),
                number(server),
                dispatch_p99,
                dispatch_most,
                loop_p99,
                loop_most,
                percent(client.cpu_pct),
            ],
        );
    }
    out.push('\n');
    let rows = || {
        levels
            .iter()
            .flat_map(|level| level.server.iter().flat_map(move |s| s.agreement.iter().map(move |a| (level, a))))
    };
    if rows().next().is_none() {
        out.push_str("The server's own figures were not read: nothing confirms the client's.\n\n");
        return;
    }
    head(out, &["both sides", "of what", "client", "server", "agree"]);
    for (level, agreement) in rows() {
        let seconds = agreement.unit == "s";
        let (unit, times) = if seconds { ("ms", 1000.0) } else { (agreement.unit.as_str(), 1.0) };
        let [client, lo] = [agreement.client, agreement.server_lo].map(|value| number(Some(value * times)));
        let server = match agreement.server_hi {
            Some(hi) if hi <= agreement.server_lo => lo,
            Some(hi) => format!("{lo}–{}", number(Some(hi * times))),
            None => format!("{lo} or more"),
        };
        let agrees = if agreement.agrees { "yes" } else { "NO" };
        row(out, &[name(level), agreement.what.clone(), format!("{client} {unit}"), server, agrees.to_owned()]);
    }
    out.push('\n');
}

/// What endpoint and client said of themselves, where it was not the same in two sweeps: the model, versions.
pub(super) fn told<'a>(old: &'a Report, new: &'a Report) -> Vec<(&'a str, String, String)> {
    if old.levels.is_empty() && new.levels.is_empty() {
        return Vec::new();
    }
    let [before, after] = [&old.environment.facts, &new.environment.facts];
    let mut names: Vec<_> = before.keys().chain(after.keys()).collect();
    names.sort();
    names.dedup();
    let text = |text: Option<&String>| text.cloned().unwrap_or_else(|| "not known".to_owned());
    names.into_iter().map(|name| (name.as_str(), text(before.get(name)), text(after.get(name)))).collect()
}

#[cfg(test)]
mod tests;
