//! What a stream comes to, event by event: the exchange it is part of, and its stamps.
//!
//! It must not know connections or clocks: each piece of the stream comes with the moment at which it arrived.
//! Invariant: a stamp is an event with content, at the moment of the piece that ended the event.

use crate::model::text;
use crate::net::answer;
use crate::net::echo::MASK;
use crate::net::endpoint::Endpoint;

use super::chunk::{Chunk, Counter};
use super::exchange::{Bound, Exchange, Fault, Stamp};
use super::sse::{Event, Splitter, TooLong};

/// Reads one stream.
pub(super) struct Reader<'a> {
    splitter: Splitter,
    story: Story<'a>,
}

/// What was read.
struct Story<'a> {
    endpoint: &'a Endpoint,
    exchange: &'a mut Exchange,
    stamps: &'a mut Vec<Stamp>,
    counter: Counter,
    /// What it may hold, where that is known.
    bound: Option<Bound>,
    events: u64,
    /// Token ids of the output that came.
    ids: u64,
    is_done: bool,
}

impl<'a> Reader<'a> {
    /// Of a stream that may hold so much, where that is known.
    pub(super) fn new(
        endpoint: &'a Endpoint,
        exchange: &'a mut Exchange,
        stamps: &'a mut Vec<Stamp>,
        bound: Option<Bound>,
    ) -> Self {
        let story =
            Story { endpoint, exchange, stamps, counter: Counter::default(), bound, events: 0, ids: 0, is_done: false };
        Self { splitter: Splitter::default(), story }
    }

    /// Takes in a piece that arrived at this moment, µs; whether the stream said that it is done.
    pub(super) fn take(&mut self, mut piece: &[u8], at: u64) -> Result<bool, Fault> {
        while let Some(event) = self.splitter.next(&mut piece).map_err(too_long)? {
            self.story.event(event, at)?;
            if self.story.is_done {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The body ended; the last piece of it arrived at this moment.
    pub(super) fn finish(mut self, at: u64) -> Result<(), Fault> {
        if let Some(event) = self.splitter.finish().map_err(too_long)? {
            match self.story.event(event, at) {
                // Half an event.
                Err(Fault::Malformed(_)) => {}
                other => other?,
            }
        }
        if self.story.is_done || self.story.exchange.finish.is_some() {
            return Ok(());
        }
        Err(Fault::Cut("the stream ended without saying that it is done: did the engine die?".to_owned()))
    }
}

fn too_long(error: TooLong) -> Fault {
    Fault::Malformed(format!("{error}: is this a model that streams?"))
}

impl Story<'_> {
    fn event(&mut self, event: Event<'_>, at: u64) -> Result<(), Fault> {
        if event.name == b"error" {
            return Err(self.error(event.data));
        }
        match event.data {
            // Some keep a connection awake with it.
            b"" => return Ok(()),
            b"[DONE]" => {
                self.is_done = true;
                return Ok(());
            }
            _ => {}
        }
        self.events += 1;
        let chunk = Chunk::read(event.data).map_err(|bad| {
            Fault::Malformed(format!(
                "an event of the stream cannot be understood (byte {} of {}): is this an interface of the OpenAI kind?",
                bad.at,
                event.data.len()
            ))
        })?;
        if chunk.is_error {
            return Err(self.error(event.data));
        }
        self.chunk(chunk, at);
        self.check_bound()
    }

    fn check_bound(&self) -> Result<(), Fault> {
        let Some(bound) = self.bound else { return Ok(()) };
        let tokens = self.ids.max(self.stamps.len() as u64);
        let (most, what) = match (tokens > bound.tokens(), self.events > bound.events()) {
            (true, _) => (bound.tokens(), "tokens"),
            (_, true) => (bound.events(), "events"),
            (false, false) => return Ok(()),
        };
        Err(Fault::Malformed(format!("it goes on after {most} {what} though {} tokens were asked for", bound.0)))
    }

    fn error(&self, data: &[u8]) -> Fault {
        Fault::Stream(answer::words(data, self.endpoint))
    }

    fn chunk(&mut self, chunk: Chunk, at: u64) {
        let tokens = self.counter.tokens(&chunk);
        self.ids += u64::from(chunk.ids.unwrap_or(0));
        let exchange = &mut *self.exchange;
        if chunk.content {
            self.stamps.push(Stamp { at, tokens });
            exchange.first_content.get_or_insert(at);
            exchange.last_content = Some(at);
        }
        if chunk.answer {
            exchange.first_answer.get_or_insert(at);
        }
        if chunk.usage.is_some() {
            exchange.usage = chunk.usage;
        }
        if let Some(finish) = chunk.finish {
            let echoed = self.endpoint.is_echoed(&finish);
            exchange.finish = Some(if echoed { MASK.to_owned() } else { text::clean_to(&finish, 40) });
        }
    }
}
