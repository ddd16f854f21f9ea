//! llama.cpp's `llama-server`: counters of `/metrics`, KV of `/slots`, the rest of `/props`.
//!
//! Read in the sources of 2024 to 2026 and in bodies of b11434 and b11549. Rules:
//!
//! - `/metrics` needs `--metrics`, `/slots` can be switched off: any of the three paths recognises the
//!   server, and each adds what it knows. KV left `/metrics` in 2025; before, it counted what finished
//!   requests had left in the cache as used, so it says only what is free.
//! - `n_prompt_tokens` of a slot is what its cache holds: prompt and output so far, and after the end what is
//!   kept for reuse. Builds before 2026 lack it: live tokens are missing then.
//! - Tokens are counted when a request ends, so what is under way is added from `/slots`. Prompts are counted
//!   when they have been computed, in new builds piece by piece: they are taken as they are counted. The two
//!   throughput gauges are averages since anybody's last scrape: not used.
//! - Nothing in the answers tells whether slots share the context: see `layout.rs`. Where that is not certain
//!   the size of the pool is missing.
//! - Docker's model runner gathers the metrics of its servers, with `backend`, `mode` and `model` as labels: they are
//!   added up. While it runs none, its answer is one comment.
//! - `/slots` wakes a server that sleeps (`--sleep-idle-seconds`), so it is not asked while nothing runs and
//!   nothing was computed since the last time. Builds before August 2026 are kept awake by `/metrics` too.

mod counts;
mod layout;
pub mod router;
mod slots;

use serde::Deserialize;

use super::table::{Found, Scalar, Table};
use super::{Adapter, AdapterSpec, Answers, Memory, Setting};
use crate::model::{Batch, FactKey, Metric, Reading, Sample, Subject, Why};
use counts::Counts;
use layout::{Layout, Layouts};
use slots::{Slot, context};

/// The adapter.
#[derive(Debug)]
pub struct LlamaCpp;

const METRICS: &str = "/metrics";
const SLOTS: &str = "/slots";
const PROPS: &str = "/props";
const LORA: &str = "/lora-adapters";

const NEEDS_METRICS: &str = "start it with --metrics";
const NEEDS_SLOTS: &str = "start it without --no-slots";
const FROM_THE_COMMAND_LINE: &str = "its answers do not tell whether slots share the context (--kv-unified): known on \
                                     the same host by --ctx-size or --parallel";
const ONLY_IN_RESPONSES: &str = "only each response has its own (timings)";

static SPEC: AdapterSpec = AdapterSpec {
    id: "llama.cpp",
    name: "llama.cpp",
    main: &[METRICS, SLOTS, PROPS],
    beside: &[SLOTS],
    extras: &[PROPS, LORA],
    flags: &[
        (Setting::KvMemory, "--ctx-size"),
        (Setting::KvType, "--cache-type-k, --cache-type-v"),
        (Setting::Running, "--parallel"),
        (Setting::StepTokens, "--batch-size"),
        (Setting::Context, "--ctx-size"),
    ],
    hints: &[
        (Metric::RequestsRunning, NEEDS_METRICS),
        (Metric::RequestsWaiting, NEEDS_METRICS),
        (Metric::PromptTokens, NEEDS_METRICS),
        (Metric::GenerationTokens, NEEDS_METRICS),
        (Metric::PrefixHits, NEEDS_METRICS),
        (Metric::KvLiveTokens, NEEDS_SLOTS),
        (Metric::KvCachedTokens, NEEDS_SLOTS),
        (Metric::KvUsage, FROM_THE_COMMAND_LINE),
        (Metric::KvPoolTokens, FROM_THE_COMMAND_LINE),
        (Metric::KvHeldTokens, FROM_THE_COMMAND_LINE),
        (Metric::KvFreeTokens, FROM_THE_COMMAND_LINE),
        (Metric::Preemptions, "it never preempts: a request keeps its slot"),
        (Metric::RequestsFinished, "it counts tokens, not requests"),
        (Metric::RequestsFailed, "it counts tokens, not requests"),
        (Metric::LoraLoaded, "start it with --lora"),
        (Metric::EngineStart, "a restart shows in counters that fall"),
        (Metric::Ttft, ONLY_IN_RESPONSES),
        (Metric::Tpot, ONLY_IN_RESPONSES),
        (Metric::E2e, ONLY_IN_RESPONSES),
    ],
    help: "GET /metrics (needs --metrics), /slots, /props, /lora-adapters; builds b11434 and b11549, sources since 2024",
};

