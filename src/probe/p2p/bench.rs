//! What GPUs are given to do: copies to each other one way and both ways, and chains of loads across.
//!
//! It must not know what the times mean. Invariants: no copy and no kernel takes more than 5 ms; what is copied is random,
//! and where it goes is poisoned before, so that it can be checked.

use crate::probe::Failure;
use crate::probe::cuda::{Arg, Buffer, Gpu, Grid, Kernel, Lateness, Module, RandomData, random};

const KERNELS: &str = include_str!("../../../assets/kernels/p2p.ptx");
/// What a place holds that nothing was copied to.
const POISON: u8 = 0xff;
/// Longest that one copy or kernel may take, µs; with 5 ms a probe has reached its limit.
const PIECE_US: f64 = 3_000.0;
/// How long a pass should take, µs.
const PASS_US: f64 = 3_000.0;
/// Seeds of the GPUs' data lie this far apart.
const APART: u64 = 1 << 40;
/// Small copies of a pass.
const SMALL_COPIES: u32 = 100;
/// How long a GPU is kept waiting while it is given those, µs.
const DELAY_US: f64 = 1_000.0;
/// The chain: 2 MiB, one word in each line of 128 bytes.
const CHAIN_WORDS: u64 = 1 << 18;
const LINE_WORDS: u64 = 16;
/// Where small copies go, bytes: behind the chain.
const SMALL_AT: u64 = 4 << 20;

/// GPUs, each with data to send and a place to receive.
pub(super) struct Bench<'a> {
    pub(super) gpus: &'a [Gpu],
    pub(super) units: Vec<Unit>,
    /// Size of a block, bytes.
    pub(super) bytes: u64,
    /// Of small copies.
    lateness: Lateness,
}

/// What belongs to one GPU.
pub(super) struct Unit {
    /// Data to send.
    pub(super) out: Buffer,
    /// Where data arrives.
    pub(super) inbox: Buffer,
    /// One word: a count of what is wrong, or where a chain ended.
    word: Buffer,
    random: RandomData,
    own: Module,
    chase: Kernel,
    /// Threads that keep it busy.
    grid: Grid,
    /// Loads of its own chain that take [`DELAY_US`].
    delay: u32,
}

/// Copies of a pass: each of so many bytes, so many of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Copies {
    pub(super) bytes: u64,
    pub(super) count: u32,
}

impl Copies {
    /// As many as take about as long as a pass should, none longer than it may, when `bytes` took `us`.
    fn for_rate(bytes: u64, us: f64, most: u64) -> Self {
        let per_us = bytes as f64 / us.max(0.1);
        let piece = ((per_us * PIECE_US) as u64).min(most).max(1 << 20) >> 20 << 20;
        let count = (PASS_US / (piece as f64 / per_us)).round().clamp(1.0, 64.0) as u32;
        Self { bytes: piece, count }
    }

    /// All of them.
    pub(super) fn total(self) -> f64 {
        (self.bytes * u64::from(self.count)) as f64
    }
}

impl<'a> Bench<'a> {
    pub(super) fn new(gpus: &'a [Gpu], bytes: u64) -> Result<Self, Failure> {
        let units = gpus.iter().map(|gpu| Unit::new(gpu, bytes)).collect::<Result<Vec<_>, _>>()?;
        let bench = Self { gpus, units, bytes, lateness: Lateness::default() };
        for (place, (gpu, unit)) in gpus.iter().zip(&bench.units).enumerate() {
            unit.random.fill_words(&gpu.stream, &unit.out, seed(place))?;
            gpu.finish()?;
        }
        Ok(bench)
    }

    /// Waits for every GPU.
    pub(super) fn finish(&self) -> Result<(), Failure> {
        self.gpus.iter().try_for_each(Gpu::finish)
    }

    /// Poisons where data arrives.
    pub(super) fn poison(&self, place: usize) -> Result<(), Failure> {
        self.gpus[place].stream.fill(&self.units[place].inbox, POISON)?;
        self.gpus[place].finish()
    }

    /// How many copies make a pass from one GPU to another.
    pub(super) fn trial(&self, from: usize, to: usize) -> Result<Copies, Failure> {
        let mut copies = Copies { bytes: 1 << 20, count: 1 };
        // Small ones tell too low a rate, so the next are not too large; the first pays for setting up the way.
        for _ in 0..4 {
            let us = self.one_way(from, to, copies)?;
            copies = Copies::for_rate(copies.bytes * u64::from(copies.count), us, self.bytes);
        }
        Ok(copies)
    }

