//! The measured ceiling of a GPU's memory: what a probe reached on this very device, and whether that still counts.
//!
//! DRAM activity is a share of the peak that the datasheet promises, and no kernel reaches that: 92 % on an H200.
//! Share of the ceiling = activity × peak ÷ ceiling, so it takes all three. Invariant: where one is missing there
//! is no share; a ceiling that may not hold any more says why.

use std::fmt;

use crate::model::ceiling::CeilingOrigin;
use crate::model::{FactKey, Metric, Reading, Subject, Time, Why};
use crate::store::Data;

/// After this long a measurement is old, ms: 30 days.
pub const OLD_MS: u64 = 30 * 86_400_000;

/// A ceiling as it was known at a moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ceiling<'a> {
    /// The ceiling, bytes per second.
    pub bytes_per_s: f64,
    /// What `dram_active_pct` is a share of, bytes per second.
    peak: Reading,
    /// Which measurement it is.
    pub from: CeilingOrigin<'a>,
    /// The driver at that moment.
    driver: Option<&'a str>,
    /// The moment.
    at: Time,
}

impl<'a> Ceiling<'a> {
    /// The newest that was known at `at`; `None` where the probe gave none for this GPU.
    pub fn of(data: &'a Data, gpu: u8, at: Time) -> Option<Self> {
        let subject = Subject::Gpu(gpu);
        let bytes_per_s = data.latest(subject, Metric::DramCeiling, at).reading.value().filter(|rate| *rate > 0.0)?;
        Some(Self {
            bytes_per_s,
            peak: data.latest(subject, Metric::DramPeak, at).reading,
            from: CeilingOrigin::parse(data.fact(subject, FactKey::DramCeilingOrigin, at)?)?,
            driver: data.fact(Subject::Host, FactKey::Driver, at),
            at,
        })
    }

    /// DRAM activity, % of the datasheet's peak, as % of the ceiling.
    pub fn share(&self, dram_active: Reading) -> Reading {
        match self.peak {
            Reading::Value(peak) => dram_active.map(|percent| percent * peak / self.bytes_per_s),
            Reading::Missing(why) => Reading::Missing(why),
        }
    }

    /// The ceiling in % of the peak: where it lies on an axis of DRAM activity.
    pub fn activity(&self) -> Option<f64> {
        self.peak.value().filter(|peak| *peak > 0.0).map(|peak| self.bytes_per_s / peak * 100.0)
    }

    /// How long ago it was measured, ms.
    pub fn age_ms(&self) -> u64 {
        self.at.since(self.from.at)
    }

    /// Why it may not hold any more; prints nothing while it does.
    pub fn doubts(&self) -> Doubts<'a> {
        let other =
            |then: &'a str, now: Option<&str>| (!then.is_empty() && now.is_some_and(|now| now != then)).then_some(then);
        Doubts {
            driver: other(self.from.driver, self.driver),
            warptop: other(self.from.warptop, Some(env!("CARGO_PKG_VERSION"))),
            days: Some(self.age_ms() / 86_400_000).filter(|_| self.age_ms() > OLD_MS),
        }
    }
}

/// The share of the ceiling at `at`, or why there is none.
pub fn share(data: &Data, gpu: u8, dram_active: Reading, at: Time) -> Reading {
    Ceiling::of(data, gpu, at).map_or(Reading::Missing(Why::NotYet), |ceiling| ceiling.share(dram_active))
}

/// What has changed since a measurement: "old: driver 570.86 then, 41 days ago".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Doubts<'a> {
    /// The driver it was measured with, where that is another one now.
    pub driver: Option<&'a str>,
    /// The version of warptop that measured, where this is another one.
    pub warptop: Option<&'a str>,
    /// Its age in days, where it is old.
    pub days: Option<u64>,
}

impl Doubts<'_> {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        *self == Doubts::default()
    }
}

