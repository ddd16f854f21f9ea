//! The users of a closed loop: each sends its next request when the last one is answered.
//!
//! Invariant: a server that fails or refuses is not hammered; after a fault a user rests, and the level says so.

use std::rc::Rc;
use std::time::Duration;

use crate::load::exchange::{Fault, Transport};

use super::stage::{Slot, Stage};

/// Rest after the first fault in a row; it doubles with each further one …
const FIRST_REST: Duration = Duration::from_millis(100);
/// … up to this.
const LONGEST_REST: Duration = Duration::from_secs(5);
/// Longest rest that a server is granted with Retry-After.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(30);

/// One user, from the start of the level, µs, until no more requests may begin.
pub(super) async fn user<T: Transport>(stage: Rc<Stage<T>>, start: u64) {
    let mut carrier = stage.site.carrier();
    let mut intended = start;
    let (mut answers, mut faults_in_a_row) = (0_u64, 0);
    while let Some(ticket) = stage.begin(None) {
        let (end, fault) = stage.carry(&mut carrier, ticket, Slot { intended, held_until: None }).await;
        if answers == 0 {
            stage.warmed_up();
        }
        answers += 1;
        (intended, faults_in_a_row) = match fault {
            None => (end, 0),
            Some(fault) => {
                tokio::time::sleep(rest(&fault, faults_in_a_row)).await;
                let now = stage.site.now();
                stage.rested(now.saturating_sub(end));
                (now, faults_in_a_row + 1)
            }
        };
    }
    stage.site.idle.borrow_mut().push(carrier);
}

/// How long a user rests after a fault that came after so many others in a row.
fn rest(fault: &Fault, before: u32) -> Duration {
    let least = FIRST_REST.saturating_mul(2_u32.saturating_pow(before)).min(LONGEST_REST);
    match fault {
        // One that wants none at all would be hammered.
        Fault::Refused { retry_after: Some(wanted), .. } => (*wanted).min(LONGEST_RETRY_AFTER).max(least),
        _ => least,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rest_doubles_up_to_five_seconds_and_keeps_what_the_server_wants_up_to_thirty() {
        let fault = Fault::Cut("x".to_owned());
        let ms: Vec<u128> = [0, 1, 2, 5, 6, 40, 400].map(|before| rest(&fault, before).as_millis()).into();
        assert_eq!(ms, [100, 200, 400, 3_200, 5_000, 5_000, 5_000]);
        let refused = |seconds: Option<u64>| Fault::Refused {
            status: 429,
            retry_after: seconds.map(Duration::from_secs),
            words: String::new(),
        };
        let ms = [Some(0), Some(7), Some(31), None].map(|after| rest(&refused(after), 1).as_millis());
        assert_eq!(ms, [200, 7_000, 30_000, 200]);
    }
}