    fn give(&self, from: usize, to: usize, copies: Copies) -> Result<(), Failure> {
        let (source, target) = (&self.units[from].out, &self.units[to].inbox);
        let stream = &self.gpus[from].stream;
        (0..copies.count).try_for_each(|_| stream.copy_across((target, 0), (source, 0), copies.bytes))
    }

    /// Copies one way; µs.
    pub(super) fn one_way(&self, from: usize, to: usize, copies: Copies) -> Result<f64, Failure> {
        self.gpus[from].stream.time(|_| self.give(from, to, copies))
    }

    /// Copies both ways at once, from when both may begin until both are done; µs.
    pub(super) fn both_ways(&self, a: usize, b: usize, copies: Copies) -> Result<f64, Failure> {
        let (here, there) = (&self.gpus[a].stream, &self.gpus[b].stream);
        here.time(|here| {
            there.after(&here.mark()?)?;
            self.give(b, a, copies)?;
            self.give(a, b, copies)?;
            here.after(&there.mark()?)
        })
        .and_then(|us| there.finish().map(|()| us))
    }

    /// How many words that arrived are not those that the other sent.
    pub(super) fn wrong_words(&self, from: usize, to: usize, bytes: u64) -> Result<u64, Failure> {
        let (gpu, unit) = (&self.gpus[to], &self.units[to]);
        unit.random.wrong_words(&gpu.stream, &unit.inbox, bytes, seed(from), &unit.word)
    }

    /// Puts a chain where data arrives, on each GPU; returns it.
    pub(super) fn lay_chains(&mut self) -> Result<Vec<u64>, Failure> {
        let chain = chain();
        let bytes: Vec<u8> = chain.iter().flat_map(|word| word.to_le_bytes()).collect();
        for unit in &self.units {
            unit.inbox.write(0, &bytes)?;
        }
        // The last part of such a write may still be on its way when the call returns.
        self.finish()?;
        for place in 0..self.units.len() {
            let loads = self.loads_for(place, place, DELAY_US)?;
            self.units[place].delay = loads;
        }
        Ok(chain)
    }

    /// Loads that take about so long, µs.
    pub(super) fn loads_for(&self, from: usize, to: usize, us: f64) -> Result<u32, Failure> {
        let mut loads = 64;
        for _ in 0..2 {
            let took = self.chase(from, to, loads)?;
            loads = (f64::from(loads) * us / took.max(1.0)).clamp(64.0, 1e5) as u32;
        }
        Ok(loads)
    }

    /// Follows the chain on GPU `to` from GPU `from`; µs.
    pub(super) fn chase(&self, from: usize, to: usize, loads: u32) -> Result<f64, Failure> {
        self.gpus[from].stream.time(|_| self.give_chase(from, to, loads))
    }

    fn give_chase(&self, from: usize, to: usize, loads: u32) -> Result<(), Failure> {
        let (unit, chain) = (&self.units[from], &self.units[to].inbox);
        let args = [chain.into(), Arg::U64(CHAIN_WORDS), Arg::U32(loads), (&unit.word).into()];
        self.gpus[from].stream.launch(&unit.chase, Grid::new(1, 1), &args)
    }

    /// Where the last chain that this GPU followed ended.
    pub(super) fn end_of_chase(&self, place: usize) -> Result<u64, Failure> {
        self.units[place].word.word(0)
    }

    /// Copies of 4 bytes, each after the one before, given while the GPU still waits; [`Self::was_late`] tells when that
    /// did not work. What one took, and all of it, µs.
    pub(super) fn small(&self, from: usize, to: usize) -> Result<(f64, f64), Failure> {
        let (source, target) = (&self.units[from].out, &self.units[to].inbox);
        let stream = &self.gpus[from].stream;
        self.give_chase(from, from, self.units[from].delay)?;
        let queued = stream.queue(|stream| {
            (0..SMALL_COPIES).try_for_each(|_| stream.copy_across((target, SMALL_AT), (source, SMALL_AT), 4))
        })?;
        self.lateness.count(queued.late);
        let us = queued.us()?;
        Ok((us / f64::from(SMALL_COPIES), us + DELAY_US))
    }

    /// Whether calls of the host were part of more than a tenth of the small copies since this was asked last.
    pub(super) fn was_late(&self) -> bool {
        self.lateness.take()
    }

