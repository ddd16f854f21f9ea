//! The diagnosis: why a server is slow, from which figures, and what would help. The one place that concludes.
//!
//! It is a pure function of the store and a moment, whatever part of the data a screen shows: [`diagnose`]. Rules judge the
//! figures of the last few seconds (`scene.rs`); what held in most of the last seconds is a finding (`timeline.rs`), ranked
//! by what it costs clients. A new rule is one file in `rules/` and one line in [`rules::RULES`]. It must not know how a
//! finding is drawn. Invariants: a finding names the figures it was judged from; nothing is concluded about an
//! engine that could not be read; `act` needs harm to clients; where nothing can be judged it says so.

mod cause;
mod changes;
mod finding;
pub mod level;
mod past;
mod rules;
mod scene;
mod slo;
mod timeline;
pub(crate) mod words;

pub use cause::Cause;
pub use changes::ChangeLog;
pub use finding::{ClientView, Diagnosis, Evidence, Finding, Fix, LatencySplit, Sentence, Severity};
pub use rules::RULES;
pub use scene::{QUANTILES_MS, WINDOW_MS};
pub use slo::{Attainment, Objective, Slo, SloError};
pub use timeline::{Span, Timeline};

use crate::model::Time;
use crate::store::Data;

/// The diagnosis of the moment `at`, judged for `slo`.
pub fn diagnose(data: &Data, at: Time, slo: &Slo) -> Diagnosis {
    let mut timeline = Timeline::new(slo.clone());
    timeline.follow(data, at);
    timeline.complete(data);
    timeline.diagnosis().clone()
}

/// Every objective of `slo` beside what the clients of each engine saw up to `at`, as the rule for the tail judges it.
pub fn attainments(data: &Data, at: Time, slo: &Slo) -> Vec<Attainment> {
    rules::attainments(&scene::Scene::of(data, at, slo, &mut past::Past::default()))
}

#[cfg(test)]
mod tests;
