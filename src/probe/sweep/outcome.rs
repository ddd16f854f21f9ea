//! What a sweep comes to on a few lines: the figures at its knee, what was asked and how, and what to do.
//!
//! The levels themselves go another way (`super::say`). Invariant: a quantile is one only where there are as many
//! measurements as it takes.

use super::super::protocol::{Better, Figure};
use super::super::report::swept;
use super::super::spec::Grouped;
use super::Outcome;
use crate::load::level::{Latency, Level, Quantile, State};
use crate::load::{Plan, Swept};

/// Id of the figure that stands for the whole.
pub(super) const OUTPUT: &str = "output_tokens_per_s";

/// The outcome of a sweep.
pub(super) fn of(plan: &Plan, swept: Swept) -> Outcome {
    let mut outcome = Outcome { figures: figures(&swept), knee: swept.knee, notes: swept.notes, ..Outcome::default() };
    outcome.facts.extend(swept.facts);
    outcome.facts.entry("seed".to_owned()).or_insert_with(|| plan.seed.to_string());
    if !swept.ended_early.is_empty() {
        outcome.notes.push(format!("it ended before all levels were measured: {}", swept.ended_early));
        outcome.ended_early = Some(swept.ended_early);
    }
    for level in &swept.levels {
        let at = swept::load_words(&level.load);
        let held_back = level.requests.held_back;
        if let Some(words) = swept::at_its_cap(level, f64::from(plan.most_in_flight)) {
            outcome.notes.push(words);
        } else if held_back > 0 {
            let most = Grouped(u64::from(plan.most_in_flight));
            outcome.notes.push(format!(
                "{at}: {most} in flight was the most, and {} of the requests began late for it: raise --in-flight, or the \
                 server is overloaded",
                Grouped(held_back)
            ));
        }
        let words = match level.state {
            State::Short => "its time was over before it had its samples (--most-seconds, --samples)",
            State::OverSaturated => {
                "more came than was served: latencies grew until it was ended, and say nothing else"
            }
            State::Failing => "too many requests failed",
            _ => "",
        };
        if !words.is_empty() {
            outcome.notes.push(format!("{at}: {words}"));
        }
    }
    let limited: Vec<_> = swept.levels.iter().filter(|level| !level.client.limits.is_empty()).collect();
    if let Some(first) = limited.first() {
        outcome.advice.push(format!(
            "the client may have been the limit ({}: {}): run warptop where CPUs are free, or on another host with \
             --remote, and do not read these levels as the server's",
            swept::load_words(&first.load),
            first.client.limits.join("; ")
        ));
    }
    outcome
}

/// The level at which a server would be run: the highest below the knee, else the one with the most throughput. One without
/// a steady state is none.
fn operating(swept: &Swept) -> Option<&Level> {
    let measured = || swept.levels.iter().filter(|level| swept::is_sound(level) && level.output_tokens_per_s.is_some());
    match &swept.knee {
        Some(knee) => {
            let below = |level: &&Level| level.load.amount().is_some_and(|load| load <= knee.at);
            measured().filter(below).max_by(|a, b| swept::by_load(a, b))
        }
        None => measured().max_by(|a, b| swept::rate(a).total_cmp(&swept::rate(b))),
    }
}

