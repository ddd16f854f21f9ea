//! Directories and names that somebody has prepared.

use std::ffi::OsString;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::*;

const PRECIOUS: &str = "precious";

/// A directory with a file that must not change.
fn place() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let victim = folder.path().join("victim");
    fs::write(&victim, PRECIOUS).unwrap();
    (folder, victim)
}

fn open(path: &Path) -> StateFolder {
    StateFolder::open(path, 1, true).unwrap()
}

/// The words of a refusal.
fn refused<T>(done: io::Result<T>) -> String {
    let error = done.err().unwrap();
    assert!(is_refusal(&error), "{error}");
    error.to_string()
}

fn names(folder: &StateFolder) -> Vec<String> {
    let mut names = folder.names().unwrap();
    names.sort();
    names
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o777
}

#[test]
fn the_place_follows_the_environment() {
    let find = |pairs: &'static [(&str, &str)]| {
        home(move |name: &str| pairs.iter().find(|p| p.0 == name).map(|p| OsString::from(p.1)))
    };
    assert_eq!(find(&[("XDG_STATE_HOME", "/s"), ("HOME", "/h")]), Some("/s/warptop".into()));
    assert_eq!(find(&[("XDG_STATE_HOME", "s"), ("HOME", "/h")]), Some("/h/.local/state/warptop".into()));
    assert_eq!(find(&[("HOME", "h")]), None);
}

