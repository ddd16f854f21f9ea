//! The life of one engine: recognised by its first body, asked for extras once, a gap while it is down,
//! asked again after a restart.
//!
//! It must not know any engine's names (that is `engine`). Invariants: a broken engine costs only its
//! own values; every scrape is one batch, good or bad, dated in the middle of the read; nothing but the main answer is
//! waited for longer than half a period, unless it has been answering.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::MissedTickBehavior;

use super::aside::Turns;
use super::engines::{Identity, Net};
use super::fingerprint::{self, Recognised};
use super::pages::Pages;
use super::scrape::{Asker, Trouble};
use super::side::{self, Beside, Extra};
use super::work::{Spent, valid_ms};
use crate::engine::continuity::Continuity;
use crate::engine::promtext::Exposition;
use crate::engine::{self, Adapter};
use crate::model::{Batch, Fact, FactKey, SourceId, SourceState, Subject, Time, text};
use crate::net::endpoint::Endpoint;

/// Reads engine number `index` for ever.
pub(super) async fn run(net: Arc<Net>, index: u8, endpoint: Endpoint) {
    let mut watch = Watch::new(net, index, endpoint);
    watch.introduce();
    let mut ticks = tokio::time::interval(watch.net.timing.period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        for _ in 0..watch.ticks_to_wait() {
            ticks.tick().await;
        }
        watch.scrape().await;
    }
}

/// Periods until the next try: twice as many after each failure, as long as that is soon.
fn ticks_to_wait(failures: u32, period: Duration) -> u32 {
    const SOON: Duration = Duration::from_secs(5);
    let most = ticks_in(SOON, period);
    1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX).min(5).min(most)
}

/// Whole periods in a time, at least one.
fn ticks_in(time: Duration, period: Duration) -> u32 {
    u32::try_from(time.as_millis() / period.as_millis().max(1)).unwrap_or(u32::MAX).max(1)
}

/// The life of one engine.
struct Watch {
    net: Arc<Net>,
    index: u8,
    endpoint: Endpoint,
    engine: Option<Recognised>,
    pages: Pages,
    beside: Vec<Beside>,
    extras: Vec<Extra>,
    /// When the answers are looked through for more than what is read from them.
    thorough_due: Time,
    /// What the answers cost.
    spent: Spent,
    turns: Arc<Turns>,
    /// The process whose command line is known.
    owner: Option<u32>,
    /// Facts told already.
    known: Vec<Fact>,
    continuity: Continuity,
    failures: u32,
    last_good: Option<Time>,
    last_full: Option<Time>,
    /// The state told last was Ok.
    told_ok: bool,
}

impl Watch {
    fn new(net: Arc<Net>, index: u8, endpoint: Endpoint) -> Self {
        let now = net.context.clock.now();
        Self {
            pages: Pages::new(Batch::new(SourceId::Engine(index), now, net.timing.valid_ms())),
            net,
            index,
            endpoint,
            engine: None,
            beside: Vec::new(),
            extras: Vec::new(),
            thorough_due: now,
            spent: Spent::default(),
            turns: Arc::default(),
            owner: None,
            known: Vec::new(),
            continuity: Continuity::default(),
            failures: 0,
            last_good: None,
            last_full: None,
            told_ok: false,
        }
    }

    const fn subject(&self) -> Subject {
        Subject::Engine(self.index)
    }

    const fn batch(&mut self) -> &mut Batch {
        &mut self.pages.batch
    }

    /// Periods until the next scrape: one, unless it is down or its answers cost much.
    fn ticks_to_wait(&self) -> u32 {
        let period = self.net.timing.period;
        ticks_to_wait(self.failures, period).max(ticks_in(self.spent.rest(period), period))
    }

    /// Tells that there is such an engine, before anything is read.
    fn introduce(&mut self) {
        self.pages.batch.reset(self.net.context.clock.now());
        self.name();
        self.batch().state = Some(SourceState::Starting);
        self.send();
    }

    fn name(&mut self) {
        let subject = self.subject();
        let place = self.endpoint.place();
        let mut told = self.pages.batch.facts.iter().chain(&self.known);
        let behind = told.find(|fact| fact.key == FactKey::Behind).map(|fact| format!(" behind {}", fact.text));
        let of = |engine: Recognised| format!("{}{} {place}", engine.adapter.spec().name, behind.unwrap_or_default());
        let name = self.engine.map_or_else(|| place.clone(), of);
        self.pages.batch.fact(subject, FactKey::Url, self.endpoint.shown());
        self.pages.batch.fact(subject, FactKey::Name, &name);
    }

    fn send(&mut self) {
        let batch = &mut self.pages.batch;
        self.net.told(self.index).add(self.index, batch, &self.known);
        engine::only_news(&mut batch.facts, &mut self.known);
        self.net.context.sink.send(batch);
    }

