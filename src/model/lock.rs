//! Locks that a panic on another thread does not spoil.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Waits for a mutex and takes it. What it guards is whole after every step, so a thread that panicked with it left nothing
/// half done.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_on_another_thread_does_not_spoil_it() {
        let mutex = Mutex::new(5);
        let panicked = std::thread::scope(|scope| {
            scope
                .spawn(|| {
                    let _held = lock(&mutex);
                    panic!("with the lock held");
                })
                .join()
                .is_err()
        });
        assert!(panicked && mutex.is_poisoned());
        assert_eq!(*lock(&mutex), 5);
    }
}
