//! All that is known of one latency in a window: n, mean, P50, P95, P99 with their bounds, or no more than
//! a mean. It must not know how it is worded.

use std::sync::Arc;

use crate::derive::coverage::is_partial;
use crate::derive::lives;
use crate::derive::means::MEANS;
use crate::derive::quantile::{Quantile, quantile};
use crate::model::{Metric, Subject};
use crate::store::{Data, HistogramWindow, Window};

/// The quantiles of a summary.
pub const QUANTILES: [f64; 3] = [0.5, 0.95, 0.99];

/// What a window says of a latency.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Summary {
    /// The engine exposes nothing of it.
    #[default]
    NotExposed,
    /// A histogram.
    Histogram {
        /// Observations.
        n: u64,
        /// Their exact mean, s, where the source gives the sum.
        mean: Option<f64>,
        /// Each of [`QUANTILES`]; `None` where nothing was observed.
        quantiles: [Option<Quantile>; 3],
        /// Finite upper edges of its buckets.
        edges: Arc<[f64]>,
        /// Whether they are of less than four fifths of the window.
        partial: bool,
    },
    /// No histogram, only the seconds of all requests together.
    Sum {
        /// What they grew by in the window; `None` where it was not read.
        seconds: Option<f64>,
        /// Requests that ended meanwhile; `None` where the engine does not count them.
        requests: Option<f64>,
        /// How much of the window that is of, ms.
        measured_ms: u64,
    },
}

impl Summary {
    /// Of `metric` of an engine over `window`. `scratch` is a buffer.
    pub fn of(data: &Data, engine: u8, metric: Metric, window: Window, scratch: &mut HistogramWindow) -> Self {
        let subject = Subject::Engine(engine);
        if data.histogram(subject, metric).is_some() {
            lives::window(data, subject, metric, window, scratch);
            return Self::Histogram {
                partial: is_partial(scratch.measured_ms, window.ms()),
                n: scratch.n,
                mean: scratch.mean(),
                quantiles: QUANTILES.map(|q| quantile(scratch, q)),
                edges: Arc::clone(&scratch.edges),
            };
        }
        let growth = |metric| data.series(subject, metric).map(|s| s.growth(window));
        let sum = sum_of(metric).and_then(|sum| Some((growth(sum)?, data.measured_ms(subject, sum, window))));
        match sum {
            Some((seconds, measured_ms)) => {
                Self::Sum { seconds, requests: growth(Metric::RequestsFinished).flatten(), measured_ms }
            }
            None => Self::NotExposed,
        }
    }
}

/// Whether an engine exposes anything of a latency: a histogram, or its sum.
pub fn exposed(data: &Data, engine: u8, metric: Metric) -> bool {
    let subject = Subject::Engine(engine);
    data.histogram(subject, metric).is_some() || sum_of(metric).is_some_and(|sum| data.series(subject, sum).is_some())
}

/// The counter of seconds that stands in for a histogram.
fn sum_of(metric: Metric) -> Option<Metric> {
    MEANS.iter().find(|mean| mean.histogram == metric).map(|mean| mean.sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Batch, HistogramSample, SourceId, Time};
    use crate::store::{Retention, Store};

    fn of(metric: Metric, fill: impl Fn(f64, &mut Batch)) -> Summary {
        let store = Store::new(Retention::HOUR);
        for second in 0..=10_u32 {
            let mut batch = Batch::new(SourceId::Engine(0), Time(100_000 + u64::from(second) * 1000), 3500);
            fill(f64::from(second), &mut batch);
            store.push(&batch);
        }
        let window = Window::last(Time(110_000), 5000);
        let summary = Summary::of(&store.read(), 0, metric, window, &mut HistogramWindow::default());
        assert_eq!(exposed(&store.read(), 0, metric), summary != Summary::NotExposed);
        summary
    }

    fn histogram(metric: Metric, s: f64) -> HistogramSample {
        let cumulative = vec![40.0 * s, 80.0 * s, 80.0 * s];
        let (subject, edges) = (Subject::Engine(0), [0.1, 1.0].into());
        HistogramSample { subject, metric, edges, cumulative, sum: Some(24.0 * s), sets: 0 }
    }

    #[test]
    fn a_histogram_gives_n_mean_and_quantiles_with_bounds() {
        let got = of(Metric::Tpot, |s, batch| batch.histograms.push(histogram(Metric::Tpot, s)));
        let Summary::Histogram { n, mean, quantiles, edges, partial: false } = got else { panic!("{got:?}") };
        assert_eq!((n, mean, edges.as_ref()), (400, Some(0.3), &[0.1, 1.0][..]));
        let bounds = quantiles.map(|q| q.map(|q| (q.lo, q.hi, q.enough)));
        assert_eq!(bounds, [Some((0.0, Some(0.1), true)), Some((0.1, Some(1.0), true)), Some((0.1, Some(1.0), true))]);
    }

    #[test]
    fn a_sum_gives_a_mean_and_says_over_how_many() {
        let push = |batch: &mut Batch, metric, value: f64| batch.push(Subject::Engine(0), metric, value);
        let sums = of(Metric::E2e, |s, batch| {
            push(batch, Metric::E2eSum, 2.0 * s);
            push(batch, Metric::RequestsFinished, 3.0 * s);
        });
        assert_eq!(sums, Summary::Sum { seconds: Some(10.0), requests: Some(15.0), measured_ms: 5000 });
        let uncounted = of(Metric::DecodeTime, |s, batch| push(batch, Metric::DecodeSum, s));
        assert_eq!(uncounted, Summary::Sum { seconds: Some(5.0), requests: None, measured_ms: 5000 });
    }

    #[test]
    fn what_is_not_exposed_has_neither() {
        let only_requests = |s, batch: &mut Batch| batch.push(Subject::Engine(0), Metric::RequestsFinished, s);
        assert_eq!(of(Metric::E2e, only_requests), Summary::NotExposed);
        assert_eq!(of(Metric::Ttft, only_requests), Summary::NotExposed);
    }
}
