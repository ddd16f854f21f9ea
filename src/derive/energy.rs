//! Tokens for the energy that an engine's GPUs took.
//!
//! | figure | formula |
//! | --- | --- |
//! | power P | Σ over its GPUs of Δ energy counter ÷ Δt: measured at the board, idle power included |
//! | generated tokens per joule | Δ generated tokens ÷ Δ energy, over the same time |
//! | joules per generated token | its inverse |
//! | all tokens per joule | Δ (prompt + generated tokens) ÷ Δ energy; prompt tokens from the prefix cache count too |
//!
//! Generated tokens cost far more than prompt tokens, so the two ratios are never put side by side without
//! their names. Its GPUs are those on which one of its processes holds device memory, by the process
//! table at the window's end. Where another process holds memory there too, the power is both's: then
//! tokens per joule are a lower bound and joules per token an upper one. The driver's counter is read
//! every 10 s, so tokens are counted over the time between its readings, not over the window as asked, and only over
//! time in which both were read (`joint`): a server that is down makes no tokens that anybody counts, and its GPU
//! takes power all the same. Where no token was made in the window that was asked for, the ratio is 0, whatever was made
//! just before. It must not know how the figures are drawn. Invariant: no figure from nominal or time-averaged power.

mod joint;

use crate::model::{Address, FactKey, Metric, Reading, SourceId, Subject, Time, Why};
use crate::store::{Data, ProcessTable, Window};

use super::exposed::{both, rate};
use joint::Joint;

/// Windows without a reading of the energy counter are made at least this long, ms: two of its periods.
const LEAST_MS: u64 = 21_000;

/// GPUs by their NVML index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuSet([u64; 4]);

impl GpuSet {
    fn insert(&mut self, gpu: u8) {
        self.0[usize::from(gpu / 64)] |= 1 << (gpu % 64);
    }

    /// Whether this one is among them.
    pub fn contains(&self, gpu: u8) -> bool {
        self.0[usize::from(gpu / 64)] >> (gpu % 64) & 1 == 1
    }

    /// Each of them, rising.
    pub fn iter(&self) -> impl Iterator<Item = u8> {
        (0..=u8::MAX).filter(|&gpu| self.contains(gpu))
    }
}

/// Why nothing can be said about an engine's energy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoEnergy {
    /// It is reached through the network.
    OtherHost,
    /// Its processes are not known.
    NoPids,
    /// There is no current process table, and why.
    NoTable(Why),
    /// What is on the GPUs was not read when the process table was, and why.
    NoList(Why),
    /// None of its processes holds device memory, as far as the driver says.
    NotOnGpu,
    /// The energy counter of one of its GPUs gives nothing.
    NoCounter(u8, Why),
    /// Tokens and energy were not measured over the same time.
    Apart(Why),
}

impl NoEnergy {
    /// The reason as every missing value has one.
    pub const fn why(self) -> Why {
        match self {
            Self::OtherHost | Self::NoPids | Self::NotOnGpu => Why::Unsupported,
            Self::NoTable(why) | Self::NoList(why) | Self::NoCounter(_, why) | Self::Apart(why) => why,
        }
    }
}

/// What an engine does with the energy of its GPUs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Energy {
    /// Its GPUs.
    pub gpus: GpuSet,
    /// Other processes that hold memory on them.
    pub others: u32,
    /// The time that tokens and energy were both measured over, ms.
    pub measured_ms: u64,
    /// Mean power of its GPUs together over that time, W.
    pub watts: f64,
    /// Generated tokens per joule.
    pub generated_per_joule: Reading,
    /// Joules per generated token; missing while none is generated.
    pub joules_per_generated: Reading,
    /// Prompt and generated tokens per joule.
    pub all_per_joule: Reading,
}

impl Energy {
    /// Whether the power is also that of other processes.
    pub const fn is_shared(&self) -> bool {
        self.others > 0
    }

    /// The name of what the figures rest on, in the snapshot.
    pub const fn basis(&self) -> &'static str {
        if self.is_shared() { "shared" } else { "exclusive" }
    }
}

