//! The life of one engine: recognised by its first body, asked for extras once, a gap while it is down,
//! asked again after a restart.
//!
//! It must not know any engine's names (that is `engine`). Invariants: a broken engine costs only its
//! own values; every scrape is one batch, good or bad, dated in the middle of the read.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::MissedTickBehavior;

use super::engines::{Identity, Net};
use super::fingerprint::{self, Recognised};
use super::flaws::{Flaws, whole_lines};
use super::scrape::{self, Trouble};
use crate::engine::promtext::{self, Exposition};
use crate::engine::{self, Adapter, Answers, Memory, launch};
use crate::model::{Batch, Fact, FactKey, Kind, Metric, SourceId, SourceState, Subject, Time, text};
use crate::net::endpoint::Endpoint;

/// Reads engine number `index` for ever.
pub(super) async fn run(net: Arc<Net>, index: u8, endpoint: Endpoint) {
    let mut watch = Watch::new(net, index, endpoint);
    watch.introduce();
    let mut ticks = tokio::time::interval(watch.net.timing.period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        for _ in 0..ticks_to_wait(watch.failures, watch.net.timing.period) {
            ticks.tick().await;
        }
        watch.scrape().await;
    }
}

/// Periods until the next try: twice as many after each failure, as long as that is soon.
fn ticks_to_wait(failures: u32, period: Duration) -> u32 {
    const SOON: Duration = Duration::from_secs(5);
    let most = u32::try_from(SOON.as_millis() / period.as_millis().max(1)).unwrap_or(u32::MAX);
    1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX).min(5).min(most.max(1))
}

/// Tries for the extras after each start of the engine.
const EXTRA_TRIES: u8 = 3;

/// From one asking for the extras to the next, ms.
const EXTRAS_MS: u64 = 60_000;

/// The life of one engine.
struct Watch {
    net: Arc<Net>,
    index: u8,
    endpoint: Endpoint,
    engine: Option<Recognised>,
    /// Reused from scrape to scrape: the answer to the main path, and those to the paths beside it.
    body: Vec<u8>,
    beside: Vec<Vec<u8>>,
    batch: Batch,
    memory: Memory,
    /// The process whose command line is known.
    owner: Option<u32>,
    /// What the extras said, added to every scrape.
    extras: Batch,
    extra_tries: u8,
    extras_due: Time,
    /// Facts told already.
    known: Vec<Fact>,
    started: Option<f64>,
    ranks: Option<Arc<str>>,
    /// The totals read last.
    totals: Vec<(Metric, f64)>,
    failures: u32,
    last_good: Option<Time>,
    last_full: Option<Time>,
    flaws: Flaws,
    /// The state told last was Ok.
    told_ok: bool,
}

impl Watch {
    fn new(net: Arc<Net>, index: u8, endpoint: Endpoint) -> Self {
        let now = net.context.clock.now();
        let empty = || Batch::new(SourceId::Engine(index), now, net.timing.valid_ms());
        Self {
            batch: empty(),
            extras: empty(),
            net,
            index,
            endpoint,
            engine: None,
            body: Vec::new(),
            beside: Vec::new(),
            memory: Memory::default(),
            owner: None,
            extra_tries: EXTRA_TRIES,
            extras_due: now,
            known: Vec::new(),
            started: None,
            ranks: None,
            totals: Vec::new(),
            failures: 0,
            last_good: None,
            last_full: None,
            flaws: Flaws::default(),
            told_ok: false,
        }
    }

    const fn subject(&self) -> Subject {
        Subject::Engine(self.index)
    }

    /// Tells that there is such an engine, before anything is read.
    fn introduce(&mut self) {
        self.batch.reset(self.net.context.clock.now());
        self.name();
        self.batch.state = Some(SourceState::Starting);
        self.send();
    }

