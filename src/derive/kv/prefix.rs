//! What a share of prefix hits does not show by itself: lookups that are repeated, and blocks that no prompt fills.
//!
//! A request that was preempted looks all its tokens up again when it resumes, and finds the blocks that it left itself
//! (vllm#25780; later versions of vLLM leave these lookups out). Lookups beyond the prompt tokens that came in are such
//! repetitions at most: lookups count at admission, prompts at their first token. The cache holds whole blocks only, so
//! a common start shorter than one block is never found; models with state-space layers have blocks of hundreds or
//! thousands of tokens (vllm#54607: 784). It must not know how this is drawn.

use std::fmt::{self, Display, Formatter};

use super::{Kv, per};
use crate::derive::exposed::{both, rate};
use crate::model::{Metric, Reading};
use crate::store::{Data, Window};

/// Share of lookups, %, below which they may as well be prompts that have not reached their first token.
const FEW_REPEATED: f64 = 5.0;
/// A block of so many tokens is longer than any that an engine chooses for attention alone.
const LARGE_BLOCK: f64 = 256.0;

/// What has to be known to read a share of prefix hits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PrefixNote {
    /// Preempted requests look their tokens up again.
    Repeated {
        /// Preemptions a second.
        preemptions: f64,
        /// Share of all lookups that may be theirs, %.
        at_most_pct: f64,
    },
    /// Nothing was found, and only whole blocks could have been.
    WholeBlocks {
        /// Tokens of a block.
        block: f64,
        /// Mean length of a prompt, where that is known.
        prompt: Option<f64>,
    },
}

impl PrefixNote {
    /// What it says in a few words …
    pub const fn head(self) -> Head {
        Head(self)
    }

    /// … and the rest of it, to be read after these.
    pub const fn rest(self) -> Rest {
        Rest(self)
    }
}

impl Display for PrefixNote {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.head(), self.rest())
    }
}

/// The first words of a note.
#[derive(Clone, Copy, Debug)]
pub struct Head(PrefixNote);

impl Display for Head {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            PrefixNote::Repeated { at_most_pct, .. } => write!(f, "up to {at_most_pct:.1} % are repeated lookups"),
            PrefixNote::WholeBlocks { block, .. } => write!(f, "only whole blocks of {block:.0} are found"),
        }
    }
}

/// The words after those of [`Head`].
#[derive(Clone, Copy, Debug)]
pub struct Rest(PrefixNote);

impl Display for Rest {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            PrefixNote::Repeated { preemptions, .. } => {
                write!(f, "of preempted requests ({preemptions:.1}/s): no sign of a warm cache")
            }
            PrefixNote::WholeBlocks { prompt: Some(prompt), .. } => {
                write!(f, "(prompts have {prompt:.0} tokens on average)")
            }
            PrefixNote::WholeBlocks { prompt: None, .. } => f.write_str("(prompts that share less find nothing)"),
        }
    }
}

/// Share of the window's lookups that preempted requests may have repeated, %, and preemptions a second.
fn repeated(data: &Data, engine: u8, window: Window) -> (Reading, Reading) {
    let of_window = |metric| rate(data, engine, metric, window);
    let preemptions = of_window(Metric::Preemptions);
    let share = match preemptions {
        Reading::Missing(_) => preemptions,
        Reading::Value(rate) if rate <= 0.0 => Reading::Value(0.0),
        Reading::Value(_) => per(
            both(of_window(Metric::PrefixQueries), of_window(Metric::PromptTokens), |looked_up, came_in| {
                (looked_up - came_in).max(0.0) * 100.0
            }),
            of_window(Metric::PrefixQueries),
        ),
    };
    (share, preemptions)
}

/// Whether so many lookups of the window are repeated that its hits say nothing about the prompts of others.
pub fn hits_are_repeated(data: &Data, engine: u8, window: Window) -> bool {
    repeated(data, engine, window).0.value().is_some_and(|share| share >= FEW_REPEATED)
}

