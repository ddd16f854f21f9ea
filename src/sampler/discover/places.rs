//! Where the sockets of an engine's process can be asked, from here, and whether the answer is its own.
//!
//! It must not open a socket. Invariant: what answers at a place that is not certainly the process's own
//! socket counts as that process only when nothing speaks against it, and the start time that it tells
//! has to be that of the process. A network namespace whose addresses its user may have chosen is not asked at all.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::namespace::{Namespace, Namespaces, ask_here, ask_inside, sockets_of};
use super::scan::{Pid, Processes};
use super::user;
use crate::engine::launch::{self, Family, Launch};

/// Why a place should be the process's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// It is the socket that the process holds, in warptop's own network namespace.
    Own,
    /// It is an address of the process's own network namespace.
    Inside,
    /// It is the same port on this host: where a container's port is published, or where a process was
    /// told to listen whose sockets may not be seen.
    SamePort,
}

/// A place to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) at: SocketAddr,
    pub(super) how: How,
}

/// Where a process may be asked.
#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    /// The likeliest first.
    pub(super) list: Vec<Place>,
    /// Its sockets may not be seen.
    pub(super) hidden: bool,
    /// It listens, but at loopback addresses of another network namespace only: at this one.
    pub(super) shut: Option<SocketAddr>,
    /// It lives in a network namespace whose addresses another user may have chosen.
    pub(super) dishonest: bool,
}

/// Most places of one process that are asked.
const MOST: usize = 16;

/// Most listening sockets of one process from which its places are made.
const MOST_SOCKETS: usize = 64;

/// Where a process can be asked.
pub(super) fn places_of(pid: Pid, launch: Launch, words: &[String], namespaces: &mut Namespaces) -> Places {
    let usual = (launch.family == Family::Triton).then_some(TRITON_METRICS);
    places_at(pid, launch::port(launch, words), usual, namespaces)
}

/// The same for a process that was `told` a port, or has a `usual` one.
pub(super) fn places_at(pid: Pid, told: Option<u16>, usual: Option<u16>, namespaces: &mut Namespaces) -> Places {
    let likely = told.or(usual);
    let seen = sockets_of(pid).and_then(|inodes| {
        if inodes.is_empty() {
            return Some(Places::default());
        }
        let namespace = namespaces.of(pid)?;
        if !namespace.own && !user::has_honest_addresses(pid) {
            return Some(Places { dishonest: true, ..Places::default() });
        }
        Some(in_namespace(namespace, &inodes, likely))
    });
    let mut places = seen.unwrap_or_else(|| {
        let at = told.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let list = at.map(|at| Place { at, how: How::SamePort }).into_iter().collect();
        Places { list, hidden: true, ..Places::default() }
    });
    places.list.sort_by_key(|place| (place.how as u8, Some(place.at.port()) != likely, place.at));
    places.list.dedup();
    places.list.truncate(MOST);
    places
}

/// Port of Triton's metrics unless it is told another one; its others speak the inference protocols.
const TRITON_METRICS: u16 = 8002;

fn in_namespace(namespace: &Namespace, inodes: &HashSet<u64>, likely: Option<u16>) -> Places {
    let held = namespace.listening.iter().filter(|socket| inodes.contains(&socket.inode)).map(|socket| socket.at);
    let (mut bound, others): (Vec<_>, Vec<_>) = held.partition(|at| Some(at.port()) == likely);
    bound.extend(others);
    bound.truncate(MOST_SOCKETS);
    if namespace.own {
        let here = bound.into_iter().filter_map(|at| ask_here(at, &namespace.addresses));
        return Places { list: here.map(|at| Place { at, how: How::Own }).collect(), ..Places::default() };
    }
    let mut places = Places::default();
    let mut open = false;
    for at in bound {
        if at.ip().to_canonical().is_loopback() {
            places.shut = places.shut.or(Some(at));
            continue;
        }
        open = true;
        let inside = ask_inside(at, &namespace.addresses);
        places.list.extend(inside.into_iter().map(|at| Place { at, how: How::Inside }));
        let here = SocketAddr::from((Ipv4Addr::LOCALHOST, at.port()));
        places.list.push(Place { at: here, how: How::SamePort });
    }
    places.shut = places.shut.filter(|_| !open);
    places
}

/// What is known of warptop's own side when an answer is judged.
#[derive(Clone, Debug, Default)]
pub(super) struct Here {
    /// Addresses of warptop's own namespace.
    pub(super) addresses: Vec<IpAddr>,
    /// Ports on which engines' processes listen in warptop's own namespace.
    pub(super) taken: HashSet<u16>,
}

/// How far the start time that an engine tells may be from that of its process, s: the kernel's idea of
/// when the machine was booted moves by a second when the clock is set.
const START_SLACK: f64 = 3.0;

/// Whether the engine that answers at `place` and says that it started at `start` (Unix seconds) is the
/// one whose processes started at `starts`.
pub(super) fn is_it(place: Place, start: Option<f64>, starts: &[f64], here: &Here) -> bool {
    match (place.how, start) {
        (How::Own, _) => true,
        (_, Some(start)) => is_one_of(start, starts),
        // A namespace may bear the host's own address; then the answer may be anybody's.
        (How::Inside, None) => !here.addresses.contains(&place.at.ip()),
        (How::SamePort, None) => !here.taken.contains(&place.at.port()),
    }
}

