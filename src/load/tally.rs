//! The requests of one level as they end, and the figures they come to.

use super::exchange::{Exchange, Stamp};
use super::level::{Client, Level, Load};
use super::plan::Slo;

/// What a level is, apart from what comes of it.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// Place in the order of levels.
    pub place: u32,
    /// Repetition.
    pub repeat: u32,
    /// What sets the load.
    pub load: Load,
    /// Whether it is an open loop, where scheduled latencies mean something.
    pub open: bool,
    /// What a good request is.
    pub slo: Slo,
    /// What the clock's micros 0 is in ms since the Unix epoch.
    pub epoch_unix_ms: u64,
}

/// A request that has ended, however.
#[derive(Clone, Copy, Debug)]
pub struct Ended<'a> {
    /// When it should have begun, µs.
    pub intended: u64,
    /// Whether it had to wait for a place among the requests in flight.
    pub held_back: bool,
    /// When such a place was there, µs; for one that did not wait, `intended`.
    pub free: u64,
    /// Tokens that its prompt was planned to have.
    pub prompt: u32,
    /// Tokens that its output was planned to have.
    pub output: u32,
    /// How it went.
    pub exchange: &'a Exchange,
    /// Its events with content.
    pub stamps: &'a [Stamp],
}

/// Takes in requests as they end.
#[derive(Debug)]
pub struct Tally;

impl Tally {
    /// Nothing yet.
    pub fn new(frame: Frame) -> Self {
        let _ = frame;
        todo!()
    }
    /// Requests are measured that are dispatched from this moment on, µs.
    pub fn measure_from(&mut self, micros: u64) {
        let _ = micros;
        todo!()
    }
    /// … and before this one.
    pub fn measure_to(&mut self, micros: u64) {
        let _ = micros;
        todo!()
    }
    /// A request was dispatched at this moment, µs.
    pub fn sent(&mut self, micros: u64) {
        let _ = micros;
        todo!()
    }
    /// A request ended.
    pub fn add(&mut self, ended: &Ended<'_>) {
        let _ = ended;
        todo!()
    }
    /// Measured requests that ended well so far.
    pub fn measured_ok(&self) -> u64 {
        todo!()
    }
    /// Measured requests so far that ended, and those of them that did not end well.
    pub fn faults(&self) -> (u64, u64) {
        todo!()
    }
    /// Tokens that all requests so far have cost, measured or not: counted by the server, else as planned.
    pub fn spent_tokens(&self) -> u64 {
        todo!()
    }
    /// Whether more comes than is served: TTFT and requests in flight both grow, and neither by chance.
    pub fn is_over_saturated(&self) -> bool {
        todo!()
    }
    /// The figures so far; `state`, `not_sent` and `client` are the caller's to say. `now` in µs stands for an end that has not come.
    pub fn level(&self, now: u64, client: Client) -> Level {
        let _ = (now, client);
        todo!()
    }
}
