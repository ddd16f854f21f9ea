//! Reads a text body by a table of names: what most engines need, without code of their own.
//!
//! A table says which name means which metric, how old the name is, and how labels part the series.
//! Rules, the same for all engines:
//!
//! - Of an old and a new name for one thing the newest present is taken, never both.
//! - Series that differ only in a label of [`Table::same`] are one series: the greatest value counts (API
//!   servers with a `pid` each, most of them at 0; tensor-parallel ranks that all tell the same).
//! - Series that differ in any other label are parts of a whole: their counts and buckets are added; a
//!   share is joined as its row says. So are rows of one age that mean the same metric: parts under names of their own.
//! - [`Table::ranks`] names the labels that stand for a replica. When the set of replicas changes, totals
//!   do not continue: [`Found::emit`] tells the set as [`FactKey::Ranks`].
//!
//! Knows no engine. Invariants: a name that is not in the table changes nothing; what the body lacks is
//! missing, not 0.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::buckets::{Buckets, Merged};
use super::promtext::{Exposition, Sample};
use crate::model::{Batch, FactKey, Metric, Reading, Subject, Why};

/// How series that are parts of one whole make one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    /// Counts: added.
    Add,
    /// Shares and lengths: the greatest, since that part is full first.
    Most,
}

/// A row: a name (after the prefix) and what it means.
#[derive(Clone, Copy, Debug)]
pub struct Scalar {
    pub(super) name: &'static str,
    pub(super) metric: Metric,
    age: u8,
    pub(super) only: Option<(&'static str, &'static str)>,
    times: f64,
    join: Join,
}

impl Scalar {
    /// A count in the metric's unit.
    pub const fn of(name: &'static str, metric: Metric) -> Self {
        Self { name, metric, age: 0, only: None, times: 1.0, join: Join::Add }
    }

    /// An older name: it counts only where no newer one is present. The newest name has age 0.
    #[must_use]
    pub const fn aged(self, age: u8) -> Self {
        Self { age, ..self }
    }

    /// Only the series whose `label` has this value.
    #[must_use]
    pub const fn only(self, label: &'static str, value: &'static str) -> Self {
        Self { only: Some((label, value)), ..self }
    }

    /// The engine's unit in the metric's: what a value is multiplied with.
    #[must_use]
    pub const fn times(self, factor: f64) -> Self {
        Self { times: factor, ..self }
    }

    /// Not added up over parts.
    #[must_use]
    pub const fn most(self) -> Self {
        Self { join: Join::Most, ..self }
    }
}

/// A histogram's row: name after the prefix and before `_bucket`, metric, age of the name, and what edges and
/// sum are multiplied with to be in the metric's unit.
#[derive(Clone, Copy, Debug)]
pub struct Histogram {
    pub(super) name: &'static str,
    pub(super) metric: Metric,
    pub(super) age: u8,
    pub(super) only: Option<(&'static str, &'static str)>,
    times: f64,
}

impl Histogram {
    /// A histogram in the metric's unit.
    pub const fn of(name: &'static str, metric: Metric) -> Self {
        Self { name, metric, age: 0, only: None, times: 1.0 }
    }

    /// See [`Scalar::only`].
    #[must_use]
    pub const fn only(self, label: &'static str, value: &'static str) -> Self {
        Self { only: Some((label, value)), ..self }
    }

    /// See [`Scalar::aged`].
    #[must_use]
    pub const fn aged(self, age: u8) -> Self {
        Self { age, ..self }
    }

    /// See [`Scalar::times`].
    #[must_use]
    pub const fn times(self, factor: f64) -> Self {
        Self { times: factor, ..self }
    }
}

