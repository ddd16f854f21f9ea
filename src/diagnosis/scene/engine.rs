//! One engine: what runs and waits, where the time of its requests goes, what its processes do, and how it was started.

use crate::derive::coverage::{is_partial, partial_scrapes};
use crate::derive::exposed::{level, rate};
use crate::derive::kv::{Layout, prefix_hit_pct};
use crate::derive::lives;
use crate::derive::means::{MEANS, mean};
use crate::derive::quantile::quantile;
use crate::engine::launch;
use crate::engine::{self, Setting};
use crate::model::{FactKey, Metric, ProcessState, Reading, SourceId, SourceState, Subject, Time, Why};
use crate::store::{Bin, Data, HistogramWindow, ProcessRow, Series, ThreadRow, Window};

use super::super::past::{Load, Past, Usual};
use super::super::{ClientView, LatencySplit};
use super::{QUANTILES_MS, WINDOW_MS, process_mean};

/// The window of what runs and waits, ms: four scrapes. It has to be short, since nobody may have waited before it.
const QUEUE_MS: u64 = 4_000;
/// The window of prompt lengths, ms: a long prompt in two or three seconds is enough to stall the others.
const PROMPTS_MS: u64 = 8_000;
/// Readings of the process table that are averaged.
const TABLES: u64 = 3;
/// Time between them, ms.
const TABLE_MS: u64 = 1_000;
/// Share of those that wait for a transfer from which on they are what counts.
const MOST_WAIT: f64 = 0.5;
/// A thread that uses less than this does not work, % of a core.
const WORKING_THREAD: f64 = 3.0;
/// How long without a token or request an engine may be before that is looked at, ms: the longest that is looked back.
const LOOK_BACK_MS: u64 = 120_000;
/// Counters of which at least one moves while an engine makes progress.
const PROGRESS: [Metric; 4] =
    [Metric::GenerationTokens, Metric::PromptTokens, Metric::RequestsFinished, Metric::RequestsFailed];

/// Whether an engine can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::diagnosis) enum Reach {
    /// It is read.
    Read,
    /// Nothing is known at this moment: not yet, or not any more.
    Starting,
    /// It wants a key.
    NeedsKey,
    /// Something answers, but not with metrics; why.
    NoMetrics(String),
    /// It took the connection and does not answer; why.
    Silent(String),
    /// It cannot be reached; why.
    Down(String),
}

/// What a process does for its engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::diagnosis) enum Role {
    /// It answers clients.
    Server,
    /// It computes.
    Core,
}

/// A process of an engine, averaged over the last seconds.
#[derive(Clone, Debug)]
pub(in crate::diagnosis) struct EngineProcess {
    pub(in crate::diagnosis) pid: u32,
    pub(in crate::diagnosis) role: Role,
    /// The busiest thread, or the whole process where threads are not read, % of a core.
    pub(in crate::diagnosis) cpu_pct: Option<f64>,
    /// Major faults a second.
    pub(in crate::diagnosis) major_faults: Option<f64>,
    /// Time that a thread is ready and waits for a CPU, %.
    pub(in crate::diagnosis) wait_pct: Option<f64>,
    /// CPUs that it may use.
    pub(in crate::diagnosis) cpus_allowed: Option<f64>,
    /// Time in which its cgroup's quota holds it back, ms/s.
    pub(in crate::diagnosis) throttled_ms: Option<f64>,
    /// What its main thread is doing.
    pub(in crate::diagnosis) state: Option<ProcessState>,
}

impl EngineProcess {
    /// What it is when it cannot run at all.
    pub(in crate::diagnosis) fn stopped(&self) -> Option<&'static str> {
        match self.state {
            Some(ProcessState::Stopped) => Some("stopped (SIGSTOP)"),
            Some(ProcessState::Traced) => Some("held by a debugger"),
            Some(ProcessState::Zombie) => Some("dead"),
            _ => None,
        }
    }
}

