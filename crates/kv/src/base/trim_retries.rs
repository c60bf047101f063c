//! The bound on reads that begin again because the writer's cleaning dropped their records.

use esker_log::Seq;

use crate::base::error::{Error, Result};
use crate::limits::TRIM_RETRIES_MAX;

/// The number of times that the writer's cleaning dropped records that a call was reading.
#[derive(Debug, Default)]
pub(crate) struct TrimRetries(u32);

impl TrimRetries {
    /// Counts one more time. Fails when the call is not to begin again.
    pub(crate) fn count(&mut self, oldest: Seq) -> Result<()> {
        self.0 += 1;
        if self.0 > TRIM_RETRIES_MAX { Err(Error::Trimmed { oldest }) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_begins_again_a_hundred_times() {
        let mut trim_retries = TrimRetries::default();
        for _ in 0..100 {
            assert!(trim_retries.count(Seq(7)).is_ok());
        }
        assert!(matches!(trim_retries.count(Seq(8)), Err(Error::Trimmed { oldest: Seq(8) })));
    }
}
