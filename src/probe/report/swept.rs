//! What a load sweep comes to in a sentence. It has no reference: a server does what its model, its settings and its
//! requests make of it, and only another sweep of the same load says whether that is more or less.

use std::fmt::Write as _;

use super::super::spec::Grouped;
use super::super::sweep::ENDED_EARLY;
use super::{Level, Report, Verdict};
use crate::load;
use crate::load::level::Load;

/// Output tokens per second of a level; 0 where none were measured, which is the least of all.
pub(in crate::probe) fn rate(level: &load::Level) -> f64 {
    level.output_tokens_per_s.map_or(0.0, |rate| rate.value)
}

/// What sets the load of a level as a number: users, or requests per second.
pub(in crate::probe) fn load_value(load: &Load) -> f64 {
    load.amount().unwrap_or(0.0)
}

/// Its unit.
pub(in crate::probe) const fn load_unit(load: &Load) -> &'static str {
    load.unit()
}

/// "at 16 users".
pub(in crate::probe) fn load_words(load: &Load) -> String {
    match load {
        Load::Users(_) | Load::RequestsPerS(_) => format!("at {load}"),
        Load::Trace => "with the trace".to_owned(),
    }
}

/// The verdict on a sweep that ended with a result.
pub(super) fn verdict(report: &Report) -> Verdict {
    let levels = &report.levels;
    let most = levels.iter().map(rate).fold(0.0, f64::max);
    let highest = levels.iter().max_by(|a, b| load_value(&a.load).total_cmp(&load_value(&b.load)));
    let tokens = |rate: f64| Grouped(rate.round() as u64);
    let mut words = match (&report.knee, highest) {
        (Some(knee), Some(level)) => {
            let unit = load_unit(&level.load);
            format!("knee at {} {unit}, {} tokens/s", (knee.at * 10.0).round() / 10.0, tokens(knee.output_tokens_per_s))
        }
        (None, Some(level)) if most > 0.0 && load_unit(&level.load).is_empty() => {
            format!("{} tokens/s {}", tokens(most), load_words(&level.load))
        }
        (None, Some(level)) if most > 0.0 => {
            let up_to = load_words(&level.load).replacen("at ", "", 1);
            format!("no knee up to {up_to}, {} tokens/s at most", tokens(most))
        }
        _ => "no throughput was measured".to_owned(),
    };
    let limited = levels.iter().filter(|level| !level.client.limits.is_empty()).count();
    if limited > 0 {
        // Writing to a String never fails.
        let _ = write!(words, "; the client may have been the limit at {limited} of {} levels", levels.len());
    } else if most > 0.0 {
        words.push_str("; the client was not the limit");
    }
    if let Some(why) = report.environment.facts.get(ENDED_EARLY) {
        let _ = write!(words, "; ended early: {why}");
    }
    let advice = if report.is_shared() { report.advice() } else { Vec::new() };
    Verdict { level: Level::Unknown, summary: words, advice }
}

#[cfg(test)]
mod tests {
    use super::super::tests::report;
    use super::*;
    use crate::load::level::{Knee, Rate};
    use crate::probe::Outcome;

    fn level(load: Load, tokens: f64) -> load::Level {
        let rate = Rate { value: tokens, ..Rate::default() };
        load::Level { load, output_tokens_per_s: Some(rate), ..load::Level::default() }
    }

    fn swept(levels: Vec<load::Level>, outcome: Outcome) -> Report {
        let mut report = report("a", 1.0);
        super::super::super::sweep::ID.clone_into(&mut report.probe);
        report.levels = levels;
        report.take(outcome, None);
        report
    }

    fn summary(levels: Vec<load::Level>, outcome: Outcome) -> String {
        swept(levels, outcome).verdict.summary
    }

    #[test]
    fn a_sweep_is_told_by_its_knee_and_its_client() {
        let users = |users, tokens| level(Load::Users(users), tokens);
        let knee = |at| Knee { at, output_tokens_per_s: 5_900.4, ..Knee::default() };
        let levels = || vec![users(16, 5_500.0), users(32, 6_000.0)];
        let with = |at| Outcome { knee: Some(knee(at)), ..Outcome::default() };
        let words = "knee at 18 users, 5,900 tokens/s; the client was not the limit";
        assert_eq!(summary(levels(), with(18.0)), words);
        let words = "no knee up to 32 users, 6,000 tokens/s at most; the client was not the limit";
        assert_eq!(summary(levels(), Outcome::default()), words);
        let rates = vec![level(Load::RequestsPerS(1.5), 100.0)];
        assert!(summary(rates, with(1.234)).starts_with("knee at 1.2 requests/s, 5,900 tokens/s"));
        assert!(
            summary(vec![level(Load::Trace, 100.0)], Outcome::default()).starts_with("100 tokens/s with the trace")
        );
        assert_eq!(summary(Vec::new(), Outcome::default()), "no throughput was measured");
        let mut limited = levels();
        limited[1].client.limits.push("late".to_owned());
        let mut outcome = Outcome { advice: vec!["look".to_owned()], ..Outcome::default() };
        outcome.facts.insert(ENDED_EARLY.to_owned(), "the budget was used up".to_owned());
        let report = swept(limited, outcome);
        assert!(report.verdict.summary.contains("the limit at 1 of 2 levels; ended early: the budget"), "{report:?}");
        assert_eq!(report.verdict.level, Level::Watch, "with something to do it is worth a look");
    }

    #[test]
    fn a_sweep_is_no_baseline_and_one_in_company_says_so() {
        let mut report = swept(vec![level(Load::Users(1), 10.0)], Outcome::default());
        assert!(report.is_no_baseline().is_some_and(|why| why.contains("compared")));
        assert!(report.verdict.advice.is_empty());
        "3 requests of others".clone_into(&mut report.environment.company);
        report.take(Outcome::default(), None);
        assert!(report.verdict.advice[0].contains("others used"), "{:?}", report.verdict);
    }
}
