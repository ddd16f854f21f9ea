//! The recorder: a thread of its own between the samplers' tap and a file or pipe.
//!
//! It must not know what is recorded. Invariants: samplers never wait for it (a full channel loses a
//! batch, which the sink counts); whatever ends it, the file can be played up to the last second.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use crate::model::{Batch, Time};

use super::{Header, Writer};

/// Batches that wait for a slow disk or pipe: some 10 s of a machine with 8 GPUs and 8 engines.
const QUEUE: usize = 1024;
/// How long the recorder waits for a batch before it looks whether it shall end.
const IDLE: Duration = Duration::from_millis(100);
/// How long [`Recorder::finish`] waits for a file or pipe that takes nothing.
const PATIENCE: Duration = Duration::from_secs(2);

/// Where a recording goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// A new file. What a recorder killed halfway leaves there can be played.
    File(PathBuf),
    /// Standard output: a pipe.
    Stdout,
}

impl Output {
    /// How long batches may stay unreadable, ms: a watcher at the end of a pipe wants them sooner.
    const fn sync_ms(&self) -> u64 {
        match self {
            Self::File(_) => 1000,
            Self::Stdout => 250,
        }
    }

    fn open(&self) -> io::Result<Box<dyn Write + Send>> {
        let path = match self {
            Self::Stdout => return Ok(Box::new(io::stdout())),
            Self::File(path) => path,
        };
        // A device or a named pipe is written to; a file that is there is somebody's recording.
        let special = path.metadata().is_ok_and(|m| !m.is_file());
        let file: File = if special {
            OpenOptions::new().write(true).open(path)?
        } else {
            OpenOptions::new().write(true).create_new(true).open(path)?
        };
        Ok(Box::new(file))
    }
}

impl std::fmt::Display for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Stdout => f.write_str("standard output"),
        }
    }
}

/// Recording could not begin or go on.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// A file of this name is there.
    #[error("'{0}' exists already: choose another name, or remove it first")]
    Exists(Output),
    /// The output cannot be opened.
    #[error("cannot record to '{0}': {1}")]
    Open(Output, io::Error),
    /// The other end of the pipe is gone.
    #[error("the reader of the pipe has gone; recording ended after {0}")]
    Closed(Summary),
    /// Writing failed, for example for want of space.
    #[error("cannot write on to '{output}': {error}; recording ended after {done}, up to there it can be played")]
    Write {
        /// Where it went.
        output: Output,
        /// The system's words.
        error: io::Error,
        /// What was written.
        done: Summary,
    },
    /// The output took nothing for too long.
    #[error("'{0}' takes no more data: the last second may be missing")]
    Stuck(Output),
    /// The system gave no thread.
    #[error("cannot start the recorder: {0}")]
    Thread(io::Error),
}

/// What was recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Number of batches.
    pub batches: u64,
    /// From the first to the last batch, ms.
    pub ms: u64,
    /// Bytes written.
    pub bytes: u64,
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let s = self.ms / 1000;
        write!(f, "{:02}:{:02}:{:02} ({} batches, {} bytes)", s / 3600, s / 60 % 60, s % 60, self.batches, self.bytes)
    }
}

/// A running recorder.
#[derive(Debug)]
pub struct Recorder {
    tap: SyncSender<Batch>,
    stop: Arc<AtomicBool>,
    over: Arc<AtomicBool>,
    end: Receiver<Result<Summary, RecordError>>,
    output: Output,
}

impl Recorder {
    /// Opens the output, writes the header and starts the thread.
    ///
    /// # Errors
    /// When the output exists, cannot be opened, or does not take the header.
    pub fn start(output: &Output, header: &Header) -> Result<Self, RecordError> {
        let opened = output.open().map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => RecordError::Exists(output.clone()),
            _ => RecordError::Open(output.clone(), error),
        })?;
        Self::to(opened, output, header)
    }

    fn to(out: Box<dyn Write + Send>, output: &Output, header: &Header) -> Result<Self, RecordError> {
        let bytes = Arc::new(AtomicU64::new(0));
        let counted = Counted { out, bytes: Arc::clone(&bytes) };
        let writer = Writer::new(counted, header).map_err(|error| failed(output, error, Summary::default()))?;
        let (tap, batches) = sync_channel(QUEUE);
        let (say, end) = sync_channel(1);
        let (stop, over) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let mut work =
            Work { writer, batches, bytes, done: Summary::default(), first: None, synced: None, dirty: false };
        let (stopped, is_over, name) = (Arc::clone(&stop), Arc::clone(&over), output.clone());
        let body = move || {
            let result = work.run(&stopped, name.sync_ms());
            let result = result.and_then(|()| work.writer.finish().map(drop));
            work.done.bytes = work.bytes.load(Ordering::Relaxed);
            is_over.store(true, Ordering::Release);
            let done = work.done;
            // Nobody may be waiting any more.
            drop(say.send(result.map(|()| done).map_err(|error| failed(&name, error, done))));
        };
        std::thread::Builder::new().name("recorder".to_owned()).spawn(body).map_err(RecordError::Thread)?;
        Ok(Self { tap, stop, over, end, output: output.clone() })
    }

    /// Where the samplers' sink sends a copy of every batch.
    pub fn tap(&self) -> SyncSender<Batch> {
        self.tap.clone()
    }

    /// Whether it has ended by itself, because writing failed: [`Recorder::finish`] says why.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Writes what is waiting, ends the recording and says what it holds.
    ///
    /// # Errors
    /// Why writing ended early, or that the output is stuck.
    pub fn finish(self) -> Result<Summary, RecordError> {
        self.stop.store(true, Ordering::Release);
        self.end.recv_timeout(PATIENCE).unwrap_or(Err(RecordError::Stuck(self.output)))
    }
}

