//! Data without a pattern: the same on the device and on the host, so that either can check the other.

/// Word `i` of the data with this seed. `assets/kernels/common.cuh` computes the same on the device.
///
/// The finaliser of `SplitMix64` (Steele, Lea, Flood 2014) over a counter: every word by itself, in any order.
pub(in crate::probe) const fn random(i: u64, seed: u64) -> u64 {
    let mut z = i.wrapping_add(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
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
}