/// What an engine's names mean.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// What its names begin with; any of these.
    pub prefixes: &'static [&'static str],
    /// Counters and gauges.
    pub scalars: &'static [Scalar],
    /// Histograms.
    pub histograms: &'static [Histogram],
    /// Labels that tell apart what is the same.
    pub same: &'static [&'static str],
    /// Labels that stand for a replica.
    pub ranks: &'static [&'static str],
    /// Labels whose value names the model.
    pub model: &'static [&'static str],
    /// Metrics to say "not exposed" about when the body lacks them.
    pub expected: &'static [Metric],
    /// Why they are missing then: [`Why::Unsupported`], or [`Why::NotYet`] for engines that expose a metric
    /// only after its first use.
    pub absent: Why,
}

/// What screens ask of any engine, and what to say "not exposed" about where an answer lacks it.
pub const ASKED: &[Metric] = &[
    Metric::RequestsRunning,
    Metric::RequestsWaiting,
    Metric::KvUsage,
    Metric::KvPoolTokens,
    Metric::Preemptions,
    Metric::PromptTokens,
    Metric::GenerationTokens,
    Metric::PrefixQueries,
    Metric::PrefixHits,
    Metric::RequestsFinished,
];

/// One counter or gauge.
#[derive(Clone, Copy, Debug)]
struct Series {
    rank: usize,
    value: f64,
    join: Join,
}

/// Metric, age of its name, and the series among those of that name.
type Key = (Metric, u8, u64);

/// Everything of one body that the table names.
#[derive(Debug)]
pub struct Found<'a> {
    table: &'static Table,
    scalars: BTreeMap<Key, Series>,
    histograms: BTreeMap<Key, Buckets>,
    ranks: Vec<Cow<'a, str>>,
    models: Vec<Cow<'a, str>>,
    start: Option<f64>,
    /// Name of the histogram of the line before, whose buckets stand together, and its first row.
    last: (String, Option<usize>),
    bad_lines: usize,
}

/// What the labels of a line say.
struct Labels<'a> {
    /// Fingerprint of those that tell series apart.
    key: u64,
    rank: usize,
    edge: Option<Cow<'a, str>>,
}

