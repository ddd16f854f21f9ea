//! Finds serving engines on this host: a process that looks like one, its listening sockets, and the
//! fingerprint of what answers there. Tells for each engine, found or named, which processes it is.
//!
//! Reads `/proc` and sends GET requests to sockets that such a process itself holds, nothing else. It
//! must not keep the engines it finds: they go to the roster of `engines`. Invariants: a search is cheap;
//! files are never read on the thread of the network; no namespace is entered.

mod ask;
mod launched;
mod look;
mod model_file;
mod namespace;
mod owner;
mod places;
mod readers;
mod scan;
mod user;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

pub(super) use ask::{Asks, Candidate, Fairness, ask_all};
pub(super) use launched::{Launched, Told};
use look::{Look, Round};
use namespace::Namespaces;
pub(super) use owner::Listed;
use owner::{Owners, Process};
use places::{Here, How, Places};
use readers::Readers;
use reqwest::Client;
use scan::{Pid, Processes, Scanner};
use user::User;
pub(super) use user::is_stranger;

use super::engines::{Net, STOP_POLL};
use super::process::{holds_device, in_first_pid_namespace};
use super::{scrape, thread};
use crate::engine::launch::{Family, Role};
use crate::engine::options::Options;
use crate::model::limits::FOUND_ENGINES;
use crate::model::{Batch, SourceId, SourceState};
use crate::net::tls::Authorities;

/// Starts the search on a thread of its own, `warptop-search`: what it asks has not shown that it is an engine, and whatever
/// that answers keeps no engine from being read. Without `list`, nothing is asked or listed: it only tells about what is
/// listed.
pub(super) fn start(net: &Arc<Net>, list: bool) {
    let net = Arc::clone(net);
    let context = net.context.clone();
    thread::start(&context, SourceId::Discovery, "warptop-search", move |context| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        // Addresses of this host are asked over http only.
        let client = scrape::client(net.timing.timeout / 2, &Authorities::default(), false);
        let (Ok(runtime), Ok(client)) = (runtime, client) else {
            let words = "engines cannot be looked for: the network cannot be used";
            return thread::say(context, SourceId::Discovery, SourceState::Failed(words.into()));
        };
        runtime.block_on(async {
            tokio::spawn(search(net, client, list));
            while !context.stop.stopped() {
                tokio::time::sleep(STOP_POLL).await;
            }
        });
        runtime.shutdown_background();
    });
}

async fn search(net: Arc<Net>, client: Client, list: bool) {
    // The named engines come first, so that none of them is found a second time.
    while !net.all_tried() {
        tokio::time::sleep(net.timing.period / 10).await;
    }
    let (looks, started) = (HashMap::new(), HashMap::new());
    let (readers, eyes, fairness) = (Arc::default(), Eyes::default(), Fairness::default());
    let mut search = Search { net, client, list, eyes, looks, started, readers, fairness, blind: false };
    loop {
        search.once().await;
        let timing = &search.net.timing;
        let wait = if search.net.engines() == 0 { timing.search_when_none } else { timing.search };
        tokio::time::sleep(wait).await;
    }
}

/// Where processes with this name can be asked, for sources other than engines.
pub(super) fn places_of_program(name: &str) -> Vec<Candidate> {
    let mut namespaces = Namespaces::default();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<Pid>().ok());
    let named = pids
        .filter(|pid| std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim_end() == name));
    let mut found = Vec::new();
    for pid in named {
        let (user, places) = (User::of(pid).map(|user| user.id), places::places_at(pid, None, None, &mut namespaces));
        let places = places.list.iter().enumerate();
        found.extend(places.map(|(rank, place)| Candidate { user, rank, at: place.at }));
    }
    found
}

/// What reads `/proc`; it goes to a thread for that and comes back.
#[derive(Debug, Default)]
struct Eyes {
    scanner: Scanner,
    owners: Owners,
    processes: Processes,
    namespaces: Namespaces,
}

/// A process that may answer as an engine.
#[derive(Debug)]
struct Suspect {
    process: Process,
    user: Option<u32>,
    family: Family,
    places: Places,
    /// When it and its relatives started, Unix seconds.
    starts: Vec<f64>,
}

