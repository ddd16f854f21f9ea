//! Finding out on which terms an endpoint can be asked: its model, whether it takes token ids, how many tokens words
//! make, how outputs get their length, and what it counts.
//!
//! It must not know what an engine is called: what a server takes is found by asking it, with a handful of short
//! requests. Invariants: what was asked for and is refused is an error, what was left open is a note; nothing is taken
//! for granted that the server did not show, and what it cannot show is said.

use std::time::Duration;

use serde_json::Value;

use crate::model::clock;
use crate::model::text::clean;

use super::ask::{Ask, Heard, Refusal, Told};
use super::body::{EachToken, Force, Form, Limit, Manner};
use super::exchange::Lane;
use super::plan::{Api, Plan, PromptAs, Shape};
use super::prompt::{Prompts, words};
use super::work::Terms;

/// Ranges of token ids that are tried. Below the first of each are special tokens, above it every vocabulary but a
/// toy's has all of the first range.
const RANGES: [(u32, u32); 2] = [(1_000, 9_999), (100, 999)];
/// Ids in a prompt that asks whether ids are taken.
const IDS: usize = 16;
/// Words of the prompt by which it is found what words come to; fewer where little fits into the context.
const WORDS: usize = 256;
const FEW_WORDS: usize = 64;
/// Context that surely holds [`WORDS`], tokens.
const ROOM: u64 = 1_100;
/// Output of the stream that shows what is counted, tokens. A single one may well have no text.
const OUTPUT: u32 = 8;
/// Time for one of these requests at most, s.
const MOST_S: f64 = 120.0;
/// Words in a token where nothing counts them: as many as in common English text.
const WORDS_PER_TOKEN: f64 = 0.75;
/// Names of models that an error lists.
const NAMES: usize = 8;

/// Finds out on which terms the endpoint can be asked.
///
/// # Errors
/// Why it cannot, ready for the screen: what, why, what to do.
pub async fn agree<L: Lane>(plan: &Plan, lane: &mut L) -> Result<Terms, String> {
    if plan.api == Api::Chat && plan.prompt_as == PromptAs::Ids {
        return Err("a chat takes no token ids: use --api completions, or let prompts be words".to_owned());
    }
    let limit = clock::duration(plan.timeout_s.min(MOST_S)).unwrap_or(Duration::from_mins(1));
    let mut ask = Ask::new(lane, plan.api, limit);
    let (model, most_tokens) = model(plan, &mut ask).await?;
    let terms = Terms {
        model,
        ids: None,
        words_per_token: WORDS_PER_TOKEN,
        extra_tokens: 0,
        forces_output: false,
        counts_tokens: false,
        most_tokens,
        manner: Manner::default(),
        notes: Vec::new(),
        spent: 0,
    };
    fits(plan, &terms)?;
    let mut talk = Talk { plan, ask, terms, seed: fastrand::Rng::with_seed(!plan.seed) };
    talk.prompts().await?;
    talk.streams().await?;
    Ok(Terms { spent: talk.ask.spent(), ..talk.terms })
}

/// The model and, where it is said, its longest prompt and output together, tokens.
async fn model<L: Lane>(plan: &Plan, ask: &mut Ask<'_, L>) -> Result<(String, Option<u64>), String> {
    let models = match (ask.models().await?, &plan.model) {
        (Ok(models), _) => models,
        (Err(_), Some(model)) => return Ok((model.clone(), None)),
        (Err(refusal), None) => {
            return Err(format!(
                "the endpoint lists no models ({refusal}): name one with --model, or check its address"
            ));
        }
    };
    let id = |model: &Value| model.get("id").and_then(Value::as_str).map(ToOwned::to_owned);
    let is = |model: &Value, name: &str| {
        let aliases = model.get("aliases").and_then(Value::as_array);
        id(model).as_deref() == Some(name) || aliases.is_some_and(|all| all.iter().any(|alias| alias == name))
    };
    let found = models.iter().find(|model| plan.model.as_deref().map_or(id(model).is_some(), |name| is(model, name)));
    let Some(found) = found else {
        let mut names: Vec<String> = models.iter().filter_map(id).map(|name| clean(&name)).collect();
        if names.is_empty() {
            return Err("the endpoint serves no model: load one, then run this again".to_owned());
        }
        let more = names.len().saturating_sub(NAMES);
        names.truncate(NAMES);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let wanted = clean(plan.model.as_deref().unwrap_or_default());
        return Err(format!(
            "the endpoint has no model \"{wanted}\": name one of those it has with --model: {}{more}",
            names.join(", ")
        ));
    };
    // vLLM and SGLang say it as the first, llama.cpp as the second.
    let most = found.get("max_model_len").or_else(|| found.pointer("/meta/n_ctx")).and_then(Value::as_u64);
    let name = plan.model.clone().or_else(|| id(found)).unwrap_or_default();
    Ok((name, most.filter(|most| *most > 0)))
}

