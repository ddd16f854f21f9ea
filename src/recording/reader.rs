//! Reads a recording as it comes: batches one by one, and in words what could not be read.
//!
//! It must not know who asks. Invariants: never fails after [`Reader::new`], it says what is missing;
//! texts are cleaned, secrets masked and histograms checked, because a file is input from outside.

use std::io::Read;
use std::sync::Arc;

use crate::model::secret::mask_line;
use crate::model::text::Plural;
use crate::model::{Batch, CpuLimits, Edge, HistogramSample, SourceState, Time, limits, text};

use super::lines::{End, Line, Lines, MAX_USELESS};
use super::{FORMAT, Header, MAX_LINE, VERSION};

/// Longest header line, bytes.
const MAX_HEADER: usize = 64 << 10;
/// Bytes that may come before the header is read: what is read at a time, as it came and unpacked, and a header.
const MAX_FIRST: usize = 4 * MAX_HEADER;
/// The year 10 000: no clock is that wrong, and sums of times up to here cannot overflow.
const LATEST: Time = Time(253_402_300_800_000);
/// A store counts time in ms of 32 bits from its first batch.
const MAX_SPAN_MS: u64 = u32::MAX as u64 - 3_600_000;

/// The input cannot be played at all.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no first byte.
    #[error("it is empty, not a recording; `warptop record -o FILE` makes one")]
    Empty,
    /// The first line is no header.
    #[error("it is not a warptop recording: its first line is no header; `warptop record -o FILE` makes one")]
    NoRecording,
    /// It ends inside the first line.
    #[error("it is cut or damaged before its first line ends: nothing in it can be played")]
    NoHeader,
    /// It cannot be read.
    #[error("it cannot be read: {0}")]
    Io(#[from] std::io::Error),
}

/// What is missing from what was played so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems {
    /// Version of the format, when it is newer than this program's.
    pub newer: Option<u32>,
    /// Lines that could not be read and were passed over.
    pub bad_lines: u64,
    /// Values, histograms and rows that are beyond what is kept, and were left out.
    pub left_out: u64,
    /// How it ended, when not as it should; ready to be followed by "after 00:03:12".
    pub ended: Option<String>,
    /// How far it could be played, ms after its first batch.
    pub played_ms: u64,
}

impl Problems {
    /// Each problem as a line for the screen.
    pub fn texts(&self) -> Vec<String> {
        let mut out = Vec::new();
        if let Some(version) = self.newer {
            out.push(format!("format {version} is newer than this program's {VERSION}: only what it knows is shown"));
        }
        if self.bad_lines > 0 {
            let lines = Plural(self.bad_lines, "damaged or unknown line", "damaged or unknown lines");
            out.push(format!("{lines} passed over"));
        }
        if self.left_out > 0 {
            out.push(format!("{} values, histograms or rows are beyond what is kept, and left out", self.left_out));
        }
        if let Some(how) = &self.ended {
            let s = self.played_ms / 1000;
            out.push(format!("{how} after {:02}:{:02}:{:02}: the rest is missing", s / 3600, s / 60 % 60, s % 60));
        }
        out
    }
}

/// The batches of a recording, in the order they were written.
pub struct Reader {
    lines: Lines,
    header: Header,
    /// Time of the first batch, once it was read: positions count from here.
    first: Option<Time>,
    problems: Problems,
}

impl Reader {
    /// Opens a recording, packed or not. Waits for its first line.
    ///
    /// # Errors
    /// When the input is no recording or cannot be read.
    pub fn new(input: impl Read + Send + 'static) -> Result<Self, OpenError> {
        let mut lines = Lines::new(input, MAX_FIRST)?;
        lines.limit(MAX_HEADER);
        let header = match lines.next() {
            Some(Line::Whole(line) | Line::Last(line)) => parse_header(line),
            Some(Line::TooLong) => None,
            None => {
                return Err(match lines.end() {
                    Some(End::Failed(why)) => OpenError::Io(std::io::Error::other(why.clone())),
                    Some(End::Cut | End::Damaged) => OpenError::NoHeader,
                    Some(End::Useless) => OpenError::NoRecording,
                    Some(End::Whole) | None => OpenError::Empty,
                });
            }
        };
        lines.limit(MAX_LINE);
        let Some(header) = header else {
            let broken = matches!(lines.end(), Some(End::Cut | End::Damaged));
            return Err(if broken { OpenError::NoHeader } else { OpenError::NoRecording });
        };
        lines.used();
        let newer = Some(header.version).filter(|&v| v > VERSION);
        Ok(Self { lines, header, first: None, problems: Problems { newer, ..Problems::default() } })
    }

