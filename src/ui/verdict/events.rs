//! What came and went, newest first: the words of the stretches in which a finding asked for a look.

use crate::diagnosis::{Cause, Diagnosis, Severity, Span, Timeline};
use crate::model::{Subject, Time};
use crate::store::Data;
use crate::ui::text::width;
use crate::ui::theme::{Role, Theme};
use crate::ui::units::{self, TimeOfDay};

use super::words;

/// How far back events are listed, ms: a day.
const BACK_MS: u64 = 86_400_000;

/// Whether a stretch is told of.
pub(in crate::ui) const fn is_told(span: &Span) -> bool {
    !matches!(span.severity, Severity::Ok) || matches!(span.cause, Cause::Down)
}

/// The events up to the moment that was judged last, each as a line of at most `room` columns with its colour.
pub(in crate::ui) fn lines(
    data: &Data,
    timeline: &Timeline,
    theme: Theme,
    (room, most): (u16, usize),
) -> Vec<(Role, String)> {
    let diagnosis = timeline.diagnosis();
    let oldest = diagnosis.at - BACK_MS;
    let told = |span: &&Span| is_told(span) && span.from <= diagnosis.at && span.to >= oldest;
    let mut spans: Vec<&Span> = timeline.spans().iter().filter(told).collect();
    spans.sort_by_key(|span| std::cmp::Reverse((span.from, span.to)));
    spans.truncate(most);
    let forms: Vec<_> = spans.iter().map(|span| forms(data, span, diagnosis, theme)).collect();
    // All in the same form, so that their columns stand below each other.
    let fitting = |forms: &[String; 4]| forms.iter().position(|form| width(form) <= room).unwrap_or(forms.len() - 1);
    let form = forms.iter().map(fitting).max().unwrap_or(0);
    let roles = spans.iter().map(|span| words::role(span.severity));
    roles.zip(forms).map(|(role, forms)| (role, forms[form].clone())).collect()
}

/// "14:03:12–14:05:40  2 min  ● GPU 0: power cap takes 17 % of the clock", and in fewer words where there is less room.
fn forms(data: &Data, span: &Span, diagnosis: &Diagnosis, theme: Theme) -> [String; 4] {
    let (from, mark, label) = (TimeOfDay(span.from), words::mark(theme, span.severity), span.cause.label());
    let held = units::Span(span.to.since(span.from).max(1_000)).to_string();
    let holds = span.to >= diagnosis.at;
    let until = if holds { "now     ".to_owned() } else { TimeOfDay(span.to).to_string() };
    let brief = if holds { "now" } else { &held };
    let said = if span.headline.is_empty() { label } else { &span.headline };
    let whose = words::whose(data, span.subject, said, diagnosis).map(|whose| format!("{whose}: ")).unwrap_or_default();
    [
        format!("{from}–{until} {held:>6}  {mark} {whose}{said}"),
        format!("{from} {brief:>6}  {mark} {whose}{said}"),
        format!("{from} {brief:>6}  {mark} {whose}{label}"),
        format!("{from} {mark} {label}"),
    ]
}

/// Since when events are known, for the heading.
pub(in crate::ui) fn since(timeline: &Timeline) -> Option<Time> {
    timeline.judged().map(|(from, _)| from)
}

/// Of what an event or a finding is: "vLLM :8000", "GPU 0", "this machine".
pub(in crate::ui) fn subject(data: &Data, subject: Subject, diagnosis: &Diagnosis) -> String {
    match subject {
        Subject::Engine(engine) => words::engine_name(data, engine, diagnosis),
        Subject::Gpu(gpu) => format!("GPU {gpu}"),
        Subject::Host => "this machine".to_owned(),
        Subject::App => "warptop".to_owned(),
    }
}
