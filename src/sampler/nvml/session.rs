//! A driver that answers: reads its GPUs in four classes, each with its own period, batch and validity.
//!
//! | class | period | what |
//! | --- | --- | --- |
//! | fast | `--interval`, 250 ms, at least 100 ms | activity, clocks, power, throttle reasons and throttled time |
//! | slow | 1 s | memory, temperatures, PCIe link, processes; dear counters of throttled time whose reason holds |
//! | slow | 2 s | shares of processes, where they say anything |
//! | rare | 10 s | NVLinks, errors, power limit, energy; every dear counter |
//! | once | at the start | names, maxima, thresholds, versions, access to other GPUs |
//!
//! Invariant: a GPU that fails does not keep the others from being read.

use std::time::Duration;

use nvml_wrapper::Nvml;
use nvml_wrapper::{cuda_driver_version_major, cuda_driver_version_minor};

use crate::engine::launch;
use crate::model::{Batch, FactKey, SourceId, SourceState, Subject, Time, text};
use crate::store::Data;

use super::super::thread::{Due, SECOND_VALID_MS, Ticker};
use super::super::{Context, GpuIds};
use super::gpu::Gpu;
use super::pace::Pace;
use super::watchdog::{Doing, Heart, STALLED_US};

const SLOW: Duration = Duration::from_secs(1);
const RARE: Duration = Duration::from_secs(10);
const RARE_VALID_MS: u32 = 30_000;

/// A driver in use.
pub(super) struct Session<'a> {
    context: &'a Context,
    heart: &'a Heart,
    nvml: &'static Nvml,
    gpus: Vec<Gpu>,
    /// What is to be said of GPUs that could not be opened.
    unopened: Vec<String>,
    pace: Pace,
    said: SourceState,
}

impl<'a> Session<'a> {
    /// Opens every GPU.
    pub(super) fn new(context: &'a Context, heart: &'a Heart, nvml: &'static Nvml, ids: &GpuIds) -> Self {
        let clock = &*context.clock;
        let (mut gpus, mut unopened) = (Vec::new(), Vec::new());
        let count = nvml.device_count().unwrap_or(0);
        for index in (0..count).map_while(|index| u8::try_from(index).ok()) {
            let open = || nvml.device_by_index(u32::from(index)).map(|device| Gpu::new(index, device, nvml));
            match heart.inside(clock, Doing::Reading(index), open).0 {
                Ok(gpu) => gpus.push(gpu),
                Err(error) => {
                    unopened.push(format!("GPU {index} cannot be opened: {}", text::clean(&error.to_string())));
                }
            }
        }
        ids.note(gpus.iter().map(|gpu| heart.inside(clock, Doing::Reading(gpu.index), || gpu.id()).0).collect());
        let pace = Pace::new(context.interval, clock.micros());
        Self { context, heart, nvml, gpus, unopened, pace, said: SourceState::Starting }
    }

    /// Reads until the end is called.
    pub(super) fn run(mut self) {
        let clock = &*self.context.clock;
        let batch = |valid_ms| Batch::new(SourceId::Nvml, clock.now(), valid_ms);
        let (mut fast, mut slow, mut rare) = (batch(0), batch(SECOND_VALID_MS), batch(RARE_VALID_MS));
        self.read_once(batch(Batch::FOREVER));
        let mut ticker = Ticker::new(self.context, self.pace.period());
        let now = clock.micros();
        let (mut slow_due, mut rare_due) = (Due::new(SLOW, now), Due::new(RARE, now));
        while ticker.wait() {
            let now = clock.micros();
            if self.wait_for_gpm(now) {
                return;
            }
            self.read_fast(&mut fast);
            ticker.every(self.pace.period());
            if slow_due.is_over(now) {
                self.read_slow(&mut slow);
            }
            if rare_due.is_over(now) {
                self.read(&mut rare, Gpu::rare);
            }
        }
    }

