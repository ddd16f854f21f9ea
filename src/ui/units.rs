//! Numbers for people: three significant digits, a unit, no allocation. Each is a `Display` for
//! `format_args!`; a missing value prints its reason's word. Pad with `{:>7}`: width and alignment work.

use std::fmt::{self, Display, Formatter, Write};

use crate::derive::lives::Lives;
pub use crate::model::text::Decimals;
use crate::model::{Reading, Time};

/// A short text on the stack, so that a number with its unit can be padded as one.
struct Short {
    bytes: [u8; 40],
    len: usize,
}

impl Write for Short {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        // An error would be a panic wherever it is made a `String`: what is too long is cut.
        let room = s.floor_char_boundary(self.bytes.len() - self.len);
        let s = s.get(..room).unwrap_or(s);
        self.bytes[self.len..self.len + s.len()].copy_from_slice(s.as_bytes());
        self.len += s.len();
        Ok(())
    }
}

/// Writes a short text with the formatter's width and alignment.
pub fn pad(f: &mut Formatter<'_>, text: fmt::Arguments<'_>) -> fmt::Result {
    let mut short = Short { bytes: [0; 40], len: 0 };
    short.write_fmt(text)?;
    f.pad(std::str::from_utf8(&short.bytes[..short.len]).unwrap_or_default())
}

/// Decimals that leave three significant digits.
fn decimals(value: f64) -> usize {
    match value.abs() {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    }
}

macro_rules! unit {
    ($(#[doc = $doc:literal])+ $name:ident, |$v:ident, $f:ident| $body:expr) => {
        $(#[doc = $doc])+
        #[derive(Clone, Copy, Debug)]
        pub struct $name(pub Reading);

        impl Display for $name {
            fn fmt(&self, $f: &mut Formatter<'_>) -> fmt::Result {
                match self.0 {
                    Reading::Value($v) => $body,
                    Reading::Missing(why) => $f.pad(why.word()),
                }
            }
        }
    };
}

/// The number scaled to a prefix of `base` (1000 or 1024), and the prefix's place.
fn scale(mut value: f64, base: f64) -> (f64, usize) {
    let mut prefix = 0;
    while value.abs() >= base * 0.9995 && prefix < 5 {
        value /= base;
        prefix += 1;
    }
    (value, prefix)
}

unit!(
    /// "81 %".
    Percent, |v, f| pad(f, format_args!("{} %", Decimals(v, 0)))
);
unit!(
    /// "0.6 %": one decimal below 10.
    FinePercent, |v, f| if v.abs() < 9.95 { pad(f, format_args!("{v:.1} %")) } else { pad(f, format_args!("{} %", Decimals(v, 0))) }
);
unit!(
    /// "36.5 GiB": binary prefixes.
    Bytes, |v, f| {
        let (v, prefix) = scale(v, 1024.0);
        let d = if prefix == 0 { 0 } else { decimals(v) };
        pad(f, format_args!("{} {}", Decimals(v, d), ["B", "KiB", "MiB", "GiB", "TiB", "PiB"][prefix]))
    }
);
unit!(
    /// "2.21 TB/s": decimal prefixes.
    BytesPerSecond, |v, f| {
        let (v, prefix) = scale(v, 1000.0);
        let d = if prefix == 0 { 0 } else { decimals(v) };
        pad(f, format_args!("{} {}", Decimals(v, d), ["B/s", "kB/s", "MB/s", "GB/s", "TB/s", "PB/s"][prefix]))
    }
);
unit!(
    /// "0.1": gigabytes a second, where a heading says the unit.
    GigaBytes, |v, f| pad(f, format_args!("{}", Decimals(v / 1e9, 1)))
);
unit!(
    /// "4.08k": a plain number with a decimal prefix.
    Number, |v, f| {
        let (v, prefix) = scale(v, 1000.0);
        #[expect(clippy::float_cmp, reason = "asks whether the number is whole")]
        let d = if prefix == 0 && v.trunc() == v { 0 } else { decimals(v) };
        pad(f, format_args!("{}{}", Decimals(v, d), ["", "k", "M", "G", "T", "P"][prefix]))
    }
);
unit!(
    /// "780 ms", "1.25 s", "6.2 min": a duration given in seconds.
    Seconds, |v, f| {
        match v.abs() {
            a if a < 0.000_999_5 => pad(f, format_args!("{:.0} µs", v * 1e6)),
            a if a < 0.9995 => { let ms = v * 1e3; let d = decimals(ms); pad(f, format_args!("{ms:.d$} ms")) }
            a if a < 120.0 => { let d = decimals(v); pad(f, format_args!("{v:.d$} s")) }
            a if a < 7200.0 => { let m = v / 60.0; let d = decimals(m); pad(f, format_args!("{m:.d$} min")) }
            _ => { let h = v / 3600.0; let d = decimals(h); pad(f, format_args!("{} h", Decimals(h, d))) }
        }
    }
);
unit!(
    /// "616 W".
    Watts, |v, f| pad(f, format_args!("{} W", Decimals(v, 0)))
);
unit!(
    /// "1485 MHz".
    Megahertz, |v, f| pad(f, format_args!("{} MHz", Decimals(v, 0)))
);
unit!(
    /// "55 °C".
    Celsius, |v, f| pad(f, format_args!("{} °C", Decimals(v, 0)))
);
unit!(
    /// The bare number without decimals.
    Whole, |v, f| pad(f, format_args!("{}", Decimals(v, 0)))
);

/// The mark behind a figure of which less than four fifths of the time were measured: "4.08k*". [`PARTLY_HELP`] explains it.
#[derive(Clone, Copy, Debug)]
pub struct Partly(pub bool);

impl Display for Partly {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0 { PARTLY } else { "" })
    }
}

