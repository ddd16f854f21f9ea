//! The machine, once a second, from a handful of files in `/proc`.
//!
//! Each file is read whole into one buffer that is kept, and only the lines that are needed are looked
//! at: a parser that builds a map of `/proc/vmstat` costs ten times as much, and one that insists on
//! every field refuses the whole file of a kernel that lacks one. Invariant: what the kernel does not
//! offer is missing, never 0.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::PathBuf;
use std::time::Duration;

use crate::model::{Batch, FactKey, Metric, SourceId, SourceState, Subject, Why};

use super::thread::{SECOND_VALID_MS, Ticker, start};
use super::{Context, Sampler};

pub(super) const SAMPLER: Sampler = Sampler {
    id: "host",
    help: "CPU, memory, swap, pressure (PSI), major faults and TCP retransmits of this machine, once a second from /proc",
    start: |context, _| start(context, SourceId::Host, "warptop-host", run),
};

fn run(context: &Context) {
    let mut host = HostReader::at("/proc");
    let mut batch = Batch::new(SourceId::Host, context.clock.now(), SECOND_VALID_MS);
    let mut ticker = Ticker::new(context, Duration::from_secs(1));
    let mut first = true;
    while ticker.wait() {
        let (at, began) = (context.clock.now(), context.clock.micros());
        batch.reset(at);
        host.read(&mut batch);
        if first {
            host.facts(&mut batch);
        }
        batch.took_us = u32::try_from(context.clock.micros() - began).unwrap_or(u32::MAX);
        batch.state = Some(state(&batch));
        context.sink.send(&batch);
        first = false;
    }
}

/// How it is after a reading.
fn state(batch: &Batch) -> SourceState {
    if batch.samples.iter().any(|sample| sample.reading.value().is_some()) {
        return SourceState::Ok;
    }
    SourceState::Failed("nothing in /proc can be read; is it mounted? (mount -t proc proc /proc)".into())
}

/// Reads the machine: a file buffer, and the CPU times of the reading before.
#[derive(Debug)]
pub struct HostReader {
    /// `/proc`, but for tests.
    proc: PathBuf,
    text: Vec<u8>,
    cpu: Option<CpuTicks>,
}

impl HostReader {
    /// A reader of the files below `proc`: `/proc`, or a copy of it.
    pub fn at(proc: impl Into<PathBuf>) -> Self {
        Self { proc: proc.into(), text: Vec::new(), cpu: None }
    }

    /// Adds a value for every metric of the machine, or why there is none.
    pub fn read(&mut self, batch: &mut Batch) {
        let mut push = |metric, reading: Result<f64, Why>| batch.push(Subject::Host, metric, reading);

        let stat = self.file("stat");
        push(Metric::CpuCount, stat.and_then(|text| cpu_count(text).ok_or(Why::Failed)));
        let ticks = stat.and_then(|text| CpuTicks::parse(text).ok_or(Why::Failed));
        let before = self.cpu.take();
        self.cpu = ticks.ok();
        push(Metric::CpuBusy, ticks.and_then(|now| now.busy_since(before)));

        let memory = self.file("meminfo");
        let kib =
            |name| memory.and_then(|text| number_after(text, name).ok_or(Why::Unsupported)).map(|kib| kib * 1024.0);
        let less = |all: Result<f64, Why>, free: Result<f64, Why>| Ok((all? - free?).max(0.0));
        push(Metric::HostMemTotal, kib("MemTotal:"));
        push(Metric::HostMemUsed, less(kib("MemTotal:"), kib("MemAvailable:")));
        push(Metric::SwapUsed, less(kib("SwapTotal:"), kib("SwapFree:")));

        let of_file =
            |text: Result<&str, Why>, f: fn(&str) -> Option<f64>| text.and_then(|t| f(t).ok_or(Why::Unsupported));
        push(Metric::MajorFaults, of_file(self.file("vmstat"), |text| number_after(text, "pgmajfault")));
        push(Metric::TcpRetrans, of_file(self.file("net/snmp"), |text| snmp(text, "Tcp:", "RetransSegs")));
        push(Metric::PsiCpu, of_file(self.file("pressure/cpu"), psi_some_total));
        push(Metric::PsiMem, of_file(self.file("pressure/memory"), psi_some_total));
        push(Metric::PsiIo, of_file(self.file("pressure/io"), psi_some_total));
    }

