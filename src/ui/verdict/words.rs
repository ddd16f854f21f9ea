//! Words of a diagnosis for the screen: the state, what clients see, what to try, and whose finding it is.
//!
//! What is said of a finding is the diagnosis's own; here it only gets the form that has room. It must not judge.

use crate::derive::quantile::Quantile;
use crate::diagnosis::words::{Num, Secs};
use crate::diagnosis::{Cause, ClientView, Diagnosis, Finding, Fix, LatencySplit, Severity};
use crate::model::{FactKey, Subject};
use crate::store::Data;
use crate::ui::chrome::words::Port;
use crate::ui::text::width;
use crate::ui::theme::{Role, Theme};

/// The state of the server in a word, after the most harmful finding.
pub(in crate::ui) fn state(first: Option<&Finding>) -> &'static str {
    let Some(first) = first else { return "UNKNOWN" };
    match (first.cause, first.severity) {
        (Cause::Down, _) => "DOWN",
        (Cause::Stalled, _) => "STALLED",
        (Cause::NeedsKey | Cause::Unreadable | Cause::Unknown, _) => "UNKNOWN",
        (Cause::GpuFault, Severity::Act) => "FAULT",
        (Cause::Idle, _) => "IDLE",
        (_, Severity::Act) => "SLOW",
        (_, Severity::Watch) => "WATCH",
        (_, Severity::Ok) => "OK",
    }
}

/// A shape for each severity, since colour alone tells nothing.
pub(in crate::ui) const fn mark(theme: Theme, severity: Severity) -> char {
    match (severity, theme.unicode()) {
        (Severity::Act, true) => '▲',
        (Severity::Watch, true) => '●',
        (Severity::Ok, true) => '·',
        (Severity::Act, false) => '!',
        (Severity::Watch, false) => '*',
        (Severity::Ok, false) => '.',
    }
}

/// What is the matter, in the longest form that has room in `columns`; the cause's name where no sentence has.
pub(in crate::ui) fn headline(finding: &Finding, columns: u16) -> &str {
    let text = finding.headline.fit(columns);
    if width(text) <= columns { text } else { finding.cause.label() }
}

/// The colour of a severity.
pub(in crate::ui) const fn role(severity: Severity) -> Role {
    match severity {
        Severity::Act => Role::Warn,
        Severity::Watch => Role::Line,
        Severity::Ok => Role::Good,
    }
}

/// Between a value and the one to try instead.
pub(in crate::ui) const fn arrow(theme: Theme) -> &'static str {
    if theme.unicode() { "→" } else { "->" }
}

/// Whose finding it is, where there are several it could be of and what is said does not tell: "vLLM :8001", "GPU 3".
pub(in crate::ui) fn whose(data: &Data, subject: Subject, said: &str, diagnosis: &Diagnosis) -> Option<String> {
    match subject {
        Subject::Engine(engine) if diagnosis.clients.len() > 1 => Some(engine_name(data, engine, diagnosis)),
        Subject::Gpu(gpu) if data.gpus().count() > 1 => Some(format!("GPU {gpu}")).filter(|name| !said.contains(name)),
        _ => None,
    }
}

/// "vLLM :8000", or as much of it as is known.
pub(in crate::ui) fn engine_name(data: &Data, engine: u8, diagnosis: &Diagnosis) -> String {
    let fact = |key| data.fact(Subject::Engine(engine), key, diagnosis.at).unwrap_or_default();
    match (fact(FactKey::Name), Port(fact(FactKey::Url)).text()) {
        ("", "") => format!("engine {engine}"),
        ("", port) => format!("{} {port}", fact(FactKey::Kind)).trim_start().to_owned(),
        (name, _) => name.to_owned(),
    }
}

/// Joins parts of a line; each is added whole or not at all, the most telling first.
pub(in crate::ui) struct Parts {
    /// The parts in the order of the line, with their rank: 0 is the most telling.
    parts: Vec<(u8, String)>,
}

impl Parts {
    /// Nothing yet.
    pub(in crate::ui) const fn new() -> Self {
        Self { parts: Vec::new() }
    }

    /// Adds a part at the end of the line.
    pub(in crate::ui) fn add(&mut self, rank: u8, text: impl Into<String>) {
        self.parts.push((rank, text.into()));
    }

