//! Words of a diagnosis for the screen: the state, what clients see, what to try, and whose finding it is.
//!
//! What is said of a finding is the diagnosis's own; here it only gets the form that has room. It must not judge.

use crate::derive::quantile::Quantile;
use crate::diagnosis::words::{Num, Secs};
use crate::diagnosis::{Cause, ClientView, Diagnosis, Finding, Fix, LatencySplit, QUANTILES_MS, Severity, WINDOW_MS};
use crate::model::{FactKey, Reading, Subject};
use crate::store::Data;
use crate::ui::chrome::words::Port;
use crate::ui::text::width;
use crate::ui::theme::{Role, Theme};
use crate::ui::units::{Partly, Restarts, Span};

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

/// How telling a part of a line is: the lower, the sooner it gets its place.
pub(super) type Rank = u8;

/// Joins parts of a line; each is added whole or not at all, the most telling first.
pub(in crate::ui) struct Parts {
    /// In the order of the line: rank, rank of the part without which this one means nothing, text.
    parts: Vec<(Rank, Rank, String)>,
}

impl Parts {
    /// Nothing yet.
    pub(in crate::ui) const fn new() -> Self {
        Self { parts: Vec::new() }
    }

    /// Adds a part at the end of the line.
    pub(in crate::ui) fn add(&mut self, rank: Rank, text: impl Into<String>) {
        self.add_to(rank, rank, text);
    }

    /// Adds a part that says something of another one: it stands only where that does.
    fn add_to(&mut self, of: Rank, rank: Rank, text: impl Into<String>) {
        self.parts.push((rank, of, text.into()));
    }

