//! What becomes of the NVML sampler when the driver does: calls that never come back, errors in place of every answer,
//! garbage, GPUs that come and go, MIG. tests/nvml.rs has what a driver in order says.
//!
//! Each case compiles tests/fake-nvml/fake.c for itself. Waiting is always for something to happen, never for a time to pass.

#[path = "fake-nvml/mod.rs"]
mod fake_nvml;
#[path = "fake-nvml/run.rs"]
mod run;

use run::{Fake, Run, latest, state};
use warptop::model::metric::Domain;
use warptop::model::{FactKey, Metric, Reading, SourceState, Subject, Why};

/// Fault: driver: any of its functions never comes back, from the first call or a later one
/// Seen: state `NVML has not answered for` so many seconds, and while doing what; values are failed
/// Works: everything else: no other thread waits for it
/// Recovers: when the call comes back
#[test]
fn a_hang_in_any_function_is_said() {
    let all = Fake::new(&["NOTE_CALLS"]);
    let run = Run::new(&all.library);
    run.until_read(1);
    run.until("what is asked every 10 s", |_| all.notes("call-").contains(&"nvmlDeviceGetComputeMode".to_owned()));
    let mut functions = all.notes("call-");
    assert!(functions.len() > 35, "{functions:?}");
    // Those that only the end of a session calls; and that of closing is tested below.
    functions.retain(|name| !name.ends_with("Free") || name == "nvmlGpmSampleFree");
    let hang = |name: &str, nth: u32| {
        let fake = Fake::new(&[&format!("HANG_IN=\"{name}\""), &format!("HANG_NTH={nth}")]);
        let run = Run::new(&fake.library);
        (name.to_owned(), fake, run)
    };
    let second =
        ["nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2", "nvmlGpmSampleGet"].map(|name| hang(name, 2));
    let runs: Vec<_> = functions.iter().map(|name| hang(name, 1)).chain(second).collect();
    for (name, _fake, run) in &runs {
        run.until(name, |data| matches!(state(data), SourceState::Stalled(_)));
        let why = run.state();
        assert!(why.why().contains("NVML has not answered for"), "{name}: {why:?}");
        assert!(why.why().contains("while"), "{name}: {why:?}");
    }
}

/// Fault: driver: loading its library crashes or ends the process (start-up code, a damaged file)
/// Seen: state `the NVIDIA library`, `signal 11` or `exit code 0`, `while it was loaded`, and to install it again
/// Works: engines, host, processes: a process of its own tries it first
/// Recovers: it is tried again every 10 s
#[test]
fn a_library_that_cannot_survive_its_start_is_not_loaded() {
    let loader = env!("CARGO_BIN_EXE_warptop");
    for (start, how) in [("*(volatile int *)16=1", "signal 11"), ("exit(0)", "exit code 0")] {
        let fake = Fake::new(&[&format!("START={start}")]);
        let run = Run::loaded_by(loader, &fake.library);
        run.until(how, |data| matches!(state(data), SourceState::Failed(_)));
        let state = run.state();
        assert!(state.why().contains("the NVIDIA library") && state.why().contains(how), "{state:?}");
        assert!(state.why().contains("while it was loaded"), "{state:?}");
    }
    let fine = Fake::new(&[]);
    Run::loaded_by(loader, &fine.library).until_read(1);
}

