//! What `diagnosis::level` says of the levels of real runs, against the clients' own clocks: vLLM 0.25.1 on an H200, once with
//! GPU counters (1 to 256 clients and overload) and once without (2 to 256 clients, long prompts, overload); and of a sweep of
//! that server with `--max-num-seqs 32`.

#![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use warptop::diagnosis::Cause;
use warptop::diagnosis::level::LevelJudge;
use warptop::load::Level;
use warptop::load::level::{Agreement, Latency, Quantile, Rate};
use warptop::recording::Reader;
use warptop::sampler::replay::load;
use warptop::store::{Retention, Store};

/// A recording with its clients' requests.
struct Run {
    store: Store,
    requests: Vec<Request>,
}

/// A request by its client's clock, Unix ms: sent, first token, last token.
struct Request {
    phase: String,
    sent: f64,
    first: f64,
    last: f64,
}

/// Warm-up that is cut off, ms: the first wave of a closed loop comes at once.
const WARMUP_MS: f64 = 2_000.0;
/// Tokens of every output.
const OUTPUT: f64 = 128.0;

fn run(recording: &'static [u8], requests: &[u8]) -> Run {
    let store = Store::new(Retention::HOUR);
    load(&mut Reader::new(recording).unwrap(), &store, None).unwrap();
    let mut text = String::new();
    GzDecoder::new(requests).read_to_string(&mut text).unwrap();
    let request = |line: &str| {
        let (phase, rest) = line.split_once(',').unwrap();
        let numbers: Vec<f64> = rest.split(',').map(|field| field.parse().unwrap()).collect();
        Request {
            phase: phase.to_owned(),
            sent: numbers[0],
            first: numbers[0] + numbers[1],
            last: numbers[0] + numbers[2],
        }
    };
    Run { store, requests: text.lines().skip(1).map(request).collect() }
}

fn with_gpus() -> Run {
    run(
        include_bytes!("../assets/recordings/h200-vllm-0.25.1.jsonl.gz"),
        include_bytes!("../assets/recordings/h200-vllm-0.25.1-requests.csv.gz"),
    )
}

fn without_gpus() -> Run {
    run(
        include_bytes!("../assets/recordings/h200-latency.jsonl.gz"),
        include_bytes!("../assets/recordings/h200-latency-requests.csv.gz"),
    )
}

/// The order statistics of a sample, ranks by the normal approximation of the binomial.
fn latency(mut values: Vec<f64>) -> Latency {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    let at = |q: f64, least: usize| {
        let rank = |rank: f64| values[(rank.ceil() as usize).clamp(1, n) - 1];
        let (middle, spread) = (q * n as f64, 1.96 * (n as f64 * q * (1.0 - q)).sqrt());
        let (lo, hi) = (Some(rank(middle - spread)), Some(rank(middle + spread + 1.0)));
        Quantile { value: rank(middle), lo, hi, enough: n >= least }
    };
    Latency {
        n: n as u64,
        p50: Some(at(0.5, 6)),
        p95: Some(at(0.95, 72)),
        p99: Some(at(0.99, 368)),
        ..Latency::default()
    }
}

impl Run {
    /// The level of a phase, as a client measures it.
    fn level(&self, phase: &str) -> Level {
        let all: Vec<_> = self.requests.iter().filter(|request| request.phase == phase).collect();
        let first = all.iter().map(|request| request.sent).fold(f64::MAX, f64::min);
        let (from, to) = (first + WARMUP_MS, all.iter().map(|request| request.sent).fold(0.0, f64::max));
        let measured: Vec<_> = all.iter().filter(|request| request.sent >= from && request.sent <= to).collect();
        let overlap = |a: f64, b: f64| (b.min(to) - a.max(from)).max(0.0);
        let seconds = (to - from) / 1000.0;
        let rate = |n: f64| Some(Rate { value: n / seconds, lo: None, hi: None });
        let tokens: f64 = all.iter().map(|r| OUTPUT * overlap(r.first, r.last) / (r.last - r.first)).sum();
        let took =
            |of: &dyn Fn(&Request) -> f64| latency(measured.iter().map(|request| of(request) / 1000.0).collect());
        let mut level = Level {
            from_unix_ms: from as u64,
            to_unix_ms: to as u64,
            ttft_s: took(&|r| r.first - r.sent),
            e2e_s: took(&|r| r.last - r.sent),
            tpot_s: took(&|r| (r.last - r.first) / (OUTPUT - 1.0)),
            requests_per_s: rate(all.iter().filter(|r| r.last >= from && r.last <= to).count() as f64),
            output_tokens_per_s: rate(tokens),
            ..Level::default()
        };
        level.requests.measured = measured.len() as u64;
        level.requests.ok = level.requests.measured;
        level.client.in_flight = Some(all.iter().map(|r| overlap(r.sent, r.last)).sum::<f64>() / (to - from));
        level
    }

