//! The NVML sampler against a library that answers as told: what lands in the store in each case, and
//! that nothing is called that must not be.
//!
//! Each case compiles tests/fake-nvml/fake.c for itself, so that the cases can run side by side. Waiting
//! is always for something to happen, never for a time to pass.
#![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

#[path = "fake-nvml/mod.rs"]
mod fake_nvml;
#[path = "fake-nvml/run.rs"]
mod run;
mod support;

use run::{Fake, Run, latest, state};
use warptop::model::{Batch, FactKey, Metric, ProcessSample, Reading, SourceId, SourceState, Subject, Why};
use warptop::store::{Data, Window};

#[test]
fn everything_a_gpu_says_lands_in_the_store() {
    let fake = Fake::new(&[]);
    let run = Run::new(&fake.library);
    run.until_read(1);
    let expected = [
        (Metric::SmActive, 81.25),
        (Metric::SmOccupancy, 17.9),
        (Metric::TensorActive, 76.0),
        (Metric::DramActive, 46.1),
        (Metric::PcieTx, 1.5 * 1_048_576.0),
        (Metric::PcieRx, 26.0 * 1_048_576.0),
        (Metric::NvlinkRx, 100.0 * 1_048_576.0),
        (Metric::UtilGpuTime, 97.0),
        (Metric::UtilMemTime, 62.0),
        (Metric::SmClock, 1575.0),
        (Metric::MemClock, 3201.0),
        (Metric::SmClockMax, 1980.0),
        (Metric::Power, 641.265),
        (Metric::PowerLimit, 700.0),
        (Metric::ThrottleReasons, f64::from(0x10004)),
        (Metric::GpuMemUsed, 40_646_000_000.0),
        (Metric::GpuMemTotal, 150_754_820_096.0),
        (Metric::Temp, 57.0),
        (Metric::MemTemp, 52.0),
        (Metric::TempSlowdown, 89.0),
        (Metric::TempShutdown, 95.0),
        (Metric::MemTempMax, 96.0),
        (Metric::PcieGen, 4.0),
        (Metric::PcieWidth, 8.0),
        (Metric::PcieGenMax, 5.0),
        (Metric::PcieWidthMax, 16.0),
        (Metric::EccCorrected, 12.0),
        (Metric::EccUncorrected, 3.0),
        (Metric::RemappedRows, 3.0),
        (Metric::RemapPending, 1.0),
        (Metric::GpuProcesses, 1.0),
        (Metric::ComputeMode, 3.0),
        (Metric::XidErrors, 0.0),
        (Metric::NvlinkLinks, 18.0),
        (Metric::NvlinkLinksUp, 17.0),
        (Metric::P2pPeersBlocked, 0.0),
        (Metric::DramPeak, 4.8e12),
    ];
    for (metric, value) in expected {
        assert_eq!(run.latest(0, metric), Reading::Value(value), "{metric:?}");
    }
    assert_eq!(run.latest(0, Metric::NvlinkTx), Reading::Missing(Why::Unsupported));
    assert_eq!(run.latest(1, Metric::NvlinkLinks), Reading::Missing(Why::Unsupported), "a GPU without NVLink");
    assert_eq!(run.latest(1, Metric::P2pPeersBlocked), Reading::Value(1.0));
    assert_eq!(run.latest(1, Metric::UtilGpuTime), Reading::Value(96.0));
    assert_eq!(run.latest(1, Metric::DramPeak), Reading::Value(1000e6 * 2.0 * 512.0 / 8.0));
    assert_eq!(run.state(), SourceState::Ok);
    let data = run.store.read();
    assert_eq!(data.gpus().collect::<Vec<_>>(), [0, 1]);
    assert_eq!(data.fact(Subject::Gpu(0), FactKey::Name, data.newest()), Some("NVIDIA H200"));
    assert_eq!(data.fact(Subject::Gpu(1), FactKey::Name, data.newest()), Some("NVIDIA Unheard Of"));
    assert_eq!(data.fact(Subject::Gpu(1), FactKey::Uuid, data.newest()), Some("GPU-fake-1"));
    assert_eq!(data.fact(Subject::Gpu(0), FactKey::ActivitySource, data.newest()), Some("gpm"));
    assert_eq!(data.fact(Subject::Gpu(0), FactKey::DramPeakSource, data.newest()), Some("datasheet"));
    assert_eq!(data.fact(Subject::Host, FactKey::Driver, data.newest()), Some("580.159.04"));
    assert_eq!(data.fact(Subject::Host, FactKey::CudaDriver, data.newest()), Some("13.0"));
    let processes: Vec<_> = data.gpu_processes().iter().map(|p| (p.gpu, p.pid, p.mem)).collect();
    assert_eq!(
        processes,
        [(0, 4242, Reading::Value(40_638_611_456.0)), (1, 4243, Reading::Missing(Why::Unsupported))],
        "a process in both lists is one"
    );
    assert!(!fake.noted("forbidden") && !fake.noted("gpm-gap"));
}

