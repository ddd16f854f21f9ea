//! What servers really answer: bodies are those of vLLM 0.32.0 and llama.cpp b11549 as they came, and OpenAI's as users
//! report them.

use serde_json::{Value, json};

use super::super::exchange::{Answer, Call, Exchange, Fault, Stamp, Usage};
use super::super::plan::{Arrival, Lengths};
use super::super::work::{Work, tests::plan};
use super::*;

const VLLM_MODELS: &str = r#"{"object":"list","data":[{"id":"tiny-qwen3","object":"model","created":1795961048,"owned_by":"vllm","root":"/srv/llm/tiny-model","parent":null,"max_model_len":960,"permission":[]},{"id":"sql","object":"model","parent":"tiny-qwen3","max_model_len":null}]}"#;
const LLAMA_MODELS: &str = r#"{"models":[{"name":"models/gemma-3-270m-q4_k_m.gguf"}],"object":"list","data":[{"id":"models/gemma-3-270m-q4_k_m.gguf","aliases":["gemma"],"object":"model","owned_by":"llamacpp","meta":{"n_vocab":262144,"n_ctx":2048,"n_ctx_train":32768}}]}"#;
const OPENAI_MODELS: &str = r#"{"object":"list","data":[{"id":"gpt-x","object":"model","owned_by":"system"}]}"#;
const VLLM_NOT_FOUND: &str = r#"{"detail":"Not Found"}"#;
const LLAMA_NOT_FOUND: &str = r#"{"error":{"message":"File Not Found","type":"not_found_error","code":404}}"#;
const LLAMA_KEY: &str = r#"{"error":{"message":"Invalid API Key","type":"authentication_error","code":401}}"#;
const LLAMA_LOADING: &str = r#"{"error":{"message":"Loading model","type":"unavailable_error","code":503}}"#;
const LLAMA_BAD_IDS: &str =
    r#"{"error":{"code":400,"message":"Prompt contains invalid tokens","type":"invalid_request_error"}}"#;

/// A server by what it takes and tells.
#[derive(Clone)]
struct Server {
    models: (u16, &'static str),
    apis: &'static [&'static str],
    /// Ids below this one are taken; `None`: a list of ids is no prompt.
    vocabulary: Option<u64>,
    /// What it says to an id that it does not have.
    bad_id: &'static str,
    /// Every field that it takes; empty: it overlooks what it does not know.
    fields: &'static [&'static str],
    /// Whether `max_tokens` is not wanted.
    new_limit: bool,
    /// Tokens that it takes an id for.
    per_id: u64,
    /// Tokens of a word.
    per_word: u64,
    /// Tokens around a prompt.
    around: u64,
    counts: bool,
    /// The field that makes events say how many tokens they hold.
    each_by: &'static str,
    /// An answer to every request but that for models.
    always: Option<(u16, &'static str)>,
    fault: Option<Fault>,
    asked: Vec<Value>,
}

const BOTH: &[&str] = &["/v1/completions", "/v1/chat/completions"];
const OPENAI_FIELDS: &[&str] =
    &["model", "prompt", "messages", "max_tokens", "max_completion_tokens", "stream", "stream_options"];

fn vllm() -> Server {
    Server {
        models: (200, VLLM_MODELS),
        apis: BOTH,
        vocabulary: Some(151_936),
        bad_id: r#"{"error":{"message":"Token id 9999 is out of vocabulary","type":"BadRequestError","param":null,"code":400}}"#,
        fields: &[],
        new_limit: false,
        per_id: 1,
        per_word: 1,
        around: 0,
        counts: true,
        each_by: "continuous_usage_stats",
        always: None,
        fault: None,
        asked: Vec::new(),
    }
}

/// It has one more for the start of a text, and 24 around a chat.
fn llama(around: u64) -> Server {
    Server { models: (200, LLAMA_MODELS), bad_id: LLAMA_BAD_IDS, each_by: "", around, ..vllm() }
}

fn openai() -> Server {
    Server {
        models: (200, OPENAI_MODELS),
        apis: &["/v1/chat/completions"],
        vocabulary: None,
        fields: OPENAI_FIELDS,
        around: 7,
        each_by: "",
        ..vllm()
    }
}

