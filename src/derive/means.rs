//! Mean latencies of a window: from a histogram's sum where the engine has one, else from a sum of
//! seconds over the number of requests.
//!
//! Both are exact for the requests that were observed in the window; a mean says nothing about the tail.
//! Engines that expose only sums (Triton; llama.cpp for prompt and decode time) have no more than this.

use crate::model::{Metric, Reading, Subject, Why};
use crate::store::{Data, HistogramWindow, Window};

use super::exposed::{both, empty, rate};

/// A latency whose mean may be known without a histogram.
#[derive(Clone, Copy, Debug)]
pub struct Mean {
    /// Its histogram.
    pub histogram: Metric,
    /// Seconds of all requests together.
    pub sum: Metric,
    /// Name in the snapshot.
    pub name: &'static str,
}

/// Every such latency.
pub const MEANS: [Mean; 4] = [
    Mean { histogram: Metric::E2e, sum: Metric::E2eSum, name: "e2e_mean_s" },
    Mean { histogram: Metric::QueueTime, sum: Metric::QueueSum, name: "queue_mean_s" },
    Mean { histogram: Metric::PrefillTime, sum: Metric::PrefillSum, name: "prefill_mean_s" },
    Mean { histogram: Metric::DecodeTime, sum: Metric::DecodeSum, name: "decode_mean_s" },
];

/// The mean of one of [`MEANS`] over the window, s; missing where no request was observed.
pub fn mean(data: &Data, engine: u8, of: Mean, window: Window, scratch: &mut HistogramWindow) -> Reading {
    data.histogram_window(Subject::Engine(engine), of.histogram, window, scratch);
    if let Some(mean) = scratch.mean() {
        return Reading::new(mean);
    }
    if data.histogram(Subject::Engine(engine), of.histogram).is_some() {
        return Reading::Missing(empty(data, engine, of.histogram, window.end));
    }
    let (seconds, requests) =
        (rate(data, engine, of.sum, window), rate(data, engine, Metric::RequestsFinished, window));
    match requests {
        Reading::Value(requests) if requests <= 0.0 => both(seconds, Reading::Missing(Why::NotYet), |s, _| s),
        requests => both(seconds, requests, |seconds, requests| seconds / requests),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Batch, HistogramSample, SourceId, Time};
    use crate::store::{Retention, Store};

    fn of(fill: impl Fn(f64, &mut Batch)) -> [Reading; 4] {
        let store = Store::new(Retention::HOUR);
        for second in 0..=10_u32 {
            let mut batch = Batch::new(SourceId::Engine(0), Time(100_000 + u64::from(second) * 1000), 3500);
            fill(f64::from(second), &mut batch);
            store.push(&batch);
        }
        let window = Window::last(Time(110_000), 5000);
        MEANS.map(|m| mean(&store.read(), 0, m, window, &mut HistogramWindow::default()))
    }

    #[test]
    fn sums_over_finished_requests_where_there_is_no_histogram() {
        let missing = Reading::Missing;
        let means = of(|s, batch| {
            batch.push(Subject::Engine(0), Metric::RequestsFinished, 4.0 * s);
            batch.push(Subject::Engine(0), Metric::E2eSum, 10.0 * s);
            batch.push(Subject::Engine(0), Metric::QueueSum, s);
        });
        assert_eq!(means, [2.5.into(), 0.25.into(), missing(Why::Unsupported), missing(Why::Unsupported)]);
        let idle = of(|_, batch| {
            batch.push(Subject::Engine(0), Metric::RequestsFinished, 4.0);
            batch.push(Subject::Engine(0), Metric::E2eSum, 10.0);
        });
        assert_eq!(idle[0], missing(Why::NotYet));
        let uncounted = of(|s, batch| batch.push(Subject::Engine(0), Metric::PrefillSum, s));
        assert_eq!(uncounted[2], missing(Why::Unsupported), "nothing says how many requests share them");
    }

    #[test]
    fn a_histogram_is_asked_first() {
        let means = of(|s, batch| {
            batch.push(Subject::Engine(0), Metric::RequestsFinished, 4.0 * s);
            batch.push(Subject::Engine(0), Metric::E2eSum, 10.0 * s);
            let (edges, cumulative) = ([1.0].into(), vec![0.0, 2.0 * s]);
            let (subject, metric, sum) = (Subject::Engine(0), Metric::E2e, Some(6.0 * s));
            batch.histograms.push(HistogramSample { subject, metric, edges, cumulative, sum, sets: 0 });
        });
        assert_eq!(means[0], Reading::Value(3.0));
    }
}