fn figures(swept: &Swept) -> Vec<Figure> {
    let mut figures = Vec::new();
    let level = operating(swept);
    let at = level.map(|level| swept::load_words(&level.load)).unwrap_or_default();
    if let Some(knee) = &swept.knee {
        let n = swept.levels.len() as u64;
        let output = (knee.output_tokens_per_s, knee.output_tokens_per_s, knee.output_tokens_per_s);
        figures.push(figure(OUTPUT, "Output at the knee", "tokens/s", Better::Higher, output, n).by(&knee.words));
        let unit = swept.levels.first().map_or("users", |level| level.load.unit());
        let knee = (knee.at, knee.lo, knee.hi);
        figures.push(figure("knee", "Knee", unit, Better::Higher, knee, n).by("between two levels"));
    } else if let Some((level, rate)) = level.and_then(|level| Some((level, level.output_tokens_per_s?))) {
        let (output, interval) = within(rate.value, rate.lo, rate.hi, "; with its 95 % interval");
        let method = format!("{at}, the most of all levels{interval}");
        let n = level.requests.ok;
        figures.push(figure(OUTPUT, "Output, most", "tokens/s", Better::Higher, output, n).by(&method));
    }
    let Some(level) = level else { return figures };
    let latencies = [("ttft", "TTFT", level.ttft_s), ("tpot", "TPOT", level.tpot_s), ("e2e", "E2E", level.e2e_s)];
    for (id, label, latency) in latencies {
        let Latency { n, p50, p99, .. } = latency;
        for (of, quantile) in [("p50", p50), ("p99", p99)] {
            // TPOT is a mean already: its median is what people compare.
            let Some(Quantile { value, lo, hi, .. }) = quantile.filter(|q| q.enough && (id, of) != ("tpot", "p99"))
            else {
                continue;
            };
            let scaled = |end: Option<f64>| end.map(|end| end * 1e3);
            let (ms, interval) =
                within(value * 1e3, scaled(lo), scaled(hi), "; with the 95 % interval from order statistics");
            let method = format!("{at}{interval}");
            let (id, label) = (format!("{id}_{of}_ms"), format!("{label} {}", of.to_uppercase()));
            figures.push(figure(&id, &label, "ms", Better::Lower, ms, n).by(&method));
        }
    }
    let sound = swept.levels.iter().filter(|level| swept::is_sound(level));
    let good = sound.filter_map(|level| Some((level, level.goodput?)));
    if let Some((level, good)) = good.max_by(|(_, a), (_, b)| a.per_s.total_cmp(&b.per_s)) {
        let at = swept::load_words(&level.load);
        let method = format!("{at}, the most of all levels; {:.0} % were good", good.share * 100.0);
        let per_s = (good.per_s, good.per_s, good.per_s);
        figures.push(figure("goodput_per_s", "Goodput, most", "requests/s", Better::Higher, per_s, good.n).by(&method));
    }
    figures
}

/// A value between the ends of its interval, and the words for that; where an end is unknown there is no interval to speak of.
fn within(value: f64, lo: Option<f64>, hi: Option<f64>, words: &'static str) -> ((f64, f64, f64), &'static str) {
    lo.zip(hi).map_or(((value, value, value), ""), |(lo, hi)| ((value, lo, hi), words))
}

