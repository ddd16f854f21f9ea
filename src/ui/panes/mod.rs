//! The panes: one file each, registered in [`PANES`].

mod clocks;
mod concurrency;
mod diagnosis;
mod gpu_strip;
mod kv;
mod latency;
pub mod notice;
mod probes;
mod processes;
mod queue_kv;
mod row;
mod sm_dram;
mod sweep;
#[cfg(test)]
mod tests;

use ratatui::layout::Rect;

use super::pane::PaneSpec;

/// Every pane, in the order of the tabs.
pub const PANES: &[PaneSpec] = &[
    gpu_strip::SPEC,
    sm_dram::SPEC,
    latency::SPEC,
    clocks::SPEC,
    queue_kv::SPEC,
    diagnosis::SPEC,
    processes::SPEC,
    concurrency::SPEC,
    kv::SPEC,
    sweep::SPEC,
    probes::SPEC,
];

/// Columns and rows that a cursor moves on in the pane `id`, whose inside is `area`, whatever it shows; most panes have
/// none.
pub(super) fn cursor_range(id: &str, area: Rect) -> Option<(u16, u16)> {
    if id == latency::SPEC.id {
        let map = latency::plot(area);
        Some((map.width, map.height))
    } else {
        (id == concurrency::SPEC.id).then(|| concurrency::grid(area))
    }
}
