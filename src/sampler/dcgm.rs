//! DCGM exporter: activity of GPUs whose driver offers none (before Hopper), and everything it has where
//! there is no driver to ask.
//!
//! It must not know the driver. Invariants: each series has one writer: where the driver gives activity
//! itself (GPM) the exporter is not used, and of GPUs that the driver shows only activity is taken; a GPU
//! is matched by UUID, else by PCI bus id, and by number only where there is no driver; values that have
//! not changed for too long are not handed on, so that they go stale.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use super::discover::{Asks, Candidate, Fairness};
use super::scrape::{self, Asker, MAX_BODY, Trouble};
use super::thread::{say, start as start_thread};
use super::work::{Desk, Spent, valid_ms};
use super::{Context, GpuIds, Options, Sampler, discover};
use crate::engine::dcgm::{self, Row};
use crate::engine::promtext::{self, Exposition};
use crate::model::limits::GPUS;
use crate::model::{Batch, FactKey, Kind, Metric, Reading, SourceId, SourceState, Subject, Time, Why};
use crate::net::access::Access;
use crate::net::endpoint::Endpoint;
use reqwest::Client;

pub(super) const SAMPLER: Sampler = Sampler {
    id: "dcgm",
    help: "a DCGM exporter, found on this host or named with --dcgm, once a second: activity of GPUs without GPM \
           (A100 and older), and all it has where there is no driver",
    start,
};

const PERIOD: Duration = Duration::from_secs(1);
/// From one look for an exporter to the next.
const SEARCH: Duration = Duration::from_secs(30);
/// From one look at whether it is of use to the next.
const UNUSED: Duration = Duration::from_secs(3);
/// How long the activity of a GPU is an exporter's after it was written, µs: it may answer late, or change every 30 s.
const EXPORTED_US: u64 = 10_000_000;
/// What a user who named an exporter is told where it is of no use.
const NOT_ASKED: &str = "the exporter of --dcgm is not asked: the driver has activity of every GPU itself (GPM; where it \
                         says denied, an administrator may read it)";
const TIMEOUT: Duration = Duration::from_secs(2);
/// Failures in a row after which a found exporter is looked for anew.
const PATIENCE: u32 = 5;

fn start(context: &Context, options: &Options) {
    let Options { dcgm_url, discover, .. } = options;
    if dcgm_url.is_none() && !discover {
        return;
    }
    let options = options.clone();
    start_thread(context, SourceId::Dcgm, "warptop-dcgm", move |context| run(context, &options));
}

fn run(context: &Context, options: &Options) {
    let parsed = options.dcgm_url.as_deref().map(Endpoint::parse).transpose();
    let named = match parsed {
        // The token of the environment is for engines: whoever exports figures of GPUs has no use for it.
        Ok(endpoint) => endpoint.map(|endpoint| options.access.equip(endpoint, false)),
        Err(bad) => return say(context, SourceId::Dcgm, SourceState::Failed(bad.to_string().into())),
    };
    let https = named.as_ref().is_some_and(Endpoint::is_https);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let (Ok(runtime), Ok(client)) = (runtime, scrape::client(TIMEOUT / 2, &options.authorities, https)) else {
        let words = "the DCGM exporter cannot be read: the network cannot be used";
        return say(context, SourceId::Dcgm, SourceState::Failed(words.into()));
    };
    let mut exporter = Exporter {
        context,
        client,
        desk: Arc::new(Desk::new(Arc::clone(&context.clock))),
        spent: Spent::default(),
        ids: options.gpu_ids.clone(),
        access: options.access.clone(),
        named: named.is_some(),
        fairness: Fairness::default(),
        at: named,
        body: Vec::new(),
        failures: 0,
        freshness: Freshness::default(),
        said: None,
        told: HashMap::new(),
    };
    loop {
        let wait = exporter.once(&runtime);
        if context.stop.wait(wait) {
            return;
        }
    }
}

