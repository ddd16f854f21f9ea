//! Feeds the store from a recording instead of from the machine.
//!
//! It must not know who looks or how fast it is played: the player moves a playhead, and this source
//! reads ahead of it. Invariant: it is never more than [`AHEAD_MS`] ahead, so that the hour the store
//! keeps always holds the moment looked at.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::model::{Batch, FactKey, SourceId, Subject, Time, lock, spawn};
use crate::recording::{Header, OpenError, Problems, Reader};
use crate::store::Store;

use super::Stop;

/// How far ahead of the playhead a recording is read, ms.
pub const AHEAD_MS: u64 = 1_800_000;
/// Sources of one machine read at the same time come in this much out of order at most, ms.
const DISORDER_MS: u64 = 10_000;
/// How often a reader that is far enough ahead looks at the playhead.
const LOOK: Duration = Duration::from_millis(50);

/// The recording that comes with the program: a real H200 that serves with vLLM.
pub static DEMO: &[u8] = include_bytes!("../../assets/recordings/demo.jsonl.gz");

/// Where a recording comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// The one inside the program.
    Demo,
    /// Standard input: usually a recorder at the other end of a pipe, still writing.
    Stdin,
    /// A file.
    File(PathBuf),
}

/// A recording that cannot be played.
#[derive(Debug, thiserror::Error)]
#[error("cannot play {input}: {error}")]
pub struct ReplayError {
    input: Input,
    error: OpenError,
}

impl std::fmt::Display for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Demo => f.write_str("the demo"),
            Self::Stdin => f.write_str("standard input"),
            Self::File(path) => write!(f, "'{}'", path.display()),
        }
    }
}

impl Input {
    /// Opens it and reads its first line; waits for that line.
    ///
    /// # Errors
    /// When it cannot be opened or is no recording.
    pub fn open(&self) -> Result<Reader, ReplayError> {
        let opened = match self {
            Self::Demo => Reader::new(DEMO),
            Self::Stdin => Reader::new(io::stdin()),
            Self::File(path) => File::open(path).map_err(OpenError::Io).and_then(Reader::new),
        };
        opened.map_err(|error| ReplayError { input: self.clone(), error })
    }
}

/// Reads a recording into the store up to `until_ms` after its first batch, or all of it. Returns the
/// first and the last moment read, `None` when it holds nothing.
pub fn load(reader: &mut Reader, store: &Store, until_ms: Option<u64>) -> Option<(Time, Time)> {
    let mut bounds: Option<(Time, Time)> = None;
    while let Some(batch) = reader.next() {
        let (start, end) = *bounds.get_or_insert_with(|| {
            store.push(&origin(reader.header(), batch.at));
            (batch.at, batch.at)
        });
        let until = until_ms.map(|ms| start + ms);
        if until.is_some_and(|until| batch.at > until + DISORDER_MS) {
            break;
        }
        if until.is_none_or(|until| batch.at <= until) {
            store.push(&batch);
            bounds = Some((start, end.max(batch.at)));
        }
    }
    bounds
}

/// Says on screen where the data come from.
fn origin(header: &Header, at: Time) -> Batch {
    let mut batch = Batch::new(SourceId::App, at, Batch::FOREVER);
    let text = if header.note.is_empty() { &header.host } else { &header.note };
    batch.fact(Subject::Host, FactKey::Origin, if text.is_empty() { "a recording" } else { text });
    batch
}

/// A recording that is being read: what the player and the reading thread tell each other.
#[derive(Clone, Debug)]
pub struct Replay(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    playhead: AtomicU64,
    start: AtomicU64,
    newest: AtomicU64,
    ended: AtomicBool,
    problems: Mutex<Problems>,
}

impl Replay {
    /// Starts to read into the store, on a thread of its own that ends with `stop` or the recording.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(reader: Reader, store: Arc<Store>, stop: Stop) -> io::Result<Self> {
        let replay = Self(Arc::default());
        let shared = Arc::clone(&replay.0);
        let body = move || shared.feed(reader, &store, &stop);
        spawn("replay", body)?;
        Ok(replay)
    }

    /// Tells where the player is.
    pub fn set_playhead(&self, at: Time) {
        self.0.playhead.fetch_max(at.0, Ordering::Relaxed);
    }

    /// The first moment and the newest one read so far; `None` before the first batch.
    pub fn bounds(&self) -> Option<(Time, Time)> {
        let newest = self.0.newest.load(Ordering::Acquire);
        (newest > 0).then(|| (Time(self.0.start.load(Ordering::Acquire)), Time(newest)))
    }

    /// Whether all was read: the newest moment is the last one.
    pub fn ended(&self) -> bool {
        self.0.ended.load(Ordering::Acquire)
    }

    /// What is missing so far, as lines for the screen.
    pub fn problems(&self) -> Vec<String> {
        lock(&self.0.problems).texts()
    }
}

