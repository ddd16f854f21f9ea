//! The estimated quantiles of real runs against the clocks of the clients that made the load.
//!
//! Two runs of vLLM 0.25.1 on an H200, scraped once a second: the one that the method was worked out on, and one that was made
//! to check it; and one of vLLM 0.32.0 on two busy CPUs, made when the method was done. What a window's requests took by their clients is the truth; it is known apart from
//! everything that warptop reads. The tables in docs/latency.md are written here:
//! `UPDATE_TIDY=1 cargo test --test latency`.

#![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::fmt::Write as _;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::sync::LazyLock;

use flate2::read::GzDecoder;
use warptop::derive::quantile::{Quantile, quantile};
use warptop::model::{Metric, SourceId, Subject, Time};
use warptop::recording::Reader;
use warptop::sampler::replay::load;
use warptop::store::{HistogramWindow, Retention, Store, Window};

/// A recording with its clients' requests.
struct Run {
    name: &'static str,
    recording: &'static [u8],
    requests: &'static [u8],
    phases: &'static [&'static str],
}

const RUNS: [Run; 3] = [
    Run {
        name: "worked out on",
        recording: include_bytes!("../assets/recordings/h200-vllm-0.25.1.jsonl.gz"),
        requests: include_bytes!("../assets/recordings/h200-vllm-0.25.1-requests.csv.gz"),
        phases: &["c1", "c4", "c16", "c64"],
    },
    Run {
        name: "checked with",
        recording: include_bytes!("../assets/recordings/h200-latency.jsonl.gz"),
        requests: include_bytes!("../assets/recordings/h200-latency-requests.csv.gz"),
        phases: &["c2", "c8", "c32", "c128", "c256", "long4k", "long16k", "varied48", "open12", "burst40", "overload"],
    },
    Run {
        name: "on two CPUs",
        recording: include_bytes!("../assets/recordings/cpu-latency.jsonl.gz"),
        requests: include_bytes!("../assets/recordings/cpu-latency-requests.csv.gz"),
        phases: &["c1", "c2", "c4", "c8", "c16", "c32"],
    },
];

/// One request by its client's clock, ms.
struct Request {
    phase: String,
    start: f64,
    ttft: f64,
    e2e: f64,
}

impl Request {
    fn took(&self, metric: Metric) -> f64 {
        if metric == Metric::Ttft { self.ttft } else { self.e2e }
    }
}

fn requests(packed: &[u8]) -> Vec<Request> {
    let mut text = String::new();
    GzDecoder::new(packed).read_to_string(&mut text).unwrap();
    let parse = |line: &str| {
        let fields: Vec<_> = line.split(',').collect();
        let number = |i: usize| fields[i].parse().unwrap();
        Request { phase: fields[0].to_owned(), start: number(1), ttft: number(2), e2e: number(3) }
    };
    text.lines().skip(1).map(parse).collect()
}

/// A run in the store, with its scrapes.
struct Loaded {
    run: &'static Run,
    store: Store,
    scrapes: Vec<u64>,
    requests: Vec<Request>,
}

impl Loaded {
    fn new(run: &'static Run) -> Self {
        let store = Store::new(Retention::HOUR);
        load(&mut Reader::new(run.recording).unwrap(), &store, None).unwrap();
        let batches = Reader::new(run.recording).unwrap();
        let scraped = batches.filter(|b| b.source == SourceId::Engine(0) && !b.histograms.is_empty());
        Self { run, store, scrapes: scraped.map(|b| b.at.0).collect(), requests: requests(run.requests) }
    }

    /// From the first to the last scrape inside a phase.
    fn window(&self, phase: &str) -> Window {
        let of_phase = || self.requests.iter().filter(|r| r.phase == phase);
        let from = of_phase().map(|r| r.start).fold(f64::MAX, f64::min);
        let to = of_phase().map(|r| r.start + r.e2e).fold(0.0, f64::max);
        let inside = || self.scrapes.iter().filter(|&&t| (from..=to).contains(&(t as f64)));
        Window { start: Time(*inside().next().unwrap()), end: Time(*inside().next_back().unwrap()) }
    }

    fn histogram(&self, metric: Metric, window: Window) -> HistogramWindow {
        let mut out = HistogramWindow::default();
        self.store.read().histogram_window(Subject::Engine(0), metric, window, &mut out);
        out
    }

    /// What requests took whose first token, or end, came in the window, s, sorted.
    fn truths(&self, metric: Metric, window: Window) -> Vec<f64> {
        let seen = |r: &&Request| {
            let at = r.start + r.took(metric);
            window.start.0 as f64 <= at && at <= window.end.0 as f64
        };
        let mut all: Vec<_> = self.requests.iter().filter(seen).map(|r| r.took(metric) / 1000.0).collect();
        all.sort_by(f64::total_cmp);
        all
    }
}

