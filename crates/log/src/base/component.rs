//! The component that a log belongs to.

use std::fmt;

/// The magic number of the component that a log belongs to.
/// See [`Options::component`](crate::Options::component).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Component(pub [u8; 8]);

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

/// The component of the first backup to a directory until it is complete. See
/// [`Storage::backup`](crate::Storage::backup).
pub const UNFINISHED_BACKUP: Component = Component(*b"ESKRLGBU");
