//! What held a level of a load sweep back: one name, and the figures that it rests on.
//!
//! What explains the most is asked first: a client that was late measured itself; where requests failed the others are no
//! measure of the server; a queue before a full KV cache or a full batch keeps requests from GPUs that are otherwise as fast
//! as ever; and only then the GPUs' wall tells what makes a step take as long as it does. It must not know how a level is
//! measured or drawn. Invariant: nothing is named without its figures; where none of it was read, nothing is named.
//!
//! A queue alone names no limit: prompts also wait for their turn in the token budget of a step (the H200 with 64 clients:
//! 5 wait while 55 of 256 run and a quarter of the KV cache is used). So the limits are looked at second by second, while
//! somebody waits: the KV cache is full when one more request like those that run would bring it to [`KV_FULL`], or when
//! requests were preempted; the batch is full when as many run as the engine admits, or, where that is not known, as ever ran in
//! the level.

use crate::load::Level;
use crate::load::level::{Bottleneck, State};
use crate::model::{Metric, Subject};
use crate::store::{Bin, Data, Window};

use super::exposed;
use super::level::seconds;
use super::wall::{Evidence, Wall};

/// From this mean on requests wait in earnest.
const WAITING: f64 = 0.5;
/// KV use that counts as full, %.
const KV_FULL: f64 = 95.0;
/// Share of the limit from which on a batch counts as full.
const BATCH_FULL: f64 = 0.98;
/// Share of the time with a queue for which a limit has to be reached to be its reason.
const MOST: f64 = 0.5;
/// Share of measured requests from which on those that failed are what counts.
const ERRORS: f64 = 0.01;

/// What held the level back, once its server and GPUs are filled in.
pub(super) fn find(data: &Data, engine: u8, window: Window, level: &Level) -> Option<Bottleneck> {
    let named = |word: &str, evidence: String| Bottleneck { word: word.to_owned(), evidence };
    if !level.client.limits.is_empty() {
        return Some(named("client", level.client.limits.join("; ")));
    }
    if let Some(evidence) = errors(level) {
        return Some(named("errors", evidence));
    }
    let queue = Queue::over(data, engine, window, level);
    if let Some((word, why)) = queue.as_ref().and_then(Queue::limit) {
        return Some(named(word, format!("{}: {why}", queue.map(|queue| queue.words).unwrap_or_default())));
    }
    let besides = queue.map(|queue| queue.words);
    let Some((wall, evidence)) = walls(data, engine, window, level) else {
        return besides.map(|words| named("queue", format!("{words}; neither KV cache nor batch is known to be full")));
    };
    let besides = besides.map_or_else(String::new, |words| format!("; {words}, with room in batch and KV cache"));
    Some(named(wall.word(), evidence + &besides))
}

/// What became of the requests, where too many failed.
fn errors(level: &Level) -> Option<String> {
    let requests = &level.requests;
    let (lost, of) = (requests.lost(), requests.measured.max(requests.lost()));
    let many = lost as f64 >= of as f64 * ERRORS || level.state == State::Failing;
    let kinds = [
        (requests.refused, "refused"),
        (requests.cut, "broken off"),
        (requests.failed, "failed otherwise"),
        (requests.unconnected, "without a connection"),
    ];
    let kinds: Vec<_> = kinds.iter().filter(|(n, _)| *n > 0).map(|(n, kind)| format!("{n} {kind}")).collect();
    (lost > 0 && many).then(|| format!("{lost} of {of} requests came to nothing: {} (client)", kinds.join(", ")))
}

/// A queue, and what was full meanwhile.
struct Queue {
    /// Who waited, and who ran.
    words: String,
    /// Share of the time with a queue in which one more request did not fit into the KV cache; `None`: not known.
    kv_full: Option<f64>,
    /// The same of a full batch.
    batch_full: Option<f64>,
    /// Most requests that may run, where known; and the most that did.
    cap: (Option<f64>, Option<f64>),
    most_kv_pct: Option<f64>,
    preemptions: Option<f64>,
}

impl Queue {
    /// The queue of the window; `None` where nobody waited in earnest, or that is not read.
    fn over(data: &Data, engine: u8, window: Window, level: &Level) -> Option<Self> {
        let server = level.server.as_ref()?;
        let waiting = server.waiting.filter(|waiting| *waiting > WAITING)?;
        let running = data.series(Subject::Engine(engine), Metric::RequestsRunning);
        let most_running = running.and_then(|series| series.extremes(window)).map(|(_, most)| most);
        let cap = exposed::level(data, engine, Metric::RequestsCap, window.end).value();
        let seconds = Seconds::over(data, engine, window);
        let among = |running: Option<f64>| running.map_or_else(String::new, |n| format!(" while {n:.1} ran"));
        let most = server.most_waiting.map_or_else(String::new, |most| format!(" (most {most:.0})"));
        Some(Self {
            words: format!("{waiting:.1} requests waited on average{most}{}", among(server.running)),
            kv_full: seconds.share(|running, kv| Some(kv? * (1.0 + 1.0 / running?.max(1.0)) >= KV_FULL)),
            batch_full: cap
                .or(most_running)
                .and_then(|cap| seconds.share(|running, _| Some(running? >= cap * BATCH_FULL))),
            cap: (cap, most_running),
            most_kv_pct: server.most_kv_used_pct,
            preemptions: server.preemptions.filter(|n| *n > 0.0),
        })
    }

