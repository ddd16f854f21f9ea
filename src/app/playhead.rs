//! Where on the time axis the screen stands: following live data, held, or playing a recording.
//!
//! The same as-of view serves all three; only the way the right edge moves differs.

use crate::model::Time;

/// Where the data come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// This machine, now.
    Live,
    /// A recording that comes in through a pipe while it is made.
    Stream,
    /// A recording in a file, loaded as a whole.
    Recording,
    /// The embedded recording; it starts over at its end.
    Demo,
}

/// Speeds of a replay.
const SPEEDS: [f64; 9] = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0];
const NORMAL: usize = 2;

/// The right edge of the time axis and how it moves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Playhead {
    origin: Origin,
    /// Right edge of every plot.
    end: Time,
    moving: bool,
    speed: usize,
    /// Time of the last tick, of the machine's clock.
    now: Time,
    /// Oldest and newest data; `None` before there are any.
    extent: Option<(Time, Time)>,
    /// When the newest data came in.
    arrived: Time,
    /// Whether a recording has not been read far enough yet to be played from its start.
    starting: bool,
}

impl Playhead {
    /// Starts at `now`, moving.
    pub const fn new(origin: Origin, now: Time) -> Self {
        Self { origin, end: now, moving: true, speed: NORMAL, now, extent: None, arrived: now, starting: true }
    }

    /// Where the data come from.
    pub const fn origin(&self) -> Origin {
        self.origin
    }

    /// Right edge of every plot.
    pub const fn end(&self) -> Time {
        self.end
    }

    /// Whether the right edge moves on by itself.
    pub const fn moving(&self) -> bool {
        self.moving
    }

    /// Times normal speed; 1 where data come in live.
    pub fn speed(&self) -> f64 {
        SPEEDS[self.speed]
    }

    /// Whether the data are a recording that can be played at any speed.
    pub const fn plays(&self) -> bool {
        matches!(self.origin, Origin::Recording | Origin::Demo)
    }

    /// The latest moment that can be shown: now, or the end of the recording.
    pub fn edge(&self) -> Time {
        let newest = self.extent.map_or(self.now, |e| e.1);
        match self.origin {
            Origin::Live => self.now,
            // The sender's clock, carried on by ours: a stream that stalls grows old.
            Origin::Stream => newest + self.now.since(self.arrived),
            Origin::Recording | Origin::Demo => newest,
        }
    }

    /// The oldest moment there are data for.
    pub fn first(&self) -> Time {
        self.extent.map_or(self.end, |e| e.0)
    }

    /// Time passed: the clock says `now`, there are data from `extent.0` to `extent.1`, and more will
    /// come unless they are `complete`.
    pub fn tick(&mut self, now: Time, extent: Option<(Time, Time)>, complete: bool, span_ms: u64) {
        let passed = now.since(self.now);
        self.now = now;
        if extent.map(|e| e.1) != self.extent.map(|e| e.1) {
            self.arrived = now;
        }
        self.extent = extent;
        if self.origin == Origin::Stream && complete {
            // What came in is a recording now.
            (self.origin, self.starting) = (Origin::Recording, false);
            self.end = self.end.min(self.edge());
        } else if !self.plays() {
            if self.moving {
                self.end = self.edge();
            }
        } else if self.starting {
            self.to_start(span_ms);
            self.starting = !complete && self.end < self.first() + span_ms;
        } else if self.moving {
            if self.origin == Origin::Demo && self.end >= self.edge() {
                self.to_start(span_ms);
            } else {
                self.end = (self.end + (passed as f64 * self.speed()) as u64).min(self.edge());
            }
        }
    }

    /// Stands still, or goes on: live data from now, a recording from here (from its start when at its end).
    pub fn pause(&mut self, span_ms: u64) {
        self.moving = !self.moving;
        if self.moving && !self.plays() {
            self.end = self.edge();
        } else if self.moving && self.end >= self.edge() {
            self.to_start(span_ms);
        }
    }

    /// Moves by `ms`, back when negative, within the data. Live data stand still until the edge is reached again.
    pub fn seek(&mut self, ms: i64) {
        let to = if ms < 0 { self.end - ms.unsigned_abs() } else { self.end + ms.unsigned_abs() };
        self.end = to.max(self.first()).min(self.edge());
        if !self.plays() {
            self.moving = self.end >= self.edge();
        }
    }

