//! Throttled time: how much of a window each clocks event reason held a GPU back.
//!
//! Exact where the driver counts (a counter a reason, nanoseconds in NVML, ms/s here). The bits alone, all that DCGM
//! exporters and older drivers have, say what holds at the moment of a reading: a share of readings, and said to be one
//! ([`ThrottledBy`]). It must not know how a reason is drawn. Invariant: a reason that is not counted is missing, never 0 ms.

use super::busy::BusyTime;
use crate::model::{Metric, Reading, Subject, Why};
use crate::store::{Bin, Data, Window};

/// A clocks event reason of NVML.
#[derive(Debug, PartialEq, Eq)]
pub struct Reason {
    /// Its bit in [`Metric::ThrottleReasons`] (nvml.h, `nvmlClocksEventReason*`).
    pub bit: u64,
    /// Its name in the snapshot, NVML's own.
    pub name: &'static str,
    /// A word or two for the screen, at most 11 characters.
    pub word: &'static str,
    /// The counter of the time it held, where NVML has one.
    pub counter: Option<Metric>,
}

const fn reason(bit: u64, name: &'static str, word: &'static str, counter: Option<Metric>) -> Reason {
    Reason { bit, name, word, counter }
}

/// The bit of the software power cap.
pub const SW_POWER_CAP: u64 = 0x4;
/// The bit of the slowdown by software for heat.
pub const SW_THERMAL: u64 = 0x20;
/// The bit of the slowdown by hardware for heat.
pub const HW_THERMAL: u64 = 0x40;
/// The bit of the external power brake.
pub const HW_POWER_BRAKE: u64 = 0x80;

/// Every reason that is known, the most serious first.
pub const REASONS: [Reason; 9] = [
    reason(HW_THERMAL, "hw_thermal_slowdown", "HW thermal", Some(Metric::ThrottledHwThermal)),
    reason(HW_POWER_BRAKE, "hw_power_brake_slowdown", "power brake", Some(Metric::ThrottledPowerBrake)),
    reason(0x8, "hw_slowdown", "HW slowdown", None),
    reason(SW_THERMAL, "sw_thermal_slowdown", "SW thermal", Some(Metric::ThrottledSwThermal)),
    reason(SW_POWER_CAP, "sw_power_cap", "power cap", Some(Metric::ThrottledPowerCap)),
    reason(0x10, "sync_boost", "sync boost", Some(Metric::ThrottledSyncBoost)),
    reason(0x2, "applications_clocks_setting", "app clocks", None),
    reason(0x100, "display_clock_setting", "display clk", None),
    reason(0x1, "gpu_idle", "idle", None),
];

/// The reasons whose bits are set, the most serious first. A missing reading has none.
pub fn reasons(bits: Reading) -> impl Iterator<Item = &'static Reason> {
    // Nine bits: exact in the f64 that carries them.
    let bits = bits.value().unwrap_or(0.0) as u64;
    REASONS.iter().filter(move |reason| bits & reason.bit != 0)
}

/// The most serious reason of those set that slows a GPU down against its will; idle and clocks set by a user are none.
pub fn slowing(bits: Reading) -> Option<&'static Reason> {
    const SLOWS: u64 = HW_THERMAL | HW_POWER_BRAKE | 0x8 | SW_THERMAL | SW_POWER_CAP;
    reasons(bits).find(|reason| reason.bit & SLOWS != 0)
}

/// Throttled time of one GPU over a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Throttled {
    per_reason: [Reading; REASONS.len()],
    /// How much of the window was measured, ms.
    pub measured_ms: u64,
}

impl Throttled {
    /// Adds up the counters of GPU `gpu` over `window`.
    pub fn over(data: &Data, gpu: u8, window: Window) -> Self {
        let rate = |reason: &Reason| match reason.counter {
            // Counter and clock are not read in the same instant: a full second may come out as 1003 ms.
            Some(counter) => data.mean(Subject::Gpu(gpu), counter, window).map(|ms| ms.clamp(0.0, 1000.0)),
            None => Reading::Missing(Why::Unsupported),
        };
        let counters = REASONS.iter().filter_map(|reason| reason.counter);
        let measured = counters.map(|counter| data.measured_ms(Subject::Gpu(gpu), counter, window)).max();
        Self { per_reason: REASONS.each_ref().map(rate), measured_ms: measured.unwrap_or(0) }
    }

    /// Each counted reason with its time in ms per second (0 to 1000), the most serious first.
    pub fn reasons(&self) -> impl Iterator<Item = (&'static Reason, Reading)> {
        REASONS.iter().zip(self.per_reason).filter(|(reason, _)| reason.counter.is_some())
    }

    /// The reason that held longest, with its share of the window (0 to 1); `None` when none held.
    pub fn dominant(&self) -> Option<(&'static Reason, f64)> {
        longest(self.reasons().map(|(reason, rate)| (reason, rate.value().unwrap_or(0.0) / 1000.0)))
    }

