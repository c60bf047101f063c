//! The operations on slots that read, and their slots: the same for every system. The Go side has
//! the twin.

use esker_bench::records::payload::mix;

use crate::job::Job;

/// The operations of a run.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    seed: u64,
    reads: u64,
}

impl Plan {
    /// The plan of a job.
    pub fn new(job: &Job) -> Self {
        Self { seed: job.seed, reads: u64::from(job.reads) }
    }

    /// Whether the operation of this number reads.
    pub fn is_read(self, number: u64) -> bool {
        mix(self.seed ^ number.rotate_left(17)) % 100 < self.reads
    }

    /// The slot that it reads, one below the given one.
    pub fn pick(self, number: u64, below: u64) -> u64 {
        scaled(mix(self.seed.wrapping_add(number)), below)
    }

    /// The numbers below the given one, each once.
    pub fn shuffled(self, below: u64) -> Vec<u64> {
        let mut all: Vec<u64> = (0..below).collect();
        for index in (1..all.len()).rev() {
            let other = scaled(mix(self.seed ^ index as u64), index as u64 + 1);
            all.swap(index, other as usize);
        }
        all
    }
}

fn scaled(noise: u64, below: u64) -> u64 {
    ((u128::from(noise) * u128::from(below)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The Go side has the same test: both must do the same.
    #[test]
    fn both_sides_plan_the_same() {
        let plan = Plan { seed: 7, reads: 90 };
        let mut sum = (0..1000).fold(0u64, |sum, n| mix(sum.wrapping_add(plan.pick(n, 5000))));
        let reads = (0..1000).filter(|number| plan.is_read(*number)).count();
        sum = plan.shuffled(1000).iter().fold(sum, |sum, slot| mix(sum.wrapping_add(*slot)));
        assert_eq!((sum, reads), (0x5bc2_80de_eb37_68aa, 905));
    }
}
