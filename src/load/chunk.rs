//! What an event of a stream of the OpenAI interfaces means: chunks of completions and of chats.
//!
//! It must not know connections or time. Invariants: content is output of the model, so neither a role nor an empty text
//! nor a usage record is any; tokens are what the server counts, and unknown where it does not count; fields that are not
//! needed are passed over without being kept.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};

use super::exchange::Usage;

/// What is looked at of a chunk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chunk {
    /// Whether it holds output of the model.
    pub content: bool,
    /// Whether it holds output that is no reasoning.
    pub answer: bool,
    /// Tokens whose ids are in it; `None`: there are no ids.
    pub ids: Option<u32>,
    /// The server's count so far.
    pub usage: Option<Usage>,
    /// Why the model stopped.
    pub finish: Option<String>,
    /// It is an error, not a chunk.
    pub is_error: bool,
}

/// Where an event could not be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadChunk {
    /// Byte of its data, from 1.
    pub at: usize,
}

impl Chunk {
    /// Understands the data of an event.
    ///
    /// # Errors
    /// When it is no JSON, or a field of it is not what that field is.
    pub fn read(data: &[u8]) -> Result<Self, BadChunk> {
        let raw: Raw = serde_json::from_slice(data).map_err(|error| BadChunk { at: error.column() })?;
        let choices = raw.choices.unwrap_or_default();
        let usage = raw.usage.map(|usage| Usage {
            prompt: usage.prompt_tokens.map(count),
            cached: usage.prompt_tokens_details.and_then(|details| details.cached_tokens).map(count),
            output: usage.completion_tokens.map(count),
        });
        let is_error = raw.error.is_some() || raw.object.is_some_and(|object| object.is_error);
        let Choices { content, answer, ids, finish } = choices;
        Ok(Self { content, answer, ids, usage, finish, is_error })
    }
}

/// Counts the tokens of events from what the chunks of one stream say.
#[derive(Debug, Default)]
pub struct Counter {
    /// Tokens whose text is still to come: the ids came with no text.
    held: u32,
    /// Output tokens at the last event with content; `None`: there was one that did not say.
    counted: Counted,
}

#[derive(Debug)]
struct Counted(Option<u64>);

impl Default for Counted {
    fn default() -> Self {
        Self(Some(0))
    }
}

impl Counter {
    /// Tokens that came to be seen with this chunk; `None` where it has no content or the server does not say.
    pub fn tokens(&mut self, chunk: &Chunk) -> Option<u32> {
        if let Some(ids) = chunk.ids {
            self.held = self.held.saturating_add(ids);
        }
        if !chunk.content {
            return None;
        }
        let so_far = chunk.usage.and_then(|usage| usage.output);
        let before = std::mem::replace(&mut self.counted.0, so_far);
        if chunk.ids.is_some() {
            return Some(std::mem::take(&mut self.held));
        }
        let growth = so_far?.checked_sub(before?)?;
        u32::try_from(growth).ok()
    }
}

#[derive(Deserialize)]
struct Raw {
    choices: Option<Choices>,
    usage: Option<RawUsage>,
    error: Option<IgnoredAny>,
    object: Option<Object>,
}

#[derive(Deserialize)]
struct RawUsage {
    prompt_tokens: Option<f64>,
    completion_tokens: Option<f64>,
    prompt_tokens_details: Option<Details>,
}

#[derive(Deserialize)]
struct Details {
    cached_tokens: Option<f64>,
}

/// A count of tokens; the largest there is where it is none, which nobody takes for one ([`super::exchange::Usage`]).
fn count(said: f64) -> u64 {
    // The conversion keeps what is too large at the largest.
    if said >= 0.0 && said.fract() == 0.0 { said as u64 } else { u64::MAX }
}

#[derive(Deserialize)]
struct Choice {
    text: Option<Filled>,
    delta: Option<Delta>,
    token_ids: Option<Length>,
    finish_reason: Option<String>,
}

#[derive(Default, Deserialize)]
struct Delta {
    content: Option<Filled>,
    reasoning_content: Option<Filled>,
    reasoning: Option<Filled>,
    tool_calls: Option<ToolCalls>,
}

#[derive(Deserialize)]
struct ToolCall {
    function: Option<Function>,
}

#[derive(Deserialize)]
struct Function {
    name: Option<Filled>,
    arguments: Option<Filled>,
}

fn filled(field: Option<&Filled>) -> bool {
    field.is_some_and(|field| field.0)
}

/// All choices together: one is asked for.
#[derive(Default)]
struct Choices {
    content: bool,
    answer: bool,
    ids: Option<u32>,
    finish: Option<String>,
}