    fn facts(&mut self, batch: &mut Batch) {
        if let Ok(name) = self.file("sys/kernel/hostname") {
            batch.fact(Subject::Host, FactKey::Hostname, name);
        }
    }

    fn file(&mut self, name: &str) -> Result<&str, Why> {
        self.text.clear();
        let read = File::open(self.proc.join(name)).and_then(|mut file| file.read_to_end(&mut self.text));
        read.map_err(|error| why(error.kind()))?;
        std::str::from_utf8(&self.text).map_err(|_| Why::Failed)
    }
}

/// Why a file of `/proc` could not be read. PSI that is switched off is there, but opening it fails.
pub(super) const fn why(kind: ErrorKind) -> Why {
    match kind {
        ErrorKind::NotFound | ErrorKind::Unsupported => Why::Unsupported,
        ErrorKind::PermissionDenied => Why::NotPermitted,
        _ => Why::Failed,
    }
}

/// The number after `name` at the start of a line.
fn number_after(text: &str, name: &str) -> Option<f64> {
    text.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        (words.next()? == name).then(|| words.next()?.parse().ok())?
    })
}

/// A field of `/proc/net/snmp`, where a line of names is followed by a line of numbers.
fn snmp(text: &str, protocol: &str, field: &str) -> Option<f64> {
    let mut lines = text.lines().filter(|line| line.starts_with(protocol));
    let (names, numbers) = (lines.next()?, lines.next()?);
    let place = names.split_ascii_whitespace().position(|name| name == field)?;
    numbers.split_ascii_whitespace().nth(place)?.parse().ok()
}

/// CPUs that are there: those with a line of their own in `/proc/stat` (`cpu0 …`).
fn cpu_count(text: &str) -> Option<f64> {
    let of_one =
        |line: &&str| line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    // They come first; below them is a line with a number for each interrupt.
    let count = text.lines().take_while(|line| line.starts_with("cpu")).filter(of_one).count();
    (count > 0).then_some(count as f64)
}

/// Total of the `some` line of a pressure file, µs.
fn psi_some_total(text: &str) -> Option<f64> {
    let some = text.lines().find(|line| line.starts_with("some "))?;
    some.split_ascii_whitespace().find_map(|word| word.strip_prefix("total="))?.parse().ok()
}

/// Time of all CPUs together since boot, in ticks.
#[derive(Clone, Copy, Debug, PartialEq)]
struct CpuTicks {
    idle: u64,
    all: u64,
}

impl CpuTicks {
    /// The `cpu` line of `/proc/stat`: user nice system idle iowait irq softirq steal (proc(5)). Time of
    /// guests is already in user and nice, waiting for IO is idle time.
    fn parse(text: &str) -> Option<Self> {
        let line = text.lines().find(|line| line.starts_with("cpu "))?;
        let mut ticks = [0_u64; 8];
        for (tick, word) in ticks.iter_mut().zip(line.split_ascii_whitespace().skip(1)) {
            *tick = word.parse().ok()?;
        }
        Some(Self { idle: ticks[3].saturating_add(ticks[4]), all: ticks.iter().fold(0, |a, &t| a.saturating_add(t)) })
    }

    /// Busy share since the reading before, in per cent.
    fn busy_since(self, before: Option<Self>) -> Result<f64, Why> {
        let before = before.ok_or(Why::NotYet)?;
        // The iowait part may go down, by its documentation: then a tick of idle time seems to vanish.
        let idle = self.idle.saturating_sub(before.idle);
        match self.all.checked_sub(before.all) {
            None | Some(0) => Err(Why::NotYet),
            // In this order it cannot be rounded above 100.
            Some(all) => Ok(100.0 * (all.saturating_sub(idle) as f64 / all as f64)),
        }
    }
}

