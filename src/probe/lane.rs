//! Copies between host and GPU: a block on either side with data in it, one way to go, and the proof that it arrived.
//!
//! It must not know what is measured with them. Invariants: no single copy takes more than 5 ms; what is copied is random
//! and the place it goes to is poisoned before.

use super::cuda::{Buffer, Gpu, HostBuffer, Lateness, RandomData, Stream, random};
use super::{Check, Failure};

/// What a place holds that nothing was copied to.
const POISON: u8 = 0xff;
/// Longest that a single copy may take, µs; a copy of 5 ms is the most that a probe may do.
const COPY_US: f64 = 3_500.0;
/// First copy of a trial, bytes: 5 ms on the slowest link there is (one lane of the first generation).
const TRIAL: u64 = 1 << 20;

/// Which way data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// From the host to the GPU.
    ToDevice,
    /// From the GPU to the host.
    ToHost,
}

impl Way {
    pub(super) const BOTH: [Self; 2] = [Self::ToDevice, Self::ToHost];

    /// Its name in figures.
    pub(super) const fn id(self) -> &'static str {
        match self {
            Self::ToDevice => "h2d",
            Self::ToHost => "d2h",
        }
    }

    /// Its name for people.
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::ToDevice => "Host to GPU",
            Self::ToHost => "GPU to host",
        }
    }
}

/// A block on the host, one on the GPU, and a stream that copies from one to the other.
pub(super) struct Lane<'a> {
    gpu: &'a Gpu,
    way: Way,
    stream: Stream,
    device: Buffer,
    host: HostBuffer,
    random: RandomData,
    lateness: Lateness,
}

/// What a pass took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timed {
    /// What is measured, µs.
    pub(super) us: f64,
    /// What kept the copy engine busy, the copy before included, µs.
    pub(super) busy_us: f64,
}

impl<'a> Lane<'a> {
    /// Fills one side of it with data and poisons the other. The host's side lies where the caller took it.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn new(gpu: &'a Gpu, way: Way, host: HostBuffer) -> Result<Self, Failure> {
        let device = gpu.buffer(host.bytes())?;
        let (stream, random) = (gpu.another_stream()?, gpu.random_data()?);
        let mut lane = Self { gpu, way, stream, device, host, random, lateness: Lateness::default() };
        match way {
            Way::ToDevice => lane.write_host()?,
            Way::ToHost => lane.random.fill_words(&lane.stream, &lane.device, lane.seed())?,
        }
        lane.poison()?;
        Ok(lane)
    }

    /// Bytes of either side.
    pub(super) const fn bytes(&self) -> u64 {
        self.host.bytes()
    }

    /// Where it goes.
    pub(super) const fn way(&self) -> Way {
        self.way
    }

    /// Its stream.
    pub(super) const fn stream(&self) -> &Stream {
        &self.stream
    }

    /// The two ways carry different data.
    const fn seed(&self) -> u64 {
        self.way as u64 + 0x1a9e
    }

    fn write_host(&mut self) -> Result<(), Failure> {
        let seed = self.seed();
        for (i, word) in self.host.content()?.chunks_exact_mut(8).enumerate() {
            word.copy_from_slice(&random(i as u64, seed).to_le_bytes());
        }
        Ok(())
    }

    /// Poisons the side that is copied to.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn poison(&mut self) -> Result<(), Failure> {
        match self.way {
            Way::ToDevice => self.stream.fill(&self.device, POISON)?,
            Way::ToHost => self.host.content()?.fill(POISON),
        }
        self.gpu.finish()
    }

    /// Gives the copy of `bytes` at `at` to the stream.
    ///
    /// # Errors
    /// When it is not within the blocks, or the driver's.
    pub(super) fn give(&self, at: u64, bytes: u64) -> Result<(), Failure> {
        match self.way {
            Way::ToDevice => self.stream.to_device((&self.device, at), (&self.host, at), bytes),
            Way::ToHost => self.stream.to_host((&self.host, at), (&self.device, at), bytes),
        }
    }

    /// Largest copy, a power of two bytes and no more than `most`, that takes less than 5 ms.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn piece(&self, most: u64) -> Result<u64, Failure> {
        let mut bytes = TRIAL.min(most);
        loop {
            let mut us = f64::INFINITY;
            for _ in 0..2 {
                us = us.min(self.stream.time(|_| self.give(0, bytes))?);
            }
            let next = next_piece(bytes, us, most);
            if next <= bytes {
                return Ok(bytes);
            }
            bytes = next;
        }
    }

    /// Copies `count` times from place to place and times it on the device. A copy before keeps the engine busy until
    /// all of it has been given, so that the host's calls are no part of it. `meanwhile` is called while data flows.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn pass(&self, before: u64, bytes: u64, count: u64, meanwhile: impl FnOnce()) -> Result<Timed, Failure> {
        let zero = self.stream.mark()?;
        self.give(0, before)?;
        let places = (self.bytes() / bytes).max(1);
        let queued = self.stream.queue(|_| (0..count).try_for_each(|i| self.give(i % places * bytes, bytes)))?;
        self.lateness.count(queued.late);
        meanwhile();
        Ok(Timed { us: queued.us()?, busy_us: queued.end.us_since(&zero)? })
    }

    /// Whether calls of the host were part of more than a tenth of what was timed since this was asked last.
    pub(super) fn was_late(&self) -> bool {
        self.lateness.take()
    }

    /// Compares the first `bytes` of what arrived with what was sent, computed anew.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn check(&mut self, what: &str, bytes: u64) -> Result<Check, Failure> {
        let (words, seed) = (bytes.min(self.bytes()) / 8, self.seed());
        let wrong = match self.way {
            Way::ToDevice => {
                let count = self.gpu.buffer(8)?;
                self.random.wrong_words(&self.stream, &self.device, words * 8, seed, &count)?
            }
            Way::ToHost => {
                let found = self.host.content()?.chunks_exact(8).take(usize::try_from(words).unwrap_or(usize::MAX));
                let is_wrong = |&(i, word): &(usize, &[u8])| word != random(i as u64, seed).to_le_bytes();
                found.enumerate().filter(is_wrong).count() as u64
            }
        };
        let detail = if wrong == 0 { String::new() } else { format!("{wrong} of {words} words differ") };
        Ok(Check { what: what.to_owned(), passed: wrong == 0, detail })
    }

    /// Copies `bytes` onto poison and compares them, and the word behind them, which nothing may touch.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn check_small(&mut self, bytes: u64) -> Result<Check, Failure> {
        self.poison()?;
        self.give(0, bytes)?;
        let seen = usize::try_from(bytes.min(self.bytes() - 8)).unwrap_or(0) + 8;
        // Whole words; the last one may be more than is looked at.
        let mut sent = vec![0; seen.next_multiple_of(8)];
        let mut found = vec![0; seen];
        for (i, word) in sent.chunks_exact_mut(8).enumerate() {
            word.copy_from_slice(&random(i as u64, self.seed()).to_le_bytes());
        }
        sent[seen - 8..seen].fill(POISON);
        match self.way {
            Way::ToDevice => self.device.read(0, &mut found)?,
            Way::ToHost => found.copy_from_slice(&self.host.content()?[..seen]),
        }
        let wrong = found.iter().zip(&sent).filter(|(found, sent)| found != sent).count();
        let detail = if wrong == 0 { String::new() } else { format!("{wrong} of {seen} bytes differ") };
        let what = format!("{}: a copy of {bytes} bytes, and nothing behind it", self.way.words());
        Ok(Check { what, passed: wrong == 0, detail })
    }
}

