//! What happened to the program and its sources: lines for a file and for the screen.
//!
//! It must not know what a source is read by, nor how a line is drawn. Invariants: whoever says something never waits for
//! the disk (a bounded queue loses lines and counts them); the same words are one line a minute, with a count; a line
//! is cleaned, at most 300 characters long, and holds nothing of a key; the screen works without the file.

mod file;
mod repeats;

pub use file::LogFile;

use std::collections::{HashMap, VecDeque};
use std::fmt::{self, Display};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::model::clock::date;
use crate::model::lock;
use crate::model::secret::mask_line;
use crate::model::text::Plural;
use crate::model::text::clean_to;
use crate::model::{Batch, Clock, Edge, Mark, SourceId, SourceState, Time, spawn};
use repeats::Repeats;

/// Lines that wait for a slow disk.
const QUEUE: usize = 256;
/// Lines that are kept for the screen.
pub const MOST_LINES: usize = 500;
/// Longest text of a line, characters.
const MOST_CHARS: usize = 300;
/// How often counts of what was repeated are looked at.
const TICK: Duration = Duration::from_secs(1);
/// How long a panic waits for its line to reach the file.
const LAST_WORDS: Duration = Duration::from_millis(300);

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// As it should be.
    Info,
    /// Something is missing or late.
    Warning,
    /// Something does not work.
    Error,
}

impl LogLevel {
    /// Its word in the file and on the screen.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }

    const fn of(state: &SourceState) -> Self {
        match state {
            SourceState::Starting | SourceState::Ok | SourceState::Loading(_) | SourceState::Absent(_) => Self::Info,
            SourceState::Degraded(_) | SourceState::Unauthorized(_) | SourceState::Stalled(_) => Self::Warning,
            SourceState::Failed(_) | SourceState::NoMetrics(_) => Self::Error,
        }
    }
}

/// One thing that happened: a line of the file, and of the screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// When; of one that was repeated, the last time.
    pub at: Time,
    /// How bad it is.
    pub level: LogLevel,
    /// To what: `engine 0`, `NVML`, `warptop`.
    pub subject: String,
    /// What.
    pub words: String,
    /// How often it happened again since the line before with these words; 0 for the first.
    pub again: u64,
}

impl LogLine {
    fn new(at: Time, level: LogLevel, subject: &str, words: &str) -> Self {
        Self { at, level, subject: clean_to(subject, 40), words: clean_to(words, MOST_CHARS), again: 0 }
    }

    /// What happened, and how often.
    pub fn text(&self) -> String {
        match self.again {
            0 => self.words.clone(),
            again => format!("{} ({again} more in the last minute)", self.words),
        }
    }
}

/// As in the file: `2026-12-01T03:04:05.678Z warning engine 0: does not answer within 2 s`.
impl Display for LogLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = date(self.at.0 / 86_400_000);
        let (s, ms) = (self.at.0 / 1000 % 86_400, self.at.0 % 1000);
        let (hour, minute, second) = (s / 3600, s / 60 % 60, s % 60);
        let (level, subject) = (self.level.word(), &self.subject);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z {level} {subject}: ")?;
        f.write_str(&self.text())
    }
}

/// What the thread of the log is told.
enum Said {
    Line(LogLine),
    /// Answer when all that was said before is written.
    Flush(SyncSender<()>),
}

/// What is kept for the screen.
#[derive(Debug, Default)]
struct Kept {
    lines: VecDeque<LogLine>,
    version: u64,
}

#[derive(Debug)]
struct Shared {
    kept: Mutex<Kept>,
    lost: AtomicU64,
    /// What each source said last.
    states: Mutex<HashMap<SourceId, SourceState>>,
    /// Where the file is, or why there is none.
    place: Result<String, String>,
}

/// The log of one process. Clones speak into the same one.
#[derive(Clone)]
pub struct EventLog {
    to: SyncSender<Said>,
    shared: Arc<Shared>,
    clock: Arc<dyn Clock>,
}

impl fmt::Debug for EventLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventLog").field("place", &self.shared.place).finish_non_exhaustive()
    }
}

impl EventLog {
    /// Starts the log's thread. `file`: where it is written to, or why it is not; that is its first line.
    pub fn start(clock: &Arc<dyn Clock>, file: Result<LogFile, String>) -> Self {
        let place = file.as_ref().map(|file| file.path().display().to_string()).map_err(Clone::clone);
        let (to, said) = sync_channel(QUEUE);
        let shared =
            Arc::new(Shared { kept: Mutex::default(), lost: AtomicU64::new(0), states: Mutex::default(), place });
        let log = Self { to, shared: Arc::clone(&shared), clock: Arc::clone(clock) };
        let (clock, repeats) = (Arc::clone(clock), Repeats::default());
        let mut keeper = Keeper { shared, clock, repeats, file: file.ok(), trouble: String::new(), lost: 0 };
        // Without a thread all that is said is lost, and counted.
        drop(spawn("log", move || keeper.run(&said)));
        if let Err(why) = &log.shared.place {
            log.say(LogLevel::Info, "log", &format!("is not written to a file: {why}"));
        }
        log
    }