/// What [`Partly`] shows.
pub const PARTLY: &str = "*";
/// What it means.
pub const PARTLY_HELP: &str = "behind a figure: less than four fifths of the time that it is about were measured";

/// Whose requests a quantile is of, after its time: " since the restart", " across a restart", or nothing.
#[derive(Clone, Copy, Debug)]
pub struct Restarts(pub Lives);

impl Display for Restarts {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Lives { since_restart: true, .. } => f.write_str(" since the restart"),
            Lives { restarts: 0, .. } => Ok(()),
            Lives { restarts: 1, .. } => f.write_str(" across a restart"),
            Lives { restarts, .. } => write!(f, " across {restarts} restarts"),
        }
    }
}

/// A moment as the time of its day, UTC: "14:07:12".
#[derive(Clone, Copy, Debug)]
pub struct TimeOfDay(pub Time);

impl Display for TimeOfDay {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let s = self.0.0 / 1000 % 86_400;
        pad(f, format_args!("{:02}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60))
    }
}

/// A length of time on the axis: "60 s", "10 min", "6 h".
#[derive(Clone, Copy, Debug)]
pub struct Span(pub u64);

impl Display for Span {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            ms if ms < 120_000 => pad(f, format_args!("{} s", ms / 1000)),
            ms if ms < 7_200_000 => pad(f, format_args!("{} min", ms / 60_000)),
            ms if ms < 172_800_000 => pad(f, format_args!("{} h", ms / 3_600_000)),
            ms => pad(f, format_args!("{} d", ms / 86_400_000)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Why;

    #[test]
    fn three_digits_and_a_unit() {
        let v = Reading::Value;
        assert_eq!(format!("{}", Bytes(v(39_191_576_576.0))), "36.5 GiB");
        assert_eq!(format!("{}", Bytes(v(150_754_820_096.0))), "140 GiB");
        assert_eq!(format!("{}", BytesPerSecond(v(2.214e12))), "2.21 TB/s");
        assert_eq!(format!("{}", Seconds(v(0.78))), "780 ms");
        assert_eq!(format!("{}", Seconds(v(0.9999))), "1.00 s");
        assert_eq!(format!("{}", Seconds(v(0.0046))), "4.60 ms");
        assert_eq!(format!("{}", Number(v(4076.0))), "4.08k");
        assert_eq!(format!("{}", Number(v(128.0))), "128");
        assert_eq!(TimeOfDay(Time(1_795_961_220_900)).to_string(), "14:07:00");
        assert_eq!(format!("{:>7}|", Percent(v(80.6))), "   81 %|");
        assert_eq!(format!("{:>6}|", Watts(Reading::Missing(Why::NotPermitted))), "denied|");
        let ways = [Reading::Value(104_857_600.0), Reading::Missing(Why::Unsupported)].map(GigaBytes);
        assert_eq!(format!("{}/{}", ways[0], ways[1]), "0.1/n/a");
    }
}
