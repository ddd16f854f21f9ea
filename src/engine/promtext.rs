//! The Prometheus text format and OpenMetrics, read line by line without copying.
//!
//! Owns the grammar of one line; it must not know what any metric means. Invariants: a line that
//! cannot be read is counted and passed over and never costs another one; reading is linear in the
//! length of the body and allocates only for escapes. Grammar: "Exposition formats" of the
//! Prometheus documentation, with the quoted UTF-8 names of Prometheus 3, and the OpenMetrics
//! specification 1.0 (exemplars, `# EOF`).

use std::borrow::Cow;

/// The text of a body; bytes that are not UTF-8 become U+FFFD, in their own line only. A body that is one JSON
/// string is what the string says: builds of llama.cpp of November 2025 sent their metrics so (llama.cpp#17384), and
/// no exposition begins with a quote.
pub fn decode(body: &[u8]) -> Cow<'_, str> {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    let quoted = is_json_string(body).then(|| serde_json::from_slice(body).ok()).flatten();
    quoted.map_or_else(|| String::from_utf8_lossy(body), Cow::Owned)
}

/// Whether a body looks like one JSON string, which has no lines.
pub fn is_json_string(body: &[u8]) -> bool {
    let body = body.trim_ascii();
    body.len() > 1 && body.starts_with(b"\"") && body.ends_with(b"\"")
}

/// A body in the text format.
#[derive(Clone, Copy, Debug)]
pub struct Exposition<'a> {
    text: &'a str,
}

impl<'a> Exposition<'a> {
    /// Reads nothing yet.
    pub const fn new(text: &'a str) -> Self {
        Self { text }
    }

    /// Its samples, in the order of the body.
    pub const fn samples(self) -> Samples<'a> {
        Samples { rest: self.text, bad: 0 }
    }
}

/// Reads the samples of a body one after the other.
#[derive(Clone, Debug)]
pub struct Samples<'a> {
    rest: &'a str,
    bad: usize,
}

impl Samples<'_> {
    /// Lines so far that could not be read.
    pub const fn bad_lines(&self) -> usize {
        self.bad
    }
}

impl<'a> Iterator for Samples<'a> {
    type Item = Sample<'a>;

    fn next(&mut self) -> Option<Sample<'a>> {
        while !self.rest.is_empty() {
            let (line, rest) = self.rest.split_once('\n').unwrap_or((self.rest, ""));
            self.rest = rest;
            let line = skip_blank(line);
            // Comments carry no values: HELP, TYPE, UNIT, EOF and free text alike.
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let sample = Sample::read(line);
            if sample.is_some() {
                return sample;
            }
            self.bad += 1;
        }
        None
    }
}

const fn is_blank(b: u8) -> bool {
    matches!(b, b' ' | b'\t' | b'\r')
}

fn skip_blank(text: &str) -> &str {
    split_word(text, is_blank).1
}

/// One line with a value.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample<'a> {
    /// Name of the series, with `_bucket`, `_total` and the like. Borrowed unless it had escapes.
    pub name: Cow<'a, str>,
    /// What follows `{`; empty without labels.
    labels: &'a str,
    /// Its value; may be NaN or infinite.
    pub value: f64,
}

impl<'a> Sample<'a> {
    fn read(line: &'a str) -> Option<Self> {
        let (name, rest) = split_word(line, |b| b.is_ascii_alphanumeric() || b == b'_' || b == b':');
        if name.starts_with(|c: char| c.is_ascii_digit()) {
            return None;
        }
        let rest = skip_blank(rest);
        let mut name = Cow::Borrowed(name);
        let (labels, rest) = match rest.strip_prefix('{') {
            Some(inside) => (inside, skip_labels(inside, &mut name)?),
            None => ("", rest),
        };
        if name.is_empty() {
            return None;
        }
        let value = read_number(skip_blank(rest))?;
        Some(Self { name, labels, value })
    }

    /// Its labels, in the order of the line.
    pub const fn labels(&self) -> Labels<'a> {
        Labels { rest: self.labels }
    }

    /// The value of a label; empty when it has no such label, which the format does not tell apart.
    pub fn label(&self, name: &str) -> Cow<'a, str> {
        self.labels().find(|label| label.is(name)).map_or(Cow::Borrowed(""), |label| label.value())
    }
}

/// Checks a label set and gives what follows its `}`. A quoted name inside becomes the metric's.
fn skip_labels<'a>(inside: &'a str, name: &mut Cow<'a, str>) -> Option<&'a str> {
    let mut labels = Labels { rest: inside };
    loop {
        match labels.step()? {
            Step::Label(_) => {}
            Step::Name(quoted) if name.is_empty() => *name = quoted.decode(),
            Step::Name(_) => return None,
            Step::End(rest) => return Some(rest),
        }
    }
}

