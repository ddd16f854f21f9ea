//! What is known of each pair of GPUs, and what is not as it should be.
//!
//! Pure: it must not know how anything was measured. Invariant: every piece of advice names the pairs it is about and what
//! to do.

use std::collections::BTreeMap;

use super::path::{Carrier, Way};
use crate::probe::cuda::Peering;

/// A pair that is this much slower than others of its kind stands out.
const FAR_BELOW: f64 = 0.75;
/// Pairs that are named one by one.
const NAMED: usize = 4;

/// One GPU's way to another.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    /// The GPU that sends: its place among those that are measured, and its NVML index.
    pub(super) from: (usize, u8),
    /// The GPU that receives.
    pub(super) to: (usize, u8),
    pub(super) peering: Peering,
    /// Why the driver refused access although it is possible; empty when it did not.
    pub(super) refused: String,
    /// The way over PCI; `None` when sysfs does not show it.
    pub(super) way: Option<Way>,
    /// The most that PCIe carries between them, GB/s.
    pub(super) most_pcie: f64,
    /// Bandwidth of copies, GB/s.
    pub(super) rate: f64,
    /// What carries them.
    pub(super) carrier: Carrier,
}

impl Pair {
    /// Whether copies go straight.
    pub(super) fn is_direct(&self) -> bool {
        self.peering.access && self.refused.is_empty()
    }

    pub(super) fn name(&self) -> String {
        format!("GPU {} → {}", self.from.1, self.to.1)
    }

    /// Takes in the rate of copies, and infers what carries them.
    pub(super) fn measured(&mut self, rate: f64) {
        self.rate = rate;
        self.carrier = Carrier::infer(self.is_direct(), self.peering.atomics, rate, self.most_pcie);
    }

    /// What pairs have to have in common to be held against each other.
    fn kind(&self) -> (Carrier, Option<Way>, Option<i32>) {
        let over_pci = self.carrier != Carrier::NvLink;
        (self.carrier, self.way.filter(|_| over_pci), self.peering.rank)
    }
}

/// What the report says of every pair.
pub(super) fn facts(pairs: &[Pair]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|pair| {
            let access = match (pair.peering.access, pair.refused.is_empty()) {
                (true, true) => "peer access".to_owned(),
                (true, false) => format!("peer access refused ({})", pair.refused),
                (false, _) => "no peer access".to_owned(),
            };
            let rank = pair.peering.rank.map(|rank| format!(", rank {rank}")).unwrap_or_default();
            let atomics = if pair.peering.atomics { ", atomics" } else { "" };
            let inferred = if pair.carrier == Carrier::Host { "" } else { " (inferred)" };
            let way = pair.way.map_or_else(
                || "PCI way not known".to_owned(),
                |way| format!("PCI {}: {}, {} hops", way.meet.name(), way.meet.words(), way.hops),
            );
            (pair.name(), format!("{access}{rank}{atomics}; carried by {}{inferred}; {way}", pair.carrier))
        })
        .collect()
}

/// What is not as it should be. `has_nvlink`: the product has NVLink to every other.
pub(super) fn advice(pairs: &[Pair], has_nvlink: bool) -> Vec<String> {
    let mut out = Vec::new();
    let off: Vec<_> = pairs.iter().filter(|pair| !pair.is_direct()).collect();
    if !off.is_empty() {
        out.push(format!("no peer access {}: copies go through the host's memory", list(&off)));
        let cure = if has_nvlink {
            "this model has NVLink: is the fabric manager running, does `nvidia-smi topo -m` show NV, is MIG off?"
        } else {
            "`nvidia-smi topo -p2p r` says why there is no peer access; on PCIe switch off ACS and the IOMMU's \
             translation (iommu=pt), in a virtual machine ask whoever runs the host; some models do not offer it"
        };
        out.push(cure.to_owned());
    }
    if has_nvlink {
        let slow: Vec<_> = pairs.iter().filter(|pair| pair.carrier == Carrier::Pcie).collect();
        if !slow.is_empty() {
            out.push(format!(
                "{} at PCIe's pace where this model has NVLink: are links down (`nvidia-smi nvlink -s`), and does \
                 `nvidia-smi topo -m` show NV between them?",
                list(&slow)
            ));
        }
    }
    for pair in pairs {
        let mut rates: Vec<_> =
            pairs.iter().filter(|other| other.kind() == pair.kind()).map(|other| other.rate).collect();
        rates.sort_by(f64::total_cmp);
        let middle = rates[rates.len() / 2];
        if pair.rate < middle * FAR_BELOW {
            let look = match pair.carrier {
                Carrier::NvLink => {
                    "are all its links up (`nvidia-smi nvlink -s`), any replays (`nvidia-smi nvlink -e`)?"
                }
                Carrier::Pcie => "is a PCIe link on the way narrower or slower (`lspci -vv`, LnkSta), or shared?",
                Carrier::Host => "is the host's memory on another node, or a PCIe link narrower (`lspci -vv`, LnkSta)?",
            };
            out.push(format!("{} at {:.0} GB/s, others like it at {middle:.0}: {look}", pair.name(), pair.rate));
        }
    }
    // As many as one reads; the matrix shows them all.
    out.truncate(8);
    out
}

