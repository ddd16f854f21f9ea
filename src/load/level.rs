//! What one level of a sweep came to: the client's figures, and beside them what server and GPUs did meanwhile.
//!
//! Plain data, part of the format of reports (docs/sweep.md). Invariants: times are in seconds unless the name says
//! otherwise; what was not measured is `null` or absent, never 0; names are only ever added.

use std::collections::BTreeSet;
use std::fmt::{self, Display, Formatter};

use serde::{Deserialize, Serialize};

/// A level, whole or as far as it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Level {
    /// Its place in the order in which levels are planned, from 0.
    pub place: u32,
    /// Which repetition of the same load it is, from 0.
    pub repeat: u32,
    /// What sets the load.
    pub load: Load,
    /// How far it is, or how it ended.
    pub state: State,
    /// When its first request was dispatched, ms since the Unix epoch.
    pub started_unix_ms: u64,
    /// From when on requests are measured.
    pub from_unix_ms: u64,
    /// Until when requests were dispatched that are measured.
    pub to_unix_ms: u64,
    /// When its last request had ended.
    pub ended_unix_ms: u64,
    /// What became of the requests.
    pub requests: Requests,
    /// Tokens of the measured requests.
    pub tokens: Tokens,
    /// From dispatch to the first content.
    pub ttft_s: Latency,
    /// From dispatch to the first content that is no reasoning; of models that reason.
    pub answer_s: Latency,
    /// Between two events with content of the same request. They are not independent, so there is no interval.
    pub itl_s: Latency,
    /// (E2E − TTFT) ÷ (output tokens − 1).
    pub tpot_s: Latency,
    /// From dispatch to the last content.
    pub e2e_s: Latency,
    /// From the intended start to the first content; only in an open loop.
    pub scheduled_ttft_s: Option<Latency>,
    /// From the intended start to the last content; only in an open loop.
    pub scheduled_e2e_s: Option<Latency>,
    /// Requests that ended in the measured time, per second.
    pub requests_per_s: Option<Rate>,
    /// Output tokens that came in the measured time, per second.
    pub output_tokens_per_s: Option<Rate>,
    /// Prompt and output tokens of the requests that ended in the measured time, per second.
    pub total_tokens_per_s: Option<Rate>,
    /// How many of the measured requests were good; `None` where no SLO was given.
    pub goodput: Option<Goodput>,
    /// Whether the client was the limit.
    pub client: Client,
    /// The measured requests in pieces of at most a minute of the clock, for the time × concurrency map.
    pub slices: Vec<Slice>,
    /// What has to be known to read it.
    pub notes: Vec<String>,
    /// The fault that came most often, in words; `None` where no request failed.
    pub most_frequent_fault: Option<String>,
    /// What the server said of itself meanwhile; `None` where it is not read.
    pub server: Option<Server>,
    /// What each GPU of this host did meanwhile.
    pub gpus: Vec<Silicon>,
    /// What held it back; `None` where nothing tells.
    pub bottleneck: Option<Bottleneck>,
}

/// What sets the load of a level.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Load {
    /// So many users.
    Users(u32),
    /// So many requests per second.
    RequestsPerS(f64),
    /// The requests of a trace.
    Trace,
}

impl Default for Load {
    fn default() -> Self {
        Self::Users(0)
    }
}

/// How far a level is, or how it ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Not begun yet. It says so once, at the start of a sweep, and may be left out.
    Planned,
    /// Not measured yet.
    #[default]
    WarmingUp,
    /// Being measured.
    Measuring,
    /// Measured, the last requests are being waited for.
    Ending,
    /// Measured as planned.
    Done,
    /// Its time was over before it had its samples.
    Short,
    /// More came than was served: latencies and requests in flight grew until it was ended. No steady state was there.
    OverSaturated,
    /// Too many requests failed.
    Failing,
    /// The budget was used up.
    OutOfBudget,
    /// It was told to stop.
    Stopped,
}

impl Requests {
    /// Measured requests that came to nothing, however.
    pub const fn lost(&self) -> u64 {
        self.refused + self.cut + self.failed + self.unconnected
    }
}

impl State {
    /// Whether it is over.
    pub const fn is_over(self) -> bool {
        !matches!(self, Self::Planned | Self::WarmingUp | Self::Measuring | Self::Ending)
    }
}

