//! Number formats of matrix products: their bits, the operands that are measured with, and how exact a product is.
//!
//! Pure. Invariant: `element` is to the bit what the kernels in `assets/kernels/operands.cu` write.

use crate::probe::cuda::random;

/// A number format of the operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::probe) enum Format {
    Bf16,
    Fp16,
    Tf32,
    Fp8,
}

/// How fine a format is.
#[derive(Clone, Copy, Debug)]
struct Layout {
    /// Bits behind the first one.
    fraction: i32,
    /// Exponent of the smallest number that has a first bit.
    least: i32,
}

impl Format {
    /// The one that counts most first: it finds the GPU coolest.
    pub(in crate::probe) const ALL: [Self; 4] = [Self::Bf16, Self::Fp16, Self::Tf32, Self::Fp8];

    /// Its name in figures and kernels.
    pub(in crate::probe) const fn name(self) -> &'static str {
        match self {
            Self::Bf16 => "bf16",
            Self::Fp16 => "fp16",
            Self::Tf32 => "tf32",
            Self::Fp8 => "fp8",
        }
    }

    /// Its name for people.
    pub(in crate::probe) const fn label(self) -> &'static str {
        match self {
            Self::Bf16 => "bf16",
            Self::Fp16 => "fp16",
            Self::Tf32 => "TF32",
            Self::Fp8 => "fp8 (e4m3)",
        }
    }

    /// Bytes of an element of an operand.
    pub(in crate::probe) const fn bytes(self) -> u64 {
        match self {
            Self::Bf16 | Self::Fp16 => 2,
            Self::Tf32 => 4,
            Self::Fp8 => 1,
        }
    }

    /// Bytes of an element of the product: bf16 for bf16 and fp8, fp16 for fp16, fp32 for TF32.
    pub(in crate::probe) const fn out_bytes(self) -> u64 {
        match self {
            Self::Bf16 | Self::Fp16 | Self::Fp8 => 2,
            Self::Tf32 => 4,
        }
    }

    /// Compute capability from which tensor cores take it.
    pub(in crate::probe) const fn since(self) -> (i32, i32) {
        match self {
            Self::Fp16 => (7, 0),
            Self::Bf16 | Self::Tf32 => (8, 0),
            Self::Fp8 => (8, 9),
        }
    }

    /// How fine an operand is; TF32 lies in the upper bits of an fp32.
    const fn operand(self) -> Layout {
        let (fraction, least) = match self {
            Self::Bf16 => (7, -126),
            Self::Fp16 => (10, -14),
            Self::Tf32 => (10, -126),
            Self::Fp8 => (3, -6),
        };
        Layout { fraction, least }
    }

    /// Element `i` of the operand with this seed: a number from -2 to 2, spread like a normal distribution.
    pub(in crate::probe) fn element(self, i: u64, seed: u64) -> f64 {
        let word = random(i, seed);
        let parts = [word, word >> 16, word >> 32, word >> 48].map(|part| (part & 0xffff).cast_signed());
        let value = (parts.iter().sum::<i64>() - 131_070) as f64 / 65_536.0;
        let Layout { fraction, least } = self.operand();
        // The exponent as a f64 has it; that of 0 is far below.
        let exponent = ((value.to_bits() >> 52 & 0x7ff) as i32 - 1023).max(least) - fraction;
        let power = |exponent: i32| f64::from_bits(u64::from((exponent + 1023).unsigned_abs()) << 52);
        (value * power(-exponent)).round_ties_even() * power(exponent)
    }

    /// Element `i` of a product that lies in `bytes`; not a number when it is infinite or not there.
    pub(in crate::probe) fn decode(self, bytes: &[u8], i: usize) -> f64 {
        let half = || bytes.get(2 * i..).and_then(|bytes| bytes.first_chunk()).map(|bytes| u16::from_le_bytes(*bytes));
        let value = match self {
            Self::Bf16 | Self::Fp8 => half().map(|bits| f32::from_bits(u32::from(bits) << 16)),
            Self::Fp16 => half().map(fp16),
            Self::Tf32 => {
                bytes.get(4 * i..).and_then(|bytes| bytes.first_chunk()).map(|bytes| f32::from_le_bytes(*bytes))
            }
        };
        value.filter(|value| value.is_finite()).map_or(f64::NAN, f64::from)
    }

    /// How far an element of a product may be off when it is right: `value` of it, of `k` terms whose magnitudes add
    /// up to `sum`.
    ///
    /// Rounding the result is off by half a step. Adding up is off by a step of the accumulator for each term at most,
    /// and by about the root of their number where errors fall to both sides (Higham and Mary 2019, who show four
    /// times that to be as good as certain). Tensor cores cut bits off instead of rounding: a step is twice as large
    /// as in IEEE arithmetic, 2^-23. For fp8 Hopper's keep 13 bits behind the first one between two additions to an
    /// fp32 (DeepSeek-V3, 2024, section 3.3.2), which is off by 2^-13 of the terms at most; twice that is granted.
    pub(in crate::probe) fn tolerance(self, value: f64, k: f64, sum: f64) -> f64 {
        value.abs() * self.rounding() + self.adding(k) * sum
    }

    /// What rounding a product is off by, as a share of it.
    pub(in crate::probe) fn rounding(self) -> f64 {
        match self {
            Self::Bf16 | Self::Fp8 => (-8.0_f64).exp2(),
            Self::Fp16 => (-11.0_f64).exp2(),
            Self::Tf32 => (-24.0_f64).exp2(),
        }
    }

    /// What adding up `k` terms is off by, as a share of the sum of their magnitudes.
    pub(in crate::probe) fn adding(self, k: f64) -> f64 {
        match self {
            Self::Bf16 | Self::Fp16 | Self::Tf32 => 4.0 * k.sqrt() * (-23.0_f64).exp2(),
            Self::Fp8 => (-12.0_f64).exp2(),
        }
    }
}

