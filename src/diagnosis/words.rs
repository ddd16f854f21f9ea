//! Figures in words, the same in every finding.

use std::fmt;

use crate::model::text::Decimals;

/// Seconds: `450 ms`, `4.1 s`, `3.5 min`.
pub(crate) struct Secs(pub(crate) f64);

impl fmt::Display for Secs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            s if s < 0.01 => write!(f, "{:.1} ms", s * 1e3),
            s if s < 0.9995 => write!(f, "{:.0} ms", s * 1e3),
            s if s < 9.95 => write!(f, "{s:.1} s"),
            s if s < 119.5 => write!(f, "{s:.0} s"),
            s => write!(f, "{} min", Decimals(s / 60.0, 0)),
        }
    }
}

/// Bytes: `820 MiB`, `101 GiB`.
pub(super) struct Mem(pub(super) f64);

impl fmt::Display for Mem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const GIB: f64 = 1024.0 * 1024.0 * 1024.0;
        match self.0 / GIB {
            gib if gib >= 9.95 => write!(f, "{} GiB", Decimals(gib, 0)),
            gib if gib >= 0.995 => write!(f, "{gib:.1} GiB"),
            gib => write!(f, "{:.0} MiB", gib * 1024.0),
        }
    }
}

/// A count: `950`, `12.4k`, `20k`, `1.2M`.
pub(crate) struct Num(pub(crate) f64);

impl fmt::Display for Num {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            n if n < 9.95 && (n - n.round()).abs() > 0.05 => write!(f, "{n:.1}"),
            n if n < 9_999.5 => write!(f, "{n:.0}"),
            n if n < 999_500.0 => write!(f, "{}k", (n / 1e2).round() / 10.0),
            n if n < 1e15 => write!(f, "{}M", (n / 1e5).round() / 10.0),
            n => write!(f, "{}", Decimals(n, 0)),
        }
    }
}

/// `1 request waits`, `20 requests wait`.
pub(super) fn waits(requests: f64) -> String {
    if (requests - 1.0).abs() < 0.5 { "1 request waits".to_owned() } else { format!("{} requests wait", Num(requests)) }
}

/// GB a second of bytes a second.
pub(super) fn gb(bytes: f64) -> String {
    format!("{} GB/s", Decimals(bytes / 1e9, 1))
}

/// The program of a command line, without directories: `python3`.
pub(super) fn program(command: &str) -> &str {
    let first = command.split_whitespace().next().unwrap_or("a process");
    first.rsplit('/').next().unwrap_or(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_two_or_three_digits() {
        let secs: Vec<String> = [0.0048, 0.45, 4.14, 27.4, 600.0].iter().map(|&s| Secs(s).to_string()).collect();
        assert_eq!(secs, ["4.8 ms", "450 ms", "4.1 s", "27 s", "10 min"]);
        assert_eq!((Mem(1e9).to_string(), Mem(1.085e11).to_string()), ("954 MiB".into(), "101 GiB".into()));
        let nums: Vec<String> =
            [0.0, 1.94, 220.0, 12_400.0, 20_040.0, 2e6].iter().map(|&n| Num(n).to_string()).collect();
        assert_eq!(nums, ["0", "1.9", "220", "12.4k", "20k", "2M"]);
        assert_eq!((waits(1.0), waits(220.0)), ("1 request waits".into(), "220 requests wait".into()));
        assert_eq!(program("/usr/bin/python3 -c x"), "python3");
    }
}
