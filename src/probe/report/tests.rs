//! Judging figures, and the report as JSON.

use super::*;
use crate::probe::spec::GpuName;

/// A report of a run on an H200 that found `triad` GB/s.
pub(crate) fn report(run: &str, triad: f64) -> Report {
    let mut report = Report {
        schema: SCHEMA.to_owned(),
        run: run.to_owned(),
        probe: "hbm".to_owned(),
        warptop: "0.1.0".to_owned(),
        host: "gpu-07".to_owned(),
        target: Target {
            gpus: vec![GpuName { index: 0, uuid: "GPU-1".to_owned(), name: "NVIDIA H200".to_owned() }],
            ..Target::default()
        },
        started_unix_ms: 1_795_960_000_000,
        ended_unix_ms: 1_795_960_010_000,
        ending: Ending::Done,
        why: None,
        forced: false,
        duty_pct: 100,
        inputs: Params::default(),
        environment: Environment::default(),
        results: Vec::new(),
        checks: Vec::new(),
        notes: Vec::new(),
        moments: BTreeMap::new(),
        verdict: Report::without_result(Ending::Failed, ""),
        samples: Vec::new(),
        samples_left_out: 0,
        levels: Vec::new(),
        knee: None,
        ended_early: None,
    };
    report.take(outcome(triad, true), None);
    report
}

fn outcome(triad: f64, right: bool) -> Outcome {
    let figure = Figure::median("triad", "Triad", "GB/s", Better::Higher, &[triad - 1.0, triad, triad + 1.0]).unwrap();
    let check = Check { what: "sum of the copy".to_owned(), passed: right, detail: "7 for 8".to_owned() };
    Outcome { figures: vec![figure], checks: vec![check], ..Outcome::default() }
}

#[test]
fn a_figure_is_held_against_datasheet_and_reference() {
    // The reference for an H200: 4374 GB/s; its datasheet: 4.8 TB/s.
    let report = report("a", 4374.0 * 0.9);
    let judged = &report.results[0];
    assert!((judged.pct_of_reference.unwrap() - 90.0).abs() < 1e-9);
    assert!((judged.pct_of_datasheet.unwrap() - 4374.0 * 0.9 / 48.0).abs() < 1e-9);
    assert_eq!((report.verdict.level, judged.pct_of_baseline), (Level::Watch, None));
    assert!(report.verdict.summary.contains("Triad reaches 90 % of the reference"), "{:?}", report.verdict);
    assert!(!report.verdict.advice.is_empty());
}

#[test]
fn the_verdict_follows_the_worst_figure() {
    let level = |triad: f64| report("a", triad).verdict.level;
    assert_eq!([level(4400.0), level(4100.0), level(3400.0)], [Level::Ok, Level::Watch, Level::Failed]);
}

#[test]
fn a_wrong_computation_fails_however_fast_it_is() {
    let mut report = report("a", 4400.0);
    report.take(outcome(9999.0, false), None);
    assert_eq!(report.verdict.level, Level::Failed);
    assert!(report.verdict.summary.contains("sum of the copy (7 for 8)"));
}

#[test]
fn without_a_reference_the_baseline_counts_and_without_both_nothing_is_claimed() {
    let mut elsewhere = report("a", 1000.0);
    elsewhere.target.gpus[0].name = "NVIDIA X1".to_owned();
    elsewhere.take(outcome(1000.0, true), None);
    assert_eq!(elsewhere.verdict.level, Level::Unknown);
    assert_eq!(elsewhere.results[0].reference, None);
    let before = elsewhere.clone();
    elsewhere.take(outcome(700.0, true), Some(&before));
    // One run of the same machine is no standard that a second one can fail.
    assert_eq!(elsewhere.verdict.level, Level::Watch);
    assert!(elsewhere.verdict.summary.contains("70 % of the baseline"));
    // What swings as far as the baseline is the same.
    let mut swings = outcome(700.0, true);
    swings.figures[0].hi = 1000.0;
    elsewhere.take(swings, Some(&before));
    assert_eq!(elsewhere.verdict.level, Level::Ok);
    assert!(elsewhere.verdict.summary.contains("70 % of the baseline"), "and is told as it is");
}

#[test]
fn a_run_beside_others_is_not_called_slow() {
    for (company, duty_pct, words) in
        [("process 42", 10, "others used"), ("process 42", 100, "others used"), ("", 30, "(--duty 30)")]
    {
        let mut shared = report("a", 4400.0);
        (shared.duty_pct, shared.environment.company) = (duty_pct, company.to_owned());
        shared.take(outcome(3000.0, true), None);
        assert_eq!(shared.verdict.level, Level::Unknown, "{company} at {duty_pct} %");
        assert!(shared.verdict.advice[0].contains(words), "{:?}", shared.verdict);
    }
}

#[test]
fn advice_names_what_held_it_back() {
    let mut slow = report("a", 4400.0);
    let throttled = [("sw_power_cap".to_owned(), Some(6000.0)), ("sync_boost".to_owned(), None)].into();
    slow.environment.gpus = vec![GpuEnvironment { throttled_ms: throttled, ..GpuEnvironment::default() }];
    slow.take(outcome(3000.0, true), None);
    assert!(
        slow.verdict.advice[0].contains("sw power cap held the clocks of GPU 0 down for 60 %"),
        "{:?}",
        slow.verdict
    );
}

