//! What held a level of a load sweep back: one name, and the figures that it rests on.
//!
//! What explains the most is asked first: a client that was late measured itself; where requests failed the others are no
//! measure of the server; a queue before a full KV cache or a full batch keeps requests from GPUs that are otherwise as fast
//! as ever; and only then the GPUs' wall tells what makes a step take as long as it does. It must not know how a level is
//! measured or drawn. Invariant: nothing is named without its figures; where none of it was read, nothing is named.
//!
//! A queue alone names no limit: prompts also wait for their turn in the token budget of a step (the H200 with 64 clients:
//! 5 wait while 55 of 256 run and a quarter of the KV cache is used). So the limits are looked at moment by moment, while
//! somebody waits: the KV cache is full when one more request like those that run would bring it to [`KV_FULL`], or when
//! requests were preempted; the batch is full when as many run as the engine admits. Where that is not known, as many as ever
//! ran stand for it, if the KV cache is known to have room and somebody waits most of the time. A server that is loaded in
//! waves is below its limit while it takes the next wave in, so a batch that is full for a quarter of the queue's time counts.
//!
//! The queue is what clients wait for, the wall what the running requests are held by: from [`WEIGHS`] of all requests on
//! the queue has the word, and the wall follows in the evidence; of a shorter queue it is the other way round.

use crate::load::Level;
use crate::load::level::{Bottleneck, State};
use crate::model::{Metric, Subject};
use crate::store::{Bin, Data, Window};

use super::exposed;
use super::wall::{Evidence, Wall};

/// From this mean on requests wait in earnest.
const WAITING: f64 = 0.5;
/// KV use that counts as full, %.
const KV_FULL: f64 = 95.0;
/// Share of the limit from which on a batch counts as full.
const BATCH_FULL: f64 = 0.98;
/// Share of the time with a queue for which the KV cache has to be full to be its reason.
const MOST: f64 = 0.5;
/// The same of the batch.
const OFTEN: f64 = 0.25;
/// Requests that wait, as a share of all, from which on they are what counts.
const WEIGHS: f64 = 0.2;
/// How finely a level is looked at, ms: a quarter of how often an engine is read, so that few pieces hold two readings.
const PIECE_MS: u64 = 250;
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
    let wall = walls(data, engine, window, level);
    let Some(queue) = queue else { return wall.map(|(wall, evidence)| named(wall.word(), evidence)) };
    if let Some(why) = queue.kv_limit() {
        return Some(named("KV cache full", format!("{}: {why}", queue.words)));
    }
    let (word, said) = match queue.batch_limit() {
        Some(why) => ("admission limit", format!("{}: {why}", queue.words)),
        None => ("queue", format!("{}{}", queue.words, queue.room())),
    };
    Some(match wall {
        Some((wall, evidence)) if queue.weighs(word) => named(word, format!("{said}; {}: {evidence}", wall.word())),
        Some((wall, evidence)) => named(wall.word(), format!("{evidence}; {said}")),
        None => named(word, said),
    })
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
    /// Those that waited as a share of all; `None`: who ran is not known.
    share: Option<f64>,
    /// Whether somebody waited most of the time.
    lasts: bool,
    /// Share of the time with a queue in which one more request did not fit into the KV cache; `None`: not known.
    kv_full: Option<f64>,
    /// The same of as many running as may, or, where that is not known, as ever did.
    batch_full: Option<f64>,
    /// Most requests that may run, where known.
    cap: Option<f64>,
    /// Most that did.
    most_running: Option<f64>,
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
        let pieces = Pieces::over(data, engine, window);
        let among = |running: Option<f64>| running.map_or_else(String::new, |n| format!(" while {n:.1} ran"));
        let most = server.most_waiting.map_or_else(String::new, |most| format!(" (most {most:.0})"));
        // Readings are taken while requests come and go: one less is as good as the most that were ever seen.
        let full = cap.map(|cap| cap * BATCH_FULL).or(most_running.map(|most| most - 1.0));
        Some(Self {
            words: format!("{waiting:.1} requests waited on average{most}{}", among(server.running)),
            share: server.running.map(|running| waiting / (waiting + running)),
            lasts: pieces.queued() > MOST,
            kv_full: pieces.share(|running, kv| Some(kv? * (1.0 + 1.0 / running?.max(1.0)) >= KV_FULL)),
            batch_full: full.and_then(|full| pieces.share(|running, _| Some(running? >= full))),
            cap,
            most_running,
            most_kv_pct: server.most_kv_used_pct,
            preemptions: server.preemptions.filter(|n| *n > 0.0),
        })
    }

    /// Whether the queue has the word, and not the wall.
    fn weighs(&self, word: &str) -> bool {
        self.share.is_some_and(|share| share >= WEIGHS) && (self.lasts || word != "queue")
    }

    /// How much of the KV cache was used, where that is known.
    fn kv(&self) -> String {
        self.most_kv_pct.map_or_else(String::new, |pct| format!("KV cache at most {pct:.0} % used, "))
    }

    /// What says that it stands before a full KV cache.
    fn kv_limit(&self) -> Option<String> {
        let full = self.kv_full.filter(|share| *share >= MOST);
        if self.preemptions.is_none() && full.is_none() {
            return None;
        }
        let room = full.map(|share| format!("no room for one more in {:.0} % of the time with a queue", share * 100.0));
        let lost = self.preemptions.map(|n| format!("{n:.0} preemptions"));
        let both: Vec<_> = lost.into_iter().chain(room).collect();
        Some(format!("{}{} (server)", self.kv(), both.join(", ")))
    }

    /// What says that it stands before a full batch.
    fn batch_limit(&self) -> Option<String> {
        let share = self.batch_full.filter(|share| *share >= OFTEN)? * 100.0;
        let often = format!("in {share:.0} % of the time with a queue (server)");
        if let Some(cap) = self.cap {
            return Some(format!("{}the batch of at most {cap:.0} (max_num_seqs / slots) was full {often}", self.kv()));
        }
        let most = self.most_running.filter(|_| self.lasts && self.has_kv_room())?;
        let admits = "so the server seems to admit no more (vLLM: --max-num-seqs, llama.cpp: slots)";
        Some(format!("{}never more than {most:.0} ran, and about as many {often}: {admits}", self.kv()))
    }

    fn has_kv_room(&self) -> bool {
        self.most_kv_pct.is_some_and(|pct| pct < KV_FULL)
    }

    /// What is known to have had room.
    fn room(&self) -> String {
        let batch = self.cap.zip(self.most_running).is_some_and(|(cap, most)| most < cap * BATCH_FULL);
        match (batch, self.has_kv_room()) {
            (true, true) => ", with room in batch and KV cache".to_owned(),
            (true, false) => ", with room in the batch".to_owned(),
            (false, true) => ", with room in the KV cache".to_owned(),
            (false, false) => ", and neither KV cache nor batch is known to be full".to_owned(),
        }
    }
}

