//! Memory of the GPU: bandwidth of its DRAM, and of its L2 where the working set fits.
//!
//! Bandwidth as STREAM and BabelStream count it: read 8, write 8, copy 16, triad 24 bytes an element of 8 bytes. Which
//! shape of the loop (pieces in flight, size of a block, hints to the cache) is fastest differs from GPU to GPU, so the
//! shapes race first, and the winner is measured. Values are random; results are compared with the host's arithmetic.

mod shape;

use super::cuda::{Arg, Buffer, Gpu, Kernel, Module, random, with_context};
use super::plan::{Plan, Series};
use super::{
    Better, Check, Cost, Failure, Figure, Kind, Link, MIB, Needs, Outcome, Param, Params, Probe, ProbeSpec, Target,
    reference,
};
use crate::model::text::capital;
use shape::{Pass, Shape};

pub(super) const PROBE: Probe = Probe { spec: SPEC, run };

const SPEC: ProbeSpec = ProbeSpec {
    id: "hbm",
    key: 'h',
    name: "device memory",
    help: "Bandwidth of the GPU's memory (read, write, copy, triad) and of its L2: what decode is bound by.",
    needs: Needs::Gpu,
    params: &[
        Param {
            name: "mib",
            help: "size of each of the three arrays, MiB; four times the L2 cache or more to measure DRAM, GiBs to reach its peak",
            kind: Kind::Number { default: 2_048.0, least: 16.0, most: 8_192.0 },
        },
        Param {
            name: "seconds",
            help: "time for each kernel, s",
            kind: Kind::Number { default: 0.3, least: 0.02, most: 60.0 },
        },
    ],
    cost,
    cool_ms: 10_000,
    headline: "triad",
    hidden: false,
};

/// Working sets beside the whole, MiB: below and above the L2 of what is sold today (6 to 126 MiB).
const WORKING_SETS: [u64; 6] = [4, 16, 32, 64, 128, 256];
const KERNELS: &str = include_str!("../../assets/kernels/hbm.ptx");
/// Longest that one triad may take, s: others wait that long for the GPU.
const LONGEST_S: f64 = 0.004;
/// How long the rounds over a working set would take if it came from DRAM, s.
const ROUNDS_S: f64 = 0.001_5;
/// The factor of the triad.
const SCALAR: f64 = 0.4;
/// Seeds of the data.
const SEED_B: u64 = 0xb;
const SEED_C: u64 = 0xc;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Read,
    Write,
    Copy,
    Triad,
}

impl Op {
    const ALL: [Self; 4] = [Self::Triad, Self::Copy, Self::Read, Self::Write];

    const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Copy => "copy",
            Self::Triad => "triad",
        }
    }

    /// Arrays that it goes through.
    const fn arrays(self) -> u64 {
        match self {
            Self::Read | Self::Write => 1,
            Self::Copy => 2,
            Self::Triad => 3,
        }
    }
}

fn cost(params: &Params, _: &Target) -> Cost {
    let steps = (Op::ALL.len() + WORKING_SETS.len() * 2) as f64;
    Cost {
        // The driver starts, compiles, and the results are checked.
        seconds: 3.0 + steps * params.number("seconds") * 1.2,
        gpu_bytes: with_context((params.number("mib") * MIB) as u64 * 3),
        host_bytes: 256 << 20,
        watts: None,
        disturbs: "whatever reads the GPU's memory: decode slows to a half or less while a kernel runs".to_owned(),
        load: None,
    }
}

fn run(link: &mut Link, params: &Params) -> Result<Outcome, Failure> {
    link.progress(0.0, None, "starting CUDA")?;
    let gpu = Gpu::open(link)?;
    let mut bench = Bench::new(&gpu, (params.number("mib") * MIB) as u64)?;
    let mut outcome = Outcome { facts: gpu.facts()?, ..Outcome::default() };
    outcome.notes.extend(bench.shorten()?);
    if bench.bytes < 4 * gpu.l2_bytes()? {
        let l2 = gpu.l2_bytes()? as f64 / MIB;
        outcome.notes.push(format!(
            "arrays of {:.0} MiB are less than four times the {l2:.0} MiB of L2: part of it is the cache's",
            bench.bytes as f64 / MIB
        ));
    }
    let mut plan = Plan::new(Op::ALL.len() + 2 * WORKING_SETS.len(), params.number("seconds"));
    for op in Op::ALL {
        let shape = bench.race(link, &plan, op)?;
        outcome.figures.extend(bench.dram(link, &mut plan, op, shape)?);
        outcome.checks.push(bench.check(op, shape)?);
    }
    for op in [Op::Read, Op::Triad] {
        for mib in WORKING_SETS.into_iter().filter(|mib| mib << 20 <= bench.bytes * op.arrays()) {
            outcome.figures.extend(bench.working_set(link, &mut plan, op, mib)?);
        }
    }
    outcome.figures.extend(floor(&gpu, &outcome.figures, bench.bytes));
    Ok(outcome)
}

