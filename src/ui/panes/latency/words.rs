//! The latency pane's words: names, definitions, bounds.

use std::fmt::{self, Display, Formatter};

use crate::derive::lives::Lives;
use crate::derive::quantile::Quantile;
use crate::model::{Metric, Reading};
use crate::ui::text::columns;
use crate::ui::units::{Decimals, Restarts, Seconds, Span};

/// Name of a latency.
pub(in crate::ui::panes) const fn name(metric: Metric) -> &'static str {
    match metric {
        Metric::Ttft => "TTFT",
        Metric::Itl => "ITL",
        Metric::Tpot => "TPOT",
        Metric::E2e => "E2E",
        Metric::QueueTime => "queue time",
        Metric::PrefillTime => "prefill",
        Metric::DecodeTime => "decode",
        _ => "latency",
    }
}

/// What is measured, in one line. `kind` is the engine's adapter: not all mean the same.
pub(in crate::ui::panes) fn definition(metric: Metric, kind: &str) -> &'static str {
    match metric {
        Metric::Ttft => "time to first token: from arrival at the engine to the first token",
        Metric::Itl => "inter-token latency: each gap between output events, requests pooled",
        Metric::Tpot if ["tgi", "lorax"].contains(&kind) => "time per token: a mean for each request, first token in",
        Metric::Tpot => "time per output token: a mean for each request, first token out",
        Metric::E2e => "end to end: from arrival to the last token, counted when it ends",
        Metric::QueueTime => "queue time: from arrival until first scheduled",
        Metric::PrefillTime => "prefill: from first scheduled to the first token",
        Metric::DecodeTime => "decode: from the first token to the last",
        _ => "",
    }
}

/// What a window lacks: one life of the server, scrapes in it, or those at its end.
pub(super) struct Lacks {
    /// Whose requests they are.
    pub(super) lives: Lives,
    /// Some scrapes are missing.
    pub(super) gaps: bool,
    /// Age of the last one at the window's end, ms.
    pub(super) old_ms: u64,
}

/// From this age on the last scrape is worth a word, ms: longer than one that is due and late.
const OLD_MS: u64 = 5_000;

impl Display for Lacks {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Restarts(self.lives).fmt(f)?;
        f.write_str(if self.gaps { ", with gaps" } else { "" })?;
        if self.old_ms >= OLD_MS { write!(f, ", read until {} ago", Span(self.old_ms)) } else { Ok(()) }
    }
}

/// How an engine is started for finer buckets of a latency.
pub(super) fn finer(metric: Metric, kind: &str) -> Option<&'static str> {
    Some(match (kind, metric) {
        ("vllm", Metric::Ttft) => "vLLM 0.33 --custom-histogram-buckets '{\"time_to_first_token\":[…]}'",
        ("vllm", Metric::Itl | Metric::Tpot) => "vLLM 0.33 --custom-histogram-buckets '{\"inter_token_latency\":[…]}'",
        ("vllm", _) => "vLLM 0.33 --custom-histogram-buckets '{\"request_latency\":[…]}'",
        ("sglang", Metric::Ttft) => "SGLang --bucket-time-to-first-token …",
        ("sglang", Metric::Itl) => "SGLang --bucket-inter-token-latency …",
        ("sglang", Metric::E2e) => "SGLang --bucket-e2e-request-latency …",
        _ => return None,
    })
}

/// What a histogram counts.
pub(in crate::ui::panes) const fn observations(metric: Metric) -> &'static str {
    match metric {
        Metric::Itl => "events",
        _ => "requests",
    }
}

fn seconds(value: f64) -> Seconds {
    Seconds(Reading::new(value))
}

/// "P99 780 ms (750 ms–1.00 s)", "P99 < 10.0 ms" in the first bucket, "P99 > 80.0 s" above the last edge.
pub(in crate::ui::panes) struct Bounded<'a> {
    pub(in crate::ui::panes) q: f64,
    pub(in crate::ui::panes) quantile: Quantile,
    pub(in crate::ui::panes) edges: &'a [f64],
}

