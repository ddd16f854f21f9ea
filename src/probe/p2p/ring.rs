//! In which order GPUs should pass data round: the ring whose slowest hop is the fastest.
//!
//! Pure: a matrix in, an order out. It must not know where the rates come from. Invariants: a ring names every GPU once and
//! begins with the first; up to [`EXACT`] GPUs no ring has a faster slowest hop.

/// GPUs up to which every ring counts: the table has this many times 2 to this power places.
const EXACT: usize = 12;

/// An order of GPUs, each passing to the next and the last to the first.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ring {
    /// Places in the matrix.
    pub(super) order: Vec<usize>,
    /// Rate of its slowest hop.
    pub(super) worst: f64,
}

impl Ring {
    /// The ring of these places in this order.
    pub(super) fn of(order: Vec<usize>, rates: &[Vec<f64>]) -> Self {
        let worst = hops(&order).map(|(from, to)| rates[from][to]).fold(f64::INFINITY, f64::min);
        Self { order, worst }
    }

    /// The hop with the lowest rate.
    pub(super) fn slowest(&self, rates: &[Vec<f64>]) -> Option<(usize, usize)> {
        hops(&self.order).min_by(|a, b| rates[a.0][a.1].total_cmp(&rates[b.0][b.1]))
    }
}

/// From whom to whom a ring passes.
fn hops(order: &[usize]) -> impl Iterator<Item = (usize, usize)> {
    order.iter().enumerate().map(|(i, &from)| (from, order[(i + 1) % order.len()]))
}

/// The ring whose slowest hop is the fastest; `rates[from][to]` is what a hop carries, the diagonal does not count.
/// Proven up to [`EXACT`] GPUs, beyond that the best that exchanges find. `None` for fewer than two GPUs.
pub(super) fn best(rates: &[Vec<f64>]) -> Option<Ring> {
    let n = rates.len();
    if n < 2 || rates.iter().any(|row| row.len() != n) {
        return None;
    }
    Some(Ring::of(if n <= EXACT { exact(rates) } else { near(rates) }, rates))
}

/// Every ring at once: the best path from 0 through each set of GPUs to each of them (Held and Karp, with the slowest hop
/// in place of a sum).
fn exact(rates: &[Vec<f64>]) -> Vec<usize> {
    let n = rates.len();
    // [set][last]: slowest hop of the best path, and whom it came from.
    let mut best = vec![vec![(f64::NEG_INFINITY, 0); n]; 1 << n];
    best[1][0].0 = f64::INFINITY;
    for set in (1_usize..1 << n).step_by(2) {
        for last in (0..n).filter(|last| set >> last & 1 == 1) {
            let (so_far, _) = best[set][last];
            for next in (1..n).filter(|next| set >> next & 1 == 0) {
                let slowest = so_far.min(rates[last][next]);
                let place = &mut best[set | 1 << next][next];
                if slowest > place.0 {
                    *place = (slowest, last);
                }
            }
        }
    }
    let mut set = (1 << n) - 1;
    let closed = |last: &usize| best[set][*last].0.min(rates[*last][0]);
    let mut last = (1..n).max_by(|a, b| closed(a).total_cmp(&closed(b))).unwrap_or(0);
    let mut order = Vec::with_capacity(n);
    while order.len() < n {
        order.push(last);
        let before = best[set][last].1;
        set &= !(1 << last);
        last = before;
    }
    order.reverse();
    order
}

/// The fastest hop each time, then exchanges: turns a part round, or moves a GPU, as long as that helps.
fn near(rates: &[Vec<f64>]) -> Vec<usize> {
    let n = rates.len();
    let mut order = vec![0];
    while let Some(&last) = order.last()
        && let Some(next) =
            (0..n).filter(|i| !order.contains(i)).max_by(|&a, &b| rates[last][a].total_cmp(&rates[last][b]))
    {
        order.push(next);
    }
    let mut score = score_of(&order, rates);
    loop {
        let before = score;
        for from in 1..n {
            for to in 1..n {
                let mut turned = order.clone();
                if from < to {
                    turned[from..=to].reverse();
                } else {
                    let gpu = turned.remove(from);
                    turned.insert(to, gpu);
                }
                let new = score_of(&turned, rates);
                if new > score {
                    (order, score) = (turned, new);
                }
            }
        }
        if score <= before {
            return order;
        }
    }
}

