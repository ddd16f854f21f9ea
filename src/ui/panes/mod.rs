//! The panes: one file each, registered in [`PANES`].

mod clocks;
mod gpu_strip;
mod latency;
mod notice;
mod sm_dram;

use super::pane::PaneSpec;

/// Every pane, in the order of the tabs.
pub const PANES: &[PaneSpec] = &[gpu_strip::SPEC, sm_dram::SPEC, latency::SPEC, clocks::SPEC];
