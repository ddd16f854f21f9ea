//! Data without a pattern: the same on the device and on the host, so that either can check the other.

use super::{Arg, Buffer, Failure, Gpu, Grid, Kernel, Stream};

const KERNELS: &str = include_str!("../../../assets/kernels/random.ptx");
/// What one kernel goes through at most, bytes: 3 ms at 48 GB/s, the slowest memory of a GPU that still gets drivers.
const PIECE: u64 = 128 << 20;

/// Word `i` of the data with this seed. `assets/kernels/common.cuh` computes the same on the device.
///
/// The finaliser of `SplitMix64` (Steele, Lea, Flood 2014) over a counter: every word by itself, in any order.
pub(in crate::probe) const fn random(i: u64, seed: u64) -> u64 {
    let mut z = i.wrapping_add(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The device's side of it, in kernels of less than 5 ms each.
pub(in crate::probe) struct RandomData {
    words: Kernel,
    doubles: Kernel,
    wrong: Kernel,
    grid: Grid,
}

impl Gpu {
    /// Loads what makes and compares such data.
    ///
    /// # Errors
    /// The driver's.
    pub(in crate::probe) fn random_data(&self) -> Result<RandomData, Failure> {
        let module = self.module(KERNELS)?;
        Ok(RandomData {
            words: module.kernel("fill_words")?,
            doubles: module.kernel("fill_doubles")?,
            wrong: module.kernel("count_wrong_words")?,
            grid: Grid::new(self.sms()? * 8, 256),
        })
    }
}

impl RandomData {
    /// Gives the stream the work of writing the data with this seed into a buffer, as it is.
    ///
    /// # Errors
    /// The driver's.
    pub(in crate::probe) fn fill_words(&self, stream: &Stream, to: &Buffer, seed: u64) -> Result<(), Failure> {
        self.each(stream, &self.words, to, to.bytes(), seed, None)
    }

    /// The same as doubles from [1, 2).
    ///
    /// # Errors
    /// The driver's.
    pub(in crate::probe) fn fill_doubles(&self, stream: &Stream, to: &Buffer, seed: u64) -> Result<(), Failure> {
        self.each(stream, &self.doubles, to, to.bytes(), seed, None)
    }

    /// How many of the first `bytes` / 8 words of a buffer are not those of the data with this seed. `count` is one word
    /// to count in.
    ///
    /// # Errors
    /// When the buffer is too short, or the driver's.
    pub(in crate::probe) fn wrong_words(
        &self,
        stream: &Stream,
        of: &Buffer,
        bytes: u64,
        seed: u64,
        count: &Buffer,
    ) -> Result<u64, Failure> {
        of.at(0, bytes)?;
        stream.fill(count, 0)?;
        self.each(stream, &self.wrong, of, bytes, seed, Some(count.into()))?;
        count.word(0)
    }

    fn each(
        &self,
        stream: &Stream,
        kernel: &Kernel,
        buffer: &Buffer,
        bytes: u64,
        seed: u64,
        last: Option<Arg>,
    ) -> Result<(), Failure> {
        pieces(bytes).try_for_each(|(at, bytes)| {
            // Word i + k with a seed is word i with the seed + k.
            let seed = seed.wrapping_add(at / 8);
            let args = [Arg::U64(buffer.address() + at), Arg::U64(bytes / 8), Arg::U64(seed)];
            stream.launch(kernel, self.grid, &args.into_iter().chain(last).collect::<Vec<_>>())
        })
    }
}

/// Places and sizes of the pieces of so many bytes, none of which keeps a GPU for longer than a kernel may.
pub(super) fn pieces(bytes: u64) -> impl Iterator<Item = (u64, u64)> {
    (0..bytes.div_ceil(PIECE)).map(move |i| (i * PIECE, PIECE.min(bytes - i * PIECE)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_splitmix64() {
        // First outputs of SplitMix64 from seed 0, as its authors' reference code prints them: its state is a
        // multiple of the constant that `random` multiplies with.
        assert_eq!([random(1, 0), random(2, 0)], [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4]);
    }

    #[test]
    fn data_in_pieces_are_the_same_data() {
        assert_eq!(random(5 + 1_000, 7), random(5, 7 + 1_000), "a piece is made by moving its seed");
        for bytes in [0, 8, PIECE - 8, PIECE, PIECE + 8, 3 * PIECE, (8 << 30) + 4_096] {
            let mut end = 0;
            for (at, bytes) in pieces(bytes) {
                assert!(at == end && bytes > 0 && bytes <= PIECE && at % 8 == 0, "{at} {bytes}");
                end = at + bytes;
            }
            assert_eq!(end, bytes);
        }
    }
}
