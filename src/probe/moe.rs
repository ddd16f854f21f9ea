//! Routing of a mixture of experts: what choosing the experts of each token costs beside the experts themselves.
//!
//! Softmax, the k best, weights that add up to 1, and tokens counted by expert: as one kernel, and as the chain of four
//! that a framework launches when nothing is fused. Both are bound by launches, so they are held against an empty kernel.
//! The layer beside it is not run: its least time is computed from the bytes of the experts that are hit and the
//! bandwidth that was just measured, which makes the share of routing an upper bound.

mod host;

use super::cuda::{Arg, Buffer, Gpu, Graph, Grid, Kernel, Module, Stream, with_context};
use super::plan::{Plan, Series};
use super::{
    Better, Check, Cost, Failure, Figure, Kind, Link, MIB, Needs, Outcome, Param, Params, Probe, ProbeSpec, Target,
};
use crate::model::text::Plural;
use host::{Layer, Routing, logits, route};

pub(super) const PROBE: Probe = Probe { spec: SPEC, run };

const SPEC: ProbeSpec = ProbeSpec {
    id: "moe",
    key: 'r',
    name: "expert routing",
    help: "Time to route tokens to experts (softmax, top-k, weights, counts), fused and as a chain of kernels, beside an \
           empty kernel and a layer of experts: what each MoE layer pays before it computes.",
    needs: Needs::Gpu,
    params: &[Param {
        name: "seconds",
        help: "time for each figure, s",
        kind: Kind::Number { default: 0.05, least: 0.02, most: 10.0 },
    }],
    cost,
    cool_ms: 5_000,
    headline: "fused_e256_k8_t256",
    hidden: false,
};

const KERNELS: &str = include_str!("../../assets/kernels/moe.ptx");
const READS: &str = include_str!("../../assets/kernels/hbm.ptx");
/// Experts and how many of them a token has, the headline's first. Mixtral has 8 and 2, Qwen3 128 and 8, DeepSeek-V3 256
/// and 8.
const SHAPES: [(u32, u32); 5] = [(256, 8), (128, 8), (64, 8), (256, 2), (8, 2)];
/// One user, a batch that decodes, a large one, a chunk of prefill.
const TOKENS: [u32; 4] = [1, 32, 256, 4096];
const MOST_TOKENS: u32 = 4096;
const MOST_EXPERTS: u32 = 256;
const MOST_K: u32 = 8;
/// The layer that routing is compared with: that of Qwen3-235B-A22B, in bf16, with 128 experts of which a token has 8.
const LAYER: Layer = Layer { hidden: 4096, ffn: 1536, bytes: 2 };
const LAYER_SHAPE: (u32, u32) = (128, 8);
/// Memory that is read to know the bandwidth, bytes: some times the L2 of any GPU.
const READ_BYTES: u64 = 512 << 20;
/// Routings in a graph.
const IN_GRAPH: u32 = 50;
/// Time between two looks at the clock, µs.
const PASS_US: f64 = 1_500.0;
const SEED: u64 = 0xe;

/// How routing is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Fused,
    Unfused,
}

impl Way {
    const ALL: [Self; 2] = [Self::Fused, Self::Unfused];

    const fn name(self) -> &'static str {
        match self {
            Self::Fused => "fused",
            Self::Unfused => "unfused",
        }
    }

    const fn kernels(self) -> u32 {
        match self {
            Self::Fused => 1,
            Self::Unfused => 4,
        }
    }
}

/// Figures besides those of graphs: two empty kernels, the bandwidth, and the headline's shape launch by launch.
const OTHERS: usize = 3 + Way::ALL.len() * TOKENS.len();

fn cost(params: &Params, _: &Target) -> Cost {
    let steps = (SHAPES.len() * TOKENS.len() * Way::ALL.len() + OTHERS) as f64;
    Cost {
        seconds: 3.0 + steps * params.number("seconds") * 1.3,
        gpu_bytes: with_context(READ_BYTES + (32 << 20)),
        host_bytes: 256 << 20,
        watts: None,
        load: None,
        disturbs: "whatever computes on the GPU: thousands of kernels of some µs each stand between its own".to_owned(),
    }
}

