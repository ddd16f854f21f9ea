//! DCGM exporter: what its body says about each GPU.
//!
//! Not an engine, but read the same way: text in, values out. Names are those of DCGM's fields, old and
//! new, as dcgm-exporter 4.5 to 4.8 and DCGM's header of July 2026 have them; the exporter prints whatever
//! its list of counters names. Of the list that it comes with, SM activity and occupancy are commented out.
//! Invariants: rows of a part of a GPU (MIG) are never taken for the whole; a value that cannot be is left out.

use super::promtext::{Exposition, Sample};
use crate::model::Metric;

/// What the body says about one GPU.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// `GPU-…`, as NVML gives it.
    pub uuid: String,
    /// PCI bus id; empty with older exporters.
    pub bus: String,
    /// Number that DCGM gives it.
    pub index: Option<u8>,
    /// Product name.
    pub name: String,
    /// Values in the metrics' units, one for each metric.
    pub values: Vec<(Metric, f64)>,
}

/// Name, metric, factor to the metric's unit, and the greatest value that can be.
type Field = (&'static str, Metric, f64, f64);

/// A share of time, 0 to 1; rounding may take it a little over.
const SHARE: f64 = 1.01;
/// No bound but that of DCGM's marks for "blank", which are beyond.
const ANY: f64 = 1e14;
const MIB: f64 = 1_048_576.0;

/// Activity and traffic: what only profiling counters give.
const ACTIVITY: &[Field] = &[
    ("DCGM_FI_PROF_SM_ACTIVE", Metric::SmActive, 100.0, SHARE),
    ("DCGM_FI_PROF_SM_UTIL_RATIO", Metric::SmActive, 100.0, SHARE),
    ("DCGM_FI_PROF_SM_OCCUPANCY", Metric::SmOccupancy, 100.0, SHARE),
    ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", Metric::TensorActive, 100.0, SHARE),
    ("DCGM_FI_PROF_TENSOR_UTIL_RATIO", Metric::TensorActive, 100.0, SHARE),
    ("DCGM_FI_PROF_DRAM_ACTIVE", Metric::DramActive, 100.0, SHARE),
    ("DCGM_FI_PROF_DRAM_UTIL_RATIO", Metric::DramActive, 100.0, SHARE),
    ("DCGM_FI_PROF_PCIE_RX_BYTES", Metric::PcieRx, 1.0, ANY),
    ("DCGM_FI_PROF_PCIE_TX_BYTES", Metric::PcieTx, 1.0, ANY),
    ("DCGM_FI_PROF_NVLINK_RX_BYTES", Metric::NvlinkRx, 1.0, ANY),
    ("DCGM_FI_PROF_NVLINK_TX_BYTES", Metric::NvlinkTx, 1.0, ANY),
];

/// What NVML gives as well. Violation times are left out: their unit differs between versions.
const REST: &[Field] = &[
    ("DCGM_FI_DEV_GPU_UTIL", Metric::UtilGpuTime, 1.0, 100.0),
    ("DCGM_FI_DEV_MEM_COPY_UTIL", Metric::UtilMemTime, 1.0, 100.0),
    ("DCGM_FI_DEV_SM_CLOCK", Metric::SmClock, 1.0, ANY),
    ("DCGM_FI_DEV_MAX_SM_CLOCK", Metric::SmClockMax, 1.0, ANY),
    ("DCGM_FI_DEV_MEM_CLOCK", Metric::MemClock, 1.0, ANY),
    ("DCGM_FI_DEV_GPU_TEMP", Metric::Temp, 1.0, 1000.0),
    ("DCGM_FI_DEV_GPU_TEMP_CELSIUS", Metric::Temp, 1.0, 1000.0),
    ("DCGM_FI_DEV_MEMORY_TEMP", Metric::MemTemp, 1.0, 1000.0),
    ("DCGM_FI_DEV_MEMORY_TEMP_CELSIUS", Metric::MemTemp, 1.0, 1000.0),
    ("DCGM_FI_DEV_POWER_USAGE", Metric::Power, 1.0, 1e6),
    ("DCGM_FI_DEV_BOARD_POWER_WATTS", Metric::Power, 1.0, 1e6),
    ("DCGM_FI_DEV_ENFORCED_POWER_LIMIT", Metric::PowerLimit, 1.0, 1e6),
    // Millijoules: a total may be far beyond the other bounds.
    ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", Metric::Energy, 1e-3, 1e18),
    ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", Metric::ThrottleReasons, 1.0, 65_535.0),
    ("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", Metric::ThrottleReasons, 1.0, 65_535.0),
];

/// Parts of the memory, MiB.
const MEMORY: [&str; 3] = ["DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_RESERVED", "DCGM_FI_DEV_FB_FREE"];

/// Whether an exporter of DCGM answers.
pub fn detect(body: Exposition<'_>) -> bool {
    body.samples().any(|sample| sample.name.starts_with("DCGM_FI_"))
}

/// Whether a metric is one that only profiling counters give.
pub fn is_activity(metric: Metric) -> bool {
    ACTIVITY.iter().any(|(_, of, ..)| *of == metric)
}

/// Every GPU of the body, in the order in which they come. A GPU that is split (MIG) has no activity of its
/// own there, only that of its parts, which are left out.
pub fn rows(body: Exposition<'_>) -> Vec<Row> {
    let mut rows: Vec<(Row, [Option<f64>; 3])> = Vec::new();
    for sample in body.samples().filter(|sample| sample.name.starts_with("DCGM_FI_")) {
        let uuid = first_label(&sample, &["UUID", "uuid", "gpu_uuid"]);
        if uuid.is_empty() || !first_label(&sample, &["GPU_I_ID"]).is_empty() {
            continue;
        }
        let place = rows.iter().position(|(row, _)| row.uuid == uuid).unwrap_or_else(|| {
            rows.push((Row { uuid, ..Row::default() }, [None; 3]));
            rows.len() - 1
        });
        let (row, memory) = &mut rows[place];
        for (text, labels) in
            [(&mut row.bus, ["pci_bus_id", "pci_bus_id"]), (&mut row.name, ["modelName", "model_name"])]
        {
            if text.is_empty() {
                *text = first_label(&sample, &labels);
            }
        }
        row.index = row.index.or_else(|| sample.label("gpu").parse().ok());
        if let Some(part) = MEMORY.iter().position(|name| *name == sample.name) {
            memory[part] = Some(sample.value).filter(|mib| (0.0..ANY).contains(mib));
        }
        add(row, &sample);
    }
    rows.into_iter().map(|(row, memory)| with_memory(row, memory)).collect()
}

fn first_label(sample: &Sample<'_>, names: &[&str]) -> String {
    names.iter().map(|name| sample.label(name).into_owned()).find(|text| !text.is_empty()).unwrap_or_default()
}

fn add(row: &mut Row, sample: &Sample<'_>) {
    let field = ACTIVITY.iter().chain(REST).find(|(name, ..)| *name == sample.name);
    let Some(&(_, metric, factor, most)) = field else { return };
    // An old and a new name for one thing are one value.
    if (0.0..=most).contains(&sample.value) && row.values.iter().all(|(known, _)| *known != metric) {
        let value = if most == SHARE { sample.value.min(1.0) } else { sample.value };
        row.values.push((metric, value * factor));
    }
}

fn with_memory(mut row: Row, [used, reserved, free]: [Option<f64>; 3]) -> Row {
    if let Some(used) = used {
        // What the driver reserves for itself is in use as well.
        let taken = used + reserved.unwrap_or(0.0);
        row.values.push((Metric::GpuMemUsed, taken * MIB));
        if let Some(free) = free {
            row.values.push((Metric::GpuMemTotal, (taken + free) * MIB));
        }
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Put together from the names and labels that the exporter's source and its list of counters have; no
    /// exporter was run.
    const ASSEMBLED: &str = r#"# HELP DCGM_FI_DEV_SM_CLOCK SM clock frequency (in MHz).
# TYPE DCGM_FI_DEV_SM_CLOCK gauge
DCGM_FI_DEV_SM_CLOCK{gpu="0",UUID="GPU-aaaa",pci_bus_id="00000000:17:00.0",device="nvidia0",modelName="NVIDIA A100-SXM4-80GB",Hostname="n1"} 1410
DCGM_FI_DEV_SM_CLOCK{gpu="1",UUID="GPU-bbbb",pci_bus_id="00000000:65:00.0",device="nvidia1",modelName="NVIDIA A100-SXM4-80GB",Hostname="n1"} 210
DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-aaaa"} 61
DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-aaaa"} 312.5
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu="0",UUID="GPU-aaaa"} 123456789
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-aaaa"} 1000
DCGM_FI_DEV_FB_RESERVED{gpu="0",UUID="GPU-aaaa"} 24
DCGM_FI_DEV_FB_FREE{gpu="0",UUID="GPU-aaaa"} 79896
DCGM_FI_DEV_XID_ERRORS{gpu="0",UUID="GPU-aaaa"} 0
DCGM_FI_PROF_SM_ACTIVE{gpu="0",UUID="GPU-aaaa"} 0.8125
DCGM_FI_PROF_DRAM_ACTIVE{gpu="0",UUID="GPU-aaaa"} 0.25
DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{gpu="0",UUID="GPU-aaaa"} 1.004
DCGM_FI_PROF_PCIE_RX_BYTES{gpu="0",UUID="GPU-aaaa"} 1500000
DCGM_FI_PROF_SM_ACTIVE{gpu="1",UUID="GPU-bbbb",GPU_I_PROFILE="1g.10gb",GPU_I_ID="7"} 0.5
"#;

    fn value(row: &Row, metric: Metric) -> Option<f64> {
        row.values.iter().find(|(of, _)| *of == metric).map(|(_, value)| *value)
    }

    #[test]
    fn a_body_assembled_from_the_documented_names() {
        let rows = rows(Exposition::new(ASSEMBLED));
        assert!(detect(Exposition::new(ASSEMBLED)));
        let who: Vec<_> = rows.iter().map(|r| (r.uuid.as_str(), r.bus.as_str(), r.index, r.name.as_str())).collect();
        assert_eq!(
            who,
            [
                ("GPU-aaaa", "00000000:17:00.0", Some(0), "NVIDIA A100-SXM4-80GB"),
                ("GPU-bbbb", "00000000:65:00.0", Some(1), "NVIDIA A100-SXM4-80GB"),
            ]
        );
        for (metric, expected) in [
            (Metric::SmActive, 81.25),
            (Metric::DramActive, 25.0),
            (Metric::TensorActive, 100.0),
            (Metric::PcieRx, 1.5e6),
            (Metric::SmClock, 1410.0),
            (Metric::Temp, 61.0),
            (Metric::Power, 312.5),
            (Metric::Energy, 123_456.789),
            (Metric::GpuMemUsed, 1024.0 * MIB),
            (Metric::GpuMemTotal, 80_920.0 * MIB),
        ] {
            assert!(value(&rows[0], metric).is_some_and(|v| (v - expected).abs() < 1e-6), "{metric:?}: {rows:?}");
        }
        assert_eq!(value(&rows[0], Metric::SmOccupancy), None, "commented out in the list");
        assert_eq!(value(&rows[1], Metric::SmActive), None, "half of a GPU is not the GPU");
    }

    #[test]
    fn new_names_mean_the_same_and_are_not_taken_twice() {
        let body = "DCGM_FI_PROF_SM_ACTIVE{UUID=\"a\"} 0.5\nDCGM_FI_PROF_SM_UTIL_RATIO{UUID=\"a\"} 0.5\n\
            DCGM_FI_PROF_DRAM_UTIL_RATIO{uuid=\"a\"} 0.25\nDCGM_FI_DEV_BOARD_POWER_WATTS{UUID=\"a\"} 70\n";
        let rows = rows(Exposition::new(body));
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].values, [(Metric::SmActive, 50.0), (Metric::DramActive, 25.0), (Metric::Power, 70.0)]);
    }

    #[test]
    fn what_cannot_be_is_left_out() {
        let body = "DCGM_FI_PROF_SM_ACTIVE{UUID=\"a\"} 140737488355328\nDCGM_FI_PROF_DRAM_ACTIVE{UUID=\"a\"} NaN\n\
            DCGM_FI_DEV_GPU_TEMP{UUID=\"a\"} -1\nDCGM_FI_DEV_SM_CLOCK 1410\nDCGM_FI_DEV_FB_USED{UUID=\"a\"} 1e18\n";
        assert_eq!(rows(Exposition::new(body)), [Row { uuid: "a".into(), ..Row::default() }]);
        assert!(!detect(Exposition::new("vllm:num_requests_running 1\n")));
        assert!(is_activity(Metric::SmActive) && !is_activity(Metric::Power));
    }
}
