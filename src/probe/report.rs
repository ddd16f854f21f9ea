//! What a run leaves: `warptop.probe/1`, one JSON document a run, and the verdict in it.
//!
//! Owns the format (described in docs/probes.md, which a test checks) and how a figure is judged against
//! datasheet, reference and baseline. It must not know where reports are kept or how they are shown.
//! Invariants: names are only ever added; what is not known is `null`, never 0; a verdict says from what
//! it was made and what to do.

pub(in crate::probe) mod swept;
pub mod timeline;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::load;
use crate::load::level::Knee;

use super::protocol::{Better, Check, Figure, Outcome, Sample};
use super::reference::{self, Bearing};
use super::spec::{Params, ProbeSpec, Target};
use super::sweep;
use timeline::Steps;

/// What `schema` says.
pub const SCHEMA: &str = "warptop.probe/1";

/// Below this share of the reference a figure is worth a look, %.
const WATCH_PCT: f64 = 95.0;
/// Below this share of the reference something is wrong, %.
const FAILED_PCT: f64 = 80.0;

/// What is left to do when there is no clue.
const UNEXPLAINED: &str = "nothing that warptop reads explains it: run it again, then compare with another machine";

/// How the run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// With a result.
    Done,
    /// By the user, or because the guard ended it.
    Stopped,
    /// It did not run.
    Refused,
    /// Without a result.
    Failed,
}

impl Ending {
    /// What a run that ended so has instead of a result.
    pub const fn without_result(self) -> &'static str {
        match self {
            Self::Refused => "not run",
            Self::Stopped => "stopped",
            Self::Done | Self::Failed => "no result",
        }
    }
}

/// The whole report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: String,
    /// Name of the run; rises with the time it began.
    pub run: String,
    /// Id of the probe.
    pub probe: String,
    /// Version of warptop.
    pub warptop: String,
    /// Name of the machine; empty when not known.
    pub host: String,
    /// What it ran on.
    pub target: Target,
    /// When the run began, ms since the Unix epoch.
    pub started_unix_ms: u64,
    /// When its process had ended.
    pub ended_unix_ms: u64,
    /// How it ended.
    pub ending: Ending,
    /// Why it is not a result, in words; `null` when it is one.
    pub why: Option<String>,
    /// Whether a refusal was overruled.
    pub forced: bool,
    /// Share of time that it might keep the target busy, %.
    pub duty_pct: u8,
    /// The probe's parameters.
    pub inputs: Params,
    /// The machine around it.
    pub environment: Environment,
    /// The figures, each with what it was held against.
    pub results: Vec<Judged>,
    /// Whether the computation was right.
    pub checks: Vec<Check>,
    /// What has to be known to read the figures.
    pub notes: Vec<String>,
    /// When what happened, s after the run began, by name.
    #[serde(default)]
    pub moments: BTreeMap<String, f64>,
    /// What it comes to.
    pub verdict: Verdict,
    /// The levels of a sweep, in the order they were measured in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub levels: Vec<load::Level>,
    /// Where a sweep's throughput stops growing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub knee: Option<Knee>,
    /// Why a sweep ended before all its levels were measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_early: Option<String>,
    /// Single measurements, in the order they came in.
    pub samples: Vec<Sample>,
    /// Measurements that came after as many as are kept.
    pub samples_left_out: u64,
}

/// The machine while the probe ran.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// Version of the GPU driver.
    pub driver: Option<String>,
    /// CUDA version that the driver supports.
    pub cuda_driver: Option<String>,
    /// Version of the kernel.
    pub kernel: Option<String>,
    /// Each GPU of the target.
    pub gpus: Vec<GpuEnvironment>,
    /// CPUs that were busy before the run, % of all.
    pub cpu_busy_before_pct: Option<f64>,
    /// Who else computed there, in words; empty when nobody did.
    pub company: String,
    /// To what part of its target the process was bound, in words; `None`: to all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_to: Option<String>,
    /// What the probe's own process found: libraries, CPU, NUMA.
    pub facts: BTreeMap<String, String>,
}

