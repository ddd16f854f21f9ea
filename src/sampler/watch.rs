//! The life of one engine: recognised by its first body, asked for extras once, a gap while it is down,
//! asked again after a restart.
//!
//! It must not know any engine's names (that is `engine`). Invariants: a broken engine costs only its
//! own values; every scrape is one batch, good or bad, dated in the middle of the read.

use std::sync::Arc;

use tokio::time::MissedTickBehavior;

use super::endpoint::Endpoint;
use super::engines::{Identity, Net};
use super::scrape::{self, Trouble};
use crate::engine::promtext::{self, Exposition};
use crate::engine::{self, Adapter};
use crate::model::{Batch, Fact, FactKey, SourceId, SourceState, Subject, Time, text};

/// Reads engine number `index` for ever.
pub(super) async fn run(net: Arc<Net>, index: u8, endpoint: Endpoint) {
    let mut watch = Watch::new(net, index, endpoint);
    watch.introduce();
    let mut ticks = tokio::time::interval(watch.net.timing.period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        for _ in 0..ticks_to_wait(watch.failures) {
            ticks.tick().await;
        }
        watch.scrape().await;
    }
}

/// Periods until the next try: twice as many after each failure, five at most.
fn ticks_to_wait(failures: u32) -> u32 {
    match failures {
        0 | 1 => 1,
        2 => 2,
        3 => 4,
        _ => 5,
    }
}

/// An answer that is late is called saturation while the last good one is no older than this, ms.
const LATELY_MS: u64 = 30_000;
/// Tries for the extras after each start of the engine.
const EXTRA_TRIES: u8 = 3;

/// The life of one engine.
struct Watch {
    net: Arc<Net>,
    index: u8,
    endpoint: Endpoint,
    adapter: Option<&'static dyn Adapter>,
    /// Reused from scrape to scrape.
    body: Vec<u8>,
    batch: Batch,
    /// What the extras said, added to every scrape.
    extras: Batch,
    extra_tries: u8,
    /// Facts told already.
    known: Vec<Fact>,
    started: Option<f64>,
    failures: u32,
    last_good: Option<Time>,
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
            adapter: None,
            body: Vec::new(),
            extra_tries: EXTRA_TRIES,
            known: Vec::new(),
            started: None,
            failures: 0,
            last_good: None,
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
        let name = self.adapter.map_or_else(|| place.clone(), |a| format!("{} {place}", a.spec().name));
        self.batch.fact(subject, FactKey::Url, self.endpoint.shown());
        self.batch.fact(subject, FactKey::Name, &name);
    }

    fn send(&mut self) {
        engine::only_news(&mut self.batch.facts, &mut self.known);
        self.net.context.sink.send(&self.batch);
    }

    async fn scrape(&mut self) {
        self.follow();
        let clock = Arc::clone(&self.net.context.clock);
        let (at, begun) = (clock.now(), clock.micros());
        let url = self.endpoint.url("/metrics");
        let read = scrape::get(&self.net.client, url, self.net.timing.timeout, &mut self.body).await;
        let took = clock.micros().saturating_sub(begun);
        self.batch.reset(at + took / 2000);
        self.batch.took_us = u32::try_from(took).unwrap_or(u32::MAX);
        match read.and_then(|()| self.translate()) {
            Ok((adapter, bad_lines)) => {
                self.succeed(adapter, bad_lines);
                self.send();
                self.ask_extras(adapter).await;
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
        self.failures = 0;
        self.renew();
        self.batch.reset(self.net.context.clock.now());
        self.name();
        self.send();
    }

    /// Forgets what a restart may change.
    fn renew(&mut self) {
        self.extra_tries = EXTRA_TRIES;
        self.extras.reset(self.batch.at);
    }

    /// Recognises the body and reads it. Returns who read it and how many lines were no good.
    fn translate(&mut self) -> Result<(&'static dyn Adapter, usize), Trouble> {
        let text = promtext::decode(&self.body);
        let body = Exposition::new(&text);
        let adapter = self.adapter.filter(|adapter| adapter.detect(body)).or_else(|| engine::detect(body));
        let adapter = adapter.ok_or_else(|| unknown(body))?;
        let bad_lines = adapter.translate(body, self.index, &mut self.batch);
        Ok((adapter, bad_lines))
    }

    fn succeed(&mut self, adapter: &'static dyn Adapter, bad_lines: usize) {
        let identity = Identity::of(adapter, &self.batch);
        if self.adapter.is_none_or(|known| known.spec().id != adapter.spec().id) {
            self.adapter = Some(adapter);
            self.batch.fact(self.subject(), FactKey::Kind, adapter.spec().id);
            self.name();
            self.renew();
        } else if self.failures > 0 || identity.start != self.started {
            self.renew();
        }
        self.started = identity.start;
        self.failures = 0;
        self.last_good = Some(self.batch.at);
        self.batch.samples.extend_from_slice(&self.extras.samples);
        self.batch.facts.extend_from_slice(&self.extras.facts);
        if bad_lines > 0 {
            let words = format!("{bad_lines} lines of /metrics cannot be read; the others are used");
            self.batch.state = Some(SourceState::Degraded(words.into()));
        } else if !self.told_ok {
            self.batch.state = Some(SourceState::Ok);
        }
        self.told_ok = bad_lines == 0;
        self.net.note(self.index, &self.endpoint, false, Some(identity));
    }

    fn fail(&mut self, trouble: &Trouble) {
        let lately = self.last_good.is_some_and(|good| self.batch.at.since(good) <= LATELY_MS);
        let state = trouble.state(lately);
        // Late answers are asked for at the usual pace: each one already takes longer than a period.
        self.failures = if state.is_down() { self.failures.saturating_add(1) } else { self.failures };
        self.told_ok = false;
        self.batch.state = Some(state);
        self.net.note(self.index, &self.endpoint, self.failures > 0, None);
    }

    /// Asks once for what the metrics do not say; a few more times when it fails.
    async fn ask_extras(&mut self, adapter: &dyn Adapter) {
        if self.extra_tries == 0 {
            return;
        }
        self.extra_tries -= 1;
        let mut all = true;
        for path in adapter.spec().extras {
            let url = self.endpoint.url(path);
            let read = scrape::get(&self.net.client, url, self.net.timing.timeout, &mut self.body).await;
            match read {
                Ok(()) => adapter.extra(path, &self.body, self.index, &mut self.extras),
                Err(_) => all = false,
            }
        }
        if all {
            self.extra_tries = 0;
        }
    }
}

/// Says what a body holds that no adapter knows.
pub(super) fn unknown(body: Exposition<'_>) -> Trouble {
    const COMMON: [&str; 5] = ["python_", "process_", "http_", "go_", "promhttp_"];
    let mut names: Vec<String> = Vec::new();
    for sample in body.samples() {
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
    fn tries_grow_rare_up_to_five_periods() {
        assert_eq!([0, 1, 2, 3, 4, 1000].map(ticks_to_wait), [1, 1, 2, 4, 5, 5]);
    }

    #[test]
    fn an_unknown_body_is_described() {
        let words = |body| unknown(Exposition::new(body)).to_string();
        let llama = words(include_str!("../../assets/metrics/llama.cpp-b11549.prom"));
        assert!(
            llama.ends_with("it exposes llamacpp:prompt_tokens_total, llamacpp:prompt_tokens_cached_total …"),
            "{llama}"
        );
        assert!(words("hello").ends_with("no metric of an engine in its answer"));
        assert!(words("python_info 1").ends_with("no metric of an engine in its answer"));
    }
}
