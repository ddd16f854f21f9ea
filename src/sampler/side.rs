//! Requests beside the metrics of an engine, each a task of its own: one that hangs holds up neither the metrics nor
//! another one, and is named.
//!
//! It must not know when the metrics are read. Invariants: of each path at most one request is under way; what a path
//! said last counts for [`VALID_MS`], then its values are stale; a path that an engine lacks has nothing to say.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;

use super::trouble::Trouble;
use super::work::Spent;
use crate::model::{Batch, Clock, Reading, SourceId, Time, Why};

/// Most bytes of an answer beside the metrics: the list of ten thousand models.
pub(super) const MAX_SIDE_BODY: usize = 1 << 20;

/// What came of a request, and what that cost.
pub(super) type Outcome<T> = (Result<T, Trouble>, Spent);

/// Requests for one path, one at a time.
#[derive(Debug)]
pub(super) struct SideCall<T> {
    path: &'static str,
    /// The request under way; gives how long it took as well, µs.
    task: Option<JoinHandle<(Outcome<T>, u64)>>,
    /// Since when it has been asked without an answer.
    since: Option<Time>,
}

impl<T> Drop for SideCall<T> {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl<T: Send + 'static> SideCall<T> {
    const fn new(path: &'static str) -> Self {
        Self { path, task: None, since: None }
    }

    /// Whether a request is under way.
    const fn is_out(&self) -> bool {
        self.task.is_some()
    }

    /// Sends a request, unless one is under way.
    fn send(&mut self, clock: &Arc<dyn Clock>, request: impl Future<Output = Outcome<T>> + Send + 'static) {
        if self.task.is_none() {
            let timer = Arc::clone(clock);
            self.task = Some(tokio::spawn(async move {
                let begun = timer.micros();
                let outcome = request.await;
                (outcome, timer.micros().saturating_sub(begun))
            }));
            self.since.get_or_insert(clock.now());
        }
    }

    /// What came of the request under way, for which is waited so long, and how long it took, µs. `None` while nothing
    /// has come of it.
    async fn outcome(&mut self, patience: Duration, spent: &mut Spent) -> Option<(Result<T, Trouble>, u64)> {
        let task = self.task.as_mut().filter(|task| !patience.is_zero() || task.is_finished())?;
        let done = tokio::time::timeout(patience, task).await.ok()?;
        self.task = None;
        // A task ends without a result only with the program.
        let ((result, cost), took) = done.unwrap_or_else(|_| ((Err(Trouble::Broken), Spent::default()), 0));
        spent.add(cost);
        if !matches!(&result, Err(trouble) if trouble.is_silence()) {
            self.since = None;
        }
        Some((result, took))
    }

    /// Says so when there has been no answer for long.
    fn late(&self, now: Time, limit: Duration) -> Option<String> {
        const LATE: Duration = Duration::from_secs(5);
        let ms = now.since(self.since?);
        let late = u128::from(ms) >= limit.min(LATE).as_millis();
        late.then(|| format!("{}: no answer for {}", self.path, coarse(ms)))
    }
}

