//! Clocks that are held down: heat, power brake, the card's own cap and another one; and faults of a GPU.

use crate::diagnosis::tests::machine::Machine;
use crate::diagnosis::{Cause, Severity};
use crate::model::{Metric, Subject};

fn with(figures: &[(Metric, f64)]) -> Machine {
    let mut machine = Machine::serving();
    machine.set(0, figures).run(12);
    machine
}

/// The cap's bit of the clocks event reasons, as a DCGM exporter gives it.
const CAP_BIT: (Metric, f64) = (Metric::ThrottleReasons, 4.0);

#[test]
fn a_cap_far_below_the_card_s_limit_is_not_that_limit() {
    // l4rz/reverse-engineering-dell-idrac: an A100 (400 W) held at 240 W by its chassis.
    let clocks = [CAP_BIT, (Metric::PowerLimit, 400.0), (Metric::SmClockMax, 1410.0)];
    let found = with(&[&clocks[..], &[(Metric::Power, 240.0), (Metric::SmClock, 960.0)]].concat());
    let cap = found.finds(Cause::PowerCap).unwrap();
    assert_eq!(cap.severity, Severity::Act);
    assert!(
        cap.headline.full.contains("at 240 W, 60 % of the card's 400 W: another limit acts"),
        "{}",
        cap.headline.full
    );
    assert!(cap.fixes[0].text.full.contains("chassis"));
    // At its own limit, the clock at 91 %: what every busy card does.
    let full = [(Metric::SmActive, 93.0), (Metric::DramActive, 30.0), (Metric::TensorActive, 55.0)];
    let own = with(&[&clocks[..], &full, &[(Metric::Power, 398.0), (Metric::SmClock, 1290.0)]].concat());
    assert_eq!(own.finds(Cause::PowerCap).unwrap().severity, Severity::Watch);
    assert_eq!(own.diagnosis().severity(), Severity::Watch);
}

#[test]
fn heat_and_the_power_brake_ask_for_action() {
    let slow = (Metric::SmClock, 1500.0);
    for (metric, cause) in [
        (Metric::ThrottledHwThermal, Cause::Heat),
        (Metric::ThrottledSwThermal, Cause::Heat),
        (Metric::ThrottledPowerBrake, Cause::PowerBrake),
    ] {
        let found = with(&[(metric, 900.0), slow]).finds(cause).unwrap();
        assert_eq!((found.severity, found.subject), (Severity::Act, Subject::Gpu(0)), "{metric:?}");
        assert!(found.headline.full.contains("24 % of the clock is missing"), "{}", found.headline.full);
        assert!(with(&[(metric, 30.0), slow]).finds(cause).is_none(), "3 % of the time");
    }
}

#[test]
fn an_idle_clock_is_not_a_throttled_one() {
    let mut machine = Machine::serving();
    machine.freeze().engine(&[(Metric::RequestsRunning, 0.0)]);
    let idle =
        [(Metric::SmActive, 0.0), (Metric::DramActive, 0.0), (Metric::UtilGpuTime, 0.0), (Metric::SmClock, 345.0)];
    machine.set(0, &idle).set(0, &[(Metric::ThrottledPowerCap, 1000.0), (Metric::ThrottledHwThermal, 1000.0)]);
    assert_eq!(machine.run(12).first(), Some((Cause::Idle, Severity::Ok)));
    assert!(machine.finds(Cause::PowerCap).is_none() && machine.finds(Cause::Heat).is_none());
}

#[test]
fn faults_of_a_gpu_are_told_while_they_are_new() {
    let mut machine = Machine::serving();
    machine.set(0, &[(Metric::EccUncorrected, 3.0), (Metric::XidErrors, 0.0), (Metric::RemapPending, 0.0)]);
    assert!(machine.run(12).finds(Cause::GpuFault).is_none(), "errors from before");
    machine.set(0, &[(Metric::EccUncorrected, 5.0)]);
    let found = machine.run(6).finds(Cause::GpuFault).unwrap();
    assert_eq!(found.severity, Severity::Act);
    assert!(found.headline.full.contains("2 new uncorrected memory errors"), "{}", found.headline.full);
    assert_eq!(with(&[(Metric::XidErrors, 1.0)]).finds(Cause::GpuFault).unwrap().severity, Severity::Act);
    assert_eq!(with(&[(Metric::RemapPending, 1.0)]).finds(Cause::GpuFault).unwrap().severity, Severity::Watch);
}
