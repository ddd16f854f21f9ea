//! Requests as JSON.
//!
//! It must not know what a prompt holds or why a field is in a request. Invariants: what it writes is one object of
//! JSON; nothing is asked for that the [`Manner`] does not say; a long prompt is written once, straight into the body.
//!
//! No temperature is sent, and nothing else that shapes what is sampled: the server's own default is what its users
//! get, and what `vllm bench serve` loads it with.

use std::io::Write as _;

use super::plan::Api;

/// How the endpoint wants to be asked, in what differs between servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Manner {
    /// How outputs are made as long as planned.
    pub force: Force,
    /// What the length of an output is limited by.
    pub limit: Limit,
    /// Whether a stream may be asked to end with its usage (`stream_options`).
    pub usage: bool,
    /// What says of each event how many tokens it holds.
    pub each_token: EachToken,
}

/// How outputs are made as long as planned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Force {
    /// Not at all: the model may end them before.
    #[default]
    No,
    /// `ignore_eos`. That alone does it in vLLM, SGLang and llama.cpp; `min_tokens` beside it would add a step to the
    /// sampling of each token, and so change what is measured.
    IgnoreEos,
    /// `min_tokens`, where `ignore_eos` is refused.
    MinTokens,
}

/// What the length of an output is limited by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Limit {
    /// `max_tokens`.
    #[default]
    MaxTokens,
    /// `max_completion_tokens`, as newer models of OpenAI want it in chats.
    MaxCompletionTokens,
}

/// What says of each event how many tokens it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EachToken {
    /// Nothing.
    #[default]
    No,
    /// The usage so far, in each event (`continuous_usage_stats`).
    Usage,
    /// The ids of its tokens (`return_token_ids`). vLLM sends those of the prompt too, in the first event.
    Ids,
}

/// Writes requests of one kind.
#[derive(Clone, Debug)]
pub(super) struct Form {
    /// Up to the prompt.
    before: Vec<u8>,
    /// From the prompt on to the limit of the output.
    after: &'static [u8],
    manner: Manner,
}

impl Form {
    /// For this model; prompts are token ids or text.
    pub(super) fn new(api: Api, model: &str, ids: bool, manner: Manner) -> Self {
        let mut before = b"{\"model\":".to_vec();
        before.extend_from_slice(serde_json::Value::from(model).to_string().as_bytes());
        let (opening, after): (&[u8], &[u8]) = match (api, ids) {
            (Api::Completions, true) => (b",\"prompt\":[", b"]"),
            (Api::Completions, false) => (b",\"prompt\":\"", b"\""),
            (Api::Chat, _) => (b",\"messages\":[{\"role\":\"user\",\"content\":\"", b"\"}]"),
        };
        before.extend_from_slice(opening);
        Self { before, after, manner }
    }

    /// Where requests of this interface go, below the endpoint's base.
    pub(super) const fn path(api: Api) -> &'static str {
        match api {
            Api::Completions => "/v1/completions",
            Api::Chat => "/v1/chat/completions",
        }
    }

    /// A request that is answered by a stream. `prompt` writes ids with commas between them, or text that needs no
    /// escapes, of about `bytes` bytes.
    pub(super) fn stream(&self, bytes: usize, output: u32, prompt: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut body = self.start(bytes, output, prompt);
        body.extend_from_slice(b",\"stream\":true");
        let each = self.manner.each_token;
        if self.manner.usage {
            body.extend_from_slice(b",\"stream_options\":{\"include_usage\":true");
            if each == EachToken::Usage {
                body.extend_from_slice(b",\"continuous_usage_stats\":true");
            }
            body.push(b'}');
        }
        if each == EachToken::Ids {
            body.extend_from_slice(b",\"return_token_ids\":true");
        }
        match self.manner.force {
            Force::No => {}
            Force::IgnoreEos => body.extend_from_slice(b",\"ignore_eos\":true"),
            Force::MinTokens => number(&mut body, "min_tokens", output),
        }
        body.push(b'}');
        body
    }

    /// A request that is answered as a whole, and by no more than the model wants to say.
    pub(super) fn whole(&self, output: u32, prompt: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut body = self.start(0, output, prompt);
        body.push(b'}');
        body
    }

    fn start(&self, bytes: usize, output: u32, prompt: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        /// What a request has besides model and prompt, bytes.
        const REST: usize = 192;
        let mut body = Vec::with_capacity(self.before.len() + bytes + REST);
        body.extend_from_slice(&self.before);
        prompt(&mut body);
        body.extend_from_slice(self.after);
        let limit = match self.manner.limit {
            Limit::MaxTokens => "max_tokens",
            Limit::MaxCompletionTokens => "max_completion_tokens",
        };
        number(&mut body, limit, output);
        body
    }
}

fn number(body: &mut Vec<u8>, name: &str, value: u32) {
    // A Vec takes all that is written into it.
    let _ = write!(body, ",\"{name}\":{value}");
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn parsed(body: &[u8]) -> Value {
        serde_json::from_slice(body).unwrap()
    }

    #[test]
    fn a_completion_of_ids_asks_for_what_it_may() {
        let manner =
            Manner { force: Force::IgnoreEos, limit: Limit::MaxTokens, usage: true, each_token: EachToken::Usage };
        let form = Form::new(Api::Completions, "a/\"b\\", true, manner);
        let body = form.stream(6, 20, |body| body.extend_from_slice(b"10,20"));
        let expected = json!({
            "model": "a/\"b\\", "prompt": [10, 20], "max_tokens": 20, "stream": true,
            "stream_options": {"include_usage": true, "continuous_usage_stats": true}, "ignore_eos": true,
        });
        assert_eq!(parsed(&body), expected);
        let body = form.whole(2, |body| body.extend_from_slice(b"10"));
        assert_eq!(parsed(&body), json!({"model": "a/\"b\\", "prompt": [10], "max_tokens": 2}));
    }

    #[test]
    fn a_chat_asks_for_nothing_that_is_not_taken() {
        let text = |body: &mut Vec<u8>| body.extend_from_slice(b"old cat");
        let mut expected = json!({
            "model": "m", "messages": [{"role": "user", "content": "old cat"}], "max_tokens": 3, "stream": true,
        });
        let form = Form::new(Api::Chat, "m", false, Manner::default());
        assert_eq!(parsed(&form.stream(7, 3, text)), expected);
        let manner = Manner {
            force: Force::MinTokens,
            limit: Limit::MaxCompletionTokens,
            usage: false,
            each_token: EachToken::Ids,
        };
        expected["max_tokens"].take();
        let fields = expected.as_object_mut().unwrap();
        fields.remove("max_tokens");
        fields.insert("max_completion_tokens".into(), 3.into());
        fields.insert("min_tokens".into(), 3.into());
        fields.insert("return_token_ids".into(), true.into());
        assert_eq!(parsed(&Form::new(Api::Chat, "m", false, manner).stream(7, 3, text)), expected);
    }

    #[test]
    fn a_completion_of_text_is_a_string() {
        let form = Form::new(Api::Completions, "m", false, Manner { usage: true, ..Manner::default() });
        let body = parsed(&form.stream(7, 3, |body| body.extend_from_slice(b"old cat")));
        assert_eq!((&body["prompt"], &body["stream_options"]), (&json!("old cat"), &json!({"include_usage": true})));
    }
}