/// Figures of one engine. `None`: not known.
#[derive(Clone, Debug)]
pub(in crate::diagnosis) struct EngineScene {
    pub(in crate::diagnosis) index: u8,
    /// Adapter id.
    pub(in crate::diagnosis) kind: String,
    /// The name that is shown for it.
    pub(in crate::diagnosis) name: String,
    pub(in crate::diagnosis) reach: Reach,
    /// How its KV memory is given out.
    pub(in crate::diagnosis) layout: Option<Layout>,
    pub(in crate::diagnosis) pids: Vec<u32>,
    pub(in crate::diagnosis) processes: Vec<EngineProcess>,
    /// GPUs on which its processes hold memory.
    pub(in crate::diagnosis) gpus: Vec<u8>,
    /// Words of the command line that started it.
    pub(in crate::diagnosis) words: Vec<String>,
    pub(in crate::diagnosis) running: Option<f64>,
    pub(in crate::diagnosis) running_mean: Option<f64>,
    pub(in crate::diagnosis) most_running: Option<f64>,
    pub(in crate::diagnosis) waiting: Option<f64>,
    pub(in crate::diagnosis) waiting_mean: Option<f64>,
    pub(in crate::diagnosis) least_waiting: Option<f64>,
    pub(in crate::diagnosis) waiting_for_kv: Option<f64>,
    pub(in crate::diagnosis) cap: Option<f64>,
    /// Highest KV usage, %.
    pub(in crate::diagnosis) kv: Option<f64>,
    pub(in crate::diagnosis) kv_pool: Option<f64>,
    pub(in crate::diagnosis) kv_bytes_per_token: Option<f64>,
    pub(in crate::diagnosis) preemptions: Option<f64>,
    pub(in crate::diagnosis) generated: Option<f64>,
    pub(in crate::diagnosis) prompt: Option<f64>,
    /// Tokens drafted and accepted by speculation, a second.
    pub(in crate::diagnosis) drafted: Option<f64>,
    pub(in crate::diagnosis) accepted: Option<f64>,
    /// Share of the readings in which a request ran, 0 to 1.
    pub(in crate::diagnosis) active: Option<f64>,
    /// Share of the prompt tokens that the prefix cache had, 0 to 1.
    pub(in crate::diagnosis) hit_share: Option<f64>,
    pub(in crate::diagnosis) ttft: Option<f64>,
    pub(in crate::diagnosis) itl: Option<f64>,
    pub(in crate::diagnosis) prompt_len: Option<f64>,
    pub(in crate::diagnosis) answer_len: Option<f64>,
    pub(in crate::diagnosis) split: Option<LatencySplit>,
    /// What it did at such a load before.
    pub(in crate::diagnosis) usual: Usual,
    /// The best share of prefix hits at such prompts before.
    pub(in crate::diagnosis) usual_hits: Option<f64>,
    /// Gaps between tokens of the window.
    pub(in crate::diagnosis) gaps: HistogramWindow,
    /// Prompt lengths of the window.
    pub(in crate::diagnosis) prompts: HistogramWindow,
    /// For how long no token, prompt or request has moved, as far as is known, ms; `None` where no counter is exposed.
    pub(in crate::diagnosis) still_ms: Option<u64>,
    /// Whether one of them has ever been seen moving in the time that is looked back.
    pub(in crate::diagnosis) has_moved: bool,
}

