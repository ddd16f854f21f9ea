//! What else is read of the chosen GPU, in words: below the rows where there is room, as when the pane
//! is alone on the screen.

use std::fmt::{self, Display, Formatter};

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::app::View;
use crate::derive::coverage::is_partial;
use crate::model::{FactKey, Metric, Reading, Subject};
use crate::store::Data;
use crate::ui::panes::row::Row;
use crate::ui::text::put;
use crate::ui::theme::{Role, Theme};
use crate::ui::units::{BytesPerSecond, Celsius, Megahertz, Partly, Percent, Span, Watts, Whole};

/// Rows it takes.
pub(super) const ROWS: u16 = 5;
/// Column at which the figures start.
const INDENT: u16 = 10;

/// Figures of one GPU.
#[derive(Debug)]
pub(super) struct Detail {
    occupancy: Reading,
    any_kernel: Reading,
    any_access: Reading,
    mem_clock: [Reading; 2],
    mem_temp: [Reading; 2],
    shutdown: Reading,
    pcie: [Reading; 2],
    pcie_gen: [Reading; 2],
    pcie_width: [Reading; 2],
    nvlink: [Reading; 2],
    ecc: [Reading; 2],
    remapped: Reading,
    pending: Reading,
    energy: Reading,
    /// How much it is of, and of how much, ms.
    energy_ms: u64,
    span_ms: u64,
    /// Instances that it is split into; empty where it is whole.
    instances: String,
    /// Its activity is what an exporter says of these.
    of_instances: bool,
}

impl Detail {
    /// Reads them for one GPU: activity and traffic of the last seconds, energy of the time shown.
    pub(super) fn read(data: &Data, view: &View, gpu: u8) -> Self {
        let gpu = Subject::Gpu(gpu);
        let mean = |metric| data.mean(gpu, metric, view.recent());
        let latest = |metric| data.latest(gpu, metric, view.end).reading;
        Self {
            occupancy: mean(Metric::SmOccupancy),
            any_kernel: mean(Metric::UtilGpuTime),
            any_access: mean(Metric::UtilMemTime),
            mem_clock: [Metric::MemClock, Metric::MemClockMax].map(latest),
            mem_temp: [Metric::MemTemp, Metric::MemTempMax].map(latest),
            shutdown: latest(Metric::TempShutdown),
            pcie: [Metric::PcieRx, Metric::PcieTx].map(mean),
            pcie_gen: [Metric::PcieGen, Metric::PcieGenMax].map(latest),
            pcie_width: [Metric::PcieWidth, Metric::PcieWidthMax].map(latest),
            nvlink: [Metric::NvlinkRx, Metric::NvlinkTx].map(mean),
            ecc: [Metric::EccCorrected, Metric::EccUncorrected].map(latest),
            remapped: latest(Metric::RemappedRows),
            pending: latest(Metric::RemapPending),
            energy: data.mean(gpu, Metric::Energy, view.window()),
            energy_ms: data.measured_ms(gpu, Metric::Energy, view.window()),
            span_ms: view.span_ms,
            instances: data.fact(gpu, FactKey::Instances, view.end).unwrap_or_default().to_owned(),
            of_instances: data.fact(gpu, FactKey::ActivitySource, view.end) == Some("dcgm"),
        }
    }

