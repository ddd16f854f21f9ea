//! How long it takes to load a block: a latency, and its bytes over a bandwidth.
//!
//! Pure. Invariant: what does not look like such a line is refused, with words.

/// Share of the largest time of a fit that may be latency: beyond it the times say nothing of a bandwidth.
const MOST_LATENCY: f64 = 0.5;
/// How far the line may miss what it was made from, as a share.
const MOST_MISS: f64 = 0.5;

/// The line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Model {
    /// Time of a block of no size, µs.
    pub(super) latency_us: f64,
    /// Bytes a µs, which is MB a second.
    pub(super) bytes_per_us: f64,
}

impl Model {
    /// The line with the least relative error, squared, for these sizes (bytes) and times (µs): in absolute terms only the
    /// largest size would count.
    pub(super) fn fit(points: &[(f64, f64)]) -> Result<Self, String> {
        let mut sizes: Vec<f64> = points.iter().map(|point| point.0).collect();
        sizes.sort_by(f64::total_cmp);
        sizes.dedup();
        let sound = |&(bytes, us): &(f64, f64)| bytes > 0.0 && bytes.is_finite() && us > 0.0 && us.is_finite();
        if sizes.len() < 3 || !points.iter().all(sound) {
            return Err("it takes the times of three sizes to see a line".to_owned());
        }
        // Minimises the sum of (latency × u + slope × v − 1)², with u = 1 / time and v = bytes / time.
        let sum = |f: &dyn Fn(f64, f64) -> f64| points.iter().map(|&(bytes, us)| f(1.0 / us, bytes / us)).sum::<f64>();
        let (uu, uv, vv) = (sum(&|u, _| u * u), sum(&|u, v| u * v), sum(&|_, v| v * v));
        let (u, v) = (sum(&|u, _| u), sum(&|_, v| v));
        let det = uu * vv - uv * uv;
        let (latency_us, slope) = ((u * vv - v * uv) / det, (v * uu - u * uv) / det);
        let model = Self { latency_us, bytes_per_us: 1.0 / slope };
        if !(latency_us.is_finite() && latency_us >= 0.0 && slope > 0.0 && model.bytes_per_us.is_finite()) {
            return Err(format!("a latency of {latency_us:.1} µs and {slope:.2e} µs a byte are no line of copies"));
        }
        let largest = sizes.last().copied().unwrap_or(0.0);
        if latency_us > MOST_LATENCY * model.us(largest) {
            return Err("even the largest copy is mostly latency: no bandwidth can be seen".to_owned());
        }
        let miss = points.iter().map(|&(bytes, us)| model.miss(bytes, us).abs()).fold(0.0, f64::max);
        if miss > MOST_MISS {
            return Err(format!("the times do not lie on a line: it misses one of them by {:.0} %", miss * 100.0));
        }
        Ok(model)
    }

    /// Time for a block, µs.
    pub(super) fn us(&self, bytes: f64) -> f64 {
        self.latency_us + self.floor_us(bytes)
    }

    /// The part of it that the bytes take, µs.
    pub(super) fn floor_us(&self, bytes: f64) -> f64 {
        bytes / self.bytes_per_us
    }

    /// How far the model is off a measured time, as a share of that: 0.1 is 10 % too long.
    pub(super) fn miss(&self, bytes: f64, us: f64) -> f64 {
        self.us(bytes) / us - 1.0
    }

    /// The size that takes twice as long as its bytes alone, which is loaded at half of the bandwidth, bytes.
    pub(super) fn half_bytes(&self) -> f64 {
        self.latency_us * self.bytes_per_us
    }

    /// Share of the time for a block that is latency.
    pub(super) fn latency_share(&self, bytes: f64) -> f64 {
        self.latency_us / self.us(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: [f64; 6] = [4096.0, 65_536.0, 524_288.0, 4_194_304.0, 67_108_864.0, 268_435_456.0];

    /// Times on a line with a latency of 8 µs and 50 GB/s, each off by up to `noise`.
    fn times(noise: f64) -> Vec<(f64, f64)> {
        let off = |i: usize| 1.0 + noise * [0.7, -1.0, 0.4, -0.2, 1.0, -0.6][i];
        SIZES.iter().enumerate().map(|(i, &bytes)| (bytes, (8.0 + bytes / 50_000.0) * off(i))).collect()
    }

    #[test]
    fn a_line_is_found_exactly_and_with_noise_nearly() {
        let exact = Model::fit(&times(0.0)).unwrap();
        assert!((exact.latency_us - 8.0).abs() < 1e-6 && (exact.bytes_per_us - 50_000.0).abs() < 1e-3, "{exact:?}");
        // 8 µs × 50 000 bytes a µs.
        assert!((exact.half_bytes() - 400_000.0).abs() < 0.1);
        assert!((exact.us(400_000.0) - 16.0).abs() < 1e-5 && (exact.latency_share(400_000.0) - 0.5).abs() < 1e-6);
        let noisy = Model::fit(&times(0.05)).unwrap();
        assert!((noisy.latency_us / 8.0 - 1.0).abs() < 0.06, "{noisy:?}");
        assert!((noisy.bytes_per_us / 50_000.0 - 1.0).abs() < 0.06, "{noisy:?}");
        for (bytes, right) in [(131_072.0, 10.621_44), (1_228_800.0, 32.576), (16_777_216.0, 343.544_32)] {
            let (found, miss) = (noisy.us(bytes), noisy.miss(bytes, right));
            assert!(miss.abs() < 0.06 && (found / right - 1.0 - miss).abs() < 1e-12, "{bytes}: {found} for {right}");
        }
    }

    #[test]
    fn small_sizes_count_as_much_as_large_ones() {
        // The largest is 10 % slow: in absolute terms nothing else would count, and the latency would be nonsense.
        let mut points = times(0.0);
        points[5].1 *= 1.1;
        let model = Model::fit(&points).unwrap();
        assert!((model.latency_us / 8.0 - 1.0).abs() < 0.05, "{model:?}");
    }

    #[test]
    fn nonsense_is_refused() {
        let refused = |points: &[(f64, f64)]| Model::fit(points).unwrap_err();
        assert!(refused(&[]).contains("three sizes"));
        assert!(refused(&[(1.0, 1.0), (1.0, 2.0), (2.0, 2.0)]).contains("three sizes"), "two sizes are no three");
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let mut points = times(0.0);
            points[2].1 = bad;
            assert!(refused(&points).contains("three sizes"), "{bad}");
        }
        let with = |f: fn(f64) -> f64| SIZES.map(|bytes| (bytes, f(bytes)));
        assert!(refused(&with(|bytes| 1e9 / bytes)).contains("no line"), "larger is faster");
        assert!(!refused(&with(|_| 10.0)).is_empty(), "size does not matter");
        assert!(refused(&with(|bytes| 1e5 + bytes / 50_000.0)).contains("mostly latency"));
        assert!(refused(&with(|bytes| 8.0 + bytes * bytes / 1e12)).contains("line"), "a curve");
    }
}