/// Where an exporter may be on this host.
struct Hosts {
    candidates: Vec<Candidate>,
    client: Client,
    desk: Arc<Desk>,
    access: Access,
    found: Option<SocketAddr>,
}

impl Hosts {
    fn endpoint(&self, at: SocketAddr) -> Option<Endpoint> {
        Some(self.access.equip(Endpoint::local(at).ok()?, false))
    }
}

impl Asks for Hosts {
    type Answer = Result<bool, Trouble>;

    fn candidates(&self) -> Vec<Candidate> {
        self.candidates.clone()
    }

    fn ask(&self, at: SocketAddr) -> impl Future<Output = Self::Answer> + Send + 'static {
        let (client, desk, endpoint) = (self.client.clone(), Arc::clone(&self.desk), self.endpoint(at));
        async move {
            let endpoint = endpoint.as_ref().ok_or(Trouble::Broken)?;
            let asker = Asker { client: &client, desk: &desk, endpoint, limit: TIMEOUT, most: MAX_BODY, aside: None };
            let mut body = Vec::new();
            asker.get("/metrics", &mut body, &mut Spent::default()).await?;
            Ok(dcgm::detect(Exposition::new(&promtext::decode(&body))))
        }
    }

    fn is_silent(answer: &Self::Answer) -> bool {
        answer.as_ref().is_err_and(Trouble::is_silence)
    }

    fn take(&mut self, at: SocketAddr, answer: Self::Answer, _: &Fairness) -> ControlFlow<()> {
        if answer == Ok(true) {
            self.found = Some(at);
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}

/// One exporter.
struct Exporter<'a> {
    context: &'a Context,
    client: Client,
    desk: Arc<Desk>,
    /// What its answers cost.
    spent: Spent,
    ids: GpuIds,
    access: Access,
    named: bool,
    fairness: Fairness,
    at: Option<Endpoint>,
    body: Vec<u8>,
    failures: u32,
    freshness: Freshness,
    said: Option<SourceState>,
    /// Facts told, by GPU.
    told: HashMap<u8, String>,
}

