//! The words of the time × concurrency map: rows, minutes, latencies that fit a cell.

use std::fmt::{self, Display, Formatter};

use crate::derive::concurrency::row_span;
use crate::model::Metric;

/// A row by the requests that ran: "1", "33–64", "> 64".
#[derive(Clone, Copy)]
pub(super) struct Running(pub(super) usize);

impl Display for Running {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match row_span(self.0) {
            (least, None) => write!(f, "> {}", least - 1),
            (least, Some(most)) if least == most => write!(f, "{least}"),
            (least, Some(most)) => write!(f, "{least}–{most}"),
        }
    }
}

/// The moment at which a minute begins, UTC: "14:07".
pub(super) struct Minute(pub(super) u64);

impl Display for Minute {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let of_day = self.0 % (24 * 60);
        write!(f, "{:02}:{:02}", of_day / 60, of_day % 60)
    }
}

/// Which concurrency an observation tells of: what is counted when a request ends was shaped before.
pub(super) const fn caveat(metric: Metric) -> &'static str {
    match metric {
        Metric::E2e | Metric::Tpot | Metric::DecodeTime => {
            "counted when a request ends: reflects the concurrency up to one E2E ago"
        }
        Metric::QueueTime | Metric::PrefillTime => {
            "counted when a request ends by vLLM: reflects the concurrency up to one E2E ago"
        }
        Metric::Itl => "counted with each output event; events of one request are not independent",
        _ => "counted with the first token",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_name_what_ran_in_them() {
        let rows: Vec<_> = (0..8).map(|row| Running(row).to_string()).collect();
        assert_eq!(rows, ["1", "2", "3–4", "5–8", "9–16", "17–32", "33–64", "> 64"]);
    }

    #[test]
    fn minutes_are_of_the_day() {
        // 2026-11-29 14:07 UTC.
        assert_eq!(Minute(1_795_961_220 / 60).to_string(), "14:07");
        assert_eq!([Minute(0), Minute(24 * 60 - 1)].map(|m| m.to_string()), ["00:00", "23:59"]);
    }
}
