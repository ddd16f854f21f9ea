//! The diagnosis in a snapshot, and the older `signals` that are made from it.

use serde::Serialize;

use crate::diagnosis::{Cause, Diagnosis, Finding, LatencySplit, Severity, Span};
use crate::model::Time;

pub(crate) use super::gaps::short;

/// A finding; its fields are a contract.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct FindingRow {
    subject: String,
    cause: &'static str,
    level: &'static str,
    since_s: f64,
    headline: String,
    evidence: Vec<EvidenceRow>,
    fixes: Vec<FixRow>,
}

#[derive(Clone, Debug, Serialize)]
struct EvidenceRow {
    text: String,
    metric: &'static str,
    value: f64,
    unit: &'static str,
    source: &'static str,
}

#[derive(Clone, Debug, Serialize)]
struct FixRow {
    text: String,
    flag: Option<String>,
    now: Option<String>,
    #[serde(rename = "try")]
    try_value: Option<String>,
    gain: Option<String>,
    probe: Option<&'static str>,
}

/// Something that held and may be over.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct EventRow {
    subject: String,
    cause: &'static str,
    level: &'static str,
    from_unix_ms: u64,
    /// `null` while it holds.
    to_unix_ms: Option<u64>,
    headline: String,
}

/// Where the time of a mean request goes, s.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct SplitRow {
    queue: f64,
    prefill: f64,
    decode: f64,
}

impl From<LatencySplit> for SplitRow {
    fn from(split: LatencySplit) -> Self {
        Self { queue: short(split.queue), prefill: short(split.prefill), decode: short(split.decode) }
    }
}

/// Every finding, most harmful first.
pub(crate) fn rows(diagnosis: &Diagnosis) -> Vec<FindingRow> {
    diagnosis.findings.iter().map(|finding| row(finding, diagnosis.at)).collect()
}

/// One finding, as it was at the moment `at`.
pub(crate) fn row(finding: &Finding, at: Time) -> FindingRow {
    let evidence = finding.evidence.iter().map(|shown| EvidenceRow {
        text: shown.text.clone(),
        metric: shown.metric,
        value: short(shown.value),
        unit: shown.unit,
        source: shown.source,
    });
    let fixes = finding.fixes.iter().map(|fix| FixRow {
        text: fix.text.full.clone(),
        flag: fix.flag.clone(),
        now: fix.now.clone(),
        try_value: fix.try_value.clone(),
        gain: fix.gain.clone(),
        probe: fix.probe,
    });
    FindingRow {
        subject: finding.subject.to_string(),
        cause: finding.cause.id(),
        level: finding.severity.name(),
        since_s: at.since(finding.since) as f64 / 1000.0,
        headline: finding.headline.full.clone(),
        evidence: evidence.collect(),
        fixes: fixes.collect(),
    }
}

/// What came and went and asked for a look, newest first.
pub(crate) fn events(spans: &[Span], at: Time) -> Vec<EventRow> {
    let mut told: Vec<&Span> = spans.iter().filter(|span| span.severity > Severity::Ok && span.from <= at).collect();
    told.sort_by_key(|span| std::cmp::Reverse(span.from));
    let row = |span: &&Span| EventRow {
        subject: span.subject.to_string(),
        cause: span.cause.id(),
        level: span.severity.name(),
        from_unix_ms: span.from.0,
        to_unix_ms: (span.to < at).then_some(span.to.0),
        headline: span.headline.clone(),
    };
    told.iter().map(row).collect()
}

/// A row of the older list, which goes with the next version.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Signal {
    id: &'static str,
    level: &'static str,
    evidence: Vec<String>,
    advice: String,
}

/// The findings under the names that signals had, the most serious of each name first.
pub(super) fn signals(diagnosis: &Diagnosis) -> Vec<Signal> {
    let mut out: Vec<Signal> = Vec::new();
    for finding in diagnosis.findings.iter().filter(|finding| !finding.cause.is_state()) {
        let id = signal_id(finding.cause);
        match out.iter_mut().find(|signal| signal.id == id) {
            Some(signal) => signal.evidence.push(finding.headline.full.clone()),
            None => out.push(Signal {
                id,
                level: finding.severity.name(),
                evidence: vec![finding.headline.full.clone()],
                advice: finding.fixes.first().map(|fix| fix.text.full.clone()).unwrap_or_default(),
            }),
        }
    }
    out
}

const fn signal_id(cause: Cause) -> &'static str {
    match cause {
        Cause::Down | Cause::Unreadable | Cause::NeedsKey => "down",
        Cause::PowerCap | Cause::Heat | Cause::PowerBrake => "throttled",
        Cause::KvCapacity | Cause::AdmissionLimit | Cause::WaitsForTransfer => "queue",
        Cause::KvMismatch => "kv_overprovision",
        Cause::MemoryBandwidth | Cause::Compute | Cause::LaunchOverhead => "wall",
        Cause::PageFaults => "page_faults",
        other => other.id(),
    }
}