/// Fault: driver: Xid errors
/// Seen: their number, and a finding
/// Works: everything
/// Recovers: nothing to recover from
#[test]
fn xid_errors_are_counted_as_they_come_and_where_they_are_told() {
    let fake = Fake::new(&[]);
    let run = Run::new(&fake.library);
    run.until_read(1);
    for n in [1.0, 2.0] {
        fake.control("xid");
        run.until("an Xid error", |data| latest(data, 0, Metric::XidErrors) == Reading::Value(n));
    }
    assert_eq!(run.latest(1, Metric::XidErrors), Reading::Missing(Why::Unsupported));
    assert!(!fake.noted("forbidden"), "only critical errors are asked for, and none is waited for");
}

/// Shares of the processes on GPU 0.
fn shares(data: &Data) -> Vec<(u32, Reading)> {
    data.gpu_processes().iter().filter(|p| p.gpu == 0).map(|p| (p.pid, p.share)).collect()
}

#[test]
fn processes_that_share_a_gpu_have_their_shares_and_others_are_not_asked_for() {
    let fake = Fake::new(&["SHARED", "LINKS=4"]);
    let run = Run::new(&fake.library);
    let value = |share: f64| Reading::Value(share);
    run.until("shares", |data| shares(data) == [(4242, value(62.0)), (4244, value(0.0))]);
    let of_gpu_1 = run.store.read().gpu_processes().iter().find(|p| p.gpu == 1).unwrap().share;
    assert_eq!(of_gpu_1, Reading::Missing(Why::NotYet), "one process, of which nobody knows that it is no engine's");
    assert_eq!(run.latest(0, Metric::NvlinkLinksUp), Reading::Value(3.0));
    fake.control("quiet");
    run.until("the driver to have nothing new", |data| shares(data)[0].1 == Reading::Missing(Why::NotYet));
    fake.release("quiet");
    run.until("shares again", |data| shares(data)[0].1 == value(62.0));
    assert!(!fake.noted("forbidden") && !fake.noted("asked-1"));
}

#[test]
fn a_process_that_is_no_engine_is_asked_for_also_when_it_is_alone() {
    let fake = Fake::new(&["SHARED"]);
    let run = Run::new(&fake.library);
    run.until_read(1);
    let command = |command: &str| {
        let gpus = vec![(1, Reading::Value(1.0))];
        let row = ProcessSample { pid: 4243, command: command.into(), gpus, ..ProcessSample::default() };
        let mut batch = Batch::new(SourceId::Process, run.clock.now(), 3500);
        batch.processes = Some(vec![row]);
        run.store.push(&batch);
    };
    let asked = || fake.noted("asked-1");
    command("VLLM::EngineCore");
    let reading =
        |data: &Data| data.series(Subject::Gpu(1), Metric::Temp).and_then(|temp| temp.latest(data.newest()).at);
    for _ in 0..3 {
        let before = reading(&run.store.read());
        run.until("the next reading", |data| reading(data) > before);
    }
    assert!(!asked());
    command("python train.py");
    run.until("the question", |_| asked());
}

/// Fault: driver: does not say how processes share a GPU
/// Seen: n/a for their shares
/// Works: their memory, everything else
/// Recovers: asked again every 10 s
#[test]
fn shares_that_the_driver_does_not_tell_are_missing() {
    let fake = Fake::new(&["SHARED", "SHARED_REFUSED"]);
    let run = Run::new(&fake.library);
    let missing = Reading::Missing(Why::Unsupported);
    run.until("the refusal", |data| shares(data) == [(4242, missing), (4244, missing)]);
}

