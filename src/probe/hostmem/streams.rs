//! Arrays that threads of one node stream through, each its own part.
//!
//! Invariants: a thread runs on its CPU from before it touches its memory; a pass is timed from the moment
//! that all threads are ready to the moment that all are done.
#![expect(unsafe_code, reason = "stores past the caches exist as intrinsics on raw pointers only")]

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;

use crate::probe::{Check, Failure, Link};

/// How results are stored, in words.
#[cfg(target_arch = "x86_64")]
pub(super) const STORES: &str = "stores past the caches (movntpd)";
/// How results are stored, in words.
#[cfg(not(target_arch = "x86_64"))]
pub(super) const STORES: &str = "ordinary stores: lines that are read to be overwritten are not counted";

/// Elements of a line.
const WIDTH: usize = 8;
/// Values are below this: their sums are exact in an f64.
const VALUES: u64 = 1 << 16;
const SCALE: f64 = 3.0;

/// A cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Line([f64; WIDTH]);

/// What a pass does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kernel {
    /// Adds up b.
    Read,
    /// Fills a.
    Write,
    /// a = b.
    Copy,
    /// a = b + 3 c.
    Triad,
}

/// Told instead of a kernel: it is over.
const END: u8 = u8::MAX;

impl Kernel {
    pub(super) const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Copy, Self::Triad];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Copy => "copy",
            Self::Triad => "triad",
        }
    }

    /// As STREAM counts.
    pub(super) const fn bytes_per_element(self) -> usize {
        match self {
            Self::Read | Self::Write => 8,
            Self::Copy => 16,
            Self::Triad => 24,
        }
    }
}

/// The threads of a node with their arrays.
pub(super) struct Streams {
    threads: Vec<JoinHandle<[bool; 4]>>,
    todo: Arc<AtomicU8>,
    barrier: Arc<Barrier>,
    elements: usize,
}

impl Streams {
    /// One thread on each of these CPUs; three arrays of `bytes` together.
    pub(super) fn new(cpus: &[usize], bytes: usize) -> Self {
        let lines = (bytes / size_of::<Line>() / cpus.len().max(1)).max(1);
        let (todo, barrier) = (Arc::new(AtomicU8::new(END)), Arc::new(Barrier::new(cpus.len() + 1)));
        let start = |(place, &cpu): (usize, &usize)| {
            let (todo, barrier) = (Arc::clone(&todo), Arc::clone(&barrier));
            std::thread::spawn(move || work(cpu, place as u64, lines, &todo, &barrier))
        };
        let threads = cpus.iter().enumerate().map(start).collect();
        let elements = lines * WIDTH * cpus.len();
        // All memory is touched when the threads come here for the first time.
        barrier.wait();
        Self { threads, todo, barrier, elements }
    }

    /// Elements of each array.
    pub(super) const fn elements(&self) -> usize {
        self.elements
    }

    /// One pass over all of it; how long it took, µs.
    pub(super) fn pass(&self, kernel: Kernel, link: &Link) -> Result<u64, Failure> {
        link.check()?;
        self.todo.store(kernel as u8, Ordering::Release);
        self.barrier.wait();
        let began = link.micros();
        self.barrier.wait();
        Ok(link.micros().saturating_sub(began))
    }

    /// Ends the threads and says whether what they computed was right.
    pub(super) fn finish(mut self) -> Vec<Check> {
        let threads = std::mem::take(&mut self.threads);
        self.todo.store(END, Ordering::Release);
        self.barrier.wait();
        // A thread that panicked computed nothing right.
        let results: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap_or([false; 4])).collect();
        let check = |kernel: Kernel| {
            let wrong = results.iter().filter(|right| !right[kernel as usize]).count();
            let detail = if wrong > 0 { format!("in {wrong} of {} threads", results.len()) } else { String::new() };
            Check { what: format!("every element of {}", kernel.name()), passed: wrong == 0, detail }
        };
        Kernel::ALL.map(check).into()
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        if !self.threads.is_empty() {
            self.todo.store(END, Ordering::Release);
            self.barrier.wait();
        }
    }
}