    fn name(&mut self) {
        let subject = self.subject();
        let place = self.endpoint.place();
        let mut told = self.batch.facts.iter().chain(&self.known);
        let behind = told.find(|fact| fact.key == FactKey::Behind).map(|fact| format!(" behind {}", fact.text));
        let of = |engine: Recognised| format!("{}{} {place}", engine.adapter.spec().name, behind.unwrap_or_default());
        let name = self.engine.map_or_else(|| place.clone(), of);
        self.batch.fact(subject, FactKey::Url, self.endpoint.shown());
        self.batch.fact(subject, FactKey::Name, &name);
    }

    fn send(&mut self) {
        self.net.told(self.index).add(self.index, &mut self.batch, &self.known);
        engine::only_news(&mut self.batch.facts, &mut self.known);
        self.net.context.sink.send(&self.batch);
    }

    async fn scrape(&mut self) {
        self.follow();
        self.learn();
        let clock = Arc::clone(&self.net.context.clock);
        let (at, begun) = (clock.now(), clock.micros());
        let read = self.read().await;
        let took = clock.micros().saturating_sub(begun);
        self.batch.reset(at + took / 2000);
        self.batch.took_us = u32::try_from(took).unwrap_or(u32::MAX);
        match read {
            Ok(found) => {
                self.translate(found);
                self.succeed(found);
                self.send();
                self.ask_extras(found.adapter).await;
            }
            Err(trouble) => {
                self.fail(&trouble);
                self.send();
            }
        }
    }

    /// Goes where the roster says: a restart may have moved the engine.
    fn follow(&mut self) {
        let Some(listed) = self.net.endpoint(self.index).filter(|listed| *listed != self.endpoint) else { return };
        self.endpoint = listed;
        // It was down: there is a gap. It is tried at once.
        self.failures = self.failures.min(1);
        self.renew();
        self.batch.reset(self.net.context.clock.now());
        self.name();
        self.send();
    }

    /// Reads the command line of the process that answers, once for each process: it says what the answers
    /// leave open.
    fn learn(&mut self) {
        let Some(pid) = self.net.owner(self.index).filter(|pid| self.owner != Some(*pid)) else { return };
        self.owner = Some(pid);
        if let Ok(line) = std::fs::read(format!("/proc/{pid}/cmdline")) {
            self.memory.launched(&launch::words(&line));
        }
    }

    /// Forgets what a restart may change.
    fn renew(&mut self) {
        self.extra_tries = EXTRA_TRIES;
        self.extras.reset(self.batch.at);
    }

    /// Reads the main answer, recognising the engine where that is due, and then those beside it.
    async fn read(&mut self) -> Result<Recognised, Trouble> {
        let limit = self.net.timing.timeout;
        let found = match self.engine {
            Some(known) => {
                scrape::get(&self.net.client, &self.endpoint, known.path, limit, &mut self.body).await?;
                let still_it = known.adapter.detect(known.path, &promtext::decode(&self.body));
                if still_it { Some(known) } else { None }
            }
            None => None,
        };
        let found = match found {
            Some(found) => found,
            None => fingerprint::recognise(&self.net.client, &self.endpoint, limit, &mut self.body).await?,
        };
        let beside = found.adapter.spec().beside;
        self.beside.resize_with(beside.len(), Vec::new);
        let main = promtext::decode(&self.body);
        for (path, body) in beside.iter().zip(&mut self.beside) {
            body.clear();
            let asked = *path != found.path && found.adapter.asks(path, &main, &self.memory);
            if asked && scrape::get(&self.net.client, &self.endpoint, path, limit, body).await.is_err() {
                body.clear();
            }
        }
        Ok(found)
    }

