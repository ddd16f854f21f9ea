//! GPM: activity of SMs, tensor pipes, DRAM and links, worked out by the driver from two samples.
//!
//! Invariants: the two samples are at least 100 ms apart (the driver refreshes no faster and gives
//! wrong numbers below, nvml.h), and units are those the driver states, never assumed from a binding.

use nvml_wrapper::enums::gpm::GpmMetricId as Id;
use nvml_wrapper::gpm::gpm_metrics_get;
use nvml_wrapper::struct_wrappers::gpm::GpmMetricResult;
use nvml_wrapper::{Device, GpmSample};

use crate::model::{Clock, Metric, Unit};

use super::health::Out;

/// Least time between two samples, µs.
const MIN_GAP_US: u64 = 100_000;
/// A tick that comes this little too early waits instead of being passed over, µs.
const PATIENCE_US: u64 = 10_000;
/// Samples further apart than this say nothing about now: start again, µs.
const MAX_GAP_US: u64 = 3_000_000;

const IDS: [Id; 8] = [
    Id::SmUtil,
    Id::SmOccupancy,
    Id::AnyTensorUtil,
    Id::DramBwUtil,
    Id::PcieRxPerSec,
    Id::PcieTxPerSec,
    Id::NvlinkTotalRxPerSec,
    Id::NvlinkTotalTxPerSec,
];

/// What each of [`IDS`] is to us. PCIe and NVLink are seen from the GPU in NVML too.
pub(super) const METRICS: [Metric; 8] = [
    Metric::SmActive,
    Metric::SmOccupancy,
    Metric::TensorActive,
    Metric::DramActive,
    Metric::PcieRx,
    Metric::PcieTx,
    Metric::NvlinkRx,
    Metric::NvlinkTx,
];

/// What reading GPM gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GpmRead {
    /// What happened since the sample before.
    Values,
    /// It was not asked, or this is the first sample.
    Nothing,
    /// It was refused, now or lately, or failed.
    Failed,
}

/// The sample that the next one is compared with.
#[derive(Debug, Default)]
pub(super) struct Gpm<'n> {
    before: Option<(u64, GpmSample<'n>)>,
}

impl<'n> Gpm<'n> {
    /// How long to wait so that the next sample is far enough from the last, µs; 0: do not wait.
    pub(super) fn patience(&self, now: u64) -> u64 {
        let left = self.before.as_ref().map_or(0, |(then, _)| left(*then, now));
        if left <= PATIENCE_US { left } else { 0 }
    }

    /// Takes a sample and hands on what happened since the one before.
    pub(super) fn read(&mut self, device: &Device<'n>, clock: &dyn Clock, out: &mut Out<'_>) -> GpmRead {
        let now = clock.micros();
        if out.passes_over(&METRICS) {
            return GpmRead::Failed;
        }
        if self.before.as_ref().is_some_and(|(then, _)| left(*then, now) > 0) {
            return GpmRead::Nothing;
        }
        let sample = match device.gpm_sample() {
            Ok(sample) => sample,
            Err(error) => {
                out.put_all(&METRICS, &error);
                return GpmRead::Failed;
            }
        };
        // The clock is read before and after: whatever delays this thread only makes the true gap longer.
        let taken = clock.micros();
        let before = self.before.replace((taken, sample)).filter(|(then, _)| now - then <= MAX_GAP_US);
        let Some(((_, before), (_, sample))) = before.zip(self.before.as_ref()) else { return GpmRead::Nothing };
        match gpm_metrics_get(device.nvml(), &before, sample, &IDS) {
            Ok(results) => {
                for (metric, result) in METRICS.into_iter().zip(results) {
                    let value = result.map_err(|error| out.judge(&error)).map(|r| in_our_unit(metric, &r));
                    out.put(metric, value);
                }
                GpmRead::Values
            }
            Err(error) => {
                out.put_all(&METRICS, &error);
                GpmRead::Failed
            }
        }
    }
}

/// How long after a sample taken at `then` the next one is too early, seen from `now`, µs.
const fn left(then: u64, now: u64) -> u64 {
    (then + MIN_GAP_US).saturating_sub(now)
}

fn in_our_unit(metric: Metric, result: &GpmMetricResult) -> f64 {
    if metric.unit() == Unit::Percent { result.value } else { result.value * bytes(&result.metric_info.unit) }
}

/// Bytes in the unit of a rate as the driver writes it, e.g. "MiB/s". Where it writes none, nvml.h says MiB.
fn bytes(unit: &str) -> f64 {
    const MIB: f64 = 1_048_576.0;
    let unit = unit.trim().to_ascii_lowercase();
    let begins = |prefixes: &[&str]| prefixes.iter().any(|prefix| unit.starts_with(prefix));
    if begins(&["kib"]) {
        1024.0
    } else if begins(&["kb"]) {
        1e3
    } else if begins(&["gib"]) {
        1024.0 * MIB
    } else if begins(&["gb"]) {
        1e9
    } else if begins(&["mb"]) {
        1e6
    } else if begins(&["b/", "byte"]) {
        1.0
    } else {
        MIB
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_at_least_100_ms_apart() {
        assert_eq!([5_000, 104_999, 105_000, 300_000].map(|now| left(5_000, now)), [100_000, 1, 0, 0]);
    }

    #[test]
    fn units_are_read_from_the_driver() {
        for (unit, factor) in [
            ("MiB/s", 1_048_576.0),
            ("MiB/sec", 1_048_576.0),
            ("", 1_048_576.0),
            ("MB/s", 1e6),
            ("KiB/s", 1024.0),
            ("B/s", 1.0),
            ("bytes/sec", 1.0),
            ("GB/s", 1e9),
            ("GiB/s", 1_073_741_824.0),
        ] {
            assert!((bytes(unit) / factor - 1.0).abs() < 1e-12, "{unit}");
        }
    }
}
