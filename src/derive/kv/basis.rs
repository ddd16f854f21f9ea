//! How a figure of the KV cache was come by, what an estimate assumes, and what would make it exact.

use super::Kv;

/// How a figure was come by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// Measured, or follows from what was.
    Exact,
    /// Rests on an assumption, which [`Figure::assumes`] names.
    Estimate,
}

impl Basis {
    /// The name in the snapshot (`live_tokens_is`).
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Estimate => "estimate",
        }
    }
}

/// A figure that may be an estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// Live tokens from whole blocks, and the tail that follows from them.
    Live,
    /// Live tokens from the lengths of requests, and what is reserved that follows from them.
    LiveByLength,
    /// Live tokens of requests that share blocks.
    LiveShared,
    /// Cached and free tokens, where they are not told apart.
    Cached,
    /// Tokens computed again.
    Recompute,
    /// Requests that share blocks.
    Sharing,
    /// The longest context against what requests used.
    Overprovision,
}

impl Figure {
    /// Its name in the snapshot.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Live | Self::LiveByLength | Self::LiveShared => "live_tokens",
            Self::Cached => "cached_tokens",
            Self::Recompute => "recomputed_tokens_per_s",
            Self::Sharing => "sharing_x",
            Self::Overprovision => "overprovision_x",
        }
    }

    /// Its name for people.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Live => "live and tail",
            Self::LiveByLength | Self::LiveShared => "live",
            Self::Cached => "cached",
            Self::Recompute => "recomputed",
            Self::Sharing => "sharing",
            Self::Overprovision => "over-provision",
        }
    }

    /// What the estimate assumes.
    pub const fn assumes(self) -> &'static str {
        match self {
            Self::Live => "the last block of a request is half empty on average",
            Self::LiveShared => "blocks that requests share are full",
            Self::Cached => "cached blocks that nobody uses are counted as free",
            Self::Recompute => "preempted requests have the mean prompt and half the mean output",
            Self::LiveByLength | Self::Sharing => "running requests have the mean prompt and half the mean output",
            Self::Overprovision => "long prompts go with long outputs",
        }
    }

    /// What would make it exact with this kind of engine.
    pub fn to_be_exact(self, kind: &str) -> &'static str {
        match (self, kind) {
            (Self::Live | Self::Sharing, "vllm") => "vLLM has no gauge of live tokens; vllm#57336 proposes one",
            (Self::Live | Self::Sharing, "sglang") => {
                "SGLang counts the lengths of its decode batch only (decode_sum_seq_lens), not those in prefill"
            }
            (Self::Live | Self::LiveByLength | Self::LiveShared | Self::Sharing, _) => {
                "a gauge of the tokens that hold state, each counted once"
            }
            (Self::Cached, "vllm") => "vLLM would have to count cached blocks apart from free ones (vllm#33435)",
            (Self::Cached, _) => "a gauge of cached tokens that no request holds",
            (Self::Recompute, _) => {
                "a counter of the tokens that preempted requests lose, as SGLang has for retractions"
            }
            (Self::Overprovision, _) => "a histogram of prompt and output together; engines have one of each",
        }
    }
}

impl Kv {
    /// The figures that are estimates or not told apart, in the order in which they are shown.
    pub fn estimates(&self) -> impl Iterator<Item = Figure> {
        let live = self.live_tokens.value().is_some() && self.live_tokens_is == Basis::Estimate;
        let shared = self.sharing_is == Basis::Exact && self.sharing_x.value().is_some_and(|x| x > 1.0);
        let cached = self.idle_tokens.value().is_some() && self.cached_tokens.value().is_none();
        let recompute = self.recomputed_per_s.value().is_some() && self.recomputed_is == Basis::Estimate;
        let sharing = self.sharing_x.value().is_some_and(|x| x > 1.0) && self.sharing_is == Basis::Estimate;
        let all = [
            (live && shared, Figure::LiveShared),
            (live && !shared && !self.live_by_length, Figure::Live),
            (live && !shared && self.live_by_length, Figure::LiveByLength),
            (cached, Figure::Cached),
            (recompute, Figure::Recompute),
            (sharing, Figure::Sharing),
            (self.overprovision_x.value().is_some(), Figure::Overprovision),
        ];
        all.into_iter().filter_map(|(is, figure)| is.then_some(figure))
    }
}
