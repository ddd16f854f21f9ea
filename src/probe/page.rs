//! A report as a page to read (Markdown), and two reports beside each other.
//!
//! Pure: the JSON document in, text out. It must not know where reports are kept. Invariant: nothing is on
//! the page that is not in the document; what is missing there is a dash here.

mod apart;
mod matrix;
mod sweep;

use crate::model::clock::date;
use crate::model::text::Plural;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use matrix::Matrix;

use super::protocol::Better;
use super::report::{Ending, Environment, GpuEnvironment, Judged, Range, Report, pct};

/// Most samples of a series that are shown one by one.
const SHOWN_SAMPLES: usize = 12;
/// Two figures differ when the gap is larger than both spreads and this, %.
const NOISE_PCT: f64 = 2.0;

/// A value with four digits, or a dash.
pub fn number(value: Option<f64>) -> String {
    match value {
        None => "–".to_owned(),
        Some(v) if v.abs() >= 1e15 => format!("{v:.3e}"),
        Some(v) if v.abs() >= 1000.0 || v == 0.0 => format!("{v:.0}"),
        Some(v) if v.abs() >= 100.0 => format!("{v:.1}"),
        Some(v) if v.abs() >= 10.0 => format!("{v:.2}"),
        Some(v) => format!("{v:.3}"),
    }
}

/// A share, or a dash.
pub fn percent(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), |v| format!("{v:.0} %"))
}

/// A text as a cell of a table, which neither a bar nor a new line may end.
pub fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace(['\r', '\n'], " ")
}

/// A moment as UTC, e.g. `2026-11-29 21:24:01 UTC`.
pub fn utc(unix_ms: u64) -> String {
    let (year, month, day) = date(unix_ms / 86_400_000);
    let s = unix_ms / 1000 % 86_400;
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC", s / 3600, s / 60 % 60, s % 60)
}

/// The page of a report.
pub fn page(report: &Report) -> String {
    let mut out = String::new();
    // Writing to a String never fails, here and below.
    let _ = writeln!(out, "# {} on {}\n", report.probe, report.target);
    let _ = match (report.ending, report.why.as_deref()) {
        // What was not judged is no verdict: how it ended stands for it.
        (Ending::Done, _) => writeln!(out, "**{}**: {}\n", report.verdict_word(), report.verdict.summary),
        (ending, Some(why)) => writeln!(out, "**{}**: {why}\n", ending.without_result()),
        (ending, None) => writeln!(out, "**{}**\n", ending.without_result()),
    };
    for advice in &report.verdict.advice {
        let _ = writeln!(out, "- {advice}");
    }
    if !report.verdict.advice.is_empty() {
        out.push('\n');
    }
    results(&mut out, report);
    for check in &report.checks {
        let _ = match (check.passed, check.detail.as_str()) {
            (true, _) => writeln!(out, "- checked, right: {}", check.what),
            (false, "") => writeln!(out, "- checked, WRONG: {}", check.what),
            (false, detail) => writeln!(out, "- checked, WRONG: {} ({detail})", check.what),
        };
    }
    for note in &report.notes {
        let _ = writeln!(out, "- {note}");
    }
    if !(report.checks.is_empty() && report.notes.is_empty()) {
        out.push('\n');
    }
    sweep::levels(&mut out, report);
    run(&mut out, report);
    environment(&mut out, &report.environment);
    samples(&mut out, report);
    out
}

fn results(out: &mut String, report: &Report) {
    if report.results.is_empty() {
        return;
    }
    if !report.levels.is_empty() {
        sweep::figures(out, report);
        return;
    }
    let (matrices, rows) = Matrix::take(&report.results);
    out.push_str("| figure | median | smallest – largest | n | datasheet | reference | baseline |\n");
    out.push_str("| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n");
    for Judged { figure, pct_of_datasheet, pct_of_reference, pct_of_baseline, .. } in rows {
        let _ = writeln!(
            out,
            "| {} | {} {} | {} – {} | {} | {} | {} | {} |",
            cell(&figure.label),
            number(Some(figure.value)),
            cell(&figure.unit),
            number(Some(figure.lo)),
            number(Some(figure.hi)),
            figure.n,
            percent(*pct_of_datasheet),
            percent(*pct_of_reference),
            percent(*pct_of_baseline),
        );
    }
    out.push('\n');
    for matrix in matrices {
        let _ = writeln!(out, "{matrix}");
    }
    methods(out, report);
    for Judged { figure, reference, reference_source, .. } in &report.results {
        if let Some(floor) = figure.floor {
            let share = percent(pct(figure.value, floor, figure.better));
            let _ = writeln!(
                out,
                "- {}: physics leaves {} {}, {share} of that was reached",
                figure.label,
                number(Some(floor)),
                figure.unit
            );
        }
        if let (Some(reference), Some(source)) = (reference, reference_source) {
            let _ =
                writeln!(out, "- {}: reference {} {}, {source}", figure.label, number(Some(*reference)), figure.unit);
        }
    }
    out.push('\n');
}

