//! Operands on the device, and products of them by cuBLASLt or the own kernel.
//!
//! It must not know what a rate is held against. Invariants: operands come from memory, not from a cache; no product
//! takes longer than [`LONGEST_US`]; what is checked was made by the very algorithm that was measured, over poison.

use super::check::Product;
use super::format::Format;
use crate::probe::cuda::{Arg, BlasLt, Buffer, Gpu, Grid, Kernel, Module, Products, Stream, Types, WORKSPACE};
use crate::probe::{Check, Failure, Link};

/// Longest that a product may take, µs; 5 ms are allowed.
const LONGEST_US: f64 = 4_500.0;
/// Longest that the work between two looks at the clock may take, µs.
pub(in crate::probe) const PASS_US: f64 = 5_000.0;
/// Sizes that are tried, the smallest first; each is a multiple of what the own kernel works in.
const SIZES: [u64; 8] = [256, 1_024, 2_048, 4_096, 6_144, 8_192, 12_288, 16_384];
/// Side of the tiles of the own kernel.
const TILE: u64 = 128;
const TILES: &str = include_str!("../../../assets/kernels/gemm.ptx");
const HOPPER: &str = include_str!("../../../assets/kernels/gemm90.ptx");
/// Shared memory of a block of the kernel for Hopper: four stages, their barriers, and room to start at a multiple of
/// 1024.
const HOPPER_SHARED: u32 = 4 * 3 * 16_384 + 64 + 1_024;
/// Side of what two blocks of it make.
const HOPPER_SIDE: u64 = 256;
const OPERANDS: &str = include_str!("../../../assets/kernels/operands.ptx");

/// What multiplies, and what makes the operands.
pub(in crate::probe) struct Engine {
    by: By,
    operands: Module,
}

enum By {
    /// The library.
    Library(BlasLt),
    /// The own kernels, whether they are those for Hopper, and why not the library when it was wanted.
    Own { kernels: Module, hopper: bool, why: Option<String> },
}

impl Engine {
    /// By the library (`auto`) unless it is not here, by the own kernels (`own`), or by those of them that every GPU with
    /// bf16 takes (`portable`).
    ///
    /// # Errors
    /// When the own kernels are not for this GPU either.
    pub(in crate::probe) fn open(gpu: &Gpu, which: &str) -> Result<Self, Failure> {
        let operands = gpu.module(OPERANDS)?;
        let why = match (which == "auto").then(|| BlasLt::open(gpu)) {
            Some(Ok(lt)) => return Ok(Self { by: By::Library(lt), operands }),
            Some(Err(why)) => Some(why.to_string()),
            None => None,
        };
        let (capability, since) = (gpu.capability()?, Format::Bf16.since());
        if capability < since {
            let (major, minor) = since;
            let why = why.map(|why| format!("; {why}")).unwrap_or_default();
            return Err(Failure::Unavailable(format!("the own kernels need compute capability {major}.{minor}{why}")));
        }
        if capability == (9, 0) && which != "portable" {
            // A driver that is too old for their language takes the others.
            if let Ok(kernels) = gpu.module(HOPPER) {
                return Ok(Self { by: By::Own { kernels, hopper: true, why }, operands });
            }
        }
        Ok(Self { by: By::Own { kernels: gpu.module(TILES)?, hopper: false, why }, operands })
    }

    /// What it is, for the report.
    pub(in crate::probe) fn words(&self) -> String {
        match &self.by {
            By::Library(lt) => format!("cuBLASLt {}", lt.version()),
            By::Own { hopper, why, .. } => {
                let which = if *hopper { "wgmma" } else { "mma.sync" };
                let whose = if why.is_none() { "as it was asked for" } else { "not cuBLASLt" };
                format!("own tensor-core kernel ({which}), {whose}")
            }
        }
    }

    /// Why it is not the library, when that was wanted.
    pub(in crate::probe) fn note(&self) -> Option<String> {
        let By::Own { why: Some(why), .. } = &self.by else { return None };
        Some(format!("not measured with cuBLASLt but with the own kernel: {why}"))
    }

    /// Why this format is not measured with it on a GPU of this compute capability; `None` when it is.
    pub(in crate::probe) fn lacks(&self, format: Format, capability: (i32, i32)) -> Option<String> {
        let (major, minor) = format.since();
        if capability < (major, minor) {
            return Some(format!("it needs compute capability {major}.{minor}"));
        }
        let own = matches!(self.by, By::Own { .. }) && format == Format::Fp8;
        own.then(|| "the own kernels do not have it, cuBLASLt does".to_owned())
    }
}

/// How it multiplies.
enum Way {
    Library(Products, usize),
    /// Tiles of 128 × 128, a block for each.
    Tiles(Kernel),
    /// Pairs of blocks that take 256 × 256 after another.
    Hopper(Kernel),
}

