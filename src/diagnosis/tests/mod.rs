//! Rules on machines made up for a test, where recordings do not reach.

mod clocks;
mod host;
mod links;
pub(super) mod machine;
mod moments;
mod progress;
mod queue;
mod reach;
mod tail;
