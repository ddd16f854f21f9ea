//! How much of everything is taken in, whoever sends it: a server, the driver, another user's process, a recording.
//!
//! Each number says what real machines need and what it costs. Who reads from outside leaves out what is beyond, whole
//! and not cut, and says so; the store holds to the same numbers whatever comes in, so that memory is bounded however
//! wrong a sender is.

use std::collections::HashMap;

use super::{Batch, Domain, HistogramSample, Metric, ProcessSample, Subject};

/// Buckets of one histogram, that above the last edge included. vLLM 0.32 has 23 at most, and a list of edges of one's
/// own is seldom longer than 50. An hour of a histogram takes 4 bytes a bucket and second.
pub const BUCKETS: usize = 128;
/// Buckets of all histograms of one engine: ten of 32 each. vLLM 0.32 has 230 in those that are read. It is the engine's
/// share of memory: one that asks for more takes none of another's.
pub const ENGINE_BUCKETS: usize = 320;
/// Engines that the search adds: any user of the machine can start what looks like one.
pub const FOUND_ENGINES: usize = 8;
/// Engines in all: those among which a screen can choose. Named ones beyond are counted and said.
pub const ENGINES: usize = 64;
/// GPUs. A host has 16 at most (HGX), and 64 are told apart in a table of processes.
pub const GPUS: usize = 64;
/// Rows of a process table: what holds device memory, engines, and who takes their CPU. A screen has no more lines.
pub const PROCESS_ROWS: usize = 64;
/// Processes of one GPU that are taken from the driver. MPS lets 60 clients share a GPU of Volta or newer (CUDA MPS
/// documentation, "Client Connection Limits"), and time slicing knows no limit.
pub const GPU_PROCESSES: usize = 1_024;
/// The same of all GPUs together.
pub const ALL_GPU_PROCESSES: usize = 4 * GPU_PROCESSES;
/// Threads of one process in a row: its main thread and the busiest others.
pub const ROW_THREADS: usize = 8;
/// Threads of one process that are looked at to find the busiest. An engine has some hundreds.
pub const SEEN_THREADS: usize = 4_096;
/// Instances of a GPU in MIG mode: seven are the most (MIG user guide); more room costs nothing.
pub const INSTANCES: usize = 16;
/// Bytes of a command line that are read. The longest of an engine known to us has 2,400, with a chat template in it;
/// Linux allows 128 KiB for a word alone.
pub const COMMAND_BYTES: usize = 32 << 10;
/// Bytes of a text: [`super::text::MAX_CHARS`] characters of four bytes.
pub const TEXT_BYTES: usize = 4 * super::text::MAX_CHARS;

/// A histogram that was left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// Which.
    pub metric: Metric,
    /// Its buckets.
    pub buckets: usize,
}

impl std::fmt::Display for LeftOut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { metric, buckets } = self;
        if *buckets > BUCKETS {
            return write!(f, "{} is left out: {buckets} buckets, and at most {BUCKETS} are read", metric.key());
        }
        write!(f, "{} is left out: of one engine at most {ENGINE_BUCKETS} buckets are read in all", metric.key())
    }
}

/// Takes out histograms that are too large, alone or with those before them. Returns the first of them and how many
/// there are.
pub fn fit(histograms: &mut Vec<HistogramSample>) -> Option<(LeftOut, usize)> {
    let mut taken: HashMap<Subject, usize> = HashMap::new();
    let (mut first, mut count) = (None, 0);
    histograms.retain(|sample| {
        let buckets = sample.edges.len() + 1;
        let taken = taken.entry(sample.subject).or_default();
        let fits = has_room(buckets, *taken);
        if fits {
            *taken += buckets;
        } else {
            first.get_or_insert(LeftOut { metric: sample.metric, buckets });
            count += 1;
        }
        fits
    });
    first.map(|first| (first, count))
}

