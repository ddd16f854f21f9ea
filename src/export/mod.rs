//! What leaves the program: buffers as pictures, readings as JSON.
//!
//! It must not know where data come from. Invariant: the same input gives the same bytes.

mod glyph;
pub mod snapshot;
pub mod svg;
