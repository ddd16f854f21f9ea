//! What probes are held against: figures measured elsewhere on the same product, and datasheets.
//!
//! A new row is one line with its source. Invariant: no figure without a source.

use serde::{Deserialize, Serialize};

use crate::model::gpu_specs;

use super::pci::Speed;

/// What a figure that falls short of its reference may be called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bearing {
    /// A fault: the same product reaches it anywhere.
    #[default]
    Product,
    /// Worth a look: slot and memory of the host have a part in it.
    Slot,
    /// Nothing: it is mostly the speed of the CPU that it was measured with. It is shown, and judges nobody.
    Cpu,
}

/// A figure of another measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reference {
    /// Words of the product name that NVML gives, e.g. `H200`.
    pub model: &'static str,
    /// Id of the probe.
    pub probe: &'static str,
    /// Id of the figure.
    pub figure: &'static str,
    /// The value, in the figure's unit.
    pub value: f64,
    /// What it says of a machine with another host.
    pub bearing: Bearing,
    /// Where it comes from.
    pub source: &'static str,
}

const fn row(
    model: &'static str,
    probe: &'static str,
    figure: &'static str,
    value: f64,
    source: &'static str,
) -> Reference {
    Reference { model, probe, figure, value, bearing: Bearing::Product, source }
}

/// The same for a figure that the host has a part in.
const fn of_host(bearing: Bearing, row: Reference) -> Reference {
    Reference { bearing, ..row }
}

const TORCH: &str = "PyTorch's figure on one H200, as the project's issue on stress probes states it";
const SMALL: &str = "te42kyfo/gpu-benches, gpu-small-kernels, 64 kB (2024-06): 10 000 launches, good to 2 %";

const OURS: &str = "warptop on one H200, median of two runs of 2026-11-30 (docs/evidence/probes)";

/// Every reference, the most specific model first.
pub const REFERENCES: &[Reference] = &[
    row("H200", "hbm", "triad", 4374.0, TORCH),
    row("H200", "hbm", "copy", 4287.0, TORCH),
    of_host(Bearing::Slot, row("H200", "pcie", "h2d", 53.3, TORCH)),
    of_host(Bearing::Slot, row("H200", "pcie", "d2h", 55.0, TORCH)),
    of_host(Bearing::Cpu, row("H200", "launch", "plain", 2.5, TORCH)),
    of_host(Bearing::Cpu, row("H200", "launch", "graph", 1.3, TORCH)),
    of_host(Bearing::Cpu, row("H200", "launch", "small", 2.43, SMALL)),
    of_host(Bearing::Cpu, row("H200", "launch", "small_graph", 1.26, SMALL)),
    of_host(Bearing::Cpu, row("A100", "launch", "small", 2.62, SMALL)),
    of_host(Bearing::Cpu, row("A100", "launch", "small_graph", 1.34, SMALL)),
    of_host(Bearing::Cpu, row("L40", "launch", "small", 1.64, SMALL)),
    of_host(Bearing::Cpu, row("L40", "launch", "small_graph", 0.94, SMALL)),
    row("H200", "gemm", "bf16", 765.0, TORCH),
    row("H200", "soak", "bf16", 669.0, TORCH),
    row("H200", "hbm", "read", 4633.0, OURS),
    row("H200", "hbm", "write", 4677.0, OURS),
    row("H200", "gemm", "fp16", 794.2, OURS),
    row("H200", "gemm", "tf32", 430.8, OURS),
    row("H200", "gemm", "fp8", 1489.0, OURS),
    row("H200", "p2p", "worst_pair", 394.5, OURS),
    row("H200", "p2p", "allreduce_512m_bus", 308.4, OURS),
    row("H200", "moe", "fused_e256_k8_t256", 5.51, OURS),
];

/// The reference for a figure of a product.
pub fn of(model: &str, probe: &str, figure: &str) -> Option<&'static Reference> {
    REFERENCES.iter().find(|row| row.probe == probe && row.figure == figure && gpu_specs::names_model(model, row.model))
}

/// What the datasheet promises for a figure, in the figure's unit.
pub fn datasheet(model: &str, probe: &str, figure: &str) -> Option<f64> {
    match (probe, figure) {
        ("hbm", "read" | "write" | "copy" | "triad") => gpu_specs::dram_peak_bytes_per_s(model).map(|peak| peak / 1e9),
        ("pcie", "h2d" | "d2h" | "h2d_both" | "d2h_both") => pcie_gb_per_s(model),
        ("pcie", "both") => pcie_gb_per_s(model).map(|each_way| each_way * 2.0),
        ("gemm" | "soak", format) => {
            let peaks = gpu_specs::tensor_peaks(model)?;
            let peak = match format {
                "fp16" => Some(peaks.fp16),
                "bf16" => peaks.bf16,
                "tf32" => peaks.tf32,
                "fp8" => peaks.fp8,
                _ => None,
            };
            peak.map(|peak| peak / 1e12)
        }
        _ => None,
    }
}

/// What the product's link carries each way after encoding, GB/s.
fn pcie_gb_per_s(model: &str) -> Option<f64> {
    let (generation, lanes) = gpu_specs::pcie_link(model)?;
    Some(Speed::of(generation, lanes)?.gb_per_s())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_for_whole_names() {
        assert_eq!(of("NVIDIA H200", "hbm", "triad").map(|row| row.value), Some(4374.0));
        assert_eq!(of("NVIDIA H2000", "hbm", "triad"), None);
        assert_eq!(of("", "hbm", "triad"), None);
        assert_eq!(datasheet("NVIDIA H200", "hbm", "copy"), Some(4800.0));
        assert_eq!(datasheet("NVIDIA H200", "hbm", "l2_read"), None);
        // 32 GT/s on 16 lanes, 128 of 130 bits are data.
        let each_way = 32.0 * 16.0 / 8.0 * 128.0 / 130.0;
        assert!((datasheet("NVIDIA H200", "pcie", "d2h").unwrap() - each_way).abs() < 1e-9);
        assert!((datasheet("NVIDIA H200", "pcie", "both").unwrap() - 2.0 * each_way).abs() < 1e-9);
        assert_eq!(datasheet("NVIDIA H200", "pcie", "h2d_pageable"), None);
        assert_eq!(datasheet("NVIDIA H200", "gemm", "fp8"), Some(1978.9));
        assert_eq!(datasheet("NVIDIA H200", "soak", "loss"), None);
    }

    #[test]
    fn what_a_cpu_or_a_slot_decides_is_no_fault_of_the_product() {
        for row in REFERENCES {
            let bearing = match row.probe {
                "launch" => Bearing::Cpu,
                "pcie" => Bearing::Slot,
                _ => Bearing::Product,
            };
            assert_eq!(row.bearing, bearing, "{row:?}");
        }
    }

    #[test]
    fn every_reference_has_a_source_and_a_positive_value() {
        for row in REFERENCES {
            assert!(row.value > 0.0 && row.source.len() > 20, "{row:?}");
        }
    }
}