/// Fault: driver: every question gets the same error (unknown error, version mismatch, shut down, GPU lost, reset due)
/// Seen: state `the driver answers no question about any GPU`, what the error means and what to do; values are failed
/// Works: engines, host, processes
/// Recovers: at once when it answers again; after 5 s warptop closes the driver and opens it every 10 s
#[test]
fn the_same_error_for_everything_is_said_and_passes() {
    let cases = [
        ("999", "see whether nvidia-smi works, and look for NVRM and Xid in dmesg"),
        ("18", "the NVIDIA library and the loaded kernel module have different versions"),
        ("1", "the driver was shut down or restarted"),
        ("9", "the kernel module is not loaded any more"),
        ("15", "the GPU is lost, the driver cannot reach it"),
        ("16", "the GPU is lost until it is reset"),
    ];
    let runs = cases.map(|(error, words)| {
        let fake = Fake::new(&[]);
        let run = Run::new(&fake.library);
        (fake, run, error, words)
    });
    for (fake, run, error, _) in &runs {
        run.until_read(1);
        fake.set("all", error);
    }
    for (fake, run, error, words) in &runs {
        run.until(words, |data| matches!(state(data), SourceState::Failed(_)));
        let why = run.state();
        let said = why.why().contains("the driver answers no question about any GPU") && why.why().contains(words);
        assert!(said || why.why().contains("cannot be opened"), "{error}: {why:?}");
        run.until("no values", |data| {
            [Metric::Power, Metric::SmActive, Metric::GpuMemUsed, Metric::Temp]
                .iter()
                .all(|metric| latest(data, 1, *metric) == Reading::Missing(Why::Failed))
        });
        // It is let go, so that it can be reset or loaded anew, and opened again.
        run.until("the driver to be closed", |_| fake.noted("shutdown"));
        run.until("another attempt", |data| state(data).why().contains("GPUs 0 and 1 cannot be opened"));
        assert!(run.state().why().contains(words), "{error}: {:?}", run.state());
        std::fs::remove_file(fake.library.with_file_name("all")).unwrap_or_else(|error| panic!("{error}"));
    }
    for (_, run, ..) in &runs {
        run.until("the recovery", |data| {
            state(data) == SourceState::Ok && latest(data, 1, Metric::SmActive) == Reading::Value(81.25)
        });
    }
}

/// Fault: driver: updated under warptop, so that it cannot be opened again until the module is loaded anew
/// Seen: state `different versions (the driver was updated)`, and to reboot or reload the module
/// Works: engines, host, processes
/// Recovers: within 10 s after the module is back, on the same thread
#[test]
fn a_driver_that_is_updated_is_opened_when_it_is_back() {
    let fake = Fake::new(&["DRIVER=\"580.1\""]);
    let run = Run::new(&fake.library);
    run.until_read(1);
    fake.set("all", "18");
    fake.control("init");
    run.until("the driver to be closed", |_| fake.noted("shutdown"));
    run.until("the attempt to open it", |data| {
        state(data).why().contains("different versions (the driver was updated)")
            && !state(data).why().contains("any GPU")
    });
    assert!(state(&run.store.read()).why().contains("reload the module"));
    let threads = || std::fs::read_dir("/proc/self/task").into_iter().flatten().count();
    let before = threads();
    fake.release("all");
    fake.release("init");
    run.until("the driver", |data| {
        state(data) == SourceState::Ok && latest(data, 0, Metric::SmActive) == Reading::Value(81.25)
    });
    assert!(threads() <= before + 40, "other tests have threads too, but none was left behind for each attempt");
}

