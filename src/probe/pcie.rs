//! The way between host and GPU: bandwidth each way and both ways at once, latency of small copies, and the link.
//!
//! Large copies are timed as nvbandwidth does: several between two events, behind one that keeps the copy engine busy
//! until all of them have been given, so that the host's calls do not count. Page-locked memory lies on the NUMA node of
//! the GPU. The link's generation and width are read while data flows, since an idle link is slowed down.

use std::cell::RefCell;

use super::cuda::{Event, Gpu, with_context};
use super::lane::{Lane, Way, overlap};
use super::pci::{self, Link as PciLink};
use super::place::Place;
use super::plan::{Plan, Series};
use super::topology::Bound;
use super::{Better, Cost, Failure, Figure, Kind, Link, MIB, Needs, Outcome, Param, Params, Probe, ProbeSpec, Target};

pub(super) const PROBE: Probe = Probe { spec: SPEC, run };

const SPEC: ProbeSpec = ProbeSpec {
    id: "pcie",
    key: 'i',
    name: "PCIe",
    help: "Copies between host and GPU: bandwidth each way and both ways at once, from page-locked and ordinary memory, \
           latency of small ones; generation and width of the link under load.",
    needs: Needs::Gpu,
    params: &[
        Param {
            name: "mib",
            help: "host memory that is copied from, and as much that is copied to, MiB",
            kind: Kind::Number { default: 256.0, least: 128.0, most: 4_096.0 },
        },
        Param {
            name: "seconds",
            help: "time for each figure, s",
            kind: Kind::Number { default: 0.25, least: 0.02, most: 60.0 },
        },
    ],
    cost,
    cool_ms: 5_000,
    headline: "h2d",
    hidden: false,
};

/// Copies between two events: each from a place of its own.
const LAP: u64 = 4;
/// Small copies, bytes.
const SMALL: [u64; 3] = [4, 4 << 10, 64 << 10];
/// Small copies that the host waits for one by one make a measurement.
const BATCH: u32 = 200;
/// Small copies in a row on the device make a measurement, if the host can give as many while one large copy runs.
const ROW: u64 = 128;
/// Steps: each way pinned and pageable, both ways, and small ones each way, seen from the host and from the device.
const STEPS: usize = 5 + SMALL.len() * 4;

fn cost(params: &Params, _: &Target) -> Cost {
    let bytes = (params.number("mib") * MIB) as u64;
    Cost {
        // The driver starts; memory is taken, filled and compared, at some GB/s each.
        seconds: 2.0 + (STEPS + 2) as f64 * params.number("seconds") * 1.3 + bytes as f64 / 2e8,
        gpu_bytes: with_context(bytes * 2 + (1 << 20)),
        host_bytes: bytes * 2,
        watts: None,
        load: None,
        disturbs: "copies between host and GPU: KV offloading, weights that are loaded, inputs; and the host's memory"
            .to_owned(),
    }
}

fn run(link: &mut Link, params: &Params) -> Result<Outcome, Failure> {
    link.progress(0.0, None, "starting CUDA")?;
    let gpu = Gpu::open(link)?;
    let mut outcome = Outcome { facts: gpu.facts()?, ..Outcome::default() };
    let place = Place::of(&gpu, &mut outcome)?;
    let _near = place.bind(&mut outcome);
    let bytes = (params.number("mib") * MIB) as u64 / 4096 * 4096;
    let steps = STEPS + if place.far.is_some() { 2 } else { 0 };
    let plan = Plan::new(steps, params.number("seconds"));
    let mut bench = Bench { gpu: &gpu, bytes, plan, outcome, seen: RefCell::new(place.links()) };
    bench.tell_links("PCIe link when idle");
    bench.pinned(link, &place)?;
    for way in Way::BOTH {
        bench.pageable(link, way)?;
    }
    if let Some((node, cpus)) = &place.far {
        for way in Way::BOTH {
            bench.remote(link, way, *node, cpus)?;
        }
    }
    Ok(bench.outcome)
}

