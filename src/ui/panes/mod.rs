//! The panes: one file each, registered in [`PANES`].

mod clocks;
mod gpu_strip;
mod latency;
pub mod notice;
mod processes;
mod queue_kv;
mod row;
mod signals;
mod sm_dram;

use super::pane::PaneSpec;

pub(super) use latency::plot as heat_map;

/// Every pane, in the order of the tabs.
pub const PANES: &[PaneSpec] =
    &[gpu_strip::SPEC, sm_dram::SPEC, latency::SPEC, clocks::SPEC, queue_kv::SPEC, signals::SPEC, processes::SPEC];