/// Fault: driver: garbage in place of every number: NaN, all bits, beyond 100 %, counters that jump
/// Seen: `failed` in place of the value
/// Works: every value that can be
/// Recovers: with the first value that can be
#[test]
fn garbage_is_no_number_anywhere() {
    let fake = Fake::new(&["GPUS=4"]);
    fake.control("garbage");
    let run = Run::new(&fake.library);
    // Twenty readings of the fast class, and some of the others.
    let newest = |data: &warptop::store::Data| data.latest(Subject::Gpu(3), Metric::Power, data.newest()).at;
    for _ in 0..30 {
        let before = newest(&run.store.read());
        run.until("the next reading", |data| newest(data) > before);
    }
    let batches: Vec<_> = run.batches.try_iter().collect();
    let samples = batches.iter().flat_map(|batch| &batch.samples).filter(|s| s.metric.domain() == Domain::Gpu);
    let (mut failed, mut most) = (0, std::collections::HashMap::new());
    for sample in samples {
        match sample.reading {
            Reading::Missing(why) => failed += usize::from(why.word() == "failed"),
            Reading::Value(value) => {
                let seen: &mut f64 = most.entry(sample.metric).or_default();
                *seen = seen.max(value);
                assert!(value >= 0.0, "{sample:?}");
            }
        }
    }
    assert!(failed > 500, "{failed}");
    let bounded = |metric, bound: f64| {
        let seen = most.get(&metric).copied().unwrap_or_default();
        assert!(seen <= bound, "{metric:?} {seen}");
    };
    for metric in
        [Metric::SmActive, Metric::SmOccupancy, Metric::TensorActive, Metric::UtilGpuTime, Metric::UtilMemTime]
    {
        bounded(metric, 100.0);
    }
    for (metric, bound) in [
        (Metric::Power, 10_000.0),
        (Metric::PowerLimit, 10_000.0),
        (Metric::Temp, 150.0),
        (Metric::SmClock, 1e5),
        (Metric::GpuMemUsed, 4.4e12),
        (Metric::PcieGen, 15.0),
        (Metric::NvlinkRx, 2e13),
        (Metric::DramPeak, 3e14),
    ] {
        bounded(metric, bound);
    }
    // A flag that is neither 0 nor 1 is no fault of the GPU.
    bounded(Metric::RemapPending, 0.0);
    let data = run.store.read();
    let cuda = data.fact(Subject::Host, FactKey::CudaDriver, data.newest()).unwrap_or_default();
    assert!(!cuda.contains('-') && cuda.len() < 8, "{cuda}");
    // Counters are rates there: none may be beyond what a GPU can do.
    let window = warptop::store::Window::last(data.newest(), 60_000);
    for (metric, most) in [(Metric::Energy, 10_000.0), (Metric::ThrottledPowerCap, 10_000.0)] {
        for gpu in 0..4 {
            let rate = data.mean(Subject::Gpu(gpu), metric, window).value().unwrap_or_default();
            assert!((0.0..=most).contains(&rate), "{metric:?} {rate}");
        }
    }
    drop(data);
    fake.release("garbage");
    run.until("numbers", |data| latest(data, 0, Metric::Power) == Reading::Value(641.265));
}

/// Fault: driver: more or fewer GPUs in mid-run, or another device under the same number
/// Seen: `GPUs 1 and 2 (NVIDIA Unheard Of) are gone: the driver shows 1 now`, `GPU 0 is another device than before`; a new GPU is shown
/// Works: the GPUs that stay
/// Recovers: the driver is opened again within 20 s
#[test]
fn gpus_that_come_and_go_are_noticed() {
    let fake = Fake::new(&[]);
    let run = Run::new(&fake.library);
    run.until_read(1);
    fake.set("count", "3");
    run.until("a third GPU", |data| latest(data, 2, Metric::Power) == Reading::Value(641.265));
    assert_eq!(run.state(), SourceState::Ok);
    fake.set("count", "1");
    fake.control("other");
    run.until("the loss", |data| {
        state(data).why().contains("GPUs 1 and 2 (NVIDIA Unheard Of) are gone: the driver shows 1 now")
    });
    assert!(run.state().why().contains("GPU 0 is another device than before"), "{:?}", run.state());
    assert!(matches!(run.state(), SourceState::Degraded(_)));
    run.until("the GPU that stays", |data| latest(data, 0, Metric::SmActive) == Reading::Value(81.25));
    run.until("stale values", |data| latest(data, 1, Metric::Power).value().is_none());
    let data = run.store.read();
    let trouble = |gpu| data.fact(Subject::Gpu(gpu), FactKey::Trouble, data.newest()).unwrap_or_default();
    assert_eq!((trouble(0), trouble(1)), ("", "it is gone: the driver shows 1 now"), "of each GPU its own");
}

/// Fault: driver: a count of 2,000,000,000 GPUs
/// Seen: `the driver counts 2000000000 GPUs, of which the first 64 are read`
/// Works: those 64
/// Recovers: with the first count that can be, within 20 s
#[test]
fn a_count_of_gpus_that_cannot_be_costs_nothing() {
    let fake = Fake::new(&[]);
    fake.set("count", "2000000000");
    let run = Run::new(&fake.library);
    let words = "the driver counts 2000000000 GPUs, of which the first 64 are read";
    run.until("the words", |data| state(data).why().contains(words));
    run.until("the last of them", |data| latest(data, 63, Metric::Power) == Reading::Value(641.265));
    fake.set("count", "2");
    run.until("no words", |data| !state(data).why().contains("GPUs, of which"));
}

