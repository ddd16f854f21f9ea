//! All GPUs, a row each: activity, memory, clock, temperature, power and what holds the clocks down.
//!
//! What does not fit is left out, the least telling first; numbers keep their width and place. Where
//! activity is not offered the time-based utilisation stands in its column, labelled "time", without a bar.

mod detail;

use std::fmt::{self, Display, Formatter, Write};
use std::ops::Range;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use crate::derive::coverage::{is_partial, partial};
use crate::derive::throttle::{self, Reason, Throttled};
use crate::diagnosis::{Finding, Severity};
use crate::model::{FactKey, Metric, Reading, Subject, Time, Why};
use crate::store::Data;
use crate::ui::pane::{Context, Pane, PaneSpec};
use crate::ui::text::{columns, put, put_right};
use crate::ui::theme::{Role, Theme};
use crate::ui::units::{BytesPerSecond, GigaBytes, Partly, Percent, Seconds, Span, Watts, Whole};
use crate::ui::widgets::meter;

use super::notice;
use detail::Detail;

/// The pane.
pub(super) const SPEC: PaneSpec = PaneSpec {
    id: "gpu_strip",
    tab: "GPUs",
    help: "A row a GPU: SM activity, DRAM bandwidth, tensor pipes, memory, SM clock of its maximum, temperature \
           (slowdown), power of its limit, traffic in/out over PCIe and NVLink, and what held the clocks down for which share of the time shown. \
           Alone on the screen (z): occupancy, links, errors and energy of the chosen GPU below.",
    new: || Box::<GpuStrip>::default(),
};

/// What a row shows of one GPU.
#[derive(Debug)]
struct Row {
    gpu: u8,
    sm: Reading,
    dram: Reading,
    tensor: Reading,
    util_gpu: Reading,
    util_mem: Reading,
    dram_peak: Reading,
    mem_used: Reading,
    mem_total: Reading,
    clock: Reading,
    clock_max: Reading,
    temp: Reading,
    slowdown: Reading,
    power: Reading,
    limit: Reading,
    /// Traffic into and out of the GPU, bytes/s.
    pcie: [Reading; 2],
    nvlink: [Reading; 2],
    throttled: Option<(&'static Reason, f64)>,
    /// Whether throttled time is known at all.
    counted: Reading,
    /// What holds the clocks down now, by the bits: for where no time is counted.
    slowing: Option<&'static Reason>,
    /// Whether less than four fifths of the time shown were measured of it, and of the last seconds for activity.
    partly_counted: Partly,
    partly: Partly,
    /// When a value of it was read last, of one that says nothing now, and why it does not.
    seen: Option<Time>,
    trouble: String,
}

impl Row {
    fn read(data: &Data, context: &Context<'_>, gpu: u8) -> Self {
        let view = context.view;
        let subject = Subject::Gpu(gpu);
        let mean = |metric| data.mean(subject, metric, view.recent());
        let latest = |metric| data.latest(subject, metric, view.end).reading;
        let throttled = Throttled::over(data, gpu, view.window());
        let mut row = Self {
            gpu,
            sm: mean(Metric::SmActive),
            dram: mean(Metric::DramActive),
            tensor: mean(Metric::TensorActive),
            util_gpu: mean(Metric::UtilGpuTime),
            util_mem: mean(Metric::UtilMemTime),
            dram_peak: latest(Metric::DramPeak),
            mem_used: latest(Metric::GpuMemUsed),
            mem_total: latest(Metric::GpuMemTotal),
            clock: latest(Metric::SmClock),
            clock_max: latest(Metric::SmClockMax),
            temp: latest(Metric::Temp),
            slowdown: latest(Metric::TempSlowdown),
            power: latest(Metric::Power),
            limit: latest(Metric::PowerLimit),
            pcie: [Metric::PcieRx, Metric::PcieTx].map(mean),
            nvlink: [Metric::NvlinkRx, Metric::NvlinkTx].map(mean),
            throttled: throttled.dominant(),
            counted: throttled.at_least(),
            slowing: throttle::slowing(latest(Metric::ThrottleReasons)),
            partly_counted: Partly(is_partial(throttled.measured_ms, view.span_ms)),
            partly: Partly(partial(data, subject, Metric::SmActive, view.recent())),
            seen: None,
            trouble: String::new(),
        };
        if row.silent().is_some() {
            let seen = [Metric::SmActive, Metric::UtilGpuTime, Metric::Temp, Metric::GpuMemUsed];
            let last = |metric| data.series(subject, metric)?.last_value(view.end);
            row.seen = seen.into_iter().filter_map(last).max();
            row.trouble.push_str(data.fact(subject, FactKey::Trouble, view.end).unwrap_or_default());
        }
        row
    }

