//! Whether a process that looks like an engine's is one, from what its sockets answer, and the words where it is not listed.
//!
//! It must not read `/proc`. Invariant: a process is settled by the likeliest of its places that answers as its engine.

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::Arc;

use reqwest::Client;

use super::ask::{Asks, Candidate, Fairness};
use super::owner::Process;
use super::places::{self, Here, How, Place};
use super::scan::Scanner;
use super::{Sight, Suspect};
use crate::model::{Batch, SourceId, text};
use crate::net::endpoint::Endpoint;
use crate::sampler::engines::{FoundAs, Identity, Net, Placed};
use crate::sampler::fingerprint;
use crate::sampler::pages::Pages;
use crate::sampler::scrape::{self, Asker, MAX_BODY};
use crate::sampler::work::Spent;

/// What came of looking at a process.
#[derive(Clone, Debug)]
pub(super) struct Look {
    /// Not to be looked at before that search; [`Look::SETTLED`] when its engine is listed.
    pub(super) until: u32,
    trouble: Option<NotListed>,
    /// It is an engine for which there is no room.
    pub(super) full: bool,
    /// Number of the engine that it answers as.
    pub(super) engine: Option<u8>,
}

/// Why a process is not listed as an engine.
#[derive(Clone, Debug)]
enum NotListed {
    /// It may yet be, or is a process beside one that is: of interest while there is no engine.
    Passing(String),
    /// It is an engine, but it cannot be reached from here, or wants a key.
    Lasting(String),
}

impl Look {
    const SETTLED: u32 = u32::MAX;

    /// What is to be said of those that are not listed; `none`: there is no engine at all.
    pub(super) fn words<K>(looks: &HashMap<K, Self>, none: bool) -> Option<&str> {
        let troubles = || looks.values().filter_map(|look| look.trouble.as_ref());
        let lasting = troubles().find_map(|trouble| match trouble {
            NotListed::Lasting(words) => Some(words),
            NotListed::Passing(_) => None,
        });
        let any = troubles().map(|(NotListed::Passing(words) | NotListed::Lasting(words))| words).next();
        lasting.or(any.filter(|_| none)).map(String::as_str)
    }
}

/// Searches to leave out before the same process is looked at again, from what one of its sockets said.
const fn searches_to_rest(trouble: &scrape::Trouble) -> u32 {
    if trouble.may_pass_soon() { 1 } else { Scanner::AGAIN }
}

/// A suspect of which not all is known.
struct Draft {
    suspect: Suspect,
    /// Places that were judged.
    judged: usize,
    rest: u32,
    settled: bool,
    look: Look,
}

impl Draft {
    fn new(suspect: Suspect) -> Self {
        let Suspect { process: Process { pid, .. }, family, places, .. } = &suspect;
        let name = family.name();
        let mut trouble = NotListed::Passing(if places.hidden {
            format!("{name} (pid {pid}) is another user's, so its port cannot be seen: give its --engine URL")
        } else {
            format!("{name} (pid {pid}) runs but does not listen yet")
        });
        if let Some(at) = places.shut {
            trouble = NotListed::Lasting(format!(
                "{name} (pid {pid}) listens only at {at} inside a network namespace of its own (a container), where \
                 nobody outside can ask: start it with --host 0.0.0.0, or run warptop inside"
            ));
        }
        if places.dishonest {
            trouble = NotListed::Lasting(format!(
                "{name} (pid {pid}) is another user's, in a network namespace whose addresses that user may have chosen, \
                 so it is not asked: give its --engine URL"
            ));
        }
        let rest = if places.list.is_empty() && places.shut.is_none() { 1 } else { Scanner::AGAIN };
        let look = Look { until: Look::SETTLED, trouble: Some(trouble), full: false, engine: None };
        Self { suspect, judged: 0, rest, settled: false, look }
    }

    /// The likeliest place that was not judged.
    fn place(&self) -> Option<Place> {
        self.suspect.places.list.get(self.judged).copied().filter(|_| !self.settled)
    }

    fn name(&self) -> String {
        format!("{} (pid {})", self.suspect.family.name(), self.suspect.process.pid)
    }

    /// Takes what came of asking at a place.
    fn judge(&mut self, place: Place, asked: Result<Asked, scrape::Trouble>) {
        self.judged += 1;
        let name = self.name();
        match asked {
            Ok(Asked::Listed(index)) => {
                self.settled = true;
                (self.look.engine, self.look.trouble) = (Some(index), None);
            }
            Ok(Asked::Full) => self.look.full = true,
            Ok(Asked::Another) => {
                self.look.trouble = Some(NotListed::Lasting(format!(
                    "{name} cannot be reached from outside its container: what answers at {} is another process; \
                     publish its port, or run warptop inside",
                    place.at
                )));
            }
            Ok(Asked::Nothing) => {}
            Err(error) => {
                self.rest = self.rest.min(searches_to_rest(&error));
                let words = text::clean(&format!("{name} at {}: {error}", place.at));
                self.look.trouble = Some(if matches!(error, scrape::Trouble::Unauthorized { .. }) {
                    NotListed::Lasting(words)
                } else {
                    NotListed::Passing(words)
                });
            }
        }
    }

    /// Leaves out a place that stayed silent before.
    fn pass_over(&mut self, place: Place) {
        self.judged += 1;
        self.rest = 1;
        let words =
            format!("{} at {} did not answer when it was asked last; it is asked again soon", self.name(), place.at);
        self.look.trouble = Some(NotListed::Passing(words));
    }