/// A GPU while the probe ran. A report of an older version lacks what was added since.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GpuEnvironment {
    /// NVML index.
    pub index: u8,
    /// SM clock, MHz.
    pub sm_clock_mhz: Range,
    /// Highest SM clock of the product, MHz.
    pub sm_clock_max_mhz: Option<f64>,
    /// Memory clock, MHz.
    pub mem_clock_mhz: Range,
    /// Temperature of the die, °C.
    pub temp_c: Range,
    /// Temperature of the device memory, °C.
    pub mem_temp_c: Range,
    /// Board power, W.
    pub power_w: Range,
    /// Power limit, W.
    pub power_limit_w: Option<f64>,
    /// PCIe generation of its link, which is slowed down while idle.
    pub pcie_generation: Range,
    /// Highest generation that GPU and slot can do.
    pub pcie_generation_max: Option<f64>,
    /// Lanes of its link.
    pub pcie_lanes: Range,
    /// Most lanes that GPU and slot have.
    pub pcie_lanes_max: Option<f64>,
    /// Data to the GPU as warptop's own sampler counts it, GB/s.
    pub pcie_rx_gb_per_s: Range,
    /// Data from the GPU, likewise.
    pub pcie_tx_gb_per_s: Range,
    /// Time that each reason held the clocks down during the run, ms; `null` where it is not counted.
    pub throttled_ms: BTreeMap<String, Option<f64>>,
    /// The run step by step.
    #[serde(default)]
    pub timeline: Steps,
}

/// A quantity during a run, as warptop read it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Range {
    /// Just before.
    pub before: Option<f64>,
    /// Smallest.
    pub min: Option<f64>,
    /// Mean.
    pub mean: Option<f64>,
    /// Largest.
    pub max: Option<f64>,
}

/// A figure with what it was held against.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Judged {
    /// The figure.
    #[serde(flatten)]
    pub figure: Figure,
    /// What the datasheet of the product promises, in the figure's unit.
    pub datasheet: Option<f64>,
    /// The figure in % of it; for a time, the datasheet's time in % of the figure.
    pub pct_of_datasheet: Option<f64>,
    /// What was measured on the same product elsewhere.
    pub reference: Option<f64>,
    /// Where that comes from.
    pub reference_source: Option<String>,
    /// What falling short of it means on a machine with another host; reports of older versions do not say.
    #[serde(default)]
    pub reference_bearing: Bearing,
    /// The figure in % of it: above 100 is better.
    pub pct_of_reference: Option<f64>,
    /// What the baseline of this machine holds.
    pub baseline: Option<f64>,
    /// The figure in % of it: above 100 is better.
    pub pct_of_baseline: Option<f64>,
}

/// How good it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// There is nothing to hold it against.
    Unknown,
    /// As it should be.
    Ok,
    /// Worth a look.
    Watch,
    /// Something is wrong.
    Failed,
}

impl Level {
    /// Its name.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Ok => "ok",
            Self::Watch => "watch",
            Self::Failed => "failed",
        }
    }
}

/// What it comes to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// How good it is.
    pub level: Level,
    /// In a sentence.
    pub summary: String,
    /// What to do.
    pub advice: Vec<String>,
}

/// `value` in % of `whole`, above 100 being better; `None` when there is nothing to divide by.
pub fn pct(value: f64, whole: f64, better: Better) -> Option<f64> {
    let (part, whole) = match better {
        Better::Higher => (value, whole),
        Better::Lower => (whole, value),
        Better::Neither => return None,
    };
    (whole > 0.0 && part.is_finite()).then(|| part / whole * 100.0)
}

impl Judged {
    /// Holds a figure against all that is known for it: `promised` is what the hardware as it was found promises.
    pub fn new(figure: Figure, probe: &str, target: &Target, promised: Option<f64>, baseline: Option<&Report>) -> Self {
        let model = target.gpus.first().map_or("", |gpu| gpu.name.as_str());
        let known = reference::of(model, probe, &figure.id);
        let datasheet = promised.or_else(|| reference::datasheet(model, probe, &figure.id));
        let before = baseline.and_then(|report| report.figure(&figure.id));
        let baseline = before.filter(|before| before.unit == figure.unit).map(|before| before.value);
        let share = |whole: Option<f64>| pct(figure.value, whole?, figure.better);
        Self {
            pct_of_datasheet: share(datasheet),
            pct_of_reference: share(known.map(|known| known.value)),
            pct_of_baseline: share(baseline),
            datasheet,
            reference: known.map(|known| known.value),
            reference_bearing: known.map_or(Bearing::Product, |known| known.bearing),
            reference_source: known.map(|known| known.source.to_owned()),
            baseline,
            figure,
        }
    }

    /// The share of the reference, where it judges a machine with another host, %.
    fn pct_that_judges(&self) -> Option<f64> {
        self.pct_of_reference.filter(|_| self.reference_bearing != Bearing::Cpu)
    }

    /// The share that counts: of the reference, else of the baseline. And which of them it is.
    pub fn share(&self) -> Option<(f64, &'static str)> {
        let of = |share: Option<f64>, what| share.map(|share| (share, what));
        of(self.pct_that_judges(), "of the reference").or_else(|| of(self.pct_of_baseline, "of the baseline"))
    }
}

