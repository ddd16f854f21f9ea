//! What lies between two GPUs: the way over PCI that sysfs shows, and whether the data went that way.
//!
//! Owns the names of `nvidia-smi topo`. It must not know CUDA. Invariants: what sysfs does not show is said to be not known;
//! NVLink is inferred here, from what PCIe cannot do, and is said to be.

use std::fmt;
use std::fs;
use std::path::Path;

/// Where sysfs lists PCI devices.
pub(super) const DEVICES: &str = "/sys/bus/pci/devices";
/// What 16 lanes of PCIe 6 carry one way, GB/s: more than any PCIe of today.
const MOST_PCIE: f64 = 121.0;
/// A copy this much faster than PCIe did not go over it: the link's rate is counted before its own headers.
const SURELY: f64 = 1.05;

/// How two devices meet, as `nvidia-smi topo` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Meet {
    /// Below one PCIe switch or root port.
    Pix,
    /// Below several PCIe switches, not through the host bridge.
    Pxb,
    /// At one host bridge.
    Phb,
    /// Between host bridges of a NUMA node.
    Node,
    /// Across NUMA nodes.
    Sys,
}

impl Meet {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Pix => "PIX",
            Self::Pxb => "PXB",
            Self::Phb => "PHB",
            Self::Node => "NODE",
            Self::Sys => "SYS",
        }
    }

    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Pix => "one PCIe switch",
            Self::Pxb => "several PCIe switches",
            Self::Phb => "the host bridge",
            Self::Node => "two host bridges of one NUMA node",
            Self::Sys => "the link between CPU sockets",
        }
    }
}

/// A device of PCI as sysfs shows it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Device {
    /// From the root complex to the device itself: `pci0000:17`, `0000:17:01.0`, `0000:18:00.0`. Empty when not known.
    way: Vec<String>,
    numa: Option<u32>,
    /// What its link carries one way at its best, GB/s.
    link: Option<f64>,
}

/// The way over PCI between two devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Way {
    pub(super) meet: Meet,
    /// Links from one device up to where they meet and down to the other.
    pub(super) hops: usize,
}

impl Device {
    /// The device with this address, e.g. `0000:18:00.0`.
    pub(super) fn read(devices: &Path, address: &str) -> Self {
        let entry = devices.join(address);
        let text = |name: &str| fs::read_to_string(entry.join(name)).unwrap_or_default();
        let way = fs::canonicalize(&entry).map(|path| way_of(&path)).unwrap_or_default();
        // -1: the firmware does not say.
        let numa = text("numa_node").trim().parse().ok();
        Self { way, numa, link: link_rate(&text("max_link_speed"), &text("max_link_width")) }
    }

    /// The most that a copy over its PCIe link can reach, GB/s.
    pub(super) fn most(&self) -> f64 {
        self.link.unwrap_or(MOST_PCIE)
    }

    /// The way to another device; `None` when sysfs does not show one of them.
    pub(super) fn way_to(&self, other: &Self) -> Option<Way> {
        let (a, b) = (&self.way, &other.way);
        let (root, other_root) = (a.first()?, b.first()?);
        if root != other_root {
            // Without a word from the firmware there is one node.
            let apart = matches!((self.numa, other.numa), (Some(a), Some(b)) if a != b);
            // Both ways up to their host bridges, and from one to the other.
            let hops = a.len() - 1 + b.len() - 1 + 1;
            return Some(Way { meet: if apart { Meet::Sys } else { Meet::Node }, hops });
        }
        let shared = a.iter().zip(b).take_while(|(a, b)| a == b).count();
        let (up, down) = (a.len() - shared, b.len() - shared);
        let meet = match shared {
            1 => Meet::Phb,
            // One switch has a port up and one down to each device.
            _ if up <= 2 && down <= 2 => Meet::Pix,
            _ => Meet::Pxb,
        };
        Some(Way { meet, hops: up + down })
    }
}

/// The part of a path in sysfs that is PCI: from `pci0000:17` on.
fn way_of(path: &Path) -> Vec<String> {
    let names = path.iter().map(|name| name.to_string_lossy().into_owned());
    names.skip_while(|name| !(name.starts_with("pci") && name.contains(':'))).collect()
}

/// What a link carries one way, GB/s, from `32.0 GT/s PCIe` and `16`.
fn link_rate(speed: &str, width: &str) -> Option<f64> {
    let transfers: f64 = speed.split_whitespace().next()?.parse().ok()?;
    let lanes: f64 = width.trim().parse().ok()?;
    // The first two generations spend 2 of 10 bits on the code, later ones 2 of 130, from the sixth on a little more.
    let code = if transfers <= 5.0 { 0.8 } else { 128.0 / 130.0 };
    // 63 lanes and 255 are how a device says that it does not know.
    (transfers > 0.0 && (1.0..=32.0).contains(&lanes)).then_some(transfers * lanes / 8.0 * code)
}

/// How data gets from one GPU to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Carrier {
    /// Not over PCIe, or not only: more than PCIe carries, or with atomics, which GPUs do not have over PCIe.
    NvLink,
    /// Straight over PCIe.
    Pcie,
    /// Through the host's memory.
    Host,
}

