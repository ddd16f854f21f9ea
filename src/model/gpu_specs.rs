//! Datasheet figures of GPU models, for what the driver does not tell.

/// Peak memory bandwidth in bytes/s by the vendor's datasheet for the product name that NVML gives,
/// or `None` for a model not in the table.
///
/// Source: NVIDIA product datasheets (SXM/PCIe variants told apart by their NVML name). The most
/// specific name comes first.
pub fn dram_peak_bytes_per_s(name: &str) -> Option<f64> {
    const TB: f64 = 1e12;
    const TABLE: &[(&str, f64)] = &[
        ("GB300", 8.0 * TB),
        ("B300", 8.0 * TB),
        ("GB200", 8.0 * TB),
        ("B200", 8.0 * TB),
        ("GH200 480GB", 4.0 * TB),
        ("H200", 4.8 * TB),
        ("H100 NVL", 3.9 * TB),
        ("H100 PCIe", 2.0 * TB),
        ("H100 80GB HBM3", 3.35 * TB),
        ("A100-SXM4-80GB", 2.039 * TB),
        ("A100 80GB PCIe", 1.935 * TB),
        ("A100-SXM4-40GB", 1.555 * TB),
        ("A100-PCIE-40GB", 1.555 * TB),
        ("L40S", 0.864 * TB),
        ("L40", 0.864 * TB),
        ("RTX 5090", 1.792 * TB),
        ("RTX 4090", 1.008 * TB),
        ("RTX 3090", 0.936 * TB),
        ("L4", 0.3 * TB),
        ("T4", 0.32 * TB),
    ];
    // A laptop part shares its name with a desktop part that has another memory.
    if name.contains("Laptop") || name.contains("Max-Q") {
        return None;
    }
    TABLE.iter().find(|(model, _)| names_model(name, model)).map(|&(_, peak)| peak)
}

/// PCIe generation and lanes by the vendor's datasheet, or `None` for a model not in the table.
///
/// Source: NVIDIA product datasheets, which give both directions together and without encoding ("PCIe Gen5: 128 GB/s" is
/// generation 5 with 16 lanes).
pub fn pcie_link(name: &str) -> Option<(usize, u32)> {
    const TABLE: &[(&str, (usize, u32))] = &[
        ("H200", (5, 16)),
        ("H100", (5, 16)),
        ("RTX 5090", (5, 16)),
        ("A100-SXM4-80GB", (4, 16)),
        ("A100-SXM4-40GB", (4, 16)),
        ("A100 80GB PCIe", (4, 16)),
        ("A100-PCIE-40GB", (4, 16)),
        ("L40S", (4, 16)),
        ("L40", (4, 16)),
        ("L4", (4, 16)),
        ("RTX 4090", (4, 16)),
        ("RTX 3090", (4, 16)),
        ("T4", (3, 16)),
    ];
    // A laptop part may have fewer lanes.
    if name.contains("Laptop") || name.contains("Max-Q") {
        return None;
    }
    TABLE.iter().find(|(model, _)| names_model(name, model)).map(|&(_, link)| link)
}

/// What all NVLinks of a GPU carry one way together, bytes/s, by the vendor's datasheet (which states both ways), for
/// products that reach every other GPU of their machine over them. `None` for all others: bridges between pairs, no NVLink,
/// or not in the table.
pub fn nvlink_peak_bytes_per_s(name: &str) -> Option<f64> {
    const GB: f64 = 1e9;
    const TABLE: &[(&str, Option<f64>)] = &[
        ("GB300", Some(900.0 * GB)),
        ("B300", Some(900.0 * GB)),
        ("GB200", Some(900.0 * GB)),
        ("B200", Some(900.0 * GB)),
        ("H200 NVL", None),
        ("H200", Some(450.0 * GB)),
        ("H100 80GB HBM3", Some(450.0 * GB)),
        ("A100-SXM4-80GB", Some(300.0 * GB)),
        ("A100-SXM4-40GB", Some(300.0 * GB)),
    ];
    TABLE.iter().find(|(model, _)| names_model(name, model)).and_then(|&(_, peak)| peak)
}

/// Whether `name` contains `model` as whole words: "L4" is in "NVIDIA L4", not in "NVIDIA L40S".
pub fn names_model(name: &str, model: &str) -> bool {
    let edge = |c: Option<char>| c.is_none_or(|c| !c.is_ascii_alphanumeric());
    name.match_indices(model).any(|(at, _)| {
        let (before, after) = (name.get(..at), name.get(at + model.len()..));
        edge(before.and_then(|s| s.chars().next_back())) && edge(after.and_then(|s| s.chars().next()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_those_of_the_product_and_not_of_one_with_a_similar_name() {
        assert_eq!(pcie_link("NVIDIA H200"), Some((5, 16)));
        assert_eq!(pcie_link("NVIDIA H100 80GB HBM3"), Some((5, 16)));
        assert_eq!(pcie_link("NVIDIA A100-SXM4-80GB"), Some((4, 16)));
        // NVLink leads from this one to its CPU.
        assert_eq!(pcie_link("NVIDIA GH200 480GB"), None);
        assert_eq!(pcie_link("NVIDIA GeForce RTX 4090 Laptop GPU"), None);
    }

    #[test]
    fn nvlink_is_for_those_that_reach_all_others_over_it() {
        assert_eq!(nvlink_peak_bytes_per_s("NVIDIA H200"), Some(450e9));
        assert_eq!(nvlink_peak_bytes_per_s("NVIDIA H100 80GB HBM3"), Some(450e9));
        for name in ["NVIDIA H200 NVL", "NVIDIA H100 PCIe", "NVIDIA L40S", ""] {
            assert_eq!(nvlink_peak_bytes_per_s(name), None, "{name}");
        }
    }

    #[test]
    fn names_are_matched_whole() {
        assert_eq!(dram_peak_bytes_per_s("NVIDIA H200"), Some(4.8e12));
        assert_eq!(dram_peak_bytes_per_s("NVIDIA L40S"), Some(0.864e12));
        assert_eq!(dram_peak_bytes_per_s("NVIDIA L4"), Some(0.3e12));
        assert_eq!(dram_peak_bytes_per_s("NVIDIA T1000"), None);
        assert_eq!(dram_peak_bytes_per_s("NVIDIA GeForce RTX 4090 Laptop GPU"), None);
    }
}