impl EngineScene {
    pub(super) fn of(data: &Data, index: u8, window: Window, past: &mut Past, scratch: &mut HistogramWindow) -> Self {
        let (subject, at) = (Subject::Engine(index), window.end);
        let text = |key| data.fact(subject, key, at).unwrap_or_default().to_owned();
        let newest = |metric| level(data, index, metric, at).value();
        let over = |metric| rate(data, index, metric, window).value();
        let queued = Window::last(at, QUEUE_MS);
        let extremes = |metric, window| data.series(subject, metric).and_then(|series| series.extremes(window));
        let pids: Vec<u32> = text(FactKey::Pids).split(',').filter_map(|pid| pid.trim().parse().ok()).collect();
        let (processes, gpus, words) = processes(data, &pids, at);
        let (still_ms, has_moved) = still(data, subject, at);
        let split = MEANS.map(|of| mean(data, index, of, window, scratch).value());
        let [_, queue, prefill, decode] = split;
        let (mut gaps, mut prompts) = (HistogramWindow::default(), HistogramWindow::default());
        let (itl, prompt_len) = (
            histogram_mean(data, subject, Metric::Itl, window, &mut gaps),
            histogram_mean(data, subject, Metric::PromptLen, Window::last(at, PROMPTS_MS), &mut prompts),
        );
        let answer_len = histogram_mean(data, subject, Metric::GenerationLen, window, scratch);
        let hit_share = prefix_hit_pct(data, index, window).value().map(|pct| pct / 100.0);
        let prompt = over(Metric::PromptTokens);
        let running_mean = rate(data, index, Metric::RequestsRunning, queued).value();
        let generated = over(Metric::GenerationTokens);
        let load = Load::of(running_mean, prompt, hit_share, generated);
        Self {
            index,
            kind: text(FactKey::Kind),
            name: Some(text(FactKey::Name)).filter(|name| !name.is_empty()).unwrap_or_else(|| text(FactKey::Url)),
            reach: reach(data, index, at),
            layout: Layout::of(data, index, at),
            pids,
            processes,
            gpus,
            words,
            running: newest(Metric::RequestsRunning),
            running_mean,
            most_running: extremes(Metric::RequestsRunning, queued).map(|(_, most)| most),
            waiting: newest(Metric::RequestsWaiting),
            waiting_mean: rate(data, index, Metric::RequestsWaiting, queued).value(),
            least_waiting: extremes(Metric::RequestsWaiting, queued).map(|(least, _)| least),
            waiting_for_kv: newest(Metric::WaitingKvFetch),
            cap: newest(Metric::RequestsCap),
            kv: extremes(Metric::KvUsage, queued).map(|(_, most)| most),
            kv_pool: newest(Metric::KvPoolTokens),
            kv_bytes_per_token: newest(Metric::KvBytesPerToken),
            preemptions: over(Metric::Preemptions),
            generated,
            prompt,
            drafted: over(Metric::SpecDraftTokens),
            accepted: over(Metric::SpecAcceptedTokens),
            active: active(data, subject, window),
            hit_share,
            ttft: histogram_mean(data, subject, Metric::Ttft, window, scratch),
            itl,
            prompt_len,
            answer_len,
            split: LatencySplit::of(queue, prefill, decode),
            usual: load.map(|load| past.usual(data, index, at, load)).unwrap_or_default(),
            usual_hits: prompt_len.zip(answer_len).and_then(|lengths| past.hit_share(data, index, at, lengths)),
            gaps,
            prompts,
            still_ms,
            has_moved,
        }
    }

    /// Whether most of those that wait do so for KV blocks from elsewhere.
    pub(in crate::diagnosis) fn waits_for_transfer(&self) -> bool {
        let transfer = self.waiting_for_kv.unwrap_or(0.0);
        transfer >= 1.0 && transfer >= self.waiting.unwrap_or(0.0) * MOST_WAIT
    }

    /// Whether its processes run on this machine.
    pub(in crate::diagnosis) fn is_local(&self) -> bool {
        !self.pids.is_empty()
    }

    /// Whether its figures may be judged.
    pub(in crate::diagnosis) fn is_read(&self) -> bool {
        self.reach == Reach::Read
    }

    /// Whether a request runs or waits.
    pub(in crate::diagnosis) fn has_requests(&self) -> bool {
        self.running.unwrap_or(0.0) + self.waiting.unwrap_or(0.0) > 0.0
    }

    /// Whether nothing moved for this long.
    pub(in crate::diagnosis) fn is_still(&self, ms: u64) -> bool {
        self.still_ms.is_some_and(|still| still >= ms)
    }

    /// The value of an option on its command line.
    pub(in crate::diagnosis) fn option(&self, names: &[&str]) -> Option<&str> {
        launch::option(&self.words, names)
    }

    /// Whether a word stands on its command line.
    pub(in crate::diagnosis) fn has_word(&self, word: &str) -> bool {
        self.words.iter().any(|own| own == word)
    }

