//! One short request of an agreement, and what its answer means.
//!
//! It must not know why it is asked. Invariants: an answer that says how the next request could be taken is a
//! [`Refusal`], any other that is no success is an error that says what, why and what to do; what a server says is shown
//! as the lane gives it, which knows what was sent.

use std::time::Duration;

use serde_json::Value;

use crate::net::access::TOKEN_VARIABLE;

use super::body::Form;
use super::exchange::{Call, Fault, Lane, Stamp, Usage};
use super::plan::Api;

/// A request was understood and not taken.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    status: u16,
    /// For the screen.
    words: String,
    /// All that was said, in small letters. For looking up words only.
    all: String,
}

/// What became of a request: an answer, a refusal, or an error for the screen.
pub(super) type Heard<T> = Result<Result<T, Refusal>, String>;

/// What a stream told.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    /// How many tokens its output had.
    pub(super) counted: bool,
    /// How many tokens an event had; `None`: there was none.
    pub(super) each: Option<bool>,
}

/// Asks one endpoint.
pub(super) struct Ask<'a, L> {
    lane: &'a mut L,
    api: Api,
    limit: Duration,
    stamps: Vec<Stamp>,
    spent: u64,
}

impl Refusal {
    /// Whether it speaks of any of these, in small letters.
    pub(super) fn is_of(&self, words: &[&str]) -> bool {
        words.iter().any(|word| self.all.contains(word))
    }
}

/// "HTTP 400: what it said".
impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&said(self.status, &self.words))
    }
}

fn said(status: u16, words: &str) -> String {
    match (status, words.is_empty()) {
        (200, false) => words.to_owned(),
        (_, true) => format!("HTTP {status}"),
        (_, false) => format!("HTTP {status}: {words}"),
    }
}

impl Api {
    const fn other(self) -> &'static str {
        match self {
            Self::Completions => "chat",
            Self::Chat => "completions",
        }
    }
}

impl<'a, L: Lane> Ask<'a, L> {
    pub(super) const fn new(lane: &'a mut L, api: Api, limit: Duration) -> Self {
        Self { lane, api, limit, stamps: Vec::new(), spent: 0 }
    }

    /// Tokens that all this has cost: as the endpoint says, but no fewer than went out and came back.
    pub(super) const fn spent(&self) -> u64 {
        self.spent
    }

    /// The models that the endpoint lists; a refusal where it lists none.
    pub(super) async fn models(&mut self) -> Heard<Vec<Value>> {
        let call = Call { path: "/v1/models", body: None, limit: self.limit, output: None };
        let answer = self.lane.whole(call).await.map_err(|fault| trouble(&fault))?;
        let status = answer.status;
        if matches!(status, 404 | 405) {
            return Ok(Err(self.refusal(status, &answer.body)));
        }
        if !(200..300).contains(&status) {
            let refusal = self.judge(status, &answer.body)?;
            return Err(format!(
                "the endpoint does not list its models ({refusal}): is it an OpenAI-compatible server?"
            ));
        }
        match serde_json::from_slice::<Value>(&answer.body).ok().and_then(|mut all| all.get_mut("data")?.take().into())
        {
            Some(Value::Array(mut models)) => {
                // Their names are shown and kept.
                let id = |model: &Value| model.get("id").and_then(Value::as_str).unwrap_or_default().to_owned();
                models.retain(|model| !self.lane.is_echoed(&id(model)));
                Ok(Ok(models))
            }
            _ => Err(
                "what the endpoint gives for /v1/models is no list of models: check that the address is that of an \
                      OpenAI-compatible server, without /v1"
                    .to_owned(),
            ),
        }
    }

    /// Counts what a request cost whose prompt had so many ids or words, and whose output so many events.
    fn count(&mut self, sent: u64, usage: Usage, events: u64) {
        let (prompt, output) = (usage.prompt.unwrap_or(0).max(sent), usage.output.unwrap_or(0).max(events));
        self.spent = self.spent.saturating_add(prompt).saturating_add(output);
    }

