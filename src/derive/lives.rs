//! Which life of a server the requests of a window belong to.
//!
//! A server that was started again may run another model with other options: quantiles over both lives describe neither.
//! Where the newest life alone has enough requests for a P99, 368 (`quantile::least`), the window is its; before that the
//! lives are added up, since a quantile with wide bounds says less than one that says what it mixes. It must not know
//! which quantiles are taken. Invariant: a restart counts only where there are requests on both sides of it.

use crate::model::{Metric, Subject};
use crate::store::{Data, HistogramWindow, Window};

use super::quantile::least;

/// What a window does with the restarts in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lives {
    /// Restarts between the requests that were added up; 0 where all are of one life.
    pub restarts: u32,
    /// Whether requests from before the newest restart were left out.
    pub since_restart: bool,
}

/// Adds up a histogram's window into `out`: the newest life's requests where they are enough, else all.
pub fn window(data: &Data, subject: Subject, metric: Metric, window: Window, out: &mut HistogramWindow) -> Lives {
    let restarts = || data.resets(window).filter(|(_, who)| *who == subject).map(|(at, _)| at);
    data.histogram_window(subject, metric, window, out);
    let Some(newest) = restarts().max() else { return Lives::default() };
    let Some(series) = data.histogram(subject, metric) else { return Lives::default() };
    let all = out.n;
    let since = Window { start: newest, end: window.end };
    let alone = series.observations(since);
    if alone >= least(0.99) && alone < all {
        series.window(since, out);
        return Lives { restarts: 0, since_restart: true };
    }
    let before = |at| series.observations(Window { start: window.start, end: at });
    let merged = restarts().filter(|&at| (1..all).contains(&before(at))).count();
    Lives { restarts: u32::try_from(merged).unwrap_or(u32::MAX), since_restart: false }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Batch, HistogramSample, SourceId, SourceState, Time};
    use crate::store::{Retention, Store};

    const ENGINE: Subject = Subject::Engine(0);
    const EDGES: [f64; 2] = [0.1, 1.0];

    /// Scrapes a second apart, each with the total of requests in the first and in the second bucket; `None`: failed.
    fn store(scrapes: &[Option<[f64; 2]>]) -> Store {
        let store = Store::new(Retention::HOUR);
        let mut last = 0.0;
        for (second, totals) in (0_u64..).zip(scrapes) {
            let mut batch = Batch::new(SourceId::Engine(0), Time(100_000 + second * 1000), 3500);
            batch.state = Some(SourceState::Failed("connection refused".into()));
            if let Some([fast, slow]) = *totals {
                batch.state = Some(SourceState::Ok);
                batch.breaks = fast + slow < last;
                last = fast + slow;
                batch.push(ENGINE, Metric::RequestsFinished, last);
                let cumulative = vec![fast, last, last];
                let (edges, sum) = (EDGES.into(), Some(0.05 * fast + 0.5 * slow));
                batch.histograms.push(HistogramSample {
                    sets: 0,
                    subject: ENGINE,
                    metric: Metric::Ttft,
                    edges,
                    cumulative,
                    sum,
                });
            }
            store.push(&batch);
        }
        store
    }

    fn of(store: &Store, seconds: u64, end: u64) -> (Lives, HistogramWindow) {
        let mut out = HistogramWindow::default();
        let window_of = Window::last(Time(100_000 + end * 1000), seconds * 1000);
        (window(&store.read(), ENGINE, Metric::Ttft, window_of, &mut out), out)
    }

    /// Ten seconds of 100 slow requests a second, ten of outage, then `fast` a second for ten seconds.
    fn restarted(fast: f64) -> Store {
        let old = (0..=10).map(|s| Some([0.0, 100.0 * f64::from(s)]));
        let new = (0..=10).map(|s| Some([fast * f64::from(s), 0.0]));
        store(&old.chain([None; 9]).chain(new).collect::<Vec<_>>())
    }

    #[test]
    fn the_newest_life_is_taken_alone_once_it_has_enough_for_a_p99() {
        let store = restarted(46.0);
        let (lives, window) = of(&store, 30, 28);
        assert_eq!((lives, window.n), (Lives { restarts: 0, since_restart: true }, 368));
        assert_eq!((window.counts.as_slice(), window.measured_ms), (&[368, 0, 0][..], 8_000));
        let (lives, window) = of(&store, 30, 27);
        assert_eq!((lives, window.n), (Lives { restarts: 1, since_restart: false }, 1000 + 322));
        assert_eq!(window.measured_ms, 10_000 + 7_000, "without the outage");
    }

    #[test]
    fn a_restart_with_requests_on_one_side_only_mixes_nothing() {
        let one = Lives::default();
        assert_eq!(of(&restarted(0.0), 30, 30).0, one, "the new life had none");
        let store = restarted(50.0);
        let (lives, window) = of(&store, 11, 30);
        assert_eq!((lives, window.n), (one, 500), "the window holds nothing of the old one");
        assert_eq!(of(&store, 8, 10).0, one, "before it");
    }

    #[test]
    fn every_restart_between_requests_counts() {
        let life = || (0..=3).map(|s| Some([0.0, 10.0 * f64::from(s)]));
        let store = store(&life().chain(life()).chain(life()).collect::<Vec<_>>());
        let (lives, window) = of(&store, 30, 11);
        assert_eq!((lives.restarts, window.n, window.measured_ms), (2, 90, 9_000));
    }
}
