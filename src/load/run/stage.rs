//! One level while it runs: which requests may go out, which are, and what became of them.
//!
//! It must not know when a request is due nor when the level is over. Invariant: each request that begins is in the
//! books once, and leaves them once, when it ends. All moments are µs.

use std::cell::{Ref, RefCell, RefMut};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use crate::load::backlog::Backlog;
use crate::load::exchange::{Call, Exchange, Fault, Lane as _, Transport};
use crate::load::level::{HostLimit, Load, State};
use crate::load::tally::{Ended, Frame};
use crate::load::work::Job;

use super::client::Proof;
use super::site::{Carrier, Lengths, Record, Site};

/// Requests that have ended before a share of faults means anything.
const FEWEST_ENDED: u64 = 20;
/// So many requests without a connection, and nothing else yet: there is no server.
const NO_SERVER: u64 = 3;
/// Different faults that are told apart.
const MOST_FAULTS: usize = 32;

/// When a request should have begun, and when it could.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    /// When it should.
    pub(super) intended: u64,
    /// When there was a place for it; `None`: at once.
    pub(super) held_until: Option<u64>,
}

/// A request that may go out.
pub(super) struct Ticket {
    number: u64,
    /// When it was let go.
    at: u64,
    job: Job,
}

/// Why a level ends before its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    /// How it ended.
    pub(super) state: State,
    /// Why, in words.
    pub(super) words: String,
    /// Whether what is in flight is not waited for.
    pub(super) at_once: bool,
}

/// What is known of the requests of a level.
pub(super) struct Books {
    /// How late and how busy the client was.
    pub(super) proof: Proof,
    /// Requests that may begin.
    pub(super) most: Option<u64>,
    /// Requests that began.
    pub(super) begun: u64,
    /// Whether no more may begin.
    pub(super) shut: bool,
    /// Why it ends before its time.
    pub(super) cut: Option<Cut>,
    /// Requests of the measured time that are in flight, once that is over.
    pub(super) owed: u64,
    /// When the request ended that ended last.
    pub(super) last_end: u64,
    /// Longest that a request took, µs.
    pub(super) longest: u64,
    /// Whether requests pile up; of an open loop that has a rate and a time.
    pub(super) backlog: Option<Backlog>,
    /// Users who have not had an answer yet.
    pub(super) fresh: u32,
    from: Option<u64>,
    /// End of the measured time and how many requests had begun by then.
    to: Option<(u64, u64)>,
    ended: u64,
    faulty: u64,
    unconnected: u64,
    /// Limits of this host that kept requests from being sent.
    pub(super) host_limits: BTreeSet<HostLimit>,
    took: u64,
    faults: BTreeMap<String, u64>,
    /// Measured requests that had to make a connection.
    connects: u64,
    /// Rests of users after a fault, and how long they were.
    rests: (u64, u64),
}

/// A level while it runs.
pub(super) struct Stage<T: Transport> {
    /// What all levels share.
    pub(super) site: Rc<Site<T>>,
    record: RefCell<Box<dyn Record>>,
    books: RefCell<Books>,
    /// Requests that are made ahead of their time.
    ahead: usize,
}

impl<T: Transport> Stage<T> {
    /// An idle one for so many users (0: an open loop), that lets at most so many requests begin.
    pub(super) fn new(site: Rc<Site<T>>, frame: Frame, users: u32, most: Option<u64>) -> Self {
        let backlog = match frame.load {
            // Of a given number of requests all are wanted, and a trace may have its crowds.
            Load::RequestsPerS(rate) if most.is_none() => Some(Backlog::new(rate, site.now())),
            _ => None,
        };
        let books = Books {
            proof: Proof::new(site.cpu),
            most,
            begun: 0,
            shut: false,
            cut: None,
            owed: 0,
            last_end: 0,
            longest: 0,
            backlog,
            fresh: users,
            from: None,
            to: None,
            ended: 0,
            faulty: 0,
            unconnected: 0,
            host_limits: BTreeSet::new(),
            took: 0,
            faults: BTreeMap::new(),
            connects: 0,
            rests: (0, 0),
        };
        let record = RefCell::new((site.record)(frame));
        Self { site, record, books: RefCell::new(books), ahead: users as usize }
    }

