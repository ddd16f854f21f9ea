//! What tests of the load client have in common.

#![allow(dead_code, reason = "each test uses a part")]

pub(crate) mod script;
