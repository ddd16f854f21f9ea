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
//! Invariants: a GPU that fails does not keep the others from being read; a session ends when no GPU answers, or others are
//! there than it began with.

use std::time::Duration;

use nvml_wrapper::Nvml;
use nvml_wrapper::{cuda_driver_version_major, cuda_driver_version_minor};

use crate::engine::launch;
use crate::model::limits::GPUS;
use crate::model::{Batch, FactKey, SourceId, SourceState, Subject, Time};
use crate::store::Data;

use super::super::thread::{Due, SECOND_VALID_MS, Ticker};
use super::super::{Context, GpuIds, Options};
use super::gpu::Gpu;
use super::health;
use super::notes::{Note, together};
use super::pace::Pace;
use super::shown::Shown;
use super::watchdog::{Doing, Heart, STALLED_US};

const SLOW: Duration = Duration::from_secs(1);
const RARE: Duration = Duration::from_secs(10);
const RARE_VALID_MS: u32 = 30_000;

/// How long no GPU may answer before the driver is opened anew, µs.
const SILENT_US: u64 = 5_000_000;

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The program ends.
    Stop,
    /// No GPU answers.
    Silent,
    /// Others are there than it began with.
    Changed,
}

/// Why a GPU has no activity: who may read it, and that it is split.
const DENIED: &str = "activity counters (GPM) are for administrators only; run as root, or load the driver with \
                      NVreg_RestrictProfilingToAdminUsers=0";
const EXPORTED: &str = "the driver gives no activity (GPM); it is that of the DCGM exporter";
const SPLIT: &str = "into instances (MIG): the driver gives no utilisation of the whole; a DCGM exporter (--dcgm URL) gives \
                     the activity of the instances";

/// A driver in use.
pub(super) struct Session<'a, 'n> {
    context: &'a Context,
    heart: &'a Heart,
    nvml: &'n Nvml,
    ids: GpuIds,
    /// How many GPUs there were when it was opened.
    count: u32,
    gpus: Vec<Gpu<'n>>,
    /// GPUs that could not be opened.
    unopened: Vec<u32>,
    /// What is to be said of these, and of GPUs that have gone.
    notes: Vec<String>,
    /// The same of each GPU by itself.
    troubles: Vec<(u8, String)>,
    /// Since when no GPU answers, µs.
    silent_since: Option<u64>,
    pace: Pace,
    said: SourceState,
}

impl<'a, 'n> Session<'a, 'n> {
    /// Opens each of `count` GPUs; `shown` are those of the session before, and of this one afterwards.
    pub(super) fn new(
        context: &'a Context,
        heart: &'a Heart,
        nvml: &'n Nvml,
        count: u32,
        shown: &mut Shown,
        options: &Options,
    ) -> Self {
        let clock = &*context.clock;
        let (mut gpus, mut unopened, mut notes, mut troubles) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut errors = Vec::new();
        if count as usize > GPUS {
            notes.push(format!("the driver counts {count} GPUs, of which the first {GPUS} are read"));
        }
        for index in (0..count).map_while(|index| u8::try_from(index).ok()).take(GPUS) {
            let open = || nvml.device_by_index(u32::from(index)).map(|device| Gpu::new(index, device, nvml));
            match heart.inside(clock, Doing::Reading(index), open).0 {
                Ok(gpu) => gpus.push(gpu),
                Err(error) => {
                    unopened.push(u32::from(index));
                    let rest = health::words(&error);
                    troubles.push((index, format!("it cannot be opened: {rest}")));
                    errors.push((u32::from(index), Note { of: String::new(), is: [" cannot be opened: "; 2], rest }));
                }
            }
        }
        notes.extend(together(errors));
        let ids: Vec<_> =
            gpus.iter().map(|gpu| heart.inside(clock, Doing::Reading(gpu.index), || gpu.id()).0).collect();
        troubles.extend(shown.gone(count).map(|index| (index, format!("it is gone: the driver shows {count} now"))));
        notes.extend(
            shown.change(&ids, count, |index| gpus.iter().find(|gpu| gpu.index == index).map(|gpu| &*gpu.name)),
        );
        options.gpu_ids.note(ids);
        let pace = Pace::new(context.interval, clock.micros());
        let said = SourceState::Starting;
        let ids = options.gpu_ids.clone();
        Self { context, heart, nvml, ids, count, gpus, unopened, notes, troubles, silent_since: None, pace, said }
    }

