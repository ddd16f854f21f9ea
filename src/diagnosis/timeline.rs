//! Findings over time: what held when, told from what the rules say second by second.
//!
//! The rules judge whole seconds. A finding holds in a second when its rule spoke in at least three of the last five
//! seconds, so one odd second neither makes nor ends one; that rule looks back five seconds and no further, so a moment's
//! findings do not depend on which moments were looked at before. Stretches in which a finding held are kept as spans, at
//! most [`MOST_SPANS`] of them and at most a day.

use std::collections::VecDeque;

use crate::model::{Subject, Time};
use crate::store::Data;

use super::past::Past;
use super::rules;
use super::scene::Scene;
use super::slo::Slo;
use super::{Cause, ClientView, Diagnosis, Finding, Severity};

/// Length of a judged step, ms.
pub(super) const STEP_MS: u64 = 1_000;
/// Steps that decide whether a finding holds …
const STEPS: usize = 5;
/// … and in how many of them its rule has to speak.
const ENOUGH: usize = 3;
/// A finding that is back after so many steps has not ended.
pub(super) const BRIDGE: u64 = 5;
/// Steps that one call judges at most, so that a screen never waits.
const MOST_STEPS: u64 = 60;
/// Spans that are kept.
const MOST_SPANS: usize = 4_096;
/// How long they are kept, steps: a day.
const KEPT: u64 = 86_400;
/// How far back a moment is judged, steps: the hour that the store keeps at full rate.
const BACK: u64 = 3_600;

/// A stretch of time in which a finding held.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// Of what.
    pub subject: Subject,
    /// Which.
    pub cause: Cause,
    /// The most that it asked for.
    pub severity: Severity,
    /// The first second in which it held.
    pub from: Time,
    /// The last one.
    pub to: Time,
    /// What was said of it, in few words.
    pub headline: String,
}

/// What held when, and the diagnosis of the moment that is looked at.
#[derive(Debug, Default)]
pub struct Timeline {
    slo: Slo,
    past: Past,
    /// First and last step of the stretch without a hole that was judged, both included; seconds since the epoch.
    judged: Option<(u64, u64)>,
    /// What the rules said in the last steps of that stretch, the newest last.
    recent: VecDeque<Vec<Finding>>,
    spans: Vec<Span>,
    /// The step that is looked at.
    shown: Option<u64>,
    diagnosis: Diagnosis,
}

impl Timeline {
    /// Length of a judged step, ms: moments of the same step have the same diagnosis.
    pub const STEP_MS: u64 = STEP_MS;

    /// Nothing judged yet.
    pub fn new(slo: Slo) -> Self {
        Self { slo, ..Self::default() }
    }

    /// One that says this, for tests of what shows it.
    #[cfg(test)]
    pub(crate) fn showing(diagnosis: Diagnosis, spans: Vec<Span>) -> Self {
        let step = diagnosis.at.0 / STEP_MS;
        let first = spans.iter().map(|span| span.from.0 / STEP_MS).min().unwrap_or(step);
        Self { judged: Some((first, step)), shown: Some(step), diagnosis, spans, ..Self::default() }
    }

    /// The diagnosis of the moment that was followed to last.
    pub const fn diagnosis(&self) -> &Diagnosis {
        &self.diagnosis
    }

    /// Every span that is known, in no order. The one that holds now ends at the last judged second.
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// The time that has been judged.
    pub fn judged(&self) -> Option<(Time, Time)> {
        self.judged.map(|(from, to)| (Time(from * STEP_MS), Time(to * STEP_MS)))
    }

    /// Looks at the moment `at`. Judges the steps up to it, and some of those before what was judged, so that a replay learns
    /// since when a finding holds: at most `MOST_STEPS` and a third of that at once. Cheap where the second is the same.
    pub fn follow(&mut self, data: &Data, at: Time) {
        // A recording that is not read yet is older than the moment that is looked at meanwhile.
        if data.oldest().is_none() {
            return;
        }
        let step = at.0 / STEP_MS;
        let near = self.judged.filter(|&(first, last)| step <= last + BACK && step + BACK >= first);
        // What clients see is read from the same figures where the step to be shown is judged now.
        let mut clients = None;
        match near {
            Some((_, last)) => {
                for judged in last + 1..=step.min(last + MOST_STEPS) {
                    clients = self.judge(data, judged, judged == step);
                }
            }
            None => clients = self.start(data, step),
        }
        let grew = self.extend_back(data, MOST_STEPS / 3);
        if self.shown != Some(step) {
            self.show(data, step, clients);
        } else if grew {
            self.tell_since();
        }
    }

