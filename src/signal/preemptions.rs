//! Requests pushed out of the running batch for want of KV blocks: their work is done again.
//!
//! It must not know the queue. Invariant: judged from a rate, never from a total.

use std::borrow::Cow;

use crate::engine::Setting;
use crate::model::{Metric, Subject};
use crate::store::{Data, Window};

use super::{Detector, Finding, Level, engine_label, engines, flag, part};

pub(super) const DETECTOR: Detector = Detector {
    id: "preemptions",
    help: "Requests pushed back to the queue for want of KV blocks. Watch when there are any; act from one in two seconds.",
    judge,
};

/// From this rate on they cost throughput all the time, per second.
const CONSTANT: f64 = 0.5;

fn judge(data: &Data, window: Window) -> Vec<Finding> {
    let of_engine = |engine| {
        let subject = Subject::Engine(engine);
        let rate = data.mean(subject, Metric::Preemptions, window).value()?;
        let label = engine_label(data, engine, window.end);
        if rate <= 0.0 {
            return Some(Finding { level: Level::Ok, label, evidence: "none".to_owned(), advice: Cow::Borrowed("") });
        }
        let kv = data.latest(subject, Metric::KvUsage, window.end).reading;
        let kv = part(kv, |usage| format!("; KV {usage:.0} %"));
        let flag = |setting| flag(data, engine, window.end, setting);
        let (running, memory, kind) = (flag(Setting::Running), flag(Setting::KvMemory), flag(Setting::KvType));
        let advice = format!(
            "Requests lose their KV blocks and are computed again. Let fewer run at once{running}, give the pool more \
             memory{memory}, or quantise the KV cache{kind}."
        );
        let advice = Cow::Owned(advice);
        let level = if rate >= CONSTANT { Level::Act } else { Level::Watch };
        Some(Finding { level, label, evidence: format!("{rate:.2} a second{kv}"), advice })
    };
    engines(data, window.end).filter_map(of_engine).collect()
}
