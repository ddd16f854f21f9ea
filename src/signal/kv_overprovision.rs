//! The longest context an engine admits against what requests really use.
//!
//! It must not confuse this with memory: a paged pool holds nothing for tokens that never come.
//! Invariant: judged only from enough finished requests to speak of their tail.

use std::borrow::Cow;

use crate::derive::kv::{Buffers, kv};
use crate::engine::Setting;
use crate::store::{Data, Window};

use super::{Detector, Finding, Level, engine_label, engines, flag};

pub(super) const DETECTOR: Detector = Detector {
    id: "kv_overprovision",
    help: "Longest context admitted against the tail of what requests used. Watch from a factor of 4.",
    judge,
};

const NOTABLE: f64 = 4.0;
/// Below P95 a quantile says nothing about long requests.
const TAIL: f64 = 0.95;

fn judge(data: &Data, window: Window) -> Vec<Finding> {
    let mut buffers = Buffers::default();
    let of_engine = |engine| {
        let kv = kv(data, engine, window, &mut buffers);
        let (factor, max) = (kv.overprovision_x.value()?, kv.max_model_len.value()?);
        let used = kv.used_length.filter(|used| used.q >= TAIL)?;
        let label = engine_label(data, engine, window.end);
        let evidence = format!(
            "admits {max:.0} tokens, P{:.0} of {} requests used about {:.0} (at least {:.0}): {factor:.1}×",
            used.q * 100.0,
            used.n,
            used.tokens,
            used.lo
        );
        let context = flag(data, engine, window.end, Setting::Context);
        let advice = Cow::Owned(format!(
            "A paged pool holds nothing for it, but a single request may take that much: lower the longest \
             context{context} to what is really asked for, so that more requests surely fit at once."
        ));
        let level = if factor >= NOTABLE { Level::Watch } else { Level::Ok };
        Some(Finding { level, label, evidence, advice })
    };
    engines(data, window.end).filter_map(of_engine).collect()
}
