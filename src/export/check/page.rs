//! A verdict in words: what clients see, why, what would help, and what else there is. Full sentences, one a line.

use std::fmt::Write as _;

use crate::derive::quantile::Quantile;
use crate::diagnosis::{Attainment, ClientView, Evidence, Finding, Fix, QUANTILES_MS, Severity, WINDOW_MS};
use crate::model::Reading;
use crate::model::text::capital;
use crate::ui::units::{Number, Restarts, Seconds, Span};

use super::{Check, CheckState};

/// The verdict as plain lines.
pub fn page(check: &Check) -> String {
    let mut out = String::new();
    let word = match check.state {
        CheckState::Ok => "OK",
        CheckState::Act => "ACT",
        CheckState::Unknown => "UNKNOWN",
    };
    let seconds = check.window.ms() as f64 / 1000.0;
    let _ = writeln!(out, "{word}: {} (judged over {}).", check.state.meaning(), time(seconds));
    for view in &check.diagnosis.clients {
        let name = check.names.iter().find(|(engine, _)| *engine == view.engine).map_or("the engine", |(_, name)| name);
        if let Some(words) = clients(view) {
            let _ = writeln!(out, "Clients of {name}: {words}.");
        }
    }
    let mut findings = check.diagnosis.findings.iter();
    if let Some(first) = findings.next() {
        why(&mut out, "Why", first);
    }
    for (finding, last) in &check.earlier {
        let ago = check.window.end.since(*last) as f64 / 1000.0;
        let _ = writeln!(out, "Before, until {} ago: {}.", time(ago), capital(&finding.headline.full));
        fixes(&mut out, finding);
    }
    for finding in findings {
        if finding.severity == Severity::Act {
            why(&mut out, "Also", finding);
        } else {
            let _ = writeln!(out, "Also ({}): {}.", finding.severity.name(), capital(&finding.headline.full));
        }
    }
    check.attainments.iter().for_each(|one| objective(&mut out, one));
    out
}

fn time(seconds: f64) -> String {
    Seconds(Reading::new(seconds)).to_string()
}

/// A finding with its figures and what would help.
fn why(out: &mut String, head: &str, finding: &Finding) {
    let _ = writeln!(out, "{head}: {}.", capital(&finding.headline.full));
    for Evidence { text, source, .. } in &finding.evidence {
        let _ = writeln!(out, "  {} ({source}).", capital(text));
    }
    fixes(out, finding);
}

fn fixes(out: &mut String, finding: &Finding) {
    for Fix { text, gain, probe, .. } in &finding.fixes {
        let gain = gain.as_ref().map_or_else(String::new, |gain| format!(" ({gain})"));
        let probe = probe.map_or_else(String::new, |id| format!(": warptop probe {id}"));
        let _ = writeln!(out, "Fix: {}{gain}{probe}.", capital(&text.full));
    }
}

/// What the clients of an engine see; `None` where nothing is known of them.
fn clients(view: &ClientView) -> Option<String> {
    let mut parts: Vec<String> = Vec::new();
    if let Some(running) = view.running.value() {
        let cap = view.running_cap.value().map_or_else(String::new, |cap| format!(" of at most {}", number(cap)));
        let waiting = view.waiting.value().map_or_else(String::new, |n| format!(", {} wait", number(n)));
        parts.push(format!("{}{cap} run{waiting}", number(running)));
    }
    if let Some(p50) = view.ttft_p50 {
        let (partly, lives) = (partly(view.ttft_partial), Restarts(view.ttft_lives));
        let over = format!("{}{lives}{partly}", Span(QUANTILES_MS));
        parts.push(format!("TTFT is {} at P50{} over the last {over}", time(p50.value), p99(view.ttft_p99)));
    }
    if let Some(itl) = view.itl_mean.value() {
        let usual =
            view.itl_usual.value().map_or_else(String::new, |s| format!(" (usually {} at such a load)", time(s)));
        let over = format!("{}{}", Span(WINDOW_MS), partly(view.partial));
        parts.push(format!("{} pass between tokens over the last {over}{usual}", time(itl)));
    }
    if let Some(split) = view.split {
        let [total, queue, prefill, decode] = [split.total(), split.queue, split.prefill, split.decode].map(time);
        parts.push(format!(
            "a request that finished in the last {} took {total} on average, of which {queue} in the queue, {prefill} for its prompt and {decode} for its answer",
            Span(WINDOW_MS)
        ));
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// Said behind a time of which little was measured.
const fn partly(partial: bool) -> &'static str {
    if partial { ", of which less than four fifths were measured" } else { "" }
}

/// The P99, where there are enough requests to call it one.
fn p99(seen: Option<Quantile>) -> String {
    seen.filter(|seen| seen.enough).map_or_else(String::new, |seen| format!(" and {} at P99", time(seen.value)))
}

fn number(n: f64) -> String {
    Number(Reading::new(n)).to_string()
}

fn objective(out: &mut String, one: &Attainment) {
    let seen = match one.seen {
        Some(seen) => {
            let kept = if one.missed() == Some(true) { "missed" } else { "kept" };
            let bound = seen.hi.map_or_else(|| "no bound".to_owned(), time);
            format!(
                "{kept}: {} seen (between {} and {bound}, n {}{})",
                time(seen.value),
                time(seen.lo),
                seen.n,
                Restarts(one.lives)
            )
        }
        None => "not judged: no request tells".to_owned(),
    };
    let _ = writeln!(out, "Objective {} of engine {}: {seen}.", one.objective, one.engine);
}
