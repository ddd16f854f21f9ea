//! Serving engines: what each one exposes, translated into warptop's metrics.
//!
//! An adapter is pure: text in, values out. It must not know sockets, the store or the screen. A new
//! engine is one file and one line in [`ADAPTERS`]. Invariants: a body is recognised by what it holds,
//! never by its port; a name that an adapter does not know changes nothing about those it knows; what
//! a body does not expose is missing, not 0.

pub mod buckets;
pub mod continuity;
pub mod dcgm;
pub mod dynamo;
pub mod launch;
pub mod llamacpp;
pub mod lmdeploy;
pub mod lorax;
pub mod model_config;
pub mod nim;
pub mod ollama;
pub mod openai;
pub mod options;
pub mod progress;
pub mod promtext;
pub mod sglang;
pub mod shown;
pub mod table;
#[cfg(test)]
mod testing;
pub mod tgi;
pub mod triton;
pub mod trtllm;
pub mod vllm;

use std::collections::BTreeMap;
use std::fmt;

use crate::model::{Batch, Fact, Metric};
use promtext::Exposition;

/// What other modules need to know of an adapter.
#[derive(Clone, Copy, Debug)]
pub struct AdapterSpec {
    /// The engine's id: `kind` in the snapshot.
    pub id: &'static str,
    /// The engine's name as people write it.
    pub name: &'static str,
    /// Paths by whose answer it is recognised; the one that did is read with every scrape, and nothing else
    /// is read while it fails. The best comes first.
    pub main: &'static [&'static str],
    /// Paths read with every scrape besides; the engine may lack them.
    pub beside: &'static [&'static str],
    /// Paths asked after the start and once a minute, for what changes rarely.
    pub extras: &'static [&'static str],
    /// Its names for the settings that advice speaks of; what it does not let one set is left out.
    pub flags: &'static [(Setting, &'static str)],
    /// What to do about a metric that this engine does not expose as it was started: "start it with --metrics".
    pub hints: &'static [(Metric, &'static str)],
    /// What was read and tested.
    pub help: &'static str,
}

/// What an operator can change about an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Memory that the KV pool gets.
    KvMemory,
    /// Number type of the KV cache.
    KvType,
    /// Requests that run at once.
    Running,
    /// Tokens computed in one step.
    StepTokens,
    /// Longest context admitted.
    Context,
}

/// What an engine answered in one scrape, by path. Paths that failed are not there.
#[derive(Clone, Copy, Debug)]
pub struct Answers<'a>(&'a [(&'static str, &'a str)]);

impl<'a> Answers<'a> {
    /// Path and text of each answer.
    pub const fn new(answers: &'a [(&'static str, &'a str)]) -> Self {
        Self(answers)
    }

    /// The answer to a path.
    pub fn get(&self, path: &str) -> Option<&'a str> {
        self.0.iter().find(|(asked, _)| *asked == path).map(|&(_, text)| text)
    }

    /// The answer to a path as a text body; empty where there is none.
    pub fn body(&self, path: &str) -> Exposition<'a> {
        Exposition::new(self.get(path).unwrap_or_default())
    }
}

/// What an adapter remembers of an engine from scrape to scrape.
#[derive(Debug, Default)]
pub struct Memory {
    totals: BTreeMap<Metric, progress::Total>,
    settled: BTreeMap<Metric, progress::Settled>,
    llama: llamacpp::Known,
}

impl Memory {
    /// The total of a counter that moves only when a request ends, and what requests under way have done so
    /// far (each with a key that tells it from others). See [`progress`].
    pub fn total(&mut self, metric: Metric, counted: f64, under_way: &[(u64, f64)]) -> f64 {
        self.totals.entry(metric).or_default().step(counted, under_way)
    }

    /// Whether [`Self::total`] has been asked for this metric: then `counted` alone does not continue it.
    pub fn totals(&self, metric: Metric) -> bool {
        self.totals.contains_key(&metric)
    }

    /// Forgets all totals: they start anew from the counters.
    pub fn forget_totals(&mut self) {
        self.totals.clear();
        self.settled.clear();
    }

    /// The command line of the engine's process, where it is known.
    pub fn launched(&mut self, words: &[String]) {
        self.llama.launched(words);
    }

    /// A total that is the difference of two counters. See `progress.rs`.
    pub fn settled(&mut self, metric: Metric, witness: f64, difference: f64) -> f64 {
        self.settled.entry(metric).or_default().step(witness, difference)
    }
}

/// Reads one engine's metrics.
pub trait Adapter: Sync {
    /// What it is.
    fn spec(&self) -> &'static AdapterSpec;

    /// Whether an answer to `path`, which is one of [`AdapterSpec::main`] of any adapter, comes from this engine.
    fn detect(&self, path: &str, answer: &str) -> bool;

    /// Adds all that the answers say about engine number `engine` to `batch`. Facts are added every
    /// time; see [`only_news`]. Returns how many lines could not be read.
    fn translate(&self, answers: Answers<'_>, engine: u8, memory: &mut Memory, batch: &mut Batch) -> usize;

    /// Whether a path of [`AdapterSpec::beside`] is to be asked after the main path gave `main`.
    fn asks(&self, path: &str, main: &str, memory: &Memory) -> bool {
        let _ = (path, main, memory);
        true
    }

    /// The path among [`AdapterSpec::extras`] that makes this one, which comes after it, needless once it
    /// has been answered.
    fn stands_in(&self, path: &str) -> Option<&'static str> {
        let _ = path;
        None
    }

