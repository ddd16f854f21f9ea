//! A whole sweep on a thread of its own.
//!
//! The one thread carries every connection, so that nothing has to be handed over between a byte and its stamp. It must
//! not know how requests look (`work`), how bytes travel (`http`) or what figures they come to (`tally`). Invariant: the
//! caller, however slow, never holds it up.

mod arrivals;
mod client;
mod conduct;
mod open;
mod order;
mod pace;
mod progress;
mod purse;
mod site;
mod stage;
mod sweep;
#[cfg(test)]
mod tests;
mod users;

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use tokio::task::LocalSet;

use crate::model::{Clock, spawn, text};
use crate::net::endpoint::Endpoint;
use crate::net::tls::Authorities;

use super::exchange::Transport;
use super::http::Wire;
use super::knee::knee;
use super::level::{Knee, Level, State};
use super::plan::Plan;
use super::tally::Tally;
use super::work::{Terms, Work, agree};

use pace::Pacer;
use purse::Purse;
use site::{Jobs, Record, Site};

/// How often it looks whether it was told to stop, where nothing else runs.
const STOP_LOOK: Duration = Duration::from_millis(20);
/// … and how many of these looks pass between two words.
const LOOKS_A_WORD: u64 = 20;
/// Words that may wait for a caller that is slow to hear them; more are left out, but for levels planned or over.
const MOST_WAITING: usize = 64;

/// Where and with what a sweep runs.
#[derive(Clone)]
pub struct Setup {
    /// The one endpoint that is asked, with its key.
    pub endpoint: Endpoint,
    /// Authorities that are trusted besides the system's.
    pub authorities: Authorities,
    /// The clock of all stamps.
    pub clock: Arc<dyn Clock>,
    /// Set to end the sweep; what was measured until then is kept.
    pub stop: Arc<AtomicBool>,
}

/// What is heard of a sweep while it runs.
#[derive(Clone, Debug, PartialEq)]
pub enum Said {
    /// How far it is.
    Progress {
        /// Share that is done, 0 to 1.
        done: f64,
        /// Time left, s, where it can be told.
        eta_s: Option<f64>,
        /// What it is doing.
        what: String,
    },
    /// A level, whole or as far as it is (about once a second); at first each of them, as planned.
    Level(Box<Level>),
}

/// What a sweep came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Swept {
    /// Its levels, in the order they were measured in.
    pub levels: Vec<Level>,
    /// Where throughput stops growing.
    pub knee: Option<Knee>,
    /// Why it ended before all levels were measured; empty when it did not.
    pub ended_early: String,
    /// What has to be known to read the figures.
    pub notes: Vec<String>,
    /// Names and versions of what was asked, by name.
    pub facts: Vec<(String, String)>,
}

/// Why there is no sweep.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The endpoint cannot be loaded: what, why, what to do.
    #[error("{0}")]
    Endpoint(String),
    /// The system gave not what it takes.
    #[error("{0}")]
    System(String),
    /// It was told to stop before anything was measured.
    #[error("stopped")]
    Stopped,
}

/// Runs a sweep; `say` is called on the caller's thread, the load runs on another one.
///
/// # Errors
/// When nothing could be measured.
pub fn run(plan: &Plan, setup: &Setup, say: impl FnMut(Said)) -> Result<Swept, LoadError> {
    let (plan, setup) = (plan.clone(), setup.clone());
    on_own_thread(move |voice| whole(plan, &setup, voice), say)
}

/// Does the work on a thread of its own; what it says is heard on this one.
fn on_own_thread(
    work: impl FnOnce(Voice) -> Result<Swept, LoadError> + Send + 'static,
    mut say: impl FnMut(Said),
) -> Result<Swept, LoadError> {
    let (tell, said) = mpsc::channel();
    let waiting = Arc::new(AtomicUsize::new(0));
    let voice = Voice { tell, waiting: Arc::clone(&waiting) };
    let thread = spawn("warptop-load", move || work(voice));
    let thread = thread.map_err(|error| no_system(&error))?;
    // It ends when the other thread has let go of its end.
    for word in said {
        waiting.fetch_sub(1, Ordering::Relaxed);
        say(word);
    }
    thread.join().unwrap_or_else(|panic| Err(LoadError::System(panicked(&*panic))))
}

/// What the thread of the load says, to the thread that called.
struct Voice {
    tell: mpsc::Sender<Said>,
    /// Words that nobody has heard yet.
    waiting: Arc<AtomicUsize>,
}

impl Voice {
    fn say(&self, word: Said) {
        // What is said once.
        let must = matches!(&word, Said::Level(level) if level.state.is_over() || level.state == State::Planned);
        if must || self.waiting.load(Ordering::Relaxed) < MOST_WAITING {
            // Counted first: it may be heard before this goes on. Whoever does not listen any more misses nothing.
            self.waiting.fetch_add(1, Ordering::Relaxed);
            let _ = self.tell.send(word);
        }
    }
}

