//! Which wall the GPU runs against: memory, compute, launches and host, power, heat, or none.
//!
//! Judged from means over a window ([`WINDOW_MS`]), because serving alternates between prefill, which
//! is bound by compute, and decode, which is bound by memory, many times a second. It needs the share of
//! busy SMs and of the DRAM bandwidth; time-based utilisation measures neither (one client on an H200:
//! 98 % of the time, SM 66 %, DRAM 63 %) and only tells a GPU that waits from one that is idle. It must
//! not know how a verdict is drawn. Invariant: without activity there is no verdict.
//!
//! Thresholds, in percent, with the H200 figures they rest on (vLLM, Llama 8B, one client to overload):
//! [`DRAM_BOUND`], [`SM_FULL`], [`TENSOR_BUSY`], [`SM_FILLED`], [`IDLE`], [`KERNELS_RAN`], [`HELD_MS`], [`HELD_CLOCK`].

use std::fmt::{self, Display, Formatter};

use crate::model::{Metric, Reading, Subject, Why};
use crate::store::{Data, Window};

use super::ceiling::Ceiling;
use super::throttle::{Reason, Throttled};

/// Length of the window that a verdict needs to be steady, ms.
pub const WINDOW_MS: u64 = 10_000;

/// From this mean DRAM activity on, memory is the wall. Streaming kernels reach 92 % of the datasheet's
/// peak and no more; decode at 1 to 16 clients, where each step reads all weights, has 54 to 62 %;
/// from 64 clients on, where compute takes over, it has 44 % or less.
pub const DRAM_BOUND: f64 = 50.0;
/// From this mean SM activity on, with DRAM below its bound, compute is the wall: 81 to 95 % from 64
/// clients on and in prefill. An SM also counts as active while its warps wait for memory, so a high
/// value by itself says nothing.
pub const SM_FULL: f64 = 80.0;
/// From this mean tensor activity on, a GPU whose memory is busy too has two walls: "balanced".
pub const TENSOR_BUSY: f64 = 40.0;
/// Below this SM activity, with DRAM below its bound, the GPU is not filled: small kernels one by one
/// have 38 %, one client's decode has 65 %.
pub const SM_FILLED: f64 = 50.0;
/// Below this SM and DRAM activity nothing of note runs.
pub const IDLE: f64 = 5.0;
/// From this time-based utilisation on, kernels or copies did run, however little they filled (a copy
/// to the host: 100 % of the time, SM 0 %).
pub const KERNELS_RAN: f64 = 10.0;
/// From this throttled time on (ms per second), a cap holds most of the time …
pub const HELD_MS: f64 = 500.0;
/// … and it is the wall when the SM clock is at or below this share of its maximum: an eighth of the
/// compute ceiling is gone. 64 clients have 90 % and are bound by compute; 256 and long prompts 80 to 84 %.
pub const HELD_CLOCK: f64 = 0.875;

/// What limits the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wall {
    /// Nothing runs.
    Idle,
    /// Work is there, but the GPU waits for it: launches, host code, copies.
    Launch,
    /// DRAM bandwidth.
    Memory,
    /// SMs and tensor pipes.
    Compute,
    /// Compute, with clocks held down by a power cap or brake.
    Power,
    /// Compute, with clocks held down by heat.
    Heat,
    /// Busy, but no single wall.
    Balanced,
    /// SM or DRAM activity is missing.
    Unknown(Why),
}

impl Wall {
    /// The wall in a word or two.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Launch => "launch/host-bound",
            Self::Memory => "memory-bound",
            Self::Compute => "compute-bound",
            Self::Power => "power-limited",
            Self::Heat => "heat-limited",
            Self::Balanced => "balanced",
            Self::Unknown(_) => "wall unknown",
        }
    }
}

