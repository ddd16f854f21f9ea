//! Clocks that are held down while work runs: heat, power brake, power cap.
//!
//! A cap that takes clock is what every busy GPU at its limit has: it costs throughput and asks for a look. It asks for action
//! where the draw is far below the card's own limit, since then something else caps it (chassis, supply), and so do heat
//! and the power brake, which have a remedy. Where time is not counted (DCGM exporters, older drivers) the bits of the
//! readings are judged, and the evidence says so.

use super::super::scene::{GpuScene, Scene};
use super::super::{Cause, Finding, Fix, Sentence, Severity};
use super::Rule;
use crate::derive::throttle::{HW_POWER_BRAKE, HW_THERMAL, SW_POWER_CAP, SW_THERMAL, ThrottledBy};
use crate::model::Subject;

pub(super) const RULE: Rule = Rule { causes: &[Cause::Heat, Cause::PowerBrake, Cause::PowerCap], judge };

/// Share of the working time that heat or brake have to hold.
const HELD: f64 = 0.05;
/// The same of the power cap.
const CAPPED: f64 = 0.33;
/// Share of the clock that the cap has to take.
const LEAST_LOSS: f64 = 0.05;
/// Share of the clock from which on the cap costs clients something worth a look where the SMs are not
/// the limit: an eighth. A GPU that is well used loses some.
const COSTS: f64 = 0.125;
/// Draw against the limit below which it is not this limit that acts.
const FAR_BELOW: f64 = 0.8;
/// Loss of clock from which on a cap that is not the card's own asks for action: an eighth.
const HARMS: f64 = 0.125;
/// Share of the time that has to be work, for a held clock to matter.
const WORKS: f64 = 0.2;

fn judge(scene: &Scene<'_>, findings: &mut Vec<Finding>) {
    for gpu in scene.gpus.iter().filter(|gpu| gpu.busy.is_some_and(|busy| busy >= WORKS)) {
        findings.extend(heat(gpu));
        findings.extend(brake(gpu));
        findings.extend(power_cap(gpu));
    }
}

fn clocked(finding: Finding, gpu: &GpuScene, held: f64) -> Finding {
    let finding = match gpu.held_from {
        ThrottledBy::Counters => finding.shows(("throttled_ms_per_s", "ms/s", "nvml"), Some(held * 1000.0), |ms| {
            format!("held down {:.0} % of the working time", ms / 10.0)
        }),
        ThrottledBy::Bits => finding.shows(("throttle_reasons", "%", "bits"), Some(held * 100.0), |share| {
            format!("its bit is set in {share:.0} % of the readings while work runs; the time is not counted here")
        }),
    };
    finding
        .shows(("sm_clock_mhz", "MHz", "nvml"), gpu.clock, |mhz| match gpu.clock_max {
            Some(max) => format!("SM clock {mhz:.0} of {max:.0} MHz while work runs"),
            None => format!("SM clock {mhz:.0} MHz while work runs"),
        })
        .shows(("power_w", "W", "nvml"), gpu.power, |watts| match gpu.power_limit {
            Some(limit) => format!("{watts:.0} W of {limit:.0} W"),
            None => format!("{watts:.0} W"),
        })
        .shows(("temp_c", "°C", "nvml"), gpu.temp, |celsius| format!("{celsius:.0} °C"))
}

fn heat(gpu: &GpuScene) -> Option<Finding> {
    let held = gpu.held_by(HW_THERMAL | SW_THERMAL);
    if held < HELD {
        return None;
    }
    let loss = gpu.clock_loss().unwrap_or(0.0);
    let words = Sentence::new(
        format!("heat holds {} down: {:.0} % of the clock is missing", gpu.label(), loss * 100.0),
        format!("heat takes {:.0} % of the clock", loss * 100.0),
    );
    let severity = if loss >= LEAST_LOSS { Severity::Act } else { Severity::Watch };
    Some(clocked(Finding::new(Subject::Gpu(gpu.index), Cause::Heat, severity, loss.max(0.1), words), gpu, held).fix(
        Fix::todo("Look at fans, air flow and the temperature of the air or coolant that comes in", "check cooling"),
    ))
}

fn brake(gpu: &GpuScene) -> Option<Finding> {
    let held = gpu.held_by(HW_POWER_BRAKE);
    if held < HELD {
        return None;
    }
    let loss = gpu.clock_loss().unwrap_or(0.0);
    let words = Sentence::new(
        format!("the external power brake holds {} down: {:.0} % of the clock is missing", gpu.label(), loss * 100.0),
        format!("power brake takes {:.0} %", loss * 100.0),
    );
    Some(clocked(Finding::new(Subject::Gpu(gpu.index), Cause::PowerBrake, Severity::Act, loss.max(0.1), words), gpu, held).fix(
        Fix::todo("Look at the power supplies, their cables and the rack's power budget: the brake is a signal from outside the card", "check power supplies"),
    ))
}

fn power_cap(gpu: &GpuScene) -> Option<Finding> {
    let (held, loss) = (gpu.held_by(SW_POWER_CAP), gpu.clock_loss()?);
    if held < CAPPED || loss < LEAST_LOSS {
        return None;
    }
    let draw = gpu.power.zip(gpu.power_limit).filter(|(_, limit)| *limit > 0.0);
    let foreign = draw.filter(|(power, limit)| power / limit < FAR_BELOW && loss >= HARMS);
    let label = gpu.label();
    let words = match foreign {
        Some((power, limit)) => Sentence::new(
            format!(
                "the power cap takes {:.0} % of the clock of {label} at {power:.0} W, {:.0} % of the card's {limit:.0} W: another limit acts",
                loss * 100.0,
                power / limit * 100.0
            ),
            format!("capped at {power:.0} of {limit:.0} W"),
        ),
        None => Sentence::new(
            format!("the power cap takes {:.0} % of the clock of {label}", loss * 100.0),
            format!("power cap takes {:.0} % of the clock", loss * 100.0),
        ),
    };
    // Memory has a clock of its own, which the cap leaves alone.
    let severity = match foreign {
        Some(_) => Severity::Act,
        // Where the SMs are the limit, each percent of their clock is one of throughput.
        None if gpu.is_compute_bound() || loss >= COSTS && !gpu.is_memory_bound() => Severity::Watch,
        None => Severity::Ok,
    };
    let cost = if severity == Severity::Ok { 0.0 } else { loss };
    let finding = clocked(Finding::new(Subject::Gpu(gpu.index), Cause::PowerCap, severity, cost, words), gpu, held);
    Some(match foreign {
        Some(_) => finding.fix(Fix::todo(
            "Look at the limits of the chassis, the power supplies and the module (BMC, cables): a higher limit of the driver does not help",
            "check chassis and power supply",
        )),
        None => finding
            .fix(Fix::todo("Nothing to mend where this is the card's own limit: fewer tokens to compute (prefix cache, smaller prompts, lower precision) bring the clock back", "fewer prompt tokens, or more GPUs"))
            .fix(Fix::todo("Measure what the card keeps up at its limit", "measure it").probe("soak")),
    })
}
