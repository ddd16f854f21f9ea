//! Which GPU the driver gives which number, for sources that name GPUs otherwise.
//!
//! Kept beside the store, since nothing of it is shown or recorded: it tells one machine from another.

use std::sync::{Arc, Mutex};

use crate::engine::dcgm::Row;
use crate::model::{Metric, lock};

/// One GPU as the driver names it.
#[derive(Clone, Debug)]
pub(super) struct GpuId {
    pub(super) index: u8,
    pub(super) uuid: Option<String>,
    pub(super) bus: Option<String>,
    /// The driver gives its activity itself (GPM).
    pub(super) active: bool,
    /// What an exporter writes of its activity, and until when, µs; in place of the driver while that gives none.
    pub(super) exported: (Vec<Metric>, u64),
}

/// The GPUs that the driver shows.
#[derive(Clone, Debug, Default)]
pub struct GpuIds(Arc<Mutex<Vec<GpuId>>>);

impl GpuIds {
    /// Notes the GPUs that the driver shows.
    pub(super) fn note(&self, gpus: Vec<GpuId>) {
        *lock(&self.0) = gpus;
    }

    /// Notes whether the driver gives the activity of a GPU now.
    pub(super) fn note_active(&self, index: u8, active: bool) {
        lock(&self.0).iter_mut().filter(|gpu| gpu.index == index).for_each(|gpu| gpu.active = active);
    }

    /// Notes that an exporter writes these metrics of a GPU, `until` that time of the clock, µs.
    pub(super) fn export(&self, index: u8, metrics: &[Metric], until: u64) {
        let mut gpus = lock(&self.0);
        gpus.iter_mut().filter(|gpu| gpu.index == index).for_each(|gpu| gpu.exported = (metrics.to_vec(), until));
    }

    /// What an exporter writes of a GPU at `now`, µs, since the driver does not give it.
    pub(super) fn exported(&self, index: u8, now: u64) -> Vec<Metric> {
        let gpus = lock(&self.0);
        let of = gpus.iter().find(|gpu| gpu.index == index && !gpu.active && now < gpu.exported.1);
        of.map(|gpu| gpu.exported.0.clone()).unwrap_or_default()
    }

    fn list(&self) -> Vec<GpuId> {
        lock(&self.0).clone()
    }

    /// Whether the driver has shown no GPU yet.
    pub(super) fn is_empty(&self) -> bool {
        self.list().is_empty()
    }

    /// Whether the driver gives the activity of every GPU itself, or has not yet said which GPUs there are.
    pub(super) fn all_active(&self) -> bool {
        self.list().iter().all(|gpu| gpu.active)
    }

    /// The number of an exporter's GPU, if its values are wanted: with a driver, that of the same UUID, else
    /// of the same PCI bus id, when the driver does not give its activity; without one, the exporter's own.
    pub(super) fn find(&self, row: &Row, driver: bool) -> Option<u8> {
        if !driver {
            return row.index;
        }
        let gpus = self.list();
        let same = |known: &Option<String>, told: &str, plain: fn(&str) -> String| {
            !told.is_empty() && known.as_deref().is_some_and(|known| plain(known) == plain(told))
        };
        let by_uuid = gpus.iter().find(|gpu| same(&gpu.uuid, &row.uuid, str::to_ascii_lowercase));
        let found = by_uuid.or_else(|| gpus.iter().find(|gpu| same(&gpu.bus, &row.bus, plain_bus)));
        found.filter(|gpu| !gpu.active).map(|gpu| gpu.index)
    }
}

/// A PCI bus id without its domain's leading zeros, which are four or eight: `00000000:17:00.0`.
fn plain_bus(bus: &str) -> String {
    bus.trim_start_matches('0').to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_are_matched_by_uuid_then_by_bus_and_by_number_without_a_driver() {
        let ids = GpuIds::default();
        assert!(ids.all_active());
        let gpu = |index, uuid: &str, bus: &str, active| GpuId {
            index,
            uuid: Some(uuid.into()).filter(|text: &String| !text.is_empty()),
            bus: Some(bus.into()),
            active,
            exported: (Vec::new(), 0),
        };
        ids.note(vec![
            gpu(0, "GPU-bbbb", "0000:65:00.0", false),
            gpu(1, "", "0000:17:00.0", false),
            gpu(2, "GPU-cccc", "0000:99:00.0", true),
        ]);
        let row = |uuid: &str, bus: &str| Row { uuid: uuid.into(), bus: bus.into(), index: Some(5), ..Row::default() };
        assert!(!ids.all_active());
        for (uuid, bus, with_driver) in [
            ("GPU-bbbb", "", Some(0)),
            ("GPU-aaaa", "00000000:17:00.0", Some(1)),
            ("GPU-aaaa", "", None),
            ("GPU-cccc", "", None),
        ] {
            assert_eq!(ids.find(&row(uuid, bus), true), with_driver, "{uuid} {bus}");
            assert_eq!(ids.find(&row(uuid, bus), false), Some(5));
        }
        ids.note_active(2, false);
        assert_eq!(ids.find(&row("GPU-cccc", ""), true), Some(2), "the driver gives it no longer");
        ids.export(2, &[Metric::SmActive], 5_000);
        assert_eq!(ids.exported(2, 4_999), [Metric::SmActive]);
        assert!(ids.exported(2, 5_000).is_empty() && ids.exported(0, 1).is_empty());
        ids.note_active(2, true);
        assert!(ids.exported(2, 4_999).is_empty(), "the driver gives it again");
    }
}
