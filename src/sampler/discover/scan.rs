//! Looks through the processes: which ones are an engine's, and who started whom.
//!
//! Reads `/proc/PID/stat` and `/proc/PID/cmdline`, nothing else. It must not know sockets. Invariant: a
//! process that is no engine's costs one look every [`Scanner::AGAIN`] searches, not one at each.

use std::collections::{BTreeSet, HashMap};
use std::fs;

use super::super::cmdline;
use crate::engine::launch::{self, Family, Launch, Role, base_name};

/// A process id.
pub(super) type Pid = i32;

/// A process as the search sees it.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) parent: Pid,
    /// When it started, clock ticks since boot: tells a recycled pid.
    pub(super) start: u64,
    /// What it is of an engine, if anything.
    pub(super) launch: Option<Launch>,
    /// The words of its command line; kept for engines, their starters and Docker's proxies only.
    pub(super) words: Vec<String>,
    /// In which search it was first seen.
    first: u32,
}

/// Every process of one search.
#[derive(Clone, Debug, Default)]
pub(super) struct Processes(HashMap<Pid, Seen>);

/// Programs that start the processes of one engine and of nothing else: what they started is one engine.
const STARTERS: &[&str] =
    &["mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun", "orted", "prted", "trtllm-llmapi-launch"];

impl Processes {
    pub(super) fn get(&self, pid: Pid) -> Option<&Seen> {
        self.0.get(&pid)
    }

    /// Whether this very process is still there.
    pub(super) fn lives(&self, pid: Pid, start: u64) -> bool {
        self.get(pid).is_some_and(|seen| seen.start == start)
    }

    /// Every process that is an engine's, the smallest pid first.
    pub(super) fn engines(&self) -> Vec<(Pid, Launch)> {
        let mut found: Vec<_> = self.0.iter().filter_map(|(&pid, seen)| Some((pid, seen.launch?))).collect();
        found.sort_unstable_by_key(|(pid, _)| *pid);
        found
    }

    /// Command lines of Docker's proxies, which hand ports of this host on to containers.
    pub(super) fn proxies(&self) -> impl Iterator<Item = (Pid, &[String])> {
        let words = self.0.iter().map(|(&pid, seen)| (pid, seen.words.as_slice()));
        words.filter(|(_, words)| words.first().is_some_and(|word| base_name(word) == PROXY))
    }

    /// Every process id, in no order.
    pub(super) fn pids(&self) -> impl Iterator<Item = Pid> + '_ {
        self.0.keys().copied()
    }

    /// The parents of a process, the nearest first.
    pub(super) fn ancestors(&self, pid: Pid) -> impl Iterator<Item = (Pid, &Seen)> {
        let above = |pid: Pid| self.get(pid).and_then(|seen| Some((seen.parent, self.get(seen.parent)?)));
        // Bounded: a parent that ended between two looks may leave a circle of recycled ids behind.
        std::iter::successors(above(pid), move |&(pid, _)| above(pid)).take(64)
    }

    /// The process from which all of an engine's processes come: the topmost one of the same engine
    /// above `pid`, or what started it for that purpose alone.
    pub(super) fn root(&self, pid: Pid) -> Pid {
        let family = self.get(pid).and_then(|seen| seen.launch).map(|launch| launch.family);
        let belongs = |seen: &Seen| match seen.launch {
            Some(launch) => family.is_none_or(|family| launch.family == family),
            None => seen.words.first().is_some_and(|word| is_starter(word)),
        };
        let mut root = pid;
        for (above, _) in self.ancestors(pid).take_while(|(_, seen)| belongs(seen)) {
            root = above;
        }
        root
    }

    /// The processes of the engine in which `pid` answers: everything that descends from [`Self::root`].
    pub(super) fn relatives(&self, pid: Pid) -> BTreeSet<Pid> {
        let root = self.root(pid);
        let mut children: HashMap<Pid, Vec<Pid>> = HashMap::new();
        for (&pid, seen) in &self.0 {
            children.entry(seen.parent).or_default().push(pid);
        }
        let mut found = BTreeSet::from([root]);
        let mut open = vec![root];
        while let Some(pid) = open.pop() {
            for &child in children.get(&pid).into_iter().flatten() {
                // A stray id of an earlier process must not lead round in circles.
                if found.insert(child) {
                    open.push(child);
                }
            }
        }
        found
    }

    /// Processes as `pid parent command line`, started at tick 7.
    #[cfg(test)]
    pub(super) fn for_test(lines: &[&str]) -> Self {
        let of = |line: &&str| {
            let mut words = line.split(' ');
            let mut number = || words.next().and_then(|word| word.parse::<Pid>().ok()).unwrap();
            let (pid, parent) = (number(), number());
            let words: Vec<String> = words.map(ToOwned::to_owned).collect();
            (pid, Seen { parent, start: 7, launch: launch::recognise(&words), words, first: 1 })
        };
        let mut processes = Self(lines.iter().map(of).collect());
        processes.mark_parts();
        processes
    }

    /// Marks what runs under Ollama as its part, since it starts other programs (a llama-server among them) as its
    /// runners; and the servers that a llama.cpp router starts for its models, since to ask one wakes its model or
    /// keeps it awake (llama.cpp#23096).
    fn mark_parts(&mut self) {
        let starts = |seen: &Seen| match seen.launch {
            Some(Launch { family: Family::Ollama, .. }) => Some(Family::Ollama),
            Some(Launch { family: Family::LlamaCpp, role: Role::Server, .. }) if launch::is_router(&seen.words) => {
                Some(Family::LlamaCpp)
            }
            _ => None,
        };
        let servers = self.engines().into_iter().filter(|(_, launch)| launch.role == Role::Server);
        let of = |(pid, _)| Some((pid, self.ancestors(pid).find_map(|(_, seen)| starts(seen))?));
        let parts: Vec<(Pid, Family)> = servers.filter_map(of).collect();
        for (pid, family) in parts {
            if let Some(seen) = self.0.get_mut(&pid) {
                seen.launch = Some(Launch { family, role: Role::Part, options: family });
            }
        }
    }
}

