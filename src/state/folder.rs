//! A directory, opened once and checked; every file in it is reached through that handle.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::refusal::{Refusal, check_above, check_file, check_own, check_owner, shown};

/// Links that are followed above our directories, as many as the kernel follows.
const MOST_LINKS: u32 = 40;
/// Left over by a process that was killed is what no process has written for so long, s.
const LEFT_OVER_S: i64 = 60;

const PRIVATE_FILE: Mode = Mode::from_raw_mode(0o600);
const PRIVATE_FOLDER: Mode = Mode::from_raw_mode(0o700);

/// An opened directory that belongs to this user, and to which nobody else writes.
#[derive(Debug)]
pub struct StateFolder {
    handle: OwnedFd,
    path: PathBuf,
}

impl StateFolder {
    /// Opens a directory, the last `own` parts of whose path are this program's: those must belong to this user. It is
    /// made, and what is missing above it, where `make` says so.
    ///
    /// # Errors
    /// [`Refusal`] where others could have prepared it, and what the system says. `NotFound` where it is not there.
    pub fn open(path: &Path, own: usize, make: bool) -> io::Result<Self> {
        let (handle, path) = Walk::new(path, own)?.walk(make)?;
        Self::readable(handle.as_fd(), path)
    }

    /// A directory in this one.
    ///
    /// # Errors
    /// As of [`StateFolder::open`].
    pub fn inside(&self, name: &str, make: bool) -> io::Result<Self> {
        let mut walk = Walk {
            at: self.handle.try_clone()?,
            path: self.path.clone(),
            ahead: vec![name.into()],
            own: 1,
            links: 0,
            us: rustix::process::geteuid().as_raw(),
            root_is_mapped: true,
        };
        walk.step(make)?;
        Self::readable(walk.at.as_fd(), walk.path)
    }

    fn readable(handle: impl AsFd, path: PathBuf) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self { handle: rustix::fs::openat(handle, ".", flags, Mode::empty())?, path })
    }

    /// Where it is, for people.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Names of what is in it.
    pub fn names(&self) -> io::Result<Vec<String>> {
        let entries = rustix::fs::Dir::read_from(&self.handle)?;
        let names = entries.filter_map(|entry| entry.ok()?.file_name().to_str().ok().map(ToOwned::to_owned));
        Ok(names.filter(|name| name != "." && name != "..").collect())
    }

    /// What is known of a name; links are not followed.
    pub fn stat(&self, name: &str) -> io::Result<Stat> {
        Ok(rustix::fs::statat(&self.handle, name, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Reads a file of this user of at most `most` bytes. Waits for nobody, whatever has that name.
    ///
    /// # Errors
    /// Where it is no regular file, another user's, or longer.
    pub fn read(&self, name: &str, most: u64) -> io::Result<Vec<u8>> {
        let file = self.file(name, OFlags::RDONLY)?;
        let mut bytes = Vec::new();
        let length = file.take(most + 1).read_to_end(&mut bytes)?;
        if length as u64 > most {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it is longer than {most} bytes")));
        }
        Ok(bytes)
    }

    /// Opens a file of this user to read and write, or makes it. Nothing of it is changed; `append`: each write goes to
    /// its end.
    ///
    /// # Errors
    /// Where it is no regular file or another user's.
    pub fn open_or_make(&self, name: &str, append: bool) -> io::Result<File> {
        let append = if append { OFlags::APPEND } else { OFlags::empty() };
        self.file(name, OFlags::RDWR | OFlags::CREATE | append)
    }

    fn file(&self, name: &str, flags: OFlags) -> io::Result<File> {
        // A pipe would keep its reader waiting.
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        let file = match rustix::fs::openat(&self.handle, name, flags, PRIVATE_FILE) {
            Err(Errno::LOOP | Errno::NXIO | Errno::ISDIR) => return Err(Refusal::NoFile.into()),
            opened => opened?,
        };
        check_file(&rustix::fs::fstat(&file)?, rustix::process::geteuid().as_raw())?;
        Ok(file.into())
    }

    /// Gives a file another name, in place of any that had it.
    pub fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.handle, from, &self.handle, to)?)
    }

    /// Removes a name; what a link leads to stays.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.handle, name, AtFlags::empty())?)
    }

    /// Writes a new file, whole or not at all; one that is there is left alone.
    ///
    /// # Errors
    /// `AlreadyExists` where it is there.
    pub fn write_once(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let temporary = self.write_temporary(name, |file| file.write_all(bytes))?;
        // A link takes its name only when that is free. Where a file system has no links, a rename must do.
        let linked = match rustix::fs::linkat(&self.handle, &temporary, &self.handle, name, AtFlags::empty()) {
            Err(error) if error != Errno::EXIST && self.stat(name).is_err() => self.rename(&temporary, name),
            other => other.map_err(Into::into),
        };
        drop(self.remove(&temporary));
        linked?;
        // The name as well has to reach the disk; not every file system can be asked for that.
        let _ = rustix::fs::fsync(&self.handle);
        Ok(())
    }

    /// Writes a file, whole or not at all, in place of any that has this name.
    ///
    /// # Errors
    /// What the system says.
    pub fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let temporary = self.write_temporary(name, |file| file.write_all(bytes))?;
        self.rename(&temporary, name)
    }

    /// A file of its own that is on disk for good; its name.
    pub(super) fn write_temporary(
        &self,
        name: &str,
        write: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> io::Result<String> {
        let temporary = format!(".{name}.{}.tmp", std::process::id());
        let mut file = self.create(&temporary)?;
        let written = write(&mut file).and_then(|()| file.sync_all());
        self.remove_left_overs(&file);
        if let Err(error) = written {
            // What a full disk left of it.
            drop(self.remove(&temporary));
            return Err(error);
        }
        Ok(temporary)
    }

    /// A file that was not there. What has its name was left by a process that had our number, or was put in the way: the
    /// name is removed, whatever it is, and what it leads to is not touched.
    fn create(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = || rustix::fs::openat(&self.handle, name, flags, PRIVATE_FILE);
        let file = match open() {
            Err(Errno::EXIST) => self.remove(name).and_then(|()| open().map_err(Into::into)),
            other => other.map_err(Into::into),
        };
        file.map(File::from)
    }

    /// Removes the temporary files of processes that were killed before they gave them their name: of this user, and a
    /// minute older than `newest`, as the clock of the disk says. A process of another machine may share the folder, but
    /// none takes a minute to write.
    fn remove_left_overs(&self, newest: &File) {
        let (Ok(newest), Ok(names)) = (rustix::fs::fstat(newest), self.names()) else { return };
        for name in names.iter().filter(|name| is_temporary(name)) {
            let Ok(stat) = self.stat(name) else { continue };
            let is_ours = check_file(&stat, rustix::process::geteuid().as_raw()).is_ok();
            if is_ours && newest.st_mtime - stat.st_mtime > LEFT_OVER_S {
                drop(self.remove(name));
            }
        }
    }
}

