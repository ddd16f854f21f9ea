//! The recorder: a thread of its own between the samplers' tap and a file or pipe.
//!
//! It must not know what is recorded. Invariants: samplers never wait for it (a full channel loses a
//! batch, which the sink counts); whatever ends it, the file can be played up to the last second.

use std::fs::{Metadata, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::ops::ControlFlow;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use crate::model::text::Plural;
use crate::model::{Batch, Time, spawn};

use super::{Header, Writer};

/// Batches that wait for a slow disk or pipe: some 10 s of a machine with 8 GPUs and 8 engines.
const QUEUE: usize = 1024;
/// How long the recorder waits for a batch, and who started it for its output, before they look whether to end.
const IDLE: Duration = Duration::from_millis(100);
/// How long [`Recorder::finish`] waits for a file or pipe that takes nothing.
const PATIENCE: Duration = Duration::from_secs(2);

/// Where a recording goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// A new file that only its owner can read. What a recorder killed halfway leaves there can be played.
    File(PathBuf),
    /// The same, readable for other users, too, as far as the umask lets them.
    Readable(PathBuf),
    /// Standard output: a pipe.
    Stdout,
}

impl Output {
    /// How long batches may stay unreadable, ms: a watcher at the end of a pipe wants them sooner.
    const fn sync_ms(&self) -> u64 {
        match self {
            Self::File(_) | Self::Readable(_) => 1000,
            Self::Stdout => 250,
        }
    }

    fn path(&self) -> Option<(&Path, u32)> {
        match self {
            Self::Stdout => None,
            Self::File(path) => Some((path, 0o600)),
            Self::Readable(path) => Some((path, 0o644)),
        }
    }

    /// Whether it is a named pipe: opening it waits for a reader.
    fn is_pipe(&self) -> bool {
        self.path().is_some_and(|(path, _)| path.metadata().is_ok_and(|m| m.file_type().is_fifo()))
    }

    fn open(&self) -> io::Result<Box<dyn Write + Send>> {
        let Some((path, mode)) = self.path() else { return Ok(Box::new(io::stdout())) };
        let exclusive = || OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
        // A device or a named pipe is written to as it is; a file that is there is somebody's recording.
        let special = path.metadata().is_ok_and(|m| !m.is_file());
        if !special {
            return Ok(Box::new(exclusive()?));
        }
        may_be_written(&path.symlink_metadata()?)?;
        let file = OpenOptions::new().write(true).open(path)?;
        // What it is now: somebody may have put another thing in its place.
        may_be_written(&file.metadata()?)?;
        Ok(Box::new(file))
    }
}

/// Refuses a disk, and a pipe or a link that another user has put there: a recording holds command lines.
fn may_be_written(what: &Metadata) -> io::Result<()> {
    let refuse = |why: String| Err(io::Error::other(why));
    let kind = what.file_type();
    if kind.is_block_device() {
        return refuse("it is a disk; choose a file, a pipe or standard output".to_owned());
    }
    if kind.is_file() {
        return refuse("it has become a file while it was opened; try again".to_owned());
    }
    let [root, own] = [0, rustix::process::geteuid().as_raw()];
    if ![root, own].contains(&what.uid()) {
        let name = if kind.is_symlink() { "a link" } else { "a pipe or device" };
        return refuse(format!("it is {name} of another user (number {}); choose another place", what.uid()));
    }
    Ok(())
}

impl std::fmt::Display for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) | Self::Readable(path) => path.display().fmt(f),
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
    /// It was not open when waiting for that ended.
    #[error("nothing was recorded: {}", unopened(.output, *.pipe))]
    Unopened {
        /// Where it should go.
        output: Output,
        /// It is a named pipe without a reader.
        pipe: bool,
        /// Why waiting ended.
        ended: Ended,
    },
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

/// Why something is waited for no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The time that was given is over.
    Late,
    /// A signal.
    Interrupted,
}