/// Whether the longest request of the plan fits into the context.
fn fits(plan: &Plan, terms: &Terms) -> Result<(), String> {
    let longest = match &plan.shape {
        Shape::Trace(arrivals) => {
            arrivals.iter().map(|a| (a.prompt, a.output)).max_by_key(|(p, o)| p.saturating_add(*o))
        }
        Shape::Closed(_) | Shape::Constant(_) | Shape::Poisson(_) => {
            Some((plan.prompt.longest(), plan.output.longest()))
        }
    };
    let Some((prompt, output)) = longest else { return Ok(()) };
    // A template is a part of a prompt that is long enough for it and a word.
    let prompt = u64::from(prompt).max(u64::from(terms.extra_tokens) + 1);
    match terms.most_tokens {
        Some(most) if prompt + u64::from(output) > most => Err(format!(
            "the longest request has {} tokens ({prompt} in its prompt, {output} in its output) and the endpoint takes \
             {most} at most: plan shorter ones, or give its model a longer context",
            prompt + u64::from(output)
        )),
        _ => Ok(()),
    }
}

/// An agreement as far as it is.
struct Talk<'a, L> {
    plan: &'a Plan,
    ask: Ask<'a, L>,
    terms: Terms,
    /// Its own random numbers: what is asked here must not warm a cache for what is asked later.
    seed: fastrand::Rng,
}

