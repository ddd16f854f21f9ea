//! Bursts of page faults that read from disk, as long contexts can set off on a host short of memory.
//!
//! It must not know what was paged in. Invariant: a lone fault on a quiet host is no burst, however
//! far it stands out.

use std::borrow::Cow;

use crate::model::{Metric, Subject};
use crate::store::{Bin, Data, Window};

use super::{Detector, Finding, Level};

pub(super) const DETECTOR: Detector = Detector {
    id: "page_faults",
    help: "Major page faults of the host in the last 20 s. Watch for a burst: one column far above the rest and at least \
           50 a second; act from a mean of 100 a second.",
    judge,
};

/// 20 readings make a verdict; a column is one reading of the host.
const COLUMNS: usize = 20;
const COLUMN_MS: u64 = 1000;
/// Standard deviation over mean above which faults come in a burst.
const BURST: f64 = 2.5;
/// A burst has at least this many a second: a lone fault also passes the test above.
const FLOOR: f64 = 50.0;
/// A mean from which threads wait for the disk all the time, per second.
const CONSTANT: f64 = 100.0;

const ADVICE: &str = "Memory that was dropped or swapped out is read back from disk: see which process faults, give the \
                      host more memory or the server less to map, and keep swap off its pages.";

fn judge(data: &Data, window: Window) -> Vec<Finding> {
    let mut columns = [Bin::default(); COLUMNS];
    let last = Window::last(window.end, COLUMNS as u64 * COLUMN_MS);
    data.fill(Subject::Host, Metric::MajorFaults, last, &mut columns);
    let rates = || columns.iter().filter_map(Bin::mean).map(f64::from);
    let n = rates().count();
    if n == 0 {
        return Vec::new();
    }
    let mean = rates().sum::<f64>() / n as f64;
    let deviation = (rates().map(|rate| (rate - mean).powi(2)).sum::<f64>() / n as f64).sqrt();
    let peak = rates().fold(0.0, f64::max);
    let level = if mean >= CONSTANT {
        Level::Act
    } else if peak >= FLOOR && deviation > BURST * mean {
        Level::Watch
    } else {
        Level::Ok
    };
    let evidence = format!("major faults: {mean:.1} a second, peak {peak:.0}, in the last {n} s");
    vec![Finding { level, label: String::new(), evidence, advice: Cow::Borrowed(ADVICE) }]
}
