//! What is known of one request that ended, and what a level has of all of them: tokens and requests by when they came.
//!
//! It must not know which requests are measured. Invariant: a count of tokens that cannot be is none.

use super::Ended;
use crate::load::exchange::{Exchange, Fault, Stamp, Usage};
use crate::load::plan::Slo;
use crate::load::rates::Bins;

/// What came in the measured time, of all requests.
#[derive(Debug, Default)]
pub(super) struct Flow {
    pub(super) requests: Bins,
    /// Output tokens by when they came.
    pub(super) came: Bins,
    /// Output tokens by when their request ended.
    pub(super) ended: Bins,
    /// Prompt and output tokens by when their request ended.
    pub(super) total: Bins,
    /// Requests of which the server did not count the output.
    pub(super) uncounted: u64,
    /// Requests of which it did not count the prompt or the output.
    pub(super) uncounted_total: u64,
}

/// What is known of a request that ended well.
pub(super) struct Good<'a> {
    pub(super) ended: &'a Ended<'a>,
    pub(super) dispatched: u64,
    pub(super) first: u64,
    pub(super) last: u64,
    /// Output tokens as the server counted, at the end or event by event.
    pub(super) output: Option<u64>,
}

impl Good<'_> {
    pub(super) fn ttft(&self) -> f64 {
        seconds(self.dispatched, self.first)
    }

    pub(super) fn e2e(&self) -> f64 {
        seconds(self.dispatched, self.last)
    }

    pub(super) fn tpot(&self) -> Option<f64> {
        let output = self.output.filter(|output| *output >= 2)?;
        Some(seconds(self.first, self.last) / (output - 1) as f64)
    }

    pub(super) fn keeps(&self, slo: &Slo) -> bool {
        let within = |limit: Option<f64>, value: f64| limit.is_none_or(|limit| value <= limit);
        let tpot = match self.tpot() {
            Some(tpot) => within(slo.tpot_s, tpot),
            // One token has no TPOT; of more, one that is not known is not kept.
            None => slo.tpot_s.is_none() || self.output.unwrap_or_else(|| self.ended.output.into()) <= 1,
        };
        tpot && within(slo.ttft_s, self.ttft()) && within(slo.e2e_s, self.e2e())
    }
}

impl Flow {
    /// Takes in a request, as far as it came before `until`, µs.
    pub(super) fn add(&mut self, good: &Good<'_>, until: u64) {
        let Good { ended, first, output, .. } = *good;
        let end = ended.exchange.end;
        let prompt = usage(ended.exchange, ended.stamps).prompt;
        if (self.requests.start()..until).contains(&end) {
            self.requests.add(end, 1.0);
            self.uncounted_total += u64::from(output.is_none() || prompt.is_none());
            if let Some(output) = output {
                self.ended.add(end, output as f64);
                self.total.add(end, (output + prompt.unwrap_or(0)) as f64);
            }
        }
        match output {
            Some(output) => {
                let even = output as f64 / ended.stamps.len() as f64;
                let each_known = ended.stamps.iter().all(|stamp| stamp.tokens.is_some());
                for stamp in ended.stamps.iter().filter(|stamp| stamp.at < until) {
                    let tokens = stamp.tokens.filter(|_| each_known).map_or(even, f64::from);
                    self.came.add(stamp.at, tokens);
                }
            }
            // It has tokens in the measured time, and nobody knows how many.
            None if end >= self.requests.start() && first < until => self.uncounted += 1,
            None => {}
        }
    }
}

/// Seconds between two moments, µs; 0 where they are the other way round.
pub(super) fn seconds(from: u64, to: u64) -> f64 {
    to.saturating_sub(from) as f64 / 1e6
}

/// `None` for a request that did not end well, or had no content.
pub(super) fn good<'a>(ended: &'a Ended<'a>) -> Option<Good<'a>> {
    let exchange = ended.exchange;
    if exchange.fault.is_some() {
        return None;
    }
    let (first, last) = (exchange.first_content?, exchange.last_content?);
    let (dispatched, output) = (exchange.dispatched?, counted_output(exchange, ended.stamps));
    (!ended.stamps.is_empty()).then_some(Good { ended, dispatched, first, last, output })
}

/// Output tokens as the server counts them: at the end, or with each event.
fn counted_output(exchange: &Exchange, stamps: &[Stamp]) -> Option<u64> {
    let each = || stamps.iter().map(|stamp| stamp.tokens.map(u64::from)).sum();
    let by_event = || Usage { output: each(), ..Usage::default() }.plausible(events(stamps)).0.output;
    usage(exchange, stamps).output.or_else(by_event)
}

/// What the server counted, as far as it can be.
pub(super) fn usage(exchange: &Exchange, stamps: &[Stamp]) -> Usage {
    exchange.usage.unwrap_or_default().plausible(events(stamps)).0
}

pub(super) const fn events(stamps: &[Stamp]) -> u64 {
    stamps.len() as u64
}

/// What a request cost, tokens: what the server says, but no less than went out and came back by our own count, or a
/// server that says 0 would be asked for ever. One that was not sent cost nothing, one that was refused its prompt. Where
/// nobody counts the output, as where the answer broke off, it may have cost all that was planned.
pub(super) fn spent(ended: &Ended<'_>) -> u64 {
    let exchange = ended.exchange;
    if exchange.dispatched.is_none() || exchange.fault.as_ref().is_some_and(Fault::is_unconnected) {
        return 0;
    }
    let usage = usage(exchange, ended.stamps);
    let prompt = usage.prompt.unwrap_or(0).max(ended.prompt.into());
    let output = match &exchange.fault {
        Some(Fault::Refused { .. }) => return prompt,
        Some(_) => usage.output,
        None => counted_output(exchange, ended.stamps),
    };
    prompt.saturating_add(output.unwrap_or_else(|| ended.output.into()).max(events(ended.stamps)))
}