impl Shared {
    fn feed(&self, mut reader: Reader, store: &Store, stop: &Stop) {
        let mut known = Problems::default();
        while let Some(batch) = reader.next() {
            if self.start.load(Ordering::Relaxed) == 0 {
                self.start.store(batch.at.0, Ordering::Release);
                self.playhead.fetch_max(batch.at.0, Ordering::Relaxed);
                store.push(&origin(reader.header(), batch.at));
            }
            while batch.at > Time(self.playhead.load(Ordering::Relaxed)) + AHEAD_MS {
                if stop.wait(LOOK) {
                    return;
                }
            }
            if stop.stopped() {
                return;
            }
            store.push(&batch);
            self.newest.fetch_max(batch.at.0, Ordering::AcqRel);
            if reader.problems().bad_lines != known.bad_lines {
                known = reader.problems().clone();
                self.tell(&known);
            }
        }
        self.tell(reader.problems());
        self.ended.store(true, Ordering::Release);
    }

    fn tell(&self, problems: &Problems) {
        lock(&self.problems).clone_from(problems);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Metric, Reading, Why};
    use crate::recording::Writer;
    use crate::store::Retention;

    const START: u64 = 1_795_960_436_789;

    /// One batch every `step_ms`, each with its position as temperature.
    fn recording(batches: u64, step_ms: u64) -> Reader {
        let mut writer = Writer::new(Vec::new(), &Header::new(Time(START), "gpu-07", 250)).unwrap();
        for i in 0..batches {
            let mut batch = Batch::new(SourceId::Nvml, Time(START + i * step_ms), 2 * step_ms as u32);
            batch.push(Subject::Gpu(0), Metric::SmClock, i as f64);
            writer.write(&batch).unwrap();
        }
        Reader::new(io::Cursor::new(writer.finish().unwrap())).unwrap()
    }

    fn sm_clock(store: &Store, at: u64) -> Reading {
        store.read().latest(Subject::Gpu(0), Metric::SmClock, Time(START + at)).reading
    }

    fn wait_for(what: impl Fn() -> bool) {
        for _ in 0..10_000 {
            if what() {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("nothing happened");
    }

    #[test]
    fn loads_up_to_a_moment() {
        let store = Store::new(Retention::HOUR);
        let bounds = load(&mut recording(100, 1000), &store, Some(10_500));
        assert_eq!(bounds, Some((Time(START), Time(START + 10_000))));
        assert_eq!(sm_clock(&store, 10_500), Reading::Value(10.0));
        assert_eq!(store.read().newest(), Time(START + 10_000), "nothing of what comes later");
        assert_eq!(store.read().fact(Subject::Host, FactKey::Origin, Time(START)), Some("gpu-07"));
    }

    #[test]
    fn an_empty_recording_has_no_bounds() {
        assert_eq!(load(&mut recording(0, 1), &Store::new(Retention::HOUR), None), None);
    }

    #[test]
    fn reads_no_further_ahead_than_it_may() {
        let store = Arc::new(Store::new(Retention::HOUR));
        let stop = Stop::default();
        // Three hours.
        let replay = Replay::start(recording(1080, 10_000), Arc::clone(&store), stop.clone()).unwrap();
        let newest = || replay.bounds().map_or(0, |(_, newest)| newest.since(Time(START)));
        wait_for(|| newest() == AHEAD_MS);
        assert!(!replay.ended());
        replay.set_playhead(Time(START + 3_600_000));
        wait_for(|| newest() == 3_600_000 + AHEAD_MS);
        assert_eq!(sm_clock(&store, 3_600_000), Reading::Value(360.0));
        replay.set_playhead(Time(START + 10_790_000));
        wait_for(|| replay.ended());
        assert_eq!((newest(), replay.problems()), (10_790_000, Vec::new()));
        stop.stop();
    }

    #[test]
    fn the_demo_plays() {
        let store = Store::new(Retention::HOUR);
        let (start, end) = load(&mut Input::Demo.open().unwrap(), &store, None).unwrap();
        assert!(end.since(start) > 60_000);
        let data = store.read();
        assert_eq!((data.gpus().count(), data.engines().count()), (1, 1));
        assert_ne!(data.latest(Subject::Gpu(0), Metric::SmActive, end).reading, Reading::Missing(Why::NotYet));
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = Input::File("/nowhere/x.jsonl.gz".into()).open().err().unwrap().to_string();
        assert!(error.contains("/nowhere/x.jsonl.gz") && error.contains("No such file"), "{error}");
    }
}
