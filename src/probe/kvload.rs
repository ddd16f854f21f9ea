//! Loading KV blocks from the host's memory to the GPU, as an engine that offloads its KV cache does: a model of how long
//! a block takes, and whether it holds.
//!
//! time = latency + bytes / bandwidth is made from copies of six sizes. It then predicts four others, which are measured
//! only after that. What counts is what a server sees: from the call to the end of the copy by the host's clock. Each
//! block is one that was not loaded just before, so that it comes from memory and not from the CPU's cache.

#[path = "kvload/model.rs"]
mod model;

use std::cell::Cell;

use super::cuda::{Gpu, with_context};
use super::lane::{Lane, Way};
use super::place::Place;
use super::plan::{Plan, Series};
use super::{Better, Cost, Failure, Figure, Kind, Link, MIB, Needs, Outcome, Param, Params, Probe, ProbeSpec, Target};
use model::Model;

pub(super) const PROBE: Probe = Probe { spec: SPEC, run };

const SPEC: ProbeSpec = ProbeSpec {
    id: "kvload",
    key: 'v',
    name: "KV load",
    help: "Loading KV blocks from host memory to the GPU: latency against bandwidth, how long blocks of 128 KiB to 1 GiB \
           ought to take and do take, and how large a block has to be for the link to be used.",
    needs: Needs::Gpu,
    params: &[
        Param {
            name: "mib",
            help: "page-locked host memory that blocks are loaded from, MiB; larger blocks are left out",
            kind: Kind::Number { default: 1_024.0, least: 256.0, most: 1_024.0 },
        },
        Param {
            name: "seconds",
            help: "time for each size, s",
            kind: Kind::Number { default: 0.3, least: 0.02, most: 60.0 },
        },
    ],
    cost,
    cool_ms: 5_000,
    headline: "half_size",
    hidden: false,
};

/// What the model is made from, bytes.
const CALIBRATION: [u64; 6] = [4 << 10, 64 << 10, 512 << 10, 4 << 20, 64 << 20, 256 << 20];
/// What it predicts.
const BLOCKS: [Block; 4] = [
    Block { bytes: 128 << 10, id: "128kib", name: "128 KiB" },
    Block { bytes: 1_200 << 10, id: "1200kib", name: "1.2 MB" },
    Block { bytes: 16 << 20, id: "16mib", name: "16 MiB" },
    Block { bytes: 1 << 30, id: "1gib", name: "1 GiB" },
];
/// Blocks that are measured with many in flight: the first so many.
const IN_FLIGHT: usize = 3;
/// How far the model may be off, %.
const HOLDS_PCT: f64 = 15.0;
/// A measurement takes at least this long, µs.
const PASS_US: f64 = 1_500.0;
/// What to do where there is no model or a wrong one.
const LOOK: &str = "Look whether others copy at the same time and whether CPUs sleep deeply between copies, then measure \
                    again";
/// Bytes that are in flight at once.
const FLIGHT: u64 = 64 << 20;

/// A size that is predicted and measured.
#[derive(Clone, Copy, Debug)]
struct Block {
    bytes: u64,
    id: &'static str,
    name: &'static str,
}

fn cost(params: &Params, _: &Target) -> Cost {
    let bytes = (params.number("mib") * MIB) as u64;
    let steps = (CALIBRATION.len() + BLOCKS.len() + IN_FLIGHT) as f64;
    Cost {
        // The driver starts; memory is taken and filled, at about 1 GB/s.
        seconds: 2.0 + steps * params.number("seconds") * 1.2 + bytes as f64 / 1e9,
        gpu_bytes: with_context(bytes + (1 << 20)),
        host_bytes: bytes,
        watts: None,
        load: None,
        disturbs: "copies between host and GPU: KV offloading, weights that are loaded, inputs".to_owned(),
    }
}

fn run(link: &mut Link, params: &Params) -> Result<Outcome, Failure> {
    link.progress(0.0, None, "starting CUDA")?;
    let gpu = Gpu::open(link)?;
    let mut outcome = Outcome { facts: gpu.facts()?, ..Outcome::default() };
    let place = Place::of(&gpu, &mut outcome)?;
    let _near = place.bind(&mut outcome);
    let bytes = (params.number("mib") * MIB) as u64 / 4096 * 4096;
    let blocks = BLOCKS.iter().filter(|block| block.bytes <= bytes).count();
    let mut plan = Plan::new(CALIBRATION.len() + blocks + IN_FLIGHT, params.number("seconds"));
    plan.tell(link, 0.0, "taking and filling page-locked memory")?;
    let lane = Lane::new(&gpu, Way::ToDevice, gpu.pinned(bytes)?)?;
    let piece = lane.piece(FLIGHT)?;
    let mut loads = Loads { lane, piece, next: Cell::default(), reach: Cell::default() };
    let points = loads.calibrate(link, &mut plan)?;
    let model = Model::fit(&points);
    match &model {
        Ok(model) => tell_model(model, &mut outcome),
        Err(why) => outcome.advice.push(format!("there is no model of how long a block takes: {why}. {LOOK}")),
    }
    let mut worst = None;
    for block in &BLOCKS[..blocks] {
        let us = loads.block(link, &mut plan, model.as_ref().ok(), block, &mut outcome)?;
        let miss = model.as_ref().ok().map(|model| (block.name, model.miss(block.bytes as f64, us)));
        worst = [worst, miss].into_iter().flatten().max_by(|a, b| a.1.abs().total_cmp(&b.1.abs()));
    }
    if let Some((name, miss)) = worst {
        tell_worst(name, miss, &mut outcome);
    }
    for block in &BLOCKS[..IN_FLIGHT] {
        loads.in_flight(link, &mut plan, block, &mut outcome)?;
    }
    Ok(outcome)
}

