//! What keeps a process from using every CPU: its affinity, and the quota of its control group.
//!
//! Invariants: CPUs that are not there are not counted; what a control group may use is the tightest limit of
//! the group and those above it; files of control groups are read seldom, and every second only where there is a
//! quota to be used up.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::model::{CpuLimits, Reading, Why};

/// Where control groups are mounted (systemd's layout, which container runtimes follow).
const ROOT: &str = "/sys/fs/cgroup";
/// Readings for which what was read of control groups holds.
const HOLDS: u64 = 10;
/// The longest list of CPUs that is kept as text.
const MAX_LIST: usize = 32;

/// CPUs by number, as ranges that include both ends.
pub(super) type Cpus = Vec<(u32, u32)>;

/// What is known of the limits of processes.
#[derive(Default)]
pub(super) struct Limits {
    readings: u64,
    online: Option<Cpus>,
    known: HashMap<(u32, u64), Known>,
    /// By the text of `/proc/PID/cgroup`.
    quotas: HashMap<String, Option<Quota>>,
    /// Time that each group was held up, as read this time.
    throttled: HashMap<PathBuf, Reading>,
}

/// Of one process.
struct Known {
    allowed: Option<Cpus>,
    limits: Arc<CpuLimits>,
    stat: Option<PathBuf>,
}

impl Limits {
    /// To be called before each reading of all processes.
    pub(super) fn renew(&mut self) {
        if self.readings.is_multiple_of(HOLDS) {
            let online = std::fs::read_to_string("/sys/devices/system/cpu/online").ok();
            self.online = online.and_then(|text| parse(&text));
            self.known.clear();
            self.quotas.clear();
        }
        self.readings += 1;
        self.throttled.clear();
    }

    /// The limits of a process that may run on `allowed`, and for how long its group has been held up, ms so far.
    pub(super) fn of(&mut self, pid: u32, start: u64, allowed: Option<Cpus>) -> (Arc<CpuLimits>, Reading) {
        let known = self.known.get(&(pid, start)).filter(|known| known.allowed == allowed);
        let (limits, stat) = match known {
            Some(known) => (Arc::clone(&known.limits), known.stat.clone()),
            None => self.learn(pid, start, allowed),
        };
        let throttled = stat.map_or(Reading::Missing(Why::Unsupported), |stat| {
            *self.throttled.entry(stat).or_insert_with_key(|stat| throttled(stat))
        });
        (limits, throttled)
    }

    fn learn(&mut self, pid: u32, start: u64, allowed: Option<Cpus>) -> (Arc<CpuLimits>, Option<PathBuf>) {
        let membership = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        let quota = self.quotas.entry(membership).or_insert_with_key(|text| quota(Path::new(ROOT), text)).clone();
        let limits = Arc::new(CpuLimits {
            quota: quota.as_ref().ok_or(Why::Unsupported).map(|quota| quota.cores).into(),
            ..affinity(allowed.as_deref(), self.online.as_deref())
        });
        let stat = quota.map(|quota| quota.stat);
        self.known.insert((pid, start), Known { allowed, limits: Arc::clone(&limits), stat: stat.clone() });
        (limits, stat)
    }

    /// Whether these limits leave out CPUs that are there; not known counts as no.
    pub(super) fn is_confined(&self, limits: &CpuLimits) -> bool {
        let all = self.online.as_ref().map(|online| shared(online, online));
        all.zip(limits.allowed.value()).is_some_and(|(all, allowed)| allowed < all)
    }
}

/// The limits of a process that may run on the CPUs `allowed` where those of `online` are there, both as the kernel lists
/// them (`0-3,8`); its control group is not looked at.
pub fn cpu_limits(allowed: &str, online: &str) -> CpuLimits {
    affinity(parse(allowed).as_deref(), parse(online).as_deref())
}

/// A mask may name all CPUs that the machine could ever have: only those that are there count.
fn affinity(allowed: Option<&[(u32, u32)]>, online: Option<&[(u32, u32)]>) -> CpuLimits {
    let count = |cpus| shared(cpus, online.unwrap_or(&[(0, u32::MAX)]));
    let list = allowed.map(write).filter(|list| list.len() <= MAX_LIST).unwrap_or_default();
    CpuLimits { allowed: allowed.ok_or(Why::Unsupported).map(count).into(), list: list.into(), ..CpuLimits::default() }
}

