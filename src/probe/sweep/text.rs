//! Texts of parameters, as `crate::load` takes them.
//!
//! Invariant: what is checked before the start reads no file; files are read by the probe's process.

pub(super) use crate::load::given::{
    SLO_FORM, rates, rates_wrong as wrong_levels, slo as parse_slo, slo_wrong as wrong_slo, users,
};
pub(super) use crate::load::lengths::{FORM as LENGTHS, Of, resolve as parse_lengths, wrong as wrong_lengths};

use std::path::Path;

use crate::load::lengths::{self, Given};
use crate::load::plan::Arrival;
use crate::load::trace;

/// Mean of the lengths, as far as it is known without reading a file.
pub(super) fn mean(text: &str) -> Option<f64> {
    match lengths::parse(text).ok()? {
        Given::Lengths(lengths) => Some(lengths.mean()),
        Given::File(_) => None,
    }
}

/// The requests of a trace, and how many of its rows were left out.
pub(super) fn parse_trace(path: &str) -> Result<(Vec<Arrival>, usize), String> {
    trace::read(Path::new(path)).map(|trace| (trace.arrivals, trace.left_out))
}
