//! Times of single calls, counted so that they can be added up.

use std::time::Duration;

const STEPS: usize = 64;
const POWERS: usize = 36;

/// Counts times in nanoseconds; what is less than 1/64 apart counts as one.
#[derive(Debug, Clone)]
pub struct Histogram {
    counts: Vec<u32>,
}

impl Histogram {
    /// Nothing counted yet.
    pub fn new() -> Self {
        Self { counts: vec![0; STEPS * POWERS] }
    }

    /// One call took so long.
    pub fn add(&mut self, took: Duration) {
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let shift = (57 - ns.leading_zeros().min(57)) as usize;
        let place = shift * STEPS + (ns >> shift) as usize;
        self.counts[place.min(STEPS * POWERS - 1)] += 1;
    }

    /// Takes over what another counted.
    pub fn merge(&mut self, other: &Self) {
        for (sum, count) in self.counts.iter_mut().zip(&other.counts) {
            *sum += count;
        }
    }

    /// The time in microseconds that this share of the calls stayed within; 0 when none was
    /// counted.
    pub fn quantile_us(&self, share: f64) -> f64 {
        let total: u64 = self.counts.iter().map(|count| u64::from(*count)).sum();
        let rank = (share * total as f64) as u64;
        let mut seen = 0;
        for (place, count) in self.counts.iter().enumerate() {
            seen += u64::from(*count);
            if seen > rank {
                let shift = (place / STEPS).saturating_sub(1);
                return (((place - shift * STEPS) as u64) << shift) as f64 / 1e3;
            }
        }
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_near_the_truth() {
        let mut times = Histogram::new();
        assert_eq!(times.quantile_us(0.5), 0.0);
        for us in 1..=1000 {
            times.add(Duration::from_micros(us));
        }
        for (share, us) in [(0.5, 501.0), (0.99, 991.0)] {
            let quantile = times.quantile_us(share);
            assert!((quantile - us).abs() / us < 0.02, "{share}: {quantile}");
        }
        let mut short = Histogram::new();
        short.add(Duration::from_nanos(5));
        assert_eq!(short.quantile_us(0.5), 0.005);
        short.add(Duration::from_secs(100_000));
    }
}