/// What is measured so far.
struct Bench<'a> {
    gpu: &'a Gpu,
    /// Host memory of a lane, bytes.
    bytes: u64,
    plan: Plan,
    outcome: Outcome,
    /// The links as they were read last.
    seen: RefCell<Vec<PciLink>>,
}

impl Bench<'_> {
    /// Everything from page-locked memory next to the GPU.
    fn pinned(&mut self, link: &mut Link, place: &Place) -> Result<(), Failure> {
        let gpu = self.gpu;
        let mut lanes = Vec::new();
        for way in Way::BOTH {
            self.plan.tell(link, 0.0, "taking page-locked memory")?;
            lanes.push(Lane::new(gpu, way, gpu.pinned(self.bytes)?)?);
        }
        for lane in &mut lanes {
            let way = lane.way();
            let read = || drop(self.seen.replace(place.links()));
            let rates = large(link, &mut self.plan, lane, self.bytes, way.id(), read)?;
            self.figure(way.id(), way.words(), &rates.values, &rates.method("page-locked memory"));
            self.late(lane, way.words());
            self.outcome.checks.push(lane.check(&format!("{}: every word", way.words()), rates.piece * LAP)?);
        }
        self.links();
        let covered = if let [a, b] = &mut lanes[..] { self.both(link, a, b)? } else { 0 };
        for lane in &mut lanes {
            let what = format!("{} while both ways run: every word", lane.way().words());
            self.outcome.checks.push(lane.check(&what, covered)?);
            for bytes in SMALL {
                self.outcome.checks.push(lane.check_small(bytes)?);
                self.small(link, lane, bytes)?;
            }
        }
        Ok(())
    }

    /// Both ways at once; returns how many bytes were copied each way, on top of poison.
    fn both(&mut self, link: &mut Link, a: &mut Lane<'_>, b: &mut Lane<'_>) -> Result<u64, Failure> {
        let bytes = piece(a, self.bytes)?.min(piece(b, self.bytes)?);
        // Looking for that size has copied as well.
        a.poison()?;
        b.poison()?;
        let (a, b) = (&*a, &*b);
        let mut each = [Vec::new(), Vec::new()];
        let series = Series { id: "both", unit: "GB/s", what: "both ways" };
        let sums = self.plan.repeat(link, series, || {
            let base = a.stream().mark()?;
            b.stream().after(&base)?;
            let mut marks: [Vec<Event>; 2] = [Vec::new(), Vec::new()];
            for i in 0..=LAP {
                for (lane, marks) in [a, b].into_iter().zip(&mut marks) {
                    // The first keeps the engine busy until all is given.
                    lane.give(i % LAP * bytes, bytes)?;
                    marks.push(lane.stream().mark()?);
                }
            }
            let mut times = [Vec::new(), Vec::new()];
            for (times, marks) in times.iter_mut().zip(&marks) {
                for mark in marks {
                    times.push(mark.us_since(&base)?);
                }
            }
            let rates = overlap(&times[0], &times[1], bytes as f64).map(|rate| rate / 1e3);
            each.iter_mut().zip(rates).for_each(|(rates, rate)| rates.push(rate));
            let busy = times.iter().filter_map(|times| times.last().copied()).fold(0.0, f64::max);
            Ok((rates[0] + rates[1], busy))
        })?;
        let method = format!(
            "{LAP} copies of {:.0} MiB each way at once, both between events of the GPU; counted while both ran",
            bytes as f64 / MIB
        );
        self.figure("both", "Both ways, sum", &sums, &method);
        for (way, rates) in Way::BOTH.into_iter().zip(&each) {
            // The first was the one that does not count.
            let label = format!("{}, both ways at once", way.words());
            self.figure(&format!("{}_both", way.id()), &label, rates.get(1..).unwrap_or_default(), &method);
        }
        Ok(bytes * LAP)
    }

    /// A small copy: as the host sees one that it waits for, and as the device does many in a row.
    fn small(&mut self, link: &mut Link, lane: &Lane<'_>, bytes: u64) -> Result<(), Failure> {
        let (way, size) = (lane.way(), size(bytes));
        let id = match bytes {
            4 => format!("{}_latency", way.id()),
            _ => format!("{}_latency_{}", way.id(), size.to_ascii_lowercase().replace(' ', "")),
        };
        let label = format!("{}, {size}, waited for", way.words());
        let clock = link.clock();
        let times = self.plan.repeat(link, Series { id: &id, unit: "µs", what: &label }, || {
            let began = clock.micros();
            for _ in 0..BATCH {
                lane.give(0, bytes)?;
                lane.stream().finish()?;
            }
            let us = clock.micros().saturating_sub(began) as f64;
            Ok((us / f64::from(BATCH), us))
        })?;
        let method = format!("from the call to its end by the host's clock, mean of {BATCH} one after another");
        let figure = Figure::median(&id, &label, "µs", Better::Lower, &times);
        self.outcome.figures.extend(figure.map(|figure| figure.by(&method)));
        self.row(link, lane, bytes, &size)
    }

    fn row(&mut self, link: &mut Link, lane: &Lane<'_>, bytes: u64, size: &str) -> Result<(), Failure> {
        let before = piece(lane, self.bytes)?;
        let mut count = ROW;
        loop {
            lane.was_late();
            lane.pass(before, bytes, count, || ())?;
            lane.pass(before, bytes, count, || ())?;
            if !lane.was_late() || count <= 8 {
                break;
            }
            count /= 2;
        }
        let id = format!("{}_device_{}", lane.way().id(), size.to_ascii_lowercase().replace(' ', ""));
        let label = format!("{}, {size}, on the device", lane.way().words());
        let times = self.plan.repeat(link, Series { id: &id, unit: "µs", what: &label }, || {
            let timed = lane.pass(before, bytes, count, || ())?;
            Ok((timed.us / count as f64, timed.busy_us))
        })?;
        let method = format!("{count} in a row between two events of the GPU, given while a large copy ran");
        let figure = Figure::median(&id, &label, "µs", Better::Lower, &times);
        self.outcome.figures.extend(figure.map(|figure| figure.by(&method)));
        self.late(lane, &label);
        Ok(())
    }

    /// From ordinary memory, which the driver copies through a page-locked block of its own: the host's time counts.
    fn pageable(&mut self, link: &mut Link, way: Way) -> Result<(), Failure> {
        let id = format!("{}_pageable", way.id());
        let label = format!("{}, pageable", way.words());
        self.plan.tell(link, 0.0, &label)?;
        let mut lane = Lane::new(self.gpu, way, self.gpu.pageable(self.bytes))?;
        let bytes = piece(&lane, self.bytes)?;
        let clock = link.clock();
        let rates = self.plan.repeat(link, Series { id: &id, unit: "GB/s", what: &label }, || {
            let began = clock.micros();
            (0..LAP).try_for_each(|i| lane.give(i * bytes, bytes))?;
            lane.stream().finish()?;
            let us = clock.micros().saturating_sub(began).max(1) as f64;
            Ok(((LAP * bytes) as f64 / us / 1e3, us))
        })?;
        let method = format!(
            "{LAP} copies of {:.0} MiB of ordinary memory, from the call to their end by the host's clock",
            bytes as f64 / MIB
        );
        self.figure(&id, &label, &rates, &method);
        self.outcome.checks.push(lane.check(&format!("{label}: every word"), bytes * LAP)?);
        Ok(())
    }

    /// From page-locked memory of another NUMA node.
    fn remote(&mut self, link: &mut Link, way: Way, node: usize, cpus: &[usize]) -> Result<(), Failure> {
        let (id, label) = (format!("{}_remote", way.id()), format!("{}, remote node", way.words()));
        self.plan.tell(link, 0.0, &label)?;
        let memory = {
            // Only while memory is taken: a thread far from the GPU also reads its clock late.
            let Some(_far) = Bound::to(cpus) else {
                self.plan.step();
                self.outcome
                    .notes
                    .push(format!("this process may not run on node {node}: its memory was not measured"));
                return Ok(());
            };
            self.gpu.pinned(self.bytes)?
        };
        let mut lane = Lane::new(self.gpu, way, memory)?;
        let rates = large(link, &mut self.plan, &lane, self.bytes, &id, || ())?;
        self.figure(&id, &label, &rates.values, &rates.method(&format!("page-locked memory of node {node}")));
        self.outcome.checks.push(lane.check(&format!("{label}: every word"), rates.piece * LAP)?);
        Ok(())
    }

    fn figure(&mut self, id: &str, label: &str, rates: &[f64], method: &str) {
        let figure = Figure::median(id, label, "GB/s", Better::Higher, rates);
        self.outcome.figures.extend(figure.map(|figure| figure.by(method)));
    }

    fn late(&mut self, lane: &Lane<'_>, what: &str) {
        if lane.was_late() {
            self.outcome.notes.push(format!(
                "{what}: the host was too slow to give all copies while one ran, so that its calls are part of the time"
            ));
        }
    }

    /// Says what the links were under load, what they promise, and what is wrong with them.
    fn links(&mut self) {
        self.tell_links("PCIe link under load");
        let links = self.seen.borrow();
        let Some(slowest) = pci::slowest(&links).map(|link| link.now) else {
            self.outcome.notes.push(
                "this machine does not show generation and width of the GPU's link (many virtual machines do not): the \
                 figures are held against the link of the product"
                    .to_owned(),
            );
            return;
        };
        for id in ["h2d", "d2h", "h2d_both", "d2h_both"] {
            self.outcome.promised.insert(id.to_owned(), slowest.gb_per_s());
        }
        self.outcome.promised.insert("both".to_owned(), slowest.gb_per_s() * 2.0);
        let generation = slowest.generation().map(|generation| generation as f64);
        for (id, label, unit, value) in [
            ("link_generation", "PCIe generation under load", "gen", generation),
            ("link_lanes", "PCIe width under load", "lanes", Some(f64::from(slowest.lanes()))),
        ] {
            let figure = value.and_then(|value| Figure::median(id, label, unit, Better::Neither, &[value]));
            self.outcome.figures.extend(figure);
        }
        self.outcome.advice.extend(pci::advice(&links));
    }

    fn tell_links(&mut self, name: &str) {
        let words: Vec<String> = self.seen.borrow().iter().map(ToString::to_string).collect();
        let words = if words.is_empty() { "not told by this machine".to_owned() } else { words.join("; above it: ") };
        self.outcome.facts.insert(name.to_owned(), words);
    }
}