/// The share that may be repeated, and what has to be said beside the hits of `kv`.
pub(super) fn note(
    data: &Data,
    engine: u8,
    window: Window,
    kv: &Kv,
    prompt: Option<f64>,
) -> (Reading, Option<PrefixNote>) {
    let (share, preemptions) = repeated(data, engine, window);
    let hits = kv.prefix_hit_pct.value();
    let of_repeated = || match (share, preemptions) {
        (Reading::Value(at_most_pct), Reading::Value(preemptions)) if at_most_pct >= FEW_REPEATED => {
            Some(PrefixNote::Repeated { preemptions, at_most_pct })
        }
        _ => None,
    };
    let of_blocks = || {
        let block = kv.block_tokens.value()?;
        let whole = block >= LARGE_BLOCK || prompt.is_some_and(|prompt| prompt < block);
        whole.then_some(PrefixNote::WholeBlocks { block, prompt })
    };
    let note = match hits {
        Some(hits) if hits > 0.0 => of_repeated(),
        Some(_) => of_blocks(),
        None => None,
    };
    (share, note)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::derive::kv::{Buffers, kv};
    use crate::model::{Batch, HistogramSample, SourceId, Subject, Time, Why};
    use crate::store::{Retention, Store};

    const WINDOW: Window = Window { start: Time(100_000), end: Time(110_000) };

    /// What an engine counts in a second; 20 requests/s with prompts of 300 tokens.
    struct Counts {
        block: f64,
        queries: f64,
        hits: f64,
        preemptions: f64,
    }

    impl Counts {
        fn store(&self) -> Store {
            let (store, subject) = (Store::new(Retention::HOUR), Subject::Engine(0));
            for second in 0..=10_u32 {
                let mut batch = Batch::new(SourceId::Engine(0), WINDOW.start + u64::from(second) * 1000, 3500);
                let total = f64::from(second);
                batch.push(subject, Metric::KvBlockSize, self.block);
                for (metric, rate) in [
                    (Metric::PromptTokens, 6000.0),
                    (Metric::PrefixQueries, self.queries),
                    (Metric::PrefixHits, self.hits),
                    (Metric::Preemptions, self.preemptions),
                ] {
                    batch.push(subject, metric, total * rate);
                }
                let (n, metric) = (20.0 * total, Metric::PromptLen);
                let (edges, cumulative, sum) = ([500.0].into(), vec![n, n], Some(n * 300.0));
                batch.histograms.push(HistogramSample { sets: 0, subject, metric, edges, cumulative, sum });
                store.push(&batch);
            }
            store
        }

        fn note(&self) -> (Reading, Option<PrefixNote>) {
            let kv = kv(&self.store().read(), 0, WINDOW, &mut Buffers::default());
            (kv.repeated_max_pct, kv.prefix_note)
        }
    }

    const COLD: Counts = Counts { block: 16.0, queries: 6000.0, hits: 0.0, preemptions: 0.0 };

    #[test]
    fn only_preempted_requests_repeat_lookups() {
        let repeats = Counts { queries: 8000.0, hits: 2000.0, preemptions: 2.0, ..COLD };
        let (share, note) = repeats.note();
        assert_eq!(share, Reading::Value(25.0));
        assert_eq!(note, Some(PrefixNote::Repeated { preemptions: 2.0, at_most_pct: 25.0 }));
        assert!(hits_are_repeated(&repeats.store().read(), 0, WINDOW));
        let others = [
            // More is looked up than has come to its first token: a queue that grows.
            Counts { preemptions: 0.0, ..repeats },
            // Versions that leave repeated lookups out.
            Counts { queries: 6000.0, ..repeats },
            Counts { queries: 6200.0, ..repeats },
        ];
        for counts in others {
            assert_eq!(counts.note().1, None);
            assert!(!hits_are_repeated(&counts.store().read(), 0, WINDOW));
        }
        let empty = Store::new(Retention::HOUR);
        assert_eq!(repeated(&empty.read(), 0, WINDOW).0, Reading::Missing(Why::NotYet));
    }

    #[test]
    fn blocks_that_no_prompt_fills_explain_that_nothing_is_found() {
        let words = |counts: Counts| counts.note().1.map(|note| note.to_string());
        let large = "only whole blocks of 784 are found (prompts have 300 tokens on average)";
        assert_eq!(words(Counts { block: 784.0, ..COLD }).as_deref(), Some(large));
        assert_eq!(words(Counts { block: 16.0, ..COLD }), None, "nothing in common, and no block to blame");
        assert_eq!(words(Counts { block: 784.0, hits: 784.0, ..COLD }), None, "some are found");
        let longer = "only whole blocks of 256 are found (prompts have 300 tokens on average)";
        assert_eq!(words(Counts { block: 256.0, ..COLD }).as_deref(), Some(longer));
        assert_eq!(words(Counts { block: 784.0, queries: 0.0, ..COLD }), None, "nothing was looked up");
    }
}