    /// The reason when nothing at all of this GPU is current.
    fn silent(&self) -> Option<Why> {
        let live = [self.sm, self.util_gpu, self.temp, self.power, self.mem_used, self.clock];
        if live.iter().any(|r| r.value().is_some()) {
            return None;
        }
        self.temp.why().or(Some(Why::NotYet))
    }

    /// Whether activity is not offered, so that time-based utilisation has to do.
    fn time_based(&self) -> bool {
        self.sm.why() == Some(Why::Unsupported)
    }
}

/// A column; all but the meters are right-aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Sm,
    Dram,
    Tensor,
    Memory,
    Clock,
    Temp,
    Power,
    Pcie,
    Nvlink,
    Throttled,
}

/// Columns from left to right.
const ORDER: [Column; 10] = [
    Column::Sm,
    Column::Dram,
    Column::Tensor,
    Column::Memory,
    Column::Clock,
    Column::Temp,
    Column::Power,
    Column::Pcie,
    Column::Nvlink,
    Column::Throttled,
];
/// The mark of the chosen GPU and its number.
const INDEX: u16 = 3;
/// From these widths on, the space before it included, a column shows more of its figure.
const TIME: u16 = 10;
const DRAM_RATE: u16 = 16;
const CLOCK_OF: u16 = 10;
const TEMP_OF: u16 = 10;
const POWER_OF: u16 = 11;
const MEMORY_OF: u16 = 11;
const THROTTLED_WORD: u16 = 18;
/// What a link carries in and out.
const LINK: u16 = 13;
/// A meter takes what is above these widths.
const SM_METER: u16 = 6;
const DRAM_METER: u16 = DRAM_RATE;

/// How columns widen as there is room: each step takes its column to a width, the most telling first.
const STEPS: [(Column, u16); 18] = [
    (Column::Sm, 6),
    (Column::Dram, 6),
    (Column::Temp, 5),
    (Column::Throttled, 7),
    (Column::Power, 6),
    (Column::Memory, 6),
    (Column::Clock, 6),
    (Column::Tensor, 6),
    (Column::Power, POWER_OF),
    (Column::Memory, MEMORY_OF),
    (Column::Throttled, THROTTLED_WORD),
    (Column::Clock, CLOCK_OF),
    (Column::Dram, DRAM_RATE),
    (Column::Nvlink, LINK),
    (Column::Pcie, LINK),
    (Column::Temp, TEMP_OF),
    (Column::Sm, SM_METER + 9),
    (Column::Dram, DRAM_METER + 9),
];
/// In place of what a figure would be measured against.
const NONE: Reading = Reading::Missing(Why::NotYet);
/// Widest a meter gets.
const METER_MOST: u16 = 25;

/// Widths of the columns, in [`ORDER`]; 0 is left out.
type Widths = [u16; ORDER.len()];

fn widths(room: u16, time_based: bool, nvlink: bool) -> Widths {
    let mut widths = Widths::default();
    let mut used = INDEX;
    for (column, width) in STEPS {
        let activity = matches!(column, Column::Sm | Column::Dram);
        // Without activity there is neither a rate nor a meter, but a label.
        if time_based && (activity && width > TIME || column == Column::Tensor) || column == Column::Nvlink && !nvlink {
            continue;
        }
        let width = if time_based && activity { TIME } else { width };
        let now = &mut widths[column as usize];
        if used + width - *now <= room {
            used += width - *now;
            *now = width;
        }
    }
    let meters = widths[Column::Dram as usize] > DRAM_METER && !time_based;
    let spare = if meters { ((room - used) / 2).min(METER_MOST - 9) } else { 0 };
    widths[Column::Sm as usize] += spare;
    widths[Column::Dram as usize] += spare;
    widths
}