/// CPUs that are in both lists.
fn shared(a: &[(u32, u32)], b: &[(u32, u32)]) -> f64 {
    let pair = |x: &(u32, u32), y: &(u32, u32)| {
        let (first, last) = (x.0.max(y.0), x.1.min(y.1));
        if last < first { 0.0 } else { f64::from(last - first) + 1.0 }
    };
    a.iter().flat_map(|x| b.iter().map(move |y| pair(x, y))).sum()
}

/// A list of CPUs as the kernel writes it: `0-3,8`.
fn parse(text: &str) -> Option<Cpus> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some((first.parse().ok()?, last.parse().ok()?))
    };
    text.trim().split(',').map(range).collect()
}

fn write(cpus: &[(u32, u32)]) -> String {
    let part = |&(first, last): &(u32, u32)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    cpus.iter().map(part).collect::<Vec<_>>().join(",")
}

/// CPU time that a control group may use.
#[derive(Clone, Debug, PartialEq)]
struct Quota {
    cores: f64,
    /// Where the time is counted that it was held up.
    stat: PathBuf,
}

/// The tightest quota of the groups that `/proc/PID/cgroup` names; `None` where there is none, or none that can be
/// seen: a container sees its own groups only.
fn quota(root: &Path, membership: &str) -> Option<Quota> {
    let lines = || membership.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
    // Where version 1 has the CPU controller, version 2 has not.
    let first = lines().find(|(controllers, _)| controllers.split(',').any(|name| name == "cpu"));
    let (base, path, limit): (_, _, fn(&Path) -> Option<f64>) = match first {
        Some((controllers, path)) => {
            let named = root.join(controllers);
            (if named.exists() { named } else { root.join("cpu") }, path, limit_of_version_1)
        }
        None => (root.to_owned(), lines().find(|(controllers, _)| controllers.is_empty())?.1, limit_of_version_2),
    };
    if path.split('/').any(|part| part == "..") {
        return None;
    }
    let group = base.join(path.trim_start_matches('/'));
    let groups = group.ancestors().take_while(|group| group.starts_with(&base));
    let quotas = groups.filter_map(|group| Some(Quota { cores: limit(group)?, stat: group.join("cpu.stat") }));
    quotas.min_by(|a, b| a.cores.total_cmp(&b.cores))
}

/// `cpu.max`: quota and period in µs, or `max` for none (Documentation/admin-guide/cgroup-v2.rst of the kernel).
fn limit_of_version_2(group: &Path) -> Option<f64> {
    let text = std::fs::read_to_string(group.join("cpu.max")).ok()?;
    let (quota, period) = text.trim().split_once(' ')?;
    cores(quota, period)
}

/// `cpu.cfs_quota_us`, -1 for none (Documentation/scheduler/sched-bwc.rst of the kernel).
fn limit_of_version_1(group: &Path) -> Option<f64> {
    let read = |file| std::fs::read_to_string(group.join(file)).ok();
    cores(read("cpu.cfs_quota_us")?.trim(), read("cpu.cfs_period_us")?.trim())
}

