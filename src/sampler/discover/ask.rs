//! Whom to ask next among many addresses of many processes, so that nobody's sockets keep others' from being asked.
//!
//! It must not know what is asked or how. Invariants: an address is asked once in a search, however many processes have
//! it; whose user was asked least comes first, and of one user the likeliest address of each process; one user has at
//! most [`EACH`] of the [`AT_ONCE`] requests under way, and [`BUDGET`] in a search; an address that stayed silent is left
//! out of ever more of that user's searches.

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::net::SocketAddr;
use std::ops::ControlFlow;

use tokio::task::JoinSet;

/// Requests under way together.
const AT_ONCE: usize = 16;
/// Requests of one user's under way together: others always find a place.
const EACH: usize = 8;
/// Requests of one user's in a search.
const BUDGET: usize = 64;
/// Most searches in a row that leave out an address that stays silent. A server that starts does not listen yet; one that
/// listens and is silent may be busy.
const LONGEST_SILENCE: u32 = 8;
/// Silent addresses that are remembered.
const MOST_SILENT: usize = 4096;

/// An address that may be asked now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sampler) struct Candidate {
    /// Whose process it is; `None` where that cannot be seen.
    pub(in crate::sampler) user: Option<u32>,
    /// How many addresses of the same process are likelier.
    pub(in crate::sampler) rank: usize,
    pub(in crate::sampler) at: SocketAddr,
}

/// A silent address of a user.
#[derive(Clone, Copy, Debug)]
struct SilentAddress {
    /// Not asked before that search.
    until: u32,
    searches: u32,
}

/// What was asked, and what stayed silent.
#[derive(Debug, Default)]
pub(in crate::sampler) struct Fairness {
    search: u32,
    asked: HashMap<Option<u32>, usize>,
    under_way: HashMap<Option<u32>, usize>,
    done: HashSet<SocketAddr>,
    silent: HashMap<(SocketAddr, Option<u32>), SilentAddress>,
}

impl Fairness {
    /// Begins another search.
    pub(in crate::sampler) fn begin(&mut self) {
        self.search = self.search.wrapping_add(1);
        self.asked.clear();
        self.under_way.clear();
        self.done.clear();
        let search = self.search;
        // One that was not seen for as long as it would have rested is another one.
        self.silent.retain(|_, silence| search < silence.until.saturating_add(LONGEST_SILENCE));
    }

    /// Whether an address is left out of this search, because it stayed silent.
    pub(in crate::sampler) fn rests(&self, at: SocketAddr, user: Option<u32>) -> bool {
        self.silent.get(&(at, user)).is_some_and(|silence| self.search < silence.until)
    }

    /// Whether no more of this user's addresses are asked in this search.
    pub(in crate::sampler) fn is_used_up(&self, user: Option<u32>) -> bool {
        self.asked.get(&user).is_some_and(|asked| *asked >= BUDGET)
    }

    /// Whom to ask next; `None` while nobody may be.
    fn next(&mut self, candidates: &[Candidate]) -> Option<Candidate> {
        let count = |of: &HashMap<Option<u32>, usize>, user| of.get(&user).copied().unwrap_or(0);
        if self.under_way.values().sum::<usize>() >= AT_ONCE {
            return None;
        }
        let may = |candidate: &&Candidate| {
            let Candidate { user, at, .. } = **candidate;
            let has_room = count(&self.under_way, user) < EACH && !self.is_used_up(user);
            has_room && !self.done.contains(&at) && !self.rests(at, user)
        };
        let next = *candidates.iter().filter(may).min_by_key(|next| (count(&self.asked, next.user), next.rank))?;
        *self.asked.entry(next.user).or_default() += 1;
        *self.under_way.entry(next.user).or_default() += 1;
        self.done.insert(next.at);
        Some(next)
    }

    fn note(&mut self, Candidate { user, at, .. }: Candidate, is_silent: bool) {
        if let Some(under_way) = self.under_way.get_mut(&user) {
            *under_way = under_way.saturating_sub(1);
        }
        let key = (at, user);
        if !is_silent {
            self.silent.remove(&key);
        } else if self.silent.len() < MOST_SILENT || self.silent.contains_key(&key) {
            let silence = self.silent.entry(key).or_insert(SilentAddress { until: 0, searches: 0 });
            silence.searches = (silence.searches * 2).clamp(1, LONGEST_SILENCE);
            silence.until = self.search.saturating_add(silence.searches + 1);
        }
    }
}

/// Who has addresses to ask, and takes the answers.
pub(in crate::sampler) trait Asks {
    /// What an address answers.
    type Answer: Send + 'static;

    /// Addresses to ask as things stand.
    fn candidates(&self) -> Vec<Candidate>;

    /// Asks an address.
    fn ask(&self, at: SocketAddr) -> impl Future<Output = Self::Answer> + Send + 'static;

