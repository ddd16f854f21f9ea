//! The answer to `/slots`, in the shapes of 2024 to 2026.
//!
//! It must not know what is made of it. Invariant: a list that is not wholly of slots is none.

use serde::Deserialize;

/// One entry of `/slots`. The rest of it (sampling parameters, and in old builds the prompt itself) is
/// skipped unread.
#[derive(Deserialize)]
pub(super) struct Slot {
    id: u64,
    pub(super) n_ctx: f64,
    is_processing: Option<bool>,
    /// Builds of 2024: 1 is processing.
    state: Option<u8>,
    #[serde(default, deserialize_with = "task")]
    id_task: Option<u64>,
    n_prompt_tokens: Option<f64>,
    next_token: Option<Next>,
}

/// Old builds wrote an object, new ones write a list of one.
#[derive(Deserialize)]
#[serde(untagged)]
enum Next {
    List(Vec<NextToken>),
    One(NextToken),
}

#[derive(Deserialize)]
struct NextToken {
    #[serde(default)]
    n_decoded: f64,
}

/// An id below 0 stands for none.
fn task<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    Ok(u64::try_from(i64::deserialize(from)?).ok())
}

impl Slot {
    pub(super) fn busy(&self) -> bool {
        self.is_processing.unwrap_or(self.state == Some(1))
    }

    pub(super) fn decoded(&self) -> f64 {
        match &self.next_token {
            Some(Next::List(list)) => list.first().map_or(0.0, |next| next.n_decoded),
            Some(Next::One(next)) => next.n_decoded,
            None => 0.0,
        }
    }

    /// Tokens in its cache. A slot that was never used holds none.
    pub(super) fn held(&self) -> Option<f64> {
        self.n_prompt_tokens.or_else(|| (self.id_task.is_none() && !self.busy()).then_some(0.0))
    }

    /// Tells this request in this slot from any other.
    pub(super) fn request(&self) -> u64 {
        self.id_task.unwrap_or_default().wrapping_mul(1 << 16).wrapping_add(self.id)
    }
}

/// The slots, where the answer is a list of them.
pub(super) fn read(answer: &str) -> Option<Vec<Slot>> {
    let slots: Vec<Slot> = serde_json::from_str(answer).ok()?;
    let whole = |slot: &Slot| slot.n_ctx > 0.0 && (slot.is_processing.is_some() || slot.state.is_some());
    (!slots.is_empty() && slots.iter().all(whole)).then_some(slots)
}

/// The longest context of a request.
pub(super) fn context(slots: &[Slot]) -> f64 {
    slots.iter().map(|slot| slot.n_ctx).fold(0.0, f64::max)
}
