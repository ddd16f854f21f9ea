//! The measured requests of a level by the minute of the wall clock, for the time × concurrency map.
//!
//! Counts over the buckets of [`super::buckets`], so memory grows with time and not with requests.

use std::collections::BTreeMap;

use super::buckets::{bucket, edges};
use super::level::Slice;

/// A minute, ms.
const MINUTE: u64 = 60_000;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// TTFT.
    Ttft,
    /// ITL.
    Itl,
    /// TPOT.
    Tpot,
    /// E2E.
    E2e,
}

/// Counts by minute.
#[derive(Debug)]
pub struct Slices {
    epoch_unix_ms: u64,
    minutes: BTreeMap<u64, [Vec<u32>; 4]>,
}

impl Slices {
    /// Nothing yet; `epoch_unix_ms` is what micros 0 is in ms since the Unix epoch.
    pub const fn new(epoch_unix_ms: u64) -> Self {
        Self { epoch_unix_ms, minutes: BTreeMap::new() }
    }

    /// So many `seconds` were measured at the moment `at`, µs.
    pub fn add(&mut self, of: Of, at: u64, seconds: f64) {
        let minute = (self.epoch_unix_ms + at / 1000) / MINUTE;
        let counts = &mut self.minutes.entry(minute).or_default()[of as usize];
        if counts.is_empty() {
            counts.resize(edges().len() + 1, 0);
        }
        if let Some(count) = counts.get_mut(usize::from(bucket(seconds))) {
            *count = count.saturating_add(1);
        }
    }

    /// The pieces of the time between two moments, ms since the Unix epoch; a minute without a measurement has none.
    pub fn within(&self, from_unix_ms: u64, to_unix_ms: u64) -> Vec<Slice> {
        let slice = |(minute, counts): (&u64, &[Vec<u32>; 4])| {
            let from = (minute * MINUTE).max(from_unix_ms);
            let [ttft, itl, tpot, e2e] = counts.each_ref().map(|counts| sparse(counts));
            Slice {
                from_unix_ms: from,
                to_unix_ms: ((minute + 1) * MINUTE).min(to_unix_ms).max(from),
                ttft,
                itl,
                tpot,
                e2e,
            }
        };
        self.minutes.iter().map(slice).collect()
    }
}

fn sparse(counts: &[u32]) -> Vec<(u16, u32)> {
    (0..).zip(counts.iter().copied()).filter(|(_, count)| *count > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_ends_with_the_minute_of_the_wall_clock() {
        // Micros 0 is half a second before a minute is full.
        let epoch = 100 * MINUTE - 500;
        let mut slices = Slices::new(epoch);
        slices.add(Of::Ttft, 499_999, 0.25);
        slices.add(Of::Ttft, 499_999, 0.25);
        slices.add(Of::E2e, 500_000, 1e9);
        slices.add(Of::Itl, 500_000, 0.0);
        let got = slices.within(epoch, epoch + 2000);
        assert_eq!(got.len(), 2);
        assert_eq!((got[0].from_unix_ms, got[0].to_unix_ms), (epoch, 100 * MINUTE));
        assert_eq!((got[1].from_unix_ms, got[1].to_unix_ms), (100 * MINUTE, epoch + 2000));
        assert_eq!((got[0].ttft.as_slice(), got[0].e2e.as_slice()), ([(bucket(0.25), 2)].as_slice(), [].as_slice()));
        assert_eq!((got[1].e2e.as_slice(), got[1].itl.as_slice()), ([(220, 1)].as_slice(), [(0, 1)].as_slice()));
    }
}
