//! What leaves the program: buffers as pictures, readings as JSON, a verdict for scripts.
//!
//! It must not know where data come from. Invariant: the same input gives the same bytes.

pub mod check;
mod glyph;
pub mod snapshot;
pub mod svg;
