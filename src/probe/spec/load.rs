//! What a run asks of a serving endpoint, for the question before it.
//!
//! It must not know how requests are planned. Invariant: what is not known before is left out, and a bound is called one.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What a run asks of a serving endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadCost {
    /// Requests that are sent at least; 0 where that is not known before.
    pub least_requests: u64,
    /// Requests that are sent at most; `None`: as many as fit into time and tokens.
    pub most_requests: Option<u64>,
    /// Tokens of prompts and outputs together, where all requests are known before; they are within `most_tokens`.
    #[serde(default)]
    pub about_tokens: Option<u64>,
    /// Tokens of prompts and outputs together, at most.
    pub most_tokens: u64,
    /// Whether the endpoint may be on another host.
    pub remote: bool,
    /// Why such a plan comes to nothing; empty where it may come to something.
    pub wrong: String,
}

impl fmt::Display for LoadCost {
    /// ", at least 504 requests, at most 2,000,000 tokens"
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.least_requests, self.most_requests) {
            (0, None) => {}
            (least, Some(most)) if least == most => write!(f, ", {}", counted(most, "request"))?,
            (0, Some(most)) => write!(f, ", at most {}", counted(most, "request"))?,
            (least, None) => write!(f, ", at least {}", counted(least, "request"))?,
            (least, Some(most)) => {
                write!(f, ", at least {} and at most {}", Grouped(least), counted(most, "request"))?;
            }
        }
        match self.about_tokens {
            Some(tokens) => write!(f, ", about {} tokens", Grouped(tokens)),
            None => write!(f, ", at most {} tokens", Grouped(self.most_tokens)),
        }
    }
}

/// A whole number with commas: "2,000,000".
pub(in crate::probe) struct Grouped(pub(in crate::probe) u64);

/// "1 request", "1,024 requests".
pub(in crate::probe) fn counted(n: u64, what: &str) -> String {
    format!("{} {what}{}", Grouped(n), if n == 1 { "" } else { "s" })
}

impl fmt::Display for Grouped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        for (place, digit) in digits.chars().enumerate() {
            if place > 0 && (digits.len() - place).is_multiple_of(3) {
                f.write_str(",")?;
            }
            write!(f, "{digit}")?;
        }
        Ok(())
    }
}