fn run(link: &mut Link, params: &Params) -> Result<Outcome, Failure> {
    link.progress(0.0, None, "starting CUDA")?;
    let gpu = Gpu::open(link)?;
    let bench = Bench::new(&gpu)?;
    let mut outcome = Outcome { facts: gpu.facts()?, ..Outcome::default() };
    let mut plan = Plan::new(SHAPES.len() * TOKENS.len() * Way::ALL.len() + OTHERS, params.number("seconds"));
    let empty = bench.empty(link, &mut plan)?;
    let read = bench.read(link, &mut plan)?;
    let floor = empty.first().map(|figure| figure.value);
    for shape in SHAPES {
        bench.shape(link, &mut plan, shape, floor, &mut outcome)?;
    }
    outcome.figures.extend(empty);
    outcome.figures.extend(bench.one_by_one(link, &mut plan, SHAPES[0])?);
    let rate = read.as_ref().map(|figure| figure.value);
    outcome.figures.extend(read);
    if let Some(rate) = rate {
        let shares = shares(&outcome.figures, rate);
        outcome.figures.extend(shares);
    }
    outcome.facts.insert(
        "layer".to_owned(),
        format!(
            "{} experts of 3 × {} × {} in bf16, {:.1} MiB each, {} a token, as Qwen3-235B-A22B has them",
            LAYER_SHAPE.0,
            LAYER.hidden,
            LAYER.ffn,
            LAYER.expert_bytes() as f64 / MIB,
            LAYER_SHAPE.1
        ),
    );
    outcome.notes.push(
        "logits lie in L2, where the kernel before routing leaves them; the time of the experts is computed from bandwidth, not \
         measured"
            .to_owned(),
    );
    Ok(outcome)
}

/// Name of a figure of routing.
fn id(way: &str, (experts, k): (u32, u32), tokens: u32) -> String {
    format!("{way}_e{experts}_k{k}_t{tokens}")
}

fn label(what: &str, (experts, k): (u32, u32), tokens: u32) -> String {
    format!("{what}, {k} of {experts} experts, {}", Plural(tokens.into(), "token", "tokens"))
}

/// What follows from other figures: how much more the chain takes, and the share of a layer. `rate` in GB/s.
fn shares(figures: &[Figure], rate: f64) -> Vec<Figure> {
    let value = |id: &str| figures.iter().find(|figure| figure.id == id).map(|figure| figure.value);
    let one = |id: &str, label: &str, unit: &str, value: f64, method: &str| {
        Figure::median(id, label, unit, Better::Neither, &[value]).map(|figure| figure.by(method))
    };
    let mut out = Vec::new();
    for (shape, tokens) in [SHAPES[0], LAYER_SHAPE].into_iter().flat_map(|shape| TOKENS.map(|tokens| (shape, tokens))) {
        let [fused, unfused] = Way::ALL.map(|way| value(&id(way.name(), shape, tokens)));
        let (Some(fused), Some(unfused)) = (fused, unfused) else { continue };
        out.extend(one(
            &id("ratio", shape, tokens),
            &label("Unfused over fused", shape, tokens),
            "×",
            unfused / fused,
            "of the two medians, graph replay",
        ));
        if shape != LAYER_SHAPE {
            continue;
        }
        let hit = route(&logits(tokens, shape.0, SEED), shape.0 as usize, shape.1 as usize).hit();
        let experts_us = (hit * LAYER.expert_bytes()) as f64 / rate / 1e3;
        let method = format!("computed: the weights of {hit} experts over the bandwidth that was read");
        out.extend(one(
            &format!("experts_t{tokens}"),
            &label("The experts, computed", shape, tokens),
            "µs",
            experts_us,
            &method,
        ));
        for (way, us) in [(Way::Fused, fused), (Way::Unfused, unfused)] {
            out.extend(one(
                &format!("share_{}_t{tokens}", way.name()),
                &label(&format!("Share of the layer, {}, computed", way.name()), shape, tokens),
                "%",
                us / (us + experts_us) * 100.0,
                "routing over routing and the experts as computed",
            ));
        }
    }
    out
}

/// Kernels for one number of experts.
struct Kernels {
    fused: Kernel,
    softmax: Kernel,
    top_k: Kernel,
    renormalise: Kernel,
    count: Kernel,
}

impl Kernels {
    fn all(&self) -> Vec<Kernel> {
        [&self.fused, &self.softmax, &self.top_k, &self.renormalise, &self.count].map(Kernel::clone).to_vec()
    }
}

/// One routing, ready to be given to a stream.
struct Job<'a> {
    bench: &'a Bench<'a>,
    kernels: &'a Kernels,
    shape: (u32, u32),
    tokens: u32,
    sms: u32,
}

struct Bench<'a> {
    gpu: &'a Gpu,
    kernels: Module,
    logits: Buffer,
    probabilities: Buffer,
    values: Buffer,
    /// All zero whenever no routing runs.
    work: Buffer,
    ids: Buffer,
    weights: Buffer,
    counts: Buffer,
    offsets: Buffer,
}