/// Fault: driver: a GPU is split into instances (MIG)
/// Seen: state `GPU 0 is split into instances (MIG)`, its instances, and `n/a` for utilisation and activity of the whole
/// Works: clocks, power, memory, temperatures, processes; with a DCGM exporter activity too
/// Recovers: what is split is looked at every 10 s
#[test]
fn a_gpu_in_mig_mode_says_what_is_not_told() {
    let fake = Fake::new(&["MIG"]);
    let run = Run::new(&fake.library);
    run.until_read(1);
    run.until("the instances", |data| {
        data.fact(Subject::Gpu(0), FactKey::Instances, data.newest()) == Some("3g.71gb, 2g.35gb")
    });
    let why = run.state();
    assert!(matches!(&why, SourceState::Degraded(_)), "{why:?}");
    assert!(why.why().contains("GPU 0 is split into instances (MIG)") && !why.why().contains("GPU 1"), "{why:?}");
    for metric in [Metric::UtilGpuTime, Metric::SmActive, Metric::DramActive] {
        let missing = run.latest(0, metric).why();
        assert_eq!(missing.map(Why::word), Some("n/a"), "{metric:?}");
    }
    assert_eq!(run.latest(1, Metric::SmActive), Reading::Value(81.25));
    assert_eq!(run.latest(0, Metric::Power), Reading::Value(641.265));
    assert_eq!(run.latest(0, Metric::GpuProcesses), Reading::Value(1.0), "one process on two instances");
    let data = run.store.read();
    let process = data.gpu_processes().iter().find(|process| process.gpu == 0).map(|process| process.mem);
    assert_eq!(process, Some(Reading::Value(40_638_611_456.0)), "with the memory of both");
    let source = data.fact(Subject::Gpu(0), FactKey::ActivitySource, data.newest());
    assert_eq!(source, Some("time"), "so that an exporter may say it");
}

/// Fault: driver: the same is wrong with many GPUs
/// Seen: `GPUs 0 to 7: activity counters (GPM) are for administrators only`, once
/// Works: everything else
/// Recovers: each GPU by itself
#[test]
fn the_same_note_of_many_gpus_is_said_once() {
    let fake = Fake::new(&["GPM_DENIED", "GPUS=8"]);
    let run = Run::new(&fake.library);
    let words = "GPUs 0 to 7: activity counters (GPM) are for administrators only";
    run.until(words, |data| state(data).why().contains(words));
    assert_eq!(run.state().why().matches("activity counters").count(), 1, "{:?}", run.state());
}

/// Fault: driver: hundreds of processes on a GPU
/// Seen: all are counted, however many have a row
/// Works: everything
/// Recovers: nothing to recover from
#[test]
fn every_process_is_counted() {
    let fake = Fake::new(&["PROCESSES=200", "GPUS=16"]);
    let run = Run::new(&fake.library);
    run.until_read(15);
    assert_eq!(run.latest(0, Metric::GpuProcesses), Reading::Value(200.0));
    assert_eq!(run.store.read().gpu_processes().iter().filter(|process| process.gpu == 0).count(), 200);
    assert_eq!(run.store.read().gpus().count(), 16);
    assert_eq!(run.latest(15, Metric::SmActive), Reading::Value(81.25));
}

/// Fault: driver: it asks for room for four billion processes
/// Seen: `failed` in place of the number of processes
/// Works: everything else of that GPU
/// Recovers: with the first list that can be
#[test]
fn a_list_of_absurd_length_is_not_made_room_for() {
    let fake = Fake::new(&["PROCESSES_LIE"]);
    let run = Run::new(&fake.library);
    run.until_read(0);
    assert_eq!(run.latest(0, Metric::GpuProcesses).why().map(Why::word), Some("failed"));
    assert_eq!(run.latest(0, Metric::SmActive), Reading::Value(81.25));
}