/// Of a text, FNV-1a.
fn fingerprint(text: &str, seed: u64) -> u64 {
    text.bytes()
        .fold(seed ^ 0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// Lets every bit change all others (the finaliser of MurmurHash3). Without it the fingerprints of labels
/// that rise together, `dp="0",gpu="0"` and `dp="1",gpu="1"`, can have the same sum.
const fn spread(mut hash: u64) -> u64 {
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

impl<'a> Found<'a> {
    /// Reads the body; `each` is shown every line too, for what no table can say.
    pub fn read(table: &'static Table, body: Exposition<'a>, mut each: impl FnMut(&Sample<'a>)) -> Self {
        let mut found = Self {
            table,
            scalars: BTreeMap::new(),
            histograms: BTreeMap::new(),
            ranks: Vec::new(),
            models: Vec::new(),
            start: None,
            last: (String::new(), None),
            bad_lines: 0,
        };
        let mut samples = body.samples();
        for sample in samples.by_ref() {
            found.take(&sample);
            each(&sample);
        }
        found.bad_lines = samples.bad_lines();
        found
    }

    /// Lines that could not be read.
    pub const fn bad_lines(&self) -> usize {
        self.bad_lines
    }

    fn take(&mut self, sample: &Sample<'a>) {
        let after = |prefix: &&str| sample.name.strip_prefix(*prefix);
        let Some(name) = self.table.prefixes.iter().find_map(after) else {
            if sample.name == "process_start_time_seconds" {
                self.start = Some(sample.value);
            }
            return;
        };
        for row in self.table.scalars.iter().filter(|row| row.name == name) {
            if chosen(row.only, sample) {
                self.take_scalar(row, sample);
            }
        }
        if let Some(base) = name.strip_suffix("_bucket") {
            self.take_bucket(base, sample);
        } else if let Some(base) = name.strip_suffix("_sum") {
            self.take_sum(base, sample);
        }
    }

    fn take_scalar(&mut self, row: &Scalar, sample: &Sample<'a>) {
        let labels = self.labels(sample);
        let value = sample.value * row.times;
        let series = Series { rank: labels.rank, value, join: row.join };
        let key = labels.key.wrapping_add(fingerprint(row.name, 0));
        let known = self.scalars.entry((row.metric, row.age, key)).or_insert(series);
        known.value = known.value.max(value);
    }

    fn histogram(&mut self, base: &str, sample: &Sample<'_>) -> Option<Histogram> {
        if self.last.0 != base {
            let first = self.table.histograms.iter().position(|row| row.name == base);
            self.last = (base.to_owned(), first);
        }
        let rows = self.table.histograms.get(self.last.1?..)?;
        rows.iter().find(|row| row.name == base && chosen(row.only, sample)).copied()
    }

    fn take_bucket(&mut self, base: &str, sample: &Sample<'a>) {
        let Some(row) = self.histogram(base, sample) else { return };
        let labels = self.labels(sample);
        let Some(edge) = labels.edge.and_then(|edge| edge.parse::<f64>().ok()) else { return };
        let buckets = self.histograms.entry((row.metric, row.age, labels.key)).or_default();
        buckets.counts.push((edge * row.times, sample.value));
    }

    fn take_sum(&mut self, base: &str, sample: &Sample<'a>) {
        let Some(row) = self.histogram(base, sample) else { return };
        let key = self.labels(sample).key;
        let buckets = self.histograms.entry((row.metric, row.age, key)).or_default();
        buckets.sum = greater(buckets.sum, Some(sample.value * row.times));
    }

    fn labels(&mut self, sample: &Sample<'a>) -> Labels<'a> {
        let mut found = Labels { key: 0, rank: 0, edge: None };
        let mut rank = Cow::Borrowed("");
        for label in sample.labels() {
            let name = label.name();
            if name == "le" {
                found.edge = Some(label.value());
                continue;
            }
            if self.table.same.contains(&&*name) {
                continue;
            }
            let value = label.value();
            // The order of labels means nothing.
            found.key = found.key.wrapping_add(spread(fingerprint(&value, fingerprint(&name, 0))));
            if self.table.model.contains(&&*name) && !value.is_empty() {
                place(&mut self.models, value.clone());
            }
            if self.table.ranks.contains(&&*name) {
                rank = joined(&rank, value);
            }
        }
        found.rank = place(&mut self.ranks, rank);
        found
    }

    /// The series of a metric under its newest name: replica and value.
    pub fn parts(&self, metric: Metric) -> impl Iterator<Item = (&str, f64)> {
        self.newest(metric).map(|(_, series)| (self.ranks.get(series.rank).map_or("", |rank| &**rank), series.value))
    }

    fn newest(&self, metric: Metric) -> impl Iterator<Item = (u64, &Series)> {
        let mut all = self.scalars.range((metric, 0, 0)..=(metric, u8::MAX, u64::MAX)).peekable();
        // Ages rise within a metric: what has another age than the first is an older name.
        let newest = all.peek().map(|((_, age, _), _)| *age);
        all.filter(move |((_, age, _), _)| Some(*age) == newest).map(|((_, _, key), series)| (*key, series))
    }

    /// Age of the name under which a metric's newest series come.
    pub fn age(&self, metric: Metric) -> Option<u8> {
        self.scalars.range((metric, 0, 0)..=(metric, u8::MAX, u64::MAX)).next().map(|((_, age, _), _)| *age)
    }

    /// The value of a metric over all its parts.
    pub fn value(&self, metric: Metric) -> Option<f64> {
        self.newest(metric)
            .map(|(_, series)| *series)
            .reduce(|a, b| {
                let value = if a.join == Join::Add { a.value + b.value } else { a.value.max(b.value) };
                Series { value, ..a }
            })
            .map(|whole| whole.value)
    }

    /// How many observations a histogram holds over all its parts, under its newest name.
    pub fn observations(&self, metric: Metric) -> Option<f64> {
        let whole = |buckets: &Buckets| buckets.counts.iter().map(|(_, count)| *count).reduce(f64::max);
        self.newest_buckets(metric).map(whole).reduce(both).flatten()
    }

    /// Sum of all observations of a histogram over all its parts, under its newest name.
    pub fn sum(&self, metric: Metric) -> Option<f64> {
        self.newest_buckets(metric).map(|buckets| buckets.sum).reduce(both).flatten()
    }

    fn newest_buckets(&self, metric: Metric) -> impl Iterator<Item = &Buckets> {
        let mut all = self.histograms.range((metric, 0, 0)..=(metric, u8::MAX, u64::MAX)).peekable();
        let newest = all.peek().map(|((_, age, _), _)| *age);
        all.take_while(move |((_, age, _), _)| Some(*age) == newest).map(|(_, buckets)| buckets)
    }

    /// The models that the labels name.
    pub fn models(&self) -> &[Cow<'a, str>] {
        &self.models
    }

    /// Adds all to `batch`. A metric that `batch` has already (the adapter knew better) stays as it is.
    pub fn emit(self, subject: Subject, batch: &mut Batch) {
        let mut metrics: Vec<_> = self.scalars.keys().map(|key| key.0).collect();
        metrics.dedup();
        for metric in metrics {
            if let Some(value) = self.value(metric) {
                offer(batch, subject, metric, value.into());
            }
        }
        if let Some(start) = self.start {
            offer(batch, subject, Metric::EngineStart, start.into());
        }
        for &metric in self.table.expected {
            offer(batch, subject, metric, Reading::Missing(self.table.absent));
        }
        self.tell(subject, batch);
        self.emit_histograms(subject, batch);
    }

    fn tell(&self, subject: Subject, batch: &mut Batch) {
        if !self.models.is_empty() {
            batch.fact(subject, FactKey::Model, &self.models.join(", "));
        }
        let mut ranks: Vec<_> = self.ranks.iter().filter(|rank| !rank.is_empty()).map(|rank| &**rank).collect();
        ranks.sort_unstable();
        if !ranks.is_empty() {
            batch.fact(subject, FactKey::Ranks, &ranks.join(","));
        }
    }

    fn emit_histograms(self, subject: Subject, batch: &mut Batch) {
        let mut taken: Option<(Metric, u8)> = None;
        let mut merged: Vec<(Metric, u64, Merged)> = Vec::new();
        for ((metric, age, key), buckets) in self.histograms {
            if taken.is_some_and(|t| t.0 == metric && t.1 != age) {
                continue;
            }
            let part = Merged::of(buckets);
            match merged.last_mut() {
                Some((last, keys, sum)) if *last == metric => {
                    *keys = keys.wrapping_add(key);
                    sum.add(part);
                }
                _ => merged.push((metric, key, part)),
            }
            taken = Some((metric, age));
        }
        let samples = merged.into_iter().filter_map(|(metric, keys, merged)| merged.sample(subject, metric, keys));
        batch.histograms.extend(samples);
    }
}

/// Replicas and models that are told apart: far more than one endpoint has, and few enough to be looked through
/// for every line of an answer that is none.
const MOST_NAMES: usize = 256;

/// The place of a name in a list, added when it is new; the last place for all that are too many.
fn place<'a>(names: &mut Vec<Cow<'a, str>>, name: Cow<'a, str>) -> usize {
    let known = names.iter().position(|known| *known == name);
    known.unwrap_or_else(|| {
        if names.len() < MOST_NAMES {
            names.push(name);
        }
        names.len() - 1
    })
}

/// The replica that a line is about, as [`Found::parts`] names it.
pub fn replica<'a>(table: &Table, sample: &Sample<'a>) -> Cow<'a, str> {
    let of_rank = sample.labels().filter(|label| table.ranks.contains(&&*label.name()));
    of_rank.map(|label| label.value()).fold(Cow::Borrowed(""), |rank, value| joined(&rank, value))
}

/// One name of two.
fn joined<'a>(rank: &str, value: Cow<'a, str>) -> Cow<'a, str> {
    if rank.is_empty() { value } else { format!("{rank}/{value}").into() }
}

