//! Overhead of launches: in a stream, in graphs, and there and back. Host and device apart.
//!
//! The empty kernel does nothing, so all that is timed is the launch. Three ways to time one: from the first call until
//! the device is done (what a program sees), the calls alone into a queue that is empty, and the device alone from a queue
//! that is full before it may begin. A kernel that counts proves that each of these ways runs every launch.

mod host;
mod work;

use super::cuda::{Buffer, Gpu, Grid, Kernel, random, with_context};
use super::plan::{Plan, Series};
use super::{
    Better, Check, Cost, Failure, Figure, Kind, Link, Needs, Outcome, Param, Params, Probe, ProbeSpec, Target,
    reference, topology,
};
use host::{Place, Seen};
use work::{Timer, Work};

pub(super) const PROBE: Probe = Probe { spec: SPEC, run };

const SPEC: ProbeSpec = ProbeSpec {
    id: "launch",
    key: 'l',
    name: "launches",
    help: "What it takes to launch a kernel: in a stream, in a graph, and with waiting for it; host and GPU apart. What \
           decode at small batches is bound by when nothing else is.",
    needs: Needs::Gpu,
    params: &[Param {
        name: "seconds",
        help: "time for each figure, s",
        kind: Kind::Number { default: 0.5, least: 0.02, most: 60.0 },
    }],
    cost,
    cool_ms: 5_000,
    headline: "plain",
    hidden: false,
};

const KERNELS: &str = include_str!("../../assets/kernels/launch.ptx");
/// Nodes of the graphs, the one that stands for all of them first.
const GRAPHS: [u32; 3] = [100, 10, 1000];
/// Launches in a row, on a GPU that nobody else uses.
const BURST: u32 = 10_000;
/// And beside others: a millisecond or two of them.
const BURST_BESIDE: u32 = 1_000;
/// Round trips in a measurement.
const TRIPS: u32 = 200;
/// Numbers that the smallest kernel quarters: it reads 32 KiB and writes 32 KiB.
const NUMBERS: u32 = 4096;
const SEED: u64 = 0x1a;
/// Figures: three ways of plain launches and of each graph, the round trip, the small kernel in two ways.
const STEPS: usize = 3 + 3 * GRAPHS.len() + 3;

fn cost(params: &Params, _: &Target) -> Cost {
    Cost {
        // The driver starts and compiles. Calls into an empty queue wait for the device in between.
        seconds: 3.0 + STEPS as f64 * params.number("seconds") * 1.3,
        gpu_bytes: with_context(16 << 20),
        host_bytes: 256 << 20,
        watts: None,
        load: None,
        disturbs:
            "whatever computes on the GPU, a little: it takes turns with kernels that do nothing; one CPU is busy"
                .to_owned(),
    }
}

fn run(link: &mut Link, params: &Params) -> Result<Outcome, Failure> {
    link.progress(0.0, None, "starting CUDA")?;
    let gpu = Gpu::open(link)?;
    // After the driver has started its threads: those stay where they are.
    let place = Place::take(&gpu.pci_address()?);
    let before = Seen::now(place.cpu);
    let bench = Bench::new(&gpu, link)?;
    let mut plan = Plan::new(STEPS, params.number("seconds"));
    let mut outcome = Outcome::default();
    bench.plain(link, &mut plan, &mut outcome)?;
    for nodes in GRAPHS {
        bench.graph(link, &mut plan, nodes, &mut outcome)?;
    }
    bench.small(link, &mut plan, &mut outcome)?;
    let seen = Seen::now(place.cpu);
    // Which side is slower says how fast CPU and GPU are, not that anything is wrong; a cause can be mended.
    outcome.notes.extend(side(&outcome.figures));
    let causes = seen.causes(&before, &place);
    // Beside others launches take longer, and nothing is wrong.
    if link.duty() >= 1.0 && is_slow(&gpu.name.name, &outcome.figures) {
        outcome.advice.extend(causes);
    } else {
        outcome.notes.extend(causes);
    }
    if cfg!(debug_assertions) {
        outcome.notes.push("built without optimisation: the host's share is larger than it ought to be".to_owned());
    }
    outcome.facts = gpu.facts()?;
    outcome.facts.insert("launching thread".to_owned(), place.words());
    for (name, text) in [("CPU", topology::cpu_model()), ("CPU frequency governor", seen.governor)] {
        outcome.facts.extend(text.map(|text| (name.to_owned(), text)));
    }
    Ok(outcome)
}