    /// Reads until the end is called, or the driver has to be opened anew.
    pub(super) fn run(&mut self) -> End {
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
                return End::Stop;
            }
            self.read_fast(&mut fast);
            if self.is_silent(now) {
                return End::Silent;
            }
            ticker.every(self.pace.period());
            if slow_due.is_over(now) {
                self.read_slow(&mut slow);
            }
            if rare_due.is_over(now) {
                self.read(&mut rare, Gpu::rare);
                if self.shows_others() {
                    return End::Changed;
                }
            }
        }
        End::Stop
    }

    /// Whether no GPU has answered for too long.
    fn is_silent(&mut self, now: u64) -> bool {
        // Of a driver none of whose GPUs could be opened there is nothing to wait for.
        if self.gpus.is_empty() {
            return true;
        }
        if self.gpus.iter().any(|gpu| gpu.health().trouble.is_none()) {
            self.silent_since = None;
            return false;
        }
        now.saturating_sub(*self.silent_since.get_or_insert(now)) >= SILENT_US
    }

    /// Whether the driver shows another number of GPUs than it did, or one of those that could not be opened.
    fn shows_others(&self) -> bool {
        let ask = || {
            let count = self.nvml.device_count().unwrap_or(self.count);
            count != self.count || self.unopened.iter().any(|index| self.nvml.device_by_index(*index).is_ok())
        };
        self.heart.inside(&*self.context.clock, Doing::Opening, ask).0
    }

    fn read_once(&mut self, mut batch: Batch) {
        let (clock, nvml) = (&*self.context.clock, self.nvml);
        let versions = |nvml: &Nvml| (nvml.sys_driver_version(), nvml.sys_cuda_driver_version());
        let ((driver, cuda), _) = self.heart.inside(clock, Doing::Opening, || versions(self.nvml));
        let facts = [
            (FactKey::Driver, driver.ok()),
            (
                FactKey::CudaDriver,
                cuda.ok()
                    .filter(|version| is_cuda_version(*version))
                    .map(|v| format!("{}.{}", cuda_driver_version_major(v), cuda_driver_version_minor(v))),
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
        let ids = self.ids.clone();
        let spent = self.read(batch, |gpu, batch| gpu.fast(clock, &ids, batch));
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
    fn read(&mut self, batch: &mut Batch, mut class: impl FnMut(&mut Gpu<'n>, &mut Batch)) -> u64 {
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
            let of_gpus = self.gpus.iter().map(|gpu| (gpu.index, gpu.health().trouble.as_deref().unwrap_or_default()));
            let others = self.troubles.iter().map(|(index, words)| (*index, words.as_str()));
            of_gpus.chain(others).for_each(|(index, words)| batch.fact(Subject::Gpu(index), FactKey::Trouble, words));
        }
        self.context.sink.send(batch);
        spent
    }

    /// How it is, in words.
    fn state(&self) -> SourceState {
        let mut notes = self.notes.clone();
        let mut troubles = self.gpus.iter().map(|gpu| gpu.health().trouble.as_ref());
        let all_the_same = self.gpus.len() > 1 && troubles.clone().all(|trouble| trouble == self.trouble());
        if let Some(trouble) = self.trouble().filter(|_| all_the_same) {
            notes.push(format!("the driver answers no question about any GPU: {trouble}"));
        } else {
            let now = self.context.clock.micros();
            let note = |gpu: &Gpu<'_>| note(gpu, gpu.has_lapsed() && !self.ids.exported(gpu.index, now).is_empty());
            notes.extend(together(self.gpus.iter().filter_map(note)));
        }
        notes.extend(self.pace.slowed());
        let why = notes.join("; ").into();
        if troubles.all(|trouble| trouble.is_some()) {
            SourceState::Failed(why)
        } else if notes.is_empty() {
            SourceState::Ok
        } else {
            SourceState::Degraded(why)
        }
    }

    /// What is the matter with the first GPU.
    fn trouble(&self) -> Option<&String> {
        self.gpus.first()?.health().trouble.as_ref()
    }
}

/// Whether this can be a version of CUDA: 1000 for 1.0 (cuda.h); some drivers give garbage.
const fn is_cuda_version(version: i32) -> bool {
    version >= 1_000 && version < 1_000_000
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
fn note(gpu: &Gpu<'_>, exported: bool) -> Option<(u32, Note)> {
    let note = if let Some(trouble) = &gpu.health().trouble {
        let is = [" answers no question: ", " answer no question: "];
        Note { of: format!(" ({})", gpu.name), is, rest: trouble.clone() }
    } else if exported {
        Note { of: String::new(), is: [": "; 2], rest: EXPORTED.to_owned() }
    } else if gpu.health().gpm_denied {
        Note { of: String::new(), is: [": "; 2], rest: DENIED.to_owned() }
    } else if gpu.is_split() {
        Note { of: String::new(), is: [" is split ", " are split "], rest: SPLIT.to_owned() }
    } else {
        return None;
    };
    Some((u32::from(gpu.index), note))
}
