//! Where a URL leads: the one place that decides what is on this host, what is the same place, and what a key's line
//! covers.
//!
//! It must not resolve names or open sockets. Invariants: hosts are compared as parsed and never by how their text
//! begins, so `127.example` is a name and 127.0.0.2 is not 127.0.0.1; nothing is allocated, so drawing may ask.

use std::fmt::{self, Display};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Scheme, host, port and path of an http or https URL. User name, password, query and fragment are no part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address<'a> {
    https: bool,
    host: UrlHost<'a>,
    port: u16,
    /// Without a slash at its end.
    path: &'a str,
}

/// The host of a URL.
#[derive(Clone, Copy, Debug)]
pub enum UrlHost<'a> {
    /// `localhost`: by RFC 6761 it leads to a loopback address, to 127.0.0.1 or to `::1`.
    Localhost,
    /// An IP address. IPv4 in the form of IPv6 is IPv4; the address of no host is the loopback address of its family,
    /// which is where Linux connects to for it.
    Ip(IpAddr),
    /// A name, which can lead anywhere; without the dot of the root at its end.
    Name(&'a str),
}

impl PartialEq for UrlHost<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Localhost, Self::Localhost) => true,
            (Self::Ip(one), Self::Ip(other)) => one == other,
            (Self::Name(one), Self::Name(other)) => one.eq_ignore_ascii_case(other),
            _ => false,
        }
    }
}

impl Eq for UrlHost<'_> {}

impl<'a> UrlHost<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        if let Some(inside) = text.strip_prefix('[') {
            let ip: Ipv6Addr = inside.strip_suffix(']')?.parse().ok()?;
            return Some(Self::of(ip.into()));
        }
        let name = text.strip_suffix('.').unwrap_or(text);
        if let Ok(ip) = name.parse::<Ipv4Addr>() {
            return Some(Self::of(ip.into()));
        }
        match name {
            "" => None,
            _ if name.contains([':', '[', ']', ' ']) => None,
            _ if name.eq_ignore_ascii_case("localhost") => Some(Self::Localhost),
            _ => Some(Self::Name(name)),
        }
    }

    const fn of(ip: IpAddr) -> Self {
        Self::Ip(match ip.to_canonical() {
            IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
            ip => ip,
        })
    }

    /// Whether it is on this host for certain.
    pub const fn is_local(self) -> bool {
        match self {
            Self::Localhost => true,
            Self::Ip(ip) => ip.is_loopback(),
            Self::Name(_) => false,
        }
    }

    /// Whether a request to `other` can only end where one to this host may end: `localhost` covers the two addresses
    /// that it leads to, an address or a name covers itself.
    pub fn covers(self, other: Self) -> bool {
        self == other || matches!((self, other), (Self::Localhost, Self::Ip(ip)) if is_of_localhost(ip))
    }
}

/// Whether `localhost` leads to this address.
pub const fn is_of_localhost(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.to_bits() == Ipv4Addr::LOCALHOST.to_bits(),
        IpAddr::V6(ip) => ip.to_bits() == Ipv6Addr::LOCALHOST.to_bits(),
    }
}

impl<'a> Address<'a> {
    /// Reads a URL as a browser would; `None` where it is none of http or https.
    pub fn parse(url: &'a str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        let https = scheme.eq_ignore_ascii_case("https");
        if !https && !scheme.eq_ignore_ascii_case("http") {
            return None;
        }
        let end = rest.find(['/', '\\', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let authority = authority.rsplit_once('@').map_or(authority, |(_, authority)| authority);
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, port),
            _ => (authority, ""),
        };
        let usual = if https { 443 } else { 80 };
        let path = path.split(['?', '#']).next().unwrap_or_default().trim_end_matches('/');
        Some(Self {
            https,
            host: UrlHost::parse(host)?,
            port: if port.is_empty() { usual } else { port.parse().ok()? },
            path,
        })
    }

    /// Its host.
    pub const fn host(&self) -> UrlHost<'a> {
        self.host
    }

    /// Its port, the scheme's own where none is written.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Its path, without a slash at the end: empty or beginning with one.
    pub const fn path(&self) -> &'a str {
        self.path
    }

    /// Whether it is on this host for certain: a name can lead anywhere, also one that begins with `127.`.
    pub const fn is_local(&self) -> bool {
        self.host.is_local()
    }

    /// Whether it is at `localhost` or 127.0.0.1, so that its port says where it is.
    pub const fn is_usual(&self) -> bool {
        matches!(self.host, UrlHost::Localhost | UrlHost::Ip(IpAddr::V4(Ipv4Addr::LOCALHOST)))
    }

    /// Whether what is meant for this address may go to another one: same scheme and port, a host that is covered, and a
    /// path that is the same or lies below.
    pub fn covers(&self, other: &Self) -> bool {
        let below = other.path.strip_prefix(self.path);
        self.https == other.https
            && self.port == other.port
            && self.host.covers(other.host)
            && below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// Whether both lead to the same server, as far as the text tells and whatever the scheme.
    pub fn same_place(&self, other: &Self) -> bool {
        let same_host = self.host.covers(other.host) || other.host.covers(self.host);
        same_host && self.port == other.port && self.path == other.path
    }
}