/// Pairs by name, the first few.
fn list(pairs: &[&Pair]) -> String {
    let mut out: Vec<_> = pairs.iter().take(NAMED).map(|pair| pair.name()).collect();
    if pairs.len() > NAMED {
        out.push(format!("{} more", pairs.len() - NAMED));
    }
    out.join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::path::Meet;
    use super::*;

    fn pair(from: u8, to: u8, rate: f64) -> Pair {
        let mut pair = Pair {
            from: (from.into(), from),
            to: (to.into(), to),
            peering: Peering { access: true, rank: Some(0), atomics: false },
            refused: String::new(),
            way: Some(Way { meet: Meet::Phb, hops: 4 }),
            most_pcie: 63.0,
            rate: 0.0,
            carrier: Carrier::Host,
        };
        pair.measured(rate);
        pair
    }

    fn all(n: u8, rate: impl Fn(u8, u8) -> f64) -> Vec<Pair> {
        let rate = &rate;
        (0..n).flat_map(|i| (0..n).filter(move |j| i != *j).map(move |j| pair(i, j, rate(i, j)))).collect()
    }

    #[test]
    fn a_machine_as_it_should_be_needs_no_advice() {
        assert_eq!(advice(&all(8, |i, j| 380.0 + f64::from(i * 8 + j) / 10.0), true), [""; 0]);
        assert_eq!(advice(&all(4, |_, _| 25.0), false), [""; 0]);
        // Pairs of a bridge beside pairs over PCIe, as it is built.
        let bridged = |i: u8, j: u8| if i / 2 == j / 2 { 100.0 } else { 22.0 };
        assert_eq!(advice(&all(4, bridged), false), [""; 0]);
    }

    #[test]
    fn one_pair_over_pcie_where_nvlink_was_expected_is_named() {
        let words = advice(&all(4, |i, j| if (i, j) == (1, 3) { 24.0 } else { 380.0 }), true);
        assert!(words.len() == 1 && words[0].starts_with("GPU 1 → 3 at PCIe's pace"), "{words:?}");
    }

    #[test]
    fn a_pair_with_links_down_stands_out_among_its_kind() {
        let words = advice(&all(4, |i, j| if (i, j) == (2, 0) { 190.0 } else { 380.0 }), true);
        assert!(words.len() == 1 && words[0].starts_with("GPU 2 → 0 at 190 GB/s, others like it at 380"), "{words:?}");
        // Two GPUs: the slower direction.
        let words = advice(&all(2, |i, _| if i == 0 { 12.0 } else { 25.0 }), false);
        assert!(
            words.len() == 1 && words[0].contains("GPU 0 → 1 at 12 GB/s") && words[0].contains("lspci"),
            "{words:?}"
        );
    }

    #[test]
    fn no_peer_access_is_named_with_its_cure() {
        let mut pairs = all(4, |_, _| 18.0);
        for pair in &mut pairs {
            (pair.peering.access, pair.carrier) = (false, Carrier::Host);
        }
        let words = advice(&pairs, false);
        assert!(words.len() == 2 && words[0].contains("GPU 0 → 3, GPU 1 → 0, 8 more"), "{words:?}");
        assert!(words[0].contains("through the host's memory") && words[1].contains("iommu=pt"), "{words:?}");
        pairs.truncate(2);
        assert!(advice(&pairs, true)[1].contains("fabric manager"));
    }

    #[test]
    fn no_words_are_cut() {
        use crate::model::text::{MAX_CHARS, clean};
        let fits = |words: &String| assert!(words.chars().count() <= MAX_CHARS && clean(words) == *words, "{words}");
        let mut pairs = all(16, |i, j| if i == 0 { 1.0 } else { 24.0 + f64::from(j) / 100.0 });
        for has_nvlink in [false, true] {
            advice(&pairs, has_nvlink).iter().for_each(fits);
            facts(&pairs).values().for_each(fits);
            for pair in &mut pairs {
                pair.peering.access = false;
                pair.measured(pair.rate);
            }
            advice(&pairs, has_nvlink).iter().for_each(fits);
        }
    }

    #[test]
    fn facts_say_what_is_inferred_and_what_is_not_known() {
        let mut pairs = vec![pair(0, 1, 380.0), pair(1, 0, 380.0)];
        pairs[1].way = None;
        pairs[1].refused = "too many peers".to_owned();
        pairs[1].carrier = Carrier::Host;
        let facts = facts(&pairs);
        assert_eq!(
            facts["GPU 0 → 1"],
            "peer access, rank 0; carried by NVLink (inferred); PCI PHB: the host bridge, 4 hops"
        );
        assert_eq!(
            facts["GPU 1 → 0"],
            "peer access refused (too many peers), rank 0; carried by host; PCI way not known"
        );
    }
}