/// Whether an engine that says that it started at `start` may be one of the processes that started at `starts`.
pub(super) fn is_one_of(start: f64, starts: &[f64]) -> bool {
    starts.iter().any(|own| (own - start).abs() <= START_SLACK)
}

/// When the processes of the engine of `pid` started, Unix seconds.
pub(super) fn starts_of(pid: Pid, processes: &Processes) -> Vec<f64> {
    let Ok(boot) = procfs::boot_time_secs() else { return Vec::new() };
    let relatives = processes.relatives(pid);
    let ticks = relatives.into_iter().filter_map(|pid| processes.get(pid)).map(|seen| seen.start as f64);
    ticks.map(|ticks| boot as f64 + ticks / procfs::ticks_per_second() as f64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use procfs::net::{TcpNetEntries, TcpState};
    use procfs::{FromBufReadSI, current_system_info};

    fn shown(places: &Places) -> Vec<String> {
        places.list.iter().map(|place| format!("{:?} {}", place.how, place.at)).collect()
    }

    /// Lines of a real table: a listener on every address, a connection of it, one on loopback, and IPv6.
    fn table() -> Vec<(SocketAddr, u64)> {
        const TCP: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 101 1 0 100 0 0 10 0
   1: 0100007F:1F40 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 102 1 0 20 4 30 10 -1
   2: 0100007F:1F41 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 103 1 0 100 0 0 10 0
   3: 0500000A:1F42 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 104 1 0 100 0 0 10 0
   4: 00000000000000000000000000000000:1F40 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 105 1 0 100 0 0 10 0
";
        let entries = TcpNetEntries::from_buf_read(TCP.as_bytes(), current_system_info()).unwrap().0;
        let listening = entries.into_iter().filter(|entry| entry.state == TcpState::Listen);
        listening.map(|entry| (entry.local_address, entry.inode)).collect()
    }

    #[test]
    fn only_listening_sockets_of_the_process_count() {
        let namespace = Namespace::for_test(true, table(), &["192.0.2.2", "10.0.0.5"]);
        let of = |inodes: &[u64]| shown(&in_namespace(&namespace, &inodes.iter().copied().collect(), None));
        assert_eq!(of(&[101, 102]), ["Own 127.0.0.1:8000"]);
        assert_eq!(of(&[103, 104]), ["Own 127.0.0.1:8001", "Own 10.0.0.5:8002"]);
        assert!(of(&[102, 999]).is_empty());
    }

    #[test]
    fn a_container_is_asked_at_its_addresses_and_where_its_port_may_be_published() {
        let namespace = Namespace::for_test(false, table(), &["172.17.0.2"]);
        let of = |inodes: &[u64]| in_namespace(&namespace, &inodes.iter().copied().collect(), None);
        let open = of(&[101, 103]);
        assert_eq!(shown(&open), ["Inside 172.17.0.2:8000", "SamePort 127.0.0.1:8000"]);
        assert_eq!(open.shut, None, "something else is open");
        let shut = of(&[103]);
        assert!(shut.list.is_empty());
        assert_eq!(shut.shut.unwrap().to_string(), "127.0.0.1:8001");
    }

    /// Fault: engine: a process listens on a thousand ports in a network namespace
    /// Seen: nothing: 16 places of it are asked, the port that it was told first
    /// Works: every other engine, in bounded memory
    /// Recovers: needs nothing
    #[test]
    fn places_are_cut_before_they_are_multiplied() {
        let table = (1..=1000_u16).map(|port| (SocketAddr::from(([0, 0, 0, 0], port)), u64::from(port))).collect();
        let addresses: Vec<String> = (1..=16).map(|i| format!("172.17.0.{i}")).collect();
        let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
        let namespace = Namespace::for_test(false, table, &addresses);
        let places = in_namespace(&namespace, &(1..=1000).collect(), Some(990));
        assert_eq!(places.list.len(), MOST_SOCKETS * 17);
        assert!(places.list.iter().any(|place| place.at.port() == 990), "whatever comes before it in the table");
        assert_eq!(MOST.to_string(), "16");
    }

    #[test]
    fn another_service_at_the_same_place_is_not_taken_for_it() {
        let place = |how, at: &str| Place { at: at.parse().unwrap(), how };
        let here = Here { addresses: vec!["192.0.2.2".parse().unwrap()], taken: HashSet::from([8000]) };
        let starts = [1000.0, 1010.5];
        let is = |how, at, start| is_it(place(how, at), start, &starts, &here);
        assert!(is(How::Own, "127.0.0.1:8000", Some(5.0)), "the socket is proof enough");
        for how in [How::Inside, How::SamePort] {
            assert!(is(how, "192.0.2.2:8000", Some(1009.0)), "started when one of its processes did");
            assert!(!is(how, "192.0.2.3:9000", Some(1020.0)), "started at another time");
        }
        assert!(is(How::Inside, "172.17.0.2:8000", None));
        assert!(!is(How::Inside, "192.0.2.2:8000", None), "an address of this host");
        assert!(is(How::SamePort, "127.0.0.1:8001", None));
        assert!(!is(How::SamePort, "127.0.0.1:8000", None), "an engine of this host listens there");
    }
}