impl Server {
    fn refusal(&self, body: &Value) -> Option<(u16, String)> {
        let said = |message: &str| json!({"error": {"message": message, "type": "invalid_request_error"}}).to_string();
        if let Some((status, body)) = self.always {
            return Some((status, body.to_owned()));
        }
        if self.new_limit && body.get("max_tokens").is_some() {
            let words = "Unsupported parameter: 'max_tokens' is not supported with this model. Use \
                         'max_completion_tokens' instead.";
            return Some((400, said(words)));
        }
        let is_known = |field: &&String| self.fields.is_empty() || self.fields.contains(&field.as_str());
        if let Some(field) = body.as_object().unwrap().keys().find(|field| !is_known(field)) {
            return Some((400, said(&format!("Unrecognized request argument supplied: {field}"))));
        }
        let options = body.get("stream_options").and_then(Value::as_object);
        if !self.fields.is_empty() && options.is_some_and(|options| options.contains_key("continuous_usage_stats")) {
            return Some((400, said("Unknown parameter: 'stream_options.continuous_usage_stats'.")));
        }
        let ids = body["prompt"].as_array()?;
        let Some(vocabulary) = self.vocabulary else { return Some((422, said("prompt: a string is expected"))) };
        let is_bad = ids.iter().any(|id| id.as_u64().unwrap() >= vocabulary);
        is_bad.then(|| (400, self.bad_id.to_owned()))
    }

    fn prompt_tokens(&self, body: &Value) -> u64 {
        if let Some(ids) = body["prompt"].as_array() {
            return ids.len() as u64 * self.per_id;
        }
        let text = body["prompt"].as_str().or_else(|| body["messages"][0]["content"].as_str()).unwrap();
        // Of one word there is no half; of many, some are longer.
        let words = text.split(' ').count() as u64;
        self.around + 1 + (words - 1) * self.per_word
    }

    fn take(&mut self, call: &Call) -> Result<(u16, String), Fault> {
        if let Some(fault) = &self.fault {
            return Err(fault.clone());
        }
        let Some(body) = &call.body else { return Ok((self.models.0, self.models.1.to_owned())) };
        let body: Value = serde_json::from_slice(body).unwrap();
        self.asked.push(body.clone());
        if !self.apis.contains(&call.path) {
            return Ok((404, VLLM_NOT_FOUND.to_owned()));
        }
        assert!(body["stream_options"].is_null() || body["stream"] == json!(true), "vLLM refuses that");
        Ok(self.refusal(&body).unwrap_or_else(|| {
            let usage = json!({"prompt_tokens": self.prompt_tokens(&body), "completion_tokens": 1});
            let answer = if self.counts { json!({"choices": [], "usage": usage}) } else { json!({"choices": []}) };
            (200, answer.to_string())
        }))
    }
}

impl Lane for Server {
    async fn stream(&mut self, call: Call, stamps: &mut Vec<Stamp>) -> Exchange {
        stamps.clear();
        let fault = match self.take(&call) {
            Ok((200, _)) => None,
            Ok((status, body)) => Some(Fault::Status { status, words: self.words(body.as_bytes()) }),
            Err(fault) => Some(fault),
        };
        let body = self.asked.last().cloned().unwrap_or_default();
        assert_eq!(body["stream"], json!(true));
        let options = &body["stream_options"];
        let told =
            !self.each_by.is_empty() && (body[self.each_by] == json!(true) || options[self.each_by] == json!(true));
        stamps.extend([1, 2].map(|at| Stamp { at, tokens: told.then_some(1) }));
        let usage = (self.counts && options["include_usage"] == json!(true)).then_some(Usage {
            prompt: Some(16),
            cached: None,
            output: Some(8),
        });
        Exchange { usage, fault, ..Exchange::default() }
    }

    async fn whole(&mut self, call: Call) -> Result<Answer, Fault> {
        self.take(&call).map(|(status, body)| Answer { status, body: body.into_bytes() })
    }

    fn words(&self, body: &[u8]) -> String {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        body["error"]["message"].as_str().or(body["detail"].as_str()).unwrap_or_default().to_owned()
    }
}