static TABLE: Table = Table {
    prefixes: &["llamacpp:"],
    scalars: &[
        Scalar::of("requests_processing", Metric::RequestsRunning),
        Scalar::of("requests_deferred", Metric::RequestsWaiting),
        // What is deferred waits for a slot, and for nothing else.
        Scalar::of("requests_deferred", Metric::WaitingCapacity),
        Scalar::of("prompt_tokens_total", Metric::PromptTokens),
        Scalar::of("prompt_tokens_cached_total", Metric::PrefixHits),
        Scalar::of("tokens_predicted_total", Metric::GenerationTokens),
        Scalar::of("prompt_seconds_total", Metric::PrefillSum),
        Scalar::of("tokens_predicted_seconds_total", Metric::DecodeSum),
        Scalar::of("spec_decode_num_drafts_total", Metric::SpecDrafts),
        Scalar::of("spec_decode_num_draft_tokens_total", Metric::SpecDraftTokens),
        Scalar::of("spec_decode_num_accepted_tokens_total", Metric::SpecAcceptedTokens),
    ],
    histograms: &[],
    same: &[],
    ranks: &["model"],
    model: &["model"],
    expected: &[
        Metric::RequestsRunning,
        Metric::RequestsWaiting,
        Metric::KvUsage,
        Metric::KvPoolTokens,
        Metric::KvLiveTokens,
        Metric::PromptTokens,
        Metric::GenerationTokens,
        Metric::PrefixQueries,
        Metric::PrefixHits,
        Metric::RequestsFinished,
        Metric::Preemptions,
    ],
    absent: Why::Unsupported,
};

/// What is remembered of one server.
#[derive(Debug, Default)]
pub(super) struct Known {
    layouts: Layouts,
    layout: Option<Layout>,
    /// The newest readings of `/slots`, and what had been computed by then.
    slots: Vec<Sample>,
    computed: Option<f64>,
    /// Scrapes since `/slots` answered, of those in which it was asked.
    silent: u8,
}

impl Known {
    /// Takes what the command line says. Another one is another process.
    pub(super) fn launched(&mut self, words: &[String]) {
        *self = Self { layouts: Layouts::of(words), ..Self::default() };
    }
}

impl Adapter for LlamaCpp {
    fn spec(&self) -> &'static AdapterSpec {
        &SPEC
    }

    fn detect(&self, path: &str, answer: &str) -> bool {
        match path {
            METRICS => super::holds(answer, TABLE.prefixes) || counts::nothing_loaded(answer),
            SLOTS => slots::read(answer).is_some(),
            PROPS => props(answer.as_bytes()).is_some_and(|props| props.total_slots.is_some()),
            _ => false,
        }
    }

    fn asks(&self, path: &str, main: &str, memory: &Memory) -> bool {
        path != SLOTS || Counts::read(main).is_none_or(|counts| !counts.rests_since(&memory.llama))
    }

    fn translate(&self, answers: Answers<'_>, engine: u8, memory: &mut Memory, batch: &mut Batch) -> usize {
        let subject = Subject::Engine(engine);
        let found = Found::read(&TABLE, answers.body(METRICS), |_| {});
        let counts = answers.get(METRICS).and_then(Counts::read);
        models(&found, answers.get(METRICS).is_some_and(counts::nothing_loaded), subject, batch);
        let slots = answers.get(SLOTS).and_then(slots::read);
        if let Some(slots) = &slots {
            note(slots, counts.as_ref(), &mut memory.llama);
            levels(slots, counts.as_ref(), memory.llama.layout, subject, batch);
            memory.llama.slots.clone_from(&batch.samples);
        } else if counts.as_ref().is_some_and(|counts| counts.rests_since(&memory.llama)) {
            batch.samples.extend_from_slice(&memory.llama.slots);
        }
        if let Some(layout) = memory.llama.layout {
            let name = if layout == Layout::Slots { "slots" } else { "unified" };
            batch.fact(subject, FactKey::KvLayout, name);
        }
        if let Some(counts) = &counts {
            prompts(counts, subject, batch);
            generated(counts, slots.as_deref(), memory, subject, batch);
        } else if let Some(slots) = &slots {
            let busy = slots.iter().filter(|slot| slot.busy()).count();
            batch.push(subject, Metric::RequestsRunning, busy as f64);
        }
        let bad_lines = found.bad_lines();
        found.emit(subject, batch);
        bad_lines
    }

    fn extra(&self, path: &str, answer: &[u8], engine: u8, batch: &mut Batch) {
        let subject = Subject::Engine(engine);
        match path {
            PROPS => {
                if let Some(props) = props(answer) {
                    props.tell(subject, batch);
                }
            }
            LORA => adapters(answer, subject, batch),
            _ => {}
        }
    }
}

