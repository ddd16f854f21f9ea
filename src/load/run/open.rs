//! An open loop: requests begin when they are due, whatever became of those before.
//!
//! Invariant: none is dropped. One that comes while as many as may be are in flight waits in a line, in order, and goes
//! out on the connection that is free first. All moments are µs.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use tokio::task::JoinSet;

use crate::load::exchange::Transport;

use super::arrivals::{Arrivals, Due};
use super::pace::Pacer;
use super::site::{Carrier, Lengths};
use super::stage::{Slot, Stage, Ticket};

/// Requests that are due and have no place yet: when they should have begun, and their lengths.
pub(super) type Line = Rc<RefCell<VecDeque<(u64, Lengths)>>>;
/// The tasks of a level.
pub(super) type Tasks = Rc<RefCell<JoinSet<()>>>;

/// Lets requests begin as they are due after `start`, until no more may.
pub(super) async fn dispatch<T: Transport>(
    stage: Rc<Stage<T>>,
    arrivals: Arrivals,
    start: u64,
    pacer: Pacer,
    line: Line,
    tasks: Tasks,
) {
    let site = &stage.site;
    let most_in_flight = u64::from(site.plan.most_in_flight.max(1));
    for Due { at, lengths } in arrivals {
        if line.borrow().is_empty() {
            site.jobs.borrow_mut().prepare(lengths, 1);
        }
        let intended = start.saturating_add(at);
        pacer.until(&*site.clock, intended).await;
        let (is_shut, in_flight) = (stage.books().shut, stage.books().proof.flight.now);
        if is_shut {
            return;
        }
        if in_flight >= most_in_flight || !line.borrow().is_empty() {
            line.borrow_mut().push_back((intended, lengths));
            continue;
        }
        let Some(ticket) = stage.begin(lengths) else { return };
        let slot = Slot { intended, held_until: None };
        let carrier = site.carrier();
        tasks.borrow_mut().spawn_local(carry(Rc::clone(&stage), carrier, ticket, slot, Rc::clone(&line)));
    }
}

/// Carries a request, and then those that wait.
async fn carry<T: Transport>(
    stage: Rc<Stage<T>>,
    mut carrier: Carrier<T::Lane>,
    mut ticket: Ticket,
    mut slot: Slot,
    line: Line,
) {
    loop {
        let (end, _) = stage.carry(&mut carrier, ticket, slot).await;
        let Some((intended, lengths)) = line.borrow().front().copied() else { break };
        let Some(next) = stage.begin(lengths) else { break };
        line.borrow_mut().pop_front();
        ticket = next;
        slot = Slot { intended, held_until: Some(end.max(intended)) };
    }
    stage.site.idle.borrow_mut().push(carrier);
}