fn terms_of(plan: &Plan, server: &mut Server) -> Result<Terms, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(agree(plan, server))
}

fn why(plan: &Plan, mut server: Server) -> String {
    terms_of(plan, &mut server).unwrap_err()
}

fn completions() -> Plan {
    plan(Api::Completions)
}

fn chat() -> Plan {
    plan(Api::Chat)
}

#[test]
fn of_vllm_all_is_had_with_two_requests() {
    let mut server = vllm();
    let terms = terms_of(&completions(), &mut server).unwrap();
    let manner = Manner { force: Force::IgnoreEos, limit: Limit::MaxTokens, usage: true, each_token: EachToken::Usage };
    assert_eq!(
        terms,
        Terms {
            model: "tiny-qwen3".into(),
            ids: Some((1_000, 9_999)),
            words_per_token: WORDS_PER_TOKEN,
            extra_tokens: 0,
            forces_output: true,
            counts_tokens: true,
            most_tokens: Some(960),
            manner,
            notes: Vec::new(),
            // 16 ids and a token, 16 and 8.
            spent: 41,
        }
    );
    assert_eq!(server.asked.len(), 2);
    let body: Value = serde_json::from_slice(&Work::new(&completions(), terms).next(None).body).unwrap();
    assert_eq!(body["stream_options"], server.asked[1]["stream_options"], "what was tried is what is sent");
    assert_eq!((&body["ignore_eos"], &body["model"]), (&json!(true), &json!("tiny-qwen3")));
}

#[test]
fn what_the_plan_does_not_want_is_not_asked_for() {
    let mut server = vllm();
    let plan = Plan { force_output: false, each_token: false, model: Some("sql".into()), ..completions() };
    let terms = terms_of(&plan, &mut server).unwrap();
    assert_eq!(terms.manner, Manner { usage: true, ..Manner::default() });
    assert_eq!((terms.model.as_str(), terms.most_tokens, terms.forces_output), ("sql", None, false));
    assert!(terms.notes.is_empty());
}

#[test]
fn a_toy_vocabulary_gets_smaller_ids() {
    for bad_id in [vllm().bad_id, LLAMA_BAD_IDS] {
        let mut server = Server { vocabulary: Some(2_000), bad_id, ..vllm() };
        assert_eq!(terms_of(&completions(), &mut server).unwrap().ids, Some((100, 999)));
    }
    let mut server = Server { vocabulary: Some(500), ..vllm() };
    let terms = terms_of(&completions(), &mut server).unwrap();
    assert_eq!(terms.ids, None);
    assert!(terms.notes[0].contains("(HTTP 400: Token id 9999 is out of vocabulary), so prompts are words"));
}

#[test]
fn llama_says_not_what_an_event_holds() {
    let mut server = llama(1);
    let plan = Plan { model: Some("gemma".into()), ..completions() };
    let terms = terms_of(&plan, &mut server).unwrap();
    assert_eq!((terms.model.as_str(), terms.ids, terms.most_tokens), ("gemma", Some((1_000, 9_999)), Some(2_048)));
    assert_eq!(terms.manner, Manner { usage: true, force: Force::IgnoreEos, ..Manner::default() });
    assert_eq!(terms.notes.len(), 1);
    assert!(terms.notes[0].starts_with("The endpoint does not say how many tokens an event holds"));
}

#[test]
fn token_ids_are_asked_for_where_usage_is_not_given_in_each_event() {
    let mut server = Server { each_by: "return_token_ids", ..vllm() };
    let terms = terms_of(&completions(), &mut server).unwrap();
    assert_eq!(terms.manner.each_token, EachToken::Ids);
    assert!(terms.notes[0].contains("counted by the token ids"));
}

#[test]
fn a_chat_is_of_words_and_its_template_is_counted() {
    let mut server = Server { per_word: 2, ..llama(23) };
    let terms = terms_of(&chat(), &mut server).unwrap();
    assert_eq!((terms.ids, terms.extra_tokens), (None, 23));
    assert!((terms.words_per_token - 0.5).abs() < 1e-9);
    assert!(terms.notes[0].starts_with("Prompts are words: 2.00 tokens to a word and 23 for what"));
    let longest = server.asked.iter().map(|body| body["messages"][0]["content"].as_str().unwrap().len()).max();
    assert!(longest.unwrap() > 1_000, "all words are counted");
}

