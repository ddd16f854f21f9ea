//! What a level's figures are called, and the few that follow from them at once.
//!
//! It must not know where they are shown. Invariants: a P95 is never given for a P99; what does not follow is `None`.

use std::fmt::{self, Display, Formatter};

use super::{Lag, Latency, Load, Quantile, Silicon};
use crate::load::rank::enough;

/// "1 user", "8 users", "2.5 requests/s", "the trace".
impl Display for Load {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Users(1) => f.write_str("1 user"),
            Self::Users(users) => write!(f, "{users} users"),
            Self::RequestsPerS(rate) => write!(f, "{} {}", (rate * 1000.0).round() / 1000.0, self.unit()),
            Self::Trace => f.write_str("the trace"),
        }
    }
}

impl Load {
    /// How much it is: users or requests per second; `None` of a trace.
    pub const fn amount(self) -> Option<f64> {
        match self {
            Self::Users(users) => Some(users as f64),
            Self::RequestsPerS(rate) => Some(rate),
            Self::Trace => None,
        }
    }

    /// The unit of that; none of a trace.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Users(_) => "users",
            Self::RequestsPerS(_) => "requests/s",
            Self::Trace => "",
        }
    }
}

/// The highest quantile that a latency's measurements allow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum High {
    /// Enough for a P99.
    P99(Quantile),
    /// Enough for a P95, not for a P99.
    P95(Quantile),
    /// Too few for either: this many.
    Few(u64),
    /// Nothing was measured.
    Nothing,
}

impl Latency {
    /// The highest quantile that its measurements allow.
    pub fn high(&self) -> High {
        let allowed = |quantile: Option<Quantile>| quantile.filter(|q| q.enough);
        match (allowed(self.p99), allowed(self.p95), self.n) {
            (Some(p99), ..) => High::P99(p99),
            (None, Some(p95), _) => High::P95(p95),
            (None, None, 0) => High::Nothing,
            (None, None, n) => High::Few(n),
        }
    }
}

impl Lag {
    /// Its P99, where there are enough measurements for one, s: a report of an older version holds others too.
    pub fn sure_p99(&self) -> Option<f64> {
        self.p99.filter(|_| enough(0.99, self.n))
    }
}

impl Silicon {
    /// The mean SM clock as a share of the highest, %.
    pub fn clock_pct(&self) -> Option<f64> {
        let most = self.sm_clock_max_mhz.filter(|most| *most > 0.0)?;
        Some(self.sm_clock_mhz? / most * 100.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_has_its_number_and_its_words() {
        let all =
            [Load::Users(1), Load::Users(64), Load::RequestsPerS(2.5), Load::RequestsPerS(7.0 / 3.0), Load::Trace];
        let words = ["1 user", "64 users", "2.5 requests/s", "2.333 requests/s", "the trace"];
        assert_eq!(all.map(|load| load.to_string()), words);
        assert_eq!(all.map(Load::amount), [Some(1.0), Some(64.0), Some(2.5), Some(7.0 / 3.0), None]);
    }

    #[test]
    fn a_p95_is_never_given_for_a_p99() {
        let quantile = |value, enough| Some(Quantile { value, lo: None, hi: None, enough });
        let high = |n, p95, p99| Latency { n, p95, p99, ..Latency::default() }.high();
        assert!(matches!(high(400, quantile(1.0, true), quantile(2.0, true)), High::P99(q) if q.value > 1.5));
        assert!(matches!(high(80, quantile(1.0, true), quantile(2.0, false)), High::P95(q) if q.value < 1.5));
        assert_eq!(high(9, quantile(1.0, false), None), High::Few(9));
        assert_eq!(Latency::default().high(), High::Nothing);
    }

    #[test]
    fn a_share_of_the_clock_needs_both() {
        let clock = |now, most| Silicon { sm_clock_mhz: now, sm_clock_max_mhz: most, ..Silicon::default() }.clock_pct();
        assert_eq!([clock(Some(990.0), Some(1980.0)), clock(Some(990.0), None)], [Some(50.0), None]);
        assert_eq!([clock(None, Some(1980.0)), clock(Some(990.0), Some(0.0))], [None, None]);
    }
}
