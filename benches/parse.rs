//! Reading a real 51 kB body of vLLM 0.25.1. Aim: under 150 µs for the parse.

use std::hint::black_box;

use warptop::engine::promtext::{Exposition, decode};
use warptop::engine::{Adapter, Answers, Memory, vllm::Vllm};
use warptop::model::{Batch, SourceId, Time};

const BODY: &[u8] = include_bytes!("../assets/metrics/vllm-0.25.1-overload.prom");

fn main() {
    divan::main();
}

/// Every line, every value, label sets checked.
#[divan::bench]
fn parse() -> usize {
    let text = decode(black_box(BODY));
    Exposition::new(&text).samples().count()
}

/// From bytes to a batch.
#[divan::bench]
fn translate() -> Batch {
    let text = decode(black_box(BODY));
    let mut batch = Batch::new(SourceId::Engine(0), Time(0), 3500);
    Vllm.translate(Answers::new(&[("/metrics", &*text)]), 0, &mut Memory::default(), &mut batch);
    batch
}
