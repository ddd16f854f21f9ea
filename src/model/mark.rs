//! Marks on the time axis: what warptop itself did to the machine, and when.
//!
//! A run of a probe is a pair of marks, at its start and at its end. What is drawn between them was
//! measured while the probe ran.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Subject;

/// One end of a run of a probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// What it ran on.
    #[serde(rename = "of")]
    pub subject: Subject,
    /// Id of the probe, cleaned for the screen.
    pub probe: Arc<str>,
    /// Name of the run, cleaned for the screen.
    pub run: Arc<str>,
    /// Which end.
    pub edge: Edge,
}

/// Which end of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Edge {
    /// It began, and takes this long at most, ms: so long it counts as running while its end is not known.
    Start(u64),
    /// It ended, like this: `done`, `stopped`, `failed`.
    End(Arc<str>),
}
