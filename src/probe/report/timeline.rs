//! A GPU over a run, step by step, and what that says about the moments that a probe names.
//!
//! Pure. It must not know where the readings come from. Invariants: what was not read is missing, and a moment about
//! which nothing was read is explained by nothing.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::GpuEnvironment;
use crate::probe::page::cell;
use crate::probe::protocol::{Better, Figure};

/// Names of the reasons that are heat, as NVML and the reports have them.
const HEAT: [&str; 2] = ["hw_thermal_slowdown", "sw_thermal_slowdown"];

/// The moment from which a probe loads the GPU.
pub const LOAD: &str = "load";
/// The moment from which the rate is lower for good.
pub const ONSET: &str = "onset";
/// The moment from which the probe leaves the GPU alone.
pub const REST: &str = "rest";
/// How long before and after the onset throttled time is compared, s.
const AROUND_S: f64 = 3.0;
/// A GPU has cooled down when it is this close to its temperature before, °C.
const COOL_C: f64 = 3.0;
/// Rows of the table, about.
const ROWS: usize = 16;

/// Readings of a run in steps of equal length; each is the mean of its step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Steps {
    /// Length of a step, s.
    pub step_s: f64,
    /// SM clock, MHz.
    pub sm_clock_mhz: Vec<Option<f64>>,
    /// Temperature of the die, °C.
    pub temp_c: Vec<Option<f64>>,
    /// Board power, W.
    pub power_w: Vec<Option<f64>>,
    /// Time within the step that each reason held the clocks down, ms.
    pub throttled_ms: BTreeMap<String, Vec<Option<f64>>>,
}

impl Steps {
    /// The steps that lie between two times, by their number.
    fn steps(&self, from_s: f64, to_s: f64) -> std::ops::Range<usize> {
        if self.step_s > 0.0 {
            let step = |s: f64| (s / self.step_s).round().max(0.0) as usize;
            step(from_s)..step(to_s).min(self.temp_c.len())
        } else {
            0..0
        }
    }

    /// How long a reason held between two times, ms; `None` when that was not read.
    fn held(&self, reason: &str, from_s: f64, to_s: f64) -> Option<f64> {
        let steps = self.throttled_ms.get(reason)?.get(self.steps(from_s, to_s))?;
        steps.iter().flatten().copied().reduce(|sum, ms| sum + ms)
    }

    /// The reason whose time grew most from before this moment to after it: with the growth and what it held after, ms.
    fn grew(&self, at_s: f64) -> Option<(&str, f64, f64)> {
        let each = self.throttled_ms.keys().filter_map(|reason| {
            let after = self.held(reason, at_s, at_s + AROUND_S)?;
            Some((reason.as_str(), after - self.held(reason, at_s - AROUND_S, at_s).unwrap_or(0.0), after))
        });
        each.max_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// How long after `from_s` the temperature was down to `temp`, s; or what it was in the end.
    fn cooled(&self, from_s: f64, temp: f64) -> Option<Result<f64, f64>> {
        let steps = self.steps(from_s, f64::MAX);
        let start = steps.start;
        let after = self.temp_c.get(steps)?;
        let reached = after.iter().position(|step| step.is_some_and(|step| step <= temp));
        match reached {
            // By the end of its step.
            Some(step) => Some(Ok(((start + step + 1) as f64).mul_add(self.step_s, -from_s))),
            None => after.iter().flatten().next_back().map(|last| Err(*last)),
        }
    }

    /// A few rows of it, for a page; nothing when nothing was read.
    pub fn table(&self, index: u8) -> String {
        let mut out = String::new();
        let steps = self.temp_c.len();
        if self.temp_c.iter().chain(&self.sm_clock_mhz).chain(&self.power_w).all(Option::is_none) {
            return out;
        }
        let reasons: Vec<_> =
            self.throttled_ms.iter().filter(|(_, held)| held.iter().flatten().any(|ms| *ms > 0.0)).collect();
        let _ = write!(out, "| GPU {index}, s | SM clock, MHz | °C | W |");
        for (reason, _) in &reasons {
            let _ = write!(out, " {}, ms |", cell(&reason.replace('_', " ")));
        }
        let _ = writeln!(out, "\n| ---: | ---: | ---: | ---: |{}", " ---: |".repeat(reasons.len()));
        let number = |values: &[Option<f64>], step: usize| {
            values.get(step).copied().flatten().map_or_else(|| "–".to_owned(), |value| format!("{value:.0}"))
        };
        for step in (0..steps).step_by(steps.div_ceil(ROWS).max(1)) {
            let at = step as f64 * self.step_s;
            let [clock, temp, power] = [&self.sm_clock_mhz, &self.temp_c, &self.power_w].map(|of| number(of, step));
            let _ = write!(out, "| {at:.0} | {clock} | {temp} | {power} |");
            for (_, held) in &reasons {
                let _ = write!(out, " {} |", number(held, step));
            }
            out.push('\n');
        }
        out.push('\n');
        out
    }
}

/// What the readings say about the moments of a run.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Explained {
    /// Figures that only readings give.
    pub(super) figures: Vec<Figure>,
    /// What is to be known.
    pub(super) notes: Vec<String>,
    /// What is wrong and what to do.
    pub(super) advice: Vec<String>,
}

