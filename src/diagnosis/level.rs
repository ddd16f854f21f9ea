//! What held a level of a load sweep back: one cause, and the figures that it rests on.
//!
//! Facts of the client come first: one that was late measured itself, and where requests failed the others are no measure of
//! the server. Otherwise it is what the rules name: they are asked about each second of the level, after the first
//! `SETTLES_MS`, and the cause that was the most harmful one most often has the word. It must not know how a level is
//! measured or drawn. Invariant: nothing is named without its figures; where none of it was read, nothing is named.

use std::collections::BTreeMap;

use crate::derive;
use crate::load::Level;
use crate::load::level::{Bottleneck, State};
use crate::model::{Subject, Time};
use crate::store::{Data, Window};

use super::past::Past;
use super::scene::Scene;
use super::timeline::STEP_MS;
use super::{Cause, Finding, Severity, Slo, rules};

/// How long a new load takes to show in the figures, ms: three scrapes.
const SETTLES_MS: u64 = 3_000;
/// Share of the seconds for which something has to be first to be named: a server that is loaded in waves is below its limit
/// while it takes the next wave in.
const OFTEN: f64 = 0.25;
/// Share of measured requests from which on those that failed are what counts.
const ERRORS: f64 = 0.01;
/// Seconds that are remembered: longer than a sweep may take.
const MOST: usize = 4_096;

/// Judges the levels of a sweep, while they are measured and after it.
#[derive(Debug, Default)]
pub struct LevelJudge {
    past: Past,
    slo: Slo,
    /// What the rules said of each second so far.
    seconds: BTreeMap<u64, Vec<Finding>>,
}

impl LevelJudge {
    /// Fills in the level's server, GPUs and bottleneck from what was read in its measured time. `engine` is the one that
    /// was loaded, `gpus` those that it may use; none where it is on another host.
    pub fn attach(&mut self, data: &Data, engine: u8, gpus: &[u8], level: &mut Level) {
        let Some(window) = derive::level::attach(data, engine, gpus, level) else { return };
        level.bottleneck = of_client(level).or_else(|| self.of_server(data, engine, gpus, window));
    }

    /// The cause that was first most often, in the words of the last second in which it was.
    fn of_server(&mut self, data: &Data, engine: u8, gpus: &[u8], window: Window) -> Option<Bottleneck> {
        let last = window.end.0 / STEP_MS;
        let first = ((window.start + SETTLES_MS).0.div_ceil(STEP_MS)).min(last);
        let theirs = |finding: &&Finding| match finding.subject {
            Subject::Engine(of) => of == engine,
            Subject::Gpu(of) => gpus.contains(&of),
            Subject::Host | Subject::App => !gpus.is_empty(),
        };
        let mut votes: BTreeMap<Cause, (usize, Option<Bottleneck>)> = BTreeMap::new();
        for step in first..=last {
            let mut findings = self.judge(data, step).iter().filter(theirs);
            let Some(finding) = findings.next() else { continue };
            let next = findings.find(|next| !next.cause.is_state());
            let held = votes.entry(finding.cause).or_default();
            *held = (held.0 + 1, is_limit(finding).then(|| named(finding, next)));
        }
        // Its readings may still be on their way.
        self.seconds.remove(&last);
        let of = (last + 1 - first) as usize;
        let often = |votes: usize| votes as f64 >= of as f64 * OFTEN;
        let most = |state: bool| {
            let those = votes.iter().filter(|(cause, (n, _))| cause.is_state() == state && often(*n));
            those.rev().max_by_key(|(_, (n, _))| *n)
        };
        let (_, (n, found)) = most(false).or_else(|| most(true))?;
        let Bottleneck { word, evidence } = found.clone()?;
        Some(Bottleneck { word, evidence: format!("{evidence} (in {n} of {of} s)") })
    }

    /// What the rules say of a second. Asked for once: a level grows, and what is over does not change.
    fn judge(&mut self, data: &Data, step: u64) -> &[Finding] {
        if self.seconds.len() >= MOST {
            self.seconds.pop_first();
        }
        let Self { past, slo, seconds } = self;
        seconds.entry(step).or_insert_with(|| rules::judge(&Scene::of(data, Time(step * STEP_MS), slo, past)))
    }
}

/// Whether it held something back: a state does where too little was asked, or where some wait for what cannot be told.
fn is_limit(finding: &Finding) -> bool {
    !finding.cause.is_state() || finding.cause == Cause::DemandLimited || finding.severity > Severity::Ok
}

/// A cause with its figures, and what came next.
fn named(finding: &Finding, next: Option<&Finding>) -> Bottleneck {
    let figures: Vec<&str> = finding.evidence.iter().map(|shown| shown.text.as_str()).collect();
    let figures = if figures.is_empty() { String::new() } else { format!(": {}", figures.join(", ")) };
    let next = next.map_or_else(String::new, |next| format!("; then {}: {}", next.cause.label(), next.headline.full));
    Bottleneck { word: finding.cause.label().to_owned(), evidence: format!("{}{figures}{next}", finding.headline.full) }
}

/// What the client says of itself and of its requests.
fn of_client(level: &Level) -> Option<Bottleneck> {
    let named = |word: &str, evidence: String| Bottleneck { word: word.to_owned(), evidence };
    if level.client.limits.is_empty() {
        errors(level).map(|evidence| named("errors", evidence))
    } else {
        Some(named("client", level.client.limits.join("; ")))
    }
}

/// What became of the requests, where too many failed.
fn errors(level: &Level) -> Option<String> {
    let requests = &level.requests;
    let (lost, of) = (requests.lost(), requests.measured.max(requests.lost()));
    let many = lost as f64 >= of as f64 * ERRORS || level.state == State::Failing;
    let kinds = [
        (requests.refused, "refused"),
        (requests.cut, "broken off"),
        (requests.failed, "failed otherwise"),
        (requests.unconnected, "without a connection"),
    ];
    let kinds: Vec<_> = kinds.iter().filter(|(n, _)| *n > 0).map(|(n, kind)| format!("{n} {kind}")).collect();
    (lost > 0 && many).then(|| format!("{lost} of {of} requests came to nothing: {} (client)", kinds.join(", ")))
}

#[cfg(test)]
mod tests;