fn failed(output: &Output, error: io::Error, done: Summary) -> RecordError {
    if error.kind() == ErrorKind::BrokenPipe {
        return RecordError::Closed(done);
    }
    RecordError::Write { output: output.clone(), error, done }
}

/// Counts what goes out.
struct Counted {
    out: Box<dyn Write + Send>,
    bytes: Arc<AtomicU64>,
}

impl Write for Counted {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let n = self.out.write(buf)?;
        self.bytes.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// What the thread works with.
struct Work {
    writer: Writer<Counted>,
    batches: Receiver<Batch>,
    bytes: Arc<AtomicU64>,
    done: Summary,
    first: Option<Time>,
    synced: Option<Time>,
    dirty: bool,
}

impl Work {
    fn run(&mut self, stop: &AtomicBool, sync_ms: u64) -> io::Result<()> {
        loop {
            // Looked at before the queue: what was sent before the end was called is still written.
            let ending = stop.load(Ordering::Acquire);
            match self.batches.recv_timeout(if ending { Duration::ZERO } else { IDLE }) {
                Ok(batch) => self.write(&batch, sync_ms)?,
                Err(RecvTimeoutError::Timeout) if ending => return Ok(()),
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Err(RecvTimeoutError::Timeout) => self.sync()?,
            }
        }
    }

    fn write(&mut self, batch: &Batch, sync_ms: u64) -> io::Result<()> {
        self.writer.write(batch)?;
        self.dirty = true;
        self.done.batches += 1;
        let first = *self.first.get_or_insert(batch.at);
        self.done.ms = self.done.ms.max(batch.at.since(first));
        // The batches' own times tell when a second has passed.
        let synced = *self.synced.get_or_insert(batch.at);
        if batch.at.since(synced) >= sync_ms {
            self.synced = Some(batch.at);
            self.sync()?;
        }
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.dirty) {
            self.writer.sync()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::TrySendError;

    use super::*;
    use crate::model::SourceId;

    /// Takes this many bytes and then gives this error.
    struct Full(usize, ErrorKind);

    impl Write for Full {
        fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
            self.0 = self.0.checked_sub(buf.len()).ok_or(io::Error::from(self.1))?;
            Ok(buf.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Takes the header, then hangs until the other end is dropped.
    struct Hung(usize, Receiver<()>);

    impl Write for Hung {
        fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
            self.0 += buf.len();
            if self.0 > 1000 {
                self.1.recv().unwrap_err();
            }
            Ok(buf.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn start(out: impl Write + Send + 'static) -> Recorder {
        let header = Header::new(Time(0), "gpu-07", 250);
        Recorder::to(Box::new(out), &Output::File("a.jsonl.gz".into()), &header).unwrap()
    }

    fn ended(out: Full) -> String {
        let recorder = start(out);
        let tap = recorder.tap();
        for t in 0.. {
            // Each batch asks for a sync; the thread ends at the first that cannot be written.
            if tap.send(Batch::new(SourceId::Host, Time(t * 1000), 1)).is_err() {
                break;
            }
        }
        let error = recorder.finish().unwrap_err().to_string();
        assert!(error.contains("batches"), "{error}");
        error
    }

    #[test]
    fn a_disk_that_fills_and_a_pipe_that_closes_are_told_apart() {
        assert!(ended(Full(2000, ErrorKind::StorageFull)).starts_with("cannot write on to 'a.jsonl.gz'"));
        assert!(ended(Full(2000, ErrorKind::BrokenPipe)).starts_with("the reader of the pipe has gone"));
    }

    #[test]
    fn an_output_that_hangs_makes_nobody_wait() {
        let (let_go, hung) = sync_channel(0);
        let recorder = start(Hung(0, hung));
        let tap = recorder.tap();
        let mut refused = false;
        for t in 0..100 * QUEUE as u64 {
            refused = matches!(tap.try_send(Batch::new(SourceId::Host, Time(t * 1000), 1)), Err(TrySendError::Full(_)));
            if refused {
                break;
            }
        }
        assert!(refused, "the queue is bounded");
        assert!(!recorder.is_over());
        drop(let_go);
        assert!(recorder.finish().is_ok());
    }
}
