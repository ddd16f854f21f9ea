//! Short files that the user names: keys and certificates, which may come through a pipe.
//!
//! It must not know what is in them. Invariants: opening waits for nobody; what is read is bounded in length, and a
//! pipe that says nothing in time.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::Duration;

use rustix::fs::OFlags;

/// How long a pipe may say nothing: whoever writes to it may have to be asked for a password first.
const PATIENCE: Duration = Duration::from_mins(1);
/// How often a pipe is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// Opens a file, a device or a pipe, without waiting for the pipe's writer.
pub(super) fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)
}

/// Reads what [`open`] opened; `None` when it is longer than `most` bytes.
pub(super) fn read(file: File, most: u64) -> io::Result<Option<Vec<u8>>> {
    read_within(file, most, PATIENCE)
}

fn read_within(file: File, most: u64, patience: Duration) -> io::Result<Option<Vec<u8>>> {
    let pipe = file.metadata()?.file_type().is_fifo();
    let mut input = file.take(most + 1);
    let (mut bytes, mut waited) = (Vec::new(), Duration::ZERO);
    loop {
        let before = bytes.len();
        match input.read_to_end(&mut bytes) {
            // Before its writer comes a pipe seems to be at its end.
            Ok(0) if pipe && bytes.is_empty() => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Ok(_) => return Ok(Some(bytes).filter(|bytes| bytes.len() as u64 <= most)),
            Err(error) => return Err(error),
        }
        waited = if bytes.len() > before { Duration::ZERO } else { waited + LOOK };
        if waited > patience {
            let text = format!("nothing came through the pipe within {} s; is its writer running?", patience.as_secs());
            return Err(io::Error::new(ErrorKind::TimedOut, text));
        }
        std::thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::path::PathBuf;

    fn pipe() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
        (dir, path)
    }

    /// Fault: disk: a file of keys or certificates is a pipe without a writer
    /// Seen: `nothing came through the pipe within 0 s; is its writer running?`
    /// Works: Ctrl-C
    /// Recovers: with the next start
    #[test]
    fn a_pipe_without_a_writer_is_not_waited_for_without_end() {
        let (_dir, path) = pipe();
        let error = read_within(open(&path).unwrap(), 100, LOOK).unwrap_err();
        assert_eq!(error.to_string(), "nothing came through the pipe within 0 s; is its writer running?");
    }

    #[test]
    fn a_pipe_is_read_to_its_end_and_no_further_than_allowed() {
        let (_dir, path) = pipe();
        let file = open(&path).unwrap();
        let writer = std::thread::spawn(move || {
            let mut writer = OpenOptions::new().write(true).open(path).unwrap();
            for part in ["one ", "two"] {
                writer.write_all(part.as_bytes()).unwrap();
                std::thread::sleep(2 * LOOK);
            }
        });
        assert_eq!(read_within(file, 100, PATIENCE).unwrap().as_deref(), Some(&b"one two"[..]));
        writer.join().unwrap();
        let endless = open(Path::new("/dev/zero")).unwrap();
        assert_eq!(read_within(endless, 100, PATIENCE).unwrap(), None);
    }
}
