//! One verdict for scripts: this machine read for a while, or a stretch of a recording.

use std::sync::Arc;
use std::time::Duration;

use super::Session;
use super::headless::{Moment, SnapshotError, ms, wait_until_settled};
use crate::diagnosis::Slo;
use crate::export::check::{Check, check};
use crate::model::{Clock, Time};
use crate::sampler::Options;
use crate::sampler::replay::Input as Recorded;
use crate::store::{Retention, Store, Window};

/// Reads this machine for `length`, and a little longer where a source is slow to start; then judges that time.
pub fn check_now(clock: &Arc<dyn Clock>, options: &Options, interval: Duration, length: Duration, slo: &Slo) -> Check {
    let session = Session::live(clock, options, interval);
    let now = wait_until_settled(&session, clock, clock.now() + ms(length));
    check(&session.store().read(), Window::last(now, ms(length)), slo)
}

/// Judges the last `length` before a moment of a recording: `at` after its start, or its end. Also says what is missing
/// in the recording; nothing can be judged by an empty one.
///
/// # Errors
/// When there is no recording or it ends before that.
pub fn check_of(
    input: &Recorded,
    at: Option<Duration>,
    length: Duration,
    slo: &Slo,
) -> Result<(Check, Vec<String>), SnapshotError> {
    let Moment { store, start, at, problems } = match Moment::of(input, at) {
        Err(empty @ SnapshotError::Empty(_)) => {
            let store = Store::new(Retention::HOUR);
            Moment { store, start: Time(0), at: Time(0), problems: vec![empty.to_string()] }
        }
        known => known?,
    };
    let window = Window { start: (at - ms(length)).max(start), end: at };
    Ok((check(&store.read(), window, slo), problems))
}
