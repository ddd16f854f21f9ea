//! The words of a load sweep: loads, states, quantiles of its client.

use std::fmt::{self, Display, Formatter};

use crate::load::Level;
use crate::load::level::{Load, Quantile, Rate, State};
use crate::model::{Address, Reading};
use crate::ui::units::{Number, Seconds};

/// A load: "1 user", "8 users", "4 requests/s", "the trace"; alternate at the head of a column: "8", "4/s", "trace".
#[derive(Clone, Copy)]
pub(in crate::ui::panes) struct Amount(pub(in crate::ui::panes) Load);

impl Display for Amount {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match (self.0, f.alternate()) {
            (Load::Users(users), true) => write!(f, "{users}"),
            (Load::RequestsPerS(rate), true) => write!(f, "{}/s", number(rate)),
            (Load::Trace, true) => f.write_str("trace"),
            (load, false) => load.fmt(f),
        }
    }
}

/// Whether the endpoint of a sweep is the engine at this address, however this host is called in it.
pub(in crate::ui::panes) fn is_same(endpoint: &str, url: &str) -> bool {
    Address::parse(endpoint).zip(Address::parse(url)).is_some_and(|(one, other)| one.same_place(&other))
}

/// Whether a level has not begun.
pub(super) const fn is_planned(level: &Level) -> bool {
    level.started_unix_ms == 0 && !level.state.is_over()
}

/// A number with three digits.
pub(super) const fn number(value: f64) -> Number {
    Number(Reading::new(value))
}

/// A length of time given in seconds.
pub(super) const fn seconds(value: f64) -> Seconds {
    Seconds(Reading::new(value))
}

/// How far a level is, or how it ended.
pub(super) const fn state(state: State) -> &'static str {
    match state {
        State::Planned => "planned",
        State::WarmingUp => "warming up",
        State::Measuring => "measuring",
        State::Ending => "ending",
        State::Done => "done",
        State::Short => "short: its time was over before it had its samples",
        State::OverSaturated => "over-saturated: more came than was served, so no steady state was there",
        State::Failing => "failing: too many requests failed",
        State::OutOfBudget => "ended: the budget was used up",
        State::Stopped => "stopped",
    }
}

/// The same in a word, where it is not as planned or not over.
pub(in crate::ui::panes) const fn short(state: State) -> &'static str {
    match state {
        State::Planned => "planned",
        State::WarmingUp => "warm-up",
        State::Measuring => "running",
        State::Ending => "ending",
        State::Done => "",
        State::Short => "short",
        State::OverSaturated => "too much",
        State::Failing => "failing",
        State::OutOfBudget => "budget",
        State::Stopped => "stopped",
    }
}

/// Whether what a level says has to be read with care.
pub(super) const fn is_doubtful(state: State) -> bool {
    matches!(state, State::OverSaturated | State::Failing | State::OutOfBudget | State::Stopped)
}

/// "P99 210 ms (190 ms–260 ms)"; an end that is not bounded is said: "(190 ms or more)".
pub(super) struct Bounded(pub(super) u8, pub(super) Quantile);

impl Display for Bounded {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Quantile { value, lo, hi, .. } = self.1;
        write!(f, "P{} {}", self.0, seconds(value))?;
        match (lo, hi) {
            (Some(lo), Some(hi)) => write!(f, " ({}–{})", seconds(lo), seconds(hi)),
            (Some(lo), None) => write!(f, " ({} or more)", seconds(lo)),
            (None, Some(hi)) => write!(f, " ({} or less)", seconds(hi)),
            (None, None) => Ok(()),
        }
    }
}

/// "5.90k (5.80k–6.00k)".
pub(super) struct Spread(pub(super) Rate);

impl Display for Spread {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}", number(self.0.value))?;
        match (self.0.lo, self.0.hi) {
            (Some(lo), Some(hi)) => write!(f, " ({}–{})", number(lo), number(hi)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_have_their_unit() {
        let all = [Load::Users(1), Load::Users(64), Load::RequestsPerS(4.0), Load::RequestsPerS(0.5), Load::Trace];
        let words = all.map(|load| format!("{} {:#}", Amount(load), Amount(load)));
        assert_eq!(words, ["1 user 1", "64 users 64", "4 requests/s 4/s", "0.5 requests/s 0.50/s", "the trace trace"]);
    }

    #[test]
    fn an_engine_is_the_same_however_its_host_is_called() {
        assert!(is_same("http://localhost:8000/", "http://127.0.0.1:8000"));
        assert!(is_same("http://127.0.0.1:8000/a", "http://127.0.0.1:8000/a/"));
        assert!(!is_same("http://127.0.0.1:8000", "http://127.0.0.1:18261"));
        assert!(!is_same("http://gpu7:8000", "http://127.0.0.1:8000"));
        assert!(!is_same("http://127.0.0.1:8000/a", "http://127.0.0.1:8000/b"));
    }

    #[test]
    fn an_end_that_is_not_known_is_not_made_up() {
        let of = |lo, hi| Bounded(99, Quantile { value: 0.21, lo, hi, enough: true }).to_string();
        assert_eq!(of(Some(0.19), Some(0.26)), "P99 210 ms (190 ms–260 ms)");
        assert_eq!(of(Some(0.19), None), "P99 210 ms (190 ms or more)");
        assert_eq!(of(None, Some(0.26)), "P99 210 ms (260 ms or less)");
        assert_eq!(of(None, None), "P99 210 ms");
        assert_eq!(Spread(Rate { value: 5_900.0, lo: Some(5_800.0), hi: None }).to_string(), "5.90k");
    }

    #[test]
    fn every_state_but_the_planned_end_has_a_short_word() {
        for one in [State::WarmingUp, State::Short, State::OverSaturated, State::Failing, State::OutOfBudget] {
            assert!(!short(one).is_empty() && short(one).len() <= 8 && !state(one).is_empty(), "{one:?}");
        }
        assert_eq!((short(State::Done), is_doubtful(State::Done), is_doubtful(State::Short)), ("", false, false));
    }
}
