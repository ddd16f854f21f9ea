//! Command lines of processes, as they may be shown: split, masked and cleaned once, and again when they change.
//!
//! A process may give itself another title at any time, so the file is read each time; what is saved is the search for
//! secrets, which was the dearest part of a row.

use std::collections::HashMap;
use std::sync::Arc;

use procfs::process::Stat;

use super::super::cmdline;
use crate::engine::launch;
use crate::model::text;

/// So many command lines are kept.
const MOST: usize = 256;

/// The command lines that were seen last, by process.
#[derive(Debug, Default)]
pub(super) struct CommandLines(HashMap<i32, KnownLine>);

#[derive(Debug)]
struct KnownLine {
    /// `/proc/PID/cmdline` as it was read.
    bytes: Vec<u8>,
    shown: Arc<str>,
}

impl CommandLines {
    /// The command line, or the kernel's short name where there is none (kernel threads, zombies).
    pub(super) fn of(&mut self, stat: &Stat) -> Arc<str> {
        let bytes = cmdline::read(stat.pid.unsigned_abs());
        let line = bytes.map(|bytes| self.shown(stat.pid, bytes)).filter(|line| !line.is_empty());
        line.unwrap_or_else(|| text::clean(&stat.comm).into())
    }

    fn shown(&mut self, pid: i32, bytes: Vec<u8>) -> Arc<str> {
        if let Some(known) = self.0.get(&pid).filter(|known| known.bytes == bytes) {
            return Arc::clone(&known.shown);
        }
        if self.0.len() >= MOST {
            self.0.clear();
        }
        let shown: Arc<str> = text::clean(&launch::words(&bytes).join(" ")).into();
        self.0.insert(pid, KnownLine { bytes, shown: Arc::clone(&shown) });
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_masked_anew_when_it_changes() {
        let mut lines = CommandLines::default();
        let first = lines.shown(7, b"vllm\0serve\0--api-key\0sk-first\0".to_vec());
        assert!(first.contains("--api-key") && !first.contains("sk-first"), "{first}");
        assert!(Arc::ptr_eq(&first, &lines.shown(7, b"vllm\0serve\0--api-key\0sk-first\0".to_vec())));
        let second = lines.shown(7, b"vllm: idle\0--api-key\0sk-second\0".to_vec());
        assert!(second.contains("idle") && !second.contains("sk-second"), "{second}");
    }

    #[test]
    fn no_more_lines_are_kept_than_there_is_room() {
        let mut lines = CommandLines::default();
        for pid in 0..1000 {
            lines.shown(pid, b"sleep\09\0".to_vec());
        }
        assert!(lines.0.len() <= MOST);
    }
}
