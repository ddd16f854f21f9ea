//! One verdict for scripts: this machine read for a while, or a stretch of a recording.

use std::sync::Arc;
use std::time::Duration;

use super::Session;
use super::headless::{Moment, SnapshotError, ms, settled};
use crate::diagnosis::Slo;
use crate::export::check::{Check, check};
use crate::model::{Clock, Time};
use crate::sampler::Options;
use crate::sampler::replay::Input as Recorded;
use crate::store::{Retention, Store, Window};

/// How much longer than asked for a check waits for sources that are slow to start.
const PATIENCE: Duration = Duration::from_secs(3);

/// Reads this machine for `length`, and a little longer where a source is slow to start; then judges that time.
pub fn check_now(clock: &Arc<dyn Clock>, options: &Options, interval: Duration, length: Duration, slo: &Slo) -> Check {
    let session = Session::live(clock, options, interval);
    let least = clock.now() + ms(length);
    let most = least + ms(PATIENCE);
    loop {
        let now = clock.now();
        if now >= most || (now >= least && settled(&session.store().read(), now)) {
            return check(&session.store().read(), Window::last(now, ms(length)), slo);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
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