/// The next size to try after `bytes` took `us`: a power of two that ought to stay below the bound. Not more than `bytes`
/// when there is nothing better to try.
fn next_piece(bytes: u64, us: f64, most: u64) -> u64 {
    // Small copies are mostly latency: from a slow one to a large size is a long way, so it is gone in steps.
    let mut next = bytes;
    while next * 2 <= most && next < bytes * 8 && us * (next * 2) as f64 / bytes as f64 <= COPY_US {
        next *= 2;
    }
    next
}

/// Bytes a µs that each of two streams moved while both did. Each list holds the times at which a stream began and at
/// which each of its copies of `bytes` was done, µs. Where they did not overlap, over the whole.
pub(super) fn overlap(a: &[f64], b: &[f64], bytes: f64) -> [f64; 2] {
    let ends = |times: &[f64]| (times.first().copied().unwrap_or(0.0), times.last().copied().unwrap_or(0.0));
    let ((a0, a1), (b0, b1)) = (ends(a), ends(b));
    let mut span = (a0.max(b0), a1.min(b1));
    if span.1 <= span.0 {
        span = (a0.min(b0), a1.max(b1));
    }
    [a, b].map(|times| (done(times, span.1) - done(times, span.0)) * bytes / (span.1 - span.0).max(f64::EPSILON))
}

/// Copies that were done at `at`, a part of the one under way included.
fn done(times: &[f64], at: f64) -> f64 {
    let part = |pair: &[f64]| ((at - pair[0]) / (pair[1] - pair[0]).max(f64::EPSILON)).clamp(0.0, 1.0);
    times.windows(2).map(part).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_grows_as_far_as_five_ms_allow() {
        const MIB: u64 = 1 << 20;
        // 55 GB/s: 19 µs a MiB. In steps of eight up to what was asked for.
        assert_eq!(next_piece(MIB, 30.0, 64 * MIB), 8 * MIB);
        assert_eq!(next_piece(8 * MIB, 153.0, 64 * MIB), 64 * MIB);
        assert_eq!(next_piece(64 * MIB, 1_220.0, 64 * MIB), 64 * MIB);
        // 0.25 GB/s, a lane of the first generation: 4.2 ms a MiB.
        assert_eq!(next_piece(MIB, 4_200.0, 64 * MIB), MIB);
        // 3.5 GB/s: 8 MiB take 2.4 ms, 16 MiB would take 4.8.
        assert_eq!(next_piece(MIB, 300.0, 64 * MIB), 8 * MIB);
        assert_eq!(next_piece(8 * MIB, 2_400.0, 64 * MIB), 8 * MIB);
    }

    #[test]
    fn only_the_time_in_which_both_move_counts() {
        // a copies from 0 to 40, b from 10 to 30, 20 a copy: both move from 10 to 30, a alone before and after.
        let [a, b] = overlap(&[0.0, 10.0, 30.0, 40.0], &[10.0, 30.0], 1000.0);
        assert!((a - 50.0).abs() < 1e-9 && (b - 50.0).abs() < 1e-9, "{a} {b}");
        // Half of a copy counts as half.
        let [a, b] = overlap(&[0.0, 20.0], &[10.0, 20.0, 30.0], 1000.0);
        assert!((a - 50.0).abs() < 1e-9 && (b - 100.0).abs() < 1e-9, "{a} {b}");
        // One after the other: each moved 1000 in the 20 µs of both.
        let [a, b] = overlap(&[0.0, 10.0], &[10.0, 20.0], 1000.0);
        assert!((a - 50.0).abs() < 1e-9 && (b - 50.0).abs() < 1e-9, "{a} {b}");
    }
}
