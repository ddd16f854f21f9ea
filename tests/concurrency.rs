//! The time × concurrency map on the recording of a real H200 against the client's own clock.
//!
//! The client held 1, 4, 16 and 64 requests in flight one after another, all within one minute. What ran
//! between two scrapes is read here from the recording's lines and not through the store.

#![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::io::Read;

use flate2::read::GzDecoder;
use warptop::derive::concurrency::{COLUMN_MS, Cell, Column, Map};
use warptop::derive::quantile::enough;
use warptop::model::{Metric, SourceId, Subject, Time};
use warptop::recording::Reader;
use warptop::sampler::replay::load;
use warptop::store::{Retention, Store};

static RECORDING: &[u8] = include_bytes!("../assets/recordings/h200-vllm-0.25.1.jsonl.gz");
static REQUESTS: &[u8] = include_bytes!("../assets/recordings/h200-vllm-0.25.1-requests.csv.gz");

/// Phase, its row, and how many requests may have been running in that row.
const PHASES: [(&str, usize, [f64; 2]); 4] =
    [("c1", 0, [1.0, 1.0]), ("c4", 2, [3.0, 4.0]), ("c16", 4, [9.0, 16.0]), ("c64", 6, [33.0, 64.0])];

/// The minute of the four phases.
fn minute() -> u64 {
    let first = requests("c1", 0).into_iter().map(|(start, _)| start).fold(f64::MAX, f64::min);
    first as u64 / COLUMN_MS
}

/// Start and observed latency of a phase's requests, ms: 0 for the time to first token, 1 for the whole.
fn requests(phase: &str, which: usize) -> Vec<(f64, f64)> {
    let mut text = String::new();
    GzDecoder::new(REQUESTS).read_to_string(&mut text).unwrap();
    let fields = text.lines().skip(1).map(|line| line.split(',').collect::<Vec<_>>()).filter(|f| f[0] == phase);
    let number = |text: &str| text.parse::<f64>().unwrap();
    fields.map(|f| (number(f[1]), number(f[2 + which]))).collect()
}

/// When each scrape was and how many ran then.
fn scrapes() -> Vec<(f64, f64)> {
    let of_engine = Reader::new(RECORDING).unwrap().filter(|batch| batch.source == SourceId::Engine(0));
    let running = of_engine.filter_map(|batch| {
        let sample = batch.samples.iter().find(|s| s.metric == Metric::RequestsRunning)?;
        Some((batch.at.0 as f64, sample.reading.value()?))
    });
    running.collect()
}

fn column(metric: Metric) -> Column {
    let store = Store::new(Retention::HOUR);
    load(&mut Reader::new(RECORDING).unwrap(), &store, None).unwrap();
    let mut map = Map::default();
    map.follow(&store.read(), Subject::Engine(0), metric, Time((minute() + 1) * COLUMN_MS), 5);
    *map.columns().back().unwrap()
}

/// A latency that the client observed while the number running stayed inside the phase's row, s.
fn truth(phase: &str, which: usize, row: [f64; 2]) -> Vec<f64> {
    let inside = |n: f64| (row[0]..=row[1]).contains(&n);
    let scrapes = scrapes();
    let end = ((minute() + 1) * COLUMN_MS) as f64;
    let steady = |at: f64| {
        scrapes.windows(2).any(|p| p[0].0 < at && at <= p[1].0 && p[1].0 <= end && inside(p[0].1) && inside(p[1].1))
    };
    let observed = requests(phase, which).into_iter().filter(|(start, latency)| steady(start + latency));
    let mut values: Vec<f64> = observed.map(|(_, latency)| latency / 1000.0).collect();
    values.sort_by(f64::total_cmp);
    values
}

/// 5 % and 20 ms are allowed for what lies between client and server.
#[test]
fn each_phase_is_in_its_row_with_the_clients_tail_inside_the_bounds() {
    for (which, metric) in [(0, Metric::Ttft), (1, Metric::E2e)] {
        let column = column(metric);
        let mut shown = Vec::new();
        for (phase, row, span) in PHASES {
            let (truth, cell) = (truth(phase, which, span), column.cells[row]);
            assert!(truth.len().abs_diff(cell.n() as usize) <= 1 + truth.len() / 20, "{phase} {metric:?}: {cell:?}");
            let (q, quantile) = match cell {
                Cell::P99(quantile) => (0.99, quantile),
                Cell::P95(quantile) => (0.95, quantile),
                Cell::Few(_) | Cell::Empty => {
                    assert!(!enough(0.95, cell.n()), "{phase}");
                    continue;
                }
            };
            assert_eq!(enough(0.99, quantile.n), q > 0.98, "{phase}");
            let want = truth[(truth.len() as f64 * q).ceil() as usize - 1];
            let hi = quantile.hi.unwrap();
            assert!(
                quantile.lo <= want * 1.05 + 0.02 && want * 0.95 - 0.02 <= hi,
                "{phase} {metric:?}: {want} not in {quantile:?}"
            );
            shown.push((phase, q));
        }
        assert_eq!(shown, [("c16", 0.95), ("c64", 0.99)], "{metric:?}: 1 and 4 clients have too few requests");
    }
}

/// Nothing is in a row that no phase held, and what was seen while the number moved is apart.
#[test]
fn other_rows_are_empty_and_nothing_is_lost() {
    for (which, metric) in [(0, Metric::Ttft), (1, Metric::E2e)] {
        let column = column(metric);
        assert!([1, 3, 5, 7].iter().all(|&row: &usize| column.cells[row] == Cell::Empty), "{column:?}");
        let end = ((minute() + 1) * COLUMN_MS) as f64;
        let last = scrapes().iter().map(|s| s.0).filter(|&at| at <= end).fold(0.0, f64::max);
        let all = |phase| requests(phase, which).into_iter().filter(|(start, latency)| start + latency <= last).count();
        let all: usize = PHASES.iter().map(|(phase, ..)| all(phase)).sum();
        let seen = column.cells.iter().map(Cell::n).sum::<u64>() + column.mixed + column.unplaced;
        assert!(all.abs_diff(seen as usize) <= all / 50, "{all} by the clients, {seen} on the map");
        assert!(column.mixed > 0, "{column:?}");
    }
}
