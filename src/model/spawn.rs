//! Threads, and the words where there can be none.

use std::io;
use std::thread::{Builder, JoinHandle};

/// Starts a thread.
///
/// # Errors
/// Where the system gives none: which one, why, and what to do.
pub fn spawn<T: Send + 'static>(name: &str, body: impl FnOnce() -> T + Send + 'static) -> io::Result<JoinHandle<T>> {
    Builder::new().name(name.to_owned()).spawn(body).map_err(|error| {
        let words = format!(
            "no thread '{name}' can be started: {error}; end other processes or raise the limit (ulimit -u, -v and -d, the \
             cgroup's pids.max), and leave RUST_MIN_STACK unset"
        );
        io::Error::new(error.kind(), words)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_has_its_name_and_gives_what_it_made() {
        let thread = spawn("warptop-test", || std::thread::current().name().map(ToOwned::to_owned)).unwrap();
        assert_eq!(thread.join().unwrap().as_deref(), Some("warptop-test"));
    }
}
