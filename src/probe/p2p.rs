//! GPU to GPU: bandwidth and latency between every two, the order that suits a ring, and a sum over all of them.
//!
//! Copies as nvbandwidth and CUDA's p2pBandwidthLatencyTest make them: by the copy engine of the GPU that sends, one way and
//! both ways. Latency is a chain of dependent loads from the other's memory, and copies of 4 bytes one after another. Data
//! are random and compared on arrival. The path is inferred, since CUDA does not tell it: faster than PCIe can be, or with
//! atomics, means NVLink.

mod allreduce;
mod bench;
mod found;
mod path;
mod ring;

use std::path::Path;

use super::cuda::{Gpu, with_context};
use super::plan::{Plan, Series};
use super::{
    Better, Check, Cost, Failure, Figure, Kind, Link, MIB, Needs, Outcome, Param, Params, Probe, ProbeSpec, Target,
};
use crate::model::gpu_specs;
use bench::{Bench, Copies};
use found::Pair;
use path::{Carrier, Device};
use ring::Ring;

pub(super) const PROBE: Probe = Probe { spec: SPEC, run };

const SPEC: ProbeSpec = ProbeSpec {
    id: "p2p",
    key: 'w',
    name: "GPU to GPU",
    help: "Bandwidth and latency between every two GPUs, NVLink or PCIe, the best order for a ring, and NCCL's all-reduce. \
           What tensor parallelism waits for.",
    needs: Needs::Gpus(2),
    params: &[
        Param {
            name: "mib",
            help: "size of the two blocks on each GPU, MiB: the largest copy and the largest all-reduce",
            kind: Kind::Number { default: 512.0, least: 16.0, most: 4_096.0 },
        },
        Param {
            name: "seconds",
            help: "time for each measurement of a pair, s",
            kind: Kind::Number { default: 0.05, least: 0.01, most: 10.0 },
        },
        Param {
            name: "nccl",
            help: "whether to measure NCCL's all-reduce where NCCL is found",
            kind: Kind::Choice { default: "auto", of: &["auto", "off"] },
        },
    ],
    cost,
    cool_ms: 10_000,
    headline: "worst_pair",
    hidden: false,
};

/// Device memory that NCCL takes for itself on each GPU, bytes: buffers of its channels, and its kernels.
const NCCL_BYTES: u64 = 1 << 30;
/// Chains of loads take this long, µs.
const CHASE_US: f64 = 2_000.0;
/// A ring in another order has to be this much better to be worth a word.
const BETTER: f64 = 1.05;

/// Steps of the plan for so many GPUs.
const fn steps(gpus: usize) -> usize {
    let pairs = gpus * gpus.saturating_sub(1);
    3 * pairs + pairs / 2 + allreduce::STEPS
}

fn cost(params: &Params, target: &Target) -> Cost {
    let gpus = target.gpus.len().max(2);
    let nccl = params.word("nccl") != "off";
    Cost {
        // Contexts, kernels and NCCL start; the wait for a spread takes longer than the measurements.
        seconds: 4.0 + gpus as f64 * 0.7 + steps(gpus) as f64 * params.number("seconds") * 1.5,
        gpu_bytes: with_context((params.number("mib") * MIB) as u64 * 2 + if nccl { NCCL_BYTES } else { 0 }),
        host_bytes: 1 << 30,
        watts: None,
        load: None,
        disturbs:
            "whatever computes on any GPU of this machine or copies between them: links and copy engines are shared"
                .to_owned(),
    }
}

