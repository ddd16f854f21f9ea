//! Requests that wait to be scheduled, and whether that lasts.
//!
//! It must not know what a latency is: a queue shows before it does. Invariant: time that was not
//! scraped counts neither way.

use std::borrow::Cow;

use crate::derive::queue::{Drain, queue};
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
    let queue = queue(data, engine, window);
    let running = figure(queue.running);
    let cap = queue.running_cap.value().map_or_else(String::new, |cap| format!(" of {cap:.0}"));
    let kv = data.latest(subject, Metric::KvUsage, window.end).reading;
    let evidence = format!(
        "{label}{waiting:.0} wait, {running}{cap} run{}; some waited in {:.0} % of the window; KV {} %",
        drains(queue.drain),
        share * 100.0,
        figure(kv)
    );
    let full = matches!(kv, Reading::Value(usage) if usage >= KV_FULL);
    let lasts = waiting > 0.0 && share >= LASTING;
    let at_cap = queue.running.value().zip(queue.running_cap.value()).is_some_and(|(running, cap)| running >= cap);
    let limit = if full {
        Limit::Memory
    } else if at_cap {
        Limit::Running
    } else {
        Limit::Unknown
    };
    let (level, advice) = if lasts {
        (Level::Act, lasting(limit, |setting| flag(data, engine, window.end, setting)).into())
    } else {
        (Level::Watch, Cow::Borrowed(PASSING))
    };
    Some(Finding { level, evidence, advice })
}

/// ", drains in 20 s".
fn drains(drain: Drain) -> String {
    match drain {
        Drain::In(seconds) if seconds < 9.95 => format!(", drains in {seconds:.1} s"),
        Drain::In(seconds) => format!(", drains in {seconds:.0} s"),
        Drain::Never => ", none finishes".to_owned(),
        Drain::Empty | Drain::Unknown(_) => String::new(),
    }
}

/// What keeps requests from being let in.
#[derive(Clone, Copy)]
enum Limit {
    /// No KV blocks are left.
    Memory,
    /// As many run as the engine allows.
    Running,
    /// Neither, or the limit is not known.
    Unknown,
}

/// What helps when requests wait all the time, with the engine's own names for it.
fn lasting(limit: Limit, flag: impl Fn(Setting) -> String) -> String {
    let (running, step) = (flag(Setting::Running), flag(Setting::StepTokens));
    match limit {
        Limit::Memory => {
            let (memory, kind) = (flag(Setting::KvMemory), flag(Setting::KvType));
            format!(
                "Requests wait for KV blocks: give the pool more memory{memory}, quantise the KV cache{kind}, or add a \
                 replica."
            )
        }
        Limit::Running => format!(
            "As many run as the engine allows: raise the limit on running requests{running} as long as memory and the \
             latency of each allow it, or add a replica."
        ),
        Limit::Unknown => format!(
            "Requests wait although KV blocks are free: the limit on running requests{running} or on tokens a step{step} \
             holds them back, or the engine is at its compute ceiling."
        ),
    }
}
