//! Histograms of the latencies of single operations. They can be merged.

use std::time::Duration;

use hdrhistogram::Histogram;

/// A histogram of times from a nanosecond to ten minutes, with a resolution of 8 ns or a
/// thousandth of the value.
#[derive(Debug, Clone)]
pub struct Latencies {
    histogram: Histogram<u32>,
}

const LEAST_NS: u64 = 8;
const MOST_NS: u64 = 600_000_000_000;
const SIGNIFICANT_DIGITS: u8 = 3;

impl Latencies {
    /// Creates an empty histogram.
    pub fn new() -> Self {
        let histogram = Histogram::new_with_bounds(LEAST_NS, MOST_NS, SIGNIFICANT_DIGITS)
            .unwrap_or_else(|_| unreachable!("the bounds are constants that make a histogram"));
        Self { histogram }
    }

    /// Records one operation. Does not allocate.
    pub fn add(&mut self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.histogram.saturating_record(ns);
    }

    /// Adds the counts of another histogram.
    pub fn merge(&mut self, other: &Self) {
        // It cannot fail, because the bounds are the same.
        let _ = self.histogram.add(&other.histogram);
    }

    /// Clears the histogram and keeps its memory.
    pub fn reset(&mut self) {
        self.histogram.reset();
    }

    /// Returns the quantile `share` in microseconds; 0 for an empty histogram.
    pub fn quantile_us(&self, share: f64) -> f64 {
        if self.histogram.is_empty() {
            return 0.0;
        }
        round_us(self.histogram.value_at_quantile(share))
    }

    /// Returns the maximum in microseconds.
    pub fn max_us(&self) -> f64 {
        round_us(self.histogram.max())
    }

    /// Returns the quantile `share` in nanoseconds; 0 for an empty histogram.
    pub fn quantile_ns(&self, share: f64) -> u64 {
        if self.histogram.is_empty() { 0 } else { self.histogram.value_at_quantile(share) }
    }

    /// Returns the maximum in nanoseconds.
    pub fn max_ns(&self) -> u64 {
        self.histogram.max()
    }

    /// Returns the part of the operations that took at least this long.
    pub fn share_from(&self, us: f64) -> f64 {
        let from = (us * 1e3) as u64;
        let slow = self.histogram.count_between(from, MOST_NS);
        slow as f64 / self.count().max(1) as f64
    }

    /// Returns the histogram in steps of powers of two: up to so many microseconds, and how many.
    pub fn bars(&self) -> Vec<(f64, u64)> {
        let steps = self.histogram.iter_log(LEAST_NS, 2.0);
        let bar = |step: hdrhistogram::iterators::IterationValue<u32>| {
            (round_us(step.value_iterated_to()), step.count_since_last_iteration())
        };
        steps.map(bar).collect()
    }

    /// Returns the number of recorded operations.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }
}

fn round_us(ns: u64) -> f64 {
    (ns as f64 / 10.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_merged_histograms() {
        let (mut even, mut odd) = (Latencies::new(), Latencies::new());
        for us in 1..=1000u64 {
            let side = if us % 2 == 0 { &mut even } else { &mut odd };
            side.add(Duration::from_micros(us));
        }
        even.merge(&odd);
        assert_eq!(even.count(), 1000);
        for (share, us) in [(0.5, 500.0), (0.99, 990.0), (1.0, 1000.0)] {
            let reported = even.quantile_us(share);
            assert!((reported - us).abs() / us < 0.002, "{share}: {reported}");
        }
        assert!((even.max_us() - 1000.0).abs() < 2.0);
        assert!((even.share_from(900.5) - 0.1).abs() < 0.002, "{}", even.share_from(900.5));
        assert_eq!(even.quantile_ns(0.5) / 1000, 500);
        assert_eq!(Latencies::new().quantile_us(0.5), 0.0);
    }
}