impl GpuEnvironment {
    /// What is wrong with the link as the driver tells it, where data flowed during the run; `None` where nothing is or
    /// nothing can be told: without data a link is slowed down to save power.
    fn link_advice(&self) -> Option<String> {
        /// Data that keeps a link at its speed, GB/s: other than that of a few kernels that are launched.
        const FLOWS: f64 = 1.0;
        let flowed = [self.pcie_rx_gb_per_s, self.pcie_tx_gb_per_s].iter().any(|data| data.max > Some(FLOWS));
        let (generation, lanes) = (self.pcie_generation.max?, self.pcie_lanes.max?);
        let (generation_max, lanes_max) = (self.pcie_generation_max?, self.pcie_lanes_max?);
        let short = generation < generation_max || lanes < lanes_max;
        (flowed && short).then(|| {
            format!(
                "the link of GPU {} ran at gen {generation:.0} x{lanes:.0}, it can do gen {generation_max:.0} \
                 x{lanes_max:.0}: reseat the card or its riser, look at the slot's settings in the firmware",
                self.index
            )
        })
    }
}

impl Verdict {
    /// Puts first what the probe itself advises, which makes it worth a look.
    fn with(mut self, advice: Vec<String>) -> Self {
        if advice.is_empty() {
            return self;
        }
        if self.level < Level::Watch {
            self.level = Level::Watch;
            self.summary.push_str("; something is not as it should be");
        }
        self.advice.retain(|words| words != UNEXPLAINED);
        self.advice.splice(0..0, advice);
        self
    }
}

impl Report {
    /// A figure of the result.
    pub fn figure(&self, id: &str) -> Option<&Figure> {
        self.results.iter().map(|judged| &judged.figure).find(|figure| figure.id == id)
    }

    /// The figure that stands for the whole.
    pub fn headline(&self, spec: &ProbeSpec) -> Option<&Judged> {
        self.results.iter().find(|judged| judged.figure.id == spec.headline).or_else(|| self.results.first())
    }

