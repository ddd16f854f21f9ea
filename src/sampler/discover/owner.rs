//! Which process of this host answers as which engine, and which processes belong to it.
//!
//! The process that answers is the one that holds the listening socket (of several, the one that started
//! the others). To the engine belongs what descends from it, from the topmost process of the same engine
//! above it (`vllm serve` above its API servers, a launcher above its router), or from the MPI starter
//! above that. Processes that merely share a shell, a session or a Ray cluster with it do not belong to
//! it. It must not know what engines answer. Invariant: a process that is not certain is not named.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};

use super::namespace::{ListeningSocket, Namespace, Namespaces, sockets_of};
use super::scan::{Pid, Processes, Scanner};
use super::user::{User, has_honest_addresses};
use crate::engine::launch;
use crate::model::address::{UrlHost, is_of_localhost};
use crate::net::endpoint::Endpoint;

/// A process, not to be mistaken for a later one with the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Process {
    pub(super) pid: Pid,
    pub(super) start: u64,
}

/// An engine of the roster.
#[derive(Clone, Debug)]
pub(in crate::sampler) struct Listed {
    pub(in crate::sampler) index: u8,
    pub(in crate::sampler) endpoint: Endpoint,
    /// Its last answer came.
    pub(in crate::sampler) up: bool,
    /// It was told how it was started.
    pub(in crate::sampler) launched: bool,
}

/// Who answers as which engine.
#[derive(Debug, Default)]
pub(super) struct Owners {
    by_engine: HashMap<u8, (Endpoint, Process)>,
    /// Engines whose process was looked for in vain, and in which search.
    in_vain: HashMap<u8, (Endpoint, u32)>,
}

impl Owners {
    /// Notes that a process was found to answer as an engine, if it can be the one at the engine's address.
    pub(super) fn found(
        &mut self,
        engine: &Listed,
        process: Process,
        processes: &Processes,
        namespaces: &mut Namespaces,
    ) {
        if may_answer(process, &engine.endpoint, namespaces) {
            self.note(engine, process, processes);
        }
    }

    fn note(&mut self, engine: &Listed, process: Process, processes: &Processes) {
        let held = self.by_engine.get(&engine.index).filter(|(at, held)| {
            *at == engine.endpoint
                && processes.lives(held.pid, held.start)
                // Of several that hold the socket, the one that started the others.
                && !processes.ancestors(held.pid).any(|(pid, _)| pid == process.pid)
        });
        if held.is_none() {
            self.by_engine.insert(engine.index, (engine.endpoint.clone(), process));
        }
    }

    /// The process that answers as this engine, looked for where it is not known.
    pub(super) fn of(
        &mut self,
        engine: &Listed,
        round: u32,
        processes: &Processes,
        namespaces: &mut Namespaces,
    ) -> Option<Process> {
        if let Some((at, process)) = self.by_engine.get(&engine.index) {
            if *at == engine.endpoint && processes.lives(process.pid, process.start) {
                return Some(*process);
            }
            self.by_engine.remove(&engine.index);
        }
        let lately =
            |(at, looked): &(Endpoint, u32)| *at == engine.endpoint && round.wrapping_sub(*looked) < Scanner::AGAIN;
        if !engine.up || self.in_vain.get(&engine.index).is_some_and(lately) {
            return None;
        }
        let found = listener(&engine.endpoint, processes, namespaces);
        match found {
            Some(process) => {
                self.in_vain.remove(&engine.index);
                self.by_engine.insert(engine.index, (engine.endpoint.clone(), process));
            }
            None => {
                self.in_vain.insert(engine.index, (engine.endpoint.clone(), round));
            }
        }
        found
    }
}

/// What the host of a URL means on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Host {
    /// Any address of this machine will do.
    This,
    /// The two addresses that `localhost` leads to.
    Localhost,
    Address(IpAddr),
}

fn host_of(endpoint: &Endpoint) -> Option<Host> {
    let name = match endpoint.address()?.host() {
        UrlHost::Ip(ip) => return Some(Host::Address(ip)),
        UrlHost::Localhost => return Some(Host::Localhost),
        UrlHost::Name(name) => name,
    };
    let own = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.eq_ignore_ascii_case(own.trim()).then_some(Host::This)
}

