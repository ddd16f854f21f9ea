//! The requests of a sweep, one after the other: how long, with which prompt, as which JSON.

use super::exchange::{Fault, Lane};
use super::plan::Plan;

/// What the endpoint was found to take and to tell, by asking it a few short requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Terms {
    /// The model that is asked.
    pub model: String,
    /// Whether prompts are token ids; if so, the ids that may be used.
    pub ids: Option<(u32, u32)>,
    /// Words that make a token, on average, where prompts are words.
    pub words_per_token: f64,
    /// Tokens that the endpoint adds to each prompt (a template's).
    pub extra_tokens: u32,
    /// Whether outputs can be made as long as planned.
    pub forces_output: bool,
    /// Whether the endpoint counts tokens.
    pub counts_tokens: bool,
    /// Longest prompt and output together, tokens, where the endpoint says so.
    pub most_tokens: Option<u64>,
    /// What has to be known of this to read the figures, in sentences.
    pub notes: Vec<String>,
}

/// A request that is ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Path below the endpoint's base.
    pub path: &'static str,
    /// JSON.
    pub body: Vec<u8>,
    /// Tokens its prompt should have.
    pub prompt: u32,
    /// Tokens its output should have.
    pub output: u32,
}

/// Makes requests.
#[derive(Debug)]
pub struct Work;

impl Work {
    /// For this plan, on these terms.
    pub fn new(plan: &Plan, terms: Terms) -> Self {
        let _ = (plan, terms);
        todo!()
    }
    /// The next request; `lengths` (prompt, output) instead of the plan's.
    pub fn next(&mut self, lengths: Option<(u32, u32)>) -> Job {
        let _ = lengths;
        todo!()
    }
}

/// Finds out on which terms the endpoint can be asked.
///
/// # Errors
/// Why it cannot, ready for the screen: what, why, what to do.
pub async fn agree<L: Lane>(plan: &Plan, lane: &mut L) -> Result<Terms, String> {
    let _ = (plan, lane, None::<Fault>);
    todo!()
}