fn cores(quota: &str, period: &str) -> Option<f64> {
    let (quota, period) = (quota.parse::<f64>().ok()?, period.parse::<f64>().ok()?);
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

/// Time that a group was held up, ms so far: `throttled_usec` of version 2, `throttled_time` (ns) of version 1.
fn throttled(stat: &Path) -> Reading {
    let Ok(text) = std::fs::read_to_string(stat) else { return Reading::Missing(Why::Failed) };
    let number = |name| {
        let word = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        word.trim().parse::<f64>().ok()
    };
    let ms = number("throttled_usec").map(|us| us / 1e3).or_else(|| number("throttled_time").map(|ns| ns / 1e6));
    ms.ok_or(Why::Unsupported).into()
}

/// Every parser here on the same text, for `fuzz/`.
#[cfg(fuzzing)]
pub(in crate::sampler) fn fuzz(text: &str) {
    if let Some(cpus) = parse(text) {
        assert_eq!(parse(&write(&cpus)).as_ref(), Some(&cpus));
        assert!(shared(&cpus, &cpus) >= 0.0);
    }
    if let Some((quota, period)) = text.split_once(' ') {
        let _ = cores(quota, period);
    }
    let _ = quota(Path::new("/nonexistent"), text);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with these files in it.
    fn files(list: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in list {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        folder
    }

    #[test]
    fn the_tightest_quota_of_a_group_and_those_above_it_counts() {
        let root = files(&[
            ("cpu.stat", "usage_usec 9\n"),
            ("kubepods/cpu.max", "400000 100000\n"),
            ("kubepods/pod1/cpu.max", "150000 100000\n"),
            ("kubepods/pod1/cpu.stat", "usage_usec 5\nnr_throttled 7\nthrottled_usec 2500\n"),
            ("kubepods/pod1/box/cpu.max", "max 100000\n"),
        ]);
        let found = quota(root.path(), "0::/kubepods/pod1/box\n").unwrap();
        assert_eq!((found.cores, throttled(&found.stat)), (1.5, Reading::Value(2.5)));
        assert_eq!(quota(root.path(), "0::/kubepods\n").map(|quota| quota.cores), Some(4.0));
        assert_eq!(quota(root.path(), "0::/\n"), None, "the root has no limit");
        assert_eq!(quota(root.path(), "0::/../../other\n"), None, "not to be seen from here");
        assert_eq!(quota(root.path(), ""), None);
        assert_eq!(throttled(&root.path().join("cpu.stat")), Reading::Missing(Why::Unsupported));
        assert_eq!(throttled(&root.path().join("gone")), Reading::Missing(Why::Failed));
    }

    /// Fault: host: in a container, with control groups of version 1 or only its own
    /// Seen: the limits that can be seen
    /// Works: everything
    /// Recovers: nothing to recover from
    #[test]
    fn version_1_has_two_files_and_a_container_sees_only_its_own_group() {
        let root = files(&[
            ("cpu,cpuacct/cpu.cfs_quota_us", "200000\n"),
            ("cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
            ("cpu,cpuacct/cpu.stat", "nr_periods 5\nthrottled_time 4000000\n"),
            ("cpu,cpuacct/free/cpu.cfs_quota_us", "-1\n"),
            ("cpu,cpuacct/free/cpu.cfs_period_us", "100000\n"),
        ]);
        for path in ["/docker/0a1b", "/free", "/"] {
            let membership = format!("12:pids:/x\n4:cpu,cpuacct:{path}\n3:cpuset:/y\n0::/z\n");
            let found = quota(root.path(), &membership).unwrap();
            assert_eq!((found.cores, throttled(&found.stat)), (2.0, Reading::Value(4.0)), "{path}");
        }
        assert_eq!(quota(root.path(), "3:cpuset:/y\n"), None);
    }

    /// Fault: host: odd or missing files of a control group
    /// Seen: no limit is named
    /// Works: everything else
    /// Recovers: nothing to recover from
    #[test]
    fn a_broken_limit_is_none() {
        for text in ["", "max\n", "0 100000\n", "5 0\n", "x 100000\n"] {
            assert_eq!(quota(files(&[("cpu.max", text)]).path(), "0::/\n"), None, "{text:?}");
        }
    }

    #[test]
    fn only_cpus_that_are_there_count() {
        assert_eq!(parse("0-3,8\n"), Some(vec![(0, 3), (8, 8)]));
        assert_eq!((parse(""), parse("0-x")), (None, None));
        let limits = Limits { online: parse("0-3"), ..Limits::default() };
        // A virtual machine whose mask names every CPU that could be plugged in.
        assert_eq!(cpu_limits("0-239", "0-3").allowed, Reading::Value(4.0));
        assert_eq!(cpu_limits("1,3-9\n", "0-3").allowed, Reading::Value(2.0));
        assert_eq!(cpu_limits("", "0-3").allowed, Reading::Missing(Why::Unsupported));
        let of = |allowed: f64| CpuLimits { allowed: allowed.into(), ..CpuLimits::default() };
        assert_eq!([3.0, 4.0].map(|n| limits.is_confined(&of(n))), [true, false]);
        assert!(!limits.is_confined(&CpuLimits::default()), "not known is no reason");
        assert_eq!(write(&[(0, 3), (8, 8)]), "0-3,8");
    }

    #[test]
    fn this_process_has_limits_and_they_are_read_once() {
        let mut limits = Limits::default();
        limits.renew();
        let pid = std::process::id();
        let (first, _) = limits.of(pid, 1, Some(vec![(0, 0)]));
        assert_eq!((first.allowed, &*first.list), (Reading::Value(1.0), "0"));
        limits.renew();
        assert!(Arc::ptr_eq(&first, &limits.of(pid, 1, Some(vec![(0, 0)])).0));
        assert_eq!(&*limits.of(pid, 1, Some((0..20).map(|n| (n * 2, n * 2)).collect())).0.list, "", "a long list");
        assert_eq!(limits.of(pid, 1, None).0.allowed, Reading::Missing(Why::Unsupported));
    }
}