/// Time of one triad beside the least that the datasheet's bandwidth leaves.
fn floor(gpu: &Gpu, figures: &[Figure], bytes: u64) -> Option<Figure> {
    let triad = figures.iter().find(|figure| figure.id == Op::Triad.name())?;
    let peak = reference::datasheet(&gpu.name.name, SPEC.id, Op::Triad.name())?;
    let method = format!("{:.0} MiB over the bandwidth above; floor: over the datasheet's", (3 * bytes) as f64 / MIB);
    // A GB/s is a thousand bytes a µs.
    Some(triad.time(("triad_time", "One triad"), (3 * bytes) as f64 / 1e3, Some(peak), method))
}

/// Arrays and kernels.
struct Bench<'a> {
    gpu: &'a Gpu,
    kernels: Module,
    /// Result, and the two that it is made from.
    a: Buffer,
    b: Buffer,
    c: Buffer,
    /// One word: the XOR of a read.
    out: Buffer,
    /// What is used of each array, bytes.
    bytes: u64,
    /// Rough bandwidth, bytes/s.
    rate: f64,
}

impl<'a> Bench<'a> {
    fn new(gpu: &'a Gpu, bytes: u64) -> Result<Self, Failure> {
        let (kernels, random) = (gpu.module(KERNELS)?, gpu.random_data()?);
        let bytes = bytes / 4096 * 4096;
        let bench = Self {
            a: gpu.buffer(bytes)?,
            b: gpu.buffer(bytes)?,
            c: gpu.buffer(bytes)?,
            out: gpu.buffer(8)?,
            gpu,
            kernels,
            bytes,
            rate: 0.0,
        };
        for (buffer, seed) in [(&bench.b, SEED_B), (&bench.c, SEED_C)] {
            random.fill_doubles(&gpu.stream, buffer, seed)?;
        }
        gpu.finish()?;
        Ok(bench)
    }

    /// Finds out how fast the memory is, and uses less of the arrays where a triad would take too long.
    fn shorten(&mut self) -> Result<Option<String>, Failure> {
        let trial = self.bytes.min(64 << 20);
        let shape = Shape::FOR_CACHE;
        let pass = self.pass(Op::Triad, self.kernel(Op::Triad, shape)?, shape, trial / 16, 1)?;
        self.gpu.stream.time(|stream| pass.give(stream))?;
        let us = self.gpu.stream.time(|stream| pass.give(stream))?;
        self.rate = (3 * trial) as f64 / us.max(0.5) * 1e6;
        let most = (self.rate * LONGEST_S / 3.0) as u64 / 4096 * 4096;
        if self.bytes <= most {
            return Ok(None);
        }
        self.bytes = most.max(4096);
        Ok(Some(format!(
            "{:.0} MiB of each array were used: more would keep the GPU for longer than 5 ms at a time",
            self.bytes as f64 / MIB
        )))
    }

    fn pass(&self, op: Op, kernel: Kernel, shape: Shape, pieces: u64, reps: u32) -> Result<Pass, Failure> {
        let into = if op == Op::Read { &self.out } else { &self.a };
        let args =
            [into.into(), (&self.b).into(), (&self.c).into(), Arg::U64(pieces), Arg::F64(SCALAR), Arg::U32(reps)];
        Ok(Pass { kernel, grid: shape.grid(pieces, self.gpu.sms()?), args })
    }

    fn kernel(&self, op: Op, shape: Shape) -> Result<Kernel, Failure> {
        self.kernels.kernel(&format!("{}_{}", op.name(), shape.suffix()))
    }

    /// The fastest shape for a kernel over the whole arrays.
    fn race(&self, link: &mut Link, plan: &Plan, op: Op) -> Result<Shape, Failure> {
        let mut best = (f64::INFINITY, Shape::ALL[0]);
        for shape in Shape::ALL {
            plan.tell(link, 0.0, &format!("{}: which loop is fastest", op.name()))?;
            let pass = self.pass(op, self.kernel(op, shape)?, shape, self.bytes / 16, 1)?;
            let mut times = [0.0; 4];
            for us in &mut times {
                *us = self.gpu.stream.time(|stream| pass.give(stream))?;
            }
            link.rest(times.iter().sum::<f64>() as u64)?;
            // The first pays for loading the kernel.
            let us = times[1..].iter().copied().fold(f64::INFINITY, f64::min);
            if us < best.0 {
                best = (us, shape);
            }
        }
        Ok(best.1)
    }

    /// Bandwidth over the whole arrays.
    fn dram(&self, link: &mut Link, plan: &mut Plan, op: Op, shape: Shape) -> Result<Option<Figure>, Failure> {
        let pass = self.pass(op, self.kernel(op, shape)?, shape, self.bytes / 16, 1)?;
        let bytes = self.bytes * op.arrays();
        // What was there before cannot be taken for a result.
        self.gpu.stream.fill(&self.a, 0xff)?;
        let label = capital(op.name());
        let series = Series { id: op.name(), unit: "GB/s", what: op.name() };
        let rates = self.rates(link, plan, series, &pass, bytes)?;
        let figure = Figure::median(op.name(), &label, "GB/s", Better::Higher, &rates);
        let method = format!(
            "{:.0} MiB arrays, {} bytes an element, {shape}; the fastest of {} shapes",
            self.bytes as f64 / MIB,
            8 * op.arrays(),
            Shape::ALL.len()
        );
        Ok(figure.map(|figure| figure.by(&method)))
    }