    /// To the very start of a recording, 0:00; to the oldest screenful of live data.
    pub fn home(&mut self, span_ms: u64) {
        if self.plays() {
            (self.end, self.starting) = (self.first(), false);
        } else {
            self.to_start(span_ms);
        }
    }

    /// To the start: the moment at which the first data fill the time axis.
    pub fn to_start(&mut self, span_ms: u64) {
        self.end = (self.first() + span_ms).min(self.edge());
        if !self.plays() {
            self.moving = self.end >= self.edge();
        }
    }

    /// To now, or to the end of the recording.
    pub fn to_edge(&mut self) {
        self.end = self.edge();
        self.moving |= !self.plays();
    }

    /// A step slower (-1) or faster (1).
    pub fn change_speed(&mut self, step: isize) {
        if self.plays() {
            self.speed = self.speed.saturating_add_signed(step).min(SPEEDS.len() - 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: u64 = 60_000;

    #[test]
    fn live_follows_now_until_scrolled_back() {
        let mut t = Playhead::new(Origin::Live, Time(100_000));
        t.tick(Time(100_250), Some((Time(90_000), Time(100_200))), false, SPAN);
        assert_eq!(t.end(), Time(100_250));
        t.seek(-6000);
        assert!(!t.moving());
        t.tick(Time(101_000), Some((Time(90_000), Time(101_000))), false, SPAN);
        assert_eq!(t.end(), Time(94_250));
        t.seek(60_000);
        assert!(t.moving() && t.end() == Time(101_000));
        t.seek(-60_000);
        assert_eq!(t.end(), Time(90_000), "not before the first data");
        t.pause(SPAN);
        assert_eq!(t.end(), Time(101_000));
    }

    #[test]
    fn a_recording_plays_at_its_speed_and_stops_at_its_end() {
        let data = Some((Time(1_000_000), Time(1_200_000)));
        let mut t = Playhead::new(Origin::Recording, Time(5));
        t.tick(Time(5), Some((Time(1_000_000), Time(1_010_000))), false, SPAN);
        assert_eq!(t.end(), Time(1_010_000), "still being read");
        t.tick(Time(5), data, true, SPAN);
        assert_eq!(t.end(), Time(1_060_000));
        t.change_speed(1);
        t.tick(Time(1005), data, false, SPAN);
        assert_eq!(t.end(), Time(1_062_000));
        t.tick(Time(9_001_005), data, false, SPAN);
        t.tick(Time(9_002_005), data, false, SPAN);
        assert_eq!(t.end(), Time(1_200_000));
        t.pause(SPAN);
        t.pause(SPAN);
        assert_eq!(t.end(), Time(1_060_000), "plays again from the start");
    }

    #[test]
    fn home_is_the_start_of_a_recording_and_a_screenful_of_live_data() {
        let data = Some((Time(1_000_000), Time(1_200_000)));
        let mut t = Playhead::new(Origin::Recording, Time(5));
        t.tick(Time(5), data, true, SPAN);
        t.home(SPAN);
        assert_eq!((t.end(), t.moving()), (Time(1_000_000), true));
        t.tick(Time(1005), data, true, SPAN);
        assert_eq!(t.end(), Time(1_001_000), "plays on from there");
        let mut t = Playhead::new(Origin::Live, Time(1_200_000));
        t.tick(Time(1_200_000), data, false, SPAN);
        t.home(SPAN);
        assert_eq!((t.end(), t.moving()), (Time(1_060_000), false));
    }

    #[test]
    fn the_demo_starts_over() {
        let data = Some((Time(1_000_000), Time(1_100_000)));
        let mut t = Playhead::new(Origin::Demo, Time(0));
        for now in [0, 50_000, 50_250] {
            t.tick(Time(now), data, false, SPAN);
        }
        assert_eq!(t.end(), Time(1_060_000));
    }

    #[test]
    fn a_stream_that_stalls_grows_old_and_ends_as_a_recording() {
        let data = Some((Time(7_000_000), Time(7_001_000)));
        let mut t = Playhead::new(Origin::Stream, Time(10));
        t.tick(Time(1000), data, false, SPAN);
        assert_eq!(t.end(), Time(7_001_000));
        t.tick(Time(6000), data, false, SPAN);
        assert_eq!(t.end(), Time(7_006_000));
        t.tick(Time(6000), data, true, SPAN);
        assert_eq!((t.end(), t.origin()), (Time(7_001_000), Origin::Recording));
    }
}