/// Blocks being loaded.
struct Loads<'a> {
    lane: Lane<'a>,
    /// Largest single copy, bytes: others get in between two of them.
    piece: u64,
    /// Where the next block is, bytes.
    next: Cell<u64>,
    /// How far from the start blocks were loaded since the place they go to was poisoned, bytes.
    reach: Cell<u64>,
}

impl Loads<'_> {
    /// Gives a block to the GPU, the next one of this size.
    fn give(&self, bytes: u64) -> Result<(), Failure> {
        let at = if self.next.get() + bytes <= self.lane.bytes() { self.next.get() } else { 0 };
        self.next.set(at + bytes);
        self.reach.set(self.reach.get().max(at + bytes));
        let mut done = 0;
        while done < bytes {
            let part = self.piece.min(bytes - done);
            self.lane.give(at + done, part)?;
            done += part;
        }
        Ok(())
    }

    /// Time of a block that is waited for, by the host's clock, µs.
    fn waited_for(
        &self,
        link: &mut Link,
        plan: &mut Plan,
        series: Series<'_>,
        bytes: u64,
    ) -> Result<Vec<f64>, Failure> {
        let clock = link.clock();
        let time = |count: u32| -> Result<f64, Failure> {
            let began = clock.micros();
            for _ in 0..count {
                self.give(bytes)?;
                self.lane.stream().finish()?;
            }
            Ok(clock.micros().saturating_sub(began).max(1) as f64)
        };
        time(1)?;
        let count = (PASS_US / time(1)?).ceil().clamp(1.0, 300.0) as u32;
        plan.repeat(link, series, || {
            let us = time(count)?;
            Ok((us / f64::from(count), us))
        })
    }

    /// What the model is made from: sizes in bytes and the medians of their times in µs.
    fn calibrate(&self, link: &mut Link, plan: &mut Plan) -> Result<Vec<(f64, f64)>, Failure> {
        let mut points = Vec::new();
        for bytes in CALIBRATION {
            let id = format!("calibration_{}kib", bytes >> 10);
            let what = format!("calibration with blocks of {} KiB", bytes >> 10);
            let times = self.waited_for(link, plan, Series { id: &id, unit: "µs", what: &what }, bytes)?;
            points.extend(median(&times).map(|us| (bytes as f64, us)));
        }
        Ok(points)
    }

    /// Measures a block after the model has predicted it. Returns its time, µs.
    fn block(
        &mut self,
        link: &mut Link,
        plan: &mut Plan,
        model: Option<&Model>,
        block: &Block,
        outcome: &mut Outcome,
    ) -> Result<f64, Failure> {
        let (bytes, name) = (block.bytes as f64, block.name);
        let id = format!("load_{}", block.id);
        let predicted = model.map(|model| model.us(bytes));
        let what = match predicted {
            Some(us) => format!("a block of {name}, {us:.0} µs by the model"),
            None => format!("a block of {name}"),
        };
        self.lane.poison()?;
        self.next.set(0);
        self.reach.set(0);
        let times = self.waited_for(link, plan, Series { id: &id, unit: "µs", what: &what }, block.bytes)?;
        let method = "one block after another, from the call to its end by the host's clock; floor: its bytes over the \
                      model's bandwidth";
        let Some(mut figure) = Figure::median(&id, &format!("Load {name}"), "µs", Better::Lower, &times) else {
            return Err(Failure::Failed(format!("no time was measured for {name}")));
        };
        let us = figure.value;
        figure.floor = model.map(|model| model.floor_us(bytes));
        outcome.figures.push(figure.by(method));
        outcome.checks.push(self.lane.check(&format!("{name}: every word of every block"), self.reach.get())?);
        if let Some(model) = model {
            tell_block(model, block, us, outcome);
        }
        Ok(us)
    }

    /// The rate of many blocks that are given without waiting for each.
    fn in_flight(&self, link: &mut Link, plan: &mut Plan, block: &Block, outcome: &mut Outcome) -> Result<(), Failure> {
        let count = (FLIGHT / block.bytes).clamp(2, 64);
        let bytes = count * block.bytes;
        let id = format!("in_flight_{}", block.id);
        let what = format!("{count} blocks of {} in flight", block.name);
        let clock = link.clock();
        let time = |rounds: u64| -> Result<f64, Failure> {
            let began = clock.micros();
            for _ in 0..rounds {
                (0..count).try_for_each(|_| self.give(block.bytes))?;
                self.lane.stream().finish()?;
            }
            Ok(clock.micros().saturating_sub(began).max(1) as f64)
        };
        let rounds = (PASS_US / time(1)?).ceil().clamp(1.0, 100.0) as u64;
        let rates = plan.repeat(link, Series { id: &id, unit: "GB/s", what: &what }, || {
            let us = time(rounds)?;
            Ok(((rounds * bytes) as f64 / us / 1e3, us))
        })?;
        let label = format!("{}, {count} in flight", block.name);
        let figure = Figure::median(&id, &label, "GB/s", Better::Higher, &rates);
        let method = "blocks that are given without waiting for each, from the first call to the end of the last";
        outcome.figures.extend(figure.map(|figure| figure.by(method)));
        Ok(())
    }
}

