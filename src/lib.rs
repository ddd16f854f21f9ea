//! warptop: why is this LLM server slow?
//!
//! What the silicon does, what the serving engine does and what the host does, on one time axis in a
//! terminal. ARCHITECTURE.md walks from a sampler to a pixel; modules import only downward.

// A standard stream that is closed or full must end nothing: the command line has its own ways to write.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod app;
pub mod cli;
pub mod derive;
pub mod diagnosis;
pub mod engine;
pub mod export;
pub mod load;
pub mod log;
pub mod model;
pub mod net;
pub mod probe;
pub mod recording;
pub mod runtime;
pub mod sampler;
pub mod state;
pub mod store;
pub mod term;
pub mod ui;
