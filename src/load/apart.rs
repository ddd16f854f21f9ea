//! Two measurements of the same load, before and after a change: what differs, by how much, and whether that is shown.
//!
//! Two intervals that do not meet show a difference; that is stricter than a test of the difference would be. Rates
//! are compared by Welch's t on their batch means, shares by Newcombe's interval. Invariants: "no difference shown" is not
//! "equal", and nothing here says that; what has no interval is given with its change, but without a verdict; a quantile of
//! too few requests is no figure, whatever the verdict; a time or rate that changed by 2 % or less shows no difference.

use super::level::{Goodput, Latency, Level, Quantile, Rate, State};
use super::rates::{BATCHES, T_9, newcombe};

/// Student's t, 2.5 % on each side, for 9 to 18 degrees of freedom: all that Welch's formula gives for twice ten batches.
const T: [f64; 10] = [T_9, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101];
/// So little shows no difference, %: from run to run a machine itself changes by as much, which no interval of one run holds.
const NOISE_PCT: f64 = 2.0;

/// A figure of both.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// What it is, e.g. `TTFT P99`.
    pub name: String,
    /// Its unit.
    pub unit: &'static str,
    /// Before.
    pub old: Option<f64>,
    /// After.
    pub new: Option<f64>,
    /// By how much it changed, % of the old one.
    pub change_pct: Option<f64>,
    /// The 95 % interval of that, where there is one; of a quantile one that is wider than it need be.
    pub interval_pct: Option<(f64, f64)>,
    /// What that shows.
    pub verdict: Verdict,
}

/// What a comparison shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It became better.
    Better,
    /// It became worse.
    Worse,
    /// What was measured shows no difference; there may be one.
    NoDifferenceShown,
    /// It cannot be told, and why.
    NotComparable(String),
}

/// The difference between two levels of the same load, figure by figure. Where the levels themselves are not to be
/// compared, each row says why.
pub fn compare(old: &Level, new: &Level) -> Vec<Row> {
    let mut rows = Vec::new();
    for (name, old, new) in [
        ("TTFT", &old.ttft_s, &new.ttft_s),
        ("time to the answer", &old.answer_s, &new.answer_s),
        ("ITL", &old.itl_s, &new.itl_s),
        ("TPOT", &old.tpot_s, &new.tpot_s),
        ("E2E", &old.e2e_s, &new.e2e_s),
    ] {
        latency(&mut rows, name, old, new);
    }
    for (name, old, new) in [
        ("scheduled TTFT", old.scheduled_ttft_s.as_ref(), new.scheduled_ttft_s.as_ref()),
        ("scheduled E2E", old.scheduled_e2e_s.as_ref(), new.scheduled_e2e_s.as_ref()),
    ] {
        if let (Some(old), Some(new)) = (old, new) {
            latency(&mut rows, name, old, new);
        }
    }
    rows.push(rate("requests", "1/s", old.requests_per_s, new.requests_per_s));
    rows.push(rate("output tokens", "tokens/s", old.output_tokens_per_s, new.output_tokens_per_s));
    rows.push(rate("prompt and output tokens", "tokens/s", old.total_tokens_per_s, new.total_tokens_per_s));
    if old.goodput.is_some() || new.goodput.is_some() {
        rows.push(goodput(old.goodput.as_ref(), new.goodput.as_ref()));
    }
    if let Some(why) = incomparable(old, new) {
        for row in &mut rows {
            row.interval_pct = None;
            row.verdict = Verdict::NotComparable(why.clone());
        }
    }
    rows
}

/// Why two levels cannot be compared at all.
fn incomparable(old: &Level, new: &Level) -> Option<String> {
    if old.load != new.load {
        return Some("the loads differ".to_owned());
    }
    [("old", old), ("new", new)].into_iter().find_map(|(which, level)| {
        let why = match level.state {
            State::OverSaturated => "had no steady state: more came than was served",
            State::Failing => "had too many failed requests",
            // What was in flight then is missing: the slowest most of all.
            State::OutOfBudget => "was broken off when the budget was used up",
            State::Stopped => "was stopped",
            state if !state.is_over() => "is not over",
            _ if !level.client.limits.is_empty() => "may have been limited by the client",
            _ => return None,
        };
        Some(format!("the {which} level {why}"))
    })
}

/// The three quantiles of a latency; none where neither level has one.
fn latency(rows: &mut Vec<Row>, name: &str, old: &Latency, new: &Latency) {
    if old.n == 0 && new.n == 0 {
        return;
    }
    for (which, of) in
        [("P50", (|of| of.p50) as fn(&Latency) -> Option<Quantile>), ("P95", |of| of.p95), ("P99", |of| of.p99)]
    {
        rows.push(quantile(format!("{name} {which}"), of(old), of(new)));
    }
}

