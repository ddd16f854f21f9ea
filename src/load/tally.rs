//! The requests of one level as they end, and the figures they come to.
//!
//! It must not know who sends requests, nor a clock: all moments are handed in. Invariants: a request with a fault counts
//! as that and adds nothing to any latency or rate; latencies of requests are all kept and sorted now and then, while the
//! gaps between events, of which there are too many, are kept in a histogram with three digits; so memory grows with
//! requests and with time, not with tokens. [`Tally::level`] is cheap enough to be asked every second by the thread that
//! receives.

mod gaps;
mod good;
#[cfg(test)]
mod tests;

use super::exchange::{Exchange, Fault, Stamp};
use super::level::{Client, Latency, Level, Load, Requests, Tokens};
use super::plan::Slo;
use super::rank::Sample;
use super::rates::{Bins, goodput};
use super::saturation::Saturation;
use super::slices::{Of, Slices};
use gaps::Gaps;
use good::{Flow, Good, events, good, seconds, spent, usage};

/// The interval of a rate needs a measured time of so many median E2E …
const RATE_E2E: f64 = 10.0;
/// … and so many seconds: else its ten pieces are not nearly independent.
const RATE_S: f64 = 5.0;
/// From so many tokens to an event on, it is said that events are no tokens.
const TOKENS_TO_EVENT: f64 = 1.05;

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
    /// Whether all requests are measured, so that rates run to the last end ([`super::plan::Span::Requests`]) and not to
    /// the end of the measured time.
    pub whole: bool,
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
    /// The moment that [`Tally::sent`] was told of, µs.
    pub begun: u64,
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
pub struct Tally {
    frame: Frame,
    from: Option<u64>,
    to: Option<u64>,
    first_sent: Option<u64>,
    last_end: u64,
    /// Requests that [`Self::sent`] was told of.
    begun: u64,
    /// Those of them that began before the end of the measured time, and how many of these ended.
    sent_until: u64,
    ended_until: u64,
    ended: u64,
    requests: Requests,
    tokens: Tokens,
    good: u64,
    spent: u64,
    /// Came with a count of tokens that cannot be.
    implausible: u64,
    /// Ended well, but without any content.
    empty: u64,
    /// Had reasoning before or instead of an answer.
    reasoned: u64,
    /// Had nothing but reasoning.
    unanswered: u64,
    ttft: Sample,
    answer: Sample,
    tpot: Sample,
    e2e: Sample,
    scheduled_ttft: Sample,
    scheduled_e2e: Sample,
    itl: Gaps,
    flow: Flow,
    slices: Slices,
    saturation: Saturation,
}

impl Tally {
    /// Nothing yet.
    pub fn new(frame: Frame) -> Self {
        Self {
            frame,
            from: None,
            to: None,
            first_sent: None,
            last_end: 0,
            begun: 0,
            sent_until: 0,
            ended_until: 0,
            ended: 0,
            requests: Requests::default(),
            tokens: Tokens::default(),
            good: 0,
            spent: 0,
            implausible: 0,
            empty: 0,
            reasoned: 0,
            unanswered: 0,
            ttft: Sample::default(),
            answer: Sample::default(),
            tpot: Sample::default(),
            e2e: Sample::default(),
            scheduled_ttft: Sample::default(),
            scheduled_e2e: Sample::default(),
            itl: Gaps::new(),
            flow: Flow::default(),
            slices: Slices::new(frame.epoch_unix_ms),
            saturation: Saturation::default(),
        }
    }

    /// Requests are measured that are dispatched from this moment on, µs. To be said before one of them ends.
    pub fn measure_from(&mut self, micros: u64) {
        self.from = Some(micros);
        self.flow = Flow {
            requests: Bins::from(micros),
            came: Bins::from(micros),
            ended: Bins::from(micros),
            total: Bins::from(micros),
            ..Flow::default()
        };
    }

    /// … and before this one. To be said before one dispatched later ends.
    pub fn measure_to(&mut self, micros: u64) {
        self.to = Some(micros);
    }

    /// A request begins at this moment, µs, and is dispatched then or a little later; one that then [ended](Self::add)
    /// without ever being dispatched, for want of a connection, is not counted as sent.
    pub fn sent(&mut self, micros: u64) {
        self.first_sent.get_or_insert(micros);
        self.begun += 1;
        self.requests.sent += 1;
        self.sent_until += u64::from(self.is_before_end(micros));
        self.saturation.sent(micros);
    }

    fn is_before_end(&self, micros: u64) -> bool {
        self.to.is_none_or(|to| micros < to)
    }