    /// What came of it, in the search `round`.
    fn finish(mut self, round: u32, fairness: &Fairness, net: &Net) -> (Process, Look) {
        if self.settled {
            return (self.suspect.process, self.look);
        }
        if self.place().is_some() && fairness.is_used_up(self.suspect.user) {
            self.rest = 1;
            let name = self.name();
            self.look.trouble = Some(NotListed::Passing(format!(
                "{name} waits for its turn: its user's processes listen on more sockets than are asked in one search"
            )));
        }
        self.look.until = round.wrapping_add(self.rest);
        // An engine that is listed at a place that leads here by ways unknown has no trouble.
        let starts = &self.suspect.starts;
        let listed = matches!(self.look.trouble, Some(NotListed::Lasting(_)))
            && net.has_started(|start| places::is_one_of(start, starts));
        if self.look.full || listed {
            self.look.trouble = None;
        }
        (self.suspect.process, self.look)
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

/// One search's suspects.
pub(super) struct Round {
    net: Arc<Net>,
    client: Client,
    list: bool,
    drafts: Vec<Draft>,
    here: Here,
    users: HashMap<u8, HashSet<u32>>,
    answers: HashMap<SocketAddr, Result<Identity, scrape::Trouble>>,
}

impl Round {
    pub(super) fn new(net: Arc<Net>, client: Client, list: bool, sight: Sight) -> Self {
        let Sight { suspects, here, users, .. } = sight;
        let drafts = suspects.into_iter().map(Draft::new).collect();
        Self { net, client, list, drafts, here, users, answers: HashMap::new() }
    }

    /// Judges every place of which enough is known.
    pub(super) fn advance(&mut self, fairness: &Fairness) {
        let mut drafts = std::mem::take(&mut self.drafts);
        for draft in &mut drafts {
            while let Some(place) = draft.place() {
                if let Some(asked) = self.known(place, &draft.suspect) {
                    draft.judge(place, asked);
                } else if fairness.rests(place.at, draft.suspect.user) {
                    draft.pass_over(place);
                } else {
                    break;
                }
            }
        }
        self.drafts = drafts;
    }

    pub(super) fn looks(self, round: u32, fairness: &Fairness) -> Vec<(Process, Look)> {
        let net = self.net;
        self.drafts.into_iter().map(|draft| draft.finish(round, fairness, &net)).collect()
    }

    /// What is known of a place: from the list, or from the answer. `None` while it has to be asked.
    fn known(&self, place: Place, suspect: &Suspect) -> Option<Result<Asked, scrape::Trouble>> {
        let Some(endpoint) = self.endpoint(place.at) else { return Some(Ok(Asked::Nothing)) };
        if let Some((index, start)) = self.net.holds(&endpoint) {
            let is_it = places::is_it(place, start, &suspect.starts, &self.here);
            return Some(Ok(if is_it { Asked::Listed(index) } else { Asked::Another }));
        }
        if !self.list {
            return Some(Ok(Asked::Nothing));
        }
        let identity = match self.answers.get(&place.at)? {
            Ok(identity) => identity,
            Err(trouble) => return Some(Err(trouble.clone())),
        };
        if !places::is_it(place, identity.start, &suspect.starts, &self.here) {
            return Some(Ok(Asked::Another));
        }
        let found = FoundAs { user: suspect.user, contained: place.how != How::Own, users: &self.users };
        Some(Ok(match self.net.place(endpoint, identity.clone(), found) {
            (Placed::Full, _) | (_, None) => Asked::Full,
            (_, Some(index)) => Asked::Listed(index),
        }))
    }

    fn endpoint(&self, at: SocketAddr) -> Option<Endpoint> {
        Some(self.net.access.equip(Endpoint::local(at).ok()?, false))
    }
}

impl Asks for Round {
    type Answer = Result<Identity, scrape::Trouble>;

    fn candidates(&self) -> Vec<Candidate> {
        let of = |draft: &Draft| {
            let at = draft.place()?.at;
            Some(Candidate { user: draft.suspect.user, rank: draft.judged, at })
        };
        self.drafts.iter().filter_map(of).collect()
    }

    fn ask(&self, at: SocketAddr) -> impl Future<Output = Self::Answer> + Send + 'static {
        let (net, client, endpoint) = (Arc::clone(&self.net), self.client.clone(), self.endpoint(at));
        async move {
            let endpoint = endpoint.ok_or(scrape::Trouble::Broken)?;
            let limit = net.timing.timeout;
            let asked = tokio::time::timeout(limit, identify(&net, &client, &endpoint)).await;
            asked.unwrap_or(Err(scrape::Trouble::Timeout(limit)))
        }
    }

    fn is_silent(answer: &Self::Answer) -> bool {
        answer.as_ref().is_err_and(scrape::Trouble::is_silence)
    }

    fn take(&mut self, at: SocketAddr, answer: Self::Answer, fairness: &Fairness) -> ControlFlow<()> {
        self.answers.insert(at, answer);
        self.advance(fairness);
        ControlFlow::Continue(())
    }
}

/// Takes the fingerprint of what answers there.
async fn identify(net: &Net, client: &Client, endpoint: &Endpoint) -> Result<Identity, scrape::Trouble> {
    let (mut spent, mut body) = (Spent::default(), Vec::new());
    let limit = net.timing.timeout / 2;
    let asker = Asker { client, desk: &net.desk, endpoint, limit, most: MAX_BODY, aside: None };
    let found = fingerprint::recognise(&asker, &mut body, &mut spent).await?;
    let mut pages = Pages::new(Batch::new(SourceId::Discovery, net.context.clock.now(), 0));
    pages.body = body;
    let bytes = pages.bytes();
    let endpoint = endpoint.clone();
    let work = move || {
        pages.translate(found, 0, false);
        endpoint.mask(&mut pages.batch);
        Identity::of(found.adapter, &pages.batch)
    };
    net.desk.run(bytes, &mut spent, work).await.ok_or(scrape::Trouble::Broken)
}
