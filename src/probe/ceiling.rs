//! What a report says about the ceiling of a GPU: which reports may, and which figure it is.
//!
//! The ceiling of the memory is the fastest of read, write, copy and triad: whatever a load mixes of reads and
//! writes, nothing that was measured moves more, so no share of it lies above 100 % but for the spread.
//! Invariant: a run that was disturbed, forced, wrong or too small for DRAM gives no ceiling.

use super::report::{Ending, Level, Report};

/// The probe that measures memory.
pub const PROBE: &str = "hbm";
/// Its figures of DRAM; those of smaller working sets are of the cache.
const FIGURES: [&str; 4] = ["triad", "copy", "read", "write"];

/// Least size of its arrays, MiB: four times the largest L2 of today (126 MiB). Smaller ones may lie in a cache.
const LEAST_MIB: f64 = 512.0;

/// Bandwidth of the device memory, bytes per second, and the figure that says so; for the one GPU of the report.
pub fn dram(report: &Report) -> Option<(f64, &str)> {
    let [gpu] = report.target.gpus.as_slice() else { return None };
    let whole = report.ending == Ending::Done && report.duty_pct == 100 && !report.forced;
    let alone = report.environment.company.is_empty();
    let of_dram = report.inputs.number("mib") >= LEAST_MIB;
    let right = report.checks.iter().all(|check| check.passed) && report.verdict.level != Level::Failed;
    if report.probe != PROBE || gpu.uuid.is_empty() || !(whole && alone && right && of_dram) {
        return None;
    }
    let found = |id: &&str| report.figure(id).filter(|figure| figure.unit == "GB/s" && figure.value > 0.0);
    let fastest = FIGURES.iter().filter_map(found).max_by(|a, b| a.value.total_cmp(&b.value))?;
    Some((fastest.value * 1e9, &fastest.id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::report::tests::report;
    use crate::probe::{Better, Figure, Params, Value};

    fn good() -> Report {
        let mut report = report("a", 4380.0);
        report.inputs = Params::of(&crate::probe::find(PROBE).unwrap().spec);
        for (id, value) in [("read", 4410.0), ("copy", 4290.0), ("read_4mib", 9000.0)] {
            let figure = Figure::median(id, id, "GB/s", Better::Higher, &[value; 3]).unwrap();
            report.results.push(crate::probe::report::Judged::new(figure, PROBE, &report.target, None, None));
        }
        report
    }

    #[test]
    fn the_ceiling_is_the_fastest_that_went_through_dram() {
        assert_eq!(dram(&good()), Some((4410e9, "read")));
        assert_eq!(dram(&Report { results: Vec::new(), ..good() }), None);
    }

    #[test]
    fn what_does_not_count_gives_no_ceiling() {
        let spoilt: [fn(&mut Report); 9] = [
            |report| report.ending = Ending::Stopped,
            |report| report.duty_pct = 10,
            |report| report.forced = true,
            |report| report.environment.company = "process 7 computes".to_owned(),
            |report| report.checks[0].passed = false,
            |report| report.verdict.level = Level::Failed,
            |report| report.target.gpus[0].uuid.clear(),
            |report| report.inputs.put("mib", Value::Number(16.0)),
            |report| report.probe = "gemm".to_owned(),
        ];
        for (place, spoil) in spoilt.into_iter().enumerate() {
            let mut report = good();
            spoil(&mut report);
            assert_eq!(dram(&report), None, "{place}");
        }
    }
}