#[derive(Debug, Default)]
struct GpuStrip {
    title: String,
    rows: Vec<Row>,
    chosen: usize,
    end: Time,
    time_based: bool,
    /// Why the source gives nothing; empty when it does.
    trouble: String,
    /// More of the chosen GPU; `None` while it says nothing.
    detail: Option<Detail>,
}

impl Pane for GpuStrip {
    fn prepare(&mut self, data: &Data, context: &Context<'_>, area: Rect) {
        self.rows.clear();
        self.rows.extend(data.gpus().map(|gpu| Row::read(data, context, gpu)));
        self.chosen = self.rows.iter().position(|row| row.gpu == context.view.gpu).unwrap_or(0);
        self.end = context.view.end;
        self.time_based = self.rows.iter().any(Row::time_based);
        notice::gpus(data, context.view, &mut self.trouble);
        let speaks = self.rows.get(self.chosen).filter(|row| row.silent().is_none());
        self.detail = speaks.map(|row| Detail::read(data, context.view, row.gpu));
        self.word_title(data, &context.timeline.diagnosis().findings, area);
    }

    fn title(&self) -> &str {
        &self.title
    }

    fn draw(&self, area: Rect, buf: &mut Buffer, context: &Context<'_>) {
        let theme = context.theme;
        if self.rows.is_empty() {
            notice::draw(buf, area, *theme, &self.trouble);
            return;
        }
        // A GPU alone has nobody to speak to.
        let carries =
            |row: &Row| row.nvlink.iter().any(|way| way.value().is_some_and(|v| self.rows.len() > 1 || v > 0.0));
        let nvlink = self.rows.iter().any(carries);
        let widths = widths(area.width, self.time_based, nvlink);
        let header = u16::from(area.height > 1);
        if header > 0 {
            draw_header(area, buf, *theme, widths, Span(context.view.span_ms));
        }
        for (y, row) in (header..area.height).zip(&self.rows[self.shown(area)]) {
            let line = Rect { y: area.y.saturating_add(y), height: 1, ..area };
            self.draw_row(row, line, buf, *theme, widths);
        }
        let used = header.saturating_add(u16::try_from(self.rows.len()).unwrap_or(u16::MAX)).saturating_add(1);
        if let (Some(detail), Some(room)) = (&self.detail, area.height.checked_sub(used).filter(|&r| r >= detail::ROWS))
        {
            detail.draw(Rect { y: area.y.saturating_add(used), height: room, ..area }, buf, *theme);
        }
    }
}

impl GpuStrip {
    /// The rows that there is room for: the chosen one is among them.
    fn shown(&self, area: Rect) -> Range<usize> {
        let room = usize::from(area.height - u16::from(area.height > 1));
        let first = (self.chosen + 1).saturating_sub(room).min(self.rows.len().saturating_sub(room));
        first..self.rows.len().min(first + room)
    }

