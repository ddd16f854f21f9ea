//! Which levels a plan has, in which order, and about how long each takes.

use crate::load::level::Load;
use crate::load::plan::{Order, Plan, Shape, Span};

/// A level that is to be measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Leg {
    /// Which repetition of its load it is, from 0.
    pub(super) repeat: u32,
    /// What sets the load.
    pub(super) load: Load,
}

/// The levels of a plan in the order in which they are measured: rounds, each of which holds every load once.
pub(super) fn legs(plan: &Plan) -> Vec<Leg> {
    let loads: Vec<Load> = match &plan.shape {
        Shape::Closed(users) => users.iter().map(|users| Load::Users(*users)).collect(),
        Shape::Constant(rates) | Shape::Poisson(rates) => rates.iter().map(|rate| Load::RequestsPerS(*rate)).collect(),
        Shape::Trace(_) => vec![Load::Trace],
    };
    // A trace is one level: what is random about it came with it.
    let rounds = if matches!(plan.shape, Shape::Trace(_)) { 1 } else { plan.repeats.max(1) };
    let mut random = fastrand::Rng::with_seed(plan.seed);
    let mut legs = Vec::new();
    for repeat in 0..rounds {
        let mut round = loads.clone();
        if plan.order == Order::Random {
            random.shuffle(&mut round);
        }
        legs.extend(round.into_iter().map(|load| Leg { repeat, load }));
    }
    legs
}

/// How many requests a level has; `None`: its time decides.
pub(super) fn requests(plan: &Plan) -> Option<u64> {
    match (&plan.shape, plan.span) {
        (Shape::Trace(arrivals), Span::Requests(most)) => Some(most.min(arrivals.len() as u64)),
        (Shape::Trace(arrivals), Span::Time { .. }) => Some(arrivals.len() as u64),
        (_, Span::Requests(most)) => Some(most),
        (_, Span::Time { .. }) => None,
    }
}

/// About how long a level takes, s, when a request takes `took_s`; `None`: that is not known and would decide.
pub(super) fn seconds(plan: &Plan, load: Load, took_s: Option<f64>) -> Option<f64> {
    // Requests that end in a second.
    let rate = match load {
        Load::Users(users) => took_s.filter(|took_s| *took_s > 0.0).map(|took_s| f64::from(users.max(1)) / took_s),
        Load::RequestsPerS(rate) => Some(rate),
        Load::Trace => None,
    };
    let last = took_s.unwrap_or(0.0);
    match (&plan.shape, requests(plan), plan.span) {
        (Shape::Trace(arrivals), ..) => Some(arrivals.iter().map(|a| a.at_s).fold(0.0, f64::max) + last),
        (_, Some(requests), _) => Some(requests as f64 / rate? + last),
        (_, None, Span::Time { warmup_s, least_s, samples, most_s }) => {
            let wanted = rate.map_or(0.0, |rate| samples as f64 / rate);
            Some(warmup_s + wanted.min(most_s).max(least_s) + last)
        }
        (_, None, Span::Requests(_)) => None,
    }
}