impl Choices {
    fn add(&mut self, choice: Choice) {
        let delta = choice.delta.unwrap_or_default();
        let calls = delta.tool_calls.is_some_and(|calls| calls.0);
        let answer = filled(choice.text.as_ref()) || filled(delta.content.as_ref()) || calls;
        let reasoning = filled(delta.reasoning_content.as_ref()) || filled(delta.reasoning.as_ref());
        self.answer |= answer;
        self.content |= answer || reasoning;
        if let Some(Length(ids)) = choice.token_ids {
            self.ids = Some(self.ids.unwrap_or(0).saturating_add(ids));
        }
        if choice.finish_reason.is_some() {
            self.finish = choice.finish_reason;
        }
    }
}

/// Whether a text holds anything.
struct Filled(bool);
/// Elements of a list.
struct Length(u32);
/// Whether any call of a tool holds anything.
struct ToolCalls(bool);
/// What kind of thing a JSON object is.
struct Object {
    is_error: bool,
}

struct FilledVisitor;

impl<'de> Visitor<'de> for FilledVisitor {
    type Value = Filled;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }
    fn visit_bytes<E>(self, text: &[u8]) -> Result<Filled, E> {
        Ok(Filled(!text.is_empty()))
    }
    /// Content in parts.
    fn visit_seq<A: SeqAccess<'de>>(self, parts: A) -> Result<Filled, A::Error> {
        LengthVisitor.visit_seq(parts).map(|Length(parts)| Filled(parts > 0))
    }
}

impl<'de> Deserialize<'de> for Filled {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        // As bytes: half a surrogate pair, which is no text, is content all the same.
        from.deserialize_bytes(FilledVisitor)
    }
}

struct LengthVisitor;

impl<'de> Visitor<'de> for LengthVisitor {
    type Value = Length;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Length, A::Error> {
        let mut length = 0;
        while list.next_element::<IgnoredAny>()?.is_some() {
            length += 1;
        }
        Ok(Length(length))
    }
}

impl<'de> Deserialize<'de> for Length {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_seq(LengthVisitor)
    }
}

struct ToolCallsVisitor;

impl<'de> Visitor<'de> for ToolCallsVisitor {
    type Value = ToolCalls;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of calls")
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<ToolCalls, A::Error> {
        let mut any = false;
        while let Some(call) = list.next_element::<ToolCall>()? {
            any |= call.function.is_some_and(|call| filled(call.name.as_ref()) || filled(call.arguments.as_ref()));
        }
        Ok(ToolCalls(any))
    }
}

impl<'de> Deserialize<'de> for ToolCalls {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_seq(ToolCallsVisitor)
    }
}

struct ChoicesVisitor;

impl<'de> Visitor<'de> for ChoicesVisitor {
    type Value = Choices;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of choices")
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Choices, A::Error> {
        let mut all = Choices::default();
        while let Some(choice) = list.next_element::<Choice>()? {
            all.add(choice);
        }
        Ok(all)
    }
}

impl<'de> Deserialize<'de> for Choices {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_seq(ChoicesVisitor)
    }
}

struct ObjectVisitor;