    /// Reads the answers and notes what is wrong with them.
    fn translate(&mut self, found: Recognised) {
        let beside = found.adapter.spec().beside.iter().zip(&self.beside).filter(|(_, body)| !body.is_empty());
        let bodies = std::iter::once((found.path, &self.body)).chain(beside.map(|(&path, body)| (path, body)));
        let mut cut = 0;
        let texts: Vec<_> = bodies
            .map(|(path, body)| {
                let (lines, is_cut) = whole_lines(body);
                cut += usize::from(is_cut);
                (path, promtext::decode(lines))
            })
            .collect();
        let answers: Vec<_> = texts.iter().map(|(path, text)| (*path, &**text)).collect();
        self.flaws.cut = cut;
        self.flaws.lines =
            found.adapter.translate(Answers::new(&answers), self.index, &mut self.memory, &mut self.batch);
        let read = || answers.iter().map(|(_, text)| Exposition::new(text));
        if !self.told_ok || self.batch.at >= self.extras_due {
            self.flaws.look_for_doubled(read());
            let main = answers.first().map_or("", |(_, text)| text);
            self.flaws.also = engine::also(found.path, main, found.adapter);
        }
        self.flaws.look_for_no_numbers(read(), &self.batch);
        self.flaws.look_for_too_large(&mut self.batch);
    }

    fn succeed(&mut self, found: Recognised) {
        let adapter = found.adapter;
        let identity = Identity::of(adapter, &self.batch);
        let known = self.engine.is_some_and(|known| known.adapter.spec().id == adapter.spec().id);
        self.engine = Some(found);
        if !known {
            self.batch.fact(self.subject(), FactKey::Kind, adapter.spec().id);
            self.name();
            self.renew();
        } else if self.failures > 0 || identity.start != self.started {
            self.renew();
        }
        self.mark_break(identity.start);
        self.thin_out();
        self.failures = 0;
        self.last_good = Some(self.batch.at);
        // The scrape knows better what both of them say.
        let said = |batch: &Batch, metric| batch.samples.iter().any(|s| s.metric == metric);
        let news: Vec<_> = self.extras.samples.iter().filter(|s| !said(&self.batch, s.metric)).copied().collect();
        self.batch.samples.extend(news);
        self.batch.facts.extend_from_slice(&self.extras.facts);
        self.flaws.look_for_impossible(&mut self.batch);
        let words = self.flaws.words(found.path);
        let ok = words.is_none();
        if let Some(words) = words {
            self.batch.state = Some(SourceState::Degraded(words.into()));
        } else if !self.told_ok {
            self.batch.state = Some(SourceState::Ok);
        }
        self.told_ok = ok;
        self.net.note(self.index, &self.endpoint, false, Some(identity));
    }

    /// Totals do not continue when the process is another one, or when other replicas are added up: one that
    /// joined brings the counts of its whole life with it.
    fn mark_break(&mut self, start: Option<f64>) {
        let ranks = self.batch.facts.iter().find(|fact| fact.key == FactKey::Ranks).map(|fact| Arc::clone(&fact.text));
        let counters = self.batch.samples.iter().filter(|sample| sample.metric.kind() == Kind::Counter);
        let totals: Vec<_> = counters.filter_map(|sample| Some((sample.metric, sample.reading.value()?))).collect();
        let fell = |&(metric, total): &(Metric, f64)| self.totals.iter().any(|&(m, last)| m == metric && total < last);
        let other = |known: bool, same: bool| known && !same;
        self.batch.breaks = other(self.started.is_some(), start == self.started)
            || other(self.ranks.is_some(), ranks == self.ranks)
            // While it was down the store forgot the totals; not every engine tells when it started.
            || (self.failures > 0 && totals.iter().any(fell));
        (self.started, self.ranks, self.totals) = (start, ranks, totals);
    }

    /// Histograms are kept once a second at most: between two full scrapes only levels and counters are read.
    fn thin_out(&mut self) {
        const FULL_MS: u64 = 950;
        let soon = self.last_full.is_some_and(|last| self.batch.at.since(last) < FULL_MS);
        if soon && !self.batch.breaks && self.failures == 0 {
            self.batch.histograms.clear();
            self.batch.partial = true;
        } else {
            self.last_full = Some(self.batch.at);
        }
    }