    /// Draws [`ROWS`] rows and one more of a GPU in MIG mode, fewer where there are fewer; what does not fit into a row is left out.
    pub(super) fn draw(&self, area: Rect, buf: &mut Buffer, theme: Theme) {
        let [kernel, access] = [self.any_kernel, self.any_access].map(Percent);
        let mut lines = Lines { buf, area, theme, y: 0 };
        lines.line(
            "use",
            &[
                ("SM occupancy", format_args!("{}", Percent(self.occupancy))),
                ("time-based: any kernel", format_args!("{kernel}")),
                ("memory access", format_args!("{access}")),
            ],
        );
        lines.line(
            "memory",
            &[
                ("clock", format_args!("{}", of(self.mem_clock, Megahertz))),
                ("temperature", format_args!("{}", of(self.mem_temp, Celsius))),
            ],
        );
        let [pcie_in, pcie_out] = self.pcie.map(BytesPerSecond);
        let [nvlink_in, nvlink_out] = self.nvlink.map(BytesPerSecond);
        lines.line(
            "links",
            &[
                ("PCIe gen", format_args!("{}", of(self.pcie_gen, Whole))),
                ("lanes", format_args!("{}", of(self.pcie_width, Whole))),
                ("in", format_args!("{pcie_in}")),
                ("out", format_args!("{pcie_out}")),
                ("NVLink in", format_args!("{nvlink_in}")),
                ("out", format_args!("{nvlink_out}")),
            ],
        );
        let [corrected, uncorrected] = self.ecc.map(Whole);
        let waits = if self.pending.value().is_some_and(|n| n > 0.0) { ", a reset is due" } else { "" };
        lines.line(
            "health",
            &[
                ("ECC corrected", format_args!("{corrected}")),
                ("uncorrected", format_args!("{uncorrected}")),
                ("remapped rows", format_args!("{}{waits}", Whole(self.remapped))),
            ],
        );
        let partly = Partly(self.energy.value().is_some() && is_partial(self.energy_ms, self.span_ms));
        lines.line(
            "power",
            &[
                ("by energy counter", format_args!("{}{partly} in {}", Watts(self.energy), Span(self.span_ms))),
                ("shutdown at", format_args!("{}", Celsius(self.shutdown))),
            ],
        );
        if !self.instances.is_empty() {
            let instances = format_args!("{}", self.instances);
            let activity = if self.of_instances {
                ("activity is theirs,", format_args!("weighted by slices"))
            } else {
                ("activity of the whole", format_args!("is not told by the driver"))
            };
            lines.line("MIG", &[("instances", instances), activity]);
        }
    }
}

/// Rows of figures with a name before each row.
struct Lines<'a> {
    buf: &'a mut Buffer,
    area: Rect,
    theme: Theme,
    y: u16,
}

impl Lines<'_> {
    fn line(&mut self, name: &str, figures: &[(&str, fmt::Arguments<'_>)]) {
        if self.y >= self.area.height {
            return;
        }
        let (dim, text) = (self.theme.style(Role::Dim), self.theme.style(Role::Text));
        let line = Rect { y: self.area.y.saturating_add(self.y), height: 1, ..self.area };
        put(self.buf, line, (1, 0), dim, format_args!("{name}"));
        let indent = INDENT.min(line.width);
        let mut row = Row::new(self.buf, Rect { x: line.x.saturating_add(indent), width: line.width - indent, ..line });
        for (label, figure) in figures {
            row.part(&[(dim, format_args!("{label} ")), (text, *figure)]).gap(2);
        }
        self.y += 1;
    }
}

/// A figure and, where it is known, its maximum: "2619 MHz of 3201 MHz".
struct Of<T>(T, Option<T>);

fn of<T>([value, most]: [Reading; 2], unit: fn(Reading) -> T) -> Of<T> {
    Of(unit(value), most.value().map(|_| unit(most)))
}

impl<T: Display> Display for Of<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)?;
        self.1.as_ref().map_or(Ok(()), |most| write!(f, " of {most}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Batch, SourceId, Time};
    use crate::store::{Retention, Store};

    /// The row of a GPU whose instances are these.
    fn last_row(instances: &str, source: &str) -> String {
        let store = Store::new(Retention::HOUR);
        let mut batch = Batch::new(SourceId::Nvml, Time(1_000), 2_000);
        batch.push(Subject::Gpu(0), Metric::Temp, 40.0);
        batch.fact(Subject::Gpu(0), FactKey::Instances, instances);
        batch.fact(Subject::Gpu(0), FactKey::ActivitySource, source);
        store.push(&batch);
        let area = Rect::new(0, 0, 80, ROWS + 1);
        let mut buf = Buffer::empty(area);
        Detail::read(&store.read(), &View::new(Time(1_500)), 0).draw(area, &mut buf, Theme::FULL);
        (0..area.width).map(|x| buf[(x, ROWS)].symbol()).collect::<String>().trim().to_owned()
    }

    #[test]
    fn a_split_gpu_names_its_instances() {
        let row = last_row("3g.40gb, 2g.20gb", "dcgm");
        assert_eq!(row, "MIG      instances 3g.40gb, 2g.20gb  activity is theirs, weighted by slices");
        let row = last_row("3g.40gb", "time");
        assert_eq!(row, "MIG      instances 3g.40gb  activity of the whole is not told by the driver");
        assert_eq!(last_row("", "time"), "");
    }
}
