//! The host's part in a launch: which CPU gives it, and what is known to slow that down.
//!
//! It must not know CUDA. Invariants: nothing is blamed that was not seen; what is said of the machine does not change
//! with what was measured.

use std::fs;
use std::time::Duration;

use crate::model::text::Plural;
use crate::model::text::clean;
use crate::probe::topology::{Bound, allowed, parse_list};

/// How long CPUs are watched before one is chosen.
const WATCH: Duration = Duration::from_millis(100);

/// Where the thread that launches runs.
#[derive(Default)]
pub(super) struct Place {
    /// Its CPU; `None` when it could not be bound to one.
    pub(super) cpu: Option<usize>,
    /// NUMA node of the GPU, where the system tells.
    pub(super) node: Option<u32>,
    /// Whether the CPU is one of those near the GPU; `None` where the system does not tell which those are.
    pub(super) near: Option<bool>,
    /// Keeps it there.
    _bound: Option<Bound>,
}

impl Place {
    /// Binds this thread to the CPU that was least busy of those near the device at this PCI address.
    pub(super) fn take(pci: &str) -> Self {
        let read = |file: &str| fs::read_to_string(format!("/sys/bus/pci/devices/{pci}/{file}")).unwrap_or_default();
        let near = parse_list(&read("local_cpulist"));
        let allowed: Vec<_> = allowed().into_iter().collect();
        let ours: Vec<_> = near.iter().copied().filter(|cpu| allowed.contains(cpu)).collect();
        let is_near = (!near.is_empty()).then_some(!ours.is_empty());
        let from = if ours.is_empty() { allowed } else { ours };
        let before = fs::read_to_string("/proc/stat").unwrap_or_default();
        std::thread::sleep(WATCH);
        let after = fs::read_to_string("/proc/stat").unwrap_or_default();
        let cpu = least_busy(&from, &before, &after);
        let bound = cpu.and_then(|cpu| Bound::to(&[cpu]));
        let cpu = cpu.filter(|_| bound.is_some());
        Self { cpu, node: read("numa_node").trim().parse().ok(), near: is_near, _bound: bound }
    }

    /// In words, for the report.
    pub(super) fn words(&self) -> String {
        let node = self.node.map(|node| format!(" (node {node})")).unwrap_or_default();
        match (self.cpu, self.near) {
            (None, _) => "not bound to a CPU".to_owned(),
            (Some(cpu), Some(true)) => format!("bound to CPU {cpu}, near the GPU{node}"),
            (Some(cpu), Some(false)) => format!("bound to CPU {cpu}, far from the GPU{node}"),
            (Some(cpu), None) => format!("bound to CPU {cpu}; which are near the GPU is not told"),
        }
    }
}

/// Time that each CPU was busy, from `/proc/stat`.
fn busy(stat: &str, cpu: usize) -> Option<u64> {
    let name = format!("cpu{cpu}");
    let fields = stat.lines().map(|line| line.split_ascii_whitespace()).find_map(|mut fields| {
        (fields.next() == Some(&name)).then(|| fields.filter_map(|field| field.parse().ok()).collect::<Vec<u64>>())
    })?;
    // user nice system idle iowait irq softirq steal (guest is part of user).
    Some(fields.iter().take(8).enumerate().filter(|(place, _)| !matches!(place, 3 | 4)).map(|(_, ticks)| ticks).sum())
}

/// The CPU that was least busy between two readings of `/proc/stat`; of several the last: interrupts go to the first.
fn least_busy(of: &[usize], before: &str, after: &str) -> Option<usize> {
    let spent = |cpu: usize| Some(busy(after, cpu)?.saturating_sub(busy(before, cpu)?));
    of.iter().rev().copied().min_by_key(|&cpu| spent(cpu).unwrap_or(u64::MAX))
}

/// What is known to make launches slow, as far as it is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// What steers the clock of the CPU.
    pub(super) governor: Option<String>,
    /// Process that traces this one.
    tracer: Option<u32>,
    /// Libraries that are put before others.
    preload: String,
    /// Library that the driver loads into each process that uses it.
    injection: String,
    /// Whether each launch waits for its end.
    blocking: bool,
    /// How often the control group's quota of CPU time held this process back so far.
    throttled: u64,
}