impl Job<'_> {
    /// Gives it to a stream.
    fn give(&self, stream: &Stream, way: Way) -> Result<(), Failure> {
        let (Bench { logits, probabilities, values, work, ids, weights, counts, offsets, .. }, kernels) =
            (self.bench, self.kernels);
        let ((experts, k), tokens) = (self.shape, self.tokens);
        let [e, kk, t] = [experts, k, tokens].map(Arg::U32);
        if way == Way::Fused {
            let args =
                [logits.into(), t, e, kk, ids.into(), weights.into(), work.into(), counts.into(), offsets.into()];
            return stream.launch(&kernels.fused, fused_grid(tokens, self.sms), &args);
        }
        // A warp a token.
        let rows = Grid::new(tokens.div_ceil(8), 256);
        stream.launch(&kernels.softmax, rows, &[logits.into(), t, e, probabilities.into()])?;
        stream.launch(&kernels.top_k, rows, &[probabilities.into(), t, e, kk, ids.into(), values.into()])?;
        let a_thread_each = Grid::new(tokens.div_ceil(256), 256);
        stream.launch(&kernels.renormalise, a_thread_each, &[values.into(), t, kk, weights.into()])?;
        let n = Arg::U32(tokens * k);
        stream.launch(&kernels.count, Grid::new(1, 1024), &[ids.into(), n, e, counts.into(), offsets.into()])
    }
}

/// Up to 32 tokens are one block's, which then needs nobody to count with.
fn fused_grid(tokens: u32, sms: u32) -> Grid {
    if tokens <= 32 { Grid::new(1, tokens.max(1) * 32) } else { Grid::new(tokens.div_ceil(16).min(sms * 4), 512) }
}

impl<'a> Bench<'a> {
    fn new(gpu: &'a Gpu) -> Result<Self, Failure> {
        let a_token_and_expert = u64::from(MOST_TOKENS * MOST_EXPERTS * 4);
        let a_choice = u64::from(MOST_TOKENS * MOST_K * 4);
        let an_expert = u64::from((MOST_EXPERTS + 1) * 4);
        let bench = Self {
            gpu,
            kernels: gpu.module(KERNELS)?,
            logits: gpu.buffer(a_token_and_expert)?,
            probabilities: gpu.buffer(a_token_and_expert)?,
            values: gpu.buffer(a_choice)?,
            work: gpu.buffer(an_expert)?,
            ids: gpu.buffer(a_choice)?,
            weights: gpu.buffer(a_choice)?,
            counts: gpu.buffer(an_expert)?,
            offsets: gpu.buffer(an_expert)?,
        };
        gpu.stream.fill(&bench.work, 0)?;
        Ok(bench)
    }

    fn kernels(&self, experts: u32) -> Result<Kernels, Failure> {
        let named = |name: &str| self.kernels.kernel(&format!("{name}_{}", experts.div_ceil(32)));
        Ok(Kernels {
            fused: named("fused")?,
            softmax: named("softmax")?,
            top_k: named("top_k")?,
            renormalise: self.kernels.kernel("renormalise")?,
            count: self.kernels.kernel("count")?,
        })
    }

    /// Puts logits for so many experts on the device; returns them.
    fn upload(&self, experts: u32) -> Result<Vec<f32>, Failure> {
        let data = logits(MOST_TOKENS, experts, SEED);
        let bytes: Vec<u8> = data.iter().flat_map(|logit| logit.to_le_bytes()).collect();
        self.logits.write(0, &bytes)?;
        Ok(data)
    }

    /// Repeats the replay of a graph; the measurements are of one of the `IN_GRAPH` routings in it.
    fn replay(&self, link: &mut Link, plan: &mut Plan, id: &str, graph: &Graph) -> Result<Vec<f64>, Failure> {
        let stream = &self.gpu.stream;
        // The first one warms up.
        stream.time(|_| graph.launch_times(1))?;
        let us = stream.time(|_| graph.launch_times(1))?;
        let times = (PASS_US / us.max(1.0)).ceil().clamp(1.0, 1_000.0) as u32;
        plan.repeat(link, Series { id, unit: "µs", what: id }, || {
            let us = stream.time(|_| graph.launch_times(times))?;
            Ok((us / f64::from(times * IN_GRAPH), us))
        })
    }