impl Exporter<'_> {
    /// Reads it once, if it is of use. Returns how long to wait.
    fn once(&mut self, runtime: &tokio::runtime::Runtime) -> Duration {
        let driver = Driver::of(self.context, &self.ids);
        if driver == Driver::Silent {
            return PERIOD;
        }
        if driver == Driver::Shows && self.ids.all_active() {
            let state = SourceState::Absent(NOT_ASKED.into());
            if self.named && self.said.as_ref() != Some(&state) {
                say(self.context, SourceId::Dcgm, state.clone());
                self.said = Some(state);
            }
            return UNUSED;
        }
        if self.at.is_none() && !self.find(runtime) {
            return SEARCH;
        }
        let Some(endpoint) = self.at.clone() else { return SEARCH };
        let clock = &self.context.clock;
        self.spent.begin();
        let (at, begun) = (clock.now(), clock.micros());
        let read = runtime.block_on(self.get(&endpoint));
        let took = clock.micros().saturating_sub(begun);
        let mut batch = Batch::new(SourceId::Dcgm, at + took / 2000, 0);
        batch.took_us = u32::try_from(took).unwrap_or(u32::MAX);
        let state = match read {
            Ok(()) => {
                let (desk, mut spent) = (Arc::clone(&self.desk), self.spent);
                let state = desk.here(&mut spent, || self.take(&mut batch, driver));
                self.spent = spent;
                endpoint.mask(&mut batch);
                state
            }
            Err(trouble) => self.fail(&trouble),
        };
        let state = self.spent.tell(state, PERIOD);
        let rest = self.spent.rest(PERIOD);
        batch.valid_ms = valid_ms(rest);
        batch.state = Some(state.clone()).filter(|_| self.said.as_ref() != Some(&state));
        self.said = Some(state);
        self.context.sink.send(&batch);
        rest
    }

    /// Reads its metrics into `body`.
    async fn get(&mut self, endpoint: &Endpoint) -> Result<(), Trouble> {
        let asker =
            Asker { client: &self.client, desk: &self.desk, endpoint, limit: TIMEOUT, most: MAX_BODY, aside: None };
        asker.get("/metrics", &mut self.body, &mut self.spent).await
    }

    fn fail(&mut self, trouble: &Trouble) -> SourceState {
        self.failures += 1;
        if !self.named && self.failures >= PATIENCE {
            self.at = None;
        }
        let place = self.at.as_ref().map(Endpoint::place).unwrap_or_default();
        SourceState::Failed(format!("DCGM exporter {place}: {trouble}").into())
    }

    /// Looks for an exporter on this host.
    fn find(&mut self, runtime: &tokio::runtime::Runtime) -> bool {
        let mut hosts = Hosts {
            candidates: discover::places_of_program("dcgm-exporter"),
            client: self.client.clone(),
            desk: Arc::clone(&self.desk),
            access: self.access.clone(),
            found: None,
        };
        self.fairness.begin();
        runtime.block_on(discover::ask_all(&mut hosts, &mut self.fairness));
        let Some(at) = hosts.found.and_then(|at| hosts.endpoint(at)) else { return false };
        (self.at, self.failures) = (Some(at), 0);
        true
    }

    /// Takes what the answer says.
    fn take(&mut self, batch: &mut Batch, driver: Driver) -> SourceState {
        self.failures = 0;
        let text = promtext::decode(&self.body);
        let (rows, more) = dcgm::rows(Exposition::new(&text));
        if rows.is_empty() {
            return SourceState::Failed("what answers as a DCGM exporter shows no GPU: is this its port?".into());
        }
        let changed = self.freshness.saw(fingerprint(&text), batch.at);
        if let Some(seconds) = self.freshness.stuck(batch.at) {
            let words = format!("the DCGM exporter answers, but its values have not changed for {seconds} s");
            return SourceState::Degraded(words.into());
        }
        let (mut active, mut written) = (false, Vec::new());
        for row in &rows {
            let Some(gpu) = self.ids.find(row, driver == Driver::Shows) else { continue };
            if self.hand_on(batch, row, gpu, driver, changed) {
                let metrics: Vec<_> = row.values.iter().map(|(metric, _)| *metric).collect();
                self.ids.export(gpu, &metrics, self.context.clock.micros() + EXPORTED_US);
                active = true;
            }
            written.push(gpu);
        }
        // Where the driver writes again, what was told of the exporter no longer holds.
        self.told.retain(|gpu, _| written.contains(gpu));
        if more {
            let words = format!("the DCGM exporter lists more than {GPUS} GPUs: the first {GPUS} are read");
            return SourceState::Degraded(words.into());
        }
        if active {
            return SourceState::Ok;
        }
        let words = "the DCGM exporter does not list DCGM_FI_PROF_SM_ACTIVE: add it to its counters (its default list \
                     has it commented out)";
        SourceState::Degraded(words.into())
    }

    /// Adds the values of one GPU; whether SM activity is among them.
    fn hand_on(&mut self, batch: &mut Batch, row: &Row, gpu: u8, driver: Driver, changed: bool) -> bool {
        let subject = Subject::Gpu(gpu);
        let alone = driver == Driver::Absent;
        for &(metric, reading) in row.values.iter().filter(|(metric, _)| alone || dcgm::is_activity(*metric)) {
            // Between two changes a total has not stood still, it is only not known.
            if changed || metric.kind() != Kind::Counter {
                batch.push(subject, metric, reading);
            }
        }
        if alone {
            // Nobody else has them, so they will not come: said again each time, since what is listed may change.
            for metric in dcgm::absent(row) {
                batch.push(subject, metric, Reading::Missing(Why::Unsupported));
            }
        }
        let active = row.values.iter().any(|(metric, _)| *metric == Metric::SmActive);
        let source = if active { self.freshness.words() } else { String::new() };
        if self.told.get(&gpu) != Some(&source) {
            if alone {
                batch.fact(subject, FactKey::Name, &row.name);
            }
            if active {
                batch.fact(subject, FactKey::ActivitySource, "dcgm");
                batch.fact(subject, FactKey::ActivityPeriod, &source);
            }
            if !row.instances.is_empty() {
                batch.fact(subject, FactKey::Instances, &row.instances.join(", "));
            }
            self.told.insert(gpu, source);
        }
        active
    }
}

