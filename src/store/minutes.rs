//! What is left of a series once its points are too old to be kept one by one: a day of minutes.
//!
//! It must not know what is measured. Invariant: minutes are in order, and bounded by [`Retention`].

use std::collections::VecDeque;

use super::{Retention, grow};

/// A minute of points.
#[derive(Clone, Copy, Debug)]
pub(super) struct Minute {
    index: u32,
    pub(super) min: f32,
    pub(super) max: f32,
    pub(super) sum: f32,
    pub(super) weight: f32,
}

impl Minute {
    /// Its end, ms after the epoch of its series.
    pub(super) fn end(&self) -> u32 {
        (self.index + 1).saturating_mul(Retention::MINUTE_MS)
    }

    pub(super) fn mean(&self) -> f32 {
        self.sum / self.weight
    }

    /// Whether it ends after `start`, and up to and including `end`.
    pub(super) fn ends_in(&self, start: u32, end: u32) -> bool {
        self.end() > start && self.end() <= end
    }

    /// Whether this moment lies in it.
    pub(super) const fn holds(&self, offset: u32) -> bool {
        self.index == offset / Retention::MINUTE_MS
    }
}

/// The minutes of a series, those included whose points are still kept.
#[derive(Debug, Default)]
pub(super) struct Minutes(VecDeque<Minute>);

impl Minutes {
    /// Adds a point to its minute.
    pub(super) fn add(&mut self, offset: u32, value: f32, weight: f32, keep: &Retention) {
        let index = offset / Retention::MINUTE_MS;
        match self.0.back_mut() {
            Some(minute) if minute.index == index => {
                minute.min = minute.min.min(value);
                minute.max = minute.max.max(value);
                minute.sum += value * weight;
                minute.weight += weight;
            }
            _ => {
                while self.0.front().is_some_and(|m| index - m.index >= keep.minutes) {
                    self.0.pop_front();
                }
                grow(&mut self.0);
                self.0.push_back(Minute { index, min: value, max: value, sum: value * weight, weight });
            }
        }
    }

    /// Those that end before the full-rate history begins.
    pub(super) fn before(&self, full_from: u32) -> impl Iterator<Item = &Minute> {
        self.0.iter().take_while(move |m| m.end() <= full_from)
    }

    /// Counts from an epoch that is `by` ms (whole minutes) later; what lies before it goes.
    pub(super) fn shift(&mut self, by: u32) {
        let by = by / Retention::MINUTE_MS;
        self.0.retain(|m| m.index >= by);
        self.0.iter_mut().for_each(|m| m.index -= by);
    }
}