/// A duration in words that do not change every second for long.
fn coarse(ms: u64) -> String {
    match ms / 1000 {
        seconds @ 0..10 => format!("{seconds} s"),
        seconds @ 10..60 => format!("{} s", seconds - seconds % 10),
        seconds @ 60..3600 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}

/// A path that belongs to the metrics: it is asked with every scrape and waited for, as long as it answers.
#[derive(Debug)]
pub(super) struct Beside {
    call: SideCall<Vec<u8>>,
    /// How long the last answer took, µs.
    usual_us: u64,
    /// The last request was in vain: the next one is not waited for.
    in_vain: bool,
}

impl Beside {
    pub(super) const fn new(path: &'static str) -> Self {
        Self { call: SideCall::new(path), usual_us: 0, in_vain: false }
    }

    /// The path it asks.
    pub(super) const fn path(&self) -> &'static str {
        self.call.path
    }

    /// How long an answer is waited for, where one is due every `period` and the main one took `main_us`: a server that
    /// is slow with one is slow with the other.
    fn patience(&self, period: Duration, main_us: u64) -> Duration {
        if self.in_vain {
            return Duration::ZERO;
        }
        let slow = Duration::from_micros(main_us.saturating_mul(2).max(self.usual_us.saturating_mul(3)));
        slow.max(period / 2)
    }

    /// Asks, and gives the answer if it comes soon. One that comes later belongs to another moment than the metrics and
    /// is not used; as long as it is awaited nothing else is asked.
    pub(super) async fn ask(
        &mut self,
        clock: &Arc<dyn Clock>,
        (period, main_us): (Duration, u64),
        spent: &mut Spent,
        request: impl Future<Output = Outcome<Vec<u8>>> + Send + 'static,
    ) -> Option<Vec<u8>> {
        if self.call.is_out() {
            self.take(Duration::ZERO, spent).await?.ok();
        }
        let patience = self.patience(period, main_us);
        self.call.send(clock, request);
        self.take(patience, spent).await?.ok()
    }

    async fn take(&mut self, patience: Duration, spent: &mut Spent) -> Option<Result<Vec<u8>, Trouble>> {
        let (result, took) = self.call.outcome(patience, spent).await?;
        self.in_vain = matches!(&result, Err(trouble) if trouble.is_silence());
        self.usual_us = if self.in_vain { 0 } else { took };
        Some(result)
    }

    /// Says so when it has not answered for long.
    pub(super) fn words(&self, now: Time, limit: Duration) -> Option<String> {
        self.call.late(now, limit)
    }
}

/// Requests in a row after each start of the engine.
const TRIES: u8 = 3;

/// From one asking to the next, ms.
pub(super) const EVERY_MS: u64 = 60_000;

/// How long an answer counts, ms: as with everything, three and a half periods.
const VALID_MS: u64 = EVERY_MS * 7 / 2;

/// A path that says what changes rarely.
#[derive(Debug)]
pub(super) struct Extra {
    call: SideCall<Batch>,
    tries: u8,
    due: Time,
    /// What it said last, and when.
    said: Option<(Time, Batch)>,
    /// What came instead of an answer last.
    trouble: Option<Trouble>,
}

impl Extra {
    pub(super) const fn new(path: &'static str) -> Self {
        Self { call: SideCall::new(path), tries: TRIES, due: Time(0), said: None, trouble: None }
    }

    /// The path it asks.
    pub(super) const fn path(&self) -> &'static str {
        self.call.path
    }

    /// Whether it is to be asked now.
    pub(super) fn is_due(&self, now: Time) -> bool {
        !self.call.is_out() && (self.tries > 0 || now >= self.due)
    }

    /// Whether it answered when it was asked last.
    pub(super) const fn answers(&self) -> bool {
        self.said.is_some() && self.trouble.is_none()
    }

    /// Whether it was asked and nothing has come of it yet.
    pub(super) const fn is_open(&self) -> bool {
        self.said.is_none() && self.trouble.is_none()
    }

    /// Asks.
    pub(super) fn ask(
        &mut self,
        clock: &Arc<dyn Clock>,
        request: impl Future<Output = Outcome<Batch>> + Send + 'static,
    ) {
        self.tries = self.tries.saturating_sub(1);
        self.due = clock.now() + EVERY_MS;
        self.call.send(clock, request);
    }

    /// Takes an answer that has come.
    pub(super) async fn look(&mut self, now: Time, spent: &mut Spent) {
        let Some((result, _)) = self.call.outcome(Duration::ZERO, spent).await else { return };
        match result {
            Ok(said) => {
                (self.said, self.trouble, self.tries) = (Some((now, said)), None, 0);
            }
            Err(trouble) => {
                // A path that the engine lacks has nothing to say.
                if !trouble.is_final() {
                    (self.said, self.tries) = (None, 0);
                }
                self.trouble = Some(trouble);
            }
        }
    }

    /// Adds what it said last to `batch`, where that does not say the same itself.
    pub(super) fn add(&self, batch: &mut Batch) {
        let Some((then, said)) = &self.said else { return };
        let old = batch.at.since(*then) > VALID_MS;
        for sample in &said.samples {
            if batch.samples.iter().all(|known| known.metric != sample.metric) {
                let reading = if old { Reading::Missing(Why::Stale) } else { sample.reading };
                batch.push(sample.subject, sample.metric, reading);
            }
        }
        batch.facts.extend_from_slice(&said.facts);
    }

    /// Says so when there has been no answer for long, and how old the last one is.
    pub(super) fn words(&self, now: Time, limit: Duration) -> Option<String> {
        let age = self.said.as_ref().map(|(then, _)| now.since(*then));
        let failed = || {
            let trouble = self.trouble.as_ref().filter(|_| age.is_some_and(|age| age > VALID_MS))?;
            Some(format!("{}: {trouble}", self.path()))
        };
        let words = self.call.late(now, limit).or_else(failed)?;
        Some(match age {
            Some(age) => format!("{words}, the last one is {} old", coarse(age)),
            None => words,
        })
    }
}

