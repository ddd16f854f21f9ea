//! A server of which each answer is scripted, books that keep every request, and a clock that tokio moves.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::time::Instant;

use crate::load::exchange::{Answer, Call, Exchange, Fault, Lane, Stamp, Transport};
use crate::load::level::{Client, Level, Requests};
use crate::load::plan::{Api, Budget, Lengths, Order, Plan, PromptAs, Shape, Slo, Span};
use crate::load::run::pace::Pacer;
use crate::load::run::purse::Purse;
use crate::load::run::site::{Jobs, Record, Site};
use crate::load::run::sweep::sweep;
use crate::load::tally::{Ended, Frame};
use crate::load::work::Job;
use crate::load::{Said, Swept};
use crate::model::{Clock, Time};

/// tokio's time.
struct Virtual(Instant);

impl Clock for Virtual {
    fn now(&self) -> Time {
        Time(1_700_000_000_000 + self.micros() / 1000)
    }
    fn micros(&self) -> u64 {
        self.0.elapsed().as_micros() as u64
    }
}

/// What becomes of a request.
pub(super) struct Reply {
    /// To the first content, ms.
    pub(super) first: u64,
    /// To the end, ms; 0: an answer without content.
    pub(super) total: u64,
    /// How it fails at its end.
    pub(super) fault: Option<Fault>,
}

/// A good answer after so many ms.
pub(super) fn good(total: u64) -> Reply {
    Reply { first: total / 2, total, fault: None }
}

/// A fault after so many ms.
pub(super) fn bad(total: u64, fault: Fault) -> Reply {
    Reply { first: total, total, fault: Some(fault) }
}

/// Decides what becomes of a request, from its number and the time, ms.
type Script = Box<dyn FnMut(u64, u64) -> Reply>;

/// One request at a time, in order, each of so many ms.
pub(super) fn serial(ms: u64) -> impl FnMut(u64, u64) -> Reply {
    let mut free = 0;
    move |_, now| {
        free = now.max(free) + ms;
        Reply { first: free - now - ms / 2, total: free - now, fault: None }
    }
}

#[derive(Clone)]
pub(super) struct Server {
    clock: Arc<dyn Clock>,
    script: Rc<RefCell<Script>>,
    asked: Rc<Cell<u64>>,
    /// Requests it has.
    pub(super) in_flight: Rc<Cell<u64>>,
    /// Most that it had at once.
    pub(super) most: Rc<Cell<u64>>,
    /// Connections that were opened.
    pub(super) lanes: Rc<Cell<u64>>,
    /// Requests whose client went away.
    pub(super) dropped: Rc<Cell<u64>>,
    /// How long a connection takes, ms.
    pub(super) connecting: Rc<Cell<u64>>,
    made: Rc<Cell<u64>>,
    /// Requests that were made before the first one came.
    pub(super) made_before: Rc<Cell<u64>>,
}

impl Transport for Server {
    type Lane = Line;
    fn lane(&self) -> Line {
        self.lanes.set(self.lanes.get() + 1);
        Line(self.clone(), false)
    }
}

/// A connection, and whether there is one yet.
pub(super) struct Line(Server, bool);

/// A request in flight, which leaves also when its future is dropped.
struct InFlight<'a>(&'a Server, bool);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.in_flight.set(self.0.in_flight.get() - 1);
        self.0.dropped.set(self.0.dropped.get() + u64::from(!self.1));
    }
}

impl Lane for Line {
    async fn stream(&mut self, call: Call, stamps: &mut Vec<Stamp>) -> Exchange {
        let connected = !std::mem::replace(&mut self.1, true);
        let server = &self.0;
        if connected && server.connecting.get() > 0 {
            tokio::time::sleep(Duration::from_millis(server.connecting.get())).await;
        }
        let at = server.clock.micros();
        let number = server.asked.replace(server.asked.get() + 1);
        if number == 0 {
            server.made_before.set(server.made.get());
        }
        server.in_flight.set(server.in_flight.get() + 1);
        server.most.set(server.most.get().max(server.in_flight.get()));
        let mut in_flight = InFlight(server, false);
        let reply = (server.script.borrow_mut())(number, at / 1000);
        let is_sent = !matches!(reply.fault, Some(Fault::Unconnected(_)));
        let mut exchange =
            Exchange { dispatched: is_sent.then_some(at), connected, fault: reply.fault, ..Exchange::default() };
        stamps.clear();
        let answer = async {
            tokio::time::sleep(Duration::from_millis(reply.first)).await;
            if exchange.fault.is_none() && reply.total > 0 {
                exchange.first_content = Some(server.clock.micros());
                stamps.push(Stamp { at: server.clock.micros(), tokens: None });
            }
            tokio::time::sleep(Duration::from_millis(reply.total - reply.first)).await;
        };
        if tokio::time::timeout(call.limit, answer).await.is_err() {
            exchange.fault = Some(Fault::Timeout(call.limit));
        }
        exchange.end = server.clock.micros();
        if exchange.first_content.is_some() && exchange.fault.is_none() {
            exchange.last_content = Some(exchange.end);
        }
        in_flight.1 = true;
        exchange
    }
    async fn whole(&mut self, _: Call) -> Result<Answer, Fault> {
        Err(Fault::Malformed("not asked".to_owned()))
    }
}