    /// Bandwidth over a part of the arrays, again and again: where it fits into L2, that of L2.
    fn working_set(&self, link: &mut Link, plan: &mut Plan, op: Op, mib: u64) -> Result<Option<Figure>, Failure> {
        let pieces = (mib << 20) / op.arrays() / 16;
        let bytes = pieces * 16 * op.arrays();
        let shape = Shape::FOR_CACHE;
        let kernel = self.kernel(op, shape)?;
        // As many rounds in a launch as would take a ms or two from DRAM: the time of a launch does not count then.
        let reps = ((self.rate * ROUNDS_S / bytes as f64) as u32).clamp(1, 2_000);
        let pass = self.pass(op, kernel, shape, pieces, reps)?;
        let id = format!("{}_{mib}mib", op.name());
        let what = format!("{} of {mib} MiB", op.name());
        let rates =
            self.rates(link, plan, Series { id: &id, unit: "GB/s", what: &what }, &pass, bytes * u64::from(reps))?;
        let figure = Figure::median(&id, &capital(&what), "GB/s", Better::Higher, &rates);
        Ok(figure.map(|figure| figure.by(&format!("{reps} rounds in a launch"))))
    }

    fn rates(
        &self,
        link: &mut Link,
        plan: &mut Plan,
        series: Series<'_>,
        pass: &Pass,
        bytes: u64,
    ) -> Result<Vec<f64>, Failure> {
        let launches = pass.launches(&self.gpu.stream)?;
        plan.repeat(link, series, || {
            let us = self.gpu.stream.time(|stream| (0..launches).try_for_each(|_| pass.give(stream)))?;
            Ok(((bytes * u64::from(launches)) as f64 / us / 1e3, us))
        })
    }

    /// Compares what the last pass left with the host's arithmetic.
    fn check(&self, op: Op, shape: Shape) -> Result<Check, Failure> {
        let what = format!("{}: compared with the host's arithmetic", op.name());
        let wrong = if op == Op::Read { self.wrong_sum(shape)? } else { self.wrong_words(op)? };
        Ok(Check { what, passed: wrong.is_empty(), detail: wrong })
    }

    /// Pieces from all over the result, word by word.
    fn wrong_words(&self, op: Op) -> Result<String, Failure> {
        const PIECE: usize = 1 << 20;
        let mut bytes = vec![0; PIECE.min(self.bytes as usize)];
        let pieces = 16.min(self.bytes / bytes.len() as u64);
        let (mut wrong, mut seen) = (0_u64, 0_u64);
        for piece in 0..pieces {
            // The last one ends where the array does.
            let at = (self.bytes - bytes.len() as u64) / pieces.max(2).saturating_sub(1) * piece / 8 * 8;
            self.a.read(at, &mut bytes)?;
            for (k, word) in bytes.chunks_exact(8).enumerate() {
                let i = at / 8 + k as u64;
                let (b, c) = (double(i, SEED_B), double(i, SEED_C));
                let right = match op {
                    Op::Write => SCALAR,
                    Op::Triad => SCALAR.mul_add(c, b),
                    Op::Copy | Op::Read => b,
                };
                seen += 1;
                wrong += u64::from(word != right.to_le_bytes());
            }
        }
        Ok(if wrong == 0 { String::new() } else { format!("{wrong} of {seen} words differ") })
    }

    /// The XOR of all words, of one launch of the loop that was measured.
    fn wrong_sum(&self, shape: Shape) -> Result<String, Failure> {
        self.gpu.stream.fill(&self.out, 0)?;
        self.pass(Op::Read, self.kernel(Op::Read, shape)?, shape, self.bytes / 16, 1)?.give(&self.gpu.stream)?;
        let (found, right) =
            (self.out.word(0)?, (0..self.bytes / 8).fold(0, |sum, i| sum ^ double(i, SEED_B).to_bits()));
        Ok(if found == right { String::new() } else { format!("the XOR of all words is {found:#x}, not {right:#x}") })
    }
}

/// Word `i` as the kernel `fill_doubles` writes it: a number from [1, 2).
fn double(i: u64, seed: u64) -> f64 {
    f64::from_bits((random(i, seed) >> 12) | 0x3ff0_0000_0000_0000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_of_every_loop_has_its_kernel() {
        for (op, shape) in Op::ALL.into_iter().flat_map(|op| Shape::ALL.map(|shape| (op, shape))) {
            let entry = format!(".visible .entry {}_{}(", op.name(), shape.suffix());
            assert!(KERNELS.contains(&entry), "{entry}");
        }
    }
}
