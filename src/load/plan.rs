//! What a sweep does: everything that shapes its load. Plain data.

use serde::{Deserialize, Serialize};

/// A sweep.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Which of the endpoint's interfaces is loaded.
    pub api: Api,
    /// The model; `None`: the first that the endpoint lists.
    pub model: Option<String>,
    /// What sets the load, level by level.
    pub shape: Shape,
    /// Tokens of a prompt.
    pub prompt: Lengths,
    /// Tokens of an output.
    pub output: Lengths,
    /// How prompts are given.
    pub prompt_as: PromptAs,
    /// Share of each prompt, from its start, that all requests have in common, 0 to 1. The rest of it is like no other.
    pub shared_prefix: f64,
    /// Whether the output is made exactly as long as planned (`ignore_eos`, `min_tokens`), where the endpoint can.
    pub force_output: bool,
    /// Whether the endpoint is asked to say of each event how many tokens it holds.
    pub each_token: bool,
    /// Start of the random numbers: the same seed sends the same prompts in the same order.
    pub seed: u64,
    /// How long a level is.
    pub span: Span,
    /// How often each level is measured.
    pub repeats: u32,
    /// In which order.
    pub order: Order,
    /// Requests in flight at most in an open loop: what comes beyond waits, and its scheduled latency says so.
    pub most_in_flight: u32,
    /// Time for one request, s: after that it counts as failed.
    pub timeout_s: f64,
    /// What a good request is.
    pub slo: Slo,
    /// What the sweep may cost.
    pub budget: Budget,
    /// Share of requests that may fail, 0 to 1: above it the sweep ends.
    pub most_errors: f64,
}

/// An interface of an OpenAI-compatible endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Api {
    /// `/v1/completions`.
    Completions,
    /// `/v1/chat/completions`.
    Chat,
}

/// What sets the load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// So many users, each of which sends its next request when the last is answered.
    Closed(Vec<u32>),
    /// So many requests/s, evenly spaced, whatever becomes of them.
    Constant(Vec<f64>),
    /// So many requests/s on average, at random moments.
    Poisson(Vec<f64>),
    /// These requests at these moments; one level.
    Trace(Vec<Arrival>),
}

/// A request of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Arrival {
    /// When it comes, s after the first.
    pub at_s: f64,
    /// Tokens of its prompt.
    pub prompt: u32,
    /// Tokens of its output.
    pub output: u32,
}

/// Lengths in tokens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lengths {
    /// All the same.
    Fixed(u32),
    /// Evenly spread between two, both included.
    Uniform(u32, u32),
    /// One of these, each with its weight.
    Mixed(Vec<(u32, f64)>),
}

/// How a prompt is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PromptAs {
    /// As token ids where the endpoint takes them, else as words.
    Auto,
    /// As token ids.
    Ids,
    /// As words.
    Words,
}

/// In which order levels are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// As they are listed.
    Listed,
    /// At random, so that what drifts (heat, a cache that fills) is not taken for an effect of the load.
    Random,
}

/// How long a level is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Span {
    /// By time: a warm-up that is not measured, then at least `least_s` and until `samples` requests are measured, but
    /// no longer than `most_s`. The load is kept up until the last measured request has ended.
    Time {
        /// Warm-up, s.
        warmup_s: f64,
        /// Least time that is measured, s.
        least_s: f64,
        /// Least number of requests that are measured.
        samples: u64,
        /// Most time that is measured, s.
        most_s: f64,
    },
    /// Exactly so many requests, all of which are measured, from the first dispatch to the last end: what
    /// `vllm bench serve --num-prompts` does.
    Requests(u64),
}

/// What a good request is: it ends well and keeps all that are given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Slo {
    /// TTFT at most, s.
    pub ttft_s: Option<f64>,
    /// TPOT at most, s.
    pub tpot_s: Option<f64>,
    /// E2E at most, s.
    pub e2e_s: Option<f64>,
}

/// What a sweep may cost.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Budget {
    /// Time, s.
    pub seconds: f64,
    /// Tokens of prompts and outputs together.
    pub tokens: u64,
}

impl Slo {
    /// Whether any is given.
    pub const fn is_given(&self) -> bool {
        self.ttft_s.is_some() || self.tpot_s.is_some() || self.e2e_s.is_some()
    }
}
