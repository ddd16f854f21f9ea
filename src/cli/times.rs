//! Times on the command line, and which are allowed.

use std::time::Duration;

use crate::model::clock;

/// Shortest and longest period of the fast readings. Below 100 ms the GPU's own counters are no
/// longer meaningful.
const INTERVAL: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

/// Shortest and longest period and time-out of engines.
const ENGINE_TIMES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_mins(1));

/// A time with its unit: "250ms", "1.5s", "10min", "2h".
pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = match unit.trim() {
        "ms" => 0.001,
        "s" => 1.0,
        "min" => 60.0,
        "h" => 3600.0,
        _ => return Err("give a number with ms, s, min or h".to_owned()),
    };
    let seconds = number.parse::<f64>().map_err(|_| "the number before the unit is missing or wrong".to_owned())?;
    clock::duration(seconds * factor).ok_or_else(|| "give a time from 0 to 100 years".to_owned())
}

pub(super) fn parse_interval(text: &str) -> Result<Duration, String> {
    parse_between(text, INTERVAL, "100ms to 10s are allowed")
}

pub(super) fn parse_engine_time(text: &str) -> Result<Duration, String> {
    parse_between(text, ENGINE_TIMES, "100ms to 60s are allowed")
}

pub(super) fn parse_between(
    text: &str,
    (least, most): (Duration, Duration),
    allowed: &str,
) -> Result<Duration, String> {
    let time = parse_duration(text).map_err(|why| format!("{why}; {allowed}"))?;
    if (least..=most).contains(&time) { Ok(time) } else { Err(allowed.to_owned()) }
}

pub(super) fn parse_seconds(text: &str) -> Result<Duration, String> {
    const MOST: Duration = Duration::from_hours(366 * 24);
    let seconds = text.parse::<f64>().map_err(|_| "give a number of seconds, e.g. 52 or 1.5".to_owned())?;
    let seconds = clock::duration(seconds).filter(|seconds| *seconds <= MOST);
    seconds.ok_or_else(|| "give 0 or more seconds, a year at most".to_owned())
}
