//! The map on synthetic histograms whose truth is known, and on stores scraped as samplers do it.

use proptest::prelude::*;

use super::*;
use crate::model::{Batch, HistogramSample, SourceId, SourceState};
use crate::store::{Retention, Store};

const EDGES: [f64; 6] = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2];
const ENGINE: Subject = Subject::Engine(0);
/// The first minute of the maps here.
const SLOT: u64 = 1000;

/// The end of a second, counted from the start of minute [`SLOT`].
fn at(second: u64) -> Time {
    Time(SLOT * COLUMN_MS + second * 1000)
}

/// One piece a minute for each `(minute, row, counts)`.
fn map(minutes: u64, pieces: &[(u64, usize, [u32; 7])]) -> Map {
    let pieces = pieces.iter().map(|(minute, row, counts)| Piece {
        interval: Interval::whole(at(minute * 60 + 1), at(minute * 60 + 2), counts),
        level: Level::Row(*row),
    });
    Map::of(&EDGES.into(), SLOT..=SLOT + minutes - 1, pieces)
}

/// Counts whose P99 is the largest observation of `bucket`.
const fn ends_at(bucket: usize) -> [u32; 7] {
    let mut counts = [0; 7];
    counts[bucket] = 396;
    counts[bucket + 1] = 4;
    counts
}

/// A second of scraping: requests running at its end, and requests observed in it by bucket; `None` failed.
type Second = Option<(f64, [u32; 7])>;

/// A store scraped each second from the start of minute [`SLOT`] on.
fn store(seconds: &[Second]) -> Store {
    let store = Store::new(Retention::HOUR);
    let mut totals = [0.0; 7];
    for (i, second) in seconds.iter().enumerate() {
        let mut batch = Batch::new(SourceId::Engine(0), at(i as u64), 3500);
        batch.state = Some(SourceState::Failed("refused".into()));
        if let Some((running, counts)) = second {
            totals.iter_mut().zip(counts).for_each(|(total, &n)| *total += f64::from(n));
            push(&mut batch, *running, totals);
        }
        store.push(&batch);
    }
    store
}

fn push(batch: &mut Batch, running: f64, totals: [f64; 7]) {
    batch.state = Some(SourceState::Ok);
    batch.push(ENGINE, Metric::RequestsRunning, running);
    let cumulative = totals.iter().scan(0.0, |sum, n| {
        *sum += n;
        Some(*sum)
    });
    batch.histograms.push(HistogramSample {
        sets: 0,
        subject: ENGINE,
        metric: Metric::E2e,
        edges: EDGES.into(),
        cumulative: cumulative.collect(),
        sum: None,
    });
}

fn follow(store: &Store, end: Time, columns: u16) -> Map {
    let mut map = Map::default();
    map.follow(&store.read(), ENGINE, Metric::E2e, end, columns);
    map
}

/// `n` requests of one bucket a second.
const fn one(bucket: usize, n: u32) -> [u32; 7] {
    let mut counts = [0; 7];
    counts[bucket] = n;
    counts
}

#[test]
fn rows_are_powers_of_two_and_nothing_is_lost_above() {
    let rows = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 8.0, 16.0, 17.0, 33.0, 64.0, 65.0, 1e9].map(row_of);
    let want = [None, Some(0), Some(1), Some(2), Some(2), Some(3), Some(3), Some(4), Some(5), Some(6), Some(6)];
    assert_eq!(rows[..11], want);
    assert_eq!(rows[11..], [Some(7), Some(7)]);
    assert_eq!(row_of(f64::NAN), None);
    for running in 1..=200 {
        let (least, most) = row_span(row_of(f64::from(running)).unwrap());
        assert!(least <= running && most.is_none_or(|most| running <= most), "{running}: {least} to {most:?}");
    }
}

#[test]
fn cells_are_gated_by_what_was_observed_in_them() {
    let map = map(1, &[(0, 0, one(2, 71)), (0, 1, one(2, 72)), (0, 2, one(2, 367)), (0, 3, one(2, 368))]);
    let cells = map.columns()[0].cells;
    assert_eq!(cells[0], Cell::Few(71));
    assert!(matches!(cells[1], Cell::P95(q) if q.n == 72), "{cells:?}");
    assert!(matches!(cells[2], Cell::P95(_)), "{cells:?}");
    assert!(matches!(cells[3], Cell::P99(q) if (q.lo, q.hi) == (0.2, Some(0.4))), "{cells:?}");
    assert_eq!(cells[4], Cell::Empty);
}