    /// Notes something that happens now.
    pub fn say(&self, level: LogLevel, subject: &str, words: &str) {
        self.send(LogLine::new(self.clock.now(), level, subject, words));
    }

    fn send(&self, line: LogLine) {
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) = self.to.try_send(Said::Line(line)) {
            self.shared.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Notes what a batch tells beside figures: a source's state, where it changed, and runs of probes.
    pub fn batch(&self, batch: &Batch) {
        if let Some(state) = batch.state.as_ref().filter(|state| **state != SourceState::Starting) {
            let before = lock(&self.shared.states).insert(batch.source, state.clone());
            if before.as_ref() != Some(state) {
                let words = if *state == SourceState::Ok { "ok" } else { state.why() };
                self.send(LogLine::new(batch.at, LogLevel::of(state), &batch.source.to_string(), words));
            }
        }
        for Mark { subject, probe, run, edge } in &batch.marks {
            let words = match edge {
                Edge::Start(_) => format!("{probe} began on {subject} (run {run})"),
                Edge::End(how) => format!("{probe} ended on {subject}: {how} (run {run})"),
            };
            self.send(LogLine::new(batch.at, LogLevel::Info, "probe", &words));
        }
    }

    /// Waits until all that was said is written, at most so long.
    pub fn flush(&self, most: Duration) {
        let (done, heard) = sync_channel(1);
        if self.to.try_send(Said::Flush(done)).is_ok() {
            let _ = heard.recv_timeout(most);
        }
    }

    /// Notes every panic with its place, before whatever else is done about it.
    pub fn note_panics(&self) {
        let (log, next) = (self.clone(), std::panic::take_hook());
        std::panic::set_hook(Box::new(move |panic| {
            let payload = panic.payload();
            let words =
                payload.downcast_ref::<&str>().copied().or(payload.downcast_ref::<String>().map(String::as_str));
            let thread = std::thread::current().name().unwrap_or("without a name").to_owned();
            let place = panic.location().map(ToString::to_string).unwrap_or_default();
            let words = mask_line(words.unwrap_or("without words"));
            log.say(LogLevel::Error, "warptop", &format!("panic of thread {thread} at {place}: {words}"));
            log.flush(LAST_WORDS);
            next(panic);
        }));
    }

    /// The last lines, the newest last.
    pub fn lines(&self) -> Vec<LogLine> {
        lock(&self.shared.kept).lines.iter().cloned().collect()
    }

    /// Grows with each line.
    pub fn version(&self) -> u64 {
        lock(&self.shared.kept).version
    }

    /// Where the file is, or why there is none.
    pub fn place(&self) -> Result<&str, &str> {
        self.shared.place.as_deref().map_err(String::as_str)
    }
}

/// The thread of the log.
struct Keeper {
    shared: Arc<Shared>,
    clock: Arc<dyn Clock>,
    repeats: Repeats,
    file: Option<LogFile>,
    /// Why the file takes nothing.
    trouble: String,
    /// Lines that were lost, as far as that was said.
    lost: u64,
}

impl Keeper {
    fn run(&mut self, said: &Receiver<Said>) {
        loop {
            match said.recv_timeout(TICK) {
                Ok(Said::Line(line)) => {
                    if let Some(line) = self.repeats.take(line, self.clock.now()) {
                        self.keep(line);
                    }
                }
                Ok(Said::Flush(done)) => drop(done.try_send(())),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.look();
        }
    }

    /// Says what has happened again meanwhile, and what was lost.
    fn look(&mut self) {
        let now = self.clock.now();
        for line in self.repeats.due(now) {
            self.keep(line);
        }
        let lost = self.shared.lost.load(Ordering::Relaxed);
        if lost > self.lost {
            let words = Plural(lost - self.lost, "line of the log is", "lines of the log are");
            let words = format!("{words} lost: more was said than the disk takes");
            self.lost = lost;
            if let Some(line) = self.repeats.take(LogLine::new(now, LogLevel::Warning, "log", &words), now) {
                self.keep(line);
            }
        }
    }

    fn keep(&mut self, line: LogLine) {
        let written = self.file.as_mut().map_or(Ok(()), |file| file.write(&line));
        self.show(line);
        let trouble = written.err().map(|error| error.to_string()).unwrap_or_default();
        if trouble != self.trouble {
            self.trouble.clone_from(&trouble);
            let (level, words) = if trouble.is_empty() {
                (LogLevel::Info, "is written again".to_owned())
            } else {
                (LogLevel::Warning, format!("cannot be written, lines are on the screen only: {trouble}"))
            };
            self.show(LogLine::new(self.clock.now(), level, "log", &words));
        }
    }

    fn show(&self, line: LogLine) {
        let mut kept = lock(&self.shared.kept);
        if kept.lines.len() == MOST_LINES {
            kept.lines.pop_front();
        }
        kept.lines.push_back(line);
        kept.version += 1;
    }
}

#[cfg(test)]
mod tests;
