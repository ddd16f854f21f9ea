//! What a probe's child says to its parent: one message a line of JSON on its standard output.
//!
//! Owns the messages and the bounds of the stream. It must not know processes or threads. Invariants: a
//! line, a second and a run are bounded; what is not a message ends the run, with words.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::load::Level;
use crate::load::level::Knee;
use crate::model::text;

use super::spec::{Params, Target};

/// Version of the messages: parent and child are the same file, but a file may be replaced.
pub const VERSION: u32 = 1;
/// Longest line, bytes. A matrix of eight GPUs takes a few thousand.
pub const MAX_LINE: usize = 256 << 10;
/// Lines in any one second, at most: a probe says how far it is a few times a second.
pub const MAX_LINES_PER_S: u32 = 2_000;
/// Single measurements that a probe says in any [`SAMPLES_EVERY_US`], at most; more are counted only. What a parent that
/// was kept waiting finds in the pipe, some 900 lines, still fits into its second.
pub const MAX_SAMPLES_SAID: u32 = 80;
/// See [`MAX_SAMPLES_SAID`], µs.
pub const SAMPLES_EVERY_US: u64 = 100_000;
/// Single measurements that are kept of a run; more are counted only.
pub const MAX_SAMPLES: usize = 10_000;
/// Levels that are kept of a sweep.
pub const MAX_LEVELS: usize = 256;
/// Pieces of a level that are kept: an hour, and the parts of a minute at both ends.
pub const MAX_SLICES: usize = 62;

/// What a child is told to do: its one argument.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// The run.
    pub run: String,
    /// The probe.
    pub probe: String,
    /// What it is aimed at. With one GPU, that is the only one the child sees.
    pub target: Target,
    /// The probe's own parameters.
    pub params: Params,
    /// Share of time it may keep the target busy, %: less than 100 beside others that were forced to share.
    pub duty_pct: u8,
    /// Device memory it may take, bytes.
    pub most_bytes: u64,
    /// How long it may take, ms: after that it ends by itself, should nobody watch over it any more.
    pub most_ms: u64,
    /// Process id of the parent: a child whose parent is another one was left alone and ends.
    pub parent: u32,
    /// Whether the first line on its standard input is a [`crate::net::sealed::Sealed`] one.
    #[serde(default)]
    pub sealed: bool,
}

/// One line of a child.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "is")]
pub enum Message {
    /// The first line.
    Hello {
        /// [`VERSION`].
        version: u32,
        /// The run it was told to do.
        run: String,
    },
    /// How far it is.
    Progress {
        /// Share that is done, 0 to 1.
        done: f64,
        /// Time that is left, s, where it can be told.
        eta_s: Option<f64>,
        /// What it is doing.
        what: String,
    },
    /// One measurement.
    Sample(Sample),
    /// A level of a sweep, whole or as far as it is: it replaces what was said of the same place and repetition before.
    Level(Box<Level>),
    /// So many measurements more were made than were said since the last such word: a second holds only so many lines.
    LeftOut {
        /// How many.
        samples: u64,
    },
    /// All that it found; the last line.
    Result(Outcome),
    /// Why there is no result; the last line.
    Error(Failure),
}

/// One measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Of which series, e.g. `triad`.
    pub series: String,
    /// Its unit.
    pub unit: String,
    /// The value.
    pub value: f64,
}

/// Which way is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// More is better: a rate.
    Higher,
    /// Less is better: a time.
    Lower,
    /// Neither: a property.
    Neither,
}

/// One figure of a result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Its name for programs, the same in every run.
    pub id: String,
    /// Its name for people.
    pub label: String,
    /// Its unit.
    pub unit: String,
    /// The median of the measurements.
    pub value: f64,
    /// Number of measurements.
    pub n: u64,
    /// Smallest of them.
    pub lo: f64,
    /// Largest of them.
    pub hi: f64,
    /// Which way is better.
    pub better: Better,
    /// The least that physics leaves, in the same unit: bytes over bandwidth, operations over rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor: Option<f64>,
    /// How it was measured.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub method: String,
}

