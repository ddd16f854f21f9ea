//! Network namespaces, as far as `/proc` shows them: who listens where in each, and which addresses it has.
//!
//! Reads `/proc/PID/net` of a process inside and never enters a namespace. It must not know engines.
//! Invariant: each namespace is read at most once for each [`Namespaces`]: the kernel walks its whole
//! table of connections for every read, which takes tens of milliseconds on a busy host.

use std::collections::HashSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use procfs::net::TcpState;
use procfs::process::{FDTarget, Process};

/// One network namespace.
#[derive(Debug)]
pub(super) struct Namespace {
    /// What its link says, e.g. `net:[4026531840]`.
    link: PathBuf,
    /// It is warptop's own.
    pub(super) own: bool,
    /// Listening sockets: local address and inode.
    pub(super) listening: Vec<(SocketAddr, u64)>,
    /// Its own addresses, without loopback and link-local ones.
    pub(super) addresses: Vec<IpAddr>,
}

impl Namespace {
    #[cfg(test)]
    pub(super) fn for_test(own: bool, listening: Vec<(SocketAddr, u64)>, addresses: &[&str]) -> Self {
        let addresses = addresses.iter().map(|text| text.parse().unwrap()).collect();
        Self { link: PathBuf::new(), own, listening, addresses }
    }

    fn read(process: &Process, link: PathBuf, own: bool) -> Self {
        let pid = process.pid;
        let entries = process.tcp().unwrap_or_default().into_iter().chain(process.tcp6().unwrap_or_default());
        let listening = entries.filter(|entry| entry.state == TcpState::Listen);
        let text = |file: &str| fs::read_to_string(format!("/proc/{pid}/net/{file}")).unwrap_or_default();
        let mut addresses = addresses_v4(&text("fib_trie"));
        addresses.extend(addresses_v6(&text("if_inet6")));
        Self { link, own, listening: listening.map(|entry| (entry.local_address, entry.inode)).collect(), addresses }
    }
}

/// What was read of namespaces in one go.
#[derive(Debug, Default)]
pub(super) struct Namespaces {
    list: Vec<Namespace>,
    own: Option<PathBuf>,
}

impl Namespaces {
    /// The namespace in which a process lives; `None` when that may not be seen.
    pub(super) fn of(&mut self, pid: i32) -> Option<&Namespace> {
        let link = fs::read_link(format!("/proc/{pid}/ns/net")).ok()?;
        if self.own.is_none() {
            self.own = fs::read_link("/proc/self/ns/net").ok();
        }
        if !self.list.iter().any(|known| known.link == link) {
            let own = self.own.as_ref() == Some(&link);
            self.list.push(Namespace::read(&Process::new(pid).ok()?, link.clone(), own));
        }
        self.list.iter().find(|known| known.link == link)
    }

    /// The namespace in which warptop lives.
    pub(super) fn own(&mut self) -> Option<&Namespace> {
        self.of(i32::try_from(std::process::id()).ok()?)
    }
}

/// Inodes of the sockets that a process holds; `None` when that may not be seen.
pub(super) fn sockets_of(pid: i32) -> Option<HashSet<u64>> {
    let fds = Process::new(pid).ok()?.fd().ok()?;
    let inode = |target| if let FDTarget::Socket(inode) = target { Some(inode) } else { None };
    Some(fds.filter_map(Result::ok).filter_map(|fd| inode(fd.target)).collect())
}

/// Addresses in a `/proc/net/fib_trie` that belong to the machine itself: leaves (`|-- 10.0.0.2`) that are
/// followed by `/32 host LOCAL`. Each is listed once, loopback left out.
fn addresses_v4(fib_trie: &str) -> Vec<IpAddr> {
    let mut found: Vec<IpAddr> = Vec::new();
    let mut leaf: Option<Ipv4Addr> = None;
    for line in fib_trie.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            leaf = address.parse().ok();
        } else if line.starts_with("/32 host LOCAL")
            && let Some(address) = leaf.filter(|address| !address.is_loopback()).map(IpAddr::V4)
            && !found.contains(&address)
        {
            found.push(address);
        }
    }
    found
}

/// Global addresses in a `/proc/net/if_inet6`: lines of address, index, prefix length, scope, flags, name.
fn addresses_v6(if_inet6: &str) -> Vec<IpAddr> {
    const GLOBAL: &str = "00";
    let lines = if_inet6.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let global = lines.filter(|fields| fields.get(3) == Some(&GLOBAL));
    let address = |fields: Vec<&str>| u128::from_str_radix(fields.first()?, 16).ok();
    global.filter_map(address).map(|bits| IpAddr::V6(Ipv6Addr::from_bits(bits))).collect()
}

