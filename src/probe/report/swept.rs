//! What a load sweep comes to in a sentence. It has no reference: a server does what its model, its settings and its
//! requests make of it, and only another sweep of the same load says whether that is more or less.

use std::cmp::Ordering;
use std::fmt::Write as _;

use super::super::spec::{Grouped, counted};
use super::{Level, Report, Verdict};
use crate::load;
use crate::load::level::{Load, State};

/// Requests that show how late the client was: as many as a P95 takes.
const LAGS: u64 = 72;

/// Output tokens per second of a level; 0 where none were measured, which is the least of all.
pub(in crate::probe) fn rate(level: &load::Level) -> f64 {
    level.output_tokens_per_s.map_or(0.0, |rate| rate.value)
}

/// Which of two levels has the smaller load; a trace, which has no number, comes first.
pub(in crate::probe) fn by_load(a: &load::Level, b: &load::Level) -> Ordering {
    a.load.amount().partial_cmp(&b.load.amount()).unwrap_or(Ordering::Equal)
}

/// "at 16 users".
pub(in crate::probe) fn load_words(load: &Load) -> String {
    match load {
        Load::Users(_) | Load::RequestsPerS(_) => format!("at {load}"),
        Load::Trace => "with the trace".to_owned(),
    }
}

/// Whether a level was measured in a steady state, so that its figures stand for its load.
pub(in crate::probe) const fn is_sound(level: &load::Level) -> bool {
    matches!(level.state, State::Done | State::Short)
}

/// The verdict on a sweep that ended with a result.
pub(super) fn verdict(report: &Report) -> Verdict {
    let mut words = throughput(report);
    let levels = &report.levels;
    let in_state = |state: State| levels.iter().filter(move |level| level.state == state).min_by(|a, b| by_load(a, b));
    if let Some(over) = in_state(State::OverSaturated) {
        // Writing to a String never fails, here and below.
        let _ = write!(words, "; {} more came than was served", load_words(&over.load));
    }
    let ended_early = report.ended_early.as_deref();
    if let Some(failing) = in_state(State::Failing).filter(|_| ended_early.is_none()) {
        let fault = failing.notes.first().map(|fault| format!(" ({fault})")).unwrap_or_default();
        let _ = write!(words, "; {} too many requests failed{fault}", load_words(&failing.load));
    }
    let limited = levels.iter().filter(|level| !level.client.limits.is_empty()).count();
    if limited > 0 {
        let _ = write!(
            words,
            "; the client may have been the limit at {limited} of {}",
            counted(levels.len() as u64, "level")
        );
    } else if levels.iter().any(|level| rate(level) > 0.0) {
        match unproven(report) {
            None => words.push_str("; the client was not the limit"),
            Some(why) => {
                let _ = write!(words, "; whether the client was the limit is not shown: {why}");
            }
        }
    }
    if let Some(why) = ended_early {
        let _ = write!(words, "; ended early: {why}");
    }
    let advice = if report.is_shared() { report.advice() } else { Vec::new() };
    Verdict { level: Level::Unknown, summary: words, advice }
}

/// What throughput came to, in words.
fn throughput(report: &Report) -> String {
    let sound = || report.levels.iter().filter(|level| is_sound(level));
    let most = sound().map(rate).fold(0.0, f64::max);
    let highest = sound().max_by(|a, b| by_load(a, b));
    let tokens = |rate: f64| Grouped(rate.round() as u64);
    match (&report.knee, highest) {
        (Some(knee), Some(level)) => {
            let unit = level.load.unit();
            format!("knee at {} {unit}, {} tokens/s", (knee.at * 10.0).round() / 10.0, tokens(knee.output_tokens_per_s))
        }
        (None, Some(level)) if most > 0.0 && level.load.unit().is_empty() => {
            format!("{} tokens/s {}", tokens(most), load_words(&level.load))
        }
        (None, Some(level)) if most > 0.0 => {
            let up_to = load_words(&level.load).replacen("at ", "", 1);
            format!("no knee up to {up_to}, {} tokens/s at most", tokens(most))
        }
        _ if report.levels.iter().any(|level| rate(level) > 0.0) => "no level was measured as planned".to_owned(),
        _ => "no throughput was measured".to_owned(),
    }
}

/// Why it is not shown that the client was not the limit, though nothing says that it was; `None` where it is shown.
fn unproven(report: &Report) -> Option<String> {
    let cap = report.inputs.number("in-flight");
    if let Some(why) = report.levels.iter().find_map(|level| at_its_cap(level, cap)) {
        return Some(why);
    }
    let short_of = |level: &load::Level| {
        let limit = level.client.host_limits.first()?;
        Some(format!("{} {limit}", load_words(&level.load)))
    };
    if let Some(why) = report.levels.iter().find_map(short_of) {
        return Some(why);
    }
    if !report.levels.iter().any(is_sound) {
        return Some("no level was measured as planned".to_owned());
    }
    report.levels.iter().filter(|level| is_sound(level)).find_map(|level| {
        let (at, lag) = (load_words(&level.load), level.client.dispatch_lag);
        if lag.n < LAGS || lag.p99.or(lag.max).is_none() {
            return Some(format!("{at} {} began, and it takes {LAGS}", counted(lag.n, "request")));
        }
        let agreement = level.server.iter().flat_map(|server| &server.agreement).find(|row| !row.agrees)?;
        Some(format!("{at} client and server do not agree on {}", agreement.what))
    })
}