    /// What a kernel takes that does nothing: in a graph, and launched by itself.
    fn empty(&self, link: &mut Link, plan: &mut Plan) -> Result<Vec<Figure>, Failure> {
        let empty = self.kernels.kernel("empty")?;
        let give = |stream: &Stream| stream.launch(&empty, Grid::new(1, 32), &[]);
        let graph = self.gpu.stream.graph(IN_GRAPH, &empty, Grid::new(1, 32), &[])?;
        let values = self.replay(link, plan, "empty", &graph)?;
        let in_graph = Figure::median("empty", "An empty kernel", "µs", Better::Lower, &values);
        let values = self.stream(link, plan, "empty_stream", give)?;
        let alone = Figure::median("empty_stream", "An empty kernel, launched by itself", "µs", Better::Lower, &values);
        let [in_graph, alone] =
            [(in_graph, "a node of a graph"), (alone, "one launch after the other")].map(|(f, by)| f.map(|f| f.by(by)));
        Ok(in_graph.into_iter().chain(alone).collect())
    }

    /// Repeats work that is launched again each time.
    fn stream(
        &self,
        link: &mut Link,
        plan: &mut Plan,
        id: &str,
        give: impl Fn(&Stream) -> Result<(), Failure>,
    ) -> Result<Vec<f64>, Failure> {
        /// More than a ms of them.
        const TIMES: u32 = 1000;
        plan.repeat(link, Series { id, unit: "µs", what: id }, || {
            let us = self.gpu.stream.time(|stream| (0..TIMES).try_for_each(|_| give(stream)))?;
            Ok((us / f64::from(TIMES), us))
        })
    }

    /// Bandwidth of reading, GB/s.
    fn read(&self, link: &mut Link, plan: &mut Plan) -> Result<Option<Figure>, Failure> {
        let reads = self.gpu.module(READS)?;
        let (data, out) = (self.gpu.buffer(READ_BYTES)?, self.gpu.buffer(8)?);
        let sms = self.gpu.sms()?;
        self.gpu.random_data()?.fill_words(&self.gpu.stream, &data, SEED)?;
        let read = reads.kernel("read_u4_cs")?;
        let args =
            [(&out).into(), (&data).into(), (&data).into(), Arg::U64(READ_BYTES / 16), Arg::F64(0.0), Arg::U32(1)];
        let rates = plan.repeat(link, Series { id: "read", unit: "GB/s", what: "reading memory" }, || {
            let us = self
                .gpu
                .stream
                .time(|stream| (0..4).try_for_each(|_| stream.launch(&read, Grid::new(sms * 4, 512), &args)))?;
            Ok(((READ_BYTES * 4) as f64 / us / 1e3, us))
        })?;
        self.gpu.finish()?;
        let figure = Figure::median("read", "Reading memory", "GB/s", Better::Neither, &rates);
        Ok(figure.map(|figure| figure.by("512 MiB; for the computed time of the experts, `hbm` measures it better")))
    }

    /// Every number of tokens, both ways, measured and checked.
    fn shape(
        &self,
        link: &mut Link,
        plan: &mut Plan,
        shape: (u32, u32),
        floor: Option<f64>,
        outcome: &mut Outcome,
    ) -> Result<(), Failure> {
        let (experts, k) = shape;
        let data = self.upload(experts)?;
        let (kernels, sms) = (self.kernels(experts)?, self.gpu.sms()?);
        let mut wrong = Way::ALL.map(|way| (way, Vec::new()));
        for tokens in TOKENS {
            let job = Job { bench: self, kernels: &kernels, shape, tokens, sms };
            let right = route(&data[..(tokens * experts) as usize], experts as usize, k as usize);
            for (way, wrong) in &mut wrong {
                let graph = self
                    .gpu
                    .stream
                    .record(kernels.all(), |stream| (0..IN_GRAPH).try_for_each(|_| job.give(stream, *way)))?;
                let id = id(way.name(), shape, tokens);
                let values = self.replay(link, plan, &id, &graph)?;
                let words = if *way == Way::Fused { "Fused" } else { "Unfused" };
                let figure = Figure::median(&id, &label(words, shape, tokens), "µs", Better::Lower, &values);
                let method = format!("{} in a graph that is replayed; floor: as many empty ones", kernels_of(*way));
                outcome.figures.extend(figure.map(|figure| Figure {
                    floor: floor.map(|us| us * f64::from(way.kernels())),
                    ..figure.by(&method)
                }));
                let fault = self.check(&job, *way, &right)?;
                if !fault.is_empty() {
                    wrong.push(format!("{tokens} tokens: {fault}"));
                }
            }
        }
        outcome.checks.extend(wrong.map(|(way, wrong)| Check {
            what: format!("{}, {k} of {experts} experts: as the host routes", way.name()),
            passed: wrong.is_empty(),
            detail: wrong.join("; "),
        }));
        Ok(())
    }