impl Visitor<'_> for ObjectVisitor {
    type Value = Object;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a kind")
    }
    fn visit_bytes<E>(self, name: &[u8]) -> Result<Object, E> {
        Ok(Object { is_error: name == b"error" })
    }
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_bytes(ObjectVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(data: &str) -> Chunk {
        Chunk::read(data.as_bytes()).unwrap()
    }

    #[test]
    fn content_is_what_the_model_put_out() {
        let (none, answer, reasoning) = ((false, false), (true, true), (true, false));
        let cases = [
            (r#"{"choices":[{"index":0,"text":" a"}]}"#, answer),
            (r#"{"choices":[{"index":0,"text":""}]}"#, none),
            (r#"{"choices":[{"index":0,"text":null}]}"#, none),
            (r#"{"choices":[{"text":"\n"}]}"#, answer),
            (r#"{"choices":[{"text":"\ud83d"}]}"#, answer),
            (r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#, none),
            (r#"{"choices":[{"delta":{"role":"assistant","content":null}}]}"#, none),
            (r#"{"choices":[{"delta":{}}]}"#, none),
            (r#"{"choices":[{"delta":{"content":"a"}}]}"#, answer),
            (r#"{"choices":[{"delta":{"content":[{"type":"text","text":"a"}]}}]}"#, answer),
            (r#"{"choices":[{"delta":{"content":"","reasoning_content":"a"}}]}"#, reasoning),
            (r#"{"choices":[{"delta":{"content":null,"reasoning":"a"}}]}"#, reasoning),
            (r#"{"choices":[{"delta":{"content":"b","reasoning":"a"}}]}"#, answer),
            (r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{"}}]}}]}"#, answer),
            (r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"f"}}]}}]}"#, answer),
            (r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":""}}]}}]}"#, none),
            (r#"{"choices":[{"delta":{"tool_calls":null}}]}"#, none),
            (r#"{"choices":[],"usage":{"completion_tokens":4}}"#, none),
            (r#"{"choices":null}"#, none),
            (r#"{"timings":{"predicted_n":4}}"#, none),
        ];
        for (data, expected) in cases {
            let chunk = read(data);
            assert_eq!((chunk.content, chunk.answer), expected, "{data}");
            assert!(!chunk.is_error, "{data}");
        }
    }

    #[test]
    fn usage_and_reason_are_read_where_they_are() {
        let data = r#"{"choices":[{"text":"","finish_reason":"length"}],"usage":{"completion_tokens":6,"prompt_tokens":7,
            "total_tokens":13,"prompt_tokens_details":{"cached_tokens":1}},"timings":{"cache_n":1,"prompt_ms":1000.394}}"#;
        let chunk = read(data);
        assert_eq!(chunk.usage, Some(Usage { prompt: Some(7), cached: Some(1), output: Some(6) }));
        assert_eq!(chunk.finish.as_deref(), Some("length"));
        let data = r#"{"choices":[{"text":"a","finish_reason":null}],"usage":{"prompt_tokens":2,"prompt_tokens_details":null}}"#;
        let chunk = read(data);
        assert_eq!(chunk.usage, Some(Usage { prompt: Some(2), cached: None, output: None }));
        assert_eq!((chunk.finish, chunk.ids), (None, None));
        assert_eq!(read(r#"{"choices":[],"usage":null}"#).usage, None);
        // What is no count of anything is not the end of the stream either.
        for number in ["-1", "0.5", "1e300"] {
            let data = format!(r#"{{"usage":{{"prompt_tokens":4,"completion_tokens":{number}}}}}"#);
            let usage = read(&data).usage.unwrap();
            assert_eq!(usage.plausible(1).0, Usage { prompt: Some(4), cached: None, output: None }, "{number}");
        }
    }

    #[test]
    fn errors_are_no_chunks() {
        assert!(read(r#"{"error":{"message":"no"}}"#).is_error && read(r#"{"error":"no"}"#).is_error);
        assert!(read(r#"{"object":"error","message":"no"}"#).is_error);
        assert!(!read(r#"{"object":"text_completion","error":null,"choices":[]}"#).is_error);
        for bad in ["", "x", "{", "[]", r#"{"choices":[}"#, r#"{"choices":[{"text":7}]}"#, r#"{"choices":[]} x"#] {
            assert!(Chunk::read(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    /// Tokens of each event with content.
    fn tokens(stream: &[&str]) -> Vec<Option<u32>> {
        let mut counter = Counter::default();
        let chunks = stream.iter().map(|data| read(data));
        chunks.filter_map(|chunk| Some(counter.tokens(&chunk)).filter(|_| chunk.content)).collect()
    }

    #[test]
    fn ids_are_counted_and_those_without_text_wait_for_it() {
        let none = r#"{"choices":[{"text":"a","token_ids":null}]}"#;
        let two = r#"{"choices":[{"text":"a","token_ids":[5,6]}]}"#;
        let silent = r#"{"choices":[{"text":"","token_ids":[7]}]}"#;
        assert_eq!(tokens(&[none, none]), [None, None], "a chunk is no token");
        assert_eq!(tokens(&[two, silent, silent, two]), [Some(2), Some(4)]);
    }

    #[test]
    fn usage_in_each_chunk_counts_by_its_growth() {
        let chunk =
            |text: &str, n: u64| format!(r#"{{"choices":[{{"text":"{text}"}}],"usage":{{"completion_tokens":{n}}}}}"#);
        let of = |chunks: &[String]| tokens(&chunks.iter().map(String::as_str).collect::<Vec<_>>());
        let silent = r#"{"choices":[{"text":"a"}]}"#.to_owned();
        assert_eq!(
            of(&[chunk("", 0), chunk("a", 1), chunk("b", 4), chunk("", 5), chunk("c", 7)]),
            [Some(1), Some(3), Some(3)]
        );
        assert_eq!(of(&[silent.clone(), chunk("a", 9), chunk("b", 10)]), [None, None, Some(1)]);
        assert_eq!(of(&[silent.clone(), silent, chunk("", 9)]), [None, None], "the whole count is of no single event");
    }
}
