//! Two sweeps beside each other, level by level: what changed, by how much, and whether that is shown.
//!
//! It must not know how a difference is judged (load::apart). Invariants: only levels of the same load are held against
//! each other, repetitions in their order; a level that has no counterpart is named; where nothing is shown, that is what
//! it says; a quantile that has too few measurements is no figure.

use std::fmt::Write as _;

use crate::load::Level;
use crate::load::apart::{Row, Verdict, compare};
use crate::probe::report::Report;

use super::number;
use super::sweep::{head, name, row, sorted};

/// Appends what two reports say of the same levels; nothing where neither has any.
pub(super) fn levels(out: &mut String, old: &Report, new: &Report) {
    let (before, after) = (sorted(&old.levels), sorted(&new.levels));
    if before.is_empty() && after.is_empty() {
        return;
    }
    out.push_str("\n## Levels\n\n");
    let has = |levels: &[&Level], level: &Level| levels.iter().any(|other| same(other, level));
    let lone = |levels: &[&Level], others: &[&Level]| {
        let lone: Vec<_> = levels.iter().filter(|level| !has(others, level)).map(|level| name(level)).collect();
        lone.join(", ")
    };
    for (lone, which) in [(lone(&before, &after), "newer"), (lone(&after, &before), "older")] {
        if !lone.is_empty() {
            let _ = writeln!(out, "- not in the {which} one: {lone}");
        }
    }
    let pairs = before.iter().filter_map(|level| Some((*level, *after.iter().find(|other| same(other, level))?)));
    let rows: Vec<_> = pairs.flat_map(|(old, new)| compare(old, new).into_iter().map(move |row| (old, row))).collect();
    // What neither measured is no figure of this comparison.
    let rows: Vec<_> = rows.into_iter().filter(|(_, row)| row.old.is_some() || row.new.is_some()).collect();
    if rows.is_empty() {
        out.push_str("- no level is in both\n");
        return;
    }
    let _ = writeln!(out, "- {}\n", counted(rows.iter().map(|(_, row)| row)));
    head(out, &["load", "figure", "then", "now", "change (95 % interval)", "shown"]);
    for (level, found) in &rows {
        row(out, &cells(level, found));
    }
    out.push('\n');
    reasons(out, &rows);
    out.push_str("- no difference shown: these measurements do not tell the two apart; there may be a difference\n");
}

/// Whether they are measurements of the same load, the same in their order.
fn same(a: &Level, b: &Level) -> bool {
    a.load == b.load && a.repeat == b.repeat
}

/// How many figures show what: "3 better, 0 worse, 12 with no difference shown, 2 not comparable".
fn counted<'a>(rows: impl Iterator<Item = &'a Row>) -> String {
    let [mut better, mut worse, mut none, mut cannot] = [0; 4];
    for row in rows {
        match row.verdict {
            Verdict::Better => better += 1,
            Verdict::Worse => worse += 1,
            Verdict::NoDifferenceShown => none += 1,
            Verdict::NotComparable(_) => cannot += 1,
        }
    }
    format!("{better} better, {worse} worse, {none} with no difference shown, {cannot} not comparable")
}

/// Why figures are not comparable, those with the same reason together.
fn reasons(out: &mut String, rows: &[(&Level, Row)]) {
    let why = |row: &Row| match &row.verdict {
        Verdict::NotComparable(why) => Some(why.clone()),
        _ => None,
    };
    let mut all: Vec<_> = rows.iter().filter_map(|(_, row)| why(row)).collect();
    all.sort();
    all.dedup();
    for reason in all {
        let of = rows.iter().filter(|(_, row)| why(row).as_ref() == Some(&reason));
        let of: Vec<_> = of.map(|(level, row)| format!("{} of {}", row.name, name(level))).collect();
        let _ = writeln!(out, "- not comparable, {reason}: {}", of.join(", "));
    }
}

fn cells(level: &Level, row: &Row) -> [String; 6] {
    let (unit, times) = if row.unit == "s" { ("ms", 1000.0) } else { (row.unit, 1.0) };
    let value = |value: Option<f64>| value.map(|value| value * times);
    let now = value(row.new).map_or_else(|| number(None), |now| format!("{} {unit}", number(Some(now))));
    let signed = |pct: f64| format!("{pct:+.1}");
    let interval = row.interval_pct.map(|(lo, hi)| format!(" ({} to {})", signed(lo), signed(hi)));
    let change = row.change_pct.map_or_else(|| number(None), |pct| format!("{} %", signed(pct)));
    let shown = match &row.verdict {
        Verdict::Better => "better".to_owned(),
        Verdict::Worse => "worse".to_owned(),
        Verdict::NoDifferenceShown => "no difference shown".to_owned(),
        Verdict::NotComparable(_) => "not comparable".to_owned(),
    };
    [name(level), row.name.clone(), number(value(row.old)), now, change + &interval.unwrap_or_default(), shown]
}

