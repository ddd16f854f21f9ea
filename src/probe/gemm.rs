//! Products of dense matrices: the rate of the tensor cores in each number format that the GPU has.
//!
//! C = A · Bᵀ of random n × n matrices, added up in fp32, by cuBLASLt where it is found and an own kernel elsewhere. The
//! rate is that of a cool GPU: some tenths of a second, before the power limit pulls the clocks; what is left after
//! minutes is `soak`'s figure.

pub(in crate::probe) mod bench;
mod check;
pub(in crate::probe) mod format;

use std::time::Duration;

use super::cuda::{Gpu, with_context};
use super::plan::Plan;
use super::{
    Better, Cost, Failure, Figure, Kind, Link, Needs, Outcome, Param, Params, Probe, ProbeSpec, Target, reference,
};
use bench::{Bench, Engine, PASS_US, bytes};
use format::Format;

pub(super) const PROBE: Probe = Probe { spec: SPEC, run };

const SPEC: ProbeSpec = ProbeSpec {
    id: "gemm",
    key: 't',
    name: "matrix products",
    help: "Rate of dense matrix products on the tensor cores (bf16, fp16, TF32, fp8): what prefill is bound by.",
    needs: Needs::Gpu,
    params: &[
        SIZE,
        LIBRARY,
        Param {
            name: "format",
            help: "the one number format to measure, or all that the GPU has",
            kind: Kind::Choice { default: "all", of: &["all", "bf16", "fp16", "tf32", "fp8"] },
        },
        Param {
            name: "bursts",
            help: "bursts for each format, of 20 ms each",
            kind: Kind::Count { default: 7.0, least: 3.0, most: 1_000.0 },
        },
        Param {
            name: "pause",
            help: "rest before each burst, s, for the GPU to cool and its power limit to let go",
            kind: Kind::Number { default: 0.5, least: 0.0, most: 60.0 },
        },
    ],
    cost,
    cool_ms: 10_000,
    headline: "bf16",
    hidden: false,
};

/// How long a burst is, µs. On an H200 at its power limit clocks begin to fall after some 35 ms.
const BURST_US: f64 = 20_000.0;
/// Products before a burst that do not count.
const WARM_UP: u32 = 3;

/// Side of the matrices, for this probe and for `soak`.
pub(super) const SIZE: Param = Param {
    name: "n",
    help: "side of the matrices, at most; smaller where a product would take more than 5 ms",
    kind: Kind::Count { default: 8_192.0, least: 256.0, most: 16_384.0 },
};

/// Who multiplies, for this probe and for `soak`.
pub(super) const LIBRARY: Param = Param {
    name: "library",
    help: "cuBLASLt where it is found (auto), the own kernel for this GPU, or the one for any GPU",
    kind: Kind::Choice { default: "auto", of: &["auto", "own", "portable"] },
};

/// Those that are asked for.
fn formats(params: &Params) -> impl Iterator<Item = Format> {
    let word = params.word("format").to_owned();
    Format::ALL.into_iter().filter(move |format| word == "all" || word == format.name())
}

fn cost(params: &Params, _: &Target) -> Cost {
    let n = params.number("n") as u64;
    let each = params.number("bursts") * (params.number("pause") + BURST_US / 1e6 * 1.2) + 1.0;
    Cost {
        // The driver starts, the library loads, and each format is checked.
        seconds: 4.0 + formats(params).count() as f64 * each,
        gpu_bytes: with_context(formats(params).map(|format| bytes(format, n, 2)).max().unwrap_or(0)),
        host_bytes: 512 << 20,
        watts: None,
        load: None,
        disturbs: "whatever computes on the GPU: it gets the tensor cores only between products of up to 5 ms, and \
                   clocks fall at the power limit"
            .to_owned(),
    }
}

fn run(link: &mut Link, params: &Params) -> Result<Outcome, Failure> {
    link.progress(0.0, None, "starting CUDA")?;
    let gpu = Gpu::open(link)?;
    let engine = Engine::open(&gpu, params.word("library"))?;
    let mut outcome = Outcome { facts: gpu.facts()?, ..Outcome::default() };
    outcome.facts.insert("matrix products by".to_owned(), engine.words());
    outcome.notes.extend(engine.note());
    let capability = gpu.capability()?;
    let bursts = params.number("bursts") as usize;
    let mut plan = Plan::new(formats(params).count() * bursts, params.number("pause") + BURST_US / 1e6);
    for format in formats(params) {
        let bench = match engine.lacks(format, capability) {
            None => Bench::fitting(link, &gpu, &engine, format, params.number("n") as u64),
            Some(why) => Err(Failure::Unavailable(why)),
        };
        let bench = match bench {
            // What is missing is one format; the others are measured.
            Err(Failure::Unavailable(why)) => {
                outcome.notes.push(format!("{}: not measured: {why}", format.label()));
                (0..bursts).for_each(|_| plan.step());
                continue;
            }
            bench => bench?,
        };
        measure(link, &mut plan, params, &gpu, format, bench, &mut outcome)?;
    }
    if outcome.figures.is_empty() {
        return Err(Failure::Unavailable(outcome.notes.join("; ")));
    }
    Ok(outcome)
}

fn measure(
    link: &mut Link,
    plan: &mut Plan,
    params: &Params,
    gpu: &Gpu,
    format: Format,
    mut bench: Bench<'_>,
    outcome: &mut Outcome,
) -> Result<(), Failure> {
    // Beside others a burst is no longer than one kernel may be.
    let products = bench.products_in(link, if link.duty() < 1.0 { PASS_US } else { BURST_US })?;
    let mut rates = Vec::new();
    while rates.len() < params.number("bursts") as usize {
        plan.tell(link, 0.0, format.label())?;
        pause(link, params.number("pause"))?;
        // The first products bring the clocks up.
        let warm_up = bench.pass(WARM_UP)?;
        let us = bench.pass(products)?;
        let rate = bench.operations() * f64::from(products) / us / 1e6;
        rates.push(rate);
        link.sample(format.name(), "TFLOP/s", rate)?;
        plan.step();
        link.rest((warm_up + us) as u64)?;
    }
    let figure = Figure::median(format.name(), format.label(), "TFLOP/s", Better::Higher, &rates);
    let figure = figure.map(|figure| figure.by(&format!("{}; bursts of {products}", bench.method())));
    let time = figure.as_ref().map(|figure| time(gpu, format, bench.n(), figure));
    outcome.figures.extend(figure);
    outcome.figures.extend(time);
    if bench.n() < params.number("n") as u64 / 256 * 256 {
        let n = bench.n();
        let label = format.label();
        outcome.notes.push(format!("{label}: n is {n}: more would take more than 5 ms a product, or too much memory"));
    }
    outcome.checks.extend(bench.check(link)?);
    Ok(())
}

/// Lets the GPU cool.
fn pause(link: &Link, seconds: f64) -> Result<(), Failure> {
    let (began, us) = (link.micros(), (seconds * 1e6) as u64);
    while link.micros().saturating_sub(began) < us {
        link.check()?;
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Time of one product beside the least that the datasheet's rate leaves.
fn time(gpu: &Gpu, format: Format, n: u64, rate: &Figure) -> Figure {
    let operations = 2.0 * (n as f64).powi(3);
    let (id, label) = (format!("{}_time", format.name()), format!("One product in {}", format.label()));
    let method = format!("2 × {n}³ operations over the rate above; floor: over the datasheet's");
    let peak = reference::datasheet(&gpu.name.name, SPEC.id, format.name());
    // A TFLOP/s is a million operations a µs.
    rate.time((&id, &label), operations / 1e6, peak, method)
}
