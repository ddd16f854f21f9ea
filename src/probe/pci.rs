//! A device on the PCI bus as sysfs tells it: its NUMA node, and every link from it up to the CPU.
//!
//! It must not know what the device is. Invariant: what sysfs does not tell, as in many virtual machines, is `None`.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use super::topology::{allowed, parse_list};

const DEVICES: &str = "/sys/bus/pci/devices";

/// A device.
#[derive(Clone, Debug)]
pub(super) struct Device {
    /// Its place below `/sys/devices`, which goes through every bridge above it.
    path: PathBuf,
    /// The NUMA node it hangs on.
    pub(super) node: Option<usize>,
    /// CPUs of that node that this process may use.
    pub(super) cpus: Vec<usize>,
}

/// What a link does, or what an end of it can do at most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Speed {
    /// Transfers a second on each lane, 10⁹.
    gt_per_s: f64,
    /// Lanes.
    lanes: u32,
}

/// A link, seen from its lower end.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Link {
    /// Address of the device at its lower end.
    pub(super) address: String,
    /// What it does now.
    pub(super) now: Speed,
    /// What the device can do.
    device: Option<Speed>,
    /// Address of the port at its upper end, and what that can do.
    port: Option<(String, Option<Speed>)>,
}

impl Device {
    /// The device with this address, e.g. `0000:3b:00.0`; `None` where sysfs does not show it.
    pub(super) fn at(address: &str) -> Option<Self> {
        Self::below(Path::new(DEVICES), address)
    }

    fn below(devices: &Path, address: &str) -> Option<Self> {
        let path = fs::canonicalize(devices.join(address)).ok()?;
        let node = read(&path, "numa_node").and_then(|text| text.parse().ok());
        let ours = allowed();
        let list = read(&path, "local_cpulist").unwrap_or_default();
        let cpus = parse_list(&list).into_iter().filter(|cpu| ours.contains(cpu)).collect();
        Some(Self { path, node, cpus })
    }

    /// Every link from the device up to the CPU, as it is at this moment, its own first. A port that has lowered its
    /// speed to save power says so: read them while data flows. Empty where none is told.
    pub(super) fn links(&self) -> Vec<Link> {
        let ends = self.path.ancestors().map_while(|path| Some((path, address_of(path)?)));
        let ends: Vec<_> = ends.collect();
        let link = |(place, &(path, address)): (usize, &(&Path, &str))| {
            let now = speed(path, "current")?;
            let port = ends.get(place + 1).map(|&(path, address)| (address.to_owned(), speed(path, "max")));
            Some(Link { address: address.to_owned(), now, device: speed(path, "max"), port })
        };
        // The upper end of a link shows the same link again: a port is a step only where it has a link of its own
        // above it, which is every second one behind a switch.
        ends.iter().enumerate().step_by(2).filter_map(link).collect()
    }
}

fn read(path: &Path, file: &str) -> Option<String> {
    fs::read_to_string(path.join(file)).ok().map(|text| text.trim().to_owned())
}

/// The last part of a path when it is an address: `0000:3b:00.0`.
fn address_of(path: &Path) -> Option<&str> {
    let name = path.file_name()?.to_str()?;
    let form = |c: char| if c.is_ascii_hexdigit() { 'x' } else { c };
    name.chars().map(form).collect::<String>().ends_with("xxxx:xx:xx.x").then_some(name)
}

/// `current` or `max` speed; `None` when one half of it is not told ("Unknown", 0 lanes, 255 lanes).
fn speed(path: &Path, which: &str) -> Option<Speed> {
    let rate = read(path, &format!("{which}_link_speed"))?;
    let gt_per_s = rate.split_whitespace().next()?.parse().ok()?;
    let lanes = read(path, &format!("{which}_link_width"))?.parse().ok()?;
    let known = Speed { gt_per_s, lanes }.generation().is_some() && (1..=32).contains(&lanes);
    known.then_some(Speed { gt_per_s, lanes })
}

