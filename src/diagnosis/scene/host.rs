//! The machine: CPU, memory, page faults, network.

use crate::model::{Metric, Subject};
use crate::store::{Data, Window};

/// Figures of the host. `None`: not known.
#[derive(Clone, Debug, Default)]
pub(in crate::diagnosis) struct HostScene {
    pub(in crate::diagnosis) cpu_busy: Option<f64>,
    /// Time in which some task waited for a CPU, %.
    pub(in crate::diagnosis) cpu_stalled: Option<f64>,
    pub(in crate::diagnosis) mem_stalled: Option<f64>,
    pub(in crate::diagnosis) mem_used: Option<f64>,
    pub(in crate::diagnosis) mem_total: Option<f64>,
    pub(in crate::diagnosis) major_faults: Option<f64>,
    pub(in crate::diagnosis) retransmits: Option<f64>,
}

impl HostScene {
    pub(super) fn of(data: &Data, window: Window) -> Self {
        let mean = |metric| data.mean(Subject::Host, metric, window).value();
        let newest = |metric| data.latest(Subject::Host, metric, window.end).reading.value();
        // µs a second are ten-thousandths of a per cent.
        let stalled = |metric| mean(metric).map(|us| us / 1e4);
        Self {
            cpu_busy: mean(Metric::CpuBusy),
            cpu_stalled: stalled(Metric::PsiCpu),
            mem_stalled: stalled(Metric::PsiMem),
            mem_used: newest(Metric::HostMemUsed),
            mem_total: newest(Metric::HostMemTotal),
            major_faults: mean(Metric::MajorFaults),
            retransmits: mean(Metric::TcpRetrans),
        }
    }
}
