//! Why a directory or file is not used: what, why, what to do.

use std::io;
use std::path::Path;

use rustix::fs::{FileType, Mode, Stat};

use crate::model::text::clean_to;

/// Permission to write for the group and for others.
const GROUP: u32 = 0o020;
const OTHERS: u32 = 0o002;
/// In such a directory nobody moves what is another user's.
const STICKY: u32 = 0o1000;

/// A place that others could have prepared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A directory of somebody else.
    #[error(
        "'{path}' belongs to user {owner}, who could put a link where user {us} writes: give it to user {us} (chown), or \
         set XDG_STATE_HOME to a directory of your own"
    )]
    Owner {
        /// The directory.
        path: String,
        /// Whose it is.
        owner: u32,
        /// Who we are.
        us: u32,
    },
    /// A directory that others write to.
    #[error(
        "'{path}' can be written by other users (mode {mode:03o}), who could put a link there: chmod go-w it, or set \
         XDG_STATE_HOME to a directory of your own"
    )]
    Mode {
        /// The directory.
        path: String,
        /// Its permissions.
        mode: u32,
    },
    /// A link in place of a directory of ours.
    #[error(
        "'{0}' is a link, and links are not followed here: put a directory in its place, or set XDG_STATE_HOME to where \
         the files shall be"
    )]
    Link(String),
    /// A file of somebody else.
    #[error("it belongs to user {0} and is not believed: remove it")]
    OthersFile(u32),
    /// A pipe, a device, a directory, a link.
    #[error("it is no regular file: remove it")]
    NoFile,
}

/// A path as it may be shown: a link on the way may lead anywhere.
pub(super) fn shown(path: &Path) -> String {
    clean_to(&path.to_string_lossy(), 300)
}

impl From<Refusal> for io::Error {
    fn from(refusal: Refusal) -> Self {
        Self::new(io::ErrorKind::PermissionDenied, refusal)
    }
}

fn permissions(stat: &Stat) -> u32 {
    Mode::from_raw_mode(stat.st_mode).bits()
}

/// A directory above ours: what root and we keep in order, and where nobody else may move things.
pub(super) fn check_above(path: &Path, stat: &Stat, us: u32, root_is_mapped: bool) -> Result<(), Refusal> {
    let mode = permissions(stat);
    check_owner(path, stat, us, root_is_mapped)?;
    // A group of one's own is no other user.
    let group = mode & GROUP != 0 && ![0, rustix::process::getegid().as_raw()].contains(&stat.st_gid);
    let open = group || mode & OTHERS != 0;
    if open && mode & STICKY == 0 { Err(Refusal::Mode { path: shown(path), mode: mode & 0o777 }) } else { Ok(()) }
}

/// Whoever owns a directory or a link on the way decides where it leads. Where root has no number (a container without
/// it), what is not ours seems to be nobody's.
pub(super) fn check_owner(path: &Path, stat: &Stat, us: u32, root_is_mapped: bool) -> Result<(), Refusal> {
    const UNMAPPED: u32 = 65_534;
    let is_root = stat.st_uid == 0 || !root_is_mapped && stat.st_uid == UNMAPPED;
    if is_root || stat.st_uid == us {
        Ok(())
    } else {
        Err(Refusal::Owner { path: shown(path), owner: stat.st_uid, us })
    }
}

/// A directory of ours, in which files are.
pub(super) fn check_own(path: &Path, stat: &Stat, us: u32) -> Result<(), Refusal> {
    let mode = permissions(stat);
    if stat.st_uid != us {
        return Err(Refusal::Owner { path: shown(path), owner: stat.st_uid, us });
    }
    if mode & (GROUP | OTHERS) != 0 { Err(Refusal::Mode { path: shown(path), mode: mode & 0o777 }) } else { Ok(()) }
}

/// A file of ours.
pub(super) fn check_file(stat: &Stat, us: u32) -> Result<(), Refusal> {
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Refusal::NoFile);
    }
    if stat.st_uid == us { Ok(()) } else { Err(Refusal::OthersFile(stat.st_uid)) }
}
