//! The file of the log: `warptop.log` and the one before it, `warptop.log.1`, in the state directory.
//!
//! Several processes may write to it at once. Invariants: mode 0600; the two together are bounded, up to one line of each
//! process that writes while another one rotates; nothing but whole lines is added.

use std::fs::{File, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::Mode;

use super::LogLine;
use crate::state::StateFolder;

/// Names of the file that is written to, and of the one before.
const NAME: &str = "warptop.log";
const BEFORE: &str = "warptop.log.1";
/// Longest file, bytes.
pub(super) const MAX_BYTES: u64 = 1 << 20;

/// The opened file.
#[derive(Debug)]
pub struct LogFile {
    folder: StateFolder,
    path: PathBuf,
    file: File,
}

impl LogFile {
    /// What the file is called in a state directory.
    pub fn path_in(folder: &Path) -> PathBuf {
        folder.join(NAME)
    }

    /// Opens or makes it in this directory, which is made too where it is not there.
    ///
    /// # Errors
    /// Why not: what, why, what to do.
    pub fn open(folder: &Path) -> io::Result<Self> {
        let folder = StateFolder::open(folder, 1, true)?;
        let file = open(&folder)?;
        Ok(Self { path: Self::path_in(folder.path()), folder, file })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn write(&mut self, line: &LogLine) -> io::Result<()> {
        let line = format!("{line}\n");
        if !self.is_current() {
            self.file = open(&self.folder)?;
        }
        if self.file.metadata()?.len() + line.len() as u64 > MAX_BYTES {
            self.rotate()?;
        }
        self.file.write_all(line.as_bytes())
    }

    /// Whether the name still belongs to what is open: another process may have rotated it, or somebody removed it.
    fn is_current(&self) -> bool {
        let Ok(opened) = rustix::fs::fstat(&self.file) else { return false };
        self.folder.stat(NAME).is_ok_and(|named| (named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino))
    }

    fn rotate(&mut self) -> io::Result<()> {
        match self.file.try_lock() {
            Ok(()) => {}
            // Another process rotates it now: one line more does no harm.
            Err(TryLockError::WouldBlock) => return Ok(()),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        // It may just have done so.
        if self.is_current() {
            self.folder.rename(NAME, BEFORE)?;
        }
        self.file = open(&self.folder)?;
        Ok(())
    }
}

fn open(folder: &StateFolder) -> io::Result<File> {
    let file = folder.open_or_make(NAME, true)?;
    // Whatever it was before.
    rustix::fs::fchmod(&file, Mode::from_raw_mode(0o600))?;
    Ok(file)
}