#[test]
fn a_small_context_is_not_overrun_by_calibrating() {
    let mut server = Server { around: 23, ..vllm() };
    terms_of(&chat(), &mut server).unwrap();
    let most = server.asked.iter().map(|body| server.prompt_tokens(body)).max();
    assert_eq!(most, Some(23 + 64));
}

#[test]
fn a_strict_server_is_asked_for_no_more_than_it_takes() {
    let mut server = openai();
    let terms = terms_of(&chat(), &mut server).unwrap();
    assert_eq!(terms.manner, Manner { usage: true, ..Manner::default() });
    assert!(!terms.forces_output && terms.counts_tokens);
    assert!(terms.notes.iter().any(|note| note.contains("neither ignore_eos nor min_tokens")));

    let mut server = Server { new_limit: true, ..openai() };
    let terms = terms_of(&chat(), &mut server).unwrap();
    assert_eq!(terms.manner.limit, Limit::MaxCompletionTokens);
    let body: Value = serde_json::from_slice(&Work::new(&chat(), terms).next(None).body).unwrap();
    assert!(server.refusal(&body).is_none(), "{body}");

    let fields =
        &["model", "prompt", "max_tokens", "stream", "min_tokens", "stream_options", "messages", "return_token_ids"];
    let mut server = Server { fields, ..openai() };
    let terms = terms_of(&chat(), &mut server).unwrap();
    assert_eq!((terms.manner.force, terms.forces_output), (Force::MinTokens, true));
}

#[test]
fn without_usage_nothing_is_said_to_be_counted() {
    let mut server = Server { fields: &["model", "messages", "max_tokens", "stream"], counts: false, ..openai() };
    let terms = terms_of(&chat(), &mut server).unwrap();
    assert_eq!(terms.manner, Manner::default());
    assert!(!terms.counts_tokens);
    let all = terms.notes.join(" ");
    assert!(all.contains("guesses, at 0.75 words to a token") && all.contains("no throughput and no TPOT"), "{all}");
}

#[test]
fn ids_that_were_asked_for_and_are_not_taken_are_an_error() {
    let ids = Plan { prompt_as: PromptAs::Ids, ..completions() };
    let error = why(&ids, Server { vocabulary: None, ..vllm() });
    assert_eq!(
        error,
        "the endpoint takes no token ids as a prompt (HTTP 422: prompt: a string is expected): let prompts be words"
    );
    assert!(why(&ids, Server { counts: false, ..vllm() }).contains("it counts no tokens"));
    assert!(
        why(&Plan { prompt_as: PromptAs::Ids, ..chat() }, vllm()).starts_with("a chat takes no token ids: use --api")
    );

    assert!(why(&ids, Server { per_id: 3, ..vllm() }).contains("it counts 16 of them as 48 tokens"));

    for server in [Server { vocabulary: None, ..vllm() }, Server { per_id: 3, ..vllm() }] {
        let terms = terms_of(&completions(), &mut server.clone()).unwrap();
        assert_eq!(terms.ids, None);
        assert!(terms.notes[0].contains("so prompts are words"));
    }
    let mut server = vllm();
    let words = Plan { prompt_as: PromptAs::Words, ..completions() };
    assert_eq!(terms_of(&words, &mut server).unwrap().ids, None);
    assert!(server.asked.iter().all(|body| body["prompt"].is_string()));
}