/// What the verdict rests on: means over a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evidence {
    /// SM activity, percent.
    pub sm_active: Reading,
    /// DRAM activity, percent of peak bandwidth.
    pub dram_active: Reading,
    /// The same in percent of what a probe measured on this GPU, where that is known and still holds.
    pub dram_of_ceiling: Reading,
    /// Tensor pipe activity, percent.
    pub tensor_active: Reading,
    /// Time-based utilisation, percent.
    pub util_time: Reading,
    /// SM clock, MHz.
    pub sm_clock: Reading,
    /// Its maximum, MHz.
    pub sm_clock_max: Reading,
    /// The reason that held the clocks longest, with its share of the window (0 to 1).
    pub throttled: Option<(&'static Reason, f64)>,
    /// Running requests of the engine on this GPU, where known.
    pub running: Reading,
}

impl Evidence {
    /// Reads it for a GPU and the engine that uses it, if any.
    pub fn over(data: &Data, gpu: u8, engine: Option<u8>, window: Window) -> Self {
        let mean = |metric| data.mean(Subject::Gpu(gpu), metric, window);
        let running = |engine| data.mean(Subject::Engine(engine), Metric::RequestsRunning, window);
        let dram_active = mean(Metric::DramActive);
        Self {
            sm_active: mean(Metric::SmActive),
            dram_active,
            dram_of_ceiling: Ceiling::of(data, gpu, window.end)
                .filter(|ceiling| ceiling.doubts().is_empty())
                .map_or(Reading::Missing(Why::NotYet), |ceiling| ceiling.share(dram_active)),
            tensor_active: mean(Metric::TensorActive),
            util_time: mean(Metric::UtilGpuTime),
            sm_clock: mean(Metric::SmClock),
            sm_clock_max: mean(Metric::SmClockMax),
            throttled: Throttled::over(data, gpu, window).dominant(),
            running: engine.map_or(Reading::Missing(Why::NotYet), running),
        }
    }

    /// The wall that these figures show.
    pub fn wall(&self) -> Wall {
        let (sm, dram) = match (self.sm_active, self.dram_active) {
            (Reading::Value(sm), Reading::Value(dram)) => (sm, dram),
            (Reading::Missing(why), _) | (_, Reading::Missing(why)) => return Wall::Unknown(why),
        };
        let tensor = self.tensor_active.value().unwrap_or(0.0);
        if sm < IDLE && dram < IDLE && !self.has_work() {
            return Wall::Idle;
        }
        if dram >= DRAM_BOUND {
            let both = sm >= SM_FULL && tensor >= TENSOR_BUSY;
            return if both { Wall::Balanced } else { Wall::Memory };
        }
        if sm < SM_FILLED {
            return Wall::Launch;
        }
        match self.held_by() {
            Some(wall) => wall,
            None if sm >= SM_FULL => Wall::Compute,
            None => Wall::Balanced,
        }
    }

    /// Whether kernels ran or requests were there.
    fn has_work(&self) -> bool {
        self.util_time.value().is_some_and(|t| t >= KERNELS_RAN) || self.running.value().is_some_and(|n| n >= 0.5)
    }

    /// SM clock as a share of its maximum.
    fn clock_share(&self) -> Option<f64> {
        let max = self.sm_clock_max.value().filter(|max| *max > 0.0)?;
        Some(self.sm_clock.value()? / max)
    }

    /// What holds the clocks down for most of the time and by a good part.
    fn held_by(&self) -> Option<Wall> {
        let (reason, share) = self.throttled?;
        if share * 1000.0 < HELD_MS || self.clock_share()? > HELD_CLOCK {
            return None;
        }
        match reason.counter? {
            Metric::ThrottledPowerCap | Metric::ThrottledPowerBrake => Some(Wall::Power),
            Metric::ThrottledSwThermal | Metric::ThrottledHwThermal => Some(Wall::Heat),
            _ => None,
        }
    }
}