/// Whether it is `.NAME.PID.tmp`, and no process has that number now.
fn is_temporary(name: &str) -> bool {
    let pid =
        name.strip_prefix('.').and_then(|name| name.strip_suffix(".tmp")?.rsplit_once('.')?.1.parse::<u32>().ok());
    pid.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists())
}

/// The way to a directory, one part after the other: each is opened relative to the one before, which was checked.
struct Walk {
    at: OwnedFd,
    path: PathBuf,
    /// Parts to come, the next one last.
    ahead: Vec<OsString>,
    /// So many of the last parts are ours.
    own: usize,
    links: u32,
    us: u32,
    root_is_mapped: bool,
}

impl Walk {
    fn new(path: &Path, own: usize) -> io::Result<Self> {
        if !path.is_absolute() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no absolute path"));
        }
        // In a user namespace without root, what is root's outside has no owner inside.
        let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
        let root_is_mapped = map.is_empty() || map.lines().any(|line| line.split_whitespace().next() == Some("0"));
        let us = rustix::process::geteuid().as_raw();
        let mut walk = Self { at: top()?, path: "/".into(), ahead: Vec::new(), own, links: 0, us, root_is_mapped };
        walk.go(path);
        check_above(&walk.path, &rustix::fs::fstat(&walk.at)?, us, root_is_mapped)?;
        Ok(walk)
    }

    /// Puts the parts of a path before those that are still to come.
    fn go(&mut self, path: &Path) {
        let parts = path.components().filter(|part| !matches!(part, Component::RootDir | Component::CurDir));
        let parts: Vec<OsString> = parts.map(|part| part.as_os_str().to_owned()).collect();
        self.ahead.extend(parts.into_iter().rev());
    }

    fn walk(mut self, make: bool) -> io::Result<(OwnedFd, PathBuf)> {
        while !self.ahead.is_empty() {
            self.step(make)?;
        }
        Ok((self.at, self.path))
    }

    fn step(&mut self, make: bool) -> io::Result<()> {
        let Some(name) = self.ahead.pop() else { return Ok(()) };
        let is_own = self.ahead.len() < self.own;
        let found = self.open(&name, make)?;
        let stat = rustix::fs::fstat(&found)?;
        let path = self.path.join(&name);
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory if is_own => check_own(&path, &stat, self.us)?,
            FileType::Directory => check_above(&path, &stat, self.us, self.root_is_mapped)?,
            FileType::Symlink if is_own => return Err(Refusal::Link(shown(&path)).into()),
            FileType::Symlink => {
                check_owner(&path, &stat, self.us, self.root_is_mapped)?;
                return self.follow(&found);
            }
            _ => return Err(io::ErrorKind::NotADirectory.into()),
        }
        (self.at, self.path) = (found, path);
        Ok(())
    }

    fn open(&self, name: &OsStr, make: bool) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = || rustix::fs::openat(&self.at, name, flags, Mode::empty());
        match open() {
            Err(Errno::NOENT) if make => {
                match rustix::fs::mkdirat(&self.at, name, PRIVATE_FOLDER) {
                    // Somebody was faster: what it is, is looked at like everything.
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
                Ok(open()?)
            }
            other => Ok(other?),
        }
    }

    fn follow(&mut self, link: &OwnedFd) -> io::Result<()> {
        self.links += 1;
        if self.links > MOST_LINKS {
            return Err(Errno::LOOP.into());
        }
        let target = rustix::fs::readlinkat(link, "", Vec::new())?;
        let target = PathBuf::from(OsString::from(target.to_string_lossy().into_owned()));
        if target.is_absolute() {
            (self.at, self.path) = (top()?, "/".into());
        }
        self.go(&target);
        Ok(())
    }
}

fn top() -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open("/", flags, Mode::empty())?)
}
