//! Finds serving engines on this host: a process that looks like one, its listening sockets, and the
//! fingerprint of what answers there. Tells for each engine, found or named, which processes it is.
//!
//! Reads `/proc` and sends GET requests to sockets that such a process itself holds, nothing else. It
//! must not keep the engines it finds: they go to the roster of `engines`. Invariants: a search is cheap;
//! files are never read on the thread of the network; no namespace is entered.

mod launched;
mod model_file;
mod namespace;
mod owner;
mod places;
mod readers;
mod scan;
mod user;

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;

pub(super) use launched::{Launched, Told};
use namespace::Namespaces;
pub(super) use owner::Listed;
use owner::{Owners, Process};
use places::{Here, How, Place, Places};
use readers::Readers;
use scan::{Pid, Processes, Scanner};
use user::User;

use super::aside::Turns;
use super::engines::{Identity, Net, Placed};
use super::fingerprint;
use super::pages::Pages;
use super::process::{holds_device, in_first_pid_namespace};
use super::scrape::{self, Asker};
use super::work::Spent;
use crate::engine::launch::{Family, Role};
use crate::engine::options::Options;
use crate::model::limits::FOUND_ENGINES;
use crate::model::{Batch, SourceId, SourceState, text};
use crate::net::endpoint::Endpoint;

/// Searches for ever. Without `list`, nothing is asked or listed: it only tells about what is listed.
pub(super) async fn search(net: Arc<Net>, list: bool) {
    // The named engines come first, so that none of them is found a second time.
    while !net.all_tried() {
        tokio::time::sleep(net.timing.period / 10).await;
    }
    let (looks, started) = (HashMap::new(), HashMap::new());
    let readers = Arc::default();
    let mut search = Search { net, list, eyes: Eyes::default(), looks, started, readers, body: Vec::new() };
    loop {
        search.once().await;
        let timing = &search.net.timing;
        let wait = if search.net.engines() == 0 { timing.search_when_none } else { timing.search };
        tokio::time::sleep(wait).await;
    }
}

/// Where processes with this name can be asked, for sources other than engines; the likeliest first.
pub(super) fn places_of_program(name: &str) -> Vec<SocketAddr> {
    let mut namespaces = Namespaces::default();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<Pid>().ok());
    let named = pids
        .filter(|pid| std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim_end() == name));
    let mut found = Vec::new();
    for pid in named {
        found.extend(places::places_at(pid, None, None, &mut namespaces).list.iter().map(|place| place.at));
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
}

