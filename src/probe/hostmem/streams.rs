//! Arrays that threads of one node stream through, each its own part.
//!
//! Invariants: a thread runs on its CPU from before it touches its memory; each takes its own times, and a measurement
//! is from the moment that the first begins to the moment that the last is done: who waits for them has no CPU of its own.
#![expect(unsafe_code, reason = "stores past the caches exist as intrinsics on raw pointers only")]

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;

use crate::model::Clock;
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

/// Time that a measurement takes at least, ns: passes are repeated within it.
const LEAST_NS: u64 = 4_000_000;
/// Passes of a measurement, at most.
const MOST_PASSES: u32 = 1 << 16;

/// The threads of a node with their arrays.
pub(super) struct Streams {
    threads: Vec<JoinHandle<[bool; 4]>>,
    shared: Arc<Shared>,
    elements: usize,
}

/// What all threads see.
struct Shared {
    barrier: Barrier,
    clock: Arc<dyn Clock>,
    /// What is to be done, and how often.
    todo: AtomicU8,
    passes: AtomicU32,
    /// When the first of them began, and the last of them was done, ns.
    began: AtomicU64,
    ended: AtomicU64,
}

impl Shared {
    /// Does it, and notes from when to when.
    fn time(&self, mut pass: impl FnMut()) {
        self.began.fetch_min(self.clock.nanos(), Ordering::AcqRel);
        for _ in 0..self.passes.load(Ordering::Acquire) {
            pass();
        }
        self.ended.fetch_max(self.clock.nanos(), Ordering::AcqRel);
    }
}

impl Streams {
    /// One thread on each of these CPUs, timed by this clock; three arrays of `bytes` together.
    pub(super) fn new(cpus: &[usize], bytes: usize, clock: Arc<dyn Clock>) -> Self {
        let lines = (bytes / size_of::<Line>() / cpus.len().max(1)).max(1);
        let shared = Arc::new(Shared {
            barrier: Barrier::new(cpus.len() + 1),
            clock,
            todo: AtomicU8::new(END),
            passes: AtomicU32::new(1),
            began: AtomicU64::new(0),
            ended: AtomicU64::new(0),
        });
        let start = |(place, &cpu): (usize, &usize)| {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || work(cpu, place as u64, lines, &shared))
        };
        let threads = cpus.iter().enumerate().map(start).collect();
        let elements = lines * WIDTH * cpus.len();
        // All memory is touched when the threads come here for the first time.
        shared.barrier.wait();
        Self { threads, shared, elements }
    }

    /// Elements of each array.
    pub(super) const fn elements(&self) -> usize {
        self.elements
    }

    /// So many passes over all of it; how long they took, ns.
    pub(super) fn pass(&self, kernel: Kernel, passes: u32, link: &Link) -> Result<u64, Failure> {
        link.check()?;
        let shared = &self.shared;
        shared.todo.store(kernel as u8, Ordering::Release);
        shared.passes.store(passes, Ordering::Release);
        shared.began.store(u64::MAX, Ordering::Release);
        shared.ended.store(0, Ordering::Release);
        shared.barrier.wait();
        shared.barrier.wait();
        Ok(shared.ended.load(Ordering::Acquire).saturating_sub(shared.began.load(Ordering::Acquire)))
    }

    /// How many passes a measurement has to be made of. They warm up meanwhile: page tables, clocks.
    pub(super) fn settle(&self, kernel: Kernel, link: &Link) -> Result<u32, Failure> {
        let mut passes = 1;
        while self.pass(kernel, passes, link)? < LEAST_NS && passes < MOST_PASSES {
            passes *= 2;
        }
        Ok(passes)
    }

    /// Ends the threads and says whether what they computed was right.
    pub(super) fn finish(mut self) -> Vec<Check> {
        let threads = std::mem::take(&mut self.threads);
        self.shared.todo.store(END, Ordering::Release);
        self.shared.barrier.wait();
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
            self.shared.todo.store(END, Ordering::Release);
            self.shared.barrier.wait();
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

fn work(cpu: usize, place: u64, lines: usize, shared: &Shared) -> [bool; 4] {
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
    shared.barrier.wait();
    let mut last = END;
    loop {
        shared.barrier.wait();
        let now = shared.todo.load(Ordering::Acquire);
        if now != last {
            // Between kernels, and before it takes a time: the measurement that follows warms up.
            verify(last, &a, seed_b, seed_c, &mut right);
            a.fill(Line([f64::NAN; WIDTH]));
        }
        last = now;
        match now {
            n if n == Kernel::Read as u8 => shared.time(|| a[0].0[0] = read(std::hint::black_box(&b))),
            n if n == Kernel::Write as u8 => shared.time(|| write(std::hint::black_box(&mut a))),
            n if n == Kernel::Copy as u8 => shared.time(|| copy(std::hint::black_box(&mut a), &b)),
            n if n == Kernel::Triad as u8 => shared.time(|| triad(std::hint::black_box(&mut a), &b, &c)),
            _ => return right,
        }
        shared.barrier.wait();
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
    // Sums enough that an addition never waits for the one before.
    let (mut even, mut odd) = ([0.0; WIDTH], [0.0; WIDTH]);
    let (pairs, rest) = b.as_chunks::<2>();
    for [first, second] in pairs {
        for k in 0..WIDTH {
            even[k] += first.0[k];
            odd[k] += second.0[k];
        }
    }
    let rest = rest.iter().flat_map(|line| line.0);
    even.into_iter().chain(odd).chain(rest).sum()
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::model::{SystemClock, Time};
    use crate::probe::protocol::tests::request;

    /// The thread that waits for the others always comes late to it.
    struct Slow {
        clock: SystemClock,
        main: std::thread::ThreadId,
    }

    impl Clock for Slow {
        fn now(&self) -> Time {
            self.clock.now()
        }
        fn micros(&self) -> u64 {
            if std::thread::current().id() == self.main {
                std::thread::sleep(Duration::from_millis(200));
            }
            self.clock.micros()
        }
    }

    fn link(clock: Arc<dyn Clock>) -> Link {
        let request = request("hostmem");
        Link::new(request, clock, Arc::default(), Box::new(std::io::sink()))
    }

    #[test]
    fn the_threads_take_the_time_and_not_the_one_that_waits_for_them() {
        let clock: Arc<dyn Clock> = Arc::new(Slow { clock: SystemClock::start(), main: std::thread::current().id() });
        let link = link(Arc::clone(&clock));
        let streams = Streams::new(&[0, 0], 3 << 16, clock);
        for kernel in Kernel::ALL {
            let one = streams.pass(kernel, 1, &link).unwrap();
            assert!(one > 0 && one < 150_000_000, "{kernel:?}: {one} ns");
        }
        assert!(streams.finish().iter().all(|check| check.passed));
    }

    #[test]
    fn small_arrays_are_passed_until_a_measurement_takes_its_time() {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
        let link = link(Arc::clone(&clock));
        let streams = Streams::new(&[0], 3 << 12, clock);
        for kernel in Kernel::ALL {
            // A machine that is busy with something else may hold any one of them up.
            let takes_its_time = || {
                let passes = streams.settle(kernel, &link).unwrap();
                let (few, many) =
                    (streams.pass(kernel, 1, &link).unwrap(), streams.pass(kernel, passes, &link).unwrap());
                passes > 8 && many > few && many > LEAST_NS / 4
            };
            assert!((0..50).any(|_| takes_its_time()), "{kernel:?}");
        }
        assert!(streams.finish().iter().all(|check| check.passed), "what is repeated is right as well");
    }
}