/// Says it.
pub(super) fn explain(moments: &BTreeMap<String, f64>, gpus: &[GpuEnvironment]) -> Explained {
    let Explained { mut figures, mut notes, mut advice } = Explained::default();
    for gpu in gpus {
        if let Some(at) = moments.get(ONSET) {
            notes.push(format!("GPU {}: {}", gpu.index, why(&gpu.timeline, *at)));
            let too_hot =
                gpu.timeline.grew(*at).is_some_and(|(reason, grown, _)| grown > 0.0 && HEAT.contains(&reason));
            advice.extend(too_hot.then(|| {
                let i = gpu.index;
                format!(
                    "GPU {i} is slowed by heat, not by its power limit: look at fans, filters and what stands beside it"
                )
            }));
        }
        if let (Some(rest), Some(before)) = (moments.get(REST), gpu.temp_c.before) {
            match gpu.timeline.cooled(*rest, before + COOL_C) {
                Some(Ok(seconds)) if figures.is_empty() => {
                    let figure = Figure::median("cool_down", "Cool-down", "s", Better::Neither, &[seconds]);
                    let how = format!("until the GPU was within {COOL_C:.0} °C of the {before:.0} °C before the run");
                    figures.extend(figure.map(|figure| figure.by(&how)));
                }
                Some(Err(last)) => notes.push(format!(
                    "GPU {}: it had not cooled down when the run ended: {last:.0} °C, {before:.0} °C before",
                    gpu.index
                )),
                _ => {}
            }
        }
    }
    Explained { figures, notes, advice }
}

/// What held the clocks down from this moment on, in words.
fn why(timeline: &Steps, at: f64) -> String {
    match timeline.grew(at) {
        Some((reason, grown, held)) if grown > 0.0 => format!(
            "{} held the clocks down from the onset on, {held:.0} ms of the {AROUND_S:.0} s after it",
            reason.replace('_', " ")
        ),
        Some(_) => "no reason that the driver counts began to hold the clocks down at the onset".to_owned(),
        None => "why the rate fell is not known: throttled time was not read around the onset".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 4 s idle, 6 s of load with the power cap from 5 s on and heat from 8 s on, then cooling.
    fn gpu() -> GpuEnvironment {
        let mut gpu = GpuEnvironment::default();
        gpu.temp_c.before = Some(30.0);
        gpu.timeline = Steps {
            step_s: 1.0,
            temp_c: [30, 30, 30, 30, 45, 55, 60, 63, 65, 66, 60, 50, 40, 33, 31].map(|c| Some(f64::from(c))).to_vec(),
            sm_clock_mhz: vec![Some(1_980.0); 15],
            power_w: vec![None; 15],
            throttled_ms: [
                ("sw_power_cap", [0, 0, 0, 0, 0, 900, 990, 1_000, 1_000, 1_000, 0, 0, 0, 0, 0]),
                ("sw_thermal_slowdown", [0, 0, 0, 0, 0, 0, 0, 0, 700, 800, 0, 0, 0, 0, 0]),
            ]
            .map(|(reason, held)| (reason.to_owned(), held.map(|ms| Some(f64::from(ms))).to_vec()))
            .into(),
        };
        gpu
    }

    fn at(moments: &[(&str, f64)], gpu: &GpuEnvironment) -> Explained {
        let moments = moments.iter().map(|(name, at)| ((*name).to_owned(), *at)).collect();
        explain(&moments, std::slice::from_ref(gpu))
    }

    #[test]
    fn the_reason_is_the_one_whose_time_grew() {
        let words = |onset| at(&[(ONSET, onset)], &gpu()).notes.join(" ");
        assert!(words(5.0).contains("GPU 0: sw power cap held the clocks down from the onset on, 2890 ms of the 3 s"));
        // The power cap held before as well: it is not what changed.
        assert!(words(8.0).contains("sw thermal slowdown held"), "{}", words(8.0));
        assert!(words(11.0).contains("no reason that the driver counts"), "{}", words(11.0));
        // At its power limit a GPU is as it should be; in the heat it is not.
        let advice = [5.0, 8.0, 11.0].map(|onset| at(&[(ONSET, onset)], &gpu()).advice.len());
        assert_eq!(advice, [0, 1, 0]);
    }

    #[test]
    fn what_was_not_read_explains_nothing() {
        let mut gpu = gpu();
        gpu.timeline.throttled_ms.values_mut().for_each(|held| held.fill(None));
        assert!(at(&[(ONSET, 5.0)], &gpu).notes[0].contains("is not known"));
        assert!(at(&[(ONSET, 5.0)], &GpuEnvironment::default()).notes[0].contains("is not known"));
        assert_eq!(at(&[(REST, 10.0)], &GpuEnvironment::default()), Explained::default());
        assert_eq!(at(&[], &gpu), Explained::default());
    }

    #[test]
    fn the_cool_down_ends_near_the_temperature_before() {
        let Explained { figures, notes, .. } = at(&[(REST, 10.0)], &gpu());
        // 33 °C, which is 3 more than before, in the step from 13 to 14 s.
        assert_eq!((figures[0].value, figures[0].id.as_str(), notes.len()), (4.0, "cool_down", 0));
        let mut hot = gpu();
        hot.timeline.temp_c.truncate(12);
        let Explained { figures, notes, .. } = at(&[(REST, 10.0)], &hot);
        assert!(figures.is_empty() && notes[0].contains("had not cooled down when the run ended: 50 °C, 30 °C before"));
    }

    #[test]
    fn the_table_is_short_and_leaves_out_what_never_held() {
        let mut gpu = gpu();
        gpu.timeline.throttled_ms.insert("sync_boost".to_owned(), vec![Some(0.0); 15]);
        let table = gpu.timeline.table(0);
        assert!(table.contains("| 5 | 1980 | 55 | – | 900 | 0 |") && !table.contains("sync boost"), "{table}");
        gpu.timeline.temp_c = vec![Some(30.0); 600];
        assert!(gpu.timeline.table(0).lines().count() < ROWS + 5);
        assert_eq!(Steps::default().table(0), "");
    }
}
