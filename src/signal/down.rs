//! Engines that are listed and give nothing: refused, failing, or silent.
//!
//! It must not know what they gave before. Invariant: an engine that was not asked yet is not judged,
//! and one that is not on this machine is no fault.

use std::borrow::Cow;

use crate::model::{SourceId, SourceState};
use crate::store::{Data, Window};

use super::{Detector, Finding, Level, engine_label};

pub(super) const DETECTOR: Detector = Detector {
    id: "down",
    help: "Engines whose metrics cannot be read at the window's end. Act when one fails, refuses or does not answer.",
    judge,
};

const FAILED: &str = "See whether its process still runs and what its own log says; it is tried again all the time.";
const REFUSED: &str =
    "Give it a key that it takes: WARPTOP_ENGINE_TOKEN for engines of --engine, or a file with --engine-auth.";
const STALLED: &str = "It may be overloaded, still load its model, or hang: its own log tells.";

fn judge(data: &Data, window: Window) -> Vec<Finding> {
    let of_engine = |engine| {
        let state = data.source(SourceId::Engine(engine))?.state_at(window.end);
        let advice = match state {
            SourceState::Starting | SourceState::Absent(_) => return None,
            SourceState::Ok | SourceState::Degraded(_) => "",
            SourceState::Failed(_) => FAILED,
            SourceState::Unauthorized(_) => REFUSED,
            SourceState::Stalled(_) => STALLED,
        };
        let (level, evidence) = if advice.is_empty() { (Level::Ok, "answers") } else { (Level::Act, state.why()) };
        let label = engine_label(data, engine, window.end);
        Some(Finding { level, label, evidence: evidence.to_owned(), advice: Cow::Borrowed(advice) })
    };
    data.engines().filter_map(of_engine).collect()
}
