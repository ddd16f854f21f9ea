//! `cargo xtask import DIR OUT`: a folder of captured files becomes a recording.
//!
//! The folder holds `gpu.jsonl.gz`, `metrics.jsonl.gz`, `proc.jsonl.gz` and perhaps `vllm-start.log` or `vllm.log`.
//! Bodies of metrics go through the adapter that the live program uses, files of `/proc` through its reader; restarts are
//! told by what it tells them by, and everything becomes the batches that its samplers would have sent. Invariant: nothing
//! is said that is not in the folder or on the command line.

mod engine;
mod gpu;
mod host;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use flate2::read::MultiGzDecoder;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use warptop::model::{Batch, FactKey, Metric, Reading, SourceId, SourceState, Subject, Time, gpu_specs};
use warptop::recording::{Header, Writer};

/// How it is called.
pub(crate) const USAGE: &str = "import DIR OUT [--note TEXT] [--interval MS] [--fact gpu0.name=TEXT]… \
    [--set gpu0.sm_clock_max_mhz=1980]…   captured files into a recording";

/// What the command line says.
#[derive(Debug, Default)]
struct Options {
    paths: Vec<String>,
    note: String,
    interval_ms: u64,
    facts: Vec<(Subject, FactKey, String)>,
    values: Vec<(Subject, Metric, f64)>,
}

/// Runs the task.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    let options = parse(args)?;
    let [dir, out] = &options.paths[..] else { return Err(format!("needs DIR and OUT: {USAGE}")) };
    let dir = Path::new(dir);
    let mut batches = gpu::batches(dir)?;
    let gpus = gpus(&batches);
    let held = gpu::memory_held(&batches);
    let host = host::read(dir, &held)?;
    batches.extend(host.batches);
    batches.extend(engine::batches(dir, &host.pids)?);
    batches.sort_by_key(|batch| batch.at);
    let Some(start) = batches.first().map(|batch| batch.at) else {
        return Err(format!("'{}' holds no gpu.jsonl.gz, metrics.jsonl.gz or proc.jsonl.gz", dir.display()));
    };
    announce(&mut batches);
    batches.insert(0, once(&options, start, &gpus));
    let mut header = Header::new(start, "", options.interval_ms);
    header.note = if options.note.is_empty() { name_of(dir) } else { options.note };
    write(Path::new(out), &header, &batches).map_err(|e| format!("cannot write '{out}': {e}"))?;
    eprintln!("{out}: {} batches", batches.len());
    Ok(())
}

fn parse(args: &[String]) -> Result<Options, String> {
    let mut options = Options { interval_ms: 100, ..Options::default() };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value: {USAGE}"));
        match arg.as_str() {
            "--note" => options.note.clone_from(value()?),
            "--interval" => options.interval_ms = value()?.parse().map_err(|_| "--interval needs milliseconds")?,
            "--fact" => {
                let (subject, key, text) = assignment(value()?)?;
                let key = serde_json::from_value(key.into()).map_err(|e| e.to_string())?;
                options.facts.push((subject, key, text.to_owned()));
            }
            "--set" => {
                let (subject, key, text) = assignment(value()?)?;
                let metric = Metric::from_key(key).ok_or_else(|| format!("there is no metric '{key}'"))?;
                options.values.push((subject, metric, text.parse().map_err(|_| format!("'{text}' is no number"))?));
            }
            flag if flag.starts_with('-') => return Err(format!("unknown flag {flag}: {USAGE}")),
            path => options.paths.push(path.to_owned()),
        }
    }
    Ok(options)
}

/// `gpu0.name=NVIDIA H200` in its three parts.
fn assignment(text: &str) -> Result<(Subject, &str, &str), String> {
    let parts = text.split_once('=').and_then(|(left, value)| Some((left.split_once('.')?, value)));
    let ((subject, key), value) = parts.ok_or_else(|| format!("'{text}' is not of the form gpu0.key=value"))?;
    Ok((subject.parse().map_err(|e| format!("{e}"))?, key, value))
}

