//! The handle of a component's log.

use std::sync::Weak;

use crate::base::lender::{Lender, SharedReserve};
use crate::base::operation_errors::AppendError;
use crate::base::purpose::Purpose;
use crate::log::Log;
use crate::write::input::Input;
use crate::write::ticket::Ticket;

/// The methods of an open log that the author of a component needs. From [`Log::component`].
#[derive(Debug, Clone, Copy)]
pub struct ComponentLog<'a> {
    pub(super) log: &'a Log,
}

impl Log {
    /// Returns the methods for the author of a component; see the module
    /// [`component`](crate::component), which says who needs them.
    #[inline]
    pub fn component(&self) -> ComponentLog<'_> {
        ComponentLog { log: self }
    }
}

impl ComponentLog<'_> {
    /// Appends a record as [`Log::append`] does, for this purpose. Blocks.
    ///
    /// # Errors
    /// As [`Log::append`]; [`AppendError::NoSpace`](crate::AppendError::NoSpace) also when the part
    /// of the reserve that the purpose may use is used up.
    pub fn append(
        self,
        purpose: Purpose,
        payload: impl AsRef<[u8]>,
    ) -> Result<Ticket, AppendError> {
        let (write, record) = (&*self.log.write, Input::next(&payload));
        let accepted = write.with_room(None, || write.accept(record, purpose))?;
        Ok(write.ticket(accepted))
    }

    /// Returns the reserve of this log, for other logs that use it, too: see
    /// [`Options::shared_reserve`](crate::Options::shared_reserve).
    pub fn shared_reserve(self) -> SharedReserve {
        self.log.write.space.share_reserve();
        let lender: Weak<dyn Lender> = self.log.write.weak_self.clone();
        SharedReserve(lender)
    }
}