/// Energy of `engine` over `window`, or over the time that the driver's counter covers of it.
///
/// # Errors
/// Why there is nothing to say.
pub fn energy(data: &Data, engine: u8, window: Window) -> Result<Energy, NoEnergy> {
    let (gpus, others) = gpus(data, engine, window.end)?;
    let covered = covered(data, gpus, window);
    let mut watts = 0.0;
    for gpu in gpus.iter() {
        match data.mean(Subject::Gpu(gpu), Metric::Energy, covered) {
            Reading::Value(power) => watts += power,
            Reading::Missing(why) => return Err(NoEnergy::NoCounter(gpu, why)),
        }
    }
    let made = |metric| rate(data, engine, metric, window);
    let generated = made(Metric::GenerationTokens);
    let unknown = |why| Energy {
        gpus,
        others,
        measured_ms: gpus
            .iter()
            .map(|gpu| data.measured_ms(Subject::Gpu(gpu), Metric::Energy, covered))
            .min()
            .unwrap_or(0),
        watts,
        generated_per_joule: Reading::Missing(why),
        joules_per_generated: Reading::Missing(why),
        all_per_joule: Reading::Missing(why),
    };
    match generated {
        Reading::Missing(why @ (Why::Unsupported | Why::NotRecorded)) => return Ok(unknown(why)),
        Reading::Missing(why) => return Err(NoEnergy::Apart(why)),
        Reading::Value(_) => {}
    }
    let joint = Joint::of(data, engine, gpus, (covered, window)).ok_or(NoEnergy::Apart(Why::NotYet))?;
    let per_joule = |rate: Reading, tokens: f64| match rate {
        Reading::Value(rate) if rate <= 0.0 => Reading::Value(0.0),
        rate => rate.map(|_| tokens / joint.joules),
    };
    let generated_per_joule = per_joule(generated, joint.generated);
    let prompt = made(Metric::PromptTokens);
    let prompt_per_joule = joint.prompt.map_or(Reading::Missing(Why::NotYet), |tokens| per_joule(prompt, tokens));
    Ok(Energy {
        measured_ms: joint.ms,
        watts: joint.joules * 1000.0 / joint.ms as f64,
        generated_per_joule,
        joules_per_generated: match generated_per_joule {
            Reading::Value(ratio) if ratio <= 0.0 => Reading::Missing(Why::NotYet),
            ratio => ratio.map(|ratio| 1.0 / ratio),
        },
        all_per_joule: both(prompt_per_joule, generated_per_joule, |prompt, generated| prompt + generated),
        ..unknown(Why::NotYet)
    })
}

/// The GPUs on which the engine's processes hold memory at `at`, and how many other processes do.
///
/// # Errors
/// Why that is not known.
pub fn gpus(data: &Data, engine: u8, at: Time) -> Result<(GpuSet, u32), NoEnergy> {
    let fact = |key| data.fact(Subject::Engine(engine), key, at).unwrap_or_default();
    let pids = fact(FactKey::Pids);
    if pids.is_empty() {
        return Err(if is_local(fact(FactKey::Url)) { NoEnergy::NoPids } else { NoEnergy::OtherHost });
    }
    let own = |pid: u32| pids.split(',').any(|own| own.trim().parse() == Ok(pid));
    let table = data.current_processes(at).ok_or_else(|| NoEnergy::NoTable(no_table(data, at)))?;
    let mut gpus = GpuSet::default();
    table.rows.iter().filter(|row| own(row.pid)).flat_map(|row| &row.gpus).for_each(|(gpu, _)| gpus.insert(*gpu));
    if gpus == GpuSet::default() {
        return Err(if listed(data, table) { NoEnergy::NotOnGpu } else { NoEnergy::NoList(data.never()) });
    }
    let beside = table.rows.iter().filter(|row| !own(row.pid) && row.gpus.iter().any(|(gpu, _)| gpus.contains(*gpu)));
    Ok((gpus, u32::try_from(beside.count()).unwrap_or(u32::MAX)))
}

/// Why there is no current process table.
fn no_table(data: &Data, at: Time) -> Why {
    if data.processes(at).is_some() { Why::Stale } else { data.never() }
}