fn figure(id: &str, label: &str, unit: &str, better: Better, (value, lo, hi): (f64, f64, f64), n: u64) -> Figure {
    Figure {
        id: id.to_owned(),
        label: label.to_owned(),
        unit: unit.to_owned(),
        value,
        n,
        lo,
        hi,
        better,
        floor: None,
        method: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::level::{Goodput, Knee, Load, Rate};
    use crate::probe::sweep::params;
    use crate::probe::{Params, sweep::SPEC};

    fn quantile(value: f64, enough: bool) -> Quantile {
        Quantile { value, lo: Some(value / 2.0), hi: enough.then_some(value * 2.0), enough }
    }

    fn level(users: u32, tokens_per_s: f64, enough: bool) -> Level {
        let ttft_s =
            Latency { n: 400, p50: Some(quantile(0.1, true)), p99: Some(quantile(0.5, enough)), ..Latency::default() };
        let rate = Rate { value: tokens_per_s, lo: Some(tokens_per_s - 1.0), hi: None };
        Level {
            load: Load::Users(users),
            state: State::Done,
            ttft_s,
            output_tokens_per_s: Some(rate),
            ..Level::default()
        }
    }

    fn outcome(swept: Swept) -> Outcome {
        of(&params::plan(&Params::of(&SPEC), 77).unwrap().0, swept)
    }

    fn value(outcome: &Outcome, id: &str) -> Option<(f64, f64, f64)> {
        let figure = outcome.figures.iter().find(|figure| figure.id == id)?;
        Some((figure.value, figure.lo, figure.hi))
    }

    #[test]
    fn at_the_knee_throughput_is_the_fits_and_latencies_are_of_the_level_below() {
        let knee = Knee { at: 18.0, lo: 16.0, hi: 32.0, output_tokens_per_s: 5_900.0, words: "two lines".to_owned() };
        let mut below = level(16, 5_500.0, true);
        below.e2e_s = Latency { p50: Some(quantile(2.0, true)), ..Latency::default() };
        let levels = vec![level(8, 3_000.0, true), below, level(32, 6_000.0, true)];
        let found = outcome(Swept { levels, knee: Some(knee.clone()), ..Swept::default() });
        assert_eq!(value(&found, OUTPUT), Some((5_900.0, 5_900.0, 5_900.0)));
        assert_eq!(value(&found, "knee"), Some((18.0, 16.0, 32.0)));
        assert_eq!(value(&found, "ttft_p99_ms"), Some((500.0, 250.0, 1_000.0)));
        assert_eq!(value(&found, "e2e_p50_ms"), Some((2_000.0, 1_000.0, 4_000.0)), "of the level at 16 users");
        assert_eq!((found.knee.as_ref(), found.facts["seed"].as_str()), (Some(&knee), "77"));
        assert!(found.advice.is_empty() && found.notes.is_empty(), "{found:?}");
    }

    #[test]
    fn without_a_knee_the_best_level_counts_and_what_has_too_few_measurements_is_no_p99() {
        let found = outcome(Swept { levels: vec![level(1, 100.0, false), level(2, 190.0, false)], ..Swept::default() });
        assert_eq!(value(&found, OUTPUT), Some((190.0, 190.0, 190.0)), "an end is unknown, so there is no interval");
        assert!(!found.figures[0].method.contains("interval"), "{:?}", found.figures[0]);
        assert!(found.figures.iter().any(|f| f.id == "ttft_p50_ms" && f.method.contains("interval")), "{found:?}");
        assert_eq!((value(&found, "knee"), value(&found, "ttft_p99_ms")), (None, None));
        assert!(value(&found, "ttft_p50_ms").is_some());
        assert!(outcome(Swept::default()).figures.is_empty());
    }

    #[test]
    fn a_client_that_was_the_limit_and_levels_that_went_wrong_are_told() {
        let mut limited = level(64, 100.0, true);
        limited.client.limits = vec!["dispatch lag P99 of 20 ms".to_owned()];
        let goodput = Goodput { good: 9, n: 10, share: 0.9, per_s: 3.0, ..Goodput::default() };
        limited.goodput = Some(goodput);
        let goodput = Goodput { per_s: 99.0, ..goodput };
        let over = Level { state: State::OverSaturated, goodput: Some(goodput), ..level(128, 900.0, true) };
        let ended_early = "the budget of tokens was used up".to_owned();
        let facts = vec![("model".to_owned(), "m".to_owned())];
        let found = outcome(Swept { levels: vec![limited, over], ended_early, facts, ..Swept::default() });
        assert!(found.advice[0].contains("at 64 users: dispatch lag P99 of 20 ms"), "{:?}", found.advice);
        assert!(found.notes.iter().any(|note| note.contains("at 128 users: more came")), "{:?}", found.notes);
        assert!(found.notes.iter().any(|note| note.contains("the budget of tokens")), "{:?}", found.notes);
        assert_eq!((found.facts["model"].as_str(), found.ended_early.is_some()), ("m", true));
        assert_eq!(value(&found, "goodput_per_s"), Some((3.0, 3.0, 3.0)), "not of the one without a steady state");
        assert_eq!(value(&found, OUTPUT).map(|(tokens, ..)| tokens), Some(100.0));
    }

    #[test]
    fn requests_that_waited_for_a_place_in_flight_are_told() {
        let open = |held_back, not_sent| {
            let mut level = Level { load: Load::RequestsPerS(9.0), ..level(1, 100.0, true) };
            (level.requests.held_back, level.requests.not_sent, level.client.most_in_flight) =
                (held_back, not_sent, 1_024);
            outcome(Swept { levels: vec![level], ..Swept::default() }).notes
        };
        assert!(open(3, 0)[0].starts_with("at 9 requests/s: 1,024 in flight was the most, and 3 of the requests"));
        assert!(open(3, 7)[0].starts_with("at 9 requests/s 1,024 in flight was the most, and 7 requests not sent"));
        assert!(open(0, 0).is_empty());
    }
}