    /// What the engine calls a setting.
    pub(in crate::diagnosis) fn flag(&self, setting: Setting) -> Option<&'static str> {
        engine::flag(&self.kind, setting)
    }

    /// The busiest thread of the processes with this role, % of a core.
    pub(in crate::diagnosis) fn busiest(&self, role: Role) -> Option<f64> {
        let of_role = self.processes.iter().filter(|process| process.role == role);
        of_role.filter_map(|process| process.cpu_pct).reduce(f64::max)
    }

    /// Share of the token rate that is lost against the best at such a load before, 0 to 1, and that best gap, s.
    pub(in crate::diagnosis) fn token_loss(&self) -> Option<(f64, f64)> {
        let (best, now) = (self.usual.best_itl?, self.itl.filter(|_| self.is_read())?);
        Some(((1.0 - best / now).clamp(0.0, 1.0), best))
    }

    /// Share of its requests that wait, 0 to 1.
    pub(in crate::diagnosis) fn waiting_share(&self) -> f64 {
        let (waiting, running) = (self.waiting_mean.unwrap_or(0.0), self.running_mean.unwrap_or(0.0));
        if waiting <= 0.0 { 0.0 } else { waiting / (waiting + running) }
    }

    /// Share of a request's time that goes into the queue: the engine's own split, or those that wait now.
    pub(in crate::diagnosis) fn queue_share(&self) -> f64 {
        let of_split = self.split.filter(|split| split.total() > 0.0).map_or(0.0, |split| split.queue / split.total());
        of_split.max(self.waiting_share())
    }

    /// Share of a request's time that goes into decode, 0 to 1; all of it where that is not told.
    pub(in crate::diagnosis) fn decode_share(&self) -> f64 {
        self.split.filter(|split| split.total() > 0.0).map_or(1.0, |split| split.decode / split.total())
    }

    /// Whether somebody waited for the whole window, and more than one request in passing.
    pub(in crate::diagnosis) fn queues(&self) -> bool {
        self.waiting_mean.is_some_and(|mean| mean >= 1.0) && self.least_waiting.is_some_and(|least| least >= 1.0)
    }

    pub(super) fn client(&self, data: &Data, at: Time, scratch: &mut HistogramWindow) -> ClientView {
        let subject = Subject::Engine(self.index);
        let ttft_lives = lives::window(data, subject, Metric::Ttft, Window::last(at, QUANTILES_MS), scratch);
        let known = |value: Option<f64>| value.map_or(Reading::Missing(Why::NotYet), Reading::new);
        // What an engine did before it could not be read any more is not what its clients see now.
        let present = |value: Option<f64>| known(value.filter(|_| self.is_read()));
        ClientView {
            engine: self.index,
            running: known(self.running),
            running_cap: known(self.cap),
            waiting: known(self.waiting),
            ttft_p50: quantile(scratch, 0.5),
            ttft_p99: quantile(scratch, 0.99),
            ttft_partial: is_partial(scratch.measured_ms, QUANTILES_MS),
            ttft_lives,
            partial: partial_scrapes(data, self.index, Window::last(at, WINDOW_MS)),
            itl_mean: present(self.itl),
            itl_usual: present(self.usual.itl),
            ttft_mean: present(self.ttft),
            ttft_usual: present(self.usual.ttft),
            generated_usual: present(self.usual.generated),
            generated_per_s: present(self.generated),
            prompt_len: present(self.prompt_len),
            answer_len: present(self.answer_len),
            split: self.split.filter(|_| self.is_read()),
        }
    }
}

fn reach(data: &Data, engine: u8, at: Time) -> Reach {
    let Some(source) = data.source(SourceId::Engine(engine)) else { return Reach::Starting };
    let state = source.state_at(at);
    let why = || state.why().to_owned();
    match state {
        SourceState::Starting | SourceState::Loading(_) => Reach::Starting,
        // A scrape is late, and what was read before it is no longer current.
        SourceState::Degraded(_) if is_stale(data, engine, at) => Reach::Silent(why()),
        // Nothing came in for a while, though nothing is known to be wrong: a recording with a hole.
        SourceState::Ok if is_stale(data, engine, at) => Reach::Starting,
        SourceState::Ok | SourceState::Degraded(_) => Reach::Read,
        SourceState::Unauthorized(_) => Reach::NeedsKey,
        SourceState::NoMetrics(_) => Reach::NoMetrics(why()),
        SourceState::Stalled(_) => Reach::Silent(why()),
        SourceState::Failed(_) | SourceState::Absent(_) => Reach::Down(why()),
    }
}

