//! How far a probe is: equal steps, each of about the same time. And the loop that most steps are.
//!
//! It must not know what a step measures. Invariant: a step that is repeated says every measurement, rests as the duty
//! cycle asks, and hears when it shall stop.

use super::{Failure, Link};

/// Measurements of a step, at least: a median with a spread needs that many.
const LEAST: usize = 5;

/// Steps of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    steps: usize,
    done: usize,
    seconds: f64,
}

/// What a step repeats: the name of its measurements and their unit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Series<'a> {
    /// Name of the measurements, which is that of the figure.
    pub(super) id: &'a str,
    /// Their unit.
    pub(super) unit: &'a str,
    /// What is being done, for the one who waits.
    pub(super) what: &'a str,
}

impl Plan {
    /// For so many steps of about `seconds` of work each.
    pub(super) const fn new(steps: usize, seconds: f64) -> Self {
        Self { steps, done: 0, seconds }
    }

    /// Time of work for each step, s.
    pub(super) const fn seconds(&self) -> f64 {
        self.seconds
    }

    /// Says that `share` of the step now at hand is done.
    ///
    /// # Errors
    /// [`Failure::Stopped`], to be handed on with `?`.
    pub(super) fn tell(&self, link: &mut Link, share: f64, what: &str) -> Result<(), Failure> {
        let all = self.steps.max(1) as f64;
        let done = (self.done as f64 + share.clamp(0.0, 1.0)).min(all) / all;
        link.progress(done, Some((1.0 - done) * all * self.seconds / link.duty()), what)
    }

    /// The step now at hand is done.
    pub(super) const fn step(&mut self) {
        self.done += 1;
    }

    /// Repeats `pass` for the time of a step, after one that does not count. A pass returns its measurement and how
    /// long it kept the target busy, µs; a pass should take at least some tenths of a ms.
    ///
    /// # Errors
    /// Those of `pass`, or to stop.
    pub(super) fn repeat(
        &mut self,
        link: &mut Link,
        series: Series<'_>,
        mut pass: impl FnMut() -> Result<(f64, f64), Failure>,
    ) -> Result<Vec<f64>, Failure> {
        self.tell(link, 0.0, series.what)?;
        let (_, busy_us) = pass()?;
        link.rest(busy_us as u64)?;
        let (mut values, mut spent) = (Vec::new(), 0.0);
        while values.len() < LEAST || spent < self.seconds * 1e6 {
            let (value, busy_us) = pass()?;
            values.push(value);
            link.sample(series.id, series.unit, value)?;
            spent += busy_us.max(1.0);
            self.tell(link, spent / 1e6 / self.seconds, series.what)?;
            link.rest(busy_us as u64)?;
        }
        self.step();
        Ok(values)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::SystemClock;
    use crate::probe::protocol::Request;
    use crate::probe::protocol::tests::request;

    #[test]
    fn every_pass_is_rested_after_and_the_first_does_not_count() {
        let request = Request { duty_pct: 50, ..request("hbm") };
        let mut link = Link::new(request, Arc::new(SystemClock::start()), Arc::default(), Box::new(std::io::sink()));
        let (mut plan, mut passes) = (Plan::new(1, 0.0), 0.0);
        let began = link.micros();
        let values = plan.repeat(&mut link, Series { id: "a", unit: "s", what: "a" }, || {
            passes += 1.0;
            Ok((passes, 30_000.0))
        });
        assert_eq!(values, Ok(vec![2.0, 3.0, 4.0, 5.0, 6.0]));
        // Half of the time: as long as each of the six took.
        assert!(link.micros() - began >= 6 * 30_000, "{} µs", link.micros() - began);
    }
}
