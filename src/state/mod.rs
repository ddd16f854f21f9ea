//! Files that outlive the program: reports, baselines, the lock, the log.
//!
//! It must not know what is in them. Invariants: a file is reached through the handle of an opened directory and never
//! through a link; a directory is used only where nobody but its owner and root could have put something in the way;
//! what is written is whole or not there; what belongs to another user is not believed.

mod folder;
mod refusal;

pub use folder::StateFolder;
pub use refusal::Refusal;

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

/// The directory of this program's files, `$XDG_STATE_HOME/warptop` or `~/.local/state/warptop`; `None` where neither
/// `XDG_STATE_HOME` nor `HOME` is an absolute path. It need not be there.
pub fn home(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/state")));
    state.map(|state| state.join("warptop"))
}

/// Whether an error is a [`Refusal`], and not the system's.
pub fn is_refusal(error: &io::Error) -> bool {
    matches!(error.get_ref(), Some(inner) if inner.is::<Refusal>())
}

#[cfg(test)]
mod tests;
