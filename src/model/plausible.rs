//! What a GPU's values can be: beyond these bounds a driver or an exporter gave garbage, and there is no number.
//!
//! Drivers do that: all bits set for "not known", shares beyond 100 %, counters that jump (nvtop, issue 110). The one table
//! for NVML, GPM and DCGM exporters, applied where a [`super::Sample`] is made, so that what it refuses reaches no figure,
//! axis, verdict or recording. Bounds are wide: ten times what any product has where its maker states a limit, so that a
//! new product is not refused, and still far from garbage. Invariant: a value inside is handed on as it is, but for a share
//! that rounding took a little over 100 %.

use super::{Metric, Reading, Unit, Why};

/// Rounding of counters takes a share this far over its end, per cent (seen with GPM and DCGM).
const ROUNDED_PCT: f64 = 101.0;
/// Ten times the memory of the largest product (B300, 288 GB, NVIDIA's datasheet) is below this, bytes.
const MOST_MEMORY: f64 = 4_398_046_511_104.0;
/// Seven times the limit of the hungriest board (GB300, 1,400 W, NVIDIA's datasheet), W.
const MOST_POWER_W: f64 = 10_000.0;
/// Hotter than any chip stays whole: shutdown is at 90 to 105 °C (NVML's thresholds); 255 is a byte with all bits set.
const MOST_CELSIUS: f64 = 150.0;
/// A hundred years in ms: longer than any driver counts.
const CENTURY_MS: f64 = 3.2e12;

/// Smallest and greatest value that can be; `None` where nothing is known: engines and host.
const fn bounds(metric: Metric) -> Option<(f64, f64)> {
    use Metric as M;
    Some(match metric {
        M::SmActive | M::SmOccupancy | M::TensorActive | M::DramActive | M::UtilGpuTime | M::UtilMemTime => {
            (0.0, ROUNDED_PCT)
        }
        M::GpuMemUsed => (0.0, MOST_MEMORY),
        // A GPU of which the driver knows nothing has 0 of this.
        M::GpuMemTotal => (1.0, MOST_MEMORY),
        // Boost clocks end at 3.1 GHz; those of GDDR7 are stated as 14 GHz.
        M::SmClock | M::MemClock => (0.0, 100_000.0),
        M::SmClockMax | M::MemClockMax => (1.0, 100_000.0),
        M::Temp | M::MemTemp => (0.0, MOST_CELSIUS),
        M::TempSlowdown | M::TempShutdown | M::MemTempMax => (1.0, MOST_CELSIUS),
        M::Power => (0.0, MOST_POWER_W),
        M::PowerLimit => (1.0, MOST_POWER_W),
        // A century at that power.
        M::Energy => (0.0, MOST_POWER_W * CENTURY_MS / 1e3),
        // nvml.h has nine bits, DCGM sixteen; up to here the store keeps a set of bits exactly.
        M::ThrottleReasons => (0.0, 16_777_215.0),
        M::ThrottledPowerCap
        | M::ThrottledSwThermal
        | M::ThrottledHwThermal
        | M::ThrottledPowerBrake
        | M::ThrottledSyncBoost => (0.0, CENTURY_MS),
        // PCIe 7 with 16 lanes: 256 GB/s in each direction (PCI-SIG).
        M::PcieRx | M::PcieTx => (0.0, 3e12),
        // NVLink 6: 1.8 TB/s in each direction (NVIDIA).
        M::NvlinkRx | M::NvlinkTx => (0.0, 2e13),
        // Rubin: 22 TB/s (NVIDIA).
        M::DramPeak | M::DramCeiling => (1.0, 3e14),
        // Seven generations, at most 32 lanes (PCI-SIG); 0 where there is no such link.
        M::PcieGen | M::PcieGenMax => (0.0, 15.0),
        M::PcieWidth | M::PcieWidthMax => (0.0, 64.0),
        M::EccCorrected | M::EccUncorrected | M::XidErrors => (0.0, 1e12),
        M::RemappedRows => (0.0, 1e6),
        M::RemapPending => (0.0, 1.0),
        // Linux numbers no more processes than this (PID_MAX_LIMIT, include/linux/threads.h).
        M::GpuProcesses => (0.0, 4_194_304.0),
        M::ComputeMode => (0.0, 3.0),
        // NVML_NVLINK_MAX_LINKS is 18.
        M::NvlinkLinks | M::NvlinkLinksUp => (0.0, 256.0),
        M::P2pPeersBlocked => (0.0, 1024.0),
        _ => return None,
    })
}