/// The engine's gauges piece by piece.
struct Pieces {
    waiting: Vec<Bin>,
    running: Vec<Bin>,
    kv: Vec<Bin>,
}

impl Pieces {
    fn over(data: &Data, engine: u8, window: Window) -> Self {
        let of = |metric| {
            // As many as a quarter of a day has: what is longer has longer pieces.
            let mut bins = vec![Bin::default(); window.ms().div_ceil(PIECE_MS).min(86_400) as usize];
            data.fill(Subject::Engine(engine), metric, window, &mut bins);
            bins
        };
        Self { waiting: of(Metric::RequestsWaiting), running: of(Metric::RequestsRunning), kv: of(Metric::KvUsage) }
    }

    /// Share of the time in which somebody waited.
    fn queued(&self) -> f64 {
        let known: Vec<_> = self.waiting.iter().filter_map(Bin::mean).collect();
        let queued = known.iter().filter(|waiting| f64::from(**waiting) > WAITING).count();
        queued as f64 / known.len().max(1) as f64
    }

    /// Share of the time with a queue in which `full` holds for (running, KV use); `None` where that is never known.
    fn share(&self, full: impl Fn(Option<f64>, Option<f64>) -> Option<bool>) -> Option<f64> {
        let mean = |bin: &Bin| bin.mean().map(f64::from);
        let pieces = self.waiting.iter().zip(&self.running).zip(&self.kv);
        let queued = pieces.filter(|((waiting, _), _)| mean(waiting).is_some_and(|n| n > WAITING));
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