/// How the figures were measured; those that were measured alike in one line.
pub fn methods(out: &mut String, report: &Report) {
    let of = |method: &str| {
        let alike = report.results.iter().filter(|judged| judged.figure.method == method);
        alike.map(|judged| judged.figure.label.as_str()).collect::<Vec<_>>().join(", ")
    };
    for (i, judged) in report.results.iter().enumerate() {
        let method = &judged.figure.method;
        let said = report.results[..i].iter().any(|before| before.figure.method == *method);
        if !method.is_empty() && !said {
            let _ = writeln!(out, "- {}: {method}", of(method));
        }
    }
}

fn run(out: &mut String, report: &Report) {
    let seconds = report.ended_unix_ms.saturating_sub(report.started_unix_ms) as f64 / 1000.0;
    let ending = match report.ending {
        Ending::Done => "done",
        Ending::Stopped => "stopped",
        Ending::Refused => "refused",
        Ending::Failed => "failed",
    };
    out.push_str("## Run\n\n");
    let _ = writeln!(out, "- run {}, {ending}, warptop {}", report.run, report.warptop);
    if report.ending != Ending::Refused {
        let _ = writeln!(out, "- began {}, took {seconds:.1} s", utc(report.started_unix_ms));
    }
    if !report.host.is_empty() {
        let _ = writeln!(out, "- host {}", report.host);
    }
    for gpu in &report.target.gpus {
        let _ = writeln!(out, "- GPU {}: {} {}", gpu.index, gpu.name, gpu.uuid);
    }
    for (name, value) in report.inputs.iter() {
        let _ = writeln!(out, "- input {name} = {value}");
    }
    for (name, at) in &report.moments {
        let _ = writeln!(out, "- {name} at {at:.1} s");
    }
    if report.forced {
        let _ = writeln!(out, "- forced, kept the target busy for {} % of the time at most", report.duty_pct);
    }
    out.push('\n');
}

fn environment(page: &mut String, environment: &Environment) {
    let mut lines = String::new();
    let out = &mut lines;
    for (name, value) in [
        ("driver", &environment.driver),
        ("CUDA of the driver", &environment.cuda_driver),
        ("kernel", &environment.kernel),
        ("bound to", &environment.bound_to),
    ] {
        if let Some(value) = value {
            let _ = writeln!(out, "- {name} {value}");
        }
    }
    for (name, value) in &environment.facts {
        let _ = writeln!(out, "- {name}: {value}");
    }
    if let Some(busy) = environment.cpu_busy_before_pct {
        let _ = writeln!(out, "- CPUs before the run: {busy:.0} % busy");
    }
    if !environment.company.is_empty() {
        let _ = writeln!(out, "- company: {}", environment.company);
    }
    if !(out.is_empty() && environment.gpus.is_empty()) {
        let _ = writeln!(page, "## Machine\n\n{out}");
    }
    let out = page;
    for gpu in &environment.gpus {
        machine(out, gpu);
    }
}

fn machine(out: &mut String, gpu: &GpuEnvironment) {
    let _ = writeln!(out, "| GPU {} | before | smallest | mean | largest | limit |", gpu.index);
    out.push_str("| --- | ---: | ---: | ---: | ---: | ---: |\n");
    let rows: [(&str, &Range, Option<f64>); 9] = [
        ("SM clock, MHz", &gpu.sm_clock_mhz, gpu.sm_clock_max_mhz),
        ("memory clock, MHz", &gpu.mem_clock_mhz, None),
        ("temperature, °C", &gpu.temp_c, None),
        ("memory temperature, °C", &gpu.mem_temp_c, None),
        ("power, W", &gpu.power_w, gpu.power_limit_w),
        ("PCIe generation", &gpu.pcie_generation, gpu.pcie_generation_max),
        ("PCIe lanes", &gpu.pcie_lanes, gpu.pcie_lanes_max),
        ("PCIe to the GPU, GB/s", &gpu.pcie_rx_gb_per_s, None),
        ("PCIe from the GPU, GB/s", &gpu.pcie_tx_gb_per_s, None),
    ];
    for (name, range, limit) in rows {
        let [before, min, mean, max] = [range.before, range.min, range.mean, range.max].map(number);
        let _ = writeln!(out, "| {name} | {before} | {min} | {mean} | {max} | {} |", number(limit));
    }
    out.push('\n');
    for (reason, held) in &gpu.throttled_ms {
        if let Some(held) = held {
            let _ = writeln!(out, "- clocks held down by {}: {held:.0} ms", reason.replace('_', " "));
        }
    }
    out.push('\n');
    out.push_str(&gpu.timeline.table(gpu.index));
}

