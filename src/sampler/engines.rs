//! Serving engines: one task for each, scraping `/metrics` every second, on one thread for all.
//!
//! Owns the list of engines ([`Roster`]) and the life of one of them: adopted when its body is
//! recognised, asked for extras once, gaps while it is down, asked again after a restart. It must not
//! know any engine's names (that is `engine`) nor how engines are found (that is `discover`).
//! Invariants: engines named on the command line keep the numbers 0, 1 …; no place is listed twice; a
//! broken engine costs only its own values.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use reqwest::Client;
use tokio::time::MissedTickBehavior;

use super::endpoint::Endpoint;
use super::scrape::{self, Trouble};
use super::{Context, Options, Sampler, discover, thread};
use crate::engine::promtext::{self, Exposition};
use crate::engine::{self, Adapter};
use crate::model::{Batch, Fact, FactKey, Metric, SourceId, SourceState, Subject, Time, text};

/// Named and found engines.
pub const SAMPLER: Sampler = Sampler {
    id: "engines",
    help: "GET /metrics of each serving engine once a second; engines are named with --engine or found on this host \
           (a process that looks like one, its listening port, and the fingerprint of the answer)",
    start: |context, options| start(context, options, Timing::DEFAULT),
};

/// Periods and limits.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// From one scrape to the next.
    pub period: Duration,
    /// For one complete answer.
    pub timeout: Duration,
    /// From one search for engines to the next.
    pub search: Duration,
    /// The same while there is no engine at all.
    pub search_when_none: Duration,
}

impl Timing {
    /// What warptop runs with.
    pub const DEFAULT: Self = Self {
        period: Duration::from_secs(1),
        timeout: Duration::from_secs(2),
        search: Duration::from_secs(5),
        search_when_none: Duration::from_secs(2),
    };

    /// How long a scrape's values are current, ms.
    fn valid_ms(&self) -> u32 {
        u32::try_from(self.period.as_millis() * 7 / 2).unwrap_or(u32::MAX)
    }
}

/// Starts the thread `warptop-net` and returns. [`SAMPLER`] does this with [`Timing::DEFAULT`].
pub fn start(context: &Context, options: &Options, timing: Timing) {
    if options.engine_urls.is_empty() && !options.discover {
        return;
    }
    let options = options.clone();
    thread::start(context, SourceId::Discovery, "warptop-net", move |context| {
        if let Err(error) = run(context, &options, timing) {
            let words = format!("no engine can be read: the network cannot be used ({error})");
            thread::say(context, SourceId::Discovery, SourceState::Failed(words.into()));
        }
    });
}

/// How often the order to stop is looked for.
const STOP_POLL: Duration = Duration::from_millis(100);

fn run(context: &Context, options: &Options, timing: Timing) -> Result<(), Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let client = scrape::client(timing.timeout / 2)?;
    let net = Arc::new(Net { context: context.clone(), client, timing, roster: Mutex::default() });
    runtime.block_on(async {
        for url in &options.engine_urls {
            net.name(url);
        }
        if options.discover {
            tokio::spawn(discover::search(Arc::clone(&net)));
        }
        while !context.stop.stopped() {
            tokio::time::sleep(STOP_POLL).await;
        }
    });
    // A name that is being resolved must not hold up the end.
    runtime.shutdown_background();
    Ok(())
}

/// What tells one engine from another, beside its place.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Identity {
    /// Adapter id.
    pub(super) kind: &'static str,
    /// Model it serves.
    pub(super) model: Arc<str>,
    /// When its process started, Unix seconds.
    pub(super) start: Option<f64>,
}

impl Identity {
    pub(super) fn of(adapter: &dyn Adapter, batch: &Batch) -> Self {
        let model = batch.facts.iter().find(|f| f.key == FactKey::Model).map(|f| Arc::clone(&f.text));
        let start = batch.samples.iter().find(|s| s.metric == Metric::EngineStart).and_then(|s| s.reading.value());
        Self { kind: adapter.spec().id, model: model.unwrap_or_default(), start }
    }
}

