//! Totals that move while requests run, of engines whose counter moves only when a request ends.
//!
//! The total is what the engine has counted, plus what each request under way has done so far. The two are
//! told by different answers, of different moments, the counter's first. Knows no engine. Invariants:
//!
//! - The total never steps back, but for a restart: when the counter itself falls it starts anew.
//! - A request that is gone has to turn up in the counter by the scrape after. What does not was cancelled,
//!   and some engines never count that: it stays in the total, since it was seen to be done.
//! - A counter printed with six digits is sure only to its last digit. No more than that is ever taken for
//!   cancelled, so rounding does not add up.

/// One counter.
#[derive(Debug, Default)]
pub(super) struct Total {
    /// The counter as last read; `None` before the first time.
    counted: Option<f64>,
    under_way: Vec<(u64, f64)>,
    /// Done by requests that were gone when last looked, and not in the counter yet.
    owed: f64,
    /// Done by requests that the counter never took in.
    cancelled: f64,
    most: f64,
}

impl Total {
    /// The total now.
    pub(super) fn step(&mut self, counted: f64, under_way: &[(u64, f64)]) -> f64 {
        if self.counted.is_some_and(|last| counted < last) {
            *self = Self::default();
        }
        let ended = counted - self.counted.unwrap_or(counted);
        let paid = ended.min(self.owed);
        self.cancelled += (self.owed - paid - last_digit(counted)).max(0.0);
        let goes_on = |&&(key, done): &&(u64, f64)| under_way.iter().any(|&(k, now)| k == key && now >= done);
        let gone: f64 = self.under_way.iter().filter(|request| !goes_on(request)).map(|&(_, done)| done).sum();
        self.owed = (gone - (ended - paid)).max(0.0);
        self.counted = Some(counted);
        self.under_way = under_way.to_vec();
        let live: f64 = under_way.iter().map(|&(_, done)| done).sum();
        self.most = self.most.max(counted + live + self.cancelled);
        self.most
    }
}

/// What the last of six significant digits stands for, where that is more than a whole.
fn last_digit(counted: f64) -> f64 {
    if counted < 1e6 { 0.0 } else { 10_f64.powf(counted.log10().floor() - 5.0) }
}

/// A total that is the difference of two counters, which an engine moves one after the other: a scrape
/// between the two reads too much. What two readings in a row say counts, and it never steps back, unless
/// the witness, a counter of the same engine, falls.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Settled {
    witness: f64,
    last: Option<f64>,
    total: f64,
}

impl Settled {
    /// The total after this reading.
    pub(super) fn step(&mut self, witness: f64, difference: f64) -> f64 {
        self.total = match self.last {
            Some(last) if witness >= self.witness => self.total.max(difference.min(last)),
            _ => difference,
        };
        self.witness = witness;
        self.last = Some(difference);
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps<const N: usize>(scrapes: [(f64, &[(u64, f64)]); N]) -> [u64; N] {
        let mut total = Total::default();
        scrapes.map(|(counted, under_way)| total.step(counted, under_way) as u64)
    }

    #[test]
    fn progress_counts_before_the_end() {
        assert_eq!(steps([(100.0, &[(1, 40.0)]), (100.0, &[(1, 45.0)]), (148.0, &[])]), [140, 145, 148]);
    }

    #[test]
    fn the_total_waits_for_a_request_that_is_in_neither_answer() {
        let scrapes: [(f64, &[_]); 3] = [(100.0, &[(1, 45.0)]), (100.0, &[]), (148.0, &[(2, 3.0)])];
        assert_eq!(steps(scrapes), [145, 145, 151]);
    }

    #[test]
    fn a_slot_taken_by_the_next_request_is_another_request() {
        assert_eq!(steps([(0.0, &[(1, 45.0)]), (48.0, &[(2, 5.0)]), (48.0, &[(2, 9.0)])]), [45, 53, 57]);
        // The same key with less done is another request too: ids start anew after a restart.
        assert_eq!(steps([(0.0, &[(1, 45.0)]), (48.0, &[(1, 5.0)])]), [45, 53]);
    }

    #[test]
    fn what_was_cancelled_stays_and_holds_nothing_up() {
        let others = |n| [(2, n)];
        let total = steps([
            (100.0, &[(1, 2000.0), (2, 10.0)]),
            (100.0, &others(20.0)),
            (100.0, &others(30.0)),
            (100.0, &others(40.0)),
            (150.0, &[]),
        ]);
        assert_eq!(total, [2110, 2110, 2130, 2140, 2150]);
    }

    #[test]
    fn a_restart_starts_anew() {
        assert_eq!(steps([(900.0, &[(7, 50.0)]), (0.0, &[(7, 2.0)]), (0.0, &[(7, 5.0)])]), [950, 2, 5]);
    }

    #[test]
    fn rounding_never_counts_twice() {
        // The truth grows by 200 with each request; the counter is printed with six digits.
        let mut total = Total::default();
        let printed = |truth: f64| format!("{truth:.5e}").parse::<f64>().unwrap();
        let (mut truth, mut last) = (123_456_789.0, 0.0);
        for key in 0..500_u64 {
            last = total.step(printed(truth), &[(key, 120.0)]);
            assert!((last - truth - 120.0).abs() <= 1200.0, "{last} for {truth}");
            truth += 200.0;
        }
        assert!((last - truth).abs() <= 1200.0, "{last} for {truth}");
    }

    #[test]
    fn a_difference_counts_when_two_readings_say_it() {
        let mut settled = Settled::default();
        let mut of = |witness, more| settled.step(witness, more) as u32;
        assert_eq!([of(100.0, 0.0), of(150.0, 50.0), of(150.0, 0.0)], [0, 0, 0], "read in between");
        assert_eq!([of(200.0, 30.0), of(200.0, 40.0), of(250.0, 40.0)], [0, 30, 40]);
        assert_eq!([of(10.0, 0.0), of(20.0, 0.0)], [0, 0], "restarted");
    }
}