/// Whether a launch takes longer than it did elsewhere on the same product, by more than the verdict lets pass.
fn is_slow(model: &str, figures: &[Figure]) -> bool {
    let known =
        figures.iter().filter_map(|figure| Some((figure.value, reference::of(model, SPEC.id, &figure.id)?.value)));
    known.into_iter().any(|(value, reference)| value > reference / 0.95)
}

/// Which side plain launches wait for.
fn side(figures: &[Figure]) -> Option<String> {
    let value = |id: &str| figures.iter().find(|figure| figure.id == id).map(|figure| figure.value);
    let (host, device, node) = (value("plain_host")?, value("plain_device")?, value("graph")?);
    let times = format!("to submit a launch takes the CPU {host:.2} µs, to run it the GPU {device:.2} µs");
    Some(if host > device * 1.1 {
        format!("the host is the slower side: {times}; a graph, at {node:.2} µs a node, spares the CPU that")
    } else if device > host * 1.1 {
        format!("the GPU is the slower side: {times}; a faster CPU would not help")
    } else {
        format!("host and GPU keep pace: {times}")
    })
}

/// How a figure is made: the way to time, what, and the words for it.
struct Wanted<'a> {
    id: String,
    label: String,
    method: String,
    work: &'a Work<'a>,
}

struct Bench<'a> {
    gpu: &'a Gpu,
    timer: Timer,
    empty: Kernel,
    count: Kernel,
    quarter: Kernel,
    /// Launches in a row.
    burst: u32,
    /// What `count` counts in.
    counter: Buffer,
}

const ONE: Grid = Grid::new(1, 1);

impl<'a> Bench<'a> {
    fn new(gpu: &'a Gpu, link: &Link) -> Result<Self, Failure> {
        let module = gpu.module(KERNELS)?;
        Ok(Self {
            gpu,
            timer: Timer::new(&gpu.stream, module.kernel("hold")?, link.clock()),
            empty: module.kernel("empty")?,
            count: module.kernel("count")?,
            quarter: module.kernel("quarter")?,
            burst: if link.duty() < 1.0 { BURST_BESIDE } else { BURST },
            counter: gpu.buffer(8)?,
        })
    }

    /// Launches in a stream, in the three ways, and there and back.
    fn plain(&self, link: &mut Link, plan: &mut Plan, outcome: &mut Outcome) -> Result<(), Failure> {
        let work = Work::Kernel { kernel: &self.empty, grid: ONE, args: &[] };
        let wanted = Wanted {
            id: "plain".to_owned(),
            label: "Plain launch".to_owned(),
            method: format!("{} launches of an empty kernel in a row, until the GPU is done", self.burst),
            work: &work,
        };
        outcome.figures.extend(self.throughput(link, plan, &wanted)?);
        self.apart(link, plan, &wanted, outcome)?;
        let (id, label) = ("sync", "Launch and wait");
        let trips = plan.repeat(link, Series { id, unit: "µs", what: label }, || {
            let us = self.timer.trips(&work, TRIPS)?;
            Ok((us, us * f64::from(TRIPS)))
        })?;
        let method = format!("one launch and the wait for it, mean of {TRIPS} round trips");
        outcome.figures.extend(figure(id, label, &trips, &method));
        outcome.checks.push(self.counted("plain launches", self.burst, |arg| {
            self.gpu.stream.launch_times(self.burst, &self.count, ONE, &[arg])
        })?);
        Ok(())
    }