    async fn scrape(&mut self) {
        self.follow();
        self.learn();
        self.spent.begin();
        let clock = Arc::clone(&self.net.context.clock);
        let (at, begun) = (clock.now(), clock.micros());
        let read = self.read().await;
        let took = clock.micros().saturating_sub(begun);
        let batch = self.batch();
        batch.reset(at + took / 2000);
        batch.took_us = u32::try_from(took).unwrap_or(u32::MAX);
        let read = match read {
            Ok(found) => self.translate(found).await.map(|()| found),
            Err(trouble) => Err(trouble),
        };
        match read {
            Ok(found) => {
                self.look_at_extras().await;
                self.succeed(found);
                self.send();
                self.ask_extras(found.adapter);
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
        self.pages.batch.reset(self.net.context.clock.now());
        self.name();
        self.send();
    }

    /// Takes in the command line of the process that answers, once for each process: it says what the answers leave
    /// open.
    fn learn(&mut self) {
        let Some(command) = self.net.told(self.index).command else { return };
        if self.owner != Some(command.0) {
            self.owner = Some(command.0);
            self.pages.memory.launched(&command.1);
        }
    }

    /// Forgets what a restart may change.
    fn renew(&mut self) {
        let spec = self.engine.map(|found| found.adapter.spec());
        self.extras = spec.into_iter().flat_map(|spec| spec.extras).map(|path| Extra::new(path)).collect();
    }

    /// Works on the pages, out of the way of other engines where they are long.
    async fn work<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut Pages) -> T + Send + 'static,
    ) -> Result<T, Trouble> {
        let empty = Batch::new(self.pages.batch.source, self.pages.batch.at, self.pages.batch.valid_ms);
        let mut pages = std::mem::replace(&mut self.pages, Pages::new(empty));
        let bytes = pages.bytes();
        let done = self.net.desk.run(bytes, &mut self.spent, move || (work(&mut pages), pages)).await;
        let (done, pages) = done.ok_or(Trouble::Broken)?;
        self.pages = pages;
        Ok(done)
    }

    /// Reads the main answer, recognising the engine where that is due, and then those beside it.
    async fn read(&mut self) -> Result<Recognised, Trouble> {
        let clock = Arc::clone(&self.net.context.clock);
        let begun = clock.micros();
        let net = Arc::clone(&self.net);
        let endpoint = self.endpoint.clone();
        let turns = Arc::clone(&self.turns);
        let asker = net.asker(&endpoint, &turns);
        let mut known = self.engine;
        if let Some(found) = known {
            asker.get(found.path, &mut self.pages.body, &mut self.spent).await?;
            known = self.work(move |pages| pages.is_of(found)).await?.then_some(found);
        }
        let found = match known {
            Some(found) => found,
            None => fingerprint::recognise(&asker, &mut self.pages.body, &mut self.spent).await?,
        };
        let paths = found.adapter.spec().beside;
        if !paths.iter().copied().eq(self.beside.iter().map(Beside::path)) {
            self.beside = paths.iter().map(|path| Beside::new(path)).collect();
        }
        self.pages.beside.resize_with(paths.len(), Vec::new);
        if !paths.is_empty() {
            let pace = (net.timing.period, clock.micros().saturating_sub(begun));
            self.read_beside(found, &endpoint, pace).await?;
        }
        Ok(found)
    }

    /// Reads the answers beside the main one. `pace`: the period, and how long the main one took, µs.
    async fn read_beside(
        &mut self,
        found: Recognised,
        endpoint: &Endpoint,
        pace: (Duration, u64),
    ) -> Result<(), Trouble> {
        let asks = self.work(move |pages| pages.asks(found)).await?;
        let bodies = self.pages.beside.iter_mut();
        for ((beside, body), asked) in self.beside.iter_mut().zip(bodies).zip(asks) {
            let mut fresh = std::mem::take(body);
            if !asked {
                fresh.clear();
                *body = fresh;
                continue;
            }
            let (net, endpoint, path) = (Arc::clone(&self.net), endpoint.clone(), beside.path());
            let (mut cost, turns) = (self.spent.beside(), Arc::clone(&self.turns));
            let request = async move {
                let read = net.asker(&endpoint, &turns).get(path, &mut fresh, &mut cost).await;
                (read.map(|()| fresh), cost)
            };
            let clock = &self.net.context.clock;
            *body = beside.ask(clock, pace, &mut self.spent, request).await.unwrap_or_default();
        }
        Ok(())
    }

    /// Reads the answers and notes what is wrong with them.
    async fn translate(&mut self, found: Recognised) -> Result<(), Trouble> {
        let (index, thorough) = (self.index, !self.told_ok || self.pages.batch.at >= self.thorough_due);
        if thorough {
            self.thorough_due = self.pages.batch.at + side::EVERY_MS;
        }
        self.work(move |pages| pages.translate(found, index, thorough)).await?;
        self.endpoint.mask(&mut self.pages.batch);
        Ok(())
    }