/// What never changes: said by the command line, or following from it.
fn once(options: &Options, start: Time, gpus: &BTreeMap<u8, bool>) -> Batch {
    let mut batch = Batch::new(SourceId::Nvml, start, Batch::FOREVER);
    for (subject, key, text) in &options.facts {
        batch.fact(*subject, *key, text);
        let peak = gpu_specs::dram_peak_bytes_per_s(text)
            .filter(|_| *key == FactKey::Name && matches!(subject, Subject::Gpu(_)));
        if let Some(peak) = peak {
            batch.push(*subject, Metric::DramPeak, peak);
            batch.fact(*subject, FactKey::DramPeakSource, "datasheet");
        }
    }
    for (&index, &with_gpm) in gpus {
        let gpu = Subject::Gpu(index);
        if !options.facts.iter().any(|f| f.0 == gpu && f.1 == FactKey::Name) {
            batch.fact(gpu, FactKey::Name, "GPU (name not captured)");
        }
        batch.fact(gpu, FactKey::ActivitySource, if with_gpm { "gpm" } else { "time" });
    }
    for (subject, metric, value) in &options.values {
        batch.push(*subject, *metric, *value);
    }
    batch
}

/// Each GPU that was read, and whether its activity was.
fn gpus(batches: &[Batch]) -> BTreeMap<u8, bool> {
    let mut gpus = BTreeMap::new();
    for sample in batches.iter().flat_map(|batch| &batch.samples) {
        if let Subject::Gpu(index) = sample.subject {
            *gpus.entry(index).or_default() |= sample.metric == Metric::SmActive;
        }
    }
    gpus
}

/// The first batch of a source says that it reads.
fn announce(batches: &mut [Batch]) {
    let mut known = Vec::new();
    for batch in batches {
        if !known.contains(&batch.source) {
            known.push(batch.source);
            batch.state.get_or_insert(SourceState::Ok);
        }
    }
}

fn name_of(dir: &Path) -> String {
    dir.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn write(path: &Path, header: &Header, batches: &[Batch]) -> std::io::Result<()> {
    let mut writer = Writer::new(File::create(path)?, header)?;
    for batch in batches {
        writer.write(batch)?;
    }
    writer.finish().map(drop)
}

/// The rows of one packed file of JSON lines; none when it is not there. Lines that cannot be read
/// are passed over and counted aloud.
fn rows<T: DeserializeOwned>(dir: &Path, name: &str) -> Result<Vec<T>, String> {
    let path = dir.join(name);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("{name} is not there: its part stays empty");
            return Ok(Vec::new());
        }
        Err(e) => return Err(format!("cannot read '{}': {e}", path.display())),
    };
    let (mut rows, mut bad) = (Vec::new(), 0);
    for line in BufReader::new(MultiGzDecoder::new(file)).lines() {
        let Ok(line) = line else {
            eprintln!("{name} is cut or damaged after {} rows", rows.len());
            break;
        };
        match serde_json::from_str(&line) {
            Ok(row) => rows.push(row),
            Err(_) => bad += 1,
        }
    }
    if bad > 0 {
        eprintln!("{name}: {bad} lines could not be read");
    }
    Ok(rows)
}

/// A number, where the capture has one: `null` stands for a call that gave none.
#[derive(Clone, Copy, Deserialize)]
#[serde(transparent)]
struct Captured(Option<f64>);

impl Captured {
    fn per(self, unit: f64) -> Reading {
        Reading::new(self.0.unwrap_or(f64::NAN) / unit)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use warptop::model::{FactKey, Why};
    use warptop::recording::Reader;

    use super::*;

    const GPU: &str = concat!(
        r#"{"unix_ms":1000,"util_gpu":98,"power_mw":690123,"event_reasons":4,"gpm":{"sm_util":66.5,"dram_bw_util":null,"#,
        r#""pcie_tx_per_sec":2.0},"energy_mj":5000,"viol_power_ns":1500000,"procs":[[7,1024]],"new_field":[1]}"#,
        "\nnot json\n"
    );
    const PROC: &str = concat!(
        r#"{"unix_ms":999,"procs":[{"pid":7,"cmd":"VLLM::EngineCore   ","majflt":3,"utime":10,"stime":5,"VmRSS":"2 kB"}],"#,
        r#""vmstat":{"pgmajfault":12},"pressure":{"memory":"some avg10=0.00 total=77\nfull avg10=0.00 total=5\n"}}"#,
        "\n"
    );

    fn import(files: &[(&str, &str)], flags: &[&str]) -> Result<Vec<Batch>, String> {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let mut packed = GzEncoder::new(File::create(dir.path().join(name)).unwrap(), Compression::fast());
            packed.write_all(text.as_bytes()).unwrap();
            packed.finish().unwrap();
        }
        let out = dir.path().join("out.jsonl.gz");
        let mut args = vec![dir.path().display().to_string(), out.display().to_string()];
        args.extend(flags.iter().map(ToString::to_string));
        run(&args)?;
        Ok(Reader::new(File::open(out).unwrap()).unwrap().collect())
    }

