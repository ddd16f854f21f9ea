//! The panes: one file each, registered in [`PANES`].

use super::pane::PaneSpec;

/// Every pane, in the order of the tabs.
pub const PANES: &[PaneSpec] = &[];