impl Figure {
    /// The median of `values` with their extremes; `None` when one is not finite or there is none.
    pub fn median(id: &str, label: &str, unit: &str, better: Better, values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        if sorted.is_empty() || sorted.iter().any(|value| !value.is_finite()) {
            return None;
        }
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let value =
            if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) };
        Some(Self {
            id: id.to_owned(),
            label: label.to_owned(),
            unit: unit.to_owned(),
            value,
            n: sorted.len() as u64,
            lo: sorted[0],
            hi: sorted[sorted.len() - 1],
            better,
            floor: None,
            method: String::new(),
        })
    }

    /// Whether no measurement of the one lies within those of the other: a difference that is no spread.
    pub fn is_apart(&self, other: &Self) -> bool {
        self.lo > other.hi || self.hi < other.lo
    }

    /// The time for `work` at this rate, which says how much of it a µs does and is never more than `peak`.
    #[must_use]
    pub fn time(&self, (id, label): (&str, &str), work: f64, peak: Option<f64>, method: String) -> Self {
        let us = |rate: f64| work / rate;
        Self {
            id: id.to_owned(),
            label: label.to_owned(),
            unit: "µs".to_owned(),
            value: us(self.value),
            n: self.n,
            lo: us(self.hi),
            hi: us(self.lo),
            better: Better::Lower,
            floor: peak.map(us),
            method,
        }
    }

    /// Says how it was measured.
    #[must_use]
    pub fn by(mut self, method: &str) -> Self {
        method.clone_into(&mut self.method);
        self
    }
}

/// A comparison with an independent computation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// What was compared with what.
    pub what: String,
    /// Whether it was the same.
    pub passed: bool,
    /// How far off, when it was not.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

/// All that a probe found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The figures, the most telling first.
    pub figures: Vec<Figure>,
    /// Whether the computation was right.
    #[serde(default)]
    pub checks: Vec<Check>,
    /// What has to be known to read the figures, in sentences.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Texts about the machine and the libraries that were used, by name.
    #[serde(default)]
    pub facts: BTreeMap<String, String>,
    /// What the hardware as it was found promises for a figure, by the figure's id and in its unit: it goes before the
    /// product's datasheet.
    #[serde(default)]
    pub promised: BTreeMap<String, f64>,
    /// What the probe itself found to be wrong, each with what to do. With such words the verdict is `watch` or worse.
    #[serde(default)]
    pub advice: Vec<String>,
    /// When what happened, s after the process began, by name.
    #[serde(default)]
    pub moments: BTreeMap<String, f64>,
    /// Why a sweep ended before all its levels were measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_early: Option<String>,
    /// Where a sweep's throughput stops growing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub knee: Option<Knee>,
}

/// Why a probe has no result, ready for the screen: what, why, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case", tag = "kind", content = "why")]
pub enum Failure {
    /// It was told to stop, and did.
    #[error("stopped")]
    Stopped,
    /// Something it needs is not here: a library, a second GPU. Nothing was measured.
    #[error("{0}")]
    Unavailable(String),
    /// Something went wrong.
    #[error("{0}")]
    Failed(String),
}

/// The child broke the rules of the stream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// A line that is no message.
    #[error("the probe's process said what is no message: '{0}'")]
    Garbage(String),
    /// Too much of it.
    #[error("the probe's process wrote more than {MAX_LINES_PER_S} lines in a second")]
    Flood,
    /// A line without end.
    #[error("the probe's process wrote a line of more than {} KiB", MAX_LINE >> 10)]
    TooLong,
    /// It is another program or another run.
    #[error("the probe's process is of another version or run than was started")]
    Stranger,
    /// Measurements before the greeting.
    #[error("the probe's process did not introduce itself")]
    NoHello,
}

/// Takes in the bytes of one child, and holds it to the rules.
#[derive(Debug)]
pub struct Intake {
    run: String,
    partial: Vec<u8>,
    greeted: bool,
    /// Start of the second that is counted, µs, and the lines in it.
    second: (u64, u32),
}

impl Intake {
    /// For the child of this run.
    pub const fn new(run: String) -> Self {
        Self { run, partial: Vec::new(), greeted: false, second: (0, 0) }
    }

    /// Takes in what was read at `micros` and hands each message to `hear`.
    ///
    /// # Errors
    /// The first rule that was broken; nothing of the child counts after that.
    pub fn take(&mut self, micros: u64, bytes: &[u8], mut hear: impl FnMut(Message)) -> Result<(), Broken> {
        for piece in bytes.split_inclusive(|&b| b == b'\n') {
            if self.partial.len() + piece.len() > MAX_LINE {
                return Err(Broken::TooLong);
            }
            self.partial.extend_from_slice(piece);
            if self.partial.last() == Some(&b'\n') {
                let line = std::mem::take(&mut self.partial);
                self.count(micros)?;
                hear(self.line(&line)?);
            }
        }
        Ok(())
    }

    fn count(&mut self, micros: u64) -> Result<(), Broken> {
        if micros.saturating_sub(self.second.0) >= 1_000_000 {
            self.second = (micros, 0);
        }
        self.second.1 += 1;
        if self.second.1 > MAX_LINES_PER_S { Err(Broken::Flood) } else { Ok(()) }
    }

