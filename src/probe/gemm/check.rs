//! Whether a product of matrices is right, by the arithmetic of the host.
//!
//! Pure. Two looks, both from operands that the host makes itself: some elements one by one, and all of them at once by
//! Freivalds' test. Invariant: an element that is no number is wrong.

use super::format::Format;
use crate::probe::cuda::random;

/// Seed of the signs, and of the rows and columns that are looked at.
const SEED: u64 = 0x5167;
/// Rows and columns that are looked at: each with each.
const LINES: u64 = 12;
/// Mean magnitude of an operand: of the sum of four equal spreads of width 1 (Irwin and Hall).
const MAGNITUDE: f64 = 7.0 / 15.0;

/// C = A · Bᵀ, all three n × n.
#[derive(Clone, Copy, Debug)]
pub(super) struct Product {
    pub(super) format: Format,
    pub(super) n: u64,
    /// Seeds of A and B.
    pub(super) seeds: (u64, u64),
}

/// The two sides of Freivalds' test.
#[derive(Debug)]
pub(super) struct Freivalds {
    /// Random signs.
    x: Vec<f64>,
    /// What each row of C has to come to.
    right: Vec<f64>,
}

impl Product {
    fn a(&self, row: u64, k: u64) -> f64 {
        self.format.element(row * self.n + k, self.seeds.0)
    }

    fn b(&self, column: u64, k: u64) -> f64 {
        self.format.element(column * self.n + k, self.seeds.1)
    }

    /// The rows and columns that are looked at one by one.
    pub(super) fn lines(&self) -> Vec<(u64, u64)> {
        (0..LINES).map(|i| (random(2 * i, SEED) % self.n, random(2 * i + 1, SEED) % self.n)).collect()
    }

    /// What element (`row`, `column`) is, and how far off it may be.
    pub(super) fn element(&self, row: u64, column: u64) -> (f64, f64) {
        let terms = (0..self.n).map(|k| self.a(row, k) * self.b(column, k));
        let (value, sum) = terms.fold((0.0, 0.0), |(value, sum), term| (value + term, sum + term.abs()));
        (value, self.format.tolerance(value, self.n as f64, sum))
    }

    /// How many elements of some rows of C are wrong, of how many that were looked at. `row` gives the bytes of a row.
    ///
    /// # Errors
    /// Those of `row`.
    pub(super) fn wrong_elements<E>(
        &self,
        mut row: impl FnMut(u64) -> Result<Vec<u8>, E>,
    ) -> Result<(Vec<String>, usize), E> {
        let lines = self.lines();
        let (mut wrong, mut seen) = (Vec::new(), 0);
        for &(i, _) in &lines {
            let bytes = row(i)?;
            for &(_, j) in &lines {
                let found = self.format.decode(&bytes, usize::try_from(j).unwrap_or(usize::MAX / 8));
                let (right, tolerance) = self.element(i, j);
                seen += 1;
                let off = (found - right).abs();
                if off.is_nan() || off > tolerance {
                    wrong.push(format!("C[{i}, {j}] is {found}, not {right:.4} ± {tolerance:.4}"));
                }
            }
        }
        Ok((wrong, seen))
    }

    /// Prepares Freivalds' test: C · x has to be A · (Bᵀ · x) for a vector x of random signs. On as many threads as
    /// the host has CPUs, four at most.
    pub(super) fn freivalds(&self) -> Freivalds {
        let n = self.n;
        let parts = std::thread::available_parallelism().map_or(1, |cpus| cpus.get().min(4) as u64);
        let cut = |part: u64| n * part / parts..n * (part + 1) / parts;
        let x: Vec<f64> = (0..n).map(sign).collect();
        let column_sums = |part: u64| {
            let mut sums = vec![0.0; n as usize];
            for j in cut(part) {
                let x = x[j as usize];
                sums.iter_mut().zip(0..).for_each(|(sum, k)| *sum += x * self.b(j, k));
            }
            sums
        };
        let mut y = vec![0.0; n as usize];
        for part in on_threads(parts, &column_sums) {
            y.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
        }
        let rows = |part: u64| -> Vec<f64> {
            cut(part).map(|i| y.iter().zip(0..).map(|(y, k)| self.a(i, k) * y).sum()).collect()
        };
        let right = on_threads(parts, &rows).concat();
        Freivalds { x, right }
    }

