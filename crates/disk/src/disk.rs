//! A disk: where directories are opened.

use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

use crate::dir::Dir;
use crate::error::Result;

/// A file system: the entry point for opening directories.
///
/// A path is resolved once, when a directory is opened. All other operations go through the
/// [`Dir`]. All methods take `&self` and may be called from any thread. Paths are used as given,
/// and symbolic links in them are followed.
pub trait Disk: Debug + Send + Sync {
    /// Opens a directory.
    ///
    /// # Errors
    /// `NotFound`, and `NotADirectory` for anything else of that name. [`Refusal::Forked`] on a
    /// disk of this machine, in a child that `fork` made.
    ///
    /// [`Refusal::Forked`]: crate::Refusal::Forked
    fn open_dir(&self, path: &Path) -> Result<Arc<dyn Dir>>;

    /// Creates a directory and its missing parents, makes their names durable, and opens it. An
    /// existing directory is opened.
    ///
    /// # Errors
    /// `NotADirectory` when it or one of its parents exists and is not a directory. Otherwise as
    /// [`Disk::open_dir`].
    fn create_dir(&self, path: &Path) -> Result<Arc<dyn Dir>>;
}