    /// Which limit it stands before, and what says so.
    fn limit(&self) -> Option<(&'static str, String)> {
        let kv = self.most_kv_pct.map_or_else(String::new, |pct| format!("KV cache at most {pct:.0} % used, "));
        let kv_full = self.kv_full.filter(|share| *share >= MOST);
        if self.preemptions.is_some() || kv_full.is_some() {
            let room =
                kv_full.map(|share| format!("no room for one more in {:.0} % of the time with a queue", share * 100.0));
            let lost = self.preemptions.map(|n| format!("{n:.0} preemptions"));
            let both: Vec<_> = lost.into_iter().chain(room).collect();
            return Some(("KV cache full", format!("{kv}{} (server)", both.join(", "))));
        }
        let share = self.batch_full.filter(|share| *share >= MOST)? * 100.0;
        let full = match self.cap {
            (Some(cap), _) => format!("the batch of at most {cap:.0} (max_num_seqs / slots) was full"),
            (None, most) => format!("never more than {:.0} ran (the limit itself is not read), as many", most?),
        };
        Some(("admission limit", format!("{kv}{full} in {share:.0} % of the time with a queue (server)")))
    }
}

/// The engine's gauges second by second.
struct Seconds {
    waiting: Vec<Bin>,
    running: Vec<Bin>,
    kv: Vec<Bin>,
}

impl Seconds {
    fn over(data: &Data, engine: u8, window: Window) -> Self {
        let of = |metric| seconds(data, engine, metric, window);
        Self { waiting: of(Metric::RequestsWaiting), running: of(Metric::RequestsRunning), kv: of(Metric::KvUsage) }
    }

    /// Share of the seconds with a queue in which `full` holds for (running, KV use); `None` where that is never known.
    fn share(&self, full: impl Fn(Option<f64>, Option<f64>) -> Option<bool>) -> Option<f64> {
        let mean = |bin: &Bin| bin.mean().map(f64::from);
        let seconds = self.waiting.iter().zip(&self.running).zip(&self.kv);
        let queued = seconds.filter(|((waiting, _), _)| mean(waiting).is_some_and(|n| n > WAITING));
        let known: Vec<_> = queued.filter_map(|((_, running), kv)| full(mean(running), mean(kv))).collect();
        (!known.is_empty()).then(|| known.iter().filter(|full| **full).count() as f64 / known.len() as f64)
    }
}

/// The wall of the GPUs with its figures: of several that differ, the one that slows the others down.
fn walls(data: &Data, engine: u8, window: Window, level: &Level) -> Option<(Wall, String)> {
    let of = |index| Evidence::over(data, index, Some(engine), window);
    let all: Vec<_> =
        level.gpus.iter().map(|gpu| (gpu, of(gpu.index))).filter(|(_, e)| rank(e.wall()).is_some()).collect();
    let (gpu, worst) = all.iter().rev().max_by_key(|(_, evidence)| rank(evidence.wall()))?;
    let wall = worst.wall();
    let text = worst.to_string();
    let figures = text.strip_prefix(wall.word()).map_or(text.as_str(), |rest| rest.trim_start_matches(": "));
    let alike = all.iter().filter(|(_, evidence)| evidence.wall() == wall).count();
    let whose = match all.len() {
        1 => format!("GPU {}", gpu.index),
        n if n == alike => format!("all {n} GPUs, as GPU {}", gpu.index),
        n => format!("{alike} of {n} GPUs, as GPU {}", gpu.index),
    };
    let held = match (wall, gpu.throttled_ms_per_s, &gpu.throttled_by) {
        (Wall::Power | Wall::Heat, ..) => String::new(),
        (_, Some(ms), Some(reason)) if gpu.is_throttled() => {
            format!("; its clocks were held down by {reason} {:.0} % of the time", ms / 10.0)
        }
        _ => String::new(),
    };
    let seconds = window.ms() as f64 / 1000.0;
    Some((wall, format!("{whose}: {figures} (means of {seconds:.0} s of GPU counters){held}")))
}

/// How much a wall slows down: a GPU whose clocks are held down keeps the others of its group waiting. `None` is no wall:
/// what is not known, and a GPU without work, which held nothing back.
const fn rank(wall: Wall) -> Option<u8> {
    match wall {
        Wall::Heat => Some(5),
        Wall::Power => Some(4),
        Wall::Compute => Some(3),
        Wall::Memory => Some(2),
        Wall::Balanced => Some(1),
        Wall::Launch => Some(0),
        Wall::Idle | Wall::Unknown(_) => None,
    }
}