    /// How one more routing, into poisoned memory, differs from the host's; empty when it does not.
    fn check(&self, job: &Job<'_>, way: Way, right: &Routing) -> Result<String, Failure> {
        let stream = &self.gpu.stream;
        for buffer in [&self.probabilities, &self.values, &self.ids, &self.weights, &self.counts, &self.offsets] {
            stream.fill(buffer, 0xff)?;
        }
        job.give(stream, way)?;
        let words = |buffer: &Buffer, n: usize| {
            let mut bytes = vec![0; n * 4];
            buffer.read(0, &mut bytes)?;
            let words = bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
            Ok::<_, Failure>(words.collect::<Vec<_>>())
        };
        let ids = words(&self.ids, right.ids.len())?;
        let weights: Vec<_> = words(&self.weights, right.weights.len())?.into_iter().map(f32::from_bits).collect();
        let (counts, offsets) = (words(&self.counts, right.counts.len())?, words(&self.offsets, right.offsets.len())?);
        Ok(right.against(&ids, &weights, &counts, &offsets))
    }

    /// The same without a graph: each kernel launched by the host.
    fn one_by_one(&self, link: &mut Link, plan: &mut Plan, shape: (u32, u32)) -> Result<Vec<Figure>, Failure> {
        self.upload(shape.0)?;
        let (kernels, sms) = (self.kernels(shape.0)?, self.gpu.sms()?);
        let mut out = Vec::new();
        for tokens in TOKENS {
            let job = Job { bench: self, kernels: &kernels, shape, tokens, sms };
            for way in Way::ALL {
                let id = id(&format!("{}_stream", way.name()), shape, tokens);
                let values = self.stream(link, plan, &id, |stream| job.give(stream, way))?;
                let words = if way == Way::Fused { "Fused, launched" } else { "Unfused, launched" };
                let figure = Figure::median(&id, &label(words, shape, tokens), "µs", Better::Lower, &values);
                out.extend(figure.map(|figure| figure.by(&format!("{}, one launch after the other", kernels_of(way)))));
            }
        }
        Ok(out)
    }
}

fn kernels_of(way: Way) -> &'static str {
    match way {
        Way::Fused => "one kernel",
        Way::Unfused => "four kernels",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_token_has_a_warp_and_a_block_is_one_that_a_gpu_takes() {
        for tokens in [1, 2, 31, 32, 33, 256, 4096] {
            let grid = fused_grid(tokens, 132);
            assert!(grid.threads.is_multiple_of(32) && grid.threads <= 1024, "{tokens}: {grid:?}");
            // More than one block goes round.
            let warps = grid.blocks.0 * grid.threads / 32;
            assert!(warps >= tokens || grid.blocks.0 > 1 && grid.blocks.0 <= 528, "{tokens}: {grid:?}");
        }
    }

    #[test]
    fn every_shape_has_its_kernels_and_fits_into_memory() {
        for (experts, k) in SHAPES {
            for kernel in ["fused", "softmax", "top_k"] {
                let entry = format!(".entry {kernel}_{}(", experts.div_ceil(32));
                assert!(KERNELS.contains(&entry), "{entry}");
            }
            assert!(experts <= MOST_EXPERTS && k <= MOST_K && k < experts && experts % 4 == 0);
        }
        assert!(TOKENS.iter().all(|tokens| *tokens <= MOST_TOKENS) && SHAPES.contains(&LAYER_SHAPE));
        let (experts, k) = SHAPES[0];
        assert_eq!(SPEC.headline, id("fused", (experts, k), TOKENS[2]));
    }

    #[test]
    fn shares_follow_from_bytes_and_bandwidth() {
        let figure =
            |way: &str, us: f64| Figure::median(&id(way, LAYER_SHAPE, 1), "", "µs", Better::Lower, &[us]).unwrap();
        let found = shares(&[figure("fused", 3.0), figure("unfused", 9.0)], 4000.0);
        let value = |id: &str| found.iter().find(|figure| figure.id == id).map(|figure| figure.value);
        assert_eq!(value("ratio_e128_k8_t1"), Some(3.0));
        // 8 experts of 36 MiB at 4 TB/s.
        let us = 8.0 * 37_748_736.0 / 4e6;
        assert!((value("experts_t1").unwrap() - us).abs() < 1e-9, "{found:?}");
        assert!((value("share_fused_t1").unwrap() - 300.0 / (3.0 + us)).abs() < 1e-9);
        assert!((value("share_unfused_t1").unwrap() - 900.0 / (9.0 + us)).abs() < 1e-9);
        assert_eq!(found.len(), 4, "nothing of what was not measured: {found:?}");
    }
}
