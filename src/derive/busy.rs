//! The part of a window in which a GPU worked, and means over it.
//!
//! A mean over a window that is half idle describes neither half: SM activity halves, and an idle clock looks like a
//! throttled one. The window is cut into pieces; a piece is busy where the SMs were active, or, where activity is not
//! read, where time-based utilisation says that kernels ran. It must not judge. Invariant: a piece of which neither is
//! known counts as neither busy nor idle.

use crate::model::{Metric, Reading, Subject, Time, Why};
use crate::store::{Bin, Data, Window};

/// Length of a piece, ms: the default period of the fast readings.
const PIECE_MS: u64 = 250;
/// Most pieces; those of a longer window are longer. An hour and eight minutes of pieces of 250 ms.
const MOST_PIECES: u64 = 16_384;
/// SM activity from which on a piece is busy, %. An idle H200 reads 0.0.
const BUSY_SM: f32 = 2.0;
/// The same of the time-based utilisation.
const BUSY_UTIL: f32 = 5.0;

/// Which pieces of a window were busy; keeps its buffers from one reading to the next.
#[derive(Debug)]
pub struct BusyTime {
    subject: Subject,
    window: Window,
    piece_ms: u64,
    /// Oldest first; `None`: not known.
    pieces: Vec<Option<bool>>,
    bins: Vec<Bin>,
}

impl Default for BusyTime {
    fn default() -> Self {
        let window = Window { start: Time(0), end: Time(0) };
        Self { subject: Subject::Gpu(0), window, piece_ms: PIECE_MS, pieces: Vec::new(), bins: Vec::new() }
    }
}

impl BusyTime {
    /// Looks at GPU `gpu` over `window`.
    pub fn over(data: &Data, gpu: u8, window: Window) -> Self {
        let mut time = Self::default();
        time.read(data, gpu, window);
        time
    }

    /// Looks at GPU `gpu` over `window`, in place of what it was about.
    pub fn read(&mut self, data: &Data, gpu: u8, window: Window) {
        (self.subject, self.window) = (Subject::Gpu(gpu), window);
        self.piece_ms = PIECE_MS.max(window.ms().div_ceil(MOST_PIECES));
        self.bins.resize((window.ms() / self.piece_ms) as usize, Bin::default());
        for (metric, least) in [(Metric::SmActive, BUSY_SM), (Metric::UtilGpuTime, BUSY_UTIL)] {
            data.fill(self.subject, metric, window, &mut self.bins);
            self.pieces.clear();
            self.pieces.extend(self.bins.iter().map(|bin| bin.mean().map(|value| value >= least)));
            if self.pieces.iter().any(Option::is_some) {
                return;
            }
        }
    }

    /// Share of the known time that was busy, 0 to 1; `None` where nothing is known.
    pub fn share(&self) -> Option<f64> {
        self.share_of_last(self.window.ms())
    }

    /// How much of the window is known to be one or the other, ms.
    pub fn known_ms(&self) -> u64 {
        self.pieces.iter().flatten().count() as u64 * self.piece_ms
    }

    /// The same as [`BusyTime::share`] of the last `ms` of the window.
    pub fn share_of_last(&self, ms: u64) -> Option<f64> {
        let known = self.pieces.iter().rev().take((ms / self.piece_ms) as usize).flatten();
        let (busy, all) = known.fold((0_u32, 0_u32), |(busy, all), &is| (busy + u32::from(is), all + 1));
        (all > 0).then(|| f64::from(busy) / f64::from(all))
    }

    /// The mean of a gauge over the busy time. Missing where there was none, and where the gauge is.
    pub fn mean(&mut self, data: &Data, metric: Metric) -> Reading {
        data.fill(self.subject, metric, self.window, &mut self.bins);
        let busy = self.bins.iter().zip(&self.pieces).filter(|(_, busy)| **busy == Some(true));
        let (mut sum, mut count) = (0.0, 0_u32);
        for mean in busy.filter_map(|(bin, _)| bin.mean()) {
            sum += f64::from(mean);
            count += 1;
        }
        if count > 0 {
            return Reading::new(sum / f64::from(count));
        }
        Reading::Missing(data.mean(self.subject, metric, self.window).why().unwrap_or(Why::NotYet))
    }

