//! Load on a serving endpoint, and what it is like for a client: plan, requests, clocking, statistics.
//!
//! It must not know probes, screens or what an engine says of itself. Invariants: only the endpoint of its [`Setup`] is
//! ever asked; every stamp is taken when bytes arrive, before they are understood; a chunk is never taken for a token;
//! no request vanishes: what was not sent, refused, cut or failed is counted as that; each result holds how late the
//! client itself was.
//!
//! # Words
//!
//! *Intended* is when a request should begin: by the schedule of an open loop, or when its user was done with the
//! one before. *Dispatched* is when its first byte is handed to the connection. *Service* latencies count from dispatch,
//! *scheduled* ones from intended. *Content* is output of the model: text or reasoning, never a role or a usage record.
//! TTFT ends with the first content, E2E with the last; ITL lies between two events with content, and TPOT is
//! (E2E − TTFT) ÷ (output tokens − 1) of a request.

mod agree;
pub mod apart;
mod ask;
pub mod backlog;
pub mod body;
pub mod buckets;
pub mod chunk;
pub mod exchange;
mod fault;
pub mod given;
pub mod http;
pub mod knee;
pub mod lengths;
pub mod level;
pub mod plan;
mod prompt;
pub mod rank;
pub mod rates;
mod reading;
pub mod run;
pub mod saturation;
pub mod slices;
pub mod sse;
mod table;
pub mod tally;
#[cfg(test)]
pub(crate) mod tests;
pub mod trace;
pub mod wire;
pub mod work;

pub use level::Level;
pub use plan::Plan;
pub use run::{LoadError, Said, Setup, Swept, run};
