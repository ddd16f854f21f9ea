//! Finds serving engines on this host: a process that looks like one, its listening sockets, and the
//! fingerprint of what answers there.
//!
//! Reads `/proc` and asks `GET /metrics` of sockets that such a process itself holds, nothing else. It
//! must not keep the engines it finds: they go to the roster of `engines`. Invariant: a search is cheap;
//! a process that does not look like an engine is not read again at every search.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use procfs::net::TcpState;
use procfs::process::{FDTarget, Process};

use super::endpoint::Endpoint;
use super::engines::{Identity, Net, Placed};
use super::fingerprint;
use super::scrape::Trouble;
use crate::engine::{Answers, Memory, promtext};
use crate::model::{Batch, SourceId, SourceState, text};

/// What the first words of an engine's command line hold.
const ENGINES: &[&str] = &[
    "vllm",
    "VLLM::",
    "api_server",
    "sglang",
    "llama-server",
    "llama_cpp",
    "llamacpp",
    "text-generation",
    "tritonserver",
    "trtllm-serve",
    "lmdeploy",
    "ollama",
    "dynamo",
];
/// Parts of an engine that listen for their own kind only; a stranger's bytes would disturb them.
const INNER: &[&str] =
    &["VLLM::EngineCore", "VLLM::Worker", "VLLM::DPCoordinator", "sglang::scheduler", "sglang::detokenizer"];
/// Words of a command line that are looked at: interpreter, flags, script, sub-command.
const WORDS: usize = 6;

/// The part of a command line that tells what the process is, if it looks like an engine.
fn engine_word(command: &[u8]) -> Option<&'static str> {
    let words: Vec<_> = command.split(|&b| b == 0).take(WORDS).map(String::from_utf8_lossy).collect();
    let is = |known: &&&str| words.iter().any(|word| word.contains(**known));
    if INNER.iter().any(|inner| is(&inner)) {
        return None;
    }
    ENGINES.iter().find(is).copied()
}

/// The value of `--port`: for processes whose sockets may not be read.
fn port_option(command: &[u8]) -> Option<u16> {
    let mut words = command.split(|&b| b == 0).map(String::from_utf8_lossy);
    while let Some(word) = words.next() {
        if word == "--port" {
            return words.next()?.parse().ok();
        }
        if let Some(port) = word.strip_prefix("--port=") {
            return port.parse().ok();
        }
    }
    None
}

