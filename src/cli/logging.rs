//! The log of a command that runs for a while: begun before its sources, ended after them.
//!
//! It must not know what is read. Invariant: no secret of a command line is in it.

use std::sync::Arc;
use std::time::Duration;

use crate::log::{EventLog, LogFile, LogLevel};
use crate::model::Clock;
use crate::model::secret::mask_words;
use crate::state;

/// Longest wait for the last line.
const LAST_LINE: Duration = Duration::from_millis(300);

fn variable(name: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(name)
}

/// Starts the log; `off`: without a file.
pub(super) fn begin(off: bool, clock: &Arc<dyn Clock>) -> EventLog {
    let file = match state::home(variable) {
        _ if off => Err("--no-log".to_owned()),
        None => Err("set HOME or XDG_STATE_HOME".to_owned()),
        Some(folder) => LogFile::open(&folder).map_err(|error| error.to_string()),
    };
    let log = EventLog::start(clock, file);
    let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let line = mask_words(words).join(" ");
    let (version, pid) = (env!("CARGO_PKG_VERSION"), std::process::id());
    log.say(LogLevel::Info, "warptop", &format!("{version} started as process {pid}: {line}"));
    log
}

/// The last line.
pub(super) fn end(log: &EventLog, words: &str) {
    log.say(LogLevel::Info, "warptop", words);
    log.flush(LAST_LINE);
}

/// Where the log is, for the help.
pub(super) fn place() -> String {
    let path = state::home(variable).map(|folder| LogFile::path_in(&folder).display().to_string());
    path.unwrap_or_else(|| "nowhere: set HOME or XDG_STATE_HOME".to_owned())
}
