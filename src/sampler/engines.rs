//! Serving engines: the list of them, and one thread for all.
//!
//! Owns which engine has which number and where it is asked. It must not know how engines are found
//! (`discover`), read (`watch`) or what they say (`engine`). Invariants: engines named on the command
//! line keep the numbers 0, 1 …; no place is listed twice; what was found moves with its process.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use reqwest::Client;
use tokio::runtime::Handle;

use super::aside::{Aside, Turns};
use super::discover::{Launched, Listed, Told};
use super::scrape::{self, Asker, MAX_BODY};
use super::work::{Desk, valid_ms};
use super::{Context, Options, Sampler, discover, thread, watch};
use crate::engine::Adapter;
use crate::engine::continuity::started;
use crate::model::limits::{ENGINES, FOUND_ENGINES};
use crate::model::{Batch, FactKey, SourceId, SourceState, Subject, lock, text};
use crate::net::access::Access;
use crate::net::endpoint::Endpoint;

/// Named and found engines.
pub const SAMPLER: Sampler = Sampler {
    id: "engines",
    help: "GET /metrics of each serving engine once a second; engines are named with --engine or found on this host \
           (a process that looks like one, its listening port, and the fingerprint of the answer)",
    start: |context, options| start(context, options, options.timing),
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
        search: Duration::from_secs(10),
        search_when_none: Duration::from_secs(2),
    };

    /// How long a scrape's values are current, ms.
    pub(super) fn valid_ms(&self) -> u32 {
        valid_ms(self.period)
    }
}