/// The wall with the figures it was judged from, or what is missing and what would help.
impl Display for Evidence {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let percent = |reading: Reading| reading.value().unwrap_or(0.0);
        let (sm, dram) = (percent(self.sm_active), OfPeak(percent(self.dram_active), self.dram_of_ceiling));
        let wall = self.wall();
        match wall {
            Wall::Unknown(Why::Unsupported) => return f.write_str(NO_ACTIVITY),
            Wall::Unknown(why) => return write!(f, "{}: SM or DRAM activity {}", wall.word(), phrase(why)),
            Wall::Idle => return write!(f, "{}: SM {sm:.0} %, DRAM {:.0} %", wall.word(), dram.0),
            Wall::Launch => write!(f, "{}: SM {sm:.0} %, {dram}", wall.word())?,
            Wall::Memory => write!(f, "{}: {dram}, SM {sm:.0} %", wall.word())?,
            Wall::Power | Wall::Heat => {
                let (reason, share) = self.throttled.map_or(("", 0.0), |(reason, share)| (reason.word, share * 100.0));
                let clock = self.clock_share().unwrap_or(0.0) * 100.0;
                let word = wall.word();
                return write!(
                    f,
                    "{word}: {reason} {share:.0} %, SM clock {clock:.0} % of maximum, SM {sm:.0} %, DRAM {:.0} %",
                    dram.0
                );
            }
            Wall::Compute | Wall::Balanced => {
                write!(f, "{}: SM {sm:.0} %, {dram}", wall.word())?;
            }
        }
        match (wall, self.util_time) {
            (Wall::Launch, Reading::Value(time)) => write!(f, ", though something ran {time:.0} % of the time"),
            _ => match self.tensor_active {
                Reading::Value(tensor) => write!(f, ", tensor {tensor:.0} %"),
                Reading::Missing(_) => Ok(()),
            },
        }
    }
}

/// "DRAM 55 % of peak", and where it is known "(60 % of measured)": the verdict rests on the first, which is
/// there with and without a probe.
struct OfPeak(f64, Reading);

impl Display for OfPeak {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "DRAM {:.0} % of peak", self.0)?;
        self.1.value().map_or(Ok(()), |share| write!(f, " ({share:.0} % of measured)"))
    }
}

/// A reason as the end of a sentence.
const fn phrase(why: Why) -> &'static str {
    match why {
        Why::Unsupported => "is not offered",
        Why::NotPermitted => "may not be read by this user",
        Why::Stale => "is stale",
        Why::Failed => "could not be read",
        Why::NotYet => "has not been read yet",
    }
}