    /// Time throttled for any reason in ms per second, at least. Reasons overlap and NVML does not count
    /// their union, which is no less than the longest of them. Missing when no counter was read, for the
    /// reason of the first.
    pub fn at_least(&self) -> Reading {
        let measured = self.reasons().filter_map(|(_, rate)| rate.value()).reduce(f64::max);
        let why = || self.reasons().find_map(|(_, rate)| rate.why()).unwrap_or(Why::NotYet);
        measured.map_or_else(|| Reading::Missing(why()), Reading::Value)
    }
}

/// What a share of throttled time rests on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThrottledBy {
    /// The driver's counters of time.
    #[default]
    Counters,
    /// The share of readings in which the reason's bit was set.
    Bits,
}

impl ThrottledBy {
    /// Name in the snapshot.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counters => "counters",
            Self::Bits => "bits",
        }
    }
}

/// The share of the busy time, 0 to 1, in which each reason held, by its bit, and what that rests on: counters where there
/// are any, else bits. `None` where neither is read, or where nothing ran.
pub fn held(data: &Data, throttled: &Throttled, time: &mut BusyTime) -> Option<(Vec<(u64, f64)>, ThrottledBy)> {
    let busy = time.share().filter(|&busy| busy > 0.0)?;
    if throttled.at_least().value().is_some() {
        let share = |ms: Reading| ms.value().map_or(0.0, |ms| (ms / 1000.0 / busy).min(1.0));
        let shares = throttled.reasons().map(|(reason, ms)| (reason.bit, share(ms))).collect();
        return Some((shares, ThrottledBy::Counters));
    }
    let (mut set, mut all) = ([0_u32; REASONS.len()], 0_u32);
    for bits in time.bits(data, Metric::ThrottleReasons) {
        all += 1;
        for (count, reason) in set.iter_mut().zip(&REASONS) {
            *count += u32::from(bits & reason.bit != 0);
        }
    }
    let share = |(reason, count): (&Reason, u32)| (reason.bit, f64::from(count) / f64::from(all));
    (all > 0).then(|| (REASONS.iter().zip(set).map(share).collect(), ThrottledBy::Bits))
}

