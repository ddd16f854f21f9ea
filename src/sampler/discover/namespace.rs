//! Network namespaces, as far as `/proc` shows them: who listens where in each, and which addresses it has.
//!
//! Reads `/proc/PID/net` of a process inside and never enters a namespace. It must not know engines.
//! Invariants: each namespace is read at most once for each [`Namespaces`]: the kernel walks its whole
//! table of connections for every read, which takes tens of milliseconds on a busy host; whoever makes a namespace may
//! fill it as he likes, so of each no more is read and kept than [`Bounds`] says, and of no more than [`MOST`].

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use procfs::net::TcpNetEntries;
use procfs::process::{FDTarget, Process};
use procfs::{FromBufReadSI, current_system_info};

/// A socket on which somebody listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ListeningSocket {
    /// The address that it is bound to.
    pub(super) at: SocketAddr,
    pub(super) inode: u64,
    /// The user that made it, as the kernel says.
    pub(super) user: u32,
}

/// One network namespace.
#[derive(Debug)]
pub(super) struct Namespace {
    /// What its link says, e.g. `net:[4026531840]`.
    link: PathBuf,
    /// It is warptop's own.
    pub(super) own: bool,
    pub(super) listening: Vec<ListeningSocket>,
    /// Its own addresses, without loopback and link-local ones.
    pub(super) addresses: Vec<IpAddr>,
}

impl Namespace {
    #[cfg(test)]
    pub(super) fn for_test(own: bool, listening: Vec<(SocketAddr, u64)>, addresses: &[&str]) -> Self {
        let listening = listening.into_iter().map(|(at, inode)| ListeningSocket { at, inode, user: 0 }).collect();
        let addresses = addresses.iter().map(|text| text.parse().unwrap()).collect();
        Self { link: PathBuf::new(), own, listening, addresses }
    }

    fn read(pid: i32, link: PathBuf, own: bool) -> Self {
        let bounds = if own { Bounds::OWN } else { Bounds::OTHER };
        let lines = |file: &str| {
            let file = File::open(format!("/proc/{pid}/net/{file}")).ok();
            file.map(|file| BufReader::new(file.take(bounds.bytes)))
                .into_iter()
                .flat_map(BufRead::lines)
                .map_while(Result::ok)
        };
        let mut listening = listening(lines("tcp"), bounds.sockets);
        listening.extend(self::listening(lines("tcp6"), bounds.sockets));
        let mut addresses = addresses_v4(lines("fib_trie"), bounds.addresses);
        addresses.extend(addresses_v6(lines("if_inet6"), bounds.addresses));
        Self { link, own, listening, addresses }
    }
}

/// Most that is read of a namespace.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    /// Of each file.
    bytes: u64,
    /// Listening sockets of IPv4, and as many of IPv6.
    sockets: usize,
    /// Addresses of IPv4, and as many of IPv6.
    addresses: usize,
}

impl Bounds {
    /// Warptop's own: a host that balances load may have thousands of addresses.
    const OWN: Self = Self { bytes: 8 << 20, sockets: 16_384, addresses: 4096 };
    /// A container has a few addresses and a handful of listening sockets.
    const OTHER: Self = Self { bytes: 1 << 20, sockets: 1024, addresses: 16 };
}

/// Most network namespaces that are read in one go.
const MOST: usize = 128;

/// Most open files of a process that are looked at for sockets.
const MOST_FILES: usize = 65_536;

/// The listening sockets in a `/proc/net/tcp` or `tcp6`, which has them before all others:
/// no more is read than the first line of a connection.
fn listening(lines: impl Iterator<Item = String>, most: usize) -> Vec<ListeningSocket> {
    const LISTEN: &str = "0A";
    let is_listening = |line: &String| line.split_ascii_whitespace().nth(3) == Some(LISTEN);
    let mut lines = lines;
    let mut text = lines.next().unwrap_or_default();
    for line in lines.take_while(is_listening).take(most) {
        text.push('\n');
        text.push_str(&line);
    }
    text.push('\n');
    let entries = TcpNetEntries::from_buf_read(text.as_bytes(), current_system_info());
    let socket = |e: procfs::net::TcpNetEntry| ListeningSocket { at: e.local_address, inode: e.inode, user: e.uid };
    entries.map(|entries| entries.0).unwrap_or_default().into_iter().map(socket).collect()
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
            if self.list.len() >= MOST && !own {
                return None;
            }
            self.list.push(Namespace::read(pid, link.clone(), own));
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
    Some(fds.take(MOST_FILES).filter_map(Result::ok).filter_map(|fd| inode(fd.target)).collect())
}