impl Display for UrlHost<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Localhost => f.write_str("localhost"),
            Self::Ip(IpAddr::V4(ip)) => ip.fmt(f),
            Self::Ip(IpAddr::V6(ip)) => write!(f, "[{ip}]"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

/// Host and port; the host left out where it is `localhost` or 127.0.0.1: `:8000`, `gpu7:8000`, `[::1]:8000`.
impl Display for Address<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.is_usual() {
            self.host.fmt(f)?;
        }
        write!(f, ":{}", self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Address<'_> {
        Address::parse(url).unwrap_or_else(|| panic!("{url}"))
    }

    #[test]
    fn only_what_cannot_be_elsewhere_is_local() {
        let local = [
            "http://localhost",
            "http://LocalHost.:8000/x",
            "https://127.0.0.1",
            "http://127.0.0.2:1",
            "http://127.8.9.10.:1",
            "http://[::1]:1",
            "http://[0:0:0:0:0:0:0:1]",
            "http://[::ffff:127.0.0.1]:1",
            "http://0.0.0.0:1",
            "http://[::]:1",
            "http://ann:x@127.0.0.1",
        ];
        for url in local {
            assert!(parse(url).is_local(), "{url}");
        }
        let elsewhere = [
            "http://127.evil.example:1",
            "http://127.0.0.1.evil.example",
            "http://localhost.example",
            "http://localhost-1",
            "http://127.0.0.1@evil.example",
            "http://127.0.0.1:x@evil.example",
            "http://evil.example/@127.0.0.1",
            "http://evil.example\\@127.0.0.1",
            "http://evil.example?@127.0.0.1",
            "http://evil.example#@localhost",
            "http://10.0.0.1",
            "http://[fe80::1]",
            "http://[::ffff:10.0.0.1]",
            // In the old notation of C this is 127.0.0.1; `Endpoint` writes it so before it asks here.
            "http://0x7f.1",
        ];
        for url in elsewhere {
            assert!(!parse(url).is_local(), "{url}");
        }
        let no_url = ["", "127.0.0.1:8000", "ftp://127.0.0.1", "http://", "http://:80", "http://[::1", "http://::1"];
        for url in no_url.into_iter().chain(["http://a:b:c", "http://a:99999", "http://[127.0.0.1]", "http://a b"]) {
            assert_eq!(Address::parse(url), None, "{url}");
        }
    }

    #[test]
    fn a_key_goes_as_far_as_its_address_and_no_further() {
        // From, to, whether it goes there, and whether it goes back.
        let pairs = [
            ("http://127.0.0.1:8000", "http://127.0.0.1:8000/metrics", true, false),
            ("http://127.0.0.1:8000", "http://127.0.0.2:8000", false, false),
            ("http://127.0.0.1:8000", "http://127.evil.example:8000", false, false),
            ("http://127.0.0.1:8000", "http://[::1]:8000", false, false),
            ("http://127.0.0.1:8000", "http://localhost:8000", false, true),
            ("http://localhost:8000", "http://[::1]:8000", true, false),
            ("http://localhost:8000", "http://127.0.0.2:8000", false, false),
            ("http://localhost:8000", "http://localhost.example:8000", false, false),
            ("http://127.0.0.1:8000", "http://[::ffff:127.0.0.1]:8000", true, true),
            ("http://127.0.0.1:8000", "http://0.0.0.0:8000", true, true),
            ("http://127.0.0.1:8000", "http://127.0.0.1:8001", false, false),
            ("http://127.0.0.1:8000", "https://127.0.0.1:8000", false, false),
            ("http://gw", "http://GW.:80/", true, true),
            ("https://gw", "https://gw:443", true, true),
            ("https://gw:80", "https://gw", false, false),
            ("https://gw/a", "https://gw/a/b", true, false),
            ("https://gw/a", "https://gw/ab", false, false),
            ("https://gw/a", "https://gw/A", false, false),
            ("https://gw", "https://gw.example", false, false),
            ("https://gw", "https://gw@evil.example", false, false),
            ("http://[2001:DB8::1]:1", "http://[2001:db8:0::1]:1", true, true),
        ];
        for (from, to, there, back) in pairs {
            let (one, other) = (parse(from), parse(to));
            assert_eq!((one.covers(&other), other.covers(&one)), (there, back), "{from} {to}");
        }
    }

    #[test]
    fn one_server_has_more_than_one_name() {
        let same = |one, other| parse(one).same_place(&parse(other)) && parse(other).same_place(&parse(one));
        assert!(same("http://localhost:8000/", "http://127.0.0.1:8000"));
        assert!(same("http://localhost:8000/a", "http://[::1]:8000/a/"));
        assert!(same("http://0.0.0.0:8000", "http://127.0.0.1:8000"));
        assert!(!same("http://127.0.0.1:8000", "http://[::1]:8000"), "two processes may listen there");
        assert!(!same("http://127.0.0.1:8000", "http://127.0.0.2:8000"));
        assert!(!same("http://127.0.0.1:8000/a", "http://127.0.0.1:8000/b"));
        assert!(!same("http://gpu7:8000", "http://127.0.0.1:8000"));
    }

    #[test]
    fn it_is_shown_short_where_it_is_the_usual_one() {
        let shown = |url| parse(url).to_string();
        let cases = [
            ("http://127.0.0.1:8000/x", ":8000"),
            ("http://localhost", ":80"),
            ("https://gw/llm", "gw:443"),
            ("http://127.0.0.10:8000", "127.0.0.10:8000"),
            ("http://[::1]:9", "[::1]:9"),
            ("http://ann:x@gpu7:8000", "gpu7:8000"),
        ];
        for (url, words) in cases {
            assert_eq!(shown(url), words);
        }
    }
}
