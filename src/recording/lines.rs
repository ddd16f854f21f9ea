//! Lines of a stream that may be packed, cut, damaged, endless or still being written.
//!
//! It must not know what a line means. Invariants: never more than [`MAX_LINE`] and a chunk are held;
//! a line is handed on as soon as its bytes are there, without waiting for the next ones; a stream of which nothing
//! is of use ends after a bounded number of bytes.

use std::io::{self, BufReader, Cursor, ErrorKind, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use flate2::bufread::MultiGzDecoder;

use super::MAX_LINE;

/// Bytes handed to the unpacker at a time. When they turn out to be damaged, all that it unpacked of
/// them is lost: a second of a recording at most.
const PACKED_CHUNK: usize = 512;
/// Bytes in a row of which nothing is of use, those that came and those they unpacked to, before a stream is given up.
/// What is not packed counts twice. More than any part that is damaged in a recording that is worth playing.
pub(super) const MAX_USELESS: usize = 128 << 20;
/// Large enough to take what one packed chunk unpacks to: the rest would stay inside the unpacker
/// until the next bytes of a live pipe come.
const CHUNK: usize = 1 << 16;
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// How a stream ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// As it should.
    Whole,
    /// Before its end mark.
    Cut,
    /// What follows cannot be unpacked, or its checksum is wrong.
    Damaged,
    /// Too much came of which nothing was of use.
    Useless,
    /// Reading failed: the system's words.
    Failed(String),
}

/// A line, without its line feed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line<'a> {
    /// With its line feed.
    Whole(&'a [u8]),
    /// The last bytes, without one.
    Last(&'a [u8]),
    /// Longer than allowed; passed over.
    TooLong,
}

/// The lines of a stream.
pub(super) struct Lines {
    input: Box<dyn Read + Send>,
    buf: Vec<u8>,
    /// Where the next line begins.
    start: usize,
    /// Up to where no line feed was found.
    searched: usize,
    /// Inside a line that is too long.
    skipping: bool,
    limit: usize,
    /// Bytes that came since the last line that was of use, and those they unpacked to.
    useless: Arc<AtomicUsize>,
    end: Option<End>,
}

/// Counts what comes: also bytes that unpack to nothing.
struct Metered<R>(R, Arc<AtomicUsize>);

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.1.load(Ordering::Relaxed) > MAX_USELESS {
            return Ok(0);
        }
        let n = self.0.read(buf)?;
        self.1.fetch_add(n, Ordering::Relaxed);
        Ok(n)
    }
}

impl Lines {
    /// Reads the first two bytes to see whether the stream is packed. At most `first` bytes come before the
    /// first line that is of use.
    pub(super) fn new(input: impl Read + Send + 'static, first: usize) -> io::Result<Self> {
        let useless = Arc::new(AtomicUsize::new(MAX_USELESS.saturating_sub(first)));
        let mut input = Metered(input, Arc::clone(&useless));
        let mut magic = Vec::new();
        input.by_ref().take(2).read_to_end(&mut magic)?;
        let packed = magic == GZIP_MAGIC;
        let whole = BufReader::with_capacity(CHUNK, Cursor::new(magic).chain(input));
        let input: Box<dyn Read + Send> = if packed {
            Box::new(MultiGzDecoder::new(BufReader::with_capacity(PACKED_CHUNK, whole)))
        } else {
            Box::new(whole)
        };
        let (buf, limit) = (Vec::new(), MAX_LINE);
        Ok(Self { input, buf, start: 0, searched: 0, skipping: false, limit, useless, end: None })
    }

    /// The last line was of use.
    pub(super) fn used(&self) {
        self.useless.store(0, Ordering::Relaxed);
    }

    /// Sets how long a line may be.
    pub(super) const fn limit(&mut self, bytes: usize) {
        self.limit = bytes;
    }

