//! The panes: one file each, registered in [`PANES`].

mod latency;
mod notice;

use super::pane::PaneSpec;

/// Every pane, in the order of the tabs.
pub const PANES: &[PaneSpec] = &[latency::SPEC];