impl Display for Bounded<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Quantile { value, lo, hi, .. } = self.quantile;
        write!(f, "P{:.0} ", self.q * 100.0)?;
        let open = self.edges.last().is_none_or(|&last| lo >= last);
        match hi {
            // Where the first or the last bucket holds it, the value is a guess and the edge is what is known.
            Some(hi) if lo <= 0.0 => write!(f, "< {}", seconds(hi)),
            Some(hi) if open => write!(f, "> {} (at most {})", seconds(lo), seconds(hi)),
            None => write!(f, "> {}", seconds(lo)),
            Some(hi) => write!(f, "{} ({}–{})", seconds(value), seconds(lo), seconds(hi)),
        }
    }
}

/// A latency in at most five columns: "7.8ms", "780ms", "1.25s", "125s".
pub(in crate::ui::panes) struct Compact(pub(in crate::ui::panes) f64);

impl Display for Compact {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            v if v < 0.000_999_5 => write!(f, "{:.0}µs", v * 1e6),
            v if v < 0.009_95 => write!(f, "{:.1}ms", v * 1e3),
            v if v < 0.9995 => write!(f, "{:.0}ms", v * 1e3),
            v if v < 9.995 => write!(f, "{v:.2}s"),
            v if v < 99.95 => write!(f, "{v:.1}s"),
            v if v < 9999.5 => write!(f, "{v:.0}s"),
            v => write!(f, "{}h", Decimals(v / 3600.0, 0)),
        }
    }
}

/// A cell's quantile in at most six columns; outside the edges the edge, which is all that is known: "<300ms".
pub(in crate::ui::panes) struct Short<'a> {
    pub(in crate::ui::panes) quantile: &'a Quantile,
    pub(in crate::ui::panes) edges: &'a [f64],
}

impl Short<'_> {
    /// Whether it lies between two edges, so that the value is more than a guess.
    pub(in crate::ui::panes) fn is_inside(&self) -> bool {
        self.quantile.lo > 0.0 && self.edges.last().is_some_and(|&last| self.quantile.lo < last)
    }
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

/// What is left without a histogram: "mean only, no histogram exposed: E2E 800 ms mean of 12 requests"; shorter
/// beside its name: "mean 800 ms of 12 requests; no histogram exposed".
pub(super) struct MeanOnly {
    pub(super) metric: Metric,
    pub(super) seconds: Option<f64>,
    pub(super) requests: Option<f64>,
}

impl Display for MeanOnly {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let name = name(self.metric);
        match (self.seconds, self.requests) {
            (None, _) => write!(f, "no histogram exposed, and its sum was not read"),
            (Some(_), Some(n)) if n < 0.5 => write!(f, "no histogram exposed: {name} not known, no request ended"),
            (Some(s), Some(n)) => {
                let mean = seconds(s / n);
                if f.alternate() {
                    return write!(f, "mean {mean} of {n:.0} requests; no histogram exposed");
                }
                write!(f, "mean only, no histogram exposed: {name} {mean} mean of {n:.0} requests")
            }
            (Some(s), None) => {
                write!(f, "no histogram exposed: {name} {} in all, requests not counted", seconds(s))
            }
        }
    }
}

/// The range of some neighbouring buckets: "250 ms–1.00 s", "< 10.0 ms", "> 80.0 s".
pub(super) struct Range<'a> {
    pub(super) edges: &'a [f64],
    pub(super) first: usize,
    pub(super) last: usize,
}

impl Display for Range<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let below = self.first.checked_sub(1).and_then(|i| self.edges.get(i)).copied();
        match (below, self.edges.get(self.last).copied()) {
            (Some(lo), Some(hi)) => write!(f, "{}–{}", seconds(lo), seconds(hi)),
            (None, Some(hi)) => write!(f, "< {}", seconds(hi)),
            (Some(lo), None) => write!(f, "> {}", seconds(lo)),
            (None, None) => f.write_str("any latency"),
        }
    }
}

/// A round latency on the axis: "100 ms", "1 s".
pub(in crate::ui::panes) struct Tick(pub(in crate::ui::panes) f64);

impl Display for Tick {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        pad(f, "", self.0, " ")
    }
}

