//! Unpacks gzip, bounded in what comes of it and in what that costs.
//!
//! It must not know where it comes from. Invariant: whatever the bytes are, no more than [`UNPACK_US`] of CPU time is
//! spent on them.

use std::io::{self, BufRead, ErrorKind, Read};

use flate2::bufread::MultiGzDecoder;

use super::trouble::Trouble;
use crate::model::Clock;

/// CPU time for unpacking one answer, µs: 8 MiB take 40 ms on a slow core. What takes longer was made to.
const UNPACK_US: u64 = 200_000;

/// Unpacks gzip, up to `most` bytes and [`UNPACK_US`].
pub(super) fn unpack(packed: &[u8], most: usize, clock: &dyn Clock) -> Result<Vec<u8>, Trouble> {
    let mut plain = Vec::new();
    let slices = Slices { rest: packed, clock, until: clock.cpu_micros().saturating_add(UNPACK_US) };
    let read = MultiGzDecoder::new(slices).take(most as u64 + 1).read_to_end(&mut plain);
    match read {
        Err(error) if error.kind() == ErrorKind::TimedOut => Err(Trouble::Unpacking),
        Err(_) => Err(Trouble::Packed),
        Ok(length) if length > most => Err(Trouble::TooLarge(most)),
        Ok(_) => Ok(plain),
    }
}

/// Hands out a body slice by slice as long as there is time: one call of the decoder may take in all of it and give
/// nothing.
struct Slices<'a> {
    rest: &'a [u8],
    clock: &'a dyn Clock,
    /// When to give up, by the thread's CPU time, µs.
    until: u64,
}

/// Bytes between two looks at the clock: it costs a microsecond, and they up to a millisecond.
const SLICE: usize = 4 << 10;

impl BufRead for Slices<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.clock.cpu_micros() > self.until {
            return Err(ErrorKind::TimedOut.into());
        }
        Ok(self.rest.get(..SLICE).unwrap_or(self.rest))
    }

    fn consume(&mut self, n: usize) {
        self.rest = self.rest.get(n..).unwrap_or_default();
    }
}

impl Read for Slices<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.fill_buf()?.read(buffer)?;
        self.consume(n);
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use crate::net::answer::MAX_BODY;
    use crate::sampler::work::tests::CostlyClock;

    fn gzip(body: &[u8]) -> Vec<u8> {
        let mut packed = GzEncoder::new(Vec::new(), Compression::best());
        packed.write_all(body).unwrap();
        packed.finish().unwrap()
    }

    #[test]
    fn what_was_packed_is_unpacked_as_far_as_it_may_be_long() {
        let clock = CostlyClock::new(1_000);
        let body = b"vllm:num_requests_running 3\n".repeat(1000);
        let packed = gzip(&body);
        let two: Vec<u8> = [packed.as_slice(), &packed].concat();
        assert_eq!(unpack(&packed, MAX_BODY, &clock).as_ref(), Ok(&body));
        assert_eq!(unpack(&two, MAX_BODY, &clock), Ok(body.repeat(2)));
        assert_eq!(unpack(&packed, body.len() - 1, &clock), Err(Trouble::TooLarge(body.len() - 1)));
        assert_eq!(unpack(&packed[..packed.len() / 2], MAX_BODY, &clock), Err(Trouble::Packed));
        assert_eq!(unpack(&gzip(&vec![b'#'; MAX_BODY + 1]), MAX_BODY, &clock), Err(Trouble::TooLarge(MAX_BODY)));
    }

    /// Fault: engine: an answer that is packed so that it takes seconds to unpack and gives nothing
    /// Seen: its row says `it takes very long to unpack`
    /// Works: every other engine: at most 0.2 s of CPU time are spent, on a thread of its own
    /// Recovers: with the first good answer
    #[test]
    fn unpacking_ends_when_it_has_cost_enough_whatever_comes_of_it() {
        let clock = CostlyClock::new(1_000);
        // Of 20 bytes each, and nothing in them: one call of the decoder takes them all.
        let bomb = gzip(b"").repeat(200_000);
        let trouble = unpack(&bomb, MAX_BODY, &clock).unwrap_err();
        assert_eq!(trouble, Trouble::Unpacking);
        assert!(trouble.to_string().contains("it takes very long to unpack"));
        let looks = clock.cpu_micros() / 1_000;
        assert!((200..250).contains(&looks), "{looks} ms, and not the {} slices of it", bomb.len() / SLICE);
    }
}
