//! What a probe says of itself: name, key, parameters, cost. And what it is aimed at.
//!
//! Plain data: it must not know how a probe runs. Invariant: parameters that reach a probe are within
//! the bounds that its own table states.

mod load;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::MIB;

pub use load::LoadCost;
pub(super) use load::{Grouped, counted};

/// What a probe runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// The host's CPUs and memory; no GPU.
    Host,
    /// One GPU.
    Gpu,
    /// Every GPU of the machine, at least this many.
    Gpus(usize),
    /// A serving endpoint, wherever its GPUs are.
    Endpoint,
}

/// What a run is to be aimed at, of which each probe takes what it needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Aim {
    /// NVML index of the GPU.
    pub gpu: u8,
    /// Number of the engine.
    pub engine: u8,
}

impl Needs {
    /// Why it cannot run on a machine with so many GPUs: "needs 2 GPUs, 1 here"; `None` where it can.
    pub const fn lacks(self, gpus: usize) -> Option<Lack> {
        let least = match self {
            Self::Host | Self::Endpoint => 0,
            Self::Gpu => 1,
            Self::Gpus(least) => least,
        };
        if gpus < least { Some(Lack { least, gpus }) } else { None }
    }
}

/// Too few GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lack {
    least: usize,
    gpus: usize,
}

/// "needs 2 GPUs"; with `#` also how many there are.
impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.least, self.gpus) {
            (1, _) => f.write_str("needs a GPU"),
            (least, gpus) if gpus > 0 && f.alternate() => write!(f, "needs {least} GPUs, {gpus} here"),
            (least, _) => write!(f, "needs {least} GPUs"),
        }
    }
}

/// A probe's description.
#[derive(Clone, Copy, Debug)]
pub struct ProbeSpec {
    /// Its name on the command line and in reports.
    pub id: &'static str,
    /// The key that asks for it in the pane of probes.
    pub key: char,
    /// What it measures, in a word or three.
    pub name: &'static str,
    /// What it measures and how to read it: a sentence or two.
    pub help: &'static str,
    /// What it runs on.
    pub needs: Needs,
    /// Its own parameters.
    pub params: &'static [Param],
    /// What a run with these parameters costs on this target.
    pub cost: fn(&Params, &Target) -> Cost,
    /// How long after a run that went well the same request means that run, ms: so long it takes until
    /// clocks and temperature are again what they were. 0: every request is a measurement of its own, which neither a run
    /// that is over nor one that another process has under way stands for.
    pub cool_ms: u64,
    /// Which figure of the result stands for the whole on one line.
    pub headline: &'static str,
    /// Not listed anywhere: for tests.
    pub hidden: bool,
}

/// What a run costs, for the question that comes before it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// How long it takes, s.
    pub seconds: f64,
    /// Device memory it takes on each GPU, context included, bytes; [`Self::THE_REST`] for as much as there may be.
    pub gpu_bytes: u64,
    /// Memory of the host it takes, bytes.
    pub host_bytes: u64,
    /// Board power it may draw on each GPU, W; `None`: the GPU's power limit, where that is known.
    pub watts: Option<f64>,
    /// What else on the machine it disturbs: the end of the sentence "It disturbs …".
    pub disturbs: String,
    /// What it asks of a serving endpoint; `None` where it asks none. `seconds` is the most it may take then.
    pub load: Option<LoadCost>,
}

impl Cost {
    /// As [`Self::gpu_bytes`]: all that is left beside what stays free for others, for moments. Such a probe makes do
    /// with less.
    pub const THE_REST: u64 = u64::MAX;
    /// What such a probe wants at least, bytes: a context.
    const LEAST_OF_THE_REST: u64 = 1 << 30;

    /// Whether it takes all that is left.
    pub const fn takes_the_rest(&self) -> bool {
        self.gpu_bytes == Self::THE_REST
    }