/// Fault: driver: does not list processes
/// Seen: n/a, not 0 processes
/// Works: everything else
/// Recovers: nothing to recover from
#[test]
fn an_empty_list_of_processes_is_not_taken_for_a_free_gpu() {
    let fake = Fake::new(&["NO_LIST"]);
    let run = Run::new(&fake.library);
    run.until_read(1);
    assert_eq!(run.latest(1, Metric::GpuProcesses), Reading::Missing(Why::Unsupported));
}

#[test]
fn counters_are_totals_and_each_class_has_its_validity() {
    let fake = Fake::new(&[]);
    let run = Run::new(&fake.library);
    run.until_read(0);
    run.stop.stop();
    let batches: Vec<_> = run.batches.try_iter().collect();
    assert!(batches.iter().all(|batch| batch.source == SourceId::Nvml));
    let of = |metric| first(&batches, metric);
    assert_eq!(of(Metric::Power), (Reading::Value(641.265), 1500));
    assert_eq!(of(Metric::ThrottledPowerCap).0, Reading::Value(28_227.811_776));
    assert_eq!(of(Metric::ThrottledSyncBoost).0, Reading::Value(0.0));
    assert_eq!(of(Metric::ThrottledSwThermal).0, Reading::Value(1.0), "the field's new number");
    assert_eq!(of(Metric::ThrottledHwThermal).0, Reading::Value(2.5));
    assert_eq!(of(Metric::ThrottledPowerBrake).0, Reading::Missing(Why::Unsupported));
    assert_eq!(of(Metric::Energy), (Reading::Value(76_844.6), 30_000));
    assert_eq!(of(Metric::PowerLimit).1, 30_000);
    assert_eq!(of(Metric::TempSlowdown).1, Batch::FOREVER);
}

/// The first reading of GPU 0's metric as the sampler handed it on, and how long it is valid.
fn first(batches: &[Batch], metric: Metric) -> (Reading, u32) {
    let find = |batch: &Batch| {
        let sample = batch.samples.iter().find(|s| s.subject == Subject::Gpu(0) && s.metric == metric)?;
        Some((sample.reading, batch.valid_ms))
    };
    batches.iter().find_map(find).unwrap()
}

#[test]
fn counters_that_are_dear_are_read_seldom() {
    let fake = Fake::new(&["FIELDS_US=2000"]);
    let run = Run::new(&fake.library);
    run.until_read(0);
    let batches: Vec<_> = run.batches.try_iter().collect();
    assert_eq!(first(&batches, Metric::ThrottledPowerCap), (Reading::Value(28_227.811_776), 3500));
    assert_eq!(first(&batches, Metric::ThrottledPowerBrake).0, Reading::Missing(Why::Unsupported));
}

/// Fault: driver: an old one without newer functions
/// Seen: the same figures, from older functions; n/a where there is none
/// Works: everything it has
/// Recovers: nothing to recover from
#[test]
fn an_older_driver_counts_throttled_time_as_violations() {
    let fake = Fake::new(&["OLD_DRIVER", "DRIVER=\"470.1\""]);
    let run = Run::new(&fake.library);
    run.until_read(0);
    let batches: Vec<_> = run.batches.try_iter().collect();
    assert_eq!(first(&batches, Metric::ThrottledPowerCap).0, Reading::Value(7000.0));
    assert_eq!(first(&batches, Metric::ThrottledSwThermal).0, Reading::Value(8000.0));
    assert_eq!(run.latest(0, Metric::ThrottledHwThermal), Reading::Missing(Why::Unsupported));
}

/// Fault: driver: a new one that dropped old functions
/// Seen: the same figures, from newer functions
/// Works: everything
/// Recovers: nothing to recover from
#[test]
fn a_newer_driver_without_the_old_calls_is_read_by_the_new_ones() {
    let fake = Fake::new(&["NEW_DRIVER"]);
    let run = Run::new(&fake.library);
    run.until_read(0);
    assert_eq!(run.latest(0, Metric::Temp), Reading::Value(58.0));
}