/// What the driver says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Driver {
    /// Nothing yet.
    Silent,
    /// There is none that could be asked.
    Absent,
    /// It shows its GPUs.
    Shows,
}

impl Driver {
    fn of(context: &Context, ids: &GpuIds) -> Self {
        let data = context.sink.store().read();
        match data.source(SourceId::Nvml).map(|source| source.state_at(data.newest())) {
            _ if !ids.is_empty() => Self::Shows,
            None | Some(SourceState::Starting) => Self::Silent,
            Some(SourceState::Absent(_) | SourceState::Failed(_)) => Self::Absent,
            Some(_) => Self::Shows,
        }
    }
}

/// Changes with any of DCGM's values, also those that are of no use here: some of them move on an idle GPU.
fn fingerprint(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.lines().filter(|line| line.starts_with("DCGM_")).for_each(|line| line.hash(&mut hasher));
    hasher.finish()
}

/// How often the exporter has new values, and when it last had any.
#[derive(Debug, Default)]
struct Freshness {
    last: Option<(u64, Time)>,
    /// The shortest time between two changes so far, ms: some changes may leave all values as they were.
    period_ms: Option<u64>,
}

/// Longest wait for a change while the period is not known, ms: twice the exporter's default.
const UNKNOWN_MS: u64 = 60_000;

impl Freshness {
    /// Notes what was read; whether it is new.
    fn saw(&mut self, values: u64, at: Time) -> bool {
        let before = self.last.filter(|(known, _)| *known == values);
        if before.is_some() {
            return false;
        }
        if let Some((_, then)) = self.last {
            let gap = at.since(then);
            self.period_ms = Some(self.period_ms.map_or(gap, |known| known.min(gap)));
        }
        self.last = Some((values, at));
        true
    }

    /// Seconds without a change, when those are too many.
    fn stuck(&self, at: Time) -> Option<u64> {
        let unchanged = at.since(self.last?.1);
        let most = self.period_ms.map_or(UNKNOWN_MS, |period| period.saturating_mul(3).max(UNKNOWN_MS));
        (unchanged > most).then_some(unchanged / 1000)
    }

    /// The period in words: whole seconds; empty while it is not known.
    fn words(&self) -> String {
        let seconds = |ms: u64| (ms + 500) / 1000;
        self.period_ms.map(|ms| format!("{} s", seconds(ms).max(1))).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_period_is_the_shortest_time_between_changes() {
        let mut freshness = Freshness::default();
        let seen: Vec<_> = [(1, 0), (1, 1000), (2, 9_000), (2, 20_000), (3, 38_900), (4, 69_000)]
            .map(|(values, ms)| freshness.saw(values, Time(100_000 + ms)))
            .into();
        assert_eq!(seen, [true, false, true, false, true, true]);
        assert_eq!(freshness.words(), "9 s");
    }

    #[test]
    fn values_that_stand_still_for_too_long_are_stuck() {
        let mut freshness = Freshness::default();
        assert_eq!(freshness.stuck(Time(5)), None);
        freshness.saw(1, Time(100_000));
        assert_eq!((freshness.stuck(Time(160_000)), freshness.words()), (None, String::new()));
        assert_eq!(freshness.stuck(Time(161_000)), Some(61));
        freshness.saw(2, Time(130_000));
        assert_eq!(freshness.stuck(Time(220_000)), None, "three periods of 30 s");
        assert_eq!(freshness.stuck(Time(221_000)), Some(91));
    }
}
