//! What all levels of a sweep share: whom it asks and with what, the connections that are idle, the requests that are
//! ready, what may still be spent.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::load::Said;
use crate::load::exchange::{Stamp, Transport};
use crate::load::level::{Client, Level};
use crate::load::plan::Plan;
use crate::load::tally::{Ended, Frame, Tally};
use crate::load::work::Job;
use crate::model::{Clock, clock};

use super::pace::Pacer;
use super::purse::Purse;

/// Tokens of a prompt and of an output.
pub(super) type Lengths = Option<(u32, u32)>;

/// Takes in requests as they end: [`Tally`], which has a word on each of these.
pub(super) trait Record {
    /// Requests are measured that are dispatched from this moment on, µs.
    fn measure_from(&mut self, micros: u64);
    /// … and before this one.
    fn measure_to(&mut self, micros: u64);
    /// A request went out.
    fn sent(&mut self, micros: u64);
    /// A request ended.
    fn add(&mut self, ended: &Ended<'_>);
    /// Measured requests that ended well so far.
    fn measured_ok(&self) -> u64;
    /// Tokens that all requests so far have cost.
    fn spent_tokens(&self) -> u64;
    /// Whether more comes than is served.
    fn is_over_saturated(&self) -> bool;
    /// The figures so far.
    fn level(&self, now: u64, client: Client) -> Level;
}

impl Record for Tally {
    fn measure_from(&mut self, micros: u64) {
        Self::measure_from(self, micros);
    }
    fn measure_to(&mut self, micros: u64) {
        Self::measure_to(self, micros);
    }
    fn sent(&mut self, micros: u64) {
        Self::sent(self, micros);
    }
    fn add(&mut self, ended: &Ended<'_>) {
        Self::add(self, ended);
    }
    fn measured_ok(&self) -> u64 {
        Self::measured_ok(self)
    }
    fn spent_tokens(&self) -> u64 {
        Self::spent_tokens(self)
    }
    fn is_over_saturated(&self) -> bool {
        Self::is_over_saturated(self)
    }
    fn level(&self, now: u64, client: Client) -> Level {
        Self::level(self, now, client)
    }
}

/// A connection, and room for the events that come over it.
pub(super) struct Carrier<L> {
    /// The connection.
    pub(super) lane: L,
    /// The events of the answer that came last.
    pub(super) stamps: Vec<Stamp>,
}

/// Makes requests, some of them ahead of their time: a long prompt takes time to write, which must not make a request
/// late. They go out in the order in which they were made.
pub(super) struct Jobs {
    make: Box<dyn FnMut(Lengths) -> Job>,
    ready: VecDeque<(Lengths, Job)>,
}

impl Jobs {
    /// Made by `make`.
    pub(super) fn new(make: Box<dyn FnMut(Lengths) -> Job>) -> Self {
        Self { make, ready: VecDeque::new() }
    }
    /// The next one.
    pub(super) fn take(&mut self, lengths: Lengths) -> Job {
        if self.ready.front().is_some_and(|(made, _)| *made != lengths) {
            self.ready.clear();
        }
        self.ready.pop_front().map_or_else(|| (self.make)(lengths), |(_, job)| job)
    }
    /// It did not go out after all.
    pub(super) fn give_back(&mut self, lengths: Lengths, job: Job) {
        self.ready.push_front((lengths, job));
    }
    /// Makes one more if fewer than `want` are ready.
    pub(super) fn prepare(&mut self, lengths: Lengths, want: usize) {
        if self.ready.len() < want {
            let job = (self.make)(lengths);
            self.ready.push_back((lengths, job));
        }
    }
}

/// What all levels share.
pub(super) struct Site<T: Transport> {
    /// What is asked for.
    pub(super) plan: Plan,
    /// Makes connections.
    pub(super) transport: T,
    /// The clock of all stamps.
    pub(super) clock: Arc<dyn Clock>,
    /// Set to end the sweep.
    pub(super) stop: Arc<AtomicBool>,
    /// Makes what waits for moments of the clock.
    pub(super) pacer: fn() -> io::Result<Pacer>,
    /// Tells the CPU time that this process has taken, ns.
    pub(super) cpu: fn() -> Option<u64>,
    /// Begins the books of a level.
    pub(super) record: Box<dyn Fn(Frame) -> Box<dyn Record>>,
    /// Requests.
    pub(super) jobs: RefCell<Jobs>,
    /// Connections that nobody uses now.
    pub(super) idle: RefCell<Vec<Carrier<T::Lane>>>,
    /// What may still be spent.
    pub(super) purse: RefCell<Purse>,
    /// How long a request took on average at the last level that had one, s.
    pub(super) took_s: Cell<Option<f64>>,
    /// Hears how far it is.
    pub(super) say: Box<dyn Fn(Said)>,
}

impl<T: Transport> Site<T> {
    /// Now, µs.
    pub(super) fn now(&self) -> u64 {
        self.clock.micros()
    }
    /// Whether it was told to stop.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
    /// How long a request may take.
    pub(super) fn limit(&self) -> Duration {
        clock::duration(self.plan.timeout_s).unwrap_or(Duration::MAX)
    }
    /// An idle connection, the one used last first, or a new one.
    pub(super) fn carrier(&self) -> Carrier<T::Lane> {
        let idle = self.idle.borrow_mut().pop();
        idle.unwrap_or_else(|| Carrier { lane: self.transport.lane(), stamps: Vec::new() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_go_out_in_the_order_in_which_they_were_made() {
        let mut made = 0;
        let make = move |lengths: Lengths| {
            made += 1;
            let (prompt, output) = lengths.unwrap_or((made, 1));
            Job { path: "/", body: vec![made as u8], prompt, output }
        };
        let mut jobs = Jobs::new(Box::new(make));
        jobs.prepare(None, 2);
        jobs.prepare(None, 2);
        jobs.prepare(None, 2);
        let first = jobs.take(None);
        assert_eq!(first.body, [1]);
        jobs.give_back(None, first);
        let bodies: Vec<u8> = (0..4).map(|_| jobs.take(None).body[0]).collect();
        assert_eq!(bodies, [1, 2, 3, 4]);
        // Of other lengths than were made ahead: those are of no use.
        jobs.prepare(Some((7, 8)), 1);
        assert_eq!((jobs.take(Some((9, 9))).prompt, jobs.take(Some((9, 9))).body[0]), (9, 7));
    }
}