#[test]
fn what_cannot_be_asked_at_all_says_what_to_do() {
    let models = |status, body| Server { models: (status, body), ..vllm() };
    let always = |status, body| Server { always: Some((status, body)), ..vllm() };
    let fault = |fault| Server { fault: Some(fault), ..vllm() };
    let other_model = r#"{"error":{"message":"The model `nope` does not exist. Valid aliases: tiny-qwen3.","type":"NotFoundError","param":"model","code":404}}"#;
    let chat_model = r#"{"error":{"message":"This is a chat model and not supported in the v1/completions endpoint. Did you mean to use v1/chat/completions?"}}"#;
    let cases = [
        (models(401, LLAMA_KEY), "wants a key that it knows (HTTP 401): put it into WARPTOP_ENGINE_TOKEN"),
        (always(403, LLAMA_KEY), "into a file for --engine-auth"),
        (models(503, LLAMA_LOADING), "not ready (HTTP 503: Loading model): wait until its model is loaded"),
        (always(503, LLAMA_LOADING), "not ready (HTTP 503: Loading model): wait"),
        (always(429, "{}"), "too much to do (HTTP 429): wait"),
        (always(502, "<html>"), "a proxy answers, the server behind it does not (HTTP 502)"),
        (models(404, VLLM_NOT_FOUND), "lists no models (HTTP 404: Not Found): name one with --model"),
        (models(500, ""), "does not list its models (HTTP 500)"),
        (models(200, "<html>"), "is no list of models: check that the address"),
        (models(200, r#"{"data":[]}"#), "serves no model: load one"),
        (openai(), "has no /v1/completions (HTTP 404: Not Found): try --api chat"),
        (always(404, LLAMA_NOT_FOUND), "has no /v1/completions (HTTP 404: File Not Found): try --api chat"),
        (always(404, chat_model), "has no /v1/completions (HTTP 404: This is a chat model"),
        (always(404, other_model), "does not know the model (HTTP 404: The model `nope`"),
        (always(400, LLAMA_BAD_IDS), "refuses even a short request to /v1/completions (HTTP 400: Prompt contains"),
        (fault(Fault::Unconnected("refused".into())), "(no connection: refused): check that the server runs"),
        (fault(Fault::Timeout(Duration::from_secs(2))), "(no complete answer within 2 s): it may be overloaded"),
        (fault(Fault::Cut("reset".into())), "(the answer broke off: reset): see what the server"),
    ];
    for (server, what) in cases {
        let error = why(&completions(), server);
        assert!(error.contains(what), "{what}\n{error}");
        assert!(!error.contains("Invalid API Key"), "what is said about keys is not shown");
    }
}

#[test]
fn a_model_that_is_not_there_is_answered_with_those_that_are() {
    let plan = Plan { model: Some("qwen\x1b[31m".into()), ..completions() };
    assert_eq!(
        why(&plan, vllm()),
        "the endpoint has no model \"qwen\": name one of those it has with --model: tiny-qwen3, sql"
    );
    // Where none are listed, the one that was named is believed in.
    let mut server = Server { models: (404, VLLM_NOT_FOUND), ..vllm() };
    assert_eq!(terms_of(&plan, &mut server).unwrap().model, "qwen\x1b[31m");
}

#[test]
fn a_request_longer_than_the_context_is_refused_before_any_is_sent() {
    let long = Plan { prompt: Lengths::Uniform(1, 950), output: Lengths::Fixed(11), ..completions() };
    let mut server = vllm();
    let error = terms_of(&long, &mut server).unwrap_err();
    assert!(
        error.contains("has 961 tokens (950 in its prompt, 11 in its output) and the endpoint takes 960"),
        "{error}"
    );
    assert!(server.asked.is_empty());
    let fits = Plan { output: Lengths::Fixed(10), ..long };
    assert!(terms_of(&fits, &mut vllm()).is_ok());

    let arrival = |prompt, output| Arrival { at_s: 0.0, prompt, output };
    let shape = Shape::Trace(vec![arrival(1, 2), arrival(900, 61), arrival(5, 5)]);
    let error = why(&Plan { shape, ..fits }, vllm());
    assert!(error.contains("has 961 tokens (900 in its prompt, 61 in its output)"), "{error}");

    // A short prompt is as long as its template.
    let short = Plan { prompt: Lengths::Fixed(2), output: Lengths::Fixed(930), ..chat() };
    let error = why(&short, Server { around: 40, ..vllm() });
    assert!(error.contains("has 971 tokens (41 in its prompt, 930 in its output)"), "{error}");
}

#[test]
fn a_count_that_cannot_be_is_not_believed() {
    let error = why(&chat(), Server { per_word: 0, around: 5, ..vllm() });
    assert!(error.contains("counts 6 tokens in a prompt of one word and 6 in one of 64, which cannot be"), "{error}");
}