/// Where to ask for a socket bound to `address` in warptop's own namespace: at the loopback address when
/// it is bound to all.
pub(super) fn ask_here(address: SocketAddr) -> SocketAddr {
    let ip = address.ip().to_canonical();
    let ip = if ip.is_unspecified() { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { ip };
    SocketAddr::new(ip, address.port())
}

/// Where to ask for a socket bound to `address` in another namespace, from outside: at that namespace's
/// addresses. Nowhere when it is bound to loopback.
pub(super) fn ask_inside(address: SocketAddr, addresses: &[IpAddr]) -> Vec<SocketAddr> {
    let ip = address.ip();
    let canonical = ip.to_canonical();
    let ips: Vec<IpAddr> = match canonical {
        _ if canonical.is_loopback() => Vec::new(),
        // A socket bound to `::` takes IPv4 as well, unless it was told not to.
        IpAddr::V6(ip) if ip.is_unspecified() => addresses.to_vec(),
        IpAddr::V4(ip) if ip.is_unspecified() => addresses.iter().copied().filter(IpAddr::is_ipv4).collect(),
        _ => vec![canonical],
    };
    ips.into_iter().map(|ip| SocketAddr::new(ip, address.port())).collect()
}

/// Every parser here on the same text, for `fuzz/`.
#[cfg(fuzzing)]
pub(in crate::sampler) fn fuzz(text: &str) {
    let _ = (addresses_v4(text).len(), addresses_v6(text).len());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Linux 6.18 prints it for a host with one address and a bridge; both tables list every address.
    const FIB_TRIE: &str = "\
Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     +-- 127.0.0.0/8 2 0 2
        +-- 127.0.0.0/31 1 0 0
           |-- 127.0.0.0
              /8 host LOCAL
           |-- 127.0.0.1
              /32 host LOCAL
        |-- 127.255.255.255
           /32 link BROADCAST
     +-- 192.0.2.0/24 2 0 2
        +-- 192.0.2.0/30 2 0 2
           |-- 192.0.2.0
              /24 link UNICAST
           |-- 192.0.2.2
              /32 host LOCAL
        |-- 192.0.2.255
           /32 link BROADCAST
Local:
  +-- 0.0.0.0/0 3 0 5
     |-- 127.0.0.1
        /32 host LOCAL
     |-- 172.17.0.1
        /32 link BROADCAST
        /32 host LOCAL
     |-- 192.0.2.2
        /32 host LOCAL
";

    fn ips(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn own_addresses_are_the_local_leaves() {
        assert_eq!(addresses_v4(FIB_TRIE), ips(&["192.0.2.2", "172.17.0.1"]));
        for text in ["", "Main:\n", "/32 host LOCAL\n", "|-- 300.1.2.3\n /32 host LOCAL\n"] {
            assert!(addresses_v4(text).is_empty(), "{text:?}");
        }
    }

    #[test]
    fn link_local_and_loopback_addresses_are_not_asked() {
        let text = "\
fe8000000000000000fc00fffe000001 04 40 20 80     eth0
00000000000000000000000000000001 01 80 10 80       lo
fd000000000000000000000000000002 04 40 00 82     eth0
zz000000000000000000000000000002 04 40 00 82     eth0
short
";
        assert_eq!(addresses_v6(text), ips(&["fd00::2"]));
    }

    #[test]
    fn where_a_socket_is_asked_from_outside() {
        let addresses = ips(&["172.17.0.2", "fd00::2"]);
        let asked = |bound: &str| {
            let places = ask_inside(bound.parse().unwrap(), &addresses);
            places.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(asked("0.0.0.0:8000"), ["172.17.0.2:8000"]);
        assert_eq!(asked("[::]:8000"), ["172.17.0.2:8000", "[fd00::2]:8000"]);
        assert_eq!(asked("172.17.0.2:8000"), ["172.17.0.2:8000"]);
        assert_eq!(asked("[::ffff:172.17.0.2]:8000"), ["172.17.0.2:8000"]);
        for bound in ["127.0.0.1:8000", "[::1]:8000", "[::ffff:127.0.0.1]:8000"] {
            assert!(asked(bound).is_empty(), "{bound}");
        }
    }

    #[test]
    fn where_a_socket_is_asked_here() {
        for (bound, asked) in [
            ("0.0.0.0:8000", "127.0.0.1:8000"),
            ("[::]:8000", "127.0.0.1:8000"),
            ("[::1]:8000", "[::1]:8000"),
            ("10.0.0.5:8000", "10.0.0.5:8000"),
        ] {
            assert_eq!(ask_here(bound.parse().unwrap()).to_string(), asked);
        }
    }

    #[test]
    fn this_process_lives_in_the_own_namespace_and_holds_its_listener() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut namespaces = Namespaces::default();
        let own = namespaces.own().unwrap();
        let inode = own.listening.iter().find(|(at, _)| *at == address).map(|(_, inode)| *inode).unwrap();
        assert!(own.own);
        assert!(sockets_of(i32::try_from(std::process::id()).unwrap()).unwrap().contains(&inode));
        assert!(namespaces.of(-1).is_none() && sockets_of(-1).is_none());
    }
}
