//! Where more load stops giving more throughput: the point where two straight lines through the levels meet, on
//! logarithmic axes, where a straight line of slope 1 means "twice the load, twice the tokens".
//!
//! The lines meet (throughput does not jump), and the point where they do is the one with the least squares among many
//! between the second level and the last but one: either line needs two levels. Invariant: levels that show no knee have
//! none, and it is never outside of what was measured.

use super::level::{Knee, Level, Load, State};

/// Fewest loads.
const LEAST: usize = 4;
/// Points that are tried.
const TRIED: u32 = 2000;
/// Beyond the knee throughput must grow by less than this share of what it grew by before.
const FLATTER: f64 = 0.5;
/// Before the knee it must grow by at least this share of the load's growth: else it lies below all that was measured.
const GROWS: f64 = 0.25;
/// Two lines must leave less than this share of the squares that one line leaves.
const CLOSER: f64 = 0.5;
/// One line that misses the levels by less than this (root mean square, of the logarithm: 1 %) is good enough.
const ONE_LINE: f64 = 0.01;

/// The knee of these levels; `None` where they show none.
pub fn knee(levels: &[Level]) -> Option<Knee> {
    let points = points(levels);
    if points.len() < LEAST {
        return None;
    }
    let logs: Vec<(f64, f64)> = points.iter().map(|(load, rate)| (load.ln(), rate.ln())).collect();
    let (least, most) = (logs[1].0, logs[logs.len() - 2].0);
    let at = |i: u32| least + (most - least) * f64::from(i) / f64::from(TRIED);
    let best =
        (0..=TRIED).filter_map(|i| Bent::through(&logs, at(i))).min_by(|a, b| a.squares.total_cmp(&b.squares))?;
    let straight = squares_of_one_line(&logs);
    let bent = best.before >= GROWS
        && best.beyond < FLATTER * best.before
        && best.squares < CLOSER * straight
        && straight > ONE_LINE * ONE_LINE * logs.len() as f64;
    bent.then(|| best.knee(&points, unit(levels)))
}

/// What a load is, in words: of all levels, since a sweep has one shape.
fn unit(levels: &[Level]) -> &'static str {
    match levels.first().map(|level| level.load) {
        Some(Load::RequestsPerS(_)) => "requests/s",
        _ => "users",
    }
}

/// Load and output tokens per second, the lowest load first; of a load that was measured more than once, the median.
/// Levels that failed or were cut tell nothing of what a load gives; those that got more than was served do.
fn points(levels: &[Level]) -> Vec<(f64, f64)> {
    let mut all: Vec<(f64, f64)> = levels.iter().filter_map(point).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    all.chunk_by(|a, b| a.0.total_cmp(&b.0).is_eq())
        .map(|same| (same[0].0, f64::midpoint(same[(same.len() - 1) / 2].1, same[same.len() / 2].1)))
        .collect()
}

fn point(level: &Level) -> Option<(f64, f64)> {
    if !matches!(level.state, State::Done | State::Short | State::OverSaturated) {
        return None;
    }
    let load = level.load.amount()?;
    let rate = level.output_tokens_per_s?.value;
    (load > 0.0 && rate > 0.0).then_some((load, rate))
}

/// Two straight lines that meet.
#[derive(Clone, Copy, Debug)]
struct Bent {
    /// Where they meet.
    at: f64,
    /// How high that is.
    height: f64,
    /// Slope before.
    before: f64,
    /// Slope beyond.
    beyond: f64,
    /// Squares that are left.
    squares: f64,
}

impl Bent {
    /// By least squares: y = height + before · min(x − at, 0) + beyond · max(x − at, 0).
    fn through(points: &[(f64, f64)], at: f64) -> Option<Self> {
        let parts = |x: f64| [1.0, (x - at).min(0.0), (x - at).max(0.0)];
        let mut rows = [[0.0; 4]; 3];
        for &(x, y) in points {
            let parts = parts(x);
            for (row, part) in rows.iter_mut().zip(parts) {
                for (sum, other) in row.iter_mut().zip(parts.into_iter().chain([y])) {
                    *sum += part * other;
                }
            }
        }
        let [height, before, beyond] = solve(rows)?;
        let squares = points
            .iter()
            .map(|&(x, y)| {
                let [one, low, high] = parts(x);
                (y - height * one - before * low - beyond * high).powi(2)
            })
            .sum();
        Some(Self { at, height, before, beyond, squares })
    }