/// The greatest rate per second of a counter; `None` where nothing is known.
const fn most_rate(metric: Metric) -> Option<f64> {
    use Metric as M;
    match metric {
        M::Energy => Some(MOST_POWER_W),
        // Time does not run faster than time; a driver that counts once a second, read every 100 ms, seems to.
        M::ThrottledPowerCap
        | M::ThrottledSwThermal
        | M::ThrottledHwThermal
        | M::ThrottledPowerBrake
        | M::ThrottledSyncBoost => Some(10_000.0),
        _ => None,
    }
}

/// The reading, or [`Why::Failed`] where no GPU can have such a value.
pub fn judge(metric: Metric, reading: Reading) -> Reading {
    let (Some(value), Some((least, most))) = (reading.value(), bounds(metric)) else { return reading };
    if metric == Metric::MemTemp && value == 0.0 {
        // What boards without a sensor in their memory read (dcgm-exporter, issue 460).
        return Reading::Missing(Why::Unsupported);
    }
    if value < least || value > most {
        return Reading::Missing(Why::Failed);
    }
    if metric.unit() == Unit::Percent { Reading::Value(value.min(100.0)) } else { reading }
}

/// The rate of a counter per second, or [`Why::Failed`] where no GPU can have that rate.
pub fn judge_rate(metric: Metric, rate: Reading) -> Reading {
    match (rate.value(), most_rate(metric)) {
        (Some(value), Some(most)) if value > most => Reading::Missing(Why::Failed),
        _ => rate,
    }
}

#[cfg(test)]
mod tests {
    use super::super::metric::Domain;
    use super::*;

    const FAILED: Reading = Reading::Missing(Why::Failed);

    #[test]
    fn every_value_of_a_gpu_has_bounds_and_garbage_is_outside() {
        for &metric in Metric::ALL.iter().filter(|metric| metric.domain() == Domain::Gpu) {
            assert!(bounds(metric).is_some(), "{metric:?}");
            // All bits of 32 and of 64, also in thousandths, the highest alone, and what is no number.
            let all = [u64::MAX as f64, u64::MAX as f64 * 1e-3, 2_f64.powi(63), -1.0, f64::MAX];
            for value in all.into_iter().chain([f64::NAN, f64::INFINITY, f64::NEG_INFINITY]) {
                assert_eq!(judge(metric, Reading::new(value)), FAILED, "{metric:?} {value}");
            }
        }
        let narrow =
            [Metric::SmActive, Metric::Temp, Metric::Power, Metric::SmClock, Metric::PcieGen, Metric::PcieWidth];
        for metric in narrow {
            assert_eq!(judge(metric, f64::from(u32::MAX).into()), FAILED, "{metric:?}");
        }
    }

    #[test]
    fn what_a_gpu_can_have_is_handed_on() {
        for (metric, value) in [
            (Metric::GpuMemTotal, 288e9),
            (Metric::SmClock, 0.0),
            (Metric::Power, 1_400.0),
            (Metric::Temp, 105.0),
            (Metric::ThrottleReasons, f64::from(0x1_01ff)),
            (Metric::NvlinkRx, 1.8e12),
            (Metric::KvUsage, 4e9),
        ] {
            assert_eq!(judge(metric, value.into()), value.into(), "{metric:?}");
        }
        assert_eq!(judge(Metric::SmActive, 100.4.into()), 100.0.into());
        assert_eq!(judge(Metric::SmActive, 101.1.into()), FAILED);
        assert_eq!(judge(Metric::MemTemp, 0.0.into()), Reading::Missing(Why::Unsupported), "no sensor");
        assert_eq!(judge(Metric::Temp, 0.0.into()), 0.0.into(), "cold");
        let denied = Reading::Missing(Why::NotPermitted);
        assert_eq!(judge(Metric::Power, denied), denied);
    }

    #[test]
    fn a_counter_that_jumps_has_no_rate() {
        assert_eq!(judge_rate(Metric::Energy, 700.0.into()), 700.0.into());
        assert_eq!(judge_rate(Metric::Energy, 1e6.into()), FAILED);
        assert_eq!(judge_rate(Metric::ThrottledPowerCap, 1e5.into()), FAILED);
        assert_eq!(judge_rate(Metric::GenerationTokens, 1e9.into()), 1e9.into());
    }
}
