//! What is wrong with answers that can be read all the same, and words for it.
//!
//! It must not know any engine's names. Invariants: a line that was cut off is never read, since half a
//! number looks like a whole one; looking for series that come twice costs as much as reading the answer
//! and is done now and again only.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::engine::promtext::{self, Exposition, Sample};
use crate::model::limits::{self, LeftOut};
use crate::model::text::Plural;
use crate::model::{Batch, Reading, Sample as Value, Unit, Why};

/// The lines of an answer that are complete, and whether one was not. The text format ends every line;
/// JSON has no lines.
pub(super) fn whole_lines(body: &[u8]) -> (&[u8], bool) {
    let end = body.iter().rposition(|&b| b == b'\n').map_or(0, |last| last + 1);
    let (lines, rest) = body.split_at(end);
    let json = matches!(body.trim_ascii_start().first(), Some(b'{' | b'[')) || promtext::is_json_string(body);
    let rest = rest.trim_ascii_start();
    if json || rest.is_empty() || rest.starts_with(b"#") { (body, false) } else { (lines, true) }
}

/// What is wrong with the answers of one scrape.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Flaws {
    /// Lines that cannot be read.
    pub(super) lines: usize,
    /// Answers that end within a line.
    pub(super) cut: usize,
    /// Series that come more than once.
    pub(super) doubled: usize,
    /// Values that are NaN or infinite where a number is needed.
    pub(super) no_numbers: usize,
    /// Values that no engine can have.
    pub(super) impossible: usize,
    /// The first histogram that is too large to be kept, and how many there are.
    pub(super) too_large: Option<(LeftOut, usize)>,
    /// Another engine whose metrics the answer holds too.
    pub(super) also: Option<&'static str>,
}

impl Flaws {
    /// Counts series that come twice.
    pub(super) fn look_for_doubled<'a>(&mut self, bodies: impl Iterator<Item = Exposition<'a>>) {
        self.doubled = bodies.map(doubled).sum();
    }

    /// Counts values that are no numbers, when one of them cost a reading.
    pub(super) fn look_for_no_numbers<'a>(&mut self, bodies: impl Iterator<Item = Exposition<'a>>, batch: &Batch) {
        let lost = batch.samples.iter().any(|sample| sample.reading == Reading::Missing(Why::Failed));
        let no_number = |sample: &Sample<'_>| !sample.value.is_finite() && sample.label("quantile").is_empty();
        self.no_numbers = if lost { bodies.map(|body| body.samples().filter(no_number).count()).sum() } else { 0 };
    }

    /// Counts values that cannot be true, and takes them out: a level or total below 0, a share above all, more
    /// requests or tokens than any engine has.
    pub(super) fn look_for_impossible(&mut self, batch: &mut Batch) {
        self.impossible = 0;
        for sample in &mut batch.samples {
            let Reading::Value(value) = sample.reading else { continue };
            sample.reading = possible(sample, value).map_or(Reading::Missing(Why::Failed), Reading::Value);
            self.impossible += usize::from(sample.reading.value().is_none());
        }
    }

    /// Takes out histograms that are beyond the limits: whole, since a quantile of the first buckets would be wrong.
    pub(super) fn look_for_too_large(&mut self, batch: &mut Batch) {
        self.too_large = limits::fit(&mut batch.histograms);
    }

    /// What to say of the answer to `path`; nothing when it is as it should be.
    pub(super) fn words(&self, path: &str) -> Option<String> {
        let counts = [
            (self.lines, "line cannot be read", "lines cannot be read"),
            (self.cut, "answer ends within a line, which is left out", "answers end within a line, which is left out"),
            (
                self.doubled,
                "series comes twice, the greater value is used",
                "series come twice, the greater value is used",
            ),
            (self.no_numbers, "value is NaN or infinite", "values are NaN or infinite"),
            (self.impossible, "value is impossible", "values are impossible"),
        ];
        let counted =
            counts.iter().filter(|(n, ..)| *n > 0).map(|&(n, one, more)| Plural(n as u64, one, more).to_string());
        let too_large = self.too_large.map(|(first, count)| match count {
            1 => first.to_string(),
            _ => format!("{first}, and {} more histograms", count - 1),
        });
        let parts: Vec<String> = counted.chain(too_large).collect();
        let used = if parts.is_empty() { None } else { Some(format!("{}; the rest is used", parts.join("; "))) };
        let also = self.also.map(|name| format!("also holds metrics of {name}, which are not read"));
        let all: Vec<String> = used.into_iter().chain(also).collect();
        if all.is_empty() { None } else { Some(format!("{path}: {}", all.join("; "))) }
    }
}

/// The value as far as it can be true. A share that was rounded up is all of it.
fn possible(of: &Value, value: f64) -> Option<f64> {
    const ROUNDED_PCT: f64 = 100.5;
    const MOST: f64 = 1e15;
    match of.metric.unit() {
        _ if value < 0.0 => None,
        Unit::Percent if value > ROUNDED_PCT => None,
        Unit::Percent => Some(value.min(100.0)),
        Unit::Requests | Unit::Tokens if value > MOST => None,
        _ => Some(value),
    }
}

