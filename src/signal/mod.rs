//! Signals: what is wrong, how it shows, and what would help.
//!
//! A signal judges figures that others measured and worked out; it must not know how it is shown. A
//! new one is one file and one line in [`SIGNALS`]. Invariants: a signal names the figures it was
//! judged from; where there is nothing to judge from there is no signal, rather than an "ok".

mod down;
mod kv_overprovision;
mod kv_waste;
mod page_faults;
mod preemptions;
mod queue;
mod throttled;
mod wall;

use std::borrow::Cow;

use crate::engine::{self, Setting};
use crate::model::{FactKey, Reading, SourceId, Subject, Time};
use crate::store::{Data, Window};

/// How much a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Nothing.
    Ok,
    /// A look now and then.
    Watch,
    /// A change.
    Act,
}

impl Level {
    /// The name in the snapshot.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Watch => "watch",
            Self::Act => "act",
        }
    }
}

/// A judgement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signal {
    /// Its detector's id.
    pub id: &'static str,
    /// How much it asks for: the most of all GPUs or engines.
    pub level: Level,
    /// The figures, a line for each GPU or engine, the most serious first.
    pub evidence: Vec<String>,
    /// What would help; empty when all is well.
    pub advice: Cow<'static, str>,
}

/// What makes a signal.
#[derive(Clone, Copy, Debug)]
pub struct Detector {
    /// Its name in the snapshot and on screen.
    pub id: &'static str,
    /// What it looks at, and when it asks for what.
    pub help: &'static str,
    judge: fn(&Data, Window) -> Vec<Finding>,
}

/// Every signal, in the order in which they are shown.
pub const SIGNALS: &[Detector] = &[
    down::DETECTOR,
    throttled::DETECTOR,
    queue::DETECTOR,
    preemptions::DETECTOR,
    kv_overprovision::DETECTOR,
    kv_waste::DETECTOR,
    wall::DETECTOR,
    page_faults::DETECTOR,
];

/// What a detector says about one GPU or engine.
struct Finding {
    level: Level,
    /// Which one it is, before words about it; empty where there is only one.
    label: String,
    evidence: String,
    advice: Cow<'static, str>,
}

impl Detector {
    /// Judges the window; `None` where nothing is known to judge from.
    pub fn judge(&self, data: &Data, window: Window) -> Option<Signal> {
        let mut findings = (self.judge)(data, window);
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.level));
        let level = findings.first()?.level;
        let evidence = findings.iter().map(|f| format!("{}{}", f.label, f.evidence)).collect();
        findings.retain(|finding| finding.level == level && level > Level::Ok);
        Some(Signal { id: self.id, level, advice: advice(findings), evidence })
    }
}

/// What would help: once where it is the same for all, else each after those it is about.
fn advice(mut worst: Vec<Finding>) -> Cow<'static, str> {
    let Some(first) = worst.first() else { return Cow::Borrowed("") };
    if worst.iter().all(|other| other.advice == first.advice) {
        return worst.swap_remove(0).advice;
    }
    let mut parts: Vec<(String, &str)> = Vec::new();
    for Finding { label, advice, .. } in &worst {
        let label = label.trim_end_matches(": ");
        match parts.iter_mut().find(|(_, said)| said == advice) {
            Some((who, _)) => who.extend([", ", label]),
            None => parts.push((label.to_owned(), advice)),
        }
    }
    let parts: Vec<String> = parts.into_iter().map(|(who, advice)| format!("{who}: {advice}")).collect();
    Cow::Owned(parts.join(" "))
}

/// Every signal that can be judged.
pub fn all(data: &Data, window: Window) -> Vec<Signal> {
    SIGNALS.iter().filter_map(|detector| detector.judge(data, window)).collect()
}

/// "GPU 3: " where there is more than one GPU.
fn gpu_label(data: &Data, gpu: u8) -> String {
    if data.gpus().count() > 1 { format!("GPU {gpu}: ") } else { String::new() }
}

