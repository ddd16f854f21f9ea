//! What the processes of an engine tell beside its answers, and how it gets into the engine's batches.
//!
//! It must not read `/proc` itself. Invariant: what the engine itself answers counts more than what its
//! command line says.

use std::sync::Arc;

use super::model_file;
use super::owner::Process;
use super::scan::Processes;
use crate::engine::model_config::{self, KvBytes};
use crate::engine::options::{self, Options};
use crate::model::{Batch, Fact, FactKey, Metric, Subject};

/// What the command line says, and what follows from it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::sampler) struct Launched {
    options: Options,
    /// The KV cache of a token, or why it is not known; `None` where nothing says which model it is.
    kv: Option<Result<KvBytes, String>>,
}

/// What is told of one engine.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::sampler) struct Told {
    /// Ids of its processes; empty when they are no longer known, `None` when they never were.
    pub(in crate::sampler) pids: Option<Arc<str>>,
    pub(in crate::sampler) launched: Option<Arc<Launched>>,
    /// Id and command line of the process that answers.
    pub(in crate::sampler) command: Option<Arc<(u32, Vec<String>)>>,
}

/// The options with which the engine was started in which `process` answers: its own, or those of the
/// process that started it, when it has given itself a title that holds none.
pub(super) fn options_of(process: Process, processes: &Processes) -> Options {
    let own = processes.get(process.pid).map(|seen| (process.pid, seen));
    let family = own.and_then(|(_, seen)| seen.launch).map(|launch| launch.family);
    let chain = own.into_iter().chain(processes.ancestors(process.pid));
    let engine = chain.filter_map(|(_, seen)| Some((seen.launch?, &seen.words)));
    let mut given = engine.take_while(|(launch, _)| Some(launch.family) == family).filter(|(_, words)| words.len() > 1);
    given.next().map(|(launch, words)| options::read(launch.options, words)).unwrap_or_default()
}

/// Why the cache of a token is not known when the files of its model do not answer.
pub(super) const UNREAD: &str = "its files do not answer in time";

impl Launched {
    /// Works out what follows from the options; reads the model's configuration.
    pub(super) fn of(process: Process, options: Options) -> Self {
        let kv = options.model.as_ref().map(|model| {
            let config = model_file::read(process.pid, model)?;
            model_config::kv_bytes(&config.text, &model.kv, config.quantised)
        });
        Self { options, kv }
    }

    /// When reading took too long.
    pub(super) fn unread(options: Options) -> Self {
        let kv = options.model.is_some().then(|| Err(UNREAD.to_owned()));
        Self { options, kv }
    }
}

impl Told {
    /// The process is gone, and with it what it told.
    pub(in crate::sampler) fn forget(&mut self) {
        *self = Self { pids: self.pids.is_some().then(Arc::default), ..Self::default() };
    }

    /// Adds it to a batch of engine number `index`, to which `known` facts were told before.
    pub(in crate::sampler) fn add(&self, index: u8, batch: &mut Batch, known: &[Fact]) {
        let engine = Subject::Engine(index);
        if let Some(pids) = &self.pids {
            batch.fact(engine, FactKey::Pids, pids);
        }
        let nothing = Launched::default();
        let launched = self.launched.as_deref().unwrap_or(&nothing);
        // A scrape that failed says nothing, and neither does the command line then.
        if !batch.samples.is_empty() {
            let caps = &launched.options;
            let cap = caps.requests_cap.as_ref().filter(|(n, _)| offer(batch, engine, Metric::RequestsCap, *n as f64));
            source(batch, engine, FactKey::RequestsCapSource, cap.map(|(_, option)| option.as_str()), known);
            if let Some(n) = caps.queue_cap {
                offer(batch, engine, Metric::QueueCap, n as f64);
            }
            let words = launched.kv.as_ref().map(|kv| match kv {
                Ok(kv) => kv.how.clone(),
                Err(why) => format!("not known: {why}"),
            });
            if let Some(Ok(kv)) = &launched.kv {
                offer(batch, engine, Metric::KvBytesPerToken, kv.per_token);
                offer(batch, engine, Metric::KvCopies, kv.copies);
            }
            source(batch, engine, FactKey::KvBytesSource, words.as_deref(), known);
        }
    }
}

/// Adds a value where the engine has not given it; whether it was added.
fn offer(batch: &mut Batch, engine: Subject, metric: Metric, value: f64) -> bool {
    let of = |sample: &crate::model::Sample| sample.subject == engine && sample.metric == metric;
    if batch.samples.iter().any(|sample| of(sample) && sample.reading.value().is_some()) {
        return false;
    }
    batch.samples.retain(|sample| !of(sample));
    batch.push(engine, metric, value);
    true
}

