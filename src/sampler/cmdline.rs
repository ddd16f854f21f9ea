//! Command lines of processes, read so that one that does not come holds up nothing else.
//!
//! The kernel takes the lock of the process's memory to read `/proc/PID/cmdline`; while a thread of that process waits
//! for a file system that has gone, the read does not come back, and cannot be ended. No other file of `/proc` that is
//! read here needs that lock. Invariants: a file that hangs costs [`PATIENCE`] once, and one thread until it comes back;
//! of those threads there are [`MOST_HUNG`] at most.

use std::collections::HashSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use crate::model::limits::COMMAND_BYTES;
use crate::model::{lock, spawn};

/// How long a file is waited for: the kernel gives it in microseconds, and a process that starts or ends holds the lock
/// for a few milliseconds.
const PATIENCE: Duration = Duration::from_millis(500);

/// Most files that may hang at a time; after that no other is read until one of them comes back.
const MOST_HUNG: usize = 16;

/// The command line of a process, [`COMMAND_BYTES`] of it at most; `None` where it cannot be read, or not in time.
pub(super) fn read(pid: u32) -> Option<Vec<u8>> {
    static READER: LazyLock<PatientReader> = LazyLock::new(|| PatientReader::new(PATIENCE));
    READER.read(Path::new(&format!("/proc/{pid}/cmdline")))
}

/// A file to read, and who waits for it.
type Order = (PathBuf, Sender<Option<Vec<u8>>>);

/// Reads files on a thread that is left alone when it does not come back.
struct PatientReader {
    patience: Duration,
    /// The thread that reads; none before the first file and after one that hung.
    worker: Mutex<Option<Sender<Order>>>,
    hung: Arc<Mutex<HashSet<PathBuf>>>,
}

impl PatientReader {
    fn new(patience: Duration) -> Self {
        Self { patience, worker: Mutex::default(), hung: Arc::default() }
    }

    fn read(&self, path: &Path) -> Option<Vec<u8>> {
        if lock(&self.hung).contains(path) {
            return None;
        }
        let mut worker = lock(&self.worker);
        if worker.is_none() && lock(&self.hung).len() < MOST_HUNG {
            *worker = self.hire();
        }
        let (reply, answer) = channel();
        worker.as_ref()?.send((path.to_owned(), reply)).ok()?;
        let done = answer.recv_timeout(self.patience);
        if done.is_err() {
            lock(&self.hung).insert(path.to_owned());
            // It ends when it comes back, since nothing else will be ordered.
            *worker = None;
        }
        done.ok().flatten()
    }

    /// A thread that reads what it is told to, as long as there is someone to tell it.
    fn hire(&self) -> Option<Sender<Order>> {
        let (orders, inbox) = channel::<Order>();
        let hung = Arc::clone(&self.hung);
        let work = move || {
            let mut last = PathBuf::new();
            for (path, reply) in inbox {
                // Who waited may have gone.
                let _ = reply.send(whole(&path));
                last = path;
            }
            lock(&hung).remove(&last);
        };
        spawn("warptop-cmdline", work).ok()?;
        Some(orders)
    }
}

fn whole(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(COMMAND_BYTES as u64).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fifo(path: &Path) {
        assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
    }

    /// Fault: host: `/proc/PID/cmdline` of a process does not come back (its memory is locked while a file system hangs)
    /// Seen: the kernel's short name in place of its command line
    /// Works: every other process, and the search for engines; the file takes one thread and half a second once
    /// Recovers: when the file comes back, with the next reading
    #[test]
    fn a_file_that_hangs_takes_one_thread_and_holds_up_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let [good, hung] = ["good", "hung"].map(|name| folder.path().join(name));
        std::fs::write(&good, b"vllm\0serve\0").unwrap();
        // Opening it waits for someone who writes.
        fifo(&hung);
        let mut reader = PatientReader::new(Duration::from_millis(20));
        assert_eq!(reader.read(&hung), None);
        for _ in 0..3 {
            reader.patience = Duration::from_mins(1);
            assert_eq!(reader.read(&good).as_deref(), Some(&b"vllm\0serve\0"[..]));
            reader.patience = Duration::from_millis(20);
            assert_eq!(reader.read(&hung), None);
            assert!(lock(&reader.worker).is_some(), "it was not asked for again");
        }
        reader.patience = Duration::from_mins(1);
        assert_eq!(reader.read(&folder.path().join("none")), None);
        assert_eq!(lock(&reader.hung).len(), 1);
        std::fs::write(&hung, b"late\0").unwrap();
        while !lock(&reader.hung).is_empty() {
            std::thread::yield_now();
        }
        std::fs::remove_file(&hung).unwrap();
        std::fs::write(&hung, b"back\0").unwrap();
        assert_eq!(reader.read(&hung).as_deref(), Some(&b"back\0"[..]));
    }

    #[test]
    fn only_so_many_threads_are_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let paths: Vec<_> = (0..MOST_HUNG + 4).map(|i| folder.path().join(i.to_string())).collect();
        for path in &paths {
            fifo(path);
        }
        let reader = PatientReader::new(Duration::from_millis(1));
        assert!(paths.iter().all(|path| reader.read(path).is_none()));
        assert_eq!((lock(&reader.hung).len(), lock(&reader.worker).is_none()), (MOST_HUNG, true));
        // Lets them end.
        for path in &paths[..MOST_HUNG] {
            std::fs::write(path, b"").unwrap();
        }
    }

    #[test]
    fn the_own_command_line_is_read() {
        let own = read(std::process::id()).unwrap();
        assert_eq!(own, std::fs::read("/proc/self/cmdline").unwrap());
    }
}