/// "llama-8b :8000: " where there is more than one engine.
fn engine_label(data: &Data, engine: u8, at: Time) -> String {
    if data.engines().count() < 2 {
        return String::new();
    }
    let fact = |key| data.fact(Subject::Engine(engine), key, at).filter(|text| !text.is_empty());
    let name = fact(FactKey::Name).or_else(|| fact(FactKey::Url)).unwrap_or("engine");
    match fact(FactKey::Model) {
        // Its name ends in where it listens, which tells replicas of one model apart.
        Some(model) => format!("{model} {}: ", name.rsplit(' ').next().unwrap_or(name)),
        None => format!("{name}: "),
    }
}

/// Engines that may be judged by their figures: of one that is down they are old or not its own.
fn engines(data: &Data, at: Time) -> impl Iterator<Item = u8> {
    let up = move |engine: &u8| data.source(SourceId::Engine(*engine)).is_none_or(|s| !s.state_at(at).is_down());
    data.engines().filter(up)
}

/// " (--max-num-seqs)": what the engine calls a setting, for a sentence about it; empty where it has none.
fn flag(data: &Data, engine: u8, at: Time, setting: Setting) -> String {
    let kind = data.fact(Subject::Engine(engine), FactKey::Kind, at);
    kind.and_then(|kind| engine::flag(kind, setting)).map_or_else(String::new, |flag| format!(" ({flag})"))
}