/// The mean of two P99s would be 0.2 s; the P99 of the union is the slow minute's.
#[test]
fn histograms_are_merged_and_quantiles_are_not_averaged() {
    let pieces = [(0, 4, one(0, 500)), (0, 4, one(3, 10))];
    let Cell::P99(q) = map(1, &pieces).columns()[0].cells[4] else { panic!("510 observations are a P99") };
    assert_eq!((q.n, q.lo, q.hi), (510, 0.4, Some(0.8)));
}

/// Four closed-loop levels, each with its own latency, each in its own row with its own P99.
#[test]
fn each_level_of_a_closed_loop_has_its_row_and_its_p99() {
    let phase = |running: f64, bucket| vec![Some((running, one(bucket, 40))); 15];
    let mut seconds = vec![Some((1.0, [0; 7]))];
    for (running, bucket) in [(1.0, 0), (4.0, 1), (16.0, 2), (64.0, 3)] {
        seconds.extend(phase(running, bucket));
    }
    let map = follow(&store(&seconds), at(60), 1);
    let column = map.columns()[0];
    let bounds = |row: usize| column.cells[row].quantile().map(|q| (q.n, q.lo, q.hi));
    assert_eq!(bounds(0), Some((600, 0.0, Some(0.1))));
    // The second in which the level changed is in no row.
    assert_eq!(bounds(2), Some((560, 0.1, Some(0.2))));
    assert_eq!(bounds(4), Some((560, 0.2, Some(0.4))));
    assert_eq!(bounds(6), Some((560, 0.4, Some(0.8))));
    assert_eq!((column.mixed, column.unplaced, column.idle, column.gap), (120, 0, false, false));
}

#[test]
fn a_level_that_moves_inside_an_interval_is_mixed() {
    let store = Store::new(Retention::HOUR);
    let read = |second: u64, ms: u64, running: f64, scrape: Option<f64>| {
        let mut batch = Batch::new(SourceId::Engine(0), at(second) + ms, 3500);
        batch.partial = scrape.is_none();
        match scrape {
            Some(n) => push(&mut batch, running, [0.0, n, 0.0, 0.0, 0.0, 0.0, 0.0]),
            None => batch.push(ENGINE, Metric::RequestsRunning, running),
        }
        store.push(&batch);
    };
    read(1, 0, 8.0, Some(0.0));
    read(1, 500, 20.0, None);
    read(2, 0, 8.0, Some(10.0));
    read(2, 500, 7.0, None);
    read(3, 0, 8.0, Some(13.0));
    let map = follow(&store, at(4), 1);
    assert_eq!((map.columns()[0].mixed, map.columns()[0].cells[3]), (10, Cell::Few(3)));
}

#[test]
fn what_comes_and_goes_between_idle_readings_is_mixed() {
    let map = follow(&store(&[Some((0.0, [0; 7])), Some((0.0, one(1, 2))), Some((0.0, [0; 7]))]), at(3), 1);
    let column = map.columns()[0];
    assert_eq!((column.mixed, column.idle, column.cells), (2, true, [Cell::Empty; ROWS]));
}