/// A value for element `i` that looks random and can be had again.
fn value(seed: u64, i: usize) -> f64 {
    let mut x = seed.wrapping_add(i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x ^= x >> 29;
    ((x >> 20) % VALUES) as f64
}

fn line(seed: u64, i: usize) -> Line {
    Line(std::array::from_fn(|k| value(seed, i * WIDTH + k)))
}

fn work(cpu: usize, place: u64, lines: usize, todo: &AtomicU8, barrier: &Barrier) -> [bool; 4] {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    // Where it may not be bound it still runs, a little worse placed.
    let _ = rustix::thread::sched_setaffinity(None, &set);
    let (seed_b, seed_c) = (place * 2 + 1, place * 2 + 2);
    // What was never written must not pass for a result.
    let mut a = vec![Line([f64::NAN; WIDTH]); lines];
    let b: Vec<_> = (0..lines).map(|i| line(seed_b, i)).collect();
    let c: Vec<_> = (0..lines).map(|i| line(seed_c, i)).collect();
    let mut right = [true; 4];
    barrier.wait();
    let mut last = END;
    loop {
        barrier.wait();
        let now = todo.load(Ordering::Acquire);
        if now != last {
            // Between kernels, outside of what is timed: the pass that follows warms up.
            verify(last, &a, seed_b, seed_c, &mut right);
            a.fill(Line([f64::NAN; WIDTH]));
        }
        last = now;
        match now {
            n if n == Kernel::Read as u8 => {
                let sum = read(std::hint::black_box(&b));
                a[0].0[0] = sum;
            }
            n if n == Kernel::Write as u8 => write(&mut a),
            n if n == Kernel::Copy as u8 => copy(&mut a, &b),
            n if n == Kernel::Triad as u8 => triad(&mut a, &b, &c),
            _ => return right,
        }
        barrier.wait();
    }
}

/// Compares what the last kernel left with what it ought to be, computed anew from the seeds.
fn verify(kernel: u8, a: &[Line], seed_b: u64, seed_c: u64, right: &mut [bool; 4]) {
    let each = |expected: &dyn Fn(usize) -> f64| {
        let mut places = a.iter().flat_map(|line| line.0).enumerate();
        #[expect(clippy::float_cmp, reason = "whole numbers: exact or wrong")]
        places.all(|(i, got)| got == expected(i))
    };
    let passed = match kernel {
        n if n == Kernel::Read as u8 => {
            let sum: u64 = (0..a.len() * WIDTH).map(|i| value(seed_b, i) as u64).sum();
            #[expect(clippy::float_cmp, reason = "whole numbers: exact or wrong")]
            let same = a[0].0[0] == sum as f64;
            same
        }
        n if n == Kernel::Write as u8 => each(&|_| SCALE),
        n if n == Kernel::Copy as u8 => each(&|i| value(seed_b, i)),
        n if n == Kernel::Triad as u8 => each(&|i| value(seed_b, i) + SCALE * value(seed_c, i)),
        _ => return,
    };
    right[usize::from(kernel)] &= passed;
}

fn read(b: &[Line]) -> f64 {
    let mut sums = [0.0; WIDTH];
    for line in b {
        for (sum, value) in sums.iter_mut().zip(line.0) {
            *sum += value;
        }
    }
    sums.iter().sum()
}

fn write(a: &mut [Line]) {
    for to in a {
        store(to, [SCALE; WIDTH]);
    }
    fence();
}

fn copy(a: &mut [Line], b: &[Line]) {
    for (to, from) in a.iter_mut().zip(b) {
        store(to, from.0);
    }
    fence();
}

fn triad(a: &mut [Line], b: &[Line], c: &[Line]) {
    for ((to, b), c) in a.iter_mut().zip(b).zip(c) {
        store(to, std::array::from_fn(|k| b.0[k] + SCALE * c.0[k]));
    }
    fence();
}

/// Stores a line without reading it first.
#[cfg(target_arch = "x86_64")]
fn store(to: &mut Line, values: [f64; WIDTH]) {
    use std::arch::x86_64::{_mm_set_pd, _mm_stream_pd};
    for k in (0..WIDTH).step_by(2) {
        // SAFETY: SSE2 is part of x86_64; a `Line` holds WIDTH values and is aligned to 64 bytes, so that
        // every second value is aligned to 16.
        unsafe { _mm_stream_pd(to.0.as_mut_ptr().add(k), _mm_set_pd(values[k + 1], values[k])) };
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn store(to: &mut Line, values: [f64; WIDTH]) {
    to.0 = values;
}

/// Waits until such stores are done.
fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of x86_64.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}