/// Series of a body that come again, whatever the order of their labels.
fn doubled(body: Exposition<'_>) -> usize {
    let mut seen = HashSet::new();
    let key = |sample: &Sample<'_>| {
        let one = |name: &str, value: &str| {
            let mut hasher = DefaultHasher::new();
            (name, value).hash(&mut hasher);
            hasher.finish()
        };
        let labels = sample.labels().map(|label| one(&label.name(), &label.value()));
        labels.fold(one(&sample.name, ""), u64::wrapping_add)
    };
    body.samples().filter(|sample| !seen.insert(key(sample))).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Metric, SourceId, Subject, Time};

    #[test]
    fn half_a_line_is_left_out() {
        let cases: [(&str, &str, bool); 9] = [
            ("a 1\nb 23\n", "a 1\nb 23\n", false),
            ("a 1\nb 2", "a 1\n", true),
            ("a 1\nb 23\n# EOF", "a 1\nb 23\n# EOF", false),
            ("a 1\n  ", "a 1\n  ", false),
            ("a 1", "", true),
            ("", "", false),
            ("{\"a\":\n1}", "{\"a\":\n1}", false),
            (" [1]", " [1]", false),
            ("\"a 1\\n\"", "\"a 1\\n\"", false),
        ];
        for (body, lines, cut) in cases {
            assert_eq!(whole_lines(body.as_bytes()), (lines.as_bytes(), cut), "{body:?}");
        }
    }

    #[test]
    fn series_that_come_twice_are_counted_whatever_the_order_of_labels() {
        let body = "a 1\na{x=\"1\",y=\"2\"} 1\na{y=\"2\",x=\"1\"} 3\na{x=\"2\",y=\"1\"} 1\na 1\na 2\nb{x=\"1\"} 1\n";
        assert_eq!(doubled(Exposition::new(body)), 3);
        for body in [
            include_str!("../../assets/metrics/vllm-0.25.1-overload.prom"),
            include_str!("../../assets/metrics/llama.cpp-b11549.prom"),
        ] {
            assert_eq!(doubled(Exposition::new(body)), 0, "a real body has none");
        }
    }

    #[test]
    fn only_a_value_that_was_needed_counts_as_no_number() {
        let body = || std::iter::once(Exposition::new("a NaN\nb{quantile=\"0.5\"} NaN\nc +Inf\nd 1\n"));
        let (mut flaws, mut batch) = (Flaws::default(), Batch::new(SourceId::Engine(0), Time(0), 1000));
        flaws.look_for_no_numbers(body(), &batch);
        assert_eq!(flaws.words("/metrics"), None);
        batch.push(Subject::Engine(0), Metric::KvUsage, f64::NAN);
        flaws.look_for_no_numbers(body(), &batch);
        flaws.lines = 1;
        let words = "/metrics: 1 line cannot be read; 2 values are NaN or infinite; the rest is used";
        assert_eq!(flaws.words("/metrics").as_deref(), Some(words));
    }

    #[test]
    fn what_cannot_be_true_is_taken_out_and_counted() {
        let cases = [
            (Metric::RequestsRunning, -5.0, None),
            (Metric::RequestsRunning, 0.0, Some(0.0)),
            (Metric::RequestsWaiting, 1e30, None),
            (Metric::KvUsage, 170.0, None),
            (Metric::KvUsage, 100.4, Some(100.0)),
            (Metric::KvUsage, 99.9, Some(99.9)),
            (Metric::GenerationTokens, -1.0, None),
            (Metric::GenerationTokens, 1e15, Some(1e15)),
            (Metric::ModelBytes, 1e16, Some(1e16)),
        ];
        let mut batch = Batch::new(SourceId::Engine(0), Time(0), 1000);
        for (metric, value, _) in cases {
            batch.push(Subject::Engine(0), metric, value);
        }
        batch.push(Subject::Engine(0), Metric::RequestsCap, Reading::Missing(Why::NotYet));
        let mut flaws = Flaws::default();
        flaws.look_for_impossible(&mut batch);
        for ((metric, value, possible), sample) in cases.iter().zip(&batch.samples) {
            assert_eq!(sample.reading.value(), *possible, "{metric:?} {value}");
        }
        assert_eq!(batch.samples[0].reading, Reading::Missing(Why::Failed));
        assert_eq!(batch.samples[cases.len()].reading, Reading::Missing(Why::NotYet));
        let words = "/metrics: 4 values are impossible; the rest is used";
        assert_eq!(flaws.words("/metrics").as_deref(), Some(words));
        batch.samples.clear();
        flaws.look_for_impossible(&mut batch);
        assert_eq!(flaws.words("/metrics"), None);
    }
}