/// Products of one format and size.
pub(in crate::probe) struct Bench<'a> {
    gpu: &'a Gpu,
    format: Format,
    way: Way,
    n: u64,
    /// Operands, so many that none of them is in the L2 when its turn comes again.
    sets: Vec<(Buffer, Buffer)>,
    c: Buffer,
    /// Which operands were taken last.
    turn: usize,
    /// Adds up a product.
    digest: Kernel,
    /// What it comes to.
    sum: Buffer,
}

/// Device memory for products of n × n, bytes.
pub(in crate::probe) const fn bytes(format: Format, n: u64, sets: u64) -> u64 {
    n * n * (2 * sets * format.bytes() + format.out_bytes()) + WORKSPACE
}

/// Sets of operands of so many bytes each that three times the L2 go through it before one comes again.
const fn sets(l2: u64, operands: u64) -> u64 {
    let enough = (3 * l2).div_ceil(operands);
    if enough < 2 {
        2
    } else if enough > 16 {
        16
    } else {
        enough
    }
}

/// The next size after `n`, when it may be tried: `us` is what a product of `n` took. Time grows with the third power
/// of the size at most: the larger, the better the GPU is used.
fn next_size(n: u64, us: f64, most: u64) -> Option<u64> {
    let next = SIZES.into_iter().find(|size| *size > n)?.min(most);
    (next > n && us * (next as f64 / n as f64).powi(3) <= LONGEST_US).then_some(next)
}

impl<'a> Bench<'a> {
    /// The largest products up to `most` × `most` that the GPU does in time and has memory for.
    ///
    /// # Errors
    /// When it cannot do the smallest, or to stop.
    pub(in crate::probe) fn fitting(
        link: &mut Link,
        gpu: &'a Gpu,
        engine: &Engine,
        format: Format,
        most: u64,
    ) -> Result<Self, Failure> {
        let most = (most / HOPPER_SIDE * HOPPER_SIDE).max(HOPPER_SIDE);
        let mut n = SIZES[0].min(most);
        loop {
            link.progress(0.0, None, &format!("{}: how large", format.label()))?;
            let mut bench = Self::new(gpu, engine, format, n, 1)?;
            let us = bench.fastest(link)?;
            drop(bench);
            let l2 = gpu.l2_bytes()?;
            let room = gpu.room();
            let fits = |n: u64| bytes(format, n, sets(l2, 2 * n * n * format.bytes())) <= room;
            match next_size(n, us, most).filter(|next| fits(*next)) {
                Some(next) => n = next,
                None => break,
            }
        }
        let sets = sets(gpu.l2_bytes()?, 2 * n * n * format.bytes());
        let mut bench = Self::new(gpu, engine, format, n, sets)?;
        bench.race(link)?;
        Ok(bench)
    }

    fn new(gpu: &'a Gpu, engine: &Engine, format: Format, n: u64, sets: u64) -> Result<Self, Failure> {
        let way = match &engine.by {
            By::Library(lt) => Way::Library(lt.products(types(format), n)?, 0),
            By::Own { kernels, hopper: false, .. } => Way::Tiles(kernels.kernel(&format!("gemm_{}", format.name()))?),
            By::Own { kernels, .. } => {
                Way::Hopper(kernels.kernel_sharing(&format!("gemm_{}", format.name()), HOPPER_SHARED)?)
            }
        };
        let fill = engine.operands.kernel(&format!("fill_{}", format.name()))?;
        let (side, blocked) = (Arg::U32(u32::try_from(n).unwrap_or(0)), Arg::U32(matches!(way, Way::Hopper(_)).into()));
        let operand = |seed: u64| {
            let buffer = gpu.buffer(n * n * format.bytes())?;
            let grid = Grid::new(gpu.sms()? * 8, 256);
            gpu.stream.launch(&fill, grid, &[(&buffer).into(), side, Arg::U64(seed), blocked])?;
            Ok(buffer)
        };
        let sets = (0..sets).map(|set| Ok((operand(seeds(set).0)?, operand(seeds(set).1)?)));
        let sets = sets.collect::<Result<Vec<_>, Failure>>()?;
        let c = gpu.buffer(n * n * format.out_bytes())?;
        gpu.finish()?;
        let (digest, sum) = (engine.operands.kernel("digest")?, gpu.buffer(8)?);
        Ok(Self { gpu, format, way, n, sets, c, turn: 0, digest, sum })
    }

    /// Side of the matrices.
    pub(in crate::probe) const fn n(&self) -> u64 {
        self.n
    }