/// The sockets of warptop's own namespace to one of which an engine's address leads; none where it leads elsewhere.
fn led_to<'a>(endpoint: &Endpoint, own: &'a Namespace) -> impl Iterator<Item = &'a ListeningSocket> {
    let (host, port) = (host_of(endpoint), endpoint.port());
    let host = host.filter(|host| match host {
        Host::Address(ip) => ip.is_loopback() || own.addresses.contains(ip),
        Host::This | Host::Localhost => true,
    });
    // What is bound to `::` may be for IPv6 only, which `/proc` does not tell: where a socket of IPv4 has the port, it is.
    let has_v4 = own.listening.iter().any(|socket| socket.at.port() == port && socket.at.is_ipv4());
    own.listening.iter().filter(move |socket| {
        let bound = socket.at.ip().to_canonical();
        socket.at.port() == port
            && host.is_some_and(|host| match host {
                Host::Address(ip) if bound.is_unspecified() => {
                    ip.is_ipv4() == bound.is_ipv4() || ip.is_ipv4() && !has_v4
                }
                _ if bound.is_unspecified() => true,
                Host::This => true,
                Host::Localhost => is_of_localhost(bound),
                Host::Address(ip) => bound == ip,
            })
    })
}

/// The users whose sockets an engine's address leads to, on this host.
pub(super) fn users_at(endpoint: &Endpoint, namespaces: &mut Namespaces) -> HashSet<u32> {
    namespaces.own().map(|own| led_to(endpoint, own).map(|socket| socket.user).collect()).unwrap_or_default()
}

/// Whether a process that answers as an engine can be the one that answers at the engine's address: whoever repeats the
/// answers of another process at an address of his own is not that process. What lives in another network namespace
/// was told apart by its start.
fn may_answer(process: Process, endpoint: &Endpoint, namespaces: &mut Namespaces) -> bool {
    if namespaces.of(process.pid).is_some_and(|theirs| !theirs.own) {
        return true;
    }
    let Some(own) = namespaces.own() else { return false };
    let mut sockets = led_to(endpoint, own);
    match sockets_of(process.pid) {
        Some(held) => sockets.any(|socket| held.contains(&socket.inode)),
        None => User::of(process.pid).is_some_and(|user| sockets.any(|socket| socket.user == user.id)),
    }
}

/// The process that listens where an engine is asked.
fn listener(endpoint: &Endpoint, processes: &Processes, namespaces: &mut Namespaces) -> Option<Process> {
    let (host, port) = (host_of(endpoint)?, endpoint.port());
    let own = namespaces.own()?;
    let is_here = |ip: IpAddr| ip.is_loopback() || own.addresses.contains(&ip);
    if let Host::Address(ip) = host
        && !is_here(ip)
    {
        return inside(SocketAddr::new(ip, port), processes, namespaces);
    }
    let inodes: HashSet<u64> = led_to(endpoint, own).map(|socket| socket.inode).collect();
    let trusted = |pid| User::of(pid).is_some_and(|user| !user.is_stranger());
    if let Some(target) = published(port, processes, trusted) {
        return inside(target, processes, namespaces);
    }
    if inodes.is_empty() {
        return None;
    }
    let holds = |pid: &Pid| sockets_of(*pid).is_some_and(|held| !held.is_disjoint(&inodes));
    let engines: Vec<Pid> = processes.engines().into_iter().map(|(pid, _)| pid).filter(holds).collect();
    // Only where none of the known programs listens is everything looked through. The first process holds
    // sockets for others that it starts when they are needed.
    let holders =
        if engines.is_empty() { processes.pids().filter(|&pid| pid > 1).filter(holds).collect() } else { engines };
    topmost(&holders, processes)
}

/// The process among `pids` that started the others.
fn topmost(pids: &[Pid], processes: &Processes) -> Option<Process> {
    let below = |pid: Pid| processes.ancestors(pid).filter(|(above, _)| pids.contains(above)).count();
    let pid = *pids.iter().min_by_key(|&&pid| (below(pid), pid))?;
    Some(Process { pid, start: processes.get(pid)?.start })
}

