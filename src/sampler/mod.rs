//! Sources: when and how each is read. They push [`Batch`]es and know no pane.
//!
//! Blocking sources have a named thread of their own that is never joined on exit; network sources are
//! tasks. A source that fails says why in its state and is tried again; it never stops another one.

mod aside;
mod cmdline;
mod cost;
mod dcgm;
mod discover;
pub mod engines;
mod fingerprint;
mod flaws;
mod gpu_ids;
mod host;
mod lookup;
mod nvml;
mod pages;
mod process;
pub mod replay;
mod scrape;
mod side;
mod thread;
mod trouble;
mod unpack;
mod watch;
mod work;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

pub use gpu_ids::GpuIds;
pub use host::HostReader;
pub use nvml::{LOAD_DRIVER, load_driver};
pub use process::cpu_limits;

use crate::log::EventLog;
use crate::model::{Batch, Clock, SourceId, Time, lock};
use crate::net::access::Access;
use crate::net::tls::Authorities;
use crate::store::Store;

/// Where batches go: into the store and, while recording, to the recorder as well.
#[derive(Clone, Debug)]
pub struct Sink {
    store: Arc<Store>,
    tap: Option<SyncSender<Batch>>,
    log: Option<EventLog>,
    lost: Arc<AtomicU64>,
    /// When the newest batch was read; `None` before the first.
    newest: Arc<Mutex<Option<Time>>>,
}

/// Some source reads at least once a second. Where none has for this long, nothing of warptop ran, ms.
const PAUSE_MS: u64 = 5_000;

impl Sink {
    /// A sink into `store`; `tap` receives a copy of every batch.
    pub fn new(store: Arc<Store>, tap: Option<SyncSender<Batch>>) -> Self {
        Self { store, tap, log: None, lost: Arc::default(), newest: Arc::default() }
    }

    /// The same, with what batches tell beside figures noted in `log`.
    #[must_use]
    pub fn with_log(self, log: Option<EventLog>) -> Self {
        Self { log, ..self }
    }

    /// Hands on a batch. Never blocks on the recorder: a full or closed tap loses the batch, counted in [`Sink::lost`].
    ///
    /// The first batch after a time in which nothing ran follows one that says so: nobody's rates may span that.
    pub fn send(&self, batch: &Batch) {
        {
            // Whoever comes second waits until that is said.
            let mut newest = lock(&self.newest);
            let before = *newest;
            *newest = before.max(Some(batch.at));
            let paused_ms = before.map_or(0, |before| batch.at.since(before));
            if paused_ms >= PAUSE_MS {
                self.hand_on(&Batch { paused_ms, ..Batch::new(SourceId::App, batch.at, 0) });
            }
        }
        self.hand_on(batch);
    }

    fn hand_on(&self, batch: &Batch) {
        self.store.push(batch);
        if let Some(log) = &self.log {
            log.batch(batch);
        }
        if let Some(tap) = &self.tap
            && let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) = tap.try_send(batch.clone())
        {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Batches that the recorder did not get.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// The store behind it.
    pub const fn store(&self) -> &Arc<Store> {
        &self.store
    }
}

/// Tells samplers to end; waiting for the next reading ends at once.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<(AtomicBool, Mutex<()>, Condvar)>);

impl Stop {
    /// Ends all that hold a clone.
    pub fn stop(&self) {
        let (flag, mutex, condvar) = &*self.0;
        // Under the lock, so that no one misses the call between looking and waiting.
        let guard = lock(mutex);
        flag.store(true, Ordering::Release);
        drop(guard);
        condvar.notify_all();
    }

    /// Whether the end was called.
    pub fn stopped(&self) -> bool {
        self.0.0.load(Ordering::Acquire)
    }