/// Adds how many models there are, of servers that have several, each with a label.
fn models(found: &Found<'_>, none: bool, subject: Subject, batch: &mut Batch) {
    if none {
        for metric in [Metric::RequestsRunning, Metric::RequestsWaiting, Metric::ModelsLoaded] {
            batch.push(subject, metric, 0.0);
        }
        let known = [Metric::RequestsRunning, Metric::RequestsWaiting];
        for &metric in TABLE.expected.iter().filter(|metric| !known.contains(metric)) {
            batch.push(subject, metric, Reading::Missing(Why::NotYet));
        }
    } else if !found.models().is_empty() {
        batch.push(subject, Metric::ModelsLoaded, found.models().len() as f64);
    }
}

/// Remembers what the slots show.
fn note(slots: &[Slot], counts: Option<&Counts>, known: &mut Known) {
    known.silent = 0;
    known.computed = counts.and_then(|counts| counts.decoded);
    let held: f64 = slots.iter().filter_map(Slot::held).sum();
    let before_there_was_a_choice = counts.is_some_and(|counts| counts.kv_tokens.is_some());
    if held > context(slots) || before_there_was_a_choice {
        known.layouts.split();
    }
    known.layout = known.layouts.of_slots(slots);
}

/// Adds the levels that slots tell.
fn levels(slots: &[Slot], counts: Option<&Counts>, layout: Option<Layout>, subject: Subject, batch: &mut Batch) {
    // The sum of no slots is -0, which nobody wants to read.
    let told = |tokens: Option<f64>| tokens.map_or(Reading::Missing(Why::Unsupported), |n| Reading::new(n + 0.0));
    let part = |busy: bool| slots.iter().filter(|slot| slot.busy() == busy).map(Slot::held).sum::<Option<f64>>();
    let (mut live, mut cached) = (part(true), part(false));
    let whole = counts.and_then(|counts| counts.kv_tokens);
    let busy = slots.iter().filter(|slot| slot.busy()).count() as f64;
    if busy <= 0.0 && live.zip(cached).is_none() {
        (live, cached) = (whole.map(|_| 0.0), whole);
    }
    batch.push(subject, Metric::RequestsCap, slots.len() as f64);
    batch.fact(subject, FactKey::RequestsCapSource, "slots");
    batch.push(subject, Metric::MaxModelLen, context(slots));
    batch.push(subject, Metric::KvLiveTokens, told(live));
    batch.push(subject, Metric::KvCachedTokens, told(cached));
    let (pool, held) = match layout {
        // A slot is held as a whole, whatever is in it.
        Some(Layout::Slots) => (
            slots.iter().map(|slot| slot.n_ctx).sum(),
            Some(slots.iter().filter(|slot| slot.busy()).map(|slot| slot.n_ctx).sum()),
        ),
        Some(Layout::Unified) => (context(slots), live),
        None => return,
    };
    let rest = held.zip(cached).map(|(held, cached)| (pool - held - cached).max(0.0));
    batch.push(subject, Metric::KvPoolTokens, pool);
    batch.push(subject, Metric::KvHeldTokens, told(held));
    batch.push(subject, Metric::KvUsage, told(held.map(|held: f64| held / pool * 100.0)));
    batch.push(subject, Metric::KvFreeTokens, told(rest));
    batch.push(subject, Metric::KvReservedTokens, 0.0);
}

/// Adds the prompts that were taken in, computed and found in the cache.
fn prompts(counts: &Counts, subject: Subject, batch: &mut Batch) {
    let taken_in = counts.prompt + counts.cached.unwrap_or(0.0);
    batch.push(subject, Metric::PromptTokens, taken_in);
    if counts.cached.is_some() {
        batch.push(subject, Metric::PrefixQueries, taken_in);
    }
}