/// A request that has ended.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) intended: u64,
    pub(super) held_back: bool,
    pub(super) free: u64,
    pub(super) dispatched: Option<u64>,
    pub(super) end: u64,
    pub(super) prompt: u32,
    pub(super) output: u32,
    pub(super) fault: Option<Fault>,
}

/// All that a level told its books.
#[derive(Default)]
pub(super) struct Log {
    pub(super) sent: Vec<u64>,
    pub(super) rows: Vec<Row>,
    pub(super) from: Option<u64>,
    pub(super) to: Option<u64>,
    /// Measured requests that ended well, and tokens that all were planned to cost.
    ok: u64,
    tokens: u64,
}

impl Log {
    /// Requests that were dispatched in the measured time.
    pub(super) fn measured(&self) -> impl Iterator<Item = &Row> {
        let (from, to) = (self.from.unwrap_or(u64::MAX), self.to.unwrap_or(u64::MAX));
        self.rows.iter().filter(move |row| row.dispatched.is_some_and(|at| (from..to).contains(&at)))
    }
}

struct Books {
    frame: Frame,
    log: Rc<RefCell<Log>>,
    is_over_saturated: fn(&Frame) -> bool,
}

impl Record for Books {
    fn measure_from(&mut self, micros: u64) {
        assert_eq!(self.log.borrow_mut().from.replace(micros), None);
    }
    fn measure_to(&mut self, micros: u64) {
        assert!(self.log.borrow().from.is_some());
        assert_eq!(self.log.borrow_mut().to.replace(micros), None);
    }
    fn sent(&mut self, micros: u64) {
        self.log.borrow_mut().sent.push(micros);
    }
    fn add(&mut self, ended: &Ended<'_>) {
        let exchange = ended.exchange;
        assert_eq!(ended.stamps.len(), usize::from(exchange.first_content.is_some()));
        let mut log = self.log.borrow_mut();
        let is_measured = exchange
            .dispatched
            .is_some_and(|at| log.from.is_some_and(|from| from <= at) && log.to.is_none_or(|to| at < to));
        log.ok += u64::from(is_measured && exchange.fault.is_none());
        log.tokens += u64::from(ended.prompt + ended.output);
        log.rows.push(Row {
            intended: ended.intended,
            held_back: ended.held_back,
            free: ended.free,
            dispatched: exchange.dispatched,
            end: exchange.end,
            prompt: ended.prompt,
            output: ended.output,
            fault: exchange.fault.clone(),
        });
    }
    fn measured_ok(&self) -> u64 {
        self.log.borrow().ok
    }
    fn spent_tokens(&self) -> u64 {
        self.log.borrow().tokens
    }
    fn is_over_saturated(&self) -> bool {
        (self.is_over_saturated)(&self.frame)
    }
    fn level(&self, _: u64, client: Client) -> Level {
        let log = self.log.borrow();
        let ok = self.measured_ok();
        let requests = Requests {
            sent: log.sent.len() as u64,
            measured: log.measured().count() as u64,
            ok,
            ..Requests::default()
        };
        let Frame { place, repeat, load, .. } = self.frame;
        Level { place, repeat, load, requests, client, ..Level::default() }
    }
}

/// A sweep that is set up.
pub(super) struct Stand {
    pub(super) server: Server,
    pub(super) site: Rc<Site<Server>>,
    /// The books of each level.
    pub(super) logs: Rc<RefCell<Vec<Rc<RefCell<Log>>>>>,
    /// What was said, and when, µs.
    pub(super) said: Rc<RefCell<Vec<(u64, Said)>>>,
}