/// The largest share above 0; of equals the first, which is the most serious.
fn longest<S: PartialOrd + Default>(
    shares: impl Iterator<Item = (&'static Reason, S)>,
) -> Option<(&'static Reason, S)> {
    let held = shares.filter(|(_, share)| *share > S::default());
    held.reduce(|best, next| if next.1 > best.1 { next } else { best })
}

/// What a column of a timeline says about throttling.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Band {
    /// Nothing was measured here.
    #[default]
    Unknown,
    /// No reason held.
    Clear,
    /// This reason held longest, for this share (0 to 1) of the measured part of the column.
    Held(&'static Reason, f32),
}

/// Throttled bands of a timeline; keeps its buffers from one frame to the next.
#[derive(Debug, Default)]
pub struct Bands {
    columns: Vec<Band>,
    bins: Vec<Bin>,
}

impl Bands {
    /// Cuts the window into `width` columns and says which reason held in each.
    pub fn fill(&mut self, data: &Data, gpu: u8, window: Window, width: usize) {
        self.columns.clear();
        self.columns.resize(width, Band::Unknown);
        self.bins.resize(width, Bin::default());
        for reason in &REASONS {
            let Some(counter) = reason.counter else { continue };
            data.fill(Subject::Gpu(gpu), counter, window, &mut self.bins);
            for (band, bin) in self.columns.iter_mut().zip(&self.bins) {
                if let Some(rate) = bin.mean() {
                    *band = band.with(reason, (rate / 1000.0).clamp(0.0, 1.0));
                }
            }
        }
    }

    /// The columns, oldest first.
    pub fn columns(&self) -> &[Band] {
        &self.columns
    }
}

impl Band {
    /// This band once another reason's share is known too.
    fn with(self, reason: &'static Reason, share: f32) -> Self {
        match self {
            Self::Held(_, held) if share <= held => self,
            _ if share > 0.0 => Self::Held(reason, share),
            Self::Unknown | Self::Clear => Self::Clear,
            Self::Held(..) => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Batch, SourceId, Time};
    use crate::store::{Retention, Store};

    const GPU: Subject = Subject::Gpu(0);

    /// A second of readings every 100 ms: the power cap holds all the time, heat for the last half.
    fn store() -> Store {
        let store = Store::new(Retention::HOUR);
        for step in 0..=10_u32 {
            let mut batch = Batch::new(SourceId::Nvml, Time(100_000 + u64::from(step) * 100), 1500);
            batch.push(GPU, Metric::ThrottledPowerCap, f64::from(step) * 100.0);
            batch.push(GPU, Metric::ThrottledHwThermal, f64::from(step.saturating_sub(5)) * 100.0);
            batch.push(GPU, Metric::ThrottledSyncBoost, Reading::Missing(Why::Unsupported));
            store.push(&batch);
        }
        store
    }

    #[test]
    fn names_follow_the_bits() {
        let names = |bits: f64| reasons(bits.into()).map(|r| r.name).collect::<Vec<_>>();
        assert_eq!(names(4.0), ["sw_power_cap"]);
        assert_eq!(names(f64::from(0x48)), ["hw_thermal_slowdown", "hw_slowdown"]);
        assert_eq!(names(f64::from(0x1000)), [""; 0]);
        assert_eq!(names(f64::from(0x1ff)).len(), 9);
        assert_eq!(reasons(Reading::Missing(Why::Failed)).count(), 0);
        assert!(REASONS.iter().all(|r| r.word.len() <= 11));
        assert_eq!(slowing(f64::from(0x5).into()).map(|reason| reason.word), Some("power cap"));
        assert_eq!(slowing(f64::from(0x113).into()), None, "idle, clocks that were set, sync boost");
    }

    #[test]
    fn time_of_a_window_is_exact_and_bounded() {
        let store = store();
        let data = store.read();
        let last = Throttled::over(&data, 0, Window::last(Time(101_000), 1000));
        let of = |name| last.reasons().find(|(r, _)| r.name == name).unwrap().1;
        assert_eq!(of("sw_power_cap"), Reading::Value(1000.0));
        assert_eq!(of("hw_thermal_slowdown"), Reading::Value(500.0));
        assert_eq!(of("sync_boost"), Reading::Missing(Why::Unsupported));
        assert_eq!(of("sw_thermal_slowdown"), Reading::Missing(Why::NotYet));
        assert_eq!(last.at_least(), Reading::Value(1000.0));
        let (reason, share) = last.dominant().unwrap();
        assert_eq!((reason.name, share), ("sw_power_cap", 1.0));
    }

    #[test]
    fn a_second_is_never_throttled_for_more_than_a_second() {
        let store = Store::new(Retention::HOUR);
        for (at, ms) in [(100_000, 0.0), (101_000, 1003.0)] {
            let mut batch = Batch::new(SourceId::Nvml, Time(at), 1500);
            batch.push(GPU, Metric::ThrottledPowerCap, ms);
            store.push(&batch);
        }
        let throttled = Throttled::over(&store.read(), 0, Window::last(Time(101_000), 1000));
        assert_eq!(throttled.at_least(), Reading::Value(1000.0));
    }

    #[test]
    fn the_longer_reason_wins_though_the_other_is_more_serious() {
        let [heat, _, _, _, cap, ..] = &REASONS;
        let both = Band::Unknown.with(heat, 0.2).with(cap, 0.7);
        assert_eq!(both, Band::Held(cap, 0.7));
        assert_eq!(both.with(heat, 0.1), Band::Held(cap, 0.7));
        assert_eq!(Band::Unknown.with(heat, 0.0), Band::Clear);
    }

    #[test]
    fn where_only_bits_are_read_their_share_of_the_busy_time_is_told_as_such() {
        let store = Store::new(Retention::HOUR);
        // Busy for ten seconds, in the last four of them at the power cap; then idle, which is a bit as well.
        for second in 0..=20_u32 {
            let mut batch = Batch::new(SourceId::Dcgm, Time(100_000 + u64::from(second) * 1000), 1500);
            let (sm, bits) = match second {
                0..=6 => (90.0, 0.0),
                7..=10 => (90.0, 4.0),
                _ => (0.0, 1.0),
            };
            batch.push(GPU, Metric::SmActive, sm);
            batch.push(GPU, Metric::ThrottleReasons, bits);
            store.push(&batch);
        }
        let window = Window { start: Time(100_000), end: Time(120_000) };
        let of =
            |gpu, data: &Data| held(data, &Throttled::over(data, gpu, window), &mut BusyTime::over(data, gpu, window));
        let (shares, by) = of(0, &store.read()).unwrap();
        assert_eq!((by, by.name()), (ThrottledBy::Bits, "bits"));
        let share = |bit| shares.iter().find(|(known, _)| *known == bit).unwrap().1;
        assert!((share(SW_POWER_CAP) - 0.4).abs() < 0.03, "{shares:?}");
        assert!(share(1) == 0.0 && share(SW_THERMAL) == 0.0, "idle is not of the busy time: {shares:?}");
        assert_eq!(of(1, &store.read()), None, "nothing is read of it");
    }

    #[test]
    fn a_gpu_without_counters_is_missing_not_free() {
        let store = store();
        let data = store.read();
        let other = Throttled::over(&data, 1, Window::last(Time(101_000), 1000));
        assert_eq!(other.at_least(), Reading::Missing(Why::NotYet));
        assert_eq!(other.dominant(), None);
        let mut bands = Bands::default();
        bands.fill(&data, 1, Window::last(Time(101_000), 1000), 3);
        assert_eq!(bands.columns(), [Band::Unknown; 3]);
    }

    #[test]
    fn bands_show_the_longer_and_of_equals_the_more_serious() {
        let store = store();
        let data = store.read();
        let mut bands = Bands::default();
        bands.fill(&data, 0, Window { start: Time(99_500), end: Time(101_000) }, 3);
        let word = |band: &Band| match band {
            Band::Held(reason, _) => reason.word,
            Band::Clear => "clear",
            Band::Unknown => "?",
        };
        assert_eq!(bands.columns().iter().map(word).collect::<Vec<_>>(), ["?", "power cap", "HW thermal"]);
    }
}
