//! Routing as the host computes it, in double precision, and the comparison with what the device found.
//!
//! It must not know a GPU. Invariant: no two logits of a token are the same, so that there is one right choice.

use crate::probe::cuda::random;

/// Weights of a layer's experts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layer {
    /// Width of the model.
    pub(super) hidden: u64,
    /// Width of an expert.
    pub(super) ffn: u64,
    /// Bytes of a weight.
    pub(super) bytes: u64,
}

impl Layer {
    /// Bytes of one expert: gate, up and down.
    pub(super) const fn expert_bytes(self) -> u64 {
        3 * self.hidden * self.ffn * self.bytes
    }
}

/// Logits of so many tokens, row by row: 12 random bits, then the number of the expert, in [-8, 8).
pub(super) fn logits(tokens: u32, experts: u32, seed: u64) -> Vec<f32> {
    let all = 0..u64::from(tokens) * u64::from(experts);
    let bits = all.map(|i| ((random(i, seed) >> 52) << 8) | (i % u64::from(experts)));
    bits.map(|bits| (bits as f32 - 524_288.0) / 65_536.0).collect()
}

/// Where tokens go.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Routing {
    /// The experts of each token, the best first.
    pub(super) ids: Vec<u32>,
    /// Their weights, which add up to 1 for each token.
    pub(super) weights: Vec<f64>,
    /// Tokens of each expert.
    pub(super) counts: Vec<u32>,
    /// Where each expert begins in a list by expert, and where that ends.
    pub(super) offsets: Vec<u32>,
}

/// The right routing: softmax over all experts, the `k` best, weights that add up to 1.
pub(super) fn route(logits: &[f32], experts: usize, k: usize) -> Routing {
    let (mut ids, mut weights) = (Vec::new(), Vec::new());
    for row in logits.chunks_exact(experts) {
        let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let exp: Vec<f64> = row.iter().map(|logit| f64::from(logit - most).exp()).collect();
        let sum: f64 = exp.iter().sum();
        let mut order: Vec<usize> = (0..experts).collect();
        order.sort_by(|a, b| exp[*b].total_cmp(&exp[*a]));
        let best = &order[..k];
        let of_best: f64 = best.iter().map(|e| exp[*e] / sum).sum();
        ids.extend(best.iter().map(|e| *e as u32));
        weights.extend(best.iter().map(|e| exp[*e] / sum / of_best));
    }
    let mut counts = vec![0; experts];
    for id in &ids {
        counts[*id as usize] += 1;
    }
    let mut offsets = vec![0];
    for count in &counts {
        offsets.push(offsets[offsets.len() - 1] + count);
    }
    Routing { ids, weights, counts, offsets }
}

impl Routing {
    /// Experts that have a token.
    pub(super) fn hit(&self) -> u64 {
        self.counts.iter().filter(|count| **count > 0).count() as u64
    }

    /// How what the device found differs from this; empty when it does not.
    pub(super) fn against(&self, ids: &[u32], weights: &[f32], counts: &[u32], offsets: &[u32]) -> String {
        /// Single precision, with the device's fast exponential.
        const NEAR: f64 = 1e-5;
        let differ = |found: &[u32], right: &[u32]| {
            let pairs = found.iter().zip(right).filter(|(found, right)| found != right).count();
            pairs + found.len().abs_diff(right.len())
        };
        let far = |(found, right): (&f32, &f64)| {
            let off = (f64::from(*found) - right).abs() / right;
            // NaN is far, too.
            off.is_nan() || off > NEAR
        };
        let far = weights.iter().zip(&self.weights).filter(|pair| far(*pair)).count()
            + weights.len().abs_diff(self.weights.len());
        let wrong = [
            ("indices", differ(ids, &self.ids), ids.len()),
            ("weights", far, weights.len()),
            ("counts", differ(counts, &self.counts), counts.len()),
            ("offsets", differ(offsets, &self.offsets), offsets.len()),
        ];
        let wrong = wrong.iter().filter(|(_, n, _)| *n > 0);
        wrong.map(|(what, n, of)| format!("{n} of {of} {what}")).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_routing_is_what_paper_and_pencil_say() {
        // Softmax over ln 1, ln 2, ln 4, ln 1 is 1/8, 2/8, 4/8, 1/8; the best two are 4/6 and 2/6 of what is left.
        let ln = |x: f32| x.ln();
        let rows = [ln(1.0), ln(2.0), ln(4.0), ln(0.5), ln(3.0), ln(1.0), ln(0.5), ln(0.25)];
        let routing = route(&rows, 4, 2);
        assert_eq!(routing.ids, [2, 1, 0, 1]);
        for (weight, right) in routing.weights.iter().zip([4.0 / 6.0, 2.0 / 6.0, 3.0 / 4.0, 1.0 / 4.0]) {
            assert!((weight - right).abs() < 1e-6, "{weight} {right}");
        }
        assert_eq!((routing.counts.as_slice(), routing.offsets.as_slice()), (&[1, 2, 1, 0][..], &[0, 1, 3, 4, 4][..]));
        assert_eq!(routing.hit(), 3);
    }

    #[test]
    fn no_two_logits_of_a_token_are_the_same() {
        let logits = logits(256, 256, 1);
        for row in logits.chunks_exact(256) {
            let mut row = row.to_vec();
            row.sort_by(f32::total_cmp);
            assert!(row.windows(2).all(|pair| pair[1] - pair[0] >= 1.0 / 65_536.0), "{row:?}");
            assert!(row[0] >= -8.0 && row[255] < 8.0);
        }
        // They go everywhere.
        assert_eq!(route(&logits, 256, 8).hit(), 256);
    }

    #[test]
    fn each_fault_is_told() {
        let right = route(&logits(8, 64, 2), 64, 8);
        let weights: Vec<f32> = right.weights.iter().map(|weight| *weight as f32).collect();
        let Routing { ids, counts, offsets, .. } = right.clone();
        assert_eq!(right.against(&ids, &weights, &counts, &offsets), "");
        let mut swapped = ids.clone();
        swapped.swap(0, 1);
        assert_eq!(right.against(&swapped, &weights, &counts, &offsets), "2 of 64 indices");
        let mut poisoned = weights.clone();
        poisoned[3] = f32::NAN;
        poisoned[4] *= 1.0001;
        assert_eq!(right.against(&ids, &poisoned, &counts, &offsets), "2 of 64 weights");
        assert_eq!(right.against(&ids, &weights, &[0; 64], &offsets[1..]).matches(" of ").count(), 2);
    }

    #[test]
    fn an_expert_has_three_matrices() {
        // Qwen3-235B-A22B: 4096 × 1536, bf16.
        assert_eq!(Layer { hidden: 4096, ffn: 1536, bytes: 2 }.expert_bytes(), 37_748_736);
    }
}
