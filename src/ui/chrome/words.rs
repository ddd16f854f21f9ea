//! Words for the header: ports, ages, places in a recording, names of latencies.

use std::fmt::{self, Display};

use crate::model::{Address, Metric, Reading, SourceState, Why};
use crate::ui::units::Number;

/// Port and path of a URL as ":8000/llm", with its host where that is not the usual one.
pub(in crate::ui) struct Port<'a>(pub(in crate::ui) &'a str);

impl<'a> Port<'a> {
    pub(in crate::ui) fn text(&self) -> &'a str {
        let place = self.0.split_once("://").map_or(self.0, |(_, place)| place).trim_end_matches('/');
        let host = place.split('/').next().unwrap_or_default();
        // Of the usual address the port says all.
        let usual = Address::parse(self.0).is_some_and(|address| address.is_usual());
        host.rfind(':').filter(|_| usual).map_or(place, |colon| &place[colon..])
    }
}

impl Display for Port<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// An age: "0.2 s", "75 s", "12 min".
pub(super) struct Ago(pub(super) u64);

impl Display for Ago {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ms if ms < 9_950 => write!(f, "{:.1} s", ms as f64 / 1000.0),
            ms if ms < 120_000 => write!(f, "{} s", ms / 1000),
            ms => write!(f, "{} min", ms / 60_000),
        }
    }
}

/// What is said for a while after nothing was read for so many ms.
pub(super) fn paused(ms: u64) -> String {
    format!("the machine was suspended, or warptop was stopped, for {}: nothing was read", Ago(ms))
}

/// Why an engine gives no figures, and for how long, ms: "down for 9.0 s".
pub(super) struct Down<'a>(pub(super) &'a SourceState, pub(super) u64);

impl Display for Down<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            SourceState::Unauthorized(_) => f.write_str("needs a key"),
            SourceState::Stalled(_) => write!(f, "late for {}", Ago(self.1)),
            _ => write!(f, "down for {}", Ago(self.1)),
        }
    }
}

/// A count of an engine that answers: a lost one is a dash, since the notice says what is wrong with the answer.
pub(super) struct Count(pub(super) Reading);

impl Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Reading::Missing(Why::Failed) => f.write_str("–"),
            reading => Number(reading).fmt(f),
        }
    }
}

/// A place in a recording: "0:52".
pub(super) struct Position(pub(super) u64);

impl Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = self.0 / 1000;
        if s >= 3600 {
            write!(f, "{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60)
        } else {
            write!(f, "{}:{:02}", s / 60, s % 60)
        }
    }
}

/// Name of a latency on screen.
pub(super) struct Latency(pub(super) Metric);

impl Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Metric::Ttft => "TTFT",
            Metric::Itl => "ITL",
            Metric::E2e => "E2E",
            Metric::Tpot => "TPOT",
            Metric::QueueTime => "queue",
            Metric::PrefillTime => "prefill",
            Metric::DecodeTime => "decode",
            other => other.key(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words() {
        assert_eq!(Port("http://127.0.0.1:8000").to_string(), ":8000");
        assert_eq!(Port("http://localhost:9000/v1").to_string(), ":9000/v1");
        assert_eq!(Port("https://gpu7.example:8000").to_string(), "gpu7.example:8000");
        assert_eq!(Port("http://127.0.0.10:8000").to_string(), "127.0.0.10:8000");
        assert_eq!(Port("http://localhost.example:8000").to_string(), "localhost.example:8000");
        assert_eq!(Port("http://localhost").to_string(), "localhost");
        assert_eq!([Ago(240), Ago(75_900), Ago(600_000)].map(|a| a.to_string()), ["0.2 s", "75 s", "10 min"]);
        let states = [SourceState::Failed, SourceState::Unauthorized, SourceState::Stalled].map(|of| of("x".into()));
        let down = states.each_ref().map(|state| Down(state, 9000).to_string());
        assert_eq!(down, ["down for 9.0 s", "needs a key", "late for 9.0 s"]);
        let counts = [Reading::Value(3.0), Reading::Missing(Why::Failed), Reading::Missing(Why::Unsupported)];
        assert_eq!(counts.map(|count| Count(count).to_string()), ["3", "–", "n/a"]);
        assert_eq!([Position(52_900), Position(3_723_000)].map(|p| p.to_string()), ["0:52", "1:02:03"]);
    }
}
