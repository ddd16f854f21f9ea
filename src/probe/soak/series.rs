//! The rate over time: what it was at first, what it came to, and when it fell.
//!
//! Pure: times and rates in. Invariant: a fall is one that lasts to the end; what recovers, or is within the noise, is none.

/// Share of the first rate that has to be lost for a fall.
pub(super) const FALL: f64 = 0.03;
/// How long the first rate is measured, s: on an H200 the power limit takes hold after some 35 ms.
pub(super) const FIRST_S: f64 = 0.025;
/// Share of the time at the end that the sustained rate is from.
const LAST: f64 = 1.0 / 3.0;
/// Points to both sides that a point is smoothed with.
const SIDE: usize = 2;
/// Change within the last part from which the rate has not settled, share.
const UNSETTLED: f64 = 0.01;

/// A rate and the time, s after the load began, at which its measurement began.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    pub(super) at: f64,
    pub(super) rate: f64,
}

fn rates<'a>(points: impl Iterator<Item = &'a Point>) -> Vec<f64> {
    points.map(|point| point.rate).collect()
}

/// Rates of the first moments; of one point at least.
pub(super) fn first(points: &[Point]) -> Vec<f64> {
    let early = points.iter().take_while(|point| point.at < FIRST_S).count().max(1);
    rates(points.iter().take(early))
}

/// Rates of the last part; of one point at least.
pub(super) fn last(points: &[Point]) -> Vec<f64> {
    let n = (points.len() as f64 * LAST).ceil() as usize;
    rates(points.iter().skip(points.len() - n))
}

/// What is lost, % of the first rate.
pub(super) fn loss(first: f64, sustained: f64) -> f64 {
    (1.0 - sustained / first) * 100.0
}

/// When the rate fell by more than [`FALL`] for good, s; `None` when it did not.
///
/// A point counts as fallen when the median around it is below, and as recovered when that is above half the fall again:
/// a rate that swings around the threshold fell once.
pub(super) fn onset(points: &[Point], first: f64) -> Option<f64> {
    let smooth: Vec<f64> = (0..points.len()).map(|i| around(points, i)).collect();
    let recovered = smooth.iter().rposition(|rate| *rate > first * (1.0 - FALL / 2.0));
    let after = recovered.map_or(0, |i| i + 1);
    let fallen = smooth.get(after..)?.iter().position(|rate| *rate < first * (1.0 - FALL))?;
    points.get(after + fallen).map(|point| point.at)
}

/// Median of the rates around a point.
fn around(points: &[Point], i: usize) -> f64 {
    let near = points.get(i.saturating_sub(SIDE)..(i + SIDE + 1).min(points.len())).unwrap_or_default();
    median(&mut rates(near.iter()))
}

/// The middle of some numbers; not a number when there are none.
pub(super) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Whether the rate still fell in the last part.
pub(super) fn still_falls(points: &[Point]) -> bool {
    let mut last = last(points);
    let half = last.len() / 2;
    if half == 0 {
        return false;
    }
    let (early, late) = last.split_at_mut(half);
    median(late) < median(early) * (1.0 - UNSETTLED)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A minute of rates in steps of 50 ms, with noise of ±`noise`.
    fn series(noise: f64, rate: impl Fn(f64) -> f64) -> Vec<Point> {
        let point = |i: u64| {
            let at = i as f64 * 0.05;
            let off = crate::probe::cuda::random(i, 9) as f64 / u64::MAX as f64 * 2.0 - 1.0;
            Point { at, rate: rate(at) * (1.0 + noise * off) }
        };
        (0..1_200).map(point).collect()
    }

    fn found(points: &[Point]) -> Option<f64> {
        onset(points, median(&mut first(points)))
    }

    #[test]
    fn a_step_is_found_where_it_is() {
        for at in [0.5, 7.0, 50.0] {
            let points = series(0.005, |t| if t < at { 788.0 } else { 669.0 });
            let found = found(&points).unwrap();
            assert!((found - at).abs() <= 0.15, "{found} for {at}");
            let (mut first, mut last) = (first(&points), last(&points));
            let lost = loss(median(&mut first), median(&mut last));
            assert!((lost - 15.1).abs() < 1.0 || at > 45.0, "{lost}");
        }
    }

    #[test]
    fn a_drift_begins_where_it_has_taken_three_per_cent() {
        // 10 % in a minute: 3 % after 18 s.
        let points = series(0.003, |t| 800.0 * (1.0 - 0.1 * t / 60.0));
        let found = found(&points).unwrap();
        assert!((found - 18.0).abs() < 1.5, "{found}");
        assert!(still_falls(&points));
    }

    #[test]
    fn noise_is_no_fall() {
        let points = series(0.02, |_| 700.0);
        assert_eq!(found(&points), None);
        assert!(!still_falls(&points));
        assert_eq!(found(&series(0.0, |_| 700.0)), None);
    }

    #[test]
    fn a_dip_that_recovers_is_none_and_what_comes_after_is() {
        let dip = |t: f64| if (10.0..20.0).contains(&t) { 500.0 } else { 700.0 };
        assert_eq!(found(&series(0.005, dip)), None);
        let dip_and_step = |t: f64| if (10.0..20.0).contains(&t) || t >= 40.0 { 500.0 } else { 700.0 };
        let found = found(&series(0.005, dip_and_step)).unwrap();
        assert!((found - 40.0).abs() <= 0.15, "{found}");
    }

    #[test]
    fn a_rate_that_swings_around_the_threshold_fell_once() {
        // Between 2.6 and 3.8 % below from 10 s on.
        let points = series(0.0, |t| if t < 10.0 { 700.0 } else { 700.0 * (0.968 + 0.006 * (t * 2.0).sin()) });
        let found = found(&points).unwrap();
        assert!((10.0..14.0).contains(&found), "{found}");
    }

    #[test]
    fn single_outliers_change_nothing() {
        let mut points = series(0.002, |_| 700.0);
        for i in [5, 400, 1_199] {
            points[i].rate = 100.0;
        }
        assert_eq!(found(&points), None);
        let mut points = series(0.002, |t| if t < 30.0 { 700.0 } else { 600.0 });
        points[900].rate = 700.0;
        assert!((found(&points).unwrap() - 30.0).abs() <= 0.15);
    }

    #[test]
    fn a_run_of_a_moment_has_figures_too() {
        let one = [Point { at: 0.0, rate: 5.0 }];
        assert_eq!((first(&one), last(&one), onset(&one, 5.0), still_falls(&one)), (vec![5.0], vec![5.0], None, false));
        assert_eq!((onset(&[], 5.0), loss(800.0, 600.0)), (None, 25.0));
        assert!(first(&[]).is_empty() && last(&[]).is_empty());
    }
}