/// The number that these bits of an fp16 are.
fn fp16(bits: u16) -> f32 {
    let (exponent, fraction) = (u32::from(bits >> 10 & 31), u32::from(bits & 0x3ff));
    let magnitude = match exponent {
        31 => f32::NAN,
        0 => fraction as f32 / 16_777_216.0,
        _ => f32::from_bits((exponent + 112) << 23 | fraction << 13),
    };
    if bits >> 15 == 0 { magnitude } else { -magnitude }
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "each number has one right set of bits")]
mod tests {
    use super::*;

    #[test]
    fn bits_are_those_of_the_formats() {
        let number = |format: Format, bits: u32| format.decode(&bits.to_le_bytes(), 0);
        assert_eq!([0x3f80, 0xc040, 0x0001].map(|bits| number(Format::Bf16, bits)), [1.0, -3.0, 2.0_f64.powi(-133)]);
        assert_eq!([0x3c00, 0xc200, 0x0001].map(|bits| number(Format::Fp16, bits)), [1.0, -3.0, 2.0_f64.powi(-24)]);
        for value in [1.0_f32, -0.1, 3.4e38, 1e-40] {
            assert_eq!(number(Format::Tf32, value.to_bits()), f64::from(value));
        }
        // What a poisoned result holds is no number in any of them, and what is not there is none either.
        assert!(Format::ALL.iter().all(|format| number(*format, u32::MAX).is_nan()));
        assert!(number(Format::Bf16, 0x7f80).is_nan() && Format::Bf16.decode(&[0; 4], 3).is_nan());
        assert_eq!(Format::Bf16.decode(&[0, 0, 0x80, 0x3f], 1), 1.0);
    }

    #[test]
    fn operands_spread_like_a_normal_distribution() {
        for format in Format::ALL {
            let n = 100_000;
            let values: Vec<f64> = (0..n).map(|i| format.element(i, 7)).collect();
            let mean = values.iter().sum::<f64>() / n as f64;
            let deviation = (values.iter().map(|v| v * v).sum::<f64>() / n as f64).sqrt();
            assert!(mean.abs() < 0.01 && (deviation - 1.0 / 3.0_f64.sqrt()).abs() < 0.01, "{mean} {deviation}");
            assert!(values.iter().all(|value| value.abs() <= 2.0));
            // Each is a number of the format: no more than its bits behind the first one.
            let Layout { fraction, least } = format.operand();
            for value in values {
                // 2^-17 is half the smallest magnitude that there is before rounding.
                let steps = value.abs() / f64::from((least - fraction).max(-17)).exp2();
                let odd = steps as u64 >> (steps as u64).trailing_zeros().min(63);
                assert!(steps.fract() == 0.0 && odd < 2 << fraction, "{format:?} {value}");
            }
        }
    }

    #[test]
    fn operands_are_rounded_to_nearest_even() {
        // Against the rounding of the standard library's f32, seen through the upper half of its bits.
        for i in 0..10_000 {
            let exact = Format::Tf32.element(i, 1);
            let word = random(i, 1);
            let sum: u64 = (0..4).map(|part| word >> (16 * part) & 0xffff).sum();
            let value = (sum as f32 - 131_070.0) / 65_536.0;
            let bits = value.to_bits();
            let nearest = bits.wrapping_add(0xfff + (bits >> 13 & 1)) & !0x1fff;
            assert_eq!(exact, f64::from(f32::from_bits(nearest)));
        }
    }

    #[test]
    fn the_tolerance_grows_with_the_terms() {
        let bf16 = Format::Bf16.tolerance(32.0, 8192.0, 1750.0);
        // Half a step of a bf16 at 32 is 1/16; a product that is wrong is off by about 30.
        assert!(bf16 > 0.0625 && bf16 < 0.25, "{bf16}");
        assert!(Format::Tf32.tolerance(32.0, 8192.0, 1750.0) < bf16);
        assert!(Format::Fp8.tolerance(32.0, 8192.0, 1750.0) < 1.0);
    }
}