/// All runs, read once.
static LOADED: LazyLock<Vec<Loaded>> = LazyLock::new(|| RUNS.iter().map(Loaded::new).collect());

/// One row of the table.
struct Row {
    run: &'static str,
    phase: &'static str,
    metric: Metric,
    truth: f64,
    n: usize,
    got: Quantile,
    linear: f64,
}

impl Row {
    fn new(loaded: &Loaded, phase: &'static str, metric: Metric, window: Window, q: f64) -> Option<Self> {
        let histogram = loaded.histogram(metric, window);
        let truths = loaded.truths(metric, window);
        let got = quantile(&histogram, q)?;
        let truth = truths[rank(q, truths.len()) - 1];
        let linear = linear(&histogram, q);
        Some(Self { run: loaded.run.name, phase, metric, truth, n: truths.len(), got, linear })
    }

    fn error(&self) -> f64 {
        self.got.value / self.truth - 1.0
    }

    fn linear_error(&self) -> f64 {
        self.linear / self.truth - 1.0
    }

    /// How far the clients' quantile lies outside the interval that certainly holds the engine's, s.
    fn outside(&self) -> f64 {
        let above = self.got.hi.map_or(0.0, |hi| self.truth - hi);
        above.max(self.got.lo - self.truth).max(0.0)
    }

    /// 5 % and 20 ms are allowed for what lies between client and server.
    fn inside(&self) -> bool {
        self.got.lo <= self.truth * 1.05 + 0.02 && self.got.hi.is_some_and(|hi| self.truth * 0.95 - 0.02 <= hi)
    }
}

fn rank(q: f64, n: usize) -> usize {
    ((q * n as f64).ceil() as usize).clamp(1, n)
}

/// Linear in rank inside the bucket, as Prometheus does it.
fn linear(histogram: &HistogramWindow, q: f64) -> f64 {
    let rank = rank(q, histogram.n as usize) as u64;
    let mut below = 0;
    let bucket = histogram.counts.iter().position(|n| {
        below += n;
        below >= rank
    });
    let bucket = bucket.unwrap();
    let inside = histogram.counts[bucket];
    let (lo, hi) = (if bucket == 0 { 0.0 } else { histogram.edges[bucket - 1] }, histogram.edges[bucket]);
    lo + (hi - lo) * (rank + inside - below) as f64 / inside as f64
}

