//! Who writes the activity of a GPU: the driver (GPM), or an exporter while the driver refuses it or fails.
//!
//! Invariant: each series has one writer at a time. The driver's is given up only when it gave nothing for a while, and is
//! taken back with its first value.

use nvml_wrapper::Device;

use crate::model::{Batch, Clock, FactKey, SourceId, Subject};

use super::super::GpuIds;
use super::gpm::{Gpm, GpmRead};
use super::health::{Health, Out};

/// So long GPM may give nothing before an exporter is asked, µs: a reset of the GPU passes sooner.
const LAPSE_US: u64 = 3_000_000;

/// The driver's activity of one GPU.
#[derive(Debug, Default)]
pub(super) struct Activity<'n> {
    gpm: Gpm<'n>,
    /// Since when it gives nothing, µs.
    failing_since: Option<u64>,
    /// It was given up.
    lapsed: bool,
}

impl<'n> Activity<'n> {
    /// See [`Gpm::patience`].
    pub(super) fn patience(&self, now: u64) -> u64 {
        self.gpm.patience(now)
    }

    /// Whether it was given up.
    pub(super) const fn has_lapsed(&self) -> bool {
        self.lapsed
    }

    /// Reads it into `batch`, unless an exporter writes it.
    pub(super) fn read(
        &mut self,
        (index, device): (u8, &Device<'n>),
        (clock, ids): (&dyn Clock, &GpuIds),
        health: &mut Health,
        batch: &mut Batch,
    ) {
        let (now, subject) = (clock.micros(), Subject::Gpu(index));
        let exported = ids.exported(index, now);
        let mut read = Batch::new(SourceId::Nvml, clock.now(), 0);
        let outcome = self.gpm.read(device, clock, &mut Out { batch: &mut read, subject, health });
        // Of what an exporter writes, this reading says only whether the driver gives it again.
        let own = read.samples.iter().filter(|sample| !exported.contains(&sample.metric));
        own.for_each(|sample| batch.push(subject, sample.metric, sample.reading));
        match outcome {
            GpmRead::Nothing => {}
            GpmRead::Values => {
                self.failing_since = None;
                if std::mem::take(&mut self.lapsed) {
                    ids.note_active(index, true);
                    batch.fact(subject, FactKey::ActivitySource, "gpm");
                }
            }
            GpmRead::Failed => {
                let since = *self.failing_since.get_or_insert(now);
                if !self.lapsed && now.saturating_sub(since) >= LAPSE_US {
                    self.lapsed = true;
                    ids.note_active(index, false);
                }
            }
        }
    }
}