/// Adds a reading unless the metric is there already.
fn offer(batch: &mut Batch, subject: Subject, metric: Metric, reading: Reading) {
    if !batch.samples.iter().any(|s| s.subject == subject && s.metric == metric) {
        batch.push(subject, metric, reading);
    }
}

/// Whether a row that is only for one value of a label is for this line.
fn chosen(only: Option<(&str, &str)>, sample: &Sample<'_>) -> bool {
    only.is_none_or(|(label, value)| sample.label(label) == value)
}

/// The sum of two values, where both are there.
fn both(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    a.zip(b).map(|(a, b)| a + b)
}

/// The greater one of two values that may be absent.
pub fn greater(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    a.into_iter().chain(b).reduce(f64::max)
}

/// A label's value as a number above 0; labels may say "None".
pub fn number(sample: &Sample<'_>, label: &str) -> Option<f64> {
    sample.label(label).parse::<f64>().ok().filter(|n| n.is_finite() && *n > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{SourceId, Time};

    static TABLE: Table = Table {
        prefixes: &["x:", "x_"],
        scalars: &[
            Scalar::of("running", Metric::RequestsRunning),
            Scalar::of("usage", Metric::KvUsage).times(100.0).most(),
            Scalar::of("by_state", Metric::WaitingPaused).only("state", "paused"),
            Scalar::of("len_sum", Metric::PromptTokens),
            Scalar::of("hits", Metric::PrefixHits),
            Scalar::of("old_hits", Metric::PrefixHits).aged(1),
            Scalar::of("queue_a", Metric::RequestsWaiting),
            Scalar::of("queue_b", Metric::RequestsWaiting),
        ],
        histograms: &[
            Histogram::of("e2e_ms", Metric::E2e).times(1e-3),
            Histogram::of("stage", Metric::PrefillTime).only("stage", "prefill"),
            Histogram::of("stage", Metric::DecodeTime).only("stage", "decode"),
        ],
        same: &["tp"],
        ranks: &["dp", "worker"],
        model: &["model"],
        expected: &[Metric::RequestsRunning, Metric::Preemptions],
        absent: Why::Unsupported,
    };

    fn read(body: &str) -> Batch {
        let mut batch = Batch::new(SourceId::Engine(0), Time(0), 1);
        Found::read(&TABLE, Exposition::new(body), |_| {}).emit(Subject::Engine(0), &mut batch);
        batch
    }

    fn value(batch: &Batch, metric: Metric) -> Option<Reading> {
        batch.samples.iter().find(|s| s.metric == metric).map(|s| s.reading)
    }

    #[test]
    fn names_are_told_apart_up_to_a_number_and_no_value_is_lost() {
        let lines: Vec<_> = (0..2000).map(|i| format!("x:running{{dp=\"{i}\",model=\"m{i}\"}} 1\n")).collect();
        let body = lines.concat();
        let found = Found::read(&TABLE, Exposition::new(&body), |_| {});
        assert_eq!((found.models().len(), found.ranks.len()), (MOST_NAMES, MOST_NAMES));
        assert_eq!(found.value(Metric::RequestsRunning), Some(2000.0));
    }

    #[test]
    fn the_same_is_told_once_and_parts_are_added() {
        let batch = read(
            "x:running{dp=\"0\",tp=\"0\"} 3\nx:running{tp=\"1\",dp=\"0\"} 3\nx:running{dp=\"1\",tp=\"0\"} 4\n\
             x_usage{dp=\"0\"} 0.25\nx_usage{dp=\"1\"} 0.5\n",
        );
        assert_eq!(value(&batch, Metric::RequestsRunning), Some(Reading::Value(7.0)));
        assert_eq!(value(&batch, Metric::KvUsage), Some(Reading::Value(50.0)), "the fuller one");
        assert_eq!(value(&batch, Metric::Preemptions), Some(Reading::Missing(Why::Unsupported)));
        assert_eq!(value(&batch, Metric::PrefixHits), None, "not asked for");
    }

    #[test]
    fn the_newest_name_counts_and_labels_choose() {
        let batch =
            read("x:old_hits 9\nx:hits 5\nx:by_state{state=\"paused\"} 2\nx:by_state{state=\"run\"} 7\nx:len_sum 40\n");
        assert_eq!(value(&batch, Metric::PrefixHits), Some(Reading::Value(5.0)));
        assert_eq!(value(&batch, Metric::WaitingPaused), Some(Reading::Value(2.0)));
        assert_eq!(value(&batch, Metric::PromptTokens), Some(Reading::Value(40.0)));
        assert_eq!(value(&read("x:old_hits 9\n"), Metric::PrefixHits), Some(Reading::Value(9.0)));
    }

    #[test]
    fn names_of_one_age_are_parts_and_each_part_is_told_once() {
        let batch =
            read("x:queue_a{dp=\"0\",tp=\"0\"} 3\nx:queue_a{dp=\"0\",tp=\"1\"} 3\nx:queue_b{dp=\"0\",tp=\"0\"} 3\n");
        assert_eq!(value(&batch, Metric::RequestsWaiting), Some(Reading::Value(6.0)));
        let found = Found::read(&TABLE, Exposition::new("x:old_hits 9\n"), |_| {});
        assert_eq!((found.age(Metric::PrefixHits), found.age(Metric::KvUsage)), (Some(1), None));
    }

    #[test]
    fn a_label_chooses_among_histograms_of_one_name() {
        let stage = |name: &str, n: u8| {
            format!(
                "x:stage_bucket{{stage=\"{name}\",le=\"1\"}} {n}\nx:stage_bucket{{stage=\"{name}\",le=\"+Inf\"}} {n}\n"
            )
        };
        let batch = read(&(stage("queue", 1) + &stage("decode", 2) + &stage("prefill", 3)));
        let counts: Vec<_> = batch.histograms.iter().map(|h| (h.metric, h.cumulative[0])).collect();
        assert_eq!(counts, [(Metric::PrefillTime, 3.0), (Metric::DecodeTime, 2.0)]);
    }

    #[test]
    fn replicas_and_models_are_told() {
        let batch =
            read("x:running{dp=\"1\",worker=\"b\",model=\"m\"} 1\nx:running{dp=\"0\",worker=\"a\",model=\"n\"} 1\n");
        let texts: Vec<_> = batch.facts.iter().map(|f| (f.key, &*f.text)).collect();
        assert_eq!(texts, [(FactKey::Model, "m, n"), (FactKey::Ranks, "0/a,1/b")]);
        assert!(read("x:running 1\n").facts.is_empty());
    }

    #[test]
    fn a_histogram_is_scaled_added_and_signed_with_its_label_sets() {
        let part = |dp: u8, counts: [u8; 2]| {
            format!(
                "x:e2e_ms_bucket{{dp=\"{dp}\",le=\"500\"}} {}\nx:e2e_ms_bucket{{dp=\"{dp}\",le=\"+Inf\"}} {}\n\
                 x:e2e_ms_sum{{dp=\"{dp}\"}} 1000\n",
                counts[0], counts[1]
            )
        };
        let one = read(&part(0, [1, 2]));
        let both = read(&(part(1, [3, 4]) + &part(0, [1, 2])));
        let (one, both) = (&one.histograms[0], &both.histograms[0]);
        assert_eq!((&*both.edges, &*both.cumulative, both.sum), (&[0.5][..], &[4.0, 6.0][..], Some(2.0)));
        assert!(one.sets != both.sets && one.sets != 0);
        assert_eq!(read(&part(0, [7, 9])).histograms[0].sets, one.sets);
    }
}
