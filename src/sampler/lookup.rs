//! Addresses of names, asked for so that a resolver that does not answer holds up no one but who waits for that name.
//!
//! It must not know who asks. Invariant: each name takes one thread at most, however often it is asked for and however
//! long the resolver takes, so that hung ones can never use up the threads that other work needs.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::sync::watch;

use crate::model::{lock, spawn};

/// What came of a name; `None` while nothing has.
type Found = Option<Result<Vec<SocketAddr>, ErrorKind>>;

/// Names that are being looked up.
type UnderWay = Mutex<HashMap<String, watch::Receiver<Found>>>;

/// Looks names up.
#[derive(Clone)]
pub(super) struct Lookup {
    under_way: Arc<UnderWay>,
    /// Asks the system; may take as long as it likes.
    ask: fn(&str) -> io::Result<Vec<SocketAddr>>,
    patience: Duration,
}

impl fmt::Debug for Lookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lookup").field("patience", &self.patience).finish_non_exhaustive()
    }
}

impl Lookup {
    /// Asks the system's resolver and waits so long for it.
    pub(super) fn new(patience: Duration) -> Self {
        Self { under_way: Arc::default(), ask: |name| Ok((name, 0).to_socket_addrs()?.collect()), patience }
    }

    /// The addresses of a name. Whoever asks for it while it is being looked up waits for the same answer.
    async fn find(self, name: String) -> io::Result<Vec<SocketAddr>> {
        let mut found = self.begin(name);
        let done = tokio::time::timeout(self.patience, found.wait_for(Option::is_some)).await;
        match done {
            Ok(Ok(found)) => found.clone().unwrap_or(Err(ErrorKind::Other)).map_err(io::Error::from),
            Ok(Err(_)) => Err(ErrorKind::Other.into()),
            Err(_) => Err(ErrorKind::TimedOut.into()),
        }
    }

    fn begin(&self, name: String) -> watch::Receiver<Found> {
        let mut under_way = lock(&self.under_way);
        if let Some(found) = under_way.get(&name) {
            return found.clone();
        }
        let (tell, found) = watch::channel(None);
        under_way.insert(name.clone(), found.clone());
        drop(under_way);
        let Self { under_way, ask, .. } = self.clone();
        let sought = name.clone();
        let look_up = move || {
            let addresses = ask(&name).map_err(|error| error.kind());
            lock(&under_way).remove(&name);
            tell.send_replace(Some(addresses));
        };
        if spawn("warptop-name", look_up).is_err() {
            // Whoever waits hears that nobody will tell.
            lock(&self.under_way).remove(&sought);
        }
        found
    }
}

impl Resolve for Lookup {
    fn resolve(&self, name: Name) -> Resolving {
        let found = self.clone().find(name.as_str().to_owned());
        Box::pin(async move { Ok(Box::new(found.await?.into_iter()) as Addrs) })
    }
}

#[cfg(test)]
mod tests {
    use super::super::trouble::Trouble;
    use super::*;
    use std::sync::Condvar;
    use std::sync::atomic::{AtomicU32, Ordering};

    static ASKED: AtomicU32 = AtomicU32::new(0);
    static OPEN: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());

    /// Lets all go on in the end, whatever comes of the test: a runtime waits for its threads.
    struct Opener;

    impl Drop for Opener {
        fn drop(&mut self) {
            *OPEN.0.lock().unwrap() = true;
            OPEN.1.notify_all();
        }
    }

    /// Hangs, except for one name, until the test opens it.
    fn hung(name: &str) -> io::Result<Vec<SocketAddr>> {
        if name != "good.test" {
            ASKED.fetch_add(1, Ordering::SeqCst);
            drop(OPEN.1.wait_while(OPEN.0.lock().unwrap(), |open| !*open).unwrap());
        }
        if name == "none.test" { Err(ErrorKind::NotFound.into()) } else { Ok(vec![([192, 0, 2, 1], 0).into()]) }
    }

    /// Fault: engine: the resolver does not answer for 64 named engines
    /// Seen: each of them says `the host name is not resolved in time`
    /// Works: engines with an address or another name; a hung name takes one thread, however often it is tried
    /// Recovers: when the resolver answers
    #[test]
    fn a_resolver_that_hangs_takes_one_thread_a_name_and_holds_up_no_other_name() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let opener = Opener;
        let lookup = Lookup { ask: hung, ..Lookup::new(Duration::from_millis(5)) };
        let names = |i: usize| format!("{i}.test");
        runtime.block_on(async {
            for _ in 0..10 {
                let tries: Vec<_> = (0..64).map(|i| tokio::spawn(lookup.clone().find(names(i)))).collect();
                for task in tries {
                    let error = task.await.unwrap().unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::TimedOut);
                }
            }
            let patient = Lookup { patience: Duration::from_mins(1), ..lookup.clone() };
            assert_eq!(patient.clone().find("good.test".to_owned()).await.unwrap().len(), 1);
            assert!(ASKED.load(Ordering::SeqCst) <= 64, "and not 640");
            let tls = crate::net::tls::config(&crate::net::tls::Authorities::default(), false).unwrap();
            let client =
                reqwest::Client::builder().tls_backend_preconfigured(tls).dns_resolver(lookup).build().unwrap();
            let error = client.get("http://0.test/metrics").send().await.unwrap_err();
            assert_eq!(Trouble::of_request(&error), Trouble::Resolver);
            drop(opener);
            assert_eq!(patient.clone().find(names(7)).await.unwrap().len(), 1);
            let none = patient.find("none.test".to_owned()).await.unwrap_err();
            assert_eq!(none.kind(), ErrorKind::NotFound);
        });
        let words = Trouble::Resolver.to_string();
        assert!(words.contains("the host name is not resolved in time"), "{words}");
    }
}
