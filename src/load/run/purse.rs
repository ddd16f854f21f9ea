//! What a sweep may still spend.
//!
//! Invariant: what went out and has not ended is held against it as planned, so that the budget is not overrun by what
//! is in flight. All moments are µs.

use std::time::Duration;

use crate::load::plan::Budget;

/// Time and tokens.
#[derive(Clone, Copy, Debug)]
pub(super) struct Purse {
    budget: Budget,
    deadline: u64,
    /// Tokens that the agreement and the levels before this one have cost.
    spent: u64,
    /// Tokens planned for what is in flight.
    out: u64,
}

impl Purse {
    /// The budget, from `now` on.
    pub(super) fn new(budget: Budget, now: u64) -> Self {
        Self { budget, deadline: now.saturating_add((budget.seconds * 1e6) as u64), spent: 0, out: 0 }
    }
    /// When the time is over.
    pub(super) const fn deadline(&self) -> u64 {
        self.deadline
    }
    /// How long that is from `now` on.
    pub(super) const fn left(&self, now: u64) -> Duration {
        Duration::from_micros(self.deadline.saturating_sub(now))
    }
    /// Takes so many tokens for a request beside those that this level has cost; whether there were so many left.
    pub(super) const fn take(&mut self, cost: u64, tokens: u64) -> bool {
        let all = self.spent.saturating_add(cost).saturating_add(self.out).saturating_add(tokens);
        let fits = all <= self.budget.tokens;
        if fits {
            self.out += tokens;
        }
        fits
    }
    /// A request ended: from now on, what it has cost counts instead.
    pub(super) const fn settle(&mut self, tokens: u64) {
        self.out = self.out.saturating_sub(tokens);
    }
    /// A level ended, or the agreement, that has cost so many tokens. What is still in flight is given up: nobody will say
    /// what it cost, so it has cost what was planned.
    pub(super) const fn close(&mut self, cost: u64) {
        self.spent = self.spent.saturating_add(cost).saturating_add(self.out);
        self.out = 0;
    }
    /// That there is no time left, in words.
    pub(super) fn no_time(&self) -> String {
        format!("the budget of {} s was used up", self.budget.seconds)
    }
    /// That there are no tokens left, in words.
    pub(super) fn no_tokens(&self) -> String {
        format!("the budget of {} tokens was used up", self.budget.tokens)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_flight_counts_as_planned_and_what_ended_as_counted() {
        let mut purse = Purse::new(Budget { seconds: 1.5, tokens: 100 }, 10);
        assert_eq!(purse.deadline(), 1_500_010);
        assert!(purse.take(0, 40) && purse.take(0, 60) && !purse.take(0, 1));
        // It was planned to cost 60 and has cost 20.
        purse.settle(60);
        assert!(!purse.take(20, 41) && purse.take(20, 40));
        purse.settle(40);
        // Of the first nothing was heard any more.
        purse.close(55);
        assert!(purse.take(0, 5) && !purse.take(0, 1));
    }
}