    /// A graph, in the three ways.
    fn graph(&self, link: &mut Link, plan: &mut Plan, nodes: u32, outcome: &mut Outcome) -> Result<(), Failure> {
        let graph = self.gpu.stream.graph(nodes, &self.empty, ONE, &[])?;
        let work = Work::Graph { graph: &graph, nodes };
        let times = (self.burst / nodes).max(1);
        let wanted = Wanted {
            id: if nodes == GRAPHS[0] { "graph".to_owned() } else { format!("graph_{nodes}") },
            label: format!("Node of a graph of {nodes}"),
            method: format!("{times} launches in a row of a graph of {nodes} empty kernels, until the GPU is done"),
            work: &work,
        };
        outcome.figures.extend(self.throughput(link, plan, &wanted)?);
        self.apart(link, plan, &Wanted { label: format!("Graph of {nodes}"), ..wanted }, outcome)?;
        outcome.checks.push(self.counted(&format!("launches in graphs of {nodes}"), times * nodes, |arg| {
            self.gpu.stream.graph(nodes, &self.count, ONE, &[arg])?.launch_times(times)
        })?);
        Ok(())
    }

    /// The smallest kernel that does something, in a stream and in the longest graph.
    fn small(&self, link: &mut Link, plan: &mut Plan, outcome: &mut Outcome) -> Result<(), Failure> {
        let bytes = u64::from(NUMBERS) * 8;
        let (to, from) = (self.gpu.buffer(bytes)?, self.gpu.buffer(bytes)?);
        let numbers: Vec<f64> = (0..NUMBERS).map(|i| random(u64::from(i), SEED) as f64).collect();
        from.write(0, &numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<_>>())?;
        // What was there before cannot be taken for a result.
        self.gpu.stream.fill(&to, 0xff)?;
        let args = [(&to).into(), (&from).into(), super::cuda::Arg::U32(NUMBERS)];
        let grid = Grid::new(NUMBERS / 512, 512);
        let nodes = GRAPHS.into_iter().max().unwrap_or(1);
        let graph = self.gpu.stream.graph(nodes, &self.quarter, grid, &args)?;
        let what = "a kernel that reads and writes 64 kB in all";
        for (id, label, work, how) in [
            ("small", "64 kB kernel", Work::Kernel { kernel: &self.quarter, grid, args: &args }, "launches in a row"),
            ("small_graph", "64 kB kernel in a graph", Work::Graph { graph: &graph, nodes }, "nodes of graphs of 1000"),
        ] {
            let method = format!("{} {how} of {what}, until the GPU is done", self.burst);
            let wanted = Wanted { id: id.to_owned(), label: label.to_owned(), method, work: &work };
            outcome.figures.extend(self.throughput(link, plan, &wanted)?);
        }
        let mut found = vec![0; numbers.len() * 8];
        to.read(0, &mut found)?;
        let wrong =
            found.chunks_exact(8).zip(&numbers).filter(|(found, b)| **found != (*b * 0.25).to_le_bytes()).count();
        outcome.checks.push(Check {
            what: "the 64 kB kernel: compared with the host's arithmetic".to_owned(),
            passed: wrong == 0,
            detail: if wrong == 0 { String::new() } else { format!("{wrong} of {NUMBERS} numbers differ") },
        });
        Ok(())
    }

    /// Time for each kernel from the first call until the device is done.
    fn throughput(&self, link: &mut Link, plan: &mut Plan, wanted: &Wanted<'_>) -> Result<Option<Figure>, Failure> {
        let times = (self.burst / wanted.work.kernels()).max(1);
        let series = Series { id: &wanted.id, unit: "µs", what: &wanted.label };
        let values = plan.repeat(link, series, || {
            let us = self.timer.until_done(wanted.work, times)?;
            Ok((us / f64::from(times * wanted.work.kernels()), us))
        })?;
        Ok(figure(&wanted.id, &wanted.label, &values, &wanted.method))
    }