/// What one look around gave.
#[derive(Debug, Default)]
struct Sight {
    suspects: Vec<Suspect>,
    /// Processes of `resting` that are still there.
    resting: HashSet<Process>,
    here: Here,
    /// Users whose sockets are where each engine of the list is asked.
    users: HashMap<u8, HashSet<u32>>,
}

impl Eyes {
    /// Looks at every process; where those listen that are not in `resting`.
    fn look(&mut self, resting: &HashSet<Process>, listed: &[Listed]) -> Sight {
        self.processes = self.scanner.scan();
        self.namespaces = Namespaces::default();
        let mut sight = Sight::default();
        for (pid, launch) in self.processes.engines() {
            let Some(seen) = self.processes.get(pid).filter(|_| launch.role == Role::Server) else { continue };
            let process = Process { pid, start: seen.start };
            if resting.contains(&process) {
                sight.resting.insert(process);
                continue;
            }
            let places = places::places_of(pid, launch, &seen.words, &mut self.namespaces);
            let own = places.list.iter().filter(|place| place.how == How::Own);
            sight.here.taken.extend(own.map(|place| place.at.port()));
            let starts = places::starts_of(pid, &self.processes);
            let user = User::of(pid).map(|user| user.id);
            sight.suspects.push(Suspect { process, user, family: launch.family, places, starts });
        }
        if !sight.suspects.is_empty() {
            let users = |engine: &Listed| (engine.index, owner::users_at(&engine.endpoint, &mut self.namespaces));
            sight.users = listed.iter().map(users).collect();
        }
        if sight.suspects.iter().any(|suspect| suspect.places.list.iter().any(|place| place.how == How::Inside)) {
            sight.here.addresses = self.namespaces.own().map(|own| own.addresses.clone()).unwrap_or_default();
        }
        sight
    }

    /// Which processes each engine is.
    fn owned(&mut self, listed: &[Listed], found: &[(u8, Process)], on_gpu: &HashSet<u32>) -> Vec<Owned> {
        let first_namespace = in_first_pid_namespace();
        // Elsewhere the driver's ids may be others: only what holds a device file of the driver is sure.
        let counts = |pid: Pid| first_namespace || procfs::process::Process::new(pid).is_ok_and(|p| holds_device(&p));
        let mut owned = Vec::with_capacity(listed.len());
        for engine in listed {
            for (_, process) in found.iter().filter(|(index, _)| *index == engine.index) {
                self.owners.found(engine, *process, &self.processes, &mut self.namespaces);
            }
            let owner = self.owners.of(engine, self.scanner.round, &self.processes, &mut self.namespaces);
            let words = |process: Process| (process.pid.unsigned_abs(), self.scanner.words(process.pid));
            let pids = owner.map(|process| owner::pids_text(process, &self.processes, on_gpu, counts));
            owned.push(Owned {
                index: engine.index,
                command: pids.as_ref().filter(|text| !text.is_empty()).and(owner).map(words),
                pids: pids.filter(|text| !text.is_empty()),
                started: owner.map(|process| (process, launched::options_of(process, &self.processes))),
                launched: engine.launched,
            });
        }
        owned
    }
}

/// What is known of an engine's processes.
#[derive(Debug)]
struct Owned {
    index: u8,
    pids: Option<String>,
    /// Id and command line of the process that answers.
    command: Option<(u32, Vec<String>)>,
    /// The process that answers, and how it was started.
    started: Option<(Process, Options)>,
    /// That was told already.
    launched: bool,
}

struct Search {
    net: Arc<Net>,
    client: Client,
    list: bool,
    eyes: Eyes,
    looks: HashMap<Process, Look>,
    /// The process of each engine whose start was told.
    started: HashMap<u8, Process>,
    readers: Arc<Readers>,
    fairness: Fairness,
    /// The processes of this host could not be looked at.
    blind: bool,
}

/// Tells the roster how an engine was started, once its model's configuration was read.
async fn tell_launched(net: Arc<Net>, readers: Arc<Readers>, index: u8, process: Process, options: Options) {
    let (given, user) = (options.clone(), User::of(process.pid).map(|user| user.id));
    let read = readers.read(user, move || Launched::of(process, given)).await;
    net.tell_launched(index, read.unwrap_or_else(|| Launched::unread(options)));
}

