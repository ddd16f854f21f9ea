//! The machine: CPU, memory, page faults, network.

use crate::model::{Metric, Subject, Time};
use crate::store::{Data, Window};

/// Figures of the host. `None`: not known.
#[derive(Clone, Debug, Default)]
pub(in crate::diagnosis) struct HostScene {
    pub(in crate::diagnosis) cpus: Option<f64>,
    pub(in crate::diagnosis) cpu_busy: Option<f64>,
    /// Time in which some task waited for a CPU, %.
    pub(in crate::diagnosis) cpu_stalled: Option<f64>,
    pub(in crate::diagnosis) mem_stalled: Option<f64>,
    pub(in crate::diagnosis) mem_used: Option<f64>,
    pub(in crate::diagnosis) mem_total: Option<f64>,
    pub(in crate::diagnosis) major_faults: Option<f64>,
    pub(in crate::diagnosis) retransmits: Option<f64>,
    /// The busiest process that neither serves nor is on a GPU: its pid, command and CPU, % of a core.
    pub(in crate::diagnosis) other: Option<(u32, String, f64)>,
}

impl HostScene {
    pub(super) fn of(data: &Data, window: Window) -> Self {
        let mean = |metric| data.mean(Subject::Host, metric, window).value();
        let newest = |metric| data.latest(Subject::Host, metric, window.end).reading.value();
        // µs a second are ten-thousandths of a per cent.
        let stalled = |metric| mean(metric).map(|us| us / 1e4);
        Self {
            cpus: newest(Metric::CpuCount),
            cpu_busy: mean(Metric::CpuBusy),
            cpu_stalled: stalled(Metric::PsiCpu),
            mem_stalled: stalled(Metric::PsiMem),
            mem_used: newest(Metric::HostMemUsed),
            mem_total: newest(Metric::HostMemTotal),
            major_faults: mean(Metric::MajorFaults),
            retransmits: mean(Metric::TcpRetrans),
            other: busiest_other(data, window.end),
        }
    }
}

/// The busiest of the other processes that are listed while a server is short of CPU.
fn busiest_other(data: &Data, at: Time) -> Option<(u32, String, f64)> {
    let others = data.current_processes(at)?.rows.iter().filter(|row| row.other);
    let busiest = others.filter_map(|row| Some((row, row.cpu_pct.value()?))).max_by(|a, b| a.1.total_cmp(&b.1));
    busiest.map(|(row, cpu)| (row.pid, row.command.to_string(), cpu))
}