/// What to say where activity is not offered.
pub const NO_ACTIVITY: &str =
    "wall unknown: SM activity needs GPM (Hopper+) or a DCGM exporter; time-based utilisation cannot tell";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::derive::throttle::REASONS;

    fn reason(name: &str) -> &'static Reason {
        REASONS.iter().find(|r| r.name == name).unwrap()
    }

    /// SM, DRAM, tensor, time-based utilisation, SM clock, throttled ms/s by the power cap.
    fn means([sm, dram, tensor, time, clock, held]: [f64; 6]) -> Evidence {
        Evidence {
            sm_active: sm.into(),
            dram_active: dram.into(),
            dram_of_ceiling: Reading::Missing(Why::NotYet),
            tensor_active: tensor.into(),
            util_time: time.into(),
            sm_clock: clock.into(),
            sm_clock_max: 1980.0.into(),
            throttled: (held > 0.0).then_some((reason("sw_power_cap"), held / 1000.0)),
            running: Reading::Missing(Why::NotYet),
        }
    }

    /// Means of every phase of the H200 vLLM capture, and of the windows that the acceptance names.
    #[test]
    fn the_phases_of_a_real_server() {
        let phases = [
            ("idle", [0.0, 0.0, 0.0, 0.0, 1980.0, 0.0], Wall::Idle),
            ("1 client", [64.5, 61.6, 3.6, 96.1, 1980.0, 0.0], Wall::Memory),
            ("4 clients", [69.2, 60.7, 7.5, 98.7, 1955.7, 597.1], Wall::Memory),
            ("16 clients", [74.2, 53.9, 21.2, 96.6, 1900.9, 603.9], Wall::Memory),
            ("64 clients", [84.2, 44.1, 48.6, 97.8, 1781.3, 729.6], Wall::Compute),
            ("256 clients", [83.3, 31.4, 61.9, 87.6, 1661.8, 923.6], Wall::Power),
            ("32 × 4k prompts", [91.4, 34.4, 67.0, 99.0, 1630.1, 871.5], Wall::Power),
            ("16 × 16k prompts", [94.9, 24.0, 75.9, 100.0, 1597.8, 976.0], Wall::Power),
            ("overload", [90.5, 38.1, 65.1, 98.6, 1652.1, 983.0], Wall::Power),
            ("idle again", [3.0, 2.7, 1.0, 5.0, 1978.0, 46.4], Wall::Idle),
        ];
        for (phase, figures, wall) in phases {
            assert_eq!(means(figures).wall(), wall, "{phase}");
        }
    }

    /// Means of the single kernels of the H200 device capture (throttled time was not counted there).
    #[test]
    fn single_kernels() {
        let kernels = [
            ("copy on the device", [64.6, 56.7, 0.0, 64.0, 1831.4, 0.0], Wall::Memory),
            ("triad", [87.4, 79.3, 0.0, 83.0, 1980.0, 0.0], Wall::Memory),
            ("copy to the device", [1.7, 2.6, 0.0, 56.9, 1980.0, 0.0], Wall::Launch),
            ("copy to the host", [0.0, 1.1, 0.0, 100.0, 1980.0, 0.0], Wall::Launch),
            ("matrix product", [96.0, 17.4, 93.2, 99.5, 1462.9, 0.0], Wall::Compute),
            ("small launches", [37.8, 10.7, 36.7, 66.0, 1750.0, 0.0], Wall::Launch),
            ("bursts", [16.7, 4.4, 16.2, 22.3, 1963.5, 0.0], Wall::Launch),
            ("one SM", [0.6, 0.2, 0.6, 28.5, 1979.2, 0.0], Wall::Launch),
        ];
        for (kernel, figures, wall) in kernels {
            assert_eq!(means(figures).wall(), wall, "{kernel}");
        }
    }

    #[test]
    fn requests_on_an_idle_gpu_mean_it_waits_for_the_host() {
        let mut evidence = means([0.0, 0.0, 0.0, 0.0, 1980.0, 0.0]);
        evidence.running = 8.0.into();
        assert_eq!(evidence.wall(), Wall::Launch);
    }

    #[test]
    fn heat_is_not_called_power_and_a_full_clock_not_held() {
        let mut evidence = means([95.0, 24.0, 76.0, 100.0, 1600.0, 900.0]);
        evidence.throttled = Some((reason("hw_thermal_slowdown"), 0.9));
        assert_eq!(evidence.wall(), Wall::Heat);
        evidence.sm_clock = 1950.0.into();
        assert_eq!(evidence.wall(), Wall::Compute);
    }

    #[test]
    fn without_activity_there_is_no_verdict() {
        let mut evidence = means([0.0, 0.0, 0.0, 98.0, 1980.0, 0.0]);
        evidence.sm_active = Reading::Missing(Why::Unsupported);
        assert_eq!(evidence.wall(), Wall::Unknown(Why::Unsupported));
        assert_eq!(evidence.to_string(), NO_ACTIVITY);
        evidence.sm_active = 40.0.into();
        evidence.dram_active = Reading::Missing(Why::Stale);
        assert_eq!(evidence.to_string(), "wall unknown: SM or DRAM activity is stale");
    }

    #[test]
    fn a_verdict_names_its_figures() {
        let text = |figures| means(figures).to_string();
        assert_eq!(
            text([81.0, 46.1, 41.0, 97.3, 1781.0, 730.0]),
            "compute-bound: SM 81 %, DRAM 46 % of peak, tensor 41 %"
        );
        assert_eq!(
            text([90.5, 38.1, 65.1, 98.6, 1652.1, 983.0]),
            "power-limited: power cap 98 %, SM clock 83 % of maximum, SM 90 %, DRAM 38 %"
        );
        assert_eq!(
            text([0.0, 1.1, 0.0, 100.0, 1980.0, 0.0]),
            "launch/host-bound: SM 0 %, DRAM 1 % of peak, though something ran 100 % of the time"
        );
        let mut measured = means([64.5, 61.6, 3.6, 96.1, 1980.0, 0.0]);
        measured.dram_of_ceiling = 67.2.into();
        assert_eq!(measured.to_string(), "memory-bound: DRAM 62 % of peak (67 % of measured), SM 64 %, tensor 4 %");
    }
}