    /// "NVIDIA H200: SM 81 %, DRAM 46 %", or for several "8 × NVIDIA H200: SM 71 %, DRAM 44 %; GPU 3: heat".
    fn word_title(&mut self, data: &Data, findings: &[Finding], area: Rect) {
        self.title.clear();
        let mean = |of: fn(&Row) -> Reading| {
            let (n, sum) = self.rows.iter().filter_map(|r| of(r).value()).fold((0, 0.0), |(n, s), v| (n + 1, s + v));
            if n > 0 { Reading::new(sum / f64::from(n)) } else { Reading::Missing(Why::Unsupported) }
        };
        let (sm, dram) = (mean(|r| r.sm), mean(|r| r.dram));
        let silent = self.rows.iter().filter(|r| r.silent().is_some()).count();
        let shown = self.shown(area);
        let out = &mut self.title;
        // Writing to a String never fails.
        let _ = match self.rows.as_slice() {
            [] => out.write_str("no GPU"),
            [one] => out.write_str(data.fact(Subject::Gpu(one.gpu), FactKey::Name, self.end).unwrap_or("GPU")),
            many => {
                let name = |row: &Row| data.fact(Subject::Gpu(row.gpu), FactKey::Name, self.end).unwrap_or("GPU");
                let same = many.iter().all(|row| name(row) == name(&many[0]));
                write!(out, "{} × {}", many.len(), if same { name(&many[0]) } else { "GPU" })
            }
        };
        if sm.value().is_some() {
            let partly = Partly(self.rows.iter().any(|row| row.sm.value().is_some() && row.partly.0));
            let _ = write!(out, ": SM {}{partly}, DRAM {}{partly}", Percent(sm), Percent(dram));
            let mut exporter = notice::Exporter::default();
            exporter.read(data, self.rows.get(self.chosen).map_or(0, |row| row.gpu), self.end);
            if exporter.gives() {
                let _ = write!(out, " ({exporter})");
            }
        }
        if self.time_based {
            let _ = out.write_str(": time-based utilisation only");
        }
        let mut found = findings.iter().filter_map(|finding| match finding.subject {
            Subject::Gpu(gpu) if finding.severity > Severity::Ok => Some((gpu, finding.cause.label())),
            _ => None,
        });
        if let Some((gpu, label)) = found.next() {
            let _ = match (self.rows.len(), found.count()) {
                (0 | 1, _) => write!(out, "; {label}"),
                (_, 0) => write!(out, "; GPU {gpu}: {label}"),
                (_, more) => write!(out, "; GPU {gpu}: {label}, {more} more found"),
            };
        }
        if silent > 0 {
            let _ = write!(out, "; {silent} without data");
        }
        if shown.len() < self.rows.len() {
            let _ = write!(out, "; g moves on to {} more", self.rows.len() - shown.len());
        }
    }

    fn draw_row(&self, row: &Row, line: Rect, buf: &mut Buffer, theme: Theme, widths: Widths) {
        let chosen = self.rows.get(self.chosen).is_some_and(|c| c.gpu == row.gpu) && self.rows.len() > 1;
        let mark = match (chosen, theme.unicode()) {
            (true, true) => "▸",
            (true, false) => ">",
            (false, _) => " ",
        };
        let role = if chosen { Role::Accent } else { Role::Text };
        put(buf, line, (0, 0), theme.style(role), format_args!("{mark}{:<2}", row.gpu));
        if let Some(why) = row.silent() {
            let age = row.seen.map(|at| self.end.since(at));
            let trouble = if row.trouble.is_empty() { &self.trouble } else { &row.trouble };
            let words = Silence { why, age, trouble };
            put(buf, line, (INDEX + 1, 0), theme.style(Role::Warn), format_args!("{words}"));
            return;
        }
        let mut x = INDEX;
        for (column, width) in ORDER.into_iter().zip(widths) {
            if width > 0 {
                let area = Rect { x: line.x.saturating_add(x), width: width.min(line.width.saturating_sub(x)), ..line };
                Field { buf, area, theme }.draw(column, row);
                x += width;
            }
        }
    }
}

/// Why a GPU says nothing: "stale, last read 12 s ago: nvidia driver does not answer".
struct Silence<'a> {
    why: Why,
    age: Option<u64>,
    trouble: &'a str,
}

impl Display for Silence<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.why.word())?;
        if let Some(ms) = self.age {
            write!(f, ", last read {} ago", Seconds((ms as f64 / 1000.0).into()))?;
        }
        if self.trouble.is_empty() { Ok(()) } else { write!(f, ": {}", self.trouble) }
    }
}

