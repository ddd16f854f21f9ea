//! The time of a load that the next one waits for.

use crate::probe::{Failure, Link};

/// Time between two looks at the clock, at least, µs: with loads of 1 ns a number of them would be too short.
const BATCH_US: u64 = 4_000;
/// Loads of the first trial.
const TRIAL: usize = 20_000;

/// A cache line that names the next one.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Hop {
    next: usize,
}

/// Follows a random chain through `bytes` on this CPU for `seconds`, and says each measurement in `series`. Returns the time of a load in ns, batch
/// by batch, and whether the chain is the single cycle that it has to be.
pub(super) fn measure(
    link: &mut Link,
    cpu: usize,
    bytes: usize,
    seconds: f64,
    series: &str,
    mut tell: impl FnMut(&mut Link, f64) -> Result<(), Failure>,
) -> Result<(Vec<f64>, bool), Failure> {
    let before = rustix::thread::sched_getaffinity(None);
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    // Where it may not be bound it still runs, a little worse placed.
    let _ = rustix::thread::sched_setaffinity(None, &set);
    let chain = chain((bytes / size_of::<Hop>()).max(2));
    let (mut times, mut spent, mut at) = (Vec::new(), 0_u64, 0);
    // What goes before loads the cache.
    at = follow(&chain, at, chain.len().min(4_000_000));
    let batch = batch(|loads| {
        let began = link.micros();
        at = follow(&chain, at, loads);
        link.micros().saturating_sub(began)
    });
    while times.len() < 3 || (spent as f64) < seconds * 1e6 {
        let began = link.micros();
        at = follow(&chain, at, batch);
        let us = link.micros().saturating_sub(began).max(1);
        let time = us as f64 * 1e3 / batch as f64;
        times.push(time);
        link.sample(series, "ns", time)?;
        spent += us;
        tell(link, spent as f64 / 1e6 / seconds)?;
        link.rest(us)?;
    }
    let closed = is_one_cycle(&chain);
    if let Ok(before) = before {
        let _ = rustix::thread::sched_setaffinity(None, &before);
    }
    Ok((times, closed))
}

/// So many loads that they take [`BATCH_US`], given how long some take, µs.
fn batch(mut time: impl FnMut(usize) -> u64) -> usize {
    let mut loads = TRIAL;
    // No load is so fast that the bound is reached.
    while loads < 1 << 30 && time(loads) < BATCH_US {
        loads *= 2;
    }
    loads
}

/// A random order of all places that leads through each once (Sattolo's algorithm).
fn chain(n: usize) -> Vec<Hop> {
    let mut chain: Vec<_> = (0..n).map(|next| Hop { next }).collect();
    let mut x = 0x2545_f491_4f6c_dd1d_u64;
    for i in (1..n).rev() {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        chain.swap(i, (x % i as u64) as usize);
    }
    chain
}

fn follow(chain: &[Hop], from: usize, hops: usize) -> usize {
    let mut at = from;
    for _ in 0..hops {
        at = chain[at].next;
    }
    std::hint::black_box(at)
}

/// Walks it without the clock, and counts every place.
fn is_one_cycle(chain: &[Hop]) -> bool {
    let mut seen = vec![false; chain.len()];
    let mut at = 0;
    for _ in 0..chain.len() {
        if std::mem::replace(&mut seen[at], true) {
            return false;
        }
        at = chain[at].next;
    }
    at == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measurement_takes_its_time_however_fast_a_load_is() {
        for ns in [0.3, 1.2, 20.0, 100.0, 400.0] {
            let time = |loads: usize| (loads as f64 * ns / 1e3) as u64;
            let us = time(batch(time));
            assert!((BATCH_US..=2 * BATCH_US + 8).contains(&us), "{ns} ns a load: {us} µs");
        }
        assert!(batch(|_| 0) > 0, "a clock that stands still holds nobody up");
    }

    #[test]
    fn a_chain_is_one_cycle_and_a_broken_one_is_seen() {
        for n in [2, 3, 64, 1000] {
            assert!(is_one_cycle(&chain(n)), "{n}");
        }
        let mut broken = chain(1000);
        broken[500].next = 500;
        assert!(!is_one_cycle(&broken));
    }
}