/// One line of the list of engines.
#[derive(Debug)]
struct Entry {
    /// `None` when what was given is no URL.
    endpoint: Option<Endpoint>,
    named: bool,
    identity: Option<Identity>,
    /// The last scrape failed.
    down: bool,
    /// At least one scrape has ended.
    tried: bool,
}

/// What became of an engine that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Placed {
    /// It is new.
    New,
    /// It is in the list already.
    Known,
    /// It took over the entry of one that is gone: a restart on another port.
    Again,
    /// The list is full.
    Full,
}

/// The list of engines; the place in it is the engine's number.
#[derive(Debug, Default)]
struct Roster(Vec<Entry>);

/// Most engines that are added by the search: the store's stated memory counts on it.
const MAX_FOUND: usize = 8;

impl Roster {
    /// Whether something is listed at this place, or this very process at the same port of another name.
    fn holds(&self, endpoint: &Endpoint, identity: Option<&Identity>) -> bool {
        self.0.iter().any(|entry| {
            let Some(listed) = &entry.endpoint else { return false };
            let same_process = identity.is_some_and(|i| i.start.is_some() && entry.identity.as_ref() == Some(i));
            listed.same_place(endpoint) || (same_process && listed.port() == endpoint.port())
        })
    }

    fn place(&mut self, endpoint: Endpoint, identity: Identity) -> Placed {
        if self.holds(&endpoint, Some(&identity)) {
            return Placed::Known;
        }
        let gone = self.0.iter_mut().find(|entry| {
            let alike = |i: &Identity| i.kind == identity.kind && i.model == identity.model;
            !entry.named && entry.down && entry.identity.as_ref().is_some_and(alike)
        });
        if let Some(entry) = gone {
            entry.endpoint = Some(endpoint);
            entry.down = false;
            return Placed::Again;
        }
        if self.0.len() >= MAX_FOUND {
            return Placed::Full;
        }
        self.0.push(Entry {
            endpoint: Some(endpoint),
            named: false,
            identity: Some(identity),
            down: false,
            tried: false,
        });
        Placed::New
    }
}

/// What the tasks share.
pub(super) struct Net {
    pub(super) context: Context,
    pub(super) client: Client,
    pub(super) timing: Timing,
    roster: Mutex<Roster>,
}

impl Net {
    fn roster(&self) -> MutexGuard<'_, Roster> {
        self.roster.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of engines listed.
    pub(super) fn engines(&self) -> usize {
        self.roster().0.len()
    }

    /// Whether every engine has been tried at least once.
    pub(super) fn all_tried(&self) -> bool {
        self.roster().0.iter().all(|entry| entry.tried)
    }

    /// Whether something is listed at this place.
    pub(super) fn holds(&self, endpoint: &Endpoint) -> bool {
        self.roster().holds(endpoint, None)
    }

    /// Lists an engine named by the user.
    fn name(self: &Arc<Self>, url: &str) {
        let parsed = Endpoint::parse(url);
        let mut roster = self.roster();
        let Ok(index) = u8::try_from(roster.0.len()) else { return };
        if parsed.as_ref().is_ok_and(|endpoint| roster.holds(endpoint, None)) {
            return;
        }
        let endpoint = parsed.as_ref().ok().cloned();
        let tried = endpoint.is_none();
        roster.0.push(Entry { endpoint, named: true, identity: None, down: tried, tried });
        drop(roster);
        match parsed {
            Ok(endpoint) => self.watch(index, endpoint),
            Err(bad) => {
                let mut batch = Batch::new(SourceId::Engine(index), self.context.clock.now(), Batch::FOREVER);
                batch.fact(Subject::Engine(index), FactKey::Url, &bad.shown);
                batch.fact(Subject::Engine(index), FactKey::Name, &bad.shown);
                batch.state = Some(SourceState::Failed(text::clean(&bad.to_string()).into()));
                self.context.sink.send(&batch);
            }
        }
    }