fn median(times: &[f64]) -> Option<f64> {
    Figure::median("", "", "", Better::Neither, times).map(|figure| figure.value)
}

fn tell_model(model: &Model, outcome: &mut Outcome) {
    let half = model.half_bytes();
    let method = format!("least relative error over copies of {} sizes from 4 KiB to 256 MiB", CALIBRATION.len());
    for (id, label, unit, better, value) in [
        ("half_size", "Block loaded at half the bandwidth", "KiB", Better::Neither, half / 1024.0),
        ("latency", "Latency of the model", "µs", Better::Lower, model.latency_us),
        ("bandwidth", "Bandwidth of the model", "GB/s", Better::Higher, model.bytes_per_us / 1e3),
    ] {
        let figure = Figure::median(id, label, unit, better, &[value]);
        outcome.figures.extend(figure.map(|figure| figure.by(&method)));
    }
    outcome.notes.push(format!(
        "blocks of {:.0} KiB are loaded at half of the bandwidth, of {:.1} MiB at nine tenths: offload KV in pieces of at \
         least the first, or keep many in flight",
        half / 1024.0,
        9.0 * half / MIB
    ));
}

/// What the model said of a block that took `us`, and which part of it rules.
fn tell_block(model: &Model, block: &Block, us: f64, outcome: &mut Outcome) {
    let (bytes, name, id) = (block.bytes as f64, block.name, block.id);
    for (end, label, unit, value) in [
        ("predicted", format!("Load {name}, predicted"), "µs", model.us(bytes)),
        ("error", format!("Load {name}, error of the prediction"), "%", model.miss(bytes, us) * 100.0),
    ] {
        outcome.figures.extend(Figure::median(&format!("load_{id}_{end}"), &label, unit, Better::Neither, &[value]));
    }
    let latency = model.latency_share(bytes) * 100.0;
    let rules = if latency >= 50.0 { "latency" } else { "bandwidth" };
    outcome.notes.push(format!("a block of {name}: {latency:.0} % of its time is latency, so {rules} rules"));
}

fn tell_worst(name: &str, miss: f64, outcome: &mut Outcome) {
    let pct = miss * 100.0;
    outcome.figures.extend(Figure::median("worst_error", "Worst error of the model", "%", Better::Neither, &[pct]));
    if pct.abs() <= HOLDS_PCT {
        outcome.notes.push(format!("the model holds: at worst it is off by {pct:+.1} % ({name})"));
    } else {
        outcome.advice.push(format!(
            "the model does not hold: it is off by {pct:+.1} % for {name}, more than {HOLDS_PCT:.0} %. Do not plan KV \
             offloading with it. {LOOK}"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_predicted_was_not_calibrated_with_and_lies_within_it_or_beyond() {
        for block in BLOCKS {
            assert!(!CALIBRATION.contains(&block.bytes), "{}", block.name);
        }
        assert!(CALIBRATION.is_sorted() && CALIBRATION[0] < BLOCKS[0].bytes);
        let least = Params::of(&SPEC).number("mib") * MIB;
        assert!(BLOCKS.iter().all(|block| block.bytes as f64 <= least), "the default has room for every block");
    }

    #[test]
    fn the_verdict_says_whether_the_model_holds() {
        let told = |miss| {
            let mut outcome = Outcome::default();
            tell_worst("16 MiB", miss, &mut outcome);
            (outcome.advice.join(""), outcome.notes.join(""))
        };
        let (advice, notes) = told(-0.149);
        assert!(advice.is_empty() && notes.contains("holds: at worst it is off by -14.9 % (16 MiB)"), "{notes}");
        let (advice, notes) = told(-0.151);
        assert!(notes.is_empty() && advice.contains("does not hold: it is off by -15.1 % for 16 MiB"), "{advice}");
    }

    #[test]
    fn the_size_that_half_of_the_bandwidth_needs_is_told() {
        let mut outcome = Outcome::default();
        // 8 µs × 51 200 bytes a µs are 400 KiB.
        tell_model(&Model { latency_us: 8.0, bytes_per_us: 51_200.0 }, &mut outcome);
        assert!((outcome.figures[0].value - 400.0).abs() < 1e-9 && outcome.figures[0].id == SPEC.headline);
        assert!(outcome.notes[0].contains("blocks of 400 KiB") && outcome.notes[0].contains("3.5 MiB at nine tenths"));
    }
}