/// The part of a sentence that says a number; empty where there is none.
fn part(reading: Reading, words: impl FnOnce(f64) -> String) -> String {
    reading.value().map_or_else(String::new, words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Batch, Metric, SourceId, SourceState, Time};
    use crate::store::{Retention, Store};

    const END: u64 = 160_000;

    /// A minute of readings, one a second; `fill` adds those of second 0 to 60.
    fn store(fill: impl Fn(u32, &mut Batch)) -> Store {
        let store = Store::new(Retention::HOUR);
        for second in 0..=60 {
            let mut batch = Batch::new(SourceId::Host, Time(END - 60_000 + u64::from(second) * 1000), 3500);
            batch.fact(Subject::Gpu(0), FactKey::Name, "NVIDIA H200");
            batch.fact(Subject::Engine(0), FactKey::Url, "http://127.0.0.1:8000");
            fill(second, &mut batch);
            store.push(&batch);
        }
        store
    }

    fn judge(id: &str, store: &Store) -> Option<Signal> {
        let detector = SIGNALS.iter().find(|d| d.id == id).unwrap();
        detector.judge(&store.read(), Window::last(Time(END), 30_000))
    }

    fn level(id: &str, fill: impl Fn(u32, &mut Batch)) -> Option<Level> {
        judge(id, &store(fill)).map(|signal| signal.level)
    }

    #[test]
    fn without_figures_there_is_no_signal() {
        assert_eq!(all(&store(|_, _| {}).read(), Window::last(Time(END), 30_000)), []);
    }

    #[test]
    fn a_lone_fault_is_no_burst() {
        let faults = |total: fn(u32) -> f64| {
            level("page_faults", move |s, batch| batch.push(Subject::Host, Metric::MajorFaults, total(s)))
        };
        assert_eq!(faults(|_| 7.0), Some(Level::Ok));
        assert_eq!(faults(|s| if s < 50 { 7.0 } else { 8.0 }), Some(Level::Ok));
        assert_eq!(faults(|s| if s < 50 { 7.0 } else { 307.0 }), Some(Level::Watch));
        assert_eq!(faults(|s| f64::from(s) * 150.0), Some(Level::Act));
        assert_eq!(faults(|s| if s < 30 { 7.0 } else { 307.0 }), Some(Level::Ok), "longer than 20 s ago");
    }

    #[test]
    fn power_is_watched_until_it_costs_clock_and_heat_asks_for_action() {
        let held = |metric, share: f64, clock: f64| {
            level("throttled", move |s, batch| {
                batch.push(Subject::Gpu(0), metric, f64::from(s) * 1000.0 * share);
                batch.push(Subject::Gpu(0), Metric::SmClock, clock);
                batch.push(Subject::Gpu(0), Metric::SmClockMax, 1980.0);
            })
        };
        assert_eq!(held(Metric::ThrottledPowerCap, 0.01, 1980.0), Some(Level::Ok));
        assert_eq!(held(Metric::ThrottledPowerCap, 0.9, 1900.0), Some(Level::Watch));
        assert_eq!(held(Metric::ThrottledPowerCap, 0.9, 1600.0), Some(Level::Act));
        assert_eq!(held(Metric::ThrottledHwThermal, 0.1, 1900.0), Some(Level::Act));
    }

    #[test]
    fn a_queue_that_passed_is_not_one_that_lasts() {
        let queue = |waiting: fn(u32) -> f64, kv: f64| {
            judge(
                "queue",
                &store(move |s, batch| {
                    batch.push(Subject::Engine(0), Metric::RequestsWaiting, waiting(s));
                    batch.push(Subject::Engine(0), Metric::KvUsage, kv);
                }),
            )
            .unwrap()
        };
        assert_eq!(queue(|_| 0.0, 20.0).level, Level::Ok);
        assert_eq!(queue(|s| if s == 50 { 9.0 } else { 0.0 }, 20.0).level, Level::Watch);
        let lasting = queue(|_| 40.0, 95.0);
        assert_eq!(lasting.level, Level::Act);
        assert!(lasting.advice.contains("wait for KV blocks"), "{lasting:?}");
        assert!(queue(|_| 40.0, 20.0).advice.contains("KV blocks are free"));
    }

    #[test]
    fn advice_names_the_settings_of_the_engine_it_is_about() {
        let of = |kind: Option<&'static str>| {
            let filled = store(move |_, batch| {
                if let Some(kind) = kind {
                    batch.fact(Subject::Engine(0), FactKey::Kind, kind);
                }
                batch.push(Subject::Engine(0), Metric::RequestsWaiting, 40.0);
                batch.push(Subject::Engine(0), Metric::KvUsage, 20.0);
            });
            judge("queue", &filled).unwrap().advice.into_owned()
        };
        assert!(of(Some("vllm")).contains("running requests (--max-num-seqs) or"), "{}", of(Some("vllm")));
        assert!(of(Some("sglang")).contains("running requests (--max-running-requests) or"));
        assert!(of(Some("llama.cpp")).contains("running requests (--parallel) or"));
        for kind in [Some("triton"), None] {
            assert!(of(kind).contains("running requests or on tokens a step holds"), "{}", of(kind));
        }
    }

    #[test]
    fn a_queue_at_the_limit_of_running_requests_says_so_and_how_long_it_takes() {
        let signal = judge(
            "queue",
            &store(|s, batch| {
                batch.fact(Subject::Engine(0), FactKey::Kind, "vllm");
                batch.push(Subject::Engine(0), Metric::RequestsWaiting, 40.0);
                batch.push(Subject::Engine(0), Metric::RequestsRunning, 64.0);
                batch.push(Subject::Engine(0), Metric::RequestsCap, 64.0);
                batch.push(Subject::Engine(0), Metric::RequestsFinished, 2.0 * f64::from(s));
                batch.push(Subject::Engine(0), Metric::KvUsage, 20.0);
            }),
        )
        .unwrap();
        let expected = "40 wait, 64 of 64 run, drains in 20 s; some waited in 100 % of the 30 s scraped; KV 20 %";
        assert_eq!(signal.evidence, [expected]);
        assert!(signal.advice.contains("As many run as the engine allows"), "{signal:?}");
        assert!(signal.advice.contains("(--max-num-seqs)"), "{signal:?}");
    }

    #[test]
    fn who_waits_at_a_full_limit_waits_for_a_place_and_not_for_blocks() {
        let of = |kind: &'static str, layout: &'static str, running: f64| {
            let filled = store(move |_, batch| {
                batch.fact(Subject::Engine(0), FactKey::Kind, kind);
                batch.fact(Subject::Engine(0), FactKey::KvLayout, layout);
                batch.push(Subject::Engine(0), Metric::RequestsWaiting, 3.0);
                batch.push(Subject::Engine(0), Metric::RequestsRunning, running);
                batch.push(Subject::Engine(0), Metric::RequestsCap, 4.0);
                batch.push(Subject::Engine(0), Metric::KvUsage, 100.0);
            });
            judge("queue", &filled).unwrap().advice.into_owned()
        };
        for layout in ["slots", "unified"] {
            let full = of("llama.cpp", layout, 4.0);
            assert!(full.starts_with("As many run as the engine allows") && full.contains("(--parallel)"), "{full}");
            assert!(
                of("llama.cpp", layout, 3.0).starts_with("Requests wait: the limit on running requests (--parallel)")
            );
        }
        assert!(of("vllm", "paged", 4.0).starts_with("As many run"));
        assert!(of("vllm", "paged", 3.0).starts_with("Requests wait for KV blocks"));
    }

    #[test]
    fn a_queue_is_judged_by_the_time_that_was_scraped() {
        let waits = |s: u32| if s < 48 { 0.0 } else { 5.0 };
        let filled = store(move |s, batch| batch.push(Subject::Engine(0), Metric::RequestsWaiting, waits(s)));
        let over = |ms| {
            let queue = SIGNALS.iter().find(|d| d.id == "queue").unwrap();
            let signal = queue.judge(&filled.read(), Window::last(Time(END), ms)).unwrap();
            (signal.level, signal.evidence[0].clone())
        };
        let words = |share: &str| format!("5 wait; some waited in {share} scraped");
        assert_eq!(over(60_000), (Level::Watch, words("22 % of the 60 s")));
        assert_eq!(over(1_000_000), over(60_000), "nothing was scraped before");
        for short in [0, 200, 10_000] {
            assert_eq!(over(short), (Level::Act, words("100 % of the 10 s")));
        }
        let begun = store(|s, batch| {
            if s > 57 {
                batch.push(Subject::Engine(0), Metric::RequestsWaiting, 5.0);
            }
        });
        assert_eq!(judge("queue", &begun).unwrap().level, Level::Watch, "two seconds tell of no lasting queue");
    }

    /// Two replicas of one model, each with what `fill` adds; the second gets `state` at the end.
    fn two(kinds: [&'static str; 2], state: SourceState, fill: impl Fn(u32, u8, &mut Batch)) -> Store {
        let store = store(|s, batch| {
            for (engine, kind) in (0_u8..).zip(kinds) {
                let of = Subject::Engine(engine);
                batch.fact(of, FactKey::Url, &format!("http://127.0.0.1:800{engine}"));
                batch.fact(of, FactKey::Name, &format!("Name :800{engine}"));
                batch.fact(of, FactKey::Model, "dummy-8b");
                batch.fact(of, FactKey::Kind, kind);
                fill(s, engine, batch);
            }
        });
        for (engine, state) in [(0, SourceState::Ok), (1, state)] {
            let mut batch = Batch::new(SourceId::Engine(engine), Time(END), 3500);
            batch.state = Some(state);
            store.push(&batch);
        }
        store
    }

    #[test]
    fn each_engine_has_its_own_advice() {
        let waiting = |kinds| {
            let fill = |_, engine, batch: &mut Batch| batch.push(Subject::Engine(engine), Metric::RequestsWaiting, 5.0);
            judge("queue", &two(kinds, SourceState::Ok, fill)).unwrap()
        };
        let differ = waiting(["vllm", "sglang"]);
        let of_second = differ.advice.find(" dummy-8b :8001: Requests wait").unwrap();
        let (first, second) = differ.advice.split_at(of_second);
        assert!(first.starts_with("dummy-8b :8000: Requests wait") && first.contains("--max-num-seqs"), "{differ:?}");
        assert!(second.contains("--max-running-requests") && !second.contains("--max-num-seqs"), "{differ:?}");
        assert!(differ.evidence[1].starts_with("dummy-8b :8001: 5 wait"), "{differ:?}");
        assert!(waiting(["vllm", "vllm"]).advice.starts_with("Requests wait"), "once where it is the same");
    }

    #[test]
    fn an_engine_that_is_down_is_told_and_judged_by_nothing_else() {
        let fill = |s: u32, engine, batch: &mut Batch| {
            let of = Subject::Engine(engine);
            batch.push(of, Metric::Preemptions, f64::from(s));
            batch.push(of, Metric::RequestsWaiting, 5.0);
            for (metric, tokens) in
                [(Metric::KvPoolTokens, 9000.0), (Metric::KvHeldTokens, 8000.0), (Metric::KvLiveTokens, 100.0)]
            {
                batch.push(of, metric, tokens);
            }
        };
        let lines = |id, state: &SourceState| {
            judge(id, &two(["vllm", "vllm"], state.clone(), fill)).map(|signal| (signal.level, signal.evidence))
        };
        let (all, one) = (lines("preemptions", &SourceState::Ok).unwrap(), "dummy-8b :8000: 1.00 a second");
        assert_eq!(all, (Level::Act, vec![one.to_owned(), one.replace("8000", "8001")]), "no KV figure, no word of it");
        for (state, cause) in [
            (SourceState::Failed("connection refused".into()), "its process"),
            (SourceState::Unauthorized("wants a key (HTTP 401)".into()), "--engine-auth"),
            (SourceState::Stalled("no answer in 2 s".into()), "overloaded"),
        ] {
            let down = judge("down", &two(["vllm", "vllm"], state.clone(), fill)).unwrap();
            assert_eq!(down.level, Level::Act);
            assert_eq!(
                down.evidence,
                [format!("dummy-8b :8001: {}", state.why()), "dummy-8b :8000: answers".to_owned()]
            );
            assert!(down.advice.contains(cause), "{down:?}");
            for id in ["preemptions", "queue", "kv_waste"] {
                let (_, evidence) = lines(id, &state).unwrap();
                assert!(evidence.len() == 1 && evidence[0].starts_with("dummy-8b :8000: "), "{id}: {evidence:?}");
            }
        }
        assert_eq!(lines("down", &SourceState::Starting).unwrap().1.len(), 1, "not asked yet");
        assert_eq!(lines("down", &SourceState::Degraded("late".into())).unwrap().0, Level::Ok);
    }

    #[test]
    fn memory_held_and_not_used_is_watched_where_it_matters() {
        let waste = |kind: &'static str, layout: &'static str, live: f64, held: f64| {
            judge(
                "kv_waste",
                &store(move |_, batch| {
                    batch.fact(Subject::Engine(0), FactKey::Kind, kind);
                    batch.fact(Subject::Engine(0), FactKey::KvLayout, layout);
                    batch.push(Subject::Engine(0), Metric::KvPoolTokens, 32_768.0);
                    batch.push(Subject::Engine(0), Metric::KvHeldTokens, held);
                    batch.push(Subject::Engine(0), Metric::KvLiveTokens, live);
                }),
            )
            .unwrap()
        };
        let slots = waste("llama.cpp", "slots", 8000.0, 24_576.0);
        assert_eq!((slots.level, slots.evidence.len()), (Level::Watch, 1));
        assert!(slots.evidence[0].starts_with("67.4 % of what requests hold is empty; they hold 75 %"), "{slots:?}");
        assert!(slots.advice.contains("--kv-unified") && slots.advice.contains("(--parallel)"), "{slots:?}");
        assert_eq!(waste("llama.cpp", "slots", 500.0, 2048.0).level, Level::Ok, "most of the pool is idle");
        assert!(waste("vllm", "paged", 17_000.0, 32_000.0).advice.contains("block size"));
        assert_eq!(waste("vllm", "paged", 31_000.0, 32_000.0).level, Level::Ok);
        let reserved = waste("tgi", "paged", 8000.0, 24_576.0);
        assert!(reserved.evidence[0].contains("reserved for output") && reserved.advice.contains("max_new_tokens"));
    }

    #[test]
    fn preemptions_are_judged_by_their_rate() {
        let rate = |per_s: f64| {
            level("preemptions", move |s, b| {
                b.push(Subject::Engine(0), Metric::Preemptions, 500.0 + per_s * f64::from(s));
            })
        };
        assert_eq!([0.0, 0.1, 2.9].map(rate), [Some(Level::Ok), Some(Level::Watch), Some(Level::Act)]);
    }

    #[test]
    fn the_worst_comes_first_and_names_its_gpu() {
        let store = store(|s, batch| {
            batch.fact(Subject::Gpu(1), FactKey::Name, "NVIDIA H200");
            for (gpu, share) in [(0, 0.0), (1, 0.5)] {
                batch.push(Subject::Gpu(gpu), Metric::ThrottledHwThermal, f64::from(s) * 1000.0 * share);
            }
        });
        let signal = judge("throttled", &store).unwrap();
        assert_eq!(signal.evidence, ["GPU 1: HW thermal 50 % of the time", "GPU 0: not throttled"]);
        assert_eq!(signal.level, Level::Act);
    }
}