fn quantile(name: String, old: Option<Quantile>, new: Option<Quantile>) -> Row {
    let few = [old, new].into_iter().flatten().any(|of| !of.enough);
    let [old, new] = [old, new].map(|of| of.filter(|of| of.enough));
    let bounds = |of: &Quantile| Some((of.lo?, of.hi?));
    let (interval_pct, verdict) = match (&old, &new) {
        _ if few => (None, cannot("too few requests for this quantile")),
        (Some(a), Some(b)) => match (bounds(a), bounds(b)) {
            (Some(a), Some(b)) => {
                let pct = |new: f64, old: f64| (old > 0.0).then(|| (new / old - 1.0) * 100.0);
                let interval = pct(b.0, a.1).zip(pct(b.1, a.0));
                (interval, verdict(b.1 < a.0, a.1 < b.0))
            }
            _ => (None, cannot("gaps of a request depend on each other, so there is no interval")),
        },
        _ => (None, missing(old.is_some(), new.is_some())),
    };
    row(name, "s", old.map(|of| of.value), new.map(|of| of.value), interval_pct, verdict)
}

fn rate(name: &str, unit: &'static str, old: Option<Rate>, new: Option<Rate>) -> Row {
    // The lower end may have been cut off at 0.
    let error = |of: &Rate| of.hi.map(|hi| (hi - of.value) / T_9);
    let (interval_pct, verdict) = match (&old, &new) {
        (Some(a), Some(b)) => match error(a).zip(error(b)) {
            Some(errors) => {
                let half = welch(errors);
                let (low, high) = (b.value - a.value - half, b.value - a.value + half);
                (of_old((low, high), a.value), verdict(low > 0.0, high < 0.0))
            }
            None => (None, cannot("measured too briefly for an interval")),
        },
        _ => (None, missing(old.is_some(), new.is_some())),
    };
    row(name.to_owned(), unit, old.map(|of| of.value), new.map(|of| of.value), interval_pct, verdict)
}

/// Half of the interval of the difference between two means with these standard errors (Welch 1947).
fn welch((a, b): (f64, f64)) -> f64 {
    let (a, b) = (a * a, b * b);
    if a + b <= 0.0 {
        return 0.0;
    }
    let least = (BATCHES - 1) as f64;
    let freedom = (a + b).powi(2) / ((a * a + b * b) / least);
    let i = ((freedom - least + 1e-9).max(0.0) as usize).min(T.len() - 1);
    T[i] * (a + b).sqrt()
}

fn goodput(old: Option<&Goodput>, new: Option<&Goodput>) -> Row {
    let (interval_pct, verdict) = match (old, new) {
        (Some(a), Some(b)) => {
            let (low, high) = newcombe(a, b);
            (of_old((low, high), a.share), verdict(low > 0.0, high < 0.0))
        }
        _ => (None, missing(old.is_some(), new.is_some())),
    };
    let pct = |of: &Goodput| of.share * 100.0;
    row("good requests".to_owned(), "%", old.map(pct), new.map(pct), interval_pct, verdict)
}

/// A difference as % of the old value; of nothing there is no percentage.
fn of_old((low, high): (f64, f64), old: f64) -> Option<(f64, f64)> {
    (old > 0.0).then(|| (low / old * 100.0, high / old * 100.0))
}

fn row(
    name: String,
    unit: &'static str,
    old: Option<f64>,
    new: Option<f64>,
    interval_pct: Option<(f64, f64)>,
    verdict: Verdict,
) -> Row {
    let change_pct = old.filter(|old| *old > 0.0).zip(new).map(|(old, new)| (new / old - 1.0) * 100.0);
    // A share of requests is counted, and 99.9 % are not 98.5 %.
    let small = unit != "%" && change_pct.is_some_and(|pct| pct.abs() <= NOISE_PCT);
    let verdict = match verdict {
        Verdict::Better | Verdict::Worse if small => Verdict::NoDifferenceShown,
        verdict => verdict,
    };
    Row { name, unit, old, new, change_pct, interval_pct, verdict }
}

const fn verdict(better: bool, worse: bool) -> Verdict {
    match (better, worse) {
        (true, _) => Verdict::Better,
        (_, true) => Verdict::Worse,
        _ => Verdict::NoDifferenceShown,
    }
}

fn cannot(why: &str) -> Verdict {
    Verdict::NotComparable(why.to_owned())
}

fn missing(old: bool, new: bool) -> Verdict {
    cannot(match (old, new) {
        (false, false) => "neither level has it",
        (false, true) => "the old level does not have it",
        _ => "the new level does not have it",
    })
}

