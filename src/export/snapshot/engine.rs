//! One engine in a snapshot: its state, its queue, its throughput and what that costs in energy.

use serde::Serialize;

use crate::derive::energy::{self, energy};
use crate::derive::exposed::{level, rate};
use crate::derive::queue::{self, Drain, Peak, queue};
use crate::diagnosis::Diagnosis;
use crate::model::{FactKey, Metric, Reading, SourceId, SourceState, Subject, Why};
use crate::store::{Data, Window};
use crate::ui::panes::notice::{NoFigure, kind};

use super::coverage::Coverage;
use super::diagnosis::SplitRow;
use super::gaps::{Gaps, short};
use super::kv::{Kv, kv};
use super::latency::{Latencies, latencies};

#[derive(Clone, Debug, Serialize)]
pub(super) struct Engine {
    url: Option<String>,
    kind: Option<String>,
    version: Option<String>,
    model: Option<String>,
    state: &'static str,
    /// What is wrong, in words; empty while all is well.
    state_why: String,
    requests_running: Option<u64>,
    requests_waiting: Option<u64>,
    preemptions_per_s: Option<f64>,
    prompt_tokens_per_s: Option<f64>,
    generation_tokens_per_s: Option<f64>,
    kv: Kv,
    latency: Latencies,
    /// Most requests the engine runs at once, and where that is known from.
    requests_cap: Option<u64>,
    requests_cap_from: Option<String>,
    /// Most requests that may wait.
    queue_cap: Option<u64>,
    waiting_by_reason: ByReason,
    high_water: HighWater,
    /// Seconds until those who wait now have been let in, at the present rate; 0 while nobody waits.
    drain_s: Option<f64>,
    requests_per_s: Option<f64>,
    failed_per_s: Option<f64>,
    /// Generated tokens for the energy that the engine's GPUs took, and the inverse.
    tokens_per_joule: Option<f64>,
    joules_per_token: Option<f64>,
    energy: Option<Energy>,
    lora: Option<Lora>,
    models_loaded: Option<Loaded>,
    /// Where the time of a mean request went over the diagnosis's window.
    latency_split: Option<SplitRow>,
    /// Seconds of the window that each rate rests on.
    measured_s: Coverage,
}

/// The rates of an engine over the window, and what counts them.
const RATES: [(&str, Metric); 5] = [
    ("preemptions_per_s", Metric::Preemptions),
    ("prompt_tokens_per_s", Metric::PromptTokens),
    ("generation_tokens_per_s", Metric::GenerationTokens),
    ("requests_per_s", Metric::RequestsFinished),
    ("failed_per_s", Metric::RequestsFailed),
];

/// The engine's own split of a request's time.
fn latency_split(diagnosis: &Diagnosis, index: u8, prefix: &str, gaps: &mut Gaps) -> Option<SplitRow> {
    gaps.enter(prefix.to_owned());
    let split = diagnosis.client(index).and_then(|client| client.split).map(SplitRow::from);
    if split.is_none() {
        let words = "no request finished in the last seconds, or the engine does not tell its parts";
        gaps.row("latency_split", Why::NotYet, Some(words.to_owned()));
    }
    split
}

/// Waiting requests by the reason for which they wait.
#[derive(Clone, Debug, Serialize)]
struct ByReason {
    capacity: Option<u64>,
    deferred: Option<u64>,
    grammar: Option<u64>,
    kv_fetch: Option<u64>,
    paused: Option<u64>,
}

/// The most that ran and waited, and when first.
#[derive(Clone, Debug, Serialize)]
struct HighWater {
    window: Marks,
    /// Of all that is kept: since the start, a day at most.
    kept: Marks,
}

#[derive(Clone, Debug, Serialize)]
struct Marks {
    running: Option<u64>,
    running_unix_ms: Option<u64>,
    waiting: Option<u64>,
    waiting_unix_ms: Option<u64>,
}

/// What the two ratios of tokens and joules rest on.
#[derive(Clone, Debug, Serialize)]
struct Energy {
    gpus: Vec<u8>,
    /// Mean power of these GPUs together, from their energy counters, idle power included.
    watts: f64,
    /// `exclusive`, or `shared` with other processes: then tokens per joule are a lower bound.
    basis: &'static str,
    other_processes: u32,
    /// Prompt and generated tokens together.
    all_tokens_per_joule: Option<f64>,
    /// What tokens and energy were both measured over.
    window_s: f64,
}

/// LoRA adapters.
#[derive(Clone, Debug, Serialize)]
struct Lora {
    loaded: Option<u64>,
    cap: Option<u64>,
    running: Option<u64>,
    waiting: Option<u64>,
    loaded_names: Vec<String>,
    running_names: Vec<String>,
    waiting_names: Vec<String>,
}

