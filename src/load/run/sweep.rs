//! All levels of a sweep, one after the other, and why not all of them were measured.

use std::io;
use std::rc::Rc;

use crate::load::exchange::Transport;
use crate::load::level::{Level, Load, State};
use crate::load::plan::{Shape, Span};
use crate::load::{Said, Swept};

use super::conduct::{Over, level};
use super::order::{Leg, legs};
use super::progress::Progress;
use super::site::Site;

/// Runs the levels of the plan; the knee and the facts are the caller's to add.
///
/// # Errors
/// When the system gives no timer.
pub(super) async fn sweep<T: Transport>(site: &Rc<Site<T>>) -> io::Result<Swept> {
    let legs = legs(&site.plan);
    let mut progress = Progress::new(legs.clone(), site.now() as f64 / 1e6);
    for (place, leg) in (0..).zip(&legs) {
        let planned = Level { place, repeat: leg.repeat, load: leg.load, state: State::Planned, ..Level::default() };
        (site.say)(Said::Level(Box::new(planned)));
    }
    let mut swept = Swept::default();
    let mut left_out = Vec::new();
    for ((i, leg), place) in legs.iter().enumerate().zip(0..) {
        if is_beyond(&swept.levels, *leg) {
            left_out.push(leg.load.to_string());
            progress.end(&site.plan, 0.0, None);
            continue;
        }
        if let Some(words) = no_use(site, &swept.levels) {
            swept.ended_early = unmeasured(&words, legs.len() - i);
            break;
        }
        let start = site.now();
        let Over { level, cut } = level(site, *leg, place, &mut progress).await?;
        progress.end(&site.plan, site.now().saturating_sub(start) as f64 / 1e6, site.took_s.get());
        let ends = matches!(level.state, State::Failing | State::OutOfBudget | State::Stopped);
        swept.levels.push(level);
        if let Some(cut) = cut.filter(|_| ends) {
            swept.ended_early = unmeasured(&cut.words, legs.len() - i - 1);
            break;
        }
    }
    if !left_out.is_empty() {
        let words = format!("more came than was served, so higher rates were left out: {}", left_out.join(", "));
        if swept.ended_early.is_empty() {
            swept.ended_early.clone_from(&words);
        }
        swept.notes.push(words);
    }
    Ok(swept)
}

/// Whether a lower rate of the same round was more than was served.
fn is_beyond(levels: &[Level], leg: Leg) -> bool {
    let Load::RequestsPerS(rate) = leg.load else { return false };
    levels.iter().any(|level| {
        let is_lower = matches!(level.load, Load::RequestsPerS(lower) if lower <= rate);
        is_lower && level.repeat == leg.repeat && level.state == State::OverSaturated
    })
}

/// Why another level would come to nothing: it would be cut before it had the least that it needs.
fn no_use<T: Transport>(site: &Site<T>, levels: &[Level]) -> Option<String> {
    if site.is_stopped() {
        return Some("it was told to stop".to_owned());
    }
    let left = site.purse.borrow().deadline().saturating_sub(site.now()) as f64 / 1e6;
    let needed = match (site.plan.span, &site.plan.shape) {
        (Span::Time { warmup_s, least_s, .. }, Shape::Closed(_) | Shape::Constant(_) | Shape::Poisson(_)) => {
            warmup_s + least_s
        }
        _ => 0.0,
    };
    let is_short = left <= 0.0 || !levels.is_empty() && left < needed;
    is_short.then(|| site.purse.borrow().no_time())
}

/// Why it ended, and what was not measured for it.
fn unmeasured(why: &str, levels: usize) -> String {
    match levels {
        0 => why.to_owned(),
        1 => format!("{why}; 1 level was not measured"),
        levels => format!("{why}; {levels} levels were not measured"),
    }
}
