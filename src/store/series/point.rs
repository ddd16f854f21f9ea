//! A reading as it is kept: 4 bytes, in which a missing one is a NaN with its reason. It must not know what is measured.

use crate::model::{Reading, Why};

/// A point: time since the store's epoch and a value, or a [`Why`] coded as a NaN.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    pub(super) at: u32,
    pub(super) value: f32,
}

const MISSING_BITS: u32 = 0x7fc0_0000;

/// Farthest from 0 that a point lies: sums of points, each times its milliseconds, stay numbers. Nothing that is measured
/// comes near it; a server may say it all the same.
const FARTHEST: f32 = 1e24;

pub(super) fn encode(reading: Reading) -> f32 {
    match reading {
        Reading::Value(value) => (value as f32).clamp(-FARTHEST, FARTHEST),
        Reading::Missing(why) => f32::from_bits(MISSING_BITS | (why as u32 + 1)),
    }
}

pub(super) fn decode(value: f32) -> Reading {
    if !value.is_nan() {
        return Reading::new(f64::from(value));
    }
    let code = (value.to_bits() & 0xff).wrapping_sub(1) as usize;
    Reading::Missing(Why::ALL.get(code).copied().unwrap_or(Why::Failed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_value_keeps_its_reason() {
        for why in Why::ALL {
            assert_eq!(decode(encode(Reading::Missing(why))), Reading::Missing(why));
        }
    }

    #[test]
    fn a_point_lies_where_sums_of_points_are_numbers() {
        for (value, kept) in
            [(f64::MAX, 1e24), (1e308, 1e24), (-1e308, -1e24), (5e-324, 0.0), (-0.0, 0.0), (80.0, 80.0)]
        {
            assert!((encode(Reading::Value(value)) - kept).abs() <= 0.0, "{value}");
        }
        assert!((encode(Reading::Value(f64::MAX)) * u32::MAX as f32 * 600.0).is_finite());
    }
}
