//! Work that blocks.

use std::io;

use tokio::sync::oneshot;

use crate::base::environment::is_simulated;

/// Runs blocking work on a thread of its own, and waits without blocking. In a simulation, runs it
/// on this thread.
pub(crate) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    if is_simulated() {
        return work();
    }
    let (sender, done) = oneshot::channel();
    std::thread::Builder::new()
        .name("esker-snapshot".into())
        .spawn(move || drop(sender.send(work())))?;
    done.await.map_err(|_| io::Error::other("the thread of a snapshot panicked"))?
}