const PROXY: &str = "docker-proxy";

fn is_starter(word: &str) -> bool {
    STARTERS.contains(&base_name(word))
}

/// Looks through the processes and remembers those that are of no interest.
#[derive(Debug, Default)]
pub(super) struct Scanner {
    pub(super) round: u32,
    known: Processes,
}

impl Scanner {
    /// Searches after which a process keeps its command line most likely (`exec` comes early).
    const SETTLED: u32 = 3;
    /// A process that is no engine's is read again once in so many searches.
    pub(super) const AGAIN: u32 = 12;

    pub(super) fn scan(&mut self) -> Processes {
        self.round = self.round.wrapping_add(1);
        let before = std::mem::take(&mut self.known.0);
        let own = i32::try_from(std::process::id()).unwrap_or(0);
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<Pid>().ok());
        let mut found = HashMap::with_capacity(before.len());
        for pid in pids {
            let known = before.get(&pid);
            let seen = match known {
                Some(seen) if seen.launch.is_none() && self.is_settled(pid, seen.first) => Some(seen.clone()),
                known => self.read(pid, known, pid == own),
            };
            if let Some(seen) = seen {
                found.insert(pid, seen);
            }
        }
        self.known = Processes(found);
        let mut processes = self.known.clone();
        processes.mark_parts();
        processes
    }

    /// Reads one process; `None` when it has just ended or must not be seen.
    fn read(&self, pid: Pid, before: Option<&Seen>, own: bool) -> Option<Seen> {
        let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
        let (parent, start) = parent_and_start(&String::from_utf8_lossy(&stat))?;
        let first = before.filter(|seen| seen.start == start).map_or(self.round, |seen| seen.first);
        let line = cmdline::read(pid.unsigned_abs()).unwrap_or_default();
        let launch = launch::of_process(&line).filter(|_| !own);
        let program =
            String::from_utf8_lossy(line.split(|&b| b == 0).find(|word| !word.is_empty()).unwrap_or_default());
        let keep = launch.is_some() || is_starter(program.trim()) || base_name(program.trim()) == PROXY;
        Some(Seen { parent, start, launch, words: if keep { launch::words(&line) } else { Vec::new() }, first })
    }

    /// The command line of any process.
    pub(super) fn words(&self, pid: Pid) -> Vec<String> {
        let known = self.known.get(pid).map(|seen| &seen.words).filter(|words| !words.is_empty());
        known.cloned().unwrap_or_else(|| launch::words(&cmdline::read(pid.unsigned_abs()).unwrap_or_default()))
    }

    fn is_settled(&self, pid: Pid, first: u32) -> bool {
        self.round.wrapping_sub(first) >= Self::SETTLED
            && !pid.unsigned_abs().wrapping_add(self.round).is_multiple_of(Self::AGAIN)
    }
}