impl Carrier {
    /// Infers it from what was seen.
    pub(super) fn infer(peer: bool, atomics: bool, rate: f64, most_pcie: f64) -> Self {
        match peer {
            false => Self::Host,
            true if rate > most_pcie * SURELY || atomics => Self::NvLink,
            true => Self::Pcie,
        }
    }
}

impl fmt::Display for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NvLink => "NVLink",
            Self::Pcie => "PCIe",
            Self::Host => "host",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A sysfs with these devices, each below these parts.
    fn sysfs(devices: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("bus")).unwrap();
        for way in devices {
            let real = dir.path().join("devices").join(way);
            fs::create_dir_all(&real).unwrap();
            fs::write(real.join("max_link_speed"), "32.0 GT/s PCIe\n").unwrap();
            fs::write(real.join("max_link_width"), "16\n").unwrap();
            let numa = if way.starts_with("pci0001") { "1\n" } else { "0\n" };
            fs::write(real.join("numa_node"), numa).unwrap();
            symlink(&real, dir.path().join("bus").join(real.file_name().unwrap())).unwrap();
        }
        dir
    }

    /// How two devices meet that sysfs shows this way.
    fn meet(a: &str, b: &str) -> Option<(Meet, usize)> {
        let dir = sysfs(&[a, b]);
        let read = |way: &str| Device::read(&dir.path().join("bus"), way.rsplit('/').next().unwrap());
        let (there, back) = (read(a).way_to(&read(b)), read(b).way_to(&read(a)));
        assert_eq!(there, back);
        there.map(|way| (way.meet, way.hops))
    }

    #[test]
    fn devices_meet_where_nvidia_smi_says() {
        let port = "pci0000:17/0000:17:01.0";
        let switch = "pci0000:17/0000:17:01.0/0000:18:00.0";
        for (a, b, right) in [
            (
                format!("{switch}/0000:19:00.0/0000:1a:00.0"),
                format!("{switch}/0000:19:01.0/0000:1b:00.0"),
                (Meet::Pix, 4),
            ),
            // Two chips of one card.
            (format!("{port}/0000:19:00.0"), format!("{port}/0000:19:01.0"), (Meet::Pix, 2)),
            // A switch below a switch.
            (
                format!("{switch}/0000:19:00.0/0000:1a:00.0"),
                format!("{switch}/0000:19:01.0/0000:1b:00.0/0000:1c:00.0/0000:1d:00.0"),
                (Meet::Pxb, 6),
            ),
            // A virtual machine's bus.
            ("pci0000:00/0000:00:05.0".to_owned(), "pci0000:00/0000:00:06.0".to_owned(), (Meet::Phb, 2)),
            (format!("{port}/0000:18:00.0"), "pci0000:17/0000:17:03.0/0000:19:00.0".to_owned(), (Meet::Phb, 4)),
            (format!("{port}/0000:18:00.0"), "pci0000:3a/0000:3a:01.0/0000:3b:00.0".to_owned(), (Meet::Node, 5)),
            (format!("{port}/0000:18:00.0"), "pci0001:80/0001:80:01.0/0001:81:00.0".to_owned(), (Meet::Sys, 5)),
        ] {
            assert_eq!(meet(&a, &b), Some(right), "{a} and {b}");
        }
    }

    #[test]
    fn a_device_that_is_not_shown_has_no_way() {
        let dir = sysfs(&["pci0000:00/0000:00:05.0"]);
        let there = Device::read(&dir.path().join("bus"), "0000:00:05.0");
        let missing = Device::read(&dir.path().join("bus"), "0000:00:09.0");
        assert_eq!((there.way_to(&missing), missing.way_to(&there)), (None, None));
        assert!((missing.most() - MOST_PCIE).abs() < 1e-9 && (there.most() - 63.0).abs() < 0.1, "{there:?}");
    }

    #[test]
    fn links_carry_what_their_generation_says() {
        let near = |speed, width, right: f64| link_rate(speed, width).is_some_and(|rate| (rate - right).abs() < 0.02);
        assert!(near("2.5 GT/s", "16", 4.0) && near("8.0 GT/s PCIe", "16\n", 15.75));
        assert!(near("16.0 GT/s PCIe", "8", 15.75) && near("64.0 GT/s PCIe", "16", 126.03));
        assert_eq!(
            (link_rate("Unknown", "16"), link_rate("16.0 GT/s PCIe", "255"), link_rate("", "")),
            (None, None, None)
        );
    }

    #[test]
    fn nvlink_is_inferred_from_what_pcie_cannot_do() {
        let infer = |peer, atomics, rate| Carrier::infer(peer, atomics, rate, 63.0);
        assert_eq!(infer(true, false, 380.0), Carrier::NvLink);
        assert_eq!(infer(true, true, 40.0), Carrier::NvLink);
        assert_eq!(infer(true, false, 64.0), Carrier::Pcie);
        assert_eq!(infer(false, false, 20.0), Carrier::Host);
    }
}
