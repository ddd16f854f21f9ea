//! One level from its first request to its last: warm-up, measured time, the end.
//!
//! Invariants: load is kept up until the last measured request has ended; the next level begins on an idle server; a
//! request that is told to end ends at once. All moments are µs.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;

use tokio::task::JoinSet;

use crate::load::Said;
use crate::load::exchange::Transport;
use crate::load::level::{Client, Level, Load, State};
use crate::load::plan::{Shape, Span};
use crate::load::tally::Frame;
use crate::model::text::Plural;

use super::arrivals::Arrivals;
use super::open::{Line, Tasks, dispatch};
use super::order::{self, Leg};
use super::progress::Progress;
use super::site::Site;
use super::stage::{Cut, Stage};
use super::users::user;

/// How often it looks: a level's ends are as exact as that, and the lag of the event loop is counted so.
const TICK: u64 = 10_000;
/// How often it says how far it is.
const PROGRESS: u64 = 250_000;
/// How often it shows the level.
const SHOW: u64 = 1_000_000;
/// Showing a level may take this part of the time.
const SHOW_SHARE: u64 = 200;
/// How often it looks for over-saturation, and after what time first.
const LOOK: u64 = 1_000_000;
const FIRST_LOOK: u64 = 5_000_000;
/// Where more comes than is served, what is in flight is waited for no longer than the longest request took, or this.
const LAST_WAIT: u64 = 10_000_000;
/// Time beyond that of a request in which it must have ended.
const GRACE: u64 = 1_000_000;

/// What a level came to.
pub(super) struct Over {
    /// Its figures.
    pub(super) level: Level,
    /// Why it ended before its time.
    pub(super) cut: Option<Cut>,
}

/// A level at work.
struct Conductor<'a, T: Transport> {
    site: Rc<Site<T>>,
    stage: Rc<Stage<T>>,
    /// Requests that have no place yet.
    line: Line,
    leg: Leg,
    is_open: bool,
    phase: State,
    progress: &'a mut Progress,
    start: u64,
    from: u64,
    to: u64,
    /// Until when what is in flight is waited for, once no more requests may begin.
    waits_until: Option<u64>,
    is_short: bool,
    notes: Vec<String>,
    next_progress: u64,
    next_show: u64,
    next_look: u64,
}

/// Runs a level.
///
/// # Errors
/// When the system gives no timer.
pub(super) async fn level<T: Transport>(
    site: &Rc<Site<T>>,
    leg: Leg,
    place: u32,
    progress: &mut Progress,
) -> io::Result<Over> {
    let users = if let Load::Users(users) = leg.load { users } else { 0 };
    // All users begin at once: their first requests are written before that.
    for _ in 0..users {
        site.jobs.borrow_mut().prepare(None, users as usize);
    }
    let start = site.now();
    let is_open = !matches!(leg.load, Load::Users(_));
    let epoch_unix_ms = site.clock.now().0.saturating_sub(start / 1000);
    let frame = Frame {
        place,
        repeat: leg.repeat,
        load: leg.load,
        open: is_open,
        slo: site.plan.slo,
        epoch_unix_ms,
        whole: order::requests(&site.plan).is_some(),
    };
    let stage = Rc::new(Stage::new(Rc::clone(site), frame, users, order::requests(&site.plan)));
    progress.begin(start as f64 / 1e6);
    let mut conductor = Conductor {
        site: Rc::clone(site),
        stage,
        line: Line::default(),
        leg,
        is_open,
        phase: State::WarmingUp,
        progress,
        start,
        from: start,
        to: start,
        waits_until: None,
        is_short: false,
        notes: Vec::new(),
        next_progress: start,
        next_show: start + SHOW,
        next_look: start + FIRST_LOOK,
    };
    conductor.run(place).await
}