    /// Whether it passes on the names of other engines, which it runs.
    fn passes_on(&self) -> bool {
        false
    }

    /// Adds what the answer to one of [`AdapterSpec::extras`] says. An answer that cannot be read adds nothing.
    fn extra(&self, path: &str, answer: &[u8], engine: u8, batch: &mut Batch) {
        let _ = (path, answer, engine, batch);
    }
}

impl fmt::Debug for dyn Adapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.spec().id)
    }
}

/// Every engine warptop can read. One that takes another one's names for its own (Triton) comes before it, and one
/// that passes on those of an engine that tells more (Dynamo) comes after it.
pub const ADAPTERS: &[&dyn Adapter] = &[
    &triton::Triton,
    &vllm::Vllm,
    &sglang::Sglang,
    &tgi::Tgi,
    &lorax::Lorax,
    &llamacpp::LlamaCpp,
    &trtllm::TrtLlm,
    &ollama::Ollama,
    &lmdeploy::Lmdeploy,
    &dynamo::Dynamo,
    &nim::Nim,
    &llamacpp::router::LlamaRouter,
];

/// The adapter that knows this answer to `path`.
pub fn detect(path: &str, answer: &str) -> Option<&'static dyn Adapter> {
    ADAPTERS.iter().copied().find(|adapter| adapter.detect(path, answer))
}

/// The name of another engine whose metrics this answer to `path`, taken for one of `adapter`, holds too. Those
/// that one engine passes on for another are no sign of two.
pub fn also(path: &str, answer: &str, adapter: &dyn Adapter) -> Option<&'static str> {
    let alone = |other: &&&dyn Adapter| !other.passes_on() && other.spec().id != adapter.spec().id;
    let mut others = ADAPTERS.iter().filter(|_| !adapter.passes_on()).filter(alone);
    others.find(|other| other.detect(path, answer)).map(|other| other.spec().name)
}

/// Whether a text body has a sample whose name begins with one of `prefixes`.
pub fn holds(answer: &str, prefixes: &[&str]) -> bool {
    Exposition::new(answer).samples().any(|sample| prefixes.iter().any(|prefix| sample.name.starts_with(prefix)))
}

/// Paths to recognise an engine by, in the order in which they are asked.
pub fn fingerprints() -> impl Iterator<Item = &'static str> {
    let all = || ADAPTERS.iter().flat_map(|adapter| adapter.spec().main).copied();
    all().enumerate().filter(move |&(place, path)| all().take(place).all(|before| before != path)).map(|(_, path)| path)
}

/// The name of the engine with this id, as people write it.
pub fn name(id: &str) -> Option<&'static str> {
    spec(id).map(|spec| spec.name)
}

/// What to do about a metric that the engine with this id does not expose.
pub fn hint(id: &str, metric: Metric) -> Option<&'static str> {
    spec(id)?.hints.iter().find(|(of, _)| *of == metric).map(|&(_, hint)| hint)
}

/// What the engine with this id calls a setting.
pub fn flag(id: &str, setting: Setting) -> Option<&'static str> {
    spec(id)?.flags.iter().find(|(of, _)| *of == setting).map(|&(_, flag)| flag)
}

fn spec(id: &str) -> Option<&'static AdapterSpec> {
    ADAPTERS.iter().map(|adapter| adapter.spec()).find(|spec| spec.id == id)
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
        let of = |text| detect("/metrics", text).map(|a| a.spec().id);
        assert_eq!(of(include_str!("../../assets/metrics/vllm-0.10.2-load.prom")), Some("vllm"));
        assert_eq!(of(include_str!("../../assets/metrics/llama.cpp-b11549.prom")), Some("llama.cpp"));
        assert_eq!(of("<!DOCTYPE html><p>vllm:num_requests_running 1"), None);
        assert_eq!(of("# HELP vllm:num_requests_running\nup 1\n"), None);
        assert_eq!(of(""), None);
    }

    #[test]
    fn two_engines_in_one_body_are_noticed_where_none_passes_the_other_on() {
        let (vllm, sglang) = ("vllm:num_requests_running 1\n", "sglang:num_running_reqs 2\n");
        let of = |text: &str| {
            let adapter = detect("/metrics", text).unwrap();
            (adapter.spec().id, also("/metrics", text, adapter))
        };
        assert_eq!(of(vllm), ("vllm", None));
        assert_eq!(of(&format!("{sglang}{vllm}")), ("vllm", Some("SGLang")));
        assert_eq!(of(&format!("nv_inference_count 1\n{vllm}")), ("triton", None));
        assert_eq!(of(&format!("{vllm}dynamo_component_requests_total 1\n")), ("vllm", None));
        assert_eq!(of(include_str!("../../assets/metrics/vllm-0.25.1-overload.prom")), ("vllm", None));
    }

    #[test]
    fn ids_are_unique() {
        let mut ids: Vec<_> = ADAPTERS.iter().map(|a| a.spec().id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), ADAPTERS.len());
    }

    #[test]
    fn every_path_is_asked_once() {
        let paths: Vec<_> = fingerprints().collect();
        assert_eq!(paths.first(), Some(&"/metrics"));
        assert!(paths.iter().enumerate().all(|(i, path)| !paths[..i].contains(path)), "{paths:?}");
        assert!(ADAPTERS.iter().all(|a| a.spec().main.iter().all(|path| paths.contains(path))));
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
