//! A few long prompts hold up the streams of the others: each step that computes a piece of one makes all others wait.

use super::super::scene::{EngineScene, Scene};
use super::super::words::{Num, Secs};
use super::super::{Cause, Finding, Fix, Sentence, Severity};
use super::Rule;
use crate::derive::quantile::quantile;
use crate::engine::Setting;
use crate::model::Subject;
use crate::store::HistogramWindow;

pub(super) const RULE: Rule = Rule { causes: &[Cause::LongPrefill], judge };

/// Gaps of at least so many times the median are stalls.
const STALL: f64 = 5.0;
/// Share of the time between tokens that stalls have to make up.
const SHARE: f64 = 0.2;
/// A prompt is long from so many times the median prompt on …
const LONG: f64 = 8.0;
/// … and from so many tokens on: a step of vLLM takes 2,048 to 8,192.
const LONG_TOKENS: f64 = 2_000.0;
/// Gaps that are enough to judge from.
const LEAST_GAPS: u64 = 50;
/// Share of stalls from which on clients are harmed.
const HARMS: f64 = 0.3;

fn judge(scene: &Scene<'_>, findings: &mut Vec<Finding>) {
    for engine in scene.engines.iter().filter(|engine| engine.is_read()) {
        findings.extend(of(engine));
    }
}

fn of(engine: &EngineScene) -> Option<Finding> {
    let gaps = &engine.gaps;
    if gaps.n < LEAST_GAPS {
        return None;
    }
    let median_gap = quantile(gaps, 0.5)?.value;
    let stalled = time_above(gaps, median_gap * STALL)?;
    let (median_prompt, longest) = (quantile(&engine.prompts, 0.5)?.value, longest(&engine.prompts)?);
    if stalled < SHARE || longest < LONG_TOKENS || longest < median_prompt * LONG {
        return None;
    }
    let mean = engine.itl?;
    let severity = if stalled >= HARMS { Severity::Act } else { Severity::Watch };
    let words = Sentence::new(
        format!(
            "prompts of {} tokens and more hold up the streams of the others: {:.0} % of the time between tokens is stalls",
            Num(longest),
            stalled * 100.0
        ),
        format!("long prompts stall tokens: {:.0} %", stalled * 100.0),
    );
    let finding = Finding::new(Subject::Engine(engine.index), Cause::LongPrefill, severity, stalled, words)
        .shows(("itl_mean_s", "s", "engine"), Some(mean), |s| {
            format!("{} between tokens on average, {} in the median", Secs(s), Secs(median_gap))
        })
        .shows(("itl_stalls", "share", "engine"), Some(stalled), |share| {
            format!("gaps of more than {} make up {:.0} % of that time", Secs(median_gap * STALL), share * 100.0)
        })
        .shows(("prompt_len", "tokens", "engine"), Some(longest), |n| {
            format!("prompts of {} tokens and more beside a median of {}", Num(n), Num(median_prompt))
        })
        .shows(("prompt_tokens_per_s", "tokens/s", "engine"), engine.prompt, |n| format!("{} prompt tokens/s", Num(n)));
    Some(finding.fix(smaller_steps(engine)).fix(Fix::todo(
        "Send long prompts to a replica of their own, or compute prompts apart from tokens (prefill/decode split)",
        "long prompts to their own replica",
    )))
}

fn smaller_steps(engine: &EngineScene) -> Fix {
    let Some(flag) = engine.flag(Setting::StepTokens) else {
        return Fix::todo("Compute prompts in smaller pieces (chunked prefill)", "smaller prefill chunks");
    };
    let now = engine.option(&[flag]);
    let tried = "2048";
    Fix {
        text: Sentence::new(
            format!(
                "{flag} {} → {tried}: shorter stalls, a somewhat longer TTFT of long prompts",
                now.unwrap_or("(default)")
            ),
            format!("{flag} {tried}"),
        ),
        flag: Some(flag.to_owned()),
        now: now.map(ToOwned::to_owned),
        try_value: Some(tried.to_owned()),
        gain: Some("shorter stalls".to_owned()),
        probe: None,
    }
}

/// Share of the sum that observations of certainly more than `least` make up, at least.
fn time_above(window: &HistogramWindow, least: f64) -> Option<f64> {
    let sum = window.sum.filter(|&sum| sum > 0.0)?;
    let lower = std::iter::once(0.0).chain(window.edges.iter().copied());
    let above = window.counts.iter().zip(lower).filter(|(_, lower)| *lower >= least);
    Some((above.map(|(&n, lower)| n as f64 * lower).sum::<f64>() / sum).min(1.0))
}

/// The lower edge of the highest bucket that holds anything.
fn longest(window: &HistogramWindow) -> Option<f64> {
    let highest = window.counts.iter().rposition(|&n| n > 0)?;
    highest.checked_sub(1).and_then(|below| window.edges.get(below)).copied()
}
