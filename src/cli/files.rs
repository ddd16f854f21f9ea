//! Whether the system lets this program open the files that it needs.
//!
//! Looked at once, before anything is started: a library that finds no room for a socket of its own panics.

use std::fs::File;

/// Files that may be open at once in a session without engines, beside those that were open at its start: the screen on
/// this machine has 18. Each engine takes one or two more, and says so itself where they are refused.
const NEEDED: usize = 24;

/// Nothing where there is room; else what is wrong, and what to do.
pub(super) fn no_room() -> Option<String> {
    let open: Result<Vec<File>, _> = (0..NEEDED).map(|_| File::open("/dev/null")).collect();
    // Anything else, for example that there is no such device, is no lack of room.
    let error = open.err().filter(|error| matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)))?;
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let most = most.map_or_else(|| "without limit".to_owned(), |most| most.to_string());
    Some(format!(
        "too few files may be open ({error}; ulimit -n is {most}): {NEEDED} more than now are needed; allow more with \
         `ulimit -n 1024`, and close what else this user or the system has open"
    ))
}