#[test]
fn what_is_made_is_for_its_owner_alone() {
    let (folder, _) = place();
    let path = folder.path().join("a/b");
    assert_eq!(StateFolder::open(&path, 1, false).err().unwrap().kind(), io::ErrorKind::NotFound);
    assert!(!folder.path().join("a").exists(), "looking creates nothing");
    let state = open(&path);
    state.write_once("once", b"1").unwrap();
    assert_eq!(state.write_once("once", b"2").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    state.replace("again", b"1").unwrap();
    state.replace("again", b"2").unwrap();
    drop(state.open_or_make("log", true).unwrap());
    assert_eq!(names(&state), ["again", "log", "once"]);
    assert_eq!((state.read("once", 9).unwrap(), state.read("again", 9).unwrap()), (b"1".to_vec(), b"2".to_vec()));
    assert_eq!([mode(&folder.path().join("a")), mode(&path)], [0o700; 2]);
    assert!(["once", "again", "log"].iter().all(|name| mode(&path.join(name)) == 0o600));
    assert_eq!(names(&state.inside("c", true).unwrap()), [""; 0]);
    assert!(StateFolder::open(Path::new("relative"), 1, true).is_err());
}

/// Fault: disk: a link was planted where a file of the state directory goes
/// Seen: `it is no regular file: remove it`, or nothing: a link in the way of a new file is removed
/// Works: what the link leads to is neither read nor written
/// Recovers: with the next file
#[test]
fn no_link_is_followed_to_a_file() {
    let (folder, victim) = place();
    let state = open(&folder.path().join("s"));
    let own = |name: &str| folder.path().join("s").join(name);
    symlink(&victim, own("read")).unwrap();
    symlink(folder.path().join("new"), own("dangling")).unwrap();
    for name in ["read", "dangling"] {
        assert_eq!(refused(state.read(name, 99)), "it is no regular file: remove it");
        assert_eq!(refused(state.open_or_make(name, true)), "it is no regular file: remove it");
        assert_eq!(state.write_once(name, b"x").unwrap_err().kind(), io::ErrorKind::AlreadyExists, "{name}");
    }
    // The temporary name of this very process: a number that can be guessed.
    for name in ["one", "other"] {
        let planted = format!(".{name}.{}.tmp", std::process::id());
        symlink(&victim, own(&planted)).unwrap();
    }
    state.write_once("one", b"1").unwrap();
    state.replace("other", b"2").unwrap();
    state.replace("read", b"3").unwrap();
    assert_eq!(fs::read_to_string(&victim).unwrap(), PRECIOUS);
    assert!(!folder.path().join("new").exists());
    assert_eq!(names(&state), ["dangling", "one", "other", "read"]);
    assert_eq!(state.read("read", 9).unwrap(), b"3");
    // What is renamed over is the link, not what it leads to.
    symlink(&victim, own("rotated")).unwrap();
    state.rename("one", "rotated").unwrap();
    assert_eq!(
        (fs::read_to_string(&victim).unwrap(), state.read("rotated", 9).unwrap()),
        (PRECIOUS.into(), b"1".into())
    );
}

/// Fault: disk: a directory of the state is a link
/// Seen: `is a link, and links are not followed here`
/// Works: everything but what is kept
/// Recovers: once a directory is in its place
#[test]
fn no_link_is_followed_in_place_of_a_directory_of_ours() {
    let (folder, _) = place();
    let target = folder.path().join("target");
    fs::create_dir(&target).unwrap();
    let link = folder.path().join("link");
    symlink(&target, &link).unwrap();
    for make in [false, true] {
        let words = refused(StateFolder::open(&link, 1, make));
        assert!(words.contains("is a link, and links are not followed here") && words.contains("XDG_STATE_HOME"));
        assert!(refused(StateFolder::open(&link.join("warptop"), 2, make)).contains("/link' is a link"));
    }
    let state = open(&folder.path().join("s"));
    symlink(&target, folder.path().join("s/reports")).unwrap();
    assert!(refused(state.inside("reports", true)).contains("reports' is a link"));
    // Above what is ours a link of our own leads on, as in a home that lies elsewhere.
    open(&link.join("warptop")).write_once("x", b"1").unwrap();
    assert!(target.join("warptop/x").is_file());
    symlink("circle", folder.path().join("circle")).unwrap();
    assert!(StateFolder::open(&folder.path().join("circle/s"), 1, true).is_err());
    fs::write(folder.path().join("file"), "").unwrap();
    let error = StateFolder::open(&folder.path().join("file"), 1, true).err().unwrap();
    assert_eq!(error.kind(), io::ErrorKind::NotADirectory);
}

/// Fault: disk: other users can write to the state directory
/// Seen: `can be written by other users (mode 777)`
/// Works: everything but what is kept
/// Recovers: after chmod go-w
#[test]
fn a_directory_that_others_write_to_is_refused() {
    let (folder, _) = place();
    let path = folder.path().join("s");
    drop(open(&path));
    let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    for (mode, words) in [(0o777, "can be written by other users (mode 777)"), (0o720, "(mode 720)"), (0o1777, "777")] {
        set(&path, mode);
        assert!(refused(StateFolder::open(&path, 1, true)).contains(words), "{mode:o}");
    }
    set(&path, 0o755);
    drop(open(&path));
    // Above it: only where names cannot be moved by others, as in /tmp, or where the group is our own.
    for (mode, fine) in [(0o777, false), (0o1777, true), (0o755, true), (0o775, true)] {
        set(folder.path(), mode);
        assert_eq!(StateFolder::open(&path, 1, true).is_ok(), fine, "{mode:o}");
    }
    set(folder.path(), 0o700);
}

/// Fault: disk: the state directory, or one above it, belongs to another user
/// Seen: `belongs to user 65534`
/// Works: everything but what is kept
/// Recovers: with a directory of one's own
#[test]
fn what_belongs_to_another_user_is_neither_written_nor_believed() {
    // Only root can make what is another's; for anyone else /proc/1 has to do, where it is another's.
    let (folder, victim) = place();
    let give = |path: &Path| std::os::unix::fs::lchown(path, Some(65_534), None).is_ok();
    let path = folder.path().join("s");
    drop(open(&path));
    fs::write(path.join("planted"), "{}").unwrap();
    if !give(&path.join("planted")) {
        return;
    }
    let state = open(&path);
    assert!(refused(state.read("planted", 9)).contains("it belongs to user 65534 and is not believed"));
    assert!(refused(state.open_or_make("planted", true)).contains("belongs to user 65534"));
    for owned in [path.clone(), folder.path().to_owned()] {
        assert!(give(&owned));
        symlink(&victim, path.join(format!(".x.{}.tmp", std::process::id()))).unwrap();
        let words = refused(StateFolder::open(&path, 1, true));
        assert!(words.contains("belongs to user 65534") && words.contains("XDG_STATE_HOME"), "{words}");
        fs::remove_file(path.join(format!(".x.{}.tmp", std::process::id()))).unwrap();
        std::os::unix::fs::lchown(&owned, Some(0), None).unwrap();
    }
    // A link of theirs above ours decides where ours is.
    let link = folder.path().join("link");
    symlink(&path, &link).unwrap();
    assert!(StateFolder::open(&link.join("warptop"), 1, true).is_ok());
    assert!(give(&link));
    assert!(refused(StateFolder::open(&link.join("warptop"), 1, true)).contains("/link' belongs to user 65534"));
    assert_eq!(fs::read_to_string(&victim).unwrap(), PRECIOUS);
}

/// Fault: disk: a pipe, a device or an endless file in place of a file of ours
/// Seen: `it is no regular file: remove it`, `it is longer than 4 bytes`
/// Works: nobody waits
/// Recovers: with the next file
#[test]
fn what_is_no_file_or_too_long_holds_nobody_up() {
    let (folder, _) = place();
    let state = open(&folder.path().join("s"));
    let pipe = folder.path().join("s/pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    fs::create_dir(folder.path().join("s/folder")).unwrap();
    state.write_once("long", b"12345").unwrap();
    let (to, done) = std::sync::mpsc::channel();
    // On a thread: what hangs is to fail and not to hang the test.
    std::thread::spawn(move || {
        let words = |name: &str| state.read(name, 4).unwrap_err().to_string();
        let opened = state.open_or_make("pipe", true).unwrap_err().to_string();
        let _ = to.send((words("pipe"), words("folder"), words("long"), opened));
    });
    let (pipe, folder, long, opened) = done.recv_timeout(Duration::from_secs(20)).unwrap();
    assert_eq!((pipe.as_str(), opened.as_str()), ("it is no regular file: remove it", pipe.as_str()));
    assert_eq!((folder.as_str(), long.as_str()), (pipe.as_str(), "it is longer than 4 bytes"));
}

/// Fault: disk: full while a file is written
/// Seen: `No space left on device`
/// Works: what was there before stays whole
/// Recovers: with the next try
#[test]
fn a_full_disk_leaves_nothing_behind() {
    let (folder, _) = place();
    let state = open(&folder.path().join("s"));
    let error = state
        .write_temporary("x", |file| {
            file.write_all(b"half")?;
            Err(io::Error::from_raw_os_error(libc::ENOSPC))
        })
        .unwrap_err();
    assert!(error.to_string().contains("No space left on device"), "{error}");
    assert_eq!(names(&state), [""; 0]);
}

#[test]
fn what_a_killed_process_left_is_removed_and_nothing_else() {
    let (folder, _) = place();
    let state = open(&folder.path().join("s"));
    // No process has so high a number.
    let (dead, alive) = (".a.json.4194305.tmp", format!(".b.json.{}.tmp", std::process::id()));
    let fresh = ".c.json.4194305.tmp";
    for name in [dead, &alive, fresh, ".d.json.tmp", "e.json.4194305.tmp"] {
        let file = fs::File::create(folder.path().join("s").join(name)).unwrap();
        if name != fresh {
            let now = file.metadata().unwrap().modified().unwrap();
            file.set_modified(now - Duration::from_mins(2)).unwrap();
        }
    }
    state.write_once("x", b"data").unwrap();
    assert_eq!(names(&state), [&alive, fresh, ".d.json.tmp", "e.json.4194305.tmp", "x"]);
}
