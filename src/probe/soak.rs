//! Products of matrices for minutes: what is left of the rate once the GPU is hot and at its power limit.
//!
//! The tensor cores are kept busy without a gap, a few products ahead and no more, so that a stop takes effect at once.
//! Clocks, temperature, power and the reasons that hold clocks down are what the program that watches reads meanwhile
//! (the timeline of the report); this process only says when what happened ([`super::report::timeline`]). Each second a
//! product is compared, bit by bit, with what the same operands gave before.

mod series;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::cuda::{Event, Gpu, with_context};
use super::gemm::bench::{Bench, Engine, PASS_US, bytes};
use super::gemm::format::Format;
use super::gemm::{LIBRARY, SIZE};
use super::report::timeline::{LOAD, ONSET, REST};
use super::{
    Better, Check, Cost, Failure, Figure, Kind, Link, Needs, Outcome, Param, Params, Probe, ProbeSpec, Target,
};
use series::{FALL, FIRST_S, Point, first, last, loss, median, onset, still_falls};

pub(super) const PROBE: Probe = Probe { spec: SPEC, run };

const SPEC: ProbeSpec = ProbeSpec {
    id: "soak",
    key: 's',
    name: "sustained load",
    help: "Matrix products for minutes: what the power limit and heat leave of the rate, when it falls, and why.",
    needs: Needs::Gpu,
    params: &[
        Param {
            name: "minutes",
            help: "how long the GPU is loaded, min",
            kind: Kind::Number { default: 3.0, least: 0.05, most: 120.0 },
        },
        Param {
            name: "cool",
            help: "how long it is watched cooling down afterwards, s",
            kind: Kind::Number { default: 30.0, least: 0.0, most: 900.0 },
        },
        SIZE,
        LIBRARY,
    ],
    cost,
    cool_ms: 60_000,
    headline: "bf16",
    hidden: false,
};

const FORMAT: Format = Format::Bf16;
/// How long a rate is measured for one point, s.
const POINT_S: f64 = 0.05;
/// So long each pass is a point of its own, s: the power limit takes hold within milliseconds.
const FINE_S: f64 = 0.2;
/// How often a rate is said and a product is compared, s.
const SAMPLE_S: f64 = 1.0;
/// Passes of up to 5 ms that the device has before it when it is its own.
const AHEAD: usize = 3;
/// Rest before the load, so that it begins on a cool chip.
const PAUSE: Duration = Duration::from_secs(1);

fn cost(params: &Params, _: &Target) -> Cost {
    Cost {
        seconds: 6.0 + params.number("minutes") * 60.0 + params.number("cool"),
        gpu_bytes: with_context(bytes(FORMAT, params.number("n") as u64, 2)),
        host_bytes: 512 << 20,
        watts: None,
        load: None,
        disturbs: "whatever computes on the GPU, for all that time; it draws power up to its limit and gets as hot as \
                   it ever does, and so do its neighbours"
            .to_owned(),
    }
}

/// What came of the load.
#[derive(Debug, Default)]
struct Load {
    /// The rate over time.
    points: Vec<Point>,
    /// The rate of each second.
    seconds: Vec<f64>,
    /// Digest of the product of each set of operands.
    digests: BTreeMap<usize, u64>,
    /// Products that were compared with an earlier one, and those that differed.
    compared: u64,
    differed: u64,
}