    /// Device memory without which it does not run, bytes.
    pub const fn least_gpu_bytes(&self) -> u64 {
        if self.takes_the_rest() { Self::LEAST_OF_THE_REST } else { self.gpu_bytes }
    }
}

impl fmt::Display for Cost {
    /// "about 12 s, 512 MiB of device memory, up to 700 W. It disturbs …"; of a load "at most 8.2 min, at least 504
    /// requests, at most 2,000,000 tokens. It disturbs …"
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.seconds.max(1.0);
        let word = if self.load.is_some() { "at most" } else { "about" };
        if seconds < 120.0 {
            write!(f, "{word} {seconds:.0} s")?;
        } else {
            write!(f, "{word} {:.1} min", seconds / 60.0)?;
        }
        if let Some(load) = &self.load {
            write!(f, "{load}")?;
        }
        if self.takes_the_rest() {
            f.write_str(", for moments all device memory but what stays free for others")?;
        }
        let gpu_bytes = if self.takes_the_rest() { 0 } else { self.gpu_bytes };
        for (bytes, whose) in [(gpu_bytes, "device memory"), (self.host_bytes, "host memory")] {
            let mib = bytes as f64 / MIB;
            if mib >= 1024.0 {
                write!(f, ", {:.1} GiB of {whose}", mib / 1024.0)?;
            } else if bytes > 0 {
                write!(f, ", {mib:.0} MiB of {whose}")?;
            }
        }
        if let Some(watts) = self.watts {
            write!(f, ", up to {watts:.0} W")?;
        }
        write!(f, ". It disturbs {}", self.disturbs)
    }
}

/// What a parameter may be.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A number between two others.
    Number {
        /// When it is not given.
        default: f64,
        /// Smallest.
        least: f64,
        /// Largest.
        most: f64,
    },
    /// A whole number between two others.
    Count {
        /// When it is not given.
        default: f64,
        /// Smallest.
        least: f64,
        /// Largest.
        most: f64,
    },
    /// One of these words.
    Choice {
        /// When it is not given.
        default: &'static str,
        /// All of them.
        of: &'static [&'static str],
    },
    /// A text of its own form.
    Text {
        /// When it is not given.
        default: &'static str,
        /// What it looks like: "e.g. 1,2,4 or 10..20".
        form: &'static str,
        /// Why a text has not that form, and what to give; `None` where it has.
        wrong: fn(&str) -> Option<String>,
    },
    /// Given or not.
    Flag,
}

/// A parameter of a probe: `--NAME VALUE` on the command line.
#[derive(Clone, Copy, Debug)]
pub struct Param {
    /// Its name on the command line and in reports.
    pub name: &'static str,
    /// What it does, with its unit.
    pub help: &'static str,
    /// What it may be.
    pub kind: Kind,
}

/// Longest text of a parameter, bytes.
const MAX_TEXT: usize = 4_096;

/// A parameter's value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// A number.
    Number(f64),
    /// Given or not.
    Flag(bool),
    /// A word or a text.
    Word(String),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // A file may hold any number; nobody reads hundreds of digits.
            Self::Number(number) if *number != 0.0 && !(1e-9..1e15).contains(&number.abs()) => write!(f, "{number:e}"),
            Self::Number(number) => number.fmt(f),
            Self::Flag(true) => f.write_str("yes"),
            Self::Flag(false) => f.write_str("no"),
            Self::Word(word) => f.write_str(word),
        }
    }
}

impl Param {
    /// Its value when it is not given.
    pub fn default(&self) -> Value {
        match self.kind {
            Kind::Number { default, .. } | Kind::Count { default, .. } => Value::Number(default),
            Kind::Choice { default, .. } | Kind::Text { default, .. } => Value::Word(default.to_owned()),
            Kind::Flag => Value::Flag(false),
        }
    }

