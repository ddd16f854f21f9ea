//! How the processes on one GPU share its time, as far as the driver samples that.
//!
//! One question takes 2 to 3 ms on an H200 (driver 580), during which the driver is held up. So it is asked every
//! other time, and only where the answer says more than the activity of the whole GPU. There it gives one sample of
//! each process that ran, of a short time: shares of 70 and 30 % came as 50 to 90 and 10 to 50, so that a judgement
//! wants the mean of several. Invariants: what is older than the question
//! before is no value; a process is at 0 only when the driver was asked and had nothing of it while others ran or
//! the GPU was idle.

use nvml_wrapper::Device;
use nvml_wrapper::error::NvmlError;

use crate::model::{GpuProcess, Reading, Why};

use super::health;
use super::raw::{self, Utilization};

/// What is remembered of the questions so far.
#[derive(Debug, Default)]
pub(super) struct Shares {
    /// The newest sample that was seen, in the driver's own time; 0: none, so the answer may be of any age.
    since: u64,
    /// Readings since the driver was asked.
    readings: u32,
    /// Why it is not asked any more.
    refused: Option<Why>,
    known: Vec<(u32, Reading)>,
}

impl Shares {
    /// Every other reading, that is every 2 s.
    const EVERY: u32 = 2;

    /// Notes in `list`, the processes of this GPU, which share each has. `idle`: no kernel runs; `strangers`:
    /// processes that are known to be no engine's.
    pub(super) fn fill(&mut self, device: &Device<'_>, list: &mut [GpuProcess], idle: bool, strangers: &[u32]) {
        if list.len() < 2 && !list.iter().any(|process| strangers.contains(&process.pid)) {
            (self.readings, self.since) = (0, 0);
            self.known.clear();
            return;
        }
        if self.refused.is_none() && self.readings.is_multiple_of(Self::EVERY) {
            let pids: Vec<_> = list.iter().map(|process| process.pid).collect();
            self.take(raw::process_utilization(device, self.since), &pids, idle);
        }
        self.readings = self.readings.wrapping_add(1);
        for process in list {
            let known = self.known.iter().find(|(pid, _)| *pid == process.pid).map(|(_, share)| *share);
            process.share = self.refused.map(Reading::Missing).or(known).unwrap_or(Reading::Missing(Why::NotYet));
        }
    }

    /// What was refused is asked once more.
    pub(super) const fn try_again(&mut self) {
        self.refused = None;
    }

    /// Takes in an answer about these processes.
    fn take(&mut self, answer: Result<Vec<Utilization>, NvmlError>, pids: &[u32], idle: bool) {
        let samples = match answer {
            Ok(samples) => samples,
            // It samples nothing of a GPU on which nothing runs. Where something does, it has not sampled it yet.
            Err(NvmlError::NotFound) => {
                let share = if idle { Reading::Value(0.0) } else { Reading::Missing(Why::NotYet) };
                self.known = pids.iter().map(|pid| (*pid, share)).collect();
                return;
            }
            Err(error) => {
                self.known.clear();
                self.refused = Some(health::why(&error));
                return;
            }
        };
        let since = self.since;
        self.since = samples.iter().map(|sample| sample.at).max().unwrap_or(since).max(since);
        let share = |pid: u32| {
            let fresh = samples.iter().filter(|sample| sample.pid == pid && sample.at > since);
            match fresh.max_by_key(|sample| sample.at) {
                _ if since == 0 => Reading::Missing(Why::NotYet),
                None => Reading::Value(0.0),
                // Some drivers now and then give a share beyond all bounds (nvtop, issue 110).
                Some(sample) if sample.sm_pct > 100 => Reading::Missing(Why::Failed),
                Some(sample) => Reading::Value(f64::from(sample.sm_pct)),
            }
        };
        self.known = pids.iter().map(|pid| (*pid, share(*pid))).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(pid: u32, at: u64, sm_pct: u32) -> Utilization {
        Utilization { pid, at, sm_pct }
    }

    fn of(shares: &Shares) -> Vec<Reading> {
        shares.known.iter().map(|(_, share)| *share).collect()
    }

    #[test]
    fn only_what_is_newer_than_the_question_before_counts() {
        let mut shares = Shares::default();
        let (not_yet, pids) = (Reading::Missing(Why::NotYet), [1, 2, 3]);
        shares.take(Ok(vec![sample(1, 500, 70), sample(2, 400, 20)]), &pids, false);
        assert_eq!(of(&shares), [not_yet; 3], "samples of any age");
        shares.take(
            Ok(vec![sample(1, 500, 70), sample(1, 600, 55), sample(1, 550, 99), sample(9, 700, 5)]),
            &pids,
            false,
        );
        assert_eq!(of(&shares), [55.0.into(), 0.0.into(), 0.0.into()], "the newest of each; who has none did not run");
        shares.take(Ok(vec![sample(2, 800, 4_000_000)]), &pids, false);
        assert_eq!(of(&shares)[1], Reading::Missing(Why::Failed));
        assert_eq!(shares.since, 800);
    }

    #[test]
    fn nothing_found_is_0_only_on_an_idle_gpu() {
        let mut shares = Shares::default();
        shares.take(Err(NvmlError::NotFound), &[1], true);
        assert_eq!(of(&shares), [Reading::Value(0.0)]);
        shares.take(Err(NvmlError::NotFound), &[1], false);
        assert_eq!(of(&shares), [Reading::Missing(Why::NotYet)]);
        shares.take(Err(NvmlError::NotSupported), &[1], true);
        assert_eq!((of(&shares), shares.refused), (vec![], Some(Why::Unsupported)));
    }
}