    fn attached(&self, phase: &str, gpus: &[u8]) -> Level {
        let mut level = self.level(phase);
        LevelJudge::default().attach(&self.store.read(), 0, gpus, &mut level);
        level
    }
}

/// Everything but what this file's own idea of when tokens came leaves open.
fn disagreeing(level: &Level) -> Vec<&Agreement> {
    level.server.as_ref().unwrap().agreement.iter().filter(|row| !row.agrees).collect()
}

#[test]
fn client_and_server_agree_at_every_level_of_real_runs() {
    // Not 256 clients: two and a half waves of 6 s are no steady state.
    let (first, second) = (with_gpus(), without_gpus());
    let levels = [(&first, &["c1", "c4", "c16", "c64"][..]), (&second, &["c2", "c8", "c32", "c128"])];
    let mut tails = 0;
    for (run, phases) in levels {
        for phase in phases {
            let level = run.attached(phase, &[]);
            let rows = &level.server.as_ref().unwrap().agreement;
            let whats: Vec<_> = rows.iter().map(|row| row.what.as_str()).collect();
            for what in ["in flight, mean", "TTFT P50", "E2E P50", "TPOT P50", "requests ended", "output tokens"] {
                assert!(whats.contains(&what), "{phase} has no row of {what}: {whats:?}");
            }
            tails += whats.iter().filter(|what| what.ends_with("P99")).count();
            assert!(disagreeing(&level).is_empty(), "{phase}: {:?}", disagreeing(&level));
        }
    }
    assert!(tails >= 6, "{tails} rows of a P99: 32 clients and more have the requests for one");
}

#[test]
fn a_client_that_is_late_or_not_alone_disagrees() {
    let run = with_gpus();
    let whats = |change: &dyn Fn(&mut Level)| {
        let mut level = run.level("c64");
        change(&mut level);
        LevelJudge::default().attach(&run.store.read(), 0, &[], &mut level);
        disagreeing(&level).iter().map(|row| row.what.clone()).collect::<Vec<_>>()
    };
    let shift = |latency: &mut Latency, s: f64| {
        for quantile in [&mut latency.p50, &mut latency.p95, &mut latency.p99].into_iter().flatten() {
            quantile.value += s;
            quantile.lo = quantile.lo.map(|lo| lo + s);
            quantile.hi = quantile.hi.map(|hi| hi + s);
        }
    };
    assert_eq!(whats(&|level| shift(&mut level.ttft_s, 0.4)), ["TTFT P50", "TTFT P99"]);
    assert_eq!(whats(&|level| shift(&mut level.tpot_s, 0.003)), ["TPOT P50"]);
    // Half of what the server served was somebody else's.
    let half = |rate: &mut Option<Rate>| rate.as_mut().unwrap().value /= 2.0;
    assert_eq!(whats(&|level| half(&mut level.output_tokens_per_s)), ["output tokens"]);
    assert_eq!(whats(&|level| half(&mut level.requests_per_s)), ["requests ended"]);
    assert_eq!(whats(&|level| level.client.in_flight = Some(32.0)), ["in flight, mean"]);
}

