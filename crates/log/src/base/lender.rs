//! The reserve of one log, used by others.

use std::fmt;
use std::sync::{Arc, Weak};

use crate::base::error::Result;

/// The services of the log that has the reserve, for the others.
pub(crate) trait Lender: Send + Sync {
    /// The bytes that others may take now, for records that free space.
    fn lends(&self) -> u64;
    /// Whether ordinary appends are refused until space is freed. Fills the reserve if there is
    /// room.
    fn is_low(&self) -> bool;
    /// Fills the reserve after space was freed, up to its former size or also beyond that.
    fn fill(&self, may_grow: bool);
    /// Releases this many bytes of the reserve, all of it if the log that asks is being opened, and
    /// calls `take`, which uses them. No other log gets them. What `take` leaves is reserved again.
    /// Returns `false`, and does not call it, if there is less.
    fn lend(&self, bytes: Lent, take: &mut dyn FnMut() -> Result<()>) -> Result<bool>;
}

/// How much of a reserve is lent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lent {
    Bytes(u64),
    /// For an opening.
    All,
}

/// The reserve of an open log, for other logs on the same file system: see
/// [`Options::shared_reserve`](crate::Options::shared_reserve). From
/// [`ComponentLog::shared_reserve`](crate::component::ComponentLog::shared_reserve). Does not keep
/// that log open.
#[derive(Clone)]
pub struct SharedReserve(pub(crate) Weak<dyn Lender>);

impl SharedReserve {
    /// The log that has it; `None` once it is dropped.
    pub(crate) fn lender(&self) -> Option<Arc<dyn Lender>> {
        self.0.upgrade()
    }
}

impl fmt::Debug for SharedReserve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedReserve")
    }
}