    /// The books, to read. Never held across an `await`.
    pub(super) fn books(&self) -> Ref<'_, Books> {
        self.books.borrow()
    }
    /// The books, to write. Never held across an `await`.
    pub(super) fn books_mut(&self) -> RefMut<'_, Books> {
        self.books.borrow_mut()
    }
    /// The figures. Never held across an `await`.
    pub(super) fn record(&self) -> Ref<'_, Box<dyn Record>> {
        self.record.borrow()
    }

    /// Requests that are dispatched from now on are measured.
    pub(super) fn measure_from(&self, at: u64) {
        self.record.borrow_mut().measure_from(at);
        let mut books = self.books.borrow_mut();
        books.from = Some(at);
        books.proof.measure_from(at);
    }
    /// … and up to now.
    pub(super) fn measure_to(&self, at: u64) {
        self.record.borrow_mut().measure_to(at);
        let mut books = self.books.borrow_mut();
        books.to = Some((at, books.begun));
        books.owed = books.proof.flight.now;
        books.proof.measure_to(at);
    }

    /// Lets a request begin now; `None`: no more may.
    pub(super) fn begin(&self, lengths: Lengths) -> Option<Ticket> {
        let mut books = self.books.borrow_mut();
        if !books.may_begin() {
            return None;
        }
        let mut record = self.record.borrow_mut();
        let job = self.site.jobs.borrow_mut().take(lengths);
        let mut purse = self.site.purse.borrow_mut();
        if !purse.take(record.spent_tokens(), planned(&job)) {
            self.site.jobs.borrow_mut().give_back(lengths, job);
            books.out_of_budget(purse.no_tokens());
            return None;
        }
        let now = self.site.now();
        record.sent(now);
        books.proof.flight.begin(now);
        books.begun += 1;
        Some(Ticket { number: books.begun - 1, at: now, job })
    }

    /// Sends a request and sees it to its end; returns when that was and what went wrong.
    pub(super) async fn carry(
        &self,
        carrier: &mut Carrier<T::Lane>,
        mut ticket: Ticket,
        slot: Slot,
    ) -> (u64, Option<Fault>) {
        let body = Some(std::mem::take(&mut ticket.job.body));
        let call = Call { path: ticket.job.path, body, limit: self.site.limit(), output: Some(ticket.job.output) };
        let ahead = async {
            // Whoever else is due comes first.
            tokio::task::yield_now().await;
            self.site.jobs.borrow_mut().prepare(None, self.ahead);
        };
        let (exchange, ()) = tokio::join!(biased; carrier.lane.stream(call, &mut carrier.stamps), ahead);
        let fault = exchange.fault.clone().or_else(|| empty(&exchange));
        self.end(&ticket, slot, &exchange, fault.as_ref(), carrier);
        (exchange.end, fault)
    }

    fn end(&self, ticket: &Ticket, slot: Slot, exchange: &Exchange, fault: Option<&Fault>, carrier: &Carrier<T::Lane>) {
        let (record, books) = (&mut *self.record.borrow_mut(), &mut *self.books.borrow_mut());
        let free = slot.held_until.unwrap_or(slot.intended);
        record.add(&Ended {
            intended: slot.intended,
            begun: ticket.at,
            held_back: slot.held_until.is_some(),
            free,
            prompt: ticket.job.prompt,
            output: ticket.job.output,
            exchange,
            stamps: &carrier.stamps,
        });
        self.site.purse.borrow_mut().settle(planned(&ticket.job));
        books.proof.flight.end(self.site.now());
        books.end(ticket, free, exchange, fault);
        books.judge(self.site.plan.most_errors);
    }

    /// A user had the first answer.
    pub(super) fn warmed_up(&self) {
        let fresh = &mut self.books.borrow_mut().fresh;
        *fresh = fresh.saturating_sub(1);
    }
    /// A user rested for so many µs after a fault.
    pub(super) fn rested(&self, micros: u64) {
        let rests = &mut self.books.borrow_mut().rests;
        *rests = (rests.0 + 1, rests.1 + micros);
    }
}

impl Books {
    /// Whether more requests may begin.
    pub(super) fn may_begin(&self) -> bool {
        !self.shut && self.most.is_none_or(|most| self.begun < most)
    }

    /// Ends the level before its time; the first reason stays, unless one comes that does not wait.
    pub(super) fn cut(&mut self, state: State, words: String, at_once: bool) {
        self.shut = true;
        if self.cut.as_ref().is_none_or(|cut| at_once && !cut.at_once) {
            self.cut = Some(Cut { state, words, at_once });
        }
    }

    /// Lets no more requests begin for want of a budget, which ends the level unless all that is measured has begun.
    pub(super) fn out_of_budget(&mut self, words: String) {
        if self.to.is_some() {
            self.shut = true;
        } else {
            self.cut(State::OutOfBudget, words, false);
        }
    }