#[test]
fn levels_name_what_held_them_back() {
    let run = with_gpus();
    let mut sm = Vec::new();
    for (phase, cause) in [
        ("c1", Cause::MemoryBandwidth),
        ("c4", Cause::MemoryBandwidth),
        ("c16", Cause::MemoryBandwidth),
        ("c64", Cause::PowerCap),
    ] {
        let level = run.attached(phase, &[0]);
        let found = level.bottleneck.as_ref().unwrap();
        assert_eq!(found.word, cause.label(), "{phase}: {found:?}");
        let gpu = &level.gpus[0];
        assert!(gpu.dram_active_pct.is_some() && gpu.most_temp_c.is_some() && gpu.sm_clock_max_mhz == Some(1980.0));
        assert_eq!(gpu.is_throttled(), phase != "c1", "{phase}: {gpu:?}");
        assert_eq!(gpu.throttled_by.as_deref(), (phase != "c1").then_some("power cap"), "{phase}");
        sm.push(gpu.sm_active_pct.unwrap());
    }
    assert!(sm.is_sorted() && sm[0] > 60.0 && sm[3] < 90.0, "{sm:?}");
    // Prompts wait at 64 clients, with three quarters of batch and KV cache free: no limit is blamed.
    let level = run.attached("c64", &[0]);
    let evidence = &level.bottleneck.as_ref().unwrap().evidence;
    assert!(evidence.contains("held down 8") && evidence.contains("SM clock 1"), "{evidence}");
    let server = level.server.unwrap();
    assert!(server.waiting > Some(4.0) && server.most_kv_used_pct < Some(25.0) && server.preemptions == Some(0.0));
    assert_eq!(server.prefix_hit_pct, Some(0.0));
    assert_eq!(run.attached("c16", &[0]).server.unwrap().waiting, Some(0.0), "the queue starts above 16 clients");
}

#[test]
fn a_full_kv_cache_is_blamed_for_the_queue_before_it() {
    let run = without_gpus();
    let of = |phase: &str| run.attached(phase, &[]).bottleneck.map(|found| (found.word, found.evidence));
    // Prompts of 16k tokens: nine fill the cache. And 600 clients, where requests were preempted.
    let (word, evidence) = of("long16k").unwrap();
    assert!(word == Cause::KvCapacity.label() && evidence.contains("KV cache 99 % used"), "{evidence}");
    let (word, evidence) = of("overload").unwrap();
    assert!(word == Cause::KvCapacity.label() && evidence.contains("preemptions/s"), "{evidence}");
    // A queue in waves for another reason, and no GPU that tells which: nothing is invented.
    assert_eq!((of("c128"), of("c8")), (None, None));
}

/// The sweep with at most 32 requests running; where `cap` is false, with that limit taken out of what was read.
fn admitting_32(cap: bool) -> Store {
    let recording: &[u8] = include_bytes!("../assets/recordings/h200-sweep-32-seqs.jsonl.gz");
    let mut text = String::new();
    GzDecoder::new(recording).read_to_string(&mut text).unwrap();
    if !cap {
        assert!(text.contains("\"requests_cap\":32,"));
        text = text.replace("\"requests_cap\":32,", "");
    }
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(text.as_bytes()).unwrap();
    let store = Store::new(Retention::HOUR);
    load(&mut Reader::new(std::io::Cursor::new(packed.finish().unwrap())).unwrap(), &store, None).unwrap();
    store
}

#[test]
fn requests_that_are_not_admitted_are_what_clients_wait_for() {
    for cap in [true, false] {
        let store = admitting_32(cap);
        let of = |from_unix_ms, to_unix_ms| {
            let mut level = Level { from_unix_ms, to_unix_ms, ..Level::default() };
            LevelJudge::default().attach(&store.read(), 0, &[0], &mut level);
            let found = level.bottleneck.unwrap();
            (found.word, found.evidence)
        };
        // 32, 48 and 64 users: they come in waves, and while one is taken in, 25 run.
        let (word, evidence) = of(1_796_051_279_508, 1_796_051_299_508);
        assert!(word == Cause::PowerCap.label() && !evidence.contains("waited"), "{word}: {evidence}");
        for (word, evidence) in [of(1_796_051_304_979, 1_796_051_324_989), of(1_796_051_332_240, 1_796_051_352_660)] {
            if !cap {
                // Where the engine does not say how many it admits, no limit is invented.
                assert_eq!(word, Cause::PowerCap.label(), "{evidence}");
                continue;
            }
            assert_eq!(word, Cause::AdmissionLimit.label(), "{evidence}");
            assert!(evidence.contains("the engine runs at most 32") && evidence.contains("KV cache 2"), "{evidence}");
            assert!(evidence.contains("; then power cap: "), "{evidence}");
        }
    }
}
