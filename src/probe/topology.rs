//! NUMA nodes, their CPUs and caches, as sysfs tells them; only CPUs that this process may use count.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use rustix::thread::CpuSet;

const NODES: &str = "/sys/devices/system/node";
const CPUS: &str = "/sys/devices/system/cpu";

/// A NUMA node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) id: usize,
    /// Those that this process may use.
    pub(super) cpus: Vec<usize>,
    /// Last-level cache of the node, all of it, bytes; 0 when not known.
    pub(super) cache_bytes: usize,
    /// What one CPU sees of each level of cache (1 to 3), bytes; 0 when there is none.
    levels: [usize; 3],
}

/// The machine.
#[derive(Clone, Debug)]
pub(super) struct Topology {
    pub(super) nodes: Vec<Node>,
    /// What of each node this process may use, where that is not all of it.
    bound: Vec<Bounds>,
}

/// A node of which a process may use a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bounds {
    node: usize,
    ours: usize,
    all: usize,
}

impl Bounds {
    fn new(node: usize, cpus: &[usize], allowed: &BTreeSet<usize>) -> Option<Self> {
        let (ours, all) = (cpus.iter().filter(|cpu| allowed.contains(cpu)).count(), cpus.len());
        (ours < all).then_some(Self { node, ours, all })
    }
}

impl Topology {
    pub(super) fn read() -> Self {
        let allowed = allowed();
        let (mut nodes, mut bound) = (Vec::new(), Vec::new());
        for id in ids() {
            let mut cpus = parse_list(&fs::read_to_string(format!("{NODES}/node{id}/cpulist")).unwrap_or_default());
            bound.extend(Bounds::new(id, &cpus, &allowed));
            cpus.retain(|cpu| allowed.contains(cpu));
            nodes.push(Node::new(id, cpus));
        }
        // A node of memory only, or one whose CPUs are not ours, cannot be measured from within.
        nodes.retain(|node| !node.cpus.is_empty());
        if nodes.is_empty() {
            let online = parse_list(&fs::read_to_string(format!("{CPUS}/online")).unwrap_or_default());
            bound.extend(Bounds::new(0, &online, &allowed));
            nodes.push(Node::new(0, allowed.into_iter().collect()));
        }
        Self { nodes, bound }
    }

    /// Of which nodes this process may use only a part: "1 of 4 CPUs of node 0"; `None` when all of every node.
    pub(super) fn bound(&self) -> Option<String> {
        let words = |Bounds { node, ours, all }: &Bounds| format!("{ours} of {all} CPUs of node {node}");
        let words: Vec<_> = self.bound.iter().map(words).collect();
        (!words.is_empty()).then(|| words.join(", "))
    }

    pub(super) fn facts(&self) -> Vec<(String, String)> {
        let pages = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
        let pages = pages.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(word, _)| word);
        let mut facts = vec![("NUMA nodes".to_owned(), self.nodes.len().to_string())];
        let pages = pages.map(ToOwned::to_owned);
        for (name, text) in [("CPU", cpu_model()), ("transparent huge pages", pages)] {
            facts.extend(text.map(|text| (name.to_owned(), text)));
        }
        for node in &self.nodes {
            facts.push((format!("node {}", node.id), node.words()));
        }
        facts
    }
}

impl Node {
    /// What a report says of it.
    fn words(&self) -> String {
        // 0: the system does not tell, as in many virtual machines.
        let cache = match self.cache_bytes {
            0 => "size of the last-level cache not told".to_owned(),
            bytes if bytes < 1 << 20 => format!("{} KiB of last-level cache", bytes >> 10),
            bytes => format!("{} MiB of last-level cache", bytes >> 20),
        };
        format!("{} CPUs, {cache}", self.cpus.len())
    }

    fn new(id: usize, cpus: Vec<usize>) -> Self {
        let levels = cpus.first().map_or([0; 3], |&cpu| caches_of(cpu));
        let last = levels.iter().rposition(|&bytes| bytes > 0).map_or(0, |place| place + 1);
        // CPUs that share a cache name the same ones.
        let shared: BTreeSet<String> = cpus.iter().filter_map(|&cpu| shared_by(cpu, last)).collect();
        let cache_bytes = levels.iter().copied().max().unwrap_or(0) * shared.len().max(1);
        Self { id, cpus, cache_bytes, levels }
    }

    /// What a chain of loads measures: each level of cache with half of its size, and DRAM with `most` bytes.
    pub(super) fn levels(&self, most: usize) -> Vec<(&'static str, usize)> {
        let names = ["L1", "L2", "L3"];
        let caches = names.into_iter().zip(self.levels).map(|(name, bytes)| (name, bytes / 2));
        let mut out: Vec<_> = caches.filter(|&(_, bytes)| bytes > 0 && bytes <= most).collect();
        out.push(("DRAM", most));
        out
    }
}

