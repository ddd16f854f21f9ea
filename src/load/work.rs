//! The requests of a sweep, one after the other: how long, with which prompt, as which JSON.
//!
//! It must not know when they are sent or how they are answered. Invariant: the same plan on the same terms makes the
//! same requests in the same order.

use super::body::{Form, Manner};
use super::lengths::Draw;
use super::plan::{Api, Plan};
use super::prompt::Prompts;

pub use super::agree::agree;

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
    /// How it wants to be asked.
    pub manner: Manner,
    /// What has to be known of this to read the figures, in sentences.
    pub notes: Vec<String>,
    /// Tokens that it cost to find this out, as far as they were counted.
    pub spent: u64,
}

/// A request that is ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Path below the endpoint's base.
    pub path: &'static str,
    /// JSON.
    pub body: Vec<u8>,
    /// Tokens its prompt should have; no fewer than the ids or words in it.
    pub prompt: u32,
    /// Tokens its output should have.
    pub output: u32,
}

/// Makes requests.
#[derive(Debug)]
pub struct Work {
    api: Api,
    terms: Terms,
    form: Form,
    prompts: Prompts,
    /// Lengths of prompts and of outputs.
    draws: [Draw; 2],
    random: fastrand::Rng,
    /// Length of the last prompt as it stands in its body, bytes.
    bytes: usize,
}

impl Work {
    /// For this plan, on these terms.
    pub fn new(plan: &Plan, terms: Terms) -> Self {
        let mut random = fastrand::Rng::with_seed(plan.seed);
        let seed = random.u64(..);
        let prompts = match terms.ids {
            Some(range) => Prompts::of_ids(range, plan.shared_prefix, seed),
            None => Prompts::of_words(plan.shared_prefix, seed),
        };
        let form = Form::new(plan.api, &terms.model, terms.ids.is_some(), terms.manner);
        let draws = [Draw::new(&plan.prompt), Draw::new(&plan.output)];
        Self { api: plan.api, terms, form, prompts, draws, random, bytes: 0 }
    }

    /// The next request; `lengths` (prompt, output) instead of the plan's.
    pub fn next(&mut self, lengths: Option<(u32, u32)>) -> Job {
        let drawn = || (self.draws[0].next(&mut self.random), self.draws[1].next(&mut self.random));
        let (prompt, output) = lengths.unwrap_or_else(drawn);
        let (prompt, output) = (prompt.max(1), output.max(1));
        let (prompt, pieces) = self.terms.pieces(prompt);
        let prompts = &mut self.prompts;
        let mut bytes = 0;
        let body = self.form.stream(self.bytes, output, |body| {
            let before = body.len();
            prompts.write(pieces, body);
            bytes = body.len() - before;
        });
        self.bytes = bytes;
        Job { path: Form::path(self.api), body, prompt, output }
    }
}

impl Terms {
    /// Tokens that a prompt of `wanted` tokens will have, and the ids or words that make it: a template is a part of
    /// it, and no prompt is shorter than that and a word.
    fn pieces(&self, wanted: u32) -> (u32, usize) {
        if self.ids.is_some() {
            return (wanted, wanted as usize);
        }
        let own = wanted.saturating_sub(self.extra_tokens).max(1);
        let words = (f64::from(own) * self.words_per_token).round().max(1.0);
        // An endpoint that counts fewer tokens than words has its own way to count; what is sent is sent.
        (self.extra_tokens.saturating_add(own).max(words as u32), words as usize)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::super::body::{EachToken, Force, Limit};
    use super::super::plan::{Budget, Lengths, Order, PromptAs, Shape, Slo, Span};
    use super::*;

    pub(in crate::load) fn plan(api: Api) -> Plan {
        Plan {
            api,
            model: None,
            shape: Shape::Closed(vec![1, 2]),
            prompt: Lengths::Fixed(64),
            output: Lengths::Uniform(8, 16),
            prompt_as: PromptAs::Auto,
            shared_prefix: 0.0,
            force_output: true,
            each_token: true,
            seed: 11,
            span: Span::Requests(4),
            repeats: 1,
            order: Order::Listed,
            most_in_flight: 64,
            timeout_s: 60.0,
            slo: Slo::default(),
            budget: Budget { seconds: 60.0, tokens: 1_000_000 },
            most_errors: 0.1,
        }
    }

    fn terms(ids: Option<(u32, u32)>) -> Terms {
        let manner =
            Manner { force: Force::IgnoreEos, limit: Limit::MaxTokens, usage: true, each_token: EachToken::No };
        Terms {
            model: "m".into(),
            ids,
            words_per_token: 0.8,
            extra_tokens: 24,
            forces_output: true,
            counts_tokens: true,
            most_tokens: None,
            manner,
            notes: Vec::new(),
            spent: 0,
        }
    }

    fn parsed(job: &Job) -> Value {
        serde_json::from_slice(&job.body).unwrap()
    }

    #[test]
    fn a_prompt_of_ids_has_as_many_as_planned() {
        let terms = Terms { extra_tokens: 0, ..terms(Some((100, 999))) };
        let mut work = Work::new(&plan(Api::Completions), terms);
        for _ in 0..50 {
            let job = work.next(None);
            let body = parsed(&job);
            let ids = body["prompt"].as_array().unwrap();
            assert!(ids.len() == 64 && ids.iter().all(|id| (100..=999).contains(&id.as_u64().unwrap())));
            assert_eq!((job.path, job.prompt), ("/v1/completions", 64));
            assert!((8..=16).contains(&job.output) && body["max_tokens"] == json!(job.output));
        }
        let job = work.next(Some((5, 7)));
        assert_eq!((job.prompt, job.output), (5, 7));
        assert_eq!(parsed(&job)["prompt"].as_array().unwrap().len(), 5);
    }

    #[test]
    fn words_make_up_for_template_and_tokenizer() {
        let mut work = Work::new(&plan(Api::Chat), terms(None));
        // (64 − 24) · 0.8 words; and where the template alone is longer, one.
        for (lengths, tokens, words) in [(None, 64, 32), (Some((24, 1)), 25, 1), (Some((1, 1)), 25, 1)] {
            let job = work.next(lengths);
            let body = parsed(&job);
            let text = body["messages"][0]["content"].as_str().unwrap();
            assert_eq!((job.path, job.prompt), ("/v1/chat/completions", tokens));
            assert_eq!(text.split(' ').count(), words);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn a_plan_makes_the_same_requests_again(ids: bool, seed: u64, shared_prefix in 0.0f64..0.7) {
            let plan = Plan { seed, shared_prefix, prompt: Lengths::Uniform(30, 90), ..plan(Api::Completions) };
            let all = |plan: &Plan| {
                let mut work = Work::new(plan, terms(ids.then_some((100, 999))));
                (0..12).map(|_| work.next(None)).collect::<Vec<_>>()
            };
            let jobs = all(&plan);
            prop_assert_eq!(&jobs, &all(&plan));
            for (i, job) in jobs.iter().enumerate() {
                prop_assert!(jobs[..i].iter().all(|other| parsed(other)["prompt"] != parsed(job)["prompt"]));
            }
            prop_assert_ne!(&jobs, &all(&Plan { seed: seed ^ 1, ..plan }));
        }
    }
}