/// Fault: driver: a GPU that refuses every question but its name
/// Seen: n/a everywhere
/// Works: its name and place, other GPUs
/// Recovers: what was refused is asked again every 10 s
#[test]
fn a_gpu_that_offers_nothing_is_shown_as_that() {
    let fake = Fake::new(&["NOT_SUPPORTED"]);
    let run = Run::new(&fake.library);
    run.until_read(1);
    for metric in [Metric::SmActive, Metric::UtilGpuTime, Metric::GpuMemUsed, Metric::Energy, Metric::RemappedRows] {
        assert_eq!(run.latest(1, metric), Reading::Missing(Why::Unsupported), "{metric:?}");
    }
    assert_eq!(run.latest(0, Metric::ThrottledPowerCap), Reading::Missing(Why::Unsupported));
    assert_eq!(run.state(), SourceState::Ok);
    assert_eq!(run.store.read().gpus().count(), 2);
}

/// What an exporter would say about GPUs of these UUIDs: SM active 50 %, 99 W, and how often it was asked.
fn exporter(uuids: &[&str]) -> (support::Server, Arc<AtomicU32>) {
    let rows = uuids.iter().enumerate().map(|(i, uuid)| {
        let labels = format!("{{gpu=\"{i}\",UUID=\"{uuid}\",modelName=\"NVIDIA A100\"}}");
        format!("DCGM_FI_PROF_SM_ACTIVE{labels} 0.5\nDCGM_FI_DEV_POWER_USAGE{labels} 99\n")
    });
    let (body, asked) = (rows.collect::<String>(), Arc::new(AtomicU32::new(0)));
    let count = Arc::clone(&asked);
    let server = support::Server::start(move |_, stream| {
        count.fetch_add(1, Ordering::SeqCst);
        drop(stream.write_all(&support::http("200 OK", "text/plain", body.as_bytes())));
    });
    (server, asked)
}

#[test]
fn an_exporter_gives_the_activity_that_the_driver_does_not_and_nothing_else() {
    let fake = Fake::new(&["NO_GPM"]);
    let (server, _) = exporter(&["GPU-other", "GPU-fake-0"]);
    let run = Run::with_exporter(&fake.library, 100, Some(server.url()));
    run.until("the exporter's value", |data| latest(data, 0, Metric::SmActive) == Reading::Value(50.0));
    run.until_read(0);
    let data = run.store.read();
    assert_eq!(latest(&data, 0, Metric::Power), Reading::Value(641.265), "of the driver");
    assert_eq!(latest(&data, 1, Metric::SmActive), Reading::Missing(Why::Unsupported), "not in its answer");
    let fact = |gpu, key| data.fact(Subject::Gpu(gpu), key, data.newest());
    assert_eq!((fact(0, FactKey::ActivitySource), fact(1, FactKey::ActivitySource)), (Some("dcgm"), Some("time")));
    assert_eq!(fact(0, FactKey::Name), Some("NVIDIA H200"), "of the driver");
    assert_eq!(state(&data), SourceState::Ok, "a driver without GPM lacks nothing that it should give");
}

/// Fault: driver: it denies activity (GPM), or fails in it, and a DCGM exporter is named
/// Seen: the exporter's activity, and `the driver gives no activity (GPM)`
/// Works: everything else of the driver
/// Recovers: with the driver's first value, which is shown again
#[test]
fn an_exporter_stands_in_while_the_driver_denies_activity_or_fails() {
    for error in ["4", "999"] {
        let fake = Fake::new(&[]);
        fake.set("gpm", error);
        let (server, _) = exporter(&["GPU-fake-0", "GPU-fake-1"]);
        let run = Run::with_exporter(&fake.library, 100, Some(server.url()));
        run.until("the exporter's value", |data| latest(data, 0, Metric::SmActive) == Reading::Value(50.0));
        let source = |data: &Data| data.fact(Subject::Gpu(0), FactKey::ActivitySource, data.newest()) == Some("dcgm");
        run.until("its name", source);
        run.until("words", |data| state(data).why().contains("the driver gives no activity (GPM)"));
        run.until_read(0);
        assert_eq!(run.latest(0, Metric::Power), Reading::Value(641.265), "of the driver");
        let why = if error == "4" { Why::NotPermitted } else { Why::Failed };
        assert_eq!(run.latest(0, Metric::PcieRx), Reading::Missing(why), "the exporter does not have it");
        fake.release("gpm");
        run.until("the driver's value", |data| latest(data, 0, Metric::SmActive) == Reading::Value(81.25));
        run.until("its name", |data| !source(data));
    }
}