fn run(link: &mut Link, params: &Params) -> Result<Outcome, Failure> {
    link.progress(0.0, None, "starting CUDA")?;
    let gpus = Gpu::open_all(link)?;
    if gpus.len() < 2 {
        return Err(Failure::Unavailable("it takes two GPUs, and there is one".to_owned()));
    }
    let mut outcome = Outcome::default();
    for gpu in &gpus {
        outcome.facts.extend(gpu.facts()?);
    }
    let mut plan = Plan::new(steps(gpus.len()), params.number("seconds"));
    let mut seen = look(&gpus)?;
    let mut bench = Bench::new(&gpus, (params.number("mib") * MIB) as u64 >> 20 << 20)?;
    let mut matrices = bandwidth(link, &mut plan, &bench, &mut seen, &mut outcome)?;
    matrices.extend(latency(link, &mut plan, &mut bench, &seen, &mut outcome)?);
    outcome.figures.extend(summary(&seen, &matrices, &mut outcome.notes));
    if params.word("nccl") == "off" {
        outcome.notes.push("no all-reduce: it was not asked for (--nccl off)".to_owned());
    } else {
        allreduce::measure(link, &mut plan, &bench, &mut outcome)?;
    }
    outcome.figures.extend(matrices);
    conclude(&gpus, &seen, &mut outcome);
    Ok(outcome)
}

/// Every ordered pair, row by row.
fn pairs(gpus: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..gpus).flat_map(move |from| (0..gpus).filter(move |to| *to != from).map(move |to| (from, to)))
}

/// What is known of every pair before anything is copied; lets each GPU reach the others where that goes.
fn look(gpus: &[Gpu]) -> Result<Vec<Pair>, Failure> {
    let mut seen = Vec::new();
    let mut devices = Vec::new();
    for gpu in gpus {
        devices.push(Device::read(Path::new(path::DEVICES), &gpu.pci_address()?));
    }
    for (from, to) in pairs(gpus.len()) {
        let peering = gpus[from].peering(&gpus[to])?;
        let refused =
            if peering.access { gpus[from].reach(&gpus[to]).err().unwrap_or_default() } else { String::new() };
        seen.push(Pair {
            from: (from, gpus[from].name.index),
            to: (to, gpus[to].name.index),
            peering,
            refused,
            way: devices[from].way_to(&devices[to]),
            most_pcie: devices[from].most().min(devices[to].most()),
            rate: 0.0,
            carrier: Carrier::Host,
        });
    }
    Ok(seen)
}

/// Copies between every two, one way and both ways; notes the rates in `seen`.
fn bandwidth(
    link: &mut Link,
    plan: &mut Plan,
    bench: &Bench<'_>,
    seen: &mut [Pair],
    outcome: &mut Outcome,
) -> Result<Vec<Figure>, Failure> {
    let (mut figures, mut wrong) = (Vec::new(), Vec::new());
    let mut trials = Vec::new();
    for pair in &mut *seen {
        let ((from, a), (to, b)) = (pair.from, pair.to);
        let (id, what) = (format!("bw_{a}_{b}"), format!("copies GPU {a} → {b}"));
        plan.tell(link, 0.0, &what)?;
        let began = link.micros();
        let copies = bench.trial(from, to)?;
        link.rest(link.micros().saturating_sub(began))?;
        trials.push(copies);
        bench.poison(to)?;
        let rates = plan.repeat(link, Series { id: &id, unit: "GB/s", what: &what }, || {
            let us = bench.one_way(from, to, copies)?;
            Ok((copies.total() / us / 1e3, us))
        })?;
        wrong.extend(compare(bench, (from, to), copies.bytes, &pair.name())?);
        let figure = Figure::median(&id, &format!("Copy, GB/s: GPU {a} → GPU {b}"), "GB/s", Better::Higher, &rates);
        pair.measured(figure.as_ref().map_or(0.0, |figure| figure.value));
        figures.extend(figure);
    }
    for (pair, copies) in seen.iter().zip(&trials).filter(|(pair, _)| pair.from.0 < pair.to.0) {
        let ((here, a), (there, b)) = (pair.from, pair.to);
        let (id, what) = (format!("bi_{a}_{b}"), format!("copies GPU {a} ↔ {b}"));
        // Each way may have half the pace then.
        let copies = Copies { bytes: copies.bytes / 2, count: copies.count * 2 };
        bench.poison(here)?;
        bench.poison(there)?;
        let rates = plan.repeat(link, Series { id: &id, unit: "GB/s", what: &what }, || {
            let us = bench.both_ways(here, there, copies)?;
            Ok((2.0 * copies.total() / us / 1e3, us))
        })?;
        wrong.extend(compare(bench, (here, there), copies.bytes, &what)?);
        wrong.extend(compare(bench, (there, here), copies.bytes, &what)?);
        let label = format!("Both ways at once, GB/s in all: GPU {a} → GPU {b}");
        figures.extend(Figure::median(&id, &label, "GB/s", Better::Higher, &rates));
    }
    outcome.checks.push(Check {
        what: "copies: every word that arrived compared with the one that was sent".to_owned(),
        passed: wrong.is_empty(),
        detail: wrong.join(", "),
    });
    Ok(figures)
}