/// The outer edge of the histogram on the axis: "> 80 s", "<300ms".
pub(super) enum Edge {
    /// Nothing finer is known above this.
    Above(f64),
    /// Nothing finer is known below this.
    Below(f64),
}

impl Display for Edge {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Above(edge) => pad(f, ">", edge, ""),
            Self::Below(edge) => pad(f, "<", edge, ""),
        }
    }
}

/// Writes a latency with whole numbers, right-aligned.
fn pad(f: &mut Formatter<'_>, sign: &str, value: f64, space: &str) -> fmt::Result {
    let (value, unit) = match value {
        v if v < 0.000_999 => (v * 1e6, "µs"),
        v if v < 0.999 => (v * 1e3, "ms"),
        v => (v, "s"),
    };
    // A fraction only where the number is not whole: edges such as 2.5 s.
    let number = Decimals(value, usize::from((value - value.round()).abs() > 0.01));
    let used = columns(format_args!("{sign}{number}{space}{unit}"));
    for _ in usize::from(used)..f.width().unwrap_or(0) {
        f.write_str(" ")?;
    }
    write!(f, "{sign}{number}{space}{unit}")
}

/// A length of time, ms, that need not be round: "199 s", "10 min".
pub(super) struct Covered(pub(super) u64);

impl Display for Covered {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if !self.0.is_multiple_of(60_000) && self.0 < 600_000 {
            write!(f, "{} s", (self.0 + 500) / 1000)
        } else {
            write!(f, "{}", Span(self.0))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_said_as_they_are_known() {
        let of = |lo, hi, value| {
            let quantile = Quantile { value, lo, hi, enough: true, n: 400 };
            format!("{}", Bounded { q: 0.99, quantile, edges: &[0.3, 80.0] })
        };
        assert_eq!(of(0.75, Some(1.0), 0.78), "P99 780 ms (750 ms–1.00 s)");
        assert_eq!(of(0.0, Some(0.3), 0.297), "P99 < 300 ms");
        assert_eq!(of(80.0, None, 80.0), "P99 > 80.0 s");
        assert_eq!(of(80.0, Some(95.0), 85.0), "P99 > 80.0 s (at most 95.0 s)");
    }

    #[test]
    fn labels_fit_six_columns() {
        assert_eq!(format!("{:>6}", Tick(0.1)), "100 ms");
        assert_eq!(format!("{:>6}", Tick(2.0)), "   2 s");
        assert_eq!(format!("{:>6}", Tick(0.0005)), "500 µs");
        assert_eq!(format!("{:>6}", Edge::Above(7680.0)), ">7680s");
        assert_eq!(format!("{:>6}", Edge::Below(0.3)), "<300ms");
        assert_eq!(format!("{:>6}", Edge::Above(2.5)), " >2.5s");
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

    #[test]
    fn a_mean_says_over_how_many() {
        let of = |seconds, requests| MeanOnly { metric: Metric::E2e, seconds, requests }.to_string();
        assert_eq!(of(Some(9.6), Some(12.0)), "mean only, no histogram exposed: E2E 800 ms mean of 12 requests");
        assert_eq!(of(Some(9.6), None), "no histogram exposed: E2E 9.60 s in all, requests not counted");
        assert_eq!(of(Some(0.0), Some(0.0)), "no histogram exposed: E2E not known, no request ended");
        assert_eq!(of(None, None), "no histogram exposed, and its sum was not read");
    }

    #[test]
    fn every_latency_has_a_name_and_a_definition() {
        for metric in crate::app::View::LATENCIES {
            assert_ne!(name(metric), "latency");
            for kind in ["vllm", "sglang", "tgi"] {
                let text = definition(metric, kind);
                assert!(!text.is_empty() && text.chars().count() <= 70, "{text}");
            }
            assert!(finer(metric, "vllm").is_some() && finer(metric, "llama.cpp").is_none());
        }
        assert!(definition(Metric::Tpot, "tgi").contains("first token in"));
        assert!(definition(Metric::Tpot, "vllm").contains("first token out"));
    }
}
