//! The buckets that latencies are kept in where not every one is kept: eight to each doubling, so that a bucket is 9 %
//! wide, from 10 µs to half an hour.

use std::sync::{Arc, LazyLock};

/// Smallest edge, s.
const LEAST_S: f64 = 1e-5;
/// Buckets to a doubling.
const PER_DOUBLING: f64 = 8.0;
/// Number of edges.
const EDGES: u32 = 220;

/// The upper edges of the buckets, s; what is above the last is in a bucket without one.
pub fn edges() -> Arc<[f64]> {
    static ALL: LazyLock<Arc<[f64]>> =
        LazyLock::new(|| (0..EDGES).map(|i| LEAST_S * (f64::from(i) / PER_DOUBLING).exp2()).collect());
    Arc::clone(&ALL)
}

/// The number of the bucket that holds `seconds`.
pub fn bucket(seconds: f64) -> u16 {
    edges().partition_point(|edge| *edge < seconds) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_what_is_above_the_edge_before_and_up_to_its_own() {
        let edges = edges();
        assert!(edges[edges.len() - 1] > 1_700.0 && edges.windows(2).all(|pair| pair[1] / pair[0] < 1.091));
        for seconds in [0.0, 1e-5, 1.1e-5, 0.5, 1.0, 1_700.0, 1e9] {
            let i = usize::from(bucket(seconds));
            assert!(i == 0 || edges[i - 1] < seconds, "{seconds}");
            assert!(edges.get(i).is_none_or(|edge| seconds <= *edge), "{seconds}");
        }
    }
}