impl Default for Timing {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// What is wrong with the URL of an engine, in words that hold no secret; nothing where it can be asked.
pub fn wrong_url(text: &str) -> Option<String> {
    Endpoint::parse(text).err().map(|bad| format!("--engine '{}': {bad}", bad.shown))
}

/// Starts the thread `warptop-net` and returns. [`SAMPLER`] does this with the timing of its options.
pub fn start(context: &Context, options: &Options, timing: Timing) {
    if options.engine_urls.is_empty() && !options.discover {
        let words = "no engine named, and the search is off (--no-discover)";
        return thread::say(context, SourceId::Discovery, SourceState::Absent(words.into()));
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
pub(super) const STOP_POLL: Duration = Duration::from_millis(500);

fn run(context: &Context, options: &Options, timing: Timing) -> Result<(), Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let https = options.engine_urls.iter().any(|url| Endpoint::parse(url).is_ok_and(|named| named.is_https()));
    let client = scrape::client(timing.timeout / 2, &options.authorities, https)?;
    let access = options.access.clone();
    let desk = Desk::new(Arc::clone(&context.clock));
    let (roster, left_out) = (Mutex::default(), OnceLock::new());
    let aside = Aside::default();
    let handle = runtime.handle().clone();
    let net = Arc::new(Net { context: context.clone(), handle, client, desk, aside, access, timing, roster, left_out });
    runtime.block_on(async {
        let left_out = options.engine_urls.iter().filter(|url| !net.name(url)).count();
        if left_out > 0 {
            net.leave_out(left_out);
        }
        discover::start(&net, options.discover);
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
        Self { kind: adapter.spec().id, model: model.unwrap_or_default(), start: started(batch) }
    }
}

/// One line of the list of engines.
#[derive(Debug)]
struct Entry {
    /// `None` when what was given is no URL.
    endpoint: Option<Endpoint>,
    named: bool,
    identity: Option<Identity>,
    /// Whose process it is, of one that was found.
    user: Option<u32>,
    /// The last scrape failed.
    down: bool,
    /// At least one scrape has ended.
    tried: bool,
    /// What its processes on this host tell.
    told: Told,
}

/// The process as which an engine was found: who else it may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct FoundAs<'a> {
    pub(super) user: Option<u32>,
    /// It was asked at an address that may lead elsewhere: a container's port can be published as another one.
    pub(super) contained: bool,
    /// Users whose sockets are at the addresses of engines that are named.
    pub(super) users: &'a HashMap<u8, HashSet<u32>>,
}

impl FoundAs<'_> {
    /// Whether its user may be that of an entry of the list. Anybody may repeat what another user's engine says, at an
    /// address of his own.
    fn may_be(&self, index: usize, entry: &Entry) -> bool {
        let is_trusted = |user: u32| !discover::is_stranger(user);
        let Some(user) = self.user else { return false };
        let named = u8::try_from(index).ok().and_then(|index| self.users.get(&index)).filter(|_| entry.named);
        let mut theirs = entry.user.into_iter().chain(named.into_iter().flatten().copied()).peekable();
        if theirs.peek().is_none() {
            return is_trusted(user);
        }
        // The socket of a container's published port is root's.
        theirs.any(|other| other == user || self.contained && is_trusted(other))
    }
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

impl Roster {
    /// What is listed at this place.
    fn holds(&self, endpoint: &Endpoint) -> Option<usize> {
        self.0.iter().position(|entry| entry.endpoint.as_ref().is_some_and(|listed| listed.same_place(endpoint)))
    }

    /// This very process, listed under another name of the host, or maybe at another port.
    fn process(&self, endpoint: &Endpoint, identity: &Identity, found_as: FoundAs<'_>) -> Option<usize> {
        self.0.iter().enumerate().position(|(index, entry)| {
            let same_port = entry.endpoint.as_ref().is_some_and(|listed| listed.port() == endpoint.port());
            let is_alike = identity.start.is_some() && entry.identity.as_ref() == Some(identity);
            is_alike && (same_port || found_as.contained) && found_as.may_be(index, entry)
        })
    }

    /// Lists an engine that was found, or finds it in the list.
    fn place(&mut self, endpoint: Endpoint, identity: Identity, found: FoundAs<'_>) -> (Placed, Option<usize>) {
        if let Some(known) = self.holds(&endpoint).or_else(|| self.process(&endpoint, &identity, found)) {
            return (Placed::Known, Some(known));
        }
        let gone = self.0.iter().position(|entry| {
            let alike = |i: &Identity| i.kind == identity.kind && i.model == identity.model;
            let same_user = entry.user.is_some() && entry.user == found.user;
            !entry.named && entry.down && same_user && entry.identity.as_ref().is_some_and(alike)
        });
        if let Some(place) = gone {
            let entry = &mut self.0[place];
            entry.endpoint = Some(endpoint);
            entry.down = false;
            return (Placed::Again, gone);
        }
        if self.0.len() >= FOUND_ENGINES {
            return (Placed::Full, None);
        }
        self.0.push(Entry {
            endpoint: Some(endpoint),
            named: false,
            identity: Some(identity),
            user: found.user,
            down: false,
            tried: false,
            told: Told::default(),
        });
        (Placed::New, Some(self.0.len() - 1))
    }
}

/// What the tasks share.
pub(super) struct Net {
    pub(super) context: Context,
    /// Where engines are read.
    handle: Handle,
    client: Client,
    pub(super) desk: Desk,
    aside: Aside,
    pub(super) access: Access,
    pub(super) timing: Timing,
    roster: Mutex<Roster>,
    left_out: OnceLock<SourceState>,
}

impl Net {
    /// How an endpoint is asked.
    pub(super) const fn asker<'a>(&'a self, endpoint: &'a Endpoint, turns: &'a Turns) -> Asker<'a> {
        let Self { client, desk, timing, aside, .. } = self;
        Asker { client, desk, endpoint, limit: timing.timeout, most: MAX_BODY, aside: Some((aside, turns)) }
    }