/// That an open loop had requests that it could not send, since as many were in flight as may be; `None` where it had none.
pub(in crate::probe) fn at_its_cap(level: &load::Level, most_in_flight: f64) -> Option<String> {
    let is_open = !matches!(level.load, Load::Users(_));
    let is_at_cap = level.client.most_in_flight as f64 >= most_in_flight && level.requests.not_sent > 0;
    (is_open && is_at_cap).then(|| {
        format!(
            "{} {} in flight was the most, and {} not sent: raise --in-flight, or the server is overloaded",
            load_words(&level.load),
            Grouped(level.client.most_in_flight),
            counted(level.requests.not_sent, "request")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::report;
    use super::*;
    use crate::load::level::{Agreement, Client, HostLimit, Knee, Lag, Rate, Server};
    use crate::probe::{Outcome, Value};

    fn level(load: Load, tokens: f64) -> load::Level {
        let rate = Rate { value: tokens, ..Rate::default() };
        let dispatch_lag = Lag { n: LAGS, max: Some(1e-4), ..Lag::default() };
        let client = Client { dispatch_lag, ..Client::default() };
        load::Level { load, state: State::Done, output_tokens_per_s: Some(rate), client, ..load::Level::default() }
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
        outcome.ended_early = Some("the budget was used up".to_owned());
        let report = swept(limited, outcome);
        assert!(report.verdict.summary.contains("the limit at 1 of 2 levels; ended early: the budget"), "{report:?}");
        assert_eq!(report.verdict.level, Level::Watch, "with something to do it is worth a look");
    }

    #[test]
    fn that_the_client_was_not_the_limit_is_said_only_where_it_is_shown() {
        type Change<'a> = &'a dyn Fn(&mut load::Level);
        let good = || level(Load::RequestsPerS(8.0), 100.0);
        let words = |change: Change| {
            let mut changed = good();
            changed.load = Load::RequestsPerS(9.0);
            change(&mut changed);
            let mut report = swept(vec![good(), changed], Outcome::default());
            report.inputs.put("in-flight", Value::Number(1_024.0));
            report.take(Outcome::default(), None);
            report.verdict.summary
        };
        assert!(words(&|_| ()).ends_with("; the client was not the limit"));
        let agreement = vec![Agreement { what: "TTFT P50".to_owned(), ..Agreement::default() }];
        let server = || Some(Server { agreement: agreement.clone(), ..Server::default() });
        let cap = |level: &mut load::Level| (level.client.most_in_flight, level.requests.not_sent) = (1_024, 1);
        let cases: [(&str, Change); 6] = [
            ("at 9 requests/s 71 requests began, and it takes 72", &|level| level.client.dispatch_lag.n = 71),
            ("at 9 requests/s 72 requests began", &|level| level.client.dispatch_lag.max = None),
            ("at 9 requests/s client and server do not agree on TTFT P50", &|level| level.server = server()),
            ("at 9 requests/s 1,024 in flight was the most, and 1 request not sent: raise --in-flight", &cap),
            ("at 9 requests/s no more files may be opened: raise the limit", &|level| {
                level.client.host_limits.insert(HostLimit::OpenFiles);
            }),
            ("at 9 requests/s 1,024 in flight", &|level| {
                cap(level);
                level.state = State::OverSaturated;
            }),
        ];
        for (why, change) in cases {
            let words = words(change);
            assert!(words.contains(&format!("whether the client was the limit is not shown: {why}")), "{words}");
        }
        let over = |level: &mut load::Level| {
            (level.state, level.server, level.client.dispatch_lag.n) = (State::OverSaturated, server(), 5);
        };
        assert!(words(&over).ends_with("the client was not the limit"), "such a level is judged by its limits alone");
    }

    #[test]
    fn a_level_without_a_steady_state_is_told_and_is_no_throughput() {
        let with = |state| {
            let other = load::Level { state, ..level(Load::RequestsPerS(10.0), 900.0) };
            summary(vec![level(Load::RequestsPerS(5.0), 500.0), other], Outcome::default())
        };
        let words = "no knee up to 5 requests/s, 500 tokens/s at most; at 10 requests/s more came than was served";
        assert!(with(State::OverSaturated).starts_with(words), "{}", with(State::OverSaturated));
        let words = "no knee up to 5 requests/s, 500 tokens/s at most; at 10 requests/s too many requests failed";
        assert!(with(State::Failing).starts_with(words), "{}", with(State::Failing));
        let over = load::Level { state: State::OverSaturated, ..level(Load::RequestsPerS(10.0), 900.0) };
        let words = summary(vec![over], Outcome::default());
        assert!(words.starts_with("no level was measured as planned; at 10 requests/s more"), "{words}");
    }

    #[test]
    fn a_sweep_is_no_baseline_and_one_in_company_says_so() {
        let mut report = swept(vec![level(Load::Users(1), 10.0)], Outcome::default());
        assert_eq!((report.verdict_word(), report.verdict.level), ("measured", Level::Unknown));
        let hbm = Report { probe: "hbm".to_owned(), ..report.clone() };
        let failed = Report { ending: super::super::Ending::Failed, ..report.clone() };
        assert_eq!((hbm.verdict_word(), failed.verdict_word()), ("unknown", "unknown"));
        assert!(report.is_no_baseline().is_some_and(|why| why.contains("compared")));
        assert!(report.verdict.advice.is_empty());
        "3 requests of others".clone_into(&mut report.environment.company);
        report.take(Outcome::default(), None);
        assert!(report.verdict.advice[0].contains("others used"), "{:?}", report.verdict);
    }
}