#[test]
fn a_level_that_was_not_read_places_nothing() {
    let store = Store::new(Retention::HOUR);
    for (i, n) in [0.0, 9.0].into_iter().enumerate() {
        let mut batch = Batch::new(SourceId::Engine(0), at(i as u64 + 1), 3500);
        push(&mut batch, 4.0, [n, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
        batch.samples.clear();
        store.push(&batch);
    }
    let column = follow(&store, at(3), 1).columns()[0];
    assert_eq!((column.unplaced, column.mixed, column.cells), (9, 0, [Cell::Empty; ROWS]));
}

/// P99s of about 0.2 and 0.4 s at rows 2 and 4 in one minute, 0.8 and 1.6 s two minutes later.
const CORNERS: [(u64, usize, [u32; 7]); 4] =
    [(0, 2, ends_at(1)), (0, 4, ends_at(2)), (2, 2, ends_at(3)), (2, 4, ends_at(4))];

fn near(got: Option<f64>, want: f64) {
    assert!(got.is_some_and(|got| (got - want).abs() < 1e-9), "{got:?}, not {want}");
}

#[test]
fn between_corners_it_is_bilinear_in_log_latency() {
    let mut pieces = CORNERS.to_vec();
    pieces.insert(2, (1, 0, one(1, 1)));
    let map = map(3, &pieces);
    let p99 = |c: usize, r: usize| map.columns()[c].cells[r].quantile().unwrap().value;
    let corners = [p99(0, 2), p99(0, 4), p99(2, 2), p99(2, 4)];
    assert!(corners.is_sorted() && corners[3] > corners[0] * 4.0, "{corners:?}");
    // On a line: the geometric mean of two.
    near(map.between(0, 3), (corners[0] * corners[1]).sqrt());
    near(map.between(2, 3), (corners[2] * corners[3]).sqrt());
    near(map.between(1, 2), (corners[0] * corners[2]).sqrt());
    near(map.between(1, 4), (corners[1] * corners[3]).sqrt());
    // In the middle: of all four.
    near(map.between(1, 3), corners.iter().product::<f64>().powf(0.25));
    // Not outside of what was measured, and not over data.
    for (c, r) in [(0, 1), (0, 5), (1, 1), (1, 5), (2, 7), (0, 2), (1, 0)] {
        assert_eq!(map.between(c, r), None, "{c} {r}");
    }
}

#[test]
fn a_third_of_the_way_is_a_third_of_the_logarithm() {
    let map = map(4, &[(0, 2, ends_at(1)), (1, 0, one(0, 1)), (2, 0, one(0, 1)), (3, 2, ends_at(4))]);
    let p99 = |c: usize| map.columns()[c].cells[2].quantile().unwrap().value;
    let ratio = p99(3) / p99(0);
    assert!(ratio > 4.0, "{ratio}");
    near(map.between(1, 2), p99(0) * ratio.powf(1.0 / 3.0));
    near(map.between(2, 2), p99(0) * ratio.powf(2.0 / 3.0));
}

#[test]
fn what_is_not_gated_or_open_is_no_corner() {
    let between = |low: (usize, [u32; 7]), high: (usize, [u32; 7])| {
        let pieces = [(0, low.0, low.1), (0, high.0, high.1)];
        let map = map(1, &pieces);
        (low.0 + 1..high.0).filter(|&r| map.between(0, r).is_some()).count()
    };
    assert_eq!(between((2, ends_at(1)), (4, ends_at(2))), 1);
    assert_eq!(between((2, one(1, 367)), (4, ends_at(2))), 0, "a P95");
    assert_eq!(between((2, ends_at(1)), (6, ends_at(2))), 0, "too far apart");
    assert_eq!(between((5, ends_at(1)), (7, ends_at(2))), 0, "no upper end");
    assert_eq!(between((2, one(0, 400)), (4, ends_at(2))), 0, "below the first edge");
    assert_eq!(between((2, one(6, 400)), (4, ends_at(2))), 0, "beyond the last edge");
}

/// Two minutes at 4 running with a P99 each, and a minute at 16 between them in which `event` happens.
fn across(event: impl Fn(&mut Vec<Second>)) -> Map {
    let mut seconds = vec![Some((4.0, [0; 7]))];
    seconds.extend(vec![Some((4.0, one(1, 10))); 60]);
    let mut middle = vec![Some((16.0, one(2, 1))); 60];
    event(&mut middle);
    seconds.extend(middle);
    seconds.extend(vec![Some((4.0, one(2, 10))); 60]);
    follow(&store(&seconds), at(180), 3)
}

#[test]
fn nothing_is_carried_across_a_gap_an_idle_time_or_a_restart() {
    let carried = across(|_| {});
    assert!(carried.between(1, 2).is_some_and(|v| (0.1..0.4).contains(&v)), "{carried:?}");
    let gap = across(|seconds| seconds[30] = None);
    assert_eq!((gap.between(1, 2), gap.columns()[1].gap), (None, true));
    let idle = across(|seconds| (seconds[30], seconds[31]) = (Some((0.0, [0; 7])), Some((0.0, [0; 7]))));
    assert_eq!((idle.between(1, 2), idle.columns()[1].idle), (None, true));
    // A restart that only another counter shows.
    let store = Store::new(Retention::HOUR);
    for second in 0..=180 {
        let running = if (61..=120).contains(&second) { 16.0 } else { 4.0 };
        let mut batch = Batch::new(SourceId::Engine(0), at(second), 3500);
        push(&mut batch, running, [0.0, second as f64 * 10.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
        batch.push(ENGINE, Metric::Preemptions, if second < 90 { 5.0 } else { 0.0 });
        store.push(&batch);
    }
    let map = follow(&store, at(180), 3);
    assert_eq!((map.between(1, 2), map.columns()[1].restart), (None, true));
    assert!([0, 2].iter().all(|&c: &usize| matches!(map.columns()[c].cells[2], Cell::P99(_))), "{map:?}");
}

#[test]
fn what_is_only_kept_by_the_minute_is_said_not_to_be_kept() {
    let store = Store::new(Retention::HOUR);
    let mut total = 0.0;
    for second in 0..2 * 3600 {
        total += 1.0;
        let mut batch = Batch::new(SourceId::Engine(0), at(second), 3500);
        push(&mut batch, 4.0, [0.0, total, 0.0, 0.0, 0.0, 0.0, 0.0]);
        store.push(&batch);
    }
    let map = follow(&store, at(7200), 130);
    let count = |state| map.columns().iter().filter(|c| c.state == state).count();
    assert_eq!((count(State::NotScraped), map.columns().len()), (10, 130));
    assert!((59..=60).contains(&count(State::Scraped)), "{}", count(State::Scraped));
    let whole = map.columns().iter().filter(|c| c.state == State::Scraped && c.slot + 1 < SLOT + 120);
    assert!(whole.clone().count() > 50 && whole.clone().all(|c| c.cells[2].n() == 60), "no part of a minute");
}

#[test]
fn without_a_histogram_there_is_nothing() {
    let map = follow(&Store::new(Retention::HOUR), at(60), 5);
    assert!(map.columns().is_empty() && map.edges().is_empty() && map.axis() == LogAxis::QUIET);
}

proptest! {
    /// Followed step by step, back and forth, it is what it is when made at once.
    #[test]
    fn what_is_kept_is_what_would_be_made_anew(
        levels in prop::collection::vec((0u32..5, 0u32..30, 0usize..7, prop::bool::weighted(0.03)), 200..400),
        ends in prop::collection::vec((0u64..420_000, 1u16..8), 1..20),
    ) {
        let mut running = 4.0;
        let seconds: Vec<Second> = levels.iter().map(|&(step, n, bucket, fails)| {
            running = match step { 0 => 0.0, 1 => 4.0, 2 => 16.0, _ => running };
            (!fails).then(|| (running, one(bucket, n)))
        }).collect();
        let store = store(&seconds);
        let mut followed = Map::default();
        for (end, columns) in ends {
            let end = at(0) + end;
            followed.follow(&store.read(), ENGINE, Metric::E2e, end, columns);
            let made = follow(&store, end, columns);
            prop_assert_eq!(&followed.columns, &made.columns);
            prop_assert_eq!(&followed.between, &made.between);
        }
    }

    /// Every observation is counted once.
    #[test]
    fn nothing_is_lost_and_nothing_is_counted_twice(
        seconds in prop::collection::vec((0u32..200, 0u32..50, 0usize..7), 2..180),
    ) {
        let seconds: Vec<Second> =
            seconds.iter().map(|&(running, n, bucket)| Some((f64::from(running), one(bucket, n)))).collect();
        let all: u64 = seconds[1..].iter().flatten().map(|(_, counts)| u64::from(counts.iter().sum::<u32>())).sum();
        let map = follow(&store(&seconds), at(180), 4);
        let seen = |c: &Column| c.cells.iter().map(Cell::n).sum::<u64>() + c.mixed + c.unplaced;
        prop_assert_eq!(map.columns().iter().map(seen).sum::<u64>(), all);
    }
}