/// What is wrong with the data that arrived; nothing where all is right.
fn compare(bench: &Bench<'_>, (from, to): (usize, usize), bytes: u64, what: &str) -> Result<Option<String>, Failure> {
    let wrong = bench.wrong_words(from, to, bytes)?;
    Ok((wrong > 0).then(|| format!("{what}: {wrong} of {} words differ", bytes / 8)))
}

/// Small copies and chains of loads between every two.
fn latency(
    link: &mut Link,
    plan: &mut Plan,
    bench: &mut Bench<'_>,
    seen: &[Pair],
    outcome: &mut Outcome,
) -> Result<Vec<Figure>, Failure> {
    let (mut figures, mut wrong) = (Vec::new(), Vec::new());
    let chain = bench.lay_chains()?;
    for pair in seen {
        let ((from, a), (to, b)) = (pair.from, pair.to);
        let (id, what) = (format!("copy_{a}_{b}"), format!("small copies GPU {a} → {b}"));
        let times = plan.repeat(link, Series { id: &id, unit: "µs", what: &what }, || bench.small(from, to))?;
        if bench.was_late() {
            outcome.notes.push(format!("{what}: the host was too slow, its calls are part of the time"));
        }
        let label = format!("Copy of 4 bytes, µs: GPU {a} → GPU {b}");
        figures.extend(Figure::median(&id, &label, "µs", Better::Lower, &times));
    }
    for pair in seen {
        let ((from, a), (to, b)) = (pair.from, pair.to);
        if !pair.is_direct() {
            plan.step();
            continue;
        }
        let (id, what) = (format!("lat_{a}_{b}"), format!("loads GPU {a} ← {b}"));
        plan.tell(link, 0.0, &what)?;
        let loads = bench.loads_for(from, to, CHASE_US)?;
        let times = plan.repeat(link, Series { id: &id, unit: "ns", what: &what }, || {
            let us = bench.chase(from, to, loads)?;
            Ok((us * 1e3 / f64::from(loads), us))
        })?;
        let (found, right) = (bench.end_of_chase(from)?, bench::follow(&chain, loads));
        if found != right {
            wrong.push(format!("{what}: ended at {found}, not {right}"));
        }
        let label = format!("Load by the row from the column, ns: GPU {a} → GPU {b}");
        figures.extend(Figure::median(&id, &label, "ns", Better::Lower, &times));
    }
    if seen.iter().any(Pair::is_direct) {
        outcome.checks.push(Check {
            what: "loads: where each chain ended compared with the host's walk through it".to_owned(),
            passed: wrong.is_empty(),
            detail: wrong.join(", "),
        });
    }
    Ok(figures)
}

