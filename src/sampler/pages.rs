//! The answers of one scrape and what is made of them.
//!
//! It must not ask for anything, and it knows no engine's names. Invariants: it owns all that it works on, so that
//! large answers can be worked on by another thread; an answer that is not there is missing to the adapter, and stops
//! nothing else.

use super::fingerprint::Recognised;
use super::flaws::{Flaws, whole_lines};
use crate::engine::promtext::{self, Exposition};
use crate::engine::{self, Answers, Memory};
use crate::model::Batch;

/// What is needed to read the answers of an engine.
#[derive(Debug)]
pub(super) struct Pages {
    /// Reused from scrape to scrape: the answer to the main path, and those to the paths beside it.
    pub(super) body: Vec<u8>,
    pub(super) beside: Vec<Vec<u8>>,
    pub(super) memory: Memory,
    pub(super) batch: Batch,
    pub(super) flaws: Flaws,
}

impl Pages {
    /// Nothing read yet. `batch` is what the values go into.
    pub(super) fn new(batch: Batch) -> Self {
        Self { body: Vec::new(), beside: Vec::new(), memory: Memory::default(), batch, flaws: Flaws::default() }
    }

    /// Bytes of all answers.
    pub(super) fn bytes(&self) -> usize {
        self.body.len() + self.beside.iter().map(Vec::len).sum::<usize>()
    }

    /// Whether the main answer is still that of `known`.
    pub(super) fn is_of(&self, known: Recognised) -> bool {
        known.adapter.detect(known.path, &promtext::decode(&self.body))
    }

    /// Which of the paths beside are to be asked after this main answer.
    pub(super) fn asks(&self, found: Recognised) -> Vec<bool> {
        let paths = found.adapter.spec().beside;
        if paths.is_empty() {
            return Vec::new();
        }
        let main = promtext::decode(&self.body);
        paths.iter().map(|path| *path != found.path && found.adapter.asks(path, &main, &self.memory)).collect()
    }

    /// Reads the answers and notes what is wrong with them; `thorough`: also what costs as much to find as to read them.
    pub(super) fn translate(&mut self, found: Recognised, index: u8, thorough: bool) {
        let beside = found.adapter.spec().beside.iter().zip(&self.beside).filter(|(_, body)| !body.is_empty());
        let bodies = std::iter::once((found.path, &self.body)).chain(beside.map(|(&path, body)| (path, body)));
        let mut cut = 0;
        let texts: Vec<_> = bodies
            .map(|(path, body)| {
                let (lines, is_cut) = whole_lines(body);
                cut += usize::from(is_cut);
                (path, promtext::decode(lines))
            })
            .collect();
        let answers: Vec<_> = texts.iter().map(|(path, text)| (*path, &**text)).collect();
        self.flaws.cut = cut;
        self.flaws.lines = found.adapter.translate(Answers::new(&answers), index, &mut self.memory, &mut self.batch);
        let read = || answers.iter().map(|(_, text)| Exposition::new(text));
        if thorough {
            self.flaws.look_for_doubled(read());
            let main = answers.first().map_or("", |(_, text)| text);
            self.flaws.also = engine::also(found.path, main, found.adapter);
        }
        self.flaws.look_for_no_numbers(read(), &self.batch);
        self.flaws.look_for_too_large(&mut self.batch);
    }
}