    fn fail(&mut self, trouble: &Trouble) {
        let state = trouble.state(self.last_good.map(|good| self.batch.at.since(good)));
        // Late answers are asked for at the usual pace: each one already takes longer than a period.
        self.failures = if state.is_down() { self.failures.saturating_add(1) } else { self.failures };
        self.told_ok = false;
        self.batch.state = Some(state);
        self.net.note(self.index, &self.endpoint, self.failures > 0, None);
    }

    /// Asks for what the metrics do not say: after a start, a few more times when that fails, and then now
    /// and again.
    async fn ask_extras(&mut self, adapter: &dyn Adapter) {
        let due = self.batch.at >= self.extras_due;
        if self.extra_tries == 0 && !due {
            return;
        }
        self.extra_tries = self.extra_tries.saturating_sub(1);
        self.extras_due = self.batch.at + EXTRAS_MS;
        let mut news = Batch::new(self.extras.source, self.batch.at, self.extras.valid_ms);
        let (mut all, mut answered) = (true, Vec::new());
        for path in adapter.spec().extras {
            if adapter.stands_in(path).is_some_and(|better| answered.contains(&better)) {
                continue;
            }
            let limit = self.net.timing.timeout;
            let read = scrape::get(&self.net.client, &self.endpoint, path, limit, &mut self.body).await;
            match read {
                Ok(()) => {
                    answered.push(*path);
                    adapter.extra(path, &self.body, self.index, &mut news);
                }
                // A path that the engine lacks has nothing to say.
                Err(trouble) => all &= !trouble.is_final(),
            }
        }
        if all || (self.extras.samples.is_empty() && self.extras.facts.is_empty()) {
            self.extras = news;
        }
        if all {
            self.extra_tries = 0;
        }
    }
}

/// Says what a body holds that no adapter knows.
pub(super) fn unknown(text: &str) -> Trouble {
    const COMMON: [&str; 5] = ["python_", "process_", "http_", "go_", "promhttp_"];
    let mut lines = text.lines().filter(|line| !line.trim().is_empty()).peekable();
    if lines.peek().is_some() && lines.all(|line| line.starts_with('#')) {
        return Trouble::Empty;
    }
    let mut names: Vec<String> = Vec::new();
    for sample in Exposition::new(text).samples() {
        if names.len() == 2 {
            break;
        }
        if !COMMON.iter().any(|prefix| sample.name.starts_with(prefix)) && !names.iter().any(|n| **n == *sample.name) {
            names.push(text::clean(&sample.name).chars().take(60).collect());
        }
    }
    Trouble::Unknown(if names.is_empty() {
        "no metric of an engine in its answer".to_owned()
    } else {
        format!("it exposes {} …", names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_grow_rare_up_to_five_periods_or_five_seconds() {
        let ticks =
            |period| [0, 1, 2, 3, 4, 1000].map(|failures| ticks_to_wait(failures, Duration::from_millis(period)));
        assert_eq!(ticks(1000), [1, 1, 2, 4, 5, 5]);
        assert_eq!(ticks(100), [1, 1, 2, 4, 5, 5]);
        assert_eq!(ticks(2000), [1, 1, 2, 2, 2, 2]);
        assert_eq!(ticks(60_000), [1; 6]);
    }

    #[test]
    fn an_unknown_body_is_described() {
        let words = |body| unknown(body).to_string();
        let other = words("go_goroutines 8\nprometheus_build_info{a=\"b\"} 1\nprometheus_ready 1\nnet_conntrack 2\n");
        assert!(other.ends_with("it exposes prometheus_build_info, prometheus_ready …"), "{other}");
        assert!(words("hello").ends_with("no metric of an engine in its answer"));
        assert!(words("# HELP a b\n# TYPE a gauge\n\n").starts_with("answers, but exposes nothing yet"));
        assert!(words("python_info 1").ends_with("no metric of an engine in its answer"));
    }
}