/// Where to ask for a socket bound to `address`: at the loopback address when it is bound to all.
fn ask_at(address: SocketAddr) -> SocketAddr {
    let ip = address.ip().to_canonical();
    let ip = if ip.is_unspecified() { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { ip };
    SocketAddr::new(ip, address.port())
}

/// Where the listening sockets among `inodes` can be asked, each place once.
fn places(listening: impl Iterator<Item = (SocketAddr, u64)>, inodes: &HashSet<u64>) -> Vec<SocketAddr> {
    let mut found: Vec<_> =
        listening.filter(|(_, inode)| inodes.contains(inode)).map(|(address, _)| ask_at(address)).collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// A process that looks like an engine.
#[derive(Debug)]
struct Suspect {
    pid: i32,
    /// What gave it away.
    word: &'static str,
    port_option: Option<u16>,
}

/// Listening sockets of each network namespace, read at most once in a search: the kernel walks its
/// whole hash table of connections for every read, tens of milliseconds.
type Tables = Vec<(PathBuf, Vec<(SocketAddr, u64)>)>;

/// Where a process listens; `None` when that may not be seen.
fn sockets_of(pid: i32, tables: &mut Tables) -> Option<Vec<SocketAddr>> {
    let process = Process::new(pid).ok()?;
    let inodes: HashSet<u64> = process
        .fd()
        .ok()?
        .filter_map(Result::ok)
        .filter_map(|fd| if let FDTarget::Socket(inode) = fd.target { Some(inode) } else { None })
        .collect();
    if inodes.is_empty() {
        return Some(Vec::new());
    }
    let namespace = std::fs::read_link(format!("/proc/{pid}/ns/net")).ok()?;
    if !tables.iter().any(|(known, _)| *known == namespace) {
        let entries = process.tcp().unwrap_or_default().into_iter().chain(process.tcp6().unwrap_or_default());
        let listening = entries.filter(|entry| entry.state == TcpState::Listen);
        tables.push((namespace.clone(), listening.map(|entry| (entry.local_address, entry.inode)).collect()));
    }
    let (_, table) = tables.iter().find(|(known, _)| *known == namespace)?;
    Some(places(table.iter().copied(), &inodes))
}

/// Looks through the processes and remembers those that are of no interest.
#[derive(Debug, Default)]
struct Scanner {
    round: u32,
    /// First seen in which round, for processes that do not look like engines.
    dull: HashMap<i32, u32>,
    command: Vec<u8>,
}

impl Scanner {
    /// Searches after which a process keeps its command line most likely (`exec` comes early).
    const SETTLED: u32 = 3;
    /// A dull process is read again once in so many searches.
    const AGAIN: u32 = 12;

    fn scan(&mut self) -> Vec<Suspect> {
        self.round = self.round.wrapping_add(1);
        let mut found = Vec::new();
        let mut dull = HashMap::with_capacity(self.dull.len());
        let own = i32::try_from(std::process::id()).unwrap_or(0);
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
            let first = self.dull.get(&pid).copied();
            if pid == own || first.is_some_and(|first| self.is_settled(pid, first)) {
                dull.insert(pid, first.unwrap_or(self.round));
                continue;
            }
            self.command.clear();
            let read = std::fs::File::open(entry.path().join("cmdline"))
                .and_then(|mut file| std::io::Read::read_to_end(&mut file, &mut self.command));
            match engine_word(&self.command).filter(|_| read.is_ok()) {
                Some(word) => found.push(Suspect { pid, word, port_option: port_option(&self.command) }),
                None => {
                    dull.insert(pid, first.unwrap_or(self.round));
                }
            }
        }
        self.dull = dull;
        found
    }

    fn is_settled(&self, pid: i32, first: u32) -> bool {
        self.round.wrapping_sub(first) >= Self::SETTLED
            && !pid.unsigned_abs().wrapping_add(self.round).is_multiple_of(Self::AGAIN)
    }
}

/// Searches to leave out before the same process is looked at again, from what one of its sockets said.
const fn rounds_to_rest(trouble: &Trouble) -> u32 {
    if trouble.may_pass_soon() { 1 } else { Scanner::AGAIN }
}

/// Searches for ever.
pub(super) async fn search(net: Arc<Net>) {
    // The named engines come first, so that none of them is found a second time.
    while !net.all_tried() {
        tokio::time::sleep(net.timing.period / 10).await;
    }
    let mut search = Search { net, scanner: Scanner::default(), looks: HashMap::new(), body: Vec::new() };
    loop {
        search.once().await;
        let timing = &search.net.timing;
        let wait = if search.net.engines() == 0 { timing.search_when_none } else { timing.search };
        tokio::time::sleep(wait).await;
    }
}

/// What came of looking at a process.
#[derive(Clone, Debug)]
struct Look {
    /// Not to be looked at before that round; [`Look::SETTLED`] when its engine is listed.
    until: u32,
    trouble: Option<String>,
    full: bool,
}

impl Look {
    const SETTLED: u32 = u32::MAX;
}

struct Search {
    net: Arc<Net>,
    scanner: Scanner,
    looks: HashMap<i32, Look>,
    body: Vec<u8>,
}

impl Search {
    async fn once(&mut self) {
        let clock = Arc::clone(&self.net.context.clock);
        let (at, begun) = (clock.now(), clock.micros());
        let suspects = self.scanner.scan();
        let mut took = clock.micros().saturating_sub(begun);
        let mut tables = Tables::new();
        let mut looks = HashMap::with_capacity(suspects.len());
        for suspect in suspects {
            let before = self.looks.remove(&suspect.pid).filter(|look| self.scanner.round < look.until);
            let look = if let Some(look) = before {
                look
            } else {
                let begun = clock.micros();
                let sockets = sockets_of(suspect.pid, &mut tables);
                took += clock.micros().saturating_sub(begun);
                self.look(&suspect, sockets).await
            };
            looks.insert(suspect.pid, look);
        }
        self.looks = looks;
        let mut batch = Batch::new(SourceId::Discovery, at, Batch::FOREVER);
        batch.took_us = u32::try_from(took).unwrap_or(u32::MAX);
        batch.state = Some(self.state());
        self.net.context.sink.send(&batch);
    }

    fn state(&self) -> SourceState {
        if self.looks.values().any(|look| look.full) {
            let words = "there are more engines on this host than are shown: name those to watch with --engine URL";
            return SourceState::Degraded(words.into());
        }
        match self.looks.values().find_map(|look| look.trouble.as_deref()) {
            _ if self.net.engines() > 0 => SourceState::Ok,
            Some(words) => SourceState::Degraded(words.into()),
            None => SourceState::Absent("no serving engine on this host: start one, or give its --engine URL".into()),
        }
    }

    /// Takes the fingerprint of everything that listens in this process.
    async fn look(&mut self, suspect: &Suspect, sockets: Option<Vec<SocketAddr>>) -> Look {
        let Suspect { pid, word, port_option } = suspect;
        let mut trouble = Some(if sockets.is_none() {
            format!("{word} (pid {pid}) is another user's, so its port cannot be seen: give its --engine URL")
        } else {
            format!("{word} (pid {pid}) runs but does not listen yet")
        });
        let by_option = || port_option.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port))).into_iter().collect();
        let (mut listed, mut full, mut rest) = (false, false, Scanner::AGAIN);
        let sockets = sockets.unwrap_or_else(by_option);
        if sockets.is_empty() {
            rest = 1;
        }
        for socket in sockets {
            match self.ask(socket).await {
                Ok(placed) => {
                    listed |= placed != Placed::Full;
                    full |= placed == Placed::Full;
                }
                Err(error) => {
                    rest = rest.min(rounds_to_rest(&error));
                    trouble = Some(text::clean(&format!("{word} (pid {pid}) at {socket}: {error}")));
                }
            }
        }
        let until = if listed { Look::SETTLED } else { self.scanner.round.wrapping_add(rest) };
        Look { until, trouble: trouble.filter(|_| !listed), full }
    }

    async fn ask(&mut self, socket: SocketAddr) -> Result<Placed, Trouble> {
        let Ok(endpoint) = Endpoint::local(socket) else { return Ok(Placed::Known) };
        let endpoint = self.net.access.equip(endpoint, false);
        if self.net.holds(&endpoint) {
            return Ok(Placed::Known);
        }
        let identity = self.fingerprint(&endpoint).await?;
        Ok(self.net.place(endpoint, identity))
    }

    async fn fingerprint(&mut self, endpoint: &Endpoint) -> Result<Identity, Trouble> {
        let limit = self.net.timing.timeout / 2;
        let found = fingerprint::recognise(&self.net.client, endpoint, limit, &mut self.body).await?;
        let text = promtext::decode(&self.body);
        let mut batch = Batch::new(SourceId::Discovery, self.net.context.clock.now(), 0);
        let answers = [(found.path, &*text)];
        let _ = found.adapter.translate(Answers::new(&answers), 0, &mut Memory::default(), &mut batch);
        Ok(Identity::of(found.adapter, &batch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use procfs::net::TcpNetEntries;
    use procfs::{FromBufReadSI, current_system_info};

    fn command(words: &[&str]) -> Vec<u8> {
        words.iter().flat_map(|word| word.bytes().chain([0])).collect()
    }

    #[test]
    fn engines_are_told_by_their_command_line() {
        let yes: [&[&str]; 6] = [
            &["/usr/bin/python3", "/usr/local/bin/vllm", "serve", "meta/llama"],
            &["python", "-m", "vllm.entrypoints.openai.api_server", "--port", "8000"],
            &["VLLM::APIServer_0"],
            &["python3", "-u", "-m", "sglang.launch_server"],
            &["/opt/llama.cpp/llama-server", "-m", "x.gguf"],
            &["text-generation-router"],
        ];
        for words in yes {
            assert!(engine_word(&command(words)).is_some(), "{words:?}");
        }
        let no: [&[&str]; 6] = [
            &[],
            &["bash"],
            &["VLLM::EngineCore_DP0"],
            &["sglang::scheduler_TP0"],
            &["python3", "train.py"],
            &["tool", "1", "2", "3", "4", "5", "vllm"],
        ];
        for words in no {
            assert_eq!(engine_word(&command(words)), None, "{words:?}");
        }
    }

    #[test]
    fn the_port_option() {
        assert_eq!(port_option(&command(&["vllm", "serve", "--port", "8123", "--x"])), Some(8123));
        assert_eq!(port_option(&command(&["vllm", "--port=81"])), Some(81));
        for words in [&["vllm", "--port"][..], &["vllm", "--port", "x"], &["vllm", "--port=99999"], &["vllm"]] {
            assert_eq!(port_option(&command(words)), None, "{words:?}");
        }
    }

    /// Lines of a real table: a listener on every address, a connection of it, one on loopback, and IPv6.
    #[test]
    fn only_listening_sockets_of_the_process_count() {
        const TCP: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 101 1 0 100 0 0 10 0
   1: 0100007F:1F40 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 102 1 0 20 4 30 10 -1
   2: 0100007F:1F41 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 103 1 0 100 0 0 10 0
   3: 0500000A:1F42 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 104 1 0 100 0 0 10 0
   4: 00000000000000000000000000000000:1F40 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 105 1 0 100 0 0 10 0
";
        let entries =
            TcpNetEntries::from_buf_read(TCP.as_bytes(), current_system_info()).unwrap_or_else(|e| panic!("{e}")).0;
        let of = |inodes: &[u64]| {
            let listening = entries.iter().filter(|e| e.state == TcpState::Listen);
            let found = places(listening.map(|e| (e.local_address, e.inode)), &inodes.iter().copied().collect());
            found.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(of(&[101, 102, 105]), ["127.0.0.1:8000"], "one place, though bound twice");
        assert_eq!(of(&[103, 104]), ["10.0.0.5:8002", "127.0.0.1:8001"]);
        assert!(of(&[102, 999]).is_empty());
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
}