#[test]
fn where_the_driver_gives_activity_the_exporter_is_left_alone() {
    let fake = Fake::new(&[]);
    let (server, asked) = exporter(&["GPU-fake-0", "GPU-fake-1"]);
    let run = Run::with_exporter(&fake.library, 100, Some(server.url()));
    run.until_read(1);
    run.until("words that it is not asked", |data| {
        let state = data.source(SourceId::Dcgm).map(|source| source.state_at(data.newest()).why().to_owned());
        state.is_some_and(|why| why.contains("the exporter of --dcgm is not asked"))
    });
    assert_eq!(run.latest(0, Metric::SmActive), Reading::Value(81.25));
    assert_eq!(asked.load(Ordering::SeqCst), 0);
}

/// Fault: driver: none, and the DCGM exporter ends
/// Seen: failed in place of values; state `connection refused`
/// Works: engines, host
/// Recovers: when the exporter answers
#[test]
fn without_a_driver_the_exporter_is_the_source_and_its_end_is_a_gap() {
    let (server, _) = exporter(&["GPU-a", "GPU-b"]);
    let run = Run::with_exporter(Path::new("/no/such/libnvidia-ml.so.1"), 100, Some(server.url()));
    run.until("values", |data| latest(data, 1, Metric::Power) == Reading::Value(99.0));
    let data = run.store.read();
    assert_eq!(data.gpus().collect::<Vec<_>>(), [0, 1]);
    assert_eq!(data.fact(Subject::Gpu(1), FactKey::Name, data.newest()), Some("NVIDIA A100"));
    drop(data);
    drop(server);
    run.until("a gap", |data| latest(data, 1, Metric::Power) == Reading::Missing(Why::Failed));
    let state = run.store.read().source(SourceId::Dcgm).map(|source| source.state_at(run.clock.now()).clone());
    assert!(state.is_some_and(|state| state.why().contains("connection refused")));
}

/// Fault: driver: no activity counters (before Hopper)
/// Seen: n/a for activity; time-based utilisation is named as that
/// Works: everything else; a DCGM exporter gives activity
/// Recovers: nothing to recover from
#[test]
fn a_gpu_without_gpm_has_only_its_time_based_utilisation() {
    let fake = Fake::new(&["NO_GPM"]);
    let run = Run::new(&fake.library);
    run.until_read(0);
    assert_eq!(run.latest(0, Metric::SmActive), Reading::Missing(Why::Unsupported));
    assert_eq!(run.latest(0, Metric::UtilGpuTime), Reading::Value(97.0));
    assert_eq!(
        run.store.read().fact(Subject::Gpu(0), FactKey::ActivitySource, warptop::model::Time(u64::MAX)),
        Some("time")
    );
    assert!(!fake.noted("forbidden"), "no sample is taken");
}

/// Fault: driver: NaN as activity
/// Seen: failed in place of that value
/// Works: all other values
/// Recovers: with the next number
#[test]
fn a_gpm_value_that_is_no_number_is_missing() {
    let fake = Fake::new(&["GPM_NAN"]);
    let run = Run::new(&fake.library);
    run.until_read(0);
    assert_eq!(run.latest(0, Metric::SmActive), Reading::Missing(Why::Failed));
    assert_eq!(run.latest(0, Metric::DramActive), Reading::Value(46.1));
}

#[test]
fn rates_follow_the_unit_that_the_driver_states() {
    let fake = Fake::new(&["GPM_UNIT=\"KB/s\""]);
    let run = Run::new(&fake.library);
    run.until_read(0);
    assert_eq!(run.latest(0, Metric::PcieRx), Reading::Value(26_000.0));
}

/// Fault: driver: activity counters for administrators only
/// Seen: denied in place of activity, and what to do: `NVreg_RestrictProfilingToAdminUsers`
/// Works: all other values
/// Recovers: when started as root
#[test]
fn activity_that_only_administrators_may_read_is_said_so() {
    let fake = Fake::new(&["GPM_DENIED"]);
    let run = Run::new(&fake.library);
    run.until("the state", |data| matches!(state(data), SourceState::Degraded(_)));
    assert_eq!(run.latest(0, Metric::SmActive), Reading::Missing(Why::NotPermitted));
    assert!(run.state().why().contains("NVreg_RestrictProfilingToAdminUsers"), "{:?}", run.state());
    run.until("the other values", |data| latest(data, 0, Metric::Power).value().is_some());
}