/// What became of the requests of a level. All but `sent` and `not_sent` count measured requests only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Requests {
    /// Dispatched, warm-up and cool-down included.
    pub sent: u64,
    /// Measured: dispatched in the measured time, whatever became of them.
    pub measured: u64,
    /// Ended well.
    pub ok: u64,
    /// Refused by the server before it began (HTTP 429 or 503).
    pub refused: u64,
    /// The answer broke off.
    pub cut: u64,
    /// Failed in any other way: another status, an error in the stream, no answer in time.
    pub failed: u64,
    /// Connections that could not be made. Such a request was not sent, and not measured: it should have been.
    pub unconnected: u64,
    /// Came while as many as may be were in flight, and began late for it.
    pub held_back: u64,
    /// Were planned and never sent: the level ended before.
    pub not_sent: u64,
}

/// Tokens of the measured requests that ended well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tokens {
    /// Of prompts, as the server counted; `None` where it did not.
    pub prompt: Option<u64>,
    /// Of prompts that the server found in its prefix cache; `None` where it did not say.
    pub cached: Option<u64>,
    /// Of outputs, as the server counted; `None` where it did not.
    pub output: Option<u64>,
    /// Events with content.
    pub events: u64,
    /// Requests whose output had another length than was planned.
    pub other_length: u64,
    /// Requests of which the server did not say how many tokens they were.
    pub uncounted: u64,
}

/// A latency of the measured requests that ended well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Latency {
    /// Number of measurements.
    pub n: u64,
    /// Mean.
    pub mean: Option<f64>,
    /// Smallest.
    pub min: Option<f64>,
    /// Largest.
    pub max: Option<f64>,
    /// Median.
    pub p50: Option<Quantile>,
    /// 95th percentile.
    pub p95: Option<Quantile>,
    /// 99th percentile.
    pub p99: Option<Quantile>,
}

/// A sample quantile: the measurement of rank ⌈q·n⌉, with its distribution-free interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Quantile {
    /// The measurement.
    pub value: f64,
    /// Lower end of the 95 % interval from order statistics; `None`: so few measurements bound it not from below.
    pub lo: Option<f64>,
    /// Upper end; `None`: so few measurements bound it not from above.
    pub hi: Option<f64>,
    /// Whether n suffices for both ends (6 for a P50, 72 for a P95, 368 for a P99): else it must not be called one.
    pub enough: bool,
}

/// A rate with the interval that its spread over the measured time gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rate {
    /// The rate, per second.
    pub value: f64,
    /// Lower end of its 95 % interval from batch means; `None` where the time was too short.
    pub lo: Option<f64>,
    /// Upper end.
    pub hi: Option<f64>,
}

/// Requests that kept every SLO.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Goodput {
    /// So many of the measured requests were good.
    pub good: u64,
    /// Of so many, failed ones included.
    pub n: u64,
    /// Their share, 0 to 1.
    pub share: f64,
    /// Lower end of Wilson's 95 % interval of the share.
    pub lo: f64,
    /// Upper end.
    pub hi: f64,
    /// Good requests per second.
    pub per_s: f64,
}

/// How late the client itself was, and how busy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Client {
    /// From the intended start of a request to its dispatch. Waiting for a place among the requests in flight is the
    /// server's doing and not in it.
    pub dispatch_lag: Lag,
    /// How late a timer of the event loop was served that is due every 10 ms: so late any stamp may be.
    pub loop_lag: Lag,
    /// CPU time of this process, % of one core.
    pub cpu_pct: Option<f64>,
    /// Requests in flight, mean over the measured time.
    pub in_flight: Option<f64>,
    /// Most requests in flight at once.
    pub most_in_flight: u64,
    /// Why the client may have been the limit, in words; empty where it was not.
    pub limits: Vec<String>,
    /// Limits of this host that kept it from making connections.
    pub host_limits: BTreeSet<HostLimit>,
}

/// A limit of the client's host that keeps it from making another connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostLimit {
    /// Open files, of the process or the host (EMFILE, ENFILE).
    OpenFiles,
    /// Local ports (EADDRNOTAVAIL).
    LocalPorts,
}

