//! Whole levels and sweeps in virtual time, against a server whose every answer is scripted.

mod closed;
mod ends;
mod fake;
mod open;
mod said;