/// The engine's process that listens at an address of another network namespace.
fn inside(at: SocketAddr, processes: &Processes, namespaces: &mut Namespaces) -> Option<Process> {
    let mut holders = Vec::new();
    for (pid, _) in processes.engines() {
        // Others may give themselves any address.
        if !has_honest_addresses(pid) {
            continue;
        }
        let Some(namespace) = namespaces.of(pid).filter(|n| !n.own && n.addresses.contains(&at.ip())) else { continue };
        let is_there = |bound: &SocketAddr| {
            let ip = bound.ip().to_canonical();
            bound.port() == at.port() && (ip.is_unspecified() || ip == at.ip())
        };
        let inodes: HashSet<u64> =
            namespace.listening.iter().filter(|socket| is_there(&socket.at)).map(|socket| socket.inode).collect();
        if sockets_of(pid).is_some_and(|held| !held.is_disjoint(&inodes)) {
            holders.push(pid);
        }
    }
    topmost(&holders, processes)
}

/// Where Docker's proxy hands a port of this host on to, as its command line says.
fn published(port: u16, processes: &Processes, trusted: impl Fn(Pid) -> bool) -> Option<SocketAddr> {
    processes.proxies().filter(|(pid, _)| trusted(*pid)).find_map(|(_, words)| {
        let option = |name| launch::option(words, &[name]);
        let same = option("-host-port")?.parse::<u16>().ok()? == port && option("-proto") != Some("udp");
        let ip: IpAddr = option("-container-ip")?.parse().ok()?;
        same.then_some(SocketAddr::new(ip, option("-container-port")?.parse().ok()?))
    })
}

/// Longest list of process ids: texts are cut at 256 characters, and half an id would be another one.
const LONGEST: usize = 250;

