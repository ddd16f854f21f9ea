//! Threads that read the files of engines' models: so many for each user, so that files that do not answer cost those
//! who named them, and nobody else.
//!
//! It must not know what is read. Invariant: a reading that never ends keeps one place of its user for ever, and no
//! user has more than [`EACH`] places; those who neither run warptop nor are root have [`STRANGERS`] together.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Semaphore;

use super::user::is_stranger;
use crate::model::lock;
use crate::sampler::thread::run_aside;

/// Readings of one user's files at a time.
const EACH: usize = 8;

/// The same of all users together who neither run warptop nor are root.
const STRANGERS: usize = 64;

/// Longest wait for the files of a model: they may lie on a file system that does not answer.
const FILES: Duration = Duration::from_secs(10);

/// Places to read in, by user.
#[derive(Debug)]
pub(super) struct Readers {
    users: Mutex<HashMap<u32, Arc<Semaphore>>>,
    strangers: Arc<Semaphore>,
}

impl Default for Readers {
    fn default() -> Self {
        Self { users: Mutex::default(), strangers: Arc::new(Semaphore::new(STRANGERS)) }
    }
}

impl Readers {
    /// Runs `work`, which reads files that a process of `user` named, on a thread for that. `None` when there was no
    /// place for it, or no end of it, within [`FILES`].
    pub(super) async fn read<T: Send + 'static>(
        &self,
        user: Option<u32>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let user = user?;
        let read = async {
            let place = self.places_of(user).acquire_owned().await.ok()?;
            let strange =
                if is_stranger(user) { Some(Arc::clone(&self.strangers).acquire_owned().await.ok()?) } else { None };
            let work = move || {
                let _places = (place, strange);
                work()
            };
            run_aside("warptop-files", work).await
        };
        tokio::time::timeout(FILES, read).await.ok().flatten()
    }

    /// The places of a user; those of users who read nothing are forgotten.
    fn places_of(&self, user: u32) -> Arc<Semaphore> {
        let mut users = lock(&self.users);
        users.retain(|id, places| *id == user || places.available_permits() < EACH || Arc::strong_count(places) > 1);
        Arc::clone(users.entry(user).or_insert_with(|| Arc::new(Semaphore::new(EACH))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Sender, channel};

    /// Fault: engine: files of another user's model never answer
    /// Seen: no size of the KV cache
    /// Works: the models of all other users are read
    /// Recovers: when that user's files answer
    #[test]
    fn files_that_never_answer_use_up_the_places_of_their_user_only() {
        assert_eq!(super::super::launched::UNREAD, "its files do not answer in time");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let own = rustix::process::geteuid().as_raw();
        let (stranger, another) = (own + 4242, own + 4243);
        let readers = Arc::new(Readers::default());
        let mut held: Vec<Sender<()>> = Vec::new();
        runtime.block_on(async {
            for _ in 0..3 * EACH {
                let (release, wait) = channel::<()>();
                held.push(release);
                let readers = Arc::clone(&readers);
                tokio::spawn(async move { readers.read(Some(stranger), move || wait.recv().is_ok()).await });
            }
            tokio::task::yield_now().await;
            assert_eq!(readers.places_of(stranger).available_permits(), 0, "all of its places, and no more threads");
            assert_eq!(readers.strangers.available_permits(), STRANGERS - EACH);
            for user in [own, another] {
                assert_eq!(readers.read(Some(user), || 5).await, Some(5), "{user}");
            }
            assert_eq!(readers.read(None, || 5).await, None, "a process that is gone");
        });
        drop(held);
    }
}
