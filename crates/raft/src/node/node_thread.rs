//! The thread of a node.

use tokio::runtime::Runtime;

/// The runtime of a node, until it is stopped; a simulation has none. Dropped inside of another
/// runtime, it does not wait for its tasks: that would block the other.
#[derive(Default)]
pub(super) struct NodeThread(Option<Runtime>);

impl NodeThread {
    pub(super) fn new(runtime: Runtime) -> Self {
        Self(Some(runtime))
    }

    /// Takes the runtime, once.
    pub(super) fn take(&mut self) -> Option<Runtime> {
        self.0.take()
    }
}

impl Drop for NodeThread {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