/// Fault: driver: no memory of its own (GB10)
/// Seen: n/a for memory in use
/// Works: memory of each process
/// Recovers: nothing to recover from
#[test]
fn memory_that_belongs_to_the_system_is_missing_while_processes_keep_theirs() {
    let fake = Fake::new(&["NO_MEMORY"]);
    let run = Run::new(&fake.library);
    run.until_read(0);
    assert_eq!(run.latest(0, Metric::GpuMemUsed), Reading::Missing(Why::Unsupported));
    assert_eq!(run.store.read().gpu_processes()[0].mem, Reading::Value(40_638_611_456.0));
}

/// Fault: driver: a GPU falls off the bus, or has to be reset
/// Seen: state `GPU 1 (NVIDIA Unheard Of) answers no question: the GPU is lost`, and what to do; its values are failed
/// Works: all other GPUs
/// Recovers: it is asked again every 10 s
#[test]
fn a_lost_gpu_is_named_and_asked_again_seldom_while_the_others_go_on() {
    let fake = Fake::new(&[]);
    let run = Run::new(&fake.library);
    run.until_read(1);
    fake.control("lost");
    run.until("the loss", |data| matches!(state(data), SourceState::Degraded(_)));
    let why = run.state();
    assert!(why.why().contains("GPU 1 (NVIDIA Unheard Of) answers no question: the GPU is lost"), "{why:?}");
    assert!(why.why().contains("Xid") && !why.why().contains("GPU 0"), "{why:?}");
    let gone = [Metric::SmActive, Metric::SmClock, Metric::Power, Metric::GpuMemUsed, Metric::ThrottledPowerCap];
    run.until("missing values", |data| {
        gone.iter().all(|&metric| latest(data, 1, metric) == Reading::Missing(Why::Failed))
    });
    run.until("its processes to go", |data| data.gpu_processes().iter().all(|p| p.gpu == 0));
    let before = run.store.read().newest();
    run.until("the others to go on", |data| {
        data.latest(Subject::Gpu(0), Metric::SmActive, data.newest()).at.is_some_and(|at| at > before + 500)
    });
    assert_eq!(run.latest(0, Metric::SmActive), Reading::Value(81.25));
    fake.release("lost");
    run.until("the GPU to be back", |data| {
        state(data) == SourceState::Ok && latest(data, 1, Metric::SmActive) == Reading::Value(81.25)
    });
}

/// Fault: driver: a reading of a GPU hangs
/// Seen: state `NVML has not answered for` so many seconds and which GPU; its values are failed, what never changes stays
/// Works: engines, host, processes; warptop ends at once
/// Recovers: when the call comes back
#[test]
fn a_call_that_hangs_is_said_so_and_nothing_waits_for_it() {
    let fake = Fake::new(&[]);
    let run = Run::new(&fake.library);
    run.until_read(1);
    fake.control("hang");
    run.until("the stall", |data| matches!(state(data), SourceState::Stalled(_)));
    let why = run.state();
    assert!(why.why().contains("NVML has not answered for") && why.why().contains("GPU 1"), "{why:?}");
    for metric in [Metric::SmActive, Metric::Power, Metric::GpuMemUsed] {
        assert_eq!(run.latest(0, metric), Reading::Missing(Why::Failed), "{metric:?} is not shown as current");
    }
    assert_eq!(run.latest(0, Metric::SmClockMax), Reading::Value(1980.0), "what never changes still holds");
    fake.release("hang");
    run.until("the recovery", |data| {
        state(data) == SourceState::Ok && latest(data, 1, Metric::SmActive) == Reading::Value(81.25)
    });
    let data = run.store.read();
    let power = data.series(Subject::Gpu(0), Metric::Power).unwrap();
    let window = Window::last(data.newest(), 60_000);
    assert_eq!(power.mean(window), Reading::Value(f64::from(641.265_f32)), "the gap is no zero");
    drop(data);
    // To end while a call hangs: stopping and reading return; the thread is left behind.
    fake.control("hang");
    run.until("the second stall", |data| matches!(state(data), SourceState::Stalled(_)));
    run.stop.stop();
    assert!(run.stop.wait(Duration::from_hours(1)), "returns at once");
    assert!(run.clock.now() >= run.store.read().newest());
    fake.release("hang");
}