impl Stand {
    /// With this plan and a server that answers like this. Inside a runtime only.
    pub(super) fn new(plan: Plan, script: impl FnMut(u64, u64) -> Reply + 'static) -> Self {
        Self::with(plan, script, |_| false)
    }

    /// … whose books find levels over-saturated like this.
    pub(super) fn with(
        plan: Plan,
        script: impl FnMut(u64, u64) -> Reply + 'static,
        is_over_saturated: fn(&Frame) -> bool,
    ) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(Virtual(Instant::now()));
        let server = Server {
            clock: Arc::clone(&clock),
            script: Rc::new(RefCell::new(Box::new(script))),
            asked: Rc::default(),
            in_flight: Rc::default(),
            most: Rc::default(),
            lanes: Rc::default(),
            dropped: Rc::default(),
            connecting: Rc::default(),
            made: Rc::default(),
            made_before: Rc::default(),
        };
        let made = Rc::clone(&server.made);
        let logs: Rc<RefCell<Vec<_>>> = Rc::default();
        let said: Rc<RefCell<Vec<_>>> = Rc::default();
        let (kept, heard, time) = (Rc::clone(&logs), Rc::clone(&said), Arc::clone(&clock));
        let site = Rc::new(Site {
            purse: RefCell::new(Purse::new(plan.budget, clock.micros())),
            plan,
            transport: server.clone(),
            clock,
            stop: Arc::new(AtomicBool::new(false)),
            pacer: || Ok(Pacer::Tokio),
            cpu: || None,
            record: Box::new(move |frame| {
                let log = Rc::<RefCell<Log>>::default();
                kept.borrow_mut().push(Rc::clone(&log));
                Box::new(Books { frame, log, is_over_saturated })
            }),
            jobs: RefCell::new(Jobs::new(Box::new(move |lengths| {
                made.set(made.get() + 1);
                let (prompt, output) = lengths.unwrap_or((10, 10));
                Job { path: "/", body: Vec::new(), prompt, output }
            }))),
            idle: RefCell::default(),
            took_s: Cell::new(None),
            say: Box::new(move |word| heard.borrow_mut().push((time.micros(), word))),
        });
        Self { server, site, logs, said }
    }

    /// Runs it to its end; every request is accounted for, and the server is left alone.
    pub(super) async fn run(&self) -> Swept {
        let swept = sweep(&self.site).await.unwrap();
        assert_eq!(self.server.in_flight.get(), 0);
        assert_eq!(swept.levels.len(), self.logs.borrow().len());
        let (sent, ended) = self.logs.borrow().iter().fold((0, 0), |(sent, ended), log| {
            let log = log.borrow();
            assert_eq!(log.from.is_some(), log.to.is_some());
            (sent + log.sent.len() as u64, ended + log.rows.len() as u64)
        });
        assert_eq!(sent, self.server.asked.get());
        assert_eq!(sent, ended + self.server.dropped.get());
        swept
    }

    /// Reads the books of a level.
    pub(super) fn log<R>(&self, level: usize, read: impl FnOnce(&Log) -> R) -> R {
        read(&self.logs.borrow()[level].borrow())
    }

    /// Now, µs.
    pub(super) fn now(&self) -> u64 {
        self.site.now()
    }
}

/// Runs a test where time passes when nothing else can happen.
pub(super) fn in_virtual_time<R>(test: impl Future<Output = R>) -> R {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, test)
}

/// Of this shape and span, with room for everything.
pub(super) fn plan(shape: Shape, span: Span) -> Plan {
    Plan {
        api: Api::Completions,
        model: None,
        shape,
        prompt: Lengths::Fixed(10),
        output: Lengths::Fixed(10),
        prompt_as: PromptAs::Auto,
        shared_prefix: 0.0,
        force_output: true,
        each_token: false,
        seed: 7,
        span,
        repeats: 1,
        order: Order::Listed,
        most_in_flight: 10_000,
        timeout_s: 60.0,
        slo: Slo::default(),
        budget: Budget { seconds: 1e6, tokens: u64::MAX },
        most_errors: 0.1,
    }
}

/// A span by time, s.
pub(super) const fn time(warmup_s: f64, least_s: f64, samples: u64, most_s: f64) -> Span {
    Span::Time { warmup_s, least_s, samples, most_s }
}
