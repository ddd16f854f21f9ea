//! The recording format: what the samplers read, as lines of JSON, usually packed with gzip.
//!
//! The first line is a [`Header`], every other line one [`crate::model::Batch`]. It must not know who
//! records or plays. Invariants: a file cut anywhere plays up to the cut; the writer never makes a
//! sampler wait; what a reader hands on is bounded in size and safe to draw.

mod lines;
mod reader;
mod recorder;
mod writer;

use serde::{Deserialize, Serialize};

use crate::model::Time;

pub use reader::{OpenError, Problems, Reader};
pub use recorder::{Ended, Output, RecordError, Recorder, Summary};
pub use writer::Writer;

/// What the header's `format` says.
pub const FORMAT: &str = "warptop.recording";
/// The version this program writes. A reader plays what it knows of a newer one.
pub const VERSION: u32 = 1;
/// Longest line a reader takes in, bytes. A scrape of an engine takes four thousand, a reading of 8 GPUs ten thousand; what
/// the limits of `model::limits` permit, 64 processes and 64 GPUs, a quarter of this. While it is read a line takes up to
/// forty times its length.
pub const MAX_LINE: usize = 1 << 20;

/// The first line of a recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// [`FORMAT`].
    pub format: String,
    /// Version of the format.
    pub version: u32,
    /// Version of the program that wrote it.
    #[serde(default)]
    pub warptop: String,
    /// When recording began. Positions in a recording count from its first batch.
    #[serde(default)]
    pub start: Time,
    /// Name of the machine that was recorded; empty when not known.
    #[serde(default)]
    pub host: String,
    /// Period of the fast readings, ms; 0 when not known.
    #[serde(default)]
    pub interval_ms: u64,
    /// Where it comes from, in words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

impl Header {
    /// The header of a recording that begins now.
    pub fn new(start: Time, host: &str, interval_ms: u64) -> Self {
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            warptop: env!("CARGO_PKG_VERSION").to_owned(),
            start,
            host: host.to_owned(),
            interval_ms,
            note: String::new(),
        }
    }
}
