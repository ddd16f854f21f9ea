//! An engine's latencies in a snapshot: quantiles of a window with their bounds, and means.

use serde::Serialize;

use crate::derive::api_server::api_server;
use crate::derive::exposed::why_of;
use crate::derive::lives;
use crate::derive::means::{MEANS, Mean, mean};
use crate::derive::quantile::{self, quantile};
use crate::model::{Metric, Reading, SourceId, Subject, Why};
use crate::store::{Data, HistogramWindow, Window};

use crate::ui::units::Seconds;

use super::coverage::Coverage;
use super::gaps::{Gaps, short};

#[derive(Clone, Debug, Serialize)]
#[expect(clippy::struct_field_names, reason = "the contract's names end in their unit")]
pub(super) struct Latencies {
    ttft_s: Latency,
    e2e_s: Latency,
    itl_s: Latency,
    queue_s: Latency,
    tpot_s: Latency,
    prefill_s: Latency,
    decode_s: Latency,
    /// Means over the window, for engines without histograms as well.
    e2e_mean_s: Option<f64>,
    queue_mean_s: Option<f64>,
    prefill_mean_s: Option<f64>,
    decode_mean_s: Option<f64>,
    /// What the API server adds to the engine's mean E2E.
    api_server_mean_s: Option<f64>,
    /// Seconds of the window that each mean rests on.
    measured_s: Coverage,
}

#[derive(Clone, Debug, Serialize)]
struct Latency {
    /// How much time was measured: that between scrapes whose difference is known.
    window_s: Option<f64>,
    n: Option<u64>,
    /// Restarts of the server between these requests.
    restarts: Option<u32>,
    /// Whether requests from before a restart in the window were left out.
    since_restart: Option<bool>,
    p50: Option<Quantile>,
    p95: Option<Quantile>,
    p99: Option<Quantile>,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Quantile {
    value: f64,
    lo: f64,
    hi: Option<f64>,
    enough: bool,
}

/// Reads the latencies of an engine; `prefix` is its key path.
pub(super) fn latencies(data: &Data, engine: u8, window: Window, prefix: &str, gaps: &mut Gaps) -> Latencies {
    let mut of = |name: &str, metric| {
        gaps.enter(format!("{prefix}latency.{name}."));
        latency(data, engine, metric, window, gaps)
    };
    let (ttft_s, e2e_s) = (of("ttft_s", Metric::Ttft), of("e2e_s", Metric::E2e));
    let (itl_s, queue_s) = (of("itl_s", Metric::Itl), of("queue_s", Metric::QueueTime));
    let tpot_s = of("tpot_s", Metric::Tpot);
    let (prefill_s, decode_s) = (of("prefill_s", Metric::PrefillTime), of("decode_s", Metric::DecodeTime));
    gaps.enter(format!("{prefix}latency."));
    let mut scratch = HistogramWindow::default();
    let [e2e_mean_s, queue_mean_s, prefill_mean_s, decode_mean_s] =
        MEANS.map(|m| gaps.float_of(m.name, m.sum, mean(data, engine, m, window, &mut scratch)));
    let rest_on = MEANS.map(|m| (m.name, rests_on(data, engine, m)));
    let mut measured_s = Coverage::of(data, Subject::Engine(engine), window, &rest_on);
    measured_s.note("api_server_mean_s", data.measured_ms(Subject::Engine(engine), Metric::ApiSum, window));
    Latencies {
        ttft_s,
        e2e_s,
        itl_s,
        queue_s,
        tpot_s,
        prefill_s,
        decode_s,
        e2e_mean_s,
        queue_mean_s,
        prefill_mean_s,
        decode_mean_s,
        api_server_mean_s: api_server_mean(data, engine, window, gaps, &mut scratch),
        measured_s,
    }
}

fn api_server_mean(
    data: &Data,
    engine: u8,
    window: Window,
    gaps: &mut Gaps,
    scratch: &mut HistogramWindow,
) -> Option<f64> {
    let part = api_server(data, engine, window, scratch);
    match part.resolves.filter(|_| part.mean.value().is_none()) {
        Some(least) => {
            let words = format!("less than {}, which so few requests do not resolve", Seconds(Reading::new(least)));
            gaps.row("api_server_mean_s", Why::NotYet, Some(words));
            None
        }
        None => gaps.float_of("api_server_mean_s", Metric::ApiSum, part.mean),
    }
}

/// What a mean is worked out from.
fn rests_on(data: &Data, engine: u8, mean: Mean) -> Metric {
    if data.histogram(Subject::Engine(engine), mean.histogram).is_some() { mean.histogram } else { mean.sum }
}

fn latency(data: &Data, engine: u8, metric: Metric, window: Window, gaps: &mut Gaps) -> Latency {
    let mut sum = HistogramWindow::default();
    let lives = lives::window(data, Subject::Engine(engine), metric, window, &mut sum);
    let why = nothing_because(data, engine, metric, window);
    let seconds = sum.last.map(|_| sum.measured_ms as f64 / 1000.0);
    if seconds.is_none() {
        for key in ["window_s", "n", "restarts", "since_restart"] {
            gaps.row(key, why, None);
        }
    }
    let mut at = |name: &str, q: f64| {
        let found = quantile(&sum, q).map(Quantile::from);
        if found.is_none() {
            gaps.row(name, why, None);
        }
        found
    };
    Latency {
        window_s: seconds,
        n: seconds.map(|_| sum.n),
        restarts: seconds.map(|_| lives.restarts),
        since_restart: seconds.map(|_| lives.since_restart),
        p50: at("p50", 0.5),
        p95: at("p95", 0.95),
        p99: at("p99", 0.99),
    }
}

/// Why a window holds no two scrapes of a histogram, or no request.
fn nothing_because(data: &Data, engine: u8, metric: Metric, window: Window) -> Why {
    let Some(source) = data.source(SourceId::Engine(engine)) else { return data.never() };
    let state = source.state_at(window.end);
    match source.last_read(window.end) {
        Some(_) if data.histogram(Subject::Engine(engine), metric).is_none() => Why::Unsupported,
        _ if state.is_down() => why_of(state),
        Some(last) if last <= window.start => Why::Stale,
        // One scrape so far, or no traffic.
        Some(_) | None => Why::NotYet,
    }
}

impl From<quantile::Quantile> for Quantile {
    fn from(q: quantile::Quantile) -> Self {
        Self { value: short(q.value), lo: short(q.lo), hi: q.hi.map(short), enough: q.enough }
    }
}