fn rows(q: f64) -> Vec<Row> {
    let mut rows = Vec::new();
    for loaded in LOADED.iter() {
        for metric in [Metric::Ttft, Metric::E2e] {
            rows.extend(loaded.run.phases.iter().filter_map(|p| Row::new(loaded, p, metric, loaded.window(p), q)));
        }
    }
    rows
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.map(f64::abs).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[test]
fn the_truth_is_inside_the_interval_and_the_estimate_is_near_it() {
    let rows = rows(0.99);
    assert_eq!(rows.len(), 42);
    for row in &rows {
        let Row { phase, metric, truth, n, got, .. } = row;
        assert!(row.inside(), "{phase} {metric:?}: {truth} is not in {got:?}");
        // A request on the border may be counted on one side only.
        assert!(got.n.abs_diff(*n as u64) <= 1, "{phase} {metric:?}: {n} requests, {got:?}");
        assert!(row.error().abs() < 0.25, "{phase} {metric:?}: {truth}, {got:?}");
    }
    for run in &RUNS {
        let of_run = || rows.iter().filter(|row| row.run == run.name);
        let (error, linear) = (median(of_run().map(Row::error)), median(of_run().map(Row::linear_error)));
        assert!(error <= 0.08, "{}: {error}", run.name);
        assert!(linear >= 0.1, "{}: {linear}: this run does not tell a good estimate from a bad one", run.name);
    }
}

/// Rows of windows of so many scrapes, which have nothing to do with the phases.
fn short(seconds: usize, q: f64) -> Vec<Row> {
    let mut rows = Vec::new();
    for loaded in LOADED.iter() {
        let known = |r: &&Request| loaded.run.phases.contains(&r.phase.as_str());
        let last = loaded.requests.iter().filter(known).map(|r| r.start + r.e2e).fold(0.0, f64::max);
        let ends: Vec<_> = loaded.scrapes.iter().step_by(seconds).take_while(|&&end| end as f64 <= last).collect();
        for pair in ends.windows(2) {
            let window = Window { start: Time(*pair[0]), end: Time(*pair[1]) };
            for metric in [Metric::Ttft, Metric::E2e] {
                // Where the client counts others than the server, near a border, its quantile is another one.
                let n = loaded.truths(metric, window).len();
                let same = |row: &Row| row.got.n.abs_diff(n as u64) * 50 <= n as u64;
                rows.extend(
                    Some(n).filter(|n| *n >= 6).and_then(|_| Row::new(loaded, "", metric, window, q)).filter(same),
                );
            }
        }
    }
    rows
}

#[test]
fn short_windows_are_no_worse() {
    for (seconds, most) in SHORT {
        for q in [0.5, 0.95, 0.99] {
            let rows = short(seconds, q);
            assert!(rows.len() > 15, "{seconds} s: {}", rows.len());
            let (error, linear) = (median(rows.iter().map(Row::error)), median(rows.iter().map(Row::linear_error)));
            assert!(error <= most && error < linear, "P{:.0} of {seconds} s: {error}, {linear}", q * 100.0);
        }
    }
}

/// Seconds of a window, and the largest median error of P50, P95 and P99 in such windows.
const SHORT: [(usize, f64); 4] = [(1, 0.08), (5, 0.06), (10, 0.06), (30, 0.06)];

/// The value at rank `q` of some sizes.
fn at(q: f64, sizes: impl Iterator<Item = f64>) -> f64 {
    let mut sizes: Vec<_> = sizes.map(f64::abs).collect();
    sizes.sort_by(f64::total_cmp);
    sizes.get(rank(q, sizes.len()).saturating_sub(1)).copied().unwrap_or(0.0)
}

fn short_table() -> String {
    let mut table =
        "| window | of | | windows | median error | 9 of 10 below | linear | 9 of 10 below | outside | by at most |\n\
         | --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n"
            .to_owned();
    for ((seconds, _), q) in SHORT.into_iter().flat_map(|short| [0.5, 0.95, 0.99].map(|q| (short, q))) {
        let rows = short(seconds, q);
        for (metric, name) in [(Metric::Ttft, "TTFT"), (Metric::E2e, "E2E")] {
            let of = || rows.iter().filter(|row| row.metric == metric);
            let outside = of().filter(|row| row.outside() > 0.0).count();
            let _ = writeln!(
                table,
                "| {seconds} s | {name} | P{:.0} | {} | {:.1} % | {:.0} % | {:.0} % | {:.0} % | {:.0} % | {:.0} ms |",
                q * 100.0,
                of().count(),
                at(0.5, of().map(Row::error)) * 100.0,
                at(0.9, of().map(Row::error)) * 100.0,
                at(0.5, of().map(Row::linear_error)) * 100.0,
                at(0.9, of().map(Row::linear_error)) * 100.0,
                outside as f64 / of().count() as f64 * 100.0,
                at(1.0, of().map(Row::outside)) * 1000.0,
            );
        }
    }
    table
}

fn table() -> String {
    let mut table = "| run | phase | of | n | truth, s | interval, s | estimate, s | error | linear |\n\
                     | --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n"
        .to_owned();
    let all = rows(0.99);
    for row in &all {
        let of = if row.metric == Metric::Ttft { "TTFT" } else { "E2E" };
        let interval = format!("{}–{}", row.got.lo, row.got.hi.unwrap_or(f64::INFINITY));
        let Row { run, phase, n, truth, .. } = row;
        let _ = writeln!(
            table,
            "| {run} | {phase} | {of} | {n} | {truth:.3} | {interval} | {:.3} | {:+.0} % | {:+.0} % |",
            row.got.value,
            row.error() * 100.0,
            row.linear_error() * 100.0,
        );
    }
    for run in &RUNS {
        let of_run = || all.iter().filter(|row| row.run == run.name);
        let (error, linear) = (median(of_run().map(Row::error)), median(of_run().map(Row::linear_error)));
        let _ = writeln!(
            table,
            "| {} | median of the sizes | | | | | | {:.1} % | {:.0} % |",
            run.name,
            error * 100.0,
            linear * 100.0
        );
    }
    table
}

#[test]
fn the_tables_in_the_document_are_what_comes_out() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/latency.md");
    for (name, table) in [("phases", table()), ("short windows", short_table())] {
        let text = fs::read_to_string(&path).unwrap();
        let (start, end) =
            (format!("<!-- {name}: written by tests/latency.rs -->\n"), format!("<!-- end of {name} -->"));
        let (before, rest) = text.split_once(&start).unwrap();
        let (held, after) = rest.split_once(&end).unwrap();
        if held != table && std::env::var_os("UPDATE_TIDY").is_some() {
            fs::write(&path, [before, &start, &table, &end, after].concat()).unwrap();
            continue;
        }
        assert_eq!(held, table, "{name}: write it anew with UPDATE_TIDY=1 cargo test --test latency");
    }
}