/// The CPU's product name, where the system tells.
pub(super) fn cpu_model() -> Option<String> {
    let info = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = info.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// How many NUMA nodes there are.
pub(super) fn count_nodes() -> usize {
    ids().len().max(1)
}

/// Keeps the thread on some CPUs for as long as it lives.
pub(super) struct Bound(CpuSet);

impl Bound {
    /// Binds the thread that calls; `None` where it may not be bound, and then it runs where it did.
    pub(super) fn to(cpus: &[usize]) -> Option<Self> {
        let before = rustix::thread::sched_getaffinity(None).ok()?;
        let mut set = CpuSet::new();
        cpus.iter().filter(|cpu| **cpu < CpuSet::MAX_CPU).for_each(|cpu| set.set(*cpu));
        rustix::thread::sched_setaffinity(None, &set).ok()?;
        Some(Self(before))
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        // It was there before: nothing speaks against it, and if something does there is nobody to tell.
        let _ = rustix::thread::sched_setaffinity(None, &self.0);
    }
}

fn ids() -> Vec<usize> {
    let entries = fs::read_dir(NODES).into_iter().flatten().flatten();
    let mut ids: Vec<_> =
        entries.filter_map(|entry| entry.file_name().to_str()?.strip_prefix("node")?.parse().ok()).collect();
    ids.sort_unstable();
    ids
}

/// CPUs that this process may run on.
pub(super) fn allowed() -> BTreeSet<usize> {
    let Ok(set) = rustix::thread::sched_getaffinity(None) else { return BTreeSet::from([0]) };
    (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect()
}

/// A list of the kernel: "0-3,8,10-11".
pub(super) fn parse_list(text: &str) -> Vec<usize> {
    let mut out = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<usize>(), last.parse::<usize>()) {
            out.extend(first..=last.min(first + 4096));
        }
    }
    out
}

/// The file of a cache of this CPU that holds data, by its level.
fn cache(cpu: usize, level: usize, file: &str) -> Option<String> {
    let read = |path: &Path, name: &str| fs::read_to_string(path.join(name)).ok().map(|text| text.trim().to_owned());
    let entries = fs::read_dir(format!("{CPUS}/cpu{cpu}/cache")).ok()?.flatten();
    let mut paths = entries.map(|entry| entry.path());
    let path = paths.find(|path| {
        read(path, "level") == Some(level.to_string()) && read(path, "type").is_some_and(|kind| kind != "Instruction")
    })?;
    read(&path, file)
}

fn caches_of(cpu: usize) -> [usize; 3] {
    [1, 2, 3].map(|level| cache(cpu, level, "size").as_deref().and_then(parse_size).unwrap_or(0))
}

fn shared_by(cpu: usize, level: usize) -> Option<String> {
    cache(cpu, level, "shared_cpu_list")
}

/// A size of sysfs: "48K", "260M".
fn parse_size(text: &str) -> Option<usize> {
    let (number, factor) = match text.as_bytes().last()? {
        b'K' => (&text[..text.len() - 1], 1 << 10),
        b'M' => (&text[..text.len() - 1], 1 << 20),
        _ => (text, 1),
    };
    number.parse::<usize>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_sizes_of_the_kernel_are_read() {
        assert_eq!(parse_list("0-3,8,10-11\n"), [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!(parse_list("\n"), [0; 0]);
        assert_eq!(
            [parse_size("48K"), parse_size("260M"), parse_size("64"), parse_size("x")],
            [Some(48 << 10), Some(260 << 20), Some(64), None]
        );
    }

    #[test]
    fn a_cache_of_unknown_size_is_none_of_0() {
        let words = |cache_bytes| Node { id: 0, cpus: vec![0, 1], cache_bytes, levels: [0; 3] }.words();
        assert_eq!(words(300 << 20), "2 CPUs, 300 MiB of last-level cache");
        assert_eq!(words(512 << 10), "2 CPUs, 512 KiB of last-level cache");
        assert_eq!(words(0), "2 CPUs, size of the last-level cache not told");
    }

    #[test]
    fn a_thread_is_bound_and_let_go_again() {
        let before = allowed();
        let one = *before.first().unwrap();
        {
            let _bound = Bound::to(&[one]).unwrap();
            assert_eq!(allowed(), BTreeSet::from([one]));
        }
        assert_eq!(allowed(), before);
        assert!(Bound::to(&[]).is_none(), "a thread has to run somewhere");
    }

    #[test]
    fn a_process_that_is_bound_to_some_cpus_is_told_so() {
        let allowed = BTreeSet::from([0, 1, 2, 3]);
        let bound = [(0, 0..4), (1, 4..8), (2, 2..6), (3, 0..0)];
        let bound = bound.into_iter().filter_map(|(id, cpus)| Bounds::new(id, &cpus.collect::<Vec<_>>(), &allowed));
        let topology = Topology { nodes: Vec::new(), bound: bound.collect() };
        assert_eq!(topology.bound().as_deref(), Some("0 of 4 CPUs of node 1, 2 of 4 CPUs of node 2"));
        assert_eq!(Topology { nodes: Vec::new(), bound: Vec::new() }.bound(), None);
    }

    #[test]
    fn this_machine_has_a_node_with_a_cpu() {
        let topology = Topology::read();
        assert!(topology.nodes.iter().all(|node| !node.cpus.is_empty()) && !topology.nodes.is_empty());
        let levels = topology.nodes[0].levels(1 << 30);
        assert_eq!(levels.last(), Some(&("DRAM", 1 << 30)));
        assert!(levels.is_sorted_by_key(|level| level.1), "{levels:?}");
    }
}