    /// Lists an engine that was found.
    pub(super) fn place(self: &Arc<Self>, endpoint: Endpoint, identity: Identity) -> Placed {
        let mut roster = self.roster();
        let placed = roster.place(endpoint.clone(), identity);
        let newest = roster.0.len().saturating_sub(1);
        drop(roster);
        if placed == Placed::New
            && let Ok(index) = u8::try_from(newest)
        {
            self.watch(index, endpoint);
        }
        placed
    }

    fn watch(self: &Arc<Self>, index: u8, endpoint: Endpoint) {
        let mut watch = Watch::new(Arc::clone(self), index, endpoint);
        tokio::spawn(async move {
            watch.introduce();
            let mut ticks = tokio::time::interval(watch.net.timing.period);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
            loop {
                for _ in 0..ticks_to_wait(watch.failures) {
                    ticks.tick().await;
                }
                watch.scrape().await;
            }
        });
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
        let listed = self.net.roster().0.get(usize::from(self.index)).and_then(|entry| entry.endpoint.clone());
        let Some(listed) = listed.filter(|listed| *listed != self.endpoint) else { return };
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
        self.enter(Some(identity));
    }

    fn fail(&mut self, trouble: &Trouble) {
        let lately = self.last_good.is_some_and(|good| self.batch.at.since(good) <= LATELY_MS);
        let state = trouble.state(lately);
        // Late answers are asked for at the usual pace: each one already takes longer than a period.
        self.failures = if state.is_down() { self.failures.saturating_add(1) } else { self.failures };
        self.told_ok = false;
        self.batch.state = Some(state);
        self.enter(None);
    }

    /// Writes the outcome of a scrape into the roster; no identity means that it failed.
    fn enter(&self, identity: Option<Identity>) {
        let mut roster = self.net.roster();
        let Some(entry) = roster.0.get_mut(usize::from(self.index)) else { return };
        // The entry may have moved on while this scrape was under way.
        if entry.endpoint.as_ref() == Some(&self.endpoint) {
            entry.tried = true;
            entry.down = self.failures > 0;
            if identity.is_some() {
                entry.identity = identity;
            }
        }
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

    fn endpoint(text: &str) -> Endpoint {
        Endpoint::parse(text).unwrap_or_else(|bad| panic!("{bad}"))
    }

    fn identity(model: &str, start: f64) -> Identity {
        Identity { kind: "vllm", model: model.into(), start: Some(start) }
    }

    #[test]
    fn no_place_is_listed_twice_and_a_restart_elsewhere_takes_over() {
        let mut roster = Roster::default();
        roster.0.push(Entry {
            endpoint: Some(endpoint("gpu7:8000")),
            named: true,
            identity: Some(identity("a", 1.0)),
            down: true,
            tried: true,
        });
        let found = |roster: &mut Roster, at: &str, who: Identity| roster.place(endpoint(at), who);
        assert_eq!(found(&mut roster, "127.0.0.1:8000", identity("a", 1.0)), Placed::Known, "same process and port");
        assert_eq!(found(&mut roster, "127.0.0.1:8001", identity("a", 2.0)), Placed::New, "a named one is never moved");
        assert_eq!(found(&mut roster, "localhost:8001", identity("a", 2.0)), Placed::Known);
        assert_eq!(found(&mut roster, "127.0.0.1:8002", identity("a", 3.0)), Placed::New, "a second replica");
        roster.0[1].down = true;
        assert_eq!(found(&mut roster, "127.0.0.1:8003", identity("b", 4.0)), Placed::New, "another model");
        assert_eq!(found(&mut roster, "127.0.0.1:8004", identity("a", 5.0)), Placed::Again);
        assert_eq!(roster.0[1].endpoint, Some(endpoint("127.0.0.1:8004")));
        for port in 9000..9100 {
            let _ = found(&mut roster, &format!("127.0.0.1:{port}"), identity("c", f64::from(port)));
        }
        assert_eq!(roster.0.len(), MAX_FOUND);
        assert_eq!(found(&mut roster, "127.0.0.1:9999", identity("d", 9.0)), Placed::Full);
    }

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
