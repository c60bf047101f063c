//! Records that are accepted and not yet durable.

use std::sync::Arc;

use super::component_log::ComponentLog;
use super::placed_reads::is_filled;
use crate::base::log_error::LogError;
use crate::base::position::Seq;
use crate::log::Log;
use crate::read::batch::Batch;

impl ComponentLog<'_> {
    /// Returns the records that are accepted but not yet durable, in order. No other read returns
    /// them, and a crash may lose them. Under [`Policy::OsBuffered`](crate::Policy::OsBuffered)
    /// these are the records not yet written to the operating system.
    ///
    /// # Errors
    /// [`LogError::Closed`](crate::LogError::Closed).
    pub fn pending_records(self) -> Result<Vec<Batch>, LogError> {
        self.log.refuse_if_closed()?;
        let staged = self.once_filled(|core| {
            let staged: Vec<_> = core.staged().collect();
            staged.iter().all(|staged| is_filled(core, staged)).then_some(staged)
        });
        Ok(staged.into_iter().map(Batch::of_staged).collect())
    }
}

/// Returns the number of the last accepted record of each of these logs, all at one moment: a
/// record that was accepted in one of them before another one of these was, in any of them, has
/// one of these numbers or a lower one. Appends to all of them wait meanwhile: less than a
/// microsecond for each log.
///
/// # Examples
/// ```
/// use esker_log::{Log, Seq, component};
/// # let dir = tempfile::tempdir().unwrap();
/// # let (a, b) = (dir.path().join("a"), dir.path().join("b"));
/// let (a, b) = (Log::open(&a)?, Log::open(&b)?);
/// a.append("a record")?.blocking_wait()?;
/// assert_eq!(component::accepted_at_one_moment(&[&a, &b, &a]), [Seq(1), Seq(0), Seq(1)]);
/// # Ok::<(), esker_log::Error>(())
/// ```
pub fn accepted_at_one_moment(logs: &[&Log]) -> Vec<Seq> {
    // Every caller locks in the same order, and each log once.
    let address = |log: &&Log| Arc::as_ptr(&log.write) as usize;
    let mut ordered: Vec<&Log> = logs.to_vec();
    ordered.sort_unstable_by_key(address);
    ordered.dedup_by_key(|log| address(log));
    let locked: Vec<_> = ordered.iter().map(|log| log.write.lock()).collect();
    let accepted: Vec<_> = locked.iter().map(|state| Seq(state.core.last_seq())).collect();
    drop(locked);
    let of = |log: &&Log| ordered.binary_search_by_key(&address(log), address).ok();
    logs.iter().filter_map(|log| Some(*accepted.get(of(log)?)?)).collect()
}