fn samples(out: &mut String, report: &Report) {
    if report.samples.is_empty() {
        return;
    }
    out.push_str("## Measurements\n\n");
    let mut series: Vec<&str> = Vec::new();
    for sample in &report.samples {
        if !series.contains(&sample.series.as_str()) {
            series.push(&sample.series);
        }
    }
    for name in series {
        let of: Vec<_> = report.samples.iter().filter(|sample| sample.series == name).collect();
        let values: Vec<_> = of.iter().take(SHOWN_SAMPLES).map(|sample| number(Some(sample.value))).collect();
        let more =
            if of.len() > SHOWN_SAMPLES { format!(" and {} more", of.len() - SHOWN_SAMPLES) } else { String::new() };
        let _ = writeln!(out, "- {name}, {}: {}{more}", of[0].unit, values.join(", "));
    }
    if report.samples_left_out > 0 {
        let _ = writeln!(
            out,
            "- {} not kept",
            Plural(report.samples_left_out, "measurement more was", "measurements more were")
        );
    }
}

/// Two reports of the same probe beside each other, `new` against `old`.
///
/// # Errors
/// Why they cannot be compared.
pub fn compare(old: &Report, new: &Report) -> Result<String, String> {
    if old.probe != new.probe {
        return Err(format!("{} and {} measure different things", old.probe, new.probe));
    }
    let mut out = String::new();
    let _ = writeln!(out, "# {}: {} against {}\n", new.probe, new.run, old.run);
    for (what, before, after) in differences(old, new) {
        let _ = writeln!(out, "- {what}: {before} then, {after} now");
    }
    // Their figures are of the levels that each found best: other loads, which say nothing of each other.
    if old.levels.is_empty() && new.levels.is_empty() {
        figures(&mut out, old, new);
    } else {
        apart::levels(&mut out, old, new);
    }
    Ok(out)
}

/// The figures of two reports beside each other.
fn figures(out: &mut String, old: &Report, new: &Report) {
    out.push_str("\n| figure | then | now | now, % of then | |\n| --- | ---: | ---: | ---: | --- |\n");
    for Judged { figure, .. } in &new.results {
        let before = old.figure(&figure.id).filter(|before| before.unit == figure.unit);
        let share = before.and_then(|before| pct(figure.value, before.value, figure.better));
        let apart = before.is_some_and(|before| figure.is_apart(before));
        let word = match share {
            Some(share) if apart && share < 100.0 - NOISE_PCT => "worse",
            Some(share) if apart && share > 100.0 + NOISE_PCT => "better",
            Some(_) => "same within its spread",
            None if before.is_some() && figure.better == Better::Neither => "",
            None => "not in the older one",
        };
        let _ = writeln!(
            out,
            "| {} | {} | {} {} | {} | {word} |",
            cell(&figure.label),
            number(before.map(|before| before.value)),
            number(Some(figure.value)),
            cell(&figure.unit),
            percent(share)
        );
    }
    for Judged { figure, .. } in old.results.iter().filter(|judged| new.figure(&judged.figure.id).is_none()) {
        let _ = writeln!(
            out,
            "| {} | {} {} | – | – | not in the newer one |",
            cell(&figure.label),
            number(Some(figure.value)),
            cell(&figure.unit)
        );
    }
}

/// What else was not the same: reasons to doubt a comparison.
fn differences<'a>(old: &'a Report, new: &'a Report) -> Vec<(String, String, String)> {
    let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "not known".to_owned());
    let bound = |report: &Report| report.bound().unwrap_or("all of it").to_owned();
    let target = |report: &Report| report.target.endpoint.clone().unwrap_or_else(|| report.target.key());
    let product =
        |report: &Report| report.target.gpus.first().map_or_else(|| "host".to_owned(), |gpu| gpu.name.clone());
    let first = [
        ("machine", old.host.clone(), new.host.clone()),
        ("target", target(old), target(new)),
        ("product", product(old), product(new)),
    ];
    let last = [
        ("bound to", bound(old), bound(new)),
        ("duty cycle, %", old.duty_pct.to_string(), new.duty_pct.to_string()),
        ("driver", text(&old.environment.driver), text(&new.environment.driver)),
        ("kernel", text(&old.environment.kernel), text(&new.environment.kernel)),
        ("warptop", old.warptop.clone(), new.warptop.clone()),
    ];
    let named = |(what, before, after): (&str, String, String)| (what.to_owned(), before, after);
    first
        .into_iter()
        .map(named)
        .chain(inputs(old, new))
        .chain(last.into_iter().chain(sweep::told(old, new)).map(named))
        .filter(|(_, before, after)| before != after)
        .collect()
}

