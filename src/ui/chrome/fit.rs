//! Notices in the rows that they are given: each source has its say, and what is cut is marked.

use std::fmt::Write as _;

use super::super::text::{prefix, width, wrapped_rows};

/// What stands between the notices of two sources.
pub(super) const BETWEEN: &str = " · ";
/// A notice is cut to no less than this, columns, before others are left out.
const LEAST: u16 = 30;

/// `text` in `rows` rows of `columns`: the longest of its notices are cut first, with `…` at their end; where even that is not
/// enough those at the end are left out and counted.
pub(super) fn fit(text: &str, columns: u16, rows: u16) -> String {
    let fits = |text: &str| wrapped_rows(text, columns) <= rows;
    if fits(text) || rows == 0 {
        return text.to_owned();
    }
    let notices: Vec<_> = text.split(BETWEEN).collect();
    for shown in (1..=notices.len()).rev() {
        let (most, left_out) = (notices.iter().map(|notice| width(notice)).max().unwrap_or(0), notices.len() - shown);
        let at = |most| {
            let mut text = notices[..shown].iter().map(|notice| cut(notice, most)).collect::<Vec<_>>().join(BETWEEN);
            if left_out > 0 {
                let _ = write!(text, "{BETWEEN}{left_out} more (L)");
            }
            text
        };
        if shown > 1 && !fits(&at(LEAST)) {
            continue;
        }
        // The longest that fits, found by halves.
        let (mut low, mut high) = (1, most);
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            if fits(&at(middle)) { low = middle } else { high = middle - 1 }
        }
        return at(low);
    }
    String::new()
}

/// The begin of `text` in `columns`, with `…` where something is cut.
fn cut(text: &str, columns: u16) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    format!("{}…", prefix(text, columns.saturating_sub(1)).trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fault: terminal: more is wrong than the screen has rows for
    /// Seen: the begin of what each source says, `…` where it is cut, and `more (L)` for what is left out
    /// Works: everything; the log (`L`) has all of it
    /// Recovers: on a larger screen
    #[test]
    fn each_source_is_heard_and_what_is_cut_is_marked() {
        let long = format!("GPUs 0 to 7: {}", "word ".repeat(100));
        let text = [long.trim(), "8000: does not answer", "host: no figures"].join(BETWEEN);
        assert_eq!(fit(&text, 1000, 4), text, "all of it where there is room");
        let short = fit(&text, 80, 5);
        assert!(wrapped_rows(&short, 80) <= 5 && wrapped_rows(&short, 80) > 3, "{short}");
        assert!(short.starts_with("GPUs 0 to 7: word") && short.contains("…"), "{short}");
        assert!(short.contains("8000: does not answer") && short.contains("host: no figures"), "{short}");
        let many = vec![long.trim(); 20].join(BETWEEN);
        let short = fit(&many, 80, 5);
        assert!(wrapped_rows(&short, 80) <= 5 && short.ends_with("more (L)"), "{short}");
        let alone = fit(long.trim(), 20, 1);
        assert!(wrapped_rows(&alone, 20) == 1 && alone.ends_with('…'), "{alone}");
    }
}