fn whole(plan: Plan, setup: &Setup, voice: Voice) -> Result<Swept, LoadError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| no_system(&error))?;
    let wire = Wire::new(&setup.endpoint, &setup.authorities, Arc::clone(&setup.clock)).map_err(LoadError::Endpoint)?;
    let swept = LocalSet::new().block_on(&runtime, levels(plan, setup, wire, voice));
    // A name that is still being looked up is not waited for.
    runtime.shutdown_background();
    swept
}

/// What the endpoint takes, and then the levels.
async fn levels(plan: Plan, setup: &Setup, wire: Wire, voice: Voice) -> Result<Swept, LoadError> {
    let mut lane = wire.lane();
    let mut purse = Purse::new(plan.budget, setup.clock.micros());
    let terms = tokio::select! {
        terms = agree(&plan, &mut lane) => terms.map_err(LoadError::Endpoint)?,
        () = until_stopped(&setup.stop, &voice) => return Err(LoadError::Stopped),
        // Budgets hold before the first level too: a server may answer each of these late.
        () = tokio::time::sleep(purse.left(setup.clock.micros())) => {
            return Err(LoadError::Endpoint(format!("nothing was measured: {} while the endpoint was asked what it takes; \
                 see whether it answers at all, or allow more", purse.no_time())));
        }
    };
    let mut work = Work::new(&plan, terms.clone());
    purse.close(terms.spent);
    let site = Rc::new(Site {
        purse: RefCell::new(purse),
        plan,
        transport: wire,
        clock: Arc::clone(&setup.clock),
        stop: Arc::clone(&setup.stop),
        pacer: Pacer::kernel,
        cpu: client::cpu_ns,
        record: Box::new(|frame| -> Box<dyn Record> { Box::new(Tally::new(frame)) }),
        jobs: RefCell::new(Jobs::new(Box::new(move |lengths| work.next(lengths)))),
        idle: RefCell::default(),
        took_s: Cell::new(None),
        say: Box::new(move |word| voice.say(word)),
    });
    let mut swept = sweep::sweep(&site).await.map_err(|error| no_system(&error))?;
    swept.knee = knee(&swept.levels);
    swept.notes.splice(0..0, terms.notes.iter().cloned());
    swept.facts = facts(&terms, setup);
    judge(swept, site.is_stopped())
}

/// A sweep in which no request ended well is none.
fn judge(swept: Swept, is_stopped: bool) -> Result<Swept, LoadError> {
    if swept.levels.iter().any(|level| level.requests.ok > 0) {
        return Ok(swept);
    }
    if is_stopped {
        return Err(LoadError::Stopped);
    }
    match swept.levels.last().map(|level| level.state) {
        None | Some(State::OutOfBudget) => Err(LoadError::Endpoint(format!(
            "nothing was measured: {}; allow more, or ask for shorter levels",
            swept.ended_early
        ))),
        Some(_) if swept.ended_early.is_empty() => {
            // What went wrong says more than what came of it.
            let levels = || swept.levels.iter().rev();
            let fault = levels().find_map(|level| level.most_frequent_fault.as_ref());
            let why = fault.or_else(|| levels().find_map(|level| level.notes.last()));
            Err(LoadError::Endpoint(format!(
                "no measured request ended well{}",
                why.map_or_else(String::new, |why| format!(": {why}"))
            )))
        }
        Some(_) => Err(LoadError::Endpoint(swept.ended_early)),
    }
}

fn facts(terms: &Terms, setup: &Setup) -> Vec<(String, String)> {
    let prompts = if terms.ids.is_some() { "token ids" } else { "words" };
    let facts = [
        ("endpoint", setup.endpoint.shown().to_owned()),
        ("model", text::clean(&terms.model)),
        ("prompts", prompts.to_owned()),
    ];
    facts.map(|(name, value)| (name.to_owned(), value)).into()
}

/// Returns when it was told to stop; says until then that the endpoint is being asked.
async fn until_stopped(stop: &AtomicBool, voice: &Voice) {
    let mut looks = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        if looks.is_multiple_of(LOOKS_A_WORD) {
            voice.say(Said::Progress { done: 0.0, eta_s: None, what: "asking the endpoint what it takes".to_owned() });
        }
        looks += 1;
        tokio::time::sleep(STOP_LOOK).await;
    }
}

fn no_system(error: &io::Error) -> LoadError {
    LoadError::System(format!("the load client cannot start: {error}; close what uses many files or threads"))
}

/// A fault of ours, in words.
fn panicked(panic: &(dyn std::any::Any + Send)) -> String {
    let words = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    format!("the load client broke off, which is a fault of warptop: {}", text::clean(words.unwrap_or("no words")))
}