/// Ids of the processes of the engine in which `process` answers: that one first, then those that hold
/// memory of a GPU, then those known as parts of an engine, then the others, as many as fit.
pub(super) fn pids_text(
    process: Process,
    processes: &Processes,
    on_gpu: &HashSet<u32>,
    counts: impl Fn(Pid) -> bool,
) -> String {
    let mut pids: Vec<Pid> = processes.relatives(process.pid).into_iter().filter(|&pid| counts(pid)).collect();
    let is_part = |pid: Pid| processes.get(pid).is_some_and(|seen| seen.launch.is_some());
    pids.sort_by_key(|&pid| (pid != process.pid, !on_gpu.contains(&pid.unsigned_abs()), !is_part(pid), pid));
    let mut text = String::new();
    for pid in pids {
        let more = pid.to_string();
        if text.len() + 1 + more.len() > LONGEST {
            break;
        }
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(&more);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(text: &str) -> Endpoint {
        Endpoint::parse(text).unwrap()
    }

    #[test]
    fn which_hosts_may_be_this_one() {
        assert_eq!(host_of(&endpoint("localhost:8000")), Some(Host::Localhost));
        assert_eq!(host_of(&endpoint("127.example.org:8000")), None);
        assert_eq!(host_of(&endpoint("[::1]:8000")), Some(Host::Address("::1".parse().unwrap())));
        assert_eq!(host_of(&endpoint("10.0.0.5:8000")), Some(Host::Address("10.0.0.5".parse().unwrap())));
        assert_eq!(host_of(&endpoint("gpu7.example.org:8000")), None);
    }

    #[test]
    fn a_socket_of_the_other_family_is_not_where_an_address_leads() {
        let leads = |url: &str, bound: &[&str]| {
            let sockets = bound.iter().zip(1..).map(|(at, inode)| (at.parse().unwrap(), inode)).collect();
            let own = Namespace::for_test(true, sockets, &[]);
            led_to(&endpoint(url), &own).map(|socket| socket.inode).collect::<Vec<_>>()
        };
        assert_eq!(leads("127.0.0.1:80", &["127.0.0.1:80", "[::]:80"]), [1], "another user's, for IPv6 only");
        assert_eq!(leads("127.0.0.1:80", &["[::]:80"]), [1], "for both");
        assert_eq!(leads("[::1]:80", &["0.0.0.0:80", "[::]:80"]), [2]);
    }

    #[test]
    fn dockers_proxy_says_where_a_port_leads() {
        let processes = Processes::for_test(&[
            "5 1 /usr/bin/docker-proxy -proto tcp -host-ip 0.0.0.0 -host-port 8080 -container-ip 172.17.0.2 -container-port 8000",
            "6 1 docker-proxy -proto udp -host-ip 0.0.0.0 -host-port 8081 -container-ip 172.17.0.3 -container-port 8001",
            "7 1 docker-proxy -host-port 8082",
        ]);
        assert_eq!(published(8080, &processes, |_| true).map(|at| at.to_string()).as_deref(), Some("172.17.0.2:8000"));
        for port in [8000, 8081, 8082] {
            assert_eq!(published(port, &processes, |_| true), None);
        }
        assert_eq!(published(8080, &processes, |_| false), None, "anybody may write such a command line");
    }

    #[test]
    fn the_list_of_ids_begins_with_the_listener_and_is_never_cut_within_one() {
        let lines: Vec<String> = ["100000 1 vllm serve m".to_owned(), "100001 100000 VLLM::EngineCore".to_owned()]
            .into_iter()
            .chain((2..90).map(|i| format!("{} 100001 python3 helper.py", 100_000 + i)))
            .chain(["99 100001 VLLM::Worker_TP0".to_owned()])
            .collect();
        let processes = Processes::for_test(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        let of = |gpu: &[u32]| {
            let listener = Process { pid: 100_000, start: 7 };
            pids_text(listener, &processes, &gpu.iter().copied().collect(), |_| true)
        };
        assert!(of(&[]).starts_with("100000,99,100001,100002,"), "{}", of(&[]));
        assert!(of(&[100_089]).starts_with("100000,100089,99,100001,100002,"), "{}", of(&[100_089]));
        assert!(of(&[]).len() <= LONGEST && of(&[]).split(',').skip(2).all(|pid| pid.len() == 6));
    }

    #[test]
    fn the_process_that_started_the_others_counts() {
        let processes =
            Processes::for_test(&["11 1 vllm serve m", "10 11 VLLM::APIServer_0", "13 11 VLLM::EngineCore"]);
        assert_eq!(topmost(&[10, 11, 13], &processes).map(|process| process.pid), Some(11));
        assert_eq!(topmost(&[], &processes), None);
        let engine = Listed { index: 0, endpoint: endpoint("127.0.0.1:1"), up: true, launched: false };
        let mut owners = Owners::default();
        for pid in [10, 11, 13] {
            owners.note(&engine, Process { pid, start: 7 }, &processes);
        }
        assert_eq!(owners.of(&engine, 1, &processes, &mut Namespaces::default()).map(|p| p.pid), Some(11));
        let restarted = Processes::for_test(&["12 1 bash"]);
        owners.note(&engine, Process { pid: 99, start: 8 }, &restarted);
        assert_eq!(owners.by_engine[&0].1, Process { pid: 99, start: 8 }, "the old one is gone");
    }

    #[test]
    fn the_listener_of_a_named_engine_is_found_whatever_it_is() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        let processes = Scanner::default().scan();
        let own = i32::try_from(std::process::id()).unwrap();
        let found = |host: &str| {
            let engine = Listed { index: 3, endpoint: endpoint(&format!("{host}:{port}")), up: true, launched: false };
            Owners::default().of(&engine, 1, &processes, &mut Namespaces::default()).map(|process| process.pid)
        };
        assert_eq!(found("127.0.0.1"), Some(own));
        assert_eq!(found("localhost"), Some(own));
        assert_eq!(found("127.0.0.2"), None, "it does not listen there");
        assert_eq!(found("192.0.2.77"), None, "another machine's");
        let this = Process { pid: own, start: processes.get(own).unwrap().start };
        let may = |host: &str| may_answer(this, &endpoint(&format!("{host}:{port}")), &mut Namespaces::default());
        assert!(may("127.0.0.1") && may("localhost"));
        assert!(!may("127.0.0.2") && !may("192.0.2.77"), "it holds no socket to which that leads");
        let user = rustix::process::geteuid().as_raw();
        let users = |host: &str| users_at(&endpoint(&format!("{host}:{port}")), &mut Namespaces::default());
        assert_eq!((users("127.0.0.1"), users("127.0.0.2")), (HashSet::from([user]), HashSet::new()));
    }
}