    /// A set of bits as it was in each piece of the busy time; of a piece in which it changed nothing is known.
    pub fn bits(&mut self, data: &Data, metric: Metric) -> impl Iterator<Item = u64> {
        data.fill(self.subject, metric, self.window, &mut self.bins);
        let busy = self.bins.iter().zip(&self.pieces).filter(|(_, busy)| **busy == Some(true));
        busy.filter_map(|(bin, _)| Some(bin.min()? as u64).filter(|_| bin.min() == bin.max()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Batch, SourceId};
    use crate::store::{Retention, Store};

    /// Twenty seconds of readings twice a second; `of` gives those of second `s`.
    fn read(of: impl Fn(f64) -> Vec<(Metric, f64)>) -> Store {
        let store = Store::new(Retention::HOUR);
        for half in 1..=40_u32 {
            let mut batch = Batch::new(SourceId::Nvml, Time(100_000 + u64::from(half) * 500), 2000);
            for (metric, value) in of(f64::from(half) / 2.0) {
                batch.push(Subject::Gpu(0), metric, value);
            }
            store.push(&batch);
        }
        store
    }

    const WINDOW: Window = Window { start: Time(100_500), end: Time(120_000) };

    #[test]
    fn a_server_that_dies_in_the_window_leaves_its_own_figures() {
        let store = read(|s| {
            let works = s <= 10.5;
            let pick = |work: f64, idle: f64| if works { work } else { idle };
            vec![
                (Metric::SmActive, pick(90.0, 0.0)),
                (Metric::SmClock, pick(1900.0, 345.0)),
                (Metric::Power, pick(690.0, 75.0)),
            ]
        });
        let data = store.read();
        let mut busy = BusyTime::over(&data, 0, WINDOW);
        let share = busy.share().unwrap();
        assert!((share - 10.0 / 19.5).abs() < 0.02, "{share}");
        assert_eq!(busy.mean(&data, Metric::SmActive), Reading::Value(90.0));
        assert_eq!(busy.mean(&data, Metric::SmClock), Reading::Value(1900.0));
        assert_eq!(busy.share_of_last(3_000), Some(0.0));
        assert_eq!(busy.known_ms(), 19_500);
        assert_eq!(busy.mean(&data, Metric::DramActive), Reading::Missing(Why::NotYet));
        let whole = data.mean(Subject::Gpu(0), Metric::SmClock, WINDOW).value().unwrap();
        assert!((1000.0..1300.0).contains(&whole), "neither clock: {whole}");
    }

    #[test]
    fn without_activity_utilisation_says_when_work_ran() {
        let store = read(|s| {
            vec![
                (Metric::UtilGpuTime, if s <= 10.5 { 98.0 } else { 0.0 }),
                (Metric::SmClock, if s <= 10.5 { 1800.0 } else { 345.0 }),
            ]
        });
        let data = store.read();
        assert_eq!(BusyTime::over(&data, 0, WINDOW).mean(&data, Metric::SmClock), Reading::Value(1800.0));
    }

    #[test]
    fn nothing_is_said_of_time_without_work_or_without_readings() {
        let idle = read(|_| vec![(Metric::SmActive, 0.0), (Metric::SmClock, 345.0)]);
        let data = idle.read();
        let mut busy = BusyTime::over(&data, 0, WINDOW);
        assert_eq!((busy.share(), busy.mean(&data, Metric::SmClock)), (Some(0.0), Reading::Missing(Why::NotYet)));
        let blind = read(|_| vec![(Metric::SmClock, 345.0)]);
        let data = blind.read();
        let time = BusyTime::over(&data, 0, WINDOW);
        assert_eq!((time.share(), time.known_ms()), (None, 0));
    }

    #[test]
    fn a_day_is_cut_into_no_more_pieces_than_are_worth_it() {
        let store = read(|_| vec![(Metric::SmActive, 50.0)]);
        let data = store.read();
        let mut busy = BusyTime::over(&data, 0, Window::last(Time(120_000), 24 * 3_600_000));
        assert!(busy.pieces.len() as u64 <= MOST_PIECES);
        assert_eq!(busy.mean(&data, Metric::SmActive), Reading::Value(50.0));
    }
}
