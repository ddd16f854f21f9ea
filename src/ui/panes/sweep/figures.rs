//! The figures below each level of a sweep, a row each: which there are, which go first when there is no room, and
//! what a cell says.

use std::fmt::{self, Display, Formatter};

use crate::derive::levels::{High, busiest, latency};
use crate::load::Level;
use crate::load::level::Silicon;
use crate::model::Metric;
use crate::ui::panes::latency::words::Compact;
use crate::ui::text::width;
use crate::ui::theme::Role;

use super::words::{is_doubtful, is_planned, number, short};

/// What a cell says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value<'a> {
    /// It was not measured.
    Missing,
    /// A plain number.
    Number(f64),
    /// A share, %.
    Percent(f64),
    /// A clock as a share of the highest, %, that something held down.
    Throttled(f64),
    /// A P99, s.
    P99(f64),
    /// A P95, s: too few for a P99.
    P95(f64),
    /// Too few for either: this many.
    Few(u64),
    /// A word.
    Word(&'a str),
    /// A word that is a warning.
    Warning(&'a str),
}

impl Display for Value<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Missing => f.write_str("·"),
            Self::Number(value) => number(value).fmt(f),
            Self::Percent(value) => write!(f, "{value:.0}"),
            Self::Throttled(value) => write!(f, "{value:.0}!"),
            Self::P99(seconds) => Compact(seconds).fmt(f),
            Self::P95(seconds) => write!(f, "{}*", Compact(seconds)),
            Self::Few(n) => write!(f, "n{n}"),
            Self::Word(word) | Self::Warning(word) => f.write_str(word),
        }
    }
}

impl Value<'_> {
    /// The same in so many columns: a word that is too long in brief, "memory" for "memory bandwidth".
    pub(super) fn within(self, columns: u16) -> Self {
        match self {
            Self::Word(word) if width(word) > columns => Self::Word(brief(word)),
            value => value,
        }
    }

    /// How it is drawn in a row whose values are drawn as `usual`.
    pub(super) const fn role(&self, usual: Role) -> Role {
        match self {
            Self::Missing | Self::Few(_) => Role::Dim,
            Self::Throttled(_) | Self::Warning(_) => Role::Warn,
            _ => usual,
        }
    }
}

/// What holds a level back, in as few columns as still tell it apart.
fn brief(word: &str) -> &str {
    match word {
        "KV cache full" => "KV full",
        "request limit" | "admission limit" => "batch",
        "little is asked" => "demand",
        // Older reports have words like "memory-bound".
        word => word.split([' ', '-', '/']).next().unwrap_or(word),
    }
}

/// A row of figures.
pub(super) struct Figure {
    /// Its name, in at most eight columns.
    pub(super) label: &'static str,
    /// How its values are drawn.
    pub(super) role: Role,
    /// The lower, the longer it stays when there is no room.
    rank: u8,
    /// Its value at a level.
    pub(super) value: for<'a> fn(&'a Level, Metric) -> Value<'a>,
}

/// Label of the row of clocks.
pub(super) const CLOCK: &str = "clock %";

/// Every row, from top to bottom. The label of the first is the latency's.
pub(super) const FIGURES: [Figure; 9] = [
    figure("", Role::Third, 0, |level, metric| match latency(level, metric).high() {
        High::P99(quantile) => Value::P99(quantile.value),
        High::P95(quantile) => Value::P95(quantile.value),
        High::Few(n) => Value::Few(n),
        High::Nothing => Value::Missing,
    }),
    figure("tokens/s", Role::Text, 1, |level, _| of(level.output_tokens_per_s.map(|rate| rate.value), Value::Number)),
    figure("good %", Role::Text, 3, |level, _| of(level.goodput.map(|goodput| goodput.share * 100.0), Value::Percent)),
    figure("SM %", Role::Line, 4, |level, _| of(busiest(level).and_then(|gpu| gpu.sm_active_pct), Value::Percent)),
    figure("DRAM %", Role::AreaText, 5, |level, _| {
        of(busiest(level).and_then(|gpu| gpu.dram_active_pct), Value::Percent)
    }),
    figure(CLOCK, Role::Text, 6, |level, _| {
        let held = level.gpus.iter().any(Silicon::is_throttled);
        of(busiest(level).and_then(Silicon::clock_pct), if held { Value::Throttled } else { Value::Percent })
    }),
    figure("waiting", Role::Text, 7, |level, _| {
        of(level.server.as_ref().and_then(|server| server.waiting), Value::Number)
    }),
    figure("KV %", Role::Text, 8, |level, _| {
        of(level.server.as_ref().and_then(|server| server.kv_used_pct), Value::Percent)
    }),
    figure("limit", Role::Text, 2, |level, _| match (&level.bottleneck, short(level.state)) {
        _ if is_planned(level) => Value::Missing,
        (_, word) if is_doubtful(level.state) => Value::Warning(word),
        (_, word) if !level.state.is_over() => Value::Word(word),
        (Some(bottleneck), _) => Value::Word(&bottleneck.word),
        (None, "") => Value::Missing,
        (None, word) => Value::Word(word),
    }),
];