/// Takes everything out of a batch from outside that is beyond the limits, or of a subject that cannot have it. Returns how
/// many values, histograms and rows.
pub fn fit_batch(batch: &mut Batch) -> usize {
    let count = |batch: &Batch| {
        let rows = batch.processes.as_ref().map_or(0, Vec::len) + batch.gpu_processes.as_ref().map_or(0, Vec::len);
        batch.samples.len() + batch.histograms.len() + batch.facts.len() + rows
    };
    let before = count(batch);
    batch.samples.retain(|sample| takes(sample.subject, sample.metric));
    batch.histograms.retain(|sample| takes(sample.subject, sample.metric));
    let _ = fit(&mut batch.histograms);
    batch.facts.retain(|fact| knows(fact.subject));
    if let Some(rows) = &mut batch.processes {
        rows.truncate(PROCESS_ROWS);
        for row in rows {
            *row = fit_row(std::mem::take(row));
        }
    }
    if let Some(list) = &mut batch.gpu_processes {
        list.truncate(ALL_GPU_PROCESSES);
    }
    before - count(batch)
}

/// Whether a histogram of so many buckets is taken beside others of the same engine, which have `taken`.
pub const fn has_room(buckets: usize, taken: usize) -> bool {
    buckets <= BUCKETS && taken + buckets <= ENGINE_BUCKETS
}

/// Whether anything is kept of this subject.
pub const fn knows(subject: Subject) -> bool {
    match subject {
        Subject::Gpu(index) => (index as usize) < GPUS,
        Subject::Engine(index) => (index as usize) < ENGINES,
        Subject::Host | Subject::App => true,
    }
}

/// Whether this subject can have this metric: only then anything is kept of it.
pub const fn takes(subject: Subject, metric: Metric) -> bool {
    let its_own = matches!(
        (subject, metric.domain()),
        (Subject::Gpu(_), Domain::Gpu)
            | (Subject::Host, Domain::Host)
            | (Subject::Engine(_), Domain::Engine)
            | (Subject::App, Domain::App)
    );
    its_own && knows(subject)
}

/// A row of a process table with each list cut to what is kept.
#[must_use]
pub fn fit_row(mut row: ProcessSample) -> ProcessSample {
    row.gpus.truncate(GPUS);
    row.shares.truncate(GPUS);
    row.threads.truncate(ROW_THREADS);
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(engine: u8, metric: Metric, buckets: usize) -> HistogramSample {
        HistogramSample {
            subject: Subject::Engine(engine),
            metric,
            edges: (1..buckets).map(|edge| edge as f64).collect(),
            cumulative: vec![0.0; buckets],
            sum: None,
            sets: 0,
        }
    }

    /// Fault: engine: a histogram of 120,001 buckets within the size of an answer, or more buckets in all than its share
    /// Seen: `ttft_s is left out: 120001 buckets, and at most 128 are read`
    /// Works: its other histograms and values, and every other engine
    /// Recovers: with the first answer whose histograms are within the limits
    #[test]
    fn a_histogram_that_is_too_large_is_left_out_whole_and_takes_nothing_from_others() {
        let left_out = |list: &[(u8, Metric, usize)]| {
            let mut histograms = list.iter().map(|&(engine, metric, n)| histogram(engine, metric, n)).collect();
            let (first, count) = fit(&mut histograms)?;
            Some((first.to_string(), count, histograms.len()))
        };
        let words = "ttft_s is left out: 120001 buckets, and at most 128 are read";
        assert_eq!(left_out(&[(0, Metric::Ttft, 120_001), (0, Metric::Itl, 23)]), Some((words.to_owned(), 1, 1)));
        let share = [(0, Metric::Ttft, 128), (0, Metric::Itl, 128), (0, Metric::E2e, 128), (1, Metric::Ttft, 128)];
        let words = "e2e_s is left out: of one engine at most 320 buckets are read in all";
        assert_eq!(left_out(&share), Some((words.to_owned(), 1, 3)), "what another engine has is its own");
        assert_eq!(left_out(&[(0, Metric::Ttft, 128), (0, Metric::Itl, 128), (0, Metric::E2e, 64)]), None);
    }

    #[test]
    fn nothing_is_kept_of_a_subject_that_cannot_have_it() {
        assert!(takes(Subject::Gpu(63), Metric::Power) && !takes(Subject::Gpu(64), Metric::Power));
        assert!(takes(Subject::Engine(63), Metric::Ttft) && !takes(Subject::Engine(64), Metric::Ttft));
        assert!(!takes(Subject::Host, Metric::Ttft));
        assert!(takes(Subject::App, Metric::AppRss) && !takes(Subject::Engine(0), Metric::Power));
    }
}