/// An empty batch for what a path says.
pub(super) const fn nothing_said(index: u8) -> Batch {
    Batch::new(SourceId::Engine(index), Time(0), 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::model::{ManualClock, Metric, Subject};

    const LIMIT: Duration = Duration::from_secs(20);

    /// A clock that stands, and a runtime whose time passes only when nothing else is left to do.
    fn setting() -> (Arc<ManualClock>, Arc<dyn Clock>, tokio::runtime::Runtime) {
        let clock = Arc::new(ManualClock::at(Time(100_000)));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        (Arc::clone(&clock), clock, runtime)
    }

    fn said(length: f64) -> Batch {
        let mut said = nothing_said(0);
        said.push(Subject::Engine(0), Metric::MaxModelLen, length);
        said
    }

    fn answer<T>(result: Result<T, Trouble>) -> impl Future<Output = Outcome<T>> {
        std::future::ready((result, Spent::default()))
    }

    async fn hang<T>() -> Outcome<T> {
        std::future::pending().await
    }

    async fn settle() {
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }

    fn length(extra: &Extra, at: Time) -> Option<Reading> {
        let mut batch = Batch::new(SourceId::Engine(0), at, 1000);
        extra.add(&mut batch);
        batch.samples.first().map(|sample| sample.reading)
    }

    /// Fault: engine: `/v1/models` (or another path that says what rarely changes) hangs
    /// Seen: the engine's row says `/v1/models: no answer for 20 s, the last one is 1 min old`
    /// Works: its metrics, every second; what the path said last, for 3.5 minutes
    /// Recovers: with the first answer; it is asked once a minute
    #[test]
    fn a_path_that_hangs_is_named_and_what_it_said_grows_old() {
        let (clock, shared, runtime) = setting();
        let at = |ms: u64| {
            clock.set(Time(100_000 + ms));
            clock.now()
        };
        runtime.block_on(async {
            let (mut extra, mut spent) = (Extra::new("/v1/models"), Spent::default());
            assert!(extra.is_due(at(0)) && extra.is_open());
            extra.ask(&shared, answer(Ok(said(4096.0))));
            settle().await;
            extra.look(at(0), &mut spent).await;
            assert_eq!((extra.answers(), extra.words(at(59_999), LIMIT)), (true, None));
            assert!(!extra.is_due(at(59_999)) && extra.is_due(at(60_000)));
            extra.ask(&shared, hang());
            settle().await;
            extra.look(at(64_999), &mut spent).await;
            assert_eq!(extra.words(at(64_999), LIMIT), None, "not late yet");
            assert!(!extra.is_due(at(200_000)), "one request at a time");
            let words = "/v1/models: no answer for 20 s, the last one is 1 min old";
            assert_eq!(extra.words(at(82_000), LIMIT).as_deref(), Some(words));
            assert_eq!(length(&extra, at(210_000)), Some(Reading::Value(4096.0)));
            assert_eq!(length(&extra, at(210_001)), Some(Reading::Missing(Why::Stale)));
            // It answers in the end.
            extra.call.task = None;
            extra.ask(&shared, answer(Ok(said(8192.0))));
            settle().await;
            extra.look(at(220_000), &mut spent).await;
            assert_eq!((extra.words(at(220_000), LIMIT), length(&extra, at(220_000))), (None, Some(8192.0.into())));
        });
    }

    #[test]
    fn a_path_that_the_engine_lacks_has_nothing_to_say_and_one_that_fails_is_asked_again() {
        let (clock, shared, runtime) = setting();
        runtime.block_on(async {
            let (mut extra, mut spent) = (Extra::new("/version"), Spent::default());
            let broken = || Trouble::Status { status: 503, excerpt: String::new() };
            for tries in [2, 1, 0] {
                extra.ask(&shared, answer(Err(broken())));
                settle().await;
                extra.look(clock.now(), &mut spent).await;
                assert_eq!((extra.tries, extra.is_due(clock.now())), (tries, tries > 0));
            }
            assert_eq!(extra.words(clock.now(), LIMIT), None, "it answers, though not with what is asked");
            extra.ask(&shared, answer(Ok(said(1.0))));
            settle().await;
            extra.look(clock.now(), &mut spent).await;
            extra.ask(&shared, answer(Err(broken())));
            settle().await;
            extra.look(clock.now(), &mut spent).await;
            assert!(length(&extra, clock.now()).is_some() && extra.words(clock.now(), LIMIT).is_none());
            let words = "/version: answers with HTTP 503, the last one is 3 min old";
            assert_eq!(extra.words(clock.now() + VALID_MS + 1, LIMIT).as_deref(), Some(words));
            extra.ask(&shared, answer(Err(Trouble::NotFound)));
            settle().await;
            extra.look(clock.now(), &mut spent).await;
            assert!(length(&extra, clock.now()).is_none() && !extra.is_due(clock.now()) && !extra.answers());
        });
    }

    /// Fault: engine: llama.cpp's `/slots` or SGLang's `/v1/loads`, read with every scrape, hangs
    /// Seen: the engine's row says `/slots: no answer for 10 s`; what only that path tells is missing
    /// Works: what `/metrics` tells, every second: it is waited for once, half a period
    /// Recovers: with the first answer
    #[test]
    fn a_path_of_the_metrics_that_hangs_is_waited_for_once() {
        const PACE: (Duration, u64) = (Duration::from_secs(1), 5_000);
        let (clock, shared, runtime) = setting();
        runtime.block_on(async {
            let (mut beside, mut spent) = (Beside::new("/slots"), Spent::default());
            let began = tokio::time::Instant::now();
            let waited = || tokio::time::Instant::now().duration_since(began).as_millis();
            let good = || answer(Ok(b"[]".to_vec()));
            assert!(beside.ask(&shared, PACE, &mut spent, good()).await.is_some());
            assert_eq!(waited(), 0);
            assert!(beside.ask(&shared, PACE, &mut spent, hang()).await.is_none());
            assert_eq!(waited(), 500, "half a period");
            for _ in 0..5 {
                assert!(beside.ask(&shared, PACE, &mut spent, good()).await.is_none(), "it was asked and is awaited");
            }
            assert_eq!(waited(), 500);
            clock.set(Time(110_000));
            assert_eq!(beside.words(clock.now(), LIMIT).as_deref(), Some("/slots: no answer for 10 s"));
            // The time-out of the request.
            beside.call.task = Some(tokio::spawn(async { ((Err(Trouble::Silent(LIMIT)), Spent::default()), 0) }));
            settle().await;
            assert!(beside.ask(&shared, PACE, &mut spent, hang()).await.is_none());
            assert_eq!(waited(), 500, "after a request in vain the next is not waited for");
            beside.call.task = Some(tokio::spawn(async { ((Ok(b"old".to_vec()), Spent::default()), 9_000_000) }));
            settle().await;
            let fresh = beside.ask(&shared, PACE, &mut spent, good()).await;
            assert_eq!(fresh.as_deref(), Some(&b"[]"[..]), "what comes late belongs to another moment");
            assert_eq!((beside.words(clock.now(), LIMIT), waited()), (None, 500));
        });
    }

    #[test]
    fn a_server_that_is_slow_is_waited_for_as_long_as_it_takes() {
        let period = Duration::from_secs(1);
        let mut beside = Beside::new("/slots");
        assert_eq!(beside.patience(period, 10), period / 2);
        assert_eq!(beside.patience(period, 900_000), Duration::from_millis(1800));
        beside.usual_us = 700_000;
        assert_eq!(beside.patience(period, 10), Duration::from_millis(2100));
        beside.in_vain = true;
        assert_eq!(beside.patience(period, 900_000), Duration::ZERO);
    }

    #[test]
    fn ages_change_seldom() {
        let words = [999, 9_999, 19_999, 59_999, 60_000, 3_599_999, 7_200_000].map(coarse);
        assert_eq!(words, ["0 s", "9 s", "10 s", "50 s", "1 min", "59 min", "2 h"]);
    }
}
