//! Whom warptop speaks to over a network, with which key, and whom it believes: what reading an engine and
//! loading one have in common.
//!
//! It must not know what is asked or answered, and opens no socket. Invariants: keys, user names and passwords are
//! in no text; TLS is checked, always.

pub mod access;
pub mod answer;
pub mod echo;
pub mod endpoint;
mod file;
pub mod sealed;
mod system_ca;
pub mod tls;