    /// Whether nothing came.
    fn is_silent(answer: &Self::Answer) -> bool;

    /// Takes an answer; a break ends the search.
    fn take(&mut self, at: SocketAddr, answer: Self::Answer, fairness: &Fairness) -> ControlFlow<()>;
}

/// Asks until there is nobody left to ask in this search.
pub(in crate::sampler) async fn ask_all<A: Asks>(asks: &mut A, fairness: &mut Fairness) {
    let mut under_way = JoinSet::new();
    loop {
        let candidates = asks.candidates();
        while let Some(next) = fairness.next(&candidates) {
            let answer = asks.ask(next.at);
            under_way.spawn(async move { (next, answer.await) });
        }
        // A request that panics is a mistake; its address is not asked again in this search.
        match under_way.join_next().await {
            Some(Ok((asked, answer))) => {
                fairness.note(asked, A::is_silent(&answer));
                if asks.take(asked.at, answer, fairness).is_break() {
                    return;
                }
            }
            Some(Err(_)) => {}
            None => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    /// Sockets of which all stay silent but one, whose port is asked for; time is counted in answers.
    struct Hosts {
        candidates: Vec<Candidate>,
        wanted: SocketAddr,
        asked: Vec<SocketAddr>,
    }

    impl Asks for Hosts {
        type Answer = bool;

        fn candidates(&self) -> Vec<Candidate> {
            self.candidates.clone()
        }

        fn ask(&self, at: SocketAddr) -> impl Future<Output = bool> + Send + 'static {
            std::future::ready(at == self.wanted)
        }

        fn is_silent(answer: &bool) -> bool {
            !answer
        }

        fn take(&mut self, at: SocketAddr, answer: bool, _: &Fairness) -> ControlFlow<()> {
            self.asked.push(at);
            if answer { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
    }

    /// Six processes of user 1000 with 16 silent sockets each, and before or after them one of user 0.
    fn hosts() -> Hosts {
        let hostile = (0..96_u16).map(|i| Candidate { user: Some(1000), rank: usize::from(i % 16), at: at(2000 + i) });
        let real = Candidate { user: Some(0), rank: 1, at: at(8000) };
        Hosts { candidates: hostile.chain([real]).collect(), wanted: at(8000), asked: Vec::new() }
    }

    fn run(hosts: &mut Hosts, fairness: &mut Fairness) {
        fairness.begin();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(ask_all(hosts, fairness));
    }

    #[test]
    fn one_users_silent_sockets_keep_nobody_elses_waiting() {
        let mut hosts = hosts();
        run(&mut hosts, &mut Fairness::default());
        let before = hosts.asked.iter().position(|asked| *asked == at(8000)).unwrap();
        assert!(before <= EACH, "{before} answers were waited for before that of the engine");
    }

    #[test]
    fn a_user_has_so_many_requests_in_a_search_and_silent_addresses_rest() {
        let mut hosts = hosts();
        hosts.candidates.pop();
        let mut fairness = Fairness::default();
        let mut asked = Vec::new();
        for _ in 0..6 {
            hosts.asked.clear();
            run(&mut hosts, &mut fairness);
            asked.push(hosts.asked.len());
        }
        // 64, the other 32 and the first again after one search each, and so on, ever more seldom.
        assert_eq!(asked[..2], [64, 32], "{asked:?}");
        assert!(asked[2..].iter().sum::<usize>() <= 3 * 96, "{asked:?}");
        hosts.candidates[0].user = Some(7);
        run(&mut hosts, &mut fairness);
        assert!(hosts.asked.contains(&at(2000)), "silence towards one user's process says nothing of another's");
    }

    #[test]
    fn an_address_of_many_processes_is_asked_once() {
        let mut hosts = hosts();
        for candidate in &mut hosts.candidates {
            candidate.at = at(2000);
        }
        run(&mut hosts, &mut Fairness::default());
        assert_eq!(hosts.asked, [at(2000)]);
    }

    #[test]
    fn requests_under_way_are_bounded_for_all_and_for_each() {
        let mut fairness = Fairness::default();
        fairness.begin();
        let many: Vec<_> =
            (0..90_u16).map(|i| Candidate { user: Some(u32::from(i / 30)), rank: 0, at: at(3000 + i) }).collect();
        let started: Vec<_> = std::iter::from_fn(|| fairness.next(&many)).collect();
        assert_eq!(started.len(), AT_ONCE);
        let most = (0..3).map(|user| started.iter().filter(|next| next.user == Some(user)).count()).max();
        assert!(most.unwrap() <= 6, "{started:?}");
        let mut alone = Fairness::default();
        alone.begin();
        assert_eq!(std::iter::from_fn(|| alone.next(&many[..30])).count(), EACH);
    }
}
