//! What a diagnosis consists of. Plain data: it must not know how it is judged or drawn.

use unicode_width::UnicodeWidthStr;

use crate::derive::lives::Lives;
use crate::derive::quantile::Quantile;
use crate::model::{Reading, Subject, Time};

use super::Cause;

/// How much a finding asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Nothing: a state, or a limit that every server has.
    Ok,
    /// A look: it costs something, or may.
    Watch,
    /// A change: clients are harmed.
    Act,
}

impl Severity {
    /// The name in the snapshot.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Watch => "watch",
            Self::Act => "act",
        }
    }
}

/// The same statement in more and in fewer words, so that no screen has to cut it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sentence {
    /// All of it.
    pub full: String,
    /// The same in at most about 36 columns.
    pub short: String,
}

impl Sentence {
    /// Both forms.
    pub fn new(full: impl Into<String>, short: impl Into<String>) -> Self {
        Self { full: full.into(), short: short.into() }
    }

    /// The longest form that has room in `columns`; the short one where neither has.
    pub fn fit(&self, columns: u16) -> &str {
        if self.full.width() <= usize::from(columns) { &self.full } else { &self.short }
    }
}

/// A figure that a finding was judged from.
#[derive(Clone, Debug, PartialEq)]
pub struct Evidence {
    /// In words, with the figure in it.
    pub text: String,
    /// Name of the figure, a key of the snapshot where there is one.
    pub metric: &'static str,
    /// The figure.
    pub value: f64,
    /// Its unit.
    pub unit: &'static str,
    /// Where it was read: `nvml`, `engine`, `process`, `host`, `command line`.
    pub source: &'static str,
}

/// Something that would help.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fix {
    /// What to do.
    pub text: Sentence,
    /// The engine's own option.
    pub flag: Option<String>,
    /// The value that it has now.
    pub now: Option<String>,
    /// The value to try.
    pub try_value: Option<String>,
    /// What that would bring.
    pub gain: Option<String>,
    /// Id of the probe that would settle it.
    pub probe: Option<&'static str>,
}

/// One statement about one subject.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Of what.
    pub subject: Subject,
    /// What it is.
    pub cause: Cause,
    /// How much it asks for.
    pub severity: Severity,
    /// Since when it has held without a break, as far as that has been judged.
    pub since: Time,
    /// Share of the clients' time that it costs, 0 to 1: an estimate that ranks findings and is not shown.
    pub cost: f64,
    /// What is the matter.
    pub headline: Sentence,
    /// From which figures.
    pub evidence: Vec<Evidence>,
    /// What would help, the best first.
    pub fixes: Vec<Fix>,
}

/// Where the time of a mean request goes, seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LatencySplit {
    /// Waiting to be scheduled.
    pub queue: f64,
    /// From there to the first token.
    pub prefill: f64,
    /// From the first token to the last.
    pub decode: f64,
}

impl LatencySplit {
    /// The whole request, seconds.
    pub fn total(&self) -> f64 {
        self.queue + self.prefill + self.decode
    }
}

/// What the clients of an engine see.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientView {
    /// Which engine.
    pub engine: u8,
    /// Requests that run.
    pub running: Reading,
    /// Most that may run.
    pub running_cap: Reading,
    /// Requests that wait.
    pub waiting: Reading,
    /// Median TTFT over the last minute, s.
    pub ttft_p50: Option<Quantile>,
    /// P99 of the TTFT over the last minute, s; `enough` says whether there are enough requests to call it one.
    pub ttft_p99: Option<Quantile>,
    /// Whether less than four fifths of that minute were scraped.
    pub ttft_partial: bool,
    /// Whose requests its quantiles are of.
    pub ttft_lives: Lives,
    /// Whether less than four fifths of the diagnosis's window were scraped, which all below is of. All of it is missing
    /// while the engine cannot be read.
    pub partial: bool,
    /// Mean gap between tokens over the diagnosis's window, s.
    pub itl_mean: Reading,
    /// This server's usual mean gap at such a load in the last hour, s; missing where it never had such a load.
    pub itl_usual: Reading,
    /// Mean TTFT over the diagnosis's window, s, and what is usual.
    pub ttft_mean: Reading,
    /// This server's usual mean TTFT at such a load in the last hour, s.
    pub ttft_usual: Reading,
    /// Generated tokens a second over the diagnosis's window.
    pub generated_per_s: Reading,
    /// This server's usual rate at such a load in the last hour, tokens/s.
    pub generated_usual: Reading,
    /// Mean prompt length of the requests that finished, tokens.
    pub prompt_len: Reading,
    /// Mean answer length of the requests that finished, tokens.
    pub answer_len: Reading,
    /// Where a request's time goes; `None` where no request finished or the engine does not tell.
    pub split: Option<LatencySplit>,
}

/// All that is concluded about one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Diagnosis {
    /// The moment, a whole second.
    pub at: Time,
    /// Most harmful first.
    pub findings: Vec<Finding>,
    /// What the clients of each engine see.
    pub clients: Vec<ClientView>,
}

impl Diagnosis {
    /// The most harmful finding.
    pub fn first(&self) -> Option<&Finding> {
        self.findings.first()
    }

    /// The most that any finding asks for.
    pub fn severity(&self) -> Severity {
        self.findings.iter().map(|finding| finding.severity).max().unwrap_or(Severity::Ok)
    }

    /// Findings about a subject, most harmful first.
    pub fn of(&self, subject: Subject) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(move |finding| finding.subject == subject)
    }

    /// What the clients of `engine` see.
    pub fn client(&self, engine: u8) -> Option<&ClientView> {
        self.clients.iter().find(|view| view.engine == engine)
    }
}

impl Finding {
    /// A finding without evidence yet; `since` is filled in by the timeline.
    pub(super) fn new(subject: Subject, cause: Cause, severity: Severity, cost: f64, headline: Sentence) -> Self {
        Self { subject, cause, severity, since: Time(0), cost, headline, evidence: Vec::new(), fixes: Vec::new() }
    }

    /// Adds a figure, where it is known.
    pub(super) fn shows(
        mut self,
        (metric, unit, source): (&'static str, &'static str, &'static str),
        value: Option<f64>,
        text: impl FnOnce(f64) -> String,
    ) -> Self {
        if let Some(value) = value {
            self.evidence.push(Evidence { text: text(value), metric, value, unit, source });
        }
        self
    }

    /// Adds something that would help.
    pub(super) fn fix(mut self, fix: Fix) -> Self {
        self.fixes.push(fix);
        self
    }
}

impl Fix {
    /// Something to do that is no option of the engine.
    pub(super) fn todo(full: impl Into<String>, short: impl Into<String>) -> Self {
        Self { text: Sentence::new(full, short), ..Self::default() }
    }

    /// A probe that would settle it.
    pub(super) fn probe(self, id: &'static str) -> Self {
        Self { probe: Some(id), ..self }
    }
}
