//! A load sweep: what an endpoint's clients wait for at each level of load, up to where more load gives no more.
//!
//! Owns the parameters of a sweep and what its levels come to; the load itself is `crate::load`'s. It must not know what
//! server and GPUs did meanwhile: the parent reads that and adds it to each level. Invariants: only the endpoint that was
//! sealed for this run is asked; every level is said as it grows, so that one that is broken off leaves what it measured;
//! a sweep is compared with another one and judged by no reference.

mod outcome;
mod params;
mod text;

use std::sync::atomic::Ordering;

use super::protocol::{MAX_LINE, MAX_SLICES, Message};
use super::spec::counted;
use super::{Failure, Link, Needs, Outcome, Params, Probe, ProbeSpec};
use crate::load::{self, Level, LoadError, Said, Setup};

pub(super) use params::cost_with_files;

/// Its name.
pub(super) const ID: &str = "sweep";

pub(super) const PROBE: Probe = Probe { spec: SPEC, run };

const SPEC: ProbeSpec = ProbeSpec {
    id: ID,
    key: 'c',
    name: "load sweep",
    help: "Loads a serving engine with more and more users, or requests a second, and measures what a client sees: TTFT, \
           ITL, TPOT and E2E with intervals, throughput, goodput, and the knee, beside what server and GPUs did. It costs \
           tokens, and whoever else uses that server waits for it.",
    needs: Needs::Endpoint,
    params: params::TABLE,
    cost: params::cost,
    // Two requests are two measurements: other prompts, and another server may have come to the same address.
    cool_ms: 0,
    headline: outcome::OUTPUT,
    hidden: false,
};

fn run(link: &mut Link, params: &Params) -> Result<Outcome, Failure> {
    link.progress(0.0, None, "asking the endpoint what it serves")?;
    let failed = |why: &str| Failure::Failed(why.to_owned());
    let url =
        link.target().endpoint.clone().ok_or_else(|| failed("it was given no endpoint: name one with --engine"))?;
    let opened = link.take_sealed().and_then(|sealed| sealed.open(&url));
    let (endpoint, authorities) = opened.ok_or_else(|| failed("what opens the endpoint did not come: run it again"))?;
    if !endpoint.is_local() && !params.flag(params::REMOTE) {
        return Err(Failure::Failed(format!("{url} may be on another host: --remote allows that")));
    }
    // As many bits as a number in JSON keeps.
    let fresh = (link.clock().now().0 ^ u64::from(std::process::id()) << 32) & params::MOST_SEED;
    let seed = Some(params.number("seed") as u64).filter(|&seed| seed > 0).unwrap_or(fresh);
    let (plan, left_out) = params::plan(params, seed).map_err(Failure::Failed)?;
    let setup = Setup { endpoint, authorities, clock: link.clock(), stop: link.stop_flag() };
    let swept = load::run(&plan, &setup, |said| hear(link, said)).map_err(|error| match error {
        LoadError::Stopped => Failure::Stopped,
        LoadError::Endpoint(why) | LoadError::System(why) => Failure::Failed(why),
    })?;
    // As they ended; what was said while they ran may be a second old.
    for level in &swept.levels {
        say(link, level.clone());
    }
    link.check()?;
    let mut outcome = outcome::of(&plan, swept);
    if left_out > 0 {
        let rows = counted(left_out as u64, "row");
        outcome.notes.push(format!("left out of the trace, for want of a prompt or an output: {rows}"));
    }
    Ok(outcome)
}

/// Hands on what is heard of the sweep. When nobody listens any more, it ends.
fn hear(link: &mut Link, said: Said) {
    match said {
        Said::Progress { done, eta_s, what } => {
            if link.progress(done, eta_s, &what).is_err() {
                link.stop_flag().store(true, Ordering::Release);
            }
        }
        Said::Level(level) => say(link, *level),
    }
}

fn say(link: &mut Link, level: Level) {
    if link.say(&Message::Level(Box::new(fitting(level)))).is_err() {
        link.stop_flag().store(true, Ordering::Release);
    }
}

/// A level that fits into a line: of a very long one the map keeps the end.
fn fitting(mut level: Level) -> Level {
    const ROOM: usize = MAX_LINE / 8 * 7;
    let all = level.slices.len();
    level.slices.drain(..all.saturating_sub(MAX_SLICES));
    while !level.slices.is_empty() && serde_json::to_vec(&level).is_ok_and(|line| line.len() > ROOM) {
        level.slices.drain(..level.slices.len().div_ceil(2));
    }
    let left_out = all - level.slices.len();
    if left_out > 0 {
        level.notes.push(format!("the map leaves out the first {left_out} of its {all} pieces: there were too many"));
    }
    level
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::level::Slice;

    #[test]
    fn a_level_fits_into_a_line_and_says_what_it_leaves_out() {
        let full = |n: u16| (0..n).map(|bucket| (bucket, u32::MAX)).collect::<Vec<_>>();
        let slice = |n| Slice { ttft: full(n), itl: full(n), tpot: full(n), e2e: full(n), ..Slice::default() };
        let level = |slices, n| Level { slices: vec![slice(n); slices], ..Level::default() };
        assert_eq!(fitting(level(MAX_SLICES, 10)), level(MAX_SLICES, 10));
        for long in [level(MAX_SLICES + 7, 1), level(MAX_SLICES, 220)] {
            let all = long.slices.len();
            let fitted = fitting(long);
            assert!(serde_json::to_vec(&fitted).unwrap().len() < MAX_LINE && fitted.slices.len() <= MAX_SLICES);
            assert!(fitted.notes[0].contains(&format!("the first {} of its {all}", all - fitted.slices.len())));
        }
    }
}
