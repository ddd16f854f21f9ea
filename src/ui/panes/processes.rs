//! Processes that hold device memory, and serving engines: what each takes from the GPU and the host.
//!
//! The most device memory first, then the most resident memory. A value that cannot be read says why in
//! its cell; a table that is too old says how old it is.

use std::fmt::{self, Display, Formatter, Write};
use std::sync::Arc;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};

use crate::app::View;
use crate::engine::shown;
use crate::model::{FactKey, MoreProcesses, ProcessState, Reading, SourceId, SourceState, Subject, Time, Why};
use crate::store::{Data, ProcessRow, ProcessTable};
use crate::ui::pane::{Context, Pane, PaneSpec};
use crate::ui::text::{put, put_wrapped};
use crate::ui::theme::{Role, Theme};
use crate::ui::units::{Bytes, Number, Percent, Span};

use super::notice;

/// The pane.
pub(super) const SPEC: PaneSpec = PaneSpec {
    id: "processes",
    tab: "Processes",
    help: "Processes on a GPU and serving engines. CPU is in % of one core; major faults are page faults that had to \
           read from disk: a serving process should have none. Below them the options that the chosen engine was started \
           with. 'denied' means another pid namespace or another user.",
    new: || Box::new(Processes::default()),
};

/// A row, copied without allocating.
#[derive(Clone, Debug)]
struct Row {
    pid: u32,
    user: Arc<str>,
    command: Arc<str>,
    /// GPUs it uses, one bit each.
    gpus: u64,
    /// Device memory on all of them; `None` when it uses none.
    gpu_mem: Option<Reading>,
    cpu_pct: Reading,
    rss: Reading,
    majflt_per_s: Reading,
    page_table: Reading,
    state: Option<ProcessState>,
    other: bool,
}

impl Row {
    fn of(row: &ProcessRow) -> Self {
        let sum = |sum: Option<Reading>, &(_, mem): &(u8, Reading)| match (sum, mem) {
            // What can be read is shown even where another GPU's part cannot.
            (Some(Reading::Value(a)), Reading::Value(b)) => Some(Reading::new(a + b)),
            (Some(Reading::Value(a)), Reading::Missing(_)) => Some(Reading::new(a)),
            _ => Some(mem),
        };
        Self {
            pid: row.pid,
            user: Arc::clone(&row.user),
            command: Arc::clone(&row.command),
            gpus: row.gpus.iter().fold(0, |bits, (gpu, _)| bits | 1 << (gpu & 63)),
            gpu_mem: row.gpus.iter().fold(None, sum),
            cpu_pct: row.cpu_pct,
            rss: row.rss,
            majflt_per_s: row.majflt_per_s,
            page_table: row.page_table,
            state: row.state,
            other: row.other,
        }
    }

    /// What it does where that is not its work, in a word; else whether it belongs to no engine and takes CPU.
    const fn remark(&self) -> &'static str {
        match self.state {
            Some(ProcessState::Stopped | ProcessState::Traced) => "stopped",
            Some(ProcessState::DiskSleep) => "in disk sleep",
            Some(ProcessState::Zombie) => "gone",
            _ if self.other => "other",
            _ => "",
        }
    }

    fn gpu_bytes(&self) -> f64 {
        self.gpu_mem.and_then(Reading::value).unwrap_or(-1.0)
    }

    /// The command without the directory of its program.
    fn short_command(&self) -> &str {
        let program = self.command.split(' ').next().unwrap_or_default();
        let skip = program.rfind('/').map_or(0, |slash| slash + 1);
        self.command.get(skip..).unwrap_or_default()
    }
}

/// What is drawn.
#[derive(Debug, Default)]
struct Processes {
    title: String,
    notice: String,
    rows: Vec<Row>,
    /// The chosen engine's options that limit it, as they were given.
    options: String,
    stale: bool,
}

impl Pane for Processes {
    fn prepare(&mut self, data: &Data, context: &Context<'_>, _area: Rect) {
        let end = context.view.end;
        self.rows.clear();
        self.title.clear();
        self.notice.clear();
        self.stale = false;
        let Some(table) = data.processes(end) else {
            let state = data.source(SourceId::Process).map(|source| source.state_at(end));
            let why =
                state.map(SourceState::why).filter(|why| !why.is_empty()).unwrap_or("no process table was read yet");
            self.notice.push_str(why);
            self.title.push_str("not read");
            return;
        };
        self.rows.extend(table.rows.iter().map(Row::of));
        let key = |row: &Row| (row.gpu_bytes(), row.rss.value().unwrap_or(-1.0));
        self.rows.sort_unstable_by(|a, b| {
            let (a, b) = ((key(a), a.pid), (key(b), b.pid));
            b.0.0.total_cmp(&a.0.0).then(b.0.1.total_cmp(&a.0.1)).then(a.1.cmp(&b.1))
        });
        if self.rows.is_empty() {
            self.notice.push_str("no process holds device memory, and none looks like a serving engine");
        }
        self.read_options(data, table, context.view);
        self.word_title(table, end);
    }