/// Models in memory, of an engine that loads and unloads them.
#[derive(Clone, Debug, Serialize)]
struct Loaded {
    count: u64,
    /// Weights and cache together, and what of that lies on GPUs.
    bytes: Option<u64>,
    gpu_bytes: Option<u64>,
    /// A line each: name, size, share on GPUs, context, until when.
    models: Vec<String>,
}

/// Reads engine number `index`, which is the one at `place` in the list.
pub(super) fn engine(
    data: &Data,
    index: u8,
    place: usize,
    window: Window,
    (diagnosis, gaps): (&Diagnosis, &mut Gaps),
) -> Engine {
    let prefix = format!("engines[{place}].");
    gaps.enter(prefix.clone());
    gaps.about(kind(data, index, window.end));
    let subject = Subject::Engine(index);
    let state = data.source(SourceId::Engine(index)).map_or(&SourceState::Starting, |s| s.state_at(window.end));
    let queue = queue(data, index, window);
    let mut of = |key: &str, metric| gaps.float_of(key, metric, rate(data, index, metric, window));
    let preemptions_per_s = of("preemptions_per_s", Metric::Preemptions);
    let prompt_tokens_per_s = of("prompt_tokens_per_s", Metric::PromptTokens);
    let generation_tokens_per_s = of("generation_tokens_per_s", Metric::GenerationTokens);
    let (tokens_per_joule, joules_per_token, energy) = tokens_and_joules(energy(data, index, window), &prefix, gaps);
    let out = Engine {
        url: gaps.fact("url", data, subject, FactKey::Url),
        kind: gaps.fact("kind", data, subject, FactKey::Kind),
        version: gaps.fact("version", data, subject, FactKey::Version),
        model: gaps.fact("model", data, subject, FactKey::Model),
        state: state_name(state),
        state_why: state.why().to_owned(),
        requests_running: gaps.whole_of("requests_running", Metric::RequestsRunning, queue.running),
        requests_waiting: gaps.whole_of("requests_waiting", Metric::RequestsWaiting, queue.waiting),
        preemptions_per_s,
        prompt_tokens_per_s,
        generation_tokens_per_s,
        requests_cap: gaps.whole_of("requests_cap", Metric::RequestsCap, queue.running_cap),
        requests_cap_from: cap_from(data, index, &queue, window, gaps),
        queue_cap: gaps.whole_of("queue_cap", Metric::QueueCap, queue.waiting_cap),
        drain_s: drain(&queue, gaps),
        requests_per_s: gaps.float_of("requests_per_s", Metric::RequestsFinished, queue.finished_per_s),
        failed_per_s: gaps.float_of("failed_per_s", Metric::RequestsFailed, queue.failed_per_s),
        tokens_per_joule,
        joules_per_token,
        energy,
        waiting_by_reason: by_reason(&queue, &prefix, gaps),
        high_water: HighWater {
            window: marks(&queue.window, &queue, &format!("{prefix}high_water.window."), gaps),
            kept: marks(&queue.ever, &queue, &format!("{prefix}high_water.kept."), gaps),
        },
        lora: lora(data, index, &prefix, window, gaps),
        models_loaded: loaded(data, index, &prefix, window, gaps),
        kv: kv(data, index, window, &prefix, gaps),
        latency: latencies(data, index, window, &prefix, gaps),
        latency_split: latency_split(diagnosis, index, &prefix, gaps),
        measured_s: Coverage::of(data, subject, window, &RATES),
    };
    gaps.about("");
    out
}

const fn state_name(state: &SourceState) -> &'static str {
    match state {
        SourceState::Ok => "ok",
        SourceState::Degraded(_) => "degraded",
        SourceState::Unauthorized(_) => "unauthorized",
        SourceState::Starting
        | SourceState::Failed(_)
        | SourceState::Loading(_)
        | SourceState::NoMetrics(_)
        | SourceState::Stalled(_)
        | SourceState::Absent(_) => "unreachable",
    }
}

/// Where the limit of running requests is known from.
fn cap_from(data: &Data, index: u8, queue: &queue::Queue, window: Window, gaps: &mut Gaps) -> Option<String> {
    let from = data.fact(Subject::Engine(index), FactKey::RequestsCapSource, window.end).map(str::to_owned);
    if from.is_none() {
        let why = queue.running_cap.why().unwrap_or(Why::Unsupported);
        gaps.row("requests_cap_from", why, None);
    }
    from
}