    /// How long a request took on average, s.
    pub(super) fn took_s(&self) -> Option<f64> {
        let well = self.ended - self.faulty;
        (well > 0).then(|| self.took as f64 / 1e6 / well as f64)
    }

    fn end(&mut self, ticket: &Ticket, free: u64, exchange: &Exchange, fault: Option<&Fault>) {
        self.ended += 1;
        self.last_end = self.last_end.max(exchange.end);
        if self.to.is_some_and(|(_, begun)| ticket.number < begun) {
            self.owed = self.owed.saturating_sub(1);
        }
        if let Some(dispatched) = exchange.dispatched {
            self.longest = self.longest.max(exchange.end.saturating_sub(dispatched));
            self.lag(dispatched, free, exchange.connected.then_some(ticket.at));
        }
        match fault {
            None => {
                let took = exchange.end.saturating_sub(exchange.dispatched.unwrap_or(exchange.end));
                self.took += took;
                if let Some(backlog) = &mut self.backlog {
                    backlog.ended(exchange.end, took);
                }
            }
            Some(fault) => self.fault(fault),
        }
    }

    /// How late the request was. One that had to make a connection first, from `connects` on, waited for the server from
    /// then on and not for the client.
    fn lag(&mut self, dispatched: u64, free: u64, connects: Option<u64>) {
        if self.from.is_some_and(|from| dispatched >= from) && self.to.is_none_or(|(to, _)| dispatched < to) {
            self.connects += u64::from(connects.is_some());
            self.proof.dispatch.add(connects.unwrap_or(dispatched).saturating_sub(free));
        }
    }

    fn fault(&mut self, fault: &Fault) {
        self.faulty += 1;
        self.unconnected += u64::from(fault.is_unconnected());
        if let Fault::AtHostLimit(limit) = fault {
            self.host_limits.insert(*limit);
        }
        let words = fault.to_string();
        if self.faults.len() < MOST_FAULTS || self.faults.contains_key(&words) {
            *self.faults.entry(words).or_default() += 1;
        }
    }

    /// Whether more than this share of what ended failed.
    pub(super) fn is_failing(&self, most_errors: f64) -> bool {
        self.faulty as f64 > most_errors * self.ended as f64
    }

    /// Ends the level where too much fails.
    fn judge(&mut self, most_errors: f64) {
        let most = self.most_frequent_fault().unwrap_or_default();
        if self.unconnected == self.ended && self.ended >= NO_SERVER {
            let words = most.to_owned();
            self.cut(State::Failing, words, true);
        } else if self.ended >= FEWEST_ENDED && self.is_failing(most_errors) {
            let words = format!("{} of {} requests failed, most often: {most}", self.faulty, self.ended);
            self.cut(State::Failing, words, false);
        }
    }

    /// The fault that came most often, in words.
    pub(super) fn most_frequent_fault(&self) -> Option<&str> {
        self.faults.iter().max_by_key(|(_, times)| **times).map(|(words, _)| words.as_str())
    }

    /// What has to be known of its requests to read the figures; `waited`: what was in flight was waited for.
    pub(super) fn notes(&self, waited: bool) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(cut) = &self.cut {
            notes.push(format!("ended early: {}", cut.words));
        }
        let is_told = self.cut.as_ref().is_some_and(|cut| cut.state == State::Failing);
        if let Some(words) = self.most_frequent_fault().filter(|_| !is_told) {
            notes.push(format!("the fault that came most often: {words}"));
        }
        if self.rests.0 > 0 {
            let (times, seconds) = (self.rests.0, self.rests.1 as f64 / 1e6);
            notes.push(format!(
                "users rested {times} times after a failed request, {seconds:.1} s in all: fewer requests were in flight"
            ));
        }
        if self.connects > 0 {
            notes.push(format!(
                "requests that had to make a connection first: {}; that time is not in the dispatch lag",
                self.connects
            ));
        }
        let lost = self.begun - self.ended;
        if lost > 0 {
            let why = if waited { "had no end in time" } else { "were given up" };
            notes.push(format!(
                "requests in flight at its end that {why}: {lost}; they count as sent and not as failed"
            ));
        }
        notes
    }
}

/// An answer that ended well and was none.
fn empty(exchange: &Exchange) -> Option<Fault> {
    exchange.first_content.is_none().then(|| Fault::Malformed("an answer without content".to_owned()))
}

/// Tokens that a request is planned to cost.
fn planned(job: &Job) -> u64 {
    u64::from(job.prompt) + u64::from(job.output)
}