fn run(link: &mut Link, params: &Params) -> Result<Outcome, Failure> {
    link.progress(0.0, None, "starting CUDA")?;
    let gpu = Gpu::open(link)?;
    let engine = Engine::open(&gpu, params.word("library"))?;
    if let Some(why) = engine.lacks(FORMAT, gpu.capability()?) {
        return Err(Failure::Unavailable(format!("{} cannot be measured: {why}", FORMAT.label())));
    }
    let mut outcome = Outcome { facts: gpu.facts()?, ..Outcome::default() };
    outcome.facts.insert("matrix products by".to_owned(), engine.words());
    outcome.notes.extend(engine.note());
    let mut bench = Bench::fitting(link, &gpu, &engine, FORMAT, params.number("n") as u64)?;
    wait(link, PAUSE.as_secs_f64(), |link, _| link.progress(0.0, None, "letting the GPU cool"))?;

    let mut moment = |link: &Link, name: &str, later: f64| {
        outcome.moments.insert(name.to_owned(), link.micros() as f64 / 1e6 + later);
    };
    moment(link, LOAD, 0.0);
    let (load_s, cool_s) = (params.number("minutes") * 60.0, params.number("cool"));
    let load = load(link, &gpu, &mut bench, load_s, cool_s)?;
    moment(link, REST, 0.0);
    outcome.checks = bench.check(link)?;
    outcome.checks.extend(compared(&load));
    let fell = figures(&mut outcome, &load, &bench.method());
    if let (Some(began), Some(fell)) = (outcome.moments.get(LOAD).copied(), fell) {
        outcome.moments.insert(ONSET.to_owned(), began + fell);
    }
    // All that was taken is given back before the GPU is watched cooling down.
    drop(bench);
    drop(engine);
    drop(gpu);
    let all = load_s + cool_s;
    wait(link, cool_s, |link, rested| {
        link.progress((load_s + rested) / all, Some(cool_s - rested), "cooling down, nothing runs")
    })?;
    Ok(outcome)
}