/// Every input of either, by its name.
fn inputs(old: &Report, new: &Report) -> Vec<(String, String, String)> {
    let [before, after] = [old, new].map(|report| {
        report.inputs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect::<BTreeMap<_, _>>()
    });
    let names: BTreeSet<_> = before.keys().chain(after.keys()).collect();
    let of = |inputs: &BTreeMap<String, String>, name| match inputs.get(name).map(String::as_str) {
        None => "not given".to_owned(),
        Some("") => "empty".to_owned(),
        Some(value) => value.to_owned(),
    };
    names.into_iter().map(|name| (format!("input {name}"), of(&before, name), of(&after, name))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::report::tests::report;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (unix, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (951_868_799, "2000-02-29 23:59:59 UTC"),
            (951_868_800, "2000-03-01 00:00:00 UTC"),
            (1_709_210_096, "2024-02-29 12:34:56 UTC"),
            (1_767_225_599, "2025-12-31 23:59:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(utc(unix * 1000), text);
        }
    }

    #[test]
    fn a_value_has_few_digits() {
        let text = |value| number(Some(value));
        assert_eq!([text(1e308), text(4374.4), text(0.25), text(0.0)], ["1.000e308", "4374", "0.250", "0"]);
    }

    #[test]
    fn the_page_holds_figure_reference_and_verdict() {
        let page = page(&report("20261129-001", 4000.0));
        for words in [
            "# hbm on GPU 0",
            "**watch**: Triad reaches 91 % of the reference",
            "| Triad | 4000 GB/s | 3999 – 4001 | 3 | 83 % | 91 % | – |",
            "- checked, right: sum of the copy",
            "began 2026-11-29",
            "took 10.0 s",
        ] {
            assert!(page.contains(words), "no '{words}' on:\n{page}");
        }
    }

    #[test]
    fn a_run_without_a_result_says_how_it_ended_and_claims_nothing_else() {
        for (ending, why, words) in [
            (Ending::Failed, "it fell over", "**no result**: it fell over"),
            (Ending::Stopped, "by the user", "**stopped**: by the user\n"),
            (Ending::Stopped, "the program was left", "**stopped**: the program was left"),
            (Ending::Refused, "an engine serves here", "**not run**: an engine serves here"),
        ] {
            let (verdict, why) = (Report::without_result(ending, why), Some(why.to_owned()));
            let report = Report { ending, verdict, why, results: Vec::new(), checks: Vec::new(), ..report("a", 1.0) };
            let page = page(&report);
            assert!(page.contains(words), "no '{words}' on:\n{page}");
            assert!(!page.contains("unknown") && !page.contains("## Machine"), "{page}");
            assert!(page.lines().all(|line| line.trim_end() == line), "a trailing blank on:\n{page}");
        }
        let page = page(&report("a", 4000.0));
        assert!(page.lines().all(|line| line.trim_end() == line), "a trailing blank on:\n{page}");
    }

    #[test]
    fn two_reports_are_told_apart_only_beyond_their_spread() {
        let words = |old: f64, new: f64| compare(&report("a", old), &report("b", new)).unwrap();
        assert!(words(4000.0, 4001.0).contains("| Triad | 4000 | 4001 GB/s | 100 % | same within its spread |"));
        assert!(words(4000.0, 3000.0).contains("| 75 % | worse |"));
        assert!(words(3000.0, 4000.0).contains("| 133 % | better |"));
        // Apart by more than the spread, but by less than such measurements are good for.
        assert!(words(4000.0, 4050.0).contains("| 101 % | same within its spread |"));
        let mut other = report("b", 4000.0);
        other.environment.driver = Some("590.1".to_owned());
        other.results.clear();
        let text = compare(&report("a", 4000.0), &other).unwrap();
        assert!(
            text.contains("- driver: not known then, 590.1 now") && text.contains("not in the newer one"),
            "{text}"
        );
        assert!(!text.contains("input "), "what is the same is not listed: {text}");
        let with = |inputs: &str| Report { inputs: serde_json::from_str(inputs).unwrap(), ..report("a", 4000.0) };
        let text = compare(&with(r#"{"seed": 1.0, "slo": ""}"#), &with(r#"{"seed": 1.0, "slo": "tpot:20"}"#)).unwrap();
        assert!(text.contains("- input slo: empty then, tpot:20 now\n") && !text.contains("seed"), "{text}");
        other.probe = "pcie".to_owned();
        assert!(compare(&report("a", 1.0), &other).is_err());
    }
}