    /// Operations of a product: a multiplication and an addition for each of n³ terms.
    pub(in crate::probe) const fn operations(&self) -> f64 {
        2.0 * (self.n * self.n * self.n) as f64
    }

    /// Products that take about so long together, µs; one at least.
    pub(in crate::probe) fn products_in(&mut self, link: &Link, us: f64) -> Result<u32, Failure> {
        Ok(((us / self.fastest(link)?.max(1.0)) as u32).clamp(1, 5_000))
    }

    /// Gives one product to the stream, of the operands whose turn it is.
    pub(in crate::probe) fn give(&mut self, stream: &Stream) -> Result<(), Failure> {
        self.turn = (self.turn + 1) % self.sets.len();
        let (a, b) = &self.sets[self.turn];
        match &self.way {
            Way::Library(products, algorithm) => products.give(stream, *algorithm, (a, b), &self.c),
            Way::Tiles(kernel) => {
                let tiles = u32::try_from(self.n / TILE).unwrap_or(0);
                stream.launch(kernel, Grid::new(tiles * tiles, 128), &self.args(a, b))
            }
            Way::Hopper(kernel) => {
                let parts = u32::try_from((self.n / HOPPER_SIDE).pow(2)).unwrap_or(u32::MAX);
                let grid = Grid::new((self.gpu.sms()? / 2).min(parts) * 2, 384);
                stream.launch(kernel, Grid { shared: HOPPER_SHARED, ..grid }, &self.args(a, b))
            }
        }
    }

    fn args(&self, a: &Buffer, b: &Buffer) -> [Arg; 4] {
        [a.into(), b.into(), (&self.c).into(), Arg::U32(u32::try_from(self.n).unwrap_or(0))]
    }

    /// How long the device takes for `products` one after another, µs.
    pub(in crate::probe) fn pass(&mut self, products: u32) -> Result<f64, Failure> {
        let gpu = self.gpu;
        gpu.stream.time(|stream| (0..products).try_for_each(|_| self.give(stream)))
    }

    /// The shortest of three products, µs, after one that pays for loading the kernel. Rests after them.
    fn fastest(&mut self, link: &Link) -> Result<f64, Failure> {
        let mut times = [0.0; 4];
        for us in &mut times {
            *us = self.pass(1)?;
        }
        link.rest(times.iter().sum::<f64>() as u64)?;
        Ok(times[1..].iter().copied().fold(f64::INFINITY, f64::min))
    }

    /// Chooses the fastest of the library's algorithms.
    fn race(&mut self, link: &Link) -> Result<(), Failure> {
        let Way::Library(products, _) = &self.way else { return Ok(()) };
        let mut best = (f64::INFINITY, 0);
        for candidate in 0..products.algorithms() {
            if let Way::Library(_, algorithm) = &mut self.way {
                *algorithm = candidate;
            }
            let us = self.fastest(link)?;
            if us < best.0 {
                best = (us, candidate);
            }
        }
        if let Way::Library(_, algorithm) = &mut self.way {
            *algorithm = best.1;
        }
        Ok(())
    }

    /// Which operands the last product was made from, and a number that other bits of it would change.
    pub(in crate::probe) fn digest(&self) -> Result<(usize, u64), Failure> {
        let stream = &self.gpu.stream;
        stream.fill(&self.sum, 0)?;
        let words = Arg::U64(self.n * self.n * self.format.out_bytes() / 8);
        let grid = Grid::new(self.gpu.sms()? * 8, 256);
        stream.launch(&self.digest, grid, &[(&self.c).into(), words, (&self.sum).into()])?;
        Ok((self.turn, self.sum.word(0)?))
    }

    /// What was done, for the report.
    pub(in crate::probe) fn method(&self) -> String {
        let n = self.n;
        let how = match &self.way {
            Way::Library(products, _) => format!("cuBLASLt, the fastest of {} algorithms", products.algorithms()),
            Way::Tiles(_) => "own kernel, tiles of 128 × 128".to_owned(),
            Way::Hopper(_) => "own kernel for Hopper, operands in blocks as its tensor cores read them".to_owned(),
        };
        format!("{how}; {n} × {n} × {n}, random, {} sets of operands in turn", self.sets.len())
    }