impl fmt::Display for Doubts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut before = "old: ";
        let mut say = |f: &mut fmt::Formatter<'_>, words: fmt::Arguments<'_>| {
            write!(f, "{before}{words}")?;
            before = ", ";
            Ok(())
        };
        self.driver.map_or(Ok(()), |driver| say(f, format_args!("driver {driver} then")))?;
        self.warptop.map_or(Ok(()), |warptop| say(f, format_args!("by warptop {warptop}")))?;
        self.days.map_or(Ok(()), |days| say(f, format_args!("{days} days ago")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Batch, SourceId};
    use crate::store::{Retention, Store};

    const AT: Time = Time(1_795_960_600_000);

    /// 4.4 TB/s, measured `ago` ms before; 4.8 TB/s on the datasheet.
    fn store(ago: u64, driver: &str, warptop: &str) -> Store {
        let store = Store::new(Retention::HOUR);
        let mut batch = Batch::new(SourceId::Probe, AT, Batch::FOREVER);
        let gpu = Subject::Gpu(0);
        batch.push(gpu, Metric::DramPeak, 4.8e12);
        batch.push(gpu, Metric::DramCeiling, 4.4e12);
        let origin = CeilingOrigin { figure: "triad", at: AT - ago, run: "r", driver, warptop };
        batch.fact(gpu, FactKey::DramCeilingOrigin, &origin.to_string());
        batch.fact(Subject::Host, FactKey::Driver, "580.159.03");
        store.push(&batch);
        store
    }

    fn near(reading: Reading, value: f64) -> bool {
        reading.value().is_some_and(|v| (v - value).abs() < 1e-3)
    }

    #[test]
    fn the_share_is_of_what_was_measured() {
        let store = store(7_200_000, "580.159.03", env!("CARGO_PKG_VERSION"));
        let data = store.read();
        let ceiling = Ceiling::of(&data, 0, AT).unwrap();
        // 55 % of 4.8 TB/s are 2.64 TB/s: 60 % of 4.4 TB/s.
        assert!(near(ceiling.share(55.0.into()), 60.0), "{:?}", ceiling.share(55.0.into()));
        assert!(near(ceiling.activity().unwrap().into(), 91.667));
        assert_eq!((ceiling.age_ms(), ceiling.doubts().is_empty()), (7_200_000, true));
        assert_eq!(ceiling.share(Reading::Missing(Why::Stale)), Reading::Missing(Why::Stale));
        assert_eq!(share(&data, 1, 55.0.into(), AT), Reading::Missing(Why::NotYet), "another GPU");
        assert_eq!(Ceiling::of(&data, 0, AT - 1), None, "before it was known");
    }

    #[test]
    fn without_the_peak_there_is_no_share() {
        let store = Store::new(Retention::HOUR);
        let mut batch = Batch::new(SourceId::Probe, AT, Batch::FOREVER);
        batch.push(Subject::Gpu(0), Metric::DramCeiling, 4.4e12);
        batch.fact(Subject::Gpu(0), FactKey::DramCeilingOrigin, "triad 1 r - 0.1.0");
        store.push(&batch);
        let data = store.read();
        let ceiling = Ceiling::of(&data, 0, AT).unwrap();
        assert_eq!((ceiling.share(55.0.into()), ceiling.activity()), (Reading::Missing(Why::NotYet), None));
    }

    #[test]
    fn what_has_changed_since_is_said() {
        let doubts = |ago, driver: &str, warptop: &str| {
            let store = store(ago, driver, warptop);
            let data = store.read();
            Ceiling::of(&data, 0, AT).unwrap().doubts().to_string()
        };
        let own = env!("CARGO_PKG_VERSION");
        assert_eq!(doubts(OLD_MS, "580.159.03", own), "");
        assert_eq!(doubts(0, "", own), "", "a driver that was not known");
        assert_eq!(doubts(0, "570.86", own), "old: driver 570.86 then");
        assert_eq!(
            doubts(41 * 86_400_000, "570.86", "0.0.1"),
            "old: driver 570.86 then, by warptop 0.0.1, 41 days ago"
        );
    }
}