    /// A request ended.
    pub fn add(&mut self, ended: &Ended<'_>) {
        let exchange = ended.exchange;
        // One that was never dispatched belongs where it should have been.
        let began = exchange.dispatched.unwrap_or_else(|| ended.free.max(ended.intended));
        let measured = self.from.is_some_and(|from| from <= began) && self.is_before_end(began);
        self.ended += 1;
        // As it was counted when it began: it may have been dispatched on the other side of the end.
        self.ended_until += u64::from(self.is_before_end(ended.begun));
        self.last_end = self.last_end.max(exchange.end);
        self.requests.held_back += u64::from(measured && ended.held_back);
        self.spent = self.spent.saturating_add(spent(ended));
        self.implausible += u64::from(exchange.usage.is_some_and(|usage| usage.plausible(events(ended.stamps)).1));
        self.saturation.ended();
        match exchange.dispatched {
            Some(_) => self.requests.measured += u64::from(measured),
            None => self.requests.sent = self.requests.sent.saturating_sub(1),
        }
        match good(ended) {
            Some(good) => self.add_good(&good, measured),
            None if measured => self.count_fault(exchange.fault.as_ref()),
            None => {}
        }
    }

    fn count_fault(&mut self, fault: Option<&Fault>) {
        let requests = &mut self.requests;
        let count = match fault {
            Some(Fault::Unconnected(_) | Fault::AtHostLimit(_)) => &mut requests.unconnected,
            Some(Fault::Refused { .. }) => &mut requests.refused,
            Some(Fault::Cut(_)) => &mut requests.cut,
            Some(Fault::Status { .. } | Fault::Stream(_) | Fault::Malformed(_) | Fault::Timeout(_)) => {
                &mut requests.failed
            }
            None => {
                self.empty += 1;
                &mut requests.failed
            }
        };
        *count += 1;
    }

    fn add_good(&mut self, good: &Good<'_>, measured: bool) {
        let Good { ended, dispatched, first, .. } = *good;
        self.saturation.served(ended.intended, dispatched, first, ended.exchange.end);
        if self.from.is_some() {
            // Rates of all requests run to the last of them, whenever it ends.
            let until = if self.frame.whole { u64::MAX } else { self.to.unwrap_or(u64::MAX) };
            self.flow.add(good, until);
        }
        if measured {
            self.requests.ok += 1;
            self.good += u64::from(good.keeps(&self.frame.slo));
            self.count_tokens(good);
            self.add_latencies(good);
        }
    }

    fn count_tokens(&mut self, good: &Good<'_>) {
        let (tokens, usage) = (&mut self.tokens, usage(good.ended.exchange, good.ended.stamps));
        add(&mut tokens.prompt, usage.prompt);
        add(&mut tokens.cached, usage.cached);
        add(&mut tokens.output, good.output);
        tokens.events += good.ended.stamps.len() as u64;
        tokens.uncounted += u64::from(good.output.is_none());
        tokens.other_length += u64::from(good.output.is_some_and(|output| output != u64::from(good.ended.output)));
    }

    fn add_latencies(&mut self, good: &Good<'_>) {
        let Good { ended, dispatched, first, last, .. } = *good;
        let exchange = ended.exchange;
        self.ttft.push(good.ttft());
        self.slices.add(Of::Ttft, first, good.ttft());
        self.e2e.push(good.e2e());
        self.slices.add(Of::E2e, exchange.end, good.e2e());
        if let Some(tpot) = good.tpot() {
            self.tpot.push(tpot);
            self.slices.add(Of::Tpot, exchange.end, tpot);
        }
        self.reasoned += u64::from(exchange.first_answer != Some(first));
        match exchange.first_answer {
            Some(answer) => self.answer.push(seconds(dispatched, answer)),
            None => self.unanswered += 1,
        }
        if self.frame.open {
            self.scheduled_ttft.push(seconds(ended.intended, first));
            self.scheduled_e2e.push(seconds(ended.intended, last));
        }
        self.itl.requests += u64::from(ended.stamps.len() > 1);
        for pair in ended.stamps.windows(2) {
            let gap = pair[1].at.saturating_sub(pair[0].at);
            self.itl.push(gap);
            self.slices.add(Of::Itl, pair[1].at, gap as f64 / 1e6);
        }
    }

    /// Measured requests that ended well so far.
    pub fn measured_ok(&self) -> u64 {
        self.requests.ok
    }

    /// Measured requests so far that ended, and those of them that did not end well.
    pub fn faults(&self) -> (u64, u64) {
        let Requests { ok, refused, cut, failed, unconnected, .. } = self.requests;
        let bad = refused + cut + failed + unconnected;
        (ok + bad, bad)
    }