    fn title(&self) -> &str {
        &self.title
    }

    fn draw(&self, area: Rect, buf: &mut Buffer, context: &Context<'_>) {
        let area = area.intersection(buf.area);
        if self.rows.is_empty() {
            notice::draw(buf, area, *context.theme, &self.notice);
            return;
        }
        let columns = Columns::for_width(area.width);
        let head = u16::from(area.height > 1);
        columns.draw_head(buf, Rect { height: head, ..area }, *context.theme);
        let room = usize::from(area.height - head);
        // The last row says how many there is no room for.
        let shown = if self.rows.len() > room { room.saturating_sub(1) } else { self.rows.len() };
        for (row, y) in self.rows.iter().take(shown).zip(head..) {
            columns.draw_row(buf, Rect { y: area.y + y, height: 1, ..area }, *context.theme, row, self.stale);
        }
        if shown < self.rows.len() && room > 0 {
            let dim = context.theme.style(Role::Dim);
            put(buf, area, (0, area.height - 1), dim, format_args!("+{} more", self.rows.len() - shown));
        }
        let used = head.saturating_add(u16::try_from(shown).unwrap_or(u16::MAX));
        if !self.options.is_empty() && used < area.height {
            let below = Rect { y: area.y + used, height: area.height - used, ..area };
            put_wrapped(buf, below, context.theme.style(Role::Dim), &self.options);
        }
    }
}

impl Processes {
    /// Takes the options from the command line of the first of the engine's processes that has any. No other word of it is
    /// shown: it may hold a key.
    fn read_options(&mut self, data: &Data, table: &ProcessTable, view: &View) {
        self.options.clear();
        let pids = data.fact(Subject::Engine(view.engine), FactKey::Pids, view.end).unwrap_or_default();
        let own = |row: &&ProcessRow| pids.split([' ', ',']).any(|pid| pid.parse() == Ok(row.pid));
        for row in table.rows.iter().filter(own) {
            shown::push(&row.command, &mut self.options);
            if !self.options.is_empty() {
                return;
            }
        }
    }

    fn word_title(&mut self, table: &ProcessTable, end: Time) {
        let age = end.since(table.at);
        self.stale = !table.is_current(end);
        let title = &mut self.title;
        // Writing to a String never fails.
        if self.stale {
            let _ = write!(title, "stale, read {} ago: ", Span(age));
        }
        let on_gpu = self.rows.iter().filter(|row| row.gpu_mem.is_some());
        let bytes: f64 = on_gpu.clone().map(|row| row.gpu_bytes().max(0.0)).sum();
        let _ = match on_gpu.count() {
            0 => write!(title, "none on a GPU"),
            1 => write!(title, "1 holds {} of GPU memory", Bytes(Reading::new(bytes))),
            n => write!(title, "{n} hold {} of GPU memory", Bytes(Reading::new(bytes))),
        };
        if table.more.count > 0 {
            let MoreProcesses { count, gpu_mem } = table.more;
            let verb = if count == 1 { "process holds" } else { "processes hold" };
            let _ = write!(title, ", and {count} more {verb} {}", Bytes(Reading::new(gpu_mem)));
        }
        let faults: f64 = self.rows.iter().filter_map(|row| row.majflt_per_s.value()).sum();
        if faults >= 0.05 {
            let _ = write!(title, ", {} major faults/s", Number(Reading::new(faults)));
        }
        for row in self.rows.iter().filter(|row| !row.other && !row.remark().is_empty()) {
            let _ = write!(title, "; {} {}", row.pid, row.remark());
        }
        let others: f64 = self.rows.iter().filter(|row| row.other).filter_map(|row| row.cpu_pct.value()).sum();
        if others > 0.5 {
            let _ = write!(title, "; others take {} CPU", Percent(Reading::new(others)));
        }
    }
}

/// Widths of the columns: 0 for one that there is no room for. The command takes the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Columns {
    pid: u16,
    user: u16,
    gpu: u16,
    gpu_mem: u16,
    cpu: u16,
    rss: u16,
    faults: u16,
    page_table: u16,
}

