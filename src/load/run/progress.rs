//! How far a sweep is, and how much longer it takes.
//!
//! Each level is estimated from how long a request takes now, and corrected by how wrong that was for the levels that
//! are over. Invariant: the share that is done never falls.

use crate::load::Said;
use crate::load::plan::Plan;

use super::order::{Leg, seconds};

/// How far a sweep is. Times are s.
#[derive(Debug)]
pub(super) struct Progress {
    legs: Vec<Leg>,
    /// Levels that are over.
    over: usize,
    started_s: f64,
    level_started_s: f64,
    /// What the levels that are over took, and what was thought before they were.
    took_s: f64,
    thought_s: f64,
    done: f64,
}

impl Progress {
    /// Of these levels, at its start.
    pub(super) const fn new(legs: Vec<Leg>, now_s: f64) -> Self {
        Self { legs, over: 0, started_s: now_s, level_started_s: now_s, took_s: 0.0, thought_s: 0.0, done: 0.0 }
    }
    /// A level begins.
    pub(super) const fn begin(&mut self, now_s: f64) {
        self.level_started_s = now_s;
    }
    /// A level is over, or is left out (`took_s` 0).
    pub(super) fn end(&mut self, plan: &Plan, took_s: f64, request_s: Option<f64>) {
        if let Some(thought) = self.legs.get(self.over).and_then(|leg| seconds(plan, leg.load, request_s))
            && took_s > 0.0
        {
            self.took_s += took_s;
            self.thought_s += thought;
        }
        self.over += 1;
    }
    /// How far it is at `now_s`, when a request takes `request_s` and the budget ends at `until_s`.
    pub(super) fn said(&mut self, plan: &Plan, now_s: f64, request_s: Option<f64>, until_s: f64, what: String) -> Said {
        let eta_s = self.eta_s(plan, now_s, request_s).map(|eta| eta.min(until_s - now_s).max(0.0));
        let passed = now_s - self.started_s;
        let done = match eta_s {
            Some(eta) if passed + eta > 0.0 => passed / (passed + eta),
            _ => self.over as f64 / self.legs.len().max(1) as f64,
        };
        self.done = self.done.max(done.clamp(0.0, 1.0));
        Said::Progress { done: self.done, eta_s, what }
    }

    fn eta_s(&self, plan: &Plan, now_s: f64, request_s: Option<f64>) -> Option<f64> {
        let wrong = if self.thought_s > 0.0 { (self.took_s / self.thought_s).clamp(0.5, 2.0) } else { 1.0 };
        let mut left = 0.0;
        for (i, leg) in self.legs.iter().enumerate().skip(self.over) {
            let level = seconds(plan, leg.load, request_s)? * wrong;
            left += if i == self.over {
                // One that takes longer than was thought ends with a request, some time.
                (level - (now_s - self.level_started_s)).max(request_s.unwrap_or(0.0))
            } else {
                level
            };
        }
        Some(left)
    }
}