/// Tells where a value comes from, unless the engine did; takes back what no longer holds.
fn source(batch: &mut Batch, engine: Subject, key: FactKey, words: Option<&str>, known: &[Fact]) {
    let of = |fact: &Fact| fact.subject == engine && fact.key == key;
    if batch.facts.iter().any(of) {
        return;
    }
    let before = known.iter().any(|fact| of(fact) && !fact.text.is_empty());
    match words {
        Some(words) => batch.fact(engine, key, words),
        None if before => batch.fact(engine, key, ""),
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::launch::Family;
    use crate::model::{Reading, SourceId, Time, Why};

    const ENGINE: Subject = Subject::Engine(0);

    fn told(line: &str) -> Told {
        let words: Vec<_> = line.split(' ').collect();
        let launched = Launched { options: options::read(Family::Vllm, &words), kv: None };
        Told { launched: Some(Arc::new(launched)), ..Told::default() }
    }

    fn batch(cap: Option<Reading>) -> Batch {
        let mut batch = Batch::new(SourceId::Engine(0), Time(1), 1000);
        batch.push(ENGINE, Metric::RequestsRunning, 3.0);
        if let Some(cap) = cap {
            batch.push(ENGINE, Metric::RequestsCap, cap);
        }
        batch
    }

    fn cap(batch: &Batch) -> Vec<Reading> {
        batch.samples.iter().filter(|s| s.metric == Metric::RequestsCap).map(|s| s.reading).collect()
    }

    fn facts(batch: &Batch) -> Vec<(FactKey, &str)> {
        batch.facts.iter().map(|fact| (fact.key, &*fact.text)).collect()
    }

    #[test]
    fn what_the_engine_answers_counts_more() {
        let told = told("vllm serve m --max-num-seqs 256");
        for (own, expected) in
            [(None, 256.0), (Some(Reading::Missing(Why::Unsupported)), 256.0), (Some(Reading::Value(64.0)), 64.0)]
        {
            let mut batch = batch(own);
            told.add(0, &mut batch, &[]);
            assert_eq!(cap(&batch), [Reading::Value(expected)]);
            let source: &[_] = if expected > 200.0 { &[(FactKey::RequestsCapSource, "--max-num-seqs")] } else { &[] };
            assert_eq!(facts(&batch), source);
        }
        let mut failed = Batch::new(SourceId::Engine(0), Time(1), 1000);
        told.add(0, &mut failed, &[]);
        assert!(failed.samples.is_empty() && failed.facts.is_empty());
    }

    #[test]
    fn a_restart_without_the_option_takes_its_source_back() {
        let mut first = batch(None);
        told("vllm serve m --max-num-seqs 256").add(0, &mut first, &[]);
        let mut second = batch(None);
        told("vllm serve m").add(0, &mut second, &first.facts);
        assert_eq!((facts(&second), cap(&second)), (vec![(FactKey::RequestsCapSource, "")], vec![]));
        let mut third = batch(None);
        told("vllm serve m").add(0, &mut third, &[]);
        assert_eq!(facts(&third), []);
    }

    #[test]
    fn the_cache_of_a_token_comes_with_its_calculation_or_the_reason() {
        let with =
            |kv| Told { launched: Some(Arc::new(Launched { kv: Some(kv), ..Launched::default() })), ..Told::default() };
        let mut good = batch(None);
        with(Ok(KvBytes { per_token: 131_072.0, copies: 2.0, how: "config.json: …".into() })).add(0, &mut good, &[]);
        let of = |metric| good.samples.iter().find(|s| s.metric == metric).and_then(|s| s.reading.value());
        assert_eq!([of(Metric::KvBytesPerToken), of(Metric::KvCopies)], [Some(131_072.0), Some(2.0)]);
        assert_eq!(facts(&good), [(FactKey::KvBytesSource, "config.json: …")]);
        let mut bad = batch(None);
        with(Err("of a window".into())).add(0, &mut bad, &[]);
        assert_eq!((bad.samples.len(), facts(&bad)), (1, vec![(FactKey::KvBytesSource, "not known: of a window")]));
    }

    #[test]
    fn options_of_a_process_with_a_title_are_those_of_its_parent() {
        let processes = Processes::for_test(&[
            "11 1 vllm serve m --max-num-seqs 8 --api-server-count 2",
            "12 11 VLLM::APIServer_0",
            "13 1 VLLM::APIServer_0",
        ]);
        let cap = |pid| options_of(Process { pid, start: 7 }, &processes).requests_cap.map(|(n, _)| n);
        assert_eq!([cap(11), cap(12), cap(13), cap(99)], [Some(8), Some(8), None, None]);
    }
}