fn draw_header(area: Rect, buf: &mut Buffer, theme: Theme, widths: Widths, shown: Span) {
    let dim = theme.style(Role::Dim);
    put(buf, area, (0, 0), dim, format_args!("GPU"));
    let mut end = INDEX;
    for (column, width) in ORDER.into_iter().zip(widths) {
        end += width;
        let name = match column {
            Column::Sm if width > SM_METER && width != TIME => "SM active",
            Column::Sm => "SM",
            Column::Dram => "DRAM",
            Column::Tensor => "TC",
            Column::Memory if width < MEMORY_OF => "mem",
            Column::Memory => "memory GiB",
            Column::Clock if width < CLOCK_OF => "MHz",
            Column::Clock => "SM MHz",
            Column::Temp => "temp",
            Column::Power => "power",
            Column::Pcie => "PCIe GB/s",
            Column::Nvlink => "NVLink GB/s",
            Column::Throttled => "held",
        };
        if column == Column::Throttled && width >= THROTTLED_WORD {
            put_right(buf, area, (end, 0), dim, format_args!("held in {shown}"));
        } else if width > 0 {
            put_right(buf, area, (end, 0), dim, format_args!("{name}"));
        }
    }
}

/// The place of one figure of one GPU.
struct Field<'a> {
    buf: &'a mut Buffer,
    area: Rect,
    theme: Theme,
}