/// The slowest pair, and the best ring.
fn summary(seen: &[Pair], matrices: &[Figure], notes: &mut Vec<String>) -> Vec<Figure> {
    let mut out = Vec::new();
    let of = |pair: &Pair| matrices.iter().find(|figure| figure.id == format!("bw_{}_{}", pair.from.1, pair.to.1));
    let named = |figure: &Figure, id: &str, label: &str, method: String| Figure {
        id: id.to_owned(),
        label: label.to_owned(),
        method,
        ..figure.clone()
    };
    let worst = seen.iter().min_by(|a, b| a.rate.total_cmp(&b.rate));
    if let Some((pair, figure)) = worst.and_then(|pair| Some((pair, of(pair)?))) {
        let method = format!("{}, by {}: the copy engine of the GPU that sends", pair.name(), pair.carrier);
        out.push(named(figure, "worst_pair", "Slowest pair", method));
    }
    let n = seen.iter().map(|pair| pair.from.0 + 1).max().unwrap_or(0);
    let mut rates = vec![vec![0.0; n]; n];
    for pair in seen {
        rates[pair.from.0][pair.to.0] = pair.rate;
    }
    let index = |place: usize| seen.iter().find(|pair| pair.from.0 == place).map_or(0, |pair| pair.from.1);
    let words = |ring: &Ring| ring.order.iter().map(|&place| index(place).to_string()).collect::<Vec<_>>().join(" → ");
    let Some(best) = ring::best(&rates) else { return out };
    let plain = Ring::of((0..n).collect(), &rates);
    // Within the spread the plain order is as good, and easier to remember.
    let ring = if best.worst > plain.worst * BETTER { &best } else { &plain };
    let hop = ring.slowest(&rates).and_then(|hop| seen.iter().find(|pair| (pair.from.0, pair.to.0) == hop));
    if let Some((pair, figure)) = hop.and_then(|pair| Some((pair, of(pair)?))) {
        let method = format!("{}, in the order {}", pair.name(), words(ring));
        out.push(named(figure, "ring_worst_hop", "Slowest hop of the best ring", method));
    }
    if n == 2 {
        return out;
    }
    notes.push(if best.worst > plain.worst * BETTER {
        format!(
            "a ring in the order {} has {:.0} GB/s at its slowest hop, in the order {} {:.0}: engines take GPUs in the \
             order of CUDA_VISIBLE_DEVICES",
            words(&best),
            best.worst,
            words(&plain),
            plain.worst
        )
    } else {
        format!("no order of the GPUs makes a better ring than {}", words(&plain))
    });
    out
}

/// What it comes to: promises, facts, advice.
fn conclude(gpus: &[Gpu], seen: &[Pair], outcome: &mut Outcome) {
    let nvlink = gpus.iter().map(|gpu| gpu_specs::nvlink_peak_bytes_per_s(&gpu.name.name));
    let nvlink = nvlink.reduce(|a, b| Some(a?.min(b?))).flatten();
    if let Some(peak) = nvlink {
        for figure in &outcome.figures {
            let id = figure.id.as_str();
            let one_way = id.starts_with("bw_") || id == "worst_pair" || id == "ring_worst_hop";
            if one_way || id.starts_with("bi_") {
                outcome.promised.insert(id.to_owned(), peak / 1e9 * if one_way { 1.0 } else { 2.0 });
            }
        }
    }
    outcome.facts.extend(found::facts(seen));
    outcome.advice.extend(found::advice(seen, nvlink.is_some()));
    if seen.iter().any(|pair| !pair.is_direct()) {
        outcome
            .notes
            .push("pairs without peer access: copies go through the host's memory, loads are not possible".to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_count_every_measurement() {
        // 2 pairs: copies, small copies, loads each way; one both ways.
        assert_eq!([steps(2), steps(8)], [7 + allreduce::STEPS, 196 + allreduce::STEPS]);
        assert_eq!(pairs(3).collect::<Vec<_>>(), [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)]);
    }

    #[test]
    fn the_cost_grows_with_the_machine_and_counts_nccl() {
        let params = Params::of(&SPEC);
        let target = |gpus| Target { gpus: vec![super::super::GpuName::default(); gpus], ..Target::default() };
        let (two, eight) = (cost(&params, &target(2)), cost(&params, &target(8)));
        assert!(eight.seconds > two.seconds * 2.0 && eight.seconds < 60.0, "{} and {}", two.seconds, eight.seconds);
        let mut without = Params::of(&SPEC);
        without.put("nccl", super::super::Value::Word("off".to_owned()));
        assert_eq!(two.gpu_bytes - cost(&without, &target(2)).gpu_bytes, NCCL_BYTES);
    }
}