impl<L: Lane> Talk<'_, L> {
    fn note(&mut self, words: String) {
        self.terms.notes.push(words);
    }

    /// Finds out how prompts are given.
    async fn prompts(&mut self) -> Result<(), String> {
        if self.plan.api == Api::Completions && self.plan.prompt_as != PromptAs::Words {
            let Err(why) = self.ids().await? else { return Ok(()) };
            if self.plan.prompt_as == PromptAs::Ids {
                return Err(format!("the endpoint takes no token ids as a prompt ({why}): let prompts be words"));
            }
            self.note(format!("The endpoint takes no token ids as a prompt ({why}), so prompts are words."));
        }
        self.words().await?;
        fits(self.plan, &self.terms)
    }

    /// Whether prompts may be ids: sent ones have to be counted as that many, or they were taken for something else.
    async fn ids(&mut self) -> Result<Result<(), String>, String> {
        let mut why = String::new();
        for range in RANGES {
            let mut prompts = Prompts::of_ids(range, 0.0, self.seed.u64(..));
            let form = Form::new(self.plan.api, &self.terms.model, true, Manner::default());
            // The largest has to be known too.
            let body = form.whole(1, |body| {
                body.extend_from_slice(format!("{},", range.1).as_bytes());
                prompts.write(IDS - 1, body);
            });
            match self.ask.whole(body, IDS as u64).await? {
                Ok(Some(counted)) if counted == IDS as u64 => {
                    self.terms.ids = Some(range);
                    return Ok(Ok(()));
                }
                Ok(Some(counted)) => return Ok(Err(format!("it counts {IDS} of them as {counted} tokens"))),
                Ok(None) => return Ok(Err("it counts no tokens, so that it cannot be told".to_owned())),
                Err(refusal) => {
                    why = refusal.to_string();
                    if !refusal.is_of(&["vocab", "invalid token", "token id", "out of range"]) {
                        break;
                    }
                }
            }
        }
        Ok(Err(why))
    }

    /// Finds out how many tokens words make, and how many a template adds: by one word and by many.
    async fn words(&mut self) -> Result<(), String> {
        let one = match self.count("time").await? {
            Err(refusal) if self.plan.api == Api::Chat && refusal.is_of(&["max_completion_tokens"]) => {
                self.terms.manner.limit = Limit::MaxCompletionTokens;
                self.count("time").await?
            }
            one => one,
        };
        let Some(one) = one.map_err(|refusal| self.ask.hopeless(&refusal))? else {
            self.note(format!(
                "The endpoint does not count tokens, so that lengths of prompts are guesses, at {WORDS_PER_TOKEN} words to \
                 a token."
            ));
            return Ok(());
        };
        let most = if self.terms.most_tokens.is_some_and(|most| most < ROOM) { FEW_WORDS } else { WORDS };
        let mut all = words().to_vec();
        self.seed.shuffle(&mut all);
        all.truncate(most);
        let many = self.count(&all.join(" ")).await?.map_err(|refusal| self.ask.hopeless(&refusal))?.unwrap_or(0);
        // Of such a short word there is no half.
        let per_word = many.saturating_sub(one) as f64 / (most - 1) as f64;
        if !(0.1..=10.0).contains(&per_word) {
            return Err(format!(
                "the endpoint counts {one} tokens in a prompt of one word and {many} in one of {most}, which cannot be: \
                 its count is not of the prompt that was sent; check what is between this and the model"
            ));
        }
        self.terms.words_per_token = 1.0 / per_word;
        self.terms.extra_tokens = u32::try_from(one.saturating_sub(1)).unwrap_or(u32::MAX);
        self.note(format!(
            "Prompts are words: {:.2} tokens to a word and {} for what the endpoint puts around them, which a prefix cache may \
             hold. Their lengths are as planned on average only.",
            per_word, self.terms.extra_tokens
        ));
        Ok(())
    }

    async fn count(&mut self, text: &str) -> Heard<Option<u64>> {
        let form = Form::new(self.plan.api, &self.terms.model, false, self.terms.manner);
        let sent = text.split(' ').count() as u64;
        self.ask.whole(form.whole(1, |body| body.extend_from_slice(text.as_bytes())), sent).await
    }

    /// Finds out what a stream may be asked for: for all at once, and if that is refused for one after the other.
    async fn streams(&mut self) -> Result<(), String> {
        let mut wanted = Manner { usage: true, ..self.terms.manner };
        if self.plan.force_output {
            wanted.force = Force::IgnoreEos;
        }
        if self.plan.each_token {
            wanted.each_token = EachToken::Usage;
        }
        let told = match self.try_stream(wanted).await? {
            Ok(told) => told,
            Err(_) => self.one_by_one(wanted).await?,
        };
        self.terms.counts_tokens = told.counted;
        self.terms.forces_output = self.terms.manner.force != Force::No;
        if self.plan.force_output && !self.terms.forces_output {
            self.note(
                "The endpoint takes neither ignore_eos nor min_tokens, so outputs may end before they should.".into(),
            );
        }
        if !told.counted {
            self.note(
                "The endpoint does not count the tokens of a stream, so there is no throughput and no TPOT.".into(),
            );
        }
        if self.plan.each_token { self.each_token(told).await } else { Ok(()) }
    }

    async fn try_stream(&mut self, manner: Manner) -> Heard<Told> {
        let ids = self.terms.ids;
        let seed = self.seed.u64(..);
        let mut prompts = ids.map_or_else(|| Prompts::of_words(0.0, seed), |range| Prompts::of_ids(range, 0.0, seed));
        let form = Form::new(self.plan.api, &self.terms.model, ids.is_some(), manner);
        let body = form.stream(0, OUTPUT, |body| prompts.write(IDS, body));
        let heard = self.ask.stream(body, IDS as u64, OUTPUT).await?;
        if heard.is_ok() {
            self.terms.manner = manner;
        }
        Ok(heard)
    }

    /// Asks for nothing first, then for one thing more at a time; keeps what is taken.
    async fn one_by_one(&mut self, wanted: Manner) -> Result<Told, String> {
        let heard = self.try_stream(self.terms.manner).await?;
        let mut told = heard.map_err(|refusal: Refusal| self.ask.hopeless(&refusal))?;
        let steps: [fn(Manner, Manner) -> Manner; 4] = [
            |now, wanted| Manner { usage: wanted.usage, ..now },
            |now, wanted| Manner { force: wanted.force, ..now },
            |now, wanted| if now.force == wanted.force { now } else { Manner { force: Force::MinTokens, ..now } },
            // It is a part of what asks for usage.
            |now, wanted| if now.usage { Manner { each_token: wanted.each_token, ..now } } else { now },
        ];
        for step in steps {
            let next = step(self.terms.manner, wanted);
            if next != self.terms.manner
                && let Ok(more) = self.try_stream(next).await?
            {
                told = more;
            }
        }
        Ok(told)
    }

    /// Sees to it that events say how many tokens they hold, if that can be.
    async fn each_token(&mut self, told: Told) -> Result<(), String> {
        // Without a single event nothing shows; to ask on costs nothing.
        let is_told = told.each.unwrap_or(true);
        if self.terms.manner.each_token == EachToken::Usage && is_told {
            return Ok(());
        }
        let without = Manner { each_token: EachToken::No, ..self.terms.manner };
        let ids = Manner { each_token: EachToken::Ids, ..without };
        if self.try_stream(ids).await?.is_ok_and(|told| told.each == Some(true)) {
            self.note(
                "Events are counted by the token ids that the endpoint sends with them. It sends those of the prompt too, \
                 which makes the first event of a long one larger and TTFT a little longer."
                    .into(),
            );
            return Ok(());
        }
        self.terms.manner = without;
        self.note(
            "The endpoint does not say how many tokens an event holds: where it puts several into one, ITL is longer than \
             the time for a token."
                .into(),
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests;