impl Columns {
    /// The first to go is the last to be missed: page tables, which GPU, faults, user, RSS, CPU.
    const fn for_width(width: u16) -> Self {
        const fn from(width: u16, least: u16, columns: u16) -> u16 {
            if width >= least { columns } else { 0 }
        }
        Self {
            pid: 8,
            user: from(width, 70, 9),
            gpu: from(width, 86, 6),
            gpu_mem: 10,
            cpu: from(width, 42, 8),
            rss: from(width, 56, 10),
            faults: from(width, 76, 10),
            page_table: from(width, 100, 10),
        }
    }

    /// Calls `cell` with the place and width of each column that is shown; the command's is what is left.
    fn each(&self, width: u16, mut cell: impl FnMut(Column, u16, u16)) {
        let columns = [
            (Column::Pid, self.pid),
            (Column::User, self.user),
            (Column::Gpu, self.gpu),
            (Column::GpuMem, self.gpu_mem),
            (Column::Cpu, self.cpu),
            (Column::Rss, self.rss),
            (Column::Faults, self.faults),
            (Column::PageTable, self.page_table),
        ];
        let mut x = 0;
        for (column, columns) in columns.into_iter().filter(|(_, columns)| *columns > 0) {
            cell(column, x, columns);
            x += columns;
        }
        cell(Column::Command, x + 2, width.saturating_sub(x + 2));
    }

    fn draw_head(&self, buf: &mut Buffer, area: Rect, theme: Theme) {
        let dim = theme.style(Role::Dim);
        self.each(area.width, |column, x, width| {
            let room = usize::from(width);
            let _ = match column.name() {
                name if column.is_text() => put(buf, area, (x, 0), dim, format_args!("{name}")),
                name => put(buf, area, (x, 0), dim, format_args!("{name:>room$}")),
            };
        });
    }

    fn draw_row(&self, buf: &mut Buffer, area: Rect, theme: Theme, row: &Row, stale: bool) {
        let (mut text, dim) = (theme.style(Role::Text), theme.style(Role::Dim));
        if stale {
            text = dim.add_modifier(Modifier::DIM);
        }
        let of = |reading: Reading| if reading.value().is_some() { text } else { dim };
        self.each(area.width, |column, x, width| {
            let room = usize::from(width);
            let cell = Rect { x: area.x.saturating_add(x), width: width.min(area.width.saturating_sub(x)), ..area };
            let mut show = |style: Style, words: fmt::Arguments<'_>| {
                put(buf, cell, (0, 0), style, words);
            };
            match column {
                Column::Pid => show(text, format_args!("{:>room$}", row.pid)),
                // A name that fills its column must not touch the next one.
                Column::User => show(dim, format_args!("  {:.w$}", &*row.user, w = room.saturating_sub(3))),
                Column::Gpu => show(dim, format_args!("{:>room$}", Gpus(row.gpus))),
                Column::GpuMem => match row.gpu_mem {
                    Some(mem) => show(of(mem), format_args!("{:>room$}", Bytes(mem))),
                    None => show(dim, format_args!("{:>room$}", "-")),
                },
                Column::Cpu => show(of(row.cpu_pct), format_args!("{:>room$}", Percent(row.cpu_pct))),
                Column::Rss => show(of(row.rss), format_args!("{:>room$}", Bytes(row.rss))),
                Column::Faults => {
                    let slow = row.majflt_per_s.value().is_some_and(|rate| rate >= 0.05) && !stale;
                    let style = if slow { theme.style(Role::Warn) } else { of(row.majflt_per_s) };
                    show(style, format_args!("{:>room$}", Number(row.majflt_per_s)));
                }
                Column::PageTable => show(of(row.page_table), format_args!("{:>room$}", Bytes(row.page_table))),
                Column::Command if row.command.is_empty() => show(dim, format_args!("{}", unseen(row.rss))),
                Column::Command => {
                    let role = if row.other { Role::Dim } else { Role::Warn };
                    let mut x = 0;
                    if !row.remark().is_empty() {
                        x = put(buf, cell, (0, 0), theme.style(role), format_args!("{}: ", row.remark()));
                    }
                    put(buf, cell, (x, 0), text, format_args!("{}", row.short_command()));
                }
            }
        });
    }
}

/// Why a process has no command.
const fn unseen(rss: Reading) -> &'static str {
    match rss.why() {
        Some(Why::NotPermitted) => "other pid namespace or user: not visible",
        Some(Why::NotYet) => "not read yet",
        Some(Why::NotRecorded) => "not in the recording",
        _ => "command not readable",
    }
}

/// A column of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Pid,
    User,
    Gpu,
    GpuMem,
    Cpu,
    Rss,
    Faults,
    PageTable,
    Command,
}

