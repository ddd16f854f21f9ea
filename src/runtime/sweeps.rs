//! The levels of the sweep that runs: kept as they grow, with what server and GPUs did meanwhile beside them.
//!
//! It must not know how a level is measured. Invariants: a level that is said again replaces what was said of it before;
//! at most [`MAX_LEVELS`] are kept; what was read is added until some time after a level's end, since readings come late.

use std::sync::Arc;

use crate::load::Level;
use crate::load::level::State;
use crate::model::Time;
use crate::probe::board::Sweep;
use crate::probe::life::Ask;
use crate::probe::protocol::MAX_LEVELS;

/// How long after the end of a level readings of it may still come, ms: energy is read each 10 s, engines each second.
const LATE_MS: u64 = 30_000;

/// The levels so far.
#[derive(Debug, Default)]
pub(super) struct Levels(Vec<Level>);

impl Levels {
    /// Takes in what was said of a level.
    pub(super) fn take(&mut self, level: Level) {
        let key = |level: &Level| (level.place, level.repeat);
        match self.0.binary_search_by_key(&key(&level), key) {
            Ok(place) => {
                let there = &mut self.0[place];
                // What was read is nothing that a child says, and it stays: of a level long over nothing more comes.
                let (server, gpus, bottleneck) =
                    (there.server.take(), std::mem::take(&mut there.gpus), there.bottleneck.take());
                *there = Level { server, gpus, bottleneck, ..level };
            }
            Err(place) if self.0.len() < MAX_LEVELS => self.0.insert(place, level),
            Err(_) => {}
        }
    }

    /// Has `attach` add what was read of each level that is measured or has just been.
    pub(super) fn attach(&mut self, now: Time, attach: impl FnMut(&mut Level)) {
        let late = |level: &Level| level.state.is_over() && now.since(Time(level.ended_unix_ms)) > LATE_MS;
        let measured = |level: &&mut Level| level.from_unix_ms > 0 && level.state != State::WarmingUp && !late(level);
        self.0.iter_mut().filter(measured).for_each(attach);
    }

    /// For the screen.
    pub(super) fn sweep(&self, ask: &Ask) -> Option<Sweep> {
        let endpoint = ask.target.endpoint.as_deref()?.into();
        let levels = Arc::new(self.0.clone());
        Some(Sweep { run: Arc::clone(&ask.run), endpoint, levels, knee: None, runs: true })
    }

    /// Those that began, for the report; the one that was under way when the run was stopped says so. The others are for
    /// the screen alone: nothing was measured of them.
    pub(super) fn end(mut self, stopped: bool) -> Vec<Level> {
        self.0.retain(|level| level.state.is_over() || level.started_unix_ms > 0);
        for level in self.0.iter_mut().filter(|level| stopped && !level.state.is_over()) {
            level.state = State::Stopped;
        }
        self.0
    }

    /// Whether there is none.
    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::level::Server;

    fn level(place: u32, repeat: u32, state: State, ended_unix_ms: u64) -> Level {
        Level { place, repeat, state, started_unix_ms: 1, from_unix_ms: 1, ended_unix_ms, ..Level::default() }
    }

    #[test]
    fn a_level_replaces_what_was_said_of_it_and_they_stay_in_order_and_in_bounds() {
        let mut levels = Levels::default();
        for (place, repeat) in [(1, 0), (0, 1), (0, 0), (1, 0)] {
            levels.take(level(place, repeat, State::Measuring, 0));
        }
        levels.take(level(1, 0, State::Done, 5));
        let order: Vec<_> = levels.0.iter().map(|l| (l.place, l.repeat, l.state.is_over())).collect();
        assert_eq!(order, [(0, 0, false), (0, 1, false), (1, 0, true)]);
        (2..1_000).for_each(|place| levels.take(level(place, 0, State::Measuring, 0)));
        assert_eq!(levels.0.len(), MAX_LEVELS);
    }

    #[test]
    fn readings_are_added_while_a_level_is_measured_and_some_time_after() {
        let now = Time(100_000);
        let mut levels = Levels::default();
        levels.take(level(0, 0, State::Done, 100_000 - LATE_MS - 1));
        levels.take(level(1, 0, State::Done, 100_000 - LATE_MS));
        levels.take(level(2, 0, State::Measuring, 0));
        levels.take(level(3, 0, State::WarmingUp, 0));
        levels.attach(now, |level| level.server = Some(Server::default()));
        let attached: Vec<_> = levels.0.iter().map(|level| level.server.is_some()).collect();
        assert_eq!(attached, [false, true, true, false]);
    }

    #[test]
    fn what_was_read_of_a_level_stays_when_it_is_said_again_long_after_its_end() {
        let mut levels = Levels::default();
        levels.take(level(0, 0, State::Done, 1_000));
        levels.attach(Time(1_000), |level| level.server = Some(Server::default()));
        levels.take(level(0, 0, State::Done, 1_000));
        levels.attach(Time(1_000 + 2 * LATE_MS), |level| level.server = None);
        assert!(levels.0[0].server.is_some());
    }

    #[test]
    fn what_was_under_way_when_the_run_was_stopped_says_so() {
        let states = |stopped| {
            let mut levels = Levels::default();
            levels.take(level(0, 0, State::Done, 5));
            levels.take(level(1, 0, State::Measuring, 0));
            levels.end(stopped).iter().map(|level| level.state).collect::<Vec<_>>()
        };
        let mut levels = Levels::default();
        levels.take(level(0, 0, State::Done, 5));
        levels.take(Level { place: 1, ..Level::default() });
        assert_eq!((levels.0.len(), levels.end(true).len()), (2, 1), "one that never began is for the screen alone");
        assert_eq!(states(true), [State::Done, State::Stopped]);
        assert_eq!(states(false), [State::Done, State::Measuring], "a client that died has not been told to");
    }
}
