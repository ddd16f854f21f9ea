//! What a sweep comes to on a few lines: the figures at its knee, what was asked and how, and what to do.
//!
//! The levels themselves go another way (`super::say`). Invariant: a quantile is one only where there are as many
//! measurements as it takes.

use super::super::protocol::{Better, Figure};
use super::super::report::swept;
use super::Outcome;
use crate::load::level::{Latency, Level, Quantile, State};
use crate::load::{Plan, Swept};

/// Id of the figure that stands for the whole.
pub(super) const OUTPUT: &str = "output_tokens_per_s";
/// Name of the fact that says why a sweep ended before all its levels were measured.
pub(in crate::probe) const ENDED_EARLY: &str = "ended early";

/// The outcome of a sweep.
pub(super) fn of(plan: &Plan, swept: Swept) -> Outcome {
    let mut outcome = Outcome { figures: figures(&swept), knee: swept.knee, notes: swept.notes, ..Outcome::default() };
    outcome.facts.extend(swept.facts);
    outcome.facts.entry("seed".to_owned()).or_insert_with(|| plan.seed.to_string());
    if !swept.ended_early.is_empty() {
        outcome.notes.push(format!("it ended before all levels were measured: {}", swept.ended_early));
        outcome.facts.insert(ENDED_EARLY.to_owned(), swept.ended_early);
    }
    for level in &swept.levels {
        let at = swept::load_words(&level.load);
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

/// The level at which a server would be run: the highest below the knee, else the one with the most throughput.
fn operating(swept: &Swept) -> Option<&Level> {
    let measured = || swept.levels.iter().filter(|level| level.output_tokens_per_s.is_some());
    let load = |level: &Level| swept::load_value(&level.load);
    match &swept.knee {
        Some(knee) => measured().filter(|level| load(level) <= knee.at).max_by(|a, b| load(a).total_cmp(&load(b))),
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
        let unit = swept.levels.first().map_or("users", |level| swept::load_unit(&level.load));
        let knee = (knee.at, knee.lo, knee.hi);
        figures.push(figure("knee", "Knee", unit, Better::Higher, knee, n).by("between two levels"));
    } else if let Some((level, rate)) = level.and_then(|level| Some((level, level.output_tokens_per_s?))) {
        let output = (rate.value, rate.lo.unwrap_or(rate.value), rate.hi.unwrap_or(rate.value));
        let method = format!("{at}, the most of all levels; with its 95 % interval");
        let n = level.requests.ok;
        figures.push(figure(OUTPUT, "Output, most", "tokens/s", Better::Higher, output, n).by(&method));
    }
    let Some(level) = level else { return figures };
    let method = format!("{at}; with the 95 % interval from order statistics");
    let latencies = [("ttft", "TTFT", level.ttft_s), ("tpot", "TPOT", level.tpot_s), ("e2e", "E2E", level.e2e_s)];
    for (id, label, latency) in latencies {
        let Latency { n, p50, p99, .. } = latency;
        for (of, quantile) in [("p50", p50), ("p99", p99)] {
            // TPOT is a mean already: its median is what people compare.
            let Some(Quantile { value, lo, hi, .. }) = quantile.filter(|q| q.enough && (id, of) != ("tpot", "p99"))
            else {
                continue;
            };
            let ms = (value * 1e3, lo.unwrap_or(value) * 1e3, hi.unwrap_or(value) * 1e3);
            let (id, label) = (format!("{id}_{of}_ms"), format!("{label} {}", of.to_uppercase()));
            figures.push(figure(&id, &label, "ms", Better::Lower, ms, n).by(&method));
        }
    }
    let good = swept.levels.iter().filter_map(|level| Some((level, level.goodput?)));
    if let Some((level, good)) = good.max_by(|(_, a), (_, b)| a.per_s.total_cmp(&b.per_s)) {
        let at = swept::load_words(&level.load);
        let method = format!("{at}, the most of all levels; {:.0} % were good", good.share * 100.0);
        let per_s = (good.per_s, good.per_s, good.per_s);
        figures.push(figure("goodput_per_s", "Goodput, most", "requests/s", Better::Higher, per_s, good.n).by(&method));
    }
    figures
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
        assert_eq!(value(&found, OUTPUT), Some((190.0, 189.0, 190.0)));
        assert_eq!((value(&found, "knee"), value(&found, "ttft_p99_ms")), (None, None));
        assert!(value(&found, "ttft_p50_ms").is_some());
        assert!(outcome(Swept::default()).figures.is_empty());
    }

    #[test]
    fn a_client_that_was_the_limit_and_levels_that_went_wrong_are_told() {
        let mut limited = level(64, 100.0, true);
        limited.client.limits = vec!["dispatch lag P99 of 20 ms".to_owned()];
        let goodput = Goodput { good: 9, n: 10, share: 0.9, per_s: 3.0, ..Goodput::default() };
        let over = Level { state: State::OverSaturated, goodput: Some(goodput), ..level(128, 90.0, true) };
        let ended_early = "the budget of tokens was used up".to_owned();
        let facts = vec![("model".to_owned(), "m".to_owned())];
        let found = outcome(Swept { levels: vec![limited, over], ended_early, facts, ..Swept::default() });
        assert!(found.advice[0].contains("at 64 users: dispatch lag P99 of 20 ms"), "{:?}", found.advice);
        assert!(found.notes.iter().any(|note| note.contains("at 128 users: more came")), "{:?}", found.notes);
        assert!(found.notes.iter().any(|note| note.contains("the budget of tokens")), "{:?}", found.notes);
        assert_eq!((found.facts["model"].as_str(), found.facts.contains_key(ENDED_EARLY)), ("m", true));
        assert_eq!(value(&found, "goodput_per_s"), Some((3.0, 3.0, 3.0)));
    }
}