#[cfg(test)]
mod tests {
    use crate::load::level::fixture::{latency, level};
    use crate::load::level::{Latency, Load, Quantile, State};
    use crate::probe::page::compare;
    use crate::probe::report::tests::report;

    use super::*;

    fn sweep(run: &str, levels: Vec<Level>) -> Report {
        Report { levels, ..report(run, 4000.0) }
    }

    fn text(old: Vec<Level>, new: Vec<Level>) -> String {
        compare(&sweep("a", old), &sweep("b", new)).unwrap()
    }

    /// Figures of a sweep are of the level that it found best, another one each time.
    #[test]
    fn figures_of_sweeps_are_not_held_against_each_other() {
        let text = text(vec![level(16)], vec![level(16)]);
        assert!(!text.contains("% of then") && !text.contains("Triad") && !text.contains("same within"), "{text}");
    }

    #[test]
    fn reports_without_levels_are_compared_as_before() {
        assert!(!text(Vec::new(), Vec::new()).contains("Levels"));
    }

    #[test]
    fn what_got_better_and_worse_is_told_with_its_interval() {
        let mut new = level(16);
        new.ttft_s = latency(0.03, 500);
        new.e2e_s = latency(0.9, 500);
        let text = text(vec![level(16)], vec![new]);
        for words in [
            "| 16 users | TTFT P50 | 60.00 | 30.00 ms | -50.0 % (-52.4 to -47.4) | better |\n",
            "| 16 users | E2E P99 | 1390 | 1800 ms | +29.5 % (",
            ") | worse |\n",
            "| 16 users | TPOT P50 | 5.000 | 5.000 ms | +0.0 % (-4.9 to +5.1) | no difference shown |\n",
            "- 3 better, 3 worse, ",
            "there may be a difference\n",
        ] {
            assert!(text.contains(words), "no '{words}' in:\n{text}");
        }
        let itl = text.lines().find(|line| line.contains("| ITL P50 |")).unwrap();
        assert!(itl.contains("| 5.000 | 5.000 ms | +0.0 % | not comparable |"), "{itl}");
        assert!(text.contains("so there is no interval: ITL P50 of 16 users, ITL P95 of 16 users"), "{text}");
        for line in text.lines().filter(|line| line.starts_with('|')) {
            assert!(line.chars().count() <= 120, "{line}");
        }
    }

    #[test]
    fn a_p99_of_few_requests_is_no_figure_here_either() {
        let mut few = level(16);
        few.ttft_s = latency(0.03, 100);
        let text = text(vec![level(16)], vec![few]);
        assert!(text.contains("| 16 users | TTFT P95 | 90.00 | 45.00 ms | -50.0 % ("), "{text}");
        assert!(text.contains("| 16 users | TTFT P99 | 120.0 | – | – | not comparable |\n"), "{text}");
        assert!(
            text.contains("- not comparable, too few requests for this quantile: TTFT P99 of 16 users\n"),
            "{text}"
        );
    }

    #[test]
    fn levels_are_matched_by_load_and_repetition() {
        let again = |users, ttft| Level { repeat: 1, ttft_s: latency(ttft, 500), ..level(users) };
        let open = Level { load: Load::RequestsPerS(16.0), ..level(1) };
        let text = text(vec![again(4, 0.5), level(4), level(64)], vec![level(4), again(4, 0.25), open]);
        assert!(text.contains("| 4 users | TTFT P50 | 30.00 | 30.00 ms | +0.0"), "{text}");
        assert!(text.contains("| 4 users #2 | TTFT P50 | 500.0 | 250.0 ms | -50.0"), "{text}");
        assert!(text.contains("- not in the newer one: 64 users\n- not in the older one: 16 requests/s\n"), "{text}");
        assert!(!text.contains("| 64 users |") && !text.contains("| 16 requests/s |"), "{text}");
        assert!(self::text(vec![level(4)], Vec::new()).contains("- no level is in both\n"));
    }

    #[test]
    fn a_level_that_is_no_measurement_shows_nothing() {
        let failed = Level { state: State::Failing, ttft_s: latency(0.001, 500), ..level(4) };
        let text = text(vec![level(4)], vec![failed]);
        assert!(text.contains("| 4 users | TTFT P50 | 30.00 | 1.000 ms | -96.7 % | not comparable |\n"), "{text}");
        assert!(text.contains("- 0 better, 0 worse, 0 with no difference shown, "), "{text}");
        // What neither measured is left out; what one lacks is a dash.
        let none = Level { tpot_s: Latency::default(), ..level(4) };
        let text = self::text(vec![none.clone()], vec![none]);
        assert!(!text.contains("TPOT"), "{text}");
        let only = Quantile { value: 0.1, lo: Some(0.09), hi: Some(0.11), enough: true };
        let half = Level { answer_s: Latency { n: 6, p50: Some(only), ..Latency::default() }, ..level(4) };
        let text = self::text(vec![level(4)], vec![half]);
        assert!(text.contains("| 4 users | time to the answer P50 | – | 100.0 ms | – | not comparable |\n"), "{text}");
    }
}
