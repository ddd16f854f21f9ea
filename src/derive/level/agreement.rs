//! Client and server on the same thing: what shows that the client clocked what happened, and nobody else was served.
//!
//! The two never see quite the same. A server's gauges are read once a second, and its counters and histograms are known at
//! those moments only, so that their window is shifted by up to a second at either end. It observes TTFT when the first
//! token is made and E2E when a request ends, whenever it was sent, while the client's latencies are of the requests that it
//! dispatched in the measured time: so the server's window is moved by the client's median. In a steady state both are then
//! samples of the same thing; where the load grew until the level was ended there is none, and latencies are not compared.
//!
//! | row | agrees when |
//! | --- | --- |
//! | in flight | the client's mean is within 0.5 or 5 % of running + waiting ± two standard errors of so many readings |
//! | TTFT, E2E | the 95 % interval of the client's quantile meets the server's bucket, widened by 5 ms or 5 % for the way there |
//! | TPOT | the same, widened by 5 %: the way there is the same for every token |
//! | ITL | the client's median (it has no interval) is in the server's bucket, widened by 5 % |
//! | requests ended | the rates are within 3 %, or what a second of the window and the requests in flight make of it: those of a closed loop end in waves |
//! | output tokens | the rates are within 3 %, or what a second of the window makes of it |
//!
//! A high quantile is the highest that n allows on both sides. Invariant: no row where a side is missing, or where the server's
//! counters hold requests that are none of the level's.

use crate::derive::exposed::rate;
use crate::derive::quantile::{self, quantile};
use crate::load::Level;
use crate::load::level::{Agreement, Latency, Quantile, State};
use crate::model::{Metric, Subject};
use crate::store::{Bin, Data, HistogramWindow, Window};

/// The way from server to client and back, s …
const WAY_S: f64 = 0.005;
/// … or this share of a latency.
const WAY: f64 = 0.05;
/// Requests in flight may differ by so many …
const IN_FLIGHT: f64 = 0.5;
/// … or by this share.
const IN_FLIGHT_SHARE: f64 = 0.05;
/// Rates may differ by this share.
const RATE: f64 = 0.03;
/// How often an engine is read, ms.
const STEP_MS: u64 = 1_000;
/// Standard errors on each side of a mean.
const ERRORS: f64 = 2.0;

/// Every row that both sides have a figure for.
pub(super) fn rows(data: &Data, engine: u8, window: Window, level: &Level) -> Vec<Agreement> {
    let mut out: Vec<_> = in_flight(data, engine, window, level).into_iter().collect();
    if level.state != State::OverSaturated {
        latencies(data, engine, window, level, &mut out);
    }
    if !follows_trials(level) {
        out.extend(requests_ended(data, engine, window, level));
        out.extend(output_tokens(data, engine, window, level));
    }
    out
}

/// Whether the server's counters, which are known at readings only, hold trial requests as well: those that come right
/// before the first level, where it is measured without a warm-up. They are none of the client's figures.
const fn follows_trials(level: &Level) -> bool {
    level.place == 0 && level.from_unix_ms < level.started_unix_ms + 2 * STEP_MS
}

fn latencies(data: &Data, engine: u8, window: Window, level: &Level, out: &mut Vec<Agreement>) {
    let latencies = [
        ("TTFT", Metric::Ttft, &level.ttft_s, WAY_S, true),
        ("E2E", Metric::E2e, &level.e2e_s, WAY_S, true),
        ("ITL", Metric::Itl, &level.itl_s, 0.0, false),
        ("TPOT", Metric::Tpot, &level.tpot_s, 0.0, false),
    ];
    let mut histogram = HistogramWindow::default();
    for (name, metric, client, way_s, tail) in latencies {
        let seen = if metric == Metric::Ttft { &level.ttft_s } else { &level.e2e_s };
        let later = seen.p50.map_or(0, |p50| (p50.value * 1000.0) as u64);
        let window = Window { start: window.start + later, end: window.end + later };
        data.histogram_window(Subject::Engine(engine), metric, window, &mut histogram);
        let tail = tail.then(|| quantile::highest_allowed(client.n.min(histogram.n))).flatten().filter(|&q| q > 0.5);
        for q in [Some(0.5), tail].into_iter().flatten() {
            out.extend(latency(name, q, client, &histogram, way_s));
        }
    }
}