    /// The verdict in a word. A sweep has no reference to be good or bad by: with a result it is "measured".
    pub fn verdict_word(&self) -> &'static str {
        let is_measured =
            self.probe == sweep::ID && self.ending == Ending::Done && self.verdict.level == Level::Unknown;
        if is_measured { "measured" } else { self.verdict.level.word() }
    }

    /// Takes in what the probe found, holds it against what is known, and judges.
    pub fn take(&mut self, outcome: Outcome, baseline: Option<&Self>) {
        let told = timeline::explain(&outcome.moments, &self.environment.gpus);
        let judge = |figure: Figure| {
            let promised = outcome.promised.get(&figure.id).copied();
            Judged::new(figure, &self.probe, &self.target, promised, baseline)
        };
        self.results = outcome.figures.into_iter().chain(told.figures).map(judge).collect();
        self.checks = outcome.checks;
        self.notes.extend(outcome.notes);
        self.notes.extend(told.notes);
        self.moments = outcome.moments;
        self.knee = outcome.knee;
        self.ended_early = outcome.ended_early;
        self.environment.facts.extend(outcome.facts);
        let mut advice = outcome.advice;
        advice.extend(told.advice);
        // What the probe read itself, while data flowed, goes first.
        if self.figure("link_generation").is_none() {
            advice.extend(self.environment.gpus.iter().filter_map(GpuEnvironment::link_advice));
        }
        self.verdict = self.judge(baseline).with(advice);
    }

    /// What a run without a result comes to.
    pub fn without_result(ending: Ending, why: &str) -> Verdict {
        let summary = format!("{}: {why}", ending.without_result());
        // Nothing was judged: that it failed says how the run ended, not how good the machine is.
        Verdict { level: Level::Unknown, summary, advice: Vec::new() }
    }

    /// To what part of its target it was bound; `None`: to all of it.
    pub fn bound(&self) -> Option<&str> {
        self.environment.bound_to.as_deref()
    }

    /// Whether it had less than all of its target: what it says is no ceiling then.
    pub fn is_shared(&self) -> bool {
        self.duty_pct < 100 || !self.environment.company.is_empty()
    }

    /// Why no later run may be held against it; `None` where one may.
    pub fn is_no_baseline(&self) -> Option<&'static str> {
        if self.ending != Ending::Done {
            Some("it has no result")
        } else if self.probe == sweep::ID {
            Some(
                "sweeps are compared with each other, and none is a bound for the next (warptop probe compare RUN RUN)",
            )
        } else if self.checks.iter().any(|check| !check.passed) {
            Some("its computation was wrong")
        } else if self.is_shared() {
            Some("it had less than all of its target")
        } else {
            self.forced.then_some("it was forced")
        }
    }

    /// It has become what later runs are held against. That is its verdict where there is no other.
    pub fn becomes_baseline(&mut self) {
        if self.verdict.level == Level::Unknown && self.results.iter().all(|judged| judged.share().is_none()) {
            "measured; this run is now the baseline of this machine".clone_into(&mut self.verdict.summary);
        }
    }

    fn judge(&self, baseline: Option<&Self>) -> Verdict {
        if self.probe == sweep::ID {
            return swept::verdict(self);
        }
        let wrong: Vec<_> = self.checks.iter().filter(|check| !check.passed).collect();
        if let Some(first) = wrong.first() {
            let advice = "a wrong result is a fault of memory, GPU or driver: look at ECC errors and Xid messages, and \
                          do not trust what this machine computes";
            let summary = format!("the computation was wrong: {} ({})", first.what, first.detail);
            return Verdict { level: Level::Failed, summary, advice: vec![advice.to_owned()] };
        }
        let compared = self.results.iter().filter_map(|judged| Some((judged, Self::level(judged, baseline)?)));
        // The worst level first, then the least share.
        let worst = compared.min_by(|(a, x), (b, y)| {
            let share = |judged: &Judged| judged.share().map_or(100.0, |(share, _)| share);
            y.cmp(x).then(share(a).total_cmp(&share(b)))
        });
        let Some((worst, level, (share, of))) =
            worst.and_then(|(judged, level)| Some((judged, level, judged.share()?)))
        else {
            let summary = "measured; there is no reference for this machine yet".to_owned();
            let advice = "a run that has its target to itself becomes the baseline that later ones are held against";
            let advice = match self.is_no_baseline() {
                Some(_) if self.is_shared() => self.advice(),
                Some(_) => vec![advice.to_owned()],
                None => Vec::new(),
            };
            return Verdict { level: Level::Unknown, summary, advice };
        };
        let level = if self.is_shared() && share < WATCH_PCT { Level::Unknown } else { level };
        let summary = format!("{} reaches {share:.0} % {of}", worst.figure.label);
        Verdict { level, summary, advice: if level == Level::Ok { Vec::new() } else { self.advice() } }
    }

    /// How good one figure is. Against a reference its share counts. The baseline is a single run of this machine: what
    /// overlaps with its spread is the same, and what falls short of it is worth a look but no fault.
    fn level(judged: &Judged, baseline: Option<&Self>) -> Option<Level> {
        let (share, _) = judged.share()?;
        let figure = &judged.figure;
        let before = baseline.and_then(|report| report.figure(&figure.id));
        Some(if judged.pct_that_judges().is_some() {
            match share {
                share if share < FAILED_PCT && judged.reference_bearing == Bearing::Product => Level::Failed,
                share if share < WATCH_PCT => Level::Watch,
                _ => Level::Ok,
            }
        } else if share < WATCH_PCT && before.is_none_or(|before| figure.is_apart(before)) {
            Level::Watch
        } else {
            Level::Ok
        })
    }

    /// What may have held it back, from what was seen of the machine.
    fn advice(&self) -> Vec<String> {
        let mut out = Vec::new();
        if !self.environment.company.is_empty() {
            out.push(
                "others used the machine meanwhile: stop them and measure again for a figure that counts".to_owned(),
            );
        } else if self.duty_pct < 100 {
            out.push(format!(
                "it was told to go easy (--duty {}): measure again without that for a figure that counts",
                self.duty_pct
            ));
        }
        for gpu in &self.environment.gpus {
            let ms = self.ended_unix_ms.saturating_sub(self.started_unix_ms) as f64;
            let held = gpu.throttled_ms.iter().filter_map(|(reason, held)| Some((reason, (*held)?)));
            if let Some((reason, held)) = held.max_by(|a, b| a.1.total_cmp(&b.1)).filter(|(_, held)| *held > ms / 20.0)
            {
                let reason = reason.replace('_', " ");
                out.push(format!(
                    "{reason} held the clocks of GPU {} down for {:.0} % of the run: raise the power limit or cool it \
                     better before you blame the GPU",
                    gpu.index,
                    held / ms.max(1.0) * 100.0
                ));
            }
            if let (Some(reached), Some(most)) = (gpu.sm_clock_mhz.max, gpu.sm_clock_max_mhz)
                && reached < most * 0.9
            {
                out.push(format!("GPU {} reached {reached:.0} of {most:.0} MHz: are its clocks locked?", gpu.index));
            }
        }
        if out.is_empty() {
            out.push(UNEXPLAINED.to_owned());
        }
        out
    }
}

#[cfg(test)]
#[path = "report/tests.rs"]
pub(crate) mod tests;
