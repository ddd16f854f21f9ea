//! A sum over all GPUs by NCCL, where it is installed: what tensor parallelism waits for in every layer.
//!
//! Rates as nccl-tests counts them (PERFORMANCE.md there): algorithm bandwidth is bytes over time; bus bandwidth is that
//! times 2 (n − 1) / n, which for a ring is what each link carries, whatever the number of GPUs.

use std::collections::BTreeMap;

use super::bench::Bench;
use crate::probe::child::NVLS;
use crate::probe::cuda::{Event, Group, Nccl, Place};
use crate::probe::plan::{Plan, Series};
use crate::probe::{Better, Check, Failure, Figure, Link, Outcome};

/// What is summed, MiB: a step of decode is of the first size, a prefill of the second, training of the third.
const SIZES: [u64; 3] = [1, 64, 512];
/// Steps of a plan that this takes.
pub(super) const STEPS: usize = SIZES.len();
/// Longest that one sum may take, µs.
const MOST_US: f64 = 4_000.0;
/// How long a pass should take, µs.
const PASS_US: f64 = 3_000.0;

/// Bus bandwidth over algorithm bandwidth, for so many GPUs.
pub(super) fn bus_factor(gpus: usize) -> f64 {
    let n = gpus.max(1) as f64;
    2.0 * (n - 1.0) / n
}

/// The largest size in MiB up to `wanted` that fits into the time, when `known.0` MiB took `known.1` µs; halves as often as
/// it takes.
fn fitting(wanted: u64, known: (u64, f64)) -> u64 {
    let (mib, us) = known;
    let mut size = wanted;
    while size > mib && us * size as f64 / mib as f64 > MOST_US {
        size /= 2;
    }
    size
}

/// Measures it. What is missing or does not work is a note: the rest of the probe stands without it.
pub(super) fn measure(
    link: &mut Link,
    plan: &mut Plan,
    bench: &Bench<'_>,
    outcome: &mut Outcome,
) -> Result<(), Failure> {
    plan.tell(link, 0.0, "looking for NCCL")?;
    let done = Nccl::find().and_then(|nccl| {
        facts(&nccl, &mut outcome.facts);
        plan.tell(link, 0.0, "starting NCCL")?;
        let group = nccl.group(bench.gpus)?;
        sizes(link, plan, bench, &group, outcome)
    });
    match done {
        Err(Failure::Unavailable(why)) => outcome.notes.push(format!("no all-reduce: {why}")),
        Err(Failure::Failed(why)) => {
            outcome.notes.push(format!("no all-reduce: {why}"));
            outcome.advice.push(
                "NCCL is here and does not work: NCCL_DEBUG=WARN in an engine's environment tells why".to_owned(),
            );
        }
        done => done?,
    }
    Ok(())
}

fn facts(nccl: &Nccl, facts: &mut BTreeMap<String, String>) {
    let multicast = match std::env::var(NVLS).as_deref() {
        Ok("0") => "off".to_owned(),
        other => format!("{NVLS}={}", other.unwrap_or("?")),
    };
    facts.insert("NCCL".to_owned(), format!("{} ({})", nccl.version, nccl.path.display()));
    facts.insert("NVLink multicast in NCCL".to_owned(), multicast);
}

