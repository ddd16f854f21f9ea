//! What part of the data every pane shows: one time axis for all of them.

use crate::model::{Metric, Time};
use crate::store::Window;

/// The part of the data that all panes show.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct View {
    /// Right edge of every plot. Live: now. Paused or replayed: the moment looked at.
    pub end: Time,
    /// Whether the right edge follows the data.
    pub live: bool,
    /// Length of the time axis, ms.
    pub span_ms: u64,
    /// Chosen GPU (NVML index).
    pub gpu: u8,
    /// Chosen engine.
    pub engine: u8,
    /// Histogram on the heat map: one of [`View::LATENCIES`].
    pub latency: Metric,
    /// Cursor on the heat map as column (0 = left) and row (0 = bottom), when switched on.
    pub cursor: Option<(u16, u16)>,
    /// Whether DRAM bandwidth is shown in % of what was measured here, where that is known, instead of the datasheet's peak.
    pub of_measured: bool,
    /// Place of the probe that is looked at, among those that people are shown.
    pub probe: usize,
    /// First line that is shown of that probe's last report; `None` while the list of probes is shown.
    pub report: Option<u16>,
}

impl View {
    /// Lengths of the time axis that the span keys step through, ms.
    pub const SPANS: [u64; 8] = [15_000, 60_000, 300_000, 600_000, 1_800_000, 3_600_000, 6 * 3_600_000, 24 * 3_600_000];
    /// What the heat map can show, in the order of its key.
    pub const LATENCIES: [Metric; 7] = [
        Metric::Ttft,
        Metric::Itl,
        Metric::Tpot,
        Metric::E2e,
        Metric::QueueTime,
        Metric::PrefillTime,
        Metric::DecodeTime,
    ];

    /// The first GPU and engine, one minute up to `end`.
    pub const fn new(end: Time) -> Self {
        Self {
            end,
            live: true,
            span_ms: 60_000,
            gpu: 0,
            engine: 0,
            latency: Metric::Ttft,
            cursor: None,
            of_measured: false,
            probe: 0,
            report: None,
        }
    }

    /// The time axis.
    pub fn window(&self) -> Window {
        Window::last(self.end, self.span_ms)
    }

    /// The time that rates of an engine are of, ms: requests and preemptions are whole, some of them rare, and tokens stand
    /// beside them.
    pub const RATES_MS: u64 = 10_000;

    /// The last ten seconds: what "now" means for rates of an engine.
    pub fn rates(&self) -> Window {
        Window::last(self.end, Self::RATES_MS)
    }

    /// The last two seconds: what "now" means for values that flicker.
    pub fn recent(&self) -> Window {
        Window::last(self.end, 2_000)
    }
}
