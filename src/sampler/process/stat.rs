//! The few fields of `/proc/PID/stat` that many processes or threads are compared by.

/// CPU time of a process or thread so far, and when it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Times {
    /// User and system time, ticks.
    pub(super) cpu: u64,
    /// Since boot, ticks.
    pub(super) start: u64,
}

impl Times {
    /// From the file's text (proc(5)). The name in it may hold anything, also blanks and brackets.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut words = text.get(text.rfind(')')? + 1..)?.split_ascii_whitespace();
        // After the name the state is field 3, so utime (14) is the twelfth and starttime (22) the twentieth.
        let (user, system) = (words.nth(11)?.parse::<u64>().ok()?, words.next()?.parse::<u64>().ok()?);
        Some(Self { cpu: user.saturating_add(system), start: words.nth(6)?.parse().ok()? })
    }

    /// CPU time, ms.
    pub(super) fn cpu_ms(self) -> f64 {
        self.cpu as f64 * 1000.0 / procfs::ticks_per_second() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_counted_after_the_name() {
        let text = "7 (a) S 1) R 1 7 7 0 -1 4194304 95 0 0 0 120 30 0 0 20 0 1 0 98765 2703360 379 1844";
        assert_eq!(Times::parse(text), Some(Times { cpu: 150, start: 98_765 }));
        assert_eq!(Times::parse("7 (a) R 1 7"), None);
        assert_eq!(Times::parse(""), None);
        let own = std::fs::read_to_string("/proc/self/stat").unwrap();
        let theirs = procfs::process::Process::myself().unwrap().stat().unwrap();
        assert_eq!(Times::parse(&own).unwrap().start, theirs.starttime);
    }
}