impl Seen {
    /// Looks, for a thread on this CPU.
    pub(super) fn now(cpu: Option<usize>) -> Self {
        let cpu = cpu.unwrap_or(0);
        let governor = fs::read_to_string(format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor"));
        let variable = |name: &str| clean(&std::env::var_os(name).unwrap_or_default().to_string_lossy());
        let everywhere = fs::read_to_string("/etc/ld.so.preload").unwrap_or_default();
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let group = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let group = group.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or_default();
        let quota = fs::read_to_string(format!("/sys/fs/cgroup{group}/cpu.stat")).unwrap_or_default();
        Self {
            governor: governor.ok().map(|text| clean(text.trim())),
            tracer: number(&status, "TracerPid:").and_then(|pid| u32::try_from(pid).ok()).filter(|&pid| pid > 0),
            preload: clean(format!("{} {everywhere}", variable("LD_PRELOAD")).trim()),
            injection: variable("CUDA_INJECTION64_PATH"),
            blocking: !matches!(variable("CUDA_LAUNCH_BLOCKING").as_str(), "" | "0"),
            throttled: number(&quota, "nr_throttled").unwrap_or(0),
        }
    }

    /// What may have made the launches slow, and what to do about each; `before` is what was seen before them.
    pub(super) fn causes(&self, before: &Self, place: &Place) -> Vec<String> {
        let mut out = Vec::new();
        if self.blocking {
            out.push("CUDA_LAUNCH_BLOCKING is set: each launch waits until it is done; unset it".to_owned());
        }
        if let Some(pid) = self.tracer {
            out.push(format!("process {pid} traces this one (a debugger, strace): calls into the system are slow"));
        }
        if !self.injection.is_empty() {
            let path = &self.injection;
            out.push(format!(
                "CUDA_INJECTION64_PATH is set: the driver loads {path}, as profilers do, and tells it all"
            ));
        }
        if !self.preload.is_empty() {
            let text = &self.preload;
            out.push(format!(
                "a library is loaded before all others ({text}): if it hooks CUDA, each launch passes it"
            ));
        }
        let held = self.throttled.saturating_sub(before.throttled);
        if held > 0 {
            out.push(format!(
                "the container's quota of CPU time held this process back {} meanwhile: raise it",
                Plural(held, "time", "times")
            ));
        }
        if let Some(governor) = self.governor.as_deref().filter(|governor| *governor != "performance") {
            out.push(format!(
                "the CPU's clock is steered by '{governor}', which may be slow to raise it; 'performance' keeps it up"
            ));
        }
        match (place.cpu, place.near) {
            (None, _) => out.push("the thread could not be bound to a CPU: it may have moved".to_owned()),
            (Some(_), Some(false)) => {
                out.push("no CPU near the GPU may be used here: each launch goes to the other socket".to_owned());
            }
            (Some(_), Some(true) | None) => {}
        }
        out
    }
}

/// The number after a name that begins a line.
fn number(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_busy_cpu_is_chosen_and_of_equals_the_last() {
        let stat = |busy: [u64; 4]| {
            let line = |(cpu, ticks): (usize, &u64)| format!("cpu{cpu} {ticks} 1 2 9000 7 0 0 3 5 0\n");
            format!("cpu  1 2 3 4\n{}intr 5\n", busy.iter().enumerate().map(line).collect::<String>())
        };
        assert_eq!(busy(&stat([10; 4]), 3), Some(10 + 1 + 2 + 3), "idle, waiting and guests do not count");
        let before = stat([100; 4]);
        assert_eq!(least_busy(&[0, 1, 2, 3], &before, &stat([100, 105, 100, 110])), Some(2));
        assert_eq!(least_busy(&[0, 1], &before, &stat([109, 105, 100, 100])), Some(1));
        assert_eq!(least_busy(&[0, 7], &before, &stat([109; 4])), Some(0), "a CPU that is not listed is not chosen");
        assert_eq!(least_busy(&[], &before, &before), None);
    }

    #[test]
    fn only_what_is_there_is_blamed() {
        let at = |near| Place { cpu: Some(3), near, ..Place::default() };
        let near = at(Some(true));
        let fine = Seen { governor: Some("performance".to_owned()), throttled: 4, ..Seen::default() };
        assert_eq!(fine.causes(&fine, &near), [""; 0]);
        assert_eq!(Seen::default().causes(&Seen::default(), &at(None)), [""; 0]);
        let bad = Seen {
            governor: Some("powersave".to_owned()),
            tracer: Some(77),
            preload: "libhook.so".to_owned(),
            injection: "libprofile.so".to_owned(),
            blocking: true,
            throttled: 9,
        };
        let words = bad.causes(&fine, &at(Some(false)));
        for (word, cause) in ["BLOCKING", "process 77", "libprofile.so", "libhook.so", "5 times", "powersave", "socket"]
            .into_iter()
            .zip(&words)
        {
            assert!(cause.contains(word), "{cause}");
        }
        assert_eq!(words.len(), 7);
        assert!(fine.causes(&fine, &Place::default())[0].contains("not be bound"));
    }

    #[test]
    fn a_name_is_followed_by_its_number() {
        assert_eq!(number("Name:\tx\nTracerPid:\t42\n", "TracerPid:"), Some(42));
        assert_eq!(number("usage_usec 7\nnr_throttled 3\n", "nr_throttled"), Some(3));
        assert_eq!(number("", "nr_throttled"), None);
    }

    #[test]
    fn a_place_is_taken_on_this_machine() {
        let place = Place::take("ffff:ff:1f.0");
        assert_eq!((place.node, place.near), (None, None), "there is no such device");
        assert!(place.cpu.is_some_and(|cpu| allowed().into_iter().eq([cpu])), "{}", place.words());
        assert!(place.words().contains("bound to CPU"));
    }
}