/// Slowest hop, then how many are faster: without them a plateau would end the search.
fn score_of(order: &[usize], rates: &[Vec<f64>]) -> (f64, usize) {
    let worst = hops(order).map(|(from, to)| rates[from][to]).fold(f64::INFINITY, f64::min);
    (worst, hops(order).filter(|&(from, to)| rates[from][to] > worst).count())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Every order of what is in `rest`, after `so_far`.
    fn brute(so_far: &mut Vec<usize>, rest: &mut Vec<usize>, rates: &[Vec<f64>]) -> f64 {
        if rest.is_empty() {
            return Ring::of(so_far.clone(), rates).worst;
        }
        let mut best = f64::NEG_INFINITY;
        for i in 0..rest.len() {
            so_far.push(rest.remove(i));
            best = best.max(brute(so_far, rest, rates));
            if let Some(gpu) = so_far.pop() {
                rest.insert(i, gpu);
            }
        }
        best
    }

    fn matrix(n: usize, values: &[u16]) -> Vec<Vec<f64>> {
        (0..n).map(|i| (0..n).map(|j| f64::from(values[i * n + j])).collect()).collect()
    }

    fn is_ring(order: &[usize], n: usize) -> bool {
        let mut sorted = order.to_vec();
        sorted.sort_unstable();
        order.first() == Some(&0) && sorted == (0..n).collect::<Vec<_>>()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        /// Few different values make ties, as NVLink and PCIe do.
        #[test]
        fn no_ring_is_better(n in 2_usize..8, values in prop::collection::vec(0_u16..6, 64)) {
            let rates = matrix(n, &values);
            let ring = best(&rates).unwrap();
            prop_assert!(is_ring(&ring.order, n), "{:?}", ring.order);
            let right = brute(&mut vec![0], &mut (1..n).collect(), &rates);
            prop_assert!((ring.worst - right).abs() < 1e-9, "{ring:?}, brute force {right}");
        }

        #[test]
        fn exchanges_end_with_a_ring_that_is_no_worse_than_where_they_began(
            n in 2_usize..20,
            values in prop::collection::vec(0_u16..400, 400),
        ) {
            let rates = matrix(n, &values);
            let order = near(&rates);
            prop_assert!(is_ring(&order, n), "{order:?}");
        }
    }

    #[test]
    fn a_ring_through_nvlink_pairs_avoids_pcie_where_it_can() {
        // Links 0-2, 2-1, 1-3, 3-0: the order 0, 1, 2, 3 crosses PCIe twice.
        let mut rates = vec![vec![20.0; 4]; 4];
        for (a, b) in [(0, 2), (2, 1), (1, 3), (3, 0)] {
            rates[a][b] = 100.0;
            rates[b][a] = 100.0;
        }
        let ring = best(&rates).unwrap();
        assert!((ring.worst - 100.0).abs() < 1e-9 && is_ring(&ring.order, 4), "{ring:?}");
        let plain = Ring::of(vec![0, 1, 2, 3], &rates);
        assert!((plain.worst - 20.0).abs() < 1e-9);
        assert_eq!(plain.slowest(&rates), Some((0, 1)));
    }

    #[test]
    fn sixteen_gpus_in_a_hidden_ring_are_found_by_exchanges() {
        // i passes to i + 5: every other hop is slow.
        let n = 16;
        let mut rates = vec![vec![10.0; n]; n];
        for (i, row) in rates.iter_mut().enumerate() {
            row[(i + 5) % n] = 50.0;
        }
        assert!((best(&rates).unwrap().worst - 50.0).abs() < 1e-9);
    }

    #[test]
    fn one_gpu_makes_no_ring_and_two_make_one() {
        assert_eq!((best(&[]), best(&[vec![0.0]])), (None, None));
        let ring = best(&[vec![0.0, 3.0], vec![2.0, 0.0]]).unwrap();
        assert_eq!((ring.order.as_slice(), ring.worst), ([0, 1].as_slice(), 2.0));
    }
}