/// Adds the tokens generated, those of requests under way included. Without these a total that had them once
/// is missing, until `/slots` has been silent for long enough to be switched off.
fn generated(counts: &Counts, slots: Option<&[Slot]>, memory: &mut Memory, subject: Subject, batch: &mut Batch) {
    const OFF: u8 = 5;
    let resting = counts.busy <= 0.0;
    if slots.is_none() && !resting && memory.totals(Metric::GenerationTokens) {
        memory.llama.silent = memory.llama.silent.saturating_add(1);
        if memory.llama.silent <= OFF {
            batch.push(subject, Metric::GenerationTokens, Reading::Missing(Why::Failed));
            return;
        }
        memory.forget_totals();
    }
    let busy = slots.unwrap_or_default().iter().filter(|slot| slot.busy());
    let under_way: Vec<_> = busy.map(|slot| (slot.request(), slot.decoded())).collect();
    let generated = memory.total(Metric::GenerationTokens, counts.generated, &under_way);
    batch.push(subject, Metric::GenerationTokens, generated);
}

/// The answer to `/props`.
#[derive(Deserialize)]
struct Props {
    total_slots: Option<f64>,
    #[serde(default)]
    default_generation_settings: Settings,
    model_alias: Option<String>,
    model_path: Option<String>,
    build_info: Option<String>,
}

#[derive(Default, Deserialize)]
struct Settings {
    n_ctx: Option<f64>,
}

fn props(answer: &[u8]) -> Option<Props> {
    serde_json::from_slice(answer).ok()
}

impl Props {
    fn tell(&self, subject: Subject, batch: &mut Batch) {
        let text = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        // Where no alias was given it is the path again, of which the file's name is enough.
        if let Some(model) = text(&self.model_alias).or_else(|| text(&self.model_path)) {
            let path = model.starts_with(['/', '.']) || self.model_path.as_ref() == Some(&model);
            let name = if path { model.rsplit(['/', '\\']).next().unwrap_or(&model) } else { &model };
            batch.fact(subject, FactKey::Model, name);
        }
        // A build outside its repository does not know what it is: "b0-unknown".
        if let Some(version) = text(&self.build_info).filter(|build| !build.ends_with("-unknown")) {
            batch.fact(subject, FactKey::Version, &version);
        }
        if let Some(slots) = self.total_slots {
            batch.push(subject, Metric::RequestsCap, slots);
            batch.fact(subject, FactKey::RequestsCapSource, "slots");
        }
        if let Some(context) = self.default_generation_settings.n_ctx {
            batch.push(subject, Metric::MaxModelLen, context);
        }
    }
}

