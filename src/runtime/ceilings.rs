//! Tells the store what probes found a GPU to be able to do, once that GPU is known by name.
//!
//! The figure then is in panes, signals, snapshots and recordings like everything that was measured. It must not
//! judge reports: `probe::ceiling` does. Invariant: a ceiling is told only of the very device it was measured on.

use crate::model::ceiling::CeilingOrigin;
use crate::model::{Batch, FactKey, Metric, SourceId, Subject, Time};
use crate::probe::ceiling;
use crate::probe::files::Files;
use crate::probe::report::Report;
use crate::sampler::Sink;

/// Reports that are looked through, the newest.
const MOST_READ: usize = 32;

/// What one report says of one GPU.
#[derive(Debug)]
struct Found {
    uuid: String,
    bytes_per_s: f64,
    origin: String,
    /// When its run began.
    started: u64,
}

impl Found {
    fn of(report: &Report) -> Option<Self> {
        let (bytes_per_s, figure) = ceiling::dram(report)?;
        let origin = CeilingOrigin {
            figure,
            at: Time(report.ended_unix_ms),
            run: &report.run,
            driver: report.environment.driver.as_deref().unwrap_or_default(),
            warptop: &report.warptop,
        };
        let uuid = report.target.gpus.first()?.uuid.clone();
        Some(Self { uuid, bytes_per_s, origin: origin.to_string(), started: report.started_unix_ms })
    }
}

/// The newest ceiling of each GPU, and which of them the store has.
#[derive(Debug, Default)]
pub(super) struct Ceilings {
    found: Vec<Found>,
}

impl Ceilings {
    /// Those of the reports that are kept.
    pub(super) fn load(files: &Files) -> Self {
        let mut all = Self::default();
        files.of_probe(ceiling::PROBE).take(MOST_READ).for_each(|report| all.add(&report));
        all
    }

    /// Takes in a report, if it says anything about a ceiling and nothing newer does.
    pub(super) fn add(&mut self, report: &Report) {
        let Some(new) = Found::of(report) else { return };
        match self.found.iter_mut().find(|old| old.uuid == new.uuid) {
            Some(old) if old.started < new.started => *old = new,
            Some(_) => {}
            None => self.found.push(new),
        }
    }

    /// Tells the store what it does not have yet of the GPUs that it knows by now.
    pub(super) fn tell(&self, sink: &Sink, now: Time) {
        if self.found.is_empty() {
            return;
        }
        let mut batch = Batch::new(SourceId::Probe, now, Batch::FOREVER);
        {
            let data = sink.store().read();
            for gpu in data.gpus().map(Subject::Gpu) {
                let uuid = data.fact(gpu, FactKey::Uuid, now);
                let Some(found) = self.found.iter().find(|found| Some(found.uuid.as_str()) == uuid) else { continue };
                if data.fact(gpu, FactKey::DramCeilingOrigin, now) != Some(found.origin.as_str()) {
                    batch.push(gpu, Metric::DramCeiling, found.bytes_per_s);
                    batch.fact(gpu, FactKey::DramCeilingOrigin, &found.origin);
                }
            }
        }
        if !batch.samples.is_empty() {
            sink.send(&batch);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::derive::ceiling::Ceiling;
    use crate::probe::{Better, Figure, GpuName, PROBES, Params, Target};
    use crate::runtime::{made, probes, same};
    use crate::store::{Retention, Store};

    const NOW: Time = Time(1_795_960_600_000);

    fn report(uuid: &str, started: u64, triad: f64) -> Report {
        let probe = PROBES.iter().find(|probe| probe.spec.id == ceiling::PROBE).unwrap();
        let target = Target {
            gpus: vec![GpuName { index: 0, uuid: uuid.to_owned(), name: "NVIDIA X1".to_owned() }],
            ..Target::default()
        };
        let ask = same::request(probe, target, Params::of(&probe.spec), probes::Manner::default(), Time(started));
        let mut report = made::blank(probe, &ask, crate::probe::report::Ending::Done, "");
        (report.started_unix_ms, report.ended_unix_ms) = (started, started + 9_000);
        let figures = vec![Figure::median("triad", "Triad", "GB/s", Better::Higher, &[triad; 3]).unwrap()];
        report.take(crate::probe::Outcome { figures, ..Default::default() }, None);
        report
    }

    fn named(store: &Store, index: u8, uuid: &str) {
        let mut batch = Batch::new(SourceId::Nvml, NOW, Batch::FOREVER);
        batch.fact(Subject::Gpu(index), FactKey::Name, "NVIDIA X1");
        batch.fact(Subject::Gpu(index), FactKey::Uuid, uuid);
        store.push(&batch);
    }

    fn known(store: &Store, index: u8) -> Option<(f64, u64)> {
        Ceiling::of(&store.read(), index, NOW + 60_000).map(|c| ((c.bytes_per_s / 1e9).round(), c.from.at.0))
    }

    #[test]
    fn a_ceiling_is_told_of_the_device_it_was_measured_on() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::at(folder.path());
        for report in [report("GPU-a", 1_000, 4_000.0), report("GPU-a", 5_000, 4_100.0), report("GPU-b", 3_000, 900.0)]
        {
            files.keep(&report).unwrap();
        }
        let (store, mut ceilings) = (Arc::new(Store::new(Retention::HOUR)), Ceilings::load(&files));
        let sink = Sink::new(Arc::clone(&store), None);
        ceilings.tell(&sink, NOW);
        assert_eq!(store.version(), 0, "no GPU is known yet");
        // The driver numbers them as it likes.
        named(&store, 1, "GPU-a");
        named(&store, 0, "GPU-c");
        ceilings.tell(&sink, NOW);
        assert_eq!([known(&store, 0), known(&store, 1)], [None, Some((4_100.0, 14_000))]);
        let before = store.version();
        ceilings.tell(&sink, NOW + 100);
        assert_eq!(store.version(), before, "told once");
        ceilings.add(&report("GPU-a", 2_000, 1.0));
        ceilings.add(&report("GPU-a", 9_000, 4_200.0));
        ceilings.tell(&sink, NOW + 200);
        assert_eq!(known(&store, 1), Some((4_200.0, 18_000)));
    }
}
