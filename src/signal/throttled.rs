//! Clocks held down by power or heat, from the driver's exact account of time.
//!
//! It must not know which wall that makes. Invariant: a reason that is not counted is not judged.

use std::borrow::Cow;

use crate::derive::throttle::{Reason, Throttled};
use crate::derive::wall::{HELD_CLOCK, HELD_MS};
use crate::model::{Metric, Subject};
use crate::store::{Data, Window};

use super::{Detector, Finding, Level, gpu_label, part};

pub(super) const DETECTOR: Detector = Detector {
    id: "throttled",
    help: "Time in which a power cap or heat held the clocks down. Watch from 5 % of the time; act when it is \
           most of the time and costs more than an eighth of the clock, and for heat and power brake always.",
    judge,
};

/// Share of the window from which it is worth a word.
const NOTABLE: f64 = 0.05;

const POWER: &str = "The board is at its power limit. Where that is below the board's maximum (nvidia-smi -q -d POWER), \
                     raise it; else expect this clock, or spread the load over more GPUs.";
const HEAT: &str = "Heat slows the clocks: check airflow, fans and inlet temperature.";
const BRAKE: &str = "The chassis pulls the power brake: check power supplies and their redundancy.";

fn judge(data: &Data, window: Window) -> Vec<Finding> {
    data.gpus().filter_map(|gpu| of_gpu(data, gpu, window)).collect()
}

fn of_gpu(data: &Data, gpu: u8, window: Window) -> Option<Finding> {
    let throttled = Throttled::over(data, gpu, window);
    throttled.at_least().value()?;
    let label = gpu_label(data, gpu);
    let Some((reason, share)) = throttled.dominant().filter(|held| held.1 >= NOTABLE) else {
        let evidence = "not throttled".to_owned();
        return Some(Finding { level: Level::Ok, label, evidence, advice: Cow::Borrowed("") });
    };
    let clock = data.mean(Subject::Gpu(gpu), Metric::SmClock, window);
    let max = data.latest(Subject::Gpu(gpu), Metric::SmClockMax, window.end).reading;
    let clock_share = clock.value().zip(max.value()).map(|(clock, max)| clock / max);
    let advice = advice(reason);
    let slow = share * 1000.0 >= HELD_MS && clock_share.is_some_and(|share| share <= HELD_CLOCK);
    let level = if slow || advice != POWER { Level::Act } else { Level::Watch };
    let clock = part(clock, |clock| {
        let of_max = part(max, |max| format!(" of {max:.0}"));
        format!(", SM clock {clock:.0}{of_max} MHz")
    });
    let evidence = format!("{} {:.0} % of the time{clock}", reason.word, share * 100.0);
    Some(Finding { level, label, evidence, advice: advice.into() })
}

const fn advice(reason: &Reason) -> &'static str {
    match reason.counter {
        Some(Metric::ThrottledSwThermal | Metric::ThrottledHwThermal) => HEAT,
        Some(Metric::ThrottledPowerBrake) => BRAKE,
        _ => POWER,
    }
}