/// Parent and start time (clock ticks since boot) in a `/proc/PID/stat`: fields 4 and 22. The name in
/// field 2 may hold blanks and brackets itself.
fn parent_and_start(stat: &str) -> Option<(Pid, u64)> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace().skip(1);
    let parent = fields.next()?.parse().ok()?;
    let start = fields.nth(17)?.parse().ok()?;
    Some((parent, start))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn relatives(processes: &Processes, pid: Pid) -> Vec<Pid> {
        processes.relatives(pid).into_iter().collect()
    }

    #[test]
    fn an_engine_is_its_tree_and_no_more() {
        let two = Processes::for_test(&[
            "1 0 systemd",
            "10 1 bash start.sh",
            "11 10 python3 -m vllm.entrypoints.openai.api_server --port 1",
            "12 11 VLLM::EngineCore",
            "13 12 VLLM::Worker_TP0",
            "14 12 VLLM::Worker_TP1",
            "15 11 python3 -c from multiprocessing.resource_tracker import main",
            "21 10 vllm serve m --port 2",
            "22 21 VLLM::EngineCore",
            "30 1 VLLM::EngineCore",
            "40 1 ray::RayWorkerWrapper",
        ]);
        assert_eq!(relatives(&two, 11), [11, 12, 13, 14, 15]);
        assert_eq!(relatives(&two, 21), [21, 22], "started by the same shell, yet another engine; orphans are none's");
    }

    #[test]
    fn the_process_that_answers_need_not_be_the_first() {
        let api_servers = Processes::for_test(&[
            "11 1 vllm serve m --api-server-count 2",
            "12 11 VLLM::APIServer_0",
            "13 11 VLLM::APIServer_1",
            "14 11 VLLM::EngineCore_DP0",
        ]);
        assert_eq!(relatives(&api_servers, 13), [11, 12, 13, 14]);
        let tgi = Processes::for_test(&[
            "1 0 tini -- text-generation-launcher",
            "2 1 text-generation-launcher --num-shard 2",
            "3 2 python3 /opt/bin/text-generation-server serve m",
            "4 2 python3 /opt/bin/text-generation-server serve m",
            "5 2 text-generation-router --port 80",
        ]);
        assert_eq!(relatives(&tgi, 5), [2, 3, 4, 5]);
        let triton = Processes::for_test(&[
            "9 1 bash",
            "10 9 mpirun -n 1 tritonserver : -n 1 tritonserver",
            "11 10 tritonserver --metrics-port 8002",
            "12 10 tritonserver",
        ]);
        assert_eq!(relatives(&triton, 11), [10, 11, 12]);
        let own_script = Processes::for_test(&["5 1 python3 my_server.py", "6 5 VLLM::EngineCore"]);
        assert_eq!(relatives(&own_script, 5), [5, 6]);
    }

    #[test]
    fn what_ollama_starts_is_a_part() {
        let ollama = Processes::for_test(&[
            "1 0 systemd",
            "5 1 /usr/local/bin/ollama serve",
            "6 5 /usr/local/lib/ollama/llama-server --port 4100",
            "7 5 /usr/local/bin/ollama runner --port 4101",
            "9 1 llama-server -m m.gguf",
        ]);
        let servers = ollama.engines().into_iter().filter(|(_, l)| l.role == Role::Server).map(|(pid, _)| pid);
        assert_eq!(servers.collect::<Vec<_>>(), [5, 9]);
        assert_eq!(relatives(&ollama, 5), [5, 6, 7]);
    }

    #[test]
    fn circles_of_recycled_ids_end() {
        let circle = Processes::for_test(&["5 6 vllm serve m", "6 5 vllm serve m"]);
        assert_eq!(relatives(&circle, 5), [5, 6]);
    }

    #[test]
    fn fields_of_a_stat_line() {
        let line = "1696 (VLLM) :: 1) S) S 1456 1456 1400 34816 1456 4194304 615538 0 34 0 7114 501 0 0 20 0 105 0 \
                    8754321 12345 678 18446744073709551615";
        assert_eq!(parent_and_start(line), Some((1456, 8_754_321)));
        for line in ["", "1 (a", "1 (a) S", "1 (a) S x 1"] {
            assert_eq!(parent_and_start(line), None, "{line}");
        }
    }

    #[test]
    fn a_dull_process_is_left_alone_most_of_the_time() {
        let mut scanner = Scanner::default();
        let read = (1..=120).filter(|&round| {
            scanner.round = round;
            !scanner.is_settled(77, 1)
        });
        assert_eq!(read.count(), 3 + 10, "the first rounds, then one in twelve");
    }

    #[test]
    fn servers_that_a_llama_cpp_router_started_are_its_parts_and_are_not_asked() {
        let processes = Processes::for_test(&[
            "1 0 systemd",
            "10 1 llama-server --models-preset p.ini --sleep-idle-seconds 10 --port 8080",
            "11 10 llama-server --model /m/big.gguf --port 40001",
            "20 1 llama-server -m /m/alone.gguf --port 8081",
            "30 1 llama-server -hf org/m --port 8082",
        ]);
        let servers = processes.engines().into_iter().filter(|(_, launch)| launch.role == Role::Server);
        assert_eq!(servers.map(|(pid, _)| pid).collect::<Vec<_>>(), [10, 20, 30]);
        assert_eq!(relatives(&processes, 10), [10, 11]);
    }

    #[test]
    fn this_process_is_seen_and_never_an_engine() {
        let processes = Scanner::default().scan();
        let own = i32::try_from(std::process::id()).unwrap();
        let seen = processes.get(own).unwrap();
        assert!(seen.start > 0 && seen.launch.is_none() && processes.lives(own, seen.start));
        assert_eq!(seen.parent, i32::try_from(std::os::unix::process::parent_id()).unwrap());
        assert!(processes.ancestors(own).any(|(pid, _)| pid == seen.parent));
    }
}
