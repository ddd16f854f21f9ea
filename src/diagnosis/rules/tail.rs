//! The tail of latencies: an objective of the user that is missed, or a P99 far above the median.

use super::super::scene::{EngineScene, QUANTILES_MS, Scene, WINDOW_MS};
use super::super::slo::{Attainment, Objective};
use super::super::words::Secs;
use super::super::{Cause, Finding, Fix, Sentence, Severity};
use super::Rule;
use crate::derive::lives::{self, Lives};
use crate::derive::quantile::{Quantile, least, quantile};
use crate::model::{Metric, Subject};
use crate::store::{HistogramWindow, Window};

pub(super) const RULE: Rule = Rule { causes: &[Cause::TailLatency], judge };

/// How many times the median the P99 has to be, bounds against bounds.
const FAR: f64 = 10.0;
/// Tails below this are no matter, s.
const LEAST_S: f64 = 0.5;
/// An engine that has done nothing for so long has no clients whose latency could be judged, ms.
const STILL_MS: u64 = 5_000;

fn judge(scene: &Scene<'_>, findings: &mut Vec<Finding>) {
    let mut window = HistogramWindow::default();
    for engine in scene.engines.iter().filter(|engine| is_judged(engine)) {
        let missed = of_engine(scene, engine, &mut window).find(|one| one.missed() == Some(true));
        let missed = missed.and_then(|one| Some(missed_words(engine, one.objective, one.seen?)));
        findings.extend(missed.or_else(|| far(scene, engine, &mut window)));
    }
}

/// Every objective of every engine beside what was seen of it.
pub(in crate::diagnosis) fn attainments(scene: &Scene<'_>) -> Vec<Attainment> {
    let mut window = HistogramWindow::default();
    scene.engines.iter().flat_map(|engine| of_engine(scene, engine, &mut window).collect::<Vec<_>>()).collect()
}

/// Whether the latencies of an engine are those of its clients now.
fn is_judged(engine: &EngineScene) -> bool {
    engine.is_read() && !engine.is_still(STILL_MS)
}

fn of_engine<'a>(
    scene: &'a Scene<'_>,
    engine: &'a EngineScene,
    window: &'a mut HistogramWindow,
) -> impl Iterator<Item = Attainment> + 'a {
    scene.slo.objectives().iter().map(move |&objective| {
        let seen =
            is_judged(engine).then(|| over(scene, engine, objective.metric, objective.quantile, window)).flatten();
        let (seen, lives) = seen.unzip();
        Attainment { engine: engine.index, objective, seen, lives: lives.unwrap_or_default() }
    })
}

/// A quantile over the shortest window that has enough requests, at most a minute.
fn over(
    scene: &Scene<'_>,
    engine: &EngineScene,
    metric: Metric,
    q: f64,
    out: &mut HistogramWindow,
) -> Option<(Quantile, Lives)> {
    let mut lives = Lives::default();
    for ms in [WINDOW_MS, WINDOW_MS * 2, QUANTILES_MS] {
        lives = lives::window(scene.data, Subject::Engine(engine.index), metric, Window::last(scene.at, ms), out);
        if out.n >= least(q) {
            break;
        }
    }
    Some((quantile(out, q)?, lives))
}

fn missed_words(engine: &EngineScene, objective: Objective, seen: Quantile) -> Finding {
    let Objective { metric, quantile, most_s } = objective;
    let (name, q) = (name(metric), (quantile * 100.0).round());
    let words = Sentence::new(
        format!("{name} P{q} is {} and shall be at most {}{}", Secs(seen.value), Secs(most_s), part(engine)),
        format!("{name} P{q} {} > {}", Secs(seen.value), Secs(most_s)),
    );
    let excess = (1.0 - most_s / seen.value.max(most_s)).max(0.1);
    shown(
        Finding::new(Subject::Engine(engine.index), Cause::TailLatency, Severity::Act, excess * 0.3, words),
        engine,
        metric,
        seen,
    )
}

fn far(scene: &Scene<'_>, engine: &EngineScene, window: &mut HistogramWindow) -> Option<Finding> {
    let recent = Window::last(scene.at, WINDOW_MS * 2);
    lives::window(scene.data, Subject::Engine(engine.index), Metric::Ttft, recent, window);
    let (p50, p99) = (quantile(window, 0.5)?, quantile(window, 0.99)?);
    if !p99.enough || p99.lo < LEAST_S || p99.lo < p50.hi? * FAR {
        return None;
    }
    let words = Sentence::new(
        format!("TTFT P99 is {} beside a median of {}{}", Secs(p99.value), Secs(p50.value), part(engine)),
        format!("TTFT P99 {}, P50 {}", Secs(p99.value), Secs(p50.value)),
    );
    let finding = Finding::new(Subject::Engine(engine.index), Cause::TailLatency, Severity::Watch, 0.1, words);
    Some(shown(finding, engine, Metric::Ttft, p99))
}

fn shown(finding: Finding, engine: &EngineScene, metric: Metric, seen: Quantile) -> Finding {
    let bound = seen.hi.map_or_else(|| "no bound".to_owned(), |hi| Secs(hi).to_string());
    finding
        .shows((metric.key(), "s", "engine"), Some(seen.value), |s| {
            format!("{} {} (between {} and {bound}, n {})", name(metric), Secs(s), Secs(seen.lo), seen.n)
        })
        .shows(("latency_split.queue", "s", "engine"), engine.split.map(|split| split.queue), |s| {
            format!("{} in the queue on average", Secs(s))
        })
        .fix(Fix::todo(
            "See the other findings: what makes the tail is among them where it is known",
            "see the other findings",
        ))
}

/// The part of a request that takes longest.
fn part(engine: &EngineScene) -> String {
    let Some(split) = engine.split.filter(|split| split.total() > 0.0) else { return String::new() };
    let parts = [(split.queue, "the queue"), (split.prefill, "prefill"), (split.decode, "decode")];
    let longest = parts.into_iter().max_by(|a, b| a.0.total_cmp(&b.0));
    longest.map_or_else(String::new, |(s, name)| format!("; {name} takes {} of {}", Secs(s), Secs(split.total())))
}

const fn name(metric: Metric) -> &'static str {
    match metric {
        Metric::Ttft => "TTFT",
        Metric::Itl => "ITL",
        Metric::Tpot => "TPOT",
        Metric::E2e => "E2E",
        _ => "queue time",
    }
}