    fn knee(&self, points: &[(f64, f64)], unit: &str) -> Knee {
        let at = self.at.exp();
        // A level that is the knee itself is neither below nor above it; it differs by what a float and the steps leave.
        // Where all on one side differ by no more, it is the outermost.
        let loads = || points.iter().map(|(load, _)| *load);
        let below = loads().filter(|load| *load < at * 0.999).reduce(f64::max).or_else(|| loads().next());
        let above = loads().filter(|load| *load > at * 1.001).reduce(f64::min).or_else(|| loads().next_back());
        let (below, above) = (below.unwrap_or(at), above.unwrap_or(at));
        let words = format!(
            "throughput grows with {:.2} of the load's growth up to {} {unit} and {:.2} beyond (two lines through {} levels)",
            self.before,
            short(at),
            self.beyond,
            points.len(),
        );
        Knee { at, lo: below, hi: above, output_tokens_per_s: self.height.exp(), words }
    }
}

/// Three digits at most, and none behind the point from 10 on.
fn short(load: f64) -> String {
    if load >= 9.95 { format!("{load:.0}") } else { format!("{load:.1}") }
}

/// Three linear equations by elimination, the largest first; `None` where they have no one solution.
fn solve(mut rows: [[f64; 4]; 3]) -> Option<[f64; 3]> {
    for i in 0..3 {
        let largest = (i..3).max_by(|a, b| rows[*a][i].abs().total_cmp(&rows[*b][i].abs()))?;
        rows.swap(i, largest);
        if rows[i][i].abs() < 1e-12 {
            return None;
        }
        let of = rows[i];
        for row in rows.iter_mut().skip(i + 1) {
            let factor = row[i] / of[i];
            row.iter_mut().zip(of).for_each(|(value, other)| *value -= factor * other);
        }
    }
    let z = rows[2][3] / rows[2][2];
    let y = (rows[1][3] - rows[1][2] * z) / rows[1][1];
    let x = (rows[0][3] - rows[0][1] * y - rows[0][2] * z) / rows[0][0];
    Some([x, y, z])
}

/// What the straight line with the least squares leaves.
fn squares_of_one_line(points: &[(f64, f64)]) -> f64 {
    let n = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / n;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let sum = |of: &dyn Fn(f64, f64) -> f64| points.iter().map(|point| of(point.0 - x, point.1 - y)).sum::<f64>();
    sum(&|_, dy| dy * dy) - sum(&|dx, dy| dx * dy).powi(2) / sum(&|dx, _| dx * dx)
}

#[cfg(test)]
mod tests {
    use super::super::level::Rate;
    use super::*;

    fn level(users: u32, rate: f64) -> Level {
        Level {
            load: Load::Users(users),
            state: State::Done,
            output_tokens_per_s: Some(Rate { value: rate, lo: None, hi: None }),
            ..Level::default()
        }
    }

    fn sweep(rate: impl Fn(f64) -> f64) -> Vec<Level> {
        [1, 2, 4, 8, 16, 32, 64].map(|users| level(users, rate(f64::from(users)))).to_vec()
    }

    #[test]
    fn a_hard_knee_is_found_where_it_is() {
        let got = knee(&sweep(|c| 50.0 * c.min(20.0))).unwrap();
        assert!((got.at - 20.0).abs() < 0.1 && (got.output_tokens_per_s - 1000.0).abs() < 5.0, "{got:?}");
        assert_eq!((got.lo, got.hi), (16.0, 32.0));
        let words = "throughput grows with 1.00 of the load's growth up to 20 users and 0.00 beyond (two lines through 7 levels)";
        // The steps leave a slope of some 1e-4, of either sign.
        assert_eq!(got.words.replace("-0.00", "0.00"), words);
    }

    #[test]
    fn a_knee_at_a_level_has_that_level_on_neither_side() {
        let got = knee(&sweep(|c| 50.0 * c.min(16.0) * (c / 16.0).max(1.0).powf(0.1))).unwrap();
        assert!((got.at - 16.0).abs() < 0.02, "{got:?}");
        assert_eq!((got.lo, got.hi), (8.0, 32.0));
    }

