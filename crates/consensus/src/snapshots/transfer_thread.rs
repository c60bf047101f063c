//! The thread of a transfer that blocks on the disk, beside the stream.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::thread;

use esker_log::{Engine, Log};

use crate::base::blocking::block_on;
use crate::errors::snapshot_errors::TransferError;
use crate::storage_error::StorageError;

/// Whether there are threads beside those that call. There are none with a manual engine.
pub(super) fn has_threads(log: &Log) -> bool {
    !log.options().engine.as_ref().is_some_and(Engine::is_manual)
}

/// Transfers, while `work` blocks on a thread of its own. Without threads, both have their turns on
/// this one. Work that the transfer does not wait for may continue when it has ended, or not.
pub(super) async fn run_transfer<T>(
    has_threads: bool,
    name: &str,
    work: impl Future<Output = ()> + Send + 'static,
    transfer: impl Future<Output = Result<T, TransferError>>,
) -> Result<T, TransferError> {
    if has_threads {
        let started = thread::Builder::new().name(name.into()).spawn(move || block_on(work));
        started.map_err(|cause| StorageError::Log(esker_log::Error::NoThread(Arc::new(cause))))?;
        return transfer.await;
    }
    let (mut work, mut transfer) = (pin!(work), pin!(transfer));
    let mut is_done = false;
    poll_fn(|context| {
        is_done = is_done || work.as_mut().poll(context).is_ready();
        transfer.as_mut().poll(context)
    })
    .await
}