/// The value at the start of `text`, when a timestamp or an exemplar at most follows.
fn read_number(text: &str) -> Option<f64> {
    let word = |text| split_word(text, |b| !is_blank(b));
    let (value, rest) = word(text);
    let value = value.parse().ok()?;
    let rest = skip_blank(rest);
    let (timestamp, rest) = if rest.starts_with('#') { ("", rest) } else { word(rest) };
    let timestamp_reads = timestamp.is_empty() || timestamp.parse::<f64>().is_ok();
    let rest = skip_blank(rest);
    (timestamp_reads && (rest.is_empty() || rest.starts_with('#'))).then_some(value)
}

/// Splits where the first byte that does not belong stands. `belongs` must treat all bytes above ASCII alike,
/// so that no character is cut.
fn split_word(text: &str, belongs: impl Fn(u8) -> bool) -> (&str, &str) {
    text.split_at(text.bytes().position(|b| !belongs(b)).unwrap_or(text.len()))
}

/// The labels of a sample.
#[derive(Clone, Debug)]
pub struct Labels<'a> {
    rest: &'a str,
}

enum Step<'a> {
    Label(Label<'a>),
    Name(Quoted<'a>),
    End(&'a str),
}

impl<'a> Labels<'a> {
    /// The next item; `None` where the text does not follow the grammar.
    fn step(&mut self) -> Option<Step<'a>> {
        let rest = skip_blank(self.rest);
        if let Some(after) = rest.strip_prefix('}') {
            return Some(Step::End(after));
        }
        let (key, rest) = if let Some(inside) = rest.strip_prefix('"') {
            let (quoted, rest) = Quoted::read(inside)?;
            let rest = skip_blank(rest);
            if !rest.starts_with('=') {
                self.rest = after_comma(rest)?;
                return Some(Step::Name(quoted));
            }
            (quoted, rest)
        } else {
            let (word, rest) = split_word(rest, |b| b.is_ascii_alphanumeric() || b == b'_');
            if word.is_empty() {
                return None;
            }
            (Quoted { raw: word, escaped: false }, skip_blank(rest))
        };
        let value = skip_blank(rest.strip_prefix('=')?).strip_prefix('"')?;
        let (value, rest) = Quoted::read(value)?;
        self.rest = after_comma(skip_blank(rest))?;
        Some(Step::Label(Label { key, value }))
    }
}

/// What follows the comma; a closing brace needs none.
fn after_comma(rest: &str) -> Option<&str> {
    if rest.starts_with('}') { Some(rest) } else { rest.strip_prefix(',') }
}

impl<'a> Iterator for Labels<'a> {
    type Item = Label<'a>;

    fn next(&mut self) -> Option<Label<'a>> {
        loop {
            match self.step()? {
                Step::Label(label) => return Some(label),
                Step::Name(_) => {}
                Step::End(_) => return None,
            }
        }
    }
}

/// One `name="value"`.
#[derive(Clone, Copy, Debug)]
pub struct Label<'a> {
    key: Quoted<'a>,
    value: Quoted<'a>,
}

impl<'a> Label<'a> {
    /// Whether it has this name.
    pub fn is(&self, name: &str) -> bool {
        if self.key.escaped { self.key.decode() == name } else { self.key.raw == name }
    }

    /// Its name, escapes decoded.
    pub fn name(&self) -> Cow<'a, str> {
        self.key.decode()
    }

    /// Its value, escapes decoded.
    pub fn value(&self) -> Cow<'a, str> {
        self.value.decode()
    }
}

/// Text between quotes, as it stands in the line.
#[derive(Clone, Copy, Debug)]
struct Quoted<'a> {
    raw: &'a str,
    escaped: bool,
}

impl<'a> Quoted<'a> {
    /// Reads up to the closing quote; `text` starts after the opening one.
    fn read(text: &'a str) -> Option<(Self, &'a str)> {
        let mut escaped = false;
        let mut bytes = text.bytes().enumerate();
        loop {
            let (i, sign) = bytes.find(|(_, b)| matches!(b, b'"' | b'\\'))?;
            if sign == b'"' {
                return Some((Self { raw: text.get(..i)?, escaped }, text.get(i + 1..)?));
            }
            escaped = true;
            bytes.next();
        }
    }