const fn figure(
    label: &'static str,
    role: Role,
    rank: u8,
    value: for<'a> fn(&'a Level, Metric) -> Value<'a>,
) -> Figure {
    Figure { label, role, rank, value }
}

fn of(value: Option<f64>, as_value: fn(f64) -> Value<'static>) -> Value<'static> {
    value.map_or(Value::Missing, as_value)
}

/// Which rows are shown where there is room for so many: those with a value at any level before those without.
pub(super) fn shown(levels: &[Level], metric: Metric, rows: u16) -> [bool; FIGURES.len()] {
    let known = |figure: &Figure| levels.iter().any(|level| (figure.value)(level, metric) != Value::Missing);
    let ranks = FIGURES.each_ref().map(|figure| (!known(figure), figure.rank));
    ranks.map(|own| ranks.iter().filter(|other| **other < own).count() < usize::from(rows))
}

/// Name of the first row.
pub(super) const fn p99_of(metric: Metric) -> &'static str {
    match metric {
        Metric::Ttft => "P99 TTFT",
        Metric::Itl => "P99 ITL",
        Metric::Tpot => "P99 TPOT",
        _ => "P99 E2E",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::level::{Goodput, Rate, State};

    #[test]
    fn what_was_not_measured_goes_first() {
        let mut level = Level { output_tokens_per_s: Some(Rate::default()), ..Level::default() };
        level.ttft_s.n = 3;
        let labels = |level: &Level, rows| {
            let shown = shown(std::slice::from_ref(level), Metric::Ttft, rows);
            FIGURES.iter().zip(shown).filter_map(|(f, shown)| shown.then_some(f.label)).collect::<Vec<_>>()
        };
        assert_eq!(labels(&level, 2), ["", "tokens/s"]);
        assert_eq!(labels(&level, 4), ["", "tokens/s", "good %", "limit"], "nothing is known of goodput");
        level.server = Some(crate::load::level::Server { kv_used_pct: Some(3.0), ..Default::default() });
        assert_eq!(labels(&level, 4), ["", "tokens/s", "KV %", "limit"]);
        assert_eq!(labels(&level, 90).len(), FIGURES.len());
    }

    #[test]
    fn a_word_that_is_too_long_keeps_what_tells_it_apart() {
        let within = |word, columns| Value::Word(word).within(columns).to_string();
        let memory = "memory bandwidth";
        assert_eq!((within(memory, 16), within(memory, 15)), (memory.into(), "memory".into()));
        assert_eq!((within("compute", 7), within("launch overhead", 9)), ("compute".into(), "launch".into()));
        assert_eq!((within("KV cache full", 9), within("request limit", 6)), ("KV full".into(), "batch".into()));
    }

    #[test]
    fn a_cell_says_no_more_than_is_known() {
        let mut level = Level { state: State::Done, ..Level::default() };
        let cells =
            |level: &Level| FIGURES.iter().map(|f| (f.value)(level, Metric::E2e).to_string()).collect::<Vec<_>>();
        assert_eq!(cells(&level), ["·"; 9]);
        level.goodput = Some(Goodput { share: 0.981, ..Goodput::default() });
        level.state = State::Failing;
        level.gpus.push(crate::load::level::Silicon {
            sm_clock_mhz: Some(1_485.0),
            sm_clock_max_mhz: Some(1_980.0),
            throttled_ms_per_s: Some(420.0),
            throttled_by: Some("power cap".into()),
            ..Default::default()
        });
        assert_eq!(cells(&level), ["·", "·", "98", "·", "·", "75!", "·", "·", "failing"]);
        level.gpus[0].throttled_ms_per_s = Some(20.0);
        assert_eq!(cells(&level)[5], "75", "moments are not marked, here as in the report");
    }
}