    /// Its first line.
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// What is missing so far.
    pub const fn problems(&self) -> &Problems {
        &self.problems
    }

    fn take(&mut self, mut batch: Batch) -> Option<Batch> {
        if batch.at > LATEST {
            return None;
        }
        let first = *self.first.get_or_insert(batch.at);
        if batch.at.since(first) > MAX_SPAN_MS {
            return None;
        }
        self.problems.played_ms = self.problems.played_ms.max(batch.at.since(first));
        make_safe(&mut batch);
        self.problems.left_out += limits::fit_batch(&mut batch) as u64;
        Some(batch)
    }

    fn note_end(&mut self, cut: bool) {
        self.problems.ended = match self.lines.end() {
            Some(End::Damaged) => Some("damaged".to_owned()),
            Some(End::Failed(why)) => Some(format!("could not be read on ({})", text::clean(why))),
            Some(End::Cut) => Some("cut".to_owned()),
            Some(End::Useless) => Some(format!("{} MiB in a row hold no reading: given up", MAX_USELESS >> 21)),
            Some(End::Whole) | None => cut.then(|| "cut".to_owned()),
        };
    }
}

impl Iterator for Reader {
    type Item = Batch;

    fn next(&mut self) -> Option<Batch> {
        let mut cut = false;
        loop {
            let Some(line) = self.lines.next() else {
                self.note_end(cut);
                return None;
            };
            let (bytes, last) = match line {
                Line::TooLong => (&[][..], false),
                Line::Whole([]) => continue,
                Line::Whole(bytes) => (bytes, false),
                Line::Last(bytes) => (bytes, true),
            };
            if let Ok(batch) = serde_json::from_slice(bytes) {
                if let Some(batch) = self.take(batch) {
                    self.lines.used();
                    return Some(batch);
                }
            } else if parse_header(bytes).is_some() {
                // Recordings put one after the other play as one.
                continue;
            } else if last {
                cut = true;
                continue;
            }
            self.problems.bad_lines += 1;
        }
    }
}

fn parse_header(line: &[u8]) -> Option<Header> {
    let mut header: Header = serde_json::from_slice(line).ok()?;
    header.host = text::clean(&header.host);
    header.note = text::clean(&header.note);
    header.warptop = text::clean(&header.warptop);
    (header.format == FORMAT).then_some(header)
}

/// Cleans texts, masks secrets and drops histograms that are none.
fn make_safe(batch: &mut Batch) {
    // What an earlier version recorded, or another program wrote, holds secrets.
    let clean = |text: &mut Arc<str>| {
        let safe = text::clean(&mask_line(text));
        if safe != **text {
            *text = safe.into();
        }
    };
    batch.facts.iter_mut().for_each(|fact| clean(&mut fact.text));
    for event in &mut batch.events {
        [&mut event.cause, &mut event.level, &mut event.headline].into_iter().for_each(clean);
    }
    for mark in &mut batch.marks {
        clean(&mut mark.probe);
        clean(&mut mark.run);
        if let Edge::End(how) = &mut mark.edge {
            clean(how);
        }
    }
    for process in batch.processes.iter_mut().flatten() {
        clean(&mut process.user);
        clean(&mut process.command);
        process.threads.iter_mut().for_each(|thread| clean(&mut thread.name));
        if process.limits.list.len() > limits::TEXT_BYTES {
            process.limits = Arc::new(CpuLimits { list: Arc::default(), ..CpuLimits::clone(&process.limits) });
        }
    }
    match &mut batch.state {
        Some(
            SourceState::Degraded(why)
            | SourceState::Failed(why)
            | SourceState::Loading(why)
            | SourceState::NoMetrics(why)
            | SourceState::Unauthorized(why)
            | SourceState::Stalled(why)
            | SourceState::Absent(why),
        ) => clean(why),
        Some(SourceState::Starting | SourceState::Ok) | None => {}
    }
    batch.histograms.retain(HistogramSample::is_sound);
}