    fn find(batches: &[Batch], metric: Metric) -> Option<Reading> {
        batches.iter().flat_map(|b| &b.samples).find(|s| s.metric == metric).map(|s| s.reading)
    }

    #[test]
    fn units_become_those_of_the_metrics() {
        let flags = ["--fact", "gpu0.name=NVIDIA H200", "--set", "gpu0.sm_clock_max_mhz=1980"];
        let batches = import(&[("gpu.jsonl.gz", GPU), ("proc.jsonl.gz", PROC)], &flags).unwrap();
        let expected = [
            (Metric::SmActive, 66.5),
            (Metric::UtilGpuTime, 98.0),
            (Metric::PcieTx, 2_097_152.0),
            (Metric::Power, 690.123),
            (Metric::Energy, 5.0),
            (Metric::ThrottledPowerCap, 1.5),
            (Metric::DramPeak, 4.8e12),
            (Metric::SmClockMax, 1980.0),
            (Metric::MajorFaults, 12.0),
            (Metric::PsiMem, 77.0),
        ];
        for (metric, value) in expected {
            assert_eq!(find(&batches, metric), Some(Reading::Value(value)), "{metric:?}");
        }
        assert_eq!(find(&batches, Metric::DramActive), Some(Reading::Missing(Why::Failed)));
        assert_eq!(find(&batches, Metric::Temp), None, "not in the rows");
        let process = &batches.iter().find_map(|b| b.processes.clone()).unwrap()[0];
        assert_eq!((&*process.command, process.cpu_ms), ("VLLM::EngineCore", Reading::Value(150.0)));
        assert_eq!((process.rss, process.page_table), (Reading::Value(2048.0), Reading::Missing(Why::Failed)));
        assert_eq!(process.gpus, [(0, Reading::Value(1024.0))]);
        assert!(batches.is_sorted_by_key(|b| b.at));
    }

    #[test]
    fn the_start_up_log_and_the_process_list_say_what_the_metrics_do_not() {
        let dir = tempfile::tempdir().unwrap();
        let body = r##"{"unix_ms":5,"body":"# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 1\n"}"##;
        for (name, text) in [("metrics.jsonl.gz", body), ("proc.jsonl.gz", PROC)] {
            let mut packed = GzEncoder::new(File::create(dir.path().join(name)).unwrap(), Compression::fast());
            packed.write_all(text.as_bytes()).unwrap();
            packed.finish().unwrap();
        }
        let log = "non-default args: {'gpu_memory_utilization': 0.25, 'max_num_seqs': 256}\n\
                   Available KV cache memory: 2.00 GiB\nGPU KV cache size: 16,384 tokens\n";
        std::fs::write(dir.path().join("vllm-start.log"), log).unwrap();
        let out = dir.path().join("out.jsonl.gz");
        run(&[dir.path().display().to_string(), out.display().to_string()]).unwrap();
        let batches: Vec<_> = Reader::new(File::open(out).unwrap()).unwrap().collect();
        assert_eq!(find(&batches, Metric::RequestsCap), Some(Reading::Value(256.0)));
        assert_eq!(find(&batches, Metric::KvBytesPerToken), Some(Reading::Value(131_072.0)));
        let fact = |key| batches.iter().flat_map(|b| &b.facts).find(|f| f.key == key).map(|f| f.text.to_string());
        assert_eq!(fact(FactKey::Pids).as_deref(), Some("7"));
        assert_eq!(fact(FactKey::KvBytesSource).as_deref(), Some("start-up log: 2 GiB for 16384 tokens"));
    }

    /// A scrape of vLLM as captured, of a process that started then.
    fn scrape(ms: u64, started: u64, tokens: u64) -> String {
        let body = format!(
            "# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds {started}\n\
             # TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 4\n\
             # TYPE vllm:generation_tokens counter\nvllm:generation_tokens_total {tokens}\n"
        );
        format!("{}\n", serde_json::json!({"unix_ms": ms, "body": body}))
    }

