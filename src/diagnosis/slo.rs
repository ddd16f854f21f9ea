//! Objectives that the user sets for latencies: `ttft_p99=500ms,itl_p99=50ms`.

use std::fmt;
use std::time::Duration;

use crate::derive::lives::Lives;
use crate::derive::quantile::Quantile;
use crate::model::{Metric, clock};

/// One objective.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Objective {
    /// The latency.
    pub metric: Metric,
    /// The quantile, 0 to 1.
    pub quantile: f64,
    /// The most it may be, s.
    pub most_s: f64,
}

/// One objective beside what the clients of one engine saw.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attainment {
    /// Which engine.
    pub engine: u8,
    /// What was asked for.
    pub objective: Objective,
    /// What was seen; `None` where no request tells, or the engine cannot be judged.
    pub seen: Option<Quantile>,
    /// Whose requests that is of.
    pub lives: Lives,
}

impl Attainment {
    /// Whether it is missed for certain: above it even at the lower bound, or by the estimate where there are enough
    /// requests to call it one. `None` where nothing was seen.
    pub fn missed(&self) -> Option<bool> {
        let most = self.objective.most_s;
        self.seen.map(|seen| seen.lo > most || seen.enough && seen.value > most)
    }
}

/// All objectives; none by default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Slo {
    objectives: Vec<Objective>,
}

/// An objective that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SloError {
    /// No `NAME_pNN=TIME`.
    #[error(
        "'{0}' is no objective: write ttft_p99=500ms; latencies are ttft, itl, tpot, e2e and queue, quantiles p50, p95 and p99"
    )]
    Form(String),
    /// No length of time.
    #[error("'{0}' is no time: write 50ms, 1.5s or 2m")]
    Time(String),
}

/// Names of latencies in an objective.
const LATENCIES: [(&str, Metric); 5] = [
    ("ttft", Metric::Ttft),
    ("itl", Metric::Itl),
    ("tpot", Metric::Tpot),
    ("e2e", Metric::E2e),
    ("queue", Metric::QueueTime),
];
/// Names of quantiles in an objective.
const QUANTILES: [(&str, f64); 3] = [("p50", 0.5), ("p95", 0.95), ("p99", 0.99)];

impl Slo {
    /// Each objective.
    pub fn objectives(&self) -> &[Objective] {
        &self.objectives
    }

    /// Reads objectives that commas divide.
    ///
    /// # Errors
    /// When one of them cannot be read; the message says how they are written.
    pub fn parse(text: &str) -> Result<Self, SloError> {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        parts.map(objective).collect::<Result<_, _>>().map(|objectives| Self { objectives })
    }
}

/// As it is written on the command line.
impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let latency = LATENCIES.iter().find(|(_, metric)| *metric == self.metric).map_or("", |(name, _)| name);
        let quantile = (self.quantile * 100.0).round();
        match self.most_s {
            s if s < 1.0 => write!(f, "{latency}_p{quantile}={}ms", (s * 1e6).round() / 1e3),
            s => write!(f, "{latency}_p{quantile}={s}s"),
        }
    }
}

impl std::str::FromStr for Slo {
    type Err = SloError;

    fn from_str(text: &str) -> Result<Self, SloError> {
        Self::parse(text)
    }
}

fn objective(text: &str) -> Result<Objective, SloError> {
    let form = || SloError::Form(text.to_owned());
    let (name, time) = text.split_once('=').ok_or_else(form)?;
    let (latency, quantile) = name.trim().rsplit_once('_').ok_or_else(form)?;
    let &(_, metric) = LATENCIES.iter().find(|(name, _)| *name == latency).ok_or_else(form)?;
    let &(_, quantile) = QUANTILES.iter().find(|(name, _)| *name == quantile).ok_or_else(form)?;
    Ok(Objective { metric, quantile, most_s: seconds(time.trim())?.as_secs_f64() })
}

fn seconds(text: &str) -> Result<Duration, SloError> {
    let wrong = || SloError::Time(text.to_owned());
    let unit = text.find(|c: char| c.is_ascii_alphabetic()).ok_or_else(wrong)?;
    let (number, unit) = text.split_at(unit);
    let factor = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" | "min" => 60.0,
        _ => return Err(wrong()),
    };
    let number: f64 = number.trim().parse().map_err(|_| wrong())?;
    let time = clock::duration(number * factor).ok_or_else(wrong)?;
    if time.is_zero() { Err(wrong()) } else { Ok(time) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objectives_are_read_or_refused_with_words() {
        let slo: Slo = "ttft_p99=500ms, itl_p95=0.05s,e2e_p50=1m".parse().unwrap();
        let expected = [(Metric::Ttft, 0.99, 0.5), (Metric::Itl, 0.95, 0.05), (Metric::E2e, 0.5, 60.0)];
        let found: Vec<_> = slo.objectives().iter().map(|o| (o.metric, o.quantile, o.most_s)).collect();
        assert_eq!(found, expected);
        let written: Vec<_> = slo.objectives().iter().map(ToString::to_string).collect();
        assert_eq!(written, ["ttft_p99=500ms", "itl_p95=50ms", "e2e_p50=60s"]);
        assert_eq!(Slo::parse(""), Ok(Slo::default()));
        for wrong in ["ttft=5s", "ttft_p98=5s", "speed_p99=5s", "ttft_p99"] {
            assert_eq!(Slo::parse(wrong), Err(SloError::Form(wrong.to_owned())));
        }
        for wrong in ["5", "5h", "-5s", "0s", "infs", "1e300s"] {
            assert_eq!(Slo::parse(&format!("ttft_p99={wrong}")), Err(SloError::Time(wrong.to_owned())));
        }
    }
}
