//! Server-sent events out of bytes, however the bytes were cut (WHATWG HTML, 9.2.6).
//!
//! It must not know HTTP or what an event means. Invariants: an event is given out with the byte that ends it and never
//! twice; one that is longer than [`MAX_EVENT`] is an error, not memory; once its buffers have grown, nothing is allocated.

use std::mem;

/// Longest event that is read, bytes.
pub const MAX_EVENT: usize = 1 << 20;

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// Its type; empty where none was given.
    pub name: &'a [u8],
    /// Its data, lines joined by LF.
    pub data: &'a [u8],
}

/// An event is longer than [`MAX_EVENT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event of the stream is longer than {} MiB", MAX_EVENT >> 20)]
pub struct TooLong;

/// Splits a stream into events.
#[derive(Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "independent facts of what was read so far")]
pub struct Splitter {
    /// Start of a line whose end has not come.
    line: Vec<u8>,
    name: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    /// The event in the buffers was given out.
    given: bool,
    /// The last byte was CR: an LF after it ends no other line.
    after_cr: bool,
    /// A line was read: no byte order mark can follow.
    begun: bool,
}

impl Splitter {
    /// The next event that `rest` completes; what was read is taken off `rest`. `None`: all was read, and no more is complete.
    ///
    /// # Errors
    /// When an event is too long.
    pub fn next(&mut self, rest: &mut &[u8]) -> Result<Option<Event<'_>>, TooLong> {
        self.forget_given();
        while let Some(&first) = rest.first() {
            if mem::take(&mut self.after_cr) && first == b'\n' {
                *rest = &rest[1..];
                continue;
            }
            let Some(end) = rest.iter().position(|&byte| byte == b'\n' || byte == b'\r') else {
                self.line.extend_from_slice(mem::take(rest));
                self.check_length()?;
                break;
            };
            let (part, tail) = rest.split_at(end);
            self.after_cr = tail.first() == Some(&b'\r');
            *rest = &tail[1..];
            if self.end_line(part)? {
                return Ok(Some(self.give()));
            }
        }
        Ok(None)
    }

    /// The event that the end of the stream completes: there are servers that leave out its blank line.
    ///
    /// # Errors
    /// When it is too long.
    pub fn finish(&mut self) -> Result<Option<Event<'_>>, TooLong> {
        self.forget_given();
        if !self.line.is_empty() {
            self.end_line(b"")?;
        }
        Ok(if self.has_data { Some(self.give()) } else { None })
    }

    fn give(&mut self) -> Event<'_> {
        self.given = true;
        Event { name: &self.name, data: &self.data }
    }

    fn forget_given(&mut self) {
        if mem::take(&mut self.given) {
            self.name.clear();
            self.data.clear();
            self.has_data = false;
        }
    }

    fn check_length(&self) -> Result<(), TooLong> {
        if self.line.len() + self.data.len() + self.name.len() > MAX_EVENT { Err(TooLong) } else { Ok(()) }
    }

    /// Takes in a line that ends with `part`; whether it completes an event.
    fn end_line(&mut self, part: &[u8]) -> Result<bool, TooLong> {
        let is_event = if self.line.is_empty() {
            self.whole_line(part)
        } else {
            self.line.extend_from_slice(part);
            let mut line = mem::take(&mut self.line);
            let is_event = self.whole_line(&line);
            line.clear();
            self.line = line;
            is_event
        };
        self.check_length()?;
        Ok(is_event)
    }

    fn whole_line(&mut self, mut line: &[u8]) -> bool {
        if !mem::replace(&mut self.begun, true) {
            line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        }
        if line.is_empty() {
            if !self.has_data {
                self.name.clear();
            }
            return self.has_data;
        }
        let colon = line.iter().position(|&byte| byte == b':').unwrap_or(line.len());
        let (field, value) = line.split_at(colon);
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => {
                if mem::replace(&mut self.has_data, true) {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(value);
            }
            b"event" => {
                self.name.clear();
                self.name.extend_from_slice(value);
            }
            // A comment has no name; `id` and `retry` are for those who reconnect.
            _ => {}
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Name and data of each event in a stream that comes in these pieces.
    fn events<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<(String, String)> {
        let (mut splitter, mut found) = (Splitter::default(), Vec::new());
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        for mut piece in pieces {
            while let Some(event) = splitter.next(&mut piece).unwrap() {
                found.push((text(event.name), text(event.data)));
            }
            assert!(piece.is_empty());
        }
        if let Some(event) = splitter.finish().unwrap() {
            found.push((text(event.name), text(event.data)));
        }
        assert_eq!(splitter.finish(), Ok(None), "an event is given out once");
        found
    }

    #[test]
    fn fields_are_read_as_the_standard_says() {
        let cases: [(&str, &[(&str, &str)]); 14] = [
            ("data: a\n\n", &[("", "a")]),
            ("data:a\n\ndata:  b\n\n", &[("", "a"), ("", " b")]),
            ("data: a\ndata: b\n\n", &[("", "a\nb")]),
            ("data\n\ndata\ndata\n\n", &[("", ""), ("", "\n")]),
            ("event: error\ndata: a\n\ndata: b\n\n", &[("error", "a"), ("", "b")]),
            ("event: error\n\ndata: b\n\n", &[("", "b")]),
            (": a comment\n:\n\ndata: a\n: another\n\n", &[("", "a")]),
            ("id: 7\nretry: 5\nother\ndata: a\n\n", &[("", "a")]),
            (" data: no\ndatax: no\ndata: a:b\n\n\n\n", &[("", "a:b")]),
            ("\u{feff}data: a\n\n\u{feff}data: no\n\n", &[("", "a")]),
            ("data: a\r\n\r\ndata: b\r\rdata: c\n\n", &[("", "a"), ("", "b"), ("", "c")]),
            ("data: a\r\ndata: b\rdata: c\n\r\n", &[("", "a\nb\nc")]),
            ("data: a\n\ndata: [DONE]\n", &[("", "a"), ("", "[DONE]")]),
            ("data: a\n\ndata: [DONE]", &[("", "a"), ("", "[DONE]")]),
        ];
        for (stream, expected) in cases {
            let expected: Vec<_> = expected.iter().map(|(n, d)| (n.to_string(), d.to_string())).collect();
            assert_eq!(events([stream.as_bytes()]), expected, "{stream:?}");
            assert_eq!(events(stream.as_bytes().chunks(1)), expected, "{stream:?} byte by byte");
            for cut in 0..=stream.len() {
                let (a, b) = stream.as_bytes().split_at(cut);
                assert_eq!(events([a, b]), expected, "{stream:?} cut at {cut}");
            }
        }
    }

    #[test]
    fn an_event_comes_with_the_byte_that_ends_it() {
        let mut splitter = Splitter::default();
        for (piece, complete) in
            [("data: a\r", false), ("\n", false), ("\r", true), ("\ndata: b\n", false), ("\n", true)]
        {
            let found = splitter.next(&mut piece.as_bytes()).unwrap().is_some();
            assert_eq!(found, complete, "{piece:?}");
        }
    }

    #[test]
    fn what_is_too_long_is_an_error() {
        let mebibyte = vec![b'x'; MAX_EVENT];
        let mut splitter = Splitter::default();
        assert_eq!(splitter.next(&mut &mebibyte[..]), Ok(None), "so long may a line be");
        assert_eq!(splitter.next(&mut &b"x"[..]), Err(TooLong));
        let line = [b"data: ", &[b'x'; 999][..], b"\n"].concat();
        let mut splitter = Splitter::default();
        let lines = (0..MAX_EVENT).find(|_| splitter.next(&mut &line[..]).is_err()).unwrap();
        assert_eq!(lines, MAX_EVENT / 1000, "many lines are one event");
    }

    #[test]
    fn buffers_that_have_grown_are_kept() {
        let stream = [b"data: ", &[b'x'; 300][..], b"\n\n"].concat();
        let mut splitter = Splitter::default();
        let feed = |splitter: &mut Splitter| {
            for mut piece in stream.chunks(7) {
                while splitter.next(&mut piece).unwrap().is_some() {}
            }
            [splitter.line.as_ptr(), splitter.data.as_ptr()]
        };
        let grown = feed(&mut splitter);
        assert!((0..1000).all(|_| feed(&mut splitter) == grown));
    }
}