impl Eyes {
    /// Looks at every process; where those listen that are not in `resting`.
    fn look(&mut self, resting: &HashSet<Process>) -> Sight {
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
            sight.suspects.push(Suspect { process, family: launch.family, places, starts });
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
                self.owners.found(engine, *process, &self.processes);
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

/// Searches to leave out before the same process is looked at again, from what one of its sockets said.
const fn rounds_to_rest(trouble: &scrape::Trouble) -> u32 {
    if trouble.may_pass_soon() { 1 } else { Scanner::AGAIN }
}

/// What came of looking at a process.
#[derive(Clone, Debug)]
struct Look {
    /// Not to be looked at before that round; [`Look::SETTLED`] when its engine is listed.
    until: u32,
    trouble: Option<Trouble>,
    full: bool,
    /// Number of the engine that it answers as.
    engine: Option<u8>,
}

/// Why a process is not listed as an engine.
#[derive(Clone, Debug)]
enum Trouble {
    /// It may yet be, or is a process beside one that is: of interest while there is no engine.
    Passing(String),
    /// It is an engine, but it cannot be reached from here, or wants a key.
    Lasting(String),
}

impl Look {
    const SETTLED: u32 = u32::MAX;
}

struct Search {
    net: Arc<Net>,
    list: bool,
    eyes: Eyes,
    looks: HashMap<Process, Look>,
    /// The process of each engine whose start was told.
    started: HashMap<u8, Process>,
    readers: Arc<Readers>,
    body: Vec<u8>,
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
        let (sight, mut took) = self.read(move |eyes| eyes.look(&resting)).await;
        let mut looks: HashMap<_, _> =
            sight.resting.iter().filter_map(|process| Some((*process, self.looks.remove(process)?))).collect();
        for suspect in &sight.suspects {
            looks.insert(suspect.process, self.look(suspect, &sight.here).await);
        }
        self.looks = looks;
        took += self.tell().await;
        if self.list {
            let mut batch = Batch::new(SourceId::Discovery, at, Batch::FOREVER);
            batch.took_us = u32::try_from(took).unwrap_or(u32::MAX);
            batch.state = Some(self.state());
            self.net.context.sink.send(&batch);
        }
    }

    /// Runs what reads files on a thread for that. Returns what it gave and how long it took, µs.
    async fn read<T: Default + Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut Eyes) -> T + Send + 'static,
    ) -> (T, u64) {
        let clock = Arc::clone(&self.net.context.clock);
        let mut eyes = std::mem::take(&mut self.eyes);
        let done = tokio::task::spawn_blocking(move || {
            let begun = clock.micros();
            let found = work(&mut eyes);
            (eyes, found, clock.micros().saturating_sub(begun))
        });
        // It fails only when the program is about to end, or by a mistake in it: then all is looked at anew.
        let (eyes, found, took) = done.await.unwrap_or_default();
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
        let full = self.looks.values().filter(|look| look.full).count();
        if full > 0 {
            let words = format!(
                "{full} more engines run on this host than the {FOUND_ENGINES} that the search adds: name those to \
                 watch with --engine URL"
            );
            return SourceState::Degraded(words.into());
        }
        let troubles = || self.looks.values().filter_map(|look| look.trouble.as_ref());
        let lasting = troubles().find_map(|trouble| match trouble {
            Trouble::Lasting(words) => Some(words),
            Trouble::Passing(_) => None,
        });
        let any = troubles().map(|(Trouble::Passing(words) | Trouble::Lasting(words))| words).next();
        let none = self.net.engines() == 0;
        match lasting.or(any.filter(|_| none)) {
            Some(words) => SourceState::Degraded(words.as_str().into()),
            None if none => {
                SourceState::Absent("no serving engine on this host: start one, or give its --engine URL".into())
            }
            None => SourceState::Ok,
        }
    }

    /// Takes the fingerprint of what listens in this process, until one place is its engine's.
    async fn look(&mut self, suspect: &Suspect, here: &Here) -> Look {
        let Suspect { process: Process { pid, .. }, family, places, starts } = suspect;
        let name = family.name();
        let mut look = Look { until: Look::SETTLED, trouble: None, full: false, engine: None };
        let mut trouble = Trouble::Passing(if places.hidden {
            format!("{name} (pid {pid}) is another user's, so its port cannot be seen: give its --engine URL")
        } else {
            format!("{name} (pid {pid}) runs but does not listen yet")
        });
        if let Some(at) = places.shut {
            trouble = Trouble::Lasting(format!(
                "{name} (pid {pid}) listens only at {at} inside a network namespace of its own (a container), where \
                 nobody outside can ask: start it with --host 0.0.0.0, or run warptop inside"
            ));
        }
        if places.dishonest {
            trouble = Trouble::Lasting(format!(
                "{name} (pid {pid}) is another user's, in a network namespace whose addresses that user may have chosen, \
                 so it is not asked: give its --engine URL"
            ));
        }
        let mut rest = if places.list.is_empty() && places.shut.is_none() { 1 } else { Scanner::AGAIN };
        for place in &places.list {
            match self.ask(*place, starts, here).await {
                Ok(Asked::Listed(index)) => {
                    look.engine = Some(index);
                    return look;
                }
                Ok(Asked::Full) => look.full = true,
                Ok(Asked::Another) => {
                    trouble = Trouble::Lasting(format!(
                        "{name} (pid {pid}) cannot be reached from outside its container: what answers at {} is \
                         another process; publish its port, or run warptop inside",
                        place.at
                    ));
                }
                Ok(Asked::Nothing) => {}
                Err(error) => {
                    rest = rest.min(rounds_to_rest(&error));
                    let words = text::clean(&format!("{name} (pid {pid}) at {}: {error}", place.at));
                    trouble = if matches!(error, scrape::Trouble::Unauthorized { .. }) {
                        Trouble::Lasting(words)
                    } else {
                        Trouble::Passing(words)
                    };
                }
            }
        }
        look.until = self.eyes.scanner.round.wrapping_add(rest);
        // An engine that is listed at a place that leads here by ways unknown has no trouble.
        let listed =
            matches!(trouble, Trouble::Lasting(_)) && self.net.has_started(|start| places::is_one_of(start, starts));
        look.trouble = Some(trouble).filter(|_| !look.full && !listed);
        look
    }

    async fn ask(&mut self, place: Place, starts: &[f64], here: &Here) -> Result<Asked, scrape::Trouble> {
        let Ok(endpoint) = Endpoint::local(place.at) else { return Ok(Asked::Nothing) };
        let endpoint = self.net.access.equip(endpoint, false);
        if let Some((index, start)) = self.net.holds(&endpoint) {
            return Ok(if places::is_it(place, start, starts, here) { Asked::Listed(index) } else { Asked::Another });
        }
        if !self.list {
            return Ok(Asked::Nothing);
        }
        let identity = self.fingerprint(&endpoint).await?;
        if !places::is_it(place, identity.start, starts, here) {
            return Ok(Asked::Another);
        }
        Ok(match self.net.place(endpoint, identity, place.how != How::Own) {
            (Placed::Full, _) | (_, None) => Asked::Full,
            (_, Some(index)) => Asked::Listed(index),
        })
    }

    async fn fingerprint(&mut self, endpoint: &Endpoint) -> Result<Identity, scrape::Trouble> {
        let mut spent = Spent::default();
        let turns = Turns::of_a_stranger();
        let asker = Asker { limit: self.net.timing.timeout / 2, ..self.net.asker(endpoint, &turns) };
        let found = fingerprint::recognise(&asker, &mut self.body, &mut spent).await?;
        let mut pages = Pages::new(Batch::new(SourceId::Discovery, self.net.context.clock.now(), 0));
        pages.body = std::mem::take(&mut self.body);
        let bytes = pages.bytes();
        let endpoint = endpoint.clone();
        let work = move || {
            pages.translate(found, 0, false);
            endpoint.mask(&mut pages.batch);
            Identity::of(found.adapter, &pages.batch)
        };
        self.net.desk.run(bytes, &mut spent, work).await.ok_or(scrape::Trouble::Broken)
    }
}

/// What came of asking at one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// It is the engine with this number.
    Listed(u8),
    /// It is an engine, but the list is full.
    Full,
    /// An engine answers, but it is another process.
    Another,
    /// It was not asked.
    Nothing,
}

/// Every parser below on the same text, for `fuzz/`.
#[cfg(fuzzing)]
pub(super) fn fuzz(text: &str) {
    namespace::fuzz(text);
}