    #[test]
    fn an_engine_that_died_comes_back_as_another_process() {
        let metrics = [
            scrape(1000, 5, 900),
            "{\"unix_ms\":2000,\"body\":null,\"error\":\"connection refused\"}\n".to_owned(),
            "{\"unix_ms\":2500,\"body\":null,\"error\":\"connection refused\"}\n".to_owned(),
            "{\"unix_ms\":3000,\"body\":\"\"}\n".to_owned(),
            scrape(4000, 6, 1000),
            scrape(5000, 6, 1200),
        ]
        .concat();
        let server = |ms: u64, first: u32| {
            let process = |pid, ppid, cmd| serde_json::json!({"pid": pid, "ppid": ppid, "cmd": cmd});
            let engine = process(first + 1, first, "VLLM::EngineCore");
            let procs =
                [process(first, 1, "python3 -m vllm.entrypoints.openai.api_server"), engine, process(99, 7, "x")];
            format!("{}\n", serde_json::json!({"unix_ms": ms, "procs": procs}))
        };
        let proc = [server(1000, 10), server(2000, 10), "{\"unix_ms\":3000}\n".to_owned(), server(4000, 20)].concat();
        let batches = import(&[("metrics.jsonl.gz", &metrics), ("proc.jsonl.gz", &proc)], &[]).unwrap();
        let engine = || batches.iter().filter(|b| b.source == SourceId::Engine(0));
        let failed = |why: &str| SourceState::Failed(why.into());
        let states: Vec<_> = engine().filter_map(|b| Some((b.at.0, b.state.clone()?))).collect();
        let expected = [
            (1000, SourceState::Starting),
            (1000, SourceState::Ok),
            (2000, failed("connection refused")),
            (2500, failed("connection refused")),
            (3000, failed("the scrape gave nothing")),
            (4000, SourceState::Ok),
        ];
        assert_eq!(states, expected);
        assert_eq!(engine().filter(|b| b.breaks).map(|b| b.at.0).collect::<Vec<_>>(), [4000]);
        let pids = engine().flat_map(|b| b.facts.iter().filter(|f| f.key == FactKey::Pids).map(|f| (b.at.0, &*f.text)));
        assert_eq!(pids.collect::<Vec<_>>(), [(1000, "10,11"), (4000, "20,21")]);
    }

    #[test]
    fn every_gpu_has_its_rows_and_one_list_of_processes_is_of_all() {
        let rows = concat!(
            r#"{"unix_ms":1000,"gpu":0,"gpm":{"sm_util":10,"nvlink_total_rx_per_sec":2},"procs":[[7,100]],"#,
            r#""proc_util":[{"pid":7,"sm":40,"mem":1}]}"#,
            "\n",
            r#"{"unix_ms":1014,"gpu":1,"util_gpu":20,"procs":[[8,200],[9,300]],"proc_util":[{"pid":9,"sm":60,"mem":1}]}"#,
            "\n",
            r#"{"unix_ms":2000,"gpu":0,"procs":[]}"#,
            "\n"
        );
        let proc = r#"{"unix_ms":1500,"procs":[{"pid":9,"cmd":"x"},{"pid":7,"cmd":"y"}]}"#;
        let flags = ["--fact", "gpu1.name=NVIDIA H200"];
        let batches = import(&[("gpu.jsonl.gz", rows), ("proc.jsonl.gz", proc)], &flags).unwrap();
        let value = |gpu, metric| {
            let of = |s: &&warptop::model::Sample| s.subject == Subject::Gpu(gpu) && s.metric == metric;
            batches.iter().flat_map(|b| &b.samples).find(of).and_then(|s| s.reading.value())
        };
        assert_eq!((value(0, Metric::SmActive), value(1, Metric::UtilGpuTime)), (Some(10.0), Some(20.0)));
        assert_eq!((value(0, Metric::NvlinkRx), value(1, Metric::DramPeak)), (Some(2_097_152.0), Some(4.8e12)));
        let lists = batches.iter().filter_map(|b| b.gpu_processes.as_ref());
        let lists: Vec<Vec<_>> = lists.map(|list| list.iter().map(|p| (p.gpu, p.pid)).collect()).collect();
        assert_eq!(lists, [vec![(0, 7)], vec![(0, 7), (1, 8), (1, 9)], vec![(1, 8), (1, 9)]]);
        let processes = batches.iter().find_map(|b| b.processes.as_ref()).unwrap();
        let held: Vec<_> = processes.iter().map(|p| (p.pid, p.gpus[0], p.shares[0].1.value())).collect();
        assert_eq!(held, [(9, (1, 300.0.into()), Some(60.0)), (7, (0, 100.0.into()), Some(40.0))]);
        let source = |b: &Batch, gpu| b.facts.iter().any(|f| f.subject == Subject::Gpu(gpu) && &*f.text == "time");
        assert!(batches.iter().any(|b| source(b, 1)) && !batches.iter().any(|b| source(b, 0)));
    }

