//! The words of the time × concurrency map: rows, minutes, latencies that fit a cell.

use std::fmt::{self, Display, Formatter};

use crate::derive::concurrency::row_span;
use crate::derive::quantile::Quantile;
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

/// A latency in at most five columns: "7.8ms", "780ms", "1.25s", "125s".
pub(super) struct Compact(pub(super) f64);

impl Display for Compact {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            v if v < 0.000_999_5 => write!(f, "{:.0}µs", v * 1e6),
            v if v < 0.009_95 => write!(f, "{:.1}ms", v * 1e3),
            v if v < 0.9995 => write!(f, "{:.0}ms", v * 1e3),
            v if v < 9.995 => write!(f, "{v:.2}s"),
            v if v < 99.95 => write!(f, "{v:.1}s"),
            v if v < 9999.5 => write!(f, "{v:.0}s"),
            v => write!(f, "{:.0}h", v / 3600.0),
        }
    }
}

/// A cell's quantile in at most six columns; outside the edges the edge, which is all that is known: "<300ms".
pub(super) struct Short<'a> {
    pub(super) quantile: &'a Quantile,
    pub(super) edges: &'a [f64],
}

impl Display for Short<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Quantile { value, lo, hi, .. } = *self.quantile;
        match hi {
            Some(hi) if lo <= 0.0 => write!(f, "<{}", Compact(hi)),
            _ if self.edges.last().is_none_or(|&last| lo >= last) => write!(f, ">{}", Compact(lo)),
            _ => write!(f, "{}", Compact(value)),
        }
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

    #[test]
    fn latencies_fit_five_columns() {
        let all = [0.0004, 0.0078, 0.078, 0.78, 1.25, 12.5, 125.0, 7680.0, 86_400.0].map(|v| Compact(v).to_string());
        assert_eq!(all, ["400µs", "7.8ms", "78ms", "780ms", "1.25s", "12.5s", "125s", "7680s", "24h"]);
        for step in 0..2000 {
            let value = 10_f64.powf(f64::from(step) / 200.0 - 5.0);
            assert!(Compact(value).to_string().chars().count() <= 5, "{value}");
        }
    }

    #[test]
    fn beyond_the_edges_the_edge_is_said() {
        let of = |lo, hi| {
            Short { quantile: &Quantile { value: 0.5, lo, hi, enough: true, n: 400 }, edges: &[0.3, 80.0] }.to_string()
        };
        assert_eq!([of(0.0, Some(0.3)), of(0.3, Some(80.0)), of(80.0, None)], ["<300ms", "500ms", ">80.0s"]);
    }
}
