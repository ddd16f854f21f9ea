//! What leaves the screen: buffers as pictures.
//!
//! It must not know where data come from. Invariant: the same input gives the same bytes.

mod glyph;
pub mod snapshot;
pub mod svg;