    /// What fits into `columns`, in the order of the line; separators at the start of the first part are left out.
    pub(in crate::ui) fn fit(&self, columns: u16) -> String {
        let mut ranks: Vec<u8> = self.parts.iter().map(|(rank, _)| *rank).collect();
        ranks.sort_unstable();
        let mut taken: Vec<u8> = Vec::new();
        let mut line = String::new();
        for rank in ranks {
            taken.push(rank);
            let more: String =
                self.parts.iter().filter(|(rank, _)| taken.contains(rank)).map(|(_, text)| text.as_str()).collect();
            let more = more.trim_start_matches([';', ':', ',', ' ']);
            if width(more) <= columns {
                more.clone_into(&mut line);
            } else {
                taken.pop();
            }
        }
        line
    }
}

/// What clients see: "TTFT P50 19 s, P99 27 s: 13.5 of 15.8 s are queueing; ITL 42 ms (usual 4.8 ms)".
pub(in crate::ui) fn clients(parts: &mut Parts, client: &ClientView, well: bool) {
    ttft(parts, client, well);
    if let Some(split) = client.split.filter(|_| !well) {
        parts.add(3, format!(": {}", most_of(split)));
    }
    if let Some(itl) = client.itl_mean.value() {
        parts.add(4, format!("; ITL {}", Secs(itl)));
        if let Some(usual) = client.itl_usual.value() {
            parts.add(6, format!(" (usual {})", Secs(usual)));
        }
    }
    if let Some(running) = client.running.value() {
        let of = client.running_cap.value().map(|cap| format!(" of {}", Num(cap))).unwrap_or_default();
        parts.add(5, format!("; {}{of} run", Num(running)));
        if let Some(waiting) = client.waiting.value().filter(|waiting| *waiting > 0.0) {
            parts.add(7, format!("; {} wait", Num(waiting)));
        }
    }
}

/// A P99 is called one only where there are enough requests; otherwise their number stands beside the median.
fn ttft(parts: &mut Parts, client: &ClientView, well: bool) {
    let enough = |q: Option<Quantile>| q.filter(|q| q.enough);
    match (client.ttft_p50, enough(client.ttft_p99)) {
        (_, Some(p99)) if well => parts.add(1, format!("TTFT P99 {}", Secs(p99.value))),
        (Some(p50), Some(p99)) => {
            parts.add(1, format!("TTFT P50 {}", Secs(p50.value)));
            parts.add(2, format!(", P99 {}", Secs(p99.value)));
        }
        (Some(p50), None) => parts.add(1, format!("TTFT P50 {} (n {})", Secs(p50.value), p50.n)),
        (None, _) => {}
    }
}

/// The largest part of a mean request: "13.5 of 15.8 s are queueing".
fn most_of(split: LatencySplit) -> String {
    let parts = [(split.queue, "queueing"), (split.prefill, "prefill"), (split.decode, "decode")];
    let (most, name) = parts.into_iter().fold((0.0, "decode"), |most, part| if part.0 > most.0 { part } else { most });
    match split.total() {
        total if total < 0.9995 => format!("{:.0} of {:.0} ms are {name}", most * 1e3, total * 1e3),
        total => format!("{most:.1} of {total:.1} s are {name}"),
    }
}

/// One figure for a screen with room for no more: "TTFT P99 27 s".
pub(in crate::ui) fn figure(client: &ClientView) -> Option<String> {
    let p99 = client.ttft_p99.filter(|q| q.enough).map(|q| format!("TTFT P99 {}", Secs(q.value)));
    let p50 = || client.ttft_p50.map(|q| format!("TTFT P50 {}", Secs(q.value)));
    let itl = || client.itl_mean.value().map(|s| format!("ITL {}", Secs(s)));
    p99.or_else(p50).or_else(itl)
}

/// The forms of a fix from all that is known of it to the shortest: the option with the value it has and the one to try
/// first, since that is what can be typed.
pub(in crate::ui) fn fix(fix: &Fix, theme: Theme) -> Vec<String> {
    let mut forms = Vec::new();
    if let (Some(flag), Some(value)) = (&fix.flag, &fix.try_value) {
        let now = fix.now.as_deref().unwrap_or_default();
        let change = match now {
            "" => format!("{flag} {value}"),
            now => format!("{flag} {now} {} {value}", arrow(theme)),
        };
        forms.extend(fix.gain.as_ref().map(|gain| format!("{change}: {gain}")));
        forms.push(change);
    }
    forms.push(fix.text.full.clone());
    forms.push(fix.text.short.clone());
    forms
}