    #[test]
    fn a_curve_that_saturates_slowly_has_its_knee_near_half_of_what_it_saturates_at() {
        for half in [6.0, 8.0, 12.0] {
            let got = knee(&sweep(|c| 2000.0 * c / (c + half))).unwrap();
            assert!((0.5..2.5).contains(&(got.at / half)), "{half}: {got:?}");
            assert!(got.lo < got.at && got.at < got.hi, "{got:?}");
        }
    }

    #[test]
    fn where_throughput_grows_all_the_way_or_never_there_is_no_knee() {
        assert_eq!(knee(&sweep(|c| 30.0 * c)), None);
        assert_eq!(knee(&sweep(|c| 30.0 * c.powf(0.7))), None);
        assert_eq!(knee(&sweep(|_| 700.0)), None);
        // It bends upwards.
        assert_eq!(knee(&sweep(|c| 30.0 * c.powf(0.3) * (c / 8.0).max(1.0))), None);
    }

    #[test]
    fn noise_moves_the_knee_a_little_and_makes_none() {
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..200 {
            let mut noisy = |rate: f64| rate * (0.97 + 0.06 * random.f64());
            let bent: Vec<Level> = sweep(|c| 50.0 * c.min(20.0)).iter().map(|l| noise(l, &mut noisy)).collect();
            let got = knee(&bent).unwrap();
            assert!((15.0..27.0).contains(&got.at), "{got:?}");
            let straight: Vec<Level> = sweep(|c| 50.0 * c).iter().map(|l| noise(l, &mut noisy)).collect();
            let flat: Vec<Level> = sweep(|_| 500.0).iter().map(|l| noise(l, &mut noisy)).collect();
            assert_eq!((knee(&straight), knee(&flat)), (None, None));
        }
    }

    fn noise(of: &Level, noisy: &mut impl FnMut(f64) -> f64) -> Level {
        Level {
            output_tokens_per_s: of.output_tokens_per_s.map(|rate| Rate { value: noisy(rate.value), ..rate }),
            ..of.clone()
        }
    }

    #[test]
    fn a_level_that_failed_or_is_not_over_or_has_no_rate_does_not_count() {
        let good = sweep(|c| 50.0 * c.min(20.0));
        let mut with_bad = good.clone();
        with_bad.push(Level { state: State::Failing, ..level(128, 3.0) });
        for (users, state) in [(3, State::Measuring), (6, State::OutOfBudget), (7, State::Stopped)] {
            with_bad.push(Level { state, ..level(users, 1.0) });
        }
        with_bad.push(Level { output_tokens_per_s: None, ..level(5, 1.0) });
        assert_eq!(knee(&with_bad), knee(&good));
        assert_eq!(knee(&good[4..]), None, "three levels are too few");
        assert_eq!(knee(&[]), None);
    }

    #[test]
    fn loads_that_hardly_differ_still_enclose_the_knee() {
        let at = |load: f64, rate| Level { load: Load::RequestsPerS(load), ..level(0, rate) };
        let rates = [(1.0, 10.0), (1.0005, 100.0), (2.0, 105.0), (4.0, 110.0), (8.0, 115.0)];
        let got = knee(&rates.map(|(load, rate)| at(load, rate))).unwrap();
        assert_eq!((got.lo, got.hi), (1.0, 2.0), "{got:?}");
    }

    #[test]
    fn of_repeats_the_median_counts_in_whatever_order_they_come() {
        let mut levels = sweep(|c| 50.0 * c.min(20.0));
        let expected = knee(&levels);
        levels.insert(0, level(32, 4.0));
        levels.push(level(32, 9000.0));
        assert_eq!(knee(&levels), expected);
    }

    #[test]
    fn an_open_loop_speaks_of_requests_per_second() {
        let levels: Vec<Level> = [0.5, 1.0, 2.0, 3.0, 4.0, 6.0]
            .map(|rate: f64| Level { load: Load::RequestsPerS(rate), ..level(0, 100.0 * rate.min(2.5)) })
            .to_vec();
        let got = knee(&levels).unwrap();
        assert!((got.at - 2.5).abs() < 0.02 && got.words.contains("up to 2.5 requests/s and"), "{got:?}");
    }
}
