//! Whose a process is, and what follows from that: which files it may read, and whether the addresses of its network
//! namespace can be believed.
//!
//! Reads `/proc/PID/status` and `/proc/PID/ns/user`. Invariant: nothing here rests on what a process says of itself, only
//! on what the kernel says of it.

use std::fs;

use procfs::process::Process;
use rustix::fs::Stat;

use super::scan::Pid;

/// The user of a process, as warptop's user namespace sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct User {
    /// The real id: a program that runs as another user by its file's mode keeps the id of who started it.
    pub(super) id: u32,
    groups: Vec<u32>,
}

impl User {
    /// `None` where the process has ended or must not be seen.
    pub(super) fn of(pid: Pid) -> Option<Self> {
        let status = Process::new(pid).ok()?.status().ok()?;
        let mut groups = status.groups;
        groups.push(status.rgid);
        Some(Self { id: status.ruid, groups })
    }

    #[cfg(test)]
    pub(super) const fn for_test(id: u32, groups: Vec<u32>) -> Self {
        Self { id, groups }
    }

    /// Whether it is neither the one who runs warptop nor root.
    pub(super) fn is_stranger(&self) -> bool {
        is_stranger(self.id)
    }

    /// Whether it may read a file, by the file's owner, group and mode. Whoever runs warptop may read what warptop may.
    pub(super) fn may_read(&self, file: &Stat) -> bool {
        self.has(0o4, file)
    }

    /// The same for looking up a name in a directory.
    pub(super) fn may_search(&self, directory: &Stat) -> bool {
        self.has(0o1, directory)
    }

    /// Whether the mode of a file gives a right (one of the three bits) to this user.
    fn has(&self, right: u32, file: &Stat) -> bool {
        if !self.is_stranger() {
            return true;
        }
        let class = if file.st_uid == self.id {
            6
        } else if self.groups.contains(&file.st_gid) {
            3
        } else {
            0
        };
        file.st_mode & (right << class) != 0
    }
}

/// Whether a user id is neither that of the one who runs warptop nor root's.
pub(in crate::sampler) fn is_stranger(id: u32) -> bool {
    id != 0 && id != rustix::process::geteuid().as_raw()
}

/// Whether the addresses of the network namespace in which a process lives were given by root or by the one who runs
/// warptop. Whoever makes a user namespace may give any address to the network namespaces below it, and nobody gets
/// into the network namespace of another user namespace without being its master.
pub(super) fn has_honest_addresses(pid: Pid) -> bool {
    let namespace = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/user")).ok();
    match User::of(pid) {
        Some(user) if user.is_stranger() => {
            namespace(&pid.to_string()).is_some_and(|theirs| Some(theirs) == namespace("self"))
        }
        user => user.is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stranger_reads_what_the_mode_lets_it_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, "").unwrap();
        let mut file = rustix::fs::stat(&path).unwrap();
        let own = rustix::process::geteuid().as_raw();
        let (other, group) = (own.wrapping_add(4242), 4243);
        (file.st_uid, file.st_gid) = (own, group);
        let stranger = User::for_test(other, vec![7]);
        for (mode, user, may) in [
            (0o100_600, User::for_test(own, vec![]), true),
            (0o100_640, stranger.clone(), false),
            (0o100_644, stranger.clone(), true),
            (0o100_640, User::for_test(other, vec![group]), true),
            (0o100_604, User::for_test(other, vec![group]), false),
        ] {
            file.st_mode = mode;
            assert_eq!(user.may_read(&file), may, "{mode:o} {user:?}");
        }
        (file.st_uid, file.st_mode) = (other, 0o100_400);
        assert!(stranger.may_read(&file), "its own");
        assert!(stranger.is_stranger() && !is_stranger(own) && !is_stranger(0));
    }

    #[test]
    fn this_process_is_no_stranger() {
        let own = i32::try_from(std::process::id()).unwrap();
        let user = User::of(own).unwrap();
        assert!(!user.is_stranger() && has_honest_addresses(own));
        assert!(User::of(-1).is_none() && !has_honest_addresses(-1));
    }
}
