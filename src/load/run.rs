//! A whole sweep on a thread of its own.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::model::Clock;
use crate::net::endpoint::Endpoint;
use crate::net::tls::Authorities;

use super::level::{Knee, Level};
use super::plan::Plan;

/// Where and with what a sweep runs.
#[derive(Clone)]
pub struct Setup {
    /// The one endpoint that is asked, with its key.
    pub endpoint: Endpoint,
    /// Authorities that are trusted besides the system's.
    pub authorities: Authorities,
    /// The clock of all stamps.
    pub clock: Arc<dyn Clock>,
    /// Set to end the sweep; what was measured until then is kept.
    pub stop: Arc<AtomicBool>,
}

/// What is heard of a sweep while it runs.
#[derive(Clone, Debug, PartialEq)]
pub enum Said {
    /// How far it is.
    Progress {
        /// Share that is done, 0 to 1.
        done: f64,
        /// Time left, s, where it can be told.
        eta_s: Option<f64>,
        /// What it is doing.
        what: String,
    },
    /// A level, whole or as far as it is (about once a second).
    Level(Box<Level>),
}

/// What a sweep came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Swept {
    /// Its levels, in the order they were measured in.
    pub levels: Vec<Level>,
    /// Where throughput stops growing.
    pub knee: Option<Knee>,
    /// Why it ended before all levels were measured; empty when it did not.
    pub ended_early: String,
    /// What has to be known to read the figures.
    pub notes: Vec<String>,
    /// Names and versions of what was asked, by name.
    pub facts: Vec<(String, String)>,
}

/// Why there is no sweep.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The endpoint cannot be loaded: what, why, what to do.
    #[error("{0}")]
    Endpoint(String),
    /// The system gave not what it takes.
    #[error("{0}")]
    System(String),
    /// It was told to stop before anything was measured.
    #[error("stopped")]
    Stopped,
}

/// Runs a sweep; `say` is called on the caller's thread, the load runs on another one.
///
/// # Errors
/// When nothing could be measured.
pub fn run(plan: &Plan, setup: &Setup, say: impl FnMut(Said)) -> Result<Swept, LoadError> {
    let _ = (plan, setup, say);
    todo!()
}
