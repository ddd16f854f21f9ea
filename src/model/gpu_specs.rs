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
    if is_mobile(name) {
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
    if is_mobile(name) {
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

/// Peak rates of the tensor cores by the vendor's datasheet, operations/s of dense matrices added up in fp32.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TensorPeaks {
    /// Fp16.
    pub fp16: f64,
    /// Bf16; `None` where the tensor cores do not have it, likewise below.
    pub bf16: Option<f64>,
    /// TF32.
    pub tf32: Option<f64>,
    /// Fp8.
    pub fp8: Option<f64>,
}

/// Peak rates for the product name that NVML gives, or `None` for a model not in the table.
///
/// Source: NVIDIA product datasheets, whose figures with sparsity are twice these; for RTX the white papers on Ampere
/// GA102, Ada and RTX Blackwell, the rates with FP32 accumulate. The most specific name comes first.
pub fn tensor_peaks(name: &str) -> Option<TensorPeaks> {
    const TERA: f64 = 1e12;
    // Fp16 and bf16, TF32, fp8, in tera operations/s; 0: not there.
    const TABLE: &[(&str, [f64; 3])] = &[
        ("GB200", [2500.0, 1250.0, 5000.0]),
        ("B200", [2250.0, 1125.0, 4500.0]),
        ("GH200 480GB", [989.4, 494.7, 1978.9]),
        ("H200 NVL", [835.5, 417.5, 1670.5]),
        ("H200", [989.4, 494.7, 1978.9]),
        ("H100 NVL", [835.5, 417.5, 1670.5]),
        ("H100 PCIe", [756.5, 378.0, 1513.0]),
        ("H100 80GB HBM3", [989.4, 494.7, 1978.9]),
        ("A100-SXM4-80GB", [312.0, 156.0, 0.0]),
        ("A100 80GB PCIe", [312.0, 156.0, 0.0]),
        ("A100-SXM4-40GB", [312.0, 156.0, 0.0]),
        ("A100-PCIE-40GB", [312.0, 156.0, 0.0]),
        ("L40S", [362.05, 183.0, 733.0]),
        ("L40", [181.05, 90.5, 362.0]),
        ("RTX 5090", [209.5, 104.8, 419.0]),
        ("RTX 4090", [165.2, 82.6, 330.3]),
        ("RTX 3090", [71.0, 35.6, 0.0]),
        ("L4", [121.0, 60.0, 242.5]),
    ];
    if is_mobile(name) {
        return None;
    }
    if names_model(name, "T4") {
        return Some(TensorPeaks { fp16: 65.0 * TERA, bf16: None, tf32: None, fp8: None });
    }
    let (_, [half, tf32, fp8]) = TABLE.iter().find(|(model, _)| names_model(name, model))?;
    let there = |rate: f64| (rate > 0.0).then_some(rate * TERA);
    Some(TensorPeaks { fp16: half * TERA, bf16: there(*half), tf32: there(*tf32), fp8: there(*fp8) })
}

/// A laptop part shares its name with a desktop part that has another memory and fewer SMs.
fn is_mobile(name: &str) -> bool {
    name.contains("Laptop") || name.contains("Max-Q")
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

    #[test]
    fn tensor_peaks_are_those_of_the_very_model() {
        let bf16 = |name: &str| tensor_peaks(name).and_then(|peaks| peaks.bf16);
        assert_eq!(bf16("NVIDIA H200"), Some(989.4e12));
        assert_eq!(bf16("NVIDIA H200 NVL"), Some(835.5e12));
        assert_eq!(bf16("NVIDIA A100-SXM4-80GB"), Some(312e12));
        assert_eq!(bf16("Tesla T4"), None);
        assert_eq!(tensor_peaks("Tesla T4").map(|peaks| peaks.fp16), Some(65e12));
        assert_eq!(tensor_peaks("NVIDIA A100-SXM4-80GB").map(|peaks| peaks.fp8), Some(None));
        assert_eq!(tensor_peaks("NVIDIA GeForce RTX 4090 Laptop GPU"), None);
    }
}
