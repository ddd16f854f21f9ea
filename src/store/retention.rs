//! How much the store keeps, and how much memory that takes at most.
//!
//! Invariant: the bounds count everything that [`super::Data`] holds; a test takes the worst that the limits permit.

use crate::model::{Domain, FactKey, GpuProcess, Kind, Metric, ProcessSample, ThreadSample, limits};

use super::runs::MAX_RUNS;
use super::sources::{MAX_READS, MAX_STATES, STATE_BYTES};
use super::{MAX_RESETS, MAX_TEXTS, ProcessRow, Run, TEXTS_BYTES, ThreadRow};

/// How much is kept.
#[derive(Clone, Copy, Debug)]
pub struct Retention {
    /// Full rate, ms.
    pub full_ms: u32,
    /// Points of a series at full rate, at most.
    pub max_points: usize,
    /// Scrapes of a histogram at full rate, at most.
    pub max_scrapes: usize,
    /// Number of rolled-up intervals.
    pub minutes: u32,
    /// Bytes of all process tables together, at most; the newest one stays in any case.
    pub process_bytes: usize,
}

/// Series that a subject of this domain can have.
const fn series(of: Domain) -> usize {
    let (mut i, mut count) = (0, 0);
    while i < Metric::ALL.len() {
        let metric = Metric::ALL[i];
        count += (metric.domain() as u8 == of as u8 && metric.kind() as u8 != Kind::Histogram as u8) as usize;
        i += 1;
    }
    count
}

/// Sources besides the engines.
const OTHER_SOURCES: usize = 8;
/// Bytes of a point, of a minute, and of the time of a read.
const POINT: usize = 8;
const MINUTE: usize = 20;
const READ: usize = 16;

/// A ring grows by half when it is full, so it holds at most 1.5 times what it needs.
const fn ring(bytes: usize) -> usize {
    bytes * 3 / 2
}

/// A text with what counts its owners.
const fn text(bytes: usize) -> usize {
    bytes + 2 * size_of::<usize>()
}

/// Series of the machine, of warptop, and of so many GPUs and engines.
const fn all_series(gpus: usize, engines: usize) -> usize {
    let machine = series(Domain::Host) + series(Domain::App);
    machine + gpus * series(Domain::Gpu) + engines * series(Domain::Engine)
}

impl Retention {
    /// Length of a rolled-up interval, ms.
    pub const MINUTE_MS: u32 = 60_000;

    /// One hour at up to 10 readings a second, then a day of minutes.
    pub const HOUR: Self =
        Self { full_ms: 3_600_000, max_points: 36_000, max_scrapes: 3_600, minutes: 1_440, process_bytes: 10_000_000 };

    /// Upper bound of the memory the histories take, in bytes, when fast metrics are read every `interval_ms`, for this
    /// many GPUs and engines, scraped once a second, each with as many buckets as an engine may have.
    pub const fn most_bytes(&self, interval_ms: u32, gpus: usize, engines: usize) -> usize {
        /// Of a GPU's metrics, those read every interval; the others are read once a second or less.
        const FAST: usize = 16;
        let fast = (self.full_ms / interval_ms) as usize;
        let fast = if fast < self.max_points { fast } else { self.max_points };
        let slow = (self.full_ms / 1000) as usize;
        let of_gpu = FAST * fast + (series(Domain::Gpu) - FAST) * slow;
        let others = series(Domain::Host) + series(Domain::App) + engines * series(Domain::Engine);
        // When each source was read: the driver in two classes, engines and the rest once a second.
        let reads = fast + slow * (engines + OTHER_SOURCES);
        ring((gpus * of_gpu + others * slow) * POINT + reads * READ) + self.at_any_rate(gpus, engines)
    }

    /// Upper bound of the same whatever comes in and however fast, as a recording may have it.
    pub const fn worst_bytes(&self, gpus: usize, engines: usize) -> usize {
        let reads = MAX_READS * (engines + OTHER_SOURCES);
        ring(all_series(gpus, engines) * self.max_points * POINT + reads * READ) + self.at_any_rate(gpus, engines)
    }

    /// What takes as much however often it is read.
    const fn at_any_rate(&self, gpus: usize, engines: usize) -> usize {
        /// A series without its points, in a table that may be half empty.
        const SERIES: usize = 512;
        let minutes = self.minutes as usize;
        let all = all_series(gpus, engines);
        // Of ten histograms, the intervals without their buckets, and the buckets. Old ones go a sixteenth at a time.
        let intervals = (self.max_scrapes + minutes) * 17 / 16;
        let histograms = ring(intervals * (limits::ENGINE_BUCKETS * 4 + 10 * 24));
        // A text and its moment; keys of facts, the last of which is `Origin`.
        let facts = (FactKey::Origin as usize + 1) * (TEXTS_BYTES + text(limits::TEXT_BYTES) + MAX_TEXTS * 64);
        let subjects = 2 + gpus + engines;
        let sources = (OTHER_SOURCES + engines) * (STATE_BYTES + text(limits::TEXT_BYTES) + MAX_STATES * 64);
        let events = MAX_RUNS * (size_of::<Run>() + 3 * text(limits::TEXT_BYTES)) + MAX_RESETS * 32;
        all * (ring(minutes * MINUTE) + SERIES)
            + engines * histograms
            + subjects * facts
            + sources
            + events
            + self.process_bytes
            + newest_processes()
    }
}

/// The newest table of processes, the reading that it was made of, and that which comes in.
const fn newest_processes() -> usize {
    let texts = (3 + limits::ROW_THREADS) * text(limits::TEXT_BYTES);
    let lists = 2 * limits::GPUS * 24 + limits::ROW_THREADS * (size_of::<ThreadRow>() + size_of::<ThreadSample>());
    let row = size_of::<ProcessRow>() + size_of::<ProcessSample>() + 64 + texts + lists;
    3 * limits::PROCESS_ROWS * row + 2 * limits::ALL_GPU_PROCESSES * size_of::<GpuProcess>()
}