#[cfg(test)]
mod tests {
    use super::super::level::{Client, Load};
    use super::super::rank::Sample;
    use super::super::rates::{Bins, goodput as share};
    use super::*;

    fn done() -> Level {
        Level { load: Load::Users(8), state: State::Done, ..Level::default() }
    }

    /// Exponential with this mean.
    fn ttft(seed: u64, n: usize, mean: f64) -> Level {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut sample = Sample::default();
        (0..n).for_each(|_| sample.push(-(1.0 - random.f64()).ln() * mean));
        Level { ttft_s: sample.latency(), ..done() }
    }

    fn named<'a>(rows: &'a [Row], name: &str) -> &'a Row {
        rows.iter().find(|row| row.name == name).unwrap()
    }

    #[test]
    fn a_large_difference_is_shown_and_in_the_right_direction() {
        let (slow, fast) = (ttft(1, 1000, 0.2), ttft(2, 1000, 0.1));
        for name in ["TTFT P50", "TTFT P95", "TTFT P99"] {
            let (down, up) = (compare(&slow, &fast), compare(&fast, &slow));
            assert_eq!(named(&down, name).verdict, Verdict::Better);
            assert_eq!(named(&up, name).verdict, Verdict::Worse);
            let (low, high) = named(&down, name).interval_pct.unwrap();
            let change = named(&down, name).change_pct.unwrap();
            assert!(
                low < change && change < high && high < 0.0 && (low..high).contains(&-50.0),
                "{low} {change} {high}"
            );
        }
    }

    #[test]
    fn the_same_twice_shows_no_difference_but_for_chance() {
        let shown = (0..1000)
            .flat_map(|seed| compare(&ttft(seed, 400, 0.1), &ttft(seed + 5000, 400, 0.1)))
            .filter(|row| matches!(row.verdict, Verdict::Better | Verdict::Worse))
            .count();
        // 3000 quantiles; intervals that do not meet are rarer than 5 % by far.
        assert!(shown <= 45, "{shown} of 3000");
    }

    #[test]
    fn what_was_measured_too_little_is_not_compared() {
        let rows = compare(&ttft(1, 100, 0.2), &ttft(2, 1000, 0.1));
        assert_eq!(named(&rows, "TTFT P95").verdict, Verdict::Better);
        let p99 = named(&rows, "TTFT P99");
        assert_eq!(p99.verdict, cannot("too few requests for this quantile"));
        assert_eq!((p99.old, p99.change_pct, p99.interval_pct), (None, None, None));
        assert!(p99.new.is_some(), "of the other level it is a figure");
        // Nor is it one where the levels are not compared at all.
        let failed = Level { state: State::Failing, ..ttft(2, 100, 0.1) };
        let p99 = named(&compare(&ttft(1, 1000, 0.2), &failed), "TTFT P99").clone();
        assert!(p99.old.is_some() && p99.new.is_none() && p99.change_pct.is_none(), "{p99:?}");
        let rows = compare(&ttft(1, 100, 0.2), &done());
        assert_eq!(named(&rows, "TTFT P50").verdict, cannot("the new level does not have it"));
        assert_eq!(named(&rows, "requests").verdict, cannot("neither level has it"));
    }

    /// A server that answers the same within fractions of a millisecond has intervals that barely span anything.
    #[test]
    fn a_change_as_small_as_from_run_to_run_shows_no_difference() {
        let level = |value: f64| {
            let p95 = Quantile { value, lo: Some(value - 0.000_05), hi: Some(value + 0.000_05), enough: true };
            Level { ttft_s: Latency { n: 100, p95: Some(p95), ..Latency::default() }, ..done() }
        };
        let shown = |old, new| named(&compare(&level(old), &level(new)), "TTFT P95").verdict.clone();
        assert_eq!(shown(0.06116, 0.06135), Verdict::NoDifferenceShown);
        assert_eq!(shown(0.06135, 0.06116), Verdict::NoDifferenceShown);
        assert_eq!(shown(0.06116, 0.0625), Verdict::Worse);
        assert_eq!(shown(0.0625, 0.06116), Verdict::Better);
    }

    #[test]
    fn gaps_have_no_verdict_since_they_have_no_interval() {
        let p50 = |value: f64| Some(Quantile { value, lo: None, hi: None, enough: true });
        let level = |value: f64| Level { itl_s: Latency { n: 9000, p50: p50(value), ..Latency::default() }, ..done() };
        let rows = compare(&level(0.01), &level(0.02));
        let row = named(&rows, "ITL P50");
        assert!(matches!(&row.verdict, Verdict::NotComparable(why) if why.contains("no interval")), "{row:?}");
        assert_eq!((row.old, row.new, row.change_pct), (Some(0.01), Some(0.02), Some(100.0)));
    }

    #[test]
    fn levels_that_are_no_measurement_of_the_same_are_not_compared() {
        let good = ttft(1, 1000, 0.2);
        let with = |state| Level { state, ..ttft(2, 1000, 0.1) };
        let limited = Client { limits: vec!["its CPU was full".to_owned()], ..Client::default() };
        for (other, why) in [
            (with(State::OverSaturated), "the new level had no steady state: more came than was served"),
            (with(State::Failing), "the new level had too many failed requests"),
            (with(State::Measuring), "the new level is not over"),
            (with(State::OutOfBudget), "the new level was broken off when the budget was used up"),
            (with(State::Stopped), "the new level was stopped"),
            (Level { load: Load::Users(9), ..good.clone() }, "the loads differ"),
            (Level { client: limited, ..good.clone() }, "the new level may have been limited by the client"),
        ] {
            let rows = compare(&good, &other);
            assert!(!rows.is_empty() && rows.iter().all(|row| row.verdict == cannot(why)), "{rows:?}");
            assert!(rows.iter().all(|row| row.interval_pct.is_none()));
        }
        // Short levels have intervals as wide as they must be.
        assert_eq!(named(&compare(&good, &with(State::Short)), "TTFT P50").verdict, Verdict::Better);
    }

    /// Two samples of ten with means 10 and 12 and standard errors 0.5 and 0.5: t for 18 degrees of freedom is 2.101, half
    /// of the interval 2.101 · √0.5 = 1.4856. With 0.5 and 0.1: (0.26)² ÷ ((0.0625 + 0.0001) ÷ 9) = 9.72, so 9, and 2.262 · √0.26.
    #[test]
    fn rates_are_compared_as_welch_does() {
        let of = |value: f64, error: f64| Some(Rate { value, lo: Some(0.0), hi: Some(value + 2.262 * error) });
        let row = rate("requests", "1/s", of(10.0, 0.5), of(12.0, 0.5));
        let (low, high) = row.interval_pct.unwrap();
        assert!((low - 5.144).abs() < 0.01 && (high - 34.856).abs() < 0.01, "{row:?}");
        assert_eq!(row.verdict, Verdict::Better);
        assert_eq!(rate("", "", of(12.0, 0.5), of(10.0, 0.5)).verdict, Verdict::Worse);
        assert_eq!(rate("", "", of(10.0, 0.5), of(11.4, 0.5)).verdict, Verdict::NoDifferenceShown);
        assert!((welch((0.5, 0.1)) - 2.262 * 0.26_f64.sqrt()).abs() < 1e-9);
        let brief = Some(Rate { value: 3.0, lo: None, hi: None });
        assert_eq!(rate("", "", of(10.0, 0.5), brief).verdict, cannot("measured too briefly for an interval"));
        assert_eq!(rate("", "", None, brief).verdict, cannot("the old level does not have it"));
    }

    #[test]
    fn equal_rates_are_told_apart_by_chance_in_one_of_twenty() {
        let mut random = fastrand::Rng::with_seed(4);
        let mut measured = || {
            let mut bins = Bins::from(0);
            (0..10_000_000).step_by(100_000).for_each(|at| bins.add(at, random.f64()));
            bins.rate(10_000_000, true)
        };
        let shown =
            (0..1000).filter(|_| rate("", "", measured(), measured()).verdict != Verdict::NoDifferenceShown).count();
        assert!((25..=75).contains(&shown), "{shown} of 1000");
    }

    #[test]
    fn shares_are_compared_as_newcombe_does() {
        let row = goodput(share(48, 80, 1.0).as_ref(), share(56, 70, 1.0).as_ref());
        // As published for the difference, of 0.6: 0.0524 to 0.3339.
        let (low, high) = row.interval_pct.unwrap();
        assert!((low - 5.24 / 0.6).abs() < 0.01 && (high - 33.39 / 0.6).abs() < 0.01, "{row:?}");
        assert_eq!((row.verdict, row.unit), (Verdict::Better, "%"));
        let same = goodput(share(48, 80, 1.0).as_ref(), share(50, 80, 1.0).as_ref());
        assert_eq!(same.verdict, Verdict::NoDifferenceShown);
        let most = goodput(share(99_990, 100_000, 1.0).as_ref(), share(98_500, 100_000, 1.0).as_ref());
        assert_eq!(most.verdict, Verdict::Worse, "however little it is in percent: {most:?}");
        let none = goodput(share(0, 80, 1.0).as_ref(), share(50, 80, 1.0).as_ref());
        assert_eq!((none.verdict, none.change_pct, none.interval_pct), (Verdict::Better, None, None));
    }
}
