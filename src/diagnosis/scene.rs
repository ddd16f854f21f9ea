//! The figures of one moment that rules judge: of each engine, each GPU and the host, over windows of the diagnosis's own.
//!
//! Means of activity and clocks are taken over the time in which work ran. It concludes nothing.

mod engine;
mod gpu;
mod host;

pub(super) use engine::{EngineScene, Reach, Role};
pub(super) use gpu::{GpuProcessScene, GpuScene};
pub(super) use host::HostScene;

use crate::model::Time;
use crate::store::{Data, HistogramWindow, ProcessRow, Window};

use super::past::Past;
use super::slo::Slo;
use super::{ClientView, LatencySplit};

/// The window of most figures, ms: six scrapes of an engine. Shorter ones flicker; with the three of five seconds that a
/// finding needs, a longer one would not be up within 10 s.
pub const WINDOW_MS: u64 = 6_000;
/// The window of quantiles, ms.
pub const QUANTILES_MS: u64 = 60_000;

/// Everything that rules look at.
#[derive(Debug)]
pub(super) struct Scene<'a> {
    /// For what is looked up seldom.
    pub(super) data: &'a Data,
    /// The moment.
    pub(super) at: Time,
    /// The user's objectives.
    pub(super) slo: &'a Slo,
    /// Engines that are known.
    pub(super) engines: Vec<EngineScene>,
    /// GPUs of this machine.
    pub(super) gpus: Vec<GpuScene>,
    /// The machine.
    pub(super) host: HostScene,
}

impl<'a> Scene<'a> {
    /// Reads the figures of the moment `at`.
    pub(super) fn of(data: &'a Data, at: Time, slo: &'a Slo, past: &mut Past) -> Self {
        let window = Window::last(at, WINDOW_MS);
        let mut scratch = HistogramWindow::default();
        let engines: Vec<_> =
            data.engines().map(|engine| EngineScene::of(data, engine, window, past, &mut scratch)).collect();
        let gpus = data.gpus().map(|gpu| GpuScene::of(data, gpu, window, &engines)).collect();
        let host = HostScene::of(data, window);
        Self { data, at, slo, engines, gpus, host }
    }

    /// The GPUs of an engine: those on which its processes hold memory, or the only ones there are.
    pub(super) fn gpus_of(&self, engine: &EngineScene) -> impl Iterator<Item = &GpuScene> {
        let only = self.engines.len() == 1 && engine.gpus.is_empty() && engine.is_local();
        self.gpus.iter().filter(move |gpu| only || engine.gpus.contains(&gpu.index))
    }

    /// Whether a GPU is used by one of the engines.
    pub(super) fn is_served(&self, gpu: &GpuScene) -> bool {
        self.engines.iter().any(|engine| self.gpus_of(engine).any(|own| own.index == gpu.index))
    }

    /// What the clients of each engine see.
    pub(super) fn clients(&self) -> Vec<ClientView> {
        let mut scratch = HistogramWindow::default();
        self.engines.iter().map(|engine| engine.client(self.data, self.at, &mut scratch)).collect()
    }
}

/// The mean of a figure of a process over so many tables, so many ms apart, up to `at`; `None` where none has it.
fn process_mean(
    data: &Data,
    pid: u32,
    at: Time,
    (tables, apart_ms): (u64, u64),
    of: impl Fn(&ProcessRow) -> Option<f64>,
) -> Option<f64> {
    let tables = (0..tables).filter_map(|back| data.processes(at - back * apart_ms));
    let rows = tables.filter_map(|table| table.rows.iter().find(|row| row.pid == pid));
    let values: Vec<f64> = rows.filter_map(of).collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

impl LatencySplit {
    /// From the means of the three; `None` where one is not known.
    fn of(queue: Option<f64>, prefill: Option<f64>, decode: Option<f64>) -> Option<Self> {
        Some(Self { queue: queue?, prefill: prefill?, decode: decode? })
    }
}