/// Addresses in a `/proc/net/fib_trie` that belong to the machine itself: leaves (`|-- 10.0.0.2`) that are
/// followed by `/32 host LOCAL`. Each is listed once, loopback left out.
fn addresses_v4(fib_trie: impl Iterator<Item = String>, most: usize) -> Vec<IpAddr> {
    let (mut found, mut known) = (Vec::new(), HashSet::new());
    let mut leaf: Option<Ipv4Addr> = None;
    for line in fib_trie {
        let line = line.trim();
        if let Some(address) = line.strip_prefix("|-- ") {
            leaf = address.parse().ok();
        } else if line.starts_with("/32 host LOCAL")
            && let Some(address) = leaf.filter(|address| !address.is_loopback()).map(IpAddr::V4)
            && known.insert(address)
        {
            found.push(address);
            if found.len() >= most {
                break;
            }
        }
    }
    found
}

/// Global addresses in a `/proc/net/if_inet6`: lines of address, index, prefix length, scope, flags, name.
fn addresses_v6(if_inet6: impl Iterator<Item = String>, most: usize) -> Vec<IpAddr> {
    const GLOBAL: &str = "00";
    let address = |line: String| {
        let mut fields = line.split_whitespace();
        let bits = u128::from_str_radix(fields.next()?, 16).ok()?;
        (fields.nth(2) == Some(GLOBAL)).then_some(IpAddr::V6(Ipv6Addr::from_bits(bits)))
    };
    if_inet6.filter_map(address).take(most).collect()
}

/// Whether an address may be another machine's or nobody's whoever has it: of the link (where clouds keep the secrets
/// of a machine, 169.254.169.254), of a group, or of no host at all.
pub(super) const fn is_never_asked(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_multicast() || ip.is_broadcast() || ip.is_unspecified(),
        IpAddr::V6(ip) => ip.is_unicast_link_local() || ip.is_multicast() || ip.is_unspecified(),
    }
}

/// Where to ask for a socket bound to `address` in warptop's own namespace: at the loopback address when
/// it is bound to all. Nowhere when the address is not this host's: anybody may bind a socket to any address
/// (`IP_FREEBIND`), and a request would go to whoever really has it.
pub(super) fn ask_here(address: SocketAddr, own: &[IpAddr]) -> Option<SocketAddr> {
    let ip = address.ip().to_canonical();
    let ip = if ip.is_unspecified() { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { ip };
    let is_here = ip.is_loopback() || (own.contains(&ip) && !is_never_asked(ip));
    is_here.then_some(SocketAddr::new(ip, address.port()))
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
        // Bound to an address that the namespace does not have (`IP_FREEBIND`) it is reached nowhere.
        _ => addresses.iter().copied().filter(|ip| *ip == canonical).collect(),
    };
    ips.into_iter().filter(|ip| !is_never_asked(*ip)).map(|ip| SocketAddr::new(ip, address.port())).collect()
}