    /// What it may be, in words.
    pub fn allowed(&self) -> String {
        match self.kind {
            Kind::Number { least, most, .. } => format!("{least} to {most}"),
            Kind::Count { least, most, .. } => format!("whole numbers from {least} to {most}"),
            Kind::Choice { of, .. } => of.join(", "),
            Kind::Text { form, .. } => form.to_owned(),
            Kind::Flag => "given or not".to_owned(),
        }
    }

    /// The value that `text` means.
    ///
    /// # Errors
    /// What is allowed instead.
    pub fn parse(&self, text: &str) -> Result<Value, String> {
        let value = match self.kind {
            Kind::Number { .. } | Kind::Count { .. } => text.parse().map(Value::Number).ok(),
            Kind::Choice { .. } => Some(Value::Word(text.to_owned())),
            Kind::Text { wrong, .. } => match wrong(text) {
                Some(why) => return Err(why),
                None => Some(Value::Word(text.to_owned())),
            },
            Kind::Flag => text.parse().map(Value::Flag).ok(),
        };
        value.filter(|value| self.admits(value)).ok_or_else(|| format!("allowed are {}", self.allowed()))
    }

    fn admits(&self, value: &Value) -> bool {
        match (self.kind, value) {
            (Kind::Number { least, most, .. }, Value::Number(number)) => (least..=most).contains(number),
            (Kind::Count { least, most, .. }, Value::Number(number)) => {
                (least..=most).contains(number) && number.fract() == 0.0
            }
            (Kind::Choice { of, .. }, Value::Word(word)) => of.contains(&word.as_str()),
            (Kind::Text { wrong, .. }, Value::Word(text)) => text.len() <= MAX_TEXT && wrong(text).is_none(),
            (Kind::Flag, Value::Flag(_)) => true,
            _ => false,
        }
    }
}

/// The parameters of a run, each of the probe's table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Params(BTreeMap<String, Value>);

impl Params {
    /// Every parameter of a probe at its default.
    pub fn of(spec: &ProbeSpec) -> Self {
        Self(spec.params.iter().map(|param| (param.name.to_owned(), param.default())).collect())
    }

    /// Sets a parameter.
    pub fn put(&mut self, name: &str, value: Value) {
        self.0.insert(name.to_owned(), value);
    }

    /// A number; NaN when the probe's table has no such number, which a test of the registry excludes.
    pub fn number(&self, name: &str) -> f64 {
        match self.0.get(name) {
            Some(Value::Number(number)) => *number,
            Some(Value::Flag(_) | Value::Word(_)) | None => f64::NAN,
        }
    }

    /// A word or a text; empty when the probe's table has no such choice.
    pub fn word(&self, name: &str) -> &str {
        match self.0.get(name) {
            Some(Value::Word(word)) => word,
            Some(Value::Number(_) | Value::Flag(_)) | None => "",
        }
    }

    /// Whether a flag was given.
    pub fn flag(&self, name: &str) -> bool {
        self.0.get(name) == Some(&Value::Flag(true))
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// Whether these are exactly the parameters of a probe, each within its bounds.
    pub fn fit(&self, spec: &ProbeSpec) -> bool {
        self.0.len() == spec.params.len()
            && spec.params.iter().all(|param| self.0.get(param.name).is_some_and(|value| param.admits(value)))
    }
}

/// A GPU by all the names it has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuName {
    /// NVML index.
    pub index: u8,
    /// The driver's name for this very device, which CUDA knows as well; empty when not known.
    #[serde(default)]
    pub uuid: String,
    /// Product name.
    #[serde(default)]
    pub name: String,
}

/// What a run is aimed at.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Target {
    /// The GPUs; none: the host, or an endpoint.
    pub gpus: Vec<GpuName>,
    /// The base URL of an endpoint, without credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Highest power limit of these GPUs, W, for the question before a run; no part of what is meant.
    #[serde(skip)]
    pub power_limit_w: Option<f64>,
}

impl PartialEq for Target {
    fn eq(&self, other: &Self) -> bool {
        self.gpus == other.gpus && self.endpoint == other.endpoint
    }
}

