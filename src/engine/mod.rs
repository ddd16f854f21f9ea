//! Serving engines: what each one exposes, translated into warptop's metrics.
//!
//! An adapter is pure: text in, values out. It must not know sockets, the store or the screen. A new
//! engine is one file and one line in [`ADAPTERS`]. Invariants: a body is recognised by what it holds,
//! never by its port; a name that an adapter does not know changes nothing about those it knows; what
//! a body does not expose is missing, not 0.

pub mod buckets;
pub mod promtext;
pub mod vllm;

use std::fmt;

use crate::model::{Batch, Fact};
use promtext::Exposition;

/// What other modules need to know of an adapter.
#[derive(Clone, Copy, Debug)]
pub struct AdapterSpec {
    /// The engine's id: `kind` in the snapshot.
    pub id: &'static str,
    /// The engine's name as people write it.
    pub name: &'static str,
    /// Paths asked once after the start, for what the metrics do not say.
    pub extras: &'static [&'static str],
    /// What was read and tested.
    pub help: &'static str,
}

/// Reads one engine's metrics.
pub trait Adapter: Sync {
    /// What it is.
    fn spec(&self) -> &'static AdapterSpec;

    /// Whether the body comes from this engine.
    fn detect(&self, body: Exposition<'_>) -> bool;

    /// Adds all that the body says about engine number `engine` to `batch`. Facts are added every
    /// time; see [`only_news`]. Returns how many lines could not be read.
    fn translate(&self, body: Exposition<'_>, engine: u8, batch: &mut Batch) -> usize;

    /// Adds what the answer to one of [`AdapterSpec::extras`] says. An answer that cannot be read adds nothing.
    fn extra(&self, path: &str, answer: &[u8], engine: u8, batch: &mut Batch);
}

impl fmt::Debug for dyn Adapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.spec().id)
    }
}

/// Every engine warptop can read.
pub const ADAPTERS: &[&dyn Adapter] = &[&vllm::Vllm];

/// The adapter that knows this body.
pub fn detect(body: Exposition<'_>) -> Option<&'static dyn Adapter> {
    ADAPTERS.iter().copied().find(|adapter| adapter.detect(body))
}

/// Keeps of `facts` only what was not said before, and remembers it in `known`.
pub fn only_news(facts: &mut Vec<Fact>, known: &mut Vec<Fact>) {
    facts.retain(|fact| {
        match known.iter_mut().find(|k| k.subject == fact.subject && k.key == fact.key) {
            Some(old) if old.text == fact.text => return false,
            Some(old) => *old = fact.clone(),
            None => known.push(fact.clone()),
        }
        true
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{FactKey, SourceId, Subject, Time};

    #[test]
    fn a_body_is_recognised_by_its_names() {
        let of = |text| detect(Exposition::new(text)).map(|a| a.spec().id);
        assert_eq!(of(include_str!("../../assets/metrics/vllm-0.10.2-load.prom")), Some("vllm"));
        assert_eq!(of(include_str!("../../assets/metrics/llama.cpp-b11549.prom")), None);
        assert_eq!(of("<!DOCTYPE html><p>vllm:num_requests_running 1"), None);
        assert_eq!(of("# HELP vllm:num_requests_running\nup 1\n"), None);
        assert_eq!(of(""), None);
    }

    #[test]
    fn ids_are_unique() {
        let mut ids: Vec<_> = ADAPTERS.iter().map(|a| a.spec().id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), ADAPTERS.len());
    }

    #[test]
    fn a_fact_is_told_once_and_again_when_it_changes() {
        let mut known = Vec::new();
        let told = ["a", "a", "b"].map(|text| {
            let mut batch = Batch::new(SourceId::Engine(0), Time(0), 1);
            batch.fact(Subject::Engine(0), FactKey::Model, text);
            only_news(&mut batch.facts, &mut known);
            batch.facts.len()
        });
        assert_eq!((told, known.len()), ([1, 0, 1], 1));
    }
}