    /// Host and device apart: a call, and what the device takes for each kernel.
    fn apart(
        &self,
        link: &mut Link,
        plan: &mut Plan,
        wanted: &Wanted<'_>,
        outcome: &mut Outcome,
    ) -> Result<(), Failure> {
        let (id, label) = (format!("{}_host", wanted.id), format!("{}: call", wanted.label));
        let calls =
            plan.repeat(link, Series { id: &id, unit: "µs", what: &label }, || self.timer.calls(wanted.work))?;
        let method = "the driver's call for one launch, into an empty queue";
        outcome.figures.extend(figure(&id, &label, &calls, method));
        let (id, label) = (format!("{}_device", wanted.id), format!("{}: GPU alone", wanted.label));
        let call_us = outcome.figures.last().map_or(0.0, |figure| figure.value);
        let (values, missed) =
            self.timer.held(link, plan, Series { id: &id, unit: "µs", what: &label }, wanted.work, call_us)?;
        let method = "two events around kernels that all waited before the GPU began, for each kernel";
        let found = figure(&id, &label, &values, method);
        if found.is_none() {
            outcome.notes.push(format!(
                "{label}: not measured, since the host could not fill the queue within 4 ms ({missed} attempts)"
            ));
        }
        outcome.figures.extend(found);
        Ok(())
    }

    /// Whether `n` launches that count, given by `launch`, count to `n`.
    fn counted(
        &self,
        what: &str,
        n: u32,
        launch: impl FnOnce(super::cuda::Arg) -> Result<(), Failure>,
    ) -> Result<Check, Failure> {
        self.gpu.stream.fill(&self.counter, 0)?;
        launch((&self.counter).into())?;
        let found = self.counter.word(0)?;
        let passed = found == u64::from(n);
        let detail = if passed { String::new() } else { format!("{found} of {n} ran") };
        Ok(Check { what: format!("{what}: each of {n} counted itself, one after the other"), passed, detail })
    }
}

fn figure(id: &str, label: &str, values: &[f64], method: &str) -> Option<Figure> {
    Figure::median(id, label, "µs", Better::Lower, values).map(|figure| figure.by(method))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slower_side_is_named() {
        let figures = |host: f64, device: f64| {
            [("plain_host", host), ("plain_device", device), ("graph", 1.2)]
                .into_iter()
                .filter_map(|(id, value)| figure(id, id, &[value], ""))
                .collect::<Vec<_>>()
        };
        let words = side(&figures(4.0, 2.0)).unwrap();
        assert!(words.starts_with("the host is the slower side") && words.contains("4.00 µs"), "{words}");
        assert!(side(&figures(2.0, 2.5)).unwrap().starts_with("the GPU is the slower side"));
        assert!(side(&figures(2.0, 2.1)).unwrap().starts_with("host and GPU keep pace"));
        assert_eq!(side(&figures(2.0, 2.0)[..2]), None, "what was not measured is not judged");
    }

    #[test]
    fn slow_is_what_is_slower_than_elsewhere() {
        let figures = |us: f64| figure("plain", "", &[us], "").into_iter().collect::<Vec<_>>();
        let slow = |model, us| is_slow(model, &figures(us));
        assert_eq!(
            [slow("NVIDIA H200", 2.6), slow("NVIDIA H200", 2.7), slow("NVIDIA T1000", 99.0)],
            [false, true, false]
        );
    }

    #[test]
    fn every_graph_fits_into_a_burst_evenly() {
        // Otherwise the count of the check and that of the method differ from what was launched.
        for burst in [BURST, BURST_BESIDE] {
            assert!(GRAPHS.iter().all(|nodes| burst % nodes == 0), "{burst}");
        }
    }
}