impl Column {
    const fn name(self) -> &'static str {
        match self {
            Self::Pid => "PID",
            Self::User => "  user",
            Self::Gpu => "GPU",
            Self::GpuMem => "GPU mem",
            Self::Cpu => "CPU",
            Self::Rss => "RSS",
            Self::Faults => "majflt/s",
            Self::PageTable => "pg tables",
            Self::Command => "command",
        }
    }

    const fn is_text(self) -> bool {
        matches!(self, Self::User | Self::Command)
    }
}

/// The GPUs of a set of bits: "0", "0-7", "0,2".
struct Gpus(u64);

impl Display for Gpus {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.pad("-");
        }
        let (first, last) = (self.0.trailing_zeros(), self.0.ilog2());
        let run = (self.0 >> first).trailing_ones() == last - first + 1;
        let digits = |n: u32| if n < 10 { 1 } else { 2 };
        let used = if first == last { digits(first) } else { digits(first) + 1 + digits(last) };
        for _ in used..f.width().unwrap_or(0) {
            f.write_str(" ")?;
        }
        match (first == last, run) {
            (true, _) => write!(f, "{first}"),
            (false, true) => write!(f, "{first}-{last}"),
            // Which ones exactly does not fit: the first, and how many more.
            (false, false) => write!(f, "{first}+{}", self.0.count_ones() - 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::View;
    use crate::diagnosis::Timeline;
    use crate::model::{Batch, ProcessSample};
    use crate::store::{Retention, Store};

    const GIB: f64 = 1_073_741_824.0;

    fn process(pid: u32, command: &str, gpus: &[(u8, f64)], rss: f64, majflt: f64) -> ProcessSample {
        ProcessSample {
            pid,
            start: 1,
            user: "serve".into(),
            command: command.into(),
            gpus: gpus.iter().map(|&(gpu, gib)| (gpu, Reading::Value(gib * GIB))).collect(),
            cpu_ms: 0.0.into(),
            rss: (rss * GIB).into(),
            majflt: majflt.into(),
            page_table: 4e6.into(),
            ..ProcessSample::default()
        }
    }

    fn unseen_process(pid: u32, gib: f64) -> ProcessSample {
        let denied = Reading::Missing(Why::NotPermitted);
        ProcessSample {
            user: "".into(),
            command: "".into(),
            cpu_ms: denied,
            rss: denied,
            majflt: denied,
            page_table: denied,
            ..process(pid, "", &[(1, gib)], 0.0, 0.0)
        }
    }

    fn store(tables: &[Vec<ProcessSample>]) -> Store {
        let store = Store::new(Retention::HOUR);
        for (i, table) in tables.iter().enumerate() {
            let mut batch = Batch::new(SourceId::Process, Time(100_000 + i as u64 * 1000), 3500);
            batch.processes = Some(table.clone());
            store.push(&batch);
        }
        store
    }

    fn drawn(store: &Store, end: u64, (width, height): (u16, u16)) -> (String, Vec<String>) {
        let mut pane = Processes::default();
        let mut buf = Buffer::empty(Rect::new(0, 0, width, height));
        let (view, theme) = (View::new(Time(end)), Theme::FULL);
        let context = Context { view: &view, theme: &theme, timeline: &Timeline::default(), focused: false };
        pane.prepare(&store.read(), &context, buf.area);
        pane.draw(buf.area, &mut buf, &context);
        let row = |y| (0..width).map(|x| buf[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        (pane.title().to_owned(), (0..height).map(row).collect())
    }

    fn two_readings() -> Store {
        let table = |faults: f64| {
            vec![
                process(7, "/usr/bin/python3 -m api_server", &[], 2.0, 0.0),
                process(1696, "VLLM::EngineCore", &[(0, 36.5)], 2.1, faults),
                unseen_process(99, 1.0),
                process(12, "train", &[(0, 20.0), (1, 20.0)], 9.0, 0.0),
            ]
        };
        store(&[table(10.0), table(14.0)])
    }

    #[test]
    fn the_most_device_memory_comes_first() {
        let (title, rows) = drawn(&two_readings(), 101_000, (110, 6));
        assert_eq!(title, "3 hold 77.5 GiB of GPU memory, 4 major faults/s");
        let pids: Vec<_> = rows[1..5].iter().map(|r| r.split_whitespace().next().unwrap()).collect();
        assert_eq!(pids, ["12", "1696", "99", "7"], "{rows:#?}");
        assert_eq!(
            rows[2], "    1696  serve       0  36.5 GiB     0 %  2.10 GiB         4  3.81 MiB  VLLM::EngineCore",
            "{rows:#?}"
        );
        assert!(rows[1].contains("   0-1 "), "{rows:#?}");
        assert!(rows[4].ends_with("  python3 -m api_server"), "{rows:#?}");
    }

    #[test]
    fn a_process_that_stands_still_and_one_that_takes_cpu_are_marked_and_options_are_listed() {
        let command = "python3 -m vllm serve --max-num-seqs 64 --api-key sk-secret";
        let stopped =
            ProcessSample { state: Some(ProcessState::Stopped), ..process(7, command, &[(0, 4.0)], 1.0, 0.0) };
        let busy = |cpu: f64| ProcessSample {
            cpu_ms: cpu.into(),
            other: true,
            ..process(9, "/usr/bin/make -j", &[], 0.1, 0.0)
        };
        let store = store(&[vec![stopped.clone(), busy(0.0)], vec![stopped, busy(2_000.0)]]);
        let mut engine = Batch::new(SourceId::Engine(0), Time(100_000), Batch::FOREVER);
        engine.fact(Subject::Engine(0), FactKey::Pids, "7");
        store.push(&engine);
        let (title, rows) = drawn(&store, 101_000, (110, 6));
        assert!(title.contains("; 7 stopped; others take 200 % CPU"), "{title}");
        assert!(rows[1].contains("  stopped: python3") && rows[2].contains("  other: make -j"), "{rows:#?}");
        assert_eq!(rows[3], "--max-num-seqs 64");
    }

    #[test]
    fn what_cannot_be_read_says_why() {
        let (_, rows) = drawn(&two_readings(), 101_000, (110, 6));
        assert!(rows[3].contains("denied") && rows[3].contains("other pid namespace"), "{rows:#?}");
        let (title, rows) = drawn(&Store::new(Retention::HOUR), 5, (60, 5));
        assert_eq!(title, "not read");
        assert!(rows.concat().contains("no process table was read yet"), "{rows:#?}");
        let (title, rows) = drawn(&store(&[vec![]]), 100_000, (70, 5));
        assert_eq!(title, "none on a GPU");
        assert!(rows.concat().contains("none looks like a serving engine"), "{rows:#?}");
    }

    #[test]
    fn a_stale_table_says_how_old_it_is() {
        let (title, _) = drawn(&two_readings(), 113_000, (110, 6));
        assert_eq!(title, "stale, read 12 s ago: 3 hold 77.5 GiB of GPU memory, 4 major faults/s");
    }

    #[test]
    fn rows_without_room_are_counted() {
        let (_, rows) = drawn(&two_readings(), 101_000, (60, 4));
        assert_eq!((rows.len(), rows[3].as_str()), (4, "+2 more"), "{rows:#?}");
    }

    /// Fault: driver: more processes on a GPU than a table has rows
    /// Seen: the title of the processes ends with `, and 136 more processes hold 12.3 GiB`
    /// Works: the rows, and their sum
    /// Recovers: with the first table that has room
    #[test]
    fn processes_that_have_no_row_are_counted_in_the_title() {
        let table = |count| {
            let mut batch = Batch::new(SourceId::Process, Time(100_000), 3_500);
            batch.processes = Some(vec![process(7, "vllm", &[(0, 70.0)], 1.0, 0.0)]);
            batch.more_processes = Some(MoreProcesses { count, gpu_mem: 12.3 * 1_073_741_824.0 });
            let store = Store::new(Retention::HOUR);
            store.push(&batch);
            drawn(&store, 100_000, (110, 6)).0
        };
        assert_eq!(table(136), "1 holds 70.0 GiB of GPU memory, and 136 more processes hold 12.3 GiB");
        assert_eq!(table(1), "1 holds 70.0 GiB of GPU memory, and 1 more process holds 12.3 GiB");
        assert_eq!(table(0), "1 holds 70.0 GiB of GPU memory");
    }

    #[test]
    fn columns_give_way_and_never_overlap() {
        for width in 0..140 {
            let columns = Columns::for_width(width);
            let mut end = 0;
            columns.each(width, |_, x, room| {
                assert!(x >= end);
                end = x + room;
            });
            let (_, rows) = drawn(&two_readings(), 101_000, (width, 6));
            assert!(width < 30 || rows[2].contains("36.5 GiB"), "{rows:#?}");
            assert!(width < 40 || rows[2].contains("VLLM"), "{rows:#?}");
        }
    }

    #[test]
    fn sets_of_gpus_are_short() {
        let all: Vec<_> = [0, 1, 0xff, 0b1101, 1 << 10].map(|bits| format!("{:>4}", Gpus(bits))).into();
        assert_eq!(all, ["   -", "   0", " 0-7", " 0+2", "  10"]);
    }
}