    fn line(&mut self, line: &[u8]) -> Result<Message, Broken> {
        let message = serde_json::from_slice(line).map_err(|_| {
            let start: String = String::from_utf8_lossy(line).chars().take(80).collect();
            Broken::Garbage(text::clean(&start))
        })?;
        match &message {
            Message::Hello { version, run } if *version != VERSION || *run != self.run => Err(Broken::Stranger),
            Message::Hello { .. } => {
                self.greeted = true;
                Ok(message)
            }
            _ if !self.greeted => Err(Broken::NoHello),
            _ => Ok(safe(message)),
        }
    }
}

/// Longest sentence that is kept, in characters: what is missing, where was looked for it and what to do.
const SENTENCE: usize = 1_024;

/// Cleans every text: a child is the same program, but it may hold words of a library.
fn safe(mut message: Message) -> Message {
    let clean = |text: &mut String| *text = text::clean(text);
    let clean_sentence = |text: &mut String| *text = text::clean_to(text, SENTENCE);
    match &mut message {
        Message::Hello { .. } | Message::LeftOut { .. } | Message::Error(Failure::Stopped) => {}
        Message::Progress { what, done, eta_s } => {
            clean(what);
            *done = done.clamp(0.0, 1.0);
            *eta_s = eta_s.filter(|eta| *eta >= 0.0);
        }
        Message::Sample(sample) => {
            clean(&mut sample.series);
            clean(&mut sample.unit);
        }
        Message::Level(level) => {
            level.notes.iter_mut().chain(&mut level.client.limits).for_each(clean_sentence);
            level.slices.truncate(MAX_SLICES);
            // What was read of server and GPUs is the parent's to add.
            (level.server, level.bottleneck) = (None, None);
            level.gpus.clear();
        }
        Message::Error(Failure::Unavailable(why) | Failure::Failed(why)) => clean_sentence(why),
        Message::Result(outcome) => {
            for figure in &mut outcome.figures {
                for text in [&mut figure.id, &mut figure.label, &mut figure.unit, &mut figure.method] {
                    clean(text);
                }
            }
            for check in &mut outcome.checks {
                clean(&mut check.what);
                clean_sentence(&mut check.detail);
            }
            outcome.notes.iter_mut().chain(&mut outcome.advice).for_each(clean_sentence);
            let facts = std::mem::take(&mut outcome.facts).into_iter();
            outcome.facts = facts.map(|(name, fact)| (text::clean(&name), text::clean(&fact))).collect();
            let moments = std::mem::take(&mut outcome.moments).into_iter();
            outcome.moments = moments.map(|(name, at)| (text::clean(&name), at)).collect();
            outcome.knee.iter_mut().for_each(|knee| clean_sentence(&mut knee.words));
            outcome.ended_early.iter_mut().for_each(clean_sentence);
        }
    }
    message
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A request that no test minds the words of.
    pub(in crate::probe) fn request(probe: &str) -> Request {
        Request {
            run: "r".to_owned(),
            probe: probe.to_owned(),
            target: Target::default(),
            params: Params::default(),
            duty_pct: 100,
            most_bytes: 0,
            most_ms: 60_000,
            parent: 0,
            sealed: false,
        }
    }

    fn hello() -> String {
        line(&Message::Hello { version: VERSION, run: "r1".to_owned() })
    }

    fn line(message: &Message) -> String {
        serde_json::to_string(message).unwrap() + "\n"
    }

    fn heard(chunks: &[&[u8]]) -> (Vec<Message>, Result<(), Broken>) {
        let mut intake = Intake::new("r1".to_owned());
        let mut out = Vec::new();
        for chunk in chunks {
            if let Err(broken) = intake.take(5, chunk, |message| out.push(message)) {
                return (out, Err(broken));
            }
        }
        (out, Ok(()))
    }

    #[test]
    fn messages_read_back_however_they_are_cut() {
        let figure = Figure::median("triad", "Triad", "GB/s", Better::Higher, &[3.0, 1.0, 2.0, 10.0]).unwrap();
        assert_eq!((figure.value, figure.lo, figure.hi, figure.n), (2.5, 1.0, 10.0, 4));
        let messages = [
            Message::Hello { version: VERSION, run: "r1".to_owned() },
            Message::Progress { done: 0.5, eta_s: Some(2.0), what: "copy".to_owned() },
            Message::Sample(Sample { series: "copy".to_owned(), unit: "GB/s".to_owned(), value: 4.2 }),
            Message::Result(Outcome { figures: vec![figure], ..Outcome::default() }),
            Message::Error(Failure::Stopped),
            Message::Error(Failure::Unavailable("no libcuda".to_owned())),
        ];
        let text: String = messages.iter().map(line).collect();
        for size in [1, 7, 64, 4096] {
            let chunks: Vec<_> = text.as_bytes().chunks(size).collect();
            assert_eq!(heard(&chunks), (messages.to_vec(), Ok(())), "in pieces of {size}");
        }
    }

    #[test]
    fn of_a_level_only_what_the_client_knows_is_taken_and_not_without_bound() {
        use crate::load::level::{Bottleneck, Server, Silicon, Slice};
        let level = Level {
            notes: vec!["a\u{1b}[31mb".to_owned()],
            slices: vec![Slice::default(); MAX_SLICES + 1],
            server: Some(Server::default()),
            gpus: vec![Silicon::default()],
            bottleneck: Some(Bottleneck::default()),
            ..Level::default()
        };
        let (heard, _) = heard(&[(hello() + &line(&Message::Level(Box::new(level)))).as_bytes()]);
        let Message::Level(level) = &heard[1] else { panic!("{heard:?}") };
        assert_eq!((level.notes.as_slice(), level.slices.len()), (["ab".to_owned()].as_slice(), MAX_SLICES));
        assert!(level.server.is_none() && level.gpus.is_empty() && level.bottleneck.is_none());
    }

    #[test]
    fn what_breaks_the_rules_is_told_apart() {
        let hello = hello();
        let broken = |text: &str| heard(&[text.as_bytes()]).1.unwrap_err();
        assert_eq!(broken("{\"is\":\"progress\",\"done\":0,\"eta_s\":null,\"what\":\"\"}\n"), Broken::NoHello);
        assert_eq!(broken(&hello.replace("r1", "r2")), Broken::Stranger);
        assert_eq!(broken(&hello.replace(":1", ":2")), Broken::Stranger);
        let garbage = broken(&format!("{hello}Segm\u{1b}[31mentation fault\n"));
        assert_eq!(garbage, Broken::Garbage("Segmentation fault".to_owned()));
        assert!(matches!(broken(&format!("{hello}\n")), Broken::Garbage(_)), "an empty line is no message");
        // JSON has no NaN: serde writes null for it, which is no number.
        let sample = Message::Sample(Sample { series: String::new(), unit: String::new(), value: f64::NAN });
        assert!(matches!(broken(&(hello.clone() + &line(&sample))), Broken::Garbage(_)));
        assert_eq!(broken(&(hello + &"x".repeat(MAX_LINE + 1))), Broken::TooLong);
    }

    #[test]
    fn a_flood_is_a_rate() {
        let progress = line(&Message::Progress { done: 0.0, eta_s: None, what: String::new() });
        let mut intake = Intake::new("r1".to_owned());
        intake.take(0, hello().as_bytes(), drop).unwrap();
        for second in 1..10 {
            for _ in 0..MAX_LINES_PER_S {
                intake.take(second * 1_000_000, progress.as_bytes(), drop).unwrap();
            }
        }
        assert_eq!(intake.take(9_999_999, progress.as_bytes(), drop), Err(Broken::Flood));
    }

    #[test]
    fn sentences_may_be_longer_than_names_and_still_end() {
        let failed = |chars: usize| Message::Error(Failure::Failed("x".repeat(chars)));
        let of = |chars: usize| heard(&[(hello() + &line(&failed(chars))).as_bytes()]).0.remove(1);
        assert_eq!([of(600), of(5_000)], [600, SENTENCE].map(failed));
    }

    #[test]
    fn texts_are_cleaned() {
        let text = hello() + &line(&Message::Error(Failure::Failed("a\u{1b}]0;b\u{7}".to_owned())));
        assert_eq!(heard(&[text.as_bytes()]).0[1], Message::Error(Failure::Failed("a".to_owned())));
        let mut outcome = Outcome::default();
        outcome.facts.insert("a\u{9b}1mb".to_owned(), "c\u{202e}".to_owned());
        outcome.moments.insert("\u{1b}[31mload".to_owned(), 1.0);
        let (heard, _) = heard(&[(hello() + &line(&Message::Result(outcome))).as_bytes()]);
        let Message::Result(outcome) = &heard[1] else { panic!("{heard:?}") };
        assert_eq!(outcome.facts.iter().next(), Some((&"ab".to_owned(), &"c".to_owned())));
        assert_eq!(outcome.moments.keys().next().map(String::as_str), Some("load"));
    }
}