/// Rates of large copies.
struct Rates {
    /// GB/s.
    values: Vec<f64>,
    /// Size of one copy, bytes.
    piece: u64,
}

impl Rates {
    fn method(&self, memory: &str) -> String {
        format!("{LAP} copies of {:.0} MiB of {memory} between two events of the GPU", self.piece as f64 / MIB)
    }
}

/// Bandwidth of large copies of a lane, timed on the device. `meanwhile` is called while they run.
fn large(
    link: &mut Link,
    plan: &mut Plan,
    lane: &Lane<'_>,
    bytes: u64,
    id: &str,
    meanwhile: impl Fn(),
) -> Result<Rates, Failure> {
    let piece = piece(lane, bytes)?;
    lane.was_late();
    let values = plan.repeat(link, Series { id, unit: "GB/s", what: lane.way().words() }, || {
        let timed = lane.pass(piece, piece, LAP, &meanwhile)?;
        Ok(((LAP * piece) as f64 / timed.us / 1e3, timed.busy_us))
    })?;
    Ok(Rates { values, piece })
}

/// Size of one large copy, bytes: at most 64 MiB, less than 5 ms, and [`LAP`] of them in what there is.
fn piece(lane: &Lane<'_>, bytes: u64) -> Result<u64, Failure> {
    let most = (bytes / LAP).min(64 << 20);
    // The power of two below.
    lane.piece(1 << most.max(1).ilog2())
}

/// `4 B`, `64 KiB`.
fn size(bytes: u64) -> String {
    if bytes < 1024 { format!("{bytes} B") } else { format!("{} KiB", bytes >> 10) }
}