/// Share of the window's seconds in which a request ran.
fn active(data: &Data, subject: Subject, window: Window) -> Option<f64> {
    let mut bins = vec![Bin::default(); (window.ms() / 1000) as usize];
    data.fill(subject, Metric::RequestsRunning, window, &mut bins);
    let known: Vec<f32> = bins.iter().filter_map(Bin::mean).collect();
    let active = known.iter().filter(|&&running| running > 0.0).count();
    (!known.is_empty()).then(|| active as f64 / known.len() as f64)
}

/// Whether its gauges are too old to be current.
fn is_stale(data: &Data, engine: u8, at: Time) -> bool {
    level(data, engine, Metric::RequestsRunning, at).why() == Some(Why::Stale)
}

fn histogram_mean(
    data: &Data,
    subject: Subject,
    metric: Metric,
    window: Window,
    out: &mut HistogramWindow,
) -> Option<f64> {
    data.histogram_window(subject, metric, window, out);
    out.mean()
}

/// How long ago the last of [`PROGRESS`] moved; where none did, for how long that is known, and `false`.
fn still(data: &Data, subject: Subject, at: Time) -> (Option<u64>, bool) {
    let counters = || PROGRESS.iter().filter_map(|&metric| data.series(subject, metric));
    let moved = counters().filter_map(|series| series.last_above(at, LOOK_BACK_MS, 0.0)).max();
    let known = counters().filter_map(Series::full_rate_from).min();
    let then = moved.or_else(|| Some(known?.min(at).max(at - LOOK_BACK_MS)));
    (then.map(|then| at.since(then)), moved.is_some())
}

/// The engine's processes over the last seconds, their GPUs, and the words that started it.
fn processes(data: &Data, pids: &[u32], at: Time) -> (Vec<EngineProcess>, Vec<u8>, Vec<String>) {
    let Some(newest) = data.current_processes(at) else { return Default::default() };
    let rows: Vec<&ProcessRow> = newest.rows.iter().filter(|row| pids.contains(&row.pid)).collect();
    let mut gpus: Vec<u8> = rows.iter().flat_map(|row| row.gpus.iter().map(|&(gpu, _)| gpu)).collect();
    gpus.sort_unstable();
    gpus.dedup();
    let words: Vec<Vec<String>> =
        rows.iter().map(|row| row.command.split_whitespace().map(ToOwned::to_owned).collect()).collect();
    let server = |words: &Vec<String>| launch::recognise(words).is_some_and(|l| l.role == launch::Role::Server);
    let averaged = rows.iter().zip(&words).map(|(row, words)| {
        let over =
            |of: fn(&ProcessRow) -> Reading| process_mean(data, row.pid, at, (TABLES, TABLE_MS), |row| of(row).value());
        EngineProcess {
            pid: row.pid,
            role: if server(words) && row.gpus.is_empty() { Role::Server } else { Role::Core },
            cpu_pct: over(busiest_thread),
            major_faults: over(|row| row.majflt_per_s),
            wait_pct: over(longest_wait),
            cpus_allowed: row.limits.allowed.value(),
            throttled_ms: over(|row| row.throttled_ms_per_s),
            state: row.state,
        }
    });
    let averaged = averaged.collect();
    let started = words.into_iter().filter(server).max_by_key(Vec::len).unwrap_or_default();
    (averaged, gpus, started)
}

/// The CPU of the busiest thread, or of the whole process where its threads are not read, % of a core.
fn busiest_thread(row: &ProcessRow) -> Reading {
    let threads = row.threads.iter().filter_map(|thread| thread.cpu_pct.value());
    threads.reduce(f64::max).map_or(row.cpu_pct, Reading::new)
}

/// The time that a thread which works was ready and waited for a CPU, %. Threads that hardly run wait for nothing that
/// clients feel.
fn longest_wait(row: &ProcessRow) -> Reading {
    let works = |thread: &&ThreadRow| thread.cpu_pct.value().is_some_and(|cpu| cpu >= WORKING_THREAD);
    let waits = row.threads.iter().filter(works).filter_map(|thread| thread.wait_pct.value());
    let known = row.threads.iter().any(|thread| thread.wait_pct.value().is_some());
    let none = if known { Reading::new(0.0) } else { Reading::Missing(Why::NotYet) };
    waits.reduce(f64::max).map_or(none, Reading::new)
}
