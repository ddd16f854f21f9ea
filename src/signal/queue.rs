//! Requests that wait to be scheduled, and whether that lasts.
//!
//! It must not know what a latency is: a queue shows before it does. Invariant: time that was not
//! scraped counts neither way.

use std::borrow::Cow;

use crate::derive::kv::Layout;
use crate::derive::queue::{Drain, Queue, queue};
use crate::engine::Setting;
use crate::model::{Metric, Reading, Subject};
use crate::store::{Data, Window};

use super::{Detector, Finding, Level, engine_label, engines, flag, part};

pub(super) const DETECTOR: Detector = Detector {
    id: "queue",
    help: "Requests waiting to be scheduled, over at least 10 s. Watch when some wait; act when they wait for most of the \
           time that was scraped and still do.",
    judge,
};

/// A shorter window holds too few scrapes to tell a burst from a queue, ms …
const LEAST_MS: u64 = 10_000;
/// … and so does less measured time than this, ms.
const ENOUGH_MS: u64 = 5000;
/// Share of the measured time from which a queue is no passing burst.
const LASTING: f64 = 0.8;
/// KV usage from which the pool is what requests wait for.
const KV_FULL: f64 = 85.0;

const PASSING: &str = "Bursts wait for a step or two: no harm while the tail of TTFT is fine.";

fn judge(data: &Data, window: Window) -> Vec<Finding> {
    let window = Window::last(window.end, window.ms().max(LEAST_MS));
    engines(data, window.end).filter_map(|engine| of_engine(data, engine, window)).collect()
}

fn of_engine(data: &Data, engine: u8, window: Window) -> Option<Finding> {
    let subject = Subject::Engine(engine);
    let waiting = data.latest(subject, Metric::RequestsWaiting, window.end).reading.value()?;
    let time = data.series(subject, Metric::RequestsWaiting)?.above_zero(window);
    let label = engine_label(data, engine, window.end);
    if waiting == 0.0 && time.above_ms == 0 {
        return Some(Finding {
            level: Level::Ok,
            label,
            evidence: "nobody waits".to_owned(),
            advice: Cow::Borrowed(""),
        });
    }
    let queue = queue(data, engine, window);
    let kv = data.latest(subject, Metric::KvUsage, window.end).reading;
    let running = part(queue.running, |running| {
        let cap = part(queue.running_cap, |cap| format!(" of {cap:.0}"));
        format!(", {running:.0}{cap} run")
    });
    let share = time.share().map_or_else(String::new, |share| {
        format!("; some waited in {:.0} % of the {} scraped", share * 100.0, seconds(time.measured_ms))
    });
    let kv_words = part(kv, |usage| format!("; KV {usage:.0} %"));
    let evidence = format!("{waiting:.0} wait{running}{}{share}{kv_words}", drains(queue.drain));
    let lasts = waiting > 0.0 && time.measured_ms >= ENOUGH_MS && time.share().is_some_and(|share| share >= LASTING);
    let (level, advice) = if lasts {
        let limit = limit(&queue, Layout::of(data, engine, window.end), kv);
        (Level::Act, lasting(limit, |setting| flag(data, engine, window.end, setting)).into())
    } else {
        (Level::Watch, Cow::Borrowed(PASSING))
    };
    Some(Finding { level, label, evidence, advice })
}

/// "60 s" or "15 min".
fn seconds(ms: u64) -> String {
    let seconds = (ms + 500) / 1000;
    if seconds < 300 { format!("{seconds} s") } else { format!("{} min", (seconds + 30) / 60) }
}

/// What the engine's figures say it is that requests wait for.
fn limit(queue: &Queue, layout: Option<Layout>, kv: Reading) -> Limit {
    let at_cap = queue.running.value().zip(queue.running_cap.value()).is_some_and(|(running, cap)| running >= cap);
    // Who has a slot has its memory too: with slots nobody waits for blocks.
    let blocks = !matches!(layout, Some(Layout::Slots | Layout::Unified));
    match kv {
        _ if at_cap => Limit::Running,
        Reading::Value(usage) if blocks && usage >= KV_FULL => Limit::Memory,
        Reading::Value(_) if blocks => Limit::NotMemory,
        _ => Limit::Unknown,
    }
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
    /// Neither, as far as is known: KV blocks are free.
    NotMemory,
    /// Not known.
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
        Limit::NotMemory | Limit::Unknown => {
            let although = if matches!(limit, Limit::NotMemory) { " although KV blocks are free" } else { "" };
            format!(
                "Requests wait{although}: the limit on running requests{running} or on tokens a step{step} holds them \
                 back, or the engine is at its compute ceiling."
            )
        }
    }
}