/// Every parser here on the same text, for `fuzz/`.
#[cfg(fuzzing)]
pub(super) fn fuzz(text: &str) {
    let numbers = [number_after(text, "MemTotal:"), snmp(text, "Tcp:", "RetransSegs"), psi_some_total(text)];
    let busy = CpuTicks::parse(text).map(|ticks| ticks.busy_since(Some(CpuTicks { idle: 0, all: 0 })));
    assert!(busy.is_none_or(|busy| busy.is_ok_and(|busy| (0.0..=100.0).contains(&busy)) || busy.is_err()));
    let _ = (numbers, cpu_count(text));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Reading, Time};

    /// Fault: host: counters of /proc/stat go backwards
    /// Seen: a gap of a second
    /// Works: everything else
    /// Recovers: with the next reading
    #[test]
    fn cpu_is_busy_when_it_is_neither_idle_nor_waits_for_io() {
        let at = |line: &str| CpuTicks::parse(line).unwrap();
        let before = at("cpu  100 0 100 800 0 0 0 0 50 0\ncpu0 1 1 1 1\n");
        assert_eq!(before, CpuTicks { idle: 800, all: 1000 }, "guest time is not counted twice");
        let now = at("cpu  130 10 110 830 10 2 3 5 60 0\n");
        assert_eq!(now.busy_since(Some(before)), Ok(60.0));
        assert_eq!(now.busy_since(None), Err(Why::NotYet));
        assert_eq!(before.busy_since(Some(now)), Err(Why::NotYet), "counters that went down");
        assert_eq!(now.busy_since(Some(now)), Err(Why::NotYet));
        assert_eq!(CpuTicks::parse("cpu x y"), None);
        assert_eq!(CpuTicks::parse("intr 5"), None);
    }

    #[test]
    fn a_cpu_counts_when_it_has_a_line() {
        assert_eq!(cpu_count("cpu  5 0\ncpu0 2 0\ncpu17 3 0\nintr 9\nctxt 4\n"), Some(2.0));
        assert_eq!(cpu_count("cpu  5 0\nintr 9\n"), None);
    }

    #[test]
    fn lines_are_found_by_their_whole_name() {
        let vmstat = "pgfault 7\npgmajfault_x 1\npgmajfault 42\n";
        assert_eq!(number_after(vmstat, "pgmajfault"), Some(42.0));
        assert_eq!(number_after(vmstat, "pgmaj"), None);
        assert_eq!(number_after("MemTotal:       65 kB\n", "MemTotal:"), Some(65.0));
        assert_eq!(number_after("MemTotal:\n\nMemTotal: x", "MemTotal:"), None);
    }

    #[test]
    fn snmp_goes_by_the_name_in_the_header() {
        let text = "Ip: Forwarding\nIp: 1\nTcp: MaxConn InSegs RetransSegs\nTcp: -1 5 9\nUdp: RetransSegs\nUdp: 77\n";
        assert_eq!(snmp(text, "Tcp:", "RetransSegs"), Some(9.0));
        assert_eq!(snmp(text, "Tcp:", "MaxConn"), Some(-1.0));
        assert_eq!(snmp(text, "Tcp:", "Nothing"), None);
        assert_eq!(snmp("Tcp: RetransSegs\n", "Tcp:", "RetransSegs"), None);
    }

    /// Fault: host: an old kernel, with less in its files
    /// Seen: n/a for what it lacks
    /// Works: everything else
    /// Recovers: nothing to recover from
    #[test]
    fn pressure_of_old_kernels_has_no_full_line() {
        assert_eq!(psi_some_total("some avg10=0.17 avg60=1.76 avg300=1.81 total=32826655\n"), Some(32_826_655.0));
        assert_eq!(psi_some_total("full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"), None);
    }

    #[test]
    fn this_machine_can_be_read() {
        let mut host = HostReader::at("/proc");
        let mut batch = Batch::new(SourceId::Host, Time(0), 0);
        host.read(&mut batch);
        host.facts(&mut batch);
        let of = |metric| batch.samples.iter().find(|s| s.metric == metric).unwrap().reading;
        assert_eq!(of(Metric::CpuBusy), Reading::Missing(Why::NotYet));
        let (used, total) = (of(Metric::HostMemUsed).value().unwrap(), of(Metric::HostMemTotal).value().unwrap());
        assert!(0.0 < used && used < total, "{used} of {total}");
        assert!(of(Metric::CpuCount).value().unwrap() >= 1.0);
        assert_eq!(batch.samples.len(), 10);
        assert_eq!(batch.facts.len(), 1);
        assert_eq!(host.file("no/such/file"), Err(Why::Unsupported));
    }

    /// What is read from a `/proc` that holds these files.
    fn read_from(files: &[(&str, &[u8])]) -> Batch {
        let proc = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = proc.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let mut batch = Batch::new(SourceId::Host, Time(0), 0);
        HostReader::at(proc.path().to_str().unwrap()).read(&mut batch);
        batch
    }

    fn of(batch: &Batch, metric: Metric) -> Reading {
        batch.samples.iter().find(|sample| sample.metric == metric).unwrap().reading
    }

    /// Fault: host: `/proc` is not mounted, or not to be read (a container, `hidepid`)
    /// Seen: state `nothing in /proc can be read; is it mounted? (mount -t proc proc /proc)`
    /// Works: GPUs and engines
    /// Recovers: with the first reading of it
    #[test]
    fn no_proc_is_said() {
        let empty = read_from(&[]);
        let why = "nothing in /proc can be read; is it mounted? (mount -t proc proc /proc)";
        assert_eq!(state(&empty), SourceState::Failed(why.into()));
        assert!(empty.samples.iter().all(|sample| sample.reading == Reading::Missing(Why::Unsupported)));
        assert_eq!(why_not(ErrorKind::PermissionDenied), Why::NotPermitted);
    }

    use super::why as why_not;

    /// Fault: host: files of `/proc` are missing (PSI switched off, another kernel), or hold what nobody wrote
    /// Seen: `n/a` or `failed` in place of the figure
    /// Works: every figure whose file is there
    /// Recovers: with the first reading that is whole
    #[test]
    fn a_file_that_is_missing_or_odd_costs_its_own_figures() {
        let batch = read_from(&[
            ("stat", b"cpu  1 2 3 4\ncpu0 1 2 3 4\n"),
            ("meminfo", b"MemTotal: 100 kB\nMemAvailable: 200 kB\nSwapTotal: x kB\n"),
            ("vmstat", b"\xff\xfe\x00garbage"),
            ("pressure/cpu", b"some avg10=0.00 total=99999999999999999999999999\n"),
            ("pressure/memory", b""),
        ]);
        let word = |metric| of(&batch, metric).why().map(Why::word);
        assert_eq!(state(&batch), SourceState::Ok);
        assert_eq!((of(&batch, Metric::CpuCount), of(&batch, Metric::HostMemTotal)), (1.0.into(), 102_400.0.into()));
        assert_eq!(of(&batch, Metric::HostMemUsed), 0.0.into(), "never below");
        assert_eq!((word(Metric::SwapUsed), word(Metric::MajorFaults)), (Some("n/a"), Some("failed")));
        assert_eq!(
            (word(Metric::PsiMem), word(Metric::PsiIo), word(Metric::TcpRetrans)),
            (Some("n/a"), Some("n/a"), Some("n/a"))
        );
    }

    /// Fault: host: no swap
    /// Seen: 0 bytes in use, which is true
    /// Works: everything
    /// Recovers: nothing to recover from
    #[test]
    fn without_swap_none_is_in_use() {
        let batch = read_from(&[("meminfo", b"MemTotal: 9 kB\nMemAvailable: 4 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n")]);
        assert_eq!(of(&batch, Metric::SwapUsed), 0.0.into());
    }
}