    /// What fits into `columns`, in the order of the line; separators at the start of the first part are left out.
    pub(in crate::ui) fn fit(&self, columns: u16) -> String {
        let mut ranks: Vec<(Rank, Rank)> = self.parts.iter().map(|(rank, of, _)| (*rank, *of)).collect();
        ranks.sort_unstable();
        let mut taken: Vec<Rank> = Vec::new();
        let mut line = String::new();
        for (rank, of) in ranks {
            if rank != of && !taken.contains(&of) {
                continue;
            }
            taken.push(rank);
            let more: String =
                self.parts.iter().filter(|(rank, ..)| taken.contains(rank)).map(|(.., text)| text.as_str()).collect();
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

/// Ranks of what clients see.
pub(super) const WHOSE: Rank = 0;
const P50: Rank = 1;
const P99: Rank = 2;
const TTFT_TIME: Rank = 3;
const SPLIT: Rank = 4;
const ITL: Rank = 5;
const UNUSUAL_ITL: Rank = 6;
const UNUSUAL_TTFT: Rank = 7;
const RUNNING: Rank = 8;
const WAITING: Rank = 9;
const TOKENS: Rank = 10;
const USUAL_ITL: Rank = 11;
const ITL_TIME: Rank = 12;

/// What clients see: "TTFT P50 19 s, P99 27 s in 60 s: 13.5 of 15.8 s are queueing; ITL 42 ms in 6 s (usual 4.8 ms)".
pub(in crate::ui) fn clients(parts: &mut Parts, client: &ClientView, well: bool) {
    let partly = Partly(client.partial);
    ttft(parts, client, well);
    if let Some(split) = client.split.filter(|split| !well && holds_ttft(*split, client)) {
        parts.add(SPLIT, format!(": {}", most_of(split)));
    }
    if let Some(itl) = client.itl_mean.value() {
        parts.add(ITL, format!("; ITL {}{partly}", Secs(itl)));
        parts.add_to(ITL, ITL_TIME, format!(" in {}", Span(WINDOW_MS)));
        if let Some(usual) = client.itl_usual.value() {
            let rank = if differs(itl, usual) { UNUSUAL_ITL } else { USUAL_ITL };
            parts.add_to(ITL, rank, format!(" (usual {})", Secs(usual)));
        }
    }
    if let Some(running) = client.running.value() {
        let of = client.running_cap.value().map(|cap| format!(" of {}", Num(cap))).unwrap_or_default();
        parts.add(RUNNING, format!("; {}{of} run", Num(running)));
        if let Some(waiting) = client.waiting.value().filter(|waiting| *waiting > 0.0) {
            parts.add(WAITING, format!("; {} wait", Num(waiting)));
        }
    }
    if let (Some(now), Some(usual)) =
        (client.generated_per_s.value(), unusual(client.generated_per_s, client.generated_usual))
    {
        parts.add(TOKENS, format!("; {}{partly} tokens/s (usual {})", Num(now), Num(usual)));
    }
}

/// Whether a figure is further from the usual one than such figures are from each other on a quiet server: by a quarter.
fn differs(now: f64, usual: f64) -> bool {
    (now - usual).abs() > usual / 4.0
}

/// This server's usual value, where the one of now differs from it.
pub(in crate::ui) fn unusual(now: Reading, usual: Reading) -> Option<f64> {
    let usual = usual.value()?;
    differs(now.value()?, usual).then_some(usual)
}

/// A P99 is called one only where there are enough requests; otherwise their number stands beside the median. A usual
/// TTFT is a mean, so it stands beside the mean of now.
fn ttft(parts: &mut Parts, client: &ClientView, well: bool) {
    let enough = |q: Option<Quantile>| q.filter(|q| q.enough);
    let partly = Partly(client.ttft_partial);
    match (client.ttft_p50, enough(client.ttft_p99)) {
        (_, Some(p99)) if well => parts.add(P50, format!("TTFT P99 {}{partly}", Secs(p99.value))),
        (Some(p50), Some(p99)) => {
            parts.add(P50, format!("TTFT P50 {}{partly}", Secs(p50.value)));
            parts.add_to(P50, P99, format!(", P99 {}{partly}", Secs(p99.value)));
        }
        (Some(p50), None) => parts.add(P50, format!("TTFT P50 {}{partly} (n {})", Secs(p50.value), p50.n)),
        (None, _) => return,
    }
    parts.add_to(P50, TTFT_TIME, format!(" in {}{}", Span(QUANTILES_MS), Restarts(client.ttft_lives)));
    if let (Some(mean), Some(usual)) = (client.ttft_mean.value(), unusual(client.ttft_mean, client.ttft_usual)) {
        parts.add_to(
            P50,
            UNUSUAL_TTFT,
            format!(", mean {}{} (usual {})", Secs(mean), Partly(client.partial), Secs(usual)),
        );
    }
}

/// Whether the engine's split holds what clients wait for: where most of the TTFT passes before its queue, it does not.
fn holds_ttft(split: LatencySplit, client: &ClientView) -> bool {
    client.ttft_p50.is_none_or(|ttft| split.total() >= ttft.value / 2.0)
}

/// The largest part of a mean request: "13.5 of 15.8 s are queueing".
fn most_of(split: LatencySplit) -> String {
    let parts = [(split.queue, "queueing"), (split.prefill, "prefill"), (split.decode, "decode")];
    let (most, name) = parts.into_iter().fold((0.0, "decode"), |most, part| if part.0 > most.0 { part } else { most });
    let (part, all, unit) = match split.total() {
        total if total < 0.9995 => (format!("{:.0}", most * 1e3), format!("{:.0}", total * 1e3), "ms"),
        total => (format!("{most:.1}"), format!("{total:.1}"), "s"),
    };
    if part == all { format!("all {all} {unit} are {name}") } else { format!("{part} of {all} {unit} are {name}") }
}

/// One figure for a screen with room for no more: "TTFT P99 27 s".
pub(in crate::ui) fn figure(client: &ClientView) -> Option<String> {
    let (ttft, itl) = (Partly(client.ttft_partial), Partly(client.partial));
    let p99 = client.ttft_p99.filter(|q| q.enough).map(|q| format!("TTFT P99 {}{ttft}", Secs(q.value)));
    let p50 = || client.ttft_p50.map(|q| format!("TTFT P50 {}{ttft}", Secs(q.value)));
    let itl = || client.itl_mean.value().map(|s| format!("ITL {}{itl}", Secs(s)));
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
        let short = format!("{flag} {value}");
        forms.push(change);
        forms.push(short);
    }
    forms.push(fix.text.full.clone());
    forms.push(fix.text.short.clone());
    forms
}