    #[test]
    fn the_machine_is_read_as_the_program_reads_it() {
        let row = |ms: u64, busy: u64, idle: u64, ticks: u64| {
            let busy = busy.to_string();
            let stat = |name| [name, &*busy, "0", "0", &*idle.to_string()].map(str::to_owned);
            let top = serde_json::json!([[30, 8, "worker"], [ticks, 7, "main"]]);
            let process = serde_json::json!({"pid": 7, "cmd": "x", "cpus": "0-63", "top": top});
            let mem = serde_json::json!({"MemTotal": "100 kB", "MemAvailable": "40 kB"});
            let stat = [stat("cpu"), stat("cpu0"), stat("cpu1")];
            format!(
                "{}\n",
                serde_json::json!({"unix_ms": ms, "procs": [process], "stat": stat, "mem": mem, "tcp_retrans": 17})
            )
        };
        let bare = "{\"unix_ms\":3000}\n".to_owned();
        let rows = [row(1000, 100, 500, 1), row(2000, 130, 570, 2), bare].concat();
        let batches = import(&[("proc.jsonl.gz", &rows)], &[]).unwrap();
        let host = |ms: u64| batches.iter().find(|b| b.source == SourceId::Host && b.at.0 == ms).unwrap();
        let of = |ms, metric| host(ms).samples.iter().find(|s| s.metric == metric).unwrap().reading;
        assert_eq!(
            (of(1000, Metric::CpuBusy), of(2000, Metric::CpuBusy)),
            (Reading::Missing(Why::NotYet), 30.0.into())
        );
        assert_eq!((of(2000, Metric::CpuCount), of(2000, Metric::TcpRetrans)), (2.0.into(), 17.0.into()));
        assert_eq!(
            (of(2000, Metric::HostMemUsed), of(2000, Metric::HostMemTotal)),
            (61_440.0.into(), 102_400.0.into())
        );
        assert_eq!(of(2000, Metric::MajorFaults), Reading::Missing(Why::Unsupported), "not captured");
        assert_eq!(of(3000, Metric::TcpRetrans), Reading::Missing(Why::Unsupported), "nothing of the row before");
        let process = &batches.iter().filter(|b| b.at.0 == 2000).find_map(|b| b.processes.as_ref()).unwrap()[0];
        let threads: Vec<_> = process.threads.iter().map(|t| (t.tid, &*t.name, t.cpu_ms.value())).collect();
        assert_eq!(threads, [(7, "main", Some(20.0)), (8, "worker", Some(300.0))]);
        assert_eq!((process.limits.allowed, &*process.limits.list), (2.0.into(), "0-63"));
    }

    #[test]
    fn a_folder_with_one_file_is_imported_and_an_empty_one_is_not() {
        let batches = import(&[("gpu.jsonl.gz", GPU)], &[]).unwrap();
        let name = batches.iter().flat_map(|b| &b.facts).find(|f| f.key == FactKey::Name).unwrap();
        assert_eq!(&*name.text, "GPU (name not captured)");
        let metrics = [("metrics.jsonl.gz", r#"{"unix_ms":5,"body":"<html>"}"#)];
        assert!(import(&metrics, &[]).unwrap_err().contains("holds no"));
        assert!(import(&[], &[]).unwrap_err().contains("holds no"));
    }

    #[test]
    fn wrong_flags_are_refused() {
        for flags in [&["--set", "gpu0.nonsense=1"][..], &["--fact", "gpu0"], &["--mood"], &["--note"]] {
            assert!(import(&[("gpu.jsonl.gz", GPU)], flags).is_err(), "{flags:?}");
        }
    }
}
