//! What holds a GPU's clocks down, what that is known from, and which instances share the GPU.
//!
//! It must not judge. Invariant: what is known from bits alone is not called counted.

use super::gaps::Gaps;
use crate::derive::throttle::{self, REASONS, Throttled, ThrottledBy};
use crate::model::{FactKey, Reading, Subject, Time};
use crate::store::Data;

/// The reasons that hold now, and those that held for a thousandth of the window or more.
pub(super) fn throttle_reasons(bits: Reading, throttled: &Throttled, gaps: &mut Gaps) -> Option<Vec<&'static str>> {
    let counted = |name| throttled.reasons().any(|(r, ms)| r.name == name && ms.value().is_some_and(|ms| ms >= 1.0));
    let now = |name| throttle::reasons(bits).any(|r| r.name == name);
    let known = bits.value().or_else(|| throttled.at_least().value());
    if known.is_none() {
        gaps.float("throttle_reasons", bits);
    }
    known.map(|_| REASONS.iter().map(|r| r.name).filter(|&name| now(name) || counted(name)).collect())
}

/// What throttling is judged from: the driver's counters, or the bits of its reasons alone.
pub(super) fn throttled_from(bits: Reading, throttled: &Throttled, gaps: &mut Gaps) -> Option<&'static str> {
    if throttled.at_least().value().is_some() {
        return Some(ThrottledBy::Counters.name());
    }
    gaps.float("throttled_from", bits).map(|_| ThrottledBy::Bits.name())
}

/// Profiles of the instances that a GPU is split into, as `3g.40gb`; empty where it is whole.
pub(super) fn mig_instances(data: &Data, gpu: Subject, at: Time) -> Vec<String> {
    let known = data.fact(gpu, FactKey::Instances, at).unwrap_or_default();
    known.split(", ").filter(|profile| !profile.is_empty()).map(str::to_owned).collect()
}