/// Of the answer to `/lora-adapters`: a list, empty where none was loaded.
fn adapters(answer: &[u8], subject: Subject, batch: &mut Batch) {
    #[derive(Deserialize)]
    struct Loaded {
        path: String,
    }
    let Ok(loaded) = serde_json::from_slice::<Vec<Loaded>>(answer) else { return };
    if !loaded.is_empty() {
        let names: Vec<_> = loaded.iter().map(|l| l.path.rsplit(['/', '\\']).next().unwrap_or(&l.path)).collect();
        batch.fact(subject, FactKey::LoraLoaded, &names.join(","));
        batch.push(subject, Metric::LoraLoaded, loaded.len() as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{SourceId, Time};

    macro_rules! asset {
        ($name:literal) => {
            include_str!(concat!("../../assets/metrics/llama.cpp-", $name))
        };
    }

    const LOAD: [&str; 2] = [asset!("b11434-load.prom"), asset!("b11434-load.slots.json")];
    const LOAD_2: [&str; 2] = [asset!("b11434-load-2.prom"), asset!("b11434-load-2.slots.json")];
    const AFTER: [&str; 2] = [asset!("b11434-after.prom"), asset!("b11434-after.slots.json")];
    const IDLE: [&str; 2] = [asset!("b11434-idle.prom"), asset!("b11434-idle.slots.json")];
    const PREFILL: [&str; 2] = [asset!("b11549-prefill.prom"), asset!("b11549-prefill.slots.json")];

    /// Reads the answers there are: of `/metrics` and `/slots`, empty for none.
    fn read([metrics, slots]: [&str; 2], memory: &mut Memory) -> Batch {
        let answers: Vec<_> =
            [(METRICS, metrics), (SLOTS, slots)].into_iter().filter(|(_, text)| !text.is_empty()).collect();
        let mut batch = Batch::new(SourceId::Engine(0), Time(0), 3500);
        assert_eq!(LlamaCpp.translate(Answers::new(&answers), 0, memory, &mut batch), 0);
        batch
    }

    fn launched(line: &str) -> Memory {
        let mut memory = Memory::default();
        memory.launched(&line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        memory
    }

    fn reading(batch: &Batch, metric: Metric) -> Option<Reading> {
        let mut found = batch.samples.iter().filter(|s| s.metric == metric);
        let first = found.next().map(|s| s.reading);
        assert_eq!(found.next(), None, "{metric:?} comes twice");
        first
    }

    /// Values; -1 for what is said to be missing, -2 for what is not said at all.
    fn values<const N: usize>(batch: &Batch, metrics: [Metric; N]) -> Vec<f64> {
        metrics.map(|metric| reading(batch, metric).map_or(-2.0, |reading| reading.value().unwrap_or(-1.0))).into()
    }

    fn fact(batch: &Batch, key: FactKey) -> Option<&str> {
        batch.facts.iter().find(|fact| fact.key == key).map(|fact| &*fact.text)
    }

    const QUEUE: [Metric; 4] =
        [Metric::RequestsRunning, Metric::RequestsWaiting, Metric::WaitingCapacity, Metric::RequestsCap];
    const TOKENS: [Metric; 4] =
        [Metric::PromptTokens, Metric::GenerationTokens, Metric::PrefixHits, Metric::PrefixQueries];
    const KV: [Metric; 7] = [
        Metric::MaxModelLen,
        Metric::KvPoolTokens,
        Metric::KvHeldTokens,
        Metric::KvLiveTokens,
        Metric::KvCachedTokens,
        Metric::KvFreeTokens,
        Metric::KvUsage,
    ];

    /// Counters and levels added up by hand from the files.
    #[test]
    fn sixteen_streams_on_four_slots() {
        let batch = read(LOAD, &mut launched("llama-server -c 8192 -np 4"));
        assert_eq!(values(&batch, QUEUE), [4.0, 12.0, 12.0, 4.0]);
        // 200 counted; 15 + 16 + 15 + 17 are under way. 451 prompt tokens computed, 6 found in the cache.
        assert_eq!(values(&batch, TOKENS), [457.0, 263.0, 6.0, 457.0]);
        // 69 + 70 + 69 + 71 in slots of 2048 each.
        assert_eq!(values(&batch, KV), [2048.0, 8192.0, 8192.0, 279.0, 0.0, 0.0, 100.0]);
        assert_eq!(values(&batch, [Metric::PrefillSum, Metric::DecodeSum]), [3.97131, 21.313]);
        assert_eq!(reading(&batch, Metric::RequestsFinished), Some(Reading::Missing(Why::Unsupported)));
        assert_eq!(fact(&batch, FactKey::KvLayout), Some("slots"));
        assert_eq!(fact(&batch, FactKey::RequestsCapSource), Some("slots"));
    }

    #[test]
    fn totals_move_while_requests_run() {
        let mut memory = Memory::default();
        let totals = [LOAD, LOAD_2].map(|answers| values(&read(answers, &mut memory), TOKENS));
        // Then 248 are counted, 46 + 47 + 46 under way, and the prompt of the fourth is not begun.
        assert_eq!(totals, [[457.0, 263.0, 6.0, 457.0], [458.0, 387.0, 7.0, 458.0]]);
    }

    #[test]
    fn prompts_being_computed_are_live_but_not_counted_yet() {
        let batch = read(PREFILL, &mut Memory::default());
        assert_eq!(values(&batch, TOKENS), [0.0; 4]);
        assert_eq!(values(&batch, [Metric::KvLiveTokens]), [204.0]);
    }

    #[test]
    fn what_finished_requests_leave_is_cache() {
        let batch = read(AFTER, &mut launched("llama-server --parallel=4"));
        assert_eq!(values(&batch, QUEUE), [0.0, 0.0, 0.0, 4.0]);
        assert_eq!(values(&batch, KV), [2048.0, 8192.0, 0.0, 0.0, 404.0, 7788.0, 0.0]);
        assert!(values(&batch, KV).iter().all(|value| value.is_sign_positive()), "no -0 on screen");
        let batch = read(IDLE, &mut launched("llama-server -np 4"));
        assert_eq!(values(&batch, KV), [2048.0, 8192.0, 0.0, 0.0, 0.0, 8192.0, 0.0], "never used");
    }

    #[test]
    fn the_pool_is_known_only_where_the_layout_is() {
        let unknown = read(LOAD, &mut Memory::default());
        assert_eq!(values(&unknown, KV), [2048.0, -1.0, -2.0, 279.0, 0.0, -2.0, -1.0]);
        assert_eq!(fact(&unknown, FactKey::KvLayout), None);
        for line in ["llama-server -kvu -np 4", "llama-server --kv-unified", "llama-server --ctx-size=2048"] {
            let shared = read(LOAD, &mut launched(line));
            let usage = 100.0 * 279.0 / 2048.0;
            assert_eq!(values(&shared, KV), [2048.0, 2048.0, 279.0, 279.0, 0.0, 1769.0, usage]);
            assert_eq!(fact(&shared, FactKey::KvLayout), Some("unified"));
        }
        for line in ["llama-server -c 8192", "llama-server -c 8000", "llama-server --parallel 4"] {
            assert_eq!(fact(&read(LOAD, &mut launched(line)), FactKey::KvLayout), Some("slots"), "{line}");
        }
        assert_eq!(fact(&read(LOAD, &mut launched("llama-server -c 0 -m x")), FactKey::KvLayout), None);
        // Slots that share 2048 tokens cannot hold 2400.
        let full = LOAD[1].replace("\"n_prompt_tokens\":69", "\"n_prompt_tokens\":1130");
        let split = read([LOAD[0], &full], &mut Memory::default());
        assert_eq!(values(&split, KV), [2048.0, 8192.0, 8192.0, 2401.0, 0.0, 0.0, 100.0]);
        let one = r#"[{"id":0,"n_ctx":4096,"is_processing":false}]"#;
        assert_eq!(values(&read(["", one], &mut Memory::default()), KV)[..3], [4096.0, 4096.0, 0.0]);
    }

    #[test]
    fn slots_alone_are_enough_to_see_who_runs() {
        assert!(LlamaCpp.detect(SLOTS, LOAD[1]) && !LlamaCpp.detect(METRICS, LOAD[1]));
        let batch = read(["", LOAD[1]], &mut Memory::default());
        assert_eq!(values(&batch, QUEUE), [4.0, -1.0, -2.0, 4.0]);
        assert_eq!(values(&batch, TOKENS), [-1.0; 4]);
        assert_eq!(values(&batch, [Metric::KvLiveTokens]), [279.0]);
        assert_eq!(super::super::hint("llama.cpp", Metric::GenerationTokens), Some("start it with --metrics"));
    }

    #[test]
    fn without_slots_the_counters_are_taken_as_they_are() {
        let mut memory = Memory::default();
        let batch = read([LOAD[0], ""], &mut memory);
        assert_eq!(values(&batch, TOKENS), [457.0, 200.0, 6.0, 457.0]);
        assert_eq!(values(&batch, KV), [-2.0, -1.0, -2.0, -1.0, -2.0, -2.0, -1.0]);
        // Once they had been added, one late answer must not look like tokens taken back.
        let _ = read(LOAD, &mut memory);
        let missing = read([LOAD_2[0], ""], &mut memory);
        assert_eq!(reading(&missing, Metric::GenerationTokens), Some(Reading::Missing(Why::Failed)));
        assert_eq!(values(&missing, [Metric::RequestsRunning, Metric::KvLiveTokens]), [4.0, -1.0]);
        let last = (0..5).map(|_| values(&read([LOAD_2[0], ""], &mut memory), TOKENS)).last();
        assert_eq!(last, Some(vec![458.0, 248.0, 7.0, 458.0]), "switched off");
    }

    #[test]
    fn a_server_at_rest_is_not_asked_for_its_slots() {
        let mut memory = launched("llama-server -np 4");
        assert!(LlamaCpp.asks(SLOTS, AFTER[0], &memory), "never seen");
        let first = read(AFTER, &mut memory);
        assert!(!LlamaCpp.asks(SLOTS, AFTER[0], &memory), "it may want to sleep");
        let again = read([AFTER[0], ""], &mut memory);
        assert_eq!((values(&again, KV), values(&again, TOKENS)), (values(&first, KV), values(&first, TOKENS)));
        let moved = AFTER[0].replace("n_decode_total 404", "n_decode_total 405");
        assert!(LlamaCpp.asks(SLOTS, &moved, &memory), "something was computed since");
        assert_eq!(
            values(&read([&moved, ""], &mut memory), KV)[3..5],
            [-1.0, -2.0],
            "and what is not known is missing"
        );
        let waiting = AFTER[0].replace("requests_deferred 0", "requests_deferred 1");
        assert!(LlamaCpp.asks(SLOTS, &waiting, &memory));
    }

    /// Shapes of 2024 and 2025, from the sources: an object instead of a list, a number for the state, no token count.
    #[test]
    fn slots_of_older_builds_assembled_from_their_sources() {
        let slots = |fields: &str| {
            format!(
                r#"[{{"id":0,"id_task":7,"n_ctx":512,{fields},"prompt":"secret","next_token":{{"n_decoded":9}}}},{{"id":1,"id_task":-1,"n_ctx":512,{}}}]"#,
                fields.replace('1', "0").replace("true", "false")
            )
        };
        let metrics = "llamacpp:prompt_tokens_total 90\nllamacpp:tokens_predicted_total 10\nllamacpp:requests_processing 1\n\
                       llamacpp:requests_deferred 0\nllamacpp:kv_cache_usage_ratio 0.125\nllamacpp:kv_cache_tokens 128\n";
        for fields in [r#""state":1"#, r#""is_processing":true"#] {
            let batch = read([metrics, &slots(fields)], &mut Memory::default());
            assert_eq!(values(&batch, TOKENS), [90.0, 19.0, -1.0, -1.0], "{fields}");
            assert_eq!(values(&batch, KV), [512.0, 1024.0, 512.0, -1.0, 0.0, 512.0, 50.0], "{fields}");
            assert!(!format!("{batch:?}").contains("secret"));
        }
        let idle = metrics.replace("processing 1", "processing 0");
        let batch = read([&idle, &slots(r#""is_processing":false"#)], &mut Memory::default());
        assert_eq!(values(&batch, KV), [512.0, 1024.0, 0.0, 0.0, 128.0, 896.0, 0.0], "all of it is left over");
    }

    #[test]
    fn what_props_and_adapters_say() {
        for props in [asset!("b11434.props.json"), asset!("b11549.props.json")] {
            assert!(LlamaCpp.detect(PROPS, props));
            let mut batch = Batch::new(SourceId::Engine(0), Time(0), Batch::FOREVER);
            LlamaCpp.extra(PROPS, props.as_bytes(), 0, &mut batch);
            assert_eq!(values(&batch, [Metric::RequestsCap, Metric::MaxModelLen]), [4.0, 2048.0]);
            let told = [FactKey::Model, FactKey::Version].map(|key| fact(&batch, key));
            assert_eq!(told, [Some("gemma-3-270m-q4_k_m.gguf"), None], "b0-unknown is no version");
        }
        let mut batch = Batch::new(SourceId::Engine(0), Time(0), Batch::FOREVER);
        LlamaCpp.extra(PROPS, br#"{"build_info":"b11549-0123abcd"}"#, 0, &mut batch);
        assert_eq!(fact(&batch, FactKey::Version), Some("b11549-0123abcd"));
        let mut batch = Batch::new(SourceId::Engine(0), Time(0), Batch::FOREVER);
        LlamaCpp.extra(PROPS, br#"{"model_alias":"org/chat:Q4","model_path":"/m/x.gguf"}"#, 0, &mut batch);
        let loaded = br#"[{"id":0,"path":"/l/sql.gguf","scale":1.0},{"id":1,"path":"chat.gguf","scale":0.0}]"#;
        LlamaCpp.extra(LORA, loaded, 0, &mut batch);
        assert_eq!(
            [FactKey::Model, FactKey::LoraLoaded].map(|key| fact(&batch, key)),
            [Some("org/chat:Q4"), Some("sql.gguf,chat.gguf")]
        );
        assert_eq!(values(&batch, [Metric::LoraLoaded]), [2.0]);
        let mut batch = Batch::new(SourceId::Engine(0), Time(0), Batch::FOREVER);
        for answer in [&b""[..], b"[]", b"{}", b"<html>", b"{\"error\":{\"code\":501}}", b"\xff"] {
            for path in SPEC.extras {
                LlamaCpp.extra(path, answer, 0, &mut batch);
            }
            let text = String::from_utf8_lossy(answer);
            assert!(SPEC.main.iter().all(|path| !LlamaCpp.detect(path, &text)), "{text}");
        }
        assert!(batch.samples.is_empty() && batch.facts.is_empty());
    }
}