    fn read_once(&mut self, mut batch: Batch) {
        let (clock, nvml) = (&*self.context.clock, self.nvml);
        let versions = |nvml: &Nvml| (nvml.sys_driver_version(), nvml.sys_cuda_driver_version());
        let ((driver, cuda), _) = self.heart.inside(clock, Doing::Opening, || versions(self.nvml));
        let facts = [
            (FactKey::Driver, driver.ok()),
            (
                FactKey::CudaDriver,
                cuda.ok().map(|v| format!("{}.{}", cuda_driver_version_major(v), cuda_driver_version_minor(v))),
            ),
        ];
        self.read(&mut batch, |gpu, batch| {
            if batch.facts.is_empty() {
                for (key, text) in &facts {
                    if let Some(text) = text {
                        batch.fact(Subject::Host, *key, text);
                    }
                }
            }
            gpu.once(clock, nvml, batch);
        });
    }

    /// Waits a few ms where GPM samples would be a hair too close; returns whether to end.
    fn wait_for_gpm(&self, now: u64) -> bool {
        let patience = self.gpus.iter().map(|gpu| gpu.patience(now)).max().unwrap_or(0);
        patience > 0 && self.context.stop.wait(Duration::from_micros(patience))
    }

    fn read_fast(&mut self, batch: &mut Batch) {
        let clock = &*self.context.clock;
        let period_ms = u32::try_from(self.pace.period().as_millis()).unwrap_or(u32::MAX);
        batch.valid_ms = period_ms.saturating_mul(4).max(1_500);
        let spent = self.read(batch, |gpu, batch| gpu.fast(clock, batch));
        if spent < STALLED_US {
            self.pace.spent(clock.micros(), spent);
        } else {
            self.pace.forget(clock.micros());
        }
    }

    fn read_slow(&mut self, batch: &mut Batch) {
        let strangers = strangers(&self.context.sink.store().read(), self.context.clock.now());
        self.read(batch, |gpu, batch| {
            gpu.slow(batch);
            gpu.processes(&strangers, batch);
        });
    }

    /// Reads one class of every GPU and hands it on; returns the time inside NVML, µs.
    fn read(&mut self, batch: &mut Batch, mut class: impl FnMut(&mut Gpu, &mut Batch)) -> u64 {
        let clock = &*self.context.clock;
        let began = clock.now();
        batch.reset(began);
        let mut spent = 0;
        for gpu in &mut self.gpus {
            let doing = Doing::Reading(gpu.index);
            spent += self.heart.inside(clock, doing, || class(gpu, batch)).1;
        }
        batch.at = began + clock.now().since(began) / 2;
        batch.took_us = u32::try_from(spent).unwrap_or(u32::MAX);
        let state = self.state();
        if state != self.said || self.heart.take_spoke() {
            self.said = state.clone();
            batch.state = Some(state);
        }
        self.context.sink.send(batch);
        spent
    }

    /// How it is, in words.
    fn state(&self) -> SourceState {
        let mut notes = self.unopened.clone();
        for gpu in &self.gpus {
            notes.extend(note(gpu));
        }
        notes.extend(self.pace.slowed());
        let why = notes.join("; ").into();
        if self.gpus.iter().all(|gpu| gpu.health().lost) {
            SourceState::Failed(why)
        } else if notes.is_empty() {
            SourceState::Ok
        } else {
            SourceState::Degraded(why)
        }
    }
}

/// Processes on a GPU of which the command line is known, and that it is no engine's.
fn strangers(data: &Data, at: Time) -> Vec<u32> {
    let engines: Vec<_> = data.engines().filter_map(|i| data.fact(Subject::Engine(i), FactKey::Pids, at)).collect();
    let belongs = |pid: u32| engines.iter().any(|pids| pids.split(',').any(|of| of.parse() == Ok(pid)));
    let rows = data.processes(at).into_iter().flat_map(|table| &table.rows);
    let known = rows.filter(|row| !row.gpus.is_empty() && !row.command.is_empty());
    known.filter(|row| !belongs(row.pid) && !launch::is_engine(&row.command)).map(|row| row.pid).collect()
}

/// What is to be said of a GPU that does not give all it should.
fn note(gpu: &Gpu) -> Option<String> {
    let (index, name) = (gpu.index, &gpu.name);
    if gpu.health().lost {
        Some(format!(
            "GPU {index} ({name}) is lost: the driver cannot reach it; look for Xid in dmesg, reset it or reboot, then \
             start warptop again"
        ))
    } else if gpu.health().gpm_denied {
        Some(format!(
            "GPU {index}: activity counters (GPM) are for administrators only; run as root, or load the driver with \
             NVreg_RestrictProfilingToAdminUsers=0"
        ))
    } else {
        None
    }
}
