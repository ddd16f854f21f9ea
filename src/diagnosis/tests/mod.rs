//! Rules on machines made up for a test, where recordings do not reach.

pub(super) mod machine;