impl<T: Transport> Conductor<'_, T> {
    async fn run(&mut self, place: u32) -> io::Result<Over> {
        let (tick, pacer) = ((self.site.pacer)()?, (self.site.pacer)()?);
        if self.has_count() {
            self.measure_from(self.start);
        }
        let tasks: Tasks = Rc::new(RefCell::new(JoinSet::new()));
        if let Some(arrivals) = self.arrivals(place) {
            let run =
                dispatch(Rc::clone(&self.stage), arrivals, self.start, pacer, Rc::clone(&self.line), Rc::clone(&tasks));
            tasks.borrow_mut().spawn_local(run);
        } else if let Load::Users(users) = self.leg.load {
            for _ in 0..users {
                tasks.borrow_mut().spawn_local(user(Rc::clone(&self.stage), self.start));
            }
        }
        let mut due = self.start;
        loop {
            due += TICK;
            tick.until(&*self.site.clock, due).await;
            let now = self.site.now();
            if self.phase == State::Measuring {
                self.stage.books_mut().proof.ticks.add(now - due);
            }
            self.look_at_backlog(now);
            reap(&tasks);
            if self.step(now) {
                break;
            }
            self.report(now);
        }
        let mut left = std::mem::take(&mut *tasks.borrow_mut());
        left.shutdown().await;
        Ok(self.over())
    }

    /// Requests of an open loop.
    fn arrivals(&self, place: u32) -> Option<Arrivals> {
        // Each level its own random numbers: repeats must not be the same sample again.
        let seed =
            self.site.plan.seed.wrapping_add(u64::from(place).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        match (&self.site.plan.shape, self.leg.load) {
            (Shape::Constant(_), Load::RequestsPerS(rate)) => Some(Arrivals::constant(rate)),
            (Shape::Poisson(_), Load::RequestsPerS(rate)) => Some(Arrivals::poisson(rate, seed)),
            (Shape::Trace(arrivals), _) => Some(Arrivals::trace(arrivals)),
            _ => None,
        }
    }

    /// Whether the number of its requests says how long it is.
    fn has_count(&self) -> bool {
        self.stage.books().most.is_some()
    }

    fn measure_from(&mut self, now: u64) {
        self.stage.measure_from(now);
        (self.phase, self.from) = (State::Measuring, now);
    }

    fn measure_to(&mut self, now: u64) {
        self.stage.measure_to(now);
        (self.phase, self.to) = (State::Ending, now);
        // A time too short for a trend in what ended may have one in what came.
        self.next_look = now;
    }

    fn look_at_backlog(&self, now: u64) {
        let mut books = self.stage.books_mut();
        let there = self.line.borrow().len() as u64 + books.proof.flight.now;
        if let Some(backlog) = &mut books.backlog {
            backlog.look(now, there);
        }
    }

    /// Does what is due; whether the level is over.
    fn step(&mut self, now: u64) -> bool {
        self.look_at_ends(now);
        match self.phase {
            State::WarmingUp => self.warm_up(now),
            State::Measuring => self.measure(now),
            _ => {}
        }
        self.look_for_too_much(now);
        let cut = self.stage.books().cut.clone();
        if cut.is_some() && self.phase == State::Measuring {
            self.measure_to(now);
        }
        if cut.as_ref().is_some_and(|cut| cut.at_once) {
            return true;
        }
        let (owed, in_flight) = (self.stage.books().owed, self.stage.books().proof.flight.now);
        let is_owed = owed > 0 && now < self.to.saturating_add(self.patience());
        if cut.is_some() || self.phase == State::Ending && !is_owed {
            self.stage.books_mut().shut = true;
            // As long as what ended before it: what ends while it waits took longer for having waited.
            let longest = self.stage.books().longest;
            let patience = match &cut {
                // What it would still wait for tells nothing of a state that never was.
                Some(cut) if cut.state == State::OverSaturated => longest.max(LAST_WAIT).min(self.patience()),
                _ => self.patience(),
            };
            let until = *self.waits_until.get_or_insert(now.saturating_add(patience));
            return in_flight == 0 || now >= until || now >= self.site.purse.borrow().deadline();
        }
        false
    }

    /// Whether it has to end: told to, out of time, or served too little.
    fn look_at_ends(&mut self, now: u64) {
        let deadline = self.site.purse.borrow().deadline();
        let mut books = self.stage.books_mut();
        if self.site.is_stopped() {
            books.cut(State::Stopped, "it was told to stop".to_owned(), true);
        } else if now >= deadline && !(self.phase == State::Ending && books.owed == 0) {
            let words = self.site.purse.borrow().no_time();
            books.cut(State::OutOfBudget, words, true);
        } else if now.saturating_add(books.longest) >= deadline && books.may_begin() {
            // What is in flight shall end within the budget.
            let words = self.site.purse.borrow().no_time();
            books.out_of_budget(words);
        }
    }

    /// Whether more comes than is served: while the load is kept up. As it is measured, by what ended; once that is over,
    /// by what came too, which would else be asked too often.
    fn look_for_too_much(&mut self, now: u64) {
        let mut books = self.stage.books_mut();
        // Of a given number of requests all are wanted, and a trace may have its crowds.
        if now < self.next_look || !self.is_open || books.most.is_some() || books.shut {
            return;
        }
        self.next_look = now + LOOK;
        let is_piled_up = || books.backlog.as_ref().is_some_and(|backlog| backlog.is_piled_up(self.from, now));
        let is_over = match self.phase {
            State::Measuring => self.stage.record().is_over_saturated(),
            State::Ending => self.stage.record().is_over_saturated() || is_piled_up(),
            _ => false,
        };
        if is_over {
            let words = format!("at {} more came than was served", self.leg.load);
            books.cut(State::OverSaturated, words, false);
        }
    }

    fn warm_up(&mut self, now: u64) {
        let Span::Time { warmup_s, most_s, .. } = self.site.plan.span else { return };
        let fresh = self.stage.books().fresh;
        let is_long = now >= after(self.start, warmup_s.max(most_s));
        if now < after(self.start, warmup_s) || fresh > 0 && !is_long {
            return;
        }
        if fresh > 0 {
            let users = Plural(fresh.into(), "user", "users");
            self.notes.push(format!("{users} had no answer yet when the warm-up ended"));
        }
        self.measure_from(now);
    }

    fn measure(&mut self, now: u64) {
        let (begun, most, in_flight, last_end) = {
            let books = self.stage.books();
            (books.begun, books.most, books.proof.flight.now, books.last_end)
        };
        match (most, self.site.plan.span) {
            (Some(most), _) if begun >= most && in_flight == 0 => self.measure_to(last_end.max(self.from) + 1),
            (None, Span::Time { least_s, samples, most_s, .. }) => {
                let has_all = self.stage.record().measured_ok() >= samples;
                let is_out = now >= after(self.from, most_s);
                if now >= after(self.from, least_s) && has_all || is_out {
                    self.is_short = !has_all;
                    self.measure_to(now);
                }
            }
            _ => {}
        }
    }

    /// How long what is in flight is waited for.
    fn patience(&self) -> u64 {
        u64::try_from(self.site.limit().as_micros()).unwrap_or(u64::MAX).saturating_add(GRACE)
    }

    fn report(&mut self, now: u64) {
        if now >= self.next_progress {
            self.next_progress = now + PROGRESS;
            let request_s = self.stage.books().took_s().or(self.site.took_s.get());
            let until_s = self.site.purse.borrow().deadline() as f64 / 1e6;
            let what = self.words(now);
            let said = self.progress.said(&self.site.plan, now as f64 / 1e6, request_s, until_s, what);
            (self.site.say)(said);
        }
        if now >= self.next_show {
            (self.site.say)(Said::Level(Box::new(self.level(now))));
            // Nothing else runs while figures are worked out: that must stay rare.
            let cost = self.site.now() - now;
            self.next_show = now + SHOW.max(cost * SHOW_SHARE);
        }
    }

    /// What it is doing, in words.
    fn words(&self, now: u64) -> String {
        let books = self.stage.books();
        let load = self.leg.load;
        let seconds = now.saturating_sub(self.start) / 1_000_000;
        let repeats = self.site.plan.repeats;
        let round = if repeats > 1 { format!(" ({} of {repeats})", self.leg.repeat + 1) } else { String::new() };
        match (self.phase, self.site.plan.span) {
            (State::WarmingUp, _) => format!("{load}{round}: warming up, {seconds} s"),
            (State::Measuring, span) => {
                let of = match (books.most, span) {
                    (None, Span::Time { samples, .. }) => samples,
                    (most, _) => most.unwrap_or_default(),
                };
                format!("{load}{round}: {} of {of} requests, {seconds} s", self.stage.record().measured_ok())
            }
            _ => format!("{load}{round}: waiting for the last {} requests, {seconds} s", books.proof.flight.now),
        }
    }

    /// The level as far as it is.
    fn level(&self, now: u64) -> Level {
        let mut level = self.stage.record().level(now, Client::default());
        let books = self.stage.books();
        let ttft_p50 = level.ttft_s.p50.map(|p50| p50.value);
        level.client = books.proof.client(now, ttft_p50);
        level.state = self.phase;
        level
    }

    /// The level when it is over.
    fn over(&self) -> Over {
        let now = self.site.now();
        let mut level = self.level(now);
        let books = self.stage.books();
        level.state = match &books.cut {
            Some(cut) => cut.state,
            // Of so few it does not end the sweep, but good it was not.
            None if books.is_failing(self.site.plan.most_errors) => State::Failing,
            None if self.is_short => State::Short,
            None => State::Done,
        };
        level.requests.not_sent = books.most.map_or(self.line.borrow().len() as u64, |most| most - books.begun);
        if level.requests.not_sent > 0 {
            let requests = Plural(level.requests.not_sent, "request was", "requests were");
            level.notes.push(format!("{requests} due or planned and never sent"));
        }
        level.notes.extend(self.notes.iter().cloned());
        let is_waited = books.cut.as_ref().is_none_or(|cut| !cut.at_once);
        level.notes.extend(books.notes(is_waited));
        level.most_frequent_fault = books.most_frequent_fault().map(str::to_owned);
        level.client.host_limits.clone_from(&books.host_limits);
        self.site.purse.borrow_mut().close(self.stage.record().spent_tokens());
        if books.took_s().is_some() {
            self.site.took_s.set(books.took_s());
        }
        (self.site.say)(Said::Level(Box::new(level.clone())));
        Over { level, cut: books.cut.clone() }
    }
}

/// Forgets the tasks that have ended. One that panicked is a fault of ours, which ends the sweep.
fn reap(tasks: &Tasks) {
    while let Some(done) = tasks.borrow_mut().try_join_next() {
        if let Err(error) = done
            && let Ok(panic) = error.try_into_panic()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

/// So many seconds after a moment.
fn after(moment: u64, seconds: f64) -> u64 {
    moment.saturating_add((seconds * 1e6) as u64)
}
