//! Loads the driver's library in a process of its own before this one does.
//!
//! Loading holds the loader's lock of the whole process: on a disk that hangs, or with start-up code that waits, no other
//! thread can begin or end, and not even `exit` works. A child that hangs so holds up the NVML thread only.
//! Invariants: at most one child at a time, since the thread that started it waits for it; the child dies with this process
//! and leaves without running what the library has for its end.

#![expect(unsafe_code, reason = "a library is loaded by running its start-up code")]

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use nvml_wrapper_sys::bindings::NvmlLib;

use crate::net::access::TOKEN_VARIABLE;

/// The hidden command of the child.
pub const LOAD_DRIVER: &str = "__load-driver";
/// NVML's file, as the driver installs it and the wrapper asks for it.
pub(super) const LIBRARY: &str = "libnvidia-ml.so.1";
/// What the child ends with when the library was loaded, and when the loader refused. Neither 0 nor 1: the library's own code
/// may end the child with those.
const LOADED: u8 = 93;
const REFUSED: u8 = 94;
/// What the loader knows of the system's libraries (ld.so(8)).
const CACHE: &str = "/etc/ld.so.cache";
/// Where it looks besides: the folders it has built in, and those of Debian.
const FOLDERS: [&str; 8] = [
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
];

/// The child's side: loads `library` and returns the exit code, with which the child is to end at once.
pub fn load_driver(library: &Path) -> u8 {
    // SAFETY: the start-up code of NVIDIA's library, which the parent would run just so.
    match unsafe { NvmlLib::new(library) } {
        Ok(library) => {
            std::mem::forget(library);
            LOADED
        }
        Err(_) => REFUSED,
    }
}

/// Has `program` load `library` in a process of its own, and waits for it, however long that takes. That the loader refuses
/// is no error: here it will say why.
///
/// # Errors
/// In words, when the child came to harm: then it is not to be loaded here.
pub(super) fn of(program: &Path, library: &Path) -> Result<(), String> {
    if !may_be_there(library) {
        return Ok(());
    }
    let mut command = Command::new(program);
    command.arg0("warptop").arg(LOAD_DRIVER).arg(std::process::id().to_string()).arg(library);
    // A group of its own: what is typed at this process is not for it.
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    command.env_remove(TOKEN_VARIABLE);
    match command.status() {
        Ok(status) => judge(status),
        // Without another process there is only this one to load it.
        Err(_) => Ok(()),
    }
}

fn judge(status: ExitStatus) -> Result<(), String> {
    let how = match (status.code(), status.signal()) {
        (Some(code), _) if code == i32::from(LOADED) || code == i32::from(REFUSED) => return Ok(()),
        (Some(code), _) => format!("ended the process that tried it with exit code {code}"),
        (None, signal) => format!("crashed the process that tried it with signal {}", signal.unwrap_or_default()),
    };
    Err(format!("the NVIDIA library {how} while it was loaded; install the driver's user-space part again"))
}

/// Whether the loader may find `library`: looked at without loading anything, so that a machine without a driver is asked
/// no child every time.
fn may_be_there(library: &Path) -> bool {
    if library.components().count() > 1 {
        return library.exists();
    }
    let given = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let given =
        given.as_bytes().split(|&byte| byte == b':' || byte == b';').map(|folder| Path::new(OsStr::from_bytes(folder)));
    let name = library.as_os_str().as_bytes();
    given.chain(FOLDERS.map(Path::new)).any(|folder| folder.join(library).exists())
        || fs::read(CACHE).is_ok_and(|cache| cache.windows(name.len()).any(|at| at == name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_library_that_was_tried_without_harm_is_loaded() {
        let judge = |raw| judge(ExitStatus::from_raw(raw));
        for fine in [LOADED, REFUSED] {
            assert_eq!(judge(i32::from(fine) << 8), Ok(()));
        }
        for (raw, words) in [(0, "exit code 0"), (3 << 8, "exit code 3"), (11, "signal 11"), (9, "signal 9")] {
            assert!(judge(raw).unwrap_err().contains(words), "{raw}");
        }
    }

    #[test]
    fn a_library_that_is_nowhere_costs_no_process() {
        let harm = Path::new("/bin/false");
        assert_eq!(of(harm, Path::new("libno-such-library-of-warptop.so.1")), Ok(()));
        assert_eq!(of(harm, Path::new("/no/such/libnvidia-ml.so.1")), Ok(()));
        let there = tempfile::NamedTempFile::new().unwrap();
        assert!(of(harm, there.path()).unwrap_err().contains("exit code 1"), "one that is there is tried");
        assert!(may_be_there(Path::new("libc.so.6")), "the system's own is found");
    }
}