    /// Tokens that all requests so far have cost, measured or not: as the server says, else as planned, but no fewer than
    /// were sent and had events. This bounds a budget and is no count.
    pub fn spent_tokens(&self) -> u64 {
        self.spent
    }

    /// Whether more comes than is served: TTFT and requests in flight both grow, and neither by chance. Never so in a
    /// closed loop, where a user waits for its answer.
    pub fn is_over_saturated(&self) -> bool {
        self.frame.open && self.saturation.is_over()
    }

    /// Whether all that began before the end of the measured time has ended.
    fn is_complete(&self) -> bool {
        self.to.is_some() && self.ended_until >= self.sent_until
    }

    /// Until when rates are counted, µs.
    fn rates_until(&self, now: u64) -> u64 {
        match self.to {
            Some(_) if self.frame.whole && self.is_complete() => self.last_end,
            Some(to) if !self.frame.whole => to.min(now),
            _ => now,
        }
    }

    /// The figures so far; `state`, `not_sent` and `client` are the caller's to say. `now` in µs stands for an end that has not come.
    pub fn level(&self, now: u64, client: Client) -> Level {
        let unix = |micros: u64| self.frame.epoch_unix_ms + micros / 1000;
        let from = self.from.unwrap_or(now);
        let until = self.rates_until(now);
        let seconds = seconds(from, until);
        let all_ended = self.to.is_some() && self.ended >= self.begun;
        let ended_unix_ms = unix(if all_ended { self.last_end } else { now });
        let from_unix_ms = unix(from);
        let e2e_s = self.e2e.latency();
        // Where that is not known, nobody can say whether pieces of the time are independent.
        let told = seconds >= RATE_S && e2e_s.p50.is_some_and(|e2e| seconds >= RATE_E2E * e2e.value);
        let rate = |bins: &Bins| self.from.and_then(|_| bins.rate(until, told));
        // What is in flight has tokens that are not heard of yet: by when they came, the rate would be too low.
        let output = if self.is_complete() { &self.flow.came } else { &self.flow.ended };
        let (ended, _) = self.faults();
        Level {
            place: self.frame.place,
            repeat: self.frame.repeat,
            load: self.frame.load,
            started_unix_ms: unix(self.first_sent.unwrap_or(now)),
            from_unix_ms,
            to_unix_ms: unix(self.to.unwrap_or(now)),
            ended_unix_ms,
            requests: self.requests,
            tokens: self.tokens,
            ttft_s: self.ttft.latency(),
            answer_s: if self.reasoned > 0 { self.answer.latency() } else { Latency::default() },
            itl_s: self.itl.latency(),
            tpot_s: self.tpot.latency(),
            e2e_s,
            scheduled_ttft_s: self.frame.open.then(|| self.scheduled_ttft.latency()),
            scheduled_e2e_s: self.frame.open.then(|| self.scheduled_e2e.latency()),
            requests_per_s: rate(&self.flow.requests),
            output_tokens_per_s: rate(output).filter(|_| self.flow.uncounted == 0),
            total_tokens_per_s: rate(&self.flow.total).filter(|_| self.flow.uncounted_total == 0),
            goodput: if self.frame.slo.is_given() { goodput(self.good, ended, seconds) } else { None },
            client,
            slices: self.slices.within(from_unix_ms, ended_unix_ms),
            notes: self.notes(),
            ..Level::default()
        }
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let mut say = |n: u64, words: &str| {
            if n > 0 {
                notes.push(format!("{words}: {n}"));
            }
        };
        say(self.empty, "answers that ended well but were empty, counted as failed");
        say(self.unanswered, "answers that were reasoning to their end and have no time to the answer");
        say(self.implausible, "answers with a count of tokens that cannot be, which was not taken for one");
        say(
            self.flow.uncounted_total,
            "answers that came without a count of their tokens, so that rates of tokens are not known",
        );
        if self.to.is_some() && !self.is_complete() {
            notes.push("requests were still in flight: output tokens/s counts those of requests that ended".to_owned());
        }
        if let Some(output) = self.tokens.output
            && self.tokens.uncounted == 0
            && output as f64 >= TOKENS_TO_EVENT * self.tokens.events as f64
        {
            let each = output as f64 / self.tokens.events as f64;
            notes.push(format!("an event held {each:.2} tokens: ITL lies between events, TPOT between tokens"));
        }
        notes
    }
}

fn add(sum: &mut Option<u64>, more: Option<u64>) {
    if let Some(more) = more {
        *sum = Some(sum.unwrap_or(0) + more);
    }
}