fn loaded(data: &Data, index: u8, prefix: &str, window: Window, gaps: &mut Gaps) -> Option<Loaded> {
    gaps.enter(prefix.to_owned());
    let of = |metric| level(data, index, metric, window.end);
    let count = gaps.whole_of("models_loaded", Metric::ModelsLoaded, of(Metric::ModelsLoaded))?;
    let models = data.fact(Subject::Engine(index), FactKey::Loaded, window.end).unwrap_or_default();
    gaps.enter(format!("{prefix}models_loaded."));
    Some(Loaded {
        count,
        bytes: gaps.whole_of("bytes", Metric::ModelBytes, of(Metric::ModelBytes)),
        gpu_bytes: gaps.whole_of("gpu_bytes", Metric::ModelGpuBytes, of(Metric::ModelGpuBytes)),
        models: models.split("; ").filter(|model| !model.is_empty()).map(str::to_owned).collect(),
    })
}

fn drain(queue: &queue::Queue, gaps: &mut Gaps) -> Option<f64> {
    let seconds = queue.drain.seconds();
    if queue.drain == Drain::Never {
        gaps.row("drain_s", Why::NotYet, Some("some wait and nothing finished: it does not drain".to_owned()));
        return None;
    }
    gaps.float_of("drain_s", Metric::RequestsFinished, seconds)
}

fn by_reason(queue: &queue::Queue, prefix: &str, gaps: &mut Gaps) -> ByReason {
    gaps.enter(format!("{prefix}waiting_by_reason."));
    let mut readings = queue::REASONS.iter().zip(queue.reasons);
    let mut next = || readings.next().and_then(|(reason, n)| gaps.whole_of(reason.name, reason.metric, n));
    ByReason { capacity: next(), deferred: next(), grammar: next(), kv_fetch: next(), paused: next() }
}

fn marks(marks: &queue::HighWater, queue: &queue::Queue, at: &str, gaps: &mut Gaps) -> Marks {
    gaps.enter(at.to_owned());
    let mut of = |key: &str, peak: Option<Peak>, now: Reading| {
        if peak.is_none() {
            let why = now.why().unwrap_or(Why::NotYet);
            gaps.row(key, why, None);
            gaps.row(&format!("{key}_unix_ms"), why, None);
        }
        (peak.map(|peak| peak.value.round() as u64), peak.map(|peak| peak.at.0))
    };
    let (running, running_unix_ms) = of("running", marks.running, queue.running);
    let (waiting, waiting_unix_ms) = of("waiting", marks.waiting, queue.waiting);
    Marks { running, running_unix_ms, waiting, waiting_unix_ms }
}

/// Generated tokens per joule, joules per generated token, and what they rest on.
fn tokens_and_joules(
    energy: Result<energy::Energy, energy::NoEnergy>,
    prefix: &str,
    gaps: &mut Gaps,
) -> (Option<f64>, Option<f64>, Option<Energy>) {
    let energy = match energy {
        Ok(energy) => energy,
        Err(reason) => {
            for key in ["tokens_per_joule", "joules_per_token", "energy"] {
                gaps.row(key, reason.why(), Some(NoFigure(reason).to_string()));
            }
            return (None, None, None);
        }
    };
    let per_joule = gaps.float_of("tokens_per_joule", Metric::GenerationTokens, energy.generated_per_joule);
    let joules = gaps.float_of("joules_per_token", Metric::GenerationTokens, energy.joules_per_generated);
    gaps.enter(format!("{prefix}energy."));
    let all_tokens_per_joule = gaps.float_of("all_tokens_per_joule", Metric::PromptTokens, energy.all_per_joule);
    gaps.enter(prefix.to_owned());
    let energy = Energy {
        gpus: energy.gpus.iter().collect(),
        watts: short(energy.watts),
        basis: energy.basis(),
        other_processes: energy.others,
        all_tokens_per_joule,
        window_s: energy.measured_ms as f64 / 1000.0,
    };
    (per_joule, joules, Some(energy))
}

fn lora(data: &Data, index: u8, prefix: &str, window: Window, gaps: &mut Gaps) -> Option<Lora> {
    gaps.enter(prefix.to_owned());
    let Some(lora) = queue::lora(data, index, window.end) else {
        let loaded = level(data, index, Metric::LoraLoaded, window.end);
        gaps.whole_of("lora", Metric::LoraLoaded, loaded);
        return None;
    };
    gaps.enter(format!("{prefix}lora."));
    let names = |key| {
        let list = data.fact(Subject::Engine(index), key, window.end).unwrap_or_default();
        list.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
    };
    Some(Lora {
        loaded: gaps.whole_of("loaded", Metric::LoraLoaded, lora.loaded),
        cap: gaps.whole_of("cap", Metric::LoraCap, lora.cap),
        running: gaps.whole_of("running", Metric::LoraRunning, lora.running),
        waiting: gaps.whole_of("waiting", Metric::LoraWaiting, lora.waiting),
        loaded_names: names(FactKey::LoraLoaded),
        running_names: names(FactKey::LoraRunning),
        waiting_names: names(FactKey::LoraWaiting),
    })
}