/// A row: the client's figure with its interval, and how far the server's may be off.
fn row(what: String, unit: &str, client: (f64, f64, f64), server: (f64, Option<f64>), open: f64) -> Agreement {
    let (value, lo, hi) = client;
    let agrees = hi >= server.0 - open && server.1.is_none_or(|most| lo <= most + open);
    Agreement { what, unit: unit.to_owned(), client: value, server_lo: server.0, server_hi: server.1, agrees }
}

/// The same for figures that are known without an interval on either side.
fn plain(what: &str, unit: &str, client: f64, server: f64, open: f64) -> Agreement {
    row(what.to_owned(), unit, (client, client, client), (server, Some(server)), open)
}

fn in_flight(data: &Data, engine: u8, window: Window, level: &Level) -> Option<Agreement> {
    let client = level.client.in_flight?;
    let mut readings = Vec::new();
    let [running, waiting] =
        [Metric::RequestsRunning, Metric::RequestsWaiting].map(|m| seconds(data, engine, m, window));
    for (running, waiting) in running.iter().zip(&waiting) {
        readings.extend(running.mean().zip(waiting.mean()).map(|(a, b)| f64::from(a + b)));
    }
    let n = readings.len() as f64;
    let mean = (n > 0.0).then(|| readings.iter().sum::<f64>() / n)?;
    // One reading says nothing of their spread; a gauge that stands still has none.
    let spread = readings.iter().map(|reading| (reading - mean).powi(2)).sum::<f64>() / (n - 1.0).max(1.0);
    let error = ERRORS * (spread / n).sqrt();
    let server = ((mean - error).max(0.0), Some(mean + error));
    let open = IN_FLIGHT.max(mean * IN_FLIGHT_SHARE);
    Some(row("in flight, mean".to_owned(), "requests", (client, client, client), server, open))
}

/// A gauge of the engine second by second.
fn seconds(data: &Data, engine: u8, metric: Metric, window: Window) -> Vec<Bin> {
    // As many as a day has: no sweep takes longer.
    let mut bins = vec![Bin::default(); window.ms().div_ceil(STEP_MS).min(86_400) as usize];
    data.fill(Subject::Engine(engine), metric, window, &mut bins);
    bins
}

fn latency(name: &str, q: f64, client: &Latency, histogram: &HistogramWindow, way_s: f64) -> Option<Agreement> {
    let server = quantile(histogram, q).filter(|server| server.enough)?;
    let Quantile { value, lo, hi, .. } = at(client, q).filter(|client| client.enough)?;
    let open = way_s.max(value * WAY);
    let what = format!("{name} P{:.0}", q * 100.0);
    Some(row(what, "s", (value, lo.unwrap_or(value), hi.unwrap_or(value)), (server.lo, server.hi), open))
}

/// The client's quantile.
fn at(client: &Latency, q: f64) -> Option<Quantile> {
    match q {
        q if q >= 0.99 => client.p99,
        q if q >= 0.95 => client.p95,
        _ => client.p50,
    }
}

fn requests_ended(data: &Data, engine: u8, window: Window, level: &Level) -> Option<Agreement> {
    let server = rate(data, engine, Metric::RequestsFinished, window).value()?;
    let wave = level.client.in_flight.unwrap_or(0.0) * 1000.0 / window.ms() as f64;
    let open = (server * RATE).max(wave + server * step(window));
    Some(plain("requests ended", "1/s", level.requests_per_s?.value, server, open))
}

fn output_tokens(data: &Data, engine: u8, window: Window, level: &Level) -> Option<Agreement> {
    let server = rate(data, engine, Metric::GenerationTokens, window).value()?;
    let open = server * RATE.max(step(window));
    Some(plain("output tokens", "1/s", level.output_tokens_per_s?.value, server, open))
}

/// Share of the window that lies between two readings of the engine.
fn step(window: Window) -> f64 {
    STEP_MS as f64 / window.ms().max(STEP_MS) as f64
}
