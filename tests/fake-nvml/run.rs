//! The NVML sampler at work on a fake of NVIDIA's library.
#![allow(dead_code, reason = "not every test uses all of it")]
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may fail by panicking")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use warptop::model::{Batch, Clock, Metric, Reading, SourceId, SourceState, Subject, SystemClock};
use warptop::sampler::{Context, Options, SAMPLERS, Sink, Stop};
use warptop::store::{Data, Retention, Store};

use crate::fake_nvml;

/// A fake library in a folder of its own.
pub(crate) struct Fake {
    folder: tempfile::TempDir,
    pub(crate) library: PathBuf,
}

impl Fake {
    /// Compiles it with these definitions.
    pub(crate) fn new(definitions: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let library = fake_nvml::compile(folder.path(), definitions);
        Self { folder, library }
    }

    pub(crate) fn control(&self, file: &str) {
        self.set(file, "");
    }

    /// Makes a control file with this in it.
    pub(crate) fn set(&self, file: &str, text: &str) {
        std::fs::write(self.folder.path().join(file), text).unwrap();
    }

    /// Names of the notes that begin with this, the rest of each.
    pub(crate) fn notes(&self, begin: &str) -> Vec<String> {
        let names = std::fs::read_dir(self.folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter_map(|name| name.to_str()?.strip_prefix(begin).map(str::to_owned)).collect()
    }

    pub(crate) fn release(&self, file: &str) {
        std::fs::remove_file(self.folder.path().join(file)).unwrap();
    }

    pub(crate) fn noted(&self, file: &str) -> bool {
        self.folder.path().join(file).exists()
    }
}

/// The sampler at work on a library.
pub(crate) struct Run {
    pub(crate) store: Arc<Store>,
    pub(crate) stop: Stop,
    pub(crate) batches: Receiver<Batch>,
    pub(crate) clock: Arc<dyn Clock>,
}

impl Run {
    pub(crate) fn new(library: &Path) -> Self {
        Self::every(library, 100)
    }

    pub(crate) fn every(library: &Path, interval_ms: u64) -> Self {
        Self::of(&Options { nvml_library: Some(library.to_owned()), ..Options::default() }, interval_ms)
    }

    /// With a DCGM exporter at this URL as well.
    pub(crate) fn with_exporter(library: &Path, interval_ms: u64, dcgm_url: Option<String>) -> Self {
        let options = Options { nvml_library: Some(library.to_owned()), dcgm_url, ..Options::default() };
        Self::of(&options, interval_ms)
    }

    /// With the library loaded by `loader` first.
    pub(crate) fn loaded_by(loader: &str, library: &Path) -> Self {
        let (nvml_library, loader) = (Some(library.to_owned()), Some(PathBuf::from(loader)));
        Self::of(&Options { nvml_library, loader, ..Options::default() }, 100)
    }

    fn of(options: &Options, interval_ms: u64) -> Self {
        let store = Arc::new(Store::new(Retention::HOUR));
        let (tap, batches) = sync_channel(10_000);
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
        let stop = Stop::default();
        let context = Context {
            sink: Sink::new(Arc::clone(&store), Some(tap)),
            clock: Arc::clone(&clock),
            stop: stop.clone(),
            interval: Duration::from_millis(interval_ms),
        };
        for id in ["nvml", "dcgm"] {
            let sampler = SAMPLERS.iter().find(|sampler| sampler.id == id).unwrap();
            (sampler.start)(&context, options);
        }
        Self { store, stop, batches, clock }
    }

    /// Waits until the store says so.
    pub(crate) fn until(&self, what: &str, condition: impl Fn(&Data) -> bool) {
        for _ in 0..6_000 {
            if condition(&self.store.read()) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("waited in vain for: {what}; state {:?}", self.state());
    }

    pub(crate) fn latest(&self, gpu: u8, metric: Metric) -> Reading {
        latest(&self.store.read(), gpu, metric)
    }

    pub(crate) fn state(&self) -> SourceState {
        state(&self.store.read())
    }

    /// Waits for values of every class of GPU `gpu`.
    pub(crate) fn until_read(&self, gpu: u8) {
        self.until("all classes", |data| {
            let read = |metric| data.series(Subject::Gpu(gpu), metric).is_some();
            read(Metric::SmActive) && read(Metric::Power) && read(Metric::Energy) && read(Metric::PcieGen)
        });
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.stop.stop();
    }
}

pub(crate) fn latest(data: &Data, gpu: u8, metric: Metric) -> Reading {
    data.latest(Subject::Gpu(gpu), metric, data.newest()).reading
}

pub(crate) fn state(data: &Data) -> SourceState {
    data.source(SourceId::Nvml).map_or(SourceState::Starting, |source| source.state_at(data.newest()).clone())
}