impl Field<'_> {
    fn draw(&mut self, column: Column, row: &Row) {
        let wide = |width| self.area.width >= width;
        match column {
            Column::Sm if row.time_based() => self.time(row.util_gpu),
            Column::Sm => self.activity((row.sm, row.partly), SM_METER, Role::Line),
            Column::Dram if row.time_based() => self.time(row.util_mem),
            Column::Dram => self.dram(row),
            Column::Tensor => self.value(row.tensor, Role::Text, format_args!("{}", Percent(row.tensor))),
            Column::Memory => self.memory(row),
            Column::Clock => {
                let of = if wide(CLOCK_OF) { row.clock_max } else { NONE };
                self.value_of(row.clock, Role::Text, format_args!("{}", Whole(row.clock)), ("/", of, ""));
            }
            Column::Temp => self.temperature(row),
            Column::Power if wide(POWER_OF) => {
                self.value_of(row.power, Role::Text, format_args!("{}", Whole(row.power)), ("/", row.limit, " W"));
            }
            Column::Power => self.value(row.power, Role::Text, format_args!("{}", Watts(row.power))),
            Column::Pcie => self.link(row.pcie),
            Column::Nvlink => self.link(row.nvlink),
            Column::Throttled => self.throttled(row),
        }
    }

    /// The style of a value: what is missing is dim.
    fn style(&self, reading: Reading, role: Role) -> Style {
        self.theme.style(if reading.value().is_some() { role } else { Role::Dim })
    }

    /// Writes `text`, which is `reading`, at the right end.
    fn value(&mut self, reading: Reading, role: Role, text: fmt::Arguments<'_>) {
        let style = self.style(reading, role);
        put_right(self.buf, self.area, (self.area.width, 0), style, text);
    }

    /// The same and, dim, what it is measured against, so that both keep their place.
    fn value_of(
        &mut self,
        reading: Reading,
        role: Role,
        text: fmt::Arguments<'_>,
        (before, of, after): (&str, Reading, &str),
    ) {
        let mut end = self.area.width;
        if let (Reading::Value(_), Reading::Value(most)) = (reading, of) {
            let of = format_args!("{before}{most:.0}{after}");
            put_right(self.buf, self.area, (end, 0), self.theme.style(Role::Dim), of);
            end = end.saturating_sub(columns(of));
        }
        let style = self.style(reading, role);
        put_right(self.buf, self.area, (end, 0), style, text);
    }

    /// Traffic in and out, GB/s: "0.1/12.3", and "0.1/n/a" where one way is not known.
    fn link(&mut self, ways: [Reading; 2]) {
        match ways.iter().find(|way| way.value().is_some()) {
            Some(&known) => {
                let [to, from] = ways.map(GigaBytes);
                self.value(known, Role::Text, format_args!("{to}/{from}"));
            }
            None => self.value(ways[0], Role::Text, format_args!("{}", GigaBytes(ways[0]))),
        }
    }

    /// A share of time, labelled so.
    fn time(&mut self, percent: Reading) {
        self.value(percent, Role::Text, format_args!("{}", Percent(percent)));
        put(self.buf, self.area, (1, 0), self.theme.style(Role::Dim), format_args!("time"));
    }

    /// A share of the silicon, with a meter where there is room.
    fn activity(&mut self, (percent, partly): (Reading, Partly), meter_from: u16, role: Role) {
        if let Some(width) = self.area.width.checked_sub(meter_from + 1) {
            let bar = Rect { x: self.area.x.saturating_add(1), width, ..self.area };
            meter(self.buf, bar, &self.theme, percent.value().map(|p| p / 100.0), self.theme.style(role));
        }
        let partly = Partly(partly.0 && percent.value().is_some());
        self.value(percent, Role::Text, format_args!("{}{partly}", Percent(percent)));
    }

    /// DRAM bandwidth: percent of peak and, where there is room, bytes per second.
    fn dram(&mut self, row: &Row) {
        self.activity((row.dram, row.partly), DRAM_METER, Role::AreaText);
        if self.area.width >= DRAM_RATE
            && let (Reading::Value(percent), Reading::Value(peak)) = (row.dram, row.dram_peak)
        {
            let rate = BytesPerSecond((percent / 100.0 * peak).into());
            put_right(
                self.buf,
                self.area,
                (self.area.width - 6 - u16::from(row.partly.0), 0),
                self.theme.style(Role::Dim),
                format_args!("{rate}"),
            );
        }
    }

    /// "36.5/140" GiB, or the share in use.
    fn memory(&mut self, row: &Row) {
        const GIB: f64 = 1_073_741_824.0;
        let (used, total) = (row.mem_used, row.mem_total);
        match (used, total) {
            (Reading::Value(bytes), _) if self.area.width >= MEMORY_OF => {
                let total = total.map(|b| b / GIB);
                self.value_of(used, Role::Text, format_args!("{:.1}", bytes / GIB), ("/", total, ""));
            }
            (Reading::Value(bytes), Reading::Value(most)) if most > 0.0 => {
                self.value(used, Role::Text, format_args!("{:.0} %", bytes / most * 100.0));
            }
            (Reading::Value(_), _) => self.value(NONE, Role::Dim, format_args!("{}", Percent(NONE))),
            (missing, _) => self.value(missing, Role::Dim, format_args!("{}", Percent(missing))),
        }
    }

    fn temperature(&mut self, row: &Row) {
        // Within five degrees of slowdown it is worth a look.
        let hot = row.temp.value().zip(row.slowdown.value()).is_some_and(|(t, most)| t >= most - 5.0);
        let role = if hot { Role::Warn } else { Role::Text };
        let sign = match (row.temp, self.theme.unicode()) {
            (Reading::Missing(_), _) => "",
            (_, true) => "°",
            (_, false) => "C",
        };
        let of = if self.area.width >= TEMP_OF { row.slowdown } else { NONE };
        self.value_of(row.temp, role, format_args!("{}{sign}", Whole(row.temp)), (" (", of, ")"));
    }

    /// What held the clocks down longest, and for which share of the time shown; "now" where no time is counted.
    fn throttled(&mut self, row: &Row) {
        let counted = row.counted.value().is_some();
        let Some((reason, share)) = row.throttled else {
            if let Some(reason) = row.slowing.filter(|_| !counted) {
                self.value(Reading::Value(0.0), Role::Warn, format_args!("now"));
                return self.reason(reason, 4);
            }
            let text = if counted { "no" } else { row.counted.why().map_or("", Why::word) };
            return self.value(row.counted, Role::Dim, format_args!("{text}"));
        };
        let percent = Reading::new(share * 100.0);
        self.value(percent, Role::Warn, format_args!("{}{}", Percent(percent), row.partly_counted));
        self.reason(reason, 6 + u16::from(row.partly_counted.0));
    }

    /// A reason before the last `columns` of its cell, where there is room.
    fn reason(&mut self, reason: &Reason, columns: u16) {
        if self.area.width >= THROTTLED_WORD {
            let end = (self.area.width - columns, 0);
            put_right(self.buf, self.area, end, self.theme.style(Role::Warn), format_args!("{}", reason.word));
        }
    }
}