fn unopened(output: &Output, pipe: bool) -> String {
    if pipe {
        return format!("nobody reads the pipe '{output}'; start its reader first, e.g. warptop replay {output}");
    }
    format!("'{output}' did not open in time; check that its disk answers, or choose another place")
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
        let batches = Plural(self.batches, "batch", "batches");
        write!(f, "{:02}:{:02}:{:02} ({batches}, {} bytes)", s / 3600, s / 60 % 60, s % 60, self.bytes)
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
    /// Opens the output, writes the header and is ready for batches. All of that may wait for a reader or a disk, so it
    /// happens on the recorder's own thread; meanwhile `wait` is asked every 100 ms whether to go on waiting.
    ///
    /// # Errors
    /// When the output exists, cannot be opened, does not take the header, or `wait` ends.
    pub fn start(
        output: &Output,
        header: &Header,
        wait: impl FnMut() -> ControlFlow<Ended>,
    ) -> Result<Self, RecordError> {
        let place = output.clone();
        Self::on(output, header, move || place.open(), wait)
    }

    fn on(
        output: &Output,
        header: &Header,
        open: impl FnOnce() -> io::Result<Box<dyn Write + Send>> + Send + 'static,
        mut wait: impl FnMut() -> ControlFlow<Ended>,
    ) -> Result<Self, RecordError> {
        let (tap, batches) = sync_channel(QUEUE);
        let (say, end) = sync_channel(1);
        let (ready, opened) = sync_channel(1);
        let (stop, over) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (stopped, is_over, name, header) = (Arc::clone(&stop), Arc::clone(&over), output.clone(), header.clone());
        let body = move || {
            let mut work = match Work::begin(&name, &header, open, batches) {
                Ok(work) => work,
                Err(error) => return drop(ready.send(Err(error))),
            };
            drop(ready.send(Ok(())));
            let result = work.run(&stopped, name.sync_ms());
            let result = result.and_then(|()| work.writer.finish().map(drop));
            work.done.bytes = work.bytes.load(Ordering::Relaxed);
            is_over.store(true, Ordering::Release);
            let done = work.done;
            // Nobody may be waiting any more.
            drop(say.send(result.map(|()| done).map_err(|error| failed(&name, error, done))));
        };
        spawn("recorder", body).map_err(RecordError::Thread)?;
        loop {
            match opened.recv_timeout(IDLE) {
                Ok(opened) => return opened.map(|()| Self { tap, stop, over, end, output: output.clone() }),
                Err(RecvTimeoutError::Disconnected) => return Err(RecordError::Stuck(output.clone())),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if let ControlFlow::Break(ended) = wait() {
                return Err(RecordError::Unopened { output: output.clone(), pipe: output.is_pipe(), ended });
            }
        }
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
    fn begin(
        output: &Output,
        header: &Header,
        open: impl FnOnce() -> io::Result<Box<dyn Write + Send>>,
        batches: Receiver<Batch>,
    ) -> Result<Self, RecordError> {
        let out = open().map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => RecordError::Exists(output.clone()),
            _ => RecordError::Open(output.clone(), error),
        })?;
        let bytes = Arc::new(AtomicU64::new(0));
        let counted = Counted { out, bytes: Arc::clone(&bytes) };
        let writer = Writer::new(counted, header).map_err(|error| failed(output, error, Summary::default()))?;
        Ok(Self { writer, batches, bytes, done: Summary::default(), first: None, synced: None, dirty: false })
    }

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
        let open = move || Ok(Box::new(out) as Box<dyn Write + Send>);
        Recorder::on(&Output::File("a.jsonl.gz".into()), &header, open, || ControlFlow::Continue(())).unwrap()
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

    /// Fault: disk: the disk fills while it records; the reader of a pipe goes
    /// Seen: `cannot write on to 'a.jsonl.gz'` or `the reader of the pipe has gone`, and after how long
    /// Works: what was written plays
    /// Recovers: with a new recording
    #[test]
    fn a_disk_that_fills_and_a_pipe_that_closes_are_told_apart() {
        assert!(ended(Full(2000, ErrorKind::StorageFull)).starts_with("cannot write on to 'a.jsonl.gz'"));
        assert!(ended(Full(2000, ErrorKind::BrokenPipe)).starts_with("the reader of the pipe has gone"));
    }

    /// Fault: disk: an output that takes nothing any more
    /// Seen: at the end, that it takes no more data
    /// Works: samplers and screen: what does not fit the queue is counted
    /// Recovers: when the output takes data again
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