/// Transfers a second of each generation, 10⁹, and the share of them that is data after encoding: 8b/10b, then
/// 128b/130b, then flits of 256 bytes of which 242 are left (PCI Express Base Specification).
const GENERATIONS: [(f64, f64); 6] =
    [(2.5, 0.8), (5.0, 0.8), (8.0, 128.0 / 130.0), (16.0, 128.0 / 130.0), (32.0, 128.0 / 130.0), (64.0, 242.0 / 256.0)];

impl Speed {
    /// This many lanes of a generation, 1 to 6.
    pub(super) fn of(generation: usize, lanes: u32) -> Option<Self> {
        let (gt_per_s, _) = GENERATIONS.get(generation.checked_sub(1)?)?;
        Some(Self { gt_per_s: *gt_per_s, lanes })
    }

    pub(super) fn generation(self) -> Option<usize> {
        GENERATIONS.iter().position(|(rate, _)| (rate - self.gt_per_s).abs() < 0.1).map(|place| place + 1)
    }

    /// Lanes.
    pub(super) const fn lanes(self) -> u32 {
        self.lanes
    }

    /// Data each way after encoding, GB/s. Headers of packets take about a tenth of it.
    pub(super) fn gb_per_s(self) -> f64 {
        let share = self.generation().map_or(0.0, |generation| GENERATIONS[generation - 1].1);
        self.gt_per_s * share * f64::from(self.lanes) / 8.0
    }

    fn least(self, other: Self) -> Self {
        Self { gt_per_s: self.gt_per_s.min(other.gt_per_s), lanes: self.lanes.min(other.lanes) }
    }
}

impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.generation() {
            Some(generation) => write!(f, "gen {generation} x{}", self.lanes),
            None => write!(f, "{} GT/s x{}", self.gt_per_s, self.lanes),
        }
    }
}

impl fmt::Display for Link {
    /// "gen 4 x16 now; 0000:3b:00.0 can do gen 5 x16, its port 0000:3a:01.0 gen 4 x16"
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let most =
            |speed: Option<Speed>| speed.map_or_else(|| "what is not told".to_owned(), |speed| speed.to_string());
        write!(f, "{} now; {} can do {}", self.now, self.address, most(self.device))?;
        match &self.port {
            Some((address, speed)) => write!(f, ", its port {address} {}", most(*speed)),
            None => f.write_str("; its port is not shown"),
        }
    }
}

/// The slowest of the links, which is what the device gets.
pub(super) fn slowest(links: &[Link]) -> Option<&Link> {
    links.iter().min_by(|a, b| a.now.gb_per_s().total_cmp(&b.now.gb_per_s()))
}

/// What is wrong with the links while data flows, and what to do. `links[0]` is the device's own.
pub(super) fn advice(links: &[Link]) -> Vec<String> {
    let mut out = Vec::new();
    let Some(own) = links.first() else { return out };
    for link in links {
        let port = link.port.as_ref().and_then(|(_, speed)| *speed);
        let Some(both) = [link.device, port].into_iter().flatten().reduce(Speed::least) else { continue };
        let who = if link.address == own.address { "the GPU".to_owned() } else { format!("bridge {}", link.address) };
        if link.now.lanes < both.lanes {
            out.push(format!(
                "the link of {who} has {} lanes and both ends can do {}: reseat the card or its riser, clean the \
                 contacts, look whether the firmware splits the slot (bifurcation)",
                link.now.lanes, both.lanes
            ));
        }
        if link.now.generation() < both.generation() {
            out.push(format!(
                "the link of {who} runs at {} under load and both ends can do {both}: a riser or retimer that is not \
                 up to it, or a limit in the firmware (link speed of the slot)",
                link.now
            ));
        }
    }
    if let (Some(device), Some((address, Some(port)))) = (own.device, &own.port)
        && port.gb_per_s() < device.gb_per_s() * 0.99
    {
        out.push(format!(
            "the slot limits: port {address} can do {port}, the GPU {device}; another slot may be faster"
        ));
    }
    if let Some(slow) = slowest(links).filter(|slow| slow.now.gb_per_s() < own.now.gb_per_s() * 0.99) {
        out.push(format!(
            "between the GPU ({}) and the CPU there is a slower link ({} at {}), which all behind it share",
            own.now, slow.now, slow.address
        ));
    }
    out
}

#[cfg(test)]
#[path = "pci/tests.rs"]
mod tests;
