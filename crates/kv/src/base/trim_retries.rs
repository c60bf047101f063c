//! The bound on reads that begin again because the writer's cleaning dropped their records.

use esker_log::Trimmed;

/// The most times that a call continues after the writer's cleaning dropped records that it was
/// reading. Then it fails: the writer is faster.
const TRIM_RETRIES_MAX: u32 = 100;

/// The number of times that the writer's cleaning dropped records that a call was reading.
#[derive(Debug, Default)]
pub(crate) struct TrimRetries(u32);

impl TrimRetries {
    /// Counts one more time. Fails when the call is not to begin again.
    pub(crate) fn count(&mut self, trimmed: Trimmed) -> Result<(), Trimmed> {
        if self.is_next_allowed() { Ok(()) } else { Err(trimmed) }
    }

    /// Counts one more time. `false` when the call is not to begin again.
    pub(crate) fn is_next_allowed(&mut self) -> bool {
        self.0 += 1;
        self.0 <= TRIM_RETRIES_MAX
    }
}

#[cfg(test)]
mod tests {
    use esker_log::Seq;

    use super::*;

    #[test]
    fn a_call_begins_again_a_hundred_times() {
        let mut trim_retries = TrimRetries::default();
        for _ in 0..100 {
            assert_eq!(trim_retries.count(Trimmed { oldest: Seq(7) }), Ok(()));
        }
        let trimmed = Trimmed { oldest: Seq(8) };
        assert_eq!(trim_retries.count(trimmed), Err(trimmed));
    }
}