impl ProbeSpec {
    /// Whether a run may stand for a second request for the same.
    pub const fn stands_for_same(&self) -> bool {
        self.cool_ms > 0
    }

    /// What a run costs. Unless the probe knows better, it may draw all that the GPU is allowed to.
    pub fn costs(&self, params: &Params, target: &Target) -> Cost {
        let mut cost = (self.cost)(params, target);
        if matches!(self.needs, Needs::Gpu | Needs::Gpus(_)) {
            cost.watts = cost.watts.or(target.power_limit_w);
        }
        cost
    }
}

impl Target {
    /// A name for files and for telling targets apart: `host`, `GPU-8a3c…`, `gpu0`, `http---127.0.0.1-8000`.
    pub fn key(&self) -> String {
        let one = |gpu: &GpuName| {
            let uuid: String = gpu.uuid.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').take(64).collect();
            if uuid.is_empty() { format!("gpu{}", gpu.index) } else { uuid }
        };
        if let Some(url) = &self.endpoint {
            let part = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
            return url.chars().map(part).take(64).collect();
        }
        match self.gpus.as_slice() {
            [] => "host".to_owned(),
            [gpu] => one(gpu),
            // Every GPU of the machine: the first stands for them.
            [first, rest @ ..] => format!("{}+{}", one(first), rest.len()),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(url) = &self.endpoint {
            return f.write_str(url);
        }
        match self.gpus.as_slice() {
            [] => f.write_str("the host"),
            [gpu] => write!(f, "GPU {}", gpu.index),
            gpus => write!(f, "{} GPUs", gpus.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Param =
        Param { name: "mib", help: "", kind: Kind::Number { default: 512.0, least: 1.0, most: 4096.0 } };
    const THREADS: Param =
        Param { name: "threads", help: "", kind: Kind::Count { default: 0.0, least: 0.0, most: 256.0 } };
    const TYPE: Param = Param { name: "dtype", help: "", kind: Kind::Choice { default: "bf16", of: &["bf16", "fp8"] } };

    #[test]
    fn a_parameter_keeps_its_bounds() {
        assert_eq!(SIZE.parse("4096"), Ok(Value::Number(4096.0)));
        assert_eq!(TYPE.parse("fp8"), Ok(Value::Word("fp8".to_owned())));
        for (param, text, words) in [
            (SIZE, "4097", "1 to 4096"),
            (SIZE, "NaN", "1 to 4096"),
            (SIZE, "1e308", "1 to 4096"),
            (THREADS, "1.5", "whole numbers from 0 to 256"),
            (THREADS, "257", "whole numbers from 0 to 256"),
            (SIZE, "x", "1 to 4096"),
            (TYPE, "int3", "bf16, fp8"),
        ] {
            assert!(param.parse(text).unwrap_err().contains(words), "{text}");
        }
    }

    #[test]
    fn a_number_has_as_many_digits_as_are_read() {
        let text = |number| Value::Number(number).to_string();
        assert_eq!(
            [text(1e308), text(-3e-300), text(0.05), text(0.0), text(16_384.0)],
            ["1e308", "-3e-300", "0.05", "0", "16384"]
        );
        assert_eq!(THREADS.parse("4"), Ok(Value::Number(4.0)));
    }

    #[test]
    fn a_gpu_may_draw_what_its_limit_allows_unless_the_probe_knows_better() {
        let spec = crate::probe::find("hbm").unwrap().spec;
        let target = Target { power_limit_w: Some(700.0), ..Target::default() };
        let watts = |spec: &ProbeSpec| spec.costs(&Params::of(spec), &target).watts;
        assert_eq!(watts(&spec), Some(700.0));
        assert_eq!(watts(&ProbeSpec { needs: Needs::Host, ..spec }), None);
        assert_eq!(target, Target::default(), "what is meant is the same");
    }

    #[test]
    fn a_machine_with_too_few_gpus_is_told_so() {
        let words = |needs: Needs, gpus| needs.lacks(gpus).map(|lack| lack.to_string());
        assert_eq!([words(Needs::Host, 0), words(Needs::Gpu, 1), words(Needs::Gpus(2), 8)], [None, None, None]);
        assert_eq!(words(Needs::Gpu, 0).unwrap(), "needs a GPU");
        assert_eq!(words(Needs::Gpus(2), 1).unwrap(), "needs 2 GPUs");
        assert_eq!(format!("{:#}", Needs::Gpus(2).lacks(1).unwrap()), "needs 2 GPUs, 1 here");
    }

    #[test]
    fn a_cost_is_a_sentence() {
        let cost = Cost {
            seconds: 12.0,
            gpu_bytes: 3 << 29,
            host_bytes: 64 << 20,
            watts: Some(700.0),
            disturbs: "whatever computes on the GPU".to_owned(),
            load: None,
        };
        assert_eq!(
            cost.to_string(),
            "about 12 s, 1.5 GiB of device memory, 64 MiB of host memory, up to 700 W. It disturbs whatever computes \
             on the GPU"
        );
        let short = Cost { seconds: 300.0, gpu_bytes: 0, host_bytes: 0, watts: None, ..cost };
        assert!(short.to_string().starts_with("about 5.0 min. It disturbs"));
        let all = Cost { gpu_bytes: Cost::THE_REST, ..short };
        let words = "about 5.0 min, for moments all device memory but what stays free for others. It disturbs";
        assert!(all.to_string().starts_with(words), "{all}");
        let load = |least_requests, most_requests| {
            let load = LoadCost { least_requests, most_requests, most_tokens: 2_000_000, ..LoadCost::default() };
            Cost { seconds: 492.0, gpu_bytes: 0, load: Some(load), ..all.clone() }.to_string()
        };
        for (least, most, words) in [
            (504, None, "at most 8.2 min, at least 504 requests, at most 2,000,000 tokens. It disturbs"),
            (1_504, Some(1_504), "at most 8.2 min, 1,504 requests, at most 2,000,000 tokens. It disturbs"),
            (4, Some(10), "at most 8.2 min, at least 4 and at most 10 requests, at most 2,000,000 tokens. It disturbs"),
            (0, None, "at most 8.2 min, at most 2,000,000 tokens. It disturbs"),
            (0, Some(10), "at most 8.2 min, at most 10 requests, at most 2,000,000 tokens. It disturbs"),
            (1, None, "at most 8.2 min, at least 1 request, at most 2,000,000 tokens. It disturbs"),
            (1, Some(1), "at most 8.2 min, 1 request, at most 2,000,000 tokens. It disturbs"),
        ] {
            assert!(load(least, most).starts_with(words), "{}", load(least, most));
        }
        assert_eq!([0, 999, 1_000, 12_345_678].map(|n| Grouped(n).to_string()), ["0", "999", "1,000", "12,345,678"]);
    }

    #[test]
    fn a_target_has_a_name_that_is_safe_in_a_path() {
        let gpu = |uuid: &str| GpuName { index: 3, uuid: uuid.to_owned(), name: String::new() };
        assert_eq!(Target::default().key(), "host");
        assert_eq!(Target { gpus: vec![gpu("GPU-8a../b")], ..Target::default() }.key(), "GPU-8ab");
        assert_eq!(Target { gpus: vec![gpu("")], ..Target::default() }.key(), "gpu3");
        assert_eq!(Target { gpus: vec![gpu("A"), gpu("B")], ..Target::default() }.key(), "A+1");
        let endpoint = |url: &str| Target { endpoint: Some(url.to_owned()), ..Target::default() };
        let (here, there) = (endpoint("http://127.0.0.1:8000"), endpoint("http://gw/../a"));
        assert_eq!((here.key(), there.key()), ("http---127.0.0.1-8000".to_owned(), "http---gw-..-a".to_owned()));
        assert_ne!(here, there, "another endpoint is another target");
    }
}