impl Search {
    async fn once(&mut self) {
        let clock = Arc::clone(&self.net.context.clock);
        let at = clock.now();
        let round = self.eyes.scanner.round.wrapping_add(1);
        let resting: HashSet<_> =
            self.looks.iter().filter(|(_, look)| round < look.until).map(|(process, _)| *process).collect();
        let listed = self.net.listed();
        let (mut sight, mut took) = self.read(move |eyes| eyes.look(&resting, &listed)).await;
        // What is known is told before anybody is asked, who may be slow.
        took += self.tell().await;
        if !sight.suspects.is_empty() || self.looks.len() > sight.resting.len() {
            let resting = sight.resting.iter().filter_map(|process| Some((*process, self.looks.remove(process)?)));
            let mut looks: HashMap<_, _> = resting.collect();
            looks.extend(self.ask(std::mem::take(&mut sight)).await);
            self.looks = looks;
            took += self.tell().await;
        }
        if self.list {
            let mut batch = Batch::new(SourceId::Discovery, at, Batch::FOREVER);
            batch.took_us = u32::try_from(took).unwrap_or(u32::MAX);
            batch.state = Some(self.state());
            self.net.context.sink.send(&batch);
        }
    }

    /// Asks where suspects listen.
    async fn ask(&mut self, sight: Sight) -> Vec<(Process, Look)> {
        let mut round = Round::new(Arc::clone(&self.net), self.client.clone(), self.list, sight);
        self.fairness.begin();
        round.advance(&self.fairness);
        ask_all(&mut round, &mut self.fairness).await;
        round.looks(self.eyes.scanner.round, &self.fairness)
    }

    /// Runs what reads files on a thread for that. Returns what it gave and how long it took, µs.
    async fn read<T: Default + Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut Eyes) -> T + Send + 'static,
    ) -> (T, u64) {
        let clock = Arc::clone(&self.net.context.clock);
        let mut eyes = std::mem::take(&mut self.eyes);
        let done = thread::run_aside("warptop-look", move || {
            let begun = clock.micros();
            let found = work(&mut eyes);
            (eyes, found, clock.micros().saturating_sub(begun))
        });
        // Without a thread, or after a mistake in it, all is looked at anew.
        let done = done.await;
        self.blind = done.is_none();
        let (eyes, found, took) = done.unwrap_or_default();
        self.eyes = eyes;
        (found, took)
    }

    /// Tells the roster which processes each engine is.
    async fn tell(&mut self) -> u64 {
        let listed = self.net.listed();
        let found: Vec<_> = self.looks.iter().filter_map(|(process, look)| Some((look.engine?, *process))).collect();
        let on_gpu = self.net.context.sink.store().read().gpu_processes().iter().map(|process| process.pid).collect();
        let (owned, took) = self.read(move |eyes| eyes.owned(&listed, &found, &on_gpu)).await;
        for Owned { index, pids, command, started, launched } in owned {
            self.net.tell_pids(index, pids);
            if let Some((pid, words)) = command {
                self.net.tell_command(index, pid, words);
            }
            if let Some((process, options)) = started
                && (self.started.insert(index, process) != Some(process) || !launched)
            {
                let (net, readers) = (Arc::clone(&self.net), Arc::clone(&self.readers));
                tokio::spawn(tell_launched(net, readers, index, process, options));
            }
        }
        took
    }

    fn state(&self) -> SourceState {
        if let Some(words) = self.net.left_out() {
            return words.clone();
        }
        if self.blind {
            let words = "processes cannot be looked at: there is no thread for it (ulimit -u and -v, the cgroup's \
                         pids.max); engines can be named with --engine URL";
            return SourceState::Degraded(words.into());
        }
        let full = self.looks.values().filter(|look| look.full).count();
        if full > 0 {
            let words = format!(
                "{full} more engines run on this host than the {FOUND_ENGINES} that the search adds: name those to \
                 watch with --engine URL"
            );
            return SourceState::Degraded(words.into());
        }
        let none = self.net.engines() == 0;
        match Look::words(&self.looks, none) {
            Some(words) => SourceState::Degraded(words.into()),
            None if none => {
                SourceState::Absent("no serving engine on this host: start one, or give its --engine URL".into())
            }
            None => SourceState::Ok,
        }
    }
}

/// Every parser below on the same text, for `fuzz/`.
#[cfg(fuzzing)]
pub(super) fn fuzz(text: &str) {
    namespace::fuzz(text);
}