/// Every parser here on the same text, for `fuzz/`.
#[cfg(fuzzing)]
pub(in crate::sampler) fn fuzz(text: &str) {
    let lines = || text.lines().map(ToOwned::to_owned);
    let _ = (addresses_v4(lines(), 64).len(), addresses_v6(lines(), 64).len(), listening(lines(), 64).len());
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

    fn lines(text: &str) -> impl Iterator<Item = String> {
        text.lines().map(ToOwned::to_owned)
    }

    fn ips(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn own_addresses_are_the_local_leaves() {
        assert_eq!(addresses_v4(lines(FIB_TRIE), 64), ips(&["192.0.2.2", "172.17.0.1"]));
        for text in ["", "Main:\n", "/32 host LOCAL\n", "|-- 300.1.2.3\n /32 host LOCAL\n"] {
            assert!(addresses_v4(lines(text), 64).is_empty(), "{text:?}");
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
        assert_eq!(addresses_v6(lines(text), 64), ips(&["fd00::2"]));
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
            assert_eq!(ask_here(bound.parse().unwrap(), &ips(&["10.0.0.5"])).unwrap().to_string(), asked);
        }
    }

    /// Fault: engine: another user's process binds its socket to an address that is not this host's
    /// Seen: the engine is not listed: no request leaves
    /// Works: every other engine
    /// Recovers: when it listens at an address of this host
    #[test]
    fn no_request_goes_to_an_address_that_only_a_socket_claims() {
        let own = ips(&["10.0.0.5", "169.254.7.7", "fd00::5"]);
        for bound in
            ["192.0.2.77:80", "169.254.169.254:80", "169.254.7.7:80", "[fe80::1]:80", "224.0.0.1:80", "[ff02::1]:80"]
        {
            let at = bound.parse().unwrap();
            assert_eq!(ask_here(at, &own), None, "nowhere: {bound}");
            assert!(ask_inside(at, &own).is_empty(), "nowhere: {bound}");
        }
        let everywhere = ask_inside("[::]:80".parse().unwrap(), &own);
        assert_eq!(everywhere.len(), 2, "all but the address of the link: {everywhere:?}");
    }

    /// Fault: engine: another user's network namespace has any number of addresses and sockets
    /// Seen: nothing: 1,024 sockets and 16 addresses of it are looked at
    /// Works: every other engine, in bounded memory
    /// Recovers: needs nothing
    #[test]
    fn of_a_namespace_no_more_is_read_than_its_bounds() {
        let Bounds { sockets, addresses, bytes } = Bounds::OTHER;
        assert_eq!([sockets.to_string(), addresses.to_string()], ["1024", "16"]);
        assert!(bytes <= 1 << 20);
        let read = std::cell::Cell::new(0_usize);
        let count = |line: String| {
            read.set(read.get() + 1);
            line
        };
        let many = (0..1_000_000_u32)
            .flat_map(|i| [format!("|-- {}", Ipv4Addr::from_bits(0x0a00_0000 | i)), "/32 host LOCAL".into()]);
        assert_eq!((addresses_v4(many.map(count), addresses).len(), read.replace(0)), (16, 32));
        let many = (0..1_000_000_u32).map(|i| format!("fd{i:030x} 04 40 00 82 eth0"));
        assert_eq!((addresses_v6(many.map(count), addresses).len(), read.replace(0)), (16, 16));
        let line = |state: &str, i: u32| {
            format!(
                "{i}: 00000000:1F40 00000000:0000 {state} 00000000:00000000 00:00000000 00000000 0 0 {i} 1 0 100 0 0 10 0"
            )
        };
        let many = std::iter::once("sl".to_owned()).chain((0..1_000_000).map(|i| line("0A", i)));
        assert_eq!(listening(many.map(count), sockets).len(), 1024);
        assert!(read.replace(0) <= 1026);
        let connections = ["sl".to_owned(), line("0A", 1)].into_iter().chain((0..1_000_000).map(|i| line("01", i)));
        assert_eq!(listening(connections.map(count), sockets).len(), 1, "connections come after all that listens");
        assert!(read.get() <= 3);
    }

    #[test]
    fn of_so_many_namespaces_only_some_are_read() {
        let mut namespaces = Namespaces::default();
        let dummy =
            |i| Namespace { link: PathBuf::from(format!("net:[{i}]")), ..Namespace::for_test(false, vec![], &[]) };
        namespaces.list.extend((0..MOST).map(dummy));
        assert!(namespaces.own().is_some(), "its own is always read");
        assert_eq!(namespaces.list.len(), MOST + 1);
    }

    #[test]
    fn this_process_lives_in_the_own_namespace_and_holds_its_listener() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut namespaces = Namespaces::default();
        let own = namespaces.own().unwrap();
        let ListeningSocket { inode, user, .. } = *own.listening.iter().find(|socket| socket.at == address).unwrap();
        assert_eq!(user, rustix::process::geteuid().as_raw());
        assert!(own.own);
        assert!(sockets_of(i32::try_from(std::process::id()).unwrap()).unwrap().contains(&inode));
        assert!(namespaces.of(-1).is_none() && sockets_of(-1).is_none());
    }
}