    fn roster(&self) -> MutexGuard<'_, Roster> {
        lock(&self.roster)
    }

    /// Number of engines listed.
    pub(super) fn engines(&self) -> usize {
        self.roster().0.len()
    }

    /// Whether every engine has been tried at least once.
    pub(super) fn all_tried(&self) -> bool {
        self.roster().0.iter().all(|entry| entry.tried)
    }

    /// The engine that is listed at this place, and when its process says that it started, Unix seconds.
    pub(super) fn holds(&self, endpoint: &Endpoint) -> Option<(u8, Option<f64>)> {
        let roster = self.roster();
        let index = roster.holds(endpoint)?;
        let start = roster.0[index].identity.as_ref().and_then(|identity| identity.start);
        Some((u8::try_from(index).ok()?, start))
    }

    /// Whether any engine that is listed started at such a time (Unix seconds).
    pub(super) fn has_started(&self, such: impl Fn(f64) -> bool) -> bool {
        let start = |entry: &Entry| entry.identity.as_ref().and_then(|identity| identity.start);
        self.roster().0.iter().filter_map(start).any(such)
    }

    /// Every engine that has a place.
    pub(super) fn listed(&self) -> Vec<Listed> {
        let roster = self.roster();
        let entries = roster.0.iter().enumerate();
        let listed = entries.filter_map(|(index, entry)| {
            let (index, endpoint) = (u8::try_from(index).ok()?, entry.endpoint.clone()?);
            let launched = entry.told.launched.is_some();
            Some(Listed { index, endpoint, up: entry.tried && !entry.down, launched })
        });
        listed.collect()
    }

    /// Notes which processes an engine is; `None` when that is not known.
    pub(super) fn tell_pids(&self, index: u8, pids: Option<String>) {
        if let Some(entry) = self.roster().0.get_mut(usize::from(index)) {
            match pids {
                Some(pids) => entry.told.pids = Some(pids.into()),
                None => entry.told.forget(),
            }
        }
    }

    /// Notes how an engine was started.
    pub(super) fn tell_launched(&self, index: u8, launched: Launched) {
        if let Some(entry) = self.roster().0.get_mut(usize::from(index)) {
            entry.told.launched = Some(Arc::new(launched));
        }
    }

    /// Notes the command line of the process that answers as an engine.
    pub(super) fn tell_command(&self, index: u8, pid: u32, words: Vec<String>) {
        if let Some(entry) = self.roster().0.get_mut(usize::from(index)) {
            entry.told.command = Some(Arc::new((pid, words)));
        }
    }

    /// What the processes of an engine tell beside its answers.
    pub(super) fn told(&self, index: u8) -> Told {
        self.roster().0.get(usize::from(index)).map(|entry| entry.told.clone()).unwrap_or_default()
    }

    /// Says that engines are named for which there is no number.
    fn leave_out(&self, count: usize) {
        let words = format!(
            "{} engines are named, and at most {ENGINES} are watched: the last {count} are left out; watch them with \
             another warptop",
            ENGINES + count
        );
        let left_out = self.left_out.get_or_init(|| SourceState::Degraded(words.into()));
        thread::say(&self.context, SourceId::Discovery, left_out.clone());
    }

    /// What is to be said of engines that are named and not watched.
    pub(super) fn left_out(&self) -> Option<&SourceState> {
        self.left_out.get()
    }

    /// Lists an engine named by the user, unless it is there already; whether there was room for it.
    fn name(self: &Arc<Self>, url: &str) -> bool {
        let parsed = Endpoint::parse(url).map(|endpoint| self.access.equip(endpoint, true));
        let mut roster = self.roster();
        if parsed.as_ref().is_ok_and(|endpoint| roster.holds(endpoint).is_some()) {
            return true;
        }
        let Some(index) = u8::try_from(roster.0.len()).ok().filter(|index| usize::from(*index) < ENGINES) else {
            return false;
        };
        let endpoint = parsed.as_ref().ok().cloned();
        let tried = endpoint.is_none();
        roster.0.push(Entry {
            endpoint,
            named: true,
            identity: None,
            user: None,
            down: tried,
            tried,
            told: Told::default(),
        });
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
        true
    }

    /// Lists an engine that was found.
    pub(super) fn place(
        self: &Arc<Self>,
        endpoint: Endpoint,
        identity: Identity,
        found: FoundAs<'_>,
    ) -> (Placed, Option<u8>) {
        let (placed, index) = self.roster().place(endpoint.clone(), identity, found);
        let index = index.and_then(|index| u8::try_from(index).ok());
        if let (Placed::New, Some(index)) = (placed, index) {
            self.watch(index, endpoint);
        }
        (placed, index)
    }

    fn watch(self: &Arc<Self>, index: u8, endpoint: Endpoint) {
        self.handle.spawn(watch::run(Arc::clone(self), index, endpoint));
    }

    /// Where an engine is to be asked now.
    pub(super) fn endpoint(&self, index: u8) -> Option<Endpoint> {
        self.roster().0.get(usize::from(index)).and_then(|entry| entry.endpoint.clone())
    }

    /// Notes how the last scrape of an engine at `endpoint` went.
    pub(super) fn note(&self, index: u8, endpoint: &Endpoint, down: bool, identity: Option<Identity>) {
        let mut roster = self.roster();
        let Some(entry) = roster.0.get_mut(usize::from(index)) else { return };
        // The entry may have moved on while the scrape was under way.
        if entry.endpoint.as_ref() == Some(endpoint) {
            entry.tried = true;
            entry.down = down;
            if let Some(identity) = identity {
                let start = |identity: &Identity| identity.start;
                if entry.identity.as_ref().and_then(start).is_some_and(|before| Some(before) != identity.start) {
                    // Another process: what the one before told holds no longer.
                    entry.told.forget();
                }
                entry.identity = Some(identity);
            }
        }
    }
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

    fn by(user: Option<u32>, users: &HashMap<u8, HashSet<u32>>) -> FoundAs<'_> {
        FoundAs { user, contained: false, users }
    }

    #[test]
    fn what_another_user_repeats_elsewhere_is_another_engine() {
        let mut roster = Roster::default();
        let none = HashMap::new();
        let found =
            |roster: &mut Roster, at: &str, who: Identity, by: FoundAs<'_>| roster.place(endpoint(at), who, by).0;
        assert_eq!(found(&mut roster, "127.0.0.1:8000", identity("a", 1.0), by(Some(1000), &none)), Placed::New);
        let same = identity("a", 1.0);
        assert_eq!(found(&mut roster, "[::1]:8000", same.clone(), by(Some(1000), &none)), Placed::Known);
        assert_eq!(found(&mut roster, "127.0.0.2:8000", same.clone(), by(Some(65_534), &none)), Placed::New);
        assert_eq!(found(&mut roster, "127.0.0.3:8000", same, by(None, &none)), Placed::New, "whose is not known");
        roster.0[0].down = true;
        assert_eq!(found(&mut roster, "127.0.0.4:9000", identity("a", 2.0), by(Some(65_534), &none)), Placed::New);
        assert_eq!(found(&mut roster, "127.0.0.1:9000", identity("a", 2.0), by(Some(1000), &none)), Placed::Again);
    }

    #[test]
    fn a_named_engine_is_that_of_the_user_whose_socket_is_there() {
        let mut roster = Roster::default();
        let named = |name: &str| Entry {
            endpoint: Some(endpoint(name)),
            named: true,
            identity: Some(identity("a", 1.0)),
            user: None,
            down: false,
            tried: true,
            told: Told::default(),
        };
        roster.0.push(named("127.0.0.1:8000"));
        let users = HashMap::from([(0, HashSet::from([1000]))]);
        let found =
            |roster: &mut Roster, by: FoundAs<'_>| roster.place(endpoint("127.0.0.2:8000"), identity("a", 1.0), by).0;
        assert_eq!(found(&mut roster, by(Some(1000), &users)), Placed::Known);
        assert_eq!(found(&mut roster, by(Some(65_534), &users)), Placed::New);
        roster.0.truncate(1);
        let roots = HashMap::from([(0, HashSet::from([0]))]);
        let published = FoundAs { contained: true, ..by(Some(1000), &roots) };
        assert_eq!(found(&mut roster, published), Placed::Known, "the socket of a published port is root's");
        let elsewhere = HashMap::new();
        assert_eq!(found(&mut roster, by(Some(0), &elsewhere)), Placed::Known, "whom warptop trusts");
        assert_eq!(found(&mut roster, by(Some(65_534), &elsewhere)), Placed::New);
    }

    #[test]
    fn no_place_is_listed_twice_and_a_restart_elsewhere_takes_over() {
        let mut roster = Roster::default();
        roster.0.push(Entry {
            endpoint: Some(endpoint("gpu7:8000")),
            named: true,
            identity: Some(identity("a", 1.0)),
            user: None,
            down: true,
            tried: true,
            told: Told::default(),
        });
        let found = |roster: &mut Roster, at: &str, who: Identity| {
            roster.place(endpoint(at), who, by(Some(0), &HashMap::new())).0
        };
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
        assert_eq!(roster.0.len(), FOUND_ENGINES);
        assert_eq!(found(&mut roster, "127.0.0.1:9999", identity("d", 9.0)), Placed::Full);
    }
}