impl Display for HostLimit {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OpenFiles => "no more files may be opened: raise the limit (ulimit -n)",
            Self::LocalPorts => "no local port is left: fewer connections, or more ports",
        })
    }
}

/// How late something was, s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lag {
    /// Number of measurements.
    pub n: u64,
    /// Median.
    pub p50: Option<f64>,
    /// 99th percentile; `None` where n does not suffice for one.
    pub p99: Option<f64>,
    /// Largest.
    pub max: Option<f64>,
}

/// A piece of a level for the time × concurrency map: how many measurements fell into each bucket of
/// [`super::buckets::edges`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Slice {
    /// Start, ms since the Unix epoch.
    pub from_unix_ms: u64,
    /// End; within the same minute of the clock.
    pub to_unix_ms: u64,
    /// TTFT of the requests that had their first content then: number of a bucket and what fell into it.
    pub ttft: Vec<(u16, u32)>,
    /// ITL of the events that came then.
    pub itl: Vec<(u16, u32)>,
    /// TPOT of the requests that ended then.
    pub tpot: Vec<(u16, u32)>,
    /// E2E of the requests that ended then.
    pub e2e: Vec<(u16, u32)>,
}

/// What the server said of itself in the measured time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Server {
    /// Requests running, mean.
    pub running: Option<f64>,
    /// Requests waiting, mean.
    pub waiting: Option<f64>,
    /// Most requests waiting at any reading.
    pub most_waiting: Option<f64>,
    /// KV cache in use, mean, %.
    pub kv_used_pct: Option<f64>,
    /// KV cache in use, most, %.
    pub most_kv_used_pct: Option<f64>,
    /// Requests that lost their KV blocks and had to begin again.
    pub preemptions: Option<f64>,
    /// Prompt tokens found in the prefix cache, %.
    pub prefix_hit_pct: Option<f64>,
    /// What client and server say of the same thing.
    pub agreement: Vec<Agreement>,
}

/// A figure of the client beside the server's own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Agreement {
    /// Of what.
    pub what: String,
    /// Its unit.
    pub unit: String,
    /// What the client measured.
    pub client: f64,
    /// The server's figure is at least this.
    pub server_lo: f64,
    /// It is at most this; `None`: not bounded.
    pub server_hi: Option<f64>,
    /// Whether they agree, within what the server's buckets and the way there leave open.
    pub agrees: bool,
}

/// What a GPU did in the measured time: means, unless the name says otherwise.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Silicon {
    /// NVML index.
    pub index: u8,
    /// SMs active, %.
    pub sm_active_pct: Option<f64>,
    /// DRAM active, % of its peak.
    pub dram_active_pct: Option<f64>,
    /// Tensor pipes active, %.
    pub tensor_active_pct: Option<f64>,
    /// SM clock, MHz.
    pub sm_clock_mhz: Option<f64>,
    /// Highest SM clock, MHz.
    pub sm_clock_max_mhz: Option<f64>,
    /// Board power, W.
    pub power_w: Option<f64>,
    /// Highest temperature of the die, °C.
    pub most_temp_c: Option<f64>,
    /// Time that its clocks were held down, at least, ms per second.
    pub throttled_ms_per_s: Option<f64>,
    /// Why, most of the time; `None` where they were not.
    pub throttled_by: Option<String>,
}

impl Silicon {
    /// Throttled time from which on a level is marked, ms per second: a twentieth of the time.
    const MARKED_MS: f64 = 50.0;

    /// Whether its clocks were held down for more than moments.
    pub fn is_throttled(&self) -> bool {
        self.throttled_ms_per_s.is_some_and(|ms| ms >= Self::MARKED_MS)
    }
}

/// What held a level back.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Bottleneck {
    /// In a word or two.
    pub word: String,
    /// What that rests on.
    pub evidence: String,
}

/// Where more load stops giving more throughput.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Knee {
    /// The load at which two straight lines through the levels meet, users or requests per second.
    pub at: f64,
    /// The highest level below it.
    pub lo: f64,
    /// The lowest level above it.
    pub hi: f64,
    /// Output tokens per second there, from the fit.
    pub output_tokens_per_s: f64,
    /// What it rests on, in a sentence.
    pub words: String,
}

mod words;
pub use words::High;

#[cfg(test)]
pub(crate) mod fixture;
