//! What the machine says: command lines of processes, and files below `/proc` and `/sys`.

use warptop::engine::launch;

/// The command line of a process, as in `/proc/PID/cmdline`.
pub fn command_line(data: &[u8]) {
    let words = launch::words(data);
    if let Some(launch) = launch::recognise(&words) {
        let _ = launch::port(launch, &words);
    }
    let _ = launch::is_router(&words);
}

/// Files below `/proc` and `/sys`.
pub fn proc(data: &[u8]) {
    warptop::sampler::fuzz_host_files(&String::from_utf8_lossy(data));
}
