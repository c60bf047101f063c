//! Closing logs, and the manager.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use esker_log::component::DeferredWakes;
use parking_lot::Mutex;

use crate::errors::manager_errors::ManagerError;
use crate::manager::open_manager::{LogManager, ManagerInner};
use crate::storage_error::StorageError;

/// The time that closing waits for references, unless the caller says otherwise.
const CLOSE_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);
/// The pauses between two polls of the references.
const REFERENCE_POLL_MIN: Duration = Duration::from_millis(1);
const REFERENCE_POLL_MAX: Duration = Duration::from_millis(20);
/// Logs that are closed at the same time: they share syncs.
const CLOSE_THREADS_MAX: usize = 8;

impl LogManager {
    /// Closes the log of a key, so that the next [`LogManager::get`] opens it again. Returns
    /// whether it was open. Blocks.
    ///
    /// # Errors
    /// [`ManagerError::InUse`] while there are references to it; [`ManagerError::Storage`], as
    /// [`ConsensusLog::close`](crate::ConsensusLog::close), after which it is closed in any case.
    pub fn close(&self, key: impl AsRef<[u8]>) -> Result<bool, ManagerError> {
        let inner = self.inner()?;
        inner.refuse_if_closed()?;
        inner.close_log(key.as_ref())
    }

    /// Closes the manager: as [`LogManager::close_all_timeout`], with 5 seconds.
    ///
    /// # Errors
    /// As [`LogManager::close_all_timeout`].
    pub fn close_all(&self) -> Result<(), ManagerError> {
        self.close_all_timeout(CLOSE_TIMEOUT_DEFAULT)
    }

    /// Closes the manager. From its beginning on, no log is handed out. Closes every log as soon as
    /// it is not in use, and never one that is. Those that are still in use after `timeout` stay
    /// open until their last guard is dropped. Blocks.
    ///
    /// # Errors
    /// [`ManagerError::LeakedReferences`] with the logs that are still in use; otherwise
    /// [`ManagerError::Storage`], the first error that closing a log returned. In any case the
    /// manager is closed. [`StorageError::Closed`] for a second call.
    pub fn close_all_timeout(&self, timeout: Duration) -> Result<(), ManagerError> {
        let inner = self.inner()?;
        if inner.closed.swap(true, SeqCst) {
            return Err(StorageError::Closed.into());
        }
        let closed = inner.close_logs(timeout);
        let registry = inner.registry.close();
        closed.and(registry.map_err(ManagerError::Storage))
    }
}

impl ManagerInner {
    /// Closes the log of a key if it is open and not in use.
    pub(super) fn close_log(&self, key: &[u8]) -> Result<bool, ManagerError> {
        // Dropped after the claim: a waker may get the log.
        let _wakes = DeferredWakes::new();
        match self.logs.claim_idle(key) {
            None => Ok(false),
            Some(Err(references)) => Err(ManagerError::InUse { references }),
            Some(Ok((claim, open))) => {
                let outcome = open.log.close();
                drop(open);
                drop(claim);
                match outcome {
                    Ok(()) | Err(StorageError::Closed) => Ok(true),
                    Err(error) => Err(error.into()),
                }
            }
        }
    }

    fn close_logs(&self, timeout: Duration) -> Result<(), ManagerError> {
        let deadline = Instant::now().checked_add(timeout);
        let mut pause = REFERENCE_POLL_MIN;
        let failure = Mutex::new(None);
        loop {
            let all = self.logs.references();
            let idle: Vec<_> = all.iter().filter(|(_, references)| *references == 0).collect();
            if idle.is_empty() {
                if all.is_empty() {
                    return failure.into_inner().map_or(Ok(()), Err);
                }
                if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                    let logs: BTreeMap<_, _> =
                        all.iter().map(|(key, references)| (key.to_vec(), *references)).collect();
                    self.logs.forget();
                    return Err(ManagerError::LeakedReferences { logs });
                }
                std::thread::sleep(pause);
                pause = (pause * 2).min(REFERENCE_POLL_MAX);
            } else {
                self.close_some(&idle, &failure);
            }
        }
    }

    /// Closes these logs, several at a time. Keeps the first error.
    fn close_some(&self, logs: &[&(Arc<[u8]>, usize)], failure: &Mutex<Option<ManagerError>>) {
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some((key, _)) = logs.get(next.fetch_add(1, SeqCst)) {
                match self.close_log(key) {
                    Ok(_) | Err(ManagerError::InUse { .. }) => {}
                    Err(error) => drop(failure.lock().get_or_insert(error)),
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..CLOSE_THREADS_MAX.min(logs.len()) {
                // Without a thread, the others close them.
                drop(std::thread::Builder::new().spawn_scoped(scope, work));
            }
            work();
        });
    }
}
