//! What an API server adds to the time that its engine counts: parsing, waiting for the server's loop, writing the answer.
//!
//! The engine's histograms begin when it has the request and end with its last token, so a client waits longer than they
//! say. Where the API server counts its own time of each request, the difference of the two means is its part:
//! Δseconds ÷ Δrequests of the server − mean E2E of the engine. A request that ends at the edge of the window may be in
//! one of them only, which moves the difference by up to a mean request; what that could explain is not told.
//!
//! Held against clients (vLLM 0.25.1, H200, 1347 requests of one token a second): 50.8 ms, and 49.7 ms by the clients' clocks.

use crate::model::{Metric, Reading, Subject, Why};
use crate::store::{Data, HistogramWindow, Window};

use super::exposed::rate;

/// The API server's part of a mean request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ApiServerPart {
    /// Mean over the window, s; missing also where the counts do not resolve it.
    pub mean: Reading,
    /// What the counts resolve, s: a part below it cannot be told from none. `None` where nothing was counted.
    pub resolves: Option<f64>,
    /// Its share of the whole time that the API server took, 0 to 1; `None` where `mean` is missing.
    pub share: Option<f64>,
}

/// The part of the API server of `engine` in the window.
pub fn api_server(data: &Data, engine: u8, window: Window, scratch: &mut HistogramWindow) -> ApiServerPart {
    let unknown = |why| ApiServerPart { mean: Reading::Missing(why), resolves: None, share: None };
    let served = rate(data, engine, Metric::ApiRequests, window);
    let (rate_of_requests, rate_of_seconds) = match (served, rate(data, engine, Metric::ApiSum, window)) {
        (Reading::Value(requests), Reading::Value(seconds)) => (requests, seconds),
        (Reading::Missing(why), _) | (_, Reading::Missing(why)) => return unknown(why),
    };
    data.histogram_window(Subject::Engine(engine), Metric::E2e, window, scratch);
    let Some(own) = scratch.mean() else { return unknown(Why::NotYet) };
    let seconds = scratch.measured_ms as f64 / 1000.0;
    let (in_engine, in_server) = (scratch.n as f64, (rate_of_requests * seconds).round());
    if in_server <= 0.0 {
        return unknown(Why::NotYet);
    }
    let whole = rate_of_seconds / rate_of_requests;
    let resolves = ((in_server - in_engine).abs() + 1.0) * own.max(whole) / in_engine;
    let mean = whole - own;
    if mean < resolves {
        return ApiServerPart { resolves: Some(resolves), ..unknown(Why::NotYet) };
    }
    ApiServerPart { mean: Reading::new(mean), resolves: Some(resolves), share: Some(mean / whole) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Batch, HistogramSample, SourceId, Time};
    use crate::store::{Retention, Store};

    /// Ten seconds of so many requests a second, which take so long in the engine and in its API server.
    fn of((per_second, in_engine): (f64, f64), server: Option<(f64, f64)>) -> ApiServerPart {
        let (store, engine) = (Store::new(Retention::HOUR), Subject::Engine(0));
        for second in 0..=10_u32 {
            let total = f64::from(second) * per_second;
            let mut batch = Batch::new(SourceId::Engine(0), Time(100_000 + u64::from(second) * 1_000), 3_500);
            batch.histograms.push(HistogramSample {
                sets: 0,
                subject: engine,
                metric: Metric::E2e,
                edges: [1.0].into(),
                cumulative: vec![total, total],
                sum: Some(total * in_engine),
            });
            if let Some((per_second, each)) = server {
                let served = 5.0 + f64::from(second) * per_second;
                batch.push(engine, Metric::ApiRequests, served);
                batch.push(engine, Metric::ApiSum, served * each);
            }
            store.push(&batch);
        }
        api_server(&store.read(), 0, Window::last(Time(110_000), 10_000), &mut HistogramWindow::default())
    }

    #[test]
    fn the_part_is_what_the_server_counts_and_the_engine_does_not() {
        let part = of((1347.0, 0.1521), Some((1347.0, 0.2029)));
        assert!((part.mean.value().unwrap() - 0.0508).abs() < 1e-5, "{part:?}");
        assert!((part.share.unwrap() - 0.25).abs() < 0.001, "{part:?}");
    }

    #[test]
    fn what_one_request_at_the_edge_could_explain_is_not_told() {
        // 30 requests of 316 ms and 1.4 ms more: one of another length moves the mean by 10 ms.
        let part = of((3.0, 0.316), Some((3.0, 0.3174)));
        assert_eq!(part.mean, Reading::Missing(Why::NotYet));
        assert!((part.resolves.unwrap() - 0.010_58).abs() < 1e-4, "{part:?}");
        let uneven = of((100.0, 0.2), Some((110.0, 0.21)));
        assert_eq!(uneven.mean, Reading::Missing(Why::NotYet), "100 requests are in one count only");
        assert_eq!(of((3.0, 0.316), Some((3.0, 0.2))).mean, Reading::Missing(Why::NotYet), "never below 0");
    }

    #[test]
    fn a_server_that_counts_nothing_has_a_reason() {
        assert_eq!(of((3.0, 0.3), None).mean, Reading::Missing(Why::Unsupported));
        assert_eq!(of((0.0, 0.3), Some((0.0, 0.3))).mean, Reading::Missing(Why::NotYet));
    }
}