/// Fault: driver: cannot be opened: other version than the kernel module, no permission, module not loaded, no GPU
/// Seen: what it is and what to do: `reboot`, `/dev/nvidiactl`, `modprobe`, `nvidia-smi`, `shows no GPU`
/// Works: engines, host, processes
/// Recovers: it is tried again every 10 s
#[test]
fn what_keeps_the_driver_from_opening_is_said_with_what_to_do() {
    for (definition, hint) in [
        ("INIT=18", "reboot"),
        ("INIT=4", "/dev/nvidiactl"),
        ("INIT=9", "modprobe"),
        ("INIT=999", "nvidia-smi"),
        ("GPUS=0", "shows no GPU"),
    ] {
        let fake = Fake::new(&[definition]);
        let run = Run::new(&fake.library);
        run.until(definition, |data| matches!(state(data), SourceState::Failed(_)));
        assert!(run.state().why().contains(hint), "{definition}: {:?}", run.state());
        assert_eq!(run.store.read().gpus().count(), 0);
    }
}

/// Fault: driver: there is none
/// Seen: nothing but the offer of the demo where nothing else is there either
/// Works: engines, host, processes; a DCGM exporter for GPUs
/// Recovers: it is tried again every 10 s
#[test]
fn no_driver_at_all_is_absent() {
    let run = Run::new(Path::new("/nowhere/libnvidia-ml.so.1"));
    run.until("a state", |data| state(data).is_down());
    if !Path::new("/proc/driver/nvidia/version").exists() {
        assert!(matches!(run.state(), SourceState::Absent(_)), "{:?}", run.state());
    }
}

/// Fault: driver: repaired or installed while warptop runs
/// Seen: its GPUs
/// Works: everything
/// Recovers: within 10 s
#[test]
fn a_driver_that_was_repaired_is_found_without_a_restart() {
    let fake = Fake::new(&[]);
    fake.control("init");
    let run = Run::new(&fake.library);
    run.until("the failure", |data| matches!(state(data), SourceState::Failed(_)));
    fake.release("init");
    run.until("the driver", |data| state(data) == SourceState::Ok);
}

/// Fault: driver: slow: reading takes more than 2 % of the time
/// Seen: state says so: `instead of 100 ms`
/// Works: every value, less often
/// Recovers: when reading is cheap again
#[test]
fn a_slow_driver_is_asked_less_often_and_that_is_said() {
    let fake = Fake::new(&["SLOW_US=10000"]);
    let run = Run::new(&fake.library);
    run.until("the back-off", |data| matches!(state(data), SourceState::Degraded(_)));
    assert!(run.state().why().contains("instead of 100 ms"), "{:?}", run.state());
    assert!(matches!(run.latest(0, Metric::UtilGpuTime), Reading::Value(_)));
}

/// Reading is all that warptop does: no call of the wrapper that sets, resets or clears anything, and
/// none that blocks, is named in the sources; and only the sampler speaks to NVML at all.
#[test]
fn no_source_file_calls_what_changes_the_machine() {
    fn rust_files(folder: &Path, out: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                rust_files(&path, out);
            } else if path.extension().is_some_and(|e| e == "rs") {
                out.push(path);
            }
        }
    }
    let sampler = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/sampler/nvml");
    let mut files = Vec::new();
    rust_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut files);
    let mut speaking = 0;
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let code: String =
            text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
        if !file.starts_with(&sampler) {
            assert!(!code.contains("nvml_wrapper"), "{} speaks to NVML", file.display());
            continue;
        }
        speaking += 1;
        let words = code.split(|c: char| !c.is_alphanumeric() && c != '_');
        for word in words {
            let changes = ["set_", "reset_", "clear_", "nvmlDeviceSet", "nvmlDeviceReset", "nvmlDeviceClear"];
            assert!(
                !changes.iter().any(|start| word.starts_with(start)) && word != "pcie_throughput",
                "{} names {word}",
                file.display()
            );
        }
    }
    assert!(speaking > 3);
}
