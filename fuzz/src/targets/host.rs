//! What the machine says: command lines of processes, and files below `/proc` and `/sys`.

use warptop::engine::launch;
use warptop::model::secret::{mask_line, mask_words};

/// The command line of a process, as in `/proc/PID/cmdline`.
pub fn command_line(data: &[u8]) {
    let words = launch::words(data);
    if let Some(launch) = launch::recognise(&words) {
        let _ = launch::port(launch, &words);
    }
    let _ = launch::is_router(&words);
}

/// A secret behind any words is masked, in words and in a line.
pub fn secrets(data: &[u8]) {
    const KEY: &str = "Zq7Xk2Wv9Jb4";
    let text = String::from_utf8_lossy(data);
    let _ = mask_line(&text);
    if text.contains(KEY) {
        return;
    }
    let mut words: Vec<String> = text.split('\0').map(str::to_owned).collect();
    words.extend(["--api-key".to_owned(), KEY.to_owned()]);
    let line = mask_line(&words.join(" "));
    assert!(!line.contains(KEY), "{line:?}");
    let masked = mask_words(words);
    assert!(!masked.iter().any(|word| word.contains(KEY)), "{masked:?}");
}

/// Files below `/proc` and `/sys`.
pub fn proc(data: &[u8]) {
    warptop::sampler::fuzz_host_files(&String::from_utf8_lossy(data));
}
