//! What a diagnosis said while a recording was made: findings that began and ended.
//!
//! For whoever reads the recording's lines. The store passes it over: a replay judges the data itself, by the rules of the
//! version that replays it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Subject, Time};

/// A finding began or ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventLine {
    /// What it is about.
    #[serde(rename = "of")]
    pub subject: Subject,
    /// Id of its cause.
    pub cause: Arc<str>,
    /// The most that it asked for so far: `watch` or `act`.
    pub level: Arc<str>,
    /// Which end.
    pub edge: EventEdge,
    /// Since when it holds, or does not hold any more.
    pub since: Time,
    /// What was said of it, in few words.
    pub headline: Arc<str>,
}

/// Which end of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventEdge {
    /// It began, or asks for more than before.
    Begin,
    /// It ended.
    End,
}