/// Whether a process table tells who is on a GPU: the driver's list was read before it, or never will be.
fn listed(data: &Data, table: &ProcessTable) -> bool {
    let read = |gpu| data.latest(Subject::Gpu(gpu), Metric::GpuProcesses, table.at).at.is_some();
    let down = || data.source(SourceId::Nvml).is_some_and(|driver| driver.state_at(table.at).is_down());
    table.rows.iter().any(|row| !row.gpus.is_empty()) || data.gpus().any(read) || down()
}

/// Whether a URL names this host for certain; of an imported recording it names no host at all.
fn is_local(url: &str) -> bool {
    !url.contains("://") || Address::parse(url).is_some_and(|address| address.is_local())
}

/// From the reading of the energy counter at or before the window's start to the last one in it: a rate
/// is that of the intervals that end in the window.
fn covered(data: &Data, gpus: GpuSet, window: Window) -> Window {
    let last = |at| {
        let readings = gpus.iter().filter_map(|gpu| data.latest(Subject::Gpu(gpu), Metric::Energy, at).at);
        readings.min()
    };
    let Some(end) = last(window.end) else { return window };
    let window = if end > window.start { window } else { Window::last(window.end, LEAST_MS) };
    Window { start: last(window.start).unwrap_or(window.start), end }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Batch, ProcessSample, SourceState};
    use crate::store::{Retention, Store};

    fn process(pid: u32, gpus: &[u8]) -> ProcessSample {
        let none = Reading::Missing(Why::NotPermitted);
        let gpus = gpus.iter().map(|&gpu| (gpu, Reading::Value(1e9))).collect();
        let (user, command) = ("".into(), "".into());
        let (cpu_ms, rss, majflt, page_table) = (none, none, none, none);
        ProcessSample { pid, user, command, gpus, cpu_ms, rss, majflt, page_table, ..ProcessSample::default() }
    }

    /// A minute in which the engine's pids are these, and every GPU (0 to 3) takes 500 W. The counter is read
    /// every `period` seconds; 10 000 prompt and 1000 generated tokens a second.
    fn store(url: &str, pids: &str, processes: &[ProcessSample], period: u64) -> (Store, Time) {
        let store = Store::new(Retention::HOUR);
        let start = Time(1_000_000);
        for second in 0..=60_u64 {
            let at = start + second * 1000;
            let total = second as f64;
            let mut batch = Batch::new(SourceId::Engine(0), at, 3500);
            batch.fact(Subject::Engine(0), FactKey::Url, url);
            batch.fact(Subject::Engine(0), FactKey::Pids, pids);
            batch.push(Subject::Engine(0), Metric::PromptTokens, 10_000.0 * total);
            batch.push(Subject::Engine(0), Metric::GenerationTokens, 1000.0 * total);
            store.push(&batch);
            let mut batch = Batch::new(SourceId::Process, at, 3500);
            batch.processes = Some(processes.to_vec());
            store.push(&batch);
            if second % period == 0 {
                let mut batch = Batch::new(SourceId::Nvml, at, 35_000);
                (0..4).for_each(|gpu| batch.push(Subject::Gpu(gpu), Metric::Energy, 500.0 * total));
                store.push(&batch);
            }
        }
        (store, start + 60_000)
    }

    fn of(url: &str, pids: &str, processes: &[ProcessSample], (period, ms): (u64, u64)) -> Result<Energy, NoEnergy> {
        let (store, end) = store(url, pids, processes, period);
        energy(&store.read(), 0, Window::last(end, ms))
    }

    const LOCAL: &str = "http://127.0.0.1:8000";

    #[test]
    fn the_power_is_that_of_the_gpus_its_processes_run_on() {
        let server = [process(7, &[]), process(8, &[1]), process(9, &[2])];
        let energy = of(LOCAL, "7,8,9", &server, (1, 10_000)).unwrap();
        assert_eq!(energy.gpus.iter().collect::<Vec<_>>(), [1, 2]);
        assert_eq!((energy.watts, energy.basis()), (1000.0, "exclusive"));
        assert_eq!(energy.generated_per_joule, Reading::Value(1.0));
        assert_eq!(energy.joules_per_generated, Reading::Value(1.0));
        assert_eq!(energy.all_per_joule, Reading::Value(11.0));
    }

    #[test]
    fn a_gpu_with_other_processes_is_shared() {
        let processes = [process(8, &[1]), process(50, &[1, 3]), process(51, &[0])];
        let energy = of(LOCAL, "8", &processes, (1, 10_000)).unwrap();
        assert_eq!((energy.others, energy.basis(), energy.watts), (1, "shared", 500.0));
    }

    /// The counter was read at 40, 50 and 60 s: a window of 2 s has the interval from 50 to 60 s.
    #[test]
    fn tokens_are_counted_over_what_the_counter_covers() {
        let server = [process(8, &[0])];
        let energy = of(LOCAL, "8", &server, (10, 2000)).unwrap();
        assert_eq!(energy.measured_ms, 10_000);
        let (store, end) = store(LOCAL, "8", &server, 10);
        // At 57 s, with no reading in the last 2 s: the two intervals before.
        let energy = super::energy(&store.read(), 0, Window::last(end - 3000, 2000)).unwrap();
        assert_eq!(energy.measured_ms, 20_000);
        assert!((energy.watts - 500.0).abs() < 1e-9);
    }

    #[test]
    fn without_processes_or_counters_there_is_a_reason() {
        let server = [process(8, &[0])];
        assert_eq!(of(LOCAL, "", &server, (1, 10_000)), Err(NoEnergy::NoPids));
        assert_eq!(of("imported", "", &server, (1, 10_000)), Err(NoEnergy::NoPids));
        assert_eq!(of("https://gpu7.example:8000/v1", "", &server, (1, 10_000)), Err(NoEnergy::OtherHost));
        assert_eq!(of(LOCAL, "9", &server, (1, 10_000)), Err(NoEnergy::NotOnGpu));
        let (store, end) = store(LOCAL, "8", &server, 1);
        let stale = energy(&store.read(), 0, Window::last(end + 20_000, 10_000));
        assert_eq!(stale, Err(NoEnergy::NoTable(Why::Stale)));
        let unknown = of(LOCAL, "8", &[process(8, &[5])], (1, 10_000));
        assert_eq!(unknown, Err(NoEnergy::NoCounter(5, Why::NotYet)));
    }

    #[test]
    fn before_the_driver_listed_who_is_on_a_gpu_nobody_is_said_to_be_on_none() {
        let off_gpu = [process(8, &[])];
        let after = |driver: Option<SourceState>, listed: bool| {
            let (store, end) = store(LOCAL, "8", &off_gpu, 10);
            let mut batch = Batch::new(SourceId::Nvml, end, 3500);
            batch.state = driver;
            if listed {
                batch.fact(Subject::Gpu(0), FactKey::Name, "GPU");
                batch.push(Subject::Gpu(0), Metric::GpuProcesses, 0.0);
            }
            store.push(&batch);
            let energy = energy(&store.read(), 0, Window::last(end, 10_000));
            energy.unwrap_err()
        };
        assert_eq!(after(None, false), NoEnergy::NoList(Why::NotYet));
        assert_eq!(after(Some(SourceState::Ok), true), NoEnergy::NotOnGpu);
        assert_eq!(after(Some(SourceState::Absent("no driver".into())), false), NoEnergy::NotOnGpu);
    }

    #[test]
    fn no_generated_token_costs_no_certain_number_of_joules() {
        let store = store(LOCAL, "8", &[process(8, &[0])], 1).0;
        let mut end = Time(1_060_000);
        for _ in 0..10 {
            end = end + 1000;
            let mut batch = Batch::new(SourceId::Engine(0), end, 3500);
            batch.push(Subject::Engine(0), Metric::PromptTokens, 600_000.0);
            batch.push(Subject::Engine(0), Metric::GenerationTokens, 60_000.0);
            store.push(&batch);
            let mut batch = Batch::new(SourceId::Process, end, 3500);
            batch.processes = Some(vec![process(8, &[0])]);
            store.push(&batch);
            let mut batch = Batch::new(SourceId::Nvml, end, 3500);
            batch.push(Subject::Gpu(0), Metric::Energy, 30_000.0 + 100.0 * (end.0 as f64 - 1_060_000.0) / 1000.0);
            store.push(&batch);
        }
        let energy = energy(&store.read(), 0, Window::last(end, 5000)).unwrap();
        assert_eq!(energy.generated_per_joule, Reading::Value(0.0));
        assert_eq!(energy.joules_per_generated, Reading::Missing(Why::NotYet));
    }

    /// Two GPUs read 10 ms apart, a second each; both take 100 W up to second 50 and 500 W after it.
    #[test]
    fn joules_of_gpus_read_one_after_the_other_are_of_the_same_time() {
        let (store, start) = (Store::new(Retention::HOUR), Time(1_000_000));
        for second in 0..=55_u64 {
            let (at, s) = (start + second * 1000, second as f64);
            let mut batch = Batch::new(SourceId::Engine(0), at, 3500);
            batch.fact(Subject::Engine(0), FactKey::Url, LOCAL);
            batch.fact(Subject::Engine(0), FactKey::Pids, "8");
            batch.push(Subject::Engine(0), Metric::GenerationTokens, 1200.0 * s);
            store.push(&batch);
            let mut batch = Batch::new(SourceId::Process, at, 3500);
            batch.processes = Some(vec![process(8, &[0, 1])]);
            store.push(&batch);
            for gpu in 0..2_u8 {
                let mut batch = Batch::new(SourceId::Nvml, at + 10 * u64::from(gpu), 3500);
                batch.push(Subject::Gpu(gpu), Metric::Energy, 100.0 * s + 400.0 * (s - 50.0).max(0.0));
                store.push(&batch);
            }
        }
        let of = |end, ms| energy(&store.read(), 0, Window::last(start + end, ms)).unwrap();
        let near = |reading: Reading, want: f64| reading.value().is_some_and(|got| (got - want).abs() < 1e-6);
        let energy = of(55_500, 10_000);
        assert!((energy.watts - 600.0).abs() < 1e-6 && near(energy.generated_per_joule, 2.0), "{energy:?}");
        let from_the_start = of(5_500, 60_000);
        assert!(near(from_the_start.generated_per_joule, 6.0), "{from_the_start:?}");
    }

    /// Scrapes every 5 s, half way between the readings of the counter: the edges differ by 5 s in all.
    #[test]
    fn edges_that_differ_by_more_than_a_tenth_give_no_figure() {
        let (store, start) = (Store::new(Retention::HOUR), Time(1_000_000));
        for half in 0..=400_u64 {
            let at = start + half * 500;
            let mut batch = Batch::new(SourceId::Engine(0), at, 15_000);
            batch.fact(Subject::Engine(0), FactKey::Url, LOCAL);
            batch.fact(Subject::Engine(0), FactKey::Pids, "8");
            if half % 10 == 5 {
                batch.push(Subject::Engine(0), Metric::PromptTokens, 5000.0 * half as f64);
                batch.push(Subject::Engine(0), Metric::GenerationTokens, 500.0 * half as f64);
                store.push(&batch);
            }
            let mut batch = Batch::new(SourceId::Process, at, 3500);
            batch.processes = Some(vec![process(8, &[0])]);
            store.push(&batch);
            if half % 20 == 0 {
                let mut batch = Batch::new(SourceId::Nvml, at, 35_000);
                batch.push(Subject::Gpu(0), Metric::Energy, 250.0 * half as f64);
                store.push(&batch);
            }
        }
        let of = |ms| energy(&store.read(), 0, Window::last(start + 200_000, ms));
        assert_eq!(of(40_000), Err(NoEnergy::Apart(Why::NotYet)), "5 s of 40");
        let energy = of(60_000).unwrap();
        assert_eq!((energy.measured_ms, energy.watts), (60_000, 500.0), "5 s of 60");
        assert!(energy.generated_per_joule.value().is_some_and(|ratio| (ratio - 2.0).abs() < 1e-6));
        assert!(energy.all_per_joule.value().is_some_and(|ratio| (ratio - 22.0).abs() < 1e-6));
    }
}
