//! A histogram of durations, recorded without a lock.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The number of buckets, four for each power of two.
const BUCKET_COUNT: usize = 128;

/// A histogram of durations: 128 buckets, four for each power of two of microseconds.
///
/// A bucket is at most a quarter as wide as the durations in it are long. Below four microseconds
/// each microsecond has its own. The last bucket, of 2.1 hours and more, has no upper end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DurationHistogram {
    buckets: [u64; BUCKET_COUNT],
    nanos: u64,
}

impl DurationHistogram {
    /// Returns how many durations were recorded.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Returns the sum of the durations, exactly.
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.nanos)
    }

    /// Returns the duration that this part of all durations did not exceed: 0.5 for the median, 1.0
    /// for the longest. It is the upper end of a bucket, and so up to a quarter too long. `None`
    /// while the histogram is empty.
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let log = esker_log::Log::open(dir.path().join("log"))?;
    /// log.append("a record")?.blocking_wait()?;
    /// let syncs = log.metrics().sync_durations;
    /// assert!(syncs.quantile(0.5) <= syncs.quantile(0.99));
    /// # Ok::<(), esker_log::Error>(())
    /// ```
    pub fn quantile(&self, q: f64) -> Option<Duration> {
        let count = self.count();
        let rank = ((q * count as f64).ceil() as u64).clamp(1, count.max(1));
        let mut below = 0;
        self.buckets()
            .find(|(_, bucket)| {
                below += bucket;
                below >= rank
            })
            .map(|(end, _)| end)
    }

    /// Returns the upper end of each bucket, shortest first, and how many durations are in it. The
    /// end itself belongs to the next bucket.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        self.buckets.iter().enumerate().map(|(index, count)| (end_of(index), *count))
    }
}

/// Records durations while others read them.
#[derive(Debug)]
pub(crate) struct AtomicHistogram {
    buckets: [AtomicU64; BUCKET_COUNT],
    nanos: AtomicU64,
}

impl Default for AtomicHistogram {
    fn default() -> Self {
        Self { buckets: [const { AtomicU64::new(0) }; BUCKET_COUNT], nanos: AtomicU64::new(0) }
    }
}

impl AtomicHistogram {
    pub(crate) fn record(&self, took: Duration) {
        self.buckets[bucket_of(took)].fetch_add(1, Relaxed);
        self.nanos.fetch_add(took.as_nanos() as u64, Relaxed);
    }

    pub(crate) fn count(&self) -> u64 {
        self.buckets.iter().map(|bucket| bucket.load(Relaxed)).sum()
    }

    /// Each bucket as of one moment. The sum may have other durations than the buckets.
    pub(crate) fn read(&self) -> DurationHistogram {
        DurationHistogram {
            buckets: std::array::from_fn(|index| self.buckets[index].load(Relaxed)),
            nanos: self.nanos.load(Relaxed),
        }
    }
}

fn bucket_of(took: Duration) -> usize {
    let micros = took.as_micros().min(u128::from(u64::MAX)) as u64;
    let Some(power) = micros.checked_ilog2().filter(|power| *power >= 2) else {
        return micros as usize;
    };
    let quarter = (micros >> (power - 2)) & 3;
    ((power as usize - 1) * 4 + quarter as usize).min(BUCKET_COUNT - 1)
}

fn end_of(bucket: usize) -> Duration {
    let micros = match (bucket / 4, bucket as u64 % 4) {
        (0, quarter) => quarter + 1,
        (power, quarter) => (quarter + 5) << (power - 1),
    };
    Duration::from_micros(micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(bucket: usize) -> (Duration, Duration) {
        (bucket.checked_sub(1).map_or(Duration::ZERO, end_of), end_of(bucket))
    }

    #[test]
    fn each_duration_is_in_the_bucket_that_has_it() {
        let nanos = Duration::from_nanos(1);
        for bucket in 0..BUCKET_COUNT {
            let (from, end) = bounds(bucket);
            assert_eq!((bucket_of(from), bucket_of(end - nanos)), (bucket, bucket));
            assert!((end - from).as_micros() * 4 <= from.as_micros().max(4), "{from:?} to {end:?}");
        }
        assert_eq!(bucket_of(Duration::MAX), BUCKET_COUNT - 1);
        assert_eq!(end_of(BUCKET_COUNT - 1), Duration::from_micros(1 << 33));
    }

    #[test]
    fn a_quantile_is_the_end_of_the_bucket_with_its_rank() {
        let histogram = AtomicHistogram::default();
        assert_eq!(histogram.read().quantile(0.5), None);
        for micros in 1..=100 {
            histogram.record(Duration::from_micros(micros));
        }
        let read = histogram.read();
        assert_eq!((read.count(), read.sum()), (100, Duration::from_micros(5050)));
        // 25 is in the bucket from 24 to 28, 50 from 48, 75 from 64, and 100 from 96.
        let quantiles = [0.0, 0.25, 0.5, 0.75, 1.0].map(|q| read.quantile(q).unwrap());
        assert_eq!(quantiles, [2, 28, 56, 80, 112].map(Duration::from_micros));
        assert_eq!(read.buckets().map(|(_, count)| count).sum::<u64>(), 100);
    }
}
