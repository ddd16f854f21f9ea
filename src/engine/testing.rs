//! What the tests of adapters share: whole batches against values worked out by hand, and rules that hold for every table.

use super::promtext::Exposition;
use super::table::{Found, Table};
use super::{Adapter, Answers, Memory};
use crate::model::{Batch, FactKey, Metric, Reading, SourceId, Subject, Time};

const ENGINE: u8 = 3;

/// What an adapter makes of these answers.
pub(super) fn translate(adapter: &dyn Adapter, answers: &[(&'static str, &str)]) -> Batch {
    let mut batch = Batch::new(SourceId::Engine(ENGINE), Time(0), 3500);
    adapter.translate(Answers::new(answers), ENGINE, &mut Memory::default(), &mut batch);
    batch
}

/// What an adapter makes of the answer to one of its extra paths.
pub(super) fn extra(adapter: &dyn Adapter, path: &str, answer: &str) -> Batch {
    let mut batch = Batch::new(SourceId::Engine(ENGINE), Time(0), Batch::FOREVER);
    adapter.extra(path, answer.as_bytes(), ENGINE, &mut batch);
    batch
}

/// The reading of a metric, which comes at most once.
pub(super) fn reading(batch: &Batch, metric: Metric) -> Option<Reading> {
    let mut found = batch.samples.iter().filter(|s| s.metric == metric && s.subject == Subject::Engine(ENGINE));
    let first = found.next().map(|s| s.reading);
    assert_eq!(found.next(), None, "{metric:?} comes twice");
    first
}

/// The text of a fact.
pub(super) fn fact(batch: &Batch, key: FactKey) -> Option<&str> {
    batch.facts.iter().find(|fact| fact.key == key).map(|fact| &*fact.text)
}

/// The batch holds exactly these values, and nothing else but missing ones.
pub(super) fn has_values(batch: &Batch, expected: &[(Metric, f64)]) {
    for &(metric, value) in expected {
        let found = reading(batch, metric).and_then(Reading::value);
        let close = found.is_some_and(|found| (found - value).abs() <= 1e-9 * value.abs());
        assert!(close, "{metric:?}: {found:?} for {value}");
    }
    let more = batch.samples.iter().filter(|s| s.reading.value().is_some());
    let more: Vec<_> = more.filter(|s| !expected.iter().any(|e| e.0 == s.metric)).collect();
    assert!(more.is_empty(), "not expected: {more:?}");
}

/// A histogram's metric, observations and sum, and one of its edges with the count up to it.
pub(super) type Expected = (Metric, f64, f64, (f64, f64));

/// The batch holds exactly these histograms.
pub(super) fn has_histograms(batch: &Batch, expected: &[Expected]) {
    for &(metric, n, sum, (edge, count)) in expected {
        let found: Vec<_> = batch.histograms.iter().filter(|h| h.metric == metric).collect();
        let [found] = found[..] else { panic!("{metric:?} comes {} times", found.len()) };
        assert_eq!((found.cumulative.last().copied(), found.sum), (Some(n), Some(sum)), "{metric:?}");
        let place = found.edges.iter().position(|e| (e - edge).abs() < 1e-9).expect("no such edge");
        assert_eq!(found.cumulative[place].to_bits(), count.to_bits(), "{metric:?} at {edge}");
    }
    let metrics: Vec<_> = batch.histograms.iter().map(|h| h.metric).collect();
    assert_eq!(metrics.len(), expected.len(), "{metrics:?}");
}

/// Every row of the table is in one of the bodies, and alone it gives its metric.
pub(super) fn every_row_is_read(table: &'static Table, bodies: &[&str]) {
    let alone = |body: &str, name: &str, endings: &[&str], only: Option<(&str, &str)>| {
        let lines = body.lines().filter(|line| {
            let mut samples = Exposition::new(line).samples();
            samples.next().is_some_and(|sample| {
                let after = table.prefixes.iter().find_map(|prefix| sample.name.strip_prefix(prefix));
                let named = after.is_some_and(|after| endings.iter().any(|end| after.strip_suffix(end) == Some(name)));
                named && only.is_none_or(|(label, value)| sample.label(label) == value)
            })
        });
        let body: String = lines.flat_map(|line| [line, "\n"]).collect();
        let mut batch = Batch::new(SourceId::Engine(ENGINE), Time(0), 1);
        Found::read(table, Exposition::new(&body), |_| {}).emit(Subject::Engine(ENGINE), &mut batch);
        batch
    };
    for row in table.scalars {
        let read = |body: &&str| reading(&alone(body, row.name, &[""], row.only), row.metric).and_then(Reading::value);
        assert!(bodies.iter().filter_map(read).any(|value| value != 0.0), "{} {:?} is in no body", row.name, row.only);
    }
    for row in table.histograms {
        let read = |body: &&str| {
            let batch = alone(body, row.name, &["_bucket", "_sum"], row.only);
            batch.histograms.iter().any(|h| h.metric == row.metric && h.sum > Some(0.0))
        };
        assert!(bodies.iter().any(read), "{} {:?} is in no body", row.name, row.only);
    }
}

/// Lines that come twice, names of the future, and lines of other programs change nothing.
pub(super) fn noise_changes_nothing(adapter: &dyn Adapter, path: &'static str, prefix: &str, body: &str) {
    let clean = translate(adapter, &[(path, body)]);
    let future = format!(
        "# HELP {prefix}new_total ?\n{prefix}new_total{{dp_rank=\"9\",model=\"x\"}} 4\n{prefix}new_seconds_bucket{{le=\"1\"}} 2\n\
         {prefix}new_seconds_sum 3\npython_info{{version=\"3.12\"}} 1\n"
    );
    for noisy in [format!("{body}{body}"), format!("{future}{body}"), format!("{body}\n{future}\r\n\n")] {
        let noisy = translate(adapter, &[(path, &noisy)]);
        assert_eq!((&noisy.samples, &noisy.facts), (&clean.samples, &clean.facts));
        assert_eq!(noisy.histograms, clean.histograms);
    }
}

/// Answers that are cut off, of another program or of another shape give nothing and break nothing.
pub(super) fn bad_extras_say_nothing(adapter: &dyn Adapter) {
    for path in adapter.spec().extras {
        for answer in
            ["", "{}", "[]", "<html>", "null", "{\"data\":[{}]}", "{\"version\":\"\"}", "{\"version\":3}", "\u{fffd}"]
        {
            let batch = extra(adapter, path, answer);
            assert!(batch.samples.is_empty() && batch.facts.is_empty(), "{path} {answer}: {batch:?}");
        }
    }
}