    /// How the stream ended, once it has.
    pub(super) const fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// The next line; waits for it. `None` at the end, for which see [`Lines::end`].
    pub(super) fn next(&mut self) -> Option<Line<'_>> {
        loop {
            if let Some(at) = self.buf[self.searched..].iter().position(|&b| b == b'\n') {
                let line = self.start..self.searched + at;
                self.start = line.end + 1;
                self.searched = self.start;
                if std::mem::take(&mut self.skipping) || line.len() > self.limit {
                    return Some(Line::TooLong);
                }
                return Some(Line::Whole(&self.buf[line]));
            }
            self.searched = self.buf.len();
            if self.skipping || self.buf.len() - self.start > self.limit {
                self.skipping = true;
                self.start = self.searched;
            }
            if self.end.is_some() {
                return self.last();
            }
            if self.useless.load(Ordering::Relaxed) > MAX_USELESS {
                self.end = Some(End::Useless);
            } else {
                self.fill();
            }
        }
    }

    fn last(&mut self) -> Option<Line<'_>> {
        let rest = self.start..self.buf.len();
        self.start = self.buf.len();
        if std::mem::take(&mut self.skipping) {
            return Some(Line::TooLong);
        }
        (!rest.is_empty()).then(|| Line::Last(&self.buf[rest]))
    }

    /// Reads what there is.
    fn fill(&mut self) {
        self.buf.drain(..self.start);
        self.searched -= self.start;
        self.start = 0;
        let held = self.buf.len();
        self.buf.resize(held + CHUNK, 0);
        let got = self.input.read(&mut self.buf[held..]);
        let length = got.as_ref().map_or(0, |&n| n);
        self.buf.truncate(held + length);
        let useless = self.useless.fetch_add(length, Ordering::Relaxed) + length;
        self.end = match got {
            // Its input was not read on; or nothing of it came out.
            _ if useless > MAX_USELESS => Some(End::Useless),
            Ok(0) => Some(End::Whole),
            Ok(_) => None,
            Err(e) if e.kind() == ErrorKind::Interrupted => None,
            Err(e) if e.kind() == ErrorKind::UnexpectedEof => Some(End::Cut),
            Err(e) if matches!(e.kind(), ErrorKind::InvalidData | ErrorKind::InvalidInput) => Some(End::Damaged),
            Err(e) => Some(End::Failed(e.to_string())),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes one after another, without end.
    struct Iterated(Box<dyn Iterator<Item = u8> + Send>);

    impl Read for Iterated {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            buf.iter_mut().zip(self.0.by_ref()).for_each(|(to, byte)| *to = byte);
            Ok(buf.len())
        }
    }

    fn all(bytes: &[u8], limit: usize) -> Vec<String> {
        let mut lines = Lines::new(Cursor::new(bytes.to_vec()), MAX_USELESS).unwrap();
        lines.limit(limit);
        let mut out = Vec::new();
        while let Some(line) = lines.next() {
            out.push(match line {
                Line::Whole(b) => String::from_utf8_lossy(b).into_owned(),
                Line::Last(b) => format!("…{}", String::from_utf8_lossy(b)),
                Line::TooLong => "too long".to_owned(),
            });
        }
        out
    }

    #[test]
    fn lines_are_split_and_the_last_one_is_marked() {
        assert_eq!(all(b"a\n\nbc\nd", 100), ["a", "", "bc", "…d"]);
        assert_eq!(all(b"", 100), [""; 0]);
        assert_eq!(all(b"x", 100), ["…x"]);
    }

    #[test]
    fn a_line_without_end_is_not_kept() {
        let mut bytes = vec![b'x'; 3 * CHUNK];
        bytes.extend_from_slice(b"\nok\n");
        assert_eq!(all(&bytes, CHUNK), ["too long", "ok"]);
        let mut lines = Lines::new(io::repeat(b'x').take(20 << 20), MAX_USELESS).unwrap();
        lines.limit(1000);
        assert_eq!(lines.next(), Some(Line::TooLong));
        assert!(lines.buf.capacity() < 4 * CHUNK, "{}", lines.buf.capacity());
        assert_eq!(lines.next(), None);
        assert_eq!(lines.end(), Some(&End::Whole));
    }

    #[test]
    fn a_stream_of_no_use_is_given_up_and_one_that_is_used_is_not() {
        // What unpacks to nothing: members of gzip that are empty.
        const EMPTY: &[u8] = b"\x1f\x8b\x08\0\0\0\0\0\0\x03\x03\0\0\0\0\0\0\0\0\0";
        let given_up = |bytes: &'static [u8], first: usize| {
            let mut lines = Lines::new(Iterated(Box::new(bytes.iter().copied().cycle())), first).unwrap();
            lines.limit(1000);
            while lines.next().is_some() {}
            (lines.end().cloned(), lines.useless.load(Ordering::Relaxed) <= MAX_USELESS + 2 * CHUNK)
        };
        assert_eq!(given_up(b"x", 1 << 20), (Some(End::Useless), true), "one line without end");
        assert_eq!(given_up(b"\n", 1 << 20), (Some(End::Useless), true), "empty lines without end");
        assert_eq!(given_up(EMPTY, 1 << 20), (Some(End::Useless), true));
        let mut lines = Lines::new(io::repeat(b'\n').take(1 << 20), 1 << 18).unwrap();
        let mut count = 0;
        while lines.next().is_some() {
            lines.used();
            count += 1;
        }
        assert_eq!((count, lines.end()), (1 << 20, Some(&End::Whole)));
    }
}