/// Waits, and speaks meanwhile: it is given the time it has waited, s.
fn wait(
    link: &mut Link,
    seconds: f64,
    mut say: impl FnMut(&mut Link, f64) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let began = link.micros();
    loop {
        let waited = link.micros().saturating_sub(began) as f64 / 1e6;
        if waited >= seconds {
            return link.check();
        }
        say(link, waited)?;
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Operations and the time that the device was busy with them.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    since_s: f64,
    operations: f64,
    us: f64,
}

impl Done {
    fn tflops(self) -> f64 {
        self.operations / self.us / 1e6
    }
}

/// Keeps the tensor cores busy for `seconds`.
fn load(link: &mut Link, gpu: &Gpu, bench: &mut Bench<'_>, seconds: f64, cool_s: f64) -> Result<Load, Failure> {
    let products = bench.products_in(link, PASS_US)?;
    let operations = bench.operations() * f64::from(products);
    // Beside others it rests after each pass, which then cannot be ahead of itself.
    let ahead = if link.duty() < 1.0 { 0 } else { AHEAD };
    let began = link.micros();
    let mut flying: VecDeque<(Event, Event)> = VecDeque::new();
    let (mut out, mut point, mut second) = (Load::default(), Done::default(), Done::default());
    loop {
        let start = gpu.stream.mark()?;
        (0..products).try_for_each(|_| bench.give(&gpu.stream))?;
        flying.push_back((start, gpu.stream.mark()?));
        if flying.len() <= ahead {
            continue;
        }
        let Some((start, end)) = flying.pop_front() else { continue };
        let us = end.us_since(&start)?;
        let now_s = link.micros().saturating_sub(began) as f64 / 1e6;
        for done in [&mut point, &mut second] {
            done.operations += operations;
            done.us += us;
        }
        if now_s - point.since_s >= POINT_S || now_s < FINE_S {
            out.points.push(Point { at: point.since_s, rate: point.tflops() });
            point = Done { since_s: now_s, ..Done::default() };
        }
        if now_s - second.since_s >= SAMPLE_S {
            out.seconds.push(second.tflops());
            link.sample(FORMAT.name(), "TFLOP/s", second.tflops())?;
            second = Done { since_s: now_s, ..Done::default() };
            out.compare(bench)?;
        }
        link.progress(now_s / (seconds + cool_s), Some(seconds + cool_s - now_s), "loading the tensor cores")?;
        if now_s >= seconds {
            return Ok(out);
        }
        link.rest(us as u64)?;
    }
}

impl Load {
    /// Compares the product that was made last with what the same operands gave before.
    fn compare(&mut self, bench: &Bench<'_>) -> Result<(), Failure> {
        let (set, digest) = bench.digest()?;
        if let Some(before) = self.digests.insert(set, digest) {
            self.compared += 1;
            self.differed += u64::from(before != digest);
        }
        Ok(())
    }
}

/// `None` for a load so short that nothing came twice: a check that compares nothing cannot fail.
fn compared(load: &Load) -> Option<Check> {
    let (compared, differed) = (load.compared, load.differed);
    (compared > 0).then(|| Check {
        what: format!("{compared} products under load had the very bits that the same operands gave before"),
        passed: differed == 0,
        detail: if differed == 0 { String::new() } else { format!("{differed} differed") },
    })
}

/// Makes the figures and notes; says when the rate fell, s after the load began.
fn figures(outcome: &mut Outcome, load: &Load, method: &str) -> Option<f64> {
    let at_first = first(&load.points);
    let in_the_end = last(&load.points);
    let (before, after) = (median(&mut at_first.clone()), median(&mut in_the_end.clone()));
    let fell = onset(&load.points, before);
    let neither = |id: &str, label: &str, unit: &str, value: f64, method: String| {
        Figure::median(id, label, unit, Better::Neither, &[value]).map(|figure| figure.by(&method))
    };
    let rate = |id: &str, label: &str, values: &[f64], when: &str| {
        let figure = Figure::median(id, label, "TFLOP/s", Better::Higher, values);
        figure.map(|figure| figure.by(&format!("{when}; {method}")))
    };
    outcome.figures.extend(rate(FORMAT.name(), "bf16, sustained", &in_the_end, "the last third of the time"));
    outcome.figures.extend(rate("first", "bf16, at first", &at_first, &format!("the first {:.0} ms", FIRST_S * 1e3)));
    outcome.figures.extend(neither("loss", "Loss", "%", loss(before, after), "of the first rate".to_owned()));
    let fall = FALL * 100.0;
    match fell {
        Some(at) => {
            let how = format!("after the load began the rate had fallen by more than {fall:.0} % for good");
            outcome.figures.extend(neither("onset", "Onset", "s", at, how));
        }
        None => outcome
            .notes
            .push(format!("no onset: the rate stayed within {fall:.0} % of the first {:.0} ms", FIRST_S * 1e3)),
    }
    if still_falls(&load.points) {
        outcome.notes.push("the rate still fell in the end: load it for longer".to_owned());
    }
    fell
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(rate: impl Fn(f64) -> f64) -> (Outcome, Option<f64>) {
        let points = (0..400).map(|i| f64::from(i) * 0.05).map(|at| Point { at, rate: rate(at) }).collect();
        let load = Load { points, ..Load::default() };
        let mut outcome = Outcome::default();
        let fell = figures(&mut outcome, &load, "by hand");
        (outcome, fell)
    }

    #[test]
    fn a_fall_has_its_figures() {
        let (outcome, fell) = found(|at| if at < 1.0 { 800.0 } else { 680.0 });
        let value = |id: &str| outcome.figures.iter().find(|figure| figure.id == id).map(|figure| figure.value);
        assert_eq!((value("bf16"), value("first")), (Some(680.0), Some(800.0)));
        assert!((value("loss").unwrap() - 15.0).abs() < 1e-9);
        assert!((value("onset").unwrap() - 1.0).abs() < 0.11 && value("onset") == fell);
        assert_eq!((outcome.notes.len(), outcome.figures[0].id.as_str()), (0, SPEC.headline));
    }

    #[test]
    fn without_a_fall_there_is_no_onset_but_a_note() {
        let (outcome, fell) = found(|_| 700.0);
        assert_eq!(fell, None);
        assert!(outcome.figures.iter().all(|figure| figure.id != "onset"));
        assert!(outcome.notes[0].starts_with("no onset"), "{:?}", outcome.notes);
    }

    #[test]
    fn a_rate_that_is_not_settled_is_said_to_be_so() {
        let (outcome, _) = found(|at| 800.0 - 10.0 * at);
        assert!(outcome.notes.iter().any(|note| note.contains("still fell")), "{:?}", outcome.notes);
    }

    #[test]
    fn other_bits_are_a_failed_check() {
        let check = |differed| compared(&Load { compared: 9, differed, ..Load::default() }).unwrap();
        assert!(!check(1).passed && check(1).detail.contains("1 differed") && check(0).passed);
        assert_eq!(compared(&Load::default()), None, "nothing was compared");
    }
}
