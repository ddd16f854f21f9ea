//! The time × concurrency map on recordings of a real H200 against the clients' own clock.
//!
//! In each the clients held some numbers of requests in flight one after another, all within one minute. What
//! ran between two scrapes is read here from the recording's lines and not through the store.

#![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::io::Read;

use flate2::read::GzDecoder;
use warptop::derive::concurrency::{COLUMN_MS, Cell, Column, Map};
use warptop::derive::quantile::enough;
use warptop::model::{Metric, SourceId, Subject, Time};
use warptop::recording::Reader;
use warptop::sampler::replay::load;
use warptop::store::{Retention, Store};

/// A recording, its clients' requests, and the phases of its first busy minute: name, row, and the least and
/// most that ran in that row.
struct Run {
    recording: &'static [u8],
    requests: &'static [u8],
    phases: &'static [(&'static str, usize, [f64; 2])],
    /// Phases that have enough requests, and the quantile they are enough for.
    shown: &'static [(&'static str, f64)],
}

static RUNS: [Run; 2] = [
    Run {
        recording: include_bytes!("../assets/recordings/h200-vllm-0.25.1.jsonl.gz"),
        requests: include_bytes!("../assets/recordings/h200-vllm-0.25.1-requests.csv.gz"),
        phases: &[("c1", 0, [1.0, 1.0]), ("c4", 2, [3.0, 4.0]), ("c16", 4, [9.0, 16.0]), ("c64", 6, [33.0, 64.0])],
        shown: &[("c16", 0.95), ("c64", 0.99)],
    },
    Run {
        recording: include_bytes!("../assets/recordings/h200-latency.jsonl.gz"),
        requests: include_bytes!("../assets/recordings/h200-latency-requests.csv.gz"),
        phases: &[("c2", 1, [2.0, 2.0]), ("c8", 3, [5.0, 8.0]), ("c32", 5, [17.0, 32.0])],
        shown: &[("c8", 0.95), ("c32", 0.99)],
    },
];

/// What is counted at the first token, and at the end: the metric and its column among the requests.
const METRICS: [(Metric, usize); 2] = [(Metric::Ttft, 2), (Metric::E2e, 3)];

impl Run {
    /// Start and latency of a phase's requests, ms; the latency in that column of the file.
    fn requests(&self, phase: &str, column: usize) -> Vec<(f64, f64)> {
        let mut text = String::new();
        GzDecoder::new(self.requests).read_to_string(&mut text).unwrap();
        let fields = text.lines().skip(1).map(|line| line.split(',').collect::<Vec<_>>()).filter(|f| f[0] == phase);
        let number = |text: &str| text.parse::<f64>().unwrap();
        fields.map(|f| (number(f[1]), number(f[column]))).collect()
    }

    /// The minute of the phases, and its end in ms.
    fn minute(&self) -> (u64, f64) {
        let first = self.requests(self.phases[0].0, 2).into_iter().map(|(start, _)| start).fold(f64::MAX, f64::min);
        let minute = first as u64 / COLUMN_MS;
        (minute, ((minute + 1) * COLUMN_MS) as f64)
    }

    /// When each scrape was and how many ran then.
    fn scrapes(&self) -> Vec<(f64, f64)> {
        let of_engine = Reader::new(self.recording).unwrap().filter(|batch| batch.source == SourceId::Engine(0));
        let running = of_engine.filter_map(|batch| {
            let sample = batch.samples.iter().find(|s| s.metric == Metric::RequestsRunning)?;
            Some((batch.at.0 as f64, sample.reading.value()?))
        });
        running.collect()
    }

    fn column(&self, metric: Metric) -> Column {
        let store = Store::new(Retention::HOUR);
        load(&mut Reader::new(self.recording).unwrap(), &store, None).unwrap();
        let mut map = Map::default();
        map.follow(&store.read(), Subject::Engine(0), metric, Time((self.minute().0 + 1) * COLUMN_MS), 5);
        *map.columns().back().unwrap()
    }

    /// A latency that the client observed while the number running stayed inside the phase's row, s.
    fn truth(&self, phase: &str, column: usize, row: [f64; 2]) -> Vec<f64> {
        let inside = |n: f64| (row[0]..=row[1]).contains(&n);
        let (scrapes, end) = (self.scrapes(), self.minute().1);
        let steady = |at: f64| {
            scrapes.windows(2).any(|p| p[0].0 < at && at <= p[1].0 && p[1].0 <= end && inside(p[0].1) && inside(p[1].1))
        };
        let observed = self.requests(phase, column).into_iter().filter(|(start, latency)| steady(start + latency));
        let mut values: Vec<f64> = observed.map(|(_, latency)| latency / 1000.0).collect();
        values.sort_by(f64::total_cmp);
        values
    }
}

/// 5 % and 20 ms are allowed for what lies between client and server.
#[test]
fn each_phase_is_in_its_row_with_the_clients_tail_inside_the_bounds() {
    for (run, (metric, at)) in RUNS.iter().flat_map(|run| METRICS.map(|m| (run, m))) {
        let column = run.column(metric);
        let mut shown = Vec::new();
        for &(phase, row, span) in run.phases {
            let (truth, cell) = (run.truth(phase, at, span), column.cells[row]);
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
            let error = quantile.value / want - 1.0;
            assert!(error.abs() <= 0.25, "{phase} {metric:?}: the estimate is off by {error}");
            shown.push((phase, q));
        }
        assert_eq!(shown, run.shown, "{metric:?}: the others have too few requests");
    }
}

/// Nothing is in a row that no phase held, and what was seen while the number moved is apart.
#[test]
fn other_rows_are_empty_and_nothing_is_lost() {
    let run = &RUNS[0];
    for (metric, at) in METRICS {
        let column = run.column(metric);
        assert!([1, 3, 5, 7].iter().all(|&row: &usize| column.cells[row] == Cell::Empty), "{column:?}");
        let end = run.minute().1;
        let last = run.scrapes().iter().map(|s| s.0).filter(|&at| at <= end).fold(0.0, f64::max);
        let all =
            |phase| run.requests(phase, at).into_iter().filter(|(start, latency)| start + latency <= last).count();
        let all: usize = run.phases.iter().map(|(phase, ..)| all(phase)).sum();
        let seen = column.cells.iter().map(Cell::n).sum::<u64>() + column.mixed + column.unplaced;
        assert!(all.abs_diff(seen as usize) <= all / 50, "{all} by the clients, {seen} on the map");
        assert!(column.mixed > 0, "{column:?}");
    }
}
