//! What the program is showing: view, focus, actions. Pure and synchronous; time is injected.
//!
//! `update` turns an event into a new state and a list of effects; it must not draw, read a clock, or
//! touch a source.

pub mod view;

pub use view::View;