#[test]
fn what_the_probe_itself_advises_comes_first_and_is_worth_a_look() {
    let advised = |triad: f64| {
        let mut report = report("a", triad);
        report.take(Outcome { advice: vec!["reseat it".to_owned()], ..outcome(triad, true) }, None);
        report.verdict
    };
    let (good, bad) = (advised(4400.0), advised(3000.0));
    assert_eq!((good.level, good.advice.as_slice()), (Level::Watch, ["reseat it".to_owned()].as_slice()));
    assert!(good.summary.contains("not as it should be"), "{good:?}");
    assert_eq!((bad.level, bad.advice.len()), (Level::Failed, 1), "no 'nothing explains it' beside it: {bad:?}");
}

#[test]
fn a_link_is_judged_by_the_driver_only_where_data_flowed_and_the_probe_saw_none() {
    let range = |max| Range { max: Some(max), ..Range::default() };
    let advice = |rx, lanes, own: bool| {
        let mut report = report("a", 4400.0);
        report.environment.gpus = vec![GpuEnvironment {
            pcie_generation: range(5.0),
            pcie_generation_max: Some(5.0),
            pcie_lanes: range(lanes),
            pcie_lanes_max: Some(16.0),
            pcie_rx_gb_per_s: range(rx),
            ..GpuEnvironment::default()
        }];
        let mut outcome = outcome(4400.0, true);
        let link = Figure::median("link_generation", "", "", Better::Neither, &[5.0]);
        outcome.figures.extend(link.filter(|_| own));
        report.take(outcome, None);
        report.verdict.advice.join("")
    };
    assert!(advice(20.0, 8.0, false).contains("GPU 0 ran at gen 5 x8, it can do gen 5 x16"));
    assert_eq!([advice(20.0, 16.0, false), advice(0.1, 8.0, false), advice(20.0, 8.0, true)], [""; 3]);
}

#[test]
fn what_the_hardware_promises_goes_before_the_product() {
    let mut report = report("a", 4000.0);
    report.take(Outcome { promised: [("triad".to_owned(), 5000.0)].into(), ..outcome(4000.0, true) }, None);
    assert_eq!((report.results[0].datasheet, report.results[0].pct_of_datasheet), (Some(5000.0), Some(80.0)));
}

#[test]
fn for_a_time_less_is_more() {
    assert_eq!(pct(2.0, 1.0, Better::Lower), Some(50.0));
    assert_eq!(pct(2.0, 1.0, Better::Higher), Some(200.0));
    assert_eq!(pct(2.0, 0.0, Better::Higher), None);
    assert_eq!(pct(0.0, 1.0, Better::Lower), None);
    assert_eq!(pct(2.0, 1.0, Better::Neither), None);
}

#[test]
fn a_report_reads_back() {
    let report = report("a", 4000.0);
    let json = serde_json::to_string_pretty(&report).unwrap();
    assert_eq!(serde_json::from_str::<Report>(&json).unwrap(), report);
    // One of a version that did not know the link.
    let older: GpuEnvironment = serde_json::from_str(r#"{"index":3,"power_w":{"max":7.0}}"#).unwrap();
    assert_eq!((older.index, older.power_w.max, older.pcie_lanes.max), (3, Some(7.0), None));
}

/// The verdict over a figure of another probe of the same H200.
fn of_another(probe: &str, id: &str, value: f64, better: Better, baseline: Option<&Report>) -> Report {
    let mut report = report("a", 4400.0);
    probe.clone_into(&mut report.probe);
    let figure = Figure::median(id, id, "unit", better, &[value * 0.999, value, value * 1.001]).unwrap();
    report.take(Outcome { figures: vec![figure], ..Outcome::default() }, baseline);
    report
}

#[test]
fn a_reference_from_another_host_is_shown_and_does_not_make_a_fault() {
    // A CPU that needs 3.2 µs for the 2.5 µs of the reference's.
    let launch = of_another("launch", "plain", 3.2, Better::Lower, None);
    assert!((launch.results[0].pct_of_reference.unwrap() - 2.5 / 3.2 * 100.0).abs() < 1e-9);
    assert_eq!(launch.verdict.level, Level::Unknown, "{:?}", launch.verdict);
    let slower = of_another("launch", "plain", 4.0, Better::Lower, Some(&launch));
    assert_eq!(slower.verdict.level, Level::Watch, "{:?}", slower.verdict);
    assert!(slower.verdict.summary.contains("of the baseline"), "{:?}", slower.verdict);
    // A slot of half the lanes.
    let slot = of_another("pcie", "h2d", 53.3 / 2.0, Better::Higher, None);
    assert_eq!(slot.verdict.level, Level::Watch, "{:?}", slot.verdict);
    // The GPU's own memory is the same in any host.
    assert_eq!(of_another("hbm", "triad", 4374.0 / 2.0, Better::Higher, None).verdict.level, Level::Failed);
}