    /// Fills what is sent with whole numbers as floats, and poisons where the sum goes.
    pub(super) fn fill_whole(&self, numbers: u64) -> Result<(), Failure> {
        for (place, (gpu, unit)) in self.gpus.iter().zip(&self.units).enumerate() {
            let args = [(&unit.out).into(), Arg::U64(numbers), Arg::U64(seed(place))];
            gpu.stream.launch(&unit.own.kernel("fill_whole")?, unit.grid, &args)?;
            gpu.stream.fill(&unit.inbox, POISON)?;
        }
        self.finish()
    }

    /// How many sums on any GPU are not those of the numbers that went in.
    pub(super) fn wrong_sums(&self, numbers: u64) -> Result<u64, Failure> {
        let mut wrong = 0;
        for (gpu, unit) in self.gpus.iter().zip(&self.units) {
            gpu.stream.fill(&unit.word, 0)?;
            let seeds = u32::try_from(self.gpus.len()).unwrap_or(u32::MAX);
            let args = [
                (&unit.inbox).into(),
                Arg::U64(numbers),
                Arg::U64(seed(0)),
                Arg::U64(APART),
                Arg::U32(seeds),
                (&unit.word).into(),
            ];
            gpu.stream.launch(&unit.own.kernel("count_wrong_sums")?, unit.grid, &args)?;
            wrong += unit.word.word(0)?;
        }
        Ok(wrong)
    }

    /// The sum at `i` as the first GPU has it, and as the host computes it.
    pub(super) fn sum_at(&self, i: u64) -> Result<(f32, f32), Failure> {
        let mut bytes = [0; 4];
        self.units[0].inbox.read(i * 4, &mut bytes)?;
        let sum: u64 = (0..self.gpus.len()).map(|place| random(i, seed(place)) & 4095).sum();
        Ok((f32::from_le_bytes(bytes), sum as f32))
    }
}

impl Unit {
    fn new(gpu: &Gpu, bytes: u64) -> Result<Self, Failure> {
        let (random, own) = (gpu.random_data()?, gpu.module(KERNELS)?);
        Ok(Self {
            out: gpu.buffer(bytes)?,
            inbox: gpu.buffer(bytes)?,
            word: gpu.buffer(8)?,
            chase: own.kernel("chase")?,
            random,
            own,
            grid: Grid::new(gpu.sms()? * 8, 256),
            delay: 64,
        })
    }
}

/// The seed of a GPU's data.
const fn seed(place: usize) -> u64 {
    (place as u64 + 1) * APART
}

/// A chain through every line of the block once, in an order that no prefetcher guesses (Sattolo's shuffle).
fn chain() -> Vec<u64> {
    let lines = CHAIN_WORDS / LINE_WORDS;
    let mut order: Vec<u64> = (0..lines).collect();
    for i in (1..lines).rev() {
        // Of what comes before, never itself: that makes one ring of all.
        order.swap(i as usize, (random(i, 7) % i) as usize);
    }
    let mut words = vec![0; CHAIN_WORDS as usize];
    for (line, next) in (0..lines).zip(order) {
        words[(line * LINE_WORDS) as usize] = next * LINE_WORDS;
    }
    words
}

/// Where a chain ends after so many loads.
pub(super) fn follow(chain: &[u64], loads: u32) -> u64 {
    (0..loads).fold(0, |at, _| chain.get(at as usize).copied().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chain_goes_through_every_line_once() {
        let chain = chain();
        let lines = (CHAIN_WORDS / LINE_WORDS) as u32;
        let mut seen = vec![false; chain.len()];
        let mut at = 0_u64;
        for _ in 0..lines {
            assert!(!seen[at as usize], "comes back early");
            seen[at as usize] = true;
            at = chain[at as usize];
        }
        assert_eq!((at, follow(&chain, lines), follow(&chain, 0)), (0, 0, 0));
        assert_eq!(seen.iter().filter(|seen| **seen).count() as u32, lines);
    }

    #[test]
    fn copies_fit_into_their_time() {
        // 380 GB/s: 1 MiB in 2.76 µs.
        let fast = Copies::for_rate(1 << 20, 2.76, 512 << 20);
        assert_eq!((fast.bytes, fast.count), (512 << 20, 2), "as large as the block, and again");
        // 10 GB/s: 3 ms are 30 MB.
        let slow = Copies::for_rate(1 << 20, 104.9, 512 << 20);
        assert_eq!((slow.bytes >> 20, slow.count), (28, 1));
        // Slower than anything: still a whole MiB.
        assert_eq!(Copies::for_rate(1 << 20, 1e6, 512 << 20), Copies { bytes: 1 << 20, count: 1 });
    }
}
