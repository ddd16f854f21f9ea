//! Figures worked out from the store: quantiles with their bounds, the API server's part of them, the queue, energy, the KV split,
//! throttled and busy time, the share of a measured ceiling.
//!
//! Pure functions of what was measured, shared by panes, diagnosis and snapshot, so that all three
//! say the same. They must not know how a figure is shown. Each states its formula and its source.

pub mod api_server;
mod axis;
pub mod busy;
pub mod ceiling;
pub mod concurrency;
pub mod coverage;
pub mod energy;
mod estimate;
pub mod exposed;
pub mod kv;
pub mod latency;
pub mod level;
pub mod levels;
pub mod lives;
pub mod means;
pub mod quantile;
pub mod queue;
pub mod throttle;
