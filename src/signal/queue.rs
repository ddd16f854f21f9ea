//! Requests that wait to be scheduled, and whether that lasts.
//!
//! It must not know what a latency is: a queue shows before it does. Invariant: time that was not
//! scraped counts neither way.

use std::borrow::Cow;

use crate::engine::Setting;
use crate::model::{Metric, Reading, Subject};
use crate::store::{Bin, Data, Window};

use super::{Detector, Finding, Level, engine_label, figure, flag};

pub(super) const DETECTOR: Detector = Detector {
    id: "queue",
    help: "Requests waiting to be scheduled. Watch when some wait; act when they wait for most of the window and still do.",
    judge,
};

const COLUMNS: usize = 30;
/// Share of the window from which a queue is no passing burst.
const LASTING: f64 = 0.8;
/// KV usage from which the pool is what requests wait for.
const KV_FULL: f64 = 85.0;

const PASSING: &str = "Bursts wait for a step or two: no harm while the tail of TTFT is fine.";

fn judge(data: &Data, window: Window) -> Vec<Finding> {
    data.engines().filter_map(|engine| of_engine(data, engine, window)).collect()
}

fn of_engine(data: &Data, engine: u8, window: Window) -> Option<Finding> {
    let subject = Subject::Engine(engine);
    let waiting = data.latest(subject, Metric::RequestsWaiting, window.end).reading.value()?;
    let mut columns = [Bin::default(); COLUMNS];
    data.fill(subject, Metric::RequestsWaiting, window, &mut columns);
    let measured = columns.iter().filter_map(Bin::mean);
    let (seen, queued) = measured.fold((0, 0), |(n, queued), mean| (n + 1, queued + usize::from(mean > 0.0)));
    let share = if seen == 0 { 0.0 } else { queued as f64 / f64::from(seen) };
    let label = engine_label(data, engine, window.end);
    if waiting == 0.0 && queued == 0 {
        return Some(Finding { level: Level::Ok, evidence: format!("{label}nobody waits"), advice: Cow::Borrowed("") });
    }
    let running = figure(data.latest(subject, Metric::RequestsRunning, window.end).reading);
    let kv = data.latest(subject, Metric::KvUsage, window.end).reading;
    let evidence = format!(
        "{label}{waiting:.0} wait, {running} run; some waited in {:.0} % of the window; KV {} %",
        share * 100.0,
        figure(kv)
    );
    let full = matches!(kv, Reading::Value(usage) if usage >= KV_FULL);
    let lasts = waiting > 0.0 && share >= LASTING;
    let (level, advice) = match (lasts, full) {
        (false, _) => (Level::Watch, Cow::Borrowed(PASSING)),
        (true, full) => (Level::Act, lasting(full, |setting| flag(data, engine, window.end, setting)).into()),
    };
    Some(Finding { level, evidence, advice })
}

/// What helps when requests wait all the time, with the engine's own names for it.
fn lasting(full: bool, flag: impl Fn(Setting) -> String) -> String {
    if full {
        let (memory, kind) = (flag(Setting::KvMemory), flag(Setting::KvType));
        return format!(
            "Requests wait for KV blocks: give the pool more memory{memory}, quantise the KV cache{kind}, or add a replica."
        );
    }
    let (running, step) = (flag(Setting::Running), flag(Setting::StepTokens));
    format!(
        "Requests wait although KV blocks are free: the limit on running requests{running} or on tokens a step{step} \
         holds them back, or the engine is at its compute ceiling."
    )
}