    fn succeed(&mut self, found: Recognised) {
        let adapter = found.adapter;
        let identity = Identity::of(adapter, &self.pages.batch);
        let known = self.engine.is_some_and(|known| known.adapter.spec().id == adapter.spec().id);
        self.engine = Some(found);
        if !known {
            let subject = self.subject();
            self.batch().fact(subject, FactKey::Kind, adapter.spec().id);
            self.name();
            self.renew();
        } else if self.failures > 0 || self.continuity.is_other(&self.pages.batch) {
            self.renew();
        }
        self.continuity.mark(&mut self.pages.batch, self.failures > 0);
        self.thin_out();
        self.failures = 0;
        self.last_good = Some(self.pages.batch.at);
        // The scrape knows better what both of them say.
        self.extras.iter().for_each(|extra| extra.add(&mut self.pages.batch));
        self.pages.flaws.look_for_impossible(&mut self.pages.batch);
        let words = self.words(found.path);
        let state = if words.is_empty() { SourceState::Ok } else { SourceState::Degraded(words.join("; ").into()) };
        let period = self.net.timing.period;
        let state = self.spent.tell(state, period);
        let ok = state == SourceState::Ok;
        self.batch().state = Some(state).filter(|_| !ok || !self.told_ok);
        self.told_ok = ok;
        // What is asked more seldom counts for longer.
        self.batch().valid_ms = valid_ms(self.spent.rest(period));
        self.net.note(self.index, &self.endpoint, false, Some(identity));
    }

    /// What is not as it should be, though the metrics were read.
    fn words(&self, path: &str) -> Vec<String> {
        let (at, limit) = (self.pages.batch.at, self.net.timing.timeout);
        let flaws = self.pages.flaws.words(path);
        let beside = self.beside.iter().filter_map(|beside| beside.words(at, limit));
        let extras = self.extras.iter().filter_map(|extra| extra.words(at, limit));
        flaws.into_iter().chain(beside).chain(extras).collect()
    }

    /// Histograms are kept once a second at most: between two full scrapes only levels and counters are read.
    fn thin_out(&mut self) {
        const FULL_MS: u64 = 950;
        let batch = &mut self.pages.batch;
        let soon = self.last_full.is_some_and(|last| batch.at.since(last) < FULL_MS);
        if soon && !batch.breaks && self.failures == 0 {
            batch.histograms.clear();
            batch.partial = true;
        } else {
            self.last_full = Some(batch.at);
        }
    }

    fn fail(&mut self, trouble: &Trouble) {
        let at = self.pages.batch.at;
        let state = trouble.state(self.last_good.map(|good| at.since(good)));
        let state = self.spent.tell(state, self.net.timing.period);
        // Late answers are asked for at the usual pace: each one already takes longer than a period.
        self.failures = if state.is_down() { self.failures.saturating_add(1) } else { self.failures };
        self.told_ok = false;
        self.batch().state = Some(state);
        self.net.note(self.index, &self.endpoint, self.failures > 0, None);
    }

    async fn look_at_extras(&mut self) {
        let now = self.net.context.clock.now();
        for extra in &mut self.extras {
            extra.look(now, &mut self.spent).await;
        }
    }

    /// Asks for what the metrics do not say: after a start, a few more times when that fails, and then now
    /// and again. Waits for none of it.
    fn ask_extras(&mut self, adapter: &'static dyn Adapter) {
        let now = self.net.context.clock.now();
        for place in 0..self.extras.len() {
            let path = self.extras[place].path();
            let better = adapter.stands_in(path).and_then(|better| self.extras.iter().find(|e| e.path() == better));
            if better.is_some_and(|better| better.is_open() || better.answers()) || !self.extras[place].is_due(now) {
                continue;
            }
            let (net, endpoint, index) = (Arc::clone(&self.net), self.endpoint.clone(), self.index);
            let (mut cost, turns) = (self.spent.beside(), Arc::clone(&self.turns));
            let request = async move {
                let mut body = Vec::new();
                let asker = Asker { most: side::MAX_SIDE_BODY, ..net.asker(&endpoint, &turns) };
                if let Err(trouble) = asker.get(path, &mut body, &mut cost).await {
                    return (Err(trouble), cost);
                }
                let bytes = body.len();
                let work = move || {
                    let mut said = side::nothing_said(index);
                    adapter.extra(path, &body, index, &mut said);
                    said
                };
                let said = net.desk.run(bytes, &mut cost, work).await;
                let masked = said.map(|mut said| {
                    endpoint.mask(&mut said);
                    said
                });
                (masked.ok_or(Trouble::Broken), cost)
            };
            self.extras[place].ask(&self.net.context.clock, request);
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