    /// Asks for a whole answer to a prompt of so many ids or words; how many tokens the server says its prompt had.
    pub(super) async fn whole(&mut self, body: Vec<u8>, sent: u64) -> Heard<Option<u64>> {
        let call = Call { path: Form::path(self.api), body: Some(body), limit: self.limit, output: Some(1) };
        let answer = self.lane.whole(call).await;
        if answer.as_ref().map_or(true, |answer| !(200..300).contains(&answer.status)) {
            self.count(sent, Usage::default(), 0);
        }
        let answer = match answer {
            Err(Fault::Refused { status, words, .. } | Fault::Status { status, words }) => {
                return self.sort(Refusal { status, all: words.to_lowercase(), words }).map(Err);
            }
            answer => answer.map_err(|fault| trouble(&fault))?,
        };
        if !(200..300).contains(&answer.status) {
            return self.judge(answer.status, &answer.body).map(Err);
        }
        let value: Value = serde_json::from_slice(&answer.body)
            .map_err(|_| "what the endpoint answers is no JSON: is it an OpenAI-compatible server?".to_owned())?;
        let counted = |what: &str| value.pointer(what).and_then(Value::as_u64);
        let usage = Usage {
            prompt: counted("/usage/prompt_tokens"),
            output: counted("/usage/completion_tokens"),
            cached: None,
        };
        let (usage, _) = usage.plausible(1);
        self.count(sent, usage, 1);
        Ok(Ok(usage.prompt))
    }

    /// Asks for a stream of so many tokens, for a prompt of so many ids or words.
    pub(super) async fn stream(&mut self, body: Vec<u8>, sent: u64, output: u32) -> Heard<Told> {
        let call = Call { path: Form::path(self.api), body: Some(body), limit: self.limit, output: Some(output) };
        let exchange = self.lane.stream(call, &mut self.stamps).await;
        let events = self.stamps.len() as u64;
        let (usage, _) = exchange.usage.unwrap_or_default().plausible(events);
        self.count(sent, usage, events);
        let (status, words) = match exchange.fault {
            None => {
                let counted = exchange.usage.is_some_and(|usage| usage.output.is_some());
                let each = (!self.stamps.is_empty()).then(|| self.stamps.iter().any(|stamp| stamp.tokens.is_some()));
                return Ok(Ok(Told { counted, each }));
            }
            Some(Fault::Refused { status, words, .. } | Fault::Status { status, words }) => (status, words),
            // Some begin the stream before they look at what they are asked for.
            Some(Fault::Stream(words) | Fault::Malformed(words)) => (200, words),
            Some(fault) => return Err(trouble(&fault)),
        };
        self.sort(Refusal { status, all: words.to_lowercase(), words }).map(Err)
    }

    fn refusal(&self, status: u16, body: &[u8]) -> Refusal {
        Refusal { status, words: self.lane.words(body), all: String::from_utf8_lossy(body).to_lowercase() }
    }

    fn judge(&self, status: u16, body: &[u8]) -> Result<Refusal, String> {
        self.sort(self.refusal(status, body))
    }

    /// Keeps what may be taken when it is asked in another way; all else is an error.
    fn sort(&self, refusal: Refusal) -> Result<Refusal, String> {
        let other = self.api.other();
        Err(match refusal.status {
            401 | 403 => format!(
                "the endpoint wants a key that it knows (HTTP {}): put it into {TOKEN_VARIABLE} for an endpoint that you \
                 named, or into a file for --engine-auth",
                refusal.status
            ),
            // OpenAI answers with 404 too when the model is one for another interface, and names that.
            404 if refusal.is_of(&["model"]) && !refusal.is_of(&["/completions"]) => {
                format!("the endpoint does not know the model ({refusal}): name one that it lists with --model")
            }
            404 | 405 | 501 => format!(
                "the endpoint has no {} ({refusal}): try --api {other}, and check that its address ends before /v1",
                Form::path(self.api)
            ),
            429 => format!("the endpoint has too much to do ({refusal}): wait until it has less, then run this again"),
            503 => {
                format!("the endpoint is not ready ({refusal}): wait until its model is loaded, then run this again")
            }
            502 | 504 => format!("a proxy answers, the server behind it does not ({refusal}): check that one"),
            _ => return Ok(refusal),
        })
    }

    /// The error when even the plainest request is refused.
    pub(super) fn hopeless(&self, refusal: &Refusal) -> String {
        let (what, other) = (Form::path(self.api), self.api.other());
        format!("the endpoint refuses even a short request to {what} ({refusal}): mend that, or try --api {other}")
    }
}

/// What to do where there was no answer.
fn trouble(fault: &Fault) -> String {
    let advice = match fault {
        Fault::Unconnected(_) => "check that the server runs, and its host and port",
        Fault::AtHostLimit(_) => "nothing can be sent from here before that",
        Fault::Timeout(_) => "it may be overloaded; wait until it is not, or give requests more time",
        Fault::Refused { .. } | Fault::Status { .. } => "run this again when it answers",
        Fault::Stream(_) | Fault::Malformed(_) | Fault::Cut(_) => "see what the server or a proxy before it logged",
    };
    format!("the endpoint does not answer ({fault}): {advice}")
}