    /// Compares a product with the host's arithmetic.
    ///
    /// # Errors
    /// The driver's, or to stop.
    pub(in crate::probe) fn check(&mut self, link: &mut Link) -> Result<Vec<Check>, Failure> {
        // Rows of C that are copied at once.
        const ROWS: u64 = 64;
        let gpu = self.gpu;
        // All bits set are no number in any format.
        gpu.stream.fill(&self.c, 0xff)?;
        self.give(&gpu.stream)?;
        let label = self.format.label();
        link.progress(0.0, None, &format!("{label}: checking"))?;
        let product = Product { format: self.format, n: self.n, seeds: seeds(self.turn as u64) };
        let pitch = self.n * self.format.out_bytes();
        let read = |first: u64, rows: u64| {
            let mut bytes = vec![0; (rows * pitch) as usize];
            self.c.read(first * pitch, &mut bytes).map(|()| bytes)
        };
        let (wrong, seen) = product.wrong_elements(|row| read(row, 1))?;
        let elements = Check {
            what: format!("{label}: {seen} elements compared with the host's arithmetic in f64"),
            passed: wrong.is_empty(),
            detail: wrong.first().map_or_else(String::new, |first| format!("{} are wrong: {first}", wrong.len())),
        };
        let test = product.freivalds();
        let mut fails = Vec::new();
        for first in (0..self.n).step_by(ROWS as usize) {
            link.check()?;
            let rows = ROWS.min(self.n - first);
            let bytes = read(first, rows)?;
            let each = bytes.chunks_exact(pitch as usize).zip(first..);
            fails.extend(each.filter_map(|(bytes, i)| Some((i, product.fails(&test, i, bytes)?))));
        }
        let all = Check {
            what: format!("{label}: all elements by Freivalds' test, C · x = A · (Bᵀ · x) for random signs x"),
            passed: fails.is_empty(),
            detail: fails.first().map_or_else(String::new, |(row, (off, most))| {
                format!(
                    "{} of {} rows are wrong: row {row} is off by {off:.3}, {most:.3} is allowed",
                    fails.len(),
                    self.n
                )
            }),
        };
        Ok(vec![elements, all])
    }
}

const fn types(format: Format) -> Types {
    match format {
        Format::Bf16 => Types::BF16,
        Format::Fp16 => Types::FP16,
        Format::Tf32 => Types::TF32,
        Format::Fp8 => Types::FP8,
    }
}

/// Seeds of A and B of a set.
const fn seeds(set: u64) -> (u64, u64) {
    (0xa000 + set, 0xb000 + set)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_grow_while_a_product_stays_short() {
        // 790 TFLOP/s and what is measured below the size that fills an H200.
        assert_eq!(next_size(256, 8.0, 8192), Some(1_024));
        assert_eq!(next_size(1_024, 10.0, 8192), Some(2_048));
        assert_eq!(next_size(4_096, 190.0, 8192), Some(6_144));
        assert_eq!(next_size(6_144, 600.0, 8192), Some(8_192));
        assert_eq!(next_size(8_192, 1_400.0, 8192), None, "as large as was asked for");
        assert_eq!(next_size(8_192, 1_400.0, 16_384), None, "12288 would take 4.7 ms");
        assert_eq!(next_size(1_024, 10.0, 1_280), Some(1_280), "what was asked for is the last size");
        // A GPU of 20 TFLOP/s.
        assert_eq!(next_size(2_048, 860.0, 8192), None);
    }

    #[test]
    fn operands_leave_the_cache_before_they_come_again() {
        let operands = |n: u64| 2 * n * n * 2;
        assert_eq!(sets(60 << 20, operands(8_192)), 2);
        assert_eq!(sets(72 << 20, operands(4_096)), 4);
        assert_eq!(sets(60 << 20, operands(256)), 16);
        for n in [2_048, 4_096, 8_192] {
            assert!(sets(60 << 20, operands(n)) * operands(n) >= 3 * (60 << 20), "{n}");
        }
    }

    #[test]
    fn every_kernel_is_there() {
        let has = |ptx: &str, name: &str| ptx.contains(&format!(".entry {name}("));
        for format in Format::ALL {
            assert!(has(OPERANDS, &format!("fill_{}", format.name())), "{format:?}");
            // Fp8 is the library's alone.
            let own = [TILES, HOPPER].map(|ptx| has(ptx, &format!("gemm_{}", format.name())));
            assert_eq!(own, [format != Format::Fp8; 2], "{format:?}");
        }
        assert!(has(OPERANDS, "digest"));
        // Sides that one of them takes and the other does not would be measured for the one only.
        assert!(SIZES.iter().all(|size| size % HOPPER_SIDE == 0 && HOPPER_SIDE.is_multiple_of(TILE)));
    }

    #[test]
    fn every_set_has_operands_of_its_own() {
        let all: std::collections::BTreeSet<_> = (0..16).flat_map(|set| [seeds(set).0, seeds(set).1]).collect();
        assert_eq!(all.len(), 32);
    }

    #[test]
    fn memory_is_that_of_the_matrices() {
        assert_eq!(bytes(Format::Bf16, 8_192, 2), 5 * (128 << 20) + WORKSPACE);
        assert_eq!(bytes(Format::Tf32, 8_192, 2), 5 * (256 << 20) + WORKSPACE);
    }
}
