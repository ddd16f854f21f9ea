//! Texts of parameters, as `crate::load` takes them.
//!
//! Invariant: what is checked before the start reads no file; files are read where a caller asks for what is in them.

pub(super) use crate::load::given::{SLO_FORM, rates, slo as parse_slo, slo_wrong as wrong_slo, users};
pub(super) use crate::load::lengths::{FORM as LENGTHS, Of, resolve as parse_lengths, wrong as wrong_lengths};

use std::path::Path;

use crate::load::lengths::{self, Given};
use crate::load::plan::{Arrival, Lengths};
use crate::load::trace;

/// The lengths that a text gives, as far as they are known without reading a file.
pub(super) fn lengths_unread(text: &str) -> Option<Lengths> {
    match lengths::parse(text).ok()? {
        Given::Lengths(lengths) => Some(lengths),
        Given::File(_) => None,
    }
}

/// The requests of a trace, and how many of its rows were left out.
pub(super) fn parse_trace(path: &str) -> Result<(Vec<Arrival>, usize), String> {
    trace::read(Path::new(path)).map(|trace| (trace.arrivals, trace.left_out))
}
