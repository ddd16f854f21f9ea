//! Shapes of a streaming loop, and launches of one.

use std::fmt;

use crate::probe::Failure;
use crate::probe::cuda::{Arg, Grid, Kernel, Stream};

/// Longest that the work between two looks at the clock may take, µs: a kernel of this probe takes less than 5 ms.
const PASS_US: f64 = 3_000.0;

/// How a kernel goes through memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// 16-byte pieces that a thread has in flight.
    unroll: u32,
    /// Threads of a block.
    threads: u32,
    /// Tells the caches that nothing is needed twice.
    streaming: bool,
    /// Blocks for each SM, which then go round; 0: a block for each part of the array.
    per_sm: u32,
}

impl Shape {
    /// Those that race.
    pub(super) const ALL: [Self; 32] = all();
    /// For working sets that fit into L2.
    pub(super) const FOR_CACHE: Self = Self { unroll: 4, threads: 512, streaming: false, per_sm: 4 };

    /// The end of the kernel's name.
    pub(super) fn suffix(self) -> String {
        format!("u{}{}", self.unroll, if self.streaming { "_cs" } else { "" })
    }

    /// Blocks and threads for this many pieces on a GPU with so many SMs.
    pub(super) fn grid(self, pieces: u64, sms: u32) -> Grid {
        let parts = pieces.div_ceil(u64::from(self.threads * self.unroll)).max(1);
        let most = if self.per_sm == 0 { i32::MAX.cast_unsigned() } else { sms * self.per_sm };
        Grid::new(u32::try_from(parts).unwrap_or(u32::MAX).min(most), self.threads)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { unroll, threads, streaming, per_sm } = self;
        write!(f, "{unroll} × 16 bytes in flight a thread, blocks of {threads}")?;
        if *per_sm > 0 {
            write!(f, ", {per_sm} a SM")?;
        }
        if *streaming { f.write_str(", streaming hints") } else { Ok(()) }
    }
}

const fn all() -> [Shape; 32] {
    let mut out = [Shape::FOR_CACHE; 32];
    let mut i = 0;
    while i < 32 {
        out[i] = Shape {
            unroll: 1 << (i % 4),
            threads: if i / 4 % 2 == 0 { 256 } else { 1024 },
            streaming: i / 8 % 2 == 1,
            // 2048 threads fill a SM.
            per_sm: if i / 16 == 0 { 0 } else { 2048 / if i / 4 % 2 == 0 { 256 } else { 1024 } },
        };
        i += 1;
    }
    out
}

/// A launch that is ready.
pub(super) struct Pass {
    pub(super) kernel: Kernel,
    pub(super) grid: Grid,
    pub(super) args: [Arg; 6],
}

impl Pass {
    /// Gives it to a stream.
    pub(super) fn give(&self, stream: &Stream) -> Result<(), Failure> {
        stream.launch(&self.kernel, self.grid, &self.args)
    }

    /// How many of them make a measurement.
    pub(super) fn launches(&self, stream: &Stream) -> Result<u32, Failure> {
        // The first pays for loading the kernel.
        stream.time(|stream| self.give(stream))?;
        let us = stream.time(|stream| self.give(stream))?;
        Ok((PASS_US / us.max(1.0)).clamp(1.0, 1000.0) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_is_there_once_and_covers_the_array() {
        for (i, shape) in Shape::ALL.into_iter().enumerate() {
            assert!(!Shape::ALL[..i].contains(&shape), "{shape} twice");
            let grid = shape.grid(1 << 25, 132);
            let parts = u64::from(grid.blocks.0) * u64::from(shape.threads * shape.unroll);
            assert_eq!(parts >= 1 << 25, shape.per_sm == 0, "{shape}");
            assert!(shape.grid(3, 132).blocks.0 == 1 && grid.threads * shape.per_sm <= 2048, "{shape}");
        }
    }
}