    /// Waits; returns whether to end.
    pub fn wait(&self, duration: Duration) -> bool {
        let (_, mutex, condvar) = &*self.0;
        let guard = lock(mutex);
        let woken = condvar.wait_timeout_while(guard, duration, |()| !self.stopped());
        drop(woken);
        self.stopped()
    }
}

/// What every sampler is given.
#[derive(Clone)]
pub struct Context {
    /// Where its batches go.
    pub sink: Sink,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// When to end.
    pub stop: Stop,
    /// Period of the fast class (`--interval`).
    pub interval: Duration,
}

/// What the command line says about sources.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Base URLs given with `--engine`, in that order; they become engines 0, 1 …
    pub engine_urls: Vec<String>,
    /// Whether to look for engines on this host.
    pub discover: bool,
    /// Keys for engines, and where each may be sent.
    pub access: Access,
    /// Authorities that are trusted besides the system's.
    pub authorities: Authorities,
    /// Periods and limits of engines.
    pub timing: engines::Timing,
    /// Base URL of a DCGM exporter.
    pub dcgm_url: Option<String>,
    /// Which GPU the driver gives which number.
    pub gpu_ids: GpuIds,
    /// Where what happens to sources is noted, if anywhere.
    pub log: Option<EventLog>,
    /// NVML library to load instead of the system's `libnvidia-ml.so.1`: for tests.
    pub nvml_library: Option<std::path::PathBuf>,
    /// The program that loads it first ([`LOAD_DRIVER`]), in a process of its own; none: it is loaded at once.
    pub loader: Option<std::path::PathBuf>,
}

/// A live source. A new one is one file and one line in [`SAMPLERS`].
#[derive(Clone, Copy, Debug)]
pub struct Sampler {
    /// Its name in threads, messages and docs.
    pub id: &'static str,
    /// What it reads, how often, and what it needs.
    pub help: &'static str,
    /// Starts it and returns at once; it runs until [`Context::stop`]. It reports what is wrong as a
    /// [`crate::model::SourceState`], not as an error.
    pub start: fn(&Context, &Options),
}

/// Every live source.
pub const SAMPLERS: &[Sampler] =
    &[nvml::SAMPLER, dcgm::SAMPLER, host::SAMPLER, process::SAMPLER, cost::SAMPLER, engines::SAMPLER];

/// Every parser of a file below `/proc` and `/sys` on the same text, for `fuzz/`.
#[cfg(fuzzing)]
pub fn fuzz_host_files(text: &str) {
    host::fuzz(text);
    process::fuzz(text);
    discover::fuzz(text);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Retention;

    #[test]
    fn a_full_recorder_loses_batches_and_counts_them() {
        let (tap, _keep) = std::sync::mpsc::sync_channel(1);
        let sink = Sink::new(Arc::new(Store::new(Retention::HOUR)), Some(tap));
        for t in 0..3 {
            sink.send(&Batch::new(SourceId::Host, Time(t), 1000));
        }
        assert_eq!((sink.lost(), sink.store().version()), (2, 3));
    }

    #[test]
    fn a_time_in_which_nothing_ran_is_told_before_what_follows_and_once() {
        let (tap, told) = std::sync::mpsc::sync_channel(100);
        let sink = Sink::new(Arc::new(Store::new(Retention::HOUR)), Some(tap));
        for (source, at) in [
            (SourceId::Host, 1_000),
            (SourceId::Nvml, 1_300),
            (SourceId::Host, 5_900),
            // 61 s later, in any order; one was begun before.
            (SourceId::Nvml, 66_900),
            (SourceId::Engine(0), 5_800),
            (SourceId::Host, 67_000),
        ] {
            sink.send(&Batch::new(source, Time(at), 1000));
        }
        let told: Vec<_> = told.try_iter().map(|batch| (batch.source, batch.at.0, batch.paused_ms)).collect();
        assert_eq!(told.len(), 7, "{told:?}");
        assert_eq!(told[3..5], [(SourceId::App, 66_900, 61_000), (SourceId::Nvml, 66_900, 0)]);
    }

    #[test]
    fn stop_wakes_a_waiter() {
        let stop = Stop::default();
        let waiter = stop.clone();
        let thread = std::thread::spawn(move || waiter.wait(Duration::from_hours(1)));
        stop.stop();
        assert!(thread.join().unwrap());
    }
}