    /// Whether row `i` of C, which lies in `bytes`, fails the test: how far off, and how far it may be.
    ///
    /// Errors of elements that are right fall to both sides, so that those of a row add up to the root of their squares;
    /// six times that is granted. That is about 30 for bf16 and n = 8192, and so are the elements: one whose exponent was hit
    /// is seen, and so is a tile that is wrong, which is off by ten times as much.
    pub(super) fn fails(&self, freivalds: &Freivalds, i: u64, bytes: &[u8]) -> Option<(f64, f64)> {
        let n = self.n as f64;
        // A fourth: `adding` is four times what is to be expected.
        let adding = self.format.adding(n) / 4.0 * n * MAGNITUDE * MAGNITUDE;
        // The error of rounding lies anywhere up to half a step, a third of its square on average; and half a step is the
        // stated share only of the smallest number with the same exponent, so that a fifth is more than enough.
        let rounding = self.format.rounding().powi(2) / 5.0;
        let (mut found, mut squares) = (0.0, 0.0);
        for (j, x) in freivalds.x.iter().enumerate() {
            let c = self.format.decode(bytes, j);
            found += x * c;
            squares += c * c * rounding + adding * adding;
        }
        let off = (found - freivalds.right.get(i as usize).copied().unwrap_or(f64::NAN)).abs();
        let most = 6.0 * squares.sqrt();
        (off.is_nan() || off > most).then_some((off, most))
    }
}

fn sign(j: u64) -> f64 {
    if random(j, SEED) >> 63 == 0 { 1.0 } else { -1.0 }
}

/// Results of `work` for each part, in order.
fn on_threads<T: Send>(parts: u64, work: &(impl Fn(u64) -> T + Sync)) -> Vec<T> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (1..parts).map(|part| scope.spawn(move || work(part))).collect();
        let first = work(0);
        let rest = threads.into_iter().zip(1..).map(|(thread, part)| {
            // A thread that broke off is made good for here.
            thread.join().unwrap_or_else(|_| work(part))
        });
        std::iter::once(first).chain(rest).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRODUCT: Product = Product { format: Format::Bf16, n: 96, seeds: (3, 4) };

    /// C as a GPU would leave it: added up in an f32, then rounded to bf16.
    fn computed(product: &Product) -> Vec<u8> {
        let mut out = Vec::new();
        for i in 0..product.n {
            for j in 0..product.n {
                let sum = (0..product.n)
                    .fold(0.0_f32, |sum, k| (product.a(i, k) as f32).mul_add(product.b(j, k) as f32, sum));
                let bits = sum.to_bits();
                let bits = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
                out.extend_from_slice(&(bits as u16).to_le_bytes());
            }
        }
        out
    }

    fn row(bytes: &[u8], n: u64, i: u64) -> Vec<u8> {
        bytes[(i * n * 2) as usize..((i + 1) * n * 2) as usize].to_vec()
    }

    fn verdict(product: &Product, bytes: &[u8]) -> (usize, usize) {
        let (wrong, seen) = product.wrong_elements(|i| Ok::<_, ()>(row(bytes, product.n, i))).unwrap();
        assert_eq!(seen as u64, LINES * LINES);
        let test = product.freivalds();
        let fails = (0..product.n).filter(|i| product.fails(&test, *i, &row(bytes, product.n, *i)).is_some());
        (wrong.len(), fails.count())
    }

    #[test]
    fn a_right_product_passes_both_looks() {
        assert_eq!(verdict(&PRODUCT, &computed(&PRODUCT)), (0, 0));
    }

    #[test]
    fn a_wrong_element_is_seen_wherever_it_is() {
        let right = computed(&PRODUCT);
        for at in [0, 4_711, 96 * 96 - 1] {
            let mut bytes = right.clone();
            // A bit of the exponent.
            bytes[2 * at + 1] ^= 0x04;
            assert_eq!(verdict(&PRODUCT, &bytes).1, 1, "element {at}");
            bytes[2 * at..2 * at + 2].copy_from_slice(&[0xff, 0xff]);
            assert_eq!(verdict(&PRODUCT, &bytes).1, 1, "no number at {at}");
        }
        let (i, j) = (PRODUCT.lines()[1].0, PRODUCT.lines()[5].1);
        let mut bytes = right;
        bytes[2 * (i * 96 + j) as usize + 1] ^= 0x04;
        assert!(verdict(&PRODUCT, &bytes).0 > 0);
    }

    #[test]
    fn what_was_never_written_fails() {
        assert_eq!(verdict(&PRODUCT, &vec![0xff; 96 * 96 * 2]), ((LINES * LINES) as usize, 96));
        let (elements, rows) = verdict(&PRODUCT, &vec![0; 96 * 96 * 2]);
        assert!(elements > 100 && rows > 80, "{elements} {rows}");
    }

    #[test]
    fn operands_that_were_mixed_up_fail() {
        let other = Product { seeds: (4, 3), ..PRODUCT };
        let (elements, rows) = verdict(&PRODUCT, &computed(&other));
        assert!(elements > 100 && rows > 80, "{elements} {rows}");
    }
}