    /// Judges all that lies before the moment and is still kept at full rate.
    pub fn complete(&mut self, data: &Data) {
        if let (Some((_, last)), Some(shown)) = (self.judged, self.shown) {
            (last + 1..=shown).for_each(|step| drop(self.judge(data, step, false)));
        }
        while self.extend_back(data, MOST_STEPS) {}
        self.tell_since();
    }

    /// Makes the diagnosis of a step, whether or not it lies in what was judged.
    fn show(&mut self, data: &Data, step: u64, clients: Option<Vec<ClientView>>) {
        let at = Time(step * STEP_MS);
        let findings = if self.judged.is_some_and(|(_, last)| last == step) {
            settle(&self.recent)
        } else {
            let first = step.saturating_sub(STEPS as u64 - 1);
            settle(&(first..=step).map(|step| raw(data, &mut self.past, step, &self.slo)).collect())
        };
        let clients = clients.unwrap_or_else(|| Scene::of(data, at, &self.slo, &mut self.past).clients());
        self.diagnosis = Diagnosis { at, findings, clients };
        self.shown = Some(step);
        self.tell_since();
    }

    /// Forgets what was judged, and begins with `step`; what clients see then.
    fn start(&mut self, data: &Data, step: u64) -> Option<Vec<ClientView>> {
        self.spans.clear();
        self.recent.clear();
        for step in step.saturating_sub(STEPS as u64 - 1)..step {
            push(&mut self.recent, raw(data, &mut self.past, step, &self.slo));
        }
        self.judged = Some((step, step));
        self.judge(data, step, true)
    }

    /// Judges the step after the last one; what clients see then, where that is asked for.
    fn judge(&mut self, data: &Data, step: u64, with_clients: bool) -> Option<Vec<ClientView>> {
        let scene = Scene::of(data, Time(step * STEP_MS), &self.slo, &mut self.past);
        push(&mut self.recent, if is_watched(data, step) { rules::judge(&scene) } else { Vec::new() });
        let clients = with_clients.then(|| scene.clients());
        note(&mut self.spans, &settle(&self.recent), step);
        if let Some((_, last)) = &mut self.judged {
            *last = step;
        }
        self.forget(step);
        clients
    }

    /// Judges up to `steps` steps before the first one that was judged; whether there was anything to judge.
    fn extend_back(&mut self, data: &Data, steps: u64) -> bool {
        let Some((first, last)) = self.judged else { return false };
        let oldest = data.oldest().map_or(first, |oldest| oldest.0 / STEP_MS).max(last.saturating_sub(BACK));
        if first <= oldest {
            return false;
        }
        let from = first.saturating_sub(steps).max(oldest);
        let mut recent: VecDeque<Vec<Finding>> = VecDeque::new();
        let mut spans = Vec::new();
        for step in from.saturating_sub(STEPS as u64 - 1)..first {
            push(&mut recent, raw(data, &mut self.past, step, &self.slo));
            if step >= from {
                note(&mut spans, &settle(&recent), step);
            }
        }
        join(&mut spans, std::mem::take(&mut self.spans), first);
        self.spans = spans;
        self.judged = Some((from, last));
        true
    }

    /// Says of each finding since when it has held, as far as that has been judged.
    fn tell_since(&mut self) {
        let at = self.diagnosis.at;
        for finding in &mut self.diagnosis.findings {
            let holds = |span: &&Span| {
                (span.subject, span.cause) == (finding.subject, finding.cause)
                    && span.from <= at
                    && span.to + BRIDGE * STEP_MS >= at
            };
            finding.since = self.spans.iter().rev().find(holds).map_or(at, |span| span.from);
        }
    }

    fn forget(&mut self, step: u64) {
        let oldest = Time(step.saturating_sub(KEPT) * STEP_MS);
        self.spans.retain(|span| span.to >= oldest);
        if self.spans.len() > MOST_SPANS {
            self.spans.drain(..self.spans.len() - MOST_SPANS);
        }
    }
}

/// Keeps what the rules said in the last [`STEPS`] steps.
fn push(recent: &mut VecDeque<Vec<Finding>>, said: Vec<Finding>) {
    if recent.len() == STEPS {
        recent.pop_front();
    }
    recent.push_back(said);
}

/// What the rules say of a step.
fn raw(data: &Data, past: &mut Past, step: u64, slo: &Slo) -> Vec<Finding> {
    if !is_watched(data, step) {
        return Vec::new();
    }
    rules::judge(&Scene::of(data, Time(step * STEP_MS), slo, past))
}

/// Steps after a pause of which nothing is concluded: the last of them has a second reading, so rates, of everything.
const SETTLING: u64 = 3;

/// Whether anything was read in this step. While the machine was suspended or warptop was stopped nothing was, and at once
/// after it answers are late and rates have no beginning: that says nothing of a server.
fn is_watched(data: &Data, step: u64) -> bool {
    let at = Time(step * STEP_MS);
    data.pause_before(at).is_none_or(|pause| at > pause.end + SETTLING * STEP_MS)
}

