//! What is fuzzed: a row for each kind of bytes that comes from outside.
//!
//! A target feeds what it reads into what reads that: an exposition goes into the store, a recording is drawn. It panics
//! where an invariant does not hold, not only where the code itself panics.

mod config;
mod exposition;
mod host;
mod load;
mod probe;
mod recording;
mod terminal;

/// Name of a target, which is that of its corpus, and what it does with bytes.
pub type Target = (&'static str, fn(&[u8]));

/// Every target.
pub const ALL: &[Target] = &[
    ("exposition", exposition::samples),
    ("engine", exposition::engine),
    ("dcgm", exposition::dcgm),
    ("extra", exposition::extra),
    ("recording", recording::recording),
    ("stream", load::stream),
    ("answer", load::answer),
    ("workload", load::workload),
    ("report", probe::report),
    ("protocol", probe::protocol),
    ("model-config", config::model),
    ("address", config::address),
    ("keys", config::keys),
    ("command-line", host::command_line),
    ("secrets", host::secrets),
    ("proc", host::proc),
    ("terminal", terminal::bytes),
];

/// The first byte as a number below `n`, and the rest.
fn choose(data: &[u8], n: usize) -> Option<(usize, &[u8])> {
    let (&first, rest) = data.split_first()?;
    Some((usize::from(first) % n, rest))
}
