//! Drawing. Panes copy what they show from the store (`prepare`), then draw it without locks,
//! allocation or failure for any size, 0×0 included.
//!
//! The only module that names ratatui's buffers besides `term` and `export`. It must not read a
//! clock, a file or a source.

pub mod chrome;
mod evidence;
mod held;
pub mod help;
pub mod layout;
pub mod log;
pub mod pane;
pub mod panes;
pub mod screen;
pub mod shade;
mod sheet;
pub mod text;
pub mod theme;
pub mod units;
mod verdict;
pub mod widgets;