/// What holds after these steps, most harmful first: each finding in the words of the last step that had it.
fn settle(recent: &VecDeque<Vec<Finding>>) -> Vec<Finding> {
    let mut out: Vec<Finding> = Vec::new();
    // At the start of the data there are fewer steps to tell from.
    let known = recent.iter().filter(|step| !step.is_empty()).count();
    let enough = ENOUGH.min(known.max(1));
    for finding in recent.iter().rev().flatten().filter(|finding| !finding.cause.is_state()) {
        if find(&out, finding).is_some() {
            continue;
        }
        let spoke: Vec<&Finding> = recent.iter().filter_map(|step| find(step, finding)).collect();
        if spoke.len() < enough {
            continue;
        }
        let cost = spoke.iter().map(|f| f.cost).sum::<f64>() / spoke.len() as f64;
        let severe = |severity| spoke.iter().filter(|f| f.severity >= severity).count() >= enough;
        let severity = [Severity::Act, Severity::Watch].into_iter().find(|&s| severe(s)).unwrap_or(Severity::Ok);
        // What asks for nothing costs nothing, whatever it cost in a second of the last five.
        let cost = if severity == Severity::Ok { 0.0 } else { cost };
        out.push(Finding { severity, cost, ..finding.clone() });
    }
    settle_states(recent, enough, &mut out);
    if out.is_empty() {
        // Between one thing and another: what is there now is better than nothing.
        out.extend(recent.iter().rev().find(|step| !step.is_empty()).into_iter().flatten().cloned());
    }
    rules::rank(&mut out);
    out
}

/// One state for each subject: the most frequent one, of equals the newest. A subject of which nothing else is said has
/// one in any case, so that a change from one state to another is no gap.
fn settle_states(recent: &VecDeque<Vec<Finding>>, enough: usize, out: &mut Vec<Finding>) {
    // Requests that are there now deny at once that nothing runs.
    let holds = |finding: &&Finding| {
        finding.cause != Cause::Idle || recent.back().is_some_and(|step| find(step, finding).is_some())
    };
    let states = || recent.iter().rev().flatten().filter(|finding| finding.cause.is_state()).filter(holds);
    let mut best: Vec<(&Finding, usize)> = Vec::new();
    for finding in states() {
        let votes = recent.iter().filter(|step| find(step, finding).is_some()).count();
        match best.iter_mut().find(|(held, _)| held.subject == finding.subject) {
            Some(held) if votes > held.1 => *held = (finding, votes),
            Some(_) => {}
            None => best.push((finding, votes)),
        }
    }
    for (finding, votes) in best {
        let alone = out.iter().all(|other| other.subject != finding.subject);
        let newest = recent.back().is_some_and(|step| step.iter().any(|f| f.subject == finding.subject));
        if votes >= enough || alone && newest {
            out.push(finding.clone());
        }
    }
}

/// The finding of the same subject and cause.
fn find<'a>(findings: &'a [Finding], like: &Finding) -> Option<&'a Finding> {
    findings.iter().find(|other| other.subject == like.subject && other.cause == like.cause)
}

/// Lengthens or opens the spans of what holds in `step`.
fn note(spans: &mut Vec<Span>, findings: &[Finding], step: u64) {
    let at = Time(step * STEP_MS);
    for finding in findings {
        let oldest = at - BRIDGE * STEP_MS;
        let same =
            |span: &&mut Span| span.subject == finding.subject && span.cause == finding.cause && span.to >= oldest;
        match spans.iter_mut().rev().find(same) {
            Some(span) => {
                span.to = at;
                if finding.severity >= span.severity {
                    span.severity = finding.severity;
                    span.headline.clone_from(&finding.headline.short);
                }
            }
            None => spans.push(Span {
                subject: finding.subject,
                cause: finding.cause,
                severity: finding.severity,
                from: at,
                to: at,
                headline: finding.headline.short.clone(),
            }),
        }
    }
}

/// Appends later spans, of which those that begin at `seam` may continue earlier ones.
fn join(earlier: &mut Vec<Span>, later: Vec<Span>, seam: u64) {
    let reach = Time(seam * STEP_MS) - BRIDGE * STEP_MS;
    for span in later {
        let near = span.from <= Time((seam + BRIDGE) * STEP_MS);
        let same = |e: &&mut Span| {
            e.subject == span.subject && e.cause == span.cause && e.to >= reach && span.from - BRIDGE * STEP_MS <= e.to
        };
        match earlier.iter_mut().rev().find(same).filter(|_| near) {
            Some(first) => {
                first.to = span.to;
                if span.severity >= first.severity {
                    first.severity = span.severity;
                    first.headline = span.headline;
                }
            }
            None => earlier.push(span),
        }
    }
}
