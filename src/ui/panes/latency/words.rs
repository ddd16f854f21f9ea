//! The latency pane's words: names, definitions, bounds.

use std::fmt::{self, Display, Formatter};

use crate::derive::quantile::Quantile;
use crate::model::{Metric, Reading};
use crate::ui::units::{Seconds, Span};

/// Name of a latency.
pub(in crate::ui::panes) const fn name(metric: Metric) -> &'static str {
    match metric {
        Metric::Ttft => "TTFT",
        Metric::Itl => "ITL",
        Metric::E2e => "E2E",
        Metric::QueueTime => "queue time",
        _ => "latency",
    }
}

/// What is measured, in one line.
pub(in crate::ui::panes) const fn definition(metric: Metric) -> &'static str {
    match metric {
        Metric::Ttft => "time to first token: from arrival at the engine to the first token",
        Metric::Itl => "inter-token latency: between output events, all requests pooled",
        Metric::E2e => "end to end: from arrival to the last token, counted when it ends",
        Metric::QueueTime => "queue time: from arrival until first scheduled",
        _ => "",
    }
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
pub(super) struct Tick(pub(super) f64);

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
    let digits = value.max(1.0).log10().floor() as usize + 1;
    // A fraction only where the number is not whole: edges such as 2.5 s.
    let decimals = usize::from((value - value.round()).abs() > 0.01);
    let used = sign.len() + digits + decimals * 2 + space.len() + unit.chars().count();
    for _ in used..f.width().unwrap_or(0) {
        f.write_str(" ")?;
    }
    write!(f, "{sign}{value:.decimals$}{space}{unit}")
}

/// A number of observations in a cell: fractions below ten only.
pub(super) struct Count(pub(super) f32);

impl Display for Count {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            v if v <= 0.0 => f.write_str(">0"),
            v if (v - v.round()).abs() < 0.005 => write!(f, "{v:.0}"),
            v if (v * 10.0 - (v * 10.0).round()).abs() < 0.05 => write!(f, "{v:.1}"),
            v => write!(f, "{v:.2}"),
        }
    }
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
    fn counts_have_no_needless_digits() {
        let all: Vec<_> = [0.0, 0.05, 0.5, 2.0, 2.5, 500.0].map(|v| Count(v).to_string()).into();
        assert_eq!(all, [">0", "0.05", "0.5", "2", "2.5", "500"]);
    }
}