fn sizes(
    link: &mut Link,
    plan: &mut Plan,
    bench: &Bench<'_>,
    group: &Group<'_>,
    outcome: &mut Outcome,
) -> Result<(), Failure> {
    let places: Vec<_> = bench.units.iter().map(|unit| Place { from: &unit.out, to: &unit.inbox }).collect();
    let n = bench.gpus.len();
    // What is known of the time that a size takes.
    let mut known = (1, 0.0);
    let mut wrong = Vec::new();
    for wanted in SIZES {
        let room = bench.bytes >> 20;
        let mib = fitting(wanted.min(room), known);
        if mib < wanted {
            let why =
                if mib == room { "--mib allows no more" } else { "it would take longer than a probe's kernel may" };
            outcome.notes.push(format!("all-reduce of {mib} in place of {wanted} MiB: {why}"));
        }
        if known.1 > 0.0 && mib <= known.0 {
            plan.step();
            continue;
        }
        let (bytes, numbers) = (mib << 20, (mib << 20) / 4);
        bench.fill_whole(numbers)?;
        let sums = |count: u32| time(bench, || (0..count).try_for_each(|_| group.sum(&places, numbers)));
        // The first pays for setting up.
        sums(1)?;
        let once = sums(1)?;
        let count = (PASS_US / once.max(1.0)).clamp(1.0, 100.0) as u32;
        let (id, what) = (format!("allreduce_{mib}m"), format!("all-reduce of {mib} MiB"));
        let times = plan.repeat(link, Series { id: &id, unit: "µs", what: &what }, || {
            let us = sums(count)?;
            Ok((us / f64::from(count), us))
        })?;
        let (algorithm, bus) = rates(&times, bytes, n);
        let label = format!("All-reduce of {mib} MiB");
        let took = Figure::median(&id, &format!("{label}, time"), "µs", Better::Lower, &times);
        known = (mib, took.as_ref().map_or(once, |took| took.value));
        outcome.figures.extend(took);
        outcome.figures.extend(Figure::median(
            &format!("{id}_alg"),
            &format!("{label}, algorithm bandwidth"),
            "GB/s",
            Better::Higher,
            &algorithm,
        ));
        let method = format!("algorithm bandwidth × {:.3}, as nccl-tests' PERFORMANCE.md defines it", bus_factor(n));
        let figure =
            Figure::median(&format!("{id}_bus"), &format!("{label}, bus bandwidth"), "GB/s", Better::Higher, &bus);
        outcome.figures.extend(figure.map(|figure| figure.by(&method)));
        wrong.extend(wrong_sums(bench, numbers, mib)?);
    }
    outcome.checks.push(Check {
        what: "all-reduce: every sum compared with that of the numbers which went in, exactly".to_owned(),
        passed: wrong.is_empty(),
        detail: wrong.join(", "),
    });
    outcome.notes.push(
        "all-reduce: one process and one thread give the work to all GPUs, as `all_reduce_perf -g` does; an engine has a \
         process for each"
            .to_owned(),
    );
    Ok(())
}

fn rates(times: &[f64], bytes: u64, gpus: usize) -> (Vec<f64>, Vec<f64>) {
    let algorithm: Vec<_> = times.iter().map(|us| bytes as f64 / us / 1e3).collect();
    let bus = algorithm.iter().map(|rate| rate * bus_factor(gpus)).collect();
    (algorithm, bus)
}

/// How long `work` kept the GPU that it kept longest, µs.
fn time(bench: &Bench<'_>, work: impl FnOnce() -> Result<(), Failure>) -> Result<f64, Failure> {
    let mark = || bench.gpus.iter().map(|gpu| gpu.stream.mark()).collect::<Result<Vec<Event>, _>>();
    let begin = mark()?;
    work()?;
    let end = mark()?;
    end.iter().zip(&begin).try_fold(0.0_f64, |most, (end, begin)| Ok(most.max(end.us_since(begin)?)))
}

/// What is wrong with the sums of this size; nothing where all are right.
fn wrong_sums(bench: &Bench<'_>, numbers: u64, mib: u64) -> Result<Option<String>, Failure> {
    let wrong = bench.wrong_sums(numbers)?;
    if wrong > 0 {
        return Ok(Some(format!("{mib} MiB: {wrong} of {} are wrong", numbers * bench.gpus.len() as u64)));
    }
    // The kernel that compares may be wrong itself: the host adds some of them up.
    for i in (0..64).map(|k| (numbers - 1) / 63 * k) {
        let (found, right) = bench.sum_at(i)?;
        if found.to_bits() != right.to_bits() {
            return Ok(Some(format!("{mib} MiB: number {i} is {found}, not {right}")));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bus_bandwidth_is_that_of_nccl_tests() {
        // PERFORMANCE.md: busbw = algbw × 2 (n − 1) / n.
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(near(bus_factor(2), 1.0) && near(bus_factor(4), 1.5) && near(bus_factor(8), 1.75));
        // 512 MiB in 2 ms over 8 GPUs.
        let (algorithm, bus) = rates(&[2_000.0], 512 << 20, 8);
        assert!(near(algorithm[0], 268.435_456) && near(bus[0], 469.762_048));
    }

    #[test]
    fn sizes_are_halved_until_they_fit() {
        assert_eq!(fitting(64, (1, 30.0)), 64, "30 µs a MiB: 1.9 ms");
        assert_eq!(fitting(512, (64, 250.0)), 512);
        assert_eq!(fitting(64, (1, 200.0)), 16, "3.2 ms");
        assert_eq!(fitting(512, (16, 3_900.0)), 16, "nothing larger fits");
        assert_eq!(fitting(1, (1, 0.0)), 1);
    }
}