    /// With `\\`, `\"` and `\n` replaced; any other escape stays as it is.
    fn decode(self) -> Cow<'a, str> {
        if !self.escaped {
            return Cow::Borrowed(self.raw);
        }
        let mut out = String::with_capacity(self.raw.len());
        let mut chars = self.raw.chars();
        while let Some(c) = chars.next() {
            match (c, if c == '\\' { chars.next() } else { None }) {
                ('\\', Some('n')) => out.push('\n'),
                ('\\', Some(escaped @ ('\\' | '"'))) => out.push(escaped),
                (c, other) => {
                    out.push(c);
                    out.extend(other);
                }
            }
        }
        Cow::Owned(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn one(line: &str) -> Sample<'_> {
        let mut samples = Exposition::new(line).samples();
        let sample = samples.next().unwrap_or_else(|| panic!("no sample in {line:?}"));
        assert_eq!((samples.next(), samples.bad_lines()), (None, 0), "{line:?}");
        sample
    }

    fn labels(sample: &Sample<'_>) -> Vec<(String, String)> {
        sample.labels().map(|l| (l.name().into_owned(), l.value().into_owned())).collect()
    }

    type Case = (&'static str, &'static str, f64, &'static [(&'static str, &'static str)]);

    #[test]
    fn a_body_that_is_one_json_string_is_what_it_says() {
        assert_eq!(decode(br#" "a 1\nb{x=\"y\"} 2\n" "#), "a 1\nb{x=\"y\"} 2\n");
        for other in ["\"", "\"a 1", "\"a\" 1\nb \"c\"", "a \"1\"", ""] {
            assert_eq!(decode(other.as_bytes()), other);
        }
    }

    #[test]
    fn every_shape_of_a_line_that_the_formats_allow() {
        let cases: &[Case] = &[
            ("up 1", "up", 1.0, &[]),
            ("  up\t\t1.5e3  ", "up", 1500.0, &[]),
            ("vllm:kv{} 0.25", "vllm:kv", 0.25, &[]),
            (r#"a{b="c"}1"#, "a", 1.0, &[("b", "c")]),
            (r#"a { b = "c" , d="e", } 1 1795960436789"#, "a", 1.0, &[("b", "c"), ("d", "e")]),
            (r#"a{b="x},y=\"1\" # {"} 2"#, "a", 2.0, &[("b", "x},y=\"1\" # {")]),
            (r#"a{b="1\\2\"3\n4\t5"} 2"#, "a", 2.0, &[("b", "1\\2\"3\n4\\t5")]),
            (r#"a{b=""} -0.5"#, "a", -0.5, &[("b", "")]),
            (r#"{"my.metric \"x\"",b="c"} 3"#, "my.metric \"x\"", 3.0, &[("b", "c")]),
            (r#"{"only.name"} 3"#, "only.name", 3.0, &[]),
            (r#"a{"label.é"="ö"} 3"#, "a", 3.0, &[("label.é", "ö")]),
            (r#"a_bucket{le="+Inf"} 17 # {trace_id="x"} 0.67 1.5"#, "a_bucket", 17.0, &[("le", "+Inf")]),
            (r"a 17 123.5 # {} 0.67", "a", 17.0, &[]),
            ("a +Inf", "a", f64::INFINITY, &[]),
            ("a Inf", "a", f64::INFINITY, &[]),
            ("a -Inf", "a", f64::NEG_INFINITY, &[]),
        ];
        for (line, name, value, expected) in cases {
            let sample = one(line);
            assert_eq!((&*sample.name, sample.value.to_bits()), (*name, value.to_bits()), "{line}");
            let expected: Vec<_> = expected.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            assert_eq!(labels(&sample), expected, "{line}");
        }
        assert!(one("a NaN").value.is_nan());
    }

    #[test]
    fn a_bad_line_is_counted_and_costs_no_other() {
        let bad = [
            "a",
            "a b",
            "a 1 x",
            "a 1 2 3",
            "1a 1",
            "a{b=\"c\" 1",
            "a{b=c} 1",
            "a{b} 1",
            "a{=\"c\"} 1",
            "a{b=\"c\"d=\"e\"} 1",
            "a{,} 1",
            "a{b=\"c\\",
            "a{b=\"c\\\"} 1",
            "{b=\"c\"} 1",
            "a{\"name\"} 1",
            "{} 1",
            "a.b 1",
            "é 1",
            "<html>",
            "a 1,5",
        ];
        for line in bad {
            let body = format!("first 1\n{line}\r\n\n# a comment\nlast 2");
            let mut samples = Exposition::new(&body).samples();
            let names: Vec<_> = samples.by_ref().map(|s| s.name.into_owned()).collect();
            assert_eq!((names, samples.bad_lines()), (vec!["first".to_owned(), "last".to_owned()], 1), "{line:?}");
        }
    }

    #[test]
    fn carriage_returns_missing_final_newline_and_eof() {
        let body = "# TYPE a counter\r\na_total 1\r\n\r\nb{c=\"d\"} 2\r\n# EOF\r\nc 3";
        let mut samples = Exposition::new(body).samples();
        let values: Vec<_> = samples.by_ref().map(|s| s.value).collect();
        assert_eq!((values, samples.bad_lines()), (vec![1.0, 2.0, 3.0], 0));
    }

    #[test]
    fn bytes_that_are_not_text_stay_in_their_line() {
        let text = decode(b"\xef\xbb\xbfa{b=\"\xff\xc3\"} 1\n\xc3\nb 2\n");
        let mut samples = Exposition::new(&text).samples();
        assert_eq!(samples.next().unwrap().label("b"), "\u{fffd}\u{fffd}");
        assert_eq!(samples.next().unwrap().name, "b");
        assert_eq!((samples.next(), samples.bad_lines()), (None, 1));
    }

    #[test]
    fn plain_lines_are_borrowed() {
        let sample = one(r#"vllm:x{a="b"} 1"#);
        assert!(matches!(sample.name, Cow::Borrowed(_)) && matches!(sample.label("a"), Cow::Borrowed("b")));
        assert_eq!(sample.label("none"), "");
    }

    /// The oracle knows nothing of the grammar: in these bodies no label value holds a space, so the
    /// value is what follows the last one.
    #[test]
    fn real_bodies_agree_with_a_dumb_splitter() {
        let bodies = [
            include_str!("../../assets/metrics/vllm-0.25.1-overload.prom"),
            include_str!("../../assets/metrics/vllm-0.25.1-idle.prom"),
            include_str!("../../assets/metrics/vllm-0.32.0-queue.prom"),
            include_str!("../../assets/metrics/vllm-0.32.0-lora.prom"),
            include_str!("../../assets/metrics/vllm-0.10.2-load.prom"),
            include_str!("../../assets/metrics/llama.cpp-b11549.prom"),
        ];
        for (body, lines) in bodies.into_iter().zip([435, 420, 497, 421, 356, 15]) {
            let expected = body.lines().filter(|line| !line.starts_with('#')).map(|line| {
                let (series, value) = line.rsplit_once(' ').unwrap();
                let labels = if series.contains('{') { series.matches("=\"").count() } else { 0 };
                (series.split('{').next().unwrap().to_owned(), value.parse::<f64>().unwrap().to_bits(), labels)
            });
            let mut samples = Exposition::new(body).samples();
            let read: Vec<_> =
                samples.by_ref().map(|s| (s.name.to_string(), s.value.to_bits(), s.labels().count())).collect();
            assert_eq!((read.len(), samples.bad_lines()), (lines, 0));
            assert_eq!(read, expected.collect::<Vec<_>>());
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(body in prop::collection::vec(any::<u8>(), 0..400)) {
            let text = decode(&body);
            let mut samples = Exposition::new(&text).samples();
            let read = samples.by_ref().filter(|s| s.labels().count() < body.len()).count();
            prop_assert!(read + samples.bad_lines() <= text.matches('\n').count() + 1);
        }

        /// Bytes that the grammar cares for, so that its branches are really reached.
        #[test]
        fn any_mixture_of_signs_is_read_without_panic(body in r#"[ab1{}"=,\\ #\n\tN.+\-é]{0,60}"#) {
            for sample in Exposition::new(&body).samples() {
                prop_assert!(!sample.name.is_empty());
                for label in sample.labels() {
                    prop_assert!(label.name().len() + label.value().len() <= body.len());
                }
            }
        }

        #[test]
        fn what_is_written_is_read(
            name in "[a-zA-Z_:][a-zA-Z0-9_:]{0,12}",
            labels in prop::collection::vec(("[a-zA-Z_][a-zA-Z0-9_]{0,8}", any::<String>()), 0..5),
            value in any::<f64>(),
        ) {
            let escape = |v: &str| v.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let set: Vec<String> = labels.iter().map(|(k, v)| format!("{k}=\"{}\"", escape(v))).collect();
            let body = format!("{name}{{{}}} {value:?}\n", set.join(","));
            let sample = Exposition::new(&body).samples().next();
            prop_assert!(sample.is_some(), "{body:?}");
            let sample = sample.unwrap();
            prop_assert_eq!(&*sample.name, name.as_str());
            prop_assert!(sample.value.total_cmp(&value).is_eq() || value.is_nan() && sample.value.is_nan());
            prop_assert_eq!(super::tests::labels(&sample), labels);
        }
    }
}
