//! Plain data: what is measured, of what, in which unit, when, or why not.
//!
//! Owns the vocabulary that every other module speaks. It must not know where a value comes from
//! (no driver, socket or file) nor how it is shown (no terminal). Invariant: a value that is not
//! known is a [`Why`], never a number.

pub mod address;
pub mod batch;
pub mod ceiling;
pub mod clock;
pub mod event;
pub mod gpu_specs;
mod histogram;
pub mod limits;
mod lock;
pub mod mark;
pub mod metric;
pub mod plausible;
pub mod process;
pub mod reading;
pub mod secret;
mod spawn;
pub mod text;

pub use address::Address;
pub use batch::{Batch, Fact, FactKey, HistogramSample, Sample, SourceId, SourceState};
pub use clock::{Clock, ManualClock, SystemClock, Time};
pub use event::{EventEdge, EventLine};
pub use lock::lock;
pub use mark::{Edge, Mark};
pub use metric::{Domain, Kind, Metric, Unit};
pub use process::{CpuLimits, GpuProcess, MoreProcesses, ProcessSample, ProcessState, ThreadSample};
pub use reading::{Reading, Subject, Why};
pub use spawn::spawn;
